/*
 * gk_eigen.c - a symmetric matrix to tridiagonal form by Householder reflections, and back.
 *
 * The reflection of step j changes the rest of the matrix by v w' + w v'.  That change is made
 * while step j + 1 multiplies the matrix by its own vector, so the matrix goes through the
 * memory once in each step, not twice.  Rows do not depend on each other: threads take some of
 * them each, and every sum is in one order.
 */
#include <math.h>
#include <string.h>

#include "core/spectral/gk_eigen.h"

/* Elements of a job, and of a step that is not worth a second thread. */
#define JOB_ELEMENTS	16384
#define FEW_ELEMENTS	65536
/* Elements between two looks for a cancel. */
#define POLL_ELEMENTS	4000000

typedef struct Reduction
{
	double	   *a;
	size_t		stride;
	int			n;
	int			first;			/* row of the part that is left */
	int			rows_a_job;
	const double *v;			/* of the step before: the change still to be made */
	const double *w;
	const double *next;			/* the vector of this step */
	double	   *product;		/* the changed matrix times it */
} Reduction;

static void
change_and_multiply(void *arg, int64_t job, int thread)
{
	const Reduction *r = arg;
	int			from = r->first + (int) job * r->rows_a_job;
	int			to = from + r->rows_a_job < r->n ? from + r->rows_a_job : r->n;
	size_t		begin = (size_t) r->first / GK_EIGEN_LANES * GK_EIGEN_LANES;

	(void) thread;
	for (int i = from; i < to; i++)
	{
		double	   *row = r->a + (size_t) i * r->stride;
		double		vi = r->v[i];
		double		wi = r->w[i];
		GkQuad		low = {0};
		GkQuad		high = {0};

		for (size_t c = begin; c < r->stride; c += GK_EIGEN_LANES)
		{
			GkQuad		a = GK_QUAD(row + c) - (vi * GK_QUAD_CONST(r->w + c) + wi * GK_QUAD_CONST(r->v + c));
			GkQuad		b = GK_QUAD(row + c + 4) - (vi * GK_QUAD_CONST(r->w + c + 4) + wi * GK_QUAD_CONST(r->v + c + 4));

			GK_QUAD(row + c) = a;
			GK_QUAD(row + c + 4) = b;
			low += a * GK_QUAD_CONST(r->next + c);
			high += b * GK_QUAD_CONST(r->next + c + 4);
		}
		r->product[i] = GK_QUAD_SUM(low, high);
	}
}

static bool
change_rows(const GkHost *host, Reduction *r)
{
	int			rows = r->n - r->first;

	r->rows_a_job = (int64_t) rows * rows <= FEW_ELEMENTS ? rows : JOB_ELEMENTS / rows + 1;
	return gk_parallel_for(host, (rows + r->rows_a_job - 1) / r->rows_a_job, change_and_multiply, r);
}

/*
 * Make the Householder vector of row from `first` on in place: (I - beta v v') row is *off in its
 * first element and 0 in the others.  Returns beta.
 */
static double
reflect(double *row, size_t first, size_t stride, double *off)
{
	size_t		begin = first / GK_EIGEN_LANES * GK_EIGEN_LANES;
	double		head = row[first];
	double		rest;
	double		length;

	memset(row + begin, 0, (first - begin + 1) * sizeof(double));
	rest = gk_eigen_dot(row, row, begin, stride);
	*off = head;
	if (rest == 0.0)
		return 0.0;
	length = sqrt(head * head + rest);
	*off = head > 0.0 ? -length : length;
	row[first] = head - *off;
	return 1.0 / (length * (length + fabs(head)));
}

