/*
 * gk_spectral.c - spectral clustering: k-means finds representatives, eigenvectors of their
 * graph's Laplacian cluster them, and a point belongs to its representative's cluster.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/spectral/gk_spectral.h"

static GkStatus
out_of_memory(int n, GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory for the clusters of %d representatives", n);
}

static void
report(const GkHost *host, const GkModel *m, const char *phase)
{
	GkProgress	p = {.phase = phase,.run = 1,.rows = m->rows_used,.inertia = -1};

	if (host->progress)
		host->progress(host->ctx, &p);
}

/* ---- labels ---- */

/* A sink between the representatives' labels and the clusters'. */
typedef struct Map
{
	GkLabelSink sink;
	const GkLabelSink *to;
	const GkHost *host;
	const int32_t *cluster;
	int32_t    *label;
	int			room;
	bool		no_memory;
} Map;

static bool
map_emit(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Map		   *m = ctx;

	if (rows > m->room)
	{
		gk_free(m->host, m->label);
		m->label = gk_alloc(m->host, rows, sizeof(int32_t));
		m->room = m->label != NULL ? rows : 0;
	}
	m->no_memory = rows > m->room;
	if (m->no_memory)
		return false;
	for (int i = 0; i < rows; i++)
		m->label[i] = m->cluster[label[i]];
	return m->to->emit(m->to->ctx, rows, m->label, d2, aux);
}

static void
map_again(void *ctx)
{
	Map		   *m = ctx;

	m->to->again(m->to->ctx);
}

GkStatus
gk_spectral_label(GkStore *store, const GkBackend *backend, const GkModel *model,
				  const GkLabelSink *sink, GkError *err)
{
	Map			map = {.to = sink,.host = gk_store_host(store),.cluster = model->spectral.cluster};
	GkStatus	st;

	if (model->spectral.k == 0)
		return gk_label(store, backend, model, sink, err);
	map.sink = (GkLabelSink) {&map, map_emit, sink->again != NULL ? map_again : NULL};
	st = gk_label(store, backend, model, &map.sink, err);
	gk_free(map.host, map.label);
	return map.no_memory ? out_of_memory(model->k, err) : st;
}

/* ---- clusters ---- */

/* Representatives that were cut off go with the nearest one that was not. */
static void
attach_cut_off(const GkGraph *g, int32_t *cluster)
{
	for (int i = 0; i < g->n; i++)
	{
		const float *d2 = g->d2 + (size_t) i * g->n;
		int			best = -1;

		if (g->component[i] >= 0)
			continue;
		for (int j = 0; j < g->n; j++)
			if (g->component[j] >= 0 && (best < 0 || d2[j] < d2[best]))
				best = j;
		cluster[i] = cluster[best];
	}
}

typedef struct Ranked
{
	int64_t		size;
	int			cluster;
} Ranked;

static int
by_size(const void *va, const void *vb)
{
	const Ranked *a = va;
	const Ranked *b = vb;

	if (a->size != b->size)
		return a->size > b->size ? -1 : 1;
	return a->cluster - b->cluster;
}

/* Number clusters by their points, the largest first, ties by their first representative. */
static GkStatus
order_clusters(const GkHost *host, GkModel *m, GkError *err)
{
	GkSpectral *s = &m->spectral;
	Ranked	   *rank = gk_alloc0(host, s->k, sizeof(Ranked));
	int32_t    *number = gk_alloc(host, s->k, sizeof(int32_t));
	int			seen = 0;

	if (rank == NULL || number == NULL)
	{
		gk_free(host, rank);
		gk_free(host, number);
		return out_of_memory(m->k, err);
	}
	for (int c = 0; c < s->k; c++)
		number[c] = -1;
	for (int i = 0; i < m->k; i++)
	{
		if (number[s->cluster[i]] < 0)
			number[s->cluster[i]] = seen++;
		s->cluster[i] = number[s->cluster[i]];
		rank[s->cluster[i]].size += m->size[i];
	}
	for (int c = 0; c < s->k; c++)
		rank[c].cluster = c;
	qsort(rank, s->k, sizeof(Ranked), by_size);
	for (int c = 0; c < s->k; c++)
		number[rank[c].cluster] = c;
	for (int i = 0; i < m->k; i++)
		s->cluster[i] = number[s->cluster[i]];
	gk_free(host, rank);
	gk_free(host, number);
	return GK_OK;
}

