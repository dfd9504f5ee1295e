/*
 * Measures of quality: against their definitions written out in long double,
 * the same bits whatever the threads, chunks and memory, and every failure.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/quality/gk_quality.h"
#include "gk_test.h"
#include "gk_testhost.h"

typedef long double real;

static real
to_mean(const double *p, const real *q, int d)
{
	real		s = 0;

	for (int j = 0; j < d; j++)
		s += (p[j] - q[j]) * (p[j] - q[j]);
	return sqrtl(s);
}

static real
to_point(const double *p, const double *q, int d)
{
	real		s = 0;

	for (int j = 0; j < d; j++)
		s += ((real) p[j] - q[j]) * ((real) p[j] - q[j]);
	return sqrtl(s);
}

static real
between_means(const real *p, const real *q, int d)
{
	real		s = 0;

	for (int j = 0; j < d; j++)
		s += (p[j] - q[j]) * (p[j] - q[j]);
	return sqrtl(s);
}

/* The definitions, from row-major points. */
static void
by_definition(const double *x, const int32_t *label, int n, int d, int k, GkMeasures *m)
{
	real	   *mean = calloc((size_t) k * d + d, sizeof(real));
	real	   *all = mean + (size_t) k * d;
	real	   *spread = calloc(k, sizeof(real));
	real	   *sum = malloc(k * sizeof(real));
	int		   *size = calloc(k, sizeof(int));
	real		within = 0,
				between = 0,
				simplified = 0,
				silhouette = 0,
				db = 0;

	m->k = 0;
	for (int i = 0; i < n; i++)
	{
		size[label[i]]++;
		for (int j = 0; j < d; j++)
			mean[label[i] * d + j] += x[i * d + j];
	}
	for (int j = 0; j < d; j++)
		for (int c = 0; c < k; c++)
			all[j] += mean[c * d + j] / n;
	for (int c = 0; c < k; c++)
	{
		m->k += size[c] > 0;
		for (int j = 0; j < d && size[c] > 0; j++)
		{
			mean[c * d + j] /= size[c];
			between += size[c] * (mean[c * d + j] - all[j]) * (mean[c * d + j] - all[j]);
		}
	}
	for (int i = 0; i < n; i++)
	{
		int			own = label[i];
		real		a = to_mean(x + i * d, mean + own * d, d);
		real		b = INFINITY;

		within += a * a;
		spread[own] += a / size[own];
		for (int c = 0; c < k; c++)
			if (c != own && size[c] > 0)
				b = fminl(b, to_mean(x + i * d, mean + c * d, d));
		if (size[own] > 1 && a != b)
			simplified += (b - a) / fmaxl(a, b);
		memset(sum, 0, k * sizeof(real));
		for (int h = 0; h < n; h++)
			sum[label[h]] += to_point(x + i * d, x + h * d, d);
		a = sum[own] / (size[own] - 1);
		b = INFINITY;
		for (int c = 0; c < k; c++)
			if (c != own && size[c] > 0)
				b = fminl(b, sum[c] / size[c]);
		if (size[own] > 1 && a != b)
			silhouette += (b - a) / fmaxl(a, b);
	}
	for (int a = 0; a < k; a++)
	{
		real		worst = 0;

		for (int b = 0; b < k && size[a] > 0; b++)
			if (a != b && size[b] > 0)
				worst = fmaxl(worst, (spread[a] + spread[b]) / between_means(mean + a * d, mean + b * d, d));
		db += worst;
	}
	m->rows = n;
	m->silhouette = silhouette / n;
	m->simplified = simplified / n;
	m->davies_bouldin = db / m->k;
	m->calinski_harabasz = between * (n - m->k) / (within * (m->k - 1));
	free(mean);
	free(spread);
	free(sum);
	free(size);
}

static double
worst_difference(const GkMeasures *a, const GkMeasures *b)
{
	double		w = fabs(a->silhouette / b->silhouette - 1.0);

	w = fmax(w, fabs(a->simplified / b->simplified - 1.0));
	w = fmax(w, fabs(a->davies_bouldin / b->davies_bouldin - 1.0));
	return fmax(w, fabs(a->calinski_harabasz / b->calinski_harabasz - 1.0));
}

typedef struct Data
{
	int			n,
				d,
				k;
	double	   *x,
			   *w;
	double		offset;
	GkDistance	distance;
	bool		standardize;
} Data;

