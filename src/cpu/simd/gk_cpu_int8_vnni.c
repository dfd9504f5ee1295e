/*
 * gk_cpu_int8_vnni.c - products of 8-bit integers (gk_cpu_int8.c) for AVX-512 with VNNI.
 *
 * One instruction multiplies and adds four features of 16 points: twice what one of 16-bit integers does. It takes
 * the points without a sign, so 128 is added to each. Lanes are points.
 */
#include <math.h>
#include <string.h>

#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma")))

#define LANES		16
#define LARGEST		0x1p+40
/* What rounding may take off a product. */
#define OFF			4.0
#define NEAREST		(_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
/* A register tile is 32 points against 12 centroids: 24 of the 32 registers. */
#define GROUP		12
#define VECTORS		2

#include "cpu/simd/gk_cpu_int8_closer.h"

/* ---- rounding ---- */

/* Vectors of a tile's rows: a feature of all of them, less the pivot, is read at once, as each feature may be in another page. */
#define ALL			(GK_ROW_PAD / LANES)

GK_INLINE void
load_feature(__m512 v[ALL], const float *x, size_t stride, int32_t j, const float *pivot)
{
	GK_UNROLL
	for (int p = 0; p < ALL; p++)
		v[p] = j >= 0 ? _mm512_sub_ps(_mm512_loadu_ps(x + j * stride + p * LANES), _mm512_set1_ps(pivot[j])) : _mm512_setzero_ps();
}

/* The scale of each row. */
GK_TARGET static void
scale_rows(const float *x, size_t stride, const GkInt8 *s, float *scale)
{
	__m512		most[ALL];

	GK_UNROLL
	for (int p = 0; p < ALL; p++)
		most[p] = _mm512_set1_ps(GK_INT8_SMALLEST);
	for (int run = 0, i = 0; run < s->runs; run++)
	{
		const __m512 finer = _mm512_set1_ps((float) (1 << s->finer[run]));

		for (; i < 4 * s->end[run]; i++)
		{
			__m512		v[ALL];

			load_feature(v, x, stride, s->feature[i], s->pivot);
			GK_UNROLL
			for (int p = 0; p < ALL; p++)
				most[p] = _mm512_max_ps(most[p], _mm512_mul_ps(_mm512_abs_ps(v[p]), finer));
		}
	}
	GK_UNROLL
	for (int p = 0; p < ALL; p++)
		_mm512_storeu_ps(scale + p * LANES, _mm512_div_ps(_mm512_set1_ps(127.0f), most[p]));
}

/* The words of a run, from w on: what they add to the squares, and to what is lost. */
GK_TARGET static void
round_run(const float *x, size_t stride, const GkInt8 *s, int run, int w, int32_t *y, GkInt8Tile *tile)
{
	const float weight = 1.0f / (float) (1 << 2 * s->finer[run]);
	__m512		by[ALL];
	__m512		square[ALL];
	__m512		lost[ALL];

	GK_UNROLL
	for (int p = 0; p < ALL; p++)
	{
		by[p] = _mm512_mul_ps(_mm512_loadu_ps(tile->scale + p * LANES), _mm512_set1_ps((float) (1 << s->finer[run])));
		square[p] = _mm512_setzero_ps();
		lost[p] = _mm512_setzero_ps();
	}
	for (; w < s->end[run]; w++)
	{
		/* 128 is added to each byte */
		__m512i		word[ALL];

		GK_UNROLL
		for (int p = 0; p < ALL; p++)
			word[p] = _mm512_set1_epi32((int32_t) 0x80808080);
		GK_UNROLL
		for (int f = 0; f < 4; f++)
		{
			__m512		v[ALL];

			load_feature(v, x, stride, s->feature[4 * w + f], s->pivot);
			GK_UNROLL
			for (int p = 0; p < ALL; p++)
			{
				__m512		r;

				v[p] = _mm512_mul_ps(v[p], by[p]);
				r = _mm512_roundscale_ps(v[p], NEAREST);
				v[p] = _mm512_sub_ps(v[p], r);
				square[p] = _mm512_fmadd_ps(r, r, square[p]);
				lost[p] = _mm512_fmadd_ps(v[p], v[p], lost[p]);
				word[p] = _mm512_xor_si512(word[p], _mm512_slli_epi32(_mm512_and_si512(_mm512_cvtps_epi32(r), _mm512_set1_epi32(255)), 8 * f));
			}
		}
		GK_UNROLL
		for (int p = 0; p < ALL; p++)
			_mm512_storeu_si512(y + w * GK_ROW_PAD + p * LANES, word[p]);
	}
	GK_UNROLL
	for (int p = 0; p < ALL; p++)
	{
		_mm512_storeu_ps(tile->square + p * LANES, _mm512_fmadd_ps(square[p], _mm512_set1_ps(weight), _mm512_loadu_ps(tile->square + p * LANES)));
		_mm512_storeu_ps(tile->lost + p * LANES, _mm512_fmadd_ps(lost[p], _mm512_set1_ps(weight), _mm512_loadu_ps(tile->lost + p * LANES)));
	}
}

