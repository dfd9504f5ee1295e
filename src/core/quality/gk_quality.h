/*
 * gk_quality.h - how good a clustering is, measured in float64.
 *
 * The definitions are scikit-learn's (docs/choosing-k.md).  Means of clusters
 * are the means of the labelled points, not the model's centroids, which
 * differ when a fit stops before convergence.  Everything is measured in the
 * units that the fit minimised: original ones, standardised ones with
 * standardize, and points of length 1 under the cosine distance.  Each row
 * counts once, whatever its weight.
 *
 * Sums are sums of integers (2^-62 of the largest distance that is possible, 2^-80 of its square),
 * so the result does not depend on threads, chunks or the memory limit.
 */
#ifndef GK_QUALITY_H
#define GK_QUALITY_H

#include "core/gk_core.h"

typedef struct GkMeasures
{
	int			k;				/* clusters that have points */
	int64_t		rows;
	int64_t		sample;			/* rows in the classical silhouette */
	double		inertia;		/* to the model's centroids; gk_quality_model only */
	/* NaN where they are not defined: fewer than two clusters, no two points in one. */
	double		silhouette;		/* mean over the sample, distances within the sample */
	double		simplified;		/* mean over all rows, distances to the means */
	double		davies_bouldin;
	double		calinski_harabasz;
} GkMeasures;

/*
 * Of a store that is loaded but not prepared, from the values as they were
 * given; each row belongs to the model's nearest centroid, as in gk_label.
 */
GkStatus	gk_quality_model(GkStore *store, const GkModel *model, int64_t sample,
							 GkMeasures *out, GkError *err);

/*
 * Of a prepared store whose labels are known, in row order: from the prepared
 * float32 values, for many clusterings of one store.
 */
GkStatus	gk_quality_labels(GkStore *store, const int32_t *label, int k, int64_t sample,
							  GkMeasures *out, GkError *err);

/*
 * The sample's rows, of a store that is loaded but not prepared: *got of them,
 * x [got][d] row-major and their labels, in row order; both have room for
 * sample rows.
 */
GkStatus	gk_quality_rows(GkStore *store, const GkModel *model, int64_t sample,
							double *x, int32_t *label, int64_t *got, GkError *err);

/*
 * Of a sample of m of n rows: the row of its stratum s, ascending in s; the stratum of the first such
 * row from `row` on.
 */
int64_t		gk_quality_sample_row(int64_t n, int64_t m, int64_t s);
int64_t		gk_quality_stratum(int64_t n, int64_t m, int64_t row);

/* ---- two principal components, for pictures (gk_pca.c) ---- */

typedef struct GkPca
{
	double	   *mean;			/* [d] */
	double	   *axis[2];		/* [d] of length 1; the largest loading is positive */
	double		share[2];		/* of the total variance */
} GkPca;

/* Analyse m points of d >= 2 features, row-major, each feature times scale[j]. */
GkStatus	gk_pca(const GkHost *host, const double *x, int64_t m, int d, const double *scale,
				   GkPca *out, GkError *err);
void		gk_pca_free(const GkHost *host, GkPca *pca);

/* Eigenvalues (descending) and vectors (rows of v) of a symmetric n x n matrix, by Jacobi's rotations. */
void		gk_jacobi(double *a, int n, double *value, double *v);

#endif							/* GK_QUALITY_H */
