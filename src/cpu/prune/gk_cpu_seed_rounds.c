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
 * A row that was drawn before is not compared once more: as D only falls, its pairs are still among those that were
 * found then.  Where there are many seeds for the rows, as among the candidates of k-means||, most draws are such ones.
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
/* Pairs that are kept from batch to batch, and the rows that they are those of, at most. */
#define KEPT_PAIRS		((size_t) 1 << 20)
#define KEPT_DRAWN		((size_t) 1 << 17)
/* And no more than memory / this for the latter. */
#define KEPT_SHARE		16
/* With more pairs than this many times those that are kept, looking through them is of no use: most are still closer. */
#define KEPT_TIDY		4

typedef struct Pair
{
	float	   *d2;				/* the row's D */
	float		weight;
	float		is;				/* its distance to the candidate */
	int32_t		candidate;		/* among those that are compared with it */
} Pair;

_Static_assert(GK_COST_AHEAD_BYTES == PAIRS_ROOM * sizeof(Pair), "the pairs of a row");

/* A row that was drawn. */
typedef struct Drawn
{
	const float *d2;			/* its D */
	double		weight;
	size_t		begin;			/* its pairs, others than which are not closer any more */
	size_t		end;
} Drawn;

/* Where a thread's next pairs go. */
typedef struct Run
{
	size_t		next;
	size_t		end;
} Run;

typedef struct Draw
{
	GkPick		pick;
	int			drawn;
} Draw;

typedef struct Batch
{
	GkSweep		sweep;
	int			rounds;
	int			want;
	GkCpuSeedDrawn *kept;		/* the session's */
	int			old;			/* rows that were drawn before */
	int			candidates;		/* those that were not, in order */
	int			compared;		/* the same, or some copies more */
	float	   *c;				/* [compared][d] */
	Draw	   *draw;			/* round by round */
	int			first[MOST_ROUNDS + 1]; /* of a round's */
	bool		whole[MOST_ROUNDS]; /* no row was left out */
	uint64_t   *closer;			/* [threads][closer_room] */
	size_t		closer_room;
	bool		bytes;			/* 8 bits tell which may be closer, else 16 */
	bool		crowded;
	size_t		room;			/* for its pairs: at first run by run, then by candidates */
	size_t		taken;			/* by runs, and by what is kept */
	size_t		found;			/* pairs */
	char	   *run;			/* [threads] regions of one Run */
} Batch;

static Run *
run_of(const Batch *a, int thread)
{
	return (Run *) (a->run + thread * gk_cpu_region_bytes(sizeof(Run)));
}

/* ---- rows that were drawn ---- */

static void
forget(GkSession *s)
{
	GkCpuSeedDrawn *kept = &s->seed.drawn;

	kept->pairs = 0;
	kept->count = 0;
	if (kept->number != NULL)
		memset(kept->number, 0xff, s->pts->n * sizeof(int32_t));
}

/* Leave out pairs that are not closer any more. */
static void
tidy(GkCpuSeedDrawn *kept)
{
	size_t		to = 0;

	for (int q = 0; q < kept->count; q++)
	{
		Drawn	   *of = &kept->drawn[q];
		size_t		begin = to;

		for (size_t i = of->begin; i < of->end; i++)
			if (kept->pair[i].is < *kept->pair[i].d2)
				kept->pair[to++] = kept->pair[i];
		of->begin = begin;
		of->end = to;
	}
	kept->pairs = to;
}

/* Rows that may be known at a time: those of a batch, and more where there is memory. */
static size_t
most_drawn(const GkSession *s, int want)
{
	size_t		most = MOST_ROUNDS * ASKED(want) + gk_cpu_spare(s) / (KEPT_SHARE * sizeof(Drawn));

	most = most < KEPT_DRAWN ? most : KEPT_DRAWN;
	return most < (size_t) s->pts->n ? most : (size_t) s->pts->n;
}

/* Say what all this takes, or will at most but for pairs that are kept. */
static void
count_bytes(GkSession *s)
{
	GkCpuSeedDrawn *kept = &s->seed.drawn;

	kept->bytes = (kept->pair != NULL ? kept->room : PAIRS_ROOM * (size_t) s->pts->n) * sizeof(Pair) + s->pts->n * sizeof(int32_t) +
		kept->most_drawn * sizeof(Drawn);
}

