/*
 * groups.h - many groups of points in memory: kmeans_agg(), kmeans_grouped(), kmeans() OVER.
 *
 * Words: a group is the points of one value of GROUP BY, of the group_by columns or of
 * PARTITION BY; its key is that value.  A batch is the groups that are in memory at once.  A
 * small group is clustered by one thread, a large one by all.
 *
 *   group_points.c    the points of one group, and its fit
 *   group_hash.c      groups by their keys
 *   group_agg.c       kmeans_agg()
 *   grouped*.c        kmeans_grouped(), see grouped.h
 */
#ifndef GROUPS_H
#define GROUPS_H

#include "core/groups/gk_group_fit.h"
#include "functions/functions.h"

/* ---- the points of one group (group_points.c) ---- */

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

/* The same as a GkGroupRow. */
extern const double *km_group_rows_point(const void *rows, int64_t i);

/* The rows for the engine; weighted: the last of their values is the weight. */
static inline GkGroupPoints
km_group_rows_points(const KmGroupRows *rows, bool weighted)
{
	return (GkGroupPoints) {km_group_rows_point, rows, rows->n, rows->d - (weighted ? 1 : 0), weighted};
}

extern void km_group_rows_init(KmGroupRows *rows, MemoryContext cxt);

/* Return the place of one more point; all have the same d. */
extern double *km_group_rows_add(KmGroupRows *rows, int d);

/* View points that are in memory, one after the other; to be read only. */
extern void km_group_rows_view(KmGroupRows *rows, double *values, int64 n, int d);

/*
 * False when the point is to be left out (nonfinite => 'skip'); ERROR when it cannot be clustered.
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
 * Options of a call that has no <options> arguments: from a kmeans_options value, or the
 * defaults with centroids, a float8[] or 0.  *out may point into the arguments.
 */
extern void km_options_from_value(HeapTupleHeader value, int k, KmFitOptions *out);
extern void km_options_from_defaults(Datum centroids, int k, KmFitOptions *out);
extern void km_check_given_features(const KmFitOptions *options, int d);

/* ---- groups by their keys (group_hash.c) ---- */

typedef struct KmKeyColumn
{
	FmgrInfo	hash;
	FmgrInfo	equal;
	FmgrInfo	order;			/* its fn_oid is invalid: the type has none */
	Oid			collation;
	int16		len;
	bool		byval;
	bool		whole;			/* a whole number, in whatever type */
} KmKeyColumn;

typedef struct KmOneGroup
{
	uint32		hash;
	int			number;			/* in the batch */
	Datum	   *key;
	bool	   *key_null;
	KmGroupRows *rows;			/* [sets]; the weight is a further feature here; NULL: clustered already */
	GkStatus	status;
	GkError    *err;			/* when the status is not GK_OK */
	/* The result, of GkModel. */
	int			k;
	double	   *centroids;		/* [k][d] */
	int64_t    *size;			/* [k] */
	double	   *inertia;		/* [k] */
	double	   *radius;			/* [k] */
} KmOneGroup;

/* A batch of groups, in the order in which they appeared until km_group_hash_sort(). */
typedef struct KmGroupHash
{
	int			nkeys;
	KmKeyColumn *keys;
	int			sets;			/* of points of each group; 0: one */
	MemoryContext rows_cxt;		/* of the points; NULL: cxt */
	MemoryContext cxt;			/* of the batch */
	int			n;
	int			room;
	KmOneGroup **groups;
	uint32	   *buckets;		/* group number + 1; 0: empty */
	uint32		nbuckets;		/* a power of two */
} KmGroupHash;

/* Look up the functions for the key columns' types, in the current memory context. */
extern void km_group_hash_types(KmGroupHash *g, int nkeys, TupleDesc desc);

/* Begin a batch, in a context below parent. */
extern void km_group_hash_begin(KmGroupHash *g, MemoryContext parent);

/* Are these the group's key columns? */
extern bool km_group_hash_same(const KmGroupHash *g, const KmOneGroup *one, const Datum *values, const bool *nulls);

/* Return the group with these key columns, a new one when there is none. */
extern KmOneGroup *km_group_hash_find(KmGroupHash *g, const Datum *values, const bool *nulls);

/* Put the groups in the order of ORDER BY their key columns; none is found or added after that. */
extern void km_group_hash_sort(KmGroupHash *g);

/* Add a group that km_group_hash_find() does not find. */
extern KmOneGroup *km_group_hash_add(KmGroupHash *g, uint32 hash, const Datum *values, const bool *nulls);

#endif							/* GROUPS_H */
