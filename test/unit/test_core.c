/*
 * The core without a backend: exact sums, conversions, the store, preparation,
 * randomness.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/store/gk_batch.h"
#include "core/gk_numerics.h"
#include "core/store/gk_store.h"
#include "gk_test.h"
#include "gk_testhost.h"

/* ---- exact sums ---- */

static void
test_wide(void)
{
	uint64_t	rng = 1;
	static double x[5000];
	GkWide		a,
				b;
	GkColumnStats c;

	/* Values 600 binary orders apart: order must not matter, cancellation must be exact. */
	for (int i = 0; i < 5000; i += 2)
	{
		x[i] = ldexp(test_normal(&rng), (int) (test_uniform(&rng) * 600) - 300);
		x[i + 1] = -x[i];
	}
	x[4998] = 3.0;
	x[4999] = 4.5;
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	memset(&c, 0, sizeof(c));
	for (int i = 0; i < 5000; i++)
		gk_wide_add(&a, x[i]);
	for (int i = 4999; i >= 0; i--)
		gk_wide_add(&b, x[i]);
	for (int i = 0; i < 5000; i += 1000)
		gk_columns()->observe(&c, x + i, 1000);
	ok(gk_wide_mean(&a, 1) == 7.5 && gk_wide_mean(&b, 1) == 7.5 && gk_wide_mean(&c.sum, 1) == 7.5,
	   "values of 600 binary orders cancel exactly, forwards, backwards, blockwise");
	ok(gk_wide_mean(&a, 3) == 2.5, "mean is the rounded sum divided by n");

	/* Ends of the range. */
	memset(&a, 0, sizeof(a));
	gk_wide_add(&a, 1.7e308);
	gk_wide_add(&a, 1.7e308);
	ok(gk_wide_mean(&a, 2) == 1.7e308, "a sum beyond the double range has a mean");
	memset(&a, 0, sizeof(a));
	gk_wide_add(&a, -5e-324);
	ok(gk_wide_mean(&a, 1) == -5e-324, "the smallest subnormal survives");
	memset(&a, 0, sizeof(a));
	ok(gk_wide_mean(&a, 7) == 0.0, "an empty sum is 0");
}

/* Whole numbers times a power of two, whose sum is known; most digits of a sum are 0. */
static void
test_wide_mean(void)
{
	uint64_t	rng = 5;
	int			bad = 0;

	for (int i = 0; i < 20000; i++)
	{
		int			n = 1 + (int) (test_uniform(&rng) * 40);
		int			bits = 1 + (int) (test_uniform(&rng) * 52);
		int			e = (int) (test_uniform(&rng) * 1950) - 1010;
		double		sign = (int) (test_uniform(&rng) * 3) - 1;
		gk_int128	sum = 0;
		GkWide		a;
		double		mean;

		memset(&a, 0, sizeof(a));
		for (int j = 0; j < n; j++)
		{
			double		v = floor(ldexp(test_uniform(&rng), bits));

			/* all of one sign, or either */
			v *= sign != 0 ? sign : test_uniform(&rng) < 0.5 ? -1 : 1;
			sum += (gk_int128) v;
			gk_wide_add(&a, ldexp(v, e));
		}
		mean = ldexp(gk_i128_to_double(sum) / n, e);
		bad += gk_wide_mean(&a, n) != mean;
	}
	ok(bad == 0, "means of whole numbers, large and small (%d wrong)", bad);
}

static void
test_ldexp(void)
{
	uint64_t	rng = 6;
	int			bad = 0;

	for (int i = 0; i < 200000; i++)
	{
		double		v = ldexp(test_normal(&rng), (int) (test_uniform(&rng) * 2200) - 1100);
		int			e = (int) (test_uniform(&rng) * 4800) - 2400;

		bad += gk_ldexp(v, e) != ldexp(v, e);
		bad += gk_ldexp(1.5, e) != ldexp(1.5, e);
	}
	ok(bad == 0 && isinf(gk_ldexp(INFINITY, -5)) && isnan(gk_ldexp(NAN, 5)),
	   "gk_ldexp() is ldexp(), subnormal and infinite results too");
}

