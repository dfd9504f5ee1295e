/*
 * gk_cpu_step.c - one Lloyd pass: assign, Feature Sum and Mass Sum; plan_step() chooses how.
 *
 * Feature Sum in one of three ways (Lutz et al., "Efficient k-means on GPUs",
 * DaMoN 2018, sections on the update; here for threads):
 *   cluster_merge          every thread adds into sums of its own, right after it
 *                          has assigned a block that is still in cache; the copies
 *                          are merged at the end
 *   partitioned_features   no copies, for large k * d: gk_cpu_step_partitioned.c
 *   delta                  as cluster_merge, but only rows that changed their label
 *                          since the last step move from one cluster to another;
 *                          of small k a label's bits are kept instead of it
 * All sums are exact, so all give the same bits.  Unweighted, a thread first adds
 * up to GK_PACKAGE rows in doubles, exactly (He et al., "Package summation", 2022),
 * and then turns them into integers.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"

/* How a step finds labels and sums: plan_step(). */
typedef enum GkStepPath
{
	GK_STEP_PARTITIONED,		/* assign a span of chunks, then threads share out the features */
	GK_STEP_SMALLK_DIRECT,		/* one kernel assigns and adds to the result itself */
	GK_STEP_SMALLK,				/* the same to private sums, keeping label bits where they are remembered */
	GK_STEP_MERGE,				/* assign, add all rows */
	/* From here on: add to the last step's result what has changed. */
	GK_STEP_SMALLK_BITS,		/* one kernel assigns and moves rows that change their label bits */
	GK_STEP_DELTA,				/* assign, move rows that change their label */
	GK_STEP_HAMERLY				/* assign rows that bounds leave open, move those that change their label */
} GkStepPath;

/* What a step keeps for the next one besides its result. */
typedef enum Memory
{
	NOTHING,
	LABELS,						/* s->previous */
	LABEL_BITS					/* s->label_bits */
} Memory;

typedef struct Pass
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
	GkStepPath	path;
	Memory		memory;
	bool		known;			/* there are memory and result of a last step */
	bool		calm;			/* few enough labels changed in it that moving rows pays */
	bool		dot;			/* GK_STEP_MERGE, _DELTA: labels by scalar products, ... */
	bool		elkan;			/* ... of integers, with a bound for every row and centroid */
} Pass;

/* At the start of a thread's region. */
typedef struct Private
{
	bool		used;
	int			pending;		/* rows in the double sums */
	int64_t		changed;		/* rows with another label than in the last step */
} Private;

/* ---- private sums ---- */

static void
lay_out(Pass *p)
{
	size_t		kd = (size_t) p->k * p->d;

	p->width = (size_t) (p->d + 3) / 4 * 4;
	p->copies = !p->weighted && !p->smallk &&
		p->k * p->width * sizeof(double) * GK_ADD_COPIES <= GK_COST_COPIES_BYTES ? GK_ADD_COPIES : 1;
	p->touched_at = GK_CACHE_LINE;
	p->sum_at = (p->touched_at + p->k + GK_CACHE_LINE - 1) / GK_CACHE_LINE * GK_CACHE_LINE;
	p->mass_at = p->sum_at + kd * sizeof(gk_int128);
	p->count_at = p->mass_at + (p->weighted ? p->k * sizeof(gk_int128) : 0);
	p->double_at = p->count_at + p->copies * p->k * sizeof(int64_t);
	p->double_at = (p->double_at + GK_CACHE_LINE - 1) / GK_CACHE_LINE * GK_CACHE_LINE;
	p->bytes = gk_cpu_region_bytes(p->double_at +
								   (p->weighted ? 0 : p->copies * p->k * p->width * sizeof(double)));
}

static char *
region(const Pass *p, int thread)
{
	return (char *) p->s->sums + thread * p->bytes;
}

/* Turn a cluster's exact doubles into integers. */
static void
flush(const Pass *p, char *own, int k)
{
	gk_int128  *sum = (gk_int128 *) (own + p->sum_at) + (size_t) k * p->d;
	double	   *part = (double *) (own + p->double_at) + k * p->width;
	size_t		copy = p->k * p->width;

	for (int j = 0; j < p->d; j++)
	{
		double		v = 0.0;

		for (int i = 0; i < p->copies; i++)
		{
			v += part[i * copy + j];
			part[i * copy + j] = 0.0;
		}
		sum[j] += (int64_t) (v * p->inv[j]);
	}
}

