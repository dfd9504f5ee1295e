/*
 * pg_result.c - beginning of a function that returns a set of rows, and arrays in them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"

#include "gkmeans.h"

/* The rows go to a tuplestore that lives as long as the query. */
void
km_result_begin(FunctionCallInfo fcinfo, KmResult *result)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext caller;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo) ||
		(rsinfo->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));

	caller = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &result->desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	result->store = tuplestore_begin_heap((rsinfo->allowedModes & SFRM_Materialize_Random) != 0,
										  false, work_mem);
	rsinfo->returnMode = SFRM_Materialize;
	rsinfo->setResult = result->store;
	rsinfo->setDesc = result->desc;
	MemoryContextSwitchTo(caller);
}

Datum
km_float8_array(const double *v, int n)
{
	Size		bytes = ARR_OVERHEAD_NONULLS(1) + n * sizeof(double);
	ArrayType  *array = palloc0(bytes);

	SET_VARSIZE(array, bytes);
	array->ndim = 1;
	array->elemtype = FLOAT8OID;
	ARR_DIMS(array)[0] = n;
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), v, n * sizeof(double));
	return PointerGetDatum(array);
}