/* Statistics of columns, every set's. */
static void
test_observe(void)
{
	static const char *const levels[] = {"scalar", "avx2", "avx512", "neon", "auto"};
	uint64_t	rng = 3;
	double		x[1024];
	float		f[1024];
	GkColumnStats doubles;
	GkColumnStats floats;
	int			bad_sums = 0;
	int			bad = 0;

	for (int level = 0; level < 5; level++)
	{
		char		reason[256];

		if (!gk_cpu_set_simd(levels[level], reason, sizeof(reason)))
			continue;
		/* Against the compiler's 113-bit sums where those are exact. */
		for (int round = 0; round < 200; round++)
		{
			quad		sum = 0;
			int			n = 1 + (int) (test_uniform(&rng) * 1023);

			gk_stats_clear(&doubles, 1);
			for (int i = 0; i < n; i++)
			{
				x[i] = ldexp(test_normal(&rng), (int) (test_uniform(&rng) * 40));
				sum += x[i];
			}
			gk_columns()->observe(&doubles, x, n);
			bad_sums += gk_wide_mean(&doubles.sum, 1) != (double) sum;
		}
		/* Floats: near each other, far apart, subnormal, zeros, and any number of them. */
		for (int round = 0; round < 400; round++)
		{
			int			n = round % 5 == 0 ? 1024 : (int) (test_uniform(&rng) * 100);
			int			orders = round % 3 == 0 ? 1 : round % 3 == 1 ? 25 : 250;
			double		min = INFINITY;
			double		max = -INFINITY;

			for (int i = 0; i < n; i++)
			{
				f[i] = (float) ldexp(test_normal(&rng), (int) ((test_uniform(&rng) - 0.6) * orders));
				if (test_uniform(&rng) < 0.1)
					f[i] = 0.0f;
				x[i] = f[i];
				min = fmin(min, x[i]);
				max = fmax(max, x[i]);
			}
			gk_stats_clear(&doubles, 1);
			gk_stats_clear(&floats, 1);
			gk_columns()->observe(&doubles, x, n);
			gk_columns()->observe_floats(&floats, f, n);
			bad += gk_wide_mean(&doubles.sum, 1) != gk_wide_mean(&floats.sum, 1) ||
				doubles.min != min || doubles.max != max || floats.min != min || floats.max != max;
		}
	}
	ok(bad_sums == 0, "block sums equal 113-bit sums, correctly rounded (%d differ)", bad_sums);
	ok(bad == 0, "statistics of floats are those of the same doubles (%d differ)", bad);
}

static void
test_int128(void)
{
	uint64_t	rng = 2;
	int			bad = 0;

	for (int i = 0; i < 100000; i++)
	{
		gk_int128	v = (gk_int128) (((unsigned __int128) gk_mix(rng) << 64) | gk_mix(rng + 1));
		int			shift = (int) (gk_mix(rng + 2) % 127);


		rng += 3;
		v >>= shift;
		if (i % 5 == 0)			/* near halfway cases */
			v = (v >> 60) * ((gk_int128) 1 << 60) + ((gk_int128) 1 << 59) + (i % 3) - 1;
		bad += gk_i128_to_double(v) != (double) v;
	}
	ok(bad == 0, "int128 to double rounds as the compiler does (%d of 100000 differ)", bad);
	ok(gk_i128_to_double(0) == 0.0 && gk_i128_to_double(-1) == -1.0 &&
	   gk_i128_to_double((gk_int128) 1 << 100) == 0x1p100, "int128 corner values");
}

static void
test_d2_fixed(void)
{
	uint64_t	rng = 3;
	int			bad = 0;

	for (int i = 0; i < 100000; i++)
	{
		float		v = (float) ldexp(test_uniform(&rng), -(int) (test_uniform(&rng) * 100));
		quad		exact = (quad) v * 0x1p40 * 0x1p40;

		bad += gk_d2_fixed(v, 0x1p40) != (gk_int128) exact;
	}
	ok(bad == 0, "squared distances become integers by truncation at 2^-80 (%d differ)", bad);
}

/* ---- randomness ---- */

static void
test_random(void)
{
	uint64_t	rng = 4;
	int			bad = 0;
	int			wins[3] = {0};
	const double weight[3] = {1.0, 2.0, 5.0};

	for (int i = 0; i < 100000; i++)
	{
		double		u = test_uniform(&rng);
		double		l = gk_neg_log(u);

		if (i < 1000)
			u = ldexp(0.5 + (double) i, -52), l = gk_neg_log(u);
		bad += fabs(l + log(u)) > 4e-16 * fabs(log(u)) + 1e-300;
	}
	ok(bad == 0, "gk_neg_log agrees with libm within two ulps (%d differ)", bad);
	for (int i = 0; i < 80000; i++)
	{
		uint64_t	key = gk_key(7, 0, i);
		int			best = 0;
		double		least = INFINITY;

		for (int r = 0; r < 3; r++)
		{
			double		k = gk_race_key(gk_hash(key, r), weight[r]);

			if (k < least)
				least = k, best = r;
		}
		wins[best]++;
	}
	/* Expected 10000, 20000, 50000; standard deviations below 140. */
	ok(abs(wins[0] - 10000) < 600 && abs(wins[1] - 20000) < 600 && abs(wins[2] - 50000) < 600,
	   "the race is won in proportion to the weights: %d %d %d", wins[0], wins[1], wins[2]);
	ok(gk_key(1, 0, 0) != gk_key(1, 0, 1) && gk_key(1, 0, 0) != gk_key(1, 1, 0) &&
	   gk_key(1, 0, 0) != gk_key(2, 0, 0), "seed, run and round all change the key");
}

