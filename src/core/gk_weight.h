/*
 * gk_weight.h - weights as they are counted: float32 on a grid of 2^-40 of a power of
 * two that none of the fit's weights exceeds (numerics contract, 3).
 */
#ifndef GK_WEIGHT_H
#define GK_WEIGHT_H

#include "core/gk_numerics.h"

/* Neither above that power of two nor lighter than one unit of the grid. */
static inline bool
gk_weight_on_grid(double w, int weight_exp)
{
	double		v = gk_ldexp(w, -weight_exp);

	return v >= 0x1p-40 && v <= 1.0;
}

/* For weights of which that is true: at least one unit, at most 1. */
static inline float
gk_prepare_weight(double w, int weight_exp)
{
	return gk_to_grid(gk_ldexp(w, -weight_exp), gk_grid_magic(0));
}

#endif							/* GK_WEIGHT_H */
