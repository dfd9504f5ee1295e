/*
 * pg_compat_heap.h - what differs between PostgreSQL 13 and 18 in scans of heap tables.
 */
#ifndef PG_COMPAT_HEAP_H
#define PG_COMPAT_HEAP_H

#include "access/heapam.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"

/* PostgreSQL can pin a page in a buffer where it may be. */
#define KM_RECENT_BUFFERS	(PG_VERSION_NUM >= 140000)

/*
 * A part of a scan, which goes to the pages that it is told to, and not through all of the
 * cache if the table is large.  Neither counted nor locked as a sequential scan: what a
 * scan as a whole does is rel_heap.c's.
 */
static inline HeapScanDesc
km_heap_open(Relation rel, Snapshot snapshot)
{
	return (HeapScanDesc) rel->rd_tableam->scan_begin(rel, snapshot, 0, NULL, NULL,
													  SO_ALLOW_STRAT | SO_ALLOW_PAGEMODE);
}

static inline void
km_heap_close(HeapScanDesc scan)
{
	table_endscan(&scan->rs_base);
}

/* Rows that scans of this relation returned, for the statistics: the counter of all scans. */
static inline void
km_count_rows(Relation rel, int rows)
{
	pgstat_count_index_tuples(rel, rows);
}

/* Go to a page, and find its visible rows: rs_cbuf, rs_vistuples, rs_ntuples. */
static inline void
km_heap_page(HeapScanDesc scan, BlockNumber block)
{
	/* heapgetpage() has this check, PostgreSQL 17 leaves it to the caller */
	CHECK_FOR_INTERRUPTS();
#if PG_VERSION_NUM >= 170000
	if (BufferIsValid(scan->rs_cbuf))
		ReleaseBuffer(scan->rs_cbuf);
	scan->rs_cbuf = ReadBufferExtended(scan->rs_base.rs_rd, MAIN_FORKNUM, block, RBM_NORMAL,
									   scan->rs_strategy);
	scan->rs_cblock = block;
	heap_prepare_pagescan(&scan->rs_base);
#else
	heapgetpage(&scan->rs_base, block);
#endif
}

/* ERROR when rows of the page may have gone that the snapshot should see. */
static inline void
km_test_old_snapshot(Snapshot snapshot, Relation rel, Page page)
{
#if PG_VERSION_NUM < 170000
	TestForOldSnapshot(snapshot, rel, page);
#endif
}

/* A page of the relation itself, not of its maps. */
static inline bool
km_tag_is_of(const BufferTag *tag, Relation rel)
{
#if PG_VERSION_NUM >= 160000
	return BufTagGetForkNum(tag) == MAIN_FORKNUM && BufTagMatchesRelFileLocator(tag, &rel->rd_locator);
#else
	return tag->forkNum == MAIN_FORKNUM && RelFileNodeEquals(tag->rnode, rel->rd_node);
#endif
}

/* The buffer that has a page, or had it just now; or 0. */
static inline Buffer
km_look_up(Relation rel, BlockNumber block)
{
#ifdef USE_PREFETCH
	return PrefetchBuffer(rel, MAIN_FORKNUM, block).recent_buffer;
#else
	return InvalidBuffer;
#endif
}

/* Pin a page if it is in that shared buffer.  There need not be one of that number. */
static inline bool
km_recent_buffer(Relation rel, BlockNumber block, Buffer buffer)
{
	bool		there = false;

#if PG_VERSION_NUM >= 160000
	there = buffer > 0 && buffer <= NBuffers && ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, block, buffer);
#elif PG_VERSION_NUM >= 140000
	there = buffer > 0 && buffer <= NBuffers && ReadRecentBuffer(rel->rd_node, MAIN_FORKNUM, block, buffer);
#endif
	if (there)
	{
		pgstat_count_buffer_read(rel);
		pgstat_count_buffer_hit(rel);
	}
	return there;
}

/* A ring of at least `pages` buffers for a scan that had a small one. */
static inline void
km_larger_ring(BufferAccessStrategy *strategy, int pages)
{
	FreeAccessStrategy(*strategy);
#if PG_VERSION_NUM >= 160000
	*strategy = GetAccessStrategyWithSize(BAS_BULKREAD, pages * (BLCKSZ / 1024));
#else
	/* the one that is larger: 16 MB, or an eighth of the cache */
	(void) pages;
	*strategy = GetAccessStrategy(BAS_BULKWRITE);
#endif
}

#endif							/* PG_COMPAT_HEAP_H */
