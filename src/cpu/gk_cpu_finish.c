/*
 * gk_cpu_finish.c - the last pass: labels, and statistics of each cluster.
 *
 * There are several in a row: clusters get other numbers, empty ones other centroids (gk_finish.c).  So where
 * scalar products tell which rows have a single nearest centroid, each row's label and distance are remembered.  In
 * the next pass a row has the new number of the same centroid, unless one that was not there before is nearer;
 * only rows with several nearest ones are compared with all, as the lowest number wins.
 *
 * The first one goes on likewise from a pass in the numbers of the last step, whose bounds and labels say most of what
 * that pass has to find.
 */
#include <math.h>
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
	bool		dot_int8;		/* ... of 8-bit integers, from the last step's labels; ... */
	bool		elkan;			/* ... or of integers, and by its bounds for every centroid; ... */
	bool		hamerly;		/* ... or by those for all centroids */
	bool		keep;			/* in s->found */
	bool		again;			/* from what is there */
	const int32_t *nearest;		/* [slots]: labels that seeding has found; NULL: none */
	bool		shared;			/* one stat, filled by the main thread; else one per thread */
	const GkLabelSink *sink;
	/* Once more. */
	int32_t    *now;			/* [k of the last pass]: the numbers of its centroids, -1: gone */
	int32_t    *number;			/* [added]: those of the others */
	float	   *point;			/* [added][d] */
	uint64_t   *tied;			/* [tiles]: rows that several of these may be nearest to */
	int			added;
	char	   *scratch;		/* [threads][scratch_bytes]: a row */
	size_t		scratch_bytes;
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

/* ---- once more ---- */

/* A centroid that was not there before is at d2 from a row.  Of several nearest ones search() finds the first. */
static void
add_centroid(const GkCpuFound *f, const Pass *p, int64_t slot, int32_t number, float d2)
{
	uint64_t	bit = UINT64_C(1) << slot % GK_ROW_PAD;
	uint64_t   *tied = &f->tied[slot / GK_ROW_PAD];

	if (d2 > f->d2[slot])
		return;
	if (d2 < f->d2[slot])
	{
		*tied = (*tied & ~bit) | (p->tied[slot / GK_ROW_PAD] & bit);
		f->label[slot] = number;
		f->d2[slot] = d2;
		return;
	}
	*tied |= bit;
}

/* All of them. */
static void
add_centroids(GkSession *s, const Pass *p, const GkBlock *b)
{
	GkTiles		x = gk_cpu_tiles(s, b);

	if (p->dot)
	{
		/* one as near matters, too */
		for (int i = 0; i < b->tiles * GK_ROW_PAD; i++)
			b->d2[i] = i < b->rows ? nextafterf(s->found.d2[b->slot + i], INFINITY) : 0.0f;
		gk_cpu_dot_assign(s, &x, b->slot, b->rows, b->thread, b->d2, b->label, b->d2);
		for (int i = 0; i < b->rows; i++)
			if (b->label[i] >= 0)
				add_centroid(&s->found, p, b->slot + i, p->number[b->label[i]], b->d2[i]);
		return;
	}
	/* one by one: they may be as near as each other */
	for (int q = 0; q < p->added; q++)
	{
		s->kernels->assign(&x, p->point + (size_t) q * x.d, 0, 1, b->label, b->d2);
		for (int i = 0; i < b->rows; i++)
			add_centroid(&s->found, p, b->slot + i, p->number[q], b->d2[i]);
	}
}

/* Compare a row with all centroids. */
static void
search(GkSession *s, const Pass *p, const GkBlock *b, int row)
{
	float	   *point = (float *) (p->scratch + b->thread * p->scratch_bytes);
	int			d = s->pts->d;

	for (int j = 0; j < d; j++)
		point[j] = b->chunk->data[(size_t) j * b->chunk->stride + b->row + row];
	s->found.label[b->slot + row] = s->kernels->nearest(point, d, p->c, p->k, &s->found.d2[b->slot + row]);
}

static void
assign_again(GkSession *s, const Pass *p, const GkBlock *b)
{
	int32_t    *label = s->found.label + b->slot;
	uint64_t   *tied = s->found.tied + b->slot / GK_ROW_PAD;

	for (int i = 0; i < b->rows; i++)
	{
		label[i] = p->now[label[i]];
		/* its centroid is gone: the next one is no nearer than that, but not known */
		if (label[i] < 0)
		{
			label[i] = 0;
			tied[i / GK_ROW_PAD] |= UINT64_C(1) << i % GK_ROW_PAD;
		}
	}
	add_centroids(s, p, b);
	for (int i = 0; i < b->rows; i++)
		if ((tied[i / GK_ROW_PAD] >> i % GK_ROW_PAD & 1) && !gk_cpu_halt(s))
			search(s, p, b, i);
}

