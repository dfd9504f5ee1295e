/*
 * gk_gpu_block.h - one small group in the fast memory of one team of threads: what
 * gk_gpu_block_lloyd.h and gk_gpu_block_seed.h work on.
 *
 * In CUDA a team is a block.  Elsewhere whoever includes this says what a team is
 * (tests: a team of threads, or of one), in plain C.
 */
#ifndef GK_GPU_BLOCK_H
#define GK_GPU_BLOCK_H

#include "core/groups/gk_group_batch.h"
#include "core/gk_update.h"

#ifdef __CUDACC__
#define GK_TEAM			__device__ static
#define GK_RANK			((int) threadIdx.x)
#define GK_SIZE			((int) blockDim.x)	/* a power of two */
#define GK_MEET()		__syncthreads()
#define GK_INFINITE		__int_as_float(0x7f800000)
#else
#define GK_TEAM			static
#define GK_INFINITE		INFINITY
#endif

typedef union GkWord
{
	double		f;
	int64_t		i;
} GkWord;

/* One team's view of its group; the arrays are shared, the rest is each thread's own. */
typedef struct GkBlockFit
{
	int			n;
	int			d;
	int			k;				/* clusters now */
	bool		given;
	double		d2_scale;
	/* Columns. */
	double	   *center;
	double	   *scale;
	double	   *inv;			/* 2^(40 - expo) */
	int32_t    *expo;
	/* Points. */
	float	   *x;				/* [d][n] */
	float	   *d2;				/* [n] D of the seeding, or to the nearest centroid */
	int32_t    *label;			/* [n] */
	double	   *key;			/* [n] of a race */
	/* Clusters. */
	double	   *c;				/* [k][d] original units */
	float	   *f;				/* [k][d] prepared */
	int32_t    *count;			/* [k] of the last iteration */
	int32_t    *size;			/* [k], and these of the last finishing pass */
	int64_t    *hi;
	int64_t    *lo;
	float	   *max_d2;
	int32_t    *place;			/* [k] in the order by size */
	/* Scratch. */
	GkWord	   *part;			/* sums that are being made */
	int64_t    *red[2];			/* [threads] of a reduction */
} GkBlockFit;

/* A round's candidates are picked into place[], which has room for them. */
GK_HD int
gk_block_places(int k, int candidates)
{
	return k > candidates ? k : candidates;
}

/* Values that are added up at a time, for k clusters. */
GK_HD int
gk_block_parts(int d, int k, int threads)
{
	int			most = k * (d + 1 > 4 ? d + 1 : 4);

	return most > threads ? most : threads;
}

/* Bytes of the team's memory; at most `threads` threads. */
GK_HD size_t
gk_block_bytes(int64_t n, int d, int k, int candidates, int threads)
{
	size_t		wide = 3 * (size_t) d + n + (size_t) k * d + 2 * (size_t) k +
		gk_block_parts(d, k, threads) + 2 * (size_t) threads;
	size_t		narrow = d + (size_t) n * d + n + (size_t) k * d + 3 * (size_t) k + gk_block_places(k, candidates);

	return wide * 8 + narrow * 4;
}

GK_TEAM void
gk_block_place(GkBlockFit *s, const GkGroupBatchItem *g, char *memory)
{
	int			d = s->d;
	int			k = g->k;

	s->center = (double *) memory;
	s->scale = s->center + d;
	s->inv = s->scale + d;
	s->key = s->inv + d;
	s->c = s->key + g->n;
	s->hi = (int64_t *) (s->c + (size_t) k * d);
	s->lo = s->hi + k;
	s->red[0] = s->lo + k;
	s->red[1] = s->red[0] + GK_SIZE;
	s->part = (GkWord *) (s->red[1] + GK_SIZE);
	s->expo = (int32_t *) (s->part + gk_block_parts(d, k, GK_SIZE));
	s->x = (float *) (s->expo + d);
	s->d2 = s->x + (size_t) g->n * d;
	s->f = s->d2 + g->n;
	s->max_d2 = s->f + (size_t) k * d;
	s->count = (int32_t *) (s->max_d2 + k);
	s->size = s->count + k;
	s->place = s->size + k;
	/* labels come when no more races are run */
	s->label = (int32_t *) s->key;
}
/* ---- reductions over the team ---- */

/* Sums of two integers, to all. */
GK_TEAM void
gk_block_sum2(const GkBlockFit *s, int64_t *a, int64_t *b)
{
	GK_MEET();
	s->red[0][GK_RANK] = *a;
	s->red[1][GK_RANK] = *b;
	for (int o = GK_SIZE / 2; o > 0; o /= 2)
	{
		GK_MEET();
		if (GK_RANK < o)
		{
			s->red[0][GK_RANK] += s->red[0][GK_RANK + o];
			s->red[1][GK_RANK] += s->red[1][GK_RANK + o];
		}
	}
	GK_MEET();
	*a = s->red[0][0];
	*b = s->red[1][0];
}

/* The first of the threads' rows, to all; before(s, a, b): rows < 0 are none. */
#define GK_BLOCK_FIRST(s, row, before) \
	do { \
		GK_MEET(); \
		(s)->red[0][GK_RANK] = (row); \
		for (int o_ = GK_SIZE / 2; o_ > 0; o_ /= 2) \
		{ \
			GK_MEET(); \
			if (GK_RANK < o_ && before(s, (s)->red[0][GK_RANK + o_], (s)->red[0][GK_RANK])) \
				(s)->red[0][GK_RANK] = (s)->red[0][GK_RANK + o_]; \
		} \
		GK_MEET(); \
		(row) = (s)->red[0][0]; \
	} while (0)

/* ---- distances ---- */

GK_TEAM float
gk_block_d2(const GkBlockFit *s, int row, const float *c, int stride)
{
	float		sum = 0.0f;

	for (int j = 0; j < s->d; j++)
	{
		float		t = s->x[j * s->n + row] - c[j * stride];

		sum = gk_fmaf(t, t, sum);
	}
	return sum;
}

/* D = min(D, distance to a point or centroid); begin: D was infinite. */
GK_TEAM void
gk_block_nearer(const GkBlockFit *s, const float *c, int stride, bool begin)
{
	for (int r = GK_RANK; r < s->n; r += GK_SIZE)
	{
		float		v = gk_block_d2(s, r, c, stride);

		if (begin || v < s->d2[r])
			s->d2[r] = v;
	}
}

/* The nearest centroids; with their distances when wanted. */
GK_TEAM void
gk_block_assign(const GkBlockFit *s, bool distances)
{
	for (int r = GK_RANK; r < s->n; r += GK_SIZE)
	{
		float		best = GK_INFINITE;
		int			label = 0;

		for (int i = 0; i < s->k; i++)
		{
			float		v = gk_block_d2(s, r, s->f + i * s->d, 1);

			if (v < best)
			{
				best = v;
				label = i;
			}
		}
		s->label[r] = label;
		if (distances)
			s->d2[r] = best;
	}
	GK_MEET();
}

/* Put a cluster's centroid at a point, as gk_engine_set_point(). */
GK_TEAM void
gk_block_set_point(const GkBlockFit *s, int i, int row)
{
	for (int j = GK_RANK; j < s->d; j += GK_SIZE)
	{
		double		c = s->center[j] + (double) s->x[j * s->n + row] / s->scale[j];

		s->c[i * s->d + j] = c;
		s->f[i * s->d + j] = gk_centroid_to_float(c, s->center[j], s->scale[j]);
	}
}
#endif							/* GK_GPU_BLOCK_H */
