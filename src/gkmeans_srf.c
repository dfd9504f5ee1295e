/*
 * gkmeans_srf.c - beginning of a function that returns a set of rows.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"

#include "gkmeans.h"

/* The rows go to a tuplestore that lives as long as the query. */
void
gk_result_begin(FunctionCallInfo fcinfo, GkResult *result)
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
