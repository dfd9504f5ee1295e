/*
 * fn_balanced.c - kmeans_balanced() and kmeans_balanced_fit(): clusters of bounded sizes.
 */
#include "postgres.h"

#include "functions/functions.h"

PG_FUNCTION_INFO_V1(kmeans_balanced);
PG_FUNCTION_INFO_V1(kmeans_balanced_fit);

/* The arguments between k and label_column or <options>. */
enum
{
	ARG_MIN_SIZE = 3, ARG_MAX_SIZE, ARG_REST
};

/* A number of rows. */
static int64
parse_size(FunctionCallInfo fcinfo, int arg, const char *name, int64 if_null)
{
	int64		size = PG_ARGISNULL(arg) ? if_null : PG_GETARG_INT64(arg);

	if (size < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least 1, not " INT64_FORMAT, name, size),
				 errhint("Use NULL for no bound: no cluster is empty in any case.")));
	return size;
}

/* Rows have to be kept, and the CPU assigns them. */
static void
refuse_roads(const KmFit *fit)
{
	if (fit->options.scan || fit->schema != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("kmeans_balanced() cannot be used %s",
						fit->schema != NULL ? "with a distributed table" : "with gkmeans.strategy 'scan'"),
				 errdetail("Rows are read again in every pass there, and none are kept."),
				 errhint("Make a local table of the rows, and use another gkmeans.strategy.")));
	if (km_wants_gpu(fit->options.device))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("kmeans_balanced() does not run on a GPU"),
				 errhint("Use device => 'cpu'.")));
}

static void
open_fit(FunctionCallInfo fcinfo, int first_option, const char *label_column, KmFit *fit)
{
	int64		min_size = parse_size(fcinfo, ARG_MIN_SIZE, "min_size", 1);
	int64		max_size = parse_size(fcinfo, ARG_MAX_SIZE, "max_size", PG_INT64_MAX);

	if (min_size > max_size)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("min_size = " INT64_FORMAT " is more than max_size = " INT64_FORMAT, min_size, max_size),
				 errhint("Use a min_size of at most max_size.")));
	km_fit_open(fcinfo, first_option, label_column, false, fit);
	kmeans_refuse_distance(fit->options.engine.distance, "kmeans_balanced()");
	km_fit_bring(fit);
	refuse_roads(fit);
	fit->balanced = true;
	fit->options.device = GK_DEVICE_CPU;
	fit->options.engine.min_size = min_size;
	fit->options.engine.max_size = max_size;
}

/*
 * kmeans_balanced(relation regclass, columns text[], k int, min_size bigint, max_size bigint,
 *                 label_column text, <options>)
 * returns table (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
 */
Datum
kmeans_balanced(PG_FUNCTION_ARGS)
{
	char	   *label_column = km_parse_text(fcinfo, ARG_REST);
	KmResult	result;
	KmFit		fit;

	km_result_begin(fcinfo, &result);
	open_fit(fcinfo, ARG_REST + 1, label_column, &fit);
	km_relabel_fit(fcinfo, &fit, fit.options.engine.k, &result);
	return (Datum) 0;
}

/*
 * kmeans_balanced_fit(relation regclass, columns text[], k int, min_size bigint, max_size bigint,
 *                     <options>)
 * returns kmeans_model
 */
Datum
kmeans_balanced_fit(PG_FUNCTION_ARGS)
{
	KmeansModel *model = NULL;
	KmFit		fit;

	open_fit(fcinfo, ARG_REST, NULL, &fit);
	fit.as_model = true;
	if (km_fit_run(&fit, NULL))
		model = km_fit_model(&fit);
	km_fit_end(&fit);
	if (model == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(model);
}
