/*
 * state.h - the type kmeans_state: what an aggregate knows of the rows that it has seen.
 *
 * A value is one block without pointers, so it is the transition state of an aggregate, changed in
 * place, as well as a value that can be stored, sent to another server and combined there.  There
 * are two kinds: sums of points (feature_sum) and a part of a Lloyd step (kmeans_step).
 */
#ifndef STATE_H
#define STATE_H

#include "fmgr.h"

#include "core/partial/gk_partial.h"
#include "types/model.h"

#define KMEANS_STATE_MAGIC		0x6b6d7331	/* "kms1" */
#define KMEANS_STATE_VERSION	1

typedef enum KmeansStateKind
{
	KMEANS_STATE_SUM = 1,
	KMEANS_STATE_STEP = 2
} KmeansStateKind;

/* What both kinds begin with. */
typedef struct KmeansState
{
	int32		vl_len_;		/* varlena header, do not touch directly */
	uint32		magic;
	int32		kind;
	int32		d;
	int64		rows;			/* points added up */
} KmeansState;

/*
 * Sums of d features, each of nlimbs limbs from limb number lo on (gk_exact.h):
 * as many as the values so far need, so a few for most data and up to 70.
 */
typedef struct KmeansSum
{
	KmeansState head;
	int32		lo;
	int32		nlimbs;
	int64		pending;		/* additions since the last carry */
	int64		limb[FLEXIBLE_ARRAY_MEMBER];	/* [d][nlimbs] */
} KmeansSum;

/*
 * A part of a step: the model, its prepared centroids, rows that wait for their
 * tile to be full, and the sums of the rest (GkPartial).
 */
typedef struct KmeansStep
{
	KmeansState head;			/* rows: without the waiting ones */
	int32		k;
	int32		weighted;
	int32		room;			/* of waiting rows */
	int32		fill;			/* waiting rows */
	int32		nplanes;
	uint32		model_size;
	int64		skipped;		/* rows with a NULL */
	float		far_d2;
	uint32		raw_at;			/* place of the waiting rows in the value */
	double		data[FLEXIBLE_ARRAY_MEMBER];
} KmeansStep;

/* Where the arrays of a step lie. */
typedef struct KmeansStepView
{
	KmeansModel *model;
	GkModel		m;				/* the model, viewed */
	double	   *raw;			/* [d][room] waiting rows, then their weights */
	float	   *f;
	GkPartial	partial;
	GkPlane		planes[GK_MAX_SHIFTS];
} KmeansStepView;

/* ---- any kind (state.c) ---- */

/* Detoasted and checked; ERROR when it is not of this kind. */
extern KmeansStep *kmeans_step_from_datum(Datum datum);

/* The first argument of a transition function, to be changed in place; NULL for NULL. */
extern KmeansState *kmeans_state_arg(FunctionCallInfo fcinfo, KmeansStateKind kind, const char *function);

/* Count more rows; ERROR when the sum could not be read back. */
static inline void
kmeans_state_count(int64 *rows, int64 more)
{
	if (more > GK_MAX_ROWS - *rows)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("kmeans_state cannot have more than %lld rows", (long long) GK_MAX_ROWS)));
	*rows += more;
}

/* ---- sums of points (state_sum.c); a sum that changes may have to move ---- */

extern KmeansSum *kmeans_sum_make(int d, int lo, int nlimbs);

/* sign: 1 adds the point, -1 subtracts it. */
extern KmeansSum *kmeans_sum_add(KmeansSum *sum, const double *x, int d, int sign);
extern KmeansSum *kmeans_sum_add_weighted(KmeansSum *sum, const double *x, int d, double weight, int sign);

/* Add all of from. */
extern KmeansSum *kmeans_sum_merge(KmeansSum *to, const KmeansSum *from);

/* Carried, with as few limbs as the sums need: equal sums have equal bytes. */
extern KmeansSum *kmeans_sum_normal(const KmeansSum *sum);

/* Each feature's sum, rounded once; ERROR for one that no double holds. */
extern double *kmeans_sum_values(const KmeansSum *sum);

/* ---- parts of a step (state_step.c); a part that changes may have to move ---- */

/* buffered: it will take rows.  shifts: of the planes, ascending. */
extern KmeansStep *kmeans_step_make(const KmeansModel *model, bool weighted, bool buffered,
									int nplanes, const int *shifts);

/* The size of a value with this header. */
extern uint64 kmeans_step_size(const KmeansStep *step);
extern void kmeans_step_view(const KmeansStep *step, KmeansStepView *view);

/* Assign the waiting rows, and add them up. */
extern KmeansStep *kmeans_step_flush(KmeansStep *step);

/* Add all of from. */
extern KmeansStep *kmeans_step_merge(KmeansStep *to, const KmeansStep *from);

/* A copy in which no row waits, and to which none can be added. */
extern KmeansStep *kmeans_step_flushed(const KmeansStep *step);

#endif							/* STATE_H */
