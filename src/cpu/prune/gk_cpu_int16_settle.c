/*
 * gk_cpu_int16_settle.c - rows whose nearest centroid products of 16-bit integers (gk_cpu_int16.c) leave undecided.
 *
 * Canonical distances decide, but they need the points themselves, whose features lie far from each other in memory.  So
 * first the centroids themselves are compared by the rounded row, as centroids lose more by being rounded than rows.  With
 * the names of gk_cpu_int16.c, a = c_j - c_i and r = |x' - c_i|:
 *   - |x - c_j|^2 - |x - c_i|^2 = D - 2 (x - x') a, with D = a ((c_j - x') + (c_i - x')), and the last product is at most
 *     2 e |a|.
 *   - The canonical distance to c_j is larger if the difference of the squares exceeds that of (1 + G)^2 and 1 times
 *     |x - c_i|^2, which is at most (r + e)^2.
 *   - D in floats, with u = 2^-24, Z the largest length of the tile's rows and n the additions in a row: x' is off by 2 u of
 *     itself; each other operation rounds; |c - x'| is at most C + Z.  So the second factor is off by at most 8 u (C + Z),
 *     the first by u of itself, and the sum of their products by n u of 2 |a| (C + Z).
 *   - r is off by 2 u (C + Z), and so the last bound by 8.1 G r u (C + Z).  D, which is at most |a| (2 r + |a|), can exceed
 *     that bound only where |a| is at least G r: the 8.1 u |a| (C + Z) join those of D, (2 n + 19) u |a| (C + Z) in all.
 * So D > |a| (2 e + (2 n + 24) u (C + Z)) + 2.01 G (r + e)^2 decides, with 1 % for roundings of |a| and the bound, and as
 * |x'| may exceed Z by half of that, and 2^-120 for what underflow does.  Of embeddings this leaves a tenth.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Features of a row that are fetched ahead. */
#define AHEAD	16

/* The centroids that bounds leave of a row, as GkElkanKernels.search() does, and its last one, whose lower bound says nothing. */
static void
near_by_bounds(const GkSession *s, const GkElkanRows *kept, int row, GkInt16Near *out)
{
	const GkCpuElkan *e = &s->elkan;
	const uint16_t *lower = kept->lower + (size_t) row / GK_ROW_PAD * e->k * GK_ROW_PAD + row % GK_ROW_PAD;
	int			own = e->fresh && !e->by_sketch ? -1 : kept->last[row];
	bool		still = own >= 0 && e->move[own] == 0;

	out->count = 0;
	for (int q = 0; q < e->k; q++)
		if (q == own || (lower[(size_t) q * GK_ROW_PAD] <= kept->upper[row] + e->moved[q] && !(still && e->move[q] == 0)))
		{
			if (out->count < GK_INT16_NEAR)
				out->label[out->count] = q;
			out->count++;
		}
}

/* Does the rounded row say that centroid j is farther than i? */
static bool
is_farther(const GkSession *s, const GkInt16Tile *tile, int at, const GkInt16Apart *is)
{
	const GkInt16 *args = &s->dot.int16;
	double		e = (double) tile->lost[at];
	double		reach = (double) args->longest + (double) tile->length;
	double		r = sqrt((double) is->square) + e;
	double		off = sqrt((double) is->between) * (2.0 * e + (2.0 * is->additions + 24.0) * 0x1p-24 * reach) +
	2.01 * (double) args->relative * r * r;

	return (double) is->farther > 1.01 * off + 0x1p-120;
}

/* Which of these centroids is nearest, by the rounded row; -1: it does not say.  z: scratch, [d]. */
static int32_t
nearest_by_rounded(const GkSession *s, const GkInt16Open *o, int row, const GkInt16Near *near, float *z)
{
	const GkInt16Kernels *set = s->kernels->integers;
	const GkInt16Points *x = o->scratch->points + row / GK_ROW_PAD;
	int			at = row % GK_ROW_PAD;
	int			d = o->x->d;
	int32_t		best = o->label[row];

	set->unrounded(x, at, d, z);
	/* one that turns out to be nearer is tried, too */
	for (int tries = 0; tries < 2; tries++)
	{
		int32_t		nearer = best;
		float		most = 0.0f;
		bool		certain = true;

		for (int q = 0; q < near->count; q++)
		{
			GkInt16Apart is;

			if (near->label[q] == best)
				continue;
			set->compare_two(z, s->dot.int16.pivot, s->dot.args.c + (size_t) best * d, s->dot.args.c + (size_t) near->label[q] * d, d, &is);
			certain = certain && is_farther(s, x->tile, at, &is);
			if (is.farther < most)
			{
				most = is.farther;
				nearer = near->label[q];
			}
		}
		if (certain || nearer == best)
			return certain ? best : -1;
		best = nearer;
	}
	return -1;
}

