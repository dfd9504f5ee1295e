/*
 * gk_seed.c - initial centroids.
 *
 * k-means++: Arthur and Vassilvitskii, "k-means++: the advantages of careful
 * seeding", SODA 2007, in the greedy form of scikit-learn: each round draws
 * 2 + ln k candidates with probability proportional to w * D and keeps the one
 * that lowers the sum of w * D most.
 * k-means||: Bahmani et al., "Scalable k-means++", VLDB 2012: five rounds of many
 * candidates, then weighted k-means++ among them.
 * Clusters of a sample's clusters: gk_seed_hierarchical.c.
 *
 * Draws are exponential races over counter-based hashes (gk_numerics.h): a
 * reduction in any order, the same on every device.  The candidates of a round
 * are the leading rows of one race, so they are drawn without replacement.
 */
#include <math.h>
#include <string.h>

#include "core/gk_seeds.h"
#include "core/gk_update.h"

#define PARALLEL_ROUNDS			5
#define AT_ONCE					64	/* rounds that a backend is asked for */
#define ELSEWHERE				4e9 /* features of points, candidates: 0.1 s of a CPU */

void
gk_engine_set_point(GkEngine *e, int i, const float *point)
{
	const GkPrep *p = &e->pts->prep;

	for (int j = 0; j < p->d; j++)
	{
		double		c = p->center[j] + (double) point[j] / p->scale[j];

		e->c[(size_t) i * p->d + j] = c;
		e->f[(size_t) i * p->d + j] = gk_centroid_to_float(c, p->center[j], p->scale[j]);
	}
}

typedef struct SetPoints
{
	GkEngine   *e;
	const float *points;
} SetPoints;

static void
set_points(void *arg, int from, int end)
{
	const SetPoints *p = arg;

	for (int i = from; i < end; i++)
		gk_engine_set_point(p->e, i, p->points + (size_t) i * p->e->pts->d);
}

bool
gk_engine_set_points(GkEngine *e, const float *points)
{
	return gk_engine_clusters(e, e->k, set_points, &(SetPoints) {e, points});
}

int
gk_seed_candidates(int k)
{
	return 2 + (int) log((double) k);
}

/* Run a race; the picked rows' points go to `out` ([want][d]). */
static GkStatus
race(GkSeeds *s, int64_t round, bool use_d2, int want, GkPick *picks, float *out, int *got, GkError *err)
{
	GkStatus	st = s->backend->seed_race(s->session, gk_seeds_key(s, round), use_d2, want, picks, got, err);

	for (int i = 0; st == GK_OK && i < *got; i++)
	{
		st = gk_picked_row(s->backend, s->session, s->store, picks[i].row, out + (size_t) i * s->d, err);
		if (st == GK_OK && i % 64 == 63 && s->host->poll && s->host->poll(s->host->ctx))
			st = GK_STOPPED;
	}
	return st;
}

/* Several rounds by the backend, if it can: at most AT_ONCE of them up to k. */
static GkStatus
rounds_at_once(GkSeeds *s, int k, int want, GkError *err)
{
	uint64_t	keys[AT_ONCE];
	int			rounds = k - s->n < AT_ONCE ? k - s->n : AT_ONCE;
	int			done = 0;
	GkStatus	st;

	for (int i = 0; i < rounds; i++)
		keys[i] = gk_seeds_key(s, s->n + i);
	st = s->backend->seed_rounds(s->session, keys, rounds, want, s->points + (size_t) s->n * s->d, &done, err);
	s->n += done;
	return st;
}

static void
report_seeds(const GkSeeds *s, int k)
{
	GkProgress	p = {.phase = "seed",.run = s->run + 1,.iteration = s->n,.max_iter = k,
	.rows = gk_store_rows(s->store),.inertia = -1};

	if (s->host->progress)
		s->host->progress(s->host->ctx, &p);
}

