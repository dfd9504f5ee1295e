/*
 * gk_cpu_elkan_search.h - compare rows with the centroids that their bounds (gk_cpu_elkan.c) leave.
 *
 * Bounds are looked at by lanes of rows.  The pairs that they leave are few and of any rows, so lanes are features where
 * these are multiplied, four at a time: rows are turned for that, some of a tile, which takes as long as some four pairs of
 * each.
 *
 * A template, included after gk_cpu_int16_words.h.  Before it comes
 *   ELKAN_DENSE		with more pairs left of a tile and a group of centroids, all of them take no longer
 *   ELKAN_PAIR, ELKAN_CALM, ELKAN_LEAST_D	GkElkanKernels.pair, calm and least_d
 */
#include "cpu/simd/gk_cpu_elkan_bounds.h"

/* Lanes of bounds. */
#define BOUNDS	(2 * LANES)
/* Centroids of a group, at most. */
#define GROUP	16
/* Words that rows are fetched ahead while they are turned. */
#define TURN_AHEAD	32

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
		vfloat		v[LANES];	/* words, not floats */

		for (int i = 0; i < LANES; i++)
			__builtin_prefetch(from + (w + TURN_AHEAD + i) * GK_ROW_PAD);
		GK_UNROLL
		for (int i = 0; i < LANES; i++)
			v[i] = w + i < words ? v_load((const float *) (from + (w + i) * GK_ROW_PAD)) : v_zero();
		transpose(v);
		GK_UNROLL
		for (int i = 0; i < LANES; i++)
			v_store((float *) (y + i * to_words + w), v[i]);
	}
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
		vlabel		acc[4];

		for (int p = 0; p < 4; p++)
		{
			y[p] = w->y + w->row[i + p] * words;
			c[p] = w->e->c + w->to[i + p] * words;
			acc[p] = vl_zero();
		}
		for (size_t j = 0; j < words; j += LANES)
		{
			GK_UNROLL
			for (int p = 0; p < 4; p++)
				add_any_products(&acc[p], vl_load(y[p] + j), vl_load(c[p] + j));
		}
		vl_store_totals(product + i, acc[0], acc[1], acc[2], acc[3]);
	}
}

/* s of the pairs, as compare() of gk_cpu_int16_products.h has it. */
GK_TARGET static vlabel
scores(Work *w)
{
	int32_t		product[LANES];
	vfloat		half;

	for (int i = w->count; i < LANES; i++)
	{
		w->row[i] = w->row[0];
		w->to[i] = w->to[0];
	}
	multiply(w, product);
	half = v_gather(w->s->half, vl_load(w->to));
	w->all += w->count;
	return vl_add(vl_from(v_mul(half, v_set1(w->x->per))), vl_load(product));
}

/* Upper bounds of rows from `first` on by the scores of their labels, rounded up. */
GK_INLINE vlabel
upper_bounds(const GkInt16 *s, const GkElkan *e, const GkInt16Points *x, vlabel score, int first)
{
	vfloat		off;
	vfloat		d2 = bound_squares(x->per, score, v_load(x->tile->square + first), &off);
	vfloat		r = v_sqrt(v_add(v_max(d2, v_zero()), off));
	vfloat		u = v_add(v_add(r, v_load(x->tile->lost + first)), v_set1(s->lost));

	/* what is not a number becomes the largest one */
	u = v_fma(u, v_set1(e->per * e->widen), v_set1(2.0f));
	return vl_truncated(v_min(u, v_set1(MOST_BOUND)));
}

/* Tighten the upper bounds of some rows. */
GK_TARGET static void
tighten(const Work *w, uint64_t open)
{
	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		vl_store16_some((unsigned) (open >> i), w->upper + i, upper_bounds(w->s, w->e, w->x, vl_load(w->rows->least + i), i));
}

GK_TARGET static void
upper(const GkInt16 *s, const GkElkan *e, const GkInt16Points *x, const GkInt16Rows *rows, uint16_t *out)
{
	for (int i = 0; i < GK_ROW_PAD; i += LANES)
		vl_store16(out + i, upper_bounds(s, e, x, vl_load(rows->least + i), i));
}

/* Compare the pairs at hand, each of a row and its last label. */
GK_TARGET static void
compare_own(Work *w)
{
	int32_t		score[LANES];

	vl_store(score, scores(w));
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
	vlabel		s = scores(w);
	vlabel		row = vl_load(w->row);
	vfloat		low = bounds_below(w->s, w->e, w->x->per, s, v_gather(w->x->tile->square, row),
								   v_gather(w->x->tile->lost, row));

	vl_store(score, s);
	vl_store(bound, kept_bounds(low, v_gather(w->e->moved_down, vl_load(w->to))));
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
	vlabel		of[GK_ROW_PAD / BOUNDS];
} Uppers;

GK_INLINE Uppers
uppers(const Work *w)
{
	Uppers		u;

	GK_UNROLL
	for (int i = 0; i < GK_ROW_PAD / BOUNDS; i++)
		u.of[i] = vl_load(w->upper + i * BOUNDS);
	return u;
}

/* Rows to be compared with centroid q, as bounds do not prove that it is farther and something has moved: bits. */
GK_INLINE uint64_t
nearer(const Work *w, Uppers u, int q)
{
	const uint16_t *lower = w->lower + (size_t) q * GK_ROW_PAD;
	uint64_t	rows = 0;

	GK_UNROLL
	for (int i = 0; i < GK_ROW_PAD / BOUNDS; i++)
		rows |= (uint64_t) vl_at_most16(vl_load(lower + i * BOUNDS), u.of[i], w->e->moved[q]) << (i * BOUNDS);
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
compare_whole_group(Work *w, uint64_t open, int q)
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
	w->all += ELKAN_DENSE;
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
		if (pairs > ELKAN_DENSE)
		{
			compare_whole_group(w, open, first);
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
		if ((open >> i & ((1u << LANES) - 1)) != 0)
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

static const GkElkanKernels elkan_kernels = {
	.pair = ELKAN_PAIR,
	.calm = ELKAN_CALM,
	.least_d = ELKAN_LEAST_D,
	.upper = upper,
	.search = search
};
