/*
 * gk_quality_pass.c - the two passes over the points that measures of quality need, and the
 * rows that they sample for the classical silhouette and for pictures.
 *
 * The first gives the clusters' means, the second distances to them.  A block of
 * rows becomes float64 in prepared units divided by 2^expo, chosen so that no
 * distance exceeds 1.  From a raw store that loses nothing but the rounding of
 * one subtraction; from a prepared one the points are the float32 ones that were
 * clustered.
 *
 * All sums are of integers, so blocks may begin at any row: in chunks of any size, in shards.
 */
#include <string.h>

#include "core/gk_tiles.h"
#include "core/quality/gk_quality_internal.h"

#define ROWS	GK_QUALITY_ROWS
#define LANES	GK_QUALITY_LANES
/* In a unit that suits the points no squared distance is beyond 1, but for its rounding. */
#define BEYOND	(1.0 + 0x1p-40)

/* ---- rows ---- */

/* Value of a column of the chunk at hand, of a raw store. */
static inline double
raw_value(const GkQuality *q, int j, int row)
{
	return q->wide && q->wide[j] ? ((const double *) q->column[j])[row]
		: (double) ((const float *) q->column[j])[row];
}

/* Read rows of the chunk at hand as z; out[j * stride + i]. */
static void
read_rows(const GkQuality *q, int first, int rows, double *out, size_t stride)
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
				z[i] = gk_centre_scale(raw_value(q, j, first + i), q->prep->center[j], q->prep->scale[j]) * down;
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
			out[(size_t) j * stride + i] *= q->prep->scale[j] * down / length;
	}
}

/* ---- first pass: labels, means ---- */

/* False: stopped. */
static bool
label_block(GkQuality *q, GkQualitySums *t, int first, int rows)
{
	for (int i = 0; i < rows; i++)
	{
		const double *c;
		double		d2 = 0.0;
		float		near;
		int			l;

		if ((size_t) q->k * q->d > GK_QUALITY_LOOK && gk_host_stops(q->host))
			return false;
		for (int j = 0; j < q->d; j++)
			t->x[j] = raw_value(q, j, first + i);
		(void) gk_prepare_point(q->prep, t->x, t->f);
		l = gk_nearest(t->f, q->d, q->centroid_f, q->k, &near);
		t->far |= gk_is_far(near);
		q->own_label[q->first + first + i] = l;
		c = q->centroid + (size_t) l * q->d;
		for (int j = 0; j < q->d; j++)
		{
			double		v = t->z[(size_t) j * ROWS + i] - c[j];

			d2 += v * v;
		}
		t->far |= !(d2 <= BEYOND);
		if (!t->far)
			t->inertia += gk_quality_square(d2);
	}
	return true;
}

/* Values as they are given: integers one by one.  False: stopped. */
static bool
sum_raw(GkQuality *q, GkQualitySums *t, int first, int rows)
{
	const int32_t *label = q->label + q->first + first;

	read_rows(q, first, rows, t->z, ROWS);
	if (!label_block(q, t, first, rows))
		return false;
	for (int j = 0; j < q->d; j++)
		for (int i = 0; i < rows; i++)
			t->sum[(size_t) label[i] * q->d + j] += gk_quality_fixed(t->z[(size_t) j * ROWS + i]);
	return true;
}

/* Sum prepared values by the engine's kernel: exact as doubles, up to GK_PACKAGE rows. */
static void
sum_prepared(GkQuality *q, GkQualitySums *t, int first, int rows)
{
	const int32_t *label = q->label + q->first + first;
	size_t		copy = q->k * q->width;
	GkTiles		x = {(const float *) q->column[0] + first, ROWS, q->stride, rows / ROWS, q->d};

	memset(t->add, 0, q->copies * copy * sizeof(double));
	gk_tiles_add(&x, label, t->add, q->width, q->copies > 1 ? copy : 0);
	if (rows % ROWS != 0)
	{
		int32_t		rest[ROWS] = {0};	/* rows past the end are zeros */

		memcpy(rest, label + rows - rows % ROWS, rows % ROWS * sizeof(int32_t));
		x.x += rows - rows % ROWS;
		x.count = 1;
		gk_tiles_add(&x, rest, t->add, q->width, q->copies > 1 ? copy : 0);
	}
	for (int c = 0; c < q->k; c++)
		for (int j = 0; j < q->d; j++)
		{
			double		v = 0.0;

			for (int i = 0; i < q->copies; i++)
				v += t->add[i * copy + c * q->width + j];
			t->sum[(size_t) c * q->d + j] += (int64_t) (v * gk_pow2(GK_GRID_BITS - q->prep->expo[j]));
		}
}

static void
sum_job(void *arg, int64_t job, int thread)
{
	GkQuality  *q = arg;
	GkQualitySums *t = &q->per_thread[thread];
	int			first = (int) job * q->per_job;
	int			end = q->rows - first < q->per_job ? q->rows : first + q->per_job;
	const int32_t *label = q->label + q->first;

	if (!q->raw)
		sum_prepared(q, t, first, end - first);
	else
		for (int row = first; row < end; row += ROWS)
			if (!sum_raw(q, t, row, end - row < ROWS ? end - row : ROWS))
				return;
	for (int i = first; i < end; i++)
		t->count[label[i]]++;
}