/* ---- one row ---- */

/* The same as feature by feature, inside the range of the points of the fit and far outside. */
static void
test_rows(void)
{
	enum
	{
	D = 70};
	static const char *const levels[] = {"scalar", "avx2", "avx512", "neon", "auto"};
	uint64_t	rng = 5;
	double		x[D],
				center[D],
				scale[D];
	int32_t		expo[D];
	GkPrep		prep = {.center = center,.scale = scale,.expo = expo};
	int			differ = 0;

	for (int level = 0; level < 5; level++)
	{
		char		reason[256];

		if (!gk_cpu_set_simd(levels[level], reason, sizeof(reason)))
			continue;
		for (int round = 0; round < 2000; round++)
		{
			float		out[D];
			float		want;

			prep.d = 1 + round % D;
			for (int j = 0; j < prep.d; j++)
			{
				expo[j] = (int) (test_uniform(&rng) * (2 * GK_TOP_EXPO + 1)) - GK_TOP_EXPO;
				scale[j] = gk_pow2((int) (test_uniform(&rng) * 600) - 300);
				center[j] = test_normal(&rng) / scale[j];
				x[j] = center[j] + ldexp(test_normal(&rng), expo[j] - (int) (test_uniform(&rng) * 40)) / scale[j];
				if (test_uniform(&rng) < 0.1)
					x[j] = test_normal(&rng) * 1e300;
				if (test_uniform(&rng) < 0.1)
					x[j] = test_uniform(&rng) < 0.5 ? center[j] : -0.0;
			}
			gk_prepare_point(&prep, x, out);
			for (int j = 0; j < prep.d; j++)
			{
				want = gk_to_grid(gk_centre_scale(x[j], center[j], scale[j]), gk_grid_magic(expo[j]));
				differ += memcmp(&want, &out[j], sizeof(want)) != 0;
			}
		}
	}
	ok(differ == 0, "a row is prepared as its features are (%d differ)", differ);
}

/* ---- halves ---- */

/* All of them: sign, five bits of exponent, ten of fraction. */
static float
half_value(int half)
{
	int			exponent = half >> 10 & 31;
	double		fraction = (half & 1023) * 0x1p-10;
	double		v;

	if (exponent == 31)
		v = fraction == 0 ? INFINITY : NAN;
	else
		v = exponent == 0 ? ldexp(fraction, -14) : ldexp(1 + fraction, exponent - 15);
	return (float) (half >> 15 ? -v : v);
}

static void
test_halves(void)
{
	static const char *const levels[] = {"scalar", "avx2", "avx512", "neon", "auto"};
	static uint16_t halves[1 << 16];
	static float out[1 << 16];
	int			wrong = 0;

	for (int i = 0; i < 1 << 16; i++)
		halves[i] = (uint16_t) i;
	for (size_t l = 0; l < sizeof(levels) / sizeof(levels[0]); l++)
	{
		char		reason[200];

		if (!gk_cpu_set_simd(levels[l], reason, sizeof(reason)))
			continue;
		for (int from = 0, n = 1; from < 1 << 16; from += n, n = n % 37 + 1)
		{
			n = n < (1 << 16) - from ? n : (1 << 16) - from;
			gk_columns()->halves(halves + from, n, out + from);
		}
		for (int i = 0; i < 1 << 16; i++)
		{
			float		want = half_value(i);

			wrong += isnan(want) ? !isnan(out[i]) : memcmp(&want, &out[i], sizeof(want)) != 0;
		}
	}
	ok(wrong == 0, "every half is the float of its value (%d wrong)", wrong);
}

/* ---- floats ---- */

#define FLOAT_ROWS		16
#define FLOAT_COLUMNS	70

