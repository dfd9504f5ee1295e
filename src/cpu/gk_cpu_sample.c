/*
 * gk_cpu_sample.c - exponential race: the rows with the smallest keys.
 *
 * A key costs a logarithm and a division, but -ln u >= 1 - u tells for almost
 * every row that it cannot win: the race kernel finds those that may, against
 * the worst key kept so far.  Each thread collects them in an array of its own and,
 * when that is full, cuts it back to the `want` smallest (Hoare's quickselect); up to
 * MAX_ORDERED are kept in order instead, so that the worst is known soon.  The result is
 * the `want` smallest of all arrays: defined by (key, row) alone, so it depends on
 * neither threads nor blocks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"

/* More picks than wanted that a thread collects before it cuts. */
#define MIN_EXTRA		256
/* Wanted picks up to this number are kept in order. */
#define MAX_ORDERED		16
/* Keys computed at a time. */
#define KEYS			8

/* One thread's picks; the first line of its region, the array follows. */
typedef struct Picks
{
	size_t		count;
	GkPick		worst;			/* no later pick may be worse */
	GkPick		pick[];
} Picks;

typedef struct Race
{
	GkSweep		sweep;
	uint64_t	key;
	bool		use_d2;
	const float *seed;			/* D does not know it yet; NULL: none */
	size_t		want;
	size_t		room;			/* of a thread's array */
	size_t		bytes;			/* of a thread's region */
} Race;

/* Rows are distinct, so no two picks are equal. */
static inline bool
before(const GkPick *a, const GkPick *b)
{
	return a->key < b->key || (a->key == b->key && a->row < b->row);
}

static int
compare(const void *a, const void *b)
{
	return before(a, b) ? -1 : before(b, a);
}

/* Put the n-th smallest (from 0) at its place, smaller ones before it. */
static void
quickselect(GkPick *p, size_t count, size_t n)
{
	size_t		lo = 0;
	size_t		hi = count;		/* one past */

	while (hi - lo > 1)
	{
		GkPick		a = p[lo];
		GkPick		b = p[lo + (hi - 1 - lo) / 2];
		GkPick		c = p[hi - 1];
		GkPick		pivot = before(&a, &b) ? (before(&b, &c) ? b : before(&a, &c) ? c : a)
		: (before(&a, &c) ? a : before(&b, &c) ? c : b);
		size_t		i = lo;
		size_t		j = hi - 1;

		for (;;)
		{
			GkPick		swap;

			while (before(&p[i], &pivot))
				i++;
			while (before(&pivot, &p[j]))
				j--;
			if (i >= j)
				break;
			swap = p[i];
			p[i++] = p[j];
			p[j--] = swap;
		}
		/* p[lo..j] <= pivot <= p[j+1..hi-1]; the pivot is not the largest, so neither is empty. */
		if (n <= j)
			hi = j + 1;
		else
			lo = j + 1;
	}
}

static Picks *
picks_of(const GkSession *s, const Race *r, int thread)
{
	return (Picks *) ((char *) s->sums + thread * r->bytes);
}

static void
cut(Picks *own, size_t want)
{
	if (own->count <= want)
		return;
	quickselect(own->pick, own->count, want - 1);
	own->count = want;
	own->worst = own->pick[want - 1];
}

/* Put a pick in its place among the `want` smallest so far. */
static void
insert(Picks *own, size_t want, GkPick pick)
{
	size_t		at = own->count < want ? own->count++ : want - 1;

	for (; at > 0 && before(&pick, &own->pick[at - 1]); at--)
		own->pick[at] = own->pick[at - 1];
	own->pick[at] = pick;
	if (own->count == want)
		own->worst = own->pick[want - 1];
}

static void
keep(const Race *r, Picks *own, GkPick pick)
{
	if (!before(&pick, &own->worst))
		return;
	if (r->want <= MAX_ORDERED)
	{
		insert(own, r->want, pick);
		return;
	}
	own->pick[own->count++] = pick;
	if (own->count == r->room)
		cut(own, r->want);
}

/*
 * Keep rows row + i of a tile, bit i of `may` for each.  Compute several keys before looking
 * at one: a logarithm takes long, but several do not wait for each other.
 */
static void
run(const Race *r, Picks *own, const GkBlock *b, const float *w, const float *d2, int row, uint64_t may)
{
	while (may != 0)
	{
		GkPick		some[KEYS];
		int			n = 0;

		for (; may != 0 && n < KEYS; may &= may - 1)
		{
			int			i = __builtin_ctzll(may);
			double		weight = (w ? (double) w[row + i] : 1.0) * (d2 ? (double) d2[i] : 1.0);
			int64_t		at = b->chunk->first + row + i;
			uint64_t	h = gk_hash(r->key, at);

			if (!(weight > 0.0))
				continue;
			/* ask again what the kernel asked: the worst may be another one by now */
			if (1.0 - gk_uniform(h) > own->worst.key * weight * GK_RACE_SLACK)
				continue;
			some[n++] = (GkPick) {gk_race_key(h, weight), at};
		}
		for (int i = 0; i < n; i++)
			keep(r, own, some[i]);
	}
}

