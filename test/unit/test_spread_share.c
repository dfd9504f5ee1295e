/*
 * Which device gets which rows (gk_spread_share.c), with times that are said, not measured.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/spread/gk_spread_session.h"
#include "gk_test.h"
#include "gk_testfit.h"

#define N		6400

/* A device that does nothing. */
static GkStatus
idle_open(const GkProblem *problem, GkSession **out, GkError *err)
{
	(void) problem;
	(void) err;
	*out = NULL;
	return GK_OK;
}

static void
idle_close(GkSession *s)
{
	(void) s;
}

static const GkBackend idle = {.name = "idle",.open = idle_open,.close = idle_close};

/* Devices that say what a step takes: the second one half as long. */
static double
idle_step_ms(int ordinal, const GkProblem *problem, int64_t rows)
{
	return problem->k_max * (double) rows / (ordinal + 1);
}

/* One whose sessions go on with any rows, but for some times. */
static int	refusals;

static GkStatus
idle_move(GkSession *s, GkStore *store, int64_t from, bool *done, GkError *err)
{
	(void) s;
	(void) from;
	(void) err;
	*done = store == NULL || __atomic_fetch_sub(&refusals, 1, __ATOMIC_RELAXED) <= 0;
	return GK_OK;
}

static const GkBackend moving = {.name = "moving",.open = idle_open,.close = idle_close,.move = idle_move};

static const GkBackend knowing = {.name = "knowing",.step_ms = idle_step_ms,.open = idle_open,.close = idle_close};

/* What a step of each device takes for a row. */
static bool
step_takes(GkSession *s, const double *ms_per_row)
{
	for (int i = 0; i < s->n; i++)
		s->part[i].ms = ms_per_row[i] * (double) s->part[i].rows;
	return gk_spread_measure(s);
}

/* So many steps; each move costs `cost`.  Returns the number of moves. */
static int
steps(GkSession *s, const double *ms_per_row, int n, double cost)
{
	int			moves = 0;
	GkError		err;

	for (int i = 0; i < n; i++)
		if (step_takes(s, ms_per_row))
		{
			if (gk_spread_arrange(s, &err) != GK_OK)
				return -1;
			s->arrange_ms = cost;
			moves++;
		}
	return moves;
}

static bool
rows_are(const GkSession *s, int64_t a, int64_t b, int64_t c)
{
	int64_t		all = 0;
	bool		in_order = true;

	for (int i = 0; i < s->n; i++)
	{
		in_order &= s->part[i].first == all;
		all += s->part[i].rows;
	}
	return in_order && all == N && s->part[0].rows == a && s->part[1].rows == b && (s->n < 3 || s->part[2].rows == c);
}

static GkSession *
open_over(TestHost *host, GkStore *store, const GkSpread *spread)
{
	GkProblem	problem;
	GkSession  *s;
	GkError		err;

	host->host.spread = spread;
	problem = gk_problem(store, 2, 10);
	return gk_spread_backend.open(&problem, &s, &err) == GK_OK ? s : NULL;
}

/*
 * A GPU that streams, and the CPU, which from its fifth step on needs not look at all rows: then at fewer and fewer, half
 * as many after so many steps, but at each new one.  Returns what 60 steps and their moves take, against the best
 * shares in each.
 */
static double
follow(GkStore *store, TestHost *host, double half_life, double guess, int *moves)
{
	static const double gpu = 1e-2;
	static const double cpu = 3e-2;
	static const double cost = 6.0;
	GkSpread	spread = {.n = 2,.device = {{&moving, 0, 1.0 / gpu}, {&moving, 1, guess / cpu}}};
	GkSession  *s = open_over(host, store, &spread);
	uint64_t	rng = 2;
	double		all = 0.0;
	double		best = 0.0;
	int64_t		added = 0;

	s->arrange_ms = 100.0;
	for (int i = 0; i < 60; i++)
	{
		double		open = i < 4 ? 1.0 : 0.4 + 0.6 * exp2((4 - i) / half_life);
		int64_t		before = s->part[1].rows;

		s->part[0].ms = gpu * (double) s->part[0].rows * (1.0 + 0.03 * test_normal(&rng));
		s->part[1].ms = cpu * (open * (double) before + (1.0 - open) * (double) added) * (1.0 + 0.03 * test_normal(&rng));
		all += fmax(s->part[0].ms, s->part[1].ms);
		best += N / (1.0 / gpu + 1.0 / (cpu * open));
		added = 0;
		if (gk_spread_measure(s))
		{
			GkError		err;

			if (gk_spread_move(s, &err) != GK_OK)
				return -1.0;
			s->move_ms = cost;
			all += cost;
			++*moves;
			added = s->part[1].rows > before ? s->part[1].rows - before : 0;
		}
	}
	gk_spread_backend.close(s);
	return all / best;
}

