/*
 * gk_pass.c - answers of passes: their arrays, and their sums.  See gk_pass.h.
 */
#include <string.h>

#include "core/rescan/gk_pass.h"
#include "core/store/gk_store.h"

#define WIDE_INTS	(sizeof(GkWide) / sizeof(int64_t))

void
gk_pass_lengths(const GkPass *pass, int d, GkPassResult *r)
{
	size_t		k = pass->k;
	size_t		columns = d + (pass->weighted ? 1 : 0);
	size_t		picks = (size_t) gk_pass_races(pass) * pass->want;

	memset(r, 0, sizeof(*r));
	r->d = d;
	switch (pass->kind)
	{
		case GK_PASS_STATS:
			r->ni64 = d > 0 ? columns * WIDE_INTS : 0;
			r->ndbl = d > 0 ? columns * 2 : 0;
			break;
		case GK_PASS_MOMENTS:
			r->ni128 = 2 * (size_t) d + 1;
			break;
		case GK_PASS_STEP:
			r->ni128 = k * d + k;
			r->ni64 = k;
			break;
		case GK_PASS_FINISH:
			r->ni128 = r->ni64 = r->nflt = k;
			break;
		case GK_PASS_SEED:
			r->ni128 = k;
			r->ni64 = gk_pass_races(pass) + picks;
			r->ndbl = picks;
			r->nflt = picks * d;
			break;
		case GK_PASS_FAR:
			r->ni64 = 1;
			r->nflt = 1 + (size_t) d;
			break;
		case GK_PASS_MEANS:
			r->ni128 = k * d + 1;
			r->ni64 = k + 1;
			break;
		case GK_PASS_SPREAD:
			r->ni128 = k + 2;
			break;
		case GK_PASS_SAMPLE:
			r->ni64 = 2 * (size_t) pass->want;
			r->ndbl = (size_t) pass->want * d;
			break;
	}
}

