/*
 * fn_quality.c - how good clusters are: kmeans_evaluate() of a model, and kmeans_scan(), which
 * reads once, fits many k and says which one to take.
 *
 * Each k is fitted from its own seeding, exactly as kmeans_fit() would do it: starting from the
 * clusters of a smaller k saves iterations, but ends in worse optima than k-means++ finds
 * (docs/choosing-k.md).
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"

#include "core/rescan/gk_rows_quality.h"
#include "core/spectral/gk_spectral.h"
#include "functions/functions.h"

PG_FUNCTION_INFO_V1(kmeans_evaluate);
PG_FUNCTION_INFO_V1(kmeans_scan);

/* The arguments of kmeans_scan() around <options>, by number. */
enum
{
	ARG_RELATION, ARG_COLUMNS, ARG_K_MIN, ARG_K_MAX, ARG_STEP, ARG_OPTIONS,
	ARG_SAMPLE = ARG_OPTIONS + GKMEANS_NOPTIONS
};

/* The four measures as values; NULL where one is not defined. */
static void
put_measures(const GkMeasures *m, Datum *values, bool *nulls)
{
	const double v[] = {m->silhouette, m->simplified, m->davies_bouldin, m->calinski_harabasz};

	for (int i = 0; i < (int) lengthof(v); i++)
	{
		values[i] = Float8GetDatum(v[i]);
		nulls[i] = isnan(v[i]);
	}
}

/* ---- labels ---- */

typedef struct Collect
{
	int32_t    *label;
	int64		rows;
} Collect;

static bool
collect(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Collect    *c = ctx;

	memcpy(c->label + c->rows, label, rows * sizeof(int32_t));
	c->rows += rows;
	return true;
}

/* The fit begins again: the labels so far do not count. */
static void
start_over(void *ctx)
{
	((Collect *) ctx)->rows = 0;
}

static int32_t *
alloc_labels(const GkHost *engine, GkStore *store)
{
	int32_t    *label = gk_alloc(engine, gk_store_rows(store), sizeof(int32_t));

	if (label == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory for the labels of " INT64_FORMAT " rows",
						(int64) gk_store_rows(store))));
	return label;
}

/* ---- one model ---- */

/* The measures of a spectral model's clusters, which are not those of its centroids. */
static void
measure_spectral(KmModelRows *rows, GkStore *store, int sample, GkMeasures *out)
{
	const GkModel *m = &rows->model;
	Collect		labels = {alloc_labels(km_host_engine(rows->host), store)};
	GkLabelSink sink = {&labels, collect, start_over};
	const GkBackend *backend;
	GkError		err;

	km_check(rows->host, gk_store_prepare_as(store, &m->prep, &err), &err);
	backend = km_choose_backend(rows->host, GK_DEVICE_CPU, gk_store_rows(store), m->prep.d, m->k);
	km_check(rows->host, gk_spectral_label(store, backend, m, &sink, &err), &err);
	km_check(rows->host, gk_quality_labels(store, labels.label, m->spectral.k, sample, out, &err), &err);
}

/*
 * kmeans_evaluate(model kmeans_model, relation regclass, sample int, nonfinite text)
 * returns a record
 */
Datum
kmeans_evaluate(PG_FUNCTION_ARGS)
{
	KmModelRows rows;
	GkMeasures	measures = {0};
	Datum		values[8];
	bool		nulls[8] = {false};
	GkStore    *store;
	int			sample = km_parse_int(fcinfo, 2, "sample", 0, PG_INT32_MAX);

	km_model_rows_open(fcinfo, 0, 1, 3, &rows);
	kmeans_refuse_distance(rows.model.prep.distance, "kmeans_evaluate()");
	store = km_model_rows_read(&rows, PG_GETARG_OID(1), false, rows.model.spectral.k > 0 ? NULL : fcinfo);
	if (store == NULL)
		km_notice_no_rows(rows.source);
	else
	{
		GkError		err;

		if (rows.model.spectral.k > 0)
			measure_spectral(&rows, store, sample, &measures);
		else if (gk_store_reader(store) == &gk_rows_backend)
			km_check(rows.host, gk_rows_quality(store, &rows.model, false, sample, &measures, &err), &err);
		else
			km_check(rows.host, gk_quality_model(store, &rows.model, sample, &measures, &err), &err);
	}
	km_host_end(rows.host);
	if (store == NULL)
		PG_RETURN_NULL();

	values[0] = Int32GetDatum(measures.k);
	values[1] = Int64GetDatum(measures.rows);
	values[2] = Float8GetDatum(measures.inertia);
	nulls[2] = rows.model.spectral.k > 0;
	put_measures(&measures, values + 3, nulls + 3);
	values[7] = Int64GetDatum(measures.sample);
	PG_RETURN_DATUM(km_result_record(fcinfo, values, nulls, lengthof(values)));
}

