/*
 * rel_value.h - numbers as PostgreSQL has them, as doubles.
 */
#ifndef GKMEANS_VALUE_H
#define GKMEANS_VALUE_H

#include "postgres.h"

/* What a query or a page has for a number. */
typedef enum GkValueType
{
	GK_VALUE_INT2, GK_VALUE_INT4, GK_VALUE_INT8, GK_VALUE_FLOAT4, GK_VALUE_FLOAT8
} GkValueType;

/* What follows the length of an array of one dimension; an empty array ends before d. */
typedef struct GkArrayHead
{
	int32		ndim;
	int32		dataoffset;		/* 0: no NULLs */
	Oid			element;
	int32		d;
	int32		bound;
} GkArrayHead;

/* Bytes of a stored value. */
extern int	gk_value_size(GkValueType type);
/* n values of a query's row. */
extern void gk_values_of(GkValueType type, const Datum *values, int n, double *out);
/* n stored values, side by side; they need not be aligned. */
extern void gk_values_in(GkValueType type, const void *from, int n, double *out);

static inline double
gk_value_of(GkValueType type, Datum value)
{
	double		v;

	gk_values_of(type, &value, 1, &v);
	return v;
}

static inline double
gk_value_in(GkValueType type, const void *from)
{
	double		v;

	gk_values_in(type, from, 1, &v);
	return v;
}

#endif							/* GKMEANS_VALUE_H */
