/*
 * gk_cpu_dot.c - labels by scalar products where they are certain, else by the
 * canonical distance.
 *
 * |x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x c), so the nearest centroid has the least
 * |c|^2 / 2 - x c: one multiply-add a feature instead of a difference and one.  The
 * rounded value is not the canonical distance, but mostly it tells which is the least.
 *
 * What may be wrong, with u = 2^-24, C the largest |c| and D the exact squared distance:
 *   - Products are added up in chains of some 40, and those in another one, so no term is
 *     rounded more than L = the lengths of both + 3 times: a computed |c|^2 / 2 - x c is off
 *     by at most L u (|x| C + C^2 / 2), the two that are compared by at most twice that,
 *     L u (2 |x| C + C^2) <= L u (|x|^2 + 2 C^2).
 *   - A canonical distance is off by at most (d + 2) u D, as all its terms are positive.
 *     With b the least and q any other, D_q = D_b + 2 (their difference): the order stays
 *     if the difference exceeds (d + 2) u D_b.
 * A difference above the sum decides, with 2 % for what rounding does to the bound itself
 * and to |x|^2 and D_b in it (they are off by d u |x|^2: up to 1,024 features that is
 * nothing beside L), and 2^-120 for what underflow does.  |x|^2 may be any larger number:
 * it is the largest of 64 rows, which is kept from pass to pass, since each row's own takes
 * as long as one more centroid.  Rows that are not decided, mostly some in a thousand and
 * all ties, are compared in the canonical way, lanes being centroids.
 *
 * Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1.
 */
#include <math.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Features that the proof above holds for. */
#define MAX_D			1024
/* Products added up in a row, at most: more round more, fewer take longer. */
#define CHAIN			48
/* Tiles at a time. */
#define TILES			64

bool
gk_cpu_dot_possible(const GkSession *s, int k)
{
	return s->kernels->assign_dot != NULL && !s->dot.useless &&
		s->pts->d >= GK_COST_DOT_MIN_D && s->pts->d <= MAX_D && k >= GK_COST_DOT_MIN_K;
}

/* Rows of a block when all centroids are compared at once, as the second nearest may be any. */
static int
block_rows(const GkSweep *sweep)
{
	return sweep->rows / sweep->rounds / GK_ROW_PAD * GK_ROW_PAD;
}

bool
gk_cpu_dot_wanted(const GkSession *s, const GkSweep *sweep, int k)
{
	return gk_cpu_dot_possible(s, k) && block_rows(sweep) >= GK_ROW_PAD;
}

/* Make room for the largest squares; points that are not all in memory leave none. */
static bool
keep_squares(GkSession *s)
{
	size_t		tiles = s->all_rows / GK_ROW_PAD;

	if (s->dot.square != NULL || !s->pts->resident)
		return true;
	if (!gk_cpu_room(s, &s->dot.square, tiles, sizeof(float)))
		return false;
	for (size_t t = 0; t < tiles; t++)
		s->dot.square[t] = -1.0f;
	return true;
}

GkStatus
gk_cpu_dot_begin(GkSession *s, GkSweep *sweep, const float *c, int k, GkError *err)
{
	GkCpuDot   *dot = &s->dot;
	int			d = s->pts->d;
	int			chains = (d + CHAIN - 1) / CHAIN;
	int			chain = (d + chains - 1) / chains;
	double		rounding = 1.02 * (chain + chains + 5) * 0x1p-24;
	size_t		width = gk_dot_width(k);
	double		max_square = 0.0;

	if (!gk_cpu_room(s, &dot->half, k, sizeof(float)) ||
		!gk_cpu_room(s, &dot->columns, width * d, sizeof(float)) || !keep_squares(s))
		return gk_cpu_out_of_memory(err);
	for (int q = 0; q < k; q++)
	{
		double		square = 0.0;

		for (int j = 0; j < d; j++)
			square += (double) c[(size_t) q * d + j] * (double) c[(size_t) q * d + j];
		dot->half[q] = (float) (0.5 * square);
		max_square = fmax(max_square, square);
	}
	for (int j = 0; j < d; j++)
		for (size_t q = 0; q < width; q++)
			dot->columns[j * width + q] = q < (size_t) k ? c[q * d + j] : INFINITY;
	dot->args = (GkDot) {.c = c,.half = dot->half,.columns = dot->columns,.k = k,.chain = chain,
		.slack = (float) rounding,.apart = (float) (rounding * 2.0 * max_square + 0x1p-120),
		.relative = (float) (1.02 * (d + 3) * 0x1p-24)};
	dot->open = 0;
	sweep->rows = block_rows(sweep);
	sweep->rounds = 1;
	sweep->per_round = k;
	return GK_OK;
}

void
gk_cpu_dot_labels(GkSession *s, const GkTiles *x, int64_t slot, int rows, int32_t *label)
{
	float	   *kept = s->dot.square;
	int64_t		all = 0;

	for (int first = 0; first < x->count; first += TILES)
	{
		GkTiles		some = *x;
		uint64_t	open[TILES];
		float		square[TILES];

		for (int t = 0; t < TILES; t++)
			square[t] = -1.0f;
		some.x += first * x->tile;
		some.count = x->count - first < TILES ? x->count - first : TILES;
		s->kernels->assign_dot(&some, &s->dot.args, kept != NULL ? kept + slot / GK_ROW_PAD + first : square,
							   label + first * GK_ROW_PAD, open);
		for (int t = 0; t < some.count; t++)
			for (; open[t] != 0; open[t] &= open[t] - 1, all++)
			{
				int			i = __builtin_ctzll(open[t]);
				int			row = (first + t) * GK_ROW_PAD + i;
				float		point[MAX_D];

				if (row >= rows)
					break;
				for (int j = 0; j < x->d; j++)
					point[j] = some.x[t * x->tile + j * x->stride + i];
				label[row] = s->kernels->assign_one(point, &s->dot.args, x->d);
			}
	}
	__atomic_fetch_add(&s->dot.open, all, __ATOMIC_RELAXED);
}

void
gk_cpu_dot_end(GkSession *s)
{
	if (s->dot.open > s->pts->n / GK_COST_DOT_OPEN_SHARE)
		s->dot.useless = true;
}
