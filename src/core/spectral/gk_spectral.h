/*
 * gk_spectral.h - spectral clustering of representatives (He et al.; Yan, Huang and Jordan 2009).
 *
 *   gk_spectral.c            a fit: representatives, then what follows, then the rows' labels
 *   gk_spectral_graph.c      which representatives are near each other, and how near
 *   gk_spectral_parts.c      components of the graph; light ones are cut off
 *   gk_spectral_laplacian.c  the smallest eigenvalues of the Laplacian (gk_eigen.h), component by component
 *   gk_spectral_choose.c     the number of clusters
 *   gk_spectral_embed.c      representatives as rows of the eigenvectors, clustered
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

/* Cluster the representatives of a model: fill model->spectral. */
GkStatus	gk_spectral_cluster(const GkHost *host, const GkSpectralOptions *options, GkModel *model, GkError *err);

/* What the representatives of a cluster are together: k of each, centroid [k][d]. */
typedef struct GkSpectralClusters
{
	int64_t    *size;
	double	   *centroid;		/* the mean of the representatives, by their sizes */
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

/* Eigenvalues that the choice of k looks at, beyond the number of components. */
#define GK_CHOOSE_MAX	15
#define GK_CHOOSE_MORE	3

/*
 * Choose k by m eigenvalues, smallest first, of a graph of that many components; scale: of a
 * large eigenvalue (1 for normalized Laplacians).
 */
int			gk_choose_k(const double *value, int m, int components, double scale,
						GkChoice *choice, double *strength);

/* The largest difference of powers of 1 - value / scale, by which k clusters stand out: 0 .. 1. */
double		gk_power_gap(const double *value, int k, double scale);

/*
 * Cluster the representatives that are kept, by k eigenvectors ([k][n]), into at most k clusters
 * (*found): cluster[n], -1 where cut off.
 */
GkStatus	gk_spectral_embed(const GkHost *host, const GkGraph *g, const double *vector, int k,
							  bool normalise_rows, int64_t seed, int32_t *cluster, int *found, GkError *err);

/* exp(-x) for x >= 0; the same bits everywhere, within 2 units of the last place; 0 below 2^-1022. */
double		gk_exp_minus(double x);

#endif							/* GK_SPECTRAL_H */
