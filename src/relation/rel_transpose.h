/*
 * rel_transpose.h - values at known places in rows become columns of a batch.
 */
#ifndef REL_TRANSPOSE_H
#define REL_TRANSPOSE_H

#include "access/htup_details.h"

#include "core/store/gk_batch.h"
#include "gkmeans.h"

/* As many rows as a page has. */
#define KM_TRANSPOSE_ROWS	MaxHeapTuplesPerPage

/*
 * Memory to have on its way into the CPU's cache.  A CPU waits for a dozen lines at a
 * time: asked for all at once they come no sooner, and nothing is done meanwhile.
 */
typedef struct KmPrefetch
{
	const char *next;
	const char *end;
} KmPrefetch;

/*
 * n rows' values of some columns, which have one type and are side by side from
 * data[i] + at on, behind the rows of the batch.  False: a value is not finite.
 */
extern bool km_transpose(GkBatch *b, int column, int columns, KmValueType type,
					  const char *const *data, int n, int at, KmPrefetch *ahead);
/* Ask for what is left. */
extern void km_prefetch_row(KmPrefetch *ahead);

#endif							/* REL_TRANSPOSE_H */
