/*
 * gk_cpu_step.c - one Lloyd pass: assign, Feature Sum and Mass Sum; plan_step() chooses how.
 *
 * Feature Sum in one of three ways (Lutz et al., "Efficient k-means on GPUs",
 * DaMoN 2018, sections on the update; here for threads):
 *   cluster_merge          every thread adds into sums of its own, right after it
 *                          has assigned a block that is still in cache; the copies
 *                          are merged at the end: gk_cpu_step_private.c
 *   partitioned_features   no copies, for large k * d: gk_cpu_step_partitioned.c
 *   delta                  as cluster_merge, but only rows that changed their label
 *                          since the last step move from one cluster to another;
 *                          of small k a label's bits are kept instead of it.
 *                          Under "auto" as partitioned_features, too
 * All sums are exact, so all give the same bits.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu_step.h"

/* ---- the plan ---- */

/* Do the sums of small k fit into registers at once? */
static bool
in_registers(const GkStepPass *p)
{
	return p->smallk && (p->k - 1) * p->d <= p->s->kernels->smallk_sums;
}

/* Sums of the result that is remembered. */
static size_t
base_bytes(const GkStepPass *p)
{
	return (size_t) p->k * p->d * sizeof(gk_int128);
}

static size_t
bit_words(const GkStepPass *p)
{
	return p->s->all_rows / GK_ROW_PAD * gk_smallk_bits(p->k);
}

/* May label bits be remembered?  Of a single block, a moment's work, they are not worth their memory. */
static bool
bits_possible(const GkStepPass *p)
{
	const GkSession *s = p->s;

	return s->feature_sum == GK_FSUM_AUTO && s->host.skip != GK_SKIP_ON && in_registers(p) && p->k > 1 &&
		s->kernels->move_smallk != NULL && s->pts->n > p->sweep.rows &&
		s->pts->resident && bit_words(p) * sizeof(uint64_t) <= gk_cpu_spare(s);
}

/*
 * Are labels worth their memory?  Bounds need them, and wide rows are better moved than added up again; small k of small
 * points is faster without any.
 */
static bool
labels_pay(const GkStepPass *p)
{
	const GkSession *s = p->s;

	return (p->d >= GK_COST_DELTA_D && gk_cpu_remembers(s, s->previous)) ||
		(gk_cpu_hamerly_possible(s, p->k) && (!in_registers(p) || s->host.skip == GK_SKIP_ON));
}

/*
 * The same without private sums, where the result that is remembered beside the labels may be large.  Both have to
 * fit, with the bounds that few features are remembered for: or they would be there in every second step.
 */
static bool
remembers_partitioned(const GkStepPass *p)
{
	const GkSession *s = p->s;
	size_t		need = base_bytes(p);

	if (!s->pts->resident && s->previous == NULL)
		need += s->all_rows * sizeof(int32_t);
	if (p->d < GK_COST_DELTA_D)
		need += gk_cpu_hamerly_bytes(s, p->k);
	return s->feature_sum == GK_FSUM_AUTO && s->strategy != GK_MULTI_PASS && labels_pay(p) &&
		need <= gk_cpu_spare(s) + s->base_bytes;
}

/* Choose how to sum: private copies must fit, and clearing and merging them be small beside adding rows. */
static GkFeatureSum
plan_sum(const GkStepPass *p)
{
	const GkSession *s = p->s;
	int			threads = p->sweep.threads;

	if (s->feature_sum != GK_FSUM_AUTO)
		return s->feature_sum;
	if (s->strategy == GK_MULTI_PASS ||
		p->bytes > GK_COST_THREAD_BYTES || p->bytes * threads > GK_COST_PRIVATE_BYTES ||
		(threads > 1 && p->d >= threads && (int64_t) p->k * threads * GK_COST_MERGE_ROWS > s->pts->n))
		return GK_PARTITIONED_FEATURES;
	return labels_pay(p) || bits_possible(p) ? GK_DELTA : GK_CLUSTER_MERGE;
}

