/*
 * gk_cpu_elkan_avx512.c - compare rows with the centroids that their bounds (gk_cpu_elkan.c) leave, for AVX-512 with VNNI.
 *
 * Bounds are looked at by lanes of rows.  The pairs that they leave are few and of any rows, so lanes are features where
 * these are multiplied, four at a time: rows are turned for that, 16 of a tile, which takes as long as some four pairs of
 * each.
 */
#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma")))

#include "cpu/simd/gk_cpu_elkan_bounds.h"
#include "cpu/simd/gk_cpu_transpose.h"

#define LANES	16
/* Lanes of bounds. */
#define BOUNDS	32
/* Centroids of a group, at most. */
#define GROUP	16
/* With more pairs left of a tile and a group, all of them take no longer. */
#define DENSE	64
/* Words that rows are fetched ahead while they are turned. */
#define AHEAD	32

/* A tile, and pairs to be multiplied. */
typedef struct Work
{
	const GkInt16Kernels *set;
	const GkInt16 *s;
	const GkElkan *e;
	int			d;
	const GkInt16Points *x;
	int32_t    *y;				/* [GK_ROW_PAD][e->words] */
	const int32_t *own;			/* [GK_ROW_PAD]: the last labels */
	uint16_t   *upper;			/* [GK_ROW_PAD] */
	uint16_t   *lower;			/* [k][GK_ROW_PAD] */
	uint64_t	restless;		/* rows whose own centroid has moved: bits */
	GkInt16Rows *rows;
	int64_t		all;
	int			count;
	int32_t		row[LANES];
	int32_t		to[LANES];
} Work;

/* Rows of a tile, one after the other: y [LANES][to_words]. */
GK_TARGET static __attribute__((noinline)) void
turn_rows(const int32_t *from, size_t words, int32_t *y, size_t to_words)
{
	for (size_t w = 0; w < to_words; w += LANES)
	{
		__m512		v[LANES];	/* words, not floats */

		for (int i = 0; i < LANES; i++)
			_mm_prefetch((const char *) (from + (w + AHEAD + i) * GK_ROW_PAD), _MM_HINT_T0);
		GK_UNROLL
		for (int i = 0; i < LANES; i++)
			v[i] = w + i < words ? _mm512_loadu_ps(from + (w + i) * GK_ROW_PAD) : _mm512_setzero_ps();
		transpose(v);
		GK_UNROLL
		for (int i = 0; i < LANES; i++)
			_mm512_storeu_ps(y + i * to_words + w, v[i]);
	}
}

/* Add up the lanes of four vectors. */
GK_INLINE __m128i
totals(__m512i a, __m512i b, __m512i c, __m512i d)
{
	__m512i		ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
	__m512i		cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
	__m512i		all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
	__m256i		half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));

	return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Products of LANES pairs. */
GK_TARGET static __attribute__((noinline)) void
multiply(const Work *w, int32_t *product)
{
	size_t		words = w->e->words;

	for (int i = 0; i < w->count; i += 4)
	{
		const int32_t *y[4];
		const int32_t *c[4];
		__m512i		acc[4];

		for (int p = 0; p < 4; p++)
		{
			y[p] = w->y + w->row[i + p] * words;
			c[p] = w->e->c + w->to[i + p] * words;
			acc[p] = _mm512_setzero_si512();
		}
		for (size_t j = 0; j < words; j += LANES)
		{
			GK_UNROLL
			for (int p = 0; p < 4; p++)
				acc[p] = _mm512_dpwssd_epi32(acc[p], _mm512_loadu_si512(y[p] + j), _mm512_loadu_si512(c[p] + j));
		}
		_mm_storeu_si128((__m128i *) (product + i), totals(acc[0], acc[1], acc[2], acc[3]));
	}
}

/* s of the pairs, as compare() of gk_cpu_int16_products.h has it. */
GK_TARGET static __m512i
scores(Work *w)
{
	int32_t		product[LANES];
	__m512		half;

	for (int i = w->count; i < LANES; i++)
	{
		w->row[i] = w->row[0];
		w->to[i] = w->to[0];
	}
	multiply(w, product);
	half = _mm512_i32gather_ps(_mm512_loadu_si512(w->to), w->s->half, 4);
	w->all += w->count;
	return _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(half, _mm512_set1_ps(w->x->per))), _mm512_loadu_si512(product));
}

