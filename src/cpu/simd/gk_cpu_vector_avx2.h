/*
 * gk_cpu_vector_avx2.h - vectors of AVX2, by the names that the templates have for them: 8 floats or integers of 32 bits.
 *
 * v_ are floats, vl_ integers (labels, words), vw_ doubles: gk_cpu_vector_avx512.h says what they do.  Included where
 * GK_TARGET is defined.
 */
#ifndef GK_CPU_VECTOR_AVX2_H
#define GK_CPU_VECTOR_AVX2_H

#include <immintrin.h>

#include "cpu/simd/gk_cpu_unroll.h"

#define GK_LANES	8

typedef __m256 vfloat;
typedef __m256i vlabel;
typedef __m256 vmask;

/* The least of eight values, in every lane. */
GK_INLINE __m256
least_lanes(__m256 v)
{
	v = _mm256_min_ps(v, _mm256_permute2f128_ps(v, v, 1));
	v = _mm256_min_ps(v, _mm256_shuffle_ps(v, v, 0x4e));
	return _mm256_min_ps(v, _mm256_shuffle_ps(v, v, 0xb1));
}

#define v_zero()			_mm256_setzero_ps()
#define v_load(p)			_mm256_loadu_ps(p)
#define v_store(p, v)		_mm256_storeu_ps(p, v)
#define v_set1(f)			_mm256_set1_ps(f)
#define v_sub(a, b)			_mm256_sub_ps(a, b)
#define v_min(a, b)			_mm256_min_ps(a, b)
#define v_fma(a, b, c)		_mm256_fmadd_ps(a, b, c)
#define v_add(a, b)			_mm256_add_ps(a, b)
#define v_max(a, b)			_mm256_max_ps(a, b)
#define v_fnma(a, b, c)		_mm256_fnmadd_ps(a, b, c)
#define v_mul(a, b)			_mm256_mul_ps(a, b)
#define v_sqrt(v)			_mm256_sqrt_ps(v)
#define v_abs(v)			_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)
#define v_least(v)			_mm256_cvtss_f32(least_lanes(v))
#define v_gather(p, l)		_mm256_i32gather_ps(p, l, 4)
#define v_less(a, b)		_mm256_cmp_ps(a, b, _CMP_LT_OQ)
#define v_bits(m)			((unsigned) _mm256_movemask_ps(m))
#define v_pick(m, a, b)		_mm256_blendv_ps(b, a, m)
#define vl_load(p)			_mm256_loadu_si256((const __m256i *) (p))
#define vl_store(p, v)		_mm256_storeu_si256((__m256i *) (p), v)
#define vl_set1(i)			_mm256_set1_epi32(i)
#define vl_pick(m, a, b)	_mm256_blendv_epi8(b, a, _mm256_castps_si256(m))

/* ---- for products of integers ---- */

#define v_fms(a, b, c)		_mm256_fmsub_ps(a, b, c)
/* (0 of zeros, not -0) */
#define v_most(v)			(0.0f - _mm256_cvtss_f32(least_lanes(_mm256_sub_ps(_mm256_setzero_ps(), v))))
#define v_rounded(v)		_mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_load_first(n, p)	_mm256_maskload_ps(p, first_lanes(n))
#define v_store_first(n, p, v)	_mm256_maskstore_ps(p, first_lanes(n), v)
#define v_zip_low(a, b)		_mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20)
#define v_zip_high(a, b)	_mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31)
#define v_from(v)			_mm256_cvtepi32_ps(v)

#define vl_zero()			_mm256_setzero_si256()
#define vl_add(a, b)		_mm256_add_epi32(a, b)
#define vl_sub(a, b)		_mm256_sub_epi32(a, b)
#define vl_min(a, b)		_mm256_min_epi32(a, b)
#define vl_max(a, b)		_mm256_max_epi32(a, b)
#define vl_min_unsigned(a, b)	_mm256_min_epu32(a, b)
#define vl_left(v, n)		_mm256_slli_epi32(v, n)
#define vl_right(v, n)		_mm256_srai_epi32(v, n)
#define vl_first(n, a, b)	_mm256_blendv_epi8(b, a, first_lanes(n))
#define vl_less(a, b)		_mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a))
#define vl_more(a, b)		v_bits(vl_less(b, a))
#define vl_at_most(a, b)	(vl_more(a, b) ^ 0xff)
#define vl_more_unsigned(a, b)	(v_bits(_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_min_epu32(a, b), a))) ^ 0xff)
#define vl_from(v)			_mm256_cvtps_epi32(v)
#define vl_truncated(v)		_mm256_cvttps_epi32(v)

#define vl_pair(a, b)		_mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa)
#define vl_store16(p, v)	_mm_storeu_si128((__m128i *) (p), saturated16(v))

