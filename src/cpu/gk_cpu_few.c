/*
 * gk_cpu_few.c - assignment and Feature Sum of few clusters, AVX-512: sums stay in
 * registers, for small points in one pass with the distances, labels are never
 * written.  Here reading memory is the floor, as long as the processor does not
 * wait for itself as well: adding points up takes it as long as their distances, so
 * later steps only move the points whose cluster is another one than before.
 *
 * Lanes are points, and a mask for each cluster says which are its own.  A sum is a
 * vector of doubles: one register, exact up to GK_PACKAGE rows, though it takes but
 * half a vector of points at a time.  The last cluster needs none: it is the total
 * minus the rest.
 *
 * Rows past the end are zeros: they add nothing to a sum, and masks that are counted
 * or kept do not have them.
 */
#include "cpu/gk_cpu_few.h"

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
#define MOST_D		8
/* Features at once of k clusters. */
#define FEATURES(k)	(GK_CPU_AVX512_SUMS / ((k) - 1) < MOST_D ? GK_CPU_AVX512_SUMS / ((k) - 1) : MOST_D)

#define SHAPES(F) \
	F(2, 1) F(2, 2) F(2, 3) F(2, 4) F(2, 5) F(2, 6) F(2, 7) F(2, 8) \
	F(3, 1) F(3, 2) F(3, 3) F(3, 4) F(3, 5) F(3, 6) F(3, 7) F(3, 8) \
	F(4, 1) F(4, 2) F(4, 3) F(4, 4) F(4, 5) F(4, 6) F(4, 7) F(4, 8) \
	F(5, 1) F(5, 2) F(5, 3) F(5, 4) F(5, 5) F(5, 6) F(6, 1) F(6, 2) F(6, 3) F(6, 4) \
	F(7, 1) F(7, 2) F(7, 3) F(7, 4) F(8, 1) F(8, 2) F(8, 3)

/* Clusters and features, here and below, are constants at every call. */

/* Of blocks of w clusters each the better of two: the first one on a tie. */
GK_INLINE void
better(const int k, const int w, __m512i *best, __mmask16 *in)
{
	GK_UNROLL
	for (int q = 0; q < k - w; q += 2 * w)
	{
		__mmask16	first = _mm512_cmple_epi32_mask(best[q], best[q + w]);

		best[q] = _mm512_min_epi32(best[q], best[q + w]);
		GK_UNROLL
		for (int i = q; i < k; i++)
			in[i] &= i < q + w ? first : i < q + 2 * w ? ~first : 0xffff;
	}
}

/*
 * For each cluster but the last which of 16 points are nearer to it than to any
 * other, ties to the lowest number.  Distances are not negative, so their bits are
 * in order as integers, which any unit compares.
 */
GK_INLINE void
nearest(const int k, const __m512 *dist, __mmask16 *in)
{
	__m512i		best[MOST_K];

	GK_UNROLL
	for (int q = 0; q < k; q++)
	{
		best[q] = _mm512_castps_si512(dist[q]);
		in[q] = 0xffff;
	}
	better(k, 1, best, in);
	better(k, 2, best, in);
	better(k, 4, best, in);
}

/* What feature j of v vectors adds to their distances from all clusters. */
GK_INLINE void
add_distances(const int k, const int v, const float *x, const float *c, int d, int j, __m512 dist[][MOST_K])
{
	__m512		xv[4];

	GK_UNROLL
	for (int p = 0; p < v; p++)
	{
		xv[p] = _mm512_loadu_ps(x + p * 16);
		gk_few_fetch(x + p * 16);
	}
	GK_UNROLL
	for (int q = 0; q < k; q++)
	{
		__m512		cv = _mm512_set1_ps(c[q * d + j]);

		GK_UNROLL
		for (int p = 0; p < v; p++)
		{
			__m512		t = _mm512_sub_ps(xv[p], cv);

			/* fma(t, t, 0) is t * t */
			dist[p][q] = j == 0 ? _mm512_mul_ps(t, t) : _mm512_fmadd_ps(t, t, dist[p][q]);
		}
	}
}

/*
 * Of 16 points: a mask for each cluster but the last, as its lower and upper half.  In
 * memory they are uint16_t [vectors][k - 1].
 */
typedef __mmask8 Halves[MOST_K][2];
#define MASKS(rows)	((rows) / 16 * (MOST_K - 1))

/*
 * One feature of 8 points, the half h, to the sums of their clusters, which are f apart.
 * Additions and multiplications have units of their own: keep both busy.
 */
