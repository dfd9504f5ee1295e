/*
 * gk_cpu_seed.c - seeding passes over D, the squared distance to the nearest seed.
 *
 * A round of greedy k-means++ is a race, an evaluation of its candidates and an
 * update with the best of them.  Two passes over the points do all three:
 *  - A candidate's potential is that of D less what the rows closer to it lose, soon
 *    a small share of all: only their distances are summed up.  The sums are exact,
 *    so the difference is, too.
 *  - The update with a candidate that was just evaluated is put off, since its
 *    potential is known: the next pass, as a rule the race, does it on the way, and only
 *    in tiles with rows closer to it.  The evaluation has marked them.
 * Reading wide points takes longer than comparing them with few candidates, so the distances
 * to all candidates are kept, and that update reads no points.  Narrow ones are as quickly
 * compared again.
 *
 * The candidates of k-means|| are many, and come as seeds in a few updates.  Scalar products tell
 * not only how near a row's nearest one is but which it is, too: gk_cpu_finish() need not
 * find it once more to weigh the candidates.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"

typedef struct Pass
{
	GkSweep		sweep;
	const float *c;
	int			m;
	int32_t    *nearest;		/* NULL: not to be kept */
	int			first;			/* the number of seed c */
	int64_t    *pairs;			/* rows and seeds that may have been closer */
	gk_int128  *pot;			/* [threads][m] */
	GkCandidates *improved;		/* [threads][m] */
	char	   *far;			/* [threads] regions of far_bytes */
	size_t		far_bytes;
} Pass;

/* Potentials of all threads, cleared. */
static GkStatus
pot_room(GkSession *s, Pass *p, int m, GkError *err)
{
	size_t		count = (size_t) m * p->sweep.threads;

	if (!gk_cpu_room(s, &s->sums, count, sizeof(gk_int128)))
		return gk_cpu_out_of_memory(err);
	p->pot = s->sums;
	memset(p->pot, 0, count * sizeof(gk_int128));
	return GK_OK;
}

static void
merge_pot(const Pass *p, int m, gk_int128 *out)
{
	for (int i = 0; i < m; i++)
	{
		out[i] = 0;
		for (int t = 0; t < p->sweep.threads; t++)
			out[i] += p->pot[(size_t) t * m + i];
	}
}

static gk_int128
potential(const GkSession *s, const GkBlock *b, const float *d2)
{
	const float *w = gk_chunk_weight(s->pts, b->chunk);
	int64_t		hi = 0;
	int64_t		lo = 0;

	s->kernels->sum_d2(d2, w ? w + b->row : NULL, b->rows, s->d2_scale, &hi, &lo);
	return (gk_int128) hi * ((gk_int128) 1 << 40) + lo;
}

static GkTiles
index_tiles(const GkSession *s)
{
	return (GkTiles) {s->index.x, (size_t) s->pts->d * GK_ROW_PAD, GK_ROW_PAD, s->index.tiles, s->pts->d};
}

/* Marks of the index's tiles: as many as a part of the store has, from its first one on. */
static uint16_t *
index_marks(const GkSession *s)
{
	return s->seed.marks + s->first_tile;
}

/* ---- D = min(D, distance to the nearest of m) ---- */

static void
update_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);
	float	   *d2 = b->chunk->mind2 + b->row;
	int			k0 = b->round * p->sweep.per_round;
	int			k1 = p->m - k0 > p->sweep.per_round ? k0 + p->sweep.per_round : p->m;

	s->kernels->mindist(&x, p->c, k0, k1, d2);
	if (k1 == p->m)
		p->pot[b->thread] += potential(s, b, d2);
}

/* The same with many of them: scalar products find the nearest (gk_cpu_dot.c). */
static void
update_block_dot(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);
	float	   *d2 = b->chunk->mind2 + b->row;

	gk_cpu_dot_assign(s, &x, b->slot, b->rows, b->thread, s->host.skip == GK_SKIP_OFF ? NULL : d2, b->label, b->d2);
	for (int i = 0; i < b->rows; i++)
	{
		if (b->d2[i] >= d2[i])
			continue;
		d2[i] = b->d2[i];
		if (p->nearest != NULL)
			p->nearest[b->slot + i] = p->first + b->label[i];
	}
	p->pot[b->thread] += potential(s, b, d2);
}

