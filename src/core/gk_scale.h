/*
 * gk_scale.h - numbers times powers of two.
 */
#ifndef GK_SCALE_H
#define GK_SCALE_H

#include <math.h>

#include "core/gk_numerics.h"

/*
 * ldexp(), which takes as long as many a small clustering's other arithmetic: a product
 * with a power of two has the same one rounding.
 */
static inline double
gk_ldexp(double v, int e)
{
	return e > -1023 && e < 1024 ? v * gk_pow2(e) : ldexp(v, e);
}

#endif							/* GK_SCALE_H */
