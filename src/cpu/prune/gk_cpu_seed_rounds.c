/*
 * gk_cpu_seed_rounds.c - many rounds of greedy k-means++ in one pass over wide points.
 *
 * A round draws candidates by a race over w * D, takes the one that lowers the sum of w * D most, and
 * lowers D by it (gk_seed.c).  To compare wide points with the few candidates of a round takes less time
 * than to read them.  So a batch of rounds looks ahead, as on a GPU (gk_gpu_seed_rounds.cu):
 *
 *  1. A race for each of its rounds, by D as it is, names more rows than a round draws.
 *  2. One pass finds all pairs of a row and one of these candidates that is closer to it than D.  Products of
 *     8-bit integers tell which may be, of 16 bits where those leave too many, the canonical distance which are.  D only falls, so no round of the
 *     batch has others.
 *  3. A round draws its candidates among those of its race by the keys that D as it is by then gives them.
 *     Keys only grow, so that is the race over all rows as long as the last one drawn comes before all
 *     that were left out at 1; otherwise the batch ends before this round.
 *  4. The pairs of the round's candidates tell by how much each lowers the sum, exactly; the best one's
 *     lower D.
 *
 * Of all rows only D has to be in memory: the pass at 2 may read the others from the file.
 *
 * After r seeds a point is nearer to a new one about once in r times, so there are few pairs.  Points that
 * are not like that, or that integers cannot tell apart, make a batch crowded: it is dropped, and others wait.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Rounds of a batch, and candidates that one draws, at most. */
#define MOST_ROUNDS		64
#define MOST_WANTED		16
/* Rows that stand for a round. */
#define ASKED(want)		((want) + GK_COST_AHEAD_EXTRA)
/* Pairs for each row that a batch is to have at most, that it has room for, and that those of a tile may have. */
#define PAIRS_EXPECTED	4
#define PAIRS_ROOM		6
#define PAIRS_CROWD		32
/* Pairs that a thread takes room for at a time. */
#define RUN				256

typedef struct Pair
{
	float	   *d2;				/* the row's D */
	float		weight;
	float		is;				/* its distance to the candidate */
	int32_t		candidate;
} Pair;

_Static_assert(GK_COST_AHEAD_BYTES == PAIRS_ROOM * sizeof(Pair), "the pairs of a row");

/* Where a thread's next pairs go. */
typedef struct Run
{
	size_t		next;
	size_t		end;
} Run;

typedef struct Draw
{
	GkPick		pick;
	const float *d2;			/* the row's D */
	double		weight;
	int			candidate;
} Draw;

typedef struct Batch
{
	GkSweep		sweep;
	int			rounds;
	int			want;
	int			candidates;
	float	   *c;				/* [candidates][d] */
	Draw	   *draw;			/* [candidates], round by round */
	int			first[MOST_ROUNDS + 1]; /* of a round's */
	bool		whole[MOST_ROUNDS]; /* no row was left out */
	uint64_t   *closer;			/* [threads][closer_room] */
	size_t		closer_room;
	bool		bytes;			/* 8 bits tell which may be closer, else 16 */
	bool		crowded;
	Pair	   *pair;			/* [room]: at first run by run, then by candidates */
	size_t		room;
	size_t		taken;			/* by runs */
	char	   *run;			/* [threads] regions of one Run */
	size_t	   *begin;			/* [candidates + 2] */
} Batch;

static Run *
run_of(const Batch *a, int thread)
{
	return (Run *) (a->run + thread * gk_cpu_region_bytes(sizeof(Run)));
}

/* ---- 1: the races ---- */

/* Where a row's D is. */
static const float *
d2_of(const GkSession *s, int64_t row)
{
	const GkChunk *c = s->pts->chunks;

	while (row >= c->first + c->rows)
		c++;
	return c->mind2 + (row - c->first);
}

