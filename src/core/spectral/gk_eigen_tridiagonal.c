/*
 * gk_eigen_tridiagonal.c - the smallest eigenvalues of a symmetric tridiagonal matrix by
 * bisection with Sturm sequences, and their eigenvectors by inverse iteration.
 *
 * Both as in J. H. Wilkinson and C. Reinsch, "Handbook for Automatic Computation II", 1971.
 * Eigenvectors of equal and nearly equal eigenvalues are kept apart by starting at random,
 * by shifts that differ, and by making each orthogonal to all before it.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/spectral/gk_eigen.h"

#define MAX_ROUNDS		12
/* Shifts differ by this many times the rounding of the norm. */
#define SHIFT_STEPS		8.0
/* A vector is good when its residual is this many times that. */
#define GOOD_RESIDUAL	16.0

/* A bound of the absolute values of the eigenvalues. */
static double
norm_of(const double *diagonal, const double *off, int n)
{
	double		norm = 0.0;

	for (int i = 0; i < n; i++)
	{
		double		sum = fabs(diagonal[i]) + fabs(off[i]) + (i > 0 ? fabs(off[i - 1]) : 0.0);

		if (sum > norm)
			norm = sum;
	}
	return norm;
}

/* Eigenvalues below x. */
static int
count_below(const double *diagonal, const double *off, int n, double x, double tiny)
{
	double		q = 1.0;
	int			count = 0;

	for (int i = 0; i < n; i++)
	{
		q = diagonal[i] - x - (i > 0 ? off[i - 1] * off[i - 1] / q : 0.0);
		if (fabs(q) < tiny)
			q = -tiny;
		count += q < 0.0;
	}
	return count;
}

void
gk_eigen_bisect(const double *diagonal, const double *off, int n, int m, double *value)
{
	double		norm = norm_of(diagonal, off, n);
	double		tiny = norm * DBL_EPSILON * DBL_EPSILON + DBL_MIN;

	for (int i = 0; i < m; i++)
	{
		double		low = i > 0 ? value[i - 1] - norm * DBL_EPSILON : -norm * (1.0 + DBL_EPSILON * n);
		double		high = norm * (1.0 + DBL_EPSILON * n);

		for (;;)
		{
			double		middle = 0.5 * (low + high);

			if (!(middle > low && middle < high) || high - low <= norm * DBL_EPSILON * 0.25)
				break;
			if (count_below(diagonal, off, n, middle, tiny) > i)
				high = middle;
			else
				low = middle;
		}
		value[i] = 0.5 * (low + high);
		if (i > 0 && value[i] < value[i - 1])
			value[i] = value[i - 1];
	}
}

/* ---- eigenvectors ---- */

/* T - shift = P L U with partial pivoting: one multiplier and at most three elements of U in a row. */
typedef struct Factors
{
	int			n;
	double	   *pivot;			/* [n] of U */
	double	   *next;			/* [n] right of it */
	double	   *second;			/* [n] and right of that */
	double	   *multiplier;		/* [n] */
	bool	   *swapped;		/* [n] with the next row */
} Factors;

static void
factor(Factors *f, const double *diagonal, const double *off, double shift, double tiny)
{
	double		pivot = diagonal[0] - shift;
	double		next = off[0];

	for (int i = 0; i < f->n; i++)
	{
		double		below = i < f->n - 1 ? off[i] : 0.0;

		f->swapped[i] = fabs(below) > fabs(pivot);
		f->second[i] = 0.0;
		if (f->swapped[i])
		{
			/* the row below comes first */
			f->pivot[i] = below;
			f->next[i] = diagonal[i + 1] - shift;
			f->second[i] = i < f->n - 2 ? off[i + 1] : 0.0;
			f->multiplier[i] = pivot / below;
			pivot = next - f->multiplier[i] * f->next[i];
			next = -f->multiplier[i] * f->second[i];
			continue;
		}
		if (fabs(pivot) < tiny)
			pivot = pivot < 0.0 ? -tiny : tiny;
		f->pivot[i] = pivot;
		f->next[i] = next;
		f->multiplier[i] = below / pivot;
		if (i < f->n - 1)
		{
			pivot = diagonal[i + 1] - shift - f->multiplier[i] * next;
			next = i < f->n - 2 ? off[i + 1] : 0.0;
		}
	}
}

