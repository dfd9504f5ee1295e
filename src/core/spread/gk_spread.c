/*
 * gk_spread.c - the backend of several devices: each pass is one of all their backends, added up.
 *
 * What a pass returns is an exact sum, a maximum, or the first of an order that is the same
 * everywhere, so that the parts' results make that of all rows, whichever device had which.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/gk_sizes.h"
#include "core/spread/gk_spread_session.h"

/* Sums that one thread adds up at a time. */
#define SUMS		8192

/* ---- a run ---- */

static void
run_part(void *arg, int i)
{
	GkSession  *s = arg;
	GkSpreadPart *p = &s->part[i];
	double		start = gk_now_ms();

	/* those that have rows; with groups, those that are left */
	if ((s->store != NULL ? p->store == NULL : p->lost) || (s->only != NULL && p != s->only))
		return;
	s->run(p);
	p->ms = gk_now_ms() - start;
}

GkStatus
gk_spread_run_once(GkSession *s, GkSpreadRun run, GkError *err)
{
	GkStatus	st = GK_OK;
	bool		stopped = false;

	for (int i = 0; i < s->n; i++)
		s->part[i].status = GK_OK;
	s->run = run;
	gk_spread_threads_run(&s->threads, run_part, s);
	if (s->host->poll != NULL && s->host->poll(s->host->ctx))
		return GK_STOPPED;
	for (int i = 0; i < s->n; i++)
	{
		GkSpreadPart *p = &s->part[i];

		/* perhaps only because another one failed */
		stopped |= p->status == GK_STOPPED;
		if (p->status == GK_OK || p->status == GK_STOPPED || (st != GK_OK && (gk_spread_is_loss(p->status) || !gk_spread_is_loss(st))))
			continue;
		*err = p->error;
		st = gk_spread_named(p, p->status, err);
	}
	return st == GK_OK && stopped ? GK_STOPPED : st;
}

GkStatus
gk_spread_drop_lost(GkSession *s, GkStatus st)
{
	int			left = 0;

	for (int i = 0; i < s->n; i++)
	{
		GkSpreadPart *p = &s->part[i];

		if (gk_spread_is_loss(p->status))
			p->lost = true;
		left += !p->lost;
	}
	if (left == 0 || s->ingested || s->host->device_lost == NULL)
		return st;
	for (int i = 0; i < s->n; i++)
		if (gk_spread_is_loss(s->part[i].status) && !s->host->device_lost(s->host->ctx, &s->part[i].error))
			return st;
	return GK_OK;
}

GkStatus
gk_spread_run(GkSession *s, GkSpreadRun run, GkError *err)
{
	for (;;)
	{
		GkStatus	st = gk_spread_run_once(s, run, err);

		if (!gk_spread_is_loss(st))
			return st;
		st = gk_spread_drop_lost(s, st);
		if (st == GK_OK)
			st = gk_spread_arrange(s, err);
		if (st != GK_OK)
			return st;
	}
}

bool
gk_spread_room(GkSession *s, size_t bytes)
{
	bytes = (bytes + GK_CACHE_LINE - 1) / GK_CACHE_LINE * GK_CACHE_LINE;
	s->room_bytes = bytes;
	if (bytes * s->n <= s->room_all)
		return true;
	gk_free(s->host, s->room);
	s->room = gk_alloc(s->host, s->n, bytes);
	s->room_all = s->room != NULL ? bytes * s->n : 0;
	return s->room != NULL;
}

void *
gk_spread_room_of(const GkSession *s, int i)
{
	return s->room + i * s->room_bytes;
}

GkStatus
gk_spread_out_of_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory");
}

/* ---- the host, as a part sees it: any thread may call it ---- */

static void *
part_alloc(void *ctx, size_t bytes)
{
	(void) ctx;
	return malloc(bytes);
}

static void
part_free(void *ctx, void *ptr)
{
	(void) ctx;
	free(ptr);
}

static bool
part_stop(void *ctx)
{
	const GkSpreadPart *p = ctx;

	return gk_host_stops(p->whole->host);
}

typedef struct Write
{
	const GkHost *host;
	int64_t		offset;
	const void *data;
	size_t		bytes;
} Write;

static bool
write_spill(void *arg)
{
	const Write *w = arg;

	return w->host->spill_write(w->host->ctx, w->offset, w->data, w->bytes);
}

