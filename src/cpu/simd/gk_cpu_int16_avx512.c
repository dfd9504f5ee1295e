/*
 * gk_cpu_int16_avx512.c - the kernels of gk_cpu_int16.c, for AVX-512 with VNNI: nearest centroids by
 * scalar products of 16-bit integers.
 *
 * One instruction multiplies and adds two features of 16 points: twice what a float multiply-add does.
 * Lanes are points; a register tile is 32 of them against 12 centroids: 24 of the 32 registers.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>
#include <string.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma")))
#define GK_INLINE	GK_TARGET static inline __attribute__((always_inline))
#if defined(__clang__)
#define GK_UNROLL	_Pragma("clang loop unroll(full)")
#else
#define GK_UNROLL	_Pragma("GCC unroll 16")
#endif

#define LANES		16
#define VECTORS		(GK_ROW_PAD / LANES)
#define NEAREST		(_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* ---- rounding ---- */

/* Make value and square the largest value and the largest square of a tile's rows, if they are less. */
GK_INLINE void
largest(const float *x, size_t stride, int d, float *value, float *square)
{
	__m512		most = _mm512_setzero_ps();
	__m512		sum[VECTORS];

	GK_UNROLL
	for (int p = 0; p < VECTORS; p++)
		sum[p] = _mm512_setzero_ps();
	for (int j = 0; j < d; j++)
	{
		GK_UNROLL
		for (int p = 0; p < VECTORS; p++)
		{
			__m512		v = _mm512_loadu_ps(x + j * stride + p * LANES);

			most = _mm512_max_ps(most, _mm512_abs_ps(v));
			sum[p] = _mm512_fmadd_ps(v, v, sum[p]);
		}
	}
	most = _mm512_max_ps(most, _mm512_set1_ps(*value));
	*value = _mm512_reduce_max_ps(most);
	sum[0] = _mm512_max_ps(_mm512_max_ps(sum[0], sum[1]), _mm512_set1_ps(*square));
	*square = _mm512_reduce_max_ps(_mm512_max_ps(sum[0], _mm512_max_ps(sum[2], sum[3])));
}

/* Features j and j + 1 (0 past the last one) of 16 rows, rounded; adds to what is lost and to the squares. */
GK_INLINE __m512i
round_pair(const float *x, size_t stride, bool two, __m512 scale, __m512 *lost, __m512i *square)
{
	__m512		a = _mm512_mul_ps(_mm512_loadu_ps(x), scale);
	__m512		b = two ? _mm512_mul_ps(_mm512_loadu_ps(x + stride), scale) : _mm512_setzero_ps();
	__m512		ra = _mm512_roundscale_ps(a, NEAREST);
	__m512		rb = _mm512_roundscale_ps(b, NEAREST);
	__m512		da = _mm512_sub_ps(a, ra);
	__m512		db = _mm512_sub_ps(b, rb);
	__m512i		pair = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_cvtps_epi32(ra),
											   _mm512_slli_epi32(_mm512_cvtps_epi32(rb), 16));

	*lost = _mm512_fmadd_ps(da, da, *lost);
	*lost = _mm512_fmadd_ps(db, db, *lost);
	*square = _mm512_dpwssd_epi32(*square, pair, pair);
	return pair;
}

