/*
 * The CPU backend's passes against plain loops, bit for bit: every instruction
 * set, thread count and Feature Sum, resident and spilled points, many rounds.
 * And the parallel loop below them: jobs, stop, signals.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/gk_backend.h"
#include "core/gk_numerics.h"
#include "core/store/gk_store.h"
#include "cpu/simd/gk_cpu_kernels.h"
#include "gk_test.h"
#include "gk_testhost.h"

static uint64_t rng = 7;

static int
pick(int lo, int hi)
{
	return test_pick(&rng, lo, hi);
}

/* ---- plain results ---- */

typedef struct Plain
{
	int			n,
				d,
				k;
	bool		weighted;
	const GkPoints *pts;
	float	   *x;				/* [n][d] prepared */
	float	   *w;				/* [n], all 1 without weights */
	float	   *c;				/* [k][d] */
	int32_t    *label;
	float	   *d2;
} Plain;

static float
distance(const Plain *p, int64_t row, const float *c)
{
	float		s = 0.0f;

	for (int j = 0; j < p->d; j++)
	{
		float		t = p->x[row * p->d + j] - c[j];

		s = fmaf(t, t, s);
	}
	return s;
}

static void
assign(Plain *p)
{
	for (int i = 0; i < p->n; i++)
	{
		p->label[i] = 0;
		p->d2[i] = INFINITY;
		for (int k = 0; k < p->k; k++)
		{
			float		s = distance(p, i, p->c + (size_t) k * p->d);

			if (s < p->d2[i])
			{
				p->d2[i] = s;
				p->label[i] = k;
			}
		}
	}
}

/* Points back from the store, centroids among and near them. */
static Plain
plain(GkStore *store, int k)
{
	const GkPoints *pts = gk_store_points(store);
	Plain		p = {.n = (int) pts->n,.d = pts->d,.k = k,.weighted = pts->weighted,.pts = pts};

	p.x = malloc(sizeof(float) * p.n * p.d);
	p.w = malloc(sizeof(float) * p.n);
	p.c = malloc(sizeof(float) * k * p.d);
	p.label = malloc(sizeof(int32_t) * p.n);
	p.d2 = malloc(sizeof(float) * p.n);
	for (int i = 0; i < pts->nchunks; i++)
	{
		GkChunk		view;
		GkError		err;

		gk_chunk_open(store, i, GK_READ_FEATURES, &view, &err);
		for (int r = 0; r < view.rows; r++)
		{
			for (int j = 0; j < p.d; j++)
				p.x[(view.first + r) * p.d + j] = view.data[(size_t) j * view.stride + r];
			p.w[view.first + r] = pts->weighted ? gk_chunk_weight(pts, &view)[r] : 1.0f;
		}
		gk_chunk_close(store, i, &view, false, &err);
	}
	for (int i = 0; i < k; i++)
		for (int j = 0, row = pick(0, p.n - 1), exact = pick(0, 1); j < p.d; j++)
			p.c[i * p.d + j] = p.x[(size_t) row * p.d + j] * (exact ? 1.0f : 1.0f + (float) test_normal(&rng) * 0.3f);
	return p;
}

static void
plain_free(Plain *p)
{
	free(p->x);
	free(p->w);
	free(p->c);
	free(p->label);
	free(p->d2);
}

static gk_int128
plain_phi(const Plain *p, const float *d2)
{
	gk_int128	phi = 0;

	for (int i = 0; i < p->n; i++)
		phi += gk_d2_fixed((double) p->w[i] * (double) d2[i], gk_pow2(40 - p->pts->d2_expo));
	return phi;
}

/* ---- step and finish ---- */

typedef struct Arrays
{
	GkStep		step;
	GkFinish	fin;
} Arrays;

static Arrays
arrays(int k, int d)
{
	Arrays		a = {0};

	a.step.sum = malloc(sizeof(gk_int128) * k * d);
	a.step.mass = malloc(sizeof(gk_int128) * k);
	a.step.count = malloc(sizeof(int64_t) * k);
	a.fin.count = malloc(sizeof(int64_t) * k);
	a.fin.inertia = malloc(sizeof(gk_int128) * k);
	a.fin.max_d2 = malloc(sizeof(float) * k);
	return a;
}

