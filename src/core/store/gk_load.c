/*
 * gk_load.c - rows into a store: where each row of a batch goes is decided here, in the
 * order of the rows; the copying may be left to other threads (gk_batch.h).
 *
 * Below is the sink that fills chunks.  A column of a chunk is float32 as long as every
 * value is one exactly, float64 from the first other value on.  A full chunk goes to the
 * spill file when the store is over its memory limit.
 */
#include <math.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "core/base/gk_beside.h"
#include "core/base/gk_sizes.h"
#include "core/store/gk_store.h"

/*
 * Rows of the first chunk; each further one is twice as large, up to chunk_rows: a table of
 * 150 rows does not pay for 16 MB.
 */
#define FIRST_CHUNK_ROWS	4096
/* Smallest chunk that it pays to allocate early. */
#define AHEAD_BYTES		((size_t) 4 << 20)

size_t
gk_store_raw_bytes(const GkStore *s, const uint8_t *wide, int stride)
{
	size_t		bytes = s->pts.naux * sizeof(uint32_t);

	for (int j = 0; j < s->columns; j++)
		bytes += gk_value_bytes(wide[j]);
	return bytes * stride;
}

/* ---- chunks ---- */

/* The chunk being filled, or NULL. */
static GkChunk *
open_chunk(GkStore *s)
{
	GkChunk    *c;

	if (s->pts.nchunks == 0)
		return NULL;
	c = &s->pts.chunks[s->pts.nchunks - 1];
	return c->sealed ? NULL : c;
}

/* Rows of the chunk that comes next. */
static int
next_rows(const GkStore *s)
{
	int			rows = FIRST_CHUNK_ROWS;

	if (s->pts.nchunks > 0)
	{
		int			last = s->pts.chunks[s->pts.nchunks - 1].stride;

		rows = last > s->chunk_rows / 2 ? s->chunk_rows : last * 2;
	}
	return gk_stride(rows > s->chunk_rows ? s->chunk_rows : rows);
}

static void
drop_ahead(GkStore *s)
{
	gk_free(s->host, s->ahead);
	s->ahead = NULL;
}

/* Find memory for a chunk: what look_ahead() asked for, if it fits. */
static void *
chunk_memory(GkStore *s, size_t bytes)
{
	void	   *data = s->ahead;

	if (data != NULL && s->ahead_bytes == bytes)
	{
		s->ahead = NULL;
		return data;
	}
	drop_ahead(s);
	return gk_alloc_kept(s->host, bytes);
}

/*
 * Have another thread find the next chunk's memory, if one may be used and rows are expected
 * for it.  If the rows end before, at most a quarter of the memory in use was asked for in
 * vain.
 */
static void
look_ahead(GkStore *s, const GkChunk *latest)
{
	size_t		bytes = gk_store_raw_bytes(s, latest->wide, next_rows(s));

	if (s->expected >= 0 && s->expected <= (double) s->pts.n + latest->stride)
		return;
	/* one thread has a second one while its device is opened; no chunk goes to the spill file for this */
	if ((gk_threads(s->host) == 1 && !gk_beside_running()) || bytes < AHEAD_BYTES || s->memory < 4 * bytes || s->memory + 3 * bytes > s->memory_limit)
		return;
	s->ahead = gk_alloc_kept(s->host, bytes);
	s->ahead_bytes = bytes;
	if (s->ahead != NULL)
		gk_alloc_soon(s->host, s->ahead, bytes);
}

