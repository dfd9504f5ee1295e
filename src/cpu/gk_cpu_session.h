/*
 * gk_cpu_session.h - what the CPU backend remembers from pass to pass, and how a pass walks
 * over the points.
 *
 * All memory of a session comes from gk_cpu_room(), on the main thread, and goes with it.  Arrays of [slots] or
 * [tiles] are those of gk_cpu_tile_room().
 */
#ifndef GK_CPU_SESSION_H
#define GK_CPU_SESSION_H

#include "core/base/gk_sizes.h"
#include "core/gk_backend.h"
#include "cpu/gk_cpu_cost.h"
#include "cpu/simd/gk_cpu_kernels.h"

/* ---- the session ---- */

/* Bits for candidates; some share one when there are more. */
#define GK_MARKS		16

/* Rows that a batch of rounds has drawn, and their pairs: gk_cpu_seed_rounds.c. */
typedef struct GkCpuSeedDrawn
{
	int			count;			/* of drawn */
	size_t		most_drawn;
	struct Drawn *drawn;		/* [most_drawn] */
	int32_t    *number;			/* [rows]: in drawn; -1: not there */
	struct Pair *pair;			/* [room] */
	size_t		pairs;			/* that are known */
	size_t		most;			/* that are kept from batch to batch */
	size_t		room;			/* for them, and those of a batch */
	size_t		bytes;			/* of the memory limit; 0: nothing yet */
} GkCpuSeedDrawn;

/* Seeding between two passes: gk_cpu_seed.c. */
typedef struct GkCpuSeed
{
	int			wanted;			/* seeds, as far as is known */
	int			seeds;			/* there are */
	int			consider;		/* at this number of seeds, whether to make an index (gk_cpu_seed_index.c) */
	int			ahead_from;		/* with fewer seeds, no rounds ahead: gk_cpu_seed_rounds.c */
	int			ahead_most;		/* rounds at a time, at most */
	double		ahead_share;	/* pairs of the last batch, in those of its candidates if all were seeds */
	bool		known;			/* phi is the potential of D */
	gk_int128	phi;
	float	   *all;			/* [tiles][count][GK_ROW_PAD]: their distances, if kept */
	bool		kept;
	const float *pending;		/* a seed that D does not know yet; NULL: none */
	const float *pending_all;	/* its first distances in all; NULL: not kept */
	int			all_stride;		/* from a tile's to the next one's */
	int			pending_mark;	/* its bit in marks */
	int			count;			/* candidates of the last evaluation; 0: D has changed since */
	float	   *points;			/* [count][d] */
	gk_int128  *pot;			/* [count] */
	GkCandidates *improved;		/* [threads][count] */
	uint16_t   *marks;			/* [tiles]: the candidates that a tile has closer rows to */
	float	   *given;			/* [given_count][d]: all seeds, while the nearest one of each row is known */
	int			given_count;	/* 0: not known */
	int32_t    *nearest;		/* [slots]; with a single seed not yet there */
	GkCpuSeedDrawn drawn;
} GkCpuSeed;

/* A copy of the points, neighbours in one tile: gk_cpu_seed_index.c. */
typedef struct GkCpuSeedIndex
{
	bool		made;			/* and D is that of the chunks */
	int			tiles;
	size_t		stride;			/* of a box's features */
	float	   *x;				/* [tiles][d][GK_ROW_PAD] */
	float	   *d2;				/* [tiles][GK_ROW_PAD]: D; 0 past the last row */
	float	   *weight;			/* likewise, of weighted points */
	float	  **home;			/* [tiles][GK_ROW_PAD]: where the chunks have D */
	float	   *box;			/* [2][d][stride]: least, largest value of each tile */
	float	   *max_d2;			/* [stride]: largest D of each tile */
} GkCpuSeedIndex;

/* A group of centroids, rounded (gk_cpu_int16.c). */
typedef struct GkInt16Group
{
	bool		still;			/* no other ones than those that were rounded last */
	double		square;			/* |c|^2, the largest */
	double		value;			/* |c_j|, the largest */
	double		lost;			/* |B c - b|^2, the largest */
} GkInt16Group;

