/*
 * gk_cpu_prune.h - work that a pass need not do, because bounds prove what it would find.
 *
 *   gk_cpu_hamerly.c, gk_cpu_hamerly_search.c
 *                   skip points: an upper and a lower bound of each (Hamerly, SDM 2010)
 *   gk_cpu_exponion.c
 *                   skip centroids too far from a point's own (Newling and Fleuret, ICML 2016)
 *   gk_cpu_elkan.c  skip centroids by a bound for each row and centroid (Elkan, ICML 2003)
 *   gk_cpu_dot.c    labels by scalar products, where their rounding cannot matter
 *   gk_cpu_int16.c  the same by products of 16-bit integers
 *   gk_cpu_sketch.c lower bounds by such products of few features
 *   gk_cpu_int16_settle.c
 *                   rows that those products leave undecided
 *   gk_cpu_int8.c   centroids closer than D by products of 8-bit integers
 *   gk_cpu_int8_labels.c
 *                   labels by these: centroids closer than the last one
 *   gk_cpu_seed_rounds.c
 *                   compare the candidates of many rounds of seeding at once, by products of integers
 *   gk_cpu_seed_index.c, gk_cpu_kdtree.c
 *                   skip tiles of a copy of the points when seeding (Bentley, 1975)
 *
 * Words:
 *   margin    lower bound - upper bound of a point: its label stands while that is above 0
 *   slack     margin + what all bounds had lost when it was computed; never written while it stands
 *   open      not settled by bounds
 *   epoch     steps whose moves are added up in one sum
 *   group     GK_EXPONION_GROUP centroids near each other
 */
#ifndef GK_CPU_PRUNE_H
#define GK_CPU_PRUNE_H

#include "cpu/gk_cpu_session.h"

/* ---- scalar products ---- */

/* Do labels of k clusters pay by scalar products?  Of all that a sweep compares at once, too? */
bool		gk_cpu_dot_possible(const GkSession *s, int k);
bool		gk_cpu_dot_wanted(const GkSession *s, const GkSweep *sweep, int k);

/* What a label takes, in instructions for one row (gk_cpu_cost.h), where products are possible. */
double		gk_cpu_dot_cost(const GkSession *s, int k);

/* Plan a sweep that compares with all of them in one round, `tiles` tiles at a time. */
void		gk_cpu_dot_plan(const GkSession *s, GkSweep *sweep, int k, int tiles, bool integers);

/*
 * Begin a pass with them; the sweep then takes all centroids in one round.  integers: those of 16-bit integers are wanted for
 * more than labels, which floats may find in less time.
 */
GkStatus	gk_cpu_dot_begin(GkSession *s, GkSweep *sweep, const float *c, int k, bool integers, GkError *err);

/* Labels of the `rows` rows of some tiles; slot is the first one's.  below: where no centroid is closer, it may be -1; or NULL. */
void		gk_cpu_dot_labels(GkSession *s, const GkTiles *x, int64_t slot, int rows, int thread, const float *below, int32_t *label);

/* The same with the canonical distances to these centroids, INFINITY for label -1; d2 may be `below`. */
void		gk_cpu_dot_assign(GkSession *s, const GkTiles *x, int64_t slot, int rows, int thread, const float *below, int32_t *label,
							  float *d2);
void		gk_cpu_dot_end(GkSession *s);

/* Canonical distances to the centroids of such labels. */
void		gk_cpu_own_distances(const GkSession *s, const GkTiles *x, int rows, const float *c, const int32_t *label, float *d2);

/* The row at `slot` may have another centroid that is as near. */
static inline void
gk_cpu_dot_tied(const GkSession *s, int64_t slot)
{
	if (s->dot.tied != NULL)
		s->dot.tied[slot / GK_ROW_PAD] |= UINT64_C(1) << slot % GK_ROW_PAD;
}

/* ---- scalar products of 16-bit integers: called by gk_cpu_dot.c ---- */

bool		gk_cpu_int16_possible(const GkSession *s, int k);

/* ... and do they take less time than those of floats? */
bool		gk_cpu_int16_faster(const GkSession *s, int k);

/* Tiles at a time, and a thread's scratch for them. */
int			gk_cpu_int16_tiles(const GkSession *s, int d);
size_t		gk_cpu_int16_bytes(const GkSession *s, int d);

/* Where arrays are in it; returns its bytes. */
size_t		gk_cpu_int16_scratch(const GkSession *s, char *at, int d, GkInt16Scratch *out);

/* Centroids that these tiles are compared with at a time: whole groups, and a look at the stop flag after them. */
int			gk_cpu_int16_piece(const GkSession *s, int tiles, int d);

