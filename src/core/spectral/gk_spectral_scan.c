/*
 * gk_spectral_scan.c - which k: the clusters of each in the space of its eigenvectors.
 *
 * The graph and its eigenvectors are made once, for the largest k; only where there are more
 * components than k, which are joined then, again.
 */
#include <math.h>
#include <string.h>

#include "core/spectral/gk_eigen.h"
#include "core/spectral/gk_spectral.h"

/* ---- the silhouette of representatives that stand for many points ---- */

typedef struct Silhouette
{
	int			n;				/* representatives that are kept */
	int			clusters;
	size_t		stride;
	double	   *row;			/* [n][stride] as points of the space */
	int32_t    *label;			/* [n] */
	double	   *size;			/* [n] points */
	double	   *mass;			/* [clusters] points */
	double	   *sum;			/* [threads][clusters] */
	double	   *score;			/* [n] */
} Silhouette;

static double
distance(const double *x, const double *y, size_t stride)
{
	GkQuad		low = {0};
	GkQuad		high = {0};

	for (size_t i = 0; i < stride; i += GK_EIGEN_LANES)
	{
		GkQuad		a = GK_QUAD_CONST(x + i) - GK_QUAD_CONST(y + i);
		GkQuad		b = GK_QUAD_CONST(x + i + 4) - GK_QUAD_CONST(y + i + 4);

		low += a * a;
		high += b * b;
	}
	return sqrt(GK_QUAD_SUM(low, high));
}

/* (b - a) / max(a, b) of a representative's points; 0 for a point alone in its cluster. */
static void
score_one(void *arg, int64_t job, int thread)
{
	const Silhouette *s = arg;
	double	   *sum = s->sum + (size_t) thread * s->clusters;
	int			own = s->label[job];
	double		a;
	double		b = INFINITY;

	memset(sum, 0, s->clusters * sizeof(double));
	for (int i = 0; i < s->n; i++)
		sum[s->label[i]] += s->size[i] * distance(s->row + (size_t) job * s->stride, s->row + i * s->stride, s->stride);
	s->score[job] = 0.0;
	if (!(s->mass[own] > 1.0))
		return;
	a = sum[own] / (s->mass[own] - 1.0);
	for (int c = 0; c < s->clusters; c++)
		if (c != own && sum[c] / s->mass[c] < b)
			b = sum[c] / s->mass[c];
	if (a != b)
		s->score[job] = (b - a) / (a > b ? a : b);
}

/* The rows, labels and sizes of those that are kept. */
static void
collect(const GkSpace *space, const GkModel *model, int k, const int32_t *cluster, Silhouette *s)
{
	for (int i = 0, at = 0; i < space->graph.n; i++)
	{
		if (cluster[i] < 0)
			continue;
		gk_space_row(space, k, i, s->row + at * s->stride);
		s->label[at] = cluster[i];
		s->size[at] = (double) model->size[i];
		s->mass[cluster[i]] += s->size[at];
		at++;
	}
}

static GkStatus
measure(const GkHost *host, Silhouette *s, double *out)
{
	double		total = 0.0;
	double		mass = 0.0;

	if (!gk_parallel_for(host, s->n, score_one, s) || (host->poll != NULL && host->poll(host->ctx)))
		return GK_STOPPED;
	for (int i = 0; i < s->n; i++)
	{
		total += s->size[i] * s->score[i];
		mass += s->size[i];
	}
	*out = total / mass;
	return GK_OK;
}