/* Copies and columns of floats that need not be aligned; each value once as one that is not finite. */
static void
test_floats(void)
{
	static const char *const levels[] = {"scalar", "avx2", "avx512", "neon", "auto"};
	static char rows[FLOAT_ROWS * (FLOAT_COLUMNS + 1) * sizeof(float)];
	static float x[FLOAT_ROWS][FLOAT_COLUMNS];
	static float out[FLOAT_COLUMNS][(2 * FLOAT_ROWS)];
	uint64_t	rng = 7;
	int			wrong = 0;
	int			turned = 0;

	for (size_t l = 0; l < sizeof(levels) / sizeof(levels[0]); l++)
	{
		const GkColumnKernels *set;
		char		reason[200];

		if (!gk_cpu_set_simd(levels[l], reason, sizeof(reason)))
			continue;
		set = gk_columns();
		for (int n = 1; n <= FLOAT_COLUMNS; n++)
			for (int odd = -1; odd < FLOAT_ROWS * n; odd += 1 + (int) (test_uniform(&rng) * FLOAT_ROWS))
			{
				const int	at = n % 4;
				const char *row[FLOAT_ROWS];
				float		copy[FLOAT_COLUMNS + 1];

				for (int i = 0; i < FLOAT_ROWS; i++)
				{
					row[i] = rows + i * (FLOAT_COLUMNS + 1) * sizeof(float);
					for (int j = 0; j < n; j++)
						x[i][j] = i * n + j == odd ? (odd % 3 == 0 ? NAN : odd % 3 == 1 ? INFINITY : -INFINITY) :
							j % 7 == 0 ? FLT_MAX : (float) test_normal(&rng);
					memcpy(rows + i * (FLOAT_COLUMNS + 1) * sizeof(float) + at, x[i], n * sizeof(float));
					copy[n] = 42;
					wrong += set->floats(row[i] + at, n, copy) != (odd < 0 || odd / n != i);
					wrong += memcmp(copy, x[i], n * sizeof(float)) != 0 || copy[n] != 42;
				}
				if (set->turn == NULL)
				{
					wrong += strcmp(levels[l], "avx512") == 0;
					continue;
				}
				turned++;
				memset(out, 0, sizeof(out));
				wrong += set->turn(row, at, n, (char *) (out[0] + 3), sizeof(out[0])) != (odd < 0);
				for (int j = 0; j < FLOAT_COLUMNS; j++)
					for (int i = 0; i < (2 * FLOAT_ROWS); i++)
					{
						float		want = j < n && i >= 3 && i < 3 + FLOAT_ROWS ? x[i - 3][j] : 0;

						wrong += memcmp(&want, &out[j][i], sizeof(want)) != 0;
					}
			}
	}
	ok(wrong == 0, "floats are copied and turned, and those that are not finite are found (%d wrong, %d turned)", wrong, turned);
}

/* ---- floats of the fit ---- */

