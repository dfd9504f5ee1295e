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
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "core/spectral/gk_spectral.h"
#include "functions/functions.h"
#include "rescan/rescan.h"

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
	km_fit_open_rest(fcinfo, 3 + GKMEANS_NOPTIONS, &fit);
	(void) km_fit_run(&fit, &want);
	km_fit_end(&fit);
	return (Datum) 0;
}

/* ---- rows read with a model ---- */

static char **
model_columns(const KmeansModel *model)
{
	if (model->ncolumns == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the model does not know the columns that it was made from"),
				 errhint("Use kmeans_predict() with a point made of the right columns. kmeans_from_table() takes their names.")));
	return kmeans_model_columns(model);
}

void
km_model_rows_open(FunctionCallInfo fcinfo, int model, int relation, int nonfinite, KmModelRows *rows)
{
	memset(rows, 0, sizeof(*rows));
	km_require_arg(fcinfo, Min(model, relation), model < relation ? "model" : "relation");
	km_require_arg(fcinfo, Max(model, relation), model < relation ? "relation" : "model");
	rows->read.skip_nonfinite = km_parse_nonfinite(fcinfo, nonfinite);
	rows->value = PG_GETARG_KMEANS_MODEL(model);
	kmeans_model_view(rows->value, &rows->model);
	rows->read.expect_of = "the model";
	rows->read.expect_d = rows->model.prep.d;
	rows->read.distance = rows->model.prep.distance;
	rows->read.fill = (KmFill) {rows->model.prep.d, rows->model.fill};
	rows->columns = model_columns(rows->value);
}

/* Shards do not know the means that NULLs become. */
static bool
rows_can_stay(const KmModelRows *rows)
{
	return (rows->source->distributed || km_foreign_sharded(rows->source)) && rows->model.fill == NULL;
}

GkStore *
km_model_rows_read(KmModelRows *rows, Oid relation, bool identify, FunctionCallInfo fcinfo)
{
	KmReadCounts counts = {0};
	GkStore    *store;

	rows->source = km_source_open(relation, rows->columns, rows->value->ncolumns, NULL, NULL, identify);
	km_apply_simd();
	rows->host = km_host_begin();
	if (fcinfo != NULL && rows_can_stay(rows))
	{
		KmRescanOf	of = {rows->host, rows->source, GK_DEVICE_AUTO, get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)),
		&counts};

		store = km_rescan_open(km_rescan_begin(&of, &rows->read, &rows->tables));
	}
	else
		store = km_read(rows->host, rows->source, &rows->read, &counts, &rows->tables);
	km_notice_left_out(&counts);
	return store;
}

void
km_model_rows_label(const KmModelRows *rows, GkStore *store, GkDeviceKind device, const KmLabelWant *want)
{
	const GkModel *m = &rows->model;
	const GkBackend *backend;
	KmLabelRelay relay;
	GkError		err;

	km_check(rows->host, gk_store_prepare_as(store, &m->prep, &err), &err);
	backend = km_choose_devices(rows->host, device, gk_store_rows(store), m->prep.d, m->k);
	km_label_relay(&relay, rows->host, want, &rows->tables, &m->prep);
	km_check(rows->host, gk_spectral_label(store, backend, m, &relay.sink, &err), &err);
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
	GkDeviceKind device;
	KmModelRows rows;
	GkStore    *store;

	km_model_rows_open(fcinfo, 1, 0, 2, &rows);
	rows.read.left_out = put_left_out;
	rows.read.arg = &result;
	device = km_parse_device(fcinfo, 3);
	km_result_begin(fcinfo, &result);
	store = km_model_rows_read(&rows, PG_GETARG_OID(0), true, NULL);
	if (store != NULL)
		km_model_rows_label(&rows, store, device, &want);
	km_host_end(rows.host);
	return (Datum) 0;
}

/* ---- planning ---- */

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
	SupportRequestRows *request = (SupportRequestRows *) PG_GETARG_POINTER(0);
	const Const *relation;

	if (!IsA(request, SupportRequestRows) || request->node == NULL || !IsA(request->node, FuncExpr))
		PG_RETURN_POINTER(NULL);
	relation = linitial(((FuncExpr *) request->node)->args);
	if (!IsA(relation, Const) || relation->constisnull)
		PG_RETURN_POINTER(NULL);
	request->rows = estimated_rows(DatumGetObjectId(relation->constvalue));
	/* -1 or 0: never analyzed */
	PG_RETURN_POINTER(request->rows > 0 ? request : NULL);
}
