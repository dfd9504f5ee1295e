/*
 * gk_medians.h - k-medians: clusters of the Manhattan distance, whose centroids are medians.
 *
 * The distance is gk_l1() of gk_numerics.h.  A centroid's feature is the lower median of its cluster's
 * points, percentile_disc(0.5) of SQL: one of their values, so nothing is rounded, and no order of rows,
 * threads or blocks can change it.  Of an even number of values the mean of the two in the middle has the
 * same sum of distances, but would have to be rounded.
 *
 * Everything else is the CPU backend's: gk_medians_backend is that one with kernels of this distance
 * (gk_medians_kernels.c) and a step that finds medians (gk_medians_step.c).  Bounds for squared distances
 * are switched off.
 */
#ifndef GK_MEDIANS_H
#define GK_MEDIANS_H

#include "cpu/gk_cpu_session.h"

/* Make the kernels of a set those of this distance; what only squared distances have becomes NULL. */
void		gk_medians_kernels(const GkCpuKernels *of, GkCpuKernels *out);

GkStatus	gk_medians_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err);

/* Put the n-th smallest of count values (from 0) at its place, and return it. */
float		gk_select(float *v, int64_t count, int64_t n);

#endif							/* GK_MEDIANS_H */
