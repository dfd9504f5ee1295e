/*
 * gk_cpu_step_private.c - a step in which every thread has sums of its own, which are merged at the end.
 *
 * Unweighted, a thread first adds up to GK_PACKAGE rows in doubles, exactly (He et al., "Package summation", 2022),
 * and then turns them into integers.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu_step.h"

/* At the start of a thread's region. */
typedef struct Private
{
	bool		used;
	int			pending;		/* rows in the double sums */
	int64_t		changed;		/* rows with another label than in the last step */
} Private;

/* ---- private sums ---- */

void
gk_cpu_step_lay_out(GkStepPass *p)
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
region(const GkStepPass *p, int thread)
{
	return (char *) p->s->sums + thread * p->bytes;
}

/* Turn a cluster's exact doubles into integers. */
static void
flush(const GkStepPass *p, char *own, int k)
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
touch(const GkStepPass *p, char *own, int k)
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
add_row(const GkStepPass *p, char *own, const GkBlock *b, const GkBlockLabels *l, int i, int k, int times)
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
reserve(const GkStepPass *p, char *own, int rows)
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
add(const GkStepPass *p, char *own, const GkBlock *b, const GkBlockLabels *l)
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

/* Add a thread's sums of a cluster to the result. */
static void
merge_own(const GkStepPass *p, char *own, int k)
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
	const GkStepPass *p = arg;
	const GkStep *base = &p->s->base;
	int			k0 = (int) job * p->per_job;
	int			k1 = p->k - k0 > p->per_job ? k0 + p->per_job : p->k;
	size_t		bytes = p->d * sizeof(gk_int128);
	bool		moves = gk_cpu_step_moves(p);

	(void) thread;
	for (int k = k0; k < k1; k++)
	{
		gk_int128  *sum = p->out->sum + (size_t) k * p->d;
		gk_int128  *base_sum = base->sum + (size_t) k * p->d;
		bool		other = !moves;

		if (!moves)
			memset(sum, 0, bytes);
		else if (!gk_cpu_step_kept(p))
			memcpy(sum, base_sum, bytes);
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
		if (p->memory == GK_REMEMBER_NOTHING || !other)
			continue;
		memcpy(base_sum, sum, bytes);
		base->mass[k] = p->out->mass[k];
		base->count[k] = p->out->count[k];
	}
}

/* The last cluster's result, which the kernels for small k leave out. */
static void
complete(const GkStepPass *p)
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
	if (p->memory != GK_REMEMBER_NOTHING)
	{
		memcpy(base->sum + (size_t) last * p->d, sum, p->d * sizeof(gk_int128));
		base->mass[last] = p->out->mass[last];
		base->count[last] = p->out->count[last];
	}
}

/* Move row i of the block. */
static void
move_row(const GkStepPass *p, char *own, const GkBlock *b, const GkBlockLabels *l, int i, int from, int to)
{
	reserve(p, own, 2);
	add_row(p, own, b, l, i, to, 1);
	add_row(p, own, b, l, i, from, -1);
}

/* Remember the block's labels; count the rows that changed theirs, and on GK_STEP_DELTA move them. */
static void
note_changes(const GkStepPass *p, char *own, const GkBlock *b, const GkBlockLabels *l)
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
claim(const GkStepPass *p, int thread)
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
	const GkStepPass *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);

	s->kernels->step_smallk(&x, p->c, p->k, b->rows, s->pts->prep.expo, NULL, p->out->sum, p->out->count);
}

/* GK_STEP_SMALLK, GK_STEP_SMALLK_BITS */
static void
smallk_block(GkSession *s, void *arg, const GkBlock *b)
{
	const GkStepPass *p = arg;
	char	   *own = claim(p, b->thread);
	GkTiles		x = gk_cpu_tiles(s, b);
	uint64_t   *bits = p->memory == GK_REMEMBER_LABEL_BITS ? s->label_bits + b->slot / GK_ROW_PAD * gk_smallk_bits(p->k) : NULL;

	((Private *) own)->changed +=
		(p->path == GK_STEP_SMALLK_BITS ? s->kernels->move_smallk : s->kernels->step_smallk)
		(&x, p->c, p->k, b->rows, s->pts->prep.expo, bits, (gk_int128 *) (own + p->sum_at), (int64_t *) (own + p->count_at));
}

/* GK_STEP_MERGE, GK_STEP_DELTA */
static void
assign_block(GkSession *s, void *arg, const GkBlock *b)
{
	const GkStepPass *p = arg;
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
		if (!gk_cpu_step_labels(p, &piece, &l))
		{
			if (s->halted)
				return;
			continue;
		}
		if (p->path == GK_STEP_MERGE)
			add(p, own, &piece, &l);
		if (p->memory == GK_REMEMBER_LABELS)
			note_changes(p, own, &piece, &l);
	}
}

/* GK_STEP_HAMERLY */
static void
bounds_block(GkSession *s, void *arg, const GkBlock *b)
{
	const GkStepPass *p = arg;
	GkBlockLabels l = {.x = gk_cpu_tiles(s, b)};
	int			changes;
	const GkLabelChange *change = gk_cpu_hamerly_block(s, b, p->c, p->k, &changes);
	char	   *own = changes > 0 ? claim(p, b->thread) : region(p, b->thread);

	((Private *) own)->changed += changes;
	for (int i = 0; i < changes; i++)
		move_row(p, own, b, &l, change[i].row, change[i].from, s->previous[b->slot + change[i].row]);
}

/* ---- the pass ---- */

static GkStatus
step_direct(GkStepPass *p, GkError *err)
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

GkStatus
gk_cpu_step_private(GkStepPass *p, int64_t *changed, GkError *err)
{
	GkSession  *s = p->s;
	GkStatus	st;

	if (p->path == GK_STEP_SMALLK_DIRECT)
		return step_direct(p, err);
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
	/* rows that move one by one have the last cluster, too */
	if (st == GK_OK && p->smallk && p->path < GK_STEP_DELTA)
		complete(p);
	*changed = 0;
	for (int t = 0; t < p->sweep.threads; t++)
		*changed += ((Private *) region(p, t))->changed;
	return st;
}
