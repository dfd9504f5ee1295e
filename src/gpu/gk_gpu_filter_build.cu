/*
 * gk_gpu_filter_build.cu - a copy of the points, sorted along a Hilbert curve, with the box and the exact sum
 * of some neighbours (see gk_gpu_filter.cu).
 */
#include <cub/device/device_radix_sort.cuh>

#include "gpu/gk_gpu_filter.cuh"

#define SORT_ROWS	((size_t) 1 << 28)	/* sorted at a time, at most */
#define MIN_SORT	((size_t) 1 << 20)	/* fewer give boxes too large */

/* ---- kernels ---- */

template <int D>
__device__ __forceinline__ void
put(float *x, int64_t row, const float (&v)[D])
{
	if (D % 4 == 0)
	{
#pragma unroll
		for (int j = 0; j < D; j += 4)
			*(float4 *) (x + row * D + j) = make_float4(v[j], v[(j + 1) % D], v[(j + 2) % D], v[(j + 3) % D]);
	}
	else if (D % 2 == 0)
	{
#pragma unroll
		for (int j = 0; j < D; j += 2)
			*(float2 *) (x + row * D + j) = make_float2(v[j], v[(j + 1) % D]);
	}
	else
	{
#pragma unroll
		for (int j = 0; j < D; j++)
			x[row * D + j] = v[j];
	}
}

/* The centroids' own range and half as much again: points far out share the last cells. */
__global__ void
range_kernel(const float *c, int k, int d, int bits, float *range)
{
	int			j = threadIdx.x;

	if (j < d)
	{
		float		low = c[j];
		float		high = c[j];
		float		width;

		for (int i = 1; i < k; i++)
		{
			low = fminf(low, c[i * d + j]);
			high = fmaxf(high, c[i * d + j]);
		}
		width = high - low;
		range[j] = low - 0.25f * width;
		range[MOST_D + j] = width > 0.0f ? (float) (1 << bits) / (1.5f * width) : 0.0f;
	}
}

/*
 * Place of a cell on a Hilbert curve of BITS bits per coordinate (Skilling, "Programming the Hilbert curve",
 * 2004).
 */
template <int D, int BITS>
__device__ __forceinline__ unsigned int
hilbert(unsigned int (&x)[D])
{
	unsigned int key = 0;
	unsigned int t = 0;

#pragma unroll
	for (int b = BITS - 1; b > 0; b--)
	{
		unsigned int below = (1u << b) - 1;

#pragma unroll
		for (int j = 0; j < D; j++)
		{
			unsigned int swap = (x[0] ^ x[j]) & below;
			bool		set = x[j] >> b & 1;

			x[j] ^= set ? 0 : swap;
			x[0] ^= set ? below : swap;
		}
	}
#pragma unroll
	for (int j = 1; j < D; j++)
		x[j] ^= x[j - 1];
#pragma unroll
	for (int b = BITS - 1; b > 0; b--)
		t ^= x[D - 1] >> b & 1 ? (1u << b) - 1 : 0;
#pragma unroll
	for (int b = BITS - 1; b >= 0; b--)
#pragma unroll
		for (int j = 0; j < D; j++)
			key = key << 1 | ((x[j] ^ t) >> b & 1);
	return key;
}

/* Rows side by side, and each one's place on the curve. */
template <int D>
__global__ void __launch_bounds__(THREADS)
key_kernel(GkRows p, const float *range, float *x, unsigned int *key, unsigned int *row)
{
	constexpr int bits = D == 1 ? 24 : 32 / D;

	for (int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x; i < p.rows; i += (int64_t) gridDim.x * THREADS)
	{
		unsigned int cell[D];
		float		v[D];

#pragma unroll
		for (int j = 0; j < D; j++)
		{
			v[j] = __ldg(p.x + j * p.ld + i);
			cell[j] = (unsigned int) fminf(fmaxf((v[j] - range[j]) * range[MOST_D + j], 0.0f), (float) ((1 << bits) - 1));
		}
		put<D>(x, i, v);
		key[i] = hilbert<D, bits>(cell);
		row[i] = (unsigned int) i;
	}
}

