/*
 * rel_heap.c - the heap path: rows from the pages of tables, without the executor's work per
 * row.
 *
 * The executor has already planned the query, checked all rights and opened the relations
 * when we look at its plan.  If that is nothing but sequential scans of heap tables, one or
 * several in an Append (partitions), without conditions and expressions, then we do the scans
 * ourselves, in the same order.  Row-level security, views that compute, foreign tables and the
 * like make other plans, so no rule about them is written a second time here.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/tableam.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "storage/predicate.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "pg/pg_compat_heap.h"
#include "relation/rel_heap.h"

/* ---- the plan ---- */

/* A column of the table, of this type.  (It may be of another one than was planned: km_query_check_rows().) */
static bool
plain_target(const TargetEntry *target, TupleDesc table, Oid type)
{
	const Var  *var = (const Var *) target->expr;
	Form_pg_attribute att;

	if (target->resjunk || !IsA(var, Var) || var->vartype != type)
		return false;
	if (var->varattno <= 0)
		return var->varattno == SelfItemPointerAttributeNumber || var->varattno == TableOidAttributeNumber;
	att = TupleDescAttr(table, var->varattno - 1);
	return att->atttypid == type && !att->attisdropped;
}

static bool
plain_scan(const PlanState *ps, TupleDesc query)
{
	Relation	rel;
	ListCell   *cell;
	int			i = 0;

	if (!IsA(ps, SeqScanState) || ps->qual != NULL || list_length(ps->plan->targetlist) != query->natts)
		return false;
	rel = ((SeqScanState *) ps)->ss.ss_currentRelation;
	if (rel->rd_tableam != GetHeapamTableAmRoutine())
		return false;
	foreach(cell, ps->plan->targetlist)
		if (!plain_target(lfirst_node(TargetEntry, cell), RelationGetDescr(rel), TupleDescAttr(query, i++)->atttypid))
		return false;
	return true;
}

int
km_heap_scans(QueryDesc *desc, PlanState ***scans)
{
	AppendState *append;

	if (!IsMVCCSnapshot(desc->snapshot))
		return 0;
	if (!IsA(desc->planstate, AppendState))
	{
		*scans = &desc->planstate;
		return plain_scan(desc->planstate, desc->tupDesc) ? 1 : 0;
	}
	append = (AppendState *) desc->planstate;
	if (append->as_prune_state != NULL)
		return 0;
	for (int i = 0; i < append->as_nplans; i++)
		if (!plain_scan(append->appendplans[i], desc->tupDesc))
			return 0;
	*scans = append->appendplans;
	return append->as_nplans;
}

/* ---- what to read ---- */

static KmRowSpec *
row_spec(const KmReader *r)
{
	const KmSource *source = r->source;
	int			nvalues = source->ncolumns + (source->weighted ? 1 : 0);
	KmRowSpec  *spec = palloc0(km_row_spec_size(nvalues));

	spec->array = source->array;
	spec->layout = source->layout;
	spec->weighted = source->weighted;
	spec->identify = source->identify;
	spec->labelled = source->at_label >= 0;
	spec->left_out = source->identify && r->options->left_out != NULL;
	spec->rules = r->rows.rules;
	spec->label_type = source->label_type;
	spec->nvalues = nvalues;
	for (int i = 0; i < source->nruns; i++)
		for (int j = source->runs[i].first; j < source->runs[i].end; j++)
			spec->type[j] = source->runs[i].type;
	if (source->weighted)
		spec->type[source->ncolumns] = source->weight_type;
	for (int i = 0; i < nvalues; i++)
		spec->numeric |= spec->type[i] == KM_VALUE_NUMERIC;
	/* an array with a NULL is deferred */
	spec->filled = r->rows.fill.value != NULL || r->rows.rules.partial;
	if (r->rows.fill.value != NULL && !source->array)
		memcpy(km_row_fill(spec), r->rows.fill.value, source->ncolumns * sizeof(double));
	return spec;
}

