/*
 * gk_balanced_flow.c - the cheapest assignment of rows to clusters of bounded sizes.
 *
 * It is a flow of least cost: each row sends a unit to a cluster, each cluster sends between min_size and
 * max_size units on to node k.  Among the clusters, the cheapest move of a row from a to b is an edge, so
 * successive shortest paths (R. Ahuja, T. Magnanti, J. Orlin, "Network Flows", 1993, 9.7) need k + 1 nodes
 * only.  Every cluster has a price.  At first each row is where cost and price are least, and a cluster
 * sends max_size units if its price is above that of node k, min_size if it is below.  All edges have then
 * reduced costs of at least 0, whatever the prices are, and each path keeps that so: when no node has more
 * units than it sends, the assignment is the cheapest one.  Good prices, those of the iteration before,
 * leave few paths to find.  Where there are none, the prices of every STEP-th row are found first.
 */
#include <string.h>

#include "core/balanced/gk_balanced.h"

#define NONE		INT64_MAX
#define MOST_MOVES	64
#define POLL_WORK	(4 * 1024 * 1024)
#define JOB_ROWS	4096
#define STEP		11			/* a prime, as tables have periods */
#define MANY		32			/* paths for one in this number of rows are worth that */

static int
near_room(int64_t n, int k)
{
	int64_t		room = n / k / 4;

	return room < 4 ? 4 : room > MOST_MOVES ? MOST_MOVES : (int) room;
}

double
gk_flow_bytes(int64_t n, int k, bool weighted)
{
	double		pair = 2.0 * near_room(n, k) * sizeof(GkMove) + sizeof(GkNear) + sizeof(int64_t);
	double		row = (double) k * sizeof(float) + 4 * sizeof(int32_t) + (weighted ? sizeof(float) : 0);

	return n * row + (double) k * k * pair;
}

GkStatus
gk_flow_alloc(GkFlow *f, const GkHost *host, int64_t n, int k_max, GkError *err)
{
	size_t		pairs = (size_t) k_max * k_max;
	size_t		nodes = (size_t) k_max + 1;

	f->host = host;
	f->n = n;
	f->stride = 1;
	f->room = near_room(n, k_max);
	f->label = gk_alloc(host, n, sizeof(int32_t));
	f->next = gk_alloc(host, n, sizeof(int32_t));
	f->prev = gk_alloc(host, n, sizeof(int32_t));
	f->head = gk_alloc(host, k_max, sizeof(int32_t));
	f->size = gk_alloc(host, k_max, sizeof(int64_t));
	f->flow = gk_alloc(host, k_max, sizeof(int64_t));
	f->excess = gk_alloc(host, nodes, sizeof(int64_t));
	f->price = gk_alloc0(host, nodes, sizeof(int64_t));
	f->near = gk_alloc(host, pairs, sizeof(GkNear));
	f->move = gk_alloc(host, pairs * 2 * f->room, sizeof(GkMove));
	f->edge = gk_alloc(host, pairs, sizeof(int64_t));
	f->dist = gk_alloc(host, nodes, sizeof(int64_t));
	f->from = gk_alloc(host, nodes, sizeof(int));
	f->done = gk_alloc(host, nodes, sizeof(bool));
	if (!f->label || !f->next || !f->prev || !f->head || !f->size || !f->flow || !f->excess || !f->price ||
		!f->near || !f->move || !f->edge || !f->dist || !f->from || !f->done)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory for clusters of bounded sizes");
	return GK_OK;
}

void
gk_flow_free(GkFlow *f)
{
	void	   *blocks[] = {f->label, f->next, f->prev, f->head, f->size, f->flow, f->excess, f->price,
	f->near, f->move, f->edge, f->dist, f->from, f->done};

	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
		gk_free(f->host, blocks[i]);
}

/* ---- the first assignment ---- */

