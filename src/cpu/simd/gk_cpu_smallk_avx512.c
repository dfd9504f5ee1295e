/*
 * gk_cpu_smallk_avx512.c - assignment, Feature Sum and statistics of small k, AVX-512: sums stay
 * in registers, for small points in one pass with the distances; labels are never
 * written.  Reading memory is the floor, as long as the processor does not wait for
 * itself as well: adding points up takes it as long as their distances, so later steps
 * only move the points whose cluster has changed.
 *
 * Lanes are points, and a mask for each cluster says which are its own; between steps
 * labels are kept, cut into bits, 64 rows to a word.  A sum is a vector of doubles: one
 * register, exact up to GK_PACKAGE rows, though it takes but half a vector of points at
 * a time.  The last cluster needs none: it is the total minus the rest.
 *
 * Rows past the end are zeros: they add nothing to a sum, and masks that are counted
 * or kept do not have them.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma,popcnt")))
#define GK_LANES	16
#define GK_SUMS		GK_CPU_AVX512_SUMS

typedef __m512 vfloat;

#define v_load(p)		_mm512_loadu_ps(p)
#define v_set1(f)		_mm512_set1_ps(f)
#define v_sub(a, b)		_mm512_sub_ps(a, b)
#define v_mul(a, b)		_mm512_mul_ps(a, b)
#define v_fma(a, b, c)	_mm512_fmadd_ps(a, b, c)

#include "cpu/simd/gk_cpu_smallk.h"
#define SHAPES(F) \
	F(2, 1) F(2, 2) F(2, 3) F(2, 4) F(2, 5) F(2, 6) F(2, 7) F(2, 8) \
	F(3, 1) F(3, 2) F(3, 3) F(3, 4) F(3, 5) F(3, 6) F(3, 7) F(3, 8) \
	F(4, 1) F(4, 2) F(4, 3) F(4, 4) F(4, 5) F(4, 6) F(4, 7) F(4, 8) \
	F(5, 1) F(5, 2) F(5, 3) F(5, 4) F(5, 5) F(5, 6) F(6, 1) F(6, 2) F(6, 3) F(6, 4) \
	F(7, 1) F(7, 2) F(7, 3) F(7, 4) F(8, 1) F(8, 2) F(8, 3)

/* Clusters, and vectors at a time that their distances leave registers for. */
#define EACH_K(F)	F(2, 4) F(3, 4) F(4, 4) F(5, 2) F(6, 2) F(7, 2) F(8, 2)

/* Functions on words of bits: with AVX-512 a compiler would use instructions on masks, which are slow. */
#define GK_WORDS		__attribute__((target("popcnt")))
#define GK_INLINE_WORDS	static inline __attribute__((always_inline))

/* Keep the better of two neighbouring blocks of w clusters each: the first one on a tie. */
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
	__m512i		best[MAX_K];

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

/* Of 16 points: a mask for each cluster but the last, as its lower and upper half. */
typedef __mmask8 Halves[MAX_K][2];

/*
 * In memory: masks of the tiles' rows for each cluster but the last, uint64_t [k - 1][TILES] or,
 * of vectors, uint16_t [k - 1][TILES * VECTORS].
 */
#define TILES		(GK_PACKAGE / GK_ROW_PAD)
#define VECTORS		(GK_ROW_PAD / 16)
#define MASKS		((MAX_K - 1) * TILES)

/* The rows of a tile that exist, when `rows` are left from its first one on. */
static inline uint64_t
there(int rows)
{
	return rows >= GK_ROW_PAD ? UINT64_MAX : rows > 0 ? (UINT64_C(1) << rows) - 1 : 0;
}

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

/* Add up the lanes, as an integer. */
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
	return x->x + v / VECTORS * x->tile + v % VECTORS * 16;
}

/* ---- sums of a slice of rows with known clusters ---- */

