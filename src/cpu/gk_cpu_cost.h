/*
 * gk_cpu_cost.h - what work costs on a CPU: the numbers by which a pass is chosen and cut.
 *
 * They decide about speed alone, never about a result.  All of November 2026.  Costs are in
 * instructions for one point, roughly: clocks would judge by what else the machine does, and
 * bench/instructions counts them anywhere.  A threshold is where two ways take about as long
 * (build/bench/engine).
 */
#ifndef GK_CPU_COST_H
#define GK_CPU_COST_H

/* ---- instructions ---- */

/* Compare with a centroid: the distance of d features, and the nearest so far.  In one vector. */
#define GK_COST_DISTANCE(d)		(2.0 * (d) + 4.0)
/* ... and the second nearest. */
#define GK_COST_TWO(d)			(2.0 * (d) + 6.0)
/*
 * ... by scalar products, k centroids: half of the instructions, which some processors notice more
 * than others, but also the points' squares.  As long as without for 16 clusters, less for more.
 */
#define GK_COST_DOT(k, d)		((k) * (GK_COST_DOT_FEATURE * (d) + 4.0) + 8.0 * (d))
#define GK_COST_DOT_FEATURE		1.5

/* ... and of 16-bit integers: two features or more in one instruction on some processors, GkInt16Kernels.cost. */
#define GK_COST_INT16(cost, k, d)	((k) * ((cost) * (d) + 6.0) + 10.0 * (d))

/* A row that bounds leave open: gather its features and keep its new bounds, ... */
#define GK_COST_SEARCH(d)		(2.0 * (d) + 30.0)
/* ... sort it by its group of centroids as well, ... */
#define GK_COST_SEARCH_GROUPS(d)	(2.0 * (d) + 60.0)
/* ... or tighten its upper bound. */
#define GK_COST_TIGHTEN(d)		(3.0 * (d) + 40.0)
/* A tile of points that bounds do not settle as a whole. */
#define GK_COST_TILE			150.0

/* Make a seed index: send a point down a tree, and copy its features. */
#define GK_COST_INDEX(levels, d)	(3.0 * (levels) + 10.0 * (d) + 20.0)
/* Look at its tile's box, in every round. */
#define GK_COST_INDEX_BOX		1.0

/* What a thread does in a millisecond, about, where time decides after all: vector instructions, bytes read. */
#define GK_COST_INSTRUCTIONS_MS	2.4e6
#define GK_COST_READ_MS			8e6

/* ---- the sweep ---- */

/* Host polls are this far apart, in milliseconds. */
#define GK_COST_WINDOW_MS		20
/*
 * A job that takes longer, in GkCpuKernels.job_work, looks by itself whether the host wants to stop (gk_cpu_halt()):
 * on busy processors it takes several times as long as alone.
 */
#define GK_COST_HALT_WORK		16
/* Work other than distances, in multiply-adds for each value. */
#define GK_COST_OVERHEAD		16
/* With less work, in multiply-adds, starting threads costs more than it saves. */
#define GK_COST_THREADS			2e6

/* ---- the step ---- */

/* With more bytes of private sums for one thread or for all, features are shared out instead. */
#define GK_COST_THREAD_BYTES	((size_t) 64 << 20)
#define GK_COST_PRIVATE_BYTES	((size_t) 256 << 20)
/* ... and with fewer rows than this for each cluster and thread: merging takes longer than adding. */
#define GK_COST_MERGE_ROWS		4
/* Several copies of a thread's double sums where they take at most these bytes of the first cache. */
#define GK_COST_COPIES_BYTES	((size_t) 16 << 10)
/* Values that a small second-level cache holds beside others. */
#define GK_COST_PIECE_FLOATS	(64 * 1024)
/* Move changed rows instead of adding up all when fewer than n / this changed their label ... */
#define GK_COST_DELTA_SHARE		4
/* ... of small k, where adding up all rows takes but twice as long as assigning them ... */
#define GK_COST_SMALLK_SHARE	32
/* ... and, as labels take memory, when a point has at least this many features. */
#define GK_COST_DELTA_D			16

/* ---- scalar products ---- */

/* With fewer features or centroids, what is done for every centroid takes as long as what is saved. */
#define GK_COST_DOT_MIN_D		16
#define GK_COST_DOT_MIN_K		4
/* Of no use when more than n / this rows are undecided. */
#define GK_COST_DOT_OPEN_SHARE	8

/* With this number of features a tile is copied first: each of them is in another page. */
#define GK_COST_DOT_COPY_D		64
/* The longest a block may take, in GkCpuKernels.job_work. */
#define GK_COST_DOT_LONGEST		128

/* Products of integers: with fewer features or centroids, rounding takes as long as what is saved. */
#define GK_COST_INT16_MIN_D		32
#define GK_COST_INT16_MIN_K		48
/* Of no use when more than rows / this are undecided, ... */
#define GK_COST_INT16_OPEN_SHARE	2
/* ... where a row with very many centroids that may be the nearest counts as this number. */
#define GK_COST_INT16_CROWDED	8

/* ---- bounds ---- */

/* With fewer rows there is no work to save. */
#define GK_COST_BOUNDS_MIN_ROWS	4096
/* Up to this number of clusters a full search costs no more than the distance to a point's own. */
#define GK_COST_BOUNDS_SMALL_K	16
/* The longest a block may take when nothing can be skipped, in GkCpuKernels.job_work. */
#define GK_COST_BOUNDS_LONGEST	16
/* Begin when fewer than n / this rows changed their label, ... */
#define GK_COST_BOUNDS_CALM		24
/* ... or this, where products of integers find labels so much faster, ... */
#define GK_COST_BOUNDS_CALM_INT16	256
/* ... never, where they cost less than this: making bounds takes as long as more than ten passes. */
#define GK_COST_BOUNDS_INT16		0.3
/* ... end after this many passes in a row that cost no less than without, ... */
#define GK_COST_BOUNDS_STRIKES	2
/* ... and wait until this many times fewer rows change. */
#define GK_COST_BOUNDS_CALMER	2
/* Groups of centroids are of no use when more than this share of them has to be looked into. */
#define GK_COST_SCATTERED		0.75
/* Passes until tightening that did not pay is tried again. */
#define GK_COST_TIGHTEN_RETRY	8