/* Round a tile: its rows' pairs of features, what rounding lost, and their squares. */
GK_TARGET static __attribute__((noinline)) void
round_tile(const float *x, size_t stride, int d, float scale, int32_t *to, GkInt16Rows *rows)
{
	const __m512 by = _mm512_set1_ps(scale);
	__m512		lost[VECTORS];
	__m512i		square[VECTORS];

	GK_UNROLL
	for (int p = 0; p < VECTORS; p++)
	{
		lost[p] = _mm512_setzero_ps();
		square[p] = _mm512_setzero_si512();
	}
	for (int j = 0; j < d; j += 2, to += GK_ROW_PAD)
	{
		GK_UNROLL
		for (int p = 0; p < VECTORS; p++)
			_mm512_storeu_si512(to + p * LANES, round_pair(x + j * stride + p * LANES, stride, j + 1 < d,
														   by, &lost[p], &square[p]));
	}
	GK_UNROLL
	for (int p = 0; p < VECTORS; p++)
	{
		_mm512_storeu_ps(rows->lost + p * LANES, lost[p]);
		_mm512_storeu_si512(rows->square + p * LANES, square[p]);
		_mm512_storeu_si512(rows->least + p * LANES, _mm512_set1_epi32(INT32_MAX));
		_mm512_storeu_si512(rows->second + p * LANES, _mm512_set1_epi32(INT32_MAX));
		_mm512_storeu_si512(rows->label + p * LANES, _mm512_setzero_si512());
	}
}

/* Half of the centroids' squares in the points' unit. */
GK_TARGET static void
halves(const GkInt16 *s, float ratio, int32_t *half)
{
	int			all = (s->k + GK_INT16_GROUP - 1) / GK_INT16_GROUP * GK_INT16_GROUP;

	for (int q = 0; q < s->k; q += LANES)
		_mm512_storeu_si512(half + q, _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(s->half + q),
																	   _mm512_set1_ps(ratio))));
	for (int q = s->k; q < all; q++)
		half[q] = INT32_MAX;
}

/* ---- products ---- */

/* _mm512_dpwssd_epi32(), which compilers move about until registers do not suffice. */
GK_INLINE void
add_products(__m512i *sum, __m512i a, __m512i b)
{
	__asm__("vpdpwssd %2, %1, %0" : "+v"(*sum) : "v"(a), "v"(b));
}

/* 32 rows against a group of centroids: half of the squares less the products. */
GK_INLINE void
products(__m512i acc[GK_INT16_GROUP][2], const int32_t *y, const int32_t *c, int pairs, const int32_t *half)
{
	GK_UNROLL
	for (int q = 0; q < GK_INT16_GROUP; q++)
		acc[q][0] = acc[q][1] = _mm512_set1_epi32(half[q]);
	for (int j = 0; j < pairs; j++, y += GK_ROW_PAD, c += GK_INT16_GROUP)
	{
		__m512i		y0 = _mm512_loadu_si512(y);
		__m512i		y1 = _mm512_loadu_si512(y + LANES);

		GK_UNROLL
		for (int q = 0; q < GK_INT16_GROUP; q++)
		{
			__m512i		b = _mm512_set1_epi32(c[q]);

			add_products(&acc[q][0], y0, b);
			add_products(&acc[q][1], y1, b);
		}
	}
}

/* Of a group from k on: keep the least, which it is, and the second. */
GK_TARGET static __attribute__((noinline)) void
compare(const int32_t *y, const int32_t *c, int pairs, const int32_t *half, int k, GkInt16Rows *rows, int row)
{
	__m512i		acc[GK_INT16_GROUP][2];

	products(acc, y, c, pairs, half);
	GK_UNROLL
	for (int p = 0; p < 2; p++)
	{
		int			at = row + p * LANES;
		__m512i		least = _mm512_loadu_si512(rows->least + at);
		__m512i		second = _mm512_loadu_si512(rows->second + at);
		__m512i		label = _mm512_loadu_si512(rows->label + at);

		GK_UNROLL
		for (int q = 0; q < GK_INT16_GROUP; q++)
		{
			__mmask16	less = _mm512_cmplt_epi32_mask(acc[q][p], least);

			second = _mm512_min_epi32(second, _mm512_max_epi32(acc[q][p], least));
			least = _mm512_min_epi32(least, acc[q][p]);
			label = _mm512_mask_mov_epi32(label, less, _mm512_set1_epi32(k + q));
		}
		_mm512_storeu_si512(rows->least + at, least);
		_mm512_storeu_si512(rows->second + at, second);
		_mm512_storeu_si512(rows->label + at, label);
	}
}

/* ---- what is certain: the names are those of gk_cpu_int16.c ---- */

