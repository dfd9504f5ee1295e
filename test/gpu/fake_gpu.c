/*
 * fake_gpu.c - a gkmeans_gpu.so without a GPU, to test what the server does
 * around one on any machine: one device, or FAKE_GPUS of them, which the CPU's kernels play.
 *
 * gkmeans.gpu_fault is understood as by the real one, but counts calls of the
 * backend, not of CUDA; "slow:ms" makes opening a device take that long, as far as it is not
 * open, and "up-memory:n" is only of rows that go up while they are read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/gk_backend.h"
#include "core/gk_numerics.h"
#include "fake_groups.h"

#ifndef FAKE_GPUS
#define FAKE_GPUS	1
#endif

struct GkSession
{
	GkProblem	problem;
	int			number;
	GkSession  *cpu;
	long		left;			/* calls until the fault, < 0: none */
	GkStatus	fault;
	/* Points that came while they were read. */
	bool		wide;
	void	   *room;			/* [d][ROOM] floats or doubles */
	double	   *x;				/* [d][most] raw */
	int64_t		rows;
	int64_t		most;
	double	   *next_x;			/* taken over; NULL: none */
	int64_t		next_rows;
};

#define ROOM	5000

static bool dead[FAKE_GPUS];	/* as after a sticky error */
static bool warmed[FAKE_GPUS];	/* open */
static int	released;

static GkStatus
fail(GkError *err, GkStatus code, int number)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	snprintf(err->message, sizeof(err->message),
			 code == GK_ERR_DEVICE_MEMORY ? "out of memory on GPU %d" : "GPU %d failed", number);
	snprintf(err->detail, sizeof(err->detail), "injected");
	return code;
}

static int
devices(GkDeviceInfo *out, int max)
{
	int			n = max < FAKE_GPUS ? max : FAKE_GPUS;

	for (int i = 0; i < n; i++)
	{
		GkDeviceInfo *d = &out[i];

		memset(d, 0, sizeof(*d));
		snprintf(d->backend, sizeof(d->backend), "gpu");
		snprintf(d->name, sizeof(d->name), "GPU %d: fake", i);
		snprintf(d->detail, sizeof(d->detail), "released %d times", released);
		d->usable = !dead[i];
		if (dead[i])
			snprintf(d->reason, sizeof(d->reason), "failed earlier in this session: injected");
	}
	return n;
}

static double
step_ms(int ordinal, const GkProblem *problem, int64_t rows)
{
	(void) problem;
	return (double) rows * 1e-6 / (ordinal + 1);
}

/* The first one that is usable and listed. */
static int
choose(const char *list)
{
	int			i = 0;

	while (i < FAKE_GPUS - 1 && (dead[i] || !gk_device_listed(list, i)))
		i++;
	return i;
}

/* Every call of the backend comes by here. */
static GkStatus
call(GkSession *s, GkError *err)
{
	if (s->left < 0 || s->left-- > 0)
		return GK_OK;
	return fail(err, s->fault, s->number);
}

static GkStatus
be_slow(const GkHost *host, long ms)
{
	struct timespec nap = {0, 5000000};
	struct timespec end;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += ms % 1000 * 1000000;
	end.tv_sec += ms / 1000 + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	for (;;)
	{
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec))
			return GK_OK;
		if (host != NULL && host->poll(host->ctx))
			return GK_STOPPED;
		nanosleep(&nap, NULL);
	}
}

static void
close_session(GkSession *s)
{
	if (s == NULL)
		return;
	s->problem.core->cpu->close(s->cpu);
	free(s->room);
	free(s->x);
	free(s->next_x);
	s->problem.core->free(s->problem.host, s);
}

