/*
 * gk_quality.c - silhouette, Davies-Bouldin, Calinski-Harabasz, inertia.
 *
 * Two passes over the points: labels and sums give the clusters' means, then
 * distances to the means give the measures.  The rows of the classical
 * silhouette are picked up on the way.
 *
 * A block of rows is brought to float64 in prepared units divided by 2^expo,
 * chosen so that no distance exceeds 1.  From a raw store that loses nothing
 * but the rounding of one subtraction; from a prepared one the points are the
 * float32 ones that were clustered.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/gk_quality.h"
#include "core/gk_store.h"

#define ROWS	GK_QUALITY_ROWS
/* Squares of prepared values this large are still numbers. */
#define MAX_EXPO	400

/* What one thread adds up. */
typedef struct Part
{
	gk_int128  *sum;			/* [k][d] */
	gk_int128  *spread;			/* [k] distances to the own mean */
	int64_t    *count;			/* [k] */
	gk_int128	within;			/* squared distances to the own mean */
	gk_int128	inertia;		/* squared distances to the own centroid */
	gk_int128	simplified;
	double	   *z;				/* [d][ROWS] */
	double	   *x;				/* [d] */
	float	   *f;				/* [d] */
} Part;

typedef struct Quality
{
	const GkHost *host;
	GkStore    *store;
	const GkPrep *prep;
	int64_t		n;
	int			d;
	int			k;
	bool		raw;
	int			expo;			/* z = prepared value * 2^-expo */
	double	   *scale;			/* [d] raw: from original units to z */
	/* For labels. */
	const float *centroid_f;	/* [k][d] prepared */
	double	   *centroid;		/* [k][d] as z */
	int32_t    *own_label;		/* [n], written by the first pass */
	const int32_t *label;		/* [n] */
	/* Results of the first pass. */
	Part		sum;
	double	   *mean;			/* [k][d] */
	int			threads;
	Part	   *part;
	/* The chunk at hand. */
	const void **column;		/* [d] */
	const uint8_t *wide;		/* NULL: floats only */
	int64_t		first;
	int			rows;
	/* The sample. */
	int64_t		m;
	int64_t		taken;
	size_t		stride;
	double	   *sample;			/* [d][stride] */
	int64_t    *place;			/* [k + 1] next place of each label */
	int32_t    *sample_label;	/* [m] ascending */
} Quality;

static GkStatus
no_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory for the measures of quality");
}

/* ---- rows ---- */

static inline double
raw_value(const Quality *q, int j, int row)
{
	return q->wide && q->wide[j] ? ((const double *) q->column[j])[row]
		: (double) ((const float *) q->column[j])[row];
}

/* Rows of the chunk at hand as z; out[j * stride + i]. */
static void
read_rows(const Quality *q, int first, int rows, double *out, size_t stride)
{
	bool		cosine = q->prep->distance == GK_COSINE;
	double		down = gk_pow2(-q->expo);

	for (int j = 0; j < q->d; j++)
	{
		double	   *z = out + (size_t) j * stride;

		if (!q->raw)
			for (int i = 0; i < rows; i++)
				z[i] = (double) ((const float *) q->column[j])[first + i] * down;
		else if (cosine)
			for (int i = 0; i < rows; i++)
				z[i] = raw_value(q, j, first + i);
		else
			for (int i = 0; i < rows; i++)
				z[i] = gk_centre_scale(raw_value(q, j, first + i), q->prep->center[j], q->scale[j]);
	}
	if (!q->raw || !cosine)
		return;
	/* to length 1: first near 1 by a power of two, so that no square overflows */
	for (int i = 0; i < rows; i++)
	{
		double		top = 0.0;
		double		length = 0.0;
		int			e;

		for (int j = 0; j < q->d; j++)
			top = fmax(top, fabs(out[(size_t) j * stride + i]));
		(void) frexp(top, &e);
		for (int j = 0; j < q->d; j++)
		{
			double	   *z = &out[(size_t) j * stride + i];

			*z = ldexp(*z, -e);
			length += *z * *z;
		}
		length = sqrt(length);
		for (int j = 0; j < q->d; j++)
			out[(size_t) j * stride + i] *= q->scale[j] / length;
	}
}

/* ---- first pass: labels, means ---- */

