/*
 * A session that goes on with other rows (GkBackend.move): every step has the result of a session that is
 * opened for these rows, whatever the last steps have left, and bounds go on.
 */
#define _GNU_SOURCE				/* rlimit */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/gk_engine.h"
#include "core/gk_numerics.h"
#include "core/store/gk_store.h"
#include "cpu/gk_cpu.h"
#include "gk_test.h"
#include "gk_testhost.h"

static uint64_t rng = 61;

/* How often; steps are those after a move. */
static int	moves;
static int	refused;
static int	differ;
static int	unchanged;			/* clusters that a step has said not to have changed */
static int	by_labels;			/* steps that know the last one's labels */
static int	by_bounds;			/* that go on with bounds, and */
static int	by_lower;			/* with lower ones */
static int	by_squares;			/* that know those of some points, and */
static int	by_integers;		/* the points as integers */

/* ---- a problem ---- */

typedef struct Case
{
	int			n,
				d,
				k;
	GkSkip		skip;
	GkFeatureSum sum;
	int			threads;
	size_t		chunk;
	size_t		limit;
} Case;

static GkStore *
make_store(TestHost *host, const Case *c, int number)
{
	static const TestKind kinds[] = {TEST_LATTICE, TEST_BLOBS, TEST_UNIFORM, TEST_DUPLICATES, TEST_BLOBS, TEST_OUTLIERS};
	double	   *x = random_points(&rng, kinds[number % 6], c->n, c->d);
	double	   *w = number % 4 == 1 ? random_weights(&rng, c->n) : NULL;
	GkStore    *store;
	GkError		err;

	host->host.skip = c->skip;
	store = load_store(host, x, w, c->n, c->d, NULL, c->chunk, c->limit, &err);
	if (gk_store_prepare(store, number % 5 == 4 ? GK_COSINE : GK_EUCLIDEAN, false, &err) != GK_OK)
		exit(1);
	free(x);
	free(w);
	return store;
}

static GkStep
make_step(int k, int d)
{
	return (GkStep) {.sum = calloc((size_t) k * d, sizeof(gk_int128)),.mass = calloc(k, sizeof(gk_int128)),.count = calloc(k, sizeof(int64_t)),
	.unchanged = calloc(k, sizeof(bool))};
}

static void
step_free(GkStep *s)
{
	free(s->sum);
	free(s->mass);
	free(s->count);
	free(s->unchanged);
}

static bool
same_step(const GkStep *a, const GkStep *b, int k, int d)
{
	return memcmp(a->sum, b->sum, (size_t) k * d * sizeof(gk_int128)) == 0 &&
		memcmp(a->mass, b->mass, k * sizeof(gk_int128)) == 0 && memcmp(a->count, b->count, k * sizeof(int64_t)) == 0;
}

/* ---- parts ---- */

typedef struct Part
{
	int64_t		first;
	int64_t		rows;
	GkStore    *store;
} Part;

/* A random one of at least a tile, that has rows of another one. */
static Part
random_part(GkStore *of, const GkHost *host, const Part *near)
{
	int64_t		n = of->pts.n;
	Part		p;
	int64_t		end;
	GkError		err;

	do
	{
		p.first = near != NULL && test_pick(&rng, 0, 1) ? near->first : gk_store_edge(of, test_pick(&rng, 0, (int) n / 2), 1);
		end = near != NULL && test_pick(&rng, 0, 1) ? near->first + near->rows : gk_store_edge(of, test_pick(&rng, (int) n / 3, (int) n), 1);
	} while (end <= p.first || (near != NULL && (p.first >= near->first + near->rows || end <= near->first)));
	p.rows = end - p.first;
	if (gk_store_part(of, p.first, p.rows, 1, host, &p.store, &err) != GK_OK || gk_store_part_total(p.store, &err) != GK_OK)
		exit(1);
	return p;
}

static GkSession *
open_part(const Part *p, const Case *c)
{
	GkProblem	problem = gk_problem(p->store, c->k, 1);
	GkSession  *s;
	GkError		err;

	problem.feature_sum = c->sum;
	return gk_cpu_backend.open(&problem, &s, &err) == GK_OK ? s : NULL;
}