static void
block(GkSession *s, void *arg, const GkBlock *b)
{
	const Race *r = arg;
	const float *w = gk_chunk_weight(s->pts, b->chunk);
	Picks	   *own = picks_of(s, r, b->thread);

	if (r->seed != NULL)
		gk_cpu_seed_settle(s, b, r->seed);
	for (int row = b->row; row < b->row + b->rows; row += GK_ROW_PAD)
	{
		const float *d2 = r->use_d2 ? b->chunk->mind2 + row : NULL;
		uint64_t	may = s->kernels->race(d2, w ? w + row : NULL, r->key, b->chunk->first + row, own->worst.key);
		int			rows = b->row + b->rows - row;

		if (rows < GK_ROW_PAD)
			may &= (UINT64_C(1) << rows) - 1;
		run(r, own, b, w, d2, row, may);
	}
}

/*
 * Guess a key that slightly more rows than wanted are below, from the weight of all: it
 * rules most out from the start.  INFINITY where nothing is known.
 */
static double
likely_worst(const GkSession *s, bool use_d2, size_t want)
{
	double		weight = 0.0;

	/* should it be too low, a second pass over so small a number of rows costs next to nothing */
	if (want > MAX_ORDERED || s->pts->n > GK_COST_RACE_ROWS)
		return INFINITY;
	if (!use_d2)
		weight = s->pts->weighted ? gk_i128_to_double(s->pts->total_mass) * 0x1p-40 : (double) s->pts->n;
	else if (s->seed.known)
		weight = gk_i128_to_double(s->seed.phi) * gk_pow2(s->pts->d2_expo - 80);
	return weight > 0.0 ? ((double) want + 2.0 + 1.8 * sqrt((double) want)) / weight : INFINITY;
}

GkStatus
gk_cpu_seed_race(GkSession *s, uint64_t key, bool use_d2, int want,
				 GkPick *out, int *got, GkError *err)
{
	const float *seed;
	Race		r;
	Picks	   *all;
	GkStatus	st;

	*got = 0;
	if (use_d2 && s->index.made && (st = gk_cpu_seed_settled(s, err)) != GK_OK)
		return st;
	seed = use_d2 ? s->seed.pending : NULL;
	r = (Race) {.sweep = gk_cpu_seed_settle_plan(s),.key = key,.use_d2 = use_d2,
	.seed = seed,.want = want};
	s->previous_k = 0;			/* new centroids are coming */
	if (want > s->pts->n)
		r.want = s->pts->n;
	if (r.want == 0)
		return GK_OK;
	r.room = r.want + (r.want > MIN_EXTRA ? r.want : MIN_EXTRA);
	r.bytes = gk_cpu_region_bytes(sizeof(Picks) + r.room * sizeof(GkPick));
	while (r.sweep.threads > 1 && r.bytes * r.sweep.threads > GK_COST_RACE_BYTES)
		r.sweep.threads--;
	if (!gk_cpu_room(s, &s->sums, r.sweep.threads, r.bytes))
		return gk_cpu_out_of_memory(err);
	r.sweep.mind2 = use_d2;
	r.sweep.dirty = seed != NULL;
	r.sweep.arg = &r;
	r.sweep.block = block;
	for (double worst = likely_worst(s, use_d2, r.want);; worst = INFINITY)
	{
		size_t		found = 0;

		for (int t = 0; t < r.sweep.threads; t++)
			*picks_of(s, &r, t) = (Picks) {.worst = {.key = worst,.row = INT64_MAX}};
		st = gk_cpu_sweep(s, &r.sweep, err);
		if (st != GK_OK)
			return st;
		if (seed != NULL)
			s->seed.pending = NULL;
		for (int t = 0; t < r.sweep.threads; t++)
			found += picks_of(s, &r, t)->count;
		if (found >= r.want || worst == INFINITY)
			break;				/* else the guess was too low */
	}

	/* All into the first thread's array, which has room for another `want`. */
	all = picks_of(s, &r, 0);
	cut(all, r.want);
	for (int t = 1; t < r.sweep.threads; t++)
	{
		Picks	   *own = picks_of(s, &r, t);

		cut(own, r.want);
		memcpy(all->pick + all->count, own->pick, own->count * sizeof(GkPick));
		all->count += own->count;
		cut(all, r.want);
	}
	/* those of one thread may be in order */
	if (r.want > MAX_ORDERED || r.sweep.threads > 1)
		qsort(all->pick, all->count, sizeof(GkPick), compare);
	memcpy(out, all->pick, all->count * sizeof(GkPick));
	*got = (int) all->count;
	return GK_OK;
}
