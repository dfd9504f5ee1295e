/*
 * fn_label_table.c - kmeans_label_table(): labels into a new table.
 *
 * The table is made by
 *
 *	 CREATE TABLE label_table AS SELECT id_columns, NULL::int4 AS cluster FROM relation WITH NO DATA
 *
 * so that rights, types, settings and event triggers are as in the command that a user writes.
 * It is filled by a second scan of the relation, in the snapshot of the first, that reads the
 * id columns and looks up the labels (fn_label_changes.c).  Rows are inserted up to MAX_ROWS at
 * once, with one lock and one WAL record a page; CREATE TABLE AS takes both for each row.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/tupmacs.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/varlena.h"

#include "functions/functions.h"
#include "relation/rel_executor.h"

PG_FUNCTION_INFO_V1(kmeans_label_table);

/* Rows that are written at once, and about their bytes: as COPY does. */
#define MAX_ROWS	1000
#define MAX_BYTES	65536

#define LABEL_NAME	"cluster"

typedef struct LabelTable
{
	DestReceiver pub;			/* must be first */
	const KmSource *source;
	int			nids;
	char	  **ids;
	Oid			namespace;
	char	   *name;
	char	   *qualified;		/* quoted */
	KmChanges  *labels;
	/* While writing: */
	Relation	rel;
	CommandId	command;
	BulkInsertState bulk;
	MemoryContext garbage;		/* of one write_rows() */
	int			rows;
	Size		bytes;
	TupleTableSlot *slots[MAX_ROWS];
} LabelTable;

/* ---- the table ---- */

static void
name_table(LabelTable *t, text * name)
{
	RangeVar   *range = makeRangeVarFromNameList(textToQualifiedNameList(name));

	t->namespace = RangeVarGetCreationNamespace(range);
	t->name = range->relname;
	t->qualified = quote_qualified_identifier(get_namespace_name(t->namespace), t->name);
}

/* The id columns as SQL, with a comma after each. */
static const char *
id_list(const LabelTable *t)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < t->nids; i++)
		appendStringInfo(&list, "%s, ", quote_identifier(t->ids[i]));
	return list.data;
}

static void
create_table(const LabelTable *t)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE TABLE %s AS SELECT %s", t->qualified, id_list(t));
	appendStringInfo(&sql, "NULL::pg_catalog.int4 AS " LABEL_NAME " FROM %s WITH NO DATA", t->source->qualified);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(sql.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not create table %s", t->qualified);
	SPI_finish();
}

/*
 * Rows are written straight into it, so it has to be as it was made.  Only an
 * event trigger can have changed it.
 */
static bool
is_plain(const LabelTable *t, TupleDesc source)
{
	TupleDesc	desc = RelationGetDescr(t->rel);
	Form_pg_class form = t->rel->rd_rel;
	bool		plain = form->relkind == RELKIND_RELATION && !form->relispartition &&
	!form->relhasindex && !form->relhastriggers && !form->relhasrules &&
	!form->relrowsecurity && desc->constr == NULL && desc->natts == t->nids + 1;

	for (int i = 0; plain && i < t->nids; i++)
		plain = TupleDescAttr(desc, i)->atttypid == TupleDescAttr(source, i)->atttypid;
	return plain && TupleDescAttr(desc, t->nids)->atttypid == INT4OID;
}

static void
open_table(LabelTable *t, TupleDesc source)
{
	Oid			relid = get_relname_relid(t->name, t->namespace);

	t->rel = OidIsValid(relid) ? table_open(relid, RowExclusiveLock) : NULL;
	if (t->rel == NULL || !is_plain(t, source))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("label_table \"%s\" was changed before it was filled", t->name),
				 errhint("Does an event trigger change new tables?")));
}

/* ---- rows ---- */

static void
write_rows(LabelTable *t)
{
	MemoryContext caller = MemoryContextSwitchTo(t->garbage);

	table_multi_insert(t->rel, t->slots, t->rows, t->command, TABLE_INSERT_SKIP_FSM, t->bulk);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(t->garbage);
	t->rows = 0;
	t->bytes = 0;
}

