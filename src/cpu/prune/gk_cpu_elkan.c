/*
 * gk_cpu_elkan.c - steps that compare a row only with the centroids that its bounds leave, by products of 16-bit integers.
 *
 * C. Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003: a row keeps an upper bound of the distance to
 * its own centroid and a lower bound of that to each other one. When centroids move, the first grows by what its own
 * moved, each of the others shrinks by what that centroid moved. Of wide points and some hundred clusters nearly all rows
 * have some centroid that one bound for all of them (gk_cpu_hamerly.c) does not rule out, since one that moves far counts
 * for all; but soon these are few. What is new:
 *  - Distances are those of rounded points and centroids (gk_cpu_int16.c), less or more what rounding may be off.
 *  - Bounds are 16-bit integers in a unit of length. Lower bounds are not written while centroids move: M_j adds up what
 *    centroid j has moved, a row keeps L + M_j as of when the bound was made, and c_j is farther while that exceeds U + M_j.
 *    That of its own centroid is the largest number, so that it is not open for that.
 *  - Of two centroids that stand still, the one that was nearer still is: most are, at the end of a fit.
 *  - The first pass has its bounds from the product of all rows and centroids, or of sketches of them (gk_cpu_sketch.c).
 *    Later ones multiply pair by pair, which takes three to ten times as long for each, but of a tile of rows and a group of
 *    centroids with many pairs left, all.
 *
 * Why the labels are the canonical ones. U >= |x - c_a| (1 + G), with G of gk_cpu_int16.c: if |x - c_j| >= L > U, the
 * canonical distance to c_j is larger than that to c_a. So the nearest centroid is among c_a and those that are compared,
 * and of these decides what always does. |x - c_j| is no less than |x' - c'_j| - e - E, and |x - c_a| no more than
 * |x' - c'_a| + e + E, where |x' - c'|^2 = |x'|^2 + 2 q s is off by what the kernels add. Bounds are rounded away from each
 * other by a unit at least; M_j is rounded down where it is added to a bound, and up where it is added to U. U is tightened
 * by s_a before other centroids are compared. A bound that does not fit 16 bits is the largest number: as U it rules out
 * nothing, as L it is smaller than the true one.  Of a row that products do not decide, canonical distances to all that
 * the bounds leave then tell the nearest.
 */
#include <math.h>
#include <string.h>

#include "cpu/prune/gk_cpu_prune.h"

/* When M exceeds this, the bounds are made anew. */
#define MOST_MOVED	(UINT16_MAX / 2)

static size_t
bytes(const GkSession *s, int k)
{
	return s->all_rows * sizeof(uint16_t) * ((size_t) k + 1);
}

/* Is there room, also for rounded points, without which it would not pay?  Those of 8 bits are given back for it. */
static bool
fits(const GkSession *s, int k)
{
	size_t		more = s->dot.int16_tile == NULL ? gk_cpu_int16_kept_bytes(s) : 0;

	return (s->elkan.k == k ? 0 : bytes(s, k)) + more <= gk_cpu_spare(s) + s->int8.bytes;
}

bool
gk_cpu_elkan_possible(const GkSession *s, int k)
{
	return s->host.skip != GK_SKIP_OFF && (s->host.skip == GK_SKIP_ON || s->pts->n >= GK_COST_BOUNDS_MIN_ROWS) &&
		gk_cpu_dot_possible(s, k) && gk_cpu_int16_possible(s, k) && s->kernels->integers->elkan != NULL && !gk_cpu_hamerly_first(s, k) &&
		s->pts->resident && fits(s, k) &&
		(double) GK_ROW_PAD * s->pts->d * k <= GK_COST_ELKAN_LONGEST * (double) s->kernels->job_work;
}

bool
gk_cpu_elkan_wanted(const GkSession *s, int k)
{
	const GkCpuElkan *e = &s->elkan;

	if (!gk_cpu_elkan_possible(s, k))
		return false;
	if (s->host.skip == GK_SKIP_ON || (e->valid && e->k == k))
		return true;
	return (double) s->changed <= (e->calm > 0 ? (double) e->calm : (double) s->pts->n / GK_COST_ELKAN_CALM(s->kernels->integers->elkan->calm, s->pts->d));
}

void
gk_cpu_elkan_forget(GkSession *s)
{
	GkCpuElkan *e = &s->elkan;

	gk_cpu_room_free(s, &e->lower);
	gk_cpu_room_free(s, &e->upper);
	e->valid = false;
	s->dot.int16_of_elkan = false;
	e->bytes = 0;
	e->k = e->strikes = 0;
	e->calm = 0;
}

