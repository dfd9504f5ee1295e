/*
 * gk_gpu_paper_fused.cu - the single pass of Lutz et al. 2018, section 4: Partitioned
 * Features and Partitioned Private fused with the assignment.
 *
 * A block takes a tile of points through shared memory.  First a thread owns points: it finds their labels
 * and counts them in its own histogram.  After a barrier a warp owns a feature: its threads read that
 * feature's column of the tile with the labels that the other threads found, and add to a private sum per
 * cluster.  No atomics; float64 sums of a package each are exact.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define THREADS			256
#define WARPS			(THREADS / 32)
#define TILE			(THREADS * 4)
#define MAX_D			WARPS		/* a warp for each feature at least */

typedef struct PaperFusedArgs
{
	GkRows		p;
	int			k;
	const float *packed;		/* [k][d rounded up to 4] */
	GkAcc		acc;
	const double *inv;
	const int  *done;
} PaperFusedArgs;

template <int D>
__global__ void __launch_bounds__(THREADS)
paper_fused_kernel(const __grid_constant__ PaperFusedArgs a)
{
	constexpr int WAYS = WARPS / D;	/* warps that share a feature */
	extern __shared__ double sums[];	/* [k][threads] */
	unsigned int *counts = (unsigned int *) (sums + a.k * THREADS);	/* [k][threads] */
	float	   *xs = (float *) (counts + a.k * THREADS);	/* [D][TILE] */
	int		   *labels = (int *) (xs + D * TILE);	/* [TILE], -1 past the end */
	float4	   *cs = (float4 *) (labels + TILE);	/* [k], D rounded up to 4 */
	int			t = threadIdx.x;
	int			lane = t % 32;
	int			feature = t / 32 / WAYS;
	int			way = t / 32 % WAYS;

	if (*a.done)
		return;
	for (int i = t; i < a.k * THREADS; i += THREADS)
	{
		sums[i] = 0.0;
		counts[i] = 0;
	}
	gk_load_centroids<D, THREADS>(a.packed, 0, a.k, cs);
	for (int64_t row0 = (int64_t) blockIdx.x * TILE; row0 < a.p.rows; row0 += (int64_t) gridDim.x * TILE)
	{
		int64_t		row = row0 + t * 4;
		int			label[4] = {-1, -1, -1, -1};

		if (row < a.p.rows)
		{
			float		x[D][4];
			float		best[4] = {GK_INF, GK_INF, GK_INF, GK_INF};

#pragma unroll
			for (int j = 0; j < D; j++)
			{
				gk_load<4>(a.p.x + j * a.p.ld + row, x[j]);
				*(float4 *) (xs + j * TILE + t * 4) = make_float4(x[j][0], x[j][1], x[j][2], x[j][3]);
			}
			label[0] = label[1] = label[2] = label[3] = 0;
			gk_nearest<D, 1>(x, cs, 0, a.k, best, label);
#pragma unroll
			for (int r = 0; r < 4; r++)
			{
				if (row + r >= a.p.rows)
					label[r] = -1;
				else
					counts[label[r] * THREADS + t]++;
			}
		}
		gk_store_labels(labels + t * 4, label);
		__syncthreads();
		if (feature < D)
			for (int at = way * 128 + lane * 4; at < TILE; at += WAYS * 128)
			{
				float4		v = *(const float4 *) (xs + feature * TILE + at);
				float		x[4] = {v.x, v.y, v.z, v.w};
				int			l[4];

				gk_load_labels(labels + at, l);
#pragma unroll
				for (int r = 0; r < 4; r++)
					if (l[r] >= 0)
						sums[l[r] * THREADS + t] += (double) x[r];
			}
		__syncthreads();
	}
	/* Warps take (cluster, warp) pairs: sum over lanes. */
	for (int i = t / 32; i < a.k * WARPS; i += WARPS)
	{
		int			c = i / WARPS;
		int			w = i % WARPS;
		long long	n = gk_warp_sum((long long) counts[c * THREADS + w * 32 + lane]);

		if (lane == 0 && n != 0)
			gk_red(a.acc.a + (int64_t) a.k * D + c, n);
		if (w / WAYS < D)
		{
			long long	v = gk_warp_sum((long long) (sums[c * THREADS + w * 32 + lane] * a.inv[w / WAYS]));

			if (lane == 0 && v != 0)
				gk_acc_add(a.acc, (int64_t) c * D + w / WAYS, v);
		}
	}
}

/* ---- launchers ---- */

#define KERNEL(D)	(const void *) paper_fused_kernel<D>,
static const void *const kernels[MAX_D + 1] = {NULL, GK_EACH_D8(KERNEL)};

static size_t
shared_bytes(int d, int k)
{
	return (size_t) k * (THREADS * (sizeof(double) + sizeof(int)) + (d + 3) / 4 * 4 * sizeof(float)) +
		(size_t) (d + 1) * TILE * sizeof(float);
}

bool
gk_gpu_paper_fused_fits(const GkSession *s, int k)
{
	return !s->pts->weighted && s->d <= MAX_D && shared_bytes(s->d, k) <= gk_gpu_table_room(s);
}

GkStatus
gk_gpu_paper_fused(GkSession *s, const GkRows *rows, int k, GkError *err)
{
	const void *kernel = kernels[s->d];
	size_t		shared = shared_bytes(s->d, k);
	int64_t		tiles = (rows->rows + TILE - 1) / TILE;
	int64_t		blocks;
	PaperFusedArgs a = {*rows, k, s->packed, s->acc, s->columns.inv, s->done};
	void	   *args[] = {&a};

	GK_DO(gk_gpu_resident_blocks(s, kernel, THREADS, shared, &blocks, err));
	/* A thread adds up at most TILE / 32 points of a tile, and at most a package. */
	if (blocks < 1 + tiles / (GK_PACKAGE / (TILE / 32) - 1))
		blocks = 1 + tiles / (GK_PACKAGE / (TILE / 32) - 1);
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) gk_min(blocks, tiles)), dim3(THREADS), args, shared, s->gpu->stream));
	return GK_OK;
}
