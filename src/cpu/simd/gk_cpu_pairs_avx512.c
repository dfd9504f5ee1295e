/*
 * gk_cpu_pairs_avx512.c - canonical distances of pairs of a point and a centroid, for AVX-512.
 *
 * gk_cpu_pairs.h; and of rows of a tile that do not follow one another a feature of sixteen is permuted out of the tile's
 * 64 values.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))

#include "cpu/simd/gk_cpu_vector_avx512.h"
#include "cpu/simd/gk_cpu_pairs.h"

/* One feature of sixteen of a tile's rows. */
GK_INLINE __m512
pick(const float *x, __m512i row, __mmask16 upper)
{
	__m512		low = _mm512_permutex2var_ps(_mm512_loadu_ps(x), row, _mm512_loadu_ps(x + 16));
	__m512		high = _mm512_permutex2var_ps(_mm512_loadu_ps(x + 32), row, _mm512_loadu_ps(x + 48));

	return _mm512_mask_mov_ps(low, upper, high);
}

/* Sixteen rows of the tile at x. */
GK_TARGET static __attribute__((noinline)) __m512
pairs_of_tile(const float *x, size_t stride, __m512i row, const float *const c[GK_LANES], int d)
{
	__mmask16	upper = _mm512_cmpge_epi32_mask(row, _mm512_set1_epi32(32));
	__m512		sum = _mm512_setzero_ps();

	for (int j = 0; j < d; j += GK_LANES)
	{
		int			left = d - j < GK_LANES ? d - j : GK_LANES;
		__m512		cv[GK_LANES];

		load_features(cv, c, j, left);
		GK_UNROLL
		for (int f = 0; f < GK_LANES; f++)
			if (f < left)
			{
				__m512		t;

				/*
				 * each feature may be in another page, which the processor does not fetch ahead: all of the
				 * tile's rows
				 */
				if (j + f + GK_LANES < d)
				{
					GK_UNROLL
					for (int i = 0; i < GK_ROW_PAD; i += GK_LANES)
						_mm_prefetch((const char *) (x + (j + f + GK_LANES) * stride + i), _MM_HINT_T0);
				}
				t = _mm512_sub_ps(pick(x + (j + f) * stride, row, upper), cv[f]);

				sum = _mm512_fmadd_ps(t, t, sum);
			}
	}
	return sum;
}

/* Are all rows those of the tile at x? */
static bool
within_tile(size_t stride, const int32_t *row, int n)
{
	for (int i = 0; i < n; i++)
		if (row[i] >= GK_ROW_PAD)
			return false;
	return stride >= GK_ROW_PAD;
}

/* At most GK_LANES pairs that pairs() does not take. */
GK_TARGET static void
other_pairs(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n, const float *c, int d, float *d2)
{
	int32_t		rows[GK_LANES];
	const float *ci[GK_LANES];

	if (n < FEW || !within_tile(stride, row, n))
	{
		gk_cpu_avx2_own_distance(x, stride, row, label, n, c, d, d2);
		return;
	}
	for (int l = 0; l < GK_LANES; l++)
	{
		int			at = l < n ? l : n - 1;

		rows[l] = row[at];
		ci[l] = c + (size_t) label[at] * d;
	}
	v_store_first(n, d2, pairs_of_tile(x, stride, _mm512_loadu_si512(rows), ci, d));
}

GK_TARGET void
gk_cpu_avx512_own_distance(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
						   const float *c, int d, float *d2)
{
	all_pairs(x, stride, row, label, n, c, d, d2, other_pairs);
}

GK_TARGET void
gk_cpu_avx512_turn(const float *x, size_t stride, int d, float *out, size_t pitch)
{
	turn_tile(x, stride, d, out, pitch);
}

#endif							/* GK_CPU_X86 */
