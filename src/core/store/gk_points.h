/*
 * gk_points.h - prepared points as the backends see them.
 *
 * A chunk is one block of memory, column-major: feature j of row i is
 * data[j * stride + i].  stride is a multiple of GK_ROW_PAD, columns are
 * aligned to 64 bytes and the rows past `rows` hold zeros, so that a kernel may
 * read whole vectors.  With weights, column d is the weight.  The
 * host's aux columns follow.
 */
#ifndef GK_POINTS_H
#define GK_POINTS_H

#include "core/gk_core.h"

#define GK_ROW_PAD	64

/*
 * The stride for `rows` rows: an odd number of tiles, so that a tile's columns, read in
 * place, are not a power of two apart and do not push each other out of the cache.
 */
static inline int
gk_stride(int64_t rows)
{
	return (int) ((rows + GK_ROW_PAD - 1) / GK_ROW_PAD | 1) * GK_ROW_PAD;
}

typedef struct GkChunk
{
	int64_t		first;			/* ordinal of the first row */
	int			rows;
	int			stride;			/* rows rounded up to GK_ROW_PAD */
	float	   *data;			/* NULL: spilled, use gk_chunk_open */
	float	   *mind2;			/* squared distance to the nearest seed; NULL unless seeding, or where it is
								 * in the file */
	/* Private to the store. */
	bool		sealed;			/* no more rows */
	int64_t		spill_at;		/* < 0: not in the spill file */
	int64_t		spill_mind2;	/* place of mind2 in the spill file, < 0: none yet */
	bool		mind2_written;	/* since gk_store_mind2_begin */
	uint8_t    *wide;			/* raw chunks: column j holds doubles */
	size_t		bytes;
} GkChunk;

/* What a backend may read of a prepared store. */
typedef struct GkPoints
{
	int64_t		n;
	int			d;
	bool		weighted;
	int			naux;
	int			nchunks;
	GkChunk    *chunks;
	GkPrep		prep;
	int			d2_expo;		/* F: no squared distance inside the data's box, or to given centroids that
								 * rows are measured by, exceeds 2^F */
	int			weight_exp;		/* prepared weight = weight * 2^-weight_exp */

	/*
	 * Exact totals over all rows, in the units of a GkStep: the last cluster's sums are the total minus the
	 * rest.
	 */
	gk_int128  *total_sum;		/* [d] */
	gk_int128	total_mass;		/* weighted: units of 2^-40; else n */
	double		sum_sq;			/* sum over rows of w * |x|^2, prepared units */
	double		mean_var;		/* mean feature variance, prepared units */
	bool		resident;		/* every chunk is in memory */
	bool		mind2_resident; /* while seeding: every chunk's mind2 is */
	size_t		spare;			/* bytes of the memory limit that the points leave, and mind2 while seeding */

	/*
	 * Of a part (gk_store_part()): where it lies among the padded rows of the whole store's chunks, so that what is
	 * kept for a row has the same place in any part.  Else zeros.
	 */
	int64_t		slots;			/* of the whole store */
	int64_t		first_slot;		/* of the first row */
	int			skipped;		/* rows of its chunk before that, whole tiles */
} GkPoints;

/* F of a preparation: GkPoints.d2_expo. */
int			gk_bound_d2(const GkPrep *prep);

/* The same for the distance to a centroid [d] of original units, which may lie outside the data's box.  Any thread. */
int			gk_store_bound_given(const GkStore *store, const double *centroid);

const GkPoints *gk_store_points(GkStore *store);
const GkHost *gk_store_host(const GkStore *store);

/* What is read of a chunk in the file besides the weights. */
#define GK_READ_FEATURES	1	/* and aux columns */
#define GK_READ_MIND2		2	/* the seeding column */

/*
 * Main thread only.  Make a chunk readable: *view is the chunk itself when it
 * is in memory, else a copy of what is to be read in one of two buffers (alternating, so
 * the previous view stays valid until the next but one call).  With GK_READ_MIND2
 * gk_chunk_close(..., true) writes the seeding column back.
 */
GkStatus	gk_chunk_open(GkStore *store, int index, int read, GkChunk *view, GkError *err);
GkStatus	gk_chunk_close(GkStore *store, int index, GkChunk *view, bool dirty_mind2, GkError *err);

/*
 * Allocate (all +inf) / release the seeding column of every chunk.  Where the limit leaves no room for
 * that of chunks in the file, it goes there, too.
 */
GkStatus	gk_store_mind2_begin(GkStore *store, GkError *err);
void		gk_store_mind2_end(GkStore *store);

/* One prepared row by ordinal; a feature that is missing has the mean. */
GkStatus	gk_store_row(GkStore *store, int64_t row, float *out, GkError *err);

/* Aux column i of a chunk view. */
static inline uint32_t *
gk_chunk_aux(const GkPoints *p, const GkChunk *c, int i)
{
	return (uint32_t *) (c->data + (size_t) (p->d + (p->weighted ? 1 : 0) + i) * c->stride);
}

static inline float *
gk_chunk_weight(const GkPoints *p, const GkChunk *c)
{
	return p->weighted ? c->data + (size_t) p->d * c->stride : NULL;
}

#endif							/* GK_POINTS_H */
