/*
 * gk_gpu_move_sum.h - sums of the rows that changed their label (gk_gpu_move_sum.cu).
 */
#ifndef GK_GPU_MOVE_SUM_H
#define GK_GPU_MOVE_SUM_H

#include "gpu/gk_gpu.h"

/*
 * Add to s->acc what the rows of a slice change by going from the labels `old` to `labels`, both of the same
 * width; old becomes labels.  x: the slice's points, row-major, `pitch` floats each, a multiple of four.  At
 * most GK_INT64_ROWS rows.
 */
GkStatus	gk_gpu_move_sum(GkSession *s, const GkRows *rows, const float *x, int pitch, int k, GkLabels labels,
							void *old, GkError *err);

#endif							/* GK_GPU_MOVE_SUM_H */
