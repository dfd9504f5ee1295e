/*
 * gk_cpu_seed_index.h - the copy of the points in which neighbours are together: what
 * gk_cpu_seed_index.c, which makes it, gk_cpu_kdtree.c, which arranges it, and gk_cpu_seed.c share.
 */
#ifndef GK_CPU_SEED_INDEX_H
#define GK_CPU_SEED_INDEX_H

#include "cpu/gk_cpu.h"

typedef struct GkSplit
{
	float		at;				/* rows that exceed this go right */
	int32_t		feature;
} GkSplit;

typedef struct GkKey
{
	float		v;
	int32_t		row;
} GkKey;

typedef struct GkTree
{
	int			levels;			/* 1 << levels leaves */
	GkSplit    *split;			/* [leaves - 1], a heap */
	/* The sample. */
	int			rows;
	int			d;
	float	   *x;				/* [rows][d] */
	float	   *d2;				/* [rows] */
	GkKey	   *key;			/* [rows], leaf by leaf */
	GkRoom		work;			/* where all that is; the caller frees it */
} GkTree;

/* Its size; and the tree itself, false: out of memory. */
GkTree		gk_kdtree_plan(const GkSession *s);
bool		gk_kdtree_make(GkSession *s, GkTree *t);
/* The share of the tiles of a copy that candidates would have to look at. */
double		gk_kdtree_open(const GkTree *t, const float *c, int candidates);

/* Make the copy if that pays, D being settled. */
GkStatus	gk_cpu_seed_index_consider(GkSession *s, const float *centroids, int candidates, GkError *err);
/* As gk_cpu_plan(), for a pass over the copy. */
GkSweep		gk_cpu_seed_index_plan(const GkSession *s, int m);
/* The largest D of a tile anew. */
void		gk_cpu_seed_index_most(GkCpuSeedIndex *near, int tile);

/* A block's part of the copy: the tiles whose first row has the number of one of the block's rows. */
typedef struct GkShare
{
	int			first,
				end;
} GkShare;

static inline GkShare
gk_cpu_seed_index_share(const GkBlock *b)
{
	int64_t		row = b->chunk->first + b->row + GK_ROW_PAD - 1;

	return (GkShare) {(int) (row / GK_ROW_PAD), (int) ((row + b->rows) / GK_ROW_PAD)};
}

#endif							/* GK_CPU_SEED_INDEX_H */
