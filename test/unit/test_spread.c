/*
 * Several devices in one clustering: two to eight of unequal speed, played by the CPU, give the
 * bits of one, however the rows are shared out and whichever of them fails at whichever call.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/gk_backend.h"
#include "core/spread/gk_spread.h"
#include "core/store/gk_store.h"
#include "gk_test.h"
#include "gk_testfit.h"

/* ---- devices that are none ---- */

#define DEVICES			8

/* What device i does, and has done; its own thread alone writes its part. */
typedef struct Fake
{
	int			calls;			/* of passes, open() among them */
	int			fail_at;		/* this call fails; 0: none */
	GkStatus	failure;
	bool		dead;			/* it has failed, and does so from then on */
	double		ms_per_row;		/* that a step takes, besides what the CPU takes */
	int64_t		max_rows;		/* more do not fit; 0: any do */
	int64_t		rows;			/* of the session that was opened last */
	int			open;			/* sessions */
	int			steps;
} Fake;

static Fake fakes[DEVICES];
static int	wrong_problems;		/* that a device was given */
static int64_t all_rows;		/* of the problem; -1: any */

static bool joining;			/* their sessions join */
static int	joined_rounds;		/* of seeding that joined sessions have done */

/* What joined sessions have in common. */
typedef struct Meeting
{
	pthread_mutex_t lock;
	pthread_cond_t news;
	int			n;
	int			here;
	unsigned	turn;
	bool		over;			/* one has failed or left */
	GkJoin		member[DEVICES];
	GkStep		step[DEVICES];
	/* Of a round of seeding. */
	GkPick		pick[DEVICES][64];
	float	   *point[DEVICES]; /* [64][d] */
	int			got[DEVICES];
	gk_int128	pot[DEVICES][64];
} Meeting;

struct GkSession
{
	Fake	   *fake;
	GkSession  *cpu;
	int64_t		n;
	int			d;
	int			k_max;
	const GkHost *host;
	GkStore    *store;
	Meeting    *with;			/* NULL: alone */
	int			me;
};

static GkStatus
call(Fake *f, GkError *err)
{
	if (++f->calls != f->fail_at && !f->dead)
		return GK_OK;
	f->dead |= f->failure == GK_ERR_DEVICE;
	return gk_fail(err, f->failure, "device %d failed", (int) (f - fakes));
}

/* Are a part's totals those of its rows?  Is it kept from running ahead by its own sums? */
static bool
right_problem(const GkProblem *problem, bool all)
{
	const GkPoints *pts = gk_store_points(problem->store);
	gk_int128	mass = 0;
	bool		right = all || (problem->max_iter <= 1 && problem->tol == 0.0);

	for (int i = 0; i < pts->nchunks; i++)
		mass += pts->resident ? gk_chunk_mass(pts, &pts->chunks[i], pts->chunks[i].rows) : 0;
	if (!pts->resident || problem->max_iter == 0)
		return right;
	for (int j = 0; j < pts->d; j++)
	{
		gk_int128	sum = 0;

		for (int i = 0; i < pts->nchunks; i++)
			sum += gk_chunk_sum(pts, &pts->chunks[i], pts->chunks[i].rows, j);
		right &= sum == pts->total_sum[j];
	}
	return right && mass == pts->total_mass;
}

/* ---- sessions that join ---- */

static void
give_up(Meeting *m)
{
	pthread_mutex_lock(&m->lock);
	m->over = true;
	pthread_cond_broadcast(&m->news);
	pthread_mutex_unlock(&m->lock);
}

/* Wait until all are here; false: one has failed. */
static bool
meet(GkSession *s)
{
	Meeting    *m = s->with;
	unsigned	turn;
	bool		all;

	pthread_mutex_lock(&m->lock);
	turn = m->turn;
	if (++m->here == m->n)
	{
		m->here = 0;
		m->turn++;
		pthread_cond_broadcast(&m->news);
	}
	while (m->turn == turn && !m->over)
		pthread_cond_wait(&m->news, &m->lock);
	all = m->turn != turn;
	pthread_mutex_unlock(&m->lock);
	return all;
}

