/*
 * rel_heap.c - the heap road: rows from the pages of tables, without the
 * executor's work per row.
 *
 * The executor has already planned the query, checked all rights and opened the
 * relations when we look at its plan.  If that is nothing but sequential scans
 * of heap tables, one or several in an Append (partitions), without conditions
 * and without expressions, then we do the scans ourselves, in the same order.
 * Row-level security, views that compute, foreign tables and the like make
 * other plans, so no rule about them is written a second time here.
 *
 * rel_page.c takes the rows; the few that it does not take, and those before
 * the first usable one, are handed over like rows of the executor's.
 */
#include "postgres.h"

#include "access/htup_details.h"
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

static bool
plain_target(const TargetEntry *target)
{
	AttrNumber	attnum;

	if (target->resjunk || !IsA(target->expr, Var))
		return false;
	attnum = ((Var *) target->expr)->varattno;
	return attnum > 0 || attnum == SelfItemPointerAttributeNumber || attnum == TableOidAttributeNumber;
}

static bool
plain_scan(const PlanState *ps)
{
	ListCell   *cell;

	if (!IsA(ps, SeqScanState) || ps->qual != NULL ||
		((SeqScanState *) ps)->ss.ss_currentRelation->rd_tableam != GetHeapamTableAmRoutine())
		return false;
	foreach(cell, ps->plan->targetlist)
		if (!plain_target(lfirst_node(TargetEntry, cell)))
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
		return plain_scan(desc->planstate) ? 1 : 0;
	}
	append = (AppendState *) desc->planstate;
	if (append->as_prune_state != NULL)
		return 0;
	for (int i = 0; i < append->as_nplans; i++)
		if (!plain_scan(append->appendplans[i]))
			return 0;
	*scans = append->appendplans;
	return append->as_nplans;
}

/* ---- rows one by one ---- */

/* A table whose rows are handed over like the executor's. */
typedef struct RowWise
{
	int			index;			/* among the tables; -1: none is open */
	HeapScanDesc scan;
	TupleTableSlot *from;		/* as in the table */
	TupleTableSlot *to;			/* as in the query */
} RowWise;

struct KmHeapRead
{
	KmReader   *r;
	QueryDesc  *desc;
	PlanState **scans;			/* [ntables] */
	RowWise		rowwise;
	KmHeapTables tables;
	KmRowBatch	out;			/* rows by the page, in this process, into the store's batch */
};

static void
close_rowwise(RowWise *w)
{
	if (w->index < 0)
		return;
	km_heap_close(w->scan);
	ExecDropSingleTupleTableSlot(w->from);
	ExecDropSingleTupleTableSlot(w->to);
	w->index = -1;
}

static RowWise *
open_rowwise(KmHeapRead *h, int index)
{
	RowWise    *w = &h->rowwise;
	Relation	rel = h->tables.rels[index];

	if (w->index == index)
		return w;
	close_rowwise(w);
	w->scan = km_heap_open(rel, h->desc->snapshot);
	w->from = table_slot_create(rel, NULL);
	w->to = MakeSingleTupleTableSlot(h->desc->tupDesc, &TTSOpsVirtual);
	w->index = index;
	return w;
}

static void
take_row(KmHeapRead *h, HeapTuple tuple)
{
	RowWise    *w = &h->rowwise;
	int			t = 0;
	ListCell   *cell;

	ExecStoreBufferHeapTuple(tuple, w->from, w->scan->rs_cbuf);
	ExecClearTuple(w->to);
	foreach(cell, h->scans[w->index]->plan->targetlist)
	{
		AttrNumber	attnum = ((Var *) lfirst_node(TargetEntry, cell)->expr)->varattno;

		w->to->tts_isnull[t] = false;
		if (attnum > 0)
			w->to->tts_values[t] = slot_getattr(w->from, attnum, &w->to->tts_isnull[t]);
		else if (attnum == TableOidAttributeNumber)
			w->to->tts_values[t] = ObjectIdGetDatum(tuple->t_tableOid);
		else
			w->to->tts_values[t] = PointerGetDatum(&tuple->t_self);
		t++;
	}
	ExecStoreVirtualTuple(w->to);
	km_reader_row(h->r, w->to);
}

/* The visible rows of a page, from one on. */
void
km_heap_rows(KmHeapRead *h, int table, BlockNumber block, OffsetNumber from)
{
	RowWise    *w = open_rowwise(h, table);
	HeapTupleData tuple;
	Page		page;
	int			count = 0;

	km_heap_page(w->scan, block);
	page = BufferGetPage(w->scan->rs_cbuf);
	tuple.t_tableOid = h->tables.table[table].relid;
	for (int i = 0; i < (int) w->scan->rs_ntuples; i++)
	{
		OffsetNumber offset = w->scan->rs_vistuples[i];
		ItemId		item = PageGetItemId(page, offset);

		if (offset < from)
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		ItemPointerSet(&tuple.t_self, block, offset);
		take_row(h, &tuple);
		count++;
	}
	km_count_rows(h->tables.rels[table], count);
	/* that no page but the one at hand is pinned */
	ExecClearTuple(w->from);
}

/* ---- what to read ---- */

static KmRowSpec *
describe(const KmReader *r)
{
	const KmSource *source = r->source;
	int			features = source->array ? 1 : source->ncolumns;
	int			nvalues = features + (source->weighted ? 1 : 0);
	KmRowSpec *spec = palloc0(km_row_spec_size(nvalues));

	spec->array = source->array;
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
		spec->type[features] = source->weight_type;
	return spec;
}