/* Round tiles, from row `slot` on, if that was not done or not finely; scratch->points is for the kernels. */
void		gk_cpu_int16_prepare(GkSession *s, const GkTiles *x, int64_t slot, const GkInt16Scratch *scratch);

/*
 * Round a tile by these arguments, of whichever points: as above for one tile. share: of the finest scale. tile: length -1
 * where nothing is known.
 */
GkInt16Points gk_cpu_int16_round_tile(const GkInt16Kernels *set, const GkInt16 *args, const float *x, size_t stride, int d, double share,
									  int32_t *y, GkInt16Tile *tile);

/*
 * Round centroid q of a group for products, by scale B; *half: half of its square; row: the same integers in a row, or NULL.
 * Returns |B c - b|^2.
 */
double		gk_cpu_int16_round_centroid(const GkInt16Kernels *set, const float *c, int d, const float *pivot, double scale, int32_t *group,
										int q, int32_t *row, float *half);

/* Round centroids; s->dot.int16.k stays 0 where that is of no use. */
GkStatus	gk_cpu_int16_begin(GkSession *s, const GkSweep *sweep, const float *c, int k, GkError *err);
void		gk_cpu_int16_labels(GkSession *s, const GkTiles *x, int64_t slot, int rows, float *point, char *scratch, const float *below,
								int32_t *label);
void		gk_cpu_int16_end(GkSession *s);

/* What is kept for rows with a bound for every centroid, from the first row of a tile on: gk_cpu_elkan.c. */
typedef struct GkElkanRows
{
	const int32_t *last;		/* labels */
	uint16_t   *upper;
	uint16_t   *lower;			/* [tiles][k][GK_ROW_PAD] */
} GkElkanRows;

/* Labels of at most gk_cpu_int16_tiles() tiles, comparing with what bounds leave.  Returns how many pairs were compared. */
int64_t		gk_cpu_int16_search(GkSession *s, const GkTiles *x, int64_t slot, int rows, int thread, const GkElkanRows *kept, int32_t *label);

/*
 * Begin a pass in which lower bounds of k centroids are made of sketches: false where that is of no use, or there is no
 * memory.  s->elkan is as for a pass that makes bounds.
 */
bool		gk_cpu_sketch_begin(GkSession *s, const GkSweep *sweep, const float *c, int k);

/* Lower bounds of these tiles, less those of last labels, which are the largest number; upper bounds are the largest number. */
void		gk_cpu_sketch_bounds(GkSession *s, const GkTiles *x, int thread, const GkElkanRows *kept);

/* Where undecided rows are. */
typedef struct GkInt16Open
{
	const GkTiles *x;
	int64_t		slot;			/* of the first row */
	const GkInt16Scratch *scratch;
	const GkElkanRows *kept;	/* NULL: there are no bounds */
	float	   *point;			/* scratch: [GK_INT16_FEW][d] */
	int32_t    *label;
} GkInt16Open;

/* Labels of the open ones of some tiles' rows: bits of each tile. */
void		gk_cpu_int16_settle(GkSession *s, const GkInt16Open *o, uint64_t *open, int rows);

/* The points' mean, s->dot.int16_pivot; false: there is no memory for it. */
bool		gk_cpu_int16_pivot(GkSession *s);

/* The features' variances about it, or numbers like them [d], as far as some centroids tell. */
void		gk_cpu_int16_variances(const GkSession *s, const float *c, int k, double *variance);

/* Some tiles, far from each other, to try something on: where they are, and how many rows they have. */
#define GK_CPU_TRIED	4

typedef struct GkCpuTried
{
	GkTiles		x;				/* one tile */
	int64_t		slot;
	int			rows;
} GkCpuTried;

int			gk_cpu_tried_tiles(const GkSession *s, GkCpuTried out[GK_CPU_TRIED]);

/* What rounded points take that are kept. */
size_t		gk_cpu_int16_kept_bytes(const GkSession *s);

/* Give up rounded points; or only if those of the session's rows, which are others now, would not fit the limit. */
void		gk_cpu_int16_forget(GkSession *s);
void		gk_cpu_int16_fit(GkSession *s);

/* ---- which centroids may be closer than D, by products of 8-bit integers ---- */

bool		gk_cpu_int8_possible(const GkSession *s);

/* Tiles at a time that are compared with k centroids. */
int			gk_cpu_int8_tiles(const GkSession *s, int k);

/* Round centroids for a pass, which compares them in one round. */
GkStatus	gk_cpu_int8_begin(GkSession *s, GkSweep *sweep, const float *c, int k, GkError *err);

/* Seeding ends; or too many centroids may have been closer, so 8 bits are of no use. */
void		gk_cpu_int8_end(GkSession *s);
void		gk_cpu_int8_give_up(GkSession *s);

