/*
 * gk_mixed.c - k-prototypes: seeding, assignment, means and modes.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "core/mixed/gk_mixed.h"
#include "core/store/gk_store.h"

/* Rows of a job. */
#define BLOCK	4096

/* What a pass finds in a block of rows. */
typedef struct Block
{
	double		key;			/* of a race */
	int64_t		row;			/* that wins it; -1: none runs */
	int			moved;			/* rows */
} Block;

/* Sums and counts, by a thread for itself or of all rows. */
typedef struct Tally
{
	gk_int128  *sum;			/* [d][k] */
	int64_t    *size;			/* [k] */
	int32_t    *count;			/* as GkMixed.count */
	void	   *memory;			/* of a thread's */
} Tally;

static int64_t
blocks(const GkMixed *m)
{
	return (m->n + BLOCK - 1) / BLOCK;
}

static int64_t
block_end(int64_t rows, int64_t block)
{
	return (block + 1) * BLOCK < rows ? (block + 1) * BLOCK : rows;
}

static GkStatus
run(GkMixed *m, int64_t jobs, GkJob fn, void *arg)
{
	if (m->host->poll != NULL && m->host->poll(m->host->ctx))
		return GK_STOPPED;
	return gk_parallel_for(m->host, jobs, fn, arg) && !gk_host_stops(m->host) ? GK_OK : GK_STOPPED;
}

double
gk_mixed_bytes(int64_t n, int d, int c, int k, double codes)
{
	return ((double) n + GK_MIXED_ROWS) * 4.0 * (d + c + 5) + (double) n / BLOCK * sizeof(Block) +
		(double) k * (codes * sizeof(int32_t) + d * (sizeof(gk_int128) + 12.0) + c * 4.0 + sizeof(gk_int128) + 16.0);
}

/*
 * Threads have sums of their own where these are few beside the rows: a block's rows are counted while they are in
 * the cache.  Otherwise a column is one thread's.
 */
static bool
alloc_tallies(GkMixed *m)
{
	Tally	   *all = m->tally;
	int			threads = gk_threads(m->host);
	size_t		sums = (size_t) m->k * m->d * sizeof(gk_int128);
	size_t		sizes = m->k * sizeof(int64_t);
	size_t		counts = (m->counts[m->c] - m->count) * sizeof(int32_t);

	*all = (Tally) {m->sum, m->size, m->count, NULL};
	if ((double) (sums + sizes + counts) * threads > 4.0 * m->n)
		return true;
	for (int i = 1; i <= threads; i++)
	{
		char	   *memory = gk_alloc0(m->host, sums + sizes + counts + 1, 1);

		if (memory == NULL)
			return false;
		all[i] = (Tally) {(gk_int128 *) memory, (int64_t *) (memory + sums), (int32_t *) (memory + sums + sizes), memory};
	}
	return true;
}

/* Do threads have sums of their own? */
static bool
own_tallies(const GkMixed *m)
{
	return ((const Tally *) m->tally)[1].memory != NULL;
}