static bool
part_spill_write(void *ctx, int64_t offset, const void *data, size_t bytes)
{
	GkSpreadPart *p = ctx;
	Write		w = {p->whole->host, offset, data, bytes};

	return gk_spread_threads_call(&p->whole->threads, write_spill, &w);
}

static int
part_spill_fd(void *ctx)
{
	const GkSpreadPart *p = ctx;

	return p->whole->spill_fd;
}

static void
set_part(GkSession *s, GkSpreadPart *p, const GkSpreadDevice *of)
{
	p->of = *of;
	p->whole = s;
	if (of->number >= 0)
		snprintf(p->number, sizeof(p->number), "%d", of->number);
	p->host = *s->host;
	p->host.ctx = p;
	p->host.alloc = part_alloc;
	p->host.free = part_free;
	p->host.keep = false;
	/* the threads that feed GPUs need a CPU each */
	if (of->number < 0)
		p->host.threads = gk_threads(s->host) > s->n ? gk_threads(s->host) - (s->n - 1) : 1;
	p->host.poll = part_stop;
	p->host.stop = part_stop;
	p->host.spill_write = s->host->spill_write != NULL ? part_spill_write : NULL;
	p->host.spill_fd = part_spill_fd;
	p->host.progress = NULL;
	p->host.device_failed = NULL;
	p->host.device_lost = NULL;
	p->host.devices = NULL;
	p->host.spread = NULL;
	p->host.gpu_devices = p->number;
	p->host.gpu_fault = gk_device_fault(s->host->gpu_fault, of->number);
}

/* ---- the session ---- */

GkStatus
gk_spread_begin(const GkHost *host, const GkSpread *devices, GkSession **out, GkError *err)
{
	GkSession  *s = gk_alloc0(host, 1, sizeof(GkSession));
	GkStatus	st;

	*out = NULL;
	if (s == NULL)
		return gk_spread_out_of_memory(err);
	s->host = host;
	s->n = devices->n;
	s->spill_fd = -1;
	for (int i = 0; i < s->n; i++)
		set_part(s, &s->part[i], &devices->device[i]);
	/* what is found out once, by the main thread */
	(void) gk_threads(host);
	(void) gk_cpu_simd();
	(void) gk_columns();
	st = gk_spread_threads_start(&s->threads, host, s->n, err);
	if (st != GK_OK)
		gk_spread_end(s);
	else
		*out = s;
	return st;
}

void
gk_spread_end(GkSession *s)
{
	gk_spread_threads_end(&s->threads);
	if (s->spill_fd >= 0)
		close(s->spill_fd);
	gk_free(s->host, s->seeds);
	gk_free(s->host, s->room);
	gk_free(s->host, s);
}

void
gk_spread_close(GkSession *s)
{
	if (s == NULL)
		return;
	gk_spread_close_parts(s);
	gk_spread_end(s);
}

/* The host may close its file for another one, and its threads' reads must not be that one's. */
static GkStatus
own_spill_file(GkSession *s, GkError *err)
{
	int			fd;

	if (s->pts->resident)
		return GK_OK;
	fd = s->host->spill_fd(s->host->ctx);
	if (fd < 0)
		return gk_fail(err, GK_ERR_HOST, "could not read the temporary file");
	s->spill_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return s->spill_fd >= 0 ? GK_OK : gk_fail(err, GK_ERR_SPILL, "could not open the temporary file once more");
}

GkStatus
gk_spread_begin_rows(const GkProblem *problem, GkSession **out, GkError *err)
{
	const GkSpread *spread = problem->host->spread;
	GkSession  *s;
	GkStatus	st;

	*out = NULL;
	if (spread == NULL || spread->n < 1 || spread->n > GK_SPREAD_DEVICES)
		return gk_fail(err, GK_ERR_INTERNAL, "no devices to spread the points over");
	st = gk_spread_begin(problem->host, spread, &s, err);
	if (st != GK_OK)
		return st;
	s->store = problem->store;
	s->pts = gk_store_points(problem->store);
	s->problem = *problem;
	*out = s;
	return GK_OK;
}