/* The same once D is small: products of bytes tell which seeds may be closer. */
static void
update_block_int8(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	float	   *d2 = b->chunk->mind2 + b->row;
	int32_t    *nearest = p->nearest != NULL ? p->nearest + b->slot : NULL;

	__atomic_fetch_add(p->pairs, gk_cpu_int8_nearest(s, b, p->c, p->m, p->first, d2, nearest), __ATOMIC_RELAXED);
	p->pot[b->thread] += potential(s, b, d2);
}

/* Remember the seeds that come with an update, if it tells which is the nearest of a row. */
static GkStatus
remember_seeds(GkSession *s, const float *seeds, int m, bool dot, GkError *err)
{
	GkCpuSeed  *seed = &s->seed;
	size_t		d = s->pts->d;
	float	   *was = seed->given;
	int			count = seed->given_count;

	seed->given_count = 0;
	if (!(seed->seeds == 0 ? m == 1 && gk_cpu_dot_possible(s, GK_COST_SEED_DOT) : count > 0 && dot) || !gk_cpu_remembers(s, seed->nearest))
		return GK_OK;
	if (dot && count == 1)
	{
		if (!gk_cpu_tile_room(s, &seed->nearest, GK_ROW_PAD * sizeof(int32_t)))
			return gk_cpu_out_of_memory(err);
		memset(seed->nearest + s->first_tile * GK_ROW_PAD, 0, s->all_rows * sizeof(int32_t));
	}
	seed->given = NULL;
	if (!gk_cpu_room(s, &seed->given, count + m, d * sizeof(float)))
		return gk_cpu_out_of_memory(err);
	if (count > 0)
		memcpy(seed->given, was, count * d * sizeof(float));
	memcpy(seed->given + count * d, seeds, m * d * sizeof(float));
	gk_cpu_room_free(s, &was);
	seed->given_count = count + m;
	return GK_OK;
}

const int32_t *
gk_cpu_seed_nearest(const GkSession *s, const float *centroids, int k)
{
	const GkCpuSeed *seed = &s->seed;

	return k > 1 && k == seed->given_count &&
		memcmp(seed->given, centroids, (size_t) k * s->pts->d * sizeof(float)) == 0 ? seed->nearest : NULL;
}

/* How an update compares: by distances, or products of floats or 16 bits that find the nearest, or of 8 bits. */
typedef enum By
{
	BY_DISTANCE,
	BY_DOT,
	BY_INT8
} By;

/* One sweep of an update. */
static GkStatus
update_sweep(GkSession *s, const float *centroids, int m, By by, gk_int128 *phi, GkError *err)
{
	int64_t		pairs = 0;
	Pass		p = {.sweep = gk_cpu_plan(s, m),.c = centroids,.m = m,.first = s->seed.given_count,.pairs = &pairs};
	GkStatus	st = remember_seeds(s, centroids, m, by != BY_DISTANCE, err);

	if (st == GK_OK)
		st = pot_room(s, &p, 1, err);
	p.nearest = s->seed.given_count > 1 ? s->seed.nearest : NULL;

	p.sweep.mind2 = p.sweep.dirty = true;
	p.sweep.arg = &p;
	p.sweep.block = by == BY_INT8 ? update_block_int8 : by == BY_DOT ? update_block_dot : update_block;
	if (st == GK_OK && by == BY_INT8)
		st = gk_cpu_int8_begin(s, &p.sweep, centroids, m, err);
	else if (st == GK_OK && by == BY_DOT)
		st = gk_cpu_dot_begin(s, &p.sweep, centroids, m, false, err);
	if (st == GK_OK)
		st = gk_cpu_sweep(s, &p.sweep, err);
	if (st == GK_OK && by == BY_DOT)
		gk_cpu_dot_end(s);
	if (pairs > s->pts->n * m / GK_COST_INT8_SHARE)
		gk_cpu_int8_give_up(s);
	if (st == GK_OK)
		merge_pot(&p, 1, phi);
	return st;
}

/* Centroids that are compared by scalar products at a time: fewer are not worth it. */
static int
dot_group(const GkSession *s, int m)
{
	int			group = m;

	for (; group >= GK_COST_SEED_DOT; group /= 2)
	{
		GkSweep		sweep = gk_cpu_plan(s, group);

		if (gk_cpu_dot_wanted(s, &sweep, group))
			return group;
	}
	return 0;
}

