/*
 * gk_cpu_avx2.c - kernels for AVX2 with FMA, 8 points to a vector; loops over columns.
 *
 * Register tile: 2 vectors of points x 6 centroids = 12 of the 16 registers, 2 for
 * the points, one for the broadcast, one for the difference.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#include "core/gk_numerics.h"

#define GK_TARGET	__attribute__((target("avx2,fma,f16c")))
#define GK_VECTORS	2
#define GK_OWN_DISTANCE	gk_cpu_avx2_own_distance

#include "cpu/simd/gk_cpu_vector_avx2.h"
#include "cpu/simd/gk_cpu_assign.h"
#include "cpu/simd/gk_cpu_candidates.h"
#include "cpu/simd/gk_cpu_assign_dot.h"
#include "cpu/simd/gk_cpu_partial.h"
#include "cpu/simd/gk_cpu_pairs.h"

/* Four values of each of 8 things, the halves apart: things of each of 4 values. */
GK_INLINE void
turn(__m256 a, __m256 b, __m256 c, __m256 d, __m256 out[4])
{
	__m256		ab_lo = _mm256_unpacklo_ps(a, b);
	__m256		ab_hi = _mm256_unpackhi_ps(a, b);
	__m256		cd_lo = _mm256_unpacklo_ps(c, d);
	__m256		cd_hi = _mm256_unpackhi_ps(c, d);

	out[0] = _mm256_shuffle_ps(ab_lo, cd_lo, 0x44);
	out[1] = _mm256_shuffle_ps(ab_lo, cd_lo, 0xee);
	out[2] = _mm256_shuffle_ps(ab_hi, cd_hi, 0x44);
	out[3] = _mm256_shuffle_ps(ab_hi, cd_hi, 0xee);
}

/* ---- Feature Sum ---- */

/* Features j..j+3 of 8 rows (zeros from d on): rows m and m + 4 in the halves of out[m]. */
GK_INLINE void
turn_columns(const float *x, size_t stride, int j, int d, __m256 out[4])
{
	turn(v_load(x + (size_t) j * stride),
		 j + 1 < d ? v_load(x + (size_t) (j + 1) * stride) : v_zero(),
		 j + 2 < d ? v_load(x + (size_t) (j + 2) * stride) : v_zero(),
		 j + 3 < d ? v_load(x + (size_t) (j + 3) * stride) : v_zero(), out);
}

GK_INLINE void
add4(double *to, __m128 x)
{
	_mm256_store_pd(to, _mm256_add_pd(_mm256_load_pd(to), _mm256_cvtps_pd(x)));
}

/*
 * A scatter by label, one cluster's row of sums at a time: features are turned
 * from columns to rows in registers, so that four sums are added to at once.
 */
GK_TARGET void
gk_cpu_avx2_add(const GkTiles *x, const int32_t *label, double *acc, size_t width, size_t copy)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i += 8)
	{
		const float *at = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
		double	   *to[8];

		GK_UNROLL
		for (int r = 0; r < 8; r++)
			to[r] = acc + r * copy + (size_t) label[i + r] * width;
		for (int j = 0; j < x->d; j += 4)
		{
			__m256		row[4];

			if (j + 4 <= x->d)
				turn_columns(at, x->stride, j, j + 4, row);
			else
				turn_columns(at, x->stride, j, x->d, row);
			GK_UNROLL
			for (int r = 0; r < 4; r++)
			{
				add4(to[r] + j, _mm256_castps256_ps128(row[r]));
				add4(to[r + 4] + j, _mm256_extractf128_ps(row[r], 1));
			}
		}
	}
}

/* ---- sums of distances ---- */

GK_INLINE int64_t
total(__m256d v)
{
	double		part[4];

	_mm256_storeu_pd(part, v);
	return (int64_t) ((part[0] + part[1]) + (part[2] + part[3]));
}

#define TOWARD_ZERO	(_MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)

/* Both parts are integers below 2^41: 8,192 of them add up exactly in a double. */
GK_TARGET static void
sum_d2(const float *d2, const float *weight, int rows, double scale, int64_t *hi, int64_t *lo)
{
	const __m256d top = _mm256_set1_pd(0x1p40);
	const __m256d unit = _mm256_set1_pd(scale);
	__m256d		sum_hi = _mm256_setzero_pd();
	__m256d		sum_lo = _mm256_setzero_pd();
	int			whole = rows & ~3;

	for (int i = 0; i < whole; i += 4)
	{
		__m256d		v = _mm256_cvtps_pd(_mm_loadu_ps(d2 + i));
		__m256d		h;

		if (weight != NULL)
			v = _mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(weight + i)), v);
		v = _mm256_min_pd(_mm256_mul_pd(v, unit), top);
		h = _mm256_round_pd(v, TOWARD_ZERO);
		sum_hi = _mm256_add_pd(sum_hi, h);
		v = _mm256_mul_pd(_mm256_sub_pd(v, h), top);
		sum_lo = _mm256_add_pd(sum_lo, _mm256_round_pd(v, TOWARD_ZERO));
	}
	*hi += total(sum_hi);
	*lo += total(sum_lo);
	gk_cpu_scalar_sum_d2(d2 + whole, weight ? weight + whole : NULL, rows - whole, scale, hi, lo);
}

