/*
 * rel_executor.h - what the two roads from rows to points share.
 *
 * The executor road hands over row by row.  The heap road (rel_heap.c) fills
 * batches itself with rows that leave no question open, and hands over all others
 * the same way.  Both ask rel_rules.h what a row may hold.
 */
#ifndef GKMEANS_READER_H
#define GKMEANS_READER_H

#include "executor/execdesc.h"
#include "executor/tuptable.h"

#include "core/store/gk_batch.h"
#include "gkmeans.h"
#include "relation/rel_rules.h"

typedef struct GkReader
{
	DestReceiver pub;			/* must be first */
	GkPgHost   *host;
	const GkSource *source;
	const GkReadOptions *options;
	GkReadCounts *counts;
	GkTables   *tables;
	MemoryContext context;		/* of the caller: lives as long as the store */
	GkRowReader rows;
	/* From the first usable row on. */
	GkStore    *store;
	GkBatch    *batch;			/* the store's */
} GkReader;

/* Take a row in the form of the source's query. */
extern void gk_reader_row(GkReader *r, TupleTableSlot *slot);
/* Hand the rows of the store's batch over, of which there are some. */
extern void gk_reader_commit(GkReader *r);
/* Report what was read so far. */
extern void gk_reader_progress(const GkReader *r);
/* The index of a table that rows come from. */
extern int	gk_reader_table(GkReader *r, Oid tableoid);

/*
 * The SeqScanStates that a plan consists of, in order, when it is nothing but sequential
 * scans of heap tables without conditions and expressions; 0: it is something else.
 */
extern int	gk_heap_scans(QueryDesc *desc, PlanState ***scans);
/* A GkQueryScan (rel_read.c) for a GkReader. */
extern bool gk_heap_scan(QueryDesc *desc, DestReceiver *dest);

#endif							/* GKMEANS_READER_H */