/* ---- second pass: distances to the means ---- */

/* gk_quality_own_other() of all means, some at a time.  False: stopped. */
static bool
own_other(const GkQuality *q, const double *z, double *l, double *own, double *other)
{
	int			slice = GK_QUALITY_LOOK / q->d;

	for (int c = 0; c < q->k; c += slice)
	{
		double		near[ROWS];
		double		o[ROWS];

		if (gk_host_stops(q->host))
			return false;
		gk_quality_own_other(z, q->d, q->mean + (size_t) c * q->d, q->k - c < slice ? q->k - c : slice, l, o, near);
		for (int i = 0; i < ROWS; i++)
		{
			own[i] = c == 0 || (l[i] >= 0.0 && l[i] < slice) ? o[i] : own[i];
			other[i] = c == 0 || near[i] < other[i] ? near[i] : other[i];
			l[i] -= slice;
		}
	}
	return true;
}

static void
measure_block(GkQuality *q, GkQualitySums *t, int first, int rows)
{
	const int32_t *label = q->label + q->first + first;
	double		l[ROWS];
	double		own[ROWS];
	double		other[ROWS];
	double		score[2];
	bool		good = true;
	gk_int128	within = 0;

	for (int i = 0; i < ROWS; i++)
		l[i] = i < rows ? label[i] : -1.0;
	read_rows(q, first, rows, t->z, ROWS);
	if (!own_other(q, t->z, l, own, other))
		return;
	/* these score nothing */
	for (int i = rows; i < ROWS; i++)
		other[i] = own[i];
	for (int i = 0; q->lone && i < rows; i++)
		if (q->sum.count[label[i]] == 1)
			other[i] = own[i];
	for (int i = 0; i < rows; i++)
		good &= own[i] <= BEYOND;
	for (int i = 0; good && i < rows; i++)
		within += gk_quality_square(own[i]);
	gk_quality_scores(own, other, score);
	if (!(fabs(score[0]) <= ROWS && good))
	{
		t->far = true;
		return;
	}
	for (int i = 0; i < 2; i++)
		t->simplified += (gk_int128) (score[i] * 0x1p62);
	t->within += within;
	for (int i = 0; i < rows; i++)
		t->spread[label[i]] += gk_quality_fixed(own[i]);
}

static void
measure_job(void *arg, int64_t job, int thread)
{
	GkQuality  *q = arg;
	int			first = (int) job * q->per_job;
	int			end = q->rows - first < q->per_job ? q->rows : first + q->per_job;

	for (int row = first; row < end; row += ROWS)
		measure_block(q, &q->per_thread[thread], row, end - row < ROWS ? end - row : ROWS);
}

/* ---- the sample ---- */

/* The n rows are cut into m strata of equal size and one row is drawn from each. */
int64_t
gk_quality_sample_row(int64_t n, int64_t m, int64_t s)
{
	int64_t		lo = (int64_t) ((gk_int128) s * n / m);
	int64_t		hi = (int64_t) ((gk_int128) (s + 1) * n / m);

	return lo + (int64_t) (gk_hash(gk_key(0, 0, n), s) % (uint64_t) (hi - lo));
}