GkStatus
gk_seeds_plus_plus(GkSeeds *s, int k, GkError *err)
{
	int			want = gk_seed_candidates(k);
	GkPick	   *picks = gk_alloc(s->host, want, sizeof(GkPick));
	float	   *cand = gk_alloc(s->host, (size_t) want * s->d, sizeof(float));
	gk_int128  *pot = gk_alloc(s->host, want, sizeof(gk_int128));
	GkStatus	st = GK_OK;

	if (!picks || !cand || !pot)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory");
	while (st == GK_OK && s->n < k)
	{
		bool		first = s->n == 0;
		int			before = s->n;
		int			got;
		int			best = 0;
		gk_int128	phi;

		if (!first && s->backend->seed_rounds != NULL)
			st = rounds_at_once(s, k, want, err);
		if (s->n > before || st != GK_OK)
		{
			report_seeds(s, k);
			continue;
		}
		st = race(s, s->n, !first, first ? 1 : want, picks, cand, &got, err);
		if (st != GK_OK || got == 0)
			break;				/* every point is a seed already */
		if (got > 1)
		{
			if (s->backend->seed_ahead != NULL && s->n + 1 < k)
				s->backend->seed_ahead(s->session, gk_seeds_key(s, s->n + 1), want);
			st = s->backend->seed_eval(s->session, cand, got, pot, err);
			if (st != GK_OK)
				break;
			for (int i = 1; i < got; i++)
				if (pot[i] < pot[best])
					best = i;
		}
		memcpy(s->points + (size_t) s->n * s->d, cand + (size_t) best * s->d, s->d * sizeof(float));
		s->n++;
		if (s->n < k)
			st = s->backend->seed_update(s->session, s->points + (size_t) (s->n - 1) * s->d, 1, &phi, err);
		if (st == GK_OK)
			report_seeds(s, k);
	}
	gk_free(s->host, picks);
	gk_free(s->host, cand);
	gk_free(s->host, pot);
	return st;
}

/* ---- seeds among other points ---- */

GkStatus
gk_seeds_store(const GkSeeds *s, bool weighted, int rows, GkChunkStore *out, GkError *err)
{
	const GkPoints *pts = gk_store_points(s->store);
	size_t		bytes = ((size_t) s->d + weighted) * rows * sizeof(float);
	GkStatus	st = gk_chunk_store_make(out, s->host, &pts->prep, weighted, 0, rows, err);

	if (st == GK_OK)
	{
		out->store->pts.spare = pts->spare > bytes ? pts->spare - bytes : 0;
		out->store->pts.resident = true;
		out->store->pts.d2_expo = pts->d2_expo;
	}
	return st;
}

void
gk_seeds_weigh(GkChunkStore *o, const double *w)
{
	float	   *to = o->chunk->data + (size_t) o->store->pts.d * o->chunk->stride;
	double		top = 0.0;

	for (int i = 0; i < o->fill; i++)
		top = fmax(top, w[i]);
	/* at least one grid unit, as every weight */
	for (int i = 0; i < o->fill; i++)
		to[i] = fmaxf(gk_to_grid(w[i] / top, gk_grid_magic(0)), 0x1p-40f);
}

/*
 * Few points are seeded on the CPU while that takes no longer than to bring them to another device, and where there
 * are several of these (they join, and are not joined): they would share out what one has to itself.
 */
static const GkBackend *
backend_for(const GkSeeds *s, const GkChunkStore *points, int k)
{
	double		work = (double) points->fill * s->d * k * gk_seed_candidates(k);

	return s->backend->seed_rounds != NULL && s->backend->join != NULL && work >= ELSEWHERE ? s->backend : &gk_cpu_backend;
}

GkStatus
gk_seeds_plus_plus_of(GkSeeds *s, const GkChunkStore *points, int stream, int k, GkError *err)
{
	GkSeeds		inner = *s;
	gk_int128	phi;
	GkStatus	st;

	inner.backend = backend_for(s, points, k);
	inner.session = NULL;
	inner.store = points->store;
	inner.stream = stream;
	st = gk_chunk_store_open(points, inner.backend, k, &inner.session, err);
	if (st == GK_OK)
		st = inner.backend->seed_begin(inner.session, err);
	if (st == GK_OK && inner.n > 0)
		st = inner.backend->seed_update(inner.session, inner.points, inner.n, &phi, err);
	if (st == GK_OK)
		st = gk_seeds_plus_plus(&inner, k, err);
	if (inner.session != NULL)
		inner.backend->seed_end(inner.session);
	inner.backend->close(inner.session);
	s->n = inner.n;
	return st;
}

/* Make a store of prepared points with weights. */
static GkStatus
candidate_store(GkSeeds *s, const float *points, int m, const gk_int128 *mass, GkChunkStore *out, GkError *err)
{
	double	   *w = gk_alloc(s->host, m, sizeof(double));
	GkStatus	st = w != NULL ? gk_seeds_store(s, true, m, out, err) : gk_fail(err, GK_ERR_MEMORY, "out of memory");

	for (int i = 0; st == GK_OK && i < m; i++)
	{
		w[i] = gk_i128_to_double(mass[i]);
		for (int j = 0; j < s->d; j++)
			out->chunk->data[(size_t) j * out->chunk->stride + i] = points[(size_t) i * s->d + j];
	}
	if (st == GK_OK)
	{
		out->fill = m;
		gk_seeds_weigh(out, w);
		gk_chunk_store_close(out, 0);
	}
	gk_free(s->host, w);
	return st;
}