static GkStatus
draw_candidates(GkSession *s, Batch *a, const uint64_t *keys, GkError *err)
{
	GkPick		pick[2 * MOST_WANTED];
	int			ask = ASKED(a->want);
	size_t		d = s->pts->d;
	GkStatus	st = GK_OK;

	if (!gk_cpu_room(s, &a->c, (size_t) a->rounds * ask, d * sizeof(float)) ||
		!gk_cpu_room(s, &a->draw, (size_t) a->rounds * ask, sizeof(Draw)))
		return gk_cpu_out_of_memory(err);
	for (int r = 0; st == GK_OK && r < a->rounds; r++)
	{
		int			got;

		st = gk_cpu_seed_race(s, keys[r], true, ask, pick, &got, err);
		a->first[r] = a->candidates;
		a->whole[r] = got < ask;
		for (int i = 0; st == GK_OK && i < got; i++)
		{
			a->draw[a->candidates] = (Draw) {.pick = pick[i],.d2 = d2_of(s, pick[i].row),.candidate = a->candidates};
			st = s->core->row(s->store, pick[i].row, a->c + a->candidates++ * d, err);
		}
	}
	a->first[a->rounds] = a->candidates;
	return st;
}

/* ---- 2: the pairs ---- */

/* Take room for some more pairs. */
static bool
next_run(Batch *a, Run *own)
{
	size_t		next = __atomic_fetch_add(&a->taken, RUN, __ATOMIC_RELAXED);

	if (next + RUN > a->room)
		return false;
	*own = (Run) {.next = next,.end = next + RUN};
	return true;
}

/* One tile's pairs. */
typedef struct TilePairs
{
	Batch	   *a;
	Run		   *own;
	float	   *d2;				/* [rows of the tile] */
	const float *w;				/* likewise; NULL: all 1 */
} TilePairs;

/* Keep those that are closer. */
static void
keep_closer(void *arg, const int32_t *row, const int32_t *label, const float *is, int count)
{
	const TilePairs *t = arg;
	Run		   *own = t->own;

	for (int i = 0; i < count; i++)
	{
		float	   *d2 = t->d2 + row[i];

		if (is[i] >= *d2)
			continue;
		if (own->next == own->end && !next_run(t->a, own))
		{
			__atomic_store_n(&t->a->crowded, true, __ATOMIC_RELAXED);
			return;
		}
		t->a->pair[own->next++] = (Pair) {d2, t->w != NULL ? t->w[row[i]] : 1.0f, is[i], label[i]};
	}
}

/* Which candidates may be closer to rows of some tiles: by 16 bits. */
static const uint64_t *
closer_by_int16(GkSession *s, const Batch *a, const GkBlock *b, const GkTiles *x, int first, const float *d2, size_t *width)
{
	uint64_t   *closer = a->closer + b->thread * a->closer_room;
	char	   *scratch = s->dot.scratch + b->thread * s->dot.scratch_bytes;
	GkInt16Scratch in;

	gk_cpu_int16_scratch(s, scratch, x->d, &in);
	gk_cpu_int16_prepare(s, x, b->slot + first * GK_ROW_PAD, &in);
	s->kernels->integers->closer(x->count, x->d, &s->dot.int16, &in, d2, closer);
	*width = a->closer_room / gk_cpu_int16_tiles(s, x->d);
	return closer;
}