/*
 * Choose the path; the first line that fits:
 *
 *   k, d, n (gkmeans.feature_sum = auto)           remembered   the last step       path
 *   ---------------------------------------------  -----------  ------------------  --------------
 *   small k, sums in registers, several blocks     label bits   < n / 32 changed    SMALLK_BITS
 *                                                               else, or none       SMALLK
 *   d >= GK_COST_DELTA_D, or bounds are possible   labels       bounds help         HAMERLY
 *                                                               < n / 4 changed     DELTA
 *                                                               else, or none       MERGE
 *   small k, one thread                            nothing                          SMALLK_DIRECT
 *   small k                                        nothing                          SMALLK
 *   any                                            nothing                          MERGE
 *
 * Where private sums take too much memory, or n < k * threads * GK_COST_MERGE_ROWS, all is done without them: the second
 * line, or MERGE with nothing remembered, where labels and a result do not fit the limit.
 *
 * Small k: at most GK_CPU_SMALLK clusters of points without weights, by AVX2 or AVX-512.  Memory for
 * labels of points in a file has to fit the limit, that for label bits and bounds needs points that are
 * resident.  Whether DELTA and MERGE find labels by products, or with a bound for every row and centroid, is chosen
 * apart.  Other values of gkmeans.feature_sum: partitioned_features remembers nothing and has no private sums, delta is
 * the second line with "any" for n / 4, cluster_merge the last three.
 */
static void
plan_step(GkStepPass *p)
{
	GkSession  *s = p->s;

	s->used = plan_sum(p);
	p->partitioned = s->used == GK_PARTITIONED_FEATURES;
	if (p->partitioned)
		p->memory = remembers_partitioned(p) ? GK_REMEMBER_LABELS : GK_REMEMBER_NOTHING;
	else
		p->memory = s->used != GK_DELTA ? GK_REMEMBER_NOTHING : bits_possible(p) ? GK_REMEMBER_LABEL_BITS : GK_REMEMBER_LABELS;
	p->known = p->memory != GK_REMEMBER_NOTHING && s->previous_k == p->k && s->previous_bits == (p->memory == GK_REMEMBER_LABEL_BITS);
	p->calm = p->known && (s->feature_sum == GK_DELTA ||
						   s->changed < s->pts->n / (p->memory == GK_REMEMBER_LABELS ? GK_COST_DELTA_SHARE : GK_COST_SMALLK_SHARE));
	p->elkan = p->memory == GK_REMEMBER_LABELS && p->known && gk_cpu_elkan_wanted(s, p->k);
	if (p->memory == GK_REMEMBER_LABEL_BITS)
		p->path = p->calm ? GK_STEP_SMALLK_BITS : GK_STEP_SMALLK;
	else if (!p->elkan && p->known && gk_cpu_hamerly_wanted(s, p->k))
		p->path = GK_STEP_HAMERLY;
	else if (p->memory == GK_REMEMBER_LABELS)
		p->path = p->calm ? GK_STEP_DELTA : GK_STEP_MERGE;
	else if (p->smallk && !p->partitioned)
		p->path = p->sweep.threads == 1 ? GK_STEP_SMALLK_DIRECT : GK_STEP_SMALLK;
	else
		p->path = GK_STEP_MERGE;
}

/* ---- the pass ---- */

