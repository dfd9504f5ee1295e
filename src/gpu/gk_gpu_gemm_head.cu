/*
 * gk_gpu_gemm_head.cu - products of the first values of a row alone, where the others matter little; 10 of
 * gk_gpu_gemm.h says why the labels are the same.
 *
 * Columns of some embeddings have falling variances (principal components, Matryoshka embeddings).  The tails of
 * centroids, means of many rows, are short then, and Cauchy-Schwarz bounds what they can add to a score, as PDX and
 * SuperKMeans estimate it (Kuffo et al. 2025).  So heads leave few candidates: centroids that may be nearer than the
 * last one.  They are few because that one's distance is known from whole rows, and whole rows dismiss most of them.
 *
 * Which head pays is told by a sample of rows, in the first pass of whole rows after a sort: how many candidates each head
 * would leave them.
 */
#include <math.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_gemm_rows.cuh"

#define NEXT_HEAD	0.76		/* of the next larger one */
#define MORE		1.0001f		/* covers the roundings of a sum of squares and of its root */
#define MIN_OPEN	0.001		/* of all rows: less says nothing of other heads */
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

struct HeadArgs : RowArgs
{
	int			depth;
	int			middle;
	const float *tail;
	unsigned int *tail_reach;
	const GkGemmPair *pair;		/* of a slice */
	int			pair_room;
	int			depths[GK_GEMM_HEADS];	/* of a sample */
};

static HeadArgs
head_args(const GkSession *s, const GkGemm *g, int k)
{
	HeadArgs	a = {row_args(s, g, k)};

	a.depth = g->depth;
	a.middle = gk_gpu_gemm_middle_values(g);
	a.tail = g->tail;
	a.tail_reach = g->tail_reach;
	a.pair = g->pair;
	a.pair_room = g->pair_room;
	return a;
}

/* ---- tails ---- */

/*
 * The sum of the squares of a row's values from `from` up to `to`, by LANES lanes; each has it.  (product_of() of a row
 * with itself would load it twice.)
 */
