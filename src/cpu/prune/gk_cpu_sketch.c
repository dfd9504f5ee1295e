/*
 * gk_cpu_sketch.c - lower bounds of the distances of wide points, from sketches of them.
 *
 * A sketch keeps the features of x with the largest variances, x_H, and of some runs of the others their lengths:
 *   x^ = (x_H, |x_1|, |x_2|, ..).
 * As | |x_g| - |c_g| | <= |x_g - c_g|, |x^ - c^| <= |x - c|; and |x^| = |x|.  So bounds by products of 16-bit integers
 * (gk_cpu_elkan.c) of sketches hold for the points, and multiply a sixth as many numbers.  They are lower than those by all features,
 * by little where the variances fall; a row's own centroid is known to be near, as it was the nearest in the last pass, so
 * few others are left to be compared.  Some tiles are tried first.
 *
 * What rounding does: x less the pivot is off by u |x|, a length by (d / 2 + 2) u of itself, and so a sketch by less than
 * (d + 16) u |x|, which is added to what rounding it to integers loses: of the row's tile and of all centroids.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

typedef struct Variance
{
	double		v;
	int32_t		feature;
} Variance;

/* The largest first. */
static int
by_variance(const void *a, const void *b)
{
	const Variance *x = a;
	const Variance *y = b;

	return x->v > y->v ? -1 : x->v < y->v ? 1 : x->feature < y->feature ? -1 : 1;
}

static bool
order_features(GkSession *s, const float *c, int k)
{
	int			d = s->pts->d;
	double	   *variance = NULL;
	Variance   *of = NULL;
	bool		room = gk_cpu_room(s, &variance, d, sizeof(double)) && gk_cpu_room(s, &of, d, sizeof(Variance));

	if (room)
	{
		gk_cpu_int16_variances(s, c, k, variance);
		for (int j = 0; j < d; j++)
			of[j] = (Variance) {.v = variance[j],.feature = j};
		qsort(of, d, sizeof(Variance), by_variance);
		for (int j = 0; j < d; j++)
			s->sketch.feature[j] = of[j].feature;
	}
	gk_cpu_room_free(s, &variance);
	gk_cpu_room_free(s, &of);
	return room;
}

/* Features of run g of those that are not kept, as places in the order: up to those of g + 1. */
static int
run_first(const GkCpuSketch *k, int d, int g)
{
	return k->head + (int) ((int64_t) (d - k->head) * g / (k->width - k->head));
}

/* ---- centroids ---- */

typedef struct Sketching
{
	const GkInt16Kernels *set;
	GkCpuSketch *to;
	const float *pivot;
	const float *c;
	int			d;
	double	   *lost;			/* [groups] */
} Sketching;

static void
sketch_centroid(void *arg, int64_t q, int thread)
{
	const Sketching *a = arg;
	const GkCpuSketch *k = a->to;
	const float *c = a->c + q * a->d;
	float	   *to = k->c + q * k->width;
	double		all = 0.0;

	(void) thread;
	for (int i = 0; i < k->head; i++)
	{
		double		v = (double) c[k->feature[i]] - (double) a->pivot[k->feature[i]];

		all += v * v;
		to[i] = (float) v;
	}
	for (int g = 0; g < k->width - k->head; g++)
	{
		double		square = 0.0;

		for (int i = run_first(k, a->d, g); i < run_first(k, a->d, g + 1); i++)
		{
			double		v = (double) c[k->feature[i]] - (double) a->pivot[k->feature[i]];

			square += v * v;
		}
		all += square;
		to[k->head + g] = (float) sqrt(square);
	}
	k->square[q] = all;
}

static void
round_group(void *arg, int64_t group, int thread)
{
	const Sketching *a = arg;
	const GkCpuSketch *k = a->to;
	int			some = a->set->group;
	size_t		words = gk_int16_words(a->set->unit, k->width) * some;

	(void) thread;
	memset(k->rounded + group * words, 0, words * sizeof(int32_t));
	a->lost[group] = 0.0;
	for (int q = 0; q < some && group * some + q < k->args.k; q++)
	{
		size_t		at = (size_t) group * some + q;

		a->lost[group] = fmax(a->lost[group],
							  gk_cpu_int16_round_centroid(a->set, k->c + at * k->width, k->width, k->zero, (double) k->args.scale,
														  k->rounded + group * words, q, NULL, &k->half[at]));
	}
}

