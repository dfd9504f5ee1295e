/*
 * gk_cpu_elkan_avx512.c - compare rows with the centroids that their bounds (gk_cpu_elkan.c) leave, for AVX-512 with VNNI.
 *
 * Such pairs are few and of any rows, so lanes are features here: 16 rows of a tile are turned, which takes as long as
 * some four pairs of each, and four pairs are multiplied at a time.
 */
#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma")))

#include "cpu/simd/gk_cpu_transpose.h"

#define LANES	16
/* Lanes of bounds. */
#define BOUNDS	32

/* What of gk_cpu_int16_avx512.c is in groups of 12 centroids. */
#define GROUP	12

/* Some rows of a tile, and pairs to be multiplied. */
typedef struct Work
{
	const GkInt16 *s;
	const GkElkan *e;
	const GkInt16Points *x;
	int32_t    *y;				/* [LANES][e->words] */
	uint16_t   *lower;			/* [LANES][e->width] */
	int			first;			/* row of the tile */
	int32_t    *least;			/* [LANES] of GkInt16Rows */
	int32_t    *second;
	int32_t    *label;
	int			count;
	int64_t		all;
	int32_t		row[LANES];
	int32_t		to[LANES];
} Work;

static void
arrange(const int32_t *group, size_t words, int k, const GkElkan *e, int32_t *out)
{
	for (int q = 0; q < k; q++)
		for (size_t w = 0; w < e->words; w++)
			out[q * e->words + w] = w < words ? group[q / GROUP * words * GROUP + w * GROUP + q % GROUP] : 0;
}

/* Rows of a tile, one after the other: y [LANES][to_words]. */
GK_TARGET static __attribute__((noinline)) void
turn_rows(const int32_t *from, size_t words, int32_t *y, size_t to_words)
{
	for (size_t w = 0; w < to_words; w += LANES)
	{
		__m512		v[LANES];	/* words, not floats */

		GK_UNROLL
		for (int i = 0; i < LANES; i++)
			v[i] = w + i < words ? _mm512_loadu_ps(from + (w + i) * GK_ROW_PAD) : _mm512_setzero_ps();
		transpose(v);
		GK_UNROLL
		for (int i = 0; i < LANES; i++)
			_mm512_storeu_ps(y + i * to_words + w, v[i]);
	}
}

/* Add up the lanes of four vectors. */
GK_INLINE __m128i
totals(__m512i a, __m512i b, __m512i c, __m512i d)
{
	__m512i		ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
	__m512i		cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
	__m512i		all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
	__m256i		half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));

	return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Products of LANES pairs. */
GK_TARGET static __attribute__((noinline)) void
multiply(const Work *w, int32_t *product)
{
	size_t		words = w->e->words;

	for (int i = 0; i < w->count; i += 4)
	{
		const int32_t *y[4];
		const int32_t *c[4];
		__m512i		acc[4];

		for (int p = 0; p < 4; p++)
		{
			y[p] = w->y + w->row[i + p] * words;
			c[p] = w->e->c + w->to[i + p] * words;
			acc[p] = _mm512_setzero_si512();
		}
		for (size_t j = 0; j < words; j += LANES)
		{
			GK_UNROLL
			for (int p = 0; p < 4; p++)
				acc[p] = _mm512_dpwssd_epi32(acc[p], _mm512_loadu_si512(y[p] + j), _mm512_loadu_si512(c[p] + j));
		}
		_mm_storeu_si128((__m128i *) (product + i), totals(acc[0], acc[1], acc[2], acc[3]));
	}
}

/* s of the pairs, as compare() of gk_cpu_int16.h has it. */
GK_INLINE __m512i
scores(const Work *w, const int32_t *product)
{
	__m512		half = _mm512_i32gather_ps(_mm512_loadu_si512(w->to), w->s->half, 4);

	return _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(half, _mm512_set1_ps(w->x->per))), _mm512_loadu_si512(product));
}

