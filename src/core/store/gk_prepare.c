/*
 * gk_prepare.c - what prepared points are: centre, scale and grid of each column.
 *
 * One power of two scales all columns, because distances mix them; only columns
 * more than 2^100 below the largest get their own, as they cannot matter to any
 * distance but their centroids still have to be right.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/store/gk_store.h"

/* Sum of w x^2 and variance of a column, prepared units. */
static double
variance(const GkStore *s, const GkMoments *m, gk_int128 rows, int expo, double *sum_sq)
{
	bool		weighted = s->pts.weighted;
	gk_int128	mass = s->pts.prep.distance == GK_PARTIAL ? m->mass : rows;

	/* Weighted sums carry 40 more bits, as does the mass. */
	double		w = gk_i128_to_double(mass) * (weighted ? 0x1p-40 : 1.0);
	double		mean = gk_i128_to_double(m->sum) * (weighted ? 0x1p-40 : 1.0) / w;
	double		sq = gk_i128_to_double(m->sq) * 0x1p-80;
	double		var = sq / w - (mean * 0x1p-40) * (mean * 0x1p-40);
	double		unit = gk_pow2(2 * expo);

	*sum_sq = sq * unit;
	return var > 0.0 ? var * unit : 0.0;
}

/* Exponent of a column's largest distance from its centre; INT32_MIN: it is a constant. */
static int
reach_expo(const GkColumnStats *stats, double center)
{
	double		reach = fmax(stats->max - center, center - stats->min);

	if (isinf(reach))
		return gk_expo_of(fmax(stats->max * 0.25 - center * 0.25, center * 0.25 - stats->min * 0.25)) + 2;
	return reach > 0.0 ? gk_expo_of(reach) : INT32_MIN;
}

/* The exact mean, as a centre. */
static double
choose_centre(const GkColumnStats *stats, int64_t n)
{
	double		mean = gk_wide_mean(&stats->sum, n);

	/* A constant is its mean; the quotient could be its neighbour. */
	if (stats->min == stats->max)
		return stats->min;
	return gk_round_centre(mean, reach_expo(stats, mean));
}

/* The largest magnitude of a column as it is prepared now. */
static double
largest_prepared(const GkStore *s, int j)
{
	const GkPrep *p = &s->pts.prep;

	return fmax(gk_centre_scale(s->stats[j].max, p->center[j], p->scale[j]),
				-gk_centre_scale(s->stats[j].min, p->center[j], p->scale[j]));
}

/*
 * Scales from the statistics.  sd NULL: plain Euclidean; else the deviations of the columns
 * as they are prepared now.
 */
static void
choose_scale(GkStore *s, const double *sd)
{
	GkPrep	   *p = &s->pts.prep;
	int			top = INT32_MIN;
	int			bottom = INT32_MAX;
	int			most = GK_SCALE_EXPO;
	int			least = -GK_SCALE_EXPO;
	int			e;

	/* Exponent of every column's largest distance from its mean. */
	for (int j = 0; j < p->d; j++)
	{
		p->expo[j] = reach_expo(&s->stats[j], p->center[j]);
		if (p->expo[j] == INT32_MIN)
			continue;			/* constant */
		if (sd != NULL && sd[j] > 0.0)
		{
			int			own = gk_expo_of(sd[j]) - gk_expo_of(p->scale[j]);

			/* 2^e / deviation is to be a scale, too */
			most = own + GK_SCALE_EXPO - 1 < most ? own + GK_SCALE_EXPO - 1 : most;
			least = own - GK_SCALE_EXPO > least ? own - GK_SCALE_EXPO : least;
			p->expo[j] = gk_expo_of(largest_prepared(s, j) / sd[j]);
		}
		if (p->expo[j] > top)
			top = p->expo[j];
		if (p->expo[j] < bottom)
			bottom = p->expo[j];
	}
	if (top == INT32_MIN)
		top = bottom = 0;		/* all columns constant */

	/*
	 * As many bits above 1 as below, so that points far outside these (kmeans_predict) do
	 * not meet the end of float32.  Near the ends of double precision, as near to that as
	 * there are scales.
	 */
	e = (top - bottom > 2 * GK_TOP_EXPO ? GK_TOP_EXPO : (top - bottom + 1) / 2) - top;
	e = e > most ? most : e;
	e = e < least ? least : e;
	p->unit_exp = e;
	for (int j = 0; j < p->d; j++)
	{
		bool		apart = p->expo[j] != INT32_MIN && top - p->expo[j] > 2 * GK_TOP_EXPO;
		double		scale = gk_scale_of(apart ? -GK_TOP_EXPO - p->expo[j] : e);

		/* Deviations 2^2045 apart have no e: the smallest ones do not become 1. */
		if (sd != NULL && sd[j] > 0.0)
			scale = fmin(scale / sd[j] * p->scale[j], gk_pow2(GK_SCALE_EXPO));
		p->scale[j] = scale;
		p->expo[j] = largest_prepared(s, j) > 0.0 ? gk_expo_of(largest_prepared(s, j)) : -GK_TOP_EXPO;
		if (p->expo[j] < -GK_TOP_EXPO)
			p->expo[j] = -GK_TOP_EXPO;
	}
}