GkStatus
gk_pass_result_init(const GkHost *host, const GkPass *pass, int d, GkPassResult *r, GkError *err)
{
	bool		stopped = false;

	gk_pass_lengths(pass, d, r);
	r->i128 = gk_alloc0_large(host, r->ni128, sizeof(gk_int128), &stopped);
	r->i64 = gk_alloc0(host, r->ni64, sizeof(int64_t));
	r->dbl = gk_alloc0(host, r->ndbl, sizeof(double));
	r->flt = gk_alloc0(host, r->nflt, sizeof(float));
	if (!r->i128 || !r->i64 || !r->dbl || !r->flt)
	{
		gk_pass_result_free(host, r);
		return stopped ? GK_STOPPED : gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	for (size_t i = 0; pass->kind == GK_PASS_STATS && i < r->ndbl; i++)
		r->dbl[i] = i % 2 == 0 ? INFINITY : -INFINITY;
	if (pass->kind == GK_PASS_FAR)
		r->i64[0] = -1;
	return GK_OK;
}

void
gk_pass_result_free(const GkHost *host, GkPassResult *r)
{
	gk_free(host, r->i128);
	gk_free(host, r->i64);
	gk_free(host, r->dbl);
	gk_free(host, r->flt);
	memset(r, 0, sizeof(*r));
}

/* ---- races ---- */

/* Picks of one race, in order. */
typedef struct Picks
{
	int64_t    *got;
	int64_t    *row;
	double	   *key;
	float	   *point;
} Picks;

static Picks
picks_of(const GkPass *pass, const GkPassResult *r, int race)
{
	size_t		first = (size_t) race * pass->want;

	return (Picks) {
		r->i64 + race, r->i64 + gk_pass_races(pass) + first, r->dbl + first, r->flt + first * r->d
	};
}

static bool
before(const Picks *a, int i, const Picks *b, int j)
{
	return a->key[i] < b->key[j] || (a->key[i] == b->key[j] && a->row[i] < b->row[j]);
}

static void
move(const Picks *from, int i, const Picks *to, int j, int d)
{
	to->row[j] = from->row[i];
	to->key[j] = from->key[i];
	memmove(to->point + (size_t) j * d, from->point + (size_t) i * d, d * sizeof(float));
}

/* Keep the `want` first picks of both: count those of each, then merge from the back in place. */
static void
add_race(const GkPass *pass, GkPassResult *to, const GkPassResult *from, int race)
{
	Picks		a = picks_of(pass, to, race);
	Picks		b = picks_of(pass, from, race);
	int			i = 0;
	int			j = 0;

	while (i + j < pass->want && (i < *a.got || j < *b.got))
	{
		if (j == *b.got || (i < *a.got && before(&a, i, &b, j)))
			i++;
		else
			j++;
	}
	*a.got = i + j;
	while (j > 0)
	{
		if (i > 0 && before(&b, j - 1, &a, i - 1))
		{
			i--;
			move(&a, i, &a, i + j, to->d);
		}
		else
		{
			j--;
			move(&b, j, &a, i + j, to->d);
		}
	}
}

/* ---- the farthest point ---- */

/* Is b's point the farther one?  Ties as in GkBackend.seed_far. */
static bool
farther(const GkPassResult *a, const GkPassResult *b)
{
	if (b->i64[0] < 0 || a->i64[0] < 0)
		return b->i64[0] >= 0;
	for (int j = 0; j <= a->d; j++)
		if (a->flt[j] != b->flt[j])
			return j == 0 ? b->flt[j] > a->flt[j] : b->flt[j] < a->flt[j];
	return b->i64[0] < a->i64[0];
}

/* ---- the sample ---- */

/* Put rows of a sample at their places. */
static GkStatus
add_sample(GkPassResult *to, const GkPassResult *from, GkError *err)
{
	size_t		n = from->ni64 / 2;
	size_t		room = to->ni64 / 2;

	for (size_t i = 0; i < n; i++)
	{
		int64_t		s = from->i64[i];

		if (s < 0 || (uint64_t) s >= room)
			return gk_fail(err, GK_ERR_DATA, "rows are of no stratum of the sample");
		to->i64[s] = s;
		to->i64[room + s] = from->i64[n + i];
		memcpy(to->dbl + (size_t) s * to->d, from->dbl + i * to->d, to->d * sizeof(double));
	}
	return GK_OK;
}

/* ---- all kinds ---- */

/* Sums wrap instead of being undefined: answers from elsewhere may hold anything. */
static void
add_sums(GkPassResult *to, const GkPassResult *from)
{
	for (size_t i = 0; i < to->ni128; i++)
		to->i128[i] = (gk_int128) ((unsigned __int128) to->i128[i] + (unsigned __int128) from->i128[i]);
}

static void
add_counts(GkPassResult *to, const GkPassResult *from)
{
	for (size_t i = 0; i < to->ni64; i++)
		to->i64[i] = (int64_t) ((uint64_t) to->i64[i] + (uint64_t) from->i64[i]);
}

static void
add_stats(GkPassResult *to, const GkPassResult *from)
{
	for (size_t c = 0; c < to->ndbl / 2; c++)
	{
		if (from->dbl[2 * c] < to->dbl[2 * c])
			to->dbl[2 * c] = from->dbl[2 * c];
		if (from->dbl[2 * c + 1] > to->dbl[2 * c + 1])
			to->dbl[2 * c + 1] = from->dbl[2 * c + 1];
		gk_wide_merge((GkWide *) (to->i64 + c * WIDE_INTS), (const GkWide *) (from->i64 + c * WIDE_INTS));
	}
}

GkStatus
gk_pass_add(const GkHost *host, const GkPass *pass, GkPassResult *to, const GkPassResult *from, GkError *err)
{
	GkStatus	st;

	if (from->d == 0)
		return GK_OK;
	if (to->d == 0)
	{
		gk_pass_result_free(host, to);
		if ((st = gk_pass_result_init(host, pass, from->d, to, err)) != GK_OK)
			return st;
	}
	if (to->d != from->d)
		return gk_fail(err, GK_ERR_DATA, "some points have %d features, others %d", to->d, from->d);
	to->rows += from->rows;
	switch (pass->kind)
	{
		case GK_PASS_STATS:
			add_stats(to, from);
			break;
		case GK_PASS_MOMENTS:
			add_sums(to, from);
			break;
		case GK_PASS_STEP:
			add_sums(to, from);
			add_counts(to, from);
			break;
		case GK_PASS_FINISH:
			add_sums(to, from);
			add_counts(to, from);
			for (size_t i = 0; i < to->nflt; i++)
				if (from->flt[i] > to->flt[i])
					to->flt[i] = from->flt[i];
			break;
		case GK_PASS_SEED:
			add_sums(to, from);
			for (int i = 0; i < gk_pass_races(pass) && pass->want > 0; i++)
				add_race(pass, to, from, i);
			break;
		case GK_PASS_FAR:
			if (farther(to, from))
			{
				to->i64[0] = from->i64[0];
				memcpy(to->flt, from->flt, to->nflt * sizeof(float));
			}
			break;
		case GK_PASS_MEANS:
			add_sums(to, from);
			add_counts(to, from);
			break;
		case GK_PASS_SPREAD:
			add_sums(to, from);
			break;
		case GK_PASS_SAMPLE:
			return add_sample(to, from, err);
	}
	return GK_OK;
}
