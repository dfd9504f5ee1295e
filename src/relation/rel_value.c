/*
 * rel_value.c - numbers as PostgreSQL has them, as doubles.
 */
#include "postgres.h"

#include "relation/rel_value.h"

int
km_value_size(KmValueType type)
{
	switch (type)
	{
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

void
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
	}
}
