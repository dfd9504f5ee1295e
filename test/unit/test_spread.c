/*
 * Several devices in one clustering: two to eight of unequal speed, played by the CPU, give the
 * bits of one, however the rows are shared out and whichever of them fails at whichever call.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/store/gk_store.h"
#include "gk_test.h"
#include "gk_testdevices.h"
#include "gk_testfit.h"

/* ---- a fit on them ---- */

static int	lost_asked;
static bool lost_refused;
static int	shares_told;
static char shares[128];

static bool
device_lost(void *ctx, const GkError *err)
{
	(void) ctx;
	lost_asked += strncmp(err->message, "device", 6) == 0;
	return !lost_refused;
}

static void
devices(void *ctx, const char *text)
{
	(void) ctx;
	shares_told++;
	snprintf(shares, sizeof(shares), "%s", text);
}

/* On one device, the CPU: spread is NULL.  limit: of the memory. */
static void
solve(Answer *a, const Problem *p, const GkSpread *spread, int threads, size_t chunk, size_t limit, GkError *err)
{
	GkStore    *s;
	GkLabelSink sink;

	answer_init(a, p, threads);
	sink = test_sink(&a->labels);
	a->host.host.spread = spread;
	a->host.host.device_lost = device_lost;
	a->host.host.devices = devices;
	/* samples, and parts of them, are stores of their own */
	all_rows = p->opt.fit_sample > 0.0 || p->opt.init_sample > 0.0 || p->opt.init == GK_INIT_HIERARCHICAL ? -1 : p->n;
	s = load_store(&a->host, p->x, p->w, p->n, p->d, NULL, chunk, limit, err);
	a->status = gk_store_prepare(s, p->opt.distance, p->opt.standardize, err);
	if (a->status == GK_OK)
		a->status = gk_fit(s, spread != NULL ? &gk_spread_backend : &gk_cpu_backend, &p->opt, &sink, &a->model, err);
	gk_store_free(s);
}

static Problem
problem_of(uint64_t *rng, int number)
{
	Problem		p = random_problem(rng, number);

	if (number % 5 == 0)
		given_centroids(&p, rng);
	else
		p.opt.init = number % 5 == 1 ? GK_INIT_PLUSPLUS : random_inits[number % 5 - 2];
	p.opt.n_init = number % 4 == 2 ? 2 : 1;
	p.opt.fit_sample = number % 17 == 6 ? 0.5 : 0.0;
	p.opt.init_sample = number % 19 == 7 ? 0.5 : 0.0;
	return p;
}

/* ---- the same bits ---- */

