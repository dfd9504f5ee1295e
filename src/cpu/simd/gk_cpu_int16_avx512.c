/*
 * gk_cpu_int16_avx512.c - products of 16-bit integers (gk_cpu_int16_products.h) for AVX-512 with VNNI.
 *
 * One instruction multiplies and adds two features of 16 points: twice what a float multiply-add does.
 * A register tile is 32 points against 12 centroids: 24 of the 32 registers.
 */
#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma")))

#define INT16_GROUP		12
#define INT16_VECTORS	2
#define INT16_UNIT		2
#define INT16_APART		false

/* Words that rows are fetched ahead of their products: a page. */
#define AHEAD	16

/* Rounded points are [words][GK_ROW_PAD], a group of centroids [words][INT16_GROUP]. */

GK_INLINE void
store_words(int32_t *y, int words, int p, int w, __m512i a, __m512i b)
{
	_mm512_storeu_si512(y + w * GK_ROW_PAD + p * 16, a);
	if (w + 1 < words)
		_mm512_storeu_si512(y + (w + 1) * GK_ROW_PAD + p * 16, b);
}

static void
put(int32_t *group, int q, int first, const int16_t * b, int count)
{
	for (int j = 0; j < count; j += 2)
		group[(first + j) / 2 * INT16_GROUP + q] = (int32_t) ((uint32_t) (uint16_t) b[j] | (uint32_t) (uint16_t) b[j + 1] << 16);
}

GK_INLINE const int32_t *
block(const int32_t *y, size_t words, int row)
{
	(void) words;
	return y + row;
}

GK_INLINE int32_t
word(const int32_t *y, size_t words, int row, size_t w)
{
	(void) words;
	return y[w * GK_ROW_PAD + row];
}

GK_INLINE void
begin_products(void)
{
}

GK_INLINE void
end_products(void)
{
}

/* _mm512_dpwssd_epi32(), which compilers move about until registers do not suffice. */
GK_INLINE void
add_products(__m512i *sum, __m512i a, __m512i b)
{
	__asm__("vpdpwssd %2, %1, %0" : "+v"(*sum) : "v"(a), "v"(b));
}

GK_INLINE void
products(__m512i acc[INT16_GROUP][INT16_VECTORS], const int32_t *y, const int32_t *c, size_t words, __m512i shift)
{
	(void) shift;
	for (size_t w = 0; w < words; w++, y += GK_ROW_PAD, c += INT16_GROUP)
	{
		__m512i		y0 = _mm512_loadu_si512(y);
		__m512i		y1 = _mm512_loadu_si512(y + 16);

		/* processors do not fetch beyond a page by themselves */
		_mm_prefetch((const char *) (y + AHEAD * GK_ROW_PAD), _MM_HINT_T0);
		_mm_prefetch((const char *) (y + AHEAD * GK_ROW_PAD + 16), _MM_HINT_T0);
		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
		{
			__m512i		b = _mm512_set1_epi32(c[q]);

			add_products(&acc[q][0], y0, b);
			add_products(&acc[q][1], y1, b);
		}
	}
}

GK_INLINE void
products_few(__m512i acc[INT16_GROUP], const int32_t *few, const int32_t *c, size_t words, __m512i shift)
{
	(void) shift;
	for (size_t w = 0; w < words; w++, c += INT16_GROUP)
	{
		__m512i		y = _mm512_loadu_si512(few + w * 16);

		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
			add_products(&acc[q], y, _mm512_set1_epi32(c[q]));
	}
}

#include "cpu/simd/gk_cpu_int16_products.h"

/* Both features of 16 words, in order. */
GK_TARGET static void
unrounded(const GkInt16Points *x, int row, int d, float *z)
{
	const __m512i at = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(GK_ROW_PAD));
	const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
	const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
	const __m512 unit = _mm512_set1_ps(1.0f / x->tile->scale);

	for (int j = 0; j < d; j += 32)
	{
		int			words = (d - j + 1) / 2;
		uint32_t	features = d - j < 32 ? (1u << (d - j)) - 1 : UINT32_MAX;
		__mmask16	some = words < 16 ? (__mmask16) ((1u << words) - 1) : 0xffff;
		__m512i		v = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), some, at, x->y + j / 2 * GK_ROW_PAD + row, 4);
		__m512		even = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v, 16), 16)), unit);
		__m512		odd = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(v, 16)), unit);

		_mm512_mask_storeu_ps(z + j, (__mmask16) features, _mm512_permutex2var_ps(even, first, odd));
		if (d - j > 16)
			_mm512_mask_storeu_ps(z + j + 16, (__mmask16) (features >> 16), _mm512_permutex2var_ps(even, second, odd));
	}
}

GK_TARGET static void
compare_two(const float *z, const float *pivot, const float *ci, const float *cj, int d, GkInt16Apart *out)
{
	__m512		farther = _mm512_setzero_ps();
	__m512		square = _mm512_setzero_ps();
	__m512		between = _mm512_setzero_ps();

	for (int j = 0; j < d; j += 16)
	{
		__mmask16	some = d - j < 16 ? (__mmask16) ((1u << (d - j)) - 1) : 0xffff;
		__m512		p = _mm512_maskz_loadu_ps(some, pivot + j);
		__m512		x = _mm512_maskz_loadu_ps(some, z + j);
		__m512		i = _mm512_maskz_loadu_ps(some, ci + j);
		__m512		k = _mm512_maskz_loadu_ps(some, cj + j);
		__m512		from_i = _mm512_sub_ps(_mm512_sub_ps(i, p), x);
		__m512		from_k = _mm512_sub_ps(_mm512_sub_ps(k, p), x);
		__m512		apart = _mm512_sub_ps(k, i);

		farther = _mm512_fmadd_ps(apart, _mm512_add_ps(from_i, from_k), farther);
		square = _mm512_fmadd_ps(from_i, from_i, square);
		between = _mm512_fmadd_ps(apart, apart, between);
	}
	*out = (GkInt16Apart) {.farther = _mm512_reduce_add_ps(farther),.square = _mm512_reduce_add_ps(square),
		.between = _mm512_reduce_add_ps(between),.additions = d / 16 + 5};
}

const GkInt16Kernels gk_int16_vnni = {
	INT16_KERNELS,
	.unrounded = unrounded,
	.compare_two = compare_two,
	.cost = 0.6,
	/* one tile against 100,000 centroids of 768 features */
	.longest = 384,
	.elkan = &gk_elkan_vnni
};

#endif							/* GK_CPU_X86 */
