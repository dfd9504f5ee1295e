/*
 * gk_store.c - the points: column-major chunks in memory and in a spill file.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/gk_store.h"

/* The first chunk is small and each further one twice as large, up to chunk_rows:
 * a table of 150 rows does not pay for 16 MB. */
#define FIRST_CHUNK_ROWS	4096
#define STAGE_VALUES		(128 * 1024)

static size_t
round_up(size_t v)
{
	return (v + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
}

GkStatus
gk_store_create(const GkHost *host, int d, bool weighted, int naux,
				size_t chunk_bytes, size_t memory_limit,
				GkStore **out, GkError *err)
{
	GkStore    *s;
	size_t		row_bytes = (size_t) (d + (weighted ? 1 : 0) + naux) * sizeof(float);
	size_t		rows;

	*out = NULL;
	if (d < 1 || d > GK_MAX_D)
		return gk_fail(err, GK_ERR_LIMIT, "number of features %d is not between 1 and %d", d, GK_MAX_D);
	if (naux < 0 || naux > GK_MAX_AUX)
		return gk_fail(err, GK_ERR_INTERNAL, "%d auxiliary columns, at most %d", naux, GK_MAX_AUX);

	s = gk_alloc0(host, 1, sizeof(GkStore));
	if (s == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	s->host = host;
	s->pts.d = d;
	s->pts.weighted = weighted;
	s->pts.naux = naux;
	s->columns = d + (weighted ? 1 : 0);
	s->memory_limit = memory_limit;

	/* A quarter of the limit per chunk, so that two views and a chunk being
	 * filled stay within it. */
	if (chunk_bytes > memory_limit / 4)
		chunk_bytes = memory_limit / 4;
	rows = chunk_bytes / row_bytes / GK_ROW_PAD * GK_ROW_PAD;
	if (rows < GK_ROW_PAD)
		rows = GK_ROW_PAD;
	if (rows > (size_t) GK_INT64_ROWS)
		rows = (size_t) GK_INT64_ROWS;
	s->chunk_rows = (int) rows;
	s->batch_rows = STAGE_VALUES / s->columns;
	if (s->batch_rows > GK_WIDE_BLOCK)
		s->batch_rows = GK_WIDE_BLOCK;
	if (s->batch_rows < 16)
		s->batch_rows = 16;

	s->stage = gk_alloc(host, (size_t) s->columns * s->batch_rows, sizeof(double));
	s->stage_aux = gk_alloc(host, (size_t) naux * s->batch_rows + 1, sizeof(uint32_t));
	s->wide = gk_alloc0(host, s->columns, sizeof(bool));
	s->min = gk_alloc(host, s->columns, sizeof(double));
	s->max = gk_alloc(host, s->columns, sizeof(double));
	s->sum = gk_alloc0(host, s->columns, sizeof(GkWide));
	s->pts.prep.d = d;
	s->pts.prep.center = gk_alloc0(host, d, sizeof(double));
	s->pts.prep.scale = gk_alloc0(host, d, sizeof(double));
	s->pts.prep.expo = gk_alloc0(host, d, sizeof(int32_t));
	s->pts.total_sum = gk_alloc0(host, d, sizeof(gk_int128));
	if (!s->stage || !s->stage_aux || !s->wide || !s->min || !s->max || !s->sum ||
		!s->pts.prep.center || !s->pts.prep.scale || !s->pts.prep.expo || !s->pts.total_sum)
	{
		gk_store_free(s);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	for (int j = 0; j < s->columns; j++)
	{
		s->min[j] = INFINITY;
		s->max[j] = -INFINITY;
	}
	*out = s;
	return GK_OK;
}

void
gk_store_free(GkStore *store)
{
	const GkHost *host;

	if (store == NULL)
		return;
	host = store->host;
	for (int i = 0; i < store->pts.nchunks; i++)
	{
		gk_free(host, store->pts.chunks[i].data);
		gk_free(host, store->pts.chunks[i].mind2);
		gk_free(host, store->pts.chunks[i].wide);
	}
	gk_free(host, store->pts.chunks);
	for (int i = 0; i < 2; i++)
	{
		gk_free(host, store->view_data[i]);
		gk_free(host, store->view_mind2[i]);
	}
	gk_free(host, store->stage);
	gk_free(host, store->stage_aux);
	gk_free(host, store->wide);
	gk_free(host, store->min);
	gk_free(host, store->max);
	gk_free(host, store->sum);
	gk_free(host, store->pts.prep.center);
	gk_free(host, store->pts.prep.scale);
	gk_free(host, store->pts.prep.expo);
	gk_free(host, store->pts.total_sum);
	gk_free(host, store);
}

int
gk_store_batch_rows(const GkStore *store)
{
	return store->batch_rows;
}

double *
gk_store_stage(GkStore *store, int column)
{
	return store->stage + (size_t) column * store->batch_rows;
}

uint32_t *
gk_store_stage_aux(GkStore *store, int aux)
{
	return store->stage_aux + (size_t) aux * store->batch_rows;
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

size_t
gk_store_memory(const GkStore *store)
{
	return store->memory;
}

size_t
gk_store_spilled(const GkStore *store)
{
	return (size_t) store->spill_end;
}

const GkPoints *
gk_store_points(GkStore *store)
{
	return &store->pts;
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

/* ---- loading ---- */

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
	return (c->spill_at < 0 && c->rows < c->stride) ? c : NULL;
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

/* Full, or the last: cut to its rows, and out to the spill file when over the limit. */
GkStatus
gk_store_seal(GkStore *store, GkError *err)
{
	GkChunk    *c;
	int			stride;

	if (store->pts.nchunks == 0)
		return GK_OK;
	c = &store->pts.chunks[store->pts.nchunks - 1];
	if (c->spill_at >= 0)
		return GK_OK;
	stride = (int) round_up(c->rows);
	if (stride < c->stride)
	{
		/* Columns only move down, so in place and in order is safe. */
		copy_raw(store, c, (char *) c->data, c->wide, stride);
		c->stride = stride;
	}
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

/* Statistics of the batch; true when a column needs doubles that had none. */
static bool
observe(GkStore *s, int rows)
{
	bool		need = false;

	for (int j = 0; j < s->columns; j++)
	{
		const double *x = gk_store_stage(s, j);
		double		lo = s->min[j];
		double		hi = s->max[j];
		int			inexact = 0;

		for (int i = 0; i < rows; i++)
		{
			lo = x[i] < lo ? x[i] : lo;
			hi = x[i] > hi ? x[i] : hi;
			inexact |= (double) (float) x[i] != x[i];
		}
		s->min[j] = lo;
		s->max[j] = hi;
		gk_wide_add_block(&s->sum[j], x, rows);
		if (inexact && !s->wide[j])
			need = s->wide[j] = true;
	}
	return need;
}

GkStatus
gk_store_commit(GkStore *store, int rows, GkError *err)
{
	int			done = 0;

	if (store->pts.n + rows > GK_MAX_ROWS)
		return gk_fail(err, GK_ERR_LIMIT, "more than %lld rows", (long long) GK_MAX_ROWS);
	if (rows > 0 && observe(store, rows) && open_chunk(store) != NULL)
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

/* ---- reading ---- */

static GkStatus
view_buffers(GkStore *s, bool mind2, GkError *err)
{
	int			stride = 0;

	for (int i = 0; i < s->pts.nchunks; i++)
		if (s->pts.chunks[i].stride > stride)
			stride = s->pts.chunks[i].stride;
	for (int b = 0; b < 2; b++)
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

GkStatus
gk_chunk_open(GkStore *store, int index, bool mind2, GkChunk *view, GkError *err)
{
	const GkChunk *c = &store->pts.chunks[index];
	const GkHost *host = store->host;
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
	if (!host->spill_read(host->ctx, c->spill_at, view->data, gk_store_chunk_bytes(store, c->stride)))
		return gk_fail(err, GK_ERR_HOST, "could not read the spill file");
	if (mind2)
	{
		view->mind2 = store->view_mind2[b];
		if (!c->mind2_written)
			for (int i = 0; i < c->stride; i++)
				view->mind2[i] = INFINITY;
		else if (!host->spill_read(host->ctx, c->spill_mind2, view->mind2, c->stride * sizeof(float)))
			return gk_fail(err, GK_ERR_HOST, "could not read the spill file");
	}
	return GK_OK;
}

GkStatus
gk_chunk_close(GkStore *store, int index, GkChunk *view, bool dirty_mind2, GkError *err)
{
	GkChunk    *c = &store->pts.chunks[index];
	const GkHost *host = store->host;

	if (c->data != NULL || !dirty_mind2)
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

GkStatus
gk_store_mind2_begin(GkStore *store, GkError *err)
{
	gk_store_mind2_end(store);
	store->mind2 = true;
	for (int i = 0; i < store->pts.nchunks; i++)
	{
		GkChunk    *c = &store->pts.chunks[i];

		if (c->data == NULL)
			continue;
		c->mind2 = gk_alloc(store->host, c->stride, sizeof(float));
		if (c->mind2 == NULL)
		{
			gk_store_mind2_end(store);
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
		}
		for (int r = 0; r < c->stride; r++)
			c->mind2[r] = INFINITY;
	}
	return GK_OK;
}

void
gk_store_mind2_end(GkStore *store)
{
	if (!store->mind2)
		return;
	store->mind2 = false;
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
	for (int j = 0; j < store->pts.d; j++)
	{
		size_t		index = (size_t) j * c->stride + at;

		if (c->data != NULL)
			out[j] = c->data[index];
		else if (!store->host->spill_read(store->host->ctx, c->spill_at + (int64_t) (index * sizeof(float)),
										  &out[j], sizeof(float)))
			return gk_fail(err, GK_ERR_HOST, "could not read the spill file");
	}
	return GK_OK;
}