/* Go on with random rows; where that is refused, open. */
static void
move(GkSession **s, Part *p, GkStore *of, const GkHost *host, const Case *c)
{
	Part		next = random_part(of, host, p);
	bool		done;
	GkError		err;

	if (gk_cpu_backend.move(*s, next.store, next.first - p->first, &done, &err) != GK_OK)
		exit(1);
	moves += done;
	refused += !done;
	if (!done)
	{
		gk_cpu_backend.close(*s);
		*s = open_part(&next, c);
	}
	gk_store_part_free(p->store);
	*p = next;
}

/* Are clusters that are said not to have changed the last step's? */
static bool
unchanged_are(const GkStep *last, const GkStep *a, int k, int d)
{
	bool		good = true;

	for (int i = 0; i < k; i++)
	{
		unchanged += a->unchanged[i];
		good &= !a->unchanged[i] || (memcmp(last->sum + (size_t) i * d, a->sum + (size_t) i * d, d * sizeof(gk_int128)) == 0 &&
									 last->mass[i] == a->mass[i] && last->count[i] == a->count[i]);
	}
	return good;
}

/* Centroids that follow from a step, or now and then others. */
static void
next_centroids(const GkPoints *pts, const GkStep *step, int k, float *centroids)
{
	double	   *c = malloc(pts->d * sizeof(double));
	double		explained;

	for (int i = 0; i < k; i++)
		if (step->mass[i] > 0)
			(void) gk_update_cluster(pts, step->sum + (size_t) i * pts->d, step->mass[i], c, centroids + (size_t) i * pts->d, &explained);
	free(c);
}

static void
run(const Case *c, int number)
{
	float	   *centroids = malloc((size_t) c->k * c->d * sizeof(float));
	GkStep		a = make_step(c->k, c->d);
	GkStep		b = make_step(c->k, c->d);
	GkStep		last = make_step(c->k, c->d);
	Case		plain = *c;
	bool		bad = false;
	TestHost	host;
	GkHost		off;
	GkStore    *store;
	GkSession  *s;
	Part		part;
	GkError		err;

	test_host_init(&host, c->threads);
	store = make_store(&host, c, number);
	off = host.host;
	off.skip = GK_SKIP_OFF;
	plain.sum = GK_CLUSTER_MERGE;
	part = random_part(store, &host.host, NULL);
	s = open_part(&part, c);
	for (int i = 0; i < c->k; i++)
		(void) gk_store_row(store, test_pick(&rng, 0, c->n - 1), centroids + (size_t) i * c->d, &err);
	for (int i = 0; i < 16 && !bad; i++)
	{
		Part		same = part;
		GkSession  *fresh;
		bool		moved = test_pick(&rng, 0, 2) > 0;
		bool		known;
		bool		bounds;
		bool		squares;
		bool		integers;

		if (moved)
			move(&s, &part, store, &host.host, c);
		known = s->previous_k > 0;
		bounds = s->hamerly.valid;
		squares = s->dot.square != NULL;
		integers = s->dot.int16_tile != NULL;
		memcpy(last.sum, a.sum, (size_t) c->k * c->d * sizeof(gk_int128));
		memcpy(last.mass, a.mass, c->k * sizeof(gk_int128));
		memcpy(last.count, a.count, c->k * sizeof(int64_t));
		memset(a.unchanged, 0, c->k * sizeof(bool));
		bad |= gk_cpu_backend.step(s, centroids, c->k, &a, &err) != GK_OK || !unchanged_are(&last, &a, c->k, c->d);
		by_labels += moved && known;
		by_bounds += moved && bounds && s->hamerly.passes > 1;
		by_lower += moved && bounds && s->hamerly.passes > 1 && s->hamerly.lower != NULL;
		by_squares += moved && squares && s->dot.square != NULL;
		by_integers += moved && integers && s->dot.int16_tile != NULL;

		same.first = part.first;
		same.rows = part.rows;
		if (gk_store_part(store, part.first, part.rows, 1, &off, &same.store, &err) != GK_OK || gk_store_part_total(same.store, &err) != GK_OK)
			exit(1);
		fresh = open_part(&same, &plain);
		bad |= gk_cpu_backend.step(fresh, centroids, c->k, &b, &err) != GK_OK;
		bad |= !same_step(&a, &b, c->k, c->d);
		gk_cpu_backend.close(fresh);
		gk_store_part_free(same.store);
		next_centroids(&store->pts, &a, c->k, centroids);
		/* as after the repair of an empty cluster, or another run */
		if (test_pick(&rng, 0, 9) == 0)
			(void) gk_store_row(store, test_pick(&rng, 0, c->n - 1), centroids, &err);
	}
	differ += bad;
	if (bad)
		printf("# case %d: n %d d %d k %d, skip %d, sum %d\n", number, c->n, c->d, c->k, (int) c->skip, (int) c->sum);
	gk_cpu_backend.close(s);
	gk_store_part_free(part.store);
	gk_store_free(store);
	test_host_end(&host);
	differ += host.live != 0;
	step_free(&a);
	step_free(&b);
	step_free(&last);
	free(centroids);
}

