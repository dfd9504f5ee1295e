/*
 * gk_cpu_kernels.h - the table of CPU kernels, one per instruction set.
 *
 * Points come in tiles of GK_ROW_PAD rows, column-major inside a tile: lanes of
 * a vector are points.  A kernel always works on whole tiles, rows past the end
 * of a chunk are zeros there.  The scalar kernels (gk_cpu_scalar.c) are plain
 * loops over gk_numerics.h and define the result; all others give the same bits.
 *
 * A set's file (gk_cpu_avx512.c, ...) defines its vectors and includes the templates:
 * gk_cpu_assign.h (distances), gk_cpu_partial.h (those of GK_PARTIAL), gk_cpu_candidates.h (seeding), gk_cpu_assign_dot.h (scalar
 * products), gk_cpu_columns.h (loading and preparing).  gk_cpu_smallk_<set>.c has the
 * kernels for small k, at most GK_CPU_SMALLK clusters, gk_cpu_int16_<set>.c and gk_cpu_int8_<set>.c products of integers.
 */
#ifndef GK_CPU_KERNELS_H
#define GK_CPU_KERNELS_H

#include "core/gk_tiles.h"
#include "core/store/gk_columns.h"
#include "core/store/gk_points.h"

/* Rows closer to a candidate than to any seed, gathered until their distances are summed up. */
#define GK_CANDIDATES_ROOM	256
#define GK_MAX_CANDIDATES	6	/* candidates at a time */

typedef struct GkCandidates
{
	int			count;			/* at most GK_CANDIDATES_ROOM before a tile */
	float		was[GK_CANDIDATES_ROOM + 2 * GK_ROW_PAD];
	float		is[GK_CANDIDATES_ROOM + 2 * GK_ROW_PAD];
	float		weight[GK_CANDIDATES_ROOM + 2 * GK_ROW_PAD];	/* of weighted points */
} GkCandidates;

/* A cluster's rows in the last pass: gk_d2_split() summed up. */
typedef struct GkTally
{
	int64_t		count;
	int64_t		hi;
	int64_t		lo;
	float		max_d2;
} GkTally;

/* How distances become bounds: see gk_cpu_hamerly.c. */
typedef struct GkMargin
{
	float		widen,
				narrow;			/* factors of a distance, slightly above and below 1 */
	float		apart;			/* and what is added or taken off */
	const float *limit;			/* [k] */
} GkMargin;

/* What scalar products are compared by: see gk_cpu_dot.c. */
typedef struct GkDot
{
	const float *c;				/* [k][d] */
	const float *half;			/* [k] half of their squares */
	const float *columns;		/* [d][gk_dot_width(k)], infinite from k on */
	int			k;
	int			chain;			/* products that are added up in a row */
	/*
	 * A row is undecided when the two nearest differ by no more than slack * |x|^2 + apart +
	 * relative * its squared distance, with the largest |x|^2 of its tile.
	 */
	float		slack,
				apart,
				relative;
} GkDot;

/* Centroids in whole groups of vectors of any kernel. */
static inline size_t
gk_dot_width(int k)
{
	return ((size_t) k + 63) / 64 * 64;
}

/* Tiles whose products of 16-bit integers are made at a time, at most. */
#define GK_INT16_TILES	16

/* What products of 16-bit integers are compared by: see gk_cpu_int16.c. */
typedef struct GkInt16
{
	const int32_t *c;			/* [groups][words][group]: -b, two features in a word or what the set has in
								 * their place */
	const float *pivot;			/* [d]: p */
	const float *half;			/* [gk_dot_width(k + 16)] half of |c'|^2 */
	int			k;
	float		scale;			/* B */
	float		longest;		/* C */
	float		lost;			/* E */
	float		relative;		/* G */
} GkInt16;

/* A tile's points, and what rounding lost. */
typedef struct GkInt16Tile
{
	float		value;			/* the largest |x_j - p_j| */
	float		length;			/* the largest |x - p|, or more; < 0: both are not known yet */
	float		scale;			/* A; 0: not rounded yet */
	float		square[GK_ROW_PAD]; /* |x'|^2 */
	float		lost[GK_ROW_PAD];	/* e, or more */
} GkInt16Tile;