/* Rows with the second no farther behind the least than may be wrong; and the limit of what may be the nearest. */
GK_TARGET static uint64_t
undecided(const GkInt16 *s, float scale, GkInt16Rows *rows)
{
	const float unit = 1.0f / scale / s->scale;
	const __m512 e_c = _mm512_set1_ps(s->lost);
	uint64_t	open = 0;

	for (int i = 0; i < GK_ROW_PAD; i += LANES)
	{
		__m512i		least = _mm512_loadu_si512(rows->least + i);
		__m512i		gap = _mm512_sub_epi32(_mm512_loadu_si512(rows->second + i), least);
		__m512i		room = _mm512_sub_epi32(_mm512_set1_epi32(INT32_MAX - 1), least);
		__m512		e_x = _mm512_div_ps(_mm512_fmadd_ps(_mm512_sqrt_ps(_mm512_loadu_ps(rows->lost + i)), _mm512_set1_ps(1.001f),
														_mm512_set1_ps(0.004f)), _mm512_set1_ps(scale));
		__m512		x2 = _mm512_div_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(rows->square + i)), _mm512_set1_ps(scale * scale));
		__m512		s2 = _mm512_mul_ps(_mm512_cvtepi32_ps(least), _mm512_set1_ps(2.0f * unit));
		__m512		above = _mm512_fmadd_ps(_mm512_add_ps(x2, _mm512_abs_ps(s2)), _mm512_set1_ps(0x1p-20f),
											_mm512_set1_ps(2.0f * GK_INT16_OFF * unit));
		__m512		r = _mm512_sqrt_ps(_mm512_add_ps(_mm512_max_ps(_mm512_add_ps(x2, s2), _mm512_setzero_ps()), above));
		__m512		reach = _mm512_add_ps(r, e_x);
		__m512		t = _mm512_fmadd_ps(_mm512_set1_ps(s->relative), _mm512_add_ps(reach, e_c), _mm512_add_ps(e_c, e_c));
		__m512		both = _mm512_add_ps(t, _mm512_add_ps(e_x, e_x));
		__m512		by_length = _mm512_fmadd_ps(_mm512_set1_ps(2.0f * s->longest), e_x,
												_mm512_mul_ps(t, _mm512_fmadd_ps(t, _mm512_set1_ps(0.5f), reach)));
		__m512		by_distance = _mm512_mul_ps(both, _mm512_fmadd_ps(both, _mm512_set1_ps(0.5f), r));
		__m512		wrong = _mm512_fmadd_ps(_mm512_min_ps(by_length, by_distance), _mm512_set1_ps(1.001f * scale * s->scale),
											_mm512_set1_ps(2.0f * GK_INT16_OFF + 1.0f));

		/* what is not a number becomes the largest one */
		__m512i		limit = _mm512_cvtps_epu32(_mm512_min_ps(wrong, _mm512_set1_ps(4e9f)));

		open |= (uint64_t) (uint16_t) ~_mm512_cmpgt_epu32_mask(gap, limit) << i;
		_mm512_storeu_si512(rows->limit + i, _mm512_add_epi32(least, _mm512_min_epu32(limit, room)));
	}
	return open;
}

