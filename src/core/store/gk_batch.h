/*
 * gk_batch.h - some rows on their way into a store, column by column.
 *
 * A column of a batch holds floats as long as every value is one exactly,
 * doubles otherwise ("wide"), as the raw chunks of a store do.  A batch lies in
 * memory that is its maker's, which may be shared between processes: the struct
 * is one process's view of it.
 */
#ifndef GK_BATCH_H
#define GK_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "core/store/gk_columns.h"
#include "core/gk_core.h"

/* A batch has at most as many rows as column kernels take at once. */
#define GK_BATCH_ROWS	GK_COLUMN_BLOCK

typedef struct GkBatch
{
	int			columns;		/* features, and the weight */
	int			naux;
	int			capacity;
	int			rows;
	bool	   *wide;			/* [columns] stays set when the batch is emptied */
	bool		holes;			/* NaN is a missing value; likewise, of this process */
	size_t		stride;			/* bytes from one column to the next */
	char	   *values;			/* [columns][capacity] places of 8 bytes */
	uint32_t   *aux;			/* [naux][capacity] */
} GkBatch;

/* The rows of a batch of about that many bytes, at least 16. */
int			gk_batch_capacity(int columns, size_t bytes);
size_t		gk_batch_bytes(int columns, int naux, int capacity);

/* Make an empty batch in gk_batch_bytes() of memory, aligned to 8; its columns are floats. */
void		gk_batch_init(GkBatch *b, void *memory, int columns, int naux, int capacity);

/* Make a view of another process's batch. */
void		gk_batch_attach(GkBatch *b, void *memory, int columns, int naux, int capacity);

/* Make doubles of the first `rows` values of a column, and of those to come. */
void		gk_batch_widen(GkBatch *b, int column, int rows);

/* Add the rows to the statistics [columns]. */
void		gk_batch_observe(const GkBatch *b, GkColumnStats *stats);

static inline void *
gk_batch_column(const GkBatch *b, int column)
{
	return b->values + column * b->stride;
}

static inline uint32_t *
gk_batch_aux(const GkBatch *b, int aux)
{
	return b->aux + (size_t) aux * b->capacity;
}

/* Set a value; those of the column in the rows before it are set. */
static inline void
gk_batch_set(GkBatch *b, int column, int row, double v)
{
	if (!b->wide[column])
	{
		if ((double) (float) v == v)
		{
			((float *) gk_batch_column(b, column))[row] = (float) v;
			return;
		}
		gk_batch_widen(b, column, row);
	}
	((double *) gk_batch_column(b, column))[row] = v;
}

/* A value of the row that comes next is missing: under GK_PARTIAL. */
static inline void
gk_batch_miss(GkBatch *b, int column)
{
	if (b->wide[column])
		((double *) gk_batch_column(b, column))[b->rows] = __builtin_nan("");
	else
		((float *) gk_batch_column(b, column))[b->rows] = __builtin_nanf("");
	b->holes = true;
}

/* Set a value of the row that comes next; b->rows++ makes it one of the batch. */
static inline void
gk_batch_put(GkBatch *b, int column, double v)
{
	gk_batch_set(b, column, b->rows, v);
}

/* ---- batches into chunks (gk_load.c) ---- */

/*
 * One thread decides where rows go, in their order; the copies may be made later, in any
 * order and by any thread.
 */

/* A copy of rows of a batch to rows of a chunk. */
typedef struct GkMove
{
	const GkBatch *batch;
	int			from;
	int			rows;
	/* The chunk, which stays as it is until the copy is made. */
	char	   *data;
	int			stride;
	const uint8_t *wide;
	int			to;
} GkMove;

/* Makes the copies. */
typedef struct GkMover
{
	/* May return before the copy is made; the batch stays until then. */
	GkStatus	(*move) (void *arg, const GkMove *move);
	/* Return when all copies are made. */
	GkStatus	(*finish) (void *arg);
	void	   *arg;
} GkMover;

/* Find places for a batch's rows; gk_store_observed() adds their statistics. */
GkStatus	gk_store_add_by(GkStore *store, const GkBatch *batch, const GkMover *mover, GkError *err);

/* Make a copy.  Any thread. */
void		gk_store_move(const GkStore *store, const GkMove *move);

#endif							/* GK_BATCH_H */
