/*
 * rel_rules.h - what a row may hold: the one judge of rows.
 *
 * A row is judged in this order, and the first rule that applies decides:
 *
 *   weight NULL or 0           left out, whatever its features are
 *   weight NaN, infinite, < 0  error
 *   NULL instead of an array   left out
 *   array of a wrong shape     error
 *   a feature is NULL          left out, unless the rows are filled in: then it has a value; where points may
 *                              lack features, left out if all are NULL
 *   a feature is not finite    left out by nonfinite => 'skip', else an error
 *   cosine, all features 0     left out by nonfinite => 'skip', else an error
 *
 * Everything that makes points of rows asks here: the executor's rows, pages (there
 * also threads and workers), groups, windows, steps, sums and models.  Only the process
 * that runs the query raises errors: threads and workers leave such rows to it.
 */
#ifndef REL_RULES_H
#define REL_RULES_H

#include <float.h>
#include <math.h>

#include "executor/tuptable.h"
#include "utils/array.h"

#include "relation/relation.h"

typedef enum KmVerdict
{
	KM_ROW_KEPT,
	/* Left out. */
	KM_ROW_NO_WEIGHT, KM_ROW_NULL_FEATURE,
	/* Left out or an error, as the options say. */
	KM_ROW_NONFINITE, KM_ROW_NO_DIRECTION,
	/* An error. */
	KM_ROW_BAD_WEIGHT,
	KM_ROW_VERDICTS
} KmVerdict;

typedef struct KmRowRules
{
	bool		cosine;			/* a point needs a direction */
	bool		skip_nonfinite;
	bool		partial;		/* a point may lack features, but not all */
} KmRowRules;

/* ---- verdicts; any thread may ask ---- */

static inline KmVerdict
km_judge_weight(double weight)
{
	if (likely(weight > 0 && weight <= DBL_MAX))
		return KM_ROW_KEPT;
	return weight == 0 ? KM_ROW_NO_WEIGHT : KM_ROW_BAD_WEIGHT;
}

/* What was seen of a point's features. */
typedef struct KmSeen
{
	bool		nonfinite;
	bool		nonzero;
} KmSeen;

static inline void
km_see_feature(KmSeen *seen, double v)
{
	seen->nonfinite |= !(fabs(v) <= DBL_MAX);
	seen->nonzero |= v != 0;
}

static inline KmVerdict
km_judge_seen(const KmSeen *seen, const KmRowRules *rules)
{
	if (unlikely(seen->nonfinite))
		return KM_ROW_NONFINITE;
	return unlikely(!seen->nonzero) && rules->cosine ? KM_ROW_NO_DIRECTION : KM_ROW_KEPT;
}

static inline KmVerdict
km_judge_point(const double *x, int d, const KmRowRules *rules)
{
	KmSeen		seen = {0};

	for (int j = 0; j < d; j++)
		km_see_feature(&seen, x[j]);
	return km_judge_seen(&seen, rules);
}

/* Is a row of this verdict left out without an error? */
static inline bool
km_leaves_out(KmVerdict verdict, const KmRowRules *rules)
{
	return verdict == KM_ROW_NO_WEIGHT || verdict == KM_ROW_NULL_FEATURE ||
		(rules->skip_nonfinite && (verdict == KM_ROW_NONFINITE || verdict == KM_ROW_NO_DIRECTION));
}

/* ---- counts of what was left out ---- */

extern void km_count_left_out(KmReadCounts *counts, KmVerdict verdict);
extern void km_counts_add(KmReadCounts *to, const KmReadCounts *from);
extern int64 km_group_rows_left_out(const KmReadCounts *counts);
extern void km_notice_left_out(const KmReadCounts *counts);
extern void km_notice_no_rows(const KmSource *source);

/* ---- errors ---- */

/* What a function wants a point for, which decides what its errors advise. */
typedef enum KmPointUse
{
	KM_POINT_TO_FIT,			/* kmeans_agg(), kmeans() OVER */
	KM_POINT_TO_SUM,			/* feature_sum() */
	KM_POINT_TO_STEP,			/* kmeans_step(), with a model */
	KM_POINT_TO_LABEL			/* kmeans_predict() and the like, with a model */
} KmPointUse;

/* Where a point is from. */
typedef struct KmPointOrigin
{
	/* A row of a relation. */
	const KmSource *source;		/* NULL: it is a function's argument */
	int64		number;			/* of the row, from 1; 0: not known */
	const TupleTableSlot *slot; /* the row, as the source's query has it; NULL: other values are before them */
	/* An argument. */
	KmPointUse	use;
	const char *names;			/* of the features, one after the other, or NULL */
} KmPointOrigin;

/* ERROR for d features and, if that is what is wrong, the weight behind them. */
extern void km_throw_verdict(KmVerdict verdict, const KmPointOrigin *origin, const double *x, Size stride, int d)
			__attribute__((noreturn));

/* ERROR unless the verdict is to keep it (true) or to leave it out (false). */
static inline bool
km_keeps(KmVerdict verdict, const KmRowRules *rules, const KmPointOrigin *origin,
		 const double *x, Size stride, int d)
{
	if (likely(verdict == KM_ROW_KEPT))
		return true;
	if (!km_leaves_out(verdict, rules))
		km_throw_verdict(verdict, origin, x, stride, d);
	return false;
}

/* The features of an array; ERROR when it is not of one dimension, or empty. */
extern int	km_array_features(const ArrayType *array, const KmPointOrigin *origin);

/* The features of a vector's value, given without its header; ERROR when it is not a valid one. */
extern int	km_valid_features(KmLayout layout, const char *body, Size bytes, const KmPointOrigin *origin);

/* ERROR when d is over the limit. */
extern void km_check_most_features(int d);

/* ERROR: d features where the model, or the points before it, have another number. */
extern void km_throw_features(int d, int expected, const KmPointOrigin *origin)
			__attribute__((noreturn));

static inline void
km_check_features(int d, int expected, const KmPointOrigin *origin)
{
	if (unlikely(d != expected))
		km_throw_features(d, expected, origin);
}

/* ---- rows of a relation ---- */

typedef struct KmRowReader
{
	KmPointOrigin origin;		/* its source has to be set; the rest is done here */
	KmRowRules	rules;
	int			first;			/* place of the source's first value among a row's */
	bool		sorted;			/* rows do not come in the relation's order: do not number them */
	KmFill		fill;
	bool		keep_nulls;		/* a NULL feature leaves no row out, but is 0 and among the missing ones */
	/* Called when the number of features is known, before a row is kept. */
	void		(*begin) (void *arg, int d);
	void	   *arg;
	MemoryContext context;		/* of point */
	int			d;				/* 0: not known yet */
	double	   *point;			/* [d + 1] features, weight of the row */
	bool	   *missing;		/* [d] that are NULL, with keep_nulls */
	bool		elsewhere;		/* the array read last was out of line */
} KmRowReader;

/* Read a row's point: KM_ROW_KEPT, or why it is left out.  Raises the errors. */
extern KmVerdict km_read_row(KmRowReader *r, TupleTableSlot *slot);

#endif							/* REL_RULES_H */
