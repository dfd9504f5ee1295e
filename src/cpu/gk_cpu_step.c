/*
 * gk_cpu_step.c - one Lloyd pass: assign, Feature Sum and Mass Sum.
 *
 * Feature Sum in one of three ways (Lutz et al., "Efficient k-means on GPUs",
 * DaMoN 2018, sections on the update; here for threads):
 *   cluster_merge          every thread adds into sums of its own, right after it
 *                          has assigned a block that is still in cache; the copies
 *                          are merged at the end
 *   partitioned_features   no copies, for large k * d: gk_cpu_step_partitioned.c
 *   delta                  as cluster_merge, but only rows whose label changed
 *                          since the last step move from one cluster to another;
 *                          of few clusters a label's bits are kept instead of it
 * All sums are exact, so all give the same bits.  Unweighted, a thread first adds
 * up to GK_PACKAGE rows in doubles, exactly (He et al., "Package summation", 2022),
 * and then turns them into integers.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"

/* Above this much for one thread or for all, auto does without private copies. */
#define THREAD_BYTES	((size_t) 64 << 20)
#define PRIVATE_BYTES	((size_t) 256 << 20)
/* Copies of the double sums within a thread, when they are this small. */
#define COPIES_BYTES	((size_t) 16 << 10)
/* Values that a small second-level cache holds beside others'. */
#define PIECE_FLOATS	(64 * 1024)
/* Auto goes over to delta when fewer rows than one of so many changed their label ... */
#define DELTA_SHARE		4
/* ... of few clusters, where adding up all rows takes but twice as long as assigning them ... */
#define FEW_DELTA_SHARE	32
/* ... and a point is so much larger than the label to be remembered. */
#define DELTA_FEATURES	16

typedef struct Pass
{
	GkSession  *s;
	GkSweep		sweep;
	const float *c;
	int			k;
	int			d;
	bool		weighted;
	bool		few;			/* the last cluster's sums are the total minus the rest */
	const double *inv;
	GkStep	   *out;
	GkHost		host;			/* with the sweep's number of threads */
	int			per_job;		/* clusters, where the merge is shared out */
	int			piece;			/* rows that are in the cache when they are added up */

	/* Private sums: one region per thread, offsets from its start. */
	size_t		width;			/* of a cluster in the double sums */
	int			copies;			/* of the double sums and the counts */
	size_t		sum_at;			/* gk_int128 [k][d] */
	size_t		mass_at;		/* gk_int128 [k], weighted only */
	size_t		count_at;		/* int64_t [copies][k] */
	size_t		double_at;		/* double [copies][k][width], unweighted only */
	size_t		bytes;

	/* delta, one of: labels of the last step by row, or as of step_few(); NULL: not kept. */
	int32_t    *previous;
	uint64_t   *kept;
	bool		delta;			/* this pass adds to the last step's result */
	bool		known;			/* there are labels and results of a last step */
	bool		bounded;		/* and looks only at rows that may change their label */
	bool		screened;		/* labels are found by scalar products */
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
	p->copies = !p->weighted && !p->few &&
		p->k * p->width * sizeof(double) * GK_ADD_COPIES <= COPIES_BYTES ? GK_ADD_COPIES : 1;
	p->sum_at = 64;
	p->mass_at = p->sum_at + kd * sizeof(gk_int128);
	p->count_at = p->mass_at + (p->weighted ? p->k * sizeof(gk_int128) : 0);
	p->double_at = p->count_at + p->copies * p->k * sizeof(int64_t);
	p->double_at = (p->double_at + 63) / 64 * 64;
	p->bytes = p->double_at + (p->weighted ? 0 : p->copies * p->k * p->width * sizeof(double));
	/* A line apart, so that threads do not share one. */
	p->bytes = (p->bytes + 127) / 64 * 64;
}

static char *
region(const Pass *p, int thread)
{
	return (char *) p->s->sums.p + thread * p->bytes;
}