/* The grid of the weights; all of them must have a place on it. */
static GkStatus
choose_weight_grid(GkStore *s, GkError *err)
{
	const GkColumnStats *w = &s->stats[s->pts.d];

	if (!s->pts.weighted || s->pts.n == 0)
		return GK_OK;
	s->pts.weight_exp = gk_expo_of(w->max);
	if (gk_weight_on_grid(w->min, s->pts.weight_exp))
		return GK_OK;
	gk_fail(err, GK_ERR_RANGE, "weight %g is too light beside the heaviest, %g", w->min, w->max);
	snprintf(err->detail, sizeof(err->detail), "The lightest that can be counted beside that one is %g.",
			 gk_ldexp(0x1p-40, s->pts.weight_exp));
	snprintf(err->hint, sizeof(err->hint), "Give lighter rows weight 0, which leaves them out, or raise their weight.");
	return GK_ERR_RANGE;
}

/* (2 * 2^expo)^2, or 2 * 2^expo. */
static double
bound_feature(const GkPrep *prep, int j)
{
	return gk_pow2(prep->distance == GK_MANHATTAN ? prep->expo[j] + 1 : 2 * prep->expo[j] + 2);
}

/* That, summed over the features, rounded up to a power of two. */
int
gk_bound_d2(const GkPrep *prep)
{
	double		sum = 0.0;
	int			e;

	for (int j = 0; j < prep->d; j++)
		sum += bound_feature(prep, j);
	frexp(sum, &e);
	return e;
}

static bool
some_missing(const GkStore *s)
{
	bool		missing = false;

	for (int j = 0; j < s->pts.d; j++)
		missing |= s->stats[j].missing > 0;
	return missing;
}

/* A point that lacks features may have nothing but the widest one, which then counts d times. */
static int
bound_store(const GkStore *s)
{
	const GkPrep *prep = &s->pts.prep;
	double		widest = 0.0;
	int			e;

	for (int j = 0; j < prep->d; j++)
		widest = fmax(widest, bound_feature(prep, j));
	frexp(prep->d * widest, &e);
	return some_missing(s) ? e : gk_bound_d2(prep);
}

int
gk_store_bound_given(const GkStore *s, const double *centroid)
{
	const GkPrep *prep = &s->pts.prep;
	double		sum = 0.0;
	double		widest = 0.0;
	int			e;

	for (int j = 0; j < prep->d; j++)
	{
		double		far = fabs(gk_centre_scale(centroid[j], prep->center[j], prep->scale[j]));
		double		t = gk_pow2(prep->expo[j]) + fmin(far, (double) FLT_MAX);

		t = prep->distance == GK_MANHATTAN ? t : t * t;
		sum += t;
		widest = fmax(widest, t);
	}
	frexp(some_missing(s) ? prep->d * widest : sum, &e);
	return e;
}

void
gk_store_take_prep(GkStore *store, const GkPrep *prep)
{
	GkPrep	   *p = &store->pts.prep;

	p->distance = prep->distance;
	p->standardize = prep->standardize;
	p->unit_exp = prep->unit_exp;
	memcpy(p->center, prep->center, p->d * sizeof(double));
	memcpy(p->scale, prep->scale, p->d * sizeof(double));
	memcpy(p->expo, prep->expo, p->d * sizeof(int32_t));
}

/* What both ways of preparing begin with. */
static GkStatus
begin_prepare(GkStore *s, GkError *err)
{
	if (s->sink->prepare == NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "the rows of this store cannot be prepared");
	return gk_store_loaded(s, err);
}

/* A mean of values so near to the end of double precision may be rounded beyond it. */
static GkStatus
check_ends(const GkStore *s, GkError *err)
{
	for (int j = 0; j < s->pts.d; j++)
		if (s->stats[j].min < s->stats[j].max && fmax(-s->stats[j].min, s->stats[j].max) > DBL_MAX * (1.0 - 0x1p-20))
		{
			(void) gk_fail(err, GK_ERR_RANGE, "values are too near to the end of double precision");
			snprintf(err->hint, sizeof(err->hint), "Divide the columns by a constant.");
			return GK_ERR_RANGE;
		}
	return GK_OK;
}

