/*
 * gk_balanced.h - k-means whose clusters have sizes between two bounds (Bradley, Bennett and Demiriz,
 * "Constrained K-Means Clustering", 2000).
 *
 *   gk_balanced.c        a backend whose assignment is the cheapest one within the bounds; a fit by it
 *   gk_balanced_flow.c   that assignment, by shortest paths among the clusters
 *   gk_balanced_near.c   the cheapest moves of a row from one cluster to another
 *
 * Costs are canonical squared distances (times the weight), cut off 48 bits below a power of two that none
 * exceeds.  All arithmetic on them is of integers, so the assignment is exactly the cheapest one.
 */
#ifndef GK_BALANCED_H
#define GK_BALANCED_H

#include "core/gk_core.h"

/* A path of that many moves, of costs below 2^49, stays within 64 bits. */
#define GK_MAX_BALANCED_K	4096

/*
 * Fit clusters of at least min_size and at most max_size rows, on the CPU; sink as for gk_fit().
 * options->min_size is at least 1.
 */
GkStatus	gk_balanced_fit(GkStore *store, const GkOptions *options, const GkLabelSink *sink,
							GkModel *model, GkError *err);

/* ---- the cheapest assignment ---- */

/* What a row's move to another cluster adds to the sum of costs. */
typedef struct GkMove
{
	int64_t		cost;
	int32_t		row;
} GkMove;

/*
 * Moves from cluster a to cluster b, a heap with the cheapest first; ties to the lowest row.  It has
 * those of all rows of a up to a last one; of a row that has left a, they stay until they come first.
 */
typedef struct GkNear
{
	int			count;
	bool		complete;		/* no row of a is left out */
	GkMove		last;
} GkNear;

/* k clusters are nodes 0 .. k - 1, node k balances what the bounds leave open. */
typedef struct GkFlow
{
	const GkHost *host;
	int64_t		n;
	int64_t		stride;			/* the rows are every stride-th one, numbered from 0 */
	int			k;
	int64_t		min_size;
	int64_t		max_size;
	const float *d2;			/* [n][k] */
	const float *weight;		/* [n] or NULL */
	int			expo;			/* no cost is above 2^expo */
	double		scale;			/* of costs, to integers */

	int32_t    *label;			/* [n] the assignment */
	int32_t    *next;			/* [n] rows of a cluster, -1: no more */
	int32_t    *prev;
	int32_t    *head;			/* [k] */
	int64_t    *size;			/* [k] rows */
	int64_t    *flow;			/* [k] rows that leave to node k: within the bounds */
	int64_t    *excess;			/* [k + 1] */
	int64_t    *price;			/* [k + 1] added to a row's cost of a cluster; kept for the next assignment */

	int			room;			/* moves that are looked for at a time */
	GkNear	   *near;			/* [k][k] */
	GkMove	   *move;			/* [k][k][2 * room] */
	int64_t    *edge;			/* [k][k] the cheapest move; INT64_MAX: none */

	int64_t    *dist;			/* [k + 1] of the path at hand */
	int		   *from;
	bool	   *done;
	int64_t		work;			/* since the last poll */
} GkFlow;

static inline int64_t
gk_flow_cost(const GkFlow *f, int64_t row, int cluster)
{
	double		d2 = f->d2[row * f->stride * f->k + cluster];

	return (int64_t) ((f->weight ? d2 * f->weight[row * f->stride] : d2) * f->scale);
}

/* Bytes that an assignment of n rows to k clusters takes, distances and labels included. */
double		gk_flow_bytes(int64_t n, int k, bool weighted);

/* Allocate all but d2 and weight for n rows and at most k_max clusters. */
GkStatus	gk_flow_alloc(GkFlow *f, const GkHost *host, int64_t n, int k_max, GkError *err);
void		gk_flow_free(GkFlow *f);

/* Find the cheapest assignment of f->k clusters within the bounds, which are possible. */
GkStatus	gk_flow_solve(GkFlow *f, GkError *err);

/* gk_balanced_near.c: list the moves out of cluster a, anew. */
void		gk_near_fill(GkFlow *f, int a);

/* Add the moves of a row that has come to cluster a. */
void		gk_near_add(GkFlow *f, int a, int32_t row);

/* Find the cheapest moves out of cluster a: f->edge. */
void		gk_near_edges(GkFlow *f, int a);

static inline GkMove *
gk_near_moves(const GkFlow *f, int a, int b)
{
	return f->move + ((size_t) a * f->k + b) * 2 * f->room;
}

#endif							/* GK_BALANCED_H */
