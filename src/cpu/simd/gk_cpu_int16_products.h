/*
 * gk_cpu_int16_products.h - the kernels of gk_cpu_int16.c: nearest centroids by scalar products of 16-bit integers.
 *
 * A template: a file that includes it says how integers lie in memory and how they are multiplied, what
 * products mean is the same for all.  Lanes are points.  Before it come
 *   GK_TARGET, gk_cpu_vector_<set>.h
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
 *   products_few(acc, few, c, words, shift)	the same of GK_INT16_FEW rows, few [words][GK_INT16_FEW], a shift for each:
 *						acc [INT16_GROUP][GK_INT16_FEW / GK_LANES]
 *   add_squares(sum, pair)		add the squares of both features in each lane
 *   begin_products(), end_products()	around them, in each kernel
 */
#include <string.h>

#include "cpu/simd/gk_cpu_elkan_bounds.h"

#define LANES		GK_LANES
#define VECTORS		(GK_ROW_PAD / LANES)
#define FEW_VECTORS	(GK_INT16_FEW / LANES)
/* Above all products, a float; and what centroids past the last one have, above it. */
#define ABOVE		0x1.fffffcp30f
#define NONE		INT32_MAX

/* ---- rounding ---- */

GK_TARGET static void
measure(const float *x, size_t stride, int d, const float *pivot, GkInt16Tile *tile)
{
	vfloat		most = v_zero();
	vfloat		sum[VECTORS];

	GK_UNROLL
	for (int p = 0; p < VECTORS; p++)
		sum[p] = v_zero();
	for (int j = 0; j < d; j++)
	{
		GK_UNROLL
		for (int p = 0; p < VECTORS; p++)
		{
			vfloat		v = v_sub(v_load(x + j * stride + p * LANES), v_set1(pivot[j]));

			most = v_max(most, v_abs(v));
			sum[p] = v_fma(v, v, sum[p]);
		}
	}
	tile->value = v_most(most);
	GK_UNROLL
	for (int p = 1; p < VECTORS; p++)
		sum[0] = v_max(sum[0], sum[p]);
	tile->length = 1.001f * __builtin_sqrtf(v_most(sum[0]));
}

/* Feature j of some rows, 0 from d on. */
GK_INLINE vfloat
scaled(const float *x, size_t stride, int j, int d, const float *pivot, vfloat scale)
{
	return j < d ? v_mul(v_sub(v_load(x + j * stride), v_set1(pivot[j])), scale) : v_zero();
}

/* Features j and j + 1 of them, rounded; adds to what is lost. */
GK_INLINE vlabel
round_pair(const float *x, size_t stride, int j, int d, const float *pivot, vfloat scale, vfloat *lost)
{
	vfloat		a = scaled(x, stride, j, d, pivot, scale);
	vfloat		b = scaled(x, stride, j + 1, d, pivot, scale);
	vfloat		ra = v_rounded(a);
	vfloat		rb = v_rounded(b);
	vfloat		da = v_sub(a, ra);
	vfloat		db = v_sub(b, rb);

	*lost = v_fma(da, da, *lost);
	*lost = v_fma(db, db, *lost);
	return vl_pair(vl_from(ra), vl_from(rb));
}

/* Squares of these rows, summed up exactly: those of two features fit 32 bits, of others where products do. */
typedef struct Squares
{
	vlabel		few;
	vwide		low,
				high;
} Squares;

GK_INLINE void
flush_squares(Squares *s)
{
	s->low = vw_add(s->low, vw_low(s->few));
	s->high = vw_add(s->high, vw_high(s->few));
	s->few = vl_zero();
}

GK_INLINE void
add_square_of(Squares *s, vlabel pair)
{
	add_squares(&s->few, pair);
	if (INT16_APART)
		flush_squares(s);
}

