/*
 * gk_pca.c - two principal components by subspace iteration.
 *
 * A few more vectors than wanted are multiplied by the covariance (through the
 * points, so no d x d matrix is made), made orthogonal, and rotated to the
 * eigenvectors of the small matrix that the covariance is on their span
 * (Rayleigh-Ritz).  The first two settle within a few rounds unless the
 * variances that follow are nearly as large; then any direction among them is
 * as good for a picture.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/quality/gk_quality.h"

#define SPAN		6			/* vectors iterated */
#define MAX_ROUNDS	100
#define SETTLED		1e-12

void
gk_jacobi(double *a, int n, double *value, double *v)
{
	memset(v, 0, (size_t) n * n * sizeof(double));
	for (int i = 0; i < n; i++)
		v[i * n + i] = 1.0;
	for (int sweep = 0; sweep < 60; sweep++)
	{
		double		off = 0.0;
		double		diagonal = 0.0;

		for (int p = 0; p < n; p++)
			for (int q = 0; q < n; q++)
				*(p == q ? &diagonal : &off) += a[p * n + q] * a[p * n + q];
		if (off <= 1e-30 * diagonal)
			break;
		for (int p = 0; p < n; p++)
			for (int q = p + 1; q < n; q++)
			{
				double		theta,
							t,
							c,
							s;

				if (a[p * n + q] == 0.0)
					continue;
				theta = (a[q * n + q] - a[p * n + p]) / (2.0 * a[p * n + q]);
				t = (theta >= 0 ? 1.0 : -1.0) / (fabs(theta) + hypot(theta, 1.0));
				c = 1.0 / sqrt(t * t + 1.0);
				s = t * c;
				for (int i = 0; i < n; i++)
				{
					double		ip = a[i * n + p],
								iq = a[i * n + q];

					a[i * n + p] = c * ip - s * iq;
					a[i * n + q] = s * ip + c * iq;
				}
				for (int i = 0; i < n; i++)
				{
					double		pi = a[p * n + i],
								qi = a[q * n + i],
								vp = v[p * n + i],
								vq = v[q * n + i];

					a[p * n + i] = c * pi - s * qi;
					a[q * n + i] = s * pi + c * qi;
					v[p * n + i] = c * vp - s * vq;
					v[q * n + i] = s * vp + c * vq;
				}
			}
	}
	for (int i = 0; i < n; i++)
		value[i] = a[i * n + i];
	for (int i = 0; i < n; i++)
	{
		int			top = i;
		double		t;

		for (int j = i + 1; j < n; j++)
			if (value[j] > value[top])
				top = j;
		if (top == i)
			continue;
		t = value[i];
		value[i] = value[top];
		value[top] = t;
		for (int j = 0; j < n; j++)
		{
			t = v[i * n + j];
			v[i * n + j] = v[top * n + j];
			v[top * n + j] = t;
		}
	}
}

/* Gram-Schmidt, twice; vectors without a direction of their own become 0. */
static void
orthogonalise(double *v, int n, int d)
{
	for (int a = 0; a < n; a++)
	{
		double	   *va = v + (size_t) a * d;
		double		before = 0.0;
		double		length = 0.0;

		for (int j = 0; j < d; j++)
			before += va[j] * va[j];
		for (int pass = 0; pass < 2; pass++)
			for (int b = 0; b < a; b++)
			{
				const double *vb = v + (size_t) b * d;
				double		dot = 0.0;

				for (int j = 0; j < d; j++)
					dot += va[j] * vb[j];
				for (int j = 0; j < d; j++)
					va[j] -= dot * vb[j];
			}
		for (int j = 0; j < d; j++)
			length += va[j] * va[j];
		length = length > 1e-24 * before ? sqrt(length) : INFINITY;
		for (int j = 0; j < d; j++)
			va[j] = length < INFINITY ? va[j] / length : 0.0;
	}
}

/* next = covariance times v, for the SPAN vectors. */
static void
multiply(const double *y, int64_t m, int d, int n, const double *v, double *next)
{
	memset(next, 0, (size_t) n * d * sizeof(double));
	for (int64_t i = 0; i < m; i++)
	{
		const double *row = y + (size_t) i * d;

		for (int a = 0; a < n; a++)
		{
			const double *va = v + (size_t) a * d;
			double	   *na = next + (size_t) a * d;
			double		dot = 0.0;

			for (int j = 0; j < d; j++)
				dot += row[j] * va[j];
			dot /= (double) m;
			for (int j = 0; j < d; j++)
				na[j] += dot * row[j];
		}
	}
}

