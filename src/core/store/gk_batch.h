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

/* A batch has at most as many rows as column kernels take at once. */
#define GK_BATCH_ROWS	GK_COLUMN_BLOCK

typedef struct GkBatch
{
	int			columns;		/* features, and the weight */
	int			naux;
	int			capacity;
	int			rows;
	bool	   *wide;			/* [columns] stays set when the batch is emptied */
	size_t		stride;			/* bytes from one column to the next */
	char	   *values;			/* [columns][capacity] places of 8 bytes */
	uint32_t   *aux;			/* [naux][capacity] */
} GkBatch;

/* As many rows as make a batch of about that many bytes, at least 16. */
int			gk_batch_capacity(int columns, size_t bytes);
size_t		gk_batch_bytes(int columns, int naux, int capacity);
/* An empty batch in so much memory, aligned to 8 bytes; its columns are floats. */
void		gk_batch_init(GkBatch *b, void *memory, int columns, int naux, int capacity);
/* Another process's batch. */
void		gk_batch_attach(GkBatch *b, void *memory, int columns, int naux, int capacity);
/* Make doubles of the first `rows` values of a column, and of what comes. */
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

/* Set a value of the row that comes next; b->rows++ makes it one of the batch. */
static inline void
gk_batch_put(GkBatch *b, int column, double v)
{
	gk_batch_set(b, column, b->rows, v);
}

#endif							/* GK_BATCH_H */