/* Make room for the rows of a batch. */
static bool
begin_drawn(GkSession *s, const Batch *a)
{
	GkCpuSeedDrawn *kept = a->kept;
	bool		full = false;

	if (kept->number == NULL)
	{
		if (!gk_cpu_room(s, &kept->number, s->pts->n, sizeof(int32_t)) ||
			!gk_cpu_room(s, &kept->drawn, kept->most_drawn = most_drawn(s, a->want), sizeof(Drawn)))
			return false;
		forget(s);
		count_bytes(s);
	}
	if (kept->pairs > kept->most)
	{
		if (kept->pairs / KEPT_TIDY <= kept->most)
			tidy(kept);
		/* with half of them left, the next batches need not look through them */
		full = kept->pairs > kept->most / 2;
	}
	if (full || (kept->most_drawn < (size_t) s->pts->n && (size_t) (kept->count + a->rounds * ASKED(a->want)) > kept->most_drawn))
		forget(s);
	return true;
}

/* Pairs that there is memory for beside what is remembered of rows. */
static size_t
spare_pairs(const GkSession *s, int want)
{
	size_t		spare = gk_cpu_spare(s);
	size_t		rows = s->pts->n * sizeof(int32_t) + most_drawn(s, want) * sizeof(Drawn);

	return spare > rows ? (spare - rows) / sizeof(Pair) : 0;
}

/* Make room for pairs: those of a batch, and what is kept. */
static bool
pairs_room(GkSession *s, const Batch *a)
{
	GkCpuSeedDrawn *kept = a->kept;
	size_t		spare = spare_pairs(s, a->want);

	if (kept->pair != NULL)
		return true;
	kept->most = spare > a->room ? spare - a->room : 0;
	kept->most = kept->most < KEPT_PAIRS ? kept->most : KEPT_PAIRS;
	kept->room = a->room + kept->most + RUN * (size_t) s->host.threads;
	if (!gk_cpu_room(s, &kept->pair, kept->room, sizeof(Pair)))
		return false;
	count_bytes(s);
	return true;
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

/* With fewer candidates products are not made: one of them stands for several. */
static int
fewest(const GkSession *s)
{
	return gk_cpu_int8_possible(s) ? GK_COST_DOT_MIN_K : GK_COST_INT16_MIN_K;
}

static GkStatus
draw_candidates(GkSession *s, Batch *a, const uint64_t *keys, GkError *err)
{
	GkCpuSeedDrawn *kept = a->kept;
	GkPick		pick[2 * MOST_WANTED];
	int			ask = ASKED(a->want);
	int			draws = 0;
	size_t		d = s->pts->d;
	GkStatus	st = GK_OK;

	if (!gk_cpu_room(s, &a->c, (size_t) a->rounds * ask + fewest(s), d * sizeof(float)) ||
		!gk_cpu_room(s, &a->draw, (size_t) a->rounds * ask, sizeof(Draw)))
		return gk_cpu_out_of_memory(err);
	for (int r = 0; st == GK_OK && r < a->rounds; r++)
	{
		int			got;

		st = gk_cpu_seed_race(s, keys[r], true, ask, pick, &got, err);
		a->first[r] = draws;
		a->whole[r] = got < ask;
		for (int i = 0; st == GK_OK && i < got; i++)
		{
			int32_t    *number = kept->number + (pick[i].row - s->pts->chunks[0].first);

			if (*number < 0)
			{
				*number = kept->count;
				kept->drawn[kept->count++] = (Drawn) {.d2 = d2_of(s, pick[i].row)};
				st = s->core->row(s->store, pick[i].row, a->c + a->candidates++ * d, err);
			}
			a->draw[draws++] = (Draw) {.pick = pick[i],.drawn = *number};
		}
	}
	a->first[a->rounds] = draws;
	a->compared = a->candidates;
	while (a->candidates > 0 && a->compared < fewest(s))
		memcpy(a->c + a->compared++ * d, a->c, d * sizeof(float));
	return st;
}

/* ---- 2: the pairs ---- */

/* Take room for some more pairs. */
static bool
next_run(Batch *a, Run *own)
{
	size_t		next = __atomic_fetch_add(&a->taken, RUN, __ATOMIC_RELAXED);

	if (next + RUN > a->kept->room)
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

		if (is[i] >= *d2 || label[i] >= t->a->candidates)
			continue;
		if (own->next == own->end && !next_run(t->a, own))
		{
			__atomic_store_n(&t->a->crowded, true, __ATOMIC_RELAXED);
			return;
		}
		t->a->kept->pair[own->next++] = (Pair) {d2, t->w != NULL ? t->w[row[i]] : 1.0f, is[i], label[i]};
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
	int			tiles = a->bytes ? gk_cpu_int8_tiles(s, a->compared) : gk_cpu_int16_tiles(s, x.d);

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
				(void) gk_cpu_closer_pairs(s, &tile, a->c, a->candidates, closer + t * width, rows, b->thread, keep_closer, &to);
		}
	}
}

