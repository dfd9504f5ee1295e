/*
 * The last pass several times in a row, as gk_finish() makes it: centroids get other numbers, some other places, some go.
 * What the CPU goes on from has to give the bits of a pass from nothing, ties and duplicates among the centroids
 * included, and D of the repairs in between those of seed_update().
 */
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/store/gk_points.h"
#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define MAX_CENTROIDS	300

static uint64_t rng = 1;

typedef struct Found
{
	int64_t		count[MAX_CENTROIDS];
	gk_int128	inertia[MAX_CENTROIDS];
	float		max_d2[MAX_CENTROIDS];
	Labels		labels;
} Found;

typedef struct Counts
{
	int			wrong;			/* passes with another result */
	int			known_d;		/* seedings that begin with D, and ... */
	int			wrong_d;		/* ... with another one */
	int			again;			/* passes that went on, of ... */
	int			passes;
	int64_t		ties;			/* rows that they had to compare with all */
	int64_t		rows;
} Counts;

/* Some rows on a lattice, so that there are ties; the others anywhere. */
static double *
points(int n, int d, int lattice)
{
	double	   *x = malloc(sizeof(double) * n * d);

	for (int i = 0; i < n; i++)
		for (int j = 0; j < d; j++)
			x[(size_t) i * d + j] = i % lattice == 0 ? (double) test_pick(&rng, 0, j < 12) : test_normal(&rng);
	return x;
}

static void
pick_centroid(float *c, const GkPoints *pts)
{
	const GkChunk *chunk = &pts->chunks[test_pick(&rng, 0, pts->nchunks - 1)];
	int			row = test_pick(&rng, 0, chunk->rows - 1);

	for (int j = 0; j < pts->d; j++)
		c[j] = chunk->data[(size_t) j * chunk->stride + row];
}

/* Other numbers; some centroids move, some are left out.  Returns how many there are. */
static int
change(float *c, int32_t *was, int k, const GkPoints *pts, int moved)
{
	int			d = pts->d;
	float	   *old = malloc(sizeof(float) * k * d);
	int			left = k > 8 && test_pick(&rng, 0, 3) == 0 ? k - test_pick(&rng, 1, 2) : k;

	memcpy(old, c, sizeof(float) * k * d);
	for (int i = 0; i < k; i++)
		was[i] = i;
	for (int i = k - 1; i > 0; i--)
	{
		int			q = test_pick(&rng, 0, i);
		int32_t		t = was[i];

		was[i] = was[q];
		was[q] = t;
	}
	for (int i = 0; i < left; i++)
		memcpy(c + (size_t) i * d, old + (size_t) was[i] * d, sizeof(float) * d);
	for (int i = 0; i < moved; i++)
	{
		int			q = test_pick(&rng, 0, left - 1);

		/* also to where there is one */
		if (i % 30 == 2)
			memcpy(c + (size_t) q * d, c + (size_t) test_pick(&rng, 0, left - 1) * d, sizeof(float) * d);
		else
			pick_centroid(c + (size_t) q * d, pts);
		was[q] = -1;
	}
	free(old);
	return left;
}

static GkSession *
open_session(TestHost *t, GkStore *store, const GkCpuKernels *set)
{
	GkProblem	problem = {.host = &t->host,.core = &gk_core,.store = store,.k_max = MAX_CENTROIDS};
	GkSession  *s;
	GkError		err;

	if (gk_cpu_backend.open(&problem, &s, &err) != GK_OK)
		abort();
	s->kernels = set;
	return s;
}

static void
finish(GkSession *s, const float *c, int k, const int32_t *was, bool labels, Found *f)
{
	GkFinish	out = {.count = f->count,.inertia = f->inertia,.max_d2 = f->max_d2,.was = was};
	GkLabelSink sink = test_sink(&f->labels);
	GkError		err;

	f->labels.seen = 0;
	if (gk_cpu_backend.finish(s, c, k, &out, labels ? &sink : NULL, &err) != GK_OK)
		abort();
}

/* None of them was there. */
static const int32_t *
new_ones(void)
{
	static int32_t was[MAX_CENTROIDS];

	memset(was, 0xff, sizeof(was));
	return was;
}