static void
test_same_bits(int problems)
{
	static const char *const splits[] = {
		NULL, "1", "64,64", "0,0,1000000", "100,0,1", "128,64,64,64,64,64,64",
		"64,64;256,128", "64;1000;200;640", "64,128,64;128,64,64;64,64,64", "0,64;64;1000000;64"
	};
	uint64_t	rng = 31;
	int			differ = 0;
	int			left = 0;
	int			many = 0;
	GkError		err;

	for (int number = 0; number < problems; number++)
	{
		Problem		p = problem_of(&rng, number);
		GkSpread	spread = spread_over(2 + number % 7, number % 2, splits[number % 10]);
		Answer		oracle;
		Answer		a;

		fakes[number / 10 % 4].stays = number / 10 % 5;
		joining = number % 4 < 2;
		advancing = number % 3;
		solve(&oracle, &p, NULL, 2, whole_chunk(&p), SIZE_MAX, &err);
		solve(&a, &p, &spread, 1 + number % 2, number % 3 == 1 ? 30000 : whole_chunk(&p),
			  number % 3 == 1 && number % 2 ? 100000 : SIZE_MAX, &err);
		if (!same_answer(&oracle, &a, p.n))
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
	ok(differ == 0, "fits on two to eight devices: %d of %d differ from one's", differ, problems);
	ok(left == 0, "nothing is left of them");
	ok(wrong_problems == 0, "each device has the totals of its rows, and no hint to run ahead");
	ok(many > problems / 2, "most of them were on several: %d", many);
	ok(advanced > problems / 2 && recalled > problems / 4, "they made %d iterations by themselves, recalled %d times", advanced, recalled);
	ok(moved > problems, "sessions went on with other rows: %d", moved);
	ok(joined_rounds > problems, "joined sessions chose seeds: %d", joined_rounds);
}

/* Empty clusters go to the farthest points, of which there are several in each part. */
static void
test_farthest(void)
{
	static const char *const splits[] = {"64", "128,64", "64,64,64"};
	uint64_t	rng = 38;
	int			differ = 0;
	GkError		err;

	for (int number = 0; number < 12; number++)
	{
		Problem		p = {.n = 320,.d = 1 + number % 3,.k = 9};
		GkSpread	spread = spread_over(4, false, splits[number % 3]);
		Answer		oracle;
		Answer		a;

		p.x = random_points(&rng, number % 2 ? TEST_DUPLICATES : TEST_LATTICE, p.n, p.d);
		/* as far to one side as to the other */
		for (int i = 1; i < p.n; i += 2)
			for (int j = 0; j < p.d; j++)
				p.x[i * p.d + j] = -p.x[(i - 1) * p.d + j];
		p.init = calloc(p.k * p.d, sizeof(double));
		p.opt = (GkOptions) {.k = p.k,.init = GK_INIT_CENTROIDS,.centroids = p.init,.n_init = 1,.max_iter = 3};
		solve(&oracle, &p, NULL, 1, whole_chunk(&p), SIZE_MAX, &err);
		solve(&a, &p, &spread, 1, whole_chunk(&p), SIZE_MAX, &err);
		differ += oracle.model.k < 2 || !same_answer(&oracle, &a, p.n);
		answer_free(&oracle);
		answer_free(&a);
		problem_free(&p);
	}
	ok(differ == 0, "of points that are equally far the same ones, whichever device has them: %d differ", differ);
}

/*
 * Under cosine a cluster whose points have no common direction stays where it is: here two opposite points, which one
 * centroid has to the end, and before it some that move it.
 */
static void
test_no_mean(void)
{
	int			differ = 0;
	int			stayed = 0;
	GkError		err;

	for (int t = 0; t < 130; t++)
	{
		double		from = (1 + t % 13) * M_PI / 180.0;
		double		init[9] = {0.0, cos(from), sin(from), 0.0, 0.0, 1.0, 0.0, 0.0, -1.0};
		double		x[24 * 3] = {1.0, 0.0, 0.0, -1.0, 0.0, 0.0};
		Problem		p = {.n = 24,.d = 3,.k = 3};
		GkSpread	spread = spread_over(2, false, NULL);
		Answer		oracle;
		Answer		a;

		for (int i = 2; i < p.n; i++)
		{
			double		angle = i < 4 ? 30.0 : 46.0 + t / 13 * 0.037 + (i / 2 - 2) * 0.1;

			x[i * 3 + 1] = cos(angle * M_PI / 180.0);
			x[i * 3 + 2] = sin((i % 2 ? -angle : angle) * M_PI / 180.0);
		}
		p.x = x;
		p.opt = (GkOptions) {.k = p.k,.init = GK_INIT_CENTROIDS,.centroids = init,.n_init = 1,.max_iter = 20,.distance = GK_COSINE};
		joining = true;
		advancing = 1;
		solve(&oracle, &p, NULL, 1, whole_chunk(&p), SIZE_MAX, &err);
		solve(&a, &p, &spread, 1, whole_chunk(&p), SIZE_MAX, &err);
		differ += !same_answer(&oracle, &a, p.n);
		for (int i = 0; i < oracle.model.k; i++)
			stayed += oracle.model.size[i] == 2 && oracle.model.centroids[3 * i + 1] > 0.0;
		answer_free(&oracle);
		answer_free(&a);
	}
	ok(differ == 0 && stayed > 0, "clusters without a direction stay, %d times: %d differ", stayed, differ);
}

/* Labels by a model are no fit: another way to the last pass. */
static void
test_labels(void)
{
	uint64_t	rng = 32;
	int			differ = 0;
	int			n = 0;
	GkError		err;

	for (int number = 0; number < 12; number++)
	{
		Problem		p = problem_of(&rng, number);
		GkSpread	spread = spread_over(2 + number % 4, number % 2, NULL);
		Answer		fit;

		solve(&fit, &p, NULL, 2, whole_chunk(&p), SIZE_MAX, &err);
		for (int limited = 0; limited < 2; limited++)
		{
			Answer		a;
			GkLabelSink sink;
			GkStore    *s;

			answer_init(&a, &p, 2);
			a.host.host.spread = &spread;
			sink = test_sink(&a.labels);
			s = load_store(&a.host, p.x, p.w, p.n, p.d, NULL, 20000, limited ? 100000 : SIZE_MAX, &err);
			a.status = gk_store_prepare_as(s, &fit.model.prep, &err);
			if (a.status == GK_OK)
				a.status = gk_label(s, &gk_spread_backend, &fit.model, &sink, &err);
			gk_store_free(s);
			n++;
			differ += a.status != GK_OK || a.labels.seen != p.n || a.host.live != 0 ||
				memcmp(a.labels.label, fit.labels.label, p.n * sizeof(int32_t)) != 0 ||
				memcmp(a.labels.d2, fit.labels.d2, p.n * sizeof(float)) != 0;
			answer_free(&a);
		}
		answer_free(&fit);
		problem_free(&p);
	}
	ok(differ == 0, "labels by a model, in memory and from a file: %d of %d differ", differ, n);
}

/* ---- failures ---- */

/* Each device fails at each call, in turn, until it makes no more: the others do its share. */
static int
fail_everywhere(const Problem *p, const Answer *oracle, int n, const char *rows, GkStatus failure, size_t chunk, size_t limit, int *bad)
{
	int			injected = 0;
	GkError		err;

	for (int device = 0; device < n; device++)
		for (int at = 1;; at++)
		{
			GkSpread	spread = spread_over(n, false, rows);
			bool		failed;
			Answer		a;

			fakes[device].fail_at = at;
			fakes[device].failure = failure;
			lost_asked = 0;
			solve(&a, p, &spread, 1, chunk, limit, &err);
			failed = fakes[device].calls >= at;
			if (!same_answer(oracle, &a, p->n) || lost_asked != failed || sessions_open() != 0)
			{
				++*bad;
				printf("# device %d of %d at call %d: %s\n", device, n, at,
					   a.status != GK_OK ? err.message : "differs, or another number of questions");
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
	uint64_t	rng = 33;
	int			injected = 0;
	int			bad = 0;
	GkError		err;

	for (int number = 0; number < 15; number++)
	{
		Problem		p = problem_of(&rng, number % 5);
		Answer		oracle;

		joining = number >= 5 && number < 10;
		advancing = joining ? (number - 4) % 4 : 0;
		/* few calls, but rows in several chunks */
		p.n = p.n < 900 ? p.n : 900;
		p.k = p.opt.k = p.k < 6 ? p.k : 6;
		p.opt.max_iter = 3;
		solve(&oracle, &p, NULL, 1, whole_chunk(&p), SIZE_MAX, &err);
		injected += fail_everywhere(&p, &oracle, 2 + number % 2, number < 10 ? NULL : "192,128;128,192", number % 2 ? GK_ERR_DEVICE : GK_ERR_DEVICE_MEMORY,
									(size_t) 200 * 4 * (p.d + 2), number == 3 ? 1000 : SIZE_MAX, &bad);
		answer_free(&oracle);
		problem_free(&p);
	}
	ok(bad == 0 && injected >= 200, "%d failures, at each call of each device: the others do its share (%d bad)", injected, bad);
}

static void
test_no_one_left(void)
{
	uint64_t	rng = 34;
	Problem		p = problem_of(&rng, 1);
	GkSpread	spread = spread_over(3, false, NULL);
	Answer		a;
	GkError		err;

	for (int i = 0; i < 3; i++)
		fakes[i] = (Fake) {.fail_at = 3 + i,.failure = GK_ERR_DEVICE};
	lost_asked = 0;
	solve(&a, &p, &spread, 1, whole_chunk(&p), SIZE_MAX, &err);
	ok(a.status == GK_ERR_DEVICE && lost_asked == 2 && a.host.live == 0 && sessions_open() == 0,
	   "the last one's failure is the call's (%s, asked %d times)", err.message, lost_asked);
	answer_free(&a);

	spread = spread_over(3, false, NULL);
	fakes[1] = (Fake) {.fail_at = 4,.failure = GK_ERR_DEVICE_MEMORY};
	lost_refused = true;
	solve(&a, &p, &spread, 1, whole_chunk(&p), SIZE_MAX, &err);
	lost_refused = false;
	ok(a.status == GK_ERR_DEVICE_MEMORY && a.host.live == 0 && sessions_open() == 0,
	   "where the host refuses, the first failure is (%s)", err.message);
	answer_free(&a);

	spread = spread_over(2, false, NULL);
	fakes[0].fail_at = fakes[1].fail_at = 2;
	fakes[0].failure = GK_ERR_DEVICE;
	fakes[1].failure = GK_ERR_MEMORY;
	solve(&a, &p, &spread, 1, whole_chunk(&p), SIZE_MAX, &err);
	ok(a.status == GK_ERR_MEMORY && a.host.live == 0, "a failure that is no device's is the call's");
	answer_free(&a);
	problem_free(&p);
}

static void
test_too_small(void)
{
	uint64_t	rng = 35;
	Problem		p = problem_of(&rng, 1);
	GkSpread	spread = spread_over(3, false, NULL);
	Answer		oracle;
	Answer		a;
	GkError		err;

	solve(&oracle, &p, NULL, 1, whole_chunk(&p), SIZE_MAX, &err);
	fakes[2].max_rows = p.n / 10;
	lost_asked = 0;
	solve(&a, &p, &spread, 1, whole_chunk(&p), SIZE_MAX, &err);
	ok(same_answer(&oracle, &a, p.n) && lost_asked == 1 && fakes[0].rows + fakes[1].rows == p.n,
	   "a device with too little memory leaves its rows to the others (%lld and %lld of %d)",
	   (long long) fakes[0].rows, (long long) fakes[1].rows, p.n);
	answer_free(&a);
	answer_free(&oracle);
	problem_free(&p);
}

/* ---- the host ---- */

static void
test_stop_and_memory(void)
{
	uint64_t	rng = 36;
	Problem		p = problem_of(&rng, 2);
	int			bad = 0;
	int			stopped = 0;
	int			nth;
	GkError		err;

	p.opt.max_iter = 3;
	for (int at = 1; at < 40; at++)
	{
		GkSpread	spread = spread_over(3, at % 4 == 1, at % 8 == 1 ? "640,1280;1280,640" : NULL);
		Answer		a;

		joining = at % 4 > 1;
		advancing = at % 3;
		GkLabelSink sink;
		GkStore    *s;

		answer_init(&a, &p, 1);
		a.host.host.spread = &spread;
		sink = test_sink(&a.labels);
		s = load_store(&a.host, p.x, p.w, p.n, p.d, NULL, 30000, SIZE_MAX, &err);
		a.status = gk_store_prepare(s, p.opt.distance, p.opt.standardize, &err);
		a.host.stop_at = a.host.polls + at;
		for (int i = 0; i < 3; i++)
			fakes[i].ms_per_row = at > 30 ? 1e-3 : 0.0;
		a.status = gk_fit(s, &gk_spread_backend, &p.opt, &sink, &a.model, &err);
		gk_store_free(s);
		stopped += a.status == GK_STOPPED;
		bad += a.status != GK_STOPPED && a.status != GK_OK;
		answer_free(&a);
		bad += a.host.live != 0 || sessions_open() != 0;
	}
	ok(bad == 0 && stopped > 3, "stopped %d times, nothing left", stopped);
	for (nth = 1, bad = 0; nth < 100000; nth += 1 + nth / 20)
	{
		GkSpread	spread = spread_over(3, nth % 2, nth % 3 ? "640,1280;1280,640" : NULL);
		bool		done;
		Answer		a;
		GkLabelSink sink;
		GkStore    *s;

		answer_init(&a, &p, 1);
		a.host.host.spread = &spread;
		sink = test_sink(&a.labels);
		s = load_store(&a.host, p.x, p.w, p.n, p.d, NULL, 30000, SIZE_MAX, &err);
		a.status = gk_store_prepare(s, p.opt.distance, p.opt.standardize, &err);
		a.host.fail_at = a.host.allocs + nth;
		a.status = gk_fit(s, &gk_spread_backend, &p.opt, &sink, &a.model, &err);
		done = a.status == GK_OK;
		gk_store_free(s);
		bad += !done && a.status != GK_ERR_MEMORY;
		answer_free(&a);
		bad += a.host.live != 0 || sessions_open() != 0;
		if (done)
			break;
	}
	ok(bad == 0 && nth > 10, "failing allocation, 1st to %dth, leaves the right error and nothing else (%d bad)", nth - 1, bad);
	problem_free(&p);
}

/* ---- shares ---- */

static void
test_shares(bool joined, bool ahead)
{
	uint64_t	rng = 37;
	Problem		p = {.n = 6400,.d = 2,.k = 5};
	GkSpread	spread = spread_over(2, false, NULL);
	Answer		oracle;
	Answer		a;
	GkError		err;

	p.x = random_points(&rng, TEST_UNIFORM, p.n, p.d);
	p.opt = (GkOptions) {.k = p.k,.init = GK_INIT_RANDOM,.n_init = 1,.max_iter = 40};
	solve(&oracle, &p, NULL, 1, whole_chunk(&p), SIZE_MAX, &err);

	/* of the same speed as far as is known, but one is nine times as fast as the other */
	spread.device[1].speed = spread.device[0].speed;
	fakes[0].ms_per_row = 9e-3;
	fakes[1].ms_per_row = 1e-3;
	joining = joined;
	advancing = ahead;
	shares_told = 0;
	solve(&a, &p, &spread, 1, whole_chunk(&p), SIZE_MAX, &err);
	ok(same_answer(&oracle, &a, p.n), "rows move between devices: the same answer");
	/* how many is test_spread_share.c's: these are times of a machine that may be busy */
	ok(shares_told >= 2 && fakes[1].rows > fakes[0].rows,
	   "and the faster one has more: %s, told %d times", shares, shares_told);
	ok(strcmp(a.model.device, shares) == 0 && a.model.context_ms == 2.0 && a.model.upload_ms == 2.0,
	   "the model says so: \"%s\", %g ms, %g ms", a.model.device, a.model.context_ms, a.model.upload_ms);
	answer_free(&a);

	/* a forced split stays, a device without rows is never opened */
	spread = spread_over(3, false, "64,0");
	fakes[0].ms_per_row = 1e-3;
	shares_told = 0;
	solve(&a, &p, &spread, 1, whole_chunk(&p), SIZE_MAX, &err);
	ok(same_answer(&oracle, &a, p.n) && fakes[0].rows == 64 && fakes[1].calls == 0 && fakes[2].rows == 6336 &&
	   shares_told == 1, "forced shares stay: %s", shares);
	answer_free(&a);
	answer_free(&oracle);
	problem_free(&p);
}

int
main(void)
{
	test_same_bits(240);
	test_farthest();
	test_no_mean();
	test_labels();
	test_failures();
	test_no_one_left();
	test_too_small();
	test_stop_and_memory();
	test_shares(false, false);
	test_shares(true, false);
	test_shares(true, true);
	return done_testing();
}
