/*
 * gk_seed_hierarchical.c - initial centroids by clustering a sample in two levels.
 *
 * A sample of SAMPLE rows for each of the k seeds is clustered into about sqrt(k) parts, and
 * each part into seats.  Parts have them in proportion to the geometric mean of weight and
 * inertia: by weight alone a heavy cluster takes the seats of many light ones, by inertia alone
 * two clusters far from each other do.  The centroids of all seats are the seeds.  A row of the sample so meets 2 sqrt(k) centroids in an iteration,
 * not k, and rows outside the sample none.  (D. Nister and H. Stewenius, "Scalable recognition
 * with a vocabulary tree", CVPR 2006, cluster clusters in this way.)
 *
 * The sample is taken by a race, as all random rows are, and clustered by the CPU's passes
 * for any backend: so the seeds are the same everywhere.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_seeds.h"

/* Rows of the sample for each seed, at least and at most. */
#define SAMPLE			32
#define SAMPLE_MIN		1024
/* No race is asked for more than 2 * GK_MAX_K rows. */
#define SAMPLE_MAX		(2 * GK_MAX_K - 1)
/* Iterations of both levels at most. */
#define ITERATIONS		10
#define TOLERANCE		1e-4

/* Numbers of random streams: the parts' follow. */
#define STREAM_TOP		1
#define STREAM_REST		2
#define STREAM_PART		3

typedef struct Part
{
	int			rows;
	int			first;			/* of its rows among those of all parts */
	int			seats;
	double		weight;
	double		inertia;
	double		claim;			/* to seats */
} Part;

typedef struct Hierarchy
{
	GkSeeds    *s;
	GkChunkStore sample;
	int			parts;
	int32_t    *label;			/* [rows of the sample]: part */
	float	   *d2;				/* likewise: squared distance to its centroid */
	int			labelled;
	int64_t    *row;			/* [rows of the sample], part by part; then they are in this order */
	Part	   *part;			/* [parts] */
} Hierarchy;

static GkStatus
out_of_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory");
}

/* ---- the sample ---- */

typedef struct Sampled
{
	int64_t		row;
	double		weight;
	int			pick;			/* its place in the race */
} Sampled;

static int
by_row(const void *a, const void *b)
{
	int64_t		x = ((const Sampled *) a)->row;
	int64_t		y = ((const Sampled *) b)->row;

	return (x > y) - (x < y);
}

static int
sample_rows(const GkSeeds *s, int k)
{
	int64_t		rows = (int64_t) SAMPLE * k;
	int64_t		n = gk_store_rows(s->store);

	rows = rows < SAMPLE_MIN ? SAMPLE_MIN : rows > SAMPLE_MAX ? SAMPLE_MAX : rows;
	return (int) (rows < n ? rows : n);
}

/*
 * Race for the sample's rows: *n of them, in order.
 *
 * A row of weight w has the key E / w with a known E, and is in the sample if that is below
 * the key of the first row that is not, t.  It stands for w / (1 - exp(-w t)), near enough to
 * the larger one of w and 1 / t.
 */
static GkStatus
race_sample(GkSeeds *s, int k, Sampled *out, int *n, GkError *err)
{
	int			want = sample_rows(s, k);
	GkPick	   *pick = gk_alloc(s->host, (size_t) want + 1, sizeof(GkPick));
	uint64_t	key = gk_seeds_key(s, 0);
	int			got = 0;
	GkStatus	st = pick != NULL ? s->backend->seed_race(s->session, key, false, want + 1, pick, &got, err) : out_of_memory(err);

	*n = got < want ? got : want;
	for (int i = 0; st == GK_OK && i < *n; i++)
	{
		double		w = gk_race_key(gk_hash(key, pick[i].row), 1.0) / pick[i].key;

		out[i] = (Sampled) {pick[i].row, got > want ? fmax(w, 1.0 / pick[want].key) : w, i};
	}
	gk_free(s->host, pick);
	if (st == GK_OK)
		qsort(out, *n, sizeof(Sampled), by_row);
	return st;
}