/* Labels by scalar products: gk_cpu_dot.c. */
typedef struct GkCpuDot
{
	bool		useless;		/* too many rows were undecided */
	int64_t		open;			/* rows that were undecided in this pass */
	GkDot		args;			/* of the kernels */
	GkInt16 int16;				/* of those of integers: gk_cpu_int16.c; k = 0: not in this pass */
	bool		int16_useless;	/* too many rows were undecided by integers */
	int64_t		int16_open;		/* rows that were, in this pass */
	int64_t		int16_rows;		/* of how many */
	int			int16_passes;	/* that have used them */
	int32_t    *int16_y;		/* [tiles][words of GK_ROW_PAD rows]: rounded points; NULL: not kept */
	GkInt16Tile *int16_tile;	/* [tiles] */
	size_t		int16_bytes;	/* of both */
	float	   *int16_pivot;	/* [d]; NULL: not known yet */
	int32_t    *int16_c;
	float	   *int16_half;
	GkInt16Group *int16_group;	/* [groups] */
	bool		int16_of_elkan; /* these three are of GkCpuElkan.last */
	char	   *scratch;		/* [threads][scratch_bytes]: a tile of rows, some more, then what integers
								 * take */
	size_t		scratch_bytes;
	float	   *half;			/* [k] */
	float	   *columns;		/* [d][gk_dot_width(k)] */
	float	   *square;			/* [tiles]: largest |x|^2 of each tile; < 0: not known yet */
	uint64_t   *tied;			/* [tiles]: gets bits of rows that may have several nearest centroids; NULL:
								 * not wanted */
} GkCpuDot;

/* Which centroids may be closer, by products of 8-bit integers: gk_cpu_int8.c. */
typedef struct GkCpuInt8
{
	bool		useless;		/* too many may have been */
	int64_t		pairs;			/* of a row and a centroid that may be nearer, in this pass */
	bool		known;			/* labels to begin with */
	int			wait;			/* passes without, before labels are tried by them */
	int			waited;			/* the last time */
	GkInt8		args;			/* of the kernels */
	int32_t    *c;
	GkInt8Centroid *of;
	int32_t    *feature;
	int32_t    *y;				/* [tiles][words][GK_ROW_PAD]: rounded points; NULL: not kept */
	GkInt8Tile *tile;			/* [tiles] */
	size_t		bytes;			/* of both */
	char	   *scratch;		/* [threads][scratch_bytes]: GkInt8Points of some tiles, bits, such points
								 * and tiles, if not kept */
	size_t		scratch_bytes;
} GkCpuInt8;

typedef struct GkCentroidMove
{
	double		length;
	int			cluster;
} GkCentroidMove;

/* At least the upper bound, and at least lower - upper, of every point of a cluster. */
typedef struct GkReach
{
	float		upper;
	float		gap;
} GkReach;

/* Bounds of the distances of every point: gk_cpu_hamerly.c, which defines C, M and limit. */
typedef struct GkCpuHamerly
{
	bool		valid;			/* made for the centroids c, with the labels of the last step */
	bool		fresh;			/* this pass makes them */
	bool		rebase;			/* this pass starts an epoch */
	int			k;
	int			dense_rows;		/* a tile with more open rows is searched as it is */
	GkMargin	margin;
	double		travel;			/* the most that any margin has lost in this epoch */
	float		travel_up;		/* rounded up */
	float		travel_before;	/* at the end of the last epoch */
	float	   *slack;			/* [slots] */
	float	   *lower;			/* [slots]: lower bounds + M; NULL: k <= GK_COST_BOUNDS_SMALL_K */
	float	   *tile_slack;		/* [tiles]: least margin + travel */
	float	   *c;				/* [k][d]: of the last step */
	GkCentroidMove *moves;		/* [k]: the last ones, largest first */
	double	   *own_move;		/* [k]: what the last move took off upper bounds */
	double	   *near_move;		/* [k]: and the largest one nearby, off lower bounds */
	double	   *own_sum;		/* [k]: C */
	double	   *near_sum;		/* [k]: M */
	float	   *limit;			/* [k]: C + M, rounded up */
	float	   *near_limit;		/* [k]: M, rounded up */
	float	   *limit_before;	/* at the end of the last epoch */
	float	   *near_limit_before;
	GkReach    *reach;			/* [k] */
	char	   *scratch;		/* [threads][scratch_bytes]: GkHamerlyScratch */
	size_t		scratch_bytes;
	/* Whether it pays. */
	double		share;			/* of the rows, searched by the last pass */
	int			strikes;		/* passes in a row that cost no less than without */
	int			ended;			/* k of bounds that were given up for that; 0: none were */
	bool		grouped;		/* only groups of centroids that are near are searched */
	bool		scattered;		/* that was of no use */
	int			passes;			/* since the bounds were made */
	bool		tighten;		/* before rows are searched */
	int			untried;		/* passes without that */
	int64_t		calm;			/* with fewer changed rows, try again; 0: not tried yet */
} GkCpuHamerly;