/* Features j .. j+f-1. */
GK_INLINE void
add_features(const int k, const int f, const GkTiles *x, const uint64_t *mask, int j, const int32_t *expo, gk_int128 *sum)
{
	__m512d		s[GK_CPU_AVX512_SUMS];

	GK_UNROLL
	for (int i = 0; i < (k - 1) * f; i++)
		s[i] = _mm512_setzero_pd();
	for (size_t v = 0; v < (size_t) x->count * VECTORS; v++)
	{
		const float *at = vector(x, v) + j * x->stride;
		Halves		in;

		GK_UNROLL
		for (int q = 0; q < k - 1; q++)
			memcpy(in[q], (const char *) (mask + q * TILES) + v * 2, 2);
		GK_UNROLL
		for (int i = 0; i < 2 * f; i++)
			add_values(k, f, at + i % f * x->stride, i / f, in, s + i % f);
	}
	add_lanes(k, f, s, expo + j, sum + j, x->d);
}

#define ADD(k, f) \
	GK_TARGET static void \
	add_##k##_##f(const GkTiles *x, const uint64_t *mask, int j, const int32_t *expo, gk_int128 *sum) \
	{ \
		add_features(k, f, x, mask, j, expo, sum); \
	}
SHAPES(ADD)

#define ADD_ENTRY(k, f) [k][f] = add_##k##_##f,
static void (*const adds[MAX_K + 1][MAX_D + 1]) (const GkTiles *, const uint64_t *, int, const int32_t *, gk_int128 *) =
{
	SHAPES(ADD_ENTRY)
};

static void
add_masks(const GkTiles *x, int k, const uint64_t *mask, const int32_t *expo, gk_int128 *sum)
{
	int			times = (x->d + FEATURES(k) - 1) / FEATURES(k);

	for (int i = 0; i < times; i++)
	{
		int			j = x->d * i / times;

		adds[k][x->d * (i + 1) / times - j] (x, mask, j, expo, sum);
	}
}

/* Count; rows past the end leave the masks. */
GK_WORDS static void
count_masks(uint64_t *mask, int rows, int tiles, int k, int64_t *count)
{
	if (rows < tiles * GK_ROW_PAD)
		for (int q = 0; q < k - 1; q++)
			mask[q * TILES + tiles - 1] &= there(rows - (tiles - 1) * GK_ROW_PAD);
	for (int q = 0; q < k - 1; q++)
		for (int t = 0; t < tiles; t++)
			count[q] += __builtin_popcountll(mask[q * TILES + t]);
}

/* ---- from labels ---- */

GK_TARGET static void
masks_of_labels(const int32_t *label, int tiles, int k, uint64_t *mask)
{
	for (int t = 0; t < tiles; t++, label += GK_ROW_PAD)
		for (int q = 0; q < k - 1; q++)
		{
			uint64_t	own = 0;

			for (int i = 0; i < GK_ROW_PAD; i += 16)
				own |= (uint64_t) _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(label + i), _mm512_set1_epi32(q)) << i;
			mask[q * TILES + t] = own;
		}
}

void
gk_cpu_avx512_add_smallk(const GkTiles *x, const int32_t *label, int rows, int k, const int32_t *expo,
						 gk_int128 *sum, int64_t *count)
{
	uint64_t	mask[MASKS];

	if (k == 1)
		return;
	for (int t = 0; t < x->count; t += GK_SMALLK_ROWS / GK_ROW_PAD)
	{
		GkTiles		some = gk_smallk_slice(x, t, GK_SMALLK_ROWS);

		masks_of_labels(label + t * GK_ROW_PAD, some.count, k, mask);
		count_masks(mask, rows - t * GK_ROW_PAD, some.count, k, count);
		add_masks(&some, k, mask, expo, sum);
	}
}

/* ---- assignment and sums at once ---- */

