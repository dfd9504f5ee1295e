/*
 * Rows that go up to several devices while they are read: the bits of the CPU alone, whatever number of
 * rows was expected, and whichever device fails at whichever call; then the rows are read once more.
 */
#include <stdlib.h>
#include <string.h>

#include "core/store/gk_store.h"
#include "gk_test.h"
#include "gk_testdevices.h"
#include "gk_testfit.h"
#include "gk_testread.h"

static int	told;				/* shares */

static void
devices(void *ctx, const char *text)
{
	(void) ctx;
	(void) text;
	told++;
}

/* On the CPU: spread is NULL. */
static void
solve(Answer *a, const Problem *p, GkSpread *spread, Reading *way, GkError *err)
{
	answer_init(a, p, way->threads);
	a->host.host.devices = devices;
	told = 0;
	all_rows = p->opt.init == GK_INIT_HIERARCHICAL ? -1 : p->n;
	read_and_fit(a, p, spread, way, err);
}

/* A device that takes rows as they come takes them without weights, for a plain fit. */
static Problem
problem_of(uint64_t *rng, int number, bool wide)
{
	Problem		p = random_problem(rng, number);

	free(p.w);
	p.w = NULL;
	p.opt.standardize = false;
	p.opt.distance = GK_EUCLIDEAN;
	for (int64_t i = 0; !wide && i < (int64_t) p.n * p.d; i++)
		p.x[i] = (float) p.x[i];
	if (number % 5 == 0)
		given_centroids(&p, rng);
	else
		p.opt.init = number % 5 == 1 ? GK_INIT_PLUSPLUS : random_inits[number % 5 - 2];
	p.opt.n_init = number % 4 == 2 ? 2 : 1;
	return p;
}

static const Reading plain = {.expected = -1.0,.threads = 1,.chunk = 1 << 16,.wide = true};

/* Devices that take over no rows. */
static void
spread_apart(GkSpread *spread)
{
	static GkBackend backend;
	static GkIngestBackend ingest;

	backend = fake_device;
	ingest = *fake_device.ingest;
	ingest.take_over = NULL;
	backend.ingest = &ingest;
	for (int i = 0; i < spread->n; i++)
		spread->device[i].backend = &backend;
}

/* ---- the same bits ---- */

static void
test_same_bits(int problems)
{
	static const char *const splits[] = {NULL, NULL, "64,64", "0,0,1000000", "100,0,1", NULL};
	static const double estimates[] = {1.0, 0.1, 10.0, -1.0, 0.7, 0.0, 1.3};
	uint64_t	rng = 51;
	int			differ = 0;
	int			left = 0;
	int			many = 0;
	int			up = 0;
	GkError		err;

	wrong_problems = joined_rounds = 0;
	for (int number = 0; number < problems; number++)
	{
		bool		wide = number % 3 != 0;
		Problem		p = problem_of(&rng, number, wide);
		GkSpread	spread = spread_over(2 + number % 7, false, splits[number % 6]);
		Reading		way = {.threads = 1 + number % 2,.chunk = 20000,.wide = wide};
		Answer		oracle;
		Answer		a;

		if (number % 5 == 3)
			spread_apart(&spread);
		way.expected = (double) (int64_t) (estimates[number % 7] * p.n);
		way.before = number % 4 == 3 ? p.n / 3 : number % 8 == 6 ? p.n : 0;
		joining = number % 4 < 2;
		advancing = number % 3;
		solve(&oracle, &p, NULL, &way, &err);
		solve(&a, &p, &spread, &way, &err);
		up += way.up;
		if (oracle.status != GK_OK || a.status != GK_OK || !same_model(&oracle.model, &a.model) || way.reads != 1)
		{
			differ++;
			printf("# problem %d (n %d d %d k %d) on %d devices: %s\n", number, p.n, p.d, p.k, spread.n,
				   a.status == GK_OK ? "differs" : err.message);
		}
		many += strchr(a.model.device, ',') != NULL;
		answer_free(&oracle);
		answer_free(&a);
		left += sessions_open() != 0 || oracle.host.live != 0 || a.host.live != 0;
		problem_free(&p);
	}
	ok(differ == 0 && up == problems, "fits of rows that went up to two to eight devices: %d of %d differ from the CPU's", differ, up);
	ok(left == 0, "nothing is left of them");
	ok(wrong_problems == 0, "each device has the totals of its rows, and no hint to run ahead");
	ok(many > problems / 3, "many of them were on several: %d", many);
	ok(joined_rounds > problems / 4, "joined sessions chose seeds: %d", joined_rounds);
}

/* ---- shares ---- */

static bool
rows_are(int64_t a, int64_t b, int64_t c)
{
	return fakes[0].rows == a && fakes[1].rows == b && fakes[2].rows == c;
}

