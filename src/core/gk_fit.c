/*
 * gk_fit.c - the engine's two entry points: cluster a store, label a store.
 *
 * Here are restarts, the model, and the CPU going on where a device fails.
 */
#include <string.h>

#include "core/gk_engine.h"
#include "core/store/gk_store.h"

/* ---- the model ---- */

/* Keep this run: copy everything that the engine will overwrite. */
static GkStatus
keep_run(GkEngine *e, const GkRun *r, GkModel *m, GkError *err)
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
		m->cluster_inertia[i] = gk_engine_inertia(e->pts, gk_i128_to_double(e->fin.inertia[i]) *
												  gk_pow2(e->pts->d2_expo - 80));
		m->radius[i] = gk_distance_from_d2(&e->pts->prep, e->fin.max_d2[i]);
	}
	for (int i = 0; i < iters; i++)
	{
		m->history_inertia[i] = gk_engine_inertia(e->pts, r->history_inertia[i]);
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

/*
 * All in one block, what needs the largest alignment first: an allocation costs time where
 * thousands of small groups are clustered.
 */
GkStatus
gk_engine_alloc(GkEngine *e, GkError *err)
{
	size_t		k = e->opt->k;
	size_t		kd = k * e->pts->d;
	size_t		per_value = sizeof(gk_int128) + sizeof(double) + sizeof(float);
	size_t		per_cluster = 2 * sizeof(gk_int128) + 2 * sizeof(int64_t) + 2 * sizeof(double) + sizeof(float) + sizeof(int);

	e->memory = gk_alloc(e->host, kd * per_value + k * per_cluster, 1);
	if (e->memory == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for %zu centroids of %d features", k, e->pts->d);
	e->step.sum = e->memory;
	e->step.mass = e->step.sum + kd;
	e->fin.inertia = e->step.mass + k;
	e->step.count = (int64_t *) (e->fin.inertia + k);
	e->fin.count = e->step.count + k;
	e->c = (double *) (e->fin.count + k);
	e->moved = e->c + kd;
	e->explained = e->moved + k;
	e->f = (float *) (e->explained + k);
	e->fin.max_d2 = e->f + kd;
	e->empty = (int *) (e->fin.max_d2 + k);
	memset(e->c, 0, kd * sizeof(double));
	memset(e->f, 0, kd * sizeof(float));
	return GK_OK;
}

static bool
given(const GkOptions *opt)
{
	return opt->init == GK_INIT_CENTROIDS || opt->init == GK_INIT_WARM_START;
}

static int
runs(const GkOptions *opt)
{
	return given(opt) ? 1 : opt->n_init;
}

/*
 * Make all restarts; the model keeps the one of lowest (exact) inertia, ties to the first.
 * sink takes the labels of each run; NULL: not wanted.
 */
static GkStatus
run_all(GkEngine *e, const GkLabelSink *sink, GkModel *model, GkError *err)
{
	const GkOptions *opt = e->opt;
	double		tol = opt->tol * e->pts->mean_var;
	gk_int128	best = 0;
	GkStatus	st = GK_OK;
	GkRun		r = {0};

	for (int run = 0; st == GK_OK && run < runs(opt); run++)
	{
		double		start = gk_now_ms();
		double		seeded;
		gk_int128	inertia;

		r.iterations = 0;
		r.converged = false;
		st = gk_seed(e, run, err);
		seeded = gk_now_ms();
		model->seed_ms += seeded - start;
		if (st == GK_OK)
			st = gk_lloyd(e, run, tol, &r, err);
		if (st == GK_OK)
			st = gk_finish(e, given(opt), sink, &inertia, err);
		model->iterate_ms += gk_now_ms() - seeded;
		if (st == GK_OK && (run == 0 || inertia < best))
		{
			best = inertia;
			st = keep_run(e, &r, model, err);
		}
	}
	if (st == GK_OK)
		model->inertia = gk_engine_inertia(e->pts, gk_i128_to_double(best) * gk_pow2(e->pts->d2_expo - 80));
	gk_free(e->host, r.history_inertia);
	gk_free(e->host, r.history_shift);
	return st;
}

static GkStatus
open_session(GkEngine *e, int k, int max_iter, double tol, const GkOptions *opt, GkError *err)
{
	GkProblem	problem = gk_problem(e->store, k, max_iter);

	if (e->store->reader != NULL && e->backend != e->store->reader)
		return gk_fail(err, GK_ERR_INTERNAL, "backend \"%s\" cannot read these points", e->backend->name);
	problem.tol = tol;
	problem.ingesting = gk_ingest_take(e->store);
	if (opt != NULL)
	{
		problem.strategy = opt->strategy;
		problem.feature_sum = opt->feature_sum;
		problem.mass_sum = opt->mass_sum;
	}
	return e->backend->open(&problem, &e->session, err);
}

/* ---- on a device, or else on the CPU ---- */

/*
 * Labels that went up before a device failed are not sent again: the CPU's are
 * the same, in the same order.
 */
typedef struct Resume
{
	GkLabelSink sink;
	const GkLabelSink *to;
	int			naux;
	int64_t		sent;
	int64_t		seen;			/* by the attempt at hand */
} Resume;

static bool
resume_emit(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Resume	   *r = ctx;
	const uint32_t *rest[GK_MAX_AUX];
	int64_t		skip = r->sent - r->seen;

	r->seen += rows;
	if (skip >= rows)
		return true;
	if (skip < 0)
		skip = 0;
	for (int a = 0; a < r->naux; a++)
		rest[a] = aux[a] + skip;
	r->sent += rows - skip;
	return r->to->emit(r->to->ctx, rows - (int) skip, label + skip, d2 + skip, rest);
}

static GkStatus
fit_on(const GkBackend *backend, GkStore *store, const GkOptions *options,
	   const GkLabelSink *sink, GkModel *model, GkError *err)
{
	const GkPoints *pts = gk_store_points(store);
	GkEngine	e = {.backend = backend,.store = store,.pts = pts,.opt = options};
	const GkLabelSink *each = sink != NULL && sink->again != NULL && runs(options) == 1 ? sink : NULL;
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
	model->weights = (GkWeightGrid) {pts->weighted, pts->weight_exp};
	st = copy_prep(e.host, &pts->prep, &model->prep, err);
	if (st == GK_OK && pts->n > 0)
	{
		st = gk_engine_alloc(&e, err);
		if (st == GK_OK)
			st = open_session(&e, options->k, options->max_iter, options->tol * pts->mean_var, options, err);
		if (st == GK_OK)
			st = run_all(&e, each, model, err);
		if (st == GK_OK && sink != NULL && each == NULL)
		{
			if (sink->again != NULL)
				sink->again(sink->ctx);
			gk_model_prepare(&pts->prep, model->centroids, model->k, e.f);
			st = backend->finish(e.session, e.f, model->k, NULL, sink, err);
		}
		if (st == GK_OK)
			st = gk_model_check_range(model, err);
		if (st == GK_OK)
			backend->describe(e.session, model->device, sizeof(model->device),
							  model->strategy, sizeof(model->strategy));
		if (st == GK_OK && backend->times != NULL)
			backend->times(e.session, &model->context_ms, &model->upload_ms);
		backend->close(e.session);
		gk_free(e.host, e.memory);
	}
	if (st != GK_OK)
		gk_model_free(e.host, model);
	return st;
}

static GkStatus
label_on(const GkBackend *backend, GkStore *store, const GkModel *model,
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
	if (st == GK_OK && sink->again != NULL)
		sink->again(sink->ctx);
	if (st == GK_OK)
		st = backend->finish(e.session, f, model->k, NULL, sink, err);
	backend->close(e.session);
	gk_free(e.host, f);
	return st;
}

static const GkLabelSink *
resume_sink(Resume *r, const GkLabelSink *to, GkStore *store)
{
	if (to != NULL && to->again != NULL)
		return to;
	r->sink = (GkLabelSink) {r, resume_emit, NULL};
	r->to = to;
	r->naux = gk_store_points(store)->naux;
	r->seen = 0;
	return to != NULL ? &r->sink : NULL;
}

GkStatus
gk_fit(GkStore *store, const GkBackend *backend, const GkOptions *options,
	   const GkLabelSink *sink, GkModel *model, GkError *err)
{
	Resume		r = {.sent = 0};
	GkStatus	st;

	memset(model, 0, sizeof(*model));
	/* the CPU cannot go on with points that it cannot read */
	if (store->reader != NULL)
		return fit_on(backend, store, options, sink, model, err);
	st = fit_on(backend, store, options, resume_sink(&r, sink, store), model, err);
	if (gk_go_on_with_cpu(gk_store_host(store), backend, st, err))
		st = fit_on(&gk_cpu_backend, store, options, resume_sink(&r, sink, store), model, err);
	return st;
}

GkStatus
gk_label(GkStore *store, const GkBackend *backend, const GkModel *model,
		 const GkLabelSink *sink, GkError *err)
{
	Resume		r = {.sent = 0};
	GkStatus	st;

	if (store->reader != NULL)
		return label_on(backend, store, model, sink, err);
	st = label_on(backend, store, model, resume_sink(&r, sink, store), err);
	if (gk_go_on_with_cpu(gk_store_host(store), backend, st, err))
		st = label_on(&gk_cpu_backend, store, model, resume_sink(&r, sink, store), err);
	return st;
}
