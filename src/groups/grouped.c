/*
 * grouped.c - kmeans_grouped(relation, group_by, columns, k, <options>): many small
 * clusterings at once.
 *
 * The rows are read in any order into one KmGroupRows for each group, found by a hash table
 * (group_hash.c); then the groups are clustered (grouped_fit.c).  Where groups are one column
 * of whole numbers, grouped_by_int.c is faster.  When the points are over gkmeans.memory_limit,
 * the query is run again with an ORDER BY, so that groups come one after the other and are
 * clustered as soon as the limit is reached.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "groups/grouped.h"

PG_FUNCTION_INFO_V1(kmeans_grouped);
PG_FUNCTION_INFO_V1(kmeans_grouped_part);

/* ---- rows ---- */

static void
begin_batch(KmGrouped *g)
{
	km_group_hash_begin(&g->groups, g->parent);
	g->bytes = 0;
	g->put = 0;
	g->row_cxt = NULL;
}

static KmOneGroup *
find_group(KmGrouped *g, const Datum *values, const bool *nulls)
{
	KmGroupHash *all = &g->groups;
	KmOneGroup *last = g->ordered && all->n > 0 ? all->groups[all->n - 1] : NULL;

	if (!g->ordered)
		return km_group_hash_find(all, values, nulls);
	if (last != NULL && km_group_hash_same(all, last, values, nulls))
		return last;
	if (g->bytes > g->limit)
	{
		km_grouped_finish(g);
		begin_batch(g);
	}
	return km_group_hash_add(all, 0, values, nulls);
}

/* The number of features is known. */
static void
begin_rows(void *arg, int d)
{
	KmGrouped  *g = arg;

	km_check_given_features(g->options, d);
	g->d = d;
}

/* key columns, features, weight */
static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	KmGrouped  *g = (KmGrouped *) self;
	KmVerdict	verdict = km_read_row(&g->rows, slot);
	int			width;

	if (verdict != KM_ROW_KEPT)
	{
		km_count_left_out(&g->counts, verdict);
		return true;
	}
	width = g->d + (g->source->weighted ? 1 : 0);
	memcpy(km_group_rows_add(find_group(g, slot->tts_values, slot->tts_isnull)->rows, width), g->rows.point,
		   width * sizeof(double));
	g->bytes += width * sizeof(double);
	g->over = !g->ordered && g->bytes > g->limit;
	return !g->over;
}

/* The key columns' functions, as soon as their types are known. */
static void
startup(DestReceiver *self, int operation, TupleDesc desc)
{
	KmGrouped  *g = (KmGrouped *) self;
	MemoryContext caller = MemoryContextSwitchTo(g->parent);

	km_group_hash_types(&g->groups, g->nkeys, desc);
	g->key_desc = CreateTemplateTupleDesc(g->nkeys);
	for (int i = 0; i < g->nkeys; i++)
		TupleDescCopyEntry(g->key_desc, i + 1, desc, i + 1);
	g->key_desc = BlessTupleDesc(g->key_desc);
	MemoryContextSwitchTo(caller);
}

static void
no_more(DestReceiver *self)
{
}

/* ---- the query ---- */

static char *
grouped_query(const KmGrouped *g, char **group_by)
{
	StringInfoData q;

	initStringInfo(&q);
	appendStringInfoString(&q, "SELECT ");
	for (int i = 0; i < g->nkeys; i++)
		appendStringInfo(&q, "%s, ", quote_identifier(group_by[i]));
	appendStringInfo(&q, "%s FROM %s", g->source->targets, g->source->qualified);
	for (int i = 0; g->ordered && i < g->nkeys; i++)
		appendStringInfo(&q, "%s%d", i > 0 ? ", " : " ORDER BY ", i + 1);
	return q.data;
}

static void
run_query(KmGrouped *g, const char *text)
{
	RawStmt    *raw = linitial_node(RawStmt, pg_parse_query(text));
	KmQueryPlan plan = km_query_plan(g->source, raw, text, g->nkeys, CURSOR_OPT_PARALLEL_OK);
	QueryDesc  *desc = CreateQueryDesc(plan.plan, text, GetActiveSnapshot(), InvalidSnapshot,
									   &g->pub, NULL, NULL, 0);

	memset(&g->counts, 0, sizeof(g->counts));
	g->d = 0;
	g->rows = (KmRowReader) {.origin.source = g->source,.rules = km_fit_rules(g->options),.first = g->nkeys,
		.sorted = g->ordered,.begin = begin_rows,.arg = g,.context = g->parent};
	begin_batch(g);
	ExecutorStart(desc, 0);
	km_query_check_rows(g->source, desc, plan.types);
	km_executor_run(desc);
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	if (g->over)
		MemoryContextDelete(g->groups.cxt);
	else
		km_grouped_finish(g);
}

/* part: of what the caller wants; it gets the counts of rows that are left out. */
static Datum
grouped(FunctionCallInfo fcinfo, bool part)
{
	KmGrouped	g = {0};
	KmFitOptions options;
	KmResult	result;
	char	  **columns;
	char	  **group_by;
	int			ncolumns;

	km_result_begin(fcinfo, &result);
	km_require_arg(fcinfo, 0, "relation");
	km_require_arg(fcinfo, 1, "group_by");
	km_require_arg(fcinfo, 2, "columns");
	group_by = km_column_names(PG_GETARG_ARRAYTYPE_P(1), "group_by", &g.nkeys);
	columns = km_column_names(PG_GETARG_ARRAYTYPE_P(2), "columns", &ncolumns);
	km_parse_options(fcinfo, 4, km_parse_k(fcinfo, 3), &options);
	km_refuse_fill(&options, "group_by");
	km_require_iterations(&options);
	kmeans_refuse_distance(options.engine.distance, "a clustering of groups");
	g.source = km_source_open(PG_GETARG_OID(0), columns, ncolumns, options.weight_column, NULL, false);
	km_source_require(g.source, group_by, g.nkeys);

	km_apply_simd();
	g.pub.receiveSlot = receive_row;
	g.pub.rStartup = startup;
	g.pub.rShutdown = no_more;
	g.pub.rDestroy = no_more;
	g.pub.mydest = DestNone;
	g.options = &options;
	g.result = &result;
	g.limit = km_memory_limit_bytes();
	g.parent = CurrentMemoryContext;
	g.host = km_host_begin();
	km_grouped_put_begin(&g);

	if (!km_grouped_by_nodes(&g, group_by, fcinfo) && (g.nkeys != 1 || !km_grouped_by_int(&g, group_by[0])))
		run_query(&g, grouped_query(&g, group_by));
	if (g.over)
	{
		g.ordered = true;
		g.over = false;
		run_query(&g, grouped_query(&g, group_by));
	}
	if (part)
		km_grouped_put_counts(&g);
	else
		km_notice_left_out(&g.counts);
	km_host_end(g.host);
	return (Datum) 0;
}

/*
 * kmeans_grouped(relation regclass, group_by text[], columns text[], k int, <options>)
 * returns table (grp jsonb, cluster int, size bigint, centroid float8[], inertia float8, radius float8)
 */
Datum
kmeans_grouped(PG_FUNCTION_ARGS)
{
	return grouped(fcinfo, false);
}

/* kmeans_grouped_part(the same) returns the same, and a last row without a cluster. */
Datum
kmeans_grouped_part(PG_FUNCTION_ARGS)
{
	return grouped(fcinfo, true);
}