static void
test_shares(void)
{
	static const double estimates[] = {600.0, 100000.0, 5000.0, 8000.0, 0.0, -1.0, 1.0};
	uint64_t	rng = 52;
	Problem		p = {.n = 6400,.d = 2,.k = 5};
	Reading		way = plain;
	GkSpread	spread;
	Answer		oracle;
	Answer		a;
	GkError		err;

	p.x = random_points(&rng, TEST_UNIFORM, p.n, p.d);
	p.opt = (GkOptions) {.k = p.k,.init = GK_INIT_RANDOM,.n_init = 1,.max_iter = 40};
	joining = false;
	solve(&oracle, &p, NULL, &way, &err);

	/* speeds are 1, 2 and 3 */
	way.expected = p.n;
	spread = spread_over(3, false, NULL);
	fakes[0].ms_per_row = 5e-3;
	solve(&a, &p, &spread, &way, &err);
	ok(same_model(&oracle.model, &a.model) && rows_are(1088, 2112, 3200) && told == 1,
	   "shares by speed, in rows and not in rooms, which stay: %lld, %lld and %lld",
	   (long long) fakes[0].rows, (long long) fakes[1].rows, (long long) fakes[2].rows);
	ok(fakes[0].expected == 1088 && fakes[1].expected == 2112 && fakes[2].expected == 3200, "which they were told before");
	ok(strcmp(a.model.device, "gpu 0 17 %, gpu 1 33 %, gpu 2 50 %") == 0 && a.model.context_ms == 3.0 && a.model.upload_ms == 2.0,
	   "the model says so: \"%s\", %g ms, %g ms", a.model.device, a.model.context_ms, a.model.upload_ms);
	answer_free(&a);

	for (int i = 0; i < (int) (sizeof(estimates) / sizeof(estimates[0])); i++)
	{
		way.expected = estimates[i];
		spread = spread_over(3, false, NULL);
		solve(&a, &p, &spread, &way, &err);
		ok(same_model(&oracle.model, &a.model) && rows_are(1088, 2112, 3200), "the same when %g rows were expected", estimates[i]);
		answer_free(&a);
	}
	way.expected = 0.98 * p.n;
	spread = spread_over(3, false, NULL);
	solve(&a, &p, &spread, &way, &err);
	ok(same_model(&oracle.model, &a.model) && rows_are(1024, 2112, 3264), "nearly right ones stay");
	answer_free(&a);

	/* devices that take over nothing from each other */
	way.expected = 600;
	spread = spread_over(3, false, NULL);
	spread_apart(&spread);
	solve(&a, &p, &spread, &way, &err);
	ok(same_model(&oracle.model, &a.model) && rows_are(128, 192, 6080), "else the last device has the rest of more rows");
	answer_free(&a);

	way.expected = 100000;
	spread = spread_over(3, false, NULL);
	spread_apart(&spread);
	solve(&a, &p, &spread, &way, &err);
	ok(same_model(&oracle.model, &a.model) && rows_are(6400, 0, 0) && strcmp(a.model.device, "gpu 0 100 %") == 0,
	   "and of fewer the others have none");
	answer_free(&a);

	way.expected = 10;
	spread = spread_over(3, false, "70,0");
	solve(&a, &p, &spread, &way, &err);
	ok(same_model(&oracle.model, &a.model) && rows_are(64, 0, 6336) && fakes[0].expected == 10 && fakes[1].calls == 0,
	   "forced ones are what is forced");
	answer_free(&a);
	answer_free(&oracle);
	problem_free(&p);
}

/* ---- failures ---- */

/* Each device fails at each call, in turn, until it makes no more.  Returns how often. */
static int
fail_everywhere(const Problem *p, const Answer *oracle, Reading *way, int n, GkStatus failure, int *bad)
{
	int			injected = 0;
	GkError		err;

	for (int device = 0; device < n; device++)
		for (int at = 1;; at++)
		{
			GkSpread	spread = spread_over(n, false, NULL);
			bool		failed;
			Answer		a;

			fakes[device].fail_at = at;
			fakes[device].failure = failure;
			solve(&a, p, &spread, way, &err);
			failed = fakes[device].calls >= at;
			/* at most one more read; a device that is lost is not asked again, or says so at its first call */
			if (a.status != GK_OK || !same_model(&oracle->model, &a.model) || way->reads > 2 || way->on_cpu || sessions_open() != 0 ||
				(failure == GK_ERR_DEVICE && failed && fakes[device].calls > at + 1))
			{
				++*bad;
				printf("# device %d of %d at call %d: %s\n", device, n, at, a.status != GK_OK ? err.message : "differs, or is asked too often");
			}
			answer_free(&a);
			*bad += a.host.live != 0;
			injected += failed;
			if (!failed)
				break;
		}
	return injected;
}