static void
arrays_free(Arrays *a)
{
	free(a->step.sum);
	free(a->step.mass);
	free(a->step.count);
	free(a->fin.count);
	free(a->fin.inertia);
	free(a->fin.max_d2);
}

static Arrays
plain_arrays(const Plain *p)
{
	Arrays		a = arrays(p->k, p->d);

	memset(a.step.sum, 0, sizeof(gk_int128) * p->k * p->d);
	memset(a.step.mass, 0, sizeof(gk_int128) * p->k);
	memset(a.step.count, 0, sizeof(int64_t) * p->k);
	memset(a.fin.inertia, 0, sizeof(gk_int128) * p->k);
	memset(a.fin.max_d2, 0, sizeof(float) * p->k);
	for (int i = 0; i < p->n; i++)
	{
		int			k = p->label[i];
		int64_t		w = p->weighted ? gk_fixed(p->w[i], 0x1p40) : 1;

		a.step.count[k]++;
		a.step.mass[k] += w;
		for (int j = 0; j < p->d; j++)
			a.step.sum[(size_t) k * p->d + j] +=
				(gk_int128) w * gk_fixed(p->x[(size_t) i * p->d + j], gk_pow2(40 - p->pts->prep.expo[j]));
		a.fin.inertia[k] += gk_d2_fixed((double) p->w[i] * (double) p->d2[i], gk_pow2(40 - p->pts->d2_expo));
		if (p->d2[i] > a.fin.max_d2[k])
			a.fin.max_d2[k] = p->d2[i];
	}
	memcpy(a.fin.count, a.step.count, sizeof(int64_t) * p->k);
	return a;
}

static bool
same_step(const Arrays *a, const Arrays *b, int k, int d)
{
	return memcmp(a->step.sum, b->step.sum, sizeof(gk_int128) * k * d) == 0 &&
		memcmp(a->step.mass, b->step.mass, sizeof(gk_int128) * k) == 0 &&
		memcmp(a->step.count, b->step.count, sizeof(int64_t) * k) == 0;
}

static bool
same_finish(const Arrays *a, const Arrays *b, int k)
{
	return memcmp(a->fin.count, b->fin.count, sizeof(int64_t) * k) == 0 &&
		memcmp(a->fin.inertia, b->fin.inertia, sizeof(gk_int128) * k) == 0 &&
		memcmp(a->fin.max_d2, b->fin.max_d2, sizeof(float) * k) == 0;
}

/* ---- seeding ---- */

/*
 * What the seeding passes do in turn: update with two thirds of the centroids, look
 * at some others, update with one of those.
 */
typedef struct Seeding
{
	gk_int128	phi[3];
	gk_int128	pot[8];
	GkPick	   *pick[4];		/* one, some, more than have D > 0, without D */
	int			got[4];
	int64_t		far;
	int			ties;			/* wrong rows where all keys are the same */
} Seeding;

static int
wanted(const Plain *p, int which)
{
	return which == 0 ? 1 : which == 1 ? 20 : which == 2 ? p->n + 5 : p->n / 2 + 1;
}

static int
by_key(const void *va, const void *vb)
{
	const GkPick *a = va;
	const GkPick *b = vb;

	return a->key != b->key ? (a->key < b->key ? -1 : 1) : (a->row > b->row) - (a->row < b->row);
}

static bool
plain_farther(const Plain *p, const float *D, int64_t a, int64_t b)
{
	if (D[a] != D[b])
		return D[a] > D[b];
	for (int j = 0; j < p->d; j++)
		if (p->x[a * p->d + j] != p->x[b * p->d + j])
			return p->x[a * p->d + j] < p->x[b * p->d + j];
	return a < b;
}

static void
seeding_free(Seeding *s)
{
	for (int i = 0; i < 4; i++)
		free(s->pick[i]);
}

static int
candidates(const Plain *p)
{
	return p->k < 8 ? p->k : 8;
}

