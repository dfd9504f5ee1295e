/*
 * gk_convert.c - rows to prepared rows (numerics contract, 1), chunk by chunk and
 * on all threads, with the exact sums of what comes out.
 *
 * Euclidean: subtract the centre, scale, round to float32 on the column's grid.
 * Cosine: divide each point by its length first.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/store/gk_store.h"

#define BLOCK	GK_COLUMN_BLOCK /* rows converted at a time */
/* Rows of one column that a thread goes through: memory likes long runs. */
#define RUN		(16 * BLOCK)

typedef struct Convert
{
	GkStore    *store;
	const GkPrep *prep;
	const GkBatch *batch;		/* from a batch; or */
	const char *from;			/* raw chunk, NULL wide: all floats */
	const uint8_t *wide;
	char	   *to;				/* prepared chunk; NULL: moments only */
	int			rows;
	int			stride;			/* of from */
	int			to_stride;
	GkMoments  *moments;		/* [threads][d]; NULL: none wanted */
	gk_int128  *mass;			/* [threads] */
} Convert;

/*
 * 1 / length of each row as two factors applied in turn: a power of two that brings the
 * largest feature near 1, and the length after that.  Three steps, the first and the last
 * called for each column in order: see add_largest() and add_squares().
 */
static void
add_largest(double *largest, const double *x, int rows)
{
	for (int i = 0; i < rows; i++)
		largest[i] = fmax(largest[i], fabs(x[i]));
}

static void
powers_of_largest(double *pow2, int rows)
{
	for (int i = 0; i < rows; i++)
		pow2[i] = pow2[i] > 0.0 ? gk_scale_of(-gk_expo_of(pow2[i])) : 1.0;
}

static void
add_squares(double *square, const double *x, const double *pow2, int rows)
{
	for (int i = 0; i < rows; i++)
	{
		double		v = x[i] * pow2[i];

		square[i] += v * v;
	}
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
		double		pow2 = 0.0;
		double		length = 0.0;

		for (int j = 0; j < prep->d; j++)
			add_largest(&pow2, &point[j], 1);
		powers_of_largest(&pow2, 1);
		for (int j = 0; j < prep->d; j++)
			add_squares(&length, &point[j], &pow2, 1);
		length = sqrt(length);
		for (int j = 0; j < prep->d; j++)
			out[j] = direction(point[j], pow2, length, prep->scale[j], gk_grid_magic(prep->expo[j]));
		return length > 0.0;
	}
	gk_columns()->prepare_row(point, prep->d, prep->center, prep->scale, prep->expo, out);
	return true;
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

/*
 * Return a column's rows from `first` on, and whether they are doubles.  A chunk's column is
 * the one at *at, which moves to the next.
 */
static const void *
next_column(const Convert *c, int j, int first, const char **at, bool *wide)
{
	const char *column = *at;

	if (c->batch != NULL)
	{
		*wide = c->batch->wide[j];
		column = gk_batch_column(c->batch, j);
	}
	else
	{
		*wide = c->wide && c->wide[j];
		*at += c->stride * gk_value_bytes(*wide);
	}
	return column + first * gk_value_bytes(*wide);
}

/* The same as doubles, converted into x where they are floats. */
static const double *
next_doubles(const Convert *c, int j, int first, const char **at, int rows, double *x)
{
	bool		wide;
	const void *in = next_column(c, j, first, at, &wide);

	if (wide)
		return in;
	for (int i = 0; i < rows; i++)
		x[i] = ((const float *) in)[i];
	return x;
}

/* The weights are the last column. */
static void
convert_weights(const Convert *c, int first, int rows, float *weight)
{
	const char *at = c->from;
	const double *in = NULL;
	double		x[BLOCK];

	for (int j = 0; j <= c->prep->d; j++)
		in = next_doubles(c, j, first, &at, j == c->prep->d ? rows : 0, x);
	for (int i = 0; i < rows; i++)
		weight[i] = gk_prepare_weight(in[i], c->store->pts.weight_exp);
}

/* 1 / length of each row, see add_largest(). */
static void
row_lengths(const Convert *c, int first, int rows, double *pow2, double *length)
{
	const char *at = c->from;
	double		x[BLOCK];

	for (int i = 0; i < rows; i++)
		pow2[i] = length[i] = 0.0;
	for (int j = 0; j < c->prep->d; j++)
		add_largest(pow2, next_doubles(c, j, first, &at, rows, x), rows);
	powers_of_largest(pow2, rows);
	at = c->from;
	for (int j = 0; j < c->prep->d; j++)
		add_squares(length, next_doubles(c, j, first, &at, rows, x), pow2, rows);
	for (int i = 0; i < rows; i++)
		length[i] = sqrt(length[i]);
}

