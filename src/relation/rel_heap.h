/*
 * rel_heap.h - what the files of the heap road share.
 */
#ifndef REL_HEAP_H
#define REL_HEAP_H

#include "relation/rel_page.h"
#include "relation/rel_executor.h"

/* The tables to read, one after the other. */
typedef struct KmHeapTables
{
	KmRowSpec *spec;
	int			count;
	KmHeapTable *table;		/* [count] */
	Relation   *rels;			/* [count] */
} KmHeapTables;

typedef struct KmHeapRead KmHeapRead;

/* Count rows that were taken, and report those that were left out. */
extern void km_heap_left_out(KmReader *r, const KmRowBatch *t);
/* Hand over the visible rows of a page like the executor's, from one on. */
extern void km_heap_rows(KmHeapRead *h, int table, BlockNumber block, OffsetNumber from);

/* Take the rows of pages in this process, of the first one from an offset on. */
extern void km_heap_pages(KmHeapRead *h, KmPageReader *p, int table, BlockNumber block, OffsetNumber from, BlockNumber end);

/* Reading by threads of this process, one table after the other (rel_threads.c). */
typedef struct KmThreads KmThreads;

/* Whether threads read the tables faster than some workers would. */
extern bool km_threads_suits(const KmReader *r, const KmHeapTables *tables);
/* NULL: there are no threads. */
extern KmThreads *km_threads_begin(KmHeapRead *h, KmReader *r, const KmRowSpec *spec);
/* Take the rows from a block on.  False: threads are no use for that table; nothing has happened. */
extern bool km_threads_read(KmThreads *g, Relation rel, KmPageReader *pages, int index,
							 const KmHeapTable *table, BlockNumber block);
extern void km_threads_end(KmThreads *g);

/*
 * Take the rows of the tables, from one's block on, with parallel workers
 * (rel_workers.c).  False: there are none to be had; nothing has happened.
 */
extern bool km_workers_read(KmHeapRead *h, KmReader *r, const KmHeapTables *tables,
							Snapshot snapshot, int table, BlockNumber block);

#endif							/* REL_HEAP_H */
