/*
 * gk_gpu_gemm_head.cu - products of the first values of a row alone, where the others matter little; 10 of
 * gk_gpu_gemm.h says why the labels are the same.
 *
 * Columns of embeddings often have falling variances (principal components, Matryoshka embeddings).  The tails of
 * centroids, means of many rows, are short then, and Cauchy-Schwarz bounds what they can add to a score, as PDX and
 * SuperKMeans estimate it (Kuffo et al. 2025).  So heads leave few candidates: centroids that may be nearer than the
 * last one.  They are few because that one's distance is known from whole rows, and whole rows dismiss most of them.
 *
 * Which head pays is told by counts: the candidates that are left are, about, in proportion to how far apart scores
 * must be (slack), which a sample of rows tells of each head.
 */
#include <math.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_gemm_hopper.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define GROUPS		(32 / GK_GEMM_LANES)	/* of lanes, in a warp */
#define NEXT_HEAD	0.76		/* of the next larger one */
#define SAMPLE		2048		/* rows */
#define MORE		1.0001f		/* covers the roundings of a sum of squares and of its root */
#define MORE_TAIL	1.2f		/* the longest tail over an average one, about */
#define MAX_STEP	12			/* times the slack of the last pass: how far a guess is trusted */
#define PAIRS_A_ROW	2.0			/* of an undecided one, about */
#define MOST_PAIRS	5.0			/* a row: with more, their list might not have the room */
#define MIN_GAIN	0.95		/* of the time: less is not worth another head */

bool
gk_gpu_gemm_has_heads(const GkGemm *g)
{
	return g->width > GK_GEMM_MIN_HEAD_WIDTH;
}

void
gk_gpu_gemm_forget_open(GkGemm *g)
{
	for (int i = 0; i < GK_GEMM_HEADS; i++)
		g->open[i] = -1.0;
}

void
gk_gpu_gemm_forget_heads(GkGemm *g)
{
	g->head = GK_GEMM_WHOLE;
	gk_gpu_gemm_forget_open(g);
}

int
gk_gpu_gemm_head_values(const GkGemm *g, int head)
{
	int			slices = (g->width + GK_GEMM_DEPTH - 1) / GK_GEMM_DEPTH;
	double		part = slices * pow(NEXT_HEAD, GK_GEMM_WHOLE - head);
	int			values = part < 1.5 ? GK_GEMM_DEPTH : (int) (part + 0.5) * GK_GEMM_DEPTH;

	return values < g->width ? values : g->width;
}

int
gk_gpu_gemm_middle_values(const GkGemm *g)
{
	return 2 * g->depth < g->width ? 2 * g->depth : g->width;
}

typedef struct HeadArgs
{
	const __half *y;
	int64_t		places;
	const __half *b;
	int			width;
	int			depth;
	int			middle;
	int			k;
	GkGemmOrder order;
	const int  *column;			/* of a centroid */
	const float *tail;
	unsigned int *tail_reach;
	GkLabels	last;
	/* Of a slice. */
	int		   *limits;
	int		   *own;
	unsigned long long *decided;
	const GkGemmPair *pair;
	GkGemmPair *kept;
	int			pair_room;
	int		   *in_crowd;
	int		   *crowd;
	int			depths[GK_GEMM_HEADS];
} HeadArgs;

static HeadArgs
head_args(const GkSession *s, const GkGemm *g, int k)
{
	HeadArgs	a = {};

	a.y = g->y;
	a.places = g->order.places;
	a.b = g->b;
	a.width = g->width;
	a.depth = g->depth;
	a.middle = gk_gpu_gemm_middle_values(g);
	a.k = k;
	a.order = g->order;
	a.column = g->column;
	a.tail = g->tail;
	a.tail_reach = g->tail_reach;
	a.last = (GkLabels) {s->delta_labels, k <= GK_NARROW_K};
	a.limits = g->limits;
	a.own = g->own;
	a.decided = g->decided;
	a.pair = g->pair;
	a.kept = g->kept;
	a.pair_room = g->pair_room;
	a.in_crowd = g->in_crowd;
	a.crowd = g->crowd;
	for (int i = 0; i < GK_GEMM_HEADS; i++)
		a.depths[i] = gk_gpu_gemm_head_values(g, i);
	return a;
}

