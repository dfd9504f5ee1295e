/*
 * gk_spectral_weigh.c - how much each representative's points weigh, and the clusters that they make together.
 */
#include <math.h>
#include <string.h>

#include "core/gk_engine.h"
#include "core/spectral/gk_spectral.h"
#include "core/store/gk_store.h"

/* ---- weights ---- */

static GkStatus
weigh_on(const GkBackend *backend, GkStore *store, GkModel *model, GkError *err)
{
	const GkPoints *pts = gk_store_points(store);
	GkOptions	options = {.k = model->k};
	GkProblem	problem = gk_problem(store, model->k, 1);
	GkEngine	e = {.host = gk_store_host(store),.backend = backend,.store = store,.pts = pts,.opt = &options};
	GkStatus	st = gk_engine_alloc(&e, err);

	if (st == GK_OK)
		st = gk_engine_copy(&e, model->centroids, model->k, NULL, e.f) ? backend->open(&problem, &e.session, err) : GK_STOPPED;
	if (st == GK_OK)
	{
		memset(e.step.unchanged, 0, model->k * sizeof(bool));
		st = backend->step(e.session, e.f, model->k, &e.step, err);
	}
	for (int i = 0; st == GK_OK && i < model->k; i++)
		if (e.step.count[i] > 0)
			model->spectral.weight[i] = gk_ldexp(gk_i128_to_double(e.step.mass[i]) / e.step.count[i], pts->weight_exp - GK_GRID_BITS);
	backend->close(e.session);
	gk_free(e.host, e.memory);
	return st;
}

GkStatus
gk_spectral_weigh(GkStore *store, const GkBackend *backend, GkModel *model, GkError *err)
{
	const GkHost *host = gk_store_host(store);
	GkStatus	st;

	model->spectral.weight = gk_alloc0(host, model->k, sizeof(double));
	if (model->spectral.weight == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for the weights of %d representatives", model->k);
	st = weigh_on(backend, store, model, err);
	/* the CPU cannot go on with points that it cannot read */
	if (store->reader == NULL && gk_go_on_with_cpu(host, backend, st, err))
		st = weigh_on(&gk_cpu_backend, store, model, err);
	return st;
}

/* ---- clusters ---- */

/*
 * How much a representative counts in its cluster's centroid: its points' mass, in units of the weights' grid, which
 * have a sum.  Under cosine, where it is the direction of its points' sum, that sum's length; the mass is as much
 * longer as its points turn away from it, and that is their inertia.
 */
static double
mass_of(const GkModel *m, int i)
{
	const double *weight = m->spectral.weight;
	int			expo = m->weights.expo;
	double		mass = weight != NULL ? m->size[i] * gk_ldexp(weight[i], -expo) : m->size[i];

	if (m->prep.distance == GK_COSINE && (weight != NULL || !m->weights.known))
		mass -= gk_ldexp(m->cluster_inertia[i], -expo);
	return mass;
}

/* Directions that cancel each other out have none together: then it is that of the first representative. */
static void
make_direction(const GkModel *m, int cluster, double *centroid)
{
	int			d = m->prep.d;
	int			first = 0;
	double		square = 0.0;

	for (int j = 0; j < d; j++)
		square += centroid[j] * centroid[j];
	while (m->spectral.cluster[first] != cluster && first < m->k - 1)
		first++;
	for (int j = 0; j < d; j++)
		centroid[j] = square > 0.0 ? centroid[j] / sqrt(square) : m->centroids[(size_t) first * d + j];
}

void
gk_spectral_clusters(const GkModel *model, GkSpectralClusters *out)
{
	int			k = model->spectral.k;
	int			d = model->prep.d;

	memset(out->size, 0, k * sizeof(int64_t));
	memset(out->mass, 0, k * sizeof(double));
	memset(out->centroid, 0, (size_t) k * d * sizeof(double));
	memset(out->inertia, 0, k * sizeof(double));
	memset(out->radius, 0, k * sizeof(double));
	for (int i = 0; i < model->k; i++)
	{
		int			c = model->spectral.cluster[i];

		out->size[c] += model->size[i];
		out->mass[c] += mass_of(model, i);
		out->inertia[c] += model->cluster_inertia[i];
		if (model->radius[i] > out->radius[c])
			out->radius[c] = model->radius[i];
	}
	for (int i = 0; i < model->k; i++)
	{
		int			c = model->spectral.cluster[i];
		double		share = out->mass[c] > 0.0 ? mass_of(model, i) / out->mass[c] : 0.0;

		for (int j = 0; j < d; j++)
			out->centroid[(size_t) c * d + j] += share * model->centroids[(size_t) i * d + j];
	}
	for (int c = 0; c < k && model->prep.distance == GK_COSINE; c++)
		make_direction(model, c, out->centroid + (size_t) c * d);
}
