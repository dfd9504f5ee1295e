/*
 * gk_exact.c - exact sums of doubles (see gk_exact.h).
 */
#include "core/gk_exact.h"
#include "core/gk_numerics.h"

static void
carry(GkWide *w)
{
	for (int i = 0; i < GK_WIDE_LIMBS - 1; i++)
	{
		int64_t		c = w->limb[i] >> 32;	/* floor: digits become 0 .. 2^32-1 */

		w->limb[i] -= c * ((int64_t) 1 << 32);
		w->limb[i + 1] += c;
	}
	w->pending = 0;
}

void
gk_wide_add(GkWide *w, double x)
{
	uint64_t	bits;
	int			e;
	uint64_t	mant;
	unsigned __int128 v;
	int64_t	   *limb;
	int64_t		sign;

	memcpy(&bits, &x, sizeof(bits));
	e = (int) (bits >> 52) & 0x7ff;
	mant = bits & UINT64_C(0x000fffffffffffff);
	if (e == 0)
		e = 1;					/* subnormal: no hidden bit */
	else
		mant |= UINT64_C(1) << 52;
	if (mant == 0)
		return;

	/* x = mant * 2^(e - 1075); bit position in the accumulator: */
	e += GK_WIDE_BIAS - 1075;
	v = (unsigned __int128) mant << (e % 32);
	limb = &w->limb[e / 32];
	sign = (bits >> 63) ? -1 : 1;
	limb[0] += sign * (int64_t) (uint32_t) v;
	limb[1] += sign * (int64_t) (uint32_t) (v >> 32);
	limb[2] += sign * (int64_t) (uint32_t) (v >> 64);
	if (++w->pending >= (1 << 30))
		carry(w);
}

void
gk_wide_merge(GkWide *to, const GkWide *from)
{
	for (int i = 0; i < GK_WIDE_LIMBS; i++)
		to->limb[i] += from->limb[i];
	/* A carry leaves digits of 32 bits, as one addition does. */
	to->pending += from->pending + 1;
	if (to->pending >= (1 << 30))
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
