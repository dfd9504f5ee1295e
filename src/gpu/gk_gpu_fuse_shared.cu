/*
 * gk_gpu_fuse_shared.cu - regime B: few features, more clusters than registers hold;
 * labels and sums in a single pass, labels never leave the registers.
 *
 * In shared memory only 32-bit integer atomics are native, so a value on the
 * grid (41 bits) is added as two limbs: x = hi * 2^20 + lo, |hi| <= 2^20,
 * 0 <= lo < 2^20.  A table takes FLUSH rows before a limb could overflow, then
 * its owner moves it to the accumulators.  While the tables are small every warp
 * has its own, and no barrier is needed.
 *
 * The limbs are taken off in float32 without a conversion: adding 1.5 * 2^23
 * puts an integer into the low mantissa bits, and what the magic number itself
 * adds is the row count times a constant, subtracted at the flush.
 */
#include "gpu/gk_gpu_device.cuh"

#define THREADS			256
#define WARPS			(THREADS / 32)
#define FLUSH			2047	/* rows: sums of hi, at most 2^20 each, fit 32 bits */
#define CENTROID_FLOATS	8192
#define TABLE_BYTES		(96 * 1024)
#define LIMB			20

typedef struct FusedArgs
{
	GkRows		p;
	int			k;
	const float *packed;
	GkAcc		acc;
	const double *inv;
	bool		own;			/* a table per warp */
	const int  *done;
} FusedArgs;

/* Add one table to the accumulators and clear it; threads t, t + n, ... */
template <int D>
__device__ __forceinline__ void
flush(const FusedArgs &a, int *table, int t, int n)
{
	for (int e = t; e < a.k * D; e += n)
	{
		int			i = e / D;
		int			j = e % D;
		int		   *at = table + i * (2 * D + 1) + 2 * j;
		unsigned int count = ((unsigned int *) table)[i * (2 * D + 1) + 2 * D];

		if (count != 0)
		{
			/* bits(1.5 * 2^23) = 0x4b400000, bits(2^23) = 0x4b000000 */
			int			hi = at[0] - (int) (count * 0x4b400000u);
			unsigned int lo = (unsigned int) at[1] - count * 0x4b000000u;

			at[0] = at[1] = 0;
			gk_acc_add(a.acc, e, (long long) hi * (1 << LIMB) + lo);
		}
	}
	if (a.own)
		__syncwarp();
	else
		__syncthreads();
	for (int i = t; i < a.k; i += n)
	{
		unsigned int *count = (unsigned int *) table + i * (2 * D + 1) + 2 * D;

		if (*count != 0)
			gk_red(a.acc.a + (int64_t) a.k * D + i, *count);
		*count = 0;
	}
	if (a.own)
		__syncwarp();
	else
		__syncthreads();
}

