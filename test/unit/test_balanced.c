/*
 * Clusters of bounded sizes without a server: assignments against all that there are, sizes within
 * random bounds, the same bits whatever threads and chunks, and every failure.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/balanced/gk_balanced.h"
#include "core/gk_numerics.h"
#include "gk_test.h"
#include "gk_testhost.h"

/* ---- one assignment ---- */

/* The least sum of costs of rows from `row` on, where some rows are in each cluster already. */
static int64_t
least_of_all(const GkFlow *f, int row, int64_t *size)
{
	int64_t		best = INT64_MAX;

	if (row == f->n)
	{
		for (int j = 0; j < f->k; j++)
			if (size[j] < f->min_size || size[j] > f->max_size)
				return INT64_MAX;
		return 0;
	}
	for (int j = 0; j < f->k; j++)
	{
		int64_t		rest;

		size[j]++;
		rest = least_of_all(f, row + 1, size);
		size[j]--;
		if (rest != INT64_MAX && rest + gk_flow_cost(f, row, j) < best)
			best = rest + gk_flow_cost(f, row, j);
	}
	return best;
}

/* Solve with the prices that are there; is it the cheapest one within the bounds? */
static bool
is_cheapest(GkFlow *f)
{
	int64_t		size[8] = {0};
	int64_t		sum = 0;
	GkError		err;

	if (gk_flow_solve(f, &err) != GK_OK)
		return false;
	for (int64_t i = 0; i < f->n; i++)
	{
		sum += gk_flow_cost(f, i, f->label[i]);
		size[f->label[i]]++;
	}
	for (int j = 0; j < f->k; j++)
		if (size[j] != f->size[j] || size[j] < f->min_size || size[j] > f->max_size)
			return false;
	memset(size, 0, sizeof(size));
	return sum == least_of_all(f, 0, size);
}

static void
test_assignments(void)
{
	uint64_t	state = 1;
	int			cold = 0;
	int			warm = 0;
	int			cases = 0;

	for (int c = 0; c < 600; c++)
	{
		int			k = test_pick(&state, 1, 4);
		int			n = test_pick(&state, k, k > 3 ? 7 : 9);
		int			values = c % 3 == 0 ? 3 : 1 << 20;	/* ties, or none */
		float		d2[9 * 4];
		float		weight[9];
		GkFlow		f = {.d2 = d2,.weight = c % 5 == 0 ? weight : NULL};
		TestHost	t;
		GkError		err;

		test_host_init(&t, 1 + c % 3);
		if (gk_flow_alloc(&f, &t.host, n, k, &err) != GK_OK)
			abort();
		f.k = k;
		f.scale = 0x1p28;
		f.min_size = test_pick(&state, 0, n / k);
		f.max_size = test_pick(&state, (n + k - 1) / k, n);
		/* the second time, prices are those of other distances */
		for (int turn = 0; turn < 2; turn++)
		{
			for (int i = 0; i < n * k; i++)
				d2[i] = test_pick(&state, 0, values);
			for (int i = 0; i < n; i++)
				weight[i] = (float) test_pick(&state, 1, 4) / 4;
			*(turn == 0 ? &cold : &warm) += is_cheapest(&f);
		}
		cases++;
		gk_flow_free(&f);
		test_host_end(&t);
	}
	ok(cold == cases, "cheapest of all assignments, without prices: %d of %d", cold, cases);
	ok(warm == cases, "and with those of other distances: %d of %d", warm, cases);
}

/* ---- fits ---- */

typedef struct Case
{
	const double *x;
	const double *w;
	int			n;
	int			d;
	size_t		chunk;
	size_t		limit;
	const int  *order;
	GkOptions	o;
} Case;

static GkStatus
fit(TestHost *t, const Case *c, Labels *labels, GkModel *m, GkError *err)
{
	GkStore    *s = load_store(t, c->x, c->w, c->n, c->d, c->order, c->chunk, c->limit, err);
	GkLabelSink sink;
	GkStatus	st;

	memset(m, 0, sizeof(*m));
	if (s == NULL)
		return err->code;
	if (labels != NULL)
		sink = test_sink(labels);
	st = gk_store_prepare(s, c->o.distance, c->o.standardize, err);
	if (st == GK_OK)
		st = gk_balanced_fit(s, &c->o, labels != NULL ? &sink : NULL, m, err);
	gk_store_free(s);
	return st;
}

/* Do the labels have the model's sizes, and are those within the bounds? */
static bool
bounded(const Case *c, const Labels *l, const GkModel *m)
{
	int64_t		size[16] = {0};

	for (int i = 0; i < c->n; i++)
		size[l->label[i]]++;
	for (int j = 0; j < m->k; j++)
		if (size[j] != m->size[j] || size[j] < c->o.min_size || size[j] > c->o.max_size)
			return false;
	return l->seen == c->n;
}

/* The history's figures are of about 12 digits. */
static bool
never_rises(const GkModel *m)
{
	for (int i = 1; i < m->history_len; i++)
		if (m->history_inertia[i] > m->history_inertia[i - 1] * (1 + 1e-9) + 1e-9 * m->history_inertia[0])
			return false;
	return true;
}

