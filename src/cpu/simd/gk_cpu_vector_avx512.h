/*
 * gk_cpu_vector_avx512.h - vectors of AVX-512, by the names that the templates have for them: 16 floats or integers of 32 bits.
 *
 * v_ are floats, vl_ integers (labels, words), vw_ doubles.  Included where GK_TARGET is defined.
 */
#ifndef GK_CPU_VECTOR_AVX512_H
#define GK_CPU_VECTOR_AVX512_H

#include <immintrin.h>

#include "cpu/simd/gk_cpu_transpose.h"
#include "cpu/simd/gk_cpu_unroll.h"

#define GK_LANES	16

typedef __m512 vfloat;
typedef __m512i vlabel;
typedef __mmask16 vmask;

#define v_zero()			_mm512_setzero_ps()
#define v_load(p)			_mm512_loadu_ps(p)
#define v_store(p, v)		_mm512_storeu_ps(p, v)
#define v_set1(f)			_mm512_set1_ps(f)
#define v_sub(a, b)			_mm512_sub_ps(a, b)
#define v_min(a, b)			_mm512_min_ps(a, b)
#define v_fma(a, b, c)		_mm512_fmadd_ps(a, b, c)
#define v_add(a, b)			_mm512_add_ps(a, b)
#define v_max(a, b)			_mm512_max_ps(a, b)
#define v_fnma(a, b, c)		_mm512_fnmadd_ps(a, b, c)
#define v_mul(a, b)			_mm512_mul_ps(a, b)
#define v_sqrt(v)			_mm512_sqrt_ps(v)
#define v_abs(v)			_mm512_abs_ps(v)
#define v_least(v)			_mm512_reduce_min_ps(v)
#define v_gather(p, l)		_mm512_i32gather_ps(l, p, 4)
#define v_less(a, b)		_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)
#define v_bits(m)			((unsigned) (m))
#define v_append(bits, v, to)	_mm512_storeu_ps(to, _mm512_maskz_compress_ps((__mmask16) (bits), v))
#define v_pick(m, a, b)		_mm512_mask_mov_ps(b, m, a)
#define vl_load(p)			_mm512_loadu_si512(p)
#define vl_store(p, v)		_mm512_storeu_si512(p, v)
#define vl_set1(i)			_mm512_set1_epi32(i)
#define vl_pick(m, a, b)	_mm512_mask_mov_epi32(b, m, a)

/* ---- for products of integers ---- */

/* The square root of 0 or more, or slightly less. */
#define v_sqrt_below(v)		_mm512_sqrt_ps(v)
#define v_fms(a, b, c)		_mm512_fmsub_ps(a, b, c)
#define v_most(v)			_mm512_reduce_max_ps(v)
#define v_total(v)			_mm512_reduce_add_ps(v)
#define v_rounded(v)		_mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
/* The first n lanes, n >= 1; others are 0, or stay what they are. */
#define v_lanes(n)			((__mmask16) ((n) < 16 ? (1u << (n)) - 1 : 0xffff))
#define v_load_first(n, p)	_mm512_maskz_loadu_ps(v_lanes(n), p)
#define v_store_first(n, p, v)	_mm512_mask_storeu_ps(p, v_lanes(n), v)
/* Lanes of a and b in turn: the first half of them, and the second one. */
#define v_zip_low(a, b)		_mm512_permutex2var_ps(a, zip_order(0), b)
#define v_zip_high(a, b)	_mm512_permutex2var_ps(a, zip_order(8), b)
#define v_from(v)			_mm512_cvtepi32_ps(v)

