/*
 * gk_cpu.h - the CPU backend: Lloyd's k-means by threads and vector instructions.
 *
 * A pass (step, finish, seeding) walks over the points by gk_cpu_sweep.c and computes with the
 * kernels of simd/.  What prune/ proves to be settled is not computed: the bounds of Hamerly and
 * Elkan and exponion's groups of centroids leave out points and centroids of a step, products of
 * floats and integers tell most labels, a k-d tree and rounds ahead leave out work when seeding.
 * Every way gives the bits of the plain loop.
 *
 * Words:
 *   chunk     rows of the store that are in memory together, column by column
 *   span      chunks that a sweep has open at the same time
 *   block     rows of one chunk: a job of a sweep
 *   slice     some tiles of a block that a kernel works on at a time
 *   tile      GK_ROW_PAD rows, the unit of all kernels
 *   slot      number of a row among the padded rows of all chunks; of a part, the whole store's
 *   region    a thread's private memory in a pass
 *   D         squared distance of each point to its nearest seed (mind2)
 *   small k   at most GK_CPU_SMALLK clusters: kernels that assign and add up at once
 */
#ifndef GK_CPU_H
#define GK_CPU_H

#include "cpu/gk_cpu_session.h"

/* Sums in one job where a pass over the results is shared out. */
#define GK_CPU_JOB_SUMS	(64 * 1024)

/* gk_cpu_step.c */
GkStatus	gk_cpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err);

/* gk_cpu_move.c */
GkStatus	gk_cpu_move(GkSession *s, GkStore *store, int64_t from, bool *done, GkError *err);

/* gk_cpu_finish.c */
GkStatus	gk_cpu_finish(GkSession *s, const float *centroids, int k,
						  GkFinish *out, const GkLabelSink *sink, GkError *err);

/* gk_cpu.c: instructions of one vector for a point and k centroids, by the kernels that a first step runs. */
double		gk_cpu_point_cost(const GkCpuKernels *kernels, int k, int d);
GkStatus	gk_cpu_seed_begin(GkSession *s, GkError *err);
void		gk_cpu_seed_end(GkSession *s);

/* gk_cpu_seed.c */
GkStatus	gk_cpu_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err);
GkStatus	gk_cpu_seed_finished(GkSession *s, bool *done, GkError *err);
GkStatus	gk_cpu_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err);
GkStatus	gk_cpu_seed_far(GkSession *s, int64_t *row, GkError *err);

/* Lower the block's D by the pending seed; the plan of a pass that does it. */
GkSweep		gk_cpu_seed_settle_plan(const GkSession *s);
void		gk_cpu_seed_settle(GkSession *s, const GkBlock *b, const float *seed);

/* Which of the seeds is nearest to each row ([slots]), if it is known and these are all of them; else NULL. */
const int32_t *gk_cpu_seed_nearest(const GkSession *s, const float *centroids, int k);

/* Lower all of it. */
GkStatus	gk_cpu_seed_settled(GkSession *s, GkError *err);

/* gk_cpu_sample.c */
GkStatus	gk_cpu_seed_race(GkSession *s, uint64_t key, bool use_d2, int want,
							 GkPick *out, int *got, GkError *err);

#endif							/* GK_CPU_H */