/* Put the new pairs in order of their candidates; those of no candidate are left out. */
static GkStatus
sort_pairs(GkSession *s, Batch *a, GkError *err)
{
	GkCpuSeedDrawn *kept = a->kept;
	Pair	   *pair = kept->pair;
	Drawn	   *of = kept->drawn + a->old;
	size_t	   *next = NULL;	/* where a candidate's next pair goes */
	size_t		before = kept->pairs;
	bool		stop = false;

	if (!gk_cpu_room(s, &next, a->candidates + 1, sizeof(size_t)))
		return gk_cpu_out_of_memory(err);
	/* what is left of the last runs */
	for (int t = 0; t < a->sweep.threads; t++)
		for (size_t i = run_of(a, t)->next; i < run_of(a, t)->end; i++)
			pair[i].candidate = a->candidates;
	memset(next, 0, (a->candidates + 1) * sizeof(size_t));
	for (size_t i = kept->pairs; i < a->taken; i++)
		next[pair[i].candidate]++;
	for (int q = 0; q <= a->candidates; q++)
	{
		size_t		count = next[q];

		next[q] = before;
		before += count;
		if (q < a->candidates)
			of[q].begin = next[q], of[q].end = before;
	}
	for (int q = 0; q < a->candidates && !(stop = gk_cpu_stopped(s)); q++)
		while (next[q] < of[q].end)
		{
			Pair		own = pair[next[q]];
			size_t		to = next[own.candidate]++;

			if (own.candidate == q)
				continue;
			pair[next[q]] = pair[to];
			pair[to] = own;
		}
	a->found = of[a->candidates - 1].end - kept->pairs;
	kept->pairs += a->found;
	gk_cpu_room_free(s, &next);
	return stop ? GK_STOPPED : GK_OK;
}

/* Each drawn row is among its own pairs, at distance 0: that pair has its weight. */
static void
weigh_drawn(const Batch *a)
{
	for (int q = a->old; q < a->kept->count; q++)
	{
		Drawn	   *of = &a->kept->drawn[q];

		for (size_t i = of->begin; i < of->end; i++)
			if (a->kept->pair[i].d2 == of->d2)
				of->weight = (double) a->kept->pair[i].weight;
	}
}

