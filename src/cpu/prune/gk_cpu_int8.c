/*
 * gk_cpu_int8.c - which of many centroids may be closer to a point than D, by scalar products of 8-bit integers.
 *
 * Seeding knows D, the squared distance to the nearest seed, and only few new seeds are closer; an iteration knows that
 * to the centroid that was the nearest (gk_cpu_int8_labels.c).  For that question 8 bits do where every row and centroid
 * has a scale of its own: twice as fast as 16 bits, or four times, which tell which one is nearest (gk_cpu_int16.c).
 * Below x and c stand for x - p and c - p, with the pivot p that 16 bits have.
 *
 * Row x becomes y_j = A g_j x_j, rounded to -127 .. 127, and centroid c becomes b_j = B g_j c_j.  g_j = 2^finer, the
 * same for all, makes features of small variance as fine as others.  With x' = y_j / (A g_j), c' likewise,
 * e = |x - x'|, E = |c - c'|: c is not closer if |x' - c'| is at least R = r + E, r = sqrt(D) (1 + G) + e, where G is what a
 * canonical distance may be off (gk_cpu_dot.c).  So it may be closer only if
 *   x' c' > (|x'|^2 + |c'|^2 - R^2) / 2, that is
 *   A B x' c' > A B (|c'|^2 - E^2) / 2 - A (r^2 - |x'|^2) / 2 B - A r B E.
 * The left side is the sum of y_j b_j / g_j^2.  Features are in order of falling g_j, and between two runs of equal g_j
 * the sum so far is shifted.
 *
 * What rounding does to this: a shift takes off less than 1, all of them less than 4/3, and the offset that makes
 * points positive is off by 1/2; 4 are added.  Sums of d squares are off by d u < G, the rest by some u: G + 2^-17 of
 * |x'|^2 + |c'|^2 + R^2 are added.  Nothing overflows: 255 * 127 * 16,384 < 2^31.  Where the right side is not a number,
 * the centroid may be closer.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Bytes of rounded points that stay in the second-level cache. */
#define CACHE_BYTES		((size_t) 768 << 10)
/* Bits of some tiles and all centroids, at most. */
#define CLOSER_BYTES	((size_t) 4 << 20)
/* With fewer tiles at a time, centroids are waited for. */
#define LEAST_TILES		4

bool
gk_cpu_int8_possible(const GkSession *s)
{
	return s->kernels->bytes != NULL && !s->int8.useless && s->host.skip != GK_SKIP_OFF && s->pts->d >= GK_COST_INT16_MIN_D;
}

int
gk_cpu_int8_tiles(const GkSession *s, int k)
{
	size_t		tiles = CACHE_BYTES / (s->pts->d * (size_t) GK_ROW_PAD);
	size_t		most = CLOSER_BYTES / (k * sizeof(uint64_t));
	double		job = GK_COST_INT8_JOB * (double) s->kernels->job_work / (s->kernels->bytes->cost * (double) GK_ROW_PAD * s->pts->d * k);

	tiles = tiles < most ? tiles : most;
	most = job > LEAST_TILES ? (size_t) job : LEAST_TILES;
	tiles = tiles < most ? tiles : most;
	return tiles < 1 ? 1 : tiles > GK_INT16_TILES ? GK_INT16_TILES : (int) tiles;
}

/* By how many octaves may a feature's scale be finer than that of the largest variance? */
static int
octaves(double variance, double largest)
{
	int			n = 0;

	for (; n < GK_INT8_RUNS - 1 && 2.0 * variance < largest; n++)
		variance *= 4.0;
	return n;
}

/* The largest number of octaves that all features have but `most` of them, which are to have none. */
static int
finest(const int32_t *octave, int d, int most)
{
	int			count[GK_INT8_RUNS] = {0};
	int			n = 0;

	for (int j = 0; j < d; j++)
		count[octave[j]]++;
	for (int below = 0, i = 0; i < GK_INT8_RUNS && below <= most; below += count[i++])
		if (count[i] > 0)
			n = i;
	return n;
}

/* The finer all others' scales, the fewer pairs are left; but coarse features may take time (GkInt8Kernels.coarse). */
static void
choose_octaves(const GkInt8Kernels *set, const double *variance, int d, int32_t *octave)
{
	double		largest = 0.0;
	int			most = d / GK_COST_INT8_COARSE;
	int			fine;

	for (int j = 0; j < d; j++)
		largest = fmax(largest, variance[j]);
	for (int j = 0; j < d; j++)
		octave[j] = octaves(variance[j], largest);
	if (set->coarse == 0)
		return;
	most = most < GK_COST_INT8_COARSE_LEAST ? GK_COST_INT8_COARSE_LEAST : most > set->coarse ? set->coarse : most;
	fine = finest(octave, d, most);
	for (int j = 0; j < d; j++)
		octave[j] = octave[j] < fine ? 0 : fine;
}

