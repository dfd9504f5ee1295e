/*
 * gk_exact.h - exact sums of finite doubles, as fixed-point numbers of base 2^32 digits.
 *
 * A number is n signed 64-bit limbs: limb i counts 2^(32 i) units of the lowest one.
 * Additions leave carries in the upper halves, up to GK_DIGITS_PENDING of them.  Nothing
 * rounds, so the order of additions does not matter.
 *
 * GkWide has limbs for any sum of 2^40 doubles; gk_digits_*() take as many limbs as their
 * values need, `lo` being the number of the first one in a GkWide.
 */
#ifndef GK_EXACT_H
#define GK_EXACT_H

#include "core/gk_core.h"

#define GK_WIDE_LIMBS	70
/* Limb i counts 2^(32 i - GK_WIDE_BIAS). */
#define GK_WIDE_BIAS	1088

typedef struct GkWide
{
	int64_t		limb[GK_WIDE_LIMBS];
	int64_t		pending;		/* additions since the last carry */
} GkWide;

void		gk_wide_add(GkWide *w, double x);

/* to += from. */
void		gk_wide_merge(GkWide *to, const GkWide *from);

/* The sum divided by n: two roundings, no overflow on the way. */
double		gk_wide_mean(const GkWide *w, int64_t n);

#define GK_DIGITS_PENDING	((int64_t) 1 << 30)
/* Limbs above the highest digit of any value: room for 2^62 additions. */
#define GK_DIGITS_HEADROOM	2

/* First and last limb that a finite x != 0 touches. */
void		gk_digits_span(double x, int *first, int *last);

/* Add x, or subtract it with sign -1; the limbs of its span must exist. */
void		gk_digits_add(int64_t *limb, int lo, double x, int sign);

/* Add v * 2^bit, bit counted from the lowest limb. */
void		gk_digits_add_int128(int64_t *limb, gk_int128 v, int bit);

/* Canonical form: all digits in 0 .. 2^32-1 but the last, which has the sign. */
void		gk_digits_carry(int64_t *limb, int n);

/*
 * Correctly rounded: *mantissa (an integer of at most 53 bits, or 0) times
 * 2^(result).  least: no bit below 2^least is kept (-1074 for doubles, INT32_MIN
 * for none); lo as above.  The limbs are carried.
 */
int			gk_digits_round(int64_t *limb, int n, int lo, int least, double *mantissa);

/* As a double; infinite when it does not fit one. */
double		gk_digits_to_double(int64_t *limb, int n, int lo);

#endif							/* GK_EXACT_H */