/* Exact doubles into integers, of clusters k0 .. k1-1. */
static void
flush(const Pass *p, char *own, int k0, int k1)
{
	gk_int128  *sum = (gk_int128 *) (own + p->sum_at);
	double	   *part = (double *) (own + p->double_at);
	size_t		copy = p->k * p->width;

	for (int k = k0; k < k1; k++)
		for (int j = 0; j < p->d; j++)
		{
			double		v = 0.0;

			for (int i = 0; i < p->copies; i++)
			{
				v += part[i * copy + k * p->width + j];
				part[i * copy + k * p->width + j] = 0.0;
			}
			sum[(size_t) k * p->d + j] += (int64_t) (v * p->inv[j]);
		}
}

/* Row i of the block, `times` (1 or -1) over, into cluster k. */
static void
add_row(const Pass *p, char *own, const GkBlock *b, const GkLabels *l, int i, int k, int times)
{
	const float *x = l->x.x + i / GK_ROW_PAD * l->x.tile + i % GK_ROW_PAD;
	size_t		stride = l->x.stride;

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
			to[j] += times * (double) x[j * stride];
	}
}

/* Make room for so many more rows in the double sums. */
static void
reserve(const Pass *p, char *own, int rows)
{
	Private    *state = (Private *) own;

	if (p->weighted)
		return;
	if (state->pending + rows > GK_PACKAGE)
	{
		flush(p, own, 0, p->k);
		state->pending = 0;
	}
	state->pending += rows;
}