static Seeding
plain_seeding(const Plain *p, uint64_t key)
{
	Seeding		s;
	float	   *D = malloc(sizeof(float) * p->n);
	float	   *t = malloc(sizeof(float) * p->n);
	float	   *next = malloc(sizeof(float) * p->n);

	for (int i = 0; i < p->n; i++)
		D[i] = INFINITY;
	for (int part = 0; part < 2; part++)
	{
		for (int k = part * p->k / 3; k < (part + 1) * p->k / 3; k++)
			for (int i = 0; i < p->n; i++)
				D[i] = fminf(D[i], distance(p, i, p->c + (size_t) k * p->d));
		s.phi[part] = plain_phi(p, D);
	}
	for (int k = 0; k < candidates(p); k++)
	{
		for (int i = 0; i < p->n; i++)
			t[i] = fminf(D[i], distance(p, i, p->c + (size_t) (p->k - 1 - k) * p->d));
		s.pot[k] = plain_phi(p, t);
		if (k == candidates(p) / 2)
			memcpy(next, t, sizeof(float) * p->n);
	}
	memcpy(D, next, sizeof(float) * p->n);
	s.phi[2] = plain_phi(p, D);
	for (int which = 0; which < 4; which++)
	{
		s.pick[which] = malloc(sizeof(GkPick) * (p->n + 5));
		s.got[which] = 0;
		for (int i = 0; i < p->n; i++)
		{
			double		w = (double) p->w[i] * (which < 3 ? (double) D[i] : 1.0);

			if (w > 0.0)
				s.pick[which][s.got[which]++] = (GkPick) {gk_race_key(gk_hash(key, i), w), i};
		}
		qsort(s.pick[which], s.got[which], sizeof(GkPick), by_key);
		if (s.got[which] > wanted(p, which))
			s.got[which] = wanted(p, which);
	}
	s.ties = 0;
	s.far = 0;
	for (int i = 1; i < p->n; i++)
		if (plain_farther(p, D, i, s.far))
			s.far = i;
	if (D[s.far] == 0.0f)
		s.far = -1;
	free(D);
	free(t);
	free(next);
	return s;
}

static Seeding
backend_seeding(const Plain *p, GkSession *session, uint64_t key, GkStatus *status)
{
	const GkBackend *b = &gk_cpu_backend;
	Seeding		s;
	GkError		err;
	GkStatus	st = b->seed_begin(session, &err);
	float	   *reverse = malloc(sizeof(float) * p->k * p->d);

	/* Before any update all keys are 0 and the rows alone decide. */
	s.pick[0] = malloc(sizeof(GkPick) * (p->n + 5));
	if (st == GK_OK)
		st = b->seed_race(session, key, true, 20, s.pick[0], &s.got[0], &err);
	s.ties = s.got[0] != (p->n < 20 ? p->n : 20);
	for (int i = 0; i < s.got[0]; i++)
		s.ties += s.pick[0][i].key != 0.0 || s.pick[0][i].row != i;
	free(s.pick[0]);

	for (int k = 0; k < p->k; k++)
		memcpy(reverse + (size_t) k * p->d, p->c + (size_t) (p->k - 1 - k) * p->d, sizeof(float) * p->d);
	for (int part = 0; part < 2; part++)
	{
		int			k0 = part * p->k / 3;
		int			k1 = (part + 1) * p->k / 3;

		if (st == GK_OK)
			st = b->seed_update(session, p->c + (size_t) k0 * p->d, k1 - k0, &s.phi[part], &err);
	}
	if (st == GK_OK)
		st = b->seed_eval(session, reverse, candidates(p), s.pot, &err);
	if (st == GK_OK)
		st = b->seed_update(session, reverse + (size_t) (candidates(p) / 2) * p->d, 1, &s.phi[2], &err);
	if (key % 3 == 0)			/* else the first race does it */
		st = b->seed_far(session, &s.far, &err);
	for (int which = 0; which < 4; which++)
	{
		s.pick[which] = malloc(sizeof(GkPick) * (p->n + 5));
		if (st == GK_OK)
			st = b->seed_race(session, key, which < 3, wanted(p, which), s.pick[which], &s.got[which], &err);
	}
	if (st == GK_OK)
		st = b->seed_far(session, &s.far, &err);
	b->seed_end(session);
	free(reverse);
	*status = st;
	return s;
}

