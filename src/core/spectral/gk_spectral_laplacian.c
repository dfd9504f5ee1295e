/*
 * gk_spectral_laplacian.c - the smallest eigenvalues of the Laplacian and their eigenvectors.
 *
 * Components have no edges between them, so each has eigenvectors of its own, the first one
 * with eigenvalue 0 known exactly.  Taken together, eigenvectors of all their zeros would be
 * any mixture of those.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/spectral/gk_eigen.h"
#include "core/spectral/gk_spectral.h"

typedef struct Pair
{
	double		value;
	int			component;
	int			number;			/* in the component */
	size_t		at;				/* of its vector among all that were found */
} Pair;

typedef struct Work
{
	const GkGraph *g;
	GkLaplacian kind;
	double	   *degree;			/* [n] */
	double	   *root;			/* [n] its square root */
	int			members;
	int32_t    *member;			/* [members] of the component at hand */
	int			npairs;
	Pair	   *pair;
	double	   *found;			/* vectors, by member */
	size_t		used;
} Work;

static int
by_value(const void *va, const void *vb)
{
	const Pair *a = va;
	const Pair *b = vb;

	if (a->value != b->value)
		return a->value < b->value ? -1 : 1;
	return a->component != b->component ? a->component - b->component : a->number - b->number;
}

static void
take_members(Work *w, int component)
{
	w->members = 0;
	for (int i = 0; i < w->g->n; i++)
		if (w->g->component[i] == component)
			w->member[w->members++] = i;
}

typedef struct Fill
{
	const Work *w;
	double	   *a;
} Fill;

static void
fill_row(void *arg, int64_t job, int thread)
{
	const Work *w = ((const Fill *) arg)->w;
	size_t		stride = gk_eigen_stride(w->members);
	double	   *row = ((const Fill *) arg)->a + job * stride;
	int			from = w->member[job];

	(void) thread;
	memset(row, 0, stride * sizeof(double));
	for (int j = 0; j < w->members; j++)
	{
		int			to = w->member[j];
		double		weight = w->g->weight[(size_t) from * w->g->n + to];

		if (j == job)
			row[j] = w->kind == GK_LAPLACIAN_UNNORMALIZED ? w->degree[from] : 1.0;
		else if (weight > 0.0)
			row[j] = w->kind == GK_LAPLACIAN_UNNORMALIZED ? -weight : -weight / (w->root[from] * w->root[to]);
	}
}

/* The first eigenvector, of the eigenvalue 0: of length 1. */
static void
put_first(const Work *w, double *vector)
{
	double		sum = 0.0;

	for (int i = 0; i < w->members; i++)
	{
		vector[i] = w->kind == GK_LAPLACIAN_UNNORMALIZED || w->members == 1 ? 1.0 : w->root[w->member[i]];
		sum += vector[i] * vector[i];
	}
	sum = sqrt(sum);
	for (int i = 0; i < w->members; i++)
		vector[i] /= sum;
}

static GkStatus
solve_component(const GkHost *host, Work *w, int component, int m, GkError *err)
{
	size_t		stride = gk_eigen_stride(w->members);
	int			wanted = m < w->members ? m : w->members;
	double	   *a = gk_alloc(host, w->members * stride, sizeof(double));
	double	   *value = gk_alloc(host, wanted, sizeof(double));
	double	   *vector = w->found + w->used;
	GkStatus	st;

	if (a == NULL || value == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for the Laplacian of %d representatives", w->members);
	else
	{
		Fill		fill = {w, a};

		st = !gk_parallel_for(host, w->members, fill_row, &fill) ? GK_STOPPED :
			gk_eigen_smallest(host, a, w->members, wanted, value, vector, err);
	}
	for (int i = 0; st == GK_OK && i < wanted; i++)
		w->pair[w->npairs++] = (Pair) {i == 0 || value[i] < 0.0 ? 0.0 : value[i], component, i, w->used + i * stride};
	if (st == GK_OK)
		put_first(w, vector);
	w->used += wanted * stride;
	gk_free(host, a);
	gk_free(host, value);
	return st;
}

/* Copy the vectors of the m smallest pairs to their places in all representatives. */
static void
spread(Work *w, int m, double *value, double *vector)
{
	int			n = w->g->n;

	qsort(w->pair, w->npairs, sizeof(Pair), by_value);
	memset(vector, 0, (size_t) m * n * sizeof(double));
	for (int i = 0; i < m; i++)
	{
		const Pair *p = &w->pair[i];

		value[i] = p->value;
		take_members(w, p->component);
		for (int j = 0; j < w->members; j++)
		{
			double		v = w->found[p->at + j];

			if (w->kind == GK_LAPLACIAN_RANDOM_WALK && w->root[w->member[j]] > 0.0)
				v /= w->root[w->member[j]];
			vector[(size_t) i * n + w->member[j]] = v;
		}
	}
}

GkStatus
gk_laplacian_smallest(const GkHost *host, const GkGraph *g, GkLaplacian kind, int m,
					  double *value, double *vector, GkError *err)
{
	size_t		n = g->n;
	Work		w = {.g = g,.kind = kind};
	GkStatus	st = GK_OK;

	w.degree = gk_alloc0(host, n, sizeof(double));
	w.root = gk_alloc0(host, n, sizeof(double));
	w.member = gk_alloc(host, n, sizeof(int32_t));
	w.pair = gk_alloc(host, n, sizeof(Pair));
	/* a component of c members has at most min(m, c) vectors of a stride below c + lanes */
	w.found = gk_alloc(host, (size_t) m * (n + (size_t) GK_EIGEN_LANES * g->components), sizeof(double));
	if (w.degree == NULL || w.root == NULL || w.member == NULL || w.pair == NULL || w.found == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory for %d eigenvectors", m);
	for (size_t i = 0; st == GK_OK && i < n; i++)
	{
		for (size_t j = 0; j < n; j++)
			w.degree[i] += g->weight[i * n + j];
		w.root[i] = sqrt(w.degree[i]);
	}
	for (int c = 0; st == GK_OK && c < g->components; c++)
	{
		take_members(&w, c);
		st = solve_component(host, &w, c, m, err);
	}
	if (st == GK_OK)
		spread(&w, m, value, vector);
	gk_free(host, w.degree);
	gk_free(host, w.root);
	gk_free(host, w.member);
	gk_free(host, w.pair);
	gk_free(host, w.found);
	return st;
}