static Data
make_data(uint64_t *rng, int number)
{
	Data		p = {.n = 40 + (int) (test_uniform(rng) * 1500),.d = 1 + (int) (test_uniform(rng) * 9)};

	p.k = 2 + (int) (test_uniform(rng) * 7);
	p.distance = number % 4 == 3 && p.d > 1 ? GK_COSINE : GK_EUCLIDEAN;
	p.standardize = number % 4 == 1;
	p.offset = number % 4 == 2 ? 1e5 : 0.0;
	p.x = malloc(sizeof(double) * p.n * p.d);
	p.w = malloc(sizeof(double) * p.n);
	for (int i = 0; i < p.n; i++)
	{
		p.w[i] = 1.0 + (i % 3);
		for (int j = 0; j < p.d; j++)
			p.x[i * p.d + j] = p.offset + (1 + j) * ((i % 5) * 3.0 * (j % 2 ? 1 : -1) + test_normal(rng));
	}
	return p;
}

/* Points as the fit sees them. */
static double *
seen_by_fit(const Data *p, const GkPrep *prep)
{
	double	   *y = malloc(sizeof(double) * p->n * p->d);

	for (int i = 0; i < p->n; i++)
	{
		real		length = 0;

		for (int j = 0; j < p->d; j++)
			length += (real) p->x[i * p->d + j] * p->x[i * p->d + j];
		for (int j = 0; j < p->d; j++)
			y[i * p->d + j] = p->distance == GK_COSINE ? p->x[i * p->d + j] / sqrtl(length)
				: p->standardize ? (p->x[i * p->d + j] - prep->center[j]) * ldexp(prep->scale[j], -prep->unit_exp)
				: p->x[i * p->d + j] - prep->center[j];
	}
	return y;
}

static void
fit(TestHost *host, const Data *p, const double *w, GkModel *model, Labels *labels)
{
	GkOptions	o = {.k = p->k,.n_init = 1,.max_iter = 3,.distance = p->distance,.standardize = p->standardize};
	GkError		err;
	GkStore    *s = load_store(host, p->x, w, p->n, p->d, NULL, 1 << 20, 1 << 30, &err);
	GkLabelSink sink;

	labels->label = malloc(sizeof(int32_t) * p->n);
	labels->d2 = malloc(sizeof(float) * p->n);
	labels->seen = 0;
	sink = test_sink(labels);
	if (gk_store_prepare(s, p->distance, p->standardize, &err) != GK_OK ||
		gk_fit(s, &gk_cpu_backend, &o, &sink, model, &err) != GK_OK)
		abort();
	gk_store_free(s);
}

/* Both entry points, on a store of its own. */
static GkStatus
evaluate(TestHost *host, const Data *p, const double *w, const GkModel *model, const int32_t *label,
		 int64_t sample, size_t chunk, size_t limit, GkMeasures *m, GkError *err)
{
	GkStore    *s = load_store(host, p->x, w, p->n, p->d, NULL, chunk, limit, err);
	GkStatus	st;

	memset(m, 0, sizeof(*m));	/* its padding is compared */
	if (s == NULL)
		return err->code;
	if (label == NULL)
		st = gk_quality_model(s, model, sample, m, err);
	else if ((st = gk_store_prepare(s, p->distance, p->standardize, err)) == GK_OK)
		st = gk_quality_labels(s, label, model->k, sample, m, err);
	gk_store_free(s);
	return st;
}