static bool
same_seeding(const Seeding *a, const Seeding *b, int m)
{
	bool		same = memcmp(a->phi, b->phi, sizeof(a->phi)) == 0 && a->far == b->far && a->ties == b->ties &&
	memcmp(a->pot, b->pot, m * sizeof(gk_int128)) == 0;

	for (int i = 0; i < 4; i++)
		same = same && a->got[i] == b->got[i] &&
			memcmp(a->pick[i], b->pick[i], a->got[i] * sizeof(GkPick)) == 0;
	return same;
}

/* ---- the sweep over problems and ways to run them ---- */

static GkStore *
random_store(TestHost *host, int number, size_t chunk, size_t limit, int *k)
{
	int			d = number % 3 == 0 ? pick(1, 8) : number % 3 == 1 ? pick(9, 40) : pick(1, 140);
	int			n = pick(1, 12000);
	uint64_t	state = 1000 + number;
	double	   *x,
			   *w = NULL;
	GkStore    *store;
	GkError		err;

	*k = number % 4 == 0 ? pick(1, 4) : number % 4 == 1 ? pick(5, 16) : pick(1, 150);
	while ((double) n * d * *k > 3e6)
		n = (n + 1) / 2;
	x = malloc(sizeof(double) * n * d);
	for (int i = 0; i < n * d; i++)
		x[i] = number % 5 == 0 ? floor(3 * test_uniform(&state)) : test_normal(&state) + 4 * (i / d % 5);
	if (number % 2)
	{
		w = malloc(sizeof(double) * n);
		for (int i = 0; i < n; i++)
			w[i] = pow(10, 4 * test_uniform(&state) - 2);
	}
	store = load_store(host, x, w, n, d, NULL, chunk, limit, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	free(x);
	free(w);
	return store;
}

static void
test_passes(const char *simd)
{
	static const int threads[] = {1, 2, 7};
	static const GkFeatureSum sums[] = {GK_FSUM_AUTO, GK_PARTITIONED_FEATURES, GK_CLUSTER_MERGE, GK_DELTA};
	char		reason[128];
	int			problems = 30;
	int			bad_step = 0,
				bad_moved = 0,
				bad_finish = 0,
				bad_labels = 0,
				bad_seed = 0,
				failed = 0,
				spilled = 0;

	gk_cpu_set_simd(simd, reason, sizeof(reason));
	for (int number = 0; number < problems; number++)
	{
		TestHost	host;
		int			k;
		bool		spill = number % 4 == 3;
		GkStore    *store;
		Plain		p;
		Arrays		want;
		Seeding		want_seed;
		uint64_t	key = gk_key(number, 0, 1);

		test_host_init(&host, 1);
		store = random_store(&host, number, number % 2 ? 30000 : 1 << 20, spill ? 100000 : SIZE_MAX, &k);
		spilled += store->spill_end > 0;
		p = plain(store, k);
		assign(&p);
		want = plain_arrays(&p);
		want_seed = plain_seeding(&p, key);
		for (int way = 0; way < 4; way++)
		{
			GkProblem	problem = {.core = &gk_core,.store = store,.k_max = k,.feature_sum = sums[way]};
			GkHost		h = host.host;
			GkSession  *session;
			GkError		err;
			Arrays		got = arrays(k, p.d);
			Labels		labels;
			GkLabelSink sink = test_sink(&labels);
			Seeding		seed;
			GkStatus	st;
			float	   *moved = malloc(sizeof(float) * k * p.d);

			h.threads = threads[(number + way) % 3];
			h.skip = way % 2 ? GK_SKIP_ON : GK_SKIP_AUTO;
			problem.host = &h;
			labels.label = malloc(sizeof(int32_t) * p.n);
			labels.d2 = malloc(sizeof(float) * p.n);
			labels.seen = 0;
			failed += gk_cpu_backend.open(&problem, &session, &err) != GK_OK;

			/* Somewhere else first, for delta's sake; then twice where the truth is known. */
			for (int i = 0; i < k * p.d; i++)
				moved[i] = p.c[i] * (1.0f + (float) test_normal(&rng) * 0.1f);
			failed += gk_cpu_backend.step(session, moved, k, &got.step, &err) != GK_OK;
			failed += gk_cpu_backend.step(session, p.c, k, &got.step, &err) != GK_OK;
			bad_step += !same_step(&want, &got, k, p.d);
			failed += gk_cpu_backend.step(session, p.c, k, &got.step, &err) != GK_OK;
			bad_moved += !same_step(&want, &got, k, p.d);
			failed += gk_cpu_backend.finish(session, p.c, k, &got.fin, way % 2 ? NULL : &sink, &err) != GK_OK;
			bad_finish += !same_finish(&want, &got, k);
			if (way % 2)
				failed += gk_cpu_backend.finish(session, p.c, k, NULL, &sink, &err) != GK_OK;
			bad_labels += labels.seen != p.n || memcmp(labels.label, p.label, sizeof(int32_t) * p.n) != 0 ||
				memcmp(labels.d2, p.d2, sizeof(float) * p.n) != 0;
			seed = backend_seeding(&p, session, key, &st);
			failed += st != GK_OK;
			bad_seed += !same_seeding(&want_seed, &seed, candidates(&p));

			gk_cpu_backend.close(session);
			seeding_free(&seed);
			arrays_free(&got);
			free(labels.label);
			free(labels.d2);
			free(moved);
		}
		seeding_free(&want_seed);
		arrays_free(&want);
		plain_free(&p);
		gk_store_free(store);
		failed += host.live != 0;
		test_host_end(&host);
	}
	ok(failed == 0 && spilled > 2, "%s: all passes run, nothing left allocated (%d bad, %d of %d spilled)",
	   gk_cpu_simd(), failed, spilled, problems);
	ok(bad_step == 0 && bad_moved == 0, "%s step: exact sums (%d and, again, %d differ)", gk_cpu_simd(), bad_step, bad_moved);
	ok(bad_finish == 0 && bad_labels == 0, "%s finish: statistics (%d differ), labels (%d differ)",
	   gk_cpu_simd(), bad_finish, bad_labels);
	ok(bad_seed == 0, "%s seeding: potentials, races, the farthest point (%d differ)", gk_cpu_simd(), bad_seed);
}

/*
 * Labels by scalar products where these cannot tell, or hardly: points that are far from the
 * origin and near each other, whole numbers with many ties, centroids twice, one far away;
 * centroids that are near each other and the origin, where some points, tile by tile, are
 * a thousand times farther away: it is their products that are rounded most.  Some points are
 * in a file, where nothing is known of a tile from one pass to the next.
 */
static void
test_screen(const char *simd)
{
	static const int features[] = {16, 17, 48, 49, 97, 150, 1024, 1030};
	char		reason[128];
	int			cases = 0;
	int			bad = 0;
	int			spilled = 0;

	gk_cpu_set_simd(simd, reason, sizeof(reason));
	for (int kind = 0; kind < 5; kind++)
		for (int f = 0; f < 8; f++)
		{
			int			d = features[f];
			int			n = d > 200 ? 200 : kind == 4 ? 8000 : 1000;
			int			k = kind == 4 ? 4 : pick(4, d > 200 ? 20 : 140);
			double	   *x = malloc(sizeof(double) * n * d);
			TestHost	host;
			GkStore    *store;
			GkError		err;
			Plain		p;
			Arrays		want;

			for (int i = 0; i < n * d; i++)
				x[i] = kind == 0 ? (i / d % 2 ? 1000 : -1000) + test_normal(&rng) * 1e-3 :
					kind == 1 ? floor(2 * test_uniform(&rng)) :
					kind == 4 ? test_normal(&rng) * (i / d / GK_ROW_PAD % 2 ? 1000.0 : 1.0) : test_normal(&rng);
			test_host_init(&host, pick(1, 3));
			store = load_store(&host, x, NULL, n, d, NULL, 1 << 16, (kind + f) % 3 == 0 ? (size_t) 1 << 16 : SIZE_MAX, &err);
			gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
			spilled += !gk_store_points(store)->resident;
			p = plain(store, k);
			memcpy(p.c + (size_t) (k - 1) * d, p.c, d * sizeof(float));
			for (int j = 0; kind == 3 && j < d; j++)
				p.c[d + j] *= 1e6f;
			for (int j = 0; kind == 4 && j < k * d; j++)
				p.c[j] = (float) (test_normal(&rng) * pow(d, 1.5) * 6e-7);
			assign(&p);
			want = plain_arrays(&p);
			for (int sums = 0; sums < 2; sums++)
			{
				GkProblem	problem = {.host = &host.host,.core = &gk_core,.store = store,.k_max = k,
				.feature_sum = sums ? GK_CLUSTER_MERGE : GK_FSUM_AUTO};
				GkSession  *session;
				Arrays		got = arrays(k, d);

				bad += gk_cpu_backend.open(&problem, &session, &err) != GK_OK;
				/* after a pass of which nothing was certain it is not tried again */
				for (int pass = 0; pass < 2; pass++)
					bad += gk_cpu_backend.step(session, p.c, k, &got.step, &err) != GK_OK ||
						!same_step(&want, &got, k, d);
				gk_cpu_backend.close(session);
				arrays_free(&got);
				cases++;
			}
			arrays_free(&want);
			plain_free(&p);
			gk_store_free(store);
			bad += host.live != 0;
			test_host_end(&host);
			free(x);
		}
	ok(bad == 0 && spilled > 5, "%s: labels that scalar products hardly tell (%d of %d differ, %d stores in a file)",
	   gk_cpu_simd(), bad, cases, spilled);
}

/*
 * Packages: the running sum passes 2^53 units of the grid and then meets single
 * units, so doubles that are not turned into integers in time would round.
 */
static void
test_packages(const char *simd)
{
	enum
	{
	PART = 3 * GK_PACKAGE, N = 3 * PART};
	TestHost	host;
	GkError		err;
	double	   *x = malloc(sizeof(double) * N);
	GkStore    *store;
	int			bad = 0;
	char		reason[128];

	for (int i = 0; i < N; i++)
		x[i] = i < PART ? 1.0 : i < 2 * PART ? ldexp(2 * (i % 97) - 96, -40) : -1.0;
	gk_cpu_set_simd(simd, reason, sizeof(reason));
	test_host_init(&host, 1);
	store = load_store(&host, x, NULL, N, 1, NULL, 1 << 20, SIZE_MAX, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	for (int k = 1; k <= 601; k += k < 9 ? 4 : 592)
	{
		Plain		p = plain(store, k);
		Arrays		want,
					got = arrays(k, 1);
		GkProblem	problem = {.host = &host.host,.core = &gk_core,.store = store,.k_max = k,
		.feature_sum = GK_CLUSTER_MERGE};
		GkSession  *session;

		/* All rows into one cluster, the others too far away to have any. */
		for (int i = 0; i < k; i++)
			p.c[i] = i == k / 2 ? 0.0f : (float) ldexp(i, 60);
		assign(&p);
		want = plain_arrays(&p);
		bad += gk_cpu_backend.open(&problem, &session, &err) != GK_OK;
		bad += gk_cpu_backend.step(session, p.c, k, &got.step, &err) != GK_OK || !same_step(&want, &got, k, 1);
		gk_cpu_backend.close(session);
		plain_free(&p);
		arrays_free(&want);
		arrays_free(&got);
	}
	ok(bad == 0, "%s packages: exact beyond 2^53 units (%d bad)", gk_cpu_simd(), bad);
	gk_store_free(store);
	test_host_end(&host);
	free(x);
}

/* Two sizes that only large jobs reach: several rounds of centroids, shared statistics. */
static void
test_large_k(void)
{
	TestHost	host;
	GkError		err;
	int			n = 300,
				d = 600,
				k = 700;
	double	   *x = malloc(sizeof(double) * n * d);
	GkStore    *store;
	Plain		p;
	Arrays		want,
				got = arrays(k, d);
	GkSession  *session;
	char		reason[128];
	char		device[96],
				strategy[32];
	int			bad = 0;

	for (int i = 0; i < n * d; i++)
		x[i] = test_normal(&rng);
	test_host_init(&host, 3);
	store = load_store(&host, x, NULL, n, d, NULL, 1 << 20, SIZE_MAX, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	p = plain(store, k);
	assign(&p);
	want = plain_arrays(&p);
	gk_cpu_set_simd("auto", reason, sizeof(reason));
	for (int way = GK_FSUM_AUTO; way <= GK_DELTA; way++)
	{
		GkProblem	problem = {.host = &host.host,.core = &gk_core,.store = store,.k_max = k,.feature_sum = way};
		GkStatus	st = gk_cpu_backend.open(&problem, &session, &err);

		if (st == GK_OK)
			st = gk_cpu_backend.step(session, p.c, k, &got.step, &err);
		if (st == GK_OK)
			st = gk_cpu_backend.finish(session, p.c, k, &got.fin, NULL, &err);
		bad += st != GK_OK || !same_step(&want, &got, k, d) || !same_finish(&want, &got, k);
		gk_cpu_backend.describe(session, device, sizeof(device), strategy, sizeof(strategy));
		bad += strstr(device, "3 threads") == NULL || strstr(strategy, "pass") == NULL;
		gk_cpu_backend.close(session);
	}
	ok(bad == 0, "several rounds of centroids (%d bad; %s, %s)", bad, device, strategy);
	plain_free(&p);
	arrays_free(&want);
	arrays_free(&got);
	gk_store_free(store);
	test_host_end(&host);
	free(x);
}

/* What a fit by one thread says of itself, in as much room as there is. */
static void
test_describe(void)
{
	TestHost	host;
	GkError		err;
	const double x[] = {1, 2, 3};
	GkStore    *store;
	GkSession  *session;
	char		reason[128];
	char		want[96];
	char		device[96];
	char		strategy[32];
	char		small[13];
	char		none[1] = {'x'};

	test_host_init(&host, 1);
	store = load_store(&host, x, NULL, 3, 1, NULL, 1 << 20, SIZE_MAX, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	gk_cpu_set_simd("auto", reason, sizeof(reason));
	{
		GkProblem	problem = {.host = &host.host,.core = &gk_core,.store = store,.k_max = 1};

		gk_cpu_backend.open(&problem, &session, &err);
	}
	gk_cpu_backend.describe(session, device, sizeof(device), strategy, sizeof(strategy));
	gk_cpu_backend.describe(session, small, sizeof(small), none, sizeof(none));
	snprintf(want, sizeof(want), "cpu (%s, 1 thread)", gk_cpu_simd());
	ok(strcmp(device, want) == 0 && strcmp(strategy, "single_pass") == 0, "described as \"%s\", \"%s\"", device, strategy);
	ok(strncmp(small, want, sizeof(small) - 1) == 0 && strlen(small) == sizeof(small) - 1 && none[0] == '\0',
	   "and cut where there is less room: \"%s\"", small);
	gk_cpu_backend.close(session);
	gk_store_free(store);
	test_host_end(&host);
}

/* ---- the parallel loop ---- */

typedef struct Jobs
{
	int			done[1000];
	int			per_thread[8];
	bool		outside;
	volatile int stop;
	int			stop_after;
	int			count;
	/* signals */
	int			helpers;		/* jobs that ran on a helper thread */
	int			open;			/* of those, with a signal not blocked */
	int			main_blocked;
} Jobs;

static bool
jobs_stop(void *ctx)
{
	return ((Jobs *) ctx)->stop;
}

static void
count_job(void *arg, int64_t job, int thread)
{
	Jobs	   *j = arg;

	__atomic_fetch_add(&j->done[job], 1, __ATOMIC_RELAXED);
	if (thread < 0 || thread > 7)
		j->outside = true;
	else
		__atomic_fetch_add(&j->per_thread[thread], 1, __ATOMIC_RELAXED);
	if (__atomic_add_fetch(&j->count, 1, __ATOMIC_RELAXED) == j->stop_after)
		j->stop = 1;
}

static void
test_parallel(void)
{
	static const int counts[] = {1, 2, 7};

	for (int c = 0; c < 3; c++)
		for (int jobs = 0; jobs <= 1000; jobs += jobs < 2 ? 1 : 499)
		{
			Jobs		j = {0};
			GkHost		host = {.ctx = &j,.stop = jobs_stop,.threads = counts[c]};
			bool		done = gk_parallel_for(&host, jobs, count_job, &j);
			int			wrong = 0;
			int			strangers = 0;

			for (int i = 0; i < 1000; i++)
				wrong += j.done[i] != (i < jobs);
			for (int t = counts[c]; t < 8; t++)
				strangers += j.per_thread[t];
			ok(done && wrong == 0 && strangers == 0 && !j.outside, "%d jobs on %d threads: each once", jobs, counts[c]);
		}
	for (int c = 0; c < 3; c++)
	{
		Jobs		j = {.stop_after = 100};
		GkHost		host = {.ctx = &j,.stop = jobs_stop,.threads = counts[c]};
		bool		done = gk_parallel_for(&host, 1000, count_job, &j);

		/* Jobs that other threads have begun may still end. */
		ok(!done && j.count >= 100 && j.count < 100 + counts[c], "stop on %d threads: %d of 1000 jobs", counts[c], j.count);
	}
	ok(gk_threads(&(GkHost) {.threads = 5}) == 5 && gk_threads(&(GkHost) {0}) == (int) sysconf(_SC_NPROCESSORS_ONLN),
	   "threads: as told, or one for each CPU");
}

static int	signalled;			/* by the handler, for all threads */
static pthread_t handled_by;

static void
handler(int sig)
{
	(void) sig;
	handled_by = pthread_self();
	__atomic_store_n(&signalled, 1, __ATOMIC_RELEASE);
}

static void
nap(void)
{
	nanosleep(&(struct timespec) {0, 1000000}, NULL);
}

/* All four threads get a job, as each waits for a signal, which the last one sends. */
static void
signal_job(void *arg, int64_t job, int thread)
{
	Jobs	   *j = arg;
	static const int asynchronous[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGURG, SIGCHLD, SIGQUIT};
	sigset_t	mask;
	int			blocked = 0;

	(void) job;
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	for (size_t i = 0; i < sizeof(asynchronous) / sizeof(asynchronous[0]); i++)
		blocked += sigismember(&mask, asynchronous[i]) == 1;
	if (thread == 0)
		j->main_blocked += blocked;
	else
	{
		__atomic_fetch_add(&j->open, blocked != sizeof(asynchronous) / sizeof(asynchronous[0]), __ATOMIC_RELAXED);
		__atomic_fetch_add(&j->helpers, 1, __ATOMIC_RELAXED);
	}
	if (__atomic_add_fetch(&j->count, 1, __ATOMIC_RELAXED) == 4)
		kill(getpid(), SIGUSR1);
	for (int ms = 0; ms < 20000 && !__atomic_load_n(&signalled, __ATOMIC_ACQUIRE); ms++)
		nap();
}

static void
test_signals(void)
{
	Jobs		j = {0};
	GkHost		host = {.ctx = &j,.threads = 4};
	struct sigaction act = {.sa_handler = handler};
	sigset_t	before,
				after;
	int			differ = 0;

	sigaction(SIGUSR1, &act, NULL);
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	gk_parallel_for(&host, 16, signal_job, &j);
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	for (int sig = 1; sig < 32; sig++)
		differ += sigismember(&before, sig) != sigismember(&after, sig);
	ok(j.helpers >= 3 && j.open == 0, "helper threads have all signals blocked (%d jobs, %d open)",
	   j.helpers, j.open);
	ok(j.main_blocked == 0 && differ == 0, "the caller has its own mask, inside and after");
	ok(signalled && pthread_equal(handled_by, pthread_self()), "a signal is handled by the caller while it computes");
}

int
main(void)
{
	static const char *const levels[] = {"avx512", "avx512f", "avx2", "neon", "scalar"};
	char		reason[128];

	test_signals();				/* while there is no pool of threads yet */
	test_parallel();
	for (int i = 0; i < 5; i++)
		if (gk_cpu_kernels_named(levels[i], reason, sizeof(reason)) != NULL)
		{
			test_passes(levels[i]);
			test_screen(levels[i]);
			test_packages(levels[i]);
		}
		else
			skip("%s", reason);
	test_large_k();
	test_describe();
	return done_testing();
}
