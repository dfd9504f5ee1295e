/*
 * gk_gpu_gemm.h - nearest centroids by a matrix product of rounded points and centroids, and the exact
 * distances only where the product does not decide.
 *
 * Words:
 *   pivot      a point p near some rows, which are rounded as x - p; without pivots there is one, 0
 *   middle     a point q near some pivots and the centroids about them.  For the rows of these pivots the
 *              centroids are rounded as c - q: a copy of them for each middle.  Without pivots it is 0
 *   place      rows lie in the order of their pivots, each pivot's rows padded to whole tiles; without
 *              pivots a row's place is its number
 *   rounded    y' for x - p, and y = p + y'; b for c - q; divided by the common scale
 *   score      s_j: what is left of half a square distance when what all j have in common is taken away
 *   unit       scores are compared as integers, multiples of a power of two
 *   key        64 * score + a number that tells the column, 32 bits
 *   column     a centroid's place; with pivots near centroids lie together
 *   head       the first values of a row, whole slices of them; the tail is the rest
 *   near       columns not much farther from a row than its last centroid, of which it keeps bounds from pass to pass
 *   undecided  a row whose second smallest score might belong to the nearest centroid; its candidates are
 *              the centroids that might
 *
 * Why the label is the canonical argmin (all lengths in the common scale).  Let r_j = |x - c_j|, D~_j its
 * canonical square, |D~_j - r_j^2| <= g r_j^2 + t with g = (d + 3) 2^-24 and t = d 2^-148 for what underflows.
 *
 * Without pivots, by distances: s_j = |b_j|^2 / 2 - y . b_j, so that |y - b_j|^2 = w + 2 s_j with w = |y|^2.
 *  1. | r_j - |y - b_j| | <= e, with e = |x - y| + max |c_j - b_j|: the triangle inequality, twice.
 *  2. |y - b_j|^2 = w + 2 s_j, and the computed score s~_j is within a of s_j.
 *  3. So sqrt(w + 2 s~_j - 2 a) - e <= r_j <= sqrt(w + 2 s~_j + 2 a) + e.
 *  4. With i the smallest score found, R = sqrt(w + 2 s~_i + 2 a) + e >= r_i.  If r_j^2 (1 - g) - t >
 *     R^2 (1 + g) + t, then D~_j > D~_i, and j is not the canonical argmin, nor does it tie with it.
 *     Let out(R) = sqrt((R^2 (1 + g) + 2 t) / (1 - g)): r_j > out(R) is that.
 *  5. By 3 that is so if s~_j > ((out(R) + e)^2 - w) / 2 + a.
 *  If that holds for all j but i, the label is i; otherwise the label is the best, by canonical distance,
 *  of those for which it does not hold.
 * a is the sum of: half a unit each for the rounding of the product and of |b|^2 / 2; |w| 2^-24 for the
 * rounding of w; and what the tensor core loses in its sums.
 *
 * With pivots, by scores: s_j = |c_j - p|^2 / 2 - y' . b_j.
 *  6. r_j^2 = |x - p|^2 + 2 f_j with f_j = |c_j - p|^2 / 2 - (x - p) . (c_j - p).  With x - p = y' + u and
 *     c_j - q = b_j + v_j, f_j = s_j + y' . (p - q) - y' . v_j - u . (c_j - p): so f_j is within z_j of
 *     s_j + y' . (p - q) with z_j = E |c_j - p| + Y (|v_j| + T |b_j|), where E and Y are the largest |u| and
 *     |y'| of the pivot's rows, and T |y'| |b_j| is what the tensor core loses.  (z_j also has what float32
 *     loses in |c_j - p|^2 / 2.)
 *  7. Keys are made of s_j - z_j.  With i the smallest of these found, f_i <= s~_i + 2 z_i + a, and f_j >= s~_j - a
 *     for the others, in units that have y' . (p - q) taken away; a is a unit for both roundings.
 *  8. r_j^2 - r_i^2 = 2 (f_j - f_i): if f_j - f_i > (g r_i^2 + t) / (1 - g), then D~_j > D~_i.  r_i^2 is at most
 *     w + 2 (s~_i + 2 z_i + a) with w = |y'|^2 + 2 y' . (p - q) + |u| (2 |y'| + |u|).
 *  9. A part of a tile of columns is left out for some rows of one pivot if all its |c_j - p| - l > out(R) with
 *     R = min_j |c_j - p| + l, where l = max |y'| + max |u|: the triangle inequality, by way of p.
 * 10. A product of heads alone, with h and t for head and tail, leaves y'_t . b_jt out, which is at most Y_t |b_jt|,
 *     where Y_t is the largest |y'_t| of the pivot's rows: that is added to z_j.  With i the last label's centroid and
 *     y' . b_i summed over all values, f_i <= s_i + z_i without what was added, so that 8 rules out what is farther,
 *     by the head, than the last centroid is.  A candidate's whole y' . b_j tells, the same way, whether it needs a
 *     canonical distance; if none does the label stays (gk_gpu_gemm_head.cu).
 * 11. A row may keep U >= r_i, of its last centroid i, and lower bounds: B_j <= r_j for each near column, and B for all others.
 *     If c_j moves by m_j, r_j changes by no more than |m_j|, so U + |m_i|, B_j - |m_j| and B - max |m_j| are bounds of the
 *     next pass.  Where all of the latter are above out(U), D~_j > D~_i for all j, and the label stays.  7 and 8 give U, and in
 *     the same way r_j^2 >= w' + 2 (s~_j - z_j - a), with w' = |y'|^2 + 2 y' . (p - q) - |u| (2 |y'| + |u|).  A product of all columns
 *     finds those near, up to a key; the others are as far as the next key says.  Parts left out by 9 are, if it asks for
 *     |c_j - p| - l > R for some R as well, farther than R.  If the label becomes j, D~_j <= D~_i, so that r_j <= out(U): that is what is
 *     kept (gk_gpu_gemm_near.cu).
 * Errors are in proportion to |c_j - p| and |c_j - q|, not to the distances, and centroids near a row's pivot
 * are what the row has to be compared with: in clumps of many features they are much nearer to each other
 * than to the points.
 *
 * The tensor core: it is assumed that adding 16 products to a sum loses at most 16 * 2^-24 of the largest
 * magnitude there, three times what gk_gpu_gemm_probe() allows the device at hand; so T = (d + 16) 2^-24.
 */
