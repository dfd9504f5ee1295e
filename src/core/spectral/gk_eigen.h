/*
 * gk_eigen.h - eigenvalues and eigenvectors of a symmetric matrix, the same bits on every machine.
 *
 * Only + - * / and sqrt, in an order that does not depend on the number of threads or the width
 * of vectors: what LAPACK returns depends on the kernels of the machine.
 */
#ifndef GK_EIGEN_H
#define GK_EIGEN_H

#include "core/gk_core.h"

/* Rows of matrices and vectors are zeros from their length up to a multiple of this. */
#define GK_EIGEN_LANES	8

static inline size_t
gk_eigen_stride(int n)
{
	return ((size_t) n + GK_EIGEN_LANES - 1) / GK_EIGEN_LANES * GK_EIGEN_LANES;
}

/*
 * The m smallest eigenvalues of the n x n matrix a ([n][gk_eigen_stride(n)], both triangles),
 * ascending, and their eigenvectors ([m][gk_eigen_stride(n)], orthonormal, the largest element
 * positive).  a is overwritten.
 */
GkStatus	gk_eigen_smallest(const GkHost *host, double *a, int n, int m,
							  double *value, double *vector, GkError *err);

/* ---- its parts ---- */

/*
 * Reduce a to a tridiagonal matrix: diagonal ([n]) and off ([n], off[n - 1] = 0).  Row j of a
 * becomes the j-th Householder vector, of the factor beta[j] ([n]).  Returns GK_STOPPED when
 * the host asks for it.
 */
GkStatus	gk_eigen_tridiagonalise(const GkHost *host, double *a, int n, double *diagonal, double *off,
									double *beta, GkError *err);

/* Eigenvectors of the tridiagonal matrix to those of the matrix it was made from. */
GkStatus	gk_eigen_back(const GkHost *host, const double *a, int n, const double *beta, double *vector, int m);

/* The m smallest eigenvalues of a tridiagonal matrix, by bisection. */
void		gk_eigen_bisect(const double *diagonal, const double *off, int n, int m, double *value);

/* Their eigenvectors, by inverse iteration. */
GkStatus	gk_eigen_inverse(const GkHost *host, const double *diagonal, const double *off, int n,
							 const double *value, int m, double *vector, GkError *err);

/* The sum of x[i] y[i] for i in [from, to), both multiples of the lanes, in one order. */
static inline double
gk_eigen_dot(const double *x, const double *y, size_t from, size_t to)
{
	double		s[GK_EIGEN_LANES] = {0};

	for (size_t i = from; i < to; i += GK_EIGEN_LANES)
	{
#pragma omp simd
		for (int l = 0; l < GK_EIGEN_LANES; l++)
			s[l] += x[i + l] * y[i + l];
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

#endif							/* GK_EIGEN_H */