static Case
random_case(int number)
{
	static const int ks[] = {2, 3, 5, 8, 16, 17, 40, 130, 300};
	static const GkFeatureSum sums[] = {GK_FSUM_AUTO, GK_DELTA, GK_FSUM_AUTO, GK_CLUSTER_MERGE, GK_FSUM_AUTO, GK_DELTA, GK_PARTITIONED_FEATURES};
	static const GkSkip skips[] = {GK_SKIP_ON, GK_SKIP_AUTO, GK_SKIP_ON, GK_SKIP_OFF};
	Case		c = {.k = ks[number % 9],.skip = skips[number % 4],.sum = sums[number % 7],.threads = 1 + number / 2 % 2,.chunk = 4 << 20,.limit = SIZE_MAX};
	int			most;

	c.d = number % 3 == 0 ? test_pick(&rng, 1, 4) : test_pick(&rng, 5, 70);
	most = 2000000 / (c.d * c.k) + 300;
	c.n = test_pick(&rng, 300, 20000);
	c.n = c.n > most ? most : c.n;
	/* some chunks, or too many to be cut */
	if (number % 5 > 1)
		c.chunk = (size_t) (c.n / (number % 5 == 2 ? 4 : 30) + 100) * (c.d + 2) * sizeof(float);
	if (number % 11 == 10)
		c.limit = 100000;
	/* rows of one block, which keep labels, or of more, which keep their bits */
	if (number % 10 == 8)
		c = (Case) {.n = test_pick(&rng, 6000, 9000),.d = 16,.k = 2,.skip = GK_SKIP_AUTO,.sum = GK_FSUM_AUTO,.threads = 1,.chunk = 4 << 20,.limit = SIZE_MAX};
	/* products of integers */
	if (number % 10 == 9)
		c = (Case) {.n = test_pick(&rng, 2000, 5000),.d = 40,.k = 64,.skip = GK_SKIP_OFF,.sum = GK_FSUM_AUTO,.threads = 1,.chunk = 100000,.limit = SIZE_MAX};
	return c;
}

/* ---- memory, and a host that wants to stop ---- */