/* The products of centroids as near as d2 says, at least: no closer one has a larger product.  Rows i to i + 15. */
GK_INLINE __m512i
limit_of(const GkInt16 *s, float scale, const float *d2, const GkInt16Rows *rows, int i)
{
	const float per_unit = 0.5f * scale * s->scale;
	__m512		e_x = _mm512_div_ps(_mm512_fmadd_ps(_mm512_sqrt_ps(_mm512_loadu_ps(rows->lost + i)), _mm512_set1_ps(1.001f),
													_mm512_set1_ps(0.004f)), _mm512_set1_ps(scale));
	__m512		x2 = _mm512_div_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(rows->square + i)), _mm512_set1_ps(scale * scale));
	__m512		r = _mm512_fmadd_ps(_mm512_sqrt_ps(_mm512_loadu_ps(d2 + i)), _mm512_set1_ps(1.0f + s->relative),
									_mm512_add_ps(e_x, _mm512_set1_ps(s->lost)));
	__m512		r2 = _mm512_mul_ps(r, r);
	__m512		above = _mm512_fmadd_ps(_mm512_add_ps(r2, x2), _mm512_set1_ps(0x1p-18f), _mm512_sub_ps(r2, x2));
	__m512		limit = _mm512_fmadd_ps(above, _mm512_set1_ps(per_unit), _mm512_set1_ps(GK_INT16_OFF + 1.0f));

	/* what is not a number becomes the largest one, which no centroid past the last one is below */
	return _mm512_cvtps_epi32(_mm512_min_ps(limit, _mm512_set1_ps(0x1.fffffep30f)));
}

GK_TARGET static void
limits(const GkInt16 *s, float scale, const float *d2, GkInt16Rows *rows)
{
	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		_mm512_storeu_si512(rows->limit + i, limit_of(s, scale, d2, rows, i));
}

/* Rows whose least product says that no centroid is as near as d2. */
GK_TARGET static uint64_t
beyond(const GkInt16 *s, float scale, const float *d2, const GkInt16Rows *rows)
{
	uint64_t	far = 0;

	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		far |= (uint64_t) _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(rows->least + i), limit_of(s, scale, d2, rows, i)) << i;
	return far;
}

/* Round tiles, and the centroids' squares to suit; returns the scale. */
GK_TARGET static float
begin(const GkTiles *x, const GkInt16 *s, const GkInt16Scratch *scratch)
{
	int			pairs = (x->d + 1) / 2;
	float		value = 0.0f;
	float		square = 0.0f;
	float		scale;

	for (int t = 0; t < x->count; t++)
		largest(x->x + t * x->tile, x->stride, x->d, &value, &square);
	scale = gk_int16_scale(value, square, s->longest);
	for (int t = 0; t < x->count; t++)
		round_tile(x->x + t * x->tile, x->stride, x->d, scale, scratch->y + (size_t) t * pairs * GK_ROW_PAD, scratch->rows + t);
	halves(s, scale / s->scale, scratch->half);
	return scale;
}

GK_TARGET void
gk_cpu_avx512_assign_int16(const GkTiles *x, const GkInt16 *s, const GkInt16Scratch *scratch, const float *d2, int32_t *label,
						   uint64_t *open)
{
	int			pairs = (x->d + 1) / 2;
	int			groups = (s->k + GK_INT16_GROUP - 1) / GK_INT16_GROUP;
	float		scale = begin(x, s, scratch);

	for (int g = 0; g < groups; g++)
		for (int t = 0; t < x->count; t++)
			for (int row = 0; row < GK_ROW_PAD; row += 2 * LANES)
				compare(scratch->y + (size_t) t * pairs * GK_ROW_PAD + row, s->c + (size_t) g * pairs * GK_INT16_GROUP, pairs,
						scratch->half + g * GK_INT16_GROUP, g * GK_INT16_GROUP, scratch->rows + t, row);
	for (int t = 0; t < x->count; t++)
	{
		uint64_t	far = d2 != NULL ? beyond(s, scale, d2 + t * GK_ROW_PAD, scratch->rows + t) : 0;

		memcpy(label + t * GK_ROW_PAD, scratch->rows[t].label, sizeof(scratch->rows[t].label));
		open[t] = undecided(s, scale, scratch->rows + t) & ~far;
		for (; far != 0; far &= far - 1)
			label[t * GK_ROW_PAD + __builtin_ctzll(far)] = -1;
	}
}

/* ---- what may be closer than something else ---- */

