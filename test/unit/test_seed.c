/*
 * Seeding: the same seeds, bit for bit, over sizes, duplicates, outliers, weights, chunks,
 * threads and instruction sets, with and without a copy of the points in which neighbours are
 * together (gk_cpu_seed_index.c), which is made where it helps; and how good those of
 * gk_seed_hierarchical.c are.  Samples of the rows (gk_sample.c): which, and the same ones.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/store/gk_store.h"
#include "cpu/gk_cpu.h"
#include "gk_test.h"
#include "gk_testhost.h"

static uint64_t rng = 11;

typedef struct Data
{
	int			n,
				d,
				k;
	double	   *x;
	double	   *w;				/* NULL: no weights */
	double		fit_sample,
				init_sample;
} Data;

static Data
random_data(int number)
{
	static const int ks[] = {2, 3, 9, 33, 70};
	static const TestKind kinds[] = {
		TEST_LATTICE, TEST_DUPLICATES, TEST_UNIFORM, TEST_IN_ORDER,
		TEST_OUTLIERS, TEST_BLOBS, TEST_BLOBS
	};
	Data		p = {.k = ks[number % 5]};
	int			most;

	p.d = number % 3 == 0 ? test_pick(&rng, 1, 4) : number % 3 == 1 ? test_pick(&rng, 5, 20) : test_pick(&rng, 21, 140);
	most = 500000 / (p.d * p.k) + 1;
	p.n = test_pick(&rng, 1, 5000);
	p.n = p.n > most ? most : p.n;
	p.x = random_points(&rng, kinds[number % 7], p.n, p.d);
	if (number % 4 == 2)
		p.w = random_weights(&rng, p.n);
	return p;
}

static void
data_free(Data *p)
{
	free(p->x);
	free(p->w);
}

/* Seeds, as one iteration leaves them. */
typedef struct Answer
{
	TestHost	host;
	GkStatus	status;
	GkModel		model;
} Answer;

static void
solve(Answer *a, const Data *p, GkInit init, GkSkip skip, int threads, size_t chunk, size_t limit)
{
	GkOptions	opt = {.k = p->k,.init = init,.seed = p->n,.n_init = 1,.max_iter = 1,
	.fit_sample = p->fit_sample,.init_sample = p->init_sample};
	GkStore    *s;
	GkError		err;

	memset(a, 0, sizeof(*a));
	test_host_init(&a->host, threads);
	a->host.host.skip = skip;
	s = load_store(&a->host, p->x, p->w, p->n, p->d, NULL, chunk, limit, &err);
	a->status = gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
	if (a->status == GK_OK)
		a->status = gk_fit(s, &gk_cpu_backend, &opt, NULL, &a->model, &err);
	gk_store_free(s);
}

static void
answer_free(Answer *a)
{
	gk_model_free(&a->host.host, &a->model);
	test_host_end(&a->host);
}

static bool
same(const Answer *a, const Answer *b)
{
	const GkModel *x = &a->model,
			   *y = &b->model;

	return a->status == GK_OK && b->status == GK_OK && x->k == y->k && x->inertia == y->inertia &&
		memcmp(x->centroids, y->centroids, sizeof(double) * x->k * x->prep.d) == 0 &&
		memcmp(x->history_inertia, y->history_inertia, sizeof(double) * x->history_len) == 0;
}

static void
test_fits(const char *simd, int problems)
{
	static const int threads[] = {1, 2, 7, 16};
	static const size_t chunks[] = {1 << 24, 30000, 7000};
	char		reason[128];
	int			bad = 0;
	int			leaks = 0;

	for (int number = 0; number < problems; number++)
	{
		Data		p = random_data(number);
		GkInit		init = number % 6 == 5 ? GK_INIT_PARALLEL : number % 6 == 2 ? GK_INIT_HIERARCHICAL : GK_INIT_PLUSPLUS;
		Answer		want;

		gk_cpu_set_simd("scalar", reason, sizeof(reason));
		solve(&want, &p, init, GK_SKIP_OFF, 1, 1 << 24, SIZE_MAX);
		gk_cpu_set_simd(simd, reason, sizeof(reason));
		for (int way = 0; way < 4; way++)
		{
			Answer		got;

			/* forced, as it comes, with points in a file and without room, where there is no copy */
			solve(&got, &p, init, way == 1 ? GK_SKIP_AUTO : GK_SKIP_ON, threads[(number + way) % (p.k < 10 ? 4 : 2)],
				  chunks[(number + way) % 3], way == 2 ? 100000 : way == 3 ? (size_t) p.n * p.d * 4 + 4096 : SIZE_MAX);
			if (!same(&want, &got))
			{
				bad++;
				printf("# %s problem %d way %d (n %d d %d k %d) differs\n", simd, number, way, p.n, p.d, p.k);
			}
			answer_free(&got);
			leaks += got.host.live != 0;
		}
		answer_free(&want);
		data_free(&p);
	}
	ok(bad == 0 && leaks == 0, "%s: seeds of %d problems with and without a copy (%d differ, %d leak)",
	   simd, problems, bad, leaks);
}

