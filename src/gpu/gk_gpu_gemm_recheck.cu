/*
 * gk_gpu_gemm_recheck.cu - labels of the rows that the product leaves undecided: a second product of these
 * rows gives their candidates, two or three as a rule, and the canonical distances of these pairs decide.
 *
 * Where products take heads of rows (gk_gpu_gemm_head.cu), there is no second one, and pairs are of the slice's rows.
 *
 * A row whose candidates find no room in the list of pairs is compared with all centroids.  That is slow and
 * rare: thousands of equal centroids, points that are many times farther from the origin than from each other.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"
#include "gpu/gk_gpu_gemm_pairs.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define PAIR_THREADS	64		/* few, so that all multiprocessors have some of the pairs */
#define TILE_WORDS	(GK_GEMM_ROWS / GK_GEMM_WORD)
#define AT_ONCE		16			/* rows that a block compares with all centroids */
#define SLAB		128			/* features of them in shared memory */

typedef struct RecheckArgs
{
	const float *x;				/* [n][pitch] */
	int			pitch;
	const float *c;				/* [k][pitch] */
	int			d;
	int			k;
	GkGemmOrder order;
	const int  *centroid;		/* of a column; NULL: the same */
	GkGemmState *state;
	GkLabels	labels;			/* of all rows */
	/* The slice: its first place, and how many. */
	int64_t		first;
	int			rows;
	const int  *done;			/* no rows any more; NULL: all */
	const unsigned int *undecided;
	const int  *limits;
	const GkGemmBound *bound;
	const __half *y;
	int			width;
	/* Undecided ones. */
	int		   *count;
	int		   *begin;
	int		   *list;
	int		   *rank;
	/* Gathered. */
	int			from;
	int			gather_rows;
	__half	   *gathered;
	int		   *gathered_row;
	int		   *gathered_pivot;
	GkGemmBound *gathered_bound;
	int		   *limit;
	/* Of near columns; NULL: not wanted. */
	GkGemmWide *wide;
	const int  *wide_limit;
	const float *reach_near;
	/* Rows that pairs are of: how many, and their numbers. */
	const int  *among;			/* NULL: `rows` */
	const int  *row;
	unsigned long long *decided;
	const GkGemmPair *pair;
	const int  *pairs;			/* how many */
	int			pair_room;
	const int  *crowd;
	int		   *in_crowd;
} RecheckArgs;

/* ---- which rows are undecided ---- */

/*
 * A thread looks at a word, and a tile's words are neighbours: the undecided rows into the list, and their rank among those of
 * their pivot.  All rows of a tile have one pivot.
 */
__global__ void __launch_bounds__(THREADS)
list_kernel(const __grid_constant__ RecheckArgs a)
{
	gk_await_previous();

	__shared__ int before_warp[WARPS];
	__shared__ int base;
	int			at = blockIdx.x * THREADS + threadIdx.x;
	int			lane = threadIdx.x % 32;
	int			first = at * GK_GEMM_WORD;	/* of the word's rows */
	unsigned int mine = first < a.rows ? __ldcs(a.undecided + at) : 0;
	int			count = __popc(mine);
	int			upto = count;	/* in the tile */
	int			rank = 0;
	int			first_tile;		/* how many of it */
	int			to;

	/* (It may become so at any time: all threads have to find the same.) */
	if (__syncthreads_or(a.done != NULL && *a.done))
		return;
#pragma unroll
	for (int o = 1; o < TILE_WORDS; o <<= 1)
	{
		int			other = __shfl_up_sync(0xffffffffu, upto, o, TILE_WORDS);

		if (lane % TILE_WORDS >= o)
			upto += other;
	}
	if (lane % TILE_WORDS == TILE_WORDS - 1 && upto > 0)
		rank = atomicAdd(a.count + (a.order.row != NULL ? a.order.pivot[(a.first + first) / GK_GEMM_ROWS] : 0), upto);
	first_tile = __shfl_sync(0xffffffffu, upto, TILE_WORDS - 1);
	to = upto - count + (lane < TILE_WORDS ? 0 : first_tile);
	rank = __shfl_sync(0xffffffffu, rank, TILE_WORDS - 1, TILE_WORDS) + upto - count;
	if (lane == 31)
		before_warp[threadIdx.x / 32] = to + count;
	__syncthreads();
	if (threadIdx.x == 0)
	{
		int			sum = 0;

		for (int w = 0; w < WARPS; w++)
		{
			int			n = before_warp[w];

			before_warp[w] = sum;
			sum += n;
		}
		base = sum > 0 ? atomicAdd(&a.state->listed, sum) : 0;
	}
	__syncthreads();
	to += base + before_warp[threadIdx.x / 32];
	for (; mine != 0; mine &= mine - 1, to++, rank++)
	{
		a.list[to] = first + gk_gemm_row_of(__ffs(mine) - 1);
		a.rank[to] = rank;
	}
}

