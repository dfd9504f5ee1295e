/*
 * gk_sample.c - a store of some rows of another one, chosen at random.
 *
 * Each row has a hash of its place, and the rows with the smallest hashes are taken.  No two
 * hashes are equal, so the number of rows is exact, and they are the same ones by every way to
 * read and to compute.  The rows are prepared already.  They go into the new store as if they
 * were read, by the same code, so that it has the same limits: what is over the memory limit
 * follows the other store's rows in the spill file.
 */
#include <math.h>

#include "core/gk_numerics.h"
#include "core/store/gk_store.h"

/* Bits of the hash that one pass over the rows decides. */
#define DIGIT_BITS		16
#define DIGITS			(1 << DIGIT_BITS)
/* Hashes between two looks at cancel: some milliseconds. */
#define POLL_ROWS		((int64_t) 1 << 20)
/* Of the rows that are gathered at a time. */
#define BATCH_BYTES		((size_t) 4 << 20)

int64_t
gk_sample_rows(double sample, int k, int64_t n)
{
	/* what a product of decimals is above the whole number is no row */
	double		rows = sample < 1.0 ? ceil(sample * (double) n * (1.0 - 0x1p-51)) : sample;

	if (!(sample > 0.0) || rows >= (double) n)
		return n;
	if (rows < k)
		rows = k;
	return rows < (double) n ? (int64_t) rows : n;
}

/* ---- which rows ---- */

/* Count the digits at `shift` of the hashes that begin with `prefix`. */
static GkStatus
count_digits(const GkHost *host, uint64_t key, int64_t n, int shift, uint64_t prefix, int64_t *count)
{
	memset(count, 0, DIGITS * sizeof(int64_t));
	for (int64_t from = 0; from < n; from += POLL_ROWS)
	{
		int64_t		end = n - from < POLL_ROWS ? n : from + POLL_ROWS;

		for (int64_t i = from; i < end; i++)
		{
			uint64_t	digits = gk_hash(key, i) >> shift;

			if (shift + DIGIT_BITS == 64 || digits >> DIGIT_BITS == prefix)
				count[digits % DIGITS]++;
		}
		if (host->poll != NULL && host->poll(host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}

/* Find the largest of the `rows` smallest hashes, 0 < rows <= n. */
static GkStatus
find_last(const GkHost *host, uint64_t key, int64_t n, int64_t rows, uint64_t *last, GkError *err)
{
	int64_t    *count = gk_alloc(host, DIGITS, sizeof(int64_t));
	uint64_t	prefix = 0;
	GkStatus	st = count != NULL ? GK_OK : gk_fail(err, GK_ERR_MEMORY, "out of memory");

	for (int shift = 64 - DIGIT_BITS; st == GK_OK && shift >= 0; shift -= DIGIT_BITS)
	{
		int			digit = 0;

		st = count_digits(host, key, n, shift, prefix, count);
		if (st != GK_OK)
			break;
		while (count[digit] < rows)
			rows -= count[digit++];
		prefix = prefix << DIGIT_BITS | (uint64_t) digit;
		*last = shift > 0 ? ((prefix + 1) << shift) - 1 : prefix;
		if (count[digit] == rows)
			break;				/* all that begin so */
	}
	gk_free(host, count);
	return st;
}

/* ---- their values ---- */

typedef struct Sample
{
	GkStore    *to;
	GkChunk		from;
	GkBatch		batch;
	int		   *row;			/* [batch.capacity] of the chunk */
} Sample;

static void
gather_column(void *arg, int64_t j, int thread)
{
	const Sample *s = arg;
	const float *from = s->from.data + (size_t) j * s->from.stride;
	float	   *to = gk_batch_column(&s->batch, (int) j);

	(void) thread;
	for (int i = 0; i < s->batch.rows; i++)
		to[i] = from[s->row[i]];
}

static GkStatus
gather(Sample *s, GkError *err)
{
	const GkHost *host = s->to->host;
	GkStatus	st;

	if (!gk_parallel_for(host, s->batch.columns, gather_column, s))
		return GK_STOPPED;
	st = gk_store_add(s->to, &s->batch, 1, gk_threads(host), err);
	s->batch.rows = 0;
	return st == GK_OK && host->poll != NULL && host->poll(host->ctx) ? GK_STOPPED : st;
}

static GkStatus
gather_chunk(Sample *s, uint64_t key, uint64_t last, GkError *err)
{
	GkStatus	st = GK_OK;

	for (int i = 0; st == GK_OK && i < s->from.rows; i++)
	{
		if (gk_hash(key, s->from.first + i) > last)
			continue;
		s->row[s->batch.rows++] = i;
		if (s->batch.rows == s->batch.capacity)
			st = gather(s, err);
	}
	return st == GK_OK && s->batch.rows > 0 ? gather(s, err) : st;
}

static GkStatus
gather_all(GkStore *from, uint64_t key, uint64_t last, GkStore *to, GkError *err)
{
	const GkHost *host = from->host;
	int			capacity = gk_batch_capacity(from->columns, BATCH_BYTES);
	void	   *memory = gk_alloc(host, gk_batch_bytes(from->columns, 0, capacity), 1);
	Sample		s = {.to = to,.row = gk_alloc(host, capacity, sizeof(int))};
	GkStatus	st = memory != NULL && s.row != NULL ? GK_OK : gk_fail(err, GK_ERR_MEMORY, "out of memory");

	if (st == GK_OK)
		gk_batch_init(&s.batch, memory, from->columns, 0, capacity);
	for (int c = 0; st == GK_OK && c < from->pts.nchunks; c++)
	{
		st = gk_chunk_open(from, c, GK_READ_FEATURES, &s.from, err);
		if (st == GK_OK)
			st = gather_chunk(&s, key, last, err);
	}
	gk_free(host, s.row);
	gk_free(host, memory);
	return st;
}

GkStatus
gk_store_sample(GkStore *from, int64_t rows, uint64_t key, GkStore **out, GkError *err)
{
	/* both stores have chunks at work */
	size_t		room = gk_rest(from->memory_limit, from->memory);
	uint64_t	last = 0;
	GkStatus	st;

	*out = NULL;
	room = room < from->pts.spare ? room : from->pts.spare;
	if (from->reader != NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "backend \"%s\" gives no sample of its points", from->reader->name);
	st = find_last(from->host, key, from->pts.n, rows, &last, err);
	if (st == GK_OK)
		st = gk_store_create(from->host, from->pts.d, from->pts.weighted, 0, from->largest_chunk, room, out, err);
	if (st != GK_OK)
		return st;
	gk_store_expect(*out, (double) rows);
	(*out)->spill_end = from->spill_end;
	st = gather_all(from, key, last, *out, err);
	if (st == GK_OK)
		st = gk_store_prepare_like(*out, from, err);
	if (st != GK_OK)
	{
		gk_store_free(*out);
		*out = NULL;
	}
	return st;
}
