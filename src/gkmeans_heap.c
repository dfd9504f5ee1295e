/*
 * gkmeans_heap.c - the heap road: rows from the pages of tables, without the
 * executor's work per row.
 *
 * The executor has already planned the query, checked all rights and opened the
 * relations when we look at its plan.  If that is nothing but sequential scans
 * of heap tables, one or several in an Append (partitions), without conditions
 * and without expressions, then we do the scans ourselves, in the same order.
 * Row-level security, views that compute, foreign tables and the like make
 * other plans, so no rule about them is written a second time here.
 *
 * PostgreSQL's own function finds the visible rows of a page, as for any
 * sequential scan.  A row that has all features, without NULLs and with
 * fixed-width columns only up to the last feature, has them at constant places:
 * a page of such rows is gathered column by column.  Any other row is taken
 * apart by PostgreSQL and handed over like a row of the executor's.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "gkmeans_compat_heap.h"
#include "gkmeans_reader.h"

/* A scan of one table. */
typedef struct HeapRead
{
	GkReader   *r;
	Relation	rel;
	HeapScanDesc scan;
	/* The query's values as attributes of this table. */
	int			ntargets;
	AttrNumber *attnums;		/* [ntargets] */
	AttrNumber	last;			/* the last one of them */
	/* Where the features, and the weight, are in rows without a surprise. */
	bool		constant;
	AttrNumber	last_point;		/* the last attribute that they need */
	int		   *at;				/* [d], and the weight */
	GkValueType *type;			/* likewise */
	/* The rows at hand, all of one page. */
	BlockNumber block;
	const char *data[MaxHeapTuplesPerPage];
	OffsetNumber offset[MaxHeapTuplesPerPage];
	int			n;
	/* For rows one by one. */
	HeapTupleData tuple;
	TupleTableSlot *from;		/* as in the table */
	TupleTableSlot *to;			/* as in the query */
} HeapRead;

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

/* The scans that the plan consists of, in order; 0: it is something else. */
static int
plain_scans(QueryDesc *desc, PlanState ***scans)
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

/* ---- constant places ---- */

static int16
value_size(GkValueType type)
{
	switch (type)
	{
		case GK_VALUE_INT2:
			return sizeof(int16);
		case GK_VALUE_INT4:
			return sizeof(int32);
		case GK_VALUE_FLOAT4:
			return sizeof(float4);
		default:
			return sizeof(int64);
	}
}

/* The place of an attribute in a row without NULLs before it; -1: depends on the row. */
static int
constant_place(TupleDesc desc, AttrNumber attnum)
{
	int			at = 0;

	for (int i = 0;; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);

		if (attr->attlen <= 0)
			return -1;
		at = att_align_nominal(at, attr->attalign);
		if (i == attnum - 1)
			return at;
		at += attr->attlen;
	}
}

static void
find_places(HeapRead *h)
{
	const GkSource *source = h->r->source;
	TupleDesc	desc = RelationGetDescr(h->rel);
	int			values = source->ncolumns + (source->weighted ? 1 : 0);

	h->constant = !source->array;
	if (source->array)
		return;
	h->at = palloc(values * sizeof(int));
	h->type = palloc(values * sizeof(GkValueType));
	for (int i = 0; i < source->nruns; i++)
		for (int j = source->runs[i].first; j < source->runs[i].end; j++)
			h->type[j] = source->runs[i].type;
	if (source->weighted)
		h->type[source->ncolumns] = source->weight_type;
	for (int j = 0; j < values; j++)
	{
		AttrNumber	attnum = h->attnums[j < source->ncolumns ? j : source->at_weight];

		h->at[j] = attnum > 0 ? constant_place(desc, attnum) : -1;
		if (h->at[j] < 0 || TupleDescAttr(desc, attnum - 1)->attlen != value_size(h->type[j]))
		{
			h->constant = false;
			return;
		}
		h->last_point = Max(h->last_point, attnum);
	}
}

/* Does this row have its features at the constant places? */
static inline bool
at_constant_places(const HeapRead *h, const HeapTupleHeaderData *row)
{
	/* columns added later have their values elsewhere */
	if (HeapTupleHeaderGetNatts(row) < h->last_point)
		return false;
	if (row->t_infomask & HEAP_HASNULL)
		for (int i = 0; i < h->last_point; i++)
			if (att_isnull(i, row->t_bits))
				return false;
	return true;
}

