/*
 * gk_fit.c - the engine's two entry points: cluster a store, label a store.
 *
 * Here are restarts, the model, samples, loops over all clusters, and the CPU going on where a device fails.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/gk_engine.h"
#include "core/store/gk_store.h"

/* ---- clusters ---- */

/* Values in one job. */
#define JOB_VALUES		65536

typedef struct Clusters
{
	int			k;
	int			per_job;
	GkClustersFn fn;
	void	   *arg;
} Clusters;

static void
some_clusters(void *arg, int64_t job, int thread)
{
	const Clusters *c = arg;
	int			from = (int) job * c->per_job;

	(void) thread;
	c->fn(c->arg, from, c->k - from < c->per_job ? c->k : from + c->per_job);
}

bool
gk_engine_clusters(const GkEngine *e, int k, GkClustersFn fn, void *arg)
{
	Clusters	c = {k, JOB_VALUES / e->pts->d + 1, fn, arg};

	return gk_parallel_for(e->host, (k + c.per_job - 1) / c.per_job, some_clusters, &c);
}

typedef struct Copy
{
	const GkPrep *prep;
	const double *from;
	double	   *c;
	float	   *f;
} Copy;

static void
copy(void *arg, int from, int end)
{
	const Copy *p = arg;
	size_t		at = (size_t) from * p->prep->d;

	if (p->c != NULL)
		memcpy(p->c + at, p->from + at, (size_t) (end - from) * p->prep->d * sizeof(double));
	if (p->f != NULL)
		gk_model_prepare(p->prep, p->from + at, end - from, p->f + at);
}

bool
gk_engine_copy(const GkEngine *e, const double *centroids, int k, double *c, float *f)
{
	return gk_engine_clusters(e, k, copy, &(Copy) {&e->pts->prep, centroids, c, f});
}

/* ---- given centroids ---- */

/* Squared distances, in float32, are below 2^this. */
#define FAR_EXPO		127
/* What a history may lose of its digits for given centroids far from the data. */
#define HISTORY_EXPO	40

typedef struct Bound
{
	const GkStore *store;
	const double *centroids;
	int			expo;
} Bound;