/* As the real one does: faults, and the time it takes. */
static GkStatus
bind(const GkProblem *problem, GkSession **out, GkError *err)
{
	const char *f = problem->gpu_fault ? problem->gpu_fault : "";
	const char *n = strchr(f, ':');
	GkSession  *s = problem->core->alloc(problem->host, 1, sizeof(GkSession));
	GkStatus	st = GK_OK;

	*out = NULL;
	if (s == NULL)
		return fail(err, GK_ERR_MEMORY, 0);
	memset(s, 0, sizeof(*s));
	s->problem = *problem;
	s->number = choose(problem->gpu_devices);
	s->left = -1;
	s->fault = strstr(f, "memory") ? GK_ERR_DEVICE_MEMORY : GK_ERR_DEVICE;
	if (strncmp(f, "slow", 4) == 0)
		st = warmed[s->number] ? GK_OK : be_slow(problem->host, atol(n + 1));
	else if (strncmp(f, "open-", 5) == 0)
		st = fail(err, s->fault, s->number);
	else if (n != NULL && strncmp(f, "up-", 3) != 0)
		s->left = atol(n + 1);
	if (strstr(f, "trap"))
		dead[s->number] = true;
	warmed[s->number] = st == GK_OK;
	if (st != GK_OK)
		close_session(s);
	else
		*out = s;
	return st;
}

static GkStatus
open_session(const GkProblem *problem, GkSession **out, GkError *err)
{
	GkSession  *s = problem->ingesting;
	GkStatus	st = s != NULL ? GK_OK : bind(problem, &s, err);

	*out = NULL;
	if (st == GK_OK)
		st = problem->core->cpu->open(problem, &s->cpu, err);
	if (st != GK_OK)
		close_session(s);
	else
		*out = s;
	return st;
}

/* ---- points that come while they are read ---- */

static GkStatus
ingest_open(const GkProblem *problem, int64_t rows, bool wide, GkSession **out, GkError *err)
{
	GkStatus	st = bind(problem, out, err);

	(void) rows;
	if (st == GK_OK)
		(*out)->wide = wide;
	if (st == GK_OK && problem->gpu_fault != NULL && strncmp(problem->gpu_fault, "up-", 3) == 0)
		(*out)->left = atol(strchr(problem->gpu_fault, ':') + 1);
	return st;
}

static GkStatus
ingest_room(GkSession *s, void **to, int *stride, int *rows, GkError *err)
{
	GkStatus	st = call(s, err);

	if (s->room == NULL)
		s->room = malloc((size_t) s->problem.core->points(s->problem.store)->d * ROOM * sizeof(double));
	*to = s->room;
	*stride = *rows = ROOM;
	return st;
}

static GkStatus
ingest_send(GkSession *s, int rows, GkError *err)
{
	int			d = s->problem.core->points(s->problem.store)->d;
	GkStatus	st = call(s, err);

	if (st == GK_OK && s->rows + rows > s->most)
	{
		int64_t		most = 2 * s->most + ROOM;
		double	   *x = malloc((size_t) d * most * sizeof(double));

		for (int j = 0; j < d && s->rows > 0; j++)
			memcpy(x + j * most, s->x + j * s->most, s->rows * sizeof(double));
		free(s->x);
		s->x = x;
		s->most = most;
	}
	for (int j = 0; st == GK_OK && j < d; j++)
		for (int i = 0; i < rows; i++)
			s->x[j * s->most + s->rows + i] = s->wide ? ((const double *) s->room)[(size_t) j * ROOM + i] :
				((const float *) s->room)[(size_t) j * ROOM + i];
	s->rows += rows;
	return st;
}

static GkStatus
ingest_take_over(const GkJoin *members, int n, int me, int64_t first, int64_t rows, GkError *err)
{
	GkSession  *s = members[me].session;
	int			d = s->problem.core->points(s->problem.store)->d;
	GkStatus	st = call(s, err);

	if (st != GK_OK || rows == 0)
		return st;
	s->next_x = malloc((size_t) d * rows * sizeof(double));
	s->next_rows = rows;
	for (int i = 0; i < n; i++)
		for (int64_t r = 0, at; r < members[i].session->rows; r++)
			if ((at = members[i].first + r - first) >= 0 && at < rows)
				for (int j = 0; j < d; j++)
					s->next_x[j * rows + at] = members[i].session->x[j * members[i].session->most + r];
	return GK_OK;
}

