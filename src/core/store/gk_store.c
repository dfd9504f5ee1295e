/*
 * gk_store.c - the points: column-major chunks in memory and in a spill file.
 *
 * Writing the spill file is the host's: it has limits and quotas to keep.  Every pass waits
 * for reading, so all threads read, each a piece of the chunk, straight to where the values
 * are needed.  Meanwhile the system is told which chunk comes next.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/gk_numerics.h"
#include "core/store/gk_store.h"

/* Bytes of the store's own batch, which is to stay in the cache. */
#define BATCH_BYTES		(256 * 1024)
/* The memory limit makes no chunks smaller than this. */
#define SMALL_CHUNK			((size_t) 4 << 20)
/*
 * Chunks at work besides those that stay: being filled, with doubles, or being prepared, or
 * two views.  Up to NOT_COUNTED bytes of them are not taken off the memory limit.
 */
#define WORKING_CHUNKS		3
#define VIEWS				2
#define NOT_COUNTED			((size_t) 24 << 20)
/* Bytes of the spill file, or single values of a row there, that are one job. */
#define PIECE			((size_t) 256 * 1024)
#define VALUES			128

/* What chunks of that size, at work, take off the limit. */
static size_t
set_aside(size_t chunk_bytes)
{
	return gk_rest(WORKING_CHUNKS * chunk_bytes, NOT_COUNTED);
}

