/*
 * group_points.h - points of one group, collected in memory: what kmeans_agg,
 * the window function and kmeans_grouped have in common.
 */
#ifndef GROUP_POINTS_H
#define GROUP_POINTS_H

#include "core/groups/gk_group_fit.h"
#include "gkmeans.h"
#include "functions/fn_point.h"
#include "relation/rel_rules.h"

/*
 * Rows of d doubles in segments, each twice as large as the one before: rows stay
 * where they are, and a small group takes little.
 */
#define KM_GROUP_ROWS_SEGMENTS	28
#define KM_GROUP_ROWS_FIRST		16	/* rows of segment 0 */

/* Values (points times features) from which a group gets all threads. */
#define KM_LARGE_GROUP		(64 * 1024)

typedef struct KmGroupRows
{
	MemoryContext cxt;			/* of the segments */
	int			d;				/* 0: no point yet */
	int64		n;
	int64		room;			/* rows of all segments */
	int			segments;
	double	   *segment[KM_GROUP_ROWS_SEGMENTS];
} KmGroupRows;

static inline double *
km_group_rows_at(const KmGroupRows *rows, int64 i)
{
	uint64		at = (uint64) i + KM_GROUP_ROWS_FIRST;
	int			s = 59 - __builtin_clzll(at);

	return rows->segment[s] + (at - ((uint64) KM_GROUP_ROWS_FIRST << s)) * rows->d;
}

/* The same of rows that are the engine's argument. */
extern const double *km_group_rows_point(const void *rows, int64_t i);

extern void km_group_rows_init(KmGroupRows *rows, MemoryContext cxt);
/* Place for one more point; all have the same d. */
extern double *km_group_rows_add(KmGroupRows *rows, int d);
/* Rows that are in memory already, one after the other; to be read only. */
extern void km_group_rows_view(KmGroupRows *rows, double *values, int64 n, int d);

/*
 * False when the point is to be left out (nonfinite => 'skip'); ERROR when it
 * cannot be clustered.
 */
static inline bool
km_usable_point(const double *x, int d, const KmFitOptions *options)
{
	static const KmPointOrigin origin = {.use = KM_POINT_TO_FIT};
	KmRowRules	rules = km_fit_rules(options);

	return km_keeps(km_judge_point(x, d, &rules), &rules, &origin, x, 1, d);
}

/* Cluster the rows (n >= 1); label as for gk_group_fit().  Ends with the host. */
extern void km_group_rows_fit(KmPgHost *host, const KmGroupRows *rows, const KmFitOptions *options,
						int32_t *label, GkModel *model);

/*
 * Options of a call that has no <options> arguments: from a kmeans_options value,
 * or the defaults (value NULL) with centroids, a float8[] or 0.  *out may point
 * into what is given.
 */
extern void km_options_from_value(HeapTupleHeader value, int k, KmFitOptions *out);
extern void km_options_from_defaults(Datum centroids, int k, KmFitOptions *out);
extern void km_check_given_features(const KmFitOptions *options, int d);

#endif							/* GROUP_POINTS_H */
