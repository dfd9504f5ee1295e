/*
 * gk_tiles.h - the two CPU kernels that the core itself runs over tiles of points; the
 * backend's are in gk_cpu_kernels.h.
 */
#ifndef GK_TILES_H
#define GK_TILES_H

#include "core/gk_core.h"

/* Feature j of row i of tile t: x[t * tile + j * stride + i], i < GK_ROW_PAD. */
typedef struct GkTiles
{
	const float *x;
	size_t		tile;
	size_t		stride;
	int			count;			/* tiles */
	int			d;
} GkTiles;

/* Copies of the sums that add() takes in turn. */
#define GK_ADD_COPIES	8

/* GkCpuKernels.assign and .add, of the instruction set of gk_cpu_simd(). */
void		gk_tiles_assign(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2);
void		gk_tiles_add(const GkTiles *x, const int32_t *label, double *acc, size_t width, size_t copy);

#endif							/* GK_TILES_H */