static void
begin_rows(DestReceiver *self, int operation, TupleDesc source)
{
	LabelTable *t = (LabelTable *) self;

	open_table(t, source);
	t->command = GetCurrentCommandId(true);
	t->bulk = GetBulkInsertState();
	t->garbage = AllocSetContextCreate(CurrentMemoryContext, "gkmeans label table", ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < MAX_ROWS; i++)
		t->slots[i] = table_slot_create(t->rel, NULL);
}

static Size
row_bytes(const TupleTableSlot *row)
{
	TupleDesc	desc = row->tts_tupleDescriptor;
	Size		bytes = 0;

	for (int i = 0; i < desc->natts; i++)
		if (!row->tts_isnull[i])
			bytes += att_addlength_datum(0, TupleDescAttr(desc, i)->attlen, row->tts_values[i]);
	return bytes;
}

/* Add its label to a row that has its id columns; write rows when there are enough. */
static void
put_row(LabelTable *t, const KmRowId *row)
{
	TupleTableSlot *to = t->slots[t->rows++];
	int32		label;

	to->tts_isnull[t->nids] = !km_changes_find(t->labels, row, &label);
	if (!to->tts_isnull[t->nids])
		to->tts_values[t->nids] = Int32GetDatum(label);
	ExecStoreVirtualTuple(to);
	t->bytes += row_bytes(to);
	/* the scan goes on before it is written */
	ExecMaterializeSlot(to);
	if (t->rows == MAX_ROWS || t->bytes >= MAX_BYTES)
		write_rows(t);
}

/* Receive a row of the query: id columns, ctid, tableoid. */
static bool
take_row(TupleTableSlot *row, DestReceiver *self)
{
	LabelTable *t = (LabelTable *) self;
	TupleTableSlot *to = ExecClearTuple(t->slots[t->rows]);
	KmRowId		id;

	slot_getallattrs(row);
	memcpy(to->tts_values, row->tts_values, t->nids * sizeof(Datum));
	memcpy(to->tts_isnull, row->tts_isnull, t->nids * sizeof(bool));
	id.ctid = *(ItemPointer) DatumGetPointer(row->tts_values[t->nids]);
	id.tableoid = DatumGetObjectId(row->tts_values[t->nids + 1]);
	put_row(t, &id);
	return true;
}

static void
end_rows(DestReceiver *self)
{
	LabelTable *t = (LabelTable *) self;

	if (t->rows > 0)
		write_rows(t);
	table_finish_bulk_insert(t->rel, TABLE_INSERT_SKIP_FSM);
	FreeBulkInsertState(t->bulk);
	for (int i = 0; i < MAX_ROWS; i++)
		ExecDropSingleTupleTableSlot(t->slots[i]);
	MemoryContextDelete(t->garbage);
	table_close(t->rel, NoLock);
}

/* Scan a table from its first block on, without the executor's work per row. */
static void
scan_table(LabelTable *t, const PlanState *ps, Snapshot snapshot)
{
	Relation	rel = ((const SeqScanState *) ps)->ss.ss_currentRelation;
	TableScanDesc scan = table_beginscan_strat(rel, snapshot, 0, NULL, true, false);
	TupleTableSlot *from = table_slot_create(rel, NULL);
	AttrNumber *attnum = palloc(t->nids * sizeof(AttrNumber));
	AttrNumber	last = 0;
	KmRowId		id = {RelationGetRelid(rel)};

	for (int i = 0; i < t->nids; i++)
	{
		attnum[i] = ((Var *) list_nth_node(TargetEntry, ps->plan->targetlist, i)->expr)->varattno;
		last = Max(last, attnum[i]);
	}
	while (table_scan_getnextslot(scan, ForwardScanDirection, from))
	{
		TupleTableSlot *to = ExecClearTuple(t->slots[t->rows]);

		CHECK_FOR_INTERRUPTS();
		slot_getsomeattrs(from, last);
		for (int i = 0; i < t->nids; i++)
		{
			to->tts_values[i] = from->tts_values[attnum[i] - 1];
			to->tts_isnull[i] = from->tts_isnull[attnum[i] - 1];
		}
		id.ctid = from->tts_tid;
		put_row(t, &id);
	}
	ExecDropSingleTupleTableSlot(from);
	table_endscan(scan);
	pfree(attnum);
}

