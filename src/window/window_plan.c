/*
 * window_plan.c - when the node KmeansWindow can take WindowAgg's place.
 *
 * The window function's support function is there so that planning loads this library, whose hook
 * then offers the node: when all window functions of a query are kmeans() over one window, and k
 * and the centroids do not depend on the row.  What the node cannot do is left to WindowAgg.
 *
 * WindowAgg has one partition in memory at a time.  The node has all of them, with points over
 * gkmeans.memory_limit in temporary files; so it is offered only if the rest is expected to fit
 * that limit, or if there is but one partition.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "window/window.h"

PG_FUNCTION_INFO_V1(kmeans_window_support);

static create_upper_paths_hook_type previous_hook = NULL;

/* What the hook finds in a query. */
typedef struct Window
{
	List	   *calls;			/* WindowFunc */
	List	   *keys;			/* of the partition */
} Window;

/*
 * kmeans_window_support(internal) returns internal.  It has nothing to say: it is called
 * when a query with kmeans() OVER is planned, before the hook.
 */
Datum
kmeans_window_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(NULL);
}

/* ---- the query ---- */

static bool
find_calls(Node *node, List **calls)
{
	if (node == NULL)
		return false;
	if (IsA(node, WindowFunc))
	{
		*calls = list_append_unique(*calls, node);
		return false;
	}
	return expression_tree_walker(node, find_calls, calls);
}

static bool
depends_on_row(Node *arguments)
{
	return contain_var_clause(arguments) || contain_agg_clause(arguments);
}

/* Is it kmeans(), and can the node evaluate the arguments? */
static bool
is_possible_call(WindowFunc *call)
{
	FmgrInfo	function;

	if (call->winagg || call->aggfilter != NULL || !OidIsValid(get_func_support(call->winfnoid)))
		return false;
	/* the function as it would be called: not if something is called around it */
	fmgr_info(call->winfnoid, &function);
	return function.fn_addr == kmeans_window &&
		!contain_volatile_functions((Node *) call) &&
		!contain_subplans((Node *) call) &&
		!depends_on_row((Node *) list_copy_tail(call->args, 1));
}

/* A frame's offsets are checked when it is executed; the node has no frames. */
static bool
is_possible_window(const WindowClause *clause)
{
	return clause->startOffset == NULL && clause->endOffset == NULL &&
		grouping_is_hashable(clause->partitionClause);
}

static bool
look_at_window(PlannerInfo *root, Window *w)
{
	ListCell   *lc;
	Index		winref = 0;

	memset(w, 0, sizeof(*w));
	if (!root->parse->hasWindowFuncs || root->upper_targets[UPPERREL_WINDOW] == NULL)
		return false;
	(void) find_calls((Node *) root->upper_targets[UPPERREL_WINDOW]->exprs, &w->calls);
	foreach(lc, w->calls)
	{
		WindowFunc *call = lfirst_node(WindowFunc, lc);

		if ((winref != 0 && call->winref != winref) || !is_possible_call(call))
			return false;
		winref = call->winref;
	}
	foreach(lc, root->parse->windowClause)
	{
		WindowClause *clause = lfirst_node(WindowClause, lc);

		if (clause->winref != winref)
			continue;
		if (!is_possible_window(clause))
			return false;
		w->keys = get_sortgrouplist_exprs(clause->partitionClause, root->processed_tlist);
	}
	return w->calls != NIL && !contain_volatile_functions((Node *) w->keys) && !contain_subplans((Node *) w->keys);
}

/* ---- memory ---- */

/* Bytes of a value as far as the statistics know them. */
static double
value_width(PlannerInfo *root, Node *value)
{
	if (IsA(value, Var))
	{
		Var		   *var = (Var *) value;
		RelOptInfo *rel = var->varno < root->simple_rel_array_size ? root->simple_rel_array[var->varno] : NULL;

		if (rel != NULL && rel->attr_widths != NULL &&
			var->varattno >= rel->min_attr && var->varattno <= rel->max_attr &&
			rel->attr_widths[var->varattno - rel->min_attr] > 0)
			return rel->attr_widths[var->varattno - rel->min_attr];
	}
	return get_typavgwidth(exprType(value), exprTypmod(value));
}

/* Bytes that a call's point takes: doubles. */
static double
point_bytes(PlannerInfo *root, const WindowFunc *call)
{
	Node	   *point = linitial(call->args);
	Oid			element;
	int16		len;

	if (OidIsValid(km_window_features(call->args)))
		return list_length(castNode(ArrayExpr, point)->elements) * sizeof(double);
	element = get_base_element_type(exprType(point));
	len = OidIsValid(element) ? get_typlen(element) : -1;
	return value_width(root, point) * sizeof(double) / (len > 0 ? len : (int) sizeof(float4));
}

