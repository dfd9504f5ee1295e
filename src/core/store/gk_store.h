/*
 * gk_store.h - inside of the point store, shared by gk_load.c (rows into chunks),
 * gk_store.c (reading them), gk_prepare.c (centre, scale and grid), gk_convert.c
 * (prepared rows), gk_ingest.c (rows that go to a device), gk_gather.c, gk_sample.c and gk_part.c
 * (some rows of a store) and core/rescan (rows that are read again in every pass).
 *
 * Words: batch = up to GK_BATCH_ROWS rows on their way into a store; sink = where a
 * store's batches go; chunk = a column-major block of up to 16 MB that stays; raw = as
 * read; prepared = centred, scaled, float32; wide = a column of doubles; aux = uint32
 * columns of the host's.
 *
 * A column of a raw chunk holds floats as long as every value so far is a float exactly,
 * doubles otherwise ("wide"), so integers and float4 columns never take more memory than
 * their prepared form.  All columns of prepared chunks are floats, see gk_points.h.
 */
#ifndef GK_STORE_H
#define GK_STORE_H

#include <math.h>
#include <string.h>

#include "core/store/gk_batch.h"
#include "core/store/gk_columns.h"
#include "core/gk_backend.h"
#include "core/gk_numerics.h"
#include "core/store/gk_points.h"

/*
 * Where a store's rows go: into chunks (gk_load.c), to a function that each batch is
 * passed on to (gk_store.c), to a device (gk_ingest.c); or they are not loaded, but read
 * again in every pass (core/rescan/gk_pass_backend.c).
 */
typedef struct GkSink
{
	bool		observed;		/* the store keeps statistics of the rows */
	/* Take the rows of a batch, in order.  NULL: none may come. */
	GkStatus	(*take) (GkStore *store, const GkBatch *batch, const GkMover *mover, GkError *err);
	/* No more rows come.  NULL: nothing to do. */
	GkStatus	(*finish) (GkStore *store, GkError *err);
	/*
	 * One pass over all rows: prepare them (keep), or only sum up what would come out.
	 * moments [d] and *mass become the exact totals; NULL: not wanted.  NULL: impossible.
	 */
	GkStatus	(*prepare) (GkStore *store, const GkPrep *prep, bool keep,
							GkMoments *moments, gk_int128 *mass, GkError *err);
	/* Give back what the sink has besides the chunks; may be NULL. */
	void		(*end) (GkStore *store);
} GkSink;

struct GkStore
{
	const GkHost *host;
	GkPoints	pts;
	bool		prepared;
	int			columns;		/* features, and the weight */
	size_t		memory_limit;	/* less what is set aside */
	size_t		set_aside;		/* for chunks at work */
	size_t		memory;			/* bytes of chunks in memory */
	int64_t		spill_end;		/* bytes used of the spill file */
	size_t		largest_chunk;	/* bytes of one, if the limit allows it */
	size_t		raw_bytes;		/* of all chunks when they were filled, spilled or not */

	/* Where the rows go. */
	const GkSink *sink;
	GkTake		take;			/* of the sink that passes on */
	GkAsk		ask;			/* do the rows in the chunks go to a device?  NULL: that is decided */
	void	   *ask_arg;
	const GkMover *mover;		/* that may still copy rows to chunks, while it is asked */
	void	   *state;			/* of the sink: take's argument, GkIngest or GkRows */
	const GkBackend *reader;	/* the only backend that can read the points; NULL: any */
	struct GkSession *session;	/* reader's, with the points; NULL: open() reads them */

	/* Loading. */
	int			chunk_rows;		/* full size of a chunk */
	GkBatch		batch;			/* rows that come one by one */
	void	   *batch_memory;
	int			chunks_allocated;
	char	   *ahead;			/* memory for the next chunk, or NULL */
	size_t		ahead_bytes;
	double		expected;		/* rows; < 0: not known */
	uint8_t    *wide;			/* [columns] which ones the next chunk starts with as doubles */
	GkColumnStats *stats;		/* [columns] of all rows so far */

	/* Reading spilled chunks: two views in turn. */
	float	   *view_data[2];
	float	   *view_mind2[2];
	int			view_next;
	bool		mind2;			/* the seeding column exists */
	size_t		mind2_bytes;	/* what it takes of pts.spare */
};

/* The sink that fills chunks. */
extern const GkSink gk_chunk_sink;

/* Bytes of a value of a raw column. */
static inline size_t
gk_value_bytes(bool wide)
{
	return wide ? sizeof(double) : sizeof(float);
}

/* Bytes of a raw chunk of `stride` rows, padding included; of a prepared one. */
size_t		gk_store_raw_bytes(const GkStore *store, const uint8_t *wide, int stride);
size_t		gk_store_chunk_bytes(const GkStore *store, int stride);

/* Copy values of a raw column, floats or doubles, to another one, past the caches.  Doubles do not become floats. */
void		gk_copy_values(char *to, bool wide, const char *from, bool from_wide, size_t n);

/* of - less, at least 0. */
static inline size_t
gk_rest(size_t of, size_t less)
{
	return of > less ? of - less : 0;
}