/*
 * A knock-out tournament of the clusters, for 16 points: which of them the first of a pair
 * has lost (not on a tie), of pairs 0-3 in the first round, 4 and 5 in the second, 6 in the
 * last one.  Distances are in order as integers, see nearest().
 */
#define PAIRS		7
#define PAIR(k, i)	((i) < 4 ? 2 * (i) + 1 < (k) : (i) < 6 ? 4 * ((i) - 4) + 2 < (k) : (k) > 4)

GK_INLINE void
tournament(const int k, const __m512 *dist, __mmask16 *lost)
{
	__m512i		best[MAX_K];

	GK_UNROLL
	for (int q = 0; q < k; q++)
		best[q] = _mm512_castps_si512(dist[q]);
	GK_UNROLL
	for (int i = 0; i < PAIRS; i++)
	{
		int			w = i < 4 ? 1 : i < 6 ? 2 : 4;
		int			q = i < 4 ? 2 * i : i < 6 ? 4 * (i - 4) : 0;

		if (!PAIR(k, i))
			continue;
		lost[i] = _mm512_cmpgt_epi32_mask(best[q], best[q + w]);
		best[q] = _mm512_min_epi32(best[q], best[q + w]);
	}
}

/* Join the masks of pair i of v vectors. */
GK_INLINE uint64_t
join_masks(const int v, const int i, __mmask16 lost[][PAIRS])
{
	uint64_t	all = 0;

	GK_UNROLL
	for (int p = 0; p < v; p++)
		all |= (uint64_t) _cvtmask16_u32(lost[p][i]) << (p * 16);
	return all;
}

/* gk_smallk_bits() as a constant. */
#define BITS(k)		((k) > 4 ? 3 : (k) > 2 ? 2 : 1)
#define MAX_BITS	3

/* Labels of a tile, v vectors at a time: bit b of row i is bit i of label[b]. */
GK_INLINE void
nearest_of_tile(const int k, const int v, const float *x, size_t stride, const float *c, int d, uint64_t *label)
{
	uint64_t	lost[PAIRS] = {0};
	uint64_t	upper;

	GK_UNROLL
	for (int first = 0; first < GK_ROW_PAD / 16; first += v)
	{
		__m512		dist[4][MAX_K];
		__mmask16	part[4][PAIRS];

		add_distances(k, v, x + first * 16, c, d, 0, dist);
		for (int j = 1; j < d; j++)
			add_distances(k, v, x + j * stride + first * 16, c, d, j, dist);
		GK_UNROLL
		for (int p = 0; p < v; p++)
			tournament(k, dist[p], part[p]);
		GK_UNROLL
		for (int i = 0; i < PAIRS; i++)
			if (PAIR(k, i))
				lost[i] |= join_masks(v, i, part) << (first * 16);
	}
	upper = k > 2 ? (lost[6] & lost[5]) | (~lost[6] & lost[4]) : 0;
	label[0] = k > 2 ? (upper & lost[1]) | (~upper & lost[0]) : lost[0];
	if (k > 4)
		label[0] = (lost[6] & ((upper & lost[3]) | (~upper & lost[2]))) | (~lost[6] & label[0]);
	if (k > 2)
		label[1] = upper;
	if (k > 4)
		label[2] = lost[6];
}

/* A mask for each cluster but the last. */
GK_INLINE void
masks_of_bits(const int k, const uint64_t *label, uint64_t *mask)
{
	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
	{
		uint64_t	own = UINT64_MAX;

		GK_UNROLL
		for (int b = 0; b < MAX_BITS; b++)
			if (b < BITS(k))
				own &= q >> b & 1 ? label[b] : ~label[b];
		mask[q * TILES] = own;
	}
}

#define NEAREST(k, v) \
	GK_TARGET static void \
	nearest_##k(const GkTiles *x, const float *c, uint64_t *mask) \
	{ \
		uint64_t	label[MAX_BITS]; \
		for (int t = 0; t < x->count; t++, mask++) \
		{ \
			nearest_of_tile(k, v, x->x + t * x->tile, x->stride, c, x->d, label); \
			masks_of_bits(k, label, mask); \
		} \
	}
