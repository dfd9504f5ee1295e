/*
 * CPU kernels: every instruction set of this machine against the scalar loops, bit
 * for bit, over sizes, layouts, splits, ties and the ends of the float range.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/simd/gk_cpu_kernels.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define CASES		400
#define MAX_ROWS	4160
#define MAX_D		200
#define MAX_K		300

static const char *const all_sets[] = {"avx512", "avx2", "neon"};
static const GkCpuKernels *sets[3];
static int	nsets;
static uint64_t rng = 42;

static int
pick(int lo, int hi)
{
	return test_pick(&rng, lo, hi);
}

/* ---- data ---- */

enum
{
	NORMAL, TIES, ZEROS, SUBNORMAL, HUGE_VALUES, TINY, MIXED, KINDS
};

static float
value(int kind)
{
	switch (kind)
	{
		case TIES:
			return (float) pick(0, 2);
		case ZEROS:
			return pick(0, 9) ? 0.0f : -0.0f;
		case SUBNORMAL:
			return (float) pick(-9, 9) * 1e-44f;
		case HUGE_VALUES:
			return (float) pick(-1, 1) * FLT_MAX;
		case TINY:
			return (float) test_normal(&rng) * 1e-22f;
		case MIXED:
			return (float) ldexp(test_normal(&rng), pick(-60, 60));
		default:
			return (float) test_normal(&rng);
	}
}

/* A chunk: columns of `stride` rows, blocks of them as tiles in place. */
typedef struct Data
{
	int			rows,
				tiles,
				d,
				k,
				stride,
				first;			/* row where the tiles begin */
	float	   *x;
	float	   *tile;
	float	   *c;
	GkTiles		in_place,
				in_tiles;
} Data;

