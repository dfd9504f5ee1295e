/*
 * test_ingest.c - points that go to a real GPU while they are read: the same prepared points,
 * exact totals and models as those that stay in main memory, bit for bit; faults, cancels, no
 * memory lost.
 *
 *   test_ingest DIRECTORY [small|full]     of gkmeans_gpu.so
 *
 * small: little work, for compute-sanitizer.  Prints what failed, then "N passed, N failed",
 * or "skipped: reason" without a usable GPU.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_engine.h"
#include "core/store/gk_store.h"
#include "gk_testhost.h"
#include "gpu_memory.h"

static int	passed;
static int	failed;

static void
check(bool good, const char *what, int64_t n, int d)
{
	if (good)
		passed++;
	else
	{
		failed++;
		printf("FAILED: %s, %lld points of %d features\n", what, (long long) n, d);
	}
	fflush(stdout);
}

typedef enum Kind
{
	NEAR, FAR, WHOLE, TINY, CONSTANT, KINDS
} Kind;

static const char *const kind_names[] = {"near", "30 orders apart", "whole numbers", "subnormal", "a constant column"};

/* Floats; or, wide, doubles of which few are. */
static double *
make_points(Kind kind, bool wide, int64_t n, int d)
{
	double	   *x = malloc((size_t) n * d * sizeof(double));
	uint64_t	rng = 7 + kind;

	for (int64_t i = 0; i < n; i++)
		for (int j = 0; j < d; j++)
		{
			double		v = test_uniform(&rng) - 0.3 + (double) (i % 3);

			if (kind == FAR)
				v = ldexp(v, (int) (test_uniform(&rng) * 60) - 50) * (j % 2 ? 1e15 : 1e-15) * (wide && j % 3 == 0 ? 1e100 : 1);
			else if (kind == WHOLE)
				v = floor(v * (wide ? 1e12 : 1e6));
			else if (kind == TINY)
				v *= j % 2 ? 1e-41 : 1e-3;
			else if (kind == CONSTANT && j % 2 == 0)
				v = 0.1f;
			x[i * d + j] = wide ? v : (float) v;
		}
	return x;
}

/* Rows by batches of any size, many at a time, by so many threads. */
static GkStatus
fill(GkStore *s, const double *x, int64_t n, int d, int threads, GkError *err)
{
	enum
	{
	MOST = 64};
	int			capacity = gk_batch_capacity(d, 256 * 1024);
	GkBatch		batches[MOST];
	size_t		bytes = (gk_batch_bytes(d, 0, capacity) + 63) / 64 * 64;
	char	   *memory = malloc(MOST * bytes);
	GkColumnStats *stats = malloc(d * sizeof(GkColumnStats));
	uint64_t	rng = 3;
	GkStatus	st = GK_OK;

	gk_stats_clear(stats, d);
	for (int64_t row = 0; st == GK_OK && row < n;)
	{
		int			count = 0;

		for (; count < MOST && row < n; count++)
		{
			GkBatch    *b = &batches[count];
			int			rows = 1 + (int) (test_uniform(&rng) * (capacity - 1));

			gk_batch_init(b, memory + count * bytes, d, 0, capacity);
			for (; b->rows < rows && row < n; b->rows++, row++)
				for (int j = 0; j < d; j++)
					gk_batch_put(b, j, x[row * d + j]);
			gk_batch_observe(b, stats);
		}
		st = gk_store_add(s, batches, count, threads, err);
	}
	gk_store_observed(s, stats);
	free(stats);
	free(memory);
	return st;
}

static GkStatus
make_store(TestHost *t, const GkBackend *device, bool wide, int64_t expect, const double *x, int64_t n, int d, GkStore **out, GkError *err)
{
	GkStatus	st = gk_store_create(&t->host, d, false, 0, 16 << 20, SIZE_MAX, out, err);

	if (st == GK_OK && device != NULL)
	{
		gk_store_expect(*out, expect);
		st = gk_store_ingest(*out, device, wide, err);
	}
	if (st == GK_OK)
		st = fill(*out, x, n, d, t->host.threads, err);
	return st == GK_OK ? gk_store_prepare(*out, GK_EUCLIDEAN, false, err) : st;
}

static bool
same_totals(const GkPoints *a, const GkPoints *b)
{
	return a->n == b->n && a->d2_expo == b->d2_expo && a->total_mass == b->total_mass &&
		memcmp(a->total_sum, b->total_sum, a->d * sizeof(gk_int128)) == 0 &&
		memcmp(&a->sum_sq, &b->sum_sq, sizeof(double)) == 0 && memcmp(&a->mean_var, &b->mean_var, sizeof(double)) == 0 &&
		memcmp(a->prep.center, b->prep.center, a->d * sizeof(double)) == 0 &&
		memcmp(a->prep.scale, b->prep.scale, a->d * sizeof(double)) == 0 &&
		memcmp(a->prep.expo, b->prep.expo, a->d * sizeof(int32_t)) == 0;
}

static bool
same_model(const GkModel *a, const GkModel *b)
{
	return a->k == b->k && a->iterations == b->iterations && a->inertia == b->inertia &&
		memcmp(a->centroids, b->centroids, (size_t) a->k * a->prep.d * sizeof(double)) == 0 &&
		memcmp(a->size, b->size, a->k * sizeof(int64_t)) == 0;
}

