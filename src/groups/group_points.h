/*
 * group_points.h - points of one group, collected in memory: what kmeans_agg,
 * the window function and kmeans_grouped have in common.
 */
#ifndef GKMEANS_GROUP_H
#define GKMEANS_GROUP_H

#include "core/groups/gk_group_fit.h"
#include "gkmeans.h"
#include "functions/fn_point.h"
#include "relation/rel_rules.h"

/*
 * Rows of d doubles in segments, each twice as large as the one before: rows stay
 * where they are, and a small group takes little.
 */
#define GK_ROWS_SEGMENTS	28
#define GK_ROWS_FIRST		16	/* rows of segment 0 */

/* Values (points times features) from which a group gets all threads. */
#define GK_LARGE_GROUP		(64 * 1024)

typedef struct GkRows
{
	MemoryContext cxt;			/* of the segments */
	int			d;				/* 0: no point yet */
	int64		n;
	int64		room;			/* rows of all segments */
	int			segments;
	double	   *segment[GK_ROWS_SEGMENTS];
} GkRows;

static inline double *
gk_rows_at(const GkRows *rows, int64 i)
{
	uint64		at = (uint64) i + GK_ROWS_FIRST;
	int			s = 59 - __builtin_clzll(at);

	return rows->segment[s] + (at - ((uint64) GK_ROWS_FIRST << s)) * rows->d;
}

/* The same of rows that are the engine's argument. */
extern const double *gk_rows_point(const void *rows, int64_t i);

extern void gk_rows_init(GkRows *rows, MemoryContext cxt);
/* Place for one more point; all have the same d. */
extern double *gk_rows_add(GkRows *rows, int d);
/* Rows that are in memory already, one after the other; to be read only. */
extern void gk_rows_view(GkRows *rows, double *values, int64 n, int d);

/*
 * False when the point is to be left out (nonfinite => 'skip'); ERROR when it
 * cannot be clustered.
 */
static inline bool
gk_usable_point(const double *x, int d, const GkFitOptions *options)
{
	static const GkPointOrigin origin = {.use = GK_POINT_TO_FIT};
	GkRowRules	rules = gk_fit_rules(options);

	return gk_keeps(gk_judge_point(x, d, &rules), &rules, &origin, x, 1, d);
}

/* Cluster the rows (n >= 1); label as for gk_group_fit().  Ends with the host. */
extern void gk_rows_fit(GkPgHost *host, const GkRows *rows, const GkFitOptions *options,
						int32_t *label, GkModel *model);

/*
 * Options of a call that has no <options> arguments: from a kmeans_options value,
 * or the defaults (value NULL) with centroids, a float8[] or 0.  *out may point
 * into what is given.
 */
extern void gk_options_from_value(HeapTupleHeader value, int k, GkFitOptions *out);
extern void gk_options_from_defaults(Datum centroids, int k, GkFitOptions *out);
extern void gk_check_given_features(const GkFitOptions *options, int d);

#endif							/* GKMEANS_GROUP_H */
