/*
 * gk_cpu_int8_amx.c - products of 8-bit integers (gk_cpu_int8.c) for processors with AMX.
 *
 * A tile register multiplies 64 features of 16 centroids and 16 points in the time of some eight of the instructions
 * that take four features of 16 points and one centroid (gk_cpu_int8_avx512.c): an eighth of their time.
 */
#include <math.h>
#include <string.h>

#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

#ifdef GK_CPU_AMX

#include "cpu/simd/gk_cpu_amx.h"
#include "cpu/simd/gk_cpu_int8_closer.h"

#define LANES		16
#define GROUP		16
/* Words of a register's rows: 64 features. */
#define UNIT		16
/* Two groups of centroids and two vectors of points: four registers of sums, four of what is multiplied. */
#define GROUPS		2
#define VECTORS		2

/* A group of centroids is [words / 16][16 centroids][16 words]. */
static void
put(int32_t *group, int words, int q, int w, uint32_t word)
{
	(void) words;
	group[w / UNIT * GK_AMX_REGISTER + q * UNIT + w % UNIT] = (int32_t) word;
}

/* Products of two groups and 32 rows: the sums of each run, and how they come together. */
typedef struct Products
{
	int32_t		run[GK_INT8_RUNS][GROUPS * VECTORS][GK_AMX_REGISTER] __attribute__((aligned(64)));	/* [16 centroids][16
																									 * rows] */
	__m128i		shift[GK_INT8_RUNS];
} Products;

/* Of rows of a tile from `row` on, and `groups` groups of centroids from k on. */
GK_INLINE void
multiply(Products *out, const GkInt8Points *x, const GkInt8 *s, int k, int groups, int row)
{
	const int32_t *y = x->y + row;
	const int32_t *c0 = s->c + (size_t) k * s->words;
	const int32_t *c1 = groups > 1 ? c0 + (size_t) GROUP * s->words : c0;

	for (int run = 0, w = 0; run < s->runs; run++)
	{
		_tile_zero(0);
		_tile_zero(1);
		_tile_zero(2);
		_tile_zero(3);
		for (; w < s->end[run]; w += UNIT, y += UNIT * GK_ROW_PAD, c0 += GK_AMX_REGISTER, c1 += GK_AMX_REGISTER)
		{
			_tile_loadd(4, c0, 64);
			_tile_loadd(6, y, GK_ROW_PAD * sizeof(int32_t));
			_tile_dpbsud(0, 4, 6);
			_tile_loadd(7, y + LANES, GK_ROW_PAD * sizeof(int32_t));
			_tile_dpbsud(1, 4, 7);
			_tile_loadd(5, c1, 64);
			_tile_dpbsud(2, 5, 6);
			_tile_dpbsud(3, 5, 7);
		}
		_tile_stored(0, out->run[run][0], 64);
		_tile_stored(1, out->run[run][1], 64);
		_tile_stored(2, out->run[run][2], 64);
		_tile_stored(3, out->run[run][3], 64);
		if (run + 1 < s->runs)
			out->shift[run] = _mm_cvtsi32_si128(2 * (s->finer[run] - s->finer[run + 1]));
	}
	/* registers are no operands that a compiler knows of */
	__asm__ volatile("" ::: "memory");
}

/* Centroid q of both groups and the 16 rows of vector p, in units of the last run. */
GK_INLINE __m512i
product(const Products *of, const GkInt8 *s, int q, int p)
{
	int			i = q / GROUP * VECTORS + p;
	int			at = q % GROUP * LANES;
	__m512i		v = _mm512_load_si512(of->run[0][i] + at);

	for (int run = 1; run < s->runs; run++)
		v = _mm512_add_epi32(_mm512_sra_epi32(v, of->shift[run - 1]), _mm512_load_si512(of->run[run][i] + at));
	return v;
}

/* Bits of those that may be closer. */
GK_TARGET static __attribute__((noinline)) void
within(const GkInt8Points *x, const float *d2, const GkInt8 *s, int k, int groups, int row, uint64_t *closer)
{
	Products	products;

	multiply(&products, x, s, k, groups, row);
	for (int p = 0; p < VECTORS; p++)
	{
		int			at = row + p * LANES;
		__m512		scale = _mm512_loadu_ps(x->tile->scale + at);
		__m512		above;
		__m512		reach;

		limits(s, x->tile, d2 + at, at, &above, &reach);
		for (int q = 0; q < groups * GROUP; q++)
		{
			uint16_t	may = may_be_closer(product(&products, s, q, p), s->of + k + q, scale, above, reach);

			/* these rows' bits: a word's are in the order of its bytes */
			memcpy((char *) (closer + q) + at / 8, &may, sizeof(may));
		}
	}
}

/* The nearest of two groups and those before. */
GK_TARGET static __attribute__((noinline)) void
keep_least(const GkInt8Points *x, const GkInt8 *s, int k, int groups, int row, float *least, int32_t *label)
{
	Products	products;

	multiply(&products, x, s, k, groups, row);
	for (int p = 0; p < VECTORS; p++)
	{
		int			at = row + p * LANES;
		__m512		scale = _mm512_loadu_ps(x->tile->scale + at);
		Nearest		so_far = {_mm512_loadu_ps(least + at), _mm512_loadu_si512(label + at)};

		for (int q = 0; q < groups * GROUP && k + q < s->k; q++)
			so_far = nearer(so_far, product(&products, s, q, p), s->of + k + q, scale, k + q);
		_mm512_storeu_ps(least + at, so_far.least);
		_mm512_storeu_si512(label + at, so_far.label);
	}
}

GK_TARGET static void
closer(int tiles, const GkInt8 *s, const GkInt8Points *x, const float *d2, uint64_t *out)
{
	size_t		width = (size_t) (s->k + GROUP - 1) / GROUP * GROUP;

	gk_amx_begin();
	for (int k = 0; k < s->k; k += GROUPS * GROUP)
		for (int t = 0; t < tiles; t++)
			for (int row = 0; row < GK_ROW_PAD; row += VECTORS * LANES)
				within(x + t, d2 + t * GK_ROW_PAD, s, k, s->k - k > GROUP ? GROUPS : 1, row, out + t * width + k);
	_tile_release();
}

GK_TARGET static void
guess(int tiles, const GkInt8 *s, const GkInt8Points *x, int32_t *label)
{
	float		least[GK_INT16_TILES * GK_ROW_PAD];

	for (int i = 0; i < tiles * GK_ROW_PAD; i++)
		least[i] = INFINITY;
	memset(label, 0, tiles * GK_ROW_PAD * sizeof(int32_t));
	gk_amx_begin();
	for (int k = 0; k < s->k; k += GROUPS * GROUP)
		for (int t = 0; t < tiles; t++)
			for (int row = 0; row < GK_ROW_PAD; row += VECTORS * LANES)
				keep_least(x + t, s, k, s->k - k > GROUP ? GROUPS : 1, row, least + t * GK_ROW_PAD, label + t * GK_ROW_PAD);
	_tile_release();
}

const GkInt8Kernels gk_int8_amx = {
	.group = GROUP,.unit = UNIT,.cost = 0.03,.step = 2,.put = put,.round = gk_cpu_avx512_int8_round,.closer = closer,.guess = guess
};

#endif							/* GK_CPU_AMX */
