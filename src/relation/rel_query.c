/*
 * rel_query.c - what to read: a query that the caller gives.
 *
 * The caller's SELECT is parsed and stands in the FROM of ours, which casts its columns, as a view
 * would: PostgreSQL plans both as one.  It runs with the caller's rights, in a transaction that is
 * read-only meanwhile.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "parser/analyze.h"
#include "tcop/cmdtag.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "pg/pg_compat.h"
#include "relation/rel_types.h"
#include "relation/relation.h"

#define USE_SELECT	"Give 'SELECT ln(visits), spent FROM customers', say."

void
km_query_error(void *text)
{
	int			position = geterrposition();

	if (position > 0)
	{
		/* it is a place in this text, not in that of the client */
		errposition(0);
		internalerrposition(position);
		internalerrquery(text);
	}
	else
		errcontext("query \"%s\"", (const char *) text);
}

/* The one SELECT that the text has to be. */
static Node *
parse_select(const char *text)
{
	List	   *statements = pg_parse_query(text);
	Node	   *statement;

	if (list_length(statements) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 statements == NIL ? errmsg("query is empty") :
				 errmsg("query has %d statements, not one", list_length(statements)),
				 errhint(USE_SELECT)));
	statement = linitial_node(RawStmt, statements)->stmt;
	if (!IsA(statement, SelectStmt))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("query is %s, not SELECT", GetCommandTagName(CreateCommandTag(statement))),
				 errhint(USE_SELECT)));
	return statement;
}

/* SELECT targets FROM (select) names */
static RawStmt *
select_from(const char *targets, Node *select, const char *names)
{
	RawStmt    *raw = linitial_node(RawStmt, pg_parse_query(psprintf("SELECT %s FROM (SELECT) AS query%s", targets, names)));
	List	   *from = castNode(SelectStmt, raw->stmt)->fromClause;

	/* analysis changes what it is given */
	linitial_node(RangeSubselect, from)->subquery = copyObject(select);
	return raw;
}

/* What the query's columns are; the weight is taken out of them, to *weight.  And the types of all. */
static KmSourceColumn *
describe(Node *select, const char *text, const char *weight_column, KmSourceColumn *weight, int *count, List **types)
{
	Query	   *query = parse_analyze_fixedparams(select_from("*", select, ""), text, NULL, 0, NULL);
	KmSourceColumn *columns = palloc((list_length(query->targetList) + 1) * sizeof(KmSourceColumn));
	int			number = 0;
	ListCell   *cell;

	*count = 0;
	*types = km_query_types(query, 0);
	foreach(cell, query->targetList)
	{
		const TargetEntry *target = lfirst_node(TargetEntry, cell);
		KmSourceColumn column = {pstrdup(target->resname), psprintf("\"%d\"", ++number),
		km_base_type(exprType((Node *) target->expr))};

		if (weight_column == NULL || strcmp(column.name, weight_column) != 0)
			columns[(*count)++] = column;
		else if (weight->name != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_AMBIGUOUS_COLUMN),
					 errmsg("query has more than one column \"%s\"", weight_column)));
		else
			*weight = column;
	}
	if (weight_column != NULL && weight->name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("query has no column \"%s\"", weight_column),
				 errhint("The weight is one of the query's columns, as in 'SELECT visits, spent, n AS %s FROM ...'.",
						 quote_identifier(weight_column))));
	return columns;
}

static void
require_columns(int count)
{
	if (count == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("query has no column to cluster"),
				 errhint(USE_SELECT)));
	if (count > GKMEANS_MAX_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("query has %d columns to cluster, the limit is %d", count, GKMEANS_MAX_COLUMNS),
				 errhint("Select one array of them, ARRAY[...], which may have up to %d elements.", GK_MAX_D)));
}

/* Names for the columns of the query, which may have any: ("1", "2", ...). */
static char *
numbers_as_names(int count)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < count; i++)
		appendStringInfo(&names, "%s\"%d\"", i == 0 ? " (" : ", ", i + 1);
	appendStringInfoChar(&names, ')');
	return names.data;
}

KmSource *
km_source_of_query(const char *text, const char *weight_column)
{
	ErrorContextCallback callback = {error_context_stack, km_query_error, unconstify(char *, text)};
	KmSourceColumn weight = {0};
	KmSourceColumn *columns;
	KmSource   *source;
	Node	   *select;
	StringInfoData targets;
	List	   *types;
	int			count;
	bool		read_only;

	error_context_stack = &callback;
	/* analysis runs user code, too: a domain's check */
	read_only = km_read_only(true);
	select = parse_select(text);
	columns = describe(select, text, weight_column, &weight, &count, &types);
	km_read_only(read_only);
	error_context_stack = callback.previous;
	require_columns(count);
	source = km_source_make(count);
	source->relname = "query";
	source->types = types;
	source->query = pstrdup(text);
	source->columns = palloc(count * sizeof(char *));
	for (int i = 0; i < count; i++)
		source->columns[i] = unconstify(char *, columns[i].name);
	initStringInfo(&targets);
	km_source_targets(source, columns, weight.name != NULL ? &weight : NULL, &targets);
	source->raw = select_from(targets.data, select, numbers_as_names(source->ntargets));
	source->plan = palloc0(sizeof(KmQueryPlan));
	return source;
}
