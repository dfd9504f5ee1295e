/*
 * gk_group_batch.c - many small groups through the slots of one device or several (gk_group_batch.h).
 *
 * All threads sort and prepare the groups of one slot, straight into it, while the
 * devices work on the slots before.
 *
 * Several devices have a thread each, which starts its slots and waits for them, and has the main
 * thread empty and fill them.  A device that has a free slot gets the next groups, so that each does
 * as much as it can; a group's result is the same whichever had it.  When one fails, the others end
 * what they have under way; then they do the groups that have no result.
 */
#include <math.h>
#include <string.h>

#include "core/gk_engine.h"
#include "core/groups/gk_group_batch.h"
#include "core/groups/gk_group_fit.h"
#include "core/spread/gk_spread_session.h"

/* Groups that a slot of several devices has, at least: with fewer a large GPU has too little to do. */
#define LEAST_GROUPS	256
/* Several devices end what they have under way after as many milliseconds, for then the host is asked again. */
#define ROUND_MS		1000.0

typedef struct Slot
{
	int			n;				/* groups; 0: nothing under way */
	GkGroupBatchItem *item;		/* [GK_GROUP_BATCH_GROUPS] */
	int64_t    *group;			/* their numbers */
	int32_t    *unit_exp;		/* of their GkPrep */
	size_t		read;			/* bytes [0, read) are the device's input, */
	size_t		end;			/* [read, end) its output */
} Slot;

typedef struct Device
{
	struct Run *run;
	GkSpreadPart *part;			/* its thread's; NULL: it is the only one, on the main thread */
	const GkHost *host;			/* of its thread */
	const GkGroupBatchBackend *backend;
	GkGroupSession *session;	/* NULL: not open */
	Slot	   *slot;			/* [session->slots] */
	int			at;				/* the slot that is being emptied and filled */
	int			failed;			/* GkStatus of a thread */
	/* What became of that. */
	GkStatus	status;
	GkError		error;
} Device;

typedef struct Run
{
	const GkHost *host;			/* of the main thread */
	const GkGroupBatchWork *work;
	int64_t		next;			/* group to be looked at */
	int			n;				/* devices */
	Device		device[GK_SPREAD_DEVICES];
	/* Of several devices. */
	double		until;			/* no more groups from then on, */
	bool		over;			/* or now: one has failed */
} Run;

bool
gk_group_batch_possible(const GkOptions *options, bool weighted)
{
	return !weighted && options->distance == GK_EUCLIDEAN && options->init != GK_INIT_PARALLEL &&
		options->init != GK_INIT_HIERARCHICAL;
}

/* ---- into a slot ---- */

/* Groups for a slot, at most: of several devices fewer towards the end, so that they end at the same time. */
static int
most_groups(const Run *r)
{
	int64_t		most = (r->work->groups - r->next) / (2 * r->n);

	if (r->n == 1 || most > GK_GROUP_BATCH_GROUPS)
		return GK_GROUP_BATCH_GROUPS;
	return most > LEAST_GROUPS ? (int) most : LEAST_GROUPS;
}

/* Choose groups for a slot, from the next one on. */
static void
choose(const Device *v, Slot *s)
{
	Run		   *r = v->run;
	const GkGroupBatchWork *w = r->work;
	int			most = most_groups(r);
	size_t		out = 0;
	double		share = 0.0;

	s->read = 0;
	for (s->n = 0; r->next < w->groups && s->n < most; r->next++)
	{
		int64_t		n = w->rows(w->ctx, r->next);
		int			k = gk_group_clusters(w->options, n);
		double		own;
		size_t		bytes;

		if (n == 0 || n > GK_GROUP_BATCH_ROWS || (own = v->backend->share(v->session, n, k)) > 1.0)
			continue;
		bytes = gk_group_batch_in_bytes(n, w->d) + gk_group_batch_out_bytes(k, w->d);
		if (bytes > v->session->slot_bytes)
			continue;
		if (s->n > 0 && (share + own > 1.0 || s->read + out + bytes > v->session->slot_bytes))
			break;
		share += own;
		s->group[s->n] = r->next;
		s->item[s->n++] = (GkGroupBatchItem) {.n = (int32_t) n,.k = k,.candidates = gk_seed_candidates(k),
			.in = (uint32_t) s->read,.out = (uint32_t) out};
		s->read += gk_group_batch_in_bytes(n, w->d);
		out += gk_group_batch_out_bytes(k, w->d);
	}
	for (int i = 0; i < s->n; i++)
		s->item[i].out += (uint32_t) s->read;
	s->end = s->read + out;
}

