/*
 * window_node.c - the plan node KmeansWindow: kmeans() OVER (PARTITION BY ...) over rows in any
 * order.
 *
 * The first row that is asked for reads all rows of the child.  Points go to the memory of their
 * partitions (window_points.c), and the columns that the nodes above need are kept, if there are
 * any (window_columns.c).  When all labels are there, rows go out in the order in which they came.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/tupdesc.h"
#include "catalog/objectaccess.h"
#include "commands/explain.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

#include "window/window.h"

/* What a call evaluates once. */
typedef struct CallState
{
	FuncExpr   *function;
	ExprState  *k;
	ExprState  *centroids;		/* or NULL */
} CallState;

typedef struct WindowState
{
	CustomScanState css;		/* must be first */
	CallState  *states;			/* [points.ncalls] */
	ProjectionInfo *input;		/* of a child's row: keys and points */
	KmWindowPoints points;
	bool		done;			/* all is read, the labels are there */
	int64		at;				/* next row to go out */
	int			columns;		/* of the child */
	/* The columns that are kept; NULL: none are. */
	KmWindowColumns *rows;
	int			nkept;
	AttrNumber *kept;			/* in the child's rows, from 0 */
	TupleDesc	kept_desc;
} WindowState;

/* ---- begin ---- */

/* As for any function of a plan. */
static void
check_function(Oid function)
{
	AclResult	result = km_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

/*
 * A call as a plain function.  The planner needs the WindowFunc, to find it in the nodes
 * above; but EXPLAIN would look for its window's name in a WindowAgg, and since 18 it is
 * an error when there is none.  So the plan gets the function instead, when the first
 * execution begins, as no hook is called between the planner's last step and EXPLAIN.
 */
static FuncExpr *
as_function(TargetEntry *column)
{
	MemoryContext caller;
	WindowFunc *call;

	if (IsA(column->expr, FuncExpr))
		return (FuncExpr *) column->expr;
	call = castNode(WindowFunc, column->expr);
	/* it lives as long as the plan, which may be executed again */
	caller = MemoryContextSwitchTo(GetMemoryChunkContext(column));
	column->expr = (Expr *) makeFuncExpr(call->winfnoid, call->wintype, call->args,
										 call->wincollid, call->inputcollid, COERCE_EXPLICIT_CALL);
	MemoryContextSwitchTo(caller);
	return (FuncExpr *) column->expr;
}

/* What ps believes its expressions are evaluated over. */
typedef struct Over
{
	TupleDesc	desc;
	const TupleTableSlotOps *ops;
	bool		fixed;
} Over;

/*
 * The node's expressions refer to its rows, which begin with the child's columns.  Those
 * that are made ready between these two are evaluated over the child's rows.
 */
static Over
begin_over_child(PlanState *ps)
{
	Over		own = {ps->scandesc, ps->scanops, ps->scanopsfixed};

	ps->scandesc = ExecGetResultType(outerPlanState(ps));
	ps->scanops = ExecGetResultSlotOps(outerPlanState(ps), &ps->scanopsfixed);
	return own;
}

static void
end_over_child(PlanState *ps, Over own)
{
	ps->scandesc = own.desc;
	ps->scanops = own.ops;
	ps->scanopsfixed = own.fixed;
}

/* The keys and points of a child's row. */
static void
init_input(WindowState *w, List *exprs)
{
	PlanState  *ps = &w->css.ss.ps;
	List	   *list = NIL;
	ListCell   *lc;
	TupleTableSlot *slot;

	foreach(lc, exprs)
		list = lappend(list, makeTargetEntry(lfirst(lc), list_length(list) + 1, NULL, false));
	slot = ExecInitExtraTupleSlot(ps->state, ExecTypeFromTL(list), &TTSOpsVirtual);
	w->input = ExecBuildProjectionInfo(list, ps->ps_ExprContext, slot, ps, ps->scandesc);
}

/* The point's place in an input row, and how to read it. */
static void
init_point(WindowState *w, KmWindowCall *call, FuncExpr *function, int at, int features)
{
	call->at = at;
	call->features = features;
	if (features > 0)
		call->type = km_window_features(function->args);
	else
		call->reader.cxt = w->css.ss.ps.state->es_query_cxt;
}

static void
init_calls(WindowState *w, CustomScan *scan)
{
	PlanState  *ps = &w->css.ss.ps;
	Over		own = begin_over_child(ps);
	KmWindowCallPlan *plans;
	int			nkeys;
	int			at;
	List	   *input;

	km_window_plan_read(scan->custom_private, &nkeys, &w->points.ncalls, &plans);
	w->points.calls = palloc0(w->points.ncalls * sizeof(KmWindowCall));
	w->states = palloc0(w->points.ncalls * sizeof(CallState));
	w->columns = list_length(scan->custom_scan_tlist) - w->points.ncalls;
	at = nkeys;
	input = list_truncate(list_copy(scan->custom_exprs), nkeys);
	for (int c = 0; c < w->points.ncalls; c++)
	{
		CallState  *state = &w->states[c];
		int			width = Max(plans[c].features, 1);

		state->function = as_function(list_nth_node(TargetEntry, scan->custom_scan_tlist, w->columns + c));
		check_function(state->function->funcid);
		init_point(w, &w->points.calls[c], state->function, list_length(input), plans[c].features);
		for (int i = 0; i < width; i++)
			input = lappend(input, list_nth(scan->custom_exprs, at++));
		state->k = ExecInitExpr(list_nth(scan->custom_exprs, at++), ps);
		if (plans[c].centroids)
			state->centroids = ExecInitExpr(list_nth(scan->custom_exprs, at++), ps);
	}
	init_input(w, input);
	end_over_child(ps, own);
	km_group_hash_types(&w->points.groups, nkeys, w->input->pi_state.resultslot->tts_tupleDescriptor);
}

/* Which of the node's columns do the target list and the quals use? */
static void
init_kept(WindowState *w, CustomScan *scan)
{
	TupleDesc	from = ExecGetResultType(outerPlanState(w));
	Bitmapset  *used = NULL;
	int			at = -1;

	pull_varattnos((Node *) scan->scan.plan.targetlist, INDEX_VAR, &used);
	pull_varattnos((Node *) scan->scan.plan.qual, INDEX_VAR, &used);
	w->kept = palloc(Max(w->columns, 1) * sizeof(AttrNumber));
	while ((at = bms_next_member(used, at)) >= 0)
	{
		int			column = at + FirstLowInvalidHeapAttributeNumber - 1;

		if (column < w->columns)
			w->kept[w->nkept++] = column;
	}
	if (w->nkept == 0)
		return;
	w->kept_desc = CreateTemplateTupleDesc(w->nkept);
	for (int i = 0; i < w->nkept; i++)
		TupleDescCopyEntry(w->kept_desc, i + 1, from, w->kept[i] + 1);
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	WindowState *w = (WindowState *) node;
	CustomScan *scan = castNode(CustomScan, node->ss.ps.plan);

	/* rows are kept here, so the child gives them once, forward */
	outerPlanState(node) = ExecInitNode(outerPlan(scan), estate,
										eflags & ~(EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK));
	init_calls(w, scan);
	init_kept(w, scan);
	w->points.cxt = AllocSetContextCreate(estate->es_query_cxt, "gkmeans window", ALLOCSET_DEFAULT_SIZES);
	memset(node->ss.ss_ScanTupleSlot->tts_isnull, true, w->columns + w->points.ncalls);
}

/* ---- rows in ---- */

/* k and centroids, which are the same for all rows: those of the first one. */
static void
begin_call(WindowState *w, int c)
{
	CallState  *state = &w->states[c];
	KmWindowCall *call = &w->points.calls[c];
	ExprContext *econtext = w->css.ss.ps.ps_ExprContext;
	NullableDatum k;
	NullableDatum centroids = {.isnull = true};

	k.value = ExecEvalExpr(state->k, econtext, &k.isnull);
	if (state->centroids != NULL)
		centroids.value = ExecEvalExpr(state->centroids, econtext, &centroids.isnull);
	km_window_options(k, centroids, &call->options);
	if (call->features == 0 && call->reader.types == NULL)
	{
		MemoryContext cxt = call->reader.cxt;
		FmgrInfo   *function = MemoryContextAllocZero(cxt, sizeof(FmgrInfo));

		LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);

		fmgr_info_cxt(state->function->funcid, function, cxt);
		fmgr_info_set_expr((Node *) state->function, function);
		InitFunctionCallInfoData(*fcinfo, function, list_length(state->function->args), InvalidOid, NULL, NULL);
		kmeans_point_init(&call->reader, fcinfo, 0, 1, KM_POINT_TO_FIT, cxt);
	}
}

