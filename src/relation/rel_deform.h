/*
 * rel_deform.h - the rows of a page into a batch.
 *
 * A taker knows neither the query nor the store: rows go into a GkTaken.  A row that is
 * an error, or for which PostgreSQL's functions are needed, is deferred: the caller reads
 * it again as a row of the executor's.
 */
#ifndef GKMEANS_TAKER_H
#define GKMEANS_TAKER_H

#include "access/htup_details.h"
#include "storage/bufpage.h"

#include "core/store/gk_batch.h"
#include "gkmeans.h"
#include "relation/rel_transpose.h"
#include "relation/rel_rules.h"

/* What to read, the same for all tables of a query.  Flat, to be sent to workers. */
typedef struct GkPagesWhat
{
	int			d;				/* features; 0: not known so far */
	bool		array;			/* one array of them */
	bool		weighted;
	bool		identify;		/* fill the aux columns */
	bool		labelled;		/* the old label, too */
	bool		left_out;		/* note the rows that are left out */
	GkRowRules	rules;
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

/* The visible rows of a page, in order; it is pinned meanwhile. */
typedef struct GkPageRows
{
	BlockNumber block;
	int			n;
	OffsetNumber offset[MaxHeapTuplesPerPage];
	HeapTupleHeader row[MaxHeapTuplesPerPage];
} GkPageRows;

/* What rows are taken with, of one table and by one thread at a time. */
typedef struct GkTaker GkTaker;

extern Size gk_pages_what_size(int nvalues);
/*
 * When *into is full, next(arg) has to make room, or let it be another one.  A helper
 * calls nothing of PostgreSQL, so that it may be another thread's: rows for which it
 * would have to are deferred.
 */
extern GkTaker *gk_taker_open(TupleDesc desc, const GkPagesWhat *what, const GkPagesTable *table, bool helper,
							  GkTaken **into, void (*next) (void *arg), void *arg);
/* Take the rows from the first-th on.  -1, or the first one that is deferred; none after it was taken. */
extern int	gk_taker_take(GkTaker *t, const GkPageRows *rows, int first, GkAhead *ahead);
extern void gk_taker_close(GkTaker *t);

/*
 * All of a page: rows lie backwards, and each one would be waited for.  Of memory that
 * this process has not seen before nothing is prefetched, so look at it first.
 */
static inline GkAhead
gk_all_of(Page page)
{
	(void) *(volatile const char *) page;
	(void) *((volatile const char *) page + BLCKSZ - 1);
	return (GkAhead) {(const char *) page, (const char *) page + BLCKSZ};
}

/* What a value of the label column means. */
extern uint32 gk_old_label(GkValueType type, Datum value, bool isnull);

#endif							/* GKMEANS_TAKER_H */
