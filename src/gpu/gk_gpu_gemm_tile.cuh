/*
 * gk_gpu_gemm_tile.cuh - squared distances of a tile of centroids to a tile of pivots, in float32.
 */
#ifndef GK_GPU_GEMM_TILE_CUH
#define GK_GPU_GEMM_TILE_CUH

#include "gpu/gk_gpu_device.cuh"

#define GK_TILE			64			/* columns, and pivots */
#define GK_TILE_DEPTH	32			/* features at a time */
#define GK_TILE_THREADS	256

/* Vectors that lie `pitch` apart; number i is which[i], or i. */
typedef struct GkTileSide
{
	const float *at;
	const int  *which;			/* NULL: i */
	int			count;
	int			pitch;
} GkTileSide;

/* In shared memory.  A thread of the block has 4 x 4 of the distances. */
struct GkTileSquares
{
	alignas(16) float c[GK_TILE_DEPTH][GK_TILE + 4];	/* [feature][column] */
	alignas(16) float p[GK_TILE_DEPTH][GK_TILE + 4];	/* [feature][pivot] */

	static __device__ __forceinline__ int
	column(void)
	{
		return threadIdx.x % (GK_TILE / 4) * 4;
	}

	static __device__ __forceinline__ int
	pivot(void)
	{
		return threadIdx.x / (GK_TILE / 4) * 4;
	}

	/* One feature of each of a side, scaled; 0 beyond its end. */
	__device__ __forceinline__ void
	fill(float (&to)[GK_TILE_DEPTH][GK_TILE + 4], const GkTileSide &side, int first, int j0, int d, float scale)
	{
		int			j = j0 + threadIdx.x % GK_TILE_DEPTH;

		/* A warp reads neighbours: features of one vector. */
		for (int v = threadIdx.x / GK_TILE_DEPTH; v < GK_TILE; v += GK_TILE_THREADS / GK_TILE_DEPTH)
		{
			bool		there = j < d && first + v < side.count;
			int			i = there && side.which != NULL ? side.which[first + v] : first + v;

			to[j - j0][v] = there ? side.at[(int64_t) i * side.pitch + j] * scale : 0.0f;
		}
	}

	/* Of columns from c0 on and pivots from p0 on, in square[pivot][column]. */
	__device__ __forceinline__ void
	sum(float (&square)[4][4], const GkTileSide &columns, int c0, const GkTileSide &pivots, int p0, int d, float scale)
	{
		for (int j0 = 0; j0 < d; j0 += GK_TILE_DEPTH)
		{
			__syncthreads();
			fill(c, columns, c0, j0, d, scale);
			fill(p, pivots, p0, j0, d, scale);
			__syncthreads();
#pragma unroll 8
			for (int f = 0; f < GK_TILE_DEPTH; f++)
			{
				float4		u = *(const float4 *) &c[f][column()];
				float4		v = *(const float4 *) &p[f][pivot()];
				float		of_column[4] = {u.x, u.y, u.z, u.w};
				float		of_pivot[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
				for (int o = 0; o < 4; o++)
#pragma unroll
					for (int i = 0; i < 4; i++)
					{
						float		t = of_column[i] - of_pivot[o];

						square[o][i] = __fmaf_rn(t, t, square[o][i]);
					}
			}
		}
	}
};

#endif							/* GK_GPU_GEMM_TILE_CUH */
