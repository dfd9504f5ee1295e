/*
 * gk_cpu_smallk_avx2.c - assignment and Feature Sum of small k, AVX2: as
 * gk_cpu_smallk_avx512.c, for half the registers.
 *
 * A slice of rows is looked at once for the labels, which are written, and then for
 * some features at a time, their sums in registers: vectors of four doubles,
 * exact up to GK_PACKAGE rows.  Instead of a mask there is a factor for each cluster
 * but the last, 1 for its own points and 0 for others.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx2,fma")))
#define GK_LANES	8
#define GK_SUMS		GK_CPU_AVX2_SUMS

typedef __m256 vfloat;

#define v_load(p)		_mm256_loadu_ps(p)
#define v_set1(f)		_mm256_set1_ps(f)
#define v_sub(a, b)		_mm256_sub_ps(a, b)
#define v_mul(a, b)		_mm256_mul_ps(a, b)
#define v_fma(a, b, c)	_mm256_fmadd_ps(a, b, c)

#include "cpu/simd/gk_cpu_smallk.h"
#define SHAPES(F) \
	F(2, 1) F(2, 2) F(2, 3) F(2, 4) F(2, 5) F(2, 6) F(2, 7) F(2, 8) \
	F(3, 1) F(3, 2) F(3, 3) F(3, 4) F(3, 5) F(3, 6) F(4, 1) F(4, 2) F(4, 3) F(4, 4) \
	F(5, 1) F(5, 2) F(5, 3) F(6, 1) F(6, 2) F(7, 1) F(7, 2) F(8, 1)

/* ---- rows past the end ---- */

/* Take off rows past the end of the last tile, which were counted in a cluster. */
static void
uncount(const GkTiles *x, int rows, int k, int cluster, int64_t *count)
{
	if (cluster < k - 1)
		count[cluster] -= x->count * GK_ROW_PAD - rows;
}

/* The cluster of rows past the end when they are assigned as the others: they are in the origin. */
static int
nearest_origin(const float *c, int k, int d)
{
	float		best = INFINITY;
	int			cluster = 0;

	for (int q = 0; q < k; q++)
	{
		float		d2 = 0.0f;

		for (int j = 0; j < d; j++)
			d2 = gk_fmaf(c[q * d + j], c[q * d + j], d2);
		if (d2 < best)
		{
			best = d2;
			cluster = q;
		}
	}
	return cluster;
}

/* ---- sums of a slice of rows with known labels ---- */

/* Features j .. j+f-1, four rows at a time. */
GK_INLINE void
add_features(const int k, const int f, const GkTiles *x, const int32_t *label, int j, const int32_t *expo, gk_int128 *sum)
{
	__m256d		one = _mm256_set1_pd(1.0);
	__m256d		s[GK_CPU_AVX2_SUMS];

	GK_UNROLL
	for (int i = 0; i < (k - 1) * f; i++)
		s[i] = _mm256_setzero_pd();
	for (size_t r = 0; r < (size_t) x->count * GK_ROW_PAD; r += 4)
	{
		const float *at = x->x + r / GK_ROW_PAD * x->tile + r % GK_ROW_PAD + j * x->stride;
		__m256i		own = _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *) (label + r)));
		__m256d		in[MAX_K];

		/* It stays in memory: registers are for the sums. */
		__asm__ volatile("" : "+m" (one));
		GK_UNROLL
		for (int q = 0; q < k - 1; q++)
			in[q] = _mm256_and_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(own, _mm256_set1_epi64x(q))), one);
		GK_UNROLL
		for (int i = 0; i < f; i++)
		{
			__m256d		v = _mm256_cvtps_pd(_mm_loadu_ps(at + i * x->stride));

			GK_UNROLL
			for (int q = 0; q < k - 1; q++)
				s[q * f + i] = _mm256_fmadd_pd(v, in[q], s[q * f + i]);
		}
	}
	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
	{
		GK_UNROLL
		for (int i = 0; i < f; i++)
		{
			double		part[4];

			_mm256_storeu_pd(part, s[q * f + i]);
			sum[q * x->d + j + i] += (int64_t) ((part[0] + part[1] + part[2] + part[3]) * gk_pow2(GK_GRID_BITS - expo[j + i]));
		}
	}
}

#define ADD(k, f) \
	GK_TARGET static void \
	add_##k##_##f(const GkTiles *x, const int32_t *label, int j, const int32_t *expo, gk_int128 *sum) \
	{ \
		add_features(k, f, x, label, j, expo, sum); \
	}
SHAPES(ADD)

#define ADD_ENTRY(k, f) [k][f] = add_##k##_##f,
static void (*const adds[MAX_K + 1][MAX_D + 1]) (const GkTiles *, const int32_t *, int, const int32_t *, gk_int128 *) =
{
	SHAPES(ADD_ENTRY)
};

