/*
 * A model of given centroids alone: prepared as a fit to them, the same labels, and nothing left
 * behind when an allocation fails.
 */
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "gk_test.h"
#include "gk_testhost.h"

static const GkDistance distances[] = {GK_EUCLIDEAN, GK_COSINE, GK_MANHATTAN};

/* By gk_fit(): the centroids are the rows and stay as they are. */
static GkStatus
fit_to(TestHost *t, const double *x, int k, int d, GkDistance distance, GkModel *m, GkError *err)
{
	GkOptions	opt = {.k = k,.init = GK_INIT_CENTROIDS,.centroids = x,.n_init = 1,.max_iter = 0,.distance = distance};
	GkStore    *s = load_store(t, x, NULL, k, d, NULL, 100000, SIZE_MAX, err);
	GkStatus	st = gk_store_prepare(s, distance, false, err);

	if (st == GK_OK)
		st = gk_fit(s, &gk_cpu_backend, &opt, NULL, m, err);
	gk_store_free(s);
	return st;
}

static GkStatus
of_given(TestHost *t, const double *x, int k, int d, GkDistance distance, GkModel *m, GkError *err)
{
	double	   *centroids = gk_alloc(&t->host, (size_t) k * d, sizeof(double));

	if (centroids == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	memcpy(centroids, x, (size_t) k * d * sizeof(double));
	return gk_model_of_given(&t->host, centroids, k, d, distance, m, err);
}

static bool
same_model(const GkModel *a, const GkModel *b)
{
	int			d = a->prep.d;
	size_t		numbers = (size_t) a->k * d * sizeof(double);

	return a->k == b->k && a->init == b->init && d == b->prep.d && a->prep.distance == b->prep.distance &&
		a->prep.unit_exp == b->prep.unit_exp && a->prep.standardize == b->prep.standardize &&
		memcmp(a->prep.center, b->prep.center, d * sizeof(double)) == 0 &&
		memcmp(a->prep.scale, b->prep.scale, d * sizeof(double)) == 0 &&
		memcmp(a->prep.expo, b->prep.expo, d * sizeof(int32_t)) == 0 &&
		memcmp(a->centroids, b->centroids, numbers) == 0;
}

static void
test_same_as_fit(void)
{
	uint64_t	rng = 17;
	int			bad = 0;
	int			seen = 0;

	for (int i = 0; i < 120; i++)
	{
		int			k = test_pick(&rng, 1, i % 30 == 9 ? 5000 : 60);
		int			d = test_pick(&rng, 1, 20);
		double	   *x = random_points(&rng, (TestKind) (i % (TEST_FAR_APART + 1)), k, d);
		GkDistance	distance = distances[i % 3];
		TestHost	t;
		GkModel		fit;
		GkModel		given;
		GkError		err;

		/* the cosine distance wants directions */
		for (int c = 0; c < k; c++)
			x[(size_t) c * d] += 0.5;
		test_host_init(&t, 1 + i % 3);
		if (fit_to(&t, x, k, d, distance, &fit, &err) == GK_OK)
		{
			bad += of_given(&t, x, k, d, distance, &given, &err) != GK_OK || !same_model(&fit, &given) ||
				given.rows_used != 0 || given.size[k - 1] != 0;
			seen++;
			gk_model_free(&t.host, &given);
			gk_model_free(&t.host, &fit);
		}
		bad += t.live != 0;
		test_host_end(&t);
		free(x);
	}
	ok(bad == 0 && seen > 100, "%d models of given centroids are prepared as fits to them (%d are not)", seen, bad);
}

static void
test_failures(void)
{
	static const double x[] = {1, 2, 3, 4, 5, 7};
	static const double zero[] = {1, 2, 0, 0};
	int			bad = 0;
	int64_t		nth = 0;
	GkStatus	st;
	TestHost	t;
	GkModel		m;
	GkError		err;

	do
	{
		test_host_init(&t, 1);
		t.fail_at = ++nth;
		st = of_given(&t, x, 3, 2, GK_EUCLIDEAN, &m, &err);
		bad += st != GK_OK && st != GK_ERR_MEMORY;
		if (st == GK_OK)
			gk_model_free(&t.host, &m);
		bad += t.live != 0;
		test_host_end(&t);
	} while (st != GK_OK && nth < 100);
	ok(bad == 0 && nth > 10, "failing allocation, 1st to %dth, leaves the right error and nothing else (%d bad)", (int) nth, bad);

	test_host_init(&t, 1);
	st = of_given(&t, zero, 2, 2, GK_COSINE, &m, &err);
	ok(st == GK_ERR_OPTION && t.live == 0, "a centroid without direction is refused");
	test_host_end(&t);
}

int
main(void)
{
	test_same_as_fit();
	test_failures();
	return done_testing();
}