/* A tile in a pass. */
typedef struct GkInt16Points
{
	const int32_t *y;			/* [words of GK_ROW_PAD rows] */
	const GkInt16Tile *tile;
	int			shift;			/* s is over 2^shift */
	float		per;			/* units of s in a squared length: A B / 2^shift */
} GkInt16Points;

/* What is found of a tile's rows. */
typedef struct GkInt16Rows
{
	int32_t		least[GK_ROW_PAD];
	int32_t		second[GK_ROW_PAD];
	int32_t		label[GK_ROW_PAD];
	int32_t		limit[GK_ROW_PAD];	/* centroids above are not the nearest */
} GkInt16Rows;

/* A thread's scratch. */
typedef struct GkInt16Scratch
{
	GkInt16Points *points;		/* [tiles] */
	GkInt16Tile *tile;			/* [tiles] */
	GkInt16Rows *rows;			/* [tiles] */
	int32_t    *y;				/* [tiles][words of GK_ROW_PAD rows] */
	int32_t    *few;			/* [words][GK_INT16_FEW] */
} GkInt16Scratch;

/* Rows whose nearest centroids are listed at a time, and how many of them. */
#define GK_INT16_FEW	16
#define GK_INT16_NEAR	32

typedef struct GkInt16Near
{
	int			count;			/* of which the first GK_INT16_NEAR are listed */
	int32_t		label[GK_INT16_NEAR];
} GkInt16Near;

/* Two centroids beside a rounded row, x', in floats: each is a sum of `additions` in a row. */
typedef struct GkInt16Apart
{
	float		farther;		/* |x' - c_j|^2 - |x' - c_i|^2 */
	float		square;			/* |x' - c_i|^2 */
	float		between;		/* |c_j - c_i|^2 */
	int			additions;
} GkInt16Apart;

/* Half of a centroid's square and a product are off by less than this together, in units of the product. */
#define GK_INT16_OFF	400.0f

/* What rows are compared by that have a bound for every centroid: gk_cpu_elkan.c, which defines a unit and M. */
typedef struct GkElkan
{
	const int32_t *c;			/* [k][words]: -b, one after the other, two features in a word */
	size_t		words;			/* of one, a multiple of 16 */
	float		per;			/* units of a bound in a length */
	float		widen;			/* 1 + G */
	const uint16_t *move;		/* [k]: what the last move adds to upper bounds, rounded up; 0: it stands
								 * still */
	const int32_t *active;		/* [groups]: groups of centroids (GkInt16Kernels.group) that do not all stand
								 * still */
	int			groups;
	const uint16_t *moved;		/* [k]: M, rounded up */
	const float *moved_down;	/* [k]: M, rounded down */
} GkElkan;

struct GkInt16Kernels;

typedef struct GkElkanKernels
{
	double		pair;			/* cost of a feature of a pair, as GkInt16Kernels.cost of one of all */
	double		calm;			/* GK_COST_ELKAN_CALM() */
	int			least_d;		/* with fewer features one bound for all other centroids is tried first */

	/* Upper bounds [GK_ROW_PAD] of a tile by what compare() has found. */
	void		(*upper) (const GkInt16 *s, const GkElkan *e, const GkInt16Points *x, const GkInt16Rows *rows, uint16_t *upper);
	/*
	 * Compare a tile's rows with the centroids that their bounds leave, and bring the bounds upper [GK_ROW_PAD] and
	 * lower [k][GK_ROW_PAD] up to date. label: the last ones, of valid numbers for all rows, whose lower bound is the
	 * largest number, and stays so; y: scratch, [GK_ROW_PAD][e->words]. A group of which many pairs are left is
	 * compared whole, as that takes no longer. A row is not compared with a centroid where neither this nor its own has
	 * moved since its label was found. What is found is as after compare(). Returns how many pairs were
	 * compared, or how many would have taken as long.
	 */
	int64_t		(*search) (const struct GkInt16Kernels *set, const GkInt16 *s, const GkElkan *e, int d, const GkInt16Points *x,
						   const int32_t *label, uint16_t *upper, uint16_t *lower, int32_t *y, GkInt16Rows *rows);
} GkElkanKernels;

