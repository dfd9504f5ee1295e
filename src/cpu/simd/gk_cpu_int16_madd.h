/*
 * gk_cpu_int16_madd.h - products of 16-bit integers (gk_cpu_int16_words.h) by instructions that multiply and add two
 * features of each lane.  Before it come GK_TARGET, gk_cpu_vector_<set>.h, INT16_GROUP, INT16_VECTORS and
 *   add_products(sum, a, b)	add the products of the features of two vectors of words to those of each lane
 */

/* Words that rows are fetched ahead of their products: a page. */
#define AHEAD	16
/* Floats of a cache line. */
#define LINE	16

GK_INLINE void
add_any_products(vlabel *sum, vlabel a, vlabel b)
{
	add_products(sum, a, b);
}

GK_INLINE void
products(vlabel acc[INT16_GROUP][INT16_VECTORS], const int32_t *y, const int32_t *c, size_t words, vlabel shift)
{
	(void) shift;
	for (size_t w = 0; w < words; w++, y += GK_ROW_PAD, c += INT16_GROUP)
	{
		vlabel		v[INT16_VECTORS];

		GK_UNROLL
		for (int p = 0; p < INT16_VECTORS; p++)
			v[p] = vl_load(y + p * GK_LANES);
		/* processors do not fetch beyond a page by themselves */
		GK_UNROLL
		for (int i = 0; i < INT16_VECTORS * GK_LANES; i += LINE)
			__builtin_prefetch(y + AHEAD * GK_ROW_PAD + i);
		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
		{
			vlabel		b = vl_set1(c[q]);

			GK_UNROLL
			for (int p = 0; p < INT16_VECTORS; p++)
				add_products(&acc[q][p], v[p], b);
		}
	}
}

GK_INLINE void
products_few(vlabel acc[INT16_GROUP][GK_INT16_FEW / GK_LANES], const int32_t *few, const int32_t *c, size_t words, const int32_t *shift)
{
	(void) shift;
	for (size_t w = 0; w < words; w++, few += GK_INT16_FEW, c += INT16_GROUP)
	{
		vlabel		v[GK_INT16_FEW / GK_LANES];

		GK_UNROLL
		for (int p = 0; p < GK_INT16_FEW / GK_LANES; p++)
			v[p] = vl_load(few + p * GK_LANES);
		GK_UNROLL
		for (int q = 0; q < INT16_GROUP; q++)
		{
			GK_UNROLL
			for (int p = 0; p < GK_INT16_FEW / GK_LANES; p++)
				add_products(&acc[q][p], v[p], vl_set1(c[q]));
		}
	}
}
