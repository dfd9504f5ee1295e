/*
 * gk_balanced.c - a backend whose assignment is the cheapest one with clusters of bounded sizes.
 *
 * Seeding is the CPU backend's; seeds, the update, restarts, the order of clusters and labels are those of
 * every fit.  As the assignment is the cheapest one within the bounds and means are the best centroids of an
 * assignment, the inertia never rises.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/balanced/gk_balanced.h"
#include "core/gk_backend.h"
#include "core/gk_numerics.h"

/* Bits of the largest cost. */
#define COST_BITS	48
#define JOB_ROWS	1024

typedef struct Session
{
	const GkHost *host;
	GkStore    *store;
	const GkPoints *pts;
	GkSession  *cpu;
	bool		seeding;		/* the passes are the CPU backend's */
	bool		priced;			/* flow.price is of the centroids before */
	float	   *before;			/* [k_max][d] */
	int			before_k;
	int64_t    *price;			/* [k_max] scratch */
	float	   *d2;				/* [n][k] */
	float	   *weight;			/* [n] or NULL */
	float	   *own;			/* [n] distance to the row's centroid */
	float	   *most;			/* [threads] largest distance */
	float	   *point;			/* [threads][d] */
	int64_t    *part;			/* [threads][k_max] of a feature's sums */
	GkFlow		flow;
} Session;

/* ---- open and close ---- */

static void
balanced_close(GkSession *session)
{
	Session    *s = (Session *) session;

	if (s == NULL)
		return;
	gk_cpu_backend.close(s->cpu);
	gk_flow_free(&s->flow);
	gk_free(s->host, s->before);
	gk_free(s->host, s->price);
	gk_free(s->host, s->d2);
	gk_free(s->host, s->weight);
	gk_free(s->host, s->own);
	gk_free(s->host, s->most);
	gk_free(s->host, s->point);
	gk_free(s->host, s->part);
	gk_free(s->host, s);
}

static GkStatus
check_memory(const GkPoints *pts, int k, GkError *err)
{
	double		bytes = gk_flow_bytes(pts->n, k, pts->weighted);

	if (bytes <= (double) pts->spare)
		return GK_OK;
	gk_fail(err, GK_ERR_MEMORY_LIMIT, "%d clusters of bounded sizes of %lld rows need %.0f MB beside the points",
			k, (long long) pts->n, ceil(bytes * 0x1p-20));
	snprintf(err->detail, sizeof(err->detail), "gkmeans.memory_limit leaves %zu MB.", pts->spare >> 20);
	snprintf(err->hint, sizeof(err->hint), "Raise gkmeans.memory_limit, or use fewer rows or clusters.");
	return GK_ERR_MEMORY_LIMIT;
}

static GkStatus
alloc_session(Session *s, int k, GkError *err)
{
	int64_t		n = s->pts->n;
	int			d = s->pts->d;

	s->before = gk_alloc(s->host, (size_t) k * d, sizeof(float));
	s->price = gk_alloc(s->host, k, sizeof(int64_t));
	s->d2 = gk_alloc(s->host, (size_t) n * k, sizeof(float));
	s->own = gk_alloc(s->host, n, sizeof(float));
	s->most = gk_alloc(s->host, gk_threads(s->host), sizeof(float));
	s->point = gk_alloc(s->host, (size_t) gk_threads(s->host) * d, sizeof(float));
	s->part = gk_alloc(s->host, (size_t) gk_threads(s->host) * k, sizeof(int64_t));
	if (s->pts->weighted)
		s->weight = gk_alloc(s->host, n, sizeof(float));
	if (!s->before || !s->price || !s->d2 || !s->own || !s->most || !s->point || !s->part || (s->pts->weighted && !s->weight))
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for clusters of bounded sizes");
	return gk_flow_alloc(&s->flow, s->host, n, k, err);
}

static GkStatus
read_weights(Session *s, GkError *err)
{
	for (int i = 0; s->weight != NULL && i < s->pts->nchunks; i++)
	{
		GkChunk		c;
		GkStatus	st = gk_chunk_open(s->store, i, GK_READ_FEATURES, &c, err);

		if (st == GK_OK)
		{
			memcpy(s->weight + c.first, gk_chunk_weight(s->pts, &c), c.rows * sizeof(float));
			st = gk_chunk_close(s->store, i, &c, false, err);
		}
		if (st != GK_OK)
			return st;
	}
	return GK_OK;
}

