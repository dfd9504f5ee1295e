/*
 * gk_spectral_graph.c - the graph of the representatives: exact nearest neighbours and weights.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/spectral/gk_spectral.h"

/* A representative's own scale is its distance to this neighbour (Zelnik-Manor and Perona 2004). */
#define SCALE_NEIGHBOR	7
/* Lighter edges are none: the rest of the Laplacian's row would not notice them. */
#define LIGHTEST_EDGE	gk_pow2(-40)

double
gk_exp_minus(double x)
{
	const double ln2_high = 0x1.62e42feep-1;	/* 2^-31 is its last bit, so products with n are exact */
	const double ln2_low = 0x1.a39ef35793c76p-33;
	int			n;
	double		r;
	double		sum = 1.0;

	if (!(x < 708.0))
		return 0.0;
	/* -x = r - n ln 2 with |r| <= ln 2 / 2 */
	n = (int) (x * 0x1.71547652b82fep0 + 0.5);
	r = (n * ln2_high - x) + n * ln2_low;
	for (int i = 14; i > 0; i--)
		sum = 1.0 + sum * r / i;
	return sum * gk_pow2(-n);
}

/* ---- distances ---- */

typedef struct Rows
{
	const GkModel *m;
	const float *f;				/* [n][d] prepared */
	GkGraph    *g;
} Rows;

static void
measure_row(void *arg, int64_t job, int thread)
{
	const Rows *r = arg;
	int			d = r->m->prep.d;

	(void) thread;
	gk_distances(r->f + (size_t) job * d, d, r->f, r->g->n, r->g->d2 + (size_t) job * r->g->n);
}

static GkStatus
measure(const GkHost *host, const GkModel *model, GkGraph *g, GkError *err)
{
	float	   *f = gk_alloc(host, (size_t) g->n * model->prep.d, sizeof(float));
	Rows		rows = {model, f, g};
	GkStatus	st = GK_OK;

	if (f == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for %d representatives", g->n);
	gk_model_prepare(&model->prep, model->centroids, g->n, f);
	if (!gk_parallel_for(host, g->n, measure_row, &rows))
		st = GK_STOPPED;
	gk_free(host, f);
	return st;
}

/* ---- neighbours ---- */

/* The count nearest of representative i but itself, nearest first; ties to the lower number. */
static void
find_nearest(const GkGraph *g, int i, int count, int32_t *to)
{
	const float *d2 = g->d2 + (size_t) i * g->n;
	int			found = 0;

	for (int j = 0; j < g->n; j++)
	{
		int			at;

		if (j == i || (found == count && d2[j] >= d2[to[count - 1]]))
			continue;
		at = found < count ? found++ : count - 1;
		for (; at > 0 && d2[j] < d2[to[at - 1]]; at--)
			to[at] = to[at - 1];
		to[at] = j;
	}
}

/* Half an edge for each time that one is among the other's nearest. */
static void
weigh_neighbors(GkGraph *g, int count, int32_t *nearest)
{
	for (int i = 0; i < g->n; i++)
	{
		find_nearest(g, i, count, nearest);
		for (int a = 0; a < count; a++)
		{
			g->weight[(size_t) i * g->n + nearest[a]] += 0.5;
			g->weight[(size_t) nearest[a] * g->n + i] += 0.5;
		}
	}
}

/* Every pair by the radial basis function. */
static void
weigh_pairs(const GkPrep *prep, GkGraph *g, double gamma, double *scale, int32_t *nearest)
{
	int			count = SCALE_NEIGHBOR < g->n - 1 ? SCALE_NEIGHBOR : g->n - 1;

	for (int i = 0; i < g->n; i++)
	{
		find_nearest(g, i, count, nearest);
		scale[i] = sqrt((double) g->d2[(size_t) i * g->n + nearest[count - 1]]);
	}
	for (int i = 0; i < g->n; i++)
		for (int j = 0; j < i; j++)
		{
			double		d2 = g->d2[(size_t) i * g->n + j];
			double		x = gamma > 0.0 ? gamma * gk_inertia_from_d2(prep, d2) :
			d2 > 0.0 ? d2 / (scale[i] * scale[j]) : 0.0;
			double		w = gk_exp_minus(x);

			if (w < LIGHTEST_EDGE)
				w = 0.0;
			g->weight[(size_t) i * g->n + j] = g->weight[(size_t) j * g->n + i] = w;
		}
}

GkStatus
gk_graph_make(const GkHost *host, const GkModel *model, const GkSpectralOptions *o, GkGraph *g, GkError *err)
{
	size_t		n = model->k;
	int			count = o->neighbors < model->k - 1 ? o->neighbors : model->k - 1;
	int32_t    *nearest = gk_alloc(host, n + SCALE_NEIGHBOR, sizeof(int32_t));
	double	   *scale = gk_alloc(host, n, sizeof(double));
	GkStatus	st = GK_OK;

	memset(g, 0, sizeof(*g));
	g->n = model->k;
	g->d2 = gk_alloc(host, n * n, sizeof(float));
	g->weight = gk_alloc0(host, n * n, sizeof(double));
	g->component = gk_alloc(host, n, sizeof(int32_t));
	if (nearest == NULL || scale == NULL || g->d2 == NULL || g->weight == NULL || g->component == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for the graph of %d representatives", g->n);
	if (st == GK_OK)
		st = measure(host, model, g, err);
	if (st == GK_OK && o->affinity == GK_AFFINITY_NEIGHBORS)
		weigh_neighbors(g, count, nearest);
	else if (st == GK_OK && g->n > 1)
		weigh_pairs(&model->prep, g, o->gamma, scale, nearest);
	gk_free(host, nearest);
	gk_free(host, scale);
	return st;
}

void
gk_graph_free(const GkHost *host, GkGraph *g)
{
	gk_free(host, g->d2);
	gk_free(host, g->weight);
	gk_free(host, g->component);
	memset(g, 0, sizeof(*g));
}
