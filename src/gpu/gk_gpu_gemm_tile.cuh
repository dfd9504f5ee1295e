/*
 * gk_gpu_gemm_tile.cuh - squared distances of a tile of centroids to a tile of pivots, in float32.
 */
#ifndef GK_GPU_GEMM_TILE_CUH
#define GK_GPU_GEMM_TILE_CUH

#include "gpu/gk_gpu_device.cuh"

#define GK_TILE			64			/* columns */
#define GK_TILE_PIVOTS	32
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

/* In shared memory.  A thread of the block has 2 x 4 of the distances: pivots and columns. */
struct GkTileSquares
{
	alignas(16) float c[GK_TILE_DEPTH][GK_TILE + 4];	/* [feature][column] */
	alignas(16) float p[GK_TILE_DEPTH][GK_TILE_PIVOTS + 2]; /* [feature][pivot] */

	static __device__ __forceinline__ int
	column(void)
	{
		return threadIdx.x % (GK_TILE / 4) * 4;
	}

	static __device__ __forceinline__ int
	pivot(void)
	{
		return threadIdx.x / (GK_TILE / 4) * 2;
	}

	/* The vectors that a thread brings one feature of at a time: a warp reads neighbours, features of one vector. */
	template<int VECTORS>
	struct Feed
	{
		static constexpr int STEP = GK_TILE_THREADS / GK_TILE_DEPTH;
		static constexpr int COUNT = VECTORS / STEP;
		int			vector[COUNT];
		float		value[COUNT];

		/* Beyond the end, the last one. */
		__device__ __forceinline__
		Feed(const GkTileSide &side, int first)
		{
#pragma unroll
			for (int i = 0; i < COUNT; i++)
			{
				int			v = min(first + (int) threadIdx.x / GK_TILE_DEPTH + i * STEP, side.count - 1);

				vector[i] = side.which != NULL ? side.which[v] : v;
			}
		}

		__device__ __forceinline__ void
		load(const GkTileSide &side, int j0, int d, float scale)
		{
			int			j = j0 + threadIdx.x % GK_TILE_DEPTH;

#pragma unroll
			for (int i = 0; i < COUNT; i++)
				value[i] = j < d ? side.at[(int64_t) vector[i] * side.pitch + j] * scale : 0.0f;
		}

		template<int PITCH>
		__device__ __forceinline__ void
		store(float (*to)[PITCH])
		{
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				to[threadIdx.x % GK_TILE_DEPTH][threadIdx.x / GK_TILE_DEPTH + i * STEP] = value[i];
		}
	};

	/* Of columns from c0 on and pivots from p0 on, in square[pivot][column]; what is beyond the end of a side has any. */
	__device__ __forceinline__ void
	sum(float (&square)[2][4], const GkTileSide &columns, int c0, const GkTileSide &pivots, int p0, int d, float scale)
	{
		Feed<GK_TILE> of_columns(columns, c0);
		Feed<GK_TILE_PIVOTS> of_pivots(pivots, p0);

		of_columns.load(columns, 0, d, scale);
		of_pivots.load(pivots, 0, d, scale);
		for (int j0 = 0; j0 < d; j0 += GK_TILE_DEPTH)
		{
			__syncthreads();
			of_columns.store(c);
			of_pivots.store(p);
			__syncthreads();
			/* The next ones, while these are computed. */
			of_columns.load(columns, j0 + GK_TILE_DEPTH, d, scale);
			of_pivots.load(pivots, j0 + GK_TILE_DEPTH, d, scale);
#pragma unroll 8
			for (int f = 0; f < GK_TILE_DEPTH; f++)
			{
				float4		u = *(const float4 *) &c[f][column()];
				float2		v = *(const float2 *) &p[f][pivot()];
				float		of_column[4] = {u.x, u.y, u.z, u.w};
				float		of_pivot[2] = {v.x, v.y};

#pragma unroll
				for (int o = 0; o < 2; o++)
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
