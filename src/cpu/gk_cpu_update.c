/*
 * gk_cpu_update.c - one Lloyd pass: assign, Feature Sum and Mass Sum.
 *
 * Feature Sum in one of three ways (Lutz et al., "Efficient k-means on GPUs",
 * DaMoN 2018, sections on the update; here for threads):
 *   cluster_merge          every thread adds into sums of its own, right after it
 *                          has assigned a block that is still in cache; the copies
 *                          are merged at the end
 *   partitioned_features   a group of chunks is assigned first, then each thread
 *                          owns some features and adds them straight into the
 *                          result: no copies, for large k * d
 *   delta                  as cluster_merge, but only rows whose label changed
 *                          since the last step move from one cluster to another
 * All sums are exact, so all give the same bits.  Unweighted, a thread first adds
 * up to GK_PACKAGE rows in doubles, exactly (He et al., "Package summation", 2022),
 * and then turns them into integers.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"

/* Above this much for all threads, auto does without private copies. */
#define PRIVATE_BYTES	((size_t) 256 << 20)
/* Copies of the double sums within a thread, when they are this small. */
#define COPIES_BYTES	((size_t) 16 << 10)
/* Features that one job owns: a cache line of results and a bit. */
#define OWN_FEATURES	8
#define OWN_ROWS		(64 * 1024)

typedef struct Pass
{
	GkSession  *s;
	GkSweep		sweep;
	const float *c;
	int			k;
	int			d;
	bool		weighted;
	const double *inv;
	GkStep	   *out;

	/* Private sums: one region per thread, offsets from its start. */
	size_t		width;			/* of a cluster in the double sums */
	int			copies;			/* of the double sums and the counts */
	size_t		sum_at;			/* gk_int128 [k][d] */
	size_t		mass_at;		/* gk_int128 [k], weighted only */
	size_t		count_at;		/* int64_t [copies][k] */
	size_t		double_at;		/* double [copies][k][width], unweighted only */
	size_t		bytes;

	/* partitioned_features: the rows that jobs work on. */
	const GkChunk *chunk;
	const int32_t *label;
	int			row;
	int			rows;
	int			own;
} Pass;

/* At the start of a thread's region. */
typedef struct Private
{
	bool		used;
	int			pending;		/* rows in the double sums */
} Private;

/* ---- private sums ---- */

