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

/*
 * Four lanes as one value; the compiler makes of it what the machine has, and each lane's
 * arithmetic is that of a double.
 */
typedef double GkQuad __attribute__((vector_size(32), aligned(8), may_alias));

#define GK_QUAD(p)	(*(GkQuad *) (p))
#define GK_QUAD_CONST(p)	(*(const GkQuad *) (p))

/* The sum of two quads' lanes, in one order. */
#define GK_QUAD_SUM(a, b)	(((a)[0] + (b)[0] + ((a)[2] + (b)[2])) + ((a)[1] + (b)[1] + ((a)[3] + (b)[3])))

/* The sum of x[i] y[i] for i in [from, to), both multiples of the lanes, in one order. */
static inline double
gk_eigen_dot(const double *x, const double *y, size_t from, size_t to)
{
	GkQuad		low = {0};
	GkQuad		high = {0};

	for (size_t i = from; i < to; i += GK_EIGEN_LANES)
	{
		low += GK_QUAD_CONST(x + i) * GK_QUAD_CONST(y + i);
		high += GK_QUAD_CONST(x + i + 4) * GK_QUAD_CONST(y + i + 4);
	}
	return GK_QUAD_SUM(low, high);
}

#endif							/* GK_EIGEN_H */
