/*
 * Whole fits: the same bits from every SIMD level, thread count, chunk size,
 * memory limit and row order, against a plain implementation; failures at every
 * allocation, poll and spill call leave nothing behind.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/gk_numerics.h"
#include "core/rescan/gk_pass.h"
#include "core/gk_update.h"
#include "gk_test.h"
#include "gk_testfit.h"

static const GkBackend *solve_device = &gk_cpu_backend;

/* Into *a, which must stay where it is: its host is the engine's. */
static void
solve(Answer *a, const Problem *p, int threads, const int *order, size_t chunk, size_t limit, GkError *err)
{
	GkStore    *s;
	GkLabelSink sink;

	answer_init(a, p, threads);
	sink = test_sink(&a->labels);
	s = load_store(&a->host, p->x, p->w, p->n, p->d, order, chunk, limit, err);
	a->status = gk_store_prepare(s, p->opt.distance, p->opt.standardize, err);
	if (a->status == GK_OK)
		a->status = gk_fit(s, solve_device, &p->opt, &sink, &a->model, err);
	gk_store_free(s);
}

/* ---- rows that are read again in every pass ---- */

static const GkBackend *again_device = &gk_cpu_backend;

typedef struct Again
{
	TestHost   *host;
	const Problem *p;
	const GkBackend *device;
	size_t		chunk;
	int			parts;			/* passes over so many parts of the rows, added up */
	int			passes;
	GkKeptD		kept;			/* of one part */
	int			change_at;		/* the pass from which on a row is missing; 0: none */
} Again;

static GkStatus
ask_part(Again *a, const GkPass *pass, int first, int end, const GkLabelSink *sink,
		 GkPassResult *out, GkError *err)
{
	const GkHost *host = &a->host->host;
	const Problem *p = a->p;
	const GkBackend *device = a->device;
	GkPassAnswerer *passer;
	GkStore    *s = NULL;
	int		   *order = malloc(sizeof(int) * (p->n + 1));
	GkStatus	st;

	for (int i = 0; i < p->n; i++)
		order[i] = first + i;
	st = gk_pass_answer_open(host, pass, &device, a->chunk, sink, a->parts == 1 ? &a->kept : NULL, &passer, err);
	if (st == GK_OK)
		st = gk_store_create(host, p->d, p->w != NULL, 1, 1 << 20, SIZE_MAX, &s, err);
	if (st == GK_OK)
	{
		gk_pass_answer_begin(passer, first, NULL);
		gk_store_pass_on(s, gk_pass_answer_take, passer);
		st = fill_store(s, p->x, p->w, end - first, p->d, order, err);
	}
	if (st == GK_OK)
		st = gk_pass_answer_end(passer, out, err);
	gk_store_free(s);
	gk_pass_answer_free(passer);
	free(order);
	return st;
}

static GkStatus
ask_again(void *ctx, const GkPass *pass, const GkLabelSink *sink, GkPassResult *out, GkError *err)
{
	Again	   *a = ctx;
	int			n = a->p->n;
	GkStatus	st;

	a->passes++;
	if (a->change_at > 0 && a->passes >= a->change_at)
		n--;
	st = gk_pass_result_init(&a->host->host, pass, pass->kind == GK_PASS_STATS ? 0 : a->p->d, out, err);
	for (int i = 0; st == GK_OK && i < a->parts; i++)
	{
		GkPassResult part = {0};

		st = ask_part(a, pass, (int) ((int64_t) n * i / a->parts), (int) ((int64_t) n * (i + 1) / a->parts),
					  sink, &part, err);
		if (st == GK_OK)
			st = gk_pass_add(&a->host->host, pass, out, &part, err);
		gk_pass_result_free(&a->host->host, &part);
	}
	return st;
}

static void
describe_again(void *ctx, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	(void) ctx;
	snprintf(device, device_len, "test");
	snprintf(strategy, strategy_len, "scan");
}

/* As solve(), without keeping a row; returns the number of passes. */
static int
solve_again(Answer *a, const Problem *p, int threads, size_t chunk, int parts, int change_at,
			int64_t fail_at, GkError *err)
{
	Again		again = {.host = &a->host,.p = p,.device = again_device,.chunk = chunk,.parts = parts,
	.change_at = change_at};
	GkRows		rows = {&again, ask_again, describe_again};
	GkLabelSink sink;
	GkStore    *s;

	answer_init(a, p, threads);
	sink = test_sink(&a->labels);
	a->host.fail_at = fail_at;
	a->status = gk_rows_open(&a->host.host, &rows, p->w != NULL, &s, err);
	if (a->status == GK_OK)
		a->status = gk_store_prepare(s, p->opt.distance, p->opt.standardize, err);
	if (a->status == GK_OK)
		a->status = gk_fit(s, &gk_rows_backend, &p->opt, &sink, &a->model, err);
	gk_store_free(s);
	return again.passes;
}

