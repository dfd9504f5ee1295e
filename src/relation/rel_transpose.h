/*
 * rel_transpose.h - values at known places in rows become columns of a batch.
 */
#ifndef GKMEANS_GATHER_H
#define GKMEANS_GATHER_H

#include "access/htup_details.h"

#include "core/store/gk_batch.h"
#include "gkmeans.h"

/* As many rows as a page has. */
#define GK_GATHER_ROWS	MaxHeapTuplesPerPage

/*
 * Memory to have on its way into the CPU's cache.  A CPU waits for a dozen lines at a
 * time: asked for all at once they come no sooner, and nothing is done meanwhile.
 */
typedef struct GkAhead
{
	const char *next;
	const char *end;
} GkAhead;

/*
 * n rows' values of some columns, which have one type and are side by side from
 * data[i] + at on, behind the rows of the batch.  False: a value is not finite.
 */
extern bool gk_gather(GkBatch *b, int column, int columns, GkValueType type,
					  const char *const *data, int n, int at, GkAhead *ahead);
/* Ask for what is left. */
extern void gk_ask(GkAhead *ahead);

#endif							/* GKMEANS_GATHER_H */
