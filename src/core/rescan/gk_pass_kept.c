/*
 * gk_pass_kept.c - rows that stay from one pass to the next: see gk_pass_kept.h.
 *
 * The prepared chunks of all parts are one store, so a pass over them costs what it does over as many rows of one
 * part, however many parts there are.
 */
#include <string.h>

#include "core/rescan/gk_pass_kept.h"

static GkStatus
out_of_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory");
}

/* An array with more room, zeros behind the n elements that it has; NULL: no memory, and it stays as it is. */
static void *
grown(const GkHost *host, void *array, int n, int room, size_t size)
{
	void	   *to = gk_alloc0(host, room, size);

	if (to == NULL)
		return NULL;
	if (n > 0)
		memcpy(to, array, n * size);
	gk_free(host, array);
	return to;
}

/* ---- parts ---- */

void
gk_kept_begin(GkKeptRows *k)
{
	k->full = false;
	k->chunks_before = k->store != NULL ? k->store->pts.nchunks : 0;
	k->batches_before = k->nbatches;
	k->bytes_before = k->bytes;
}

/* Is there room for that many bytes?  If not, nothing of the part stays. */
static bool
has_room(GkKeptRows *k, const GkHost *host, size_t bytes)
{
	if (!k->full && bytes <= k->limit - k->bytes)
		return true;
	k->full = true;
	while (k->store != NULL && k->store->pts.nchunks > k->chunks_before)
	{
		GkChunk    *c = &k->store->pts.chunks[--k->store->pts.nchunks];

		k->store->pts.n -= c->rows;
		gk_free(host, c->data);
	}
	while (k->nbatches > k->batches_before)
		gk_free(host, k->batch[--k->nbatches].rows.values);
	k->bytes = k->bytes_before;
	return false;
}

void
gk_kept_rows_free(const GkHost *host, GkKeptRows *k)
{
	for (int i = 0; k->store != NULL && i < k->store->pts.nchunks; i++)
		gk_free(host, k->chunk[i].d2);
	gk_store_free(k->store);
	gk_free(host, k->chunk);
	gk_free(host, k->seeds);
	for (int i = 0; i < k->nbatches; i++)
		gk_free(host, k->batch[i].rows.values);
	gk_free(host, k->batch);
	*k = (GkKeptRows) {.limit = k->limit};
}

/* ---- prepared chunks ---- */

static GkStatus
make_store(GkKeptRows *k, const GkHost *host, const GkPoints *like, GkError *err)
{
	GkStore    *s;
	GkStatus	st = gk_store_create(host, like->d, like->weighted, 0, SIZE_MAX, SIZE_MAX, &s, err);

	if (st != GK_OK)
		return st;
	gk_store_take_prep(s, &like->prep);
	s->pts.weight_exp = like->weight_exp;
	s->prepared = true;
	k->store = s;
	return GK_OK;
}

static GkStatus
more_chunks(GkKeptRows *k, const GkHost *host, GkError *err)
{
	GkPoints   *pts = &k->store->pts;
	int			room = 2 * k->room + 1;
	void	   *chunks;
	void	   *more;

	if (pts->nchunks < k->room)
		return GK_OK;
	if ((chunks = grown(host, pts->chunks, pts->nchunks, room, sizeof(GkChunk))) == NULL)
		return out_of_memory(err);
	pts->chunks = chunks;
	if ((more = grown(host, k->chunk, pts->nchunks, room, sizeof(GkKeptChunk))) == NULL)
		return out_of_memory(err);
	k->chunk = more;
	k->room = room;
	return GK_OK;
}

