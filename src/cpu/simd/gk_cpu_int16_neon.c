/*
 * gk_cpu_int16_neon.c - products of 16-bit integers (gk_cpu_int16_products.h) for 64-bit ARM.
 *
 * One instruction multiplies a feature of 4 points by that of a centroid and adds, as one of floats does, of which most
 * processors begin twice as many at a time (Arm, software optimization guides of Neoverse N1 to V2). What they are for is
 * bounds, which spare most of the passes after the first, and candidates of seeding.
 * A register tile is 16 points against 6 centroids: 24 of the 32 registers.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_NEON

#define GK_TARGET

#include "cpu/simd/gk_cpu_vector_neon.h"

#define INT16_GROUP		6
#define INT16_VECTORS	4

/* Words that rows are fetched ahead of their products. */
#define AHEAD	16

GK_INLINE void
add_products(int32x4_t *sum, int32x4_t a, int32x4_t b)
{
	int16x8_t	x = vreinterpretq_s16_s32(a);
	int16x8_t	y = vreinterpretq_s16_s32(b);

	*sum = vl_add(*sum, vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
}

GK_INLINE void
add_any_products(int32x4_t *sum, int32x4_t a, int32x4_t b)
{
	int16x8_t	x = vreinterpretq_s16_s32(a);
	int16x8_t	y = vreinterpretq_s16_s32(b);

	*sum = vmlal_high_s16(vmlal_s16(*sum, vget_low_s16(x), vget_low_s16(y)), x, y);
}

/* Of 16 rows and centroid q: its features are lanes 2 at and 2 at + 1 of c, which have to be constants. */
#define ADD_FEATURE(q, y, f, c, lane) \
	acc[q][0] = vmlal_laneq_s16(acc[q][0], vget_low_s16(y[0].val[f]), c, lane); \
	acc[q][1] = vmlal_high_laneq_s16(acc[q][1], y[0].val[f], c, lane); \
	acc[q][2] = vmlal_laneq_s16(acc[q][2], vget_low_s16(y[1].val[f]), c, lane); \
	acc[q][3] = vmlal_high_laneq_s16(acc[q][3], y[1].val[f], c, lane)
#define ADD_CENTROID(q, y, c, at) \
	ADD_FEATURE(q, y, 0, c, 2 * (at)); \
	ADD_FEATURE(q, y, 1, c, 2 * (at) + 1)

/* 16 rows of words, `pitch` words apart, and a group of centroids. */
GK_INLINE void
multiply_rows(int32x4_t acc[INT16_GROUP][INT16_VECTORS], const int32_t *y, size_t pitch, const int32_t *c, size_t words)
{
	for (size_t w = 0; w < words; w++, y += pitch, c += INT16_GROUP)
	{
		/* features 0 of the rows, and features 1 */
		int16x8x2_t rows[2] = {vld2q_s16((const int16_t *) y), vld2q_s16((const int16_t *) (y + 8))};
		int16x8_t	first = vld1q_s16((const int16_t *) c);
		int16x8_t	last = vld1q_s16((const int16_t *) (c + 2));

		__builtin_prefetch(y + AHEAD * pitch);
		ADD_CENTROID(0, rows, first, 0);
		ADD_CENTROID(1, rows, first, 1);
		ADD_CENTROID(2, rows, first, 2);
		ADD_CENTROID(3, rows, first, 3);
		ADD_CENTROID(4, rows, last, 2);
		ADD_CENTROID(5, rows, last, 3);
	}
}

GK_INLINE void
products(int32x4_t acc[INT16_GROUP][INT16_VECTORS], const int32_t *y, const int32_t *c, size_t words, int32x4_t shift)
{
	(void) shift;
	multiply_rows(acc, y, GK_ROW_PAD, c, words);
}

GK_INLINE void
products_few(int32x4_t acc[INT16_GROUP][GK_INT16_FEW / GK_LANES], const int32_t *few, const int32_t *c, size_t words, const int32_t *shift)
{
	(void) shift;
	multiply_rows(acc, few, GK_INT16_FEW, c, words);
}

#include "cpu/simd/gk_cpu_int16_words.h"

#define ELKAN_DENSE		128
#define ELKAN_PAIR		5.0
#define ELKAN_CALM		384.0
#define ELKAN_LEAST_D	128
#include "cpu/simd/gk_cpu_elkan_search.h"

/* cost, ELKAN_*: by these guides and the instructions, no such processor was there to time them on */
const GkInt16Kernels gk_int16_neon = {
	INT16_KERNELS,
	.unrounded = unrounded,
	.compare_two = compare_two,
	.cost = 2.75,
	/* one tile against 100,000 centroids of 768 features */
	.longest = 1200,
	.elkan = &elkan_kernels
};

#endif							/* GK_CPU_NEON */
