/*
 * gk_quality.c - silhouette, Davies-Bouldin, Calinski-Harabasz, inertia.
 *
 * Two passes over the points (gk_quality_pass.c): labels and sums give the
 * clusters' means, then distances to the means give the measures.  The rows of the
 * classical silhouette are picked up on the way.
 */
#include <math.h>
#include <string.h>

#include "core/gk_tiles.h"
#include "core/quality/gk_quality_internal.h"

/* Squares of prepared values this large are still numbers. */
#define MAX_EXPO	400
/* Several copies of the sums help while they are this small. */
#define COPIES_BYTES	((size_t) 16 << 10)

/* ---- from sums to measures ---- */

void
gk_quality_add_sums(GkQuality *q)
{
	GkQualitySums *s = &q->sum;

	for (int t = 0; t < q->threads; t++)
	{
		for (size_t i = 0; i < (size_t) q->k * q->d; i++)
			s->sum[i] += q->per_thread[t].sum[i];
		for (int c = 0; c < q->k; c++)
			s->count[c] += q->per_thread[t].count[c];
		s->inertia += q->per_thread[t].inertia;
		s->far |= q->per_thread[t].far;
	}
}

GkStatus
gk_quality_find_means(GkQuality *q, GkError *err)
{
	GkQualitySums *s = &q->sum;

	for (int c = 0; c < q->k; c++)
	{
		q->used += s->count[c] > 0;
		q->lone |= s->count[c] == 1;
		for (int j = 0; j < q->d; j++)
			q->mean[(size_t) c * q->d + j] = s->count[c] == 0 ? INFINITY :
				gk_i128_to_double(s->sum[(size_t) c * q->d + j]) / (double) s->count[c] * q->unit[j];
	}
	return s->far ? gk_fail_far(err) : GK_OK;
}

void
gk_quality_add_spreads(GkQuality *q)
{
	for (int t = 0; t < q->threads; t++)
	{
		for (int c = 0; c < q->k; c++)
			q->sum.spread[c] += q->per_thread[t].spread[c];
		q->sum.within += q->per_thread[t].within;
		q->sum.simplified += q->per_thread[t].simplified;
		q->sum.far |= q->per_thread[t].far;
	}
}

/* For davies_bouldin(): the worst (spread_a + spread_b) / distance of their means that each cluster has with another. */
typedef struct Worst
{
	const GkQuality *q;
	double	   *of;				/* [k] */
} Worst;

static double
spread_of(const GkQuality *q, int c)
{
	return gk_i128_to_double(q->sum.spread[c]) / (double) q->sum.count[c];
}

static void
find_worst(void *arg, int64_t a, int thread)
{
	const Worst *w = arg;
	const GkQuality *q = w->q;
	int			look = GK_QUALITY_LOOK / q->d + 1;
	double		worst = 0.0;

	(void) thread;
	for (int b = 0; b < q->k && q->sum.count[a] > 0; b++)
	{
		double		d2 = 0.0;
		double		spread;

		if (b % look == 0 && gk_host_stops(q->host))
			return;
		if (b == a || q->sum.count[b] == 0)
			continue;
		for (int j = 0; j < q->d; j++)
		{
			double		v = q->mean[(size_t) a * q->d + j] - q->mean[(size_t) b * q->d + j];

			d2 += v * v;
		}
		spread = spread_of(q, (int) a) + spread_of(q, b);
		if (d2 > 0.0 && spread / sqrt(d2) > worst)
			worst = spread / sqrt(d2);
	}
	w->of[a] = worst;
}

/* The mean of these. */
static GkStatus
davies_bouldin(const GkQuality *q, int used, double *out, GkError *err)
{
	Worst		w = {q, gk_alloc(q->host, q->k, sizeof(double))};
	double		total = 0.0;
	bool		done;

	if (w.of == NULL)
		return gk_quality_no_memory(err);
	done = gk_parallel_for(q->host, q->k, find_worst, &w) && !gk_host_stops(q->host);
	for (int c = 0; done && c < q->k; c++)
		total += w.of[c] * 0x1p-62;
	gk_free(q->host, w.of);
	*out = total / used;
	return done ? GK_OK : GK_STOPPED;
}

/* Between the clusters over within them, each by its degrees of freedom. */
static double
calinski_harabasz(const GkQuality *q, int used)
{
	double		within = gk_i128_to_double(q->sum.within) * 0x1p-80;
	double		between = 0.0;

	for (int j = 0; j < q->d; j++)
	{
		gk_int128	total = 0;
		double		mean;

		/* davies_bouldin() comes next and says so */
		if (gk_host_stops(q->host))
			break;
		for (int c = 0; c < q->k; c++)
			total += q->sum.sum[(size_t) c * q->d + j];
		mean = gk_i128_to_double(total) / (double) q->n * q->unit[j];
		for (int c = 0; c < q->k; c++)
		{
			double		v = q->sum.count[c] > 0 ? q->mean[(size_t) c * q->d + j] - mean : 0.0;

			between += (double) q->sum.count[c] * v * v;
		}
	}
	/* as scikit-learn: no spread at all */
	if (within == 0.0)
		return 1.0;
	return between * (double) (q->n - used) / (within * (double) (used - 1));
}

