/*
 * gk_cpu_step_partitioned.c - Feature Sum by Partitioned Features (Lutz et al. 2018).
 *
 * For results too large to have a copy in every thread: a span of chunks is
 * assigned first, then each thread owns some features and adds them straight into
 * the result, so no two threads write to the same sum.  Once few rows change their
 * label only those are taken from one cluster and given to the other, in the last
 * step's result.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu_step.h"

/* Features that one job owns at most: two cache lines of results. */
#define OWN_FEATURES	(2 * GK_CACHE_LINE / (int) sizeof(gk_int128))
#define OWN_ROWS		(64 * 1024)
/* Rows that sums are fetched ahead. */
#define AHEAD			8

typedef struct Pass
{
	const GkStepPass *step;
	GkSession  *s;
	bool		moves;			/* only rows that change their label are added */
	GkStep	   *to;				/* they are added to: the step's result, or the last one's */
	bool	   *other;			/* [k]: the cluster's rows are others than in the last step; of moves */
	int64_t		changed;		/* rows with another label than in the last step */
	/* The chunk that is next. */
	int			index;
	int64_t		slot;
	/* The rows that jobs work on. */
	const GkChunk *chunk;
	const float *w;				/* NULL: all 1 */
	const int32_t *label;
	const int32_t *last;		/* the last step's; NULL: they are not remembered */
	int32_t    *row;			/* [rows]: some of them; NULL: all */
	int			first;
	int			rows;
	int			own;			/* features of a job */
} Pass;

/* ---- labels ---- */

static void
assign_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkBlockLabels l;
	int			changes;

	if (p->step->path != GK_STEP_HAMERLY)
	{
		gk_cpu_step_labels(p->step, b, &l);
		return;
	}
	/* the new ones are in s->previous at once, the last ones in s->label */
	memcpy(s->label + b->at, s->previous + b->slot, b->rows * sizeof(int32_t));
	gk_cpu_hamerly_block(s, b, p->step->c, p->step->k, &changes);
}

/* ---- sums ---- */

/* Fetch n sums of a row ahead: those of many clusters are in no cache. */
static inline void
fetch_sums(const gk_int128 *sum, int n)
{
	for (int j = 0; j < n; j += GK_CACHE_LINE / (int) sizeof(gk_int128))
		__builtin_prefetch(sum + j, 1);
}

/* Features job * own .. of the rows at hand. */
static void
own_features(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	int			d = p->step->d;
	int			j0 = (int) job * p->own;
	int			n = d - j0 < p->own ? d - j0 : p->own;
	const float *x = p->chunk->data + (size_t) j0 * p->chunk->stride;
	const double *inv = p->step->inv + j0;

	(void) thread;
	for (int r = 0; r < p->rows; r++)
	{
		int			i = p->moves ? p->row[r] : p->first + r;
		gk_int128  *to = p->to->sum + (size_t) p->label[i] * d + j0;
		gk_int128  *from = p->moves ? p->to->sum + (size_t) p->last[i] * d + j0 : NULL;
		int64_t		wi = p->w ? gk_fixed(p->w[i], 0x1p40) : 1;

		if (r + AHEAD < p->rows)
		{
			int			ahead = p->moves ? p->row[r + AHEAD] : p->first + r + AHEAD;

			fetch_sums(p->to->sum + (size_t) p->label[ahead] * d + j0, n);
			if (p->moves)
				fetch_sums(p->to->sum + (size_t) p->last[ahead] * d + j0, n);
		}
		for (int j = 0; j < n; j++)
		{
			gk_int128	v = (gk_int128) wi * gk_fixed(x[(size_t) j * p->chunk->stride + i], inv[j]);

			to[j] += v;
			if (from != NULL)
				from[j] -= v;
		}
	}
}

static bool
add_features(Pass *p)
{
	return p->s->core->parallel_for(&p->step->host, (p->step->d + p->own - 1) / p->own, own_features, p);
}

/* Add row i to a cluster `times` (1 or -1) over, but for its features. */
static void
count_row(Pass *p, int i, int k, int times)
{
	p->to->count[k] += times;
	p->to->mass[k] += times * (p->w != NULL ? gk_fixed(p->w[i], 0x1p40) : 1);
}

/* Rows first .. end - 1 of the chunk. */
static bool
add_rows(Pass *p, int first, int end)
{
	p->first = first;
	p->rows = end - first;
	for (int i = first; i < end; i++)
	{
		count_row(p, i, p->label[i], 1);
		p->changed += p->last != NULL && p->last[i] != p->label[i];
	}
	return add_features(p);
}

/* Of these rows those that change their label. */
static bool
move_rows(Pass *p, int first, int end)
{
	p->rows = 0;
	for (int i = first; i < end; i++)
	{
		if (p->label[i] == p->last[i])
			continue;
		p->row[p->rows++] = i;
		count_row(p, i, p->label[i], 1);
		count_row(p, i, p->last[i], -1);
		p->other[p->label[i]] = p->other[p->last[i]] = true;
	}
	p->changed += p->rows;
	return p->rows == 0 || add_features(p);
}

