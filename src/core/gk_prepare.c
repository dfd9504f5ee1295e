/*
 * gk_prepare.c - from raw columns to prepared points (numerics contract, 1).
 *
 * Euclidean: subtract the mean, scale by a power of two (divided by the
 * standard deviation when standardising), round to float32 on the column's
 * grid.  One scale serves all columns, because distances mix them; only columns
 * more than 2^100 below the largest get their own, as they can not matter to
 * any distance but their centroids still have to be right.
 * Cosine: divide each point by its length.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/gk_store.h"

#define BLOCK	GK_COLUMN_BLOCK	/* rows converted at a time */

typedef struct Convert
{
	GkStore    *store;
	const GkPrep *prep;
	const char *from;			/* raw chunk, NULL wide: all floats */
	const uint8_t *wide;
	char	   *to;				/* prepared chunk; NULL: moments only */
	int			rows;
	int			stride;
	GkMoments    *moments;		/* [threads][d]; NULL: none wanted */
	gk_int128  *mass;			/* [threads] */
} Convert;

/* Exponent e with v <= 2^e, v > 0. */
static int
expo_of(double v)
{
	int			e;

	return frexp(v, &e) == 0.5 ? e - 1 : e;
}

static double
scale_of(int e)
{
	return gk_pow2(e > 1000 ? 1000 : e < -1000 ? -1000 : e);
}

/*
 * 1 / length of each row as two factors applied in turn: a power of two that
 * brings the largest feature near 1, and the length after that.  Features are
 * summed up in order.
 */
static void
row_lengths(const double *x, size_t xs, int rows, int d, double *pow2, double *length)
{
	for (int i = 0; i < rows; i++)
		pow2[i] = length[i] = 0.0;
	for (int j = 0; j < d; j++)
		for (int i = 0; i < rows; i++)
			pow2[i] = fmax(pow2[i], fabs(x[j * xs + i]));
	for (int i = 0; i < rows; i++)
		pow2[i] = pow2[i] > 0.0 ? scale_of(-expo_of(pow2[i])) : 1.0;
	for (int j = 0; j < d; j++)
		for (int i = 0; i < rows; i++)
		{
			double		v = x[j * xs + i] * pow2[i];

			length[i] += v * v;
		}
	for (int i = 0; i < rows; i++)
		length[i] = sqrt(length[i]);
}

static float
direction(double x, double pow2, double length, double scale, double magic)
{
	return length > 0.0 ? gk_to_grid(x * pow2 / length * scale, magic) : 0.0f;
}

bool
gk_prepare_point(const GkPrep *prep, const double *point, float *out)
{
	if (prep->distance == GK_COSINE)
	{
		double		pow2,
					length;

		row_lengths(point, 1, 1, prep->d, &pow2, &length);
		for (int j = 0; j < prep->d; j++)
			out[j] = direction(point[j], pow2, length, prep->scale[j], gk_grid_magic(prep->expo[j]));
		return length > 0.0;
	}
	for (int j = 0; j < prep->d; j++)
		out[j] = gk_to_grid(gk_centre_scale(point[j], prep->center[j], prep->scale[j]),
							gk_grid_magic(prep->expo[j]));
	return true;
}

/* Weights: at most 1, on the grid 2^-40, never 0. */
static float
prepare_weight(double w, double scale)
{
	float		f = gk_to_grid(w * scale, gk_grid_magic(0));

	return f >= 0x1p-40f ? f : 0x1p-40f;
}

/* Weighted sums of one block of a prepared column. */
static void
add_weighted(GkMoments *m, const float *x, const float *w, int rows, int expo)
{
	double		inv = gk_pow2(GK_GRID_BITS - expo);
	double		inv_sq = gk_pow2(GK_GRID_BITS - 2 * expo);

	for (int i = 0; i < rows; i++)
	{
		m->sum += (gk_int128) gk_fixed(x[i], inv) * gk_fixed(w[i], 0x1p40);
		m->sq += gk_d2_fixed((double) x[i] * (double) x[i] * (double) w[i], inv_sq);
	}
}