/* In float32 as in float64, rounding and sums, wherever gk_float_column() says so. */
static void
test_fit_floats(void)
{
	static const char *const levels[] = {"scalar", "avx2", "avx512", "neon", "auto"};
	uint64_t	rng = 6;
	static float x[GK_COLUMN_BLOCK],
				out[GK_COLUMN_BLOCK],
				want[GK_COLUMN_BLOCK];
	int			differ = 0;
	int			sums = 0;

	for (int level = 0; level < 5; level++)
	{
		char		reason[256];

		if (!gk_cpu_set_simd(levels[level], reason, sizeof(reason)))
			continue;
		for (int round = 0; round < 3000; round++)
		{
			int			n = round % 7 == 0 ? GK_COLUMN_BLOCK : 1 + (int) (test_uniform(&rng) * 100);
			int			expo = (int) (test_uniform(&rng) * (2 * GK_TOP_EXPO + 1)) - GK_TOP_EXPO;
			double		scale = gk_pow2((int) (test_uniform(&rng) * 160) - 60);
			double		center = (float) ldexp(test_normal(&rng), expo + (int) (test_uniform(&rng) * 12) - 6) / scale;
			GkMoments	got = {0};
			GkMoments	expected = {0};
			gk_int128	units;

			if (round % 11 == 0)
				center = 0.0;
			if (!gk_float_column(center, scale))
				continue;
			for (int i = 0; i < n; i++)
			{
				/* Anywhere between the range's end and far below the grid, at halves of its unit, ... */
				double		v = ldexp(test_uniform(&rng) * 2 - 1, expo - (int) (test_uniform(&rng) * 60));
				double		unit = gk_pow2(expo - GK_GRID_BITS);

				if (i % 5 == 0)
					v = (rint(v / unit) + 0.5) * unit;
				if (i % 7 == 0)
					v = (i % 2 ? -1 : 1) * (gk_pow2(expo - 17) + (int) (test_uniform(&rng) * 5 - 2) * unit / 2);
				x[i] = (float) (center + v / scale);
				if (i % 13 == 0)
					x[i] = i % 2 ? (float) center : -0.0f;	/* ... nothing, ... */
				if (i % 17 == 0)
					x[i] = (float) ldexp(test_normal(&rng), -140);	/* ... subnormal */
				if (!(fabs(gk_centre_scale(x[i], center, scale)) <= gk_pow2(expo)))
					x[i] = (float) center;
				want[i] = gk_to_grid(gk_centre_scale(x[i], center, scale), gk_grid_magic(expo));
				units = gk_fixed(want[i], gk_pow2(GK_GRID_BITS - expo));
				expected.sum += units;
				expected.sq += units * units;
			}
			gk_columns()->moments(&got, want, n, expo);
			sums += got.sum != expected.sum || got.sq != expected.sq;
			got = (GkMoments) {0};
			gk_columns()->prepare_fit(x, n, (float) center, (float) scale, expo, out, &got);
			differ += memcmp(out, want, n * sizeof(float)) != 0;
			sums += got.sum != expected.sum || got.sq != expected.sq;
			gk_columns()->prepare_fit(x, n, (float) center, (float) scale, expo, x, &got);
			differ += memcmp(x, want, n * sizeof(float)) != 0;
		}
	}
	ok(differ == 0 && sums == 0, "floats of a fit are prepared in float32 as in float64 (%d differ, %d sums)", differ, sums);
	ok(gk_float_column(0.5, 0x1p-10) && !gk_float_column(0.1, 1.0) && !gk_float_column(0.0, 0.3) &&
	   !gk_float_column(0.0, 0x1p120) && !gk_float_column(0x1p121, 1.0), "other centres and scales are not");
}

/* ---- store and preparation ---- */

static int64_t
fingerprint(GkStore *s, GkError *err)
{
	const GkPoints *p = gk_store_points(s);
	uint64_t	h = 0;
	int64_t		row = 0;

	for (int c = 0; c < p->nchunks; c++)
	{
		GkChunk		v;

		if (gk_chunk_open(s, c, GK_READ_FEATURES, &v, err) != GK_OK)
			return -1;
		for (int i = 0; i < v.rows; i++, row++)
			for (int j = 0; j < p->d + (p->weighted ? 1 : 0) + p->naux; j++)
			{
				uint32_t	bits;

				memcpy(&bits, &v.data[(size_t) j * v.stride + i], 4);
				h = gk_mix(h ^ bits ^ ((uint64_t) row << 32) ^ ((uint64_t) j << 17));
			}
		for (int j = 0; j < p->d; j++)
			for (int i = v.rows; i < v.stride; i++)
				if (v.data[(size_t) j * v.stride + i] != 0.0f)
					return -2;
	}
	return row == p->n ? (int64_t) (h >> 1) : -3;
}

