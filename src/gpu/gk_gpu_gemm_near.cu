/*
 * gk_gpu_gemm_near.cu - bounds that are kept from pass to pass, so that most rows need no product; 11 of gk_gpu_gemm.h
 * says why their labels are the same.
 *
 * Drake & Hamerly (2012) keep, of each row, lower bounds of the distances to some near centroids, and one of the
 * distance to all others.  Centroids move little after the first passes.  So most rows are settled by their bounds, or
 * after a look at one or two near centroids, and few need a product with all of them, which makes their bounds anew.
 */
#include <cuda_pipeline.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_gemm_rows.cuh"

#define BINS		256			/* of distances beyond the last centroid's, as parts of that */
#define WANTED		12			/* near columns of a row, about */
#define FEW			4			/* a row with fewer may have farther ones */
#define NARROWER	0.85f
#define WIDER		1.15f
#define FIRST_WAIT	3			/* passes before bounds are kept ... */
#define MOST_WAIT	64			/* ... and at most, where they have not paid */
#define FIRST_OPEN	0.2			/* undecided rows of all, as expected at first */
#define MOST_PAIRS	8.0			/* canonical distances a row: with more, rows have been compared with all centroids */
#define LATELY		0.25		/* how much of what is known of them is of the last pass */
#define LIFE		10.0f		/* passes that bounds are made for ... */
#define MIN_LIFE	2.5f		/* ... and that they have to last, for bounds to pay */
#define MIN_PASSES	30			/* that a fit may have, where rows have to be sorted first */
#define SHARED_K	8192		/* columns whose moves are in shared memory */
#define TEST_PASSES	4			/* for tests: with bounds, before there are none again */

struct NearArgs : RowArgs
{
	GkGemmKnown *known;
	unsigned int *near;
	__half	   *gap;
	const float *moved;
	const float *checked;
	int		   *wide_limit;
	float	   *reach_near;
	GkGemmWide *wide;
	const int  *gathered_row;
	const int  *gathered_pivot;
	const GkGemmPair *pair;		/* of the undecided and their near columns */
	int			pair_room;
	const GkGemmBound *bound;
};

static NearArgs
near_args(const GkSession *s, const GkGemm *g, int k)
{
	NearArgs	a = {row_args(s, g, k)};

	a.known = g->known;
	a.near = g->near;
	a.gap = g->gap;
	a.moved = g->moved;
	a.checked = g->checked;
	a.wide_limit = g->wide_limit;
	a.reach_near = g->reach_near;
	a.wide = g->wide;
	a.gathered_row = g->gathered_row;
	a.gathered_pivot = g->gathered_pivot;
	a.pair = g->pair;
	a.pair_room = g->pair_room;
	a.bound = g->bound;
	return a;
}

/* ---- distances and bounds ---- */

/* A lower bound as it is kept, `moved` added; and what it is now, that much less. */
static __device__ __forceinline__ __half
keep_bound(float lower, float moved)
{
	return __float2half_rd(__fmul_rd(__fadd_rd(lower, moved), 1.0f / GK_GEMM_NEAR_SCALE));
}

static __device__ __forceinline__ float
bound_now(__half kept, float moved)
{
	return __fsub_rd(__half2float(kept) * GK_GEMM_NEAR_SCALE, moved);
}

static __device__ __forceinline__ unsigned int
entry_of(int column, __half kept)
{
	return (unsigned int) column << 16 | __half_as_ushort(kept);
}

static __device__ __forceinline__ __half
kept_of(unsigned int entry)
{
	return __ushort_as_half((unsigned short) (entry & 0xffff));
}

/* out(r), as gk_gemm_out() has it: sqrt((1 + g) / (1 - g)) < 1 + 1.1 g. */
static __device__ __forceinline__ float
out_of(const Common &c, float r)
{
	return __fadd_ru(__fmul_ru(r, 1.0f + 1.1f * c.g + 0x1p-22f), 1.01f * c.tiny);
}

/* |x - p|^2 + 2 y' . (p - q) at least, where w is at most that. */
static __device__ __forceinline__ float
least_w(float w, const GkGemmBound &of)
{
	return w - 2.0f * of.rest * (2.0f * of.length + of.rest) * (1.0f + 0x1p-20f) - fabsf(w) * 0x1p-21f;
}