GkStatus
gk_mixed_alloc(GkMixed *m, GkError *err)
{
	size_t		all = 0;
	size_t		k = m->k;

	if (m->n > INT_MAX)
		return gk_fail(err, GK_ERR_LIMIT, "more than %d rows", INT_MAX);
	for (int j = 0; j < m->c; j++)
		all += k * m->codes[j];
	m->mean = gk_alloc(m->host, k * m->d + 1, sizeof(float));
	m->exact = gk_alloc(m->host, k * m->d + 1, sizeof(double));
	m->mode = gk_alloc(m->host, k * m->c + 1, sizeof(int32_t));
	m->size = gk_alloc(m->host, k, sizeof(int64_t));
	m->label = gk_alloc(m->host, m->stride, sizeof(int32_t));
	m->tallied = gk_alloc(m->host, m->n, sizeof(int32_t));
	m->moved = gk_alloc(m->host, m->n, sizeof(int32_t));
	m->cost = gk_alloc(m->host, m->stride, sizeof(float));
	m->count = gk_alloc(m->host, all + 1, sizeof(int32_t));
	m->counts = gk_alloc(m->host, m->c + 1, sizeof(int32_t *));
	m->sum = gk_alloc(m->host, k * m->d + 1, sizeof(gk_int128));
	m->tally = gk_alloc0(m->host, gk_threads(m->host) + 1, sizeof(Tally));
	m->total = gk_alloc(m->host, k, sizeof(gk_int128));
	m->spent = gk_alloc(m->host, k, sizeof(double));
	m->block = gk_alloc(m->host, blocks(m) + 1, sizeof(Block));
	if (m->mean == NULL || m->exact == NULL || m->mode == NULL || m->size == NULL || m->label == NULL || m->tallied == NULL ||
		m->moved == NULL || m->cost == NULL || m->count == NULL || m->counts == NULL || m->sum == NULL ||
		m->tally == NULL || m->total == NULL || m->spent == NULL || m->block == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	m->counts[0] = m->count;
	for (int j = 0; j < m->c; j++)
		m->counts[j + 1] = m->counts[j] + k * m->codes[j];
	return alloc_tallies(m) ? GK_OK : gk_fail(err, GK_ERR_MEMORY, "out of memory");
}

void
gk_mixed_free(GkMixed *m)
{
	void	   *all[] = {m->mean, m->exact, m->mode, m->size, m->label, m->tallied, m->moved, m->cost, m->count, m->counts,
	m->sum, m->tally, m->total, m->spent, m->block};

	for (int i = 1; m->tally != NULL && i <= gk_threads(m->host); i++)
		gk_free(m->host, ((Tally *) m->tally)[i].memory);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		gk_free(m->host, all[i]);
}

/* ---- seeding ---- */

typedef struct Seeding
{
	GkMixed		of;				/* with one cluster: the newest */
	Block	   *block;
	uint64_t	key;
	bool		first;			/* no row costs anything yet: all are equal */
} Seeding;

static void
race_block(void *arg, int64_t b, int thread)
{
	Seeding    *s = arg;
	const GkMixed *m = &s->of;
	Block	   *to = &s->block[b];

	(void) thread;
	to->key = INFINITY;
	to->row = -1;
	for (int64_t i = b * BLOCK; i < block_end(m->n, b); i++)
	{
		double		weight = s->first ? 1.0 : m->cost[i];
		uint64_t	h = gk_hash(s->key, i);
		double		key;

		/* -ln(u) is at least 1 - u */
		if (!(weight > 0.0) || 1.0 - gk_uniform(h) > to->key * weight)
			continue;
		key = gk_race_key(h, weight);
		if (key < to->key)
		{
			to->key = key;
			to->row = i;
		}
	}
}

static void
lower_costs(void *arg, int64_t b, int thread)
{
	Seeding    *s = arg;
	GkMixed    *m = &s->of;

	(void) thread;
	gk_mixed_assign() (m, m->k - 1, b * BLOCK, block_end(m->stride, b), NULL, m->cost);
}

/* The winner of an exponential race by cost; when no row costs anything, of one among equals. */
static GkStatus
draw(Seeding *s, int64_t *row)
{
	double		best = INFINITY;
	GkStatus	st = run(&s->of, blocks(&s->of), race_block, s);

	*row = -1;
	for (int64_t b = 0; b < blocks(&s->of); b++)
		if (s->block[b].row >= 0 && s->block[b].key < best)
		{
			best = s->block[b].key;
			*row = s->block[b].row;
		}
	if (st != GK_OK || *row >= 0 || s->first)
		return st;
	s->first = true;
	st = draw(s, row);
	s->first = false;
	return st;
}

GkStatus
gk_mixed_seed(GkMixed *m, int64_t seed, int run_number, GkError *err)
{
	Seeding		s = {*m, m->block, 0, true};

	(void) err;
	for (s.of.k = 1; s.of.k <= m->k; s.of.k++)
	{
		int			i = s.of.k - 1;
		int64_t		row;
		GkStatus	st;

		s.key = gk_key(seed, run_number, i);
		if ((st = draw(&s, &row)) != GK_OK)
			return st;
		for (int j = 0; j < m->d; j++)
			m->exact[(size_t) i * m->d + j] = m->mean[(size_t) i * m->d + j] = m->x[j * m->stride + row];
		for (int j = 0; j < m->c; j++)
			m->mode[(size_t) i * m->c + j] = m->code[j * m->stride + row];
		if ((st = run(m, (m->stride + BLOCK - 1) / BLOCK, lower_costs, &s)) != GK_OK)
			return st;
		s.first = false;
	}
	return GK_OK;
}

/* ---- iterations ---- */

/* The rows of a block that have moved, in a column's sums. */
static void
tally_number(const GkMixed *m, int j, int64_t b, gk_int128 *sum)
{
	const float *x = m->x + j * m->stride;
	const int32_t *moved = m->moved + b * BLOCK;
	double		inv = gk_pow2(GK_GRID_BITS - m->expo[j]);

	sum += (size_t) j * m->k;
	for (int i = 0; i < ((Block *) m->block)[b].moved; i++)
	{
		int32_t		row = moved[i];
		int64_t		v = gk_fixed(x[row], inv);

		sum[m->label[row]] += v;
		if (m->tallied[row] >= 0)
			sum[m->tallied[row]] -= v;
	}
}

static void
tally_category(const GkMixed *m, int j, int64_t b, int32_t *count)
{
	const int32_t *code = m->code + j * m->stride;
	const int32_t *moved = m->moved + b * BLOCK;
	int64_t		codes = m->codes[j];

	count += m->counts[j] - m->count;
	for (int i = 0; i < ((Block *) m->block)[b].moved; i++)
	{
		int32_t		row = moved[i];

		count[m->label[row] * codes + code[row]]++;
		if (m->tallied[row] >= 0)
			count[m->tallied[row] * codes + code[row]]--;
	}
}

static void
tally_size(const GkMixed *m, int64_t b, int64_t *size)
{
	const int32_t *moved = m->moved + b * BLOCK;

	for (int i = 0; i < ((Block *) m->block)[b].moved; i++)
	{
		size[m->label[moved[i]]]++;
		if (m->tallied[moved[i]] >= 0)
			size[m->tallied[moved[i]]]--;
	}
}

/* The categories are columns, the numbers, and the sizes. */
static void
tally_column(const GkMixed *m, int column, int64_t b, const Tally *to)
{
	if (column < m->c)
		tally_category(m, column, b, to->count);
	else if (column < m->c + m->d)
		tally_number(m, column - m->c, b, to->sum);
	else
		tally_size(m, b, to->size);
}

static void
note_tallied(GkMixed *m, int64_t b)
{
	for (int i = 0; i < ((Block *) m->block)[b].moved; i++)
	{
		int32_t		row = m->moved[b * BLOCK + i];

		m->tallied[row] = m->label[row];
	}
}

static void
assign_block(void *arg, int64_t b, int thread)
{
	GkMixed    *m = arg;
	Block	   *to = (Block *) m->block + b;
	int64_t		first = b * BLOCK;
	int32_t    *moved = m->moved + first;

	gk_mixed_assign() (m, 0, first, block_end(m->stride, b), m->label, m->cost);
	to->moved = 0;
	for (int64_t i = first; i < block_end(m->n, b); i++)
	{
		moved[to->moved] = (int32_t) i;
		to->moved += m->label[i] != m->tallied[i];
	}
	if (!own_tallies(m))
		return;
	for (int column = 0; column <= m->d + m->c; column++)
		tally_column(m, column, b, (Tally *) m->tally + 1 + thread);
	note_tallied(m, b);
}

/* Add the threads' counts of a category to those of all, and begin anew. */
static void
merge_counts(GkMixed *m, int j)
{
	int64_t		first = m->counts[j] - m->count;
	int64_t		end = m->counts[j + 1] - m->count;

	for (int t = 1; t <= gk_threads(m->host); t++)
	{
		int32_t    *count = ((Tally *) m->tally)[t].count;

		for (int64_t i = first; i < end; i++)
			m->count[i] += count[i];
		memset(count + first, 0, (end - first) * sizeof(int32_t));
	}
}

static void
merge_sums(GkMixed *m)
{
	for (int t = 1; t <= gk_threads(m->host); t++)
	{
		Tally	   *from = (Tally *) m->tally + t;

		for (int64_t i = 0; i < (int64_t) m->k * m->d; i++)
			m->sum[i] += from->sum[i];
		for (int i = 0; i < m->k; i++)
			m->size[i] += from->size[i];
		memset(from->sum, 0, (size_t) m->k * m->d * sizeof(gk_int128));
		memset(from->size, 0, m->k * sizeof(int64_t));
	}
}

/* A category is a job, and all numbers are one. */
static void
merge(void *arg, int64_t column, int thread)
{
	(void) thread;
	if (column < ((GkMixed *) arg)->c)
		merge_counts(arg, (int) column);
	else
		merge_sums(arg);
}

/* A column is a job: no other thread adds to its sums. */
static void
tally(void *arg, int64_t column, int thread)
{
	GkMixed    *m = arg;

	(void) thread;
	for (int64_t b = 0; b < blocks(m) && !gk_host_stops(m->host); b++)
		tally_column(m, (int) column, b, m->tally);
}

static void
note_block(void *arg, int64_t b, int thread)
{
	(void) thread;
	note_tallied(arg, b);
}

void
gk_mixed_move(GkMixed *m, int64_t row, int to)
{
	int			from = m->label[row];

	for (int j = 0; j < m->d; j++)
	{
		int64_t		v = gk_fixed(m->x[j * m->stride + row], gk_pow2(GK_GRID_BITS - m->expo[j]));

		m->sum[(size_t) j * m->k + from] -= v;
		m->sum[(size_t) j * m->k + to] += v;
	}
	for (int j = 0; j < m->c; j++)
	{
		int32_t    *count = m->counts[j] + m->code[j * m->stride + row];

		count[(size_t) from * m->codes[j]]--;
		count[(size_t) to * m->codes[j]]++;
	}
	m->size[from]--;
	m->size[to]++;
	m->label[row] = m->tallied[row] = to;
}

/* What the clusters and all of them cost. */
static GkStatus
add_costs(GkMixed *m)
{
	gk_int128	all = 0;
	float		most = 0.0f;
	double		scale;
	int			expo;

	for (int64_t i = 0; i < m->n; i++)
		most = m->cost[i] > most ? m->cost[i] : most;
	expo = most > 0.0f ? gk_expo_of(most) : 0;
	scale = gk_pow2(40 - expo);
	memset(m->total, 0, m->k * sizeof(gk_int128));
	for (int64_t b = 0; b < blocks(m); b++)
	{
		if (gk_host_stops(m->host))
			return GK_STOPPED;
		for (int64_t i = b * BLOCK; i < block_end(m->n, b); i++)
			m->total[m->label[i]] += gk_d2_fixed(m->cost[i], scale);
	}
	for (int i = 0; i < m->k; i++)
	{
		m->spent[i] = gk_ldexp(gk_i128_to_double(m->total[i]), expo - 80);
		all += m->total[i];
	}
	m->objective = gk_ldexp(gk_i128_to_double(all), expo - 80);
	return GK_OK;
}

/*
 * Give each empty cluster the row that costs most where it is not alone, ties to the lowest: as long as
 * there are as many rows as clusters, there is one.
 */
static GkStatus
repair(GkMixed *m)
{
	for (int j = 0; j < m->k; j++)
	{
		int64_t		row = -1;

		if (m->size[j] > 0)
			continue;
		for (int64_t i = 0; i < m->n; i++)
		{
			if (i % BLOCK == 0 && gk_host_stops(m->host))
				return GK_STOPPED;
			if (m->size[m->label[i]] > 1 && (row < 0 || m->cost[i] > m->cost[row]))
				row = i;
		}
		if (row < 0)
			return GK_OK;
		gk_mixed_move(m, row, j);
		m->cost[row] = 0.0f;
	}
	return GK_OK;
}

static void
update(GkMixed *m)
{
	for (int i = 0; i < m->k; i++)
	{
		if (m->size[i] == 0)
			continue;
		for (int j = 0; j < m->d; j++)
		{
			size_t		at = (size_t) i * m->d + j;

			m->exact[at] = gk_i128_to_double(m->sum[(size_t) j * m->k + i]) / (double) m->size[i] *
				gk_pow2(m->expo[j] - GK_GRID_BITS);
			m->mean[at] = (float) m->exact[at];
		}
		for (int j = 0; j < m->c; j++)
		{
			const int32_t *count = m->counts[j] + (size_t) i * m->codes[j];
			int			mode = 0;

			for (int v = 1; v < m->codes[j]; v++)
				if (count[v] > count[mode])
					mode = v;
			m->mode[(size_t) i * m->c + j] = mode;
		}
	}
}

/* Assign and tally; *moved: rows. */
static GkStatus
pass(GkMixed *m, int64_t *moved)
{
	GkStatus	st = run(m, blocks(m), assign_block, m);

	if (st == GK_OK && own_tallies(m))
		st = run(m, m->c + 1, merge, m);
	else if (st == GK_OK && (st = run(m, m->d + m->c + 1, tally, m)) == GK_OK)
		st = run(m, blocks(m), note_block, m);
	*moved = 0;
	for (int64_t b = 0; st == GK_OK && b < blocks(m); b++)
		*moved += ((Block *) m->block)[b].moved;
	return st;
}

static void
clear(GkMixed *m)
{
	memset(m->tallied, 0xff, m->n * sizeof(int32_t));
	memset(m->sum, 0, (size_t) m->k * m->d * sizeof(gk_int128));
	memset(m->count, 0, (m->counts[m->c] - m->count) * sizeof(int32_t));
	memset(m->size, 0, m->k * sizeof(int64_t));
}

GkStatus
gk_mixed_fit(GkMixed *m, int max_iter, GkError *err)
{
	int64_t		moved;
	GkStatus	st;

	clear(m);
	st = pass(m, &moved);
	for (m->iterations = 0; st == GK_OK && m->iterations < max_iter; m->iterations++)
	{
		if (moved == 0 && gk_mixed_moves_suit(m))
			st = gk_mixed_moves(m, false, &moved, err);
		if (st != GK_OK || moved == 0 || (st = repair(m)) != GK_OK)
			break;
		update(m);
		st = pass(m, &moved);
	}
	/* max_iter has ended it before single rows were looked at */
	if (st == GK_OK && moved == 0 && m->iterations == max_iter && gk_mixed_moves_suit(m))
		st = gk_mixed_moves(m, true, &moved, err);
	m->converged = st == GK_OK && moved == 0;
	if (st == GK_OK)
		st = add_costs(m);
	return st;
}
