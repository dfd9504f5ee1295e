/*
 * gk_cpu_move.c - go on with other rows, most of which the session has (GkBackend.move).
 *
 * Labels and bounds of rows that stay are copied to their new places.  Rows that are new count as if the last step
 * had given them to cluster 0, with bounds that say nothing; rows that go are taken from its result.  So the next
 * step is one like any other: it looks at the new rows, and moves them to their clusters.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Rows in chunks; slots number the padded rows of all chunks. */
typedef struct Place
{
	const GkChunk *chunk;		/* NULL: not there */
	int			row;			/* of the chunk */
	int64_t		slot;
} Place;

/* Rows that were in one chunk, and are in one; or are there only before, or only now. */
typedef struct Piece
{
	Place		was;
	Place		now;
	int			rows;
} Piece;

/* What is known of each row. */
typedef struct Known
{
	int32_t    *label;			/* GkSession.previous */
	/* Of valid bounds, as GkCpuHamerly's. */
	float	   *slack;
	float	   *lower;
	float	   *tile_slack;
} Known;

typedef struct Move
{
	GkSession  *s;
	int			count;
	Piece	   *piece;
	Known		was;
	Known		now;
	char	   *sums;			/* [threads][sums_bytes]: gk_int128 [k], int64_t [k] */
	size_t		sums_bytes;
} Move;

/* ---- pieces ---- */

/* A walk over rows: the chunk at hand. */
typedef struct Walk
{
	const GkPoints *pts;
	int64_t		first;			/* number of the first row */
	int			chunk;
	int64_t		slot;			/* of the chunk */
} Walk;

/* Where row `row` is, which is not before the one asked for last; *end comes down to the next row that is elsewhere. */
static Place
find(Walk *w, int64_t row, int64_t *end)
{
	int64_t		next = w->first;
	const GkChunk *c;

	while (w->chunk < w->pts->nchunks && row - w->first >= w->pts->chunks[w->chunk].first + w->pts->chunks[w->chunk].rows)
		w->slot += w->pts->chunks[w->chunk++].stride;
	c = w->chunk < w->pts->nchunks ? &w->pts->chunks[w->chunk] : NULL;
	if (c != NULL && row >= w->first)
		next += c->first + c->rows;
	if (next > row && next < *end)
		*end = next;
	if (c == NULL || row < w->first)
		return (Place) {NULL, 0, 0};
	row -= w->first + c->first;
	return (Place) {c, (int) row, w->slot + row};
}

/* Cut all rows, old and new, to pieces of whole tiles; false: they cannot be, or there is no memory. */
static bool
cut(Move *m, const GkPoints *now, int64_t from)
{
	GkSession  *s = m->s;
	Walk		old = {.pts = s->pts};
	Walk		new = {.pts = now,.first = from};
	int64_t		last = from + now->n > s->pts->n ? from + now->n : s->pts->n;
	int64_t		end;

	if (!gk_cpu_room(s, &m->piece, s->pts->nchunks + now->nchunks + 2, sizeof(Piece)))
		return false;
	for (int64_t row = from < 0 ? from : 0; row < last; row = end)
	{
		Piece	   *p = &m->piece[m->count++];

		end = last;
		p->was = find(&old, row, &end);
		p->now = find(&new, row, &end);
		p->rows = (int) (end - row);
		if (p->was.slot % GK_ROW_PAD != 0 || p->now.slot % GK_ROW_PAD != 0)
			return false;
	}
	return true;
}

/* ---- what is known of each row ---- */

static bool
make_room(GkSession *s, const Known *was, Known *now)
{
	size_t		rows = s->all_rows;

	return gk_cpu_room(s, &now->label, rows, sizeof(int32_t)) &&
		(was->slack == NULL || gk_cpu_room(s, &now->slack, rows, sizeof(float))) &&
		(was->slack == NULL || gk_cpu_room(s, &now->tile_slack, rows / GK_ROW_PAD, sizeof(float))) &&
		(was->lower == NULL || gk_cpu_room(s, &now->lower, rows, sizeof(float)));
}

static void
free_bounds(GkSession *s, Known *k)
{
	gk_cpu_room_free(s, &k->slack);
	gk_cpu_room_free(s, &k->lower);
	gk_cpu_room_free(s, &k->tile_slack);
}

static void
free_known(GkSession *s, Known *k)
{
	gk_cpu_room_free(s, &k->label);
	free_bounds(s, k);
}

