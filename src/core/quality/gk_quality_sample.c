/*
 * gk_quality_sample.c - the rows of the classical silhouette, and of pictures.
 */
#include <string.h>

#include "core/quality/gk_quality_internal.h"

#define LANES	GK_QUALITY_LANES

/*
 * The row that stands for stratum s: the rows are cut into m strata of equal
 * size and one row is drawn from each.  Ascending in s.
 */
static int64_t
sample_row(const GkQuality *q, int64_t s)
{
	int64_t		lo = (int64_t) ((gk_int128) s * q->n / q->m);
	int64_t		hi = (int64_t) ((gk_int128) (s + 1) * q->n / q->m);

	return lo + (int64_t) (gk_hash(gk_key(0, 0, q->n), s) % (uint64_t) (hi - lo));
}

GkStatus
gk_quality_place_sample(GkQuality *q, GkError *err)
{
	q->place = gk_alloc(q->host, q->k, sizeof(int64_t));
	q->sample_size = gk_alloc0(q->host, q->k, sizeof(int64_t));
	if (!q->place || !q->sample_size)
		return gk_quality_no_memory(err);
	for (int64_t s = 0; s < q->m; s++)
		q->sample_size[q->label[sample_row(q, s)]]++;
	for (int c = 0; c < q->k; c++)
	{
		q->place[c] = (int64_t) q->lanes;
		q->lanes += (q->sample_size[c] + LANES - 1) / LANES * LANES;
	}
	q->sample = gk_alloc0(q->host, q->lanes * q->d + 1, sizeof(double));
	return q->sample == NULL ? gk_quality_no_memory(err) : GK_OK;
}

void
gk_quality_take_sample(GkQuality *q)
{
	for (; q->taken < q->m; q->taken++)
	{
		int64_t		row = sample_row(q, q->taken);

		if (row >= q->first + q->rows)
			return;
		gk_quality_read(q, (int) (row - q->first), 1, q->sample + q->place[q->label[row]]++, q->lanes);
	}
}

GkStatus
gk_quality_rows(GkStore *store, const GkModel *model, int64_t sample, double *x, int32_t *label,
				int64_t *got, GkError *err)
{
	GkQuality	q = {.store = store,.prep = &model->prep,.k = model->k,.raw = true};
	int			chunks;
	float	   *f = NULL;
	float	   *point = NULL;
	GkStatus	st;

	if ((st = gk_store_loaded(store, err)) != GK_OK)
		return st;
	q.host = gk_store_host(store);
	q.n = gk_store_rows(store);
	q.d = model->prep.d;
	q.m = sample < q.n ? sample : q.n;
	q.column = gk_alloc(q.host, q.d, sizeof(void *));
	f = gk_alloc(q.host, (size_t) q.k * q.d, sizeof(float));
	point = gk_alloc(q.host, q.d, sizeof(float));
	if (!q.column || !f || !point)
		st = gk_quality_no_memory(err);
	else
		gk_model_prepare(q.prep, model->centroids, q.k, f);
	chunks = gk_store_points(store)->nchunks;
	for (int i = 0; st == GK_OK && i < chunks && q.taken < q.m; i++)
	{
		void	   *copy;

		st = gk_quality_open_chunk(&q, i, &copy, err);
		for (; st == GK_OK && q.taken < q.m; q.taken++)
		{
			int64_t		row = sample_row(&q, q.taken);
			double	   *to = x + (size_t) q.taken * q.d;
			float		d2;

			if (row >= q.first + q.rows)
				break;
			for (int j = 0; j < q.d; j++)
				to[j] = gk_quality_raw(&q, j, (int) (row - q.first));
			(void) gk_prepare_point(q.prep, to, point);
			label[q.taken] = gk_nearest(point, q.d, f, q.k, &d2);
		}
		gk_free(q.host, copy);
		if (st == GK_OK && q.host->poll && q.host->poll(q.host->ctx))
			st = GK_STOPPED;
	}
	*got = q.taken;
	gk_free(q.host, (void *) q.column);
	gk_free(q.host, f);
	gk_free(q.host, point);
	return st;
}
