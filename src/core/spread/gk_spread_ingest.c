/*
 * gk_spread_ingest.c - rows that go up to several devices while they are read.
 *
 * A bus is faster than the reading, so one device is filled after the other: each with a run of rows, its
 * share of those that are expected, and the last one with all that are left.  If more or fewer come, the
 * devices take over rows from each other when all are there.  From then on shares stay: the rows are nowhere else.
 *
 * The main thread asks a device for room and sends rows, between two batches of them; the devices'
 * threads do all else.
 */
#include <math.h>

#include "core/spread/gk_spread_session.h"

/* ---- filling one device after the other ---- */

static bool
is_last(const GkSpreadPart *p)
{
	return p == &p->whole->part[p->whole->n - 1];
}

/* The device that takes the next rows. */
static GkSpreadPart *
at_hand(GkSession *s)
{
	GkSpreadPart *p = s->part;

	while (p->rows == p->share && !is_last(p))
		p++;
	return p;
}

static GkStatus
make_parts(GkSession *s, GkError *err)
{
	GkStatus	st = GK_OK;

	for (int i = 0; st == GK_OK && i < s->n; i++)
	{
		GkSpreadPart *p = &s->part[i];

		p->share = p->rows;
		p->rows = 0;
		if (p->share == 0 && !is_last(p) && gk_spread_is_forced(s))
			continue;
		if (p->of.backend->ingest == NULL)
			return gk_fail(err, GK_ERR_INTERNAL, "backend \"%s\" takes no rows while they are read", p->of.backend->name);
		st = gk_store_create(&p->host, s->pts->d, false, 0, s->store->largest_chunk, SIZE_MAX, &p->store, err);
	}
	return st;
}

static void
open_part(GkSpreadPart *p)
{
	const GkSession *s = p->whole;
	GkProblem	problem = gk_spread_problem(p);

	p->status = p->of.backend->ingest->open(&problem, p->share < s->expected ? p->share : s->expected, s->wide,
											&p->session, &p->error);
}

static GkStatus
ingest_open(const GkProblem *problem, int64_t rows, bool wide, GkSession **out, GkError *err)
{
	GkSession  *s;
	GkStatus	st = gk_spread_begin_rows(problem, &s, err);

	*out = NULL;
	if (st != GK_OK)
		return st;
	s->ingested = true;
	s->wide = wide;
	s->expected = rows;
	gk_spread_share(s, gk_spread_is_forced(s) ? GK_MAX_ROWS : rows);
	st = make_parts(s, err);
	if (st == GK_OK)
		st = gk_spread_run_once(s, open_part, err);
	if (st != GK_OK)
		gk_spread_close(s);
	else
		*out = s;
	return st;
}

/* What a call of the main thread returned.  A part sees that it is to stop, but only the host knows why. */
static GkStatus
said(GkSpreadPart *p, GkStatus st, GkError *err)
{
	const GkHost *host = p->whole->host;

	if (st == GK_STOPPED && host->poll != NULL)
		(void) host->poll(host->ctx);
	return gk_spread_named(p, st, err);
}

static GkStatus
ingest_room(GkSession *s, void **to, int *stride, int *rows, GkError *err)
{
	GkSpreadPart *p = at_hand(s);
	GkStatus	st = p->of.backend->ingest->room(p->session, to, stride, rows, err);

	if (st == GK_OK && !is_last(p) && p->share - p->rows < *rows)
		*rows = (int) (p->share - p->rows);
	return said(p, st, err);
}

static GkStatus
ingest_send(GkSession *s, int rows, GkError *err)
{
	GkSpreadPart *p = at_hand(s);
	GkStatus	st = p->of.backend->ingest->send(p->session, rows, err);

	if (st == GK_OK)
		p->rows += rows;
	return said(p, st, err);
}

/* ---- all rows are there ---- */

static void
take_over_part(GkSpreadPart *p)
{
	const GkSession *s = p->whole;

	p->status = p->of.backend->ingest->take_over(s->pass.members, s->n, (int) (p - s->part), p->first, p->rows, &p->error);
}

