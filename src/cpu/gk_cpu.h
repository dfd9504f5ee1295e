/*
 * gk_cpu.h - inside of the CPU backend: the session and the sweep over the points.
 */
#ifndef GK_CPU_H
#define GK_CPU_H

#include "core/gk_backend.h"
#include "cpu/simd/gk_cpu_kernels.h"

/* An array that grows and is freed with the session; main thread only. */
typedef struct GkRoom
{
	void	   *p;
	size_t		bytes;
} GkRoom;

/* Bits for candidates; some share one when there are more. */
#define GK_MARKS		16

/* Seeding between two passes: see gk_cpu_seed.c. */
typedef struct GkCpuSeed
{
	int			most;			/* seeds wanted, as far as is known */
	int			seeds;			/* that there are */
	int			consider;		/* with so many, whether to make a copy (gk_cpu_seed_index.c) */
	bool		known;			/* phi is the potential of D */
	gk_int128	phi;
	const float *pending;		/* a seed that D does not know yet; NULL: none */
	int			pending_mark;	/* its bit in marks */
	int			candidates;		/* of the last evaluation; 0: D has changed since */
	GkRoom		points;			/* float [candidates][d] */
	GkRoom		pot;			/* gk_int128 [candidates] */
	GkRoom		closer;			/* GkCandidates [threads][candidates] */
	GkRoom		marks;			/* uint16 [all_rows / GK_ROW_PAD]: the candidates a tile has closer rows to */
} GkCpuSeed;

/* The points once more, neighbours in one tile: see gk_cpu_seed_index.c. */
typedef struct GkCpuSeedIndex
{
	bool		made;			/* and D is that of the chunks */
	int			tiles;
	size_t		stride;			/* of a box's features */
	GkRoom		x;				/* float [tiles][d][GK_ROW_PAD] */
	GkRoom		d2;				/* float [tiles][GK_ROW_PAD]: D; 0 past the last row */
	GkRoom		weight;			/* likewise, of weighted points */
	GkRoom		home;			/* float * [tiles][GK_ROW_PAD]: where the chunks have D */
	GkRoom		box;			/* float [2][d][stride]: least, largest value of each tile */
	GkRoom		most;			/* float [stride]: largest D of each tile */
} GkCpuSeedIndex;

/* Labels by scalar products: see gk_cpu_dot.c. */
typedef struct GkCpuDot
{
	bool		useless;		/* too many rows were undecided */
	int64_t		open;			/* rows that were in this pass */
	GkDot	k;
	GkRoom		half;			/* float [k] */
	GkRoom		turned;			/* float [d][gk_dot_width(k)] */
	GkRoom		square;			/* float [all_rows / GK_ROW_PAD]: the largest |x|^2 of each tile; below 0: not known yet */
} GkCpuDot;

typedef struct GkMove
{
	double		move;
	int			index;
} GkMove;

/* At least the upper bound, and the margin, of every point of a cluster. */
typedef struct GkReach
{
	float		upper;
	float		gap;
} GkReach;

/* What is known of the points that need not be looked at: see gk_cpu_hamerly.c. */
typedef struct GkCpuHamerly
{
	bool		valid;			/* made for the centroids c, with the labels of the last step */
	bool		fresh;			/* this pass makes them */
	bool		rebase;			/* this pass starts an epoch */
	int			k;
	int			dense;			/* rows of a tile from which on it is searched as it is */
	int			rows;			/* of a block */
	GkMargin	margin;
	double		travel;			/* most that any margin has lost in this epoch */
	float		travel_up;		/* rounded up */
	float		travel_before;	/* at the end of the last epoch */
	GkRoom		slack;			/* float [all_rows] */
	GkRoom		floor;			/* float [all_rows]: lower bounds; none for few clusters */
	GkRoom		tile;			/* float [all_rows / GK_ROW_PAD] */
	GkRoom		c;				/* float [k][d]: of the last step */
	GkRoom		move;			/* GkMove [k]: the last ones, largest first */
	GkRoom		pushed;			/* double [k]: what the last moves took off upper bounds */
	GkRoom		near;			/* double [k]: and the largest ones nearby, off lower bounds */
	GkRoom		own;			/* double [k]: sums of the former */
	GkRoom		largest;		/* double [k]: sums of the latter */
	GkRoom		limit;			/* float [k]: own + largest, rounded up */
	GkRoom		largest_up;		/* float [k]: rounded up */
	GkRoom		limit_before,
				largest_before; /* at the end of the last epoch */
	GkRoom		reach;			/* GkReach [k] */
	GkRoom		scratch;		/* per thread */
	size_t		scratch_bytes;
	/* Whether it pays. */
	double		share;			/* of the rows, searched by the last pass */
	int			strikes;		/* passes that cost no less than without, in a row */
	bool		bundled;		/* only bundles of centroids that are near are searched */
	bool		scattered;		/* that was of no use */
	int			passes;			/* since the bounds were made */
	bool		tighten;		/* before rows are searched */
	int			untried;		/* passes without that */
	int64_t		calm;			/* changed rows from which on to try again; 0: not tried yet */
} GkCpuHamerly;