GK_TARGET static void
add_counts(const int32_t *label, int rows, int k, int64_t *count)
{
	__m256i		n[MAX_K];

	GK_UNROLL
	for (int q = 0; q < MAX_K; q++)
		n[q] = _mm256_setzero_si256();
	for (int r = 0; r < rows; r += 8)
	{
		__m256i		own = _mm256_loadu_si256((const __m256i *) (label + r));

		GK_UNROLL
		for (int q = 0; q < MAX_K; q++)
			n[q] = _mm256_sub_epi32(n[q], _mm256_cmpeq_epi32(own, _mm256_set1_epi32(q)));
	}
	for (int q = 0; q < k - 1; q++)
	{
		int32_t		part[8];

		_mm256_storeu_si256((__m256i *) part, n[q]);
		for (int i = 0; i < 8; i++)
			count[q] += part[i];
	}
}

static void
add_slice(const GkTiles *x, const int32_t *label, int k, const int32_t *expo, gk_int128 *sum, int64_t *count)
{
	int			times = (x->d + FEATURES(k) - 1) / FEATURES(k);

	add_counts(label, x->count * GK_ROW_PAD, k, count);
	for (int i = 0; i < times; i++)
	{
		int			j = x->d * i / times;

		adds[k][x->d * (i + 1) / times - j] (x, label, j, expo, sum);
	}
}

void
gk_cpu_avx2_add_smallk(const GkTiles *x, const int32_t *label, int rows, int k, const int32_t *expo,
					   gk_int128 *sum, int64_t *count)
{
	if (k == 1)
		return;
	for (int t = 0; t < x->count; t += GK_SMALLK_ROWS / GK_ROW_PAD)
	{
		GkTiles		some = gk_smallk_slice(x, t, GK_SMALLK_ROWS);

		add_slice(&some, label + t * GK_ROW_PAD, k, expo, sum, count);
	}
	uncount(x, rows, k, label[x->count * GK_ROW_PAD - 1], count);
}

/* ---- assignment and sums at once ---- */

/* v vectors at a time. */
GK_INLINE void
assign(const int k, const int v, const GkTiles *x, const float *c, int32_t *label)
{
	for (size_t r = 0; r < (size_t) x->count * GK_ROW_PAD; r += v * 8)
	{
		const float *at = x->x + r / GK_ROW_PAD * x->tile + r % GK_ROW_PAD;
		__m256		dist[2][MAX_K];

		add_distances(k, v, at, c, x->d, 0, dist);
		for (int j = 1; j < x->d; j++)
			add_distances(k, v, at + j * x->stride, c, x->d, j, dist);
		GK_UNROLL
		for (int p = 0; p < v; p++)
		{
			__m256		best = dist[p][0];
			__m256		own = _mm256_setzero_ps();

			GK_UNROLL
			for (int q = 1; q < k; q++)
			{
				__m256		less = _mm256_cmp_ps(dist[p][q], best, _CMP_LT_OQ);

				own = _mm256_blendv_ps(own, _mm256_castsi256_ps(_mm256_set1_epi32(q)), less);
				best = _mm256_min_ps(dist[p][q], best);
			}
			_mm256_storeu_si256((__m256i *) (label + r + p * 8), _mm256_castps_si256(own));
		}
	}
}

#define ASSIGN(k, v) \
	GK_TARGET static void \
	assign_##k(const GkTiles *x, const float *c, int32_t *label) \
	{ \
		assign(k, v, x, c, label); \
	}
ASSIGN(2, 2) ASSIGN(3, 2) ASSIGN(4, 2) ASSIGN(5, 2) ASSIGN(6, 2) ASSIGN(7, 1) ASSIGN(8, 1)

static void (*const assigns[MAX_K + 1]) (const GkTiles *, const float *, int32_t *) =
{
	NULL, NULL, BY_K(assign)
};

int64_t
gk_cpu_avx2_step_smallk(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
						uint64_t *kept, gk_int128 *sum, int64_t *count)
{
	int32_t		label[GK_SMALLK_ROWS];

	(void) kept;
	if (k == 1)
		return 0;
	for (int t = 0; t < x->count; t += GK_SMALLK_ROWS / GK_ROW_PAD)
	{
		GkTiles		some = gk_smallk_slice(x, t, GK_SMALLK_ROWS);

		assigns[k] (&some, c, label);
		add_slice(&some, label, k, expo, sum, count);
	}
	uncount(x, rows, k, nearest_origin(c, k, x->d), count);
	return 0;
}

#endif							/* GK_CPU_X86 */