static void
label_block(Quality *q, Part *t, int first, int rows)
{
	for (int i = 0; i < rows; i++)
	{
		const double *c;
		double		d2 = 0.0;
		float		unused;
		int			l;

		for (int j = 0; j < q->d; j++)
			t->x[j] = raw_value(q, j, first + i);
		(void) gk_prepare_point(q->prep, t->x, t->f);
		l = gk_nearest(t->f, q->d, q->centroid_f, q->k, &unused);
		q->own_label[q->first + first + i] = l;
		c = q->centroid + (size_t) l * q->d;
		for (int j = 0; j < q->d; j++)
		{
			double		v = t->z[(size_t) j * ROWS + i] - c[j];

			d2 += v * v;
		}
		t->inertia += gk_quality_fixed(d2);
	}
}

static void
sum_block(void *arg, int64_t job, int thread)
{
	Quality    *q = arg;
	Part	   *t = &q->part[thread];
	int			first = (int) job * ROWS;
	int			rows = q->rows - first < ROWS ? q->rows - first : ROWS;
	const int32_t *label = q->label + q->first + first;

	read_rows(q, first, rows, t->z, ROWS);
	if (q->raw)
		label_block(q, t, first, rows);
	for (int i = 0; i < rows; i++)
		t->count[label[i]]++;
	for (int j = 0; j < q->d; j++)
		for (int i = 0; i < rows; i++)
			t->sum[(size_t) label[i] * q->d + j] += gk_quality_fixed(t->z[(size_t) j * ROWS + i]);
}

/* ---- second pass: distances to the means ---- */

static void
distance_block(void *arg, int64_t job, int thread)
{
	Quality    *q = arg;
	Part	   *t = &q->part[thread];
	int			first = (int) job * ROWS;
	int			rows = q->rows - first < ROWS ? q->rows - first : ROWS;
	const int32_t *label = q->label + q->first + first;
	int64_t		lab[ROWS];
	double		d2[ROWS];
	double		own[ROWS];
	double		other[ROWS];

	for (int i = 0; i < ROWS; i++)
	{
		lab[i] = i < rows ? label[i] : -1;
		own[i] = 0.0;
		other[i] = INFINITY;
	}
	read_rows(q, first, rows, t->z, ROWS);
	for (int c = 0; c < q->k; c++)
	{
		if (q->sum.count[c] == 0)
			continue;
		gk_quality_d2(t->z, ROWS, q->d, q->mean + (size_t) c * q->d, d2);
		gk_quality_pick(d2, lab, c, own, other);
	}
	memcpy(d2, own, sizeof(d2));
	gk_quality_roots(own);
	gk_quality_roots(other);
	for (int i = 0; i < rows; i++)
	{
		double		a = own[i];
		double		b = other[i];

		t->within += gk_quality_fixed(d2[i]);
		t->spread[lab[i]] += gk_quality_fixed(a);
		if (q->sum.count[lab[i]] > 1 && a != b && b < INFINITY)
			t->simplified += gk_quality_fixed((b - a) / (a > b ? a : b));
	}
}

/* ---- the sample ---- */

/*
 * The row that stands for stratum s: the rows are cut into m strata of equal
 * size and one row is drawn from each.  Ascending in s.
 */
static int64_t
sample_row(const Quality *q, int64_t s)
{
	int64_t		lo = (int64_t) ((gk_int128) s * q->n / q->m);
	int64_t		hi = (int64_t) ((gk_int128) (s + 1) * q->n / q->m);

	return lo + (int64_t) (gk_hash(gk_key(0, 0, q->n), s) % (uint64_t) (hi - lo));
}

/* Places by label, so that the sample comes out sorted. */
static void
place_sample(Quality *q)
{
	memset(q->place, 0, ((size_t) q->k + 1) * sizeof(int64_t));
	for (int64_t s = 0; s < q->m; s++)
		q->place[q->label[sample_row(q, s)] + 1]++;
	for (int c = 0; c < q->k; c++)
		q->place[c + 1] += q->place[c];
}

static void
take_sample(Quality *q)
{
	for (; q->taken < q->m; q->taken++)
	{
		int64_t		row = sample_row(q, q->taken);
		int64_t		to;

		if (row >= q->first + q->rows)
			return;
		to = q->place[q->label[row]]++;
		q->sample_label[to] = q->label[row];
		read_rows(q, (int) (row - q->first), 1, q->sample + to, q->stride);
	}
}

/* ---- passes ---- */

