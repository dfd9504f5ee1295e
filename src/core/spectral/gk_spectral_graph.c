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

/* Distances of a representative; it has no edges so far. */
static void
measure_row(void *arg, int64_t job, int thread)
{
	const Rows *r = arg;
	int			d = r->m->prep.d;

	(void) thread;
	gk_distances(r->f + (size_t) job * d, d, r->f, r->g->n, r->g->d2 + (size_t) job * r->g->n);
	memset(r->g->weight + (size_t) job * r->g->n, 0, r->g->n * sizeof(double));
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

typedef struct Near
{
	const GkPrep *prep;
	GkGraph    *g;
	double		gamma;
	int			count;			/* neighbours that edges go to */
	int			found;			/* that many, and as far as the own scale's */
	int32_t    *nearest;		/* [threads][found] */
	double	   *scale;			/* [n] */
	size_t		words;
	uint64_t   *set;			/* [n][words] of each, itself and its neighbours */
} Near;

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

static void
add_to_set(const Near *r, int i, int member)
{
	r->set[(size_t) i * r->words + member / 64] |= UINT64_C(1) << member % 64;
}

static bool
in_set(const Near *r, int i, int member)
{
	return r->set[(size_t) i * r->words + member / 64] >> member % 64 & 1;
}

static void
look_around(void *arg, int64_t job, int thread)
{
	const Near *r = arg;
	int			i = (int) job;
	int32_t    *nearest = r->nearest + (size_t) thread * r->found;
	int			last = r->found < SCALE_NEIGHBOR ? r->found : SCALE_NEIGHBOR;

	find_nearest(r->g, i, r->found, nearest);
	r->scale[i] = sqrt((double) r->g->d2[(size_t) i * r->g->n + nearest[last - 1]]);
	add_to_set(r, i, i);
	for (int a = 0; a < r->count; a++)
		add_to_set(r, i, nearest[a]);
}

/* ---- weights: a job has the edges of one representative to those before it ---- */

/* Squared distance in units of both representatives' own scales. */
static double
scaled(const Near *r, int i, int j)
{
	double		d2 = r->g->d2[(size_t) i * r->g->n + j];

	return d2 > 0.0 ? d2 / (r->scale[i] * r->scale[j]) : 0.0;
}

/* Of all that are near one of two, the share that are near both (Jarvis and Patrick 1973). */
static double
shared(const Near *r, int i, int j)
{
	int			both = 0;

	for (size_t w = 0; w < r->words; w++)
		both += __builtin_popcountll(r->set[i * r->words + w] & r->set[j * r->words + w]);
	return (double) both / (2 * (r->count + 1) - both);
}

static void
put_edge(const GkGraph *g, int i, int j, double weight)
{
	g->weight[(size_t) i * g->n + j] = g->weight[(size_t) j * g->n + i] = weight;
}

static void
weigh_neighbors(void *arg, int64_t job, int thread)
{
	const Near *r = arg;
	int			i = (int) job;

	(void) thread;
	for (int j = 0; j < i; j++)
		if (in_set(r, i, j) || in_set(r, j, i))
			put_edge(r->g, i, j, shared(r, i, j) / (1.0 + scaled(r, i, j)));
}

/* Every pair by the radial basis function. */
static void
weigh_pairs(void *arg, int64_t job, int thread)
{
	const Near *r = arg;
	int			i = (int) job;

	(void) thread;
	for (int j = 0; j < i; j++)
	{
		double		x = r->gamma > 0.0 ? r->gamma * gk_inertia_from_d2(r->prep, r->g->d2[(size_t) i * r->g->n + j]) :
		scaled(r, i, j);
		double		w = gk_exp_minus(x);

		put_edge(r->g, i, j, w < LIGHTEST_EDGE ? 0.0 : w);
	}
}

static GkStatus
weigh(const GkHost *host, const GkModel *model, const GkSpectralOptions *o, GkGraph *g, GkError *err)
{
	int			count = o->neighbors < g->n - 1 ? o->neighbors : g->n - 1;
	int			scale = SCALE_NEIGHBOR < g->n - 1 ? SCALE_NEIGHBOR : g->n - 1;
	Near		r = {&model->prep, g, o->gamma,.count = count,.found = count > scale ? count : scale};
	GkStatus	st = GK_OK;

	r.words = ((size_t) g->n + 63) / 64;
	r.nearest = gk_alloc(host, (size_t) gk_threads(host) * r.found, sizeof(int32_t));
	r.scale = gk_alloc(host, g->n, sizeof(double));
	r.set = gk_alloc0(host, g->n * r.words, sizeof(uint64_t));
	if (r.nearest == NULL || r.scale == NULL || r.set == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for the neighbors of %d representatives", g->n);
	else if (!gk_parallel_for(host, g->n, look_around, &r) ||
			 !gk_parallel_for(host, g->n, o->affinity == GK_AFFINITY_RBF ? weigh_pairs : weigh_neighbors, &r))
		st = GK_STOPPED;
	gk_free(host, r.nearest);
	gk_free(host, r.scale);
	gk_free(host, r.set);
	return st;
}

GkStatus
gk_graph_make(const GkHost *host, const GkModel *model, const GkSpectralOptions *o, GkGraph *g, GkError *err)
{
	size_t		n = model->k;
	GkStatus	st = GK_OK;

	memset(g, 0, sizeof(*g));
	g->n = model->k;
	g->d2 = gk_alloc(host, n * n, sizeof(float));
	g->weight = gk_alloc(host, n * n, sizeof(double));
	g->component = gk_alloc(host, n, sizeof(int32_t));
	if (g->d2 == NULL || g->weight == NULL || g->component == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for the graph of %d representatives", g->n);
	if (st == GK_OK)
		st = measure(host, model, g, err);
	return st == GK_OK && g->n > 1 ? weigh(host, model, o, g, err) : st;
}

void
gk_graph_free(const GkHost *host, GkGraph *g)
{
	gk_free(host, g->d2);
	gk_free(host, g->weight);
	gk_free(host, g->component);
	memset(g, 0, sizeof(*g));
}