/* Canonical distances of `count` rows to the centroids that may be nearest. */
static int64_t
settle_canonically(GkSession *s, const GkInt16Open *o, const int *row, GkInt16Near *near, int count)
{
	const GkTiles *x = o->x;
	float	   *point = o->point;
	int32_t    *label = o->label;
	const float *at[GK_INT16_FEW];
	int32_t		from[GK_INT16_FEW * GK_INT16_NEAR];
	int32_t		to[GK_INT16_FEW * GK_INT16_NEAR];
	float		d2[GK_INT16_FEW * GK_INT16_NEAR];
	int			pairs = 0;
	int64_t		crowded = 0;

	/* feature by feature, as each may be in another page */
	for (int i = 0; i < count; i++)
		at[i] = x->x + row[i] / GK_ROW_PAD * x->tile + row[i] % GK_ROW_PAD;
	for (int j = 0; j < x->d; j++)
		for (int i = 0; i < count; i++)
		{
			__builtin_prefetch(&at[i][(j + AHEAD) * x->stride]);
			point[(size_t) i * x->d + j] = at[i][j * x->stride];
		}
	for (int i = 0; i < count; i++)
	{
		if (near[i].count > GK_INT16_NEAR)
		{
			if (!gk_cpu_halt(s))
				label[row[i]] = s->kernels->nearest(point + (size_t) i * x->d, x->d, s->dot.args.c, s->dot.args.k, d2);
			gk_cpu_dot_tied(s, o->slot + row[i]);
			near[i].count = 0;
			crowded++;
		}
		for (int q = 0; q < near[i].count; q++, pairs++)
		{
			from[pairs] = i * x->d;
			to[pairs] = near[i].label[q];
		}
	}
	s->kernels->own_distance(point, 1, from, to, pairs, s->dot.args.c, x->d, d2);
	for (int i = 0, first = 0; i < count; first += near[i++].count)
	{
		int			best = first;
		bool		tied = false;

		for (int q = first + 1; q < first + near[i].count; q++)
			if (d2[q] <= d2[best])
			{
				tied = d2[q] == d2[best];
				best = tied ? best : q;
			}
		if (near[i].count > 0)
			label[row[i]] = to[best];
		if (tied)
			gk_cpu_dot_tied(s, o->slot + row[i]);
	}
	return crowded;
}

/* The labels of `count` rows: how many may be nearest to more centroids than are listed. */
static int64_t
settle(GkSession *s, const GkInt16Open *o, const int *row, int count)
{
	GkInt16Near near[GK_INT16_FEW];
	int			left[GK_INT16_FEW];
	int			some = 0;

	if (gk_cpu_halt(s))
		return 0;
	if (o->kept == NULL)
		s->kernels->integers->near(&s->dot.int16, o->x->d, o->scratch, row, count, near);
	for (int i = 0; i < count; i++)
	{
		int32_t		label = -1;

		if (o->kept != NULL)
			near_by_bounds(s, o->kept, row[i], &near[i]);
		if (s->kernels->integers->compare_two != NULL && near[i].count <= GK_INT16_NEAR)
			label = nearest_by_rounded(s, o, row[i], &near[i], o->point);
		if (label >= 0)
			o->label[row[i]] = label;
		else
		{
			left[some] = row[i];
			near[some++] = near[i];
		}
	}
	return some > 0 ? settle_canonically(s, o, left, near, some) : 0;
}

void
gk_cpu_int16_settle(GkSession *s, const GkInt16Open *o, uint64_t *open, int rows)
{
	int			end = rows < o->x->count * GK_ROW_PAD ? rows : o->x->count * GK_ROW_PAD;
	int			row[GK_INT16_FEW];
	int			count = 0;
	int64_t		open_rows = 0;
	int64_t		crowded = 0;

	for (int t = 0; t < o->x->count; t++)
		for (; open[t] != 0; open[t] &= open[t] - 1)
		{
			int			at = t * GK_ROW_PAD + __builtin_ctzll(open[t]);

			if (at >= end)
				break;
			row[count++] = at;
			open_rows++;
			if (count == GK_INT16_FEW)
			{
				crowded += settle(s, o, row, count);
				count = 0;
			}
		}
	if (count > 0)
		crowded += settle(s, o, row, count);
	__atomic_fetch_add(&s->dot.int16_rows, end, __ATOMIC_RELAXED);
	__atomic_fetch_add(&s->dot.int16_open, open_rows + GK_COST_INT16_CROWDED * crowded, __ATOMIC_RELAXED);
}
