/*
 * rel_page.h - rows straight from the pages of heap tables.
 *
 * Works in any process that has the snapshot, the one that was called or a
 * parallel worker.
 */
#ifndef REL_PAGE_H
#define REL_PAGE_H

#include "access/relscan.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "relation/rel_deform.h"

typedef struct KmPages KmPages;

/*
 * Take rows of a table.  When *into is full, next(arg) has to make room, or let
 * it be another one.
 */
extern KmPages *km_pages_open(Relation rel, Snapshot snapshot, const KmPagesWhat *what,
							  const KmPagesTable *table, KmRowBatch **into,
							  void (*next) (void *arg), void *arg);
/*
 * Take a page's rows from an offset on.  0, or the first one that was not taken; none
 * after it was.  `next` is the block that will be taken after it, or InvalidBlockNumber.
 */
extern OffsetNumber km_pages_take(KmPages *p, BlockNumber block, OffsetNumber from, BlockNumber next);
extern void km_pages_close(KmPages *p);
/* Before the first page: find out where they are, with the host's threads, if that pays. */
extern void km_pages_find(KmPages *p, BlockNumber nblocks, const GkHost *host);
/* Have the system read these pages ahead, if the first one is not at hand. */
extern void km_pages_prefetch(Relation rel, BlockNumber first, BlockNumber end);

/* A page that is pinned while threads take its rows. */
typedef struct KmHeldPage
{
	Buffer		buffer;
	BlockNumber block;
	int			step;			/* 1, -1: from the buffer of the page before it; 0: somewhere */
	bool		all;			/* the visible rows are those of the first n item pointers */
	int			n;				/* or the first n of these */
	OffsetNumber *visible;		/* [MaxHeapTuplesPerPage], the caller's */
} KmHeldPage;

/*
 * How many pages may be held at once, of so many that are wanted: others need buffers,
 * too, and a large table is not to take the cache.
 */
extern int	km_pages_room(KmPages *p, int wanted);
extern void km_pages_hold(KmPages *p, BlockNumber block, KmHeldPage *held);
/* So many rows of it were read. */
extern void km_pages_release(KmPages *p, KmHeldPage *held, int rows);
/* Its visible rows.  Any thread may ask. */
extern void km_held_rows(const KmHeldPage *page, KmPageRows *rows);
/*
 * Look at the page so many blocks on, where it may be: memory that this process sees for the
 * first time is waited for here and not when the page is held.  Any thread.
 */
extern void km_see_ahead(const KmPages *p, const KmHeldPage *held, int distance);

/*
 * The shared buffer that holds each page of a relation, or 0: a hint, see rel_page_cache.c.
 * NULL: it would not pay.
 */
extern Buffer *km_cached_pages(Relation rel, BlockNumber nblocks, const GkHost *host);

#endif							/* REL_PAGE_H */