static bool
fake_join(const GkJoin *members, int n, int max_iter, double tol)
{
	Meeting    *m;

	(void) tol;
	(void) max_iter;
	if (!joining || n < 2)
		return false;
	m = calloc(1, sizeof(Meeting));
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->news, NULL);
	m->n = n;
	for (int i = 0; i < n; i++)
	{
		GkSession  *s = members[i].session;
		size_t		sums = (size_t) s->k_max * s->d;

		m->member[i] = members[i];
		m->step[i].sum = calloc(sums + s->k_max, sizeof(gk_int128));
		m->step[i].mass = m->step[i].sum + sums;
		m->step[i].count = calloc(s->k_max, sizeof(int64_t));
		m->point[i] = calloc(64 * s->d, sizeof(float));
		s->with = m;
		s->me = i;
	}
	return true;
}

static void
fake_leave(GkSession *s)
{
	give_up(s->with);
}

static void
end_join(GkSession *s)
{
	Meeting    *m = s->with;
	bool		last;

	free(m->step[s->me].sum);
	free(m->step[s->me].count);
	free(m->point[s->me]);
	pthread_mutex_lock(&m->lock);
	/* has been left by all, so that nobody waits */
	last = ++m->turn && --m->n == 0;
	pthread_mutex_unlock(&m->lock);
	if (last)
	{
		pthread_cond_destroy(&m->news);
		pthread_mutex_destroy(&m->lock);
		free(m);
	}
}

static GkStatus
joined_step(GkSession *s, const float *c, int k, GkStep *out, GkError *err)
{
	Meeting    *m = s->with;
	size_t		sums = (size_t) k * s->d;
	GkStatus	st = gk_cpu_backend.step(s->cpu, c, k, &m->step[s->me], err);

	out->busy_ms = 1e-6 + s->fake->ms_per_row * (double) s->n;
	if (st == GK_OK && !meet(s))
		st = GK_STOPPED;
	if (st != GK_OK)
		return st;
	if (out->sum != NULL)
	{
		memset(out->sum, 0, sums * sizeof(gk_int128));
		memset(out->mass, 0, k * sizeof(gk_int128));
		memset(out->count, 0, k * sizeof(int64_t));
		for (int i = 0; i < m->n; i++)
		{
			for (size_t v = 0; v < sums; v++)
				out->sum[v] += m->step[i].sum[v];
			for (int q = 0; q < k; q++)
			{
				out->mass[q] += m->step[i].mass[q];
				out->count[q] += m->step[i].count[q];
			}
		}
	}
	(void) meet(s);
	return GK_OK;
}

/* The first `want` of all members' picks, whose points go to c.  Returns how many. */
static int
first_picks(const GkSession *s, int want, float *c)
{
	const Meeting *m = s->with;
	int			at[DEVICES] = {0};
	int			n = 0;

	for (; n < want; n++)
	{
		int			best = -1;

		for (int i = 0; i < m->n; i++)
			if (at[i] < m->got[i] && (best < 0 || m->pick[i][at[i]].key < m->pick[best][at[best]].key))
				best = i;
		if (best < 0)
			break;
		memcpy(c + n * s->d, m->point[best] + at[best]++ * s->d, s->d * sizeof(float));
	}
	return n;
}

static GkStatus
joined_round(GkSession *s, uint64_t key, int want, float *c, int *n, int *best, GkError *err)
{
	Meeting    *m = s->with;
	GkStatus	st = gk_cpu_backend.seed_race(s->cpu, key, true, want, m->pick[s->me], &m->got[s->me], err);
	gk_int128	least = 0;
	gk_int128	phi;

	for (int i = 0; st == GK_OK && i < m->got[s->me]; i++)
		st = gk_store_row(s->store, m->pick[s->me][i].row, m->point[s->me] + i * s->d, err);
	if (st == GK_OK && !meet(s))
		st = GK_STOPPED;
	if (st != GK_OK)
		return st;
	*n = first_picks(s, want, c);
	if (*n > 0)
		st = gk_cpu_backend.seed_eval(s->cpu, c, *n, m->pot[s->me], err);
	if (st == GK_OK && !meet(s))
		st = GK_STOPPED;
	if (st != GK_OK)
		return st;
	for (int q = 0; q < *n; q++)
	{
		gk_int128	pot = 0;

		for (int i = 0; i < m->n; i++)
			pot += m->pot[i][q];
		if (q == 0 || pot < least)
		{
			*best = q;
			least = pot;
		}
	}
	if (*n > 0)
		st = gk_cpu_backend.seed_update(s->cpu, c + *best * s->d, 1, &phi, err);
	return st == GK_OK && !meet(s) ? GK_STOPPED : st;
}

