/*
 * gk_gpu_gemm_round.cu - points and centroids rounded to float16 for the product, with bounds of what that
 * changes (gk_gpu_gemm.h).
 *
 * Rounding is done in float64, where the difference of the rounded and the exact coordinate is exact; bounds
 * are rounded up, by a factor that covers the roundings of their sums.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"
#include "gpu/gk_gpu_gemm_tile.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define SIDE		64			/* rows and features that a block turns at a time */
#define LARGEST		65504.0		/* of float16 */
#define MORE		1.0001
#define FAR_AWAY	0x7f7f7f7f	/* bits of a large float, and of its bytes */

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
	GkGemmBound *bound;
	GkGemmReach *reach;
	GkGemmReach *tile_reach;
	unsigned int *longest;
} RoundArgs;

__device__ __forceinline__ double
warp_sum(double v)
{
#pragma unroll
	for (int o = 16; o > 0; o >>= 1)
		v += __shfl_xor_sync(0xffffffffu, v, o);
	return v;
}

/* To float16; what is beyond it is as near as possible. */
__device__ __forceinline__ __half
to_half(double v)
{
	return __double2half(fmin(fmax(v, -LARGEST), LARGEST));
}

__device__ __forceinline__ float
round_up(double square)
{
	return __double2float_ru(sqrt(square) * MORE);
}

/* Of floats that are not negative, as bits. */
__device__ __forceinline__ void
raise(unsigned int *largest, float v)
{
	if (__float_as_uint(v) > *(volatile unsigned int *) largest)
		atomicMax(largest, __float_as_uint(v));
}

/* A warp per place. */
__global__ void __launch_bounds__(THREADS)
round_points_kernel(const __grid_constant__ RoundArgs a)
{
	int			lane = threadIdx.x % 32;

	for (int64_t place = (int64_t) blockIdx.x * WARPS + threadIdx.x / 32; place < a.places; place += (int64_t) gridDim.x * WARPS)
	{
		int64_t		row = a.order.row != NULL ? a.order.row[place] : place;
		bool		sorted = a.order.row != NULL;
		int			pivot = sorted ? a.order.pivot[place / GK_GEMM_ROWS] : 0;
		const float *p_at = a.order.pivot_at + (int64_t) pivot * a.pitch;
		const float *q_at = a.order.middle + (sorted ? (int64_t) a.order.copy[pivot] * a.pitch : 0);
		double		square = 0.0;
		double		cross = 0.0;
		double		rest = 0.0;

		for (int j = lane; j < a.width; j += 32)
			if (row < 0 || j >= a.d)
				a.y[gk_gemm_at(a.places, a.width, place, j)] = __double2half(0.0);
		for (int j = lane; row >= 0 && j < a.d; j += 32)
		{
			double		p = sorted ? (double) p_at[j] * a.scale : 0.0;
			double		q = sorted ? (double) q_at[j] * a.scale : 0.0;
			double		v = (double) a.x[row * a.pitch + j] * a.scale - p;
			__half		h = to_half(v);
			double		y = __half2float(h);

			square += y * y;
			cross += y * (p - q);
			rest += (v - y) * (v - y);
			a.y[gk_gemm_at(a.places, a.width, place, j)] = h;
		}
		square = warp_sum(square);
		cross = warp_sum(cross);
		rest = warp_sum(rest);
		if (lane == 0)
		{
			float		length = round_up(square);
			float		u = round_up(rest);
			double		w = square + 2.0 * cross;

			a.bound[place] = (GkGemmBound) {sorted ? __double2float_ru(w + (double) u * (2.0 * length + u)) : (float) w, length, u, pivot};
			raise(a.longest, length);
			raise(&a.reach[pivot].length, length);
			raise(&a.reach[pivot].rest, u);
			if (sorted)
			{
				raise(&a.tile_reach[place / GK_GEMM_ROWS].length, length);
				raise(&a.tile_reach[place / GK_GEMM_ROWS].rest, u);
			}
		}
	}
}