static void
find_pairs(GkSession *s, void *arg, const GkBlock *b)
{
	Batch	   *a = arg;
	GkTiles		x = gk_cpu_tiles(s, b);
	const float *w = gk_chunk_weight(s->pts, b->chunk);
	int			tiles = a->bytes ? gk_cpu_int8_tiles(s, a->candidates) : gk_cpu_int16_tiles(s, x.d);

	for (int first = 0; first < b->tiles; first += tiles)
	{
		GkTiles		now = x;
		int			at = b->row + first * GK_ROW_PAD;
		const uint64_t *closer;
		size_t		width;

		now.x += first * x.tile;
		now.count = b->tiles - first < tiles ? b->tiles - first : tiles;
		if (__atomic_load_n(&a->crowded, __ATOMIC_RELAXED))
			return;
		closer = a->bytes ? gk_cpu_int8_closer(s, &now, b->slot + first * GK_ROW_PAD, b->thread, b->chunk->mind2 + at, &width)
			: closer_by_int16(s, a, b, &now, first, b->chunk->mind2 + at, &width);
		for (int t = 0; t < now.count; t++, at += GK_ROW_PAD)
		{
			GkTiles		tile = now;
			TilePairs	to = {a, run_of(a, b->thread), b->chunk->mind2 + at, w != NULL ? w + at : NULL};
			int			rows = b->row + b->rows - at;

			tile.x += t * x.tile;
			if (gk_cpu_closer_count(a->candidates, closer + t * width, rows) > GK_ROW_PAD * PAIRS_CROWD)
				__atomic_store_n(&a->crowded, true, __ATOMIC_RELAXED);
			else
				(void) gk_cpu_closer_pairs(s, &tile, a->c, a->candidates, closer + t * width, rows, keep_closer, &to);
		}
	}
}

/* Put the pairs in order of their candidates, those of no candidate last. */
static GkStatus
sort_pairs(GkSession *s, Batch *a, GkError *err)
{
	size_t	   *next = NULL;	/* where a candidate's next pair goes */
	size_t		before = 0;
	bool		stop = false;

	if (!gk_cpu_room(s, &a->begin, a->candidates + 2, sizeof(size_t)) ||
		!gk_cpu_room(s, &next, a->candidates + 1, sizeof(size_t)))
		return gk_cpu_out_of_memory(err);
	/* what is left of the last runs */
	for (int t = 0; t < a->sweep.threads; t++)
		for (size_t i = run_of(a, t)->next; i < run_of(a, t)->end; i++)
			a->pair[i].candidate = a->candidates;
	memset(next, 0, (a->candidates + 1) * sizeof(size_t));
	for (size_t i = 0; i < a->taken; i++)
		next[a->pair[i].candidate]++;
	for (int q = 0; q <= a->candidates; q++)
	{
		size_t		count = next[q];

		a->begin[q] = next[q] = before;
		before += count;
	}
	a->begin[a->candidates + 1] = before;
	for (int q = 0; q <= a->candidates && !(stop = gk_cpu_stopped(s)); q++)
		while (next[q] < a->begin[q + 1])
		{
			Pair		pair = a->pair[next[q]];
			size_t		to = next[pair.candidate]++;

			if (pair.candidate == q)
				continue;
			a->pair[next[q]] = a->pair[to];
			a->pair[to] = pair;
		}
	gk_cpu_room_free(s, &next);
	return stop ? GK_STOPPED : GK_OK;
}

/* Each drawn row is among its candidate's pairs, at distance 0, where D is more: that pair has its weight. */
static void
weigh_draws(Batch *a)
{
	for (int q = 0; q < a->candidates; q++)
		for (size_t i = a->begin[q]; i < a->begin[q + 1]; i++)
			if (a->pair[i].d2 == a->draw[q].d2)
				a->draw[q].weight = (double) a->pair[i].weight;
}