static GkStatus
update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err)
{
	int			group = dot_group(s, m);
	GkStatus	st = GK_OK;

	gk_cpu_seed_index_free(s);	/* it does not follow */
	if (group == 0)
		return update_sweep(s, centroids, m, BY_DISTANCE, phi, err);
	for (int first = 0; st == GK_OK && first < m; first += group)
	{
		int			count = m - first < group ? m - first : group;
		By			by = count < GK_COST_SEED_DOT || s->dot.useless ? BY_DISTANCE
		: s->seed.seeds + first >= GK_COST_SEED_INT8 && gk_cpu_int8_possible(s) ? BY_INT8 : BY_DOT;

		st = update_sweep(s, centroids + (size_t) first * s->pts->d, count, by, phi, err);
	}
	return st;
}

/* The bit of candidate q. */
#define MARK(q)			((q) % GK_MARKS)

/* Take the distances that the evaluation has kept. */
static void
settle_kept(const GkSession *s, const GkBlock *b, const uint16_t *mark)
{
	const float *all = s->seed.pending_all + (size_t) (b->slot / GK_ROW_PAD) * s->seed.all_stride;
	float	   *d2 = b->chunk->mind2 + b->row;

	for (int t = 0; t < b->tiles; t++, all += s->seed.all_stride, d2 += GK_ROW_PAD)
	{
		int			rows = b->rows - t * GK_ROW_PAD;

		if (!(mark[t] >> s->seed.pending_mark & 1))
			continue;
		rows = rows < GK_ROW_PAD ? rows : GK_ROW_PAD;
		for (int i = 0; i < rows; i++)
			d2[i] = all[i] < d2[i] ? all[i] : d2[i];
	}
}

void
gk_cpu_seed_settle(GkSession *s, const GkBlock *b, const float *seed)
{
	const uint16_t *mark = s->seed.marks + b->slot / GK_ROW_PAD;
	GkTiles		x = gk_cpu_tiles(s, b);
	float	   *d2 = b->chunk->mind2 + b->row;

	if (s->seed.pending_all != NULL)
	{
		settle_kept(s, b, mark);
		return;
	}
	for (int t = 0, end; t < b->tiles; t = end + 1)
	{
		for (end = t; end < b->tiles && mark[end] >> s->seed.pending_mark & 1;)
			end++;
		if (end == t)
			continue;
		x.x = b->chunk->data + b->row + t * x.tile;
		x.count = end - t;
		s->kernels->mindist(&x, seed, 0, 1, d2 + t * GK_ROW_PAD);
	}
}

GkSweep
gk_cpu_seed_settle_plan(const GkSession *s)
{
	return gk_cpu_plan(s, s->seed.pending == NULL || s->seed.pending_all != NULL ? GK_D_ONLY : 1);
}

static void
settle_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;

	gk_cpu_seed_settle(s, b, p->c);
}

/* The same in the index; write what changes there to the chunks, too. */
static void
settle_index(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	const uint16_t *mark = index_marks(s);
	GkTileRange range = gk_cpu_seed_index_range(b);
	GkTiles		x = index_tiles(s);

	x.count = 1;
	for (int t = range.first; t < range.end; t++)
	{
		float	   *d2 = s->index.d2 + (size_t) t * GK_ROW_PAD;
		float	  **home = s->index.home + (size_t) t * GK_ROW_PAD;
		float		was[GK_ROW_PAD];

		if (!(mark[t] >> s->seed.pending_mark & 1))
			continue;
		memcpy(was, d2, sizeof(was));
		x.x = s->index.x + t * x.tile;
		s->kernels->mindist(&x, p->c, 0, 1, d2);
		for (int i = 0; i < GK_ROW_PAD; i++)
			if (d2[i] < was[i])
				*home[i] = d2[i];
		gk_cpu_seed_index_update(&s->index, t);
	}
}

GkStatus
gk_cpu_seed_settled(GkSession *s, GkError *err)
{
	Pass		p = {.sweep = s->index.made ? gk_cpu_seed_index_plan(s, 1) : gk_cpu_seed_settle_plan(s),.c = s->seed.pending};

	if (p.c == NULL)
		return GK_OK;
	s->seed.pending = NULL;
	p.sweep.mind2 = p.sweep.dirty = true;
	p.sweep.arg = &p;
	p.sweep.block = s->index.made ? settle_index : settle_block;
	return gk_cpu_sweep(s, &p.sweep, err);
}