/* The column of a place's last centroid, -1: there is none; and where its copy for the place's pivot is. */
struct Last
{
	int			pivot;
	int			label;
	int			column;
	int64_t		at;

	__device__ __forceinline__
	Last(const HeadArgs &a, int64_t place)
	{
		int			row = a.order.row[place];

		label = row >= 0 ? gk_label_of(a.last, row) : -1;
		pivot = a.order.pivot[place / GK_GEMM_ROWS];
		column = label >= 0 && label < a.k ? a.column[label] : -1;
		at = (int64_t) a.order.copy[pivot] * a.k + max(column, 0);
	}
};

/* ---- tails ---- */

/* Of four values from j on, by GK_GEMM_LANES lanes: the sum of the squares of a row's values from `from` up to `to`. */
static __device__ __forceinline__ float
square_of(const __half *at, int64_t rows, int width, int64_t row, int from, int to)
{
	float		sum = 0.0f;

	for (int j = from + threadIdx.x % GK_GEMM_LANES * 8; j < to; j += GK_GEMM_LANES * 8)
	{
		uint4		u = __ldg((const uint4 *) (at + gk_gemm_at(rows, width, row, j)));
		const __half2 *p = (const __half2 *) &u;

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			float2		v = __half22float2(p[i]);

			sum = __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum));
		}
	}
#pragma unroll
	for (int o = 1; o < GK_GEMM_LANES; o <<= 1)
		sum += __shfl_xor_sync(0xffffffffu, sum, o);
	return sum;
}

/* The longest tail of each pivot's rows; a warp takes 32 places, which have one pivot. */
__global__ void __launch_bounds__(THREADS)
tails_kernel(const __grid_constant__ HeadArgs a)
{
	int			lane = threadIdx.x % 32;

	for (int64_t first = ((int64_t) blockIdx.x * WARPS + threadIdx.x / 32) * 32; first < a.places; first += (int64_t) gridDim.x * THREADS)
	{
		float		longest[2] = {0.0f, 0.0f};

		for (int i = lane / GK_GEMM_LANES; i < 32; i += GROUPS)
		{
			float		last = square_of(a.y, a.places, a.width, first + i, a.middle, a.width);

			longest[0] = fmaxf(longest[0], last + square_of(a.y, a.places, a.width, first + i, a.depth, a.middle));
			longest[1] = fmaxf(longest[1], last);
		}
		for (int i = 0; i < 2; i++)
		{
			unsigned int tail = __reduce_max_sync(0xffffffffu, __float_as_uint(__fmul_ru(__fsqrt_ru(longest[i]), MORE)));

			if (lane == 0)
				atomicMax(a.tail_reach + i * a.order.pivots + a.order.pivot[first / GK_GEMM_ROWS], tail);
		}
	}
}

__global__ void __launch_bounds__(THREADS)
columns_kernel(const int *centroid, int k, int *column)
{
	int			i = blockIdx.x * THREADS + threadIdx.x;

	if (i < k)
		column[centroid[i]] = i;
}

/* Which column a centroid has, once after a sort. */
static GkStatus
find_columns(GkSession *s, GkGemm *g, int k, GkError *err)
{
	if (g->has_columns)
		return GK_OK;
	columns_kernel<<<(k + THREADS - 1) / THREADS, THREADS, 0, s->gpu->stream>>>(g->order.centroid, k, g->column);
	GK_LAUNCHED();
	g->has_columns = true;
	return GK_OK;
}