/* ---- rows by the page ---- */

/*
 * These return whether all values were finite.  Values are aligned, as the rows
 * on a page are and constant_place() keeps it.
 */
#define GATHER_INTEGERS(type) \
	for (int i = 0; i < n; i++) \
		out[i] = (double) *(const type *) (data[i] + at); \
	return true

#define GATHER_FLOATS(type) \
	for (int i = 0; i < n; i++) \
	{ \
		out[i] = (double) *(const type *) (data[i] + at); \
		finite &= fabs(out[i]) <= DBL_MAX; \
	} \
	return finite

static bool
gather(GkValueType type, const char *const *data, int n, int at, double *out)
{
	int			finite = 1;

	switch (type)
	{
		case GK_VALUE_INT2:
			GATHER_INTEGERS(int16);
		case GK_VALUE_INT4:
			GATHER_INTEGERS(int32);
		case GK_VALUE_INT8:
			GATHER_INTEGERS(int64);
		case GK_VALUE_FLOAT4:
			GATHER_FLOATS(float4);
		case GK_VALUE_FLOAT8:
			GATHER_FLOATS(float8);
	}
	pg_unreachable();
}

static bool
all_positive(const double *x, int n)
{
	int			positive = 1;

	for (int i = 0; i < n; i++)
		positive &= x[i] > 0;
	return positive;
}

/* Is one of the n staged points zero in all features? */
static bool
some_zero(const GkReader *r, int n)
{
	for (int i = 0; i < n; i++)
	{
		int			j = 0;

		while (j < r->d && r->stage[j][r->fill + i] == 0)
			j++;
		if (j == r->d)
			return true;
	}
	return false;
}

static void
set_tuple(HeapRead *h, int i)
{
	Page		page = BufferGetPage(h->scan->rs_cbuf);
	ItemId		item = PageGetItemId(page, h->offset[i]);

	h->tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	h->tuple.t_len = ItemIdGetLength(item);
	h->tuple.t_tableOid = RelationGetRelid(h->rel);
	ItemPointerSet(&h->tuple.t_self, h->block, h->offset[i]);
}

/* Where rows first .. first + n - 1 are, and their old labels. */
static void
gather_ids(HeapRead *h, int first, int n)
{
	GkReader   *r = h->r;
	uint32		table = (uint32) gk_reader_table(r, RelationGetRelid(h->rel)) << 16;

	for (int i = 0; i < n; i++)
	{
		r->aux[GK_AUX_BLOCK][r->fill + i] = h->block;
		r->aux[GK_AUX_TABLE][r->fill + i] = table | h->offset[first + i];
	}
	if (r->source->at_label < 0)
		return;
	for (int i = 0; i < n; i++)
	{
		bool		isnull;
		Datum		value;

		set_tuple(h, first + i);
		value = heap_getattr(&h->tuple, h->attnums[r->source->at_label], RelationGetDescr(h->rel), &isnull);
		r->aux[GK_AUX_LABEL][r->fill + i] = gk_reader_old_label(r, value, isnull);
	}
}

/* False: look at these rows one by one; nothing has happened. */
static bool
stage_rows(HeapRead *h, int first, int n)
{
	GkReader   *r = h->r;
	bool		finite = true;

	if (r->store == NULL)
		return false;
	for (int j = 0; j < r->d; j++)
		finite &= gather(h->type[j], h->data + first, n, h->at[j], r->stage[j] + r->fill);
	if (r->source->weighted)
		finite = finite && gather(h->type[r->d], h->data + first, n, h->at[r->d], r->stage[r->d] + r->fill) &&
			all_positive(r->stage[r->d] + r->fill, n);
	if (!finite || (r->options->distance == GK_COSINE && some_zero(r, n)))
		return false;

	if (r->source->identify)
		gather_ids(h, first, n);
	r->rows += n;
	r->fill += n;
	if (r->fill == r->batch_rows)
		gk_reader_commit(r);
	return true;
}

/* ---- rows one by one ---- */