/* A KmQueryScan for the tables that rel_heap.c can read. */
static bool
scan_tables(QueryDesc *desc, DestReceiver *dest)
{
	MemoryContext caller;
	PlanState **scans;
	int			n = gkmeans_reader == KM_READER_EXECUTOR ? 0 : km_heap_scans(desc, &scans);

	if (n == 0)
		return false;
	caller = MemoryContextSwitchTo(desc->estate->es_query_cxt);
	dest->rStartup(dest, desc->operation, desc->tupDesc);
	for (int i = 0; i < n; i++)
		scan_table((LabelTable *) dest, scans[i], desc->snapshot);
	dest->rShutdown(dest);
	MemoryContextSwitchTo(caller);
	return true;
}

static void
fill_table(LabelTable *t)
{
	KmSource	ids = *t->source;

	/* (begin_rows() looks at their types) */
	ids.types = NIL;
	ids.query = psprintf("SELECT %sctid, tableoid FROM %s", id_list(t), t->source->qualified);
	t->pub.receiveSlot = take_row;
	t->pub.rStartup = begin_rows;
	t->pub.rShutdown = end_rows;
	t->pub.mydest = DestNone;
	km_query_run(&ids, &t->pub, scan_tables);
}

/* ---- labels ---- */

static void
note_labels(void *arg, const KmTables *tables, const GkPrep *prep, int rows,
			const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	LabelTable *t = arg;

	km_changes_add_labels(t->labels, tables, rows, label, NULL, aux);
}

static void
fill_by_place(LabelTable *t, KmFit *fit, KmResult *result)
{
	/* rows that are left out are not noted: a row without a label gets NULL */
	KmLabelWant want = {NULL, note_labels, t};

	t->labels = km_changes_begin();
	if (km_fit_run(fit, &want))
		km_result_clusters(result, &fit->model);
	km_fit_end(fit);
	fill_table(t);
	km_changes_end(t->labels);
}

static void
fill_by_model(LabelTable *t, FunctionCallInfo fcinfo, KmFit *fit, KmResult *result)
{
	KmeansModel *model = NULL;

	fit->as_model = true;
	if (km_fit_run(fit, NULL))
	{
		km_result_clusters(result, &fit->model);
		model = km_fit_model(fit);
	}
	km_fit_end(fit);
	km_label_table_by_model(t->source, t->qualified, id_list(t), model,
							get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)));
}

/*
 * kmeans_label_table(relation regclass, columns text[], k int, label_table text,
 *					  id_columns text[], <options>)
 * returns table (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
 */
Datum
kmeans_label_table(PG_FUNCTION_ARGS)
{
	LabelTable *t = palloc0(sizeof(LabelTable));

	KmResult	result;
	KmFit		fit;
	bool		by_model;

	km_require_arg(fcinfo, 3, "label_table");
	km_require_arg(fcinfo, 4, "id_columns");
	PreventCommandIfReadOnly("kmeans_label_table()");
	km_result_begin(fcinfo, &result);
	km_require_arg(fcinfo, 0, "relation");
	by_model = km_citus_known(PG_GETARG_OID(0)) || !km_rows_have_ctid(PG_GETARG_OID(0));
	km_fit_open(fcinfo, 5, NULL, !by_model, &fit);
	t->source = fit.source;
	t->ids = km_column_names(PG_GETARG_ARRAYTYPE_P(4), "id_columns", &t->nids);
	km_source_require(fit.source, t->ids, t->nids);
	km_fit_open_rest(fcinfo, 5 + GKMEANS_NOPTIONS, &fit);
	name_table(t, PG_GETARG_TEXT_PP(3));

	/* before the work: a name that is taken, or a right that is missing */
	create_table(t);
	if (by_model)
		fill_by_model(t, fcinfo, &fit, &result);
	else
		fill_by_place(t, &fit, &result);
	return (Datum) 0;
}