GkStatus
gk_gpu_gemm_find_tails(GkSession *s, GkGemm *g, int k, GkError *err)
{
	HeadArgs	a = head_args(s, g, k);

	if (g->tail_head == g->head)
		return GK_OK;
	GK_DO(find_columns(s, g, k, err));
	GK_TRY(cudaMemsetAsync(g->tail_reach, 0, 2 * g->order.pivots * sizeof(*g->tail_reach), s->gpu->stream));
	tails_kernel<<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	g->tail_head = g->head;
	return GK_OK;
}

/* ---- how far apart scores must be ---- */

/* GK_GEMM_LANES lanes take one of SAMPLE places. */
__global__ void __launch_bounds__(THREADS)
slack_kernel(const __grid_constant__ HeadArgs a, const __grid_constant__ GkGemmArgs p)
{
	int			i = (blockIdx.x * THREADS + threadIdx.x) / GK_GEMM_LANES;
	int64_t		place = a.places * i / SAMPLE;
	Last		last(a, place);
	float		of_y = 0.0f;
	float		of_b = 0.0f;
	float		slack[GK_GEMM_HEADS];
	float		whole = last.column < 0 ? 0.0f :
		2.0f * p.z[(int64_t) last.pivot * p.key_pitch + last.column] + 3.0f * p.state->unit;

	for (int h = GK_GEMM_WHOLE; h >= 0; h--)
	{
		int			to = h < GK_GEMM_WHOLE ? a.depths[h + 1] : a.width;

		of_y += square_of(a.y, a.places, a.width, place, a.depths[h], to);
		of_b += square_of(a.b, (int64_t) a.order.copies * a.k, a.width, last.at, a.depths[h], to);
		slack[h] = whole + MORE_TAIL * sqrtf(of_y * of_b);
	}
	if (threadIdx.x % GK_GEMM_LANES != 0 || last.column < 0 || !(whole < GK_INF))
		return;
	atomicAdd(&p.state->all.slack_rows, 1);
	for (int h = 0; h < GK_GEMM_HEADS; h++)
		atomicAdd(&p.state->all.slack[h], slack[h]);
}

static_assert(SAMPLE * GK_GEMM_LANES % THREADS == 0, "whole blocks");

GkStatus
gk_gpu_gemm_find_slack(GkSession *s, GkGemm *g, int k, GkError *err)
{
	GkGemmArgs	p = {};

	if (g->slack_sorts == g->sorts)
		return GK_OK;
	GK_DO(find_columns(s, g, k, err));
	p.z = g->z;
	p.key_pitch = gk_gemm_key_pitch(k);
	p.state = g->state;
	GK_TRY(cudaMemsetAsync(&g->state->all.slack_rows, 0, sizeof(g->state->all.slack_rows) + sizeof(g->state->all.slack), s->gpu->stream));
	slack_kernel<<<SAMPLE * GK_GEMM_LANES / THREADS, THREADS, 0, s->gpu->stream>>>(head_args(s, g, k), p);
	GK_LAUNCHED();
	g->slack_sorts = g->sorts;
	return GK_OK;
}

/* ---- limits by the last label ---- */

/*
 * The largest key of a candidate if its row's last centroid, in this column of a pivot, has this product with the
 * row.  Keys have s - z, with what the tail adds in z: here both the sum and z are of whole rows.
 */
__device__ __forceinline__ int
limit_of(const HeadArgs &a, const GkGemmArgs &p, const Common &common, const Last &last, float w, float product)
{
	int64_t		at = (int64_t) last.pivot * p.key_pitch + last.column;
	int			units = gk_gemm_units(p.keys[at], last.column, p.state->magic);
	float		longest = __uint_as_float(a.tail_reach[last.pivot]);
	float		z = __fsub_ru(p.z[at], __fmul_rd(longest, a.tail[last.at]));
	float		more = __fsub_ru(__fmul_ru(longest, a.tail[last.at]), product) * common.per_unit;

	if (abs(units) >= GK_GEMM_FAR || !(fabsf(more) < GK_GEMM_MAX_SLACK))
		return GK_GEMM_PAD - 1;
	return largest_by_score(common, w, units + __float2int_ru(more) + 1, z);
}

