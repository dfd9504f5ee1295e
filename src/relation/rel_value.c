/*
 * rel_value.c - numbers as PostgreSQL has them, as doubles.
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "pg/pg_compat.h"
#include "relation/rel_value.h"

int
km_value_size(KmValueType type)
{
	switch (type)
	{
		case KM_VALUE_NUMERIC:
			return -1;
		case KM_VALUE_INT2:
			return sizeof(int16);
		case KM_VALUE_INT4:
			return sizeof(int32);
		case KM_VALUE_FLOAT4:
			return sizeof(float4);
		default:
			return sizeof(int64);
	}
}

/*
 * The cast to float8 has an error for a number out of its range, which knows no row.  Here one too large
 * is an infinity and one too small is 0, and rel_rules.h says what that means, as of other columns.
 */
static double
from_numeric(Datum value)
{
	Numeric		number = DatumGetNumeric(value);
	double		v = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(number)));

	/* there is one for each value of a table */
	if ((Pointer) number != DatumGetPointer(value))
		pfree(number);
	return v;
}

#define FROM_DATUMS(get, values, n, out) \
	for (int j = 0; j < (n); j++) \
		(out)[j] = (double) get((values)[j])

void
km_values_of(KmValueType type, const Datum *values, int n, double *out)
{
	switch (type)
	{
		case KM_VALUE_INT2:
			FROM_DATUMS(DatumGetInt16, values, n, out);
			break;
		case KM_VALUE_INT4:
			FROM_DATUMS(DatumGetInt32, values, n, out);
			break;
		case KM_VALUE_INT8:
			FROM_DATUMS(DatumGetInt64, values, n, out);
			break;
		case KM_VALUE_FLOAT4:
			FROM_DATUMS(DatumGetFloat4, values, n, out);
			break;
		case KM_VALUE_FLOAT8:
			FROM_DATUMS(DatumGetFloat8, values, n, out);
			break;
		case KM_VALUE_NUMERIC:
			FROM_DATUMS(from_numeric, values, n, out);
			break;
	}
}

/* Copied one by one, since elements of arrays with a short header are not aligned. */
#define FROM_STORED(type, from, n, out) \
	_Pragma("omp simd") \
	for (int j = 0; j < (n); j++) \
	{ \
		type		v; \
		\
		memcpy(&v, (const char *) (from) + j * sizeof(type), sizeof(type)); \
		(out)[j] = (double) v; \
	}

/* As an array has them: aligned. */
static const char *
from_numerics(const char *from, int n, double *out)
{
	for (int j = 0; j < n; j++)
	{
		from = (const char *) att_align_nominal(from, TYPALIGN_INT);
		out[j] = from_numeric(PointerGetDatum(from));
		from += VARSIZE_ANY(from);
	}
	return from;
}

const void *
km_values_in(KmValueType type, const void *from, int n, double *out)
{
	switch (type)
	{
		case KM_VALUE_INT2:
			FROM_STORED(int16, from, n, out);
			break;
		case KM_VALUE_INT4:
			FROM_STORED(int32, from, n, out);
			break;
		case KM_VALUE_INT8:
			FROM_STORED(int64, from, n, out);
			break;
		case KM_VALUE_FLOAT4:
			FROM_STORED(float4, from, n, out);
			break;
		case KM_VALUE_FLOAT8:
			memcpy(out, from, n * sizeof(float8));
			break;
		case KM_VALUE_NUMERIC:
			return from_numerics(from, n, out);
	}
	return (const char *) from + n * km_value_size(type);
}