static GkStatus
compare_all(GkSession *s, Batch *a, GkError *err)
{
	int			group = s->kernels->integers->group;
	int			groups = (a->compared + group - 1) / group;
	GkStatus	st;

	a->bytes = gk_cpu_int8_possible(s);
	st = a->bytes ? gk_cpu_int8_begin(s, &a->sweep, a->c, a->compared, err)
		: gk_cpu_dot_begin(s, &a->sweep, a->c, a->compared, true, err);
	if (st != GK_OK)
		return st;
	a->closer_room = a->bytes ? 0 : (size_t) gk_cpu_int16_tiles(s, s->pts->d) * groups * group;
	a->crowded = !a->bytes && s->dot.int16.k == 0;
	a->taken = a->kept->pairs;
	if (!pairs_room(s, a) || (!a->bytes && !gk_cpu_closer_room(s, a->sweep.threads)) ||
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
		weigh_drawn(a);
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
	const Drawn *drawn = a->kept->drawn;
	const Draw *last = &a->draw[a->first[round + 1] - 1];
	int			count = 0;

	for (int i = a->first[round]; i < a->first[round + 1]; i++)
	{
		Draw		draw = a->draw[i];
		double		weight = drawn[draw.drawn].weight * (double) *drawn[draw.drawn].d2;
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

/* What the sum of w * D would lose. Pairs that are not closer any more are left out. */
static gk_int128
gain(const GkSession *s, const GkCpuSeedDrawn *kept, Drawn *of)
{
	gk_int128	sum = 0;
	size_t		to = of->begin;

	for (size_t i = of->begin; i < of->end; i++)
	{
		const Pair	p = kept->pair[i];

		if (!(p.is < *p.d2))
			continue;
		sum += gk_d2_fixed((double) p.weight * (double) *p.d2, s->d2_scale) -
			gk_d2_fixed((double) p.weight * (double) p.is, s->d2_scale);
		kept->pair[to++] = p;
	}
	of->end = to;
	return sum;
}

/* Copy a drawn row's features. */
static GkStatus
copy_point(GkSession *s, const Batch *a, const Draw *draw, float *to, GkError *err)
{
	size_t		d = s->pts->d;

	if (draw->drawn < a->old)
		return s->core->row(s->store, draw->pick.row, to, err);
	memcpy(to, a->c + (draw->drawn - a->old) * d, d * sizeof(float));
	return GK_OK;
}

/* One round; *played: false, the batch ends before it. */
static GkStatus
play(GkSession *s, Batch *a, int round, uint64_t key, float *point, bool *played, GkError *err)
{
	Draw		draw[2 * MOST_WANTED];
	int			count = draw_again(a, round, key, draw);
	int			best = 0;
	gk_int128	most = -1;
	const Drawn *of;

	*played = count > 0;
	if (!*played)
		return GK_OK;
	for (int i = 0; i < count; i++)
	{
		gk_int128	own = gain(s, a->kept, &a->kept->drawn[draw[i].drawn]);

		if (own > most)
		{
			most = own;
			best = i;
		}
	}
	of = &a->kept->drawn[draw[best].drawn];
	for (size_t i = of->begin; i < of->end; i++)
		if (a->kept->pair[i].is < *a->kept->pair[i].d2)
			*a->kept->pair[i].d2 = a->kept->pair[i].is;
	s->seed.phi -= most;
	s->seed.seeds++;
	return copy_point(s, a, &draw[best], point, err);
}

/* Pairs that there is room for in a batch. */
static size_t
pair_room(const GkSession *s, int want)
{
	size_t		room = spare_pairs(s, want);
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
	if (a->candidates > 0)
		seed->ahead_share = fmin(1.0, fmax(GK_COST_AHEAD_LEAST_SHARE, (double) a->found / expected));
}

/* Compare the candidates with all rows, and play the rounds. */
static GkStatus
play_all(GkSession *s, Batch *a, const uint64_t *keys, float *points, int *done, GkError *err)
{
	bool		played = true;
	GkStatus	st = a->candidates > 0 ? compare_all(s, a, err) : GK_OK;

	while (st == GK_OK && !a->crowded && *done < a->rounds)
	{
		st = play(s, a, *done, keys[*done], points + (size_t) *done * s->pts->d, &played, err);
		if (!played)
			break;
		*done += 1;
		if (st == GK_OK && gk_cpu_stopped(s))
			st = GK_STOPPED;
	}
	if (a->crowded && a->bytes)
		gk_cpu_int8_give_up(s);
	else if (a->crowded)
		s->seed.ahead_from = 2 * s->seed.seeds;
	if (a->crowded)
		s->seed.ahead_share = 1.0;
	else
		learn(s, a, *done);
	return st;
}

GkStatus
gk_cpu_seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done, GkError *err)
{
	Batch		a = {.want = want,.kept = &s->seed.drawn,.room = pair_room(s, want)};
	GkStatus	st = GK_OK;

	*done = 0;
	a.rounds = rounds_ahead(s, rounds, want, a.room);
	if (a.rounds > 0)
	{
		st = gk_cpu_seed_settled(s, err);
		s->seed.count = s->seed.given_count = 0;
		/* the distances that a round has kept: their memory is that of pairs */
		s->seed.kept = false;
		gk_cpu_room_free(s, &s->seed.all);
		if (st == GK_OK && !begin_drawn(s, &a))
			st = gk_cpu_out_of_memory(err);
		a.old = a.kept->count;
		if (st == GK_OK)
			st = draw_candidates(s, &a, keys, err);
		a.sweep = gk_cpu_plan(s, a.compared);
		if (st == GK_OK && a.first[a.rounds] > 0 && (a.candidates == 0 || gk_cpu_dot_wanted(s, &a.sweep, a.compared)))
			st = play_all(s, &a, keys, points, done, err);
		gk_cpu_room_free(s, &a.c);
		gk_cpu_room_free(s, &a.draw);
		gk_cpu_room_free(s, &a.run);
		gk_cpu_room_free(s, &a.closer);
	}
	/* rows that were drawn may not have been compared; and memory is that of a round's distances */
	if (*done == 0)
		gk_cpu_drop_drawn(s);
	return st;
}