#ifndef GK_GPU_GEMM_H
#define GK_GPU_GEMM_H

#include <math.h>

#include <cuda.h>
#include <cuda_fp16.h>

#include "gpu/gk_gpu.h"

#define GK_GEMM_ROWS	256		/* that have one pivot, at least */
#define GK_GEMM_STREAM_ROWS		128 /* of a block's tile, gk_gpu_gemm_stream.cu */
#define GK_GEMM_STREAM_COLUMNS	256
#define GK_GEMM_STAY_COLUMNS	128 /* gk_gpu_gemm_stay.cu */
#define GK_GEMM_PART	64		/* columns of a tile that may be left out without the others */
#define GK_GEMM_PARTS	4		/* of a tile, at most */
#define GK_GEMM_SAMPLE	16		/* of this many tiles of rows, the tiles that one needs are counted, by their
								 * parts */
#define GK_GEMM_STAY_SLICES		4	/* of a row's values that can stay */
#define GK_GEMM_BUNCH	4		/* tiles of rows whose needs are made the same, if they have one pivot */
#define GK_GEMM_DEPTH	64		/* float16 values of a row that are brought at a time, but for the last ones */
#define GK_GEMM_PAD		(1 << 30)	/* keys of columns without a centroid are not below it, those of others
									 * are */
#define GK_GEMM_FAR		(3 << 22)	/* units of a key without its product, at most and at least: what is
									 * beyond them is as far */