/* Which candidate of the last seed_eval() is that?  -1: none. */
static int
candidate(const GkSession *s, const float *centroid)
{
	size_t		bytes = s->pts->d * sizeof(float);

	for (int i = 0; i < s->seed.count; i++)
		if (memcmp(s->seed.points + (size_t) i * s->pts->d, centroid, bytes) == 0)
			return i;
	return -1;
}

GkStatus
gk_cpu_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err)
{
	int			known = m == 1 ? candidate(s, centroids) : -1;
	GkStatus	st = gk_cpu_seed_settled(s, err);

	s->seed.count = 0;
	if (st == GK_OK && known >= 0)
	{
		s->seed.given_count = 0;
		s->seed.pending = s->seed.points + (size_t) known * s->pts->d;
		s->seed.pending_mark = MARK(known);
		s->seed.pending_all = s->seed.kept ? s->seed.all + known * GK_ROW_PAD : NULL;
		s->seed.phi = s->seed.pot[known];
	}
	else if (st == GK_OK)
		st = update(s, centroids, m, &s->seed.phi, err);
	s->seed.seeds += m;
	s->seed.known = st == GK_OK;
	*phi = s->seed.phi;
	return st;
}

/* ---- D by a last pass ---- */

static void
found_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	float	   *d2 = b->chunk->mind2 + b->row;

	memcpy(d2, s->found.d2 + b->slot, b->rows * sizeof(float));
	p->pot[b->thread] += potential(s, b, d2);
}

GkStatus
gk_cpu_seed_finished(GkSession *s, bool *done, GkError *err)
{
	Pass		p = {.sweep = gk_cpu_plan(s, GK_D_ONLY)};
	GkStatus	st;

	*done = s->found.k > 0;
	st = *done ? pot_room(s, &p, 1, err) : GK_OK;
	if (st != GK_OK || !*done)
		return st;
	p.sweep.mind2 = p.sweep.dirty = true;
	p.sweep.arg = &p;
	p.sweep.block = found_block;
	st = gk_cpu_sweep(s, &p.sweep, err);
	if (st == GK_OK)
		merge_pot(&p, 1, &s->seed.phi);
	s->seed.seeds += s->found.k;
	s->seed.known = st == GK_OK;
	return st;
}

/* ---- the potential with each of m candidates ---- */

/* Take off the candidate's potential what the gathered rows would lose. */
static void
lower(const GkSession *s, GkCandidates *c, gk_int128 *pot)
{
	const float *w = s->pts->weighted ? c->weight : NULL;
	int64_t		was[2] = {0, 0};
	int64_t		is[2] = {0, 0};

	s->kernels->sum_d2(c->was, w, c->count, s->d2_scale, &was[0], &was[1]);
	s->kernels->sum_d2(c->is, w, c->count, s->d2_scale, &is[0], &is[1]);
	*pot -= (gk_int128) (was[0] - is[0]) * ((gk_int128) 1 << 40) + (was[1] - is[1]);
	c->count = 0;
}

/* Evaluate candidates k0 .. k1 - 1 for one tile: those closer to a row than D leave their mark. */
static void
eval_tile(GkSession *s, const Pass *p, int thread, const GkTiles *x, int tile, const float *d2,
		  const float *weight, int rows, int k0, int k1, uint16_t *mark, float *all)
{
	GkCandidates *improved = p->improved + (size_t) thread * p->m;
	gk_int128  *pot = p->pot + (size_t) thread * p->m;

	for (int k = k0; k < k1; k += GK_MAX_CANDIDATES)
	{
		unsigned	found = s->kernels->candidates(x, tile, p->c + (size_t) k * x->d,
												   k1 - k < GK_MAX_CANDIDATES ? k1 - k : GK_MAX_CANDIDATES,
												   d2, weight, rows, improved + k,
												   all != NULL ? all + k * GK_ROW_PAD : NULL) << MARK(k);

		*mark |= (uint16_t) (found | found >> GK_MARKS);
	}
	for (int k = k0; k < k1; k++)
		if (improved[k].count > GK_CANDIDATES_ROOM)
			lower(s, &improved[k], &pot[k]);
}

