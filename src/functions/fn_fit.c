/*
 * fn_fit.c - kmeans() and kmeans_fit(): read, prepare, cluster, report.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "core/store/gk_points.h"
#include "gkmeans.h"
#include "rescan/rescan_relation.h"
#include "types/model.h"
#include "relation/rel_rules.h"
#include "rescan/rescan_citus.h"

PG_FUNCTION_INFO_V1(kmeans);
PG_FUNCTION_INFO_V1(kmeans_fit);

/* ---- labels on their way up ---- */

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

/* Below the engine, so an ERROR has to wait. */
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
	relay->sink.ctx = relay;
	relay->sink.emit = relay_emit;
	relay->sink.again = NULL;
	relay->host = host;
	relay->want = want;
	relay->tables = tables;
	relay->prep = prep;
}

/* ---- notices ---- */

static void
notice_result(const KmFit *fit)
{
	const GkModel *m = &fit->model;

	if (m->k < m->k_asked)
		ereport(NOTICE,
				(errmsg_plural("found %d cluster, fewer than k = %d",
							   "found %d clusters, fewer than k = %d",
							   m->k, m->k, m->k_asked),
				 errdetail("There are no more distinct points.")));
	if (!m->converged)
		ereport(NOTICE,
				(errmsg("stopped after max_iter = %d iterations, before convergence",
						fit->options.engine.max_iter),
				 errhint("Use a larger max_iter or tol.")));
}

/* ---- the fit ---- */

static const GkBackend *
find_backend(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k, int *gpu)
{
	GkError		err;
	const GkBackend *backend = gk_registry_choose(kind, gkmeans_gpu_devices, n, d, k, gpu, &err);

	if (backend == NULL)
		km_throw(host, err.code, &err);
	return backend;
}

void
km_check_device(KmPgHost *host, GkDeviceKind kind)
{
	int			gpu;

	if (kind == GK_DEVICE_GPU)
		(void) find_backend(host, kind, 0, 0, 0, &gpu);
}

const GkBackend *
km_choose_backend(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k)
{
	int			gpu;
	const GkBackend *backend = find_backend(host, kind, n, d, k, &gpu);

	km_host_fall_back(host, kind == GK_DEVICE_AUTO);
	if (gpu >= 0 && !km_gpu_job_begin(km_host_context(host), gpu, kind == GK_DEVICE_GPU))
	{
		ereport(DEBUG1,
				(errmsg("all %d sessions of GPU %d are taken, the CPU does the job",
						gkmeans_max_gpu_sessions, gpu)));
		backend = find_backend(host, GK_DEVICE_CPU, n, d, k, &gpu);
	}
	km_progress_device(gpu >= 0 ? "gpu" : "cpu");
	return backend;
}

/* ERROR before the work when the centroids alone are too large for a value. */
static void
check_model_size(int k, int d)
{
	uint64		bytes = (uint64) k * d * sizeof(double);

	if (bytes > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a model of %d clusters with %d features has " UINT64_FORMAT " MB, the limit is %d MB",
						k, d, bytes >> 20, (int) (MaxAllocSize >> 20)),
				 errhint("Use fewer clusters or features, or kmeans(), which returns rows.")));
}

/* again: rows may be read again in every pass instead of kept. */
static GkStore *
load(KmFit *fit, const KmLabelWant *want, KmTables *tables, bool again)
{
	const KmFitOptions *o = &fit->options;
	double		start = gk_now_ms();
	KmReadEnd	end = {NULL};
	KmReadOptions read = {
		.distance = o->engine.distance,
		.skip_nonfinite = o->skip_nonfinite,
		.expect_d = o->given_d,
		.expect_of = o->engine.init == GK_INIT_WARM_START ? "warm_start" : "centroids",
		.left_out = want != NULL ? want->left_out : NULL,
		.arg = want != NULL ? want->arg : NULL
	};
	GkStore    *store;
	GkStatus	st;
	GkError		err;

	km_apply_simd();
	if (fit->host == NULL)
		fit->host = km_host_begin();
	/* a missing GPU is known before a long read */
	if (!fit->sharded)
		km_check_device(fit->host, o->device);

	if (again)
	{
		fit->iterate = km_rescan_begin(fit, &read, tables);
		store = km_rescan_open(fit->iterate);
	}
	else
	{
		/* the rows are prepared while the workers end */
		read.end = &end;
		if (fit->stage)
		{
			read.created = km_ingest_begin;
			read.created_arg = fit;
		}
		store = km_read(fit->host, fit->source, &read, &fit->counts, tables);
	}
	if (store == NULL)
	{
		km_notice_left_out(&fit->counts);
		ereport(NOTICE,
				(errmsg("no usable rows in \"%s\"", fit->source->relname)));
		km_read_end(&end);
		return NULL;
	}

	st = gk_store_prepare(store, o->engine.distance, o->engine.standardize, &err);
	km_read_end(&end);
	if (st != GK_OK && fit->staged != NULL)
	{
		km_ingest_failed(fit, true, st, &err);
		return load(fit, want, tables, again);
	}
	km_check(fit->host, st, &err);
	km_notice_left_out(&fit->counts);
	fit->load_ms = gk_now_ms() - start - gk_store_ingest_ms(store);
	return store;
}