/* A warp per tile: copy its rows, find their box and sum. */
template <int D>
__global__ void __launch_bounds__(THREADS)
gather_kernel(int64_t rows, int64_t first, const float *rows_x, const unsigned int *from, const double *inv, float *x,
			  float4 *corner, long long *sum)
{
	constexpr int width = 4 * QUADS(D);
	int			lane = threadIdx.x % 32;
	int64_t		tile = (int64_t) blockIdx.x * WARPS + threadIdx.x / 32;
	float		low[width] = {};
	float		high[width] = {};
	float		hi[D];
	float		lo[D];

	if (tile * TILE(D) >= rows)
		return;
#pragma unroll
	for (int j = 0; j < D; j++)
	{
		low[j] = GK_INF;
		high[j] = -GK_INF;
		hi[j] = lo[j] = 0.0f;
	}
#pragma unroll
	for (int i = 0; i < P(D); i++)
	{
		int64_t		row = tile * TILE(D) + i * 32 + lane;
		float		v[D];

		if (row >= rows)
			continue;
		fetch<D>(rows_x, from[row], v);
		put<D>(x, first + row, v);
#pragma unroll
		for (int j = 0; j < D; j++)
		{
			float		h;
			float		l;

			low[j] = fminf(low[j], v[j]);
			high[j] = fmaxf(high[j], v[j]);
			limbs(v[j], (float) inv[j], h, l);
			hi[j] += h;
			lo[j] += l;
		}
	}
	tile += first / TILE(D);
#pragma unroll
	for (int j = 0; j < D; j++)
	{
		long long	total = (long long) __reduce_add_sync(ALL, (int) hi[j]) * (1 << 20) + __reduce_add_sync(ALL, (int) lo[j]);

		for (int o = 16; o > 0; o >>= 1)
		{
			low[j] = fminf(low[j], __shfl_xor_sync(ALL, low[j], o));
			high[j] = fmaxf(high[j], __shfl_xor_sync(ALL, high[j], o));
		}
		if (lane == 0)
			sum[tile * width + j] = total;
	}
#pragma unroll
	for (int q = 0; lane == 0 && q < QUADS(D); q++)
	{
		corner[2 * tile * QUADS(D) + q] = make_float4(low[4 * q], low[4 * q + 1], low[4 * q + 2], low[4 * q + 3]);
		corner[(2 * tile + 1) * QUADS(D) + q] = make_float4(high[4 * q], high[4 * q + 1], high[4 * q + 2], high[4 * q + 3]);
	}
}

/* ---- launchers ---- */

#define FOUR(F, D)	F(D) F(D + 1) F(D + 2) F(D + 3)
#define EACH_D(F)	FOUR(F, 1) FOUR(F, 5) FOUR(F, 9) FOUR(F, 13) FOUR(F, 17) FOUR(F, 21)


/* Waits for the kernels. */
static void
free_memory(GkFilter *b)
{
	cudaFree(b->x);
	cudaFree(b->corner);
	cudaFree(b->sum);
	cudaFree(b->label);
	cudaFree(b->tile_label);
	cudaFree(b->work);
	cudaFree(b->range);
	b->x = b->range = NULL;
	b->corner = NULL;
	b->sum = NULL;
	b->label = b->tile_label = NULL;
	b->work = NULL;
}

void
gk_gpu_filter_free(GkSession *s)
{
	if (s->filter != NULL)
		free_memory(s->filter);
	s->core->free(s->host, s->filter);
	s->filter = NULL;
}

void
gk_gpu_filter_off(GkFilter *b)
{
	free_memory(b);
	b->sorted = false;
	b->off = true;
}

static GkStatus
allocate(GkSession *s, GkFilter *b, GkError *err)
{
	size_t		quads = tiles_of(s->n, s->d) * QUADS(s->d);

	GK_TRY(cudaMalloc((void **) &b->x, ((size_t) s->n * s->d + 4) * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &b->corner, quads * 2 * sizeof(float4)));
	GK_TRY(cudaMalloc((void **) &b->sum, quads * 4 * sizeof(long long)));
	GK_TRY(cudaMalloc((void **) &b->label, s->n * sizeof(short)));
	GK_TRY(cudaMalloc((void **) &b->tile_label, tiles_of(s->n, s->d) * sizeof(short)));
	GK_TRY(cudaMalloc((void **) &b->work, 2 * sizeof(long long)));
	GK_TRY(cudaMalloc((void **) &b->range, 2 * MOST_D * sizeof(float)));
	return GK_OK;
}

