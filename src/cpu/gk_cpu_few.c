/*
 * gk_cpu_few.c - assignment and Feature Sum of few clusters, AVX-512: sums stay in
 * registers, for small points in one pass with the distances, labels are never
 * written.  Here reading memory is the floor.
 *
 * Lanes are points, and a mask for each cluster says which are its own.  A sum of
 * doubles would take two conversions and two additions for 16 points; here a value
 * is cut into two integers of 32 bits instead.  It is x * 2^(expo - 40), |x| <=
 * 2^40, and adding 1.5 * 2^23 units leaves a float whose bits are those of that
 * constant plus the value in whole units:
 *   hi = x rounded to units of 2^(expo - 19):	|hi| <= 2^19
 *   lo = the rest in units of 2^(expo - 40):	|lo| <= 2^20
 * Both differences are exact.  GROUP rows add up to less than 2^31, so sums of the
 * raw bits, modulo 2^32 and less the constant's as often as there are rows, are
 * the sums.  The last cluster needs none: it is the total minus the rest.
 *
 * Rows past the end are zeros and add nothing but to a count, which is put right;
 * they are equal, so they are all in one cluster.
 */
#include "core/gk_numerics.h"
#include "cpu/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma,popcnt")))
#define GK_INLINE	GK_TARGET static inline __attribute__((always_inline))
#if defined(__clang__)
#define GK_UNROLL	_Pragma("clang loop unroll(full)")
#else
#define GK_UNROLL	_Pragma("GCC unroll 32")
#endif

#define MOST_K		GK_CPU_FEW
#define GROUP		1024
#define LO_BITS		21			/* hi is in units of 2^21 lo */
/* Sums at once: twice as many registers hold their halves, of 32. */
#define AT_ONCE		12
/* Features at once of k clusters. */
#define FEATURES(k)	(AT_ONCE / ((k) - 1))
/* Rows ahead in a column that are asked for, see gk_cpu_tile.h. */
#define AHEAD		512

/* The two constants of a feature. */
typedef struct Cut
{
	__m512		hi;
	__m512		lo;
} Cut;

GK_INLINE Cut
cut_of(int expo)
{
	Cut			cut;

	cut.hi = _mm512_set1_ps((float) (1.5 * gk_pow2(expo - GK_GRID_BITS + LO_BITS + 23)));
	cut.lo = _mm512_set1_ps((float) (1.5 * gk_pow2(expo - GK_GRID_BITS + 23)));
	return cut;
}

typedef struct Sums
{
	__m512i		hi[AT_ONCE];
	__m512i		lo[AT_ONCE];
} Sums;

/* Clusters and features, here and below, are constants at every call. */
GK_INLINE void
add_values(const int sums, const int f, const int j, const __mmask16 *in, __m512 v, const Cut *cut, Sums *s)
{
	__m512		up = _mm512_add_ps(v, cut->hi);
	__m512		rest = _mm512_add_ps(_mm512_sub_ps(v, _mm512_sub_ps(up, cut->hi)), cut->lo);

	GK_UNROLL
	for (int q = 0; q < sums; q++)
	{
		/* _mm512_mask_add_epi32(), which gcc 12 would copy back and forth */
		__asm__("vpaddd %2, %0, %0%{%1%}" : "+v" (s->hi[q * f + j]) : "Yk" (in[q]), "v" (up));
		__asm__("vpaddd %2, %0, %0%{%1%}" : "+v" (s->lo[q * f + j]) : "Yk" (in[q]), "v" (rest));
	}
}

GK_INLINE void
clear(const int sums, Sums *s)
{
	GK_UNROLL
	for (int i = 0; i < sums; i++)
		s->hi[i] = s->lo[i] = _mm512_setzero_si512();
}

/* Modulo 2^32; _mm512_reduce_add_epi32() may overflow as signed integers do. */
GK_INLINE uint32_t
lanes(__m512i v)
{
	__m256i		half = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
	__m128i		part = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));

	part = _mm_add_epi32(part, _mm_shuffle_epi32(part, 0x4e));
	part = _mm_add_epi32(part, _mm_shuffle_epi32(part, 0xb1));
	return (uint32_t) _mm_cvtsi128_si32(part);
}