GK_TARGET void
gk_cpu_int8_round(const float *x, size_t stride, const GkInt8 *s, int32_t *y, GkInt8Tile *tile)
{
	memset(tile->square, 0, sizeof(tile->square));
	memset(tile->lost, 0, sizeof(tile->lost));
	scale_rows(x, stride, s, tile->scale);
	for (int run = 0, w = 0; run < s->runs; w = s->end[run++])
		round_run(x, stride, s, run, w, y, tile);
	for (int p = 0; p < GK_ROW_PAD; p += LANES)
	{
		__m512		unit = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_loadu_ps(tile->scale + p));
		__m512		square = _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(tile->square + p), unit), unit);
		__m512		lost = _mm512_mul_ps(_mm512_sqrt_ps(_mm512_loadu_ps(tile->lost + p)), unit);

		_mm512_storeu_ps(tile->square + p, square);
		/* x less the pivot, and its product with the scale, are rounded before it is made an integer */
		_mm512_storeu_ps(tile->lost + p, _mm512_fmadd_ps(lost, _mm512_set1_ps(1.001f),
														 _mm512_fmadd_ps(_mm512_sqrt_ps(square), _mm512_set1_ps(0x1p-22f), _mm512_set1_ps(GK_INT8_TINY))));
	}
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
	return most <= LARGEST ? (double) (float) (127.0 / most * (1.0 - 0x1p-20)) : 0.0;
}

GK_TARGET void
gk_cpu_int8_round_centroid(const float *c, const GkInt8 *s, int32_t *word, GkInt8Centroid *of)
{
	double		slack = (double) s->relative + 0x1p-17;
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
	/* too large for what is added up: it may always be closer */
	if (scale == 0.0)
	{
		*of = (GkInt8Centroid) {.scale = 1.0f,.half = -INFINITY};
		return;
	}
	lost = 1.001 * sqrt(lost) / scale + GK_INT8_TINY;
	square = square / scale / scale;
	*of = (GkInt8Centroid) {.scale = (float) scale,.lost = (float) (scale * lost),
		.half = (float) (0.5 * scale * (square * (1.0 - slack) - lost * lost * (1.0 + slack))),
		.offset = (int32_t) rint(128.0 * sum - OFF)};
}

static void
put(int32_t *group, int words, int q, const int32_t *word)
{
	for (int w = 0; w < words; w++)
		group[w * GROUP + q] = word[w];
}

/* ---- products ---- */

/* _mm512_dpbusd_epi32(), which compilers move about until registers do not suffice. */
GK_INLINE void
add_products(__m512i *sum, __m512i a, __m512i b)
{
	__asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(a), "v"(b));
}

/* In units of the last run. */
GK_INLINE void
products(__m512i acc[GROUP][VECTORS], const int32_t *y, const int32_t *c, const GkInt8 *s)
{
	GK_UNROLL
	for (int q = 0; q < GROUP; q++)
	{
		GK_UNROLL
		for (int p = 0; p < VECTORS; p++)
			acc[q][p] = _mm512_setzero_si512();
	}
	for (int run = 0, w = 0; run < s->runs; run++)
	{
		int			finer = s->finer[run] - (run + 1 < s->runs ? s->finer[run + 1] : 0);

		for (; w < s->end[run]; w++, y += GK_ROW_PAD, c += GROUP)
		{
			__m512i		y0 = _mm512_loadu_si512(y);
			__m512i		y1 = _mm512_loadu_si512(y + LANES);

			GK_UNROLL
			for (int q = 0; q < GROUP; q++)
			{
				__m512i		b = _mm512_set1_epi32(c[q]);

				add_products(&acc[q][0], y0, b);
				add_products(&acc[q][1], y1, b);
			}
		}
		if (finer == 0)
			continue;
		GK_UNROLL
		for (int q = 0; q < GROUP; q++)
		{
			GK_UNROLL
			for (int p = 0; p < VECTORS; p++)
				acc[q][p] = _mm512_sra_epi32(acc[q][p], _mm_cvtsi32_si128(2 * finer));
		}
	}
}