static_assert(2 * TILE_WORDS == 32, "list_kernel: a warp has the words of two tiles");

/* Where each pivot's rows begin among the gathered; one block. */
__global__ void __launch_bounds__(GK_GEMM_PIVOTS)
begin_kernel(const __grid_constant__ RecheckArgs a)
{
	gk_await_previous();

	__shared__ int sum[GK_GEMM_PIVOTS];
	GkGemmState *s = a.state;
	int			i = threadIdx.x;
	int			mine = i < a.order.pivots ? (a.count[i] + GK_GEMM_ROWS - 1) / GK_GEMM_ROWS : 0;

	sum[i] = mine;
	__syncthreads();
	for (int o = 1; o < GK_GEMM_PIVOTS; o <<= 1)
	{
		int			before = i >= o ? sum[i - o] : 0;

		__syncthreads();
		sum[i] += before;
		__syncthreads();
	}
	if (i < a.order.pivots)
	{
		a.begin[i] = (sum[i] - mine) * GK_GEMM_ROWS;
		for (int t = sum[i] - mine; t < sum[i]; t++)
			a.gathered_pivot[t] = i;
	}
	if (i == GK_GEMM_PIVOTS - 1)
	{
		s->gathered = sum[i] * GK_GEMM_ROWS;
		s->undecided = s->listed;
		s->listed = s->pairs = s->kept = s->crowded = 0;
	}
}

/* A distance and a label: the smallest is the canonical argmin, ties to the lowest label. */
__device__ __forceinline__ void
offer(unsigned long long *best, float d2, int label)
{
	atomicMin(best, (unsigned long long) __float_as_uint(d2) << 32 | (unsigned int) label);
}

/* ---- gather ---- */

/* What no row takes of a pivot's tiles is padding, and has no candidates. */
__device__ __forceinline__ void
pad(const RecheckArgs &a)
{
	int			last = min(a.state->gathered, a.from + a.gather_rows);

	for (int i = a.from + blockIdx.x * THREADS + threadIdx.x; i < last; i += gridDim.x * THREADS)
	{
		int			pivot = a.gathered_pivot[i / GK_GEMM_ROWS];

		if (i < a.begin[pivot] + a.count[pivot])
			continue;
		a.gathered_row[i] = -1;
		a.gathered_bound[i] = {};
		a.limit[i] = GK_GEMM_NO_LIMIT;
		if (a.wide != NULL)
			a.wide[i] = {0, GK_GEMM_NO_LIMIT, 0.0f, GK_GEMM_NO_LIMIT, 0, GK_GEMM_NO_LIMIT};
	}
}

/*
 * Undecided rows with their pivot's, from place `from` on.  A warp takes some rows: first a lane what is known
 * of its row, then all lanes their values, one row's after the other's.  Their width is a multiple of 8.
 */
