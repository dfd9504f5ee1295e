/*
 * gk_pass_kept.h - rows that stay from one pass to the next (GkKeptRows): for gk_pass_answer.c and
 * gk_pass_quality.c alone.
 */
#ifndef GK_PASS_KEPT_H
#define GK_PASS_KEPT_H

#include "core/rescan/gk_pass.h"
#include "core/store/gk_batch.h"
#include "core/store/gk_store.h"

typedef struct GkKeptChunk
{
	int64_t		row;			/* ordinal of its first row */
	float	   *d2;				/* D, gk_kept_d_bytes() of it; NULL: not kept */
} GkKeptChunk;

typedef struct GkKeptBatch
{
	int64_t		row;
	GkBatch		rows;
} GkKeptBatch;

/* Begin a part. */
void		gk_kept_begin(GkKeptRows *k);

/* Keep a copy of a chunk, without the room that it leaves.  Without room for it, nothing of the part stays. */
GkStatus	gk_kept_add_chunk(GkKeptRows *k, const GkHost *host, const GkChunkStore *from, int64_t row, GkError *err);

/* The same with a batch, whose memory becomes the kept rows' if it is *taken. */
GkStatus	gk_kept_take_batch(GkKeptRows *k, const GkHost *host, const GkBatch *b, size_t bytes, int64_t row, bool *taken,
							   GkError *err);

/* Have the store know its totals. */
GkStatus	gk_kept_sum(GkKeptRows *k, GkError *err);

/* A chunk's D, in whole tiles. */
static inline size_t
gk_kept_d_bytes(const GkChunk *c)
{
	return (size_t) ((c->rows + GK_ROW_PAD - 1) / GK_ROW_PAD) * GK_ROW_PAD * sizeof(float);
}

/*
 * Have room for D, if the limit allows, and find from how many of the pass's seeds it is: it has them all, in
 * their order.  Until gk_kept_seeds() it is from none: an error on the way leaves some of one pass and some of the other.
 */
GkStatus	gk_kept_begin_d(GkKeptRows *k, const GkHost *host, const GkPass *pass, int *nseeds, GkError *err);
GkStatus	gk_kept_seeds(GkKeptRows *k, const GkHost *host, const GkPass *pass, GkError *err);

#endif							/* GK_PASS_KEPT_H */