/* Bytes of all points, and the room that their segments have left: a quarter in the mean. */
static double
points_bytes(PlannerInfo *root, const Window *w, double rows)
{
	double		bytes = 0;
	ListCell   *lc;

	foreach(lc, w->calls)
		bytes += 4.0 / 3.0 * rows * point_bytes(root, lfirst(lc));
	return bytes;
}

/* What stays in memory however many points there are: a label of each row, and the partitions. */
static bool
fits_memory(const Window *w, double rows, double partitions)
{
	double		one = sizeof(KmOneGroup) + 2 * sizeof(void *) + list_length(w->keys) * 32;
	int			calls = list_length(w->calls);

	return rows * calls * 2 * sizeof(int32) + partitions * (one + calls * sizeof(KmGroupRows)) <= km_memory_limit_bytes();
}

/* ---- paths ---- */

static Plan *plan_path(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist,
					   List *clauses, List *plans);

static const CustomPathMethods path_methods = {
	.CustomName = "KmeansWindow",
	.PlanCustomPath = plan_path
};

/*
 * As WindowAgg is: an operator for each key, the arguments, and what a row that goes
 * through a node costs; less of that, since rows are neither kept nor compared.
 */
static void
cost_path(PlannerInfo *root, const Window *w, Path *path, const Path *child)
{
	const PathTarget *target = path->pathtarget;
	double		points = w->keys != NIL ? points_bytes(root, w, child->rows) : 0;
	List	   *evaluated = NIL;
	QualCost	args;
	ListCell   *lc;

	/* a WindowFunc costs nothing by itself, as it stands for its result */
	foreach(lc, w->calls)
		evaluated = list_concat(evaluated, lfirst_node(WindowFunc, lc)->args);
	cost_qual_eval(&args, evaluated, root);
	path->rows = child->rows;
	path->startup_cost = child->total_cost + args.startup + target->cost.startup +
		child->rows * (args.per_tuple + cpu_operator_cost * (list_length(w->keys) + list_length(w->calls)));
	/* written and read once, one after the other */
	if (points > km_memory_limit_bytes())
		path->startup_cost += 2 * seq_page_cost * points / BLCKSZ;
	path->total_cost = path->startup_cost + child->rows * (0.5 * cpu_tuple_cost + target->cost.per_tuple);
#if PG_VERSION_NUM >= 180000
	path->disabled_nodes = child->disabled_nodes;
#endif
}

/*
 * The rows' columns: those of WindowAgg.  But columns that are there for the partition alone
 * are not read where nothing is sorted or made distinct above: they are NULL then, and need
 * not be kept.
 */
static PathTarget *
window_target(PlannerInfo *root)
{
	PathTarget *target = root->upper_targets[UPPERREL_WINDOW];
	const Query *query = root->parse;
	ListCell   *expr;
	ListCell   *entry;

	if (query->commandType != CMD_SELECT || query->sortClause != NIL || query->distinctClause != NIL ||
		query->hasTargetSRFs || list_length(target->exprs) != list_length(root->processed_tlist))
		return target;
	target = copy_pathtarget(target);
	forboth(expr, target->exprs, entry, root->processed_tlist)
	{
		const TargetEntry *tle = lfirst_node(TargetEntry, entry);
		Node	   *e = lfirst(expr);

		if (tle->resjunk && equal(tle->expr, e))
			lfirst(expr) = makeNullConst(exprType(e), exprTypmod(e), exprCollation(e));
	}
	return target;
}

/* Rows go out in the order in which they come in. */
static void
add_path_over(PlannerInfo *root, RelOptInfo *rel, const Window *w, Path *child)
{
	CustomPath *path = makeNode(CustomPath);

	path->path.pathtype = T_CustomScan;
	path->path.parent = rel;
	path->path.pathtarget = window_target(root);
	path->path.pathkeys = child->pathkeys;
	cost_path(root, w, &path->path, child);
#if PG_VERSION_NUM >= 150000
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
#endif
	path->custom_paths = list_make1(child);
	path->custom_private = list_make2(w->calls, w->keys);
	path->methods = &path_methods;
	add_path(rel, &path->path);
}

/*
 * The first label takes a whole partition, but the server believes that WindowAgg gives rows
 * at once, and would choose it where only some are wanted.
 */