int64_t
gk_quality_stratum(int64_t n, int64_t m, int64_t row)
{
	int64_t		lo = 0;
	int64_t		hi = m;

	while (lo < hi)
	{
		int64_t		mid = lo + (hi - lo) / 2;

		if (gk_quality_sample_row(n, m, mid) < row)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int32_t
sample_label(const GkQuality *q, int64_t s)
{
	return q->sample_label != NULL ? q->sample_label[s] : q->label[gk_quality_sample_row(q->n, q->m, s)];
}

GkStatus
gk_quality_place_sample(GkQuality *q, GkError *err)
{
	q->place = gk_alloc(q->host, q->k, sizeof(int64_t));
	q->sample_size = gk_alloc0(q->host, q->k, sizeof(int64_t));
	if (!q->place || !q->sample_size)
		return gk_quality_no_memory(err);
	for (int64_t s = 0; s < q->m; s++)
		q->sample_size[sample_label(q, s)]++;
	for (int c = 0; c < q->k; c++)
	{
		q->place[c] = (int64_t) q->lanes;
		q->lanes += (q->sample_size[c] + LANES - 1) / LANES * LANES;
	}
	q->sample = gk_alloc0(q->host, q->lanes * q->d + 1, sizeof(double));
	return q->sample == NULL ? gk_quality_no_memory(err) : GK_OK;
}

/* Pick up the chunk's rows. */
static void
take_sample(GkQuality *q)
{
	for (; q->sampled < q->m; q->sampled++)
	{
		int64_t		row = gk_quality_sample_row(q->n, q->m, q->sampled);

		if (row >= q->first + q->rows)
			return;
		read_rows(q, (int) (row - q->first), 1, q->sample + q->place[q->label[row]]++, q->lanes);
	}
}

void
gk_quality_take(GkQuality *q, const double *x)
{
	GkQualitySums *t = &q->per_thread[0];
	uint8_t		wide[GK_MAX_D];

	memset(wide, 1, q->d);
	for (int j = 0; j < q->d; j++)
	{
		t->x[j] = x[j];
		t->f[j] = q->raw ? 0.0f : (float) x[j];
		q->column[j] = q->raw ? (const void *) &t->x[j] : (const void *) &t->f[j];
	}
	q->wide = wide;
	read_rows(q, 0, 1, q->sample + q->place[q->sample_label[q->sampled]]++, q->lanes);
	q->wide = NULL;
	q->sampled++;
}

int32_t
gk_quality_label(const GkQuality *q, int i, double *x, float *f)
{
	float		d2;

	for (int j = 0; j < q->d; j++)
		x[j] = q->raw ? raw_value(q, j, i) : (double) ((const float *) q->column[j])[i];
	if (q->raw)
		(void) gk_prepare_point(q->prep, x, f);
	else
		for (int j = 0; j < q->d; j++)
			f[j] = ((const float *) q->column[j])[i];
	return gk_nearest(f, q->d, q->centroid_f, q->k, &d2);
}

/* ---- passes ---- */

static bool
run(GkQuality *q, GkJob job)
{
	return gk_parallel_for(q->host, (q->rows + q->per_job - 1) / q->per_job, job, q) && !gk_host_stops(q->host);
}

bool
gk_quality_sum_rows(GkQuality *q)
{
	return run(q, sum_job);
}

bool
gk_quality_measure_rows(GkQuality *q)
{
	return run(q, measure_job);
}

/* Point at a chunk's columns, reading it back when it was spilled; the caller frees *copy. */
static GkStatus
open_chunk(GkQuality *q, int index, void **copy, GkError *err)
{
	GkChunk    *c = &gk_store_points(q->store)->chunks[index];
	const GkHost *host = q->host;
	const char *at;
	size_t		bytes = gk_store_chunk_bytes(q->store, c->stride);
	GkStatus	st;

	*copy = NULL;
	q->wide = q->raw ? c->wide : NULL;
	q->first = c->first;
	q->rows = c->rows;
	q->stride = c->stride;
	if (c->data != NULL)
		at = (const char *) c->data;
	else if (q->raw)
	{
		bytes = gk_store_raw_bytes(q->store, c->wide, c->stride);
		at = *copy = gk_alloc(host, bytes, 1);
		if (at == NULL)
			return gk_quality_no_memory(err);
		if ((st = gk_spill_read(host, c->spill_at, *copy, bytes, err)) != GK_OK)
			return st;
	}
	else
	{
		GkChunk		view;

		st = gk_chunk_open(q->store, index, GK_READ_FEATURES, &view, err);
		if (st != GK_OK)
			return st;
		at = (const char *) view.data;
	}
	for (int j = 0; j < q->d; j++)
	{
		q->column[j] = at;
		at += c->stride * gk_value_bytes(q->wide && q->wide[j]);
	}
	return GK_OK;
}

/* Call job for the rows of each chunk. */
static GkStatus
walk(GkQuality *q, GkJob job, bool sample, GkError *err)
{
	int			chunks = gk_store_points(q->store)->nchunks;
	GkStatus	st = GK_OK;

	for (int i = 0; st == GK_OK && i < chunks; i++)
	{
		void	   *copy;

		st = open_chunk(q, i, &copy, err);
		if (st == GK_OK && !run(q, job))
			st = GK_STOPPED;
		if (st == GK_OK && sample)
			take_sample(q);
		gk_free(q->host, copy);
		if (st == GK_OK && q->host->poll && q->host->poll(q->host->ctx))
			st = GK_STOPPED;
	}
	return st;
}

GkStatus
gk_quality_sum(GkQuality *q, GkError *err)
{
	return walk(q, sum_job, false, err);
}

GkStatus
gk_quality_measure(GkQuality *q, GkError *err)
{
	return walk(q, measure_job, true, err);
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
	q.centroid_f = f;
	chunks = gk_store_points(store)->nchunks;
	for (int i = 0; st == GK_OK && i < chunks && q.sampled < q.m; i++)
	{
		void	   *copy;

		st = open_chunk(&q, i, &copy, err);
		for (; st == GK_OK && q.sampled < q.m && !gk_host_stops(q.host); q.sampled++)
		{
			int64_t		row = gk_quality_sample_row(q.n, q.m, q.sampled);

			if (row >= q.first + q.rows)
				break;
			label[q.sampled] = gk_quality_label(&q, (int) (row - q.first), x + (size_t) q.sampled * q.d, point);
		}
		gk_free(q.host, copy);
		if (st == GK_OK && q.host->poll && q.host->poll(q.host->ctx))
			st = GK_STOPPED;
	}
	*got = q.sampled;
	gk_free(q.host, (void *) q.column);
	gk_free(q.host, f);
	gk_free(q.host, point);
	return st;
}
