/*
 * rel_heap.h - what the files of the heap road share.
 */
#ifndef GKMEANS_HEAP_H
#define GKMEANS_HEAP_H

#include "relation/rel_page.h"
#include "relation/rel_executor.h"

/* The tables to read, one after the other. */
typedef struct GkHeapTables
{
	GkPagesWhat *what;
	int			count;
	GkPagesTable *table;		/* [count] */
	Relation   *rels;			/* [count] */
} GkHeapTables;

typedef struct GkHeapRead GkHeapRead;

/* Count rows that were taken, and report those that were left out. */
extern void gk_heap_left_out(GkReader *r, const GkTaken *t);
/* Hand over the visible rows of a page like the executor's, from one on. */
extern void gk_heap_rows(GkHeapRead *h, int table, BlockNumber block, OffsetNumber from);

/* Take the rows of pages in this process, of the first one from an offset on. */
extern void gk_heap_pages(GkHeapRead *h, GkPages *p, int table, BlockNumber block, OffsetNumber from, BlockNumber end);

/* Reading by threads of this process, one table after the other (rel_threads.c). */
typedef struct GkTogether GkTogether;

/* Whether threads read the tables faster than some workers would. */
extern bool gk_together_suits(const GkReader *r, const GkHeapTables *tables);
/* NULL: there are no threads. */
extern GkTogether *gk_together_begin(GkHeapRead *h, GkReader *r, const GkPagesWhat *what);
/* Take the rows from a block on.  False: threads are no use for that table; nothing has happened. */
extern bool gk_together_read(GkTogether *g, Relation rel, GkPages *pages, int index,
							 const GkPagesTable *table, BlockNumber block);
extern void gk_together_end(GkTogether *g);

/*
 * Take the rows of the tables, from one's block on, with parallel workers
 * (rel_workers.c).  False: there are none to be had; nothing has happened.
 */
extern bool gk_workers_read(GkHeapRead *h, GkReader *r, const GkHeapTables *tables,
							Snapshot snapshot, int table, BlockNumber block);

#endif							/* GKMEANS_HEAP_H */
