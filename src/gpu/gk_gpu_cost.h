/*
 * gk_gpu_cost.h - what things cost on a GPU, and how much of its memory they take: the numbers by which
 * slices, launches and kernels are chosen.
 *
 * Measured on an H200 (132 multiprocessors, 4.8 TB/s) in November 2026, rounded to the safe side.  On another
 * GPU they are off by as much as it is faster or slower: that changes which of the exact kernels runs, and
 * how soon a cancel is noticed, never a result.
 */
#ifndef GK_GPU_COST_H
#define GK_GPU_COST_H

#include "gpu/gk_gpu.h"

/* ---- time ---- */

#define GK_SM_LANES			128 /* float32 operations of a multiprocessor per cycle */
#define GK_MIN_HZ			1.2e9	/* cycles per second under load, at least */

/* Lane cycles of the slowest kernels. */
#define GK_CYCLES_DISTANCE	6.0 /* per row, centroid and feature */
#define GK_CYCLES_VALUE		40.0	/* per row and feature: load it, add it up */
#define GK_CYCLES_ROW		200.0

#define GK_SLICE_S			0.025	/* seconds of a slice's kernels, so that a cancel need not wait */
#define GK_LAUNCH_S			0.03	/* of one launch that compares all of a slice */

/* One iteration over resident points (gk_gpu_step.cu); to decide how far to run ahead of the host. */
#define GK_COST_SMS			132 /* multiprocessors of the GPU that these are of */
#define GK_ITERATION_MS		0.004	/* with nothing to do */
#define GK_READ_PER_MS	4e9		/* bytes read per millisecond */
#define GK_BUS_PER_MS	5e7		/* ... from main memory */
#define GK_CYCLES_PER_MS	1.5e6	/* cycles per millisecond */
#define GK_DISTANCE_OPS		3	/* operations per row, centroid and feature */
#define GK_UNIT_MS			4.0 /* of a launch that does many iterations */
#define GK_BRIEF_VALUES		(1 << 14)	/* clusters times features: less goes to the host in no time */
#define GK_AHEAD_MS			40.0	/* longer iterations are not worth running ahead */

/* Small groups (gk_gpu_groups.cu), cycles of a block. */
#define GK_GROUP_SLOT_MS	12.0	/* of a slot, at most */
#define GK_GROUP_ROUND		4000.0	/* an iteration: its barriers and what one thread does ... */
#define GK_GROUP_CLUSTER	50.0	/* ... per cluster */
#define GK_GROUP_VALUE		16.0	/* per value and thread */
/* Most groups take a tenth of the iterations that they may, in blocks side by side. */
#define GK_GROUP_ROUND_MEAN	1000.0
#define GK_GROUP_CLUSTER_MEAN	10.0
#define GK_GROUP_VALUE_MEAN	0.1

/* Sorting points for gk_gpu_filter.cu costs as much as this many distances of one feature, per row. */
#define GK_FILTER_SORT		2500
#define GK_FILTER_SORT_D	16	/* features: with more, an iteration takes as long as if there were ... */
#define GK_FILTER_SORT_K	10	/* ... these clusters more: no kernel has them in registers */
#define GK_FILTER_NARROW_D	8	/* with more features boxes are larger, and products win from ... */
#define GK_FILTER_MAX_WORK	45000	/* ... this many clusters times the square of the features on */
#define GK_FILTER_MIN_ROWS	((int64_t) 1 << 20) /* with fewer, launches take the time */
#define GK_FILTER_MAX_SHARE	0.25	/* of those distances computed: with more it does not pay */

/* Where a matrix product makes the labels (gk_gpu_gemm.cu). */
#define GK_GEMM_PER_MS	2e11	/* points, features, clusters per millisecond */
#define GK_GEMM_MIN_D		5
#define GK_GEMM_NARROW_D	16	/* features: up to these other kernels have them in registers, and win ... */
#define GK_GEMM_MIN_NARROW	1500	/* ... with fewer clusters times the features above GK_GEMM_FREE_D */
#define GK_GEMM_FREE_D		4
#define GK_GEMM_MIN_WORK	1e8 /* points, features, clusters: with less, launches take the time */
#define GK_GEMM_SLICE		4	/* times the rows of other kernels' slices: only at worst it takes as long */
#define GK_GEMM_CALM		6	/* times that where few rows were undecided: each slice has a tail, and pads
								 * what it gathers */
