/*
 * k-prototypes without a server: fits end where labels, means, modes and counts agree by plain loops; the same
 * bits whatever threads, instruction set and order of rows; every failure and every stop.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/mixed/gk_mixed.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define MOST_ROWS	20000
#define D			3
#define C			2

typedef struct Case
{
	int			n;
	int			stride;
	int			k;
	float		gamma;
	float		x[D * (MOST_ROWS + GK_MIXED_ROWS)];
	int32_t		code[C * (MOST_ROWS + GK_MIXED_ROWS)];
	int32_t		codes[C];
	int			expo[D];
} Case;

static Case problem;
static Case shuffled;

static void
make(Case *c, uint64_t *state, int n, int k, int codes, bool ties)
{
	c->n = n;
	c->stride = (n + GK_MIXED_ROWS - 1) / GK_MIXED_ROWS * GK_MIXED_ROWS;
	c->k = k;
	c->gamma = ties ? 1 : 0.3f;
	for (int j = 0; j < D; j++)
	{
		c->expo[j] = 0;
		for (int i = 0; i < n; i++)
			c->x[j * c->stride + i] = ties ? 0.5f * test_pick(state, -1, 1) :
				gk_to_grid(2 * test_uniform(state) - 1, gk_grid_magic(0));
	}
	for (int j = 0; j < C; j++)
	{
		c->codes[j] = codes;
		for (int i = 0; i < n; i++)
			c->code[j * c->stride + i] = test_pick(state, 0, codes - 1);
	}
}

static GkMixed
describe(Case *c, TestHost *t)
{
	return (GkMixed)
	{
		.host = &t->host,.n = c->n,.stride = c->stride,.d = D,.c = C,.k = c->k,.x = c->x,.expo = c->expo,
			.code = c->code,.codes = c->codes,.gamma = c->gamma
	};
}

static GkStatus
solve(GkMixed *m, int max_iter, GkError *err)
{
	GkStatus	status = gk_mixed_alloc(m, err);

	if (status == GK_OK)
		status = gk_mixed_seed(m, 1, 0, err);
	return status == GK_OK ? gk_mixed_fit(m, max_iter, err) : status;
}

static float
cost_of(const GkMixed *m, int64_t row, int cluster)
{
	float		x[D];
	int32_t		code[C];

	for (int j = 0; j < D; j++)
		x[j] = m->x[j * m->stride + row];
	for (int j = 0; j < C; j++)
		code[j] = m->code[j * m->stride + row];
	return gk_mixed_cost(x, code, m->mean + cluster * D, m->mode + cluster * C, D, C, m->gamma);
}

/* At the end, is each label of the least cost, and each mode and mean its rows'? */
static bool
is_fixed_point(const GkMixed *m)
{
	for (int64_t i = 0; i < m->n; i++)
		for (int j = 0; j < m->k; j++)
		{
			float		cost = cost_of(m, i, j);

			if (cost < m->cost[i] || (cost == m->cost[i] && j < m->label[i]))
				return false;
		}
	for (int c = 0; c < m->k; c++)
	{
		for (int j = 0; j < m->c; j++)
		{
			int			mode = -1;
			int			most = 0;

			for (int v = 0; v < m->codes[j]; v++)
			{
				int			count = 0;

				for (int64_t i = 0; i < m->n; i++)
					count += m->label[i] == c && m->code[j * m->stride + i] == v;
				if (count != m->counts[j][c * m->codes[j] + v])
					return false;
				if (count > most)
				{
					most = count;
					mode = v;
				}
			}
			if (mode >= 0 && mode != m->mode[c * m->c + j])
				return false;
		}
		for (int j = 0; j < m->d; j++)
		{
			double		sum = 0;

			for (int64_t i = 0; i < m->n; i++)
				if (m->label[i] == c)
					sum += m->x[j * m->stride + i];
			if (m->size[c] > 0 && (float) (sum / m->size[c]) != m->mean[c * m->d + j])
				return false;
		}
	}
	return true;
}

static void
test_fixed_points(void)
{
	uint64_t	state = 1;
	int			right = 0;
	int			cases = 200;

	for (int i = 0; i < cases; i++)
	{
		TestHost	t;
		GkMixed		m;
		GkError		err;

		make(&problem, &state, test_pick(&state, 8, 300), test_pick(&state, 1, 8), test_pick(&state, 1, 12), i % 2 == 0);
		test_host_init(&t, 2);
		m = describe(&problem, &t);
		right += solve(&m, 1000, &err) == GK_OK && m.converged && is_fixed_point(&m);
		gk_mixed_free(&m);
		right -= t.live != 0;
		test_host_end(&t);
	}
	ok(right == cases, "%d of %d fits end where labels, means and modes agree", right, cases);
}

