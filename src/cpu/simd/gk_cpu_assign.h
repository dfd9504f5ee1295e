/*
 * gk_cpu_assign.h - kernels that compare points with centroids, for one vector instruction set.
 *
 * A template: gk_cpu_<set>.c defines the following and then includes this file.
 *   GK_TARGET       the function attribute that switches the instruction set on
 *   GK_LANES        floats in a vector
 *   GK_VECTORS      vectors of points in a register tile
 *   vfloat, vlabel  vectors of GK_LANES floats, of GK_LANES int32
 *   v_zero, v_load, v_store, v_set1, v_sub, v_min, v_fma(a, b, c) = a * b + c,
 *   v_fnma(a, b, c) = c - a * b, v_add, v_max
 *   vl_load, vl_store, vl_set1
 *   vmask, v_less(a, b), v_pick(m, a, b) and vl_pick(m, a, b) = m ? a : b, v_bits(m), bit i for lane i
 *   v_gather(p, l) = p[l], v_mul, v_sqrt, v_abs, v_least(v), the least lane
 *                   (optional, for open_rows() and margin())
 *
 * A register tile is GK_VECTORS vectors of points against up to 6 centroids: per
 * feature the points are loaded once, each centroid coordinate is broadcast once,
 * and 6 * GK_VECTORS independent chains of (sub, fma) hide the latency of both.
 * A chain itself runs over the features in order: that is the canonical distance
 * of gk_numerics.h, whatever the vector length.
 */
#include <float.h>
#include <math.h>

#define GK_WIDEST		6
#define GK_WIDTHS(F)	F(1) F(2) F(3) F(4) F(5) F(6)
/* The tile lives in registers only if every loop over it is unrolled. */
#include "cpu/simd/gk_cpu_unroll.h"

/* Cache lines of a feature in a register tile. */
#define GK_LINES	((GK_VECTORS * GK_LANES + 15) / 16)
#define GK_HALF		((GK_LINES + 1) / 2)

/*
 * Columns read in place are many streams of short runs, which hardware does not fetch
 * ahead by itself: asking for them gives twice the speed on points in main memory.  A
 * processor has some dozens of misses under way, so the lines of a tile are asked for a
 * few at a time, while the tile AHEAD_FLOATS before it is compared with one group of
 * centroids after the other.  They wait in the second-level cache: in the first, with a
 * tile of 32 features and more, they would push out the tile that is compared.
 */
#define AHEAD_FLOATS	(16 * 1024)
#define AHEAD_ROWS		512

/* Lines to ask for, of every feature along with each group of centroids. */
typedef struct GkPrefetch
{
	int			rows;			/* ahead */
	int			each;			/* GK_LINES, GK_HALF or 0 */
	int			from;			/* lines asked for */
} GkPrefetch;

/* A register tile's rows, and what is known of them. */
typedef struct GkRegisterTile
{
	const float *x;
	size_t		stride;
	const float *c;				/* [k][d] */
	size_t		d;
	GkPrefetch	ahead;
	int32_t    *label;
	float	   *d2;
	float	   *second;
	const GkDot *dot;			/* of scalar products */
} GkRegisterTile;

/*
 * Add features first .. end-1 to the chains of nc centroids: squared differences, or of scalar
 * products take the product off.  nc, dot and lines, here and below, are constants at every call.
 */
GK_INLINE void
chains(vfloat acc[GK_WIDEST][GK_VECTORS], const int nc, const bool dot, const int lines, const float *x, size_t stride,
	   const float *c, size_t d, size_t first, size_t end, const float *ask)
{
	for (size_t j = first; j < end; j++)
	{
		vfloat		xv[GK_VECTORS];

		GK_UNROLL
		for (int p = 0; p < GK_VECTORS; p++)
			xv[p] = v_load(x + j * stride + p * GK_LANES);
		GK_UNROLL
		for (int i = 0; i < lines; i++)
			__builtin_prefetch(ask + j * stride + i * 16, 0, 2);
		GK_UNROLL
		for (int q = 0; q < nc; q++)
		{
			vfloat		cv = v_set1(c[q * d + j]);

			GK_UNROLL
			for (int p = 0; p < GK_VECTORS; p++)
			{
				vfloat		t = v_sub(xv[p], cv);

				acc[q][p] = dot ? v_fnma(xv[p], cv, acc[q][p]) : v_fma(t, t, acc[q][p]);
			}
		}
	}
}