/* Lanes together, less the constants of so many rows, as an integer. */
GK_INLINE int64_t
value(__m512i hi, __m512i lo, int rows, const Cut *cut)
{
	uint32_t	h = lanes(hi);
	uint32_t	l = lanes(lo);

	h -= (uint32_t) rows * (uint32_t) _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_castps_si512(cut->hi)));
	l -= (uint32_t) rows * (uint32_t) _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_castps_si512(cut->lo)));
	return (int64_t) (int32_t) h * (1 << LO_BITS) + (int32_t) l;
}

#define SHAPES(F) \
	F(2, 1) F(2, 2) F(2, 3) F(2, 4) F(2, 5) F(2, 6) F(2, 7) F(2, 8) F(2, 9) F(2, 10) F(2, 11) F(2, 12) \
	F(3, 1) F(3, 2) F(3, 3) F(3, 4) F(3, 5) F(3, 6) F(4, 1) F(4, 2) F(4, 3) F(4, 4) \
	F(5, 1) F(5, 2) F(5, 3) F(6, 1) F(6, 2) F(7, 1) F(7, 2) F(8, 1)

/* ---- sums of a group of rows whose clusters are known ---- */

/* Of 16 rows each, of all clusters but the last. */
typedef struct Masks
{
	__mmask16	in[GROUP / 16][MOST_K - 1];
	int			rows[MOST_K - 1];
} Masks;

/* Features j .. j+f-1. */
GK_INLINE void
add_features(const int k, const int f, const GkTiles *x, const Masks *masks, int j, const int32_t *expo, gk_int128 *sum)
{
	Cut			cut[AT_ONCE];
	Sums		s;

	GK_UNROLL
	for (int i = 0; i < f; i++)
		cut[i] = cut_of(expo[j + i]);
	clear((k - 1) * f, &s);
	for (size_t v = 0; v < (size_t) x->count * (GK_ROW_PAD / 16); v++)
	{
		const float *at = x->x + v / (GK_ROW_PAD / 16) * x->tile + v % (GK_ROW_PAD / 16) * 16 + j * x->stride;

		GK_UNROLL
		for (int i = 0; i < f; i++)
		{
			/* The constants stay in memory: registers are for the sums. */
			__asm__ volatile("" : : "r" (cut) : "memory");
			add_values(k - 1, f, i, masks->in[v], _mm512_loadu_ps(at + i * x->stride), &cut[i], &s);
		}
	}
	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
	{
		GK_UNROLL
		for (int i = 0; i < f; i++)
			sum[q * x->d + j + i] += value(s.hi[q * f + i], s.lo[q * f + i], masks->rows[q], &cut[i]);
	}
}

#define ADD(k, f) \
	GK_TARGET static void \
	add_##k##_##f(const GkTiles *x, const Masks *masks, int j, const int32_t *expo, gk_int128 *sum) \
	{ \
		add_features(k, f, x, masks, j, expo, sum); \
	}
SHAPES(ADD)

#define ADD_ENTRY(k, f) [k][f] = add_##k##_##f,
static void (*const adds[MOST_K + 1][AT_ONCE + 1]) (const GkTiles *, const Masks *, int, const int32_t *, gk_int128 *) =
{SHAPES(ADD_ENTRY)};

static void
add_masks(const GkTiles *x, int k, const Masks *masks, const int32_t *expo, gk_int128 *sum, int64_t *count)
{
	int			f;

	for (int q = 0; q < k - 1; q++)
		count[q] += masks->rows[q];
	for (int j = 0; j < x->d; j += f)
	{
		f = x->d - j < FEATURES(k) ? x->d - j : FEATURES(k);
		adds[k][f] (x, masks, j, expo, sum);
	}
}

/* Some tiles, a group at most. */
static GkTiles
group(const GkTiles *x, int tile)
{
	GkTiles		some = *x;

	some.x += tile * x->tile;
	some.count = x->count - tile < GROUP / GK_ROW_PAD ? x->count - tile : GROUP / GK_ROW_PAD;
	return some;
}