/* Which centroids are near each other: see gk_cpu_exponion.c. */
#define GK_EXPONION_GROUP		12
#define GK_EXPONION_MAX_GROUPS	1024

typedef struct GkCpuExponion
{
	int			count;
	GkRoom		c;				/* float [k][d]: the last step's centroids, bundle by bundle */
	GkRoom		cluster;		/* int32 [k]: which they are */
	GkRoom		place;			/* int32 [k]: where a cluster is */
	GkRoom		apart;			/* float [count][count]: at most the distance of two bundles' centroids */
	GkRoom		worn;			/* double [count]: what those of a bundle have lost since they were computed */
	GkRoom		moved;			/* double [count]: the largest last move in a bundle */
	GkRoom		key;			/* to arrange them */
	GkRoom		scratch;		/* per thread: a tile of centroids */
	size_t		scratch_bytes;
} GkCpuExponion;

struct GkSession
{
	const GkCore *core;
	GkStore    *store;
	const GkPoints *pts;
	const GkCpuKernels *kernels;
	GkStrategy	strategy;		/* as asked for */
	GkFeatureSum feature_sum;
	GkFeatureSum used;			/* by the last step */
	GkHost		host;			/* the problem's, with the number of threads settled */
	bool		seeding;		/* the store has its mind2 columns */
	int			max_stride;		/* of a chunk */
	size_t		all_rows;		/* of all chunks, padded */
	double		d2_scale;		/* for gk_d2_split */
	GkRoom		inv;			/* double [d]: for gk_fixed */
	GkRoom		scratch;		/* per thread: a block's labels and distances */
	GkRoom		sums;			/* per thread: gk_cpu_step.c, or potentials of gk_cpu_seed.c */
	GkRoom		label;			/* int32 [rows of a group of chunks], when a pass keeps labels */
	GkRoom		d2;				/* float, likewise */
	GkCpuSeed	seed;
	GkCpuSeedIndex	near;
	GkCpuHamerly bounds;
	GkCpuExponion bundles;
	GkCpuDot screen;
	/* The last step, for GK_DELTA. */
	int			previous_k;		/* clusters; 0: nothing is known */
	int64_t		changed;		/* rows that changed their label in it */
	GkRoom		previous;		/* int32 [all_rows]: labels */
	GkRoom		kept;			/* or, of few clusters, uint64 [all_rows / GK_ROW_PAD][gk_smallk_bits(k)] as of step_few() */
	GkRoom		base_sum;		/* its result, as GkStep */
	GkRoom		base_mass;
	GkRoom		base_count;
};

/* At least count * size bytes in r, contents lost when it grows; false: out of memory. */
bool		gk_cpu_room(GkSession *s, GkRoom *r, size_t count, size_t size);
GkStatus	gk_cpu_out_of_memory(GkError *err);

/* Some rows of one chunk in one thread's hands: a job. */
typedef struct GkBlock
{
	const GkChunk *chunk;
	int			row;			/* first row in the chunk, a multiple of GK_ROW_PAD */
	int			rows;
	int			tiles;			/* of GK_ROW_PAD rows that hold them */
	int64_t		at;				/* of the first row in the group's label arrays */
	int64_t		slot;			/* of the first row among the padded rows of all chunks */
	int			round;
	int			thread;
	/* The thread's scratch, room for the block (sweep.points only). */
	int32_t    *label;
	float	   *d2;
} GkBlock;

/*
 * A pass over all points.  The rows of a group of chunks are cut into blocks;
 * block() runs on any thread for every block, for round 0, then for round 1 and
 * so on (centroids are cut into rounds when one block against all of them would
 * take too long to react to a cancel).  chunk() runs on the main thread, chunks in
 * order, when all rounds of the chunk's group are done.
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
	bool		keep_labels;	/* s->label and s->d2 hold a group's labels */
	void	   *arg;
	void		(*block) (GkSession *s, void *arg, const GkBlock *b);
	GkStatus	(*chunk) (GkSession *s, void *arg, const GkChunk *chunk, int64_t at, GkError *err);
} GkSweep;

