/*
 * gk_spread_seed.c - seeding on several devices: races, sums and farthest points of the parts become those of
 * all rows.
 *
 * Seeds are remembered: a device that takes over rows needs them.
 */
#include "core/gk_engine.h"
#include "core/gk_numerics.h"
#include "core/spread/gk_spread_session.h"

static void
seed_begin_part(GkSpreadPart *p)
{
	p->status = p->of.backend->seed_begin(p->session, &p->error);
}

GkStatus
gk_spread_seed_begin(GkSession *s, GkError *err)
{
	GkStatus	st;

	s->seeding = false;
	s->nseeds = 0;
	st = gk_spread_run(s, seed_begin_part, err);
	s->seeding = st == GK_OK;
	return st;
}

static void
seed_end_part(GkSpreadPart *p)
{
	if (p->session != NULL)
		p->of.backend->seed_end(p->session);
}

void
gk_spread_seed_end(GkSession *s)
{
	GkError		err;

	s->seeding = false;
	(void) gk_spread_run_once(s, seed_end_part, &err);
}

/* Remember seeds: a device that takes over rows needs them. */
static GkStatus
remember(GkSession *s, const float *centroids, int m, GkError *err)
{
	size_t		d = s->pts->d;

	if (s->nseeds + m > s->seeds_room)
	{
		int			room = 2 * s->nseeds + m + 64;
		float	   *grown = gk_alloc(s->host, room, d * sizeof(float));

		if (grown == NULL)
			return gk_spread_out_of_memory(err);
		if (s->nseeds > 0)
			memcpy(grown, s->seeds, s->nseeds * d * sizeof(float));
		gk_free(s->host, s->seeds);
		s->seeds = grown;
		s->seeds_room = room;
	}
	memcpy(s->seeds + s->nseeds * d, centroids, m * d * sizeof(float));
	s->nseeds += m;
	return GK_OK;
}

static void
seed_update_part(GkSpreadPart *p)
{
	const GkSpreadPass *pass = &p->whole->pass;

	p->status = p->of.backend->seed_update(p->session, pass->c, pass->k, &p->phi, &p->error);
}

GkStatus
gk_spread_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err)
{
	bool		known = true;
	GkStatus	st;

	s->pass = (GkSpreadPass) {.c = centroids,.k = m};
	st = gk_spread_run(s, seed_update_part, err);
	*phi = 0;
	for (int i = 0; st == GK_OK && i < s->n; i++)
		if (s->part[i].rows > 0)
		{
			known &= s->part[i].phi >= 0;
			*phi += s->part[i].phi;
		}
	if (!known)
		*phi = -1;
	return st == GK_OK ? remember(s, centroids, m, err) : st;
}

static void
seed_eval_part(GkSpreadPart *p)
{
	const GkSpreadPass *pass = &p->whole->pass;

	p->status = p->of.backend->seed_eval(p->session, pass->c, pass->k, p->pot, &p->error);
}

GkStatus
gk_spread_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err)
{
	GkStatus	st;

	if (!gk_spread_room(s, m * sizeof(gk_int128)))
		return gk_spread_out_of_memory(err);
	for (int i = 0; i < s->n; i++)
		s->part[i].pot = gk_spread_room_of(s, i);
	s->pass = (GkSpreadPass) {.c = centroids,.k = m};
	st = gk_spread_run(s, seed_eval_part, err);
	memset(pot, 0, m * sizeof(gk_int128));
	for (int i = 0; st == GK_OK && i < s->n; i++)
		for (int q = 0; s->part[i].rows > 0 && q < m; q++)
			pot[q] += s->part[i].pot[q];
	return st;
}

static void
seed_race_part(GkSpreadPart *p)
{
	const GkSpreadPass *pass = &p->whole->pass;

	p->got = 0;
	/* a part counts its rows from 0 */
	p->status = p->of.backend->seed_race(p->session, gk_hash_from(pass->key, p->first), pass->use_d2, pass->want,
										 p->pick, &p->got, &p->error);
}

/* Of two parts' picks, both in order, take the first ones. */
static int
merge_picks(const GkPick *a, int na, const GkPick *b, int nb, int64_t b_first, int want, GkPick *out)
{
	int			n = 0;

	for (int i = 0, j = 0; n < want && (i < na || j < nb);)
	{
		/* of equal keys, the lower row, which is a's */
		if (j == nb || (i < na && a[i].key <= b[j].key))
			out[n++] = a[i++];
		else
		{
			out[n] = b[j++];
			out[n++].row += b_first;
		}
	}
	return n;
}