/* Products of 16-bit integers: gk_cpu_int16_products.h. */
typedef struct GkInt16Kernels
{
	int			group;			/* centroids at a time: all arrays of them have room for whole groups */
	int			unit;			/* features: points and centroids are filled up with zeros to a multiple */
	bool		apart;			/* sums are shifted to fit 32 bits, so that |y| and |b| may be larger:
								 * finest() */
	double		cost;			/* of a feature and a centroid, see GK_COST_INT16() */
	double		longest;		/* that a block may take, in GkCpuKernels.job_work: some 100 ms */
	const GkElkanKernels *elkan;	/* NULL: comparing with all centroids takes no longer */

	/* Features first .. first + count - 1 of centroid q of a group: at most GK_INT16_PUT, 0 after the last. */
	void		(*put) (int32_t *group, int q, int first, const int16_t * b, int count);
	/* The largest value and length of a tile, less the pivot [d]. */
	void		(*measure) (const float *x, size_t stride, int d, const float *pivot, GkInt16Tile *tile);
	/* Round a tile by its scale: y, square and lost. */
	void		(*round) (const float *x, size_t stride, int d, const float *pivot, int32_t *y, GkInt16Tile *tile);
	/*
	 * Compare scratch->points, at most GK_INT16_TILES tiles, with whole groups of centroids: from k0 on, up to k1 or
	 * the last one.  k0 = 0 begins, others continue.  e: lower bounds are wanted, in lower [tiles][k][GK_ROW_PAD]; or
	 * NULL.
	 */
	void		(*compare) (int tiles, int d, const GkInt16 *s, const GkInt16Scratch *scratch, int k0, int k1, const GkElkan *e,
							uint16_t *lower);
	/*
	 * assign_dot() by what was compared.  Label -1: no centroid is closer to the row than d2 ([tiles][GK_ROW_PAD])
	 * says; d2 NULL: all are wanted.
	 */
	void		(*decide) (int tiles, const GkInt16 *s, const GkInt16Scratch *scratch, const float *d2,
						   int32_t *label, uint64_t *open);
	/* The centroids that may be nearest to `count` rows of these tiles, in order: out [GK_INT16_FEW]. */
	void		(*near) (const GkInt16 *s, int d, const GkInt16Scratch *scratch, const int *row, int count,
						 GkInt16Near *out);

	/*
	 * A rounded row of a tile less the pivot, as floats: z [d]; and how far it is from two centroids.  NULL:
	 * they are not there.
	 */
	void		(*unrounded) (const GkInt16Points *x, int row, int d, float *z);
	void		(*compare_two) (const float *z, const float *pivot, const float *ci, const float *cj, int d, GkInt16Apart *out);
	/*
	 * The centroids that may be closer than d2 ([tiles][GK_ROW_PAD]) to rows of scratch->points, whole groups
	 * of them: out [tiles][groups * group], bit i for row i.
	 */
	void		(*closer) (int tiles, int d, const GkInt16 *s, const GkInt16Scratch *scratch, const float *d2,
						   uint64_t *out);
} GkInt16Kernels;

/* A multiple of all units. */
#define GK_INT16_PUT	64

/* 32-bit words that a row or a centroid takes. */
static inline size_t
gk_int16_words(int unit, int d)
{
	return (size_t) (d + unit - 1) / unit * unit / 2;
}

/* Scales of features for products of 8-bit integers, and words of a row, at most. */
#define GK_INT8_RUNS	8
#define GK_INT8_WORDS	(GK_MAX_D / 4 + 32)
/* Where no value is as large, scales are those of a row with such a one; and what underflow may take off a length. */
#define GK_INT8_SMALLEST	0x1p-40f
#define GK_INT8_TINY		0x1p-50f

