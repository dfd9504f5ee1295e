/*
 * gk_gpu_gemm_round.cu - points and centroids rounded to float16 for the product, with bounds of what that
 * changes (gk_gpu_gemm.h).
 *
 * Points are rounded in float64, where the difference of the rounded and the exact coordinate is exact, centroids about
 * middles in float32, where it is off by 2^-24 of the coordinate.  Bounds are rounded up, by a factor that covers the
 * roundings of their sums.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"
#include "gpu/gk_gpu_gemm_tile.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define SIDE		64			/* rows and features that a block turns at a time */
#define LARGEST		65504.0		/* of float16 */
#define MORE		1.0001f
#define TINY		0x1p-140f
#define COPIES		4			/* of a centroid, by the same lanes */

/* ---- points ---- */

typedef struct TurnArgs
{
	GkRows		p;
	int			d;
	int			pitch;
	float	   *out;			/* [rows][pitch] */
} TurnArgs;

__global__ void __launch_bounds__(THREADS)
turn_kernel(const __grid_constant__ TurnArgs a)
{
	__shared__ float tile[SIDE][SIDE + 1];
	int64_t		row0 = (int64_t) blockIdx.x * SIDE;

	for (int j0 = blockIdx.y * SIDE; j0 < a.pitch; j0 += gridDim.y * SIDE)
	{
		__syncthreads();
		for (int v = threadIdx.x; v < SIDE * SIDE; v += THREADS)
		{
			int			j = j0 + v / SIDE;
			int64_t		row = row0 + v % SIDE;

			tile[v / SIDE][v % SIDE] = j < a.d && row < a.p.rows ? __ldg(a.p.x + j * a.p.ld + row) : 0.0f;
		}
		__syncthreads();
		for (int v = threadIdx.x; v < SIDE * SIDE; v += THREADS)
			if (j0 + v % SIDE < a.pitch && row0 + v / SIDE < a.p.rows)
				a.out[(row0 + v / SIDE) * a.pitch + j0 + v % SIDE] = tile[v % SIDE][v / SIDE];
	}
}

static GkStatus
turn_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	GkGemm	   *g = (GkGemm *) arg;
	TurnArgs	a = {*rows, s->d, g->pitch, g->x + rows->first * g->pitch};
	int			wide = (g->pitch + SIDE - 1) / SIDE;

	turn_kernel<<<dim3((unsigned int) ((rows->rows + SIDE - 1) / SIDE), wide < 16 ? wide : 16), THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return GK_OK;
}

GkStatus
gk_gpu_gemm_turn(GkSession *s, GkGemm *g, GkError *err)
{
	return gk_gpu_each(s, (int64_t) 1 << 24, turn_slice, g, err);
}

typedef struct RoundArgs
{
	const float *x;				/* [n][pitch] */
	int64_t		places;
	GkGemmOrder order;
	int			d;
	int			width;
	int			pitch;
	double		scale;
	__half	   *y;
	float	   *w;
	GkGemmBound *bound;
	GkGemmReach *reach;
	GkGemmReach *tile_reach;
	unsigned int *longest;
} RoundArgs;

/* Of the values of LANES lanes. */
template <int LANES>
__device__ __forceinline__ double
lanes_sum(double v)
{
#pragma unroll
	for (int o = LANES / 2; o > 0; o >>= 1)
		v += __shfl_xor_sync(0xffffffffu, v, o);
	return v;
}

/* To float16; what is beyond it is as near as possible. */
__device__ __forceinline__ __half
to_half(double v)
{
	return __double2half(fmin(fmax(v, -LARGEST), LARGEST));
}

__device__ __forceinline__ __half2
to_halves(float2 v)
{
	unsigned int h;

	asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(v.y), "f"(v.x));
	return *(__half2 *) &h;
}

__device__ __forceinline__ float
round_up(double square)
{
	return __fmul_ru(__fsqrt_ru(__double2float_ru(square)), MORE);
}

/* Of floats that are not negative, as bits. */
__device__ __forceinline__ void
raise(unsigned int *largest, float v)
{
	if (__float_as_uint(v) > *(volatile unsigned int *) largest)
		atomicMax(largest, __float_as_uint(v));
}

