/*
 * Points that lack features (GK_PARTIAL, cpu/holes) against plain loops: labels, sums, masses, costs of a
 * step; fits with the same bits for any threads, chunks, instruction sets, memory limits and, with given
 * centroids, orders of the rows; without holes, those of GK_EUCLIDEAN.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/store/gk_store.h"
#include "cpu/gk_cpu.h"
#include "cpu/holes/gk_holes.h"
#include "gk_test.h"
#include "gk_testhost.h"

static uint64_t rng = 11;

/* Checks that failed in the case at hand. */
static int	wrong;

#define CHECK(condition) (wrong += !(condition))

static const char *const simd[] = {"scalar", "avx2", "avx512", "neon"};

typedef struct Data
{
	int			n;
	int			d;
	double	   *x;
	double	   *w;				/* or NULL */
	int		   *back;			/* the rows in the other order */
} Data;

/* holes: percent of the values; no row lacks all. */
static Data
make_data(int n, int d, int holes, bool weighted)
{
	Data		data = {n, d, malloc(sizeof(double) * n * d), weighted ? random_weights(&rng, n) : NULL,
	malloc(sizeof(int) * n)};

	for (int i = 0; i < n; i++)
	{
		int			blob = test_pick(&rng, 0, 6);
		int			keep = test_pick(&rng, 0, d - 1);

		for (int j = 0; j < d; j++)
		{
			data.x[(size_t) i * d + j] = (blob * (j + 1)) % 7 * 5 + test_normal(&rng);
			if (j != keep && test_pick(&rng, 1, 100) <= holes)
				data.x[(size_t) i * d + j] = NAN;
		}
		data.back[i] = n - 1 - i;
	}
	return data;
}

static void
data_free(Data *data)
{
	free(data->x);
	free(data->w);
	free(data->back);
}

static GkStore *
load(TestHost *host, const Data *data, const int *order, size_t chunk, size_t limit, GkDistance distance, bool standardize)
{
	GkError		err;
	GkStore    *s = load_store(host, data->x, data->w, data->n, data->d, order, chunk, limit, &err);

	CHECK(gk_store_prepare(s, distance, standardize, &err) == GK_OK);
	return s;
}

/* ---- a step ---- */

typedef struct Result
{
	GkStep		step;
	GkFinish	finish;
	Labels		labels;
} Result;

static Result
make_result(int n, int k, int d)
{
	Result		r = {
		.step = {.sum = calloc(k * d, sizeof(gk_int128)),.mass = calloc(k, sizeof(gk_int128)),
		.count = calloc(k, sizeof(int64_t)),.feature_mass = calloc(k * d, sizeof(gk_int128))},
		.finish = {.count = calloc(k, sizeof(int64_t)),.inertia = calloc(k, sizeof(gk_int128)),.max_d2 = calloc(k, sizeof(float))},
		.labels = {calloc(n, sizeof(int32_t)), calloc(n, sizeof(float)), 0}
	};

	return r;
}

static void
result_free(Result *r)
{
	free(r->step.sum);
	free(r->step.mass);
	free(r->step.count);
	free(r->step.feature_mass);
	free(r->finish.count);
	free(r->finish.inertia);
	free(r->finish.max_d2);
	free(r->labels.label);
	free(r->labels.d2);
}

