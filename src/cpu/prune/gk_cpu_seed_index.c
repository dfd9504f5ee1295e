/*
 * gk_cpu_seed_index.c - a copy of the points for seeding, the index, with neighbours in one tile.
 *
 * A new seed matters to the points around it, and a candidate's potential needs the
 * distances to no others.  In the index they are together: rows are sent down a k-d tree
 * (Bentley, "Multidimensional binary search trees used for associative searching", 1975)
 * made of a sample, and each tile of GK_ROW_PAD rows keeps its box, the least and the
 * largest value of each feature, and the largest D of its rows.  Where the point of the
 * box that is nearest to a candidate is no closer to it than that D, no row of the tile is:
 * the tile is not looked at (open_boxes() of gk_cpu_kernels.h).
 *
 * Why this needs no margin for roundings.  The distance to that point is the canonical
 * chain, too: t_j is the rounded low_j - c_j, high_j - c_j or 0, no larger in magnitude
 * than the rounded x_j - c_j of a row of the box, because rounding keeps the order of
 * numbers; for the same reason fmaf(t_j, t_j, s) is no larger when t_j and s are not.
 *
 * The index takes more memory than the points and as much time as some dozen rounds.  It
 * is made when a sample says that the rounds to come will save more.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"


typedef struct Make
{
	GkSweep		sweep;
	GkTree		tree;
	uint32_t   *place;			/* [slots]: leaf, then row of the index */
	uint32_t   *count;			/* [threads][leaves] */
	float	   *scratch;		/* [threads][d * GK_ROW_PAD] */
} Make;

/* ---- the index ---- */

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

/* From leaves to rows of the index, in the points' order within a leaf. */
static GkStatus
find_places(const GkSession *s, const Make *m)
{
	uint32_t   *next = m->count;
	uint32_t   *place = m->place + s->pts->first_slot;
	uint32_t	before = 0;

	for (int leaf = 0; leaf < 1 << m->tree.levels; leaf++)
	{
		uint32_t	count = 0;

		for (int t = 0; t < m->sweep.threads; t++)
			count += m->count[((size_t) t << m->tree.levels) + leaf];
		next[leaf] = before;
		before += count;
	}
	for (int i = 0; i < s->pts->nchunks; place += gk_cpu_chunk_slots(s->pts, i++))
	{
		if (gk_host_stops(&s->host))
			return GK_STOPPED;
		for (int row = 0; row < s->pts->chunks[i].rows; row++)
			place[row] = next[place[row]]++;
	}
	return GK_OK;
}

/* Copy a row's features one after the other: a cache line is written as a whole. */
static void
copy_rows(GkSession *s, void *arg, const GkBlock *b)
{
	const Make *m = arg;
	GkCpuSeedIndex *index = &s->index;
	const float *w = gk_chunk_weight(s->pts, b->chunk);
	int			d = s->pts->d;

	for (int i = b->row; i < b->row + b->rows; i++)
	{
		size_t		at = m->place[b->slot + i - b->row];
		float	   *to = index->x + at * d;

		for (int j = 0; j < d; j++)
			to[j] = b->chunk->data[(size_t) j * b->chunk->stride + i];
		if (w != NULL)
			index->weight[at] = w[i];
		index->d2[at] = b->chunk->mind2[i];
		index->home[at] = b->chunk->mind2 + i;
	}
}

/* Turn rows into columns, and find the box around them. */
static void
transpose_tile(GkCpuSeedIndex *index, int d, int tile, int rows, float *scratch)
{
	float	   *x = index->x + (size_t) tile * d * GK_ROW_PAD;
	float	   *box = index->box + tile;

	memcpy(scratch, x, (size_t) rows * d * sizeof(float));
	for (int j = 0; j < d; j++, x += GK_ROW_PAD, box += index->stride)
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
		box[d * index->stride] = high;
	}
}

static void
transpose_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Make *m = arg;
	GkCpuSeedIndex *index = &s->index;
	GkTileRange range = gk_cpu_seed_index_range(b);
	int			d = s->pts->d;

	for (int t = range.first; t < range.end; t++)
	{
		int64_t		left = s->pts->n - (int64_t) t * GK_ROW_PAD;
		int			rows = left < GK_ROW_PAD ? (int) left : GK_ROW_PAD;
		float	   *d2 = index->d2 + (size_t) t * GK_ROW_PAD;

		transpose_tile(index, d, t, rows, m->scratch + (size_t) b->thread * d * GK_ROW_PAD);
		/* never changes */
		for (int i = rows; i < GK_ROW_PAD; i++)
			d2[i] = 0.0f;
		gk_cpu_seed_index_update(index, t);
	}
}

