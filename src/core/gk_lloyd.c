/*
 * gk_lloyd.c - Lloyd's algorithm: seed, assign, update, repair, converged?
 *
 * S. Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 28(2),
 * 1982.  One backend pass per iteration gives exact sums; the update, the
 * stopping rule and everything that decides is done here, once for all
 * backends.
 */
#include <math.h>
#include <string.h>

#include "core/gk_engine.h"
#include "core/gk_numerics.h"
#include "core/gk_update.h"

static GkStatus
grow_history(GkEngine *e, GkRun *r, GkError *err)
{
	int			room = r->room ? r->room * 2 : 64;
	double	   *inertia = gk_alloc(e->host, room, sizeof(double));
	double	   *shift = gk_alloc(e->host, room, sizeof(double));

	if (!inertia || !shift)
	{
		gk_free(e->host, inertia);
		gk_free(e->host, shift);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	if (r->room > 0)
	{
		memcpy(inertia, r->history_inertia, r->room * sizeof(double));
		memcpy(shift, r->history_shift, r->room * sizeof(double));
	}
	gk_free(e->host, r->history_inertia);
	gk_free(e->host, r->history_shift);
	r->history_inertia = inertia;
	r->history_shift = shift;
	r->room = room;
	return GK_OK;
}

/*
 * What a cluster's sums S and mass W of a feature take off the inertia, which is
 * sum |x|^2 - sum of c (2 S - W c) over clusters and features.  No pass over the
 * points; good to about 1e-12 of the total variance, which is what a progress figure
 * and a history need.  The model's inertia is exact (gk_finish).
 */
static inline double
explained(double c, double sum, double mass)
{
	return c * (2.0 * sum - mass * c);
}

/* All features of cluster i. */
static double
explained_by(const GkEngine *e, int i)
{
	const GkPrep *p = &e->pts->prep;
	double		more = e->pts->weighted ? 0x1p-40 : 1.0;
	double		w = gk_i128_to_double(e->step.mass[i]) * more;
	double		total = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		size_t		at = (size_t) i * p->d + j;

		total += explained(e->f[at], gk_i128_to_double(e->step.sum[at]) * more *
						   gk_pow2(p->expo[j] - GK_GRID_BITS), w);
	}
	return total;
}

/*
 * explained_by() and gk_update_cluster() in one: the compiler makes doubles of the sums
 * once, which thousands of small clusterings feel.
 */
static double
update_mean(GkEngine *e, int i, double *total)
{
	const GkPrep *p = &e->pts->prep;
	const gk_int128 *sum = e->step.sum + (size_t) i * p->d;
	double	   *c = e->c + (size_t) i * p->d;
	float	   *f = e->f + (size_t) i * p->d;
	double		more = e->pts->weighted ? 0x1p-40 : 1.0;
	double		mass = gk_i128_to_double(e->step.mass[i]) * more;
	double		off = 0.0;
	double		shift = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		double		was = f[j];
		double		t;

		off += explained(was, gk_i128_to_double(sum[j]) * more * gk_pow2(p->expo[j] - GK_GRID_BITS), mass);
		c[j] = gk_mean(sum[j], e->step.mass[i], p->expo[j], p->center[j], p->scale[j]);
		f[j] = gk_centroid_to_float(c[j], p->center[j], p->scale[j]);
		t = (double) f[j] - was;
		shift += t * t;
	}
	*total = off;
	return shift;
}

/* Spherical update: the mean's direction; a zero mean keeps the old centroid. */
static double
update_direction(GkEngine *e, int i)
{
	const GkPrep *p = &e->pts->prep;
	double	   *c = e->c + (size_t) i * p->d;
	float	   *f = e->f + (size_t) i * p->d;
	const gk_int128 *sum = e->step.sum + (size_t) i * p->d;
	double		length = 0.0;
	double		shift = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		double		m = gk_mean(sum[j], e->step.mass[i], p->expo[j], 0.0, p->scale[j]);

		length += m * m;
	}
	length = sqrt(length);
	if (length == 0.0)
		return 0.0;
	for (int j = 0; j < p->d; j++)
	{
		float		was = f[j];
		double		t;

		c[j] = gk_mean(sum[j], e->step.mass[i], p->expo[j], 0.0, p->scale[j]) / length;
		f[j] = gk_centroid_to_float(c[j], 0.0, p->scale[j]);
		t = (double) f[j] - (double) was;
		shift += t * t;
	}
	return shift;
}

