/*
 * k-medians (cpu/medians) against brute force: labels, medians, inertia; the same bits for any threads,
 * chunks, instruction sets and, with given centroids, orders of the rows.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/store/gk_store.h"
#include "cpu/gk_cpu.h"
#include "cpu/medians/gk_medians.h"
#include "gk_test.h"
#include "gk_testhost.h"

static uint64_t rng = 5;

/* Checks that failed in the case at hand. */
static int	wrong;

#define CHECK(condition) (wrong += !(condition))

static int
by_value(const void *a, const void *b)
{
	float		x = *(const float *) a;
	float		y = *(const float *) b;

	return x < y ? -1 : x > y;
}

static void
test_select(void)
{
	for (int round = 0; round < 300; round++)
	{
		int			n = test_pick(&rng, 1, 400);
		int			values = test_pick(&rng, 1, 300);
		float	   *v = malloc(n * sizeof(float));
		float	   *sorted = malloc(n * sizeof(float));

		for (int i = 0; i < n; i++)
			v[i] = sorted[i] = (float) test_pick(&rng, -values, values);
		qsort(sorted, n, sizeof(float), by_value);
		for (int i = 0; i < 5; i++)
		{
			int			at = test_pick(&rng, 0, n - 1);

			CHECK(gk_select(v, n, at) == sorted[at]);
		}
		free(v);
		free(sorted);
	}
}

/* Whole numbers are prepared exactly: the model has to be the brute force's in the same arithmetic. */
typedef struct Answer
{
	GkModel		model;
	int32_t    *label;			/* [n] by the row's index */
} Answer;

static void
solve(TestHost *host, Answer *a, const double *x, int n, int d, const GkOptions *opt, const int *order, size_t chunk)
{
	GkError		err;
	Labels		l = {malloc(n * sizeof(int32_t)), malloc(n * sizeof(float)), 0};
	GkLabelSink sink = test_sink(&l);
	GkStore    *s = load_store(host, x, NULL, n, d, order, chunk, (size_t) 1 << 40, &err);

	CHECK(gk_store_prepare(s, GK_MANHATTAN, false, &err) == GK_OK);
	CHECK(gk_fit(s, &gk_cpu_backend, opt, &sink, &a->model, &err) == GK_OK);
	gk_store_free(s);
	a->label = l.label;
	free(l.d2);
}

static void
answer_free(TestHost *host, Answer *a)
{
	gk_model_free(&host->host, &a->model);
	free(a->label);
}

static double
l1(const double *x, const double *c, int d)
{
	double		sum = 0;

	for (int j = 0; j < d; j++)
		sum += fabs(x[j] - c[j]);
	return sum;
}

/*
 * Labels nearest, ties lowest; the inertia of the labels; medians of the labels, once converged.  Clusters get
 * their numbers after the last medians, which can move a row that is as near to another one: those of such
 * rows are left out.
 */
static void
check_answer(const Answer *a, const double *x, int n, int d)
{
	const GkModel *m = &a->model;
	float	   *v = malloc(n * sizeof(float));
	bool	   *tied = calloc(m->k, sizeof(bool));
	double		inertia = 0;

	CHECK(m->converged);
	for (int i = 0; i < n; i++)
	{
		int			best = 0;

		for (int c = 1; c < m->k; c++)
			if (l1(x + (size_t) i * d, m->centroids + (size_t) c * d, d) <
				l1(x + (size_t) i * d, m->centroids + (size_t) best * d, d))
				best = c;
		CHECK(a->label[i] == best);
		for (int c = best + 1; c < m->k; c++)
			if (l1(x + (size_t) i * d, m->centroids + (size_t) c * d, d) ==
				l1(x + (size_t) i * d, m->centroids + (size_t) best * d, d))
				tied[c] = tied[best] = true;
		inertia += l1(x + (size_t) i * d, m->centroids + (size_t) best * d, d);
	}
	CHECK(m->inertia == inertia);
	for (int c = 0; c < m->k; c++)
		for (int j = 0; j < d; j++)
		{
			int			count = 0;

			for (int i = 0; i < n; i++)
				if (a->label[i] == c)
					v[count++] = (float) x[(size_t) i * d + j];
			qsort(v, count, sizeof(float), by_value);
			CHECK(count == m->size[c]);
			CHECK(tied[c] || m->centroids[(size_t) c * d + j] == v[(count - 1) / 2]);
		}
	free(v);
	free(tied);
}

static void
check_same(const Answer *a, const Answer *b, int n, int d)
{
	CHECK(a->model.k == b->model.k && a->model.iterations == b->model.iterations);
	CHECK(a->model.inertia == b->model.inertia);
	CHECK(memcmp(a->model.centroids, b->model.centroids, sizeof(double) * a->model.k * d) == 0);
	CHECK(memcmp(a->label, b->label, n * sizeof(int32_t)) == 0);
	CHECK(memcmp(a->model.history_inertia, b->model.history_inertia, a->model.history_len * sizeof(double)) == 0);
}

static void
test_fit(int round)
{
	static const int ks[] = {1, 2, 5, 16, 40};
	static const char *const simd[] = {"scalar", "avx2", "avx512", "neon"};
	int			n = round % 4 == 0 ? test_pick(&rng, 40000, 60000) : test_pick(&rng, 60, 3000);
	int			d = test_pick(&rng, 1, round % 4 == 0 ? 3 : 12);
	int			k = ks[round % 5];
	int			range = round % 3 == 0 ? 12 : 50000;
	double	   *x = malloc(sizeof(double) * n * d);
	int		   *order = malloc(sizeof(int) * n);
	GkOptions	opt = {.k = k,.init = round % 2 ? GK_INIT_PLUSPLUS : GK_INIT_CENTROIDS,.n_init = 1,
	.max_iter = 1000,.seed = round,.distance = GK_MANHATTAN,.centroids = x};
	TestHost	host;
	Answer		one,
				other;
	char		reason[256];

	for (int i = 0; i < n * d; i++)
	{
		x[i] = test_pick(&rng, 0, range) + test_pick(&rng, 0, 2) * range;
		/* outliers; and groups that no sample of each 17th row meets */
		if (round % 5 == 1 && test_pick(&rng, 0, 99) == 0)
			x[i] += 500000;
		if (round % 5 == 2)
			x[i] += i / d % 17 * 3 * range;
	}
	for (int i = 0; i < n; i++)
		order[i] = n - 1 - i;
	test_host_init(&host, 1);
	solve(&host, &one, x, n, d, &opt, NULL, 1 << 20);
	check_answer(&one, x, n, d);
	for (int i = 0; i < 4; i++)
	{
		if (!gk_cpu_set_simd(simd[i], reason, sizeof(reason)))
			continue;
		host.host.threads = i + 2;
		solve(&host, &other, x, n, d, &opt, opt.init == GK_INIT_CENTROIDS ? order : NULL, 1 << (14 + i));
		check_same(&one, &other, n, d);
		answer_free(&host, &other);
	}
	CHECK(gk_cpu_set_simd("auto", reason, sizeof(reason)));
	answer_free(&host, &one);
	test_host_end(&host);
	free(x);
	free(order);
}

int
main(void)
{
	test_select();
	ok(wrong == 0, "selection");
	for (int round = 0; round < 20; round++)
	{
		wrong = 0;
		test_fit(round);
		ok(wrong == 0, "fit %d", round);
	}
	return done_testing();
}
