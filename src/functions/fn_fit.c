/*
 * fn_fit.c - kmeans() and kmeans_fit(), of a relation or of a query: read, prepare, cluster, report.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "core/balanced/gk_balanced.h"
#include "core/gk_backend.h"
#include "core/spectral/gk_spectral.h"
#include "core/store/gk_points.h"
#include "functions/functions.h"
#include "rescan/rescan.h"

PG_FUNCTION_INFO_V1(kmeans);
PG_FUNCTION_INFO_V1(kmeans_fit);
PG_FUNCTION_INFO_V1(kmeans_query);
PG_FUNCTION_INFO_V1(kmeans_query_fit);

/* ---- labels from the engine to their consumer ---- */

typedef struct Relayed
{
	const KmLabelRelay *relay;
	int			rows;
	const int32_t *label;
	const float *d2;
	const uint32_t *const *aux;
} Relayed;

static void
pass_labels(void *arg)
{
	const Relayed *r = arg;
	const KmLabelRelay *relay = r->relay;

	relay->want->labels(relay->want->arg, relay->tables, relay->prep,
						r->rows, r->label, r->d2, r->aux);
}

/* Called by the engine, so an ERROR has to wait. */
static bool
relay_emit(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	const KmLabelRelay *relay = ctx;
	Relayed		r = {relay, rows, label, d2, aux};

	return km_host_guard(relay->host, pass_labels, &r);
}

void
km_label_relay(KmLabelRelay *relay, KmPgHost *host, const KmLabelWant *want,
			   const KmTables *tables, const GkPrep *prep)
{
	*relay = (KmLabelRelay) {{relay, relay_emit, NULL}, host, want, tables, prep};
}

/* ---- notices ---- */

/* A chosen k that is not asked for by strong words. */
#define WEAK	0.5

static void
notice_spectral(const GkModel *m)
{
	const GkSpectral *s = &m->spectral;
	bool		weak = s->choice == GK_CHOICE_GAP && s->strength < WEAK;

	if (s->asked.k == 0)
		ereport(NOTICE,
				(errmsg(weak ? "k = %d, by a weak gap of the eigenvalues" :
						s->choice == GK_CHOICE_COMPONENTS ? "k = %d, by the components of the graph" :
						"k = %d, by the gap of the eigenvalues", s->k),
				 errdetail("The strength of the gap is %.2f of 1.", s->strength),
				 weak ? errhint("There may be no clusters. kmeans_info() shows the eigenvalues; k => %d takes this k without a notice.", s->k) : 0));
	else if (s->components > s->asked.k)
		ereport(NOTICE,
				(errmsg("the graph has %d components, more than k = %d", s->components, s->asked.k),
				 errdetail("The nearest ones were joined.")));
	else if (s->k < s->asked.k)
		ereport(NOTICE,
				(errmsg_plural("found %d cluster, fewer than k = %d",
							   "found %d clusters, fewer than k = %d",
							   s->k, s->k, s->asked.k),
				 errdetail_plural("The graph has %d representative.",
								  "The graph has %d representatives.", m->k, m->k)));
	if (s->cut_off > 0)
		ereport(NOTICE,
				(errmsg_plural("%d component of the graph is too light to be a cluster",
							   "%d components of the graph are too light to be clusters",
							   s->cut_off, s->cut_off),
				 errdetail("Its points are in the cluster of the nearest other representative.")));
}

static void
notice_result(const KmFit *fit)
{
	const GkModel *m = &fit->model;

	if (m->spectral.k > 0)
		notice_spectral(m);
	else if (m->k < m->k_asked)
		ereport(NOTICE,
				(errmsg_plural("found %d cluster, fewer than k = %d",
							   "found %d clusters, fewer than k = %d",
							   m->k, m->k, m->k_asked),
				 errdetail("There are no more distinct points.")));
	if (!m->converged && fit->options.engine.max_iter > 0)
		ereport(NOTICE,
				(errmsg("stopped after max_iter = %d iterations, before convergence",
						fit->options.engine.max_iter),
				 errhint("Use a larger max_iter or tol.")));
}

/* ---- the fit ---- */

/*
 * The points of a fit.  Rows that go to GPUs while they are read (gk_ingest.c) are nowhere
 * else: if one fails before the model is there, they are read once more.  The statement's
 * snapshot is the same, and so are they.
 */
typedef struct Points
{
	KmFit	   *fit;
	bool		rescan;			/* rows are read again in every pass, not kept */
	KmFitDevice device;
	KmTables	tables;
	GkStore    *store;			/* NULL: no row is usable */
	KmRescan   *passes;			/* if rescan */
	bool		prepared;
} Points;

static void
free_points(Points *p)
{
	gk_store_free(p->store);
	p->store = NULL;
	km_fit_device_forget(&p->device);
}

