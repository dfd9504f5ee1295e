/*
 * gk_digits.h - fixed-point numbers of a few base 2^32 digits, for exact sums.
 *
 * A number is n signed 64-bit limbs: limb i counts 2^(32 i) units of the lowest
 * one.  Additions leave carries in the upper halves, up to GK_DIGITS_PENDING of
 * them; nothing rounds, so the order of additions does not matter.  Unlike
 * GkWide (gk_exact.h) a number has only the limbs that its values need: limb
 * numbers of doubles are the same as there (GK_WIDE_BIAS), `lo` is the first.
 */
#ifndef GK_DIGITS_H
#define GK_DIGITS_H

#include "core/base/gk_exact.h"

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

#endif							/* GK_DIGITS_H */
