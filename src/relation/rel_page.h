/*
 * rel_page.h - rows straight from the pages of heap tables, in any process that has the snapshot:
 * the leader or a parallel worker.
 */
#ifndef REL_PAGE_H
#define REL_PAGE_H

#include "access/relscan.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "relation/rel_deform.h"

typedef struct KmPageReader KmPageReader;

/* spec and table NULL: pages are held for others, who read their rows. */
extern KmPageReader *km_page_open(Relation rel, Snapshot snapshot, const KmRowSpec *spec, const KmHeapTable *table);

/* Go to some blocks; of the first one, rows are read from an offset on. */
extern void km_page_seek(KmPageReader *p, BlockNumber block, OffsetNumber from, BlockNumber end);

/*
 * Add the rows that come next to a batch: until it is full, a row is deferred, which the caller
 * has to read with all that follows on its page, or none are left.  False: none are left.
 */
extern bool km_page_next(KmPageReader *p, KmRowBatch *to);
extern void km_page_close(KmPageReader *p);

/* Before the first page: find out which buffers pages are in, with the host's threads, if that pays. */
extern void km_page_locate(KmPageReader *p, BlockNumber nblocks, const GkHost *host);

/* Have the system read these pages ahead, if the first one is not at hand. */
extern void km_page_prefetch(Relation rel, BlockNumber first, BlockNumber end);

/* A page that is pinned while threads read its rows. */
typedef struct KmHeldPage
{
	Buffer		buffer;
	BlockNumber block;
	int			step;			/* 1, -1: from the buffer of the page before it; 0: somewhere */
	bool		all;			/* the visible rows are those of the first n item pointers */
	int			n;				/* or of the first n of these */
	OffsetNumber visible[MaxHeapTuplesPerPage];
} KmHeldPage;

/*
 * How many of the pages wanted may be held at once: others need buffers, too, and a large
 * table is not to take the cache.
 */
extern int	km_page_hold_limit(KmPageReader *p, int wanted);
extern void km_page_hold(KmPageReader *p, BlockNumber block, KmHeldPage *held);
extern void km_page_copy_held(KmHeldPage *to, const KmHeldPage *from);

/* Count the rows that were read, and let the page go. */
extern void km_page_release(KmPageReader *p, KmHeldPage *held, int rows);

/* Its visible rows.  Any thread may ask. */
extern void km_page_held_rows(const KmHeldPage *page, KmPageRows *rows);

/*
 * Look at the page `distance` blocks on, where it may be: memory that this process sees for the
 * first time is waited for here and not when the page is held.  Any thread.
 */
extern void km_page_touch_ahead(const KmPageReader *p, const KmHeldPage *held, int distance);

#endif							/* REL_PAGE_H */