/* Choose k of m weighted candidates by k-means++. */
static GkStatus
recluster(GkSeeds *s, const float *points, int m, const gk_int128 *mass, int k, GkError *err)
{
	GkChunkStore sub = {NULL};
	GkStatus	st = candidate_store(s, points, m, mass, &sub, err);

	if (st == GK_OK)
		st = gk_seeds_plus_plus_of(s, &sub, s->stream + 1, k, err);
	gk_chunk_store_free(&sub);
	return st;
}

/* The number of points nearest to each. */
static GkStatus
nearest_counts(GkSeeds *s, const float *points, int m, gk_int128 *mass, GkError *err)
{
	GkFinish	f = {NULL};
	GkStatus	st;

	f.count = gk_alloc(s->host, m, sizeof(int64_t));
	f.inertia = gk_alloc(s->host, m, sizeof(gk_int128));
	f.max_d2 = gk_alloc(s->host, m, sizeof(float));
	st = f.count && f.inertia && f.max_d2 ? s->backend->finish(s->session, points, m, &f, NULL, err)
		: gk_fail(err, GK_ERR_MEMORY, "out of memory");
	for (int i = 0; st == GK_OK && i < m; i++)
		mass[i] = f.count[i];
	gk_free(s->host, f.count);
	gk_free(s->host, f.inertia);
	gk_free(s->host, f.max_d2);
	return st;
}

/* A candidate's weight: the mass of the points nearest to it, of which only a step knows if they have weights. */
static GkStatus
masses(GkSeeds *s, const float *points, int m, gk_int128 *mass, GkError *err)
{
	GkStep		step = {NULL};
	GkStatus	st;

	if (!gk_store_points(s->store)->weighted)
		return nearest_counts(s, points, m, mass, err);
	step.sum = gk_alloc(s->host, (size_t) m * s->d, sizeof(gk_int128));
	step.mass = mass;
	step.count = gk_alloc(s->host, m, sizeof(int64_t));
	st = step.sum && step.count ? s->backend->step(s->session, points, m, &step, err)
		: gk_fail(err, GK_ERR_MEMORY, "out of memory");
	gk_free(s->host, step.sum);
	gk_free(s->host, step.count);
	return st;
}

/*
 * Candidates of a round.  Bahmani et al. find five rounds of k / 2 as good as more; few clusters
 * take more, which costs little.
 */
static int
parallel_candidates(int k)
{
	return k / 2 + 16 < 2 * k ? k / 2 + 16 : 2 * k;
}

static GkStatus
parallel(GkSeeds *s, int k, GkError *err)
{
	int			per_round = parallel_candidates(k);
	int			room = 1 + PARALLEL_ROUNDS * per_round;
	GkPick	   *picks = gk_alloc(s->host, per_round, sizeof(GkPick));
	float	   *cand = gk_alloc(s->host, (size_t) room * s->d, sizeof(float));
	gk_int128	phi;
	int			m = 0;
	int			got;
	GkStatus	st = GK_OK;

	if (!picks || !cand)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory");
	if (st == GK_OK)
		st = race(s, 0, false, 1, picks, cand, &m, err);
	if (st == GK_OK)
		st = s->backend->seed_update(s->session, cand, m, &phi, err);
	for (int r = 1; st == GK_OK && r <= PARALLEL_ROUNDS; r++)
	{
		st = race(s, r, true, per_round, picks, cand + (size_t) m * s->d, &got, err);
		if (st != GK_OK || got == 0)
			break;
		st = s->backend->seed_update(s->session, cand + (size_t) m * s->d, got, &phi, err);
		m += got;
	}
	if (st == GK_OK && m > k)
	{
		gk_int128  *mass = gk_alloc(s->host, m, sizeof(gk_int128));

		st = mass != NULL ? masses(s, cand, m, mass, err) : gk_fail(err, GK_ERR_MEMORY, "out of memory");
		if (st == GK_OK)
			st = recluster(s, cand, m, mass, k, err);
		gk_free(s->host, mass);
	}
	else if (st == GK_OK)
	{
		memcpy(s->points, cand, (size_t) m * s->d * sizeof(float));
		s->n = m;
	}
	gk_free(s->host, picks);
	gk_free(s->host, cand);
	/* Fewer candidates than k (or copies among them): go on one by one. */
	if (st == GK_OK && s->n < k)
		st = gk_seeds_plus_plus(s, k, err);
	return st;
}