static void
correct_startup_cost(RelOptInfo *rel, double partitions)
{
	ListCell   *lc;

	foreach(lc, rel->pathlist)
	{
		Path	   *path = lfirst(lc);
		Cost		run = path->total_cost - path->startup_cost - path->rows * cpu_tuple_cost;

		if (IsA(path, WindowAggPath))
			path->startup_cost += Max(run, 0) / Max(partitions, 1);
	}
}

static void
add_paths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output)
{
	Window		w;
	double		rows;
	double		partitions;
	ListCell   *lc;

	if (input->pathlist == NIL || !look_at_window(root, &w))
		return;
	rows = input->cheapest_total_path->rows;
	partitions = w.keys == NIL ? 1 : km_estimate_num_groups(root, w.keys, rows);
	if (w.keys != NIL && !fits_memory(&w, rows, partitions))
		return;
	correct_startup_cost(output, partitions);
	foreach(lc, input->pathlist)
	{
		Path	   *child = lfirst(lc);

		if (child->param_info == NULL && (child == input->cheapest_total_path || child->pathkeys != NIL))
			add_path_over(root, output, &w, child);
	}
}

static void
upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output, void *extra)
{
	if (previous_hook != NULL)
		previous_hook(root, stage, input, output, extra);
	if (stage == UPPERREL_WINDOW && gkmeans_enable_window_scan)
		add_paths(root, input, output);
}

void
km_window_plan_init(void)
{
	previous_hook = create_upper_paths_hook;
	create_upper_paths_hook = upper_paths;
	RegisterCustomScanMethods(&km_window_node_methods);
}

/* ---- the plan ---- */

Oid
km_window_features(const List *args)
{
	const ArrayExpr *array = linitial(args);

	if (!IsA(array, ArrayExpr) || array->multidims || array->elements == NIL ||
		list_length(array->elements) > MaxTupleAttributeNumber / 2)
		return InvalidOid;
	switch (array->element_typeid)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			return array->element_typeid;
		default:
			return InvalidOid;
	}
}

/* Add what the node needs of a call to the plan's expressions and numbers. */
static List *
plan_call(CustomScan *scan, WindowFunc *call, List *numbers)
{
	List	   *point = list_make1(linitial(call->args));
	bool		features = OidIsValid(km_window_features(call->args));

	if (features)
		point = castNode(ArrayExpr, linitial(call->args))->elements;
	scan->custom_exprs = list_concat(scan->custom_exprs, point);
	scan->custom_exprs = list_concat(scan->custom_exprs, list_copy_tail(call->args, 1));
	numbers = lappend_int(numbers, features ? list_length(point) : 0);
	return lappend_int(numbers, list_length(call->args) > 2);
}

void
km_window_plan_read(List *custom_private, int *nkeys, int *ncalls, KmWindowCallPlan **calls)
{
	List	   *numbers = (List *) linitial(custom_private);

	*nkeys = linitial_int(numbers);
	*ncalls = (list_length(numbers) - 1) / 2;
	*calls = palloc(*ncalls * sizeof(KmWindowCallPlan));
	for (int i = 0; i < *ncalls; i++)
	{
		(*calls)[i].features = list_nth_int(numbers, 2 * i + 1);
		(*calls)[i].centroids = list_nth_int(numbers, 2 * i + 2) != 0;
	}
}

static Plan *
plan_path(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses, List *plans)
{
	CustomScan *scan = makeNode(CustomScan);
	Plan	   *child = linitial(plans);
	List	   *calls = linitial(path->custom_private);
	List	   *keys = lsecond(path->custom_private);
	List	   *numbers = list_make1_int(list_length(keys));
	ListCell   *lc;

	scan->flags = path->flags;
	scan->methods = &km_window_node_methods;
	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.lefttree = child;
	scan->custom_exprs = list_copy(keys);
	foreach(lc, child->targetlist)
	{
		TargetEntry *entry = flatCopyTargetEntry(lfirst(lc));

		entry->resno = list_length(scan->custom_scan_tlist) + 1;
		entry->resjunk = false;
		scan->custom_scan_tlist = lappend(scan->custom_scan_tlist, entry);
	}
	foreach(lc, calls)
	{
		scan->custom_scan_tlist = lappend(scan->custom_scan_tlist,
										  makeTargetEntry(lfirst(lc), list_length(scan->custom_scan_tlist) + 1, NULL, false));
		numbers = plan_call(scan, lfirst(lc), numbers);
	}
	/* a list of nodes: other extensions look for one of theirs in any CustomScan */
	scan->custom_private = list_make1(numbers);
	return &scan->scan.plan;
}
