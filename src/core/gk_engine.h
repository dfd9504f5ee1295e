/*
 * gk_engine.h - one clustering in progress, shared by gk_fit.c (runs), gk_seed.c,
 * gk_seed_hierarchical.c and gk_given.c (where one starts), gk_lloyd.c (the loop),
 * gk_repair.c (empty clusters), gk_finish.c (order, statistics, labels) and gk_model.c.
 */
#ifndef GK_ENGINE_H
#define GK_ENGINE_H

#include "core/gk_backend.h"
#include "core/gk_numerics.h"

typedef struct GkEngine
{
	const GkHost *host;
	const GkBackend *backend;
	GkSession  *session;
	GkStore    *store;
	const GkPoints *pts;
	const GkOptions *opt;
	float	   *seeds;			/* [runs][opt->k][d] of a sample; NULL: the points' own */
	int		   *seeded;			/* [runs] */
	void	   *memory;			/* of the following, if it is one block */

	/* The centroids of the run at hand. */
	int			k;
	double	   *c;				/* [k][d] original units */
	float	   *f;				/* [k][d] prepared */
	float	   *recalled;		/* [k][d] scratch, where the backend has recall() */
	GkStep		step;			/* of the last pass */
	GkFinish	fin;			/* of the last finishing pass */
	int32_t    *was;			/* [k] of gk_finish(): GkFinish's */
	int32_t    *stepped;		/* [k] likewise */
	int		   *empty;			/* [k] scratch */
	double	   *moved;			/* [k] scratch: squared movement */
	double	   *explained;		/* [k] scratch: share of the inertia's terms */
} GkEngine;

/* One restart. */
typedef struct GkRun
{
	int			iterations;
	bool		converged;
	int			room;			/* of the history, grown as needed */
	double	   *history_inertia;	/* prepared units */
	double	   *history_shift;
} GkRun;

/* The point of a row that the last seed_race() or seed_far() named. */
static inline GkStatus
gk_picked_row(const GkBackend *backend, GkSession *session, GkStore *store, int64_t row,
			  float *out, GkError *err)
{
	return backend->row != NULL ? backend->row(session, row, out, err) : gk_store_row(store, row, out, err);
}

/* Allocate the engine's memory for opt->k centroids; the caller frees it. */
GkStatus	gk_engine_alloc(GkEngine *e, GkError *err);

/*
 * Call fn for all of k clusters, in jobs of some each: k * d may be a hundred million values, whose memory is new, and
 * the host may want to stop between.  false: it does.
 */
typedef void (*GkClustersFn) (void *arg, int from, int end);
bool		gk_engine_clusters(const GkEngine *e, int k, GkClustersFn fn, void *arg);

/* Keep the centroid at index i, or all of the engine's, equal to prepared points; false: stopped. */
void		gk_engine_set_point(GkEngine *e, int i, const float *point);
bool		gk_engine_set_points(GkEngine *e, const float *points);

/* Copy k centroids of original units, [k][d], to c, and prepared to f; either may be NULL.  false: stopped. */
bool		gk_engine_copy(const GkEngine *e, const double *centroids, int k, double *c, float *f);

/* Fill the engine's centroids for one restart; e->k is lowered when the points
 * have fewer distinct values. */
GkStatus	gk_seed(GkEngine *e, int run, GkError *err);

/* Does a fit begin with given centroids, or an earlier model's? */
static inline bool
gk_is_given(const GkOptions *opt)
{
	return opt->init == GK_INIT_CENTROIDS || opt->init == GK_INIT_WARM_START;
}

/* gk_given.c: make each of k given centroids a direction of length 1. */
GkStatus	gk_given_directions(double *centroids, int k, int d, GkError *err);

/* Copy a preparation to memory of the host's. */
GkStatus	gk_prep_copy(const GkHost *host, const GkPrep *from, GkPrep *to, GkError *err);

/* Candidates that a round of k-means++ draws. */
int			gk_seed_candidates(int k);

/*
 * Move a cluster to its mean, or under cosine to the mean's direction, where it has one: c [d] in original units, f [d]
 * prepared, from its sums [d] and mass.  Returns the squared movement; *explained: gk_explained_feature() of all its
 * features, of the centroid before.
 */
double		gk_update_cluster(const GkPoints *pts, const gk_int128 *sum, gk_int128 mass, double *c, float *f,
							  double *explained);

/* Iterate from the engine's centroids to convergence or max_iter; tol is absolute. */
GkStatus	gk_lloyd(GkEngine *e, int run, double tol, GkRun *r, GkError *err);

/* Return an inertia in prepared units (and prepared weights) as the user sees it. */
static inline double
gk_engine_inertia(const GkPoints *pts, double v)
{
	return gk_ldexp(gk_inertia_from_d2(&pts->prep, v), pts->weight_exp);
}

/*
 * Put each empty cluster (count[i] == 0) at the point farthest from all
 * centroids, one after the other: e->empty lists them.  *repaired: how many; the rest stay
 * empty because every point sits on a centroid.  finished: the backend's last pass was a
 * finish() with these centroids.
 */
GkStatus	gk_repair(GkEngine *e, const int64_t *count, bool finished, int *repaired, GkError *err);

/*
 * After the loop: number the clusters by size (unless the order is given),
 * drop what cannot be filled, and compute the statistics of exactly the
 * centroids that are returned.  Fills e->fin and *inertia (exact).  A sink, which
 * may be NULL, must be able to start again.
 */
GkStatus	gk_finish(GkEngine *e, bool keep_order, const GkLabelSink *sink, gk_int128 *inertia, GkError *err);

#endif							/* GK_ENGINE_H */
