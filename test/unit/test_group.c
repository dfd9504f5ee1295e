/*
 * Groups (gk_group_fit.h): the same model and labels from any order of the points,
 * whatever ties there are; labels come back in the order given.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/groups/gk_group_fit.h"
#include "gk_test.h"
#include "gk_testhost.h"

typedef struct Points
{
	const double *x;
	const int  *order;
	int			width;
} Points;

static const double *
row(const void *arg, int64_t i)
{
	const Points *p = arg;

	return p->x + (size_t) p->order[i] * p->width;
}

/* Many ties in the first feature, copies of points, both zeros. */
static bool
any_order(uint64_t *rng, int number)
{
	int			n = test_pick(rng, 1, number % 2 ? 400 : 4000);
	int			d = test_pick(rng, 1, 5);
	bool		weighted = number % 3 == 0;
	int			width = d + (weighted ? 1 : 0);
	double	   *x = malloc(sizeof(double) * n * width);
	int		   *order = malloc(sizeof(int) * n);
	int32_t    *label[2] = {malloc(sizeof(int32_t) * n), malloc(sizeof(int32_t) * n)};
	GkModel		model[2];
	TestHost	host;
	GkError		err;
	GkOptions	opt = {.k = test_pick(rng, 1, 6),.n_init = 1,.max_iter = 20,.tol = 0,.seed = number};
	bool		good = true;

	test_host_init(&host, 1);
	for (int i = 0; i < n; i++)
	{
		order[i] = i;
		for (int j = 0; j < d; j++)
			x[i * width + j] = number % 4 == 1 ? test_normal(rng) :
				number % 4 == 2 ? test_pick(rng, -2, 2) * (j == 0 ? 1.0 : 0.37) : test_pick(rng, -1, 1) * 0.0 + test_pick(rng, 0, 40);
		if (weighted)
			x[i * width + d] = test_pick(rng, 1, 9);
	}
	for (int t = 0; t < 2; t++)
	{
		Points		p = {x, order, width};

		good &= gk_group_fit(&host.host, &gk_cpu_backend, &opt, &(GkGroupPoints) {row, &p, n, d, weighted},
							 label[t], &model[t], &err) == GK_OK;
		/* Each point has the nearest centroid's label, seen from where it was given. */
		for (int i = 0; i < n; i++)
		{
			float		f[8];
			float		c[64];
			float		d2;

			gk_prepare_point(&model[t].prep, row(&p, i), f);
			gk_model_prepare(&model[t].prep, model[t].centroids, model[t].k, c);
			good &= label[t][i] == gk_nearest(f, d, c, model[t].k, &d2);
		}
		for (int i = n - 1; i > 0; i--)
		{
			int			j = test_pick(rng, 0, i);
			int			was = order[i];

			order[i] = order[j];
			order[j] = was;
		}
	}
	good &= model[0].k == model[1].k && model[0].inertia == model[1].inertia &&
		model[0].k_asked == opt.k &&
		memcmp(model[0].centroids, model[1].centroids, sizeof(double) * model[0].k * d) == 0;
	gk_model_free(&host.host, &model[0]);
	gk_model_free(&host.host, &model[1]);
	good &= host.live == 0;
	test_host_end(&host);
	free(x);
	free(order);
	free(label[0]);
	free(label[1]);
	return good;
}