static void
solve(const Factors *f, double *x)
{
	int			n = f->n;

	for (int i = 0; i < n - 1; i++)
	{
		if (f->swapped[i])
		{
			double		t = x[i];

			x[i] = x[i + 1];
			x[i + 1] = t;
		}
		x[i + 1] -= f->multiplier[i] * x[i];
	}
	for (int i = n - 1; i >= 0; i--)
	{
		double		t = x[i];

		if (i < n - 1)
			t -= f->next[i] * x[i + 1];
		if (i < n - 2)
			t -= f->second[i] * x[i + 2];
		x[i] = t / f->pivot[i];
	}
}

/* Make x orthogonal to the vectors before it, twice, and of length 1; false: nothing is left of it. */
static bool
normalise(double *x, const double *vector, int before, size_t stride)
{
	double		largest = 0.0;
	double		length;

	for (size_t c = 0; c < stride; c++)
		if (!(fabs(x[c]) <= largest))
			largest = fabs(x[c]);
	if (!(largest > 0.0 && largest <= DBL_MAX))
		return false;
	for (size_t c = 0; c < stride; c++)
		x[c] /= largest;
	for (int pass = 0; pass < 2; pass++)
		for (int b = 0; b < before; b++)
		{
			const double *y = vector + (size_t) b * stride;
			double		t = gk_eigen_dot(x, y, 0, stride);

			for (size_t c = 0; c < stride; c++)
				x[c] -= t * y[c];
		}
	length = gk_eigen_dot(x, x, 0, stride);
	if (length < DBL_EPSILON * DBL_EPSILON)
		return false;
	length = sqrt(length);
	for (size_t c = 0; c < stride; c++)
		x[c] /= length;
	return true;
}

/* The largest element of (T - value) x. */
static double
residual(const double *diagonal, const double *off, int n, double value, const double *x)
{
	double		worst = 0.0;

	for (int i = 0; i < n; i++)
	{
		double		t = (diagonal[i] - value) * x[i];

		if (i > 0)
			t += off[i - 1] * x[i - 1];
		if (i < n - 1)
			t += off[i] * x[i + 1];
		if (fabs(t) > worst)
			worst = fabs(t);
	}
	return worst;
}

static void
start(double *x, int n, int which, int round)
{
	for (int i = 0; i < n; i++)
		x[i] = gk_uniform(gk_hash(gk_key(which, round, 0), i)) - 0.5;
}

GkStatus
gk_eigen_inverse(const GkHost *host, const double *diagonal, const double *off, int n,
				 const double *value, int m, double *vector, GkError *err)
{
	size_t		stride = gk_eigen_stride(n);
	double		grain = norm_of(diagonal, off, n) * DBL_EPSILON + DBL_MIN;
	double	   *work = gk_alloc(host, 4 * (size_t) n, sizeof(double));
	Factors		f = {n, work, work + n, work + 2 * (size_t) n, work + 3 * (size_t) n,
	gk_alloc(host, n, sizeof(bool))};
	double		shift = 0.0;
	GkStatus	st = GK_OK;

	if (work == NULL || f.swapped == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for a matrix of %d rows", n);
	for (int i = 0; st == GK_OK && i < m; i++)
	{
		double	   *x = vector + (size_t) i * stride;
		bool		usable;

		shift = i > 0 && value[i] < shift + SHIFT_STEPS * grain ? shift + SHIFT_STEPS * grain : value[i];
		factor(&f, diagonal, off, shift, grain);
		memset(x, 0, stride * sizeof(double));
		start(x, n, i, 0);
		usable = normalise(x, vector, i, stride);
		for (int round = 1; round <= MAX_ROUNDS; round++)
		{
			if (usable)
				solve(&f, x);
			usable = usable && normalise(x, vector, i, stride);
			if (!usable)
			{
				start(x, n, i, round);
				usable = normalise(x, vector, i, stride);
			}
			else if (round > 1 && residual(diagonal, off, n, value[i], x) <= GOOD_RESIDUAL * grain)
				break;
		}
		if (host->poll != NULL && host->poll(host->ctx))
			st = GK_STOPPED;
	}
	gk_free(host, work);
	gk_free(host, f.swapped);
	return st;
}
