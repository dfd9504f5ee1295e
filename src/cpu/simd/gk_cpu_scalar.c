/*
 * gk_cpu_scalar.c - the oracle: every kernel as a plain loop over gk_numerics.h.
 *
 * Never clever.  Also what runs where there is no vector unit that we know;
 * without an fma instruction in the baseline it is slow but gives the same bits.
 */
#include "core/gk_numerics.h"
#include "cpu/simd/gk_cpu_kernels.h"

static const float *
point(const GkTiles *x, int i)
{
	return x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
}

static void
scalar_assign(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i++)
	{
		if (k0 == 0)
		{
			d2[i] = INFINITY;
			label[i] = 0;
		}
		for (int k = k0; k < k1; k++)
		{
			float		s = gk_d2(point(x, i), x->stride, c + (size_t) k * x->d, x->d);

			if (s < d2[i])
			{
				d2[i] = s;
				label[i] = k;
			}
		}
	}
}

static void
scalar_mindist(const GkTiles *x, const float *c, int k0, int k1, float *d2)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i++)
		for (int k = k0; k < k1; k++)
		{
			float		s = gk_d2(point(x, i), x->stride, c + (size_t) k * x->d, x->d);

			if (s < d2[i])
				d2[i] = s;
		}
}

static unsigned
scalar_candidates(const GkTiles *x, int tile, const float *c, int nc, const float *d2, const float *weight,
				  int rows, GkCandidates *out, float *all)
{
	unsigned	found = 0;

	for (int q = 0; q < nc; q++)
		for (int i = 0; i < rows; i++)
		{
			GkCandidates *to = &out[q];
			float		s = gk_d2(point(x, tile * GK_ROW_PAD + i), x->stride, c + (size_t) q * x->d, x->d);

			if (all != NULL)
				all[q * GK_ROW_PAD + i] = s;
			if (!(s < d2[i]))
				continue;
			to->was[to->count] = d2[i];
			to->is[to->count] = s;
			if (weight != NULL)
				to->weight[to->count] = weight[i];
			to->count++;
			found |= 1u << q;
		}
	return found;
}

static uint64_t
scalar_open_boxes(const float *low, const float *high, size_t stride, const float *c, int d, const float *most)
{
	uint64_t	bits = 0;

	for (int i = 0; i < GK_ROW_PAD; i++)
	{
		float		s = 0.0f;

		for (int j = 0; j < d; j++)
		{
			float		below = c[j] - low[j * stride + i];
			float		above = high[j * stride + i] - c[j];
			float		t = below < above ? below : above;

			t = t < 0.0f ? t : 0.0f;
			s = gk_fmaf(t, t, s);
		}
		if (s < most[i])
			bits |= UINT64_C(1) << i;
	}
	return bits;
}

static void
scalar_assign_two(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2, float *second)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i++)
	{
		for (int q = k0; q < k1; q++)
		{
			float		s = gk_d2(point(x, i), x->stride, c + (size_t) q * x->d, x->d);

			if (s < d2[i])
			{
				second[i] = d2[i];
				d2[i] = s;
				label[i] = q;
			}
			else if (s < second[i])
				second[i] = s;
		}
	}
}

static void
scalar_own_distance(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
					const float *c, int d, float *d2)
{
	for (int i = 0; i < n; i++)
		d2[i] = gk_d2(x + row[i], stride, c + (size_t) label[i] * d, d);
}

void
gk_cpu_scalar_margin(const GkMargin *m, const int32_t *label, const float *d2, const float *second,
					 float *upper, float *lower, float *slack)
{
	for (int i = 0; i < GK_ROW_PAD; i++)
	{
		float		limit = m->limit[label[i]];
		float		gap;

		upper[i] = sqrtf(d2[i]) * m->widen + m->apart;
		lower[i] = sqrtf(second[i] < FLT_MAX ? second[i] : FLT_MAX) * m->narrow - m->apart;
		gap = lower[i] - upper[i];
		slack[i] = gk_taken_off(gap, limit);
	}
}

uint64_t
gk_cpu_scalar_open_rows(const float *slack, const int32_t *label, const float *limit, float *least)
{
	uint64_t	bits = 0;

	*least = INFINITY;
	for (int i = 0; i < GK_ROW_PAD; i++)
	{
		float		l = limit[label[i]];

		if (!(slack[i] > l))
			bits |= UINT64_C(1) << i;
		else if (slack[i] - l < *least)
			*least = slack[i] - l;
	}
	return bits;
}

void
gk_cpu_scalar_add(const GkTiles *x, const int32_t *label, double *acc, size_t width, size_t copy)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i++)
	{
		double	   *to = acc + i % GK_ADD_COPIES * copy + label[i] * width;

		for (int j = 0; j < x->d; j++)
			to[j] += (double) point(x, i)[j * x->stride];
	}
}