/* Some rows of a tile at a time: registers suffice. */
GK_TARGET static __attribute__((noinline)) void
round_rows(const float *x, size_t stride, int d, const float *pivot, int p, int32_t *y, GkInt16Tile *tile)
{
	const vfloat by = v_set1(tile->scale);
	const double unit = 1.0 / ((double) tile->scale * (double) tile->scale);
	int			words = (int) gk_int16_words(INT16_UNIT, d);
	vfloat		lost = v_zero();
	Squares		square = {vl_zero(), vw_zero(), vw_zero()};

	x += p * LANES;
	for (int w = 0; w < words; w += 2)
	{
		vlabel		a = round_pair(x, stride, 2 * w, d, pivot, by, &lost);
		vlabel		b = round_pair(x, stride, 2 * w + 2, d, pivot, by, &lost);

		add_square_of(&square, a);
		add_square_of(&square, b);
		store_words(y, words, p, w, a, b);
	}
	flush_squares(&square);
	vw_store(tile->square + p * LANES, vw_mul(square.low, vw_set1(unit)), vw_mul(square.high, vw_set1(unit)));
	/* x less the pivot, and its product with the scale, are rounded before it is made an integer */
	v_store(tile->lost + p * LANES, v_fma(v_sqrt(lost), v_set1(1.001f / tile->scale),
										  v_set1(0x1p-23f * tile->length)));
}

GK_TARGET static void
round_tile(const float *x, size_t stride, int d, const float *pivot, int32_t *y, GkInt16Tile *tile)
{
	for (int p = 0; p < VECTORS; p++)
		round_rows(x, stride, d, pivot, p, y, tile);
}

/* ---- products ---- */

/* A group's centroids in whole vectors. */
#define WHOLE_GROUP	((INT16_GROUP + LANES - 1) / LANES * LANES)

/* Half of the squares of a group's centroids, from k on, in a tile's unit. */
GK_INLINE void
halves(const GkInt16 *s, const GkInt16Points *x, int k, int32_t half[WHOLE_GROUP])
{
	for (int q = 0; q < INT16_GROUP; q += LANES)
	{
		vlabel		v = vl_from(v_mul(v_load(s->half + k + q), v_set1(x->per)));

		vl_store(half + q, vl_first(s->k - k - q, v, vl_set1(NONE)));
	}
}