static GkStatus
new_chunk(GkStore *s, GkChunk **out, GkError *err)
{
	GkChunk    *c;
	int			rows = next_rows(s);

	if (s->pts.nchunks == s->chunks_allocated)
	{
		int			n = s->chunks_allocated ? s->chunks_allocated * 2 : 16;
		GkChunk    *grown = gk_alloc(s->host, n, sizeof(GkChunk));

		if (grown == NULL)
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
		if (s->pts.nchunks > 0)
			memcpy(grown, s->pts.chunks, s->pts.nchunks * sizeof(GkChunk));
		gk_free(s->host, s->pts.chunks);
		s->pts.chunks = grown;
		s->chunks_allocated = n;
	}
	c = &s->pts.chunks[s->pts.nchunks];
	memset(c, 0, sizeof(GkChunk));
	c->first = s->pts.n;
	c->stride = rows;
	c->spill_at = c->spill_mind2 = -1;
	c->wide = gk_alloc(s->host, s->columns, sizeof(uint8_t));
	if (c->wide == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	memcpy(c->wide, s->wide, s->columns);
	c->bytes = gk_store_raw_bytes(s, c->wide, c->stride);
	c->data = chunk_memory(s, c->bytes);
	if (c->data == NULL)
	{
		gk_free(s->host, c->wide);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory allocating a chunk of %zu bytes", c->bytes);
	}
	s->memory += c->bytes;
	s->pts.nchunks++;
	look_ahead(s, c);
	*out = c;
	return GK_OK;
}

/* Copy a chunk's used rows into a block of another stride and other widths. */
static void
copy_raw(const GkStore *s, const GkChunk *c, char *to, const uint8_t *wide, int stride)
{
	const char *from = (const char *) c->data;

	for (int j = 0; j < s->columns + s->pts.naux; j++)
	{
		bool		was = j < s->columns && c->wide[j];
		bool		is = j < s->columns && wide[j];

		if (was == is)
			memmove(to, from, c->rows * gk_value_bytes(is));
		else
			for (int i = 0; i < c->rows; i++)
				((double *) to)[i] = ((const float *) from)[i];
		from += c->stride * gk_value_bytes(was);
		to += stride * gk_value_bytes(is);
	}
}

/* Give columns that do not fit float32 any more doubles from here on. */
static GkStatus
widen(GkStore *s, GkChunk *c, GkError *err)
{
	uint8_t    *wide;
	char	   *data;
	size_t		bytes;

	wide = gk_alloc(s->host, s->columns, sizeof(uint8_t));
	if (wide == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	memcpy(wide, s->wide, s->columns);
	bytes = gk_store_raw_bytes(s, wide, c->stride);
	data = gk_alloc_kept(s->host, bytes);
	if (data == NULL)
	{
		gk_free(s->host, wide);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory allocating a chunk of %zu bytes", bytes);
	}
	copy_raw(s, c, data, wide, c->stride);
	gk_free(s->host, c->data);
	gk_free(s->host, c->wide);
	s->memory += bytes - c->bytes;
	c->data = (float *) data;
	c->wide = wide;
	c->bytes = bytes;
	return GK_OK;
}

/* Does a full chunk go to the spill file?  Seeding takes one more column. */
static bool
over_limit(const GkStore *s)
{
	return s->memory + s->memory / (s->columns + s->pts.naux) > s->memory_limit && s->host->spill_write != NULL;
}

/* Close the chunk being filled: to the spill file with it when the store is over its limit. */
static GkStatus
seal(GkStore *s, GkError *err)
{
	GkChunk    *c = open_chunk(s);
	int			stride;

	if (c == NULL)
		return GK_OK;
	stride = gk_stride(c->rows);
	if (stride < c->stride)
	{
		/* Columns only move down, so in place and in order is safe. */
		copy_raw(s, c, (char *) c->data, c->wide, stride);
		c->stride = stride;
	}
	c->sealed = true;
	s->raw_bytes += c->bytes;
	if (over_limit(s))
	{
		size_t		bytes = gk_store_raw_bytes(s, c->wide, c->stride);

		if (!s->host->spill_write(s->host->ctx, s->spill_end, c->data, bytes))
			return gk_fail(err, GK_ERR_HOST, "could not write the spill file");
		c->spill_at = s->spill_end;
		s->spill_end += (int64_t) bytes;
		s->memory -= c->bytes;
		gk_free(s->host, c->data);
		c->data = NULL;
	}
	return GK_OK;
}

/* Remember columns that need doubles from here on; true when there are new ones. */
static bool
find_wide(GkStore *s, const GkBatch *b)
{
	bool		found = false;

	for (int j = 0; j < s->columns; j++)
		if (b->wide[j] && !s->wide[j])
		{
			s->wide[j] = true;
			found = true;
		}
	return found;
}

static GkStatus
chunk_take(GkStore *s, const GkBatch *b, const GkMover *mover, GkError *err)
{
	GkStatus	st = GK_OK;

	if (find_wide(s, b) && open_chunk(s) != NULL)
	{
		st = mover->finish(mover->arg);
		if (st == GK_OK)
			st = widen(s, open_chunk(s), err);
	}
	for (int done = 0, rows; st == GK_OK && done < b->rows; done += rows)
	{
		GkChunk    *c = open_chunk(s);

		if (c == NULL && (st = new_chunk(s, &c, err)) != GK_OK)
			return st;
		rows = b->rows - done < c->stride - c->rows ? b->rows - done : c->stride - c->rows;
		st = mover->move(mover->arg, &(GkMove) {b, done, rows, (char *) c->data, c->stride, c->wide, c->rows});
		c->rows += rows;
		s->pts.n += rows;
		if (st == GK_OK && c->rows == c->stride)
		{
			if (over_limit(s))
				st = mover->finish(mover->arg);
			if (st == GK_OK)
				st = seal(s, err);
		}
	}
	return st;
}

static GkStatus
chunk_finish(GkStore *s, GkError *err)
{
	drop_ahead(s);
	return seal(s, err);
}

void
gk_store_drop_chunks(GkStore *s)
{
	drop_ahead(s);
	for (int i = 0; i < s->pts.nchunks; i++)
	{
		gk_free(s->host, s->pts.chunks[i].data);
		gk_free(s->host, s->pts.chunks[i].wide);
	}
	s->pts.nchunks = 0;
	s->memory = 0;
	s->raw_bytes = 0;
}

const GkSink gk_chunk_sink = {true, chunk_take, chunk_finish, gk_store_convert, NULL};

/* ---- copying ---- */

/* Copies made at a time, and bytes of them that are worth waking threads. */
#define MOVES			128
#define THREADS_BYTES	((size_t) 384 << 10)

typedef struct Moves
{
	const GkStore *store;
	int			threads;		/* that may help */
	int			n;
	size_t		rows;
	GkMove		move[MOVES];
} Moves;

/* A chunk of fewer bytes is still in the cache when it is full and prepared. */
#define CACHED_BYTES	((size_t) 512 << 10)

/*
 * Store past the cache, unless the chunk stays there: such lines are not read first, which
 * took as long as storing them, and the first rows of a large chunk have left the cache
 * before it is full.
 */
static void
copy(char *to, const char *from, size_t bytes, bool cached)
{
#ifdef __SSE2__
	size_t		head = -(uintptr_t) to % GK_CACHE_LINE;

	if (!cached && bytes >= head + GK_CACHE_LINE)
	{
		memcpy(to, from, head);
		for (to += head, from += head, bytes -= head; bytes >= GK_CACHE_LINE;
			 to += GK_CACHE_LINE, from += GK_CACHE_LINE, bytes -= GK_CACHE_LINE)
			for (int i = 0; i < GK_CACHE_LINE; i += sizeof(__m128i))
				_mm_stream_si128((__m128i *) (to + i), _mm_loadu_si128((const __m128i *) (from + i)));
	}
#else
	(void) cached;
#endif
	memcpy(to, from, bytes);
}

static void
copy_values(char *to, bool wide, const char *from, bool from_wide, size_t n, bool cached)
{
	if (from_wide == wide)
		copy(to, from, n * gk_value_bytes(wide), cached);
	else
		for (size_t i = 0; i < n; i++)
			((double *) to)[i] = ((const float *) from)[i];
}

/* Before other threads are told of a copy. */
static void
copied(void)
{
#ifdef __SSE2__
	_mm_sfence();
#endif
}

void
gk_copy_values(char *to, bool wide, const char *from, bool from_wide, size_t n)
{
	copy_values(to, wide, from, from_wide, n, false);
	copied();
}

/* Copy rows of a batch's column to those of a chunk's column at `to`. */
static void
move_column(const GkMove *m, int column, char *to, bool wide, bool cached)
{
	bool		from_wide = m->batch->wide[column];
	const char *from = gk_batch_column(m->batch, column);

	copy_values(to + m->to * gk_value_bytes(wide), wide, from + m->from * gk_value_bytes(from_wide), from_wide, m->rows, cached);
}

void
gk_store_move(const GkStore *s, const GkMove *m)
{
	char	   *to = m->data;
	bool		cached = (size_t) m->stride * (s->columns + s->pts.naux) * sizeof(float) < CACHED_BYTES;

	for (int j = 0; j < s->columns; j++)
	{
		move_column(m, j, to, m->wide[j], cached);
		to += m->stride * gk_value_bytes(m->wide[j]);
	}
	for (int a = 0; a < s->pts.naux; a++)
	{
		copy(to + m->to * sizeof(uint32_t), (const char *) (gk_batch_aux(m->batch, a) + m->from),
			 m->rows * sizeof(uint32_t), cached);
		to += m->stride * sizeof(uint32_t);
	}
	copied();
}

static void
move_job(void *arg, int64_t job, int thread)
{
	const Moves *moves = arg;

	(void) thread;
	gk_store_move(moves->store, &moves->move[job]);
}

static GkStatus
make_moves(void *arg)
{
	Moves	   *moves = arg;
	const GkStore *s = moves->store;
	GkHost		host = *s->host;
	int			n = moves->n;
	size_t		bytes = moves->rows * (s->columns + s->pts.naux) * sizeof(float);

	moves->n = 0;
	moves->rows = 0;
	host.threads = moves->threads;
	if (bytes >= THREADS_BYTES)
		return gk_parallel_for(&host, n, move_job, moves) ? GK_OK : GK_STOPPED;
	for (int i = 0; i < n; i++)
		move_job(moves, i, 0);
	return GK_OK;
}

static GkStatus
collect_move(void *arg, const GkMove *move)
{
	Moves	   *moves = arg;

	moves->move[moves->n++] = *move;
	moves->rows += move->rows;
	return moves->n == MOVES ? make_moves(moves) : GK_OK;
}

/* ---- rows in ---- */

GkStatus
gk_store_add_by(GkStore *store, const GkBatch *b, const GkMover *mover, GkError *err)
{
	if (store->pts.n + b->rows > GK_MAX_ROWS)
		return gk_fail(err, GK_ERR_LIMIT, "more than %lld rows", (long long) GK_MAX_ROWS);
	if (store->sink->take == NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "this store takes no rows");
	if (store->ask != NULL)
	{
		GkStatus	st;

		/* a chunk that is over the limit goes to the spill file when it is full */
		store->mover = mover;
		st = store->ask(store->ask_arg, over_limit(store), err);
		store->mover = NULL;
		if (st != GK_OK)
			return st;
	}
	return store->sink->take(store, b, mover, err);
}

GkStatus
gk_store_add(GkStore *store, const GkBatch *batches, int n, int threads, GkError *err)
{
	Moves		moves = {.store = store,.threads = threads};
	GkMover		mover = {collect_move, make_moves, &moves};
	GkStatus	st = GK_OK;

	for (int i = 0; st == GK_OK && i < n; i++)
		st = gk_store_add_by(store, &batches[i], &mover, err);
	return st == GK_OK ? make_moves(&moves) : st;
}

GkStatus
gk_store_commit(GkStore *store, GkError *err)
{
	GkStatus	st;

	if (store->sink->observed)
		gk_batch_observe(&store->batch, store->stats);
	st = gk_store_add(store, &store->batch, 1, 1, err);
	store->batch.rows = 0;
	return st;
}

void
gk_store_observed(GkStore *store, const GkColumnStats *stats)
{
	gk_stats_merge(store->stats, stats, store->columns);
}
