/*
 * gk_lloyd.c - Lloyd's algorithm: seed, assign, update, repair, converged?
 *
 * S. Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 28(2), 1982.  One backend pass per
 * iteration gives exact sums; the update, the stopping rule and everything that decides is done here, once
 * for all backends.
 *
 * This loop, gk_seed.c, gk_repair.c and gk_finish.c have a twin: gpu/gk_gpu_block_lloyd.h, which clusters a
 * small group within one block of GPU threads.  A change here is a change there: test/unit/test_group_batch.c
 * compares the two bit for bit, the twin compiled for the CPU, and test/gpu/test_groups.c does so on a GPU.
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

/* The length of the mean of cluster i, original units.  Under cosine a centroid is the mean's direction. */
static double
mean_length(const GkEngine *e, int i, double mass)
{
	const GkPrep *p = &e->pts->prep;
	const gk_int128 *sum = e->step.sum + (size_t) i * p->d;
	double		square = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		double		m = gk_mean(gk_i128_to_double(sum[j]) / mass, gk_feature_prep(p->center, p->scale, p->expo, j));

		square += m * m;
	}
	return sqrt(square);
}

/*
 * Move cluster i to its mean, or under cosine to the mean's direction, where it has one.  Returns the squared
 * movement.
 *
 * *explained is what the cluster takes off the inertia, which is sum |x|^2 - sum of c (2 S - W c) over
 * clusters and features, with sums S and masses W.  That needs no pass over the points and is good to
 * about 1e-12 of the total variance: enough for a progress figure and a history.  The model's inertia
 * is exact (gk_finish).  One loop does both, so that each sum becomes a double once: thousands of
 * small clusterings feel it.
 */
static double
update_cluster(GkEngine *e, int i, double *explained)
{
	const GkPrep *p = &e->pts->prep;
	const gk_int128 *sum = e->step.sum + (size_t) i * p->d;
	double	   *c = e->c + (size_t) i * p->d;
	float	   *f = e->f + (size_t) i * p->d;
	bool		cosine = p->distance == GK_COSINE;
	double		unit = e->pts->weighted ? 0x1p-40 : 1.0;
	double		mass = gk_i128_to_double(e->step.mass[i]);
	double		length = cosine ? mean_length(e, i, mass) : 1.0;
	double		total = 0.0;
	double		shift = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		GkFeaturePrep prep = gk_feature_prep(p->center, p->scale, p->expo, j);
		double		s = gk_i128_to_double(sum[j]);
		double		old = f[j];

		total += old * (2.0 * (s * unit * gk_pow2(prep.expo - GK_GRID_BITS)) - mass * unit * old);
		if (!cosine)
			shift += gk_update_feature(s / mass, prep, f[j], &c[j], &f[j]);
		else if (length != 0.0)
		{
			c[j] = gk_mean(s / mass, prep) / length;
			shift += gk_move_feature(c[j], prep, f[j], &f[j]);
		}
	}
	*explained = total;
	return shift;
}

/* The same under GK_PARTIAL.  A feature that no point of the cluster has stays where it is. */
static double
update_partial(GkEngine *e, int i)
{
	const GkPrep *p = &e->pts->prep;
	double		shift = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		size_t		at = (size_t) i * p->d + j;
		double		mass = gk_i128_to_double(e->step.feature_mass[at]);

		if (mass > 0.0)
			shift += gk_update_feature(gk_i128_to_double(e->step.sum[at]) / mass,
									   gk_feature_prep(p->center, p->scale, p->expo, j), e->f[at], &e->c[at], &e->f[at]);
	}
	return shift;
}

/* Coordinates that one job updates: some hundred microseconds. */
#define UPDATE_WORK		8192

static void
update_clusters(void *arg, int64_t job, int thread)
{
	GkEngine   *e = arg;
	int			per_job = UPDATE_WORK / e->pts->d + 1;
	int			end = (int) (job + 1) * per_job < e->k ? (int) (job + 1) * per_job : e->k;

	(void) thread;
	for (int i = (int) job * per_job; i < end; i++)
	{
		e->explained[i] = e->moved[i] = 0.0;
		if (e->step.count[i] == 0)
			continue;
		e->moved[i] = e->pts->prep.distance == GK_PARTIAL ? update_partial(e, i) : update_cluster(e, i, &e->explained[i]);
	}
}

/*
 * New centroids of all non-empty clusters; *shift is the squared movement, *inertia that of the centroids
 * before.  Both are added up in the clusters' order, whichever threads computed the parts.
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
	if (e->pts->prep.distance == GK_MANHATTAN || e->pts->prep.distance == GK_PARTIAL)
		*inertia = gk_i128_to_double(e->step.cost) * gk_pow2(e->pts->d2_expo - 80);
	if (*inertia < 0.0)
		*inertia = 0.0;
	return GK_OK;
}

/* inertia: < 0 before the first iteration has ended. */
static void
report(const GkEngine *e, int run, int iteration, double inertia, double shift)
{
	GkProgress	p = {.phase = "iterate",.run = run + 1,.iteration = iteration,.max_iter = e->opt->max_iter,
		.rows = e->pts->n,.inertia = inertia < 0.0 ? inertia : gk_engine_inertia(e->pts, inertia),
	.shift = gk_shift_from_d2(&e->pts->prep, shift)};

	if (e->host->progress)
		e->host->progress(e->host->ctx, &p);
}

GkStatus
gk_lloyd(GkEngine *e, int run, double tol, GkRun *r, GkError *err)
{
	const GkOptions *opt = e->opt;

	/* an iteration of very many clusters takes minutes */
	report(e, run, 0, -1.0, 0.0);
	e->step.follows = false;
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
		e->step.follows = !empty;
		r->history_shift[it] = shift;
		r->iterations = it + 1;

		/*
		 * The rule of scikit-learn and Spark.  Without any shift all further iterations would be the same.  A
		 * repaired cluster has not been assigned any points yet.
		 */
		r->converged = repaired == 0 && shift <= tol;
		report(e, run, it + 1, r->history_inertia[it], shift);
		if (e->host->poll && e->host->poll(e->host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}