static void
test_definitions(void)
{
	uint64_t	rng = 7;
	double		worst_raw = 0,
				worst_prepared = 0,
				worst_inertia = 0;
	int			differ = 0;

	for (int number = 0; number < 24; number++)
	{
		Data		p = make_data(&rng, number);
		const double *w = number % 5 == 4 ? p.w : NULL;
		TestHost	host,
					other;
		GkModel		model;
		Labels		labels;
		GkMeasures	want,
					got,
					again;
		GkError		err;
		double	   *y;

		test_host_init(&host, 1);
		fit(&host, &p, w, &model, &labels);
		y = seen_by_fit(&p, &model.prep);
		by_definition(y, labels.label, p.n, p.d, model.k, &want);
		if (evaluate(&host, &p, w, &model, NULL, p.n, 4096, 1 << 30, &got, &err) != GK_OK)
			abort();
		worst_raw = fmax(worst_raw, worst_difference(&got, &want));
		if (w == NULL)
			worst_inertia = fmax(worst_inertia, fabs(got.inertia / model.inertia - 1.0));

		/* other threads, chunks and memory: the same bits */
		test_host_init(&other, 3);
		if (evaluate(&other, &p, w, &model, NULL, p.n, 100000, 0, &again, &err) != GK_OK)
			abort();
		differ += memcmp(&again, &got, sizeof(got)) != 0;
		if (evaluate(&other, &p, w, &model, labels.label, p.n, 4096, 0, &again, &err) != GK_OK)
			abort();
		worst_prepared = fmax(worst_prepared, worst_difference(&again, &want));
		if (evaluate(&host, &p, w, &model, labels.label, p.n, 1 << 20, 1 << 30, &got, &err) != GK_OK)
			abort();
		differ += memcmp(&again, &got, sizeof(got)) != 0;

		gk_model_free(&host.host, &model);
		free(labels.label);
		free(labels.d2);
		free(y);
		free(p.x);
		free(p.w);
		test_host_end(&host);
		test_host_end(&other);
	}
	ok(worst_raw < 1e-11, "from the values given: within %.1e of the definitions", worst_raw);
	ok(worst_prepared < 1e-6, "from prepared points: within %.1e", worst_prepared);
	ok(worst_inertia < 1e-6, "inertia within %.1e of the fit's", worst_inertia);
	ok(differ == 0, "the same bits from 1 and 3 threads, other chunks, in memory and spilled (%d differ)", differ);
}

