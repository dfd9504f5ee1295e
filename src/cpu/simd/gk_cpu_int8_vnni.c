/*
 * gk_cpu_int8_vnni.c - products of 8-bit integers (gk_cpu_int8.c) for AVX-512 with VNNI.
 *
 * One instruction multiplies and adds four features of 16 points: twice what one of 16-bit integers does. It takes
 * the points without a sign, so 128 is added to each.
 * A register tile is 32 points against 12 centroids: 24 of the 32 registers.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma")))

#include "cpu/simd/gk_cpu_vector_avx512.h"

#define INT8_GROUP		12
#define INT8_VECTORS	2
#define INT8_ADDED		128

#include "cpu/simd/gk_cpu_int8_round.h"

#define LANES		16
#define NEAREST		(_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

GK_TARGET void
gk_cpu_int8_round(const float *x, size_t stride, const GkInt8 *s, int32_t *y, GkInt8Tile *tile)
{
	round_points(x, stride, s, y, tile);
}

/* 16 features from s->feature + i on, or as many as there are before `end`: values less the pivot's, 0 where there is none. */
GK_INLINE void
load_features(__m512d v[2], const float *c, const GkInt8 *s, int i, int end)
{
	__mmask16	some = (__mmask16) (end - i < LANES ? (1 << (end - i)) - 1 : 0xffff);
	__m512i		j = _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), some, s->feature + i);
	__mmask16	there = _mm512_cmpge_epi32_mask(j, _mm512_setzero_si512());
	__m512		x = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), there, j, c, 4);
	__m512		p = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), there, j, s->pivot, 4);

	v[0] = _mm512_sub_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_castps512_ps256(p)));
	v[1] = _mm512_sub_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(p, 1)));
}

/* What gk_cpu_int8.c calls B. */
GK_TARGET static double
centroid_scale(const float *c, const GkInt8 *s)
{
	double		most = GK_INT8_SMALLEST;

	for (int run = 0, i = 0; run < s->runs; i = 4 * s->end[run++])
	{
		__m512d		largest = _mm512_setzero_pd();

		for (; i < 4 * s->end[run]; i += LANES)
		{
			__m512d		v[2];

			load_features(v, c, s, i, 4 * s->end[run]);
			largest = _mm512_max_pd(largest, _mm512_max_pd(_mm512_abs_pd(v[0]), _mm512_abs_pd(v[1])));
		}
		most = fmax(most, _mm512_reduce_max_pd(largest) * (1 << s->finer[run]));
	}
	return scale_of_centroid(most);
}

GK_TARGET void
gk_cpu_int8_round_centroid(const float *c, const GkInt8 *s, int32_t *word, GkInt8Centroid *of)
{
	double		scale = centroid_scale(c, s);
	double		square = 0.0;
	double		lost = 0.0;
	double		sum = 0.0;

	for (int run = 0, i = 0; run < s->runs; i = 4 * s->end[run++])
	{
		double		finer = 1 << s->finer[run];
		__m512d		by = _mm512_set1_pd(scale * finer);
		__m512d		run_square = _mm512_setzero_pd();
		__m512d		run_lost = _mm512_setzero_pd();
		__m512d		run_sum = _mm512_setzero_pd();

		for (; i < 4 * s->end[run]; i += LANES)
		{
			int			some = 4 * s->end[run] - i;
			__m512d		v[2];
			__m256i		b[2];

			load_features(v, c, s, i, 4 * s->end[run]);
			GK_UNROLL
			for (int p = 0; p < 2; p++)
			{
				__m512d		r;

				v[p] = _mm512_mul_pd(v[p], by);
				r = _mm512_roundscale_pd(v[p], NEAREST);
				v[p] = _mm512_sub_pd(v[p], r);
				run_square = _mm512_fmadd_pd(r, r, run_square);
				run_lost = _mm512_fmadd_pd(v[p], v[p], run_lost);
				run_sum = _mm512_add_pd(run_sum, r);
				b[p] = _mm512_cvtpd_epi32(r);
			}
			_mm_mask_storeu_epi8(word + i / 4, (__mmask16) (some < LANES ? (1 << some) - 1 : 0xffff),
								 _mm512_cvtepi32_epi8(_mm512_inserti64x4(_mm512_castsi256_si512(b[0]), b[1], 1)));
		}
		square += _mm512_reduce_add_pd(run_square) / (finer * finer);
		lost += _mm512_reduce_add_pd(run_lost) / (finer * finer);
		sum += _mm512_reduce_add_pd(run_sum) / (finer * finer);
	}
	*of = rounded_centroid(s, scale, sum, square, lost);
}

/* _mm512_dpbusd_epi32(), which compilers move about until registers do not suffice. */
GK_INLINE void
add_products(__m512i *sum, __m512i a, __m512i b)
{
	__asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(a), "v"(b));
}

GK_INLINE void
add_word(__m512i acc[INT8_GROUP][INT8_VECTORS], const int32_t *y, const int32_t *c)
{
	__m512i		y0 = _mm512_loadu_si512(y);
	__m512i		y1 = _mm512_loadu_si512(y + LANES);

	GK_UNROLL
	for (int q = 0; q < INT8_GROUP; q++)
	{
		__m512i		b = _mm512_set1_epi32(c[q]);

		add_products(&acc[q][0], y0, b);
		add_products(&acc[q][1], y1, b);
	}
}

#include "cpu/simd/gk_cpu_int8_words.h"

const GkInt8Kernels gk_int8_vnni = {
	.group = INT8_GROUP,.unit = 1,.cost = 0.3,.put = put,
	.round = gk_cpu_int8_round,.round_centroid = gk_cpu_int8_round_centroid,.closer = closer,.guess = guess
};

#endif							/* GK_CPU_X86 */
