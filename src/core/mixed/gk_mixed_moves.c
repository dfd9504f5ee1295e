/*
 * gk_mixed_moves.c - k-prototypes: single moves, as Hartigan and Wong (1979) have them for k-means.
 *
 * A row that leaves a cluster of n rows takes n / (n - 1) times its squared distance with it, and one that comes
 * brings n / (n + 1) times, since means follow.  With a category a row takes gamma, unless its category is the only
 * most frequent one, and brings gamma, unless its category is among the most frequent ones.  Where no move gains
 * anything no row is nearer to another cluster either, so this ends where assigning does, or lower.
 *
 * One thread moves the rows in their order, in float64: the bits do not depend on threads or instruction sets.
 */
#include "core/gk_numerics.h"
#include "core/mixed/gk_mixed.h"

/* Rows times clusters times columns of a sweep: it is one thread's, of which a pass over more rows would have many. */
#define MOST_WORK		1e7
/* What a move has to gain beside what the row costs, so that rounding moves nothing to and fro. */
#define LEAST_GAIN		1e-6
/* Rows between looks whether to stop. */
#define ROWS_A_POLL		1024

typedef struct Moves
{
	GkMixed    *m;
	bool		look_only;
	double	   *mean;			/* [k][d] */
	int32_t    *most;			/* [k][c] how frequent the most frequent category is, */
	int32_t    *ties;			/* [k][c] and how many categories are that */
} Moves;

bool
gk_mixed_moves_suit(const GkMixed *m)
{
	return (double) m->n * m->k * (m->d + m->c) <= MOST_WORK;
}

static void
find_means(Moves *s, int cluster)
{
	const GkMixed *m = s->m;

	for (int j = 0; j < m->d; j++)
		s->mean[(size_t) cluster * m->d + j] = m->size[cluster] == 0 ? 0.0 :
			gk_i128_to_double(m->sum[(size_t) j * m->k + cluster]) / (double) m->size[cluster] *
			gk_pow2(m->expo[j] - GK_GRID_BITS);
}

static void
find_most(Moves *s, int cluster, int j)
{
	const GkMixed *m = s->m;
	const int32_t *count = m->counts[j] + (size_t) cluster * m->codes[j];
	int32_t		most = 0;
	int32_t		ties = 0;

	for (int v = 0; v < m->codes[j]; v++)
	{
		if (count[v] > most)
		{
			most = count[v];
			ties = 0;
		}
		ties += count[v] == most;
	}
	s->most[(size_t) cluster * m->c + j] = most;
	s->ties[(size_t) cluster * m->c + j] = ties;
}

static double
squared_distance(const Moves *s, int64_t row, int cluster)
{
	const GkMixed *m = s->m;
	double		sum = 0.0;

	for (int j = 0; j < m->d; j++)
	{
		double		t = (double) m->x[j * m->stride + row] - s->mean[(size_t) cluster * m->d + j];

		sum += t * t;
	}
	return sum;
}

static int32_t
count_of(const GkMixed *m, int64_t row, int cluster, int j)
{
	return m->counts[j][(size_t) cluster * m->codes[j] + m->code[j * m->stride + row]];
}

/* What the row's cluster, of more rows than that, costs less without it. */
static double
cost_to_leave(const Moves *s, int64_t row)
{
	const GkMixed *m = s->m;
	int			cluster = m->label[row];
	double		n = (double) m->size[cluster];
	int			differ = 0;

	for (int j = 0; j < m->c; j++)
	{
		size_t		at = (size_t) cluster * m->c + j;

		differ += count_of(m, row, cluster, j) < s->most[at] || s->ties[at] > 1;
	}
	return n / (n - 1.0) * squared_distance(s, row, cluster) + (double) m->gamma * differ;
}

/* What another cluster costs more with it. */
static double
cost_to_join(const Moves *s, int64_t row, int cluster)
{
	const GkMixed *m = s->m;
	double		n = (double) m->size[cluster];
	int			differ = 0;

	for (int j = 0; j < m->c; j++)
		differ += count_of(m, row, cluster, j) < s->most[(size_t) cluster * m->c + j];
	return n / (n + 1.0) * squared_distance(s, row, cluster) + (double) m->gamma * differ;
}

/* Does a move of the row lower the cost?  It is made, unless they are only looked for. */
static bool
try_row(Moves *s, int64_t row)
{
	GkMixed    *m = s->m;
	int			from = m->label[row];
	int			to = from;
	double		least;

	if (m->size[from] < 2)
		return false;
	least = cost_to_leave(s, row) * (1.0 - LEAST_GAIN);
	for (int cluster = 0; cluster < m->k; cluster++)
		if (cluster != from)
		{
			double		cost = cost_to_join(s, row, cluster);

			if (cost < least)
			{
				least = cost;
				to = cluster;
			}
		}
	if (to == from)
		return false;
	if (s->look_only)
		return true;
	gk_mixed_move(m, row, to);
	find_means(s, from);
	find_means(s, to);
	for (int j = 0; j < m->c; j++)
	{
		find_most(s, from, j);
		find_most(s, to, j);
	}
	return true;
}

static GkStatus
sweep(Moves *s, int64_t *moved)
{
	GkMixed    *m = s->m;

	for (int cluster = 0; cluster < m->k; cluster++)
	{
		find_means(s, cluster);
		for (int j = 0; j < m->c; j++)
			find_most(s, cluster, j);
	}
	*moved = 0;
	for (int64_t row = 0; row < m->n && !(s->look_only && *moved > 0); row++)
	{
		if (row % ROWS_A_POLL == 0 && m->host->poll != NULL && m->host->poll(m->host->ctx))
			return GK_STOPPED;
		*moved += try_row(s, row);
	}
	return GK_OK;
}

GkStatus
gk_mixed_moves(GkMixed *m, bool look_only, int64_t *moved, GkError *err)
{
	Moves		s = {.m = m,.look_only = look_only};
	size_t		k = m->k;
	GkStatus	st;

	s.mean = gk_alloc(m->host, k * m->d + 1, sizeof(double));
	s.most = gk_alloc(m->host, k * m->c + 1, sizeof(int32_t));
	s.ties = gk_alloc(m->host, k * m->c + 1, sizeof(int32_t));
	if (s.mean == NULL || s.most == NULL || s.ties == NULL)
		st = gk_fail(err, GK_ERR_MEMORY, "out of memory");
	else
		st = sweep(&s, moved);
	gk_free(m->host, s.mean);
	gk_free(m->host, s.most);
	gk_free(m->host, s.ties);
	return st;
}