static GkStatus
balanced_open(const GkProblem *problem, GkSession **out, GkError *err)
{
	const GkPoints *pts = gk_store_points(problem->store);
	Session    *s;
	GkStatus	st = check_memory(pts, problem->k_max, err);

	*out = NULL;
	if (st != GK_OK)
		return st;
	s = gk_alloc0(problem->host, 1, sizeof(Session));
	if (s == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for clusters of bounded sizes");
	*out = (GkSession *) s;
	s->host = s->flow.host = problem->host;
	s->store = problem->store;
	s->pts = pts;
	s->flow.min_size = problem->min_size;
	/* fits of samples, that seeds come from, have no bounds */
	s->flow.max_size = problem->max_size > 0 ? problem->max_size : pts->n;
	st = gk_cpu_backend.open(problem, &s->cpu, err);
	if (st == GK_OK)
		st = alloc_session(s, problem->k_max, err);
	if (st == GK_OK)
		st = read_weights(s, err);
	s->flow.d2 = s->d2;
	s->flow.weight = s->weight;
	return st;
}

static void
balanced_describe(GkSession *session, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	Session    *s = (Session *) session;

	gk_cpu_backend.describe(s->cpu, device, device_len, strategy, strategy_len);
	snprintf(strategy, strategy_len, "balanced");
}

/* ---- the assignment ---- */

typedef struct Distances
{
	Session    *s;
	const GkChunk *chunk;
	const float *c;
	int			k;
} Distances;

static void
distances_of_rows(void *arg, int64_t job, int thread)
{
	const Distances *p = arg;
	Session    *s = p->s;
	int			d = s->pts->d;
	int			k = p->k;
	float	   *point = s->point + (size_t) thread * d;
	int			end = (int) (job + 1) * JOB_ROWS < p->chunk->rows ? (int) (job + 1) * JOB_ROWS : p->chunk->rows;

	for (int i = (int) job * JOB_ROWS; i < end; i++)
	{
		float	   *d2 = s->d2 + (size_t) (p->chunk->first + i) * k;

		for (int j = 0; j < d; j++)
			point[j] = p->chunk->data[(size_t) j * p->chunk->stride + i];
		gk_distances(point, d, p->c, k, d2);
		for (int j = 0; j < k; j++)
		{
			/* given centroids may be that far away */
			if (d2[j] > FLT_MAX)
				d2[j] = FLT_MAX;
			if (d2[j] > s->most[thread])
				s->most[thread] = d2[j];
		}
	}
}

/* All distances, and a power of two that none exceeds. */
static GkStatus
all_distances(Session *s, const float *centroids, int k, int *expo, GkError *err)
{
	float		most = 0;

	memset(s->most, 0, gk_threads(s->host) * sizeof(float));
	for (int i = 0; i < s->pts->nchunks; i++)
	{
		GkChunk		c;
		Distances	p = {s, &c, centroids, k};
		GkStatus	st = gk_chunk_open(s->store, i, GK_READ_FEATURES, &c, err);

		if (st == GK_OK && !gk_parallel_for(s->host, (c.rows + JOB_ROWS - 1) / JOB_ROWS, distances_of_rows, &p))
			st = GK_STOPPED;
		if (st == GK_OK)
			st = gk_chunk_close(s->store, i, &c, false, err);
		if (st != GK_OK)
			return st;
		if (s->host->poll && s->host->poll(s->host->ctx))
			return GK_STOPPED;
	}
	for (int t = 0; t < gk_threads(s->host); t++)
		most = s->most[t] > most ? s->most[t] : most;
	frexp(most, expo);
	return GK_OK;
}

/* Of the earlier centroids, the one nearest to c. */
static int
nearest_before(const Session *s, const float *c)
{
	float		d2;

	return gk_nearest(c, s->pts->d, s->before, s->before_k, &d2);
}

/*
 * Prices are good where they were found for much the same centroids: a cluster takes that of the nearest one
 * before, whatever its number was.  Costs may have another unit now.
 */
static void
carry_prices(Session *s, const float *centroids, int k, int expo)
{
	GkFlow	   *f = &s->flow;

	for (int j = 0; s->priced && j < k; j++)
		s->price[j] = (int64_t) ldexp((double) f->price[nearest_before(s, centroids + (size_t) j * s->pts->d)], f->expo - expo);
	if (s->priced)
		memcpy(f->price, s->price, k * sizeof(int64_t));
	else
		memset(f->price, 0, k * sizeof(int64_t));
	f->price[k] = 0;
	f->expo = expo;
	f->scale = ldexp(1.0, COST_BITS - expo);
	f->k = k;
	memcpy(s->before, centroids, (size_t) k * s->pts->d * sizeof(float));
	s->before_k = k;
	s->priced = true;
}

/* Are there assignments of n rows to k clusters within the bounds? */
static GkStatus
check_bounds(int64_t n, int k, int64_t min_size, int64_t max_size, GkError *err)
{
	bool		few = max_size < (n + k - 1) / k;

	if (!few && min_size <= n / k)
		return GK_OK;
	gk_fail(err, GK_ERR_OPTION, few ? "%d clusters of at most %lld rows cannot hold %lld rows" :
			"%d clusters of at least %lld rows need more than %lld rows",
			k, (long long) (few ? max_size : min_size), (long long) n);
	snprintf(err->hint, sizeof(err->hint), few ? "Use a max_size of at least %lld, or more clusters." :
			 "Use a min_size of at most %lld, or fewer clusters.", (long long) (few ? (n + k - 1) / k : n / k));
	return GK_ERR_OPTION;
}

static GkStatus
assign(Session *s, const float *centroids, int k, GkError *err)
{
	GkFlow	   *f = &s->flow;
	int			expo;
	GkStatus	st = check_bounds(s->pts->n, k, f->min_size, f->max_size, err);

	if (st != GK_OK)
	{
		snprintf(err->detail, sizeof(err->detail), "No more than %d distinct points were found to begin with.", k);
		snprintf(err->hint, sizeof(err->hint), "Use a max_size of at least %lld, or give centroids, of which several may be the same point.",
				 (long long) ((s->pts->n + k - 1) / k));
		return st;
	}
	if ((st = all_distances(s, centroids, k, &expo, err)) != GK_OK)
		return st;
	carry_prices(s, centroids, k, expo);
	return gk_flow_solve(f, err);
}

/* ---- what is made of it ---- */

typedef struct Sums
{
	const Session *s;
	const GkChunk *chunk;
	GkStep	   *out;
	int			k;
} Sums;

/* Of one feature of a chunk, in any order: they are exact. */
static void
sum_feature(void *arg, int64_t job, int thread)
{
	const Sums *p = arg;
	const Session *s = p->s;
	int			d = s->pts->d;
	const float *x = p->chunk->data + (size_t) job * p->chunk->stride;
	const int32_t *label = s->flow.label + p->chunk->first;
	const float *w = s->weight != NULL ? s->weight + p->chunk->first : NULL;
	double		inv = gk_pow2(GK_GRID_BITS - s->pts->prep.expo[job]);
	int64_t    *part = s->part + (size_t) thread * p->k;

	for (int i = 0; w != NULL && i < p->chunk->rows; i++)
		p->out->sum[(size_t) label[i] * d + job] += (gk_int128) gk_fixed(x[i], inv) * gk_fixed(w[i], 0x1p40);
	for (int64_t first = 0; w == NULL && first < p->chunk->rows; first += GK_INT64_ROWS)
	{
		int64_t		end = first + GK_INT64_ROWS < p->chunk->rows ? first + GK_INT64_ROWS : p->chunk->rows;

		memset(part, 0, p->k * sizeof(int64_t));
		for (int64_t i = first; i < end; i++)
			part[label[i]] += gk_fixed(x[i], inv);
		for (int j = 0; j < p->k; j++)
			p->out->sum[(size_t) j * d + job] += part[j];
	}
}

static void
sum_masses(const Session *s, GkStep *out, int k)
{
	for (int j = 0; j < k; j++)
	{
		out->count[j] = s->flow.size[j];
		out->mass[j] = s->weight != NULL ? 0 : out->count[j];
	}
	for (int64_t i = 0; s->weight != NULL && i < s->pts->n; i++)
		out->mass[s->flow.label[i]] += gk_fixed(s->weight[i], 0x1p40);
}

static GkStatus
balanced_step(GkSession *session, const float *centroids, int k, GkStep *out, GkError *err)
{
	Session    *s = (Session *) session;
	GkStatus	st;

	if (s->seeding)
		return gk_cpu_backend.step(s->cpu, centroids, k, out, err);
	st = assign(s, centroids, k, err);
	if (st != GK_OK)
		return st;
	memset(out->sum, 0, (size_t) k * s->pts->d * sizeof(gk_int128));
	for (int i = 0; st == GK_OK && i < s->pts->nchunks; i++)
	{
		GkChunk		c;
		Sums		p = {s, &c, out, k};

		st = gk_chunk_open(s->store, i, GK_READ_FEATURES, &c, err);
		if (st == GK_OK && !gk_parallel_for(s->host, s->pts->d, sum_feature, &p))
			st = GK_STOPPED;
		if (st == GK_OK)
			st = gk_chunk_close(s->store, i, &c, false, err);
	}
	sum_masses(s, out, k);
	return st;
}

static void
measure(Session *s, GkFinish *out, int k)
{
	double		scale = gk_pow2(GK_GRID_BITS - s->pts->d2_expo);

	for (int j = 0; j < k; j++)
	{
		out->count[j] = s->flow.size[j];
		out->inertia[j] = 0;
		out->max_d2[j] = 0;
	}
	for (int64_t i = 0; i < s->pts->n; i++)
	{
		int			j = s->flow.label[i];
		double		d2 = s->own[i];

		out->inertia[j] += gk_d2_fixed(s->weight != NULL ? d2 * s->weight[i] : d2, scale);
		if (s->own[i] > out->max_d2[j])
			out->max_d2[j] = s->own[i];
	}
}

static GkStatus
emit(Session *s, const GkLabelSink *sink, GkError *err)
{
	for (int i = 0; i < s->pts->nchunks; i++)
	{
		const uint32_t *aux[GK_MAX_AUX];
		GkChunk		c;
		GkStatus	st = gk_chunk_open(s->store, i, GK_READ_FEATURES, &c, err);

		if (st != GK_OK)
			return st;
		for (int a = 0; a < s->pts->naux; a++)
			aux[a] = gk_chunk_aux(s->pts, &c, a);
		if (!sink->emit(sink->ctx, c.rows, s->flow.label + c.first, s->own + c.first, aux))
			return gk_fail(err, GK_ERR_HOST, "the host did not take the labels");
		if ((st = gk_chunk_close(s->store, i, &c, false, err)) != GK_OK)
			return st;
	}
	return GK_OK;
}

static GkStatus
balanced_finish(GkSession *session, const float *centroids, int k, GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	Session    *s = (Session *) session;
	GkStatus	st;

	if (s->seeding)
		return gk_cpu_backend.finish(s->cpu, centroids, k, out, sink, err);
	st = assign(s, centroids, k, err);
	if (st != GK_OK)
		return st;
	for (int64_t i = 0; i < s->pts->n; i++)
		s->own[i] = s->d2[i * k + s->flow.label[i]];
	if (out != NULL)
		measure(s, out, k);
	return sink != NULL ? emit(s, sink, err) : GK_OK;
}

/* ---- seeding: the CPU backend's ---- */

static GkStatus
balanced_seed_begin(GkSession *session, GkError *err)
{
	Session    *s = (Session *) session;

	s->seeding = true;
	s->priced = false;
	return gk_cpu_backend.seed_begin(s->cpu, err);
}

static void
balanced_seed_end(GkSession *session)
{
	Session    *s = (Session *) session;

	s->seeding = false;
	gk_cpu_backend.seed_end(s->cpu);
}

static GkStatus
balanced_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err)
{
	return gk_cpu_backend.seed_update(((Session *) s)->cpu, centroids, m, phi, err);
}