static void
convert_block(void *arg, int64_t job, int thread)
{
	Convert    *c = arg;
	const GkStore *s = c->store;
	int			first = (int) job * BLOCK;
	int			rows = c->rows - first < BLOCK ? c->rows - first : BLOCK;
	const char *from = c->from;
	double		x[BLOCK];
	double		pow2[BLOCK];
	double		length[BLOCK];
	float		f[BLOCK];
	float		weight[BLOCK];
	bool		cosine = c->prep->distance == GK_COSINE;
	bool		weighted = s->pts.weighted;

	/*
	 * Columns in order, except that the weight, the last, comes first: the
	 * moments need it.  Cosine walks over the columns twice.
	 */
	if (weighted)
	{
		const char *at = from;
		double		scale = scale_of(-s->pts.weight_exp);

		for (int j = 0; j < s->pts.d; j++)
			at += (size_t) c->stride * (c->wide && c->wide[j] ? 8 : 4);
		for (int i = 0; i < rows; i++)
			weight[i] = prepare_weight(c->wide && c->wide[s->pts.d]
									   ? ((const double *) at)[first + i]
									   : (double) ((const float *) at)[first + i], scale);
	}
	if (cosine)
	{
		for (int i = 0; i < rows; i++)
			pow2[i] = length[i] = 0.0;
	}
	for (int pass = cosine ? 0 : 2; pass < 3; pass++)
	{
		const char *at = from;

		for (int j = 0; j < s->pts.d; j++)
		{
			bool		wide = c->wide && c->wide[j];
			double		magic = gk_grid_magic(c->prep->expo[j]);

			if (wide)
				memcpy(x, (const double *) at + first, rows * sizeof(double));
			else
				for (int i = 0; i < rows; i++)
					x[i] = ((const float *) at)[first + i];
			at += (size_t) c->stride * (wide ? 8 : 4);

			if (pass == 0)
			{
				for (int i = 0; i < rows; i++)
					pow2[i] = fmax(pow2[i], fabs(x[i]));
				continue;
			}
			if (pass == 1)
			{
				for (int i = 0; i < rows; i++)
				{
					double		v = x[i] * pow2[i];

					length[i] += v * v;
				}
				continue;
			}
			if (cosine)
				for (int i = 0; i < rows; i++)
					f[i] = direction(x[i], pow2[i], length[i], c->prep->scale[j], magic);
			else
				gk_columns()->prepare(x, rows, c->prep->center[j], c->prep->scale[j], magic, f);
			if (c->to != NULL)
				memcpy((float *) c->to + (size_t) j * c->stride + first, f, rows * sizeof(float));
			if (c->moments != NULL)
			{
				GkMoments  *m = &c->moments[(size_t) thread * s->pts.d + j];

				if (weighted)
					add_weighted(m, f, weight, rows, c->prep->expo[j]);
				else
					gk_columns()->moments(m, f, rows, c->prep->expo[j]);
			}
		}
		/* Between the passes of cosine: the same steps as row_lengths(). */
		if (pass == 0)
			for (int i = 0; i < rows; i++)
				pow2[i] = pow2[i] > 0.0 ? scale_of(-expo_of(pow2[i])) : 1.0;
		if (pass == 1)
			for (int i = 0; i < rows; i++)
				length[i] = sqrt(length[i]);
	}
	if (weighted)
	{
		if (c->to != NULL)
			memcpy((float *) c->to + (size_t) s->pts.d * c->stride + first, weight, rows * sizeof(float));
		if (c->mass != NULL)
			for (int i = 0; i < rows; i++)
				c->mass[thread] += gk_fixed(weight[i], 0x1p40);
	}
}

/* Padding rows are zeros, so that kernels may read whole vectors. */
static void
zero_padding(const GkStore *s, float *data, int rows, int stride)
{
	for (int j = 0; j < s->columns; j++)
		memset(data + (size_t) j * stride + rows, 0, (stride - rows) * sizeof(float));
}

