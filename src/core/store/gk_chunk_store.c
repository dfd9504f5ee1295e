/*
 * gk_chunk_store.c - a store of one chunk, see gk_chunk_store.h.
 */
#include <string.h>

#include "core/store/gk_chunk_store.h"
#include "core/store/gk_store.h"

size_t
gk_chunk_store_rows(const GkStore *like, size_t bytes, int least)
{
	size_t		rows = bytes / ((size_t) (like->columns + like->pts.naux) * sizeof(float));

	if (rows < (size_t) least)
		rows = least;
	return rows > (size_t) GK_INT64_ROWS ? (size_t) GK_INT64_ROWS : rows;
}

GkStatus
gk_chunk_store_make(GkOneChunk *o, const GkHost *host, const GkPrep *prep, bool weighted, int naux,
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
gk_chunk_store_close(GkOneChunk *o, int64_t first)
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
gk_chunk_store_open(const GkOneChunk *o, const GkBackend *backend, int k_max, GkSession **out, GkError *err)
{
	const GkHost *host = o->store->host;
	GkProblem	problem = {.host = host,.core = &gk_core,.store = o->store,.k_max = k_max,.max_iter = 1,
		.gpu_memory_limit = host->gpu_memory_limit,.gpu_devices = host->gpu_devices,
	.gpu_fault = host->gpu_fault};

	return backend->open(&problem, out, err);
}

void
gk_chunk_store_free(GkOneChunk *o)
{
	gk_store_free(o->store);
	memset(o, 0, sizeof(*o));
}
