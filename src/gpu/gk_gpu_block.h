/*
 * gk_gpu_block.h - one small group in the shared memory of one block of threads, its seeding and the repair
 * of its empty clusters (the twins of gk_seed.c and gk_repair.c); gk_gpu_block_lloyd.h iterates.
 *
 * It is plain C but for the macros below.  Tests define them for a team of CPU threads, or for one thread,
 * and so run the GPU's code without a GPU.
 */
#ifndef GK_GPU_BLOCK_H
#define GK_GPU_BLOCK_H

#include "core/groups/gk_group_slot.h"
#include "core/gk_update.h"

#ifdef __CUDACC__
#define GK_BLOCK		__device__ static	/* a function that all threads of a block call */
#define GK_BLOCK_RANK	((int) threadIdx.x)
#define GK_BLOCK_SIZE	((int) blockDim.x)	/* a power of two */
#define GK_BLOCK_SYNC()	__syncthreads()
#define GK_BLOCK_INF	__int_as_float(0x7f800000)
#else
#define GK_BLOCK		static
#define GK_BLOCK_INF	INFINITY
#endif

typedef union GkWord
{
	double		f;
	int64_t		i;
} GkWord;

/* A block's view of its group; the arrays are shared, the rest is each thread's own. */
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
	int			values = k * (d + 1 > 4 ? d + 1 : 4);

	return values > threads ? values : threads;
}

/* Bytes of the block's memory; at most `threads` threads. */
GK_HD size_t
gk_block_bytes(int64_t n, int d, int k, int candidates, int threads)
{
	size_t		wide = 3 * (size_t) d + n + (size_t) k * d + 2 * (size_t) k +
	gk_block_parts(d, k, threads) + 2 * (size_t) threads;
	size_t		narrow = d + (size_t) n * d + n + (size_t) k * d + 3 * (size_t) k + gk_block_places(k, candidates);

	return wide * 8 + narrow * 4;
}

GK_BLOCK void
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
	s->red[1] = s->red[0] + GK_BLOCK_SIZE;
	s->part = (GkWord *) (s->red[1] + GK_BLOCK_SIZE);
	s->expo = (int32_t *) (s->part + gk_block_parts(d, k, GK_BLOCK_SIZE));
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

/* ---- reductions over the block ---- */

/* Sums of two integers, to all. */
GK_BLOCK void
gk_block_sum2(const GkBlockFit *s, int64_t *a, int64_t *b)
{
	GK_BLOCK_SYNC();
	s->red[0][GK_BLOCK_RANK] = *a;
	s->red[1][GK_BLOCK_RANK] = *b;
	for (int o = GK_BLOCK_SIZE / 2; o > 0; o /= 2)
	{
		GK_BLOCK_SYNC();
		if (GK_BLOCK_RANK < o)
		{
			s->red[0][GK_BLOCK_RANK] += s->red[0][GK_BLOCK_RANK + o];
			s->red[1][GK_BLOCK_RANK] += s->red[1][GK_BLOCK_RANK + o];
		}
	}
	GK_BLOCK_SYNC();
	*a = s->red[0][0];
	*b = s->red[1][0];
}

/* The first of the threads' rows, to all; before(s, a, b): rows < 0 are none. */
#define GK_BLOCK_FIRST(s, row, before) \
	do { \
		GK_BLOCK_SYNC(); \
		(s)->red[0][GK_BLOCK_RANK] = (row); \
		for (int o_ = GK_BLOCK_SIZE / 2; o_ > 0; o_ /= 2) \
		{ \
			GK_BLOCK_SYNC(); \
			if (GK_BLOCK_RANK < o_ && before(s, (s)->red[0][GK_BLOCK_RANK + o_], (s)->red[0][GK_BLOCK_RANK])) \
				(s)->red[0][GK_BLOCK_RANK] = (s)->red[0][GK_BLOCK_RANK + o_]; \
		} \
		GK_BLOCK_SYNC(); \
		(row) = (s)->red[0][0]; \
	} while (0)

/* ---- distances ---- */

GK_BLOCK float
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
GK_BLOCK void
gk_block_nearer(const GkBlockFit *s, const float *c, int stride, bool begin)
{
	for (int r = GK_BLOCK_RANK; r < s->n; r += GK_BLOCK_SIZE)
	{
		float		v = gk_block_d2(s, r, c, stride);

		if (begin || v < s->d2[r])
			s->d2[r] = v;
	}
}

