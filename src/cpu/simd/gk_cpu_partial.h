/*
 * gk_cpu_partial.h - the kernels of GK_PARTIAL, for one vector instruction set: gk_partial_d2() of gk_numerics.h.
 *
 * A template, after gk_cpu_assign.h and with its macros.  A lane whose row lacks the feature keeps its sum.
 */
#include <math.h>

#include "core/gk_numerics.h"

#define PARTIAL_VECTORS		2
#define PARTIAL_ROWS		(PARTIAL_VECTORS * GK_LANES)
/* Centroids at a time: enough chains to hide the latency of each. */
#define PARTIAL_GROUP		4

/* What the distances of PARTIAL_ROWS rows are multiplied with. */
GK_INLINE void
partial_factors(const float *x, size_t stride, int d, vfloat factor[PARTIAL_VECTORS])
{
	const vfloat infinite = v_set1(INFINITY);
	vfloat		count[PARTIAL_VECTORS];
	float		f[PARTIAL_ROWS];

	GK_UNROLL
	for (int p = 0; p < PARTIAL_VECTORS; p++)
		count[p] = v_zero();
	for (size_t j = 0; j < (size_t) d; j++)
	{
		GK_UNROLL
		for (int p = 0; p < PARTIAL_VECTORS; p++)
			count[p] = v_add(count[p], v_pick(v_less(v_load(x + j * stride + p * GK_LANES), infinite),
											  v_set1(1.0f), v_zero()));
	}
	GK_UNROLL
	for (int p = 0; p < PARTIAL_VECTORS; p++)
		v_store(f + p * GK_LANES, count[p]);
	for (int i = 0; i < PARTIAL_ROWS; i++)
		f[i] = gk_partial_factor(d, (int) f[i]);
	GK_UNROLL
	for (int p = 0; p < PARTIAL_VECTORS; p++)
		factor[p] = v_load(f + p * GK_LANES);
}

/* The distances of PARTIAL_ROWS rows to nc centroids, nc being a constant. */
GK_INLINE void
partial_distances(vfloat s[PARTIAL_GROUP][PARTIAL_VECTORS], const int nc, const float *x, size_t stride,
				  const float *c, size_t d, const vfloat factor[PARTIAL_VECTORS])
{
	const vfloat infinite = v_set1(INFINITY);

	GK_UNROLL
	for (int q = 0; q < nc; q++)
	{
		GK_UNROLL
		for (int p = 0; p < PARTIAL_VECTORS; p++)
			s[q][p] = v_zero();
	}
	for (size_t j = 0; j < d; j++)
	{
		vfloat		xv[PARTIAL_VECTORS];
		vmask		has[PARTIAL_VECTORS];

		GK_UNROLL
		for (int p = 0; p < PARTIAL_VECTORS; p++)
		{
			xv[p] = v_load(x + j * stride + p * GK_LANES);
			has[p] = v_less(xv[p], infinite);
		}
		GK_UNROLL
		for (int q = 0; q < nc; q++)
		{
			vfloat		cv = v_set1(c[q * d + j]);

			GK_UNROLL
			for (int p = 0; p < PARTIAL_VECTORS; p++)
			{
				vfloat		t = v_sub(xv[p], cv);

				s[q][p] = v_pick(has[p], v_fma(t, t, s[q][p]), s[q][p]);
			}
		}
	}
	GK_UNROLL
	for (int q = 0; q < nc; q++)
	{
		GK_UNROLL
		for (int p = 0; p < PARTIAL_VECTORS; p++)
			s[q][p] = v_mul(s[q][p], factor[p]);
	}
}

/* Compare PARTIAL_ROWS rows with nc centroids from number k on. */
GK_INLINE void
partial_group(vfloat best[PARTIAL_VECTORS], vlabel nearest[PARTIAL_VECTORS], const int nc, const float *x,
			  size_t stride, const float *c, size_t d, const vfloat factor[PARTIAL_VECTORS], int k)
{
	vfloat		s[PARTIAL_GROUP][PARTIAL_VECTORS];

	partial_distances(s, nc, x, stride, c + k * d, d, factor);
	GK_UNROLL
	for (int q = 0; q < nc; q++)
	{
		GK_UNROLL
		for (int p = 0; p < PARTIAL_VECTORS; p++)
		{
			vmask		closer = v_less(s[q][p], best[p]);

			best[p] = v_pick(closer, s[q][p], best[p]);
			nearest[p] = vl_pick(closer, vl_set1(k + q), nearest[p]);
		}
	}
}

/* partial_assign(); with label NULL, partial_mindist(). */
GK_INLINE void
partial_tiles(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i += PARTIAL_ROWS)
	{
		const float *from = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
		vfloat		factor[PARTIAL_VECTORS];
		vfloat		best[PARTIAL_VECTORS];
		vlabel		nearest[PARTIAL_VECTORS];
		int			k = k0;

		partial_factors(from, x->stride, x->d, factor);
		GK_UNROLL
		for (int p = 0; p < PARTIAL_VECTORS; p++)
		{
			best[p] = label != NULL && k0 == 0 ? v_set1(INFINITY) : v_load(d2 + i + p * GK_LANES);
			nearest[p] = label != NULL && k0 > 0 ? vl_load(label + i + p * GK_LANES) : vl_set1(0);
		}
		for (; k1 - k >= PARTIAL_GROUP; k += PARTIAL_GROUP)
			partial_group(best, nearest, PARTIAL_GROUP, from, x->stride, c, x->d, factor, k);
		for (; k < k1; k++)
			partial_group(best, nearest, 1, from, x->stride, c, x->d, factor, k);
		GK_UNROLL
		for (int p = 0; p < PARTIAL_VECTORS; p++)
		{
			v_store(d2 + i + p * GK_LANES, best[p]);
			if (label != NULL)
				vl_store(label + i + p * GK_LANES, nearest[p]);
		}
	}
}

GK_TARGET static void
partial_assign(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2)
{
	partial_tiles(x, c, k0, k1, label, d2);
}

GK_TARGET static void
partial_mindist(const GkTiles *x, const float *c, int k0, int k1, float *d2)
{
	partial_tiles(x, c, k0, k1, NULL, d2);
}

GK_TARGET static unsigned
partial_candidates(const GkTiles *x, int tile, const float *c, int nc, const float *was, const float *weight,
				   int rows, GkCandidates *out, float *all)
{
	const GkTiles one = {x->x + tile * x->tile, x->tile, x->stride, 1, x->d};
	unsigned	found = 0;

	for (int q = 0; q < nc; q++)
	{
		float		own[GK_ROW_PAD];
		float	   *d2 = all != NULL ? all + q * GK_ROW_PAD : own;

		for (int i = 0; i < GK_ROW_PAD; i++)
			d2[i] = INFINITY;
		partial_tiles(&one, c, q, q + 1, NULL, d2);
		found |= (unsigned) gk_candidates_gather(was, d2, weight, rows, &out[q]) << q;
	}
	return found;
}

#define GK_PARTIAL_KERNELS \
	.partial_assign = partial_assign, \
	.partial_mindist = partial_mindist, \
	.partial_candidates = partial_candidates
