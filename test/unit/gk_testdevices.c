/*
 * gk_testdevices.c - devices that are none (gk_testdevices.h).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/gk_engine.h"
#include "core/store/gk_store.h"
#include "gk_testdevices.h"
#include "gk_testfit.h"

Fake		fakes[DEVICES];
int			wrong_problems;
int64_t		all_rows;
bool		joining;
int			joined_rounds;
int			advancing;
int			advanced;
int			recalled;
int			moved;

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
	bool		follows[DEVICES];
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
	/* Of an iteration by itself: the centroids that it began with and ended with, [k_max][d], and its step. */
	int			advances;
	float	   *began;
	float	   *ended;
	GkStep		step;
	/* Rows that come while they are read. */
	bool		wide;
	void	   *room;			/* [d][ROOM_STRIDE] floats or doubles */
	double	   *x;				/* [sent][d] */
	int64_t		sent;
	double	   *next_x;			/* [next_sent][d] taken over; NULL: none */
	int64_t		next_sent;
};

/* Rows that a device takes at a time, and the places of its room. */
#define ROOM_ROWS		250
#define ROOM_STRIDE		300

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

static void
alloc_step(GkStep *step, int k, int d)
{
	step->sum = calloc((size_t) k * (d + 1), sizeof(gk_int128));
	step->mass = step->sum + (size_t) k * d;
	step->count = calloc(k, sizeof(int64_t));
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

		m->member[i] = members[i];
		alloc_step(&m->step[i], s->k_max, s->d);
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
	m->follows[s->me] = out->follows;
	if (st == GK_OK && !meet(s))
		st = GK_STOPPED;
	if (st != GK_OK)
		return st;
	for (int i = 0; i < m->n; i++)
		if (m->follows[i] != out->follows)
			return gk_fail(err, GK_ERR_INTERNAL, "joined sessions are told different things");
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
	free(s->began);
	free(s->ended);
	free(s->step.sum);
	free(s->step.count);
	free(s->room);
	free(s->x);
	free(s->next_x);
	gk_free(s->host, s);
}

static GkSession *
make_session(Fake *f, const GkProblem *problem)
{
	GkSession  *s = gk_alloc0(problem->host, 1, sizeof(GkSession));

	s->fake = f;
	s->host = problem->host;
	s->store = problem->store;
	s->d = gk_store_points(problem->store)->d;
	f->open++;
	return s;
}

static GkStatus
fake_open(const GkProblem *problem, GkSession **out, GkError *err)
{
	Fake	   *f = &fakes[atoi(problem->gpu_devices)];
	GkStatus	st = call(f, err);
	GkSession  *s = problem->ingesting;

	*out = NULL;
	if (st == GK_OK && s == NULL)
		s = make_session(f, problem);
	if (st == GK_OK)
	{
		s->n = gk_store_points(problem->store)->n;
		s->k_max = problem->k_max;
		f->rows = s->n;
		if (!right_problem(problem, all_rows < 0 || s->n == all_rows))
			__atomic_add_fetch(&wrong_problems, 1, __ATOMIC_RELAXED);
		if (f->max_rows > 0 && s->n > f->max_rows)
			st = gk_fail(err, GK_ERR_DEVICE_MEMORY, "device %d is too small", (int) (f - fakes));
	}
	if (st == GK_OK)
		st = gk_cpu_backend.open(problem, &s->cpu, err);
	if (st != GK_OK)
		fake_close(s);
	else
		*out = s;
	return st;
}

static GkStatus
fake_move(GkSession *s, GkStore *store, int64_t from, bool *done, GkError *err)
{
	GkProblem	problem = {.store = store,.max_iter = 1};
	Fake	   *f = s->fake;
	GkStatus	st;

	if (store == NULL)
		return gk_cpu_backend.move(s->cpu, NULL, 0, done, err);
	*done = false;
	st = call(f, err);
	if (st != GK_OK || (f->stays > 0 && f->moves++ % f->stays == 0))
		return st;
	st = gk_cpu_backend.move(s->cpu, store, from, done, err);
	if (st != GK_OK || !*done)
		return st;
	if (!right_problem(&problem, false))
		__atomic_add_fetch(&wrong_problems, 1, __ATOMIC_RELAXED);
	s->store = store;
	s->n = f->rows = gk_store_points(store)->n;
	__atomic_add_fetch(&moved, 1, __ATOMIC_RELAXED);
	return GK_OK;
}

