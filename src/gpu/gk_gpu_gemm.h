/*
 * gk_gpu_gemm.h - nearest centroids by a matrix product of rounded points and centroids, and the exact
 * distances only where the product does not decide.
 *
 * Words:
 *   part       a point or a centroid as float16: its high part alone, or high and low parts.  A row of the
 *              product is one part (x_hi) or three (x_hi, x_lo, x_hi), multiplied with (c_hi) or
 *              (c_lo, c_hi, c_hi): the small products come first, so that little of them is lost
 *   rounded    y for a point, b for a centroid: the sum of its parts, divided by the common scale
 *   score      s_j = |b_j|^2 / 2 - y . b_j, so that |y - b_j|^2 = |y|^2 + 2 s_j
 *   unit       scores are compared as integers, multiples of a power of two
 *   key        64 * score + a number that tells the column, 32 bits
 *   bound      what is known of a row's rounding: |y|^2, |y|, |x - y|, |x_lo|
 *   undecided  a row whose second smallest score might belong to the nearest centroid; its candidates are
 *              the centroids that might
 *
 * Why the label is the canonical argmin (all lengths in the common scale).  Let r_j = |x - c_j|, D~_j its
 * canonical square, |D~_j - r_j^2| <= g r_j^2 + t with g = (d + 3) 2^-24 and t = d 2^-148 for what underflows.
 *  1. | r_j - |y - b_j| | <= e, with e = |x - y| + max |c_j - b_j|: the triangle inequality, twice.
 *  2. |y - b_j|^2 = w + 2 s_j with w = |y|^2, and the computed score is within a of s_j.
 *  3. So sqrt(w + 2 s~_j - 2 a) - e <= r_j <= sqrt(w + 2 s~_j + 2 a) + e.
 *  4. With i the smallest score found, R = sqrt(w + 2 s~_i + 2 a) + e >= r_i.  If r_j^2 (1 - g) - t >
 *     R^2 (1 + g) + t, then D~_j > D~_i, and j is not the canonical argmin, nor does it tie with it.
 *  5. By 3 that is so if s~_j > ((T + e)^2 - w) / 2 + a, where T^2 = (R^2 (1 + g) + 2 t) / (1 - g).
 *  If that holds for all j but i, the label is i; otherwise the label is the best, by canonical distance,
 *  of those for which it does not hold.
 *
 * a is the sum of: half a unit each for the rounding of the product and of |b|^2 / 2; w 2^-24 for the
 * rounding of w; |x_lo| max |c_lo|, the product of parts that is left out; and what the tensor core loses in
 * its sums.  For that it is assumed that adding 16 products to a sum loses at most 16 * 2^-24 of the largest
 * magnitude there, ten times what was measured; gk_gpu_gemm_probe() tests it on the device at hand.
 */
#ifndef GK_GPU_GEMM_H
#define GK_GPU_GEMM_H

#include <cuda_fp16.h>

#include "gpu/gk_gpu.h"

#define GK_GEMM_ROWS	128		/* of a tile */
#define GK_GEMM_COLUMNS	256		/* centroids of a tile */
#define GK_GEMM_DEPTH	64		/* float16 values of a row that are brought at a time */
#define GK_GEMM_PAD		(1 << 30)	/* the key of a centroid that is not there; of others: less */
#define GK_GEMM_MAX_SLACK	((1 << 24) - 2)	/* units: more rules nothing out */
#define GK_GEMM_TOP		10		/* the common scale brings all points into +-2^it */

/* Of a row, in the common scale; rounded up but for the first. */
typedef struct GkGemmBound
{
	float		square;			/* |y|^2, to nearest */
	float		length;			/* |y| */
	float		rest;			/* |x - y| */
	float		low;			/* |x_lo| */
} GkGemmBound;

/* What is known of all centroids, and what a pass counts.  In device memory. */
typedef struct GkGemmState
{
	unsigned int length;		/* bits of floats: max |b_j|, max |c_j - b_j|, max |c_lo| */
	unsigned int rest;
	unsigned int low;
	float		unit;
	float		magic;			/* 1.5 * 2^23 units */
	/* Of a slice. */
	int			undecided;
	int			pairs;
	int			crowded;		/* undecided rows whose candidates had no room */
	/* Of a pass. */
	unsigned long long all_undecided;
	unsigned long long all_pairs;
	unsigned long long parts;
} GkGemmState;