/* What both ways of preparing end with. */
static GkStatus
finish_prepare(GkStore *s, GkMoments *moments, gk_int128 mass)
{
	GkPoints   *pts = &s->pts;

	pts->resident = true;
	for (int i = 0; i < pts->nchunks; i++)
		if (pts->chunks[i].data == NULL)
			pts->resident = false;
	pts->spare = gk_store_spare(s);
	pts->d2_expo = bound_store(s);
	if (moments != NULL)
	{
		pts->total_mass = mass;
		for (int j = 0; j < pts->d; j++)
		{
			double		sum_sq;

			pts->mean_var += variance(s, &moments[j], mass, pts->prep.expo[j], &sum_sq) / pts->d;
			pts->sum_sq += sum_sq;
			pts->total_sum[j] = moments[j].sum;
		}
	}
	s->prepared = true;
	return GK_OK;
}

GkStatus
gk_store_prepare(GkStore *store, GkDistance distance, bool standardize, GkError *err)
{
	GkPoints   *pts = &store->pts;
	GkPrep	   *p = &pts->prep;
	GkMoments  *moments;
	gk_int128	mass = 0;
	GkStatus	st;

	if (standardize && distance == GK_COSINE)
		return gk_fail(err, GK_ERR_OPTION, "standardize cannot be combined with the cosine distance");
	if ((st = begin_prepare(store, err)) != GK_OK)
		return st;
	p->distance = distance;
	p->standardize = standardize;
	if (pts->n == 0)
	{
		for (int j = 0; j < p->d; j++)
			p->scale[j] = 1.0;
		return finish_prepare(store, NULL, 0);
	}
	if ((st = choose_weight_grid(store, err)) != GK_OK)
		return st;
	moments = gk_alloc(store->host, p->d, sizeof(GkMoments));
	if (moments == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");

	if (distance == GK_COSINE)
	{
		p->unit_exp = 0;
		for (int j = 0; j < p->d; j++)
		{
			p->center[j] = 0.0;
			p->scale[j] = 1.0;
			p->expo[j] = 0;
		}
	}
	else if ((st = check_ends(store, err)) == GK_OK)
	{
		for (int j = 0; j < p->d; j++)
			p->center[j] = choose_centre(&store->stats[j], pts->n - store->stats[j].missing);
		choose_scale(store, NULL);
		if (standardize)
		{
			double	   *sd = gk_alloc(store->host, p->d, sizeof(double));

			st = sd ? store->sink->prepare(store, p, false, moments, &mass, err)
				: gk_fail(err, GK_ERR_MEMORY, "out of memory");
			if (st == GK_OK)
			{
				double		unused;

				/* Constant columns keep scale and value 0. */
				for (int j = 0; j < p->d; j++)
					sd[j] = sqrt(variance(store, &moments[j], mass, p->expo[j], &unused));
				choose_scale(store, sd);
			}
			gk_free(store->host, sd);
		}
	}
	if (st == GK_OK)
		st = store->sink->prepare(store, p, true, moments, &mass, err);
	if (st == GK_OK)
		st = finish_prepare(store, moments, mass);
	gk_free(store->host, moments);
	return st;
}

GkStatus
gk_store_prepare_as(GkStore *store, const GkPrep *prep, GkError *err)
{
	GkPrep	   *p = &store->pts.prep;
	GkStatus	st;

	if (prep->d != p->d)
		return gk_fail(err, GK_ERR_DATA, "points have %d features, the model %d", p->d, prep->d);
	if ((st = begin_prepare(store, err)) != GK_OK)
		return st;
	gk_store_take_prep(store, prep);
	if ((st = choose_weight_grid(store, err)) != GK_OK)
		return st;
	if ((st = store->sink->prepare(store, p, true, NULL, NULL, err)) != GK_OK)
		return st;
	return finish_prepare(store, NULL, 0);
}

GkStatus
gk_store_prepare_like(GkStore *store, const GkStore *like, GkError *err)
{
	GkPoints   *pts = &store->pts;
	GkPrep	   *p = &pts->prep;
	GkMoments  *moments;
	gk_int128	mass = 0;
	GkStatus	st;

	if ((st = begin_prepare(store, err)) != GK_OK)
		return st;
	moments = gk_alloc(store->host, p->d, sizeof(GkMoments));
	if (moments == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	/* values on the grid, and weights on theirs, are rounded to themselves */
	p->distance = like->pts.prep.distance == GK_PARTIAL ? GK_PARTIAL : GK_EUCLIDEAN;
	for (int j = 0; j < p->d; j++)
	{
		p->center[j] = 0.0;
		p->scale[j] = 1.0;
		p->expo[j] = like->pts.prep.expo[j];
	}
	st = store->sink->prepare(store, p, true, moments, &mass, err);
	if (st == GK_OK)
	{
		gk_store_take_prep(store, &like->pts.prep);
		pts->weight_exp = like->pts.weight_exp;
		st = finish_prepare(store, moments, mass);
		pts->mean_var = like->pts.mean_var;
		pts->d2_expo = like->pts.d2_expo;
	}
	gk_free(store->host, moments);
	return st;
}