static GkStatus
iterate(const GkHost *host, const double *y, int64_t m, int d, double *v, double *next, double *value)
{
	int			n = d < SPAN ? d : SPAN;
	double		small[SPAN * SPAN];
	double		rotate[SPAN * SPAN];
	double		was[2] = {0, 0};

	for (size_t i = 0; i < (size_t) n * d; i++)
		v[i] = gk_uniform(gk_hash(1, (int64_t) i)) - 0.5;
	orthogonalise(v, n, d);
	for (int round = 0; round < MAX_ROUNDS; round++)
	{
		multiply(y, m, d, n, v, next);
		for (int a = 0; a < n; a++)
			for (int b = 0; b < n; b++)
			{
				double		dot = 0.0;

				for (int j = 0; j < d; j++)
					dot += v[(size_t) a * d + j] * next[(size_t) b * d + j];
				small[a * n + b] = dot;
			}
		for (int a = 0; a < n; a++)
			for (int b = 0; b < a; b++)
				small[a * n + b] = small[b * n + a];
		gk_jacobi(small, n, value, rotate);
		/* v becomes the rotated product: one step of the iteration, in eigen order */
		for (int j = 0; j < d; j++)
			for (int a = 0; a < n; a++)
			{
				double		sum = 0.0;

				for (int b = 0; b < n; b++)
					sum += rotate[a * n + b] * next[(size_t) b * d + j];
				v[(size_t) a * d + j] = sum;
			}
		orthogonalise(v, n, d);
		if (fabs(value[0] - was[0]) <= SETTLED * value[0] && fabs(value[1] - was[1]) <= SETTLED * value[0])
			break;
		was[0] = value[0];
		was[1] = value[1];
		if (host->poll && host->poll(host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}

GkStatus
gk_pca(const GkHost *host, const double *x, int64_t m, int d, const double *scale, GkPca *out, GkError *err)
{
	double	   *y = gk_alloc(host, (size_t) m * d, sizeof(double));
	double	   *v = gk_alloc0(host, (size_t) SPAN * d, sizeof(double));
	double	   *next = gk_alloc(host, (size_t) SPAN * d, sizeof(double));
	double		value[SPAN] = {0};
	double		total = 0.0;
	GkStatus	st = GK_OK;

	memset(out, 0, sizeof(*out));
	out->mean = gk_alloc0(host, d, sizeof(double));
	for (int a = 0; a < 2; a++)
		out->axis[a] = gk_alloc0(host, d, sizeof(double));
	if (!y || !v || !next || !out->mean || !out->axis[0] || !out->axis[1])
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for principal components");
	if (st == GK_OK)
	{
		for (int j = 0; j < d; j++)
		{
			double		sum = 0.0;

			for (int64_t i = 0; i < m; i++)
				sum += x[(size_t) i * d + j] * scale[j];
			out->mean[j] = sum / (double) m;
		}
		for (int64_t i = 0; i < m; i++)
			for (int j = 0; j < d; j++)
			{
				double		t = x[(size_t) i * d + j] * scale[j] - out->mean[j];

				y[(size_t) i * d + j] = t;
				total += t * t / (double) m;
			}
		st = iterate(host, y, m, d, v, next, value);
	}
	for (int a = 0; st == GK_OK && a < 2; a++)
	{
		double		largest = 0.0;

		for (int j = 0; j < d; j++)
			if (fabs(v[(size_t) a * d + j]) > fabs(largest))
				largest = v[(size_t) a * d + j];
		for (int j = 0; j < d; j++)
			out->axis[a][j] = largest < 0 ? -v[(size_t) a * d + j] : v[(size_t) a * d + j];
		out->share[a] = total > 0.0 ? value[a] / total : 0.0;
	}
	gk_free(host, y);
	gk_free(host, v);
	gk_free(host, next);
	if (st != GK_OK)
		gk_pca_free(host, out);
	return st;
}

void
gk_pca_free(const GkHost *host, GkPca *pca)
{
	gk_free(host, pca->mean);
	gk_free(host, pca->axis[0]);
	gk_free(host, pca->axis[1]);
	memset(pca, 0, sizeof(*pca));
}