GkStatus
gk_spread_seed_race(GkSession *s, uint64_t key, bool use_d2, int want, GkPick *out, int *got, GkError *err)
{
	GkPick	   *before = gk_alloc(s->host, want, sizeof(GkPick));
	GkStatus	st = GK_OK;

	*got = 0;
	if (before == NULL || !gk_spread_room(s, want * sizeof(GkPick)))
		st = gk_spread_out_of_memory(err);
	for (int i = 0; st == GK_OK && i < s->n; i++)
		s->part[i].pick = gk_spread_room_of(s, i);
	s->pass = (GkSpreadPass) {.key = key,.use_d2 = use_d2,.want = want};
	if (st == GK_OK)
		st = gk_spread_run(s, seed_race_part, err);
	for (int i = 0; st == GK_OK && i < s->n; i++)
	{
		const GkSpreadPart *p = &s->part[i];

		if (p->rows == 0)
			continue;
		memcpy(before, out, *got * sizeof(GkPick));
		*got = merge_picks(before, *got, p->pick, p->got, p->first, want, out);
	}
	gk_free(s->host, before);
	return st;
}

/* Can rounds be done at once: by joined sessions, or by the only one? */
static bool
has_rounds(const GkSession *s)
{
	const GkBackend *backend = NULL;
	int			parts = 0;

	for (int i = 0; i < s->n; i++)
		if (s->part[i].rows > 0)
		{
			backend = s->part[i].of.backend;
			parts++;
		}
	return (s->joined || parts == 1) && backend->seed_rounds != NULL;
}

static void
seed_rounds_part(GkSpreadPart *p)
{
	const GkSession *s = p->whole;
	const GkSpreadPass *pass = &s->pass;
	uint64_t   *keys = gk_spread_room_of(s, (int) (p - s->part));

	p->status = GK_OK;
	p->rounds = 0;
	/* asked again after a loss, they may not be joined any more */
	if (!has_rounds(s))
		return;
	for (int i = 0; i < pass->rounds; i++)
		keys[i] = gk_hash_from(pass->keys[i], p->first);
	p->status = p->of.backend->seed_rounds(p->session, keys, pass->rounds, pass->want, p->speaks ? pass->points : NULL,
										   &p->rounds, &p->error);
}

GkStatus
gk_spread_seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done, GkError *err)
{
	GkStatus	st;

	*done = 0;
	if (!has_rounds(s))
		return GK_OK;
	if (!gk_spread_room(s, rounds * sizeof(uint64_t)))
		return gk_spread_out_of_memory(err);
	s->pass = (GkSpreadPass) {.keys = keys,.rounds = rounds,.want = want,.points = points};
	st = gk_spread_run(s, seed_rounds_part, err);
	for (int i = 0; st == GK_OK && i < s->n; i++)
		if (s->part[i].rows > 0 && s->part[i].speaks)
			*done = s->part[i].rounds;
	return st == GK_OK && *done > 0 ? remember(s, points, *done, err) : st;
}

GkStatus
gk_spread_row(GkSession *s, int64_t row, float *out, GkError *err)
{
	const GkSpreadPart *p = s->part;

	while (row >= p->first + p->rows)
		p++;
	return gk_spread_named(p, gk_picked_row(p->of.backend, p->session, p->store, row - p->first, out, err), err);
}

static void
seed_far_part(GkSpreadPart *p)
{
	p->status = p->of.backend->seed_far(p->session, &p->far, &p->error);
}

/* Is a point farther, ties to the smaller coordinates?  Of equal ones the first part's stays. */
static bool
farther(float d2, const float *x, float best_d2, const float *best, int d)
{
	if (d2 != best_d2)
		return d2 > best_d2;
	for (int j = 0; j < d; j++)
		if (x[j] != best[j])
			return x[j] < best[j];
	return false;
}

/* A part tells its farthest row, but not how far: that is once more the distance to the nearest seed. */
GkStatus
gk_spread_seed_far(GkSession *s, int64_t *row, GkError *err)
{
	int			d = s->pts->d;
	float	   *x = gk_alloc(s->host, 2 * (size_t) d, sizeof(float));
	float	   *best = x != NULL ? x + d : NULL;
	float		best_d2 = 0.0f;
	GkStatus	st = x != NULL ? gk_spread_run(s, seed_far_part, err) : gk_spread_out_of_memory(err);

	*row = -1;
	for (int i = 0; st == GK_OK && i < s->n; i++)
	{
		const GkSpreadPart *p = &s->part[i];
		float		d2;

		if (p->rows == 0 || p->far < 0)
			continue;
		st = gk_spread_row(s, p->first + p->far, x, err);
		if (st != GK_OK)
			break;
		(void) gk_nearest(x, d, s->seeds, s->nseeds, &d2);
		if (*row >= 0 && !farther(d2, x, best_d2, best, d))
			continue;
		*row = p->first + p->far;
		best_d2 = d2;
		memcpy(best, x, d * sizeof(float));
	}
	gk_free(s->host, x);
	return st;
}