/* A real device keeps the points to itself; this one, which the CPU plays, needs them in the store. */
static GkStatus
ingest_prepare(GkSession *s, const GkPrep *prep, GkMoments *moments, GkError *err)
{
	const GkCore *core = s->problem.core;
	GkPoints   *pts = (GkPoints *) (uintptr_t) core->points(s->problem.store);
	GkChunk    *c = core->alloc(s->problem.host, 1, sizeof(GkChunk));
	GkStatus	st = call(s, err);

	if (st != GK_OK)
		return st;
	if (s->next_x != NULL)
	{
		free(s->x);
		s->x = s->next_x;
		s->rows = s->most = s->next_rows;
		s->next_x = NULL;
	}
	memset(c, 0, sizeof(*c));
	c->rows = (int) s->rows;
	c->stride = gk_stride(s->rows);
	c->data = core->alloc(s->problem.host, (size_t) pts->d * c->stride, sizeof(float));
	c->sealed = true;
	c->spill_at = c->spill_mind2 = -1;
	memset(c->data, 0, (size_t) pts->d * c->stride * sizeof(float));
	memset(moments, 0, pts->d * sizeof(GkMoments));
	for (int j = 0; j < pts->d; j++)
		for (int64_t i = 0; i < s->rows; i++)
		{
			float		f = gk_to_grid(gk_centre_scale(s->x[j * s->most + i], prep->center[j], prep->scale[j]),
									   gk_grid_magic(prep->expo[j]));

			c->data[(size_t) j * c->stride + i] = f;
			moments[j].sum += gk_fixed(f, gk_pow2(GK_GRID_BITS - prep->expo[j]));
			moments[j].sq += gk_d2_fixed((double) f * (double) f, gk_pow2(GK_GRID_BITS - 2 * prep->expo[j]));
		}
	core->free(s->problem.host, pts->chunks);
	pts->chunks = c;
	pts->nchunks = 1;
	return GK_OK;
}

static const GkIngestBackend ingest = {ingest_open, ingest_room, ingest_send, ingest_take_over, ingest_prepare};

static void
describe(GkSession *s, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	s->problem.core->cpu->describe(s->cpu, device, device_len, strategy, strategy_len);
	snprintf(device, device_len, "gpu %d (fake)", s->number);
}

static void
times(GkSession *s, double *context_ms, double *upload_ms)
{
	(void) s;
	*context_ms = 1.25;
	*upload_ms = 2.75;
}

static void
release(int ordinal)
{
	warmed[ordinal] = false;
	released++;
}

static void
warm(int ordinal, const char *fault)
{
	if (strncmp(fault, "slow", 4) == 0)
		(void) be_slow(NULL, atol(strchr(fault, ':') + 1));
	warmed[ordinal] = strncmp(fault, "open-", 5) != 0;
}

static bool
is_warm(int ordinal)
{
	return warmed[ordinal];
}

/* An error of the n-th label is one that comes after the first labels have gone up. */
typedef struct Counted
{
	GkLabelSink sink;
	const GkLabelSink *to;
	GkSession  *session;
	GkError    *err;
	bool		failed;
} Counted;

static bool
emit(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Counted    *c = ctx;

	c->failed = call(c->session, c->err) != GK_OK;
	return !c->failed && c->to->emit(c->to->ctx, rows, label, d2, aux);
}

static GkStatus
finish(GkSession *s, const float *centroids, int k, GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	GkError		fault;
	Counted		c = {.to = sink,.session = s,.err = &fault};
	GkStatus	st = call(s, err);

	c.sink.ctx = &c;
	c.sink.emit = emit;
	if (st == GK_OK)
		st = s->problem.core->cpu->finish(s->cpu, centroids, k, out, sink ? &c.sink : NULL, err);
	if (c.failed)
		*err = fault;
	return c.failed ? fault.code : st;
}