GK_INLINE void
add_values(const int k, const int f, const float *x, const int h, const Halves in, __m512d *sum)
{
	const __m512d one = _mm512_set1_pd(1.0);
	__m512d		v = _mm512_cvtps_pd(_mm256_loadu_ps(x + h * 8));

	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
		sum[q * f] = q % 3 == 2 ? _mm512_mask_add_pd(sum[q * f], in[q][h], sum[q * f], v) :
			_mm512_mask3_fmadd_pd(v, one, sum[q * f], in[q][h]);
}

/* Lanes together, as an integer. */
GK_INLINE int64_t
lanes(__m512d s, int32_t expo)
{
	return (int64_t) (_mm512_reduce_add_pd(s) * gk_pow2(GK_GRID_BITS - expo));
}

/* Clusters are d apart. */
GK_INLINE void
add_lanes(const int k, const int f, const __m512d *from, const int32_t *expo, gk_int128 *sum, int d)
{
	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
	{
		GK_UNROLL
		for (int j = 0; j < f; j++)
			sum[q * d + j] += lanes(from[q * f + j], expo[j]);
	}
}

static inline const float *
vector(const GkTiles *x, size_t v)
{
	return x->x + v / (GK_ROW_PAD / 16) * x->tile + v % (GK_ROW_PAD / 16) * 16;
}

/* ---- sums of a group of rows whose clusters are known ---- */

/* Features j .. j+f-1. */
GK_INLINE void
add_features(const int k, const int f, const GkTiles *x, const uint16_t *mask, int j, const int32_t *expo, gk_int128 *sum)
{
	__m512d		s[GK_CPU_AVX512_SUMS];

	GK_UNROLL
	for (int i = 0; i < (k - 1) * f; i++)
		s[i] = _mm512_setzero_pd();
	for (size_t v = 0; v < (size_t) x->count * (GK_ROW_PAD / 16); v++)
	{
		const float *at = vector(x, v) + j * x->stride;
		const __mmask8 (*in)[2] = (const __mmask8 (*)[2]) (mask + v * (k - 1));

		GK_UNROLL
		for (int i = 0; i < 2 * f; i++)
			add_values(k, f, at + i % f * x->stride, i / f, in, s + i % f);
	}
	add_lanes(k, f, s, expo + j, sum + j, x->d);
}

#define ADD(k, f) \
	GK_TARGET static void \
	add_##k##_##f(const GkTiles *x, const uint16_t *mask, int j, const int32_t *expo, gk_int128 *sum) \
	{ \
		add_features(k, f, x, mask, j, expo, sum); \
	}
SHAPES(ADD)

#define ADD_ENTRY(k, f) [k][f] = add_##k##_##f,
static void (*const adds[MOST_K + 1][MOST_D + 1]) (const GkTiles *, const uint16_t *, int, const int32_t *, gk_int128 *) =
{SHAPES(ADD_ENTRY)};

static void
add_masks(const GkTiles *x, int k, const uint16_t *mask, const int32_t *expo, gk_int128 *sum)
{
	int			times = (x->d + FEATURES(k) - 1) / FEATURES(k);

	for (int i = 0; i < times; i++)
	{
		int			j = x->d * i / times;

		adds[k][x->d * (i + 1) / times - j] (x, mask, j, expo, sum);
	}
}

GK_TARGET static void
count_masks(const uint16_t *mask, int vectors, int k, int64_t *count)
{
	for (int q = 0; q < k - 1; q++)
		for (int v = 0; v < vectors; v++)
			count[q] += __builtin_popcount(mask[v * (k - 1) + q]);
}

/* Rows past the end, of which there are less than a tile, are taken out of masks and counts. */
GK_TARGET static void
leave_padding(uint16_t *mask, int rows, int vectors, int k, int64_t *count)
{
	for (int v = rows / 16; v < vectors; v++)
		for (int q = 0; q < k - 1; q++)
		{
			uint16_t   *m = mask + v * (k - 1) + q;
			uint16_t	past = *m & (uint16_t) (rows > v * 16 ? 0xffff << (rows - v * 16) : 0xffff);

			if (count != NULL)
				count[q] -= __builtin_popcount(past);
			*m ^= past;
		}
}

/* ---- from labels ---- */

GK_TARGET static void
masks_of_labels(const int32_t *label, int vectors, int k, uint16_t *mask)
{
	for (int v = 0; v < vectors; v++)
		for (int q = 0; q < k - 1; q++)
			mask[v * (k - 1) + q] = _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(label + v * 16), _mm512_set1_epi32(q));
}

void
gk_cpu_avx512_add_few(const GkTiles *x, const int32_t *label, int rows, int k, const int32_t *expo,
					  gk_int128 *sum, int64_t *count)
{
	uint16_t	mask[MASKS(GK_FEW_GROUP)];

	if (k == 1)
		return;
	for (int t = 0; t < x->count; t += GK_FEW_GROUP / GK_ROW_PAD)
	{
		GkTiles		some = gk_few_group(x, t, GK_FEW_GROUP);
		int			vectors = some.count * (GK_ROW_PAD / 16);

		masks_of_labels(label + t * GK_ROW_PAD, vectors, k, mask);
		count_masks(mask, vectors, k, count);
		leave_padding(mask, rows - t * GK_ROW_PAD, vectors, k, count);
		add_masks(&some, k, mask, expo, sum);
	}
}

