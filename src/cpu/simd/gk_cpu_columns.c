/*
 * gk_cpu_columns.c - loops over one column (gk_cpu_columns.h) for any machine, in vectors of
 * two doubles; which set's are used; statistics of columns.
 */
#define GK_TARGET
#define GK_COLUMNS			gk_columns_base
#define GK_TURN				NULL
#define GK_DOUBLES			2

#define v_widen(f)			__builtin_convertvector(f, vdouble)
#define vd_fma(a, b, c)		((a) * (b) + (c))
#define vd_fms(a, b, c)		((a) * (b) - (c))
#define vf_min(a, b)			PICK_FLOATS((a) < (b), a, b)
#define vf_max(a, b)			PICK_FLOATS((a) > (b), a, b)
#define vb_min(a, b)		PICK_BITS((a) < (b), a, b)
#define vd_min(a, b)		PICK((a) < (b), a, b)
#define vd_max(a, b)		PICK((a) > (b), a, b)
#define LEAST(a, b)			((a) < (b) ? (a) : (b))
#define vf_least(v)			LEAST(LEAST((v)[0], (v)[1]), LEAST((v)[2], (v)[3]))
#define vf_most(v)			(-vf_least(-(v)))
#define vb_least(v)			vf_least(v)
#define vd_total(v)			((v)[0] + (v)[1])

#include "cpu/simd/gk_cpu_columns.h"

void
gk_stats_clear(GkColumnStats *s, int n)
{
	memset(s, 0, n * sizeof(GkColumnStats));
	for (int j = 0; j < n; j++)
	{
		s[j].min = INFINITY;
		s[j].max = -INFINITY;
	}
}

void
gk_stats_merge(GkColumnStats *to, const GkColumnStats *from, int n)
{
	for (int j = 0; j < n; j++)
	{
		to[j].min = from[j].min < to[j].min ? from[j].min : to[j].min;
		to[j].max = from[j].max > to[j].max ? from[j].max : to[j].max;
		gk_wide_merge(&to[j].sum, &from[j].sum);
		to[j].missing += from[j].missing;
	}
}

bool
gk_float_column(double center, double scale)
{
	int			e;

	return frexp(scale, &e) == 0.5 && e >= -60 && e <= 100 &&
		(double) (float) center == center && fabs(center) <= 0x1p120;
}

const GkColumnKernels *
gk_columns(void)
{
	return gk_cpu_kernels()->columns;
}
