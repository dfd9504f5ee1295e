/*
 * gk_ingest.c - the sink of rows that go to a device while they are read, and stay nowhere
 * else.
 *
 * Rows are copied straight into memory that the device fetches from, which is sent when it
 * is full.  The device prepares the points when all are there.  No copy in main memory is
 * allocated, filled, prepared and read again: that is most of what loading takes besides
 * the reading.
 *
 * Rows that came before the device was open are in chunks.  They are sent first, and stay in
 * the chunks until all of them are there.
 *
 * If the device fails, the rows are lost.  Those that still come are dropped, and
 * gk_store_prepare() returns the device's error; the caller reads the rows once more, into
 * chunks.
 */
#include <string.h>

#include "core/gk_backend.h"
#include "core/store/gk_store.h"

/* Rows that are dropped at a time. */
#define LOST_ROWS		4096
/* Rows of a column that a thread copies at a time. */
#define COPY_ROWS		16384

typedef struct GkIngest
{
	GkError		lost;			/* why there is no session any more */
	void	   *lost_rows;		/* where rows are dropped */
	/* Memory for the next rows, the device's or lost_rows; NULL: to be asked for. */
	void	   *room;
	int			stride;
	int			most;			/* rows that it takes */
	int			rows;			/* in it */
	double		ms;				/* opening the device and preparing the points there */
} GkIngest;

/* Return a status of the device's, but keep a failure of it for gk_store_prepare(). */
static GkStatus
keep_failure(GkStore *s, GkStatus st, const GkError *err)
{
	GkIngest   *in = s->state;

	if (st != GK_ERR_DEVICE && st != GK_ERR_DEVICE_MEMORY)
		return st;
	in->lost = *err;
	s->reader->close(gk_ingest_take(s));
	return GK_OK;
}

