/*
 * gk_load.c - rows into the store: staging columns become chunks.
 *
 * A column of a chunk is float32 as long as every value is one exactly, float64
 * from the first other value on.  A full chunk goes to the spill file when the
 * store is over its memory limit.
 */
#include <math.h>
#include <string.h>

#include "core/gk_store.h"

/* The first chunk is small and each further one twice as large, up to chunk_rows:
 * a table of 150 rows does not pay for 16 MB. */
#define FIRST_CHUNK_ROWS	4096

static size_t
round_up(size_t v)
{
	return (v + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
}

static size_t
raw_bytes(const GkStore *s, const uint8_t *wide, int stride)
{
	size_t		values = s->pts.naux;

	for (int j = 0; j < s->columns; j++)
		values += wide[j] ? 2 : 1;
	return values * stride * sizeof(float);
}

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

static GkStatus
new_chunk(GkStore *s, GkChunk **out, GkError *err)
{
	GkChunk    *c;
	int			rows = s->pts.nchunks == 0 ? FIRST_CHUNK_ROWS : 0;

	if (s->pts.nchunks > 0)
	{
		int			last = s->pts.chunks[s->pts.nchunks - 1].stride;

		rows = last > s->chunk_rows / 2 ? s->chunk_rows : last * 2;
	}
	if (rows > s->chunk_rows)
		rows = s->chunk_rows;
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
	for (int j = 0; j < s->columns; j++)
		c->wide[j] = s->wide[j];
	c->bytes = raw_bytes(s, c->wide, c->stride);
	c->data = gk_alloc(s->host, c->bytes, 1);
	if (c->data == NULL)
	{
		gk_free(s->host, c->wide);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory allocating a chunk of %zu bytes", c->bytes);
	}
	s->memory += c->bytes;
	s->pts.nchunks++;
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
			memmove(to, from, (size_t) c->rows * (is ? 8 : 4));
		else
			for (int i = 0; i < c->rows; i++)
				((double *) to)[i] = ((const float *) from)[i];
		from += (size_t) c->stride * (was ? 8 : 4);
		to += (size_t) stride * (is ? 8 : 4);
	}
}

