/*
 * gk_spread_move.c - edges between the rows of devices move, and sessions go on.
 *
 * To close all sessions and open them for other rows takes as long as some passes, and what a session has learned
 * of its rows is lost.  Where each session can go on with a few rows more or less (GkBackend.move), that is cheap,
 * and shares follow as devices become faster: the CPU does, once it knows which points need not be looked at.
 */
#include "core/spread/gk_spread_session.h"

bool
gk_spread_is_movable(const GkSession *s)
{
	int			parts = 0;

	for (int i = 0; i < s->n; i++)
	{
		const GkSpreadPart *p = &s->part[i];
		bool		can = true;
		GkError		err;

		if (p->rows == 0)
			continue;
		if (p->of.backend->move == NULL || p->of.backend->move(p->session, NULL, p->first, &can, &err) != GK_OK || !can)
			return false;
		parts++;
	}
	/* stores have totals where there are iterations */
	return parts > 1 && !s->joined && !s->ingested && s->problem.max_iter > 0 && s->pts->total_mass != 0;
}

/* Has it had rows, and has it some now?  (What has all rows was told that, and others were not.) */
static bool
goes_on(const GkSession *s, const GkSpreadPart *p)
{
	return p->was_rows < s->pts->n && p->rows < s->pts->n && (p->was_rows > 0) == (p->rows > 0);
}

/* ---- stores ---- */

/* Add what an edge has given to the part before it, and take it from the one after it. */
static GkStatus
pass_totals(GkSession *s, GkSpreadPart *before, GkSpreadPart *after, GkError *err)
{
	int64_t		was = after->was_first;
	int64_t		now = after->first;
	int			sign = now > was ? 1 : -1;
	GkPoints   *gains = &before->other->pts;
	GkPoints   *loses = &after->other->pts;
	GkStore    *between = NULL;
	GkStatus	st = gk_store_part(s->store, now > was ? was : now, sign * (now - was), s->n, s->host, &between, err);

	if (st == GK_OK)
		st = gk_store_part_total(between, err);
	for (int j = 0; st == GK_OK && j < s->pts->d; j++)
	{
		gains->total_sum[j] += sign * between->pts.total_sum[j];
		loses->total_sum[j] -= sign * between->pts.total_sum[j];
	}
	if (st == GK_OK)
	{
		gains->total_mass += sign * between->pts.total_mass;
		loses->total_mass -= sign * between->pts.total_mass;
	}
	gk_store_part_free(between);
	return st;
}

/* Stores of the parts whose rows are others. */
static GkStatus
make_others(GkSession *s, GkError *err)
{
	GkSpreadPart *before = NULL;
	GkStatus	st = GK_OK;

	for (int i = 0; st == GK_OK && i < s->n; i++)
	{
		GkSpreadPart *p = &s->part[i];

		if (p->rows == 0 || (p->first == p->was_first && p->rows == p->was_rows))
			continue;
		st = gk_store_part(s->store, p->first, p->rows, s->n, &p->host, &p->other, err);
		if (st != GK_OK)
			break;
		memcpy(p->other->pts.total_sum, p->store->pts.total_sum, s->pts->d * sizeof(gk_int128));
		p->other->pts.total_mass = p->store->pts.total_mass;
	}
	for (int i = 0; st == GK_OK && i < s->n; i++)
	{
		GkSpreadPart *p = &s->part[i];

		if (p->rows == 0)
			continue;
		if (before != NULL && p->first != p->was_first)
			st = pass_totals(s, before, p, err);
		before = p;
	}
	return st;
}

/* ---- sessions ---- */

static void
move_part(GkSpreadPart *p)
{
	GkStore    *was = p->store;
	bool		done = false;

	if (p->other == NULL)
		return;
	if (p->of.backend->move != NULL)
		p->status = p->of.backend->move(p->session, p->other, p->first - p->was_first, &done, &p->error);
	if (p->status != GK_OK)
		return;
	if (!done)
		gk_spread_close_part(p);
	p->store = p->other;
	p->other = was;
	if (!done)
		gk_spread_open_part(p);
}

static void
free_others(GkSession *s)
{
	for (int i = 0; i < s->n; i++)
	{
		gk_store_part_free(s->part[i].other);
		s->part[i].other = NULL;
	}
}

/* Have the sessions take their new rows. */
static GkStatus
move_parts(GkSession *s, GkError *err)
{
	GkStatus	st = gk_spread_run_once(s, move_part, err);

	if (st != GK_OK)
		return st;
	free_others(s);
	for (int i = 0; i < s->n; i++)
		s->part[i].measured = 0;
	/* those that were opened anew may be able to */
	s->movable = gk_spread_is_movable(s);
	return GK_OK;
}

/* Nothing has moved yet: all keep the rows that they have. */
static void
stay(GkSession *s)
{
	free_others(s);
	for (int i = 0; i < s->n; i++)
	{
		s->part[i].first = s->part[i].was_first;
		s->part[i].rows = s->part[i].was_rows;
	}
}

GkStatus
gk_spread_move(GkSession *s, GkError *err)
{
	double		start = gk_now_ms();
	bool		can = s->movable;
	bool		same = true;
	GkStatus	st;

	for (int i = 0; i < s->n; i++)
	{
		s->part[i].was_first = s->part[i].first;
		s->part[i].was_rows = s->part[i].rows;
	}
	gk_spread_share(s, s->pts->n);
	for (int i = 0; i < s->n; i++)
	{
		can &= goes_on(s, &s->part[i]);
		same &= s->part[i].first == s->part[i].was_first && s->part[i].rows == s->part[i].was_rows;
	}
	/* edges are rounded, perhaps to where they are: that tells nothing of what moving costs */
	s->lost_ms = 0.0;
	if (same)
		return GK_OK;
	if (!can)
		return gk_spread_arrange(s, err);
	st = make_others(s, err);
	if (st == GK_ERR_MEMORY)
	{
		stay(s);
		return GK_OK;
	}
	if (st == GK_OK)
		st = move_parts(s, err);
	if (gk_spread_is_loss(st))
	{
		st = gk_spread_drop_lost(s, st);
		return st == GK_OK ? gk_spread_arrange(s, err) : st;
	}
	if (st != GK_OK)
		return st;
	s->move_ms = gk_now_ms() - start;
	s->first_ms = -1.0;
	gk_spread_tell(s);
	return GK_OK;
}