/* A warm start and centroids belong to one k. */
static void
refuse_starts(FunctionCallInfo fcinfo)
{
	/* second and third of <options> after the weight column */
	static const char *const names[] = {"warm_start", "centroids"};

	for (int i = 0; i < 2; i++)
		if (!PG_ARGISNULL(ARG_OPTIONS + 2 + i))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s cannot be used with more than one k", names[i]),
					 errhint("Use kmeans_fit() and kmeans_evaluate().")));
}

/* ---- what to suggest ---- */

/*
 * Kneedle (Satopaa et al. 2011) for a falling curve: both axes scaled to [0, 1], the point farthest
 * below the straight line from first to last; -1: there is none.
 */
static int
find_elbow(const KmChooseKRow *row, int n)
{
	double		best = 1e-9;
	double		fall = n > 0 ? row[0].inertia - row[n - 1].inertia : 0.0;
	int			elbow = -1;

	for (int i = 1; i < n - 1; i++)
	{
		double		x = (double) (row[i].k - row[0].k) / (row[n - 1].k - row[0].k);
		double		y = (row[0].inertia - row[i].inertia) / fall;

		if (fall > 0.0 && y - x > best)
		{
			best = y - x;
			elbow = i;
		}
	}
	return elbow;
}

/* The smallest k among those of the largest silhouette, or -1. */
static int
find_silhouette(const KmChooseKRow *row, int n)
{
	int			best = -1;

	for (int i = 0; i < n; i++)
		if (!isnan(row[i].measures.silhouette) &&
			(best < 0 || row[i].measures.silhouette > row[best].measures.silhouette))
			best = i;
	return best;
}

/* ---- the fits ---- */

static void
fit_each_k(KmFit *fit, GkStore *store, int k_min, int k_max, int step, int sample, KmChooseK *choice)
{
	const GkHost *engine = km_host_engine(fit->host);
	int64		last = k_min + (int64) (k_max - k_min) / step * step;
	GkSharedSeeds seeds = {.k_max = (int) Min(last, gk_store_rows(store))};
	Collect		labels = {0};

	/* rows in shards are labelled there */
	bool		here = gk_store_reader(store) != &gk_rows_backend;
	GkError		err;

	if (here)
		labels.label = alloc_labels(engine, store);
	fit->options.engine.shared = &seeds;
	for (int64 k = k_min; k <= k_max; k += step)
	{
		KmChooseKRow *row = &choice->row[choice->n++];
		GkLabelSink sink = {&labels, collect, start_over};
		const GkBackend *backend;

		/* no more clusters than rows: no memory for what cannot be found */
		fit->options.engine.k = (int) Min(k, gk_store_rows(store));
		backend = here ? km_fit_devices(fit->host, &fit->options, gk_store_rows(store), gk_store_features(store), fit->options.engine.k) :
			&gk_rows_backend;
		km_check(fit->host,
				 gk_fit(store, backend, &fit->options.engine, here ? &sink : NULL, &fit->model, &err),
				 &err);
		fit->model.k_asked = (int) k;
		fit->model.load_ms = choice->n == 1 ? fit->load_ms : 0.0;
		fit->model.total_ms = fit->model.load_ms + fit->model.context_ms + fit->model.upload_ms +
			fit->model.seed_ms + fit->model.iterate_ms;
		km_stat_run(fit->source->relname, &fit->model);
		row->k = (int) k;
		row->inertia = fit->model.inertia;
		row->iterations = fit->model.iterations;
		row->converged = fit->model.converged;
		choice->fit_ms += fit->model.seed_ms + fit->model.iterate_ms;
		km_check(fit->host,
				 here ? gk_quality_labels(store, labels.label, fit->model.k, sample, &row->measures, &err) :
				 gk_rows_quality(store, &fit->model, true, sample, &row->measures, &err),
				 &err);
		gk_model_free(engine, &fit->model);
		if (row->measures.k < k)
		{
			ereport(NOTICE,
					(errmsg("found %d clusters, fewer than k = %d, and tried no larger k",
							row->measures.k, row->k),
					 errdetail("There are no more distinct points.")));
			break;
		}
	}
	fit->options.engine.shared = NULL;
	gk_shared_seeds_free(engine, &seeds);
}

