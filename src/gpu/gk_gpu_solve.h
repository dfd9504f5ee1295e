/*
 * gk_gpu_solve.h - a whole clustering of one small group by one team of threads:
 * seeding, all iterations, the order of the clusters, restarts.
 *
 * The same as gk_seed.c, gk_lloyd.c, gk_repair.c and gk_finish.c do over a backend,
 * step by step and bit for bit, with everything in one piece of fast memory.
 * Threads take rows, or values to be added up, in turns; what decides is computed
 * by all of them alike from what they share, so that they stay together.
 *
 * In CUDA a team is a block.  Elsewhere whoever includes this says what a team is
 * (tests: a team of threads, or of one), in plain C.
 */
#ifndef GK_GPU_SOLVE_H
#define GK_GPU_SOLVE_H

#include "core/gk_packed.h"
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

#define GK_MAX_ORDER_PASSES		4	/* as in gk_finish.c */

typedef union GkWord
{
	double		f;
	int64_t		i;
} GkWord;

/* One team's view of its group; the arrays are shared, the rest is each thread's own. */
typedef struct GkSolve
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
} GkSolve;

/* A round's candidates are picked into place[], which has room for them. */
GK_HD int
gk_solve_places(int k, int candidates)
{
	return k > candidates ? k : candidates;
}

/* Values that are added up at a time, for k clusters. */
GK_HD int
gk_solve_parts(int d, int k, int threads)
{
	int			most = k * (d + 1 > 4 ? d + 1 : 4);

	return most > threads ? most : threads;
}

/* Bytes of the team's memory; at most `threads` threads. */
GK_HD size_t
gk_solve_bytes(int64_t n, int d, int k, int candidates, int threads)
{
	size_t		wide = 3 * (size_t) d + n + (size_t) k * d + 2 * (size_t) k +
		gk_solve_parts(d, k, threads) + 2 * (size_t) threads;
	size_t		narrow = d + (size_t) n * d + n + (size_t) k * d + 3 * (size_t) k + gk_solve_places(k, candidates);

	return wide * 8 + narrow * 4;
}

GK_TEAM void
gk_solve_place(GkSolve *s, const GkPackedGroup *g, char *memory)
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
	s->expo = (int32_t *) (s->part + gk_solve_parts(d, k, GK_SIZE));
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
gk_solve_sum2(const GkSolve *s, int64_t *a, int64_t *b)
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
#define GK_SOLVE_FIRST(s, row, before) \
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
gk_solve_d2(const GkSolve *s, int row, const float *c, int stride)
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
gk_solve_nearer(const GkSolve *s, const float *c, int stride, bool begin)
{
	for (int r = GK_RANK; r < s->n; r += GK_SIZE)
	{
		float		v = gk_solve_d2(s, r, c, stride);

		if (begin || v < s->d2[r])
			s->d2[r] = v;
	}
}