/* Squares of distances, and what they may be off. */
GK_INLINE __m512
squares(const Work *w, __m512i score, __m512 x2, __m512 *off)
{
	const float unit = 1.0f / w->x->per;
	__m512		s2 = _mm512_mul_ps(_mm512_cvtepi32_ps(score), _mm512_set1_ps(2.0f * unit));

	*off = _mm512_fmadd_ps(_mm512_add_ps(x2, _mm512_abs_ps(s2)), _mm512_set1_ps(0x1p-20f), _mm512_set1_ps(2.0f * GK_INT16_OFF * unit));
	return _mm512_add_ps(x2, s2);
}

/* Upper bounds of the rows from the score of their label, rounded up. */
GK_INLINE __m256i
upper_bounds(const Work *w, __m512i score)
{
	__m512		off;
	__m512		d2 = squares(w, score, _mm512_loadu_ps(w->x->tile->square + w->first), &off);
	__m512		r = _mm512_sqrt_ps(_mm512_add_ps(_mm512_max_ps(d2, _mm512_setzero_ps()), off));
	__m512		u = _mm512_add_ps(_mm512_add_ps(r, _mm512_loadu_ps(w->x->tile->lost + w->first)), _mm512_set1_ps(w->s->lost));

	/* what is not a number becomes the largest one */
	u = _mm512_fmadd_ps(u, _mm512_set1_ps(w->e->per * w->e->widen), _mm512_set1_ps(2.0f));
	return _mm512_cvtusepi32_epi16(_mm512_cvttps_epu32(_mm512_min_ps(u, _mm512_set1_ps(65535.0f))));
}

/* Compare the pairs at hand. */
GK_TARGET static __attribute__((noinline)) void
compare_pairs(Work *w)
{
	int32_t		score[LANES] = {0};
	int32_t		bound[LANES];
	__m512i		row;
	__m512i		s;
	__m512		off;
	__m512		d2;
	__m512		low;

	for (int i = w->count; i < LANES; i++)
	{
		w->row[i] = w->row[0];
		w->to[i] = w->to[0];
	}
	multiply(w, score);
	s = scores(w, score);
	_mm512_storeu_si512(score, s);
	row = _mm512_loadu_si512(w->row);
	d2 = squares(w, s, _mm512_i32gather_ps(row, w->x->tile->square + w->first, 4), &off);
	low = _mm512_sqrt_ps(_mm512_max_ps(_mm512_sub_ps(d2, off), _mm512_setzero_ps()));
	low = _mm512_sub_ps(_mm512_sub_ps(low, _mm512_i32gather_ps(row, w->x->tile->lost + w->first, 4)), _mm512_set1_ps(w->s->lost));
	/* what is not a number becomes 0 */
	low = _mm512_max_ps(_mm512_fmsub_ps(low, _mm512_set1_ps(w->e->per), _mm512_set1_ps(2.0f)), _mm512_setzero_ps());
	low = _mm512_min_ps(_mm512_add_ps(low, _mm512_i32gather_ps(_mm512_loadu_si512(w->to), w->e->moved_down, 4)), _mm512_set1_ps(65535.0f));
	_mm512_storeu_si512(bound, _mm512_cvttps_epi32(low));
	for (int i = 0; i < w->count; i++)
	{
		int			r = w->row[i];

		w->lower[r * w->e->width + w->to[i]] = (uint16_t) bound[i];
		if (score[i] < w->least[r])
		{
			w->second[r] = w->least[r];
			w->least[r] = score[i];
			w->label[r] = w->to[i];
		}
		else if (score[i] < w->second[r])
			w->second[r] = score[i];
	}
	w->all += w->count;
	w->count = 0;
}

