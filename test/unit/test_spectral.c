/*
 * Spectral clustering without a server: eigenvalues and eigenvectors against known spectra,
 * graphs and choices of k against their definitions, whole fits of moons and blobs, the same
 * bits whatever the threads, and every failure.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/spectral/gk_eigen.h"
#include "core/spectral/gk_spectral.h"
#include "gk_test.h"
#include "gk_testhost.h"

static const double pi = 3.14159265358979323846;

/* ---- eigenvalues ---- */

typedef struct Spectrum
{
	int			n;
	int			m;
	double	   *a;				/* the matrix */
	double	   *value;
	double	   *vector;
	GkStatus	st;
} Spectrum;

static Spectrum
solve_matrix(int n, int m, double (*element) (int i, int j, int n), int threads)
{
	Spectrum	s = {.n = n,.m = m};
	size_t		stride = gk_eigen_stride(n);
	double	   *a = calloc(n * stride, sizeof(double));
	TestHost	t;
	GkError		err;

	s.a = calloc(n * stride, sizeof(double));
	s.value = calloc(m, sizeof(double));
	s.vector = calloc(m * stride, sizeof(double));
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			s.a[i * stride + j] = a[i * stride + j] = element(i, j, n);
	test_host_init(&t, threads);
	s.st = gk_eigen_smallest(&t.host, a, n, m, s.value, s.vector, &err);
	test_host_end(&t);
	free(a);
	return s;
}

static void
free_spectrum(Spectrum *s)
{
	free(s->a);
	free(s->value);
	free(s->vector);
}

/* The largest element of A x - value x, and of X'X - I. */
static void
defects(const Spectrum *s, double *residual, double *skew)
{
	size_t		stride = gk_eigen_stride(s->n);

	*residual = *skew = 0.0;
	for (int i = 0; i < s->m; i++)
	{
		const double *x = s->vector + i * stride;

		for (int r = 0; r < s->n; r++)
		{
			double		t = -s->value[i] * x[r];

			for (int c = 0; c < s->n; c++)
				t += s->a[r * stride + c] * x[c];
			*residual = fmax(*residual, fabs(t));
		}
		for (int j = 0; j <= i; j++)
		{
			double		t = i == j ? -1.0 : 0.0;

			for (int c = 0; c < s->n; c++)
				t += x[c] * s->vector[j * stride + c];
			*skew = fmax(*skew, fabs(t));
		}
	}
}

static double
path(int i, int j, int n)
{
	return i == j ? (i == 0 || i == n - 1 ? 1.0 : 2.0) : abs(i - j) == 1 ? -1.0 : 0.0;
}

static double
path_value(int i, int n)
{
	return 2.0 - 2.0 * cos(pi * i / n);
}

static double
ring(int i, int j, int n)
{
	return i == j ? 2.0 : abs(i - j) == 1 || abs(i - j) == n - 1 ? -1.0 : 0.0;
}

static double
ring_value(int i, int n)
{
	return 2.0 - 2.0 * cos(2.0 * pi * ((i + 1) / 2) / n);
}

static double
complete(int i, int j, int n)
{
	return i == j ? n - 1.0 : -1.0;
}

static double
complete_value(int i, int n)
{
	return i == 0 ? 0.0 : n;
}

/* I - 2 u u' of a unit vector: dense, one eigenvalue -1, the others 1. */
static double
mirror(int i, int j, int n)
{
	return (i == j ? 1.0 : 0.0) - 2.0 / n;
}

static double
mirror_value(int i, int n)
{
	(void) n;
	return i == 0 ? -1.0 : 1.0;
}

static double
zero(int i, int j, int n)
{
	(void) i;
	(void) j;
	(void) n;
	return 0.0;
}

static double
zero_value(int i, int n)
{
	(void) i;
	(void) n;
	return 0.0;
}