/* ---- rows that come while they are read ---- */

static GkStatus
fake_ingest_open(const GkProblem *problem, int64_t rows, bool wide, GkSession **out, GkError *err)
{
	Fake	   *f = &fakes[atoi(problem->gpu_devices)];
	GkStatus	st = call(f, err);

	*out = NULL;
	f->expected = rows;
	if (st != GK_OK)
		return st;
	*out = make_session(f, problem);
	(*out)->wide = wide;
	(*out)->room = malloc((size_t) (*out)->d * ROOM_STRIDE * sizeof(double));
	return GK_OK;
}

static GkStatus
fake_room(GkSession *s, void **to, int *stride, int *rows, GkError *err)
{
	*to = s->room;
	*stride = ROOM_STRIDE;
	*rows = ROOM_ROWS;
	return call(s->fake, err);
}

static GkStatus
fake_send(GkSession *s, int rows, GkError *err)
{
	GkStatus	st = call(s->fake, err);

	if (st == GK_OK && s->fake->max_rows > 0 && s->sent + rows > s->fake->max_rows)
		st = gk_fail(err, GK_ERR_DEVICE_MEMORY, "device %d is too small", (int) (s->fake - fakes));
	if (st != GK_OK)
		return st;
	s->x = realloc(s->x, (size_t) (s->sent + rows) * s->d * sizeof(double));
	for (int i = 0; i < rows; i++, s->sent++)
		for (int j = 0; j < s->d; j++)
			s->x[s->sent * s->d + j] = s->wide ? ((double *) s->room)[j * ROOM_STRIDE + i] : ((float *) s->room)[j * ROOM_STRIDE + i];
	return GK_OK;
}

static GkStatus
fake_take_over(const GkJoin *members, int n, int me, int64_t first, int64_t rows, GkError *err)
{
	GkSession  *s = members[me].session;
	GkStatus	st = call(s->fake, err);

	if (st != GK_OK || rows == 0)
		return st;
	s->next_x = malloc((size_t) rows * s->d * sizeof(double));
	s->next_sent = rows;
	for (int i = 0; i < n; i++)
		for (int64_t r = 0; r < members[i].session->sent; r++)
			if (members[i].first + r >= first && members[i].first + r < first + rows)
				memcpy(s->next_x + (members[i].first + r - first) * s->d, members[i].session->x + r * s->d, s->d * sizeof(double));
	return GK_OK;
}

/* The CPU, which plays the device, has its points in the store. */
static GkStatus
fake_prepare(GkSession *s, const GkPrep *prep, GkMoments *moments, GkError *err)
{
	GkPoints   *pts = &s->store->pts;
	GkChunk    *c = pts->chunks = gk_alloc0(s->host, 1, sizeof(GkChunk));

	if (s->next_x != NULL)
	{
		free(s->x);
		s->x = s->next_x;
		s->sent = s->next_sent;
		s->next_x = NULL;
	}
	pts->nchunks = 1;
	c->rows = (int) s->sent;
	c->stride = gk_stride(s->sent);
	c->data = gk_alloc0(s->host, (size_t) s->d * c->stride, sizeof(float));
	c->sealed = true;
	c->spill_at = c->spill_mind2 = -1;
	memset(moments, 0, s->d * sizeof(GkMoments));
	for (int j = 0; j < s->d; j++)
		for (int64_t i = 0; i < s->sent; i++)
		{
			float		f = gk_to_grid(gk_centre_scale(s->x[i * s->d + j], prep->center[j], prep->scale[j]),
									   gk_grid_magic(prep->expo[j]));

			c->data[j * c->stride + i] = f;
			moments[j].sum += gk_fixed(f, gk_pow2(GK_GRID_BITS - prep->expo[j]));
			moments[j].sq += gk_d2_fixed((double) f * (double) f, gk_pow2(GK_GRID_BITS - 2 * prep->expo[j]));
		}
	return call(s->fake, err);
}

