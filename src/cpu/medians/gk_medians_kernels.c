/*
 * gk_medians_kernels.c - distances of gk_l1(), for each instruction set.
 *
 * Lanes are points, so a vector has the bits of the plain loop: a difference, its magnitude, a sum, feature
 * by feature.  The compiler makes the vectors; a set's function has its attribute and nothing else.
 */
#include <math.h>

#include "core/gk_numerics.h"
#include "cpu/medians/gk_medians.h"

#define INLINE static inline __attribute__((always_inline))

/* Rows that go through registers together. */
#define LANES	16

typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* *s: distances of LANES rows to one centroid. */
INLINE void
distances(const float *x, size_t stride, const float *c, int d, Floats * s)
{
	Floats		sum = {0};

	for (int j = 0; j < d; j++)
	{
		Floats		t = *(const Floats *) (x + j * stride) - c[j];

		sum += (Floats) ((Ints) t & 0x7fffffff);
	}
	*s = sum;
}

/* GkCpuKernels.assign, and .mindist with label NULL. */
INLINE void
assign(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *distance)
{
	for (int i = 0; i < x->count * GK_ROW_PAD; i += LANES)
	{
		const float *from = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
		Floats		best = *(Floats *) (distance + i);
		Ints		nearest = {0};

		if (label != NULL && k0 == 0)
			best = (Floats) {0} + INFINITY;
		else if (label != NULL)
			nearest = *(Ints *) (label + i);
		for (int k = k0; k < k1; k++)
		{
			Floats		s;
			Ints		closer;

			distances(from, x->stride, c + (size_t) k * x->d, x->d, &s);
			closer = s < best;
			best = (Floats) (((Ints) s & closer) | ((Ints) best & ~closer));
			nearest = (closer & k) | (nearest & ~closer);
		}
		*(Floats *) (distance + i) = best;
		if (label != NULL)
			*(Ints *) (label + i) = nearest;
	}
}

#define KERNELS(set, attribute) \
attribute static void \
assign_##set(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *distance) \
{ \
	assign(x, c, k0, k1, label, distance); \
} \
attribute static void \
mindist_##set(const GkTiles *x, const float *c, int k0, int k1, float *distance) \
{ \
	assign(x, c, k0, k1, NULL, distance); \
}

KERNELS(base,)
#ifdef GK_CPU_X86
KERNELS(avx2, __attribute__((target("avx2"))))
KERNELS(avx512, __attribute__((target("avx512f,avx512dq"))))
#endif

static unsigned
candidates(const GkTiles *x, int tile, const float *c, int nc, const float *was, const float *weight,
		   int rows, GkCandidates *out, float *all)
{
	unsigned	found = 0;

	for (int q = 0; q < nc; q++)
		for (int i = 0; i < rows; i++)
		{
			GkCandidates *to = &out[q];
			float		s = gk_l1(x->x + tile * x->tile + i, x->stride, c + (size_t) q * x->d, x->d);

			if (all != NULL)
				all[q * GK_ROW_PAD + i] = s;
			if (!(s < was[i]))
				continue;
			to->was[to->count] = was[i];
			to->is[to->count] = s;
			if (weight != NULL)
				to->weight[to->count] = weight[i];
			to->count++;
			found |= 1u << q;
		}
	return found;
}

void
gk_medians_kernels(const GkCpuKernels *of, GkCpuKernels *out)
{
	*out = (GkCpuKernels) {
		.name = of->name,.job_work = of->job_work,.lanes = of->lanes,.columns = of->columns,
		.assign = assign_base,.mindist = mindist_base,.candidates = candidates,
		.race = of->race,.sum_d2 = of->sum_d2,.tally_smallk = of->tally_smallk
	};
#ifdef GK_CPU_X86
	if (of->lanes == 8)
	{
		out->assign = assign_avx2;
		out->mindist = mindist_avx2;
	}
	else if (of->lanes == 16)
	{
		out->assign = assign_avx512;
		out->mindist = mindist_avx512;
	}
#endif
}

/* ---- one point ---- */

void
gk_l1_distances(const float *point, int d, const float *centroids, int k, float *distance)
{
	for (int i = 0; i < k; i++)
		distance[i] = gk_l1(point, 1, centroids + (size_t) i * d, d);
}

int
gk_l1_nearest(const float *point, int d, const float *centroids, int k, float *distance)
{
	int			label = 0;

	*distance = INFINITY;
	for (int i = 0; i < k; i++)
	{
		float		s = gk_l1(point, 1, centroids + (size_t) i * d, d);

		if (s < *distance)
		{
			*distance = s;
			label = i;
		}
	}
	return label;
}
