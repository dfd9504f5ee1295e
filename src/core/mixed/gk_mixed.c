/*
 * gk_mixed.c - k-prototypes: seeding, assignment, means and modes.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "core/base/gk_exact.h"
#include "core/gk_numerics.h"
#include "core/mixed/gk_mixed.h"

/* Rows of a job. */
#define BLOCK	4096

/* What a pass finds in a block of rows. */
typedef struct Block
{
	double		key;			/* of a race */
	int64_t		row;			/* that wins it; -1: none runs */
	int			moved;			/* rows */
	GkWide		cost;
} Block;

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

/* Does the host want to stop?  Within a job. */
static bool
stops(const GkMixed *m)
{
	return m->host->stop != NULL && m->host->stop(m->host->ctx);
}

static GkStatus
run(GkMixed *m, int64_t jobs, GkJob fn, void *arg)
{
	if (m->host->poll != NULL && m->host->poll(m->host->ctx))
		return GK_STOPPED;
	return gk_parallel_for(m->host, jobs, fn, arg) && !stops(m) ? GK_OK : GK_STOPPED;
}

double
gk_mixed_bytes(int64_t n, int d, int c, int k, double codes)
{
	return ((double) n + GK_MIXED_LANES) * 4.0 * (d + c + 4) + (double) n / BLOCK * sizeof(Block) +
		(double) k * (codes * sizeof(int64_t) + d * (sizeof(gk_int128) + 4.0) + c * 4.0);
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
	m->mode = gk_alloc(m->host, k * m->c + 1, sizeof(int32_t));
	m->size = gk_alloc(m->host, k, sizeof(int64_t));
	m->label = gk_alloc(m->host, m->stride, sizeof(int32_t));
	m->tallied = gk_alloc(m->host, m->n, sizeof(int32_t));
	m->moved = gk_alloc(m->host, m->n, sizeof(int32_t));
	m->cost = gk_alloc(m->host, m->stride, sizeof(float));
	m->count = gk_alloc(m->host, all + 1, sizeof(int64_t));
	m->counts = gk_alloc(m->host, m->c + 1, sizeof(int64_t *));
	m->sum = gk_alloc(m->host, k * m->d + 1, sizeof(gk_int128));
	m->block = gk_alloc(m->host, blocks(m) + 1, sizeof(Block));
	if (m->mean == NULL || m->mode == NULL || m->size == NULL || m->label == NULL || m->tallied == NULL ||
		m->moved == NULL || m->cost == NULL ||
		m->count == NULL || m->counts == NULL || m->sum == NULL || m->block == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	m->counts[0] = m->count;
	for (int j = 0; j < m->c; j++)
		m->counts[j + 1] = m->counts[j] + k * m->codes[j];
	return GK_OK;
}

void
gk_mixed_free(GkMixed *m)
{
	void	   *all[] = {m->mean, m->mode, m->size, m->label, m->tallied, m->moved, m->cost, m->count, m->counts, m->sum, m->block};

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
			m->mean[(size_t) i * m->d + j] = m->x[j * m->stride + row];
		for (int j = 0; j < m->c; j++)
			m->mode[(size_t) i * m->c + j] = m->code[j * m->stride + row];
		if ((st = run(m, (m->stride + BLOCK - 1) / BLOCK, lower_costs, &s)) != GK_OK)
			return st;
		s.first = false;
	}
	return GK_OK;
}

/* ---- iterations ---- */

static void
assign_block(void *arg, int64_t b, int thread)
{
	GkMixed    *m = arg;
	Block	   *to = (Block *) m->block + b;
	int64_t		first = b * BLOCK;
	int32_t    *moved = m->moved + first;

	(void) thread;
	gk_mixed_assign() (m, 0, first, block_end(m->stride, b), m->label, m->cost);
	to->moved = 0;
	for (int64_t i = first; i < block_end(m->n, b); i++)
	{
		moved[to->moved] = (int32_t) i;
		to->moved += m->label[i] != m->tallied[i];
	}
}