/* Half of the squares less the products, of a block of a tile. */
GK_INLINE void
compute(vlabel acc[INT16_GROUP][INT16_VECTORS], const GkInt16Points *x, int row, const int32_t *c, size_t words, const int32_t *half)
{
	GK_UNROLL
	for (int q = 0; q < INT16_GROUP; q++)
	{
		GK_UNROLL
		for (int p = 0; p < INT16_VECTORS; p++)
			acc[q][p] = vl_set1(half[q]);
	}
	products(acc, block(x->y, words, row), c, words, vl_set1(x->shift));
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
store_bounds(vlabel acc[INT16_GROUP][INT16_VECTORS], const Comparison *by, const GkInt16Points *x, int k, int row, uint16_t *lower)
{
	GK_UNROLL
	for (int p = 0; p < INT16_VECTORS; p++)
	{
		int			at = row + p * LANES;
		vfloat		x2 = v_load(x->tile->square + at);
		vfloat		lost = v_load(x->tile->lost + at);

		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
		{
			vfloat		low = bounds_below(by->s, by->e, x->per, acc[q][p], x2, lost);

			if (k + q == by->s->k)
				break;
			vl_store16(lower + (size_t) (k + q) * GK_ROW_PAD + at, kept_bounds(low, v_set1(by->e->moved_down[k + q])));
		}
	}
}

/* Of a group from k on: keep the least, which it is, and the second; and bounds. */
GK_TARGET static __attribute__((noinline)) void
compare_group(const Comparison *by, const GkInt16Points *x, const int32_t *half, int k, GkInt16Rows *rows, int row, uint16_t *lower)
{
	vlabel		acc[INT16_GROUP][INT16_VECTORS];

	compute(acc, x, row, by->s->c + k * by->words, by->words, half);
	if (by->e != NULL)
		store_bounds(acc, by, x, k, row, lower);
	GK_UNROLL
	for (int p = 0; p < INT16_VECTORS; p++)
	{
		int			at = row + p * LANES;
		vlabel		least = vl_load(rows->least + at);
		vlabel		second = vl_load(rows->second + at);
		vlabel		label = vl_load(rows->label + at);

		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
		{
			vmask		less = vl_less(acc[q][p], least);

			second = vl_min(second, vl_max(acc[q][p], least));
			least = vl_min(least, acc[q][p]);
			label = vl_pick(less, vl_set1(k + q), label);
		}
		vl_store(rows->least + at, least);
		vl_store(rows->second + at, second);
		vl_store(rows->label + at, label);
	}
}

/* ---- what is certain: the names are those of gk_cpu_int16.c ---- */

/* Rows with the second no farther behind the least than may be wrong; and the limit of what may be the nearest. */
GK_TARGET static uint64_t
undecided(const GkInt16 *s, const GkInt16Points *x, GkInt16Rows *rows)
{
	const float unit = 1.0f / x->per;
	const vfloat e_c = v_set1(s->lost);
	uint64_t	open = 0;

	for (int i = 0; i < GK_ROW_PAD; i += LANES)
	{
		vlabel		least = vl_load(rows->least + i);
		vlabel		gap = vl_sub(vl_load(rows->second + i), least);
		vlabel		room = vl_sub(vl_set1((int32_t) ABOVE), least);
		vfloat		e_x = v_load(x->tile->lost + i);
		vfloat		x2 = v_load(x->tile->square + i);
		vfloat		s2 = v_mul(v_from(least), v_set1(2.0f * unit));
		vfloat		above = v_fma(v_add(x2, v_abs(s2)), v_set1(0x1p-20f),
								  v_set1(2.0f * GK_INT16_OFF * unit));
		vfloat		r = v_sqrt(v_add(v_max(v_add(x2, s2), v_zero()), above));
		vfloat		reach = v_add(r, e_x);
		vfloat		t = v_fma(v_set1(s->relative), v_add(reach, e_c), v_add(e_c, e_c));
		vfloat		both = v_add(t, v_add(e_x, e_x));
		vfloat		by_length = v_fma(v_set1(2.0f * s->longest), e_x,
									  v_mul(t, v_fma(t, v_set1(0.5f), reach)));
		vfloat		by_distance = v_mul(both, v_fma(both, v_set1(0.5f), r));
		vfloat		wrong = v_fma(v_min(by_length, by_distance), v_set1(1.001f * x->per),
								  v_set1(2.0f * GK_INT16_OFF + 1.0f));

		/* what is not a number becomes the largest one */
		vlabel		limit = vl_from_unsigned(v_min(wrong, v_set1(4e9f)));

		open |= (uint64_t) (vl_more_unsigned(gap, limit) ^ ((1u << LANES) - 1)) << i;
		vl_store(rows->limit + i, vl_add(least, vl_min_unsigned(limit, room)));
	}
	return open;
}

/* The products of centroids as near as d2 says, at least: no closer one has a larger product.  Rows i and on. */
GK_INLINE vlabel
limit_of(const GkInt16 *s, const GkInt16Points *x, const float *d2, int i)
{
	vfloat		e_x = v_load(x->tile->lost + i);
	vfloat		x2 = v_load(x->tile->square + i);
	vfloat		r = v_fma(v_sqrt(v_load(d2 + i)), v_set1(1.0f + s->relative),
						  v_add(e_x, v_set1(s->lost)));
	vfloat		r2 = v_mul(r, r);
	vfloat		above = v_fma(v_add(r2, x2), v_set1(0x1p-18f), v_sub(r2, x2));
	vfloat		limit = v_fma(above, v_set1(0.5f * x->per), v_set1(GK_INT16_OFF + 1.0f));

	/* what is not a number becomes the largest one, which no centroid past the last one is below */
	return vl_from(v_min(limit, v_set1(ABOVE)));
}

GK_TARGET static void
limits(const GkInt16 *s, const GkInt16Points *x, const float *d2, GkInt16Rows *rows)
{
	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		vl_store(rows->limit + i, limit_of(s, x, d2, i));
}

/* Rows whose least product says that no centroid is as near as d2. */
GK_TARGET static uint64_t
beyond(const GkInt16 *s, const GkInt16Points *x, const float *d2, const GkInt16Rows *rows)
{
	uint64_t	far = 0;

	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		far |= (uint64_t) vl_more(vl_load(rows->least + i), limit_of(s, x, d2, i)) << i;
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
			vl_store(rows->least + i, vl_set1(NONE));
			vl_store(rows->second + i, vl_set1(NONE));
			vl_store(rows->label + i, vl_zero());
		}
	}
	begin_products();
	for (int k = k0; k < end; k += INT16_GROUP)
		for (int t = 0; t < tiles; t++)
		{
			int32_t		half[WHOLE_GROUP];

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
	vlabel		acc[INT16_GROUP][INT16_VECTORS];

	compute(acc, x, row, c, words, half);
	GK_UNROLL
	for (int q = 0; q < INT16_GROUP; q++)
	{
		GK_UNROLL
		for (int p = 0; p < INT16_VECTORS; p++)
			closer[q] |= (uint64_t) vl_at_most(acc[q][p], vl_load(limit + row + p * LANES)) << (row + p * LANES);
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
			int32_t		half[WHOLE_GROUP];

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
	int32_t		limit[GK_INT16_FEW];
	int32_t		shift[GK_INT16_FEW];
	float		per[GK_INT16_FEW];

	for (int i = 0; i < GK_INT16_FEW; i++)
	{
		int			at = row[i < count ? i : 0];
		const GkInt16Points *x = scratch->points + at / GK_ROW_PAD;

		limit[i] = i < count ? scratch->rows[at / GK_ROW_PAD].limit[at % GK_ROW_PAD] : INT32_MIN;
		shift[i] = x->shift;
		per[i] = x->per;
		out[i].count = 0;
		for (size_t w = 0; w < words; w++)
			scratch->few[w * GK_INT16_FEW + i] = word(x->y, words, at % GK_ROW_PAD, w);
	}
	begin_products();
	for (int k = 0; k < s->k; k += INT16_GROUP)
	{
		int			some = s->k - k < INT16_GROUP ? s->k - k : INT16_GROUP;
		vlabel		acc[INT16_GROUP][FEW_VECTORS];

		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
		{
			GK_UNROLL
			for (int p = 0; p < FEW_VECTORS; p++)
				acc[q][p] = vl_from(v_mul(v_set1(s->half[k + q]), v_load(per + p * LANES)));
		}
		products_few(acc, scratch->few, s->c + k * words, words, shift);
		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
		{
			unsigned	bits = 0;

			GK_UNROLL
			for (int p = 0; q < some && p < FEW_VECTORS; p++)
				bits |= vl_at_most(acc[q][p], vl_load(limit + p * LANES)) << (p * LANES);
			for (; bits != 0; bits &= bits - 1)
			{
				GkInt16Near *to = &out[__builtin_ctz(bits)];

				if (to->count < GK_INT16_NEAR)
					to->label[to->count] = k + q;
				to->count++;
			}
		}
	}
	end_products();
}

/* What the template has made. */
#define INT16_KERNELS \
	.group = INT16_GROUP,.unit = INT16_UNIT,.apart = INT16_APART,.put = put,.measure = measure, \
	.round = round_tile,.compare = compare,.decide = decide,.near = near,.closer = closer