/* A bound for every row and centroid: gk_cpu_elkan.c. */
typedef struct GkCpuElkan
{
	bool		valid;			/* made for the centroids `last`, with the labels of the last step */
	bool		fresh;			/* this pass makes them, ... */
	bool		by_sketch;		/* ... of sketches: gk_cpu_sketch.c */
	int			k;				/* 0: there is no room */
	GkElkan		args;			/* of the kernels */
	uint16_t   *lower;			/* [slots][args.width] */
	uint16_t   *upper;			/* [slots] */
	size_t		bytes;			/* of both */
	float	   *last;			/* [k][d] */
	int32_t    *c;
	double	   *sum;			/* [k]: M */
	uint16_t   *move;
	int32_t    *active;
	uint16_t   *moved;
	float	   *moved_down;
	int64_t		pairs;			/* compared in this pass */
	int			strikes;		/* passes in a row that cost no less than without */
	int64_t		calm;			/* with fewer changed rows, try again; 0: not tried yet */
} GkCpuElkan;

/* Sketches of centroids: gk_cpu_sketch.c. */
typedef struct GkCpuSketch
{
	int			head;			/* features that are kept, ... */
	int			width;			/* ... and with the lengths of others */
	int32_t    *feature;		/* [d]: those that are kept first */
	float	   *zero;			/* [width]: the pivot */
	float	   *c;				/* [k][width] */
	double	   *square;			/* [k] */
	int32_t    *rounded;
	float	   *half;
	GkInt16		args;			/* of these two */
	char	   *scratch;		/* [threads][scratch_bytes]: a tile */
	size_t		scratch_bytes;
} GkCpuSketch;

/* Groups of centroids near each other: gk_cpu_exponion.c. */
#define GK_EXPONION_GROUP		12
#define GK_EXPONION_MAX_GROUPS	1024

typedef struct GkCpuExponion
{
	int			count;			/* groups */
	float	   *c;				/* [k][d]: the last step's centroids, group by group */
	int32_t    *cluster;		/* [k]: which they are */
	int32_t    *place;			/* [k]: where a cluster is */
	float	   *apart;			/* [count][count]: at most the distance of two groups' centroids */
	double	   *worn;			/* [count]: what those of a group have lost since they were computed */
	double	   *moved;			/* [count]: the largest last move in a group */
	void	   *sort;			/* scratch to arrange them */
	char	   *scratch;		/* [threads][scratch_bytes]: a tile of centroids */
	size_t		scratch_bytes;
} GkCpuExponion;

/* What the last finish() has found: gk_cpu_finish.c. */
typedef struct GkCpuFound
{
	int			k;				/* centroids; 0: nothing is known */
	int32_t    *label;			/* [slots] */
	float	   *d2;				/* [slots] */
	uint64_t   *tied;			/* [tiles]: as GkCpuDot.tied */
	int64_t		ties;			/* bits in it */
} GkCpuFound;

/* gk_medians_step.c */
typedef struct GkCpuMedians
{
	int32_t    *label;			/* [slots] */
	float	   *distance;		/* [slots] */
	uint32_t   *code;			/* [slots]: buckets of some features */
	float	   *value;			/* those that may be medians */
	struct Spread *spread;
	struct Buckets *bucket;
	uint32_t   *count;
	uint32_t   *chosen;
	int64_t    *next;
	struct Median *median;
	int64_t    *rows;
} GkCpuMedians;

