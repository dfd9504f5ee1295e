/*
 * gk_gpu_filter.cuh - points in sorted boxes: gk_gpu_filter_build.cu makes them, gk_gpu_filter.cu iterates
 * over them and says what for.
 */
#ifndef GK_GPU_FILTER_CUH
#define GK_GPU_FILTER_CUH

#include "gpu/gk_gpu_device.cuh"

#define MOST_D		24			/* features: a lane each, and one for the number of rows */
#define MOST_TILE	128			/* rows of a box: ... */
#define TILE(D)		((D) <= 16 ? MOST_TILE : MOST_TILE / 2)
#define P(D)		(TILE(D) / 32)	/* points of a lane, in registers */
#define QUADS(D)	(((D) + 3) / 4) /* vectors of four features */
#define THREADS		256
#define WARPS		(THREADS / 32)
#define ALL			0xffffffffu

/* Of a tile whose rows are in several clusters; of one whose rows are in none yet. */
#define MIXED		0xffff
#define NOWHERE		0xfefe		/* (bytes that are equal) */

struct GkFilter
{
	float	   *x;				/* [n][d] */
	float4	   *corner;			/* [tiles][2][quads]: smallest and largest coordinates */
	long long  *sum;			/* [tiles][4 quads], units of 2^(expo - 40) */
	unsigned short *label;		/* [n] of the rows of mixed tiles, after the last pass */
	unsigned short *tile_label; /* [tiles]: the label of all rows, MIXED or NOWHERE */
	unsigned long long *work;	/* distances of points computed in this iteration; the next tiles */
	float	   *range;			/* [2][MOST_D]: origin and cells per unit of the curve */
	bool		sorted;
	bool		off;			/* not wanted, or not worth it */
	int			waited;			/* iterations without it */
};

static inline int64_t
tiles_of(int64_t rows, int d)
{
	return (rows + TILE(d) - 1) / TILE(d);
}

/* Sort the points along a curve about k centroids.  Without the memory: off, and no error. */
GkStatus	gk_gpu_filter_build(GkSession *s, int k, GkFilter *b, GkError *err);

/* No iteration will use them any more: free their memory. */
void		gk_gpu_filter_off(GkFilter *b);

/* A row of the sorted copy; it is read once in an iteration. */
template <int D>
__device__ __forceinline__ void
fetch(const float *x, int64_t row, float (&out)[D])
{
	if (D % 4 == 0)
	{
#pragma unroll
		for (int j = 0; j < D; j += 4)
		{
			float4		t = __ldcs((const float4 *) (x + row * D + j));

			out[j] = t.x;
			out[(j + 1) % D] = t.y;
			out[(j + 2) % D] = t.z;
			out[(j + 3) % D] = t.w;
		}
	}
	else if (D % 2 == 0)
	{
#pragma unroll
		for (int j = 0; j < D; j += 2)
		{
			float2		t = __ldcs((const float2 *) (x + row * D + j));

			out[j] = t.x;
			out[(j + 1) % D] = t.y;
		}
	}
	else
	{
#pragma unroll
		for (int j = 0; j < D; j++)
			out[j] = __ldcs(x + row * D + j);
	}
}

/* A value as two integers, x = (hi * 2^20 + lo) * 2^(expo - 40), |hi| <= 2^20 > lo >= 0. */
__device__ __forceinline__ void
limbs(float x, float inv, float &hi, float &lo)
{
	float		v = __fmul_rn(x, inv);

	hi = __fsub_rn(__fmaf_rd(v, 0x1p-20f, 0x1.8p23f), 0x1.8p23f);
	lo = __fmaf_rn(hi, -0x1p20f, v);
}

#endif							/* GK_GPU_FILTER_CUH */
