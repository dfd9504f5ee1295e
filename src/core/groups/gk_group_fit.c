/*
 * gk_group_fit.c - sort a group's points, load them, fit (gk_group_fit.h).
 */
#include <string.h>

#include "core/store/gk_batch.h"
#include "core/groups/gk_group_fit.h"
#include "core/store/gk_points.h"

#define CHUNK_BYTES		((size_t) 16 << 20)
/* Bits of a digit of the radix sort, below LARGE entries and from there on. */
#define SMALL_BITS		7
#define LARGE_BITS		11
#define LARGE			1024
/* Keys are cut to this number of digits; entries that are equal then are sorted by comparisons. */
#define DIGITS(n)		((n) < 65536 ? MIN_DIGITS : MAX_DIGITS)
#define MIN_DIGITS		3
#define MAX_DIGITS		4

typedef struct Group
{
	GkGroupRow	row;
	const void *arg;
	int			width;			/* features, and the weight */
	const float *floats;		/* the points, one after the other; NULL: row() has them */
} Group;

static uint64_t
bits_of(double v)
{
	uint64_t	bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

static uint64_t
ordered_bits(double v)
{
	uint64_t	bits = bits_of(v + 0.0);	/* -0 is 0 */

	return bits ^ (-(bits >> 63) | UINT64_C(1) << 63);
}

static double
first_feature(const Group *g, int64_t i)
{
	return g->floats != NULL ? g->floats[i * g->width] : g->row(g->arg, i)[0];
}

/* Features in order; equal points may change places. */
static int
compare_points(const Group *g, uint32_t a, uint32_t b)
{
	const double *x;
	const double *y;

	if (g->floats != NULL)
	{
		const float *f = g->floats + (size_t) a * g->width;
		const float *h = g->floats + (size_t) b * g->width;

		for (int j = 0; j < g->width; j++)
			if (f[j] != h[j])
				return f[j] < h[j] ? -1 : 1;
		return 0;
	}
	x = g->row(g->arg, a);
	y = g->row(g->arg, b);
	for (int j = 0; j < g->width; j++)
		if (x[j] != y[j])
			return x[j] < y[j] ? -1 : 1;
	return 0;
}

/* Sort points by number: insertion up to 16, merging above.  tmp: room for n / 2. */
static void
sort_points(const Group *g, uint32_t *p, uint32_t *tmp, size_t n)
{
	size_t		half = n / 2;
	size_t		i = 0;
	size_t		j = half;

	if (n <= 16)
	{
		for (i = 1; i < n; i++)
		{
			uint32_t	v = p[i];
			size_t		at = i;

			for (; at > 0 && compare_points(g, v, p[at - 1]) < 0; at--)
				p[at] = p[at - 1];
			p[at] = v;
		}
		return;
	}
	sort_points(g, p, tmp, half);
	sort_points(g, p + half, tmp, n - half);
	memcpy(tmp, p, half * sizeof(uint32_t));
	for (size_t at = 0; i < half; at++)
		p[at] = j < n && compare_points(g, p[j], tmp[i]) < 0 ? p[j++] : tmp[i++];
}

/*
 * Sort by the least significant digit first, from bit `from` up to bit `to`; e and tmp take
 * turns.  All digits are counted at once; `digits` and `bits` are constants at every call.
 */
static inline __attribute__((always_inline)) uint64_t *
sort_digits(uint64_t *e, uint64_t *tmp, size_t n, int from, int to, const int digits, const int bits)
{
	const uint32_t size = UINT32_C(1) << bits;
	uint32_t	at[MAX_DIGITS << LARGE_BITS];
	uint32_t	sum[MAX_DIGITS] = {0};

	memset(at, 0, digits * size * sizeof(uint32_t));
	for (size_t i = 0; i < n; i++)
	{
		uint64_t	key = e[i] >> from;

#pragma GCC unroll 4
		for (int t = 0; t < digits; t++)
			at[t * size + (key >> t * bits & (size - 1))]++;
	}
	for (uint32_t b = 0; b < size; b++)
#pragma GCC unroll 4
		for (int t = 0; t < digits; t++)
		{
			uint32_t	count = at[t * size + b];

			at[t * size + b] = sum[t];
			sum[t] += count;
		}
	for (uint32_t *next = at; from < to; from += bits, next += size)
	{
		uint64_t   *sorted = tmp;

		for (size_t i = 0; i < n; i++)
			sorted[next[e[i] >> from & (size - 1)]++] = e[i];
		tmp = e;
		e = sorted;
	}
	return e;
}

static uint64_t *
radix_sort(uint64_t *e, uint64_t *tmp, size_t n, int from, int to)
{
	return n < LARGE ? sort_digits(e, tmp, n, from, to, MIN_DIGITS, SMALL_BITS)
		: sort_digits(e, tmp, n, from, to, MAX_DIGITS, LARGE_BITS);
}

/*
 * Make an entry of each point: its number in the lowest `number` bits, and above it as many
 * of the key's upper bits as the digits hold, and no more than differ; the key is the first
 * feature.  Return the number of bits in use.
 */
static int
make_entries(const Group *g, uint64_t *e, size_t n, int number)
{
	uint64_t	least = UINT64_MAX;
	uint64_t	most = 0;
	uint64_t	any = 0;
	int			room = DIGITS(n) * (n < LARGE ? SMALL_BITS : LARGE_BITS);
	int			low = 0;
	int			top = 0;

	for (size_t i = 0; i < n; i++)
	{
		uint64_t	key = ordered_bits(first_feature(g, (int64_t) i));

		e[i] = key;
		least = key < least ? key : least;
		most = key > most ? key : most;
		any |= key ^ e[0];
	}
	if (room > 64 - number)
		room = 64 - number;
	if (any != 0)
	{
		/* below the lowest bit that differs nothing does, so nothing is borrowed from there */
		low = __builtin_ctzll(any);
		top = 64 - __builtin_clzll(most - least);
		if (top - low > room)
			low = top - room;
	}
	for (size_t i = 0; i < n; i++)
		e[i] = (e[i] - least) >> low << number | i;
	return number + top - low;
}

/* The places of the points in sorted order; NULL: out of memory. */
static uint32_t *
sorted(const GkHost *host, const Group *g, size_t n)
{
	uint64_t   *block = gk_alloc(host, 2 * n, sizeof(uint64_t));
	uint32_t   *order = gk_alloc(host, n, sizeof(uint32_t));
	int			number = n > 1 ? 64 - __builtin_clzll(n - 1) : 0;

	if (block != NULL && order != NULL)
	{
		uint64_t   *e = radix_sort(block, block + n, n, number, make_entries(g, block, n, number));
		uint32_t   *tmp = (uint32_t *) (e == block ? block + n : block);
		bool		ties = false;

		for (size_t i = 0; i < n; i++)
		{
			order[i] = (uint32_t) (e[i] & ((UINT64_C(1) << number) - 1));
			ties |= i > 0 && (e[i] ^ e[i - 1]) >> number == 0;
		}
		for (size_t i = 0, end; ties && i < n; i = end)
		{
			for (end = i + 1; end < n && (e[end] ^ e[i]) >> number == 0;)
				end++;
			if (end - i > 1)
				sort_points(g, order + i, tmp, end - i);
		}
	}
	else
	{
		gk_free(host, order);
		order = NULL;
	}
	gk_free(host, block);
	return order;
}

/* Copy points that are floats into the batch. */
static void
fill_floats(GkBatch *b, const Group *g, const uint32_t *order, int rows)
{
	size_t		stride = b->stride / sizeof(float);

	for (int i = 0; i < rows; i++)
	{
		const float *x = g->floats + (size_t) order[i] * g->width;
		float	   *to = (float *) gk_batch_column(b, 0) + i;

		for (int j = 0; j < g->width; j++, to += stride)
			*to = x[j] + 0.0f;
	}
}

/* The same for doubles; a column's values are mostly floats. */
static void
fill_doubles(GkBatch *b, const Group *g, const uint32_t *order, int rows)
{
	const double *x[GK_BATCH_ROWS];

	for (int i = 0; i < rows; i++)
	{
		x[i] = g->row(g->arg, order[i]);
		/* points of large groups are far apart in memory */
		__builtin_prefetch(x[i]);
	}
	for (int j = 0; j < g->width; j++)
	{
		float	   *to = gk_batch_column(b, j);
		bool		wide = b->wide[j];
		uint64_t	inexact = wide;

		for (int i = 0; !wide && i < rows; i++)
		{
			double		v = x[i][j] + 0.0;

			to[i] = (float) v;
			inexact |= bits_of(to[i]) ^ bits_of(v);
		}
		for (int i = 0; inexact != 0 && i < rows; i++)
			gk_batch_set(b, j, i, x[i][j] + 0.0);
	}
}

static GkStatus
load(GkStore *store, const Group *g, const uint32_t *order, int64_t n, bool labelled, GkError *err)
{
	GkBatch    *b = gk_store_batch(store);
	GkStatus	st = GK_OK;

	while (st == GK_OK && n > 0)
	{
		int			rows = n < b->capacity ? (int) n : b->capacity;

		if (g->floats != NULL)
			fill_floats(b, g, order, rows);
		else
			fill_doubles(b, g, order, rows);
		b->rows = rows;
		if (labelled)
			memcpy(gk_batch_aux(b, 0), order, rows * sizeof(uint32_t));
		order += rows;
		n -= rows;
		st = gk_store_commit(store, err);
	}
	return st;
}

static bool
put_labels(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	int32_t    *to = ctx;

	(void) d2;
	for (int i = 0; i < rows; i++)
		to[aux[0][i]] = label[i];
	return true;
}

/* Nothing to do: the labels of the next pass overwrite these. */
static void
forget_labels(void *ctx)
{
	(void) ctx;
}

/* Bytes that the points need, up to a full chunk. */
static size_t
chunk_bytes(const Group *g, int64_t n, bool labelled)
{
	int64_t		padded = (n + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
	double		bytes = (double) padded * (g->width + labelled) * sizeof(float);

	return bytes < CHUNK_BYTES ? (size_t) bytes : CHUNK_BYTES;
}

/* No more clusters than points: no memory for what cannot be found. */
int
gk_group_clusters(const GkOptions *options, int64_t n)
{
	return options->centroids == NULL && options->k > n ? (int) n : options->k;
}

GkStatus
gk_group_prepare(const GkHost *host, const GkOptions *options, const GkGroupPoints *points,
				 bool labelled, GkStore **store, GkError *err)
{
	int64_t		n = points->n;
	Group		g = {points->row, points->arg, points->d + (points->weighted ? 1 : 0), points->row == NULL ? points->arg : NULL};
	uint32_t   *order;
	GkStatus	st;

	*store = NULL;
	if (n > GK_MAX_GROUP)
		return gk_fail(err, GK_ERR_LIMIT, "a group of %lld points is over the limit of %lld",
					   (long long) n, (long long) GK_MAX_GROUP);
	st = gk_store_create(host, points->d, points->weighted, labelled ? 1 : 0, chunk_bytes(&g, n, labelled), SIZE_MAX,
						 store, err);
	if (st != GK_OK)
		return st;
	order = sorted(host, &g, (size_t) n);
	st = order != NULL ? load(*store, &g, order, n, labelled, err)
		: gk_fail(err, GK_ERR_MEMORY, "out of memory");
	gk_free(host, order);
	if (st == GK_OK)
		st = gk_store_prepare(*store, options->distance, options->standardize, err);
	return st;
}

GkStatus
gk_group_fit(const GkHost *host, const GkBackend *backend, const GkOptions *options,
			 const GkGroupPoints *points, int32_t *label, GkModel *model, GkError *err)
{
	GkLabelSink sink = {label, put_labels, forget_labels};
	GkOptions	own = *options;
	GkStore    *store;
	GkStatus	st = gk_group_prepare(host, options, points, label != NULL, &store, err);

	own.k = gk_group_clusters(options, points->n);
	if (st == GK_OK)
		st = gk_fit(store, backend, &own, label != NULL ? &sink : NULL, model, err);
	if (st == GK_OK)
		model->k_asked = options->k;
	gk_store_free(store);
	return st;
}