static bool
same(const Found *a, const Found *b, int k, int64_t n)
{
	return memcmp(a->count, b->count, k * sizeof(*a->count)) == 0 &&
		memcmp(a->inertia, b->inertia, k * sizeof(*a->inertia)) == 0 &&
		memcmp(a->max_d2, b->max_d2, k * sizeof(*a->max_d2)) == 0 &&
		(a->labels.seen < n || (memcmp(a->labels.label, b->labels.label, n * sizeof(int32_t)) == 0 &&
								memcmp(a->labels.d2, b->labels.d2, n * sizeof(float)) == 0));
}

/* D as the last pass has it, where it is known, beside seed_update()'s. */
static void
test_d(GkSession *s, const float *c, int k, Counts *t)
{
	const GkPoints *pts = s->pts;
	float	   *d2 = malloc(sizeof(float) * s->all_rows);
	size_t		at = 0;
	bool		known;
	bool		equal = true;
	gk_int128	phi;
	gk_int128	found;
	GkError		err;

	gk_cpu_backend.seed_begin(s, &err);
	gk_cpu_backend.seed_finished(s, &known, &err);
	found = s->seed.phi;
	for (int i = 0; i < pts->nchunks; at += pts->chunks[i++].stride)
		memcpy(d2 + at, pts->chunks[i].mind2, pts->chunks[i].rows * sizeof(float));
	gk_cpu_backend.seed_end(s);
	gk_cpu_backend.seed_begin(s, &err);
	gk_cpu_backend.seed_update(s, c, k, &phi, &err);
	at = 0;
	for (int i = 0; i < pts->nchunks; at += pts->chunks[i++].stride)
		equal &= memcmp(d2 + at, pts->chunks[i].mind2, pts->chunks[i].rows * sizeof(float)) == 0;
	gk_cpu_backend.seed_end(s);
	free(d2);
	t->known_d += known;
	t->wrong_d += known && !(equal && phi == found);
}

/* Two results of n rows. */
static Found *
two_found(int n)
{
	Found	   *f = calloc(2, sizeof(Found));

	for (int i = 0; i < 2; i++)
	{
		f[i].labels.label = malloc(sizeof(int32_t) * n);
		f[i].labels.d2 = malloc(sizeof(float) * n);
	}
	return f;
}

static void
free_found(Found *f)
{
	for (int i = 0; i < 2; i++)
	{
		free(f[i].labels.label);
		free(f[i].labels.d2);
	}
	free(f);
}