/* The same rows in another order, from the same starts. */
static void
test_same_bits(void)
{
	char		reason[200];
	uint64_t	state = 2;
	int			threads[] = {1, 2, 7, 16};
	TestHost	t;
	GkMixed		first;
	GkError		err;

	make(&problem, &state, MOST_ROWS, 9, 1000, false);
	test_host_init(&t, 3);
	first = describe(&problem, &t);
	ok(solve(&first, 8, &err) == GK_OK && first.iterations == 8, "eight iterations");
	for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
	{
		TestHost	u;
		GkMixed		m;

		test_host_init(&u, threads[i]);
		m = describe(&problem, &u);
		ok(solve(&m, 8, &err) == GK_OK && m.objective == first.objective &&
		   memcmp(m.mean, first.mean, sizeof(float) * 9 * D) == 0 &&
		   memcmp(m.mode, first.mode, sizeof(int32_t) * 9 * C) == 0 &&
		   memcmp(m.label, first.label, sizeof(int32_t) * MOST_ROWS) == 0, "the same bits by %d threads", threads[i]);
		gk_mixed_free(&m);
		test_host_end(&u);
	}

	for (int level = 0; level < 3; level++)
	{
		static const char *const sets[] = {"scalar", "avx2", "auto"};
		GkMixed		m = describe(&problem, &t);

		if (!gk_cpu_set_simd(sets[level], reason, sizeof(reason)))
			continue;
		ok(solve(&m, 8, &err) == GK_OK && m.objective == first.objective &&
		   memcmp(m.label, first.label, sizeof(int32_t) * MOST_ROWS) == 0, "the same bits by %s", sets[level]);
		gk_mixed_free(&m);
	}
	gk_cpu_set_simd("auto", reason, sizeof(reason));

	shuffled = problem;
	for (int i = 0; i < MOST_ROWS; i++)
	{
		int			to = (int) ((int64_t) i * 7919 % MOST_ROWS);

		for (int j = 0; j < D; j++)
			shuffled.x[j * problem.stride + to] = problem.x[j * problem.stride + i];
		for (int j = 0; j < C; j++)
			shuffled.code[j * problem.stride + to] = problem.code[j * problem.stride + i];
	}
	{
		GkMixed		m = describe(&shuffled, &t);
		bool		same;

		same = gk_mixed_alloc(&m, &err) == GK_OK && gk_mixed_seed(&first, 1, 0, &err) == GK_OK;
		memcpy(m.mean, first.mean, sizeof(float) * 9 * D);
		memcpy(m.mode, first.mode, sizeof(int32_t) * 9 * C);
		same = same && gk_mixed_fit(&m, 8, &err) == GK_OK && gk_mixed_fit(&first, 8, &err) == GK_OK;
		ok(same && m.objective == first.objective && memcmp(m.mean, first.mean, sizeof(float) * 9 * D) == 0 &&
		   memcmp(m.mode, first.mode, sizeof(int32_t) * 9 * C) == 0, "and in another order of rows");
		gk_mixed_free(&m);
	}
	gk_mixed_free(&first);
	test_host_end(&t);
}

static void
test_failures(void)
{
	uint64_t	state = 3;
	int64_t		allocs;
	int64_t		polls;
	int			failed = 0;
	int			stopped = 0;
	TestHost	t;
	GkMixed		m;
	GkError		err;

	make(&problem, &state, 500, 5, 10, false);
	test_host_init(&t, 2);
	m = describe(&problem, &t);
	ok(solve(&m, 5, &err) == GK_OK, "five clusters");
	gk_mixed_free(&m);
	allocs = t.allocs;
	polls = t.polls;
	test_host_end(&t);
	for (int64_t i = 1; i <= allocs; i++)
	{
		test_host_init(&t, 2);
		t.fail_at = i;
		m = describe(&problem, &t);
		failed += solve(&m, 5, &err) == GK_ERR_MEMORY;
		gk_mixed_free(&m);
		failed -= t.live != 0;
		test_host_end(&t);
	}
	ok(failed == allocs, "each of %d allocations fails cleanly", (int) allocs);
	for (int64_t i = 1; i <= polls; i++)
	{
		test_host_init(&t, 2);
		t.stop_at = i;
		m = describe(&problem, &t);
		stopped += solve(&m, 5, &err) == GK_STOPPED;
		gk_mixed_free(&m);
		test_host_end(&t);
	}
	ok(stopped == polls && polls > 5, "each of %d polls stops it", (int) polls);
}

int
main(void)
{
	test_fixed_points();
	test_same_bits();
	test_failures();
	return done_testing();
}
