/*
 * gk_part.c - a run of rows of a prepared store as a store of its own, for a device that computes
 * a part of each pass (core/spread).
 *
 * Its chunks are those of the other store, or some tiles of one, where they lie: a chunk in memory
 * is cut between two tiles, one in the spill file is not cut.  Its rows are numbered from 0.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "core/store/gk_store.h"

/* Chunks of a part that make it round its end to whole ones: a GPU that streams pins them. */
#define MANY_CHUNKS		16

int64_t
gk_store_edge(const GkStore *store, int64_t row, int parts)
{
	const GkPoints *p = &store->pts;

	if (row <= 0 || row >= p->n)
		return row <= 0 ? 0 : p->n;
	for (int i = 0; i < p->nchunks; i++)
	{
		const GkChunk *c = &p->chunks[i];
		int64_t		at = row - c->first;

		if (at >= c->rows)
			continue;
		if (c->data == NULL || p->nchunks >= MANY_CHUNKS * parts)
			return at < c->rows / 2 ? c->first : c->first + c->rows;
		at = (at + GK_ROW_PAD / 2) / GK_ROW_PAD * GK_ROW_PAD;
		return c->first + (at < c->rows ? at : c->rows);
	}
	return p->n;
}

/* ---- totals ---- */

typedef struct Totals
{
	const GkPoints *pts;
	const GkChunk *chunk;
	gk_int128  *sum;			/* [chunks][d + 1]: the last is the mass */
} Totals;

static void
total_of_column(void *arg, int64_t job, int thread)
{
	const Totals *t = arg;
	int			d = t->pts->d;
	const GkChunk *c = &t->chunk[job / (d + 1)];
	int			j = (int) (job % (d + 1));

	(void) thread;
	t->sum[job] = j < d ? gk_chunk_sum(t->pts, c, c->rows, j) : gk_chunk_mass(t->pts, c, c->rows);
}

/* Add up the totals of n chunks that are in memory. */
static GkStatus
add_totals(GkPoints *pts, const GkHost *host, const GkChunk *chunk, int n, GkError *err)
{
	int			d = pts->d;
	Totals		t = {pts, chunk, gk_alloc(host, (size_t) n * (d + 1), sizeof(gk_int128))};
	bool		done;

	if (t.sum == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	done = gk_parallel_for(host, (int64_t) n * (d + 1), total_of_column, &t);
	for (int c = 0; done && c < n; c++)
	{
		for (int j = 0; j < d; j++)
			pts->total_sum[j] += t.sum[(size_t) c * (d + 1) + j];
		pts->total_mass += t.sum[(size_t) c * (d + 1) + d];
	}
	gk_free(host, t.sum);
	return done ? GK_OK : GK_STOPPED;
}

GkStatus
gk_store_part_total(GkStore *part, GkError *err)
{
	GkPoints   *pts = &part->pts;
	GkStatus	st = GK_OK;

	if (pts->resident)
		return add_totals(pts, part->host, pts->chunks, pts->nchunks, err);
	for (int i = 0; st == GK_OK && i < pts->nchunks; i++)
	{
		GkChunk		view;

		st = gk_chunk_open(part, i, GK_READ_FEATURES, &view, err);
		if (st == GK_OK)
			st = add_totals(pts, part->host, &view, 1, err);
	}
	return st;
}

/* ---- the store ---- */

/* What of chunk i lies in the rows; false: nothing. */
static bool
cut(GkStore *of, int i, int64_t first, int64_t rows, GkChunk *out)
{
	GkChunk    *c = &of->pts.chunks[i];
	int64_t		from = first > c->first ? first - c->first : 0;
	int64_t		end = first + rows - c->first < c->rows ? first + rows - c->first : c->rows;

	if (from >= end)
		return false;
	/* a place for the seeding column that no other part takes */
	if (c->data == NULL && c->spill_mind2 < 0)
	{
		c->spill_mind2 = of->spill_end;
		of->spill_end += (int64_t) c->stride * (int64_t) sizeof(float);
	}
	*out = *c;
	out->first = c->first + from - first;
	out->rows = (int) (end - from);
	if (c->data != NULL)
		out->data = c->data + from;
	out->mind2 = NULL;
	out->mind2_written = false;
	out->wide = NULL;
	return true;
}

void
gk_store_part_prepared(GkStore *part, const GkStore *of, int64_t rows, int parts)
{
	const GkPoints *whole = &of->pts;
	GkPoints   *pts = &part->pts;

	pts->n = rows;
	gk_store_take_prep(part, &whole->prep);
	pts->d2_expo = whole->d2_expo;
	pts->weight_exp = whole->weight_exp;
	pts->sum_sq = whole->sum_sq;
	pts->mean_var = whole->mean_var;
	pts->resident = true;
	for (int i = 0; i < pts->nchunks; i++)
		pts->resident &= pts->chunks[i].data != NULL;
	/* its own views take from its share */
	pts->spare = gk_rest(whole->spare / parts, pts->resident ? 0 : gk_store_views_bytes(of));
	part->prepared = true;
}

GkStatus
gk_store_part(GkStore *of, int64_t first, int64_t rows, int parts, const GkHost *host, GkStore **out, GkError *err)
{
	const GkPoints *whole = &of->pts;
	GkStatus	st = gk_store_create(host, whole->d, whole->weighted, whole->naux, of->largest_chunk, SIZE_MAX, out, err);
	GkPoints   *pts;

	if (st != GK_OK)
		return st;
	pts = &(*out)->pts;
	pts->chunks = gk_alloc0(host, whole->nchunks, sizeof(GkChunk));
	if (pts->chunks == NULL)
	{
		gk_store_part_free(*out);
		*out = NULL;
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	for (int i = 0; i < whole->nchunks; i++)
	{
		if (cut(of, i, first, rows, &pts->chunks[pts->nchunks]) && pts->nchunks++ == 0)
		{
			pts->skipped = first > whole->chunks[i].first ? (int) (first - whole->chunks[i].first) : 0;
			pts->first_slot = pts->slots + pts->skipped;
		}
		pts->slots += whole->chunks[i].stride;
	}
	gk_store_part_prepared(*out, of, rows, parts);
	return GK_OK;
}

void
gk_store_part_free(GkStore *part)
{
	if (part == NULL)
		return;
	for (int i = 0; i < part->pts.nchunks; i++)
		part->pts.chunks[i].data = NULL;
	gk_store_free(part);
}
