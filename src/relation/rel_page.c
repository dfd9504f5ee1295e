/*
 * rel_page.c - rows straight from the pages of heap tables.
 *
 * A page that is all visible needs no look at its rows' transactions; on others
 * PostgreSQL's own function finds the visible rows, as for any sequential scan.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "storage/proc.h"
#include "utils/snapmgr.h"

#include "pg/pg_compat_heap.h"
#include "relation/rel_page.h"

/* Of the ring of buffers through which PostgreSQL reads a large table, most. */
#define RING_PAGES	24
/* Pages ahead whose first line is on its way. */
#define SOON		8

struct KmPages
{
	Relation	rel;
	HeapScanDesc scan;
	bool		plain_snapshot; /* all-visible pages need no second look */
	KmDeformer    *taker;
	Buffer	   *where;			/* [nwhere] the buffer that may hold a page; 0: none known */
	BlockNumber nwhere;
	char		apart[64];		/* threads read what is above, too */

	/* The page at hand, and the one that comes next. */
	Buffer		buffer;
	Buffer		ahead;
	BlockNumber ahead_block;
	KmPrefetch		wanted;			/* what of it was not asked for yet */
	Buffer		latest;			/* the buffer of the page pinned last */
	int			step;			/* 1, -1: it was next to the one before; 0: it was not */
	KmPageRows	rows;
};

/* ---- tables ---- */

KmPages *
km_pages_open(Relation rel, Snapshot snapshot, const KmPagesWhat *what, const KmPagesTable *table,
			  KmRowBatch **into, void (*next) (void *arg), void *arg)
{
	KmPages    *p = palloc0(sizeof(KmPages));

	p->rel = rel;
	p->scan = km_heap_open(rel, snapshot);
	p->plain_snapshot = !snapshot->takenDuringRecovery && !IsolationIsSerializable();
	p->taker = km_deform_open(RelationGetDescr(rel), what, table, false, into, next, arg);
	return p;
}

static void
let_go(Buffer *buffer)
{
	if (BufferIsValid(*buffer))
		ReleaseBuffer(*buffer);
	*buffer = InvalidBuffer;
}

void
km_pages_close(KmPages *p)
{
	let_go(&p->buffer);
	let_go(&p->ahead);
	if (p->where != NULL)
		pfree(p->where);
	km_heap_close(p->scan);
	km_deform_close(p->taker);
	pfree(p);
}

/* ---- visible rows ---- */

void
km_pages_find(KmPages *p, BlockNumber nblocks, const GkHost *host)
{
	/* those of a large table go through a few buffers */
	if (p->scan->rs_strategy == NULL)
		p->where = km_cached_pages(p->rel, nblocks, host);
	p->nwhere = p->where != NULL ? nblocks : 0;
}

/*
 * Where the page may be that is so many blocks after the one in a buffer, or 0.  Without a
 * list: what was read into the cache in turn lies there in turn, or backwards if what was
 * there before had been dropped; step says which way, if so.
 */
static Buffer
guess(const KmPages *p, BlockNumber block, Buffer buffer, int step, int distance)
{
	block += distance;
	if (p->where != NULL)
		return block < p->nwhere ? p->where[block] : InvalidBuffer;
	buffer += step * distance;
	return step != 0 && buffer > 0 && buffer <= NBuffers ? buffer : InvalidBuffer;
}

/* To have a guess looked at is cheaper than to have the page looked up. */
static Buffer
pin(KmPages *p, BlockNumber block)
{
	Buffer		buffer = InvalidBuffer;

	/* a ring of buffers is not to be left */
	if (p->scan->rs_strategy == NULL)
		buffer = guess(p, block - 1, p->latest, p->step, 1);
	if (!km_recent_buffer(p->rel, block, buffer))
		buffer = ReadBufferExtended(p->rel, MAIN_FORKNUM, block, RBM_NORMAL, p->scan->rs_strategy);
	p->step = abs(buffer - p->latest) == 1 ? buffer - p->latest : 0;
	p->latest = buffer;
	return buffer;
}

/* Go to the page. */
static void
turn_page(KmPages *p)
{
	let_go(&p->buffer);
	if (BufferIsValid(p->ahead) && p->ahead_block == p->rows.block)
		p->buffer = p->ahead;
	else
	{
		KmPrefetch		all;

		let_go(&p->ahead);
		p->buffer = pin(p, p->rows.block);
		all = km_all_of(BufferGetPage(p->buffer));
		km_prefetch_row(&all);
	}
	p->ahead = InvalidBuffer;
}

/*
 * Have the next page on its way into the CPU's cache while this one is gathered.  Not
 * before a lock is taken, which would wait for what was looked at.
 */
static void
look_ahead(KmPages *p, BlockNumber next)
{
	if (next == InvalidBlockNumber)
		return;
	p->ahead = pin(p, next);
	p->ahead_block = next;
	p->wanted = km_all_of(BufferGetPage(p->ahead));
}

/* Those of the first n item pointers that have a row. */
static void
find_rows(Page page, int n, KmPageRows *rows)
{
	int			found = 0;

	for (OffsetNumber offset = FirstOffsetNumber; offset <= n; offset++)
	{
		ItemId		item = PageGetItemId(page, offset);

		rows->offset[found] = offset;
		rows->row[found] = (HeapTupleHeader) ((char *) page + ItemIdGetOffset(item));
		found += ItemIdIsNormal(item);
	}
	rows->n = found;
}

