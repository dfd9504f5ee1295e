/*
 * gk_holes.h - k-means of points with missing features: GK_PARTIAL.
 *
 * A missing feature is NaN in the prepared points.  A point's squared distance to a centroid is that over the
 * features that it has, times d over their number: gk_partial_d2() of gk_numerics.h, the distance of
 * scikit-learn's nan_euclidean_distances().
 *
 * The sum of these distances is least where a centroid's feature is the mean of the cluster's points that have
 * it, each weighted by d over the number of its features.  Such a weight times the point's own, in units of
 * 2^-40, is rounded to an integer once, so sums are exact as ever, and no order of rows, threads or blocks can
 * change them.  Without missing features the bits are those of GK_EUCLIDEAN.
 *
 * Everything else is the CPU backend's: gk_holes_backend is that one with the kernels of this distance
 * (simd/gk_cpu_partial.h) and a step of its own.  Bounds are switched off: they are Euclidean.
 */
#ifndef GK_HOLES_H
#define GK_HOLES_H

#include "cpu/gk_cpu_session.h"

/* Make the kernels of a set those of this distance; what only GK_EUCLIDEAN has becomes NULL. */
void		gk_holes_kernels(const GkCpuKernels *of, GkCpuKernels *out);

/*
 * What a point counts in each feature that it has: d / present times its weight, which is an integer of at
 * most 2^40.  With 2^40 for each of as many as 2^46 values, sums of its products with prepared values stay
 * within 127 bits.
 */
static inline int64_t
gk_holes_share(int64_t weight, int d, int present)
{
	return (weight * d + present / 2) / present;
}

GkStatus	gk_holes_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err);

#endif							/* GK_HOLES_H */
