/*
 * gk_quality_simd.c - the inner loops of the measures of quality, 64 rows at a time.
 *
 * They give the same bits whatever instructions they are made of.  On x86-64,
 * gcc makes one version for each width of vectors, and the dynamic linker takes
 * the best; everywhere else it is the compiler's choice.  The Makefile's
 * -fno-math-errno lets it take roots in vectors.
 */
#include <math.h>
#include <string.h>

#include "core/gk_quality.h"

#define ROWS	GK_QUALITY_ROWS

#if defined(__GNUC__) && !defined(__clang__)
#define VECTORS __attribute__((optimize("O3")))
#else
#define VECTORS
#endif
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

typedef double Lanes __attribute__((vector_size(64)));

VECTORS CLONES void
gk_quality_d2(const double *z, size_t stride, int d, const double *p, double *out)
{
	for (int i = 0; i < ROWS; i += 32)
	{
		Lanes		s[4] = {{0}};

		for (int j = 0; j < d; j++)
		{
			const double *column = z + (size_t) j * stride + i;

			for (int g = 0; g < 4; g++)
			{
				Lanes		t;

				memcpy(&t, column + g * 8, sizeof(t));
				t -= p[j];
				s[g] += t * t;
			}
		}
		memcpy(out + i, s, sizeof(s));
	}
}

VECTORS CLONES void
gk_quality_roots(double *v)
{
	for (int i = 0; i < ROWS; i++)
		v[i] = sqrt(v[i]);
}

VECTORS CLONES void
gk_quality_pick(const double *restrict d2, const int64_t *restrict label, int64_t c,
				double *restrict own, double *restrict other)
{
	for (int i = 0; i < ROWS; i++)
	{
		double		nearer = d2[i] < other[i] ? d2[i] : other[i];

		own[i] = label[i] == c ? d2[i] : own[i];
		other[i] = label[i] == c ? other[i] : nearer;
	}
}