/* ---- from labels ---- */

GK_TARGET static void
masks_of_labels(const int32_t *label, int rows, int k, Masks *masks)
{
	for (int q = 0; q < k - 1; q++)
		masks->rows[q] = 0;
	for (int v = 0; v < rows / 16; v++)
		for (int q = 0; q < k - 1; q++)
		{
			masks->in[v][q] = _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(label + v * 16), _mm512_set1_epi32(q));
			masks->rows[q] += __builtin_popcount(masks->in[v][q]);
		}
}

void
gk_cpu_avx512_add_few(const GkTiles *x, const int32_t *label, int rows, int k, const int32_t *expo,
					  gk_int128 *sum, int64_t *count)
{
	int			pad = label[x->count * GK_ROW_PAD - 1];
	Masks		masks;

	if (k == 1)
		return;
	for (int t = 0; t < x->count; t += GROUP / GK_ROW_PAD)
	{
		GkTiles		some = group(x, t);

		masks_of_labels(label + t * GK_ROW_PAD, some.count * GK_ROW_PAD, k, &masks);
		add_masks(&some, k, &masks, expo, sum, count);
	}
	if (pad < k - 1)
		count[pad] -= x->count * GK_ROW_PAD - rows;
}

/* ---- together with the assignment ---- */

/* Ties go to the lowest number: who is taken is not left for the next. */
GK_INLINE void
nearest_masks(const int k, const __m512 *dist, __mmask16 *in, int *rows)
{
	__m512		best = dist[0];
	__mmask16	left = 0xffff;

	GK_UNROLL
	for (int q = 1; q < k; q++)
		best = _mm512_min_ps(dist[q], best);
	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
	{
		in[q] = _mm512_mask_cmp_ps_mask(left, dist[q], best, _CMP_LE_OQ);
		left = _kandn_mask16(in[q], left);
		rows[q] += __builtin_popcount(in[q]);
	}
}

/* v vectors of points against all centroids. */
GK_INLINE void
distances(const int k, const int v, const float *at, size_t stride, const float *c, int d, __m512 dist[][MOST_K])
{
	GK_UNROLL
	for (int p = 0; p < v; p++)
	{
		GK_UNROLL
		for (int q = 0; q < k; q++)
			dist[p][q] = _mm512_setzero_ps();
	}
	for (int j = 0; j < d; j++)
	{
		__m512		xv[4];

		GK_UNROLL
		for (int p = 0; p < v; p++)
		{
			xv[p] = _mm512_loadu_ps(at + j * stride + p * 16);
			_mm_prefetch((const char *) (at + j * stride + p * 16 + AHEAD), _MM_HINT_T0);
		}
		GK_UNROLL
		for (int q = 0; q < k; q++)
		{
			__m512		cv = _mm512_set1_ps(c[q * d + j]);

			GK_UNROLL
			for (int p = 0; p < v; p++)
			{
				__m512		t = _mm512_sub_ps(xv[p], cv);

				dist[p][q] = _mm512_fmadd_ps(t, t, dist[p][q]);
			}
		}
	}
}

GK_INLINE void
masks_of_points(const int k, const int v, const GkTiles *x, const float *c, Masks *masks)
{
	int			rows[MOST_K] = {0};

	for (size_t i = 0; i < (size_t) x->count * GK_ROW_PAD; i += v * 16)
	{
		__m512		dist[4][MOST_K];

		distances(k, v, x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD, x->stride, c, x->d, dist);
		GK_UNROLL
		for (int p = 0; p < v; p++)
			nearest_masks(k, dist[p], masks->in[i / 16 + p], rows);
	}
	for (int q = 0; q < k - 1; q++)
		masks->rows[q] = rows[q];
}

#define NEAREST(k, v) \
	GK_TARGET static void \
	nearest_##k(const GkTiles *x, const float *c, Masks *masks) \
	{ \
		masks_of_points(k, v, x, c, masks); \
	}
NEAREST(2, 4)
NEAREST(3, 4)
NEAREST(4, 4)
NEAREST(5, 2)
NEAREST(6, 2)
NEAREST(7, 2)
NEAREST(8, 2)