static void
eval_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);
	const float *d2 = b->chunk->mind2 + b->row;
	const float *w = gk_chunk_weight(s->pts, b->chunk);
	uint16_t   *mark = s->seed.marks + b->slot / GK_ROW_PAD;
	int			k0 = b->round * p->sweep.per_round;
	int			k1 = p->m - k0 > p->sweep.per_round ? k0 + p->sweep.per_round : p->m;

	for (int t = 0; t < b->tiles; t++)
	{
		int			at = t * GK_ROW_PAD;
		int			rows = b->rows - at < GK_ROW_PAD ? b->rows - at : GK_ROW_PAD;

		if (k0 == 0)
			mark[t] = 0;
		eval_tile(s, p, b->thread, &x, t, d2 + at, w ? w + b->row + at : NULL, rows, k0, k1, &mark[t],
				  s->seed.kept ? s->seed.all + (size_t) (b->slot / GK_ROW_PAD + t) * s->seed.all_stride : NULL);
	}
}

/* Evaluate the candidates in `open` for tile t of the index. */
static void
eval_open(GkSession *s, const Pass *p, int thread, int t, uint32_t open)
{
	GkTiles		x = index_tiles(s);
	size_t		at = (size_t) t * GK_ROW_PAD;
	const float *w = s->pts->weighted ? s->index.weight + at : NULL;
	uint16_t   *mark = index_marks(s) + t;

	for (int k1; open != 0; open &= ~((UINT32_C(1) << k1) - 1))
	{
		int			k0 = __builtin_ctz(open);

		k1 = k0 + __builtin_ctz(~(open >> k0));
		/* D of rows past the last one is 0: nothing is closer */
		eval_tile(s, p, thread, &x, t, s->index.d2 + at, w, GK_ROW_PAD, k0, k1, mark, NULL);
	}
}

static void
eval_index(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	const GkCpuSeedIndex *index = &s->index;
	GkTileRange range = gk_cpu_seed_index_range(b);
	int			d = s->pts->d;

	for (int from = range.first; from < range.end; from += GK_ROW_PAD)
	{
		int			tiles = range.end - from < GK_ROW_PAD ? range.end - from : GK_ROW_PAD;
		const float *low = index->box + from;
		uint64_t	open[GK_MARKS];
		uint64_t	any = 0;

		for (int k = 0; k < p->m; k++)
		{
			open[k] = s->kernels->open_boxes(low, low + d * index->stride, index->stride, p->c + (size_t) k * d, d,
											 index->max_d2 + from);
			any |= open[k];
		}
		memset(index_marks(s) + from, 0, tiles * sizeof(uint16_t));
		if (tiles < GK_ROW_PAD)
			any &= (UINT64_C(1) << tiles) - 1;
		for (; any != 0; any &= any - 1)
		{
			int			t = __builtin_ctzll(any);
			uint32_t	open_to = 0;

			for (int k = 0; k < p->m; k++)
				open_to |= (uint32_t) (open[k] >> t & 1) << k;
			eval_open(s, p, b->thread, from + t, open_to);
		}
	}
}

/* Keep the candidates and their potentials: one of them is the next seed. */
static GkStatus
remember(GkSession *s, const float *centroids, int m, const gk_int128 *pot, GkError *err)
{
	size_t		bytes = (size_t) m * s->pts->d * sizeof(float);

	if (!gk_cpu_room(s, &s->seed.points, bytes, 1) ||
		!gk_cpu_room(s, &s->seed.pot, m, sizeof(gk_int128)))
		return gk_cpu_out_of_memory(err);
	memcpy(s->seed.points, centroids, bytes);
	memcpy(s->seed.pot, pot, m * sizeof(gk_int128));
	s->seed.count = m;
	return GK_OK;
}

/* Keep the distances of all points to m candidates, if the points are wide enough and there is memory for that. */
static GkStatus
keep_distances(GkSession *s, int m, GkError *err)
{
	size_t		each = (size_t) m * GK_ROW_PAD;
	size_t		tiles = s->all_rows / GK_ROW_PAD;

	s->seed.all_stride = (int) each;
	s->seed.kept = !s->index.made && m <= s->pts->d / GK_COST_SEED_KEEP_D &&
		tiles * each * sizeof(float) <= gk_cpu_spare(s);
	if (s->seed.kept && !gk_cpu_tile_room(s, &s->seed.all, each * sizeof(float)))
		return gk_cpu_out_of_memory(err);
	return GK_OK;
}