static GkStatus
measures(const GkQuality *q, GkMeasures *out, GkError *err)
{
	out->k = q->used;
	out->rows = q->n;
	out->sample = q->m;
	out->inertia = gk_inertia_from_d2(q->prep, ldexp(gk_i128_to_double(q->sum.inertia), 2 * q->expo - 80));
	out->silhouette = out->simplified = out->davies_bouldin = out->calinski_harabasz = NAN;
	if (out->k <= 1 || out->k >= q->n)
		return GK_OK;
	out->simplified = gk_i128_to_double(q->sum.simplified) / (double) q->n * 0x1p-62;
	out->calinski_harabasz = calinski_harabasz(q, out->k);
	return davies_bouldin(q, out->k, &out->davies_bouldin, err);
}

/* ---- setting up ---- */

/* The exponent for which neither points nor centroids are more than 1 apart. */
static int
choose_expo(const GkQuality *q, const double *centroid)
{
	const GkPrep *p = q->prep;
	int			top = -250;		/* all values 0 */
	int			e;

	for (int j = 0; j < q->d && !gk_host_stops(q->host); j++)
	{
		double		bound = gk_pow2(p->expo[j]);

		if (q->raw && p->distance != GK_COSINE)
		{
			bound = fmax(fabs(gk_centre_scale(q->store->stats[j].min, p->center[j], p->scale[j])),
						 fabs(gk_centre_scale(q->store->stats[j].max, p->center[j], p->scale[j])));
			for (int c = 0; c < q->k; c++)
				bound = fmax(bound, fabs(gk_centre_scale(centroid[(size_t) c * q->d + j],
														 p->center[j], p->scale[j])));
		}
		if (bound == 0.0)
			continue;
		if (!(bound < 0x1p400))
			return MAX_EXPO + 1;
		(void) frexp(bound, &e);
		if (e > top)
			top = e;
	}
	/* two of them may be 2 * sqrt(d) * bound apart */
	(void) frexp((double) q->d, &e);
	return top + 1 + (e + 1) / 2;
}

GkStatus
gk_quality_begin(GkQuality *q, const double *centroids, GkError *err)
{
	const GkHost *host = q->host;
	size_t		kd = (size_t) q->k * q->d;
	int64_t		blocks = ((int64_t) 1 << 20) / q->k / q->d;
	bool		stopped = false;
	bool		good;

	if (q->store != NULL)
		q->expo = choose_expo(q, centroids);
	if (gk_host_stops(host))
		return GK_STOPPED;
	if (q->expo > MAX_EXPO)
		return gk_fail_far(err);
	/* some tens of milliseconds at most */
	q->per_job = GK_QUALITY_ROWS * (blocks < 1 ? 1 : blocks > GK_PACKAGE / GK_QUALITY_ROWS ? GK_PACKAGE / GK_QUALITY_ROWS : (int) blocks);
	q->threads = gk_threads(host);
	q->width = ((size_t) q->d + 3) / 4 * 4;
	q->copies = q->k * q->width * sizeof(double) * GK_ADD_COPIES <= COPIES_BYTES ? GK_ADD_COPIES : 1;
	q->unit = gk_alloc(host, q->d, sizeof(double));
	q->column = gk_alloc(host, q->d, sizeof(void *));
	q->mean = gk_alloc(host, kd, sizeof(double));
	q->sum.sum = gk_alloc0_large(host, kd, sizeof(gk_int128), &stopped);
	q->sum.spread = gk_alloc0(host, q->k, sizeof(gk_int128));
	q->sum.count = gk_alloc0(host, q->k, sizeof(int64_t));
	q->per_thread = gk_alloc0(host, q->threads, sizeof(GkQualitySums));
	good = q->unit && q->column && q->mean && q->sum.sum && q->sum.spread && q->sum.count &&
		q->per_thread;
	for (int t = 0; good && t < q->threads; t++)
	{
		GkQualitySums *p = &q->per_thread[t];

		p->sum = gk_alloc0_large(host, kd, sizeof(gk_int128), &stopped);
		p->spread = gk_alloc0(host, q->k, sizeof(gk_int128));
		p->count = gk_alloc0(host, q->k, sizeof(int64_t));
		p->z = gk_alloc0(host, (size_t) q->d * GK_QUALITY_ROWS, sizeof(double));
		p->add = gk_alloc(host, q->raw ? 1 : q->copies * q->k * q->width, sizeof(double));
		p->x = gk_alloc(host, q->d, sizeof(double));
		p->f = gk_alloc(host, q->d, sizeof(float));
		good = p->sum && p->spread && p->count && p->add && p->z && p->x && p->f;
	}
	if (!good)
		return stopped ? GK_STOPPED : gk_quality_no_memory(err);
	for (int j = 0; j < q->d; j++)
		q->unit[j] = q->raw ? 0x1p-62 : gk_pow2(q->prep->expo[j] - GK_GRID_BITS - q->expo);
	if (centroids != NULL)
	{
		float	   *f = gk_alloc(host, kd, sizeof(float));

		q->centroid_f = f;
		q->centroid = gk_alloc(host, kd, sizeof(double));
		q->own_label = gk_alloc(host, q->own_labels, sizeof(int32_t));
		if (!f || !q->centroid || !q->own_label)
			return gk_quality_no_memory(err);
		q->label = q->own_label;
		for (int c = 0; c < q->k; c++)
		{
			if (gk_host_stops(host))
				return GK_STOPPED;
			gk_model_prepare(q->prep, centroids + (size_t) c * q->d, 1, f + (size_t) c * q->d);
			for (int j = 0; j < q->d; j++)
				q->centroid[(size_t) c * q->d + j] =
					gk_centre_scale(centroids[(size_t) c * q->d + j], q->prep->center[j], q->prep->scale[j]) *
					gk_pow2(-q->expo);
		}
	}
	return GK_OK;
}

