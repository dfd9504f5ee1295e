/*
 * gk_cpu_seed_index.c - a copy of the points for seeding, neighbours in one tile.
 *
 * A new seed matters to the points around it, and a candidate's potential needs the
 * distances to no others.  In the copy they are together: rows are sent down a k-d tree
 * (Bentley, "Multidimensional binary search trees used for associative searching", 1975)
 * made of a sample, and each tile of GK_ROW_PAD rows keeps its box, the least and the
 * largest value of each feature, and the largest D of its rows.  Where the point of the
 * box that is nearest to a candidate is no closer to it than that D, no row of the tile is:
 * the tile is not looked at (reach() of gk_cpu_kernels.h).
 *
 * Why this needs no margin for roundings.  The distance to that point is the canonical
 * chain, too: t_j is the rounded low_j - c_j, high_j - c_j or 0, no larger in magnitude
 * than the rounded x_j - c_j of a row of the box, because rounding keeps the order of
 * numbers; for the same reason fmaf(t_j, t_j, s) is no larger when t_j and s are not.
 *
 * The copy takes more memory than the points and as much time as some dozen rounds.  It
 * is made when a sample says that the rounds to come will save more.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_seed_index.h"

/* Auto: fewer points are no work, fewer seeds do not tell. */
#define MIN_ROWS		16384
#define MIN_SEEDS		8
/* With such a share of tiles to look at, that will not change soon. */
#define HOPELESS		0.9
/* Features, at most: a row's are moved one by one. */
#define MOST_D			256

typedef struct Make
{
	GkSweep		sweep;
	GkTree		tree;
	uint32_t   *place;			/* [all_rows], by slots: leaf, then row of the copy */
	uint32_t   *count;			/* [threads][leaves] */
	float	   *scratch;		/* [threads][d * GK_ROW_PAD] */
} Make;

/* ---- the copy ---- */

static void
find_leaves(GkSession *s, void *arg, const GkBlock *b)
{
	const Make *m = arg;
	const GkChunk *c = b->chunk;
	uint32_t   *place = m->place + b->slot;
	uint32_t   *count = m->count + ((size_t) b->thread << m->tree.levels);

	(void) s;
	for (int first = 0; first < b->tiles * GK_ROW_PAD; first += GK_ROW_PAD)
	{
		const float *x = c->data + b->row + first;
		uint32_t	node[GK_ROW_PAD] = {0};

		for (int level = 0; level < m->tree.levels; level++)
			for (int i = 0; i < GK_ROW_PAD; i++)
			{
				GkSplit		split = m->tree.split[node[i]];

				node[i] = 2 * node[i] + 1 + (x[(size_t) split.feature * c->stride + i] > split.at);
			}
		for (int i = 0; i < GK_ROW_PAD && first + i < b->rows; i++)
		{
			place[first + i] = node[i] + 1 - (1u << m->tree.levels);
			count[place[first + i]]++;
		}
	}
}

/* From leaves to rows of the copy, in the points' order within a leaf. */
static GkStatus
find_places(const GkSession *s, const Make *m)
{
	uint32_t   *next = m->count;
	uint32_t   *place = m->place;
	uint32_t	before = 0;

	for (int leaf = 0; leaf < 1 << m->tree.levels; leaf++)
	{
		uint32_t	count = 0;

		for (int t = 0; t < m->sweep.threads; t++)
			count += m->count[((size_t) t << m->tree.levels) + leaf];
		next[leaf] = before;
		before += count;
	}
	for (int i = 0; i < s->pts->nchunks; place += s->pts->chunks[i++].stride)
	{
		if (s->host.stop != NULL && s->host.stop(s->host.ctx))
			return GK_STOPPED;
		for (int row = 0; row < s->pts->chunks[i].rows; row++)
			place[row] = next[place[row]]++;
	}
	return GK_OK;
}