/* Run c over one chunk; with `store_back` the chunk becomes its prepared self. */
static GkStatus
convert_chunk(Convert *c, GkChunk *chunk, bool store_back, GkError *err)
{
	GkStore    *s = c->store;
	const GkHost *host = s->host;
	size_t		bytes = gk_store_chunk_bytes(s, chunk->stride);
	size_t		raw = bytes;
	char	   *spilled = NULL;
	char	   *fresh = NULL;
	GkStatus	st = GK_OK;

	c->wide = NULL;
	for (int j = 0; j < s->columns; j++)
		if (chunk->wide[j])
		{
			raw += (size_t) chunk->stride * 4;
			c->wide = chunk->wide;
		}
	c->rows = chunk->rows;
	c->stride = chunk->stride;
	c->from = (const char *) chunk->data;
	if (chunk->data == NULL)
	{
		spilled = gk_alloc(host, raw, 1);
		if (spilled == NULL)
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
		c->from = spilled;
		if (!host->spill_read(host->ctx, chunk->spill_at, spilled, raw))
			st = gk_fail(err, GK_ERR_HOST, "could not read the spill file");
	}
	c->to = NULL;
	if (st == GK_OK && store_back)
	{
		/* Same layout: in place.  Else into a block of its own. */
		if (c->wide != NULL)
		{
			fresh = gk_alloc(host, bytes, 1);
			if (fresh == NULL)
				st = gk_fail(err, GK_ERR_MEMORY, "out of memory");
		}
		c->to = fresh ? fresh : (char *) c->from;
	}
	if (st == GK_OK &&
		!gk_parallel_for(host, (chunk->rows + BLOCK - 1) / BLOCK, convert_block, c))
		st = GK_STOPPED;
	if (st == GK_OK && store_back)
	{
		if (fresh != NULL)
			memcpy(fresh + (size_t) s->columns * chunk->stride * 4,
				   c->from + raw - (size_t) s->pts.naux * chunk->stride * 4,
				   (size_t) s->pts.naux * chunk->stride * 4);
		zero_padding(s, (float *) c->to, chunk->rows, chunk->stride);
		if (spilled != NULL)
		{
			if (!host->spill_write(host->ctx, chunk->spill_at, c->to, bytes))
				st = gk_fail(err, GK_ERR_HOST, "could not write the spill file");
		}
		else if (fresh != NULL)
		{
			gk_free(host, chunk->data);
			chunk->data = (float *) fresh;
			fresh = NULL;
		}
		if (spilled == NULL)
		{
			s->memory -= chunk->bytes;
			s->memory += bytes;
		}
		chunk->bytes = bytes;
		gk_free(host, chunk->wide);
		chunk->wide = NULL;
	}
	gk_free(host, fresh);
	gk_free(host, spilled);
	return st;
}

/*
 * One pass over all chunks.  moments [d] and mass are the totals, merged over
 * the threads (exact, so in any order).
 */