/* Euclidean preparation of a column's rows. */
static void
convert_column(const GkPrep *prep, int j, const void *in, bool wide, int rows, float *out)
{
	double		magic = gk_grid_magic(prep->expo[j]);

	if (wide)
		gk_columns()->prepare(in, rows, prep->center[j], prep->scale[j], magic, out);
	else
		gk_columns()->prepare_floats(in, rows, prep->center[j], prep->scale[j], magic, out);
}

/*
 * The same under GK_PARTIAL: what is missing stays so, whatever a kernel would make of it, and the values
 * are added to the moments, if they are wanted.  weight may be NULL.
 */
static void
convert_present(const GkPrep *prep, int j, const void *in, bool wide, int rows, const float *weight, float *out,
				GkMoments *m)
{
	double		x[BLOCK];
	float		present[BLOCK];
	float		w[BLOCK];
	bool		missing[BLOCK];
	int			n = 0;

	for (int i = 0; i < rows; i++)
	{
		x[i] = wide ? ((const double *) in)[i] : ((const float *) in)[i];
		missing[i] = gk_is_missing(x[i]);
		if (missing[i])
			x[i] = prep->center[j];
	}
	convert_column(prep, j, x, true, rows, out);
	for (int i = 0; i < rows; i++)
	{
		if (missing[i])
			out[i] = NAN;
		else
		{
			if (weight != NULL)
				w[n] = weight[i];
			present[n++] = out[i];
		}
	}
	if (m == NULL)
		return;
	if (weight == NULL)
	{
		gk_columns()->moments(m, present, n, prep->expo[j]);
		m->mass += n;
		return;
	}
	add_weighted(m, present, w, n, prep->expo[j]);
	for (int i = 0; i < n; i++)
		m->mass += gk_fixed(w[i], 0x1p40);
}

/* A job is a block of rows: the moments need the weights, the directions the lengths. */
static void
convert_block(void *arg, int64_t job, int thread)
{
	Convert    *c = arg;
	const GkPrep *prep = c->prep;
	int			first = (int) job * BLOCK;
	int			rows = c->rows - first < BLOCK ? c->rows - first : BLOCK;
	double		x[BLOCK];
	double		pow2[BLOCK];
	double		length[BLOCK];
	float		f[BLOCK];		/* where nothing is kept */
	float		weight[BLOCK];
	bool		cosine = prep->distance == GK_COSINE;
	bool		weighted = c->store->pts.weighted;
	const char *at = c->from;

	if (weighted)
		convert_weights(c, first, rows, weight);
	if (cosine)
		row_lengths(c, first, rows, pow2, length);
	for (int j = 0; j < prep->d; j++)
	{
		float	   *out = c->to ? (float *) c->to + (size_t) j * c->to_stride + first : f;
		GkMoments  *m = c->moments ? &c->moments[(size_t) thread * prep->d + j] : NULL;

		if (cosine)
		{
			const double *in = next_doubles(c, j, first, &at, rows, x);
			double		magic = gk_grid_magic(prep->expo[j]);

			for (int i = 0; i < rows; i++)
				out[i] = direction(in[i], pow2[i], length[i], prep->scale[j], magic);
		}
		else
		{
			bool		wide;
			const void *in = next_column(c, j, first, &at, &wide);

			if (prep->distance == GK_PARTIAL)
			{
				convert_present(prep, j, in, wide, rows, weighted ? weight : NULL, out, m);
				continue;
			}
			convert_column(prep, j, in, wide, rows, out);
		}
		if (m != NULL && weighted)
			add_weighted(m, out, weight, rows, prep->expo[j]);
		else if (m != NULL)
			gk_columns()->moments(m, out, rows, prep->expo[j]);
	}
	if (weighted && c->to != NULL)
		memcpy((float *) c->to + (size_t) prep->d * c->to_stride + first, weight, rows * sizeof(float));
	if (weighted && c->mass != NULL)
		for (int i = 0; i < rows; i++)
			c->mass[thread] += gk_fixed(weight[i], 0x1p40);
}

/*
 * Where neither lengths nor weights join the columns, and no values are missing, a job is a run of one.  Runs of
 * the same column follow each other.
 */
