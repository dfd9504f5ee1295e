/*
 * fn_evaluate.h - what kmeans_evaluate, kmeans_scan and the pictures share.
 */
#ifndef FN_EVALUATE_H
#define FN_EVALUATE_H

#include "core/quality/gk_quality.h"
#include "gkmeans.h"

/* ---- fn_evaluate.c ---- */

extern int	km_parse_sample(FunctionCallInfo fcinfo, int arg);
/* NULL for what is not defined. */
extern Datum km_measure_datum(double v, bool *isnull);

/* ---- fn_choose_k.c ---- */

typedef struct KmChooseKRow
{
	int			k;				/* asked for */
	double		inertia;
	int			iterations;
	bool		converged;
	GkMeasures	measures;
} KmChooseKRow;

typedef struct KmChooseK
{
	int			n;
	KmChooseKRow  *row;
	int			elbow;			/* index of a row, or -1 */
	int			silhouette;
	double		load_ms;
	double		fit_ms;			/* seeding and iterations of all k */
} KmChooseK;

/* From the arguments of kmeans_scan(). */
extern void km_choose_k(FunctionCallInfo fcinfo, KmChooseK *scan);

#endif							/* FN_EVALUATE_H */
