/*
 * gk_cpu_hamerly.h - what gk_cpu_hamerly.c, a pass that skips points, and gk_cpu_hamerly_search.c,
 * the points of one block in it, share.
 */
#ifndef GK_CPU_HAMERLY_H
#define GK_CPU_HAMERLY_H

#include "cpu/gk_cpu.h"

/* A thread's scratch. */
typedef struct GkHamerlyScratch
{
	/* What it did. */
	int64_t		tiles;			/* looked into */
	int64_t		tightened;		/* rows */
	int64_t		searched;		/* rows */
	int64_t		looked;			/* bundles, for a tile of rows each, ... */
	int64_t		all;			/* ... of so many */
	int32_t		label[GK_ROW_PAD];
	float		d2[GK_ROW_PAD];
	float		second[GK_ROW_PAD];
	float		upper[GK_ROW_PAD];
	float		lower[GK_ROW_PAD];
	float		slack[GK_ROW_PAD];
	float		gathered[];		/* [d][GK_ROW_PAD], then what gk_cpu_hamerly_search.c lists */
} GkHamerlyScratch;

static inline GkHamerlyScratch *
gk_hamerly_scratch(const GkCpuHamerly *b, int thread)
{
	return (GkHamerlyScratch *) ((char *) b->scratch.p + thread * b->scratch_bytes);
}

static inline GkReach *
gk_hamerly_reach(const GkSession *s, GkHamerlyScratch *own)
{
	return (GkReach *) (own->gathered + (size_t) s->pts->d * GK_ROW_PAD);
}

/* Bytes of it for blocks of so many rows. */
size_t		gk_hamerly_scratch_bytes(const GkSession *s, int rows, int k);

#endif							/* GK_CPU_HAMERLY_H */
