/*
 * gk_gpu_seed_rounds.cuh - what gk_gpu_seed_rounds.cu and gk_gpu_seed_draw.cu share.
 */
#ifndef GK_GPU_SEED_ROUNDS_CUH
#define GK_GPU_SEED_ROUNDS_CUH

#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"
#include "gpu/gk_gpu_join.h"

#define THREADS			256
#define PAIR_THREADS	64		/* as few as in gk_gpu_gemm_recheck.cu, for the same reason */
#define PAIRS			8		/* of a warp at a time: a round has few, and waits for them */
#define ROUNDS			64		/* of a batch, at most */
#define MOST_ROWS		32		/* that stand for a round: a warp */
#define SPARE			4		/* of these, at least */
#define DRAW			72.0	/* rows that a race lets through, on average: fewer than MOST_ROWS one time
								 * in 10^7 */
#define DRAW_ROOM		256
#define MOST_COLUMNS	(ROUNDS * MOST_ROWS)
#define COLUMN_PAIRS	(1 << 22)	/* of a candidate: 2^22 parts of distances, 2^40 each, add up in 64 bits */
#define MOST_PAIRS		((int64_t) 1 << 25)
#define FIRST_SEEDS		8		/* before, most points are nearer to a new seed */
#define SEEDS_A_ROUND	4		/* with few seeds each one changes much: four for each round ahead */

typedef struct Drawn
{
	double		key;
	int			row;
} Drawn;

/* A row that may stand for a round, with what the other devices cannot look up. */
typedef struct Offer
{
	double		key;
	int64_t		row;
	float		d2;
	float		w;
} Offer;

/* What happens on the device. */
typedef struct RoundsState
{
	double		phi;			/* sum of w * D, nearly: says how many rows a race lets through, no more */
	int			over;			/* no further rounds */
	int			done;			/* rounds */
	int			crowded;		/* more pairs than there is room for, on one of the devices */
	int			pairs;
	int			crowded_here;
	int			drawn[ROUNDS];
	int			drawn_ok[ROUNDS];
	double		limit[ROUNDS];	/* all rows that were left out have keys above it */
	int			other[ROUNDS];	/* the candidates may be others */
	int			winner[ROUNDS]; /* columns */
	int			chosen[ROUNDS][MOST_ROWS];	/* columns, in the race's order */
	unsigned long long gain[ROUNDS][MOST_ROWS][2];	/* high and low parts */
	int			column_pairs[MOST_COLUMNS];
	int			column_begin[MOST_COLUMNS];
	int			column_next[MOST_COLUMNS];
	int64_t		row[MOST_COLUMNS];	/* of a column; of another device: counted from this one's first row */
	float		d2[MOST_COLUMNS];	/* D of a column's row, and its weight; only where there are other devices */
	float		w[MOST_COLUMNS];
	int			offers[ROUNDS]; /* -1: more were drawn than there is room for */
	Offer		offer[ROUNDS][MOST_ROWS];	/* in the order of their keys */
	int			from[MOST_COLUMNS]; /* device * MOST_COLUMNS + column there; -1: none */
	Drawn		draw[ROUNDS][DRAW_ROOM];
} RoundsState;

struct GkSeedRounds
{
	RoundsState *state;
	float	   *points;			/* [MOST_COLUMNS][d] of the columns */
	float	   *offered;		/* the same, of this device's offers */
	float	   *winners;		/* [ROUNDS][d] */
	int		   *limit;			/* [n] keys, as GkGemmArgs.limit */
	GkGemmPair *pair;			/* [room] as they are found */
	int		   *pair_row;		/* [room] by columns */
	float	   *pair_d2;
	int			room;
	int			rounds;			/* of the next batch */
	int			pause;			/* rounds to wait after a batch that did none ... */
	int			waited;			/* ... and how many have been */
};

typedef struct RoundsArgs
{
	RoundsState *state;
	int64_t		n;
	int			d;
	int			pitch;
	const float *x;				/* [n][pitch] */
	const float *w;				/* [n] or NULL */
	float	   *mind2;			/* [n] */
	double		d2_scale;
	int			rounds;
	int			each;			/* rows that stand for a round */
	int			want;
	uint64_t	key[ROUNDS];
	/* All devices, this one among them. */
	int			devices;
	int			me;
	const RoundsState *state_of[GK_GPU_MOST];
	const float *offered[GK_GPU_MOST];
	int64_t		first[GK_GPU_MOST];	/* number of the first row */
	/* Pairs. */
	const GkGemmPair *pair;
	int		   *pair_row;
	float	   *pair_d2;
	int			room;
	const int  *found;			/* how many, in device memory */
	const float *c;				/* [columns][pitch] */
} RoundsArgs;

__device__ __forceinline__ double
weight_of(const RoundsArgs &a, int64_t row)
{
	return a.w != NULL ? (double) __ldg(a.w + row) : 1.0;
}

/* Does (key, row) come before another in a race? */
__device__ __forceinline__ bool
before(double key, int64_t row, double other_key, int64_t other_row)
{
	return key < other_key || (key == other_key && row < other_row);
}

/* The columns' rows and points. */
GkStatus	gk_gpu_seed_stand(GkSession *s, GkSeedRounds *r, const RoundsArgs *a, GkError *err);

/* Points of n columns, or of those that `column` lists: out[n][d]. */
GkStatus	gk_gpu_seed_points(GkSession *s, const RoundsArgs *a, const int *column, int n, float *out, GkError *err);

#endif							/* GK_GPU_SEED_ROUNDS_CUH */
