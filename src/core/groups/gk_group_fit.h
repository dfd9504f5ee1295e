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
 * Point i of a group: d doubles, all finite, not the zero vector under GK_COSINE;
 * then its weight (> 0), if there are weights.
 */
typedef const double *(*GkGroupRow) (const void *arg, int64_t i);

#define GK_MAX_GROUP	((int64_t) INT32_MAX)

/*
 * Cluster n >= 1 points.  row NULL: arg has them one after the other, as floats.
 * label: NULL, or the cluster of each point, in the order that they were given in.
 * The model is filled as by gk_fit().
 */
GkStatus	gk_group_fit(const GkHost *host, const GkBackend *backend, const GkOptions *options,
						 GkGroupRow row, const void *arg, int64_t n, int d, bool weighted,
						 int32_t *label, GkModel *model, GkError *err);

/*
 * The parts of it: the points in order, in a prepared store (which is to be freed in
 * any case), and how many clusters are looked for.
 */
GkStatus	gk_group_prepare(const GkHost *host, const GkOptions *options, GkGroupRow row, const void *arg,
							 int64_t n, int d, bool weighted, bool labelled, GkStore **store, GkError *err);
int			gk_group_clusters(const GkOptions *options, int64_t n);

#endif							/* GK_GROUP_FIT_H */