/* Four values that lie together. */
struct alignas(8) Four
{
	__half2		low;
	__half2		high;
};

/* All values of a row of a matrix (gk_gemm_at), by LANES lanes.  round(j) has values j to j + 3; 0 beyond the features. */
template <int LANES, typename Round>
__device__ __forceinline__ void
round_row(__half *matrix, int64_t rows, int width, int64_t row, const Round &round)
{
#pragma unroll 2
	for (int j = threadIdx.x % LANES * 4; j < width; j += LANES * 4)
		*(Four *) (matrix + gk_gemm_at(rows, width, row, j)) = round(j);
}

/* Lanes for a row: each has four values, of short rows not all have. */
static int
lanes_of(int width)
{
	return width <= 32 ? 8 : width <= 64 ? 16 : 32;
}

/* What the bounds of a place are made of. */
typedef struct PointSums
{
	double		square;
	double		cross;
	double		rest;
} PointSums;

/* A value about p, with q in the middle. */
__device__ __forceinline__ __half
round_value_about(double x, double p, double q, PointSums *sums)
{
	double		v = x - p;
	__half		h = to_half(v);
	double		y = __half2float(h);

	sums->square += y * y;
	sums->cross += y * (p - q);
	sums->rest += (v - y) * (v - y);
	return h;
}

/* Four values of a row, NULL: of none.  (Rows are padded to four, with zeros.) */
__device__ __forceinline__ float4
four_of(const float *row, int j, int pitch)
{
	return row != NULL && j < pitch ? __ldg((const float4 *) (row + j)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

__device__ __forceinline__ Four
round_point(const RoundArgs &a, const float *x, const float *p_at, const float *q_at, int j, PointSums *sums)
{
	bool		sorted = x != NULL && a.order.row != NULL;
	float4		v = four_of(x, j, a.pitch);
	float4		p = four_of(sorted ? p_at : NULL, j, a.pitch);
	float4		q = four_of(sorted ? q_at : NULL, j, a.pitch);
	double		scale = a.scale;

	return {__halves2half2(round_value_about(v.x * scale, p.x * scale, q.x * scale, sums),
						   round_value_about(v.y * scale, p.y * scale, q.y * scale, sums)),
			__halves2half2(round_value_about(v.z * scale, p.z * scale, q.z * scale, sums),
						   round_value_about(v.w * scale, p.w * scale, q.w * scale, sums))};
}

/* A warp has 32 places, LANES lanes one after the other; then each lane has one. */
template <int LANES>
__global__ void __launch_bounds__(THREADS)
round_points_kernel(const __grid_constant__ RoundArgs a)
{
	constexpr int AT_ONCE = 32 / LANES;
	int			lane = threadIdx.x % 32;
	bool		sorted = a.order.row != NULL;
	float		longest = 0.0f;

	for (int64_t first = ((int64_t) blockIdx.x * WARPS + threadIdx.x / 32) * 32; first < a.places; first += (int64_t) gridDim.x * THREADS)
	{
		int64_t		tile = first / GK_GEMM_ROWS;
		int			count = (int) min(a.places - first, (int64_t) 32);
		int			row_of = lane >= count ? -1 : sorted ? a.order.row[first + lane] : (int) first + lane;
		int			pivot = sorted ? a.order.pivot[tile] : 0;
		const float *p = a.order.pivot_at + (int64_t) pivot * a.pitch;
		const float *q = a.order.middle + (sorted ? (int64_t) a.order.copy[pivot] * a.pitch : 0);
		PointSums	own = {};
		float		length;
		float		u;

		for (int i0 = 0; i0 < count; i0 += AT_ONCE)
		{
			int			i = i0 + lane / LANES;
			int			row = __shfl_sync(0xffffffffu, row_of, i);
			const float *x = row >= 0 ? a.x + (int64_t) row * a.pitch : NULL;
			int			from = lane % AT_ONCE * LANES;
			PointSums	sums = {};

			if (i < count)
				round_row<LANES>(a.y, a.places, a.width, first + i, [&](int j) { return round_point(a, x, p, q, j, &sums); });
			sums = {lanes_sum<LANES>(sums.square), lanes_sum<LANES>(sums.cross), lanes_sum<LANES>(sums.rest)};
			sums = {__shfl_sync(0xffffffffu, sums.square, from), __shfl_sync(0xffffffffu, sums.cross, from),
					__shfl_sync(0xffffffffu, sums.rest, from)};
			if (lane / AT_ONCE * AT_ONCE == i0)
				own = sums;
		}
		length = round_up(own.square);
		u = round_up(own.rest);
		if (lane < count)
		{
			double		w = own.square + 2.0 * own.cross;

			a.w[first + lane] = sorted ? __double2float_ru(w + (double) u * (2.0 * length + u)) : (float) w;
			a.bound[first + lane] = (GkGemmBound) {length, u};
		}
		length = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(length)));
		u = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(u)));
		longest = fmaxf(longest, length);
		if (lane == 0)
		{
			raise(&a.reach[pivot].length, length);
			raise(&a.reach[pivot].rest, u);
		}
		if (lane == 0 && sorted)
		{
			raise(&a.tile_reach[tile].length, length);
			raise(&a.tile_reach[tile].rest, u);
		}
	}
	if (lane == 0)
		raise(a.longest, longest);
}