/*
 * A bound for every centroid: begin when fewer than n / this rows changed their label (at once from `calm` features on,
 * GkElkanKernels).  The first pass takes a tenth longer than one without, and the fewer features, the more; ...
 */
#define GK_COST_ELKAN_CALM(calm, d)	((calm) * (calm) / (d) / (d))
/*
 * ... by sketches of this share of the features, of this number at least, where each pair that is left costs this many times
 * as much, since the passes after it have more to compare, too; ...
 */
#define GK_COST_SKETCH_SHARE		6
#define GK_COST_SKETCH_MIN_D		96
#define GK_COST_SKETCH_LEFT			2.0
/* ... the longest that a tile may take when its bounds leave all, in GkCpuKernels.job_work; ... */
#define GK_COST_ELKAN_LONGEST		64
/* ... a row of k bounds, which is turned if it is open: an estimate by a profile; ... */
#define GK_COST_ELKAN_ROW(k, d)		(5.0 * (d) + 1.0 * (k) + 500.0)
/* ... and a pair, which takes as long as three to ten of a product of all: GkElkanKernels.pair. */
#define GK_COST_ELKAN_PAIR(pair, d)	((pair) * (d) + 300.0)

/* With fewer clusters, or vectors of them, looking at all takes no longer than choosing groups ... */
#define GK_COST_GROUPS_MIN_K	32
#define GK_COST_GROUPS_VECTORS	6
/* ... and with fewer rows for each cluster, computing the groups' distances costs too much. */
#define GK_COST_GROUPS_MIN_ROWS	16
/* More coordinates than these take more than a few milliseconds to arrange. */
#define GK_COST_GROUPS_FLOATS	(1024 * 1024)

/* ---- seeding ---- */

/* Fewer points are no work, fewer seeds do not tell. */
#define GK_COST_INDEX_MIN_ROWS	16384
#define GK_COST_INDEX_MIN_SEEDS	8
/* With such a share of tiles to look at, that will not change soon. */
#define GK_COST_INDEX_HOPELESS	0.9
/* More features than this: a row's are moved one by one. */
#define GK_COST_INDEX_MAX_D		256
/* Seeds that scalar products compare at a time, at least. */
#define GK_COST_SEED_DOT		64
/* With fewer seeds, too many new ones are closer for products of 8 bits. */
#define GK_COST_SEED_INT8		384
/* ... and these are of no use where more than pairs / this may be closer. */
#define GK_COST_INT8_SHARE		8
/* Labels by them: with fewer features, filling up each run takes as long as what is saved; ... */
#define GK_COST_INT8_LABELS_D	256
/*
 * ... the longest that a tile's products may take, in GkCpuKernels.job_work, and those of the tiles that are compared at a time,
 * unless these are few.
 */
#define GK_COST_INT8_LONGEST	48
#define GK_COST_INT8_JOB		8
/* With GkInt8Kernels.coarse: features / this are coarse at most, or the least that may be. */
#define GK_COST_INT8_COARSE		48
#define GK_COST_INT8_COARSE_LEAST	8
/* A pair of which they do not tell, in products of a feature by GkInt16Kernels.cost = 1. */
#define GK_COST_INT8_PAIR(d)	(9.0 * (d) + 2500.0)
/* A centroid that may be closer to this number of a tile's rows is compared with all of them; ... */
#define GK_COST_CLOSER_DENSE	24
/* ... and with this number of pairs its rows are turned. */
#define GK_COST_CLOSER_TURN		48
/* Rounds ahead: with fewer seeds most points are nearer to a new one. */
#define GK_COST_AHEAD_SEEDS		2
/* Rows that stand for a round beside those that it draws: with more of them a batch ends later. */
#define GK_COST_AHEAD_EXTRA		2
/* Bytes for each row that a batch of rounds takes at most. */
#define GK_COST_AHEAD_BYTES		144
/* A batch may find fewer pairs than its candidates' share of the seeds, but no less than this share of them. */
#define GK_COST_AHEAD_LEAST_SHARE	0.3
/* Fewer rounds at a time are not worth a pass. */
#define GK_COST_AHEAD_FEWEST	6
/* Seeding keeps the distances to all candidates where a point has this number of features for each. */
#define GK_COST_SEED_KEEP_D		4
/* Up to this number of rows the first ones of a race are a large part of all work. */
#define GK_COST_RACE_ROWS		4096
/* Bytes of all threads' picks; where more would be needed, fewer threads run. */
#define GK_COST_RACE_BYTES		((size_t) 256 << 20)

/* ---- the last pass ---- */

/* With more bytes of statistics the main thread gathers them in one copy: nothing beside the assignment. */
#define GK_COST_FINISH_BYTES	((size_t) 16 << 20)
/* A last pass by bounds for all centroids: where comparing with these takes at least this many times what tightening a bound takes. */
#define GK_COST_FINISH_BOUNDS	3
/* With less work, in multiply-adds, remembering what it found takes as long as finding it again. */
#define GK_COST_FINISH_KEEP		1e6
/* A row alone: all centroids are read for it. */
#define GK_COST_ALONE(k, d)		(8.0 * (k) * (d))

#endif							/* GK_CPU_COST_H */
