/*
 * gk_gpu_fuse_shared.cu - labels and sums in a single pass for up to 16 features and more clusters than
 * registers hold; labels never leave the registers.
 *
 * Sums are tables of limbs (gk_gpu_device.cuh) in shared memory.  A table takes GK_LIMB_ROWS rows before a
 * limb can overflow; then its owner moves it to the accumulators.  While the tables are small every warp has
 * its own, and no barrier is needed.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define THREADS			256
#define WARPS			(THREADS / 32)
#define CENTROID_FLOATS	8192
#define TABLE_BYTES		(96 * 1024)

typedef struct FuseSharedArgs
{
	GkRows		p;
	int			k;
	const float *packed;
	GkAcc		acc;
	const double *inv;
	bool		own;			/* a table per warp */
	const int  *done;
} FuseSharedArgs;

/* Of all threads that share a table. */
__device__ __forceinline__ void
sync_table(const FuseSharedArgs &a)
{
	if (a.own)
		__syncwarp();
	else
		__syncthreads();
}

/* Add one table to the accumulators and clear it; threads t, t + n, ... */
template <int D>
__device__ __forceinline__ void
flush(const FuseSharedArgs &a, int *table, int t, int n)
{
	sync_table(a);
	for (int e = t; e < a.k * D; e += n)
	{
		int			i = e / D;
		int			j = e % D;
		int		   *at = table + i * (2 * D + 1) + 2 * j;
		unsigned int count = ((unsigned int *) table)[i * (2 * D + 1) + 2 * D];

		if (count != 0)
		{
			long long	sum = gk_limbs_sum(at[0], at[1], count);

			at[0] = at[1] = 0;
			gk_acc_add(a.acc, e, sum);
		}
	}
	sync_table(a);
	for (int i = t; i < a.k; i += n)
	{
		unsigned int *count = (unsigned int *) table + i * (2 * D + 1) + 2 * D;

		if (*count != 0)
			gk_red(a.acc.a + (int64_t) a.k * D + i, *count);
		*count = 0;
	}
	sync_table(a);
}

/* Four rows, zeros past the end. */
template <int D>
__device__ __forceinline__ void
load(const GkRows &p, int64_t row, float (&x)[D][4])
{
	if (row < p.rows)
	{
#pragma unroll
		for (int j = 0; j < D; j++)
			gk_load<4>(p.x + j * p.ld + row, x[j]);
	}
	else
	{
#pragma unroll
		for (int j = 0; j < D; j++)
			x[j][0] = x[j][1] = x[j][2] = x[j][3] = 0.0f;
	}
}

/* Add four rows to the table. */
template <int D>
__device__ __forceinline__ void
accumulate(int *table, const float (&x)[D][4], const int (&label)[4], const float (&inv)[D], int64_t rows)
{
#pragma unroll
	for (int r = 0; r < 4; r++)
		if (r < rows)
		{
			int		   *at = table + label[r] * (2 * D + 1);

#pragma unroll
			for (int j = 0; j < D; j++)
			{
				float		v = __fmul_rn(x[j][r], inv[j]);
				float		hi = __fadd_rd(__fmul_rn(v, 0x1p-20f), 0x1.8p23f);
				float		lo = __fmaf_rn(__fsub_rn(hi, 0x1.8p23f), -0x1p20f, v);

				atomicAdd(at + 2 * j, __float_as_int(hi));
				atomicAdd(at + 2 * j + 1, __float_as_int(__fadd_rn(lo, 0x1p23f)));
			}
			atomicAdd(at + 2 * D, 1);
		}
}

template <int D>
__global__ void __launch_bounds__(THREADS)
fuse_shared_kernel(const __grid_constant__ FuseSharedArgs a)
{
	constexpr int S = (D + 3) / 4 * 4;
	constexpr int TILE = CENTROID_FLOATS / S;
	extern __shared__ float4 cs[];	/* centroids, then tables */
	int			entries = a.k * (2 * D + 1);
	int		   *table = (int *) (cs + min(a.k, TILE) * (S / 4)) + (a.own ? threadIdx.x / 32 * entries : 0);
	int			t = a.own ? threadIdx.x % 32 : threadIdx.x;
	int			n = a.own ? 32 : THREADS;
	int			held = 0;		/* rows in the table, at most */
	int64_t		groups = (a.p.rows + 3) / 4;
	int64_t		rounds = (groups + (int64_t) gridDim.x * THREADS - 1) / ((int64_t) gridDim.x * THREADS);
	bool		loaded = false;
	float		inv[D];

	if (*a.done)
		return;
#pragma unroll
	for (int j = 0; j < D; j++)
		inv[j] = (float) a.inv[j];
	for (int e = t; e < entries; e += n)
		table[e] = 0;
	__syncthreads();
	for (int64_t round = 0; round < rounds; round++)
	{
		int64_t		row = ((round * gridDim.x + blockIdx.x) * THREADS + threadIdx.x) * 4;
		float		x[D][4];
		float		best[4] = {GK_INF, GK_INF, GK_INF, GK_INF};
		int			label[4] = {0, 0, 0, 0};

		load<D>(a.p, row, x);
		for (int c0 = 0; c0 < a.k; c0 += TILE)
		{
			int			count = min(a.k - c0, TILE);

			if (!loaded)
			{
				gk_load_centroids<D, THREADS>(a.packed, c0, count, cs);
				loaded = a.k <= TILE;
			}
			gk_nearest<D, 4>(x, cs, c0, count, best, label);
		}
		accumulate<D>(table, x, label, inv, a.p.rows - row);
		held += a.own ? 128 : 4 * THREADS;
		if (held + (a.own ? 128 : 4 * THREADS) > GK_LIMB_ROWS || round == rounds - 1)
		{
			flush<D>(a, table, t, n);
			held = 0;
		}
	}
}

/* ---- launchers ---- */

#define KERNEL(D)	(const void *) fuse_shared_kernel<D>,
static const void *const kernels[17] = {NULL, GK_EACH_D16(KERNEL)};

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
gk_gpu_fuse_shared_fits(const GkSession *s, int k)
{
	bool		own;

	return !s->pts->weighted && s->d <= 16 && shared_bytes(s->d, k, &own) <= TABLE_BYTES;
}

GkStatus
gk_gpu_fuse_shared(GkSession *s, const GkRows *rows, int k, GkError *err)
{
	bool		own;
	size_t		shared = shared_bytes(s->d, k, &own);
	FuseSharedArgs a = {*rows, k, s->packed, s->acc, s->columns.inv, own, s->done};

	return gk_gpu_launch(s, kernels[s->d], (rows->rows + 4 * THREADS - 1) / (4 * THREADS), THREADS, shared, &a, err);
}
