/*
 * gk_mixed_assign.c - the cluster in which a row costs least, for each instruction set.
 *
 * Lanes are rows, so a vector has the bits of gk_mixed_cost().  The compiler makes the vectors; a set's function has
 * its attribute and nothing else.
 */
#include <math.h>
#include <string.h>

#include "core/mixed/gk_mixed.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES	GK_MIXED_LANES

typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

float
gk_mixed_cost(const float *x, const int32_t *code, const float *mean, const int32_t *mode, int d, int c, float gamma)
{
	int			differ = 0;
	float		cost = 0.0f;

	for (int j = 0; j < d; j++)
	{
		float		t = x[j] - mean[j];

		cost += t * t;
	}
	for (int j = 0; j < c; j++)
		differ += code[j] != mode[j];
	return cost + gamma * (float) differ;
}

/* From first_cluster on; with label NULL costs only fall. */
INLINE void
assign(const GkMixed *m, int first_cluster, int64_t first, int64_t end, int32_t *label, float *cost)
{
	for (int64_t i = first; i < end; i += LANES)
	{
		Floats		best = *(Floats *) (cost + i);
		Ints		nearest = {0};

		if (first_cluster == 0)
			best = (Floats) {0} + INFINITY;

		for (int k = first_cluster; k < m->k; k++)
		{
			Floats		s = {0};
			Ints		differ = {0};
			Ints		closer;

			for (int j = 0; j < m->d; j++)
			{
				Floats		t = *(const Floats *) (m->x + j * m->stride + i) - m->mean[(size_t) k * m->d + j];

				s += t * t;
			}
			/* a comparison that holds is -1 */
			for (int j = 0; j < m->c; j++)
				differ -= *(const Ints *) (m->code + j * m->stride + i) != m->mode[(size_t) k * m->c + j];
			s += m->gamma * __builtin_convertvector(differ, Floats);
			closer = s < best;
			best = (Floats) (((Ints) s & closer) | ((Ints) best & ~closer));
			nearest = (closer & k) | (nearest & ~closer);
		}
		*(Floats *) (cost + i) = best;
		if (label != NULL)
			*(Ints *) (label + i) = nearest;
	}
}

#define ASSIGN(set, attribute) \
attribute static void \
assign_##set(const GkMixed *m, int first_cluster, int64_t first, int64_t end, int32_t *label, float *cost) \
{ \
	assign(m, first_cluster, first, end, label, cost); \
}

ASSIGN(base,)
#if defined(__x86_64__)
ASSIGN(avx2, __attribute__((target("avx2"))))
ASSIGN(avx512, __attribute__((target("avx512f,avx512dq"))))
#endif

GkMixedAssign
gk_mixed_assign(void)
{
#if defined(__x86_64__)
	if (strcmp(gk_cpu_simd(), "avx512") == 0)
		return assign_avx512;
	if (strcmp(gk_cpu_simd(), "avx2") == 0)
		return assign_avx2;
#endif
	return assign_base;
}