static void
test_known_spectra(void)
{
	static const struct
	{
		const char *name;
		double		(*element) (int i, int j, int n);
		double		(*value) (int i, int n);
	}			known[] = {
		{"path", path, path_value}, {"ring", ring, ring_value}, {"complete graph", complete, complete_value},
		{"reflection", mirror, mirror_value}, {"zeros", zero, zero_value}
	};
	static const int sizes[] = {1, 2, 3, 7, 8, 9, 64, 205};

	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
		for (size_t z = 0; z < sizeof(sizes) / sizeof(sizes[0]); z++)
		{
			int			n = sizes[z];
			Spectrum	s;
			double		worst = 0.0;
			double		norm = 1.0;
			double		residual;
			double		skew;

			/* one and two nodes are no rings */
			if (n < 3 && (known[k].element == ring || known[k].element == path))
				continue;
			s = solve_matrix(n, n < 20 ? n : 20, known[k].element, 1);
			for (int i = 0; i < s.m; i++)
			{
				norm = fmax(norm, fabs(known[k].value(n - 1, n)));
				worst = fmax(worst, fabs(s.value[i] - known[k].value(i, n)));
			}
			defects(&s, &residual, &skew);
			ok(s.st == GK_OK && worst <= 1e-13 * norm && residual <= 1e-12 * norm && skew <= 1e-12,
			   "%s of %d: eigenvalues within %.0e, residual %.0e, orthogonal within %.0e",
			   known[k].name, n, worst, residual, skew);
			free_spectrum(&s);
		}
}

static void
test_signs_and_threads(void)
{
	Spectrum	a = solve_matrix(300, 12, path, 1);
	Spectrum	b = solve_matrix(300, 12, path, 3);
	size_t		stride = gk_eigen_stride(300);
	bool		positive = true;

	for (int i = 0; i < 12; i++)
	{
		double		largest = 0.0;

		for (int c = 0; c < 300; c++)
			if (fabs(a.vector[i * stride + c]) > fabs(largest))
				largest = a.vector[i * stride + c];
		positive = positive && largest > 0.0;
	}
	ok(positive, "the first of the largest elements is positive");
	ok(memcmp(a.value, b.value, 12 * sizeof(double)) == 0 &&
	   memcmp(a.vector, b.vector, 12 * stride * sizeof(double)) == 0, "one thread and three: the same bits");
	free_spectrum(&a);
	free_spectrum(&b);
}

static void
test_exp(void)
{
	double		worst = 0.0;

	for (double x = 0.0; x < 700.0; x += 0.37)
		worst = fmax(worst, fabs(gk_exp_minus(x) / exp(-x) - 1.0));
	ok(worst < 1e-15, "exp(-x) within %.1e", worst);
	ok(gk_exp_minus(0.0) == 1.0 && gk_exp_minus(1e9) == 0.0 && gk_exp_minus(INFINITY) == 0.0, "exp(-x) at its ends");
}

/* ---- the choice of k ---- */

static void
check_choice(const char *name, const double *value, int components, int k, GkChoice choice)
{
	GkChoice	got;
	double		strength;
	int			found = gk_choose_k(value, 18, components, 1.0, &got, &strength);

	ok(found == k && got == choice && strength >= 0.0 && strength <= 1.0,
	   "%s: k = %d by rule %d, strength %.3f", name, found, (int) got, strength);
}

static void
test_choice(void)
{
	static const double flat[18] = {0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7};
	static const double moons[18] = {0, 0, .002, .002, .006, .007, .014, .015, .025, .026, .038, .041, .056, .061, .074, .082, .09, .1};
	static const double blobs[18] = {0, 0, .001, .006, .019, .064, .07, .073, .076, .077, .08, .081, .092, .1, .142, .189, .2, .21};
	static const double digits[18] = {0, .0025, .0051, .0066, .0077, .0079, .0137, .0172, .0198, .0227, .0271, .0423, .051, .0586, .0602, .0668, .0692, .075};
	static const double sure[18] = {0, .0001, .02, .04, .07, .1, .12, .14, .16, .18, .2, .22, .24, .26, .28, .3, .32, .34};
	double		strength;
	GkChoice	choice;

	check_choice("two curves", moons, 2, 2, GK_CHOICE_COMPONENTS);
	check_choice("blobs of which some touch", blobs, 2, 5, GK_CHOICE_LAST_GAP);
	check_choice("handwriting", digits, 1, 11, GK_CHOICE_GAP);
	check_choice("two almost apart", sure, 1, 2, GK_CHOICE_POWER_GAP);
	ok(gk_choose_k(flat, 18, 1, 1.0, &choice, &strength) >= 2 && strength < 0.5, "no gap: strength %.3f", strength);
	ok(gk_choose_k(flat, 1, 1, 1.0, &choice, &strength) == 1 && strength == 0.0, "one representative: k = 1");
	ok(gk_choose_k(flat, 2, 1, 1.0, &choice, &strength) == 1, "two representatives: k = 1");
	ok(gk_power_gap(moons, 2, 1.0) > 0.99 && gk_power_gap(flat, 16, 1.0) == 0.0, "power gaps at their ends");
}