/* ---- one point ---- */

/* Feature j of centroids 0..3 and 4..7, features in the other direction. */
GK_INLINE void
turn_rows(const float *c, const size_t *row, __m256 out[4])
{
	__m256		v[4];

	GK_UNROLL
	for (int m = 0; m < 4; m++)
		v[m] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(c + row[m])),
									_mm_loadu_ps(c + row[m + 4]), 1);
	turn(v[0], v[1], v[2], v[3], out);
}

/* Squared distances to 8 * groups centroids, a lane each; groups is a constant at every call. */
GK_INLINE void
distances_of(const int groups, const float *x, size_t d, const float *c, const size_t *row, __m256 *acc)
{
	size_t		j = 0;

	GK_UNROLL
	for (int g = 0; g < groups; g++)
		acc[g] = v_zero();
	for (; j + 4 <= d; j += 4)
	{
		GK_UNROLL
		for (int g = 0; g < groups; g++)
		{
			__m256		col[4];

			turn_rows(c + g * 8 * d + j, row, col);
			GK_UNROLL
			for (int m = 0; m < 4; m++)
			{
				__m256		t = v_sub(v_set1(x[j + m]), col[m]);

				acc[g] = v_fma(t, t, acc[g]);
			}
		}
	}
	for (; j < d; j++)
	{
		GK_UNROLL
		for (int g = 0; g < groups; g++)
		{
			const float *at = c + g * 8 * d + j;
			__m256		t = v_sub(v_set1(x[j]), _mm256_set_ps(at[row[7]], at[row[6]], at[row[5]], at[row[4]],
															  at[row[3]], at[row[2]], at[row[1]], at[row[0]]));

			acc[g] = v_fma(t, t, acc[g]);
		}
	}
}

/* The nearest so far, with 8 * groups centroids from k on. */
GK_INLINE void
nearest_of(const int groups, const float *x, size_t d, const float *c, const size_t *row, int k,
		   __m256 *best, __m256i *label)
{
	__m256		acc[2];

	distances_of(groups, x, d, c + k * d, row, acc);
	GK_UNROLL
	for (int g = 0; g < groups; g++)
	{
		__m256		less = v_less(acc[g], *best);
		__m256i		lanes = _mm256_add_epi32(vl_set1(k + g * 8), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));

		*best = v_pick(less, acc[g], *best);
		*label = vl_pick(less, lanes, *label);
	}
}

/*
 * The smallest of eight distances, and the lowest label of those that have it.  Without
 * branches: which lane wins cannot be foreseen.
 */
GK_INLINE int
best_of(__m256 best, __m256i label, float *d2)
{
	__m256		m = least_lanes(best);
	__m256i		l;
	__m128i		low;

	*d2 = _mm256_cvtss_f32(m);
	l = vl_pick(_mm256_cmp_ps(best, m, _CMP_EQ_OQ), label, vl_set1(INT32_MAX));
	low = _mm_min_epi32(_mm256_castsi256_si128(l), _mm256_extracti128_si256(l, 1));
	low = _mm_min_epi32(low, _mm_shuffle_epi32(low, 0x4e));
	low = _mm_min_epi32(low, _mm_shuffle_epi32(low, 0xb1));
	return _mm_cvtsi128_si32(low);
}

/* Where the first eight of k centroids are, the last one again for those there are not. */
GK_INLINE void
place_rows(int k, size_t d, size_t *row)
{
	GK_UNROLL
	for (int m = 0; m < 8; m++)
		row[m] = (size_t) (m < k ? m : k - 1) * d;
}

GK_TARGET void
gk_cpu_avx2_own_distance(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
						 const float *c, int d, float *d2)
{
	all_pairs(x, stride, row, label, n, c, d, d2, own_distance);
}

/*
 * Lanes are centroids here: they are turned from rows to columns on the way.  Centroids
 * that do not fill a vector are taken with some before them once more, and of fewer than
 * eight the last one: neither changes the minimum, or the lowest label of it.
 */
