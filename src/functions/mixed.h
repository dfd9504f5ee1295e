/*
 * mixed.h - what the SQL functions of k-prototypes share: their model, which is jsonb.
 */
#ifndef MIXED_H
#define MIXED_H

#include "postgres.h"

#include "utils/jsonb.h"

#include "core/mixed/gk_mixed.h"

#define MOST_GAMMA	1e30

/* A column, and how its values are prepared. */
typedef struct KmMixedColumn
{
	char	   *name;
	bool		number;			/* else categories */
	/* (value - center) * scale, on the grid of expo */
	double		center;
	double		scale;
	int			expo;
	text	  **categories;		/* of a fit: [codes], in the order of their bytes */
} KmMixedColumn;

/* The prepared value of a number; ERROR when it is not finite. */
extern float km_mixed_prepare(const KmMixedColumn *column, double value);

/* Is a column of this base type a number, a category, or neither? */
extern bool km_mixed_is_number(Oid type);
extern bool km_mixed_is_category(Oid type);

/* A value of a number's type. */
extern double km_mixed_number(Oid type, Datum value);

/* A cluster's means and shares, for users to read. */
extern Jsonb * km_mixed_centroid(const GkMixed *m, const KmMixedColumn *columns, int ncolumns, int cluster);

/* The whole model. */
extern Jsonb * km_mixed_model(const GkMixed *m, const KmMixedColumn *columns, int ncolumns);

#endif							/* MIXED_H */