/* By the definition, row by row. */
static void
add_by_definition(const GkPoints *pts, const GkChunk *chunk, const float *c, int k, Result *r)
{
	int			d = pts->d;

	for (int i = 0; i < chunk->rows; i++)
	{
		const float *w = gk_chunk_weight(pts, chunk);
		uint32_t	at = gk_chunk_aux(pts, chunk, 0)[i];
		float		best = INFINITY;
		int			label = 0;
		int			present = 0;
		gk_int128	share;

		for (int j = 0; j < d; j++)
			present += !isnan(chunk->data[(size_t) j * chunk->stride + i]);
		for (int q = 0; q < k; q++)
		{
			float		s = 0;

			for (int j = 0; j < d; j++)
			{
				float		v = chunk->data[(size_t) j * chunk->stride + i];

				if (!isnan(v))
					s = fmaf(v - c[q * d + j], v - c[q * d + j], s);
			}
			s *= (float) d / (float) present;
			if (s < best)
			{
				best = s;
				label = q;
			}
		}
		r->labels.label[at] = label;
		r->labels.d2[at] = best;
		share = gk_holes_share(w ? gk_fixed(w[i], 0x1p40) : INT64_C(1) << 40, d, present);
		CHECK(present < d || share == (w ? gk_fixed(w[i], 0x1p40) : INT64_C(1) << 40));
		r->step.count[label]++;
		r->step.mass[label] += share;
		r->step.cost += gk_d2_fixed(w ? (double) w[i] * best : best, gk_pow2(GK_GRID_BITS - pts->d2_expo));
		for (int j = 0; j < d; j++)
		{
			float		v = chunk->data[(size_t) j * chunk->stride + i];

			if (isnan(v))
				continue;
			r->step.sum[label * d + j] += share * gk_fixed(v, gk_pow2(GK_GRID_BITS - pts->prep.expo[j]));
			r->step.feature_mass[label * d + j] += share;
		}
	}
}

static void
check_step(const Result *a, const Result *b, int n, int k, int d)
{
	gk_int128	inertia = 0;

	CHECK(memcmp(a->labels.label, b->labels.label, n * sizeof(int32_t)) == 0);
	CHECK(memcmp(a->labels.d2, b->labels.d2, n * sizeof(float)) == 0);
	CHECK(memcmp(a->step.count, b->step.count, k * sizeof(int64_t)) == 0);
	CHECK(memcmp(a->step.mass, b->step.mass, k * sizeof(gk_int128)) == 0);
	CHECK(memcmp(a->step.sum, b->step.sum, k * d * sizeof(gk_int128)) == 0);
	CHECK(memcmp(a->step.feature_mass, b->step.feature_mass, k * d * sizeof(gk_int128)) == 0);
	CHECK(a->step.cost == b->step.cost);
	for (int c = 0; c < k; c++)
		inertia += b->finish.inertia[c];
	CHECK(inertia == a->step.cost);
	CHECK(memcmp(a->step.count, b->finish.count, k * sizeof(int64_t)) == 0);
}

static void
step_by(TestHost *host, GkStore *s, const float *c, int k, Result *r)
{
	GkProblem	problem = gk_problem(s, k, 1);
	GkLabelSink sink = test_sink(&r->labels);
	GkSession  *session;
	GkError		err;

	(void) host;
	CHECK(gk_holes_backend.open(&problem, &session, &err) == GK_OK);
	CHECK(gk_holes_backend.step(session, c, k, &r->step, &err) == GK_OK);
	CHECK(gk_holes_backend.finish(session, c, k, &r->finish, &sink, &err) == GK_OK);
	gk_holes_backend.close(session);
}

static void
test_step(int round)
{
	int			n = test_pick(&rng, 1, round % 4 ? 700 : 9000);
	int			d = round % 3 ? test_pick(&rng, 1, 20) : test_pick(&rng, 60, 300);
	int			k = test_pick(&rng, 1, 45);
	Data		data = make_data(n, d, round % 6 * 15, round % 2);
	float	   *c = malloc(sizeof(float) * k * d);
	Result		want = make_result(n, k, d);
	TestHost	host;
	GkStore    *s;

	test_host_init(&host, 1);
	s = load(&host, &data, NULL, (size_t) 1 << 30, (size_t) 1 << 40, GK_PARTIAL, round % 5 == 4);
	for (int i = 0; i < k * d; i++)
		c[i] = (float) (test_uniform(&rng) * 2 - 1) * ldexpf(1, gk_store_points(s)->prep.expo[i % d]);
	for (int i = 0; i < gk_store_points(s)->nchunks; i++)
		add_by_definition(gk_store_points(s), &gk_store_points(s)->chunks[i], c, k, &want);
	for (int i = 0; i < 4; i++)
	{
		Result		got;
		GkStore    *other;
		char		reason[256];

		if (!gk_cpu_set_simd(simd[i], reason, sizeof(reason)))
			continue;
		got = make_result(n, k, d);
		host.host.threads = i + 1;
		step_by(&host, s, c, k, &got);
		check_step(&want, &got, n, k, d);
		result_free(&got);

		/* read by this instruction set, in another order and in small chunks, some of them in a file */
		got = make_result(n, k, d);
		other = load(&host, &data, data.back, (size_t) 1 << 15, i == 1 ? 0 : (size_t) 1 << 40, GK_PARTIAL, round % 5 == 4);
		step_by(&host, other, c, k, &got);
		check_step(&want, &got, n, k, d);
		result_free(&got);
		gk_store_free(other);
		CHECK(gk_cpu_set_simd("auto", reason, sizeof(reason)));
	}
	gk_store_free(s);
	result_free(&want);
	free(c);
	data_free(&data);
	test_host_end(&host);
}

