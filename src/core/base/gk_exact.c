/*
 * gk_exact.c - exact sums of doubles (see gk_exact.h).
 */
#include <string.h>

#include "core/base/gk_digits.h"
#include "core/gk_numerics.h"
#include "core/gk_scale.h"

static void
carry(GkWide *w)
{
	gk_digits_carry(w->limb, GK_WIDE_LIMBS);
	w->pending = 0;
}

void
gk_wide_add(GkWide *w, double x)
{
	gk_digits_add(w->limb, 0, x, 1);
	if (++w->pending >= GK_DIGITS_PENDING)
		carry(w);
}

void
gk_wide_merge(GkWide *to, const GkWide *from)
{
	for (int i = 0; i < GK_WIDE_LIMBS; i++)
		to->limb[i] += from->limb[i];
	/* A carry leaves digits of 32 bits, as one addition does. */
	to->pending += from->pending + 1;
	if (to->pending >= GK_DIGITS_PENDING)
		carry(to);
}

double
gk_wide_mean(const GkWide *w, int64_t n)
{
	int64_t		limb[GK_WIDE_LIMBS];	/* from `low` on: the others are 0 */
	int			low = 0;
	int			end = GK_WIDE_LIMBS;
	int			top;
	bool		neg;
	unsigned __int128 m = 0;
	double		mean;

	while (low < GK_WIDE_LIMBS - 1 && w->limb[low] == 0)
		low++;
	while (end > low + 1 && w->limb[end - 1] == 0)
		end--;
	/* what is carried out of a limb of 64 bits takes two of 32 */
	end = end + 2 < GK_WIDE_LIMBS ? end + 2 : GK_WIDE_LIMBS;
	top = end - low - 1;
	memcpy(limb, w->limb + low, (top + 1) * sizeof(int64_t));
	gk_digits_carry(limb, top + 1);
	neg = limb[top] < 0;
	if (neg)
	{
		for (int i = 0; i <= top; i++)
			limb[i] = -limb[i];
		gk_digits_carry(limb, top + 1);
	}
	while (top > 0 && limb[top] == 0)
		top--;

	/* The upper 96 bits, the rest as a sticky bit. */
	for (int i = top; i >= top - 2; i--)
		m = (m << 32) | (i >= 0 ? (uint64_t) limb[i] : 0);
	for (int i = 0; i < top - 2; i++)
		if (limb[i] != 0)
		{
			m |= 1;
			break;
		}
	mean = gk_ldexp(gk_i128_to_double((gk_int128) m) / (double) n, 32 * (low + top - 2) - GK_WIDE_BIAS);
	return neg ? -mean : mean;
}
