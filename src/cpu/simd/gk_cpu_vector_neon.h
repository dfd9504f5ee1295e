/*
 * gk_cpu_vector_neon.h - vectors of 64-bit ARM, by the names that the templates have for them: 4 floats or integers of 32 bits.
 *
 * v_ are floats, vl_ integers (labels, words), vw_ doubles: gk_cpu_vector_avx512.h says what they do.  Included where
 * GK_TARGET is defined.
 */
#ifndef GK_CPU_VECTOR_NEON_H
#define GK_CPU_VECTOR_NEON_H

#include <arm_neon.h>

#include "cpu/simd/gk_cpu_unroll.h"

#define GK_LANES	4

typedef float32x4_t vfloat;
typedef int32x4_t vlabel;
typedef uint32x4_t vmask;

static const uint32x4_t lane_bits = {1, 2, 4, 8};
static const int32x4_t lane_numbers = {0, 1, 2, 3};

#define v_zero()			vdupq_n_f32(0.0f)
#define v_load(p)			vld1q_f32(p)
#define v_store(p, v)		vst1q_f32(p, v)
#define v_set1(f)			vdupq_n_f32(f)
#define v_sub(a, b)			vsubq_f32(a, b)
/* (of a number and what is none, the number) */
#define v_min(a, b)			vminnmq_f32(a, b)
#define v_fma(a, b, c)		vfmaq_f32(c, a, b)
#define v_add(a, b)			vaddq_f32(a, b)
#define v_max(a, b)			vmaxnmq_f32(a, b)
#define v_fnma(a, b, c)		vfmsq_f32(c, a, b)
#define v_mul(a, b)			vmulq_f32(a, b)
#define v_sqrt(v)			vsqrtq_f32(v)
#define v_abs(v)			vabsq_f32(v)
#define v_least(v)			vminnmvq_f32(v)
#define v_gather(p, l)		gathered(p, l)
#define v_less(a, b)		vcltq_f32(a, b)
#define v_bits(m)			((unsigned) vaddvq_u32(vandq_u32(m, lane_bits)))
#define v_pick(m, a, b)		vbslq_f32(m, a, b)
#define vl_load(p)			vld1q_s32((const int32_t *) (p))
#define vl_store(p, v)		vst1q_s32(p, v)
#define vl_set1(i)			vdupq_n_s32(i)
#define vl_pick(m, a, b)	vbslq_s32(m, a, b)

GK_INLINE float32x4_t
gathered(const float *p, int32x4_t l)
{
	float32x4_t v = vdupq_n_f32(p[vgetq_lane_s32(l, 0)]);

	v = vld1q_lane_f32(p + vgetq_lane_s32(l, 1), v, 1);
	v = vld1q_lane_f32(p + vgetq_lane_s32(l, 2), v, 2);
	return vld1q_lane_f32(p + vgetq_lane_s32(l, 3), v, 3);
}

GK_INLINE float32x4_t
v_load_first(int n, const float *p)
{
	float		v[4] = {0.0f};

	for (int i = 0; i < n && i < 4; i++)
		v[i] = p[i];
	return vld1q_f32(v);
}

GK_INLINE void
v_store_first(int n, float *p, float32x4_t v)
{
	float		all[4];

	vst1q_f32(all, v);
	for (int i = 0; i < n && i < 4; i++)
		p[i] = all[i];
}

/* Element l of v[j] and element j of v[l] change places. */
GK_INLINE void
transpose(float32x4_t v[4])
{
	float32x4_t low[2] = {vtrn1q_f32(v[0], v[1]), vtrn1q_f32(v[2], v[3])};
	float32x4_t high[2] = {vtrn2q_f32(v[0], v[1]), vtrn2q_f32(v[2], v[3])};

	v[0] = vcombine_f32(vget_low_f32(low[0]), vget_low_f32(low[1]));
	v[1] = vcombine_f32(vget_low_f32(high[0]), vget_low_f32(high[1]));
	v[2] = vcombine_f32(vget_high_f32(low[0]), vget_high_f32(low[1]));
	v[3] = vcombine_f32(vget_high_f32(high[0]), vget_high_f32(high[1]));
}

/* ---- for products of integers ---- */

