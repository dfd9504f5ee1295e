/*
 * fn_centroid_table.c - the rows of a table of centroids; the option centroid_table: a fit begins with them.
 *
 * A model is one value, and so is the array that the option centroids takes: 1 GB at most.  The
 * rows that kmeans() returns have no such limit on all of them together, and this reads them back,
 * one after the other, by the reader of a query's rows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "core/store/gk_batch.h"
#include "functions/functions.h"
#include "relation/rel_types.h"

/* ---- the table ---- */

/* The type of a column that the table has to have. */
static Oid
require_column(Oid table, const KmCentroids *c, const char *name)
{
	AttrNumber	attnum = get_attnum(table, name);

	if (attnum == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name, c->relname),
				 errhint("A table of centroids has the columns cluster and centroid, as the rows of kmeans() do. A view gives others these names.")));
	return get_atttype(table, attnum);
}

static bool
is_integer(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

static void
refuse_type(const KmCentroids *c, const char *name, Oid type, const char *wanted, const char *cast)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" of relation \"%s\" is of type %s, not %s", name, c->relname, format_type_be(type), wanted),
			 errhint("A view can make it one: %s.", cast)));
}

/* No other types: casts of theirs could be anyone's functions. */
static void
open_table(Oid table, KmCentroids *c)
{
	KmColumnKind kind;
	Oid			type;

	c->relname = get_rel_name(table);
	if (c->relname == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", table)));
	type = require_column(table, c, "cluster");
	if (!is_integer(getBaseType(type)))
		refuse_type(c, "cluster", type, "an integer", "cluster::int");
	type = require_column(table, c, "centroid");
	if (!km_classify(km_base_type(type), &kind))
		refuse_type(c, "centroid", type, "an array of numbers or a vector", "centroid::real[]");
	c->qualified = quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), c->relname);
}

/* An ERROR unless there are k rows, or a number of rows that k may be. */
static void
check_rows(KmCentroids *c, int64 rows)
{
	if (c->k > 0 && rows != c->k)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("centroid_table \"%s\" has " INT64_FORMAT " rows, but k is %d", c->relname, rows, c->k),
				 rows > 0 && rows <= GK_MAX_K ? errhint("Use k => " INT64_FORMAT ".", rows) : 0));
	if (rows == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("centroid_table \"%s\" has no rows", c->relname),
				 errhint("There is a row for each cluster, as in the result of kmeans().")));
	if (rows > GK_MAX_K)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("centroid_table \"%s\" has " INT64_FORMAT " rows, the limit is %d", c->relname, rows, GK_MAX_K)));
	c->k = (int) rows;
}

/* An ERROR unless the table has the clusters 0 to k - 1: a centroid's place is its number. */
static void
check_numbers(KmCentroids *c)
{
	char	   *sql = psprintf("SELECT pg_catalog.count(*), pg_catalog.count(DISTINCT " KM_CLUSTER "), pg_catalog.min(" KM_CLUSTER "), pg_catalog.max(" KM_CLUSTER ") FROM %s", c->qualified);
	int64		value[4];
	bool		null[4];

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(sql, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not count the rows of %s", c->qualified);
	for (int i = 0; i < 4; i++)
		value[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &null[i]));
	SPI_finish();
	check_rows(c, value[0]);
	if (value[1] != c->k || value[2] != 0 || value[3] != c->k - 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"cluster\" of centroid_table \"%s\" does not have the numbers 0 to %d once each", c->relname, c->k - 1),
				 errhint("They are the clusters' numbers in the result; row_number() - 1 makes such a column.")));
}

/* ---- the rows ---- */

static void
check_size(void *arg)
{
	const KmCentroids *c = arg;

	kmeans_model_check_size(c->k, c->d, 0, 0);
}

/* A GkTake. */
static GkStatus
take_centroids(void *arg, GkStore *store, const GkBatch *batch, GkError *err)
{
	KmCentroids *c = arg;

	if (c->value == NULL)
	{
		c->d = gk_store_features(store);
		if (c->as_model && !km_host_guard(c->host, check_size, c))
			return gk_fail(err, GK_ERR_HOST, "too many centroids");
		c->value = gk_alloc(km_host_engine(c->host), (size_t) c->k * c->d, sizeof(double));
		if (c->value == NULL)
			return gk_fail(err, GK_ERR_MEMORY, "out of memory for %d centroids of %d features", c->k, c->d);
	}
	for (int i = 0; i < batch->rows; i++, c->rows++)
		for (int j = 0; j < c->d && c->rows < c->k; j++)
		{
			const void *column = gk_batch_column(batch, j);

			c->value[(size_t) c->rows * c->d + j] = batch->wide[j] ? ((const double *) column)[i] : ((const float *) column)[i];
		}
	return GK_OK;
}

void
km_centroids_require(const KmCentroids *c, int64 rows)
{
	if (rows != c->k)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("centroid_table \"%s\" had %d rows, and " INT64_FORMAT " when it was read again", c->relname, c->k, rows),
				 errhint("Does a view call random(), or another volatile function? Make a table of its rows.")));
}

void
km_centroids_read(Oid table, GkDistance distance, KmCentroids *c)
{
	KmReadOptions read = {.distance = distance,.take = take_centroids,.take_arg = c,.silent = true,.skip_nonfinite = true};
	KmReadCounts counts = {0};
	KmTables	tables = {0};
	KmSource   *source;

	open_table(table, c);
	check_numbers(c);
	km_apply_simd();
	if (c->host == NULL)
		c->host = km_host_begin();
	source = km_source_of_query(psprintf("SELECT centroid FROM %s ORDER BY " KM_CLUSTER, c->qualified), NULL);
	source->relname = c->relname;
	gk_store_free(km_read(c->host, source, &read, &counts, &tables));
	km_centroids_require(c, c->rows + km_group_rows_left_out(&counts));
	if (c->rows != c->k)
		ereport(ERROR,
				(errcode(counts.null_feature > 0 ? ERRCODE_NULL_VALUE_NOT_ALLOWED : ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("centroids of centroid_table \"%s\" must not %s", c->relname,
						counts.null_feature > 0 ? "be or contain NULL" : counts.nonfinite > 0 ? "contain NaN or infinity" : "be zero, without direction")));
}

/* ---- a fit that begins with them ---- */

void
km_fit_centroid_table(Oid table, KmFit *fit)
{
	KmCentroids c = {.host = fit->host,.k = fit->options.engine.k};

	if (fit->options.engine.centroids != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s and centroid_table cannot both be given", fit->options.given_by)));
	km_centroids_read(table, fit->options.engine.distance, &c);
	fit->host = c.host;
	fit->options.engine.init = GK_INIT_CENTROIDS;
	fit->options.engine.centroids = c.value;
	fit->options.engine.n_init = 1;
	fit->options.given_d = c.d;
	fit->options.given_by = "centroid_table";
}