/* Point at a chunk's columns, reading it back when it was spilled. */
static GkStatus
open_chunk(Quality *q, int index, void **copy, GkError *err)
{
	GkChunk    *c = &gk_store_points(q->store)->chunks[index];
	const GkHost *host = q->host;
	const char *at;
	size_t		bytes = gk_store_chunk_bytes(q->store, c->stride);

	*copy = NULL;
	q->wide = q->raw ? c->wide : NULL;
	q->first = c->first;
	q->rows = c->rows;
	if (c->data != NULL)
		at = (const char *) c->data;
	else if (q->raw)
	{
		for (int j = 0; j < q->store->columns; j++)
			bytes += c->wide[j] ? (size_t) c->stride * 4 : 0;
		at = *copy = gk_alloc(host, bytes, 1);
		if (at == NULL)
			return no_memory(err);
		if (!host->spill_read(host->ctx, c->spill_at, *copy, bytes))
			return gk_fail(err, GK_ERR_HOST, "could not read the spill file");
	}
	else
	{
		GkChunk		view;
		GkStatus	st = gk_chunk_open(q->store, index, false, &view, err);

		if (st != GK_OK)
			return st;
		at = (const char *) view.data;
	}
	for (int j = 0; j < q->d; j++)
	{
		q->column[j] = at;
		at += (size_t) c->stride * (q->wide && q->wide[j] ? 8 : 4);
	}
	return GK_OK;
}

/* Call job for each block of each chunk. */
static GkStatus
walk(Quality *q, GkJob job, bool sample, GkError *err)
{
	int			chunks = gk_store_points(q->store)->nchunks;
	GkStatus	st = GK_OK;

	for (int i = 0; st == GK_OK && i < chunks; i++)
	{
		void	   *copy;

		st = open_chunk(q, i, &copy, err);
		if (st == GK_OK && !gk_parallel_for(q->host, (q->rows + ROWS - 1) / ROWS, job, q))
			st = GK_STOPPED;
		if (st == GK_OK && sample)
			take_sample(q);
		gk_free(q->host, copy);
		if (st == GK_OK && q->host->poll && q->host->poll(q->host->ctx))
			st = GK_STOPPED;
	}
	return st;
}

/* ---- from sums to measures ---- */

static void
merge_first(Quality *q)
{
	Part	   *s = &q->sum;

	for (int t = 0; t < q->threads; t++)
	{
		for (size_t i = 0; i < (size_t) q->k * q->d; i++)
			s->sum[i] += q->part[t].sum[i];
		for (int c = 0; c < q->k; c++)
			s->count[c] += q->part[t].count[c];
		s->inertia += q->part[t].inertia;
	}
	for (int c = 0; c < q->k; c++)
		for (int j = 0; j < q->d; j++)
			q->mean[(size_t) c * q->d + j] = s->count[c] == 0 ? 0.0 :
				gk_i128_to_double(s->sum[(size_t) c * q->d + j]) / (double) s->count[c] * 0x1p-62;
}

/* Mean over clusters of the worst (spread_i + spread_j) / distance of their means. */
static double
davies_bouldin(const Quality *q, int used)
{
	double		total = 0.0;

	for (int a = 0; a < q->k; a++)
	{
		double		worst = 0.0;

		if (q->sum.count[a] == 0)
			continue;
		for (int b = 0; b < q->k; b++)
		{
			double		d2 = 0.0;
			double		spread;

			if (b == a || q->sum.count[b] == 0)
				continue;
			for (int j = 0; j < q->d; j++)
			{
				double		v = q->mean[(size_t) a * q->d + j] - q->mean[(size_t) b * q->d + j];

				d2 += v * v;
			}
			spread = gk_i128_to_double(q->sum.spread[a]) / (double) q->sum.count[a] +
				gk_i128_to_double(q->sum.spread[b]) / (double) q->sum.count[b];
			if (d2 > 0.0 && spread / sqrt(d2) > worst)
				worst = spread / sqrt(d2);
		}
		total += worst * 0x1p-62;
	}
	return total / used;
}

/* Between the clusters over within them, each by its degrees of freedom. */
static double
calinski_harabasz(const Quality *q, int used)
{
	double		within = gk_i128_to_double(q->sum.within) * 0x1p-62;
	double		between = 0.0;

	for (int j = 0; j < q->d; j++)
	{
		gk_int128	total = 0;
		double		mean;

		for (int c = 0; c < q->k; c++)
			total += q->sum.sum[(size_t) c * q->d + j];
		mean = gk_i128_to_double(total) / (double) q->n * 0x1p-62;
		for (int c = 0; c < q->k; c++)
		{
			double		v = q->mean[(size_t) c * q->d + j] - mean;

			between += (double) q->sum.count[c] * v * v;
		}
	}
	/* as scikit-learn: no spread at all */
	if (within == 0.0)
		return 1.0;
	return between * (double) (q->n - used) / (within * (double) (used - 1));
}

