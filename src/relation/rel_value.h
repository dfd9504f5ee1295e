/*
 * rel_value.h - numbers as PostgreSQL has them, as doubles.
 */
#ifndef REL_VALUE_H
#define REL_VALUE_H

#include "postgres.h"

/* What a query or a page has for a number. */
typedef enum KmValueType
{
	KM_VALUE_INT2, KM_VALUE_INT4, KM_VALUE_INT8, KM_VALUE_FLOAT4, KM_VALUE_FLOAT8,
	/* PostgreSQL's functions make doubles of it, so it is not for threads. */
	KM_VALUE_NUMERIC
} KmValueType;

/* What follows the length of an array of one dimension; an empty array ends before d. */
typedef struct KmArrayHead
{
	int32		ndim;
	int32		dataoffset;		/* 0: no NULLs */
	Oid			element;
	int32		d;
	int32		bound;
} KmArrayHead;

/* Is there a cast to real[] for the type, implicit or not?  Then its values are points. */
extern bool km_casts_to_reals(Oid type);	/* rel_types.c */

/* Bytes of a stored value; -1: it has no fixed size. */
extern int	km_value_size(KmValueType type);

/* n values of a query's row. */
extern void km_values_of(KmValueType type, const Datum *values, int n, double *out);

/* n stored values, side by side; of a fixed size they need not be aligned.  Returns where they end. */
extern const void *km_values_in(KmValueType type, const void *from, int n, double *out);

static inline double
km_value_of(KmValueType type, Datum value)
{
	double		v;

	km_values_of(type, &value, 1, &v);
	return v;
}

static inline double
km_value_in(KmValueType type, const void *from)
{
	double		v;

	(void) km_values_in(type, from, 1, &v);
	return v;
}

#endif							/* REL_VALUE_H */