/* Clear a cluster's sums, if they are not yet: where few rows move, these are few clusters of many. */
static void
touch(const Pass *p, char *own, int k)
{
	bool	   *touched = (bool *) (own + p->touched_at);

	if (touched[k])
		return;
	touched[k] = true;
	memset((gk_int128 *) (own + p->sum_at) + (size_t) k * p->d, 0, p->d * sizeof(gk_int128));
	if (p->weighted)
		((gk_int128 *) (own + p->mass_at))[k] = 0;
	for (int i = 0; i < p->copies; i++)
	{
		((int64_t *) (own + p->count_at))[i * p->k + k] = 0;
		if (!p->weighted)
			memset((double *) (own + p->double_at) + ((size_t) i * p->k + k) * p->width, 0, p->width * sizeof(double));
	}
}

/* Features of a row that are fetched ahead. */
#define AHEAD	16

/* Add row i of the block to cluster k `times` (1 or -1) over. */
static void
add_row(const Pass *p, char *own, const GkBlock *b, const GkBlockLabels *l, int i, int k, int times)
{
	const float *x = l->x.x + i / GK_ROW_PAD * l->x.tile + i % GK_ROW_PAD;
	size_t		stride = l->x.stride;

	touch(p, own, k);
	((int64_t *) (own + p->count_at))[k] += times;
	if (p->weighted)
	{
		gk_int128  *to = (gk_int128 *) (own + p->sum_at) + (size_t) k * p->d;
		int64_t		w = times * gk_fixed(gk_chunk_weight(p->s->pts, b->chunk)[b->row + i], 0x1p40);

		for (int j = 0; j < p->d; j++)
			to[j] += (gk_int128) w * gk_fixed(x[j * stride], p->inv[j]);
		((gk_int128 *) (own + p->mass_at))[k] += w;
	}
	else
	{
		double	   *to = (double *) (own + p->double_at) + k * p->width;

		for (int j = 0; j < p->d; j++)
		{
			__builtin_prefetch(&x[(j + AHEAD) * stride]);
			to[j] += times * (double) x[j * stride];
		}
	}
}

/* Make room for some more rows in the double sums. */
static void
reserve(const Pass *p, char *own, int rows)
{
	Private    *state = (Private *) own;

	if (p->weighted)
		return;
	if (state->pending + rows > GK_PACKAGE)
	{
		for (int k = 0; k < p->k; k++)
			if (((bool *) (own + p->touched_at))[k])
				flush(p, own, k);
		state->pending = 0;
	}
	state->pending += rows;
}

static void
add(const Pass *p, char *own, const GkBlock *b, const GkBlockLabels *l)
{
	int64_t    *count = (int64_t *) (own + p->count_at);
	double	   *part = (double *) (own + p->double_at);
	const GkCpuKernels *kernels = p->s->kernels;

	if (p->smallk)
	{
		kernels->add_smallk(&l->x, l->label, b->rows, p->k, p->s->pts->prep.expo,
							(gk_int128 *) (own + p->sum_at), count);
		return;
	}
	reserve(p, own, b->rows);
	if (p->weighted)
	{
		for (int i = 0; i < b->rows; i++)
			add_row(p, own, b, l, i, l->label[i], 1);
		return;
	}
	kernels->add(&l->x, l->label, part, p->width, p->copies > 1 ? p->k * p->width : 0);
	if (p->copies > 1)
		for (int i = 0; i < b->rows; i++)
			count[i % GK_ADD_COPIES * p->k + l->label[i]]++;
	else
		for (int i = 0; i < b->rows; i++)
			count[l->label[i]]++;
}

/* Does the path move rows that change their label, from the last step's result on? */
static bool
moves_rows(const Pass *p)
{
	return p->path >= GK_STEP_SMALLK_BITS;
}

/* Add a thread's sums of a cluster to the result. */
static void
merge_own(const Pass *p, char *own, int k)
{
	const gk_int128 *own_sum = (gk_int128 *) (own + p->sum_at) + (size_t) k * p->d;
	const int64_t *own_count = (int64_t *) (own + p->count_at);
	gk_int128  *sum = p->out->sum + (size_t) k * p->d;
	int64_t		count = 0;

	/* the kernels for small k add to the integers themselves */
	if (!p->weighted && ((Private *) own)->pending > 0)
		flush(p, own, k);
	for (int j = 0; j < p->d; j++)
		sum[j] += own_sum[j];
	for (int i = 0; i < p->copies; i++)
		count += own_count[(size_t) i * p->k + k];
	p->out->count[k] += count;
	p->out->mass[k] += p->weighted ? ((gk_int128 *) (own + p->mass_at))[k] : count;
}

