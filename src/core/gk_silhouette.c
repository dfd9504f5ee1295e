/*
 * gk_silhouette.c - the classical silhouette: m^2 distances.
 *
 * P. J. Rousseeuw, "Silhouettes: a graphical aid to the interpretation and
 * validation of cluster analysis", J. Comput. Appl. Math. 20, 1987.  For each
 * point: a = mean distance to the other points of its cluster, b = smallest
 * mean distance to the points of another cluster, s = (b - a) / max(a, b), and
 * 0 for a point alone in its cluster.
 *
 * Points come sorted by label, so that nearly every block of 64 belongs to one
 * cluster and its distances are one sum.  A job takes a tile of points through
 * all blocks; sums are per point and in block order, whatever the threads.
 */
#include <math.h>
#include <string.h>

#include "core/gk_quality.h"

#define ROWS	GK_QUALITY_ROWS
#define TILE	16

typedef struct Pairs
{
	const double *z;
	size_t		stride;
	int64_t		m;
	int			d;
	const int32_t *cluster;		/* [m] 0..k-1, none empty */
	int			k;
	int64_t    *size;			/* [k] */
	double	   *point;			/* [threads][TILE][d] */
	double	   *sum;			/* [threads][TILE][k] */
	gk_int128  *total;			/* [threads] */
} Pairs;

static double
add_up(const double *v)
{
	double		lane[8] = {0};

	for (int i = 0; i < ROWS; i += 8)
		for (int l = 0; l < 8; l++)
			lane[l] += v[i + l];
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static double
score(const Pairs *q, const double *sum, int own)
{
	double		a,
				b = INFINITY;

	if (q->size[own] == 1)
		return 0.0;
	a = sum[own] / (double) (q->size[own] - 1);
	for (int c = 0; c < q->k; c++)
		if (c != own && sum[c] / (double) q->size[c] < b)
			b = sum[c] / (double) q->size[c];
	return a == b ? 0.0 : (b - a) / (a > b ? a : b);
}

static void
run_tile(void *arg, int64_t job, int thread)
{
	Pairs	   *q = arg;
	int64_t		first = job * TILE;
	int			rows = q->m - first < TILE ? (int) (q->m - first) : TILE;
	double	   *point = q->point + (size_t) thread * TILE * q->d;
	double	   *sum = q->sum + (size_t) thread * TILE * q->k;
	double		v[ROWS];

	for (int i = 0; i < rows; i++)
		for (int j = 0; j < q->d; j++)
			point[(size_t) i * q->d + j] = q->z[(size_t) j * q->stride + first + i];
	memset(sum, 0, (size_t) rows * q->k * sizeof(double));
	for (int64_t b = 0; b < q->m; b += ROWS)
	{
		int			n = q->m - b < ROWS ? (int) (q->m - b) : ROWS;
		bool		one = n == ROWS && q->cluster[b] == q->cluster[b + ROWS - 1];

		for (int i = 0; i < rows; i++)
		{
			double	   *to = sum + (size_t) i * q->k;

			gk_quality_d2(q->z + b, q->stride, q->d, point + (size_t) i * q->d, v);
			gk_quality_roots(v);
			if (one)
				to[q->cluster[b]] += add_up(v);
			else
				for (int l = 0; l < n; l++)
					to[q->cluster[b + l]] += v[l];
		}
	}
	for (int i = 0; i < rows; i++)
		q->total[thread] += gk_quality_fixed(score(q, sum + (size_t) i * q->k, q->cluster[first + i]));
}

static GkStatus
run(const GkHost *host, Pairs *q, double *out, GkError *err)
{
	int			threads = gk_threads(host);
	gk_int128	total = 0;

	q->point = gk_alloc(host, (size_t) threads * TILE * q->d, sizeof(double));
	q->sum = gk_alloc(host, (size_t) threads * TILE * q->k, sizeof(double));
	q->total = gk_alloc0(host, threads, sizeof(gk_int128));
	if (!q->point || !q->sum || !q->total)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for the silhouette of %lld points",
					   (long long) q->m);
	if (!gk_parallel_for(host, (q->m + TILE - 1) / TILE, run_tile, q))
		return GK_STOPPED;
	for (int t = 0; t < threads; t++)
		total += q->total[t];
	*out = (double) total / (double) q->m * 0x1p-62;
	return GK_OK;
}

GkStatus
gk_silhouette(const GkHost *host, const double *z, size_t stride, int64_t m, int d,
			  const int32_t *label, double *out, GkError *err)
{
	Pairs		q = {.z = z,.stride = stride,.m = m,.d = d};
	int32_t    *cluster = gk_alloc(host, m + 1, sizeof(int32_t));
	GkStatus	st = GK_OK;

	*out = NAN;
	q.size = gk_alloc0(host, m + 1, sizeof(int64_t));
	if (!cluster || !q.size)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for the silhouette of %lld points",
					 (long long) m);
	for (int64_t i = 0; st == GK_OK && i < m; i++)
	{
		if (i == 0 || label[i] != label[i - 1])
			q.k++;
		cluster[i] = q.k - 1;
		q.size[q.k - 1]++;
	}
	q.cluster = cluster;
	if (st == GK_OK && q.k > 1 && q.k < m)
		st = run(host, &q, out, err);
	gk_free(host, cluster);
	gk_free(host, q.size);
	gk_free(host, q.point);
	gk_free(host, q.sum);
	gk_free(host, q.total);
	return st;
}