/* Labels by a step's bounds. Where these leave a row open, several centroids may be as near. */
static void
assign_hamerly(GkSession *s, const Pass *p, const GkBlock *b, const GkBlockLabels *l)
{
	int			changes;

	(void) gk_cpu_hamerly_block(s, b, p->c, p->k, &changes);
	memcpy(l->label, s->previous + b->slot, b->rows * sizeof(int32_t));
	for (int i = 0; i < b->rows; i++)
		if (gk_cpu_hamerly_open(s, b->slot + i))
			gk_cpu_dot_tied(s, b->slot + i);
}

/* Labels and distances of a block by scalar products or bounds. */
static void
assign_all(GkSession *s, const Pass *p, const GkBlock *b, const GkBlockLabels *l)
{
	if (p->dot_int8)
		gk_cpu_int8_labels(s, b, p->c, p->k, l->label, l->d2);
	else if (p->elkan || p->hamerly)
	{
		if (p->hamerly)
			assign_hamerly(s, p, b, l);
		else if (!gk_cpu_elkan_labels(s, b, l->label))
			return;
		gk_cpu_own_distances(s, &l->x, b->rows, p->c, l->label, l->d2);
	}
	else
		gk_cpu_dot_assign(s, &l->x, b->slot, b->rows, b->thread, NULL, l->label, l->d2);
}

/* What is found is remembered; a sink, and the main thread, have a copy. */
static void
assign_and_keep(GkSession *s, const Pass *p, const GkBlock *b, GkBlockLabels *l)
{
	GkCpuFound *f = &s->found;

	*l = (GkBlockLabels) {gk_cpu_tiles(s, b), f->label + b->slot, f->d2 + b->slot};
	if (p->again)
		assign_again(s, p, b);
	else
	{
		memset(f->tied + b->slot / GK_ROW_PAD, 0, b->tiles * sizeof(uint64_t));
		assign_all(s, p, b, l);
	}
	if (!p->sweep.keep_labels)
		return;
	memcpy(s->label + b->at, l->label, b->rows * sizeof(int32_t));
	memcpy(s->d2 + b->at, l->d2, b->rows * sizeof(float));
}

/* Centroids that were not there before. */
static int
added(const int32_t *was, int k)
{
	int			n = 0;

	for (int i = 0; i < k; i++)
		n += was[i] < 0;
	return n;
}

/* Sort out those that were there, and their numbers. */
static GkStatus
sort_out(GkSession *s, Pass *p, const int32_t *was, GkError *err)
{
	size_t		d = s->pts->d;

	p->added = added(was, p->k);
	if (!gk_cpu_room(s, &p->now, s->found.k, sizeof(int32_t)) || !gk_cpu_room(s, &p->number, p->added + 1, sizeof(int32_t)) ||
		!gk_cpu_room(s, &p->point, p->added + 1, d * sizeof(float)) || !gk_cpu_tile_room(s, &p->tied, sizeof(uint64_t)))
		return gk_cpu_out_of_memory(err);
	memset(p->tied + s->first_tile, 0, (s->end_tile - s->first_tile) * sizeof(uint64_t));
	memset(p->now, 0xff, s->found.k * sizeof(int32_t));
	for (int i = 0, q = 0; i < p->k; i++)
		if (was[i] >= 0)
			p->now[was[i]] = i;
		else
		{
			memcpy(p->point + q * d, p->c + i * d, d * sizeof(float));
			p->number[q++] = i;
		}
	return GK_OK;
}

/* Is it less work to go on from what the last pass has found? */
static bool
again_pays(const GkSession *s, const Pass *p, const int32_t *was)
{
	double		rows = (double) s->pts->n;
	int			d = s->pts->d;

	if (was == NULL || s->found.k == 0 || s->host.skip == GK_SKIP_OFF)
		return false;
	return rows * gk_cpu_point_cost(s->kernels, added(was, p->k), d) + (double) s->found.ties * GK_COST_ALONE(p->k, d) <
		rows * gk_cpu_point_cost(s->kernels, p->k, d);
}