static GkStatus
compare_all(GkSession *s, Batch *a, GkError *err)
{
	int			group = s->kernels->integers->group;
	int			groups = (a->candidates + group - 1) / group;
	GkStatus	st;

	a->bytes = gk_cpu_int8_possible(s);
	st = a->bytes ? gk_cpu_int8_begin(s, &a->sweep, a->c, a->candidates, err)
		: gk_cpu_dot_begin(s, &a->sweep, a->c, a->candidates, err);
	if (st != GK_OK)
		return st;
	a->closer_room = a->bytes ? 0 : (size_t) gk_cpu_int16_tiles(s, s->pts->d) * groups * group;
	a->crowded = !a->bytes && s->dot.int16.k == 0;
	a->room += RUN * (size_t) a->sweep.threads;
	if (!gk_cpu_room(s, &a->pair, a->room, sizeof(Pair)) ||
		!gk_cpu_room(s, &a->run, a->sweep.threads, gk_cpu_region_bytes(sizeof(Run))) ||
		!gk_cpu_room(s, &a->closer, a->sweep.threads * a->closer_room, sizeof(uint64_t)))
		st = gk_cpu_out_of_memory(err);
	for (int t = 0; st == GK_OK && t < a->sweep.threads; t++)
		*run_of(a, t) = (Run) {0};
	a->sweep.mind2 = true;
	a->sweep.arg = a;
	a->sweep.block = find_pairs;
	if (st == GK_OK && !a->crowded)
		st = gk_cpu_sweep(s, &a->sweep, err);
	if (!a->bytes)
		gk_cpu_dot_end(s);
	if (st == GK_OK && !a->crowded)
		st = sort_pairs(s, a, err);
	if (st == GK_OK && !a->crowded)
		weigh_draws(a);
	return st;
}

/* ---- 3 and 4: the rounds ---- */

static bool
before(const GkPick *a, const GkPick *b)
{
	return a->key < b->key || (a->key == b->key && a->row < b->row);
}

/* Draw a round's candidates, in order; -1: others may come before them. */
static int
draw_again(const Batch *a, int round, uint64_t key, Draw *out)
{
	const Draw *last = &a->draw[a->first[round + 1] - 1];
	int			count = 0;

	for (int i = a->first[round]; i < a->first[round + 1]; i++)
	{
		Draw		draw = a->draw[i];
		double		weight = draw.weight * (double) *draw.d2;
		int			at;

		if (!(weight > 0.0))
			continue;
		draw.pick.key = gk_race_key(gk_hash(key, draw.pick.row), weight);
		for (at = count; at > 0 && before(&draw.pick, &out[at - 1].pick); at--)
			out[at] = out[at - 1];
		out[at] = draw;
		count++;
	}
	count = count < a->want ? count : a->want;
	if (a->whole[round])
		return count;
	/* those that were left out come after the last one of the race */
	return count == a->want && !before(&last->pick, &out[count - 1].pick) ? count : -1;
}

/* What the sum of w * D would lose. */
static gk_int128
gain(const GkSession *s, const Batch *a, int q)
{
	gk_int128	sum = 0;

	for (size_t i = a->begin[q]; i < a->begin[q + 1]; i++)
	{
		const Pair *p = &a->pair[i];

		if (p->is < *p->d2)
			sum += gk_d2_fixed((double) p->weight * (double) *p->d2, s->d2_scale) -
				gk_d2_fixed((double) p->weight * (double) p->is, s->d2_scale);
	}
	return sum;
}

/* One round; false: the batch ends before it. */
static bool
play(GkSession *s, Batch *a, int round, uint64_t key, float *point)
{
	Draw		draw[2 * MOST_WANTED];
	int			count = draw_again(a, round, key, draw);
	int			best = 0;
	gk_int128	most = -1;
	int			q;

	if (count <= 0)
		return false;
	for (int i = 0; i < count; i++)
	{
		gk_int128	own = gain(s, a, draw[i].candidate);

		if (own > most)
		{
			most = own;
			best = i;
		}
	}
	q = draw[best].candidate;
	memcpy(point, a->c + (size_t) q * s->pts->d, s->pts->d * sizeof(float));
	for (size_t i = a->begin[q]; i < a->begin[q + 1]; i++)
		if (a->pair[i].is < *a->pair[i].d2)
			*a->pair[i].d2 = a->pair[i].is;
	s->seed.phi -= most;
	s->seed.seeds++;
	return true;
}