static void
convert_run(void *arg, int64_t job, int thread)
{
	Convert    *c = arg;
	const GkPrep *prep = c->prep;
	int			runs = (c->rows + RUN - 1) / RUN;
	int			j = (int) (job / runs);
	int			first = (int) (job % runs) * RUN;
	int			end = c->rows - first < RUN ? c->rows : first + RUN;
	const char *at = c->from;
	const char *in = NULL;
	GkMoments  *moments = c->moments ? &c->moments[(size_t) thread * prep->d + j] : NULL;
	bool		wide = false;
	bool		in_float;		/* these are the fit's own rows, so the moments are wanted */
	float		f[BLOCK];

	for (int i = 0; i <= j; i++)
		in = next_column(c, i, first, &at, &wide);
	in_float = !wide && moments != NULL && gk_float_column(prep->center[j], prep->scale[j]);
	for (int rows; first < end; first += rows)
	{
		float	   *out = c->to ? (float *) c->to + (size_t) j * c->to_stride + first : f;

		rows = end - first < BLOCK ? end - first : BLOCK;
		if (in_float)
			gk_columns()->prepare_fit((const float *) in, rows, (float) prep->center[j], (float) prep->scale[j],
									  prep->expo[j], out, moments);
		else
			convert_column(prep, j, in, wide, rows, out);
		if (moments != NULL && !in_float)
			gk_columns()->moments(moments, out, rows, prep->expo[j]);
		in += rows * gk_value_bytes(wide);
	}
}

/* All rows of c; false: stopped. */
static bool
convert_rows(Convert *c)
{
	const GkStore *s = c->store;

	if (c->prep->distance == GK_COSINE || c->prep->distance == GK_PARTIAL || s->pts.weighted)
		return gk_parallel_for(s->host, (c->rows + BLOCK - 1) / BLOCK, convert_block, c);
	return gk_parallel_for(s->host, (int64_t) ((c->rows + RUN - 1) / RUN) * s->pts.d, convert_run, c);
}

/* Padding rows are zeros, so that kernels may read whole vectors. */
static void
zero_padding(const GkStore *s, float *data, int rows, int stride)
{
	for (int j = 0; j < s->columns; j++)
		memset(data + (size_t) j * stride + rows, 0, (stride - rows) * sizeof(float));
}

/* Run c over one chunk; with `keep` the chunk becomes its prepared self. */
static GkStatus
convert_chunk(Convert *c, GkChunk *chunk, bool keep, GkError *err)
{
	GkStore    *s = c->store;
	const GkHost *host = s->host;
	size_t		bytes = gk_store_chunk_bytes(s, chunk->stride);
	size_t		raw = gk_store_raw_bytes(s, chunk->wide, chunk->stride);
	size_t		aux = (size_t) s->pts.naux * chunk->stride * sizeof(uint32_t);
	char	   *spilled = NULL;
	char	   *fresh = NULL;
	GkStatus	st = GK_OK;

	c->wide = raw > bytes ? chunk->wide : NULL;
	c->rows = chunk->rows;
	c->stride = c->to_stride = chunk->stride;
	c->from = (const char *) chunk->data;
	if (chunk->data == NULL)
	{
		spilled = gk_alloc(host, raw, 1);
		if (spilled == NULL)
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
		c->from = spilled;
		st = gk_spill_read(host, chunk->spill_at, spilled, raw, err);
	}
	c->to = NULL;
	if (st == GK_OK && keep)
	{
		/* Same layout: in place.  Else into a block of its own. */
		if (c->wide != NULL)
		{
			fresh = gk_alloc_kept(host, bytes);
			if (fresh == NULL)
				st = gk_fail(err, GK_ERR_MEMORY, "out of memory");
		}
		c->to = fresh ? fresh : (char *) c->from;
	}
	if (st == GK_OK && !convert_rows(c))
		st = GK_STOPPED;
	if (st == GK_OK && keep)
	{
		if (fresh != NULL)
			memcpy(fresh + bytes - aux, c->from + raw - aux, aux);
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

void
gk_store_convert_batch(GkStore *s, const GkPrep *prep, const GkBatch *batch, float *to, int to_stride,
					   GkMoments *moments, gk_int128 *mass)
{
	Convert		c = {.store = s,.prep = prep,.batch = batch,.to = (char *) to,.rows = batch->rows,
	.to_stride = to_stride,.moments = moments,.mass = mass};

	for (int job = 0; job * BLOCK < batch->rows; job++)
		convert_block(&c, job, 0);
}

GkStatus
gk_store_convert(GkStore *s, const GkPrep *prep, bool keep, GkMoments *moments,
				 gk_int128 *mass, GkError *err)
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
		st = convert_chunk(&c, &s->pts.chunks[i], keep, err);
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
				moments[j].mass += c.moments[(size_t) t * d + j].mass;
			}
			*mass += c.mass[t];
		}
	}
	gk_free(host, c.moments);
	gk_free(host, c.mass);
	return st;
}