/* The result of some clusters: all private sums, and the last result if rows only move. */
static void
merge_clusters(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	const GkStep *base = &p->s->base;
	int			k0 = (int) job * p->per_job;
	int			k1 = p->k - k0 > p->per_job ? k0 + p->per_job : p->k;
	size_t		bytes = p->d * sizeof(gk_int128);
	bool		moves = moves_rows(p);

	(void) thread;
	for (int k = k0; k < k1; k++)
	{
		gk_int128  *sum = p->out->sum + (size_t) k * p->d;
		gk_int128  *base_sum = base->sum + (size_t) k * p->d;
		bool		other = !moves;

		if (moves)
			memcpy(sum, base_sum, bytes);
		else
			memset(sum, 0, bytes);
		p->out->count[k] = moves ? base->count[k] : 0;
		p->out->mass[k] = moves ? base->mass[k] : 0;
		for (int t = 0; t < p->sweep.threads; t++)
		{
			char	   *own = region(p, t);

			if (!((Private *) own)->used || !((bool *) (own + p->touched_at))[k])
				continue;
			merge_own(p, own, k);
			other = true;
		}
		if (p->out->unchanged != NULL && !other && !p->s->base_moved)
			p->out->unchanged[k] = true;
		if (p->memory == NOTHING || !other)
			continue;
		memcpy(base_sum, sum, bytes);
		base->mass[k] = p->out->mass[k];
		base->count[k] = p->out->count[k];
	}
}

/* The last cluster's result, which the kernels for small k leave out. */
static void
complete(const Pass *p)
{
	const GkPoints *pts = p->s->pts;
	const GkStep *base = &p->s->base;
	int			last = p->k - 1;
	gk_int128  *sum = p->out->sum + (size_t) last * p->d;

	memcpy(sum, pts->total_sum, p->d * sizeof(gk_int128));
	p->out->count[last] = pts->n;
	for (int k = 0; k < last; k++)
	{
		p->out->count[last] -= p->out->count[k];
		for (int j = 0; j < p->d; j++)
			sum[j] -= p->out->sum[(size_t) k * p->d + j];
	}
	p->out->mass[last] = p->out->count[last];
	if (p->memory != NOTHING)
	{
		memcpy(base->sum + (size_t) last * p->d, sum, p->d * sizeof(gk_int128));
		base->mass[last] = p->out->mass[last];
		base->count[last] = p->out->count[last];
	}
}

/* Move row i of the block. */
static void
move_row(const Pass *p, char *own, const GkBlock *b, const GkBlockLabels *l, int i, int from, int to)
{
	reserve(p, own, 2);
	add_row(p, own, b, l, i, to, 1);
	add_row(p, own, b, l, i, from, -1);
}

/* Remember the block's labels; count the rows that changed theirs, and on GK_STEP_DELTA move them. */
static void
note_changes(const Pass *p, char *own, const GkBlock *b, const GkBlockLabels *l)
{
	int32_t    *previous = p->s->previous + b->slot;

	for (int i = 0; i < b->rows; i += GK_ROW_PAD)
	{
		int			end = b->rows - i < GK_ROW_PAD ? b->rows : i + GK_ROW_PAD;
		int			changed = 0;

		if (memcmp(previous + i, l->label + i, (end - i) * sizeof(int32_t)) == 0)
			continue;			/* most tiles */
		for (int r = i; r < end; r++)
			changed += previous[r] != l->label[r];
		((Private *) own)->changed += changed;
		for (int r = i; p->path == GK_STEP_DELTA && r < end; r++)
			if (previous[r] != l->label[r])
				move_row(p, own, b, l, r, previous[r], l->label[r]);
		memcpy(previous + i, l->label + i, (end - i) * sizeof(int32_t));
	}
	for (int i = b->rows; i < b->tiles * GK_ROW_PAD; i++)
		previous[i] = 0;		/* a valid one, for whole vectors */
}

/* The thread's region, cleared at first use: of rows that move one by one by touch(). */
static char *
claim(const Pass *p, int thread)
{
	char	   *own = region(p, thread);
	bool		all = p->path < GK_STEP_DELTA;

	if (!((Private *) own)->used)
	{
		memset(own + p->touched_at, all, p->k);
		if (all)
			memset(own + p->sum_at, 0, p->bytes - p->sum_at);
		((Private *) own)->used = true;
	}
	return own;
}