/* A rounded centroid, for GkInt8: the names are those of gk_cpu_int8.c. */
typedef struct GkInt8Centroid
{
	float		scale;			/* B */
	float		half;			/* B (|c'|^2 - E^2) / 2 */
	float		lost;			/* B E */
	int32_t		offset;			/* what points' being made positive adds to the product */
} GkInt8Centroid;

/* Rounded centroids, and how points are rounded. */
typedef struct GkInt8
{
	const int32_t *c;			/* [groups][words][group]: four features in a word or what the set has in its
								 * place */
	const GkInt8Centroid *of;	/* [groups * group] */
	int			k;
	int			words;
	int			runs;			/* of words whose features have the same scale, coarser and coarser */
	int			end[GK_INT8_RUNS];	/* the first word after a run */
	int			finer[GK_INT8_RUNS];	/* the scale of its features is 2^finer times that of the last run,
										 * which has 0 */
	const int32_t *feature;		/* [4 * words]; -1: none */
	const float *pivot;			/* [d]: p */
	float		relative;		/* G */
} GkInt8;

/* Rows of a tile. */
typedef struct GkInt8Tile
{
	float		scale[GK_ROW_PAD];	/* A; 0: not rounded yet */
	float		square[GK_ROW_PAD]; /* |x'|^2 */
	float		lost[GK_ROW_PAD];	/* e, or more */
} GkInt8Tile;

typedef struct GkInt8Points
{
	int32_t    *y;				/* [words][GK_ROW_PAD] */
	GkInt8Tile *tile;
} GkInt8Points;

/* Products of 8-bit integers: gk_cpu_int8_words.h, gk_cpu_int8_amx.c. */
typedef struct GkInt8Kernels
{
	int			group;			/* centroids at a time: all arrays of them have room for whole groups */
	int			unit;			/* words: the first run is filled up with zeros to a multiple */
	int			coarse;			/* features of the second run, at most, an even number of words, and there is
								 * no third one; 0: any number of runs, each as the first */
	double		cost;			/* of a feature and a centroid, see GK_COST_INT16() */

	/* Round a tile. */
	void		(*round) (const float *x, size_t stride, const GkInt8 *s, int32_t *y, GkInt8Tile *tile);
	/* Round a centroid: its words, in order, and what GkInt8 keeps of it. */
	void		(*round_centroid) (const float *c, const GkInt8 *s, int32_t *word, GkInt8Centroid *of);
	/* Put these words of centroid q of a group in their place. */
	void		(*put) (int32_t *group, int words, int q, const int32_t *word);
	/* The centroids that may be closer to rows than d2 says, as those of GkInt16Kernels.closer. */
	void		(*closer) (int tiles, const GkInt8 *s, const GkInt8Points *x, const float *d2, uint64_t *out);
	/* A centroid for each row, label [tiles][GK_ROW_PAD], that is the nearest or not much farther. */
	void		(*guess) (int tiles, const GkInt8 *s, const GkInt8Points *x, int32_t *label);
} GkInt8Kernels;

