/*
 * gk_pass_backend.c - cluster rows that are not kept: a backend whose passes read them again
 * (GkRows), and the store of such rows.
 *
 * The loop, seeding, repair and finishing are those of any other backend; here each of their
 * calls becomes a GkPass.  Seeding's D is a function of all seeds so far, which are kept
 * instead: O(k d) numbers.
 *
 * A round of k-means++ is one pass: gk_seed.c says which race comes after the
 * choice among the candidates (seed_ahead), and the pass that evaluates them runs
 * that race for each candidate.
 */
#include <stdio.h>
#include <string.h>

#include "core/rescan/gk_pass.h"
#include "core/store/gk_store.h"

struct GkSession
{
	const GkHost *host;
	GkStore    *store;
	const GkPoints *pts;
	/* D: the distance to the nearest of these. */
	float	   *seeds;			/* [nseeds][d] */
	int			nseeds;
	int			room;
	int64_t		seeding;		/* number of the seeding */
	/* What seed_ahead() said. */
	bool		ahead;
	uint64_t	key;
	int			want;
	/* The last pass of a race, whose points are the ones that may be asked for. */
	GkPass		asked;
	GkPassResult answer;
	float	   *candidates;		/* of it; NULL: none */
	int			race;			/* which of its races was run; -1: none yet */
	int			next;			/* pick to look at first */
};

static GkStatus
out_of_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory");
}

/* ---- one pass ---- */

/* Fail: the rows, or their sums, differ from those of an earlier pass. */
GkStatus
gk_rows_changed(GkError *err)
{
	gk_fail(err, GK_ERR_DATA, "the rows changed between two passes over them");
	snprintf(err->hint, sizeof(err->hint),
			 "Strategy \"scan\" reads the rows once in every pass: use another strategy for a view that returns "
			 "other rows each time, and lock a distributed table against writes.");
	return GK_ERR_DATA;
}

static GkPass
question(const GkSession *s, GkPassKind kind, const float *centroids, int k)
{
	return (GkPass) {.kind = kind,.weighted = s->pts->weighted,.prep = &s->pts->prep,
		.d2_expo = s->pts->d2_expo,.weight_exp = s->pts->weight_exp,.k = k,.centroids = centroids};
}

GkStatus
gk_rows_ask(const GkStore *store, const GkPass *pass, const GkLabelSink *sink, GkPassResult *out, GkError *err)
{
	const GkRows *rows = store->state;
	GkStatus	st;

	memset(out, 0, sizeof(*out));
	st = rows->pass(rows->ctx, pass, sink, out, err);
	if (st == GK_OK && (out->rows != store->pts.n || out->d != store->pts.d))
		st = gk_rows_changed(err);
	if (st != GK_OK)
		gk_pass_result_free(store->host, out);
	return st;
}

/* ---- the store ---- */

/* Each pass prepares the rows again, so only find the totals. */
static GkStatus
rows_prepare(GkStore *store, const GkPrep *prep, bool keep, GkMoments *moments, gk_int128 *mass, GkError *err)
{
	GkPass		pass = {.kind = GK_PASS_MOMENTS,.weighted = store->pts.weighted,.prep = prep,
	.weight_exp = store->pts.weight_exp};
	GkPassResult r;
	GkStatus	st;

	(void) keep;
	if (moments == NULL)
		return GK_OK;
	if ((st = gk_rows_ask(store, &pass, NULL, &r, err)) != GK_OK)
		return st;
	for (int j = 0; j < store->pts.d; j++)
		moments[j] = (GkMoments) {.sum = r.i128[j],.sq = r.i128[store->pts.d + j]};
	*mass = r.i128[2 * store->pts.d];
	gk_pass_result_free(store->host, &r);
	return GK_OK;
}

static const GkSink rows_sink = {.prepare = rows_prepare};

GkStatus
gk_rows_open(const GkHost *host, const GkRows *rows, bool weighted, GkStore **out, GkError *err)
{
	GkPass		pass = {.kind = GK_PASS_STATS,.weighted = weighted};
	GkPassResult r = {0};
	GkStore    *s;
	GkStatus	st = rows->pass(rows->ctx, &pass, NULL, &r, err);

	*out = NULL;
	if (st == GK_OK && r.rows > 0)
		st = gk_store_create(host, r.d, weighted, 0, SIZE_MAX, SIZE_MAX, out, err);
	s = *out;
	if (st == GK_OK && s != NULL)
	{
		s->sink = &rows_sink;
		s->state = (void *) rows;
		s->reader = &gk_rows_backend;
		s->pts.n = r.rows;
		for (int c = 0; c < s->columns; c++)
			s->stats[c] = (GkColumnStats) {.min = r.dbl[2 * c],.max = r.dbl[2 * c + 1],.sum = ((const GkWide *) r.i64)[c]};
	}
	gk_pass_result_free(host, &r);
	return st;
}

