/*
 * gk_pass_quality.h - answer passes of the measures of quality, MEANS, SPREAD and SAMPLE: for
 * gk_pass_answer.c alone.
 */
#ifndef GK_PASS_QUALITY_H
#define GK_PASS_QUALITY_H

#include "core/rescan/gk_pass_kept.h"

typedef struct GkPassQuality GkPassQuality;

/* chunk_bytes: of rows that are given, which are looked at together. */
GkStatus	gk_pass_quality_open(const GkHost *host, const GkPass *pass, size_t chunk_bytes, GkPassQuality **out, GkError *err);

/*
 * Rows as they are given: begin a part, the first of whose rows has this ordinal; take them, and keep them where keep
 * is not NULL; look at all that have come; and take kept ones, *rows of them.
 */
void		gk_pass_quality_begin(GkPassQuality *p, int64_t first);
GkStatus	gk_pass_quality_batch(GkPassQuality *p, const GkBatch *b, GkKeptRows *keep, GkError *err);
GkStatus	gk_pass_quality_flush(GkPassQuality *p, GkKeptRows *keep, GkError *err);
GkStatus	gk_pass_quality_again(GkPassQuality *p, const GkKeptRows *kept, int64_t *rows, GkError *err);

/* Those of a prepared chunk.  row: ordinal of the first. */
GkStatus	gk_pass_quality_chunk(GkPassQuality *p, const GkBackend *backend, GkSession *session, const GkChunk *chunk,
								  int64_t row, GkError *err);

/* Make the answer of all of them. */
GkStatus	gk_pass_quality_end(GkPassQuality *p, GkPassResult *out, GkError *err);
void		gk_pass_quality_free(GkPassQuality *p);

#endif							/* GK_PASS_QUALITY_H */
