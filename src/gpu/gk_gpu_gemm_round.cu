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

#define THREADS		256
#define WARPS		(THREADS / 32)
#define SIDE		64			/* rows and features that a block turns at a time */
#define TILE		32			/* columns and pivots that a block makes keys of */
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
	int			parts;
	int			width;
	int			pitch;
	double		scale;
	__half	   *y;
	GkGemmBound *bound;
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

/* A warp per place. */
__global__ void __launch_bounds__(THREADS)
round_points_kernel(const __grid_constant__ RoundArgs a)
{
	int			lane = threadIdx.x % 32;

	for (int64_t place = (int64_t) blockIdx.x * WARPS + threadIdx.x / 32; place < a.places; place += (int64_t) gridDim.x * WARPS)
	{
		int64_t		row = a.order.row != NULL ? a.order.row[place] : place;
		const float *pivot = a.order.row != NULL ? a.order.pivot_at + (int64_t) a.order.pivot[place / GK_GEMM_ROWS] * a.pitch : NULL;
		__half	   *to = a.y + place * a.width;
		double		square = 0.0;
		double		cross = 0.0;
		double		rest = 0.0;

		for (int j = lane; j < a.width; j += 32)
			if (row < 0 || j >= a.parts * a.d)
				to[j] = __double2half(0.0);
		for (int j = lane; row >= 0 && j < a.d; j += 32)
		{
			double		p = pivot != NULL ? (double) pivot[j] * a.scale : 0.0;
			double		v = (double) a.x[row * a.pitch + j] * a.scale - p;
			__half		h = to_half(v);
			double		y = __half2float(h);

			square += y * y;
			cross += y * p;
			rest += (v - y) * (v - y);
			for (int part = 0; part < a.parts; part++)
				to[part * a.d + j] = h;
		}
		square = warp_sum(square);
		cross = warp_sum(cross);
		rest = warp_sum(rest);
		if (lane == 0)
		{
			float		length = round_up(square);

			a.bound[place] = (GkGemmBound) {(float) (square + 2.0 * cross), length, round_up(rest), 0.0f};
			atomicMax(a.longest, __float_as_uint(length));
		}
	}
}

GkStatus
gk_gpu_gemm_round_points(GkSession *s, GkGemm *g, GkError *err)
{
	RoundArgs	a = {g->x, g->order.places, g->order, s->d, g->parts, g->width, g->pitch, g->scale, g->y, g->bound, g->longest};

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
	int			parts;
	int			width;
	int			pitch;
	int			tiles;
	int			columns;		/* of a tile */
	int			key_pitch;
	double		scale;
	GkGemmOrder order;
	__half	   *b;
	float	   *out;			/* [k][pitch] */
	int		   *keys;
	unsigned int *nearest;
	const unsigned int *longest;
	GkGemmState *state;
} CentroidArgs;

/* A warp per column. */
__global__ void __launch_bounds__(THREADS)
round_centroids_kernel(const __grid_constant__ CentroidArgs a)
{
	int			at = blockIdx.x * WARPS + threadIdx.x / 32;
	int			lane = threadIdx.x % 32;
	double		square = 0.0;
	double		rest = 0.0;
	double		low = 0.0;
	int			i;

	if (at >= a.k)
		return;
	i = a.order.centroid != NULL ? a.order.centroid[at] : at;
	for (int j = lane; j < a.d; j += 32)
	{
		double		v = (double) a.c[(int64_t) i * a.d + j] * a.scale;
		__half		h = to_half(v);
		__half		l = to_half(a.parts > 1 ? v - (double) __half2float(h) : 0.0);
		double		b = (double) __half2float(h) + (double) __half2float(l);
		__half	   *to = a.b + (int64_t) at * a.width + j;

		square += b * b;
		rest += (v - b) * (v - b);
		low += (double) __half2float(l) * (double) __half2float(l);
		to[0] = a.parts > 1 ? l : h;
		if (a.parts > 1)
			to[a.d] = h;
	}
	for (int j = a.parts * a.d + lane; j < a.width; j += 32)
		a.b[(int64_t) at * a.width + j] = __double2half(0.0);
	for (int j = lane; j < a.pitch; j += 32)
		a.out[(int64_t) i * a.pitch + j] = j < a.d ? a.c[(int64_t) i * a.d + j] : 0.0f;
	square = warp_sum(square);
	rest = warp_sum(rest);
	low = warp_sum(low);
	if (lane == 0)
	{
		atomicMax(&a.state->length, __float_as_uint(round_up(square)));
		atomicMax(&a.state->rest, __float_as_uint(round_up(rest)));
		atomicMax(&a.state->low, __float_as_uint(round_up(low)));
	}
}

