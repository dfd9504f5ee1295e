/*
 * gk_cpu_neon.c - kernels for 64-bit ARM, 4 points to a vector.
 *
 * Register tile: 4 vectors of points x 6 centroids = 24 of the 32 registers.  NEON
 * and fma are part of the architecture, so the scalar loops are fast enough for
 * the rest.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_NEON

#define GK_TARGET
#define GK_VECTORS	4
#define GK_OWN_DISTANCE	own_distances

#include "cpu/simd/gk_cpu_vector_neon.h"
#include "cpu/simd/gk_cpu_assign.h"
#include "cpu/simd/gk_cpu_candidates.h"
#include "cpu/simd/gk_cpu_assign_dot.h"
#include "cpu/simd/gk_cpu_partial.h"
#include "cpu/simd/gk_cpu_pairs.h"

static void
own_distances(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n, const float *c, int d, float *d2)
{
	all_pairs(x, stride, row, label, n, c, d, d2, own_distance);
}

#define GK_NEON_KERNELS \
	.name = "neon", \
	.job_work = 1 << 22, \
	.columns = &gk_columns_base, \
	GK_TILE_KERNELS, \
	.turn = turn_tile, \
	GK_PARTIAL_KERNELS, \
	.assign_dot = assign_dot, \
	.assign_one = assign_one, \
	.integers = &gk_int16_neon, \
	.open_rows = open_rows, \
	.margin = margin, \
	.add = gk_cpu_scalar_add, \
	.sum_d2 = gk_cpu_scalar_sum_d2, \
	.race = gk_cpu_scalar_race, \
	.nearest = gk_cpu_scalar_nearest, \
	.distances = gk_cpu_scalar_distances

const GkCpuKernels gk_cpu_neon = {
	GK_NEON_KERNELS,
	.exact = "neon_base"
};

#ifdef GK_CPU_DOTPROD
const GkCpuKernels gk_cpu_neon_dotprod = {
	GK_NEON_KERNELS,
	.exact = "neon_dotprod",
	.bytes = &gk_int8_neon
};
#endif

#endif							/* GK_CPU_NEON */
