/*
 * rel_rules.h - what a row may hold: the one judge of rows.
 *
 * A row is judged in this order, and the first rule that applies decides:
 *
 *   weight NULL or 0           left out, whatever its features are
 *   weight NaN, infinite, < 0  error
 *   NULL instead of an array   left out
 *   array of a wrong shape     error
 *   a feature is NULL          left out
 *   a feature is not finite    left out by nonfinite => 'skip', else an error
 *   cosine, all features 0     left out by nonfinite => 'skip', else an error
 *
 * Everything that makes points of rows asks here: the executor's rows, pages (there
 * also threads and workers), groups, windows, steps, sums and models.  Only the process
 * that runs the query raises errors: threads and workers leave such rows to it.
 */
#ifndef GKMEANS_RULES_H
#define GKMEANS_RULES_H

#include <float.h>
#include <math.h>

#include "executor/tuptable.h"
#include "utils/array.h"

#include "gkmeans.h"

typedef enum GkVerdict
{
	GK_ROW_KEPT,
	/* Left out. */
	GK_ROW_NO_WEIGHT, GK_ROW_NULL_FEATURE,
	/* Left out or an error, as the options say. */
	GK_ROW_NONFINITE, GK_ROW_NO_DIRECTION,
	/* An error. */
	GK_ROW_BAD_WEIGHT,
	GK_ROW_VERDICTS
} GkVerdict;

typedef struct GkRowRules
{
	bool		cosine;			/* a point needs a direction */
	bool		skip_nonfinite;
} GkRowRules;

static inline GkRowRules
gk_fit_rules(const GkFitOptions *options)
{
	return (GkRowRules) {options->engine.distance == GK_COSINE, options->skip_nonfinite};
}

/* ---- verdicts; any thread may ask ---- */

static inline GkVerdict
gk_judge_weight(double weight)
{
	if (likely(weight > 0 && weight <= DBL_MAX))
		return GK_ROW_KEPT;
	return weight == 0 ? GK_ROW_NO_WEIGHT : GK_ROW_BAD_WEIGHT;
}

/* What was seen of a point's features. */
typedef struct GkSeen
{
	bool		nonfinite;
	bool		nonzero;
} GkSeen;

static inline void
gk_see_feature(GkSeen *seen, double v)
{
	seen->nonfinite |= !(fabs(v) <= DBL_MAX);
	seen->nonzero |= v != 0;
}

static inline GkVerdict
gk_judge_seen(const GkSeen *seen, const GkRowRules *rules)
{
	if (unlikely(seen->nonfinite))
		return GK_ROW_NONFINITE;
	return unlikely(!seen->nonzero) && rules->cosine ? GK_ROW_NO_DIRECTION : GK_ROW_KEPT;
}

static inline GkVerdict
gk_judge_point(const double *x, int d, const GkRowRules *rules)
{
	GkSeen		seen = {0};

	for (int j = 0; j < d; j++)
		gk_see_feature(&seen, x[j]);
	return gk_judge_seen(&seen, rules);
}

/* Is a row of this verdict left out without an error? */
static inline bool
gk_leaves_out(GkVerdict verdict, const GkRowRules *rules)
{
	return verdict == GK_ROW_NO_WEIGHT || verdict == GK_ROW_NULL_FEATURE ||
		(rules->skip_nonfinite && (verdict == GK_ROW_NONFINITE || verdict == GK_ROW_NO_DIRECTION));
}

/* ---- counts of what was left out ---- */

extern void gk_count_left_out(GkReadCounts *counts, GkVerdict verdict);
extern void gk_counts_add(GkReadCounts *to, const GkReadCounts *from);
extern int64 gk_rows_left_out(const GkReadCounts *counts);
extern void gk_notice_left_out(const GkReadCounts *counts);

/* ---- errors ---- */

/* What a function wants a point for, which decides what its errors advise. */
typedef enum GkPointUse
{
	GK_POINT_TO_FIT,			/* kmeans_agg(), kmeans() OVER */
	GK_POINT_TO_SUM,			/* feature_sum() */
	GK_POINT_TO_STEP,			/* kmeans_step(), with a model */
	GK_POINT_TO_LABEL			/* kmeans_predict() and the like, with a model */
} GkPointUse;

/* Where a point is from. */
typedef struct GkPointOrigin
{
	/* A row of a relation. */
	const GkSource *source;		/* NULL: it is a function's argument */
	int64		number;			/* of the row, from 1; 0: not known */
	const TupleTableSlot *slot;	/* the row, as the source's query has it; NULL: other values are before them */
	/* An argument. */
	GkPointUse	use;
	const char *names;			/* of the features, one after the other, or NULL */
} GkPointOrigin;

/* ERROR for d features and, if that is what is wrong, the weight behind them. */
extern void gk_throw_verdict(GkVerdict verdict, const GkPointOrigin *origin, const double *x, Size stride, int d)
			__attribute__((noreturn));
/* ERROR unless the verdict is to keep it (true) or to leave it out (false). */
static inline bool
gk_keeps(GkVerdict verdict, const GkRowRules *rules, const GkPointOrigin *origin,
		 const double *x, Size stride, int d)
{
	if (likely(verdict == GK_ROW_KEPT))
		return true;
	if (!gk_leaves_out(verdict, rules))
		gk_throw_verdict(verdict, origin, x, stride, d);
	return false;
}
/* The features of an array; ERROR when it is not of one dimension, or empty. */
extern int	gk_array_features(const ArrayType *array, const GkPointOrigin *origin);
/* ERROR when d is over the limit. */
extern void gk_check_most_features(int d);
/* ERROR: d features where the model, or the points before it, have another number. */
extern void gk_throw_features(int d, int expected, const GkPointOrigin *origin)
			__attribute__((noreturn));

static inline void
gk_check_features(int d, int expected, const GkPointOrigin *origin)
{
	if (unlikely(d != expected))
		gk_throw_features(d, expected, origin);
}

/* ---- rows of a relation ---- */

typedef struct GkRowReader
{
	GkPointOrigin origin;		/* its source has to be set; the rest is done here */
	GkRowRules	rules;
	int			first;			/* place of the source's first value among a row's */
	bool		sorted;			/* rows do not come in the relation's order: do not number them */
	/* Called when the number of features is known, before a row is kept. */
	void		(*begin) (void *arg, int d);
	void	   *arg;
	MemoryContext context;		/* of point */
	int			d;				/* 0: not known yet */
	double	   *point;			/* [d + 1] features, weight of the row */
} GkRowReader;

/* Read a row's point: GK_ROW_KEPT, or why it is left out.  Raises the errors. */
extern GkVerdict gk_read_row(GkRowReader *r, TupleTableSlot *slot);

#endif							/* GKMEANS_RULES_H */