void
gk_quality_end(GkQuality *q)
{
	const GkHost *host = q->host;

	for (int t = 0; q->per_thread && t < q->threads; t++)
	{
		gk_free(host, q->per_thread[t].sum);
		gk_free(host, q->per_thread[t].spread);
		gk_free(host, q->per_thread[t].count);
		gk_free(host, q->per_thread[t].add);
		gk_free(host, q->per_thread[t].z);
		gk_free(host, q->per_thread[t].x);
		gk_free(host, q->per_thread[t].f);
	}
	gk_free(host, q->per_thread);
	gk_free(host, q->unit);
	gk_free(host, (void *) q->column);
	gk_free(host, q->mean);
	gk_free(host, q->sum.sum);
	gk_free(host, q->sum.spread);
	gk_free(host, q->sum.count);
	gk_free(host, q->place);
	gk_free(host, q->sample_size);
	gk_free(host, q->sample);
	gk_free(host, (void *) q->centroid_f);
	gk_free(host, q->centroid);
	gk_free(host, q->own_label);
}

GkStatus
gk_quality_result(GkQuality *q, GkMeasures *out, GkError *err)
{
	GkStatus	st = measures(q, out, err);

	if (st != GK_OK)
		return st;
	if (!isfinite(out->inertia))
		return gk_fail_range(err);
	return q->used > 1 ? gk_silhouette(q->host, q->sample, q->lanes, q->d, q->sample_size, q->k, &out->silhouette, err) : GK_OK;
}

static GkStatus
measure(GkQuality *q, const double *centroids, int64_t sample, GkMeasures *out, GkError *err)
{
	GkStatus	st;

	q->host = gk_store_host(q->store);
	q->n = q->own_labels = gk_store_rows(q->store);
	q->d = q->prep->d;
	q->m = sample < q->n ? sample : q->n;
	st = gk_quality_begin(q, centroids, err);
	if (st == GK_OK)
		st = gk_quality_sum(q, err);
	if (st == GK_OK)
	{
		gk_quality_add_sums(q);
		st = gk_quality_find_means(q, err);
	}
	if (st == GK_OK && q->used > 1)
		st = gk_quality_place_sample(q, err);
	if (st == GK_OK && q->used > 1)
		st = gk_quality_measure(q, err);
	if (st == GK_OK)
	{
		gk_quality_add_spreads(q);
		st = gk_quality_result(q, out, err);
	}
	gk_quality_end(q);
	return st;
}

GkStatus
gk_quality_model(GkStore *store, const GkModel *model, int64_t sample, GkMeasures *out, GkError *err)
{
	GkQuality	q = {.store = store,.prep = &model->prep,.k = model->k,.raw = true};
	GkStatus	st;

	if (model->prep.d != gk_store_features(store))
		return gk_fail(err, GK_ERR_DATA, "points have %d features, the model %d",
					   gk_store_features(store), model->prep.d);
	if ((st = gk_store_loaded(store, err)) != GK_OK)
		return st;
	return measure(&q, model->centroids, sample, out, err);
}

GkStatus
gk_quality_labels(GkStore *store, const int32_t *label, int k, int64_t sample, GkMeasures *out, GkError *err)
{
	GkQuality	q = {.store = store,.prep = &gk_store_points(store)->prep,.k = k,.label = label};

	return measure(&q, NULL, sample, out, err);
}