static void
test_store(void)
{
	enum
	{
	N = 20011, D = 5};
	uint64_t	rng = 5;
	double	   *x = malloc(sizeof(double) * N * D);
	double	   *w = malloc(sizeof(double) * N);
	TestHost	t;
	GkError		err;
	int64_t		want[4] = {0};
	int			bad = 0;

	for (int i = 0; i < N; i++)
	{
		x[i * D + 0] = (double) (i % 977);	/* float32 exactly */
		x[i * D + 1] = i < 15000 ? i : i + 0.1; /* becomes wide in the middle */
		x[i * D + 2] = 1e6 + test_normal(&rng);
		x[i * D + 3] = 1e-30 * test_normal(&rng);
		x[i * D + 4] = 1e30 * test_normal(&rng);
		w[i] = 0.25 + (i % 7);
	}
	for (int chunk = 0; chunk < 3; chunk++)
		for (int limit = 0; limit < 3; limit++)
			for (int mode = 0; mode < 4; mode++)
			{
				static const size_t chunks[] = {1 << 24, 100000, 4096};
				static const size_t limits[] = {SIZE_MAX, 300000, 20000};
				static const char *const levels[] = {"scalar", "avx2", "avx512", "auto"};
				int64_t		f;
				GkStore    *s;
				char		reason[256];

				/* A level that is not there leaves the last one. */
				(void) gk_cpu_set_simd(levels[(chunk + limit) % 4], reason, sizeof(reason));
				test_host_init(&t, 1 + chunk);
				s = load_store(&t, x, mode == 3 ? w : NULL, N, D, NULL, chunks[chunk], limits[limit], &err);
				f = -10;
				if (s && gk_store_prepare(s, mode == 1 ? GK_COSINE : GK_EUCLIDEAN, mode == 2, &err) == GK_OK)
				{
					if (limit > 0 && (s->spill_end == 0 || s->memory > limits[limit] + 100000))
						bad++;
					f = fingerprint(s, &err);
				}
				if (chunk == 0 && limit == 0)
					want[mode] = f;
				else
					bad += f != want[mode];
				bad += f < 0;
				gk_store_free(s);
				bad += t.live != 0;
				test_host_end(&t);
			}
	ok(bad == 0, "prepared points do not depend on chunk size, memory limit, threads or SIMD level (%d bad)", bad);

	/* Every prepared value is on its grid, and is what gk_prepare_point says. */
	for (int mode = 0; mode < 3; mode++)
	{
		const GkPoints *p;
		GkStore    *s;
		int			off_grid = 0,
					differ = 0,
					above = 0;

		test_host_init(&t, 2);
		s = load_store(&t, x, NULL, N, D, NULL, 1 << 20, SIZE_MAX, &err);
		gk_store_prepare(s, mode == 1 ? GK_COSINE : GK_EUCLIDEAN, mode == 2, &err);
		p = gk_store_points(s);
		for (int64_t i = 0; i < N; i++)
		{
			float		row[D],
						point[D];

			gk_store_row(s, i, row, &err);
			gk_prepare_point(&p->prep, x + i * D, point);
			differ += memcmp(row, point, sizeof(row)) != 0;
			for (int j = 0; j < D; j++)
			{
				double		g = (double) row[j] * gk_pow2(GK_GRID_BITS - p->prep.expo[j]);

				off_grid += g != floor(g);
				above += fabs((double) row[j]) > gk_pow2(p->prep.expo[j]);
			}
		}
		ok(off_grid == 0 && above == 0 && differ == 0,
		   "%s: values on the grid (%d off), bounded (%d above), equal to gk_prepare_point (%d differ)",
		   mode == 1 ? "cosine" : mode == 2 ? "standardized" : "euclidean", off_grid, above, differ);

		if (mode != 1)
		{
			gk_int128	sum[D] = {0};
			int			wrong = 0;

			for (int64_t i = 0; i < N; i++)
			{
				float		row[D];

				gk_store_row(s, i, row, &err);
				for (int j = 0; j < D; j++)
					sum[j] += gk_fixed(row[j], gk_pow2(GK_GRID_BITS - p->prep.expo[j]));
			}
			for (int j = 0; j < D; j++)
				wrong += sum[j] != p->total_sum[j];
			ok(wrong == 0 && p->total_mass == N, "exact totals");
		}
		if (mode == 2)
			ok(fabs(p->mean_var * ldexp(1.0, -2 * p->prep.unit_exp) - 1.0) < 1e-6,
			   "standardized features have variance 1 (%.9f)", p->mean_var * ldexp(1.0, -2 * p->prep.unit_exp));
		gk_store_free(s);
		test_host_end(&t);
	}
	free(x);
	free(w);
}

/* Memory of chunks that is asked for early: it fits, or a column has become wide. */
static void
test_ahead(void)
{
	enum
	{
	N = 6000000};
	double	   *x = malloc(sizeof(double) * N);
	int64_t		want[2] = {0};
	int64_t		live = 0;
	int			bad = 0;

	for (int wide = 0; wide < 2; wide++)
	{
		for (int i = 0; i < N; i++)
			x[i] = wide && i > N / 3 ? i + 0.1 : i;
		for (int threads = 1; threads <= 3; threads++)
		{
			TestHost	t;
			GkError		err;
			GkStore    *s;
			int64_t		print;

			test_host_init(&t, threads);
			s = load_store(&t, x, NULL, N, 1, NULL, 5 << 20, 1 << 30, &err);
			bad += s == NULL || gk_store_prepare(s, GK_EUCLIDEAN, false, &err) != GK_OK;
			print = s == NULL ? -1 : fingerprint(s, &err);
			if (threads == 1)
				want[wide] = print;
			bad += print < 0 || print != want[wide];
			gk_store_free(s);
			live += t.live;
			test_host_end(&t);
		}
	}
	ok(bad == 0 && live == 0, "large chunks are the same with threads that find their memory (%d differ)", bad);

	/* blocks taken from the host: nobody knows how many rows come, more, as many, fewer */
	{
		static const double expected[4] = {-1, 2.0 * N, N, N / 2};
		int64_t		blocks[4];

		for (int i = 0; i < 4; i++)
		{
			TestHost	t;
			GkError		err;
			GkStore    *s;

			test_host_init(&t, 2);
			bad += gk_store_create(&t.host, 1, false, 1, 5 << 20, 1 << 30, &s, &err) != GK_OK;
			gk_store_expect(s, expected[i]);
			bad += fill_store(s, x, NULL, N, 1, NULL, &err) != GK_OK;
			blocks[i] = t.allocs;
			gk_store_free(s);
			live += t.live;
			test_host_end(&t);
		}
		ok(bad == 0 && live == 0 && blocks[1] == blocks[0] && blocks[2] == blocks[0] - 1 && blocks[3] == blocks[0] - 1,
		   "no memory is asked for early that the expected rows do not need (%ld, %ld, %ld, %ld blocks)",
		   (long) blocks[0], (long) blocks[1], (long) blocks[2], (long) blocks[3]);
	}
	free(x);
}

