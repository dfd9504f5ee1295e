/*
 * gk_model.c - what a model means: centroids as prepared float32, distances and
 * inertia in original units.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/gk_engine.h"
#include "core/gk_numerics.h"
#include "core/gk_update.h"

void
gk_model_prepare(const GkPrep *prep, const double *centroids, int k, float *out)
{
	for (int i = 0; i < k; i++)
		for (int j = 0; j < prep->d; j++)
		{
			size_t		at = (size_t) i * prep->d + j;

			out[at] = gk_centroid_to_float(centroids[at], prep->center[j], prep->scale[j]);
		}
}

/*
 * Under cosine, points and centroids are unit vectors times 2^unit_exp, so a
 * squared distance is 2 (1 - cosine).
 */
double
gk_inertia_from_d2(const GkPrep *prep, double d2)
{
	if (prep->distance == GK_MANHATTAN)
		return gk_ldexp(d2, -prep->unit_exp);
	return gk_ldexp(d2, -2 * prep->unit_exp - (prep->distance == GK_COSINE ? 1 : 0));
}

double
gk_shift_from_d2(const GkPrep *prep, double d2)
{
	return prep->distance == GK_MANHATTAN ? gk_ldexp(d2, -2 * prep->unit_exp) : gk_inertia_from_d2(prep, d2);
}

double
gk_distance_from_d2(const GkPrep *prep, float d2)
{
	if (!gk_distance_is_root(prep->distance))
		return gk_inertia_from_d2(prep, d2);
	return gk_ldexp(sqrt((double) d2), -prep->unit_exp);
}

GkStatus
gk_fail_range(GkError *err)
{
	GkStatus	st = gk_fail(err, GK_ERR_RANGE, "sum of squared distances is out of the range of double precision");

	snprintf(err->hint, sizeof(err->hint), "Divide the columns by a constant.");
	return st;
}

GkStatus
gk_fail_far(GkError *err)
{
	GkStatus	st = gk_fail(err, GK_ERR_RANGE, "point is too far outside of the range of the model's points");

	snprintf(err->hint, sizeof(err->hint), "Fit a model to points that include this one, or leave it out.");
	return st;
}

/* Features beyond about 1e154 overflow when they are squared. */
GkStatus
gk_model_check_range(const GkModel *m, GkError *err)
{
	if (!isfinite(m->inertia))
		return gk_fail_range(err);
	for (int i = 0; i < m->history_len; i++)
		if (!isfinite(m->history_inertia[i]) || !isfinite(m->history_shift[i]))
			return gk_fail_range(err);
	return GK_OK;
}

GkStatus
gk_prep_copy(const GkHost *host, const GkPrep *from, GkPrep *to, GkError *err)
{
	*to = *from;
	to->center = gk_alloc(host, from->d, sizeof(double));
	to->scale = gk_alloc(host, from->d, sizeof(double));
	to->expo = gk_alloc(host, from->d, sizeof(int32_t));
	if (!to->center || !to->scale || !to->expo)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	memcpy(to->center, from->center, from->d * sizeof(double));
	memcpy(to->scale, from->scale, from->d * sizeof(double));
	memcpy(to->expo, from->expo, from->d * sizeof(int32_t));
	return GK_OK;
}

void
gk_model_free(const GkHost *host, GkModel *model)
{
	gk_free(host, model->prep.center);
	gk_free(host, model->prep.scale);
	gk_free(host, model->prep.expo);
	gk_free(host, model->centroids);
	gk_free(host, model->size);
	gk_free(host, model->cluster_inertia);
	gk_free(host, model->radius);
	gk_free(host, model->history_inertia);
	gk_free(host, model->history_shift);
	gk_free(host, model->spectral.eigenvalue);
	gk_free(host, model->spectral.cluster);
	gk_free(host, model->spectral.weight);
	model->spectral.eigenvalue = NULL;
	model->spectral.cluster = NULL;
	model->spectral.weight = NULL;
	model->prep.center = model->prep.scale = NULL;
	model->prep.expo = NULL;
	model->centroids = model->cluster_inertia = model->radius = NULL;
	model->size = NULL;
	model->history_inertia = model->history_shift = NULL;
}
