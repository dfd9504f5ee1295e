/*
 * test_gpu.c - the GPU backend against the oracle, bit for bit.
 *
 *   test_gpu LIBRARY [small|full|trap|PART ...]
 *
 * small: little work, for compute-sanitizer.  trap: only the test that loses
 * the device for good.  Prints what failed, then "N passed, N failed", or
 * "skipped: reason" when there is no usable GPU.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_harness.h"
#include "gpu_memory.h"

static const GkBackend *gpu;
static bool products;			/* this GPU has them */
static int	passed;
static int	failed;
static int	tails_from;			/* features that tail_only() has */

static void
check(bool ok, const char *fmt,...)
{
	va_list		ap;

	if (ok)
	{
		passed++;
		return;
	}
	failed++;
	printf("FAILED: ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

static GkProblem
problem_for(GkStore *s, int k, int max_iter)
{
	GkProblem	p = {.host = &s->host,.core = &harness_core,.store = s,.k_max = k,.max_iter = max_iter,.tol = 0.0};

	return p;
}

/* ---- Lloyd iterations ---- */

#define BRIEF_VALUES	(1 << 14)	/* gk_gpu_cost.h: from so many on centroids are left to the session */

static const char *const strategies[] = {"auto", "single_pass", "multi_pass", "cross_processing"};
static const char *const fsums[] = {"auto", "partitioned_features", "cluster_merge", "delta"};
static const char *const skips[] = {"", " skipping", " not skipping"};
static const char *const msums[] = {"auto", "partitioned_private", "partitioned_local", "partitioned_global", "global_atomic"};

/* One case with its oracle's answers, to be compared with many variants. */
typedef struct Case
{
	Shape		shape;
	GkStore    *store;
	int			iters;
	int			max_iter;		/* as the session is told: with 1 it does not prepare for more */
	float	   *start;
	GkStep	   *steps;			/* [iters] */
	float	   *end;
	int32_t    *labels;			/* of the end */
	float	   *d2;
	GkFinish	fin;
} Case;

static Case *
case_new(Shape sh, int iters)
{
	Case	   *c = calloc(1, sizeof(*c));
	size_t		kd = (size_t) sh.k * sh.d;
	GkStep		last = harness_step_alloc(sh.k, sh.d);

	c->shape = sh;
	c->store = harness_store(&sh, 42 + sh.n + sh.d);
	c->iters = c->max_iter = iters;
	c->start = malloc(kd * sizeof(float));
	c->end = malloc(kd * sizeof(float));
	c->labels = malloc(sh.n * sizeof(int32_t));
	c->d2 = malloc(sh.n * sizeof(float));
	c->steps = calloc(iters, sizeof(GkStep));
	harness_centroids(c->store, sh.k, 99, c->start);
	for (int i = 0; sh.kind == RIVALS && i < sh.k; i++)
	{
		size_t		st;
		float		w;
		const float *x = harness_row(c->store, i, &st, &w);

		for (int j = 0; j < sh.d; j++)
			c->start[(size_t) i * sh.d + j] = x[j * st];
	}
	for (int j = 0; sh.far != 0.0f && j < sh.d; j++)
		c->start[(size_t) sh.k / 2 * sh.d + j] = sh.far;
	memcpy(c->end, c->start, kd * sizeof(float));
	for (int i = 0; i < iters; i++)
	{
		c->steps[i] = harness_step_alloc(sh.k, sh.d);
		oracle_step(c->store, c->end, sh.k, &c->steps[i], c->labels, c->d2);
		oracle_update(c->store, &c->steps[i], sh.k, c->end, NULL, NULL);
	}
	oracle_step(c->store, c->end, sh.k, &last, c->labels, c->d2);
	harness_step_free(&last);
	c->fin.count = calloc(sh.k, sizeof(int64_t));
	c->fin.inertia = calloc(sh.k, sizeof(gk_int128));
	c->fin.max_d2 = calloc(sh.k, sizeof(float));
	oracle_stats(c->store, sh.k, c->labels, c->d2, &c->fin);
	return c;
}

static void
case_free(Case *c)
{
	for (int i = 0; i < c->iters; i++)
		harness_step_free(&c->steps[i]);
	harness_store_free(c->store);
	free(c->start);
	free(c->end);
	free(c->labels);
	free(c->d2);
	free(c->steps);
	free(c->fin.count);
	free(c->fin.inertia);
	free(c->fin.max_d2);
	free(c);
}

typedef struct Sink
{
	const Case *c;
	int64_t		at;
	bool		same;
} Sink;

static bool
sink_emit(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Sink	   *s = ctx;

	(void) aux;
	s->same &= memcmp(label, s->c->labels + s->at, rows * sizeof(int32_t)) == 0 &&
		memcmp(d2, s->c->d2 + s->at, rows * sizeof(float)) == 0;
	s->at += rows;
	return true;
}

/* The case's iterations with the centroids left to the session, where it takes them; it is to be recalled in between. */
static GkStatus
case_advance(const Case *c, GkSession *s, const char *name, GkError *err)
{
	const Shape *sh = &c->shape;
	size_t		kd = (size_t) sh->k * sh->d;
	float	   *before = malloc(kd * sizeof(float));
	float	   *cur = malloc(kd * sizeof(float));
	double	   *moved = malloc(sh->k * sizeof(double));
	double	   *explained = malloc(sh->k * sizeof(double));
	Iterations	it = harness_iterations(gpu, s, c->store, sh->k, cur);
	bool		kept = false;
	GkAdvance	a = {.count = it.step.count,.moved = it.moved,.explained = it.explained};
	GkStatus	st = GK_OK;
	bool		over = false;	/* an empty cluster, or none moves */

	memcpy(before, c->start, kd * sizeof(float));
	for (int i = 0; st == GK_OK && i < c->iters; i++)
	{
		const GkStep *right = &c->steps[i];

		st = gpu->advance(s, i == 0 ? c->start : NULL, sh->k, &a, err);
		check(st == GK_OK, "%s: advance %d: %s (%s)", name, i, err->message, err->detail);
		check(a.done == (i == 0 ? (int64_t) kd >= BRIEF_VALUES && st == GK_OK && strstr(name, strategies[GK_CROSS_PROCESSING]) == NULL : !over),
			  "%s: advance %d: %s", name, i, a.done ? "done" : "not done");
		if (!a.done)
			break;
		if (i == 0 || i == c->iters - 1)
		{
			st = gpu->recall(s, sh->k, cur, &it.step, &kept, err);
			check(st == GK_OK && kept && harness_step_equal(&it.step, right, sh->k, sh->d), "%s: recalled step %d differs", name, i);
			check(memcmp(cur, before, kd * sizeof(float)) == 0, "%s: recalled centroids %d differ", name, i);
		}
		over = oracle_update(c->store, right, sh->k, before, moved, explained) <= 0.0;
		check(memcmp(it.step.count, right->count, sh->k * sizeof(int64_t)) == 0, "%s: advance %d: counts differ", name, i);
		check(memcmp(it.moved, moved, sh->k * sizeof(double)) == 0, "%s: advance %d: movement differs", name, i);
		check(memcmp(it.explained, explained, sh->k * sizeof(double)) == 0, "%s: advance %d: explained differs", name, i);
		for (int q = 0; q < sh->k; q++)
			over |= right->count[q] == 0;
	}
	harness_iterations_free(&it);
	free(before);
	free(cur);
	free(moved);
	free(explained);
	return st;
}

static void
case_run(const Case *c, GkStrategy st, GkFeatureSum fs, GkMassSum ms, double limit)
{
	const Shape *sh = &c->shape;
	GkProblem	p = problem_for(c->store, sh->k, c->max_iter);
	size_t		kd = (size_t) sh->k * sh->d;
	float	   *cur = malloc(kd * sizeof(float));
	GkStep		step = harness_step_alloc(sh->k, sh->d);
	GkFinish	fin = {.count = calloc(sh->k, sizeof(int64_t)),.inertia = calloc(sh->k, sizeof(gk_int128)),.max_d2 = calloc(sh->k, sizeof(float))};
	Sink		state = {c, 0, true};
	GkLabelSink sink = {&state, sink_emit, NULL};
	GkSession  *s = NULL;
	GkError		err;
	char		name[200];
	GkStatus	status;

	snprintf(name, sizeof(name), "n=%ld d=%d k=%d%s kind %d 2^%d %s/%s/%s%s", (long) sh->n, sh->d, sh->k,
			 sh->weighted ? " weighted" : "", sh->kind, sh->expo, strategies[st], fsums[fs], msums[ms], skips[c->store->host.skip]);
	if (limit > 0)
		snprintf(name + strlen(name), 40, " limit %.6f", limit);
	p.strategy = st;
	p.feature_sum = fs;
	p.mass_sum = ms;
	p.gpu_memory_limit = limit;
	memcpy(cur, c->start, kd * sizeof(float));
	status = gpu->open(&p, &s, &err);
	check(status == GK_OK, "%s: open: %s (%s)", name, err.message, err.detail);
	for (int i = 0; status == GK_OK && i < c->iters; i++)
	{
		status = gpu->step(s, cur, sh->k, &step, &err);
		check(status == GK_OK, "%s: step %d: %s (%s)", name, i, err.message, err.detail);
		if (status == GK_OK)
			check(harness_step_equal(&step, &c->steps[i], sh->k, sh->d), "%s: step %d differs", name, i);
		oracle_update(c->store, &c->steps[i], sh->k, cur, NULL, NULL);
	}
	if (status == GK_OK && c->max_iter > 1)
		status = case_advance(c, s, name, &err);
	if (status == GK_OK)
	{
		status = gpu->finish(s, cur, sh->k, &fin, &sink, &err);
		check(status == GK_OK, "%s: finish: %s (%s)", name, err.message, err.detail);
		check(memcmp(fin.count, c->fin.count, sh->k * sizeof(int64_t)) == 0, "%s: finish: counts differ", name);
		check(memcmp(fin.inertia, c->fin.inertia, sh->k * sizeof(gk_int128)) == 0, "%s: finish: inertia differs", name);
		check(memcmp(fin.max_d2, c->fin.max_d2, sh->k * sizeof(float)) == 0, "%s: finish: radius differs", name);
		check(state.same && state.at == sh->n, "%s: labels differ", name);
	}
	gpu->close(s);
	free(cur);
	free(fin.count);
	free(fin.inertia);
	free(fin.max_d2);
	harness_step_free(&step);
}

/* ---- seeding ---- */

static void
seed_case(Shape sh, double limit)
{
	GkStore    *store = harness_store(&sh, 7 + sh.n);
	GkProblem	p = problem_for(store, sh.k, 1);
	float	   *c = malloc((size_t) 64 * sh.d * sizeof(float));
	float	   *mind2 = malloc(sh.n * sizeof(float));
	int			want = sh.n < 40000 ? (int) sh.n : 40000;
	GkPick	   *a = malloc(want * sizeof(GkPick));
	GkPick	   *b = malloc(want * sizeof(GkPick));
	const int	sizes[] = {1, 3, 12, 1};
	const int	wants[] = {1, 5, want};
	GkSession  *s = NULL;
	GkError		err;
	GkStatus	st;
	char		name[100];

	snprintf(name, sizeof(name), "seed n=%ld d=%d%s%s", (long) sh.n, sh.d, sh.weighted ? " weighted" : "",
			 limit > 0 ? " streamed" : "");
	p.gpu_memory_limit = limit;
	for (int64_t i = 0; i < sh.n; i++)
		mind2[i] = INFINITY;
	st = gpu->open(&p, &s, &err);
	check(st == GK_OK, "%s: open: %s (%s)", name, err.message, err.detail);
	if (st == GK_OK)
		st = gpu->seed_begin(s, &err);
	check(st == GK_OK, "%s: begin: %s (%s)", name, err.message, err.detail);
	for (int r = 0; st == GK_OK && r < 4; r++)
	{
		gk_int128	phi = 0;
		gk_int128	pot[12];
		int64_t		far = -2;
		int			m = sizes[r];

		harness_centroids(store, m, 1000 + r, c);
		st = gpu->seed_update(s, c, m, &phi, &err);
		check(st == GK_OK, "%s: update: %s (%s)", name, err.message, err.detail);
		check(phi == oracle_seed_update(store, c, m, mind2), "%s: update %d: phi differs", name, m);
		harness_centroids(store, m, 2000 + r, c);
		st = gpu->seed_eval(s, c, m, pot, &err);
		check(st == GK_OK, "%s: eval: %s (%s)", name, err.message, err.detail);
		for (int i = 0; i < m; i++)
			check(pot[i] == oracle_seed_eval(store, c + (size_t) i * sh.d, mind2), "%s: eval %d of %d differs", name, i, m);
		st = gpu->seed_far(s, &far, &err);
		check(st == GK_OK && far == oracle_far(store, mind2), "%s: far: %ld, not %ld", name, (long) far,
			  (long) oracle_far(store, mind2));
		for (int w = 0; w < 3; w++)
			for (int use = 0; use < 2; use++)
			{
				int			got = -1;
				int			expect = oracle_race(store, 5 + r, use ? mind2 : NULL, wants[w], b);

				st = gpu->seed_race(s, 5 + r, use, wants[w], a, &got, &err);
				check(st == GK_OK, "%s: race: %s (%s)", name, err.message, err.detail);
				check(got == expect && memcmp(a, b, got * sizeof(GkPick)) == 0,
					  "%s: race for %d (D: %d) differs: %d of %d", name, wants[w], use, got, expect);
			}
	}
	if (s != NULL)
		gpu->seed_end(s);
	gpu->close(s);
	harness_store_free(store);
	free(c);
	free(mind2);
	free(a);
	free(b);
}

/* k seeds by k-means++ as gk_seed.c has it, from an oracle; *n: how many there are. */
static void
oracle_seeds(const GkStore *store, int k, int want, float *points, int *n, float *mind2)
{
	int			d = store->pts.d;
	GkPick	   *picks = malloc(want * sizeof(GkPick));
	float	   *c = malloc((size_t) want * d * sizeof(float));

	for (int64_t i = 0; i < store->pts.n; i++)
		mind2[i] = INFINITY;
	for (*n = 0; *n < k; ++*n)
	{
		int			got = oracle_race(store, 100 + *n, *n > 0 ? mind2 : NULL, *n > 0 ? want : 1, picks);
		gk_int128	lowest = 0;
		int			best = 0;

		if (got == 0)
			break;
		for (int i = 0; i < got; i++)
		{
			gk_int128	pot;

			harness_point(store, picks[i].row, c + (size_t) i * d);
			pot = got > 1 ? oracle_seed_eval(store, c + (size_t) i * d, mind2) : 0;
			if (i == 0 || pot < lowest)
			{
				lowest = pot;
				best = i;
			}
		}
		memcpy(points + (size_t) *n * d, c + (size_t) best * d, d * sizeof(float));
		oracle_seed_update(store, c + (size_t) best * d, 1, mind2);
	}
	free(picks);
	free(c);
}

/* The same, with rounds at once where the GPU has them; *ahead: how many those were. */
static GkStatus
gpu_seeds(GkSession *s, const GkStore *store, int k, int want, float *points, int *n, int *ahead, GkError *err)
{
	int			d = store->pts.d;
	GkPick	   *picks = malloc(want * sizeof(GkPick));
	float	   *c = malloc((size_t) want * d * sizeof(float));
	gk_int128  *pot = malloc(want * sizeof(gk_int128));
	uint64_t   *keys = malloc(k * sizeof(uint64_t));
	GkStatus	st = gpu->seed_begin(s, err);

	for (int i = 0; i < k; i++)
		keys[i] = 100 + i;
	*ahead = 0;
	for (*n = 0; st == GK_OK && *n < k;)
	{
		gk_int128	phi;
		int			done = 0;
		int			got;
		int			best = 0;

		if (*n > 0)
			st = gpu->seed_rounds(s, keys + *n, k - *n < 64 ? k - *n : 64, want, points + (size_t) *n * d, &done, err);
		*n += done;
		*ahead += done;
		if (done > 0 || st != GK_OK)
			continue;
		st = gpu->seed_race(s, keys[*n], *n > 0, *n > 0 ? want : 1, picks, &got, err);
		if (st != GK_OK || got == 0)
			break;
		for (int i = 0; i < got; i++)
			harness_point(store, picks[i].row, c + (size_t) i * d);
		if (got > 1)
			st = gpu->seed_eval(s, c, got, pot, err);
		for (int i = 1; i < got; i++)
			if (pot[i] < pot[best])
				best = i;
		memcpy(points + (size_t) *n * d, c + (size_t) best * d, d * sizeof(float));
		if (st == GK_OK)
			st = gpu->seed_update(s, c + (size_t) best * d, 1, &phi, err);
		++*n;
	}
	free(picks);
	free(c);
	free(pot);
	free(keys);
	return st;
}

/* ahead: rounds that must have been done at once, at least. */
static void
rounds_case(Shape sh, int want, int ahead)
{
	GkStore    *store = harness_store(&sh, 11 + sh.n);
	GkProblem	p = problem_for(store, sh.k, 1);
	float	   *points[2] = {calloc((size_t) sh.k * sh.d, sizeof(float)), calloc((size_t) sh.k * sh.d, sizeof(float))};
	float	   *mind2 = malloc(sh.n * sizeof(float));
	GkPick		a[40];
	GkPick		b[40];
	GkSession  *s = NULL;
	int			n[2];
	int			was = 0;
	int			got = -1;
	int			expect;
	GkError		err;
	GkStatus	st;
	char		name[100];

	snprintf(name, sizeof(name), "rounds n=%ld d=%d k=%d kind=%d%s", (long) sh.n, sh.d, sh.k, (int) sh.kind, sh.weighted ? " weighted" : "");
	store->host.skip = GK_SKIP_ON;
	oracle_seeds(store, sh.k, want, points[0], &n[0], mind2);
	st = gpu->open(&p, &s, &err);
	/* Twice: the second time most is there. */
	for (int i = 0; st == GK_OK && i < 2; i++)
	{
		st = gpu_seeds(s, store, sh.k, want, points[1], &n[1], &was, &err);
		check(st == GK_OK, "%s: %s (%s)", name, err.message, err.detail);
		check(n[0] == n[1] && memcmp(points[0], points[1], (size_t) n[0] * sh.d * sizeof(float)) == 0, "%s: seeds differ", name);
		check(!products || was >= ahead, "%s: %d rounds at once, not %d", name, was, ahead);
		expect = oracle_race(store, 5, mind2, 40, b);
		if (st == GK_OK)
			st = gpu->seed_race(s, 5, true, 40, a, &got, &err);
		check(st == GK_OK && got == expect && memcmp(a, b, got * sizeof(GkPick)) == 0, "%s: D differs", name);
	}
	gpu->close(s);
	harness_store_free(store);
	free(points[0]);
	free(points[1]);
	free(mind2);
}

/*
 * Points whose rounding misleads: seeds are at -1, candidates at 3 and the points that they are slightly nearer to at
 * 1, but rounded to float16 they are farther away than the seeds.  Groups are far from each other.
 */
static double
rounded_apart(int64_t row, int j)
{
	int			group = row % 24;
	int			type = row / 24 % 76;

	if (j < 24)
		return j == group ? 32.0 : 0.0;
	return type < 60 ? -1.0 - 0x1p-10 : type < 70 ? 3.0 + 0.51 * 0x1p-9 : 1.0 + 0.49 * 0x1p-10;
}

/* Many rounds of k-means++ at once (gk_gpu_seed_rounds.cu). */
static void
rounds_cases(int times)
{
	rounds_case((Shape) {.n = 1500 * times,.d = 40,.k = 120}, 6, 60);
	rounds_case((Shape) {.n = 1200 * times,.d = 100,.k = 100,.kind = SPECTRUM,.weighted = true}, 6, 60);
	rounds_case((Shape) {.n = 1000 * times,.d = 300,.k = 70,.kind = SPECTRUM,.chunk_rows = 640}, 6, 30);
	rounds_case((Shape) {.n = 1400 * times,.d = 68,.k = 90,.kind = RIVALS,.distinct = true}, 6, 40);
	rounds_case((Shape) {.n = 1100 * times,.d = 129,.k = 150,.kind = RIVALS,.distinct = true}, 11, 40);
	rounds_case((Shape) {.n = 1300 * times,.d = 24,.k = 200,.kind = INTEGERS}, 7, 60);
	rounds_case((Shape) {.n = 900 * times,.d = 64,.k = 80,.kind = CONSTANT,.expo = 40}, 6, 30);
	rounds_case((Shape) {.n = 900 * times,.d = 64,.k = 60,.kind = OUTLIER,.expo = -40}, 6, 0);
	for (int d = 40; d < 400; d += 100)
		rounds_case((Shape) {.n = 24 * 76,.d = d,.k = 44,.distinct = true,.point = rounded_apart}, 6, 8);
	/* Hardly more points than seeds; fewer distinct ones: at the end no point runs. */
	rounds_case((Shape) {.n = 300,.d = 20,.k = 290,.distinct = true}, 7, 100);
	rounds_case((Shape) {.n = 700,.d = 17,.k = 600,.kind = INTEGERS,.centres = 3}, 8, 0);
	rounds_case((Shape) {.n = 600,.d = 33,.k = 12}, 4, 0);
}

/* ---- faults ---- */

/* Everything that a clustering does, until it fails; the status it ended with. */
static GkStatus
whole_run(GkStore *store, int k, const char *fault, double limit, int polls, GkError *err)
{
	GkProblem	p = problem_for(store, k, 5);
	int			d = store->pts.d;
	float	   *c = malloc((size_t) k * d * sizeof(float));
	GkFinish	fin = {.count = calloc(k, sizeof(int64_t)),.inertia = calloc(k, sizeof(gk_int128)),.max_d2 = calloc(k, sizeof(float))};
	GkPick		pick[4];
	Iterations	it;
	float	   *two = malloc((size_t) 2 * d * sizeof(float));
	GkSession  *s = NULL;
	gk_int128	phi;
	int64_t		row;
	int			got;
	GkStatus	st;

	p.gpu_fault = fault;
	p.gpu_memory_limit = limit;
	store->poll_after = polls;
	harness_centroids(store, k, 5, c);
	st = gpu->open(&p, &s, err);
	if (st == GK_OK)
		st = gpu->seed_begin(s, err);
	if (st == GK_OK)
		st = gpu->seed_update(s, c, k < 9 ? k : 9, &phi, err);
	if (st == GK_OK)
		st = gpu->seed_race(s, 1, true, 4, pick, &got, err);
	if (st == GK_OK)
		st = gpu->seed_rounds(s, (uint64_t[]) {1, 2}, 2, 4, two, &got, err);
	if (st == GK_OK)
		st = gpu->seed_far(s, &row, err);
	it = harness_iterations(gpu, s, store, k, c);
	for (int i = 0; st == GK_OK && i < 5; i++)
		st = harness_iterate(&it, err);
	if (st == GK_OK)
		st = harness_recall(&it, err);
	if (st == GK_OK)
		st = gpu->finish(s, c, k, &fin, NULL, err);
	harness_iterations_free(&it);
	gpu->close(s);
	store->poll_after = -1;
	free(c);
	free(two);
	free(fin.count);
	free(fin.inertia);
	free(fin.max_d2);
	return st;
}

static void
test_faults(void)
{
	Shape		shapes[] = {{.n = 200000,.d = 4,.k = 4}, {.n = 100000,.d = 20,.k = 30}, {.n = 50000,.d = 3,.k = 9,.weighted = true},
	{.n = 100000,.d = 40,.k = 300}, {.n = 20000,.d = 70,.k = 300}};

	for (int i = 0; i < 5; i++)
	{
		GkStore    *store = harness_store(&shapes[i], 3);
		GkError		err;
		size_t		before;
		int			faults = 0;

		if (i >= 3)
			store->host.skip = GK_SKIP_ON;
		check(whole_run(store, shapes[i].k, NULL, 0, -1, &err) == GK_OK, "fault-free run: %s (%s)", err.message, err.detail);
		before = free_memory();
		for (int n = 0; n < 120; n++)
		{
			const char *kinds[] = {"memory", "error", "open-memory", "open-error"};
			GkStatus	expect = n % 2 ? GK_ERR_DEVICE : GK_ERR_DEVICE_MEMORY;
			char		fault[40];
			GkStatus	st;

			snprintf(fault, sizeof(fault), "%s:%d", kinds[n % 4], n / 4);
			st = whole_run(store, shapes[i].k, fault, 0, -1, &err);
			check(st == expect || st == GK_OK, "fault %s gives status %d: %s (%s)", fault, st, err.message, err.detail);
			check(free_memory() == before, "fault %s leaks %ld bytes", fault, (long) (before - free_memory()));
			faults += st != GK_OK;
		}
		check(faults >= 50, "only %d faults took effect", faults);
		for (int n = 0; n < 60; n++)
		{
			double		t0 = harness_ms();
			GkStatus	st = whole_run(store, shapes[i].k, NULL, 0, n % 20, &err);

			check(st == GK_STOPPED || st == GK_OK, "cancel %d gives status %d: %s", n, st, err.message);
			check(harness_ms() - t0 < 2000, "cancel took %.0f ms", harness_ms() - t0);
			check(free_memory() == before, "cancel %d leaks %ld bytes", n, (long) (before - free_memory()));
		}
		check(whole_run(store, shapes[i].k, NULL, 0, -1, &err) == GK_OK, "run after faults: %s (%s)", err.message, err.detail);
		harness_store_free(store);
	}
}

/* The device is lost for this process; everything after says so. */
static void
test_trap(void)
{
	Shape		sh = {.n = 100000,.d = 4,.k = 4};
	GkStore    *store = harness_store(&sh, 3);
	GkDeviceInfo info[16];
	GkError		err;
	GkStatus	st = whole_run(store, 4, "trap:0", 0, -1, &err);

	check(st == GK_ERR_DEVICE, "trap gives status %d", st);
	check(err.detail[0] != '\0', "trap has no detail");
	st = whole_run(store, 4, NULL, 0, -1, &err);
	check(st == GK_ERR_NO_DEVICE || st == GK_ERR_DEVICE, "after a trap: status %d", st);
	gpu->devices(info, 16);
	check(!info[0].usable && info[0].reason[0] != '\0', "a lost device is still offered");
	printf("after a trap: %s\n", info[0].reason);
	harness_store_free(store);
}

/* ---- the sweep ---- */

static void
one(Shape sh, int iters)
{
	Case	   *c = case_new(sh, iters);

	case_run(c, GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0);
	/* Boxes, or products, from the first iteration on; without being asked they take more rows. */
	c->store->host.skip = GK_SKIP_ON;
	case_run(c, GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0);
	/* Rows are sorted after the first pass, not before. */
	c->max_iter = 1;
	if (iters > 1)
		case_run(c, GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0);
	c->max_iter = iters;
	c->store->host.skip = GK_SKIP_OFF;
	if ((double) sh.n * sh.d * sh.k >= 1e8)
		case_run(c, GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0);
	case_free(c);
}

/* Points that a product of rounded numbers does not tell apart; widths, and clusters, around those of its tiles. */
static void
gemm_cases(int64_t n, double most, int step)
{
	const int	ds[] = {5, 16, 17, 24, 32, 48, 63, 64, 65, 68, 96, 128, 200, 384, 769};
	const int	ks[] = {2, 32, 33, 64, 65, 255, 1000, 256, 257};

	for (size_t i = 0; i < sizeof(ds) / sizeof(ds[0]); i += step)
		for (size_t j = 0; j < sizeof(ks) / sizeof(ks[0]); j += step)
		{
			Shape		sh = {.n = n,.d = ds[i],.k = ks[j],.chunk_rows = 1280};

			if (sh.k > n || most < (double) n * sh.d * sh.k)
				continue;
			for (int kind = BLOBS; kind <= SPECTRUM; kind++)
			{
				sh.kind = kind;
				sh.distinct = kind == RIVALS;
				sh.expo = kind == BLOBS ? (int) (i + j) % 3 * 40 - 40 : 0;
				sh.weighted = (i + j + kind) % 4 == 0;
				one(sh, 2);
			}
		}

	/*
	 * A kernel for labels each: two to four slices, the last of 16, 32, 48 or 64 values, of 32, 64 or 128
	 * columns.
	 */
	for (int d = 112; most >= 1e9 && d <= 256; d += 16)
		for (int k = 25; k <= 100; k *= 2)
			one((Shape) {.n = n,.d = d,.k = k,.kind = k == 50 ? SPECTRUM : BLOBS}, 2);
	/* More clusters than half the points; more than the first tile's points may have. */
	one((Shape) {.n = n,.d = 20,.k = (int) n * 2 / 3}, 2);
	one((Shape) {.n = n,.d = 33,.k = (int) n - 1,.kind = INTEGERS}, 2);
}

/* Iterations enough for labels that are kept to change: of tiles as a whole, of some rows, of most; duplicates and ties. */
static void
filter_cases(int64_t n)
{
	const int	ks[] = {2, 31, 300};

	for (int d = 1; d <= 24; d += d < 8 ? 1 : 3)
		for (int i = 0; i < 3; i++)
			for (int kind = BLOBS; kind <= INTEGERS; kind++)
				one((Shape) {.n = n + d,.d = d,.k = ks[i],.kind = kind,.distinct = kind == RIVALS,.centres = i == 1 ? 300 : 0,.chunk_rows = i % 2 ? 1280 : 0}, 7);
}

/* ---- traps: points whose rounding is as bad as the products' bound says (gk_gpu_gemm.h) ---- */

#define TRAP_K	8				/* clusters, two of a pair of which one is right; others are far away */
#define PAIRS	(TRAP_K / 2)

/* 1 or -1, of a pair's feature. */
static double
sign_of(int pair, int j)
{
	return gk_hash(77 + pair, j) & 1 ? 1.0 : -1.0;
}

/*
 * By distances: all coordinates lie midway between two float16 numbers, and are rounded towards the pair's
 * second centroid; but they are as near to the first.
 */
static double
between(int64_t row, int j)
{
	int			pair = (int) (row % PAIRS);
	int			steps = (int) (gk_hash(5 + pair, j) % 256) * 2 + (sign_of(pair, j) > 0.0 ? 1 : 0);

	return 32.0 + steps * 0x1p-5 + 0x1p-6;
}

static double
beside(int cluster, int j)
{
	return between(cluster / 2, j) + (cluster % 2 ? 1.0 : -1.0) * sign_of(cluster / 2, j) * (4.0 + 0x1p-6);
}

/* Pivots far from one another; the last two have a fourth of the rows midway between them, so that rows are sorted. */
static double
pivot(int cluster, int j)
{
	return (double) (int) (gk_hash(900 + cluster, j) % 64) - 32.0;
}

static bool
is_bait(int64_t row)
{
	return row % 4 == 0;
}

static double
bait(int j)
{
	return 0.5 * (pivot(TRAP_K - 2, j) + pivot(TRAP_K - 1, j));
}

/* A row's pair is its pivot, too. */
static int
pair_of(int64_t row)
{
	return (int) (row / 4 % PAIRS);
}

/* About a pivot: the middle of a pair of centroids that float16 has. */
static double
middle(int pair, int j)
{
	return 1.0 + (double) (gk_hash(300 + pair, j) % 128) * 0x1p-7;
}

/* By scores, x - p: each feature is rounded towards the second centroid by half a unit, though x is nearer to the first. */
static double
rounded(int64_t row, int j)
{
	int			pair = pair_of(row);
	double		away = j % 2 && j % 16 > 1 ? 0x1p-11 + 0x1p-15 : -0x1p-11 + 0x1p-15;

	return is_bait(row) ? bait(j) : pivot(pair, j) + middle(pair, j) + sign_of(pair, j) * away;
}

static double
beside_middle(int cluster, int j)
{
	int			pair = cluster / 2;

	return pivot(pair, j) + middle(pair, j) + (cluster % 2 ? 8.0 : -8.0) * sign_of(pair, j);
}

/* By scores, c - q: points are as they are, the second centroid is rounded so that it seems nearer than the first. */
static double
exact(int64_t row, int j)
{
	return is_bait(row) ? bait(j) : pivot(pair_of(row), j) + 1.5 + j % 2 * 0x1p-6;
}

static double
rounded_centroid(int cluster, int j)
{
	return pivot(cluster / 2, j) + 1.5 + j % 2 * 0x1p-6 + (cluster % 2 ? 1.0 : -1.0) * (16.0 + 0x1p-7 + 0x1p-12);
}

/*
 * The canonical distance loses what is small beside its first square: it takes the first centroid, though the
 * second is nearer by much more than the product loses.
 */
static double
far_out(int64_t row, int j)
{
	(void) row;
	return j == 0 ? 32.0 : 0.0;
}

static double
beside_zero(int cluster, int j)
{
	return j == 1002 ? (cluster ? -0x1p-7 : 0x1p-7) : 0.0;
}

static double
small_steps(int cluster, int j)
{
	return j == 0 ? 0.0 : cluster == 0 ? 0.9375 * 0x1p-7 : j == 1 ? 20 * 0x1p-7 : 0.0;
}

/*
 * Coordinates may be so large that these distances are below float32's least square in the common scale: of two centroids
 * the one with many small steps seems to lie where the rows do, and the other one is nearer.
 */
#define FAINT_K	300
static int	nearer;				/* the other one; not 0 */

static double
faint(int64_t row, int j)
{
	(void) row;
	(void) j;
	return 0.0;
}

/* The first two are equal, so that rows are sorted. */
static double
in_a_row(int cluster, int j)
{
	return j == 0 && cluster > 1 ? cluster * 0x1p41 : 0.0;
}

static double
faint_steps(int cluster, int j)
{
	return cluster == 0 ? (j > 0 ? 0.9 * 0x1p-35 : 0.0) : cluster == nearer ? (j == 1 ? 0x1p-33 : 0.0) : in_a_row(cluster + 2, j);
}

typedef double (*Centroid) (int cluster, int feature);

static double
far_away(int cluster, int j)
{
	return 4000.0 + 16.0 * cluster + j % 2;
}

/*
 * One step after the other of one session, each of ks[i] clusters (NULL: of all) and from the centroids that it is given (NULL:
 * from points).
 */
static void
given_steps(const char *name, Shape sh, const int *ks, const Centroid *centroids, int count)
{
	int			far_from = sh.k == FAINT_K ? FAINT_K : TRAP_K;
	GkStore    *store = harness_store(&sh, 1);
	GkProblem	p = problem_for(store, sh.k, 1);
	float	   *c = malloc((size_t) sh.k * sh.d * sizeof(float));
	int32_t    *labels = malloc(sh.n * sizeof(int32_t));
	float	   *d2 = malloc(sh.n * sizeof(float));
	GkStep		step = harness_step_alloc(sh.k, sh.d);
	GkStep		right = harness_step_alloc(sh.k, sh.d);
	GkSession  *s = NULL;
	GkError		err;
	GkStatus	st;

	store->host.skip = GK_SKIP_ON;
	st = gpu->open(&p, &s, &err);
	for (int i = 0; st == GK_OK && i < count; i++)
	{
		int			k = ks != NULL ? ks[i] : sh.k;

		if (centroids == NULL)
			harness_centroids(store, k, 60 + i, c);
		for (int v = 0; centroids != NULL && v < k * sh.d; v++)
			c[v] = (float) (v / sh.d < far_from ? centroids[i] : far_away) (v / sh.d, v % sh.d);
		oracle_step(store, c, k, &right, labels, d2);
		st = gpu->step(s, c, k, &step, &err);
		if (st == GK_OK)
			check(harness_step_equal(&step, &right, k, sh.d), "%s d=%d k=%d: step %d differs", name, sh.d, k, i);
	}
	check(st == GK_OK, "%s: %s (%s)", name, err.message, err.detail);
	gpu->close(s);
	harness_step_free(&step);
	harness_step_free(&right);
	harness_store_free(store);
	free(c);
	free(labels);
	free(d2);
}

static void
traps(void)
{
	const int	ds[] = {24, 100, 250, 600};

	/* products of 32, 64 and 128 columns */
	const int	ks[] = {TRAP_K, 40, 72};

	for (size_t i = 0; i < 3 * sizeof(ds) / sizeof(ds[0]); i++)
	{
		Shape		sh = {.n = 1500,.d = ds[i / 3],.k = ks[i % 3],.distinct = true};

		sh.point = between;
		given_steps("trap between", sh, NULL, (Centroid[]) {beside}, 1);
		/* Twice from the pivots: then rows are sorted about them. */
		sh.point = rounded;
		given_steps("trap rounded", sh, NULL, (Centroid[]) {pivot, pivot, beside_middle}, 3);
		sh.point = exact;
		given_steps("trap rounded centroid", sh, NULL, (Centroid[]) {pivot, pivot, rounded_centroid}, 3);
	}
	{
		Shape		sh = {.n = 700,.d = 1003,.k = 2,.distinct = true,.point = far_out};

		given_steps("trap small steps", sh, NULL, (Centroid[]) {small_steps}, 1);
		given_steps("trap small steps, sorted", sh, NULL, (Centroid[]) {beside_zero, beside_zero, small_steps}, 3);
	}
	/* in whichever part of the columns it is */
	for (nearer = 1; nearer < FAINT_K; nearer += 40)
	{
		Shape		sh = {.n = 1500,.d = 256,.k = FAINT_K,.expo = 42,.distinct = true,.point = faint};

		given_steps("trap faint", sh, NULL, (Centroid[]) {in_a_row, in_a_row, faint_steps}, 3);
	}
}

/* Many clusters, few, and many again, as k-means|| with restarts asks for: sums of moves begin anew. */
static void
other_ks(void)
{
	given_steps("other k", (Shape) {.n = 20011,.d = 32,.k = 121}, (const int[]) {121, 16, 121, 15, 16, 120}, NULL, 6);
	given_steps("other k", (Shape) {.n = 20011,.d = 32,.k = 300,.weighted = true}, (const int[]) {300, 16, 300, 299}, NULL, 4);
}

static void
all_variants(Shape sh, int iters)
{
	Case	   *c = case_new(sh, iters);

	for (int st = 1; st < 4; st++)
		for (int fs = 0; fs < 4; fs++)
			for (int ms = 0; ms < 5; ms++)
				if (st != GK_CROSS_PROCESSING || (fs == 0 && ms == 0))
					case_run(c, st, fs, ms, 0);
	case_free(c);
}

/* The last passes of a fit: centroids as the last step's made them, with other numbers. */
static void
renumbered(Shape sh, int iters)
{
	GkStore    *store = harness_store(&sh, 5);
	GkProblem	p = problem_for(store, sh.k, iters);
	size_t		kd = (size_t) sh.k * sh.d;
	float	   *cur = malloc(kd * sizeof(float));
	float	   *c = malloc(kd * sizeof(float));
	int32_t    *stepped = malloc(sh.k * sizeof(int32_t));
	Case		right = {.shape = sh,.labels = malloc(sh.n * sizeof(int32_t)),.d2 = malloc(sh.n * sizeof(float))};
	GkStep		step = harness_step_alloc(sh.k, sh.d);
	GkStep		right_step = harness_step_alloc(sh.k, sh.d);
	GkFinish	fin = {.count = calloc(sh.k, sizeof(int64_t)),.inertia = calloc(sh.k, sizeof(gk_int128)),.max_d2 = calloc(sh.k, sizeof(float)),.stepped = stepped};
	GkFinish	oracle = {.count = calloc(sh.k, sizeof(int64_t)),.inertia = calloc(sh.k, sizeof(gk_int128)),.max_d2 = calloc(sh.k, sizeof(float))};
	GkSession  *s = NULL;
	GkError		err;
	GkStatus	st;

	store->host.skip = GK_SKIP_ON;
	harness_centroids(store, sh.k, 9, cur);
	st = gpu->open(&p, &s, &err);
	for (int i = 0; st == GK_OK && i < iters; i++)
	{
		step.follows = i > 0;	/* heads of rows go by that */
		st = gpu->step(s, cur, sh.k, &step, &err);
		if (st == GK_OK)
			oracle_update(store, &step, sh.k, cur, NULL, NULL);
	}
	for (int turn = 0; st == GK_OK && turn < 4; turn++)
	{
		Sink		state = {&right, 0, true};
		GkLabelSink sink = {&state, sink_emit, NULL};

		/*
		 * as they are, backwards, and each the next one's; then each has moved to where the one of its
		 * number was
		 */
		for (int i = 0; i < sh.k; i++)
		{
			stepped[i] = turn == 0 ? i : turn == 2 ? (i + 1) % sh.k : sh.k - 1 - i;
			memcpy(c + (size_t) i * sh.d, cur + (size_t) (turn == 3 ? i : stepped[i]) * sh.d, sh.d * sizeof(float));
		}
		oracle_step(store, c, sh.k, &step, right.labels, right.d2);
		oracle_stats(store, sh.k, right.labels, right.d2, &oracle);
		st = gpu->finish(s, c, sh.k, &fin, &sink, &err);
		check(memcmp(fin.count, oracle.count, sh.k * sizeof(int64_t)) == 0 && memcmp(fin.inertia, oracle.inertia, sh.k * sizeof(gk_int128)) == 0 &&
			  memcmp(fin.max_d2, oracle.max_d2, sh.k * sizeof(float)) == 0, "renumbered: d=%d k=%d kind %d turn %d: statistics differ", sh.d, sh.k, sh.kind, turn);
		check(state.same && state.at == sh.n, "renumbered: d=%d k=%d kind %d turn %d: labels differ", sh.d, sh.k, sh.kind, turn);
	}
	/* another run's steps */
	harness_centroids(store, sh.k, 10, cur);
	for (int i = 0; st == GK_OK && i < iters; i++)
	{
		step.follows = i > 0;	/* heads of rows go by that */
		st = gpu->step(s, cur, sh.k, &step, &err);
		oracle_step(store, cur, sh.k, &right_step, right.labels, right.d2);
		check(harness_step_equal(&step, &right_step, sh.k, sh.d), "renumbered: d=%d k=%d kind %d: step %d after them differs", sh.d, sh.k, sh.kind, i);
		oracle_update(store, &right_step, sh.k, cur, NULL, NULL);
	}
	check(st == GK_OK, "renumbered: %s (%s)", err.message, err.detail);
	gpu->close(s);
	harness_step_free(&step);
	harness_step_free(&right_step);
	harness_store_free(store);
	free(cur);
	free(c);
	free(stepped);
	free(right.labels);
	free(right.d2);
	free(fin.count);
	free(fin.inertia);
	free(fin.max_d2);
	free(oracle.count);
	free(oracle.inertia);
	free(oracle.max_d2);
}

static void
renumberings(int64_t n)
{
	for (int kind = BLOBS; kind <= SPECTRUM; kind++)
		for (int d = 12; d <= 500; d = d * 5 / 2 + 1)
			renumbered((Shape) {.n = n,.d = d,.k = d < 100 ? 100 : 300,.kind = kind,.distinct = kind == RIVALS}, 3 + kind);
}

/* Iterations enough to sort the points, and to sort them again when the centroids have moved. */
static void
sorts(int64_t n)
{
	for (int kind = BLOBS; kind <= SPECTRUM; kind++)
		for (int d = 20; d <= 300; d *= 3)
			one((Shape) {.n = n,.d = d,.k = 100,.kind = kind,.distinct = kind == RIVALS}, 9);
}

/* Values of the last two features alone: products of heads know nothing of them. */
static double
tail_only(int64_t row, int feature)
{
	return feature < tails_from ? 0.0 : ((uint64_t) row * 2654435761u >> 7) % 1000 * (feature - tails_from + 1.0);
}

/* Iterations enough for products of each head of a row (gk_gpu_gemm_head.cu), about old pivots and new ones. */
static void
heads(int64_t n)
{
	const int	ds[] = {257, 400, 1100};
	const int	ks[] = {40, 300, 700};

	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 3; j++)
		{
			Shape		sh = {.n = n,.d = ds[i],.k = ks[j],.weighted = i == j};

			sh.kind = j == 0 ? SPECTRUM : (i + j) % (SPECTRUM + 1);
			sh.distinct = sh.kind == RIVALS;
			one(sh, 30);
		}
	tails_from = 300;
	one((Shape) {.n = n,.d = 302,.k = 50,.point = tail_only}, 30);
}

/* 4 of 5 rows in one of 80 clumps, the others anywhere: a centroid that gets another clump moves past many. */
static double
clumps(int64_t row, int feature)
{
	uint64_t	clump = gk_hash(1, row) % 80;
	double		place = (double) (gk_hash(2 + clump, feature) >> 40) * 0x1p-24 - 0.5;
	double		own = (double) (gk_hash(100 + feature, row) >> 40) * 0x1p-24 - 0.5;

	return gk_hash(0, row) % 5 > 0 ? 200.0 * place + own : 200.0 * own;
}

/* Iterations enough to keep bounds (gk_gpu_gemm_near.cu), to give them up and to keep them again: all widths of rows, few and many columns. */
static void
nears(int64_t n, int step)
{
	const int	ds[] = {7, 20, 64, 130, 256, 300};
	const int	ks[] = {3, 60, 300, 900};

	for (int at = 0; at < 24; at += step)
	{
		int			i = at / 4;
		int			j = at % 4;
		Shape		sh = {.n = n,.d = ds[i],.k = ks[j],.weighted = i == j,.chunk_rows = i % 2 ? 640 : 0};

		sh.kind = (i + j) % (SPECTRUM + 1);
		sh.distinct = sh.kind == RIVALS;
		one(sh, 40);
	}
	/* (Of points without weights so few features are filtered, not multiplied.) */
	for (int d = 5; d <= 8; d++)
		one((Shape) {.n = n,.d = d,.k = 80,.weighted = true,.point = clumps,.distinct = true}, 40);
}

/* Memory for the points, then for products, then to sort them: from some 463 and 493 MB on, with room for other costs. */
static void
rooms(void)
{
	Case	   *c = case_new((Shape) {.n = 20011,.d = 300,.k = 1000,.kind = BLOBS}, 4);
	double		all = (double) free_memory();

	c->store->host.skip = GK_SKIP_ON;
	for (double mb = 400; mb < 600; mb += 4)
		case_run(c, GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, mb * 1e6 / all);
	case_free(c);
}

/* Labels and all that finish() makes, by centroids that no iteration had. */
static void
finish_only(GkStore *store, int k, GkSkip skip, const float *c, GkFinish *fin)
{
	GkProblem	p = problem_for(store, k, 0);
	GkSession  *s = NULL;
	GkError		err;
	GkStatus	st;

	store->host.skip = skip;
	st = gpu->open(&p, &s, &err);
	if (st == GK_OK)
		st = gpu->finish(s, c, k, fin, NULL, &err);
	check(st == GK_OK, "finish%s: %s (%s)", skips[skip], err.message, err.detail);
	gpu->close(s);
}

/* One step and the next one's centroids, and so on. */
static void
steps_only(GkStore *store, int k, GkSkip skip, int iters, float *c, GkStep *step)
{
	GkProblem	p = problem_for(store, k, iters);
	GkSession  *s = NULL;
	GkError		err;
	GkStatus	st;

	store->host.skip = skip;
	st = gpu->open(&p, &s, &err);
	for (int i = 0; st == GK_OK && i < iters; i++)
	{
		st = gpu->step(s, c, k, step, &err);
		if (st == GK_OK)
			oracle_update(store, step, k, c, NULL, NULL);
	}
	check(st == GK_OK, "steps%s: %s (%s)", skips[skip], err.message, err.detail);
	gpu->close(s);
}

/*
 * Points so large that they are sorted before the first pass, that products take heads of rows, or that rows keep bounds,
 * without being asked to; the oracle would take minutes, so they are compared with the kernels that other cases compare with it.
 */
static void
unasked(Shape sh, int iters)
{
	GkStore    *store = harness_store(&sh, 5);
	size_t		kd = (size_t) sh.k * sh.d;
	float	   *start = malloc(kd * sizeof(float));
	float	   *c[2];
	GkStep		step[2];
	GkFinish	fin[2];

	harness_centroids(store, sh.k, 9, start);
	for (int i = 0; i < 2; i++)
	{
		GkSkip		skip = i == 0 ? GK_SKIP_AUTO : GK_SKIP_OFF;

		fin[i] = (GkFinish) {.count = calloc(sh.k, sizeof(int64_t)),.inertia = calloc(sh.k, sizeof(gk_int128)),.max_d2 = calloc(sh.k, sizeof(float))};
		step[i] = harness_step_alloc(sh.k, sh.d);
		c[i] = malloc(kd * sizeof(float));
		memcpy(c[i], start, kd * sizeof(float));
		finish_only(store, sh.k, skip, start, &fin[i]);
		steps_only(store, sh.k, skip, iters, c[i], &step[i]);
	}
	check(harness_step_equal(&step[0], &step[1], sh.k, sh.d), "unasked: d=%d k=%d: step differs", sh.d, sh.k);
	check(memcmp(c[0], c[1], kd * sizeof(float)) == 0, "unasked: d=%d k=%d: centroids differ", sh.d, sh.k);
	check(memcmp(fin[0].count, fin[1].count, sh.k * sizeof(int64_t)) == 0, "unasked: d=%d k=%d: counts differ", sh.d, sh.k);
	check(memcmp(fin[0].inertia, fin[1].inertia, sh.k * sizeof(gk_int128)) == 0, "unasked: d=%d k=%d: inertia differs", sh.d, sh.k);
	check(memcmp(fin[0].max_d2, fin[1].max_d2, sh.k * sizeof(float)) == 0, "unasked: d=%d k=%d: radius differs", sh.d, sh.k);
	for (int i = 0; i < 2; i++)
	{
		free(fin[i].count);
		free(fin[i].inertia);
		free(fin[i].max_d2);
		harness_step_free(&step[i]);
		free(c[i]);
	}
	free(start);
	harness_store_free(store);
}

static void
test_small(void)
{
	all_variants((Shape) {.n = 3001,.d = 2,.k = 3}, 2);
	all_variants((Shape) {.n = 2000,.d = 5,.k = 40,.chunk_rows = 640}, 2);
	all_variants((Shape) {.n = 1999,.d = 19,.k = 7,.weighted = true}, 2);
	all_variants((Shape) {.n = 700,.d = 33,.k = 130}, 1);
	filter_cases(2600);
	gemm_cases(700, 1e7, 3);
	traps();
	other_ks();
	sorts(1500);
	heads(900);
	nears(1300, 3);
	renumberings(1100);
	one((Shape) {.n = 700,.d = 300,.k = 40}, 2);
	rounds_cases(1);
	seed_case((Shape) {.n = 5003,.d = 3,.k = 4}, 0);
	seed_case((Shape) {.n = 1003,.d = 300,.k = 4,.weighted = true,.chunk_rows = 320}, 0);
}

static void
test_sweep(void)
{
	const int	ds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 64, 100, 256};
	const int	ks[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 25, 32, 64, 65, 129, 300, 1000, 5000};
	const int64_t ns[] = {1, 2, 5, 31, 63, 65, 257, 1023, 4099, 50021};

	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++)
		for (size_t j = 0; j < sizeof(ds) / sizeof(ds[0]); j += i < 8 ? 4 : 1)
			for (size_t l = 0; l < sizeof(ks) / sizeof(ks[0]); l += i < 8 ? 3 : 1)
				if ((double) ns[i] * ds[j] * ks[l] < 3e9)
					one((Shape) {.n = ns[i],.d = ds[j],.k = ks[l],.chunk_rows = i % 2 ? 64 * 7 : 0,.distinct = i % 2}, 3);
}

