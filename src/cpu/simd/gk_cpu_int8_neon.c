/*
 * gk_cpu_int8_neon.c - products of 8-bit integers (gk_cpu_int8.c) for 64-bit ARM with dot products (ARMv8.2).
 *
 * One instruction multiplies and adds four features of 4 points, four times what one of floats or of 16-bit integers does.
 * A register tile is 16 points against 6 centroids: 24 of the 32 registers.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_DOTPROD

#ifdef __ARM_FEATURE_DOTPROD
#define GK_TARGET
#else
#define GK_TARGET	__attribute__((target("arch=armv8.2-a+dotprod")))
#endif

#include "cpu/simd/gk_cpu_vector_neon.h"

#define INT8_GROUP		6
#define INT8_VECTORS	4
#define INT8_ADDED		0

#include "cpu/simd/gk_cpu_int8_round.h"

static double
value_of(const float *c, const GkInt8 *s, int i)
{
	int32_t		j = s->feature[i];

	return j >= 0 ? (double) c[j] - (double) s->pivot[j] : 0.0;
}

static void
round_centroid(const float *c, const GkInt8 *s, int32_t *word, GkInt8Centroid *of)
{
	double		most = (double) GK_INT8_SMALLEST;
	double		scale;
	double		square = 0.0;
	double		lost = 0.0;

	for (int run = 0, i = 0; run < s->runs; run++)
		for (; i < 4 * s->end[run]; i++)
			most = fmax(most, fabs(value_of(c, s, i)) * (1 << s->finer[run]));
	scale = scale_of_centroid(most);
	/* what is too large, or no number, has no integers */
	memset(word, 0, s->words * sizeof(int32_t));
	for (int run = 0, i = 0; scale > 0.0 && run < s->runs; run++)
	{
		double		finer = 1 << s->finer[run];

		for (; i < 4 * s->end[run]; i++)
		{
			double		v = value_of(c, s, i) * scale * finer;
			double		r = rint(v);

			square += r * r / (finer * finer);
			lost += (v - r) * (v - r) / (finer * finer);
			((int8_t *) word)[i] = (int8_t) r;
		}
	}
	*of = rounded_centroid(s, scale, 0.0, square, lost);
}

/* Of 16 rows and centroid q: its features are a lane of c, which has to be a constant. */
#define ADD_CENTROID(q, c, lane) \
	acc[q][0] = vdotq_laneq_s32(acc[q][0], rows[0], c, lane); \
	acc[q][1] = vdotq_laneq_s32(acc[q][1], rows[1], c, lane); \
	acc[q][2] = vdotq_laneq_s32(acc[q][2], rows[2], c, lane); \
	acc[q][3] = vdotq_laneq_s32(acc[q][3], rows[3], c, lane)

GK_INLINE void
add_word(int32x4_t acc[INT8_GROUP][INT8_VECTORS], const int32_t *y, const int32_t *c)
{
	int8x16_t	rows[INT8_VECTORS];
	int8x16_t	first = vld1q_s8((const int8_t *) c);
	int8x16_t	last = vld1q_s8((const int8_t *) (c + 2));

	GK_UNROLL
	for (int p = 0; p < INT8_VECTORS; p++)
		rows[p] = vld1q_s8((const int8_t *) (y + p * GK_LANES));
	ADD_CENTROID(0, first, 0);
	ADD_CENTROID(1, first, 1);
	ADD_CENTROID(2, first, 2);
	ADD_CENTROID(3, first, 3);
	ADD_CENTROID(4, last, 2);
	ADD_CENTROID(5, last, 3);
}

#include "cpu/simd/gk_cpu_int8_words.h"

/* cost: by the instructions, no ARM processor was there to time them on */
const GkInt8Kernels gk_int8_neon = {
	.group = INT8_GROUP,.unit = 1,.cost = 0.35,.put = put,
	.round = round_points,.round_centroid = round_centroid,.closer = closer,.guess = guess
};

#endif							/* GK_CPU_DOTPROD */
