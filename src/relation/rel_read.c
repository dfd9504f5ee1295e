/*
 * rel_read.c - the rows of a source into a store.
 *
 * The source's query runs as the caller, the way COPY (SELECT ...) does: privileges, row-level
 * security, views and partitions are the executor's business.  Random numbers are counted by the
 * place of a row among the points, so the same table has to be read in the same order each time.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#include "pg/pg.h"
#include "relation/rel_executor.h"

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

bool
km_read_only(bool on)
{
	bool		before = XactReadOnly;

	/* the variable of transaction_read_only, which PostgreSQL sets for whole transactions only, from 16 on */
	XactReadOnly = on;
	return before;
}

KmQueryPlan
km_query_plan(const KmSource *source, RawStmt *raw, const char *text, int first, int options)
{
	Query	   *query = parse_analyze_fixedparams(raw, text, NULL, 0, NULL);
	RangeTblEntry *from = linitial_node(RangeTblEntry, query->rtable);
	List	   *types;

	/* from here on the relation is locked by its OID, and the values are taken for what they were */
	if (from->relid != source->relid)
		km_source_changed(source);
	if (source->types != NIL && !equal(km_query_types(from->subquery != NULL ? from->subquery : query, first), source->types))
		km_source_changed(source);
	types = km_query_types(query, 0);
	return (KmQueryPlan) {pg_plan_query(linitial_node(Query, QueryRewrite(query)), text, options, NULL), types};
}

/* ---- the rows' types ---- */

/* User code that the planner runs, or that ran since a plan was made, may have changed a table that it reads. */
typedef struct Checked
{
	DestReceiver pub;			/* must be first */
	DestReceiver *to;
	const KmSource *source;
	const List *types;
	TupleDesc	seen;			/* that of the last row */
} Checked;

static void
check_types(const Checked *c, TupleDesc of)
{
	bool		same = of->natts == list_length(c->types);

	for (int i = 0; same && i < of->natts; i++)
		same = TupleDescAttr(of, i)->atttypid == list_nth_oid(c->types, i);
	if (!same)
		km_source_changed(c->source);
}

static bool
receive_checked(TupleTableSlot *slot, DestReceiver *self)
{
	Checked    *c = (Checked *) self;

	if (slot->tts_tupleDescriptor != c->seen)
		check_types(c, slot->tts_tupleDescriptor);
	c->seen = slot->tts_tupleDescriptor;
	return c->to->receiveSlot(slot, c->to);
}

static void
start_checked(DestReceiver *self, int operation, TupleDesc desc)
{
	DestReceiver *to = ((Checked *) self)->to;

	to->rStartup(to, operation, desc);
}

static void
end_checked(DestReceiver *self)
{
	DestReceiver *to = ((Checked *) self)->to;

	to->rShutdown(to);
}

void
km_query_check_rows(const KmSource *source, QueryDesc *desc, const List *types)
{
	Checked    *c = MemoryContextAllocZero(desc->estate->es_query_cxt, sizeof(Checked));

	c->pub = *None_Receiver;
	c->pub.receiveSlot = receive_checked;
	c->pub.rStartup = start_checked;
	c->pub.rShutdown = end_checked;
	c->to = desc->dest;
	c->source = source;
	c->types = types;
	check_types(c, desc->tupDesc);
	/* from here on they stay: the relations are open */
	km_source_require_same(source);
	desc->dest = &c->pub;
}

/* ---- the run ---- */

/* Rows of a distributed table arrive in any order. */
static const char *
in_order(const KmSource *source)
{
	return source->distributed ? psprintf("%s%s", source->query, km_citus_order()) : source->query;
}

static KmQueryPlan
plan_of(const KmSource *source, const char **text)
{
	MemoryContext caller;

	/* no CURSOR_OPT_PARALLEL_OK: a Gather would mix the rows' order */
	if (source->raw == NULL)
	{
		*text = in_order(source);
		return km_query_plan(source, linitial_node(RawStmt, pg_parse_query(*text)), *text, 0, 0);
	}
	*text = source->query;
	caller = MemoryContextSwitchTo(GetMemoryChunkContext(source->plan));
	if (source->plan->plan == NULL)
		*source->plan = km_query_plan(source, source->raw, *text, 0, 0);
	MemoryContextSwitchTo(caller);
	return *source->plan;
}