static GkStatus
find_room(GkStore *s, GkError *err)
{
	GkIngest   *in = s->state;

	in->rows = 0;
	if (s->session != NULL)
	{
		GkStatus	st = s->reader->ingest->room(s->session, &in->room, &in->stride, &in->most, err);

		if ((st = keep_failure(s, st, err)) != GK_OK || s->session != NULL)
			return st;
	}
	if (in->lost_rows == NULL)
		in->lost_rows = gk_alloc(s->host, (size_t) s->columns * LOST_ROWS, sizeof(double));
	if (in->lost_rows == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	in->room = in->lost_rows;
	in->stride = in->most = LOST_ROWS;
	return GK_OK;
}

static GkStatus
send(GkStore *s, GkError *err)
{
	GkIngest   *in = s->state;

	in->room = NULL;
	if (s->session == NULL)
		return GK_OK;
	return keep_failure(s, s->reader->ingest->send(s->session, in->rows, err), err);
}

static GkStatus
ingest_take(GkStore *s, const GkBatch *b, const GkMover *mover, GkError *err)
{
	GkIngest   *in = s->state;
	GkStatus	st = GK_OK;

	for (int j = 0; j < s->columns; j++)
		if (b->wide[j] && !s->wide[j])
			return gk_fail(err, GK_ERR_INTERNAL, "rows that go to a device as floats must be floats");
	for (int done = 0, rows; st == GK_OK && done < b->rows; done += rows)
	{
		if (in->room == NULL && (st = find_room(s, err)) != GK_OK)
			return st;
		rows = b->rows - done < in->most - in->rows ? b->rows - done : in->most - in->rows;
		st = mover->move(mover->arg, &(GkMove) {b, done, rows, in->room, in->stride, s->wide, in->rows});
		in->rows += rows;
		s->pts.n += rows;
		if (st == GK_OK && in->rows == in->most)
		{
			st = mover->finish(mover->arg);
			if (st == GK_OK)
				st = send(s, err);
		}
	}
	return st;
}

static GkStatus
ingest_finish(GkStore *s, GkError *err)
{
	GkIngest   *in = s->state;

	return in->room != NULL ? send(s, err) : GK_OK;
}

static GkStatus
ingest_prepare(GkStore *s, const GkPrep *prep, bool keep, GkMoments *moments, gk_int128 *mass, GkError *err)
{
	GkIngest   *in = s->state;
	double		start = gk_now_ms();
	GkStatus	st = GK_OK;

	if (!keep || moments == NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "the device prepares its rows only to keep them");
	*mass = (gk_int128) s->pts.n;
	if (s->session != NULL)
		st = keep_failure(s, s->reader->ingest->prepare(s->session, prep, moments, err), err);
	in->ms += gk_now_ms() - start;
	if (st == GK_OK && s->session == NULL)
	{
		*err = in->lost;
		st = err->code;
	}
	return st;
}

static void
ingest_end(GkStore *s)
{
	GkIngest   *in = s->state;

	if (in == NULL)
		return;
	s->reader->close(gk_ingest_take(s));
	gk_free(s->host, in->lost_rows);
	gk_free(s->host, in);
	s->state = NULL;
}

static const GkSink ingest_sink = {true, ingest_take, ingest_finish, ingest_prepare, ingest_end};

/* ---- rows that are in chunks ---- */

typedef struct Copy
{
	const GkStore *store;
	const GkChunk *chunk;
	int			from;
	int			rows;
	char	   *room;			/* for the first of them */
	int			stride;
	bool		wide;
	int			blocks;
} Copy;

static void
copy_block(void *arg, int64_t job, int thread)
{
	const Copy *c = arg;
	int			column = (int) (job / c->blocks);
	int			first = (int) (job % c->blocks) * COPY_ROWS;
	int			rows = c->rows - first < COPY_ROWS ? c->rows - first : COPY_ROWS;
	const char *from = (const char *) c->chunk->data;
	bool		from_wide = c->chunk->wide[column];

	(void) thread;
	for (int j = 0; j < column; j++)
		from += c->chunk->stride * gk_value_bytes(c->chunk->wide[j]);
	gk_copy_values(c->room + ((size_t) column * c->stride + first) * gk_value_bytes(c->wide), c->wide,
				   from + (c->from + first) * gk_value_bytes(from_wide), from_wide, rows);
}

static GkStatus
send_chunk(GkStore *s, const GkChunk *chunk, bool wide, GkError *err)
{
	GkIngest   *in = s->state;
	GkStatus	st = GK_OK;

	for (int j = 0; j < s->columns; j++)
		if (chunk->wide[j] && !wide)
			return gk_fail(err, GK_ERR_INTERNAL, "rows that go to a device as floats must be floats");
	for (int done = 0, rows; st == GK_OK && done < chunk->rows; done += rows)
	{
		Copy		c = {.store = s,.chunk = chunk,.from = done,.wide = wide};

		if (in->room == NULL && (st = find_room(s, err)) != GK_OK)
			return st;
		rows = chunk->rows - done < in->most - in->rows ? chunk->rows - done : in->most - in->rows;
		c.rows = rows;
		c.room = (char *) in->room + in->rows * gk_value_bytes(wide);
		c.stride = in->stride;
		c.blocks = (rows + COPY_ROWS - 1) / COPY_ROWS;
		if (!gk_parallel_for(s->host, (int64_t) s->columns * c.blocks, copy_block, &c))
			return GK_STOPPED;
		in->rows += rows;
		if (in->rows == in->most)
			st = send(s, err);
		if (st == GK_OK && s->session == NULL)
		{
			*err = in->lost;
			st = err->code;
		}
	}
	return st;
}

static GkStatus
send_chunks(GkStore *s, bool wide, GkError *err)
{
	GkStatus	st = s->mover != NULL ? s->mover->finish(s->mover->arg) : GK_OK;

	for (int i = 0; st == GK_OK && i < s->pts.nchunks; i++)
		st = send_chunk(s, &s->pts.chunks[i], wide, err);
	return st;
}

bool
gk_store_can_ingest(const GkStore *store)
{
	return store->sink == &gk_chunk_sink && store->spill_end == 0 && !store->pts.weighted && store->pts.naux == 0;
}

GkStatus
gk_store_ingest(GkStore *store, const GkBackend *backend, bool wide, GkError *err)
{
	const GkHost *host = store->host;
	GkProblem	problem = gk_problem(store, 0, 0);
	double		start = gk_now_ms();
	double		expected = store->expected > (double) store->pts.n ? store->expected : (double) store->pts.n;
	GkIngest   *in;
	GkStatus	st;

	if (!gk_store_can_ingest(store) || backend->ingest == NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "these rows cannot go to a device as they come");
	in = gk_alloc0(host, 1, sizeof(GkIngest));
	if (in == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	store->state = in;
	store->reader = backend;
	st = backend->ingest->open(&problem, (int64_t) expected, wide, &store->session, err);
	in->ms = gk_now_ms() - start;
	if (st == GK_OK)
		st = send_chunks(store, wide, err);
	if (st != GK_OK)
	{
		ingest_end(store);
		store->reader = NULL;
		return st;
	}
	gk_store_drop_chunks(store);
	memset(store->wide, wide, store->columns);
	store->sink = &ingest_sink;
	return GK_OK;
}

double
gk_store_ingest_ms(const GkStore *store)
{
	const GkIngest *in = store->sink == &ingest_sink ? store->state : NULL;

	return in != NULL ? in->ms : 0.0;
}

GkSession *
gk_ingest_take(GkStore *store)
{
	GkSession  *session = store->session;

	store->session = NULL;
	return session;
}

void
gk_store_ingest_end(GkStore *store)
{
	if (store->sink == &ingest_sink)
		ingest_end(store);
}