template <int D>
__global__ void __launch_bounds__(THREADS)
fused_kernel(const __grid_constant__ FusedArgs a)
{
	constexpr int S = (D + 3) / 4 * 4;
	constexpr int TILE = CENTROID_FLOATS / S;
	extern __shared__ float4 shared[];
	int			cached = a.k < TILE ? a.k : TILE;
	float4	   *cs = shared;
	int			entries = a.k * (2 * D + 1);
	int		   *table = (int *) (cs + cached * (S / 4)) + (a.own ? threadIdx.x / 32 * entries : 0);
	int			t = a.own ? threadIdx.x % 32 : threadIdx.x;
	int			n = a.own ? 32 : THREADS;
	int			held = 0;		/* rows in the table, at most */
	int64_t		groups = (a.p.rows + 3) / 4;
	int64_t		rounds = (groups + (int64_t) gridDim.x * THREADS - 1) / ((int64_t) gridDim.x * THREADS);
	bool		loaded = false;
	float		inv_hi[D];

	if (*a.done)
		return;
#pragma unroll
	for (int j = 0; j < D; j++)
		inv_hi[j] = (float) a.inv[j];
	for (int e = t; e < entries; e += n)
		table[e] = 0;
	__syncthreads();
	for (int64_t round = 0; round < rounds; round++)
	{
		int64_t		row = ((round * gridDim.x + blockIdx.x) * THREADS + threadIdx.x) * 4;
		float		x[D][4];
		float		best[4];
		int			label[4];

		if (row < a.p.rows)
		{
#pragma unroll
			for (int j = 0; j < D; j++)
				gk_load<4>(a.p.x + j * a.p.ld + row, x[j]);
		}
		else
		{
#pragma unroll
			for (int j = 0; j < D; j++)
#pragma unroll
				for (int r = 0; r < 4; r++)
					x[j][r] = 0.0f;
		}
#pragma unroll
		for (int r = 0; r < 4; r++)
		{
			best[r] = GK_INF;
			label[r] = 0;
		}
		for (int c0 = 0; c0 < a.k; c0 += TILE)
		{
			int			count = a.k - c0 < TILE ? a.k - c0 : TILE;

			if (!loaded)
			{
				__syncthreads();
				for (int v = threadIdx.x; v < count * (S / 4); v += THREADS)
					cs[v] = __ldg((const float4 *) a.packed + (int64_t) c0 * (S / 4) + v);
				__syncthreads();
				loaded = a.k <= TILE;
			}
#pragma unroll 4
			for (int i = 0; i < count; i++)
			{
				float		c[S];

#pragma unroll
				for (int v = 0; v < S / 4; v++)
				{
					float4		q = cs[i * (S / 4) + v];

					c[4 * v] = q.x;
					c[4 * v + 1] = q.y;
					c[4 * v + 2] = q.z;
					c[4 * v + 3] = q.w;
				}
#pragma unroll
				for (int r = 0; r < 4; r++)
				{
					float		s = 0.0f;

#pragma unroll
					for (int j = 0; j < D; j++)
					{
						float		d = __fsub_rn(x[j][r], c[j]);

						s = __fmaf_rn(d, d, s);
					}
					if (s < best[r])
					{
						best[r] = s;
						label[r] = c0 + i;
					}
				}
			}
		}
		held += a.own ? 128 : 4 * THREADS;
#pragma unroll
		for (int r = 0; r < 4; r++)
			if (row + r < a.p.rows)
			{
				int		   *at = table + label[r] * (2 * D + 1);

#pragma unroll
				for (int j = 0; j < D; j++)
				{
					float		v = __fmul_rn(x[j][r], inv_hi[j]);
					float		hi = __fadd_rd(__fmul_rn(v, 0x1p-20f), 0x1.8p23f);
					float		lo = __fmaf_rn(__fsub_rn(hi, 0x1.8p23f), -0x1p20f, v);

					atomicAdd(at + 2 * j, __float_as_int(hi));
					atomicAdd(at + 2 * j + 1, __float_as_int(__fadd_rn(lo, 0x1p23f)));
				}
				atomicAdd(at + 2 * D, 1);
			}
		if (held + (a.own ? 128 : 4 * THREADS) > FLUSH || round == rounds - 1)
		{
			if (a.own)
				__syncwarp();
			else
				__syncthreads();
			flush<D>(a, table, t, n);
			held = 0;
		}
	}
}

/* ---- launchers ---- */

static const void *const kernels[17] = {
	NULL,
	(const void *) fused_kernel<1>, (const void *) fused_kernel<2>,
	(const void *) fused_kernel<3>, (const void *) fused_kernel<4>,
	(const void *) fused_kernel<5>, (const void *) fused_kernel<6>,
	(const void *) fused_kernel<7>, (const void *) fused_kernel<8>,
	(const void *) fused_kernel<9>, (const void *) fused_kernel<10>,
	(const void *) fused_kernel<11>, (const void *) fused_kernel<12>,
	(const void *) fused_kernel<13>, (const void *) fused_kernel<14>,
	(const void *) fused_kernel<15>, (const void *) fused_kernel<16>,
};

static size_t
shared_bytes(int d, int k, bool *own)
{
	size_t		stride = (d + 3) / 4 * 4;
	size_t		table = (size_t) k * (2 * d + 1) * sizeof(int);
	size_t		centroids = (size_t) k * stride < CENTROID_FLOATS ? (size_t) k * stride : CENTROID_FLOATS / stride * stride;

	*own = table * WARPS <= TABLE_BYTES / 2;
	return centroids * sizeof(float) + (*own ? WARPS : 1) * table;
}

bool
gk_gpu_fused_fits(const GkSession *s, int k)
{
	bool		own;

	return !s->pts->weighted && s->d <= 16 && shared_bytes(s->d, k, &own) <= TABLE_BYTES;
}

GkStatus
gk_gpu_fused(GkSession *s, const GkRows *rows, int k, GkError *err)
{
	const void *kernel = kernels[s->d];
	FusedArgs	a;
	void	   *args[] = {&a};
	size_t		shared = shared_bytes(s->d, k, &a.own);
	int64_t		blocks = (rows->rows + 4 * THREADS - 1) / (4 * THREADS);
	int			per_sm;

	if (s->problem.feature_sum == GK_PARTITIONED_FEATURES && gk_gpu_paper_fused_fits(s, k))
		return gk_gpu_paper_fused(s, rows, k, err);
	if (gk_gpu_fuse_mma_fits(s, k))
		return gk_gpu_fuse_mma(s, rows, k, err);
	a.p = *rows;
	a.k = k;
	a.packed = s->packed;
	a.acc = s->acc;
	a.inv = s->columns.inv;
	a.done = s->done;
	GK_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
	GK_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, THREADS, shared));
	if (blocks > (int64_t) per_sm * s->gpu->sms)
		blocks = (int64_t) per_sm * s->gpu->sms;
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) blocks), dim3(THREADS), args, shared, s->gpu->stream));
	return GK_OK;
}
