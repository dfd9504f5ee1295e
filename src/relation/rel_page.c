/*
 * rel_page.c - rows straight from the pages of heap tables.
 *
 * A page that is all visible needs no look at its rows' transactions; on others
 * PostgreSQL's own function finds the visible rows, as for any sequential scan.
 */
#include "postgres.h"

#include <stdalign.h>

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "storage/proc.h"
#include "utils/snapmgr.h"

#include "pg/pg_compat_heap.h"
#include "relation/rel_conveyor.h"
#include "relation/rel_page.h"

/* Pages held at most in the ring of buffers through which PostgreSQL reads a large table. */
#define RING_PAGES	24
/* Pages ahead of the one held that this process prefetches the first line of. */
#define SOON		8
/* Buffers that one job looks at. */
#define JOB_BUFFERS		4096
/* Pairs of pages that are looked up first. */
#define PAIRS			32
/* Tags that are gone through in the time that looking up one page takes. */
#define TAGS_A_PAGE		64

struct KmPageReader
{
	Relation	rel;
	HeapScanDesc scan;
	bool		plain_snapshot; /* all-visible pages need no second look */
	KmDeformer *deformer;
	KmToast    *toast;
	Buffer	   *where;			/* [nwhere] the buffer that may hold a page; 0: none known */
	BlockNumber nwhere;

	/* Threads read what is above (km_page_touch_ahead()): what changes with each page is in other lines. */
	alignas(GK_CACHE_LINE) Buffer latest;	/* the buffer of the page pinned last */
	int			step;			/* 1, -1: it was next to the one before; 0: it was not */

	/* What is still to be read. */
	BlockNumber block;			/* the next page, */
	OffsetNumber from;			/* its first row */
	BlockNumber end;

	/* The page at hand, and the one that comes next. */
	Buffer		buffer;
	Buffer		ahead;
	BlockNumber ahead_block;
	KmPrefetch	wanted;			/* what of it was not asked for yet */
	KmPageRows	rows;
	int			at;				/* the first row that was not read */
};

/* ---- tables ---- */

KmPageReader *
km_page_open(Relation rel, Snapshot snapshot, const KmRowSpec *spec, const KmHeapTable *table)
{
	KmPageReader *p = km_alloc_lines(sizeof(KmPageReader));

	p->rel = rel;
	p->scan = km_heap_open(rel, snapshot);
	p->plain_snapshot = !snapshot->takenDuringRecovery && !IsolationIsSerializable();
	if (spec == NULL)
		return p;
	p->toast = km_toast_begin(rel, snapshot);
	p->deformer = km_deform_open(RelationGetDescr(rel), spec, table, p->toast);
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
km_page_close(KmPageReader *p)
{
	let_go(&p->buffer);
	let_go(&p->ahead);
	if (p->where != NULL)
		pfree(p->where);
	km_heap_close(p->scan);
	if (p->deformer != NULL)
	{
		km_deform_close(p->deformer);
		km_toast_end(p->toast);
	}
	km_free_lines(p);
}

/* ---- where pages are in the cache ---- */

/*
 * PostgreSQL finds a page's buffer by a hash table that is far larger than a CPU's cache: that
 * takes half of the time that the leader has for a page when its threads read the rows.  From a
 * certain size of the table on it is cheaper to go through the tags of all buffers once, since
 * they lie side by side and threads can do it.  It pays for pages that came into the cache by
 * several processes at once, or a few at a time.
 *
 * Nothing is locked, so what is found is a hint: pin() has PostgreSQL look whether the page is
 * there, as it does itself with buffers that it remembers.
 */
typedef struct Search
{
	Relation	rel;
	BlockNumber nblocks;
	Buffer	   *where;			/* [nblocks] */
} Search;

static void
search(void *arg, int64_t job, int thread)
{
	const Search *s = arg;
	int			from = (int) job * JOB_BUFFERS;
	int			to = Min(from + JOB_BUFFERS, NBuffers);

	for (int i = from; i < to; i++)
	{
		/* read once: it may change at any time, and its block number is an index here */
		BufferTag	tag = *(const volatile BufferTag *) &GetBufferDescriptor(i)->tag;

		if (tag.blockNum < s->nblocks && km_tag_is_of(&tag, s->rel))
			s->where[tag.blockNum] = i + 1;
	}
}

/*
 * Are many of the pages in the cache, but not next to each other?  Pages that are next to each
 * other are found by going from one buffer to the next.
 */
static bool
scattered(Relation rel, BlockNumber nblocks)
{
	int			cached = 0;
	int			apart = 0;

	for (int i = 0; i < PAIRS; i++)
	{
		BlockNumber block = (uint64) (nblocks - 1) * i / PAIRS;
		Buffer		one = km_look_up(rel, block);
		Buffer		next = BufferIsValid(one) ? km_look_up(rel, block + 1) : InvalidBuffer;

		cached += BufferIsValid(next);
		apart += BufferIsValid(next) && abs(next - one) != 1;
	}
	return cached >= PAIRS / 2 && apart >= cached / 8;
}

void
km_page_locate(KmPageReader *p, BlockNumber nblocks, const GkHost *host)
{
	Relation	rel = p->rel;
	Search		s = {rel, nblocks};

	/* pages of a large table go through a few buffers */
	if (p->scan->rs_strategy != NULL || !KM_RECENT_BUFFERS || RelationUsesLocalBuffers(rel) || nblocks < 2 ||
		(double) nblocks * TAGS_A_PAGE * gk_threads(host) < NBuffers || !scattered(rel, nblocks))
		return;
	ereport(DEBUG1,
			(errmsg("the pages of \"%s\" are not side by side in the cache", RelationGetRelationName(rel))));
	s.where = MemoryContextAllocExtended(CurrentMemoryContext, (Size) nblocks * sizeof(Buffer),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	/* a cancel request ends this early, and is served by the next page's check */
	(void) gk_parallel_for(host, (NBuffers + JOB_BUFFERS - 1) / JOB_BUFFERS, search, &s);
	p->where = s.where;
	p->nwhere = nblocks;
}

/* ---- visible rows ---- */

/*
 * The buffer where the page `distance` blocks after the one in a buffer may be, or 0.  Without a
 * list: pages that were read into the cache in turn lie there in turn, or backwards if what was
 * there before had been dropped; step says which way.
 */
static Buffer
guess(const KmPageReader *p, BlockNumber block, Buffer buffer, int step, int distance)
{
	block += distance;
	if (p->where != NULL)
		return block < p->nwhere ? p->where[block] : InvalidBuffer;
	buffer += step * distance;
	return step != 0 && buffer > 0 && buffer <= NBuffers ? buffer : InvalidBuffer;
}

/* PostgreSQL checks a guess faster than it looks the page up. */
static Buffer
pin(KmPageReader *p, BlockNumber block)
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

static void
turn_page(KmPageReader *p)
{
	let_go(&p->buffer);
	if (BufferIsValid(p->ahead) && p->ahead_block == p->rows.block)
		p->buffer = p->ahead;
	else
	{
		KmPrefetch	all;

		let_go(&p->ahead);
		p->buffer = pin(p, p->rows.block);
		all = km_prefetch_page(BufferGetPage(p->buffer));
		km_prefetch_rest(&all);
	}
	p->ahead = InvalidBuffer;
}

/*
 * Have the next page on its way into the CPU's cache while this one is read.  Call this after
 * the lock was taken, which would wait for the look at the next page.
 */
static void
look_ahead(KmPageReader *p)
{
	if (p->block >= p->end)
		return;
	p->ahead = pin(p, p->block);
	p->ahead_block = p->block;
	p->wanted = km_prefetch_page(BufferGetPage(p->ahead));
}

/* The rows of those of the first n item pointers that have one. */
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

/* Lock the page if it is all visible. */
static bool
lock_all_visible(KmPageReader *p, Buffer buffer)
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
find_visible(KmPageReader *p)
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
		look_ahead(p);
		if (all)
			return;
		let_go(&p->buffer);
	}
	km_heap_page(p->scan, p->rows.block);
	find_some(BufferGetPage(p->scan->rs_cbuf), p->scan->rs_vistuples, (int) p->scan->rs_ntuples, &p->rows);
}