static void
measures(Quality *q, GkMeasures *out)
{
	for (int t = 0; t < q->threads; t++)
	{
		for (int c = 0; c < q->k; c++)
			q->sum.spread[c] += q->part[t].spread[c];
		q->sum.within += q->part[t].within;
		q->sum.simplified += q->part[t].simplified;
	}
	out->k = 0;
	for (int c = 0; c < q->k; c++)
		out->k += q->sum.count[c] > 0;
	out->rows = q->n;
	out->sample = q->m;
	out->inertia = gk_inertia_from_d2(q->prep, ldexp(gk_i128_to_double(q->sum.inertia), 2 * q->expo - 62));
	out->simplified = out->davies_bouldin = out->calinski_harabasz = NAN;
	if (out->k > 1 && out->k < q->n)
	{
		out->simplified = gk_i128_to_double(q->sum.simplified) / (double) q->n * 0x1p-62;
		out->davies_bouldin = davies_bouldin(q, out->k);
		out->calinski_harabasz = calinski_harabasz(q, out->k);
	}
}

/* ---- setting up ---- */

/* The exponent for which neither points nor centroids are more than 1 apart. */
static int
choose_expo(const Quality *q, const double *centroid)
{
	const GkPrep *p = q->prep;
	int			top = -250;			/* all values 0 */
	int			e;

	for (int j = 0; j < q->d; j++)
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

static GkStatus
set_up(Quality *q, const GkModel *model, GkError *err)
{
	const GkHost *host = q->host;
	size_t		kd = (size_t) q->k * q->d;
	bool		good;

	q->threads = gk_threads(host);
	q->scale = gk_alloc(host, q->d, sizeof(double));
	q->column = gk_alloc(host, q->d, sizeof(void *));
	q->mean = gk_alloc(host, kd, sizeof(double));
	q->sum.sum = gk_alloc0(host, kd, sizeof(gk_int128));
	q->sum.spread = gk_alloc0(host, q->k, sizeof(gk_int128));
	q->sum.count = gk_alloc0(host, q->k, sizeof(int64_t));
	q->part = gk_alloc0(host, q->threads, sizeof(Part));
	q->place = gk_alloc(host, (size_t) q->k + 1, sizeof(int64_t));
	q->sample_label = gk_alloc(host, q->m + 1, sizeof(int32_t));
	q->stride = ((size_t) q->m + ROWS - 1) / ROWS * ROWS;
	q->sample = gk_alloc0(host, q->stride * q->d + 1, sizeof(double));
	good = q->scale && q->column && q->mean && q->sum.sum && q->sum.spread && q->sum.count &&
		q->part && q->place && q->sample_label && q->sample;
	for (int t = 0; good && t < q->threads; t++)
	{
		Part	   *p = &q->part[t];

		p->sum = gk_alloc0(host, kd, sizeof(gk_int128));
		p->spread = gk_alloc0(host, q->k, sizeof(gk_int128));
		p->count = gk_alloc0(host, q->k, sizeof(int64_t));
		p->z = gk_alloc0(host, (size_t) q->d * ROWS, sizeof(double));
		p->x = gk_alloc(host, q->d, sizeof(double));
		p->f = gk_alloc(host, q->d, sizeof(float));
		good = p->sum && p->spread && p->count && p->z && p->x && p->f;
	}
	if (!good)
		return no_memory(err);
	for (int j = 0; j < q->d; j++)
		q->scale[j] = ldexp(q->prep->scale[j], -q->expo);
	if (model != NULL)
	{
		float	   *f = gk_alloc(host, kd, sizeof(float));

		q->centroid_f = f;
		q->centroid = gk_alloc(host, kd, sizeof(double));
		q->own_label = gk_alloc(host, q->n, sizeof(int32_t));
		if (!f || !q->centroid || !q->own_label)
			return no_memory(err);
		q->label = q->own_label;
		gk_model_prepare(q->prep, model->centroids, q->k, f);
		for (int c = 0; c < q->k; c++)
			for (int j = 0; j < q->d; j++)
				q->centroid[(size_t) c * q->d + j] =
					gk_centre_scale(model->centroids[(size_t) c * q->d + j], q->prep->center[j], q->scale[j]);
	}
	return GK_OK;
}

static void
tear_down(Quality *q)
{
	const GkHost *host = q->host;

	for (int t = 0; q->part && t < q->threads; t++)
	{
		gk_free(host, q->part[t].sum);
		gk_free(host, q->part[t].spread);
		gk_free(host, q->part[t].count);
		gk_free(host, q->part[t].z);
		gk_free(host, q->part[t].x);
		gk_free(host, q->part[t].f);
	}
	gk_free(host, q->part);
	gk_free(host, q->scale);
	gk_free(host, (void *) q->column);
	gk_free(host, q->mean);
	gk_free(host, q->sum.sum);
	gk_free(host, q->sum.spread);
	gk_free(host, q->sum.count);
	gk_free(host, q->place);
	gk_free(host, q->sample_label);
	gk_free(host, q->sample);
	gk_free(host, (void *) q->centroid_f);
	gk_free(host, q->centroid);
	gk_free(host, q->own_label);
}

static GkStatus
measure(Quality *q, const GkModel *model, int64_t sample, GkMeasures *out, GkError *err)
{
	GkStatus	st;

	q->host = gk_store_host(q->store);
	q->n = gk_store_rows(q->store);
	q->d = q->prep->d;
	q->m = sample < q->n ? sample : q->n;
	q->expo = choose_expo(q, model ? model->centroids : NULL);
	if (q->expo > MAX_EXPO)
		return gk_fail(err, GK_ERR_DATA, "points are too far from the model to measure");
	st = set_up(q, model, err);
	if (st == GK_OK)
		st = walk(q, sum_block, false, err);
	if (st == GK_OK)
	{
		merge_first(q);
		place_sample(q);
		st = walk(q, distance_block, true, err);
	}
	if (st == GK_OK)
	{
		measures(q, out);
		st = gk_silhouette(q->host, q->sample, q->stride, q->m, q->d, q->sample_label,
						   &out->silhouette, err);
	}
	tear_down(q);
	return st;
}

GkStatus
gk_quality_model(GkStore *store, const GkModel *model, int64_t sample, GkMeasures *out, GkError *err)
{
	Quality		q = {.store = store,.prep = &model->prep,.k = model->k,.raw = true};
	GkStatus	st;

	if (model->prep.d != gk_store_features(store))
		return gk_fail(err, GK_ERR_DATA, "points have %d features, the model %d",
					   gk_store_features(store), model->prep.d);
	if ((st = gk_store_seal(store, err)) != GK_OK)
		return st;
	return measure(&q, model, sample, out, err);
}

GkStatus
gk_quality_labels(GkStore *store, const int32_t *label, int k, int64_t sample, GkMeasures *out, GkError *err)
{
	Quality		q = {.store = store,.prep = &gk_store_points(store)->prep,.k = k,.label = label};

	return measure(&q, NULL, sample, out, err);
}

GkStatus
gk_quality_rows(GkStore *store, const GkModel *model, int64_t sample, double *x, int32_t *label,
				int64_t *got, GkError *err)
{
	Quality		q = {.store = store,.prep = &model->prep,.k = model->k,.raw = true};
	int			chunks;
	float	   *f = NULL;
	float	   *point = NULL;
	GkStatus	st;

	if ((st = gk_store_seal(store, err)) != GK_OK)
		return st;
	q.host = gk_store_host(store);
	q.n = gk_store_rows(store);
	q.d = model->prep.d;
	q.m = sample < q.n ? sample : q.n;
	q.column = gk_alloc(q.host, q.d, sizeof(void *));
	f = gk_alloc(q.host, (size_t) q.k * q.d, sizeof(float));
	point = gk_alloc(q.host, q.d, sizeof(float));
	if (!q.column || !f || !point)
		st = no_memory(err);
	else
		gk_model_prepare(q.prep, model->centroids, q.k, f);
	chunks = gk_store_points(store)->nchunks;
	for (int i = 0; st == GK_OK && i < chunks && q.taken < q.m; i++)
	{
		void	   *copy;

		st = open_chunk(&q, i, &copy, err);
		for (; st == GK_OK && q.taken < q.m; q.taken++)
		{
			int64_t		row = sample_row(&q, q.taken);
			double	   *to = x + (size_t) q.taken * q.d;
			float		d2;

			if (row >= q.first + q.rows)
				break;
			for (int j = 0; j < q.d; j++)
				to[j] = raw_value(&q, j, (int) (row - q.first));
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