/* The cluster of least cost and price, ties to the lowest number. */
static void
assign_rows(void *arg, int64_t job, int thread)
{
	GkFlow	   *f = arg;
	int64_t		end = (job + 1) * JOB_ROWS < f->n ? (job + 1) * JOB_ROWS : f->n;

	(void) thread;
	for (int64_t i = job * JOB_ROWS; i < end; i++)
	{
		int64_t		least = NONE;

		for (int j = 0; j < f->k; j++)
		{
			int64_t		v = gk_flow_cost(f, i, j) + f->price[j];

			if (v < least)
			{
				least = v;
				f->label[i] = j;
			}
		}
	}
}

static void
link_row(GkFlow *f, int32_t row, int to)
{
	f->label[row] = to;
	f->prev[row] = -1;
	f->next[row] = f->head[to];
	if (f->head[to] >= 0)
		f->prev[f->head[to]] = row;
	f->head[to] = row;
	f->size[to]++;
}

static void
unlink_row(GkFlow *f, int32_t row)
{
	int			from = f->label[row];

	if (f->prev[row] >= 0)
		f->next[f->prev[row]] = f->next[row];
	else
		f->head[from] = f->next[row];
	if (f->next[row] >= 0)
		f->prev[f->next[row]] = f->prev[row];
	f->size[from]--;
}

/* What each cluster sends on, and what is then too much or too little.  Returns how many units are too much. */
static int64_t
begin_flow(GkFlow *f)
{
	int			k = f->k;
	int64_t		units = 0;

	for (int j = 0; j < k; j++)
	{
		f->head[j] = -1;
		f->size[j] = 0;
	}
	for (int64_t i = f->n - 1; i >= 0; i--)
		link_row(f, (int32_t) i, f->label[i]);
	f->excess[k] = -f->n;
	for (int j = 0; j < k; j++)
	{
		int64_t		size = f->size[j];

		if (f->price[j] != f->price[k])
			f->flow[j] = f->price[j] > f->price[k] ? f->max_size : f->min_size;
		else
			f->flow[j] = size > f->max_size ? f->max_size : size < f->min_size ? f->min_size : size;
		f->excess[j] = size - f->flow[j];
		f->excess[k] += f->flow[j];
	}
	for (int v = 0; v <= k; v++)
		units += f->excess[v] > 0 ? f->excess[v] : 0;
	return units;
}

/* ---- paths ---- */

/* The reduced cost of the edge from u to v, or NONE. */
static inline int64_t
reduced(const GkFlow *f, int u, int v)
{
	int64_t		cost = 0;

	if (u == f->k)
	{
		if (f->flow[v] <= f->min_size)
			return NONE;
	}
	else if (v == f->k)
	{
		if (f->flow[u] >= f->max_size)
			return NONE;
	}
	else if ((cost = f->edge[(size_t) u * f->k + v]) == NONE)
		return NONE;
	return cost + f->price[v] - f->price[u];
}

/*
 * Find the nearest node with too little, from all nodes with too much (Dijkstra); ties to the lowest node.
 * Returns -1 if there is none, which cannot happen.
 */
static int
nearest_deficit(GkFlow *f)
{
	int			nodes = f->k + 1;

	for (int v = 0; v < nodes; v++)
	{
		f->dist[v] = f->excess[v] > 0 ? 0 : NONE;
		f->from[v] = -1;
		f->done[v] = false;
	}
	for (;;)
	{
		int			u = -1;

		for (int v = 0; v < nodes; v++)
			if (!f->done[v] && f->dist[v] != NONE && (u < 0 || f->dist[v] < f->dist[u]))
				u = v;
		if (u < 0 || f->excess[u] < 0)
			return u;
		f->done[u] = true;
		for (int v = 0; v < nodes; v++)
		{
			int64_t		r;

			if (f->done[v] || v == u || (r = reduced(f, u, v)) == NONE)
				continue;
			if (f->dist[u] + r < f->dist[v])
			{
				f->dist[v] = f->dist[u] + r;
				f->from[v] = u;
			}
		}
	}
}