/* Can the devices take over rows from each other? */
static bool
can_take_over(const GkSession *s)
{
	const GkBackend *backend = s->part[0].of.backend;

	for (int i = 1; i < s->n; i++)
		if (s->part[i].of.backend != backend)
			return false;
	return !gk_spread_is_forced(s) && backend->ingest->take_over != NULL;
}

/* An iteration takes as long as the device with the most to do; in any unit. */
static double
longest(const GkSession *s)
{
	double		most = 0.0;

	for (int i = 0; i < s->n; i++)
		most = fmax(most, (double) s->part[i].rows / gk_spread_speed(s, &s->part[i]));
	return most;
}

/* Number the rows, and share them out as they should have been, if that is another way. */
static GkStatus
share_again(GkSession *s, GkError *err)
{
	double		now = longest(s);
	int64_t		rows[GK_SPREAD_DEVICES];
	GkJoin		members[GK_SPREAD_DEVICES];
	int64_t		n = 0;

	for (int i = 0; i < s->n; i++)
	{
		members[i] = (GkJoin) {s->part[i].session, n};
		s->part[i].first = n;
		n += rows[i] = s->part[i].rows;
	}
	if (!can_take_over(s))
		return GK_OK;
	gk_spread_share(s, n);
	if (longest(s) < GK_SPREAD_NEAR_ENOUGH * now)
	{
		s->pass = (GkSpreadPass) {.members = members};
		return gk_spread_run_once(s, take_over_part, err);
	}
	for (int i = 0; i < s->n; i++)
	{
		s->part[i].first = members[i].first;
		s->part[i].rows = rows[i];
	}
	return GK_OK;
}

static void
prepare_part(GkSpreadPart *p)
{
	p->status = GK_OK;
	if (p->rows > 0)
		p->status = p->of.backend->ingest->prepare(p->session, p->whole->pass.prep, p->moments, &p->error);
	else
	{
		p->of.backend->close(p->session);
		p->session = NULL;
	}
}

/* Add up the sums of the parts. */
static void
add_up(GkSession *s, GkMoments *moments)
{
	memset(moments, 0, s->pts->d * sizeof(GkMoments));
	for (int i = 0; i < s->n; i++)
	{
		GkSpreadPart *p = &s->part[i];

		if (p->rows == 0)
		{
			gk_store_free(p->store);
			p->store = NULL;
			continue;
		}
		p->store->pts.total_mass = (gk_int128) p->rows;
		for (int j = 0; j < s->pts->d; j++)
		{
			p->store->pts.total_sum[j] = p->moments[j].sum;
			moments[j].sum += p->moments[j].sum;
			moments[j].sq += p->moments[j].sq;
		}
	}
}

static GkStatus
ingest_prepare(GkSession *s, const GkPrep *prep, GkMoments *moments, GkError *err)
{
	GkStatus	st = share_again(s, err);

	if (st != GK_OK)
		return st;
	if (!gk_spread_room(s, s->pts->d * sizeof(GkMoments)))
		return gk_spread_out_of_memory(err);
	for (int i = 0; i < s->n; i++)
		s->part[i].moments = gk_spread_room_of(s, i);
	s->pass = (GkSpreadPass) {.prep = prep};
	st = gk_spread_run_once(s, prepare_part, err);
	if (st == GK_OK)
		add_up(s, moments);
	return st;
}

const GkIngestBackend gk_spread_ingest = {
	.open = ingest_open,
	.room = ingest_room,
	.send = ingest_send,
	.prepare = ingest_prepare,
};

GkStatus
gk_spread_ingested(GkSession *s, GkError *err)
{
	for (int i = 0; i < s->n; i++)
		if (s->part[i].rows > 0)
			gk_store_part_prepared(s->part[i].store, s->store, s->part[i].rows, s->n);
	return gk_spread_open_parts(s, err);
}
