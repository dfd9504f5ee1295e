/*
 * gk_cpu_int8_round.h - round points to 8-bit integers (gk_cpu_int8.c), and what is kept of a rounded centroid.
 *
 * A template: lanes are points. Before it come GK_TARGET, gk_cpu_vector_<set>.h and
 *   INT8_ADDED	what is added to each integer of a point, where products take these without a sign; or 0
 */
#include <math.h>
#include <string.h>

/* The largest value of centroids that is rounded. */
#define LARGEST		0x1p+40
/* What rounding may take off a product. */
#define OFF			4.0

/* Vectors of rows that are rounded at a time: a feature of them is read at once, as each feature may be in another page. */
#define ROUNDED		4

GK_INLINE void
load_feature(vfloat v[ROUNDED], const float *x, size_t stride, int32_t j, const float *pivot)
{
	GK_UNROLL
	for (int p = 0; p < ROUNDED; p++)
		v[p] = j >= 0 ? v_sub(v_load(x + j * stride + p * GK_LANES), v_set1(pivot[j])) : v_zero();
}

/* The scale of each row. */
GK_TARGET static void
scale_rows(const float *x, size_t stride, const GkInt8 *s, float *scale)
{
	vfloat		most[ROUNDED];

	GK_UNROLL
	for (int p = 0; p < ROUNDED; p++)
		most[p] = v_set1(GK_INT8_SMALLEST);
	for (int run = 0, i = 0; run < s->runs; run++)
	{
		const vfloat finer = v_set1((float) (1 << s->finer[run]));

		for (; i < 4 * s->end[run]; i++)
		{
			vfloat		v[ROUNDED];

			load_feature(v, x, stride, s->feature[i], s->pivot);
			GK_UNROLL
			for (int p = 0; p < ROUNDED; p++)
				most[p] = v_max(most[p], v_mul(v_abs(v[p]), finer));
		}
	}
	GK_UNROLL
	for (int p = 0; p < ROUNDED; p++)
		v_store(scale + p * GK_LANES, v_div(v_set1(127.0f), most[p]));
}

/* The words of a run, from w on: what they add to the squares, and to what is lost. */
GK_TARGET static void
round_run(const float *x, size_t stride, const GkInt8 *s, int run, int w, int32_t *y, const float *scale, float *square_of, float *lost_of)
{
	const vfloat weight = v_set1(1.0f / (float) (1 << 2 * s->finer[run]));
	vfloat		by[ROUNDED];
	vfloat		square[ROUNDED];
	vfloat		lost[ROUNDED];

	GK_UNROLL
	for (int p = 0; p < ROUNDED; p++)
	{
		by[p] = v_mul(v_load(scale + p * GK_LANES), v_set1((float) (1 << s->finer[run])));
		square[p] = v_zero();
		lost[p] = v_zero();
	}
	for (; w < s->end[run]; w++)
	{
		vlabel		word[ROUNDED];

		GK_UNROLL
		for (int p = 0; p < ROUNDED; p++)
			word[p] = vl_set1((int32_t) (INT8_ADDED * 0x01010101u));
		GK_UNROLL
		for (int f = 0; f < 4; f++)
		{
			vfloat		v[ROUNDED];

			load_feature(v, x, stride, s->feature[4 * w + f], s->pivot);
			GK_UNROLL
			for (int p = 0; p < ROUNDED; p++)
			{
				vfloat		r;

				v[p] = v_mul(v[p], by[p]);
				r = v_rounded(v[p]);
				v[p] = v_sub(v[p], r);
				square[p] = v_fma(r, r, square[p]);
				lost[p] = v_fma(v[p], v[p], lost[p]);
				/* (128 is added to a byte by turning its highest bit) */
				word[p] = vl_xor(word[p], vl_left_by(vl_and(vl_from(r), vl_set1(255)), 8 * f));
			}
		}
		GK_UNROLL
		for (int p = 0; p < ROUNDED; p++)
			vl_store(y + w * GK_ROW_PAD + p * GK_LANES, word[p]);
	}
	GK_UNROLL
	for (int p = 0; p < ROUNDED; p++)
	{
		v_store(square_of + p * GK_LANES, v_fma(square[p], weight, v_load(square_of + p * GK_LANES)));
		v_store(lost_of + p * GK_LANES, v_fma(lost[p], weight, v_load(lost_of + p * GK_LANES)));
	}
}

GK_TARGET static void
round_points(const float *x, size_t stride, const GkInt8 *s, int32_t *y, GkInt8Tile *tile)
{
	memset(tile->square, 0, sizeof(tile->square));
	memset(tile->lost, 0, sizeof(tile->lost));
	for (int i = 0; i < GK_ROW_PAD; i += ROUNDED * GK_LANES)
	{
		scale_rows(x + i, stride, s, tile->scale + i);
		for (int run = 0, w = 0; run < s->runs; w = s->end[run++])
			round_run(x + i, stride, s, run, w, y + i, tile->scale + i, tile->square + i, tile->lost + i);
	}
	for (int i = 0; i < GK_ROW_PAD; i += GK_LANES)
	{
		vfloat		unit = v_div(v_set1(1.0f), v_load(tile->scale + i));
		vfloat		square = v_mul(v_mul(v_load(tile->square + i), unit), unit);
		vfloat		lost = v_mul(v_sqrt(v_load(tile->lost + i)), unit);

		v_store(tile->square + i, square);
		/* x less the pivot, and its product with the scale, are rounded before it is made an integer */
		v_store(tile->lost + i, v_fma(lost, v_set1(1.001f), v_fma(v_sqrt(square), v_set1(0x1p-22f), v_set1(GK_INT8_TINY))));
	}
}

/* What gk_cpu_int8.c calls B, by the largest value times its g; 0: too large for what is added up. */
static double
scale_of_centroid(double most)
{
	return most <= LARGEST ? (double) (float) (127.0 / most * (1.0 - 0x1p-20)) : 0.0;
}

/*
 * A centroid by its scale and, over the squares of the g, the sums of its integers, of their squares and of the squares of
 * what rounding has taken off.
 */
static GkInt8Centroid
rounded_centroid(const GkInt8 *s, double scale, double sum, double square, double lost)
{
	double		slack = (double) s->relative + 0x1p-17;

	/* it may always be closer */
	if (scale == 0.0)
		return (GkInt8Centroid) {.scale = 1.0f,.half = -INFINITY};
	lost = 1.001 * sqrt(lost) / scale + GK_INT8_TINY;
	square = square / scale / scale;
	return (GkInt8Centroid) {.scale = (float) scale,.lost = (float) (scale * lost),
		.half = (float) (0.5 * scale * (square * (1.0 - slack) - lost * lost * (1.0 + slack))),
		.offset = (int32_t) rint(INT8_ADDED * sum - OFF)};
}
