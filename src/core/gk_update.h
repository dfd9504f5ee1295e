/*
 * gk_update.h - the update of one feature of one centroid, from exact sums.
 *
 * Everything that moves a centroid calls this: the host's loop (gk_lloyd.c), a part of a step
 * (partial/gk_partial.c), and on the GPU the passes (gk_gpu_reduce.cu), the loop within a kernel
 * (gk_gpu_fuse_registers.cu) and the small groups (gk_gpu_block_lloyd.h).  So all have the same bits.
 */
#ifndef GK_UPDATE_H
#define GK_UPDATE_H

#include "core/gk_numerics.h"

/* A feature's preparation, as in GkPrep. */
typedef struct GkFeaturePrep
{
	double		center;
	double		scale;
	int			expo;
} GkFeaturePrep;

GK_HD GkFeaturePrep
gk_feature_prep(const double *center, const double *scale, const int32_t *expo, int j)
{
	GkFeaturePrep p = {center[j], scale[j], expo[j]};

	return p;
}

/*
 * v / scale.  Unless the columns were standardised, scale is a power of two: then a GPU multiplies by the
 * inverse, which is exact, has the same bits and takes a tenth of the instructions.
 */
GK_HD double
gk_unscale(double v, double scale)
{
#ifdef __CUDA_ARCH__
	long long	bits = __double_as_longlong(scale);

	if (bits << 12 == 0 && bits > 0x0010000000000000LL && bits < 0x7fd0000000000000LL)
		return v * __longlong_as_double(0x7fe0000000000000LL - bits);
#endif
	return v / scale;
}

/* A mean in original units.  quotient: exact sum (in units of 2^(expo - 40)) over exact mass, rounded once. */
GK_HD double
gk_mean(double quotient, GkFeaturePrep p)
{
	return p.center + gk_unscale(quotient * gk_pow2(p.expo - GK_GRID_BITS), p.scale);
}

/* A centroid coordinate (original units) as the float32 that points are compared with. */
GK_HD float
gk_centroid_to_float(double centroid, double center, double scale)
{
	return gk_to_float(gk_centre_scale(centroid, center, scale));
}

/*
 * Make c (original units) the new coordinate: *f is its float32.  Returns the squared movement from `old`,
 * prepared units.  The whole shift is the sum of each cluster's features in order, over the clusters in
 * order, from 0.
 */
GK_HD double
gk_move_feature(double c, GkFeaturePrep p, float old, float *f)
{
	double		t;

	*f = gk_centroid_to_float(c, p.center, p.scale);
	t = (double) *f - (double) old;
	return t * t;
}

/* The Euclidean update: move the feature to the mean. */
GK_HD double
gk_update_feature(double quotient, GkFeaturePrep p, float old, double *c, float *f)
{
	*c = gk_mean(quotient, p);
	return gk_move_feature(*c, p, old, f);
}

/*
 * The update under cosine, where a centroid is the mean's direction: length is the mean's, the root of the sum of its
 * features' squares, in order, from 0.  Without one the centroid stays.
 */
GK_HD double
gk_turn_feature(double quotient, GkFeaturePrep p, double length, float old, double *c, float *f)
{
	if (length == 0.0)
		return 0.0;
	*c = gk_mean(quotient, p) / length;
	return gk_move_feature(*c, p, old, f);
}

/*
 * What a feature of a cluster takes off the inertia, which is sum |x|^2 - sum of c (2 S - W c) over clusters and
 * features, with sums S, masses W and the centroids c before the update.  That needs no pass over the points and is
 * good to about 1e-12 of the total variance: enough for a progress figure and a history.  The model's inertia is
 * exact (gk_finish.c).  A cluster's features are added up in order, from 0, and then the clusters.
 */
GK_HD double
gk_explained_feature(double sum, double mass, bool weighted, GkFeaturePrep p, double old)
{
	double		unit = weighted ? 0x1p-40 : 1.0;

	return old * (2.0 * (sum * unit * gk_pow2(p.expo - GK_GRID_BITS)) - mass * unit * old);
}

#endif							/* GK_UPDATE_H */
