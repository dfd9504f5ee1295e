/*
 * fn_centroid_table.c - the option centroid_table: a fit begins with the rows of a table.
 *
 * A model is one value, and so is the array that the option centroids takes: 1 GB at most.  The
 * rows that kmeans() returns have no such limit on all of them together, and this reads them back,
 * one after the other, by the reader of a query's rows.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "core/store/gk_batch.h"
#include "functions/functions.h"

typedef struct Centroids
{
	const GkHost *host;
	int			k;
	int			d;
	int			rows;			/* so far */
	double	   *value;			/* [k][d] */
} Centroids;

/* A GkTake. */
static GkStatus
take_centroids(void *arg, GkStore *store, const GkBatch *batch, GkError *err)
{
	Centroids  *c = arg;

	if (c->value == NULL)
	{
		c->d = gk_store_features(store);
		c->value = gk_alloc(c->host, (size_t) c->k * c->d, sizeof(double));
		if (c->value == NULL)
			return gk_fail(err, GK_ERR_MEMORY, "out of memory for %d centroids of %d features", c->k, c->d);
	}
	for (int i = 0; i < batch->rows && c->rows < c->k; i++, c->rows++)
		for (int j = 0; j < c->d; j++)
		{
			const void *column = gk_batch_column(batch, j);

			c->value[(size_t) c->rows * c->d + j] = batch->wide[j] ? ((const double *) column)[i] : ((const float *) column)[i];
		}
	return GK_OK;
}

/* An ERROR unless the table has the clusters 0 to k - 1: a centroid's place is its number. */
static void
check_numbers(const char *relname, const char *qualified, int k)
{
	char	   *sql = psprintf("SELECT pg_catalog.count(*), pg_catalog.count(DISTINCT cluster), pg_catalog.min(cluster)::pg_catalog.int8, pg_catalog.max(cluster)::pg_catalog.int8 FROM %s", qualified);
	int64		value[4];
	bool		null[4];

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(sql, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not count the rows of %s", qualified);
	for (int i = 0; i < 4; i++)
		value[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &null[i]));
	SPI_finish();
	if (value[0] != k)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("centroid_table \"%s\" has " INT64_FORMAT " rows, but k is %d", relname, value[0], k),
				 value[0] > 0 && value[0] <= GK_MAX_K ? errhint("Use k => " INT64_FORMAT ".", value[0]) : 0));
	if (value[1] != k || value[2] != 0 || value[3] != k - 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"cluster\" of centroid_table \"%s\" does not have the numbers 0 to %d once each", relname, k - 1),
				 errhint("They are the clusters' numbers in the result; row_number() - 1 makes such a column.")));
}

void
km_fit_centroid_table(Oid table, KmFit *fit)
{
	char	   *relname = get_rel_name(table);
	KmReadOptions read = {.distance = fit->options.engine.distance,.take = take_centroids,.silent = true,.skip_nonfinite = true};
	KmReadCounts counts = {0};
	KmTables	tables = {0};
	Centroids	c = {.k = fit->options.engine.k};
	char	   *qualified;
	KmSource   *source;

	if (fit->options.engine.centroids != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s and centroid_table cannot both be given", fit->options.given_by)));
	if (relname == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", table)));
	qualified = quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), relname);
	check_numbers(relname, qualified, c.k);
	source = km_source_of_query(psprintf("SELECT centroid FROM %s ORDER BY cluster", qualified), NULL);
	source->relname = relname;

	km_apply_simd();
	if (fit->host == NULL)
		fit->host = km_host_begin();
	c.host = km_host_engine(fit->host);
	read.take_arg = &c;
	gk_store_free(km_read(fit->host, source, &read, &counts, &tables));
	if (c.rows != c.k)
		ereport(ERROR,
				(errcode(counts.null_feature > 0 ? ERRCODE_NULL_VALUE_NOT_ALLOWED : ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("centroids of centroid_table \"%s\" must not %s", relname,
						counts.null_feature > 0 ? "be or contain NULL" : counts.nonfinite > 0 ? "contain NaN or infinity" : "be zero, without direction")));
	fit->options.engine.init = GK_INIT_CENTROIDS;
	fit->options.engine.centroids = c.value;
	fit->options.engine.n_init = 1;
	fit->options.given_d = c.d;
	fit->options.given_by = "centroid_table";
}
