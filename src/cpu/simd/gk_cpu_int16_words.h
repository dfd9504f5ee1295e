/*
 * gk_cpu_int16_words.h - products of 16-bit integers (gk_cpu_int16_products.h) of words of two features
 * side by side.
 *
 * Rounded points are [words][GK_ROW_PAD], a group of centroids [words][INT16_GROUP]: two features in a word. Before it come
 * GK_TARGET, gk_cpu_vector_<set>.h, INT16_GROUP and INT16_VECTORS, products() and products_few(), and
 *   add_products(sum, a, b)	add the products of the features of two vectors of words to those of each lane
 *   add_any_products(sum, a, b)	the same, but to any lanes
 */
#define INT16_UNIT		2
#define INT16_APART		false

GK_INLINE void
store_words(int32_t *y, int words, int p, int w, vlabel a, vlabel b)
{
	vl_store(y + w * GK_ROW_PAD + p * GK_LANES, a);
	if (w + 1 < words)
		vl_store(y + (w + 1) * GK_ROW_PAD + p * GK_LANES, b);
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

GK_INLINE void
add_squares(vlabel *sum, vlabel pair)
{
	add_products(sum, pair, pair);
}

#include "cpu/simd/gk_cpu_int16_products.h"

#ifndef vl_every_row_pad
/* By loads: there is no gather, or it is no faster. */
GK_INLINE vlabel
every_row_pad(int n, const int32_t *p)
{
	int32_t		word[LANES] = {0};

	for (int i = 0; i < LANES && i < n; i++)
		word[i] = p[i * GK_ROW_PAD];
	return vl_load(word);
}
#define vl_every_row_pad(n, p)	every_row_pad(n, p)
#endif

/* Both features of some words, in order. */
GK_TARGET static void
unrounded(const GkInt16Points *x, int row, int d, float *z)
{
	const vfloat unit = v_set1(1.0f / x->tile->scale);

	for (int j = 0; j < d; j += 2 * LANES)
	{
		int			left = d - j;
		vlabel		v = vl_every_row_pad((left + 1) / 2, x->y + j / 2 * GK_ROW_PAD + row);
		vfloat		even = v_mul(v_from(vl_right(vl_left(v, 16), 16)), unit);
		vfloat		odd = v_mul(v_from(vl_right(v, 16)), unit);

		v_store_first(left, z + j, v_zip_low(even, odd));
		if (left > LANES)
			v_store_first(left - LANES, z + j + LANES, v_zip_high(even, odd));
	}
}

GK_TARGET static void
compare_two(const float *z, const float *pivot, const float *ci, const float *cj, int d, GkInt16Apart *out)
{
	vfloat		farther = v_zero();
	vfloat		square = v_zero();
	vfloat		between = v_zero();

	for (int j = 0; j < d; j += LANES)
	{
		int			left = d - j;
		vfloat		p = v_load_first(left, pivot + j);
		vfloat		x = v_load_first(left, z + j);
		vfloat		i = v_load_first(left, ci + j);
		vfloat		k = v_load_first(left, cj + j);
		vfloat		from_i = v_sub(v_sub(i, p), x);
		vfloat		from_k = v_sub(v_sub(k, p), x);
		vfloat		apart = v_sub(k, i);

		farther = v_fma(apart, v_add(from_i, from_k), farther);
		square = v_fma(from_i, from_i, square);
		between = v_fma(apart, apart, between);
	}
	*out = (GkInt16Apart) {.farther = v_total(farther),.square = v_total(square),
		.between = v_total(between),.additions = d / LANES + 5};
}
