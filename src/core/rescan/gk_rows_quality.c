/*
 * gk_rows_quality.c - the measures of quality of rows that are not kept: see gk_rows_quality.h.
 *
 * Each pass over the rows is one question; the rows of the sample are the only ones that come along.
 */
#include <string.h>

#include "core/quality/gk_quality_internal.h"
#include "core/rescan/gk_rows_quality.h"

static GkPass
question(const GkQuality *q, GkPassKind kind, const GkModel *model)
{
	const GkPoints *pts = gk_store_points(q->store);

	return (GkPass) {.kind = kind,.weighted = pts->weighted,.prep = q->prep,.d2_expo = pts->d2_expo,.weight_exp = pts->weight_exp,
		.raw = q->raw,.k = q->k,.centers = model->centroids,.expo = q->expo};
}

/* First pass: sums give the means. */
static GkStatus
ask_means(GkQuality *q, const GkModel *model, GkError *err)
{
	GkPass		pass = question(q, GK_PASS_MEANS, model);
	size_t		kd = (size_t) q->k * q->d;
	int64_t		rows = 0;
	GkPassResult r;
	GkStatus	st = gk_rows_ask(q->store, &pass, NULL, &r, err);

	if (st != GK_OK)
		return st;
	memcpy(q->sum.sum, r.i128, kd * sizeof(gk_int128));
	q->sum.inertia = r.i128[kd];
	memcpy(q->sum.count, r.i64, q->k * sizeof(int64_t));
	q->sum.far = r.i64[q->k] != 0;
	gk_pass_result_free(q->host, &r);
	for (int c = 0; c < q->k; c++)
	{
		if (q->sum.count[c] < 0 || q->sum.count[c] > q->n - rows)
			return gk_rows_changed(err);
		rows += q->sum.count[c];
	}
	return rows == q->n ? gk_quality_find_means(q, err) : gk_rows_changed(err);
}

/* Second pass: distances to them. */
static GkStatus
ask_spread(GkQuality *q, const GkModel *model, GkError *err)
{
	GkPass		pass = question(q, GK_PASS_SPREAD, model);
	GkPassResult r;
	GkStatus	st;

	pass.means = q->mean;
	pass.size = q->sum.count;
	if ((st = gk_rows_ask(q->store, &pass, NULL, &r, err)) != GK_OK)
		return st;
	memcpy(q->sum.spread, r.i128, q->k * sizeof(gk_int128));
	q->sum.within = r.i128[q->k];
	q->sum.simplified = r.i128[q->k + 1];
	gk_pass_result_free(q->host, &r);
	return GK_OK;
}

/* x [m][d] and label [m]. */
static GkStatus
ask_sample(const GkQuality *q, const GkModel *model, double *x, int32_t *label, GkError *err)
{
	GkPass		pass = question(q, GK_PASS_SAMPLE, model);
	GkPassResult r;
	GkStatus	st;

	pass.all_rows = q->n;
	pass.sample = pass.want = (int) q->m;
	if ((st = gk_rows_ask(q->store, &pass, NULL, &r, err)) != GK_OK)
		return st;
	memcpy(x, r.dbl, r.ndbl * sizeof(double));
	for (int64_t s = 0; s < q->m; s++)
		label[s] = (int32_t) r.i64[q->m + s];
	gk_pass_result_free(q->host, &r);
	return GK_OK;
}

static GkStatus
take_sample(GkQuality *q, const GkModel *model, GkError *err)
{
	double	   *x = gk_alloc(q->host, (size_t) q->m * q->d, sizeof(double));
	int32_t    *label = gk_alloc(q->host, q->m, sizeof(int32_t));
	GkStatus	st = x == NULL || label == NULL ? gk_quality_no_memory(err) : GK_OK;

	if (st == GK_OK && q->m > 0)
		st = ask_sample(q, model, x, label, err);
	q->sample_label = label;
	if (st == GK_OK)
		st = gk_quality_place_sample(q, err);
	for (int64_t s = 0; st == GK_OK && s < q->m; s++)
		gk_quality_take(q, x + (size_t) s * q->d);
	q->sample_label = NULL;
	gk_free(q->host, x);
	gk_free(q->host, label);
	return st;
}

static GkStatus
begin(GkStore *store, const GkModel *model, bool prepared, int64_t sample, GkQuality *q, GkError *err)
{
	*q = (GkQuality) {.host = gk_store_host(store),.store = store,.prep = prepared ? &gk_store_points(store)->prep : &model->prep,
		.n = gk_store_rows(store),.d = model->prep.d,.k = model->k,.raw = !prepared};
	q->m = sample < q->n ? sample : q->n;
	if (q->d != gk_store_features(store))
		return gk_fail(err, GK_ERR_DATA, "points have %d features, the model %d", gk_store_features(store), q->d);
	return GK_OK;
}

GkStatus
gk_rows_quality(GkStore *store, const GkModel *model, bool prepared, int64_t sample, GkMeasures *out, GkError *err)
{
	GkQuality	q;
	GkStatus	st = begin(store, model, prepared, sample, &q, err);

	if (st == GK_OK)
		st = gk_quality_begin(&q, model->centroids, err);
	if (st == GK_OK)
		st = ask_means(&q, model, err);
	if (st == GK_OK && q.used > 1)
		st = take_sample(&q, model, err);
	if (st == GK_OK && q.used > 1)
		st = ask_spread(&q, model, err);
	if (st == GK_OK)
		st = gk_quality_result(&q, out, err);
	gk_quality_end(&q);
	return st;
}

GkStatus
gk_rows_sample(GkStore *store, const GkModel *model, int64_t sample, double *x, int32_t *label, int64_t *got, GkError *err)
{
	GkQuality	q;
	GkStatus	st = begin(store, model, false, sample, &q, err);

	*got = q.m;
	return st == GK_OK && q.m > 0 ? ask_sample(&q, model, x, label, err) : st;
}