/* ---- together with the assignment ---- */

/* v vectors at a time. */
GK_INLINE void
masks_of_points(const int k, const int v, const GkTiles *x, const float *c, uint16_t *mask)
{
	for (size_t i = 0; i < (size_t) x->count * (GK_ROW_PAD / 16); i += v)
	{
		const float *at = vector(x, i);
		__m512		dist[4][MOST_K];

		add_distances(k, v, at, c, x->d, 0, dist);
		for (int j = 1; j < x->d; j++)
			add_distances(k, v, at + j * x->stride, c, x->d, j, dist);
		GK_UNROLL
		for (int p = 0; p < v; p++)
		{
			__mmask16	in[MOST_K];

			nearest(k, dist[p], in);
			GK_UNROLL
			for (int q = 0; q < k - 1; q++)
				mask[(i + p) * (k - 1) + q] = in[q];
		}
	}
}

#define NEAREST(k, v) \
	GK_TARGET static void \
	nearest_##k(const GkTiles *x, const float *c, uint16_t *mask) \
	{ \
		masks_of_points(k, v, x, c, mask); \
	}
NEAREST(2, 4)
NEAREST(3, 4)
NEAREST(4, 4)
NEAREST(5, 2)
NEAREST(6, 2)
NEAREST(7, 2)
NEAREST(8, 2)

static void (*const masks_of[MOST_K + 1]) (const GkTiles *, const float *, uint16_t *) =
{NULL, NULL, nearest_2, nearest_3, nearest_4, nearest_5, nearest_6, nearest_7, nearest_8};

/*
 * All in registers when features and clusters are few enough.  While a vector's
 * values are added, the next one's distances are computed: neither waits for the
 * masks, and instructions enough are at hand until more points arrive.
 */
GK_INLINE void
fused(const int k, const int d, const GkTiles *x, const float *c, const int32_t *expo, uint16_t *mask,
	  gk_int128 *sum, int64_t *count)
{
	const size_t vectors = (size_t) x->count * (GK_ROW_PAD / 16);
	const float *at = x->x;
	__mmask16	in[MOST_K];
	__m512		dist[MOST_K];
	__m512d		s[GK_CPU_AVX512_SUMS];
	int			rows[MOST_K] = {0};

	GK_UNROLL
	for (int i = 0; i < (k - 1) * d; i++)
		s[i] = _mm512_setzero_pd();
	GK_UNROLL
	for (int j = 0; j < d; j++)
		add_distances(k, 1, at + j * x->stride, c, d, j, &dist);
	nearest(k, dist, in);
	for (size_t v = 1; v <= vectors; v++)
	{
		const float *next = v < vectors ? vector(x, v) : at;
		Halves		half;

		/* The centroids stay in memory: registers are for the sums. */
		__asm__ volatile("" : : "r" (c) : "memory");
		GK_UNROLL
		for (int q = 0; q < k - 1; q++)
		{
			mask[(v - 1) * (k - 1) + q] = in[q];
			rows[q] += __builtin_popcount(in[q]);
			half[q][0] = (__mmask8) in[q];
			half[q][1] = (__mmask8) _kshiftri_mask16(in[q], 8);
		}
		GK_UNROLL
		for (int i = 0; i < 2 * d; i++)
		{
			if (i % 2 == 0)
				add_distances(k, 1, next + i / 2 * x->stride, c, d, i / 2, &dist);
			add_values(k, d, at + i % d * x->stride, i / d, half, s + i % d);
		}
		nearest(k, dist, in);
		at = next;
	}
	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
		count[q] += rows[q];
	add_lanes(k, d, s, expo, sum, d);
}

#define FUSED(k, d) \
	GK_TARGET static void \
	fused_##k##_##d(const GkTiles *x, const float *c, const int32_t *expo, uint16_t *mask, gk_int128 *sum, int64_t *count) \
	{ \
		fused(k, d, x, c, expo, mask, sum, count); \
	}
SHAPES(FUSED)

#define FUSED_ENTRY(k, d) [k][d] = fused_##k##_##d,
static void (*const shapes[MOST_K + 1][MOST_D + 1]) (const GkTiles *, const float *, const int32_t *, uint16_t *, gk_int128 *, int64_t *) =
{SHAPES(FUSED_ENTRY)};

