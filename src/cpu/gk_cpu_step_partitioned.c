/*
 * gk_cpu_step_partitioned.c - Feature Sum by Partitioned Features (Lutz et al. 2018).
 *
 * For results too large to have a copy in every thread: a span of chunks is
 * assigned first, then each thread owns some features and adds them straight into
 * the result, so no two threads write to the same sum.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Features that one job owns at most: two cache lines of results. */
#define OWN_FEATURES	(2 * GK_CACHE_LINE / (int) sizeof(gk_int128))
#define OWN_ROWS		(64 * 1024)

typedef struct Pass
{
	const GkSession *s;
	GkSweep		sweep;
	GkHost		host;			/* with the sweep's number of threads */
	const float *c;
	int			k;
	GkStep	   *out;
	int			per_job;		/* clusters to clear */
	/* The rows that jobs work on. */
	const GkChunk *chunk;
	const int32_t *label;
	int			row;
	int			rows;
	int			own;			/* features of a job */
} Pass;

static void
clear_clusters(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	int			d = p->s->pts->d;
	int			k0 = (int) job * p->per_job;
	int			n = p->k - k0 > p->per_job ? p->per_job : p->k - k0;

	(void) thread;
	memset(p->out->sum + (size_t) k0 * d, 0, (size_t) n * d * sizeof(gk_int128));
	memset(p->out->mass + k0, 0, n * sizeof(gk_int128));
	memset(p->out->count + k0, 0, n * sizeof(int64_t));
}

static void
assign_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkBlockLabels l;

	gk_cpu_assign(s, &p->sweep, b, p->c, p->k, &l);
}

/* Features job * own .. of the rows at hand. */
static void
own_features(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	int			d = p->s->pts->d;
	int			j0 = (int) job * p->own;
	int			n = d - j0 < p->own ? d - j0 : p->own;
	const float *x = p->chunk->data + (size_t) j0 * p->chunk->stride;
	const float *w = gk_chunk_weight(p->s->pts, p->chunk);
	const double *inv = p->s->inv + j0;

	(void) thread;
	for (int i = p->row; i < p->row + p->rows; i++)
	{
		gk_int128  *to = p->out->sum + (size_t) p->label[i] * d + j0;
		int64_t		wi = w ? gk_fixed(w[i], 0x1p40) : 1;

		for (int j = 0; j < n; j++)
			to[j] += (gk_int128) wi * gk_fixed(x[(size_t) j * p->chunk->stride + i], inv[j]);
	}
}

/* The same by scalar products (gk_cpu_dot.c). */
static void
assign_block_dot(GkSession *s, void *arg, const GkBlock *b)
{
	GkTiles		x = gk_cpu_tiles(s, b);

	(void) arg;
	gk_cpu_dot_labels(s, &x, b->slot, b->rows, b->thread, NULL, s->label + b->at);
}

static GkStatus
own_chunk(GkSession *s, void *arg, const GkChunk *chunk, int64_t at, GkError *err)
{
	Pass	   *p = arg;
	int			d = s->pts->d;
	const float *w = gk_chunk_weight(s->pts, chunk);

	(void) err;
	p->chunk = chunk;
	p->label = s->label + at;
	p->own = d / p->host.threads;
	p->own = p->own < 1 ? 1 : p->own > OWN_FEATURES ? OWN_FEATURES : p->own;
	for (p->row = 0; p->row < chunk->rows; p->row += p->rows)
	{
		p->rows = chunk->rows - p->row < OWN_ROWS ? chunk->rows - p->row : OWN_ROWS;
		if (!s->core->parallel_for(&p->host, (d + p->own - 1) / p->own, own_features, p))
			return GK_STOPPED;
		for (int i = p->row; i < p->row + p->rows; i++)
		{
			p->out->count[p->label[i]]++;
			p->out->mass[p->label[i]] += w ? gk_fixed(w[i], 0x1p40) : 1;
		}
		if (p->host.poll != NULL && p->host.poll(p->host.ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}

GkStatus
gk_cpu_step_partitioned(GkSession *s, const GkSweep *sweep, const float *centroids, int k,
						GkStep *out, GkError *err)
{
	Pass		p = {.s = s,.sweep = *sweep,.host = s->host,.c = centroids,.k = k,.out = out,
	.per_job = GK_CPU_JOB_SUMS / s->pts->d + 1};

	bool		dot = gk_cpu_dot_wanted(s, sweep, k);
	GkStatus	st = dot ? gk_cpu_dot_begin(s, &p.sweep, centroids, k, err) : GK_OK;

	if (st != GK_OK)
		return st;
	p.host.threads = sweep->threads;
	p.sweep.arg = &p;
	p.sweep.block = dot ? assign_block_dot : assign_block;
	p.sweep.chunk = own_chunk;
	p.sweep.keep_labels = true;
	if (!s->core->parallel_for(&p.host, (k + p.per_job - 1) / p.per_job, clear_clusters, &p))
		return GK_STOPPED;
	st = gk_cpu_sweep(s, &p.sweep, err);
	if (dot)
		gk_cpu_dot_end(s);
	return st;
}
