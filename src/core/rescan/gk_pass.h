/*
 * gk_pass.h - one pass over rows that are not kept: a question about all rows, and its
 * answer.
 *
 * With strategy "scan" every pass reads the rows anew.  A pass is a value of O(k d) numbers
 * and so is its answer, and the answers of disjoint sets of rows add up, exactly: so the
 * rows may be in this process, or in shards on other servers that a pass is sent to.
 *
 * An answer is four arrays whose lengths follow from the question:
 *   kind      i128                     i64                        dbl            flt
 *   STATS                              GkWide [columns]           min, max [columns]
 *   MOMENTS   sum, sq [d] and mass
 *   STEP      sum [k][d], mass [k]     count [k]
 *   FINISH    inertia [k]              count [k]                                 max_d2 [k]
 *   SEED      potential [k]            [races] (got, row [want])  key [races][want]  point [races][want][d]
 *   FAR                                row                                       d2, point [d]
 *   MEANS     sum [k][d], inertia      count [k], far
 *   SPREAD    spread [k], within, simplified
 *   SAMPLE                             stratum, label [want each] row [want][d]
 * races: one for each candidate, or one without candidates.  MEANS, SPREAD and SAMPLE are for the
 * measures of quality and have their units (core/quality/).
 */
#ifndef GK_PASS_H
#define GK_PASS_H

#include "core/gk_backend.h"
#include "core/store/gk_columns.h"

typedef enum GkPassKind
{
	GK_PASS_STATS = 1,			/* minimum, maximum and exact sum of the raw columns */
	GK_PASS_MOMENTS,			/* exact sums of x and x^2 of prepared columns, and the mass */
	GK_PASS_STEP,				/* as GkBackend.step */
	GK_PASS_FINISH,				/* as GkBackend.finish */
	GK_PASS_SEED,				/* potentials of candidates, and a race for each */
	GK_PASS_FAR,				/* as GkBackend.seed_far */
	GK_PASS_MEANS,				/* sums of the clusters' rows */
	GK_PASS_SPREAD,				/* distances to the clusters' means */
	GK_PASS_SAMPLE				/* the sample's rows that are among these, and their strata */
} GkPassKind;

typedef struct GkPass
{
	GkPassKind	kind;
	bool		weighted;
	/* Not for STATS, which knows neither the features nor the preparation. */
	const GkPrep *prep;
	int			d2_expo;
	int			weight_exp;
	int			k;
	const float *centroids;		/* [k][d] STEP, FINISH; SEED: the candidates */
	/* SEED, FAR: D is the distance to the nearest of these. */
	int			nseeds;
	const float *seeds;			/* [nseeds][d] */
	/*
	 * SEED: the race.  With candidates, race i runs as if candidate i were a seed,
	 * too; want = 0: potentials only.
	 */
	uint64_t	key;
	bool		use_d2;
	int			want;
	/* SEED: which seeding it is, from 1 on.  Within one, seeds are only added at the end. */
	int64_t		seeding;
	/* MEANS, SPREAD, SAMPLE. */
	bool		raw;			/* of rows as they are given, not as they are prepared */
	const double *centers;		/* [k][d] as in a model */
	int			expo;			/* GkQuality.expo */
	const double *means;		/* SPREAD: [k][d], as that has them, of clusters that have rows */
	const int64_t *size;		/* SPREAD: [k] */
	int64_t		all_rows;		/* SAMPLE: of them, */
	int			sample;			/* these many; `want` of them are among the rows that are asked for */
} GkPass;

/* May the rows that it looks at stay for others like it? */
static inline bool
gk_pass_may_keep(const GkPass *pass)
{
	return pass->kind != GK_PASS_STATS && pass->kind != GK_PASS_MOMENTS;
}

/* Is it one of the measures of quality? */
static inline bool
gk_pass_measures(const GkPass *pass)
{
	return pass->kind >= GK_PASS_MEANS;
}

typedef struct GkPassResult
{
	int			d;				/* 0: STATS of no rows */
	int64_t		rows;
	size_t		ni128,
				ni64,
				ndbl,
				nflt;
	gk_int128  *i128;
	int64_t    *i64;
	double	   *dbl;
	float	   *flt;
} GkPassResult;

static inline int
gk_pass_races(const GkPass *pass)
{
	return pass->k > 0 ? pass->k : 1;
}

static inline const float *
gk_pass_point(const GkPass *pass, const GkPassResult *r, int race, int pick)
{
	return r->flt + ((size_t) race * pass->want + pick) * r->d;
}

/* Lengths of the arrays for points of d features. */
void		gk_pass_lengths(const GkPass *pass, int d, GkPassResult *r);

/* Make an answer of no rows; d = 0 in a STATS pass: without arrays, until gk_pass_add() knows d. */
GkStatus	gk_pass_result_init(const GkHost *host, const GkPass *pass, int d, GkPassResult *r, GkError *err);
void		gk_pass_result_free(const GkHost *host, GkPassResult *r);

