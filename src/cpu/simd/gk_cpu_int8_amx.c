/*
 * gk_cpu_int8_amx.c - products of 8-bit integers (gk_cpu_int8.c) for processors with AMX.
 *
 * A tile register multiplies 64 features of 16 centroids and 16 points in the time of some eight of the instructions
 * that take four features of 16 points and one centroid (gk_cpu_int8_vnni.c): an eighth of their time.
 */
#include <string.h>

#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

#ifdef GK_CPU_AMX

#include "cpu/simd/gk_cpu_amx.h"
#include "cpu/simd/gk_cpu_vector_avx512.h"
#include "cpu/simd/gk_cpu_int8_closer.h"

#define LANES		16
#define INT8_GROUP	16
/* Words of a register's rows: 64 features. */
#define UNIT		16
/* Two groups of centroids and two vectors of points: four registers of sums, four of what is multiplied. */
#define GROUPS		2
#define INT8_VECTORS	2
/* Of the second run, at most. */
#define COARSE_WORDS	8

/*
 * A group of centroids is [words / 16][16 centroids][16 words], and words of the second run behind these are [words][16]: a
 * few of them take less time one by one than a register of sums of their own.
 */
static void
put(int32_t *group, int words, int q, const int32_t *word)
{
	int			w = 0;

	for (; w + UNIT <= words; w += UNIT)
		memcpy(group + w / UNIT * GK_AMX_REGISTER + q * UNIT, word + w, UNIT * sizeof(int32_t));
	for (; w < words; w++)
		group[w * INT8_GROUP + q] = word[w];
}

/* Two groups of centroids and 32 rows. */
typedef struct Products
{
	/* sums of the first run, [16 centroids][16 rows] */
	int32_t		first[GROUPS * INT8_VECTORS][GK_AMX_REGISTER] __attribute__((aligned(64)));
	const int32_t *y;			/* the words of the second one, of the first of these rows */
	const int32_t *c[GROUPS];
	__m128i		shift;
} Products;

/* Of rows of a tile from `row` on, and `groups` groups of centroids from k on. */
GK_INLINE void
multiply(Products *out, const GkInt8Points *x, const GkInt8 *s, int k, int groups, int row)
{
	const int32_t *y = x->y + row;
	const int32_t *c0 = s->c + (size_t) k * s->words;
	const int32_t *c1 = groups > 1 ? c0 + (size_t) INT8_GROUP * s->words : c0;

	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	for (int w = 0; w < s->end[0]; w += UNIT, y += UNIT * GK_ROW_PAD, c0 += GK_AMX_REGISTER, c1 += GK_AMX_REGISTER)
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
	_tile_stored(0, out->first[0], 64);
	_tile_stored(1, out->first[1], 64);
	_tile_stored(2, out->first[2], 64);
	_tile_stored(3, out->first[3], 64);
	/* registers are no operands that a compiler knows of */
	__asm__ volatile("" ::: "memory");
	out->y = y;
	out->c[0] = c0;
	out->c[1] = c1;
	out->shift = _mm_cvtsi32_si128(2 * s->finer[0]);
}

/* The second run's words of the 16 rows of vector p. */
GK_INLINE void
load_coarse(__m512i y[COARSE_WORDS], const Products *of, int p, int words)
{
	GK_UNROLL
	for (int w = 0; w < words; w++)
		y[w] = _mm512_loadu_si512(of->y + w * GK_ROW_PAD + p * LANES);
}

/* Centroid q of group g, in units of the last run. */
GK_INLINE __m512i
product(const Products *of, int g, int q, int p, const __m512i y[COARSE_WORDS], int words)
{
	__m512i		v = _mm512_load_si512(of->first[g * INT8_VECTORS + p] + q * LANES);

	if (words > 0)
		v = _mm512_sra_epi32(v, of->shift);
	GK_UNROLL
	for (int w = 0; w < words; w++)
		v = _mm512_dpbusd_epi32(v, y[w], _mm512_set1_epi32(of->c[g][w * INT8_GROUP + q]));
	return v;
}

/* What is made of products: the arguments of both, of which each takes its own. */
typedef struct Scan
{
	const GkInt8Points *x;
	const GkInt8 *s;
	int			k;
	int			groups;
	int			row;
	const float *d2;
	uint64_t   *closer;
	float	   *least;
	int32_t    *label;
} Scan;