static void (*const nearest[MOST_K + 1]) (const GkTiles *, const float *, Masks *) =
{NULL, NULL, nearest_2, nearest_3, nearest_4, nearest_5, nearest_6, nearest_7, nearest_8};

/* All in registers when the sums are few enough. */
GK_INLINE void
fused(const int k, const int d, const GkTiles *x, const float *c, const int32_t *expo, gk_int128 *sum, int64_t *count)
{
	__m512		centroid[2 * AT_ONCE];
	Cut			cut[AT_ONCE];
	int			rows[MOST_K] = {0};
	Sums		s;

	for (int i = 0; i < k * d; i++)
		centroid[i] = _mm512_set1_ps(c[i]);
	for (int j = 0; j < d; j++)
		cut[j] = cut_of(expo[j]);
	clear((k - 1) * d, &s);
	for (size_t i = 0; i < (size_t) x->count * GK_ROW_PAD; i += 16)
	{
		const float *at = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
		__m512		dist[MOST_K];
		__mmask16	in[MOST_K];

		__asm__ volatile("" : : "r" (centroid), "r" (cut) : "memory");
		GK_UNROLL
		for (int j = 0; j < d; j++)
		{
			__m512		v = _mm512_loadu_ps(at + j * x->stride);

			_mm_prefetch((const char *) (at + j * x->stride + AHEAD), _MM_HINT_T0);
			GK_UNROLL
			for (int q = 0; q < k; q++)
			{
				__m512		t = _mm512_sub_ps(v, centroid[q * d + j]);

				/* fma(t, t, 0) is t * t */
				dist[q] = j == 0 ? _mm512_mul_ps(t, t) : _mm512_fmadd_ps(t, t, dist[q]);
			}
		}
		nearest_masks(k, dist, in, rows);
		GK_UNROLL
		for (int j = 0; j < d; j++)
		{
			/* Load the feature once more, rather than spill sums. */
			__asm__ volatile("" : : : "memory");
			add_values(k - 1, d, j, in, _mm512_loadu_ps(at + j * x->stride), &cut[j], &s);
		}
	}
	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
	{
		count[q] += rows[q];
		GK_UNROLL
		for (int j = 0; j < d; j++)
			sum[q * d + j] += value(s.hi[q * d + j], s.lo[q * d + j], rows[q], &cut[j]);
	}
}

#define FUSED(k, d) \
	GK_TARGET static void \
	fused_##k##_##d(const GkTiles *x, const float *c, const int32_t *expo, gk_int128 *sum, int64_t *count) \
	{ \
		fused(k, d, x, c, expo, sum, count); \
	}
SHAPES(FUSED)

#define FUSED_ENTRY(k, d) [k][d] = fused_##k##_##d,
static void (*const shapes[MOST_K + 1][AT_ONCE + 1]) (const GkTiles *, const float *, const int32_t *, gk_int128 *, int64_t *) =
{SHAPES(FUSED_ENTRY)};

void
gk_cpu_avx512_step_few(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
					   gk_int128 *sum, int64_t *count)
{
	int			pad = 0;
	float		best = INFINITY;
	Masks		masks;

	if (k == 1)
		return;
	for (int t = 0; t < x->count; t += GROUP / GK_ROW_PAD)
	{
		GkTiles		some = group(x, t);

		if (x->d <= FEATURES(k))
			shapes[k][x->d] (&some, c, expo, sum, count);
		else
		{
			nearest[k] (&some, c, &masks);
			add_masks(&some, k, &masks, expo, sum, count);
		}
	}
	/* The rows past the end are in the origin. */
	for (int q = 0; q < k; q++)
	{
		float		d2 = 0.0f;

		for (int j = 0; j < x->d; j++)
			d2 = gk_fmaf(c[q * x->d + j], c[q * x->d + j], d2);
		if (d2 < best)
		{
			best = d2;
			pad = q;
		}
	}
	if (pad < k - 1)
		count[pad] -= x->count * GK_ROW_PAD - rows;
}

#endif							/* GK_CPU_X86 */
