/*
 * gk_cpu_int16_products.h - the kernels of gk_cpu_int16.c, for AVX-512: nearest centroids by scalar products of
 * 16-bit integers.
 *
 * A template: a file that includes it says how integers lie in memory and how they are multiplied, what
 * products mean is the same for all.  Lanes are points.  Before it come
 *   GK_TARGET, gk_cpu_unroll.h
 *   INT16_GROUP		centroids at a time
 *   INT16_VECTORS	vectors of rows at a time
 *   INT16_UNIT		features: rows and centroids are filled up with zeros to a multiple
 *   INT16_APART		squares and products may have more than 32 bits (GkInt16Kernels.apart)
 * and these functions, where a word is two features of a row, or what is in their place:
 *   store_words(y, words, p, w, a, b)	features 2 w .. 2 w + 3 of the rows of vector p of a tile, two in a lane
 *   block(y, words, row)	where products() finds a tile's rows from `row` on
 *   word(y, words, row, w)	one word of a row of a tile
 *   products(acc, y, c, words, shift)	add the products of INT16_VECTORS vectors of rows and a group of
 *						centroids, over 2^shift: acc [INT16_GROUP][INT16_VECTORS]
 *   products_few(acc, few, c, words, shift)	the same of 16 rows, few [words][16], a shift for each
 *   begin_products(), end_products()	around them, in each kernel
 */
#include <string.h>

#include "cpu/simd/gk_cpu_elkan_bounds.h"

#define LANES		16
#define VECTORS		(GK_ROW_PAD / LANES)
#define NEAREST		(_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
/* Above all products, a float; and what centroids past the last one have, above it. */
#define ABOVE		0x1.fffffcp30f
#define NONE		INT32_MAX

/* ---- rounding ---- */

GK_TARGET static void
measure(const float *x, size_t stride, int d, const float *pivot, GkInt16Tile *tile)
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
			__m512		v = _mm512_sub_ps(_mm512_loadu_ps(x + j * stride + p * LANES), _mm512_set1_ps(pivot[j]));

			most = _mm512_max_ps(most, _mm512_abs_ps(v));
			sum[p] = _mm512_fmadd_ps(v, v, sum[p]);
		}
	}
	tile->value = _mm512_reduce_max_ps(most);
	sum[0] = _mm512_max_ps(_mm512_max_ps(sum[0], sum[1]), _mm512_max_ps(sum[2], sum[3]));
	tile->length = 1.001f * __builtin_sqrtf(_mm512_reduce_max_ps(sum[0]));
}

/* Feature j of 16 rows, 0 from d on. */
GK_INLINE __m512
scaled(const float *x, size_t stride, int j, int d, const float *pivot, __m512 scale)
{
	return j < d ? _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + j * stride), _mm512_set1_ps(pivot[j])), scale) : _mm512_setzero_ps();
}

/* Features j and j + 1 of 16 rows, rounded; adds to what is lost. */
GK_INLINE __m512i
round_pair(const float *x, size_t stride, int j, int d, const float *pivot, __m512 scale, __m512 *lost)
{
	__m512		a = scaled(x, stride, j, d, pivot, scale);
	__m512		b = scaled(x, stride, j + 1, d, pivot, scale);
	__m512		ra = _mm512_roundscale_ps(a, NEAREST);
	__m512		rb = _mm512_roundscale_ps(b, NEAREST);
	__m512		da = _mm512_sub_ps(a, ra);
	__m512		db = _mm512_sub_ps(b, rb);

	*lost = _mm512_fmadd_ps(da, da, *lost);
	*lost = _mm512_fmadd_ps(db, db, *lost);
	return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_cvtps_epi32(ra), _mm512_slli_epi32(_mm512_cvtps_epi32(rb), 16));
}

/* Squares of 16 rows, summed up exactly: those of two features fit 32 bits, of others where products do. */
typedef struct Squares
{
	__m512i		few;
	__m512d		low,
				high;
} Squares;

GK_INLINE void
flush_squares(Squares *s)
{
	s->low = _mm512_add_pd(s->low, _mm512_cvtepi32_pd(_mm512_castsi512_si256(s->few)));
	s->high = _mm512_add_pd(s->high, _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(s->few, 1)));
	s->few = _mm512_setzero_si512();
}

GK_INLINE void
add_squares(Squares *s, __m512i pair)
{
	s->few = _mm512_dpwssd_epi32(s->few, pair, pair);
	if (INT16_APART)
		flush_squares(s);
}

