/*
 * gk_columns.h - loops over one column: statistics of raw values, and their conversion to
 * prepared ones; and the conversion of one row.  The same bits on every instruction set,
 * since every operation is elementwise or exact.
 */
#ifndef GK_COLUMNS_H
#define GK_COLUMNS_H

#include "core/base/gk_exact.h"

/* Values handled at a time; n below is at most this. */
#define GK_COLUMN_BLOCK	1024

typedef struct GkColumnStats
{
	double		min;
	double		max;
	GkWide		sum;
	int64_t		missing;		/* values that there were not: gk_batch_miss() */
} GkColumnStats;

/* Exact sums of a prepared column: x in grid units, x^2 in grid units squared. */
typedef struct GkMoments
{
	gk_int128	sum;
	gk_int128	sq;
	gk_int128	mass;			/* of the values, under GK_PARTIAL only: else it is that of the rows */
} GkMoments;

/* Make statistics of no values; add those of other values. */
void		gk_stats_clear(GkColumnStats *s, int n);
void		gk_stats_merge(GkColumnStats *to, const GkColumnStats *from, int n);

typedef struct GkColumnKernels
{
	/* Add n values to the statistics. */
	void		(*observe) (GkColumnStats *s, const double *x, int n);
	void		(*observe_floats) (GkColumnStats *s, const float *x, int n);
	/* Euclidean preparation (gk_centre_scale, gk_to_grid). */
	void		(*prepare) (const double *x, int n, double center, double scale, double magic, float *out);
	/* The same from floats; may be done in place. */
	void		(*prepare_floats) (const float *x, int n, double center, double scale, double magic, float *out);
	/* Add n prepared values of a column with that expo. */
	void		(*moments) (GkMoments *m, const float *x, int n, int expo);
	/* Both in one for points of the fit where gk_float_column() says so. */
	void		(*prepare_fit) (const float *x, int n, float center, float scale, int expo,
								float *out, GkMoments *m);
	/* prepare() of one value each of d columns. */
	void		(*prepare_row) (const double *x, int d, const double *center, const double *scale,
								const int32_t *expo, float *out);
	/* n IEEE halves, which need not be aligned, as floats. */
	void		(*halves) (const void *from, int n, float *to);
	/* Copy n floats, which need not be aligned.  False: one of them is not finite. */
	bool		(*floats) (const void *from, int n, float *to);
	/*
	 * Floats of sixteen rows, from row[i] + at on and not aligned, become columns that are a stride of bytes apart.
	 * False: one of them is not finite.  NULL: this set has no instructions for it.
	 */
	bool		(*turn) (const char *const *row, int at, int columns, char *to, size_t stride);
} GkColumnKernels;

/*
 * Whether floats of the fit, |x - center| * scale <= 2^GK_TOP_EXPO, may be prepared in
 * float32.  The bits are those of float64: its difference of two floats, rounded to
 * float32, is the float32 difference, since it has more than twice as many bits and two
 * (S. Figueroa, "When is double rounding innocuous?", 1995), and a power of two changes
 * no digit.  A product below the normal range is far below half a grid unit: 0 both ways.
 */
bool		gk_float_column(double center, double scale);

/* For the instruction set of gk_cpu_simd(). */
const GkColumnKernels *gk_columns(void);

#endif							/* GK_COLUMNS_H */