static_assert(GK_GEMM_ROWS % 32 == 0, "32 places have one pivot");

GkStatus
gk_gpu_gemm_round_points(GkSession *s, GkGemm *g, GkError *err)
{
	RoundArgs	a = {g->x, g->order.places, g->order, s->d, g->width, g->pitch, g->scale, g->y, g->w, g->bound, g->reach, g->tile_reach, g->longest};

	GK_TRY(cudaMemsetAsync(g->reach, 0, g->order.pivots * sizeof(GkGemmReach), s->gpu->stream));
	if (g->order.row != NULL)
		GK_TRY(cudaMemsetAsync(g->tile_reach, 0, g->order.places / GK_GEMM_ROWS * sizeof(GkGemmReach), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(g->longest, 0, sizeof(*g->longest), s->gpu->stream));
	switch (lanes_of(g->width))
	{
		case 8:
			round_points_kernel<8><<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
			break;
		case 16:
			round_points_kernel<16><<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
			break;
		default:
			round_points_kernel<32><<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
			break;
	}
	GK_LAUNCHED();
	return GK_OK;
}

/* ---- centroids ---- */

typedef struct CentroidArgs
{
	const float *c;				/* [k][d] */
	int			k;
	int			d;
	int			width;
	int			depth;			/* of a head */
	int			middle;
	int			pitch;
	int			parts;			/* of all tiles */
	int			key_pitch;
	double		scale;
	GkGemmOrder order;
	__half	   *b;
	double	   *square;			/* |b_j|^2; NULL: sorted */
	float	   *lost;			/* NULL: not sorted */
	float	   *tail;
	const unsigned int *tail_reach;
	float	   *out;			/* [k][pitch] */
	float	   *moved;			/* [k]: of columns; NULL: not sorted */
	int		   *keys;
	float	   *z;
	float	   *nearest;
	unsigned long long sorts;
	const GkGemmReach *reach;
	const unsigned int *longest;
	GkGemmState *state;
	int			head;
	int			turn;			/* of state->raised */
	bool		near;
} CentroidArgs;

/* Sums of the squares of what values are rounded to, and of what that changes. */
typedef struct Rounded
{
	double		square;
	double		rest;
	/* The same of differences, in float32, of one lane. */
	float		some_square;
	float		some_rest;
	float		some_tail[2];	/* of some_square, what is behind the head, and behind the middle */
} Rounded;

__device__ __forceinline__ __half
round_value(double v, Rounded *sums)
{
	__half		h = to_half(v);
	double		b = __half2float(h);

	sums->square += b * b;
	sums->rest += (v - b) * (v - b);
	return h;
}

/*
 * The same of c - q, in float32, since there are many copies.  The difference is off by at most 2^-24 of it (rest_of), and
 * taking the rounded one from it is exact, or, beyond float16, off by 2^-24 of what is left; so what else is rounded are
 * the squares and their sums, of at most 512 values a lane: 3.2e-5 of them, half of that of their roots, which MORE covers.
 * TINY is for what underflows; what overflows rules nothing out.
 */
__device__ __forceinline__ __half2
round_differences(float2 c, float2 q, float scale, bool tail, bool last, Rounded *sums)
{
	float2		v = {__fmaf_rn(c.x, scale, -__fmul_rn(q.x, scale)), __fmaf_rn(c.y, scale, -__fmul_rn(q.y, scale))};
	__half2		h = to_halves(v);
	float2		b = __half22float2(h);
	float2		rest = {__fsub_rn(v.x, b.x), __fsub_rn(v.y, b.y)};

	sums->some_square = __fmaf_rn(b.y, b.y, __fmaf_rn(b.x, b.x, sums->some_square));
	if (tail)
		sums->some_tail[0] = __fmaf_rn(b.y, b.y, __fmaf_rn(b.x, b.x, sums->some_tail[0]));
	if (last)
		sums->some_tail[1] = __fmaf_rn(b.y, b.y, __fmaf_rn(b.x, b.x, sums->some_tail[1]));
	sums->some_rest = __fmaf_rn(rest.y, rest.y, __fmaf_rn(rest.x, rest.x, sums->some_rest));
	return h;
}

/* Four features of a centroid, 0 beyond the last. */
__device__ __forceinline__ float4
four_features(const float *c, int j, int d)
{
	if (d % 4 == 0)
		return four_of(c, j, d);
	return make_float4(j < d ? __ldg(c + j) : 0.0f, j + 1 < d ? __ldg(c + j + 1) : 0.0f, j + 2 < d ? __ldg(c + j + 2) : 0.0f,
					   j + 3 < d ? __ldg(c + j + 3) : 0.0f);
}

/* Rounded: about q, or as they are where there are no pivots. */
__device__ __forceinline__ Four
round_features(const CentroidArgs &a, float4 v, const float *q, int j, Rounded *sums)
{
	float		scale = (float) a.scale;
	float4		m;

	if (a.lost == NULL)
		return {__halves2half2(round_value(v.x * a.scale, sums), round_value(v.y * a.scale, sums)),
				__halves2half2(round_value(v.z * a.scale, sums), round_value(v.w * a.scale, sums))};
	m = four_of(q, j, a.pitch);
	return {round_differences({v.x, v.y}, {m.x, m.y}, scale, j >= a.depth, j >= a.middle, sums),
			round_differences({v.z, v.w}, {m.z, m.w}, scale, j >= a.depth, j >= a.middle, sums)};
}

/* The length of what rounding has changed, at most. */
__device__ __forceinline__ float
rest_of(const CentroidArgs &a, const Rounded &sums)
{
	return a.lost == NULL ? round_up(sums.rest) : __fmaf_ru(0x1p-24f, round_up(sums.square), round_up(sums.rest + a.width * (double) TINY));
}

/* (Off by no more than 8 * 2^-24 of it, but for what underflows.) */
__device__ __forceinline__ float
square_between(float4 v, float4 w, float scale)
{
	float4		t = {__fsub_rn(v.x * scale, w.x * scale), __fsub_rn(v.y * scale, w.y * scale), __fsub_rn(v.z * scale, w.z * scale),
					 __fsub_rn(v.w * scale, w.w * scale)};

	return __fmaf_rn(t.x, t.x, __fmaf_rn(t.y, t.y, __fmaf_rn(t.z, t.z, __fmul_rn(t.w, t.w))));
}

/* One column of copies from copy0 on, by LANES lanes: what is read of its centroid serves all of them. */
template <int LANES>
__device__ __forceinline__ void
round_column(const CentroidArgs &a, int copy0, int at, Rounded (&sums)[COPIES], float *moved)
{
	int64_t		columns = (int64_t) a.order.copies * a.k;
	int			i = a.order.centroid != NULL ? a.order.centroid[at] : at;

	for (int j = threadIdx.x % LANES * 4; j < a.width; j += LANES * 4)
	{
		float4		v = four_features(a.c + (int64_t) i * a.d, j, a.d);

#pragma unroll
		for (int o = 0; o < COPIES; o++)
			if (copy0 + o < a.order.copies)
				*(Four *) (a.b + gk_gemm_at(columns, a.width, (int64_t) (copy0 + o) * a.k + at, j)) =
					round_features(a, v, a.order.middle + (int64_t) (copy0 + o) * a.pitch, j, &sums[o]);
		if (copy0 == 0 && j < a.pitch)
		{
			float4	   *out = (float4 *) (a.out + (int64_t) i * a.pitch + j);

			*moved += square_between(v, *out, (float) a.scale);
			*out = v;
		}
	}
}

__device__ __forceinline__ void
keep_bounds(const CentroidArgs &a, int64_t column, const Rounded &all)
{
	if (a.lost == NULL)
		a.square[column] = all.square;
	else
	{
		a.lost[column] = __fmaf_ru((float) (a.d + 16) * 0x1p-24f, round_up(all.square), rest_of(a, all));
		a.tail[column] = round_up(all.some_tail[0]);
		a.tail[(int64_t) a.order.copies * a.k + column] = round_up(all.some_tail[1]);
	}
}

static_assert(GK_MAX_D <= 32 * 512, "MORE covers the sums of 512 values a lane");

/* Some lanes per column and COPIES copies of it. */
template <int LANES>
__global__ void __launch_bounds__(THREADS)
round_centroids_kernel(const __grid_constant__ CentroidArgs a)
{
	gk_await_previous();

	__shared__ unsigned int length;
	__shared__ unsigned int rest;
	__shared__ unsigned int moving;
	int			parts = (a.order.copies + COPIES - 1) / COPIES;
	int			copy0 = (int) blockIdx.x % parts * COPIES;
	int			at = (int) blockIdx.x / parts * (THREADS / LANES) + threadIdx.x / LANES;
	int			lane = threadIdx.x % LANES;
	Rounded		sums[COPIES] = {};	/* of each lane */
	Rounded		all = {};
	float		moved = 0.0f;	/* its square */

	if (threadIdx.x == 0)
		length = rest = moving = 0;
	__syncthreads();
	if (at < a.k)
		round_column<LANES>(a, copy0, at, sums, &moved);
	/* A lane has a copy's. */
	static_assert(COPIES <= LANES, "a lane for each copy");
#pragma unroll
	for (int o = 0; o < COPIES; o++)
	{
		double		square = lanes_sum<LANES>(sums[o].square + sums[o].some_square);
		double		changed = lanes_sum<LANES>(sums[o].rest + sums[o].some_rest);
		float		tail = a.depth < a.width ? (float) lanes_sum<LANES>((double) sums[o].some_tail[0]) : 0.0f;
		float		last = a.middle < a.width ? (float) lanes_sum<LANES>((double) sums[o].some_tail[1]) : 0.0f;

		if (lane == o)
			all = {square, changed, 0.0f, 0.0f, {tail, last}};
	}
	if (at < a.k && lane < COPIES && copy0 + lane < a.order.copies)
	{
		keep_bounds(a, (int64_t) (copy0 + lane) * a.k + at, all);
		raise(&length, round_up(all.square));
		raise(&rest, rest_of(a, all));
	}
	if (copy0 == 0 && a.moved != NULL)
	{
		moved = round_up(lanes_sum<LANES>((double) moved) + a.width * (double) TINY);
		if (at < a.k && lane == 0)
		{
			a.moved[at] = __fadd_ru(a.moved[at], moved);
			raise(&moving, moved);
		}
	}
	__syncthreads();
	/* Once a block: that all warps look at one place takes longer than all the rest. */
	if (threadIdx.x == 0)
	{
		raise(&a.state->raised[a.turn].length, __uint_as_float(length));
		raise(&a.state->raised[a.turn].rest, __uint_as_float(rest));
		if (moving > 0)
			raise(&a.state->moving[a.turn], __uint_as_float(moving));
	}
}

/* Products are below 2^22 units, and so are keys without them, as far as they matter. */
__device__ __forceinline__ float
unit_of(const CentroidArgs &a)
{
	double		c = __uint_as_float(a.state->raised[a.turn].length);
	double		with = fmax((double) __uint_as_float(*a.longest), a.lost == NULL ? c : 0.0);
	int			expo;

	frexp(fmax(c * with, 0x1p-60) * 1.01, &expo);
	return (float) gk_pow2(expo - 22);
}

/* A number whose last bit is a unit: the scores' sums are rounded to units by adding it. */
__device__ __forceinline__ float
magic_of(float unit)
{
	return 0x1.8p23f * unit;
}

/* A column's key but for its product. */
__device__ __forceinline__ int
key_of(const CentroidArgs &a, int at, double score, float unit)
{
	/* The sum's bits, -64 times, bring the magic number's with them. */
	unsigned int key = 64u * (unsigned int) __float_as_int(magic_of(unit));
	/* a unit is a power of two */
	double		units = fmin(fmax(score * (1.0 / (double) unit), -(double) GK_GEMM_FAR), (double) GK_GEMM_FAR);

	key += gk_gemm_number(at);
	/* What has no centroid may have another copy's, and its product: 2^22 units at most. */
	key += at < a.k ? 64u * (unsigned int) __double2int_rn(units) : (unsigned int) GK_GEMM_PAD + (64u << 22) + 64u;
	return (int) key;
}

__device__ __forceinline__ void
begin_pass(const CentroidArgs &a, float unit)
{
	a.state->length = __uint_as_float(a.state->raised[a.turn].length);
	a.state->rest = __uint_as_float(a.state->raised[a.turn].rest);
	a.state->raised[!a.turn] = {};
	a.state->most = __fadd_ru(a.state->most, __uint_as_float(a.state->moving[a.turn]));
	a.state->all.moved = __uint_as_float(a.state->moving[a.turn]);
	a.state->moving[!a.turn] = 0;
	a.state->listed = a.state->pairs = a.state->kept = a.state->crowded = 0;
	a.state->all.undecided = a.state->all.pairs = a.state->all.parts = 0;
	a.state->all.sorts = a.sorts;
	a.state->all.head = a.head;
	a.state->all.near = a.near;
	a.state->unit = unit;
	a.state->magic = magic_of(unit);
}

/* Without pivots. */
__global__ void __launch_bounds__(THREADS)
keys_kernel(const __grid_constant__ CentroidArgs a)
{
	gk_await_previous();

	int			at = blockIdx.x * THREADS + threadIdx.x;
	float		unit = unit_of(a);

	if (at < a.key_pitch)
		a.keys[at] = key_of(a, at, at < a.k ? 0.5 * a.square[at] : 0.0, unit);
	if (at == 0)
		begin_pass(a, unit);
}

/*
 * Keys of columns about pivots.  In float32: the sum of d squares, each of a rounded difference, is off by at
 * most (d + 4) 2^-24 of it, which z has room for (what underflows: gk_gpu_gemm_sort.cu); z and the distance to
 * the nearest are rounded outwards.
 */
__global__ void __launch_bounds__(GK_TILE_THREADS)
pivot_keys_kernel(const __grid_constant__ CentroidArgs a)
{
	gk_await_previous();

	__shared__ GkTileSquares tile;
	int			at0 = blockIdx.x * GK_TILE;
	int			p0 = blockIdx.y * GK_TILE_PIVOTS;
	int			column = tile.column();
	int			with = tile.pivot();
	float		square[2][4] = {};	/* [pivot][column] */
	float		unit = unit_of(a);
	float		share = __double2float_ru((a.d + 4) * 0x1p-24 * 1.01);

	if (at0 + p0 + (int) threadIdx.x == 0)
		begin_pass(a, unit);
	tile.sum(square, {a.c, a.order.centroid, a.k, a.d}, at0, {a.order.pivot_at, NULL, a.order.pivots, a.pitch}, p0, a.d, (float) a.scale);
#pragma unroll
	for (int o = 0; o < 2; o++)
	{
		int			pivot = min(p0 + with + o, a.order.pivots - 1);
		const GkGemmReach *reach = a.reach + pivot;
		const float *lost = a.lost + (int64_t) a.order.copy[pivot] * a.k;
		const float *tail = a.tail + (int64_t) a.order.copy[pivot] * a.k;
		float		longest_tail = a.depth < a.width ? __uint_as_float(a.tail_reach[pivot]) : 0.0f;
		float		nearest = GK_INF;
		int			key[4];
		float		z[4];

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			int			at = at0 + column + i;
			/* Beyond float32: far away. */
			float		score = 0.5f * fminf(square[o][i], 1e38f);
			float		off = __fmul_ru(share, score);
			float		least = __fsqrt_rd(2.0f * fmaxf(__fsub_rd(score, off), 0.0f));
			float		most = __fsqrt_ru(2.0f * __fadd_ru(score, off));

			z[i] = __fmul_ru(__uint_as_float(reach->rest), most);
			z[i] = __fadd_ru(z[i], __fmul_ru(__uint_as_float(reach->length), lost[min(at, a.k - 1)]));
			z[i] = __fadd_ru(z[i], off);
			if (a.depth < a.width)
				z[i] = __fadd_ru(z[i], __fmul_ru(longest_tail, tail[min(at, a.k - 1)]));
			if (at < a.k)
				nearest = fminf(nearest, least);
			key[i] = key_of(a, at, (double) score - z[i], unit);
		}
		/* A part is as wide as this block: 16 threads have it. */
		for (int by = GK_TILE / 8; by > 0; by /= 2)
			nearest = fminf(nearest, __shfl_xor_sync(0xffffffffu, nearest, by));
		if (p0 + with + o >= a.order.pivots)
			continue;
		*(float4 *) (a.z + (int64_t) pivot * a.key_pitch + at0 + column) = make_float4(z[0], z[1], z[2], z[3]);
		*(int4 *) (a.keys + (int64_t) pivot * a.key_pitch + at0 + column) = make_int4(key[0], key[1], key[2], key[3]);
		if (column == 0)
			a.nearest[(int64_t) pivot * a.parts + blockIdx.x] = nearest;
	}
}