/* Sketch all centroids and round them. */
static bool
sketch_centroids(GkSession *s, const GkSweep *sweep, const float *c, int k, size_t groups)
{
	GkCpuSketch *to = &s->sketch;
	GkHost		host = s->host;
	Sketching	a = {.set = s->kernels->integers,.to = to,.pivot = s->dot.int16_pivot,.c = c,.d = s->pts->d};
	double		longest = 0.0;
	double		lost = 0.0;
	bool		done;

	if (!gk_cpu_room(s, &a.lost, groups, sizeof(double)))
		return false;
	host.threads = sweep->threads;
	done = s->core->parallel_for(&host, k, sketch_centroid, &a);
	for (int q = 0; done && q < k; q++)
		longest = fmax(longest, to->square[q]);
	longest = sqrt(longest);
	/* those of the centroids themselves are in the same limits: gk_cpu_int16_begin() */
	to->args.scale = (float) (32760.0 / longest * (1.0 - 0x1p-20));
	done = done && s->core->parallel_for(&host, (int64_t) groups, round_group, &a);
	for (size_t g = 0; done && g < groups; g++)
		lost = fmax(lost, a.lost[g]);
	gk_cpu_room_free(s, &a.lost);
	to->args.lost = (float) (1.0001 * (sqrt(lost) / (double) to->args.scale + (s->pts->d + 16) * 0x1p-24 * longest));
	to->args.longest = (float) (1.0001 * longest) + to->args.lost;
	return done;
}

/* ---- points ---- */

/* What a tile takes of a thread's scratch. */
typedef struct Scratch
{
	GkInt16Points points;
	GkInt16Tile tile;
	GkInt16Rows rows;
} Scratch;

/* out [width][GK_ROW_PAD] */
static void
sketch_tile(const GkSession *s, const GkTiles *x, float *out)
{
	const GkCpuSketch *k = &s->sketch;
	const float *pivot = s->dot.int16_pivot;

	for (int i = 0; i < k->head; i++)
	{
		int			j = k->feature[i];

		for (int r = 0; r < GK_ROW_PAD; r++)
			out[i * GK_ROW_PAD + r] = x->x[j * x->stride + r] - pivot[j];
	}
	for (int g = 0; g < k->width - k->head; g++)
	{
		float	   *length = out + (k->head + g) * GK_ROW_PAD;
		float		square[GK_ROW_PAD] = {0};

		for (int i = run_first(k, x->d, g); i < run_first(k, x->d, g + 1); i++)
		{
			int			j = k->feature[i];

			for (int r = 0; r < GK_ROW_PAD; r++)
			{
				float		v = x->x[j * x->stride + r] - pivot[j];

				square[r] += v * v;
			}
		}
		for (int r = 0; r < GK_ROW_PAD; r++)
			length[r] = __builtin_sqrtf(square[r]);
	}
}

/* Lower bounds of a tile: [k][GK_ROW_PAD]. */
static void
bounds_of_tile(GkSession *s, const GkTiles *x, int thread, uint16_t *lower)
{
	const GkInt16Kernels *set = s->kernels->integers;
	const GkCpuSketch *k = &s->sketch;
	Scratch    *of = (Scratch *) (k->scratch + thread * k->scratch_bytes);
	float	   *sketch = (float *) (of + 1);
	int32_t    *y = (int32_t *) (sketch + (size_t) k->width * GK_ROW_PAD);
	GkInt16Scratch in = {.points = &of->points,.tile = &of->tile,.rows = &of->rows,.y = y};
	int			piece = gk_cpu_int16_piece(s, 1, k->width);

	sketch_tile(s, x, sketch);
	of->tile = (GkInt16Tile) {.length = -1.0f};
	of->points = gk_cpu_int16_round_tile(set, &k->args, sketch, GK_ROW_PAD, k->width, 1.0 - 0x1p-20, y, &of->tile);
	for (int i = 0; i < GK_ROW_PAD; i++)
		of->tile.lost[i] += (float) (s->pts->d + 16) * 0x1p-23f * of->tile.length;
	for (int q = 0; q < k->args.k && (q == 0 || !gk_cpu_halt(s)); q += piece)
		set->compare(1, k->width, &k->args, &in, q, q + piece, &s->elkan.args, lower);
}