/* What a product is for. */
typedef enum GkGemmUse
{
	GK_GEMM_LABELS,				/* the smallest score; the row is decided or not */
	GK_GEMM_CANDIDATES,			/* the centroids that an undecided row must be compared with */
	GK_GEMM_DUMP				/* the products themselves: for the probe */
} GkGemmUse;

/* An undecided row and a candidate. */
typedef struct GkGemmPair
{
	int			at;				/* in the list of undecided rows */
	int			centroid;
} GkGemmPair;

typedef struct GkGemmArgs
{
	int			rows;
	const int  *count;			/* in device memory, rows from `from` on up to it; NULL: all */
	int			from;
	int			first;			/* of the points' tensor */
	int			slices;			/* of GK_GEMM_DEPTH values */
	int			tiles;			/* of centroids */
	int			d;
	int			parts;
	double		tiny;			/* 2 t */
	const int  *keys;			/* [tiles * GK_GEMM_COLUMNS]: of |b_j|^2 / 2, less the magic number's */
	GkGemmState *state;
	/* Labels. */
	const GkGemmBound *bound;
	GkLabels	labels;
	int		   *list;			/* undecided rows */
	int		   *limit;			/* the largest key that a candidate has */
	/* Candidates, of the rows in the list. */
	GkGemmPair *pair;
	int			pair_room;
	int		   *crowd;			/* places in the list */
	unsigned char *in_crowd;	/* [list] */
	/* Dump. */
	float	   *dump;			/* [rows][tiles * GK_GEMM_COLUMNS] */
} GkGemmArgs;

struct GkGemm
{
	bool		built;
	bool		off;			/* not possible, or not worth it */
	bool		probed;
	int			parts;			/* 1 or 3 */
	int			width;			/* of a row of the product, float16 values */
	int			pitch;			/* of a row of x, floats */
	float		scale;			/* of points and centroids, a power of two */
	float	   *x;				/* [n][pitch]: the points, row-major */
	__half	   *y;				/* [n][width] */
	GkGemmBound *bound;			/* [n] */
	/* Of the centroids, sized for k_room. */
	int			k_room;
	__half	   *b;				/* [k][width] */
	float	   *c;				/* [k][pitch]: as they are */
	double	   *half_square;	/* [k]: |b_j|^2 / 2 */
	int		   *keys;
	unsigned int *longest;		/* bits of max |y| over all points */
	GkGemmState *state;
	/* Of a slice, sized for rows_room. */
	int64_t		rows_room;
	int		   *list;
	int		   *limit;
	unsigned long long *best;	/* distance and label of the undecided */
	unsigned char *in_crowd;
	int		   *crowd;
	GkGemmPair *pair;
	int			pair_room;
	__half	   *gathered;		/* [gather_rows][width] */
	int			gather_rows;
};

static inline int
gk_gemm_tiles(int k)
{
	return (k + GK_GEMM_COLUMNS - 1) / GK_GEMM_COLUMNS;
}

/* ---- gk_gpu_gemm_wgmma.cu ---- */

/* Can this device do it?  Hopper only. */
bool		gk_gpu_gemm_supported(const GkSession *s);

/* One product of the rows of `points` ([rows][width]) with k centroids. */
GkStatus	gk_gpu_gemm_multiply(GkSession *s, GkGemmUse use, const __half *points, int64_t points_rows,
								 const __half *centroids, int k, int width, const GkGemmArgs *a, GkError *err);

/* ---- gk_gpu_gemm_round.cu ---- */

/* Round all resident points: x, y and their bounds. */
GkStatus	gk_gpu_gemm_round_points(GkSession *s, GkGemm *g, GkError *err);

/* Round k centroids ([k][d] in device memory), choose the unit, make their keys. */
GkStatus	gk_gpu_gemm_round_centroids(GkSession *s, GkGemm *g, const float *centroids, int k, GkError *err);

/* Do the tensor core's sums lose no more than is assumed? */
GkStatus	gk_gpu_gemm_probe(GkSession *s, bool *good, GkError *err);

/* ---- gk_gpu_gemm_recheck.cu ---- */

/* Labels of the slice's undecided rows, from canonical distances of their candidates. */
GkStatus	gk_gpu_gemm_recheck(GkSession *s, GkGemm *g, const GkRows *rows, int k, GkGemmArgs *a, GkError *err);

#endif							/* GK_GPU_GEMM_H */