#define PASS(name, params, args) \
	static GkStatus name params \
	{ \
		GkStatus	st = call(s, err); \
		return st == GK_OK ? s->problem.core->cpu->name args : st; \
	}

PASS(step, (GkSession *s, const float *c, int k, GkStep *out, GkError *err), (s->cpu, c, k, out, err))
PASS(seed_begin, (GkSession *s, GkError *err), (s->cpu, err))
PASS(seed_update, (GkSession *s, const float *c, int m, gk_int128 *phi, GkError *err), (s->cpu, c, m, phi, err))
PASS(seed_eval, (GkSession *s, const float *c, int m, gk_int128 *pot, GkError *err), (s->cpu, c, m, pot, err))
PASS(seed_race, (GkSession *s, uint64_t key, bool use_d2, int want, GkPick *out, int *got, GkError *err),
	 (s->cpu, key, use_d2, want, out, got, err))
PASS(seed_far, (GkSession *s, int64_t *row, GkError *err), (s->cpu, row, err))

static void
seed_end(GkSession *s)
{
	s->problem.core->cpu->seed_end(s->cpu);
}

/* ---- many small groups: a fault is that of the n-th slot ---- */

static GkStatus
groups_open(const GkHost *host, const GkCore *core, const GkGroupBatchTask *task, GkGroupSession **out, GkError *err)
{
	const char *f = task->gpu_fault ? task->gpu_fault : "";
	const char *n = strchr(f, ':');
	GkStatus	fault = strstr(f, "memory") ? GK_ERR_DEVICE_MEMORY : GK_ERR_DEVICE;
	int			number = choose(task->gpu_devices);
	GkStatus	st;
	FakePacks  *p;

	*out = NULL;
	if (strncmp(f, "open-", 5) == 0)
		return fail(err, fault, number);
	st = fake_open(host, core, task, out, err);
	if (st != GK_OK)
		return st;
	p = (FakePacks *) *out;
	p->number = number;
	p->fault = fault;
	p->left = n != NULL && strncmp(f, "slow", 4) != 0 ? atol(n + 1) : -1;
	if (strstr(f, "trap"))
		dead[number] = true;
	warmed[number] = true;
	return GK_OK;
}

static GkStatus
groups_start(GkGroupSession *session, int slot, const GkGroupBatchItem *groups, int n, size_t read, size_t end, GkError *err)
{
	FakePacks  *p = (FakePacks *) session;

	if (p->left == 0)
		return fail(err, p->fault, p->number);
	if (p->left > 0)
		p->left--;
	return fake_start(session, slot, groups, n, read, end, err);
}

/* Of several devices the first one is the slowest: GkDeviceInfo.speed. */
static GkStatus
groups_wait(GkGroupSession *session, int slot, GkError *err)
{
	(void) be_slow(NULL, FAKE_GPUS > 1 ? 3 * (FAKE_GPUS - ((FakePacks *) session)->number) : 0);
	return fake_wait(session, slot, err);
}

static const GkGroupBatchBackend groups = {groups_open, fake_share, groups_start, groups_wait, fake_close};

const GkBackend *gk_gpu_backend_init(void);

const GkBackend *
gk_gpu_backend_init(void)
{
	static const GkBackend backend = {
		.api_version = GK_BACKEND_API,
		.struct_size = sizeof(GkBackend),
		.name = "gpu",
		.description = "fake",
		.devices = devices,
		.step_ms = step_ms,
		.open = open_session,
		.close = close_session,
		.describe = describe,
		.times = times,
		.release = release,
		.warm = warm,
		.is_warm = is_warm,
		.step = step,
		.finish = finish,
		.seed_begin = seed_begin,
		.seed_end = seed_end,
		.seed_update = seed_update,
		.seed_eval = seed_eval,
		.seed_race = seed_race,
		.seed_far = seed_far,
		.groups = &groups,
		.ingest = &ingest,
	};

	return &backend;
}