/* Centroids from q on that bounds do not prove to be farther from row r than upper says: bits. */
GK_INLINE uint32_t
nearer(const Work *w, int r, int q, uint16_t upper)
{
	const GkElkan *e = w->e;
	__m512i		reach = _mm512_adds_epu16(_mm512_set1_epi16((int16_t) upper), _mm512_loadu_si512(e->moved + q));
	uint32_t	bits = _mm512_cmple_epu16_mask(_mm512_loadu_si512(w->lower + r * e->width + q), reach);

	return w->s->k - q < BOUNDS ? bits & ((UINT32_C(1) << (w->s->k - q)) - 1) : bits;
}

/* Is there one besides its own? */
GK_TARGET static __attribute__((noinline)) bool
open_row(const Work *w, int r, uint16_t upper, int own)
{
	for (int q = 0; q < w->s->k; q += BOUNDS)
	{
		uint32_t	bits = nearer(w, r, q, upper);

		if (own >= q && own < q + BOUNDS)
			bits &= ~(UINT32_C(1) << (own - q));
		if (bits != 0)
			return true;
	}
	return false;
}

GK_TARGET static void
list_pairs(Work *w, int r, uint16_t upper, int own)
{
	for (int q = 0; q < w->s->k; q += BOUNDS)
	{
		uint32_t	bits = nearer(w, r, q, upper);

		if (own >= q && own < q + BOUNDS)
			bits &= ~(UINT32_C(1) << (own - q));
		for (; bits != 0; bits &= bits - 1)
		{
			w->row[w->count] = r;
			w->to[w->count++] = q + __builtin_ctz(bits);
			if (w->count == LANES)
				compare_pairs(w);
		}
	}
}

GK_TARGET static int64_t
search(const GkInt16 *s, const GkElkan *e, int d, const GkInt16Points *x, const int32_t *label, uint16_t *upper, uint16_t *lower,
	   int32_t *y, GkInt16Rows *rows)
{
	Work		w = {.s = s,.e = e,.x = x,.y = y};

	for (int first = 0; first < GK_ROW_PAD; first += LANES)
	{
		unsigned	open = 0;
		__m256i		tight;

		w.first = first;
		w.lower = lower + first * e->width;
		w.least = rows->least + first;
		w.second = rows->second + first;
		w.label = rows->label + first;
		for (int i = 0; i < LANES; i++)
		{
			int			own = label[first + i];
			unsigned	u = (unsigned) upper[first + i] + e->move[own];

			upper[first + i] = u < UINT16_MAX ? (uint16_t) u : UINT16_MAX;
			w.least[i] = w.second[i] = INT32_MAX;
			w.label[i] = own;
			open |= (unsigned) open_row(&w, i, upper[first + i], own) << i;
		}
		if (open != 0)
		{
			turn_rows(x->y + first, (size_t) (d + 1) / 2, y, e->words);
			for (unsigned bits = open; bits != 0; bits &= bits - 1)
			{
				w.row[w.count] = __builtin_ctz(bits);
				w.to[w.count] = label[first + w.row[w.count]];
				w.count++;
			}
			compare_pairs(&w);
			tight = upper_bounds(&w, _mm512_loadu_si512(w.least));
			_mm256_mask_storeu_epi16(upper + first, (__mmask16) open, tight);
			for (unsigned bits = open; bits != 0; bits &= bits - 1)
			{
				int			i = __builtin_ctz(bits);

				list_pairs(&w, i, upper[first + i], label[first + i]);
			}
			if (w.count > 0)
				compare_pairs(&w);
			tight = upper_bounds(&w, _mm512_loadu_si512(w.least));
			_mm256_mask_storeu_epi16(upper + first, (__mmask16) open, tight);
		}
		/* the label of the others is certain */
		for (unsigned bits = ~open & 0xffff; bits != 0; bits &= bits - 1)
			w.least[__builtin_ctz(bits)] = 0;
	}
	return w.all;
}

const GkElkanKernels gk_elkan_vnni = {
	.arrange = arrange,
	.search = search
};

#endif							/* GK_CPU_X86 */