#define vl_zero()			_mm512_setzero_si512()
#define vl_add(a, b)		_mm512_add_epi32(a, b)
#define vl_sub(a, b)		_mm512_sub_epi32(a, b)
#define vl_min(a, b)		_mm512_min_epi32(a, b)
#define vl_max(a, b)		_mm512_max_epi32(a, b)
#define vl_min_unsigned(a, b)	_mm512_min_epu32(a, b)
#define vl_left(v, n)		_mm512_slli_epi32(v, n)
#define vl_right(v, n)		_mm512_srai_epi32(v, n)
#define vl_first(n, a, b)	_mm512_mask_mov_epi32(b, v_lanes(n), a)
/* Lanes where that holds: a mask, or bits. */
#define vl_less(a, b)		_mm512_cmplt_epi32_mask(a, b)
#define vl_at_most(a, b)	((unsigned) _mm512_cmple_epi32_mask(a, b))
#define vl_more(a, b)		((unsigned) _mm512_cmpgt_epi32_mask(a, b))
#define vl_more_unsigned(a, b)	((unsigned) _mm512_cmpgt_epu32_mask(a, b))
/* Integers of floats: rounded to the nearest, the same without a sign, or truncated. */
#define vl_from(v)			_mm512_cvtps_epi32(v)
#define vl_from_unsigned(v)	_mm512_cvtps_epu32(v)
#define vl_truncated(v)		_mm512_cvttps_epi32(v)
/* Words n * GK_ROW_PAD and on from p, one for each of the first n lanes. */
#define vl_every_row_pad(n, p)	_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), v_lanes(n), \
								_mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(GK_ROW_PAD)), p, 4)

/* 16-bit integers, two in a lane: of a the lower half of each, of b that of the upper one; ... */
#define vl_pair(a, b)		_mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16))
/*
 * ... which of a are at most b + more, in order, where a sum is no more than the largest number: bits; and lanes of 0 to
 * 65,535, all of them, or those of `bits`.
 */
#define vl_at_most16(a, b, more)	((unsigned) _mm512_cmple_epu16_mask(a, _mm512_adds_epu16(b, _mm512_set1_epi16((int16_t) (more)))))
#define vl_store16(p, v)	_mm256_storeu_si256((__m256i *) (p), _mm512_cvtusepi32_epi16(v))
#define vl_store16_some(bits, p, v)	_mm256_mask_storeu_epi16(p, (__mmask16) (bits), _mm512_cvtusepi32_epi16(v))

/* ---- for products of 8-bit integers ---- */

#define v_div(a, b)			_mm512_div_ps(a, b)
/* Bits of lanes where a is not less than b, or one of both is no number. */
#define v_not_less(a, b)	((unsigned) _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ))
#define vl_and(a, b)		_mm512_and_si512(a, b)
#define vl_xor(a, b)		_mm512_xor_si512(a, b)
#define vl_left_by(v, n)	_mm512_sll_epi32(v, _mm_cvtsi32_si128(n))
#define vl_right_by(v, n)	_mm512_sra_epi32(v, _mm_cvtsi32_si128(n))

GK_INLINE __m512i
zip_order(int first)
{
	return _mm512_add_epi32(_mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), _mm512_set1_epi32(first));
}

/* The sums of the lanes of four vectors. */
GK_INLINE void
vl_store_totals(int32_t *p, __m512i a, __m512i b, __m512i c, __m512i d)
{
	__m512i		ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
	__m512i		cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
	__m512i		all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
	__m256i		half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));

	_mm_storeu_si128((__m128i *) p, _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

/* Doubles of the lower and the upper lanes, and floats of both. */
typedef __m512d vwide;

#define vw_zero()			_mm512_setzero_pd()
#define vw_set1(d)			_mm512_set1_pd(d)
#define vw_add(a, b)		_mm512_add_pd(a, b)
#define vw_mul(a, b)		_mm512_mul_pd(a, b)
#define vw_low(v)			_mm512_cvtepi32_pd(_mm512_castsi512_si256(v))
#define vw_high(v)			_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(v, 1))
#define vw_store(p, low, high)	(_mm256_storeu_ps(p, _mm512_cvtpd_ps(low)), _mm256_storeu_ps((p) + 8, _mm512_cvtpd_ps(high)))

#endif							/* GK_CPU_VECTOR_AVX512_H */