static void
test_failures(void)
{
	uint64_t	rng = 53;
	int			injected = 0;
	int			bad = 0;
	GkError		err;

	for (int number = 0; number < 10; number++)
	{
		Problem		p = problem_of(&rng, number % 5, true);
		Reading		way = plain;
		Answer		oracle;

		joining = number >= 5;
		advancing = number >= 5 ? (number - 4) % 4 : 0;
		p.n = p.n < 1800 ? p.n : 1800;
		p.k = p.opt.k = p.k < 6 ? p.k : 6;
		p.opt.max_iter = 3;
		way.expected = number % 3 == 0 ? p.n / 3 : p.n;
		way.before = number % 2 ? 700 : 0;
		way.chunk = (size_t) 200 * 4 * p.d;
		solve(&oracle, &p, NULL, &way, &err);
		injected += fail_everywhere(&p, &oracle, &way, 2 + number % 2, number % 4 < 2 ? GK_ERR_DEVICE : GK_ERR_DEVICE_MEMORY, &bad);
		answer_free(&oracle);
		problem_free(&p);
	}
	ok(bad == 0 && injected >= 200, "%d failures, at each call of each device: the others do the job, after one more read (%d bad)", injected, bad);
}

static void
test_other_failures(void)
{
	uint64_t	rng = 54;
	Problem		p = problem_of(&rng, 1, true);
	Reading		way = plain;
	GkSpread	spread = spread_over(3, false, NULL);
	Answer		oracle;
	Answer		a;
	GkError		err;

	joining = true;
	way.expected = p.n;
	solve(&oracle, &p, NULL, &way, &err);
	for (int i = 0; i < 3; i++)
		fakes[i] = (Fake) {.fail_at = 5 + i,.failure = GK_ERR_DEVICE};
	solve(&a, &p, &spread, &way, &err);
	ok(a.status == GK_OK && same_model(&oracle.model, &a.model) && way.on_cpu && way.lost == 2 && way.reads == 4,
	   "all devices fail, one after the other, and the CPU does the job (%d reads)", way.reads);
	answer_free(&a);

	spread = spread_over(3, false, NULL);
	fakes[1] = (Fake) {.fail_at = 4,.failure = GK_ERR_MEMORY};
	solve(&a, &p, &spread, &way, &err);
	ok(a.status == GK_ERR_MEMORY && way.reads == 1 && a.host.live == 0 && sessions_open() == 0, "a failure that is no device's is the call's");
	answer_free(&a);

	/* twice as many rows as expected do not fit the last one: as the shares of rows in memory they do */
	spread = spread_over(3, false, NULL);
	way.expected = p.n / 2;
	fakes[2].max_rows = p.n / 2 + 128;
	solve(&a, &p, &spread, &way, &err);
	ok(a.status == GK_OK && same_model(&oracle.model, &a.model) && way.reads == 2 && way.lost == 0 && fakes[1].rows > 0,
	   "a device with too little memory: the rows are read into main memory, and shared out");
	answer_free(&a);

	/* as a spread with the CPU, which fn_fit_device.c does not ask for */
	spread = spread_over(3, true, NULL);
	solve(&a, &p, &spread, &way, &err);
	ok(a.status == GK_OK && same_model(&oracle.model, &a.model) && way.up == 0 && way.reads == 1, "the CPU takes no rows as they come");
	answer_free(&a);
	answer_free(&oracle);
	problem_free(&p);
}

/* ---- the host ---- */

static void
test_stop_and_memory(void)
{
	uint64_t	rng = 55;
	Problem		p = problem_of(&rng, 2, true);
	Reading		way = plain;
	int			bad = 0;
	int			stopped = 0;
	int			nth = 0;
	GkError		err;

	p.opt.max_iter = 3;
	way.expected = p.n;
	way.before = p.n / 2;
	way.chunk = 30000;
	for (int at = 1; at < 40; at++)
	{
		GkSpread	spread = spread_over(3, false, NULL);
		Answer		a;

		joining = at % 4 > 1;
		way.stop_at = 1 + at / 2;
		way.in_fit = at % 2;
		solve(&a, &p, &spread, &way, &err);
		stopped += a.status == GK_STOPPED;
		bad += a.status != GK_STOPPED && a.status != GK_OK;
		answer_free(&a);
		bad += a.host.live != 0 || sessions_open() != 0;
	}
	ok(bad == 0 && stopped > 10, "stopped %d times, nothing left", stopped);
	way.stop_at = 0;
	way.in_fit = false;
	for (bad = 0; nth < 100000; nth += 1 + nth / 20)
	{
		GkSpread	spread = spread_over(3, false, NULL);
		bool		done;
		Answer		a;

		way.fail_at = nth + 1;
		solve(&a, &p, &spread, &way, &err);
		done = a.status == GK_OK && a.host.allocs < a.host.fail_at;
		bad += a.status != GK_OK && a.status != GK_ERR_MEMORY;
		answer_free(&a);
		bad += a.host.live != 0 || sessions_open() != 0;
		if (done)
			break;
	}
	ok(bad == 0 && nth > 10, "failing allocation, 1st to %dth, leaves the right error and nothing else (%d bad)", nth, bad);
	problem_free(&p);
}

int
main(void)
{
	test_same_bits(140);
	test_shares();
	test_failures();
	test_other_failures();
	test_stop_and_memory();
	return done_testing();
}