__global__ void __launch_bounds__(THREADS)
gather_kernel(const __grid_constant__ RecheckArgs a)
{
	gk_await_previous();

	int			undecided = a.state->undecided;
	int			vectors = a.width / 8;
	int			rows = max(1, min(32, 8 * 32 / vectors));
	int			lane = threadIdx.x % 32;

	if (a.from >= a.state->gathered)
		return;
	pad(a);
	for (int first = (blockIdx.x * WARPS + threadIdx.x / 32) * rows; first < undecided; first += gridDim.x * WARPS * rows)
	{
		int			i = first + lane;
		int			place = 0;
		int			to = -1;

		if (lane < rows && i < undecided)
		{
			int			at = a.list[i];

			place = (int) a.first + at;
			to = a.rank[i] + a.begin[a.order.row != NULL ? a.order.pivot[place / GK_GEMM_ROWS] : 0];
			if (to < a.from || to >= a.from + a.gather_rows)
				to = -1;
			else
			{
				a.gathered_row[to] = a.order.row != NULL ? a.order.row[place] : place;
				a.gathered_bound[to] = a.bound[place];
				a.limit[to] = a.wide != NULL ? max(a.limits[at], a.wide_limit[at]) : a.limits[at];
				if (a.wide != NULL)
					a.wide[to] = {at, a.wide_limit[at], a.reach_near[at], a.wide_limit[at], 0, a.limits[at]};
				a.decided[to] = GK_GEMM_NOT_YET;
				a.in_crowd[to] = 0;
			}
		}
#pragma unroll 4
		for (int v0 = 0; v0 < rows * vectors; v0 += 32)
		{
			int			v = v0 + lane;
			int			row = min(v / vectors, rows - 1);
			int			j = v % vectors * 8;
			int64_t		at = gk_gemm_at(a.order.places, a.width, __shfl_sync(0xffffffffu, place, row), j);
			int			gathered = __shfl_sync(0xffffffffu, to, row);

			if (gathered >= 0 && v < rows * vectors)
				*(uint4 *) (a.gathered + gk_gemm_at(a.gather_rows, a.width, gathered - a.from, j)) = __ldg((const uint4 *) (a.y + at));
		}
	}
}

/* ---- canonical distances ---- */

/* A warp takes 32 pairs. */
__global__ void __launch_bounds__(PAIR_THREADS)
pairs_kernel(const __grid_constant__ RecheckArgs a)
{
	gk_await_previous();

	__shared__ GkPairs<32> tile[PAIR_THREADS / 32];
	int			pairs = min(*a.pairs, a.pair_room);
	int			lane = threadIdx.x % 32;

	for (int first = blockIdx.x * PAIR_THREADS + threadIdx.x - lane; first < pairs; first += gridDim.x * PAIR_THREADS)
	{
		GkGemmPair	p = a.pair[min(first + lane, pairs - 1)];
		int			label = a.centroid != NULL ? a.centroid[p.column] : p.column;
		int			row = a.row[max(p.at, 0)];
		float		d2 = tile[threadIdx.x / 32].d2(a.x, a.c, a.pitch, row, label);

		if (first + lane < pairs && p.at >= 0)
			offer(a.decided + p.at, d2, label);
	}
}