/* The chains of all features; those of products in runs, for fewer roundings of large sums. */
GK_INLINE void
all_chains(vfloat acc[GK_WIDEST][GK_VECTORS], const int nc, const bool dot, const int lines, const GkRegisterTile *r,
		   int k, const float *ask)
{
	const float *x = r->x;
	const float *c = r->c + k * r->d;
	size_t		stride = r->stride;
	size_t		d = r->d;

	GK_UNROLL
	for (int q = 0; q < nc; q++)
	{
		GK_UNROLL
		for (int p = 0; p < GK_VECTORS; p++)
			acc[q][p] = dot ? v_set1(r->dot->half[k + q]) : v_zero();
	}
	if (!dot)
	{
		chains(acc, nc, false, lines, x, stride, c, d, 0, d, ask);
		return;
	}
	for (size_t first = 0, chain = r->dot->chain; first < d; first += chain)
	{
		size_t		end = d - first < chain ? d : first + chain;
		vfloat		before[GK_WIDEST][GK_VECTORS];

		if (first > 0)			/* what there is waits in memory */
		{
			GK_UNROLL
			for (int q = 0; q < nc; q++)
			{
				GK_UNROLL
				for (int p = 0; p < GK_VECTORS; p++)
				{
					before[q][p] = acc[q][p];
					acc[q][p] = v_zero();
				}
			}
		}
		chains(acc, nc, true, lines, x, stride, c, d, first, end, ask);
		if (first > 0)
		{
			GK_UNROLL
			for (int q = 0; q < nc; q++)
			{
				GK_UNROLL
				for (int p = 0; p < GK_VECTORS; p++)
					acc[q][p] = v_add(before[q][p], acc[q][p]);
			}
		}
	}
}

/* The distances, or |c|^2 / 2 - x c, of centroids k .. k+nc-1. */
GK_INLINE void
distances(vfloat acc[GK_WIDEST][GK_VECTORS], const int nc, const bool dot, GkRegisterTile *r, int k)
{
	const float *ask = r->x + r->ahead.rows + r->ahead.from * 16;

	if (r->ahead.each == 0 || r->ahead.from >= GK_LINES)
		all_chains(acc, nc, dot, 0, r, k, ask);
	else if (r->ahead.each == GK_LINES)
		all_chains(acc, nc, dot, GK_LINES, r, k, ask);
	else
		all_chains(acc, nc, dot, GK_HALF, r, k, ask);
	r->ahead.from += r->ahead.each;
}

/* Keep the nearest centroid so far, with nc more. */
GK_INLINE void
keep_one(const int nc, vfloat acc[GK_WIDEST][GK_VECTORS], int k, int32_t *label, float *d2)
{
	GK_UNROLL
	for (int p = 0; p < GK_VECTORS; p++)
	{
		vfloat		best = v_load(d2 + p * GK_LANES);
		vlabel		lab = vl_load(label + p * GK_LANES);

		GK_UNROLL
		for (int q = 0; q < nc; q++)
		{
			vmask		less = v_less(acc[q][p], best);

			best = v_pick(less, acc[q][p], best);
			lab = vl_pick(less, vl_set1(k + q), lab);
		}
		v_store(d2 + p * GK_LANES, best);
		vl_store(label + p * GK_LANES, lab);
	}
}

/* Keep its distance alone. */
GK_INLINE void
keep_distance(const int nc, vfloat acc[GK_WIDEST][GK_VECTORS], float *d2)
{
	GK_UNROLL
	for (int p = 0; p < GK_VECTORS; p++)
	{
		vfloat		best = v_load(d2 + p * GK_LANES);

		GK_UNROLL
		for (int q = 0; q < nc; q++)
			best = v_min(acc[q][p], best);
		v_store(d2 + p * GK_LANES, best);
	}
}