/* Sizes for a pass that compares all points with m centroids, or looks at D alone. */
#define GK_D_ONLY	(-1)
GkSweep		gk_cpu_plan(const GkSession *s, int m);
GkStatus	gk_cpu_sweep(GkSession *s, const GkSweep *sweep, GkError *err);
/* A block's points. */
GkTiles		gk_cpu_tiles(const GkSession *s, const GkBlock *b);

/*
 * One round of assigning a block to k centroids; true after the last round.  The
 * labels are in s->label when the sweep keeps them, else in the thread's scratch.
 */
typedef struct GkLabels
{
	GkTiles		x;
	int32_t    *label;
	float	   *d2;
} GkLabels;

bool		gk_cpu_assign(const GkSession *s, const GkSweep *sweep, const GkBlock *b,
						  const float *centroids, int k, GkLabels *out);

/*
 * gk_cpu_dot.c: whether labels of k clusters may come that way; whether a pass's do, the
 * sweep is changed for it then.  Labels of some tiles with so many rows, the first one's slot
 * among all chunks' given; and the end of the pass.
 */
bool		gk_cpu_dot_possible(const GkSession *s, int k);
GkStatus	gk_cpu_dot_begin(GkSession *s, GkSweep *sweep, const float *c, int k, bool *screened, GkError *err);
void		gk_cpu_dot_labels(GkSession *s, const GkTiles *x, int64_t slot, int rows, int32_t *label);
void		gk_cpu_dot_end(GkSession *s);

/* gk_cpu_step.c */
GkStatus	gk_cpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err);

/*
 * gk_cpu_hamerly.c, gk_cpu_hamerly_search.c.  A step asks whether bounds may be kept, begins
 * with them where that helps (the labels and sums of the last step being there), has
 * them take the place of the assignment, and says when it is through.
 */
bool		gk_cpu_hamerly_possible(const GkSession *s, int k);
bool		gk_cpu_hamerly_begin(GkSession *s, GkSweep *sweep, const float *centroids, int k);
/*
 * Bring the block's labels (s->previous) up to date.  Returns how many changed:
 * b->label has the rows, b->d2 as int32 what their labels were.
 */
int			gk_cpu_hamerly_block(GkSession *s, const GkBlock *b, const float *centroids, int k);
void		gk_cpu_hamerly_end(GkSession *s, const GkSweep *sweep, bool used);
void		gk_cpu_hamerly_forget(GkSession *s);
void		gk_cpu_hamerly_free(GkSession *s, const GkHost *host);

/* gk_cpu_exponion.c: for the bounds; anew: of other centroids, or arranged anew. */
bool		gk_cpu_exponion_possible(const GkSession *s, int k);
bool		gk_cpu_exponion_follow(GkSession *s, const GkHost *host, const float *centroids, int k, bool anew);
void		gk_cpu_exponion_free(GkSession *s, const GkHost *host);

/* gk_cpu_step_partitioned.c */
GkStatus	gk_cpu_step_partitioned(GkSession *s, const GkSweep *sweep, const float *centroids, int k,
									GkStep *out, GkError *err);

/* Sums in one job where a pass over the results is shared out. */
#define GK_CPU_JOB_SUMS	(64 * 1024)

/* gk_cpu_finish.c */
GkStatus	gk_cpu_finish(GkSession *s, const float *centroids, int k,
						  GkFinish *out, const GkLabelSink *sink, GkError *err);

/* gk_cpu_seed.c */
GkStatus	gk_cpu_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err);
GkStatus	gk_cpu_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err);
GkStatus	gk_cpu_seed_far(GkSession *s, int64_t *row, GkError *err);

/* Tell the block's D of the pending seed. */
void		gk_cpu_seed_settle(GkSession *s, const GkBlock *b, const float *seed);
/* Tell all of it. */
GkStatus	gk_cpu_seed_settled(GkSession *s, GkError *err);

/* gk_cpu_seed_index.c: its copy is of no use any more. */
void		gk_cpu_seed_index_free(GkSession *s, const GkHost *host);

/* gk_cpu_sample.c */
GkStatus	gk_cpu_seed_race(GkSession *s, uint64_t key, bool use_d2, int want,
							 GkPick *out, int *got, GkError *err);

#endif							/* GK_CPU_H */
