/*
 * How far a distance is from the true one, against the bound of docs/algorithms.md: with
 * u = 2^-24, the point x, the centroid c and the centre m of the features,
 *   |D' - D| <= u (|x - m| + |c - m|) + u (d + 2) D / 2
 * to the first order in u.
 */
#include <math.h>
#include <stdlib.h>

#include "core/gk_numerics.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define U	0x1p-24

typedef enum Shape
{
	NORMAL, EQUAL, NEAR, FALLING, SHAPES
} Shape;

static const char *const names[] = {"normal", "all differences equal", "point near its centroid", "falling magnitudes"};

static void
make(Shape shape, uint64_t *rng, int d, double *x, double *c)
{
	double		same = 0.5 + test_uniform(rng) / 2.0;

	for (int j = 0; j < d; j++)
	{
		c[j] = test_normal(rng) / 8.0;
		x[j] = test_normal(rng) / 8.0;
		if (shape == EQUAL)
		{
			c[j] = 0.0;
			x[j] = same;
		}
		if (shape == NEAR)
			x[j] = c[j] * (1.0 + 1e-3 * test_normal(rng));
		if (shape == FALLING)
			x[j] = ldexp(x[j], -(j % 40));
		x[j] = fmax(-1.0, fmin(1.0, x[j]));
	}
}

/* The error as a part of the bound; and, relative, *relative. */
static double
part_of_bound(Shape shape, uint64_t *rng, int d, double *relative)
{
	double	   *x = malloc(4 * d * sizeof(double));
	double	   *c = x + d;
	double	   *center = c + d;
	double	   *scale = center + d;
	float	   *fx = malloc(2 * d * sizeof(float));
	float	   *fc = fx + d;
	int32_t    *expo = calloc(d, sizeof(int32_t));
	GkPrep		prep = {.d = d,.center = center,.scale = scale,.expo = expo};
	long double sum = 0.0L,
				xx = 0.0L,
				cc = 0.0L;
	double		got;
	double		bound;

	make(shape, rng, d, x, c);
	for (int j = 0; j < d; j++)
	{
		center[j] = 0.0;
		scale[j] = 1.0;
		sum += ((long double) x[j] - c[j]) * ((long double) x[j] - c[j]);
		xx += (long double) x[j] * x[j];
		cc += (long double) c[j] * c[j];
	}
	gk_prepare_point(&prep, x, fx);
	gk_model_prepare(&prep, c, 1, fc);
	got = gk_distance_from_d2(&prep, gk_d2(fx, 1, fc, d));
	/* 2^-41 of the largest magnitude for each feature: the grid; 1 + 2e-3: the higher orders */
	bound = (1.0 + 2e-3) * (U * ((double) (sqrtl(xx) + sqrtl(cc)) + (d + 2) * (double) sqrtl(sum) / 2.0) + sqrt(d) * 0x1p-41);
	*relative = fabs(got - (double) sqrtl(sum)) / (double) sqrtl(sum);
	free(x);
	free(fx);
	free(expo);
	return fabs(got - (double) sqrtl(sum)) / bound;
}

int
main(void)
{
	static const int dims[] = {1, 2, 3, 8, 100, 1000, 4096, 16384};
	uint64_t	rng = 11;
	double		largest = 0.0;

	for (int s = 0; s < SHAPES; s++)
		for (int i = 0; i < (int) (sizeof(dims) / sizeof(dims[0])); i++)
		{
			double		worst = 0.0;
			double		relative = 0.0;

			for (int t = 0; t < 200; t++)
			{
				double		r;

				worst = fmax(worst, part_of_bound((Shape) s, &rng, dims[i], &r));
				relative = fmax(relative, r);
			}
			ok(worst <= 1.0, "%s, d = %d: at most %.2g of the bound, %.2g of the distance", names[s], dims[i], worst, relative);
			if (dims[i] == 16384)
				largest = fmax(largest, relative);
		}
	ok(largest > 2e-5, "with many features it is more than one part in ten million: %.2g", largest);
	return done_testing();
}