/* k and the clusters by the eigenvectors. */
static GkStatus
cluster_space(const GkHost *host, const GkSpace *space, GkModel *m, GkError *err)
{
	GkSpectral *s = &m->spectral;

	s->neigenvalues = space->m;
	s->eigenvalue = gk_alloc(host, space->m, sizeof(double));
	if (s->eigenvalue == NULL)
		return out_of_memory(m->k, err);
	memcpy(s->eigenvalue, space->value, space->m * sizeof(double));
	s->choice = GK_CHOICE_ASKED;
	s->k = s->asked.k < space->graph.kept ? s->asked.k : space->graph.kept;
	if (s->k == 0)
		s->k = gk_choose_k(space->value, space->m, space->graph.components, space->scale, &s->choice, &s->strength);
	else
		s->strength = s->k < space->m ? gk_power_gap(space->value, s->k, space->scale) : 0.0;
	return gk_spectral_embed(host, space, s->k, m->seed, s->cluster, &s->k, err);
}

/* The phases, and how long they take. */
static GkStatus
run_phases(const GkHost *host, GkSpace *space, GkModel *m, GkError *err)
{
	GkSpectral *s = &m->spectral;
	double		start = gk_now_ms();
	double		now;
	GkStatus	st;

	report(host, m, "graph");
	st = gk_space_graph(host, m, &s->asked, space, err);
	s->components = space->graph.components;
	s->cut_off = space->graph.cut_off;
	if (st == GK_OK && s->asked.k > 0)
		st = gk_graph_join(host, s->asked.k, &space->graph, err);
	now = gk_now_ms();
	s->graph_ms = now - start;
	start = now;
	report(host, m, "eigenvectors");
	if (st == GK_OK)
		st = gk_space_solve(host, space, gk_count_eigenvalues(&space->graph, s->asked.k), err);
	now = gk_now_ms();
	s->eigen_ms = now - start;
	start = now;
	report(host, m, "embed");
	if (st == GK_OK)
		st = cluster_space(host, space, m, err);
	s->embed_ms = gk_now_ms() - start;
	return st;
}

GkStatus
gk_spectral_cluster(const GkHost *host, const GkSpectralOptions *options, GkModel *model, GkError *err)
{
	GkSpectral *s = &model->spectral;
	GkSpace		space = {0};
	GkStatus	st;

	memset(s, 0, sizeof(*s));
	s->asked = *options;
	s->cluster = gk_alloc(host, model->k, sizeof(int32_t));
	st = s->cluster != NULL ? run_phases(host, &space, model, err) : out_of_memory(model->k, err);
	if (st == GK_OK)
	{
		attach_cut_off(&space.graph, s->cluster);
		st = order_clusters(host, model, err);
	}
	if (st == GK_ERR_MEMORY)
		snprintf(err->hint, sizeof(err->hint), "Use fewer representatives.");
	gk_space_free(host, &space);
	return st;
}

GkStatus
gk_spectral_fit(GkStore *store, const GkBackend *backend, const GkOptions *options,
				const GkSpectralOptions *spectral, const GkLabelSink *sink, GkModel *model, GkError *err)
{
	const GkHost *host = gk_store_host(store);
	GkStatus	st = gk_fit(store, backend, options, NULL, model, err);

	if (st != GK_OK || model->k == 0)
		return st;
	st = gk_spectral_cluster(host, spectral, model, err);
	if (st == GK_OK && model->weights.known)
		st = gk_spectral_weigh(store, backend, model, err);
	if (st == GK_OK && sink != NULL)
		st = gk_spectral_label(store, backend, model, sink, err);
	if (st != GK_OK)
		gk_model_free(host, model);
	return st;
}
