/*
 * fn_mixed_pages.c - the rows of k-prototypes by threads, from the pages of heap tables.
 *
 * This process holds some pages and gives their rows places behind those that are there; threads put numbers and
 * codes at these.  A category that the dictionary has not is left to this process, which adds those of all pages in
 * the order of the rows: codes do not depend on threads, and no thread adds while others look up.  So is a page with a
 * row that needs more of PostgreSQL: a value that is out of line or compressed, a column that was added later, an error.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "executor/execdesc.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/primnodes.h"
#include "pgstat.h"
#include "storage/predicate.h"
#include "storage/proc.h"
#include "utils/rel.h"

#include "functions/functions.h"
#include "functions/mixed.h"
#include "relation/rel_page.h"

/* Pages that are held at once, and those of a job. */
#define MOST_PAGES		128
#define JOB_PAGES		8

typedef struct HeldPage
{
	KmHeldPage	held;
	int64		first;			/* where its rows go */
	int			kept;			/* those that are there */
	int			left_out;
	bool		unknown;		/* some codes are */
	bool		slow;			/* nothing is there: this process reads them */
} HeldPage;

typedef struct TableRead
{
	KmMixedRows *x;
	Relation	rel;
	AttrNumber *attnum;			/* [ncolumns] */
	AttrNumber	last;			/* of them */
	KmPageReader *pages;
	int			npages;
	HeldPage   *page;			/* [MOST_PAGES] */
	/* of each thread */
	KmPageRows *rows;
	Datum	   *value;			/* [last] */
	/* of this process */
	Datum	   *wanted;			/* [ncolumns] */
	bool	   *isnull;			/* [ncolumns] */
} TableRead;

/* ---- what any thread does ---- */

/* Values of a row without NULLs among the first `last`, or with; false: PostgreSQL is needed. */
static bool
deform(const TableRead *s, HeapTupleHeader row, Datum *value, bool *null)
{
	TupleDesc	desc = RelationGetDescr(s->rel);
	const char *from = (const char *) row + row->t_hoff;
	bool		hasnull = (row->t_infomask & HEAP_HASNULL) != 0;
	int			at = 0;

	*null = false;
	if (HeapTupleHeaderGetNatts(row) < s->last)
		return false;
	for (int i = 0; i < s->last; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);

		if (hasnull && att_isnull(i, row->t_bits))
		{
			value[i] = (Datum) 0;
			continue;
		}
		if (attr->attlen == -1)
			at = att_align_pointer(at, attr->attalign, -1, from + at);
		else
			at = att_align_nominal(at, attr->attalign);
		value[i] = fetchatt(attr, from + at);
		at = att_addlength_pointer(at, attr->attlen, from + at);
	}
	for (int j = 0; hasnull && j < s->x->ncolumns; j++)
		*null |= att_isnull(s->attnum[j] - 1, row->t_bits);
	return true;
}

/* Is a value of a plain type at hand? */
static bool
at_hand(Oid type, Datum value)
{
	return type == BOOLOID || type == UUIDOID || type == ANYENUMOID ||
		(!VARATT_IS_EXTERNAL(DatumGetPointer(value)) && !VARATT_IS_COMPRESSED(DatumGetPointer(value)));
}

/* A row's numbers and codes to a place; false: PostgreSQL is needed. */
static bool
put_row(const TableRead *s, HeldPage *page, const Datum *value, int64 to)
{
	const KmMixedRows *x = s->x;

	for (int j = 0; j < x->ncolumns; j++)
	{
		Datum		v = value[s->attnum[j] - 1];
		int			place = x->place[j];
		uint64		space;
		KmMixedKey	key;
		int32		code;

		if (x->column[j].number)
		{
			double		number = km_mixed_number(x->type[j], v);

			if (!isfinite(number))
				return false;
			x->number[place][to] = number;
			continue;
		}
		if (!at_hand(x->type[j], v))
			return false;
		key = km_mixed_key_of(x->type[j], v, &space);
		code = km_mixed_find(&x->dictionary[place], &key)->code;
		x->m.code[to * x->m.c + place] = code;
		page->unknown |= code < 0;
	}
	return true;
}

