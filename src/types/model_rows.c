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

/* Columns of kmeans_info() that only spectral models have. */
#define SPECTRAL_COLUMNS	10

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

/* The columns of a spectral model; NULLs for others.  Returns their number. */
static int
spectral_columns(const GkModel *m, Datum *values, bool *nulls)
{
	const GkSpectral *s = &m->spectral;
	double	   *gap;
	int			i = 0;

	if (s->k == 0)
	{
		memset(nulls, true, SPECTRAL_COLUMNS);
		return SPECTRAL_COLUMNS;
	}
	gap = palloc(Max(s->neigenvalues, 1) * sizeof(double));
	for (int g = 0; g < s->neigenvalues - 1; g++)
		gap[g] = s->eigenvalue[g + 1] - s->eigenvalue[g];
	values[i++] = Int32GetDatum(m->k);
	values[i++] = km_float8_array(s->eigenvalue, s->neigenvalues);
	values[i++] = km_float8_array(gap, Max(s->neigenvalues - 1, 0));
	values[i++] = CStringGetTextDatum(kmeans_choice_words[s->choice]);
	values[i++] = Float8GetDatum(s->strength);
	values[i++] = Int32GetDatum(s->components);
	values[i++] = Int32GetDatum(s->cut_off);
	values[i++] = Float8GetDatum(s->graph_ms);
	values[i++] = Float8GetDatum(s->eigen_ms);
	values[i++] = Float8GetDatum(s->embed_ms);
	Assert(i == SPECTRAL_COLUMNS);
	return i;
}

/* kmeans_info(model) returns a record */
Datum
kmeans_info(PG_FUNCTION_ARGS)
{
	const KmeansModel *v = PG_GETARG_KMEANS_MODEL(0);
	Datum		values[22 + SPECTRAL_COLUMNS] = {0};
	bool		nulls[22 + SPECTRAL_COLUMNS] = {false};
	GkModel		m;
	int			i = 0;

	kmeans_model_view(v, &m);
	values[i++] = Int32GetDatum(m.spectral.k > 0 ? m.spectral.k : m.k);
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
	values[i++] = CStringGetTextDatum(kmeans_distance_words[m.prep.distance == GK_PARTIAL ? GK_EUCLIDEAN : m.prep.distance]);
	values[i++] = BoolGetDatum(m.prep.standardize);
	values[i++] = CStringGetTextDatum(kmeans_nulls_word(&m));
	nulls[i] = m.fill == NULL;
	values[i++] = m.fill == NULL ? (Datum) 0 : km_float8_array(m.fill, m.prep.d);
	values[i++] = CStringGetTextDatum(m.device);
	values[i++] = CStringGetTextDatum(m.strategy);
	values[i++] = Float8GetDatum(m.load_ms);
	nulls[i] = nulls[i + 1] = !KMEANS_MODEL_GPU_TIMES(&m);
	values[i++] = Float8GetDatum(m.context_ms);
	values[i++] = Float8GetDatum(m.upload_ms);
	values[i++] = Float8GetDatum(m.seed_ms);
	values[i++] = Float8GetDatum(m.iterate_ms);
	values[i++] = Float8GetDatum(m.total_ms);
	i += spectral_columns(&m, values + i, nulls + i);
	PG_RETURN_DATUM(km_result_record(fcinfo, values, nulls, i));
}