/*
 * Batches that come many at a time and are moved by threads: the points are those of rows
 * one by one, whole numbers in batches of any size until one column becomes wide.
 */
static void
test_together(void)
{
	enum
	{
	N = 400000, D = 3, ROWS = 900, MOST = 400};
	double	   *x = malloc(sizeof(double) * N * D);
	uint64_t	rng = 11;
	GkBatch    *batches = calloc(MOST, sizeof(GkBatch));
	void	  **memory = calloc(MOST, sizeof(void *));
	int			bad = 0;
	int64_t		live = 0;

	for (int i = 0; i < N * D; i++)
		x[i] = floor(test_uniform(&rng) * 1e6) + (i % D == 1 && i > N * D / 2 ? 0.1 : 0.0);
	for (int b = 0; b < MOST; b++)
	{
		memory[b] = malloc(gk_batch_bytes(D, 1, ROWS));
		gk_batch_init(&batches[b], memory[b], D, 1, ROWS);
	}
	for (int limit = 0; limit < 2; limit++)
		for (int threads = 1; threads <= 4; threads++)
		{
			TestHost	t;
			GkError		err;
			size_t		bytes = limit ? (size_t) 1 << 20 : (size_t) 1 << 30;
			GkStore    *want;
			GkStore    *got = NULL;
			GkColumnStats stats[D];
			int			row = 0;

			test_host_init(&t, threads);
			want = load_store(&t, x, NULL, N, D, NULL, 3 << 19, bytes, &err);
			bad += gk_store_create(&t.host, D, false, 1, 3 << 19, bytes, &got, &err) != GK_OK;
			gk_stats_clear(stats, D);
			while (row < N)
			{
				int			n = 0;
				int			most = 1 + (int) (test_uniform(&rng) * MOST);

				for (; n < most && row < N; n++)
				{
					GkBatch    *b = &batches[n];
					int			rows = (int) (test_uniform(&rng) * (ROWS + 1));

					gk_batch_init(b, memory[n], D, 1, ROWS);
					for (; b->rows < rows && row < N; b->rows++, row++)
					{
						for (int j = 0; j < D; j++)
							gk_batch_put(b, j, x[(size_t) row * D + j]);
						gk_batch_aux(b, 0)[b->rows] = (uint32_t) row;
					}
					gk_batch_observe(b, stats);
				}
				bad += gk_store_add(got, batches, n, threads, &err) != GK_OK;
			}
			gk_store_observed(got, stats);
			bad += gk_store_prepare(want, GK_EUCLIDEAN, false, &err) != GK_OK ||
				gk_store_prepare(got, GK_EUCLIDEAN, false, &err) != GK_OK ||
				fingerprint(got, &err) != fingerprint(want, &err);
			gk_store_free(want);
			gk_store_free(got);
			live += t.live;
			test_host_end(&t);
		}
	ok(bad == 0 && live == 0, "batches moved together by 1 to 4 threads are the rows one by one (%d differ)", bad);
	for (int b = 0; b < MOST; b++)
		free(memory[b]);
	free(memory);
	free(batches);
	free(x);
}