GkStore *
km_fit_load(KmFit *fit, const KmLabelWant *want, KmTables *tables)
{
	return load(fit, want, tables, false);
}

/* Read, prepare, fit; st and err, which the caller checks, are the fit's.  NULL: no rows. */
static GkStore *
load_and_fit(KmFit *fit, const KmLabelWant *want, GkStatus *st, GkError *err)
{
	const KmFitOptions *o = &fit->options;
	GkOptions	engine = o->engine;
	KmTables	tables = {0};
	GkStore    *store = load(fit, want, &tables, o->scan || fit->sharded);
	const GkBackend *backend = NULL;
	KmLabelRelay relay;

	if (store == NULL)
		return NULL;

	/* no more clusters than rows: no memory for what cannot be found */
	if (engine.centroids == NULL)
		engine.k = (int) Min((int64) engine.k, gk_store_rows(store));
	if (fit->as_model)
		check_model_size(engine.k, gk_store_features(store));
	if (fit->iterate != NULL)
		km_rescan_device(fit->iterate, o->device, gk_store_rows(store), gk_store_features(store), engine.k);
	else if (fit->staged != NULL)
		backend = fit->staged->backend;
	else
		backend = km_choose_backend(fit->host, o->device, gk_store_rows(store),
									gk_store_features(store), engine.k);
	if (want != NULL)
		km_label_relay(&relay, fit->host, want, &tables, &gk_store_points(store)->prep);
	*st = gk_fit(store, backend, &engine, want != NULL ? &relay.sink : NULL, &fit->model, err);
	return store;
}

bool
km_fit_run(KmFit *fit, const KmLabelWant *want)
{
	const KmFitOptions *o = &fit->options;
	double		start = gk_now_ms();
	GkStore    *store;
	GkStatus	st;
	GkError		err;

	fit->stage = want == NULL;
	store = load_and_fit(fit, want, &st, &err);
	if (store != NULL && st != GK_OK && fit->staged != NULL)
	{
		km_ingest_failed(fit, false, st, &err);
		store = load_and_fit(fit, want, &st, &err);
	}
	if (store == NULL)
		return false;
	km_check(fit->host, st, &err);
	if (fit->staged != NULL)
		km_ingest_end(fit);
	else
		gk_store_free(store);

	fit->model.k_asked = o->engine.k;
	fit->model.rows_skipped = km_group_rows_left_out(&fit->counts);
	fit->model.load_ms = fit->load_ms;
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
	char	  **columns;
	int			ncolumns;

	memset(fit, 0, sizeof(*fit));
	km_require_arg(fcinfo, 0, "relation");
	columns = names_arg(fcinfo, 1, &ncolumns);
	km_parse_options(fcinfo, first_option, km_parse_k(fcinfo, 2), &fit->options);
	fit->source = km_source_open(PG_GETARG_OID(0), columns, ncolumns,
								 fit->options.weight_column, label_column, identify);
	fit->sharded = km_citus_distributed(fit->source->relid);
	if (fit->sharded)
		fit->schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
}

void
km_result_clusters(KmResult *result, const GkModel *m)
{
	int			d = m->prep.d;

	for (int c = 0; c < m->k; c++)
	{
		Datum		values[5];
		bool		nulls[5] = {false};

		values[0] = Int32GetDatum(c);
		values[1] = Int64GetDatum(m->size[c]);
		values[2] = km_float8_array(m->centroids + (size_t) c * d, d);
		values[3] = Float8GetDatum(m->cluster_inertia[c]);
		values[4] = Float8GetDatum(m->radius[c]);
		tuplestore_putvalues(result->store, result->desc, values, nulls);
		pfree(DatumGetPointer(values[2]));
	}
}

/*
 * kmeans(relation regclass, columns text[], k int, label_column text, <options>)
 * returns table (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
 */
Datum
kmeans(PG_FUNCTION_ARGS)
{
	char	   *label_column = km_parse_text(fcinfo, 3);
	KmRelabel  *relabel = NULL;
	KmLabelWant want;
	KmResult	result;
	KmFit		fit;

	km_result_begin(fcinfo, &result);
	km_fit_open(fcinfo, 4, label_column, false, &fit);
	if (label_column != NULL)
	{
		km_relabel_check(fit.source, fit.options.engine.k);
		relabel = km_relabel_begin(fit.source);
		want = km_relabel_want(relabel);
	}
	if (km_fit_run(&fit, relabel != NULL ? &want : NULL))
		km_result_clusters(&result, &fit.model);
	km_fit_end(&fit);
	if (relabel != NULL)
		km_relabel_write(relabel, fcinfo->flinfo->fn_oid);
	return (Datum) 0;
}

/*
 * kmeans_fit(relation regclass, columns text[], k int, <options>) returns kmeans_model
 */
Datum
kmeans_fit(PG_FUNCTION_ARGS)
{
	KmeansModel *model = NULL;
	KmFit		fit;

	km_fit_open(fcinfo, 3, NULL, false, &fit);
	fit.as_model = true;
	if (km_fit_run(&fit, NULL))
		model = kmeans_model_build(&fit.model, fit.source->columns,
								   fit.source->array ? KMEANS_ARRAY_COLUMN : fit.source->ncolumns);
	km_fit_end(&fit);
	if (model == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(model);
}