/* ---- whole fits ---- */

/* Two half circles, interleaved. */
static double *
moons_of(int n, uint64_t *state)
{
	double	   *x = malloc(2 * n * sizeof(double));

	for (int i = 0; i < n; i++)
	{
		double		t = pi * test_uniform(state);

		x[2 * i] = (i % 2 ? 1.0 - cos(t) : cos(t)) + 0.03 * test_normal(state);
		x[2 * i + 1] = (i % 2 ? 0.5 - sin(t) : sin(t)) + 0.03 * test_normal(state);
	}
	return x;
}

typedef struct Fitted
{
	GkStatus	st;
	GkModel		m;
	int32_t    *label;
} Fitted;

static Fitted
fit_points(TestHost *t, const double *x, int n, int d, int p, const GkSpectralOptions *o)
{
	GkOptions	options = {.k = p,.n_init = 1,.max_iter = 20,.tol = 1e-4};
	Fitted		f = {.label = calloc(n, sizeof(int32_t))};
	float	   *d2 = calloc(n, sizeof(float));
	Labels		l = {f.label, d2, 0};
	GkLabelSink sink = test_sink(&l);
	GkError		err;
	GkStore    *s = load_store(t, x, NULL, n, d, NULL, 1 << 16, 1 << 30, &err);

	f.st = s != NULL ? gk_store_prepare(s, GK_EUCLIDEAN, false, &err) : err.code;
	if (f.st == GK_OK)
		f.st = gk_spectral_fit(s, &gk_cpu_backend, &options, o, &sink, &f.m, &err);
	if (s != NULL)
		gk_store_free(s);
	free(d2);
	return f;
}

static void
free_fitted(TestHost *t, Fitted *f)
{
	if (f->st == GK_OK)
		gk_model_free(&t->host, &f->m);
	free(f->label);
}

/* Rows whose label is not that of the first row with the same truth, i % k. */
static int
wrong_labels(const Fitted *f, int n, int k)
{
	int			wrong = 0;

	for (int i = 0; i < n; i++)
		wrong += f->label[i] != f->label[i % k];
	for (int a = 0; a < k; a++)
		for (int b = 0; b < a; b++)
			wrong += f->label[a] == f->label[b] ? n : 0;
	return wrong;
}

static void
test_moons(void)
{
	static const char *const names[] = {"symmetric", "random walk", "unnormalized"};
	uint64_t	state = 7;
	int			n = 3000;
	double	   *x = moons_of(n, &state);
	TestHost	t;

	test_host_init(&t, 2);
	for (int kind = 0; kind < 3; kind++)
		for (int affinity = 0; affinity < 2; affinity++)
			for (int k = 0; k <= 2; k += 2)
			{
				GkSpectralOptions o = {k, 10, (GkAffinity) affinity, affinity ? 200.0 : 0.0, (GkLaplacian) kind};
				Fitted		f = fit_points(&t, x, n, 2, 200, &o);

				ok(f.st == GK_OK && f.m.spectral.k == 2 && wrong_labels(&f, n, 2) == 0 && f.m.spectral.strength > 0.9,
				   "two moons, %s%s%s: k = %d, strength %.3f", names[kind], affinity ? ", rbf" : "",
				   k ? ", k given" : "", f.m.spectral.k, f.m.spectral.strength);
				free_fitted(&t, &f);
			}
	test_host_end(&t);
	ok(t.live == 0, "nothing is left in memory");
	free(x);
}