/* Some columns of the batch do not fit float32: give them doubles from here on. */
static GkStatus
widen(GkStore *s, GkChunk *c, GkError *err)
{
	uint8_t    *wide = gk_alloc(s->host, s->columns, sizeof(uint8_t));
	char	   *data;
	size_t		bytes;

	if (wide == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	for (int j = 0; j < s->columns; j++)
		wide[j] = s->wide[j];
	bytes = raw_bytes(s, wide, c->stride);
	data = gk_alloc(s->host, bytes, 1);
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

/* ---- statistics ---- */

/* Rows of one job, and from how many columns on a job takes a whole column. */
#define SEGMENT_ROWS	(16 * GK_COLUMN_BLOCK)
#define MANY_COLUMNS	64

typedef struct Observe
{
	const GkStore *store;
	const GkChunk *chunk;
	int			segments;		/* per column */
	GkColumnStats *stats;		/* [threads][columns], or [columns] with one segment */
} Observe;

static void
observe_segment(void *arg, int64_t job, int thread)
{
	const Observe *o = arg;
	const GkChunk *c = o->chunk;
	int			column = (int) (job / o->segments);
	int			first = (int) (job % o->segments) * SEGMENT_ROWS;
	int			end = o->segments == 1 || first + SEGMENT_ROWS > c->rows ? c->rows : first + SEGMENT_ROWS;
	GkColumnStats *s = &o->stats[o->segments == 1 ? column : thread * o->store->columns + column];
	const char *at = (const char *) c->data;

	for (int j = 0; j < column; j++)
		at += (size_t) c->stride * (c->wide[j] ? 8 : 4);
	for (int row = first; row < end; row += GK_COLUMN_BLOCK)
	{
		int			n = end - row < GK_COLUMN_BLOCK ? end - row : GK_COLUMN_BLOCK;
		double		x[GK_COLUMN_BLOCK];

		if (c->wide[column])
			gk_columns()->observe(s, (const double *) at + row, n);
		else
		{
			for (int i = 0; i < n; i++)
				x[i] = ((const float *) at)[row + i];
			gk_columns()->observe(s, x, n);
		}
	}
}

/* Minimum, maximum and exact sum of the chunk's columns, added to the store's. */
static GkStatus
observe_chunk(GkStore *s, const GkChunk *c, GkError *err)
{
	int			slots = s->columns >= MANY_COLUMNS ? 1 : gk_threads(s->host);
	Observe		o = {.store = s,.chunk = c,.segments = 1};

	if (s->columns < MANY_COLUMNS)
		o.segments = (c->rows + SEGMENT_ROWS - 1) / SEGMENT_ROWS;
	o.stats = gk_alloc(s->host, (size_t) slots * s->columns, sizeof(GkColumnStats));
	if (o.stats == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	gk_column_stats_clear(o.stats, (size_t) slots * s->columns);
	if (!gk_parallel_for(s->host, (int64_t) s->columns * o.segments, observe_segment, &o))
	{
		gk_free(s->host, o.stats);
		return GK_STOPPED;
	}
	for (int i = 0; i < (o.segments == 1 ? 1 : slots); i++)
		for (int j = 0; j < s->columns; j++)
			gk_column_stats_merge(&s->stats[j], &o.stats[i * s->columns + j]);
	gk_free(s->host, o.stats);
	return GK_OK;
}

GkStatus
gk_store_seal(GkStore *store, GkError *err)
{
	GkChunk    *c = open_chunk(store);
	int			stride;
	GkStatus	st;

	if (c == NULL)
		return GK_OK;
	stride = (int) round_up(c->rows);
	if (stride < c->stride)
	{
		/* Columns only move down, so in place and in order is safe. */
		copy_raw(store, c, (char *) c->data, c->wide, stride);
		c->stride = stride;
	}
	c->sealed = true;
	if ((st = observe_chunk(store, c, err)) != GK_OK)
		return st;
	if (store->memory > store->memory_limit && store->host->spill_write != NULL)
	{
		size_t		bytes = raw_bytes(store, c->wide, c->stride);

		if (!store->host->spill_write(store->host->ctx, store->spill_end, c->data, bytes))
			return gk_fail(err, GK_ERR_HOST, "could not write the spill file");
		c->spill_at = store->spill_end;
		store->spill_end += (int64_t) bytes;
		store->memory -= c->bytes;
		gk_free(store->host, c->data);
		c->data = NULL;
	}
	return GK_OK;
}

/* ---- rows in ---- */

/* Remember columns that need doubles from here on; true when there are new ones. */
static bool
find_wide(GkStore *s, int rows)
{
	bool		found = false;

	for (int j = 0; j < s->columns; j++)
		if (!s->wide[j] && !gk_columns()->fits_float(gk_store_stage(s, j), rows))
			found = s->wide[j] = true;
	return found;
}

GkStatus
gk_store_commit(GkStore *store, int rows, GkError *err)
{
	int			done = 0;

	if (store->pts.n + rows > GK_MAX_ROWS)
		return gk_fail(err, GK_ERR_LIMIT, "more than %lld rows", (long long) GK_MAX_ROWS);
	if (store->take != NULL)
	{
		store->pts.n += rows;
		return store->take(store->take_arg, store, rows, err);
	}
	if (find_wide(store, rows) && open_chunk(store) != NULL)
	{
		GkStatus	st = widen(store, open_chunk(store), err);

		if (st != GK_OK)
			return st;
	}
	while (done < rows)
	{
		GkChunk    *c = open_chunk(store);
		int			take;
		char	   *at;
		GkStatus	st;

		if (c == NULL && (st = new_chunk(store, &c, err)) != GK_OK)
			return st;
		take = rows - done;
		if (take > c->stride - c->rows)
			take = c->stride - c->rows;
		at = (char *) c->data;
		for (int j = 0; j < store->columns; j++)
		{
			const double *x = gk_store_stage(store, j) + done;

			if (c->wide[j])
				memcpy((double *) at + c->rows, x, take * sizeof(double));
			else
			{
				float	   *f = (float *) at + c->rows;

				for (int i = 0; i < take; i++)
					f[i] = (float) x[i];
			}
			at += (size_t) c->stride * (c->wide[j] ? 8 : 4);
		}
		for (int a = 0; a < store->pts.naux; a++)
		{
			memcpy((uint32_t *) at + c->rows, gk_store_stage_aux(store, a) + done, take * sizeof(uint32_t));
			at += (size_t) c->stride * 4;
		}
		c->rows += take;
		done += take;
		store->pts.n += take;
		if (c->rows == c->stride && (st = gk_store_seal(store, err)) != GK_OK)
			return st;
	}
	return GK_OK;
}
