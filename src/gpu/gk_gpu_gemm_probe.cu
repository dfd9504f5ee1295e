/*
 * gk_gpu_gemm_probe.cu - do the tensor core's sums of products lose no more than gk_gpu_gemm.h assumes?
 *
 * How they are added up is not documented.  So products of rows that make such sums lose much are compared
 * with exact ones, once in a session; if they are off by more than a third of the bound, products are not
 * used.
 */
#include "gpu/gk_gpu_gemm_rows.cuh"

#define PROBE_ROWS	GK_GEMM_ROWS
#define PROBE_COLUMNS	256
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
		out[gk_gemm_at(rows, width, i / width, j)] = __float2half_rn(v);
	}
}

/* The same products, pair by pair: a warp has 32 rows, and a column each. */
__global__ void __launch_bounds__(THREADS)
probe_pairs_kernel(const __half *y, const __half *b, int width, int columns, float *sums)
{
	__shared__ unsigned char orders[WARPS][32];
	int			at = blockIdx.x * THREADS + threadIdx.x;
	int			row = at % PROBE_ROWS;
	Pairs		pair = {row, (at / PROBE_ROWS + row) % columns};

	sums[row * columns + pair.at] = pair.products(y, PROBE_ROWS, b, columns, width, true, orders[threadIdx.x / 32]);
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
		double		u = __half2float(y[gk_gemm_at(PROBE_ROWS, width, at / columns, j)]);
		double		v = __half2float(b[gk_gemm_at(columns, width, at % columns, j)]);

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
	/* A third of the bound: what these rows do not show has room. */
	if (lane == 0 && !(fabs(sums[at] - sum) <= width * 0x1p-24 / 3.0 * sqrt(square[0]) * sqrt(square[1])))
		*bad = 1;
}

GkStatus
gk_gpu_gemm_probe(GkSession *s, bool *good, GkError *err)
{
	size_t		y_at = 256;
	size_t		b_at = y_at + (size_t) PROBE_ROWS * PROBE_WIDTH * sizeof(__half);
	size_t		keys_at = b_at + (size_t) PROBE_COLUMNS * PROBE_WIDTH * sizeof(__half);
	size_t		sums_at = keys_at + PROBE_COLUMNS * sizeof(int);
	size_t		bytes = sums_at + (size_t) PROBE_ROWS * PROBE_COLUMNS * sizeof(float);
	GkGemmArgs	a = {};
	char	   *at;
	int			bad;

	GK_DO(gk_gpu_scratch(s, bytes, err));
	at = (char *) s->scratch;
	GK_TRY(cudaMemsetAsync(at, 0, bytes, s->gpu->stream));
	a.rows = PROBE_ROWS;
	a.state = (GkGemmState *) at;
	a.keys = (int *) (at + keys_at);
	a.dump = (float *) (at + sums_at);
	for (int width = 16; width <= PROBE_WIDTH; width *= 4)
	{
		__half	   *y = (__half *) (at + y_at);
		__half	   *b = (__half *) (at + b_at);

		probe_data_kernel<<<64, THREADS, 0, s->gpu->stream>>>(y, PROBE_ROWS, width, 1);
		GK_LAUNCHED();
		probe_data_kernel<<<64, THREADS, 0, s->gpu->stream>>>(b, PROBE_COLUMNS, width, 2);
		GK_LAUNCHED();
		GK_DO(gk_gpu_gemm_multiply(s, GK_GEMM_DUMP, y, PROBE_ROWS, b, PROBE_COLUMNS, width, &a, err));
		probe_check_kernel<<<PROBE_ROWS * PROBE_COLUMNS / WARPS, THREADS, 0, s->gpu->stream>>>
			(y, b, width, PROBE_COLUMNS, a.dump, (int *) (at + 128));
		GK_LAUNCHED();
		probe_pairs_kernel<<<PROBE_ROWS * PROBE_COLUMNS / THREADS, THREADS, 0, s->gpu->stream>>>(y, b, width, PROBE_COLUMNS, a.dump);
		GK_LAUNCHED();
		probe_check_kernel<<<PROBE_ROWS * PROBE_COLUMNS / WARPS, THREADS, 0, s->gpu->stream>>>
			(y, b, width, PROBE_COLUMNS, a.dump, (int *) (at + 128));
		GK_LAUNCHED();
	}
	GK_TRY(cudaMemcpyAsync(&bad, at + 128, sizeof(bad), cudaMemcpyDeviceToHost, s->gpu->stream));
	GK_DO(gk_gpu_drain(s, err));
	*good = bad == 0;
	return GK_OK;
}
