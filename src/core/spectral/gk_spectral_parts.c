/*
 * gk_spectral_parts.c - components of the graph, by union-find.
 *
 * A representative of an outlier, or a few of them, may have no edge to the others.  Each such
 * component has an eigenvalue 0 of its own, as a cluster has, so those with few points are cut
 * off before there is a Laplacian.
 */
#include <math.h>
#include <string.h>

#include "core/spectral/gk_spectral.h"

/* A component of less than one in LIGHT of the points is cut off. */
#define LIGHT	200

static int
root_of(int32_t *parent, int i)
{
	while (parent[i] != i)
		i = parent[i] = parent[parent[i]];
	return i;
}

/* The lower number stays a root, so roots are the first representatives of their parts. */
static void
unite(int32_t *parent, int a, int b)
{
	a = root_of(parent, a);
	b = root_of(parent, b);
	if (a < b)
		parent[b] = a;
	else
		parent[a] = b;
}

/* Number the parts of those that are kept. */
static void
number_parts(GkGraph *g, int32_t *parent, const bool *cut)
{
	g->components = g->kept = 0;
	for (int i = 0; i < g->n; i++)
	{
		int			root = root_of(parent, i);

		g->component[i] = cut != NULL && cut[root] ? -1 : root == i ? g->components++ : g->component[root];
		g->kept += g->component[i] >= 0;
	}
}

GkStatus
gk_graph_part(const GkHost *host, const int64_t *size, GkGraph *g, GkError *err)
{
	int32_t    *parent = gk_alloc(host, g->n, sizeof(int32_t));
	int64_t    *mass = gk_alloc0(host, g->n, sizeof(int64_t));
	bool	   *light = gk_alloc0(host, g->n, sizeof(bool));
	int64_t		total = 0;
	int			heavy = 0;

	if (parent == NULL || mass == NULL || light == NULL)
	{
		gk_free(host, parent);
		gk_free(host, mass);
		gk_free(host, light);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for the graph of %d representatives", g->n);
	}
	for (int i = 0; i < g->n; i++)
		parent[i] = i;
	for (int i = 0; i < g->n; i++)
		for (int j = 0; j < i; j++)
			if (g->weight[(size_t) i * g->n + j] > 0.0)
				unite(parent, i, j);
	for (int i = 0; i < g->n; i++)
	{
		mass[root_of(parent, i)] += size[i];
		total += size[i];
	}
	g->cut_off = 0;
	for (int i = 0; i < g->n; i++)
		if (parent[i] == i)
		{
			light[i] = mass[i] < total / LIGHT + (total % LIGHT > 0);
			g->cut_off += light[i];
			heavy += !light[i];
		}
	/* where all are light, none is */
	if (heavy == 0)
		g->cut_off = 0;
	number_parts(g, parent, heavy > 0 ? light : NULL);
	gk_free(host, parent);
	gk_free(host, mass);
	gk_free(host, light);
	return GK_OK;
}

/* The nearest pair of representatives of different components; ties to the lower numbers. */
static void
nearest_pair(const GkGraph *g, int32_t *parent, int *a, int *b)
{
	float		best = INFINITY;

	*a = *b = -1;
	for (int i = 0; i < g->n; i++)
		for (int j = 0; j < i && g->component[i] >= 0; j++)
		{
			float		d2 = g->d2[(size_t) i * g->n + j];

			if (g->component[j] >= 0 && (d2 < best || *a < 0) && root_of(parent, i) != root_of(parent, j))
			{
				best = d2;
				*a = i;
				*b = j;
			}
		}
}

GkStatus
gk_graph_join(const GkHost *host, int k, GkGraph *g, GkError *err)
{
	int32_t    *parent;
	int32_t    *first;
	bool	   *cut;
	int			parts = g->components;

	if (parts <= k)
		return GK_OK;
	parent = gk_alloc(host, g->n, sizeof(int32_t));
	first = gk_alloc(host, parts, sizeof(int32_t));
	cut = gk_alloc(host, g->n, sizeof(bool));
	if (parent == NULL || first == NULL || cut == NULL)
	{
		gk_free(host, parent);
		gk_free(host, first);
		gk_free(host, cut);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for the graph of %d representatives", g->n);
	}
	for (int i = g->n - 1; i >= 0; i--)
		if (g->component[i] >= 0)
			first[g->component[i]] = i;
	for (int i = 0; i < g->n; i++)
	{
		cut[i] = g->component[i] < 0;
		parent[i] = cut[i] ? i : first[g->component[i]];
	}
	for (; parts > k; parts--)
	{
		int			a,
					b;

		nearest_pair(g, parent, &a, &b);
		g->weight[(size_t) a * g->n + b] = g->weight[(size_t) b * g->n + a] = 1.0;
		unite(parent, a, b);
	}
	number_parts(g, parent, cut);
	gk_free(host, parent);
	gk_free(host, first);
	gk_free(host, cut);
	return GK_OK;
}