#define GK_GEMM_MAX_LIMIT	(1 << 23)	/* units: a limit above it rules nothing out */
#define GK_GEMM_MAX_SLACK	(1 << 24)	/* units: the same */
#define GK_GEMM_NOT_YET	0xffffffffffffffffULL	/* a distance and a label: none */
#define GK_GEMM_CROWDED	1		/* a row whose candidates had no room ... */
#define GK_GEMM_KEPT	2		/* ... or that has a pair after a look at whole rows */
#define GK_GEMM_NO_LIMIT	((int) 0x80808080)	/* of a row without candidates */
#define GK_GEMM_TOP		10		/* the common scale brings all points into +-2^it */
#define GK_GEMM_WORD	16		/* rows that a warp judges together: a word says which of them it leaves
								 * undecided */
#define GK_GEMM_PAIRS	128		/* that a warp takes room for at a time */
#define GK_GEMM_PIVOTS	1024	/* at most */
#define GK_GEMM_GROUPS	48		/* of centroids, at most */
#define GK_GEMM_WHOLE	(GK_GEMM_HEADS - 1) /* the head that is all of a row */
#define GK_GEMM_MIDDLES	48		/* at most */
#define GK_GEMM_NEAR_COLUMNS	32	/* of a row, at most */
#define GK_GEMM_NEAR_K	65000	/* clusters, at most: a column has 16 bits, and 0xffff is none */
#define GK_GEMM_NONE	0xffff0000u
#define GK_GEMM_NEAR_SCALE	8.0f	/* a distance in the common scale that is 1 in float16 */

/* Of a row, in the common scale; rounded up. */
typedef struct GkGemmBound
{
	float		length;			/* |y'| */
	float		rest;			/* |u| = |x - y| */
} GkGemmBound;

/* Of a pivot's rows, of a tile's, or of all centroids: bits of the largest of each, so that they can be raised by atomics. */
typedef struct GkGemmReach
{
	unsigned int length;
	unsigned int rest;
} GkGemmReach;

/* What a tile of rows needs; 16 bytes, one load. */
typedef struct GkGemmNeeds
{
	int			count;			/* of tiles of columns */
	int			pivot;
	int			copy;			/* of the centroids */
	int			unused;			/* to be 16 bytes */
} GkGemmNeeds;

/* What is known of all centroids, and what a pass counts.  In device memory. */
typedef struct GkGemmState
{
	GkGemmReach raised[2];		/* by the centroids of this pass, at GkGemm.turn; of the next one 0 */
	float		length;			/* max |b_j|, max |v_j|: of this pass */
	float		rest;
	float		unit;
	float		magic;			/* 1.5 * 2^23 units */

	/*
	 * How far the centroid moved that moved most: bits of this pass, as raised; and the sum since rows keep
	 * bounds.
	 */
	unsigned int moving[2];
	float		most;
	/* Of a slice. */
	int			listed;			/* undecided so far; 0 between slices */
	int			undecided;
	int			gathered;		/* the same, each pivot's padded to whole tiles */
	int			pairs;
	int			kept;			/* of the pairs, after a look at whole rows */
	int			crowded;		/* undecided rows whose candidates had no room */
	GkGemmCounts all;			/* of a pass */
} GkGemmState;

/* What a product is for. */
typedef enum GkGemmUse
{
	GK_GEMM_LABELS,				/* the two smallest scores of each row */
	GK_GEMM_CANDIDATES,			/* the centroids that an undecided row must be compared with */
	GK_GEMM_DUMP				/* the products themselves: for the probe */
} GkGemmUse;

/* An undecided row and a candidate. */
typedef struct GkGemmPair
{
	int			at;				/* among the gathered; -1: no pair */
	int			column;
} GkGemmPair;

/* An undecided row whose near columns are wanted. */
typedef struct GkGemmWide
{
	int			at;				/* its place in the slice */
	int			limit;			/* their largest key */
	float		reach;			/* how far they may be away */
	int			listed;			/* the largest key up to which all of them found room ... */
	int			count;			/* ... and how many there are */
	int			candidate;		/* the largest key of a candidate */
} GkGemmWide;

/* What is known of a place's row from pass to pass, in the common scale. */
typedef struct GkGemmKnown
{
	float		upper;			/* its last centroid's distance, at most */
	/* At least, in GK_GEMM_NEAR_SCALE, with what the centroid that had moved most had moved by then. */
	__half		nearest;		/* all other centroids' */
	__half		beyond;			/* those' that are not among its near columns */
} GkGemmKnown;