/* Some rows of a tile at a time: registers suffice. */
GK_TARGET static __attribute__((noinline)) void
round_rows(const float *x, size_t stride, int d, const float *pivot, int p, int32_t *y, GkInt16Tile *tile)
{
	const __m512 by = _mm512_set1_ps(tile->scale);
	const double unit = 1.0 / ((double) tile->scale * (double) tile->scale);
	int			words = (int) gk_int16_words(INT16_UNIT, d);
	__m512		lost = _mm512_setzero_ps();
	Squares		square = {_mm512_setzero_si512(), _mm512_setzero_pd(), _mm512_setzero_pd()};

	x += p * LANES;
	for (int w = 0; w < words; w += 2)
	{
		__m512i		a = round_pair(x, stride, 2 * w, d, pivot, by, &lost);
		__m512i		b = round_pair(x, stride, 2 * w + 2, d, pivot, by, &lost);

		add_squares(&square, a);
		add_squares(&square, b);
		store_words(y, words, p, w, a, b);
	}
	flush_squares(&square);
	_mm256_storeu_ps(tile->square + p * LANES, _mm512_cvtpd_ps(_mm512_mul_pd(square.low, _mm512_set1_pd(unit))));
	_mm256_storeu_ps(tile->square + p * LANES + 8, _mm512_cvtpd_ps(_mm512_mul_pd(square.high, _mm512_set1_pd(unit))));
	/* x less the pivot, and its product with the scale, are rounded before it is made an integer */
	_mm512_storeu_ps(tile->lost + p * LANES, _mm512_fmadd_ps(_mm512_sqrt_ps(lost), _mm512_set1_ps(1.001f / tile->scale),
															 _mm512_set1_ps(0x1p-23f * tile->length)));
}

GK_TARGET static void
round_tile(const float *x, size_t stride, int d, const float *pivot, int32_t *y, GkInt16Tile *tile)
{
	for (int p = 0; p < VECTORS; p++)
		round_rows(x, stride, d, pivot, p, y, tile);
}

/* ---- products ---- */

/* Half of the squares of a group's centroids, from k on, in a tile's unit. */
GK_INLINE void
halves(const GkInt16 *s, const GkInt16Points *x, int k, int32_t half[LANES])
{
	__m512i		v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(s->half + k), _mm512_set1_ps(x->per)));
	int			left = s->k - k;

	_mm512_storeu_si512(half, _mm512_mask_mov_epi32(_mm512_set1_epi32(NONE), left < LANES ? (__mmask16) ((1u << left) - 1) : 0xffff, v));
}

/* Half of the squares less the products, of a block of a tile. */
GK_INLINE void
compute(__m512i acc[INT16_GROUP][INT16_VECTORS], const GkInt16Points *x, int row, const int32_t *c, size_t words, const int32_t *half)
{
	GK_UNROLL
	for (int q = 0; q < INT16_GROUP; q++)
	{
		GK_UNROLL
		for (int p = 0; p < INT16_VECTORS; p++)
			acc[q][p] = _mm512_set1_epi32(half[q]);
	}
	products(acc, block(x->y, words, row), c, words, _mm512_set1_epi32(x->shift));
}

/* ---- the nearest ---- */

/* What compare_group() needs besides rows and centroids. */
typedef struct Comparison
{
	const GkInt16 *s;
	const GkElkan *e;			/* NULL: no bounds */
	size_t		words;
} Comparison;

/* Lower bounds of the rows and a group's centroids, from k on. */
GK_INLINE void
store_bounds(__m512i acc[INT16_GROUP][INT16_VECTORS], const Comparison *by, const GkInt16Points *x, int k, int row, uint16_t *lower)
{
	GK_UNROLL
	for (int p = 0; p < INT16_VECTORS; p++)
	{
		int			at = row + p * LANES;
		__m512		x2 = _mm512_loadu_ps(x->tile->square + at);
		__m512		lost = _mm512_loadu_ps(x->tile->lost + at);

		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
		{
			__m512		low = bounds_below(by->s, by->e, x->per, acc[q][p], x2, lost);

			if (k + q == by->s->k)
				break;
			_mm256_storeu_si256((__m256i *) (lower + (size_t) (k + q) * GK_ROW_PAD + at),
								_mm512_cvtusepi32_epi16(kept_bounds(low, _mm512_set1_ps(by->e->moved_down[k + q]))));
		}
	}
}