/* Compare the rows of a crowd with all centroids: a block takes AT_ONCE rows, a thread every 256th centroid. */
__device__ __forceinline__ void
decide_crowd(const RecheckArgs &a)
{
	__shared__ float x[SLAB][AT_ONCE];
	__shared__ unsigned long long best[AT_ONCE];
	int			rows = a.state->crowded;

	for (int first = blockIdx.x * AT_ONCE; first < rows; first += gridDim.x * AT_ONCE)
	{
		if (threadIdx.x < AT_ONCE)
			best[threadIdx.x] = GK_GEMM_NOT_YET;
		for (int i0 = 0; i0 < a.k; i0 += THREADS)
		{
			int			i = i0 + threadIdx.x;
			float		d2[AT_ONCE];

#pragma unroll
			for (int r = 0; r < AT_ONCE; r++)
				d2[r] = 0.0f;
			for (int j0 = 0; j0 < a.d; j0 += SLAB)
			{
				int			features = min(SLAB, a.d - j0);

				__syncthreads();
				for (int v = threadIdx.x; v < features * AT_ONCE; v += THREADS)
				{
					int			at = a.crowd[min(first + v / features, rows - 1)];

					x[v % features][v / features] = a.x[(int64_t) a.row[at] * a.pitch + j0 + v % features];
				}
				__syncthreads();
				for (int j = 0; i < a.k && j < features; j++)
				{
					float		c = __ldg(a.c + (int64_t) i * a.pitch + j0 + j);

#pragma unroll
					for (int r = 0; r < AT_ONCE; r++)
					{
						float		t = __fsub_rn(x[j][r], c);

						d2[r] = __fmaf_rn(t, t, d2[r]);
					}
				}
			}
#pragma unroll
			for (int r = 0; r < AT_ONCE; r++)
			{
				unsigned long long mine = i < a.k ? (unsigned long long) __float_as_uint(d2[r]) << 32 | (unsigned int) i : GK_GEMM_NOT_YET;

				/* One of a warp asks for the row. */
				for (int o = 16; o > 0; o >>= 1)
				{
					unsigned long long other = __shfl_xor_sync(0xffffffffu, mine, o);

					mine = other < mine ? other : mine;
				}
				if (threadIdx.x % 32 == 0)
					atomicMin(&best[r], mine);
			}
		}
		__syncthreads();
		if (threadIdx.x < AT_ONCE && first + (int) threadIdx.x < rows)
			gk_store_label(a.labels, a.row[a.crowd[first + threadIdx.x]], (int) (unsigned int) best[threadIdx.x]);
		__syncthreads();
	}
}

/* Labels of the undecided, and the pass's counts; counters are ready for the next slice then. */
__global__ void __launch_bounds__(THREADS)
decide_kernel(const __grid_constant__ RecheckArgs a)
{
	gk_await_previous();

	GkGemmState *s = a.state;
	/*
	 * Once the chain has stopped other kernels may have left rows without pairs.  (It may become so at any time: all threads of
	 * a block have to find the same.)
	 */
	bool		over = __syncthreads_or(a.done != NULL && *a.done);

	for (int i = blockIdx.x * THREADS + threadIdx.x; !over && i < (a.among != NULL ? *a.among : a.rows); i += gridDim.x * THREADS)
		if (a.row[i] >= 0 && (a.among != NULL ? a.in_crowd[i] == 0 : a.in_crowd[i] == GK_GEMM_KEPT))
			gk_store_label(a.labels, a.row[i], (int) (unsigned int) a.decided[i]);
	if (!over)
		decide_crowd(a);
	for (int i = threadIdx.x; a.among != NULL && blockIdx.x == 0 && i < a.order.pivots; i += THREADS)
		a.count[i] = 0;
	if (blockIdx.x == 0 && threadIdx.x == 0)
	{
		/* (keep_kernel has counted pairs of heads.) */
		if (a.among != NULL)
		{
			s->all.undecided += s->undecided;
			s->all.pairs += min(*a.pairs, a.pair_room);
		}
		s->all.pairs += (unsigned long long) s->crowded * a.k;
	}
}

/* ---- launchers ---- */

/* Candidates of the undecided, a buffer of gathered rows at a time. */
static GkStatus
find_candidates(GkSession *s, GkGemm *g, RecheckArgs *r, int k, GkError *err)
{
	int64_t		room = gk_gemm_gather_room(g, r->rows);
	bool		sorted = g->order.row != NULL;
	GkGemmArgs	a = {};

	a.count = &g->state->gathered;
	a.copies = g->order.copies;
	a.keys = g->keys;
	a.state = g->state;
	a.limit = g->limit;
	a.row = g->gathered_row;
	a.pair = g->pair;
	a.pair_room = g->pair_room;
	a.in_crowd = g->in_crowd;
	a.crowd = g->crowd;
	/* How many there are only the device knows: what has no rows ends at once. */
	for (int64_t from = 0; from < room; from += g->gather_rows)
	{
		a.from = r->from = (int) from;
		a.rows = g->gather_rows;
		GK_TRY(gk_follow(s, gather_kernel, s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, *r));
		if (sorted)
		{
			GK_DO(gk_gpu_gemm_gathered_needs(s, g, from, gk_min(g->gather_rows, room - from), k, err));
			a.needs = g->gathered_needs;
			a.need = g->gathered_need;
		}
		GK_DO(gk_gpu_gemm_multiply(s, GK_GEMM_CANDIDATES, g->gathered, g->gather_rows, g->b, k, g->width, &a, err));
	}
	return GK_OK;
}