#define GK_GEMM_CALM_SHARE	0.1 /* few: of all rows */
#define GK_GEMM_MOST_KEYS	(1 << 20)	/* about all pivots, but for GK_GEMM_GROUPS of them */
#define GK_GEMM_COPIES		(1 << 24)	/* values of all copies of the centroids: to make them takes time ... */
#define GK_GEMM_MIN_COPIES	12	/* ... but up to this many may be in any case; at most these values */
#define GK_GEMM_MOST_COPIES	(1 << 30)
#define GK_GEMM_PIVOT_TILES	8	/* of rows a pivot, at least: half a tile of them is padding */
#define GK_GEMM_MAX_UNDECIDED	0.03	/* of rows that are not sorted: with more, sorting pays */
#define GK_GEMM_FIRST_D	128		/* features: up to these the nearest of many pivots is found in little time */
/* Nanoseconds, to know when the order of the points has become so old that a new one pays. */
#define GK_GEMM_PART_NS		(64 / 3.3e5)	/* a row and a part of a tile of columns, a feature ... */
#define GK_GEMM_PART_MORE	64	/* ... and as many features more for what is made of the scores */
#define GK_GEMM_RECHECK_NS	0.1 /* an undecided row beside its product, and ... */
#define GK_GEMM_SORT_NS		0.4 /* ... to sort a row, and ... */
#define GK_GEMM_VALUE_NS	0.004	/* ... a feature of either */
#define GK_GEMM_SORT_MS		1.5 /* beside that */
#define GK_GEMM_MIN_HEAD_WIDTH	256 /* values of a row: of fewer the product is too little of a pass */
#define GK_GEMM_MOST_PAIRS	5.0 /* candidates of a head, a row: with more their list might not have the room */
#define GK_GEMM_MOST_KEPT	0.5 /* undecided rows of all: with more, the list of what whole rows keep might
								 * not */
#define GK_GEMM_MOST_SAMPLE	1e9 /* clusters, features: with more, one kernel would sample for too long */
#define GK_GEMM_LIMITS_NS	6e-4	/* a value of a row and its last centroid ... */
#define GK_GEMM_KEEP_NS		3.5e-4	/* ... and of a candidate by a head */
#define GK_GEMM_CHECK_NS	0.35	/* to look at a row's bounds, beside what a value takes as for a limit */
#define GK_GEMM_RENEW	2.0		/* times what a row's product takes, to make its bounds anew */
#define GK_GEMM_MAX_PAIRS	0.1 /* of all distances: with more, other kernels take less */

/* ---- memory ---- */

/* Device memory beside the points: contexts and rings, per value of a step, per row. */
#define GK_REST_BYTES		((size_t) 32 << 20)
#define GK_REST_VALUE		96	/* accumulators, totals, the log's units */
#define GK_REST_ROW			8	/* D, and labels */
#define GK_DEFAULT_LIMIT	0.8 /* gkmeans.gpu_memory_limit */

/* Shared memory that a block's private tables may take; of 227 KB on an H200, 163 KB on sm_80. */
#define GK_TABLE_BYTES		((size_t) 200 << 10)

/* Blocks per multiprocessor of kernels that stream the points. */
#define GK_SM_BLOCKS		8

/* Lane cycles of the whole device in some time. */
static inline double
gk_gpu_cycles(const GkSession *s, double seconds)
{
	return seconds * s->gpu->sms * GK_SM_LANES * GK_MIN_HZ;
}

/* Bytes of shared memory for a block's private tables. */
static inline size_t
gk_gpu_table_room(const GkSession *s)
{
	return s->gpu->shared_optin < GK_TABLE_BYTES ? s->gpu->shared_optin : GK_TABLE_BYTES;
}

#endif							/* GK_GPU_COST_H */