static void
bound(void *arg, int from, int end)
{
	Bound	   *b = arg;

	for (int c = from; c < end; c++)
	{
		int			expo = gk_store_bound_given(b->store, b->centroids + (size_t) c * b->store->pts.d);
		int			old = __atomic_load_n(&b->expo, __ATOMIC_RELAXED);

		while (expo < old && !__atomic_compare_exchange_n(&b->expo, &old, expo, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			;
	}
}

/*
 * Sums of distances are cut off at 2^F of the data's box, outside of which given centroids may lie.  Rows are measured
 * by the nearest of them where they stay.  Else they are in the box after one iteration, and their distances are in a
 * history at most, where the update takes no other way to the inertia.  Directions are always in their box.
 */
static GkStatus
reach_given(GkEngine *e, GkError *err)
{
	GkPoints   *pts = &e->store->pts;
	bool		stay = e->opt->max_iter == 0;
	int			most = stay ? FAR_EXPO : pts->d2_expo + HISTORY_EXPO;
	Bound		b = {e->store, e->opt->centroids, INT_MAX};

	if (pts->prep.distance == GK_COSINE || (pts->prep.distance == GK_EUCLIDEAN && !stay))
		return GK_OK;
	if (!gk_engine_clusters(e, e->opt->k, bound, &b))
		return GK_STOPPED;
	if (b.expo > most && stay)
	{
		(void) gk_fail(err, GK_ERR_RANGE, "all given centroids are too far from the rows");
		snprintf(err->hint, sizeof(err->hint), "Give one that is nearer to them, or let max_iter be 1 or more.");
		return GK_ERR_RANGE;
	}
	if (b.expo > pts->d2_expo)
		pts->d2_expo = b.expo < most ? b.expo : most;
	return GK_OK;
}

/* ---- the model ---- */

/* Copy the clusters, which the engine will overwrite. */
static GkStatus
keep_clusters(GkEngine *e, GkModel *m, GkError *err)
{
	const GkHost *host = e->host;
	int			d = e->pts->d;

	gk_free(host, m->centroids);
	gk_free(host, m->size);
	gk_free(host, m->cluster_inertia);
	gk_free(host, m->radius);
	m->centroids = gk_alloc(host, (size_t) e->k * d, sizeof(double));
	m->size = gk_alloc(host, e->k, sizeof(int64_t));
	m->cluster_inertia = gk_alloc(host, e->k, sizeof(double));
	m->radius = gk_alloc(host, e->k, sizeof(double));
	if (!m->centroids || !m->size || !m->cluster_inertia || !m->radius)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");

	m->k = e->k;
	if (!gk_engine_copy(e, e->c, e->k, m->centroids, NULL))
		return GK_STOPPED;
	memcpy(m->size, e->fin.count, e->k * sizeof(int64_t));
	for (int i = 0; i < e->k; i++)
	{
		m->cluster_inertia[i] = gk_engine_inertia(e->pts, gk_i128_to_double(e->fin.inertia[i]) *
												  gk_pow2(e->pts->d2_expo - 80));
		m->radius[i] = gk_distance_from_d2(&e->pts->prep, e->fin.max_d2[i]);
	}
	return GK_OK;
}

/* Keep this run. */
static GkStatus
keep_run(GkEngine *e, const GkRun *r, GkModel *m, GkError *err)
{
	const GkHost *host = e->host;
	int			iters = r->iterations;

	gk_free(host, m->history_inertia);
	gk_free(host, m->history_shift);
	m->history_inertia = gk_alloc(host, iters, sizeof(double));
	m->history_shift = gk_alloc(host, iters, sizeof(double));
	if (!m->history_inertia || !m->history_shift)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	m->iterations = m->history_len = iters;
	m->converged = r->converged;
	for (int i = 0; i < iters; i++)
	{
		m->history_inertia[i] = gk_engine_inertia(e->pts, r->history_inertia[i]);
		m->history_shift[i] = gk_shift_from_d2(&e->pts->prep, r->history_shift[i]);
	}
	return keep_clusters(e, m, err);
}

static void
keep_inertia(const GkEngine *e, gk_int128 inertia, GkModel *m)
{
	m->inertia = gk_engine_inertia(e->pts, gk_i128_to_double(inertia) * gk_pow2(e->pts->d2_expo - 80));
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
	size_t		per_cluster = 2 * sizeof(gk_int128) + 2 * sizeof(int64_t) + 2 * sizeof(double) + sizeof(float) + sizeof(int) + 2 * sizeof(int32_t) + sizeof(bool);

	if (e->pts->prep.distance == GK_PARTIAL)
		per_value += sizeof(gk_int128);
	if (e->backend->recall != NULL)
		per_value += sizeof(float);
	e->memory = gk_alloc(e->host, kd * per_value + k * per_cluster, 1);
	if (e->memory == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for %zu centroids of %d features", k, e->pts->d);
	e->step.sum = e->memory;
	e->step.mass = e->step.sum + kd;
	e->fin.inertia = e->step.mass + k;
	e->step.feature_mass = e->fin.inertia + k;
	e->step.count = (int64_t *) (e->step.feature_mass + (e->pts->prep.distance == GK_PARTIAL ? kd : 0));
	e->fin.count = e->step.count + k;
	e->c = (double *) (e->fin.count + k);
	e->moved = e->c + kd;
	e->explained = e->moved + k;
	e->f = (float *) (e->explained + k);
	e->recalled = e->f + kd;
	e->fin.max_d2 = e->recalled + (e->backend->recall != NULL ? kd : 0);
	e->empty = (int *) (e->fin.max_d2 + k);
	e->was = (int32_t *) (e->empty + k);
	e->stepped = e->was + k;
	e->step.unchanged = (bool *) (e->stepped + k);
	return GK_OK;
}

static int
runs(const GkOptions *opt)
{
	return gk_is_given(opt) ? 1 : opt->n_init;
}

/* The centroids of one restart. */
static GkStatus
begin_run(GkEngine *e, int run, GkError *err)
{
	if (e->seeds == NULL)
		return gk_seed(e, run, err);
	e->k = e->seeded[run];
	return gk_engine_set_points(e, e->seeds + (size_t) run * e->opt->k * e->pts->d) ? GK_OK : GK_STOPPED;
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
		st = begin_run(e, run, err);
		seeded = gk_now_ms();
		model->seed_ms += seeded - start;
		if (st == GK_OK)
			st = gk_lloyd(e, run, tol, &r, err);
		if (st == GK_OK)
			st = gk_finish(e, gk_is_given(opt), sink, &inertia, err);
		model->iterate_ms += gk_now_ms() - seeded;
		if (st == GK_OK && (run == 0 || inertia < best))
		{
			best = inertia;
			st = keep_run(e, &r, model, err);
		}
	}
	if (st == GK_OK)
		keep_inertia(e, best, model);
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
		problem.min_size = opt->min_size;
		problem.max_size = opt->max_size;
	}
	return e->backend->open(&problem, &e->session, err);
}

static void
close_session(GkEngine *e)
{
	e->backend->close(e->session);
	e->session = NULL;
	gk_free(e->host, e->memory);
	e->memory = NULL;
}

/* ---- samples ---- */

/* Of the samples' random numbers, beside those of the runs. */
#define SAMPLE_RUN		(-1)
#define ROUND_FIT		0
#define ROUND_INIT		1

/* Make an engine on a sample of the rows; the caller frees its store. */
static GkStatus
open_sample(const GkEngine *e, int64_t rows, int round, const GkOptions *opt, GkEngine *out, GkError *err)
{
	GkStatus	st;

	*out = (GkEngine) {.host = e->host,.backend = e->backend,.opt = opt};
	st = gk_store_sample(e->store, rows, gk_key(opt->seed, SAMPLE_RUN, round), &out->store, err);
	if (st == GK_OK)
		out->pts = gk_store_points(out->store);
	return st;
}

static bool
seeds_are_sampled(const GkEngine *e)
{
	return !gk_is_given(e->opt) && gk_sample_rows(e->opt->init_sample, e->opt->k, e->pts->n) < e->pts->n;
}

/* Find the seeds of all runs in a sample.  Its session is closed before that of all rows is opened. */
static GkStatus
seed_from_sample(GkEngine *e, GkModel *model, GkError *err)
{
	const GkOptions *opt = e->opt;
	int			d = e->pts->d;
	double		start = gk_now_ms();
	GkEngine	s;
	GkStatus	st;

	st = open_sample(e, gk_sample_rows(opt->init_sample, opt->k, e->pts->n), ROUND_INIT, opt, &s, err);
	e->seeds = gk_alloc(e->host, (size_t) runs(opt) * opt->k, d * sizeof(float));
	e->seeded = gk_alloc(e->host, runs(opt), sizeof(int));
	if (st == GK_OK && (e->seeds == NULL || e->seeded == NULL))
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory");
	if (st == GK_OK)
		st = gk_engine_alloc(&s, err);
	if (st == GK_OK)
		st = open_session(&s, opt->k, 1, 0.0, opt, err);
	for (int run = 0; st == GK_OK && run < runs(opt); run++)
	{
		st = gk_seed(&s, run, err);
		e->seeded[run] = s.k;
		if (st == GK_OK)
			memcpy(e->seeds + (size_t) run * opt->k * d, s.f, (size_t) s.k * d * sizeof(float));
	}
	close_session(&s);
	gk_store_free(s.store);
	model->seed_ms += gk_now_ms() - start;
	return st;
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

/* The labels of the model's centroids. */
static GkStatus
emit_labels(GkEngine *e, const GkModel *model, const GkLabelSink *sink, GkError *err)
{
	if (sink->again != NULL)
		sink->again(sink->ctx);
	if (!gk_engine_copy(e, model->centroids, model->k, NULL, e->f))
		return GK_STOPPED;
	return e->backend->finish(e->session, e->f, model->k, NULL, sink, err);
}

/* What is said of the computation when it is over. */
static void
describe(const GkEngine *e, GkModel *model)
{
	e->backend->describe(e->session, model->device, sizeof(model->device),
						 model->strategy, sizeof(model->strategy));
	if (e->backend->times != NULL)
		e->backend->times(e->session, &model->context_ms, &model->upload_ms);
}

/* Cluster the engine's rows. */
static GkStatus
fit_rows(GkEngine *e, const GkLabelSink *sink, GkModel *model, GkError *err)
{
	const GkOptions *opt = e->opt;
	const GkLabelSink *each = sink != NULL && sink->again != NULL && runs(opt) == 1 ? sink : NULL;
	GkStatus	st = seeds_are_sampled(e) ? seed_from_sample(e, model, err) : GK_OK;

	if (st == GK_OK)
		st = gk_engine_alloc(e, err);
	if (st == GK_OK)
		st = open_session(e, opt->k, opt->max_iter, opt->tol * e->pts->mean_var, opt, err);
	if (st == GK_OK)
		st = run_all(e, each, model, err);
	if (st == GK_OK && sink != NULL && each == NULL)
		st = emit_labels(e, model, sink, err);
	if (st == GK_OK)
		describe(e, model);
	close_session(e);
	gk_free(e->host, e->seeds);
	gk_free(e->host, e->seeded);
	return st;
}

/* All rows to the centroids of a sample: number the clusters by their sizes, and measure them. */
static GkStatus
finish_rows(GkEngine *e, const GkLabelSink *sink, GkModel *model, GkError *err)
{
	const GkLabelSink *each = sink != NULL && sink->again != NULL ? sink : NULL;
	double		start = gk_now_ms();
	gk_int128	inertia = 0;
	GkStatus	st = gk_engine_alloc(e, err);

	if (st == GK_OK)
		st = open_session(e, model->k, 0, 0.0, e->opt, err);
	if (st == GK_OK)
	{
		e->k = model->k;
		memcpy(e->step.count, model->size, e->k * sizeof(int64_t));
		st = gk_engine_copy(e, model->centroids, e->k, e->c, e->f) ? gk_finish(e, gk_is_given(e->opt), each, &inertia, err) : GK_STOPPED;
	}
	if (st == GK_OK)
		st = keep_clusters(e, model, err);
	if (st == GK_OK)
		keep_inertia(e, inertia, model);
	if (st == GK_OK && sink != NULL && each == NULL)
		st = emit_labels(e, model, sink, err);
	if (st == GK_OK)
		describe(e, model);
	close_session(e);
	model->iterate_ms += gk_now_ms() - start;
	return st;
}

static GkStatus
fit_sample(GkEngine *e, int64_t rows, const GkLabelSink *sink, GkModel *model, GkError *err)
{
	double		start = gk_now_ms();
	GkEngine	s;
	GkStatus	st = open_sample(e, rows, ROUND_FIT, e->opt, &s, err);

	model->seed_ms += gk_now_ms() - start;
	if (st == GK_OK)
		st = fit_rows(&s, NULL, model, err);
	gk_store_free(s.store);
	return st == GK_OK ? finish_rows(e, sink, model, err) : st;
}

static GkStatus
fit_on(const GkBackend *backend, GkStore *store, const GkOptions *options,
	   const GkLabelSink *sink, GkModel *model, GkError *err)
{
	const GkPoints *pts = gk_store_points(store);
	GkEngine	e = {.backend = backend,.store = store,.pts = pts,.opt = options};
	int64_t		rows = gk_sample_rows(options->fit_sample, options->k, pts->n);
	int			expo = pts->d2_expo;
	GkStatus	st;

	e.host = gk_store_host(store);
	memset(model, 0, sizeof(*model));
	if (options->k < 1 || options->k > GK_MAX_K)
		return gk_fail(err, GK_ERR_LIMIT, "k = %d is not between 1 and %d", options->k, GK_MAX_K);
	if (options->max_iter < (gk_is_given(options) ? 0 : 1) || options->n_init < 1 || !(options->tol >= 0))
		return gk_fail(err, GK_ERR_OPTION, "max_iter and n_init must be at least 1, tol at least 0");
	model->k_asked = options->k;
	model->init = options->init;
	model->seed = options->seed;
	model->rows_used = pts->n;
	model->weights = (GkWeightGrid) {pts->weighted, pts->weight_exp};
	st = gk_prep_copy(e.host, &pts->prep, &model->prep, err);
	if (st == GK_OK && pts->n > 0)
	{
		if (gk_is_given(options))
			st = reach_given(&e, err);
		if (st == GK_OK)
			st = rows < pts->n ? fit_sample(&e, rows, sink, model, err) : fit_rows(&e, sink, model, err);
		if (st == GK_OK)
			st = gk_model_check_range(model, err);
	}
	store->pts.d2_expo = expo;
	if (st != GK_OK)
		gk_model_free(e.host, model);
	return st;
}

/* Labels by a model, whose rows need not be where those of its fit were. */
typedef struct Near
{
	GkLabelSink sink;
	const GkLabelSink *to;
	bool		far;			/* a row has no label */
} Near;

static bool
near_emit(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Near	   *n = ctx;

	for (int i = 0; i < rows; i++)
		n->far |= gk_is_far(d2[i]);
	return !n->far && n->to->emit(n->to->ctx, rows, label, d2, aux);
}

static GkStatus
label_on(const GkBackend *backend, GkStore *store, const GkModel *model,
		 const GkLabelSink *sink, GkError *err)
{
	GkEngine	e = {.backend = backend,.store = store,.pts = gk_store_points(store)};
	Near		near = {{&near, near_emit, NULL}, sink, false};
	float	   *f;
	GkStatus	st;

	e.host = gk_store_host(store);
	if (e.pts->n == 0)
		return GK_OK;
	f = gk_alloc(e.host, (size_t) model->k * model->prep.d, sizeof(float));
	if (f == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	st = gk_engine_copy(&e, model->centroids, model->k, NULL, f) ? open_session(&e, model->k, 0, 0.0, NULL, err) : GK_STOPPED;
	if (st == GK_OK && sink->again != NULL)
		sink->again(sink->ctx);
	if (st == GK_OK)
		st = backend->finish(e.session, f, model->k, NULL, &near.sink, err);
	backend->close(e.session);
	gk_free(e.host, f);
	return near.far ? gk_fail_far(err) : st;
}

static const GkBackend *
backend_of(const GkStore *store, const GkBackend *chosen)
{
	if (store->pts.prep.distance == GK_PARTIAL)
		return &gk_holes_backend;
	return store->pts.prep.distance == GK_MANHATTAN ? &gk_medians_backend : chosen;
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
	backend = backend_of(store, backend);
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

	backend = backend_of(store, backend);
	if (store->reader != NULL)
		return label_on(backend, store, model, sink, err);
	st = label_on(backend, store, model, resume_sink(&r, sink, store), err);
	if (gk_go_on_with_cpu(gk_store_host(store), backend, st, err))
		st = label_on(&gk_cpu_backend, store, model, resume_sink(&r, sink, store), err);
	return st;
}
