/*
 * gkmeans_step_relation.c - kmeans_step(relation, columns, model): the part of a
 * step that a whole relation has, as a state.
 *
 * The relation is read by the aggregate, in a query of the caller's: privileges,
 * row-level security, partitions, foreign tables and parallel workers are
 * PostgreSQL's business, and memory is that of one state.  A coordinator calls
 * it on every shard and combines what comes back.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "gkmeans.h"
#include "gkmeans_state.h"

PG_FUNCTION_INFO_V1(kmeans_step_relation);

/*
 * Exact sums need no row order, so the query may run in parallel.  The aggregate
 * is named with the schema this function is in.
 */
static char *
step_query(Oid function, const GkSource *source)
{
	StringInfoData q;

	initStringInfo(&q);
	appendStringInfo(&q, "SELECT %s($1, ",
					 quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
												"kmeans_step_partial"));
	if (source->weighted && !source->array)
		appendStringInfoString(&q, "ARRAY[");
	for (int i = 0; i < source->ncolumns; i++)
		appendStringInfo(&q, "%s%s%s", i > 0 ? ", " : "", quote_identifier(source->columns[i]),
						 source->weighted && !source->array ? "::pg_catalog.float8" : "");
	if (source->weighted && source->array)
		appendStringInfoString(&q, "::pg_catalog.float8[]");
	else if (source->weighted)
		appendStringInfoChar(&q, ']');
	if (source->weighted)
		appendStringInfo(&q, ", %s::pg_catalog.float8", quote_identifier(source->weight_column));
	appendStringInfo(&q, ") FROM %s", source->qualified);
	return q.data;
}

/*
 * kmeans_step(relation regclass, columns text[], model kmeans_model, weight_column text)
 * returns kmeans_state
 */
Datum
kmeans_step_relation(PG_FUNCTION_ARGS)
{
	Oid			function = fcinfo->flinfo->fn_oid;
	char	  **columns;
	int			ncolumns;
	GkSource   *source;
	Oid		   *argtypes;
	int			nargs;
	KmeansModel *model;
	Datum		value;
	Datum		state = (Datum) 0;
	bool		isnull;

	gk_require_arg(fcinfo, 0, "relation");
	gk_require_arg(fcinfo, 1, "columns");
	gk_require_arg(fcinfo, 2, "model");
	columns = gk_column_names(PG_GETARG_ARRAYTYPE_P(1), &ncolumns);
	model = PG_GETARG_KMEANS_MODEL(2);
	source = gk_source_open(PG_GETARG_OID(0), columns, ncolumns, gk_parse_text(fcinfo, 3), NULL, false);
	if (!source->array && ncolumns != model->d)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there are %d columns, but the model has %d features", ncolumns, model->d)));

	(void) get_func_signature(function, &argtypes, &nargs);
	value = PointerGetDatum(model);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	if (SPI_execute_with_args(step_query(function, source), 1, &argtypes[2], &value, NULL, true, 0) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "the step's query returned %llu rows", (unsigned long long) SPI_processed);
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (!isnull)
		state = SPI_datumTransfer(value, false, -1);
	SPI_finish();
	if (isnull)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(state);
}