static GkStatus
random_rows(GkSeeds *s, int k, GkError *err)
{
	GkPick	   *picks = gk_alloc(s->host, k, sizeof(GkPick));
	GkStatus	st;

	if (picks == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	st = race(s, 0, false, k, picks, s->points, &s->n, err);
	gk_free(s->host, picks);
	return st;
}

/* ---- seeds that several fits share ---- */

/* Keep no larger seeds. */
#define SHARED_VALUES	((size_t) 16 << 20)

void
gk_shared_seeds_free(const GkHost *host, GkSharedSeeds *shared)
{
	gk_free(host, shared->got);
	gk_free(host, shared->points);
	*shared = (GkSharedSeeds) {.k_max = shared->k_max};
}

/* Return the largest k whose rounds draw as many candidates as those of this one. */
static int
same_rounds(int k, int k_max)
{
	int			candidates = gk_seed_candidates(k);
	int			high = k_max + 1;

	while (high - k > 1)
	{
		int			mid = k + (high - k) / 2;

		if (gk_seed_candidates(mid) == candidates)
			k = mid;
		else
			high = mid;
	}
	return k;
}

/* As gk_seeds_plus_plus() from no seed on, but keep the rounds of the larger k for its fit. */
static GkStatus
shared_plus_plus(GkSeeds *s, int k, int runs, GkSharedSeeds *shared, GkError *err)
{
	float	   *points = s->points;
	GkStatus	st = GK_OK;

	if (shared->got == NULL || shared->candidates != gk_seed_candidates(k) || shared->asked < k)
	{
		int			most = shared->k_max < gk_store_rows(s->store) ? shared->k_max : (int) gk_store_rows(s->store);
		int			asked = same_rounds(k, most > k ? most : k);

		gk_shared_seeds_free(s->host, shared);
		if (SHARED_VALUES / asked / runs < (size_t) s->d)
			return gk_seeds_plus_plus(s, k, err);
		shared->got = gk_alloc(s->host, runs, sizeof(int));
		shared->points = gk_alloc(s->host, (size_t) runs * asked * s->d, sizeof(float));
		if (!shared->got || !shared->points)
		{
			gk_shared_seeds_free(s->host, shared);
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
		}
		for (int i = 0; i < runs; i++)
			shared->got[i] = -1;
		shared->runs = runs;
		shared->asked = asked;
		shared->candidates = gk_seed_candidates(k);
	}
	s->points = shared->points + (size_t) s->run * shared->asked * s->d;
	if (shared->got[s->run] < 0)
	{
		st = gk_seeds_plus_plus(s, shared->asked, err);
		if (st == GK_OK)
			shared->got[s->run] = s->n;
	}
	if (st == GK_OK)
	{
		s->n = shared->got[s->run] < k ? shared->got[s->run] : k;
		memcpy(points, s->points, (size_t) s->n * s->d * sizeof(float));
	}
	s->points = points;
	return st;
}

GkStatus
gk_seed(GkEngine *e, int run, GkError *err)
{
	const GkOptions *opt = e->opt;
	int			d = e->pts->d;
	GkStatus	st;
	GkSeeds		s = {.backend = e->backend,.session = e->session,.store = e->store,.host = e->host,
	.d = d,.seed = opt->seed,.run = run};

	e->k = opt->k;
	if (gk_is_given(opt))
	{
		if (opt->distance != GK_COSINE)
			return gk_engine_copy(e, opt->centroids, e->k, e->c, e->f) ? GK_OK : GK_STOPPED;
		memcpy(e->c, opt->centroids, (size_t) e->k * d * sizeof(double));
		if ((st = gk_given_directions(e->c, e->k, d, err)) != GK_OK)
			return st;
		return gk_engine_copy(e, e->c, e->k, NULL, e->f) ? GK_OK : GK_STOPPED;
	}
	if (e->k > e->pts->n)
		e->k = (int) e->pts->n;
	s.points = gk_alloc(e->host, (size_t) e->k * d, sizeof(float));
	if (s.points == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	if (opt->init == GK_INIT_RANDOM)
		st = random_rows(&s, e->k, err);
	else
	{
		st = e->backend->seed_begin(e->session, err);
		if (st == GK_OK)
			st = opt->init == GK_INIT_PARALLEL ? parallel(&s, e->k, err)
				: opt->init == GK_INIT_HIERARCHICAL ? gk_seeds_hierarchical(&s, e->k, err)
				: opt->shared != NULL ? shared_plus_plus(&s, e->k, opt->n_init, opt->shared, err)
				: gk_seeds_plus_plus(&s, e->k, err);
		e->backend->seed_end(e->session);
	}
	if (st == GK_OK)
	{
		e->k = s.n;
		if (!gk_engine_set_points(e, s.points))
			st = GK_STOPPED;
	}
	gk_free(e->host, s.points);
	return st;
}