/* ---- a fit ---- */

typedef struct Answer
{
	GkModel		model;
	Labels		labels;			/* [n] by the row's index */
} Answer;

static Answer
solve(TestHost *host, const Data *data, GkOptions opt, GkDistance distance, const int *order, size_t chunk, size_t limit)
{
	Answer		a = {.labels = {malloc(data->n * sizeof(int32_t)), malloc(data->n * sizeof(float)), 0}};
	GkLabelSink sink = test_sink(&a.labels);
	GkStore    *s = load(host, data, order, chunk, limit, distance, opt.standardize);
	GkError		err;

	opt.distance = distance;
	CHECK(gk_fit(s, &gk_cpu_backend, &opt, &sink, &a.model, &err) == GK_OK);
	gk_store_free(s);
	return a;
}

static void
answer_free(TestHost *host, Answer *a)
{
	gk_model_free(&host->host, &a->model);
	free(a->labels.label);
	free(a->labels.d2);
}

/* history: whether that is of the same bits, too */
static void
check_same(const Answer *a, const Answer *b, int n, int d, bool history)
{
	CHECK(a->model.k == b->model.k && a->model.iterations == b->model.iterations);
	CHECK(a->model.inertia == b->model.inertia);
	CHECK(memcmp(a->model.centroids, b->model.centroids, sizeof(double) * a->model.k * d) == 0);
	CHECK(memcmp(a->model.size, b->model.size, sizeof(int64_t) * a->model.k) == 0);
	CHECK(memcmp(a->labels.label, b->labels.label, n * sizeof(int32_t)) == 0);
	CHECK(memcmp(a->labels.d2, b->labels.d2, n * sizeof(float)) == 0);
	CHECK(!history || memcmp(a->model.history_inertia, b->model.history_inertia, a->model.history_len * sizeof(double)) == 0);
	CHECK(memcmp(a->model.history_shift, b->model.history_shift, a->model.history_len * sizeof(double)) == 0);
}

/* A step lowers the sum of the distances, or it would be no mean. */
static void
check_descent(const Answer *a, bool sampled)
{
	for (int i = 1; i < a->model.history_len; i++)
		CHECK(a->model.history_inertia[i] <= a->model.history_inertia[i - 1] * (1 + 1e-6));
	CHECK(sampled || a->model.inertia <= a->model.history_inertia[a->model.history_len - 1] * (1 + 1e-6));
}

static void
test_fit(int round)
{
	int			n = round % 4 == 0 ? test_pick(&rng, 20000, 30000) : test_pick(&rng, 100, 2000);
	int			d = test_pick(&rng, 1, round % 4 == 0 ? 4 : 16);
	int			k = test_pick(&rng, 1, 20);
	bool		holes = round % 3 != 2;
	Data		data = make_data(n, d, holes ? test_pick(&rng, 1, 60) : 0, round % 5 == 1);
	double	   *c = malloc(sizeof(double) * k * d);
	GkOptions	opt = {.k = k,.init = round % 2 ? GK_INIT_PLUSPLUS : GK_INIT_CENTROIDS,.n_init = 1,.max_iter = 30,
	.seed = round,.centroids = c,.standardize = round % 7 == 3,.fit_sample = round % 6 == 1 ? n / 2 + k : 0};
	TestHost	host;
	Answer		one;

	/* more centroids than there are blobs, and some that no point is near to */
	for (int i = 0; i < k * d; i++)
		c[i] = i / d % 5 == 4 ? 1000 : test_uniform(&rng) * 30;
	test_host_init(&host, 1);
	one = solve(&host, &data, opt, GK_PARTIAL, NULL, 1 << 20, (size_t) 1 << 40);
	check_descent(&one, opt.fit_sample > 0);
	for (int i = 0; i < 4; i++)
	{
		char		reason[256];
		Answer		other;

		if (!gk_cpu_set_simd(simd[i], reason, sizeof(reason)))
			continue;
		host.host.threads = i + 2;
		other = solve(&host, &data, opt, GK_PARTIAL, opt.init == GK_INIT_CENTROIDS && opt.fit_sample == 0 ? data.back : NULL,
					  1 << (14 + i), i == 2 ? 0 : (size_t) 1 << 40);
		check_same(&one, &other, n, d, true);
		answer_free(&host, &other);
		if (!holes)
		{
			other = solve(&host, &data, opt, GK_EUCLIDEAN, NULL, 1 << 20, (size_t) 1 << 40);
			check_same(&one, &other, n, d, false);
			answer_free(&host, &other);
		}
		CHECK(gk_cpu_set_simd("auto", reason, sizeof(reason)));
	}
	answer_free(&host, &one);
	data_free(&data);
	free(c);
	test_host_end(&host);
}

