/*
 * gk_exact.c - exact sums of doubles (gk_exact.h).
 */
#include "core/base/gk_exact.h"
#include "core/gk_numerics.h"

/* ---- as many digits as the values need ---- */

/* x = mantissa * 2^(exponent), exponent relative to limb 0's lowest bit. */
static uint64_t
take_apart(double x, int *exponent, bool *negative)
{
	uint64_t	bits;
	int			e;
	uint64_t	mant;

	memcpy(&bits, &x, sizeof(bits));
	e = (int) (bits >> 52) & 0x7ff;
	mant = bits & UINT64_C(0x000fffffffffffff);
	if (e == 0)
		e = 1;					/* subnormal: no hidden bit */
	else
		mant |= UINT64_C(1) << 52;
	*exponent = e + GK_WIDE_BIAS - 1075;
	*negative = (bits >> 63) != 0;
	return mant;
}

void
gk_digits_span(double x, int *first, int *last)
{
	bool		negative;
	int			e;
	uint64_t	mant = take_apart(x, &e, &negative);

	*first = (e + __builtin_ctzll(mant)) / 32;
	*last = (e + 63 - __builtin_clzll(mant)) / 32;
}

void
gk_digits_add(int64_t *limb, int lo, double x, int sign)
{
	bool		negative;
	int			e;
	uint64_t	mant = take_apart(x, &e, &negative);
	int			low;
	unsigned	__int128 v;

	if (mant == 0)
		return;
	/* Trailing zeros would ask for limbs below the span. */
	low = __builtin_ctzll(mant);
	mant >>= low;
	e += low;
	v = (unsigned __int128) mant << (e % 32);
	limb += e / 32 - lo;
	if (negative)
		sign = -sign;
	for (; v != 0; v >>= 32)
		*limb++ += sign * (int64_t) (uint32_t) v;
}

void
gk_digits_add_int128(int64_t *limb, gk_int128 v, int bit)
{
	int			shift = bit % 32;
	bool		negative = v < 0;
	unsigned	__int128 u = negative ? -(unsigned __int128) v : (unsigned __int128) v;
	uint64_t	carry = 0;

	for (limb += bit / 32; u != 0 || carry != 0; u >>= 32)
	{
		uint64_t	digit = ((uint64_t) (uint32_t) u << shift) + carry;

		*limb++ += negative ? -(int64_t) (uint32_t) digit : (int64_t) (uint32_t) digit;
		carry = digit >> 32;
	}
}

void
gk_digits_carry(int64_t *limb, int n)
{
	int64_t		v = 0;

	for (int i = 0; i < n - 1; i++)
	{
		v += limb[i];
		limb[i] = (uint32_t) v;
		v >>= 32;				/* floor */
	}
	limb[n - 1] += v;
}

/*
 * Carry the limbs and return the upper three digits of their magnitude, limb *top and the two
 * below it.  *sticky: is anything below those?
 */
static unsigned __int128
upper_digits(int64_t *limb, int n, bool *negative, int *top, bool *sticky)
{
	unsigned	__int128 m = 0;

	gk_digits_carry(limb, n);
	*negative = limb[n - 1] < 0;
	if (*negative)
	{
		for (int i = 0; i < n; i++)
			limb[i] = -limb[i];
		gk_digits_carry(limb, n);
	}
	for (*top = n - 1; *top > 0 && limb[*top] == 0;)
		--* top;
	for (int i = *top; i >= *top - 2; i--)
		m = (m << 32) | (i >= 0 ? (uint64_t) limb[i] : 0);
	*sticky = false;
	for (int i = 0; i < *top - 2; i++)
		*sticky |= limb[i] != 0;
	return m;
}

int
gk_digits_round(int64_t *limb, int n, int lo, int least, double *mantissa)
{
	bool		negative;
	bool		sticky;
	int			top;
	unsigned	__int128 m = upper_digits(limb, n, &negative, &top, &sticky);
	unsigned	__int128 rest;
	unsigned	__int128 half;
	int			at = 32 * (lo + top - 2) - GK_WIDE_BIAS;	/* exponent of the lowest bit of m */
	int			shift;

	if (m == 0)
	{
		*mantissa = 0.0;
		return 0;
	}

	shift = 128 - 53;
	for (rest = m; rest >> 127 == 0; rest <<= 1)
		shift--;
	if (least > at + shift)
		shift = least - at;
	if (shift > 0)
	{
		rest = m & (((unsigned __int128) 1 << shift) - 1);
		half = (unsigned __int128) 1 << (shift - 1);
		m >>= shift;
		at += shift;
		if (rest > half || (rest == half && (sticky || (m & 1))))
			m++;
	}
	*mantissa = negative ? -(double) (uint64_t) m : (double) (uint64_t) m;
	return at;
}

double
gk_digits_to_double(int64_t *limb, int n, int lo)
{
	double		mantissa;
	int			e = gk_digits_round(limb, n, lo, -1074, &mantissa);

	return ldexp(mantissa, e);
}

/* ---- any double ---- */

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
	bool		negative;
	bool		sticky;
	unsigned	__int128 m;
	double		mean;

	while (low < GK_WIDE_LIMBS - 1 && w->limb[low] == 0)
		low++;
	while (end > low + 1 && w->limb[end - 1] == 0)
		end--;
	/* what is carried out of a limb of 64 bits takes two of 32 */
	end = end + 2 < GK_WIDE_LIMBS ? end + 2 : GK_WIDE_LIMBS;
	memcpy(limb, w->limb + low, (end - low) * sizeof(int64_t));
	m = upper_digits(limb, end - low, &negative, &top, &sticky);
	m |= sticky;
	mean = gk_ldexp(gk_i128_to_double((gk_int128) m) / (double) n, 32 * (low + top - 2) - GK_WIDE_BIAS);
	return negative ? -mean : mean;
}