/* Pairs that there is room for. */
static size_t
pair_room(const GkSession *s)
{
	size_t		room = gk_cpu_spare(s) / sizeof(Pair);
	size_t		most = PAIRS_ROOM * (size_t) s->pts->n;

	return room < most ? room : most;
}

/* Rounds that a batch is worth now; 0: none. */
static int
rounds_ahead(const GkSession *s, int rounds, int want, size_t room)
{
	const GkCpuSeed *seed = &s->seed;

	/*
	 * of s + 1 seeds each is the nearest of n / (s + 1) points, on average; candidates, of ahead_share of that, as the
	 * last batch has found
	 */
	double		pairs = (double) room / (double) s->pts->n * PAIRS_EXPECTED / PAIRS_ROOM;
	int			most = seed->ahead_most < MOST_ROUNDS ? seed->ahead_most : MOST_ROUNDS;

	if (s->kernels->integers == NULL || s->host.skip == GK_SKIP_OFF || s->index.made || !s->pts->mind2_resident || want > MOST_WANTED)
		return 0;
	if (!seed->known || seed->seeds < GK_COST_AHEAD_SEEDS || seed->seeds < seed->ahead_from)
		return 0;
	most = (int) fmin(most, seed->seeds * pairs / seed->ahead_share / ASKED(want));
	rounds = rounds < most ? rounds : most;
	return gk_cpu_dot_possible(s, rounds * ASKED(want)) &&
		(gk_cpu_int8_possible(s) || gk_cpu_int16_possible(s, rounds * ASKED(want))) ? rounds : 0;
}

/* Where seeds take rows from each other, D falls faster, and a batch ends early.  And how many pairs there were. */
static void
learn(GkSession *s, const Batch *a, int done)
{
	GkCpuSeed  *seed = &s->seed;
	int			most = done < a->rounds ? done : 2 * a->rounds;
	double		expected = (double) s->pts->n * a->candidates / (seed->seeds - done + 1);

	seed->ahead_most = most > GK_COST_AHEAD_FEWEST ? most : GK_COST_AHEAD_FEWEST;
	seed->ahead_share = fmin(1.0, fmax(GK_COST_AHEAD_LEAST_SHARE, (double) a->taken / expected));
}

GkStatus
gk_cpu_seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done, GkError *err)
{
	Batch		a = {.want = want,.room = pair_room(s)};
	GkStatus	st;

	*done = 0;
	a.rounds = rounds_ahead(s, rounds, want, a.room);
	if (a.rounds == 0)
		return GK_OK;
	st = gk_cpu_seed_settled(s, err);
	s->seed.count = s->seed.given_count = 0;
	/* the distances that a round has kept: their memory is that of pairs */
	s->seed.kept = false;
	gk_cpu_room_free(s, &s->seed.all);
	if (st == GK_OK)
		st = draw_candidates(s, &a, keys, err);
	a.sweep = gk_cpu_plan(s, a.candidates);
	if (st == GK_OK && a.candidates > 0 && gk_cpu_dot_wanted(s, &a.sweep, a.candidates))
	{
		st = compare_all(s, &a, err);
		if (a.crowded && a.bytes)
			gk_cpu_int8_give_up(s);
		else if (a.crowded)
			s->seed.ahead_from = 2 * s->seed.seeds;
		while (st == GK_OK && !a.crowded && *done < a.rounds &&
			   play(s, &a, *done, keys[*done], points + (size_t) *done * s->pts->d))
		{
			*done += 1;
			if (gk_cpu_stopped(s))
				st = GK_STOPPED;
		}
		if (a.crowded)
			s->seed.ahead_share = 1.0;
		else
			learn(s, &a, *done);
	}
	gk_cpu_room_free(s, &a.c);
	gk_cpu_room_free(s, &a.draw);
	gk_cpu_room_free(s, &a.run);
	gk_cpu_room_free(s, &a.closer);
	gk_cpu_room_free(s, &a.pair);
	gk_cpu_room_free(s, &a.begin);
	return st;
}