/* ---- a block on each path ---- */

/* GK_STEP_SMALLK_DIRECT: one thread; thousands of small clusterings are faster without a merge. */
static void
smallk_direct_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);

	s->kernels->step_smallk(&x, p->c, p->k, b->rows, s->pts->prep.expo, NULL, p->out->sum, p->out->count);
}

/* GK_STEP_SMALLK, GK_STEP_SMALLK_BITS */
static void
smallk_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	char	   *own = claim(p, b->thread);
	GkTiles		x = gk_cpu_tiles(s, b);
	uint64_t   *bits = p->memory == LABEL_BITS ? s->label_bits + b->slot / GK_ROW_PAD * gk_smallk_bits(p->k) : NULL;

	((Private *) own)->changed +=
		(p->path == GK_STEP_SMALLK_BITS ? s->kernels->move_smallk : s->kernels->step_smallk)
		(&x, p->c, p->k, b->rows, s->pts->prep.expo, bits, (gk_int128 *) (own + p->sum_at), (int64_t *) (own + p->count_at));
}

/* GK_STEP_MERGE, GK_STEP_DELTA */
static void
assign_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	char	   *own = claim(p, b->thread);
	GkBlockLabels l;

	for (int row = 0; row < b->rows; row += p->piece)
	{
		GkBlock		piece = *b;

		piece.row += row;
		piece.rows = b->rows - row < p->piece ? b->rows - row : p->piece;
		piece.tiles = (piece.rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
		piece.at += row;
		piece.slot += row;
		piece.label += row;
		piece.d2 += row;
		if (p->elkan)
		{
			l = (GkBlockLabels) {.x = gk_cpu_tiles(s, &piece),.label = piece.label};
			if (!gk_cpu_elkan_labels(s, &piece, l.label))
				return;
		}
		else if (p->dot)
		{
			l = (GkBlockLabels) {.x = gk_cpu_tiles(s, &piece),.label = piece.label};
			gk_cpu_dot_labels(s, &l.x, piece.slot, piece.rows, piece.thread, NULL, l.label);
		}
		else if (!gk_cpu_assign(s, &p->sweep, &piece, p->c, p->k, &l))
			continue;
		if (p->path == GK_STEP_MERGE)
			add(p, own, &piece, &l);
		if (p->memory == LABELS)
			note_changes(p, own, &piece, &l);
	}
}

/* GK_STEP_HAMERLY */
static void
bounds_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkBlockLabels l = {.x = gk_cpu_tiles(s, b)};
	int			changes;
	const GkLabelChange *change = gk_cpu_hamerly_block(s, b, p->c, p->k, &changes);
	char	   *own = changes > 0 ? claim(p, b->thread) : region(p, b->thread);

	((Private *) own)->changed += changes;
	for (int i = 0; i < changes; i++)
		move_row(p, own, b, &l, change[i].row, change[i].from, s->previous[b->slot + change[i].row]);
}

/* ---- the plan ---- */

/* Do the sums of small k fit into registers at once? */
static bool
in_registers(const Pass *p)
{
	return p->smallk && (p->k - 1) * p->d <= p->s->kernels->smallk_sums;
}

static size_t
bit_words(const Pass *p)
{
	return p->s->all_rows / GK_ROW_PAD * gk_smallk_bits(p->k);
}

/* May label bits be remembered?  Of a single block, a moment's work, they are not worth their memory. */
static bool
bits_possible(const Pass *p)
{
	const GkSession *s = p->s;

	return s->feature_sum == GK_FSUM_AUTO && s->host.skip != GK_SKIP_ON && in_registers(p) && p->k > 1 &&
		s->kernels->move_smallk != NULL && s->pts->n > p->sweep.rows &&
		s->pts->resident && bit_words(p) * sizeof(uint64_t) <= gk_cpu_spare(s);
}

/* Choose how to sum: private copies must fit, and clearing and merging them be small beside adding rows. */
static GkFeatureSum
plan_sum(const Pass *p)
{
	const GkSession *s = p->s;
	int			threads = p->sweep.threads;

	if (s->feature_sum != GK_FSUM_AUTO)
		return s->feature_sum;
	if (s->strategy == GK_MULTI_PASS ||
		p->bytes > GK_COST_THREAD_BYTES || p->bytes * threads > GK_COST_PRIVATE_BYTES ||
		(threads > 1 && p->d >= threads && (int64_t) p->k * threads * GK_COST_MERGE_ROWS > s->pts->n))
		return GK_PARTITIONED_FEATURES;
	if (p->d >= GK_COST_DELTA_D && gk_cpu_remembers(s, s->previous))
		return GK_DELTA;
	/* Bounds need labels; small k of small points is faster without any. */
	if (gk_cpu_hamerly_possible(s, p->k) && (!in_registers(p) || s->host.skip == GK_SKIP_ON))
		return GK_DELTA;
	return bits_possible(p) ? GK_DELTA : GK_CLUSTER_MERGE;
}