static void *
aligned(size_t bytes)
{
	return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

static Data
make(int number)
{
	int			kind = number % KINDS;
	Data		a;

	a.rows = pick(0, 3) ? pick(1, 300) : pick(1, 4099);
	a.d = pick(0, 3) ? pick(1, 20) : pick(1, MAX_D);
	a.k = pick(0, 3) ? pick(1, 20) : pick(1, MAX_K);
	if (number < 64)
		a.d = 1 + number / 8, a.k = 1 + number % 8;
	while ((double) a.rows * a.d * a.k > 1e6)
		a.rows = (a.rows + 1) / 2, a.k = (a.k + 1) / 2;
	a.tiles = (a.rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
	a.first = pick(0, 2) * GK_ROW_PAD;
	a.stride = a.first + (a.tiles + pick(1, 2)) * GK_ROW_PAD;
	a.x = aligned((size_t) a.stride * a.d * sizeof(float));
	a.c = aligned((size_t) a.k * a.d * sizeof(float));
	a.tile = aligned((size_t) a.tiles * GK_ROW_PAD * a.d * sizeof(float));
	for (size_t i = 0; i < (size_t) a.stride * a.d; i++)
		a.x[i] = value(kind);
	for (size_t i = 0; i < (size_t) a.k * a.d; i++)
		a.c[i] = value(kind);

	/* Some centroids are copies of others, some are points, some points copies. */
	for (int i = 0; i < a.k / 3; i++)
		memmove(a.c + (size_t) pick(0, a.k - 1) * a.d, a.c + (size_t) (a.k - 1) * a.d,
				a.d * sizeof(float));
	for (int i = 0; i < 1 + a.rows / 4; i++)
	{
		int			to = a.first + pick(0, a.rows - 1);
		int			k = pick(0, a.k - 1);

		for (int j = 0; j < a.d; j++)
			a.x[(size_t) j * a.stride + to] = a.c[(size_t) k * a.d + j];
	}
	a.in_place = (GkTiles) {a.x + a.first, GK_ROW_PAD, a.stride, a.tiles, a.d};
	a.in_tiles = (GkTiles) {a.tile, (size_t) a.d * GK_ROW_PAD, GK_ROW_PAD, a.tiles, a.d};
	return a;
}

static void
discard(Data *a)
{
	free(a->x);
	free(a->c);
	free(a->tile);
}

/* The rows in place as tiles one after the other. */
static void
gather(Data *a)
{
	float	   *to = a->tile;

	for (int t = 0; t < a->tiles; t++)
		for (int j = 0; j < a->d; j++, to += GK_ROW_PAD)
			memcpy(to, a->in_place.x + t * GK_ROW_PAD + (size_t) j * a->stride, GK_ROW_PAD * sizeof(float));
}

/* ---- assign, mindist ---- */

static void
start(int32_t *label, float *d2, int n)
{
	for (int i = 0; i < n; i++)
	{
		label[i] = 0;
		d2[i] = INFINITY;
	}
}

static void
test_assign(void)
{
	static int32_t label[MAX_ROWS],
				want_label[MAX_ROWS];
	static float d2[MAX_ROWS],
				want_d2[MAX_ROWS];
	int			bad[3][2] = {{0}};
	int			ties = 0;
	int			naive = 0;

	for (int number = 0; number < CASES; number++)
	{
		Data		a = make(number);
		int			n = a.tiles * GK_ROW_PAD;
		int			cut = pick(0, a.k);

		gather(&a);
		start(want_label, want_d2, n);
		gk_cpu_scalar.assign(&a.in_place, a.c, 0, a.k, want_label, want_d2);

		/* The oracle itself, and that the data does contain ties. */
		for (int i = 0; i < n; i++)
		{
			int			at = 0;
			float		best = INFINITY;

			for (int k = 0; k < a.k; k++)
			{
				float		s = 0.0f;

				for (int j = 0; j < a.d; j++)
				{
					float		t = a.x[(size_t) j * a.stride + a.first + i] - a.c[(size_t) k * a.d + j];

					s = fmaf(t, t, s);
				}
				ties += s == best && k > 0 && s < INFINITY;
				if (s < best)
				{
					best = s;
					at = k;
				}
			}
			naive += at != want_label[i] || memcmp(&best, &want_d2[i], sizeof(best)) != 0;
		}
		for (int q = 0; q < nsets; q++)
		{
			/* In place and in one go, then gathered and in two. */
			start(label, d2, n);
			sets[q]->assign(&a.in_place, a.c, 0, a.k, label, d2);
			bad[q][0] += memcmp(label, want_label, n * sizeof(*label)) != 0 || memcmp(d2, want_d2, n * sizeof(*d2)) != 0;
			start(label, d2, n);
			sets[q]->assign(&a.in_tiles, a.c, 0, cut, label, d2);
			sets[q]->assign(&a.in_tiles, a.c, cut, a.k, label, d2);
			bad[q][0] += memcmp(label, want_label, n * sizeof(*label)) != 0 || memcmp(d2, want_d2, n * sizeof(*d2)) != 0;

			start(label, d2, n);
			sets[q]->mindist(&a.in_place, a.c, 0, a.k, d2);
			bad[q][1] += memcmp(d2, want_d2, n * sizeof(*d2)) != 0;
			start(label, d2, n);
			sets[q]->mindist(&a.in_tiles, a.c, cut, a.k, d2);
			sets[q]->mindist(&a.in_tiles, a.c, 0, cut, d2);
			bad[q][1] += memcmp(d2, want_d2, n * sizeof(*d2)) != 0;
		}
		start(label, d2, n);
		gk_cpu_scalar.mindist(&a.in_tiles, a.c, 0, a.k, d2);
		naive += memcmp(d2, want_d2, n * sizeof(*d2)) != 0;
		discard(&a);
	}
	ok(naive == 0 && ties > 1000, "scalar: a plain loop with fmaf() agrees (%d differ, %d ties)", naive, ties);
	for (int q = 0; q < nsets; q++)
	{
		ok(bad[q][0] == 0, "%s assign (%d of %d differ)", sets[q]->name, bad[q][0], 2 * CASES);
		ok(bad[q][1] == 0, "%s mindist (%d of %d differ)", sets[q]->name, bad[q][1], 2 * CASES);
	}
}

/* ---- Feature Sum ---- */

/* Grid values: their sums are exact, so the order of a kernel cannot show. */
static void
test_add(void)
{
	static int32_t label[MAX_ROWS];
	int			bad[4][2] = {{0}};

	for (int number = 0; number < CASES; number++)
	{
		Data		a = make(number);
		int			n = a.tiles * GK_ROW_PAD;
		size_t		width = (a.d + 3) / 4 * 4;
		size_t		one = a.k * width;
		double	   *sum = aligned(one * GK_ADD_COPIES * sizeof(double));
		gk_int128  *want = calloc(one, sizeof(gk_int128));

		/* Integers of 41 bits, in units of 2^-40; rows past the end are zeros. */
		for (int j = 0; j < a.d; j++)
			for (int i = 0; i < n; i++)
				a.x[(size_t) j * a.stride + a.first + i] = i >= a.rows ? 0.0f :
					number % 5 == 0 ? (float) (pick(0, 1) * 2 - 1) : gk_to_grid(test_uniform(&rng) * 2 - 1, gk_grid_magic(0));
		gather(&a);
		for (int i = 0; i < n; i++)
		{
			label[i] = number % 3 ? pick(0, a.k - 1) : i * a.k / n;
			if (i >= a.rows)
				continue;
			for (int j = 0; j < a.d; j++)
				want[label[i] * width + j] += gk_fixed(a.x[(size_t) j * a.stride + a.first + i], 0x1p40);
		}
		for (int q = 0; q <= nsets; q++)
		{
			const GkCpuKernels *set = q < nsets ? sets[q] : &gk_cpu_scalar;

			for (int how = 0; how < 2; how++)
			{
				size_t		copies = how == 1 ? GK_ADD_COPIES : 1;

				memset(sum, 0, one * copies * sizeof(double));
				set->add(how ? &a.in_tiles : &a.in_place, label, sum, width, how ? one : 0);
				for (size_t i = 0; i < one; i++)
				{
					double		v = 0.0;

					for (size_t copy = 0; copy < copies; copy++)
						v += sum[copy * one + i];
					bad[q][how] += (gk_int128) (v * 0x1p40) != want[i];
				}
			}
		}
		free(sum);
		free(want);
		discard(&a);
	}
	for (int q = 0; q <= nsets; q++)
	{
		const GkCpuKernels *set = q < nsets ? sets[q] : &gk_cpu_scalar;

		ok(bad[q][0] == 0 && bad[q][1] == 0, "%s add: exact, in place (%d wrong) and with copies (%d wrong)",
		   set->name, bad[q][0], bad[q][1]);
	}
}

/*
 * Few clusters, by labels and in one pass with the assignment: every shape, rows
 * that end anywhere, columns of different magnitude, values at both ends of the
 * grid, ties, more of the largest value than doubles can hold.
 */
#define FEW_ROWS	(2 * GK_PACKAGE + 2 * GK_ROW_PAD)

/*
 * From other centroids, the same in another order, to these ones: sums and counts, 0
 * before and after, are together what step_smallk() makes of these alone, kept says whose
 * the rows are, and nothing is left to move.
 */
static bool
moves_few(const GkCpuKernels *set, const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
		  const int32_t *label, gk_int128 *sum, int64_t *count)
{
	int			bits = gk_smallk_bits(k);
	size_t		words = (size_t) x->count * bits;
	size_t		sums = (size_t) k * x->d * sizeof(gk_int128);
	uint64_t   *kept = calloc(words + 1, sizeof(uint64_t));
	uint64_t   *want = calloc(words + 1, sizeof(uint64_t));
	float	   *other = aligned((size_t) k * x->d * sizeof(float));
	gk_int128  *minus = calloc(1, sums);
	int64_t		minus_count[GK_CPU_SMALLK] = {0};
	int			turn = pick(0, k - 1);
	int			differ = 0;
	bool		good;

	for (int q = 0; q < k; q++)
		memcpy(other + q * x->d, c + (q + turn) % k * x->d, x->d * sizeof(float));
	for (int i = 0; i < rows; i++)
		for (int b = 0; b < bits; b++)
			want[i / GK_ROW_PAD * bits + b] |= (uint64_t) (label[i] >> b & 1) << i % GK_ROW_PAD;
	set->step_smallk(x, other, k, rows, expo, kept, sum, count);
	for (int i = 0; i < rows && k > 1; i++)
	{
		bool		other_label = false;

		for (int b = 0; b < bits; b++)
			other_label |= (kept[i / GK_ROW_PAD * bits + b] ^ want[i / GK_ROW_PAD * bits + b]) >> i % GK_ROW_PAD & 1;
		differ += other_label;
	}
	good = set->move_smallk(x, c, k, rows, expo, kept, sum, count) == differ;
	good = good && (k == 1 || memcmp(kept, want, words * sizeof(uint64_t)) == 0);
	good = good && set->move_smallk(x, c, k, rows, expo, kept, sum, count) == 0;
	good = good && set->step_smallk(x, c, k, rows, expo, kept, minus, minus_count) == 0;
	for (int i = 0; i < (k - 1) * x->d; i++)
		sum[i] -= minus[i];
	for (int q = 0; q < k - 1; q++)
		count[q] -= minus_count[q];
	for (int i = 0; i < (k - 1) * x->d; i++)
		good = good && sum[i] == 0;
	for (int q = 0; q < k - 1; q++)
		good = good && count[q] == 0;
	free(kept);
	free(want);
	free(other);
	free(minus);
	return good;
}

static void
test_few(void)
{
	static int32_t label[FEW_ROWS],
				near[FEW_ROWS];
	static float d2[FEW_ROWS];
	int			bad[4][3] = {{0}};

	for (int number = 0; number < 5 * CASES; number++)
	{
		int			k = 1 + number % GK_CPU_SMALLK;
		int			d = 1 + number / GK_CPU_SMALLK % 17;
		int			kind = number % 3;
		bool		full = number % 67 == 0;
		int			rows = full ? FEW_ROWS - 28 : pick(0, 9) ? pick(1, 400) : pick(1, MAX_ROWS);
		int			tiles = (rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
		int			n = tiles * GK_ROW_PAD;
		size_t		ahead = 1024;
		float	   *x = aligned(((size_t) n * d + ahead) * sizeof(float));
		float	   *c = aligned((size_t) k * d * sizeof(float));
		int32_t    *expo = calloc(d, sizeof(int32_t));
		GkTiles		in_place = {x, GK_ROW_PAD, n, tiles, d};
		gk_int128  *sum = calloc((size_t) k * d, sizeof(gk_int128));
		gk_int128  *want = calloc((size_t) k * d, sizeof(gk_int128));
		int64_t    *count = calloc(k, sizeof(int64_t));
		int64_t    *want_count = calloc(k, sizeof(int64_t));

		for (int j = 0; j < d; j++)
		{
			expo[j] = kind == 2 ? pick(-50, 50) : 0;
			for (int i = 0; i < n; i++)
			{
				double		v = full ? 1.0 : kind == 0 ? (double) (pick(0, 1) * 2 - 1) :
				kind == 1 && pick(0, 1) ? pick(-3, 3) * 0.25 :
				pick(0, 4) ? test_uniform(&rng) * 2 - 1 : (test_uniform(&rng) * 2 - 1) * 0x1p-20;

				x[(size_t) j * n + i] = i >= rows ? 0.0f :
					gk_to_grid(v * gk_pow2(expo[j]), gk_grid_magic(expo[j]));
			}
			for (int q = 0; q < k; q++)
				c[q * d + j] = pick(0, 3) ? x[(size_t) j * n + pick(0, rows - 1)] : kind == 2 ? 0.0f : FLT_MAX;
		}
		for (int i = 0; i < n; i++)
			d2[i] = -1.0f, near[i] = -1;
		gk_cpu_scalar.assign(&in_place, c, 0, k, near, d2);
		for (int how = 0; how < 2; how++)
		{
			memset(want, 0, (size_t) k * d * sizeof(gk_int128));
			memset(want_count, 0, k * sizeof(int64_t));
			for (int i = 0; i < n; i++)
			{
				label[i] = how ? near[i] : i < rows ? pick(0, k - 1) : label[rows - 1];
				if (i >= rows)
					continue;
				want_count[label[i]]++;
				for (int j = 0; j < d; j++)
					want[label[i] * d + j] += gk_fixed(x[(size_t) j * n + i], gk_pow2(GK_GRID_BITS - expo[j]));
			}
			for (int q = 0; q < nsets; q++)
			{
				memset(sum, 0, (size_t) k * d * sizeof(gk_int128));
				memset(count, 0, k * sizeof(int64_t));
				if (how == 0 && sets[q]->add_smallk != NULL)
					sets[q]->add_smallk(&in_place, label, rows, k, expo, sum, count);
				else if (how == 1 && sets[q]->step_smallk != NULL)
				{
					if (sets[q]->move_smallk != NULL && (k - 1) * d <= sets[q]->smallk_sums)
						bad[q][2] += !moves_few(sets[q], &in_place, c, k, rows, expo, near, sum, count);
					sets[q]->step_smallk(&in_place, c, k, rows, expo, NULL, sum, count);
				}
				else
					continue;
				bad[q][how] += memcmp(sum, want, (size_t) (k - 1) * d * sizeof(gk_int128)) != 0 ||
					memcmp(count, want_count, (k - 1) * sizeof(int64_t)) != 0;
			}
		}
		free(x);
		free(c);
		free(expo);
		free(sum);
		free(want);
		free(count);
		free(want_count);
	}
	for (int q = 0; q < nsets; q++)
	{
		if (sets[q]->add_smallk != NULL)
			ok(bad[q][0] == 0 && bad[q][1] == 0,
			   "%s few clusters: sums and counts by labels (%d wrong), in one pass (%d wrong)",
			   sets[q]->name, bad[q][0], bad[q][1]);
		if (sets[q]->move_smallk != NULL)
			ok(bad[q][2] == 0, "%s few clusters: what has moved since other centroids (%d wrong)", sets[q]->name, bad[q][2]);
	}
}

/* ---- sums of distances, races ---- */

/* What tally_smallk() has to give, row by row. */
static bool
right_tally(const GkTally *t, const float *d2, const float *w, const int32_t *label, int rows, int cluster, double scale)
{
	GkTally		want = {0};

	for (int i = 0; i < rows; i++)
	{
		int64_t		hi,
					lo;

		if (label[i] != cluster)
			continue;
		gk_d2_split(w ? (double) w[i] * (double) d2[i] : (double) d2[i], scale, &hi, &lo);
		want.count++;
		want.hi += hi;
		want.lo += lo;
		want.max_d2 = fmaxf(want.max_d2, d2[i]);
	}
	return t->count == want.count && t->hi == want.hi && t->lo == want.lo && t->max_d2 == want.max_d2;
}

static void
test_tally_few(void)
{
	static float d2[GK_PACKAGE];
	static float w[GK_PACKAGE];
	static int32_t label[GK_PACKAGE];
	uint64_t	rng = 77;

	for (int q = 0; q < nsets; q++)
	{
		int			bad = 0;

		if (sets[q]->tally_smallk == NULL)
			continue;
		for (int n = 0; n < 400; n++)
		{
			int			k = 1 + n % GK_CPU_SMALLK;
			int			rows = n < 40 ? n : n == 40 ? GK_PACKAGE : (int) (test_uniform(&rng) * 500);
			double		scale = ldexp(1.0, 40 - n % 7);
			GkTally		t[GK_CPU_SMALLK];

			for (int i = 0; i < rows; i++)
			{
				/* some over the largest that is expected */
				d2[i] = (float) (ldexp(test_uniform(&rng), n % 7) * (i % 50 == 49 ? 2.0 : 1.0));
				w[i] = (float) test_uniform(&rng);
				label[i] = (int) (test_uniform(&rng) * k);
			}
			sets[q]->tally_smallk(d2, n % 2 ? w : NULL, label, rows, k, scale, t);
			for (int c = 0; c < k; c++)
				bad += !right_tally(&t[c], d2, n % 2 ? w : NULL, label, rows, c, scale);
		}
		ok(bad == 0, "%s tally_smallk (%d clusters differ)", sets[q]->name, bad);
	}
}

static void
test_sum_d2(void)
{
	static float d2[GK_PACKAGE],
				w[GK_PACKAGE];
	int			bad[4] = {0};

	for (int number = 0; number < CASES; number++)
	{
		int			rows = number % 8 == 0 ? GK_PACKAGE : pick(1, 600);
		double		scale = gk_pow2(pick(-90, 90));
		bool		weighted = number % 2;
		gk_int128	want = 0;

		for (int i = 0; i < rows; i++)
		{
			/* Up to and beyond the limit, down to what is cut off. */
			d2[i] = pick(0, 60) == 0 ? INFINITY : pick(0, 9) == 0 ? 0.0f :
				gk_to_float(ldexp(test_uniform(&rng), pick(-45, 2)) * 0x1p40 / scale);
			w[i] = gk_to_grid(test_uniform(&rng), gk_grid_magic(0)) + 0x1p-40f;
			want += gk_d2_fixed(weighted ? (double) w[i] * (double) d2[i] : (double) d2[i], scale);
		}
		for (int q = 0; q <= nsets; q++)
		{
			int64_t		hi = 0,
						lo = 0;

			(q < nsets ? sets[q] : &gk_cpu_scalar)->sum_d2(d2, weighted ? w : NULL, rows, scale, &hi, &lo);
			bad[q] += (gk_int128) hi * ((gk_int128) 1 << 40) + lo != want;
		}
	}
	for (int q = 0; q <= nsets; q++)
		ok(bad[q] == 0, "%s sum_d2 (%d of %d differ)", q < nsets ? sets[q]->name : "scalar", bad[q], CASES);
}

/* The key under which a row's hash is h: gk_mix() backwards. */
static uint64_t
key_for(uint64_t h, int64_t row)
{
	uint64_t	z = h;

	z = (z ^ z >> 31 ^ z >> 62) * UINT64_C(0x319642b2d24d8ec3);
	z = (z ^ z >> 27 ^ z >> 54) * UINT64_C(0x96de1b173f119089);
	z = z ^ z >> 30 ^ z >> 60;
	return z - (uint64_t) row * UINT64_C(0x9e3779b97f4a7c15);
}

static void
test_race(void)
{
	int			missed[4] = {0};
	int			loose[4] = {0};
	int			winners = 0;

	for (int number = 0; number < 5000; number++)
	{
		float		d2[GK_ROW_PAD],
					w[GK_ROW_PAD];
		double		keys[GK_ROW_PAD];
		double		worst;
		uint64_t	key = gk_key(number, 0, 0);
		int64_t		row = (int64_t) pick(0, 1 << 30) * GK_ROW_PAD;
		bool		use_d2 = pick(0, 3),
					weighted = pick(0, 1);
		int			close = number % 4 == 0 ? pick(0, GK_ROW_PAD - 1) : -1;

		/* One u next to 1, where -ln u and 1 - u are all but the same. */
		if (close >= 0)
			key = key_for(~(uint64_t) pick(0, 1 << 20) << pick(0, 12), row + close);

		for (int i = 0; i < GK_ROW_PAD; i++)
		{
			d2[i] = pick(0, 9) ? (float) ldexp(test_uniform(&rng), pick(-20, 20)) : pick(0, 9) ? 0.0f : INFINITY;
			w[i] = (float) ldexp(test_uniform(&rng), -pick(0, 38));
			keys[i] = gk_race_key(gk_hash(key, row + i), (weighted ? (double) w[i] : 1.0) * (use_d2 ? (double) d2[i] : 1.0));
		}
		/* The bar is one of the keys themselves, where rounding would show. */
		worst = close >= 0 && pick(0, 4) ? keys[close] : pick(0, 20) ? keys[pick(0, GK_ROW_PAD - 1)] : pick(0, 1) ? INFINITY : 0.0;
		for (int q = 0; q <= nsets; q++)
		{
			uint64_t	may = (q < nsets ? sets[q] : &gk_cpu_scalar)->race(use_d2 ? d2 : NULL, weighted ? w : NULL, key, row, worst);

			for (int i = 0; i < GK_ROW_PAD; i++)
			{
				bool		in = may >> i & 1;

				winners += keys[i] <= worst;
				missed[q] += keys[i] <= worst && !in && !(use_d2 && d2[i] == 0.0f);
				/* 1 - u is at least a third of -ln u for u > 0.06. */
				loose[q] += in && keys[i] > 3 * worst && gk_uniform(gk_hash(key, row + i)) > 0.06 && worst > 0.0;
			}
		}
	}
	for (int q = 0; q <= nsets; q++)
		ok(missed[q] == 0 && loose[q] == 0 && winners > 10000, "%s race: no winner missed (%d), no idle guess (%d)",
		   q < nsets ? sets[q]->name : "scalar", missed[q], loose[q]);
}

/* ---- candidates for seeds ---- */

static bool
same_closer(const GkCandidates *a, const GkCandidates *b, bool weighted)
{
	return a->count == b->count && memcmp(a->was, b->was, a->count * sizeof(float)) == 0 &&
		memcmp(a->is, b->is, a->count * sizeof(float)) == 0 &&
		(!weighted || memcmp(a->weight, b->weight, a->count * sizeof(float)) == 0);
}

/* Does a tile with its rows turned have the same values?  (AddressSanitizer sees what is written past its last row.) */
static bool
turned_well(const GkCpuKernels *set, const Data *a)
{
	size_t		pitch = ((a->d + 15) / 16 | 1) * 16;
	float	   *out = malloc(GK_ROW_PAD * pitch * sizeof(float));
	bool		good = true;

	set->turn(a->in_place.x, a->stride, a->d, out, pitch);
	for (int i = 0; i < GK_ROW_PAD; i++)
		for (int j = 0; j < a->d; j++)
			good &= memcmp(&out[i * pitch + j], &a->in_place.x[j * a->stride + i], sizeof(float)) == 0;
	free(out);
	return good;
}

/* Distances of pairs: rows of a tile, in order or not, rows of a block, and points with their features in a row. */
static void
test_pairs(void)
{
	enum
	{
		PAIRS = 70
	};
	int			bad[3] = {0};
	int			wrong[3] = {0};

	for (int number = 0; number < CASES; number++)
	{
		Data		a = make(number);
		int			n = pick(1, PAIRS);
		bool		points = number % 3 == 0;
		const float *x = points ? a.c : a.in_place.x;
		size_t		stride = points ? 1 : a.stride;
		int32_t		row[PAIRS];
		int32_t		label[PAIRS];
		float		want[PAIRS];
		float		got[PAIRS];

		for (int i = 0; i < n; i++)
		{
			row[i] = points ? pick(0, a.k - 1) * a.d : pick(0, number % 3 == 1 ? GK_ROW_PAD - 1 : a.tiles * GK_ROW_PAD - 1);
			if (number % 6 == 1)
				row[i] = i % GK_ROW_PAD;
			label[i] = pick(0, a.k - 1);
		}
		gk_cpu_scalar.own_distance(x, stride, row, label, n, a.c, a.d, want);
		for (int q = 0; q < nsets; q++)
		{
			memset(got, 0xff, sizeof(got));
			sets[q]->own_distance(x, stride, row, label, n, a.c, a.d, got);
			bad[q] += memcmp(want, got, n * sizeof(float)) != 0 || (n < PAIRS && !isnan(got[n]));
			wrong[q] += sets[q]->turn != NULL && !turned_well(sets[q], &a);
		}
		discard(&a);
	}
	for (int q = 0; q < nsets; q++)
	{
		ok(bad[q] == 0, "%s pairs (%d of %d differ)", sets[q]->name, bad[q], CASES);
		if (sets[q]->turn == NULL)
			skip("%s does not turn tiles", sets[q]->name);
		else
			ok(wrong[q] == 0, "%s turned tiles (%d of %d differ)", sets[q]->name, wrong[q], CASES);
	}
}

/* Rows that are closer, and which candidates have some. */
static void
test_closer(void)
{
	static GkCandidates want[GK_MAX_CANDIDATES],
				got[GK_MAX_CANDIDATES];
	int			bad[3] = {0};
	int			some = 0;

	for (int number = 0; number < CASES; number++)
	{
		Data		a = make(number);
		int			nc = a.k < GK_MAX_CANDIDATES ? a.k : GK_MAX_CANDIDATES;
		int			rows = pick(1, GK_ROW_PAD);
		const float *w = number % 2 ? a.x : NULL;
		float		d2[GK_ROW_PAD];
		float		all[2][GK_MAX_CANDIDATES * GK_ROW_PAD];
		unsigned	found;

		for (int i = 0; i < GK_ROW_PAD; i++)
			d2[i] = pick(0, 2) ? gk_d2(a.in_place.x + i, a.stride, a.c + (size_t) pick(0, a.k - 1) * a.d, a.d) : pick(0, 1) ? INFINITY : 0.0f;
		for (int k = 0; k < GK_MAX_CANDIDATES; k++)
			want[k].count = 0;
		found = gk_cpu_scalar.candidates(&a.in_place, 0, a.c, nc, d2, w, rows, want, number % 3 ? all[0] : NULL);
		for (int k = 0; k < nc; k++)
		{
			some += want[k].count > 0;
			if ((found >> k & 1) != (want[k].count > 0))
				bad[0]++;
		}
		for (int q = 0; q < nsets; q++)
		{
			for (int k = 0; k < nc; k++)
				got[k].count = 0;
			bad[q] += sets[q]->candidates(&a.in_place, 0, a.c, nc, d2, w, rows, got, number % 3 ? all[1] : NULL) != found;
			for (int k = 0; k < nc; k++)
				bad[q] += !same_closer(&want[k], &got[k], w != NULL) ||
					(number % 3 && memcmp(all[0] + k * GK_ROW_PAD, all[1] + k * GK_ROW_PAD, rows * sizeof(float)) != 0);
		}
		discard(&a);
	}
	for (int q = 0; q < nsets; q++)
		ok(bad[q] == 0 && some > 300, "%s closer (%d differ, %d candidates with rows)", sets[q]->name, bad[q], some);
}

/*
 * Boxes around every eight points of eight tiles.  The largest D is now and then the very
 * distance of a point, now and then a little more: a box may be left out only when none
 * of its points is closer.
 */
static void
test_reach(void)
{
	enum
	{
	IN_BOX = 8};
	int			bad[4] = {0};
	int			missed = 0;
	int			out = 0;

	for (int number = 0; number < CASES; number++)
	{
		int			kind = number % KINDS;
		int			d = pick(1, 20);
		float	   *x = malloc(sizeof(float) * GK_ROW_PAD * IN_BOX * d);
		float	   *low = malloc(sizeof(float) * GK_ROW_PAD * d);
		float	   *high = malloc(sizeof(float) * GK_ROW_PAD * d);
		float		c[20];
		float		most[GK_ROW_PAD];
		uint64_t	want;

		for (int j = 0; j < d; j++)
			c[j] = value(kind);
		for (int i = 0; i < GK_ROW_PAD; i++)
		{
			for (int j = 0; j < d; j++)
			{
				low[j * GK_ROW_PAD + i] = INFINITY;
				high[j * GK_ROW_PAD + i] = -INFINITY;
				for (int r = 0; r < IN_BOX; r++)
				{
					float		v = pick(0, 3) || r == 0 ? value(kind) : x[(i * IN_BOX) * d + j];

					x[(i * IN_BOX + r) * d + j] = v;
					low[j * GK_ROW_PAD + i] = fminf(low[j * GK_ROW_PAD + i], v);
					high[j * GK_ROW_PAD + i] = fmaxf(high[j * GK_ROW_PAD + i], v);
				}
			}
			most[i] = gk_d2(x + (i * IN_BOX + pick(0, IN_BOX - 1)) * d, 1, c, d);
			most[i] = pick(0, 1) ? most[i] : pick(0, 2) ? nextafterf(most[i], INFINITY) : pick(0, 1) ? 0.0f : INFINITY;
		}
		want = gk_cpu_scalar.open_boxes(low, high, GK_ROW_PAD, c, d, most);
		for (int i = 0; i < GK_ROW_PAD; i++)
		{
			out += !(want >> i & 1);
			for (int r = 0; r < IN_BOX; r++)
				missed += !(want >> i & 1) && gk_d2(x + (i * IN_BOX + r) * d, 1, c, d) < most[i];
		}
		for (int q = 0; q < nsets; q++)
			bad[q] += sets[q]->open_boxes(low, high, GK_ROW_PAD, c, d, most) != want;
		free(x);
		free(low);
		free(high);
	}
	ok(missed == 0 && out > 1000, "scalar reach: no point that is closer left out (%d, %d boxes out)", missed, out);
	for (int q = 0; q < nsets; q++)
		ok(bad[q] == 0, "%s reach (%d of %d differ)", sets[q]->name, bad[q], CASES);
}

/* ---- dispatch and the single point ---- */

/* Of the distances of one point to all centroids, those that are not the chain's, and writes beyond them. */
static int
count_wrong_distances(const Data *a, const float *point)
{
	float		d2[MAX_K + 1];
	int			bad = 0;

	d2[a->k] = -1.0f;
	gk_distances(point, a->d, a->c, a->k, d2);
	for (int i = 0; i < a->k; i++)
	{
		float		want = gk_d2(point, 1, a->c + i * a->d, a->d);

		bad += memcmp(&d2[i], &want, sizeof(want)) != 0;
	}
	return bad + (d2[a->k] != -1.0f);
}

static void
test_dispatch(void)
{
	char		reason[128] = "";
	int			bad = 0;

	ok(gk_cpu_set_simd("auto", reason, sizeof(reason)) &&
	   strcmp(gk_cpu_simd(), nsets ? sets[0]->name : "scalar") == 0, "auto takes the best: %s", gk_cpu_simd());
	ok(!gk_cpu_set_simd("mmx", reason, sizeof(reason)) && strstr(reason, "mmx") && strstr(reason, "avx2"),
	   "an unknown name is refused: %s", reason);
	for (int q = 0; q < 3; q++)
	{
		bool		have = false;

		for (int i = 0; i < nsets; i++)
			have |= strcmp(sets[i]->name, all_sets[q]) == 0;
		reason[0] = '\0';
		if (gk_cpu_set_simd(all_sets[q], reason, sizeof(reason)) != have)
			bad++;
		else if (have ? strcmp(gk_cpu_simd(), all_sets[q]) != 0 : reason[0] == '\0')
			bad++;
	}
	ok(bad == 0, "each name is taken or refused with a reason (%s)", reason);
	bad = 0;
	for (int i = 0; i < nsets; i++)
		bad += sets[i]->columns == NULL || (sets[i]->lanes > 4 && sets[i]->columns == &gk_columns_base);
	ok(bad == 0 && gk_cpu_scalar.columns == &gk_columns_base, "sets of longer vectors have their own loops over columns");

	for (int level = 0; level < 2; level++)
	{
		int			bad_distances = 0;

		bad = 0;
		gk_cpu_set_simd(level ? "scalar" : "auto", reason, sizeof(reason));
		for (int number = 0; number < CASES; number++)
		{
			Data		a = make(number);
			float		point[MAX_D];
			int32_t		label[GK_ROW_PAD];
			float		d2[GK_ROW_PAD];
			float		got;

			a.in_place.count = 1;
			start(label, d2, GK_ROW_PAD);
			gk_cpu_scalar.assign(&a.in_place, a.c, 0, a.k, label, d2);
			for (int i = 0; i < GK_ROW_PAD; i += 9)
			{
				for (int j = 0; j < a.d; j++)
					point[j] = a.x[(size_t) j * a.stride + a.first + i];
				bad += gk_nearest(point, a.d, a.c, a.k, &got) != label[i] || memcmp(&got, &d2[i], sizeof(got)) != 0;
				bad_distances += count_wrong_distances(&a, point);
			}
			discard(&a);
		}
		ok(bad == 0, "gk_nearest (%s): %d differ", level ? "scalar" : "auto", bad);
		ok(bad_distances == 0, "gk_distances (%s): %d differ", level ? "scalar" : "auto", bad_distances);
	}
}

int
main(void)
{
	for (int q = 0; q < 3; q++)
	{
		char		reason[128];

		sets[nsets] = gk_cpu_kernels_named(all_sets[q], reason, sizeof(reason));
		if (sets[nsets] != NULL)
			nsets++;
		else
			skip("%s", reason);
	}
	test_assign();
	test_add();
	test_few();
	test_sum_d2();
	test_tally_few();
	test_race();
	test_pairs();
	test_closer();
	test_reach();
	test_dispatch();
	return done_testing();
}