/* A distance at least, if its s - z is at least this. */
static __device__ __forceinline__ float
least_distance(const Common &c, float least, float units)
{
	float		s2 = 2.0f * c.unit * units;
	float		square = least + s2 - (fabsf(least) + fabsf(s2)) * 0x1p-21f;

	return near_sqrt(fmaxf(square, 0.0f)) * (1.0f - 0x1p-20f);
}

/* What is known of a row by its last centroid's product. */
struct Exact
{
	int			limit;			/* the largest key of a candidate */
	float		r;				/* its distance, at most */

	__device__ __forceinline__
	Exact(const NearArgs &a, const GkGemmArgs &p, const Common &common, const Last &last, float w, float product)
	{
		int64_t		at = (int64_t) last.pivot * p.key_pitch + last.column;
		int			units = units_of(p.keys[at], last.column, p.state->magic);
		float		more = -product * common.per_unit;
		int			best = units + __float2int_ru(more) + 1;

		limit = GK_GEMM_PAD - 1;
		r = GK_INF;
		if (abs(units) >= GK_GEMM_FAR || !(fabsf(more) < GK_GEMM_MAX_SLACK))
			return;
		limit = largest_by_score(common, w, best, p.z[at]);
		r = near_sqrt(largest_square(common, w, best, p.z[at])) * (1.0f + 0x1p-20f);
	}
};

/* ---- how far near columns may be ---- */

/* A block takes a row: how far away are the nearest WANTED columns?  LANES lanes have one at a time. */
__global__ void __launch_bounds__(THREADS)
gaps_kernel(const __grid_constant__ NearArgs a, const __grid_constant__ GkGemmArgs p)
{
	__shared__ int count[BINS];
	int64_t		place = a.places * blockIdx.x / gridDim.x;
	int64_t		b_rows = (int64_t) a.order.copies * a.k;
	Common		common(p);
	Last		last(a, place);
	float		least = least_w(p.w[place], a.bound[place]);
	float		own;

	if (last.column < 0)
		return;
	for (int i = threadIdx.x; i < BINS; i += THREADS)
		count[i] = 0;
	__syncthreads();
	own = Exact(a, p, common, last, p.w[place], product_of(a.y, a.places, place, a.b, b_rows, last.at, a.width, 0, a.width)).r;
	for (int first = 0; first < a.k; first += THREADS / LANES)
	{
		int			column = min(first + (int) threadIdx.x / LANES, a.k - 1);
		float		product = product_of(a.y, a.places, place, a.b, b_rows, last.at - last.column + column, a.width, 0, a.width);
		float		units = (float) units_of(p.keys[(int64_t) last.pivot * p.key_pitch + column], column, p.state->magic) - product * common.per_unit;
		float		more = least_distance(common, least, units) / own - 1.0f;

		if (threadIdx.x % LANES == 0 && column == first + (int) threadIdx.x / LANES && more < 1.0f)
			atomicAdd(&count[max((int) (more * BINS), 0)], 1);
	}
	__syncthreads();
	if (threadIdx.x == 0 && own < GK_INF)
	{
		int			bin = 0;

		for (int upto = count[0]; upto < WANTED && bin < BINS - 1; upto += count[++bin])
			;
		atomicAdd(&p.state->all.gaps, own * ((float) bin + 0.5f) / BINS);
		atomicAdd(&p.state->all.sampled_gaps, 1);
	}
}

/* Nothing is known of any row. */
__global__ void __launch_bounds__(THREADS)
clear_kernel(const __grid_constant__ NearArgs a, const GkGemmState *state)
{
	int64_t		place = (int64_t) blockIdx.x * THREADS + threadIdx.x;
	/* No farther than what centroids that move as they do now take a while for. */
	float		gap = fminf(state->all.gaps / (float) max(state->all.sampled_gaps, 1), LIFE * state->all.moved);

	if (place >= a.places)
		return;
	a.known[place] = {GK_INF, __float2half(0.0f), __float2half(0.0f)};
	a.gap[place] = __float2half(gap / GK_GEMM_NEAR_SCALE);
}

