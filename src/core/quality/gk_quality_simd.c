/*
 * gk_quality_simd.c - the inner loops of the measures of quality, eight rows in a vector.
 *
 * They give the same bits on any instruction set.  On x86-64,
 * gcc makes one version for each width of vectors, and the dynamic linker takes
 * the best; everywhere else it is the compiler's choice.  The Makefile's
 * -fno-math-errno lets it take roots in vectors.
 */
#include <math.h>
#include <string.h>

#include "core/quality/gk_quality_internal.h"

#define ROWS	GK_QUALITY_ROWS
#define LANES	GK_QUALITY_LANES
#define QUAD	GK_QUALITY_QUAD
#define GROUPS	4				/* vectors at work at a time */

#if defined(__GNUC__) && !defined(__clang__)
#define VECTORS __attribute__((optimize("O3")))
/* only inline functions pass vectors, so no calling convention is concerned */
#pragma GCC diagnostic ignored "-Wpsabi"
#else
#define VECTORS
#endif
/* what chooses a clone runs before ThreadSanitizer is ready for it */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) && \
	!defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

typedef double Lanes __attribute__((vector_size(8 * LANES)));

#define LOAD(v, from)	memcpy(&(v), from, sizeof(v))

VECTORS		CLONES void
gk_quality_own_other(const double *z, int d, const double *mean, int k, const double *label,
					 double *restrict own, double *restrict other)
{
	for (int i = 0; i < ROWS; i++)
	{
		own[i] = 0.0;
		other[i] = INFINITY;
	}
	for (int i = 0; i < ROWS; i += GROUPS * LANES)
		for (int c = 0; c < k; c++)
		{
			Lanes		s[GROUPS] = {{0}};
			double		d2[GROUPS * LANES];

			for (int j = 0; j < d; j++)
				for (int g = 0; g < GROUPS; g++)
				{
					Lanes		t;

					LOAD(t, z + (size_t) j * ROWS + i + g * LANES);
					t -= mean[(size_t) c * d + j];
					s[g] += t * t;
				}
			/* compilers make selects of loops, but not of vectors of unknown width */
			memcpy(d2, s, sizeof(d2));
			for (int l = 0; l < GROUPS * LANES; l++)
			{
				bool		is_own = label[i + l] == (double) c;
				double		nearer = d2[l] < other[i + l] ? d2[l] : other[i + l];

				own[i + l] = is_own ? d2[l] : own[i + l];
				other[i + l] = is_own ? other[i + l] : nearer;
			}
		}
}

/*
 * A value of at most 1 in two parts, multiples of 2^-46 and of 2^-62: sums of ROWS of either are exact,
 * in any order.
 */
static inline double
coarse(double v)
{
	return (v + 0x1.8p6) - 0x1.8p6;
}

static inline double
fine(double v)
{
	return ((v - coarse(v)) + 0x1.8p-10) - 0x1.8p-10;
}

VECTORS		CLONES void
gk_quality_scores(double *own, double *other, double *score)
{
	double		sum[2][LANES] = {{0}};

	for (int i = 0; i < ROWS; i++)
	{
		own[i] = sqrt(own[i]);
		other[i] = sqrt(other[i]);
	}
	for (int i = 0; i < ROWS; i += LANES)
		for (int l = 0; l < LANES; l++)
		{
			double		a = own[i + l];
			double		b = other[i + l];
			double		larger = a > b ? a : b;

			/* both 0: no cluster is nearer than the other */
			double		v = (b - a) / (larger > 0.0 ? larger : 1.0);

			sum[0][l] += coarse(v);
			sum[1][l] += fine(v);
		}
	score[0] = gk_quality_add(sum[0]);
	score[1] = gk_quality_add(sum[1]);
}

VECTORS		CLONES void
gk_quality_distances(const double *z, size_t stride, int n, int d, const double *point, double *out)
{
	static const double weight[2 * LANES] = {1, 1, 1, 1, 1, 1, 1, 1};
	Lanes		sum[QUAD] = {{0}};

	for (int i = 0; i < n; i += LANES)
	{
		Lanes		s[QUAD] = {{0}};

		for (int j = 0; j < d; j++)
		{
			Lanes		x;

			LOAD(x, z + (size_t) j * stride + i);
			for (int r = 0; r < QUAD; r++)
			{
				Lanes		t = x - point[(size_t) j * stride + r];

				s[r] += t * t;
			}
		}
		for (int r = 0; r < QUAD; r++)
		{
			double		v[LANES];

			memcpy(v, &s[r], sizeof(v));
			for (int l = 0; l < LANES; l++)
				v[l] = sqrt(v[l]);
			LOAD(s[r], v);
		}
		if (n - i < LANES)
		{
			Lanes		w;

			LOAD(w, weight + LANES - (n - i));
			for (int r = 0; r < QUAD; r++)
				s[r] *= w;
		}
		for (int r = 0; r < QUAD; r++)
			sum[r] += s[r];
	}
	for (int r = 0; r < QUAD; r++)
	{
		double		lane[LANES];

		memcpy(lane, &sum[r], sizeof(lane));
		out[r] = gk_quality_add(lane);
	}
}