static GkStatus
convert_all(GkStore *s, const GkPrep *prep, bool store_back, GkMoments *moments, gk_int128 *mass, GkError *err)
{
	const GkHost *host = s->host;
	int			threads = gk_threads(host);
	int			d = s->pts.d;
	Convert		c = {.store = s,.prep = prep};
	GkStatus	st = GK_OK;

	if (moments != NULL)
	{
		c.moments = gk_alloc0(host, (size_t) threads * d, sizeof(GkMoments));
		c.mass = gk_alloc0(host, threads, sizeof(gk_int128));
		if (c.moments == NULL || c.mass == NULL)
			st = gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	for (int i = 0; st == GK_OK && i < s->pts.nchunks; i++)
	{
		st = convert_chunk(&c, &s->pts.chunks[i], store_back, err);
		if (st == GK_OK && host->poll && host->poll(host->ctx))
			st = GK_STOPPED;
	}
	if (st == GK_OK && moments != NULL)
	{
		memset(moments, 0, d * sizeof(GkMoments));
		*mass = s->pts.weighted ? 0 : (gk_int128) s->pts.n;
		for (int t = 0; t < threads; t++)
		{
			for (int j = 0; j < d; j++)
			{
				moments[j].sum += c.moments[(size_t) t * d + j].sum;
				moments[j].sq += c.moments[(size_t) t * d + j].sq;
			}
			*mass += c.mass[t];
		}
	}
	gk_free(host, c.moments);
	gk_free(host, c.mass);
	return st;
}

/* Sum of w x^2 and variance of a column, prepared units. */
static double
variance(const GkMoments *m, gk_int128 mass, bool weighted, int expo, double *sum_sq)
{
	/* Weighted sums carry 40 more bits, as does the mass. */
	double		w = gk_i128_to_double(mass) * (weighted ? 0x1p-40 : 1.0);
	double		mean = gk_i128_to_double(m->sum) * (weighted ? 0x1p-40 : 1.0) / w;
	double		sq = gk_i128_to_double(m->sq) * 0x1p-80;
	double		var = sq / w - (mean * 0x1p-40) * (mean * 0x1p-40);
	double		unit = gk_pow2(2 * expo);

	*sum_sq = sq * unit;
	return var > 0.0 ? var * unit : 0.0;
}

/*
 * The exact mean, rounded to 20 bits below the column's largest distance from
 * it.  Points lose nothing by a centre that is a millionth off, and whole numbers
 * (or halves, or hundreds) within 2^23 of each other become float32 exactly: so
 * their sums, their ties and their centroids are exact, too.
 */
#define CENTRE_BITS		20

static double
choose_centre(const GkColumnStats *stats, int64_t n)
{
	double		mean = gk_wide_mean(&stats->sum, n);
	double		quarter = fmax(stats->max * 0.25 - mean * 0.25, mean * 0.25 - stats->min * 0.25);
	int			unit;
	double		t;

	/* A constant is its mean; the quotient could be its neighbour. */
	if (stats->min == stats->max)
		return stats->min;
	unit = expo_of(quarter) + 2 - CENTRE_BITS;
	t = ldexp(mean, -unit);
	return fabs(t) < 0x1p52 ? ldexp(rint(t), unit) : mean;
}

/* Centre and scale from the statistics; sd NULL: plain Euclidean. */
static void
choose_scale(GkStore *s, const double *sd)
{
	GkPrep	   *p = &s->pts.prep;
	int			top = INT32_MIN;
	int			bottom = INT32_MAX;
	int			middle;

	/* Exponent of every column's largest distance from its mean. */
	for (int j = 0; j < p->d; j++)
	{
		double		c = p->center[j];
		double		quarter = fmax(s->stats[j].max * 0.25 - c * 0.25, c * 0.25 - s->stats[j].min * 0.25);

		if (sd != NULL && quarter > 0.0 && sd[j] > 0.0)
			quarter /= sd[j];
		p->expo[j] = quarter > 0.0 ? expo_of(quarter) + 2 : INT32_MIN;
		if (p->expo[j] == INT32_MIN)
			continue;			/* constant */
		if (p->expo[j] > top)
			top = p->expo[j];
		if (p->expo[j] < bottom)
			bottom = p->expo[j];
	}
	if (top == INT32_MIN)
		top = bottom = 0;		/* all columns constant */

	/*
	 * As many bits above 1 as below: whoever asks for points far outside these
	 * (kmeans_predict) should not meet the end of float32.
	 */
	middle = top - bottom > 2 * GK_TOP_EXPO ? GK_TOP_EXPO : (top - bottom + 1) / 2;
	p->unit_exp = middle - top;
	for (int j = 0; j < p->d; j++)
	{
		int			e = p->unit_exp;
		double		largest;

		if (p->expo[j] != INT32_MIN && p->expo[j] + e < -GK_TOP_EXPO)
			e = -GK_TOP_EXPO - p->expo[j];
		p->scale[j] = scale_of(e);
		if (sd != NULL && sd[j] > 0.0)
		{
			p->scale[j] = p->scale[j] / sd[j];
			if (!(p->scale[j] <= 0x1p1000))
				p->scale[j] = 0x1p1000;
		}
		largest = fmax(gk_centre_scale(s->stats[j].max, p->center[j], p->scale[j]),
					   -gk_centre_scale(s->stats[j].min, p->center[j], p->scale[j]));
		p->expo[j] = largest > 0.0 ? expo_of(largest) : -GK_TOP_EXPO;
		if (p->expo[j] < -GK_TOP_EXPO)
			p->expo[j] = -GK_TOP_EXPO;
	}
}

/* F: (2 * 2^expo)^2 summed over the features, rounded up to a power of two. */
static void
bound_d2(GkPoints *pts)
{
	double		sum = 0.0;

	for (int j = 0; j < pts->d; j++)
		sum += gk_pow2(2 * pts->prep.expo[j] + 2);
	frexp(sum, &pts->d2_expo);
}

/* What both ways of preparing end with. */
static GkStatus
finish_prepare(GkStore *s, GkMoments *moments, gk_int128 mass)
{
	GkPoints   *pts = &s->pts;

	pts->resident = true;
	for (int i = 0; i < pts->nchunks; i++)
		if (pts->chunks[i].data == NULL)
			pts->resident = false;
	bound_d2(pts);
	if (moments != NULL)
	{
		pts->total_mass = mass;
		for (int j = 0; j < pts->d; j++)
		{
			double		sum_sq;

			pts->mean_var += variance(&moments[j], mass, pts->weighted, pts->prep.expo[j], &sum_sq) / pts->d;
			pts->sum_sq += sum_sq;
			pts->total_sum[j] = moments[j].sum;
		}
	}
	s->prepared = true;
	return GK_OK;
}

GkStatus
gk_store_prepare(GkStore *store, GkDistance distance, bool standardize, GkError *err)
{
	GkPoints   *pts = &store->pts;
	GkPrep	   *p = &pts->prep;
	GkMoments    *moments;
	gk_int128	mass = 0;
	GkStatus	st;

	if (standardize && distance == GK_COSINE)
		return gk_fail(err, GK_ERR_OPTION, "standardize cannot be combined with the cosine distance");
	if ((st = gk_store_seal(store, err)) != GK_OK)
		return st;
	p->distance = distance;
	p->standardize = standardize;
	if (pts->n == 0)
	{
		for (int j = 0; j < p->d; j++)
			p->scale[j] = 1.0;
		return finish_prepare(store, NULL, 0);
	}
	if (pts->weighted)
		pts->weight_exp = expo_of(store->stats[p->d].max);
	moments = gk_alloc(store->host, p->d, sizeof(GkMoments));
	if (moments == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");

	if (distance == GK_COSINE)
	{
		p->unit_exp = 0;
		for (int j = 0; j < p->d; j++)
		{
			p->center[j] = 0.0;
			p->scale[j] = 1.0;
			p->expo[j] = 0;
		}
	}
	else
	{
		for (int j = 0; j < p->d; j++)
			p->center[j] = choose_centre(&store->stats[j], pts->n);
		choose_scale(store, NULL);
		if (standardize)
		{
			double	   *sd = gk_alloc(store->host, p->d, sizeof(double));

			st = sd ? convert_all(store, p, false, moments, &mass, err)
				: gk_fail(err, GK_ERR_MEMORY, "out of memory");
			if (st == GK_OK)
			{
				double		unused;

				/* Constant columns keep scale and value 0. */
				for (int j = 0; j < p->d; j++)
					sd[j] = sqrt(variance(&moments[j], mass, pts->weighted, p->expo[j], &unused)) / p->scale[j];
				choose_scale(store, sd);
			}
			gk_free(store->host, sd);
		}
	}
	if (st == GK_OK)
		st = convert_all(store, p, true, moments, &mass, err);
	if (st == GK_OK)
		st = finish_prepare(store, moments, mass);
	gk_free(store->host, moments);
	return st;
}

GkStatus
gk_store_prepare_as(GkStore *store, const GkPrep *prep, GkError *err)
{
	GkPrep	   *p = &store->pts.prep;
	GkStatus	st;

	if (prep->d != p->d)
		return gk_fail(err, GK_ERR_DATA, "points have %d features, the model %d", p->d, prep->d);
	if ((st = gk_store_seal(store, err)) != GK_OK)
		return st;
	p->distance = prep->distance;
	p->standardize = prep->standardize;
	p->unit_exp = prep->unit_exp;
	memcpy(p->center, prep->center, p->d * sizeof(double));
	memcpy(p->scale, prep->scale, p->d * sizeof(double));
	memcpy(p->expo, prep->expo, p->d * sizeof(int32_t));
	if (store->pts.weighted)
		store->pts.weight_exp = store->pts.n > 0 ? expo_of(store->stats[p->d].max) : 0;
	if ((st = convert_all(store, p, true, NULL, NULL, err)) != GK_OK)
		return st;
	return finish_prepare(store, NULL, 0);
}