static void
test_memory(void)
{
	Case		c = {.n = 3000,.d = 6,.k = 20,.skip = GK_SKIP_ON,.threads = 1,.chunk = 4 << 20,.limit = SIZE_MAX};
	int			lost = 0;
	int			bad = 0;

	for (int nth = 1; nth < 9; nth++)
	{
		float	   *centroids = calloc((size_t) c.k * c.d, sizeof(float));
		GkStep		a = make_step(c.k, c.d);
		TestHost	host;
		GkStore    *store;
		Part		part;
		Part		next;
		GkSession  *s;
		bool		done;
		int64_t		rows = 0;
		GkError		err;

		test_host_init(&host, c.threads);
		store = make_store(&host, &c, 1);
		part = random_part(store, &host.host, NULL);
		s = open_part(&part, &c);
		for (int i = 0; i < c.k; i++)
			(void) gk_store_row(store, i * 100, centroids + (size_t) i * c.d, &err);
		for (int i = 0; i < 3; i++)
			bad += gk_cpu_backend.step(s, centroids, c.k, &a, &err) != GK_OK;
		bad += !s->hamerly.valid;
		next = random_part(store, &host.host, &part);
		host.fail_at = host.allocs + nth;
		bad += gk_cpu_backend.move(s, next.store, next.first - part.first, &done, &err) != GK_OK || !done;
		gk_store_part_free(part.store);
		lost += s->previous_k == 0;
		host.fail_at = 0;
		bad += gk_cpu_backend.step(s, centroids, c.k, &a, &err) != GK_OK;
		for (int i = 0; i < c.k; i++)
			rows += a.count[i];
		bad += rows != next.rows;
		gk_cpu_backend.close(s);
		gk_store_part_free(next.store);
		gk_store_free(store);
		test_host_end(&host);
		bad += host.live != 0;
		step_free(&a);
		free(centroids);
	}
	ok(bad == 0 && lost == 3, "without memory for the move it goes on all the same, %d times (%d bad)", lost, bad);
}

/* Is there memory at an address? */
static bool
held(const void *p)
{
	int			fd[2];
	bool		is;

	if (pipe(fd) != 0)
		return false;
	is = write(fd[1], p, 1) == 1;
	close(fd[0]);
	close(fd[1]);
	return is;
}

/* A session with labels and bounds of a part that begins so far into the store. */
typedef struct Half
{
	TestHost	host;
	GkStore    *store;
	GkStore    *of;
	GkSession  *s;
	GkStep		step;
	float	   *centroids;
	int64_t		first;
} Half;

static const Case wide_case = {.n = 80000,.d = 16,.k = 20,.skip = GK_SKIP_ON,.threads = 2,.chunk = 300000,.limit = SIZE_MAX};

static GkStore *
half_store(Half *h, int64_t first)
{
	GkStore    *store;
	GkError		err;

	if (gk_store_part(h->of, first, h->of->pts.n - first, 1, &h->host.host, &store, &err) != GK_OK || gk_store_part_total(store, &err) != GK_OK)
		exit(1);
	return store;
}

static Half *
half_open(int64_t first)
{
	Half	   *h = calloc(1, sizeof(Half));
	Part		part;
	GkError		err;

	test_host_init(&h->host, wide_case.threads);
	h->of = make_store(&h->host, &wide_case, 4);
	h->first = first = gk_store_edge(h->of, first, 1);
	h->store = part.store = half_store(h, first);
	h->s = open_part(&part, &wide_case);
	h->step = make_step(wide_case.k, wide_case.d);
	h->centroids = calloc((size_t) wide_case.k * wide_case.d, sizeof(float));
	for (int i = 0; i < wide_case.k; i++)
		(void) gk_store_row(h->of, i * 1000, h->centroids + (size_t) i * wide_case.d, &err);
	for (int i = 0; i < 3; i++)
		if (gk_cpu_backend.step(h->s, h->centroids, wide_case.k, &h->step, &err) != GK_OK)
			exit(1);
	return h;
}

/* Returns whether it went on. */
static bool
half_move(Half *h, int64_t first, GkStatus *st)
{
	GkStore    *next = half_store(h, first = gk_store_edge(h->of, first, 1));
	bool		done;
	GkError		err;

	*st = gk_cpu_backend.move(h->s, next, first - h->first, &done, &err);
	gk_store_part_free(done ? h->store : next);
	if (done)
	{
		h->store = next;
		h->first = first;
	}
	return done;
}

/* Does a step count all rows? */
static bool
half_steps(Half *h)
{
	int64_t		rows = 0;
	GkError		err;

	if (gk_cpu_backend.step(h->s, h->centroids, wide_case.k, &h->step, &err) != GK_OK)
		return false;
	for (int i = 0; i < wide_case.k; i++)
		rows += h->step.count[i];
	return rows == h->store->pts.n;
}

