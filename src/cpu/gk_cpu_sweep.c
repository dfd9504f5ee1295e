/*
 * gk_cpu_sweep.c - how a pass walks over the points.
 *
 * Resident chunks are taken in spans large enough to keep all threads busy for a
 * while, spilled ones alone.  A span's blocks are handed out in windows of about
 * 20 ms, with host->poll in between; a block itself is at most a few
 * milliseconds, so that every thread reacts quickly to host->stop.  Longer ones, of
 * scalar products with very many centroids, look at it themselves: gk_cpu_halt().
 */
#include <math.h>

#include "cpu/gk_cpu_session.h"

#define SPAN_CHUNKS	64
#define SPAN_ROWS		(1 << 20)	/* when labels are kept */
/* Rows of a block at most, and values that it may have however many centroids there are. */
#define BLOCK_ROWS		4096
#define BLOCK_FLOATS	(64 * 1024)

typedef struct Span
{
	GkSession  *s;
	const GkSweep *sweep;
	const GkHost *host;
	size_t		scratch;		/* bytes per thread */
	int			pieces;
	int			index[SPAN_CHUNKS];
	GkChunk		chunk[SPAN_CHUNKS];
	int64_t		at[SPAN_CHUNKS];	/* first row in the label arrays */
	int64_t		job[SPAN_CHUNKS];	/* first job */
	int64_t		rows;			/* padded */
	int64_t		slot;			/* of the first row */
	int64_t		jobs;
	/* The window at hand. */
	int			round;
	int64_t		first;
} Span;

static int
round_up(int64_t v, int unit)
{
	return (int) ((v + unit - 1) / unit * unit);
}