void
km_page_prefetch(Relation rel, BlockNumber first, BlockNumber end)
{
	for (BlockNumber block = first; block < end; block++)
		if (BufferIsValid(km_look_up(rel, block)) && block == first)
			return;
}

void
km_page_seek(KmPageReader *p, BlockNumber block, OffsetNumber from, BlockNumber end)
{
	p->block = block;
	p->from = from;
	p->end = end;
	p->at = p->rows.n = 0;
}

/* The visible rows of the next page. */
static void
next_page(KmPageReader *p)
{
	p->rows.block = p->block++;
	find_visible(p);
	for (p->at = 0; p->at < p->rows.n && p->rows.offset[p->at] < p->from;)
		p->at++;
	p->from = FirstOffsetNumber;
}

bool
km_page_next(KmPageReader *p, KmRowBatch *to)
{
	to->deferred = 0;
	while (to->deferred == 0 && (p->at < p->rows.n || p->block < p->end))
	{
		int			first;

		if (p->at == p->rows.n)
			next_page(p);
		first = p->at;
		p->at = km_deform_page(p->deformer, &p->rows, first, to, &p->wanted);
		km_count_rows(p->rel, p->at - first);
		if (to->deferred != 0)
			p->at = p->rows.n;	/* the caller reads the rest of the page */
		else if (p->at < p->rows.n)
			break;				/* the batch is full */
	}
	km_deform_finish(p->deformer);
	return p->at < p->rows.n || p->block < p->end;
}

/* ---- pages for threads ---- */

int
km_page_hold_limit(KmPageReader *p, int wanted)
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
 * While the page is not locked, a row may be added behind those that are there: not at an item
 * pointer among them, if none is free, since none becomes free while the page is pinned.
 */
static bool
hold_all(KmPageReader *p, KmHeldPage *held)
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
km_page_hold(KmPageReader *p, BlockNumber block, KmHeldPage *held)
{
	held->block = block;
	held->all = false;
	held->step = 0;
	if (p->plain_snapshot)
	{
		Buffer		soon;

		held->buffer = pin(p, block);
		held->step = p->step;
		/* the leader reads nothing but the first line of that page, and would wait for it */
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
km_page_copy_held(KmHeldPage *to, const KmHeldPage *from)
{
	memcpy(to, from, offsetof(KmHeldPage, visible) + (from->all ? 0 : from->n * sizeof(OffsetNumber)));
}

void
km_page_release(KmPageReader *p, KmHeldPage *held, int rows)
{
	ReleaseBuffer(held->buffer);
	km_count_rows(p->rel, rows);
}

void
km_page_held_rows(const KmHeldPage *held, KmPageRows *rows)
{
	Page		page = BufferGetPage(held->buffer);

	rows->block = held->block;
	if (held->all)
		find_rows(page, held->n, rows);
	else
		find_some(page, held->visible, held->n, rows);
}

/* The page is not pinned, and AddressSanitizer may know that; what is read here is not used. */
__attribute__((no_sanitize_address)) void
km_page_touch_ahead(const KmPageReader *p, const KmHeldPage *held, int distance)
{
	Buffer		buffer = guess(p, held->block, held->buffer, held->step, distance);

	if (BufferIsValid(buffer))
		(void) *(volatile const char *) BufferGetPage(buffer);
}