static void
test_products(void)
{
	gemm_cases(3001, 1e9, 1);
	traps();
	other_ks();
	sorts(20011);
	heads(6007);
	renumberings(20011);
	rooms();
}

static void
test_filter(void)
{
	filter_cases(70000);
}

static void
test_bounds(void)
{
	nears(7001, 1);
}

/* Kernels of products, of few points, but so many centroids that what has been read is written again: for compute-sanitizer. */
static void
test_races(void)
{
	one((Shape) {.n = 900,.d = 20,.k = 800}, 1);
	one((Shape) {.n = 900,.d = 100,.k = 500,.kind = SPECTRUM}, 3);
	one((Shape) {.n = 900,.d = 300,.k = 500,.kind = SPECTRUM}, 3);
	rounds_case((Shape) {.n = 900,.d = 40,.k = 120}, 6, 60);
	rounds_case((Shape) {.n = 900,.d = 300,.k = 70,.kind = SPECTRUM}, 6, 30);
}

static void
test_unasked(void)
{
	unasked((Shape) {.n = 1200011,.d = 20,.k = 20000,.centres = 20000}, 3);
	unasked((Shape) {.n = 300007,.d = 200,.k = 9000,.kind = SPECTRUM}, 3);
	unasked((Shape) {.n = 300007,.d = 768,.k = 1000,.kind = SPECTRUM}, 15);
	unasked((Shape) {.n = 200003,.d = 768,.k = 1000}, 15);
	unasked((Shape) {.n = 400009,.d = 200,.k = 2000,.kind = SPECTRUM}, 40);
	unasked((Shape) {.n = 500009,.d = 100,.k = 1500,.kind = SPECTRUM}, 40);
}

