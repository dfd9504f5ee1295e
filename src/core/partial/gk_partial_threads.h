/*
 * gk_partial_threads.h - the part of a step (gk_partial.h) of all rows that come by in the batches
 * of a loading store.
 *
 * Rows are prepared into one chunk; when that is full, the backend finds the nearest
 * centroids, on its device or on all threads, and the threads add up, each into a part of
 * its own.  Memory is that of the chunk and of the parts.
 */
#ifndef GK_PARTS_H
#define GK_PARTS_H

#include "core/gk_backend.h"
#include "core/partial/gk_partial.h"

typedef struct GkParts GkParts;

typedef struct GkPartsWhat
{
	const GkPrep *prep;
	int			k;
	GkWeightGrid weights;
	const float *f;				/* [k][d] prepared centroids */
	const GkBackend **device;	/* who assigns; becomes the CPU when it fails and the host agrees */
	size_t		chunk_bytes;
} GkPartsWhat;

GkStatus	gk_parts_open(const GkHost *host, const GkPartsWhat *what, GkParts **out, GkError *err);
/* A GkTake. */
GkStatus	gk_parts_take(void *arg, GkStore *store, const struct GkBatch *batch, GkError *err);
/* After the last batch. */
GkStatus	gk_parts_end(GkParts *p, GkError *err);
/* Shifts of the planes, ascending; returns how many (<= GK_MAX_SHIFTS). */
int			gk_parts_shifts(const GkParts *p, int *shifts);
/* Add all parts to one that has these planes. */
void		gk_parts_merge(GkPartial *to, const GkParts *p);
void		gk_parts_free(GkParts *p);

#endif							/* GK_PARTS_H */
