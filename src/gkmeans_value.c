/*
 * gkmeans_value.c - numbers as PostgreSQL has them, as doubles.
 */
#include "postgres.h"

#include "gkmeans_value.h"

int
gk_value_size(GkValueType type)
{
	switch (type)
	{
		case GK_VALUE_INT2:
			return sizeof(int16);
		case GK_VALUE_INT4:
			return sizeof(int32);
		case GK_VALUE_FLOAT4:
			return sizeof(float4);
		default:
			return sizeof(int64);
	}
}

#define CONVERT(from) \
	for (int j = 0; j < n; j++) \
		out[j] = (double) (from)

void
gk_values_of(GkValueType type, const Datum *values, int n, double *out)
{
	switch (type)
	{
		case GK_VALUE_INT2:
			CONVERT(DatumGetInt16(values[j]));
			break;
		case GK_VALUE_INT4:
			CONVERT(DatumGetInt32(values[j]));
			break;
		case GK_VALUE_INT8:
			CONVERT(DatumGetInt64(values[j]));
			break;
		case GK_VALUE_FLOAT4:
			CONVERT(DatumGetFloat4(values[j]));
			break;
		case GK_VALUE_FLOAT8:
			CONVERT(DatumGetFloat8(values[j]));
			break;
	}
}

void
gk_values_in(GkValueType type, const void *from, int n, double *out)
{
	switch (type)
	{
		case GK_VALUE_INT2:
			CONVERT(((const int16 *) from)[j]);
			break;
		case GK_VALUE_INT4:
			CONVERT(((const int32 *) from)[j]);
			break;
		case GK_VALUE_INT8:
			CONVERT(((const int64 *) from)[j]);
			break;
		case GK_VALUE_FLOAT4:
			CONVERT(((const float4 *) from)[j]);
			break;
		case GK_VALUE_FLOAT8:
			memcpy(out, from, n * sizeof(double));
			break;
	}
}

double
gk_value_at(GkValueType type, const char *from)
{
	uint64		aligned;
	double		v;

	memcpy(&aligned, from, gk_value_size(type));
	gk_values_in(type, &aligned, 1, &v);
	return v;
}