/*
 * A session keeps to the memory that it may have: here that holds boxes (gk_gpu_filter.cu), with which it iterates, or
 * products, which label at the end, but not both.
 */
static void
test_memory(void)
{
	const size_t some = (size_t) 1 << 20;
	Shape		sh = {.n = 8000003,.d = 20,.k = 40};
	GkStore    *store = harness_store(&sh, 3);
	size_t		may = 3000 * some;
	size_t		kd = (size_t) sh.k * sh.d;
	float	   *c = malloc(kd * sizeof(float));
	GkFinish	fin = {.count = calloc(sh.k, sizeof(int64_t)),.inertia = calloc(sh.k, sizeof(gk_int128)),.max_d2 = calloc(sh.k, sizeof(float))};
	GkStep		step = harness_step_alloc(sh.k, sh.d);

	store->host.skip = GK_SKIP_ON;
	/* The first time kernels take memory, too. */
	for (int turn = 0; turn < 2; turn++)
	{
		size_t		before = free_memory();
		size_t		used;
		GkProblem	p = problem_for(store, sh.k, 10);
		GkSession  *s = NULL;
		GkError		err;
		GkStatus	st;

		p.gpu_memory_limit = (double) may / (double) before;
		harness_centroids(store, sh.k, 5, c);
		st = gpu->open(&p, &s, &err);
		for (int i = 0; st == GK_OK && i < 4; i++)
		{
			st = gpu->step(s, c, sh.k, &step, &err);
			for (size_t v = 0; v < kd; v++)
				c[v] += 1e-3f;
		}
		if (st == GK_OK)
			st = gpu->finish(s, c, sh.k, &fin, NULL, &err);
		check(st == GK_OK, "memory: %s (%s)", err.message, err.detail);
		used = before - free_memory();
		check(turn == 0 || used <= may + 48 * some, "memory: %zu MB of %zu", used >> 20, may >> 20);
		gpu->close(s);
	}
	harness_step_free(&step);
	harness_store_free(store);
	free(fin.count);
	free(fin.inertia);
	free(fin.max_d2);
	free(c);
}