static GkStatus
fake_seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done, GkError *err)
{
	GkStatus	st = call(s->fake, err);
	float	   *c = calloc((size_t) want * s->d, sizeof(float));

	*done = 0;
	for (int r = 0; s->with != NULL && st == GK_OK && r < rounds && r < 3; r++)
	{
		int			n = 0;
		int			best = 0;

		st = joined_round(s, keys[r], want, c, &n, &best, err);
		if (st != GK_OK || n == 0)
			break;
		if (points != NULL)
		{
			memcpy(points + *done * s->d, c + best * s->d, s->d * sizeof(float));
			joined_rounds++;
		}
		++*done;
	}
	if (st != GK_OK && s->with != NULL)
		give_up(s->with);
	free(c);
	return st;
}

static void
fake_close(GkSession *s)
{
	if (s == NULL)
		return;
	if (s->with != NULL)
		end_join(s);
	gk_cpu_backend.close(s->cpu);
	s->fake->open--;
	gk_free(s->host, s);
}

static GkStatus
fake_open(const GkProblem *problem, GkSession **out, GkError *err)
{
	Fake	   *f = &fakes[atoi(problem->gpu_devices)];
	GkStatus	st = call(f, err);
	GkSession  *s;

	*out = NULL;
	if (st != GK_OK)
		return st;
	s = gk_alloc0(problem->host, 1, sizeof(GkSession));
	s->fake = f;
	s->host = problem->host;
	s->store = problem->store;
	s->n = gk_store_points(problem->store)->n;
	s->d = gk_store_points(problem->store)->d;
	s->k_max = problem->k_max;
	f->rows = s->n;
	f->open++;
	if (!right_problem(problem, all_rows < 0 || s->n == all_rows))
		__atomic_add_fetch(&wrong_problems, 1, __ATOMIC_RELAXED);
	if (f->max_rows > 0 && s->n > f->max_rows)
		st = gk_fail(err, GK_ERR_DEVICE_MEMORY, "device %d is too small", (int) (f - fakes));
	if (st == GK_OK)
		st = gk_cpu_backend.open(problem, &s->cpu, err);
	if (st != GK_OK)
		fake_close(s);
	else
		*out = s;
	return st;
}

static void
take_time(const GkSession *s)
{
	for (double until = gk_now_ms() + s->fake->ms_per_row * (double) s->n; gk_now_ms() < until;)
		nanosleep(&(struct timespec) {0, 50000}, NULL);
}

static GkStatus
fake_step(GkSession *s, const float *c, int k, GkStep *out, GkError *err)
{
	GkStatus	st = call(s->fake, err);

	s->fake->steps++;
	if (s->fake->ms_per_row > 0.0)
		take_time(s);
	if (st == GK_OK)
		st = s->with != NULL && k <= s->k_max ? joined_step(s, c, k, out, err) : gk_cpu_backend.step(s->cpu, c, k, out, err);
	if (st != GK_OK && s->with != NULL)
		give_up(s->with);
	return st;
}

/* Labels that a device hands out before it fails. */
typedef struct Counted
{
	const GkLabelSink *to;
	GkSession  *session;
	GkStatus	st;
	GkError		err;
} Counted;

static bool
counted_emit(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Counted    *c = ctx;

	c->st = call(c->session->fake, &c->err);
	return c->st == GK_OK && c->to->emit(c->to->ctx, rows, label, d2, aux);
}

static GkStatus
fake_finish(GkSession *s, const float *c, int k, GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	Counted		counted = {sink, s, GK_OK, {0}};
	GkLabelSink through = {&counted, counted_emit, NULL};
	GkStatus	st = call(s->fake, err);

	if (st == GK_OK)
		st = gk_cpu_backend.finish(s->cpu, c, k, out, sink != NULL ? &through : NULL, err);
	if (counted.st != GK_OK)
		*err = counted.err;
	return counted.st != GK_OK ? counted.st : st;
}

#define PASS(name, params, args) \
	static GkStatus fake_##name params \
	{ \
		GkStatus	st = call(s->fake, err); \
		return st == GK_OK ? gk_cpu_backend.name args : st; \
	}