static void
test_follow(GkStore *store, TestHost *host)
{
	static const double half_lives[] = {2.0, 4.0, 8.0, 16.0, 32.0};
	double		worst = 0.0;
	int			moves = 0;

	for (int i = 0; i < 15; i++)
		worst = fmax(worst, follow(store, host, half_lives[i / 3], i % 3 == 0 ? 1.0 : i % 3 == 1 ? 2.0 : 0.5, &moves));
	ok(worst < 1.12, "shares follow a device that becomes faster: the worst of 15 takes %.3f of the best", worst);
	ok(moves > 15 && moves < 15 * 8, "with few moves, %.1f on average", moves / 15.0);
}

/* A move needs some memory: without it shares stay, and are tried again. */
static void
test_memory(GkStore *store, TestHost *host)
{
	GkSpread	spread = {.n = 2,.device = {{&moving, 0, 1.0}, {&moving, 1, 1.0}}};
	GkSession  *s = open_over(host, store, &spread);
	int			stayed = 0;
	int			bad = 0;
	GkError		err;

	for (int nth = 1; nth < 25; nth++)
	{
		int64_t		rows = s->part[0].rows;

		s->part[0].speed = rows > N / 2 ? 1.0 : 2.0;
		s->part[1].speed = 1.0;
		host->fail_at = host->allocs + nth;
		bad += gk_spread_move(s, &err) != GK_OK || s->part[0].store->pts.n != s->part[0].rows || s->part[1].store->pts.n != s->part[1].rows;
		bad += s->part[1].first != s->part[0].rows || s->part[0].other != NULL || s->part[1].other != NULL || s->lost_ms != 0.0;
		host->fail_at = 0;
		stayed += s->part[0].rows == rows;
		bad += gk_spread_move(s, &err) != GK_OK;
	}
	ok(bad == 0 && stayed > 2 && stayed < 24, "without memory shares stay, %d times (%d bad)", stayed, bad);
	gk_spread_backend.close(s);
}

/* A session that could not go on was opened anew: the next move is one like any other. */
static void
test_refusal(GkStore *store, TestHost *host)
{
	GkSpread	spread = {.n = 2,.device = {{&moving, 0, 1.0}, {&moving, 1, 1.0}}};
	GkSession  *s = open_over(host, store, &spread);
	bool		good;
	GkError		err;

	s->part[0].speed = 2.0;
	s->part[1].speed = 1.0;
	s->arrange_ms = 1000.0;
	refusals = 1;
	good = gk_spread_move(s, &err) == GK_OK && s->part[0].rows > N / 2;
	ok(good && s->movable && s->move_ms < 1000.0 && s->arrange_ms == 1000.0, "after one that had to be opened anew, sessions go on again");
	gk_spread_backend.close(s);
}