static bool
half_close(Half *h)
{
	bool		clean;

	gk_cpu_backend.close(h->s);
	gk_store_part_free(h->store);
	gk_store_free(h->of);
	step_free(&h->step);
	free(h->centroids);
	test_host_end(&h->host);
	clean = h->host.live == 0;
	free(h);
	return clean;
}

/* What is kept for each row takes memory for rows that the session has. */
static void
test_held(void)
{
	Half	   *h = half_open(40000);
	const GkSession *s = h->s;
	int64_t		first = s->pts->first_slot;
	bool		good = held(s->previous + first) && held(s->hamerly.lower + first) && !held(s->previous + first / 2) && !held(s->hamerly.slack + first / 2);
	GkStatus	st;

	good &= half_move(h, 8000, &st) && held(s->previous + first / 2) && s->previous_k > 0 && half_steps(h);
	good &= half_move(h, 64000, &st) && !held(s->previous + first / 2) && !held(s->hamerly.slack + first) && held(s->previous + s->pts->first_slot);
	good &= s->previous_k > 0 && half_steps(h) && half_close(h);
	ok(good, "rows of others take no memory");
}

/* No more memory from the system: the session stays as it was. */
static void
test_limit(void)
{
	Half	   *h = half_open(78000);
	const GkSession *s = h->s;
	size_t		first = s->first_tile;
	struct rlimit was;
	GkStatus	st;
	bool		done;

	getrlimit(RLIMIT_DATA, &was);
	setrlimit(RLIMIT_DATA, &(struct rlimit) {.rlim_cur = 1 << 20,.rlim_max = was.rlim_max});
	done = gk_cpu_set_rows(h->s, h->of);
	setrlimit(RLIMIT_DATA, &was);
	ok(!done && s->pts == &h->store->pts && s->first_tile == first && s->previous_k > 0 && s->hamerly.valid && half_steps(h),
	   "without memory for more rows it stays as it was");
	ok(half_move(h, 64, &st) && s->previous_k > 0 && s->hamerly.valid && half_steps(h) && half_close(h), "and has them once there is some");
}

/* Asks to stop the n-th time that a job begins. */
static int	asked;
static int	stop_at;

static bool
stop(void *ctx)
{
	(void) ctx;
	return __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED) >= stop_at;
}

static void
test_stop(void)
{
	int			whole = 0;
	int			bad = 0;

	/* all jobs, then after one and after half of them */
	for (int i = 0; i < 3; i++)
	{
		Half	   *h = half_open(78000);
		GkStatus	st;

		asked = 0;
		stop_at = i == 0 ? INT32_MAX : i == 1 ? 2 : whole / 2;
		h->s->host.stop = stop;
		(void) half_move(h, 64, &st);
		bad += st != (i == 0 ? GK_OK : GK_STOPPED) || (i > 0 && asked > stop_at + wide_case.threads);
		whole = i == 0 ? asked : whole;
		bad += !half_close(h);
	}
	ok(bad == 0 && whole >= 10, "a move of %d jobs stops between any two (%d bad)", whole, bad);
}

int
main(void)
{
	for (int number = 0; number < 150; number++)
	{
		Case		c = random_case(number);

		run(&c, number);
	}
	ok(differ == 0, "after %d moves every step has the sums of a session for these rows: %d differ", moves, differ);
	ok(moves > 900 && refused > 20, "but for points in a file, %d times", refused);
	ok(by_labels > 400 && by_bounds > 200 && by_lower > 100, "%d steps know the last one's labels, %d have its bounds, %d lower ones", by_labels, by_bounds,
	   by_lower);
	ok(unchanged > 500, "%d times a cluster is said not to have changed, and has not", unchanged);
	ok(by_squares > 50, "%d know squares of points", by_squares);
	if (gk_cpu_kernels()->integers != NULL)
		ok(by_integers > 20, "%d know the points as integers", by_integers);
	else
		skip("no products of integers on this machine");
	test_memory();
	test_held();
	test_limit();
	test_stop();
	return done_testing();
}
