/*
 * gk_cpu_int8_words.h - products of 8-bit integers (gk_cpu_int8.c) by instructions that multiply and add four features of
 * each lane.
 *
 * Rounded points are [words][GK_ROW_PAD], a group of centroids [words][INT8_GROUP]: four features in a word. A template:
 * lanes are points. Before it come GK_TARGET, gk_cpu_vector_<set>.h, INT8_GROUP, INT8_VECTORS and
 *   add_word(acc, y, c)	add the products of a word of INT8_VECTORS vectors of rows and of a group of centroids:
 *						acc [INT8_GROUP][INT8_VECTORS]
 */
#include "cpu/simd/gk_cpu_int8_closer.h"

static void
put(int32_t *group, int words, int q, const int32_t *word)
{
	for (int w = 0; w < words; w++)
		group[w * INT8_GROUP + q] = word[w];
}

/* In units of the last run. */
GK_INLINE void
products(vlabel acc[INT8_GROUP][INT8_VECTORS], const int32_t *y, const int32_t *c, const GkInt8 *s)
{
	GK_UNROLL
	for (int q = 0; q < INT8_GROUP; q++)
	{
		GK_UNROLL
		for (int p = 0; p < INT8_VECTORS; p++)
			acc[q][p] = vl_zero();
	}
	for (int run = 0, w = 0; run < s->runs; run++)
	{
		int			finer = s->finer[run] - (run + 1 < s->runs ? s->finer[run + 1] : 0);

		for (; w < s->end[run]; w++, y += GK_ROW_PAD, c += INT8_GROUP)
			add_word(acc, y, c);
		if (finer == 0)
			continue;
		GK_UNROLL
		for (int q = 0; q < INT8_GROUP; q++)
		{
			GK_UNROLL
			for (int p = 0; p < INT8_VECTORS; p++)
				acc[q][p] = vl_right_by(acc[q][p], 2 * finer);
		}
	}
}

GK_TARGET static __attribute__((noinline)) void
within(const GkInt8Points *x, const GkInt8 *s, int k, int row, const float *d2, uint64_t *closer)
{
	vlabel		acc[INT8_GROUP][INT8_VECTORS];

	products(acc, x->y + row, s->c + (size_t) k * s->words, s);
	GK_UNROLL
	for (int p = 0; p < INT8_VECTORS; p++)
	{
		int			at = row + p * GK_LANES;
		vfloat		scale = v_load(x->tile->scale + at);
		vfloat		above;
		vfloat		reach;

		limits(s, x->tile, d2 + at, at, &above, &reach);
		GK_UNROLL
		for (int q = 0; q < INT8_GROUP; q++)
		{
			uint64_t	bits = (uint64_t) may_be_closer(acc[q][p], s->of + k + q, scale, above, reach) << at;

			closer[q] = at == 0 ? bits : closer[q] | bits;
		}
	}
}

GK_TARGET static __attribute__((noinline)) void
keep_least(const GkInt8Points *x, const GkInt8 *s, int k, int row, float *least, int32_t *label)
{
	vlabel		acc[INT8_GROUP][INT8_VECTORS];

	products(acc, x->y + row, s->c + (size_t) k * s->words, s);
	GK_UNROLL
	for (int p = 0; p < INT8_VECTORS; p++)
	{
		int			at = row + p * GK_LANES;
		Nearest		so_far = {v_load(least + at), vl_load(label + at)};

		GK_UNROLL
		for (int q = 0; q < INT8_GROUP; q++)
			if (k + q < s->k)
				so_far = nearer(so_far, acc[q][p], s->of + k + q, v_load(x->tile->scale + at), k + q);
		v_store(least + at, so_far.least);
		vl_store(label + at, so_far.label);
	}
}

GK_INLINE void
begin_products(void)
{
}

GK_INLINE void
end_products(void)
{
}

#define INT8_SCAN	INT8_GROUP
#include "cpu/simd/gk_cpu_int8_scan.h"