/* False: a system column is among the values, which is the executor's. */
static bool
find_columns(KmHeapRead *h, int table)
{
	List	   *targets = h->scans[table]->plan->targetlist;
	AttrNumber *attnums = palloc(list_length(targets) * sizeof(AttrNumber));
	int			n = 0;
	ListCell   *cell;

	/* the source's query has them in the order of the spec, and row ids behind them */
	foreach(cell, targets)
		attnums[n++] = ((Var *) lfirst_node(TargetEntry, cell)->expr)->varattno;
	h->tables[table].attnums = attnums;
	for (int i = 0; i < h->spec->nvalues; i++)
		if (attnums[i] <= 0)
			return false;
	return true;
}

/*
 * What any sequential scan begins with, of a table without rows, too.  In a serializable
 * transaction the lock comes before the look at how many blocks there are: rows that others
 * add afterwards conflict with it.
 */
static void
begin_table(KmHeapRead *h, int table)
{
	Relation	rel = h->rels[table];
	KmHeapTable *t = &h->tables[table];

	PredicateLockRelation(rel, h->desc->snapshot);
	pgstat_count_heap_scan(rel);
	t->relid = RelationGetRelid(rel);
	t->nblocks = RelationGetNumberOfBlocks(rel);
	if (h->spec->identify)
		t->index = km_reader_table(h->r, t->relid);
}

/* ---- all rows ---- */

/* Without workers. */
static void
read_direct(KmHeapRead *h, int table, BlockNumber block)
{
	KmReader   *r = h->r;
	KmThreads  *threads = km_threads_begin(h);

	h->out.batch = r->batch;
	if (h->spec->left_out)
		h->out.left = palloc(r->batch->capacity * sizeof(KmLeftOut));
	for (; table < h->ntables; table++, block = 0)
	{
		const KmHeapTable *t = &h->tables[table];
		KmPageReader *p = km_page_open(h->rels[table], h->desc->snapshot, h->spec, t);

		km_page_locate(p, t->nblocks, km_host_engine(r->host));
		if (threads == NULL || !km_threads_read(threads, p, table, block))
			km_heap_pages(h, p, table, block, FirstOffsetNumber, t->nblocks);
		km_page_close(p);
	}
	if (threads != NULL)
		km_threads_end(threads);
}

static void
read_tables(KmHeapRead *h)
{
	KmReader   *r = h->r;
	int			table = 0;
	BlockNumber block = 0;

	/* the first usable row makes the store, and says how many features there are */
	while (r->store == NULL && table < h->ntables)
	{
		if (block < h->tables[table].nblocks)
			km_heap_rows(h, table, block++, FirstOffsetNumber);
		else
		{
			table++;
			block = 0;
		}
	}
	if (r->store == NULL)
		return;
	km_reader_commit(r);
	h->spec->d = r->rows.d;
	h->elsewhere = r->rows.elsewhere;
	if (!km_workers_read(h, table, block))
		read_direct(h, table, block);
}

bool
km_heap_scan(QueryDesc *desc, DestReceiver *dest)
{
	KmHeapRead	h = {.r = (KmReader *) dest,.desc = desc,.row_table = -1};
	bool		plain;
	MemoryContext caller;

	if (gkmeans_reader == KM_READER_EXECUTOR)
		return false;
	caller = MemoryContextSwitchTo(desc->estate->es_query_cxt);
	h.ntables = km_heap_scans(desc, &h.scans);
	h.rels = palloc(h.ntables * sizeof(Relation));
	h.tables = palloc0(h.ntables * sizeof(KmHeapTable));
	h.spec = row_spec(h.r);
	/* an array of numeric has its elements at places of their own */
	plain = h.ntables > 0 && !(h.spec->array && h.spec->numeric);
	for (int i = 0; plain && i < h.ntables; i++)
	{
		h.rels[i] = ((SeqScanState *) h.scans[i])->ss.ss_currentRelation;
		plain = find_columns(&h, i);
	}
	if (!plain && gkmeans_reader == KM_READER_HEAP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gkmeans.reader is \"heap\", but \"%s\" can only be read by the executor",
						h.r->source->relname),
				 errhint("Set gkmeans.reader to \"auto\".")));
	if (plain)
	{
		for (int i = 0; i < h.ntables; i++)
			begin_table(&h, i);
		read_tables(&h);
		km_heap_rows_end(&h);
	}
	MemoryContextSwitchTo(caller);
	return plain;
}
