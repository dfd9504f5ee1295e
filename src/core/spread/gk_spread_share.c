/*
 * gk_spread_share.c - which device has which rows.
 *
 * Devices have runs of rows, in their order, as long as they are fast.  Rows move when that pays:
 * when what has been lost since they were measured, against the shares that would have been right,
 * is more than moving costs.  Whenever the iterations end, that has lost at most twice the least (the
 * rule of the ski rental problem), but for the first steps with new shares, which are not judged.
 *
 * Moving is cheap where sessions go on with other rows (gk_spread_move.c), dear where they are opened
 * anew.  What it costs is what it took the last time, with what the first step had to do besides.  Rows
 * move a little further than what was measured says, towards a device that becomes faster.
 */
#include <math.h>
#include <stdio.h>

#include "core/spread/gk_spread_session.h"

#define RECENT			(int) (sizeof(((GkSpreadPart *) 0)->recent_ms) / sizeof(double))
/* Steps that are enough to judge shares which are easy to change. */
#define SOME			2
/* What moving is thought to cost as long as that was not measured. */
#define MOVE_MS			5.0
/* A device that has become faster by more than this does not go on so. */
#define MOST_TREND		2.0

/* ---- speed ---- */

/* Rows a millisecond of a part that has not been measured, by what its backend says of such a share. */
static double
guess_of(const GkSession *s, const GkSpreadPart *p)
{
	double		rows = (double) (s->ingested ? s->expected : s->pts->n) / s->n;
	double		ms = p->of.backend->step_ms != NULL ? p->of.backend->step_ms(p->of.number, &s->problem, (int64_t) rows) : 0.0;

	return p->of.speed > 0.0 ? p->of.speed : ms > 0.0 ? rows / ms : 1.0;
}

/* ... and by how that compares with what was measured of the others. */
double
gk_spread_speed(const GkSession *s, const GkSpreadPart *p)
{
	double		measured = 0.0;
	double		guessed = 0.0;

	if (p->speed > 0.0)
		return p->speed;
	for (int i = 0; i < s->n; i++)
		if (s->part[i].speed > 0.0)
		{
			measured += s->part[i].speed;
			guessed += guess_of(s, &s->part[i]);
		}
	return guessed > 0.0 ? guess_of(s, p) * measured / guessed : guess_of(s, p);
}

/*
 * ... and about what it will be while it has the shares to come.  A device that has become faster since shares were
 * made the last time goes on so, a little less each time: on average, a third of that.
 */
static double
speed_ahead(const GkSession *s, const GkSpreadPart *p)
{
	double		trend = p->speed > 0.0 && p->speed_then > 0.0 ? p->speed / p->speed_then : 1.0;

	return gk_spread_speed(s, p) * cbrt(fmin(fmax(trend, 1.0), MOST_TREND));
}

bool
gk_spread_is_forced(const GkSession *s)
{
	const char *rows = s->host->spread->rows;

	return rows != NULL && rows[0] != '\0';
}

/*
 * After a step of a part: the shortest of the last ones is what it takes, once `steps` are known.  Others had more to
 * do, once: to sort the points, to load a kernel, to find labels of new rows.  Returns milliseconds, 0: not known yet.
 */
static double
takes(GkSpreadPart *p, int steps)
{
	double		least = p->ms;

	if (!(p->ms > 0.0))
		return 0.0;
	p->recent_ms[p->measured++ % RECENT] = p->ms;
	if (p->measured < steps)
		return 0.0;
	for (int i = 0; i < RECENT && i < p->measured; i++)
		least = fmin(least, p->recent_ms[i]);
	p->speed = (double) p->rows / least;
	return least;
}

/* After the first two steps with moved edges: what the first one took more than the second is part of the cost. */
static void
judge_move(GkSession *s)
{
	double		longest = 0.0;

	for (int i = 0; i < s->n; i++)
		if (s->part[i].rows > 0)
			longest = fmax(longest, s->part[i].ms);
	if (s->first_ms > 0.0)
		s->move_ms += fmax(s->first_ms - longest, 0.0);
	s->first_ms = s->first_ms < 0.0 ? longest : 0.0;
}

