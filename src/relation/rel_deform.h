/*
 * rel_deform.h - the rows of a page into a batch.
 *
 * A deformer knows neither the query nor the store: rows go into a KmRowBatch.  A row that is
 * an error, or for which PostgreSQL's functions are needed, is deferred: it ends the batch, and
 * the executor path reads it, with what follows on its page (km_heap_rows()).
 */
#ifndef REL_DEFORM_H
#define REL_DEFORM_H

#include "access/htup_details.h"

#include "core/store/gk_batch.h"
#include "gkmeans.h"
#include "relation/rel_prefetch.h"
#include "relation/rel_rules.h"
#include "relation/rel_toast.h"

/* What becomes of a row, beside the verdicts of rel_rules.h. */
enum
{
	KM_ROW_PLAIN = KM_ROW_VERDICTS, /* to be judged with the other plain rows */
	KM_ROW_DEFERRED				/* the executor path reads it: it is an error, or PostgreSQL is needed */
};

/* What to read of a row, the same for all tables of a query.  Flat, to be sent to workers. */
typedef struct KmRowSpec
{
	int			d;				/* features; 0: not known so far */
	bool		array;			/* one array of them, or vector */
	KmLayout	layout;			/* of it */
	bool		weighted;
	bool		numeric;		/* some values are */
	bool		identify;		/* fill the aux columns */
	bool		labelled;		/* the old label, too */
	bool		left_out;		/* note the rows that are left out */
	KmRowRules	rules;
	bool		filled;			/* NULL features have values: km_row_fill(); 0 for those that a point lacks */
	KmValueType label_type;
	int			nvalues;		/* columns of features (1: the array), and the weight */
	KmValueType type[FLEXIBLE_ARRAY_MEMBER];	/* of them; of the array's elements */
} KmRowSpec;

/* One of the tables. */
typedef struct KmHeapTable
{
	Oid			relid;
	BlockNumber nblocks;
	uint32		index;			/* among the reader's tables, if rows are identified */
	AttrNumber *attnums;		/* [nvalues], and the old label's */
} KmHeapTable;

typedef struct KmLeftOut
{
	BlockNumber block;
	OffsetNumber offset;
	uint32		table;
	uint32		old_label;
} KmLeftOut;

/* Rows on their way to the store. */
typedef struct KmRowBatch
{
	GkBatch    *batch;			/* those kept */
	int64		seen;			/* kept or left out */
	KmReadCounts counts;		/* of those left out */
	int			nleft;
	KmLeftOut  *left;			/* [batch->capacity] them, if the spec wants them noted */
	/* The row that comes next, if it is deferred. */
	BlockNumber block;
	OffsetNumber deferred;		/* 0: it is not */
} KmRowBatch;

static inline void
km_row_batch_clear(KmRowBatch *b)
{
	b->batch->rows = 0;
	b->seen = 0;
	b->counts = (KmReadCounts) {0};
	b->nleft = 0;
	b->deferred = 0;
}

/* The visible rows of a page, in order; it is pinned meanwhile. */
typedef struct KmPageRows
{
	BlockNumber block;
	int			n;
	OffsetNumber offset[MaxHeapTuplesPerPage];
	HeapTupleHeader row[MaxHeapTuplesPerPage];
} KmPageRows;

/* Reads the rows of one table, in one thread at a time. */
typedef struct KmDeformer KmDeformer;

extern Size km_row_spec_size(int nvalues);

/* [nvalues] What NULL columns become, if they are filled in. */
extern double *km_row_fill(const KmRowSpec *spec);

/*
 * A helper, which gets no toast, calls nothing of PostgreSQL, so that it may be another thread's:
 * rows for which it would have to are deferred.
 */
extern KmDeformer *km_deform_open(TupleDesc desc, const KmRowSpec *spec, const KmHeapTable *table, KmToast *toast);

/*
 * Add rows of a page to a batch, from the first-th on.  Returns the row at which it stopped:
 * rows->n, or the batch is full, or to->deferred says that this row is deferred.
 */
extern int	km_deform_page(KmDeformer *t, const KmPageRows *rows, int first, KmRowBatch *to, KmPrefetch *ahead);

/* Call it before the values of the batch are read: some are written only now. */
extern void km_deform_finish(KmDeformer *t);
extern void km_deform_close(KmDeformer *t);

/* What a value of the label column means. */
extern uint32 km_old_label(KmValueType type, Datum value, bool isnull);

/*
 * n rows' values of some columns, which have one type and are side by side from data[i] + at
 * on, to behind the rows of the batch (rel_transpose.c).  False: a value is not finite.
 */
extern bool km_transpose(GkBatch *b, int column, int columns, KmValueType type,
						 const char *const *data, int n, int at, KmPrefetch *ahead);

/*
 * Rows that wait, until there are enough to be turned at once.  A page has few rows of many values,
 * and to write these alone would touch a cache line for each value: a line of a batch's column
 * has those of KM_STAGE_ROWS rows.
 */
#define KM_STAGE_ROWS	16

typedef struct KmStage
{
	KmValueType type;
	int			columns;		/* of this type, side by side, the batch's first */
	Size		stride;			/* bytes from one row to the next */
	char	   *rows;			/* [2 * KM_STAGE_ROWS] a ring; NULL: rows are not like this */
	int			first;			/* 0 or KM_STAGE_ROWS: the first row that waits, */
	int			n;				/* of as many, fewer than KM_STAGE_ROWS */
	GkBatch    *batch;			/* whose last rows they are */
} KmStage;

extern void km_stage_init(KmStage *s, KmValueType type, int columns);

/*
 * Add n < KM_STAGE_ROWS rows, whose values are from data[i] on, to those of the batch.  False, with none
 * added: a value is not finite, or a point is zero and must not be.
 */
extern bool km_stage_add(KmStage *s, GkBatch *b, const char *const *data, int n, bool zero);

/* Write those that wait into their batch. */
extern void km_stage_flush(KmStage *s);

#endif							/* REL_DEFORM_H */