/* ---- clusters of a sample's clusters ---- */

/* The inertia after ten iterations, and the clusters found. */
static double
inertia(const double *x, const double *w, int n, int d, GkDistance distance, GkInit init, int k, int *found)
{
	GkOptions	opt = {.k = k,.init = init,.n_init = 1,.max_iter = 10,.distance = distance};
	TestHost	host;
	GkStore    *store;
	GkModel		model;
	GkError		err;
	double		result = -1.0;

	test_host_init(&host, 2);
	store = load_store(&host, x, w, n, d, NULL, 1 << 18, SIZE_MAX, &err);
	if (gk_store_prepare(store, distance, false, &err) == GK_OK &&
		gk_fit(store, &gk_cpu_backend, &opt, NULL, &model, &err) == GK_OK)
	{
		result = model.inertia;
		*found = model.k;
		gk_model_free(&host.host, &model);
	}
	gk_store_free(store);
	test_host_end(&host);
	return result;
}

static void
test_hierarchical(void)
{
	enum
	{
	N = 12000, D = 6};
	static const int ks[] = {1, 2, 3, 30, 250};
	double	   *x = malloc(sizeof(double) * N * D);
	double	   *w = malloc(sizeof(double) * N);
	double		few[600];
	uint64_t	own_rng = 31;	/* the same points whichever instructions other tests skip */
	int			found = 0;
	int			all = 0;

	for (int i = 0; i < N; i++)
	{
		for (int j = 0; j < D; j++)
			x[i * D + j] = (i % 40 * (j + 3) % 17) * 4.0 + 3.0 * test_normal(&own_rng);
		w[i] = i % 10 == 0 ? 50.0 : 1.0;
	}
	for (int i = 0; i < 5; i++)
		for (int how = 0; how < 3; how++)
		{
			GkDistance	distance = how == 2 ? GK_COSINE : GK_EUCLIDEAN;
			const double *weight = how == 1 ? w : NULL;
			double		other = inertia(x, weight, N, D, distance, GK_INIT_PLUSPLUS, ks[i], &found);
			double		own = inertia(x, weight, N, D, distance, GK_INIT_HIERARCHICAL, ks[i], &found);

			/* of few clusters there may be another local optimum; these directions spread unevenly */
			ok(found == ks[i] && own >= 0.0 && (ks[i] < 30 || own <= (how == 2 ? 1.25 : 1.05) * other), "%s, k = %d: %.4f of the inertia from k-means++",
			   how == 0 ? "hierarchical" : how == 1 ? "weights" : "cosine", ks[i], own / other);
		}

	/* as many clusters as there are points, with copies among them or not */
	for (int k = 590; k <= 600; k += 5)
		for (int copies = 1; copies <= 3; copies++)
		{
			for (int i = 0; i < 600; i++)
				few[i] = i / copies * (i / copies % 7 + 1.0);
			inertia(few, NULL, 600, 1, GK_EUCLIDEAN, GK_INIT_PLUSPLUS, k, &all);
			inertia(few, NULL, 600, 1, GK_EUCLIDEAN, GK_INIT_HIERARCHICAL, k, &found);
			ok(found == all, "600 points, %d of a kind, k = %d: %d clusters", copies, k, found);
		}

	/* nine rows of ten are one point, and a sample has few of the others */
	for (int i = 0; i < N; i++)
		x[i] = i % 10 == 0 ? i : 5.0;
	inertia(x, NULL, N, 1, GK_EUCLIDEAN, GK_INIT_HIERARCHICAL, 300, &found);
	ok(found == 300, "mostly one point: %d clusters of 300", found);
	free(x);
	free(w);
}

/* ---- many seeds at once ---- */