/* The sample's points from a store whose rows only the backend has, in the race's order. */
static GkStatus
fetch_picked(GkSeeds *s, const Sampled *sampled, int n, GkChunkStore *to, GkError *err)
{
	int		   *at = gk_alloc(s->host, n, sizeof(int));
	float	   *point = gk_alloc(s->host, s->d, sizeof(float));
	GkStatus	st = at != NULL && point != NULL ? GK_OK : out_of_memory(err);

	for (int i = 0; st == GK_OK && i < n; i++)
		at[sampled[i].pick] = i;
	for (int i = 0; st == GK_OK && i < n; i++)
	{
		st = gk_picked_row(s->backend, s->session, s->store, sampled[at[i]].row, point, err);
		for (int j = 0; j < s->d; j++)
			to->chunk->data[(size_t) j * to->chunk->stride + at[i]] = point[j];
		if (st == GK_OK && i % 64 == 63 && s->host->poll && s->host->poll(s->host->ctx))
			st = GK_STOPPED;
	}
	to->fill = n;
	gk_free(s->host, at);
	gk_free(s->host, point);
	return st;
}

static GkStatus
take_sample(Hierarchy *h, int k, GkError *err)
{
	GkSeeds    *s = h->s;
	const GkPoints *pts = gk_store_points(s->store);
	int			want = sample_rows(s, k);
	Sampled    *sampled = gk_alloc(s->host, want, sizeof(Sampled));
	int64_t    *row = gk_alloc(s->host, want, sizeof(int64_t));
	double	   *weight = gk_alloc(s->host, want, sizeof(double));
	int			n = 0;
	GkStatus	st = sampled && row && weight ? race_sample(s, k, sampled, &n, err) : out_of_memory(err);

	for (int i = 0; st == GK_OK && i < n; i++)
	{
		row[i] = sampled[i].row;
		weight[i] = sampled[i].weight;
	}
	if (st == GK_OK)
		st = gk_seeds_store(s, pts->weighted, n, &h->sample, err);
	if (st == GK_OK)
		st = pts->nchunks > 0 ? gk_chunk_store_gather(&h->sample, s->store, row, n, err)
			: fetch_picked(s, sampled, n, &h->sample, err);
	if (st == GK_OK && pts->weighted)
		gk_seeds_weigh(&h->sample, weight);
	gk_free(s->host, sampled);
	gk_free(s->host, row);
	gk_free(s->host, weight);
	if (st != GK_OK)
		return st;
	gk_chunk_store_close(&h->sample, 0);
	return gk_chunk_store_total(&h->sample);
}

/* ---- one clustering of the sample, or of a part ---- */

/* Find at most k centroids of the points, `to` ([k][d]); *found of them.  A sink takes their labels. */
static GkStatus
cluster(const Hierarchy *h, const GkChunkStore *points, int stream, int k, float *to, int *found,
		const GkLabelSink *sink, GkError *err)
{
	const GkSeeds *s = h->s;
	GkHost		host = *s->host;
	GkOptions	opt = {.k = k,.max_iter = ITERATIONS};
	GkEngine	e = {.host = &host,.backend = &gk_cpu_backend,.store = points->store,
	.pts = gk_store_points(points->store),.opt = &opt};
	GkSeeds		own = *s;
	GkRun		r = {0};
	GkStatus	st;

	host.progress = NULL;		/* of the whole seeding alone */
	own.host = &host;
	own.points = to;
	own.n = 0;
	st = gk_seeds_plus_plus_of(&own, points, stream, k, err);
	e.k = *found = own.n;
	if (st == GK_OK)
		st = gk_engine_alloc(&e, err);
	if (st == GK_OK)
		st = gk_chunk_store_open(points, e.backend, k, &e.session, err);
	if (st == GK_OK && !gk_engine_set_points(&e, to))
		st = GK_STOPPED;
	if (st == GK_OK)
		st = gk_lloyd(&e, s->run, TOLERANCE * gk_store_points(s->store)->mean_var, &r, err);
	if (st == GK_OK)
		memcpy(to, e.f, (size_t) e.k * s->d * sizeof(float));
	if (st == GK_OK && sink != NULL)
		st = e.backend->finish(e.session, e.f, e.k, NULL, sink, err);
	e.backend->close(e.session);
	gk_free(&host, r.history_inertia);
	gk_free(&host, r.history_shift);
	gk_free(&host, e.memory);
	return st;
}