/* Copy the prepared points, and what the device has to know of their columns. */
static void
copy_points(const GkPoints *pts, char *to)
{
	size_t		d = pts->d;
	double	   *columns = (double *) to;
	float	   *x = (float *) (columns + 2 * d);

	memcpy(columns, pts->prep.center, d * sizeof(double));
	memcpy(columns + d, pts->prep.scale, d * sizeof(double));
	for (int i = 0; i < pts->nchunks; i++)
		for (size_t j = 0; j < d; j++)
			memcpy(x + j * pts->n + pts->chunks[i].first, pts->chunks[i].data + j * pts->chunks[i].stride,
				   pts->chunks[i].rows * sizeof(float));
	memcpy(x + d * pts->n, pts->prep.expo, d * sizeof(int32_t));
}

static void
prepare_one(void *arg, int64_t job, int thread)
{
	Device	   *v = arg;
	const GkGroupBatchWork *w = v->run->work;
	Slot	   *s = &v->slot[v->at];
	GkGroupBatchItem *to = &s->item[job];
	GkStore    *store;
	GkError		err;
	GkGroupPoints points = {.row = w->row,.arg = w->arg(w->ctx, s->group[job]),.n = to->n,.d = w->d};
	GkStatus	st = gk_group_prepare(w->host(w->ctx, thread), w->options, &points, false, &store, &err);

	if (st == GK_OK)
	{
		const GkPoints *pts = gk_store_points(store);

		to->d2_expo = pts->d2_expo;
		to->tol = w->options->tol * pts->mean_var;
		s->unit_exp[job] = pts->prep.unit_exp;
		copy_points(pts, v->session->slot[v->at] + to->in);
	}
	else
		__atomic_store_n(&v->failed, st, __ATOMIC_RELAXED);
	gk_store_free(store);
	w->done(w->ctx, thread);
}

/* ---- out of a slot ---- */

static void
deliver_one(void *arg, int64_t job, int thread)
{
	Device	   *v = arg;
	const GkGroupBatchWork *w = v->run->work;
	const Slot *s = &v->slot[v->at];
	const GkGroupBatchItem *g = &s->item[job];
	GkGroupBatchOut out = gk_group_batch_out(v->session->slot[v->at] + g->out, g->k, w->d);
	const GkHost *host = w->host(w->ctx, thread);
	int			k = out.head->k;
	GkPoints	pts = {.prep = {.d = w->d,.unit_exp = s->unit_exp[job]}};
	double		unit = gk_pow2(g->d2_expo - 80);
	gk_int128	inertia = 0;
	GkModel		m = {.prep = pts.prep,.k = k,.k_asked = w->options->k,.init = w->options->init,
		.seed = w->options->seed,.rows_used = g->n,.iterations = out.head->iterations,
	.converged = out.head->converged,.centroids = out.centroid,.size = out.size};

	m.cluster_inertia = gk_alloc(host, k, sizeof(double));
	m.radius = gk_alloc(host, k, sizeof(double));
	if (m.cluster_inertia != NULL && m.radius != NULL)
	{
		for (int i = 0; i < k; i++)
		{
			gk_int128	of = (gk_int128) out.hi[i] * ((gk_int128) 1 << 40) + out.lo[i];

			inertia += of;
			m.cluster_inertia[i] = gk_engine_inertia(&pts, gk_i128_to_double(of) * unit);
			m.radius[i] = gk_distance_from_d2(&m.prep, out.max_d2[i]);
		}
		m.inertia = gk_engine_inertia(&pts, gk_i128_to_double(inertia) * unit);
		if (!isfinite(m.inertia))
			__atomic_store_n(&v->failed, GK_ERR_RANGE, __ATOMIC_RELAXED);
		else if (!w->result(w->ctx, s->group[job], &m, thread))
			__atomic_store_n(&v->failed, GK_ERR_MEMORY, __ATOMIC_RELAXED);
	}
	else
		__atomic_store_n(&v->failed, GK_ERR_MEMORY, __ATOMIC_RELAXED);
	gk_free(host, m.radius);
	gk_free(host, m.cluster_inertia);
	w->done(w->ctx, thread);
}