static bool
keep_pays(const GkSession *s, int k)
{
	/* bounds are there until the session ends */
	size_t		bytes = gk_cpu_found_bytes(s) + (s->hamerly.slack != NULL ? gk_cpu_hamerly_bytes(s, s->hamerly.k) : 0);

	return s->host.skip != GK_SKIP_OFF && s->pts->resident && (s->found.label != NULL || bytes <= gk_cpu_spare(s)) &&
		(double) s->pts->n * s->pts->d * k >= GK_COST_FINISH_KEEP;
}

/* ---- the pass ---- */

static void
block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkBlockLabels l;

	if (p->keep)
		assign_and_keep(s, p, b, &l);
	else if (p->dot)
	{
		l = (GkBlockLabels) {gk_cpu_tiles(s, b), p->sweep.keep_labels ? s->label + b->at : b->label,
			p->sweep.keep_labels ? s->d2 + b->at : b->d2};
		assign_all(s, p, b, &l);
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

/* Plan to go on from what the last pass has found. */
static GkStatus
begin_again(GkSession *s, Pass *p, const int32_t *was, GkError *err)
{
	double		alone = (double) s->found.ties / (double) s->pts->n * (double) p->k * s->pts->d;
	GkStatus	st = sort_out(s, p, was, err);

	if (st != GK_OK)
		return st;
	p->again = p->keep = true;
	p->sweep = gk_cpu_plan(s, p->added > 0 ? p->added : 1);
	p->scratch_bytes = gk_cpu_region_bytes(s->pts->d * sizeof(float));
	if (!gk_cpu_room(s, &p->scratch, p->sweep.threads, p->scratch_bytes))
		return gk_cpu_out_of_memory(err);
	p->dot = p->added > 0 && gk_cpu_dot_wanted(s, &p->sweep, p->added);
	if (p->dot)
		st = gk_cpu_dot_begin(s, &p->sweep, p->point, p->added, false, err);
	p->sweep.rounds = 1;
	p->sweep.per_round = p->added;
	p->sweep.job_work += p->sweep.rows * alone;
	return st;
}

static bool
found_room(GkSession *s)
{
	return gk_cpu_tile_room(s, &s->found.label, GK_ROW_PAD * sizeof(int32_t)) &&
		gk_cpu_tile_room(s, &s->found.d2, GK_ROW_PAD * sizeof(float)) && gk_cpu_tile_room(s, &s->found.tied, sizeof(uint64_t));
}

/* Or from nothing; more: the next pass may go on from what this one finds. */
static GkStatus
begin(GkSession *s, Pass *p, bool more, GkError *err)
{
	p->dot = gk_cpu_dot_wanted(s, &p->sweep, p->k);
	p->keep = p->dot && more && keep_pays(s, p->k);
	if (p->keep && !found_room(s))
		return gk_cpu_out_of_memory(err);
	return p->dot ? gk_cpu_dot_begin(s, &p->sweep, p->c, p->k, false, err) : GK_OK;
}

/* The pass is done: what it has found may be gone on from. */
static void
remember(GkSession *s, const Pass *p)
{
	s->found.k = p->k;
	s->found.ties = 0;
	for (size_t t = s->first_tile; t < s->end_tile; t++)
		s->found.ties += __builtin_popcountll(s->found.tied[t]);
}

/* Bounds for all centroids leave a row's own distance to be computed, and a few rows to be searched. */
static bool
hamerly_pays(const GkSession *s, int k)
{
	return s->hamerly.valid && s->hamerly.k == k && gk_cpu_point_cost(s->kernels, k, s->pts->d) > GK_COST_FINISH_BOUNDS * GK_COST_TIGHTEN(s->pts->d);
}

/* Has the last step left what tells most labels? */
static bool
stepped_pays(const GkSession *s, int k, const GkFinish *out)
{
	bool		bounds = (s->elkan.valid && s->elkan.k == k) || hamerly_pays(s, k);
	bool		bytes = s->int8.y != NULL;

	return out != NULL && out->was != NULL && out->stepped != NULL && s->previous_k == k && !s->previous_bits &&
		(bounds || bytes) && keep_pays(s, k);
}

/* Find labels and distances in the last step's numbers, for begin_again(); *found: false, that is not possible. */
static GkStatus
find_stepped(GkSession *s, const float *centroids, int k, const int32_t *stepped, bool *found, GkError *err)
{
	size_t		bytes = s->pts->d * sizeof(float);
	Pass		p = {.sweep = gk_cpu_plan(s, k),.k = k,.keep = true};
	char	   *c = NULL;
	GkStatus	st;

	*found = false;
	if (!found_room(s) || !gk_cpu_room(s, &c, k, bytes))
		return gk_cpu_out_of_memory(err);
	for (int i = 0; i < k; i++)
		memcpy(c + stepped[i] * bytes, centroids + (size_t) i * s->pts->d, bytes);
	p.c = (const float *) c;
	p.elkan = s->elkan.valid && gk_cpu_elkan_begin(s, &p.sweep, p.c, k, true);
	p.dot_int8 = !p.elkan && s->int8.y != NULL && gk_cpu_int8_labels_begin(s, &p.sweep, p.c, k, true);
	p.hamerly = !p.elkan && !p.dot_int8 && hamerly_pays(s, k) && gk_cpu_hamerly_begin(s, &p.sweep, p.c, k);
	if (p.elkan || p.dot_int8 || p.hamerly)
	{
		p.sweep.arg = &p;
		p.sweep.block = block;
		s->dot.tied = s->found.tied;
		st = gk_cpu_sweep(s, &p.sweep, err);
		s->dot.tied = NULL;
		if (p.elkan)
			gk_cpu_dot_end(s);
		else if (p.dot_int8)
			gk_cpu_int8_labels_end(s, k);
		else
			s->previous_k = 0;	/* what it had are this pass's labels by now */
		*found = st == GK_OK;
		if (*found)
			remember(s, &p);
	}
	else
		st = GK_OK;
	gk_cpu_room_free(s, &c);
	return st;
}

static GkStatus
run(GkSession *s, Pass *p, GkFinish *out, GkError *err)
{
	const int32_t *was = out != NULL ? out->was : NULL;
	bool		again = p->nearest == NULL && again_pays(s, p, was);
	size_t		bytes = (size_t) p->k * sizeof(Stat);
	int			copies;
	GkStatus	st = GK_OK;

	if (!again && p->nearest == NULL && stepped_pays(s, p->k, out))
	{
		was = out->stepped;
		s->found.k = 0;
		st = find_stepped(s, p->c, p->k, was, &again, err);
		if (again && !again_pays(s, p, was))
		{
			/* too many ties: not once more */
			again = false;
			s->previous_k = 0;
		}
	}
	if (st == GK_OK && again)
		st = begin_again(s, p, was, err);
	s->found.k = 0;				/* until this pass is through */
	if (st == GK_OK && !again && p->nearest == NULL)
		st = begin(s, p, out != NULL && out->was != NULL, err);
	if (st != GK_OK)
		return st;
	copies = p->shared ? 1 : p->sweep.threads;
	if (out != NULL)
	{
		if (!gk_cpu_room(s, &s->sums, copies, bytes))
			return gk_cpu_out_of_memory(err);
		p->stat = s->sums;
		memset(p->stat, 0, copies * bytes);
	}
	p->sweep.arg = p;
	p->sweep.block = p->nearest != NULL ? seeded_block : block;
	p->sweep.chunk = chunk;
	p->sweep.keep_labels = p->sweep.rounds > 1 || p->sink != NULL || p->shared;
	s->dot.tied = p->again ? p->tied : p->keep ? s->found.tied : NULL;
	st = gk_cpu_sweep(s, &p->sweep, err);
	s->dot.tied = NULL;
	if (p->dot)
		gk_cpu_dot_end(s);
	if (st == GK_OK && p->keep)
		remember(s, p);
	if (st == GK_OK && out != NULL)
		merge(p, copies, out);
	return st;
}

GkStatus
gk_cpu_finish(GkSession *s, const float *centroids, int k,
			  GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	Pass		p = {.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k,.sink = sink};
	int			threads = p.sweep.threads;
	GkStatus	st;

	p.shared = out != NULL && threads > 1 && (size_t) k * sizeof(Stat) * threads > GK_COST_FINISH_BYTES;
	p.nearest = out != NULL && sink == NULL && !p.shared ? gk_cpu_seed_nearest(s, centroids, k) : NULL;
	if (p.nearest != NULL)
	{
		p.sweep = gk_cpu_plan(s, GK_D_ONLY);
		p.sweep.mind2 = true;
	}
	st = run(s, &p, out, err);
	gk_cpu_room_free(s, &p.now);
	gk_cpu_room_free(s, &p.number);
	gk_cpu_room_free(s, &p.point);
	gk_cpu_room_free(s, &p.tied);
	gk_cpu_room_free(s, &p.scratch);
	return st;
}