/* The nearest centroids; with their distances when wanted. */
GK_BLOCK void
gk_block_assign(const GkBlockFit *s, bool distances)
{
	for (int r = GK_BLOCK_RANK; r < s->n; r += GK_BLOCK_SIZE)
	{
		float		best = GK_BLOCK_INF;
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
	GK_BLOCK_SYNC();
}

/* Put a cluster's centroid at a point, like gk_engine_set_point(). */
GK_BLOCK void
gk_block_set_point(const GkBlockFit *s, int i, int row)
{
	for (int j = GK_BLOCK_RANK; j < s->d; j += GK_BLOCK_SIZE)
	{
		double		c = s->center[j] + (double) s->x[j * s->n + row] / s->scale[j];

		s->c[i * s->d + j] = c;
		s->f[i * s->d + j] = gk_centroid_to_float(c, s->center[j], s->scale[j]);
	}
}

/* ---- seeding ---- */

GK_BLOCK bool
gk_block_sooner(const GkBlockFit *s, int64_t a, int64_t b)
{
	if (a < 0 || b < 0)
		return a >= 0;
	return s->key[a] < s->key[b] || (s->key[a] == s->key[b] && a < b);
}

/* The rows with the smallest keys, in order, into place[]; returns how many. */
GK_BLOCK int
gk_block_race(const GkBlockFit *s, uint64_t key, bool use_d2, int want)
{
	int			got = 0;

	for (int r = GK_BLOCK_RANK; r < s->n; r += GK_BLOCK_SIZE)
	{
		double		weight = use_d2 ? (double) s->d2[r] : 1.0;

		s->key[r] = weight > 0.0 ? gk_race_key(gk_hash(key, r), weight) : -1.0;
	}
	while (got < want)
	{
		int64_t		first = -1;

		for (int r = GK_BLOCK_RANK; r < s->n; r += GK_BLOCK_SIZE)
			if (s->key[r] >= 0.0 && gk_block_sooner(s, r, first))
				first = r;
		GK_BLOCK_FIRST(s, first, gk_block_sooner);
		if (first < 0)
			break;
		if (GK_BLOCK_RANK == 0)
			s->place[got] = (int32_t) first;
		/* the thread that looks at this row is the one that takes it out */
		if (first % GK_BLOCK_SIZE == GK_BLOCK_RANK)
			s->key[first] = -1.0;
		got++;
	}
	GK_BLOCK_SYNC();
	return got;
}

/* The first of `got` candidates that lowers the potential most. */
GK_BLOCK int
gk_block_best(const GkBlockFit *s, int got)
{
	gk_int128	lowest = 0;
	int			best = 0;

	for (int q = 0; got > 1 && q < got; q++)
	{
		const float *point = s->x + s->place[q];
		int64_t		hi = 0;
		int64_t		lo = 0;
		gk_int128	pot;

		for (int r = GK_BLOCK_RANK; r < s->n; r += GK_BLOCK_SIZE)
		{
			float		v = gk_block_d2(s, r, point, s->n);
			int64_t		h,
						l;

			gk_d2_split((double) (v < s->d2[r] ? v : s->d2[r]), s->d2_scale, &h, &l);
			hi += h;
			lo += l;
		}
		gk_block_sum2(s, &hi, &lo);
		pot = (gk_int128) hi * ((gk_int128) 1 << 40) + lo;
		if (q == 0 || pot < lowest)
		{
			lowest = pot;
			best = q;
		}
	}
	return s->place[best];
}

GK_BLOCK void
gk_block_plus_plus(GkBlockFit *s, int64_t seed, int run, int k, int candidates)
{
	s->k = 0;
	while (s->k < k)
	{
		bool		first = s->k == 0;
		int			got = gk_block_race(s, gk_key(seed, run, s->k), !first, first ? 1 : candidates);
		int			row;

		if (got == 0)
			break;				/* every point is a seed already */
		row = gk_block_best(s, got);
		gk_block_set_point(s, s->k++, row);
		if (s->k < k)
			gk_block_nearer(s, s->x + row, s->n, first);
		GK_BLOCK_SYNC();
	}
}

GK_BLOCK void
gk_block_random(GkBlockFit *s, int64_t seed, int run, int k)
{
	s->k = gk_block_race(s, gk_key(seed, run, 0), false, k);
	for (int i = 0; i < s->k; i++)
		gk_block_set_point(s, i, s->place[i]);
	GK_BLOCK_SYNC();
}

GK_BLOCK void
gk_block_given(GkBlockFit *s, const double *given, int k)
{
	s->k = k;
	for (int v = GK_BLOCK_RANK; v < k * s->d; v += GK_BLOCK_SIZE)
	{
		s->c[v] = given[v];
		s->f[v] = gk_centroid_to_float(given[v], s->center[v % s->d], s->scale[v % s->d]);
	}
	GK_BLOCK_SYNC();
}

/* ---- empty clusters ---- */

/* Farther; ties to the lexicographically smallest point, then to the lowest row. */
GK_BLOCK bool
gk_block_farther(const GkBlockFit *s, int64_t a, int64_t b)
{
	if (a < 0 || b < 0)
		return a >= 0;
	if (s->d2[a] != s->d2[b])
		return s->d2[a] > s->d2[b];
	for (int j = 0; j < s->d; j++)
		if (s->x[j * s->n + a] != s->x[j * s->n + b])
			return s->x[j * s->n + a] < s->x[j * s->n + b];
	return a < b;
}

/* As gk_repair(); returns how many of the clusters with count 0 have a point now. */
GK_BLOCK int
gk_block_repair(const GkBlockFit *s, const int32_t *count)
{
	int			repaired = 0;

	for (int i = 0; i < s->k; i++)
		gk_block_nearer(s, s->f + i * s->d, 1, i == 0);
	for (int i = 0; i < s->k; i++)
	{
		int64_t		far = -1;

		if (count[i] != 0)
			continue;
		for (int r = GK_BLOCK_RANK; r < s->n; r += GK_BLOCK_SIZE)
			if (s->d2[r] > 0.0f && gk_block_farther(s, r, far))
				far = r;
		GK_BLOCK_FIRST(s, far, gk_block_farther);
		if (far < 0)
			break;				/* every point is on a centroid */
		gk_block_set_point(s, i, (int) far);
		repaired++;
		GK_BLOCK_SYNC();
		gk_block_nearer(s, s->f + i * s->d, 1, false);
	}
	GK_BLOCK_SYNC();
	return repaired;
}

GK_BLOCK bool
gk_block_some_empty(const GkBlockFit *s, const int32_t *count)
{
	for (int i = 0; i < s->k; i++)
		if (count[i] == 0)
			return true;
	return false;
}

#endif							/* GK_GPU_BLOCK_H */
