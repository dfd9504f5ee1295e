/*
 * gk_cpu_int8_labels.c - labels of wide points by products of 8-bit integers: each row is compared with the centroids that may
 * be nearer than its last one.
 *
 * The canonical distance to the centroid of the last label, or in a first pass of one that rounded values say is about the
 * nearest of some, is a limit, D.  Products (gk_cpu_int8.c) tell which centroids may be as near: of wide points with
 * structure a few in a thousand, of which canonical distances then tell the nearest, ties to the lowest label.  So nothing
 * else has to be proved: a centroid that is left out is farther than D.
 *
 * Where rows are not nearer to their centroids than to others by more than 8 bits tell, all may be nearer.  So some tiles are
 * tried first, and points of which that is so do without for some passes.
 */
#include <math.h>
#include <string.h>

#include "cpu/prune/gk_cpu_prune.h"

/* One tile's rows. */
typedef struct TileLabels
{
	const GkSession *s;
	int64_t		slot;			/* of the first one */
	float	   *d2;
	int32_t    *label;
} TileLabels;

static void
take_nearer(void *arg, const int32_t *row, const int32_t *label, const float *is, int count)
{
	const TileLabels *t = arg;

	for (int i = 0; i < count; i++)
	{
		int			at = row[i];

		if (is[i] == t->d2[at])
			gk_cpu_dot_tied(t->s, t->slot + at);
		if (is[i] < t->d2[at] || (is[i] == t->d2[at] && label[i] < t->label[at]))
		{
			t->d2[at] = is[i];
			t->label[at] = label[i];
		}
	}
}

/* Canonical distances of a tile's first rows to the centroids that they begin with, and limits that ties are below. */
static void
last_distances(const GkSession *s, const GkTiles *tile, const float *c, const int32_t *last, int rows, float *d2, float *below)
{
	int32_t		row[GK_ROW_PAD];

	for (int i = 0; i < rows; i++)
		row[i] = i;
	s->kernels->own_distance(tile->x, tile->stride, row, last, rows, c, tile->d, d2);
	for (int i = 0; i < GK_ROW_PAD; i++)
		below[i] = i < rows ? nextafterf(d2[i], INFINITY) : 0.0f;
}

/*
 * Labels, valid ones after the last row, too, and distances of at most gk_cpu_int8_tiles() tiles: how many pairs may have been
 * nearer.
 */
static int64_t
label_tiles(GkSession *s, const GkTiles *x, int64_t slot, int rows, int thread, const float *c, int k, int32_t *label, float *d2)
{
	float		below[GK_INT16_TILES * GK_ROW_PAD];
	uint64_t   *closer;
	size_t		width;
	int64_t		pairs = 0;

	if (s->int8.known)
	{
		memset(label, 0, x->count * GK_ROW_PAD * sizeof(int32_t));
		memcpy(label, s->previous + slot, rows * sizeof(int32_t));
	}
	else
		gk_cpu_int8_guess(s, x, slot, thread, label);
	for (int t = 0; t < x->count; t++)
	{
		int			at = t * GK_ROW_PAD;
		GkTiles		tile = *x;

		tile.x += t * x->tile;
		last_distances(s, &tile, c, label + at, rows - at < GK_ROW_PAD ? rows - at : GK_ROW_PAD, d2 + at, below + at);
	}
	if (gk_cpu_halt(s))
		return 0;
	closer = gk_cpu_int8_closer(s, x, slot, thread, below, &width);
	for (int t = 0; t < x->count && !s->halted; t++)
	{
		int			at = t * GK_ROW_PAD;
		int			some = rows - at < GK_ROW_PAD ? rows - at : GK_ROW_PAD;
		GkTiles		tile = *x;
		TileLabels	to = {s, slot + at, d2 + at, label + at};

		for (int i = 0; i < some; i++)
			closer[t * width + label[at + i]] &= ~(UINT64_C(1) << i);
		tile.x += t * x->tile;
		pairs += gk_cpu_closer_pairs(s, &tile, c, k, closer + t * width, some, thread, take_nearer, &to);
	}
	return pairs;
}