/* Every prepared point against the one in main memory, by its row. */
static int64_t
different_points(const GkBackend *gpu, GkSession *session, GkStore *got, GkStore *want, int64_t n, int d, int64_t step, GkError *err)
{
	float	   *a = malloc(d * sizeof(float));
	float	   *b = malloc(d * sizeof(float));
	int64_t		different = 0;

	for (int64_t row = 0; row < n; row += row + step < n || row == n - 1 ? step : n - 1 - row)
		different += gk_picked_row(gpu, session, got, row, a, err) != GK_OK || gk_store_row(want, row, b, err) != GK_OK ||
			memcmp(a, b, d * sizeof(float)) != 0;
	free(a);
	free(b);
	return different;
}

static void
test_points(const GkBackend *gpu, Kind kind, bool wide, int64_t n, int d, int64_t expect)
{
	double	   *x = make_points(kind, wide, n, d);
	GkOptions	options = {.k = n < 7 ? (int) n : 7,.n_init = 2,.max_iter = 5,.tol = 1e-4,.seed = 5};
	GkModel		models[2];
	TestHost	t;
	GkError		err;
	GkStore    *want;
	GkStore    *got;
	bool		made;

	test_host_init(&t, 4);
	made = make_store(&t, NULL, wide, 0, x, n, d, &want, &err) == GK_OK && make_store(&t, gpu, wide, expect, x, n, d, &got, &err) == GK_OK;
	check(made && same_totals(gk_store_points(want), gk_store_points(got)), kind_names[kind], n, d);
	if (!made)
	{
		printf("%s %s\n", err.message, err.detail);
		return;
	}
	{
		GkProblem	problem = {.host = &t.host,.core = &gk_core,.store = got,.k_max = 1,.max_iter = 1,.ingesting = gk_ingest_take(got)};
		GkSession  *session;

		check(gpu->open(&problem, &session, &err) == GK_OK &&
			  different_points(gpu, session, got, want, n, d, n / 2000 + 1, &err) == 0, "points", n, d);
		gpu->close(session);
	}
	gk_store_free(got);
	check(make_store(&t, gpu, wide, expect, x, n, d, &got, &err) == GK_OK && gk_fit(want, &gk_cpu_backend, &options, NULL, &models[0], &err) == GK_OK &&
		  gk_fit(got, gpu, &options, NULL, &models[1], &err) == GK_OK && same_model(&models[0], &models[1]), "model", n, d);
	gk_model_free(&t.host, &models[0]);
	gk_model_free(&t.host, &models[1]);
	gk_store_free(want);
	gk_store_free(got);
	check(t.live == 0, "memory given back", n, d);
	test_host_end(&t);
	free(x);
}

/* At each call of CUDA in turn; and asked to stop.  The kernels are loaded. */
static void
test_faults(const GkBackend *gpu, bool wide)
{
	enum
	{
	N = 300000, D = 20};
	double	   *x = make_points(NEAR, wide, N, D);
	size_t		before = free_memory();
	int			failures = 0;

	for (int n = 0; n < 60; n++)
	{
		TestHost	t;
		GkStore    *s = NULL;
		GkError		err = {0};
		GkStatus	st;
		char		fault[40];

		snprintf(fault, sizeof(fault), "%s:%d", n % 2 ? "open-error" : "open-memory", n / 2);
		test_host_init(&t, 2);
		t.host.gpu_fault = fault;
		st = make_store(&t, gpu, wide, 1, x, N, D, &s, &err);
		check(st == GK_OK || st == (n % 2 ? GK_ERR_DEVICE : GK_ERR_DEVICE_MEMORY), fault, N, D);
		failures += st != GK_OK;
		gk_store_free(s);
		check(t.live == 0 && free_memory() == before, fault, N, D);
	}
	check(failures >= 20, "enough faults took effect", N, D);
	for (int n = 1; n <= 3; n++)
	{
		TestHost	t;
		GkStore    *s = NULL;
		GkError		err;
		GkStatus	st;

		test_host_init(&t, 2);
		t.stop_at = n;
		st = make_store(&t, gpu, wide, N, x, N, D, &s, &err);
		gk_store_free(s);
		check((st == GK_OK || st == GK_STOPPED) && t.live == 0 && free_memory() == before, "cancelled", N, D);
	}
	free(x);
}

int
main(int argc, char **argv)
{
	bool		full = argc <= 2 || strcmp(argv[2], "full") == 0;
	const GkBackend *gpu;
	GkError		err;
	int			ordinal;

	gk_registry_set_directory(argc > 1 ? argv[1] : ".");
	gpu = gk_registry_choose(GK_DEVICE_GPU, NULL, 0, 0, 0, &ordinal, &err);
	if (gpu == NULL)
	{
		printf("skipped: %s: %s\n", err.message, err.detail);
		return 0;
	}
	for (int wide = 0; wide < 2; wide++)
	{
		for (int kind = 0; kind < KINDS; kind++)
		{
			test_points(gpu, kind, wide, 1, 3, 0);
			test_points(gpu, kind, wide, 4097, 5, 4097);
			if (full)
				test_points(gpu, kind, wide, 2500001, 4, 1000);
		}
		if (full)
		{
			test_points(gpu, NEAR, wide, 5000000, 1, 5000000);
			test_points(gpu, NEAR, wide, 100003, 300, 1);
			test_points(gpu, NEAR, wide, 3000, wide ? 8000 : 16384, 0);
			test_faults(gpu, wide);
		}
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
