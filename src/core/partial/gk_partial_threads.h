/*
 * gk_partial_threads.h - a part of a step (gk_partial.h) of all rows that a reader hands on in batches, on
 * all threads.
 *
 * Rows are prepared into one chunk.  When it is full the backend finds their nearest centroids, on its device
 * or on all threads, and the threads add them, each to a part of its own.  Memory is that of the chunk and of
 * the parts.
 */
#ifndef GK_PARTIAL_THREADS_H
#define GK_PARTIAL_THREADS_H

#include "core/gk_backend.h"
#include "core/partial/gk_partial.h"

typedef struct GkPartialThreads GkPartialThreads;

typedef struct GkPartialWhat
{
	const GkPrep *prep;
	int			k;
	GkWeightGrid weights;
	const float *f;				/* [k][d] prepared centroids */
	const GkBackend **device;	/* finds the centroids; becomes the CPU when it fails and the host agrees */
	size_t		chunk_bytes;
} GkPartialWhat;

GkStatus	gk_partial_threads_open(const GkHost *host, const GkPartialWhat *what, GkPartialThreads **out, GkError *err);

/* A GkTake. */
GkStatus	gk_partial_threads_take(void *arg, GkStore *store, const struct GkBatch *batch, GkError *err);

/* After the last batch. */
GkStatus	gk_partial_threads_end(GkPartialThreads *p, GkError *err);

/* Shifts of the planes, ascending; returns how many (<= GK_MAX_SHIFTS). */
int			gk_partial_threads_shifts(const GkPartialThreads *p, int *shifts);

/* Add all parts to one that has these planes. */
void		gk_partial_threads_merge(GkPartial *to, const GkPartialThreads *p);
void		gk_partial_threads_free(GkPartialThreads *p);

#endif							/* GK_PARTIAL_THREADS_H */
