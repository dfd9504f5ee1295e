/*
 * gk_key_partition.c - rows by key into parts, a part's rows into groups (gk_key_partition.h).
 *
 * A row is its key and its values: floats as long as all that came are floats
 * exactly, doubles from then on.
 */
#include <string.h>

#include "core/base/gk_sizes.h"
#include "core/groups/gk_key_partition.h"

#define PART_BITS		10
#define BLOCK_BYTES		2048
/*
 * Blocks are cut from slabs, each twice as large as the one before it, up to LAST_SLAB: in
 * huge pages, since blocks of many parts are written at a time.
 */
#define FIRST_SLAB		((size_t) 1 << 20)
#define LAST_SLAB		((size_t) 16 << 20)
#define SLAB_HEAD		GK_CACHE_LINE
/* Slots of a part's hash table at first; a power of two. */
#define MIN_SLOTS		256

_Static_assert(GK_KEY_PARTITION_PARTS == 1 << PART_BITS, "a part's number has PART_BITS bits");

typedef struct Block
{
	struct Block *next;
	char	   *end;			/* of its rows; set when the part goes on to the next */
	bool		wide;
} Block;

typedef struct Part
{
	Block	   *first;
	Block	   *last;
	size_t		rows;			/* of those before the last one */
} Part;

/* Where a part's next row goes, and where its last block ends: all places fit the first-level cache. */
typedef struct Place
{
	char	   *at;
	char	   *end;
} Place;

struct GkKeyPartition
{
	const GkHost *host;
	int			width;
	bool		wide;
	size_t		block_bytes;
	void	   *slabs;			/* each begins with a pointer to the one before it */
	size_t		slab_bytes;		/* of the newest */
	size_t		slab_used;
	size_t		bytes;
	Place		place[GK_KEY_PARTITION_PARTS];
	Part		part[GK_KEY_PARTITION_PARTS];
};

/* Fibonacci hashing (Knuth): the upper bits are the good ones. */
static inline uint64_t
hash(int64_t key)
{
	return (uint64_t) key * UINT64_C(0x9e3779b97f4a7c15);
}

static inline size_t
row_bytes(const GkKeyPartition *k, bool wide)
{
	return sizeof(int64_t) + (wide ? k->width * sizeof(double) : ((size_t) k->width + 1) / 2 * sizeof(double));
}

