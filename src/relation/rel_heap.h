/*
 * rel_heap.h - what the files of the heap path share.
 */
#ifndef REL_HEAP_H
#define REL_HEAP_H

#include "relation/rel_executor.h"
#include "relation/rel_page.h"

typedef struct KmHeapRead
{
	KmReader   *r;
	QueryDesc  *desc;
	/* The tables to read, one after the other. */
	int			ntables;
	PlanState **scans;			/* [ntables] */
	Relation   *rels;			/* [ntables] */
	KmHeapTable *tables;		/* [ntables] */
	KmRowSpec  *spec;
	bool		elsewhere;		/* values are out of line, in the rows seen first */
	/* A table whose rows are read like the executor's. */
	int			row_table;		/* -1: none is open */
	struct HeapScanDescData *row_scan;
	TupleTableSlot *row_from;	/* as in the table */
	TupleTableSlot *row_to;		/* as in the query */
	/* Rows that this process reads by the page, into the store's batch. */
	KmRowBatch	out;
} KmHeapRead;

/* ---- in this process (rel_heap_rows.c) ---- */

/* Count the rows of a batch, and report those that were left out. */
extern void km_heap_left_out(KmReader *r, const KmRowBatch *b);

/* Read the visible rows of a page, from one on, like the executor's. */
extern void km_heap_rows(KmHeapRead *h, int table, BlockNumber block, OffsetNumber from);
extern void km_heap_rows_end(KmHeapRead *h);

/* Read the rows of pages, of the first one from an offset on. */
extern void km_heap_pages(KmHeapRead *h, KmPageReader *p, int table, BlockNumber block, OffsetNumber from, BlockNumber end);

/* ---- by threads of this process, one table after the other (rel_threads.c) ---- */

typedef struct KmThreads KmThreads;

/* Whether threads read the tables faster than some workers would. */
extern bool km_threads_suit(const KmHeapRead *h);

/* NULL: there are no threads. */
extern KmThreads *km_threads_begin(KmHeapRead *h);

/* Read a table's rows from a block on.  False: threads are no use for it; nothing has happened. */
extern bool km_threads_read(KmThreads *g, KmPageReader *pages, int table, BlockNumber block);
extern void km_threads_end(KmThreads *g);

/* ---- by parallel workers (rel_workers.c) ---- */

/* Read the rows of all tables, from a block of one on.  False: there are no workers; nothing has happened. */
extern bool km_workers_read(KmHeapRead *h, int table, BlockNumber block);

#endif							/* REL_HEAP_H */