/* A column's b. */
__device__ __forceinline__ double
rounded(const CentroidArgs &a, int at, int j)
{
	const __half *b = a.b + (int64_t) at * a.width + j;

	return a.parts > 1 ? (double) __half2float(b[0]) + (double) __half2float(b[a.d]) : (double) __half2float(b[0]);
}

/*
 * Keys of TILE columns about TILE pivots.  Products are below 2^22 units, and so are halves of squares, as
 * far as they matter.
 */
__global__ void __launch_bounds__(THREADS)
keys_kernel(const __grid_constant__ CentroidArgs a)
{
	__shared__ double b[TILE][TILE + 1];	/* [feature][column] */
	__shared__ double p[TILE][TILE + 1];	/* [feature][pivot] */
	int			at0 = blockIdx.x * TILE;
	int			p0 = blockIdx.y * TILE;
	int			mine = threadIdx.x % TILE;
	int			with = threadIdx.x / TILE;	/* pivots with, with + 8, ... */
	int			at = at0 + mine;
	double		square[TILE / WARPS] = {};
	double		c = __uint_as_float(a.state->length);
	int			expo;
	float		unit;
	float		magic;

	frexp(fmax(fmax(c * __uint_as_float(*a.longest), c * c), 0x1p-60) * 1.01, &expo);
	unit = (float) gk_pow2(expo - 22);
	magic = 0x1.8p23f * unit;
	if (at == 0 && p0 + with == 0)
	{
		a.state->parts = a.parts;
		a.state->unit = unit;
		a.state->magic = magic;
	}
	for (int j0 = 0; j0 < a.d; j0 += TILE)
	{
		__syncthreads();
		for (int v = with; v < TILE; v += WARPS)
		{
			/* A warp reads neighbours: features of one column, of one pivot. */
			int			j = j0 + mine;

			b[mine][v] = j < a.d && at0 + v < a.k ? rounded(a, at0 + v, j) : 0.0;
			p[mine][v] = j < a.d && p0 + v < a.order.pivots && a.order.row != NULL ?
				(double) a.order.pivot_at[(int64_t) (p0 + v) * a.pitch + j] * a.scale : 0.0;
		}
		__syncthreads();
#pragma unroll 4
		for (int j = 0; j < TILE; j++)
#pragma unroll
			for (int o = 0; o < TILE / WARPS; o++)
			{
				double		t = b[j][mine] - p[j][with + o * WARPS];

				square[o] = fma(t, t, square[o]);
			}
	}
#pragma unroll
	for (int o = 0; o < TILE / WARPS; o++)
	{
		/* Column 8 j + 2 quad + o of 256 is number 2 j + o of lane quad. */
		unsigned int number = at % 256 / 8 * 2 + at % 2;
		/* The sum's bits, -64 times, bring the magic number's with them. */
		unsigned int key = 64u * (unsigned int) __float_as_int(magic) + number;
		int			pivot = p0 + with + o * WARPS;

		if (pivot >= a.order.pivots)
			break;
		if (at < a.k)
		{
			key += 64u * (unsigned int) __double2int_rn(fmin(square[o] * 0.5 / unit, (double) GK_GEMM_FAR));
			atomicMin(a.nearest + (int64_t) pivot * a.tiles + at / a.columns,
					  __float_as_uint(__double2float_rd(sqrt(square[o]) * (1.0 / MORE))));
		}
		else
			key += (unsigned int) GK_GEMM_PAD;
		if (at < a.key_pitch)
			a.keys[(int64_t) pivot * a.key_pitch + at] = (int) key;
	}
}

GkStatus
gk_gpu_gemm_round_centroids(GkSession *s, GkGemm *g, int k, GkError *err)
{
	CentroidArgs a = {s->centroids, k, s->d, g->parts, g->width, g->pitch, gk_gemm_tiles(g, k),
		gk_gpu_gemm_columns(g->width), gk_gemm_key_pitch(k), g->scale, g->order,
	g->b, g->c, g->keys, g->nearest, g->longest, g->state};
	dim3		blocks(a.key_pitch / TILE, (g->order.pivots + TILE - 1) / TILE);

	a.order.centroid = (int *) gk_gemm_centroids(g, k);
	GK_TRY(cudaMemsetAsync(g->state, 0, sizeof(*g->state), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(g->nearest, FAR_AWAY & 0xff, (size_t) g->order.pivots * a.tiles * sizeof(int), s->gpu->stream));
	round_centroids_kernel<<<(k + WARPS - 1) / WARPS, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	keys_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return GK_OK;
}