static void
begin_rows(WindowState *w)
{
	MemoryContext caller;

	km_window_begin(&w->points, w->css.ss.ps.plan->plan_rows);
	caller = MemoryContextSwitchTo(w->points.cxt);
	if (w->nkept > 0)
		w->rows = km_window_columns_begin(w->kept_desc);
	for (int c = 0; c < w->points.ncalls; c++)
		begin_call(w, c);
	MemoryContextSwitchTo(caller);
}

static void
read_rows(WindowState *w)
{
	PlanState  *child = outerPlanState(w);
	ExprContext *econtext = w->css.ss.ps.ps_ExprContext;
	MemoryContext caller = CurrentMemoryContext;

	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(child);
		TupleTableSlot *in;

		CHECK_FOR_INTERRUPTS();
		if (TupIsNull(slot))
			break;
		ResetExprContext(econtext);
		econtext->ecxt_scantuple = slot;
		if (w->points.n == 0)
			begin_rows(w);
		MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		in = ExecProject(w->input);
		km_window_add(&w->points, in->tts_values, in->tts_isnull);
		MemoryContextSwitchTo(caller);
		if (w->rows == NULL)
			continue;
		slot_getsomeattrs(slot, w->kept[w->nkept - 1] + 1);
		km_window_columns_put(w->rows, slot->tts_values, slot->tts_isnull, w->kept);
	}
	if (w->rows != NULL)
		km_window_columns_rewind(w->rows);
	if (w->points.n > 0)
		km_window_fit(&w->points);
	else
		w->points.partitions = 0;
	ResetExprContext(econtext);
	w->done = true;
}

