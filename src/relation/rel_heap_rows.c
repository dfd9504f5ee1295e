/*
 * rel_heap_rows.c - rows of heap tables in this process: those of a page like the executor's,
 * or page by page in batches.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "executor/executor.h"

#include "pg/pg_compat_heap.h"
#include "relation/rel_heap.h"

/* ---- like the executor's ---- */

void
km_heap_rows_end(KmHeapRead *h)
{
	if (h->row_table < 0)
		return;
	km_heap_close(h->row_scan);
	ExecDropSingleTupleTableSlot(h->row_from);
	ExecDropSingleTupleTableSlot(h->row_to);
	h->row_table = -1;
}

static void
open_table(KmHeapRead *h, int table)
{
	if (h->row_table == table)
		return;
	km_heap_rows_end(h);
	h->row_scan = km_heap_open(h->rels[table], h->desc->snapshot);
	h->row_from = table_slot_create(h->rels[table], NULL);
	h->row_to = MakeSingleTupleTableSlot(h->desc->tupDesc, &TTSOpsVirtual);
	h->row_table = table;
}

static void
read_row(KmHeapRead *h, HeapTuple tuple)
{
	TupleTableSlot *from = h->row_from;
	TupleTableSlot *to = h->row_to;
	int			t = 0;
	ListCell   *cell;

	ExecStoreBufferHeapTuple(tuple, from, h->row_scan->rs_cbuf);
	ExecClearTuple(to);
	foreach(cell, h->scans[h->row_table]->plan->targetlist)
	{
		AttrNumber	attnum = ((Var *) lfirst_node(TargetEntry, cell)->expr)->varattno;

		to->tts_values[t] = attnum > 0 ? slot_getattr(from, attnum, &to->tts_isnull[t])
			: slot_getsysattr(from, attnum, &to->tts_isnull[t]);
		t++;
	}
	ExecStoreVirtualTuple(to);
	km_reader_row(h->r, to);
}

void
km_heap_rows(KmHeapRead *h, int table, BlockNumber block, OffsetNumber from)
{
	HeapTupleData tuple;
	HeapScanDesc scan;
	Page		page;
	int			count = 0;

	open_table(h, table);
	scan = h->row_scan;
	km_heap_page(scan, block);
	page = BufferGetPage(scan->rs_cbuf);
	tuple.t_tableOid = h->tables[table].relid;
	for (int i = 0; i < (int) scan->rs_ntuples; i++)
	{
		OffsetNumber offset = scan->rs_vistuples[i];
		ItemId		item = PageGetItemId(page, offset);

		if (offset < from)
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		ItemPointerSet(&tuple.t_self, block, offset);
		read_row(h, &tuple);
		count++;
	}
	km_count_rows(h->rels[table], count);
	/* that no page but the one at hand is pinned */
	ExecClearTuple(h->row_from);
}

/* ---- in batches ---- */

void
km_heap_left_out(KmReader *r, const KmRowBatch *b)
{
	r->rows.origin.number += b->seen;
	km_counts_add(r->counts, &b->counts);
	for (int i = 0; i < b->nleft; i++)
	{
		KmRowId		id;

		id.tableoid = r->tables->oids[b->left[i].table];
		ItemPointerSet(&id.ctid, b->left[i].block, b->left[i].offset);
		r->options->left_out(r->options->arg, &id, b->left[i].old_label);
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
