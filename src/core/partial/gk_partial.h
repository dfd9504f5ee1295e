/*
 * gk_partial.h - a part of one Lloyd step: the Feature Sum, the Mass Sum and the inertia of some rows,
 * assigned to a model's centroids.
 *
 * Words: a part (GkPartial) is the sums of some rows; a plane is its sums in one unit; a tile is rows that
 * are prepared, assigned and added at once.
 *
 * The preparation (GkPrep) is given, so rows come from anywhere and one at a time, and parts are added up in
 * any order: all sums are exact.  The result is that of the engine's own loop (gk_lloyd.c) bit for bit when
 * the preparation is.
 *
 * What the engine knows about all rows beforehand is not known here: how large
 * the largest weight is, and that no point lies outside the preparation's box
 * (|x_j| <= 2^expo_j).  So sums are kept in planes of different units.  A plane
 * with shift s counts
 *   sum      2^(expo_j - 40 + s)      (weighted: times 2^-23)
 *   mass     2^s                      (weighted: times 2^-23; else not used)
 *   inertia  2^(d2_expo - 80 + s)     (weighted: times 2^17)
 * where s is a multiple of 16 that depends on the weight and on the value alone.  Plane 0 is enough for
 * points in the box without weights; the others are made when a row needs them.
 *
 * With the grid of the fit's weights (GkWeightGrid), units are larger by 2^(expo - 17):
 * plane 0 then counts in the units of a GkStep, and takes the weights that are on
 * that grid as the engine does (gk_numerics.h).  Others are rounded to 24 bits.
 */
#ifndef GK_PARTIAL_H
#define GK_PARTIAL_H

#include "core/gk_core.h"

/* In memory that is aligned to 8 bytes only. */
typedef gk_int128 gk_int128_packed __attribute__((aligned(8)));

#define GK_PLANE_MIN	(-2112)
#define GK_PLANE_MAX	2640
#define GK_PLANE_STEP	16

typedef struct GkPlane
{
	int			shift;
	gk_int128_packed *sum;		/* [k][d] */
	gk_int128_packed *mass;		/* [k] */
	gk_int128_packed *inertia;	/* [k] */
} GkPlane;

/* Pointers into the caller's memory. */
typedef struct GkPartial
{
	const GkPrep *prep;
	int			k;
	bool		weighted;
	GkWeightGrid weights;
	const float *f;				/* [k][d] prepared centroids */
	int64_t    *count;			/* [k] points */
	float	   *max_d2;			/* [k] */

	/*
	 * The point farthest from its centroid; *far_d2 = 0: none yet.  Ties as in GkBackend.seed_far.
	 */
	float	   *far_d2;
	float	   *far;			/* [d] prepared */
	int			nplanes;
	GkPlane    *planes;			/* ascending shifts */
} GkPartial;

/* Rows that are being added, up to gk_partial_rows(d) of them. */
typedef struct GkTile
{
	int			room;			/* rows, a multiple of GK_ROW_PAD */
	float	   *x;				/* [d][room] prepared */
	int32_t    *label;			/* [room] */
	float	   *d2;				/* [room] */
	double	   *point;			/* one point, and its floats behind it */
	double	   *acc;			/* package sums */
	size_t		acc_size;
	/* Set by gk_partial_assign(). */
	int			rows;
	bool		inside;			/* all points and distances are those of the preparation's box */
} GkTile;

int			gk_partial_rows(int d);

/* Bytes of the arrays of a tile, and their places in a 64-byte aligned block. */
size_t		gk_tile_bytes(int d, int k, int room);
void		gk_tile_bind(GkTile *tile, void *block, int d, int k, int room);

/* Doubles in acc. */
size_t		gk_tile_acc(int d, int k, int room);

/*
 * Prepare and assign rows: raw [d][stride], finite; weight [rows] or NULL.  *missing: how many planes have to
 * be added first, their shifts go to shifts.
 */
#define GK_MAX_SHIFTS	((GK_PLANE_MAX - GK_PLANE_MIN) / GK_PLANE_STEP + 1)
GkStatus	gk_partial_assign(const GkPartial *p, GkTile *tile, const double *raw, size_t stride, int rows,
							  const double *weight, int *shifts, int *missing, GkError *err);

/*
 * Only find the missing planes, for rows that are prepared and assigned: tile->x, label, d2 and rows
 * are set; after the last row x and d2 are 0 up to a multiple of GK_ROW_PAD.
 */
GkStatus	gk_partial_find_planes(const GkPartial *p, GkTile *tile, const double *weight, int *shifts, int *missing,
								   GkError *err);

/* Add the tile's rows; all planes are there. */
void		gk_partial_add(GkPartial *p, const GkTile *tile, const double *weight);

/* Add another part's sums of the clusters [first, last); `to` has all planes of `from`. */
void		gk_partial_merge(GkPartial *to, const GkPartial *from, int first, int last);

/*
 * The update: new centroids (original units) and statistics of the old ones' assignment.  size, inertia and
 * radius are arrays of k.  *moved: whether any centroid did; *shift: summed squared movement, original units.
 * An empty cluster keeps its centroid, but the first of them goes to the farthest point.
 */
typedef struct GkPartialResult
{
	double	   *centroids;		/* [k][d] in: the old ones; out: the new ones */
	int64_t    *size;
	double	   *cluster_inertia;
	double	   *radius;
	double		inertia;
	double		shift;
	bool		moved;
	bool		repaired;		/* the farthest point is a centroid now */
	double		moved_d2;		/* prepared units */
	double	   *mean;			/* scratch, [d] */
} GkPartialResult;

/* That of the clusters [first, last): from 0 to k, in as many calls as the caller likes. */
void		gk_partial_finish(const GkPartial *p, int first, int last, GkPartialResult *out);

#endif							/* GK_PARTIAL_H */
