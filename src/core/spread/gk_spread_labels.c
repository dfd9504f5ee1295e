/*
 * gk_spread_labels.c - the last pass on several devices: statistics, and labels in the rows' order.
 *
 * The sink takes labels in order, from the main thread.  Where memory allows it, the devices put
 * theirs in one array, which is sent when all are there: eight bytes a row.  Otherwise they compute
 * one after the other, and send theirs at once; if one fails, what was sent is not sent again.
 */
#include "core/spread/gk_spread_session.h"

/* ---- a part ---- */

/* A part's sink. */
typedef struct PartLabels
{
	GkSpreadPart *part;
	int64_t		seen;			/* rows of the part so far */
	int			rows;
	const int32_t *label;
	const float *d2;
	const uint32_t *const *aux;
} PartLabels;

static bool
keep(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	PartLabels *l = ctx;
	GkSession  *s = l->part->whole;
	int64_t		at = l->part->first + l->seen;

	(void) aux;
	memcpy(s->label + at, label, rows * sizeof(int32_t));
	memcpy(s->d2 + at, d2, rows * sizeof(float));
	l->seen += rows;
	return true;
}

/* Main thread. */
static bool
send_rows(void *arg)
{
	const PartLabels *l = arg;
	GkSession  *s = l->part->whole;
	const uint32_t *rest[GK_MAX_AUX];
	int64_t		skip = s->sent - (l->part->first + l->seen);

	if (skip >= l->rows)
		return true;
	if (skip < 0)
		skip = 0;
	for (int a = 0; a < s->pts->naux; a++)
		rest[a] = l->aux[a] + skip;
	s->sent += l->rows - skip;
	return s->sink->emit(s->sink->ctx, l->rows - (int) skip, l->label + skip, l->d2 + skip, rest);
}

static bool
send(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	PartLabels *l = ctx;
	bool		taken;

	l->rows = rows;
	l->label = label;
	l->d2 = d2;
	l->aux = aux;
	taken = gk_spread_threads_call(&l->part->whole->threads, send_rows, l);
	l->seen += rows;
	return taken;
}

static void
finish_part(GkSpreadPart *p)
{
	const GkSession *s = p->whole;
	PartLabels	l = {.part = p};
	GkLabelSink sink = {&l, s->label != NULL ? keep : send, NULL};

	p->status = p->of.backend->finish(p->session, s->pass.c, s->pass.k, s->pass.stats ? &p->finish : NULL,
									  s->pass.labels ? &sink : NULL, &p->error);
}

/* ---- all of them ---- */

/* One part after the other, from the first one again when one has failed. */
static GkStatus
run_in_order(GkSession *s, GkError *err)
{
	for (int i = 0; i < s->n; i++)
	{
		GkStatus	st;

		if (s->part[i].rows == 0)
			continue;
		s->only = &s->part[i];
		st = gk_spread_run_once(s, finish_part, err);
		s->only = NULL;
		if (gk_spread_is_loss(st) && (st = gk_spread_drop_lost(s, st)) == GK_OK &&
			(st = gk_spread_arrange(s, err)) == GK_OK)
			i = -1;
		if (st != GK_OK)
			return st;
	}
	return GK_OK;
}

/* Send the labels of all rows. */
static GkStatus
send_all(GkSession *s, GkError *err)
{
	for (int i = 0; i < s->pts->nchunks; i++)
	{
		const GkChunk *c = &s->pts->chunks[i];
		const uint32_t *aux[GK_MAX_AUX];

		for (int a = 0; a < s->pts->naux; a++)
			aux[a] = gk_chunk_aux(s->pts, c, a);
		if (!s->sink->emit(s->sink->ctx, c->rows, s->label + c->first, s->d2 + c->first, aux))
			return gk_fail(err, GK_ERR_HOST, "the host did not take the labels");
		if (s->host->poll != NULL && s->host->poll(s->host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}

static GkStatus
run_and_send(GkSession *s, GkError *err)
{
	const GkPoints *pts = s->pts;
	size_t		bytes = (size_t) pts->n * (sizeof(int32_t) + sizeof(float));
	GkStatus	st;

	s->sent = 0;
	if (!pts->resident || bytes > pts->spare)
		return run_in_order(s, err);
	s->label = gk_alloc(s->host, pts->n, sizeof(int32_t));
	s->d2 = gk_alloc(s->host, pts->n, sizeof(float));
	st = s->label != NULL && s->d2 != NULL ? gk_spread_run(s, finish_part, err)
		: gk_fail(err, GK_ERR_MEMORY, "out of memory for the labels of %lld rows", (long long) pts->n);
	if (st == GK_OK)
		st = send_all(s, err);
	gk_free(s->host, s->label);
	gk_free(s->host, s->d2);
	s->label = NULL;
	s->d2 = NULL;
	return st;
}

static GkStatus
make_room(GkSession *s, int k, const int32_t *stepped, GkError *err)
{
	if (!gk_spread_room(s, k * (sizeof(gk_int128) + sizeof(int64_t) + sizeof(float))))
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	for (int i = 0; i < s->n; i++)
	{
		GkFinish   *f = &s->part[i].finish;

		f->inertia = gk_spread_room_of(s, i);
		f->count = (int64_t *) (f->inertia + k);
		f->max_d2 = (float *) (f->count + k);
		f->stepped = stepped;
	}
	return GK_OK;
}

static void
combine(const GkSession *s, int k, GkFinish *out)
{
	memset(out->count, 0, k * sizeof(int64_t));
	memset(out->inertia, 0, k * sizeof(gk_int128));
	memset(out->max_d2, 0, k * sizeof(float));
	for (int i = 0; i < s->n; i++)
	{
		const GkFinish *f = &s->part[i].finish;

		if (s->part[i].rows == 0)
			continue;
		for (int c = 0; c < k; c++)
		{
			out->count[c] += f->count[c];
			out->inertia[c] += f->inertia[c];
			if (f->max_d2[c] > out->max_d2[c])
				out->max_d2[c] = f->max_d2[c];
		}
	}
}

GkStatus
gk_spread_finish(GkSession *s, const float *centroids, int k, GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	GkStatus	st = out != NULL ? make_room(s, k, out->stepped, err) : GK_OK;

	if (st != GK_OK)
		return st;
	s->pass = (GkSpreadPass) {.c = centroids,.k = k,.stats = out != NULL,.labels = sink != NULL};
	s->sink = sink;
	st = sink != NULL ? run_and_send(s, err) : gk_spread_run(s, finish_part, err);
	if (st == GK_OK && out != NULL)
		combine(s, k, out);
	return st;
}