static bool
rooms(GkSession *s, int k)
{
	GkCpuElkan *e = &s->elkan;
	int			d = s->pts->d;

	if (e->k != k)
	{
		int64_t		calm = e->calm;

		gk_cpu_elkan_forget(s);
		e->calm = calm;
	}
	e->args.words = ((size_t) d + GK_INT16_PUT - 1) / GK_INT16_PUT * GK_INT16_PUT / 2;
	if (!gk_cpu_tile_room(s, &e->lower, (size_t) k * GK_ROW_PAD * sizeof(uint16_t)) ||
		!gk_cpu_tile_room(s, &e->upper, GK_ROW_PAD * sizeof(uint16_t)) ||
		!gk_cpu_room(s, &e->last, (size_t) k * d, sizeof(float)) || !gk_cpu_room(s, &e->c, (size_t) k * e->args.words, sizeof(int32_t)) ||
		!gk_cpu_room(s, &e->sum, k, sizeof(double)) || !gk_cpu_room(s, &e->move, k, sizeof(uint16_t)) ||
		!gk_cpu_room(s, &e->moved, k, sizeof(uint16_t)) || !gk_cpu_room(s, &e->active, k, sizeof(int32_t)) ||
		!gk_cpu_room(s, &e->moved_down, k, sizeof(float)))
	{
		gk_cpu_elkan_forget(s);
		return false;
	}
	e->k = k;
	e->bytes = bytes(s, k);
	return true;
}

/* A length in units, rounded up. */
static uint16_t
rounded_up(const GkCpuElkan *e, double length)
{
	double		v = ceil(length * (double) e->args.per * (1.0 + 0x1p-20));

	return v < UINT16_MAX ? (uint16_t) v : UINT16_MAX;
}

/* Nothing has moved yet; and a unit that leaves room for moves. */
static void
start(GkSession *s)
{
	GkCpuElkan *e = &s->elkan;
	double		longest = (double) s->dot.int16.longest;

	for (size_t t = s->first_tile; t < s->end_tile; t++)
		longest = fmax(longest, (double) s->dot.int16_tile[t].length);
	e->args.per = (float) (UINT16_MAX / 8.0 / longest);
	memset(e->sum, 0, e->k * sizeof(double));
	memset(e->move, 0, e->k * sizeof(uint16_t));
	memset(e->moved, 0, e->k * sizeof(uint16_t));
	memset(e->moved_down, 0, e->k * sizeof(float));
}

typedef struct Follow
{
	GkCpuElkan *e;
	const float *c;
	int			d;
	bool		ties;
} Follow;

/* Add the move of a centroid since the last step. */
static void
follow_centroid(void *arg, int64_t q, int thread)
{
	const Follow *f = arg;
	GkCpuElkan *e = f->e;
	const float *now = f->c + q * f->d;
	float	   *last = e->last + q * f->d;
	double		square = 0.0;
	double		length;

	(void) thread;
	if (memcmp(now, last, f->d * sizeof(float)) == 0)
	{
		/* two that stand still are not compared, which would tell if they are as near */
		e->move[q] = f->ties;
		return;
	}
	for (int j = 0; j < f->d; j++)
	{
		double		t = (double) now[j] - (double) last[j];

		square += t * t;
	}
	memcpy(last, now, f->d * sizeof(float));
	length = sqrt(square) * (1.0 + 0x1p-30);
	e->sum[q] = (e->sum[q] + length) * (1.0 + 0x1p-50);
	/* 0 only if it has not moved, but for the sign of a 0 */
	e->move[q] = rounded_up(e, length * (double) e->args.widen);
	if (e->move[q] == 0)
		e->move[q] = f->ties;
	e->moved[q] = rounded_up(e, e->sum[q]);
	e->moved_down[q] = (float) (e->sum[q] * (double) e->args.per * (1.0 - 0x1p-20));
}

/* Add the moves since the last step; false: they are too many for the bounds. */
static bool
follow(GkSession *s, const GkSweep *sweep, const float *c, bool ties)
{
	GkCpuElkan *e = &s->elkan;
	Follow		f = {.e = e,.c = c,.d = s->pts->d,.ties = ties};
	GkHost		host = s->host;
	uint16_t	most = 0;

	host.threads = sweep->threads;
	if (!s->core->parallel_for(&host, e->k, follow_centroid, &f))
		return false;
	e->args.groups = 0;
	for (int q = 0; q < e->k; q++)
	{
		int			group = q / s->kernels->integers->group;

		most = e->moved[q] > most ? e->moved[q] : most;
		if (e->move[q] != 0 && (e->args.groups == 0 || e->active[e->args.groups - 1] != group))
			e->active[e->args.groups++] = group;
	}
	return most <= MOST_MOVED;
}