/* A warp takes 32 places of the slice: GK_GEMM_LANES lanes one after the other, then each lane has one. */
__global__ void __launch_bounds__(THREADS, 4)
limits_kernel(const __grid_constant__ HeadArgs a, const __grid_constant__ GkGemmArgs p)
{
	gk_await_previous();

	Common		common(p);
	int64_t		b_rows = (int64_t) a.order.copies * a.k;
	int			lane = threadIdx.x % 32;

	if (blockIdx.x == 0 && threadIdx.x == 0)
		p.state->pairs = p.state->kept = p.state->crowded = 0;
	for (int first = (blockIdx.x * WARPS + threadIdx.x / 32) * 32; first < p.rows; first += gridDim.x * THREADS)
	{
		int			i = first + lane;
		int64_t		place = (int64_t) p.first + i;
		int			row = a.order.row[place];
		Last		last(a, place);
		float		product = 0.0f;

		for (int of = 0; of < 32; of += GROUPS)
		{
			int64_t		at = __shfl_sync(0xffffffffu, last.at, of + lane / GK_GEMM_LANES);
			float		sum = gk_gemm_product(a.y, a.places, place - lane + of + lane / GK_GEMM_LANES, a.b, b_rows, at, a.width, 0, a.width);

			sum = __shfl_sync(0xffffffffu, sum, lane % GROUPS * GK_GEMM_LANES);
			if (lane / GROUPS * GROUPS == of)
				product = sum;
		}
		a.own[i] = last.column;
		a.limits[i] = row < 0 ? GK_GEMM_NO_LIMIT : last.column < 0 ? GK_GEMM_PAD - 1 : limit_of(a, p, common, last, p.w[place], product);
		a.in_crowd[i] = 0;
		a.decided[i] = gk_gemm_undecided(last.label);
		if (row >= 0)
			gk_store_label(p.labels, row, last.label);
	}
}

/* ---- candidates by whole rows ---- */

/*
 * May this column be as near to a row as its last one?  Their product is of whole rows, or of what is before the middle:
 * then `behind` is at most what the rest adds.
 */
__device__ __forceinline__ bool
may_be_nearer(const HeadArgs &a, const GkGemmArgs &p, const Common &common, int pivot, int64_t at_b, GkGemmPair pair, float product,
			  float behind)
{
	int			limit = a.limits[pair.at];
	int			units = gk_gemm_units(p.keys[(int64_t) pivot * p.key_pitch + pair.column], pair.column, p.state->magic);
	float		tail = __fmul_rd(__uint_as_float(a.tail_reach[pivot]), a.tail[at_b]);
	float		low = (float) units + __fsub_rd(__fsub_rd(tail, behind), product) * common.per_unit - 4.0f;

	return limit == GK_GEMM_PAD - 1 || units <= -GK_GEMM_FAR || !(low > (float) (limit >> 6));
}

/* A warp's pairs. */
struct Pairs
{
	int64_t		place;			/* of the lane's row */
	int64_t		at;				/* of its centroid's copy */

	/* The product of the lane's pair, values `from` to `to`: of the lanes that want it, GK_GEMM_LANES lanes at a time. */
	__device__ __forceinline__ float
	product(const HeadArgs &a, bool wanted, int from, int to, unsigned char *order) const
	{
		int			lane = threadIdx.x % 32;
		unsigned int who = __ballot_sync(0xffffffffu, wanted);
		int			rank = __popc(who & ((1u << lane) - 1));
		int			count = __popc(who);
		float		mine = 0.0f;

		__syncwarp();
		if (wanted)
			order[rank] = (unsigned char) lane;
		__syncwarp();
		for (int first = 0; first < count; first += GROUPS)
		{
			int			i = first + lane / GK_GEMM_LANES;
			int			of = order[min(i, count - 1)];
			float		sum = gk_gemm_product(a.y, a.places, __shfl_sync(0xffffffffu, place, of), a.b, (int64_t) a.order.copies * a.k,
											  __shfl_sync(0xffffffffu, at, of), a.width, from, i < count ? to : from);

			sum = __shfl_sync(0xffffffffu, sum, rank % GROUPS * GK_GEMM_LANES);
			if (rank / GROUPS * GROUPS == first)
				mine = sum;
		}
		return mine;
	}
};

