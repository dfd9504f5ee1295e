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
/* Rows of a vector: an AVX-512 register, two of AVX2, four of SSE2 and NEON. */
#define LANES	16

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

/*
 * From first_cluster on; with label NULL costs only fall.  So many vectors of rows at a time as the set has
 * registers for: a mean and a mode are loaded once for all of them.
 */
INLINE void
assign(const GkMixed *m, int first_cluster, int64_t first, int64_t end, int32_t *label, float *cost, const int vectors)
{
	for (int64_t i = first; i < end; i += LANES * vectors)
	{
		Floats		best[GK_MIXED_ROWS / LANES];
		Ints		nearest[GK_MIXED_ROWS / LANES];

#pragma GCC unroll 4
		for (int v = 0; v < vectors; v++)
		{
			best[v] = (Floats) {0} + INFINITY;
			if (first_cluster > 0)
				best[v] = *(Floats *) (cost + i + v * LANES);
			nearest[v] = (Ints) {0};
		}
		for (int k = first_cluster; k < m->k; k++)
		{
			const float *mean = m->mean + (size_t) k * m->d;
			const int32_t *mode = m->mode + (size_t) k * m->c;
			const float *x = m->x + i;
			const int32_t *code = m->code + i;
			Floats		s[GK_MIXED_ROWS / LANES];
			Ints		differ[GK_MIXED_ROWS / LANES];

#pragma GCC unroll 4
			for (int v = 0; v < vectors; v++)
			{
				s[v] = (Floats) {0};
				differ[v] = (Ints) {0};
			}
			for (int j = 0; j < m->d; j++, x += m->stride)
#pragma GCC unroll 4
				for (int v = 0; v < vectors; v++)
				{
					Floats		t = *(const Floats *) (x + v * LANES) - mean[j];

					s[v] += t * t;
				}
			/* a comparison that holds is -1 */
			for (int j = 0; j < m->c; j++, code += m->stride)
#pragma GCC unroll 4
				for (int v = 0; v < vectors; v++)
					differ[v] -= *(const Ints *) (code + v * LANES) != mode[j];
#pragma GCC unroll 4
			for (int v = 0; v < vectors; v++)
			{
				Ints		closer;

				s[v] += m->gamma * __builtin_convertvector(differ[v], Floats);
				closer = s[v] < best[v];
				best[v] = (Floats) (((Ints) s[v] & closer) | ((Ints) best[v] & ~closer));
				nearest[v] = (closer & k) | (nearest[v] & ~closer);
			}
		}
#pragma GCC unroll 4
		for (int v = 0; v < vectors; v++)
		{
			*(Floats *) (cost + i + v * LANES) = best[v];
			if (label != NULL)
				*(Ints *) (label + i + v * LANES) = nearest[v];
		}
	}
}

#define ASSIGN(set, attribute, vectors) \
attribute static void \
assign_##set(const GkMixed *m, int first_cluster, int64_t first, int64_t end, int32_t *label, float *cost) \
{ \
	assign(m, first_cluster, first, end, label, cost, vectors); \
}

ASSIGN(base,, 1)
#if defined(__x86_64__)
ASSIGN(avx2, __attribute__((target("avx2"))), 1)
ASSIGN(avx512, __attribute__((target("avx512f,avx512dq"))), 4)
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