void
gk_cpu_sketch_bounds(GkSession *s, const GkTiles *x, int thread, const GkElkanRows *kept)
{
	size_t		each = (size_t) s->elkan.k * GK_ROW_PAD;

	for (int t = 0; t < x->count; t++)
	{
		GkTiles		tile = *x;

		tile.x += t * x->tile;
		tile.count = 1;
		bounds_of_tile(s, &tile, thread, kept->lower + t * each);
	}
	for (int i = 0; i < x->count * GK_ROW_PAD; i++)
	{
		kept->upper[i] = UINT16_MAX;
		kept->lower[i / GK_ROW_PAD * each + (size_t) kept->last[i] * GK_ROW_PAD + i % GK_ROW_PAD] = UINT16_MAX;
	}
}

/* ---- does it pay? ---- */

/* Centroids that the bounds of a tile leave its rows beside their own ones. */
static int64_t
left(GkSession *s, const GkCpuTried *tried, const float *c)
{
	const GkElkan *e = &s->elkan.args;
	uint16_t   *lower = s->elkan.lower + (size_t) tried->slot * s->elkan.k;
	const int32_t *last = s->previous + tried->slot;
	int32_t		row[GK_ROW_PAD];
	float		d2[GK_ROW_PAD];
	int64_t		pairs = 0;

	for (int i = 0; i < tried->rows; i++)
		row[i] = i;
	s->kernels->own_distance(tried->x.x, tried->x.stride, row, last, tried->rows, c, tried->x.d, d2);
	bounds_of_tile(s, &tried->x, 0, lower);
	for (int i = 0; i < tried->rows; i++)
	{
		float		upper = __builtin_sqrtf(d2[i]) * e->per;

		for (int q = 0; q < s->elkan.k; q++)
			pairs += q != last[i] && (float) lower[(size_t) q * GK_ROW_PAD + i] <= upper + 4.0f;
	}
	return pairs;
}

static bool
pays(GkSession *s, const float *c)
{
	const GkInt16Kernels *set = s->kernels->integers;
	double		cost = set->cost;
	int			d = s->pts->d;
	int			k = s->elkan.k;
	GkCpuTried	tried[GK_CPU_TRIED];
	int			tiles = gk_cpu_tried_tiles(s, tried);
	int64_t		pairs = 0;
	int64_t		rows = 0;

	for (int t = 0; t < tiles && !s->halted; t++)
	{
		pairs += left(s, &tried[t], c);
		rows += tried[t].rows;
	}
	return (double) rows * (GK_COST_INT16(cost, k, s->sketch.width) + GK_COST_ELKAN_ROW(k, d)) +
		GK_COST_SKETCH_LEFT * (double) pairs * GK_COST_ELKAN_PAIR(set->elkan->pair, d) < (double) rows * GK_COST_INT16(cost, k, d);
}

bool
gk_cpu_sketch_begin(GkSession *s, const GkSweep *sweep, const float *c, int k)
{
	GkCpuSketch *to = &s->sketch;
	const GkInt16Kernels *set = s->kernels->integers;
	int			d = s->pts->d;
	size_t		groups = ((size_t) k + set->group - 1) / set->group;

	if (d < GK_COST_SKETCH_MIN_D)
		return false;
	to->width = (int) (d / GK_COST_SKETCH_SHARE);
	to->head = to->width - to->width / 4;
	to->args.k = k;
	to->scratch_bytes = gk_cpu_region_bytes(sizeof(Scratch) +
											((size_t) to->width + gk_int16_words(set->unit, to->width)) * GK_ROW_PAD * sizeof(float));
	if (!gk_cpu_room(s, &to->feature, d, sizeof(int32_t)) || !gk_cpu_room(s, &to->zero, to->width, sizeof(float)) ||
		!gk_cpu_room(s, &to->c, (size_t) k * to->width, sizeof(float)) || !gk_cpu_room(s, &to->square, k, sizeof(double)) ||
		!gk_cpu_room(s, &to->rounded, groups * set->group * gk_int16_words(set->unit, to->width), sizeof(int32_t)) ||
		!gk_cpu_room(s, &to->half, gk_dot_width(k + GK_INT16_FEW), sizeof(float)) ||
		!gk_cpu_room(s, &to->scratch, sweep->threads, to->scratch_bytes) || !order_features(s, c, k))
		return false;
	memset(to->zero, 0, to->width * sizeof(float));
	to->args.pivot = to->zero;
	to->args.c = to->rounded;
	to->args.half = to->half;
	return sketch_centroids(s, sweep, c, k, groups) && (s->host.skip == GK_SKIP_ON || pays(s, c));
}
