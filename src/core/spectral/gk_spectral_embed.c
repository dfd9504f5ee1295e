/*
 * gk_spectral_embed.c - representatives as points of the eigenvectors' space, clustered by k-means.
 */
#include <string.h>

#include "core/gk_backend.h"
#include "core/spectral/gk_spectral.h"
#include "core/store/gk_batch.h"

#define RESTARTS	10
#define ITERATIONS	300
#define CHUNK_BYTES	((size_t) 1 << 20)

static GkStatus
load_rows(const GkSpace *space, int k, double *row, GkStore *store, GkError *err)
{
	GkBatch    *b = gk_store_batch(store);
	GkStatus	st = GK_OK;

	for (int i = 0; st == GK_OK && i < space->graph.n; i++)
	{
		if (space->graph.component[i] < 0)
			continue;
		gk_space_row(space, k, i, row);
		for (int j = 0; j < k; j++)
			gk_batch_put(b, j, row[j]);
		if (++b->rows == b->capacity)
			st = gk_store_commit(store, err);
	}
	return st == GK_OK && b->rows > 0 ? gk_store_commit(store, err) : st;
}

typedef struct Take
{
	const GkGraph *g;
	int			at;				/* representative of the next label */
	int32_t    *cluster;
} Take;

static bool
take_labels(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Take	   *t = ctx;

	(void) d2;
	(void) aux;
	for (int i = 0; i < rows; t->at++)
		if (t->g->component[t->at] >= 0)
			t->cluster[t->at] = label[i++];
	return true;
}

GkStatus
gk_spectral_embed(const GkHost *host, const GkSpace *space, int k, int64_t seed,
				  int32_t *cluster, int *found, GkError *err)
{
	const GkGraph *g = &space->graph;
	GkHost		quiet = *host;
	GkOptions	options = {.k = k < g->kept ? k : g->kept,.n_init = RESTARTS,.max_iter = ITERATIONS,
	.tol = 0.0,.seed = seed};
	Take		take = {g, 0, cluster};
	GkLabelSink sink = {&take, take_labels, NULL};
	double	   *row = gk_alloc(host, k, sizeof(double));
	GkStore    *store = NULL;
	GkModel		model = {.k = 0};
	GkStatus	st;

	quiet.progress = NULL;
	for (int i = 0; i < g->n; i++)
		cluster[i] = -1;
	if (row == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	st = gk_store_create(&quiet, k, false, 0, CHUNK_BYTES, SIZE_MAX, &store, err);
	if (st == GK_OK)
		st = load_rows(space, k, row, store, err);
	if (st == GK_OK)
		st = gk_store_prepare(store, GK_EUCLIDEAN, false, err);
	if (st == GK_OK)
		st = gk_fit(store, &gk_cpu_backend, &options, &sink, &model, err);
	*found = model.k;
	if (st == GK_OK)
		gk_model_free(&quiet, &model);
	gk_store_free(store);
	gk_free(host, row);
	return st;
}
