/*
 * rel_read.c - run a source's query as the caller, the way COPY (SELECT
 * ...) does: privileges, row-level security, views and partitions are the
 * executor's business.
 *
 * The place of a row among the points is what the random numbers are counted
 * by, so the same table has to be read in the same order each time.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "nodes/parsenodes.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#include "gkmeans.h"
#include "rescan/rescan.h"

void
km_switch_off(const char *setting)
{
	(void) set_config_option(setting, "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Settings for the time of the query, undone by AtEOXact_GUC.
 *
 * A synchronized scan starts where another session's scan is, and an index-only
 * scan may begin to look cheaper after VACUUM: both would change the order of
 * the rows between two equal calls.  Policies of row-level security can hold
 * whole queries, which need their indexes, and views' order is their author's
 * matter; so these keep the planner's choices.
 *
 * Just-in-time compilation can take longer than a cancelled statement may, and
 * gains little for a query that computes nothing.
 */
static void
pin_row_order(const KmSource *source)
{
	bool		table = source->relkind == RELKIND_RELATION ||
		source->relkind == RELKIND_PARTITIONED_TABLE || source->relkind == RELKIND_MATVIEW;

	km_switch_off("synchronize_seqscans");
	km_switch_off("jit");
	if (table && check_enable_rls(source->relid, InvalidOid, true) != RLS_ENABLED)
	{
		km_switch_off("enable_indexscan");
		km_switch_off("enable_indexonlyscan");
		km_switch_off("enable_bitmapscan");
	}
}

/* Rows of a distributed table arrive in any order. */
static const char *
in_order(const KmSource *source)
{
	return km_citus_distributed(source->relid) ? psprintf("%s%s", source->query, km_citus_order()) : source->query;
}

void
km_query_run(const KmSource *source, DestReceiver *dest, KmQueryScan scan)
{
	const char *text = in_order(source);
	int			guc_level = NewGUCNestLevel();
	RawStmt    *raw;
	Query	   *query;
	PlannedStmt *plan;
	QueryDesc  *desc;

	pin_row_order(source);
	raw = linitial_node(RawStmt, pg_parse_query(text));
	query = linitial_node(Query, pg_analyze_and_rewrite_fixedparams(raw, text, NULL, 0, NULL));
	/* no CURSOR_OPT_PARALLEL_OK: a Gather would mix the rows' order */
	plan = pg_plan_query(query, text, 0, NULL);
	desc = CreateQueryDesc(plan, text, GetActiveSnapshot(), InvalidSnapshot,
						   dest, NULL, NULL, 0);
	ExecutorStart(desc, 0);
	/* from here on rights are checked and relations open, whoever takes the rows */
	if (!scan(desc, dest))
		km_executor_run(desc);
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	AtEOXact_GUC(true, guc_level);
}
