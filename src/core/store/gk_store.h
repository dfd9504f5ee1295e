/*
 * gk_store.h - inside of the point store, shared by gk_load.c (rows into
 * chunks), gk_store.c (reading them), gk_prepare.c (centre, scale and grid) and
 * gk_convert.c (prepared rows).
 *
 * Raw stage: a column of a chunk holds floats as long as every value so far is
 * a float exactly, doubles otherwise ("wide"), so integers and float4 columns
 * never take more memory than their prepared form.  Prepared stage: all
 * columns are floats, see gk_points.h.
 */
#ifndef GK_STORE_H
#define GK_STORE_H

#include <math.h>
#include <string.h>

#include "core/store/gk_batch.h"
#include "core/store/gk_columns.h"
#include "core/gk_numerics.h"
#include "core/store/gk_points.h"

struct GkStore
{
	const GkHost *host;
	GkPoints	pts;
	bool		prepared;
	int			columns;		/* features, and the weight */
	size_t		memory_limit;
	size_t		memory;			/* bytes of chunks in memory */
	int64_t		spill_end;		/* bytes used of the spill file */

	/* Loading. */
	int			chunk_rows;		/* full size of a chunk */
	GkBatch		batch;			/* rows that come one by one */
	void	   *batch_memory;
	int			chunks_allocated;
	char	   *ahead;			/* memory for the next chunk, or NULL */
	size_t		ahead_bytes;
	double		expected;		/* rows; < 0: nobody knows */
	bool	   *wide;			/* [columns] what the next chunk starts with */
	GkColumnStats *stats;		/* [columns] of all rows in chunks */
	GkTake		take;			/* takes the batches; NULL: they are kept */
	void	   *take_arg;
	/* The rows are not here: every pass reads them anew (gk_pass_backend.c). */
	const struct GkRows *again;
	/* The rows are not here: they have gone to a device (gk_ingest.c). */
	const struct GkBackend *away;
	struct GkSession *staged;	/* NULL: a fit has taken it over, or it is lost */
	GkError		lost;			/* why */
	float	   *lost_rows;		/* where rows go from then on */
	double		stage_ms;		/* opening the device and preparing the points there */

	/* Reading spilled chunks: two views in turn. */
	float	   *view_data[2];
	float	   *view_mind2[2];
	int			view_next;
	bool		mind2;			/* the seeding column exists */
};

/* Bytes of a prepared chunk of that many (padded) rows. */
size_t		gk_store_chunk_bytes(const GkStore *store, int stride);
/* Read from the spill file (gk_spill.c); and say that this will be read soon. */
GkStatus	gk_spill_read(const GkHost *host, int64_t at, void *to, size_t bytes, GkError *err);
GkStatus	gk_spill_soon(const GkHost *host, int64_t at, size_t bytes, GkError *err);
/* Close the chunk being filled; out with it when over the limit. */
GkStatus	gk_store_seal(GkStore *store, GkError *err);
/* The same after the last row. */
GkStatus	gk_store_loaded(GkStore *store, GkError *err);

/* Of a store whose rows go away: a chunk for the next ones, and it is full (gk_ingest.c). */
GkStatus	gk_ingest_chunk(GkStore *store, GkChunk *c, GkError *err);
GkStatus	gk_ingest_send(GkStore *store, GkChunk *c, GkError *err);
GkStatus	gk_ingest_prepare(GkStore *store, const GkPrep *prep, GkMoments *moments, GkError *err);
/* The session of the rows for a fit, once. */
struct GkSession *gk_ingest_take(GkStore *store);

/* Prepare rows as somebody else's of as many features. */
void		gk_store_take_prep(GkStore *store, const GkPrep *prep);

/*
 * One pass over all chunks: prepare them (store_back), or only see what would come
 * out.  moments [d] and mass are the exact totals; NULL: not wanted.
 */
GkStatus	gk_store_convert(GkStore *store, const GkPrep *prep, bool store_back,
							 GkMoments *moments, gk_int128 *mass, GkError *err);
/*
 * A batch: into prepared columns to (NULL: not wanted) and added to moments and mass
 * (NULL: not wanted).
 */
void		gk_store_convert_batch(GkStore *s, const GkPrep *prep, const GkBatch *batch, float *to, int to_stride,
								   GkMoments *moments, gk_int128 *mass);

/* Exponent e with v <= 2^e, for v > 0; and 2^e as far as it is a scale. */
static inline int
gk_expo_of(double v)
{
	int			e;

	return frexp(v, &e) == 0.5 ? e - 1 : e;
}

static inline double
gk_scale_of(int e)
{
	return gk_pow2(e > GK_SCALE_EXPO ? GK_SCALE_EXPO : e < -GK_SCALE_EXPO ? -GK_SCALE_EXPO : e);
}

#endif							/* GK_STORE_H */