/* Labels, numbers and eigenvalues of one fit with one thread and with three. */
static void
test_same_bits(void)
{
	uint64_t	state = 3;
	double	   *x = random_points(&state, TEST_BLOBS, 2000, 5);
	GkSpectralOptions o = {.neighbors = 10};
	TestHost	one,
				three;
	Fitted		a,
				b;

	test_host_init(&one, 1);
	test_host_init(&three, 3);
	a = fit_points(&one, x, 2000, 5, 300, &o);
	b = fit_points(&three, x, 2000, 5, 300, &o);
	ok(a.st == GK_OK && b.st == GK_OK && a.m.spectral.k == b.m.spectral.k &&
	   a.m.spectral.neigenvalues == b.m.spectral.neigenvalues &&
	   memcmp(a.m.spectral.eigenvalue, b.m.spectral.eigenvalue, a.m.spectral.neigenvalues * sizeof(double)) == 0 &&
	   memcmp(a.label, b.label, 2000 * sizeof(int32_t)) == 0, "one thread and three: the same clusters");
	free_fitted(&one, &a);
	free_fitted(&three, &b);
	test_host_end(&one);
	test_host_end(&three);
	free(x);
}

/* Three far blobs of which one is a few outliers. */
static void
test_parts(void)
{
	uint64_t	state = 11;
	int			n = 4002;
	double	   *x = malloc(2 * n * sizeof(double));
	GkSpectralOptions o = {.neighbors = 5};
	TestHost	t;
	Fitted		f;

	for (int i = 0; i < n; i++)
	{
		x[2 * i] = test_normal(&state) + (i % 4) * 100.0;
		x[2 * i + 1] = test_normal(&state);
	}
	for (int i = 4000; i < n; i++)
		x[2 * i] = 5e4 + 300.0 * i;
	test_host_init(&t, 1);
	o.neighbors = 1;
	f = fit_points(&t, x, n, 2, 6, &o);
	ok(f.st == GK_OK && f.m.spectral.cut_off == 1 && f.m.spectral.components >= 1,
	   "two outliers with an edge between them: %d cut off, %d components", f.m.spectral.cut_off, f.m.spectral.components);
	free_fitted(&t, &f);

	o.neighbors = 10;
	f = fit_points(&t, x, 4000, 2, 200, &o);
	ok(f.st == GK_OK && f.m.spectral.k == 4 && f.m.spectral.choice == GK_CHOICE_COMPONENTS &&
	   f.m.spectral.components == 4 && wrong_labels(&f, 4000, 4) == 0, "four components: k = %d", f.m.spectral.k);
	free_fitted(&t, &f);
	o.k = 2;
	f = fit_points(&t, x, 4000, 2, 200, &o);
	ok(f.st == GK_OK && f.m.spectral.k == 2 && f.m.spectral.components == 4 && f.m.spectral.eigenvalue[2] > 0.0,
	   "k = 2 of four components: the nearest are joined");
	free_fitted(&t, &f);
	o.k = 50;
	f = fit_points(&t, x, 4000, 2, 20, &o);
	ok(f.st == GK_OK && f.m.spectral.k <= 20 && f.m.spectral.k > 10, "k = 50 of 20 representatives: %d", f.m.spectral.k);
	free_fitted(&t, &f);

	/* clusters are numbered by their points, the largest first */
	o.k = 3;
	f = fit_points(&t, x, 3001, 2, 100, &o);
	if (ok(f.st == GK_OK && f.m.spectral.k == 3, "three clusters"))
	{
		int64_t		size[3];
		double		mass[3],
					centroid[6],
					inertia[3],
					radius[3];
		GkSpectralClusters c = {size, mass, centroid, inertia, radius};
		double		sum = 0.0;

		gk_spectral_clusters(&f.m, &c);
		for (int i = 0; i < 3; i++)
			sum += inertia[i];
		ok(size[0] >= size[1] && size[1] >= size[2] && size[0] + size[1] + size[2] == 3001 &&
		   fabs(sum / f.m.inertia - 1.0) < 1e-12, "sizes " "%d, %d, %d", (int) size[0], (int) size[1], (int) size[2]);
	}
	free_fitted(&t, &f);
	test_host_end(&t);
	free(x);
}