/* Bits of those that may be closer. */
GK_INLINE void
scan_within(const Scan *a, const Products *products, int words)
{
	for (int p = 0; p < INT8_VECTORS; p++)
	{
		int			at = a->row + p * LANES;
		__m512		scale = _mm512_loadu_ps(a->x->tile->scale + at);
		__m512		above;
		__m512		reach;
		__m512i		y[COARSE_WORDS];

		limits(a->s, a->x->tile, a->d2 + at, at, &above, &reach);
		load_coarse(y, products, p, words);
		for (int g = 0; g < a->groups; g++)
			for (int q = 0; q < INT8_GROUP; q++)
			{
				int			i = g * INT8_GROUP + q;
				uint16_t	may = (uint16_t) may_be_closer(product(products, g, q, p, y, words), a->s->of + a->k + i, scale, above, reach);

				/* these rows' bits: a word's are in the order of its bytes */
				memcpy((char *) (a->closer + i) + at / 8, &may, sizeof(may));
			}
	}
}

/* The nearest of two groups and those before. */
GK_INLINE void
scan_least(const Scan *a, const Products *products, int words)
{
	for (int p = 0; p < INT8_VECTORS; p++)
	{
		int			at = a->row + p * LANES;
		__m512		scale = _mm512_loadu_ps(a->x->tile->scale + at);
		Nearest		so_far = {_mm512_loadu_ps(a->least + at), _mm512_loadu_si512(a->label + at)};
		__m512i		y[COARSE_WORDS];

		load_coarse(y, products, p, words);
		for (int g = 0; g < a->groups; g++)
			for (int q = 0; q < INT8_GROUP && a->k + g * INT8_GROUP + q < a->s->k; q++)
			{
				int			label = a->k + g * INT8_GROUP + q;

				so_far = nearer(so_far, product(products, g, q, p, y, words), a->s->of + label, scale, label);
			}
		_mm512_storeu_ps(a->least + at, so_far.least);
		_mm512_storeu_si512(a->label + at, so_far.label);
	}
}

/* Multiply, and make of it what `use` does: with as many words as there are, known to the compiler. */
#define SCAN(use, a) \
	do \
	{ \
		Products	products; \
\
		multiply(&products, (a)->x, (a)->s, (a)->k, (a)->groups, (a)->row); \
		switch ((a)->s->words - (a)->s->end[0]) \
		{ \
			case 0: use(a, &products, 0); break; \
			case 2: use(a, &products, 2); break; \
			case 4: use(a, &products, 4); break; \
			case 6: use(a, &products, 6); break; \
			default: use(a, &products, COARSE_WORDS); break; \
		} \
	} while (0)

GK_INLINE int
groups_from(const GkInt8 *s, int k)
{
	return s->k - k > INT8_GROUP ? GROUPS : 1;
}

GK_TARGET static __attribute__((noinline)) void
within(const GkInt8Points *x, const GkInt8 *s, int k, int row, const float *d2, uint64_t *closer)
{
	Scan		a = {.x = x,.s = s,.k = k,.groups = groups_from(s, k),.row = row,.d2 = d2,.closer = closer};

	SCAN(scan_within, &a);
}

GK_TARGET static __attribute__((noinline)) void
keep_least(const GkInt8Points *x, const GkInt8 *s, int k, int row, float *least, int32_t *label)
{
	Scan		a = {.x = x,.s = s,.k = k,.groups = groups_from(s, k),.row = row,.least = least,.label = label};

	SCAN(scan_least, &a);
}

GK_INLINE void
begin_products(void)
{
	gk_amx_begin();
}

GK_INLINE void
end_products(void)
{
	_tile_release();
}

#define INT8_SCAN	(GROUPS * INT8_GROUP)
#include "cpu/simd/gk_cpu_int8_scan.h"

const GkInt8Kernels gk_int8_amx = {
	.group = INT8_GROUP,.unit = UNIT,.coarse = 4 * COARSE_WORDS,.cost = 0.03,.put = put,
	.round = gk_cpu_int8_round,.round_centroid = gk_cpu_int8_round_centroid,.closer = closer,.guess = guess
};

#endif							/* GK_CPU_AMX */
