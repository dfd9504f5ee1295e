/*
 * gk_update.h - the centroid update: exact sums in, the next centroids out.
 * Shared by the host loop and by devices that iterate on their own.
 */
#ifndef GK_UPDATE_H
#define GK_UPDATE_H

#include "core/gk_numerics.h"

/*
 * Mean of one feature of one cluster, in original units.  sum and mass as in
 * GkStep (mass > 0).  The float64 quotient of exact integers, mapped back.
 */
GK_HD double
gk_mean(gk_int128 sum, gk_int128 mass, int expo, double center, double scale)
{
	double		m = gk_i128_to_double(sum) / gk_i128_to_double(mass);

	return center + (m * gk_pow2(expo - GK_GRID_BITS)) / scale;
}

/* A centroid coordinate (original units) as the float32 that points are compared with. */
GK_HD float
gk_centroid_to_float(double centroid, double center, double scale)
{
	return gk_to_float(gk_centre_scale(centroid, center, scale));
}

/*
 * Euclidean update of one cluster.  new_c [d] original units, new_f [d]
 * prepared.  Returns the squared movement, prepared units: features in order.
 * The whole shift is the sum over clusters in order, from 0.
 */
GK_HD double
gk_update_cluster(const gk_int128 *sum, gk_int128 mass, int d, const int32_t *expo,
				  const double *center, const double *scale,
				  const float *old_f, double *new_c, float *new_f)
{
	double		shift = 0.0;

	for (int j = 0; j < d; j++)
	{
		double		c = gk_mean(sum[j], mass, expo[j], center[j], scale[j]);
		float		f = gk_centroid_to_float(c, center[j], scale[j]);
		double		t = (double) f - (double) old_f[j];

		shift += t * t;
		new_c[j] = c;
		new_f[j] = f;
	}
	return shift;
}

#endif							/* GK_UPDATE_H */