static void
test_same_bits(int problems)
{
	static const char *const levels[] = {"avx2", "avx512", "neon"};
	uint64_t	rng = 11;
	int			solved = 0,
				differ = 0,
				orders = 0,
				again = 0,
				leaks = 0,
				tried[3] = {0};
	GkError		err;
	char		reason[256];

	for (int number = 0; number < problems; number++)
	{
		Problem		p = random_problem(&rng, number);
		int		   *perm = malloc(sizeof(int) * p.n);
		Answer		oracle;

		if (number % 4 == 3)
			p.opt.init = random_inits[number / 4 % 3];
		else if (number % 2)
			given_centroids(&p, &rng);
		gk_cpu_set_simd("scalar", reason, sizeof(reason));
		solve(&oracle, &p, 1, NULL, whole_chunk(&p), SIZE_MAX, &err);
		if (oracle.status != GK_OK)
		{
			ok(false, "problem %d: %s", number, err.message);
			continue;
		}
		solved++;
		for (int l = 0; l < 3; l++)
		{
			static const int threads[] = {1, 2, 7};

			if (!gk_cpu_set_simd(levels[l], reason, sizeof(reason)))
				continue;
			tried[l]++;
			for (int t = 0; t < 3; t++)
			{
				Answer		a;

				solve(&a, &p, threads[t], NULL, t == 1 ? 30000 : whole_chunk(&p),
					  t == 2 ? 100000 : SIZE_MAX, &err);

				if (!same_answer(&oracle, &a, p.n))
				{
					differ++;
					printf("# problem %d (n %d d %d k %d): %s with %d threads differs\n",
						   number, p.n, p.d, p.k, levels[l], threads[t]);
				}
				answer_free(&a);
				leaks += a.host.live != 0;
			}
		}
		gk_cpu_set_simd("auto", reason, sizeof(reason));
		for (int t = 0; t < 3; t++)
		{
			Answer		a;

			solve_again(&a, &p, t + 1, t == 1 ? 30000 : whole_chunk(&p), t == 2 ? 3 : 1, 0, 0, &err);
			if (!same_answer(&oracle, &a, p.n))
			{
				again++;
				printf("# problem %d (n %d d %d k %d): %s\n", number, p.n, p.d, p.k,
					   a.status == GK_OK ? "read again differs" : err.message);
			}
			answer_free(&a);
			leaks += a.host.live != 0;
		}
		/* Other row orders, from given centroids. */
		if (p.opt.init == GK_INIT_CENTROIDS)
			for (int o = 0; o < 3; o++)
			{
				Answer		a;

				for (int i = 0; i < p.n; i++)
					perm[i] = o == 0 ? p.n - 1 - i : i;
				for (int i = p.n - 1; o > 0 && i > 0; i--)
				{
					int			r = test_pick(&rng, 0, i),
								s = perm[i];

					perm[i] = perm[r];
					perm[r] = s;
				}
				solve(&a, &p, 2, perm, 50000, SIZE_MAX, &err);
				orders += !same_answer(&oracle, &a, p.n);
				answer_free(&a);
			}
		answer_free(&oracle);
		leaks += oracle.host.live != 0;
		problem_free(&p);
		free(perm);
	}
	ok(solved == problems, "%d of %d random problems solved", solved, problems);
	ok(differ == 0 && tried[0] + tried[1] + tried[2] > 0,
	   "scalar = avx2 (%d) = avx512 (%d) = neon (%d problems), 1, 2 and 7 threads, chunked and spilled: %d differ",
	   tried[0], tried[1], tried[2], differ);
	ok(again == 0, "rows read again in every pass, in chunks and in parts: %d differ", again);
	ok(orders == 0, "three row orders from given centroids: %d differ", orders);
	ok(leaks == 0, "nothing left allocated");
}

/* ---- a plain implementation ---- */

/*
 * Lloyd from given centroids by the book, over the same prepared points: naive
 * loops, 128-bit sums, no chunks.
 */
static bool
naive_agrees(const Problem *p, const Answer *a, GkError *err)
{
	TestHost	t;
	GkStore    *s;
	const GkPoints *pts;
	int			n = p->n,
				d = p->d,
				k = p->k;
	float	   *x = malloc(sizeof(float) * n * d);
	float	   *f = malloc(sizeof(float) * k * d);
	double	   *c = malloc(sizeof(double) * k * d);
	int		   *label = malloc(sizeof(int) * n);
	bool		empty = false;
	bool		good = true;
	gk_int128	inertia = 0;
	int			iterations = 0;

	test_host_init(&t, 1);
	s = load_store(&t, p->x, NULL, n, d, NULL, 1 << 24, SIZE_MAX, err);
	gk_store_prepare(s, GK_EUCLIDEAN, p->opt.standardize, err);
	pts = gk_store_points(s);
	for (int i = 0; i < n; i++)
		gk_store_row(s, i, x + (size_t) i * d, err);
	gk_model_prepare(&pts->prep, p->init, k, f);
	for (int pass = 0; !empty; pass++)
	{
		double		shift = 0;
		bool		moved = false;

		inertia = 0;
		for (int i = 0; i < n; i++)
		{
			float		best = INFINITY;

			label[i] = 0;
			for (int j = 0; j < k; j++)
			{
				float		d2 = gk_d2(x + (size_t) i * d, 1, f + (size_t) j * d, d);

				if (d2 < best)
					best = d2, label[i] = j;
			}
			inertia += gk_d2_fixed(best, gk_pow2(40 - pts->d2_expo));
		}
		if (iterations < 0 || pass == p->opt.max_iter)
			break;
		for (int j = 0; j < k; j++)
		{
			gk_int128	sum[200] = {0};
			int			count = 0;

			for (int i = 0; i < n; i++)
				if (label[i] == j)
				{
					count++;
					for (int m = 0; m < d; m++)
						sum[m] += gk_fixed(x[(size_t) i * d + m], gk_pow2(GK_GRID_BITS - pts->prep.expo[m]));
				}
			empty |= count == 0;
			if (count == 0)
				break;
			for (int m = 0; m < d; m++)
			{
				size_t		at = (size_t) j * d + m;
				float		was = f[at];
				double		step;

				c[at] = pts->prep.center[m] +
					gk_i128_to_double(sum[m]) / count * gk_pow2(pts->prep.expo[m] - GK_GRID_BITS) / pts->prep.scale[m];
				f[at] = gk_to_float(gk_centre_scale(c[at], pts->prep.center[m], pts->prep.scale[m]));
				step = (double) f[at] - (double) was;
				moved |= step != 0;
				shift += step * step;
			}
		}
		iterations = pass + 1;
		if (!moved || shift <= p->opt.tol * pts->mean_var)
			iterations = -iterations;	/* converged: one more assignment */
	}
	if (!empty)
	{
		good = a->model.iterations == abs(iterations) && a->model.k == k &&
			memcmp(a->model.centroids, c, sizeof(double) * k * d) == 0 &&
			a->model.inertia == gk_inertia_from_d2(&pts->prep, gk_i128_to_double(inertia) * gk_pow2(pts->d2_expo - 80));
		for (int i = 0; i < n; i++)
			good &= a->labels.label[i] == label[i];
	}
	gk_store_free(s);
	test_host_end(&t);
	free(x);
	free(f);
	free(c);
	free(label);
	return good;
}