int
main(void)
{
	static const double right[] = {3e-3, 1e-3, 0.0};
	static const double equal[] = {1e-3, 1e-3, 1e-3};
	static const double tenth[] = {10e-3, 1e-3, 0.0};
	GkSpread	spread = {.n = 2,.device = {{&idle, 0, 1.0}, {&idle, 1, 3.0}, {&idle, 2, 1e-3}}};
	uint64_t	rng = 1;
	double	   *x = random_points(&rng, TEST_UNIFORM, N, 2);
	char		text[96];
	TestHost	host;
	GkStore    *store;
	GkSession  *s;
	GkError		err;
	int			moves;
	int			later;

	test_host_init(&host, 1);
	store = load_store(&host, x, NULL, N, 2, NULL, 1 << 20, SIZE_MAX, &err);
	if (store == NULL || gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		return 1;

	s = open_over(&host, store, &spread);
	ok(rows_are(s, 1600, 4800, 0), "at first by what is known");
	s->arrange_ms = 0.1;
	ok(steps(s, right, 100, 0.1) == 0 && rows_are(s, 1600, 4800, 0), "shares that are right stay");

	/* equal ones take 4.8 ms, 3.2 would do: so 1.6 ms are lost in each step, and a move costs 15.9 */
	s->arrange_ms = 15.9;
	s->part[0].measured = s->part[1].measured = 0;
	ok(steps(s, equal, 12, 15.9) == 0, "rows stay while less is lost than a move costs");
	ok(steps(s, equal, 1, 15.9) == 1 && rows_are(s, 3200, 3200, 0), "and move when it is more");
	ok(steps(s, equal, 1000, 15.9) == 0, "once");
	/* a device sorts its points now and then */
	moves = 0;
	for (int i = 0; i < 20; i++)
		moves += steps(s, tenth, 1, 1.0) + steps(s, equal, 3, 1.0);
	ok(moves == 0 && rows_are(s, 3200, 3200, 0), "steps that take longer now and then move nothing");
	moves = steps(s, tenth, 30, 1.0);
	later = steps(s, tenth, 100, 1.0);
	ok(moves >= 1 && later <= 1 && s->part[0].rows >= 512 && s->part[0].rows <= 640,
	   "a device that becomes slow has less: %lld of %d", (long long) s->part[0].rows, N);
	gk_spread_describe(s, text, sizeof(text));
	ok(strncmp(text, "gpu 0 ", 6) == 0 && strstr(text, ", gpu 1 9") != NULL, "described as \"%s\"", text);
	gk_spread_backend.close(s);

	s = open_over(&host, store, &(GkSpread) {.n = 2,.device = {{.backend = &knowing,.number = 0}, {.backend = &knowing,.number = 1}}});
	ok(rows_are(s, 2112, 4288, 0), "or by what their backend says");
	gk_spread_backend.close(s);

	/* a third one, too slow for a tile of its own, is judged by the others' speed */
	spread.n = 3;
	s = open_over(&host, store, &spread);
	ok(rows_are(s, 1600, 4800, 0), "a slow device has no rows");
	s->arrange_ms = 1.0;
	ok(steps(s, right, 100, 1.0) == 0 && rows_are(s, 1600, 4800, 0), "and gets none");
	s->part[1].lost = true;
	ok(gk_spread_arrange(s, &err) == GK_OK && rows_are(s, 6400, 0, 0), "until others are lost, it has too few");
	s->part[0].lost = true;
	ok(gk_spread_arrange(s, &err) == GK_OK && rows_are(s, 0, 0, 6400), "the last one has all");
	gk_spread_backend.close(s);

	test_follow(store, &host);
	test_memory(store, &host);
	test_refusal(store, &host);

	spread.rows = "64,0,128";
	spread.n = 3;
	s = open_over(&host, store, &spread);
	ok(rows_are(s, 64, 0, 6336), "forced ones, the last has the rest");
	ok(steps(s, tenth, 100, 0.0) == 0, "which stay");
	gk_spread_backend.close(s);
	rows_take_turns(&spread, "64,0,128;128,64;0,0");
	s = open_over(&host, store, &spread);
	ok(rows_are(s, 64, 0, 6336) && steps(s, tenth, 1, 0.0) == 1 && rows_are(s, 128, 64, 6208) && steps(s, tenth, 1, 0.0) == 1 &&
	   rows_are(s, 0, 0, 6400) && steps(s, tenth, 1, 0.0) == 1 && rows_are(s, 64, 0, 6336), "or take turns");
	gk_spread_backend.close(s);

	gk_store_free(store);
	free(x);
	test_host_end(&host);
	ok(host.live == 0, "nothing is left");
	return done_testing();
}