static const GkIngestBackend fake_ingest = {fake_ingest_open, fake_room, fake_send, fake_take_over, fake_prepare};

/* ---- passes ---- */

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

/* As a device does it: everywhere by itself, from the sums of all. */
static GkStatus
fake_advance(GkSession *s, const float *centroids, int k, GkAdvance *out, GkError *err)
{
	const GkPoints *pts = gk_store_points(s->store);
	size_t		bytes = (size_t) k * s->d * sizeof(float);
	double	   *c;
	GkStatus	st;

	if (!advancing || k > s->k_max || (advancing > 1 && ++s->advances % advancing == 0))
		return GK_OK;
	if (s->began == NULL)
	{
		s->began = malloc((size_t) s->k_max * s->d * sizeof(float));
		s->ended = malloc((size_t) s->k_max * s->d * sizeof(float));
		alloc_step(&s->step, s->k_max, s->d);
	}
	else if (centroids == NULL)
		for (int i = 0; i < k; i++)
			if (s->step.count[i] == 0)
				return gk_fail(err, GK_ERR_INTERNAL, "goes on with an empty cluster");
	memcpy(s->began, centroids != NULL ? centroids : s->ended, bytes);
	memcpy(s->ended, s->began, bytes);
	s->step.follows = centroids == NULL;
	st = fake_step(s, s->began, k, &s->step, err);
	if (st != GK_OK)
		return st;
	c = malloc(s->d * sizeof(double));
	for (int i = 0; i < k; i++)
	{
		double		moved = 0.0;
		double		explained = 0.0;

		if (s->step.count[i] > 0)
			moved = gk_update_cluster(pts, s->step.sum + (size_t) i * s->d, s->step.mass[i], c, s->ended + (size_t) i * s->d, &explained);
		if (out->count == NULL)
			continue;
		out->count[i] = s->step.count[i];
		out->moved[i] = moved;
		out->explained[i] = explained;
	}
	free(c);
	out->done = true;
	out->busy_ms = s->step.busy_ms;
	if (out->count != NULL)
		advanced++;
	return GK_OK;
}

static GkStatus
fake_recall(GkSession *s, int k, float *centroids, GkStep *out, bool *kept, GkError *err)
{
	GkStatus	st = call(s->fake, err);

	/* it has brought some of it before */
	if (st != GK_OK)
	{
		memset(centroids, 0xff, (size_t) k * s->d * sizeof(float));
		memset(out->sum, 0xff, (size_t) k * s->d * sizeof(gk_int128));
		memset(out->count, 0xff, k * sizeof(int64_t));
		return st;
	}
	memcpy(centroids, s->began, (size_t) k * s->d * sizeof(float));
	memcpy(out->sum, s->step.sum, (size_t) k * s->d * sizeof(gk_int128));
	memcpy(out->mass, s->step.mass, k * sizeof(gk_int128));
	memcpy(out->count, s->step.count, k * sizeof(int64_t));
	*kept = true;
	recalled++;
	return GK_OK;
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

const GkBackend fake_device = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "fake",
	.open = fake_open,
	.close = fake_close,
	.describe = fake_describe,
	.times = fake_times,
	.step = fake_step,
	.advance = fake_advance,
	.recall = fake_recall,
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
	.move = fake_move,
	.ingest = &fake_ingest,
};

GkSpread
spread_over(int n, bool cpu, const char *rows)
{
	GkSpread	s = {.n = n};

	rows_take_turns(&s, rows);
	memset(fakes, 0, sizeof(fakes));
	for (int i = 0; i < n; i++)
		s.device[i] = (GkSpreadDevice) {&fake_device, i, 1.0 + i};
	if (cpu)
		s.device[n - 1] = (GkSpreadDevice) {&gk_cpu_backend, -1, 0.5};
	return s;
}

int
sessions_open(void)
{
	int			open = 0;

	for (int i = 0; i < DEVICES; i++)
		open += fakes[i].open;
	return open;
}
