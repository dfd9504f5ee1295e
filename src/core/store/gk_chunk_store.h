/*
 * gk_chunk_store.h - some prepared rows in one chunk of memory, as a store of their own.
 *
 * What is not kept (gk_pass.h), or is a few points only (the candidates of seeding), is
 * computed with like this: a backend's passes see a store like any other.
 */
#ifndef GK_CHUNK_STORE_H
#define GK_CHUNK_STORE_H

#include "core/gk_backend.h"

typedef struct GkOneChunk
{
	GkStore    *store;			/* NULL: not made */
	GkChunk    *chunk;
	int			fill;			/* rows put into the chunk so far */
} GkOneChunk;

/*
 * Room for so many rows, or a few more.  prep is copied; d2_expo and
 * weight_exp of the store's points are the caller's to set.
 */
GkStatus	gk_chunk_store_make(GkOneChunk *o, const GkHost *host, const GkPrep *prep, bool weighted, int naux,
							  size_t rows, GkError *err);
/* As many rows as fit into so many bytes, but at least so many. */
size_t		gk_chunk_store_rows(const GkStore *like, size_t bytes, int least);
/* The rows that were put in are all there are: make whole tiles of them. */
void		gk_chunk_store_close(GkOneChunk *o, int64_t first);
/* A backend's session for them. */
GkStatus	gk_chunk_store_open(const GkOneChunk *o, const GkBackend *backend, int k_max, GkSession **out, GkError *err);
void		gk_chunk_store_free(GkOneChunk *o);

#endif							/* GK_CHUNK_STORE_H */