/* Locked; false: the page is not all visible, and not locked. */
static bool
lock_all_visible(KmPages *p, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (PageIsAllVisible(page))
	{
		km_test_old_snapshot(p->scan->rs_base.rs_snapshot, p->rel, page);
		return true;
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return false;
}

static void
find_some(Page page, const OffsetNumber *visible, int n, KmPageRows *rows)
{
	rows->n = n;
	for (int i = 0; i < n; i++)
	{
		rows->offset[i] = visible[i];
		rows->row[i] = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, visible[i]));
	}
}

static void
find_visible(KmPages *p, BlockNumber next)
{
	CHECK_FOR_INTERRUPTS();
	if (p->plain_snapshot)
	{
		bool		all;

		turn_page(p);
		all = lock_all_visible(p, p->buffer);
		if (all)
		{
			Page		page = BufferGetPage(p->buffer);

			find_rows(page, PageGetMaxOffsetNumber(page), &p->rows);
			LockBuffer(p->buffer, BUFFER_LOCK_UNLOCK);
		}
		look_ahead(p, next);
		if (all)
			return;
		let_go(&p->buffer);
	}
	km_heap_page(p->scan, p->rows.block);
	find_some(BufferGetPage(p->scan->rs_cbuf), p->scan->rs_vistuples, (int) p->scan->rs_ntuples, &p->rows);
}

void
km_pages_prefetch(Relation rel, BlockNumber first, BlockNumber end)
{
	for (BlockNumber block = first; block < end; block++)
		if (BufferIsValid(km_look_up(rel, block)) && block == first)
			return;
}

OffsetNumber
km_pages_take(KmPages *p, BlockNumber block, OffsetNumber from, BlockNumber next)
{
	int			first = 0;
	int			odd;

	p->rows.block = block;
	find_visible(p, next);
	while (first < p->rows.n && p->rows.offset[first] < from)
		first++;
	odd = km_deform_take(p->taker, &p->rows, first, &p->wanted);
	km_count_rows(p->rel, (odd < 0 ? p->rows.n : odd) - first);
	return odd < 0 ? 0 : p->rows.offset[odd];
}

/* ---- pages for threads ---- */

int
km_pages_room(KmPages *p, int wanted)
{
	/* each session's share, as PostgreSQL's own limit on pins has it since 16 */
	int			share = NBuffers / (MaxBackends + NUM_AUXILIARY_PROCS);

	if (RelationUsesLocalBuffers(p->rel))
		return 0;
	wanted = Min(wanted, share);
	if (p->scan->rs_strategy != NULL && wanted > RING_PAGES)
		km_larger_ring(&p->scan->rs_strategy, Min(wanted * 2, NBuffers / 8));
	return wanted;
}

/*
 * A row may be added while nobody has the lock, behind those that are there: not to an
 * item pointer among them, if none is free, since none gets free while the page is pinned.
 */
static bool
hold_all(KmPages *p, KmHeldPage *held)
{
	Page		page = BufferGetPage(held->buffer);

	if (!lock_all_visible(p, held->buffer))
		return false;
	held->n = PageGetMaxOffsetNumber(page);
	held->all = !PageHasFreeLinePointers(page);
	if (!held->all)
	{
		find_rows(page, held->n, &p->rows);
		held->n = p->rows.n;
		memcpy(held->visible, p->rows.offset, held->n * sizeof(OffsetNumber));
	}
	LockBuffer(held->buffer, BUFFER_LOCK_UNLOCK);
	return true;
}

void
km_pages_hold(KmPages *p, BlockNumber block, KmHeldPage *held)
{
	held->block = block;
	held->all = false;
	held->step = 0;
	if (p->plain_snapshot)
	{
		Buffer		soon;

		held->buffer = pin(p, block);
		held->step = p->step;
		/* its first line is waited for, and this process sees nothing else of it */
		soon = guess(p, block, held->buffer, held->step, SOON);
		if (BufferIsValid(soon))
		{
			__builtin_prefetch(GetBufferDescriptor(soon - 1), 1);
			__builtin_prefetch(BufferGetPage(soon));
		}
		if (hold_all(p, held))
			return;
		ReleaseBuffer(held->buffer);
	}
	km_heap_page(p->scan, block);
	held->buffer = p->scan->rs_cbuf;
	IncrBufferRefCount(held->buffer);
	held->n = (int) p->scan->rs_ntuples;
	memcpy(held->visible, p->scan->rs_vistuples, held->n * sizeof(OffsetNumber));
}

void
km_pages_release(KmPages *p, KmHeldPage *held, int rows)
{
	ReleaseBuffer(held->buffer);
	km_count_rows(p->rel, rows);
}

void
km_held_rows(const KmHeldPage *held, KmPageRows *rows)
{
	Page		page = BufferGetPage(held->buffer);

	rows->block = held->block;
	if (held->all)
		find_rows(page, held->n, rows);
	else
		find_some(page, held->visible, held->n, rows);
}

/* The page is not pinned, and AddressSanitizer may know that: what is seen is not looked at. */
__attribute__((no_sanitize_address)) void
km_see_ahead(const KmPages *p, const KmHeldPage *held, int distance)
{
	Buffer		buffer = guess(p, held->block, held->buffer, held->step, distance);

	if (BufferIsValid(buffer))
		(void) *(volatile const char *) BufferGetPage(buffer);
}
