/*
 * gk_cpu_dispatch.c - which kernels this machine runs, decided at run time.
 *
 * Best first; "auto", or the name of several, takes the first that the processor and the
 * operating system both support (__builtin_cpu_supports looks at XCR0 too).  Chosen at first use,
 * on the main thread; gk_cpu_set_simd() chooses by name.
 */
#include <stdio.h>
#include <string.h>

#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86
#include <cpuid.h>
#endif
#if defined(GK_CPU_DOTPROD) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const GkCpuKernels *const sets[] = {
#ifdef GK_CPU_AMX
	&gk_cpu_avx512_amx,
#endif
#ifdef GK_CPU_X86
	&gk_cpu_avx512_vnni,
	&gk_cpu_avx512,
	&gk_cpu_avx2,
#endif
#ifdef GK_CPU_NEON
#ifdef GK_CPU_DOTPROD
	&gk_cpu_neon_dotprod,
#endif
	&gk_cpu_neon,
#endif
	&gk_cpu_scalar,
};

/* Known on some machine, if not on this one. */
static const char *const names[] = {"avx512", "avx512_amx", "avx512_vnni", "avx512f", "avx2", "neon", "neon_dotprod", "neon_base", "scalar"};

static const GkCpuKernels *chosen;

#ifdef GK_CPU_X86
/* __builtin_cpu_supports() knows it from GCC 11 on. */
static bool
has_f16c(void)
{
	unsigned	a,
				b,
				c,
				d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

#ifdef GK_CPU_DOTPROD
static bool
has_dotprod(void)
{
#if defined(__ARM_FEATURE_DOTPROD)
	return true;				/* the compiler was told so */
#elif defined(__linux__)
	return (getauxval(AT_HWCAP) >> 20 & 1) != 0;	/* HWCAP_ASIMDDP, which old headers lack */
#else
	return false;
#endif
}
#endif

static bool
supported(const GkCpuKernels *set)
{
#ifdef GK_CPU_AMX
	if (set == &gk_cpu_avx512_amx)
		return supported(&gk_cpu_avx512_vnni) && gk_cpu_has_amx();
#endif
#ifdef GK_CPU_X86
	if (set == &gk_cpu_avx512_vnni)
		return supported(&gk_cpu_avx512) && __builtin_cpu_supports("avx512vnni");
	if (set == &gk_cpu_avx512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
			__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
			supported(&gk_cpu_avx2);
	if (set == &gk_cpu_avx2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#endif
#ifdef GK_CPU_DOTPROD
	if (set == &gk_cpu_neon_dotprod)
		return has_dotprod();
#endif
	return set != NULL;
}

const GkCpuKernels *
gk_cpu_kernels_named(const char *name, char *reason, size_t reason_len)
{
	bool		any = strcmp(name, "auto") == 0;
	bool		known = false;

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
	{
		if (!any && strcmp(name, sets[i]->name) != 0 && strcmp(name, sets[i]->exact) != 0)
			continue;
		if (supported(sets[i]))
			return sets[i];
		known = true;
	}
	if (known)
	{
		snprintf(reason, reason_len, "this processor or operating system does not support %s", name);
		return NULL;
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
	/* several threads may come here first; each finds the same */
	const GkCpuKernels *k = __atomic_load_n(&chosen, __ATOMIC_RELAXED);

	if (k == NULL)
	{
		k = gk_cpu_kernels_named("auto", NULL, 0);
		__atomic_store_n(&chosen, k, __ATOMIC_RELAXED);
	}
	return k;
}

bool
gk_cpu_set_simd(const char *name, char *reason, size_t reason_len)
{
	const GkCpuKernels *set = gk_cpu_kernels_named(name, reason, reason_len);

	if (set == NULL)
		return false;
	__atomic_store_n(&chosen, set, __ATOMIC_RELAXED);
	return true;
}

const char *
gk_cpu_simd(void)
{
	return gk_cpu_kernels()->name;
}

int
gk_nearest(const float *point, int d, const float *centroids, int k, float *d2)
{
	return gk_cpu_kernels()->nearest(point, d, centroids, k, d2);
}

void
gk_distances(const float *point, int d, const float *centroids, int k, float *d2)
{
	gk_cpu_kernels()->distances(point, d, centroids, k, d2);
}

void
gk_tiles_assign(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2)
{
	gk_cpu_kernels()->assign(x, c, k0, k1, label, d2);
}

void
gk_tiles_add(const GkTiles *x, const int32_t *label, double *acc, size_t width, size_t copy)
{
	gk_cpu_kernels()->add(x, label, acc, width, copy);
}