/* Bits [tiles][*width] of the rows, from row `slot` on, that a centroid may be closer to than d2 says: in the thread's scratch. */
uint64_t   *gk_cpu_int8_closer(GkSession *s, const GkTiles *x, int64_t slot, int thread, const float *d2, size_t *width);

/*
 * Of how many centroids a row's first label is guessed: of more, products take longer than it takes to compare it with those
 * that are nearer, of which there are k / this.
 */
int			gk_cpu_int8_guessed(const GkSession *s, int k);

/* A centroid for each row of such tiles, about the nearest of these: label [tiles][GK_ROW_PAD]. */
void		gk_cpu_int8_guess(GkSession *s, const GkTiles *x, int64_t slot, int thread, int32_t *label);

/* ---- pairs of a row and a centroid that may be closer: gk_cpu_closer.c ---- */

/* Make room for each thread's tile. */
bool		gk_cpu_closer_room(GkSession *s, int threads);

/* How many there are, of one tile's first `rows` rows. */
int			gk_cpu_closer_count(int k, const uint64_t *closer, int rows);

/*
 * Canonical distances of such pairs, for `take`: those of a centroid after those of the ones before it.  Returns how many
 * there are; when the pass is to end, those that are left are not looked at.
 */
#define GK_CLOSER_PAIRS		64
typedef void GkCloserPairs (void *arg, const int32_t *row, const int32_t *label, const float *d2, int count);

int			gk_cpu_closer_pairs(GkSession *s, const GkTiles *tile, const float *c, int k, const uint64_t *closer, int rows, int thread,
								GkCloserPairs *take, void *arg);

/*
 * Lower D of a block's rows to that of the closest of k centroids, whose numbers begin with `first`, and tell which one
 * that is (nearest, of the block's rows; NULL: not wanted).  Returns how many pairs may have been closer.
 */
int64_t		gk_cpu_int8_nearest(GkSession *s, const GkBlock *b, const float *c, int k, int first, float *d2, int32_t *nearest);

/* ---- labels by products of 8-bit integers ---- */

/*
 * Begin a pass with them, as gk_cpu_dot_begin() does; known: s->previous has labels of k clusters to begin with, else
 * they are guessed.  false: without them, the sweep is as it was.
 */
bool		gk_cpu_int8_labels_begin(GkSession *s, GkSweep *sweep, const float *c, int k, bool known);

/* Labels of a block, and the canonical distances to these centroids (NULL: not wanted). */
void		gk_cpu_int8_labels(GkSession *s, const GkBlock *b, const float *c, int k, int32_t *label, float *d2);

/* After such a pass. */
void		gk_cpu_int8_labels_end(GkSession *s, int k);

/* ---- bounds ---- */

/* A row of a block that changed its label, and which it had. */
typedef struct GkLabelChange
{
	int32_t		row;
	int32_t		from;
} GkLabelChange;

/* What a pass did, for judging it. */
typedef struct GkHamerlyCounts
{
	int64_t		tiles;			/* looked into */
	int64_t		tightened;		/* rows */
	int64_t		searched;		/* rows */
	int64_t		groups;			/* of centroids looked into, for a tile of rows each, ... */
	int64_t		all_groups;		/* ... of how many */
} GkHamerlyCounts;

/* A thread's scratch; arrays behind it. */
typedef struct GkHamerlyScratch
{
	GkHamerlyCounts done;
	/* Rows of a block: [rows of a block] each. */
	GkLabelChange *change;
	int32_t    *list;			/* open ones */
	float	   *list_upper;		/* their upper bounds, once tightened */
	int32_t    *order;			/* the list's entries by groups of centroids */
	GkReach    *reach;			/* [k] of this thread's points */
	int32_t    *start;			/* [groups]: where the next row of a group goes in the order */
	uint8_t    *near;			/* [groups]: matter to the tile at hand */
	/* The tile at hand. */
	float	   *gathered;		/* [d][GK_ROW_PAD] */
	int32_t		label[GK_ROW_PAD];
	float		d2[GK_ROW_PAD];
	float		second[GK_ROW_PAD];
	float		upper[GK_ROW_PAD];
	float		lower[GK_ROW_PAD];
	float		slack[GK_ROW_PAD];
} GkHamerlyScratch;

static inline GkHamerlyScratch *
gk_hamerly_scratch(const GkCpuHamerly *h, int thread)
{
	return (GkHamerlyScratch *) (h->scratch + thread * h->scratch_bytes);
}

/* May bounds be kept for k clusters, and do they help a step that has the last one's labels and sums? */
bool		gk_cpu_hamerly_possible(const GkSession *s, int k);

