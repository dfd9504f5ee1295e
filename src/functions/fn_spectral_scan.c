/*
 * fn_spectral_scan.c - kmeans_spectral_scan(): how many clusters a spectral model's space has.
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"

#include "core/spectral/gk_spectral.h"
#include "functions/functions.h"

PG_FUNCTION_INFO_V1(kmeans_spectral_scan);

static void
put_row(KmResult *result, const GkSpectralScan *scan, int i)
{
	const struct GkSpectralScanRow *row = &scan->row[i];
	const char *why = i == scan->gap && i == scan->silhouette ? "eigengap and silhouette"
	: i == scan->gap ? "eigengap" : i == scan->silhouette ? "silhouette" : NULL;
	Datum		values[6];
	bool		nulls[6] = {false};

	values[0] = Int32GetDatum(row->k);
	values[1] = Float8GetDatum(row->value);
	values[2] = Float8GetDatum(row->gap);
	nulls[2] = isnan(row->gap);
	values[3] = Float8GetDatum(row->strength);
	nulls[3] = isnan(row->strength);
	values[4] = Float8GetDatum(row->silhouette);
	nulls[4] = isnan(row->silhouette);
	values[5] = why != NULL ? CStringGetTextDatum(why) : (Datum) 0;
	nulls[5] = why == NULL;
	tuplestore_putvalues(result->store, result->desc, values, nulls);
}

/*
 * kmeans_spectral_scan(model kmeans_model, k_min int, k_max int)
 * returns table (k int, eigenvalue float8, gap float8, strength float8, silhouette float8, suggested text)
 */
Datum
kmeans_spectral_scan(PG_FUNCTION_ARGS)
{
	KmeansModel *value;
	int			k_min = km_parse_int(fcinfo, 1, "k_min", 1, GK_MAX_REPRESENTATIVES);
	int			k_max = km_parse_int(fcinfo, 2, "k_max", k_min, GK_MAX_REPRESENTATIVES);
	GkSpectralScan scan = {0};
	GkModel		model;
	KmResult	result;
	KmPgHost   *host;
	GkError		err;

	km_require_arg(fcinfo, 0, "model");
	value = PG_GETARG_KMEANS_MODEL(0);
	kmeans_model_require_spectral(value, "kmeans_spectral_scan()");
	kmeans_model_view(value, &model);
	km_result_begin(fcinfo, &result);
	scan.row = palloc((k_max - k_min + 1) * sizeof(struct GkSpectralScanRow));
	km_apply_simd();
	host = km_host_begin();
	km_check(host, gk_spectral_scan(km_host_engine(host), &model, k_min, k_max, &scan, &err), &err);
	km_host_end(host);
	for (int i = 0; i < scan.n; i++)
		put_row(&result, &scan, i);
	if (scan.kept < k_max)
		ereport(NOTICE,
				(errmsg_plural("the graph has %d representative, fewer than k_max = %d",
							   "the graph has %d representatives, fewer than k_max = %d",
							   scan.kept, scan.kept, k_max),
				 errdetail("No larger k was tried.")));
	return (Datum) 0;
}