/* Keep the nearest, what it is, and the second nearest's distance. */
GK_INLINE void
keep_two(const int nc, vfloat acc[GK_WIDEST][GK_VECTORS], int k, int32_t *label, float *d2, float *second)
{
	GK_UNROLL
	for (int p = 0; p < GK_VECTORS; p++)
	{
		vfloat		best = v_load(d2 + p * GK_LANES);
		vfloat		next = v_load(second + p * GK_LANES);
		vlabel		lab = vl_load(label + p * GK_LANES);

		GK_UNROLL
		for (int q = 0; q < nc; q++)
		{
			vmask		less = v_less(acc[q][p], best);

			/* the larger of the two may be the second */
			next = v_min(v_pick(less, best, acc[q][p]), next);
			best = v_pick(less, acc[q][p], best);
			lab = vl_pick(less, vl_set1(k + q), lab);
		}
		v_store(d2 + p * GK_LANES, best);
		v_store(second + p * GK_LANES, next);
		vl_store(label + p * GK_LANES, lab);
	}
}

/*
 * A register tile against centroids k0..k1-1, nc at a time, keeping what `keep` says: run_##nc.
 * A function of its own for each width, so that each has all registers.
 */
#define GK_RUN(name, nc, dot, keep) \
	GK_TARGET static __attribute__((noinline)) void \
	name##_##nc(GkRegisterTile *tile, int k0, int k1) \
	{ \
		GkRegisterTile t = *tile;	/* which stays in registers where it can */ \
		GkRegisterTile *r = &t; \
		for (int k = k0; k < k1; k += nc) \
		{ \
			vfloat		acc[GK_WIDEST][GK_VECTORS]; \
			distances(acc, nc, dot, r, k); \
			keep; \
		} \
		tile->ahead.from = t.ahead.from; \
	}
#define GK_ASSIGN(nc)	GK_RUN(assign, nc, false, keep_one(nc, acc, k, r->label, r->d2))
#define GK_MINDIST(nc)	GK_RUN(mindist, nc, false, keep_distance(nc, acc, r->d2))
#define GK_TWO(nc)		GK_RUN(two, nc, false, keep_two(nc, acc, k, r->label, r->d2, r->second))
GK_WIDTHS(GK_ASSIGN)
GK_WIDTHS(GK_MINDIST)
GK_WIDTHS(GK_TWO)

typedef void (*GkRunFunction) (GkRegisterTile *r, int k0, int k1);
#define GK_TABLE(name)	{NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6}

GK_INLINE GkPrefetch
rows_ahead(const GkTiles *x, int k)
{
	int			rows = AHEAD_FLOATS / x->d / GK_ROW_PAD * GK_ROW_PAD;
	GkPrefetch	ahead = {0};

	if (x->stride == GK_ROW_PAD)
		return ahead;			/* gathered, not in place */
	ahead.rows = rows < GK_ROW_PAD ? GK_ROW_PAD : rows > AHEAD_ROWS ? AHEAD_ROWS : rows;
	ahead.each = k > GK_WIDEST ? GK_HALF : GK_LINES;
	return ahead;
}

/* The register tile of rows i .. */
GK_INLINE GkRegisterTile
register_tile(const GkTiles *x, int i, const float *c, const GkPrefetch *ahead)
{
	return (GkRegisterTile) {.x = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD,.stride = x->stride,
		.c = c,.d = x->d,.ahead = *ahead};
}

/* Centroids k0..k1-1 in the widest runs, then the rest in one. */
GK_INLINE void
run_all(GkRegisterTile *r, int k0, int k1, const GkRunFunction run[GK_WIDEST + 1])
{
	int			rest = (k1 - k0) % GK_WIDEST;

	if (k1 - rest > k0)
		run[GK_WIDEST] (r, k0, k1 - rest);
	if (rest > 0)
		run[rest] (r, k1 - rest, k1);
}