static void
add_costs(void *arg, int64_t b, int thread)
{
	GkMixed    *m = arg;
	Block	   *to = (Block *) m->block + b;

	(void) thread;
	memset(&to->cost, 0, sizeof(to->cost));
	for (int64_t i = b * BLOCK; i < block_end(m->n, b); i++)
		gk_wide_add(&to->cost, m->cost[i]);
}

/* Sums and counts of a column, or the sizes, with a row in its new cluster. */
static void
move_row(GkMixed *m, int column, int64_t row, int from, int to)
{
	if (column < m->d)
	{
		gk_int128  *sum = m->sum + (size_t) column * m->k;
		int64_t		v = gk_fixed(m->x[column * m->stride + row], gk_pow2(GK_GRID_BITS - m->expo[column]));

		sum[to] += v;
		if (from >= 0)
			sum[from] -= v;
	}
	else if (column < m->d + m->c)
	{
		int			j = column - m->d;
		int64_t    *count = m->counts[j] + m->code[j * m->stride + row];

		count[(size_t) to * m->codes[j]]++;
		if (from >= 0)
			count[(size_t) from * m->codes[j]]--;
	}
	else
	{
		m->size[to]++;
		if (from >= 0)
			m->size[from]--;
	}
}

/* A column is a job, and the sizes are one: each has its own sums, which no other thread adds to. */
static void
tally(void *arg, int64_t column, int thread)
{
	GkMixed    *m = arg;

	(void) thread;
	for (int64_t b = 0; b < blocks(m) && !stops(m); b++)
		for (int i = 0; i < ((Block *) m->block)[b].moved; i++)
		{
			int32_t		row = m->moved[b * BLOCK + i];

			move_row(m, (int) column, row, m->tallied[row], m->label[row]);
		}
}

static void
note_tallied(void *arg, int64_t b, int thread)
{
	GkMixed    *m = arg;

	(void) thread;
	for (int i = 0; i < ((Block *) m->block)[b].moved; i++)
	{
		int32_t		row = m->moved[b * BLOCK + i];

		m->tallied[row] = m->label[row];
	}
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
			if (i % BLOCK == 0 && stops(m))
				return GK_STOPPED;
			if (m->size[m->label[i]] > 1 && (row < 0 || m->cost[i] > m->cost[row]))
				row = i;
		}
		if (row < 0)
			return GK_OK;
		for (int column = 0; column <= m->d + m->c; column++)
			move_row(m, column, row, m->label[row], j);
		m->label[row] = m->tallied[row] = j;
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
			m->mean[(size_t) i * m->d + j] = (float) (gk_i128_to_double(m->sum[(size_t) j * m->k + i]) /
													  (double) m->size[i] * gk_pow2(m->expo[j] - GK_GRID_BITS));
		for (int j = 0; j < m->c; j++)
		{
			const int64_t *count = m->counts[j] + (size_t) i * m->codes[j];
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

	if (st == GK_OK)
		st = run(m, m->d + m->c + 1, tally, m);
	if (st == GK_OK)
		st = run(m, blocks(m), note_tallied, m);
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
	memset(m->count, 0, (m->counts[m->c] - m->count) * sizeof(int64_t));
	memset(m->size, 0, m->k * sizeof(int64_t));
}

GkStatus
gk_mixed_fit(GkMixed *m, int max_iter, GkError *err)
{
	GkWide		all = {.pending = 0};
	int64_t		moved;
	GkStatus	st;

	(void) err;
	clear(m);
	st = pass(m, &moved);
	for (m->iterations = 0; st == GK_OK && moved > 0 && m->iterations < max_iter; m->iterations++)
	{
		st = repair(m);
		if (st != GK_OK)
			break;
		update(m);
		st = pass(m, &moved);
	}
	m->converged = st == GK_OK && moved == 0;
	if (st == GK_OK)
		st = run(m, blocks(m), add_costs, m);
	for (int64_t b = 0; st == GK_OK && b < blocks(m); b++)
		gk_wide_merge(&all, &((Block *) m->block)[b].cost);
	m->objective = gk_wide_mean(&all, 1);
	return st;
}