/* Not all of the devices have failed, or the CPU may do the job. */
static bool
goes_on(const Points *p, GkStatus st, const GkError *err)
{
	KmFit	   *fit = p->fit;

	if (km_go_on_with_others(fit->host, st, err))
		return true;
	if (!gk_go_on_with_cpu(km_host_engine(fit->host), gk_store_reader(p->store), st, err))
		return false;
	fit->options.device = GK_DEVICE_CPU;
	return true;
}

/* A GPU has failed with st: raise it, or have the rows read once more. */
static void
ingest_failed(Points *p, GkStatus st, const GkError *err)
{
	KmFit	   *fit = p->fit;

	/* points that do not fit into the devices' memory are streamed to it */
	if (st == GK_ERR_DEVICE_MEMORY && !p->prepared)
		p->device.ingest = false;
	else if (!goes_on(p, st, err))
		km_throw(fit->host, st, err);
	free_points(p);
	memset(&fit->counts, 0, sizeof(fit->counts));
}

/* ---- read, prepare, fit ---- */

static void
read_points(Points *p, const KmLabelWant *want, KmReadEnd *end)
{
	KmFit	   *fit = p->fit;
	const KmFitOptions *o = &fit->options;
	KmReadOptions read = {
		.distance = o->engine.distance,
		.skip_nonfinite = o->skip_nonfinite,
		.expect_d = o->given_d,
		.expect_of = o->given_by,
		.left_out = want != NULL ? want->left_out : NULL,
		.arg = want != NULL ? want->arg : NULL
	};

	if (o->fill_nulls && fit->fill.value == NULL)
		fit->fill = km_read_means(fit->host, fit->source, o->skip_nonfinite);
	read.fill = fit->fill;
	memset(&p->tables, 0, sizeof(p->tables));
	if (p->rescan)
	{
		KmRescanOf	of = {fit->host, fit->source, o->device, fit->schema, &fit->counts};

		p->passes = km_rescan_begin(&of, &read, &p->tables);
		p->store = km_rescan_open(p->passes);
		return;
	}
	read.end = end;
	read.created = km_fit_device_begin;
	read.created_arg = &p->device;
	p->store = km_read(fit->host, fit->source, &read, &fit->counts, &p->tables);
}

/* That a file is read in every pass is what a user can change. */
static void
notice_file(const GkStore *store)
{
	size_t		enough = gk_store_enough_memory(store);

	if (enough > 0)
		ereport(NOTICE,
				(errmsg("some of the points are in a temporary file"),
				 errdetail(gkmeans_memory_limit < 0 ? "gkmeans.memory_limit is that of maintenance_work_mem, %d kB." :
						   "gkmeans.memory_limit is %d kB.", (int) (km_memory_limit_bytes() / 1024)),
				 errhint("SET gkmeans.memory_limit = '%zuMB' keeps all in memory.", (enough >> 20) + 1)));
}

/* Read and prepare.  No store, after a NOTICE: no usable rows. */
static GkStatus
load(Points *p, const KmLabelWant *want, GkError *err)
{
	KmFit	   *fit = p->fit;
	const KmFitOptions *o = &fit->options;
	double		start = gk_now_ms();
	double		waited = gk_registry_waited_ms();
	KmReadEnd	end = {NULL};
	int			valueless;
	GkStatus	st;

	p->prepared = false;
	p->device.context = error_context_stack;
	km_apply_simd();
	if (fit->host == NULL)
		fit->host = km_host_begin();
	/* a missing GPU is known early in a long read; shards' servers look for themselves */
	if (fit->schema == NULL && (p->rescan || fit->balanced))
		km_check_device(fit->host, o->device);
	else if (fit->schema == NULL)
		km_check_device_soon(fit->host, o->device);
	read_points(p, want, &end);
	if (p->store == NULL)
	{
		if (fit->schema == NULL)
			km_check_device(fit->host, o->device);
		km_notice_left_out(&fit->counts);
		km_notice_no_rows(fit->source);
		km_read_end(&end);
		return GK_OK;
	}
	if (o->engine.distance == GK_PARTIAL && (valueless = gk_store_valueless(p->store)) >= 0)
	{
		km_read_end(&end);
		km_throw_no_mean(fit->source, valueless, gk_store_rows(p->store));
	}
	/* the rows are prepared while the workers end */
	st = gk_store_prepare(p->store, o->engine.distance, o->engine.standardize, err);
	km_read_end(&end);
	if (st != GK_OK)
		return st;
	p->prepared = true;
	km_notice_left_out(&fit->counts);
	notice_file(p->store);
	fit->load_ms = gk_now_ms() - start - gk_store_ingest_ms(p->store) - (gk_registry_waited_ms() - waited);
	return GK_OK;
}