typedef struct GkCpuKernels
{
	const char *name;
	const char *exact;			/* a name that no other set has */

	/*
	 * Multiply-adds (sub and fma of one feature) that take about a millisecond on a slow machine; how much
	 * work goes into one job.
	 */
	int64_t		job_work;
	int			lanes;			/* floats in a vector */
	const GkColumnKernels *columns; /* loops over one column */

	/* ---- assignment ---- */

	/*
	 * Continue a running argmin with the centroids k0..k1-1 of c ([k][d]): label
	 * and d2 are in and out; k0 = 0 begins with 0 and +inf.  Strictly smaller wins,
	 * so ties stay at the lowest cluster.
	 */
	void		(*assign) (const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2);
	/* assign() without labels. */
	void		(*mindist) (const GkTiles *x, const float *c, int k0, int k1, float *d2);
	/* assign() with the smallest distance to any other centroid; all three are in and out. */
	void		(*assign_two) (const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2, float *second);
	/*
	 * Labels by scalar products; those of rows in open ([tiles], bit i for row i) are not certain.
	 * square [tiles] has each tile's largest |x|^2; below 0 it is computed.
	 * NULL: nothing here beats assign().
	 */
	void		(*assign_dot) (const GkTiles *x, const GkDot *s, float *square, int32_t *label, uint64_t *open);
	/* The label of one point [d], as assign() would have it.  Goes with assign_dot(). */
	int32_t		(*assign_one) (const float *x, const GkDot *s, int d);
	const GkInt16Kernels *integers; /* NULL: nothing here beats assign_dot() */
	const GkInt8Kernels *bytes; /* goes with integers; NULL: products of 8 bits gain nothing over 16 */
	/* gk_nearest() */
	int			(*nearest) (const float *point, int d, const float *centroids, int k, float *d2);
	/* gk_distances() */
	void		(*distances) (const float *point, int d, const float *centroids, int k, float *d2);

	/* assign(), mindist() and candidates() under GK_PARTIAL. */
	void		(*partial_assign) (const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2);
	void		(*partial_mindist) (const GkTiles *x, const float *c, int k0, int k1, float *d2);
	unsigned	(*partial_candidates) (const GkTiles *x, int tile, const float *c, int nc, const float *d2,
									   const float *weight, int rows, GkCandidates *out, float *all);

	/* ---- bounds ---- */

	/* d2[i]: distance of row[i] of the columns x to centroid label[i]. */
	void		(*own_distance) (const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
								 const float *c, int d, float *d2);

	/*
	 * Put the rows of a tile with their features in a row, from `pitch` to `pitch` floats, for the one
	 * above; NULL: no gain.
	 */
	void		(*turn) (const float *x, size_t stride, int d, float *out, size_t pitch);
	/*
	 * Of GK_ROW_PAD rows those without slack > limit[label]: bit i for row i; *least is
	 * the smallest slack - limit of the others.
	 */
	uint64_t	(*open_rows) (const float *slack, const int32_t *label, const float *limit, float *least);
	/*
	 * Bounds of GK_ROW_PAD rows from what assign_two() found: upper and lower, and slack =
	 * lower - upper + limit[label], rounded down.
	 */
	void		(*margin) (const GkMargin *m, const int32_t *label, const float *d2, const float *second,
						   float *upper, float *lower, float *slack);

	/* ---- seeding ---- */

	/*
	 * The first `rows` rows of one tile that are closer to one of nc candidates than
	 * d2 says, with both distances: out [nc].  d2 and weight (may be NULL) are the tile's.
	 * Returns which candidates have such rows: bit q for candidate q.  all [nc][GK_ROW_PAD]:
	 * the distances of these rows to every candidate; NULL: not wanted.
	 */
	unsigned	(*candidates) (const GkTiles *x, int tile, const float *c, int nc, const float *d2,
							   const float *weight, int rows, GkCandidates *out, float *all);
	/*
	 * Of GK_ROW_PAD boxes from low[j * stride] to high[j * stride] those with a point
	 * closer to c than max_d2: bit i for box i.
	 */
	uint64_t	(*open_boxes) (const float *low, const float *high, size_t stride, const float *c, int d,
							   const float *max_d2);
	/*
	 * Which of GK_ROW_PAD rows from `row` on may have a race key (gk_race_key of
	 * weight * d2, either may be NULL for 1) of at most `worst`: bit i for row
	 * row + i.  May err by setting a bit, never by leaving one out.
	 */
	uint64_t	(*race) (const float *d2, const float *weight, uint64_t key, int64_t row, double worst);

	/* ---- sums ---- */

	/*
	 * acc[(i % GK_ADD_COPIES) * copy + label[i] * width + j] += feature j of row
	 * i, in doubles: exact up to GK_PACKAGE rows.  Several copies (copy != 0)
	 * keep rows of one cluster from waiting for each other.  width is d rounded
	 * up to a multiple of 4; acc is 32-byte aligned.
	 */
	void		(*add) (const GkTiles *x, const int32_t *label, double *acc, size_t width, size_t copy);
	/* Add up gk_d2_split() of (weight *) d2, at most GK_PACKAGE rows; weight may be NULL. */
	void		(*sum_d2) (const float *d2, const float *weight, int rows, double scale,
						   int64_t *hi, int64_t *lo);

	/* ---- small k; each may be NULL: nothing here beats the kernels above ---- */

	/*
	 * add(), counting too: sum[label[i] * d + j] += feature j of row i in units of
	 * 2^(expo[j] - 40), count[label[i]]++, but for the last cluster.
	 */
	void		(*add_smallk) (const GkTiles *x, const int32_t *label, int rows, int k, const int32_t *expo,
							   gk_int128 *sum, int64_t *count);
	/*
	 * assign() and add_smallk() in one, without labels.  Where there is move_smallk(), kept
	 * (may be NULL) comes to say which rows are in which cluster, [tiles][gk_smallk_bits(k)]: bit i
	 * of word [t][b] is bit b of the label of the tile's row i, 0 past the end.  Returns how
	 * many rows had another label.
	 */
	int64_t		(*step_smallk) (const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
								uint64_t *kept, gk_int128 *sum, int64_t *count);
	/*
	 * The same for what differs from kept: a row leaves its cluster's sum and count
	 * and enters another's.  At most smallk_sums sums.
	 */
	int64_t		(*move_smallk) (const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
								uint64_t *kept, gk_int128 *sum, int64_t *count);
	/* Sums, d for each cluster but one, that it keeps in registers at once. */
	int			smallk_sums;
	/* Statistics of at most GK_PACKAGE rows when all are assigned: out [k]; weight may be NULL. */
	void		(*tally_smallk) (const float *d2, const float *weight, const int32_t *label, int rows, int k,
								 double scale, GkTally *out);
} GkCpuKernels;

