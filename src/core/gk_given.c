/*
 * gk_given.c - given centroids: their directions under cosine, and a model of them alone.
 *
 * Points are prepared by the centre, scale and grid of the rows of a fit.  Where there are
 * centroids only, they stand for the rows: they lie among them.
 */
#include <math.h>

#include "core/gk_engine.h"
#include "core/store/gk_store.h"

#define CHUNK_BYTES		((size_t) 16 << 20)

GkStatus
gk_given_directions(double *centroids, int k, int d, GkError *err)
{
	/* what rounding may leave of the length's square: those of a fit are kept, to the last bit */
	double		slack = (d + 8) * 0x1p-51;

	for (int i = 0; i < k; i++)
	{
		double	   *c = centroids + (size_t) i * d;
		double		most = 0.0;
		double		length = 0.0;
		double		scale;

		for (int j = 0; j < d; j++)
			most = fmax(most, fabs(c[j]));
		if (most == 0.0)
			return gk_fail(err, GK_ERR_OPTION, "given centroid %d is zero and has no direction", i);
		scale = gk_scale_of(-gk_expo_of(most));
		for (int j = 0; j < d; j++)
			length += c[j] * scale * (c[j] * scale);
		if (fabs(length / scale / scale - 1.0) <= slack)
			continue;
		for (int j = 0; j < d; j++)
			c[j] = c[j] * scale / sqrt(length);
	}
	return GK_OK;
}

/* Load the centroids as rows. */
static GkStatus
load_rows(GkStore *store, const double *centroids, int k, int d, GkError *err)
{
	GkBatch    *batch = gk_store_batch(store);
	GkStatus	st = GK_OK;

	for (int i = 0; st == GK_OK && i < k; i++)
	{
		for (int j = 0; j < d; j++)
			gk_batch_put(batch, j, centroids[(size_t) i * d + j]);
		if (++batch->rows == batch->capacity)
			st = gk_store_commit(store, err);
	}
	return st == GK_OK ? gk_store_commit(store, err) : st;
}

/* Choose how points are prepared. */
static GkStatus
choose_prep(const GkHost *host, const GkModel *m, GkDistance distance, int d, GkPrep *prep, GkError *err)
{
	GkStore    *store;
	GkStatus	st = gk_store_create(host, d, false, 0, CHUNK_BYTES, SIZE_MAX, &store, err);

	if (st == GK_OK)
		st = load_rows(store, m->centroids, m->k, d, err);
	if (st == GK_OK)
		st = gk_store_prepare(store, distance, false, err);
	if (st == GK_OK)
		st = gk_prep_copy(host, &gk_store_points(store)->prep, prep, err);
	gk_store_free(store);
	return st;
}

GkStatus
gk_model_of_given(const GkHost *host, double *centroids, int k, int d, GkDistance distance, GkModel *model, GkError *err)
{
	GkStatus	st;

	*model = (GkModel) {.k = k,.k_asked = k,.init = GK_INIT_CENTROIDS,.centroids = centroids};
	model->size = gk_alloc0(host, k, sizeof(int64_t));
	model->cluster_inertia = gk_alloc0(host, k, sizeof(double));
	model->radius = gk_alloc0(host, k, sizeof(double));
	if (!model->size || !model->cluster_inertia || !model->radius)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory");
	else
		st = choose_prep(host, model, distance, d, &model->prep, err);
	if (st == GK_OK && distance == GK_COSINE)
		st = gk_given_directions(centroids, k, d, err);
	if (st != GK_OK)
		gk_model_free(host, model);
	return st;
}