bool
gk_spread_measure(GkSession *s)
{
	double		longest = 0.0;
	double		speed = 0.0;
	double		best;

	judge_move(s);
	for (int i = 0; i < s->n; i++)
		if (s->part[i].rows > 0)
			longest = fmax(longest, takes(&s->part[i], s->movable ? SOME : RECENT));
	if (gk_spread_is_forced(s))
		return !s->ingested && s->host->spread->again != NULL && s->host->spread->again(s->host->spread);
	if (!(longest > 0.0))
		return false;
	for (int i = 0; i < s->n; i++)
		if (!s->part[i].lost)
			speed += gk_spread_speed(s, &s->part[i]);
	/* rows that are nowhere else stay */
	if (!(speed > 0.0) || s->ingested)
		return false;
	best = (double) s->pts->n / speed;
	if (best > (s->movable ? GK_SPREAD_NEARER : GK_SPREAD_NEAR_ENOUGH) * longest)
		return false;
	s->lost_ms += longest - best;
	return s->lost_ms > (s->movable ? s->move_ms : s->arrange_ms);
}

/* ---- shares ---- */

/* Where a part may end. */
static int64_t
edge(const GkSession *s, int64_t row, int64_t n)
{
	if (!s->ingested)
		return gk_store_edge(s->store, row, s->n);
	row = (row + GK_ROW_PAD / 2) / GK_ROW_PAD * GK_ROW_PAD;
	return row < n ? row : n;
}

/* One after the other. */
void
gk_spread_share(GkSession *s, int64_t n)
{
	const char *forced = gk_spread_is_forced(s) ? s->host->spread->rows : NULL;
	double		all = 0.0;
	double		before = 0.0;
	int64_t		first = 0;
	int			last = -1;

	for (int i = 0; i < s->n; i++)
		if (!s->part[i].lost)
		{
			all += speed_ahead(s, &s->part[i]);
			last = i;
		}
	for (int i = 0; i < s->n; i++)
	{
		GkSpreadPart *p = &s->part[i];
		int64_t		end = first;

		if (!p->lost && forced != NULL)
		{
			char	   *rest;

			end = first + strtoll(forced, &rest, 10);
			forced = *rest == ',' ? rest + 1 : rest;
		}
		else if (!p->lost)
		{
			before += speed_ahead(s, p);
			end = (int64_t) ((double) n * (before / all));
		}
		end = i == last ? n : edge(s, end, n);
		p->first = first;
		p->rows = end > first ? end - first : 0;
		first += p->rows;
	}
	for (int i = 0; i < s->n; i++)
		s->part[i].speed_then = s->part[i].speed;
}

static GkStatus
make_stores(GkSession *s, GkError *err)
{
	const GkPoints *pts = s->pts;
	bool		totals = s->problem.max_iter > 0 && pts->total_mass != 0;
	GkPoints   *last = NULL;
	GkStatus	st = GK_OK;

	for (int i = s->n - 1; st == GK_OK && i >= 0; i--)
	{
		GkSpreadPart *p = &s->part[i];
		GkPoints   *own;

		if (p->rows == 0)
			continue;
		st = gk_store_part(s->store, p->first, p->rows, s->n, &p->host, &p->store, err);
		if (st != GK_OK || !totals)
			continue;
		own = &p->store->pts;
		/* the last one's are what the others leave */
		if (last == NULL)
		{
			last = own;
			memcpy(own->total_sum, pts->total_sum, pts->d * sizeof(gk_int128));
			own->total_mass = pts->total_mass;
			continue;
		}
		st = gk_store_part_total(p->store, err);
		for (int j = 0; j < pts->d; j++)
			last->total_sum[j] -= own->total_sum[j];
		last->total_mass -= own->total_mass;
	}
	return st;
}

/* ---- sessions ---- */

GkProblem
gk_spread_problem(const GkSpreadPart *p)
{
	GkProblem	problem = p->whole->problem;

	problem.host = &p->host;
	problem.store = p->store;
	problem.gpu_devices = p->host.gpu_devices;
	problem.gpu_fault = p->host.gpu_fault;
	problem.ingesting = p->session;
	return problem;
}

void
gk_spread_open_part(GkSpreadPart *p)
{
	const GkSession *s = p->whole;
	GkProblem	problem = gk_spread_problem(p);

	/* a part's sums do not tell the next centroids; those of joined parts do, or of one that has all rows */
	if (p->rows < s->pts->n)
	{
		problem.max_iter = problem.max_iter > 1 ? 1 : problem.max_iter;
		problem.tol = 0.0;
	}
	p->status = p->of.backend->open(&problem, &p->session, &p->error);
}