/* Of a group from k on: keep the least, which it is, and the second; and bounds. */
GK_TARGET static __attribute__((noinline)) void
compare_group(const Comparison *by, const GkInt16Points *x, const int32_t *half, int k, GkInt16Rows *rows, int row, uint16_t *lower)
{
	__m512i		acc[INT16_GROUP][INT16_VECTORS];

	compute(acc, x, row, by->s->c + k * by->words, by->words, half);
	if (by->e != NULL)
		store_bounds(acc, by, x, k, row, lower);
	GK_UNROLL
	for (int p = 0; p < INT16_VECTORS; p++)
	{
		int			at = row + p * LANES;
		__m512i		least = _mm512_loadu_si512(rows->least + at);
		__m512i		second = _mm512_loadu_si512(rows->second + at);
		__m512i		label = _mm512_loadu_si512(rows->label + at);

		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
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
undecided(const GkInt16 *s, const GkInt16Points *x, GkInt16Rows *rows)
{
	const float unit = 1.0f / x->per;
	const __m512 e_c = _mm512_set1_ps(s->lost);
	uint64_t	open = 0;

	for (int i = 0; i < GK_ROW_PAD; i += LANES)
	{
		__m512i		least = _mm512_loadu_si512(rows->least + i);
		__m512i		gap = _mm512_sub_epi32(_mm512_loadu_si512(rows->second + i), least);
		__m512i		room = _mm512_sub_epi32(_mm512_set1_epi32((int32_t) ABOVE), least);
		__m512		e_x = _mm512_loadu_ps(x->tile->lost + i);
		__m512		x2 = _mm512_loadu_ps(x->tile->square + i);
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
		__m512		wrong = _mm512_fmadd_ps(_mm512_min_ps(by_length, by_distance), _mm512_set1_ps(1.001f * x->per),
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
limit_of(const GkInt16 *s, const GkInt16Points *x, const float *d2, int i)
{
	__m512		e_x = _mm512_loadu_ps(x->tile->lost + i);
	__m512		x2 = _mm512_loadu_ps(x->tile->square + i);
	__m512		r = _mm512_fmadd_ps(_mm512_sqrt_ps(_mm512_loadu_ps(d2 + i)), _mm512_set1_ps(1.0f + s->relative),
									_mm512_add_ps(e_x, _mm512_set1_ps(s->lost)));
	__m512		r2 = _mm512_mul_ps(r, r);
	__m512		above = _mm512_fmadd_ps(_mm512_add_ps(r2, x2), _mm512_set1_ps(0x1p-18f), _mm512_sub_ps(r2, x2));
	__m512		limit = _mm512_fmadd_ps(above, _mm512_set1_ps(0.5f * x->per), _mm512_set1_ps(GK_INT16_OFF + 1.0f));

	/* what is not a number becomes the largest one, which no centroid past the last one is below */
	return _mm512_cvtps_epi32(_mm512_min_ps(limit, _mm512_set1_ps(ABOVE)));
}

GK_TARGET static void
limits(const GkInt16 *s, const GkInt16Points *x, const float *d2, GkInt16Rows *rows)
{
	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		_mm512_storeu_si512(rows->limit + i, limit_of(s, x, d2, i));
}

/* Rows whose least product says that no centroid is as near as d2. */
GK_TARGET static uint64_t
beyond(const GkInt16 *s, const GkInt16Points *x, const float *d2, const GkInt16Rows *rows)
{
	uint64_t	far = 0;

	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		far |= (uint64_t) _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(rows->least + i), limit_of(s, x, d2, i)) << i;
	return far;
}

GK_TARGET static void
compare(int tiles, int d, const GkInt16 *s, const GkInt16Scratch *scratch, int k0, int k1, const GkElkan *e, uint16_t *lower)
{
	const GkInt16Points *x = scratch->points;
	Comparison	by = {.s = s,.e = e,.words = gk_int16_words(INT16_UNIT, d)};
	size_t		tile = (size_t) s->k * GK_ROW_PAD;
	int			end = k1 < s->k ? k1 : s->k;

	for (int t = 0; k0 == 0 && t < tiles; t++)
	{
		GkInt16Rows *rows = scratch->rows + t;

		for (int i = 0; i < GK_ROW_PAD; i += LANES)
		{
			_mm512_storeu_si512(rows->least + i, _mm512_set1_epi32(NONE));
			_mm512_storeu_si512(rows->second + i, _mm512_set1_epi32(NONE));
			_mm512_storeu_si512(rows->label + i, _mm512_setzero_si512());
		}
	}
	begin_products();
	for (int k = k0; k < end; k += INT16_GROUP)
		for (int t = 0; t < tiles; t++)
		{
			int32_t		half[LANES];

			halves(s, x + t, k, half);
			for (int row = 0; row < GK_ROW_PAD; row += INT16_VECTORS * LANES)
				compare_group(&by, x + t, half, k, scratch->rows + t, row, e != NULL ? lower + t * tile : NULL);
		}
	end_products();
}

GK_TARGET static void
decide(int tiles, const GkInt16 *s, const GkInt16Scratch *scratch, const float *d2, int32_t *label, uint64_t *open)
{
	const GkInt16Points *x = scratch->points;

	for (int t = 0; t < tiles; t++)
	{
		uint64_t	far = d2 != NULL ? beyond(s, x + t, d2 + t * GK_ROW_PAD, scratch->rows + t) : 0;

		memcpy(label + t * GK_ROW_PAD, scratch->rows[t].label, sizeof(scratch->rows[t].label));
		open[t] = undecided(s, x + t, scratch->rows + t) & ~far;
		for (; far != 0; far &= far - 1)
			label[t * GK_ROW_PAD + __builtin_ctzll(far)] = -1;
	}
}

/* ---- what may be closer than something else ---- */

/* The rows of a block with products within the limits: bits of each of a group of centroids. */
GK_TARGET static __attribute__((noinline)) void
within(const GkInt16Points *x, const int32_t *c, size_t words, const int32_t *half, const int32_t *limit, int row, uint64_t *closer)
{
	__m512i		acc[INT16_GROUP][INT16_VECTORS];

	compute(acc, x, row, c, words, half);
	GK_UNROLL
	for (int q = 0; q < INT16_GROUP; q++)
	{
		GK_UNROLL
		for (int p = 0; p < INT16_VECTORS; p++)
			closer[q] |= (uint64_t) _mm512_cmple_epi32_mask(acc[q][p], _mm512_loadu_si512(limit + row + p * LANES)) << (row + p * LANES);
	}
}

GK_TARGET static void
closer(int tiles, int d, const GkInt16 *s, const GkInt16Scratch *scratch, const float *d2, uint64_t *out)
{
	const GkInt16Points *x = scratch->points;
	size_t		words = gk_int16_words(INT16_UNIT, d);
	size_t		width = (size_t) (s->k + INT16_GROUP - 1) / INT16_GROUP * INT16_GROUP;

	memset(out, 0, tiles * width * sizeof(uint64_t));
	for (int t = 0; t < tiles; t++)
		limits(s, x + t, d2 + t * GK_ROW_PAD, scratch->rows + t);
	begin_products();
	for (int k = 0; k < s->k; k += INT16_GROUP)
		for (int t = 0; t < tiles; t++)
		{
			int32_t		half[LANES];

			halves(s, x + t, k, half);
			for (int row = 0; row < GK_ROW_PAD; row += INT16_VECTORS * LANES)
				within(x + t, s->c + k * words, words, half, scratch->rows[t].limit, row, out + t * width + k);
		}
	end_products();
}

/* ---- what may be the nearest ---- */

GK_TARGET static void
near(const GkInt16 *s, int d, const GkInt16Scratch *scratch, const int *row, int count, GkInt16Near *out)
{
	size_t		words = gk_int16_words(INT16_UNIT, d);
	int32_t		limit[LANES];
	int32_t		shift[LANES];
	float		per[LANES];

	for (int i = 0; i < LANES; i++)
	{
		int			at = row[i < count ? i : 0];
		const GkInt16Points *x = scratch->points + at / GK_ROW_PAD;

		limit[i] = i < count ? scratch->rows[at / GK_ROW_PAD].limit[at % GK_ROW_PAD] : INT32_MIN;
		shift[i] = x->shift;
		per[i] = x->per;
		out[i].count = 0;
		for (size_t w = 0; w < words; w++)
			scratch->few[w * LANES + i] = word(x->y, words, at % GK_ROW_PAD, w);
	}
	begin_products();
	for (int k = 0; k < s->k; k += INT16_GROUP)
	{
		int			some = s->k - k < INT16_GROUP ? s->k - k : INT16_GROUP;
		__m512i		acc[INT16_GROUP];

		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
			acc[q] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_set1_ps(s->half[k + q]), _mm512_loadu_ps(per)));
		products_few(acc, scratch->few, s->c + k * words, words, _mm512_loadu_si512(shift));
		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
			for (unsigned bits = q < some ? _mm512_cmple_epi32_mask(acc[q], _mm512_loadu_si512(limit)) : 0; bits != 0; bits &= bits - 1)
			{
				GkInt16Near *to = &out[__builtin_ctz(bits)];

				if (to->count < GK_INT16_NEAR)
					to->label[to->count] = k + q;
				to->count++;
			}
	}
	end_products();
}

/* What the template has made. */
#define INT16_KERNELS \
	.group = INT16_GROUP,.unit = INT16_UNIT,.apart = INT16_APART,.put = put,.measure = measure, \
	.round = round_tile,.compare = compare,.decide = decide,.near = near,.closer = closer
