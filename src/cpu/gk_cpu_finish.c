/*
 * gk_cpu_finish.c - the last pass: labels, and statistics of each cluster.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Rows that the main thread gathers between two polls. */
#define POLL_ROWS		(128 * 1024)

typedef struct Stat
{
	gk_int128	inertia;
	int64_t		count;
	float		max_d2;
} Stat;

typedef struct Pass
{
	GkSweep		sweep;
	const float *c;
	int			k;
	Stat	   *stat;			/* [copies][k], NULL: none wanted */
	bool		dot;			/* labels by scalar products */
	const int32_t *nearest;		/* [all_rows]: labels that seeding has found; NULL: none */
	bool		shared;			/* one stat, filled by the main thread; else one per thread */
	const GkLabelSink *sink;
} Pass;

static void
gather_smallk(const GkSession *s, Stat *stat, int k, const float *w, int rows, const int32_t *label, const float *d2)
{
	GkTally		t[GK_CPU_SMALLK];

	for (int i = 0; i < rows; i += GK_PACKAGE)
	{
		s->kernels->tally_smallk(d2 + i, w ? w + i : NULL, label + i, rows - i < GK_PACKAGE ? rows - i : GK_PACKAGE,
								 k, s->d2_scale, t);
		for (int q = 0; q < k; q++)
		{
			stat[q].count += t[q].count;
			stat[q].inertia += (gk_int128) t[q].hi * ((gk_int128) 1 << 40) + t[q].lo;
			if (t[q].max_d2 > stat[q].max_d2)
				stat[q].max_d2 = t[q].max_d2;
		}
	}
}

static void
gather(const GkSession *s, Stat *stat, int k, const GkChunk *chunk, int row, int rows,
	   const int32_t *label, const float *d2)
{
	const float *w = gk_chunk_weight(s->pts, chunk);

	if (k <= GK_CPU_SMALLK && s->kernels->tally_smallk != NULL)
	{
		gather_smallk(s, stat, k, w ? w + row : NULL, rows, label, d2);
		return;
	}
	for (int i = 0; i < rows; i++)
	{
		Stat	   *to = &stat[label[i]];

		to->count++;
		if (d2[i] > to->max_d2)
			to->max_d2 = d2[i];
		to->inertia += gk_d2_fixed(w ? (double) w[row + i] * (double) d2[i] : (double) d2[i], s->d2_scale);
	}
}

static void
block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkBlockLabels l;

	if (p->dot)
	{
		l = (GkBlockLabels) {gk_cpu_tiles(s, b), p->sweep.keep_labels ? s->label + b->at : b->label,
			p->sweep.keep_labels ? s->d2 + b->at : b->d2};
		gk_cpu_dot_assign(s, &l.x, b->slot, b->rows, b->thread, NULL, l.label, l.d2);
	}
	else if (!gk_cpu_assign(s, &p->sweep, b, p->c, p->k, &l))
		return;
	if (p->stat != NULL && !p->shared)
		gather(s, p->stat + (size_t) b->thread * p->k, p->k, b->chunk, b->row, b->rows, l.label, l.d2);
}

/* Centroids that are the seeds: their distances are D. */
static void
seeded_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;

	gather(s, p->stat + (size_t) b->thread * p->k, p->k, b->chunk, b->row, b->rows, p->nearest + b->slot,
		   b->chunk->mind2 + b->row);
}

static GkStatus
chunk(GkSession *s, void *arg, const GkChunk *c, int64_t at, GkError *err)
{
	const Pass *p = arg;
	const int32_t *label = s->label + at;
	const float *d2 = s->d2 + at;
	const uint32_t *aux[GK_MAX_AUX];

	for (int row = 0; p->shared && row < c->rows; row += POLL_ROWS)
	{
		int			rows = c->rows - row < POLL_ROWS ? c->rows - row : POLL_ROWS;

		gather(s, p->stat, p->k, c, row, rows, label + row, d2 + row);
		if (gk_cpu_stopped(s))
			return GK_STOPPED;
	}
	if (p->sink == NULL)
		return GK_OK;
	for (int i = 0; i < s->pts->naux; i++)
		aux[i] = gk_chunk_aux(s->pts, c, i);
	if (!p->sink->emit(p->sink->ctx, c->rows, label, d2, aux))
		return gk_fail(err, GK_ERR_HOST, "the host did not take the labels");
	return GK_OK;
}

static void
merge(const Pass *p, int copies, GkFinish *out)
{
	for (int k = 0; k < p->k; k++)
	{
		Stat		sum = {0};

		for (int t = 0; t < copies; t++)
		{
			const Stat *from = &p->stat[(size_t) t * p->k + k];

			sum.count += from->count;
			sum.inertia += from->inertia;
			if (from->max_d2 > sum.max_d2)
				sum.max_d2 = from->max_d2;
		}
		out->count[k] = sum.count;
		out->inertia[k] = sum.inertia;
		out->max_d2[k] = sum.max_d2;
	}
}

GkStatus
gk_cpu_finish(GkSession *s, const float *centroids, int k,
			  GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	Pass		p = {.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k,.sink = sink};
	size_t		bytes = (size_t) k * sizeof(Stat);
	int			copies = p.sweep.threads;
	GkStatus	st;

	p.shared = out != NULL && copies > 1 && bytes * copies > GK_COST_FINISH_BYTES;
	if (p.shared)
		copies = 1;
	p.nearest = out != NULL && sink == NULL && !p.shared ? gk_cpu_seed_nearest(s, centroids, k) : NULL;
	if (p.nearest != NULL)
	{
		p.sweep = gk_cpu_plan(s, GK_D_ONLY);
		p.sweep.mind2 = true;
		copies = p.sweep.threads;
	}
	if (out != NULL)
	{
		if (!gk_cpu_room(s, &s->sums, copies, bytes))
			return gk_cpu_out_of_memory(err);
		p.stat = s->sums;
		memset(p.stat, 0, copies * bytes);
	}
	p.dot = p.nearest == NULL && gk_cpu_dot_wanted(s, &p.sweep, k);
	st = p.dot ? gk_cpu_dot_begin(s, &p.sweep, centroids, k, err) : GK_OK;
	if (st != GK_OK)
		return st;
	p.sweep.arg = &p;
	p.sweep.block = p.nearest != NULL ? seeded_block : block;
	p.sweep.chunk = chunk;
	p.sweep.keep_labels = p.sweep.rounds > 1 || sink != NULL || p.shared;
	st = gk_cpu_sweep(s, &p.sweep, err);
	if (p.dot)
		gk_cpu_dot_end(s);
	if (st == GK_OK && out != NULL)
		merge(&p, copies, out);
	return st;
}
