/*
 * gk_partial_threads.c - parts of a step on all threads, see gk_partial_threads.h.
 *
 * All parts have the same planes.  The thread that adds a tile finds out which planes its rows need; a tile
 * that needs a missing one waits until the main thread has made it.
 */
#include <string.h>

#include "core/store/gk_store.h"
#include "core/partial/gk_partial_threads.h"

/* If the parts of all threads would take more, there is only one. */
#define PARTS_BYTES		((size_t) 64 << 20)
/* Values of a tile, which stays in the cache. */
#define TILE_VALUES		(64 * 1024)
#define TILE_ROWS_MAX	(4 * 1024)

/* A thread's part. */
typedef struct Part
{
	GkPartial	p;
	float		far_d2;
	GkPlane		planes[GK_MAX_SHIFTS];
	double	   *acc;			/* of its tiles */
	bool		wanted[GK_MAX_SHIFTS];	/* planes that tiles wait for */
	bool		waiting;
	bool		failed;
	GkError		err;
} Part;

struct GkPartialThreads
{
	const GkHost *host;
	GkPartialWhat what;
	int			d;
	bool		weighted;
	GkChunkStore chunk;
	double	   *weight;			/* [stride] as given; NULL: no weights */
	int32_t    *label;			/* [stride] */
	float	   *d2;				/* [stride] */
	int			labelled;		/* rows of the chunk that have theirs */
	int			tile_rows;
	bool	   *done;			/* [tiles] */
	int			nparts;
	Part	   *part;			/* [nparts]; NULL: no rows so far */
};

static size_t
plane_numbers(const GkPartialThreads *p)
{
	return (size_t) p->what.k * p->d + 2 * (size_t) p->what.k;
}

/* ---- parts ---- */

static bool
add_plane(const GkPartialThreads *p, Part *part, int shift)
{
	GkPlane    *plane = &part->planes[part->p.nplanes];

	plane->shift = shift;
	plane->sum = gk_alloc0(p->host, plane_numbers(p), sizeof(gk_int128));
	if (plane->sum == NULL)
		return false;
	plane->mass = plane->sum + (size_t) p->what.k * p->d;
	plane->inertia = plane->mass + p->what.k;
	part->p.nplanes++;
	return true;
}

static bool
make_part(const GkPartialThreads *p, Part *part)
{
	part->p = (GkPartial) {.prep = p->what.prep,.k = p->what.k,.weighted = p->weighted,
		.weights = p->what.weights,.f = p->what.f,
		.far_d2 = &part->far_d2,.planes = part->planes};
	part->p.count = gk_alloc0(p->host, p->what.k, sizeof(int64_t));
	part->p.max_d2 = gk_alloc0(p->host, p->what.k, sizeof(float));
	part->p.far = gk_alloc0(p->host, p->d, sizeof(float));
	part->acc = gk_alloc(p->host, gk_tile_acc(p->d, p->what.k, p->tile_rows), sizeof(double));
	return part->p.count != NULL && part->p.max_d2 != NULL && part->p.far != NULL && part->acc != NULL;
}