/* Coordinates that one job updates: some hundred microseconds. */
#define UPDATE_WORK		8192

static void
update_clusters(void *arg, int64_t job, int thread)
{
	GkEngine   *e = arg;
	const GkPrep *p = &e->pts->prep;
	int			per_job = UPDATE_WORK / p->d + 1;
	int			end = (int) (job + 1) * per_job < e->k ? (int) (job + 1) * per_job : e->k;

	(void) thread;
	for (int i = (int) job * per_job; i < end; i++)
	{
		e->explained[i] = e->moved[i] = 0.0;
		if (e->step.count[i] == 0)
			continue;
		if (p->distance == GK_COSINE)
		{
			e->explained[i] = explained_by(e, i);
			e->moved[i] = update_direction(e, i);
		}
		else
			e->moved[i] = update_mean(e, i, &e->explained[i]);
	}
}

/*
 * New centroids of all non-empty clusters; *shift is the squared movement,
 * *inertia that of the centroids before.  Both are added up in the clusters'
 * order, whoever computed the parts.
 */
static GkStatus
update(GkEngine *e, double *shift, double *inertia)
{
	int			per_job = UPDATE_WORK / e->pts->d + 1;

	if (!gk_parallel_for(e->host, (e->k + per_job - 1) / per_job, update_clusters, e))
		return GK_STOPPED;
	*shift = 0.0;
	*inertia = e->pts->sum_sq;
	for (int i = 0; i < e->k; i++)
	{
		*shift += e->moved[i];
		*inertia -= e->explained[i];
	}
	if (*inertia < 0.0)
		*inertia = 0.0;
	return GK_OK;
}

double
gk_engine_inertia(const GkEngine *e, double v)
{
	return gk_ldexp(gk_inertia_from_d2(&e->pts->prep, v), e->pts->weight_exp);
}

GkStatus
gk_lloyd(GkEngine *e, int run, double tol, GkRun *r, GkError *err)
{
	const GkOptions *opt = e->opt;

	for (int it = 0; it < opt->max_iter && !r->converged; it++)
	{
		bool		empty = false;
		int			repaired = 0;
		double		shift;
		GkStatus	st = e->backend->step(e->session, e->f, e->k, &e->step, err);

		if (st == GK_OK && it == r->room)
			st = grow_history(e, r, err);
		if (st != GK_OK)
			return st;
		for (int i = 0; i < e->k; i++)
			empty |= e->step.count[i] == 0;
		if (empty && (st = gk_repair(e, e->step.count, &repaired, err)) != GK_OK)
			return st;
		if ((st = update(e, &shift, &r->history_inertia[it])) != GK_OK)
			return st;
		r->history_shift[it] = shift;
		r->iterations = it + 1;

		/*
		 * The rule of scikit-learn and Spark; no shift at all means the same
		 * centroids and labels for ever.  A repaired cluster has not been
		 * assigned any points yet.
		 */
		r->converged = repaired == 0 && shift <= tol;
		if (e->host->progress)
		{
			GkProgress	p = {.phase = "iterate",.run = run + 1,.iteration = it + 1,.max_iter = opt->max_iter,
				.rows = e->pts->n,.inertia = gk_engine_inertia(e, r->history_inertia[it]),
			.shift = gk_inertia_from_d2(&e->pts->prep, shift)};

			e->host->progress(e->host->ctx, &p);
		}
		if (e->host->poll && e->host->poll(e->host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}