/* ---- the scan ---- */

#define SCAN_MAX	6

/* The silhouette by its definition, each representative as often as it has points. */
static double
plain_silhouette(const GkModel *m, const GkSpace *space, const int32_t *cluster, int k)
{
	double		total = 0.0;
	int64_t		rows = 0;

	for (int i = 0; i < m->k; i++)
	{
		double		a[SCAN_MAX];
		double		b[SCAN_MAX];
		double		sum[SCAN_MAX] = {0};
		int64_t		mass[SCAN_MAX] = {0};
		double		own;
		double		other = INFINITY;

		gk_space_row(space, k, i, a);
		for (int j = 0; j < m->k; j++)
		{
			double		d2 = 0.0;

			gk_space_row(space, k, j, b);
			for (int c = 0; c < k; c++)
				d2 += (a[c] - b[c]) * (a[c] - b[c]);
			sum[cluster[j]] += (double) m->size[j] * sqrt(d2);
			mass[cluster[j]] += m->size[j];
		}
		own = sum[cluster[i]] / (double) (mass[cluster[i]] - 1);
		for (int c = 0; c < k; c++)
			if (c != cluster[i] && mass[c] > 0)
				other = fmin(other, sum[c] / (double) mass[c]);
		total += (double) m->size[i] * (other == own ? 0.0 : (other - own) / fmax(own, other));
		rows += m->size[i];
	}
	return total / (double) rows;
}

static void
test_scan(void)
{
	uint64_t	state = 21;
	int			n = 4000;
	double	   *x = malloc(2 * n * sizeof(double));
	struct GkSpectralScanRow row[40];
	GkSpectralScan scan = {.row = row};
	GkSpectralOptions o = {.neighbors = 10};
	int32_t		cluster[200];
	int			found;
	int			failed = 0;
	GkStatus	st = GK_ERR_MEMORY;
	GkSpace		space;
	TestHost	t;
	Fitted		f;
	GkError		err;

	/* four clusters, of which two nearly touch */
	for (int i = 0; i < n; i++)
	{
		x[2 * i] = test_normal(&state) + (i % 4 == 3 ? 5.0 : i % 4 * 100.0);
		x[2 * i + 1] = test_normal(&state);
	}
	test_host_init(&t, 3);
	f = fit_points(&t, x, n, 2, 200, &o);
	ok(f.st == GK_OK && gk_spectral_scan(&t.host, &f.m, 1, SCAN_MAX, &scan, &err) == GK_OK && scan.n == SCAN_MAX &&
	   row[0].k == 1 && isnan(row[0].silhouette) && row[0].value == 0.0 && scan.gap >= 0 && row[scan.gap].k == f.m.spectral.k,
	   "a scan suggests the fit's k = %d", f.m.spectral.k);
	ok(scan.silhouette > 0 && row[f.m.spectral.components - 1].silhouette > 0.999,
	   "in %d components: silhouette %.4f", f.m.spectral.components, row[f.m.spectral.components - 1].silhouette);
	ok(gk_space_graph(&t.host, &f.m, &o, &space, &err) == GK_OK && gk_space_solve(&t.host, &space, SCAN_MAX, &err) == GK_OK &&
	   gk_spectral_embed(&t.host, &space, 5, f.m.seed, cluster, &found, &err) == GK_OK, "its space");
	ok(fabs(plain_silhouette(&f.m, &space, cluster, 5) - row[4].silhouette) < 1e-12,
	   "five clusters: silhouette %.6f, by its definition %.6f", row[4].silhouette, plain_silhouette(&f.m, &space, cluster, 5));
	gk_space_free(&t.host, &space);
	ok(gk_spectral_scan(&t.host, &f.m, 190, 220, &scan, &err) == GK_OK && scan.n == 11 && row[10].k == 200 &&
	   isnan(row[10].gap) && isnan(row[10].strength) && scan.gap == -1, "as many clusters as representatives: %d rows", scan.n);
	ok(gk_spectral_scan(&t.host, &f.m, 201, 220, &scan, &err) == GK_OK && scan.n == 0 && scan.silhouette == -1, "and more: none");

	for (int64_t at = 1; st != GK_OK && at < 1000; at++)
	{
		int64_t		live = t.live;

		t.fail_at = t.allocs + at;
		st = gk_spectral_scan(&t.host, &f.m, 2, 4, &scan, &err);
		failed += st == GK_ERR_MEMORY && t.live == live;
		if (st != GK_OK && (st != GK_ERR_MEMORY || t.live != live))
			break;
	}
	ok(st == GK_OK && failed > 10, "each of %d allocations of a scan failed, and nothing was left", failed);
	t.fail_at = 0;
	free_fitted(&t, &f);
	test_host_end(&t);
	free(x);
}

