/*
 * gkmeans_pages.h - rows straight from the pages of heap tables.
 *
 * Works in any process that has the snapshot, the one that was called or a
 * parallel worker, and knows neither the query nor the store: rows go into a
 * GkTaken.  A row that has to be reported, or that something is odd about, is
 * not taken: whoever called looks at it as at a row of the executor's.
 */
#ifndef GKMEANS_PAGES_H
#define GKMEANS_PAGES_H

#include "access/relscan.h"
#include "utils/rel.h"

#include "core/gk_batch.h"
#include "gkmeans.h"

/* What to read, the same for all tables of a query.  Flat, to be sent to workers. */
typedef struct GkPagesWhat
{
	int			d;				/* features; 0: not known so far */
	bool		array;			/* one array of them */
	bool		weighted;
	bool		identify;		/* fill the aux columns */
	bool		labelled;		/* the old label, too */
	bool		left_out;		/* note the rows that are left out */
	bool		cosine;
	bool		skip_nonfinite;
	GkValueType label_type;
	int			nvalues;		/* columns of features (1: the array), and the weight */
	GkValueType type[FLEXIBLE_ARRAY_MEMBER];	/* of them; of the array's elements */
} GkPagesWhat;

/* One of the tables. */
typedef struct GkPagesTable
{
	Oid			relid;
	BlockNumber nblocks;
	uint32		index;			/* among the reader's tables, if rows are identified */
	AttrNumber *attnums;		/* [nvalues], and the old label's */
} GkPagesTable;

typedef struct GkLeftOut
{
	BlockNumber block;
	OffsetNumber offset;
	uint32		table;
	uint32		old_label;
} GkLeftOut;

/* Rows that were taken. */
typedef struct GkTaken
{
	GkBatch    *batch;
	int64		seen;			/* kept or left out */
	GkReadCounts counts;
	int			nleft;
	GkLeftOut  *left;			/* [batch->capacity] */
} GkTaken;

typedef struct GkPages GkPages;

extern Size gk_pages_what_size(int nvalues);
/*
 * Take rows of a table.  When *into is full, next(arg) has to make room, or let
 * it be another one.
 */
extern GkPages *gk_pages_open(Relation rel, Snapshot snapshot, const GkPagesWhat *what,
							  const GkPagesTable *table, GkTaken **into,
							  void (*next) (void *arg), void *arg);
/*
 * Take a page's rows.  0, or the first one that was not taken; none after it was.
 * `next` is the block that will be taken after it, or InvalidBlockNumber.
 */
extern OffsetNumber gk_pages_take(GkPages *p, BlockNumber block, BlockNumber next);
extern void gk_pages_close(GkPages *p);
/* Have the system read these pages ahead, if the first one is not at hand. */
extern void gk_pages_prefetch(Relation rel, BlockNumber first, BlockNumber end);

/* What a value of the label column means. */
extern uint32 gk_old_label(GkValueType type, Datum value, bool isnull);

#endif							/* GKMEANS_PAGES_H */