/* Add the planes that tiles wait for to all parts. */
static GkStatus
add_planes(GkPartialThreads *p, GkError *err)
{
	for (int s = 0; s < GK_MAX_SHIFTS; s++)
	{
		bool		wanted = false;

		for (int i = 0; i < p->nparts; i++)
		{
			wanted |= p->part[i].wanted[s];
			p->part[i].wanted[s] = false;
		}
		for (int i = 0; wanted && i < p->nparts; i++)
			if (!add_plane(p, &p->part[i], GK_PLANE_MIN + s * GK_PLANE_STEP))
				return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	return GK_OK;
}

/* ---- the chunk ---- */

static GkStatus
begin(GkPartialThreads *p, const GkStore *from, const GkBatch *b, GkError *err)
{
	GkStatus	st;
	int			stride;
	int			rows = TILE_VALUES / p->d / GK_ROW_PAD * GK_ROW_PAD;

	p->weighted = from->pts.weighted;
	/* Weights are not prepared: a part takes them as they are. */
	st = gk_chunk_store_make(&p->chunk, p->host, p->what.prep, false, 0,
							 gk_chunk_store_rows(from, p->what.chunk_bytes, b->capacity), err);
	if (st != GK_OK)
		return st;
	p->chunk.store->pts.d2_expo = gk_bound_d2(p->what.prep);
	p->chunk.store->pts.resident = true;
	p->tile_rows = rows < GK_ROW_PAD ? GK_ROW_PAD : rows > TILE_ROWS_MAX ? TILE_ROWS_MAX : rows;
	stride = p->chunk.chunk->stride;
	p->weight = p->weighted ? gk_alloc(p->host, stride, sizeof(double)) : NULL;
	p->label = gk_alloc(p->host, stride, sizeof(int32_t));
	p->d2 = gk_alloc(p->host, stride, sizeof(float));
	p->done = gk_alloc(p->host, stride / p->tile_rows + 1, sizeof(bool));
	p->nparts = gk_threads(p->host);
	if (p->nparts > 1 && p->nparts * plane_numbers(p) * sizeof(gk_int128) > PARTS_BYTES)
		p->nparts = 1;
	p->part = gk_alloc0(p->host, p->nparts, sizeof(Part));
	if ((p->weighted && p->weight == NULL) || p->label == NULL || p->d2 == NULL || p->done == NULL || p->part == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	for (int i = 0; i < p->nparts; i++)
		if (!make_part(p, &p->part[i]))
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	return GK_OK;
}

/* ---- nearest centroids ---- */

static bool
take_labels(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	GkPartialThreads *p = ctx;

	(void) aux;
	memcpy(p->label + p->labelled, label, rows * sizeof(int32_t));
	memcpy(p->d2 + p->labelled, d2, rows * sizeof(float));
	p->labelled += rows;
	return true;
}

static GkStatus
assign_on(GkPartialThreads *p, const GkBackend *b, GkError *err)
{
	GkLabelSink sink = {.ctx = p,.emit = take_labels};
	GkSession  *s = NULL;
	GkStatus	st = gk_chunk_store_open(&p->chunk, b, p->what.k, &s, err);

	p->labelled = 0;
	if (st == GK_OK)
		st = b->finish(s, p->what.f, p->what.k, NULL, &sink, err);
	b->close(s);
	return st;
}

static GkStatus
assign(GkPartialThreads *p, GkError *err)
{
	GkStatus	st;
	int			rows = p->chunk.fill;

	gk_chunk_store_close(&p->chunk, 0);
	st = assign_on(p, *p->what.device, err);
	if (gk_go_on_with_cpu(p->host, *p->what.device, st, err))
	{
		*p->what.device = &gk_cpu_backend;
		st = assign_on(p, &gk_cpu_backend, err);
	}
	/* Labels and distances are padded like the points. */
	for (int i = rows; i % GK_ROW_PAD != 0; i++)
	{
		p->label[i] = 0;
		p->d2[i] = 0.0f;
	}
	return st;
}

/* ---- adding up ---- */

static void
add_tile(void *arg, int64_t job, int thread)
{
	GkPartialThreads *p = arg;
	Part	   *part = &p->part[thread];
	const GkChunk *c = p->chunk.chunk;
	int			first = (int) job * p->tile_rows;
	const double *weight = p->weighted ? p->weight + first : NULL;
	int			shifts[GK_MAX_SHIFTS];
	int			missing;
	GkTile		tile = {.room = c->stride,.x = c->data + first,.label = p->label + first,.d2 = p->d2 + first,
		.acc = part->acc,.acc_size = gk_tile_acc(p->d, p->what.k, p->tile_rows)};

	if (p->done[job] || part->failed)
		return;
	tile.rows = c->rows - first < p->tile_rows ? c->rows - first : p->tile_rows;
	part->failed = gk_partial_find_planes(&part->p, &tile, weight, shifts, &missing, &part->err) != GK_OK;
	for (int i = 0; i < missing; i++)
		part->wanted[(shifts[i] - GK_PLANE_MIN) / GK_PLANE_STEP] = true;
	part->waiting |= missing > 0;
	if (part->failed || missing > 0)
		return;
	gk_partial_add(&part->p, &tile, weight);
	p->done[job] = true;
}

static GkStatus
add_up(GkPartialThreads *p, GkError *err)
{
	GkHost		host = *p->host;
	int			tiles = (p->chunk.fill + p->tile_rows - 1) / p->tile_rows;
	bool		again = true;

	if (p->nparts == 1)
		host.threads = 1;
	memset(p->done, 0, tiles * sizeof(bool));
	while (again)
	{
		GkStatus	st;

		if (!gk_parallel_for(&host, tiles, add_tile, p))
			return GK_STOPPED;
		again = false;
		for (int i = 0; i < p->nparts; i++)
		{
			if (p->part[i].failed)
			{
				*err = p->part[i].err;
				return err->code;
			}
			again |= p->part[i].waiting;
			p->part[i].waiting = false;
		}
		if (again && (st = add_planes(p, err)) != GK_OK)
			return st;
	}
	return host.poll != NULL && host.poll(host.ctx) ? GK_STOPPED : GK_OK;
}

static GkStatus
run_chunk(GkPartialThreads *p, GkError *err)
{
	GkStatus	st;

	if (p->chunk.fill == 0)
		return GK_OK;
	st = assign(p, err);
	if (st == GK_OK)
		st = add_up(p, err);
	p->chunk.fill = 0;
	return st;
}

/* ---- rows in ---- */

static void
copy_weights(double *to, const GkBatch *b, int column)
{
	if (b->wide[column])
		memcpy(to, gk_batch_column(b, column), b->rows * sizeof(double));
	else
		for (int i = 0; i < b->rows; i++)
			to[i] = ((const float *) gk_batch_column(b, column))[i];
}

GkStatus
gk_partial_threads_take(void *arg, GkStore *store, const GkBatch *b, GkError *err)
{
	GkPartialThreads *p = arg;
	GkChunk    *c;
	GkStatus	st;

	if (p->part == NULL && (st = begin(p, store, b, err)) != GK_OK)
		return st;
	c = p->chunk.chunk;
	if (p->chunk.fill + b->rows > c->stride && (st = run_chunk(p, err)) != GK_OK)
		return st;
	gk_store_convert_batch(p->chunk.store, p->what.prep, b, c->data + p->chunk.fill, c->stride, NULL, NULL);
	if (p->weighted)
		copy_weights(p->weight + p->chunk.fill, b, p->d);
	p->chunk.fill += b->rows;
	return GK_OK;
}

/* ---- beginning and end ---- */

GkStatus
gk_partial_threads_open(const GkHost *host, const GkPartialWhat *what, GkPartialThreads **out, GkError *err)
{
	GkPartialThreads *p = gk_alloc0(host, 1, sizeof(GkPartialThreads));

	*out = p;
	if (p == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	p->host = host;
	p->what = *what;
	p->d = what->prep->d;
	return GK_OK;
}

GkStatus
gk_partial_threads_end(GkPartialThreads *p, GkError *err)
{
	return run_chunk(p, err);
}

int
gk_partial_threads_shifts(const GkPartialThreads *p, int *shifts)
{
	int			n = 0;

	for (int s = GK_PLANE_MIN; p->part != NULL && s <= GK_PLANE_MAX; s += GK_PLANE_STEP)
		for (int i = 0; i < p->part[0].p.nplanes; i++)
			if (p->part[0].planes[i].shift == s)
				shifts[n++] = s;
	return n;
}

void
gk_partial_threads_merge(GkPartial *to, const GkPartialThreads *p)
{
	for (int i = 0; p->part != NULL && i < p->nparts; i++)
		gk_partial_merge(to, &p->part[i].p, 0, to->k);
}

void
gk_partial_threads_free(GkPartialThreads *p)
{
	const GkHost *host;

	if (p == NULL)
		return;
	host = p->host;
	for (int i = 0; p->part != NULL && i < p->nparts; i++)
	{
		Part	   *part = &p->part[i];

		for (int j = 0; j < part->p.nplanes; j++)
			gk_free(host, part->planes[j].sum);
		gk_free(host, part->p.count);
		gk_free(host, part->p.max_d2);
		gk_free(host, part->p.far);
		gk_free(host, part->acc);
	}
	gk_free(host, p->part);
	gk_free(host, p->done);
	gk_free(host, p->weight);
	gk_free(host, p->label);
	gk_free(host, p->d2);
	gk_chunk_store_free(&p->chunk);
	gk_free(host, p);
}
