/*
 * gk_spectral_space.c - the space that clusters are found in: the graph of the representatives
 * and the eigenvectors of its Laplacian.
 */
#include <math.h>
#include <string.h>

#include "core/spectral/gk_spectral.h"

/* Of the unnormalized Laplacian, whose eigenvalues grow with the edges' weights: the mean degree. */
static double
scale_of(const GkGraph *g, GkLaplacian kind)
{
	double		sum = 0.0;

	if (kind != GK_LAPLACIAN_UNNORMALIZED)
		return 1.0;
	for (size_t i = 0; i < (size_t) g->n * g->n; i++)
		sum += g->weight[i];
	return sum > 0.0 ? sum / g->n : 1.0;
}

GkStatus
gk_space_graph(const GkHost *host, const GkModel *model, const GkSpectralOptions *o, GkSpace *space, GkError *err)
{
	GkStatus	st;

	memset(space, 0, sizeof(*space));
	if (model->k > GK_MAX_REPRESENTATIVES)
		return gk_fail(err, GK_ERR_LIMIT, "%d representatives are more than %d", model->k, GK_MAX_REPRESENTATIVES);
	space->laplacian = o->laplacian;
	st = gk_graph_make(host, model, o, &space->graph, err);
	return st == GK_OK ? gk_graph_part(host, model->size, &space->graph, err) : st;
}

GkStatus
gk_space_solve(const GkHost *host, GkSpace *space, int m, GkError *err)
{
	const GkGraph *g = &space->graph;

	gk_free(host, space->value);
	gk_free(host, space->vector);
	space->m = m < g->kept ? m : g->kept;
	space->scale = scale_of(g, space->laplacian);
	space->value = gk_alloc(host, space->m, sizeof(double));
	space->vector = gk_alloc(host, (size_t) space->m * g->n, sizeof(double));
	if (space->value == NULL || space->vector == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for %d eigenvectors", space->m);
	return gk_laplacian_smallest(host, g, space->laplacian, space->m, space->value, space->vector, err);
}

void
gk_space_free(const GkHost *host, GkSpace *space)
{
	gk_graph_free(host, &space->graph);
	gk_free(host, space->value);
	gk_free(host, space->vector);
	memset(space, 0, sizeof(*space));
}

void
gk_space_row(const GkSpace *space, int k, int i, double *row)
{
	double		length = 0.0;

	for (int j = 0; j < k; j++)
	{
		row[j] = space->vector[(size_t) j * space->graph.n + i];
		length += row[j] * row[j];
	}
	if (space->laplacian != GK_LAPLACIAN_SYMMETRIC || length == 0.0)
		return;
	length = sqrt(length);
	for (int j = 0; j < k; j++)
		row[j] /= length;
}