GkStatus
gk_gpu_gemm_round_points(GkSession *s, GkGemm *g, GkError *err)
{
	RoundArgs	a = {g->x, g->order.places, g->order, s->d, g->width, g->pitch, g->scale, g->y, g->bound, g->reach, g->tile_reach, g->longest};

	GK_TRY(cudaMemsetAsync(g->reach, 0, g->order.pivots * sizeof(GkGemmReach), s->gpu->stream));
	if (g->order.row != NULL)
		GK_TRY(cudaMemsetAsync(g->tile_reach, 0, g->order.places / GK_GEMM_ROWS * sizeof(GkGemmReach), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(g->longest, 0, sizeof(*g->longest), s->gpu->stream));
	round_points_kernel<<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
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
	int			pitch;
	int			parts;			/* of all tiles */
	int			key_pitch;
	double		scale;
	GkGemmOrder order;
	__half	   *b;
	double	   *square;			/* |b_j|^2; NULL: sorted */
	float	   *lost;			/* NULL: not sorted */
	float	   *out;			/* [k][pitch] */
	int		   *keys;
	float	   *z;
	unsigned int *nearest;
	unsigned long long sorts;
	const GkGemmReach *reach;
	const unsigned int *longest;
	GkGemmState *state;
} CentroidArgs;

/* A warp per column and copy.  Copies of the same columns are made together, so that these are read once. */
__global__ void __launch_bounds__(THREADS)
round_centroids_kernel(const __grid_constant__ CentroidArgs a)
{
	int			copy = blockIdx.x % a.order.copies;
	int			at = blockIdx.x / a.order.copies * WARPS + threadIdx.x / 32;
	int			lane = threadIdx.x % 32;
	int64_t		column = (int64_t) copy * a.k + at;
	int64_t		columns = (int64_t) a.order.copies * a.k;
	const float *q = a.order.middle + (int64_t) copy * a.pitch;
	double		square = 0.0;
	double		rest = 0.0;
	int			i;

	if (at >= a.k)
		return;
	i = a.order.centroid != NULL ? a.order.centroid[at] : at;
	for (int j = lane; j < a.d; j += 32)
	{
		double		v = (double) a.c[(int64_t) i * a.d + j] * a.scale - (a.lost != NULL ? (double) q[j] * a.scale : 0.0);
		__half		h = to_half(v);
		double		b = __half2float(h);

		square += b * b;
		rest += (v - b) * (v - b);
		a.b[gk_gemm_at(columns, a.width, column, j)] = h;
	}
	for (int j = a.d + lane; j < a.width; j += 32)
		a.b[gk_gemm_at(columns, a.width, column, j)] = __double2half(0.0);
	for (int j = lane; copy == 0 && j < a.pitch; j += 32)
		a.out[(int64_t) i * a.pitch + j] = j < a.d ? a.c[(int64_t) i * a.d + j] : 0.0f;
	square = warp_sum(square);
	rest = warp_sum(rest);
	if (lane == 0)
	{
		raise(&a.state->length, round_up(square));
		raise(&a.state->rest, round_up(rest));
		if (a.lost == NULL)
			a.square[column] = square;
		else
			a.lost[column] = __double2float_ru((sqrt(rest) + (a.d + 16) * 0x1p-24 * sqrt(square)) * MORE);
	}
}

/* Products are below 2^22 units, and so are keys without them, as far as they matter. */
__device__ __forceinline__ float
unit_of(const CentroidArgs &a)
{
	double		c = __uint_as_float(a.state->length);
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
	double		units = fmin(fmax(score / unit, -(double) GK_GEMM_FAR), (double) GK_GEMM_FAR);

	/* Column 8 j + 2 quad + o of 256 is number 2 j + o of lane quad. */
	key += (unsigned int) (at % 256 / 8 * 2 + at % 2);
	/* What has no centroid may have another copy's, and its product: 2^22 units at most. */
	key += at < a.k ? 64u * (unsigned int) __double2int_rn(units) : (unsigned int) GK_GEMM_PAD + (64u << 22) + 64u;
	return (int) key;
}

__device__ __forceinline__ void
say_units(const CentroidArgs &a, float unit)
{
	a.state->sorts = a.sorts;
	a.state->unit = unit;
	a.state->magic = magic_of(unit);
}

/* Without pivots. */
__global__ void __launch_bounds__(THREADS)
keys_kernel(const __grid_constant__ CentroidArgs a)
{
	int			at = blockIdx.x * THREADS + threadIdx.x;
	float		unit = unit_of(a);

	if (at < a.key_pitch)
		a.keys[at] = key_of(a, at, at < a.k ? 0.5 * a.square[at] : 0.0, unit);
	if (at == 0)
		say_units(a, unit);
}

/*
 * Keys of columns about pivots.  In float32: the sum of d squares, each of a rounded difference, is off by at
 * most (d + 4) 2^-24 of it, which z has room for.
 */
__global__ void __launch_bounds__(GK_TILE_THREADS)
pivot_keys_kernel(const __grid_constant__ CentroidArgs a)
{
	__shared__ GkTileSquares tile;
	int			at0 = blockIdx.x * GK_TILE;
	int			p0 = blockIdx.y * GK_TILE;
	int			column = tile.column();
	int			with = tile.pivot();
	float		square[4][4] = {};	/* [pivot][column] */
	float		unit = unit_of(a);

	if (at0 + p0 + (int) threadIdx.x == 0)
		say_units(a, unit);
	tile.sum(square, {a.c, a.order.centroid, a.k, a.d}, at0, {a.order.pivot_at, NULL, a.order.pivots, a.pitch}, p0, a.d, (float) a.scale);
#pragma unroll
	for (int o = 0; o < 4; o++)
	{
		int			pivot = p0 + with + o;

		if (pivot >= a.order.pivots)
			break;
#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			int			at = at0 + column + i;
			/* Beyond float32: far away. */
			double		score = 0.5 * fmin((double) square[o][i], 1e38);

			if (at < a.k)
			{
				double		rest = __uint_as_float(a.reach[pivot].rest);
				double		length = __uint_as_float(a.reach[pivot].length);
				double		lost = a.lost[(int64_t) a.order.copy[pivot] * a.k + at];
				double		off = (a.d + 4) * 0x1p-24 * 1.01 * score;
				float		z = __double2float_ru((rest * sqrt(2.0 * (score + off)) + length * lost + off) * MORE);

				a.z[(int64_t) pivot * a.key_pitch + at] = z;
				atomicMin(a.nearest + (int64_t) pivot * a.parts + at / GK_GEMM_PART,
						  __float_as_uint(__double2float_rd(sqrt(2.0 * fmax(score - off, 0.0)) * (1.0 / MORE))));
				score -= z;
			}
			if (at < a.key_pitch)
				a.keys[(int64_t) pivot * a.key_pitch + at] = key_of(a, at, score, unit);
		}
	}
}

