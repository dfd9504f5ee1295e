/*
 * gk_pca.h - two principal components, for pictures.
 */
#ifndef GK_PCA_H
#define GK_PCA_H

#include "core/gk_core.h"

typedef struct GkPca
{
	double	   *mean;			/* [d] */
	double	   *axis[2];		/* [d] of length 1; the largest loading is positive */
	double		share[2];		/* of the total variance */
} GkPca;

/* Of m points of d features, row-major, each feature times scale[j].  d >= 2. */
GkStatus	gk_pca(const GkHost *host, const double *x, int64_t m, int d, const double *scale,
				   GkPca *out, GkError *err);
void		gk_pca_free(const GkHost *host, GkPca *pca);

/* Eigenvalues (descending) and vectors (rows of v) of a symmetric n x n matrix, by Jacobi's rotations. */
void		gk_jacobi(double *a, int n, double *value, double *v);

#endif							/* GK_PCA_H */
