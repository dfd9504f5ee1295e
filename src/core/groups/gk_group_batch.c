/*
 * gk_group_batch.c - many small groups through a device's slots (gk_group_batch.h).
 *
 * All threads sort and prepare the groups of one slot, straight into it, while the
 * device works on the slots before.
 */
#include <math.h>
#include <string.h>

#include "core/gk_engine.h"
#include "core/groups/gk_group_batch.h"
#include "core/groups/gk_group_fit.h"

typedef struct Slot
{
	int			n;				/* groups; 0: nothing under way */
	GkGroupBatchItem *item;		/* [GK_GROUP_BATCH_GROUPS] */
	int64_t    *group;			/* their numbers */
	int32_t    *unit_exp;		/* of their GkPrep */
} Slot;

typedef struct Run
{
	const GkHost *host;
	const GkGroupBatchWork *work;
	const GkGroupBatchBackend *device;
	GkGroupSession *session;
	Slot	   *slot;			/* [session->slots] */
	int			at;				/* the slot that is being filled or emptied */
	int			failed;			/* GkStatus of a thread */
} Run;

bool
gk_group_batch_possible(const GkOptions *options, bool weighted)
{
	return !weighted && options->distance == GK_EUCLIDEAN && options->init != GK_INIT_PARALLEL &&
		options->init != GK_INIT_HIERARCHICAL;
}

/* ---- into a slot ---- */

/* Choose groups for a slot from *next on.  They read bytes [0, *read) of it and write up to *end. */
static void
choose(Run *p, Slot *s, int64_t *next, size_t *read, size_t *end)
{
	const GkGroupBatchWork *w = p->work;
	size_t		out = 0;
	double		share = 0.0;

	*read = 0;
	for (s->n = 0; *next < w->groups && s->n < GK_GROUP_BATCH_GROUPS; (*next)++)
	{
		int64_t		n = w->rows(w->ctx, *next);
		int			k = gk_group_clusters(w->options, n);
		double		own;
		size_t		bytes;

		if (n > GK_GROUP_BATCH_ROWS || (own = p->device->share(p->session, n, k)) > 1.0)
			continue;
		bytes = gk_group_batch_in_bytes(n, w->d) + gk_group_batch_out_bytes(k, w->d);
		if (bytes > p->session->slot_bytes)
			continue;
		if (s->n > 0 && (share + own > 1.0 || *read + out + bytes > p->session->slot_bytes))
			break;
		share += own;
		s->group[s->n] = *next;
		s->item[s->n++] = (GkGroupBatchItem) {.n = (int32_t) n,.k = k,.candidates = gk_seed_candidates(k),
			.in = (uint32_t) *read,.out = (uint32_t) out};
		*read += gk_group_batch_in_bytes(n, w->d);
		out += gk_group_batch_out_bytes(k, w->d);
	}
	for (int i = 0; i < s->n; i++)
		s->item[i].out += (uint32_t) *read;
	*end = *read + out;
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
	Run		   *p = arg;
	const GkGroupBatchWork *w = p->work;
	Slot	   *s = &p->slot[p->at];
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
		copy_points(pts, p->session->slot[p->at] + to->in);
	}
	else
		__atomic_store_n(&p->failed, st, __ATOMIC_RELAXED);
	gk_store_free(store);
	w->done(w->ctx, thread);
}

/* ---- out of a slot ---- */

static void
deliver_one(void *arg, int64_t job, int thread)
{
	Run		   *p = arg;
	const GkGroupBatchWork *w = p->work;
	const Slot *s = &p->slot[p->at];
	const GkGroupBatchItem *g = &s->item[job];
	GkGroupBatchOut out = gk_group_batch_out(p->session->slot[p->at] + g->out, g->k, w->d);
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
			__atomic_store_n(&p->failed, GK_ERR_RANGE, __ATOMIC_RELAXED);
		else if (!w->result(w->ctx, s->group[job], &m, thread))
			__atomic_store_n(&p->failed, GK_ERR_MEMORY, __ATOMIC_RELAXED);
	}
	else
		__atomic_store_n(&p->failed, GK_ERR_MEMORY, __ATOMIC_RELAXED);
	gk_free(host, m.radius);
	gk_free(host, m.cluster_inertia);
	w->done(w->ctx, thread);
}