static void
test_large(void)
{
	test_memory();
	/* A centroid far out: beyond the points' box no bound holds, and all distances are canonical. */
	for (float far = 1e-3f; far < 1e18f; far *= 1e3f)
	{
		for (int d = 1; d <= 8; d++)
			one((Shape) {.n = 20011,.d = d,.k = 12 * d,.far = far}, 1);
		one((Shape) {.n = 20011,.d = 20,.k = 100,.far = far}, 1);
		one((Shape) {.n = 5003,.d = 40,.k = 70,.far = far}, 1);
	}
	/* So far out that, in units of the points, it is beyond float32, and so is the middle of its copy. */
	one((Shape) {.n = 20011,.d = 40,.k = 70,.expo = -90,.far = 1e18f}, 1);
	one((Shape) {.n = 20011,.d = 200,.k = 700,.expo = -90,.far = 1e18f}, 2);
	/* A centroid so far out that every row has all others for candidates: more pairs than an int counts. */
	one((Shape) {.n = 66000,.d = 8,.k = 33000,.far = 1e9f}, 1);
	/* Many centroids among the same points: close cases. */
	one((Shape) {.n = 40009,.d = 24,.k = 2000,.centres = 1}, 2);

	/*
	 * Centroids that go up in pieces (gk_gpu_put_centroids): 35 MB of them; those after 32 MB are the
	 * nearest of 57 rows.
	 */
	one((Shape) {.n = 3001,.d = 2100,.k = 4200}, 1);
	/* More rows than are summed at a time. */
	one((Shape) {.n = 8400001,.d = 17,.k = 30}, 1);
	one((Shape) {.n = 5000001,.d = 4,.k = 4}, 12);
	one((Shape) {.n = 4999999,.d = 4,.k = 64}, 12);
	one((Shape) {.n = 20000003,.d = 2,.k = 100}, 10);
	one((Shape) {.n = 1100007,.d = 3,.k = 2048}, 3);
	/* A point far out spoils no box but its own; without distinct points most boxes have no width. */
	one((Shape) {.n = 1200007,.d = 4,.k = 300,.centres = 100000}, 6);
	one((Shape) {.n = 1200007,.d = 8,.k = 100,.centres = 100000}, 6);
	one((Shape) {.n = 1200007,.d = 6,.k = 600,.centres = 10}, 9);
	one((Shape) {.n = 1200007,.d = 19,.k = 60,.centres = 10}, 9);
	one((Shape) {.n = 2049280,.d = 7,.k = 4}, 12);
	one((Shape) {.n = 100000,.d = 2,.k = 5}, 100);
	one((Shape) {.n = 3000017,.d = 3,.k = 6,.weighted = true}, 4);
	one((Shape) {.n = 1000003,.d = 68,.k = 16}, 3);
	/* Blocks take bunches of tiles from some 1,100,000 rows on. */
	one((Shape) {.n = 1200011,.d = 20,.k = 100}, 4);
	one((Shape) {.n = 1200011,.d = 20,.k = 100,.kind = SPECTRUM}, 2);
	one((Shape) {.n = 1200011,.d = 20,.k = 600}, 3);
	one((Shape) {.n = 1200011,.d = 100,.k = 200}, 3);
	one((Shape) {.n = 1200011,.d = 48,.k = 20,.kind = SPECTRUM}, 3);
	one((Shape) {.n = 1200011,.d = 68,.k = 50}, 3);
	one((Shape) {.n = 1200011,.d = 150,.k = 33}, 2);
	one((Shape) {.n = 300007,.d = 128,.k = 200}, 2);
	/* Few clusters of wide points: products, too. */
	one((Shape) {.n = 1000003,.d = 40,.k = 3}, 4);
}