static void
test_corners(void)
{
	double		x[8] = {0, 0, 1, 1, 5, 5, 5, 5};
	int32_t		one[8] = {0};
	int32_t		each[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	int32_t		gap[8] = {0, 0, 0, 0, 2, 2, 2, 2};
	int32_t		alone[8] = {0, 0, 0, 0, 1, 1, 1, 3};
	TestHost	host;
	GkStore    *s;
	GkMeasures	m;
	GkError		err;

	test_host_init(&host, 1);
	s = load_store(&host, x, NULL, 8, 1, NULL, 1 << 16, 1 << 20, &err);
	(void) gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
	ok(gk_quality_labels(s, one, 1, 100, &m, &err) == GK_OK && m.k == 1 && isnan(m.silhouette) &&
	   isnan(m.simplified) && isnan(m.davies_bouldin) && isnan(m.calinski_harabasz),
	   "one cluster: nothing is defined");
	ok(gk_quality_labels(s, each, 8, 100, &m, &err) == GK_OK && m.k == 8 && isnan(m.silhouette) &&
	   isnan(m.simplified), "every point its own cluster: nothing is defined");
	ok(gk_quality_labels(s, gap, 3, 100, &m, &err) == GK_OK && m.k == 2 && m.sample == 8 &&
	   m.silhouette > 0.8 && m.davies_bouldin > 0 && isfinite(m.calinski_harabasz),
	   "a number without points is no cluster");
	ok(gk_quality_labels(s, alone, 4, 100, &m, &err) == GK_OK && m.k == 3 && isfinite(m.davies_bouldin) &&
	   isfinite(m.silhouette), "two clusters with the same mean");
	ok(gk_quality_labels(s, gap, 3, 0, &m, &err) == GK_OK && m.sample == 0 && isnan(m.silhouette) &&
	   m.simplified > 0.8, "without a sample there is no classical silhouette");
	gk_store_free(s);
	ok(host.live == 0, "all memory was given back");
	test_host_end(&host);
}

static void
test_sample(void)
{
	Data		p = {.n = 20000,.d = 2,.k = 3,.x = malloc(sizeof(double) * 40000)};
	uint64_t	rng = 3;
	TestHost	host;
	GkModel		model;
	Labels		labels;
	GkMeasures	all,
				some,
				again;
	GkError		err;

	for (int i = 0; i < p.n; i++)
		for (int j = 0; j < 2; j++)
			p.x[i * 2 + j] = (i % 3) * 4.0 * (j + 1) + test_normal(&rng);
	test_host_init(&host, 2);
	fit(&host, &p, NULL, &model, &labels);
	ok(evaluate(&host, &p, NULL, &model, NULL, 4000, 1 << 16, 1 << 30, &all, &err) == GK_OK &&
	   evaluate(&host, &p, NULL, &model, NULL, 1000, 1 << 16, 1 << 30, &some, &err) == GK_OK &&
	   evaluate(&host, &p, NULL, &model, NULL, 1000, 1 << 12, 0, &again, &err) == GK_OK, "samples");
	ok(some.sample == 1000 && some.silhouette != all.silhouette && fabs(some.silhouette - all.silhouette) < 0.03,
	   "a sample's silhouette is near (%.4f, %.4f)", some.silhouette, all.silhouette);
	ok(some.silhouette == again.silhouette, "the sample is always the same");
	gk_model_free(&host.host, &model);
	free(labels.label);
	free(labels.d2);
	free(p.x);
	test_host_end(&host);
}

/* Points stretched 9 : 4 : 1 ... along known directions. */
static void
test_pca(void)
{
	enum
	{
	N = 5000, D = 7};
	double	   *x = malloc(sizeof(double) * N * D);
	double		scale[D];
	uint64_t	rng = 5;
	TestHost	host;
	GkPca		pca;
	GkError		err;
	double		dot[2] = {0},
				length[2] = {0};
	double		a[9] = {2, 1, 0, 1, 2, 0, 0, 0, 5};
	double		value[3];
	double		v[9];

	gk_jacobi(a, 3, value, v);
	ok(fabs(value[0] - 5) < 1e-14 && fabs(value[1] - 3) < 1e-14 && fabs(value[2] - 1) < 1e-14 &&
	   fabs(fabs(v[3]) - sqrt(0.5)) < 1e-14 && fabs(v[3] - v[4]) < 1e-14,
	   "eigenvalues and vectors of a known matrix");
	for (int i = 0; i < N; i++)
	{
		double		p = 9 * test_normal(&rng),
					q = 4 * test_normal(&rng);

		/* along (0.6, -0.8, 0 ...) and (0.8, 0.6, 0 ...) */
		for (int j = 0; j < D; j++)
		{
			scale[j] = j + 1;
			x[i * D + j] = (j == 0 ? 100 + 0.6 * p + 0.8 * q : j == 1 ? -0.8 * p + 0.6 * q
							: test_normal(&rng)) / scale[j];
		}
	}
	test_host_init(&host, 1);
	ok(gk_pca(&host.host, x, N, D, scale, &pca, &err) == GK_OK, "principal components");
	for (int c = 0; c < 2; c++)
		for (int j = 0; j < D; j++)
		{
			dot[c] += pca.axis[c][j] * (c == 0 ? (j == 0 ? -0.6 : j == 1 ? 0.8 : 0)
										: (j == 0 ? 0.8 : j == 1 ? 0.6 : 0));
			length[c] += pca.axis[c][j] * pca.axis[c][j];
		}
	ok(dot[0] > 0.999 && dot[1] > 0.999 && fabs(length[0] - 1) < 1e-12 && fabs(length[1] - 1) < 1e-12,
	   "the directions of largest variance are found (%.5f, %.5f)", dot[0], dot[1]);
	ok(fabs(pca.share[0] - 81.0 / 102) < 0.02 && fabs(pca.share[1] - 16.0 / 102) < 0.02,
	   "with their share of the variance (%.3f, %.3f)", pca.share[0], pca.share[1]);
	gk_pca_free(&host.host, &pca);
	memset(x, 0, sizeof(double) * N * D);
	ok(gk_pca(&host.host, x, N, D, scale, &pca, &err) == GK_OK && pca.share[0] == 0, "points without variance");
	gk_pca_free(&host.host, &pca);
	ok(host.live == 0, "all memory was given back");
	free(x);
	test_host_end(&host);
}

static void
test_failures(void)
{
	uint64_t	rng = 11;
	Data		p = make_data(&rng, 0);
	TestHost	host;
	GkModel		model;
	Labels		labels;
	GkMeasures	m;
	GkError		err;
	int			failed = 0,
				wrong = 0,
				stopped = 0;

	test_host_init(&host, 1);
	fit(&host, &p, NULL, &model, &labels);
	for (int at = 1; at < 200; at++)
	{
		TestHost	bad;
		GkStatus	st;

		test_host_init(&bad, 1);
		bad.fail_at = at;
		st = evaluate(&bad, &p, NULL, &model, at % 2 ? labels.label : NULL, p.n, 4096, 1 << 30, &m, &err);
		failed += st == GK_ERR_MEMORY;
		wrong += (st != GK_OK && st != GK_ERR_MEMORY) || bad.live != 0;
		test_host_end(&bad);
	}
	ok(failed > 20 && wrong == 0, "%d failed allocations leave nothing behind", failed);
	for (int at = 1; at < 40; at++)
	{
		TestHost	bad;
		GkStatus	st;

		test_host_init(&bad, 1);
		bad.stop_at = at;
		st = evaluate(&bad, &p, NULL, &model, NULL, p.n, 4096, 0, &m, &err);
		stopped += st == GK_STOPPED;
		wrong += (st != GK_OK && st != GK_STOPPED) || bad.live != 0;
		test_host_end(&bad);
	}
	ok(stopped > 1 && wrong == 0, "%d stops leave nothing behind", stopped);
	p.x[0] = 1e300;
	ok(evaluate(&host, &p, NULL, &model, NULL, p.n, 4096, 1 << 30, &m, &err) == GK_ERR_RANGE,
	   "points beyond measure: %s", err.message);
	gk_model_free(&host.host, &model);
	free(labels.label);
	free(labels.d2);
	free(p.x);
	free(p.w);
	test_host_end(&host);
}

/* How often a host was asked whether to stop, and the time from which on it wants to; 0: never. */
static int64_t asked;
static int64_t stop_from;

static bool
count_stops(void *ctx)
{
	(void) ctx;
	return ++asked >= stop_from && stop_from > 0;
}

/* k means are compared with each other, which takes long: a host is asked by each, and heard at the last time, too. */
static void
test_many_clusters(void)
{
	const int	k = 1000;
	const int	n = 2 * k;
	double	   *x = malloc(n * sizeof(double));
	int32_t    *label = malloc(n * sizeof(int32_t));
	TestHost	host;
	GkStore    *s;
	GkMeasures	m;
	GkError		err;
	GkStatus	st;

	for (int i = 0; i < n; i++)
	{
		x[i] = i + i / 2;
		label[i] = i / 2;
	}
	test_host_init(&host, 1);
	s = load_store(&host, x, NULL, n, 1, NULL, 1 << 16, 1 << 20, &err);
	(void) gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
	host.host.stop = count_stops;
	st = gk_quality_labels(s, label, k, 0, &m, &err);
	ok(st == GK_OK && asked >= k, "%d clusters: the host is asked %lld times", k, (long long) asked);
	stop_from = asked;
	asked = 0;
	ok(gk_quality_labels(s, label, k, 0, &m, &err) == GK_STOPPED, "and heard at the last time");
	gk_store_free(s);
	test_host_end(&host);
	free(x);
	free(label);
}

/* A model of many numbers: a host is asked while they are prepared, and for each row that is compared with all of them. */
static void
test_many_numbers(void)
{
	enum
	{
		K = 1100, D = 1000, N = 64
	};
	double	   *x = malloc((size_t) K * D * sizeof(double));
	double	   *center = calloc(D, sizeof(double));
	double	   *scale = malloc(D * sizeof(double));
	int32_t    *expo = malloc(D * sizeof(int32_t));
	int32_t    *label = malloc(N * sizeof(int32_t));
	double	   *rows = malloc((size_t) N * D * sizeof(double));
	GkModel		model = {.k = K,.prep = {.d = D,.center = center,.scale = scale,.expo = expo},.centroids = x};
	TestHost	host;
	GkStore    *s;
	GkMeasures	m;
	int64_t		got;
	GkError		err;
	GkStatus	st;

	for (int i = 0; i < K * D; i++)
		x[i] = (int64_t) i * 7919 % 1009 / 1009.0;
	for (int j = 0; j < D; j++)
	{
		scale[j] = 1.0;
		expo[j] = 1;
	}
	test_host_init(&host, 1);
	s = load_store(&host, x, NULL, N, D, NULL, 1 << 20, 1 << 24, &err);
	host.host.stop = count_stops;
	stop_from = asked = 0;
	st = gk_quality_model(s, &model, 0, &m, &err);
	ok(st == GK_OK && asked > K + D + N, "%d numbers: the host is asked %lld times", K * D, (long long) asked);
	stop_from = asked / 2;
	asked = 0;
	ok(gk_quality_model(s, &model, 0, &m, &err) == GK_STOPPED, "and heard");
	stop_from = asked = 0;
	st = gk_quality_rows(s, &model, N, rows, label, &got, &err);
	ok(st == GK_OK && got == N && asked >= N, "rows to draw: the host is asked %lld times", (long long) asked);
	gk_store_free(s);
	ok(host.live == 0, "all memory was given back");
	test_host_end(&host);
	free(x);
	free(center);
	free(scale);
	free(expo);
	free(label);
	free(rows);
}

int
main(void)
{
	test_definitions();
	test_corners();
	test_sample();
	test_pca();
	test_failures();
	test_many_clusters();
	test_many_numbers();
	return done_testing();
}