/* Upper bounds of rows from `first` on by the scores of their labels, rounded up. */
GK_INLINE __m256i
upper_bounds(const GkInt16 *s, const GkElkan *e, const GkInt16Points *x, __m512i score, int first)
{
	__m512		off;
	__m512		d2 = bound_squares(x->per, score, _mm512_loadu_ps(x->tile->square + first), &off);
	__m512		r = _mm512_sqrt_ps(_mm512_add_ps(_mm512_max_ps(d2, _mm512_setzero_ps()), off));
	__m512		u = _mm512_add_ps(_mm512_add_ps(r, _mm512_loadu_ps(x->tile->lost + first)), _mm512_set1_ps(s->lost));

	/* what is not a number becomes the largest one */
	u = _mm512_fmadd_ps(u, _mm512_set1_ps(e->per * e->widen), _mm512_set1_ps(2.0f));
	return _mm512_cvtusepi32_epi16(_mm512_cvttps_epu32(_mm512_min_ps(u, _mm512_set1_ps(MOST_BOUND))));
}

/* Tighten the upper bounds of some rows. */
GK_TARGET static void
tighten(const Work *w, uint64_t open)
{
	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		_mm256_mask_storeu_epi16(w->upper + i, (__mmask16) (open >> i),
								 upper_bounds(w->s, w->e, w->x, _mm512_loadu_si512(w->rows->least + i), i));
}

GK_TARGET static void
upper(const GkInt16 *s, const GkElkan *e, const GkInt16Points *x, const GkInt16Rows *rows, uint16_t *out)
{
	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		_mm256_storeu_si256((__m256i *) (out + i), upper_bounds(s, e, x, _mm512_loadu_si512(rows->least + i), i));
}

/* Compare the pairs at hand, each of a row and its last label. */
GK_TARGET static void
compare_own(Work *w)
{
	int32_t		score[LANES];

	_mm512_storeu_si512(score, scores(w));
	for (int i = 0; i < w->count; i++)
		w->rows->least[w->row[i]] = score[i];
	w->count = 0;
}

/* Compare the pairs at hand. */
GK_TARGET static __attribute__((noinline)) void
compare_pairs(Work *w)
{
	int32_t		score[LANES];
	int32_t		bound[LANES];
	__m512i		s = scores(w);
	__m512i		row = _mm512_loadu_si512(w->row);
	__m512		low = bounds_below(w->s, w->e, w->x->per, s, _mm512_i32gather_ps(row, w->x->tile->square, 4),
								   _mm512_i32gather_ps(row, w->x->tile->lost, 4));

	_mm512_storeu_si512(score, s);
	_mm512_storeu_si512(bound, kept_bounds(low, _mm512_i32gather_ps(_mm512_loadu_si512(w->to), w->e->moved_down, 4)));
	for (int i = 0; i < w->count; i++)
	{
		int			r = w->row[i];

		w->lower[(size_t) w->to[i] * GK_ROW_PAD + r] = (uint16_t) bound[i];
		/* of equal ones any may be the label: the second says that it is not certain */
		if (score[i] < w->rows->least[r])
		{
			w->rows->second[r] = w->rows->least[r];
			w->rows->least[r] = score[i];
			w->rows->label[r] = w->to[i];
		}
		else if (score[i] < w->rows->second[r])
			w->rows->second[r] = score[i];
	}
	w->count = 0;
}

/* Upper bounds of the rows of a tile. */
typedef struct Uppers
{
	__m512i		low,
				high;
} Uppers;

GK_INLINE Uppers
uppers(const Work *w)
{
	return (Uppers) {_mm512_loadu_si512(w->upper), _mm512_loadu_si512(w->upper + BOUNDS)};
}

/* Rows to be compared with centroid q, as bounds do not prove that it is farther and something has moved: bits. */
GK_INLINE uint64_t
nearer(const Work *w, Uppers u, int q)
{
	const uint16_t *lower = w->lower + (size_t) q * GK_ROW_PAD;
	__m512i		moved = _mm512_set1_epi16((int16_t) w->e->moved[q]);
	uint64_t	rows = _mm512_cmple_epu16_mask(_mm512_loadu_si512(lower), _mm512_adds_epu16(u.low, moved)) |
	(uint64_t) _mm512_cmple_epu16_mask(_mm512_loadu_si512(lower + BOUNDS), _mm512_adds_epu16(u.high, moved)) << BOUNDS;

	return w->e->move[q] != 0 ? rows : rows & w->restless;
}

/* Groups of centroids that some row of the tile may have to be compared with, ... */
static int
groups(const Work *w)
{
	return w->restless == 0 ? w->e->groups : (w->s->k + w->set->group - 1) / w->set->group;
}

/* ... and the i-th one's first centroid and how many they are. */
static int
group_of(const Work *w, int i, int *first)
{
	*first = (w->restless == 0 ? w->e->active[i] : i) * w->set->group;
	return w->s->k - *first < w->set->group ? w->s->k - *first : w->set->group;
}