/* Add the answer of other rows. */
GkStatus	gk_pass_add(const GkHost *host, const GkPass *pass, GkPassResult *to,
						const GkPassResult *from, GkError *err);

/* ---- rows that can be read again ---- */

typedef struct GkRows
{
	void	   *ctx;
	/*
	 * Make a pass over all rows, the same ones in the same order each time.  *out is empty and
	 * becomes the caller's (gk_pass_result_free).  A sink takes the labels of a
	 * FINISH pass.
	 */
	GkStatus	(*pass) (void *ctx, const GkPass *pass, const GkLabelSink *sink,
						 GkPassResult *out, GkError *err);
	/* What runs, for kmeans_info. */
	void		(*describe) (void *ctx, char *device, size_t device_len,
							 char *strategy, size_t strategy_len);
} GkRows;

/*
 * A store without rows, which reads them again for each pass.  Preparing and
 * fitting it work as for any other, nothing else does.  *out = NULL: there are
 * no rows.
 */
GkStatus	gk_rows_open(const GkHost *host, const GkRows *rows, bool weighted, GkStore **out, GkError *err);

/* The one backend that clusters such a store. */
extern const GkBackend gk_rows_backend;

/* Ask such a store; an error when the rows are not those of its first pass. */
GkStatus	gk_rows_ask(const GkStore *store, const GkPass *pass, const GkLabelSink *sink, GkPassResult *out, GkError *err);
GkStatus	gk_rows_changed(GkError *err);

/* ---- answering: batches of a loading store in, an answer out (gk_pass_answer.c) ---- */

typedef struct GkPassAnswerer GkPassAnswerer;

/*
 * The rows' D, which a pass of a seeding leaves to the next one in the host's temporary file.
 * Zeros at first; the file has to serve nothing else.
 */
typedef struct GkKeptD
{
	int64_t		seeding;		/* 0: none */
	int			nseeds;			/* D is the distance to the nearest of these */
	int64_t		rows;
} GkKeptD;

/*
 * Begin to answer a pass.  *device computes; it becomes the CPU when it fails and the host
 * agrees.  chunk_bytes: size of the rows that are computed with at once.  kept may be NULL.
 */
GkStatus	gk_pass_answer_open(const GkHost *host, const GkPass *pass, const GkBackend **device,
								size_t chunk_bytes, const GkLabelSink *sink, GkKeptD *kept, GkPassAnswerer **out,
								GkError *err);

/*
 * Rows that stay in memory from one pass to the next (gk_pass_kept.c): prepared, or as they are given to
 * passes that are raw.  They come in parts, each of which stays if all of it has room.  Zeros but for the
 * limit at first; all memory is that of the host that the passes have.
 */
typedef struct GkKeptRows
{
	size_t		limit;
	size_t		bytes;
	/* Prepared ones: a store of their chunks, and what it does not know of each. */
	GkStore    *store;			/* NULL: none */
	int			room;			/* for chunks */
	struct GkKeptChunk *chunk;	/* [room] */
	bool		summed;			/* the store has its totals */
	/* Of a seeding: D from these seeds, as a later pass has them, too, and more. */
	bool		with_d;
	int			nseeds;
	float	   *seeds;			/* [nseeds][d] */
	/* Rows as they are given. */
	int			nbatches;
	int			batch_room;
	struct GkKeptBatch *batch;	/* [nbatches] */
	/* The part that comes. */
	bool		full;			/* it has no room: none of it stays */
	int			chunks_before;
	int			batches_before;
	size_t		bytes_before;
} GkKeptRows;

void		gk_kept_rows_free(const GkHost *host, GkKeptRows *rows);

/*
 * Begin a part of the rows, the first of which has this ordinal.  keep: where they are to stay; NULL: nowhere.
 * None do in STATS and MOMENTS, and with labels.
 */
void		gk_pass_answer_begin(GkPassAnswerer *p, int64_t first, GkKeptRows *keep);

/* A GkTake. */
GkStatus	gk_pass_answer_take(void *arg, GkStore *store, const struct GkBatch *batch, GkError *err);

/* All rows of the part have come: answer for them.  They stay unless keep->full. */
GkStatus	gk_pass_answer_flush(GkPassAnswerer *p, GkError *err);

/* Answer for the rows that have stayed; they are prepared as the pass says, or both are raw. */
GkStatus	gk_pass_answer_again(GkPassAnswerer *p, GkKeptRows *rows, GkError *err);

/* How many rows there have been so far. */
int64_t		gk_pass_answer_rows(const GkPassAnswerer *p);

/* End the last part, and all.  The answer becomes the caller's. */
GkStatus	gk_pass_answer_end(GkPassAnswerer *p, GkPassResult *out, GkError *err);

/* What made a step, as GkBackend.describe; empty: the pass was no step. */
typedef struct GkPassAnswererNames
{
	char		device[96];
	char		strategy[64];
} GkPassAnswererNames;

void		gk_pass_answer_names(const GkPassAnswerer *p, GkPassAnswererNames *out);
void		gk_pass_answer_free(GkPassAnswerer *p);

#endif							/* GK_PASS_H */