/* A feature that no point of a cluster has stays where its centroid was; a seed without it has the mean. */
static void
test_unknown(void)
{
	double		x[] = {0, NAN, 1, NAN, 2, NAN, 100, 7, 101, 8, 102, 9};
	double		c[] = {0, 5, 100, 5};
	Data		data = {6, 2, x, NULL, NULL};
	GkOptions	opt = {.k = 2,.init = GK_INIT_CENTROIDS,.n_init = 1,.max_iter = 10,.centroids = c};
	TestHost	host;
	Answer		a;

	test_host_init(&host, 1);
	a = solve(&host, &data, opt, GK_PARTIAL, NULL, 1 << 20, (size_t) 1 << 40);
	CHECK(a.model.centroids[0] == 1 && a.model.centroids[1] == 5);
	CHECK(a.model.centroids[2] == 101 && a.model.centroids[3] == 8);
	/* squared distances over one feature of two count twice */
	CHECK(a.model.inertia == 2 * (1 + 0 + 1) + (1 + 1) + (1 + 1));
	answer_free(&host, &a);
	opt = (GkOptions) {.k = 6,.init = GK_INIT_RANDOM,.n_init = 1,.max_iter = 10};
	a = solve(&host, &data, opt, GK_PARTIAL, NULL, 1 << 20, (size_t) 1 << 40);
	CHECK(a.model.k == 6 && a.model.inertia == 0);
	for (int i = 0; i < a.model.k; i++)
		CHECK(a.model.centroids[2 * i] > 50 || a.model.centroids[2 * i + 1] == 8);
	answer_free(&host, &a);
	test_host_end(&host);
}

/* One point is treated as those of a pass. */
static void
test_point(void)
{
	for (int round = 0; round < 200; round++)
	{
		int			d = test_pick(&rng, 1, 40);
		int			k = test_pick(&rng, 1, 30);
		float		x[40];
		float		c[30 * 40];
		float		all[30];
		float		d2;
		int			label;

		for (int i = 0; i < k * d; i++)
			c[i] = (float) test_normal(&rng);
		for (int j = 0; j < d; j++)
			x[j] = j > 0 && test_pick(&rng, 0, 2) == 0 ? NAN : (float) test_normal(&rng);
		label = gk_nearest_by(GK_PARTIAL, x, d, c, k, &d2);
		gk_distances_by(GK_PARTIAL, x, d, c, k, all);
		for (int q = 0; q < k; q++)
		{
			CHECK(all[q] == gk_partial_d2(x, 1, c + q * d, d));
			CHECK(all[q] > d2 || (all[q] == d2 && q >= label));
		}
		CHECK(all[label] == d2);
	}
}

int
main(void)
{
	for (int round = 0; round < 24; round++)
	{
		wrong = 0;
		test_step(round);
		ok(wrong == 0, "step %d", round);
	}
	for (int round = 0; round < 24; round++)
	{
		wrong = 0;
		test_fit(round);
		ok(wrong == 0, "fit %d", round);
	}
	wrong = 0;
	test_unknown();
	ok(wrong == 0, "features that no point of a cluster has");
	wrong = 0;
	test_point();
	ok(wrong == 0, "one point");
	return done_testing();
}