static_assert(GK_TILE == GK_GEMM_PART, "a block of pivot_keys_kernel has one part");

GkStatus
gk_gpu_gemm_round_centroids(GkSession *s, GkGemm *g, const float *centroids, int k, GkError *err)
{
	CentroidArgs a = {centroids, k, s->d, g->width, g->depth, gk_gpu_gemm_middle_values(g), g->pitch, gk_gemm_parts(k),
		gk_gemm_key_pitch(k), g->scale, g->order, g->b, g->square, g->lost, g->tail, g->tail_reach, g->c, g->moved, g->keys, g->z, g->nearest, g->sorts, g->reach, g->longest, g->state,
	g->depth < g->width ? g->head : GK_GEMM_WHOLE, g->turn ^= 1, g->near_now};
	int			lanes = lanes_of(g->width);
	int			blocks = (k + THREADS / lanes - 1) / (THREADS / lanes) * ((g->order.copies + COPIES - 1) / COPIES);

	a.order.centroid = (int *) gk_gemm_centroids(g, k);
	if (g->order.columns != k)
		a.moved = NULL;
	GK_TRY(gk_follow(s, lanes == 8 ? round_centroids_kernel<8> : lanes == 16 ? round_centroids_kernel<16> : round_centroids_kernel<32>,
					 blocks, THREADS, 0, a));
	if (g->order.row == NULL)
		GK_TRY(gk_follow(s, keys_kernel, (a.key_pitch + THREADS - 1) / THREADS, THREADS, 0, a));
	else
		GK_TRY(gk_follow(s, pivot_keys_kernel, dim3(a.key_pitch / GK_TILE, (g->order.pivots + GK_TILE_PIVOTS - 1) / GK_TILE_PIVOTS),
						 GK_TILE_THREADS, 0, a));
	return GK_OK;
}