/* Have the page that comes next on its way into the cache, a line for each row. */
static void
read_page(const TableRead *s, HeldPage *page, KmPageRows *rows, Datum *value, KmPrefetch *ahead)
{
	km_page_held_rows(&page->held, rows);
	for (int i = 0; i < rows->n && !page->slow; i++)
	{
		bool		null;

		if (ahead->next < ahead->end)
		{
			__builtin_prefetch(ahead->next);
			ahead->next += GK_CACHE_LINE;
		}
		if (!deform(s, rows->row[i], value, &null))
			page->slow = true;
		else if (null)
			page->left_out++;
		else if (put_row(s, page, value, page->first + page->kept))
			page->kept++;
		else
			page->slow = true;
	}
}

static void
read_pages(void *arg, int64_t job, int thread)
{
	TableRead  *s = arg;

	int			end = Min((job + 1) * JOB_PAGES, s->npages);

	for (int i = (int) job * JOB_PAGES; i < end; i++)
	{
		KmPrefetch	ahead = {0};

		if (i + 1 < end)
			ahead = km_prefetch_page(BufferGetPage(s->page[i + 1].held.buffer));
		read_page(s, &s->page[i], &s->rows[thread], s->value + (Size) thread * s->last, &ahead);
	}
}

/* ---- what only this process does ---- */

static void
read_slowly(TableRead *s, HeldPage *page)
{
	TupleDesc	desc = RelationGetDescr(s->rel);
	Datum	   *value = palloc(desc->natts * sizeof(Datum));
	bool	   *null = palloc(desc->natts * sizeof(bool));
	KmPageRows *rows = s->rows;

	km_page_held_rows(&page->held, rows);
	for (int i = 0; i < rows->n; i++)
	{
		HeapTupleData tuple = {.t_data = rows->row[i],.t_tableOid = RelationGetRelid(s->rel)};

		/* no function that is called looks at its length */
		heap_deform_tuple(&tuple, desc, value, null);
		for (int j = 0; j < s->x->ncolumns; j++)
		{
			s->wanted[j] = value[s->attnum[j] - 1];
			s->isnull[j] = null[s->attnum[j] - 1];
		}
		km_mixed_take(s->x, s->wanted, s->isnull);
	}
	pfree(value);
	pfree(null);
}

/* Codes that the threads did not know. */
static void
add_unknown(TableRead *s, HeldPage *page)
{
	KmMixedRows *x = s->x;
	KmPageRows *rows = s->rows;
	int64		to = page->first;

	km_page_held_rows(&page->held, rows);
	for (int i = 0; i < rows->n; i++)
	{
		bool		null;

		(void) deform(s, rows->row[i], s->value, &null);
		if (null)
			continue;
		for (int j = 0; j < x->ncolumns; j++)
			if (!x->column[j].number && x->m.code[to * x->m.c + x->place[j]] < 0)
			{
				uint64		space;
				KmMixedKey	key = km_mixed_key_of(x->type[j], s->value[s->attnum[j] - 1], &space);

				x->m.code[to * x->m.c + x->place[j]] = km_mixed_code_of(x, x->place[j], &key);
			}
		to++;
	}
}

/* The rows of a page behind those that are there. */
static void
close_up(KmMixedRows *x, const HeldPage *page)
{
	int64		n = x->m.n;

	if (n < page->first)
	{
		for (int j = 0; j < x->m.d; j++)
			memmove(x->number[j] + n, x->number[j] + page->first, page->kept * sizeof(double));
		if (x->m.c > 0)
			memmove(x->m.code + n * x->m.c, x->m.code + page->first * x->m.c, (Size) page->kept * x->m.c * sizeof(int32));
	}
	x->m.n += page->kept;
	x->left_out += page->left_out;
}

