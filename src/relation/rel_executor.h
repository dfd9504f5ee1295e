/*
 * rel_executor.h - what the two paths from rows to points share.
 *
 * The executor path gets row by row.  The heap path (rel_heap.c) fills batches itself, and
 * reads deferred rows like the executor's.  Both ask rel_rules.h what a row may hold.
 */
#ifndef REL_EXECUTOR_H
#define REL_EXECUTOR_H

#include "executor/tuptable.h"

#include "core/store/gk_batch.h"
#include "relation/rel_rules.h"

typedef struct KmReader
{
	DestReceiver pub;			/* must be first */
	KmPgHost   *host;
	const KmSource *source;
	const KmReadOptions *options;
	KmReadCounts *counts;
	KmTables   *tables;
	MemoryContext context;		/* of the caller: lives as long as the store */
	KmRowReader rows;
	/* From the first usable row on. */
	GkStore    *store;
	GkBatch    *batch;			/* the store's */
} KmReader;

/* Read a row in the form of the source's query. */
extern void km_reader_row(KmReader *r, TupleTableSlot *slot);

/* Hand over the rows of the store's batch, if there are any. */
extern void km_reader_commit(KmReader *r);

/* Report what was read so far. */
extern void km_reader_progress(const KmReader *r);

/* The index of a table that rows come from. */
extern int	km_reader_table(KmReader *r, Oid tableoid);

/* A KmQueryScan for a KmReader (rel_heap.c). */
extern bool km_heap_scan(QueryDesc *desc, DestReceiver *dest);

#endif							/* REL_EXECUTOR_H */