/* Lower bound of v + base, base >= 0: takes off 2^-20 of both, more than all rounding errors. */
static inline float
gk_taken_off(float v, float base)
{
	return (v + base) - 0x1p-20f * (__builtin_fabsf(v) + base);
}

#define GK_CPU_SMALLK		8

/* Bits of a label of k clusters, k >= 2. */
static inline int
gk_smallk_bits(int k)
{
	return k > 4 ? 3 : k > 2 ? 2 : 1;
}

/*
 * -ln u >= 1 - u, which is exact in a double; this much is left for the roundings
 * of the logarithm, the division and the product (each below 2^-51).
 */
#define GK_RACE_SLACK	(1.0 + 0x1p-40)

extern const GkCpuKernels gk_cpu_scalar;
extern const GkColumnKernels gk_columns_base;

/*
 * Of the first `rows` rows of a tile, gather those that are closer to the candidate (d2) than `was` says.
 * Returns whether there are any.
 */
bool		gk_candidates_gather(const float *was, const float *d2, const float *weight, int rows, GkCandidates *to);

/* Where a set has nothing better. */
void		gk_cpu_scalar_add(const GkTiles *x, const int32_t *label, double *acc, size_t width, size_t copy);
void		gk_cpu_scalar_sum_d2(const float *d2, const float *weight, int rows, double scale,
								 int64_t *hi, int64_t *lo);
uint64_t	gk_cpu_scalar_race(const float *d2, const float *weight, uint64_t key, int64_t row, double worst);
void		gk_cpu_scalar_margin(const GkMargin *m, const int32_t *label, const float *d2, const float *second,
								 float *upper, float *lower, float *slack);
uint64_t	gk_cpu_scalar_open_rows(const float *slack, const int32_t *label, const float *limit, float *least);
int			gk_cpu_scalar_nearest(const float *point, int d, const float *centroids, int k, float *d2);
void		gk_cpu_scalar_distances(const float *point, int d, const float *centroids, int k, float *d2);

