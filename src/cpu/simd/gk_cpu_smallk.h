/*
 * gk_cpu_smallk.h - what the kernels for few clusters of all instruction sets share.
 */
#ifndef GK_CPU_SMALLK_H
#define GK_CPU_SMALLK_H

#include "core/gk_numerics.h"
#include "cpu/simd/gk_cpu_kernels.h"

/* Rows of a group, where there is more than one pass: they stay in the cache. */
#define GK_SMALLK_GROUP	1024
/*
 * Rows ahead in a column that are asked for (see gk_cpu_assign.h), in two steps: as
 * many requests as main memory needs at a time are more than the first cache takes.
 */
#define GK_SMALLK_FAR		512
#define GK_SMALLK_NEAR		192

static inline void
gk_smallk_fetch(const float *x)
{
	__builtin_prefetch(x + GK_SMALLK_FAR, 0, 2);
	__builtin_prefetch(x + GK_SMALLK_NEAR, 0, 3);
}

/* The tiles from one on, of so many rows at most. */
static inline GkTiles
gk_smallk_group(const GkTiles *x, int tile, int rows)
{
	GkTiles		some = *x;

	some.x += tile * x->tile;
	some.count = x->count - tile < rows / GK_ROW_PAD ? x->count - tile : rows / GK_ROW_PAD;
	return some;
}

#endif							/* GK_CPU_SMALLK_H */