/* Get ready what the path needs besides private sums. */
static GkStatus
begin(GkStepPass *p, GkError *err)
{
	GkSession  *s = p->s;
	size_t		kd = (size_t) p->k * p->d;

	if (!p->partitioned || p->memory == GK_REMEMBER_NOTHING)
		gk_cpu_drop_base(s);
	if (p->memory != GK_REMEMBER_NOTHING &&
		(!(p->memory == GK_REMEMBER_LABELS ? gk_cpu_tile_room(s, &s->previous, GK_ROW_PAD * sizeof(int32_t)) :
		   gk_cpu_tile_room(s, &s->label_bits, gk_smallk_bits(p->k) * sizeof(uint64_t))) ||
		 !gk_cpu_room(s, &s->base.sum, kd, sizeof(gk_int128)) ||
		 !gk_cpu_room(s, &s->base.mass, p->k, sizeof(gk_int128)) ||
		 !gk_cpu_room(s, &s->base.count, p->k, sizeof(int64_t))))
		return gk_cpu_out_of_memory(err);
	/* (rooms do not shrink) */
	if (p->partitioned && p->memory != GK_REMEMBER_NOTHING && s->base_bytes < base_bytes(p))
		s->base_bytes = base_bytes(p);
	if (p->memory == GK_REMEMBER_LABELS && !p->known)
		memset(s->previous + s->first_tile * GK_ROW_PAD, 0xff, s->all_rows * sizeof(int32_t));
	/* no memory for bounds: without them */
	p->elkan = p->elkan && gk_cpu_elkan_begin(s, &p->sweep, p->c, p->k, false);
	if (p->path == GK_STEP_HAMERLY && !gk_cpu_hamerly_begin(s, &p->sweep, p->c, p->k))
		p->path = p->calm ? GK_STEP_DELTA : GK_STEP_MERGE;
	if (p->path == GK_STEP_SMALLK_DIRECT || p->path == GK_STEP_SMALLK || p->path == GK_STEP_SMALLK_BITS)
	{
		/* all clusters at once, however many features they have */
		p->sweep.rounds = 1;
		p->sweep.per_round = p->k;
	}
	p->dot = p->elkan || ((p->path == GK_STEP_MERGE || p->path == GK_STEP_DELTA) && gk_cpu_dot_wanted(s, &p->sweep, p->k));
	p->dot_int8 = p->dot && !p->elkan && p->memory == GK_REMEMBER_LABELS && gk_cpu_int8_labels_begin(s, &p->sweep, p->c, p->k, p->known);
	if (p->dot && gk_cpu_int16_possible(s, p->k) && p->piece < gk_cpu_int16_tiles(s, p->d) * GK_ROW_PAD)
		p->piece = gk_cpu_int16_tiles(s, p->d) * GK_ROW_PAD;
	return p->dot && !p->elkan && !p->dot_int8 ? gk_cpu_dot_begin(s, &p->sweep, p->c, p->k, false, err) : GK_OK;
}

/* Remember that there is a step, and how many rows changed their label in it. */
static void
end_memory(const GkStepPass *p, int64_t changed)
{
	GkSession  *s = p->s;

	s->previous_k = p->k;
	s->previous_bits = p->memory == GK_REMEMBER_LABEL_BITS;
	s->changed = changed;
	/* rows that were new had no label to change */
	if (p->known)
		s->changed = s->changed > s->added ? s->changed - s->added : 0;
	s->added = 0;
	s->base_moved = false;
	if (p->elkan)
		gk_cpu_elkan_end(s);
	else
		s->elkan.valid = false;
	if (p->memory == GK_REMEMBER_LABELS)
		gk_cpu_hamerly_end(s, &p->sweep, p->path == GK_STEP_HAMERLY);
	else if (!p->known)
		s->changed = s->pts->n;
}

GkStatus
gk_cpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	GkStepPass	p = {.s = s,.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k,.d = s->pts->d,
	.weighted = s->pts->weighted,.inv = s->inv,.out = out,.host = s->host};
	int64_t		changed;
	GkStatus	st;

	p.smallk = !p.weighted && k <= GK_CPU_SMALLK && s->kernels->add_smallk != NULL;
	gk_cpu_step_lay_out(&p);
	p.host.threads = p.sweep.threads;
	p.per_job = GK_CPU_JOB_SUMS / p.d + 1;
	p.piece = (GK_COST_PIECE_FLOATS / p.d + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
	p.piece = p.piece > GK_ROW_PAD ? p.piece : GK_ROW_PAD;
	p.sweep.arg = &p;
	plan_step(&p);
	s->previous_k = 0;			/* until this step is through */
	st = begin(&p, err);
	if (st != GK_OK)
		return st;
	st = p.partitioned ? gk_cpu_step_partitioned(&p, &changed, err) : gk_cpu_step_private(&p, &changed, err);
	if (p.dot_int8)
		gk_cpu_int8_labels_end(s, k);
	else if (p.dot)
		gk_cpu_dot_end(s);
	if (st == GK_OK && p.memory != GK_REMEMBER_NOTHING)
		end_memory(&p, changed);
	return st;
}
