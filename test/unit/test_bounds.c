/*
 * Skipping points by bounds: the same bits as without, over sizes, ties, duplicates,
 * outliers, weights, empty clusters, chunks, threads and instruction sets; and it does
 * skip.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "gk_test.h"
#include "gk_testhost.h"

static uint64_t rng = 5;

typedef struct Data
{
	int			n,
				d,
				k;
	double	   *x;
	double	   *w;				/* NULL: no weights */
	double	   *init;			/* [k][d] */
} Data;

static Data
random_data(int number)
{
	static const int ks[] = {2, 3, 5, 16, 17, 40, 130, 300};
	static const TestKind kinds[] = {
		TEST_LATTICE, TEST_DUPLICATES, TEST_UNIFORM, TEST_BLOBS,
		TEST_OUTLIERS, TEST_FAR_APART, TEST_BLOBS
	};
	Data		p = {.k = ks[number % 8]};
	int			most;

	p.d = number % 3 == 0 ? test_pick(&rng, 1, 4) : number % 3 == 1 ? test_pick(&rng, 5, 20) : test_pick(&rng, 21, 90);
	most = 3000000 / (p.d * p.k) + 1;
	p.n = test_pick(&rng, 1, 6000);
	p.n = p.n > most ? most : p.n;
	p.n = p.n < p.k ? p.k : p.n;
	p.x = random_points(&rng, kinds[number % 7], p.n, p.d);
	p.init = malloc(sizeof(double) * p.k * p.d);
	for (int i = 0; i < p.k; i++)
		memcpy(p.init + (size_t) i * p.d, p.x + (size_t) test_pick(&rng, 0, p.n - 1) * p.d, sizeof(double) * p.d);
	/* Clusters that start empty: far away, or copies. */
	if (number % 7 == 6)
	{
		p.init[0] = 1e15;
		memcpy(p.init + (size_t) (p.k - 1) * p.d, p.init + (size_t) (p.k / 2) * p.d, sizeof(double) * p.d);
	}
	if (number % 4 == 2)
		p.w = random_weights(&rng, p.n);
	return p;
}

static void
data_free(Data *p)
{
	free(p->x);
	free(p->w);
	free(p->init);
}

typedef struct Answer
{
	TestHost	host;
	GkStatus	status;
	GkModel		model;
	Labels		labels;
} Answer;

static void
solve(Answer *a, const Data *p, GkSkip skip, int threads, size_t chunk, size_t limit, GkFeatureSum sum)
{
	GkOptions	opt = {.k = p->k,.init = GK_INIT_CENTROIDS,.centroids = p->init,.n_init = 1,
	.max_iter = 25,.feature_sum = sum};
	GkLabelSink sink;
	GkStore    *s;
	GkError		err;

	memset(a, 0, sizeof(*a));
	test_host_init(&a->host, threads);
	a->host.host.skip = skip;
	a->labels.label = malloc(sizeof(int32_t) * p->n);
	a->labels.d2 = malloc(sizeof(float) * p->n);
	sink = test_sink(&a->labels);
	s = load_store(&a->host, p->x, p->w, p->n, p->d, NULL, chunk, limit, &err);
	a->status = gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
	if (a->status == GK_OK)
		a->status = gk_fit(s, &gk_cpu_backend, &opt, &sink, &a->model, &err);
	gk_store_free(s);
}

static void
answer_free(Answer *a)
{
	gk_model_free(&a->host.host, &a->model);
	free(a->labels.label);
	free(a->labels.d2);
	test_host_end(&a->host);
}

static bool
same(const Answer *a, const Answer *b, int n)
{
	const GkModel *x = &a->model,
			   *y = &b->model;

	return a->status == GK_OK && b->status == GK_OK && x->k == y->k && x->iterations == y->iterations &&
		x->converged == y->converged && x->inertia == y->inertia &&
		memcmp(x->centroids, y->centroids, sizeof(double) * x->k * x->prep.d) == 0 &&
		memcmp(x->size, y->size, sizeof(int64_t) * x->k) == 0 &&
		memcmp(x->radius, y->radius, sizeof(double) * x->k) == 0 &&
		memcmp(x->history_inertia, y->history_inertia, sizeof(double) * x->history_len) == 0 &&
		memcmp(x->history_shift, y->history_shift, sizeof(double) * x->history_len) == 0 &&
		memcmp(a->labels.label, b->labels.label, sizeof(int32_t) * n) == 0 &&
		memcmp(a->labels.d2, b->labels.d2, sizeof(float) * n) == 0;
}

static void
test_fits(const char *simd, int problems)
{
	static const int threads[] = {1, 2, 7, 16};
	static const size_t chunks[] = {1 << 24, 30000, 7000};
	char		reason[128];
	int			bad = 0;
	int			leaks = 0;

	gk_cpu_set_simd(simd, reason, sizeof(reason));
	for (int number = 0; number < problems; number++)
	{
		Data		p = random_data(number);
		Answer		want;

		solve(&want, &p, GK_SKIP_OFF, 1, 1 << 24, SIZE_MAX, GK_CLUSTER_MERGE);
		for (int way = 0; way < 3; way++)
		{
			Answer		got;

			/* forced, as it comes, and with points in a file, where there are no bounds */
			solve(&got, &p, way == 1 ? GK_SKIP_AUTO : GK_SKIP_ON, threads[(number + way) % 4],
				  chunks[(number + way) % 3], way == 2 ? 100000 : SIZE_MAX,
				  number % 5 == 0 ? GK_DELTA : GK_FSUM_AUTO);
			if (!same(&want, &got, p.n))
			{
				bad++;
				printf("# %s problem %d way %d (n %d d %d k %d) differs\n", simd, number, way, p.n, p.d, p.k);
			}
			answer_free(&got);
			leaks += got.host.live != 0;
		}
		answer_free(&want);
		data_free(&p);
	}
	ok(bad == 0 && leaks == 0, "%s: %d problems with and without skipping (%d differ, %d leak)",
	   simd, problems, bad, leaks);
}