static void
test_extremes(void)
{
	TestHost	t;
	GkError		err;
	GkStore    *s;
	const GkPoints *p;
	float		row[2];
	double		huge[6] = {1.7e308, 1.0, -1.7e308, 1.0, 1.0e308, 1.0};
	double		small[4] = {5e-324, 0.0, -5e-324, 0.0};
	double		same[6] = {0.1, -1.0, 0.1, -1.0, 0.1, -1.0};

	test_host_init(&t, 1);
	s = load_store(&t, huge, NULL, 3, 2, NULL, 1 << 20, SIZE_MAX, &err);
	ok(gk_store_prepare(s, GK_EUCLIDEAN, false, &err) == GK_OK &&
	   gk_store_row(s, 1, row, &err) == GK_OK && isfinite(row[0]) && row[0] < 0 && row[1] == 0.0f,
	   "differences beyond the double range stay finite");
	gk_store_free(s);
	s = load_store(&t, small, NULL, 2, 2, NULL, 1 << 20, SIZE_MAX, &err);
	ok(gk_store_prepare(s, GK_EUCLIDEAN, false, &err) == GK_OK &&
	   gk_store_row(s, 0, row, &err) == GK_OK && row[0] >= 0 && isfinite(row[0]), "subnormal columns");
	gk_store_free(s);
	s = load_store(&t, same, NULL, 3, 2, NULL, 1 << 20, SIZE_MAX, &err);
	ok(gk_store_prepare(s, GK_EUCLIDEAN, true, &err) == GK_OK &&
	   gk_store_row(s, 1, row, &err) == GK_OK && row[0] == 0.0f && row[1] == 0.0f, "constant columns become 0");
	p = gk_store_points(s);
	ok(p->mean_var == 0.0 && p->sum_sq == 0.0 && p->prep.center[0] == 0.1, "and have no variance, and are their own centre");
	gk_store_free(s);

	/* Prediction: a point ten thousand times farther out than those of the fit. */
	{
		double		range[2] = {0, 1000},
					far_out = 9e6;
		float		f,
					c[2],
					d2;

		s = load_store(&t, range, NULL, 2, 1, NULL, 1 << 20, SIZE_MAX, &err);
		gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
		p = gk_store_points(s);
		gk_model_prepare(&p->prep, range, 2, c);
		ok(gk_prepare_point(&p->prep, &far_out, &f) && gk_nearest(&f, 1, c, 2, &d2) == 1 &&
		   fabs(gk_distance_from_d2(&p->prep, d2) / (9e6 - 1000) - 1) < 1e-6,
		   "a point far outside has its nearest centroid and a distance");
		gk_store_free(s);
	}

	ok(gk_store_create(&t.host, 0, false, 0, 1, 1, &s, &err) == GK_ERR_LIMIT &&
	   gk_store_create(&t.host, GK_MAX_D + 1, false, 0, 1, 1, &s, &err) == GK_ERR_LIMIT,
	   "d of 0 and above the limit are refused: %s", err.message);
	ok(t.live == 0, "nothing left allocated");
	test_host_end(&t);
}

/* Exact mean: the numerics contract's first promise, on He et al.'s trap. */
static void
test_offset(void)
{
	enum
	{
	N = 100000};
	uint64_t	rng = 6;
	double	   *x = malloc(sizeof(double) * N);
	quad		sum = 0;
	TestHost	t;
	GkError		err;
	GkStore    *s;

	for (int i = 0; i < N; i++)
		sum += x[i] = 1e6 + 1e-3 * test_normal(&rng);
	test_host_init(&t, 2);
	s = load_store(&t, x, NULL, N, 1, NULL, 1 << 16, SIZE_MAX, &err);
	gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
	ok(fabs(gk_store_points(s)->prep.center[0] - (double) (sum / N)) <= 1e-2 * 0x1p-20,
	   "the centre is the exact mean to a millionth of the spread");
	gk_store_free(s);

	/* Whole numbers are prepared exactly. */
	for (int i = 0; i < N; i++)
		x[i] = 5e6 + (i % 4194301) * 41.0;
	s = load_store(&t, x, NULL, N, 1, NULL, 1 << 16, SIZE_MAX, &err);
	gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
	{
		const GkPrep *p = &gk_store_points(s)->prep;
		int			rounded = 0;

		for (int i = 0; i < N; i++)
		{
			float		f;

			gk_store_row(s, i, &f, &err);
			rounded += p->center[0] + (double) f / p->scale[0] != x[i];
		}
		ok(rounded == 0, "whole numbers are prepared without rounding (%d of %d rounded)", rounded, N);
	}
	gk_store_free(s);
	test_host_end(&t);
	free(x);
}

int
main(void)
{
	test_wide();
	test_wide_mean();
	test_ldexp();
	test_observe();
	test_int128();
	test_d2_fixed();
	test_random();
	test_rows();
	test_halves();
	test_floats();
	test_fit_floats();
	test_store();
	test_ahead();
	test_together();
	test_extremes();
	test_offset();
	return done_testing();
}
