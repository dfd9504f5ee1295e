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
#include "core/gk_update.h"

/* One restart. */
typedef struct Run
{
	int			iterations;
	bool		converged;
	int			room;			/* of the history, grown as needed */
	double	   *history_inertia;	/* prepared units */
	double	   *history_shift;
} Run;

static GkStatus
grow_history(GkEngine *e, Run *r, GkError *err)
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
 * Inertia of the assignment whose sums are in e->step, from those sums:
 * sum |x|^2 - sum over clusters of c (2 S - W c).  No pass over the points;
 * good to about 1e-12 of the total variance, which is what a progress figure
 * and a history need.  The model's inertia is exact (gk_finish).
 */
static double
inertia_from_sums(const GkEngine *e)
{
	const GkPrep *p = &e->pts->prep;
	double		more = e->pts->weighted ? 0x1p-40 : 1.0;
	double		total = e->pts->sum_sq;

	for (int i = 0; i < e->k; i++)
	{
		double		w = gk_i128_to_double(e->step.mass[i]) * more;

		for (int j = 0; j < p->d; j++)
		{
			double		c = e->f[(size_t) i * p->d + j];
			double		s = gk_i128_to_double(e->step.sum[(size_t) i * p->d + j]) * more *
				gk_pow2(p->expo[j] - GK_GRID_BITS);

			total -= c * (2.0 * s - w * c);
		}
	}
	return total > 0.0 ? total : 0.0;
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

/* New centroids of all non-empty clusters; returns the squared movement. */
static double
update(GkEngine *e, bool *same)
{
	const GkPrep *p = &e->pts->prep;
	double		shift = 0.0;

	*same = true;
	for (int i = 0; i < e->k; i++)
	{
		size_t		at = (size_t) i * p->d;
		double		moved;

		if (e->step.count[i] == 0)
			continue;
		moved = p->distance == GK_COSINE
			? update_direction(e, i)
			: gk_update_cluster(e->step.sum + at, e->step.mass[i], p->d, p->expo, p->center, p->scale,
								e->f + at, e->c + at, e->f + at);
		if (moved != 0.0)
			*same = false;
		shift += moved;
	}
	return shift;
}

/* What a squared prepared length is in original units. */
static double
original_sq(const GkEngine *e, double v)
{
	return ldexp(gk_inertia_from_d2(&e->pts->prep, v), e->pts->weight_exp);
}

static GkStatus
lloyd(GkEngine *e, int run, double tol, Run *r, GkError *err)
{
	const GkOptions *opt = e->opt;

	for (int it = 0; it < opt->max_iter && !r->converged; it++)
	{
		bool		empty = false;
		bool		same;
		int			repaired = 0;
		double		shift;
		GkStatus	st = e->backend->step(e->session, e->f, e->k, &e->step, err);

		if (st == GK_OK && it == r->room)
			st = grow_history(e, r, err);
		if (st != GK_OK)
			return st;
		r->history_inertia[it] = inertia_from_sums(e);
		for (int i = 0; i < e->k; i++)
			empty |= e->step.count[i] == 0;
		if (empty && (st = gk_repair(e, e->step.count, &repaired, err)) != GK_OK)
			return st;
		shift = update(e, &same);
		r->history_shift[it] = shift;
		r->iterations = it + 1;

		/*
		 * The same centroids give the same labels for ever; else the rule of
		 * scikit-learn and Spark.  A repaired cluster has not been assigned
		 * any points yet.
		 */
		r->converged = repaired == 0 && (same || shift <= tol);
		if (e->host->progress)
		{
			GkProgress	p = {.phase = "iterate",.run = run + 1,.iteration = it + 1,.max_iter = opt->max_iter,
				.rows = e->pts->n,.inertia = original_sq(e, r->history_inertia[it]),
			.shift = gk_inertia_from_d2(&e->pts->prep, shift)};

			e->host->progress(e->host->ctx, &p);
		}
		if (e->host->poll && e->host->poll(e->host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}

/* ---- the model ---- */

/* Keep this run: copy everything that the engine will overwrite. */
static GkStatus
keep_run(GkEngine *e, const Run *r, GkModel *m, GkError *err)
{
	const GkHost *host = e->host;
	int			d = e->pts->d;
	int			iters = r->iterations;

	gk_free(host, m->centroids);
	gk_free(host, m->size);
	gk_free(host, m->cluster_inertia);
	gk_free(host, m->radius);
	gk_free(host, m->history_inertia);
	gk_free(host, m->history_shift);
	m->centroids = gk_alloc(host, (size_t) e->k * d, sizeof(double));
	m->size = gk_alloc(host, e->k, sizeof(int64_t));
	m->cluster_inertia = gk_alloc(host, e->k, sizeof(double));
	m->radius = gk_alloc(host, e->k, sizeof(double));
	m->history_inertia = gk_alloc(host, iters, sizeof(double));
	m->history_shift = gk_alloc(host, iters, sizeof(double));
	if (!m->centroids || !m->size || !m->cluster_inertia || !m->radius ||
		!m->history_inertia || !m->history_shift)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");

	m->k = e->k;
	m->iterations = m->history_len = iters;
	m->converged = r->converged;
	memcpy(m->centroids, e->c, (size_t) e->k * d * sizeof(double));
	memcpy(m->size, e->fin.count, e->k * sizeof(int64_t));
	for (int i = 0; i < e->k; i++)
	{
		m->cluster_inertia[i] = original_sq(e, gk_i128_to_double(e->fin.inertia[i]) *
											gk_pow2(e->pts->d2_expo - 80));
		m->radius[i] = gk_distance_from_d2(&e->pts->prep, e->fin.max_d2[i]);
	}
	for (int i = 0; i < iters; i++)
	{
		m->history_inertia[i] = original_sq(e, r->history_inertia[i]);
		m->history_shift[i] = gk_inertia_from_d2(&e->pts->prep, r->history_shift[i]);
	}
	return GK_OK;
}

static GkStatus
copy_prep(const GkHost *host, const GkPrep *from, GkPrep *to, GkError *err)
{
	*to = *from;
	to->center = gk_alloc(host, from->d, sizeof(double));
	to->scale = gk_alloc(host, from->d, sizeof(double));
	to->expo = gk_alloc(host, from->d, sizeof(int32_t));
	if (!to->center || !to->scale || !to->expo)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	memcpy(to->center, from->center, from->d * sizeof(double));
	memcpy(to->scale, from->scale, from->d * sizeof(double));
	memcpy(to->expo, from->expo, from->d * sizeof(int32_t));
	return GK_OK;
}

static void
engine_free(GkEngine *e)
{
	gk_free(e->host, e->c);
	gk_free(e->host, e->f);
	gk_free(e->host, e->step.sum);
	gk_free(e->host, e->step.mass);
	gk_free(e->host, e->step.count);
	gk_free(e->host, e->fin.count);
	gk_free(e->host, e->fin.inertia);
	gk_free(e->host, e->fin.max_d2);
	gk_free(e->host, e->empty);
}

static GkStatus
engine_alloc(GkEngine *e, GkError *err)
{
	size_t		k = e->opt->k;
	size_t		kd = k * e->pts->d;

	e->c = gk_alloc0(e->host, kd, sizeof(double));
	e->f = gk_alloc0(e->host, kd, sizeof(float));
	e->step.sum = gk_alloc(e->host, kd, sizeof(gk_int128));
	e->step.mass = gk_alloc(e->host, k, sizeof(gk_int128));
	e->step.count = gk_alloc(e->host, k, sizeof(int64_t));
	e->fin.count = gk_alloc(e->host, k, sizeof(int64_t));
	e->fin.inertia = gk_alloc(e->host, k, sizeof(gk_int128));
	e->fin.max_d2 = gk_alloc(e->host, k, sizeof(float));
	e->empty = gk_alloc(e->host, k, sizeof(int));
	if (!e->c || !e->f || !e->step.sum || !e->step.mass || !e->step.count || !e->fin.count ||
		!e->fin.inertia || !e->fin.max_d2 || !e->empty)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for %zu centroids of %d features", k, e->pts->d);
	return GK_OK;
}

/* All restarts; the model keeps the one of lowest (exact) inertia, ties to the first. */
static GkStatus
run_all(GkEngine *e, GkModel *model, GkError *err)
{
	const GkOptions *opt = e->opt;
	bool		given = opt->init == GK_INIT_CENTROIDS || opt->init == GK_INIT_WARM_START;
	double		tol = opt->tol * e->pts->mean_var;
	gk_int128	best = 0;
	GkStatus	st = GK_OK;
	Run			r = {0};

	for (int run = 0; st == GK_OK && run < (given ? 1 : opt->n_init); run++)
	{
		double		t0 = gk_now_ms();
		gk_int128	inertia;

		r.iterations = 0;
		r.converged = false;
		st = gk_seed(e, run, err);
		model->seed_ms += gk_now_ms() - t0;
		t0 = gk_now_ms();
		if (st == GK_OK)
			st = lloyd(e, run, tol, &r, err);
		if (st == GK_OK)
			st = gk_finish(e, given, &inertia, err);
		model->iterate_ms += gk_now_ms() - t0;
		if (st == GK_OK && (run == 0 || inertia < best))
		{
			best = inertia;
			st = keep_run(e, &r, model, err);
		}
	}
	if (st == GK_OK)
		model->inertia = original_sq(e, gk_i128_to_double(best) * gk_pow2(e->pts->d2_expo - 80));
	gk_free(e->host, r.history_inertia);
	gk_free(e->host, r.history_shift);
	return st;
}

static GkStatus
open_session(GkEngine *e, int k, int max_iter, double tol, const GkOptions *opt, GkError *err)
{
	GkProblem	problem = {.host = e->host,.core = &gk_core,.store = e->store,.k_max = k,
	.max_iter = max_iter,.tol = tol};

	if (opt != NULL)
	{
		problem.strategy = opt->strategy;
		problem.feature_sum = opt->feature_sum;
		problem.mass_sum = opt->mass_sum;
	}
	return e->backend->open(&problem, &e->session, err);
}

GkStatus
gk_fit(GkStore *store, const GkBackend *backend, const GkOptions *options,
	   const GkLabelSink *sink, GkModel *model, GkError *err)
{
	const GkPoints *pts = gk_store_points(store);
	GkEngine	e = {.backend = backend,.store = store,.pts = pts,.opt = options};
	GkStatus	st;

	e.host = gk_store_host(store);
	memset(model, 0, sizeof(*model));
	if (options->k < 1 || options->k > GK_MAX_K)
		return gk_fail(err, GK_ERR_LIMIT, "k = %d is not between 1 and %d", options->k, GK_MAX_K);
	if (options->max_iter < 1 || options->n_init < 1 || !(options->tol >= 0))
		return gk_fail(err, GK_ERR_OPTION, "max_iter and n_init must be at least 1, tol at least 0");
	model->k_asked = options->k;
	model->init = options->init;
	model->seed = options->seed;
	model->rows_used = pts->n;
	st = copy_prep(e.host, &pts->prep, &model->prep, err);
	if (st == GK_OK && pts->n > 0)
	{
		st = engine_alloc(&e, err);
		if (st == GK_OK)
			st = open_session(&e, options->k, options->max_iter, options->tol * pts->mean_var, options, err);
		if (st == GK_OK)
			st = run_all(&e, model, err);
		if (st == GK_OK && sink != NULL)
		{
			gk_model_prepare(&pts->prep, model->centroids, model->k, e.f);
			st = backend->finish(e.session, e.f, model->k, NULL, sink, err);
		}
		if (st == GK_OK)
			backend->describe(e.session, model->device, sizeof(model->device),
							  model->strategy, sizeof(model->strategy));
		backend->close(e.session);
		engine_free(&e);
	}
	if (st != GK_OK)
		gk_model_free(e.host, model);
	return st;
}

GkStatus
gk_label(GkStore *store, const GkBackend *backend, const GkModel *model,
		 const GkLabelSink *sink, GkError *err)
{
	GkEngine	e = {.backend = backend,.store = store,.pts = gk_store_points(store)};
	float	   *f;
	GkStatus	st;

	e.host = gk_store_host(store);
	if (e.pts->n == 0)
		return GK_OK;
	f = gk_alloc(e.host, (size_t) model->k * model->prep.d, sizeof(float));
	if (f == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	gk_model_prepare(&e.pts->prep, model->centroids, model->k, f);
	st = open_session(&e, model->k, 1, 0.0, NULL, err);
	if (st == GK_OK)
		st = backend->finish(e.session, f, model->k, NULL, sink, err);
	backend->close(e.session);
	gk_free(e.host, f);
	return st;
}
