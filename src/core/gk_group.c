/*
 * gk_group.c - sort a group's points, load them, fit (gk_group.h).
 */
#include <string.h>

#include "core/gk_batch.h"
#include "core/gk_group.h"

#define CHUNK_BYTES		((size_t) 16 << 20)
/* Fewer entries are sorted by comparisons. */
#define RADIX_MIN		512
#define RADIX_BITS		11
#define RADIX_SIZE		(1 << RADIX_BITS)
/* How far points in sorted order are fetched ahead. */
#define AHEAD			16

/* The first feature, as an integer of the same order, and which point it is. */
typedef struct Entry
{
	uint64_t	key;
	uint32_t	index;
} Entry;

typedef struct Group
{
	GkGroupRow	row;
	const void *arg;
	int			width;			/* features, and the weight */
} Group;

static uint64_t
ordered_bits(double v)
{
	uint64_t	bits;

	v += 0.0;					/* -0 is 0 */
	memcpy(&bits, &v, sizeof(bits));
	return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

/* Features in order; equal points may change places. */
static int
compare_points(const Group *g, uint32_t a, uint32_t b)
{
	const double *x = g->row(g->arg, a);
	const double *y = g->row(g->arg, b);

	for (int j = 0; j < g->width; j++)
		if (x[j] != y[j])
			return x[j] < y[j] ? -1 : 1;
	return 0;
}

static bool
less(const Group *g, const Entry *a, const Entry *b)
{
	if (a->key != b->key)
		return a->key < b->key;
	return compare_points(g, a->index, b->index) < 0;
}

/* By comparisons: insertion for a few, merging for more.  tmp: room for n. */
static void
sort_entries(const Group *g, Entry *e, Entry *tmp, size_t n)
{
	size_t		half = n / 2;
	size_t		i = 0;
	size_t		j = half;

	if (n <= 16)
	{
		for (i = 1; i < n; i++)
		{
			Entry		v = e[i];
			size_t		at = i;

			for (; at > 0 && less(g, &v, &e[at - 1]); at--)
				e[at] = e[at - 1];
			e[at] = v;
		}
		return;
	}
	sort_entries(g, e, tmp, half);
	sort_entries(g, e + half, tmp, n - half);
	memcpy(tmp, e, half * sizeof(Entry));
	for (size_t at = 0; i < half; at++)
		e[at] = j < n && less(g, &e[j], &tmp[i]) ? e[j++] : tmp[i++];
}

/* Least significant digit first; digits that all keys share are passed over. */
static Entry *
radix_sort(Entry *from, Entry *to, size_t n)
{
	for (int shift = 0; shift < 64; shift += RADIX_BITS)
	{
		uint32_t	at[RADIX_SIZE] = {0};
		uint32_t	sum = 0;
		Entry	   *other = to;

		for (size_t i = 0; i < n; i++)
			at[(from[i].key >> shift) & (RADIX_SIZE - 1)]++;
		if (at[(from[0].key >> shift) & (RADIX_SIZE - 1)] == n)
			continue;
		for (int b = 0; b < RADIX_SIZE; b++)
		{
			uint32_t	count = at[b];

			at[b] = sum;
			sum += count;
		}
		for (size_t i = 0; i < n; i++)
			to[at[(from[i].key >> shift) & (RADIX_SIZE - 1)]++] = from[i];
		to = from;
		from = other;
	}
	return from;
}

/* The places of the points in sorted order; NULL: out of memory. */
static uint32_t *
sorted(const GkHost *host, const Group *g, size_t n)
{
	Entry	   *block = gk_alloc(host, 2 * n, sizeof(Entry));
	Entry	   *e = block;
	uint32_t   *order = gk_alloc(host, n, sizeof(uint32_t));

	if (block != NULL && order != NULL)
	{
		for (size_t i = 0; i < n; i++)
		{
			e[i].key = ordered_bits(g->row(g->arg, (int64_t) i)[0]);
			e[i].index = (uint32_t) i;
		}
		if (n < RADIX_MIN)
			sort_entries(g, e, e + n, n);
		else
		{
			e = radix_sort(block, block + n, n);
			for (size_t i = 0, end; i < n; i = end)
			{
				for (end = i + 1; end < n && e[end].key == e[i].key; end++)
					;
				if (end - i > 1 && g->width > 1)
					sort_entries(g, e + i, (e == block ? block + n : block) + i, end - i);
			}
		}
		for (size_t i = 0; i < n; i++)
			order[i] = e[i].index;
	}
	else
	{
		gk_free(host, order);
		order = NULL;
	}
	gk_free(host, block);
	return order;
}

static GkStatus
load(GkStore *store, const Group *g, const uint32_t *order, int64_t n, bool labelled, GkError *err)
{
	GkBatch    *b = gk_store_batch(store);
	GkStatus	st = GK_OK;

	for (int64_t at = 0; st == GK_OK && at < n; at++)
	{
		const double *x = g->row(g->arg, order[at]);

		/* points of large groups are far apart in memory */
		if (at + AHEAD < n)
			__builtin_prefetch(g->row(g->arg, order[at + AHEAD]));
		for (int j = 0; j < g->width; j++)
			gk_batch_put(b, j, x[j] + 0.0);
		if (labelled)
			gk_batch_aux(b, 0)[b->rows] = order[at];
		if (++b->rows == b->capacity || at == n - 1)
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

/* Labels that come again overwrite those of before. */
static void
no_matter(void *ctx)
{
	(void) ctx;
}

GkStatus
gk_group_fit(const GkHost *host, const GkBackend *backend, const GkOptions *options,
			 GkGroupRow row, const void *arg, int64_t n, int d, bool weighted,
			 int32_t *label, GkModel *model, GkError *err)
{
	Group		g = {row, arg, d + (weighted ? 1 : 0)};
	GkLabelSink sink = {label, put_labels, no_matter};
	GkOptions	own = *options;
	GkStore    *store = NULL;
	uint32_t   *order;
	GkStatus	st;

	/* No more clusters than points: no memory for what cannot be found. */
	if (own.centroids == NULL && own.k > n)
		own.k = (int) n;
	if (n > GK_MAX_GROUP)
		return gk_fail(err, GK_ERR_LIMIT, "a group of %lld points is over the limit of %lld",
					   (long long) n, (long long) GK_MAX_GROUP);
	st = gk_store_create(host, d, weighted, label != NULL ? 1 : 0, CHUNK_BYTES, SIZE_MAX, &store, err);
	if (st != GK_OK)
		return st;
	order = sorted(host, &g, (size_t) n);
	st = order != NULL ? load(store, &g, order, n, label != NULL, err)
		: gk_fail(err, GK_ERR_MEMORY, "out of memory");
	gk_free(host, order);
	if (st == GK_OK)
		st = gk_store_prepare(store, options->distance, options->standardize, err);
	if (st == GK_OK)
		st = gk_fit(store, backend, &own, label != NULL ? &sink : NULL, model, err);
	if (st == GK_OK)
		model->k_asked = options->k;
	gk_store_free(store);
	return st;
}