/* ---- parts and their seats ---- */

static bool
take_labels(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Hierarchy  *h = ctx;

	(void) aux;
	memcpy(h->label + h->labelled, label, rows * sizeof(int32_t));
	memcpy(h->d2 + h->labelled, d2, rows * sizeof(float));
	h->labelled += rows;
	return true;
}

typedef struct Reorder
{
	const Hierarchy *h;
	float	   *scratch;		/* [threads][rows] */
} Reorder;

static void
reorder_column(void *arg, int64_t j, int thread)
{
	const Reorder *o = arg;
	const GkChunk *chunk = o->h->sample.chunk;
	float	   *column = chunk->data + j * chunk->stride;
	float	   *to = o->scratch + (size_t) thread * chunk->rows;

	for (int i = 0; i < chunk->rows; i++)
		to[i] = column[o->h->row[i]];
	memcpy(column, to, chunk->rows * sizeof(float));
}

/* Put the sample's rows part by part, a column after the other, which fits the cache: a part's are then next to each other. */
static GkStatus
reorder(Hierarchy *h, GkError *err)
{
	const GkHost *host = h->s->host;
	Reorder		o = {h, gk_alloc(host, (size_t) gk_threads(host) * h->sample.chunk->rows, sizeof(float))};
	bool		done;

	if (o.scratch == NULL)
		return out_of_memory(err);
	done = gk_parallel_for(host, h->sample.store->columns, reorder_column, &o);
	gk_free(host, o.scratch);
	for (int i = 0; i < h->sample.chunk->rows; i++)
		h->row[i] = i;
	return done ? GK_OK : GK_STOPPED;
}

/* Cluster the sample into parts, and put its rows in their order. */
static GkStatus
divide(Hierarchy *h, int parts, GkError *err)
{
	const GkHost *host = h->s->host;
	const GkChunk *chunk = h->sample.chunk;
	const float *w = gk_chunk_weight(&h->sample.store->pts, chunk);
	GkLabelSink sink = {h, take_labels, NULL};
	float	   *centroids = gk_alloc(host, (size_t) parts * h->s->d, sizeof(float));
	int			at = 0;
	GkStatus	st;

	h->label = gk_alloc0(host, chunk->rows, sizeof(int32_t));
	h->d2 = gk_alloc0(host, chunk->rows, sizeof(float));
	h->row = gk_alloc(host, chunk->rows, sizeof(int64_t));
	h->part = gk_alloc0(host, parts, sizeof(Part));
	h->parts = 1;
	if (centroids == NULL || h->label == NULL || h->d2 == NULL || h->row == NULL || h->part == NULL)
		st = out_of_memory(err);
	else
		st = parts > 1 ? cluster(h, &h->sample, STREAM_TOP, parts, centroids, &h->parts, &sink, err) : GK_OK;
	gk_free(host, centroids);
	if (st != GK_OK)
		return st;
	for (int i = 0; i < chunk->rows; i++)
	{
		double		weight = w != NULL ? w[i] : 1.0;

		h->part[h->label[i]].rows++;
		h->part[h->label[i]].weight += weight;
		h->part[h->label[i]].inertia += weight * (double) h->d2[i];
	}
	for (int p = 0; p < h->parts; p++)
		h->part[p].claim = sqrt(h->part[p].weight * h->part[p].inertia);
	for (int p = 0; p < h->parts; at += h->part[p++].rows)
		h->part[p].first = at;
	for (int i = 0; i < chunk->rows; i++)
		h->row[h->part[h->label[i]].first++] = i;
	for (int p = 0; p < h->parts; p++)
		h->part[p].first -= h->part[p].rows;
	return reorder(h, err);
}