static __device__ __forceinline__ float
square_of(const __half *at, int64_t rows, int width, int64_t row, int from, int to)
{
	float		sum = 0.0f;

	for (int j = from + threadIdx.x % LANES * 8; j < to; j += LANES * 8)
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
	for (int o = 1; o < LANES; o <<= 1)
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

		for (int i = lane / LANES; i < 32; i += GROUPS)
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

GkStatus
gk_gpu_gemm_find_tails(GkSession *s, GkGemm *g, int k, GkError *err)
{
	HeadArgs	a = head_args(s, g, k);

	if (g->tail_head == g->head)
		return GK_OK;
	GK_DO(gk_gpu_gemm_find_columns(s, g, k, err));
	GK_TRY(cudaMemsetAsync(g->tail_reach, 0, 2 * g->order.pivots * sizeof(*g->tail_reach), s->gpu->stream));
	tails_kernel<<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	g->tail_head = g->head;
	return GK_OK;
}

/* ---- what heads leave ---- */

/*
 * A block takes a row, with keys of whole rows: how many columns each head would leave as candidates, about; LANES
 * lanes have one at a time.
 */
__global__ void __launch_bounds__(THREADS)
sample_kernel(const __grid_constant__ HeadArgs a, const __grid_constant__ GkGemmArgs p)
{
	constexpr int AT_ONCE = THREADS / LANES;
	__shared__ int near[GK_GEMM_HEADS];
	int64_t		place = a.places * blockIdx.x / gridDim.x;
	int64_t		b_rows = (int64_t) a.order.copies * a.k;
	Last		last(a, place);
	const int  *keys = p.keys + (int64_t) last.pivot * p.key_pitch;
	float		magic = p.state->magic;
	float		per_unit = 1.0f / p.state->unit;
	float		tail[GK_GEMM_HEADS];	/* of the row, its square */
	float		limit;

	if (last.column < 0)
		return;
	if (threadIdx.x < GK_GEMM_HEADS)
		near[threadIdx.x] = 0;
	__syncthreads();
	for (int h = 0; h < GK_GEMM_WHOLE; h++)
		tail[h] = square_of(a.y, a.places, a.width, place, a.depths[h], a.width);
	limit = (float) units_of(keys[last.column], last.column, magic) +
		(2.0f * p.z[(int64_t) last.pivot * p.key_pitch + last.column] -
		 product_of(a.y, a.places, place, a.b, b_rows, last.at, a.width, 0, a.width)) * per_unit;
	for (int first = 0; first < a.k; first += AT_ONCE)
	{
		int			column = first + threadIdx.x / LANES;
		int64_t		at = last.at - last.column + min(column, a.k - 1);
		float		units = (float) units_of(keys[min(column, a.k - 1)], min(column, a.k - 1), magic);
		float		behind = square_of(a.b, b_rows, a.width, at, 0, a.width);
		float		product = 0.0f;

		for (int h = 0, from = 0; h < GK_GEMM_WHOLE; from = a.depths[h++])
		{
			behind = fmaxf(behind - square_of(a.b, b_rows, a.width, at, from, a.depths[h]), 0.0f);
			product += product_of(a.y, a.places, place, a.b, b_rows, at, a.width, from, a.depths[h]);
			if (threadIdx.x % LANES == 0 && column < a.k && column != last.column &&
				units - (product + sqrtf(tail[h] * behind)) * per_unit <= limit)
				atomicAdd(&near[h], 1);
		}
	}
	__syncthreads();
	if (threadIdx.x < GK_GEMM_HEADS)
		atomicAdd(&p.state->all.left[threadIdx.x], near[threadIdx.x]);
	if (threadIdx.x == 0)
		atomicAdd(&p.state->all.sampled, 1);
}

GkStatus
gk_gpu_gemm_sample_heads(GkSession *s, GkGemm *g, int k, GkError *err)
{
	HeadArgs	a = head_args(s, g, k);
	GkGemmArgs	p = {};

	if (g->sampled_sorts == g->sorts)
		return GK_OK;
	GK_DO(gk_gpu_gemm_find_columns(s, g, k, err));
	for (int i = 0; i < GK_GEMM_HEADS; i++)
		a.depths[i] = gk_gpu_gemm_head_values(g, i);
	p.keys = g->keys;
	p.z = g->z;
	p.key_pitch = gk_gemm_key_pitch(k);
	p.state = g->state;
	GK_TRY(cudaMemsetAsync(&g->state->all.sampled, 0, sizeof(g->state->all.sampled) + sizeof(g->state->all.left), s->gpu->stream));
	sample_kernel<<<sample_rows(k), THREADS, 0, s->gpu->stream>>>(a, p);
	GK_LAUNCHED();
	g->sampled_sorts = g->sorts;
	g->sampled_open = -1.0;
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
	int			units = units_of(p.keys[at], last.column, p.state->magic);
	float		longest = __uint_as_float(a.tail_reach[last.pivot]);
	float		z = __fsub_ru(p.z[at], __fmul_rd(longest, a.tail[last.at]));
	float		more = __fsub_ru(__fmul_ru(longest, a.tail[last.at]), product) * common.per_unit;

	if (abs(units) >= GK_GEMM_FAR || !(fabsf(more) < GK_GEMM_MAX_SLACK))
		return GK_GEMM_PAD - 1;
	return largest_by_score(common, w, units + __float2int_ru(more) + 1, z);
}

/* A warp takes 32 places of the slice at a time. */
__global__ void __launch_bounds__(THREADS, 4)
limits_kernel(const __grid_constant__ HeadArgs a, const __grid_constant__ GkGemmArgs p)
{
	gk_await_previous();

	__shared__ unsigned char orders[WARPS][32];
	Common		common(p);

	if (blockIdx.x == 0 && threadIdx.x == 0)
		p.state->pairs = p.state->kept = p.state->crowded = 0;
	for (int first = (blockIdx.x * WARPS + threadIdx.x / 32) * 32; first < p.rows; first += gridDim.x * THREADS)
	{
		int			i = first + threadIdx.x % 32;
		int64_t		place = (int64_t) p.first + i;
		int			row = a.order.row[place];
		Last		last(a, place);
		Pairs		own = {place, last.at};
		float		product = own.product(a, last.column >= 0, 0, a.width, orders[threadIdx.x / 32]);

		a.own[i] = last.column;
		a.limits[i] = row < 0 ? GK_GEMM_NO_LIMIT : last.column < 0 ? GK_GEMM_PAD - 1 : limit_of(a, p, common, last, p.w[place], product);
		a.in_crowd[i] = 0;
		a.decided[i] = GK_GEMM_NOT_YET;
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
	int			units = units_of(p.keys[(int64_t) pivot * p.key_pitch + pair.column], pair.column, p.state->magic);
	float		tail = __fmul_rd(__uint_as_float(a.tail_reach[pivot]), a.tail[at_b]);
	float		low = (float) units + __fsub_rd(__fsub_rd(tail, behind), product) * common.per_unit - 4.0f;

	return limit == GK_GEMM_PAD - 1 || units <= -GK_GEMM_FAR || !(low > (float) (limit >> 6));
}

/* A warp takes 32 pairs at a time: most are dismissed by the values before the middle, the others are read to the end. */
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

/*
 * ... with what it has left open since the last sort; or, where it has not been tried, with what the sample says, as
 * much more or less as the last pass left open than was to be expected.
 */
static double
expected_ms(const GkSession *s, const GkGemm *g, int head, double parts, const GkGemmCounts *counts)
{
	int			last = counts->head;
	double		open = g->open[head];
	double		sampled = last == GK_GEMM_WHOLE ? g->sampled_open : (double) counts->left[last] / counts->sampled;

	if (open < 0.0 && head == GK_GEMM_WHOLE)
		open = g->sampled_open;
	else if (open < 0.0)
		open = (double) counts->left[head] / counts->sampled * (sampled > MIN_OPEN ? g->open[last] / sampled : 1.0);
	if (head != GK_GEMM_WHOLE && (open > GK_GEMM_MOST_PAIRS || g->sampled_open > GK_GEMM_MOST_KEPT))
		return HUGE_VAL;
	return gk_gpu_gemm_pass_ms(s, g, head, parts, open);
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
	if (s->host->skip == GK_SKIP_ON || last != g->head || counts->sampled == 0)
		return;
	if (g->sampled_open < 0.0)
		g->sampled_open = g->open[last];
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
		g->head = head;
}