static void
test_naive(void)
{
	uint64_t	rng = 12;
	int			compared = 0,
				wrong = 0;
	GkError		err;

	for (int number = 0; number < 60; number++)
	{
		Problem		p = random_problem(&rng, number);

		free(p.w);
		p.w = NULL;
		if (p.k > 6)
			p.k = p.opt.k = 6;
		if (p.n < p.k || p.opt.distance == GK_COSINE)
		{
			problem_free(&p);
			continue;
		}
		given_centroids(&p, &rng);
		{
			Answer		a;
			bool		lost;

			solve(&a, &p, 2, NULL, 1 << 16, SIZE_MAX, &err);
			lost = a.model.k < p.k;

			/* Repairs are the loop's own business; compared are runs without. */
			if (!lost)
			{
				compared++;
				wrong += !naive_agrees(&p, &a, &err);
			}
			answer_free(&a);
		}
		problem_free(&p);
	}
	ok(compared > 20 && wrong == 0, "plain Lloyd gives the same labels, centroids, inertia and iterations (%d of %d differ)",
	   wrong, compared);
}

/* ---- behaviour ---- */

static void
test_behaviour(void)
{
	GkError		err;
	uint64_t	rng = 13;
	Problem		p = {0};
	Answer		a,
				b;
	double		blobs[900 * 2];
	double		few[40];
	const double origin[16] = {0};
	double		centres[6] = {0, 0, 100, 0, 0, 100};
	int			bad = 0;

	for (int i = 0; i < 900; i++)
		for (int j = 0; j < 2; j++)
			blobs[i * 2 + j] = centres[(i < 500 ? 0 : i < 800 ? 1 : 2) * 2 + j] + test_normal(&rng);
	p.n = 900;
	p.d = 2;
	p.x = blobs;
	p.opt = (GkOptions) {.k = 3,.n_init = 1,.max_iter = 100,.tol = 1e-4};
	for (int init = 0; init < 4; init++)
	{
		p.opt.init = init == 3 ? GK_INIT_PLUSPLUS : random_inits[init];
		p.opt.n_init = 3;
		solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
		ok(a.model.k == 3 && a.model.converged && a.model.size[0] == 500 && a.model.size[1] == 300 &&
		   a.model.size[2] == 100, "init %d: blobs found, largest cluster first", (int) p.opt.init);
		answer_free(&a);
	}

	/* The numbers of given centroids are kept. */
	p.init = (double[]) {0, 100, 100, 0, 0, 0};
	p.opt.init = GK_INIT_WARM_START;
	p.opt.centroids = p.init;
	solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
	ok(a.model.size[0] == 100 && a.model.size[1] == 300 && a.model.size[2] == 500, "warm start keeps the numbers");
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 2; j++)
			bad += fabs(a.model.centroids[i * 2 + j] - p.init[i * 2 + j]) > 0.5;
	ok(bad == 0, "centroids come back in original units");
	answer_free(&a);

	/* Two given centroids far from everything: empty, repaired, never NaN. */
	p.init = (double[]) {1e7, 1e7, -1e7, 1e7, 0, 0};
	p.opt.centroids = p.init;
	solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
	ok(a.model.k == 3 && a.model.size[0] > 0 && a.model.size[1] > 0 && a.model.size[2] > 0 &&
	   a.model.inertia < 3000, "empty clusters are re-seeded (inertia %.1f)", a.model.inertia);
	answer_free(&a);

	/* Cosine: given centroids of any length, and none without a direction. */
	p.opt.distance = GK_COSINE;
	p.init = (double[]) {1e-30, 1e-30, 5e20, 0, 0, 3};
	p.opt.centroids = p.init;
	for (int i = 0; i < 900 * 2; i++)
		blobs[i] += i % 2 ? 3 : 2;	/* no zero vectors */
	solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
	ok(a.status == GK_OK && a.model.k == 3 && a.model.size[0] > 0 && a.model.size[1] > 200 && a.model.size[2] > 50 &&
	   fabs(hypot(a.model.centroids[2], a.model.centroids[3]) - 1) < 1e-12, "cosine: the length of given centroids does not matter");
	answer_free(&a);
	p.init[2] = 0;
	solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
	ok(a.status == GK_ERR_OPTION, "cosine: %s", err.message);
	answer_free(&a);

	/* Fewer distinct points than k. */
	for (int init = GK_INIT_PLUSPLUS; init <= GK_INIT_HIERARCHICAL; init++)
	{
		for (int i = 0; i < 20; i++)
			few[i * 2] = i % 3, few[i * 2 + 1] = 5;
		p.x = few;
		p.n = 20;
		p.opt = (GkOptions) {.k = 8,.init = (GkInit) init,.n_init = 1,.max_iter = 100,.tol = 1e-4};
		p.opt.centroids = origin;
		solve(&a, &p, 2, NULL, 1 << 20, SIZE_MAX, &err);
		ok(a.status == GK_OK && a.model.k == 3 && a.model.inertia == 0 && a.model.converged &&
		   a.model.size[0] + a.model.size[1] + a.model.size[2] == 20, "init %d: 3 distinct points and k = 8 give 3 clusters", init);
		answer_free(&a);
	}

	/* One point; k above n. */
	p.n = 1;
	p.opt = (GkOptions) {.k = 5,.n_init = 2,.max_iter = 3,.tol = 0};
	solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
	ok(a.model.k == 1 && a.model.size[0] == 1 && a.model.inertia == 0 && a.model.radius[0] == 0, "a single point");
	answer_free(&a);

	/* No points. */
	p.n = 0;
	solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
	ok(a.status == GK_OK && a.model.k == 0 && a.model.rows_used == 0, "no points, no clusters");
	answer_free(&a);

	/* An integer weight is that many copies, up to the choice of the centre. */
	{
		double		once[] = {0, 0, 1, 0, 10, 0, 11, 1},
					copies[24],
					weights[] = {3, 2, 1, 6};
		int			n = 0;

		for (int i = 0; i < 4; i++)
			for (int r = 0; r < weights[i]; r++, n++)
				memcpy(copies + 2 * n, once + 2 * i, 2 * sizeof(double));
		p.opt = (GkOptions) {.k = 2,.init = GK_INIT_CENTROIDS,.centroids = (double[]) {0, 0, 11, 1},.n_init = 1,.max_iter = 50};
		p.x = once;
		p.w = weights;
		p.n = 4;
		solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
		p.x = copies;
		p.w = NULL;
		p.n = n;
		solve(&b, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
		bad = 0;
		for (int i = 0; i < 4; i++)
			bad += fabs(a.model.centroids[i] - b.model.centroids[i]) > 1e-6;
		ok(bad == 0 && fabs(a.model.inertia - b.model.inertia) < 1e-5 * b.model.inertia,
		   "weights are repeated rows (inertia %.6f, %.6f)", a.model.inertia, b.model.inertia);
		answer_free(&a);
		answer_free(&b);
	}

	/* n_init: never worse than its first run; history falls. */
	p = random_problem(&rng, 1);
	free(p.w);
	p.w = NULL;
	p.opt.init = GK_INIT_RANDOM;
	p.opt.max_iter = 50;
	p.opt.k = 6;
	solve(&a, &p, 2, NULL, 1 << 20, SIZE_MAX, &err);
	p.opt.n_init = 8;
	solve(&b, &p, 2, NULL, 1 << 20, SIZE_MAX, &err);
	ok(b.model.inertia <= a.model.inertia, "n_init keeps the best run");
	bad = 0;
	for (int i = 1; i < a.model.history_len; i++)
		bad += a.model.history_inertia[i] > a.model.history_inertia[i - 1] * (1 + 1e-9);
	ok(bad == 0 && fabs(a.model.history_inertia[a.model.history_len - 1] / a.model.inertia - 1) < 1e-2,
	   "the inertia falls over the iterations (%d) to the final one", a.model.history_len);
	answer_free(&a);
	answer_free(&b);
	problem_free(&p);

	/* Options out of range. */
	p = random_problem(&rng, 1);
	p.opt.k = 0;
	solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
	ok(a.status == GK_ERR_LIMIT, "k = 0: %s", err.message);
	answer_free(&a);
	p.opt.k = 2;
	p.opt.tol = NAN;
	solve(&a, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
	ok(a.status == GK_ERR_OPTION, "tol NaN: %s", err.message);
	answer_free(&a);
	problem_free(&p);
}

/* ---- clusters that do not change ---- */

static int64_t unchanged;

/* A step that does not say which clusters have not changed. */
static GkStatus
step_in_silence(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	GkStatus	st = gk_cpu_backend.step(s, centroids, k, out, err);

	for (int i = 0; i < k; i++)
		unchanged += out->unchanged[i];
	memset(out->unchanged, 0, k * sizeof(bool));
	return st;
}

/* Some groups far from each other are found at once, others take long, and every restart finds them again. */
static void
test_unchanged(void)
{
	GkBackend	silent = gk_cpu_backend;
	uint64_t	rng = 17;
	int			differ = 0;

	silent.step = step_in_silence;
	for (int number = 0; number < 200; number++)
	{
		Problem		p = {.n = 400,.d = 3,.k = 7};
		Answer		a;
		Answer		b;
		GkError		err;

		p.x = malloc(sizeof(double) * p.n * p.d);
		for (int i = 0; i < p.n * p.d; i++)
			p.x[i] = (i / p.d % 5 < 3 ? i / p.d % 5 * 1000.0 : 0.0) + test_normal(&rng) * (number % 3 + 1);
		p.opt = (GkOptions) {.k = p.k,.init = GK_INIT_RANDOM,.n_init = 2,.max_iter = 30,.seed = number,.feature_sum = GK_DELTA,.init_sample = number % 2 * 0.9,
			.distance = number % 4 == 3 ? GK_COSINE : GK_EUCLIDEAN};
		solve(&a, &p, 2, NULL, 1 << 20, SIZE_MAX, &err);
		solve_device = &silent;
		solve(&b, &p, 2, NULL, 1 << 20, SIZE_MAX, &err);
		solve_device = &gk_cpu_backend;
		differ += !same_answer(&a, &b, p.n);
		answer_free(&a);
		answer_free(&b);
		problem_free(&p);
	}
	ok(differ == 0 && unchanged > 1000, "clusters that do not change are not updated, to the same bits (%d differ)", differ);
}

/* He et al. 2022: 1e6 + noise loses 3.0 in float32 sums; here the centroids are exact. */
static void
test_precision(void)
{
	enum
	{
	N = 200000};
	uint64_t	rng = 14;
	Problem		p = {.n = N,.d = 1};
	GkError		err;
	Answer		a;
	double		worst = 0;

	p.x = malloc(sizeof(double) * N);
	for (int i = 0; i < N; i++)
		p.x[i] = 1e6 + (i % 4) * 20 + test_normal(&rng);
	p.opt = (GkOptions) {.k = 4,.n_init = 1,.max_iter = 100};
	solve(&a, &p, 2, NULL, 1 << 20, SIZE_MAX, &err);
	for (int c = 0; c < 4; c++)
	{
		quad		sum = 0;
		int64_t		count = 0;

		for (int i = 0; i < N; i++)
			if (a.labels.label[i] == c)
				sum += p.x[i], count++;
		worst = fmax(worst, fabs(a.model.centroids[c] - (double) (sum / count)) / 1e6);
	}
	ok(a.model.k == 4 && worst < 1e-12, "1e6 + noise: centroids within %.1e of the exact means", worst);
	answer_free(&a);
	free(p.x);
}

/* ---- failures ---- */

typedef enum Failure
{
	FAIL_ALLOC, FAIL_POLL, FAIL_SPILL
} Failure;

/* The whole way with the Nth call failing; true when the Nth call was never reached. */
static bool
fail_at(const Problem *p, size_t chunk, size_t limit, Failure what, int64_t nth, GkStatus want, int *bad)
{
	TestHost	t;
	GkError		err = {0};
	GkStore    *s;
	GkModel		m;
	GkStatus	st;
	Labels		l = {malloc(sizeof(int32_t) * p->n), malloc(sizeof(float) * p->n), 0};
	GkLabelSink sink = test_sink(&l);
	bool		reached;

	test_host_init(&t, 2);
	if (what == FAIL_ALLOC)
		t.fail_at = nth;
	else if (what == FAIL_POLL)
		t.stop_at = nth;
	else
		t.spill_fail_at = nth;
	s = load_store(&t, p->x, p->w, p->n, p->d, NULL, chunk, limit, &err);
	if (s == NULL)
		st = err.code;
	else
	{
		st = gk_store_prepare(s, p->opt.distance, p->opt.standardize, &err);
		if (st == GK_OK)
			st = gk_fit(s, &gk_cpu_backend, &p->opt, &sink, &m, &err);
		if (st == GK_OK)
			gk_model_free(&t.host, &m);
		gk_store_free(s);
	}
	reached = what == FAIL_ALLOC ? t.allocs >= nth : what == FAIL_POLL ? t.polls >= nth : t.spill_calls >= nth;
	if (st != (reached ? want : GK_OK) || t.live != 0)
	{
		(*bad)++;
		printf("# call %lld: status %d, %lld blocks left\n", (long long) nth, st, (long long) t.live);
	}
	test_host_end(&t);
	free(l.label);
	free(l.d2);
	return !reached;
}

static void
fail_everywhere(const Problem *p, size_t chunk, size_t limit, size_t spill_limit)
{
	static const GkStatus want[] = {GK_ERR_MEMORY, GK_STOPPED, GK_ERR_HOST};
	static const char *const name[] = {"allocation", "poll", "spill call"};

	for (int what = 0; what < 3; what++)
	{
		int			bad = 0;
		int64_t		nth = 1;

		/* Every one of the first hundred, then ever sparser. */
		for (; nth < 100000; nth += 1 + nth / 100)
			if (fail_at(p, chunk, what == FAIL_SPILL ? spill_limit : limit, (Failure) what, nth, want[what], &bad))
				break;
		ok(bad == 0 && nth > 3, "init %d, d = %d: failing %s, 1st to %lldth, leaves the right error and nothing else (%d bad)",
		   (int) p->opt.init, p->d, name[what], (long long) nth - 1, bad);
	}
}

static void
test_failures(void)
{
	uint64_t	rng = 15;
	Problem		wide = {.n = 500,.d = 40,.k = 70,.opt = {.k = 70,.init = GK_INIT_PLUSPLUS,.n_init = 1,.max_iter = 2}};

	for (int init = 0; init < 4; init++)
	{
		Problem		p = random_problem(&rng, 1 + 3 * init);

		if (p.n > 800)
			p.n = 800;
		p.k = p.opt.k = 5;
		p.opt.init = init == 3 ? GK_INIT_PLUSPLUS : random_inits[init];
		p.opt.max_iter = 3;
		p.opt.distance = GK_EUCLIDEAN;
		fail_everywhere(&p, 10000, 60000, 8000);
		problem_free(&p);
	}
	/* half of the points in a file, and memory for many rounds of seeding at once */
	wide.x = malloc(sizeof(double) * wide.n * wide.d);
	for (int i = 0; i < wide.n * wide.d; i++)
		wide.x[i] = (float) (test_normal(&rng) / sqrt(i % wide.d + 1));
	fail_everywhere(&wide, 45000, 80000, 80000);
	free(wide.x);
}

/* ---- rows that are read again ---- */

static void
test_again(void)
{
	uint64_t	rng = 16;
	Problem		p = random_problem(&rng, 1);
	int			passes;
	int			bad = 0;
	int64_t		nth;
	GkError		err;
	Answer		a;

	if (p.n > 800)
		p.n = 800;
	p.k = p.opt.k = 5;
	p.opt.init = GK_INIT_PLUSPLUS;
	p.opt.max_iter = 3;
	p.opt.tol = 0.0;
	passes = solve_again(&a, &p, 2, 1 << 24, 1, 0, 0, &err);
	/* preparing, seeding, iterations, finishing and its order, labels */
	ok(a.status == GK_OK && passes <= 2 + (p.k + 1) + a.model.iterations + 2 + 1,
	   "k = %d: a pass for each round of seeding, %d in all", p.k, passes);
	answer_free(&a);
	for (int at = 2; at <= passes; at++)
	{
		solve_again(&a, &p, 1, 1 << 24, 1, at, 0, &err);
		bad += a.status != GK_ERR_DATA;
		answer_free(&a);
		bad += a.host.live != 0;
	}
	ok(bad == 0, "a row less from the 2nd to the %dth pass on is noticed", passes);
	for (nth = 1, bad = 0; nth < 100000; nth += 1 + nth / 50)
	{
		bool		done;

		solve_again(&a, &p, 1, 1 << 24, 2, 0, nth, &err);
		done = a.status == GK_OK;
		bad += !done && a.status != GK_ERR_MEMORY;
		answer_free(&a);
		bad += a.host.live != 0;
		if (done)
			break;
	}
	ok(bad == 0 && nth > 100, "failing allocation, 1st to %lldth, leaves the right error and nothing else (%d bad)",
	   (long long) nth - 1, bad);
	problem_free(&p);
}

/* The same on a GPU: GK_GPU_DIRECTORY=. make unit UNIT=test_fit SANITIZE= */
static void
test_again_gpu(int problems)
{
	uint64_t	rng = 17;
	int			differ = 0;
	int			gpu;
	const char *directory = getenv("GK_GPU_DIRECTORY");
	GkError		err;

	if (directory != NULL)
	{
		gk_registry_set_directory(directory);
		again_device = gk_registry_choose(GK_DEVICE_GPU, NULL, 0, 0, 0, &gpu, &err);
	}
	if (directory == NULL || again_device == NULL)
	{
		skip("rows read again by a GPU: %s", directory == NULL ? "GK_GPU_DIRECTORY is not set" : err.detail);
		again_device = &gk_cpu_backend;
		return;
	}
	for (int number = 0; number < problems; number++)
	{
		Problem		p = random_problem(&rng, number);
		Answer		oracle;
		Answer		a;

		p.opt.init = number % 4 == 3 ? GK_INIT_PLUSPLUS : random_inits[number % 4];
		solve(&oracle, &p, 2, NULL, 1 << 24, SIZE_MAX, &err);
		solve_again(&a, &p, 2, number % 2 ? 100000 : 1 << 24, 1, 0, 0, &err);
		if (!same_answer(&oracle, &a, p.n))
		{
			differ++;
			printf("# problem %d (n %d d %d k %d): %s\n", number, p.n, p.d, p.k,
				   a.status == GK_OK ? "differs" : err.detail);
		}
		answer_free(&oracle);
		answer_free(&a);
		problem_free(&p);
	}
	again_device = &gk_cpu_backend;
	ok(differ == 0, "rows read again by a GPU, in chunks: %d of %d differ", differ, problems);
}

/* ---- a backend that goes on ahead by itself ---- */

static const GkPrep *ahead_prep;
static float *ahead_next;		/* centroids by the last step's result, NULL: there was none */
static int	ahead_follow,		/* steps that were said to follow, and did */
			ahead_start,
			ahead_wrong;

static GkStatus
ahead_step(GkSession *s, const float *c, int k, GkStep *out, GkError *err)
{
	int			d = ahead_prep->d;
	size_t		bytes = (size_t) k * d * sizeof(float);
	bool		same = ahead_next != NULL && memcmp(ahead_next, c, bytes) == 0;
	GkStatus	st;

	if (out->follows && !same)
		ahead_wrong++;
	else if (out->follows)
		ahead_follow++;
	else
		ahead_start++;
	st = gk_cpu_backend.step(s, c, k, out, err);
	if (ahead_next == NULL)
		ahead_next = malloc(bytes);
	memcpy(ahead_next, c, bytes);
	for (int i = 0; i < k; i++)
		for (int j = 0; j < d && out->count[i] > 0; j++)
		{
			double		unused;

			gk_update_feature(gk_i128_to_double(out->sum[(size_t) i * d + j]) / gk_i128_to_double(out->mass[i]),
							  gk_feature_prep(ahead_prep->center, ahead_prep->scale, ahead_prep->expo, j),
							  c[(size_t) i * d + j], &unused, &ahead_next[(size_t) i * d + j]);
		}
	return st;
}

/* A step that is said to follow has the centroids of the one before; after a restart and a repair it is not said. */
static void
test_follows(void)
{
	uint64_t	rng = 18;
	GkBackend	ahead = gk_cpu_backend;
	int			repairs = 0;

	ahead.step = ahead_step;
	for (int number = 0; number < 40; number++)
	{
		Problem		p = random_problem(&rng, number);
		Answer		a;
		GkStore    *s;
		GkError		err;

		p.opt.distance = GK_EUCLIDEAN;
		p.opt.init = GK_INIT_RANDOM;
		p.opt.n_init = 1 + number % 3;
		/* twice the same centroid: one of them is empty */
		if (number % 2)
		{
			given_centroids(&p, &rng);
			p.opt.n_init = 1;
			for (int i = 1; i < p.k; i += 3)
				memcpy(p.init + (size_t) i * p.d, p.init, sizeof(double) * p.d);
			repairs += p.k > 1;
		}
		answer_init(&a, &p, 0);
		s = load_store(&a.host, p.x, p.w, p.n, p.d, NULL, 20000, SIZE_MAX, &err);
		gk_store_prepare(s, p.opt.distance, p.opt.standardize, &err);
		ahead_prep = &gk_store_points(s)->prep;
		ahead_wrong += gk_fit(s, &ahead, &p.opt, NULL, &a.model, &err) != GK_OK;
		free(ahead_next);
		ahead_next = NULL;
		gk_store_free(s);
		answer_free(&a);
		problem_free(&p);
	}
	ok(ahead_wrong == 0 && ahead_follow > 100 && ahead_start > 40 + repairs / 2, "steps that follow have the centroids of the one before: "
	   "%d do, %d begin, %d wrong", ahead_follow, ahead_start, ahead_wrong);
}

/* ---- a device that fails in the middle ---- */

static int	fragile_calls;		/* until the failure */
static int	fragile_asked;		/* how often the host was asked */
static double fragile_ms;		/* how long the failing step takes */

typedef struct Cut
{
	const GkLabelSink *to;
	int			emits;			/* left before the failure */
} Cut;

static bool
cut_emit(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Cut		   *c = ctx;

	return c->emits-- > 0 && c->to->emit(c->to->ctx, rows, label, d2, aux);
}

static GkStatus
fragile_step(GkSession *s, const float *c, int k, GkStep *out, GkError *err)
{
	if (--fragile_calls == 0)
	{
		double		until = gk_now_ms() + fragile_ms;

		while (gk_now_ms() < until)
			;
		return gk_fail(err, GK_ERR_DEVICE, "the device is gone");
	}
	return gk_cpu_backend.step(s, c, k, out, err);
}

static GkStatus
fragile_finish(GkSession *s, const float *c, int k, GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	Cut			cut = {sink, 2};
	GkLabelSink through = {&cut, cut_emit, NULL};

	if (--fragile_calls > 0)
		return gk_cpu_backend.finish(s, c, k, out, sink, err);
	if (sink != NULL)
		gk_cpu_backend.finish(s, c, k, out, &through, err);
	return gk_fail(err, GK_ERR_DEVICE_MEMORY, "no memory");
}

static bool
ask(void *ctx, const GkError *err)
{
	(void) err;
	fragile_asked++;
	return ((TestHost *) ctx)->spill_fail_at == 0;
}

static void
test_fallback(void)
{
	uint64_t	rng = 16;
	Problem		p = random_problem(&rng, 1);
	GkBackend	fragile = gk_cpu_backend;
	Answer		want;
	GkError		err;
	int			bad = 0,
				failures = 0;

	fragile.step = fragile_step;
	fragile.finish = fragile_finish;
	given_centroids(&p, &rng);
	p.opt.max_iter = 4;
	solve(&want, &p, 2, NULL, 20000, SIZE_MAX, &err);
	for (int call = 1; call < 10; call++)
	{
		Answer		a;
		GkLabelSink sink;
		GkStore    *s;

		memset(&a, 0, sizeof(a));
		test_host_init(&a.host, 2);
		a.host.host.device_failed = ask;
		a.labels.label = malloc(sizeof(int32_t) * p.n);
		a.labels.d2 = malloc(sizeof(float) * p.n);
		sink = test_sink(&a.labels);
		s = load_store(&a.host, p.x, p.w, p.n, p.d, NULL, 20000, SIZE_MAX, &err);
		gk_store_prepare(s, p.opt.distance, p.opt.standardize, &err);
		fragile_calls = call;
		fragile_asked = 0;
		a.status = gk_fit(s, &fragile, &p.opt, &sink, &a.model, &err);
		failures += fragile_asked;
		bad += !same_answer(&want, &a, p.n);
		if (call == 1)
		{
			/* The host says no. */
			gk_model_free(&a.host.host, &a.model);
			a.host.spill_fail_at = 1000000;
			fragile_calls = 1;
			bad += gk_fit(s, &fragile, &p.opt, NULL, &a.model, &err) != GK_ERR_DEVICE;
		}
		gk_store_free(s);
		answer_free(&a);
		bad += a.host.live != 0;
	}
	ok(bad == 0 && failures >= 6, "a device that fails in any pass: the CPU finishes with the same answer, "
	   "each label once (%d failures, %d bad)", failures, bad);
	answer_free(&want);
	problem_free(&p);
}

/* Report in the model what the CPU took, not what a device took until it failed. */
static void
test_fallback_times(void)
{
	GkBackend	fragile = gk_cpu_backend;
	uint64_t	rng = 17;
	Problem		p = random_problem(&rng, 1);
	Answer		a;
	GkStore    *s;
	GkError		err;
	double		start,
				reported,
				wall;

	fragile.step = fragile_step;
	given_centroids(&p, &rng);
	p.opt.max_iter = 4;
	memset(&a, 0, sizeof(a));
	test_host_init(&a.host, 2);
	a.host.host.device_failed = ask;
	s = load_store(&a.host, p.x, p.w, p.n, p.d, NULL, 20000, SIZE_MAX, &err);
	gk_store_prepare(s, p.opt.distance, p.opt.standardize, &err);
	fragile_calls = 1;
	fragile_ms = 200;
	start = gk_now_ms();
	a.status = gk_fit(s, &fragile, &p.opt, NULL, &a.model, &err);
	wall = gk_now_ms() - start;
	fragile_ms = 0;
	reported = a.model.seed_ms + a.model.iterate_ms;
	ok(a.status == GK_OK && reported > 0 && reported <= wall - 200,
	   "times of a fit that went on with the CPU: without the device's 200 ms (%.0f of %.0f ms)", reported, wall);
	gk_store_free(s);
	answer_free(&a);
	problem_free(&p);
}

static void
again(void *ctx)
{
	((Labels *) ctx)->seen = 0;
}

/*
 * Many k from one store, with shared seeds, and labels from whichever pass is the
 * last: as each k alone.
 */
static void
test_many_k(void)
{
	uint64_t	rng = 77;
	int			bad = 0,
				shared = 0,
				fits = 0;

	for (int i = 0; i < 12; i++)
	{
		Problem		p = random_problem(&rng, i);
		GkSharedSeeds seeds = {.k_max = 24};
		TestHost	host;
		Answer		a = {0};
		GkStore    *s;
		GkError		err;
		double		given[24 * 64];

		if (p.d > 64)
			p.d = 64;
		if (i % 3 == 1)			/* fewer distinct points than k */
			for (int j = 0; j < p.n * p.d; j++)
				p.x[j] = p.x[j % (7 * p.d)];
		test_host_init(&host, 2);
		s = load_store(&host, p.x, p.w, p.n, p.d, NULL, 1 << 16, SIZE_MAX, &err);
		p.opt = (GkOptions) {.init = i % 4 == 3 ? GK_INIT_CENTROIDS : i % 5 == 4 ? GK_INIT_RANDOM : GK_INIT_PLUSPLUS,
			.n_init = 1 + i % 2,.max_iter = 4,.distance = i % 4 == 3 ? GK_EUCLIDEAN : p.opt.distance};
		for (int j = 0; j < 24 * p.d; j++)
			given[j] = p.x[(j + 24 * i) % (p.n * p.d)];
		p.opt.centroids = given;
		a.labels.label = malloc(sizeof(int32_t) * (p.n + 1));
		a.labels.d2 = malloc(sizeof(float) * (p.n + 1));
		a.status = gk_store_prepare(s, p.opt.distance, false, &err);
		for (int k = 1; a.status == GK_OK && k <= 24; k += 1 + i % 3)
		{
			GkLabelSink sink = test_sink(&a.labels);
			Answer		alone;

			p.k = p.opt.k = k;
			p.opt.shared = NULL;
			solve(&alone, &p, 1, NULL, 1 << 20, SIZE_MAX, &err);
			sink.again = again;
			p.opt.shared = &seeds;
			a.labels.seen = 0;
			a.status = gk_fit(s, &gk_cpu_backend, &p.opt, &sink, &a.model, &err);
			bad += !same_answer(&alone, &a, p.n);
			shared += seeds.got != NULL && seeds.asked > k;
			fits++;
			gk_model_free(&host.host, &a.model);
			answer_free(&alone);
		}
		gk_shared_seeds_free(&host.host, &seeds);
		gk_store_free(s);
		bad += host.live != 0;
		test_host_end(&host);
		free(a.labels.label);
		free(a.labels.d2);
		free(p.x);
		free(p.w);
		free(p.init);
	}
	ok(bad == 0 && shared > 50, "%d fits of many k from one store, %d with more seeds than needed: as each alone (%d differ)",
	   fits, shared, bad);
}

int
main(void)
{
	test_same_bits(few_or_all(28, 210));
	test_many_k();
	test_naive();
	test_behaviour();
	test_unchanged();
	test_precision();
	test_failures();
	test_again();
	test_again_gpu(100);
	test_follows();
	test_fallback();
	test_fallback_times();
	return done_testing();
}