static GkStatus
spread_open(const GkProblem *problem, GkSession **out, GkError *err)
{
	GkSession  *s = problem->ingesting;
	GkStatus	st = s != NULL ? GK_OK : gk_spread_begin_rows(problem, &s, err);

	*out = NULL;
	if (st != GK_OK)
		return st;
	s->problem = *problem;
	st = own_spill_file(s, err);
	if (st == GK_OK)
		st = s->ingested ? gk_spread_ingested(s, err) : gk_spread_arrange(s, err);
	if (st != GK_OK)
		gk_spread_close(s);
	else
		*out = s;
	return st;
}

static int
no_devices(GkDeviceInfo *out, int max)
{
	(void) out;
	(void) max;
	return 0;
}

static void
describe(GkSession *s, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	char		own[sizeof(((GkModel *) 0)->device)];

	gk_spread_describe(s, device, device_len);
	for (int i = 0; i < s->n; i++)
		if (s->part[i].rows > 0)
		{
			s->part[i].of.backend->describe(s->part[i].session, own, sizeof(own), strategy, strategy_len);
			return;
		}
}

/* The devices are opened at the same time. */
static void
times(GkSession *s, double *context_ms, double *upload_ms)
{
	for (int i = 0; i < s->n; i++)
	{
		const GkSpreadPart *p = &s->part[i];
		double		context = 0.0;
		double		upload = 0.0;

		if (p->rows == 0 || p->of.backend->times == NULL)
			continue;
		p->of.backend->times(p->session, &context, &upload);
		if (context > *context_ms)
			*context_ms = context;
		if (upload > *upload_ms)
			*upload_ms = upload;
	}
}

/* ---- a step ---- */

/* Do the sessions add up its sums by themselves? */
static bool
pass_is_joined(const GkSession *s)
{
	return s->joined && s->pass.k <= s->problem.k_max;
}

static void
step_part(GkSpreadPart *p)
{
	const GkSpreadPass *pass = &p->whole->pass;
	GkStep		unwanted = {.follows = pass->step->follows};
	GkStep	   *out = !pass_is_joined(p->whole) ? &p->step : p->speaks ? pass->step : &unwanted;

	p->status = p->of.backend->step(p->session, pass->c, pass->k, out, &p->error);
	p->busy_ms = out->busy_ms;
}

static GkStatus
step_room(GkSession *s, int k, GkError *err)
{
	size_t		values = (size_t) k * s->pts->d;

	if (!gk_spread_room(s, (values + k) * sizeof(gk_int128) + k * sizeof(int64_t)))
		return gk_spread_out_of_memory(err);
	for (int i = 0; i < s->n; i++)
	{
		GkStep	   *step = &s->part[i].step;

		step->sum = gk_spread_room_of(s, i);
		step->mass = step->sum + values;
		step->count = (int64_t *) (step->mass + k);
	}
	return GK_OK;
}

/* Add up the clusters of one job. */
typedef struct Combine
{
	const GkSession *s;
	GkStep	   *out;
	int			per_job;
} Combine;

static void
combine_job(void *arg, int64_t job, int thread)
{
	const Combine *c = arg;
	const GkSession *s = c->s;
	int			d = s->pts->d;
	int			from = (int) job * c->per_job;
	int			end = s->pass.k - from > c->per_job ? from + c->per_job : s->pass.k;

	(void) thread;
	memset(c->out->sum + (size_t) from * d, 0, (size_t) (end - from) * d * sizeof(gk_int128));
	for (int q = from; q < end; q++)
	{
		c->out->mass[q] = 0;
		c->out->count[q] = 0;
	}
	for (int i = 0; i < s->n; i++)
	{
		const GkStep *part = &s->part[i].step;

		if (s->part[i].rows == 0)
			continue;
		for (size_t v = (size_t) from * d; v < (size_t) end * d; v++)
			c->out->sum[v] += part->sum[v];
		for (int q = from; q < end; q++)
		{
			c->out->mass[q] += part->mass[q];
			c->out->count[q] += part->count[q];
		}
	}
}