/* Bytes of the views of chunks in the file, if there are any. */
size_t		gk_store_views_bytes(const GkStore *store);

/* Bytes of the limit that prepared points and those views leave. */
size_t		gk_store_spare(const GkStore *store);

/* Give back the chunks of a store whose rows are somewhere else. */
void		gk_store_drop_chunks(GkStore *store);

/* Read from the spill file. */
GkStatus	gk_spill_read(const GkHost *host, int64_t at, void *to, size_t bytes, GkError *err);

/* No more rows come; gk_store_prepare() calls it, too. */
GkStatus	gk_store_loaded(GkStore *store, GkError *err);

/* Take over a device's session that has the store's points; NULL: there is none (any more). */
struct GkSession *gk_ingest_take(GkStore *store);

/* Prepare rows as those of another fit with as many features. */
void		gk_store_take_prep(GkStore *store, const GkPrep *prep);

/* Prepare rows that are prepared points of another store: their values stay as they are. */
GkStatus	gk_store_prepare_like(GkStore *store, const GkStore *like, GkError *err);

/*
 * gk_sample.c: the rows of a sample of n, of GkOptions.fit_sample or init_sample; and a store of
 * that number of a prepared store's rows, chosen by the key.  They come after the rows of that
 * store in the spill file, which has to stay as it is.
 */
int64_t		gk_sample_rows(double sample, int k, int64_t n);
GkStatus	gk_store_sample(GkStore *from, int64_t rows, uint64_t key, GkStore **out, GkError *err);

/* GkSink.prepare of chunks. */
GkStatus	gk_store_convert(GkStore *store, const GkPrep *prep, bool keep,
							 GkMoments *moments, gk_int128 *mass, GkError *err);

/*
 * Convert a batch to prepared columns at `to` (NULL: not wanted) and add it to moments and
 * mass (NULL: not wanted).
 */
void		gk_store_convert_batch(GkStore *s, const GkPrep *prep, const GkBatch *batch, float *to, int to_stride,
								   GkMoments *moments, gk_int128 *mass);

/* ---- a part of a store ---- */

/* The row nearest to one where a part may end; `parts` of them share the store. */
int64_t		gk_store_edge(const GkStore *store, int64_t row, int parts);

/*
 * Make a store of a run of rows of a prepared one, whose points it uses, without totals.  It begins and ends at
 * edges.  Its host may be another thread's; it is made and freed by the main thread.
 */
GkStatus	gk_store_part(GkStore *of, int64_t first, int64_t rows, int parts, const GkHost *host, GkStore **out, GkError *err);
void		gk_store_part_free(GkStore *part);

/* What gk_store_part() gives the store, for one whose rows a device has and that has its totals. */
void		gk_store_part_prepared(GkStore *part, const GkStore *of, int64_t rows, int parts);

/* Sum its rows up, as GkPoints.total_sum and total_mass, which are zeros. */
GkStatus	gk_store_part_total(GkStore *part, GkError *err);

/* gk_gather.c: the sum of a feature, and of the weights, of a chunk's first rows, in the units of a GkStep. */
gk_int128	gk_chunk_sum(const GkPoints *pts, const GkChunk *chunk, int rows, int j);
gk_int128	gk_chunk_mass(const GkPoints *pts, const GkChunk *chunk, int rows);

/* ---- a store of one chunk ---- */

/*
 * Prepared rows in one chunk of memory.  Rows that are not kept (gk_pass.h) and the candidates
 * of seeding go to a backend in such a store: its passes see one like any other.
 */
typedef struct GkChunkStore
{
	GkStore    *store;			/* NULL: not made */
	GkChunk    *chunk;
	int			fill;			/* rows put into the chunk so far */
} GkChunkStore;

/*
 * Make a store with room for at least `rows` rows.  prep is copied; the caller sets d2_expo
 * and weight_exp of the store's points.
 */
GkStatus	gk_chunk_store_make(GkChunkStore *o, const GkHost *host, const GkPrep *prep, bool weighted, int naux,
								size_t rows, GkError *err);

/* The rows like those of a store that fit into `bytes`, at least min_rows. */
size_t		gk_chunk_store_rows(const GkStore *like, size_t bytes, int min_rows);

/*
 * gk_gather.c: put rows of a store that has chunks at the end of these, in its order: row is
 * ascending.  Weights come along where both have them.
 */
GkStatus	gk_chunk_store_gather(GkChunkStore *o, GkStore *from, const int64_t *row, int n, GkError *err);

/* Sum the rows up: a step may leave one cluster to be the total less the others. */
GkStatus	gk_chunk_store_total(GkChunkStore *o);

/* No more rows come: make whole tiles of those that were put in. */
void		gk_chunk_store_close(GkChunkStore *o, int64_t first);

/* Open a backend's session for them. */
GkStatus	gk_chunk_store_open(const GkChunkStore *o, const GkBackend *backend, int k_max, GkSession **out, GkError *err);
void		gk_chunk_store_free(GkChunkStore *o);

/* ---- powers of two ---- */

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