GkStatus
gk_gpu_gemm_round_centroids(GkSession *s, GkGemm *g, const float *centroids, int k, GkError *err)
{
	CentroidArgs a = {centroids, k, s->d, g->width, g->pitch, gk_gemm_parts(k), gk_gemm_key_pitch(k), g->scale, g->order,
	g->b, g->square, g->lost, g->c, g->keys, g->z, g->nearest, g->sorts, g->reach, g->longest, g->state};
	int			blocks = (k + WARPS - 1) / WARPS * g->order.copies;

	a.order.centroid = (int *) gk_gemm_centroids(g, k);
	GK_TRY(cudaMemsetAsync(g->state, 0, sizeof(*g->state), s->gpu->stream));
	round_centroids_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	if (g->order.row == NULL)
		keys_kernel<<<(a.key_pitch + THREADS - 1) / THREADS, THREADS, 0, s->gpu->stream>>>(a);
	else
	{
		GK_TRY(cudaMemsetAsync(g->nearest, FAR_AWAY & 0xff, (size_t) g->order.pivots * a.parts * sizeof(int), s->gpu->stream));
		pivot_keys_kernel<<<dim3(a.key_pitch / GK_TILE, (g->order.pivots + GK_TILE - 1) / GK_TILE), GK_TILE_THREADS, 0, s->gpu->stream>>>(a);
	}
	GK_LAUNCHED();
	return GK_OK;
}
