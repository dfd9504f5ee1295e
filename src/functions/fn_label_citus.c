/*
 * fn_label_citus.c - labels of tables of Citus: by the model, in a statement that Citus runs where
 * the rows are.
 *
 * A row's place says nothing over several servers, and no statement that Citus sends to them can ask
 * this process for a label.  But a label is a function of the model and the row, so
 *
 *	 UPDATE t SET label = gkmeans_label(model, columns) WHERE it is another one
 *
 * gives each row the label that the fit gave it, in the caller's transaction.  Rows that have
 * come or changed since the fit read them get the label of what they are now.  Tables whose rows have
 * no ctid fill a table of labels in the same way.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

#include "functions/functions.h"

/* A function has at most FUNC_MAX_ARGS arguments; the first one is the model. */
#define MOST_FEATURES	(FUNC_MAX_ARGS - 1)

/* What float8 rounds to an infinity, from here on, and to 0, up to here: 2^1024 - 2^970 and 2^-1075. */
#define ROUNDED_UP		"1.7976931348623158079e308"
#define ROUNDED_DOWN	"2.4703282292062327208e-324"

/*
 * A number as float8.  The cast has an error for a numeric out of its range, which the fit has taken for an
 * infinity, or 0.  NaN is as good as an infinity: such a point has no label.
 */
static char *
as_float8(KmValueType type, const char *x)
{
	if (type != KM_VALUE_NUMERIC)
		return psprintf("(%s)::pg_catalog.float8", x);
	return psprintf("CASE WHEN pg_catalog.abs(%s) OPERATOR(pg_catalog.>=) " ROUNDED_UP " THEN 'NaN' "
					"WHEN pg_catalog.abs(%s) OPERATOR(pg_catalog.<=) " ROUNDED_DOWN " THEN 0 ELSE %s::pg_catalog.float8 END", x, x, x);
}

/* The features as arguments. */
static char *
features(const KmSource *source)
{
	bool		many = source->ncolumns > MOST_FEATURES;
	StringInfoData list;

	initStringInfo(&list);
	for (int r = 0; r < source->nruns; r++)
		for (int i = source->runs[r].first; i < source->runs[r].end; i++)
			appendStringInfo(&list, "%s%s", i > 0 ? ", " : "",
							 many ? as_float8(source->runs[r].type, source->feature[i]) : source->feature[i]);
	return many ? psprintf("ARRAY[%s]", list.data) : list.data;
}

/* A row's label by the model $1; NULL for a row that the fit leaves out. */
static char *
label(const KmSource *source, const char *schema)
{
	char	   *call = psprintf("%s($1, %s)", quote_qualified_identifier(schema, "gkmeans_label"), features(source));

	return source->weight == NULL ? call :
		psprintf("CASE WHEN (%s) OPERATOR(pg_catalog.>) 0 THEN %s END", as_float8(source->weight_type, source->weight), call);
}

/* A command that reads or updates the source's relation, by its name: ERROR when that is another one now. */
static void
run(const char *sql, const KmSource *source, const KmeansModel *model, Oid type, int expected)
{
	Datum		value = PointerGetDatum(model);
	char		null = model == NULL ? 'n' : ' ';
	SPIPlanPtr	plan = SPI_prepare(sql, 1, &type);
	int			result = plan == NULL ? SPI_result : SPI_execute_plan(plan, &value, &null, false, 0);

	if (result != expected)
		elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(result));
	if (!list_member_oid(((CachedPlanSource *) linitial(SPI_plan_get_plan_sources(plan)))->relationOids, source->relid))
		km_source_changed(source);
}

static Oid
model_type(const char *schema)
{
	return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("kmeans_model"),
						   ObjectIdGetDatum(get_namespace_oid(schema, false)));
}

void
km_label_citus_column(const KmSource *source, const KmeansModel *model, const char *schema)
{
	const char *column = quote_identifier(source->label_column);
	char	   *new_label = label(source, schema);

	SPI_connect();
	if (source->label_missing &&
		SPI_execute(psprintf("ALTER TABLE %s ADD COLUMN %s pg_catalog.int4", source->qualified, column), false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not add column \"%s\"", source->label_column);
	run(psprintf("UPDATE %s AS t SET %s = %s WHERE CASE WHEN %s IS NULL THEN %s IS NOT NULL "
				 "ELSE (%s OPERATOR(pg_catalog.=) %s) IS NOT TRUE END",
				 source->qualified, column, new_label, column, new_label, column, new_label),
		source, model, model_type(schema), SPI_OK_UPDATE);
	SPI_finish();
}

void
km_label_table_by_model(const KmSource *source, const char *label_table, const char *id_columns, const KmeansModel *model,
						const char *schema)
{
	SPI_connect();
	run(psprintf("INSERT INTO %s SELECT %s%s FROM %s", label_table, id_columns, label(source, schema), source->qualified),
		source, model, model_type(schema), SPI_OK_INSERT);
	SPI_finish();
}