GkStatus
gk_kept_add_chunk(GkKeptRows *k, const GkHost *host, const GkChunkStore *from, int64_t row, GkError *err)
{
	GkStatus	st = k->store != NULL ? GK_OK : make_store(k, host, &from->store->pts, err);
	GkChunk		c = {.rows = from->fill,.stride = gk_stride(from->fill),.sealed = true,.spill_at = -1,.spill_mind2 = -1};
	size_t		rest = -c.rows & (GK_ROW_PAD - 1);
	size_t		bytes;

	if (st != GK_OK)
		return st;
	bytes = gk_store_chunk_bytes(k->store, c.stride);
	if (!has_room(k, host, bytes))
		return GK_OK;
	if ((st = more_chunks(k, host, err)) != GK_OK)
		return st;
	if ((c.data = gk_alloc(host, bytes, 1)) == NULL)
		return out_of_memory(err);
	for (int j = 0; j < k->store->columns; j++)
	{
		memcpy(c.data + (size_t) j * c.stride, from->chunk->data + (size_t) j * from->chunk->stride, c.rows * sizeof(float));
		memset(c.data + (size_t) j * c.stride + c.rows, 0, rest * sizeof(float));
	}
	k->chunk[k->store->pts.nchunks] = (GkKeptChunk) {.row = row};
	k->store->pts.chunks[k->store->pts.nchunks++] = c;
	k->store->pts.n += c.rows;
	k->bytes += bytes;
	return GK_OK;
}

GkStatus
gk_kept_sum(GkKeptRows *k, GkError *err)
{
	GkPoints   *pts = &k->store->pts;
	GkStatus	st;

	if (k->summed)
		return GK_OK;
	memset(pts->total_sum, 0, pts->d * sizeof(gk_int128));
	pts->total_mass = 0;
	pts->resident = true;
	st = gk_store_part_total(k->store, err);
	k->summed = st == GK_OK;
	return st;
}

/* ---- D ---- */

static GkStatus
make_room_for_d(GkKeptRows *k, const GkHost *host, GkError *err)
{
	const GkPoints *pts = &k->store->pts;
	size_t		bytes = 0;

	for (int i = 0; i < pts->nchunks; i++)
		bytes += gk_kept_d_bytes(&pts->chunks[i]);
	if (k->with_d || bytes > k->limit - k->bytes)
		return GK_OK;
	for (int i = 0; i < pts->nchunks; i++)
		if ((k->chunk[i].d2 = gk_alloc(host, gk_kept_d_bytes(&pts->chunks[i]), 1)) == NULL)
			return out_of_memory(err);
	k->bytes += bytes;
	k->with_d = true;
	return GK_OK;
}

GkStatus
gk_kept_begin_d(GkKeptRows *k, const GkHost *host, const GkPass *pass, int *nseeds, GkError *err)
{
	GkStatus	st = make_room_for_d(k, host, err);
	bool		has = k->nseeds > 0 && k->nseeds <= pass->nseeds &&
	memcmp(k->seeds, pass->seeds, (size_t) k->nseeds * pass->prep->d * sizeof(float)) == 0;

	*nseeds = has ? k->nseeds : 0;
	k->nseeds = 0;
	return st;
}

GkStatus
gk_kept_seeds(GkKeptRows *k, const GkHost *host, const GkPass *pass, GkError *err)
{
	size_t		bytes = (size_t) pass->nseeds * pass->prep->d * sizeof(float);

	gk_free(host, k->seeds);
	k->seeds = gk_alloc(host, bytes, 1);
	if (k->seeds == NULL)
		return out_of_memory(err);
	memcpy(k->seeds, pass->seeds, bytes);
	k->nseeds = pass->nseeds;
	return GK_OK;
}

/* ---- rows as they are given ---- */

GkStatus
gk_kept_take_batch(GkKeptRows *k, const GkHost *host, const GkBatch *b, size_t bytes, int64_t row, bool *taken, GkError *err)
{
	int			room = 2 * k->batch_room + 1;
	void	   *more;

	*taken = false;
	if (!has_room(k, host, bytes))
		return GK_OK;
	if (k->nbatches == k->batch_room)
	{
		if ((more = grown(host, k->batch, k->nbatches, room, sizeof(GkKeptBatch))) == NULL)
			return out_of_memory(err);
		k->batch = more;
		k->batch_room = room;
	}
	k->batch[k->nbatches++] = (GkKeptBatch) {.row = row,.rows = *b};
	k->bytes += bytes;
	*taken = true;
	return GK_OK;
}