/* ---- steps from one set of centroids to the next ---- */

static void
prepared_points(const GkPoints *pts, float *x)
{
	for (int i = 0; i < pts->nchunks; i++)
		for (int r = 0; r < pts->chunks[i].rows; r++)
			for (int j = 0; j < pts->d; j++)
				x[(pts->chunks[i].first + r) * pts->d + j] = pts->chunks[i].data[(size_t) j * pts->chunks[i].stride + r];
}

/*
 * Centroids wander, mostly little, sometimes far, sometimes not at all, long enough
 * for many epochs; counts after each step against plain loops.
 */
static void
test_walk(const char *simd, int d, int k)
{
	enum
	{
	N = 3000, STEPS = 60};
	TestHost	host;
	GkError		err;
	double	   *x = malloc(sizeof(double) * N * d);
	float	   *points = malloc(sizeof(float) * N * d);
	float	   *c = malloc(sizeof(float) * k * d);
	GkStep		step = {.sum = malloc(sizeof(gk_int128) * k * d),.mass = malloc(sizeof(gk_int128) * k),
	.count = malloc(sizeof(int64_t) * k)};
	int64_t    *count = malloc(sizeof(int64_t) * k);
	GkProblem	problem = {.core = &gk_core,.k_max = k};
	GkSession  *session;
	GkStore    *store;
	char		reason[128];
	int			bad = 0;
	double		least = 1.0;
	bool		grouped = false;

	gk_cpu_set_simd(simd, reason, sizeof(reason));
	test_host_init(&host, 3);
	host.host.skip = GK_SKIP_ON;
	for (int i = 0; i < N * d; i++)
		x[i] = (i / d % 4) * 9.0 + test_normal(&rng);
	store = load_store(&host, x, NULL, N, d, NULL, 20000, SIZE_MAX, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	prepared_points(gk_store_points(store), points);
	problem.host = &host.host;
	problem.store = store;
	gk_cpu_backend.open(&problem, &session, &err);
	for (int i = 0; i < k * d; i++)
		c[i] = points[(size_t) (i / d * 37 % N) * d + i % d];
	for (int s = 0; s < STEPS; s++)
	{
		float		size = s % 20 == 19 ? 0.3f : s % 7 == 6 ? 0.0f : (float) pow(10.0, -1 - s / 8.0);

		for (int i = 0; i < k * d; i++)
			c[i] += size * (float) test_normal(&rng) * (test_pick(&rng, 0, 3) == 0);
		if (gk_cpu_backend.step(session, c, k, &step, &err) != GK_OK)
			bad++;
		memset(count, 0, sizeof(int64_t) * k);
		for (int i = 0; i < N; i++)
		{
			float		best = INFINITY;
			int			label = 0;

			for (int q = 0; q < k; q++)
			{
				float		d2 = gk_d2(points + (size_t) i * d, 1, c + (size_t) q * d, d);

				if (d2 < best)
				{
					best = d2;
					label = q;
				}
			}
			count[label]++;
		}
		bad += memcmp(count, step.count, sizeof(int64_t) * k) != 0;
		if (s > 1 && session->hamerly.share < least)
			least = session->hamerly.share;
		grouped |= s > 1 && session->hamerly.grouped;
	}
	ok(bad == 0, "%s: %d steps of %d wandering centroids, d %d (%d wrong)", simd, STEPS, k, d, bad);
	ok(grouped || k < 100, "%s: of %d centroids those nearby", simd, k);
	ok(least < 0.05, "%s: the calmest step looked at %.1f %% of the points", simd, 100 * least);
	gk_cpu_backend.close(session);
	gk_store_free(store);
	free(x);
	free(points);
	free(c);
	free(step.sum);
	free(step.mass);
	free(step.count);
	free(count);
	ok(host.live == 0, "nothing left allocated");
	test_host_end(&host);
}

/* No room within the memory limit: no bounds, the same answer. */
static void
test_memory(void)
{
	Data		p = random_data(3);
	Answer		a,
				b;

	solve(&a, &p, GK_SKIP_OFF, 1, 1 << 20, SIZE_MAX, GK_FSUM_AUTO);
	solve(&b, &p, GK_SKIP_ON, 1, 1 << 20, (size_t) p.n * p.d * sizeof(float) + 4096, GK_FSUM_AUTO);
	ok(same(&a, &b, p.n), "a memory limit that has room for the points alone");
	answer_free(&a);
	answer_free(&b);
	data_free(&p);
}

int
main(void)
{
	static const char *const levels[] = {"avx512", "avx2", "neon", "scalar"};
	char		reason[128];

	for (int i = 0; i < 4; i++)
		if (gk_cpu_kernels_named(levels[i], reason, sizeof(reason)) != NULL)
		{
			test_fits(levels[i], i == 3 ? few_or_all(7, 21) : few_or_all(21, 56));
			test_walk(levels[i], 2, 5);
			test_walk(levels[i], 7, 40);
			test_walk(levels[i], 33, 20);
			test_walk(levels[i], 3, 200);
		}
		else
			skip("%s", reason);
	test_memory();
	return done_testing();
}
