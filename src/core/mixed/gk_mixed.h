/*
 * gk_mixed.h - k-prototypes: clusters of rows that have numbers and categories (Huang, "Extensions to the
 * k-Means Algorithm for Clustering Large Data Sets with Categorical Values", 1998).
 *
 * A row's cost in a cluster is the squared distance of its numbers to the cluster's means, plus gamma for
 * each category that is not the cluster's mode.  A category is a number from 0 on; nothing is made of them
 * that is as wide as there are categories, but the counts from which the modes come.
 *
 * Numbers are float32 on the grid of their column (gk_to_grid), so sums are of integers; costs are sums of
 * float32 in the order of the columns, numbers first; ties go to the lowest number.  So neither threads nor
 * the instruction set nor the order of rows matter to what one iteration makes of its centroids.
 */
#ifndef GK_MIXED_H
#define GK_MIXED_H

#include "core/gk_core.h"

/* Rows of x and code are padded to a multiple of this. */
#define GK_MIXED_ROWS	64

typedef struct GkMixed
{
	const GkHost *host;
	int64_t		n;
	int64_t		stride;			/* n, padded */
	int			d;				/* numbers */
	int			c;				/* categories */
	int			k;
	float	   *x;				/* [d][stride] on the grids 2^(expo[j] - 40) */
	int		   *expo;			/* [d] no |x[j][i]| is above 2^expo[j] */
	int32_t    *code;			/* [c][stride] */
	int32_t    *codes;			/* [c] codes are below that */
	float		gamma;

	/* the clusters */
	float	   *mean;			/* [k][d] */
	double	   *exact;			/* [k][d] means before they are rounded to what rows are compared with */
	int32_t    *mode;			/* [k][c] */
	int64_t    *size;			/* [k] */
	int32_t    *label;			/* [stride] */
	int32_t    *tallied;		/* [n] the labels that counts and sums are of; -1: none */
	int32_t    *moved;			/* [n] rows, by blocks, that the last assignment moved */
	float	   *cost;			/* [stride] in the row's cluster */
	int			iterations;
	bool		converged;		/* no label changes any more, nor would a single move lower the cost */
	double		objective;		/* sum of cost, rounded once */

	int32_t    *count;			/* [k][codes[j]] for each category, of the labels */
	int32_t   **counts;			/* [c] where each one's begin */
	gk_int128  *sum;			/* [d][k] */
	gk_int128  *total;			/* [k] of costs */
	double	   *spent;			/* [k] the same, rounded once */
	void	   *block;			/* of each block of rows: what a pass finds there */
	void	   *tally;			/* of each thread, beside one of all: its sums and counts */
} GkMixed;

/* Allocate the clusters of a problem that is described (the rows are the caller's); gk_mixed_free() in any case. */
GkStatus	gk_mixed_alloc(GkMixed *m, GkError *err);
void		gk_mixed_free(GkMixed *m);

/* Bytes for that many rows, and for the clusters. */
double		gk_mixed_bytes(int64_t n, int d, int c, int k, double codes);

/* Begin with rows that k-means++ (Arthur and Vassilvitskii, 2007) chooses by the cost. */
GkStatus	gk_mixed_seed(GkMixed *m, int64_t seed, int run, GkError *err);

/*
 * Assign and update until no label changes and, of few rows, no single move lowers the cost; or max_iter times, and
 * assign once more.  Counts, sizes and costs are those of the labels.
 */
GkStatus	gk_mixed_fit(GkMixed *m, int max_iter, GkError *err);

/* What a row costs in a cluster: its numbers and categories, and the cluster's. */
float		gk_mixed_cost(const float *x, const int32_t *code, const float *mean, const int32_t *mode, int d, int c, float gamma);

/* Take a row into another cluster, in its label and in all sums and counts. */
void		gk_mixed_move(GkMixed *m, int64_t row, int to);

/* ---- gk_mixed_moves.c ---- */

/* Are there few enough rows for gk_mixed_moves()? */
bool		gk_mixed_moves_suit(const GkMixed *m);

/*
 * Move single rows, in their order, wherever that lowers the cost with the means and modes that follow from it, which
 * the nearest cluster alone does not tell.  *moved: how many.  With look_only none moves, and *moved is 1 if one would.
 */
GkStatus	gk_mixed_moves(GkMixed *m, bool look_only, int64_t *moved, GkError *err);

/* ---- gk_mixed_assign.c ---- */

/* Nearest of k clusters, and the cost in it, of rows [first, end), multiples of GK_MIXED_ROWS. */
typedef void (*GkMixedAssign) (const GkMixed *m, int first_cluster, int64_t first, int64_t end, int32_t *label, float *cost);

/* That of the instruction set that is in use. */
GkMixedAssign gk_mixed_assign(void);

#endif							/* GK_MIXED_H */