void
gk_cpu_scalar_sum_d2(const float *d2, const float *weight, int rows, double scale, int64_t *hi, int64_t *lo)
{
	for (int i = 0; i < rows; i++)
	{
		int64_t		h,
					l;

		gk_d2_split(weight ? (double) weight[i] * (double) d2[i] : (double) d2[i], scale, &h, &l);
		/* rows far outside of a shard's box may wrap, here as in the vector kernels */
		*hi = (int64_t) ((uint64_t) *hi + (uint64_t) h);
		*lo = (int64_t) ((uint64_t) *lo + (uint64_t) l);
	}
}

uint64_t
gk_cpu_scalar_race(const float *d2, const float *weight, uint64_t key, int64_t row, double worst)
{
	uint64_t	may = 0;

	for (int i = 0; i < GK_ROW_PAD; i++)
	{
		double		w = (weight ? (double) weight[i] : 1.0) * (d2 ? (double) d2[i] : 1.0);
		double		least = 1.0 - gk_uniform(gk_hash(key, row + i));

		/* Not "<=": a NaN (infinite worst, zero weight) must stay in. */
		if (!(least > worst * w * GK_RACE_SLACK))
			may |= UINT64_C(1) << i;
	}
	return may;
}

int
gk_cpu_scalar_nearest(const float *point, int d, const float *centroids, int k, float *d2)
{
	int			label = 0;

	*d2 = INFINITY;
	for (int i = 0; i < k; i++)
	{
		float		s = gk_d2(point, 1, centroids + (size_t) i * d, d);

		if (s < *d2)
		{
			*d2 = s;
			label = i;
		}
	}
	return label;
}

void
gk_cpu_scalar_distances(const float *point, int d, const float *centroids, int k, float *d2)
{
	for (int i = 0; i < k; i++)
		d2[i] = gk_d2(point, 1, centroids + (size_t) i * d, d);
}

/* ---- GK_PARTIAL ---- */

static void
partial_assign(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i++)
	{
		if (k0 == 0)
		{
			d2[i] = INFINITY;
			label[i] = 0;
		}
		for (int k = k0; k < k1; k++)
		{
			float		s = gk_partial_d2(point(x, i), x->stride, c + (size_t) k * x->d, x->d);

			if (s < d2[i])
			{
				d2[i] = s;
				label[i] = k;
			}
		}
	}
}

static void
partial_mindist(const GkTiles *x, const float *c, int k0, int k1, float *d2)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i++)
		for (int k = k0; k < k1; k++)
		{
			float		s = gk_partial_d2(point(x, i), x->stride, c + (size_t) k * x->d, x->d);

			if (s < d2[i])
				d2[i] = s;
		}
}

bool
gk_candidates_gather(const float *was, const float *d2, const float *weight, int rows, GkCandidates *to)
{
	int			before = to->count;

	for (int i = 0; i < rows; i++)
	{
		if (!(d2[i] < was[i]))
			continue;
		to->was[to->count] = was[i];
		to->is[to->count] = d2[i];
		if (weight != NULL)
			to->weight[to->count] = weight[i];
		to->count++;
	}
	return to->count > before;
}

static unsigned
partial_candidates(const GkTiles *x, int tile, const float *c, int nc, const float *was, const float *weight,
				   int rows, GkCandidates *out, float *all)
{
	unsigned	found = 0;

	for (int q = 0; q < nc; q++)
	{
		float		own[GK_ROW_PAD];
		float	   *d2 = all != NULL ? all + q * GK_ROW_PAD : own;

		for (int i = 0; i < rows; i++)
			d2[i] = gk_partial_d2(point(x, tile * GK_ROW_PAD + i), x->stride, c + (size_t) q * x->d, x->d);
		found |= (unsigned) gk_candidates_gather(was, d2, weight, rows, &out[q]) << q;
	}
	return found;
}

const GkCpuKernels gk_cpu_scalar = {
	.name = "scalar",
	.exact = "scalar",
	.job_work = 1 << 18,
	.columns = &gk_columns_base,
	.lanes = 1,
	.assign = scalar_assign,
	.mindist = scalar_mindist,
	.candidates = scalar_candidates,
	.partial_assign = partial_assign,
	.partial_mindist = partial_mindist,
	.partial_candidates = partial_candidates,
	.open_boxes = scalar_open_boxes,
	.assign_two = scalar_assign_two,
	.own_distance = scalar_own_distance,
	.open_rows = gk_cpu_scalar_open_rows,
	.margin = gk_cpu_scalar_margin,
	.add = gk_cpu_scalar_add,
	.sum_d2 = gk_cpu_scalar_sum_d2,
	.race = gk_cpu_scalar_race,
	.nearest = gk_cpu_scalar_nearest,
	.distances = gk_cpu_scalar_distances,
};