/* Of 32 rows those with products within the limits: bits of each of a group of centroids. */
GK_TARGET static __attribute__((noinline)) void
within(const int32_t *y, const int32_t *c, int pairs, const int32_t *half, const int32_t *limit, int row, uint64_t *closer)
{
	__m512i		acc[GK_INT16_GROUP][2];

	products(acc, y, c, pairs, half);
	GK_UNROLL
	for (int q = 0; q < GK_INT16_GROUP; q++)
	{
		uint64_t	low = _mm512_cmple_epi32_mask(acc[q][0], _mm512_loadu_si512(limit + row));
		uint64_t	high = _mm512_cmple_epi32_mask(acc[q][1], _mm512_loadu_si512(limit + row + LANES));

		closer[q] |= (low | high << LANES) << row;
	}
}

GK_TARGET void
gk_cpu_avx512_closer_int16(const GkTiles *x, const GkInt16 *s, const GkInt16Scratch *scratch, const float *d2, uint64_t *closer)
{
	int			pairs = (x->d + 1) / 2;
	int			groups = (s->k + GK_INT16_GROUP - 1) / GK_INT16_GROUP;
	size_t		width = (size_t) groups * GK_INT16_GROUP;
	float		scale = begin(x, s, scratch);

	memset(closer, 0, x->count * width * sizeof(uint64_t));
	for (int t = 0; t < x->count; t++)
		limits(s, scale, d2 + t * GK_ROW_PAD, scratch->rows + t);
	for (int g = 0; g < groups; g++)
		for (int t = 0; t < x->count; t++)
			for (int row = 0; row < GK_ROW_PAD; row += 2 * LANES)
				within(scratch->y + (size_t) t * pairs * GK_ROW_PAD + row, s->c + (size_t) g * pairs * GK_INT16_GROUP, pairs,
					   scratch->half + g * GK_INT16_GROUP, scratch->rows[t].limit, row, closer + t * width + g * GK_INT16_GROUP);
}

/* ---- what may be the nearest ---- */

GK_TARGET void
gk_cpu_avx512_near_int16(const GkInt16 *s, int d, const GkInt16Scratch *scratch, const int *row, int count, GkInt16Near *out)
{
	int			pairs = (d + 1) / 2;
	int			groups = (s->k + GK_INT16_GROUP - 1) / GK_INT16_GROUP;
	int32_t		limit[LANES];
	__m512i		limits;

	for (int i = 0; i < LANES; i++)
	{
		int			at = row[i < count ? i : 0];
		const int32_t *from = scratch->y + (size_t) (at / GK_ROW_PAD) * pairs * GK_ROW_PAD + at % GK_ROW_PAD;

		limit[i] = i < count ? scratch->rows[at / GK_ROW_PAD].limit[at % GK_ROW_PAD] : INT32_MIN;
		out[i].count = 0;
		for (int j = 0; j < pairs; j++)
			scratch->few[j * LANES + i] = from[j * GK_ROW_PAD];
	}
	limits = _mm512_loadu_si512(limit);
	for (int g = 0; g < groups; g++)
	{
		const int32_t *c = s->c + (size_t) g * pairs * GK_INT16_GROUP;
		__m512i		acc[GK_INT16_GROUP];

		GK_UNROLL
		for (int q = 0; q < GK_INT16_GROUP; q++)
			acc[q] = _mm512_set1_epi32(scratch->half[g * GK_INT16_GROUP + q]);
		for (int j = 0; j < pairs; j++, c += GK_INT16_GROUP)
		{
			__m512i		y = _mm512_loadu_si512(scratch->few + j * LANES);

			GK_UNROLL
			for (int q = 0; q < GK_INT16_GROUP; q++)
				add_products(&acc[q], y, _mm512_set1_epi32(c[q]));
		}
		GK_UNROLL
		for (int q = 0; q < GK_INT16_GROUP; q++)
			for (unsigned near = _mm512_cmple_epi32_mask(acc[q], limits); near != 0; near &= near - 1)
			{
				GkInt16Near *to = &out[__builtin_ctz(near)];

				if (to->count < GK_INT16_NEAR)
					to->label[to->count] = g * GK_INT16_GROUP + q;
				to->count++;
			}
	}
}

#endif							/* GK_CPU_X86 */