/* ---- all of them ---- */

static GkStatus
run_jobs(Run *p, int jobs, GkJob fn, GkError *err)
{
	if (!gk_parallel_for(p->host, jobs, fn, p))
		return GK_STOPPED;
	if (p->failed == GK_ERR_RANGE)
		return gk_fail_range(err);
	if (p->failed != GK_OK)
		return gk_fail(err, p->failed, "out of memory");
	return p->host->poll && p->host->poll(p->host->ctx) ? GK_STOPPED : GK_OK;
}

/* Wait for the slot's results and deliver them. */
static GkStatus
empty_slot(Run *p, int slot, GkError *err)
{
	Slot	   *s = &p->slot[slot];
	int			n = s->n;
	GkStatus	st;

	if (n == 0)
		return GK_OK;
	st = p->device->wait(p->session, slot, err);
	p->at = slot;
	if (st == GK_OK)
		st = run_jobs(p, n, deliver_one, err);
	s->n = 0;
	return st;
}

static GkStatus
all_slots(Run *p, GkError *err)
{
	GkStatus	st = GK_OK;
	int64_t		next = 0;
	int			slot = 0;

	while (st == GK_OK && next < p->work->groups)
	{
		Slot	   *s = &p->slot[slot];
		size_t		read;
		size_t		end;

		st = empty_slot(p, slot, err);
		if (st != GK_OK)
			return st;
		choose(p, s, &next, &read, &end);
		p->at = slot;
		st = run_jobs(p, s->n, prepare_one, err);
		if (st == GK_OK && s->n > 0)
			st = p->device->start(p->session, slot, s->item, s->n, read, end, err);
		slot = (slot + 1) % p->session->slots;
	}
	for (int i = 0; st == GK_OK && i < p->session->slots; i++)
		st = empty_slot(p, (slot + i) % p->session->slots, err);
	return st;
}

static GkStatus
make_slots(Run *p, GkError *err)
{
	p->slot = gk_alloc0(p->host, p->session->slots, sizeof(Slot));
	if (p->slot == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	for (int i = 0; i < p->session->slots; i++)
	{
		Slot	   *s = &p->slot[i];

		s->item = gk_alloc(p->host, GK_GROUP_BATCH_GROUPS, sizeof(GkGroupBatchItem));
		s->group = gk_alloc(p->host, GK_GROUP_BATCH_GROUPS, sizeof(int64_t));
		s->unit_exp = gk_alloc(p->host, GK_GROUP_BATCH_GROUPS, sizeof(int32_t));
		if (!s->item || !s->group || !s->unit_exp)
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	return GK_OK;
}

GkStatus
gk_group_batch_fit(const GkHost *host, const GkBackend *backend, const GkGroupBatchWork *work, GkError *err)
{
	const GkOptions *o = work->options;
	bool		given = o->init == GK_INIT_CENTROIDS || o->init == GK_INIT_WARM_START;
	Run			p = {.host = host,.work = work,.device = backend->groups};
	GkGroupBatchTask task = {.d = work->d,.k = o->k,.random = o->init == GK_INIT_RANDOM,
		.given = given ? o->centroids : NULL,.n_init = o->n_init,.max_iter = o->max_iter,.seed = o->seed,
		.gpu_devices = host->gpu_devices,.gpu_fault = host->gpu_fault};
	GkStatus	st = p.device->open(host, &gk_core, &task, &p.session, err);

	if (st == GK_OK)
		st = make_slots(&p, err);
	if (st == GK_OK)
		st = all_slots(&p, err);
	for (int i = 0; p.slot != NULL && i < p.session->slots; i++)
	{
		gk_free(host, p.slot[i].item);
		gk_free(host, p.slot[i].group);
		gk_free(host, p.slot[i].unit_exp);
	}
	gk_free(host, p.slot);
	p.device->close(p.session);
	return st;
}