/* ---- a device ---- */

static GkStatus
run_jobs(Device *v, int jobs, GkJob fn, GkError *err)
{
	const GkHost *host = v->run->host;

	if (!gk_parallel_for(host, jobs, fn, v))
		return GK_STOPPED;
	if (v->failed == GK_ERR_RANGE)
		return gk_fail_range(err);
	if (v->failed != GK_OK)
		return gk_fail(err, v->failed, "out of memory");
	/* not while devices have threads of their own: gk_spread_threads.h */
	return v->part == NULL && host->poll != NULL && host->poll(host->ctx) ? GK_STOPPED : GK_OK;
}

/* Main thread: deliver the results of a slot, and fill it with other groups, if there are any. */
static bool
turn_over(void *arg)
{
	Device	   *v = arg;
	Run		   *r = v->run;
	Slot	   *s = &v->slot[v->at];

	v->status = run_jobs(v, s->n, deliver_one, &v->error);
	for (int i = 0; v->part != NULL && v->status == GK_OK && i < s->n; i++)
		v->part->rows += s->item[i].n;
	s->n = 0;
	if (v->part != NULL && (__atomic_load_n(&r->over, __ATOMIC_RELAXED) || gk_now_ms() >= r->until))
		return v->status == GK_OK;
	if (v->status == GK_OK)
		choose(v, s);
	if (v->status == GK_OK)
		v->status = run_jobs(v, s->n, prepare_one, &v->error);
	return v->status == GK_OK;
}

static void
close_device(Device *v)
{
	for (int i = 0; v->slot != NULL && i < v->session->slots; i++)
	{
		gk_free(v->host, v->slot[i].item);
		gk_free(v->host, v->slot[i].group);
		gk_free(v->host, v->slot[i].unit_exp);
	}
	gk_free(v->host, v->slot);
	v->slot = NULL;
	v->backend->close(v->session);
	v->session = NULL;
}