/* ---- the session ---- */

static int
devices(GkDeviceInfo *out, int max)
{
	(void) out;
	(void) max;
	return 0;
}

static void
forget_race(GkSession *s)
{
	gk_pass_result_free(s->host, &s->answer);
	gk_free(s->host, s->candidates);
	s->candidates = NULL;
	s->race = -1;
	s->next = 0;
}

static void
close_session(GkSession *s)
{
	if (s == NULL)
		return;
	forget_race(s);
	gk_free(s->host, s->seeds);
	gk_free(s->host, s);
}

static GkStatus
open_session(const GkProblem *problem, GkSession **out, GkError *err)
{
	GkSession  *s = gk_alloc0(problem->host, 1, sizeof(GkSession));

	*out = s;
	if (s == NULL)
		return out_of_memory(err);
	s->host = problem->host;
	s->store = problem->store;
	s->pts = gk_store_points(problem->store);
	s->race = -1;
	return GK_OK;
}

static void
describe(GkSession *s, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	const GkRows *rows = s->store->state;

	rows->describe(rows->ctx, device, device_len, strategy, strategy_len);
}

/* ---- Lloyd ---- */

/* All clusters together are all rows, for any centroids. */
static bool
complete(const GkSession *s, const GkStep *step, int k)
{
	gk_int128	mass = 0;
	int			d = s->pts->d;

	for (int i = 0; i < k; i++)
		mass += step->mass[i];
	for (int j = 0; j < d; j++)
	{
		gk_int128	sum = 0;

		for (int i = 0; i < k; i++)
			sum += step->sum[(size_t) i * d + j];
		if (sum != s->pts->total_sum[j])
			return false;
	}
	return mass == s->pts->total_mass;
}

static GkStatus
step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	GkPass		pass = question(s, GK_PASS_STEP, centroids, k);
	size_t		kd = (size_t) k * s->pts->d;
	GkPassResult r;
	GkStatus	st = gk_rows_ask(s->store, &pass, NULL, &r, err);

	if (st != GK_OK)
		return st;
	memcpy(out->sum, r.i128, kd * sizeof(gk_int128));
	memcpy(out->mass, r.i128 + kd, k * sizeof(gk_int128));
	memcpy(out->count, r.i64, k * sizeof(int64_t));
	gk_pass_result_free(s->host, &r);
	return complete(s, out, k) ? GK_OK : gk_rows_changed(err);
}

static GkStatus
finish(GkSession *s, const float *centroids, int k, GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	GkPass		pass = question(s, GK_PASS_FINISH, centroids, k);
	GkPassResult r;
	GkStatus	st = gk_rows_ask(s->store, &pass, sink, &r, err);

	if (st == GK_OK && out != NULL)
	{
		memcpy(out->inertia, r.i128, k * sizeof(gk_int128));
		memcpy(out->count, r.i64, k * sizeof(int64_t));
		memcpy(out->max_d2, r.flt, k * sizeof(float));
	}
	if (st == GK_OK)
		gk_pass_result_free(s->host, &r);
	return st;
}

/* ---- seeding ---- */

static GkStatus
seed_begin(GkSession *s, GkError *err)
{
	(void) err;
	s->seeding++;
	s->nseeds = 0;
	s->ahead = false;
	forget_race(s);
	return GK_OK;
}

static void
seed_end(GkSession *s)
{
	s->nseeds = 0;
	forget_race(s);
}

/* Remember the race that was run for this candidate as the one to come. */
static void
choose_race(GkSession *s, const float *point)
{
	size_t		d = s->pts->d;

	s->race = -1;
	for (int i = 0; s->candidates != NULL && i < s->asked.k; i++)
		if (memcmp(s->candidates + i * d, point, d * sizeof(float)) == 0)
			s->race = i;
	if (s->race < 0)
		forget_race(s);
}

static GkStatus
seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err)
{
	size_t		d = s->pts->d;

	if (s->nseeds + m > s->room)
	{
		int			room = s->nseeds + m > 2 * s->room ? s->nseeds + m : 2 * s->room;
		float	   *grown = gk_alloc(s->host, room * d, sizeof(float));

		if (grown == NULL)
			return out_of_memory(err);
		if (s->nseeds > 0)
			memcpy(grown, s->seeds, s->nseeds * d * sizeof(float));
		gk_free(s->host, s->seeds);
		s->seeds = grown;
		s->room = room;
	}
	memcpy(s->seeds + s->nseeds * d, centroids, m * d * sizeof(float));
	s->nseeds += m;
	*phi = -1;					/* not known without a pass */
	if (m == 1)
		choose_race(s, centroids);
	else
		forget_race(s);
	return GK_OK;
}