EACH_K(NEAREST)

static void (*const masks_of[MAX_K + 1]) (const GkTiles *, const float *, uint64_t *) =
{
	NULL, NULL, BY_K(nearest)
};

/*
 * All in registers, for the shapes that fit.  While a vector's
 * values are added, the next one's distances are computed: neither waits for the
 * masks, and instructions enough are at hand until more points arrive.
 */
GK_INLINE void
fused(const int k, const int d, const GkTiles *x, const float *c, const int32_t *expo, uint64_t *mask, gk_int128 *sum)
{
	const size_t vectors = (size_t) x->count * VECTORS;
	const float *at = x->x;
	__mmask16	in[MAX_K];
	__m512		dist[MAX_K];
	__m512d		s[GK_CPU_AVX512_SUMS];

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
			_store_mask16((__mmask16 *) (mask + q * TILES) + v - 1, in[q]);
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
	add_lanes(k, d, s, expo, sum, d);
}

#define FUSED(k, d) \
	GK_TARGET static void \
	fused_##k##_##d(const GkTiles *x, const float *c, const int32_t *expo, uint64_t *mask, gk_int128 *sum) \
	{ \
		fused(k, d, x, c, expo, mask, sum); \
	}
SHAPES(FUSED)

#define FUSED_ENTRY(k, d) [k][d] = fused_##k##_##d,
static void (*const shapes[MAX_K + 1][MAX_D + 1]) (const GkTiles *, const float *, const int32_t *, uint64_t *, gk_int128 *) =
{
	SHAPES(FUSED_ENTRY)
};

/* The bits of what masks say; the last cluster's rows are in none. */
GK_INLINE_WORDS void
bits_of_masks(const int k, const uint64_t *mask, uint64_t rows, uint64_t *label)
{
	uint64_t	last = rows;

	GK_UNROLL
	for (int q = 0; q < k - 1; q++)
		last &= ~mask[q * TILES];
	GK_UNROLL
	for (int b = 0; b < MAX_BITS; b++)
	{
		label[b] = (k - 1) >> b & 1 ? last : 0;
		GK_UNROLL
		for (int q = 0; q < k - 1; q++)
			label[b] |= q >> b & 1 ? mask[q * TILES] : 0;
	}
}

/* Keep the labels; return the rows that had another one. */
GK_INLINE_WORDS uint64_t
keep(const int k, const uint64_t *label, uint64_t *kept)
{
	uint64_t	changed = 0;

	GK_UNROLL
	for (int b = 0; b < MAX_BITS; b++)
		if (b < BITS(k))
		{
			changed |= label[b] ^ kept[b];
			kept[b] = label[b];
		}
	return changed;
}

#define KEEP(k, v) \
	GK_WORDS static int64_t \
	keep_##k(const uint64_t *mask, int rows, int tiles, uint64_t *kept) \
	{ \
		int64_t		changed = 0; \
		for (int t = 0; t < tiles; t++, mask++, kept += BITS(k)) \
		{ \
			uint64_t	label[MAX_BITS]; \
			bits_of_masks(k, mask, there(rows - t * GK_ROW_PAD), label); \
			changed += __builtin_popcountll(keep(k, label, kept)); \
		} \
		return changed; \
	}
EACH_K(KEEP)

static int64_t (*const keeps[MAX_K + 1]) (const uint64_t *, int, int, uint64_t *) =
{
	NULL, NULL, BY_K(keep)
};

