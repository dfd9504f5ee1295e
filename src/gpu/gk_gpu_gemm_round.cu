/*
 * gk_gpu_gemm_round.cu - points and centroids rounded to float16 for the product, with exact bounds of what
 * that changes (gk_gpu_gemm.h), and the probe of the tensor core's sums.
 *
 * Rounding is done in float64, where a difference of the rounded and the exact coordinate is exact; bounds
 * are rounded up.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define ROWS		64			/* that a block turns at a time */
#define FEATURES	64
#define EACH		(ROWS * FEATURES / THREADS)	/* features of a thread's row */
#define LARGEST		65504.0		/* of float16 */

/* ---- points ---- */

typedef struct RoundArgs
{
	const float *x;				/* column-major */
	int64_t		ld;
	int64_t		rows;
	int			d;
	int			parts;
	int			width;
	int			pitch;
	double		scale;
	float	   *out;			/* [rows][pitch] */
	__half	   *y;				/* [rows][width] */
	GkGemmBound *bound;
	unsigned int *longest;
} RoundArgs;

/* The parts of a coordinate; returns what they leave. */
__device__ __forceinline__ double
round_parts(double v, int parts, __half &high, __half &low)
{
	double		rest;

	high = __double2half(fmin(fmax(v, -LARGEST), LARGEST));
	rest = v - (double) __half2float(high);
	low = __double2half(0.0);
	if (parts > 1)
	{
		low = __double2half(fmin(fmax(rest, -LARGEST), LARGEST));
		rest -= (double) __half2float(low);
	}
	return rest;
}

/* Turn ROWS x FEATURES at a time; four threads have a row. */
__global__ void __launch_bounds__(THREADS)
round_points_kernel(const __grid_constant__ RoundArgs a)
{
	__shared__ float tile[FEATURES][ROWS + 1];
	int64_t		row0 = (int64_t) blockIdx.x * ROWS;
	int			mine = threadIdx.x / 4;
	int64_t		row = row0 + mine;
	double		square = 0.0;
	double		rest = 0.0;
	double		low = 0.0;

	for (int j0 = 0; j0 < a.d; j0 += FEATURES)
	{
		__syncthreads();
		for (int v = threadIdx.x; v < ROWS * FEATURES; v += THREADS)
		{
			int			j = j0 + v / ROWS;

			tile[v / ROWS][v % ROWS] = j < a.d && row0 + v % ROWS < a.rows ? __ldg(a.x + j * a.ld + row0 + v % ROWS) : 0.0f;
		}
		__syncthreads();
		if (row >= a.rows)
			continue;
#pragma unroll 4
		for (int i = 0; i < EACH; i++)
		{
			int			at = i * 4 + threadIdx.x % 4;
			int			j = j0 + at;
			float		x = tile[at][mine];
			__half		h;
			__half		l;
			double		left;
			double		y;

			if (j < a.pitch)
				a.out[row * a.pitch + j] = x;
			if (j >= a.d)
				continue;
			left = round_parts((double) x * a.scale, a.parts, h, l);
			y = (double) __half2float(h) + (double) __half2float(l);
			square += y * y;
			rest += left * left;
			low += (double) __half2float(l) * (double) __half2float(l);
			a.y[row * a.width + j] = h;
			if (a.parts > 1)
			{
				a.y[row * a.width + a.d + j] = l;
				a.y[row * a.width + 2 * a.d + j] = h;
			}
		}
	}
#pragma unroll
	for (int o = 1; o < 4; o <<= 1)
	{
		square += __shfl_xor_sync(0xffffffffu, square, o);
		rest += __shfl_xor_sync(0xffffffffu, rest, o);
		low += __shfl_xor_sync(0xffffffffu, low, o);
	}
	if (threadIdx.x % 4 == 0 && row < a.rows)
	{
		/* An eighth of a thousandth more than the sums' roundings. */
		float		length = __double2float_ru(sqrt(square) * 1.0001);

		a.bound[row] = (GkGemmBound) {(float) square, length, __double2float_ru(sqrt(rest) * 1.0001),
									  __double2float_ru(sqrt(low) * 1.0001)};
		atomicMax(a.longest, __float_as_uint(length));
	}
	/* The padding of a row's parts. */
	for (int j = a.parts * a.d + threadIdx.x % 4; j < a.width && row < a.rows; j += 4)
		a.y[row * a.width + j] = __double2half(0.0);
}

static GkStatus
round_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	GkGemm	   *g = (GkGemm *) arg;
	RoundArgs	a = {rows->x, rows->ld, rows->rows, s->d, g->parts, g->width, g->pitch, g->scale,
	g->x + rows->first * g->pitch, g->y + rows->first * g->width, g->bound + rows->first, g->longest};

	round_points_kernel<<<(unsigned int) ((rows->rows + ROWS - 1) / ROWS), THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return GK_OK;
}

