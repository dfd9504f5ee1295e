/*
 * gk_spectral.h - spectral clustering of representatives (He et al.; Yan, Huang and Jordan 2009).
 *
 *   gk_spectral.c            a fit: representatives, then what follows, then the rows' labels
 *   gk_spectral_weigh.c      how much each representative's points weigh, and the clusters that they make together
 *   gk_spectral_graph.c      which representatives are near each other, and how near
 *   gk_spectral_parts.c      components of the graph; light ones are cut off
 *   gk_spectral_laplacian.c  the smallest eigenvalues of the Laplacian (gk_eigen.h), component by component
 *   gk_spectral_space.c      graph and eigenvectors together: the space that clusters are found in
 *   gk_spectral_choose.c     the number of clusters
 *   gk_spectral_embed.c      representatives as rows of the eigenvectors, clustered
 *   gk_spectral_scan.c       many k in one space: gaps and silhouettes
 *
 * All of it gives the same bits on every machine: distances are the canonical ones, sums have
 * one order, and of the functions of libm only sqrt() and fabs() are used.
 */
#ifndef GK_SPECTRAL_H
#define GK_SPECTRAL_H

#include "core/gk_core.h"

/* The graph and the Laplacian are matrices of this many rows at most. */
#define GK_MAX_REPRESENTATIVES	5000

/*
 * Fit representatives (options->k of them) and their clusters.  model->k is the number of
 * representatives, model->spectral has the rest; labels are clusters, not representatives.
 * backend and sink as for gk_fit().
 */
GkStatus	gk_spectral_fit(GkStore *store, const GkBackend *backend, const GkOptions *options,
							const GkSpectralOptions *spectral, const GkLabelSink *sink,
							GkModel *model, GkError *err);

/* Labels of a store by gk_label(), as clusters if the model is spectral. */
GkStatus	gk_spectral_label(GkStore *store, const GkBackend *backend, const GkModel *model,
							  const GkLabelSink *sink, GkError *err);

/* Fill model->spectral.weight, of a clustered model of a store with weights: one more pass. */
GkStatus	gk_spectral_weigh(GkStore *store, const GkBackend *backend, GkModel *model, GkError *err);

/* Cluster the representatives of a model: fill model->spectral. */
GkStatus	gk_spectral_cluster(const GkHost *host, const GkSpectralOptions *options, GkModel *model, GkError *err);

/* What the representatives of a cluster are together: k of each, centroid [k][d]. */
typedef struct GkSpectralClusters
{
	int64_t    *size;
	double	   *mass;			/* by which the representatives count in the centroid */
	double	   *centroid;		/* the mean of the representatives' points, or its direction under cosine */
	double	   *inertia;		/* of points to their representatives, as is radius */
	double	   *radius;
} GkSpectralClusters;

void		gk_spectral_clusters(const GkModel *model, GkSpectralClusters *out);

/* ---- the parts ---- */

typedef struct GkGraph
{
	int			n;				/* representatives */
	float	   *d2;				/* [n][n] canonical squared distances, prepared */
	double	   *weight;			/* [n][n] of the edges; 0: none */
	int			components;		/* without those cut off */
	int			cut_off;
	int			kept;			/* representatives that are not cut off */
	int32_t    *component;		/* [n] from 0, in the order of their first representatives; -1: cut off */
} GkGraph;

GkStatus	gk_graph_make(const GkHost *host, const GkModel *model, const GkSpectralOptions *o, GkGraph *g, GkError *err);
void		gk_graph_free(const GkHost *host, GkGraph *g);

/* Find the components and cut off those with less than 1/200 of the points. */
GkStatus	gk_graph_part(const GkHost *host, const int64_t *size, GkGraph *g, GkError *err);

/* Join the nearest components, by an edge each, until there are only k. */
GkStatus	gk_graph_join(const GkHost *host, int k, GkGraph *g, GkError *err);

/*
 * The m smallest eigenvalues of the Laplacian of what is kept (m <= g->kept), and eigenvectors,
 * [m][n]; elements of representatives that are cut off are 0.
 */
GkStatus	gk_laplacian_smallest(const GkHost *host, const GkGraph *g, GkLaplacian kind, int m,
								  double *value, double *vector, GkError *err);

/* ---- the space of the eigenvectors ---- */

typedef struct GkSpace
{
	GkGraph		graph;
	GkLaplacian laplacian;
	double		scale;			/* of a large eigenvalue: 1 for normalized Laplacians */
	int			m;
	double	   *value;			/* [m] eigenvalues, smallest first */
	double	   *vector;			/* [m][graph.n] */
} GkSpace;

/* Make the graph of a model's representatives, and part it. */
GkStatus	gk_space_graph(const GkHost *host, const GkModel *model, const GkSpectralOptions *o,
						   GkSpace *space, GkError *err);

/* Find the m smallest eigenvalues (or as many as there are) and their vectors; anew if there are some. */
GkStatus	gk_space_solve(const GkHost *host, GkSpace *space, int m, GkError *err);
void		gk_space_free(const GkHost *host, GkSpace *space);

/* Representative i as a point of the first k eigenvectors (k <= m), as they are clustered. */
void		gk_space_row(const GkSpace *space, int k, int i, double *row);

/*
 * Cluster the representatives that are kept, by k eigenvectors, into at most k clusters
 * (*found): cluster[n], -1 where cut off.
 */
GkStatus	gk_spectral_embed(const GkHost *host, const GkSpace *space, int k, int64_t seed,
							  int32_t *cluster, int *found, GkError *err);

/* ---- the number of clusters ---- */

/* The choice of k looks so far, and at eigenvalues beyond it. */
#define GK_CHOOSE_MAX	15
#define GK_CHOOSE_MORE	3

/* How many eigenvalues the choice of k, or k if that is not 0, needs. */
int			gk_count_eigenvalues(const GkGraph *g, int k);

/*
 * Choose k by m eigenvalues, smallest first, of a graph of that many components; scale: of a
 * large eigenvalue (1 for normalized Laplacians).
 */
int			gk_choose_k(const double *value, int m, int components, double scale,
						GkChoice *choice, double *strength);

/* The largest difference of powers of 1 - value / scale, by which k clusters stand out: 0 .. 1. */
double		gk_power_gap(const double *value, int k, double scale);

typedef struct GkSpectralScan
{
	int			kept;			/* representatives of the graph */
	int			n;				/* rows: fewer than asked for where those are fewer */
	int			gap;			/* index of the row whose k the eigenvalues choose, or -1 */
	int			silhouette;		/* of the largest silhouette, or -1 */
	struct GkSpectralScanRow
	{
		int			k;
		double		value;		/* the k-th eigenvalue */
		double		gap;		/* to the next one; NaN: there is none */
		double		strength;	/* of that gap; NaN likewise */
		double		silhouette; /* in the space of k eigenvectors, each point where its representative is;
								 * NaN: fewer than two clusters */
	}		   *row;			/* [k_max - k_min + 1], the caller's */
} GkSpectralScan;

/*
 * Cluster the representatives of a spectral model for each k from k_min to k_max, as
 * gk_spectral_cluster() would with that k.
 */
GkStatus	gk_spectral_scan(const GkHost *host, const GkModel *model, int k_min, int k_max,
							 GkSpectralScan *scan, GkError *err);

/* exp(-x) for x >= 0; the same bits everywhere, within 2 units of the last place; 0 below 2^-1022. */
double		gk_exp_minus(double x);

#endif							/* GK_SPECTRAL_H */