/*
 * Choose the path; the first line that fits:
 *
 *   k, d, n (gkmeans.feature_sum = auto)           remembered   the last step       path
 *   ---------------------------------------------  -----------  ------------------  --------------
 *   private sums take too much memory, or          nothing                          PARTITIONED
 *     n < k * threads * GK_COST_MERGE_ROWS
 *   small k, sums in registers, several blocks     label bits   < n / 32 changed    SMALLK_BITS
 *                                                               else, or none       SMALLK
 *   d >= GK_COST_DELTA_D, or bounds are possible   labels       bounds help         HAMERLY
 *                                                               < n / 4 changed     DELTA
 *                                                               else, or none       MERGE
 *   small k, one thread                            nothing                          SMALLK_DIRECT
 *   small k                                        nothing                          SMALLK
 *   any                                            nothing                          MERGE
 *
 * Small k: at most GK_CPU_SMALLK clusters of points without weights, by AVX2 or AVX-512.  Memory for
 * labels of points in a file has to fit the limit, that for label bits and bounds needs points that are
 * resident.  Whether DELTA and MERGE find labels by products, or with a bound for every row and centroid, is chosen
 * apart.  Other values of gkmeans.feature_sum: partitioned_features is the first line, delta the third
 * with "any" for n / 4, cluster_merge the last three.
 */
static void
plan_step(Pass *p)
{
	GkSession  *s = p->s;

	s->used = plan_sum(p);
	p->memory = s->used != GK_DELTA ? NOTHING : bits_possible(p) ? LABEL_BITS : LABELS;
	p->known = p->memory != NOTHING && s->previous_k == p->k && s->previous_bits == (p->memory == LABEL_BITS);
	p->calm = p->known && (s->feature_sum == GK_DELTA ||
						   s->changed < s->pts->n / (p->memory == LABELS ? GK_COST_DELTA_SHARE : GK_COST_SMALLK_SHARE));
	p->elkan = p->memory == LABELS && p->known && gk_cpu_elkan_wanted(s, p->k);
	if (s->used == GK_PARTITIONED_FEATURES)
		p->path = GK_STEP_PARTITIONED;
	else if (p->memory == LABEL_BITS)
		p->path = p->calm ? GK_STEP_SMALLK_BITS : GK_STEP_SMALLK;
	else if (!p->elkan && p->known && gk_cpu_hamerly_wanted(s, p->k))
		p->path = GK_STEP_HAMERLY;
	else if (p->memory == LABELS)
		p->path = p->calm ? GK_STEP_DELTA : GK_STEP_MERGE;
	else if (p->smallk)
		p->path = p->sweep.threads == 1 ? GK_STEP_SMALLK_DIRECT : GK_STEP_SMALLK;
	else
		p->path = GK_STEP_MERGE;
}

/* ---- the pass ---- */