/* As if each centroid had moved: all pairs are looked at. */
static void
compare_all(GkSession *s)
{
	GkCpuElkan *e = &s->elkan;
	int			group = s->kernels->integers->group;

	for (int q = 0; q < e->k; q++)
		e->move[q] = 1;
	e->args.groups = (e->k + group - 1) / group;
	for (int g = 0; g < e->args.groups; g++)
		e->active[g] = g;
}

bool
gk_cpu_elkan_begin(GkSession *s, GkSweep *sweep, const float *c, int k, bool ties)
{
	GkCpuElkan *e = &s->elkan;
	GkSweep		plain = *sweep;
	GkError		ignored;

	/* 8 bits are not asked any more */
	gk_cpu_int8_end(s);
	if (!rooms(s, k))
		return false;
	if (gk_cpu_dot_begin(s, sweep, c, k, true, &ignored) != GK_OK || s->dot.int16.k == 0 || s->dot.int16_tile == NULL)
	{
		*sweep = plain;
		gk_cpu_elkan_forget(s);
		return false;
	}
	e->args.widen = 1.0f + s->dot.int16.relative;
	e->args.c = e->c;
	e->args.move = e->move;
	e->args.active = e->active;
	e->args.moved = e->moved;
	e->args.moved_down = e->moved_down;
	e->fresh = !e->valid || !follow(s, sweep, c, ties);
	e->by_sketch = false;
	if (e->fresh)
	{
		start(s);
		memcpy(e->last, c, (size_t) k * s->pts->d * sizeof(float));
		e->by_sketch = gk_cpu_sketch_begin(s, sweep, c, k);
	}
	if (e->by_sketch)
		compare_all(s);
	s->dot.int16_of_elkan = true;
	e->pairs = 0;
	e->valid = false;			/* until the pass is through */
	return true;
}

/* The lower bound of a row and a centroid. */
static uint16_t *
lower_bound(const GkCpuElkan *e, int64_t slot, int q)
{
	return e->lower + (size_t) slot / GK_ROW_PAD * e->k * GK_ROW_PAD + (size_t) q * GK_ROW_PAD + slot % GK_ROW_PAD;
}

/* The lower bounds of rows' own centroids are the largest number; those of the last ones say nothing any more. */
static void
mark_own(const GkCpuElkan *e, int64_t slot, const int32_t *label, const int32_t *last, int rows)
{
	for (int i = 0; i < rows; i++)
	{
		bool		changed = (!e->fresh || e->by_sketch) && label[i] != last[i];

		if (changed)
			*lower_bound(e, slot + i, last[i]) = 0;
		if (changed || (e->fresh && !e->by_sketch))
			*lower_bound(e, slot + i, label[i]) = UINT16_MAX;
	}
}

bool
gk_cpu_elkan_labels(GkSession *s, const GkBlock *b, int32_t *label)
{
	GkCpuElkan *e = &s->elkan;
	GkTiles		x = gk_cpu_tiles(s, b);
	int			some = gk_cpu_int16_tiles(s, x.d);
	int64_t		pairs = 0;

	for (int first = 0; first < x.count; first += some)
	{
		GkTiles		now = x;
		int			row = first * GK_ROW_PAD;
		int64_t		slot = b->slot + row;
		int			end = b->rows - row;
		GkElkanRows kept = {.last = s->previous + slot,.upper = e->upper + slot,.lower = lower_bound(e, slot, 0)};

		now.x += first * x.tile;
		now.count = x.count - first < some ? x.count - first : some;
		end = end < now.count * GK_ROW_PAD ? end : now.count * GK_ROW_PAD;
		pairs += gk_cpu_int16_search(s, &now, slot, end, b->thread, &kept, label + row);
		if (s->halted)
			return false;
		/* rows past the end have the last label of any */
		mark_own(e, slot, label + row, kept.last, end);
		mark_own(e, slot + end, kept.last + end, kept.last + end, now.count * GK_ROW_PAD - end);
	}
	__atomic_fetch_add(&e->pairs, pairs, __ATOMIC_RELAXED);
	return true;
}

void
gk_cpu_elkan_end(GkSession *s)
{
	GkCpuElkan *e = &s->elkan;
	int			d = s->pts->d;
	double		n = (double) s->pts->n;
	double		cost = n * GK_COST_ELKAN_ROW(e->k, d);

	e->valid = true;
	if (e->fresh)
		return;
	cost += (double) e->pairs * GK_COST_ELKAN_PAIR(s->kernels->integers->elkan->pair, d);
	if (cost < n * gk_cpu_dot_cost(s, e->k))
		e->strikes = 0;
	else if (++e->strikes >= GK_COST_BOUNDS_STRIKES && s->host.skip == GK_SKIP_AUTO)
	{
		gk_cpu_elkan_forget(s);
		e->calm = s->changed / GK_COST_BOUNDS_CALMER + 1;
	}
}