/* Floats one after the other are clustered as the same points that row() has. */
static bool
floats_as_doubles(uint64_t *rng, int number)
{
	int			n = test_pick(rng, 1, number % 2 ? 400 : 4000);
	int			d = test_pick(rng, 1, 5);
	bool		weighted = number % 3 == 0;
	int			width = d + (weighted ? 1 : 0);
	float	   *f = malloc(sizeof(float) * n * width);
	double	   *x = malloc(sizeof(double) * n * width);
	int		   *order = malloc(sizeof(int) * n);
	int32_t    *label[2] = {malloc(sizeof(int32_t) * n), malloc(sizeof(int32_t) * n)};
	Points		p = {x, order, width};
	GkModel		model[2];
	TestHost	host;
	GkError		err;
	GkOptions	opt = {.k = test_pick(rng, 1, 6),.n_init = 1,.max_iter = 20,.tol = 0,.seed = number};
	bool		good;

	test_host_init(&host, 1);
	for (int i = 0; i < n; i++)
		order[i] = i;
	/* of four kinds: any, ties in the first feature, both zeros, tiny and huge */
	for (int i = 0; i < n * width; i++)
	{
		f[i] = weighted && i % width == d ? (float) test_pick(rng, 1, 9) :
			number % 4 == 0 ? (float) test_normal(rng) :
			number % 4 == 1 ? (float) (i % width == 0 ? test_pick(rng, -2, 2) : test_normal(rng)) :
			number % 4 == 2 ? (float) test_pick(rng, -1, 1) * 0.0f : (float) test_normal(rng) * (i % 7 == 0 ? 1e-38f : 1e30f);
		x[i] = f[i];
	}
	good = gk_group_fit(&host.host, &gk_cpu_backend, &opt, &(GkGroupPoints) {row, &p, n, d, weighted}, label[0], &model[0], &err) == GK_OK &&
		gk_group_fit(&host.host, &gk_cpu_backend, &opt, &(GkGroupPoints) {NULL, f, n, d, weighted}, label[1], &model[1], &err) == GK_OK;
	good = good && model[0].k == model[1].k && model[0].inertia == model[1].inertia &&
		model[0].iterations == model[1].iterations &&
		memcmp(model[0].centroids, model[1].centroids, sizeof(double) * model[0].k * d) == 0 &&
		memcmp(model[0].radius, model[1].radius, sizeof(double) * model[0].k) == 0 &&
		memcmp(label[0], label[1], sizeof(int32_t) * n) == 0;
	gk_model_free(&host.host, &model[0]);
	gk_model_free(&host.host, &model[1]);
	good &= host.live == 0;
	test_host_end(&host);
	free(f);
	free(x);
	free(order);
	free(label[0]);
	free(label[1]);
	return good;
}

int
main(void)
{
	uint64_t	rng = 4;
	int			bad = 0;

	for (int i = 0; i < 60; i++)
		if (!any_order(&rng, i))
		{
			printf("# group %d\n", i);
			bad++;
		}
	ok(bad == 0, "60 groups: any order gives the same model, labels belong to their points (%d bad)", bad);
	bad = 0;
	for (int i = 0; i < 48; i++)
		bad += !floats_as_doubles(&rng, i);
	ok(bad == 0, "48 groups of floats: as of doubles (%d bad)", bad);

	{
		TestHost	host;
		GkError		err;
		GkModel		model;
		GkOptions	opt = {.k = 3,.n_init = 1,.max_iter = 5,.tol = 0};
		double		x[30];
		int			order[30];
		Points		p = {x, order, 1};
		int64_t		nth = 1;

		for (int i = 0; i < 30; i++)
		{
			x[i] = i * i;
			order[i] = i;
		}
		for (;; nth++)
		{
			GkStatus	st;

			test_host_init(&host, 1);
			host.fail_at = nth;
			st = gk_group_fit(&host.host, &gk_cpu_backend, &opt, &(GkGroupPoints) {row, &p, 30, 1, false}, NULL, &model, &err);
			if (st == GK_OK)
				gk_model_free(&host.host, &model);
			bad += host.live != 0 || (st != GK_OK && st != GK_ERR_MEMORY);
			test_host_end(&host);
			if (st == GK_OK)
				break;
		}
		ok(bad == 0 && nth > 10, "each of %lld failing allocations leaves nothing behind (%d bad)", (long long) nth - 1, bad);
		ok(gk_group_fit(&host.host, &gk_cpu_backend, &opt, &(GkGroupPoints) {row, &p, GK_MAX_GROUP + 1, 1, false}, NULL, &model,
						&err) == GK_ERR_LIMIT,
		   "too many points are an error");
	}
	return done_testing();
}