#if defined(__x86_64__)
#define GK_CPU_X86	1
extern const GkCpuKernels gk_cpu_avx2;
extern const GkCpuKernels gk_cpu_avx512;
extern const GkCpuKernels gk_cpu_avx512_vnni;	/* the same with faster products of integers, ... */
extern const GkInt16Kernels gk_int16_avx2;
extern const GkInt16Kernels gk_int16_avx512;
extern const GkInt16Kernels gk_int16_vnni;
extern const GkInt8Kernels gk_int8_vnni;
void		gk_cpu_int8_round(const float *x, size_t stride, const GkInt8 *s, int32_t *y, GkInt8Tile *tile);
void		gk_cpu_int8_round_centroid(const float *c, const GkInt8 *s, int32_t *word, GkInt8Centroid *of);
extern const GkColumnKernels gk_columns_avx2;
extern const GkColumnKernels gk_columns_avx512;

/* Compilers that know AMX, and the system that lends its registers. */
#if defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define GK_CPU_AMX	1
extern const GkCpuKernels gk_cpu_avx512_amx;	/* ... by tile registers */
extern const GkInt16Kernels gk_int16_amx;
extern const GkInt8Kernels gk_int8_amx;

/* Whether the processor has them; asks the system for their use in this process. */
bool		gk_cpu_has_amx(void);
#endif

/* Shared by both: 256-bit vectors fit the job. */
void		gk_cpu_avx2_add(const GkTiles *x, const int32_t *label, double *acc, size_t width, size_t copy);
void		gk_cpu_avx2_own_distance(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
									 const float *c, int d, float *d2);
int			gk_cpu_avx2_nearest(const float *point, int d, const float *centroids, int k, float *d2);
void		gk_cpu_avx2_distances(const float *point, int d, const float *centroids, int k, float *d2);

/* gk_cpu_pairs_avx512.c */
void		gk_cpu_avx512_own_distance(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
									   const float *c, int d, float *d2);
void		gk_cpu_avx512_turn(const float *x, size_t stride, int d, float *out, size_t pitch);

/* gk_cpu_smallk_avx512.c; registers of 32 that sums take */
#define GK_CPU_AVX512_SUMS	24
void		gk_cpu_avx512_add_smallk(const GkTiles *x, const int32_t *label, int rows, int k, const int32_t *expo,
									 gk_int128 *sum, int64_t *count);
int64_t		gk_cpu_avx512_step_smallk(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
									  uint64_t *kept, gk_int128 *sum, int64_t *count);
int64_t		gk_cpu_avx512_move_smallk(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
									  uint64_t *kept, gk_int128 *sum, int64_t *count);
void		gk_cpu_avx512_tally_smallk(const float *d2, const float *weight, const int32_t *label, int rows, int k,
									   double scale, GkTally *out);

/* gk_cpu_smallk_avx2.c; of 16 registers */
#define GK_CPU_AVX2_SUMS	13
void		gk_cpu_avx2_add_smallk(const GkTiles *x, const int32_t *label, int rows, int k, const int32_t *expo,
								   gk_int128 *sum, int64_t *count);
int64_t		gk_cpu_avx2_step_smallk(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
									uint64_t *kept, gk_int128 *sum, int64_t *count);
#elif defined(__aarch64__)
#define GK_CPU_NEON	1
extern const GkCpuKernels gk_cpu_neon;
extern const GkInt16Kernels gk_int16_neon;

/* Compilers that are told of dot products, or may be for some functions. */
#if defined(__ARM_FEATURE_DOTPROD) || (defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 8)
#define GK_CPU_DOTPROD	1
extern const GkCpuKernels gk_cpu_neon_dotprod;	/* the same with products of 8-bit integers */
extern const GkInt8Kernels gk_int8_neon;
#endif
#endif

/* The chosen set, see gk_cpu_set_simd(). */
const GkCpuKernels *gk_cpu_kernels(void);

/* A set by name if this machine can run it, else NULL with the reason. */
const GkCpuKernels *gk_cpu_kernels_named(const char *name, char *reason, size_t reason_len);

#endif							/* GK_CPU_KERNELS_H */