static const GkBackend *
choose_backend(const Points *p, int k)
{
	KmFit	   *fit = p->fit;
	int64		n = gk_store_rows(p->store);
	int			d = gk_store_features(p->store);

	if (p->rescan)
		km_rescan_device(p->passes, fit->options.device, n, d, k);
	if (gk_store_reader(p->store) != NULL)
		return gk_store_reader(p->store);
	return km_fit_devices(fit->host, &fit->options, n, d, k);
}

static GkStatus
load_and_fit(Points *p, const KmLabelWant *want, GkError *err)
{
	KmFit	   *fit = p->fit;
	GkOptions	engine = fit->options.engine;
	GkStatus	st = load(p, want, err);
	KmLabelRelay relay;

	if (st != GK_OK || p->store == NULL)
		return st;
	/* no more clusters than rows: no memory for what cannot be found */
	if (engine.centroids == NULL)
		engine.k = (int) Min((int64) engine.k, gk_store_rows(p->store));
	/* an ERROR before the work, not after it */
	if (fit->as_model)
		kmeans_model_check_size(engine.k, gk_store_features(p->store), 0, 0);
	if (want != NULL)
		km_label_relay(&relay, fit->host, want, &p->tables, &gk_store_points(p->store)->prep);
	if (fit->spectral != NULL)
		return gk_spectral_fit(p->store, choose_backend(p, engine.k), &engine, fit->spectral,
							   want != NULL ? &relay.sink : NULL, &fit->model, err);
	if (fit->balanced)
		return gk_balanced_fit(p->store, &engine, want != NULL ? &relay.sink : NULL, &fit->model, err);
	return gk_fit(p->store, choose_backend(p, engine.k), &engine, want != NULL ? &relay.sink : NULL, &fit->model, err);
}

GkStore *
km_fit_load(KmFit *fit, const KmLabelWant *want, KmTables *tables)
{
	/* shards do not know the means that NULLs become */
	Points		p = {.fit = fit,.device.fit = fit,.rescan = fit->schema != NULL && !fit->options.fill_nulls};
	GkError		err;
	GkStatus	st = load(&p, want, &err);

	km_check(fit->host, st, &err);
	*tables = p.tables;
	return p.store;
}

static bool
is_sampled(const KmFit *fit)
{
	return fit->options.engine.init_sample > 0 || fit->options.engine.fit_sample > 0;
}

/* A sample is of rows that are kept. */
static void
refuse_sample(const KmFit *fit)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("init_sample and fit_sample cannot be used %s",
					fit->schema != NULL ? "with a distributed table" : "with gkmeans.strategy 'scan'"),
			 errdetail("Rows are read again in every pass there, and none are kept."),
			 errhint("Make a table of the sample, fit that, and use kmeans_labels() with the model.")));
}

bool
km_fit_run(KmFit *fit, const KmLabelWant *want)
{
	Points		p = {.fit = fit,.device = {.fit = fit,.ingest = want == NULL && !is_sampled(fit)}};
	double		start = gk_now_ms();
	double		waited = gk_registry_waited_ms();
	GkStatus	st;
	GkError		err;

	if (is_sampled(fit))
		km_fit_bring(fit);
	p.rescan = fit->options.scan || fit->schema != NULL;
	if (fit->options.engine.centroids == NULL || fit->spectral != NULL || fit->balanced)
		km_require_iterations(&fit->options);
	if (p.rescan)
		kmeans_refuse_distance(fit->options.engine.distance,
							   fit->schema != NULL ? "a distributed table" : "gkmeans.strategy 'scan'");
	if (p.rescan && is_sampled(fit))
		refuse_sample(fit);
	if (fit->schema != NULL)
		km_refuse_fill(&fit->options, "a distributed table");
	while ((st = load_and_fit(&p, want, &err)) != GK_OK && km_fit_device_has_rows(&p.device))
		ingest_failed(&p, st, &err);
	km_check(fit->host, st, &err);
	if (p.store == NULL)
		return false;
	free_points(&p);

	fit->model.k_asked = fit->options.engine.k;
	fit->model.fill = unconstify(double *, fit->fill.value);
	fit->model.rows_skipped = km_group_rows_left_out(&fit->counts);
	fit->model.load_ms = fit->load_ms;
	if (fit->model.context_ms > 0.0)
		fit->model.context_ms += gk_registry_waited_ms() - waited;
	fit->model.total_ms = gk_now_ms() - start;
	km_stat_run(fit->source->relname, &fit->model);
	notice_result(fit);
	return true;
}

void
km_fit_end(KmFit *fit)
{
	km_host_end(fit->host);
}

/* ---- SQL ---- */

static char **
names_arg(FunctionCallInfo fcinfo, int arg, int *count)
{
	km_require_arg(fcinfo, arg, "columns");
	return km_column_names(PG_GETARG_ARRAYTYPE_P(arg), "columns", count);
}