GK_TARGET static void
assign(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2)
{
	static const GkRunFunction run[] = GK_TABLE(assign);
	const GkPrefetch ahead = rows_ahead(x, k1 - k0);

	for (int i = 0; i < x->count * GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		GkRegisterTile r = register_tile(x, i, c, &ahead);

		r.label = label + i;
		r.d2 = d2 + i;
		if (k0 == 0)
			for (int p = 0; p < GK_VECTORS * GK_LANES; p += GK_LANES)
			{
				vl_store(label + i + p, vl_set1(0));
				v_store(d2 + i + p, v_set1(INFINITY));
			}
		run_all(&r, k0, k1, run);
	}
}

GK_TARGET static void
mindist(const GkTiles *x, const float *c, int k0, int k1, float *d2)
{
	static const GkRunFunction run[] = GK_TABLE(mindist);
	const GkPrefetch ahead = rows_ahead(x, k1 - k0);

	for (int i = 0; i < x->count * GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		GkRegisterTile r = register_tile(x, i, c, &ahead);

		r.d2 = d2 + i;
		run_all(&r, k0, k1, run);
	}
}

/* ---- for bounds: gk_cpu_hamerly_search.c ---- */

GK_TARGET static void
assign_two(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2, float *second)
{
	static const GkRunFunction run[] = GK_TABLE(two);
	const GkPrefetch ahead = rows_ahead(x, k1 - k0);

	for (int i = 0; i < x->count * GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		GkRegisterTile r = register_tile(x, i, c, &ahead);

		r.label = label + i;
		r.d2 = d2 + i;
		r.second = second + i;
		run_all(&r, k0, k1, run);
	}
}

/* Canonical distances of scattered points, eight chains at a time. */
GK_TARGET static __attribute__((unused)) void
own_distance(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
			 const float *c, int d, float *d2)
{
	for (int i = 0; i < n; i += 8)
	{
		const float *xi[8];
		const float *ci[8];
		float		s[8] = {0};

		for (int l = 0; l < 8; l++)
		{
			int			at = i + l < n ? i + l : n - 1;

			xi[l] = x + row[at];
			ci[l] = c + (size_t) label[at] * d;
		}
		for (int j = 0; j < d; j++)
		{
			GK_UNROLL
			for (int l = 0; l < 8; l++)
			{
				float		t = xi[l][j * stride] - ci[l][j];

				s[l] = __builtin_fmaf(t, t, s[l]);
			}
		}
		for (int l = 0; l < 8 && i + l < n; l++)
			d2[i + l] = s[l];
	}
}

#ifdef v_gather

GK_TARGET static uint64_t
open_rows(const float *slack, const int32_t *label, const float *limit, float *least)
{
	const vfloat none = v_set1(INFINITY);
	vfloat		low = none;
	uint64_t	settled = 0;

	for (int i = 0; i < GK_ROW_PAD; i += GK_LANES)
	{
		vfloat		s = v_load(slack + i);
		vfloat		l = v_gather(limit, vl_load(label + i));
		vmask		loose = v_less(l, s);

		low = v_min(v_pick(loose, v_sub(s, l), none), low);
		settled |= (uint64_t) v_bits(loose) << i;
	}
	*least = v_least(low);
	return ~settled;
}

GK_TARGET static void
margin(const GkMargin *m, const int32_t *label, const float *d2, const float *second,
	   float *upper, float *lower, float *slack)
{
	const vfloat apart = v_set1(m->apart);

	for (int i = 0; i < GK_ROW_PAD; i += GK_LANES)
	{
		vfloat		limit = v_gather(m->limit, vl_load(label + i));
		vfloat		up = v_mul(v_sqrt(v_load(d2 + i)), v_set1(m->widen));
		vfloat		low = v_mul(v_sqrt(v_min(v_load(second + i), v_set1(FLT_MAX))), v_set1(m->narrow));
		vfloat		gap;

		up = v_add(up, apart);
		low = v_sub(low, apart);
		gap = v_sub(low, up);
		v_store(upper + i, up);
		v_store(lower + i, low);
		/* gk_taken_off() */
		v_store(slack + i, v_sub(v_add(gap, limit), v_mul(v_set1(0x1p-20f), v_add(v_abs(gap), limit))));
	}
}

#endif							/* v_gather */
