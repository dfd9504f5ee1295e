/*
 * gk_cpu_step.h - one Lloyd pass, between its plan (gk_cpu_step.c) and its two ways to sum: with private sums
 * (gk_cpu_step_private.c) and without (gk_cpu_step_partitioned.c).
 */
#ifndef GK_CPU_STEP_H
#define GK_CPU_STEP_H

#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"

/* How a step finds labels and sums: plan_step(). */
typedef enum GkStepPath
{
	GK_STEP_SMALLK_DIRECT,		/* one kernel assigns and adds to the result itself */
	GK_STEP_SMALLK,				/* the same to private sums, keeping label bits where they are remembered */
	GK_STEP_MERGE,				/* assign, add all rows */
	/* From here on: add to the last step's result what has changed. */
	GK_STEP_SMALLK_BITS,		/* one kernel assigns and moves rows that change their label bits */
	GK_STEP_DELTA,				/* assign, move rows that change their label */
	GK_STEP_HAMERLY				/* assign rows that bounds leave open, move those that change their label */
} GkStepPath;

/* What a step keeps for the next one besides its result. */
typedef enum GkStepMemory
{
	GK_REMEMBER_NOTHING,
	GK_REMEMBER_LABELS,			/* s->previous */
	GK_REMEMBER_LABEL_BITS		/* s->label_bits */
} GkStepMemory;

typedef struct GkStepPass
{
	GkSession  *s;
	GkSweep		sweep;
	const float *c;
	int			k;
	int			d;
	bool		weighted;
	bool		smallk;			/* the last cluster's sums are the total minus the rest */
	const double *inv;
	GkStep	   *out;
	GkHost		host;			/* with the sweep's number of threads */
	int			per_job;		/* clusters, where the merge is shared out */
	int			piece;			/* rows that are in the cache when they are added up */

	/* Private sums: one region per thread, offsets from its start. */
	size_t		width;			/* of a cluster in the double sums */
	int			copies;			/* of the double sums and the counts */
	size_t		touched_at;		/* bool [k]: clusters whose sums are cleared and may be others since then */
	size_t		sum_at;			/* gk_int128 [k][d] */
	size_t		mass_at;		/* gk_int128 [k], weighted only */
	size_t		count_at;		/* int64_t [copies][k] */
	size_t		double_at;		/* double [copies][k][width], unweighted only */
	size_t		bytes;

	/* The plan. */
	bool		partitioned;	/* no private sums: of GK_STEP_MERGE, _DELTA, _HAMERLY */
	GkStepPath	path;
	GkStepMemory memory;
	bool		known;			/* there are memory and result of a last step */
	bool		calm;			/* few enough labels changed in it that moving rows pays */
	bool		dot;			/* GK_STEP_MERGE, _DELTA: labels by scalar products, ... */
	bool		elkan;			/* ... of integers, with a bound for every row and centroid, ... */
	bool		dot_int8;		/* ... or of 8-bit integers */
} GkStepPass;

/* Does the path move rows that change their label, from the last step's result on? */
static inline bool
gk_cpu_step_moves(const GkStepPass *p)
{
	return p->path >= GK_STEP_SMALLK_BITS;
}

/* Has the caller's step still the last one's result, which is the session's? */
static inline bool
gk_cpu_step_kept(const GkStepPass *p)
{
	return p->out->kept && !p->s->base_moved;
}

/* Labels of a block, but by GK_STEP_HAMERLY; false: there are none yet, or the pass is to end. */
static inline bool
gk_cpu_step_labels(const GkStepPass *p, const GkBlock *b, GkBlockLabels *out)
{
	GkSession  *s = p->s;

	if (!p->dot)
		return gk_cpu_assign(s, &p->sweep, b, p->c, p->k, out);
	*out = (GkBlockLabels) {.x = gk_cpu_tiles(s, b),.label = p->sweep.keep_labels ? s->label + b->at : b->label};
	if (p->elkan)
		return gk_cpu_elkan_labels(s, b, out->label);
	if (p->dot_int8)
		gk_cpu_int8_labels(s, b, p->c, p->k, out->label, NULL);
	else
		gk_cpu_dot_labels(s, &out->x, b->slot, b->rows, b->thread, NULL, out->label);
	return true;
}

/* The layout of private sums: p->bytes is what a thread's take. */
void		gk_cpu_step_lay_out(GkStepPass *p);

/* The pass. *changed: rows with another label than in the last step, if labels are remembered. */
GkStatus	gk_cpu_step_private(GkStepPass *p, int64_t *changed, GkError *err);
GkStatus	gk_cpu_step_partitioned(GkStepPass *p, int64_t *changed, GkError *err);

#endif							/* GK_CPU_STEP_H */