/* Rows of a tile from `row` on against a group of centroids: bits of those that may be closer. */
GK_TARGET static __attribute__((noinline)) void
within(const GkInt8Points *x, const float *d2, const int32_t *c, const GkInt8 *s, const GkInt8Centroid *of, int row, uint64_t *closer)
{
	__m512i		acc[GROUP][VECTORS];

	products(acc, x->y + row, c, s);
	GK_UNROLL
	for (int p = 0; p < VECTORS; p++)
	{
		int			at = row + p * LANES;
		__m512		scale = _mm512_loadu_ps(x->tile->scale + at);
		__m512		above;
		__m512		reach;

		limits(s, x->tile, d2 + at, at, &above, &reach);
		GK_UNROLL
		for (int q = 0; q < GROUP; q++)
			closer[q] |= (uint64_t) may_be_closer(acc[q][p], of + q, scale, above, reach) << at;
	}
}

/* The nearest of a group and those before, to rows from `row` on. */
GK_TARGET static __attribute__((noinline)) void
keep_least(const GkInt8Points *x, const GkInt8 *s, int k, int row, float *least, int32_t *label)
{
	__m512i		acc[GROUP][VECTORS];

	products(acc, x->y + row, s->c + (size_t) k * s->words, s);
	GK_UNROLL
	for (int p = 0; p < VECTORS; p++)
	{
		int			at = row + p * LANES;
		Nearest		so_far = {_mm512_loadu_ps(least + at), _mm512_loadu_si512(label + at)};

		GK_UNROLL
		for (int q = 0; q < GROUP; q++)
			if (k + q < s->k)
				so_far = nearer(so_far, acc[q][p], s->of + k + q, _mm512_loadu_ps(x->tile->scale + at), k + q);
		_mm512_storeu_ps(least + at, so_far.least);
		_mm512_storeu_si512(label + at, so_far.label);
	}
}

GK_TARGET static void
guess(int tiles, const GkInt8 *s, const GkInt8Points *x, int32_t *label)
{
	float		least[GK_INT16_TILES * GK_ROW_PAD];

	for (int i = 0; i < tiles * GK_ROW_PAD; i++)
		least[i] = INFINITY;
	memset(label, 0, tiles * GK_ROW_PAD * sizeof(int32_t));
	for (int k = 0; k < s->k; k += GROUP)
		for (int t = 0; t < tiles; t++)
			for (int row = 0; row < GK_ROW_PAD; row += VECTORS * LANES)
				keep_least(x + t, s, k, row, least + t * GK_ROW_PAD, label + t * GK_ROW_PAD);
}

GK_TARGET static void
closer(int tiles, const GkInt8 *s, const GkInt8Points *x, const float *d2, uint64_t *out)
{
	size_t		width = (size_t) (s->k + GROUP - 1) / GROUP * GROUP;

	memset(out, 0, tiles * width * sizeof(uint64_t));
	for (int k = 0; k < s->k; k += GROUP)
		for (int t = 0; t < tiles; t++)
			for (int row = 0; row < GK_ROW_PAD; row += VECTORS * LANES)
				within(x + t, d2 + t * GK_ROW_PAD, s->c + (size_t) k * s->words, s, s->of + k, row, out + t * width + k);
}

const GkInt8Kernels gk_int8_vnni = {
	.group = GROUP,.unit = 1,.cost = 0.3,.put = put,
	.round = gk_cpu_int8_round,.round_centroid = gk_cpu_int8_round_centroid,.closer = closer,.guess = guess
};

#endif							/* GK_CPU_X86 */