GkSweep
gk_cpu_plan(const GkSession *s, int m)
{
	const GkPoints *p = s->pts;
	GkSweep		sweep = {.points = m != GK_D_ONLY};
	int			d = sweep.points ? p->d : 1;
	int64_t		work = s->kernels->job_work;
	int64_t		rows = (p->n + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
	int64_t		row_work = (int64_t) d * (m > 0 ? m : 1);

	sweep.threads = (double) p->n * d * (m + GK_COST_OVERHEAD) < GK_COST_THREADS ? 1 : s->host.threads;
	sweep.rounds = 1;
	sweep.per_round = m;
	if (sweep.threads == 1 && rows > 0 && rows <= BLOCK_ROWS && rows * row_work <= work)
	{
		/* one block, without divisions: thousands of small clusterings are faster */
		sweep.rows = (int) rows;
		sweep.job_work = (double) rows * d * (m + GK_COST_OVERHEAD);
		return sweep;
	}
	rows = work / row_work;
	if (rows < BLOCK_FLOATS / d)
		rows = BLOCK_FLOATS / d;
	if (rows > BLOCK_ROWS)
		rows = BLOCK_ROWS;
	if (sweep.threads > 1 && rows > p->n / (4 * sweep.threads))
		rows = p->n / (4 * sweep.threads);
	sweep.rows = round_up(rows > 0 ? rows : 1, GK_ROW_PAD);
	work /= (int64_t) sweep.rows * d;
	if (m > work)
	{
		sweep.rounds = (int) (work < 1 ? m : (m + work - 1) / work);
		sweep.per_round = (m + sweep.rounds - 1) / sweep.rounds;
		if (sweep.per_round > 12)
			sweep.per_round = round_up(sweep.per_round, 6);
		sweep.rounds = (m + sweep.per_round - 1) / sweep.per_round;
	}
	sweep.job_work = (double) sweep.rows * d * (sweep.per_round + GK_COST_OVERHEAD);
	return sweep;
}

GkTiles
gk_cpu_tiles(const GkSession *s, const GkBlock *b)
{
	return (GkTiles) {b->chunk->data + b->row, GK_ROW_PAD, b->chunk->stride, b->tiles, s->pts->d};
}

bool
gk_cpu_assign(const GkSession *s, const GkSweep *sweep, const GkBlock *b,
			  const float *centroids, int k, GkBlockLabels *out)
{
	int			k0 = b->round * sweep->per_round;
	int			k1 = k - k0 > sweep->per_round ? k0 + sweep->per_round : k;

	out->x = gk_cpu_tiles(s, b);
	out->label = sweep->keep_labels ? s->label + b->at : b->label;
	out->d2 = sweep->keep_labels ? s->d2 + b->at : b->d2;
	s->kernels->assign(&out->x, centroids, k0, k1, out->label, out->d2);
	return k1 == k;
}

/* ---- spans of chunks ---- */

/* Jobs that all threads do in GK_COST_WINDOW_MS. */
static int64_t
window_jobs(const Span *g)
{
	double		jobs = (double) GK_COST_WINDOW_MS * g->sweep->threads *
	(double) g->s->kernels->job_work / g->sweep->job_work;

	/* the same for each thread: else some wait for the others at the end of each window */
	return (int64_t) ceil(jobs / g->sweep->threads) * g->sweep->threads;
}

static bool
fits(const Span *g, const GkChunk *c)
{
	if (g->pieces == 0)
		return true;
	return c->data != NULL && g->chunk[0].data != NULL &&
		g->pieces < SPAN_CHUNKS && g->jobs < window_jobs(g) &&
		(!g->sweep->keep_labels || g->rows + c->stride <= SPAN_ROWS);
}

/* Open chunks from `next` on. */
static GkStatus
open_span(Span *g, int next, GkError *err)
{
	const GkPoints *p = g->s->pts;

	g->pieces = 0;
	g->jobs = g->rows = 0;
	while (next < p->nchunks && fits(g, &p->chunks[next]))
	{
		int			i = g->pieces;
		bool		spilled = p->chunks[next].data == NULL;
		int			read = (g->sweep->points ? GK_READ_FEATURES : 0) | (g->sweep->mind2 ? GK_READ_MIND2 : 0);
		GkStatus	st = g->s->core->chunk_open(g->s->store, next, read, &g->chunk[i], err);

		if (st != GK_OK)
			return st;
		g->index[i] = next++;
		g->at[i] = g->rows;
		g->job[i] = g->jobs;
		g->rows += gk_cpu_chunk_slots(p, g->index[i]);
		g->jobs += (g->chunk[i].rows + g->sweep->rows - 1) / g->sweep->rows;
		g->pieces++;
		if (spilled)
			break;
	}
	return GK_OK;
}

static GkStatus
close_span(Span *g, GkStatus st, GkError *err)
{
	for (int i = 0; i < g->pieces; i++)
	{
		GkError		ignored;
		GkStatus	closed = g->s->core->chunk_close(g->s->store, g->index[i], &g->chunk[i],
													 g->sweep->dirty && st == GK_OK,
													 st == GK_OK ? err : &ignored);

		if (st == GK_OK)
			st = closed;
	}
	return st;
}

static void
run_block(void *arg, int64_t job, int thread)
{
	const Span *g = arg;
	char	   *scratch = g->s->scratch + thread * g->scratch;
	size_t		label = (size_t) g->sweep->rows * sizeof(float);
	int			i = g->pieces - 1;
	GkBlock		b;

	job += g->first;
	while (g->job[i] > job)
		i--;
	b.chunk = &g->chunk[i];
	b.row = (int) (job - g->job[i]) * g->sweep->rows;
	b.rows = b.chunk->rows - b.row;
	if (b.rows > g->sweep->rows)
		b.rows = g->sweep->rows;
	b.tiles = (b.rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
	b.at = g->at[i] + b.row;
	b.slot = g->slot + b.at;
	b.round = g->round;
	b.thread = thread;
	b.label = (int32_t *) scratch;
	b.d2 = (float *) (scratch + label);
	g->sweep->block(g->s, g->sweep->arg, &b);
}

static GkStatus
run_span(Span *g)
{
	const GkHost *host = g->host;

	for (g->round = 0; g->round < g->sweep->rounds; g->round++)
		for (g->first = 0; g->first < g->jobs;)
		{
			int64_t		jobs = window_jobs(g);

			if (jobs > g->jobs - g->first)
				jobs = g->jobs - g->first;
			if (!g->s->core->parallel_for(host, jobs, run_block, g) || g->s->halted)
				return GK_STOPPED;
			if (host->poll != NULL && host->poll(host->ctx))
				return GK_STOPPED;
			g->first += jobs;
		}
	return GK_OK;
}

static bool
one_block(const GkSession *s, const GkSweep *sweep)
{
	return s->pts->nchunks == 1 && s->pts->chunks[0].data != NULL &&
		s->pts->chunks[0].rows <= sweep->rows && sweep->rounds == 1;
}

/* A sweep over one block, without spans: thousands of small clusterings are faster. */
static GkStatus
sweep_block(GkSession *s, const GkSweep *sweep, GkError *err)
{
	const GkChunk *c = &s->pts->chunks[0];
	char	   *scratch = s->scratch;
	size_t		label = (size_t) sweep->rows * sizeof(float);
	GkBlock		b = {.chunk = c,.rows = c->rows,.tiles = (c->rows + GK_ROW_PAD - 1) / GK_ROW_PAD,
	.slot = s->pts->first_slot,.label = (int32_t *) scratch,.d2 = (float *) (scratch + label)};

	if (gk_host_stops(&s->host))
		return GK_STOPPED;
	sweep->block(s, sweep->arg, &b);
	if (gk_cpu_stopped(s) || s->halted)
		return GK_STOPPED;
	return sweep->chunk != NULL ? sweep->chunk(s, sweep->arg, c, 0, err) : GK_OK;
}

static GkStatus
sweep_spans(GkSession *s, const GkSweep *sweep, size_t scratch, GkError *err)
{
	GkHost		host = s->host;
	Span		g = {.s = s,.sweep = sweep,.host = &host,.scratch = scratch,.slot = s->pts->first_slot};
	int			next = 0;
	GkStatus	st = GK_OK;

	host.threads = sweep->threads;
	while (st == GK_OK && next < s->pts->nchunks)
	{
		st = open_span(&g, next, err);
		next += g.pieces;
		if (st == GK_OK)
			st = run_span(&g);
		for (int i = 0; st == GK_OK && sweep->chunk != NULL && i < g.pieces; i++)
			st = sweep->chunk(s, sweep->arg, &g.chunk[i], g.at[i], err);
		st = close_span(&g, st, err);
		g.slot += g.rows;
	}
	return st;
}

GkStatus
gk_cpu_sweep(GkSession *s, const GkSweep *sweep, GkError *err)
{
	size_t		scratch = sweep->points ? sweep->rows * (sizeof(int32_t) + sizeof(float)) : 0;

	s->halted = false;
	if (!gk_cpu_room(s, &s->scratch, sweep->threads, scratch))
		return gk_cpu_out_of_memory(err);
	if (sweep->keep_labels)
	{
		/* No span is larger than this, see fits(). */
		size_t		rows = s->max_stride > SPAN_ROWS ? s->max_stride : SPAN_ROWS;

		if (rows > s->all_rows)
			rows = s->all_rows;
		if (!gk_cpu_room(s, &s->label, rows, sizeof(int32_t)) ||
			!gk_cpu_room(s, &s->d2, rows, sizeof(float)))
			return gk_cpu_out_of_memory(err);
	}
	return one_block(s, sweep) ? sweep_block(s, sweep, err) : sweep_spans(s, sweep, scratch, err);
}