static void
read_held(TableRead *s)
{
	KmMixedRows *x = s->x;
	int64		rows = 0;
	GkError		err = {0};

	for (int i = 0; i < s->npages; i++)
	{
		HeldPage   *page = &s->page[i];

		page->first = x->m.n + rows;
		page->kept = page->left_out = 0;
		page->unknown = page->slow = false;
		rows += page->held.n;
	}
	km_mixed_make_room(x, rows);
	if (!gk_parallel_for(km_host_engine(x->host), (s->npages + JOB_PAGES - 1) / JOB_PAGES, read_pages, s))
		km_check(x->host, GK_STOPPED, &err);
	for (int i = 0; i < s->npages; i++)
	{
		HeldPage   *page = &s->page[i];

		if (page->slow)
			read_slowly(s, page);
		else
		{
			if (page->unknown)
				add_unknown(s, page);
			close_up(x, page);
		}
		km_page_release(s->pages, &page->held, page->held.n);
	}
}

static void
read_table(KmMixedRows *x, PlanState *scan, Snapshot snapshot, int hold)
{
	TableRead	s = {.x = x,.rel = ((SeqScanState *) scan)->ss.ss_currentRelation};
	int			threads = gk_threads(km_host_engine(x->host));
	BlockNumber nblocks;
	ListCell   *cell;
	int			n = 0;

	PredicateLockRelation(s.rel, snapshot);
	pgstat_count_heap_scan(s.rel);
	nblocks = RelationGetNumberOfBlocks(s.rel);
	s.attnum = palloc(list_length(scan->plan->targetlist) * sizeof(AttrNumber));
	foreach(cell, scan->plan->targetlist)
	{
		AttrNumber	attnum = ((Var *) lfirst_node(TargetEntry, cell)->expr)->varattno;

		s.last = Max(s.last, attnum);
		s.attnum[n++] = attnum;
	}
	s.page = palloc(MOST_PAGES * sizeof(HeldPage));
	s.rows = palloc(threads * sizeof(KmPageRows));
	s.value = palloc((Size) threads * s.last * sizeof(Datum));
	s.wanted = palloc(x->ncolumns * sizeof(Datum));
	s.isnull = palloc(x->ncolumns * sizeof(bool));
	s.pages = km_page_open(s.rel, snapshot, NULL, NULL);
	hold = km_page_hold_limit(s.pages, hold);
	km_page_locate(s.pages, nblocks, km_host_engine(x->host));
	for (BlockNumber block = 0; block < nblocks; block += s.npages)
	{
		s.npages = Min(hold, nblocks - block);
		for (int i = 0; i < s.npages; i++)
			km_page_hold(s.pages, block + i, &s.page[i].held);
		read_held(&s);
	}
	km_page_close(s.pages);
}

/* Can threads read the table's rows? */
static bool
suits(const KmMixedRows *x, const PlanState *scan)
{
	ListCell   *cell;

	if (RelationUsesLocalBuffers(((SeqScanState *) scan)->ss.ss_currentRelation))
		return false;
	foreach(cell, scan->plan->targetlist)
		if (((Var *) lfirst_node(TargetEntry, cell)->expr)->varattno <= 0)
		return false;
	for (int i = 0; i < x->ncolumns; i++)
		if (x->column[i].number ? x->type[i] == NUMERICOID : !km_mixed_is_plain(x->type[i]))
			return false;
	return true;
}

bool
km_mixed_scan(QueryDesc *desc, DestReceiver *dest)
{
	KmMixedRows *x = (KmMixedRows *) dest;
	MemoryContext caller = MemoryContextSwitchTo(desc->estate->es_query_cxt);
	PlanState **scans;
	int			n = gkmeans_reader == KM_READER_EXECUTOR ? 0 : km_heap_scans(desc, &scans);

	/* each session's share of the buffers, as km_page_hold_limit() has it */
	bool		suit = n > 0 && NBuffers / (MaxBackends + NUM_AUXILIARY_PROCS) > 0;

	for (int i = 0; suit && i < n; i++)
		suit = suits(x, scans[i]);
	for (int i = 0; suit && i < n; i++)
		read_table(x, scans[i], desc->snapshot, MOST_PAGES);
	MemoryContextSwitchTo(caller);
	return suit;
}
