/*
 * rel_deform.h - the rows of a page into a batch.
 *
 * A taker knows neither the query nor the store: rows go into a KmRowBatch.  A row that is
 * an error, or for which PostgreSQL's functions are needed, is deferred: the caller reads
 * it again as a row of the executor's.
 */
#ifndef REL_DEFORM_H
#define REL_DEFORM_H

#include "access/htup_details.h"
#include "storage/bufpage.h"

#include "core/store/gk_batch.h"
#include "gkmeans.h"
#include "relation/rel_transpose.h"
#include "relation/rel_rules.h"

/* What to read, the same for all tables of a query.  Flat, to be sent to workers. */
typedef struct KmPagesWhat
{
	int			d;				/* features; 0: not known so far */
	bool		array;			/* one array of them */
	bool		weighted;
	bool		identify;		/* fill the aux columns */
	bool		labelled;		/* the old label, too */
	bool		left_out;		/* note the rows that are left out */
	KmRowRules	rules;
	KmValueType label_type;
	int			nvalues;		/* columns of features (1: the array), and the weight */
	KmValueType type[FLEXIBLE_ARRAY_MEMBER];	/* of them; of the array's elements */
} KmPagesWhat;

/* One of the tables. */
typedef struct KmPagesTable
{
	Oid			relid;
	BlockNumber nblocks;
	uint32		index;			/* among the reader's tables, if rows are identified */
	AttrNumber *attnums;		/* [nvalues], and the old label's */
} KmPagesTable;

typedef struct KmLeftOut
{
	BlockNumber block;
	OffsetNumber offset;
	uint32		table;
	uint32		old_label;
} KmLeftOut;

/* Rows that were taken. */
typedef struct KmRowBatch
{
	GkBatch    *batch;
	int64		seen;			/* kept or left out */
	KmReadCounts counts;
	int			nleft;
	KmLeftOut  *left;			/* [batch->capacity] */
} KmRowBatch;

/* The visible rows of a page, in order; it is pinned meanwhile. */
typedef struct KmPageRows
{
	BlockNumber block;
	int			n;
	OffsetNumber offset[MaxHeapTuplesPerPage];
	HeapTupleHeader row[MaxHeapTuplesPerPage];
} KmPageRows;

/* What rows are taken with, of one table and by one thread at a time. */
typedef struct KmDeformer KmDeformer;

extern Size km_pages_what_size(int nvalues);
/*
 * When *into is full, next(arg) has to make room, or let it be another one.  A helper
 * calls nothing of PostgreSQL, so that it may be another thread's: rows for which it
 * would have to are deferred.
 */
extern KmDeformer *km_deform_open(TupleDesc desc, const KmPagesWhat *what, const KmPagesTable *table, bool helper,
							  KmRowBatch **into, void (*next) (void *arg), void *arg);
/* Take the rows from the first-th on.  -1, or the first one that is deferred; none after it was taken. */
extern int	km_deform_take(KmDeformer *t, const KmPageRows *rows, int first, KmPrefetch *ahead);
extern void km_deform_close(KmDeformer *t);

/*
 * All of a page: rows lie backwards, and each one would be waited for.  Of memory that
 * this process has not seen before nothing is prefetched, so look at it first.
 */
static inline KmPrefetch
km_all_of(Page page)
{
	(void) *(volatile const char *) page;
	(void) *((volatile const char *) page + BLCKSZ - 1);
	return (KmPrefetch) {(const char *) page, (const char *) page + BLCKSZ};
}

/* What a value of the label column means. */
extern uint32 km_old_label(KmValueType type, Datum value, bool isnull);

#endif							/* REL_DEFORM_H */
