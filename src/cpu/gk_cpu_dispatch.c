/*
 * gk_cpu_dispatch.c - which kernels this machine runs, decided at run time.
 *
 * Best first; "auto" takes the first that the processor and the operating system
 * both support (__builtin_cpu_supports looks at XCR0 too).  Chosen at first use,
 * on the main thread; gk_cpu_set_simd() chooses by name.
 */
#include <stdio.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu_kernels.h"

static const GkCpuKernels *const sets[] = {
#ifdef GK_CPU_X86
	&gk_cpu_avx512,
	&gk_cpu_avx2,
#endif
#ifdef GK_CPU_NEON
	&gk_cpu_neon,
#endif
	&gk_cpu_scalar,
};

/* Known on some machine, if not on this one. */
static const char *const names[] = {"avx512", "avx2", "neon", "scalar"};

static const GkCpuKernels *chosen;

static bool
supported(const GkCpuKernels *set)
{
#ifdef GK_CPU_X86
	if (set == &gk_cpu_avx512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
			__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
			__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (set == &gk_cpu_avx2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
	return set != NULL;
}

const GkCpuKernels *
gk_cpu_kernels_named(const char *name, char *reason, size_t reason_len)
{
	bool		any = strcmp(name, "auto") == 0;

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
	{
		if (!any && strcmp(name, sets[i]->name) != 0)
			continue;
		if (supported(sets[i]))
			return sets[i];
		if (!any)
		{
			snprintf(reason, reason_len, "this processor or operating system does not support %s", name);
			return NULL;
		}
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
		{
			snprintf(reason, reason_len, "%s is for another processor architecture", name);
			return NULL;
		}
	snprintf(reason, reason_len, "\"%s\" is none of auto, avx512, avx2, neon, scalar", name);
	return NULL;
}

const GkCpuKernels *
gk_cpu_kernels(void)
{
	if (chosen == NULL)
		chosen = gk_cpu_kernels_named("auto", NULL, 0);
	return chosen;
}

bool
gk_cpu_set_simd(const char *name, char *reason, size_t reason_len)
{
	const GkCpuKernels *set = gk_cpu_kernels_named(name, reason, reason_len);

	if (set == NULL)
		return false;
	chosen = set;
	return true;
}

const char *
gk_cpu_simd(void)
{
	return gk_cpu_kernels()->name;
}

/* ---- one point ---- */

/*
 * Four centroids at a time: their chains of fma do not wait for each other.
 * Inlined below once with and once without fma instructions; without them every
 * fma is a library call, with the same result.
 */
static inline __attribute__((always_inline)) int
nearest(const float *x, int d, const float *c, int k, float *d2)
{
	float		best = INFINITY;
	int			label = 0;
	int			i = 0;

	for (; i + 4 <= k; i += 4)
	{
		const float *a = c + (size_t) i * d;
		const float *b = a + d;
		const float *e = b + d;
		const float *f = e + d;
		float		s[4] = {0.0f, 0.0f, 0.0f, 0.0f};

		for (int j = 0; j < d; j++)
		{
			float		ta = x[j] - a[j],
						tb = x[j] - b[j],
						te = x[j] - e[j],
						tf = x[j] - f[j];

			s[0] = gk_fmaf(ta, ta, s[0]);
			s[1] = gk_fmaf(tb, tb, s[1]);
			s[2] = gk_fmaf(te, te, s[2]);
			s[3] = gk_fmaf(tf, tf, s[3]);
		}
		for (int q = 0; q < 4; q++)
			if (s[q] < best)
			{
				best = s[q];
				label = i + q;
			}
	}
	for (; i < k; i++)
	{
		float		s = gk_d2(x, 1, c + (size_t) i * d, d);

		if (s < best)
		{
			best = s;
			label = i;
		}
	}
	*d2 = best;
	return label;
}

#ifdef GK_CPU_X86
__attribute__((target("avx2,fma"))) static int
nearest_fma(const float *x, int d, const float *c, int k, float *d2)
{
	return nearest(x, d, c, k, d2);
}
#endif

int
gk_nearest(const float *point, int d, const float *centroids, int k, float *d2)
{
#ifdef GK_CPU_X86
	if (gk_cpu_kernels() != &gk_cpu_scalar)
		return nearest_fma(point, d, centroids, k, d2);
#endif
	return nearest(point, d, centroids, k, d2);
}