/* Rows with a centroid that may be nearer than their own. */
GK_TARGET static __attribute__((noinline)) uint64_t
open_rows(const Work *w)
{
	Uppers		u = uppers(w);
	uint64_t	open = 0;

	for (int i = 0; i < groups(w); i++)
	{
		int			first;
		int			some = group_of(w, i, &first);

		for (int q = first; q < first + some; q++)
			open |= nearer(w, u, q);
	}
	return open;
}

static void
add_pair(Work *w, int row, int to, void (*compare) (Work *w))
{
	w->row[w->count] = row;
	w->to[w->count++] = to;
	if (w->count == LANES)
		compare(w);
}

/* Compare all rows with the group from q on, as compare() does; what is found of the open ones joins what is known. */
static void
compare_group(Work *w, uint64_t open, int q)
{
	GkInt16Rows of;
	GkInt16Points x = *w->x;
	GkInt16Scratch in = {.points = &x,.rows = &of};
	GkInt16Rows *rows = w->rows;

	for (int i = 0; i < GK_ROW_PAD; i++)
		of.least[i] = of.second[i] = INT32_MAX;
	w->set->compare(1, w->d, w->s, &in, q, q + w->set->group, w->e, w->lower);
	for (int i = 0; i < GK_ROW_PAD; i++)
		if (w->own[i] >= q && w->own[i] < q + w->set->group)
			w->lower[(size_t) w->own[i] * GK_ROW_PAD + i] = UINT16_MAX;
	for (uint64_t bits = open; bits != 0; bits &= bits - 1)
	{
		int			i = __builtin_ctzll(bits);

		if (of.least[i] < rows->least[i])
		{
			rows->second[i] = rows->least[i];
			rows->least[i] = of.least[i];
			rows->label[i] = of.label[i];
		}
		/* its own one is known */
		else if (of.label[i] != w->own[i] && of.least[i] < rows->second[i])
			rows->second[i] = of.least[i];
		if (of.second[i] < rows->second[i])
			rows->second[i] = of.second[i];
	}
	w->all += DENSE;
}

/* Of the open rows: the pairs that bounds leave. */
GK_TARGET static __attribute__((noinline)) void
search_open(Work *w, uint64_t open)
{
	Uppers		u = uppers(w);

	for (int i = 0; i < groups(w); i++)
	{
		uint64_t	near[GROUP];
		int			first;
		int			some = group_of(w, i, &first);
		int			pairs = 0;

		for (int q = 0; q < some; q++)
		{
			near[q] = nearer(w, u, first + q) & open;
			pairs += __builtin_popcountll(near[q]);
		}
		if (pairs > DENSE)
		{
			compare_group(w, open, first);
			continue;
		}
		for (int q = 0; pairs > 0 && q < some; q++)
			for (; near[q] != 0; near[q] &= near[q] - 1)
			{
				int			row = __builtin_ctzll(near[q]);

				if (w->own[row] != first + q)
					add_pair(w, row, first + q, compare_pairs);
			}
	}
	if (w->count > 0)
		compare_pairs(w);
}

GK_TARGET static int64_t
search(const GkInt16Kernels *set, const GkInt16 *s, const GkElkan *e, int d, const GkInt16Points *x, const int32_t *label,
	   uint16_t *upper, uint16_t *lower, int32_t *y, GkInt16Rows *rows)
{
	Work		w = {.set = set,.s = s,.e = e,.d = d,.x = x,.y = y,.own = label,.upper = upper,.lower = lower,.rows = rows};
	uint64_t	open;

	for (int i = 0; i < GK_ROW_PAD; i++)
	{
		unsigned	move = e->move[label[i]];
		unsigned	u = upper[i] + move;

		w.restless |= (uint64_t) (move != 0) << i;
		upper[i] = u < UINT16_MAX ? (uint16_t) u : UINT16_MAX;
		/* what is certain where a row is not open */
		rows->least[i] = 0;
		rows->second[i] = INT32_MAX;
		rows->label[i] = label[i];
	}
	open = open_rows(&w);
	if (open == 0)
		return 0;
	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		if ((open >> i & 0xffff) != 0)
			turn_rows(x->y + i, (size_t) (d + 1) / 2, y + i * e->words, e->words);
	for (uint64_t bits = open; bits != 0; bits &= bits - 1)
		add_pair(&w, __builtin_ctzll(bits), label[__builtin_ctzll(bits)], compare_own);
	if (w.count > 0)
		compare_own(&w);
	tighten(&w, open);
	search_open(&w, open);
	tighten(&w, open);
	return w.all;
}

const GkElkanKernels gk_elkan_vnni = {
	.upper = upper,
	.search = search
};

#endif							/* GK_CPU_X86 */
