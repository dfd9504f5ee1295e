/*
 * gk_cpu_avx512.c - kernels for AVX-512 (F, DQ, BW, VL), 16 points to a vector; loops over columns.
 *
 * Register tile: 4 vectors of points x 6 centroids = 24 of the 32 registers,
 * 4 for the points, the rest for broadcasts and differences.  Masks make the
 * argmin three instructions a vector.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#include "core/gk_numerics.h"

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma,f16c")))
#define GK_VECTORS	4

#include "cpu/simd/gk_cpu_vector_avx512.h"

#define GK_OWN_DISTANCE	gk_cpu_avx512_own_distance

#include "cpu/simd/gk_cpu_assign.h"
#include "cpu/simd/gk_cpu_candidates.h"
#include "cpu/simd/gk_cpu_assign_dot.h"
#include "cpu/simd/gk_cpu_partial.h"

/* ---- sums of distances ---- */

#define TOWARD_ZERO	(_MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)

/* Both parts are integers below 2^41: 8,192 of them add up exactly in a double. */
GK_TARGET static void
sum_d2(const float *d2, const float *weight, int rows, double scale, int64_t *hi, int64_t *lo)
{
	const __m512d top = _mm512_set1_pd(0x1p40);
	const __m512d unit = _mm512_set1_pd(scale);
	__m512d		sum_hi = _mm512_setzero_pd();
	__m512d		sum_lo = _mm512_setzero_pd();

	for (int i = 0; i < rows; i += 8)
	{
		__mmask8	on = rows - i >= 8 ? 0xff : (__mmask8) ((1u << (rows - i)) - 1);
		__m512d		v = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(on, d2 + i));
		__m512d		h;

		if (weight != NULL)
			v = _mm512_mul_pd(_mm512_cvtps_pd(_mm256_maskz_loadu_ps(on, weight + i)), v);
		v = _mm512_min_pd(_mm512_mul_pd(v, unit), top);
		h = _mm512_roundscale_pd(v, TOWARD_ZERO);
		sum_hi = _mm512_add_pd(sum_hi, h);
		v = _mm512_mul_pd(_mm512_sub_pd(v, h), top);
		sum_lo = _mm512_add_pd(sum_lo, _mm512_roundscale_pd(v, TOWARD_ZERO));
	}
	*hi += (int64_t) _mm512_reduce_add_pd(sum_hi);
	*lo += (int64_t) _mm512_reduce_add_pd(sum_lo);
}

/* ---- exponential race ---- */

/* gk_mix() but for its last step, which leaves the upper 31 bits as they are. */
GK_INLINE __m512i
mix(__m512i z)
{
	z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 30));
	z = _mm512_mullo_epi64(z, _mm512_set1_epi64((int64_t) UINT64_C(0xbf58476d1ce4e5b9)));
	z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 27));
	return _mm512_mullo_epi64(z, _mm512_set1_epi64((int64_t) UINT64_C(0x94d049bb133111eb)));
}

GK_INLINE double
most_of(const float *v)
{
	__m512		most = _mm512_max_ps(_mm512_max_ps(v_load(v), v_load(v + 16)),
									 _mm512_max_ps(v_load(v + 32), v_load(v + 48)));

	return (double) _mm512_reduce_max_ps(most);
}

/*
 * Nearly every row is ruled out by its hash's upper bits alone, against the tile's largest weight:
 * with h the hash's upper 52 bits, 1 - u = 1 - (h + 1/2) 2^-52 <= bound means
 * h >= (1 - bound) 2^52 - 1/2.  Subtracting 2 makes up for the roundings.
 */
GK_INLINE uint64_t
least_hash(const float *d2, const float *weight, double worst)
{
	double		most = (weight != NULL ? most_of(weight) : 1.0) * (d2 != NULL ? most_of(d2) : 1.0);
	double		bound = worst * most * GK_RACE_SLACK;
	double		h = (1.0 - bound) * 0x1p52 - 2.0;

	return h > 0.0 ? (uint64_t) h >> 21 << 33 : 0;
}

