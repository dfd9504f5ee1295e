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

/*
 * Cut every value at 40 bits below the block's largest: the upper parts are
 * multiples of one unit and 1,024 of them add up exactly in a double; then the
 * same with what is left.  Two rounds for full doubles, one for integers.
 */
void
gk_wide_add_block(GkWide *w, const double *x, int n)
{
	double		rest[GK_WIDE_BLOCK];

	memcpy(rest, x, (size_t) n * sizeof(double));
	for (;;)
	{
		double		big = 0.0;
		double		magic;
		double		s[8] = {0};
		int			e;
		int			i;

		for (i = 0; i < n; i++)
		{
			double		a = fabs(rest[i]);

			big = a > big ? a : big;
		}
		if (big == 0.0)
			return;
		frexp(big, &e);			/* big < 2^e */
		if (e < -900 || e > 1000)
		{
			/* The magic number would leave the exponent range. */
			for (i = 0; i < n; i++)
				gk_wide_add(w, rest[i]);
			return;
		}
		magic = 1.5 * gk_pow2(e - 40 + 52);
		for (i = 0; i + 8 <= n; i += 8)
			for (int u = 0; u < 8; u++)
			{
				double		h = (rest[i + u] + magic) - magic;

				s[u] += h;
				rest[i + u] -= h;
			}
		for (; i < n; i++)
		{
			double		h = (rest[i] + magic) - magic;

			s[0] += h;
			rest[i] -= h;
		}
		gk_wide_add(w, ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
	}
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