static void
lay_out(Pass *p)
{
	size_t		kd = (size_t) p->k * p->d;

	p->width = (size_t) (p->d + 3) / 4 * 4;
	p->copies = !p->weighted && p->k * p->width * sizeof(double) * GK_ADD_COPIES <= COPIES_BYTES ? GK_ADD_COPIES : 1;
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

/* Exact doubles into integers. */
static void
flush(const Pass *p, char *own)
{
	gk_int128  *sum = (gk_int128 *) (own + p->sum_at);
	double	   *part = (double *) (own + p->double_at);
	size_t		copy = p->k * p->width;

	for (int k = 0; k < p->k; k++)
		for (int j = 0; j < p->d; j++)
		{
			double		v = 0.0;

			for (int i = 0; i < p->copies; i++)
				v += part[i * copy + k * p->width + j];
			sum[(size_t) k * p->d + j] += (int64_t) (v * p->inv[j]);
		}
	memset(part, 0, p->copies * copy * sizeof(double));
	((Private *) own)->pending = 0;
}

static void
add_weighted(const Pass *p, char *own, const GkBlock *b, const GkLabels *l)
{
	gk_int128  *sum = (gk_int128 *) (own + p->sum_at);
	gk_int128  *mass = (gk_int128 *) (own + p->mass_at);
	int64_t    *count = (int64_t *) (own + p->count_at);
	const float *w = gk_chunk_weight(p->s->pts, b->chunk) + b->row;

	for (int i = 0; i < b->rows; i++)
	{
		const float *x = l->x.x + i / GK_ROW_PAD * l->x.tile + i % GK_ROW_PAD;
		gk_int128  *to = sum + (size_t) l->label[i] * p->d;
		int64_t		wi = gk_fixed(w[i], 0x1p40);

		for (int j = 0; j < p->d; j++)
			to[j] += (gk_int128) wi * gk_fixed(x[j * l->x.stride], p->inv[j]);
		mass[l->label[i]] += wi;
		count[l->label[i]]++;
	}
}

static void
add(const Pass *p, char *own, const GkBlock *b, const GkLabels *l)
{
	Private    *state = (Private *) own;
	int64_t    *count = (int64_t *) (own + p->count_at);
	double	   *part = (double *) (own + p->double_at);
	const GkCpuKernels *kernels = p->s->kernels;

	if (!state->used)
	{
		memset(own + p->sum_at, 0, p->bytes - p->sum_at);
		state->used = true;
	}
	if (p->weighted)
	{
		add_weighted(p, own, b, l);
		return;
	}
	if (state->pending + b->rows > GK_PACKAGE)
		flush(p, own);
	state->pending += b->rows;
	if (gk_cpu_few(kernels, p->k, p->d))
	{
		kernels->add_few(&l->x, l->label, b->rows, p->k, part, p->width, count);
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

static void
merge(const Pass *p)
{
	size_t		kd = (size_t) p->k * p->d;

	for (int t = 0; t < p->sweep.threads; t++)
	{
		char	   *own = region(p, t);
		const gk_int128 *sum = (gk_int128 *) (own + p->sum_at);
		const gk_int128 *mass = (gk_int128 *) (own + p->mass_at);
		const int64_t *count = (int64_t *) (own + p->count_at);

		if (!((Private *) own)->used)
			continue;
		if (!p->weighted)
			flush(p, own);
		for (size_t i = 0; i < kd; i++)
			p->out->sum[i] += sum[i];
		for (int i = 0; i < p->copies; i++)
			for (int k = 0; k < p->k; k++)
				p->out->count[k] += count[(size_t) i * p->k + k];
		for (int k = 0; p->weighted && k < p->k; k++)
			p->out->mass[k] += mass[k];
	}
}

static void
merge_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkLabels	l;

	if (gk_cpu_assign(s, &p->sweep, b, p->c, p->k, &l))
		add(p, region(p, b->thread), b, &l);
}

/* ---- partitioned features ---- */

static void
assign_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkLabels	l;

	gk_cpu_assign(s, &p->sweep, b, p->c, p->k, &l);
}

/* Features job * own .. of all rows at hand. */
static void
own_features(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	int			j0 = (int) job * p->own;
	int			n = p->d - j0 < p->own ? p->d - j0 : p->own;
	const float *x = p->chunk->data + (size_t) j0 * p->chunk->stride;
	const float *w = gk_chunk_weight(p->s->pts, p->chunk);

	(void) thread;
	for (int i = p->row; i < p->row + p->rows; i++)
	{
		gk_int128  *to = p->out->sum + (size_t) p->label[i] * p->d + j0;
		int64_t		wi = w ? gk_fixed(w[i], 0x1p40) : 1;

		for (int j = 0; j < n; j++)
			to[j] += (gk_int128) wi * gk_fixed(x[(size_t) j * p->chunk->stride + i], p->inv[j0 + j]);
	}
}

static GkStatus
own_chunk(GkSession *s, void *arg, const GkChunk *chunk, int64_t at, GkError *err)
{
	Pass	   *p = arg;
	const float *w = gk_chunk_weight(s->pts, chunk);
	GkHost		host = s->host;

	(void) err;
	host.threads = p->sweep.threads;
	p->chunk = chunk;
	p->label = (int32_t *) s->label.p + at;
	p->own = p->d / p->sweep.threads;
	p->own = p->own < 1 ? 1 : p->own > OWN_FEATURES ? OWN_FEATURES : p->own;
	for (p->row = 0; p->row < chunk->rows; p->row += p->rows)
	{
		p->rows = chunk->rows - p->row < OWN_ROWS ? chunk->rows - p->row : OWN_ROWS;
		if (!s->core->parallel_for(&host, (p->d + p->own - 1) / p->own, own_features, p))
			return GK_STOPPED;
		for (int i = p->row; i < p->row + p->rows; i++)
		{
			p->out->count[p->label[i]]++;
			if (w != NULL)
				p->out->mass[p->label[i]] += gk_fixed(w[i], 0x1p40);
		}
		if (host.poll != NULL && host.poll(host.ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}

/* ---- the pass ---- */

/*
 * Private copies must fit, and clearing and merging them must be small beside
 * adding the rows up.
 */
static GkFeatureSum
choose(const Pass *p)
{
	if (p->s->feature_sum == GK_PARTITIONED_FEATURES || p->s->feature_sum == GK_CLUSTER_MERGE)
		return p->s->feature_sum;
	if (p->bytes * p->sweep.threads > PRIVATE_BYTES)
		return GK_PARTITIONED_FEATURES;
	if (p->sweep.threads > 1 && p->d >= p->sweep.threads &&
		(int64_t) p->k * p->sweep.threads * 4 > p->s->pts->n)
		return GK_PARTITIONED_FEATURES;
	return GK_CLUSTER_MERGE;
}

GkStatus
gk_cpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	Pass		p = {.s = s,.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k,.d = s->pts->d,
	.weighted = s->pts->weighted,.inv = s->inv.p,.out = out};
	GkStatus	st;

	lay_out(&p);
	s->used = choose(&p);
	p.sweep.arg = &p;
	p.sweep.keep_labels = p.sweep.rounds > 1;
	memset(out->sum, 0, (size_t) k * p.d * sizeof(gk_int128));
	memset(out->mass, 0, k * sizeof(gk_int128));
	memset(out->count, 0, k * sizeof(int64_t));
	if (s->used == GK_PARTITIONED_FEATURES)
	{
		p.sweep.block = assign_block;
		p.sweep.chunk = own_chunk;
		p.sweep.keep_labels = true;
		st = gk_cpu_sweep(s, &p.sweep, err);
	}
	else
	{
		p.sweep.block = merge_block;
		if (!gk_cpu_room(s, &s->sums, p.sweep.threads, p.bytes))
			return gk_cpu_out_of_memory(err);
		for (int t = 0; t < p.sweep.threads; t++)
			memset(region(&p, t), 0, sizeof(Private));
		st = gk_cpu_sweep(s, &p.sweep, err);
		if (st == GK_OK)
			merge(&p);
	}
	for (int i = 0; !p.weighted && i < k; i++)
		out->mass[i] = out->count[i];
	return st;
}
