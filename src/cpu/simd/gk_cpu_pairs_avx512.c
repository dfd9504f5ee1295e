/*
 * gk_cpu_pairs_avx512.c - canonical distances of pairs of a point and a centroid, for AVX-512.
 *
 * Lanes are pairs, as the features of one are summed up in order.  Sixteen features of sixteen centroids are
 * read at once and transposed in registers; a feature of sixteen rows of one tile is permuted out of the
 * tile's 64 values.
 */
#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))

#include "cpu/simd/gk_cpu_transpose.h"

#define LANES		16
/* Fewer pairs take less time one by one. */
#define FEW			5

/* Features of sixteen vectors, 0 past the last one: in feature j the lanes are vectors. */
GK_INLINE void
load_features(__m512 v[LANES], const float *const at[LANES], int j, __mmask16 some)
{
	GK_UNROLL
	for (int l = 0; l < LANES; l++)
		v[l] = _mm512_maskz_loadu_ps(some, at[l] + j);
	transpose(v);
}

/* Do sixteen rows of a tile follow one another? */
GK_INLINE bool
in_order(__m512i row)
{
	const __m512i first = _mm512_broadcastd_epi32(_mm512_castsi512_si128(row));
	const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

	return _mm512_cmpneq_epi32_mask(row, _mm512_add_epi32(first, count)) == 0;
}

/* One feature of sixteen of a tile's rows. */
GK_INLINE __m512
pick(const float *x, __m512i row, __mmask16 upper, bool ordered)
{
	__m512		low;
	__m512		high;

	if (ordered)
		return _mm512_loadu_ps(x + _mm_cvtsi128_si32(_mm512_castsi512_si128(row)));
	low = _mm512_permutex2var_ps(_mm512_loadu_ps(x), row, _mm512_loadu_ps(x + 16));
	high = _mm512_permutex2var_ps(_mm512_loadu_ps(x + 32), row, _mm512_loadu_ps(x + 48));
	return _mm512_mask_mov_ps(low, upper, high);
}

/* Sixteen pairs: rows of a tile, ... */
GK_INLINE __m512
pairs_of_tile(const float *x, size_t stride, __m512i row, const float *const c[LANES], int d, bool ordered)
{
	__mmask16	upper = _mm512_cmpge_epi32_mask(row, _mm512_set1_epi32(32));
	__m512		sum = _mm512_setzero_ps();

	for (int j = 0; j < d; j += LANES)
	{
		int			left = d - j < LANES ? d - j : LANES;
		__m512		cv[LANES];

		load_features(cv, c, j, (__mmask16) ((1u << left) - 1));
		GK_UNROLL
		for (int f = 0; f < LANES; f++)
			if (f < left)
			{
				__m512		t;

				/*
				 * each feature may be in another page, which the processor does not fetch ahead: all of the
				 * tile's rows
				 */
				if (j + f + LANES < d)
				{
					GK_UNROLL
					for (int i = 0; i < GK_ROW_PAD; i += LANES)
						_mm_prefetch((const char *) (x + (j + f + LANES) * stride + i), _MM_HINT_T0);
				}
				t = _mm512_sub_ps(pick(x + (j + f) * stride, row, upper, ordered), cv[f]);

				sum = _mm512_fmadd_ps(t, t, sum);
			}
	}
	return sum;
}

GK_TARGET static __attribute__((noinline)) __m512
tile_pairs(const float *x, size_t stride, __m512i row, const float *const c[LANES], int d)
{
	return pairs_of_tile(x, stride, row, c, d, false);
}

GK_TARGET static __attribute__((noinline)) __m512
tile_pairs_in_order(const float *x, size_t stride, __m512i row, const float *const c[LANES], int d)
{
	return pairs_of_tile(x, stride, row, c, d, true);
}

/* ... or points with their features in a row. */
GK_TARGET static __attribute__((noinline)) __m512
point_pairs(const float *const x[LANES], const float *const c[LANES], int d)
{
	__m512		sum = _mm512_setzero_ps();

	for (int j = 0; j < d; j += LANES)
	{
		int			left = d - j < LANES ? d - j : LANES;
		__mmask16	some = (__mmask16) ((1u << left) - 1);
		__m512		cv[LANES];
		__m512		xv[LANES];

		load_features(cv, c, j, some);
		load_features(xv, x, j, some);
		/* past the last feature both are 0, which adds nothing */
		GK_UNROLL
		for (int f = 0; f < LANES; f++)
		{
			__m512		t = _mm512_sub_ps(xv[f], cv[f]);

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

GK_TARGET void
gk_cpu_avx512_own_distance(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
						   const float *c, int d, float *d2)
{
	for (int i = 0; i < n; i += LANES)
	{
		int			some = n - i < LANES ? n - i : LANES;
		int32_t		rows[LANES];
		const float *xi[LANES];
		const float *ci[LANES];
		__m512		sum;

		if (some < FEW || (stride != 1 && !within_tile(stride, row + i, some)))
		{
			gk_cpu_avx2_own_distance(x, stride, row + i, label + i, some, c, d, d2 + i);
			continue;
		}
		for (int l = 0; l < LANES; l++)
		{
			int			at = i + (l < some ? l : some - 1);

			rows[l] = row[at];
			xi[l] = x + row[at];
			ci[l] = c + (size_t) label[at] * d;
		}
		if (stride == 1)
			sum = point_pairs(xi, ci, d);
		else if (in_order(_mm512_loadu_si512(rows)))
			sum = tile_pairs_in_order(x, stride, _mm512_loadu_si512(rows), ci, d);
		else
			sum = tile_pairs(x, stride, _mm512_loadu_si512(rows), ci, d);
		_mm512_mask_storeu_ps(d2 + i, (__mmask16) ((1u << some) - 1), sum);
	}
}

#endif							/* GK_CPU_X86 */