/* The sum of w * D of `seeds` of the points, `each` at a time. */
static gk_int128
potential(const Data *p, int seeds, int each, size_t limit, int *leaks)
{
	TestHost	host;
	GkError		err;
	GkStore    *store;
	GkSession  *session;
	GkProblem	problem;
	gk_int128	phi = -1;
	float	   *c = malloc(sizeof(float) * seeds * p->d);

	test_host_init(&host, 2);
	store = load_store(&host, p->x, p->w, p->n, p->d, NULL, 1 << 18, limit, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	for (int i = 0; i < seeds; i++)
		gk_store_row(store, (int64_t) i * 7919 % p->n, c + i * p->d, &err);
	problem = gk_problem(store, seeds, 1);
	gk_cpu_backend.open(&problem, &session, &err);
	gk_cpu_backend.seed_begin(session, &err);
	for (int i = 0; i < seeds; i += each)
		gk_cpu_backend.seed_update(session, c + i * p->d, seeds - i < each ? seeds - i : each, &phi, &err);
	gk_cpu_backend.seed_end(session);
	gk_cpu_backend.close(session);
	gk_store_free(store);
	free(c);
	*leaks += host.live != 0;
	test_host_end(&host);
	return phi;
}

/* Scalar products find the nearest of many: D is that of one seed after the other. */
static void
test_many(const char *simd)
{
	static const int ds[] = {8, 16, 37, 300, 700};
	static const TestKind kinds[] = {TEST_BLOBS, TEST_DUPLICATES, TEST_LATTICE, TEST_OUTLIERS, TEST_UNIFORM};
	char		reason[128];
	int			bad = 0;
	int			leaks = 0;

	gk_cpu_set_simd(simd, reason, sizeof(reason));
	for (int i = 0; i < 5; i++)
		for (int seeds = few_or_all(i % 2 ? 481 : 63, 63); seeds <= 500; seeds += few_or_all(500, 209))
		{
			Data		p = {.n = 1000,.d = ds[i]};
			gk_int128	want;

			p.x = random_points(&rng, kinds[(i + seeds) % 5], p.n, p.d);
			p.w = i % 2 ? random_weights(&rng, p.n) : NULL;
			want = potential(&p, seeds, 1, SIZE_MAX, &leaks);
			bad += potential(&p, seeds, seeds, SIZE_MAX, &leaks) != want;
			bad += potential(&p, seeds, 100, 100000, &leaks) != want;
			data_free(&p);
		}
	ok(bad == 0 && leaks == 0, "%s: many seeds at once (%d differ, %d leak)", simd, bad, leaks);
}

/* ---- rounds ahead ---- */

/* Points like embeddings or not, with copies or weights: many clusters of wide points, as on the plain road. */
static void
test_wide(const char *simd)
{
	static const TestKind kinds[] = {TEST_UNIFORM, TEST_DUPLICATES, TEST_BLOBS, TEST_LATTICE, TEST_OUTLIERS};

	/*
	 * in memory, half in a file with room for many rounds or some, almost all, all, in chunks of several
	 * sizes
	 */
	static const size_t chunks[] = {30000, 200000, 100000, 50001, 7000};
	static const size_t limits[] = {SIZE_MAX, 380000, 190001, 65432, 0};
	char		reason[128];
	int			bad = 0;
	int			leaks = 0;

	for (int i = 0; i < few_or_all(3, 10); i++)
	{
		Data		p = {.n = 1200 + 77 * i,.d = 33 + 15 * (i % 4),.k = 90};
		GkInit		init = i % 3 == 1 ? GK_INIT_PARALLEL : GK_INIT_PLUSPLUS;
		Answer		want;

		p.x = random_points(&rng, kinds[i % 5], p.n, p.d);
		p.w = i % 4 == 3 ? random_weights(&rng, p.n) : NULL;
		gk_cpu_set_simd("scalar", reason, sizeof(reason));
		solve(&want, &p, init, GK_SKIP_OFF, 1, 1 << 24, SIZE_MAX);
		gk_cpu_set_simd(simd, reason, sizeof(reason));
		for (int way = 0; way < 5; way++)
		{
			Answer		got;

			solve(&got, &p, init, GK_SKIP_AUTO, 1 + (i + way) % 2, chunks[way], limits[way]);
			bad += !same(&want, &got);
			answer_free(&got);
			leaks += got.host.live != 0;
		}
		answer_free(&want);
		data_free(&p);
	}
	ok(bad == 0 && leaks == 0, "%s: many seeds of wide points, in a file or not (%d differ, %d leak)", simd, bad, leaks);
}

static bool without_int8;

/* A round by itself: its seed is in c ([want][d]) at the place that is returned. */
static const float *
round_alone(GkSession *session, GkStore *store, uint64_t key, int want, float *c)
{
	int			d = session->pts->d;
	GkPick		pick[16];
	gk_int128	pot[16];
	int			best = 0;
	int			got = 0;
	GkError		err;

	gk_cpu_backend.seed_race(session, key, true, want, pick, &got, &err);
	for (int q = 0; q < got; q++)
		gk_store_row(store, pick[q].row, c + q * d, &err);
	gk_cpu_backend.seed_eval(session, c, got, pot, &err);
	for (int q = 1; q < got; q++)
		if (pot[q] < pot[best])
			best = q;
	gk_cpu_backend.seed_update(session, c + best * d, 1, pot, &err);
	return c + best * d;
}

/* Rounds that are played ahead after 32 seeds, and whether D is as after the same rounds one by one.  -1: another failure. */
static int
ahead(const Data *p, GkSkip skip, size_t limit, uint64_t *d2_hash)
{
	enum
	{
	SEEDS = 32, ROUNDS = 40, WANT = 6};
	TestHost	host;
	GkError		err;
	GkStore    *store;
	GkSession  *session;
	GkProblem	problem;
	const GkPoints *pts;
	float	   *c = malloc(sizeof(float) * (SEEDS > ROUNDS ? SEEDS : ROUNDS) * p->d);
	uint64_t	keys[ROUNDS];
	gk_int128	phi;
	size_t		spare;
	int			done = 0;

	test_host_init(&host, 2);
	host.host.skip = skip;
	store = load_store(&host, p->x, p->w, p->n, p->d, NULL, 1 << 20, limit, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	pts = gk_store_points(store);
	spare = pts->spare;
	for (int i = 0; i < SEEDS; i++)
		gk_store_row(store, (int64_t) i * 7919 % p->n, c + i * p->d, &err);
	for (int i = 0; i < ROUNDS; i++)
		keys[i] = gk_key(p->n, 0, i);
	problem = gk_problem(store, SEEDS + ROUNDS, 1);
	gk_cpu_backend.open(&problem, &session, &err);
	gk_cpu_backend.seed_begin(session, &err);
	gk_cpu_backend.seed_update(session, c, SEEDS, &phi, &err);
	session->host.skip = skip;
	session->int8.useless = without_int8;
	gk_cpu_backend.seed_rounds(session, keys, ROUNDS, WANT, c, &done, &err);
	/* the rest, or all, one by one */
	for (int i = done; i < ROUNDS; i++)
		(void) round_alone(session, store, keys[i], WANT, c);
	gk_cpu_seed_settled(session, &err);
	*d2_hash = (uint64_t) session->seed.phi;
	for (int i = 0; i < pts->nchunks; i++)
		for (int row = 0; row < pts->chunks[i].rows; row++)
		{
			uint32_t	bits;

			memcpy(&bits, &pts->chunks[i].mind2[row], sizeof(bits));
			*d2_hash = gk_mix(*d2_hash ^ bits);
		}
	gk_cpu_backend.seed_end(session);
	gk_cpu_backend.close(session);
	done = pts->resident == (limit == SIZE_MAX) && pts->spare == spare ? done : -1;
	gk_store_free(store);
	free(c);
	done = host.live == 0 ? done : -1;
	test_host_end(&host);
	return done;
}

static void
test_ahead(const char *simd)
{
	Data		p = {.n = 4000,.d = 300};
	uint64_t	plain = 0;
	uint64_t	early = 1;
	char		reason[128];
	bool		integers;
	int			done;

	gk_cpu_set_simd(simd, reason, sizeof(reason));
	integers = gk_cpu_kernels()->integers != NULL;
	/* the same points for all sets: how many rounds are played ahead depends on these alone */
	rng = 1;
	for (int weighted = 0; weighted < 2; weighted++)
	{
		p.x = malloc(sizeof(double) * p.n * p.d);
		p.w = weighted ? random_weights(&rng, p.n) : NULL;
		for (int i = 0; i < p.n * p.d; i++)
			p.x[i] = (float) (test_normal(&rng) / sqrt(i % p.d + 1));
		ok(ahead(&p, GK_SKIP_OFF, SIZE_MAX, &plain) == 0, "%s: no rounds ahead where nothing may be skipped", simd);
		done = ahead(&p, GK_SKIP_AUTO, SIZE_MAX, &early);
		ok(done == (integers ? 16 : 0) && early == plain, "%s: %d rounds ahead leave D as it is one by one", simd, done);
		without_int8 = true;
		done = ahead(&p, GK_SKIP_AUTO, SIZE_MAX, &early);
		ok(done == (integers ? 16 : 0) && early == plain, "%s: %d by integers of 16 bits alone", simd, done);
		without_int8 = false;
		done = ahead(&p, GK_SKIP_AUTO, 1900000, &early);
		ok(done == (integers ? 16 : 0) && early == plain, "%s: %d with most points in a file", simd, done);
		done = ahead(&p, GK_SKIP_AUTO, 1300000, &early);
		ok((integers ? done >= 6 && done < 16 : done == 0) && early == plain, "%s: %d where less memory is left", simd, done);
		ok(ahead(&p, GK_SKIP_AUTO, 1030000, &early) == 0 && early == plain, "%s: none where none is left", simd);
		data_free(&p);
	}
}

/* Batches that began with more than half of the pairs that are kept, and those that forgot rows that had room. */
static int	half_full;
static int	too_soon;
static int	over;				/* batches that left more memory in use than there is */

/* What the limit has to hold: a thread's last run of pairs may be beside it. */
static size_t
used(const GkSession *s, int threads)
{
	const GkCpuSeedDrawn *kept = &s->seed.drawn;

	return s->int8.bytes + s->dot.int16_bytes + (kept->pair == NULL ? 0 :
												 (kept->room - 256 * (size_t) threads) * (GK_COST_AHEAD_BYTES / 6) + s->pts->n * sizeof(int32_t) + kept->most_drawn * 32);
}

/*
 * Rounds until almost every row has been drawn, most of them several times, ahead where that is possible or one by
 * one: what D and the seeds are then.  *drawn: rows drawn in batches, *draws: how often.
 */
static uint64_t
until_drawn(const Data *p, GkSkip skip, size_t limit, int *drawn, int *draws)
{
	enum
	{
	SEEDS = 32, WANT = 6, AT_ONCE = 64};
	TestHost	host;
	GkError		err;
	GkStore    *store;
	GkSession  *session;
	GkProblem	problem;
	float	   *c = malloc(sizeof(float) * AT_ONCE * p->d);
	gk_int128	phi;
	uint64_t	hash = 0;

	*drawn = *draws = 0;
	test_host_init(&host, 2);
	host.host.skip = skip;
	store = load_store(&host, p->x, p->w, p->n, p->d, NULL, 1 << 20, limit, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	problem = gk_problem(store, p->k, 1);
	gk_cpu_backend.open(&problem, &session, &err);
	gk_cpu_backend.seed_begin(session, &err);
	for (int i = 0; i < SEEDS; i++)
		gk_store_row(store, (int64_t) i * 7919 % p->n, c + i * p->d, &err);
	gk_cpu_backend.seed_update(session, c, SEEDS, &phi, &err);
	session->host.skip = skip;
	session->int8.useless = without_int8;
	for (int n = 0; n < p->k;)
	{
		uint64_t	keys[AT_ONCE];
		int			rounds = p->k - n < AT_ONCE ? p->k - n : AT_ONCE;
		int			done = 0;
		const float *seed;
		const GkCpuSeedDrawn *kept = &session->seed.drawn;
		int			before = kept->count;
		bool		half = kept->pairs > kept->most / 2;
		bool		room = before > 0 && kept->pairs <= kept->most &&
		(kept->most_drawn == (size_t) p->n || before + AT_ONCE * (WANT + GK_COST_AHEAD_EXTRA) <= (int) kept->most_drawn);

		for (int i = 0; i < rounds; i++)
			keys[i] = gk_key(p->n, 0, n + i);
		gk_cpu_backend.seed_rounds(session, keys, rounds, WANT, c, &done, &err);
		over += used(session, 2) > session->pts->spare;
		half_full += done > 0 && room && half;
		too_soon += done > 0 && room && kept->count < before;
		*drawn = session->seed.drawn.count > *drawn ? session->seed.drawn.count : *drawn;
		*draws += done * WANT;
		n += done;
		seed = c;
		if (done == 0)
		{
			seed = round_alone(session, store, keys[0], WANT, c);
			done = 1;
			n++;
		}
		for (int i = 0; i < done * p->d; i++)
		{
			uint32_t	bits;

			memcpy(&bits, &seed[i], sizeof(bits));
			hash = gk_mix(hash ^ bits);
		}
	}
	gk_cpu_seed_settled(session, &err);
	hash = gk_mix(hash ^ (uint64_t) session->seed.phi);
	gk_cpu_backend.seed_end(session);
	gk_cpu_backend.close(session);
	gk_store_free(store);
	free(c);
	*drawn = host.live == 0 ? *drawn : -1;
	test_host_end(&host);
	return hash;
}

/* Rows that are drawn in several batches are compared once. */
static void
test_again(const char *simd)
{
	Data		p = {.n = 900,.d = 300,.k = 500};
	char		reason[128];
	bool		integers;

	half_full = too_soon = over = 0;
	gk_cpu_set_simd(simd, reason, sizeof(reason));
	integers = gk_cpu_kernels()->integers != NULL;
	/* the same points for all sets: how many rounds are played ahead depends on these alone */
	rng = 1;
	for (int weighted = 0; weighted < 2; weighted++)
	{
		int			drawn;
		int			draws;
		uint64_t	plain;

		p.x = malloc(sizeof(double) * p.n * p.d);
		p.w = weighted ? random_weights(&rng, p.n) : NULL;
		for (int i = 0; i < p.n * p.d; i++)
			p.x[i] = (float) (test_normal(&rng) / sqrt(i % p.d + 1));
		plain = until_drawn(&p, GK_SKIP_OFF, SIZE_MAX, &drawn, &draws);
		ok(drawn == 0 && draws == 0, "%s: all rounds one by one", simd);
		for (int way = 0; way < 5; way++)
		{
			static const char *const names[] = {"8 bits", "16 bits", "most points in a file", "some forgotten for want of memory",
			"room for pairs just suffices"};
			static const size_t limits[] = {SIZE_MAX, 3000000, 600000, 160000, 350000};
			int			most = way == 3 ? 2 * p.n / 3 : p.n;
			uint64_t	hash;

			without_int8 = way == 1;
			hash = until_drawn(&p, GK_SKIP_AUTO, limits[way], &drawn, &draws);
			ok(hash == plain && (!integers || (drawn > 0 && drawn <= most && draws > 2 * drawn)),
			   "%s: %d rows in %d draws are compared once, %s", simd, drawn, draws, names[way]);
		}
		without_int8 = false;
		data_free(&p);
	}
	ok(too_soon == 0 && (!integers || half_full > 0), "%s: rows that have room are not forgotten (%d of %d batches that begin half full forget)",
	   simd, too_soon, half_full);
	ok(over == 0, "%s: and with what is rounded they fit the limit (%d batches do not)", simd, over);
}

/* ---- whether the copy is made ---- */

static bool
made(GkSkip skip, int n, int d, int k, bool blobs, size_t limit)
{
	enum
	{
	CANDIDATES = 5, SEEDS = 8};
	TestHost	host;
	GkError		err;
	double	   *x = malloc(sizeof(double) * n * d);
	float		c[(SEEDS + CANDIDATES) * 32];
	gk_int128	pot[CANDIDATES];
	GkProblem	problem = {.core = &gk_core,.k_max = k};
	GkSession  *session;
	GkStore    *store;
	bool		yes = false;

	test_host_init(&host, 2);
	host.host.skip = skip;
	for (int i = 0; i < n * d; i++)
		x[i] = blobs ? (i / d % 11) * 30.0 * (i % d % 2 ? -1 : 1) + test_normal(&rng) : test_uniform(&rng);
	store = load_store(&host, x, NULL, n, d, NULL, 1 << 24, limit, &err);
	gk_store_prepare(store, GK_EUCLIDEAN, false, &err);
	problem.host = &host.host;
	problem.store = store;
	gk_cpu_backend.open(&problem, &session, &err);
	gk_cpu_backend.seed_begin(session, &err);
	for (int i = 0; i < SEEDS + CANDIDATES; i++)
		gk_store_row(store, n / (SEEDS + CANDIDATES) * i, c + i * d, &err);
	for (int i = 0; i < SEEDS; i++)
		gk_cpu_backend.seed_update(session, c + i * d, 1, pot, &err);
	if (gk_cpu_backend.seed_eval(session, c + SEEDS * d, CANDIDATES, pot, &err) == GK_OK)
		yes = session->index.made;
	gk_cpu_backend.seed_end(session);
	yes = yes && !session->index.made;
	gk_cpu_backend.close(session);
	gk_store_free(store);
	free(x);
	if (host.live != 0)
		printf("# %d blocks left\n", (int) host.live);
	test_host_end(&host);
	return yes;
}

/* ---- the copy of a part of the store ---- */

#define PART_ROUNDS	8

/* Potentials of some rounds over a store; *copies: those that had the copy. */
static bool
potentials(GkStore *store, const TestHost *host, const float *c, gk_int128 *pot, int *copies)
{
	GkProblem	problem = {.core = &gk_core,.k_max = 2 * PART_ROUNDS,.host = &host->host,.store = store};
	GkSession  *session;
	gk_int128	phi;
	bool		good;
	GkError		err;

	if (gk_cpu_backend.open(&problem, &session, &err) != GK_OK)
		return false;
	good = gk_cpu_backend.seed_begin(session, &err) == GK_OK && gk_cpu_backend.seed_update(session, c, 1, &phi, &err) == GK_OK;
	for (int i = 0; good && i < PART_ROUNDS; i++)
	{
		good = gk_cpu_backend.seed_eval(session, c + (2 * i + 2), 2, pot + (size_t) 2 * i, &err) == GK_OK &&
			gk_cpu_backend.seed_update(session, c + (2 * i + 2), 1, &phi, &err) == GK_OK;
		*copies += session->index.made;
	}
	gk_cpu_backend.seed_end(session);
	gk_cpu_backend.close(session);
	return good;
}

/* What is kept for a tile of the store has the tile's place, what is kept for one of the copy has not. */
static void
test_parts(void)
{
	enum
	{
		N = 400000, EDGE = 300032
	};
	TestHost	host;
	GkError		err;
	double	   *x = malloc(sizeof(double) * N);
	float		c[2 * PART_ROUNDS + 2];
	gk_int128	whole[2 * PART_ROUNDS];
	gk_int128	part[2][2 * PART_ROUNDS];
	GkStore    *store;
	GkStore    *half;
	int			copies = 0;
	int			bad = 0;
	bool		good;

	for (int i = 0; i < N; i++)
		x[i] = test_uniform(&rng);
	for (int i = 0; i < 2 * PART_ROUNDS + 2; i++)
		c[i] = (float) test_uniform(&rng);
	test_host_init(&host, 2);
	host.host.skip = GK_SKIP_ON;
	store = load_store(&host, x, NULL, N, 1, NULL, (size_t) 1 << 24, SIZE_MAX, &err);
	good = gk_store_prepare(store, GK_EUCLIDEAN, false, &err) == GK_OK && potentials(store, &host, c, whole, &copies);
	for (int i = 0; good && i < 2; i++)
	{
		good = gk_store_part(store, i * EDGE, i == 0 ? EDGE : N - EDGE, 2, &host.host, &half, &err) == GK_OK &&
			potentials(half, &host, c, part[i], &copies);
		gk_store_part_free(half);
	}
	for (int i = 0; good && i < 2 * PART_ROUNDS; i++)
		bad += whole[i] != part[0][i] + part[1][i];
	ok(good && bad == 0 && copies >= 3 * (PART_ROUNDS - 1), "copies of a store's parts: their potentials are the store's (%d differ, %d copies)", bad, copies);
	gk_store_free(store);
	free(x);
	ok(host.live == 0, "no memory left");
	test_host_end(&host);
}

/* ---- samples ---- */

static int
by_hash(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return (x > y) - (x < y);
}

/* Are the rows of a sample those with the smallest hashes, in order, with their values and weights? */
static bool
right_sample(int n, int rows, size_t limit)
{
	TestHost	host;
	GkError		err;
	double	   *x = malloc(sizeof(double) * n * 3);
	double	   *w = random_weights(&rng, n);
	uint64_t   *hash = malloc(sizeof(uint64_t) * n);
	GkStore    *store,
			   *sample;
	bool		right;
	int			at = 0;

	test_host_init(&host, 2);
	for (int i = 0; i < n * 3; i++)
		x[i] = test_uniform(&rng) * 100 - 30;
	for (int i = 0; i < n; i++)
		hash[i] = gk_hash(n, i);
	qsort(hash, n, sizeof(uint64_t), by_hash);
	store = load_store(&host, x, w, n, 3, NULL, 30000, limit, &err);
	right = gk_store_prepare(store, GK_EUCLIDEAN, true, &err) == GK_OK &&
		gk_store_sample(store, rows, n, &sample, &err) == GK_OK && gk_store_rows(sample) == rows;
	for (int i = 0; right && i < n; i++)
	{
		float		is[3],
					was[3];

		if (gk_hash(n, i) > hash[rows - 1])
			continue;
		right = gk_store_row(store, i, was, &err) == GK_OK && gk_store_row(sample, at++, is, &err) == GK_OK &&
			memcmp(is, was, sizeof(is)) == 0;
	}
	right = right && at == rows && sample->pts.weight_exp == store->pts.weight_exp &&
		sample->pts.d2_expo == store->pts.d2_expo && sample->pts.mean_var == store->pts.mean_var;
	gk_store_free(sample);
	gk_store_free(store);
	free(x);
	free(w);
	free(hash);
	right = right && host.live == 0;
	test_host_end(&host);
	return right;
}

static void
test_samples(void)
{
	static const int threads[] = {1, 2, 7};
	static const size_t chunks[] = {1 << 24, 30000, 7000};
	int			bad = 0;

	ok(gk_sample_rows(0, 5, 100) == 100 && gk_sample_rows(NAN, 5, 100) == 100, "no sample: all rows");
	ok(gk_sample_rows(0.25, 5, 100) == 25 && gk_sample_rows(0.251, 5, 100) == 26 && gk_sample_rows(0.07, 5, 100) == 7, "a share of the rows");
	ok(gk_sample_rows(30, 5, 100) == 30 && gk_sample_rows(1, 1, 100) == 1, "a number of rows");
	ok(gk_sample_rows(1e-9, 5, 100) == 5 && gk_sample_rows(1e-9, 500, 100) == 100, "k rows at least");
	ok(gk_sample_rows(1e300, 5, 100) == 100, "not more than there are");
	ok(right_sample(9000, 1, SIZE_MAX) && right_sample(9000, 2345, SIZE_MAX) && right_sample(9000, 9000, SIZE_MAX),
	   "the rows with the smallest hashes");
	ok(right_sample(20000, 15000, 0), "the same from a file, into a file");

	for (int number = 0; number < 30; number++)
	{
		Data		p = random_data(number);
		GkInit		init = number % 5 == 0 ? GK_INIT_RANDOM : number % 5 == 1 ? GK_INIT_HIERARCHICAL : GK_INIT_PLUSPLUS;
		Answer		want;
		int64_t		rows = 0;

		p.fit_sample = number % 3 == 0 ? 0.3 : number % 3 == 1 ? p.n / 2 + 1 : 0;
		p.init_sample = number % 2 == 0 ? 0.5 : number % 3 == 2 ? p.n / 3 + 1 : 0;
		solve(&want, &p, init, GK_SKIP_OFF, 1, 1 << 24, SIZE_MAX);
		for (int i = 0; i < want.model.k; i++)
			rows += want.model.size[i];
		bad += want.status != GK_OK || rows != p.n || want.model.rows_used != p.n;
		for (int way = 0; way < 3; way++)
		{
			Answer		got;

			solve(&got, &p, init, GK_SKIP_AUTO, threads[(number + way) % 3], chunks[way], way == 2 ? 100000 : SIZE_MAX);
			if (!same(&want, &got) || memcmp(want.model.size, got.model.size, want.model.k * sizeof(int64_t)) != 0)
				bad++;
			answer_free(&got);
			bad += got.host.live != 0;
		}
		answer_free(&want);
		data_free(&p);
	}
	ok(bad == 0, "fits of samples: all rows have a cluster, the same bits by every way (%d differ)", bad);
}

int
main(void)
{
	static const char *const levels[] = {"avx512", "avx512f", "avx2", "neon", "scalar"};
	char		reason[128];

	for (int i = 0; i < 5; i++)
		if (gk_cpu_kernels_named(levels[i], reason, sizeof(reason)) != NULL)
		{
			test_fits(levels[i], i == 4 ? few_or_all(5, 14) : few_or_all(10, 35));
			test_many(levels[i]);
			test_wide(levels[i]);
			test_ahead(levels[i]);
			test_again(levels[i]);
		}
		else
			skip("%s", reason);
	gk_cpu_set_simd("auto", reason, sizeof(reason));
	test_hierarchical();
	test_samples();
	test_parts();
	ok(made(GK_SKIP_AUTO, 20000, 4, 500, true, SIZE_MAX), "many seeds among clusters: a copy");
	ok(!made(GK_SKIP_AUTO, 20000, 4, 16, true, SIZE_MAX), "few seeds: none");
	ok(!made(GK_SKIP_AUTO, 5000, 4, 500, true, SIZE_MAX), "few points: none");
	ok(!made(GK_SKIP_AUTO, 20000, 32, 500, false, SIZE_MAX), "no neighbours in 32 features: none");
	ok(!made(GK_SKIP_AUTO, 20000, 4, 500, true, 20000 * 4 * 5), "no memory to spare: none");
	ok(!made(GK_SKIP_OFF, 20000, 4, 500, true, SIZE_MAX), "switched off: none");
	ok(made(GK_SKIP_ON, 5000, 32, 16, false, SIZE_MAX), "switched on: a copy");
	return done_testing();
}