void
km_fit_open(FunctionCallInfo fcinfo, int first_option, const char *label_column,
			bool identify, KmFit *fit)
{
	/* the first two arguments are looked at first */
	km_require_arg(fcinfo, 0, "relation");
	km_require_arg(fcinfo, 1, "columns");
	km_fit_open_k(fcinfo, first_option, km_parse_k(fcinfo, 2), label_column, identify, fit);
}

void
km_fit_open_k(FunctionCallInfo fcinfo, int first_option, int k, const char *label_column,
			  bool identify, KmFit *fit)
{
	char	  **columns;
	int			ncolumns;

	memset(fit, 0, sizeof(*fit));
	km_require_arg(fcinfo, 0, "relation");
	columns = names_arg(fcinfo, 1, &ncolumns);
	km_parse_options(fcinfo, first_option, k, &fit->options);
	if (label_column != NULL)
		label_column = km_label_lock(PG_GETARG_OID(0), label_column);
	fit->source = km_source_open(PG_GETARG_OID(0), columns, ncolumns,
								 fit->options.weight_column, label_column, identify);
	fit->foreign = label_column == NULL && !identify && km_foreign_sharded(fit->source);
	if (fit->foreign || fit->source->distributed)
		fit->schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
	if (fit->options.fill_nulls || fit->options.engine.distance == GK_MANHATTAN || fit->options.engine.distance == GK_PARTIAL)
		km_fit_bring(fit);
}

void
km_fit_bring(KmFit *fit)
{
	if (fit->foreign)
		fit->schema = NULL;
	fit->foreign = false;
}

void
km_fit_open_rest(FunctionCallInfo fcinfo, int first, KmFit *fit)
{
	km_parse_samples(fcinfo, first, &fit->options);
	if (!PG_ARGISNULL(first + 2))
		km_fit_centroid_table(PG_GETARG_OID(first + 2), fit);
}

/*
 * kmeans(relation regclass, columns text[], k int, label_column text, <options>, <rest>)
 * returns table (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
 */
Datum
kmeans(PG_FUNCTION_ARGS)
{
	char	   *label_column = km_parse_text(fcinfo, 3);
	KmResult	result;
	KmFit		fit;

	km_result_begin(fcinfo, &result);
	km_fit_open(fcinfo, 4, label_column, false, &fit);
	km_fit_open_rest(fcinfo, 4 + GKMEANS_NOPTIONS, &fit);
	km_relabel_fit(fcinfo, &fit, fit.options.engine.k, &result);
	return (Datum) 0;
}

/* From the arguments (query, k, <options>, <rest>). */
static void
open_query(FunctionCallInfo fcinfo, KmFit *fit)
{
	memset(fit, 0, sizeof(*fit));
	km_require_arg(fcinfo, 0, "query");
	km_parse_options(fcinfo, 2, km_parse_k(fcinfo, 1), &fit->options);
	fit->source = km_source_of_query(km_parse_text(fcinfo, 0), fit->options.weight_column);
	km_fit_open_rest(fcinfo, 2 + GKMEANS_NOPTIONS, fit);
}

/*
 * kmeans_query(query text, k int, <options>, <rest>) returns what kmeans() does
 */
Datum
kmeans_query(PG_FUNCTION_ARGS)
{
	KmResult	result;
	KmFit		fit;

	km_result_begin(fcinfo, &result);
	open_query(fcinfo, &fit);
	if (km_fit_run(&fit, NULL))
		km_result_clusters(&result, &fit.model);
	km_fit_end(&fit);
	return (Datum) 0;
}

KmeansModel *
km_fit_model(const KmFit *fit)
{
	return kmeans_model_build(&fit->model, fit->source->columns,
							  fit->source->array ? KMEANS_ARRAY_COLUMN : fit->source->ncolumns);
}

/* The model of an open fit, as a value or NULL. */
static Datum
fit_value(FunctionCallInfo fcinfo, KmFit *fit)
{
	KmeansModel *model = NULL;

	fit->as_model = true;
	if (km_fit_run(fit, NULL))
		model = km_fit_model(fit);
	km_fit_end(fit);
	if (model == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(model);
}

/*
 * kmeans_fit(relation regclass, columns text[], k int, <options>, <rest>) returns kmeans_model
 */
Datum
kmeans_fit(PG_FUNCTION_ARGS)
{
	KmFit		fit;

	km_fit_open(fcinfo, 3, NULL, false, &fit);
	km_fit_open_rest(fcinfo, 3 + GKMEANS_NOPTIONS, &fit);
	return fit_value(fcinfo, &fit);
}

/*
 * kmeans_query_fit(query text, k int, <options>, <rest>) returns kmeans_model
 */
Datum
kmeans_query_fit(PG_FUNCTION_ARGS)
{
	KmFit		fit;

	open_query(fcinfo, &fit);
	return fit_value(fcinfo, &fit);
}