static GkStatus
sort_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	GkFilter   *b = (GkFilter *) arg;
	size_t		room = (size_t) (rows->rows + 63) / 64 * 64;
	size_t		bytes = 0;
	float	   *x;
	unsigned int *scratch;
	unsigned int blocks = (unsigned int) ((rows->rows + THREADS - 1) / THREADS);
	unsigned int each = (unsigned int) ((tiles_of(rows->rows, s->d) + WARPS - 1) / WARPS);
	cub::DoubleBuffer<unsigned int> key;
	cub::DoubleBuffer<unsigned int> row;

	GK_TRY(cub::DeviceRadixSort::SortPairs(NULL, bytes, key, row, rows->rows, 0, 32, s->gpu->stream));
	GK_DO(gk_gpu_scratch(s, room * (s->d + 4) * sizeof(int) + bytes, err));
	x = (float *) s->scratch;
	scratch = (unsigned int *) (x + room * s->d);
	key = cub::DoubleBuffer<unsigned int>(scratch, scratch + room);
	row = cub::DoubleBuffer<unsigned int>(scratch + 2 * room, scratch + 3 * room);
#define KEY(D) \
	case D: \
		key_kernel<D><<<blocks < 8192 ? blocks : 8192, THREADS, 0, s->gpu->stream>>> \
			(*rows, b->range, x, key.Current(), row.Current()); \
		break;
	switch (s->d)
	{
		EACH_D(KEY)
	}
#undef KEY
	GK_LAUNCHED();
	GK_TRY(cub::DeviceRadixSort::SortPairs(scratch + 4 * room, bytes, key, row, rows->rows, 0, 32, s->gpu->stream));
#define GATHER(D) \
	case D: \
		gather_kernel<D><<<each, THREADS, 0, s->gpu->stream>>> \
			(rows->rows, rows->first, x, row.Current(), s->columns.inv, b->x, b->corner, b->sum); \
		break;
	switch (s->d)
	{
		EACH_D(GATHER)
	}
#undef GATHER
	GK_LAUNCHED();
	return GK_OK;
}

static size_t
kept_bytes(const GkSession *s)
{
	return (size_t) s->n * (s->d * sizeof(float) + sizeof(short)) + (size_t) tiles_of(s->n, s->d) * (64 * QUADS(s->d) + 2) +
		((size_t) 64 << 20);
}

size_t
gk_gpu_filter_held(const GkSession *s)
{
	return s->filter != NULL && s->filter->x != NULL ? kept_bytes(s) : 0;
}

/* Rows that are sorted at a time: the more, the smaller the boxes.  0: no memory. */
static int64_t
sort_rows(const GkSession *s)
{
	size_t		kept = kept_bytes(s) + gk_gpu_gemm_held(s);
	size_t		row = (size_t) (s->d + 4) * sizeof(int) + 1;
	size_t		rows = s->spare > kept ? (s->spare - kept) / row : 0;

	rows = rows > (size_t) s->n ? (size_t) s->n : rows;
	rows = rows > SORT_ROWS ? SORT_ROWS : rows;
	return rows < MIN_SORT && rows < (size_t) s->n ? 0 : (int64_t) (rows + MOST_TILE - 1) / MOST_TILE * MOST_TILE;
}

GkStatus
gk_gpu_filter_build(GkSession *s, int k, GkFilter *b, GkError *err)
{
	int64_t		rows = sort_rows(s);
	GkStatus	st = rows > 0 ? allocate(s, b, err) : GK_ERR_DEVICE_MEMORY;

	if (st == GK_OK)
	{
		range_kernel<<<1, 32, 0, s->gpu->stream>>>(s->centroids, k, s->d, s->d == 1 ? 24 : 32 / s->d, b->range);
		GK_LAUNCHED();
		st = gk_gpu_each(s, rows, sort_slice, b, err);
	}
	/* It was large, and waits for the kernels. */
	cudaFree(s->scratch);
	s->scratch = NULL;
	s->scratch_room = 0;
	if (st == GK_ERR_DEVICE_MEMORY)
	{
		gk_gpu_filter_off(b);
		return GK_OK;
	}
	b->sorted = st == GK_OK;
	s->delta_k = 0;				/* its tiles have no labels */
	return st;
}