static RecheckArgs
recheck_args(const GkSession *s, const GkGemm *g, const GkGemmArgs *args, int k)
{
	RecheckArgs r = {};

	r.x = g->x;
	r.pitch = g->pitch;
	r.c = g->c;
	r.d = s->d;
	r.k = k;
	r.order = g->order;
	r.centroid = gk_gemm_centroids(g, k);
	r.state = g->state;
	r.labels = args->labels;
	r.first = args->first;
	r.rows = args->rows;
	r.done = gk_gemm_done(s);
	r.undecided = g->undecided;
	r.limits = g->limits;
	r.bound = g->bound;
	r.y = g->y;
	r.width = g->width;
	r.count = g->count;
	r.begin = g->begin;
	r.list = g->list;
	r.rank = g->rank;
	r.gather_rows = g->gather_rows;
	r.gathered = g->gathered;
	r.gathered_row = g->gathered_row;
	r.gathered_pivot = g->gathered_pivot;
	r.gathered_bound = g->gathered_bound;
	r.limit = g->limit;
	r.wide = g->near_now ? g->wide : NULL;
	r.wide_limit = g->wide_limit;
	r.reach_near = g->reach_near;
	r.decided = g->decided;
	r.in_crowd = g->in_crowd;
	r.crowd = g->crowd;
	return r;
}

/* The canonical distances of pairs decide. */
static GkStatus
compare(GkSession *s, const RecheckArgs &r, GkError *err)
{
	GK_TRY(gk_follow(s, pairs_kernel, s->gpu->sms * GK_SM_BLOCKS * 2, PAIR_THREADS, 0, r));
	GK_TRY(gk_follow(s, decide_kernel, s->gpu->sms * 4, THREADS, 0, r));
	return GK_OK;
}

GkStatus
gk_gpu_gemm_decide(GkSession *s, GkGemm *g, const GkGemmArgs *args, int k, GkError *err)
{
	int64_t		rows = args->rows;
	RecheckArgs r = recheck_args(s, g, args, k);

	r.row = g->gathered_row;
	r.among = &g->state->gathered;
	r.pair = g->pair;
	r.pair_room = g->pair_room;
	r.pairs = &g->state->pairs;
	GK_TRY(gk_follow(s, list_kernel, (unsigned int) ((rows + GK_GEMM_WORD * THREADS - 1) / (GK_GEMM_WORD * THREADS)), THREADS, 0, r));
	GK_TRY(gk_follow(s, begin_kernel, 1, GK_GEMM_PIVOTS, 0, r));
	GK_DO(find_candidates(s, g, &r, k, err));
	if (g->near_now)
	{
		GK_DO(gk_gpu_gemm_renew_near(s, g, args, k, err));
		r.pair = g->kept;
		r.pair_room = g->kept_room;
		r.pairs = &g->state->kept;
	}
	return compare(s, r, err);
}

GkStatus
gk_gpu_gemm_decide_pairs(GkSession *s, GkGemm *g, const GkGemmArgs *args, int k, GkError *err)
{
	RecheckArgs r = recheck_args(s, g, args, k);

	r.row = g->order.row + args->first;
	r.pair = g->kept;
	r.pair_room = g->kept_room;
	r.pairs = &g->state->kept;
	return compare(s, r, err);
}