static void
take_row(HeapRead *h, int i)
{
	set_tuple(h, i);
	ExecStoreBufferHeapTuple(&h->tuple, h->from, h->scan->rs_cbuf);
	slot_getsomeattrs(h->from, h->last);
	ExecClearTuple(h->to);
	for (int t = 0; t < h->ntargets; t++)
	{
		AttrNumber	attnum = h->attnums[t];

		h->to->tts_isnull[t] = attnum > 0 && h->from->tts_isnull[attnum - 1];
		if (attnum > 0)
			h->to->tts_values[t] = h->from->tts_values[attnum - 1];
		else if (attnum == TableOidAttributeNumber)
			h->to->tts_values[t] = ObjectIdGetDatum(h->tuple.t_tableOid);
		else
			h->to->tts_values[t] = PointerGetDatum(&h->tuple.t_self);
	}
	ExecStoreVirtualTuple(h->to);
	gk_reader_row(h->r, h->to);
}

/* The rows that were noted: by the page if they are at constant places. */
static void
take_rows(HeapRead *h, bool constant)
{
	GkReader   *r = h->r;

	for (int done = 0, n; done < h->n; done += n)
	{
		n = constant && r->store != NULL ? Min(h->n - done, r->batch_rows - r->fill) : 1;
		if (constant && stage_rows(h, done, n))
			continue;
		for (int i = 0; i < n; i++)
			take_row(h, done + i);
	}
	h->n = 0;
}

static void
take_page(HeapRead *h)
{
	Page		page = BufferGetPage(h->scan->rs_cbuf);
	int			rows = (int) h->scan->rs_ntuples;
	bool		constant = true;

	for (int i = 0; i < rows; i++)
	{
		OffsetNumber offset = h->scan->rs_vistuples[i];
		HeapTupleHeader row = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, offset));
		bool		is = h->constant && at_constant_places(h, row);

		/* the rows' order is to stay */
		if (is != constant)
		{
			take_rows(h, constant);
			constant = is;
		}
		h->data[h->n] = (const char *) row + row->t_hoff;
		h->offset[h->n++] = offset;
	}
	take_rows(h, constant);
	/* that no page but the one at hand is pinned */
	ExecClearTuple(h->from);
	/* the counter of rows that scans of this relation returned */
	pgstat_count_index_tuples(h->rel, rows);
}

/* ---- tables ---- */

static void
read_table(GkReader *r, QueryDesc *desc, const PlanState *ps)
{
	HeapRead   *h = palloc0(sizeof(HeapRead));
	TableScanDesc scan;
	ListCell   *cell;

	h->r = r;
	h->rel = ((SeqScanState *) ps)->ss.ss_currentRelation;
	h->attnums = palloc(list_length(ps->plan->targetlist) * sizeof(AttrNumber));
	foreach(cell, ps->plan->targetlist)
	{
		AttrNumber	attnum = ((Var *) lfirst_node(TargetEntry, cell)->expr)->varattno;

		h->attnums[h->ntargets++] = attnum;
		h->last = Max(h->last, attnum);
	}
	find_places(h);
	h->from = table_slot_create(h->rel, NULL);
	h->to = MakeSingleTupleTableSlot(desc->tupDesc, &TTSOpsVirtual);

	/* from block 0 on, whatever others read */
	scan = table_beginscan_strat(h->rel, desc->snapshot, 0, NULL, true, false);
	h->scan = (HeapScanDesc) scan;
	for (h->block = 0; gk_heap_next_page(h->scan, h->block); h->block++)
		take_page(h);
	table_endscan(scan);

	ExecDropSingleTupleTableSlot(h->to);
	ExecDropSingleTupleTableSlot(h->from);
	pfree(h);
}

bool
gk_heap_scan(QueryDesc *desc, DestReceiver *dest)
{
	GkReader   *r = (GkReader *) dest;
	PlanState **scans;
	int			n;
	MemoryContext caller;

	if (gkmeans_reader == GK_READER_EXECUTOR)
		return false;
	n = plain_scans(desc, &scans);
	if (n == 0 && gkmeans_reader == GK_READER_HEAP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gkmeans.reader is \"heap\", but \"%s\" can only be read by the executor",
						r->source->relname),
				 errhint("Set gkmeans.reader to \"auto\".")));

	caller = MemoryContextSwitchTo(desc->estate->es_query_cxt);
	for (int i = 0; i < n; i++)
		read_table(r, desc, scans[i]);
	MemoryContextSwitchTo(caller);
	return n > 0;
}