GkStatus
gk_gpu_gemm_sample_near(GkSession *s, GkGemm *g, int k, GkError *err)
{
	NearArgs	a = near_args(s, g, k);
	GkGemmArgs	p = {};

	if (g->near == NULL || g->near_sorts == g->sorts)
		return GK_OK;
	GK_DO(gk_gpu_gemm_find_columns(s, g, k, err));
	p.keys = g->keys;
	p.z = g->z;
	p.key_pitch = gk_gemm_key_pitch(k);
	p.state = g->state;
	p.w = g->w;
	p.d = s->d;
	p.tiny = gk_gemm_tiny_root(s, g);
	GK_TRY(cudaMemsetAsync(&g->state->all.gaps, 0, sizeof(float) + sizeof(int), s->gpu->stream));
	gaps_kernel<<<sample_rows(k), THREADS, 0, s->gpu->stream>>>(a, p);
	GK_LAUNCHED();
	g->near_sorts = g->sorts;
	return GK_OK;
}

static GkStatus
build(GkSession *s, GkGemm *g, const NearArgs &a, int k, GkError *err)
{
	GK_TRY(cudaMemsetAsync(g->moved, 0, k * sizeof(float), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(g->checked, 0, k * sizeof(float), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(&g->state->most, 0, sizeof(g->state->most), s->gpu->stream));
	clear_kernel<<<(unsigned int) ((a.places + THREADS - 1) / THREADS), THREADS, 0, s->gpu->stream>>>(a, g->state);
	GK_LAUNCHED();
	g->near_built = true;
	return GK_OK;
}

/* ---- which rows are settled ---- */

/* Near columns of a warp's 32 places, padded: no two lanes want one bank, each with its own row. */
struct Entries
{
	unsigned int of[32][GK_GEMM_NEAR_COLUMNS + 1];
	unsigned char order[32];	/* Pairs::products */

	/* Those of these rows, from `first` on. */
	__device__ __forceinline__ void
	load(const NearArgs &a, int64_t first, unsigned int rows)
	{
		int			lane = threadIdx.x % 32;

		__syncwarp();
		for (; rows != 0; rows &= rows - 1)
		{
			int			r = __ffs((int) rows) - 1;

			__pipeline_memcpy_async(&of[r][lane], a.near + (first + r) * GK_GEMM_NEAR_COLUMNS + lane, sizeof(int));
		}
		__pipeline_commit();
		__pipeline_wait_prior(0);
		__syncwarp();
	}
};

/* What a lane knows of a place's row. */
struct Looked
{
	float		upper;			/* of its last centroid's distance */
	float		out;			/* a centroid farther than this is not its nearest */
	float		lowest;			/* bound of all but its last */
	float		beyond;			/* of those that are not near columns */
	unsigned int within;		/* near columns that are not farther than `out`, a bit of each */
	int			limit;			/* the largest key of a candidate */

	__device__ __forceinline__ bool
	is_settled(void) const
	{
		return lowest > out && beyond > out;
	}

	/* Go through its near columns. */
	__device__ __forceinline__ void
	scan(const NearArgs &a, const unsigned int *entries, const float *moved, int own)
	{
		lowest = GK_INF;
		within = 0;
#pragma unroll 8
		for (int i = 0; i < GK_GEMM_NEAR_COLUMNS; i++)
		{
			unsigned int entry = entries[i];
			int			of = (int) (entry >> 16);
			float		bound = bound_now(kept_of(entry), moved[min(of, a.k - 1)]);

			if (of >= a.k || of == own)
				continue;
			lowest = fminf(lowest, bound);
			if (!(bound > out))
				within |= 1u << i;
		}
	}
};

/*
 * A warp takes 32 places of the slice at a time, a lane one.  What each column has moved is in shared memory, if it has
 * room: as many as `shared` says.
 */
__global__ void __launch_bounds__(THREADS, 3)
check_kernel(const __grid_constant__ NearArgs a, const __grid_constant__ GkGemmArgs p, int shared)
{
	gk_await_previous();

	extern __shared__ float some[];
	Entries    &entries = ((Entries *) (some + shared))[threadIdx.x / 32];
	const float *moved = shared > 0 ? some : a.moved;
	int64_t		b_rows = (int64_t) a.order.copies * a.k;
	int			lane = threadIdx.x % 32;
	Common		common(p);
	float		most = p.state->most;

	for (int i = threadIdx.x; i < min(shared, a.k); i += THREADS)
		some[i] = a.moved[i];
	/* (It may become so at any time: all threads have to find the same.) */
	if (__syncthreads_or(p.done != NULL && *p.done))
		return;
	for (int first = (blockIdx.x * WARPS + threadIdx.x / 32) * 32; first < p.rows; first += gridDim.x * THREADS)
	{
		int			i = first + lane;
		int64_t		place = (int64_t) p.first + i;
		Last		last(a, place);
		GkGemmKnown known = a.known[place];
		bool		there = a.order.row[place] >= 0;
		float		w = p.w[place];
		float		least = least_w(w, a.bound[place]);
		bool		looked;			/* at near columns */
		bool		open;
		bool		again;			/* it has to be compared with all columns */
		bool		kept = false;	/* it has a pair */
		Looked		at = {GK_INF, GK_INF, bound_now(known.nearest, most), bound_now(known.beyond, most), 0, GK_GEMM_PAD - 1};

		if (last.column >= 0)
			at.upper = __fadd_ru(known.upper, __fsub_ru(moved[last.column], a.checked[last.column]));
		at.out = out_of(common, at.upper);
		looked = there && !at.is_settled();
		entries.load(a, (int64_t) p.first + first, __ballot_sync(0xffffffffu, looked));
		if (looked)
			at.scan(a, entries.of[lane], moved, last.column);
		open = looked && !at.is_settled();
		{
			Pairs		own = {place, last.at};
			float		product = own.products(a.y, a.places, a.b, b_rows, a.width, open && last.column >= 0, entries.order);

			if (open && last.column >= 0)
			{
				Exact		exact(a, p, common, last, w, product);

				at.limit = exact.limit;
				at.upper = fminf(at.upper, exact.r);
				at.out = out_of(common, at.upper);
			}
		}
		again = open && !(at.beyond > at.out);
		a.in_crowd[i] = 0;
		if (open)
		{
			a.own[i] = last.column;
			a.limits[i] = at.limit;
			a.decided[i] = GK_GEMM_NOT_YET;
		}
		__syncwarp();
		/* Near columns that may be nearer than the last one: their products tell, or the canonical distances will. */
		if (again || !open)
			at.within = 0;
		for (unsigned int left = at.within; __any_sync(0xffffffffu, left != 0); left &= left - 1)
		{
			int			which = left != 0 ? __ffs((int) left) - 1 : 0;
			int			of = left != 0 ? (int) (entries.of[lane][which] >> 16) : 0;
			bool		wanted = left != 0 && !(bound_now(kept_of(entries.of[lane][which]), moved[of]) > at.out);
			Pairs		pair = {place, last.at - max(last.column, 0) + of};
			float		product = pair.products(a.y, a.places, a.b, b_rows, a.width, wanted, entries.order);
			bool		keep = false;

			if (wanted)
			{
				int			units = units_of(p.keys[(int64_t) last.pivot * p.key_pitch + of], of, p.state->magic);
				float		low = (float) units - product * common.per_unit - 4.0f;
				unsigned int entry = entry_of(of, keep_bound(units > -GK_GEMM_FAR ? least_distance(common, least, low) : 0.0f, moved[of]));

				keep = at.limit == GK_GEMM_PAD - 1 || units <= -GK_GEMM_FAR || !(low > (float) (at.limit >> 6));
				entries.of[lane][which] = entry;
				a.near[place * GK_GEMM_NEAR_COLUMNS + which] = entry;
			}
			kept |= keep;
			store_kept(a, p, keep, {i, of});
		}
		/* Their bounds have changed. */
		if (open && !again)
			at.scan(a, entries.of[lane], moved, last.column);
		if (again)
		{
			float		reach = __fadd_ru(at.upper, __half2float(a.gap[place]) * GK_GEMM_NEAR_SCALE);
			float		units = (0.5f * (reach * reach - least)) * common.per_unit + 2.0f;
			bool		wide = at.limit != GK_GEMM_PAD - 1 && units < GK_GEMM_MAX_LIMIT && units > -GK_GEMM_MAX_LIMIT;

			a.wide_limit[i] = wide ? max((int) units * 64 + 63, at.limit) : GK_GEMM_NO_LIMIT;
			a.reach_near[i] = wide ? reach : 0.0f;
		}
		/* A label that may change is farther than the next one by no more than what out() adds. */
		if (there)
			a.known[place] = {open ? at.out : at.upper, again || kept ? __float2half(0.0f) : looked ? keep_bound(fmaxf(at.lowest, 0.0f), most) : known.nearest,
							  known.beyond};
		{
			unsigned int bit = again ? 1u << (lane % 8 * 4 + lane % 16 / 8) : 0;
			unsigned int low = __reduce_or_sync(0xffffffffu, lane < 16 ? bit : 0);
			unsigned int high = __reduce_or_sync(0xffffffffu, lane < 16 ? 0 : bit);

			if (lane < 2)
				p.undecided[first / GK_GEMM_WORD + lane] = lane == 0 ? low : high;
		}
	}
}

static_assert(GK_GEMM_WORD == 16 && GK_GEMM_NEAR_COLUMNS == 32, "check_kernel: a warp has two words, a lane a near column");

GkStatus
gk_gpu_gemm_check_near(GkSession *s, GkGemm *g, const GkGemmArgs *labels, int k, GkError *err)
{
	NearArgs	a = near_args(s, g, k);
	int			shared = k <= SHARED_K ? (int) gk_round_up(k, 4) : 0;
	GkGemmArgs	p = *labels;

	p.key_pitch = gk_gemm_key_pitch(k);
	if (!g->near_built)
		GK_DO(build(s, g, a, k, err));
	GK_TRY(cudaMemsetAsync(&g->state->pairs, 0, 3 * sizeof(int), s->gpu->stream));
	GK_TRY(cudaFuncSetAttribute(check_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) (SHARED_K * sizeof(float) + WARPS * sizeof(Entries))));
	GK_TRY(gk_follow(s, check_kernel, s->gpu->sms * GK_SM_BLOCKS, THREADS, shared * sizeof(float) + WARPS * sizeof(Entries), a, p, shared));
	return GK_OK;
}

/* ---- bounds anew ---- */

/* Keep a lane's pair, if it is a candidate. */
static __device__ __forceinline__ void
keep_candidate(const NearArgs &a, const GkGemmArgs &p, bool candidate, GkGemmPair pair)
{
	int			lane = threadIdx.x % 32;
	unsigned int who = __ballot_sync(0xffffffffu, candidate);
	int			to = 0;

	if (who == 0)
		return;
	if (lane == 0)
		to = atomicAdd(&p.state->kept, __popc(who));
	to = __shfl_sync(0xffffffffu, to, 0) + __popc(who & ((1u << lane) - 1));
	if (!candidate)
		return;
	if (to < a.kept_room)
		a.kept[to] = pair;
	else
		join_crowd(a.in_crowd, a.crowd, p.state, pair.at);
}

/*
 * A warp takes 32 pairs of undecided rows and their near columns: a bound of each, where the row has room for it, and those
 * that may be its label are kept.
 */
__global__ void __launch_bounds__(THREADS, 4)
entries_kernel(const __grid_constant__ NearArgs a, const __grid_constant__ GkGemmArgs p)
{
	gk_await_previous();

	__shared__ unsigned char orders[WARPS][32];
	Common		common(p);
	int			lane = threadIdx.x % 32;
	int			pairs = min(p.state->pairs, a.pair_room);

	if (__any_sync(0xffffffffu, p.done != NULL && *p.done))
		return;
	for (int first = (blockIdx.x * WARPS + threadIdx.x / 32) * 32; first < pairs; first += gridDim.x * THREADS)
	{
		GkGemmPair	pair = first + lane < pairs ? a.pair[first + lane] : GkGemmPair {-1, 0};
		bool		there = pair.at >= 0;
		GkGemmWide *wide = a.wide + max(pair.at, 0);
		int			pivot = a.gathered_pivot[max(pair.at, 0) / GK_GEMM_ROWS];
		int64_t		place = p.first + (there ? wide->at : 0);
		Pairs		of = {place, (int64_t) a.order.copy[pivot] * a.k + pair.column};
		float		product = of.products(a.y, a.places, a.b, (int64_t) a.order.copies * a.k, a.width, there, orders[threadIdx.x / 32]);
		bool		candidate = false;

		if (there)
		{
			int			units = units_of(p.keys[(int64_t) pivot * p.key_pitch + pair.column], pair.column, p.state->magic);
			float		low = (float) units - product * common.per_unit - 4.0f;
			float		least = least_w(p.w[place], a.bound[place]);
			int			to = atomicAdd(&wide->count, 1);

			candidate = units <= -GK_GEMM_FAR || !(low > (float) (wide->candidate >> 6));
			if (to < GK_GEMM_NEAR_COLUMNS)
				a.near[place * GK_GEMM_NEAR_COLUMNS + to] =
					entry_of(pair.column, keep_bound(units > -GK_GEMM_FAR ? least_distance(common, least, low) : 0.0f, a.moved[pair.column]));
			else
				atomicMin(&wide->listed, units > -GK_GEMM_FAR ? (int) (low - 1.0f) * 64 : GK_GEMM_NO_LIMIT);
		}
		keep_candidate(a, p, candidate, pair);
	}
}

/* A warp takes an undecided row: what it has no near columns for, and what is beyond them. */
__global__ void __launch_bounds__(THREADS)
beyond_kernel(const __grid_constant__ NearArgs a, const __grid_constant__ GkGemmArgs p)
{
	gk_await_previous();

	int			lane = threadIdx.x % 32;
	Common		common(p);
	float		most = p.state->most;
	int			rows = p.state->gathered;

	if (__any_sync(0xffffffffu, p.done != NULL && *p.done))
		return;
	for (int i = blockIdx.x * WARPS + threadIdx.x / 32; i < rows; i += gridDim.x * WARPS)
	{
		GkGemmWide	wide = a.wide[i];
		int64_t		place = (int64_t) p.first + wide.at;
		/* (Those of a crowd are not listed.) */
		bool		crowded = a.in_crowd[i] != 0;
		bool		more = wide.listed < wide.limit || wide.count > GK_GEMM_NEAR_COLUMNS || crowded;
		bool		listed = wide.limit != GK_GEMM_NO_LIMIT && wide.listed > -64 * GK_GEMM_MAX_LIMIT && !crowded;

		if (a.gathered_row[i] < 0)
			continue;
		if (lane >= wide.count)
			a.near[place * GK_GEMM_NEAR_COLUMNS + lane] = GK_GEMM_NONE;
		if (lane == 0)
		{
			float		least = least_w(p.w[place], a.bound[place]);
			float		beyond = listed ? fminf(wide.reach, least_distance(common, least, (float) (wide.listed >> 6) - 2.0f)) : 0.0f;

			a.known[place].beyond = keep_bound(beyond, most);
			if (more || (listed && wide.count < FEW))
				a.gap[place] = __float2half(__half2float(a.gap[place]) * (more ? NARROWER : WIDER));
		}
	}
}

GkStatus
gk_gpu_gemm_renew_near(GkSession *s, GkGemm *g, const GkGemmArgs *labels, int k, GkError *err)
{
	NearArgs	a = near_args(s, g, k);
	GkGemmArgs	p = *labels;

	p.key_pitch = gk_gemm_key_pitch(k);
	GK_TRY(gk_follow(s, entries_kernel, s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, a, p));
	GK_TRY(gk_follow(s, beyond_kernel, s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, a, p));
	return GK_OK;
}

/* ---- whether it pays ---- */

/* Could they pay?  (Of wider rows products take heads, and to look at near columns takes as long.) */
static bool
may_keep(const GkSession *s, const GkGemm *g, int k)
{
	double		product = (double) k / GK_GEMM_PART * GK_GEMM_PART_NS * (s->d + GK_GEMM_PART_MORE);
	bool		is_long = product > GK_GEMM_CHECK_NS + GK_GEMM_LIMITS_NS * s->d + GK_GEMM_RENEW * FIRST_OPEN * product;

	return k <= GK_GEMM_NEAR_K && !gk_gpu_gemm_has_heads(g) && (is_long || s->host->skip == GK_SKIP_ON);
}

size_t
gk_gpu_gemm_near_bytes(const GkSession *s, const GkGemm *g, int k)
{
	return g->order.row == NULL || !may_keep(s, g, k) ? 0 :
		(size_t) g->order.places * (sizeof(GkGemmKnown) + sizeof(__half) + GK_GEMM_NEAR_COLUMNS * sizeof(int)) + 2 * (size_t) k * sizeof(float);
}

GkStatus
gk_gpu_gemm_near_room(GkSession *s, GkGemm *g, int k, GkError *err)
{
	size_t		places = (size_t) g->order.places;

	GK_TRY(cudaMalloc((void **) &g->near, places * GK_GEMM_NEAR_COLUMNS * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->known, places * sizeof(GkGemmKnown)));
	GK_TRY(cudaMalloc((void **) &g->gap, places * sizeof(__half)));
	GK_TRY(cudaMalloc((void **) &g->moved, k * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &g->checked, k * sizeof(float)));
	return GK_OK;
}

void
gk_gpu_gemm_near_free(GkGemm *g)
{
	cudaFree(g->near);
	cudaFree(g->known);
	cudaFree(g->gap);
	cudaFree(g->moved);
	cudaFree(g->checked);
	g->near = NULL;
	g->known = NULL;
	g->gap = NULL;
	g->moved = g->checked = NULL;
	gk_gpu_gemm_forget_near(g);
}

void
gk_gpu_gemm_forget_near(GkGemm *g)
{
	g->near_wanted = g->near_now = g->near_built = false;
	g->near_wait = g->near_next_wait = FIRST_WAIT;
	g->near_sorts = 0;
}

GkStatus
gk_gpu_gemm_end_near(GkSession *s, GkGemm *g, int k, GkError *err)
{
	GK_TRY(cudaMemcpyAsync(g->checked, g->moved, k * sizeof(float), cudaMemcpyDeviceToDevice, s->gpu->stream));
	return GK_OK;
}

/* What a pass with bounds takes if this part of the rows is undecided, milliseconds. */
static double
near_ms(const GkSession *s, const GkGemm *g, double open)
{
	return s->n * (GK_GEMM_CHECK_NS + GK_GEMM_LIMITS_NS * s->d) * 1e-6 + GK_GEMM_RENEW * open * g->near_whole;
}

/* After a pass without bounds: shall the next ones have them? */
static bool
pays(const GkSession *s, GkGemm *g, int k, const GkGemmCounts *counts)
{
	bool		sorted = g->order.row != NULL;
	double		parts = sorted ? (double) counts->parts * GK_GEMM_SAMPLE * GK_GEMM_ROWS / s->n : (double) k / GK_GEMM_PART;
	double		gap = counts->gaps / counts->sampled_gaps;

	g->near_whole = gk_gpu_gemm_pass_ms(s, g, GK_GEMM_WHOLE, parts, 0.0);
	g->near_other = gk_gpu_gemm_pass_ms(s, g, counts->head, parts, gk_gpu_gemm_open(s, counts));
	if (near_ms(s, g, FIRST_OPEN) > g->near_other)
		return false;
	/* Only rows that are sorted have bounds, and to sort them takes time. */
	if (!sorted)
		return s->problem.max_iter >= MIN_PASSES && may_keep(s, g, k);
	return counts->sampled_gaps > 0 && gap > counts->moved * MIN_LIFE;
}

void
gk_gpu_gemm_choose_near(const GkSession *s, GkGemm *g, int k, const GkGemmCounts *counts)
{
	bool		test = s->host->skip == GK_SKIP_ON;
	double		open = (double) counts->undecided / s->n;

	if (!counts->near)
	{
		bool		wanted = !g->near_wanted && (pays(s, g, k, counts) || test);

		if (--g->near_wait > 0 || !wanted)
			return;
		if (g->order.row == NULL)
			g->old = !g->no_room && s->delta_k == k;
		g->near_wanted = g->near != NULL && g->near_sorts == g->sorts && g->order.columns == k;
		g->near_passes = 0;
		return;
	}
	if (!g->near_wanted)
		return;
	/* (In the first one all rows are undecided.) */
	g->near_open = g->near_passes++ == 0 ? FIRST_OPEN : (1.0 - LATELY) * g->near_open + LATELY * open;
	if (test ? g->near_passes > TEST_PASSES : near_ms(s, g, g->near_open) > g->near_other || (double) counts->pairs > MOST_PAIRS * s->n)
	{
		g->near_wanted = false;
		g->near_next_wait = (int) gk_min(2 * g->near_next_wait, MOST_WAIT);
		g->near_wait = test ? FIRST_WAIT : g->near_next_wait;
	}
}