static void
seed_ahead(GkSession *s, uint64_t key, int want)
{
	s->ahead = true;
	s->key = key;
	s->want = want < s->pts->n ? want : (int) s->pts->n;
}

/* Ask for a race and keep the answer. */
static GkStatus
ask_race(GkSession *s, const float *candidates, int m, uint64_t key, bool use_d2, int want, GkError *err)
{
	GkPass		pass = question(s, GK_PASS_SEED, candidates, m);

	forget_race(s);
	pass.nseeds = s->nseeds;
	pass.seeds = s->seeds;
	pass.seeding = s->seeding;
	pass.key = key;
	pass.use_d2 = use_d2;
	pass.want = want;
	s->asked = pass;
	return gk_rows_ask(s->store, &pass, NULL, &s->answer, err);
}

static GkStatus
seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err)
{
	size_t		bytes = (size_t) m * s->pts->d * sizeof(float);
	float	   *candidates = gk_alloc(s->host, bytes, 1);
	GkStatus	st;

	if (candidates == NULL)
		return out_of_memory(err);
	memcpy(candidates, centroids, bytes);
	st = ask_race(s, candidates, m, s->key, true, s->ahead ? s->want : 0, err);
	s->candidates = candidates;
	s->ahead = false;
	if (st == GK_OK)
		memcpy(pot, s->answer.i128, m * sizeof(gk_int128));
	return st;
}

static GkStatus
seed_race(GkSession *s, uint64_t key, bool use_d2, int want, GkPick *out, int *got, GkError *err)
{
	GkStatus	st = GK_OK;
	const int64_t *row;
	const double *at;

	*got = 0;
	if (want > s->pts->n)
		want = (int) s->pts->n;
	if (s->race < 0 || s->asked.key != key || s->asked.want != want || s->asked.use_d2 != use_d2)
	{
		st = ask_race(s, NULL, 0, key, use_d2, want, err);
		s->race = 0;
	}
	if (st != GK_OK)
		return st;
	s->next = 0;
	row = s->answer.i64 + gk_pass_races(&s->asked) + (size_t) s->race * want;
	at = s->answer.dbl + (size_t) s->race * want;
	*got = (int) s->answer.i64[s->race];
	for (int i = 0; i < *got; i++)
		out[i] = (GkPick) {at[i], row[i]};
	return GK_OK;
}

static GkStatus
seed_far(GkSession *s, int64_t *row, GkError *err)
{
	GkPass		pass = question(s, GK_PASS_FAR, NULL, 0);
	GkStatus	st;

	forget_race(s);
	pass.nseeds = s->nseeds;
	pass.seeds = s->seeds;
	s->asked = pass;
	st = gk_rows_ask(s->store, &pass, NULL, &s->answer, err);
	if (st == GK_OK)
		*row = s->answer.i64[0];
	return st;
}

/* Return a point that the last race or seed_far() named. */
static GkStatus
row(GkSession *s, int64_t number, float *out, GkError *err)
{
	const float *point = NULL;
	int			d = s->pts->d;

	if (s->asked.kind == GK_PASS_FAR && s->answer.i64[0] == number)
		point = s->answer.flt + 1;
	else if (s->asked.kind == GK_PASS_SEED && s->race >= 0)
	{
		const int64_t *rows = s->answer.i64 + gk_pass_races(&s->asked) + (size_t) s->race * s->asked.want;
		int			got = (int) s->answer.i64[s->race];

		/* They are asked for in their order. */
		for (int i = 0; point == NULL && i < got; i++, s->next++)
		{
			if (s->next >= got)
				s->next = 0;
			if (rows[s->next] == number)
				point = gk_pass_point(&s->asked, &s->answer, s->race, s->next);
		}
	}
	if (point == NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "row %lld was not picked", (long long) number);
	memcpy(out, point, d * sizeof(float));
	return GK_OK;
}

const GkBackend gk_rows_backend = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "rows",
	.description = "reads the rows again in every pass",
	.devices = devices,
	.open = open_session,
	.close = close_session,
	.describe = describe,
	.step = step,
	.finish = finish,
	.seed_begin = seed_begin,
	.seed_end = seed_end,
	.seed_update = seed_update,
	.seed_eval = seed_eval,
	.seed_race = seed_race,
	.seed_far = seed_far,
	.seed_ahead = seed_ahead,
	.row = row,
};
