/*
 * walk_plan.c - a planner hook that does with each plan what other extensions do.
 *
 * It looks at what a CustomScan keeps as nodes, finds its methods by name, copies the plan,
 * writes it and reads it back; what is executed is the plan that was read.
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static planner_hook_type previous_hook = NULL;

static void
look_at_scan(CustomScan *scan)
{
	ListCell   *lc;

	if (GetCustomScanMethods(scan->methods->CustomName, true) != scan->methods)
		elog(ERROR, "methods of \"%s\" are not known by that name", scan->methods->CustomName);
	foreach(lc, scan->custom_private)
	{
		Node	   *node = lfirst(lc);

		/* others look here for a node of theirs */
		if (IsA(node, ExtensibleNode))
			elog(ERROR, "\"%s\" keeps an extensible node", scan->methods->CustomName);
		(void) nodeToString(node);
	}
	elog(NOTICE, "walked over \"%s\"", scan->methods->CustomName);
}

static void
walk(Plan *plan)
{
	if (plan == NULL)
		return;
	if (IsA(plan, CustomScan))
		look_at_scan((CustomScan *) plan);
	if (IsA(plan, SubqueryScan))
		walk(((SubqueryScan *) plan)->subplan);
	walk(plan->lefttree);
	walk(plan->righttree);
}

/*
 * A plan as text. Places in the query's text are not read back, and from PostgreSQL 16 on an
 * array of no elements, as of an Agg without GROUP BY, is read as none.
 */
static char *
written(const void *stmt)
{
	char	   *text = nodeToString(stmt);
	char	   *to = text;

	for (char *from = text; *from != '\0';)
	{
		bool		place = strncmp(from, "location ", 9) == 0;

		if (strncmp(from, " ()", 3) == 0)
			memcpy(from, " <>", 3);
		*to++ = *from++;
		if (place)
			from += strcspn(from, ":}");
	}
	*to = '\0';
	return text;
}

static PlannedStmt *
walk_plan(Query *parse, const char *query_string, int options, ParamListInfo params)
{
	PlannedStmt *stmt = (previous_hook != NULL ? previous_hook : standard_planner) (parse, query_string, options, params);
	PlannedStmt *read;
	char	   *before,
			   *after;
	int			same = 0;
	ListCell   *lc;

	walk(stmt->planTree);
	foreach(lc, stmt->subplans)
		walk(lfirst(lc));
	read = stringToNode(nodeToString(copyObject(stmt)));
	before = written(stmt);
	after = written(copyObject(read));
	while (before[same] != '\0' && before[same] == after[same])
		same++;
	if (before[same] != after[same])
		ereport(ERROR, errmsg("plan differs after it was written and read"),
				errdetail("\"%.200s\" has become \"%.200s\".", before + Max(same - 100, 0), after + Max(same - 100, 0)));
	return read;
}

void
_PG_init(void)
{
	previous_hook = planner_hook;
	planner_hook = walk_plan;
}