/* Features of a row one after the other: a line of the cache is written as a whole. */
static void
copy_rows(GkSession *s, void *arg, const GkBlock *b)
{
	const Make *m = arg;
	GkCpuSeedIndex  *near = &s->near;
	const float *w = gk_chunk_weight(s->pts, b->chunk);
	int			d = s->pts->d;

	for (int i = b->row; i < b->row + b->rows; i++)
	{
		size_t		at = m->place[b->slot + i - b->row];
		float	   *to = (float *) near->x.p + at * d;

		for (int j = 0; j < d; j++)
			to[j] = b->chunk->data[(size_t) j * b->chunk->stride + i];
		if (w != NULL)
			((float *) near->weight.p)[at] = w[i];
		((float *) near->d2.p)[at] = b->chunk->mind2[i];
		((float **) near->home.p)[at] = b->chunk->mind2 + i;
	}
}

/* Rows into columns, with the box around them. */
static void
turn_tile(GkCpuSeedIndex *near, int d, int tile, int rows, float *scratch)
{
	float	   *x = (float *) near->x.p + (size_t) tile * d * GK_ROW_PAD;
	float	   *box = (float *) near->box.p + tile;

	memcpy(scratch, x, (size_t) rows * d * sizeof(float));
	for (int j = 0; j < d; j++, x += GK_ROW_PAD, box += near->stride)
	{
		float		low = INFINITY;
		float		high = -INFINITY;

		for (int i = 0; i < rows; i++)
		{
			float		v = scratch[(size_t) i * d + j];

			x[i] = v;
			low = v < low ? v : low;
			high = v > high ? v : high;
		}
		for (int i = rows; i < GK_ROW_PAD; i++)
			x[i] = 0.0f;
		box[0] = low;
		box[d * near->stride] = high;
	}
}

static void
turn_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Make *m = arg;
	GkCpuSeedIndex  *near = &s->near;
	GkShare		share = gk_cpu_seed_index_share(b);
	int			d = s->pts->d;

	for (int t = share.first; t < share.end; t++)
	{
		int64_t		left = s->pts->n - (int64_t) t * GK_ROW_PAD;
		int			rows = left < GK_ROW_PAD ? (int) left : GK_ROW_PAD;
		float	   *d2 = (float *) near->d2.p + (size_t) t * GK_ROW_PAD;

		turn_tile(near, d, t, rows, m->scratch + (size_t) b->thread * d * GK_ROW_PAD);
		/* never changes */
		for (int i = rows; i < GK_ROW_PAD; i++)
			d2[i] = 0.0f;
		gk_cpu_seed_index_most(near, t);
	}
}

void
gk_cpu_seed_index_most(GkCpuSeedIndex *near, int tile)
{
	const float *d2 = (float *) near->d2.p + (size_t) tile * GK_ROW_PAD;
	float		most = 0.0f;

	for (int i = 0; i < GK_ROW_PAD; i++)
		most = d2[i] > most ? d2[i] : most;
	((float *) near->most.p)[tile] = most;
}

/* Blocks of whole groups of boxes. */
#define BLOCK_ROWS		(GK_ROW_PAD * GK_ROW_PAD)

GkSweep
gk_cpu_seed_index_plan(const GkSession *s, int m)
{
	GkSweep		sweep = gk_cpu_plan(s, m);

	sweep.job_work *= (double) BLOCK_ROWS / sweep.rows;
	sweep.rows = BLOCK_ROWS;
	sweep.rounds = 1;
	sweep.per_round = m;
	sweep.mind2 = true;
	return sweep;
}

static GkStatus
fill(GkSession *s, Make *m, GkError *err)
{
	GkStatus	st;

	memset(m->count, 0, ((size_t) m->sweep.threads << m->tree.levels) * sizeof(uint32_t));
	m->sweep.arg = m;
	m->sweep.block = find_leaves;
	st = gk_cpu_sweep(s, &m->sweep, err);
	if (st == GK_OK)
		st = find_places(s, m);
	m->sweep.block = copy_rows;
	if (st == GK_OK)
		st = gk_cpu_sweep(s, &m->sweep, err);
	m->sweep.block = turn_block;
	return st == GK_OK ? gk_cpu_sweep(s, &m->sweep, err) : st;
}

