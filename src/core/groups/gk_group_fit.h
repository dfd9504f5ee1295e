/*
 * gk_group_fit.h - clustering a group of points that came in no particular order.
 *
 * The engine's random numbers are counted by the place of a row.  Where that is
 * an accident (GROUP BY, parallel workers, a window without ORDER BY) the points
 * are sorted first, so that the result belongs to the set of points alone.
 */
#ifndef GK_GROUP_FIT_H
#define GK_GROUP_FIT_H

#include "core/gk_core.h"

/*
 * Return point i of a group: d doubles, all finite, not the zero vector under GK_COSINE;
 * then its weight (> 0), if there are weights.
 */
typedef const double *(*GkGroupRow) (const void *arg, int64_t i);

#define GK_MAX_GROUP	((int64_t) INT32_MAX)

typedef struct GkGroupPoints
{
	GkGroupRow	row;			/* NULL: arg has the points one after the other, as floats */
	const void *arg;
	int64_t		n;				/* >= 1 */
	int			d;
	bool		weighted;
} GkGroupPoints;

/*
 * Cluster the points.  label: NULL, or the cluster of each point, in the order that they
 * were given in.  The model is filled as by gk_fit().
 */
GkStatus	gk_group_fit(const GkHost *host, const GkBackend *backend, const GkOptions *options,
						 const GkGroupPoints *points, int32_t *label, GkModel *model, GkError *err);

/* The steps of it: load the points in order into a prepared store, which is to be freed in any case; */
GkStatus	gk_group_prepare(const GkHost *host, const GkOptions *options, const GkGroupPoints *points,
							 bool labelled, GkStore **store, GkError *err);

/* and the number of clusters to look for. */
int			gk_group_clusters(const GkOptions *options, int64_t n);

#endif							/* GK_GROUP_FIT_H */