GK_TARGET int
gk_cpu_avx2_nearest(const float *point, int d, const float *centroids, int k, float *d2)
{
	__m256		best = v_set1(INFINITY);
	__m256i		label = _mm256_setzero_si256();
	size_t		row[8];
	int			i = 0;

	if (k < 8)
	{
		place_rows(k, d, row);
		nearest_of(1, point, d, centroids, row, 0, &best, &label);
		return best_of(best, label, d2);
	}
	place_rows(8, d, row);
	for (; i + 16 <= k; i += 16)
		nearest_of(2, point, d, centroids, row, i, &best, &label);
	for (; i < k; i += 8)
		nearest_of(1, point, d, centroids, row, i + 8 <= k ? i : k - 8, &best, &label);
	return best_of(best, label, d2);
}

/* Lanes are centroids as in nearest(); what is taken twice is stored twice. */
GK_TARGET void
gk_cpu_avx2_distances(const float *point, int d, const float *centroids, int k, float *d2)
{
	__m256		acc[2];
	float		few[8];
	size_t		row[8];
	int			i = 0;

	place_rows(k < 8 ? k : 8, d, row);
	if (k < 8)
	{
		distances_of(1, point, d, centroids, row, acc);
		_mm256_storeu_ps(few, acc[0]);
		memcpy(d2, few, k * sizeof(float));
		return;
	}
	for (; i + 16 <= k; i += 16)
	{
		distances_of(2, point, d, centroids + (size_t) i * d, row, acc);
		_mm256_storeu_ps(d2 + i, acc[0]);
		_mm256_storeu_ps(d2 + i + 8, acc[1]);
	}
	for (; i < k; i += 8)
	{
		int			at = i + 8 <= k ? i : k - 8;

		distances_of(1, point, d, centroids + (size_t) at * d, row, acc);
		_mm256_storeu_ps(d2 + at, acc[0]);
	}
}

const GkCpuKernels gk_cpu_avx2 = {
	.name = "avx2",
	.exact = "avx2",
	.job_work = 1 << 23,
	.columns = &gk_columns_avx2,
	GK_TILE_KERNELS,
	.turn = turn_tile,
	GK_PARTIAL_KERNELS,
	.assign_dot = assign_dot,
	.assign_one = assign_one,
	.integers = &gk_int16_avx2,
	.open_rows = open_rows,
	.margin = margin,
	.add = gk_cpu_avx2_add,
	.add_smallk = gk_cpu_avx2_add_smallk,
	.step_smallk = gk_cpu_avx2_step_smallk,
	.smallk_sums = GK_CPU_AVX2_SUMS,
	.sum_d2 = sum_d2,
	.race = gk_cpu_scalar_race,	/* no 64-bit multiply or conversion to gain from */
	.nearest = gk_cpu_avx2_nearest,
	.distances = gk_cpu_avx2_distances,
};

/* ---- columns ---- */

#define GK_COLUMNS			gk_columns_avx2
#define GK_TURN				NULL
#define GK_DOUBLES			4
#define v_widen(f)			((vdouble) _mm256_cvtps_pd((__m128) (f)))
#define vd_fma(a, b, c)		((vdouble) _mm256_fmadd_pd(a, b, c))
#define vd_fms(a, b, c)		((vdouble) _mm256_fmsub_pd(a, b, c))
#define vd_min(a, b)		((vdouble) _mm256_min_pd(a, b))
#define vd_max(a, b)		((vdouble) _mm256_max_pd(a, b))
#define vf_min(a, b)		((vfloats) _mm256_min_ps(a, b))
#define vf_max(a, b)		((vfloats) _mm256_max_ps(a, b))
#define vb_min(a, b)		((vbits) _mm256_min_epu32((__m256i) (a), (__m256i) (b)))
#define vf_least(v)			_mm256_cvtss_f32(least_lanes(v))
#define vf_most(v)			(-_mm256_cvtss_f32(least_lanes(-(v))))
#define vb_least(v)			least_bits((__m256i) (v))
#define vd_total(v)			total_lanes(v)

GK_TARGET static inline __attribute__((always_inline)) uint32_t
least_bits(__m256i v)
{
	v = _mm256_min_epu32(v, _mm256_permute2x128_si256(v, v, 1));
	v = _mm256_min_epu32(v, _mm256_shuffle_epi32(v, 0x4e));
	return (uint32_t) _mm_cvtsi128_si32(_mm256_castsi256_si128(_mm256_min_epu32(v, _mm256_shuffle_epi32(v, 0xb1))));
}

GK_TARGET static inline __attribute__((always_inline)) double
total_lanes(__m256d v)
{
	v = _mm256_add_pd(v, _mm256_permute2f128_pd(v, v, 1));
	return _mm256_cvtsd_f64(_mm256_add_pd(v, _mm256_shuffle_pd(v, v, 5)));
}

#include "cpu/simd/gk_cpu_columns.h"

#endif							/* GK_CPU_X86 */