GkStatus
gk_eigen_tridiagonalise(const GkHost *host, double *a, int n, double *diagonal, double *off,
						double *beta, GkError *err)
{
	size_t		stride = gk_eigen_stride(n);
	double	   *work = gk_alloc0(host, 3 * stride, sizeof(double));
	double	   *v = work;
	double	   *w = work + stride;
	Reduction	r = {.a = a,.stride = stride,.n = n,.v = v,.w = w,.product = work + 2 * stride};
	int64_t		elements = 0;
	GkStatus	st = GK_OK;

	if (work == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for a matrix of %d rows", n);
	for (int j = 0; st == GK_OK && j < n; j++)
	{
		double	   *row = a + (size_t) j * stride;
		size_t		begin = (size_t) j / GK_EIGEN_LANES * GK_EIGEN_LANES;
		double		half;

		for (size_t c = begin; c < stride; c++)
			row[c] -= v[j] * w[c] + w[j] * v[c];
		diagonal[j] = row[j];
		off[j] = beta[j] = 0.0;
		memset(row + begin, 0, ((size_t) j - begin + 1) * sizeof(double));
		if (j == n - 1)
			break;
		beta[j] = reflect(row, (size_t) j + 1, stride, &off[j]);
		r.first = j + 1;
		r.next = row;
		elements += (int64_t) (n - j) * (n - j);
		if (!change_rows(host, &r) || (elements > POLL_ELEMENTS && host->poll != NULL && host->poll(host->ctx)))
			st = GK_STOPPED;
		if (elements > POLL_ELEMENTS)
			elements = 0;

		/* w = beta (A v - v beta (v' A v) / 2); elements up to j are 0 */
		memcpy(v, row, stride * sizeof(double));
		memset(v, 0, ((size_t) j + 1) * sizeof(double));
		memset(w, 0, ((size_t) j + 1) * sizeof(double));
		memset(r.product, 0, ((size_t) j + 1) * sizeof(double));
		half = beta[j] * gk_eigen_dot(r.product, v, begin, stride) * 0.5;
		for (int i = j + 1; i < n; i++)
			w[i] = beta[j] * (r.product[i] - half * v[i]);
	}
	gk_free(host, work);
	return st;
}

/* ---- back ---- */

typedef struct Back
{
	const double *a;
	size_t		stride;
	int			n;
	const double *beta;
	double	   *vector;
} Back;

/* Apply the reflections in the opposite order to one vector; make its largest element positive. */
static void
reflect_back(void *arg, int64_t job, int thread)
{
	const Back *b = arg;
	double	   *z = b->vector + (size_t) job * b->stride;
	double		largest = 0.0;

	(void) thread;
	for (int j = b->n - 2; j >= 0; j--)
	{
		const double *v = b->a + (size_t) j * b->stride;
		size_t		begin = (size_t) j / GK_EIGEN_LANES * GK_EIGEN_LANES;
		double		t;

		if (b->beta[j] == 0.0)
			continue;
		t = b->beta[j] * gk_eigen_dot(v, z, begin, b->stride);
		for (size_t c = begin; c < b->stride; c++)
			z[c] -= t * v[c];
	}
	for (int i = 0; i < b->n; i++)
		if (fabs(z[i]) > fabs(largest))
			largest = z[i];
	for (int i = 0; largest < 0.0 && i < b->n; i++)
		z[i] = -z[i];
}

GkStatus
gk_eigen_back(const GkHost *host, const double *a, int n, const double *beta, double *vector, int m)
{
	Back		b = {a, gk_eigen_stride(n), n, beta, vector};

	return gk_parallel_for(host, m, reflect_back, &b) ? GK_OK : GK_STOPPED;
}

GkStatus
gk_eigen_smallest(const GkHost *host, double *a, int n, int m, double *value, double *vector, GkError *err)
{
	double	   *work = gk_alloc(host, 3 * (size_t) n, sizeof(double));
	double	   *diagonal = work;
	double	   *off = work + n;
	double	   *beta = work + 2 * (size_t) n;
	GkStatus	st;

	if (work == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for a matrix of %d rows", n);
	st = gk_eigen_tridiagonalise(host, a, n, diagonal, off, beta, err);
	if (st == GK_OK)
	{
		gk_eigen_bisect(diagonal, off, n, m, value);
		st = gk_eigen_inverse(host, diagonal, off, n, value, m, vector, err);
	}
	if (st == GK_OK)
		st = gk_eigen_back(host, a, n, beta, vector, m);
	gk_free(host, work);
	return st;
}