GK_INLINE __m256i
first_lanes(int n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* By an estimate that may be off by 1.5 * 2^-12: of several instructions, but these take less time than a root. */
GK_INLINE __m256
v_sqrt_below(__m256 v)
{
	__m256		estimate = _mm256_rsqrt_ps(_mm256_max_ps(v, _mm256_set1_ps(0x1p-126f)));

	return _mm256_mul_ps(_mm256_mul_ps(v, estimate), _mm256_set1_ps(1.0f - 0x1p-11f));
}

GK_INLINE float
v_total(__m256 v)
{
	v = _mm256_add_ps(v, _mm256_permute2f128_ps(v, v, 1));
	v = _mm256_add_ps(v, _mm256_shuffle_ps(v, v, 0x4e));
	return _mm256_cvtss_f32(_mm256_add_ps(v, _mm256_shuffle_ps(v, v, 0xb1)));
}

/* Of 0 to 2^32 - 1: there is an instruction up to 2^31 - 1. */
GK_INLINE __m256i
vl_from_unsigned(__m256 v)
{
	const __m256 half = _mm256_set1_ps(0x1p31f);
	__m256		upper = _mm256_cmp_ps(v, half, _CMP_GE_OQ);
	__m256i		is = _mm256_cvtps_epi32(_mm256_sub_ps(v, _mm256_and_ps(upper, half)));

	return _mm256_xor_si256(is, _mm256_slli_epi32(_mm256_castps_si256(upper), 31));
}

GK_INLINE void
vl_store_totals(int32_t *p, __m256i a, __m256i b, __m256i c, __m256i d)
{
	__m256i		all = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));

	_mm_storeu_si128((__m128i *) p, _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}

GK_INLINE unsigned
vl_at_most16(__m256i a, __m256i b, uint16_t more)
{
	__m256i		above = _mm256_subs_epu16(a, _mm256_adds_epu16(b, _mm256_set1_epi16((int16_t) more)));
	__m256i		is = _mm256_cmpeq_epi16(above, _mm256_setzero_si256());

	return (unsigned) _mm_movemask_epi8(_mm_packs_epi16(_mm256_castsi256_si128(is), _mm256_extracti128_si256(is, 1)));
}

/* Element l of v[j] and element j of v[l] change places. */
GK_INLINE void
transpose(__m256 v[8])
{
	__m256		w[8];

	GK_UNROLL
	for (int i = 0; i < 8; i += 4)
	{
		__m256		low[2] = {_mm256_unpacklo_ps(v[i], v[i + 1]), _mm256_unpacklo_ps(v[i + 2], v[i + 3])};
		__m256		high[2] = {_mm256_unpackhi_ps(v[i], v[i + 1]), _mm256_unpackhi_ps(v[i + 2], v[i + 3])};

		w[i] = _mm256_shuffle_ps(low[0], low[1], 0x44);
		w[i + 1] = _mm256_shuffle_ps(low[0], low[1], 0xee);
		w[i + 2] = _mm256_shuffle_ps(high[0], high[1], 0x44);
		w[i + 3] = _mm256_shuffle_ps(high[0], high[1], 0xee);
	}
	GK_UNROLL
	for (int i = 0; i < 4; i++)
	{
		v[i] = _mm256_permute2f128_ps(w[i], w[i + 4], 0x20);
		v[i + 4] = _mm256_permute2f128_ps(w[i], w[i + 4], 0x31);
	}
}

GK_INLINE __m128i
saturated16(__m256i v)
{
	return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

GK_INLINE void
vl_store16_some(unsigned bits, uint16_t *p, __m256i v)
{
	const		__m128i each = _mm_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128);
	__m128i		some = _mm_cmpeq_epi16(_mm_and_si128(_mm_set1_epi16((int16_t) bits), each), each);
	__m128i		was = _mm_loadu_si128((const __m128i *) p);

	_mm_storeu_si128((__m128i *) p, _mm_blendv_epi8(was, saturated16(v), some));
}

typedef __m256d vwide;

#define vw_zero()			_mm256_setzero_pd()
#define vw_set1(d)			_mm256_set1_pd(d)
#define vw_add(a, b)		_mm256_add_pd(a, b)
#define vw_mul(a, b)		_mm256_mul_pd(a, b)
#define vw_low(v)			_mm256_cvtepi32_pd(_mm256_castsi256_si128(v))
#define vw_high(v)			_mm256_cvtepi32_pd(_mm256_extracti128_si256(v, 1))
#define vw_store(p, low, high)	(_mm_storeu_ps(p, _mm256_cvtpd_ps(low)), _mm_storeu_ps((p) + 4, _mm256_cvtpd_ps(high)))

#endif							/* GK_CPU_VECTOR_AVX2_H */
