/*
 * pg_result.c - results of SQL functions: sets of rows, records, arrays.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"

#include "core/spectral/gk_spectral.h"
#include "pg/pg.h"

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
km_result_record(FunctionCallInfo fcinfo, Datum *values, bool *nulls, int n)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	Assert(n == desc->natts);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

GkModel
km_clusters_of(const GkModel *m)
{
	GkModel		to = *m;
	GkSpectralClusters clusters;

	if (m->spectral.k == 0)
		return to;
	to.k = m->spectral.k;
	to.spectral.k = 0;
	to.size = clusters.size = palloc(to.k * sizeof(int64));
	clusters.mass = palloc(to.k * sizeof(double));
	to.centroids = clusters.centroid = palloc_extended((Size) to.k * m->prep.d * sizeof(double), MCXT_ALLOC_HUGE);
	to.cluster_inertia = clusters.inertia = palloc(to.k * sizeof(double));
	to.radius = clusters.radius = palloc(to.k * sizeof(double));
	gk_spectral_clusters(m, &clusters);
	return to;
}

void
km_result_clusters(KmResult *result, const GkModel *model)
{
	const GkModel clusters = km_clusters_of(model);
	const GkModel *m = &clusters;

	for (int c = 0; c < m->k; c++)
	{
		Datum		values[5];
		bool		nulls[5] = {false};

		CHECK_FOR_INTERRUPTS();
		values[0] = Int32GetDatum(c);
		values[1] = Int64GetDatum(m->size[c]);
		values[2] = km_float8_array(m->centroids + (int64) c * m->prep.d, m->prep.d);
		values[3] = Float8GetDatum(m->cluster_inertia[c]);
		values[4] = Float8GetDatum(m->radius[c]);
		tuplestore_putvalues(result->store, result->desc, values, nulls);
		pfree(DatumGetPointer(values[2]));
	}
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
