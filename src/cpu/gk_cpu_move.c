/*
 * gk_cpu_move.c - go on with other rows, most of which the session has (GkBackend.move).
 *
 * What is kept for a row has the same place in any part of the store (gk_cpu_tile_room()), so nothing is done for
 * rows that stay.  Rows that go are taken from the last step's result, and rows that come count as if it had given
 * them to cluster 0, with bounds that say nothing.  So the next step is one like any other: it looks at the new rows,
 * and moves them to their clusters.  A result that is too large for a copy in each thread is forgotten.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Values of a job, a moment's work. */
#define JOB_FLOATS		(256 * 1024)

/* Rows of a chunk that come or go: a job. */
typedef struct Piece
{
	const GkChunk *chunk;
	int			row;			/* of the chunk */
	int			rows;
	int64_t		slot;
	bool		comes;
} Piece;

/* What goes. */
typedef struct Sums
{
	bool		used;
	gk_int128  *sum;			/* [k][d] */
	gk_int128  *mass;			/* [k] */
	int64_t    *count;			/* [k] */
} Sums;

typedef struct Move
{
	GkSession  *s;
	bool		known;			/* labels and result of the last step are */
	int			count;
	Piece	   *piece;			/* NULL: they are counted */
	GkHost		host;			/* with the number of threads that have sums */
	Sums	   *sums;			/* [threads] */
	char	   *region;			/* [threads][region_bytes]: their arrays */
	size_t		region_bytes;
	int			per_job;		/* clusters, where sums are added up */
} Move;

/* ---- pieces ---- */

static void
cut(Move *m, const GkChunk *chunk, int64_t slot, int row, int end, bool comes)
{
	int			most = JOB_FLOATS / m->s->pts->d / GK_ROW_PAD * GK_ROW_PAD;

	most = most < GK_ROW_PAD ? GK_ROW_PAD : most;
	for (; row < end; row += most, m->count++)
		if (m->piece != NULL)
			m->piece[m->count] = (Piece) {chunk, row, end - row < most ? end - row : most, slot + row, comes};
}

/* Of the chunk's rows, from `slot` on, those before slot `at`. */
static int
rows_before(const GkChunk *chunk, int64_t slot, int64_t at)
{
	return at <= slot ? 0 : at - slot < chunk->rows ? (int) (at - slot) : chunk->rows;
}

/* The rows of a store that are not in some tiles. */
static void
cut_others(Move *m, const GkPoints *pts, size_t first_tile, size_t end_tile, bool comes)
{
	int64_t		slot = pts->first_slot;

	for (int i = 0; i < pts->nchunks; i++)
	{
		const GkChunk *c = &pts->chunks[i];

		cut(m, c, slot, 0, rows_before(c, slot, (int64_t) first_tile * GK_ROW_PAD), comes);
		cut(m, c, slot, rows_before(c, slot, (int64_t) end_tile * GK_ROW_PAD), c->rows, comes);
		slot += gk_cpu_chunk_slots(pts, i);
	}
}

/*
 * Rows that come are those of its store that the session did not have, when it had those of `was` in some tiles; those
 * of `was` that it does not have any more go.
 */
static void
cut_all(Move *m, const GkPoints *was, size_t first_tile, size_t end_tile)
{
	const GkSession *s = m->s;

	m->count = 0;
	cut_others(m, s->pts, first_tile, end_tile, true);
	cut_others(m, was, s->first_tile, s->end_tile, false);
}

/* ---- jobs ---- */

/* The thread's sums, cleared at first use. */
static Sums *
claim(const Move *m, int thread)
{
	size_t		k = m->s->previous_k;
	Sums	   *own = &m->sums[thread];

	if (own->used)
		return own;
	own->used = true;
	own->sum = (gk_int128 *) (m->region + thread * m->region_bytes);
	own->mass = own->sum + k * m->s->pts->d;
	own->count = (int64_t *) (own->mass + k);
	memset(own->sum, 0, (char *) (own->count + k) - (char *) own->sum);
	return own;
}