/* ---- rows out ---- */

/* Into the node's scan slot; columns that are not kept are not read. */
static TupleTableSlot *
make_row(WindowState *w)
{
	TupleTableSlot *slot = w->css.ss.ss_ScanTupleSlot;
	int64		at = w->at++;

	ExecClearTuple(slot);
	if (w->rows != NULL)
		km_window_columns_get(w->rows, slot->tts_values, slot->tts_isnull, w->kept);
	for (int c = 0; c < w->points.ncalls; c++)
	{
		int32		label = w->points.calls[c].label[at];

		slot->tts_values[w->columns + c] = Int32GetDatum(label);
		slot->tts_isnull[w->columns + c] = label == KM_NO_LABEL;
	}
	return ExecStoreVirtualTuple(slot);
}

static TupleTableSlot *
next_row(CustomScanState *node)
{
	WindowState *w = (WindowState *) node;
	PlanState  *ps = &node->ss.ps;
	ExprContext *econtext = ps->ps_ExprContext;

	CHECK_FOR_INTERRUPTS();
	if (!w->done)
		read_rows(w);
	while (w->at < w->points.n)
	{
		TupleTableSlot *slot = make_row(w);

		ResetExprContext(econtext);
		econtext->ecxt_scantuple = slot;
		if (ps->qual != NULL && !ExecQual(ps->qual, econtext))
			continue;
		return ps->ps_ProjInfo != NULL ? ExecProject(ps->ps_ProjInfo) : slot;
	}
	return ExecClearTuple(ps->ps_ResultTupleSlot);
}

/* ---- the end ---- */

static void
forget_rows(WindowState *w)
{
	ExecClearTuple(w->css.ss.ss_ScanTupleSlot);
	if (w->rows != NULL)
		km_window_columns_end(w->rows);
	w->rows = NULL;
	w->points.n = 0;
	w->at = 0;
	w->done = false;
	MemoryContextReset(w->points.cxt);
}

static void
end(CustomScanState *node)
{
	forget_rows((WindowState *) node);
	ExecEndNode(outerPlanState(node));
}

/* The same rows again, unless a parameter of the node or of its child has changed. */
static void
rescan(CustomScanState *node)
{
	WindowState *w = (WindowState *) node;
	PlanState  *child = outerPlanState(node);

	ExecClearTuple(node->ss.ps.ps_ResultTupleSlot);
	if (w->done && node->ss.ps.chgParam == NULL && child->chgParam == NULL)
	{
		w->at = 0;
		if (w->rows != NULL)
			km_window_columns_rewind(w->rows);
		return;
	}
	forget_rows(w);
	/* else its first row does it */
	if (child->chgParam == NULL)
		ExecReScan(child);
}

/* ---- EXPLAIN ---- */

static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	WindowState *w = (WindowState *) node;
	CustomScan *scan = castNode(CustomScan, node->ss.ps.plan);
	List	   *context = set_deparse_context_plan(es->deparse_cxt, &scan->scan.plan, ancestors);
	bool		prefix = list_length(es->rtable) > 1 || es->verbose;
	List	   *keys = NIL;
	List	   *calls = NIL;

	for (int i = 0; i < w->points.groups.nkeys; i++)
		keys = lappend(keys, deparse_expression(list_nth(scan->custom_exprs, i), context, prefix, false));
	for (int c = 0; c < w->points.ncalls; c++)
		calls = lappend(calls, deparse_expression((Node *) w->states[c].function, context, prefix, false));
	if (keys != NIL)
		ExplainPropertyList("Partition Key", keys, es);
	ExplainPropertyList("Window Function", calls, es);
	if (es->analyze && w->done)
	{
		ExplainPropertyInteger("Partitions", NULL, w->points.partitions, es);
		ExplainPropertyInteger("Points Memory", "kB", (w->points.peak + 1023) / 1024, es);
		if (w->points.spilled > 0)
			ExplainPropertyInteger("Points Disk", "kB", (w->points.spilled + 1023) / 1024, es);
	}
}

/* ---- the methods ---- */

static const CustomExecMethods exec_methods = {
	.CustomName = "KmeansWindow",
	.BeginCustomScan = begin,
	.ExecCustomScan = next_row,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain
};

static Node *
create_state(CustomScan *scan)
{
	WindowState *w = (WindowState *) newNode(sizeof(WindowState), T_CustomScanState);

	w->css.methods = &exec_methods;
	return (Node *) w;
}

const CustomScanMethods km_window_node_methods = {
	.CustomName = "KmeansWindow",
	.CreateCustomScanState = create_state
};