/* Units that can go along a path to the node: one if a row moves. */
static int64_t
capacity(const GkFlow *f, int to)
{
	int64_t		units = -f->excess[to];
	int			v = to;

	for (int u; (u = f->from[v]) >= 0; v = u)
	{
		int64_t		c = u == f->k ? f->flow[v] - f->min_size : v == f->k ? f->max_size - f->flow[u] : 1;

		units = c < units ? c : units;
	}
	return f->excess[v] < units ? f->excess[v] : units;
}

/* Send units along the path to the node; returns how many. */
static int64_t
augment(GkFlow *f, int to)
{
	int64_t		units = capacity(f, to);
	int			v = to;

	f->excess[to] += units;
	for (int u; (u = f->from[v]) >= 0; v = u)
	{
		if (u == f->k)
			f->flow[v] -= units;
		else if (v == f->k)
			f->flow[u] += units;
		else
		{
			/* what v itself sent on has left its list of moves alone */
			int32_t		row = gk_near_moves(f, u, v)[0].row;

			unlink_row(f, row);
			link_row(f, row, v);
			gk_near_add(f, v, row);
		}
	}
	f->excess[v] -= units;

	/* only clusters of the path have other moves now */
	for (v = to; v >= 0; v = f->from[v])
		if (v != f->k)
			gk_near_edges(f, v);
	return units;
}

static void
fill_cluster(void *arg, int64_t job, int thread)
{
	(void) thread;
	gk_near_fill(arg, (int) job);
}

/*
 * Prices relative to node k's, which is put among the others' if it is not: then all of their reduced costs
 * stay as they should be, and prices do not grow from one assignment to the next.
 */
static void
settle_prices(GkFlow *f)
{
	int64_t		low = f->price[0];
	int64_t		high = f->price[0];
	int64_t		zero = f->price[f->k];

	for (int j = 1; j < f->k; j++)
	{
		low = f->price[j] < low ? f->price[j] : low;
		high = f->price[j] > high ? f->price[j] : high;
	}
	zero = zero < low ? low : zero > high ? high : zero;
	for (int j = 0; j < f->k; j++)
		f->price[j] -= zero;
	f->price[f->k] = 0;
}

static GkStatus
find_paths(GkFlow *f, int64_t units, GkError *err)
{
	if (units > 0 && !gk_parallel_for(f->host, f->k, fill_cluster, f))
		return GK_STOPPED;
	while (units > 0)
	{
		int			to = nearest_deficit(f);

		if (to < 0)
			return gk_fail(err, GK_ERR_INTERNAL, "no path between clusters of bounded sizes");
		for (int v = 0; v <= f->k; v++)
			f->price[v] -= f->dist[v] < f->dist[to] ? f->dist[v] : f->dist[to];
		units -= augment(f, to);
		f->work += (int64_t) f->k * f->k;
		if (f->work >= POLL_WORK)
		{
			f->work = 0;
			if (f->host->poll && f->host->poll(f->host->ctx))
				return GK_STOPPED;
		}
	}
	settle_prices(f);
	return GK_OK;
}

static bool
assign_all(GkFlow *f)
{
	return gk_parallel_for(f->host, (f->n + JOB_ROWS - 1) / JOB_ROWS, assign_rows, f);
}

GkStatus
gk_flow_solve(GkFlow *f, GkError *err)
{
	int64_t		units;

	if (!assign_all(f))
		return GK_STOPPED;
	units = begin_flow(f);
	if (units > f->n / MANY && f->n / STEP >= (int64_t) f->k * STEP)
	{
		GkFlow		few = *f;
		GkStatus	st;

		/* the arrays are the same, so are the prices; bounds are rounded to where they stay possible */
		few.stride = f->stride * STEP;
		few.n = (f->n + STEP - 1) / STEP;
		few.min_size = f->min_size * few.n / f->n;
		few.max_size = (f->max_size * few.n + f->n - 1) / f->n;
		if ((st = gk_flow_solve(&few, err)) != GK_OK)
			return st;
		if (!assign_all(f))
			return GK_STOPPED;
		units = begin_flow(f);
	}
	return find_paths(f, units, err);
}
