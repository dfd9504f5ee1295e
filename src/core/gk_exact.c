/*
 * gk_exact.c - exact sums of doubles (see gk_exact.h).
 */
#include "core/gk_digits.h"
#include "core/gk_numerics.h"

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
	GkWide		a = *w;
	bool		neg = false;
	int			top;
	unsigned __int128 m = 0;
	double		mean;

	carry(&a);
	if (a.limb[GK_WIDE_LIMBS - 1] < 0)
	{
		neg = true;
		for (int i = 0; i < GK_WIDE_LIMBS; i++)
			a.limb[i] = -a.limb[i];
		carry(&a);
	}
	for (top = GK_WIDE_LIMBS - 1; top > 2 && a.limb[top] == 0; top--)
		;

	/* The upper 96 bits, the rest as a sticky bit. */
	for (int i = top; i >= top - 2; i--)
		m = (m << 32) | (uint64_t) a.limb[i];
	for (int i = 0; i < top - 2; i++)
		if (a.limb[i] != 0)
		{
			m |= 1;
			break;
		}
	mean = ldexp(gk_i128_to_double((gk_int128) m) / (double) n,
				 32 * (top - 2) - GK_WIDE_BIAS);
	return neg ? -mean : mean;
}