static GkStatus
make_slots(Device *v, GkError *err)
{
	v->slot = gk_alloc0(v->host, v->session->slots, sizeof(Slot));
	if (v->slot == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	for (int i = 0; i < v->session->slots; i++)
	{
		Slot	   *s = &v->slot[i];

		s->item = gk_alloc(v->host, GK_GROUP_BATCH_GROUPS, sizeof(GkGroupBatchItem));
		s->group = gk_alloc(v->host, GK_GROUP_BATCH_GROUPS, sizeof(int64_t));
		s->unit_exp = gk_alloc(v->host, GK_GROUP_BATCH_GROUPS, sizeof(int32_t));
		if (!s->item || !s->group || !s->unit_exp)
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	return GK_OK;
}

static GkStatus
open_device(Device *v, GkError *err)
{
	const GkGroupBatchWork *w = v->run->work;
	const GkOptions *o = w->options;
	GkGroupBatchTask task = {.d = w->d,.k = o->k,.random = o->init == GK_INIT_RANDOM,
		.given = gk_is_given(o) ? o->centroids : NULL,.n_init = o->n_init,.max_iter = o->max_iter,.seed = o->seed,
		.gpu_devices = v->host->gpu_devices,.gpu_fault = v->host->gpu_fault};
	GkStatus	st = v->backend->open(v->host, &gk_core, &task, &v->session, err);

	return st == GK_OK ? make_slots(v, err) : st;
}

/* The device's thread: one slot after the other, until none has anything under way. */
static GkStatus
all_slots(Device *v, GkError *err)
{
	GkStatus	st = v->session == NULL ? open_device(v, err) : GK_OK;
	int			empty = 0;		/* slots in a row */

	for (v->at = 0; st == GK_OK && empty < v->session->slots; v->at = (v->at + 1) % v->session->slots)
	{
		Slot	   *s = &v->slot[v->at];

		if (s->n > 0)
			st = v->backend->wait(v->session, v->at, err);
		if (st != GK_OK)
			break;
		if (v->part != NULL ? !gk_spread_threads_call(&v->part->whole->threads, turn_over, v) : !turn_over(v))
		{
			*err = v->error;
			return v->status;
		}
		if (s->n > 0)
			st = v->backend->start(v->session, v->at, s->item, s->n, s->read, s->end, err);
		empty = s->n > 0 ? 0 : empty + 1;
	}
	return st;
}

/* ---- all of them ---- */

static Device *
device_of(const GkSpreadPart *p)
{
	Run		   *r = p->whole->groups;

	return &r->device[p - p->whole->part];
}

/* What a device had under way when it failed has no result. */
static void
serve_part(GkSpreadPart *p)
{
	Device	   *v = device_of(p);

	p->status = all_slots(v, &p->error);
	if (p->status == GK_OK)
		return;
	__atomic_store_n(&v->run->over, true, __ATOMIC_RELAXED);
	close_device(v);
}

static void
close_part(GkSpreadPart *p)
{
	close_device(device_of(p));
}

/* Have the devices do the groups, and take those that are lost out of the list. */
static GkStatus
run_several(Run *r, GkSession *s, GkSpread *several, GkError *err)
{
	GkStatus	st;
	GkError		unused;

	do
	{
		r->over = false;
		r->until = gk_now_ms() + ROUND_MS;
		st = gk_spread_run_once(s, serve_part, err);
		if (gk_spread_is_loss(st))
		{
			st = gk_spread_drop_lost(s, st);
			r->next = 0;
		}
	} while (st == GK_OK && r->next < r->work->groups);
	(void) gk_spread_run_once(s, close_part, &unused);
	if (st == GK_OK)
		gk_spread_tell(s);
	several->n = 0;
	for (int i = 0; i < s->n; i++)
		if (!s->part[i].lost)
			several->device[several->n++] = s->part[i].of;
	return st;
}

GkStatus
gk_group_batch_fit(const GkHost *host, const GkBackend *backend, GkSpread *several, const GkGroupBatchWork *work, GkError *err)
{
	Run			r = {.host = host,.work = work,.n = 1};
	GkSession  *s;
	GkStatus	st;

	if (several == NULL || several->n == 0)
	{
		r.device[0] = (Device) {.run = &r,.host = host,.backend = backend->groups};
		st = all_slots(&r.device[0], err);
		close_device(&r.device[0]);
		return st;
	}
	st = gk_spread_begin(host, several, &s, err);
	if (st != GK_OK)
		return st;
	s->groups = &r;
	r.n = several->n;
	for (int i = 0; i < r.n; i++)
		r.device[i] = (Device) {.run = &r,.part = &s->part[i],.host = &s->part[i].host,.backend = s->part[i].of.backend->groups};
	st = run_several(&r, s, several, err);
	gk_spread_end(s);
	return st;
}

GkSpreadGroups
gk_group_batch_measure(const GkHost *host, const GkGroupBatchWork *work)
{
	const GkOptions *o = work->options;
	GkSpreadGroups all = {.d = work->d,.max_iter = o->max_iter,.threads = gk_threads(host)};

	for (int64_t g = 0; g < work->groups; g++)
	{
		int64_t		n = work->rows(work->ctx, g);

		if (n == 0 || n > GK_GROUP_BATCH_ROWS)
			continue;
		all.groups++;
		all.rows += n;
		all.products += (double) n * work->d * gk_group_clusters(o, n) * o->n_init;
	}
	return all;
}