struct GkSession
{
	const GkCore *core;
	GkStore    *store;
	const GkPoints *pts;
	const GkCpuKernels *kernels;
	struct GkRoom *rooms;		/* all arrays */
	GkStrategy	strategy;		/* as asked for */
	GkFeatureSum feature_sum;
	GkFeatureSum used;			/* by the last step */
	GkHost		host;			/* the problem's, with the number of threads settled */
	int			max_stride;		/* of a chunk */
	size_t		first_tile;		/* of its rows */
	size_t		end_tile;		/* after them */
	size_t		all_rows;		/* of these tiles */
	double		d2_scale;		/* for gk_d2_split */
	double	   *inv;			/* [d]: for gk_fixed */
	bool		halted;			/* blocks of this sweep have ended early: gk_cpu_halt() */
	char	   *scratch;		/* per thread: a block's labels and distances */
	void	   *sums;			/* per thread: what a pass adds up */
	int32_t    *label;			/* [rows of a span of chunks], when a pass keeps labels */
	float	   *d2;				/* likewise */
	float	   *turned;			/* per thread: gk_cpu_closer.c */
	GkCpuSeed	seed;
	GkCpuSeedIndex index;
	GkCpuHamerly hamerly;
	GkCpuExponion exponion;
	GkCpuElkan	elkan;
	GkCpuSketch sketch;
	GkCpuDot	dot;
	GkCpuInt8 int8;
	GkCpuFound	found;
	GkCpuMedians medians;
	/* The last step, for one that begins with its labels or its result. */
	int			previous_k;		/* clusters; 0: nothing is known */
	bool		previous_bits;	/* by label_bits, else by previous */
	int64_t		changed;		/* rows that changed their label in it */
	int64_t		added;			/* rows since then (gk_cpu_move.c) */
	bool		base_moved;		/* the result is one of other rows since then (gk_cpu_move.c) */
	int32_t    *previous;		/* [slots]: labels */
	uint64_t   *label_bits;		/* small k: [tiles][gk_smallk_bits(k)], see step_smallk() */
	GkStep		base;			/* its result, ... */
	size_t		base_bytes;		/* ... and what its sums take of the limit where private ones would take too
								 * much; else 0 */
};

GkStatus	gk_cpu_open(const GkProblem *problem, GkSession **out, GkError *err);

/*
 * The session's rows are those of a store.  Of another part of the same one: tiles that it had keep what they have,
 * others have nothing yet.  false: no memory for them, all is as it was.  The second one then gives back the memory
 * of those of tiles first .. end-1 that it does not have any more.
 */
bool		gk_cpu_set_rows(GkSession *s, GkStore *store);
void		gk_cpu_drop_tiles(GkSession *s, size_t first, size_t end);

/* Open a session for another distance: with kernels that are made of this CPU's, and without skipping points. */
typedef void GkKernelsOf (const GkCpuKernels *cpu, GkCpuKernels *out);

GkStatus	gk_cpu_open_with(const GkProblem *problem, GkKernelsOf *kernels_of, GkSession **out, GkError *err);
void		gk_cpu_close(GkSession *s);

/*
 * Make *array, the address of a pointer in the session or of a local one, an array of at least
 * count * size bytes; contents are lost when it grows.  false: out of memory, *array is NULL.
 */
bool		gk_cpu_room(GkSession *s, void *array, size_t count, size_t size);

/*
 * The same for an array with `each` bytes for each tile; those of the session's tiles may be used.  A part's rows may
 * become others: the array has addresses for all tiles of the store, which take no memory.
 */
bool		gk_cpu_tile_room(GkSession *s, void *array, size_t each);

/* Slots from the first row of chunk i to that of the next one. */
static inline int64_t
gk_cpu_chunk_slots(const GkPoints *pts, int i)
{
	return pts->chunks[i].stride - (i == 0 ? pts->skipped : 0);
}

/* Main thread: does the host want the session to stop? */
static inline bool
gk_cpu_stopped(const GkSession *s)
{
	return s->host.poll != NULL && s->host.poll(s->host.ctx);
}

/* What GkCpuFound takes, with another pass's bits. */
static inline size_t
gk_cpu_found_bytes(const GkSession *s)
{
	return s->all_rows * (sizeof(int32_t) + sizeof(float)) + s->all_rows / GK_ROW_PAD * 2 * sizeof(uint64_t);
}

/* Bytes of the memory limit that are left for what saves time; what is remembered beside points in a file is counted. */
static inline size_t
gk_cpu_spare(const GkSession *s)
{
	size_t		numbers = s->pts->resident ? 0 : (s->previous != NULL) + (s->seed.nearest != NULL);
	size_t		used = s->dot.int16_bytes + s->int8.bytes + s->elkan.bytes + s->base_bytes + (s->found.label != NULL ? gk_cpu_found_bytes(s) : 0) + numbers * s->all_rows * sizeof(int32_t);

	return s->pts->spare > used ? s->pts->spare - used : 0;
}

/* What rounds of seeding ahead take of it, or will. */
static inline size_t
gk_cpu_ahead_bytes(const GkSession *s)
{
	return s->seed.drawn.bytes > 0 ? s->seed.drawn.bytes : s->pts->n * (GK_COST_AHEAD_BYTES + sizeof(int32_t));
}

