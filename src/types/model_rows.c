/*
 * model_rows.c - kmeans_centroids and kmeans_info: a model as rows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "pg/pg.h"
#include "types/model.h"

PG_FUNCTION_INFO_V1(kmeans_centroids);
PG_FUNCTION_INFO_V1(kmeans_info);

/* kmeans_centroids(model) returns table (cluster, size, centroid, inertia, radius) */
Datum
kmeans_centroids(PG_FUNCTION_ARGS)
{
	const KmeansModel *v = PG_GETARG_KMEANS_MODEL(0);
	KmResult	result;
	GkModel		m;

	kmeans_model_view(v, &m);
	km_result_begin(fcinfo, &result);
	km_result_clusters(&result, &m);
	return (Datum) 0;
}

/* The names of the columns as text[]. */
static Datum
column_array(const KmeansModel *v)
{
	char	  **columns = kmeans_model_columns(v);
	Datum	   *names = palloc(v->ncolumns * sizeof(Datum));

	for (int i = 0; i < v->ncolumns; i++)
		names[i] = CStringGetTextDatum(columns[i]);
	return PointerGetDatum(construct_array(names, v->ncolumns, TEXTOID, -1, false, TYPALIGN_INT));
}

/* kmeans_info(model) returns a record */
Datum
kmeans_info(PG_FUNCTION_ARGS)
{
	const KmeansModel *v = PG_GETARG_KMEANS_MODEL(0);
	Datum		values[20];
	bool		nulls[20] = {false};
	GkModel		m;
	int			i = 0;

	kmeans_model_view(v, &m);
	values[i++] = Int32GetDatum(m.k);
	values[i++] = Int32GetDatum(m.prep.d);
	nulls[i] = v->ncolumns == 0;
	values[i++] = v->ncolumns == 0 ? (Datum) 0 : column_array(v);
	values[i++] = Int64GetDatum(m.rows_used);
	values[i++] = Int64GetDatum(m.rows_skipped);
	values[i++] = Int32GetDatum(m.iterations);
	values[i++] = BoolGetDatum(m.converged);
	values[i++] = Float8GetDatum(m.inertia);
	values[i++] = Int64GetDatum(m.seed);
	values[i++] = CStringGetTextDatum(kmeans_init_words[m.init]);
	values[i++] = CStringGetTextDatum(kmeans_distance_words[m.prep.distance]);
	values[i++] = BoolGetDatum(m.prep.standardize);
	values[i++] = CStringGetTextDatum(m.device);
	values[i++] = CStringGetTextDatum(m.strategy);
	values[i++] = Float8GetDatum(m.load_ms);
	nulls[i] = nulls[i + 1] = !KMEANS_MODEL_GPU_TIMES(&m);
	values[i++] = Float8GetDatum(m.context_ms);
	values[i++] = Float8GetDatum(m.upload_ms);
	values[i++] = Float8GetDatum(m.seed_ms);
	values[i++] = Float8GetDatum(m.iterate_ms);
	values[i++] = Float8GetDatum(m.total_ms);
	PG_RETURN_DATUM(km_result_record(fcinfo, values, nulls, i));
}