GkStatus
gk_cpu_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err)
{
	Pass		p = {.c = centroids,.m = m};
	size_t		count;
	GkStatus	st = gk_cpu_seed_settled(s, err);

	if (st == GK_OK && !s->seed.known)
		st = update(s, centroids, 0, &s->seed.phi, err);
	if (st == GK_OK)
		st = gk_cpu_seed_index_consider(s, centroids, m, err);
	p.sweep = s->index.made ? gk_cpu_seed_index_plan(s, m) : gk_cpu_plan(s, m);
	count = (size_t) m * p.sweep.threads;
	if (st == GK_OK)
		st = pot_room(s, &p, m, err);
	if (st != GK_OK)
		return st;
	s->seed.known = true;
	if (!gk_cpu_room(s, &s->seed.improved, count, sizeof(GkCandidates)) ||
		!gk_cpu_tile_room(s, &s->seed.marks, sizeof(uint16_t)))
		return gk_cpu_out_of_memory(err);
	if ((st = keep_distances(s, m, err)) != GK_OK)
		return st;
	p.improved = s->seed.improved;
	for (size_t i = 0; i < count; i++)
		p.improved[i].count = 0;
	p.sweep.mind2 = true;
	p.sweep.arg = &p;
	p.sweep.block = s->index.made ? eval_index : eval_block;
	st = gk_cpu_sweep(s, &p.sweep, err);
	if (st != GK_OK)
		return st;
	for (size_t i = 0; i < count; i++)
		lower(s, &p.improved[i], &p.pot[i]);
	merge_pot(&p, m, pot);
	for (int i = 0; i < m; i++)
		pot[i] += s->seed.phi;
	return remember(s, centroids, m, pot, err);
}

/* ---- the farthest point ---- */

/* A thread's best so far, with its coordinates: the chunk may be gone later. */
typedef struct Far
{
	float		d2;
	int64_t		row;			/* -1: none */
	float		x[];
} Far;

/* A missing feature has the mean, as in gk_store_row(). */
static inline float
present(float v)
{
	return gk_is_missing(v) ? 0.0f : v;
}

/* Is that row farther than the thread's best, ties to the smaller coordinates, then to the lower row? */
static bool
farther(const Far *best, float d2, int64_t row, const float *x, size_t stride, int d)
{
	if (best->row < 0 || d2 != best->d2)
		return d2 > best->d2;
	for (int j = 0; j < d; j++)
		if (present(x[j * stride]) != present(best->x[j]))
			return present(x[j * stride]) < present(best->x[j]);
	return row < best->row;
}

static void
far_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	Far		   *best = (Far *) (p->far + b->thread * p->far_bytes);
	int			d = s->pts->d;
	float		top = 0.0f;

	/* Enough for most blocks; the rest looks at coordinates. */
	for (int i = b->row; i < b->row + b->rows; i++)
		top = b->chunk->mind2[i] > top ? b->chunk->mind2[i] : top;
	if (top == 0.0f || top < best->d2)
		return;
	for (int i = b->row; i < b->row + b->rows; i++)
	{
		const float *x = b->chunk->data + i;
		int64_t		row = b->chunk->first + i;

		if (b->chunk->mind2[i] != top || !farther(best, top, row, x, b->chunk->stride, d))
			continue;
		best->d2 = top;
		best->row = row;
		for (int j = 0; j < d; j++)
			best->x[j] = x[(size_t) j * b->chunk->stride];
	}
}

GkStatus
gk_cpu_seed_far(GkSession *s, int64_t *row, GkError *err)
{
	Pass		p = {.sweep = gk_cpu_plan(s, GK_D_ONLY)};
	const Far  *best;
	GkStatus	st = gk_cpu_seed_settled(s, err);

	if (st != GK_OK)
		return st;
	p.far_bytes = gk_cpu_region_bytes(sizeof(Far) + s->pts->d * sizeof(float));
	if (!gk_cpu_room(s, &s->sums, p.sweep.threads, p.far_bytes))
		return gk_cpu_out_of_memory(err);
	p.far = s->sums;
	for (int t = 0; t < p.sweep.threads; t++)
		*(Far *) (p.far + t * p.far_bytes) = (Far) {.d2 = 0.0f,.row = -1};
	/* among rows as far, the features decide */
	p.sweep.mind2 = p.sweep.points = true;
	p.sweep.arg = &p;
	p.sweep.block = far_block;
	st = gk_cpu_sweep(s, &p.sweep, err);
	if (st != GK_OK)
		return st;
	best = (const Far *) p.far;
	for (int t = 1; t < p.sweep.threads; t++)
	{
		const Far  *other = (const Far *) (p.far + t * p.far_bytes);

		if (other->row >= 0 && farther(best, other->d2, other->row, other->x, 1, s->pts->d))
			best = other;
	}
	*row = best->row;
	return GK_OK;
}
