/*
 * gk_silhouette.c - the classical silhouette: m^2 distances.
 *
 * P. J. Rousseeuw, "Silhouettes: a graphical aid to the interpretation and
 * validation of cluster analysis", J. Comput. Appl. Math. 20, 1987.  For each
 * point: a = mean distance to the other points of its cluster, b = smallest
 * mean distance to the points of another cluster, s = (b - a) / max(a, b), and
 * 0 for a point alone in its cluster.
 *
 * Points come cluster by cluster, each cluster in vectors of its own, so that the
 * distances of four points to a stretch of one cluster are four sums.  A job takes
 * some points through all clusters; sums are per point and in the order of the
 * points, whatever the threads.
 */
#include <math.h>
#include <string.h>

#include "core/quality/gk_quality_internal.h"

#define LANES	GK_QUALITY_LANES
#define QUAD	GK_QUALITY_QUAD
/* Vectors of points in a job, as long as distances are short. */
#define VECTORS			4
#define MANY_FEATURES	64
/* Points of a cluster that a job's points are compared with while they are in the cache. */
#define STRETCH			1024
/* Points of a cluster between two looks for a cancel. */
#define LOOK			(16 * STRETCH)

typedef struct Pairs
{
	const GkHost *host;
	const double *z;
	size_t		stride;
	int64_t		m;
	int			d;
	int			k;
	const int64_t *size;		/* [k] */
	int64_t		vectors;
	int			per_job;		/* vectors */
	int32_t    *cluster;		/* [vectors] */
	int64_t    *first;			/* [k] first place, a multiple of LANES */
	double	   *sum;			/* [threads][VECTORS * LANES][k] */
	gk_int128  *total;			/* [threads] */
} Pairs;

static double
score(const Pairs *q, const double *sum, int own)
{
	double		a,
				b = INFINITY;

	if (q->size[own] == 1)
		return 0.0;
	a = sum[own] / (double) (q->size[own] - 1);
	for (int c = 0; c < q->k; c++)
		if (c != own && q->size[c] > 0 && sum[c] / (double) q->size[c] < b)
			b = sum[c] / (double) q->size[c];
	return a == b ? 0.0 : (b - a) / (a > b ? a : b);
}

static void
run_job(void *arg, int64_t job, int thread)
{
	Pairs	   *q = arg;
	int64_t		first = job * q->per_job * LANES;
	int64_t		end = (job + 1) * q->per_job < q->vectors ? first + q->per_job * LANES : q->vectors * LANES;
	double	   *sum = q->sum + (size_t) thread * VECTORS * LANES * q->k;

	memset(sum, 0, (size_t) (end - first) * q->k * sizeof(double));
	for (int c = 0; c < q->k; c++)
		for (int64_t at = 0; at < q->size[c]; at += STRETCH)
		{
			int			n = q->size[c] - at < STRETCH ? (int) (q->size[c] - at) : STRETCH;

			if (at % LOOK == 0 && gk_host_stops(q->host))
				return;
			for (int64_t i = first; i < end; i += QUAD)
			{
				double		v[QUAD];

				gk_quality_distances(q->z + q->first[c] + at, q->stride, n, q->d, q->z + i, v);
				for (int r = 0; r < QUAD; r++)
					sum[(size_t) (i - first + r) * q->k + c] += v[r];
			}
		}
	for (int64_t i = first; i < end; i++)
	{
		int			own = q->cluster[i / LANES];

		/* not in the rest of a cluster's last vector */
		if (i < q->first[own] + q->size[own])
			q->total[thread] += gk_quality_fixed(score(q, sum + (size_t) (i - first) * q->k, own));
	}
}

static GkStatus
run(Pairs *q, double *out, GkError *err)
{
	const GkHost *host = q->host;
	int			threads = gk_threads(host);
	int64_t		at = 0;
	gk_int128	total = 0;

	q->per_job = q->d > MANY_FEATURES ? 1 : VECTORS;
	q->cluster = gk_alloc(host, q->vectors, sizeof(int32_t));
	q->first = gk_alloc(host, q->k, sizeof(int64_t));
	q->sum = gk_alloc(host, (size_t) threads * VECTORS * LANES * q->k, sizeof(double));
	q->total = gk_alloc0(host, threads, sizeof(gk_int128));
	if (!q->cluster || !q->first || !q->sum || !q->total)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for the silhouette of %lld points",
					   (long long) q->m);
	for (int c = 0; c < q->k; c++)
	{
		q->first[c] = at * LANES;
		for (int64_t i = 0; i < q->size[c]; i += LANES)
			q->cluster[at++] = c;
	}
	if (!gk_parallel_for(host, (q->vectors + q->per_job - 1) / q->per_job, run_job, q) || gk_host_stops(host))
		return GK_STOPPED;
	for (int t = 0; t < threads; t++)
		total += q->total[t];
	*out = (double) total / (double) q->m * 0x1p-62;
	return GK_OK;
}

GkStatus
gk_silhouette(const GkHost *host, const double *z, size_t stride, int d,
			  const int64_t *size, int k, double *out, GkError *err)
{
	Pairs		q = {.host = host,.z = z,.stride = stride,.d = d,.k = k,.size = size};
	int			used = 0;
	GkStatus	st = GK_OK;

	*out = NAN;
	for (int c = 0; c < k; c++)
	{
		q.m += size[c];
		q.vectors += (size[c] + LANES - 1) / LANES;
		used += size[c] > 0;
	}
	if (used > 1 && used < q.m)
		st = run(&q, out, err);
	gk_free(host, q.cluster);
	gk_free(host, q.first);
	gk_free(host, q.sum);
	gk_free(host, q.total);
	return st;
}