static GkStatus
step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	Combine		c = {s, out, SUMS / s->pts->d + 1};
	GkStatus	st = step_room(s, k, err);

	if (st != GK_OK)
		return st;
	s->pass = (GkSpreadPass) {.c = centroids,.k = k,.step = out};
	st = gk_spread_run(s, step_part, err);
	if (st != GK_OK)
		return st;
	/* they wait for each other: what each took says nothing */
	for (int i = 0; pass_is_joined(s) && i < s->n; i++)
		s->part[i].ms = s->part[i].busy_ms;
	if (!pass_is_joined(s) && !gk_parallel_for(s->host, (k + c.per_job - 1) / c.per_job, combine_job, &c))
		return GK_STOPPED;
	out->cost = 0;
	return !s->seeding && gk_spread_measure(s) ? gk_spread_move(s, err) : GK_OK;
}

/* ---- iterations whose centroids stay with the devices ---- */

/* The part that answers for all rows: of joined ones the one that speaks, else one that has all; NULL: none does. */
static GkSpreadPart *
speaker_of(GkSession *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->part[i].rows == s->pts->n || (s->part[i].rows > 0 && s->part[i].speaks && pass_is_joined(s)))
			return &s->part[i];
	return NULL;
}

static void
advance_part(GkSpreadPart *p)
{
	const GkSpreadPass *pass = &p->whole->pass;
	const GkAdvance unwanted = {.done = false};

	p->advance = p == pass->speaker ? *pass->advance : unwanted;
	p->status = p->of.backend->advance(p->session, pass->c, pass->k, &p->advance, &p->error);
	p->busy_ms = p->advance.busy_ms;
}

/* After a run that returned st: where a device is lost, the others have lost their place, too. */
static GkStatus
go_back(GkSession *s, GkStatus st, GkError *err)
{
	if (!gk_spread_is_loss(st))
		return st;
	s->gone = true;
	st = gk_spread_drop_lost(s, st);
	return st == GK_OK ? gk_spread_arrange(s, err) : st;
}

static GkStatus
advance(GkSession *s, const float *centroids, int k, GkAdvance *out, GkError *err)
{
	GkSpreadPart *speaker;
	GkStatus	st = GK_OK;

	out->done = false;
	if (k == s->steps_only)
		return GK_OK;
	if (centroids != NULL)
	{
		if (s->due)
			st = gk_spread_arrange(s, err);
		if (st != GK_OK)
			return st;
		s->due = s->gone = false;
	}
	s->pass = (GkSpreadPass) {.c = centroids,.k = k,.advance = out};
	speaker = s->pass.speaker = speaker_of(s);
	if (s->due || s->gone || speaker == NULL || speaker->of.backend->advance == NULL)
		return GK_OK;
	st = gk_spread_run_once(s, advance_part, err);
	if (st != GK_OK)
		return go_back(s, st, err);
	*out = speaker->advance;
	if (!out->done && centroids != NULL)
		s->steps_only = k;
	if (out->done && s->joined)
	{
		for (int i = 0; i < s->n; i++)
			s->part[i].ms = s->part[i].busy_ms;
		s->due = gk_spread_measure(s);
	}
	return GK_OK;
}

static void
recall_part(GkSpreadPart *p)
{
	const GkSpreadPass *pass = &p->whole->pass;
	bool		kept;

	p->status = p->of.backend->recall(p->session, pass->k, pass->recalled, pass->step, &kept, &p->error);
}

static GkStatus
recall(GkSession *s, int k, float *centroids, GkStep *out, bool *kept, GkError *err)
{
	GkStatus	st = GK_OK;

	if (!s->gone)
	{
		s->pass = (GkSpreadPass) {.k = k,.recalled = centroids,.step = out};
		s->only = speaker_of(s);
		st = gk_spread_run_once(s, recall_part, err);
		s->only = NULL;
		st = go_back(s, st, err);
	}
	*kept = !s->gone;
	return st;
}

const GkBackend gk_spread_backend = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "spread",
	.description = "several devices",
	.devices = no_devices,
	.open = spread_open,
	.close = gk_spread_close,
	.describe = describe,
	.times = times,
	.step = step,
	.advance = advance,
	.recall = recall,
	.finish = gk_spread_finish,
	.seed_begin = gk_spread_seed_begin,
	.seed_end = gk_spread_seed_end,
	.seed_update = gk_spread_seed_update,
	.seed_eval = gk_spread_seed_eval,
	.seed_race = gk_spread_seed_race,
	.seed_far = gk_spread_seed_far,
	.seed_rounds = gk_spread_seed_rounds,
	.row = gk_spread_row,
	.ingest = &gk_spread_ingest,
};
