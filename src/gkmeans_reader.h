/*
 * gkmeans_reader.h - what the two roads from rows to points share.
 *
 * The executor road hands over row by row.  The heap road (gkmeans_heap.c) fills
 * the staging columns itself with rows that leave no question open, and hands
 * over all others the same way: whatever is checked, counted or reported is in
 * gkmeans_reader.c only.
 */
#ifndef GKMEANS_READER_H
#define GKMEANS_READER_H

#include "executor/execdesc.h"
#include "executor/tuptable.h"

#include "gkmeans.h"

typedef struct GkReader
{
	DestReceiver pub;			/* must be first */
	GkPgHost   *host;
	const GkSource *source;
	const GkReadOptions *options;
	GkReadCounts *counts;
	GkTables   *tables;
	MemoryContext context;		/* of the caller: lives as long as the store */
	int64		rows;			/* read so far, for messages */
	/* From the first usable row on. */
	GkStore    *store;
	int			d;
	int			batch_rows;
	int			fill;			/* rows staged */
	double	  **stage;			/* [d], and the weight */
	uint32_t   *aux[GK_MAX_AUX];
	double	   *row;			/* [d] the row at hand */
	double		weight;
} GkReader;

/* Take a row in the form of the source's query. */
extern void gk_reader_row(GkReader *r, TupleTableSlot *slot);
/* Hand the staged rows over, of which there are some. */
extern void gk_reader_commit(GkReader *r);
/* The index of a table that rows come from. */
extern int	gk_reader_table(GkReader *r, Oid tableoid);
/* What a value of the label column means. */
extern uint32 gk_reader_old_label(const GkReader *r, Datum value, bool isnull);

/* A GkQueryScan (gkmeans_query.c) for a GkReader. */
extern bool gk_heap_scan(QueryDesc *desc, DestReceiver *dest);

#endif							/* GKMEANS_READER_H */