/* Which of the next 32 words, or of those that are left, differ. */
GK_INLINE __mmask32
differing(const uint16_t *a, const uint16_t *b, int left)
{
	__mmask32	there = left < 32 ? ((__mmask32) 1 << left) - 1 : ~(__mmask32) 0;

	return _mm512_mask_cmpneq_epi16_mask(there, _mm512_maskz_loadu_epi16(there, a), _mm512_maskz_loadu_epi16(there, b));
}

/* Have `kept` be what `mask` is.  Returns how many of so many words differed. */
GK_TARGET static int
keep(const uint16_t *mask, int words, uint16_t *kept)
{
	int			changed = 0;

	for (int i = 0; i < words; i += 32)
		changed += __builtin_popcount(differing(mask + i, kept + i, words - i));
	memcpy(kept, mask, words * sizeof(uint16_t));
	return changed;
}

int
gk_cpu_avx512_step_few(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
					   uint16_t *kept, gk_int128 *sum, int64_t *count)
{
	bool		one_pass = k > 1 && x->d <= FEATURES(k);
	int			most = one_pass ? GK_PACKAGE : GK_FEW_GROUP;
	uint16_t	mask[MASKS(GK_PACKAGE)];
	int			changed = 0;

	if (k == 1)
		return 0;
	for (int t = 0; t < x->count; t += most / GK_ROW_PAD)
	{
		GkTiles		some = gk_few_group(x, t, most);
		int			vectors = some.count * (GK_ROW_PAD / 16);

		if (one_pass)
			shapes[k][x->d] (&some, c, expo, mask, sum, count);
		else
		{
			masks_of[k] (&some, c, mask);
			count_masks(mask, vectors, k, count);
			add_masks(&some, k, mask, expo, sum);
		}
		leave_padding(mask, rows - t * GK_ROW_PAD, vectors, k, count);
		if (kept != NULL)
			changed += keep(mask, vectors * (k - 1), kept + t * (GK_ROW_PAD / 16) * (k - 1));
	}
	return changed;
}

/* ---- what has changed since the last step ---- */

/* Points of vector v come to a cluster, others go: s [d] are its sums. */
GK_TARGET static void
move(const GkTiles *x, size_t v, uint16_t come, uint16_t go, __m512d *s)
{
	const float *at = vector(x, v);

	for (int j = 0; j < x->d; j++)
		for (int h = 0; h < 16; h += 8)
		{
			__m512d		value = _mm512_cvtps_pd(_mm256_loadu_ps(at + j * x->stride + h));

			s[j] = _mm512_mask_add_pd(s[j], (__mmask8) (come >> h), s[j], value);
			s[j] = _mm512_mask_sub_pd(s[j], (__mmask8) (go >> h), s[j], value);
		}
}

/* As keep(), with what it makes of the sums and counts. */
GK_TARGET static int
move_changed(const GkTiles *x, int k, const uint16_t *mask, uint16_t *kept, __m512d *s, int64_t *count)
{
	int			words = x->count * (GK_ROW_PAD / 16) * (k - 1);
	int			changed = 0;

	for (int i = 0; i < words; i += 32)
		for (__mmask32 other = differing(mask + i, kept + i, words - i); other != 0; other &= other - 1)
		{
			int			w = i + __builtin_ctz(other);
			int			q = w % (k - 1);

			move(x, w / (k - 1), mask[w] & ~kept[w], kept[w] & ~mask[w], s + q * x->d);
			count[q] += __builtin_popcount(mask[w]) - __builtin_popcount(kept[w]);
			kept[w] = mask[w];
			changed++;
		}
	return changed;
}

GK_TARGET int
gk_cpu_avx512_move_few(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
					   uint16_t *kept, gk_int128 *sum, int64_t *count)
{
	int			changed = 0;

	for (int p = 0; p < x->count && k > 1; p += GK_PACKAGE / GK_ROW_PAD)
	{
		GkTiles		package = gk_few_group(x, p, GK_PACKAGE);
		__m512d		s[GK_CPU_AVX512_SUMS];
		int			before = changed;

		memset(s, 0, sizeof(s));
		for (int t = 0; t < package.count; t += GK_FEW_GROUP / GK_ROW_PAD)
		{
			GkTiles		some = gk_few_group(&package, t, GK_FEW_GROUP);
			uint16_t	mask[MASKS(GK_FEW_GROUP)];

			masks_of[k] (&some, c, mask);
			leave_padding(mask, rows - (p + t) * GK_ROW_PAD, some.count * (GK_ROW_PAD / 16), k, NULL);
			changed += move_changed(&some, k, mask, kept + (p + t) * (GK_ROW_PAD / 16) * (k - 1), s, count);
		}
		for (int i = 0; i < (k - 1) * x->d && changed > before; i++)
			sum[i] += lanes(s[i], expo[i % x->d]);
	}
	return changed;
}

#endif							/* GK_CPU_X86 */