/* A product's arguments; what follows `state` depends on the use. */
typedef struct GkGemmArgs
{
	int			rows;
	const int  *count;			/* in device memory, rows from `from` on up to it; NULL: all */
	int			from;
	const int  *done;			/* in device memory: no rows any more; NULL: all */
	int			first;			/* place of the first row, a multiple of GK_GEMM_ROWS */
	int			slices;			/* of GK_GEMM_DEPTH values */
	int			tiles;			/* of columns */
	int			k;
	int			d;
	int			copies;			/* of the centroids; 0: one */
	float		tiny;			/* the square root of 2 t, rounded up */
	/*
	 * What each GK_GEMM_ROWS places need, and which tiles of columns, [tiles] of each: GK_GEMM_PARTS bits for its
	 * parts, the tile above them.  NULL: not sorted, all need all.
	 */
	const GkGemmNeeds *needs;
	const int  *need;
	const int  *keys;			/* [pivots][key_pitch]: of what is known of s_j but for its product */
	const float *z;				/* [pivots][key_pitch]: z_j; NULL: by distances */
	int			key_pitch;
	GkGemmState *state;
	/* Labels. */
	const float *w;				/* [places, to whole tiles], as the two that follow */
	const GkGemmBound *bound;
	const int  *row;			/* NULL: the same */
	const int  *centroid;		/* [key_pitch]: of columns; NULL: the same */
	GkLabels	labels;			/* of all rows */
	unsigned int *undecided;	/* [rows / GK_GEMM_WORD]: which of these rows are, as gk_gemm_row_of() says */
	int		   *limits;			/* [rows], of undecided ones: the largest key of a candidate */
	/* Candidates, of gathered rows; row, if any: -1: padding, behind a pivot's rows. */
	const int  *limit;
	const int  *own;			/* a column of each that is no candidate; NULL, -1: none */
	GkGemmPair *pair;
	int			pair_room;
	int		   *in_crowd;		/* rows whose candidates had no room: GK_GEMM_CROWDED, and a list of them;
								 * NULL: not wanted */
	int		   *crowd;
	float	   *dump;			/* [rows][key_pitch] */
} GkGemmArgs;

/* The order of rows and columns about some pivots: gk_gpu_gemm_sort.cu. */
typedef struct GkGemmOrder
{
	int			pivots;			/* at least 1 */
	float	   *pivot_at;		/* [pivots][pitch] */
	int		   *copy;			/* [pivots]: which copy, and which middle */
	int			copies;			/* at least 1 */
	float	   *middle;			/* [copies][pitch] */
	int		   *pivot;			/* [tiles of rows] */
	int		   *row;			/* [places]: -1: padding; NULL: a row's place is its number */
	int		   *centroid;		/* [columns, to whole tiles]: NULL: the same */
	int			columns;
	int64_t		places;
} GkGemmOrder;

struct GkGemm
{
	bool		built;
	bool		old;			/* the order: a new one pays */
	bool		off;			/* not possible, or not worth it */
	bool		sort;			/* by labels, wanted from now on */
	bool		no_room;		/* for an order */
	bool		calm;			/* few rows were undecided */
	unsigned long long sorts;	/* so far */
	/* Since the last one: passes, what the shortest took, and what all took beside that, in milliseconds. */
	int			passes;
	double		shortest;
	int			shortest_head;
	double		wasted;