/* A piece that goes. */
static void
add_up(const Move *m, const Piece *p, int thread)
{
	const GkSession *s = m->s;
	const Sums *own = claim(m, thread);
	const int32_t *label = s->previous + p->slot;
	const float *w = gk_chunk_weight(s->pts, p->chunk);
	int			d = s->pts->d;

	for (int i = 0; i < p->rows; i++)
	{
		own->mass[label[i]] += w != NULL ? gk_fixed(w[p->row + i], 0x1p40) : 1;
		own->count[label[i]]++;
	}
	for (int j = 0; j < d; j++)
	{
		const float *x = p->chunk->data + (size_t) j * p->chunk->stride + p->row;

		for (int i = 0; i < p->rows; i++)
		{
			int64_t		v = gk_fixed(x[i], s->inv[j]);

			own->sum[(size_t) label[i] * d + j] += w != NULL ? (gk_int128) v * gk_fixed(w[p->row + i], 0x1p40) : v;
		}
	}
}

/* What is kept for rows that come. */
static void
begin_rows(GkSession *s, const Piece *p)
{
	const GkCpuHamerly *h = &s->hamerly;
	size_t		tile = (size_t) p->slot / GK_ROW_PAD;
	size_t		tiles = (p->rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
	size_t		rows = tiles * GK_ROW_PAD;

	if (s->previous != NULL)
		memset(s->previous + p->slot, 0, rows * sizeof(int32_t));
	if (h->lower != NULL)
		memset(h->lower + p->slot, 0, rows * sizeof(float));
	for (size_t i = 0; h->slack != NULL && i < rows; i++)
		h->slack[p->slot + i] = -INFINITY;
	for (size_t t = tile; t < tile + tiles; t++)
	{
		if (h->tile_slack != NULL)
			h->tile_slack[t] = -INFINITY;
		if (s->dot.square != NULL)
			s->dot.square[t] = -1.0f;
		if (s->dot.int16_tile != NULL)
			s->dot.int16_tile[t] = (GkInt16Tile) {.length = -1.0f};
	}
}

static void
move_piece(void *arg, int64_t job, int thread)
{
	const Move *m = arg;
	const Piece *p = &m->piece[job];

	if (p->comes)
		begin_rows(m->s, p);
	else if (m->known)
		add_up(m, p, thread);
}

/* Take it from the last step's result, some clusters. */
static void
take(void *arg, int64_t job, int thread)
{
	const Move *m = arg;
	const GkStep *base = &m->s->base;
	size_t		d = m->s->pts->d;
	size_t		from = (size_t) job * m->per_job;
	size_t		end = (size_t) m->s->previous_k - from > (size_t) m->per_job ? from + m->per_job : (size_t) m->s->previous_k;

	(void) thread;
	for (int t = 0; t < m->host.threads; t++)
	{
		const Sums *own = &m->sums[t];

		for (size_t i = from * d; own->used && i < end * d; i++)
			base->sum[i] -= own->sum[i];
		for (size_t q = from; own->used && q < end; q++)
		{
			base->mass[q] -= own->mass[q];
			base->count[q] -= own->count[q];
		}
	}
}

/* Cluster 0 has the rows that come: what the others leave of all. */
static void
complete(const GkSession *s)
{
	const GkPoints *pts = s->pts;
	const GkStep *base = &s->base;

	memcpy(base->sum, pts->total_sum, pts->d * sizeof(gk_int128));
	base->mass[0] = pts->total_mass;
	base->count[0] = pts->n;
	for (int q = 1; q < s->previous_k; q++)
	{
		for (int j = 0; j < pts->d; j++)
			base->sum[j] -= base->sum[(size_t) q * pts->d + j];
		base->mass[0] -= base->mass[q];
		base->count[0] -= base->count[q];
	}
}

/* ---- all of it ---- */

/* Forget what the next passes make anew. */
static void
forget(GkSession *s)
{
	s->previous_k = 0;
	s->added = 0;
	s->hamerly.valid = false;
	gk_cpu_room_free(s, &s->dot.square);
	gk_cpu_int16_forget(s);
	gk_cpu_int8_end(s);
}

/* What belongs to rows besides labels and bounds, and what would not fit the limit with more rows. */
static void
shed(GkSession *s)
{
	GkCpuHamerly *h = &s->hamerly;

	if (s->previous_bits || s->base_bytes > 0)
		s->previous_k = 0;
	gk_cpu_drop_base(s);
	gk_cpu_room_free(s, &s->label_bits);
	gk_cpu_room_free(s, &s->found.label);
	gk_cpu_room_free(s, &s->found.d2);
	gk_cpu_room_free(s, &s->found.tied);
	s->found.k = 0;
	gk_cpu_room_free(s, &s->seed.marks);
	gk_cpu_elkan_forget(s);
	gk_cpu_int16_fit(s);
	gk_cpu_int8_end(s);
	if (gk_cpu_hamerly_possible(s, h->k))
		return;
	gk_cpu_room_free(s, &h->slack);
	gk_cpu_room_free(s, &h->lower);
	gk_cpu_room_free(s, &h->tile_slack);
	h->valid = false;
}

/* Room for pieces, and for the sums of as many threads as a step with private ones would have. */
static bool
make_room(Move *m)
{
	GkSession  *s = m->s;
	size_t		k = s->previous_k;
	size_t		most;

	m->region_bytes = gk_cpu_region_bytes(k * ((s->pts->d + 1) * sizeof(gk_int128) + sizeof(int64_t)));
	most = GK_COST_PRIVATE_BYTES / m->region_bytes;
	m->host = s->host;
	if ((size_t) m->host.threads > most)
		m->host.threads = most > 0 ? (int) most : 1;
	if (!gk_cpu_room(s, &m->piece, m->count, sizeof(Piece)) || !gk_cpu_room(s, &m->sums, m->host.threads, sizeof(Sums)) ||
		!gk_cpu_room(s, &m->region, m->host.threads, m->region_bytes))
		return false;
	memset(m->sums, 0, m->host.threads * sizeof(Sums));
	return true;
}

/* Begin rows that come, and bring the last step's result up to date; false: stopped. */
static bool
run(Move *m)
{
	GkSession  *s = m->s;
	int			jobs;

	m->per_job = GK_CPU_JOB_SUMS / s->pts->d + 1;
	jobs = m->known ? (s->previous_k + m->per_job - 1) / m->per_job : 0;
	for (int i = 0; m->known && i < m->count; i++)
		s->added += m->piece[i].comes ? m->piece[i].rows : 0;
	if (!s->core->parallel_for(&m->host, m->count, move_piece, m) || !s->core->parallel_for(&m->host, jobs, take, m))
		return false;
	if (m->known)
		complete(s);
	s->base_moved = m->known;
	return true;
}

GkStatus
gk_cpu_move(GkSession *s, GkStore *store, int64_t from, bool *done, GkError *err)
{
	const GkPoints *pts = store != NULL ? s->core->points(store) : s->pts;
	const GkPoints *was = s->pts;
	size_t		first = s->first_tile;
	size_t		end = s->end_tile;
	Move		m = {.s = s,.known = s->previous_k > 0 && !s->previous_bits && s->base_bytes == 0};
	bool		stopped = false;

	(void) err;
	*done = was->resident && pts->resident && (store == NULL || (from < was->n && from + pts->n > 0));
	if (!*done || store == NULL)
		return GK_OK;
	*done = gk_cpu_set_rows(s, store);
	if (!*done)
		return GK_OK;
	shed(s);
	cut_all(&m, was, first, end);
	if (make_room(&m))
	{
		cut_all(&m, was, first, end);
		stopped = !run(&m);
	}
	gk_cpu_drop_tiles(s, first, end);
	/* without memory it goes on as before the first step */
	if (m.region == NULL || stopped)
		forget(s);
	gk_cpu_room_free(s, &m.piece);
	gk_cpu_room_free(s, &m.sums);
	gk_cpu_room_free(s, &m.region);
	return stopped ? GK_STOPPED : GK_OK;
}