#define v_sqrt_below(v)		vsqrtq_f32(v)
#define v_fms(a, b, c)		vnegq_f32(vfmsq_f32(c, a, b))
#define v_most(v)			vmaxnmvq_f32(v)
#define v_total(v)			vaddvq_f32(v)
#define v_rounded(v)		vrndnq_f32(v)
#define v_zip_low(a, b)		vzip1q_f32(a, b)
#define v_zip_high(a, b)	vzip2q_f32(a, b)
#define v_from(v)			vcvtq_f32_s32(v)

#define vl_zero()			vdupq_n_s32(0)
/* (wrapping around: GCC has these of integers with a sign in C) */
#define vl_add(a, b)		vreinterpretq_s32_u32(vaddq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)))
#define vl_sub(a, b)		vreinterpretq_s32_u32(vsubq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)))
#define vl_min(a, b)		vminq_s32(a, b)
#define vl_max(a, b)		vmaxq_s32(a, b)
#define vl_min_unsigned(a, b)	vreinterpretq_s32_u32(vminq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)))
#define vl_left(v, n)		vshlq_n_s32(v, n)
#define vl_right(v, n)		vshrq_n_s32(v, n)
/* (n may be anything: groups of centroids are wider than a vector) */
#define vl_first(n, a, b)	vbslq_s32(vcltq_s32(lane_numbers, vdupq_n_s32(n)), a, b)
#define vl_less(a, b)		vcltq_s32(a, b)
#define vl_at_most(a, b)	v_bits(vcleq_s32(a, b))
#define vl_more(a, b)		v_bits(vcgtq_s32(a, b))
#define vl_more_unsigned(a, b)	v_bits(vcgtq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)))
#define vl_from(v)			vcvtnq_s32_f32(v)
#define vl_from_unsigned(v)	vreinterpretq_s32_u32(vcvtnq_u32_f32(v))
#define vl_truncated(v)		vcvtq_s32_f32(v)

#define vl_pair(a, b)		vsliq_n_s32(a, b, 16)
#define vl_store16(p, v)	vst1_u16(p, vqmovun_s32(v))
#define vl_store_totals(p, a, b, c, d)	vst1q_s32(p, vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)))

/* ---- for products of 8-bit integers ---- */

#define v_div(a, b)			vdivq_f32(a, b)
#define v_not_less(a, b)	v_bits(vmvnq_u32(vcltq_f32(a, b)))
#define vl_and(a, b)		vandq_s32(a, b)
#define vl_xor(a, b)		veorq_s32(a, b)
#define vl_left_by(v, n)	vshlq_s32(v, vdupq_n_s32(n))
#define vl_right_by(v, n)	vshlq_s32(v, vdupq_n_s32(-(n)))

GK_INLINE unsigned
vl_at_most16(int32x4_t a, int32x4_t b, uint16_t more)
{
	const uint16x8_t each = {1, 2, 4, 8, 16, 32, 64, 128};
	uint16x8_t	limit = vqaddq_u16(vreinterpretq_u16_s32(b), vdupq_n_u16(more));

	return vaddvq_u16(vandq_u16(vcleq_u16(vreinterpretq_u16_s32(a), limit), each));
}

GK_INLINE void
vl_store16_some(unsigned bits, uint16_t *p, int32x4_t v)
{
	const uint16x4_t each = {1, 2, 4, 8};
	uint16x4_t	some = vtst_u16(vdup_n_u16((uint16_t) bits), each);

	vst1_u16(p, vbsl_u16(some, vqmovun_s32(v), vld1_u16(p)));
}

typedef float64x2_t vwide;

#define vw_zero()			vdupq_n_f64(0.0)
#define vw_set1(d)			vdupq_n_f64(d)
#define vw_add(a, b)		vaddq_f64(a, b)
#define vw_mul(a, b)		vmulq_f64(a, b)
#define vw_low(v)			vcvtq_f64_s64(vmovl_s32(vget_low_s32(v)))
#define vw_high(v)			vcvtq_f64_s64(vmovl_high_s32(v))
#define vw_store(p, low, high)	vst1q_f32(p, vcvt_high_f32_f64(vcvt_f32_f64(low), high))

#endif							/* GK_CPU_VECTOR_NEON_H */