GkStatus
gk_key_partition_create(const GkHost *host, int width, GkKeyPartition **out, GkError *err)
{
	GkKeyPartition *k = gk_alloc0(host, 1, sizeof(GkKeyPartition));

	*out = k;
	if (k == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	k->host = host;
	k->width = width;
	k->block_bytes = sizeof(Block) + row_bytes(k, true);
	if (k->block_bytes < BLOCK_BYTES)
		k->block_bytes = BLOCK_BYTES;
	return GK_OK;
}

void
gk_key_partition_free(GkKeyPartition *k)
{
	if (k == NULL)
		return;
	while (k->slabs != NULL)
	{
		void	   *slab = k->slabs;

		k->slabs = *(void **) slab;
		gk_free(k->host, slab);
	}
	gk_free(k->host, k);
}

size_t
gk_key_partition_bytes(const GkKeyPartition *k)
{
	return k->bytes;
}

/* ---- rows in ---- */

/* Rows of a part's last block. */
static size_t
last_rows(const GkKeyPartition *k, int part)
{
	const Block *b = k->part[part].last;

	return b == NULL ? 0 : (k->place[part].at - (char *) (b + 1)) / row_bytes(k, b->wide);
}

static bool
begin_block(GkKeyPartition *k, int part)
{
	Part	   *p = &k->part[part];
	Place	   *place = &k->place[part];
	Block	   *b;

	if (k->slab_bytes - k->slab_used < k->block_bytes)
	{
		size_t		bytes = k->slab_bytes == 0 ? FIRST_SLAB : k->slab_bytes < LAST_SLAB ? k->slab_bytes * 2 : LAST_SLAB;
		void	   *slab = gk_alloc_kept(k->host, bytes);

		if (slab == NULL)
			return false;
		*(void **) slab = k->slabs;
		k->slabs = slab;
		k->slab_bytes = bytes;
		k->slab_used = SLAB_HEAD;
	}
	b = (Block *) ((char *) k->slabs + k->slab_used);
	k->slab_used += k->block_bytes;
	*b = (Block) {.wide = k->wide};
	if (p->last == NULL)
		p->first = b;
	else
	{
		p->rows += last_rows(k, part);
		p->last->end = place->at;
		p->last->next = b;
	}
	p->last = b;
	place->at = (char *) (b + 1);
	place->end = place->at + (k->block_bytes - sizeof(Block)) / row_bytes(k, k->wide) * row_bytes(k, k->wide);
	return true;
}

/* Write doubles from here on, in new blocks. */
static void
widen(GkKeyPartition *k)
{
	for (int i = 0; i < GK_KEY_PARTITION_PARTS; i++)
		k->place[i].end = k->place[i].at;
	k->wide = true;
}

static bool
some_wide(const GkBatch *b)
{
	for (int j = 1; j < b->columns; j++)
		if (b->wide[j])
			return true;
	return false;
}

static double
batch_value(const GkBatch *b, int column, int row)
{
	const void *x = gk_batch_column(b, column);

	return b->wide[column] ? ((const double *) x)[row] : ((const float *) x)[row];
}

/* Read the keys; false: one may have been rounded. */
static bool
read_keys(const GkBatch *b, int64_t *key)
{
	for (int i = 0; i < b->rows; i++)
	{
		double		v = batch_value(b, 0, i);

		if (!(v < GK_KEY_PARTITION_LIMIT && v > -GK_KEY_PARTITION_LIMIT))
			return false;
		key[i] = (int64_t) v;
	}
	return true;
}

/* Write a row's values besides the key. */
static inline void
put_values(const GkBatch *b, int row, int width, bool wide, char *to)
{
	const float *x = gk_batch_column(b, 1);
	size_t		stride = b->stride / sizeof(float);

	if (wide)
		for (int j = 0; j < width; j++)
			((double *) to)[j] = batch_value(b, j + 1, row);
	else
		for (int j = 0; j < width; j++)
			((float *) to)[j] = x[j * stride + row];
}

GkStatus
gk_key_partition_add(GkKeyPartition *k, const GkBatch *b, GkError *err)
{
	int64_t		key[GK_BATCH_ROWS];
	int			width = k->width;
	bool		wide;
	size_t		bytes;

	if (!read_keys(b, key))
		return gk_fail(err, GK_ERR_LIMIT, "a key is too large");
	if (!k->wide && some_wide(b))
		widen(k);
	wide = k->wide;
	bytes = row_bytes(k, wide);
	for (int i = 0; i < b->rows; i++)
	{
		int			part = (int) (hash(key[i]) >> (64 - PART_BITS));
		Place	   *place = &k->place[part];
		char	   *to;

		if (place->at == place->end && !begin_block(k, part))
			return gk_fail(err, GK_ERR_MEMORY, "out of memory");
		to = place->at;
		place->at += bytes;
		/* the part's next row comes after rows of many other parts */
		__builtin_prefetch(place->at + GK_CACHE_LINE, 1);
		memcpy(to, &key[i], sizeof(int64_t));
		put_values(b, i, width, wide, to + sizeof(int64_t));
	}
	k->bytes += b->rows * bytes;
	return GK_OK;
}

/* ---- groups ---- */

/* Group numbers by key: 1 + the number, 0 for an empty slot. */
typedef struct Table
{
	const GkHost *host;
	GkKeyGroups *groups;
	int			room;			/* groups */
	int			bits;			/* of the number of slots */
	uint32_t   *slot;
} Table;

static inline size_t
slot_of(const Table *t, int64_t key)
{
	/* not the bits that the part has */
	return (hash(key) << PART_BITS) >> (64 - t->bits);
}

static bool
grow(Table *t)
{
	GkKeyGroups *g = t->groups;
	int			bits = t->bits + 1;
	size_t		slots = (size_t) 1 << bits;
	int			room = (int) (slots / 2);
	uint32_t   *slot = gk_alloc0(t->host, slots, sizeof(uint32_t));
	int64_t    *key = gk_alloc(t->host, room, sizeof(int64_t));
	int64_t    *start = gk_alloc0(t->host, room + 1, sizeof(int64_t));

	if (slot == NULL || key == NULL || start == NULL)
	{
		gk_free(t->host, slot);
		gk_free(t->host, key);
		gk_free(t->host, start);
		return false;
	}
	if (g->n > 0)
	{
		memcpy(key, g->key, g->n * sizeof(int64_t));
		memcpy(start, g->start, g->n * sizeof(int64_t));
	}
	gk_free(t->host, g->start);
	gk_free(t->host, g->key);
	gk_free(t->host, t->slot);
	g->key = key;
	g->start = start;
	t->slot = slot;
	t->bits = bits;
	t->room = room;
	for (int i = 0; i < g->n; i++)
	{
		size_t		at = slot_of(t, key[i]);

		while (slot[at] != 0)
			at = (at + 1) & (slots - 1);
		slot[at] = i + 1;
	}
	return true;
}

/* Find or make the number of a key's group; < 0: out of memory. */
static inline int
find(Table *t, int64_t key)
{
	GkKeyGroups *g = t->groups;
	size_t		mask = ((size_t) 1 << t->bits) - 1;
	size_t		at = slot_of(t, key);

	for (; t->slot[at] != 0; at = (at + 1) & mask)
		if (g->key[t->slot[at] - 1] == key)
			return (int) t->slot[at] - 1;
	if (g->n == t->room)
		return grow(t) ? find(t, key) : -1;
	g->key[g->n] = key;
	t->slot[at] = ++g->n;
	return g->n - 1;
}

/* End of a block's rows. */
static inline const char *
end_of(const GkKeyPartition *k, int part, const Block *b)
{
	return b == k->part[part].last ? k->place[part].at : b->end;
}

/* Prefetch a block: a part's blocks may lie anywhere. */
static inline void
fetch_ahead(const GkKeyPartition *k, const Block *b)
{
	for (size_t at = 0; b != NULL && at < k->block_bytes; at += GK_CACHE_LINE)
		__builtin_prefetch((const char *) b + at);
}

/* Find the group of each row, and count in start[] the rows of each group. */
static GkStatus
count_rows(const GkKeyPartition *k, int part, Table *t, uint32_t *of)
{
	int64_t		i = 0;

	for (const Block *b = k->part[part].first; b != NULL; b = b->next)
	{
		const char *end = end_of(k, part, b);
		size_t		bytes = row_bytes(k, b->wide);

		fetch_ahead(k, b->next);
		for (const char *at = (const char *) (b + 1); at < end; at += bytes)
		{
			int64_t		key;
			int			group;

			memcpy(&key, at, sizeof(key));
			group = find(t, key);
			if (group < 0)
				return GK_ERR_MEMORY;
			of[i++] = (uint32_t) group;
			t->groups->start[group]++;
		}
	}
	return GK_OK;
}

/* Copy each row to the end[] of its group; floats if all are. */
static void
lay_out(const GkKeyPartition *k, int part, const uint32_t *of, int64_t *end, void *rows)
{
	int			width = k->width;
	int64_t		i = 0;

	for (const Block *b = k->part[part].first; b != NULL; b = b->next)
	{
		const char *last = end_of(k, part, b);
		size_t		bytes = row_bytes(k, b->wide);
		bool		wide = b->wide;

		fetch_ahead(k, b->next);
		for (const char *at = (const char *) (b + 1); at < last; at += bytes)
		{
			size_t		to = end[of[i++]]++ * width;
			const char *from = at + sizeof(int64_t);

			if (k->wide)
				for (int j = 0; j < width; j++)
					((double *) rows)[to + j] = wide ? ((const double *) from)[j] : ((const float *) from)[j];
			else
				for (int j = 0; j < width; j++)
					((float *) rows)[to + j] = ((const float *) from)[j];
		}
	}
}

void
gk_key_partition_groups_free(const GkHost *host, GkKeyGroups *g)
{
	gk_free(host, g->rows);
	gk_free(host, g->start);
	gk_free(host, g->key);
	memset(g, 0, sizeof(*g));
}

GkStatus
gk_key_partition_groups(const GkKeyPartition *k, int part, const GkHost *host, GkKeyGroups *out, GkError *err)
{
	size_t		n = k->part[part].rows + last_rows(k, part);
	Table		t = {.host = host,.groups = out,.bits = __builtin_ctz(MIN_SLOTS) - 1};
	int64_t		sum = 0;
	uint32_t   *of;
	GkStatus	st = GK_ERR_MEMORY;

	memset(out, 0, sizeof(*out));
	if (n == 0)
		return GK_OK;
	fetch_ahead(k, k->part[part].first);
	out->floats = !k->wide;
	out->rows = gk_alloc(host, n, k->width * (k->wide ? sizeof(double) : sizeof(float)));
	of = gk_alloc(host, n, sizeof(uint32_t));
	if (out->rows != NULL && of != NULL && grow(&t))
		st = count_rows(k, part, &t, of);
	for (int i = 0; st == GK_OK && i < out->n; i++)
	{
		int64_t		rows = out->start[i];

		out->start[i] = sum;
		sum += rows;
	}
	if (st == GK_OK)
	{
		lay_out(k, part, of, out->start, out->rows);
		/* each group has ended where the next one starts */
		memmove(out->start + 1, out->start, out->n * sizeof(int64_t));
		out->start[0] = 0;
	}
	gk_free(host, t.slot);
	gk_free(host, of);
	if (st != GK_OK)
	{
		gk_key_partition_groups_free(host, out);
		return gk_fail(err, st, "out of memory");
	}
	return GK_OK;
}
