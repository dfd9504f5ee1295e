/*
 * fn_evaluate.h - what kmeans_evaluate, kmeans_scan and the pictures share.
 */
#ifndef GKMEANS_QUALITY_H
#define GKMEANS_QUALITY_H

#include "core/quality/gk_quality.h"
#include "gkmeans.h"

/* ---- fn_evaluate.c ---- */

extern int	gk_parse_sample(FunctionCallInfo fcinfo, int arg);
/* NULL for what is not defined. */
extern Datum gk_measure_datum(double v, bool *isnull);

/* ---- fn_choose_k.c ---- */

typedef struct GkScanRow
{
	int			k;				/* asked for */
	double		inertia;
	int			iterations;
	bool		converged;
	GkMeasures	measures;
} GkScanRow;

typedef struct GkScan
{
	int			n;
	GkScanRow  *row;
	int			elbow;			/* index of a row, or -1 */
	int			silhouette;
	double		load_ms;
	double		fit_ms;			/* seeding and iterations of all k */
} GkScan;

/* From the arguments of kmeans_scan(). */
extern void gk_scan(FunctionCallInfo fcinfo, GkScan *scan);

#endif							/* GKMEANS_QUALITY_H */