/* What they take, with the labels. */
size_t		gk_cpu_hamerly_bytes(const GkSession *s, int k);
bool		gk_cpu_hamerly_wanted(const GkSession *s, int k);

/* Are they to be tried before a bound for each centroid? Of kernels that keep such. */
bool		gk_cpu_hamerly_first(const GkSession *s, int k);

/* Begin such a step; false: without them, the sweep is as it was. */
bool		gk_cpu_hamerly_begin(GkSession *s, GkSweep *sweep, const float *centroids, int k);

/* Bring the block's labels (s->previous) up to date: the changes, and how many. */
const GkLabelChange *gk_cpu_hamerly_block(GkSession *s, const GkBlock *b, const float *centroids, int k,
										  int *changes);

/* Does such a row's label not stand by its bounds: is another centroid as near, or about as near? */
static inline bool
gk_cpu_hamerly_open(const GkSession *s, int64_t slot)
{
	return !(s->hamerly.slack[slot] > s->hamerly.limit[s->previous[slot]]);
}

/* After any step that kept labels: did it use the bounds? */
void		gk_cpu_hamerly_end(GkSession *s, const GkSweep *sweep, bool used);

/* New centroids are coming. */
void		gk_cpu_hamerly_forget(GkSession *s);

/* ---- a bound for every row and centroid, by products of integers ---- */

/* May they be kept, and do they help a step that has the last one's labels and sums? */
bool		gk_cpu_elkan_possible(const GkSession *s, int k);
bool		gk_cpu_elkan_wanted(const GkSession *s, int k);

/*
 * Begin such a step, as gk_cpu_dot_begin() does; ties: rows that several centroids are nearest to are to be told.
 * false: without them, the sweep is as it was.
 */
bool		gk_cpu_elkan_begin(GkSession *s, GkSweep *sweep, const float *c, int k, bool ties);

/* Labels of a block, of which s->previous still has the last ones; false: the pass is to end. */
bool		gk_cpu_elkan_labels(GkSession *s, const GkBlock *b, int32_t *label);

/* After such a step. */
void		gk_cpu_elkan_end(GkSession *s);

/* New centroids are coming, or other rows: give up what is kept. */
void		gk_cpu_elkan_forget(GkSession *s);

/* ---- groups of centroids, for the bounds ---- */

bool		gk_cpu_exponion_possible(const GkSession *s, int k);

/* Follow the centroids' moves; anew: they are others, or arrange them anew.  false: stopped, or no memory. */
bool		gk_cpu_exponion_follow(GkSession *s, const GkHost *host, const float *centroids, int k, bool anew);

/* ---- rounds of seeding ahead ---- */

/* As seed_rounds() of gk_backend.h. */
GkStatus	gk_cpu_seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done, GkError *err);

/* ---- the seed index ---- */

typedef struct GkSplit
{
	float		at;				/* rows that exceed this go right */
	int32_t		feature;
} GkSplit;

typedef struct GkKey
{
	float		v;
	int32_t		row;
} GkKey;

typedef struct GkTree
{
	int			levels;			/* 1 << levels leaves */
	GkSplit    *split;			/* [leaves - 1], a heap */
	/* The sample. */
	int			rows;
	int			d;
	float	   *x;				/* [rows][d], a room with all the others; the caller frees it */
	float	   *d2;				/* [rows] */
	GkKey	   *key;			/* [rows], leaf by leaf */
} GkTree;

/* Its size; and the tree itself, false: out of memory. */
GkTree		gk_kdtree_plan(const GkSession *s);
bool		gk_kdtree_make(GkSession *s, GkTree *t);

/* The share of the tiles of an index that candidates would have to look at. */
double		gk_kdtree_open(const GkTree *t, const float *c, int candidates);

/* Make the index if that pays, D being settled; and free it. */
GkStatus	gk_cpu_seed_index_consider(GkSession *s, const float *centroids, int candidates, GkError *err);
void		gk_cpu_seed_index_free(GkSession *s);

/* As gk_cpu_plan(), for a pass over the index. */
GkSweep		gk_cpu_seed_index_plan(const GkSession *s, int m);

/* Compute the largest D of a tile anew. */
void		gk_cpu_seed_index_update(GkCpuSeedIndex *index, int tile);

/* A block's part of the index: the tiles whose first row has the number of one of the block's rows. */
typedef struct GkTileRange
{
	int			first,
				end;
} GkTileRange;

static inline GkTileRange
gk_cpu_seed_index_range(const GkBlock *b)
{
	int64_t		row = b->chunk->first + b->row + GK_ROW_PAD - 1;

	return (GkTileRange) {(int) (row / GK_ROW_PAD), (int) ((row + b->rows) / GK_ROW_PAD)};
}

#endif							/* GK_CPU_PRUNE_H */