/* PostGIS has an error of its own for a geometry that is no point: an ErrorContextCallback. */
static void
geometry_error(void *arg)
{
	const KmSource *source = arg;

	if (source->geometry != NULL && geterrcode() == ERRCODE_INTERNAL_ERROR)
		errhint("Geometries are features if they are points. Of others, take the centroids: SELECT * FROM kmeans_query('SELECT ST_Centroid(%s) FROM %s', 3).",
				quote_identifier(source->geometry), source->qualified != NULL ? source->qualified : "...");
}

void
km_query_run(const KmSource *source, DestReceiver *dest, KmQueryScan scan)
{
	int			guc_level = NewGUCNestLevel();
	bool		read_only = XactReadOnly;
	ErrorContextCallback geometry = {error_context_stack, geometry_error, unconstify(KmSource *, source)};
	ErrorContextCallback callback = {&geometry, km_query_error, source->query};
	const char *text;
	KmQueryPlan plan;
	QueryDesc  *desc;

	error_context_stack = source->raw != NULL ? &callback : &geometry;
	pin_row_order(source);
	/* what the caller's own query calls may not write either */
	if (source->relkind == '\0')
		km_read_only(true);
	plan = plan_of(source, &text);
	desc = CreateQueryDesc(plan.plan, text, GetActiveSnapshot(), InvalidSnapshot,
						   dest, NULL, NULL, 0);
	ExecutorStart(desc, 0);
	km_query_check_rows(source, desc, plan.types);
	/* from here on rights are checked and relations open, by whatever the rows are read */
	if (!scan(desc, dest))
		km_executor_run(desc);
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	km_read_only(read_only);
	AtEOXact_GUC(true, guc_level);
	error_context_stack = geometry.previous;
}

/* ---- the store ---- */

/* What the caller's centroids or model expect. */
static void
check_expected(const KmReader *r, int d)
{
	if (r->options->expect_d != 0 && d != r->options->expect_d)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("different numbers of features: %d in %s, %d in \"%s\"",
						r->options->expect_d, r->options->expect_of, d, r->source->relname)));
	km_check_most_features(d);
}

/* The first usable row says how many features there are. */
static void
create_store(void *arg, int d)
{
	KmReader   *r = arg;
	const KmSource *source = r->source;
	MemoryContext caller = MemoryContextSwitchTo(r->context);
	int			naux = source->at_label >= 0 ? 3 : source->identify ? 2 : 0;
	GkError		err;

	check_expected(r, d);
	km_check(r->host,
			 gk_store_create(km_host_engine(r->host), d, source->weighted, naux,
							 (size_t) gkmeans_chunk_size * 1024, km_memory_limit_bytes(),
							 &r->store, &err),
			 &err);
	if (r->options->take != NULL)
		gk_store_pass_on(r->store, r->options->take, r->options->take_arg);
	else
		gk_store_expect(r->store, km_source_rows(source));
	if (r->options->created != NULL)
		r->options->created(r->options->created_arg, r->store);
	r->batch = gk_store_batch(r->store);
	MemoryContextSwitchTo(caller);
}

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	km_reader_row((KmReader *) self, slot);
	return true;
}

/* ---- all rows ---- */

GkStore *
km_read(KmPgHost *host, const KmSource *source, const KmReadOptions *options,
		KmReadCounts *counts, KmTables *tables)
{
	KmReader	r = {0};

	r.pub = *None_Receiver;
	r.pub.receiveSlot = receive_row;
	r.host = host;
	r.source = source;
	r.options = options;
	r.counts = counts;
	r.tables = tables;
	r.context = CurrentMemoryContext;
	r.rows.origin.source = source;
	r.rows.rules = (KmRowRules) {options->distance == GK_COSINE, options->skip_nonfinite, options->distance == GK_PARTIAL};
	r.rows.fill = options->fill;
	r.rows.keep_nulls = r.rows.rules.partial;
	r.rows.begin = create_store;
	r.rows.arg = &r;
	r.rows.context = CurrentMemoryContext;

	km_progress_begin(km_host_context(host), source->relid);
	/* it is known before the first row, so say it now and not at the end */
	if (!source->array)
		check_expected(&r, source->ncolumns);

	km_query_run(source, &r.pub, km_heap_scan);
	if (r.store != NULL)
		km_reader_commit(&r);
	/* array rows that were all skipped leave a store without points */
	return r.store != NULL && gk_store_rows(r.store) > 0 ? r.store : NULL;
}