/* 1 - gk_uniform(gk_hash()) for eight rows at a time, as the scalar kernel. */
GK_TARGET static uint64_t
race(const float *d2, const float *weight, uint64_t key, int64_t row, double worst)
{
	const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
	const __m512d one = _mm512_set1_pd(1.0);
	const __m512d half = _mm512_set1_pd(0.5);
	const __m512d ulp = _mm512_set1_pd(0x1p-52);
	__m512i		z = _mm512_add_epi64(_mm512_set1_epi64((int64_t) (key + (uint64_t) row * step)),
									 _mm512_mullo_epi64(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0),
														_mm512_set1_epi64((int64_t) step)));
	const __m512i threshold = _mm512_set1_epi64((int64_t) least_hash(d2, weight, worst));
	uint64_t	may = 0;

	for (int i = 0; i < GK_ROW_PAD; i += 8, z = _mm512_add_epi64(z, _mm512_set1_epi64((int64_t) (step * 8))))
	{
		__m512i		h = mix(z);
		__m512d		u;
		__m512d		least;
		__m512d		w = one;
		__m512d		bound;

		if (_mm512_cmpge_epu64_mask(h, threshold) == 0)
			continue;
		h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 31));
		u = _mm512_cvtepu64_pd(_mm512_srli_epi64(h, 12));
		least = _mm512_sub_pd(one, _mm512_mul_pd(_mm512_add_pd(u, half), ulp));
		if (weight != NULL)
			w = _mm512_cvtps_pd(_mm256_loadu_ps(weight + i));
		if (d2 != NULL)
			w = _mm512_mul_pd(w, _mm512_cvtps_pd(_mm256_loadu_ps(d2 + i)));
		bound = _mm512_mul_pd(_mm512_mul_pd(_mm512_set1_pd(worst), w), _mm512_set1_pd(GK_RACE_SLACK));
		may |= (uint64_t) (uint8_t) ~_mm512_cmp_pd_mask(least, bound, _CMP_GT_OQ) << i;
	}
	return may;
}

#define GK_AVX512_KERNELS \
	.name = "avx512", \
	.job_work = 1 << 24, \
	.columns = &gk_columns_avx512, \
	GK_TILE_KERNELS, \
	GK_PARTIAL_KERNELS, \
	.assign_dot = assign_dot, \
	.assign_one = assign_one, \
	.turn = gk_cpu_avx512_turn, \
	.open_rows = open_rows, \
	.margin = margin, \
	.add = gk_cpu_avx2_add, \
	.add_smallk = gk_cpu_avx512_add_smallk, \
	.tally_smallk = gk_cpu_avx512_tally_smallk, \
	.step_smallk = gk_cpu_avx512_step_smallk, \
	.move_smallk = gk_cpu_avx512_move_smallk, \
	.smallk_sums = GK_CPU_AVX512_SUMS, \
	.sum_d2 = sum_d2, \
	.race = race, \
	.nearest = gk_cpu_avx2_nearest, \
	.distances = gk_cpu_avx2_distances

const GkCpuKernels gk_cpu_avx512 = {
	GK_AVX512_KERNELS,
	.exact = "avx512f",
	.integers = &gk_int16_avx512
};

const GkCpuKernels gk_cpu_avx512_vnni = {
	GK_AVX512_KERNELS,
	.exact = "avx512_vnni",
	.integers = &gk_int16_vnni,
	.bytes = &gk_int8_vnni
};

#ifdef GK_CPU_AMX
const GkCpuKernels gk_cpu_avx512_amx = {
	GK_AVX512_KERNELS,
	.exact = "avx512_amx",
	.integers = &gk_int16_amx,
	.bytes = &gk_int8_amx
};
#endif

/* ---- columns ---- */

GK_TARGET static bool
turn(const char *const *row, int at, int columns, char *to, size_t stride)
{
	__m512		odd = _mm512_setzero_ps();

	for (int j = 0; j < columns; j += 16, at += 16 * sizeof(float))
	{
		int			left = columns - j < 16 ? columns - j : 16;
		__m512		v[16];

		GK_UNROLL
		for (int i = 0; i < 16; i++)
		{
			v[i] = _mm512_maskz_loadu_ps((__mmask16) ((1u << left) - 1), row[i] + at);
			odd = _mm512_or_ps(odd, _mm512_sub_ps(v[i], v[i])); /* 0 of what is finite, else NaN */
		}
		transpose(v);
		GK_UNROLL
		for (int f = 0; f < 16; f++)
			if (f < left)
				_mm512_storeu_ps(to + (j + f) * stride, v[f]);
	}
	return _mm512_test_epi32_mask(_mm512_castps_si512(odd), _mm512_castps_si512(odd)) == 0;
}

#define GK_TURN				turn
#define GK_COLUMNS			gk_columns_avx512
#define GK_DOUBLES			8
#define v_widen(f)			((vdouble) _mm512_cvtps_pd((__m256) (f)))
#define vd_fma(a, b, c)		((vdouble) _mm512_fmadd_pd(a, b, c))
#define vd_fms(a, b, c)		((vdouble) _mm512_fmsub_pd(a, b, c))
#define vd_min(a, b)		((vdouble) _mm512_min_pd(a, b))
#define vd_max(a, b)		((vdouble) _mm512_max_pd(a, b))
#define vf_min(a, b)		((vfloats) _mm512_min_ps(a, b))
#define vf_max(a, b)		((vfloats) _mm512_max_ps(a, b))
#define vb_min(a, b)		((vbits) _mm512_min_epu32((__m512i) (a), (__m512i) (b)))
#define vf_least(v)			_mm512_reduce_min_ps(v)
#define vf_most(v)			_mm512_reduce_max_ps(v)
#define vb_least(v)			_mm512_reduce_min_epu32((__m512i) (v))
#define vd_total(v)			_mm512_reduce_add_pd(v)

#include "cpu/simd/gk_cpu_columns.h"

#endif							/* GK_CPU_X86 */