GkStatus
gk_gpu_gemm_round_points(GkSession *s, GkGemm *g, GkError *err)
{
	GK_TRY(cudaMemsetAsync(g->longest, 0, sizeof(*g->longest), s->gpu->stream));
	return gk_gpu_each(s, (int64_t) 1 << 24, round_slice, g, err);
}

/* ---- centroids ---- */

typedef struct CentroidArgs
{
	const float *c;				/* [k][d] */
	int			k;
	int			d;
	int			parts;
	int			width;
	double		scale;
	__half	   *b;
	float	   *out;			/* [k][pitch] */
	int			pitch;
	double	   *half_square;
	int		   *keys;
	const unsigned int *longest;
	GkGemmState *state;
} CentroidArgs;

/* A warp per centroid. */
__global__ void __launch_bounds__(THREADS)
round_centroids_kernel(const __grid_constant__ CentroidArgs a)
{
	int			i = blockIdx.x * WARPS + threadIdx.x / 32;
	int			lane = threadIdx.x % 32;
	double		square = 0.0;
	double		rest = 0.0;
	double		low2 = 0.0;

	if (i >= a.k)
		return;
	for (int j = lane; j < a.d; j += 32)
	{
		__half		h;
		__half		l;
		double		left = round_parts((double) a.c[(int64_t) i * a.d + j] * a.scale, a.parts, h, l);
		double		b = (double) __half2float(h) + (double) __half2float(l);
		__half	   *to = a.b + (int64_t) i * a.width + j;

		square += b * b;
		rest += left * left;
		low2 += (double) __half2float(l) * (double) __half2float(l);
		to[0] = a.parts > 1 ? l : h;
		if (a.parts > 1)
			to[a.d] = to[2 * a.d] = h;
	}
	for (int j = a.parts * a.d + lane; j < a.width; j += 32)
		a.b[(int64_t) i * a.width + j] = __double2half(0.0);
	for (int j = lane; j < a.pitch; j += 32)
		a.out[(int64_t) i * a.pitch + j] = j < a.d ? a.c[(int64_t) i * a.d + j] : 0.0f;
#pragma unroll
	for (int o = 16; o > 0; o >>= 1)
	{
		square += __shfl_xor_sync(0xffffffffu, square, o);
		rest += __shfl_xor_sync(0xffffffffu, rest, o);
		low2 += __shfl_xor_sync(0xffffffffu, low2, o);
	}
	if (lane == 0)
	{
		a.half_square[i] = square * 0.5;
		atomicMax(&a.state->length, __float_as_uint(__double2float_ru(sqrt(square) * 1.0001)));
		atomicMax(&a.state->rest, __float_as_uint(__double2float_ru(sqrt(rest) * 1.0001)));
		atomicMax(&a.state->low, __float_as_uint(__double2float_ru(sqrt(low2) * 1.0001)));
	}
}

/* The unit: products and half squares are below 2^22 of it. */
__global__ void __launch_bounds__(THREADS)
keys_kernel(const __grid_constant__ CentroidArgs a)
{
	int			i = blockIdx.x * THREADS + threadIdx.x;
	double		c = __uint_as_float(a.state->length);
	double		x = __uint_as_float(*a.longest);
	int			expo;
	float		unit;
	float		magic;

	frexp(fmax(fmax(c * x, c * c), 0x1p-60) * 1.01, &expo);
	unit = (float) gk_pow2(expo - 22);
	magic = 0x1.8p23f * unit;
	if (i == 0)
	{
		a.state->parts = a.parts;
		a.state->unit = unit;
		a.state->magic = magic;
	}
	if (i >= (a.k + GK_GEMM_COLUMNS - 1) / GK_GEMM_COLUMNS * GK_GEMM_COLUMNS)
		return;
	{
		/* Column i % 256 = 8 j + 2 quad + o is number 2 j + o of lane quad. */
		unsigned int number = i % GK_GEMM_COLUMNS / 8 * 2 + i % 2;

		/* The sum's bits, -64 times, bring the magic number's with them. */
		a.keys[i] = (int) (i < a.k ? 64u * (unsigned int) __float_as_int(magic) +
						   64u * (unsigned int) __double2int_rn(a.half_square[i] / unit) + number :
						   64u * (unsigned int) __float_as_int(magic) + (unsigned int) GK_GEMM_PAD + number);
	}
}

GkStatus
gk_gpu_gemm_round_centroids(GkSession *s, GkGemm *g, const float *centroids, int k, GkError *err)
{
	CentroidArgs a = {centroids, k, s->d, g->parts, g->width, g->scale, g->b, g->c, g->pitch, g->half_square, g->keys, g->longest, g->state};

	GK_TRY(cudaMemsetAsync(g->state, 0, sizeof(*g->state), s->gpu->stream));
	round_centroids_kernel<<<(k + WARPS - 1) / WARPS, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	keys_kernel<<<gk_gemm_tiles(k), THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return GK_OK;
}

/* ---- the probe ---- */

#define PROBE_ROWS	GK_GEMM_ROWS
#define PROBE_KINDS	6
#define PROBE_WIDTH	1024