static GkStatus
own_chunk(GkSession *s, void *arg, const GkChunk *chunk, int64_t at, GkError *err)
{
	Pass	   *p = arg;
	int32_t    *kept = p->step->memory != GK_REMEMBER_NOTHING ? s->previous + p->slot : NULL;
	bool		swapped = p->step->path == GK_STEP_HAMERLY; /* see assign_block() */

	(void) err;
	p->chunk = chunk;
	p->w = gk_chunk_weight(s->pts, chunk);
	p->label = swapped ? kept : s->label + at;
	p->last = swapped ? s->label + at : kept;
	p->own = p->step->d / p->step->host.threads;
	p->own = p->own < 1 ? 1 : p->own > OWN_FEATURES ? OWN_FEATURES : p->own;
	for (int first = 0, end; first < chunk->rows; first = end)
	{
		end = chunk->rows - first < OWN_ROWS ? chunk->rows : first + OWN_ROWS;
		if (!(p->moves ? move_rows(p, first, end) : add_rows(p, first, end)))
			return GK_STOPPED;
		if (p->step->host.poll != NULL && p->step->host.poll(p->step->host.ctx))
			return GK_STOPPED;
	}
	if (kept != NULL && !swapped)
		memcpy(kept, p->label, chunk->rows * sizeof(int32_t));
	/* after the last row: valid ones, for whole vectors */
	if (kept != NULL)
		memset(kept + chunk->rows, 0, (GK_ROW_PAD - chunk->rows % GK_ROW_PAD) % GK_ROW_PAD * sizeof(int32_t));
	p->slot += gk_cpu_chunk_slots(s->pts, p->index++);
	return GK_OK;
}

/* ---- the pass ---- */

/* Clusters from `from` on, of a job. */
static int
clusters_of(const Pass *p, int64_t job, int *from)
{
	*from = (int) job * p->step->per_job;
	return p->step->k - *from > p->step->per_job ? p->step->per_job : p->step->k - *from;
}

static void
clear_clusters(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	const GkStep *to = p->to;
	size_t		d = p->step->d;
	int			from;
	int			n = clusters_of(p, job, &from);

	(void) thread;
	memset(to->sum + from * d, 0, n * d * sizeof(gk_int128));
	memset(to->mass + from, 0, n * sizeof(gk_int128));
	memset(to->count + from, 0, n * sizeof(int64_t));
}

/* The step's result is also what is remembered, or the other way round. */
static void
copy_clusters(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	const GkStep *to = p->moves ? p->step->out : &p->s->base;
	size_t		d = p->step->d;
	int			from;
	int			n = clusters_of(p, job, &from);

	(void) thread;
	for (int k = from; k < from + n; k++)
		if (!p->moves || p->other[k] || !gk_cpu_step_kept(p->step))
			memcpy(to->sum + k * d, p->to->sum + k * d, d * sizeof(gk_int128));
	memcpy(to->mass + from, p->to->mass + from, n * sizeof(gk_int128));
	memcpy(to->count + from, p->to->count + from, n * sizeof(int64_t));
	for (int k = from; p->moves && to->unchanged != NULL && !p->s->base_moved && k < from + n; k++)
		if (!p->other[k])
			to->unchanged[k] = true;
}

/* All clusters, some of them a job. */
static bool
for_clusters(Pass *p, void (*fn) (void *, int64_t, int))
{
	return p->s->core->parallel_for(&p->step->host, (p->step->k + p->step->per_job - 1) / p->step->per_job, fn, p);
}

GkStatus
gk_cpu_step_partitioned(GkStepPass *step, int64_t *changed, GkError *err)
{
	GkSession  *s = step->s;
	bool		moves = gk_cpu_step_moves(step);
	Pass		p = {.step = step,.s = s,.moves = moves,.to = moves ? &s->base : step->out,.slot = s->pts->first_slot};
	GkStatus	st = GK_OK;

	step->sweep.arg = &p;
	step->sweep.block = assign_block;
	step->sweep.chunk = own_chunk;
	step->sweep.keep_labels = true;
	if (!moves)
		st = for_clusters(&p, clear_clusters) ? GK_OK : GK_STOPPED;
	else if (gk_cpu_room(s, &p.row, OWN_ROWS, sizeof(int32_t)) && gk_cpu_room(s, &p.other, step->k, sizeof(bool)))
		memset(p.other, 0, step->k * sizeof(bool));
	else
		st = gk_cpu_out_of_memory(err);
	if (st == GK_OK)
		st = gk_cpu_sweep(s, &step->sweep, err);
	if (st == GK_OK && step->memory != GK_REMEMBER_NOTHING && !for_clusters(&p, copy_clusters))
		st = GK_STOPPED;
	gk_cpu_room_free(s, &p.row);
	gk_cpu_room_free(s, &p.other);
	*changed = p.changed;
	return st;
}