int64_t
gk_cpu_avx512_step_smallk(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
						  uint64_t *kept, gk_int128 *sum, int64_t *count)
{
	bool		one_pass = k > 1 && x->d <= FEATURES(k);
	int			most = one_pass ? GK_PACKAGE : GK_SMALLK_ROWS;
	uint64_t	mask[MASKS];
	int64_t		changed = 0;

	if (k == 1)
		return 0;
	for (int t = 0; t < x->count; t += most / GK_ROW_PAD)
	{
		GkTiles		some = gk_smallk_slice(x, t, most);
		int			left = rows - t * GK_ROW_PAD;

		if (one_pass)
			shapes[k][x->d] (&some, c, expo, mask, sum);
		else
		{
			masks_of[k] (&some, c, mask);
			add_masks(&some, k, mask, expo, sum);
		}
		count_masks(mask, left, some.count, k, count);
		if (kept != NULL)
			changed += keeps[k] (mask, left, some.count, kept + t * gk_smallk_bits(k));
	}
	return changed;
}

/* ---- what has changed since the last step ---- */

/* What a package's rows bring to clusters and take from them, the last one too. */
typedef struct Moves
{
	double		sum[2 * GK_CPU_AVX512_SUMS];	/* [k][d], while [k - 1][d] are at most GK_CPU_AVX512_SUMS */
	int64_t		count[MAX_K];
	int64_t		rows;
} Moves;

/* Move rows of a tile from one cluster to another. */
static __attribute__((noinline)) void
move(const float *x, size_t stride, int d, uint64_t rows, int bits, const uint64_t *from, const uint64_t *to, Moves *m)
{
	for (; rows != 0; rows &= rows - 1, m->rows++)
	{
		int			i = __builtin_ctzll(rows);
		int			old = 0;
		int			new = 0;

		for (int b = 0; b < bits; b++)
		{
			old |= (int) (from[b] >> i & 1) << b;
			new |= (int) (to[b] >> i & 1) << b;
		}
		m->count[old]--;
		m->count[new]++;
		for (int j = 0; j < d; j++)
		{
			double		v = (double) x[j * stride + i];

			m->sum[old * d + j] -= v;
			m->sum[new * d + j] += v;
		}
	}
}

GK_INLINE void
move_changed(const int k, const int v, const GkTiles *x, const float *c, int rows, uint64_t *kept, Moves *m)
{
	for (int t = 0; t < x->count; t++, kept += BITS(k))
	{
		const float *at = x->x + t * x->tile;
		uint64_t	label[MAX_BITS];
		uint64_t	before[MAX_BITS];
		uint64_t	changed;

		nearest_of_tile(k, v, at, x->stride, c, x->d, label);
		GK_UNROLL
		for (int b = 0; b < MAX_BITS; b++)
			if (b < BITS(k))
			{
				label[b] &= there(rows - t * GK_ROW_PAD);
				before[b] = kept[b];
			}
		changed = keep(k, label, kept);
		if (changed != 0)
			move(at, x->stride, x->d, changed, BITS(k), before, label, m);
	}
}

#define MOVE(k, v) \
	GK_TARGET static void \
	move_##k(const GkTiles *x, const float *c, int rows, uint64_t *kept, Moves *m) \
	{ \
		move_changed(k, v, x, c, rows, kept, m); \
	}
EACH_K(MOVE)

static void (*const moves[MAX_K + 1]) (const GkTiles *, const float *, int, uint64_t *, Moves *) =
{
	NULL, NULL, BY_K(move)
};

int64_t
gk_cpu_avx512_move_smallk(const GkTiles *x, const float *c, int k, int rows, const int32_t *expo,
						  uint64_t *kept, gk_int128 *sum, int64_t *count)
{
	int64_t		changed = 0;

	for (int t = 0; t < x->count && k > 1; t += GK_PACKAGE / GK_ROW_PAD)
	{
		GkTiles		package = gk_smallk_slice(x, t, GK_PACKAGE);
		Moves		m = {0};

		moves[k] (&package, c, rows - t * GK_ROW_PAD, kept + t * gk_smallk_bits(k), &m);
		changed += m.rows;
		for (int q = 0; q < k - 1 && m.rows > 0; q++)
		{
			count[q] += m.count[q];
			for (int j = 0; j < x->d; j++)
				sum[q * x->d + j] += (int64_t) (m.sum[q * x->d + j] * gk_pow2(GK_GRID_BITS - expo[j]));
		}
	}
	return changed;
}