static GkStatus
balanced_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err)
{
	return gk_cpu_backend.seed_eval(((Session *) s)->cpu, centroids, m, pot, err);
}

static GkStatus
balanced_seed_race(GkSession *s, uint64_t key, bool use_d2, int want, GkPick *out, int *got, GkError *err)
{
	return gk_cpu_backend.seed_race(((Session *) s)->cpu, key, use_d2, want, out, got, err);
}

static GkStatus
balanced_seed_far(GkSession *s, int64_t *row, GkError *err)
{
	return gk_cpu_backend.seed_far(((Session *) s)->cpu, row, err);
}

static const GkBackend balanced_backend = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "balanced",
	.description = "clusters of bounded sizes",
	.open = balanced_open,
	.close = balanced_close,
	.describe = balanced_describe,
	.step = balanced_step,
	.finish = balanced_finish,
	.seed_begin = balanced_seed_begin,
	.seed_end = balanced_seed_end,
	.seed_update = balanced_seed_update,
	.seed_eval = balanced_seed_eval,
	.seed_race = balanced_seed_race,
	.seed_far = balanced_seed_far,
};

GkStatus
gk_balanced_fit(GkStore *store, const GkOptions *options, const GkLabelSink *sink, GkModel *model, GkError *err)
{
	int64_t		n = gk_store_rows(store);
	GkOptions	bounded = *options;
	GkStatus	st = GK_OK;

	bounded.max_size = options->max_size < n ? options->max_size : n;
	memset(model, 0, sizeof(*model));
	if (options->k > GK_MAX_BALANCED_K || n > INT32_MAX)
		st = gk_fail(err, GK_ERR_LIMIT, "clusters of bounded sizes can be at most %d, of at most %d rows",
					 GK_MAX_BALANCED_K, INT32_MAX);
	else if (n > 0)
		st = check_bounds(n, options->k, options->min_size, options->max_size, err);
	return st == GK_OK ? gk_fit(store, &balanced_backend, &bounded, sink, model, err) : st;
}
