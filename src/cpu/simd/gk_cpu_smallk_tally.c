/*
 * gk_cpu_smallk_tally.c - counts, inertia and radius of few clusters, AVX-512.
 *
 * Lanes are points, and a mask for each cluster says which are its own.  What
 * gk_d2_split() makes of a distance is computed once for eight points; the masks
 * share it out.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma,popcnt")))
#if defined(__clang__)
#define GK_UNROLL	_Pragma("clang loop unroll(full)")
#else
#define GK_UNROLL	_Pragma("GCC unroll 8")
#endif

/* k, a constant at every call, is the number of clusters. */
GK_TARGET static inline __attribute__((always_inline)) void
tally(const int k, const float *d2, const float *weight, const int32_t *label, int rows, double scale, GkTally *out)
{
	__m512i		hi[GK_CPU_SMALLK];
	__m512i		lo[GK_CPU_SMALLK];
	__m256		most[GK_CPU_SMALLK];
	int64_t		count[GK_CPU_SMALLK];

	GK_UNROLL
	for (int q = 0; q < k; q++)
	{
		hi[q] = lo[q] = _mm512_setzero_si512();
		most[q] = _mm256_setzero_ps();
		count[q] = 0;
	}
	for (int i = 0; i < rows; i += 8)
	{
		__mmask8	there = rows - i < 8 ? (__mmask8) ((1 << (rows - i)) - 1) : 0xff;
		__m256		d = _mm256_maskz_loadu_ps(there, d2 + i);
		__m256i		of = _mm256_maskz_loadu_epi32(there, label + i);
		__m512d		v = _mm512_cvtps_pd(d);
		__m512i		up;
		__m512i		rest;

		if (weight != NULL)
			v = _mm512_mul_pd(_mm512_cvtps_pd(_mm256_maskz_loadu_ps(there, weight + i)), v);
		v = _mm512_min_pd(_mm512_mul_pd(v, _mm512_set1_pd(scale)), _mm512_set1_pd(0x1p40));
		up = _mm512_cvttpd_epi64(v);
		rest = _mm512_cvttpd_epi64(_mm512_mul_pd(_mm512_sub_pd(v, _mm512_cvtepi64_pd(up)), _mm512_set1_pd(0x1p40)));
		GK_UNROLL
		for (int q = 0; q < k; q++)
		{
			__mmask8	own = _mm256_mask_cmpeq_epi32_mask(there, of, _mm256_set1_epi32(q));

			hi[q] = _mm512_mask_add_epi64(hi[q], own, hi[q], up);
			lo[q] = _mm512_mask_add_epi64(lo[q], own, lo[q], rest);
			most[q] = _mm256_mask_max_ps(most[q], own, most[q], d);
			count[q] += __builtin_popcount(own);
		}
	}
	GK_UNROLL
	for (int q = 0; q < k; q++)
	{
		float		lanes[8];

		out[q].hi = _mm512_reduce_add_epi64(hi[q]);
		out[q].lo = _mm512_reduce_add_epi64(lo[q]);
		out[q].count = count[q];
		out[q].max_d2 = 0.0f;
		_mm256_storeu_ps(lanes, most[q]);
		for (int i = 0; i < 8; i++)
			out[q].max_d2 = lanes[i] > out[q].max_d2 ? lanes[i] : out[q].max_d2;
	}
}

#define TALLY(k) \
	GK_TARGET static void \
	tally_##k(const float *d2, const float *weight, const int32_t *label, int rows, double scale, GkTally *out) \
	{ \
		tally(k, d2, weight, label, rows, scale, out); \
	}
TALLY(1)
TALLY(2)
TALLY(3)
TALLY(4)
TALLY(5)
TALLY(6)
TALLY(7)
TALLY(8)

void
gk_cpu_avx512_tally_smallk(const float *d2, const float *weight, const int32_t *label, int rows, int k,
						double scale, GkTally *out)
{
	static void (*const by_k[GK_CPU_SMALLK + 1]) (const float *, const float *, const int32_t *, int, double, GkTally *) =
	{NULL, tally_1, tally_2, tally_3, tally_4, tally_5, tally_6, tally_7, tally_8};

	by_k[k] (d2, weight, label, rows, scale, out);
}

#endif							/* GK_CPU_X86 */
