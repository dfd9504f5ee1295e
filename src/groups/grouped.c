/*
 * grouped.c - kmeans_grouped(relation, group_by, columns, k, <options>):
 * many small clusterings at once.
 *
 * The rows are read in any order into one KmGroupRows per group, found by a hash
 * table (group_hash.c); then the groups are clustered by all threads, one group
 * on one thread (pg_thread_host.c), large groups one after the other by all.
 * Where groups are one column of whole numbers, grouped_by_int.c is faster; with
 * a GPU, grouped_gpu.c has it take the small groups.
 * When the points are over gkmeans.memory_limit, the query is run again with an
 * ORDER BY, so that groups come one after the other and are clustered as soon as
 * the limit is reached.
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

#include "core/gk_backend.h"
#include "groups/grouped.h"

PG_FUNCTION_INFO_V1(kmeans_grouped);

/* ---- clustering ---- */

typedef struct Work
{
	const KmGrouped *g;
	KmThreadHosts *hosts;
	KmOneGroup **groups;		/* the small ones */
} Work;

static GkStatus
fit(const KmGrouped *g, GkGroupRow row, const void *arg, int64 n, const GkHost *host, const GkBackend *backend,
	GkModel *model, GkError *err)
{
	return gk_group_fit(host, backend, &g->options->engine,
						&(GkGroupPoints) {row, arg, n, g->d, g->source->weighted}, NULL, model, err);
}

/* The clusters of a model into kept: room for k * (d + 3) numbers. */
static void
keep_result(const KmGrouped *g, KmOneGroup *one, const GkModel *m, double *kept)
{
	Size		kd = (Size) m->k * g->d;

	one->k = m->k;
	one->centroids = kept;
	one->inertia = kept + kd;
	one->radius = one->inertia + m->k;
	one->size = (int64_t *) (one->radius + m->k);
	memcpy(one->centroids, m->centroids, kd * sizeof(double));
	memcpy(one->inertia, m->cluster_inertia, m->k * sizeof(double));
	memcpy(one->radius, m->radius, m->k * sizeof(double));
	memcpy(one->size, m->size, m->k * sizeof(int64_t));
}

static Size
result_bytes(const KmGrouped *g, const GkModel *m)
{
	return (Size) m->k * (g->d + 3) * sizeof(double);
}

bool
km_grouped_keep(const KmGrouped *g, KmThreadHosts *hosts, int thread, KmOneGroup *one, const GkModel *m)
{
	double	   *kept = km_thread_keep(hosts, thread, result_bytes(g, m));

	if (kept != NULL)
		keep_result(g, one, m, kept);
	return kept != NULL;
}

bool
km_grouped_small(const KmGrouped *g, int64 rows)
{
	return rows * g->d < KM_LARGE_GROUP;
}

void
km_grouped_fit(const KmGrouped *g, KmThreadHosts *hosts, int thread, GkGroupRow row, const void *arg, int64 n,
			   KmOneGroup *one)
{
	KmThreadMark mark = km_thread_mark(hosts, thread);
	GkModel		model;
	GkError		err;

	one->status = fit(g, row, arg, n, km_thread_host(hosts, thread), &gk_cpu_backend, &model, &err);
	if (one->status == GK_OK && !km_grouped_keep(g, hosts, thread, one, &model))
		one->status = gk_fail(&err, GK_ERR_MEMORY, "out of memory");
	if (one->status != GK_OK)
		one->err = km_thread_keep_error(hosts, thread, &err);
	km_thread_reset(hosts, thread, mark);
}

static void
fit_job(void *arg, int64_t job, int thread)
{
	const Work *w = arg;
	KmOneGroup *one = w->groups[job];

	km_grouped_fit(w->g, w->hosts, thread, km_group_rows_point, one->rows, one->rows->n, one);
}

/* A large one: the main thread, with all threads' help or a GPU. */
static void
fit_large(KmGrouped *g, KmOneGroup *one)
{
	const GkHost *engine = km_host_engine(g->host);
	GkModel		model;
	GkError		err;

	CHECK_FOR_INTERRUPTS();
	km_check(g->host,
			 fit(g, km_group_rows_point, one->rows, one->rows->n, engine,
				 km_choose_backend(g->host, g->options->device, one->rows->n, g->d, g->options->engine.k),
				 &model, &err),
			 &err);
	keep_result(g, one, &model, MemoryContextAllocHuge(g->groups.cxt, result_bytes(g, &model)));
	gk_model_free(engine, &model);
}

