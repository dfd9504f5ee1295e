/*
 * fn_evaluate.c - kmeans_evaluate(): how good a model's clusters are.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "funcapi.h"

#include "gkmeans.h"
#include "types/model.h"
#include "functions/fn_evaluate.h"
#include "relation/rel_rules.h"

PG_FUNCTION_INFO_V1(kmeans_evaluate);

int
km_parse_sample(FunctionCallInfo fcinfo, int arg)
{
	int			sample;

	km_require_arg(fcinfo, arg, "sample");
	sample = PG_GETARG_INT32(arg);
	if (sample < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("sample must be at least 0, not %d", sample)));
	return sample;
}

Datum
km_measure_datum(double v, bool *isnull)
{
	*isnull = isnan(v);
	return Float8GetDatum(v);
}

/*
 * kmeans_evaluate(model kmeans_model, relation regclass, sample int, nonfinite text)
 * returns a record
 */
Datum
kmeans_evaluate(PG_FUNCTION_ARGS)
{
	KmReadOptions read = {.expect_of = "the model"};
	KmReadCounts counts = {0};
	KmTables	tables = {0};
	GkMeasures	measures = {0};
	Datum		values[8];
	bool		nulls[8] = {false};
	TupleDesc	desc;
	KmeansModel *value;
	GkModel		model;
	KmSource   *source;
	KmPgHost   *host;
	GkStore    *store;
	int			sample;
	int			i = 0;

	km_require_arg(fcinfo, 0, "model");
	km_require_arg(fcinfo, 1, "relation");
	sample = km_parse_sample(fcinfo, 2);
	read.skip_nonfinite = km_parse_nonfinite(fcinfo, 3);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	value = PG_GETARG_KMEANS_MODEL(0);
	kmeans_model_view(value, &model);
	read.expect_d = model.prep.d;
	read.distance = model.prep.distance;

	source = km_source_open(PG_GETARG_OID(1), km_model_columns(value), value->ncolumns,
							NULL, NULL, false);
	km_apply_simd();
	host = km_host_begin();
	store = km_read(host, source, &read, &counts, &tables);
	km_notice_left_out(&counts);
	if (store == NULL)
		ereport(NOTICE,
				(errmsg("no usable rows in \"%s\"", source->relname)));
	else
	{
		GkError		err;

		km_check(host, gk_quality_model(store, &model, sample, &measures, &err), &err);
	}
	km_host_end(host);
	if (store == NULL)
		PG_RETURN_NULL();

	values[i++] = Int32GetDatum(measures.k);
	values[i++] = Int64GetDatum(measures.rows);
	values[i++] = Float8GetDatum(measures.inertia);
	values[i] = km_measure_datum(measures.silhouette, &nulls[i]);
	i++;
	values[i] = km_measure_datum(measures.simplified, &nulls[i]);
	i++;
	values[i] = km_measure_datum(measures.davies_bouldin, &nulls[i]);
	i++;
	values[i] = km_measure_datum(measures.calinski_harabasz, &nulls[i]);
	i++;
	values[i++] = Int64GetDatum(measures.sample);
	Assert(i == lengthof(values) && i == desc->natts);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
