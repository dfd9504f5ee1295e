/*
 * gk_cpu_neon.c - kernels for 64-bit ARM, 4 points to a vector.
 *
 * Register tile: 4 vectors of points x 6 centroids = 24 of the 32 registers.  NEON
 * and fma are part of the architecture, so the scalar loops are fast enough for
 * the rest.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_NEON

#include <arm_neon.h>

#define GK_TARGET
#define GK_LANES	4
#define GK_VECTORS	4

typedef float32x4_t vfloat;
typedef int32x4_t vlabel;
typedef uint32x4_t vmask;

static const uint32x4_t lane_bits = {1, 2, 4, 8};

#define v_zero()			vdupq_n_f32(0.0f)
#define v_load(p)			vld1q_f32(p)
#define v_store(p, v)		vst1q_f32(p, v)
#define v_set1(f)			vdupq_n_f32(f)
#define v_sub(a, b)			vsubq_f32(a, b)
#define v_min(a, b)			vminq_f32(a, b)
#define v_fma(a, b, c)		vfmaq_f32(c, a, b)
#define v_fnma(a, b, c)		vfmsq_f32(c, a, b)
#define v_add(a, b)			vaddq_f32(a, b)
#define v_mul(a, b)			vmulq_f32(a, b)
#define v_less(a, b)		vcltq_f32(a, b)
#define v_bits(m)			((unsigned) vaddvq_u32(vandq_u32(m, lane_bits)))
#define v_pick(m, a, b)		vbslq_f32(m, a, b)
#define vl_load(p)			vld1q_s32(p)
#define vl_store(p, v)		vst1q_s32(p, v)
#define vl_set1(i)			vdupq_n_s32(i)
#define vl_pick(m, a, b)	vbslq_s32(m, a, b)

#include "cpu/simd/gk_cpu_assign.h"
#include "cpu/simd/gk_cpu_candidates.h"
#include "cpu/simd/gk_cpu_partial.h"

const GkCpuKernels gk_cpu_neon = {
	.name = "neon",
	.exact = "neon",
	.job_work = 1 << 22,
	.columns = &gk_columns_base,
	GK_TILE_KERNELS,
	GK_PARTIAL_KERNELS,
	.open_rows = gk_cpu_scalar_open_rows,
	.margin = gk_cpu_scalar_margin,
	.add = gk_cpu_scalar_add,
	.sum_d2 = gk_cpu_scalar_sum_d2,
	.race = gk_cpu_scalar_race,
	.nearest = gk_cpu_scalar_nearest,
	.distances = gk_cpu_scalar_distances,
};

#endif							/* GK_CPU_NEON */
