/*
 * gk_gpu_move_sum.h - sums of the rows that changed their label (gk_gpu_move_sum.cu).
 */
#ifndef GK_GPU_MOVE_SUM_H
#define GK_GPU_MOVE_SUM_H

#include "gpu/gk_gpu.h"

/* Rows of a slice, at most. */
static inline int64_t
gk_gpu_move_rows(const GkSession *s)
{
	return s->pts->weighted ? GK_INT64_ROWS : GK_GPU_INT64_ROWS;
}

/* Memory that it takes: the moves, the rows that moved, how many of each block; and of each cluster. */
static inline size_t
gk_gpu_move_bytes(const GkSession *s, int64_t rows, int k)
{
	return (size_t) rows * (2 * sizeof(int64_t) + sizeof(int)) + (size_t) gk_round_up((k + 1) * sizeof(int), 16) + s->gpu->sms * sizeof(int);
}

/*
 * Add to s->acc what the rows of a slice change by going from the labels `old` to `labels`, both of the same
 * width; old becomes labels.  x: the slice's points, row-major, `pitch` floats each, a multiple of four.
 */
GkStatus	gk_gpu_move_sum(GkSession *s, const GkRows *rows, const float *x, int pitch, int k, GkLabels labels,
							void *old, GkError *err);

#endif							/* GK_GPU_MOVE_SUM_H */
