/*
 * gk_exact.h - exact sums of arbitrary finite doubles.
 *
 * GkWide is a fixed-point number wide enough for any sum of 2^40 doubles: base
 * 2^32 digits in int64 limbs, so that a billion additions need no carry.  No
 * addition rounds, so the sum does not depend on the order of the rows.
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

#endif							/* GK_EXACT_H */