/* Store the pairs of the lanes that keep theirs; a row's last centroid is kept with the first of the others. */
__device__ __forceinline__ void
store_kept(const HeadArgs &a, const GkGemmArgs &p, bool keep, GkGemmPair pair)
{
	int			lane = threadIdx.x % 32;
	unsigned int before = (1u << lane) - 1;
	bool		with_own = keep && !(atomicOr(a.in_crowd + pair.at, GK_GEMM_KEPT) & GK_GEMM_KEPT) && a.own[pair.at] >= 0;
	unsigned int who = __ballot_sync(0xffffffffu, keep);
	unsigned int whose = __ballot_sync(0xffffffffu, with_own);
	int			to = 0;

	if (who == 0)
		return;
	if (lane == 0)
		to = atomicAdd(&p.state->kept, __popc(who) + __popc(whose));
	to = __shfl_sync(0xffffffffu, to, 0) + __popc(who & before) + __popc(whose & before);
	if (!keep)
		return;
	if (to + with_own < a.pair_room)
	{
		a.kept[to] = pair;
		if (with_own)
			a.kept[to + 1] = {pair.at, a.own[pair.at]};
		return;
	}
	/* A row whose pairs have no room will be compared with all centroids. */
	if (!(atomicOr(a.in_crowd + pair.at, GK_GEMM_CROWDED) & GK_GEMM_CROWDED))
		a.crowd[atomicAdd(&p.state->crowded, 1)] = pair.at;
	if (to < a.pair_room)
		a.kept[to] = {-1, 0};
}

/* A warp takes 32 pairs: most are dismissed by the values before the middle, the others are read to the end. */
__global__ void __launch_bounds__(THREADS, 4)
keep_kernel(const __grid_constant__ HeadArgs a, const __grid_constant__ GkGemmArgs p)
{
	gk_await_previous();

	__shared__ unsigned char orders[WARPS][32];
	unsigned char *order = orders[threadIdx.x / 32];
	Common		common(p);
	int			lane = threadIdx.x % 32;
	int			pairs = min(p.state->pairs, a.pair_room);
	int			looked = 0;

	for (int first = (blockIdx.x * WARPS + threadIdx.x / 32) * 32; first < pairs; first += gridDim.x * THREADS)
	{
		GkGemmPair	pair = first + lane < pairs ? a.pair[first + lane] : GkGemmPair {-1, 0};
		bool		keep = pair.at >= 0;
		int64_t		place = p.first + max(pair.at, 0);
		int			pivot = a.order.pivot[place / GK_GEMM_ROWS];
		Pairs		of = {place, (int64_t) a.order.copy[pivot] * a.k + pair.column};
		float		product = of.product(a, keep, 0, a.middle, order);

		looked += keep;
		if (a.middle < a.width)
		{
			float		behind = __fmul_ru(__uint_as_float(a.tail_reach[a.order.pivots + pivot]), a.tail[(int64_t) a.order.copies * a.k + of.at]);

			keep = keep && may_be_nearer(a, p, common, pivot, of.at, pair, product, behind);
			product += of.product(a, keep, a.middle, a.width, order);
		}
		keep = keep && may_be_nearer(a, p, common, pivot, of.at, pair, product, 0.0f);
		store_kept(a, p, keep, pair);
	}
	looked = __reduce_add_sync(0xffffffffu, looked);
	if (lane == 0 && looked > 0)
		atomicAdd(&p.state->all.pairs, (unsigned long long) looked);
}