static void
leave_part(GkSpreadPart *p)
{
	p->of.backend->leave(p->session);
}

void
gk_spread_close_part(GkSpreadPart *p)
{
	p->of.backend->close(p->session);
	p->session = NULL;
}

/* Have the sessions join, where all are of one backend that can. */
static void
join_parts(GkSession *s)
{
	const GkBackend *backend = NULL;
	GkJoin		member[GK_SPREAD_DEVICES];
	int			n = 0;

	for (int i = 0; i < s->n; i++)
	{
		GkSpreadPart *p = &s->part[i];

		if (p->rows == 0)
			continue;
		p->speaks = n == 0;
		if (n > 0 && p->of.backend != backend)
			return;
		backend = p->of.backend;
		member[n++] = (GkJoin) {p->session, p->first};
	}
	s->joined = n > 1 && s->problem.max_iter > 0 && backend->join != NULL && backend->join(member, n, s->problem.max_iter, s->problem.tol);
}

static void
begin_seeds(GkSpreadPart *p)
{
	const GkSession *s = p->whole;

	p->status = p->of.backend->seed_begin(p->session, &p->error);
	if (p->status == GK_OK && s->nseeds > 0)
		p->status = p->of.backend->seed_update(p->session, s->seeds, s->nseeds, &p->phi, &p->error);
}

void
gk_spread_close_parts(GkSession *s)
{
	GkError		err;

	s->only = NULL;
	if (s->joined)
		(void) gk_spread_run_once(s, leave_part, &err);
	s->joined = false;
	(void) gk_spread_run_once(s, gk_spread_close_part, &err);
	for (int i = 0; i < s->n; i++)
	{
		/* the chunks are the whole store's, unless the device had the rows */
		if (s->ingested)
			gk_store_free(s->part[i].store);
		else
			gk_store_part_free(s->part[i].store);
		gk_store_part_free(s->part[i].other);
		s->part[i].store = s->part[i].other = NULL;
		s->part[i].rows = 0;
	}
}

GkStatus
gk_spread_open_parts(GkSession *s, GkError *err)
{
	GkStatus	st = gk_spread_run_once(s, gk_spread_open_part, err);

	s->steps_only = 0;
	s->move_ms = MOVE_MS;
	s->first_ms = 0.0;
	if (st == GK_OK)
		join_parts(s);
	if (st == GK_OK && s->seeding)
		st = gk_spread_run_once(s, begin_seeds, err);
	s->movable = st == GK_OK && gk_spread_is_movable(s);
	if (st == GK_OK)
		gk_spread_tell(s);
	return st;
}

static GkStatus
arrange(GkSession *s, GkError *err)
{
	GkStatus	st;

	gk_spread_close_parts(s);
	gk_spread_share(s, s->pts->n);
	for (int i = 0; i < s->n; i++)
		s->part[i].measured = 0;
	st = make_stores(s, err);
	return st == GK_OK ? gk_spread_open_parts(s, err) : st;
}

GkStatus
gk_spread_arrange(GkSession *s, GkError *err)
{
	double		start = gk_now_ms();
	GkStatus	st;

	while (gk_spread_is_loss(st = arrange(s, err)))
		if ((st = gk_spread_drop_lost(s, st)) != GK_OK)
			return st;
	s->arrange_ms = gk_now_ms() - start;
	s->lost_ms = 0.0;
	return st;
}

void
gk_spread_describe(const GkSession *s, char *out, size_t len)
{
	size_t		at = 0;
	int64_t		all = 0;

	out[0] = '\0';
	for (int i = 0; i < s->n; i++)
		all += s->part[i].rows;
	for (int i = 0; i < s->n && at < len; i++)
	{
		const GkSpreadPart *p = &s->part[i];
		char		name[16] = "cpu";

		if (p->rows == 0)
			continue;
		if (p->of.number >= 0)
			snprintf(name, sizeof(name), "gpu %d", p->of.number);
		at += (size_t) snprintf(out + at, len - at, "%s%s %.0f %%", at > 0 ? ", " : "", name,
								100.0 * (double) p->rows / (double) all);
	}
}

void
gk_spread_tell(const GkSession *s)
{
	char		shares[sizeof(((GkModel *) 0)->device)];

	if (s->host->devices == NULL)
		return;
	gk_spread_describe(s, shares, sizeof(shares));
	s->host->devices(s->host->ctx, shares);
}