static void
test_variants(void)
{
	all_variants((Shape) {.n = 300007,.d = 4,.k = 4}, 3);
	all_variants((Shape) {.n = 100003,.d = 4,.k = 64,.chunk_rows = 6400}, 3);
	all_variants((Shape) {.n = 60001,.d = 20,.k = 33}, 3);
	all_variants((Shape) {.n = 20011,.d = 40,.k = 700}, 2);
	all_variants((Shape) {.n = 50021,.d = 6,.k = 11,.weighted = true}, 3);
	all_variants((Shape) {.n = 20011,.d = 100,.k = 300,.weighted = true}, 2);
}

static void
test_seeding(void)
{
	rounds_cases(7);
	rounds_case((Shape) {.n = 100003,.d = 96,.k = 150,.kind = SPECTRUM}, 7, 100);
	seed_case((Shape) {.n = 1,.d = 1,.k = 1}, 0);
	seed_case((Shape) {.n = 1500007,.d = 4,.k = 4}, 0);
	seed_case((Shape) {.n = 50021,.d = 300,.k = 4,.weighted = true}, 0);
}

static void
test_streaming(void)
{
	/* 192 MB of points with some 110 MB allowed, and then hardly any. */
	Case	   *c = case_new((Shape) {.n = 4000037,.d = 12,.k = 9}, 2);
	double		all = (double) free_memory();

	for (int st = 0; st < 4; st++)
		case_run(c, st, GK_FSUM_AUTO, GK_MSUM_AUTO, 170e6 / all);
	case_run(c, GK_MULTI_PASS, GK_DELTA, GK_MSUM_AUTO, 170e6 / all);
	case_run(c, GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 1e6 / all);
	case_free(c);
	seed_case((Shape) {.n = 1000003,.d = 40,.k = 4,.weighted = true}, 120e6 / all);
}