PASS(seed_begin, (GkSession *s, GkError *err), (s->cpu, err))
PASS(seed_update, (GkSession *s, const float *c, int m, gk_int128 *phi, GkError *err), (s->cpu, c, m, phi, err))
PASS(seed_eval, (GkSession *s, const float *c, int m, gk_int128 *pot, GkError *err), (s->cpu, c, m, pot, err))
PASS(seed_race, (GkSession *s, uint64_t key, bool use_d2, int want, GkPick *out, int *got, GkError *err),
	 (s->cpu, key, use_d2, want, out, got, err))
PASS(seed_far, (GkSession *s, int64_t *row, GkError *err), (s->cpu, row, err))

static void
fake_seed_end(GkSession *s)
{
	gk_cpu_backend.seed_end(s->cpu);
}

static void
fake_describe(GkSession *s, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	gk_cpu_backend.describe(s->cpu, device, device_len, strategy, strategy_len);
}

static void
fake_times(GkSession *s, double *context_ms, double *upload_ms)
{
	*context_ms = 1.0 + (double) (s->fake - fakes);
	*upload_ms = 2.0;
}

static const GkBackend fake = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "fake",
	.open = fake_open,
	.close = fake_close,
	.describe = fake_describe,
	.times = fake_times,
	.step = fake_step,
	.finish = fake_finish,
	.seed_begin = fake_seed_begin,
	.seed_end = fake_seed_end,
	.seed_update = fake_seed_update,
	.seed_eval = fake_seed_eval,
	.seed_race = fake_seed_race,
	.seed_far = fake_seed_far,
	.seed_rounds = fake_seed_rounds,
	.join = fake_join,
	.leave = fake_leave,
};

/* n such devices, the last one the CPU itself if wanted. */
static GkSpread
spread_over(int n, bool cpu, const char *rows)
{
	GkSpread	s = {.n = n,.rows = rows};

	memset(fakes, 0, sizeof(fakes));
	for (int i = 0; i < n; i++)
		s.device[i] = (GkSpreadDevice) {&fake, i, 1.0 + i};
	if (cpu)
		s.device[n - 1] = (GkSpreadDevice) {&gk_cpu_backend, -1, 0.5};
	return s;
}

static int
sessions_open(void)
{
	int			open = 0;

	for (int i = 0; i < DEVICES; i++)
		open += fakes[i].open;
	return open;
}

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
	static const char *const splits[] = {NULL, "1", "64,64", "0,0,1000000", "100,0,1", "128,64,64,64,64,64,64"};
	uint64_t	rng = 31;
	int			differ = 0;
	int			left = 0;
	int			many = 0;
	GkError		err;

	for (int number = 0; number < problems; number++)
	{
		Problem		p = problem_of(&rng, number);
		GkSpread	spread = spread_over(2 + number % 7, number % 2, splits[number % 6]);
		Answer		oracle;
		Answer		a;

		joining = number % 4 < 2;
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
fail_everywhere(const Problem *p, const Answer *oracle, int n, GkStatus failure, size_t chunk, size_t limit, int *bad)
{
	int			injected = 0;
	GkError		err;

	for (int device = 0; device < n; device++)
		for (int at = 1;; at++)
		{
			GkSpread	spread = spread_over(n, false, NULL);
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

	for (int number = 0; number < 10; number++)
	{
		Problem		p = problem_of(&rng, number % 5);
		Answer		oracle;

		joining = number >= 5;
		/* few calls, but rows in several chunks */
		p.n = p.n < 900 ? p.n : 900;
		p.k = p.opt.k = p.k < 6 ? p.k : 6;
		p.opt.max_iter = 3;
		solve(&oracle, &p, NULL, 1, whole_chunk(&p), SIZE_MAX, &err);
		injected += fail_everywhere(&p, &oracle, 2 + number % 2, number % 2 ? GK_ERR_DEVICE : GK_ERR_DEVICE_MEMORY,
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
		GkSpread	spread = spread_over(3, at % 4 == 1, NULL);
		Answer		a;

		joining = at % 4 > 1;
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
		GkSpread	spread = spread_over(3, nth % 2, NULL);
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
test_shares(bool joined)
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
	test_same_bits(160);
	test_farthest();
	test_labels();
	test_failures();
	test_no_one_left();
	test_too_small();
	test_stop_and_memory();
	test_shares(false);
	test_shares(true);
	return done_testing();
}