void
gk_cpu_int8_labels(GkSession *s, const GkBlock *b, const float *c, int k, int32_t *label, float *d2)
{
	GkTiles		x = gk_cpu_tiles(s, b);
	int			tiles = gk_cpu_int8_tiles(s, k);
	int64_t		pairs = 0;

	for (int from = 0; from < b->tiles; from += tiles)
	{
		int			at = from * GK_ROW_PAD;
		int			rows = b->rows - at < tiles * GK_ROW_PAD ? b->rows - at : tiles * GK_ROW_PAD;
		GkTiles		now = x;
		float		is[GK_INT16_TILES * GK_ROW_PAD];

		now.x += from * x.tile;
		now.count = b->tiles - from < tiles ? b->tiles - from : tiles;
		pairs += label_tiles(s, &now, b->slot + at, rows, b->thread, c, k, label + at, is);
		if (d2 != NULL)
			memcpy(d2 + at, is, rows * sizeof(float));
	}
	__atomic_fetch_add(&s->int8.pairs, pairs, __ATOMIC_RELAXED);
}

/* Do these rows with their pairs take less time than with products of 16 bits or floats?  Each row has one pair of its own. */
static bool
pay(const GkSession *s, double rows, double pairs, int k, bool known)
{
	double		d = s->pts->d;
	double		products = known ? 1.0 : 1.0 + (double) gk_cpu_int8_guessed(s, k) / k;
	double		saved = k * d * (fmin(s->kernels->integers->cost, GK_COST_DOT_FEATURE) - products * s->kernels->bytes->cost);

	return GK_COST_INT8_PAIR(d) * (pairs + rows) <= saved * rows;
}

/*
 * Do without for some passes, each time for more: when centroids have found their places, fewer may be nearer.  A first pass says
 * nothing of the others, which know labels: it does without alone.
 */
static void
do_without(GkSession *s)
{
	gk_cpu_int8_end(s);
	if (s->int8.known)
		s->int8.wait = s->int8.waited = 2 * s->int8.waited + 1;
}

/* Try some tiles. */
static bool
try_tiles(GkSession *s, const float *c, int k)
{
	GkCpuTried	tried[GK_CPU_TRIED];
	int			tiles = gk_cpu_tried_tiles(s, tried);
	int64_t		pairs = 0;
	int64_t		rows = 0;

	for (int t = 0; t < tiles && !s->halted; t++)
	{
		int32_t		label[GK_ROW_PAD];
		float		d2[GK_ROW_PAD];

		pairs += label_tiles(s, &tried[t].x, tried[t].slot, tried[t].rows, 0, c, k, label, d2);
		rows += tried[t].rows;
	}
	return pay(s, (double) rows, (double) pairs, k, s->int8.known);
}

/* Are they possible, and do they pay where each row has one pair more? */
static bool
wanted(const GkSession *s, const GkSweep *sweep, int k, bool known)
{
	return gk_cpu_int8_possible(s) && s->pts->resident && s->pts->d >= GK_COST_INT8_LABELS_D &&
		gk_cpu_dot_wanted(s, sweep, k) && gk_cpu_int16_possible(s, k) && pay(s, 1.0, 1.0, k, known) &&
		s->kernels->bytes->cost * (double) GK_ROW_PAD * s->pts->d * k <= GK_COST_INT8_LONGEST * (double) s->kernels->job_work;
}

bool
gk_cpu_int8_labels_begin(GkSession *s, GkSweep *sweep, const float *c, int k, bool known)
{
	GkSweep		plain = *sweep;
	bool		first = s->int8.y == NULL;
	GkError		ignored;

	if (!wanted(s, sweep, k, known) || s->int8.wait-- > 0)
		return false;
	s->int8.wait = 0;
	s->int8.pairs = 0;
	s->int8.known = known;
	s->halted = false;
	if (gk_cpu_int8_begin(s, sweep, c, k, &ignored) == GK_OK && s->int8.y != NULL && (!first || try_tiles(s, c, k)))
		return true;
	*sweep = plain;
	do_without(s);
	return false;
}

void
gk_cpu_int8_labels_end(GkSession *s, int k)
{
	if (s->int8.known && !pay(s, (double) s->pts->n, (double) s->int8.pairs, k, true))
		do_without(s);
}