	/*
	 * The head of the next passes; the one whose tails tail_reach has, -1: none; sorts when rows were
	 * sampled.
	 */
	int			head;
	int			tail_head;
	bool		has_columns;
	bool		is_renumbered;
	unsigned long long sampled_sorts;
	double		sampled_open;	/* undecided rows then, of all; below 0: not known yet */
	/* Since the last sort: pairs a row with each head, of whole rows undecided ones; below 0: not known. */
	double		open[GK_GEMM_HEADS];
	GkGemmOrder order;
	int			width;			/* of a row, float16 values ... */
	int			depth;			/* ... and of its product, in this pass */
	int			pitch;			/* of a row of x, floats */
	float		scale;			/* of points and centroids, a power of two */
	float	   *x;				/* [n][pitch]: the points, row-major */
	__half	   *y;				/* [places][width], as gk_gemm_at() says */
	float	   *w;				/* [places], without pivots to nearest, else rounded up */
	GkGemmBound *bound;			/* [places] */
	/* Of the centroids, sized for k_room. */
	int			k_room;
	__half	   *b;				/* [copies * columns][width], the same */
	double	   *square;			/* [columns]: |b_j|^2; not sorted */
	float	   *lost;			/* [copies][columns]: |v_j| + T |b_j|; sorted */
	float	   *tail;			/* [2][copies][columns]: |b_jt| of the head, and of one twice as deep;
								 * sorted, as the next two */
	unsigned int *tail_reach;	/* [2][pivots]: bits of the largest |y'_t| of each, the same */
	int		   *column;			/* [columns]: of each centroid */
	int		   *numbered;		/* [columns]: as order.centroid, where centroids have other numbers now */
	float	   *c;				/* [k][pitch]: as they are */
	int		   *keys;			/* [pivots][key_pitch] */
	float	   *z;				/* [pivots][key_pitch]; sorted */
	float	   *nearest;		/* [pivots][gk_gemm_parts()]: the smallest |c_j - p| of each, rounded down */
	GkGemmNeeds *needs;			/* [places / GK_GEMM_ROWS] */
	int		   *need;			/* [places / GK_GEMM_ROWS][tiles] */
	GkGemmReach *reach;			/* [pivots] */
	GkGemmReach *tile_reach;	/* [places / GK_GEMM_ROWS]; sorted */
	unsigned int *longest;		/* bits of max |y'| over all rows */

	/*
	 * Bounds that are kept from pass to pass (gk_gpu_gemm_near.cu); NULL: there was no room, or rows are not
	 * sorted.
	 */
	bool		near_wanted;	/* from now on */
	bool		near_now;		/* in this pass */
	bool		near_built;
	int			near_wait;		/* passes until they are wanted ... */
	int			near_next_wait; /* ... and the next time, if they do not pay */
	int			near_passes;	/* with them, judged */
	double		near_open;		/* undecided rows of these, lately, of all */
	double		near_whole;		/* what other passes would take, of whole rows, or what they have taken,
								 * milliseconds */
	double		near_other;
	unsigned long long near_sorts;	/* when gaps were sampled */
	GkGemmKnown *known;			/* [places] */
	unsigned int *near;			/* [places][GK_GEMM_NEAR_COLUMNS]: a column, and a bound as those of `known`,
								 * with what this column had moved by then */
	__half	   *gap;			/* [places]: how much farther than the last centroid near columns may be */
	float	   *moved;			/* [columns]: how far each has moved, */
	float	   *checked;		/* ... and had when rows were looked at */
	GkGemmState *state;
	int			turn;
	/* Of a slice, sized for rows_room places and as many more as padding takes. */
	int64_t		rows_room;
	int			slice_k;
	unsigned int *undecided;	/* [places of the slice / GK_GEMM_WORD] */
	int		   *limits;			/* [places of the slice] */
	int		   *own;			/* [places of the slice]: columns of the last labels */
	int		   *count;			/* [pivots]: undecided so far; 0 between slices */
	int		   *begin;			/* [pivots]: where they begin among the gathered */
	int		   *list;			/* undecided places */
	int		   *rank;			/* among those of its pivot */
	int		   *gathered_row;	/* [gathered] */
	int		   *gathered_pivot; /* [tiles] */
	GkGemmBound *gathered_bound;	/* [gathered] */
	GkGemmNeeds *gathered_needs;	/* [tiles] */
	int		   *gathered_need;	/* [tiles][tiles of columns] */
	int		   *limit;			/* [gathered] */
	GkGemmWide *wide;			/* [gathered]; near columns, as the next two */
	int		   *wide_limit;		/* [places of the slice] */
	float	   *reach_near;		/* [places of the slice] */
	/* Of those, or with a head of the places of the slice. */
	unsigned long long *decided;	/* distance and label */
	int		   *in_crowd;
	int		   *crowd;
	GkGemmPair *pair;
	GkGemmPair *kept;
	int			pair_room;
	int			kept_room;
	__half	   *gathered;		/* [gather_rows][width], as y */
	int			gather_rows;
};