static void
test_case(const GkCpuKernels *set, int number, Counts *t)
{
	int			n = test_pick(&rng, 500, 2000);
	int			d = test_pick(&rng, 16, 90);
	int			k = test_pick(&rng, 60, MAX_CENTROIDS);
	int			threads = number % 3 + 1;
	double	   *x = points(n, d, number % 2 ? 20 : 100);
	double	   *w = number % 4 == 3 ? random_weights(&rng, n) : NULL;
	float	   *c = malloc(sizeof(float) * k * d);
	int32_t    *was = malloc(sizeof(int32_t) * k);
	Found	   *f = two_found(n);
	TestHost	host;
	GkStore    *store;
	GkSession  *s;
	GkError		err;

	test_host_init(&host, threads);
	store = load_store(&host, x, w, n, d, NULL, (size_t) 96 << 10, SIZE_MAX, &err);
	if (store == NULL || gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		abort();
	s = open_session(&host, store, set);
	for (int i = 0; i < k; i++)
		pick_centroid(c + (size_t) i * d, s->pts);
	finish(s, c, k, new_ones(), number % 5 == 0, &f[0]);
	for (int pass = 0; pass < 6; pass++)
	{
		static const int moved[] = {0, 1, 3, 10, 60, 200};
		GkSession  *other = open_session(&host, store, set);
		bool		labels = test_pick(&rng, 0, 1);

		k = change(c, was, k, s->pts, moved[test_pick(&rng, 0, 5)]);
		t->passes++;
		/* a pass from nothing finds no kernels to keep anything by */
		s->kernels = pass % 2 ? &gk_cpu_scalar : set;
		t->ties += s->found.ties;
		t->rows += n;
		finish(s, c, k, was, labels, &f[0]);
		t->again += pass % 2 && s->found.k > 0;
		finish(other, c, k, NULL, labels, &f[1]);
		t->wrong += !same(&f[0], &f[1], k, n);
		if (s->found.k == 0)
		{
			s->kernels = set;
			finish(s, c, k, new_ones(), false, &f[0]);
		}
		s->kernels = set;
		if (pass == 3)
			test_d(s, c, k, t);
		gk_cpu_backend.close(other);
	}
	gk_cpu_backend.close(s);
	gk_store_free(store);
	t->wrong += host.live != 0;
	test_host_end(&host);
	free_found(f);
	free(was);
	free(c);
	free(w);
	free(x);
}

/* Lloyd's centroids; some stand still, and some are where another one is. */
static void
move(float *c, const GkStep *step, const GkSession *s, int k, int pass)
{
	int			d = s->pts->d;

	for (int q = 0; q < k; q++)
		for (int j = 0; step->count[q] > 0 && (pass < 3 || q % 7 == 0) && j < d; j++)
			c[(size_t) q * d + j] = (float) ((double) step->sum[(size_t) q * d + j] / (double) step->mass[q] / s->inv[j]);
	for (int i = 0; pass % 2 && i < 3; i++)
		memcpy(c + (size_t) test_pick(&rng, 0, k - 1) * d, c + (size_t) test_pick(&rng, 0, k - 1) * d, sizeof(float) * d);
}

/* The first pass after some steps goes on from their bounds, in other numbers. */
static void
test_stepped(const GkCpuKernels *set, int number, Counts *t)
{
	int			n = test_pick(&rng, 3000, 6000);
	int			d = test_pick(&rng, 2, 14);
	int			k = test_pick(&rng, 250, MAX_CENTROIDS);
	double	   *x = points(n, d, number % 2 ? 20 : 100);
	double	   *w = number % 4 == 3 ? random_weights(&rng, n) : NULL;
	float	   *c = malloc(sizeof(float) * k * d);
	int32_t    *stepped = malloc(sizeof(int32_t) * k);
	Found	   *f = two_found(n);
	float	   *old = malloc(sizeof(float) * k * d);
	GkStep		step = new_step(k, d);
	GkStep		want = new_step(k, d);
	TestHost	host;
	GkStore    *store;
	GkSession  *s;
	GkSession  *other;
	GkError		err;

	test_host_init(&host, number % 3 + 1);
	host.host.skip = GK_SKIP_ON;
	store = load_store(&host, x, w, n, d, NULL, (size_t) 96 << 10, SIZE_MAX, &err);
	if (store == NULL || gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		abort();
	s = open_session(&host, store, set);
	for (int i = 0; i < k; i++)
		pick_centroid(c + (size_t) i * d, s->pts);
	for (int pass = 0; pass < 3 + number % 4; pass++)
	{
		if (gk_cpu_backend.step(s, c, k, &step, &err) != GK_OK)
			abort();
		move(c, &step, s, k, pass);
	}
	memcpy(old, c, sizeof(float) * k * d);
	(void) change(c, stepped, k, s->pts, 0);
	{
		GkFinish	out = {.count = f[0].count,.inertia = f[0].inertia,.max_d2 = f[0].max_d2,.was = new_ones(),.stepped = stepped};
		GkLabelSink sink = test_sink(&f[0].labels);

		if (gk_cpu_backend.finish(s, c, k, &out, number % 3 ? &sink : NULL, &err) != GK_OK)
			abort();
	}
	t->passes++;
	t->known_d += s->found.k == k && !s->hamerly.valid;
	t->ties += s->found.ties;
	t->rows += n;
	host.host.skip = GK_SKIP_OFF;
	other = open_session(&host, store, set);
	finish(other, c, k, NULL, number % 3, &f[1]);
	t->wrong += !same(&f[0], &f[1], k, n);
	/* the session's next step does not take this pass's labels for the last step's */
	if (gk_cpu_backend.step(other, old, k, &want, &err) != GK_OK)
		abort();
	host.host.skip = GK_SKIP_ON;
	if (gk_cpu_backend.step(s, old, k, &step, &err) != GK_OK)
		abort();
	t->wrong += memcmp(step.count, want.count, sizeof(int64_t) * k) != 0 || memcmp(step.sum, want.sum, sizeof(gk_int128) * k * d) != 0;
	gk_cpu_backend.close(other);
	gk_cpu_backend.close(s);
	gk_store_free(store);
	t->wrong += host.live != 0;
	test_host_end(&host);
	free_step(&step);
	free_step(&want);
	free(old);
	free_found(f);
	free(stepped);
	free(c);
	free(w);
	free(x);
}

/*
 * What a pass finds is remembered where another one may follow, and where the memory limit has room for it beside the
 * bounds; it is counted then.
 */
static void
test_room(const GkCpuKernels *set, const char *name)
{
	int			n = 4000;
	int			d = 32;
	int			k = 100;
	double	   *x = points(n, d, 20);
	float	   *c = malloc(sizeof(float) * k * d);
	Found	   *f = calloc(1, sizeof(Found));
	int			wrong = 0;
	TestHost	host;
	GkStore    *store;
	GkError		err;

	test_host_init(&host, 1);
	store = load_store(&host, x, NULL, n, d, NULL, (size_t) 1 << 20, SIZE_MAX, &err);
	if (store == NULL || gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		abort();
	for (int i = 0; i < k; i++)
		pick_centroid(c + (size_t) i * d, gk_core.points(store));
	for (int way = 0; way < 5; way++)
	{
		GkSession  *s = open_session(&host, store, set);
		GkPoints   *pts = (GkPoints *) s->pts;
		size_t		spare = pts->spare;
		size_t		bytes = gk_cpu_found_bytes(s);
		bool		bounds = way >= 3;
		bool		kept = way == 2 || way == 4;

		if (bounds)
		{
			bytes += gk_cpu_hamerly_bytes(s, k);
			s->hamerly.k = k;
			wrong += !gk_cpu_room(s, &s->hamerly.slack, s->all_rows, sizeof(float));
		}
		pts->spare = way == 1 || way == 3 ? bytes - 1 : bytes;
		finish(s, c, k, way == 0 ? NULL : new_ones(), false, f);
		wrong += (s->found.k > 0) != kept || (s->found.label != NULL) != kept;
		wrong += gk_cpu_spare(s) != pts->spare - (kept ? gk_cpu_found_bytes(s) : 0);
		/* bounds that are there fit still */
		wrong += bounds && !(gk_cpu_hamerly_bytes(s, k) <= gk_cpu_spare(s));
		pts->spare = spare;
		gk_cpu_backend.close(s);
	}
	ok(wrong == 0, "%s: what is remembered fits the memory limit", name);
	gk_store_free(store);
	test_host_end(&host);
	free(f);
	free(c);
	free(x);
}

int
main(void)
{
	static const char *const names[] = {"avx512", "avx2", "neon"};
	char		reason[128];

	for (int i = 0; i < 3; i++)
	{
		const GkCpuKernels *set = gk_cpu_kernels_named(names[i], reason, sizeof(reason));
		Counts		t = {0};

		if (set == NULL || set->assign_dot == NULL)
		{
			skip("%s has no scalar products here", names[i]);
			continue;
		}
		for (int number = 0; number < few_or_all(16, 40); number++)
			test_case(set, number, &t);
		ok(t.wrong == 0, "%s: passes that go on from the last one (%d of %d wrong)", names[i], t.wrong, t.passes);
		ok(t.wrong_d == 0 && t.known_d > 0, "%s: D of the last pass (%d of %d wrong)", names[i], t.wrong_d, t.known_d);
		ok(t.again > 0 && t.ties > 0, "%s: %d of %d passes went on, with ties of %lld of %lld rows", names[i],
		   t.again, t.passes / 2, (long long) t.ties, (long long) t.rows);
		test_room(set, names[i]);
		t = (Counts) {0};
		for (int number = 0; number < few_or_all(12, 60); number++)
			test_stepped(set, number, &t);
		ok(t.wrong == 0 && t.known_d > t.passes / 3 && t.ties > 0,
		   "%s: passes that go on from a step's bounds (%d of %d wrong, %d did, %lld rows left open)", names[i], t.wrong, t.passes,
		   t.known_d, (long long) t.ties);
	}
	return done_testing();
}