static GkStatus
silhouette(const GkHost *host, const GkSpace *space, const GkModel *model, int k, const int32_t *cluster,
		   int clusters, double *out, GkError *err)
{
	Silhouette	s = {.n = space->graph.kept,.clusters = clusters,.stride = gk_eigen_stride(k)};
	GkStatus	st;

	*out = NAN;
	if (clusters < 2)
		return GK_OK;
	s.row = gk_alloc0(host, s.n * s.stride, sizeof(double));
	s.label = gk_alloc(host, s.n, sizeof(int32_t));
	s.size = gk_alloc(host, s.n, sizeof(double));
	s.mass = gk_alloc0(host, clusters, sizeof(double));
	s.sum = gk_alloc(host, (size_t) gk_threads(host) * clusters, sizeof(double));
	s.score = gk_alloc(host, s.n, sizeof(double));
	if (s.row == NULL || s.label == NULL || s.size == NULL || s.mass == NULL || s.sum == NULL || s.score == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for the silhouette of %d representatives", s.n);
	else
	{
		collect(space, model, k, cluster, &s);
		st = measure(host, &s, out);
	}
	gk_free(host, s.row);
	gk_free(host, s.label);
	gk_free(host, s.size);
	gk_free(host, s.mass);
	gk_free(host, s.sum);
	gk_free(host, s.score);
	return st;
}

/* ---- each k ---- */

static void
put_gaps(const GkSpace *space, struct GkSpectralScanRow *row)
{
	bool		next = row->k < space->m;

	row->value = space->value[row->k - 1];
	row->gap = next ? space->value[row->k] - row->value : NAN;
	row->strength = next ? gk_power_gap(space->value, row->k, space->scale) : NAN;
}

/* The silhouette of each k, from the largest on, since components once joined stay so. */
static GkStatus
scan_clusters(const GkHost *host, GkSpace *space, const GkModel *model, int32_t *cluster, GkSpectralScan *scan, GkError *err)
{
	GkStatus	st = GK_OK;

	for (int i = scan->n - 1; st == GK_OK && i >= 0; i--)
	{
		int			k = scan->row[i].k;
		int			found = 0;

		if (space->graph.components > k)
		{
			st = gk_graph_join(host, k, &space->graph, err);
			if (st == GK_OK)
				st = gk_space_solve(host, space, k, err);
		}
		if (st == GK_OK)
			st = gk_spectral_embed(host, space, k, model->seed, cluster, &found, err);
		if (st == GK_OK)
			st = silhouette(host, space, model, k, cluster, found, &scan->row[i].silhouette, err);
	}
	return st;
}

static void
suggest(const GkSpace *space, GkSpectralScan *scan)
{
	GkChoice	choice;
	double		strength;
	int			k = gk_choose_k(space->value, space->m, space->graph.components, space->scale, &choice, &strength);

	scan->gap = -1;
	for (int i = 0; i < scan->n; i++)
		if (scan->row[i].k == k)
			scan->gap = i;
}

static void
find_silhouette(GkSpectralScan *scan)
{
	scan->silhouette = -1;
	for (int i = 0; i < scan->n; i++)
		if (!isnan(scan->row[i].silhouette) &&
			(scan->silhouette < 0 || scan->row[i].silhouette > scan->row[scan->silhouette].silhouette))
			scan->silhouette = i;
}

GkStatus
gk_spectral_scan(const GkHost *host, const GkModel *model, int k_min, int k_max, GkSpectralScan *scan, GkError *err)
{
	int32_t    *cluster = gk_alloc(host, model->k, sizeof(int32_t));
	GkSpace		space = {0};
	GkStatus	st = GK_OK;

	scan->n = 0;
	if (cluster == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for %d representatives", model->k);
	if (st == GK_OK)
		st = gk_space_graph(host, model, &model->spectral.asked, &space, err);
	if (st == GK_OK)
		st = gk_space_solve(host, &space, gk_count_eigenvalues(&space.graph, k_max), err);
	if (st == GK_OK)
	{
		scan->kept = space.graph.kept;
		for (int k = k_min; k <= k_max && k <= scan->kept; k++)
		{
			scan->row[scan->n].k = k;
			put_gaps(&space, &scan->row[scan->n++]);
		}
		suggest(&space, scan);
		st = scan_clusters(host, &space, model, cluster, scan, err);
		find_silhouette(scan);
	}
	gk_space_free(host, &space);
	gk_free(host, cluster);
	return st;
}