/* Keys are padded to whole tiles of either kernel. */
static inline int
gk_gemm_key_pitch(int k)
{
	return (k + GK_GEMM_STREAM_COLUMNS - 1) / GK_GEMM_STREAM_COLUMNS * GK_GEMM_STREAM_COLUMNS;
}

/* Columns of a tile, with rows of this width; how many tiles. */
int			gk_gpu_gemm_columns(int width);

static inline int
gk_gemm_tiles(const GkGemm *g, int k)
{
	int			columns = gk_gpu_gemm_columns(g->depth);

	return (k + columns - 1) / columns;
}

/* Parts of all tiles. */
static inline int
gk_gemm_parts(int k)
{
	return gk_gemm_key_pitch(k) / GK_GEMM_PART;
}

/* What says that the chain has stopped while its kernels were launched ahead; NULL: they are wanted. */
static inline const int *
gk_gemm_done(const GkSession *s)
{
	return s->unpaced ? s->done : NULL;
}

/* Which centroid a column has; NULL: the same number. */
static inline const int *
gk_gemm_centroids(const GkGemm *g, int k)
{
	return g->order.columns != k ? NULL : g->is_renumbered ? g->numbered : g->order.centroid;
}

/* Places of a slice's gathered rows, at most. */
static inline int64_t
gk_gemm_gather_room(const GkGemm *g, int64_t rows)
{
	return gk_round_up(rows, GK_GEMM_ROWS) + (int64_t) g->order.pivots * GK_GEMM_ROWS;
}

#ifdef __CUDACC__
/*
 * Where value j of a row is in a matrix that a product reads.  It lies in slices of GK_GEMM_DEPTH values of all rows,
 * one after the other, each row-major; the last one, the tail, has what is left, 8 to 64 values.  So a row of a full
 * slice is one line of the L2 cache, and what is brought of a tail has nothing else between.  Eight values from a
 * multiple of 8 on lie together.
 */
static __host__ __device__ __forceinline__ int64_t
gk_gemm_at(int64_t rows, int width, int64_t row, int j)
{
	int			in = j & (GK_GEMM_DEPTH - 1);
	int			first = j - in;
	int			values = width - first < GK_GEMM_DEPTH ? width - first : GK_GEMM_DEPTH;

	return first * rows + row * values + in;
}

/* A key's last bits: column 8 j + 2 quad + o of 256 is number 2 j + o of lane quad. */
static __device__ __forceinline__ unsigned int
gk_gemm_number(int column)
{
	return (unsigned int) (column % 256 / 8 * 2 + column % 2);
}

/* Which of GK_GEMM_WORD rows a lane of a warp judges, or a bit of their word tells of (of each four bits, the first two do). */
static __device__ __forceinline__ int
gk_gemm_row_of(int at)
{
	return at % 2 * 8 + at / 4;
}

/* out(R): a centroid farther than that is not the canonical argmin if another one is within R. */
static __device__ __forceinline__ double
gk_gemm_out(double r, int d, double tiny)
{
	double		g = (d + 3) * 0x1p-24;

	return sqrt((r * r * (1.0 + g) + tiny) / (1.0 - g)) * (1.0 + 0x1p-40);
}
#endif

/* 2 t, in the common scale. */
static inline double
gk_gemm_tiny(const GkSession *s, const GkGemm *g)
{
	return s->d * 0x1p-147 * (double) g->scale * g->scale;
}

/* Its root, rounded up. */
static inline float
gk_gemm_tiny_root(const GkSession *s, const GkGemm *g)
{
	return (float) (sqrt(gk_gemm_tiny(s, g)) * 1.02);
}

/* ---- gk_gpu_gemm.cu ---- */

/* Bytes for the points in their places, a slice of them, and k centroids. */
size_t		gk_gpu_gemm_bytes(const GkSession *s, const GkGemm *g, int k);

/* ---- gk_gpu_gemm_head.cu: products of the first values of a row ---- */