/* What "full" does, a part at a time or all. */
static const struct
{
	const char *name;
	void		(*test) (void);
}			parts[] = {
	{"sweep", test_sweep},
	{"filter", test_filter},
	{"products", test_products},
	{"bounds", test_bounds},
	{"races", test_races},
	{"unasked", test_unasked},
	{"large", test_large},
	{"variants", test_variants},
	{"seeding", test_seeding},
	{"streaming", test_streaming},
	{"faults", test_faults},
};

/* NULL: all of them.  False: there is none of this name. */
static bool
test_parts(const char *name)
{
	bool		found = false;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (name == NULL || strcmp(name, parts[i].name) == 0)
		{
			double		t0 = harness_ms();

			parts[i].test();
			printf("%s: %.1f s\n", parts[i].name, (harness_ms() - t0) / 1e3);
			fflush(stdout);
			found = true;
		}
	return found;
}

int
main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "full";
	GkDeviceInfo info[16];
	char		reason[300];
	int			n;
	bool		usable = false;

	gpu = harness_load(argc > 1 ? argv[1] : "./gkmeans_gpu.so", reason, sizeof(reason));
	if (gpu == NULL)
	{
		printf("skipped: %s\n", reason);
		return 0;
	}
	n = gpu->devices(info, 16);
	for (int i = 0; i < n; i++)
	{
		printf("%s: %s%s\n", info[i].name, info[i].usable ? info[i].detail : "not usable: ", info[i].reason);
		usable |= info[i].usable;
	}
	if (!usable)
	{
		printf("skipped: no usable GPU: %s\n", info[0].reason);
		return 0;
	}
	products = has_products();
	if (strcmp(mode, "small") == 0)
		test_small();
	else if (strcmp(mode, "trap") == 0)
		test_trap();
	else if (strcmp(mode, "full") == 0)
		test_parts(NULL);
	else
		for (int i = 2; i < argc; i++)
			if (!test_parts(argv[i]))
			{
				fprintf(stderr, "no part %s\n", argv[i]);
				return 2;
			}
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