/* Put features of the same scale together, the finest first. */
static bool
order_features(GkSession *s, const float *c, int k)
{
	GkCpuInt8  *b = &s->int8;
	const GkInt8Kernels *set = s->kernels->bytes;
	int			d = s->pts->d;
	int			unit = 4 * set->unit;
	int32_t    *to;
	int32_t    *octave = NULL;
	double	   *variance = NULL;
	bool		room = gk_cpu_room(s, &variance, d, sizeof(double)) && gk_cpu_room(s, &octave, d, sizeof(int32_t)) &&
	gk_cpu_room(s, &b->feature, d + (size_t) GK_INT8_RUNS * unit, sizeof(int32_t));

	if (room)
	{
		gk_cpu_int16_variances(s, c, k, variance);
		choose_octaves(set, variance, d, octave);
		to = b->feature;
		b->args.runs = 0;
		for (int n = GK_INT8_RUNS - 1; n >= 0; n--)
		{
			int32_t    *first = to;

			for (int j = 0; j < d; j++)
				if (octave[j] == n)
					*to++ = j;
			if (to == first)
				continue;
			while ((to - first) % unit != 0)
				*to++ = -1;
			/* two words */
			unit = set->coarse > 0 ? 8 : unit;
			b->args.finer[b->args.runs] = n;
			b->args.end[b->args.runs++] = (int) (to - b->feature) / 4;
		}
		b->args.words = (int) (to - b->feature) / 4;
		b->args.feature = b->feature;
	}
	gk_cpu_room_free(s, &octave);
	gk_cpu_room_free(s, &variance);
	return room;
}

/* Keep rounded points, if there is room beside the pairs of a batch, which save more. */
static void
keep(GkSession *s)
{
	GkCpuInt8  *b = &s->int8;
	size_t		tiles = s->all_rows / GK_ROW_PAD;
	size_t		words = (size_t) b->args.words * GK_ROW_PAD;
	size_t		all = tiles * (words * sizeof(int32_t) + sizeof(GkInt8Tile));
	size_t		spare = gk_cpu_spare(s);

	if (b->tile != NULL || !s->pts->resident || all > spare || gk_cpu_ahead_bytes(s) > spare - all)
		return;
	if (!gk_cpu_tile_room(s, &b->y, words * sizeof(int32_t)) || !gk_cpu_tile_room(s, &b->tile, sizeof(GkInt8Tile)))
	{
		gk_cpu_room_free(s, &b->y);
		return;
	}
	memset(b->tile + s->first_tile, 0, tiles * sizeof(GkInt8Tile));
	b->bytes = all;
}

void
gk_cpu_int8_end(GkSession *s)
{
	gk_cpu_room_free(s, &s->int8.feature);
	gk_cpu_room_free(s, &s->int8.y);
	gk_cpu_room_free(s, &s->int8.tile);
	s->int8.bytes = 0;
	s->int8.useless = false;
}

void
gk_cpu_int8_give_up(GkSession *s)
{
	gk_cpu_int8_end(s);
	s->int8.useless = true;
}

typedef struct Rounding
{
	const GkInt8Kernels *set;
	GkCpuInt8  *to;
	const float *c;
	int			d;
} Rounding;

static void
round_group(void *arg, int64_t group, int thread)
{
	const Rounding *r = arg;
	GkCpuInt8  *to = r->to;
	int			some = r->set->group;
	int			k = (int) group * some;
	size_t		words = (size_t) to->args.words * some;

	(void) thread;
	memset(to->c + group * words, 0, words * sizeof(int32_t));
	memset(to->of + k, 0, some * sizeof(GkInt8Centroid));
	for (int q = 0; q < some && k + q < to->args.k; q++)
	{
		int32_t		word[GK_INT8_WORDS];

		r->set->round_centroid(r->c + (size_t) (k + q) * r->d, &to->args, word, &to->of[k + q]);
		r->set->put(to->c + group * words, to->args.words, q, word);
	}
}

GkStatus
gk_cpu_int8_begin(GkSession *s, GkSweep *sweep, const float *c, int k, GkError *err)
{
	GkCpuInt8  *b = &s->int8;
	GkHost		host = s->host;
	const GkInt8Kernels *set = s->kernels->bytes;
	Rounding	r = {.set = set,.to = b,.c = c,.d = s->pts->d};
	size_t		groups = ((size_t) k + set->group - 1) / set->group;
	size_t		each = sizeof(GkInt8Points) + groups * set->group * sizeof(uint64_t);

	gk_cpu_dot_plan(s, sweep, k, gk_cpu_int8_tiles(s, k), gk_cpu_int16_possible(s, k));
	sweep->job_work *= set->cost;
	if (!gk_cpu_int16_pivot(s))
		return gk_cpu_out_of_memory(err);
	b->args.pivot = s->dot.int16_pivot;
	/* rounded points are kept, so the first centroids have to do */
	if (b->feature == NULL && !order_features(s, c, k))
		return gk_cpu_out_of_memory(err);
	keep(s);
	if (b->y == NULL)
		each += b->args.words * GK_ROW_PAD * sizeof(int32_t) + sizeof(GkInt8Tile);
	b->scratch_bytes = gk_cpu_region_bytes(gk_cpu_int8_tiles(s, k) * each);
	if (!gk_cpu_room(s, &b->c, groups * set->group * b->args.words, sizeof(int32_t)) ||
		!gk_cpu_room(s, &b->of, groups * set->group, sizeof(GkInt8Centroid)) ||
		!gk_cpu_room(s, &b->scratch, sweep->threads, b->scratch_bytes) || !gk_cpu_closer_room(s, sweep->threads))
		return gk_cpu_out_of_memory(err);
	b->args.c = b->c;
	b->args.of = b->of;
	b->args.k = k;
	b->args.relative = (float) (1.02 * (s->pts->d + 3) * 0x1p-24);
	host.threads = sweep->threads;
	return s->core->parallel_for(&host, (int64_t) groups, round_group, &r) ? GK_OK : GK_STOPPED;
}