void
km_choose_k(FunctionCallInfo fcinfo, KmChooseK *choice)
{
	int			k_min = km_parse_int(fcinfo, ARG_K_MIN, "k_min", 1, GK_MAX_K);
	int			k_max = km_parse_int(fcinfo, ARG_K_MAX, "k_max", k_min, GK_MAX_K);
	int			step = km_parse_int(fcinfo, ARG_STEP, "step", 1, GK_MAX_K);
	int			sample = km_parse_int(fcinfo, ARG_SAMPLE, "sample", 0, PG_INT32_MAX);
	int			not_converged = 0;
	KmTables	tables = {0};
	GkStore    *store;
	KmFit		fit;

	memset(choice, 0, sizeof(*choice));
	choice->row = palloc0(((k_max - k_min) / step + 1) * sizeof(KmChooseKRow));
	refuse_starts(fcinfo);
	km_fit_open(fcinfo, ARG_OPTIONS, NULL, false, &fit);
	kmeans_refuse_distance(fit.options.engine.distance, "kmeans_scan()");
	km_require_iterations(&fit.options);
	store = km_fit_load(&fit, NULL, &tables);
	if (store != NULL)
		fit_each_k(&fit, store, k_min, k_max, step, sample, choice);
	choice->load_ms = fit.load_ms;
	km_fit_end(&fit);

	choice->elbow = find_elbow(choice->row, choice->n);
	choice->silhouette = find_silhouette(choice->row, choice->n);
	for (int i = 0; i < choice->n; i++)
		not_converged += !choice->row[i].converged;
	if (not_converged > 0)
		ereport(NOTICE,
				(errmsg("%d of %d fits stopped after max_iter = %d iterations, before convergence",
						not_converged, choice->n, fit.options.engine.max_iter),
				 errhint("Use a larger max_iter or tol.")));
}

/*
 * kmeans_scan(relation regclass, columns text[], k_min int, k_max int, step int,
 *             <options>, sample int)
 * returns table (k, inertia, silhouette, simplified_silhouette, davies_bouldin,
 *                calinski_harabasz, iterations, converged, suggested)
 */
Datum
kmeans_scan(PG_FUNCTION_ARGS)
{
	KmResult	result;
	KmChooseK	choice;

	km_result_begin(fcinfo, &result);
	km_choose_k(fcinfo, &choice);
	for (int i = 0; i < choice.n; i++)
	{
		const KmChooseKRow *row = &choice.row[i];
		const char *why = i == choice.elbow && i == choice.silhouette ? "elbow and silhouette"
		: i == choice.elbow ? "elbow" : i == choice.silhouette ? "silhouette" : NULL;
		Datum		values[9];
		bool		nulls[9] = {false};

		values[0] = Int32GetDatum(row->k);
		values[1] = Float8GetDatum(row->inertia);
		put_measures(&row->measures, values + 2, nulls + 2);
		values[6] = Int32GetDatum(row->iterations);
		values[7] = BoolGetDatum(row->converged);
		values[8] = why != NULL ? CStringGetTextDatum(why) : (Datum) 0;
		nulls[8] = why == NULL;
		tuplestore_putvalues(result.store, result.desc, values, nulls);
	}
	return (Datum) 0;
}