static bool
rooms(GkSession *s)
{
	GkCpuSeedIndex  *near = &s->near;
	int			d = s->pts->d;
	size_t		rows;

	near->tiles = (int) ((s->pts->n + GK_ROW_PAD - 1) / GK_ROW_PAD);
	rows = (size_t) near->tiles * GK_ROW_PAD;
	near->stride = (near->tiles / GK_ROW_PAD + 2) * GK_ROW_PAD;
	return gk_cpu_room(s, &near->x, rows, d * sizeof(float)) &&
		gk_cpu_room(s, &near->d2, rows, sizeof(float)) &&
		(!s->pts->weighted || gk_cpu_room(s, &near->weight, rows, sizeof(float))) &&
		gk_cpu_room(s, &near->home, rows, sizeof(float *)) &&
		gk_cpu_room(s, &near->box, 2 * near->stride, d * sizeof(float)) &&
		gk_cpu_room(s, &near->most, near->stride, sizeof(float));
}

/* ---- whether ---- */

static size_t
bytes_needed(const GkSession *s)
{
	size_t		d = s->pts->d;

	return s->all_rows * ((d + (s->pts->weighted ? 4 : 3)) * sizeof(float) + sizeof(float *)) + s->all_rows / 8 * d;
}

static bool
possible(const GkSession *s, int candidates)
{
	if (s->host.skip == GK_SKIP_OFF || s->near.made || candidates > GK_MARKS || !s->pts->resident)
		return false;
	if (s->pts->d > MOST_D || s->pts->n >= UINT32_MAX || bytes_needed(s) > s->pts->spare)
		return false;
	return s->host.skip == GK_SKIP_ON ||
		(s->pts->n >= MIN_ROWS && s->seed.seeds >= MIN_SEEDS && s->seed.seeds >= s->seed.consider);
}

/*
 * Roughly, in instructions of a row, as gk_cpu_hamerly.c judges: clocks would judge by what
 * else the machine does.  This decides about speed alone.
 */
static bool
pays(const GkSession *s, const Make *m, double share, int candidates)
{
	double		left = s->seed.most - s->seed.seeds;
	double		round = (candidates + 1) * (2.0 * m->tree.d + 4.0) / s->kernels->lanes;
	double		price = 3.0 * m->tree.levels + 10.0 * m->tree.d + 20.0;

	return s->host.skip == GK_SKIP_ON || left * (round * (1.0 - share) - 1.0) > price;
}

static GkStatus
consider(GkSession *s, const float *centroids, int candidates, GkError *err)
{
	Make		m = {.sweep = gk_cpu_seed_index_plan(s, 1),.tree = gk_kdtree_plan(s)};
	size_t		counts = (size_t) m.sweep.threads << m.tree.levels;
	size_t		scratch = (size_t) m.sweep.threads * m.tree.d * GK_ROW_PAD;
	GkRoom		place = {0};
	GkStatus	st = GK_OK;
	double		share;

	if (!pays(s, &m, 0.0, candidates) || !gk_kdtree_make(s, &m.tree))
		return GK_OK;
	share = gk_kdtree_open(&m.tree, centroids, candidates);
	s->seed.consider = s->seed.seeds * (share > HOPELESS ? 4 : 2);
	if (pays(s, &m, share, candidates) && rooms(s) &&
		gk_cpu_room(s, &place, s->all_rows, sizeof(uint32_t)) &&
		gk_cpu_room(s, &s->sums, counts + scratch, sizeof(float)))
	{
		m.place = place.p;
		m.count = s->sums.p;
		m.scratch = (float *) (m.count + counts);
		st = fill(s, &m, err);
		s->near.made = st == GK_OK;
	}
	s->core->free(&s->host, place.p);
	s->core->free(&s->host, m.tree.work.p);
	if (!s->near.made)
		gk_cpu_seed_index_free(s, &s->host);
	return st;
}

GkStatus
gk_cpu_seed_index_consider(GkSession *s, const float *centroids, int candidates, GkError *err)
{
	if (candidates > GK_MARKS)
		gk_cpu_seed_index_free(s, &s->host);
	return possible(s, candidates) ? consider(s, centroids, candidates, err) : GK_OK;
}

void
gk_cpu_seed_index_free(GkSession *s, const GkHost *host)
{
	GkCpuSeedIndex  *near = &s->near;
	GkRoom	   *rooms[] = {&near->x, &near->d2, &near->weight, &near->home, &near->box, &near->most};

	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
		s->core->free(host, rooms[i]->p);
	memset(near, 0, sizeof(*near));
}