/*
 * Rows that make sums lose much: one large product first and small ones after it, in both signs; products
 * that cancel; all of one size; sizes at random.
 */
__global__ void
probe_data_kernel(__half *out, int rows, int width, int seed)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * width; i += gridDim.x * blockDim.x)
	{
		int			j = i % width;
		uint64_t	h = gk_hash(seed, i);
		float		u = 0.5f + 0.5f * (float) gk_uniform(h);
		float		v;

		switch (i / width % PROBE_KINDS)
		{
			case 0:
				v = j == 0 ? 60.0f : 0.01f * u;
				break;
			case 1:
				v = j == 0 ? 60.0f : -0.01f * u;
				break;
			case 2:
				v = (j == 0 || j == width - 1 ? 60.0f : 0.05f * u) * (seed == 2 && j == width - 1 ? -1.0f : 1.0f);
				break;
			case 3:
				v = u * (seed == 2 && j >= width / 2 ? -1.0f : 1.0f);
				break;
			case 4:
				v = u;
				break;
			default:
				v = exp2f((float) (h >> 50 & 15) - 8.0f) * u * (h >> 60 & 1 ? 1.0f : -1.0f);
		}
		out[i] = __float2half_rn(v);
	}
}

/* A warp per sum: is it within what gk_gpu_gemm.h assumes? */
__global__ void __launch_bounds__(THREADS)
probe_check_kernel(const __half *y, const __half *b, int width, int columns, const float *sums, int *bad)
{
	int			at = blockIdx.x * WARPS + threadIdx.x / 32;
	int			lane = threadIdx.x % 32;
	double		sum = 0.0;
	double		square[2] = {0.0, 0.0};

	for (int j = lane; j < width; j += 32)
	{
		double		u = __half2float(y[at / columns * width + j]);
		double		v = __half2float(b[at % columns * width + j]);

		sum += u * v;
		square[0] += u * u;
		square[1] += v * v;
	}
#pragma unroll
	for (int o = 16; o > 0; o >>= 1)
	{
		sum += __shfl_xor_sync(0xffffffffu, sum, o);
		square[0] += __shfl_xor_sync(0xffffffffu, square[0], o);
		square[1] += __shfl_xor_sync(0xffffffffu, square[1], o);
	}
	/* A third of the bound: the worst that was measured is a fifth. */
	if (lane == 0 && !(fabs(sums[at] - sum) <= width * 0x1p-24 / 3.0 * sqrt(square[0]) * sqrt(square[1])))
		*bad = 1;
}

GkStatus
gk_gpu_gemm_probe(GkSession *s, bool *good, GkError *err)
{
	size_t		y_at = 256;
	size_t		b_at = y_at + (size_t) PROBE_ROWS * PROBE_WIDTH * sizeof(__half);
	size_t		keys_at = b_at + (size_t) GK_GEMM_COLUMNS * PROBE_WIDTH * sizeof(__half);
	size_t		sums_at = keys_at + GK_GEMM_COLUMNS * sizeof(int);
	size_t		bytes = sums_at + (size_t) PROBE_ROWS * GK_GEMM_COLUMNS * sizeof(float);
	GkGemmArgs	a = {};
	char	   *at;
	int			bad;

	GK_DO(gk_gpu_scratch(s, bytes, err));
	at = (char *) s->scratch;
	GK_TRY(cudaMemsetAsync(at, 0, bytes, s->gpu->stream));
	a.rows = PROBE_ROWS;
	a.parts = 1;
	a.state = (GkGemmState *) at;
	a.keys = (int *) (at + keys_at);
	a.dump = (float *) (at + sums_at);
	for (int width = 16; width <= PROBE_WIDTH; width *= 4)
	{
		__half	   *y = (__half *) (at + y_at);
		__half	   *b = (__half *) (at + b_at);

		probe_data_kernel<<<64, THREADS, 0, s->gpu->stream>>>(y, PROBE_ROWS, width, 1);
		GK_LAUNCHED();
		probe_data_kernel<<<64, THREADS, 0, s->gpu->stream>>>(b, GK_GEMM_COLUMNS, width, 2);
		GK_LAUNCHED();
		GK_DO(gk_gpu_gemm_multiply(s, GK_GEMM_DUMP, y, PROBE_ROWS, b, GK_GEMM_COLUMNS, width, &a, err));
		probe_check_kernel<<<PROBE_ROWS * GK_GEMM_COLUMNS / WARPS, THREADS, 0, s->gpu->stream>>>
			(y, b, width, GK_GEMM_COLUMNS, a.dump, (int *) (at + 128));
		GK_LAUNCHED();
	}
	GK_TRY(cudaMemcpyAsync(&bad, at + 128, sizeof(bad), cudaMemcpyDeviceToHost, s->gpu->stream));
	GK_DO(gk_gpu_drain(s, err));
	*good = bad == 0;
	return GK_OK;
}
