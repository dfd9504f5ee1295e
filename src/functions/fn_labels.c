/*
 * fn_labels.c - kmeans_labels(): every row's cluster, as rows.
 *
 * Rows that were left out come first, with NULLs, because they are known first.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "catalog/pg_class.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "gkmeans.h"
#include "types/model.h"
#include "relation/rel_rules.h"

PG_FUNCTION_INFO_V1(kmeans_labels);
PG_FUNCTION_INFO_V1(kmeans_labels_model);
PG_FUNCTION_INFO_V1(kmeans_labels_support);

#define ROWS_PER_INTERRUPT_CHECK	1024

static void
put_left_out(void *arg, const KmRowId *row, uint32 old_label)
{
	KmResult   *result = arg;
	ItemPointerData ctid = row->ctid;
	Datum		values[4] = {ObjectIdGetDatum(row->tableoid), PointerGetDatum(&ctid), 0, 0};
	bool		nulls[4] = {false, false, true, true};

	tuplestore_putvalues(result->store, result->desc, values, nulls);
}

/*
 * All rows with a label have the same form, so one tuple is made, and changed in
 * place from row to row; the tuplestore copies it.
 */
typedef struct LabelTuple
{
	TupleTableSlot *slot;
	MinimalTuple tuple;
	char	   *value[4];		/* places of the values in it */
} LabelTuple;

static void
make_label_tuple(TupleDesc desc, LabelTuple *t)
{
	ItemPointerData anywhere = {0};
	Datum		values[4] = {0, PointerGetDatum(&anywhere), 0, Float8GetDatum(0)};
	bool		nulls[4] = {false};
	int			at = 0;

	t->tuple = km_form_minimal_tuple(desc, values, nulls);
	t->slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	ExecStoreMinimalTuple(t->tuple, t->slot, false);
	for (int i = 0; i < 4; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		at = att_align_nominal(at, att->attalign);
		t->value[i] = (char *) t->tuple + t->tuple->t_hoff - MINIMAL_TUPLE_OFFSET + at;
		at += att->attlen;
	}
}

static void
put_labels(void *arg, const KmTables *tables, const GkPrep *prep, int rows,
		   const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	KmResult   *result = arg;
	LabelTuple	t;

	make_label_tuple(result->desc, &t);
	for (int i = 0; i < rows; i++)
	{
		KmRowId		id;
		double		distance = gk_distance_from_d2(prep, d2[i]);

		if (i % ROWS_PER_INTERRUPT_CHECK == 0)
			CHECK_FOR_INTERRUPTS();
		km_row_id(tables, aux, i, &id);
		memcpy(t.value[0], &id.tableoid, sizeof(Oid));
		memcpy(t.value[1], &id.ctid, sizeof(ItemPointerData));
		memcpy(t.value[2], &label[i], sizeof(int32));
		memcpy(t.value[3], &distance, sizeof(double));
		tuplestore_puttupleslot(result->store, t.slot);
	}
	ExecDropSingleTupleTableSlot(t.slot);
	heap_free_minimal_tuple(t.tuple);
}

/*
 * kmeans_labels(relation regclass, columns text[], k int, <options>)
 * returns table (tableoid oid, ctid tid, cluster int, distance float8)
 */
Datum
kmeans_labels(PG_FUNCTION_ARGS)
{
	KmResult	result;
	KmLabelWant want = {put_left_out, put_labels, &result};
	KmFit		fit;

	km_result_begin(fcinfo, &result);
	km_fit_open(fcinfo, 3, NULL, true, &fit);
	(void) km_fit_run(&fit, &want);
	km_fit_end(&fit);
	return (Datum) 0;
}

/* The columns that the model was made from. */
char **
km_model_columns(const KmeansModel *model)
{
	if (model->ncolumns == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the model does not know the columns that it was made from"),
				 errhint("Use kmeans_predict() with a point made of the right columns.")));
	return kmeans_model_columns(model);
}

/*
 * kmeans_labels(relation regclass, model kmeans_model, nonfinite text, device text)
 * returns the same: bulk prediction.
 */
Datum
kmeans_labels_model(PG_FUNCTION_ARGS)
{
	KmResult	result;
	KmLabelWant want = {put_left_out, put_labels, &result};
	KmReadOptions read = {.expect_of = "the model",.left_out = put_left_out,.arg = &result};
	KmReadCounts counts = {0};
	KmTables	tables = {0};
	GkDeviceKind device;
	KmeansModel *value;
	GkModel		model;
	KmSource   *source;
	KmPgHost   *host;
	GkStore    *store;

	km_require_arg(fcinfo, 0, "relation");
	km_require_arg(fcinfo, 1, "model");
	value = PG_GETARG_KMEANS_MODEL(1);
	kmeans_model_view(value, &model);
	read.expect_d = model.prep.d;
	read.distance = model.prep.distance;
	read.skip_nonfinite = km_parse_nonfinite(fcinfo, 2);
	device = km_parse_device(fcinfo, 3);

	km_result_begin(fcinfo, &result);
	source = km_source_open(PG_GETARG_OID(0), km_model_columns(value), value->ncolumns,
							NULL, NULL, true);
	km_apply_simd();
	host = km_host_begin();
	store = km_read(host, source, &read, &counts, &tables);
	km_notice_left_out(&counts);
	if (store != NULL)
	{
		const GkBackend *backend;
		KmLabelRelay relay;
		GkError		err;

		km_check(host, gk_store_prepare_as(store, &model.prep, &err), &err);
		backend = km_choose_backend(host, device, gk_store_rows(store), model.prep.d, model.k);
		km_label_relay(&relay, host, &want, &tables, &model.prep);
		km_check(host, gk_label(store, backend, &model, &relay.sink, &err), &err);
	}
	km_host_end(host);
	return (Datum) 0;
}

/* The planner's estimate of a relation's rows; 0: not known. */
static double
estimated_rows(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	double		rows = 0;

	if (HeapTupleIsValid(tuple))
	{
		rows = ((Form_pg_class) GETSTRUCT(tuple))->reltuples;
		ReleaseSysCache(tuple);
	}
	return rows;
}

/*
 * kmeans_labels_support(internal) returns internal: a join with the labels is
 * planned for as many of them as the relation has rows.
 */
Datum
kmeans_labels_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	Node	   *answer = NULL;

	if (IsA(request, SupportRequestRows))
	{
		SupportRequestRows *rows = (SupportRequestRows *) request;

		if (rows->node != NULL && IsA(rows->node, FuncExpr))
		{
			Node	   *relation = linitial(((FuncExpr *) rows->node)->args);

			if (IsA(relation, Const) && !((Const *) relation)->constisnull)
			{
				double		estimate = estimated_rows(DatumGetObjectId(((Const *) relation)->constvalue));

				/* -1 or 0: never analyzed */
				if (estimate > 0)
				{
					rows->rows = estimate;
					answer = request;
				}
			}
		}
	}
	PG_RETURN_POINTER(answer);
}