void
gk_cpu_seed_index_update(GkCpuSeedIndex *index, int tile)
{
	const float *d2 = index->d2 + (size_t) tile * GK_ROW_PAD;
	float		max = 0.0f;

	for (int i = 0; i < GK_ROW_PAD; i++)
		max = d2[i] > max ? d2[i] : max;
	index->max_d2[tile] = max;
}

/* Blocks of whole vectors of boxes, for the kernel. */
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
	m->sweep.block = transpose_block;
	return st == GK_OK ? gk_cpu_sweep(s, &m->sweep, err) : st;
}

static bool
rooms(GkSession *s)
{
	GkCpuSeedIndex *index = &s->index;
	int			d = s->pts->d;
	size_t		rows;

	index->tiles = (int) ((s->pts->n + GK_ROW_PAD - 1) / GK_ROW_PAD);
	rows = (size_t) index->tiles * GK_ROW_PAD;
	index->stride = (index->tiles / GK_ROW_PAD + 2) * GK_ROW_PAD;
	return gk_cpu_room(s, &index->x, rows, d * sizeof(float)) &&
		gk_cpu_room(s, &index->d2, rows, sizeof(float)) &&
		(!s->pts->weighted || gk_cpu_room(s, &index->weight, rows, sizeof(float))) &&
		gk_cpu_room(s, &index->home, rows, sizeof(float *)) &&
		gk_cpu_room(s, &index->box, 2 * index->stride, d * sizeof(float)) &&
		gk_cpu_room(s, &index->max_d2, index->stride, sizeof(float));
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
	if (s->host.skip == GK_SKIP_OFF || s->index.made || candidates > GK_MARKS || !s->pts->resident)
		return false;
	if (s->pts->d > GK_COST_INDEX_MAX_D || s->pts->n >= UINT32_MAX || bytes_needed(s) > gk_cpu_spare(s))
		return false;
	return s->host.skip == GK_SKIP_ON ||
		(s->pts->n >= GK_COST_INDEX_MIN_ROWS && s->seed.seeds >= GK_COST_INDEX_MIN_SEEDS && s->seed.seeds >= s->seed.consider);
}

static bool
pays(const GkSession *s, const Make *m, double share, int candidates)
{
	double		rounds = s->seed.wanted - s->seed.seeds;
	double		round = (candidates + 1) * GK_COST_DISTANCE(m->tree.d) / s->kernels->lanes;

	return s->host.skip == GK_SKIP_ON ||
		rounds * (round * (1.0 - share) - GK_COST_INDEX_BOX) > GK_COST_INDEX(m->tree.levels, m->tree.d);
}

static GkStatus
consider(GkSession *s, const float *centroids, int candidates, GkError *err)
{
	Make		m = {.sweep = gk_cpu_seed_index_plan(s, 1),.tree = gk_kdtree_plan(s)};
	size_t		counts = (size_t) m.sweep.threads << m.tree.levels;
	size_t		scratch = (size_t) m.sweep.threads * m.tree.d * GK_ROW_PAD;
	uint32_t   *place = NULL;
	GkStatus	st = GK_OK;
	double		share;

	if (!pays(s, &m, 0.0, candidates) || !gk_kdtree_make(s, &m.tree))
		return GK_OK;
	share = gk_kdtree_open(&m.tree, centroids, candidates);
	s->seed.consider = s->seed.seeds * (share > GK_COST_INDEX_HOPELESS ? 4 : 2);
	if (pays(s, &m, share, candidates) && rooms(s) &&
		gk_cpu_tile_room(s, &place, GK_ROW_PAD * sizeof(uint32_t)) &&
		gk_cpu_room(s, &s->sums, counts + scratch, sizeof(float)))
	{
		m.place = place;
		m.count = s->sums;
		m.scratch = (float *) (m.count + counts);
		st = fill(s, &m, err);
		s->index.made = st == GK_OK;
	}
	gk_cpu_room_free(s, &place);
	gk_cpu_room_free(s, &m.tree.x);
	if (!s->index.made)
		gk_cpu_seed_index_free(s);
	return st;
}

GkStatus
gk_cpu_seed_index_consider(GkSession *s, const float *centroids, int candidates, GkError *err)
{
	if (candidates > GK_MARKS)
		gk_cpu_seed_index_free(s);
	return possible(s, candidates) ? consider(s, centroids, candidates, err) : GK_OK;
}

void
gk_cpu_seed_index_free(GkSession *s)
{
	GkCpuSeedIndex *index = &s->index;
	void	   *arrays[] = {&index->x, &index->d2, &index->weight, &index->home, &index->box, &index->max_d2};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
		gk_cpu_room_free(s, arrays[i]);
	index->made = false;
}