static void
add(const Pass *p, char *own, const GkBlock *b, const GkLabels *l)
{
	int64_t    *count = (int64_t *) (own + p->count_at);
	double	   *part = (double *) (own + p->double_at);
	const GkCpuKernels *kernels = p->s->kernels;

	if (p->few)
	{
		kernels->add_few(&l->x, l->label, b->rows, p->k, p->s->pts->prep.expo,
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

/* The result of some clusters: all private sums, and for a delta the last result. */
static void
merge_clusters(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	const GkSession *s = p->s;
	int			k0 = (int) job * p->per_job;
	int			k1 = p->k - k0 > p->per_job ? k0 + p->per_job : p->k;
	size_t		sums = (size_t) (k1 - k0) * p->d;
	gk_int128  *sum = p->out->sum + (size_t) k0 * p->d;
	gk_int128  *base_sum = (gk_int128 *) s->base_sum.p + (size_t) k0 * p->d;
	gk_int128  *base_mass = s->base_mass.p;
	int64_t    *base_count = s->base_count.p;

	(void) thread;
	for (size_t i = 0; i < sums; i++)
		sum[i] = p->delta ? base_sum[i] : 0;
	for (int k = k0; k < k1; k++)
	{
		p->out->count[k] = p->delta ? base_count[k] : 0;
		p->out->mass[k] = p->delta ? base_mass[k] : 0;
	}
	for (int t = 0; t < p->sweep.threads; t++)
	{
		char	   *own = region(p, t);
		const gk_int128 *own_sum = (gk_int128 *) (own + p->sum_at) + (size_t) k0 * p->d;
		const gk_int128 *own_mass = (gk_int128 *) (own + p->mass_at);
		const int64_t *own_count = (int64_t *) (own + p->count_at);

		if (!((Private *) own)->used)
			continue;
		/* the kernels for few clusters add to the integers themselves */
		if (!p->weighted && ((Private *) own)->pending > 0)
			flush(p, own, k0, k1);
		for (size_t i = 0; i < sums; i++)
			sum[i] += own_sum[i];
		for (int k = k0; k < k1; k++)
		{
			for (int i = 0; i < p->copies; i++)
				p->out->count[k] += own_count[(size_t) i * p->k + k];
			if (p->weighted)
				p->out->mass[k] += own_mass[k];
			else
				p->out->mass[k] = p->out->count[k];
		}
	}
	if (s->used == GK_DELTA)
	{
		memcpy(base_sum, sum, sums * sizeof(gk_int128));
		memcpy(base_mass + k0, p->out->mass + k0, (k1 - k0) * sizeof(gk_int128));
		memcpy(base_count + k0, p->out->count + k0, (k1 - k0) * sizeof(int64_t));
	}
}

/* What few clusters leave out. */
static void
complete(const Pass *p)
{
	const GkPoints *pts = p->s->pts;
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
	if (p->s->used == GK_DELTA)
	{
		memcpy((gk_int128 *) p->s->base_sum.p + (size_t) last * p->d, sum, p->d * sizeof(gk_int128));
		((gk_int128 *) p->s->base_mass.p)[last] = p->out->mass[last];
		((int64_t *) p->s->base_count.p)[last] = p->out->count[last];
	}
}

/* Row i of the block moves. */
static void
move_row(const Pass *p, char *own, const GkBlock *b, const GkLabels *l, int i, int from, int to)
{
	reserve(p, own, 2);
	add_row(p, own, b, l, i, to, 1);
	add_row(p, own, b, l, i, from, -1);
}

/* Remember the block's labels; rows that changed theirs move when this is a delta. */
static void
note_changes(const Pass *p, char *own, const GkBlock *b, const GkLabels *l)
{
	int32_t    *previous = p->previous + b->slot;

	for (int i = 0; i < b->rows; i += GK_ROW_PAD)
	{
		int			end = b->rows - i < GK_ROW_PAD ? b->rows : i + GK_ROW_PAD;
		int			changed = 0;

		if (memcmp(previous + i, l->label + i, (end - i) * sizeof(int32_t)) == 0)
			continue;			/* most tiles */
		for (int r = i; r < end; r++)
			changed += previous[r] != l->label[r];
		((Private *) own)->changed += changed;
		for (int r = i; p->delta && r < end; r++)
			if (previous[r] != l->label[r])
				move_row(p, own, b, l, r, previous[r], l->label[r]);
		memcpy(previous + i, l->label + i, (end - i) * sizeof(int32_t));
	}
	for (int i = b->rows; i < b->tiles * GK_ROW_PAD; i++)
		previous[i] = 0;		/* a valid one, for whole vectors */
}

/* The thread's sums are there, cleared. */
static void
claim(const Pass *p, char *own)
{
	if (((Private *) own)->used)
		return;
	memset(own + p->sum_at, 0, p->bytes - p->sum_at);
	((Private *) own)->used = true;
}

static void
bounded_block(GkSession *s, const Pass *p, char *own, const GkBlock *b)
{
	GkLabels	l = {.x = {.x = b->chunk->data + b->row,.tile = GK_ROW_PAD,.stride = b->chunk->stride}};
	int			changed = gk_cpu_hamerly_block(s, b, p->c, p->k);

	((Private *) own)->changed += changed;
	if (changed > 0)
		claim(p, own);
	for (int i = 0; i < changed; i++)
		move_row(p, own, b, &l, b->label[i], ((int32_t *) b->d2)[i], p->previous[b->slot + b->label[i]]);
}

/* Without labels. */
static void
few_block(GkSession *s, const Pass *p, char *own, const GkBlock *b)
{
	GkTiles		x = gk_cpu_tiles(s, b);
	uint64_t   *kept = p->kept != NULL ? p->kept + b->slot / GK_ROW_PAD * gk_smallk_bits(p->k) : NULL;

	((Private *) own)->changed +=
		(p->delta ? s->kernels->move_few : s->kernels->step_few)
		(&x, p->c, p->k, b->rows, s->pts->prep.expo, kept, (gk_int128 *) (own + p->sum_at), (int64_t *) (own + p->count_at));
}

static void
merge_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	char	   *own = region(p, b->thread);
	GkLabels	l;

	if (p->bounded)
	{
		bounded_block(s, p, own, b);
		return;
	}
	claim(p, own);
	if (p->few && p->previous == NULL)
	{
		few_block(s, p, own, b);
		return;
	}
	for (int row = 0; row < b->rows; row += p->piece)
	{
		GkBlock		part = *b;

		part.row += row;
		part.rows = b->rows - row < p->piece ? b->rows - row : p->piece;
		part.tiles = (part.rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
		part.at += row;
		part.slot += row;
		part.label += row;
		part.d2 += row;
		if (p->screened)
		{
			l = (GkLabels) {.x = gk_cpu_tiles(s, &part),.label = part.label};
			gk_cpu_dot_labels(s, &l.x, part.slot, part.rows, l.label);
		}
		else if (!gk_cpu_assign(s, &p->sweep, &part, p->c, p->k, &l))
			continue;
		if (!p->delta)
			add(p, own, &part, &l);
		if (p->previous != NULL)
			note_changes(p, own, &part, &l);
	}
}

/* ---- the pass ---- */

/* All are in registers at once. */
static bool
few_sums(const Pass *p)
{
	return p->few && (p->k - 1) * p->d <= p->s->kernels->few_sums;
}

static size_t
kept_words(const Pass *p)
{
	return p->s->all_rows / GK_ROW_PAD * gk_smallk_bits(p->k);
}

/* Of a single block, a moment's work, bits are not worth their memory. */
static bool
bits_possible(const Pass *p)
{
	const GkSession *s = p->s;

	return s->feature_sum == GK_FSUM_AUTO && s->host.skip != GK_SKIP_ON && few_sums(p) && p->k > 1 &&
		s->kernels->move_few != NULL && s->pts->n > p->sweep.rows &&
		s->pts->resident && kept_words(p) * sizeof(uint64_t) <= s->pts->spare;
}

/*
 * Private copies must fit, and clearing and merging them must be small beside
 * adding the rows up.
 */
static GkFeatureSum
choose(const Pass *p)
{
	const GkSession *s = p->s;

	if (s->feature_sum != GK_FSUM_AUTO)
		return s->feature_sum;
	if (s->strategy == GK_MULTI_PASS)
		return GK_PARTITIONED_FEATURES;
	if (p->bytes > THREAD_BYTES || p->bytes * p->sweep.threads > PRIVATE_BYTES)
		return GK_PARTITIONED_FEATURES;
	if (p->sweep.threads > 1 && p->d >= p->sweep.threads &&
		(int64_t) p->k * p->sweep.threads * 4 > s->pts->n)
		return GK_PARTITIONED_FEATURES;
	if (p->d >= DELTA_FEATURES && s->pts->resident)
		return GK_DELTA;
	/* Bounds need labels; few clusters of small points are faster without any. */
	if (gk_cpu_hamerly_possible(s, p->k) && (!few_sums(p) || s->host.skip == GK_SKIP_ON))
		return GK_DELTA;
	return bits_possible(p) ? GK_DELTA : GK_CLUSTER_MERGE;
}

/* Remember labels, or their bits, and results, and start from those of the last step if they help. */
static GkStatus
prepare_delta(Pass *p, GkError *err)
{
	GkSession  *s = p->s;
	size_t		kd = (size_t) p->k * p->d;
	bool		few = bits_possible(p);

	if (!(few ? gk_cpu_room(s, &s->kept, kept_words(p), sizeof(uint64_t)) :
		  gk_cpu_room(s, &s->previous, s->all_rows, sizeof(int32_t))) ||
		!gk_cpu_room(s, &s->base_sum, kd, sizeof(gk_int128)) ||
		!gk_cpu_room(s, &s->base_mass, p->k, sizeof(gk_int128)) ||
		!gk_cpu_room(s, &s->base_count, p->k, sizeof(int64_t)))
		return gk_cpu_out_of_memory(err);
	p->known = s->previous_k == p->k;
	p->delta = p->known && (s->feature_sum == GK_DELTA || s->changed < s->pts->n / (few ? FEW_DELTA_SHARE : DELTA_SHARE));
	if (few)
	{
		p->kept = s->kept.p;
		return GK_OK;
	}
	p->previous = s->previous.p;
	if (!p->known)
		memset(p->previous, 0xff, s->all_rows * sizeof(int32_t));
	p->bounded = p->known && gk_cpu_hamerly_begin(s, &p->sweep, p->c, p->k);
	if (p->bounded)
		p->delta = true;
	return GK_OK;
}

static void
direct_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);

	s->kernels->step_few(&x, p->c, p->k, b->rows, s->pts->prep.expo, NULL, p->out->sum, p->out->count);
}

/*
 * Few clusters and one thread: it adds up in the result itself.  Thousands of small
 * clusterings feel that nothing is merged.
 */
static GkStatus
step_direct(Pass *p, GkError *err)
{
	size_t		sums = (size_t) (p->k - 1) * p->d;
	GkStatus	st;

	memset(p->out->sum, 0, sums * sizeof(gk_int128));
	memset(p->out->count, 0, p->k * sizeof(int64_t));
	p->sweep.block = direct_block;
	st = gk_cpu_sweep(p->s, &p->sweep, err);
	for (int k = 0; k < p->k; k++)
		p->out->mass[k] = p->out->count[k];
	complete(p);
	return st;
}

static GkStatus
step_merge(Pass *p, GkError *err)
{
	GkSession  *s = p->s;
	GkStatus	st = GK_OK;

	/* few_block() takes all clusters at once, however many features they have */
	if (p->few && p->previous == NULL)
	{
		p->sweep.rounds = 1;
		p->sweep.per_round = p->k;
	}
	else if (!p->bounded)
		st = gk_cpu_dot_begin(s, &p->sweep, p->c, p->k, &p->screened, err);
	if (st != GK_OK)
		return st;
	if (p->few && p->previous == NULL && p->kept == NULL && p->sweep.threads == 1)
		return step_direct(p, err);
	p->sweep.block = merge_block;
	p->sweep.keep_labels = p->sweep.rounds > 1;
	if (!gk_cpu_room(s, &s->sums, p->sweep.threads, p->bytes))
		return gk_cpu_out_of_memory(err);
	for (int t = 0; t < p->sweep.threads; t++)
		memset(region(p, t), 0, sizeof(Private));
	st = gk_cpu_sweep(s, &p->sweep, err);
	if (st == GK_OK && !s->core->parallel_for(&p->host, (p->k + p->per_job - 1) / p->per_job, merge_clusters, p))
		st = GK_STOPPED;
	if (p->screened)
		gk_cpu_dot_end(s);
	if (st == GK_OK && p->few && (!p->delta || p->kept != NULL))
		complete(p);
	if (st == GK_OK && s->used == GK_DELTA)
	{
		s->previous_k = p->k;
		s->changed = 0;
		for (int t = 0; t < p->sweep.threads; t++)
			s->changed += ((Private *) region(p, t))->changed;
		if (p->kept == NULL)
			gk_cpu_hamerly_end(s, &p->sweep, p->bounded);
		else if (!p->known)
			s->changed = s->pts->n;
	}
	return st;
}

GkStatus
gk_cpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	Pass		p = {.s = s,.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k,.d = s->pts->d,
	.weighted = s->pts->weighted,.inv = s->inv.p,.out = out,.host = s->host};
	GkStatus	st = GK_OK;

	p.few = !p.weighted && k <= GK_CPU_SMALLK && s->kernels->add_few != NULL;
	lay_out(&p);
	p.host.threads = p.sweep.threads;
	p.per_job = GK_CPU_JOB_SUMS / p.d + 1;
	p.piece = (PIECE_FLOATS / p.d + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
	p.piece = p.piece > GK_ROW_PAD ? p.piece : GK_ROW_PAD;
	p.sweep.arg = &p;
	s->used = choose(&p);
	if (s->used == GK_DELTA)
		st = prepare_delta(&p, err);
	s->previous_k = 0;			/* until this step is through */
	if (st != GK_OK)
		return st;
	if (s->used == GK_PARTITIONED_FEATURES)
		return gk_cpu_step_partitioned(s, &p.sweep, centroids, k, out, err);
	return step_merge(&p, err);
}
