/*
 * window.h - kmeans(point, k[, centroids]) OVER (PARTITION BY ...) without the server's WindowAgg
 * node, which needs sorted rows and keeps and reads them several times: the plan node KmeansWindow.
 *
 *   window_agg.c      the window function itself, for WindowAgg
 *   window_plan.c     when the node can take WindowAgg's place, and its plan
 *   window_node.c     the node
 *   window_points.c   the points of its partitions, and their labels
 *   window_columns.c  the columns that the nodes above it need
 *   window_spill.c    points that are over gkmeans.memory_limit
 *
 * Words: a call is one kmeans() of the query, a partition one value of PARTITION BY, and a run the
 * points that went to one temporary file.
 */
#ifndef WINDOW_H
#define WINDOW_H

#include "executor/executor.h"
#include "nodes/extensible.h"
#include "storage/buffile.h"

#include "groups/groups.h"

extern Datum kmeans_window(PG_FUNCTION_ARGS);

/* The options of a call of kmeans(). */
extern void km_window_options(NullableDatum k, NullableDatum centroids, KmFitOptions *out);

/* ---- the plan (window_plan.c) ---- */

extern void km_window_plan_init(void);

/*
 * The node's rows are those of its child with one label for each call of kmeans():
 * custom_scan_tlist is the child's target list, and then the calls.  custom_exprs are
 * first the partition's keys, then for each call its point, or the point's features one
 * by one, and its other arguments.  custom_private has the numbers.
 */
typedef struct KmWindowCallPlan
{
	int			features;		/* 0: the point is one expression */
	bool		centroids;		/* there is a third argument */
} KmWindowCallPlan;

extern void km_window_plan_read(List *custom_private, int *nkeys, int *ncalls, KmWindowCallPlan **calls);

/* The number type of a point's features if it is ARRAY[...] of numbers, else InvalidOid. */
extern Oid	km_window_features(const List *args);

extern const CustomScanMethods km_window_node_methods;

/* ---- points and labels (window_points.c) ---- */

#define KM_NO_LABEL		(-1)

/* One call of kmeans(). */
typedef struct KmWindowCall
{
	KmFitOptions options;
	/* the point's features are values at, at + 1, ... of an input row, or it is value at */
	int			at;
	int			features;		/* 0: one value */
	Oid			type;			/* of the features */
	KmeansPoint reader;			/* of the one value */
	/* Of each row: its partition's number, then its label; KM_NO_LABEL: not a point. */
	int32	   *label;
	int64		n;				/* points */
} KmWindowCall;

typedef struct KmWindowSpill KmWindowSpill;

typedef struct KmWindowPoints
{
	MemoryContext cxt;			/* of the labels; emptied by km_window_begin() */
	MemoryContext points_cxt;	/* gone when the labels are there */
	int			ncalls;
	KmWindowCall *calls;
	KmGroupHash groups;
	int64		n;				/* rows */
	int64		room;
	Size		limit;			/* of the points' memory, if there is more than one partition */
	KmWindowSpill *spill;		/* NULL: all points are in memory */
	/* For EXPLAIN. */
	int64		partitions;
	Size		peak;			/* bytes of the points in memory */
	Size		spilled;		/* bytes in temporary files */
} KmWindowPoints;

/* Begin, without rows; the calls' options and places are set. */
extern void km_window_begin(KmWindowPoints *w, double rows);

/* Add a row: the partition's keys, and the calls' points.  The current context is the row's. */
extern void km_window_add(KmWindowPoints *w, const Datum *values, const bool *nulls);

/* Make the labels, when all rows are there. */
extern void km_window_fit(KmWindowPoints *w);

/* ---- rows that are given out again (window_columns.c) ---- */

typedef struct KmWindowColumns KmWindowColumns;

/* Begin rows of such columns, in the current memory context. */
extern KmWindowColumns *km_window_columns_begin(TupleDesc desc);

/* Keep columns from[0], from[1], ... of a row. */
extern void km_window_columns_put(KmWindowColumns *rows, const Datum *values, const bool *nulls, const AttrNumber *from);

/* Go to the first row; also before the first one is read. */
extern void km_window_columns_rewind(KmWindowColumns *rows);

/* Read the next row into columns to[0], to[1], ... */
extern void km_window_columns_get(KmWindowColumns *rows, Datum *values, bool *nulls, const AttrNumber *to);
extern void km_window_columns_end(KmWindowColumns *rows);

/* ---- points in temporary files (window_spill.c) ---- */

/* Read bytes of a temporary file of something, or go to its start; ERROR when that fails. */
extern void km_window_file_read(BufFile *file, void *data, Size bytes, const char *what);
extern void km_window_file_rewind(BufFile *file, const char *what);

/* Write all points in memory to a file. */
extern void km_window_spill(KmWindowPoints *w);

/* Call it before partitions are loaded, which has to be call after call and in their order. */
extern void km_window_spill_rewind(KmWindowPoints *w);

/* Load the points of partitions first, first + 1, ...; returns the first that is not loaded. */
extern int	km_window_spill_load(KmWindowPoints *w, int call, int first);

/* How many points a partition has in the files. */
extern int64 km_window_spill_count(const KmWindowPoints *w, int call, int partition);
extern void km_window_spill_end(KmWindowPoints *w);

#endif							/* WINDOW_H */