/* ---- counts, inertia and radius ---- */

/* What gk_d2_split() makes of a distance is computed once for eight points; masks share it out. */
GK_INLINE void
tally(const int k, const float *d2, const float *weight, const int32_t *label, int rows, double scale, GkTally *out)
{
	__m512i		hi[MAX_K];
	__m512i		lo[MAX_K];
	__m256		farthest[MAX_K];
	int64_t		count[MAX_K];

	GK_UNROLL
	for (int q = 0; q < k; q++)
	{
		hi[q] = lo[q] = _mm512_setzero_si512();
		farthest[q] = _mm256_setzero_ps();
		count[q] = 0;
	}
	for (int i = 0; i < rows; i += 8)
	{
		__mmask8	valid = rows - i < 8 ? (__mmask8) ((1 << (rows - i)) - 1) : 0xff;
		__m256		d = _mm256_maskz_loadu_ps(valid, d2 + i);
		__m256i		of = _mm256_maskz_loadu_epi32(valid, label + i);
		__m512d		v = _mm512_cvtps_pd(d);
		__m512i		up;
		__m512i		rest;

		if (weight != NULL)
			v = _mm512_mul_pd(_mm512_cvtps_pd(_mm256_maskz_loadu_ps(valid, weight + i)), v);
		v = _mm512_min_pd(_mm512_mul_pd(v, _mm512_set1_pd(scale)), _mm512_set1_pd(0x1p40));
		up = _mm512_cvttpd_epi64(v);
		rest = _mm512_cvttpd_epi64(_mm512_mul_pd(_mm512_sub_pd(v, _mm512_cvtepi64_pd(up)), _mm512_set1_pd(0x1p40)));
		GK_UNROLL
		for (int q = 0; q < k; q++)
		{
			__mmask8	own = _mm256_mask_cmpeq_epi32_mask(valid, of, _mm256_set1_epi32(q));

			hi[q] = _mm512_mask_add_epi64(hi[q], own, hi[q], up);
			lo[q] = _mm512_mask_add_epi64(lo[q], own, lo[q], rest);
			farthest[q] = _mm256_mask_max_ps(farthest[q], own, farthest[q], d);
			count[q] += __builtin_popcount(own);
		}
	}
	GK_UNROLL
	for (int q = 0; q < k; q++)
	{
		float		lanes[8];

		out[q].hi = _mm512_reduce_add_epi64(hi[q]);
		out[q].lo = _mm512_reduce_add_epi64(lo[q]);
		out[q].count = count[q];
		out[q].max_d2 = 0.0f;
		_mm256_storeu_ps(lanes, farthest[q]);
		for (int i = 0; i < 8; i++)
			out[q].max_d2 = lanes[i] > out[q].max_d2 ? lanes[i] : out[q].max_d2;
	}
}

#define TALLY(k, v) \
	GK_TARGET static void \
	tally_##k(const float *d2, const float *weight, const int32_t *label, int rows, double scale, GkTally *out) \
	{ \
		tally(k, d2, weight, label, rows, scale, out); \
	}
TALLY(1, 4) EACH_K(TALLY)

void
gk_cpu_avx512_tally_smallk(const float *d2, const float *weight, const int32_t *label, int rows, int k,
						   double scale, GkTally *out)
{
	static void (*const by_k[MAX_K + 1]) (const float *, const float *, const int32_t *, int, double, GkTally *) =
	{NULL, tally_1, BY_K(tally)};

	by_k[k] (d2, weight, label, rows, scale, out);
}

#endif							/* GK_CPU_X86 */