/* Tiles from row `slot` on, rounded, and the room behind them for bits [tiles][*width], in a thread's scratch. */
static GkInt8Points *
rounded_tiles(GkSession *s, const GkTiles *x, int64_t slot, int thread, uint64_t **closer, size_t *width)
{
	const GkInt8Kernels *set = s->kernels->bytes;
	GkCpuInt8  *b = &s->int8;
	size_t		words = (size_t) b->args.words * GK_ROW_PAD;
	int			tiles = gk_cpu_int8_tiles(s, b->args.k);
	GkInt8Points *points = (GkInt8Points *) (b->scratch + thread * b->scratch_bytes);
	bool		kept = b->y != NULL;
	GkInt8Tile *tile;
	int32_t    *y;

	*closer = (uint64_t *) (points + tiles);
	*width = (size_t) (b->args.k + set->group - 1) / set->group * set->group;
	tile = kept ? b->tile + slot / GK_ROW_PAD : (GkInt8Tile *) (*closer + tiles * *width);
	y = kept ? b->y + slot / GK_ROW_PAD * words : (int32_t *) (tile + tiles);
	for (int t = 0; t < x->count; t++)
	{
		points[t] = (GkInt8Points) {.y = y + t * words,.tile = tile + t};
		if (!kept || points[t].tile->scale[0] == 0.0f)
			set->round(x->x + t * x->tile, x->stride, &b->args, points[t].y, points[t].tile);
	}
	return points;
}

uint64_t *
gk_cpu_int8_closer(GkSession *s, const GkTiles *x, int64_t slot, int thread, const float *d2, size_t *width)
{
	uint64_t   *closer;
	const GkInt8Points *points = rounded_tiles(s, x, slot, thread, &closer, width);

	s->kernels->bytes->closer(x->count, &s->int8.args, points, d2, closer);
	return closer;
}

int
gk_cpu_int8_guessed(const GkSession *s, int k)
{
	double		d = s->pts->d;
	int			group = s->kernels->bytes->group;
	int			some = (int) sqrt(GK_COST_INT8_PAIR(d) * k / (d * s->kernels->bytes->cost));

	some = (some + group - 1) / group * group;
	/* the rest takes less time than what a worse guess leaves */
	return 2 * some < k ? some : k;
}

void
gk_cpu_int8_guess(GkSession *s, const GkTiles *x, int64_t slot, int thread, int32_t *label)
{
	GkInt8		some = s->int8.args;
	uint64_t   *closer;
	size_t		width;

	some.k = gk_cpu_int8_guessed(s, some.k);
	s->kernels->bytes->guess(x->count, &some, rounded_tiles(s, x, slot, thread, &closer, &width), label);
}

/* One tile's D, and the nearest seeds of its rows. */
typedef struct TileNearest
{
	float	   *d2;
	int32_t    *nearest;		/* NULL: not to be kept */
	int			first;			/* the number of seed 0 */
} TileNearest;

static void
take_closer(void *arg, const int32_t *row, const int32_t *label, const float *is, int count)
{
	const TileNearest *t = arg;

	for (int i = 0; i < count; i++)
		if (is[i] < t->d2[row[i]])
		{
			t->d2[row[i]] = is[i];
			if (t->nearest != NULL)
				t->nearest[row[i]] = t->first + label[i];
		}
}

int64_t
gk_cpu_int8_nearest(GkSession *s, const GkBlock *b, const float *c, int k, int first, float *d2, int32_t *nearest)
{
	GkTiles		x = gk_cpu_tiles(s, b);
	int			tiles = gk_cpu_int8_tiles(s, k);
	int64_t		pairs = 0;

	for (int from = 0; from < b->tiles; from += tiles)
	{
		GkTiles		now = x;
		const uint64_t *closer;
		size_t		width;

		now.x += from * x.tile;
		now.count = b->tiles - from < tiles ? b->tiles - from : tiles;
		closer = gk_cpu_int8_closer(s, &now, b->slot + from * GK_ROW_PAD, b->thread, d2 + from * GK_ROW_PAD, &width);
		for (int t = 0; t < now.count; t++)
		{
			int			at = (from + t) * GK_ROW_PAD;
			GkTiles		tile = now;
			TileNearest to = {d2 + at, nearest != NULL ? nearest + at : NULL, first};

			tile.x += t * x.tile;
			pairs += gk_cpu_closer_pairs(s, &tile, c, k, closer + t * width, b->rows - at, b->thread, take_closer, &to);
		}
	}
	return pairs;
}
