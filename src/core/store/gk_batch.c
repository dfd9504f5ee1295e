/*
 * gk_batch.c - rows on their way into a store (gk_batch.h).
 */
#include <string.h>

#include "core/base/gk_sizes.h"
#include "core/gk_numerics.h"
#include "core/store/gk_batch.h"

/* A batch of fewer rows may be up to four times as large. */
#define FEW_ROWS	128

int
gk_batch_capacity(int columns, size_t bytes)
{
	size_t		row = sizeof(double) * columns;
	size_t		rows = bytes / row;

	/* statistics of a column take as long for a few values as for these */
	if (rows < FEW_ROWS)
		rows = 4 * bytes / row < FEW_ROWS ? 4 * bytes / row / 16 * 16 : FEW_ROWS;
	return rows > GK_BATCH_ROWS ? GK_BATCH_ROWS : rows < 16 ? 16 : (int) rows;
}

/* An odd number of cache lines: a row is written across, and its values must not share sets of the cache. */
static size_t
column_stride(int capacity)
{
	return ((capacity * sizeof(double) + GK_CACHE_LINE - 1) / GK_CACHE_LINE | 1) * GK_CACHE_LINE;
}

/* The flags come last, so that everything is aligned. */
size_t
gk_batch_bytes(int columns, int naux, int capacity)
{
	return columns * column_stride(capacity) +
		(size_t) naux * capacity * sizeof(uint32_t) + columns * sizeof(bool);
}

void
gk_batch_attach(GkBatch *b, void *memory, int columns, int naux, int capacity)
{
	b->columns = columns;
	b->naux = naux;
	b->capacity = capacity;
	b->rows = 0;
	b->holes = false;
	b->values = memory;
	b->stride = column_stride(capacity);
	b->aux = (uint32_t *) (b->values + columns * b->stride);
	b->wide = (bool *) (b->aux + (size_t) naux * capacity);
}

void
gk_batch_init(GkBatch *b, void *memory, int columns, int naux, int capacity)
{
	gk_batch_attach(b, memory, columns, naux, capacity);
	memset(b->wide, 0, columns * sizeof(bool));
}

void
gk_batch_widen(GkBatch *b, int column, int rows)
{
	double	   *x = gk_batch_column(b, column);

	/* in place, so from the end */
	for (int i = rows - 1; i >= 0; i--)
	{
		float		f;

		memcpy(&f, (const char *) x + i * sizeof(float), sizeof(f));
		x[i] = f;
	}
	b->wide[column] = true;
}

/* Add those values of a column that there are. */
static void
observe_present(const GkBatch *b, int column, GkColumnStats *stats)
{
	const void *from = gk_batch_column(b, column);
	double		x[GK_BATCH_ROWS];
	int			n = 0;

	for (int i = 0; i < b->rows; i++)
	{
		double		v = b->wide[column] ? ((const double *) from)[i] : ((const float *) from)[i];

		if (!gk_is_missing(v))
			x[n++] = v;
	}
	stats->missing += b->rows - n;
	if (n > 0)
		gk_columns()->observe(stats, x, n);
}

void
gk_batch_observe(const GkBatch *b, GkColumnStats *stats)
{
	for (int j = 0; j < b->columns; j++)
	{
		if (b->holes)
			observe_present(b, j, &stats[j]);
		else if (b->wide[j])
			gk_columns()->observe(&stats[j], gk_batch_column(b, j), b->rows);
		else
			gk_columns()->observe_floats(&stats[j], gk_batch_column(b, j), b->rows);
	}
}
