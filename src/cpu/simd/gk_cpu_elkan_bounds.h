/*
 * gk_cpu_elkan_bounds.h - bounds (gk_cpu_elkan.c) from products of 16-bit integers.
 * Included after gk_cpu_vector_<set>.h.
 */
#ifndef GK_CPU_ELKAN_BOUNDS_H
#define GK_CPU_ELKAN_BOUNDS_H

#include "cpu/simd/gk_cpu_kernels.h"

/* The largest bound, a float. */
#define MOST_BOUND	65535.0f

/* Squares of distances by s of GkInt16, per of them in a squared length, and what they may be off. */
GK_INLINE vfloat
bound_squares(float per, vlabel score, vfloat x2, vfloat *off)
{
	const float unit = 1.0f / per;
	vfloat		s2 = v_mul(v_from(score), v_set1(2.0f * unit));

	*off = v_fma(v_add(x2, v_abs(s2)), v_set1(0x1p-20f), v_set1(2.0f * GK_INT16_OFF * unit));
	return v_add(x2, s2);
}

/* Lower bounds, to be rounded down; what is not a number becomes 0. */
GK_INLINE vfloat
bounds_below(const GkInt16 *s, const GkElkan *e, float per, vlabel score, vfloat x2, vfloat lost)
{
	vfloat		off;
	vfloat		d2 = bound_squares(per, score, x2, &off);
	vfloat		low = v_sqrt_below(v_max(v_sub(d2, off), v_zero()));

	low = v_sub(v_sub(low, lost), v_set1(s->lost));
	return v_max(v_fms(low, v_set1(e->per), v_set1(2.0f)), v_zero());
}

/* Lower bounds as they are kept: with M, rounded down. */
GK_INLINE vlabel
kept_bounds(vfloat low, vfloat moved_down)
{
	return vl_truncated(v_min(v_add(low, moved_down), v_set1(MOST_BOUND)));
}

#endif							/* GK_CPU_ELKAN_BOUNDS_H */
