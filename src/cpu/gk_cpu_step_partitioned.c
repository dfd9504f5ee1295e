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

typedef struct Pass
{
	const GkStepPass *step;
	GkStep	   *to;				/* rows are added to: the step's result, or the last one's */
	bool		hamerly;		/* labels are those of s->previous at once */
	bool		moves;			/* only rows that change their label are added */
	bool		remembers;		/* labels and the result */
	bool	   *other;			/* [k]: the cluster's rows are others than in the last step; of moves */
	int64_t		changed;		/* rows with another label than in the last step */
	/* The chunk that is next. */
	int			index;
	int64_t		slot;
	/* The rows that jobs work on. */
	const GkChunk *chunk;
	const int32_t *label;
	const int32_t *last;		/* labels before; of moves */
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

/* Features job * own .. of the rows at hand. */
static void
own_features(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	int			d = p->step->s->pts->d;
	int			j0 = (int) job * p->own;
	int			n = d - j0 < p->own ? d - j0 : p->own;
	const float *x = p->chunk->data + (size_t) j0 * p->chunk->stride;
	const float *w = gk_chunk_weight(p->step->s->pts, p->chunk);
	const double *inv = p->step->s->inv + j0;

	(void) thread;
	for (int r = 0; r < p->rows; r++)
	{
		int			i = p->row != NULL ? p->row[r] : p->first + r;
		gk_int128  *to = p->to->sum + (size_t) p->label[i] * d + j0;
		gk_int128  *from = p->row != NULL ? p->to->sum + (size_t) p->last[i] * d + j0 : NULL;
		int64_t		wi = w ? gk_fixed(w[i], 0x1p40) : 1;

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
	int			d = p->step->s->pts->d;

	return p->step->s->core->parallel_for(&p->step->host, (d + p->own - 1) / p->own, own_features, p);
}

/* Add row i to a cluster `times` (1 or -1) over, but for its features. */
static void
count_row(Pass *p, const float *w, int i, int k, int times)
{
	p->to->count[k] += times;
	p->to->mass[k] += times * (w != NULL ? gk_fixed(w[i], 0x1p40) : 1);
}

/* Rows first .. end - 1 of the chunk. */
static bool
add_rows(Pass *p, int first, int end)
{
	const float *w = gk_chunk_weight(p->step->s->pts, p->chunk);

	p->first = first;
	p->rows = end - first;
	for (int i = first; i < end; i++)
		count_row(p, w, i, p->label[i], 1);
	return add_features(p);
}

/* Of these rows those that change their label. */
static bool
move_rows(Pass *p, int first, int end)
{
	const float *w = gk_chunk_weight(p->step->s->pts, p->chunk);

	p->rows = 0;
	for (int i = first; i < end; i++)
	{
		if (p->label[i] == p->last[i])
			continue;
		p->row[p->rows++] = i;
		count_row(p, w, i, p->label[i], 1);
		count_row(p, w, i, p->last[i], -1);
		p->other[p->label[i]] = p->other[p->last[i]] = true;
	}
	return p->rows == 0 || add_features(p);
}

/* The chunk's labels are those of the last step from now on. */
static void
remember(Pass *p, int32_t *now)
{
	int			rows = p->chunk->rows;

	for (int i = 0; i < rows; i++)
		p->changed += now[i] != p->label[i];
	if (!p->hamerly)
		memcpy(now, p->label, rows * sizeof(int32_t));
	/* valid ones, for whole vectors */
	memset(now + rows, 0, (GK_ROW_PAD - rows % GK_ROW_PAD) % GK_ROW_PAD * sizeof(int32_t));
}

static GkStatus
own_chunk(GkSession *s, void *arg, const GkChunk *chunk, int64_t at, GkError *err)
{
	Pass	   *p = arg;
	int			d = s->pts->d;
	int32_t    *now = p->remembers ? s->previous + p->slot : NULL;

	(void) err;
	p->chunk = chunk;
	p->label = p->hamerly ? now : s->label + at;
	p->last = p->hamerly ? s->label + at : now;
	p->own = d / p->step->host.threads;
	p->own = p->own < 1 ? 1 : p->own > OWN_FEATURES ? OWN_FEATURES : p->own;
	for (int first = 0, end; first < chunk->rows; first = end)
	{
		end = chunk->rows - first < OWN_ROWS ? chunk->rows : first + OWN_ROWS;
		if (!(p->moves ? move_rows(p, first, end) : add_rows(p, first, end)))
			return GK_STOPPED;
		if (p->step->host.poll != NULL && p->step->host.poll(p->step->host.ctx))
			return GK_STOPPED;
	}
	p->label = s->label + at;
	if (p->remembers)
		remember(p, now);
	p->slot += gk_cpu_chunk_slots(s->pts, p->index++);
	return GK_OK;
}

/* ---- the pass ---- */

static void
clear_clusters(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	int			d = p->step->s->pts->d;
	int			k0 = (int) job * p->step->per_job;
	int			n = p->step->k - k0 > p->step->per_job ? p->step->per_job : p->step->k - k0;

	(void) thread;
	memset(p->step->out->sum + (size_t) k0 * d, 0, (size_t) n * d * sizeof(gk_int128));
	memset(p->step->out->mass + k0, 0, n * sizeof(gk_int128));
	memset(p->step->out->count + k0, 0, n * sizeof(int64_t));
}

/* Bring what is remembered and what is wanted together. */
static void
copy_clusters(void *arg, int64_t job, int thread)
{
	const Pass *p = arg;
	size_t		d = p->step->s->pts->d;
	int			k0 = (int) job * p->step->per_job;
	int			n = p->step->k - k0 > p->step->per_job ? p->step->per_job : p->step->k - k0;
	const GkStep *from = p->to;
	const GkStep *to = p->moves ? p->step->out : &p->step->s->base;

	(void) thread;
	memcpy(to->sum + k0 * d, from->sum + k0 * d, n * d * sizeof(gk_int128));
	memcpy(to->mass + k0, from->mass + k0, n * sizeof(gk_int128));
	memcpy(to->count + k0, from->count + k0, n * sizeof(int64_t));
	for (int k = k0; p->moves && p->step->out->unchanged != NULL && !p->step->s->base_moved && k < k0 + n; k++)
		if (!p->other[k])
			p->step->out->unchanged[k] = true;
}

/* All clusters, some of them a job. */
static bool
for_clusters(const Pass *p, void (*job) (void *, int64_t, int))
{
	return p->step->s->core->parallel_for(&p->step->host, (p->step->k + p->step->per_job - 1) / p->step->per_job, job, (void *) p);
}

GkStatus
gk_cpu_step_partitioned(GkStepPass *step, int64_t *changed, GkError *err)
{
	GkSession  *s = step->s;
	bool		moves = gk_cpu_step_moves(step);
	Pass		p = {.step = step,.to = moves ? &s->base : step->out,.hamerly = step->path == GK_STEP_HAMERLY,.moves = moves,
	.remembers = step->memory != GK_REMEMBER_NOTHING,.slot = s->pts->first_slot};
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
	if (st == GK_OK && p.remembers && !for_clusters(&p, copy_clusters))
		st = GK_STOPPED;
	gk_cpu_room_free(s, &p.row);
	gk_cpu_room_free(s, &p.other);
	*changed = p.changed;
	return st;
}