/* Are there heads of these rows that a product could take? */
bool		gk_gpu_gemm_has_heads(const GkGemm *g);

/* Nothing is known any more of what heads leave open; and whole rows are taken again. */
void		gk_gpu_gemm_forget_open(GkGemm *g);
void		gk_gpu_gemm_forget_heads(GkGemm *g);

/* How many values a head has, and one that pairs are looked at with before whole rows; `width`: there is none. */
int			gk_gpu_gemm_head_values(const GkGemm *g, int head);
int			gk_gpu_gemm_middle_values(const GkGemm *g);

/* After a sort, or where another head is taken: what its tails are.  Before the centroids are rounded. */
GkStatus	gk_gpu_gemm_find_tails(GkSession *s, GkGemm *g, int k, GkError *err);

/* After a sort, once the centroids are rounded for whole rows: how many candidates each head would leave. */
GkStatus	gk_gpu_gemm_sample_heads(GkSession *s, GkGemm *g, int k, GkError *err);

/*
 * Candidates of a slice's places, by a product of heads and then by whole rows, into g->kept.  All rows have their last
 * labels, until the distances of these pairs decide.
 */
GkStatus	gk_gpu_gemm_find_pairs(GkSession *s, GkGemm *g, const GkGemmArgs *labels, int k, GkError *err);

/* What a pass has left open, a row: of whole rows undecided ones, with a head pairs. */
double		gk_gpu_gemm_open(const GkSession *s, const GkGemmCounts *counts);

/* What a pass has counted says which head is to be taken from now on. */
void		gk_gpu_gemm_choose_head(const GkSession *s, GkGemm *g, const GkGemmCounts *counts);

/*
 * How long a pass takes, in milliseconds, with `parts` of tiles of columns a row, and `open` as gk_gpu_gemm_open().
 */
double		gk_gpu_gemm_pass_ms(const GkSession *s, const GkGemm *g, int head, double parts, double open);

/* ---- gk_gpu_gemm_near.cu: bounds that are kept from pass to pass ---- */

/* Bytes of what is kept of these places and k clusters; 0: nothing is, since it cannot pay. */
size_t		gk_gpu_gemm_near_bytes(const GkSession *s, const GkGemm *g, int k);

/* Room for that. */
GkStatus	gk_gpu_gemm_near_room(GkSession *s, GkGemm *g, int k, GkError *err);
void		gk_gpu_gemm_near_free(GkGemm *g);

/* After a sort, once the centroids are rounded: how far near columns may be. */
GkStatus	gk_gpu_gemm_sample_near(GkSession *s, GkGemm *g, int k, GkError *err);

/*
 * Which rows of a slice are settled by bounds, or by their near columns: pairs of the latter into g->kept.  The others
 * are undecided.
 */
GkStatus	gk_gpu_gemm_check_near(GkSession *s, GkGemm *g, const GkGemmArgs *labels, int k, GkError *err);

/* After the product of the undecided with all columns: their bounds, and pairs of those that may be their labels. */
GkStatus	gk_gpu_gemm_renew_near(GkSession *s, GkGemm *g, const GkGemmArgs *labels, int k, GkError *err);

/* After all slices of a pass. */
GkStatus	gk_gpu_gemm_end_near(GkSession *s, GkGemm *g, int k, GkError *err);

/* What a pass has counted says whether the next ones keep bounds. */
void		gk_gpu_gemm_choose_near(const GkSession *s, GkGemm *g, int k, const GkGemmCounts *counts);

/* Nothing is kept any more. */
void		gk_gpu_gemm_forget_near(GkGemm *g);

/* ---- gk_gpu_gemm_stream.cu, gk_gpu_gemm_stay.cu: the kernels ---- */

/* What the copy engine knows of a matrix.  A kernel's parameters are these of points, of centroids, and GkGemmArgs. */
typedef struct GkGemmMaps
{
	CUtensorMap full;			/* all slices but the last; without any not used */
	CUtensorMap tail;
} GkGemmMaps;

typedef struct GkGemmKernel
{
	const void *kernel;
	int			threads;
	size_t		shared;
	int			rows;			/* of a block's tile */
	int			columns;
	int			tail;			/* values of a row that are brought of the last slice: 16, 32 or 64 */
} GkGemmKernel;