/* Get ready what the path needs besides private sums. */
static GkStatus
begin(Pass *p, GkError *err)
{
	GkSession  *s = p->s;
	size_t		kd = (size_t) p->k * p->d;

	if (p->memory != NOTHING &&
		(!(p->memory == LABELS ? gk_cpu_tile_room(s, &s->previous, GK_ROW_PAD * sizeof(int32_t)) :
		   gk_cpu_tile_room(s, &s->label_bits, gk_smallk_bits(p->k) * sizeof(uint64_t))) ||
		 !gk_cpu_room(s, &s->base.sum, kd, sizeof(gk_int128)) ||
		 !gk_cpu_room(s, &s->base.mass, p->k, sizeof(gk_int128)) ||
		 !gk_cpu_room(s, &s->base.count, p->k, sizeof(int64_t))))
		return gk_cpu_out_of_memory(err);
	if (p->memory == LABELS && !p->known)
		memset(s->previous + s->first_tile * GK_ROW_PAD, 0xff, s->all_rows * sizeof(int32_t));
	/* no memory for bounds: without them */
	p->elkan = p->elkan && gk_cpu_elkan_begin(s, &p->sweep, p->c, p->k);
	if (p->path == GK_STEP_HAMERLY && !gk_cpu_hamerly_begin(s, &p->sweep, p->c, p->k))
		p->path = p->calm ? GK_STEP_DELTA : GK_STEP_MERGE;
	if (p->path == GK_STEP_SMALLK_DIRECT || p->path == GK_STEP_SMALLK || p->path == GK_STEP_SMALLK_BITS)
	{
		/* all clusters at once, however many features they have */
		p->sweep.rounds = 1;
		p->sweep.per_round = p->k;
	}
	p->dot = p->elkan || ((p->path == GK_STEP_MERGE || p->path == GK_STEP_DELTA) && gk_cpu_dot_wanted(s, &p->sweep, p->k));
	if (p->dot && gk_cpu_int16_possible(s, p->k) && p->piece < gk_cpu_int16_tiles(s, p->d) * GK_ROW_PAD)
		p->piece = gk_cpu_int16_tiles(s, p->d) * GK_ROW_PAD;
	return p->dot && !p->elkan ? gk_cpu_dot_begin(s, &p->sweep, p->c, p->k, err) : GK_OK;
}

static GkStatus
step_direct(Pass *p, GkError *err)
{
	size_t		sums = (size_t) (p->k - 1) * p->d;
	GkStatus	st;

	memset(p->out->sum, 0, sums * sizeof(gk_int128));
	memset(p->out->count, 0, p->k * sizeof(int64_t));
	p->sweep.block = smallk_direct_block;
	st = gk_cpu_sweep(p->s, &p->sweep, err);
	for (int k = 0; k < p->k; k++)
		p->out->mass[k] = p->out->count[k];
	complete(p);
	return st;
}

/* Remember that there is a step, and how many labels changed. */
static void
end_memory(const Pass *p)
{
	GkSession  *s = p->s;

	s->previous_k = p->k;
	s->previous_bits = p->memory == LABEL_BITS;
	s->changed = 0;
	for (int t = 0; t < p->sweep.threads; t++)
		s->changed += ((Private *) region(p, t))->changed;
	/* rows that were new had no label to change */
	if (p->known)
		s->changed = s->changed > s->added ? s->changed - s->added : 0;
	s->added = 0;
	s->base_moved = false;
	if (p->elkan)
		gk_cpu_elkan_end(s);
	else
		s->elkan.valid = false;
	if (p->memory == LABELS)
		gk_cpu_hamerly_end(s, &p->sweep, p->path == GK_STEP_HAMERLY);
	else if (!p->known)
		s->changed = s->pts->n;
}

/* All paths with private sums. */
static GkStatus
step_private(Pass *p, GkError *err)
{
	GkSession  *s = p->s;
	GkStatus	st;

	p->sweep.block = p->path == GK_STEP_HAMERLY ? bounds_block :
		p->path == GK_STEP_MERGE || p->path == GK_STEP_DELTA ? assign_block : smallk_block;
	p->sweep.keep_labels = p->sweep.rounds > 1;
	if (!gk_cpu_room(s, &s->sums, p->sweep.threads, p->bytes))
		return gk_cpu_out_of_memory(err);
	for (int t = 0; t < p->sweep.threads; t++)
		memset(region(p, t), 0, sizeof(Private));
	st = gk_cpu_sweep(s, &p->sweep, err);
	if (st == GK_OK && !s->core->parallel_for(&p->host, (p->k + p->per_job - 1) / p->per_job, merge_clusters, p))
		st = GK_STOPPED;
	if (p->dot)
		gk_cpu_dot_end(s);
	/* rows that move one by one have the last cluster, too */
	if (st == GK_OK && p->smallk && p->path < GK_STEP_DELTA)
		complete(p);
	if (st == GK_OK && p->memory != NOTHING)
		end_memory(p);
	return st;
}

GkStatus
gk_cpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	Pass		p = {.s = s,.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k,.d = s->pts->d,
	.weighted = s->pts->weighted,.inv = s->inv,.out = out,.host = s->host};
	GkStatus	st;

	p.smallk = !p.weighted && k <= GK_CPU_SMALLK && s->kernels->add_smallk != NULL;
	lay_out(&p);
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
	if (p.path == GK_STEP_PARTITIONED)
		return gk_cpu_step_partitioned(s, &p.sweep, centroids, k, out, err);
	return p.path == GK_STEP_SMALLK_DIRECT ? step_direct(&p, err) : step_private(&p, err);
}