GkStatus
gk_gpu_gemm_find_pairs(GkSession *s, GkGemm *g, const GkGemmArgs *labels, int k, GkError *err)
{
	HeadArgs	a = head_args(s, g, k);
	GkGemmArgs	p = *labels;

	p.key_pitch = gk_gemm_key_pitch(k);
	GK_TRY(gk_follow(s, limits_kernel, s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, a, p));
	p.row = NULL;
	p.limit = g->limits;
	p.own = g->own;
	p.pair = g->pair;
	p.pair_room = g->pair_room;
	p.in_crowd = g->in_crowd;
	p.crowd = g->crowd;
	GK_DO(gk_gpu_gemm_multiply(s, GK_GEMM_CANDIDATES, g->y, g->order.places, g->b, k, g->depth, &p, err));
	GK_TRY(gk_follow(s, keep_kernel, s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, a, p));
	return GK_OK;
}

/* ---- which head ---- */

double
gk_gpu_gemm_pass_ms(const GkSession *s, const GkGemm *g, int head, double parts, double open)
{
	int			depth = gk_gpu_gemm_head_values(g, head);
	double		product = parts * GK_GEMM_PART_NS * (gk_min(depth, s->d) + GK_GEMM_PART_MORE);

	if (depth < g->width)
		return s->n * (product + (GK_GEMM_LIMITS_NS + GK_GEMM_KEEP_NS * open) * s->d) * 1e-6;
	return s->n * (product * (1.0 + open) + open * (GK_GEMM_RECHECK_NS + GK_GEMM_VALUE_NS * s->d)) * 1e-6;
}

double
gk_gpu_gemm_open(const GkSession *s, const GkGemmCounts *counts)
{
	return (double) (counts->head == GK_GEMM_WHOLE ? counts->undecided : counts->pairs) / s->n;
}

/* ... with what is known of it, or as much more or less than with the last one as the slack says. */
static double
expected_ms(const GkSession *s, const GkGemm *g, int head, double parts, const GkGemmCounts *counts)
{
	double		open = g->open[head];

	if (open < 0.0)
	{
		open = g->open[counts->head] * counts->slack[head] / counts->slack[counts->head];
		if (counts->head == GK_GEMM_WHOLE)
			open *= PAIRS_A_ROW;
		else if (head == GK_GEMM_WHOLE)
			open /= PAIRS_A_ROW;
	}
	if (head != GK_GEMM_WHOLE && open > MOST_PAIRS)
		return HUGE_VAL;
	return gk_gpu_gemm_pass_ms(s, g, head, parts, open);
}

/*
 * From `last` towards a smaller head, as far as a guess is trusted: with each row's rivals just beyond what it leaves
 * open a pass would take many times as long.
 */
static int
step_towards(const GkGemm *g, int head, const GkGemmCounts *counts)
{
	int			last = counts->head;

	if (head > last || g->open[head] >= 0.0)
		return head;
	while (head < last - 1 && counts->slack[head] > MAX_STEP * counts->slack[last])
		head++;
	return head;
}

void
gk_gpu_gemm_choose_head(const GkSession *s, GkGemm *g, const GkGemmCounts *counts)
{
	int			last = counts->head;
	double		parts = (double) counts->parts * GK_GEMM_SAMPLE * GK_GEMM_ROWS / s->n;
	int			head = last;
	double		best;

	g->open[last] = gk_gpu_gemm_open(s, counts);
	/* For tests: one after the other. */
	if (s->host->skip == GK_SKIP_ON)
		g->head = (g->head + 1) % GK_GEMM_HEADS;
	if (s->host->skip == GK_SKIP_ON || last != g->head || counts->slack_rows == 0)
		return;
	best = expected_ms(s, g, last, parts, counts) * MIN_GAIN;
	for (int i = 0; i < GK_GEMM_HEADS; i++)
	{
		double		ms = expected_ms(s, g, i, parts, counts);

		if (i != last && ms < best)
		{
			best = ms;
			head = i;
		}
	}
	/* About the points that the first pivots are, tails are longer than about means. */
	if (head < last && !g->sort)
		g->old = g->sort = true;
	else
		g->head = step_towards(g, head, counts);
}