/* The part that gets the next seat (step 1), or loses one (-1), by Sainte-Lague's quotients; -1: none can. */
static int
next_seat(const Hierarchy *h, int step)
{
	double		best = 0.0;
	int			which = -1;

	for (int p = 0; p < h->parts; p++)
	{
		const Part *part = &h->part[p];
		double		quotient = part->claim / (2.0 * part->seats + step);

		if (step > 0 ? part->seats >= part->rows : part->seats <= 1)
			continue;
		if (which < 0 || (step > 0 ? quotient > best : quotient < best))
		{
			best = quotient;
			which = p;
		}
	}
	return which;
}

/*
 * Share out k seats in proportion to claims: one at least for a part with rows, and no more
 * than it has rows.
 */
static void
share_seats(Hierarchy *h, int k)
{
	double		total = 0.0;
	int			left = k;
	int			p;

	for (p = 0; p < h->parts; p++)
		total += h->part[p].claim;
	for (p = 0; p < h->parts; p++)
	{
		Part	   *part = &h->part[p];
		double		seats = total > 0.0 ? floor(k * (part->claim / total)) : 0.0;

		part->seats = seats > part->rows ? part->rows : seats < 1.0 ? part->rows > 0 : (int) seats;
		left -= part->seats;
	}
	for (; left > 0 && (p = next_seat(h, 1)) >= 0; left--)
		h->part[p].seats++;
	for (; left < 0 && (p = next_seat(h, -1)) >= 0; left++)
		h->part[p].seats--;
}

static GkStatus
cluster_part(Hierarchy *h, int p, GkError *err)
{
	GkSeeds    *s = h->s;
	const Part *part = &h->part[p];
	GkChunkStore own = {NULL};
	int			found = 0;
	GkStatus	st = gk_seeds_store(s, h->sample.store->pts.weighted, part->rows, &own, err);

	if (st == GK_OK)
		st = gk_chunk_store_gather(&own, h->sample.store, h->row + part->first, part->rows, err);
	if (st == GK_OK)
	{
		gk_chunk_store_close(&own, 0);
		st = gk_chunk_store_total(&own);
	}
	if (st == GK_OK)
		st = cluster(h, &own, STREAM_PART + p, part->seats, s->points + (size_t) s->n * s->d, &found, NULL, err);
	gk_chunk_store_free(&own);
	s->n += found;
	return st;
}

static void
report(const GkSeeds *s, int k)
{
	GkProgress	p = {.phase = "seed",.run = s->run + 1,.iteration = s->n,.max_iter = k,
	.rows = gk_store_rows(s->store),.inertia = -1};

	if (s->host->progress)
		s->host->progress(s->host->ctx, &p);
}

/* Parts with fewer distinct points than seats: the rest by k-means++, of the sample as far as that goes. */
static GkStatus
fill_up(Hierarchy *h, int k, GkError *err)
{
	GkSeeds    *s = h->s;
	gk_int128	phi;
	GkStatus	st = gk_seeds_plus_plus_of(s, &h->sample, STREAM_REST, k, err);

	if (st != GK_OK || s->n == k || h->sample.chunk->rows == gk_store_rows(s->store))
		return st;
	st = s->backend->seed_update(s->session, s->points, s->n, &phi, err);
	return st == GK_OK ? gk_seeds_plus_plus(s, k, err) : st;
}

GkStatus
gk_seeds_hierarchical(GkSeeds *s, int k, GkError *err)
{
	Hierarchy	h = {.s = s};
	GkStatus	st = take_sample(&h, k, err);

	if (st == GK_OK)
		st = divide(&h, (int) rint(sqrt(k)), err);
	if (st == GK_OK)
		share_seats(&h, k);
	for (int p = 0; st == GK_OK && p < h.parts; p++)
	{
		if (h.part[p].seats == 0)
			continue;
		st = cluster_part(&h, p, err);
		report(s, k);
	}
	if (st == GK_OK && s->n < k)
		st = fill_up(&h, k, err);
	gk_free(s->host, h.label);
	gk_free(s->host, h.d2);
	gk_free(s->host, h.row);
	gk_free(s->host, h.part);
	gk_chunk_store_free(&h.sample);
	return st;
}