/* The nearest centroids; with their distances when wanted. */
GK_TEAM void
gk_solve_assign(const GkSolve *s, bool distances)
{
	for (int r = GK_RANK; r < s->n; r += GK_SIZE)
	{
		float		best = GK_INFINITE;
		int			label = 0;

		for (int i = 0; i < s->k; i++)
		{
			float		v = gk_solve_d2(s, r, s->f + i * s->d, 1);

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
gk_solve_set_point(const GkSolve *s, int i, int row)
{
	for (int j = GK_RANK; j < s->d; j += GK_SIZE)
	{
		double		c = s->center[j] + (double) s->x[j * s->n + row] / s->scale[j];

		s->c[i * s->d + j] = c;
		s->f[i * s->d + j] = gk_centroid_to_float(c, s->center[j], s->scale[j]);
	}
}

/* ---- seeding ---- */

GK_TEAM bool
gk_solve_sooner(const GkSolve *s, int64_t a, int64_t b)
{
	if (a < 0 || b < 0)
		return a >= 0;
	return s->key[a] < s->key[b] || (s->key[a] == s->key[b] && a < b);
}

/* The rows with the smallest keys, in order, into place[]; returns how many. */
GK_TEAM int
gk_solve_race(const GkSolve *s, uint64_t key, bool use_d2, int want)
{
	int			got = 0;

	for (int r = GK_RANK; r < s->n; r += GK_SIZE)
	{
		double		weight = use_d2 ? (double) s->d2[r] : 1.0;

		s->key[r] = weight > 0.0 ? gk_race_key(gk_hash(key, r), weight) : -1.0;
	}
	while (got < want)
	{
		int64_t		first = -1;

		for (int r = GK_RANK; r < s->n; r += GK_SIZE)
			if (s->key[r] >= 0.0 && gk_solve_sooner(s, r, first))
				first = r;
		GK_SOLVE_FIRST(s, first, gk_solve_sooner);
		if (first < 0)
			break;
		if (GK_RANK == 0)
			s->place[got] = (int32_t) first;
		/* the thread that looks at this row is the one that takes it out */
		if (first % GK_SIZE == GK_RANK)
			s->key[first] = -1.0;
		got++;
	}
	GK_MEET();
	return got;
}

/* The first of `got` candidates that lowers the potential most. */
GK_TEAM int
gk_solve_best(const GkSolve *s, int got)
{
	gk_int128	lowest = 0;
	int			best = 0;

	for (int q = 0; got > 1 && q < got; q++)
	{
		const float *point = s->x + s->place[q];
		int64_t		hi = 0;
		int64_t		lo = 0;
		gk_int128	pot;

		for (int r = GK_RANK; r < s->n; r += GK_SIZE)
		{
			float		v = gk_solve_d2(s, r, point, s->n);
			int64_t		h,
						l;

			gk_d2_split((double) (v < s->d2[r] ? v : s->d2[r]), s->d2_scale, &h, &l);
			hi += h;
			lo += l;
		}
		gk_solve_sum2(s, &hi, &lo);
		pot = (gk_int128) hi * ((gk_int128) 1 << 40) + lo;
		if (q == 0 || pot < lowest)
		{
			lowest = pot;
			best = q;
		}
	}
	return s->place[best];
}

GK_TEAM void
gk_solve_plus_plus(GkSolve *s, int64_t seed, int run, int k, int candidates)
{
	s->k = 0;
	while (s->k < k)
	{
		bool		first = s->k == 0;
		int			got = gk_solve_race(s, gk_key(seed, run, s->k), !first, first ? 1 : candidates);
		int			row;

		if (got == 0)
			break;				/* every point is a seed already */
		row = gk_solve_best(s, got);
		gk_solve_set_point(s, s->k++, row);
		if (s->k < k)
			gk_solve_nearer(s, s->x + row, s->n, first);
		GK_MEET();
	}
}

GK_TEAM void
gk_solve_random(GkSolve *s, int64_t seed, int run, int k)
{
	s->k = gk_solve_race(s, gk_key(seed, run, 0), false, k);
	for (int i = 0; i < s->k; i++)
		gk_solve_set_point(s, i, s->place[i]);
	GK_MEET();
}

GK_TEAM void
gk_solve_given(GkSolve *s, const double *given, int k)
{
	s->k = k;
	for (int v = GK_RANK; v < k * s->d; v += GK_SIZE)
	{
		s->c[v] = given[v];
		s->f[v] = gk_centroid_to_float(given[v], s->center[v % s->d], s->scale[v % s->d]);
	}
	GK_MEET();
}

/* ---- empty clusters ---- */

/* Farther; ties to the lexicographically smallest point, then to the lowest row. */
GK_TEAM bool
gk_solve_farther(const GkSolve *s, int64_t a, int64_t b)
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
GK_TEAM int
gk_solve_repair(const GkSolve *s, const int32_t *count)
{
	int			repaired = 0;

	for (int i = 0; i < s->k; i++)
		gk_solve_nearer(s, s->f + i * s->d, 1, i == 0);
	for (int i = 0; i < s->k; i++)
	{
		int64_t		far = -1;

		if (count[i] != 0)
			continue;
		for (int r = GK_RANK; r < s->n; r += GK_SIZE)
			if (s->d2[r] > 0.0f && gk_solve_farther(s, r, far))
				far = r;
		GK_SOLVE_FIRST(s, far, gk_solve_farther);
		if (far < 0)
			break;				/* every point is on a centroid */
		gk_solve_set_point(s, i, (int) far);
		repaired++;
		GK_MEET();
		gk_solve_nearer(s, s->f + i * s->d, 1, false);
	}
	GK_MEET();
	return repaired;
}

GK_TEAM bool
gk_solve_some_empty(const GkSolve *s, const int32_t *count)
{
	for (int i = 0; i < s->k; i++)
		if (count[i] == 0)
			return true;
	return false;
}

/* ---- iterations ---- */

/*
 * How values are added up: so many threads share one, each taking every share-th
 * row.  In the end part[v] is the sum.
 */
GK_TEAM int
gk_solve_share(int values)
{
	return values < GK_SIZE ? GK_SIZE / values : 1;
}

/* Feature Sums and counts: part[i * (d + 1) + j], j = d for the count. */
GK_TEAM void
gk_solve_sums(const GkSolve *s)
{
	int			values = s->k * (s->d + 1);
	int			share = gk_solve_share(values);

	for (int u = GK_RANK; u < values * share; u += GK_SIZE)
	{
		int			v = u % values;
		int			i = v / (s->d + 1);
		int			j = v % (s->d + 1);
		double		sum = 0.0;

		for (int r = u / values; r < s->n; r += share)
			if (s->label[r] == i)
				sum += j < s->d ? (double) s->x[j * s->n + r] : 1.0;
		s->part[u].f = sum;
	}
	GK_MEET();
	for (int v = GK_RANK; v < values; v += GK_SIZE)
	{
		double		sum = s->part[v].f;

		for (int p = 1; p < share; p++)
			sum += s->part[p * values + v].f;
		s->part[v].f = sum;
		if (v % (s->d + 1) == s->d)
			s->count[v / (s->d + 1)] = (int32_t) sum;
	}
	GK_MEET();
}

/* New centroids of the clusters that have points; returns the squared movement. */
GK_TEAM double
gk_solve_update(const GkSolve *s)
{
	int			d = s->d;
	double		shift = 0.0;

	for (int v = GK_RANK; v < s->k * d; v += GK_SIZE)
	{
		int			i = v / d;
		int			j = v % d;
		GkWord	   *part = &s->part[i * (d + 1) + j];
		double		c,
					t;
		float		f;

		if (s->count[i] == 0)
		{
			part->f = 0.0;
			continue;
		}
		c = gk_mean((gk_int128) (int64_t) (part->f * s->inv[j]), s->count[i], s->expo[j], s->center[j], s->scale[j]);
		f = gk_centroid_to_float(c, s->center[j], s->scale[j]);
		t = (double) f - (double) s->f[v];
		part->f = t * t;
		s->c[v] = c;
		s->f[v] = f;
	}
	GK_MEET();
	for (int i = GK_RANK; i < s->k; i += GK_SIZE)
	{
		double		moved = 0.0;

		for (int j = 0; j < d; j++)
			moved += s->part[i * (d + 1) + j].f;
		s->part[i * (d + 1) + d].f = moved;
	}
	GK_MEET();
	for (int i = 0; i < s->k; i++)
		shift += s->part[i * (d + 1) + d].f;
	GK_MEET();
	return shift;
}

/* As gk_lloyd(); returns whether it converged. */
GK_TEAM bool
gk_solve_lloyd(const GkSolve *s, double tol, int max_iter, int *iterations)
{
	for (*iterations = 0; *iterations < max_iter;)
	{
		int			repaired = 0;
		double		shift;

		gk_solve_assign(s, false);
		gk_solve_sums(s);
		if (gk_solve_some_empty(s, s->count))
			repaired = gk_solve_repair(s, s->count);
		shift = gk_solve_update(s);
		(*iterations)++;
		if (repaired == 0 && shift <= tol)
			return true;
	}
	return false;
}

/* ---- the end ---- */

/* Clusters by size, largest first, ties by centroid; returns whether any moved. */
GK_TEAM bool
gk_solve_order(const GkSolve *s, const int32_t *count)
{
	int			d = s->d;
	bool		moved = false;

	for (int i = GK_RANK; i < s->k; i += GK_SIZE)
	{
		int			place = 0;

		for (int o = 0; o < s->k; o++)
		{
			bool		before = count[o] > count[i];

			if (count[o] == count[i])
			{
				int			j = 0;

				while (j < d && s->c[o * d + j] == s->c[i * d + j])
					j++;
				before = j < d ? s->c[o * d + j] < s->c[i * d + j] : o < i;
			}
			place += before;
		}
		s->place[i] = place;
	}
	GK_MEET();
	for (int i = 0; i < s->k; i++)
		moved |= s->place[i] != i;
	for (int v = GK_RANK; moved && v < s->k * d; v += GK_SIZE)
		s->part[s->place[v / d] * d + v % d].f = s->c[v];
	GK_MEET();
	for (int v = GK_RANK; moved && v < s->k * d; v += GK_SIZE)
	{
		s->c[v] = s->part[v].f;
		s->f[v] = gk_centroid_to_float(s->c[v], s->center[v % d], s->scale[v % d]);
	}
	GK_MEET();
	return moved;
}

/* Sizes, inertia and radius of each cluster, by the centroids as they are. */
GK_TEAM void
gk_solve_stats(const GkSolve *s)
{
	int			values = s->k * 4;
	int			share = gk_solve_share(values);

	gk_solve_assign(s, true);
	for (int u = GK_RANK; u < values * share; u += GK_SIZE)
	{
		int			v = u % values;
		int			i = v / 4;
		int64_t		sum = 0;
		double		most = 0.0;

		for (int r = u / values; r < s->n; r += share)
		{
			int64_t		hi,
						lo;

			if (s->label[r] != i)
				continue;
			if (v % 4 == 2)
				sum++;
			else if (v % 4 == 3)
				most = (double) s->d2[r] > most ? (double) s->d2[r] : most;
			else
			{
				gk_d2_split((double) s->d2[r], s->d2_scale, &hi, &lo);
				sum += v % 4 == 0 ? hi : lo;
			}
		}
		if (v % 4 == 3)
			s->part[u].f = most;
		else
			s->part[u].i = sum;
	}
	GK_MEET();
	for (int v = GK_RANK; v < values; v += GK_SIZE)
	{
		int64_t		sum = 0;
		double		most = 0.0;

		for (int p = 0; p < share; p++)
			if (v % 4 == 3)
				most = s->part[p * values + v].f > most ? s->part[p * values + v].f : most;
			else
				sum += s->part[p * values + v].i;
		if (v % 4 == 0)
			s->hi[v / 4] = sum;
		else if (v % 4 == 1)
			s->lo[v / 4] = sum;
		else if (v % 4 == 2)
			s->size[v / 4] = (int32_t) sum;
		else
			s->max_d2[v / 4] = (float) most;
	}
	GK_MEET();
}

/* Leave out clusters without points; one thread does it, all know how many are left. */
GK_TEAM void
gk_solve_drop_empty(GkSolve *s)
{
	int			d = s->d;
	int			left = 0;
	int			to = 0;

	for (int i = 0; i < s->k; i++)
		left += s->size[i] != 0;
	GK_MEET();
	for (int i = 0; GK_RANK == 0 && i < s->k; i++)
	{
		if (s->size[i] == 0)
			continue;
		for (int j = 0; j < d; j++)
		{
			s->c[to * d + j] = s->c[i * d + j];
			s->f[to * d + j] = s->f[i * d + j];
		}
		s->hi[to] = s->hi[i];
		s->lo[to] = s->lo[i];
		s->max_d2[to] = s->max_d2[i];
		s->size[to++] = s->size[i];
	}
	s->k = left;
	GK_MEET();
}

/* As gk_finish(). */
GK_TEAM void
gk_solve_finish(GkSolve *s)
{
	bool		counted = false;	/* by the finishing pass, not by the last iteration */
	int			order_passes = 0;
	int			repairs = 0;

	for (;;)
	{
		int			repaired = 0;

		if (!s->given && order_passes < GK_MAX_ORDER_PASSES)
		{
			bool		moved = gk_solve_order(s, counted ? s->size : s->count);

			if (counted && !moved)
				break;
			order_passes++;
		}
		else if (counted)
			break;
		gk_solve_stats(s);
		counted = true;
		if (!gk_solve_some_empty(s, s->size))
			continue;
		if (repairs++ < s->k + 8)
			repaired = gk_solve_repair(s, s->size);
		if (repaired > 0)
		{
			for (int i = GK_RANK; i < s->k; i += GK_SIZE)
				s->count[i] = s->size[i];
			GK_MEET();
			counted = false;
			order_passes = 0;
		}
		else
			gk_solve_drop_empty(s);
	}
}

/* ---- all of it ---- */

GK_TEAM void
gk_solve_load(const GkSolve *s, const char *in)
{
	const double *columns = (const double *) in;
	const float *x = (const float *) (columns + 2 * s->d);
	const int32_t *expo = (const int32_t *) (x + (size_t) s->n * s->d);

	for (int i = GK_RANK; i < s->n * s->d; i += GK_SIZE)
		s->x[i] = x[i];
	for (int j = GK_RANK; j < s->d; j += GK_SIZE)
	{
		s->center[j] = columns[j];
		s->scale[j] = columns[s->d + j];
		s->expo[j] = expo[j];
		s->inv[j] = gk_pow2(GK_GRID_BITS - expo[j]);
	}
	GK_MEET();
}

GK_TEAM void
gk_solve_store(const GkSolve *s, const GkPackedOut *out, int iterations, bool converged)
{
	for (int v = GK_RANK; v < s->k * s->d; v += GK_SIZE)
		out->centroid[v] = s->c[v];
	for (int i = GK_RANK; i < s->k; i += GK_SIZE)
	{
		out->size[i] = s->size[i];
		out->hi[i] = s->hi[i];
		out->lo[i] = s->lo[i];
		out->max_d2[i] = s->max_d2[i];
	}
	if (GK_RANK == 0)
	{
		out->head->k = s->k;
		out->head->iterations = iterations;
		out->head->converged = converged;
		out->head->unused = 0;
	}
}

/* Cluster group g of a slot, in memory of gk_solve_bytes(). */
GK_TEAM void
gk_solve_group(const GkPackedTask *task, const GkPackedGroup *g, char *slot, char *memory)
{
	GkSolve		s;
	GkPackedOut out = gk_packed_out(slot + g->out, g->k, task->d);
	int			runs = task->given != NULL ? 1 : task->n_init;
	gk_int128	best = 0;

	s.n = g->n;
	s.d = task->d;
	s.given = task->given != NULL;
	s.d2_scale = gk_pow2(GK_GRID_BITS - g->d2_expo);
	gk_solve_place(&s, g, memory);
	gk_solve_load(&s, slot + g->in);
	for (int run = 0; run < runs; run++)
	{
		gk_int128	inertia = 0;
		int			iterations;
		bool		converged;

		if (task->given != NULL)
			gk_solve_given(&s, task->given, g->k);
		else if (task->random)
			gk_solve_random(&s, task->seed, run, g->k);
		else
			gk_solve_plus_plus(&s, task->seed, run, g->k, g->candidates);
		converged = gk_solve_lloyd(&s, g->tol, task->max_iter, &iterations);
		gk_solve_finish(&s);
		for (int i = 0; i < s.k; i++)
			inertia += (gk_int128) s.hi[i] * ((gk_int128) 1 << 40) + s.lo[i];
		if (run == 0 || inertia < best)
		{
			best = inertia;
			gk_solve_store(&s, &out, iterations, converged);
		}
		GK_MEET();
	}
}

#endif							/* GK_GPU_SOLVE_H */