static void
test_small(void)
{
	double		x[16] = {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 9, 9, 9, 9, 9, 9};
	static const int rows[] = {1, 4, 5, 8};
	TestHost	t;

	test_host_init(&t, 1);
	for (int affinity = 0; affinity < 2; affinity++)
		for (int i = 0; i < 4; i++)
			for (int k = 0; k <= 3; k += 3)
			{
				GkSpectralOptions o = {.k = k,.neighbors = 10,.affinity = (GkAffinity) affinity};
				Fitted		f = fit_points(&t, x, rows[i], 2, 5, &o);

				ok(f.st == GK_OK && f.m.spectral.k >= 1 && f.m.spectral.k <= f.m.k && f.m.k <= 3,
				   "%d rows, %d distinct, k %d: %d clusters", rows[i], f.m.k, k, f.m.spectral.k);
				free_fitted(&t, &f);
			}
	test_host_end(&t);
}

static void
test_failures(void)
{
	uint64_t	state = 5;
	double	   *x = moons_of(400, &state);
	GkSpectralOptions o = {.neighbors = 5};
	int			failed = 0;
	int			other = 0;
	int			stopped = 0;
	int64_t		left = 0;
	GkStatus	st = GK_ERR_MEMORY;
	GkModel		m = {.k = GK_MAX_REPRESENTATIVES + 1};
	GkError		err;
	TestHost	t;

	for (int64_t at = 1; st != GK_OK && at < 1000; at++)
	{
		Fitted		f;

		test_host_init(&t, 1);
		t.fail_at = at;
		f = fit_points(&t, x, 400, 2, 40, &o);
		st = f.st;
		if (st == GK_ERR_MEMORY)
			failed++;
		else if (st != GK_OK)
			other++;
		free_fitted(&t, &f);
		left += t.live;
		test_host_end(&t);
	}
	ok(st == GK_OK && failed > 30 && other == 0 && left == 0,
	   "each of %d allocations failed, %d with another error, and nothing was left", failed + other, other);
	st = GK_STOPPED;
	for (int64_t at = 1; st != GK_OK && at < 1000; at++)
	{
		Fitted		f;

		test_host_init(&t, 1);
		t.stop_at = at;
		f = fit_points(&t, x, 400, 2, 40, &o);
		st = f.st;
		stopped += st == GK_STOPPED;
		free_fitted(&t, &f);
		left += t.live;
		test_host_end(&t);
	}
	ok(st == GK_OK && stopped > 10 && left == 0, "stopped at each of %d polls, and nothing was left", stopped);
	test_host_init(&t, 1);
	ok(gk_spectral_cluster(&t.host, &o, &m, &err) == GK_ERR_LIMIT, "too many representatives: %s", err.message);
	gk_model_free(&t.host, &m);
	test_host_end(&t);
	free(x);
}

int
main(void)
{
	test_known_spectra();
	test_signs_and_threads();
	test_exp();
	test_choice();
	test_moons();
	test_same_bits();
	test_parts();
	test_scan();
	test_small();
	test_failures();
	return done_testing();
}