/* Fill in a piece of what is known now. */
static void
carry(void *arg, int64_t job, int thread)
{
	const Move *m = arg;
	const Piece *p = &m->piece[job];
	const Known *was = &m->was;
	const Known *now = &m->now;
	int64_t		from = p->was.slot;
	int64_t		to = p->now.slot;
	size_t		tiles = (p->rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
	size_t		rows = tiles * GK_ROW_PAD;

	(void) thread;
	if (p->now.chunk == NULL)
		return;
	if (p->was.chunk != NULL)
	{
		memcpy(now->label + to, was->label + from, rows * sizeof(int32_t));
		if (now->slack != NULL)
			memcpy(now->slack + to, was->slack + from, rows * sizeof(float));
		if (now->lower != NULL)
			memcpy(now->lower + to, was->lower + from, rows * sizeof(float));
		if (now->slack != NULL)
			memcpy(now->tile_slack + to / GK_ROW_PAD, was->tile_slack + from / GK_ROW_PAD, tiles * sizeof(float));
		return;
	}
	memset(now->label + to, 0, rows * sizeof(int32_t));
	if (now->lower != NULL)
		memset(now->lower + to, 0, rows * sizeof(float));
	if (now->slack == NULL)
		return;
	/* rows past the last one never have the least slack */
	for (size_t i = 0; i < rows; i++)
		now->slack[to + i] = i < (size_t) p->rows ? -INFINITY : INFINITY;
	for (size_t t = 0; t < tiles; t++)
		now->tile_slack[to / GK_ROW_PAD + t] = -INFINITY;
}

/* ---- the last step's result ---- */

/* Add what comes to cluster 0 and take what goes from its own, in feature j; the last job does it with counts and masses. */
static void
correct(void *arg, int64_t j, int thread)
{
	const Move *m = arg;
	const GkSession *s = m->s;
	int			d = s->pts->d;
	int			k = s->previous_k;
	gk_int128  *sum = (gk_int128 *) (m->sums + thread * m->sums_bytes);
	int64_t    *count = (int64_t *) (sum + k);

	memset(sum, 0, k * (sizeof(gk_int128) + sizeof(int64_t)));
	for (int i = 0; i < m->count; i++)
	{
		const Piece *p = &m->piece[i];
		bool		comes = p->was.chunk == NULL;
		const Place *at = comes ? &p->now : &p->was;
		const float *w;
		const float *x;

		if (p->was.chunk != NULL && p->now.chunk != NULL)
			continue;
		w = gk_chunk_weight(s->pts, at->chunk);
		x = at->chunk->data + (size_t) j * at->chunk->stride + at->row;
		for (int r = 0; r < p->rows; r++)
		{
			int			to = comes ? 0 : m->was.label[at->slot + r];
			gk_int128	v = w != NULL ? gk_fixed(w[at->row + r], 0x1p40) : 1;

			if (j < d)
				v *= gk_fixed(x[r], s->inv[j]);
			sum[to] += comes ? v : -v;
			count[to] += comes ? 1 : -1;
		}
	}
	for (int q = 0; q < k; q++)
		if (j < d)
			s->base.sum[(size_t) q * d + j] += sum[q];
		else
		{
			s->base.mass[q] += sum[q];
			s->base.count[q] += count[q];
		}
}

/* ---- all of it ---- */

/* The session's, which has none then; NULL: not known. */
static Known
take(GkSession *s)
{
	GkCpuHamerly *h = &s->hamerly;
	Known		k = {s->previous, h->slack, h->lower, h->tile_slack};

	s->previous = NULL;
	h->slack = h->lower = h->tile_slack = NULL;
	if (s->previous_k == 0 || s->previous_bits)
		gk_cpu_room_free(s, &k.label);
	if (!h->valid)
		free_bounds(s, &k);
	return k;
}

/* Give up what else belongs to rows, which passes make anew. */
static void
forget(GkSession *s)
{
	gk_cpu_room_free(s, &s->label_bits);
	gk_cpu_room_free(s, &s->dot.square);
	gk_cpu_room_free(s, &s->dot.int16_y);
	gk_cpu_room_free(s, &s->dot.int16_tile);
	s->dot.int16_bytes = 0;
	gk_cpu_room_free(s, &s->found.label);
	gk_cpu_room_free(s, &s->found.d2);
	gk_cpu_room_free(s, &s->found.tied);
	s->found.k = 0;
	gk_cpu_room_free(s, &s->seed.marks);
}

GkStatus
gk_cpu_move(GkSession *s, GkStore *store, int64_t from, bool *done, GkError *err)
{
	const GkPoints *pts = store != NULL ? s->core->points(store) : s->pts;
	Move		m = {.s = s};
	bool		known;
	bool		stopped;

	(void) err;
	*done = s->pts->resident && pts->resident && (store == NULL || (from < s->pts->n && from + pts->n > 0));
	if (!*done || store == NULL)
		return GK_OK;
	m.was = take(s);
	forget(s);
	known = m.was.label != NULL && cut(&m, pts, from);
	gk_cpu_set_rows(s, store);
	/* bounds of more rows may be too large: labels are worth something without them */
	if (m.was.slack != NULL && !gk_cpu_hamerly_possible(s, s->previous_k))
	{
		free_bounds(s, &m.was);
		s->hamerly.valid = false;
	}
	m.sums_bytes = gk_cpu_region_bytes(s->previous_k * (sizeof(gk_int128) + sizeof(int64_t)));
	known = known && make_room(s, &m.was, &m.now) && gk_cpu_room(s, &m.sums, s->host.threads, m.sums_bytes);
	stopped = known && (!s->core->parallel_for(&s->host, m.count, carry, &m) ||
						!s->core->parallel_for(&s->host, pts->d + 1, correct, &m));
	for (int i = 0; known && i < m.count; i++)
		s->added += m.piece[i].was.chunk == NULL ? m.piece[i].rows : 0;
	/* without memory: as before the first step */
	if (!known)
	{
		s->previous_k = 0;
		s->added = 0;
		free_known(s, &m.now);
	}
	s->previous = m.now.label;
	s->hamerly.slack = m.now.slack;
	s->hamerly.lower = m.now.lower;
	s->hamerly.tile_slack = m.now.tile_slack;
	s->hamerly.valid &= known;
	free_known(s, &m.was);
	gk_cpu_room_free(s, &m.piece);
	gk_cpu_room_free(s, &m.sums);
	if (stopped)
		s->previous_k = 0;
	return stopped ? GK_STOPPED : GK_OK;
}