static void
begin_batch(KmGrouped *g)
{
	km_group_hash_begin(&g->groups, g->parent);
	g->bytes = 0;
	g->put = 0;
	g->row_cxt = NULL;
}

void
km_grouped_finish(KmGrouped *g)
{
	KmGroupHash   *all = &g->groups;
	MemoryContext caller = MemoryContextSwitchTo(all->cxt);
	const GkHost *engine = km_host_engine(g->host);
	Work		w = {.g = g};
	int64		small = 0;

	w.hosts = km_thread_hosts(engine);
	km_grouped_choose(g, g->bytes / sizeof(double) / Max(g->d, 1));
	if (g->gpu != NULL)
		km_grouped_pack(g, w.hosts);
	w.groups = palloc_extended(Max(all->n, 1) * sizeof(KmOneGroup *), MCXT_ALLOC_HUGE);
	for (int i = 0; i < all->n; i++)
	{
		KmOneGroup *one = all->groups[i];

		if (one->k > 0 || one->status != GK_OK)
			continue;
		if (km_grouped_small(g, one->rows->n))
			w.groups[small++] = one;
		else
			fit_large(g, one);
	}
	if (!gk_parallel_for(engine, small, fit_job, &w))
		km_throw(g->host, GK_STOPPED, NULL);

	/* the rows' order depends on nothing but the keys, however they were read */
	if (!g->ordered)
		km_group_hash_sort(all);
	for (int i = 0; i < all->n; i++)
	{
		km_check(g->host, all->groups[i]->status, all->groups[i]->err);
		km_grouped_put(g, all->groups[i]);
		if (i % 64 == 63)
			CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(all->cxt);
}

static KmOneGroup *
find_group(KmGrouped *g, const Datum *values, const bool *nulls)
{
	KmGroupHash   *all = &g->groups;
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

/* ---- rows ---- */

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
	KmGrouped    *g = (KmGrouped *) self;
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
	Query	   *query = linitial_node(Query, pg_analyze_and_rewrite_fixedparams(raw, text, NULL, 0, NULL));
	PlannedStmt *plan = pg_plan_query(query, text, CURSOR_OPT_PARALLEL_OK, NULL);
	QueryDesc  *desc = CreateQueryDesc(plan, text, GetActiveSnapshot(), InvalidSnapshot,
									   &g->pub, NULL, NULL, 0);

	memset(&g->counts, 0, sizeof(g->counts));
	g->d = 0;
	g->rows = (KmRowReader) {.origin.source = g->source,.rules = km_fit_rules(g->options),.first = g->nkeys,
		.sorted = g->ordered,.begin = begin_rows,.arg = g,.context = g->parent};
	begin_batch(g);
	ExecutorStart(desc, 0);
	km_executor_run(desc);
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	if (g->over)
		MemoryContextDelete(g->groups.cxt);
	else
		km_grouped_finish(g);
}

/*
 * kmeans_grouped(relation regclass, group_by text[], columns text[], k int, <options>)
 * returns table (grp jsonb, cluster int, size bigint, centroid float8[], inertia float8, radius float8)
 */
Datum
kmeans_grouped(PG_FUNCTION_ARGS)
{
	KmGrouped		g = {0};
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
	g.source = km_source_open(PG_GETARG_OID(0), columns, ncolumns, options.weight_column, NULL, false);
	for (int i = 0; i < g.nkeys; i++)
		if (get_attnum(g.source->relid, group_by[i]) == InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist",
							group_by[i], g.source->relname)));

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

	if (g.nkeys != 1 || !km_grouped_by_int(&g, group_by[0]))
		run_query(&g, grouped_query(&g, group_by));
	if (g.over)
	{
		g.ordered = true;
		g.over = false;
		run_query(&g, grouped_query(&g, group_by));
	}
	km_notice_left_out(&g.counts);
	km_host_end(g.host);
	return (Datum) 0;
}
