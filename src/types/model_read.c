/*
 * model_read.c - kmeans_table and kmeans_explain: a model for people to read, feature by feature.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "core/gk_numerics.h"
#include "pg/pg.h"
#include "types/model.h"

PG_FUNCTION_INFO_V1(kmeans_table);
PG_FUNCTION_INFO_V1(kmeans_explain);

#define MOST_DIGITS	17

/* What each feature is called: its column, or its place in the array. */
static char **
feature_names(const KmeansModel *v)
{
	char	  **columns = kmeans_model_columns(v);
	char	  **names = palloc(v->d * sizeof(char *));

	for (int j = 0; j < v->d; j++)
		names[j] = v->ncolumns > 0 && !v->columns_array ? columns[j] :
			psprintf("%s[%d]", v->columns_array ? columns[0] : "", j + 1);
	return names;
}

/* ---- a row a cluster ---- */

/* Below this, a double tells each whole number from the next. */
#define WHOLE_LIMIT	0x1p53

/* A number with so many digits, or all of its integer part if that has more. */
static void
append_rounded(StringInfo to, double value, int digits)
{
	bool		whole = fabs(value) >= pow(10.0, digits) && fabs(value) < WHOLE_LIMIT;

	appendStringInfo(to, "%.*g", whole ? 16 : digits, whole ? rint(value) : value + 0.0);
}

static Datum
features_as_json(char *const *names, const double *centroid, int d, int digits)
{
	StringInfoData json;

	initStringInfo(&json);
	for (int j = 0; j < d; j++)
	{
		appendStringInfoString(&json, j == 0 ? "{" : ", ");
		escape_json(&json, names[j]);
		appendStringInfoString(&json, ": ");
		append_rounded(&json, centroid[j], digits);
	}
	appendStringInfoChar(&json, '}');
	return CStringGetTextDatum(json.data);
}

/* kmeans_table(model kmeans_model, digits int) returns table (cluster int, size bigint, centroid json) */
Datum
kmeans_table(PG_FUNCTION_ARGS)
{
	const KmeansModel *v = PG_GETARG_KMEANS_MODEL(0);
	int			digits = km_parse_int(fcinfo, 1, "digits", 1, MOST_DIGITS);
	char	  **names = feature_names(v);
	KmResult	result;
	GkModel		m;

	kmeans_model_view(v, &m);
	m = km_clusters_of(&m);
	km_result_begin(fcinfo, &result);
	for (int c = 0; c < m.k; c++)
	{
		Datum		values[3] = {Int32GetDatum(c), Int64GetDatum(m.size[c]),
		features_as_json(names, m.centroids + (int64) c * m.prep.d, m.prep.d, digits)};
		bool		nulls[3] = {false};

		CHECK_FOR_INTERRUPTS();
		tuplestore_putvalues(result.store, result.desc, values, nulls);
		pfree(DatumGetPointer(values[2]));
	}
	return (Datum) 0;
}

/* ---- what sets a cluster apart ---- */

/* The mean of the centroids, by their sizes; of no rows, of all centroids alike. */
static double *
overall_mean(const GkModel *m)
{
	double	   *mean = palloc0(m->prep.d * sizeof(double));
	double		rows = 0.0;

	for (int c = 0; c < m->k; c++)
		rows += m->size[c];
	for (int c = 0; c < m->k; c++)
	{
		CHECK_FOR_INTERRUPTS();
		for (int j = 0; j < m->prep.d; j++)
			mean[j] += m->centroids[(int64) c * m->prep.d + j] * (rows > 0.0 ? m->size[c] / rows : 1.0 / m->k);
	}
	return mean;
}

typedef struct Trait
{
	int			feature;
	double		difference;
	double		measured;		/* in the units of distances */
} Trait;

/* The largest first, then in the order of the features. */
static int
compare_traits(const void *a, const void *b)
{
	const Trait *x = a;
	const Trait *y = b;
	double		difference = fabs(y->measured) - fabs(x->measured);

	return difference > 0.0 ? 1 : difference < 0.0 ? -1 : x->feature - y->feature;
}

/* A cluster's differences to the mean, sorted; returns the largest. */
static double
find_traits(const GkModel *m, int cluster, const double *mean, Trait *traits)
{
	for (int j = 0; j < m->prep.d; j++)
	{
		double		difference = m->centroids[(int64) cluster * m->prep.d + j] - mean[j];

		traits[j].feature = j;
		traits[j].difference = difference;
		traits[j].measured = m->prep.standardize ? ldexp(difference * m->prep.scale[j], -m->prep.unit_exp) : difference;
	}
	qsort(traits, m->prep.d, sizeof(Trait), compare_traits);
	return fabs(traits[0].measured);
}

/* What a difference adds to a distance.  Those of a cluster are divided by its largest: then squares stay in range. */
static double
term(const GkModel *m, const Trait *trait, double largest)
{
	double		part = largest > 0.0 ? fabs(trait->measured) / largest : 0.0;

	return m->prep.distance == GK_MANHATTAN ? part : part * part;
}

/*
 * kmeans_explain(model kmeans_model) returns table (cluster int, feature text, value float8,
 * overall float8, difference float8, deviations float8, share float8)
 */
Datum
kmeans_explain(PG_FUNCTION_ARGS)
{
	const KmeansModel *v = PG_GETARG_KMEANS_MODEL(0);
	char	  **names = feature_names(v);
	KmResult	result;
	GkModel		m;
	double	   *mean;
	Trait	   *traits;

	kmeans_model_view(v, &m);
	m = km_clusters_of(&m);
	mean = overall_mean(&m);
	traits = palloc(m.prep.d * sizeof(Trait));
	km_result_begin(fcinfo, &result);
	for (int c = 0; c < m.k; c++)
	{
		double		largest = find_traits(&m, c, mean, traits);
		double		sum = 0.0;

		for (int j = 0; j < m.prep.d; j++)
			sum += term(&m, &traits[j], largest);
		for (int j = 0; j < m.prep.d; j++)
		{
			const Trait *t = &traits[j];
			Datum		values[7] = {Int32GetDatum(c), CStringGetTextDatum(names[t->feature]),
				Float8GetDatum(m.centroids[(int64) c * m.prep.d + t->feature]), Float8GetDatum(mean[t->feature]),
			Float8GetDatum(t->difference), Float8GetDatum(t->measured), Float8GetDatum(sum > 0.0 ? term(&m, t, largest) / sum : 0.0)};
			bool		nulls[7] = {false, false, false, false, false, !m.prep.standardize, sum == 0.0};

			CHECK_FOR_INTERRUPTS();
			tuplestore_putvalues(result.store, result.desc, values, nulls);
			pfree(DatumGetPointer(values[1]));
		}
	}
	return (Datum) 0;
}