static void
describe_table(const KmReader *r, const PlanState *ps, int features, Relation rel, KmHeapTable *table)
{
	const KmSource *source = r->source;
	int			count = list_length(ps->plan->targetlist);
	AttrNumber *attnums = palloc(count * sizeof(AttrNumber));
	int			n = 0;
	ListCell   *cell;

	foreach(cell, ps->plan->targetlist)
		attnums[n++] = ((Var *) lfirst_node(TargetEntry, cell)->expr)->varattno;
	table->relid = RelationGetRelid(rel);
	/* features, the weight and the label: as in the query, but without its ids */
	table->attnums = palloc((features + 2) * sizeof(AttrNumber));
	memcpy(table->attnums, attnums, features * sizeof(AttrNumber));
	n = features;
	if (source->weighted)
		table->attnums[n++] = attnums[source->at_weight];
	if (source->at_label >= 0)
		table->attnums[n] = attnums[source->at_label];
	pfree(attnums);
}

/* A system column as a feature is the executor's. */
static bool
plain_attributes(const KmHeapTable *table, int n)
{
	for (int i = 0; i < n; i++)
		if (table->attnums[i] <= 0)
			return false;
	return true;
}

/*
 * What any sequential scan begins with, of a table without rows, too.  In a serializable
 * transaction the lock comes before the look at how many blocks there are: rows that others
 * add afterwards conflict with it.
 */
static void
begin_table(const KmHeapRead *h, int index)
{
	Relation	rel = h->tables.rels[index];

	PredicateLockRelation(rel, h->desc->snapshot);
	pgstat_count_heap_scan(rel);
	h->tables.table[index].nblocks = RelationGetNumberOfBlocks(rel);
}

/* ---- all rows ---- */

void
km_heap_left_out(KmReader *r, const KmRowBatch *t)
{
	r->rows.origin.number += t->seen;
	km_counts_add(r->counts, &t->counts);
	for (int i = 0; i < t->nleft; i++)
	{
		KmRowId		id;

		id.tableoid = r->tables->oids[t->left[i].table];
		ItemPointerSet(&id.ctid, t->left[i].block, t->left[i].offset);
		r->options->left_out(r->options->arg, &id, t->left[i].old_label);
	}
}

void
km_heap_pages(KmHeapRead *h, KmPageReader *p, int table, BlockNumber block, OffsetNumber from, BlockNumber end)
{
	KmReader   *r = h->r;
	KmRowBatch *out = &h->out;
	bool		more = true;

	km_page_seek(p, block, from, end);
	while (more)
	{
		km_row_batch_clear(out);
		more = km_page_next(p, out);
		km_heap_left_out(r, out);
		km_reader_commit(r);
		if (out->deferred != 0)
		{
			km_heap_rows(h, table, out->block, out->deferred);
			km_reader_commit(r);
		}
	}
}

/* Without workers. */
static void
read_direct(KmHeapRead *h, int table, BlockNumber block)
{
	KmReader   *r = h->r;
	KmThreads  *threads = km_threads_begin(h, r, h->tables.spec);

	h->out.batch = r->batch;
	if (h->tables.spec->left_out)
		h->out.left = palloc(r->batch->capacity * sizeof(KmLeftOut));
	for (; table < h->tables.count; table++, block = 0)
	{
		KmHeapTable *t = &h->tables.table[table];
		KmPageReader *p = km_page_open(h->tables.rels[table], h->desc->snapshot, h->tables.spec, t);

		km_page_locate(p, t->nblocks, km_host_engine(r->host));
		if (threads == NULL || !km_threads_read(threads, h->tables.rels[table], p, table, t, block))
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
	while (r->store == NULL && table < h->tables.count)
	{
		if (block < h->tables.table[table].nblocks)
			km_heap_rows(h, table, block++, FirstOffsetNumber);
		else
		{
			table++;
			block = 0;
		}
	}
	if (r->store == NULL)
		return;
	h->tables.spec->d = r->rows.d;
	km_reader_commit(r);
	if (!km_workers_read(h, r, &h->tables, h->desc->snapshot, table, block))
		read_direct(h, table, block);
}

bool
km_heap_scan(QueryDesc *desc, DestReceiver *dest)
{
	KmHeapRead	h = {.r = (KmReader *) dest,.desc = desc,.rowwise = {.index = -1}};
	KmReader   *r = h.r;
	int			n;
	int			features = r->source->array ? 1 : r->source->ncolumns;
	bool		plain;
	MemoryContext caller;

	if (gkmeans_reader == KM_READER_EXECUTOR)
		return false;
	caller = MemoryContextSwitchTo(desc->estate->es_query_cxt);
	n = km_heap_scans(desc, &h.scans);
	plain = n > 0;
	h.tables.count = n;
	h.tables.table = palloc0(n * sizeof(KmHeapTable));
	h.tables.rels = palloc(n * sizeof(Relation));
	for (int i = 0; plain && i < n; i++)
	{
		h.tables.rels[i] = ((SeqScanState *) h.scans[i])->ss.ss_currentRelation;
		describe_table(r, h.scans[i], features, h.tables.rels[i], &h.tables.table[i]);
		plain = plain_attributes(&h.tables.table[i], features + (r->source->weighted ? 1 : 0));
	}
	if (!plain && gkmeans_reader == KM_READER_HEAP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gkmeans.reader is \"heap\", but \"%s\" can only be read by the executor",
						r->source->relname),
				 errhint("Set gkmeans.reader to \"auto\".")));
	if (plain)
	{
		for (int i = 0; i < n; i++)
		{
			begin_table(&h, i);
			if (r->source->identify)
				h.tables.table[i].index = km_reader_table(r, h.tables.table[i].relid);
		}
		h.tables.spec = describe(r);
		read_tables(&h);
		close_rowwise(&h.rowwise);
	}
	MemoryContextSwitchTo(caller);
	return plain;
}