/*
 * slices: of GK_GEMM_DEPTH values of a row; steps: of 16 values, in the last of them.  sorted: are rows, for labels?
 */
GkGemmKernel gk_gpu_gemm_stream(GkGemmUse use, int steps);
GkGemmKernel gk_gpu_gemm_stay(GkGemmUse use, int slices, int steps, bool sorted);

/* ---- gk_gpu_gemm_multiply.cu ---- */

/* Can this device do it?  Hopper only. */
bool		gk_gpu_gemm_supported(const GkSession *s);

/* One product of the rows of `points` ([points_rows][width], as gk_gemm_at() says) with k columns. */
GkStatus	gk_gpu_gemm_multiply(GkSession *s, GkGemmUse use, const __half * points, int64_t points_rows,
								 const __half * centroids, int k, int width, const GkGemmArgs *a, GkError *err);

/* ---- gk_gpu_gemm_probe.cu ---- */

/* Do the tensor core's sums lose no more than is assumed? */
GkStatus	gk_gpu_gemm_probe(GkSession *s, bool *good, GkError *err);

/* ---- gk_gpu_gemm_sort.cu ---- */

/*
 * Order rows and columns: rows by their labels of the last pass, with these k clusters, or by the pivots that they are
 * near.
 */
GkStatus	gk_gpu_gemm_sort(GkSession *s, GkGemm *g, int k, bool by_labels, GkError *err);

/* Until the next pass is done centroid i is the one that had number stepped[i] when columns were ordered. */
GkStatus	gk_gpu_gemm_renumber(GkSession *s, GkGemm *g, int k, const int32_t *stepped, GkError *err);

/* Which column each centroid has, once after a sort: g->column. */
GkStatus	gk_gpu_gemm_find_columns(GkSession *s, GkGemm *g, int k, GkError *err);

/* How many pivots there are without labels. */
int			gk_gpu_gemm_first_pivots(const GkSession *s, int k);
void		gk_gpu_gemm_unsort(GkGemmOrder *o);

/* Which tiles of columns each tile of rows needs: of all places. */
GkStatus	gk_gpu_gemm_needs(GkSession *s, GkGemm *g, int k, GkError *err);

/* Of gathered rows, `rows` from `from` on, as far as there are any. */
GkStatus	gk_gpu_gemm_gathered_needs(GkSession *s, GkGemm *g, int64_t from, int64_t rows, int k, GkError *err);

/* ---- gk_gpu_gemm_columns.cu ---- */

/* The nearest pivot of each centroid, in the host's memory. */
GkStatus	gk_gpu_gemm_nearest_pivots(GkSession *s, const GkGemm *g, int k, int *pivot_of, GkError *err);

/* The order's pivots, as many as it says, columns, copies and middles. */
GkStatus	gk_gpu_gemm_order_columns(GkSession *s, GkGemm *g, int k, GkError *err);

/* ---- gk_gpu_gemm_round.cu ---- */

/* x: all resident points, row by row. */
GkStatus	gk_gpu_gemm_turn(GkSession *s, GkGemm *g, GkError *err);

/* Round them: y and bounds. */
GkStatus	gk_gpu_gemm_round_points(GkSession *s, GkGemm *g, GkError *err);

/* Round k centroids [k][d], in device memory, choose the unit, make their keys. */
GkStatus	gk_gpu_gemm_round_centroids(GkSession *s, GkGemm *g, const float *centroids, int k, GkError *err);

/* ---- gk_gpu_gemm_recheck.cu ---- */

/* Labels of a slice, after its product, whose arguments these were. */
GkStatus	gk_gpu_gemm_decide(GkSession *s, GkGemm *g, const GkGemmArgs *args, int k, GkError *err);

/* The same of rows that have pairs, after gk_gpu_gemm_find_pairs() or _check_near(). */
GkStatus	gk_gpu_gemm_decide_pairs(GkSession *s, GkGemm *g, const GkGemmArgs *args, int k, GkError *err);

#endif							/* GK_GPU_GEMM_H */
