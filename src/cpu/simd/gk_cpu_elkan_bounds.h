/*
 * gk_cpu_elkan_bounds.h - bounds (gk_cpu_elkan.c) from products of 16-bit integers, for AVX-512.
 * Included where GK_TARGET is defined.
 */
#ifndef GK_CPU_ELKAN_BOUNDS_H
#define GK_CPU_ELKAN_BOUNDS_H

#include <immintrin.h>

#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

/* The largest bound, a float. */
#define MOST_BOUND	65535.0f

/* Squares of distances by s of GkInt16, per of them in a squared length, and what they may be off. */
GK_INLINE __m512
bound_squares(float per, __m512i score, __m512 x2, __m512 *off)
{
	const float unit = 1.0f / per;
	__m512		s2 = _mm512_mul_ps(_mm512_cvtepi32_ps(score), _mm512_set1_ps(2.0f * unit));

	*off = _mm512_fmadd_ps(_mm512_add_ps(x2, _mm512_abs_ps(s2)), _mm512_set1_ps(0x1p-20f), _mm512_set1_ps(2.0f * GK_INT16_OFF * unit));
	return _mm512_add_ps(x2, s2);
}

/* Lower bounds, to be rounded down; what is not a number becomes 0. */
GK_INLINE __m512
bounds_below(const GkInt16 *s, const GkElkan *e, float per, __m512i score, __m512 x2, __m512 lost)
{
	__m512		off;
	__m512		d2 = bound_squares(per, score, x2, &off);
	__m512		low = _mm512_sqrt_ps(_mm512_max_ps(_mm512_sub_ps(d2, off), _mm512_setzero_ps()));

	low = _mm512_sub_ps(_mm512_sub_ps(low, lost), _mm512_set1_ps(s->lost));
	return _mm512_max_ps(_mm512_fmsub_ps(low, _mm512_set1_ps(e->per), _mm512_set1_ps(2.0f)), _mm512_setzero_ps());
}

/* Lower bounds as they are kept: with M, rounded down. */
GK_INLINE __m512i
kept_bounds(__m512 low, __m512 moved_down)
{
	return _mm512_cvttps_epi32(_mm512_min_ps(_mm512_add_ps(low, moved_down), _mm512_set1_ps(MOST_BOUND)));
}

#endif							/* GK_CPU_ELKAN_BOUNDS_H */