static void
test_fits(void)
{
	uint64_t	state = 7;
	int			within = 0;
	int			falling = 0;
	int			same = 0;
	int			cases = 0;

	for (int c = 0; c < 120; c++)
	{
		int			k = test_pick(&state, 1, 12);
		int			n = test_pick(&state, 4 * k, 1500);
		int			d = test_pick(&state, 1, 5);
		double	   *x = random_points(&state, c % 3 == 0 ? TEST_UNIFORM : TEST_BLOBS, n, d);
		double	   *w = c % 4 == 0 ? random_weights(&state, n) : NULL;
		Case		one = {x, w, n, d, (size_t) 16 << 20, SIZE_MAX, NULL,
		{.k = k,.n_init = 1 + c % 2,.max_iter = 30,.seed = c}};
		Case		two;
		Labels		a = {calloc(n, sizeof(int32_t)), calloc(n, sizeof(float)), 0};
		Labels		b = {calloc(n, sizeof(int32_t)), calloc(n, sizeof(float)), 0};
		GkModel		m,
					other;
		TestHost	t;
		GkError		err;

		one.o.min_size = test_pick(&state, 1, n / k);
		one.o.max_size = test_pick(&state, (n + k - 1) / k, c % 2 ? n : n / k + 2);
		two = one;
		two.chunk = 4096;
		test_host_init(&t, 1);
		if (fit(&t, &one, &a, &m, &err) != GK_OK)
			printf("# %s\n", err.message);
		within += bounded(&one, &a, &m);
		falling += never_rises(&m);
		t.host.threads = 3;
		(void) fit(&t, &two, &b, &other, &err);
		same += m.k == other.k && m.inertia == other.inertia && m.iterations == other.iterations &&
			memcmp(m.centroids, other.centroids, sizeof(double) * m.k * d) == 0 &&
			memcmp(a.label, b.label, n * sizeof(int32_t)) == 0 && memcmp(a.d2, b.d2, n * sizeof(float)) == 0;
		cases++;
		gk_model_free(&t.host, &m);
		gk_model_free(&t.host, &other);
		test_host_end(&t);
		free(a.label);
		free(a.d2);
		free(b.label);
		free(b.d2);
		free(x);
		free(w);
	}
	ok(within == cases, "all sizes are within their bounds: %d of %d", within, cases);
	ok(falling == cases, "the inertia never rises: %d of %d", falling, cases);
	ok(same == cases, "the same bits with other threads and chunks: %d of %d", same, cases);
}

/* ---- failures ---- */

static void
test_failures(void)
{
	uint64_t	state = 3;
	int			n = 3000;
	double	   *x = random_points(&state, TEST_BLOBS, n, 3);
	Case		c = {x, NULL, n, 3, 4096, SIZE_MAX, NULL,
	{.k = 10,.n_init = 1,.max_iter = 20,.min_size = 300,.max_size = 300}};
	GkModel		m;
	TestHost	t;
	GkError		err;
	int64_t		allocs;
	int64_t		polls;
	int			failed = 0;
	int			stopped = 0;

	test_host_init(&t, 2);
	ok(fit(&t, &c, NULL, &m, &err) == GK_OK && m.size[9] == 300, "a fit that can fail");
	gk_model_free(&t.host, &m);
	allocs = t.allocs;
	polls = t.polls;
	test_host_end(&t);
	for (int64_t i = 1; i <= allocs; i++)
	{
		test_host_init(&t, 2);
		t.fail_at = i;
		/* what is not needed may be missing */
		if (fit(&t, &c, NULL, &m, &err) == GK_OK)
			gk_model_free(&t.host, &m);
		else if (err.code != GK_ERR_MEMORY)
			break;
		if (t.live != 0)
			break;
		failed++;
		test_host_end(&t);
	}
	ok(failed == allocs, "each of %d allocations fails cleanly", (int) allocs);
	for (int64_t i = 1; i <= polls; i++)
	{
		test_host_init(&t, 2);
		t.stop_at = i;
		stopped += fit(&t, &c, NULL, &m, &err) == GK_STOPPED && t.live == 0;
		test_host_end(&t);
	}
	ok(stopped == polls, "each of %d polls stops it", (int) polls);

	test_host_init(&t, 2);
	c.o.max_size = 299;
	c.o.min_size = 1;
	ok(fit(&t, &c, NULL, &m, &err) == GK_ERR_OPTION, "too many rows: %s", err.message);
	c.o.max_size = n;
	c.o.min_size = 301;
	ok(fit(&t, &c, NULL, &m, &err) == GK_ERR_OPTION, "too few rows: %s", err.message);
	c.o.min_size = 1;
	c.o.k = GK_MAX_BALANCED_K + 1;
	ok(fit(&t, &c, NULL, &m, &err) == GK_ERR_LIMIT, "too many clusters: %s", err.message);
	c.o.k = 10;
	c.limit = 100000;
	ok(fit(&t, &c, NULL, &m, &err) == GK_ERR_MEMORY_LIMIT, "too little memory: %s", err.message);
	ok(t.live == 0, "nothing is left");
	test_host_end(&t);
	free(x);
}

int
main(void)
{
	test_assignments();
	test_fits();
	test_failures();
	return done_testing();
}
