/*
 * gk_gather.c - some rows of a store into a store of one chunk, column by column: both are
 * gone through in order, so that the cache and the system's pages are used well.
 */
#include "core/gk_numerics.h"
#include "core/store/gk_store.h"

typedef struct Gather
{
	GkChunkStore *to;
	const GkChunk *from;
	const int64_t *row;			/* of the store */
	int			n;
} Gather;

static void
gather_column(void *arg, int64_t j, int thread)
{
	const Gather *g = arg;
	const float *from = g->from->data + (size_t) j * g->from->stride;
	float	   *to = g->to->chunk->data + (size_t) j * g->to->chunk->stride + g->to->fill;

	(void) thread;
	for (int i = 0; i < g->n; i++)
		to[i] = from[g->row[i] - g->from->first];
}

GkStatus
gk_chunk_store_gather(GkChunkStore *o, GkStore *from, const int64_t *row, int n, GkError *err)
{
	GkStore    *to = o->store;
	int			columns = to->columns < from->columns ? to->columns : from->columns;

	for (int c = 0; c < from->pts.nchunks && n > 0; c++)
	{
		GkChunk		view;
		Gather		g = {o, &view, row, 0};
		int64_t		end = from->pts.chunks[c].first + from->pts.chunks[c].rows;
		GkStatus	st;

		while (g.n < n && row[g.n] < end)
			g.n++;
		if (g.n == 0)
			continue;
		if ((st = gk_chunk_open(from, c, GK_READ_FEATURES, &view, err)) != GK_OK)
			return st;
		if (!gk_parallel_for(to->host, columns, gather_column, &g))
			return GK_STOPPED;
		if (to->host->poll != NULL && to->host->poll(to->host->ctx))
			return GK_STOPPED;
		row += g.n;
		n -= g.n;
		o->fill += g.n;
	}
	return GK_OK;
}

/* ---- totals ---- */

gk_int128
gk_chunk_sum(const GkPoints *pts, const GkChunk *chunk, int rows, int j)
{
	const float *x = chunk->data + (size_t) j * chunk->stride;
	const float *w = gk_chunk_weight(pts, chunk);
	double		inv = gk_pow2(GK_GRID_BITS - pts->prep.expo[j]);
	GkMoments	m = {0};

	for (int i = 0; w != NULL && i < rows; i++)
		m.sum += (gk_int128) gk_fixed(x[i], inv) * gk_fixed(w[i], 0x1p40);
	for (int i = 0; w == NULL && i < rows; i += GK_COLUMN_BLOCK)
		gk_columns()->moments(&m, x + i, rows - i < GK_COLUMN_BLOCK ? rows - i : GK_COLUMN_BLOCK, pts->prep.expo[j]);
	return m.sum;
}

gk_int128
gk_chunk_mass(const GkPoints *pts, const GkChunk *chunk, int rows)
{
	const float *w = gk_chunk_weight(pts, chunk);
	gk_int128	mass = w == NULL ? rows : 0;

	for (int i = 0; w != NULL && i < rows; i++)
		mass += gk_fixed(w[i], 0x1p40);
	return mass;
}

static void
total_column(void *arg, int64_t j, int thread)
{
	const GkChunkStore *o = arg;
	GkPoints   *pts = &o->store->pts;

	(void) thread;
	pts->total_sum[j] = gk_chunk_sum(pts, o->chunk, o->fill, (int) j);
}

GkStatus
gk_chunk_store_total(GkChunkStore *o)
{
	GkPoints   *pts = &o->store->pts;

	pts->total_mass = gk_chunk_mass(pts, o->chunk, o->fill);
	return gk_parallel_for(o->store->host, pts->d, total_column, o) ? GK_OK : GK_STOPPED;
}