/* May a number for each row be remembered in *array?  Beside points in a file it has to fit the limit. */
static inline bool
gk_cpu_remembers(const GkSession *s, const int32_t *array)
{
	return s->pts->resident || array != NULL || s->all_rows * sizeof(int32_t) <= gk_cpu_spare(s);
}

/* Give *array back before the session ends, and make it NULL. */
void		gk_cpu_room_free(GkSession *s, void *array);

/* Give a last result back that is counted. */
static inline void
gk_cpu_drop_base(GkSession *s)
{
	if (s->base_bytes > 0)
		gk_cpu_room_free(s, &s->base.sum);
	s->base_bytes = 0;
}

/* Seeding ends, or goes on without: forget what rounds ahead have drawn. */
static inline void
gk_cpu_drop_drawn(GkSession *s)
{
	gk_cpu_room_free(s, &s->seed.drawn.pair);
	gk_cpu_room_free(s, &s->seed.drawn.drawn);
	gk_cpu_room_free(s, &s->seed.drawn.number);
	s->seed.drawn = (GkCpuSeedDrawn) {0};
}

GkStatus	gk_cpu_out_of_memory(GkError *err);

/* Bytes of a thread's region: whole cache lines and one more, so that threads do not share one. */
static inline size_t
gk_cpu_region_bytes(size_t bytes)
{
	return (bytes + 2 * GK_CACHE_LINE - 1) / GK_CACHE_LINE * GK_CACHE_LINE;
}

/* ---- the sweep ---- */

/* Rows of one chunk: a job. */
typedef struct GkBlock
{
	const GkChunk *chunk;
	int			row;			/* first row in the chunk, a multiple of GK_ROW_PAD */
	int			rows;
	int			tiles;			/* of GK_ROW_PAD rows that hold them */
	int64_t		at;				/* of the first row in the span's label arrays */
	int64_t		slot;			/* of the first row */
	int			round;
	int			thread;
	/* The thread's scratch, room for the block (sweep.points only). */
	int32_t    *label;
	float	   *d2;
} GkBlock;

/*
 * A pass over all points.  The rows of a span of chunks are cut into blocks;
 * block() runs on any thread for every block, for round 0, then for round 1 and
 * so on (centroids are cut into rounds when one block against all of them would
 * take too long to react to a cancel).  chunk() runs on the main thread, chunks in
 * order, when all rounds of the chunk's span are done.
 */
typedef struct GkSweep
{
	/* Filled by gk_cpu_plan(). */
	int			threads;		/* that may call block(): 0 .. threads-1 */
	int			rows;			/* of a block, a multiple of GK_ROW_PAD */
	int			per_round;		/* centroids in a round */
	int			rounds;
	double		job_work;		/* multiply-adds of one block in one round */
	bool		points;			/* features are looked at, so blocks have scratch */
	/* Up to the pass. */
	bool		mind2;			/* chunks come with the seeding column */
	bool		dirty;			/* and it is changed */
	bool		keep_labels;	/* s->label and s->d2 are there for all rows of a span */
	void	   *arg;
	void		(*block) (GkSession *s, void *arg, const GkBlock *b);
	GkStatus	(*chunk) (GkSession *s, void *arg, const GkChunk *chunk, int64_t at, GkError *err);
} GkSweep;

/* Plan a pass that compares all points with m centroids, or looks at D alone. */
#define GK_D_ONLY	(-1)
GkSweep		gk_cpu_plan(const GkSession *s, int m);
GkStatus	gk_cpu_sweep(GkSession *s, const GkSweep *sweep, GkError *err);

/* A block's points. */
GkTiles		gk_cpu_tiles(const GkSession *s, const GkBlock *b);

/*
 * Any thread, in a block that takes long: is it to end, since the host wants to stop?  Labels are valid then, if not
 * right, and the sweep is stopped.
 */
static inline bool
gk_cpu_halt(GkSession *s)
{
	if (gk_host_stops(&s->host))
		__atomic_store_n(&s->halted, true, __ATOMIC_RELAXED);
	return __atomic_load_n(&s->halted, __ATOMIC_RELAXED);
}

/*
 * Assign a block to k centroids, one round of it; true after the last round.  The
 * labels are in s->label when the sweep keeps them, else in the thread's scratch.
 */
typedef struct GkBlockLabels
{
	GkTiles		x;
	int32_t    *label;
	float	   *d2;
} GkBlockLabels;

bool		gk_cpu_assign(const GkSession *s, const GkSweep *sweep, const GkBlock *b,
						  const float *centroids, int k, GkBlockLabels *out);

#endif							/* GK_CPU_SESSION_H */
