/*
 * state_sum.c - a kmeans_state that is a sum of points: add, subtract, merge, round.
 *
 * Sums are exact (core/base/gk_exact.h), so the order of the rows, parallel workers,
 * partitions and nodes make no difference, and rows that leave a window frame are simply
 * subtracted.  The result is the exact sum, rounded once.
 */
#include "postgres.h"

#include <math.h>

#include "core/base/gk_exact.h"
#include "types/state.h"

static Size
sum_size(int64 d, int64 nlimbs)
{
	return offsetof(KmeansSum, limb) + d * nlimbs * sizeof(int64);
}

KmeansSum *
kmeans_sum_make(int d, int lo, int nlimbs)
{
	KmeansSum  *sum = palloc0(sum_size(d, nlimbs));

	SET_VARSIZE(sum, sum_size(d, nlimbs));
	sum->head.magic = KMEANS_STATE_MAGIC;
	sum->head.kind = KMEANS_STATE_SUM;
	sum->head.d = d;
	sum->lo = lo;
	sum->nlimbs = nlimbs;
	return sum;
}

static void
carry(KmeansSum *sum)
{
	for (int j = 0; j < sum->head.d; j++)
		gk_digits_carry(sum->limb + (Size) j * sum->nlimbs, sum->nlimbs);
	sum->pending = 0;
}

/* A copy with the limbs of [lo, lo + nlimbs), which include the used ones. */
static KmeansSum *
resize(const KmeansSum *sum, int lo, int nlimbs)
{
	KmeansSum  *to = kmeans_sum_make(sum->head.d, lo, nlimbs);
	int			from = Max(lo, sum->lo);
	int			end = Min(lo + nlimbs, sum->lo + sum->nlimbs);

	to->head.rows = sum->head.rows;
	to->pending = sum->pending;
	for (int j = 0; from < end && j < sum->head.d; j++)
		memcpy(to->limb + (Size) j * nlimbs + (from - lo),
			   sum->limb + (Size) j * sum->nlimbs + (from - sum->lo),
			   (end - from) * sizeof(int64));
	return to;
}

/*
 * Room for digits in the limbs first..last and for their carries, in a copy if need be.
 */
static KmeansSum *
make_room(KmeansSum *sum, int first, int last)
{
	int			lo = sum->nlimbs == 0 ? first : Min(first, sum->lo);
	int			end = last + 1 + GK_DIGITS_HEADROOM;

	if (sum->nlimbs > 0)
		end = Max(end, sum->lo + sum->nlimbs);
	if (lo == sum->lo && end - lo == sum->nlimbs)
		return sum;
	if (sum->nlimbs > 0 && lo < sum->lo)
		lo = Max(lo - 1, 0);	/* smaller values seldom come alone */
	return resize(sum, lo, end - lo);
}

static KmeansSum *
count_pending(KmeansSum *sum, int64 more)
{
	sum->pending += more;
	if (sum->pending >= GK_DIGITS_PENDING)
		carry(sum);
	return sum;
}

KmeansSum *
kmeans_sum_merge(KmeansSum *to, const KmeansSum *from)
{
	if (from->head.d == 0)
		return to;
	if (to->head.d == 0)
		return resize(from, from->lo, from->nlimbs);
	if (to->head.d != from->head.d)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("states of points with %d and %d features cannot be combined",
						to->head.d, from->head.d)));
	if (from->nlimbs > 0)
	{
		int			last = from->lo + from->nlimbs - 1;

		/* the headroom of from is also that of to */
		to = make_room(to, from->lo, last - GK_DIGITS_HEADROOM);
		if (from->pending + to->pending >= GK_DIGITS_PENDING)
			carry(to);
		for (int j = 0; j < to->head.d; j++)
			for (int i = 0; i < from->nlimbs; i++)
				to->limb[(Size) j * to->nlimbs + from->lo - to->lo + i] +=
					from->limb[(Size) j * from->nlimbs + i];
		count_pending(to, from->pending + 1);
	}
	kmeans_state_count(&to->head.rows, from->head.rows);
	return to;
}

KmeansSum *
kmeans_sum_normal(const KmeansSum *from)
{
	KmeansSum  *sum = resize(from, from->lo, from->nlimbs);
	int			n = sum->nlimbs;
	int			low = 0;

	carry(sum);

	/* A last limb that is only the sign of the one below goes into it. */
	while (n > 0)
	{
		bool		fold = true;

		for (int j = 0; fold && j < sum->head.d; j++)
		{
			int64	   *limb = sum->limb + (Size) j * sum->nlimbs;

			fold = n == 1 ? limb[0] == 0 :
				limb[n - 1] == 0 || (limb[n - 1] == -1 && limb[n - 2] > 0);
		}
		if (!fold)
			break;
		for (int j = 0; n > 1 && j < sum->head.d; j++)
		{
			int64	   *limb = sum->limb + (Size) j * sum->nlimbs;

			limb[n - 2] += limb[n - 1] * ((int64) 1 << 32);
			limb[n - 1] = 0;
		}
		n--;
	}
	for (; low < n; low++)
	{
		bool		zero = true;

		for (int j = 0; zero && j < sum->head.d; j++)
			zero = sum->limb[(Size) j * sum->nlimbs + low] == 0;
		if (!zero)
			break;
	}
	return resize(sum, n > 0 ? sum->lo + low : 0, n - low);
}

/* ---- rows ---- */

/* Add or subtract x; the sum may have to move. */
static KmeansSum *
add_value(KmeansSum *sum, int j, double x, int sign)
{
	int			first;
	int			last;

	if (x == 0.0)
		return sum;
	gk_digits_span(x, &first, &last);
	if (unlikely(sum->nlimbs == 0 || first < sum->lo ||
				 last + GK_DIGITS_HEADROOM >= sum->lo + sum->nlimbs))
		sum = make_room(sum, first, last);
	gk_digits_add(sum->limb + (Size) j * sum->nlimbs, sum->lo, x, sign);
	return sum;
}

KmeansSum *
kmeans_sum_add(KmeansSum *sum, const double *x, int d, int sign)
{
	for (int j = 0; j < d; j++)
		sum = add_value(sum, j, x[j], sign);
	sum->head.rows += sign;
	return count_pending(sum, 1);
}

/* weight * x is exact as the sum of two doubles: fma() gives what the product cuts off. */
KmeansSum *
kmeans_sum_add_weighted(KmeansSum *sum, const double *x, int d, double weight, int sign)
{
	for (int j = 0; j < d; j++)
	{
		double		hi = weight * x[j];

		if (unlikely(!isfinite(hi)))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("weight %g times feature %d, %g, is out of range", weight, j + 1, x[j])));
		sum = add_value(sum, j, hi, sign);
		sum = add_value(sum, j, fma(weight, x[j], -hi), sign);
	}
	sum->head.rows += sign;
	return count_pending(sum, 2);
}

double *
kmeans_sum_values(const KmeansSum *sum)
{
	KmeansSum  *copy = resize(sum, sum->lo, sum->nlimbs);
	double	   *values = palloc0(sum->head.d * sizeof(double));

	for (int j = 0; sum->nlimbs > 0 && j < sum->head.d; j++)
	{
		values[j] = gk_digits_to_double(copy->limb + (Size) j * copy->nlimbs, copy->nlimbs, copy->lo);
		if (isinf(values[j]))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("sum of feature %d is out of range", j + 1)));
	}
	return values;
}