GkStatus
gk_store_create(const GkHost *host, int d, bool weighted, int naux,
				size_t chunk_bytes, size_t memory_limit,
				GkStore **out, GkError *err)
{
	GkStore    *s;
	size_t		row_bytes = (size_t) (d + (weighted ? 1 : 0) + naux) * sizeof(float);
	size_t		rows;
	int			batch_rows;

	*out = NULL;
	if (d < 1 || d > GK_MAX_D)
		return gk_fail(err, GK_ERR_LIMIT, "number of features %d is not between 1 and %d", d, GK_MAX_D);
	if (naux < 0 || naux > GK_MAX_AUX)
		return gk_fail(err, GK_ERR_INTERNAL, "%d auxiliary columns, at most %d", naux, GK_MAX_AUX);

	s = gk_alloc0(host, 1, sizeof(GkStore));
	if (s == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	s->host = host;
	s->sink = &gk_chunk_sink;
	s->pts.d = d;
	s->pts.weighted = weighted;
	s->pts.naux = naux;
	s->columns = d + (weighted ? 1 : 0);
	s->memory_limit = memory_limit;
	s->largest_chunk = chunk_bytes;

	/*
	 * A quarter of the limit per chunk, so that two views and a chunk being
	 * filled stay within it; but passes over tiny chunks would take longer.
	 */
	if (chunk_bytes > SMALL_CHUNK && chunk_bytes > memory_limit / 4)
		chunk_bytes = memory_limit / 4 > SMALL_CHUNK ? memory_limit / 4 : SMALL_CHUNK;
	rows = chunk_bytes / row_bytes / GK_ROW_PAD * GK_ROW_PAD;
	if (rows < GK_ROW_PAD)
		rows = GK_ROW_PAD;
	if (rows > (size_t) GK_INT64_ROWS)
		rows = (size_t) GK_INT64_ROWS;
	s->chunk_rows = (int) rows;
	/* Chunks at work above NOT_COUNTED take the place of chunks that stay. */
	s->set_aside = set_aside(rows * row_bytes);
	s->set_aside = s->set_aside < memory_limit ? s->set_aside : memory_limit;
	s->memory_limit -= s->set_aside;
	batch_rows = gk_batch_capacity(s->columns, BATCH_BYTES);
	s->batch_memory = gk_alloc(host, gk_batch_bytes(s->columns, naux, batch_rows), 1);
	s->wide = gk_alloc0(host, s->columns, sizeof(uint8_t));
	s->stats = gk_alloc(host, s->columns, sizeof(GkColumnStats));
	s->pts.prep.d = d;
	s->pts.prep.center = gk_alloc0(host, d, sizeof(double));
	s->pts.prep.scale = gk_alloc0(host, d, sizeof(double));
	s->pts.prep.expo = gk_alloc0(host, d, sizeof(int32_t));
	s->pts.total_sum = gk_alloc0(host, d, sizeof(gk_int128));
	if (!s->batch_memory || !s->wide || !s->stats ||
		!s->pts.prep.center || !s->pts.prep.scale || !s->pts.prep.expo || !s->pts.total_sum)
	{
		gk_store_free(s);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	gk_batch_init(&s->batch, s->batch_memory, s->columns, naux, batch_rows);
	gk_stats_clear(s->stats, s->columns);
	s->expected = -1;
	*out = s;
	return GK_OK;
}

void
gk_store_expect(GkStore *store, double rows)
{
	store->expected = rows;
}

double
gk_store_expected(const GkStore *store)
{
	return store->expected;
}

size_t
gk_store_enough_memory(const GkStore *s)
{
	/* larger chunks, of doubles too, may be less full at the end; seeding takes one more column */
	size_t		bytes = s->raw_bytes + 2 * s->largest_chunk;

	if (s->spill_end == 0)
		return 0;
	return bytes + bytes / (s->columns + s->pts.naux) + set_aside(s->largest_chunk);
}

size_t
gk_store_views_bytes(const GkStore *s)
{
	return s->pts.resident ? 0 : VIEWS * gk_store_chunk_bytes(s, s->chunk_rows);
}

size_t
gk_store_spare(const GkStore *s)
{
	size_t		limit = s->memory_limit + s->set_aside;
	size_t		used = s->memory + gk_rest(gk_store_views_bytes(s), NOT_COUNTED);

	return gk_rest(limit, used);
}

void
gk_store_free(GkStore *store)
{
	const GkHost *host;

	if (store == NULL)
		return;
	host = store->host;
	if (store->sink->end != NULL)
		store->sink->end(store);
	for (int i = 0; i < store->pts.nchunks; i++)
	{
		gk_free(host, store->pts.chunks[i].data);
		gk_free(host, store->pts.chunks[i].mind2);
		gk_free(host, store->pts.chunks[i].wide);
	}
	gk_free(host, store->pts.chunks);
	for (int i = 0; i < VIEWS; i++)
	{
		gk_free(host, store->view_data[i]);
		gk_free(host, store->view_mind2[i]);
	}
	gk_free(host, store->ahead);
	gk_free(host, store->batch_memory);
	gk_free(host, store->wide);
	gk_free(host, store->stats);
	gk_free(host, store->pts.prep.center);
	gk_free(host, store->pts.prep.scale);
	gk_free(host, store->pts.prep.expo);
	gk_free(host, store->pts.total_sum);
	gk_free(host, store);
}

GkBatch *
gk_store_batch(GkStore *store)
{
	return &store->batch;
}

int64_t
gk_store_rows(const GkStore *store)
{
	return store->pts.n;
}

int
gk_store_features(const GkStore *store)
{
	return store->pts.d;
}

int
gk_store_valueless(const GkStore *store)
{
	for (int j = 0; j < store->pts.d; j++)
		if (store->stats[j].missing == store->pts.n)
			return j;
	return -1;
}

const GkPoints *
gk_store_points(GkStore *store)
{
	return &store->pts;
}

const GkBackend *
gk_store_reader(const GkStore *store)
{
	return store->reader;
}

const GkHost *
gk_store_host(const GkStore *store)
{
	return store->host;
}

size_t
gk_store_chunk_bytes(const GkStore *store, int stride)
{
	return (size_t) (store->columns + store->pts.naux) * stride * sizeof(float);
}

void
gk_store_ask(GkStore *store, GkAsk ask, void *arg)
{
	store->ask = ask;
	store->ask_arg = arg;
}

GkStatus
gk_store_loaded(GkStore *store, GkError *err)
{
	GkStatus	st = store->ask != NULL ? store->ask(store->ask_arg, true, err) : GK_OK;

	store->ask = NULL;
	if (st != GK_OK)
		return st;
	return store->sink->finish != NULL ? store->sink->finish(store, err) : GK_OK;
}

/* ---- the sink that passes batches on ---- */

static GkStatus
pass_take(GkStore *s, const GkBatch *b, const GkMover *mover, GkError *err)
{
	(void) mover;
	s->pts.n += b->rows;
	return s->take(s->state, s, b, err);
}

static const GkSink pass_sink = {.take = pass_take};

void
gk_store_pass_on(GkStore *store, GkTake take, void *arg)
{
	store->sink = &pass_sink;
	store->take = take;
	store->state = arg;
}

/* ---- the spill file ---- */

/* Pieces of the file that lie next to each other in memory: `some` of them are a job. */
typedef struct Read
{
	int			fd;
	int64_t		at;
	int64_t		apart;			/* from a piece to the next one, in the file */
	char	   *to;
	size_t		bytes;			/* of all */
	size_t		piece;
	size_t		some;
	int			error;			/* errno; -1: the file is too short */
} Read;

static int
read_piece(const Read *r, size_t i)
{
	size_t		from = i * r->piece;
	size_t		bytes = r->bytes - from < r->piece ? r->bytes - from : r->piece;
	int64_t		at = r->at + (int64_t) i * r->apart;

	for (size_t done = 0; done < bytes;)
	{
		ssize_t		got = pread(r->fd, r->to + from + done, bytes - done, (off_t) (at + (int64_t) done));

		if (got > 0)
			done += (size_t) got;
		else if (got == 0 || errno != EINTR)
			return got == 0 ? -1 : errno;
	}
	return 0;
}

static void
read_pieces(void *arg, int64_t job, int thread)
{
	Read	   *r = arg;
	int			error = 0;

	(void) thread;
	for (size_t i = job * r->some; error == 0 && i < (job + 1) * r->some && i * r->piece < r->bytes; i++)
		error = read_piece(r, i);
	if (error != 0)
		__atomic_store_n(&r->error, error, __ATOMIC_RELAXED);
}

static GkStatus
read_spilled(const GkHost *host, Read r, GkError *err)
{
	size_t		job = r.piece * r.some;

	r.fd = host->spill_fd(host->ctx);
	if (r.fd < 0)
		return gk_fail(err, GK_ERR_HOST, "could not read the temporary file");
	if (!gk_parallel_for(host, (int64_t) ((r.bytes + job - 1) / job), read_pieces, &r))
		return GK_STOPPED;
	if (r.error != 0)
		return gk_fail(err, GK_ERR_SPILL, "could not read %zu bytes at %lld of the temporary file: %s",
					   r.bytes, (long long) r.at, r.error < 0 ? "it is too short" : strerror(r.error));
	return GK_OK;
}

GkStatus
gk_spill_read(const GkHost *host, int64_t at, void *to, size_t bytes, GkError *err)
{
	return read_spilled(host, (Read) {.at = at,.apart = PIECE,.to = to,.bytes = bytes,.piece = PIECE,.some = 1}, err);
}

/* Tell the system that these bytes will be read soon. */
static GkStatus
read_soon(const GkHost *host, int64_t at, size_t bytes, GkError *err)
{
	int			fd = host->spill_fd(host->ctx);

	if (fd < 0)
		return gk_fail(err, GK_ERR_HOST, "could not read the temporary file");
#ifdef POSIX_FADV_WILLNEED
	/* only a hint: the read will see what goes wrong */
	(void) posix_fadvise(fd, (off_t) at, (off_t) bytes, POSIX_FADV_WILLNEED);
#endif
	return GK_OK;
}

/* ---- reading ---- */

static GkStatus
view_buffers(GkStore *s, bool mind2, GkError *err)
{
	int			stride = 0;

	for (int i = 0; i < s->pts.nchunks; i++)
		if (s->pts.chunks[i].stride > stride)
			stride = s->pts.chunks[i].stride;
	for (int b = 0; b < VIEWS; b++)
	{
		if (s->view_data[b] == NULL)
			s->view_data[b] = gk_alloc(s->host, gk_store_chunk_bytes(s, stride), 1);
		if (mind2 && s->view_mind2[b] == NULL)
			s->view_mind2[b] = gk_alloc(s->host, stride, sizeof(float));
		if (s->view_data[b] == NULL || (mind2 && s->view_mind2[b] == NULL))
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	return GK_OK;
}

/* Passes go through the chunks in order, again and again: tell the system which one is next. */
static GkStatus
read_ahead(const GkStore *s, int index, GkError *err)
{
	for (int i = 1; i < s->pts.nchunks; i++)
	{
		const GkChunk *c = &s->pts.chunks[(index + i) % s->pts.nchunks];

		if (c->data == NULL)
			return read_soon(s->host, c->spill_at, gk_store_chunk_bytes(s, c->stride), err);
	}
	return GK_OK;
}

GkStatus
gk_chunk_open(GkStore *store, int index, int read, GkChunk *view, GkError *err)
{
	const GkChunk *c = &store->pts.chunks[index];
	bool		mind2 = (read & GK_READ_MIND2) != 0 && c->mind2 == NULL;
	size_t		features = (size_t) store->pts.d * c->stride;
	GkStatus	st;
	int			b;

	*view = *c;
	if (c->data != NULL)
		return GK_OK;
	if ((st = view_buffers(store, mind2, err)) != GK_OK)
		return st;
	b = store->view_next;
	store->view_next = 1 - b;
	view->data = store->view_data[b];
	if (read & GK_READ_FEATURES)
	{
		st = gk_spill_read(store->host, c->spill_at, view->data, gk_store_chunk_bytes(store, c->stride), err);
		if (st == GK_OK)
			st = read_ahead(store, index, err);
	}
	else if (store->pts.weighted)
		st = gk_spill_read(store->host, c->spill_at + (int64_t) (features * sizeof(float)), view->data + features,
						   c->stride * sizeof(float), err);
	if (st != GK_OK)
		return st;
	if (mind2)
	{
		view->mind2 = store->view_mind2[b];
		if (!c->mind2_written)
			for (int i = 0; i < c->stride; i++)
				view->mind2[i] = INFINITY;
		else
			st = gk_spill_read(store->host, c->spill_mind2, view->mind2, c->stride * sizeof(float), err);
	}
	return st;
}

GkStatus
gk_chunk_close(GkStore *store, int index, GkChunk *view, bool dirty_mind2, GkError *err)
{
	GkChunk    *c = &store->pts.chunks[index];
	const GkHost *host = store->host;

	if (c->data != NULL || c->mind2 != NULL || !dirty_mind2)
		return GK_OK;
	if (c->spill_mind2 < 0)
	{
		c->spill_mind2 = store->spill_end;
		store->spill_end += (int64_t) c->stride * (int64_t) sizeof(float);
	}
	if (!host->spill_write(host->ctx, c->spill_mind2, view->mind2, c->stride * sizeof(float)))
		return gk_fail(err, GK_ERR_HOST, "could not write the spill file");
	c->mind2_written = true;
	return GK_OK;
}

/* Rows of the seeding column that one job fills. */
#define FILL_ROWS	(1 << 16)

/* Rows of the column in memory: whole tiles, however many more have room in the chunk. */
static int64_t
mind2_rows(const GkChunk *c)
{
	return ((int64_t) c->rows + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
}

static int64_t
fill_jobs(const GkChunk *c)
{
	return c->mind2 != NULL ? (mind2_rows(c) + FILL_ROWS - 1) / FILL_ROWS : 0;
}

static void
fill_mind2(void *arg, int64_t job, int thread)
{
	const GkChunk *c = ((GkStore *) arg)->pts.chunks;
	int64_t		end;

	(void) thread;
	for (; job >= fill_jobs(c); c++)
		job -= fill_jobs(c);
	end = (job + 1) * FILL_ROWS < mind2_rows(c) ? (job + 1) * FILL_ROWS : mind2_rows(c);
	for (int64_t r = job * FILL_ROWS; r < end; r++)
		c->mind2[r] = INFINITY;
}

/* All threads fill it: the first thread at a page of memory waits for the system to find it. */
GkStatus
gk_store_mind2_begin(GkStore *store, GkError *err)
{
	GkPoints   *pts = &store->pts;
	size_t		bytes[2] = {0, 0};	/* of chunks in the file, in memory */
	int64_t		jobs = 0;

	gk_store_mind2_end(store);
	store->mind2 = true;
	for (int i = 0; i < pts->nchunks; i++)
		bytes[pts->chunks[i].data != NULL] += mind2_rows(&pts->chunks[i]) * sizeof(float);
	pts->mind2_resident = bytes[0] == 0 || bytes[0] + bytes[1] <= pts->spare;
	if (pts->mind2_resident)
		bytes[1] += bytes[0];
	store->mind2_bytes = bytes[1] < pts->spare ? bytes[1] : pts->spare;
	pts->spare -= store->mind2_bytes;
	for (int i = 0; i < pts->nchunks; i++)
	{
		GkChunk    *c = &pts->chunks[i];

		if (c->data == NULL && !pts->mind2_resident)
			continue;
		c->mind2 = gk_alloc(store->host, mind2_rows(c), sizeof(float));
		if (c->mind2 == NULL)
		{
			gk_store_mind2_end(store);
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
		}
		jobs += fill_jobs(c);
	}
	return gk_parallel_for(store->host, jobs, fill_mind2, store) ? GK_OK : GK_STOPPED;
}

void
gk_store_mind2_end(GkStore *store)
{
	if (!store->mind2)
		return;
	store->mind2 = store->pts.mind2_resident = false;
	store->pts.spare += store->mind2_bytes;
	store->mind2_bytes = 0;
	for (int i = 0; i < store->pts.nchunks; i++)
	{
		gk_free(store->host, store->pts.chunks[i].mind2);
		store->pts.chunks[i].mind2 = NULL;
		store->pts.chunks[i].mind2_written = false;
	}
}

GkStatus
gk_store_row(GkStore *store, int64_t row, float *out, GkError *err)
{
	int			lo = 0,
				hi = store->pts.nchunks - 1;
	const GkChunk *c;
	size_t		at;
	GkStatus	st;

	while (lo < hi)
	{
		int			mid = (lo + hi + 1) / 2;

		if (store->pts.chunks[mid].first <= row)
			lo = mid;
		else
			hi = mid - 1;
	}
	c = &store->pts.chunks[lo];
	at = (size_t) (row - c->first);
	if (c->data == NULL)
	{
		st = read_spilled(store->host, (Read) {.at = c->spill_at + (int64_t) (at * sizeof(float)),
						  .apart = c->stride * (int64_t) sizeof(float),.to = (char *) out,
						  .bytes = store->pts.d * sizeof(float),.piece = sizeof(float),.some = VALUES}, err);
		if (st != GK_OK)
			return st;
	}
	for (int j = 0; j < store->pts.d; j++)
	{
		if (c->data != NULL)
			out[j] = c->data[(size_t) j * c->stride + at];
		/* the centre, which is the mean */
		if (store->pts.prep.distance == GK_PARTIAL && gk_is_missing(out[j]))
			out[j] = 0.0f;
	}
	return GK_OK;
}

/* ---- a store of one chunk ---- */

size_t
gk_chunk_store_rows(const GkStore *like, size_t bytes, int min_rows)
{
	size_t		rows = bytes / ((size_t) (like->columns + like->pts.naux) * sizeof(float));

	if (rows < (size_t) min_rows)
		rows = min_rows;
	return rows > (size_t) GK_INT64_ROWS ? (size_t) GK_INT64_ROWS : rows;
}

GkStatus
gk_chunk_store_make(GkChunkStore *o, const GkHost *host, const GkPrep *prep, bool weighted, int naux,
					size_t rows, GkError *err)
{
	GkStatus	st = gk_store_create(host, prep->d, weighted, naux, SIZE_MAX, SIZE_MAX, &o->store, err);
	GkChunk    *c;

	if (st != GK_OK)
		return st;
	o->fill = 0;
	o->chunk = c = o->store->pts.chunks = gk_alloc0(host, 1, sizeof(GkChunk));
	if (c != NULL)
	{
		o->store->pts.nchunks = 1;
		c->stride = gk_stride((int64_t) rows);
		c->sealed = true;
		c->spill_at = c->spill_mind2 = -1;
		c->data = gk_alloc(host, gk_store_chunk_bytes(o->store, c->stride), 1);
	}
	if (c == NULL || c->data == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	gk_store_take_prep(o->store, prep);
	o->store->prepared = true;
	return GK_OK;
}

void
gk_chunk_store_close(GkChunkStore *o, int64_t first)
{
	GkPoints   *pts = &o->store->pts;
	GkChunk    *c = o->chunk;
	size_t		rest = -o->fill & (GK_ROW_PAD - 1);

	c->rows = o->fill;
	c->first = first;
	pts->n = o->fill;
	/* Kernels read whole tiles. */
	for (int j = 0; j < o->store->columns; j++)
		memset(c->data + (size_t) j * c->stride + o->fill, 0, rest * sizeof(float));
}

GkStatus
gk_chunk_store_open(const GkChunkStore *o, const GkBackend *backend, int k_max, GkSession **out, GkError *err)
{
	GkProblem	problem = gk_problem(o->store, k_max, 1);

	return backend->open(&problem, out, err);
}

void
gk_chunk_store_free(GkChunkStore *o)
{
	gk_store_free(o->store);
	memset(o, 0, sizeof(*o));
}
