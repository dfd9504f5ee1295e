/*
 * fn_label_column.c - kmeans(..., label_column): labels into the table.
 *
 * The scan that reads the points also reads each row's old label.  Rows that get another one are
 * noted (fn_label_changes.c), and one UPDATE asks for them row by row, in the same order:
 *
 *	 UPDATE t SET label = gkmeans_new_label(tableoid, ctid)
 *	 WHERE gkmeans_has_new_label(tableoid, ctid)
 *
 * So triggers, rules, generated columns, row-level security, rights and concurrent updates are as
 * in an UPDATE that the user writes, rows that keep their label are not touched, and the time is
 * that of the plain UPDATE.  Nothing is written before all labels are known.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parsetree.h"
#include "parser/scansup.h"
#include "rewrite/prs2lock.h"
#include "rewrite/rewriteDefine.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "functions/functions.h"

PG_FUNCTION_INFO_V1(gkmeans_has_new_label);
PG_FUNCTION_INFO_V1(gkmeans_new_label);

/* The label of a row that was left out: NULL in the table. */
#define LABEL_LEFT_OUT	(-1)

typedef struct KmRelabel
{
	const KmSource *source;
	/* Two lists, since all rows that were left out are known before any label. */
	KmChanges  *left_out;
	KmChanges  *labelled;
	bool		rules;			/* actions of rules run before the UPDATE */
	bool		merges;			/* the column is missing, but a child may have it, with labels */
	CommandId	read;			/* commands from this one on are the UPDATE's */
	/* While writing, the row looked up last: */
	KmRowId		row;
	bool		found;			/* it gets a label */
	int32		label;			/* of the row found last */
} KmRelabel;

/* The one that an UPDATE is running for; a trigger of it may write labels, too. */
static KmRelabel *writing = NULL;

/* ---- rights ---- */

/* To write the column, or to add it. */
static void
require_rights(Oid relid, const char *label_column)
{
	AttrNumber	attnum = get_attnum(relid, label_column);
	Oid			user = GetUserId();

	if (attnum == InvalidAttrNumber && !km_relation_ownercheck(relid, user))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid));
	if (attnum != InvalidAttrNumber && pg_class_aclcheck(relid, user, ACL_UPDATE) != ACLCHECK_OK &&
		pg_attribute_aclcheck(relid, attnum, user, ACL_UPDATE) != ACLCHECK_OK)
		aclcheck_error_col(ACLCHECK_NO_PRIV, OBJECT_COLUMN, get_rel_name(relid), label_column);
}

/* ---- calls that overlap ---- */

#define LABEL_LOCK	0x676b		/* PostgreSQL's own advisory locks have 1 and 2 here */

/*
 * Only labels that change are written, so two calls side by side would leave a mixture of both.  An advisory lock, for
 * the table may be read and changed meanwhile.
 */
char *
km_label_lock(Oid relid, const char *label_column)
{
	char	   *name = pstrdup(label_column);
	LOCKTAG		tag;

	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("label_column is an empty name"),
				 errhint("Name a column, or leave label_column out for the clusters alone.")));
	truncate_identifier(name, strlen(name), true);
	/* or who may not write would keep others from it */
	if (get_rel_name(relid) != NULL)
		require_rights(relid, name);
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, relid, DatumGetUInt32(hash_any((unsigned char *) name, strlen(name))), LABEL_LOCK);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	return name;
}

/* ---- checks ---- */

/* A column that is added is merged with one that a child has, if that has its type. */
static void
check_children(const KmSource *source)
{
	ListCell   *cell;

	foreach(cell, find_all_inheritors(source->relid, AccessShareLock, NULL))
	{
		Oid			child = lfirst_oid(cell);
		AttrNumber	attnum = get_attnum(child, source->label_column);
		Oid			type = attnum != InvalidAttrNumber ? get_atttype(child, attnum) : INT4OID;

		if (type != INT4OID)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" of the child table \"%s\" is of type %s", source->label_column, get_rel_name(child), format_type_be(type)),
					 errdetail("The label column would be added to \"%s\" with type integer.", source->relname),
					 errhint("Name another label_column.")));
	}
}

/* A column is not added to a partition alone. */
static void
check_missing(const KmSource *source)
{
	check_children(source);
	if (source->is_partition)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot add column \"%s\" to the partition \"%s\"",
						source->label_column, source->relname),
				 errhint("Add an integer column to the partitioned table.")));
}

static void
check_existing(const KmSource *source, int k)
{
	HeapTuple	tuple = SearchSysCacheAttName(source->relid, source->label_column);
	Form_pg_attribute att;

	if (!HeapTupleIsValid(tuple))
		km_source_changed(source);
	att = (Form_pg_attribute) GETSTRUCT(tuple);
	if (att->attgenerated != '\0' || att->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("label_column \"%s\" is a generated column", source->label_column)));
	ReleaseSysCache(tuple);

	if (source->label_type == KM_VALUE_INT2 && k - 1 > PG_INT16_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("label_column \"%s\" is of type smallint, too small for k = %d",
						source->label_column, k)));
}

/* Does the rule apply in this session?  As PostgreSQL's rewriter decides it. */
static bool
rule_fires(const RewriteRule *rule)
{
	char		other = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA ?
	RULE_FIRES_ON_ORIGIN : RULE_FIRES_ON_REPLICA;

	return rule->enabled != RULE_DISABLED && rule->enabled != other;
}

/*
 * Refuse rules DO INSTEAD: they keep the UPDATE from all rows, or from those that meet a condition.
 * Are there others?
 */
static bool
check_rules(const KmSource *source)
{
	Relation	rel = try_relation_open(source->relid, NoLock);
	bool		also = false;
	int			n;

	if (rel == NULL)
		km_source_changed(source);
	n = rel->rd_rules != NULL ? rel->rd_rules->numLocks : 0;
	for (int i = 0; i < n; i++)
	{
		const RewriteRule *rule = rel->rd_rules->rules[i];

		if (rule->event != CMD_UPDATE || !rule_fires(rule))
			continue;
		also = true;
		if (rule->isInstead)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot write labels to \"%s\"", source->relname),
					 errdetail("Labels are written by an UPDATE, and the table has a rule ON UPDATE DO INSTEAD."),
					 errhint("Use kmeans_labels() or kmeans_label_table(), or disable the rule.")));
	}
	relation_close(rel, NoLock);
	return also;
}

static void
check(const KmSource *source, int k)
{
	/* as in an UPDATE, the rows of temporary tables may be changed; no column may be added */
	if (source->label_missing || !isTempNamespace(get_rel_namespace(source->relid)))
		PreventCommandIfReadOnly("UPDATE of label_column");
	(void) check_rules(source);
	require_rights(source->relid, source->label_column);
	if (source->label_missing)
		check_missing(source);
	else
		check_existing(source, k);
}

/* ---- changes ---- */

static KmRelabel *
begin_relabel(const KmSource *source)
{
	KmRelabel  *relabel = palloc0(sizeof(KmRelabel));

	relabel->source = source;
	relabel->left_out = km_changes_begin();
	relabel->labelled = km_changes_begin();
	relabel->merges = source->label_missing && source->relkind == RELKIND_RELATION && has_subclass(source->relid);
	return relabel;
}

static void
note_left_out(void *arg, const KmRowId *row, uint32 old_label)
{
	KmRelabel  *relabel = arg;

	if (old_label != KM_LABEL_NULL || relabel->merges)
		km_changes_add(relabel->left_out, row, LABEL_LEFT_OUT);
}

static void
note_labels(void *arg, const KmTables *tables, const GkPrep *prep, int rows,
			const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	KmRelabel  *relabel = arg;

	km_changes_add_labels(relabel->labelled, tables, rows, label,
						  relabel->source->at_label >= 0 ? aux[KM_AUX_LABEL] : NULL, aux);
}

/* ---- writing ---- */

/* The tables that rows were read from, each by its name and its file. */
static List *
tables_of(Oid relid)
{
	List	   *tables = NIL;
	ListCell   *cell;

	/* an event trigger may have dropped it */
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		return NIL;
	foreach(cell, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		tables = lappend(tables, makeString(psprintf("%u %u %u %s", form->oid, (Oid) form->relfilenode,
													 form->relnamespace, NameStr(form->relname))));
		ReleaseSysCache(tuple);
	}
	return tables;
}

/* Add the column.  Rows are found by the places where they were read, from which an event trigger may move them. */
static void
add_column(const KmSource *source)
{
	List	   *tables = tables_of(source->relid);
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "ALTER TABLE %s ADD COLUMN %s pg_catalog.int4",
					 source->qualified, quote_identifier(source->label_column));
	if (SPI_execute(sql.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not add column \"%s\"", source->label_column);
	if (!equal(tables, tables_of(source->relid)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" was changed before its labels were written", source->relname),
				 errhint("Does an event trigger change tables? Add column \"%s\" before the call.", source->label_column)));
	if (get_attnum(source->relid, source->label_column) == InvalidAttrNumber)
		km_source_changed(source);
}

static KmRelabel *
require_writing(void)
{
	if (writing == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this function is only for the UPDATE of kmeans() with label_column")));
	return writing;
}

/*
 * The version of a row at its place, seen by a snapshot or not.  False: there is none, for the action of a rule may ask for
 * any place.
 */
static bool
fetch_version(Relation rel, const KmRowId *row, TupleTableSlot *slot)
{
	ItemPointerData ctid = row->ctid;
	TableScanDesc scan = table_beginscan_tid(rel, SnapshotAny);
	bool		valid = table_tuple_tid_valid(scan, &ctid);

	table_endscan(scan);
	return valid && table_tuple_fetch_row_version(rel, &ctid, SnapshotAny, slot);
}

/* Did another transaction make this version of a row since the snapshot? */
static bool
is_later_version(const KmRowId *row)
{
	Relation	rel;
	TupleTableSlot *slot;
	bool		later;

	/* then that is an error */
	if (IsolationUsesXactSnapshot())
		return false;
	rel = table_open(row->tableoid, NoLock);
	slot = table_slot_create(rel, NULL);
	later = fetch_version(rel, row, slot) && !table_tuple_satisfies_snapshot(rel, slot, GetActiveSnapshot());
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return later;
}

/*
 * Raise an error if this version of a row was made by the action of a rule, or by a trigger that
 * the action fired: the label is noted for the version that was read, and would be lost.
 */
static void
refuse_moved_row(const KmRelabel *relabel, const KmRowId *row)
{
	Relation	rel = table_open(row->tableoid, NoLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	if (fetch_version(rel, row, slot))
	{
		HeapTupleHeader tuple = ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;

		if ((tuple->t_infomask & HEAP_UPDATED) != 0 &&
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple)) &&
			HeapTupleHeaderGetCmin(tuple) >= relabel->read)
			ereport(ERROR,
					(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
					 errmsg("row of \"%s\" was changed by a rule or trigger while labels were written",
							RelationGetRelationName(rel)),
					 errhint("Use kmeans_labels() or kmeans_label_table(), or disable the rule.")));
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

/*
 * Does the row of a call get a label, and which one (relabel->label)?
 *
 * A row is known by its place.  The actions of rules ask too, before the UPDATE, in executor
 * states and orders of their own.
 *
 * When another transaction has changed a row since the snapshot, and the isolation level permits
 * to go on, PostgreSQL asks a second time, with the place of the row's newest version
 * (EvalPlanQual).  No other question is about a version that the snapshot does not see.  It
 * comes while the UPDATE is at that row, so the label is that of the row found last.
 */
static bool
find_label(KmRelabel *relabel, FunctionCallInfo fcinfo)
{
	KmRowId		row = {PG_GETARG_OID(0), *(ItemPointer) PG_GETARG_POINTER(1)};

	/* EvalPlanQual on behalf of a trigger does not say which table: the same one */
	if (!OidIsValid(row.tableoid))
		row.tableoid = relabel->row.tableoid;
	/* (ItemPointerEquals() is for places that are valid) */
	if (row.tableoid == relabel->row.tableoid && ItemPointerCompare(&row.ctid, &relabel->row.ctid) == 0)
		return relabel->found;
	relabel->found = km_changes_find(relabel->labelled, &row, &relabel->label) ||
		km_changes_find(relabel->left_out, &row, &relabel->label) ||
		(relabel->found && row.tableoid == relabel->row.tableoid && is_later_version(&row));
	/* (a rule's action may ask for anything: of another table, a view, no label can be lost) */
	if (!relabel->found && relabel->rules &&
		(km_changes_has(relabel->labelled, row.tableoid) || km_changes_has(relabel->left_out, row.tableoid)))
		refuse_moved_row(relabel, &row);
	relabel->row = row;
	return relabel->found;
}

/* gkmeans_has_new_label(tableoid oid, ctid tid) returns bool */
Datum
gkmeans_has_new_label(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(find_label(require_writing(), fcinfo));
}

/* gkmeans_new_label(tableoid oid, ctid tid) returns int */
Datum
gkmeans_new_label(PG_FUNCTION_ARGS)
{
	KmRelabel  *relabel = require_writing();

	/* an action's condition may ask for the label of a row that gets none */
	if (!find_label(relabel, fcinfo) || relabel->label == LABEL_LEFT_OUT)
		PG_RETURN_NULL();
	PG_RETURN_INT32(relabel->label);
}

static const char *
update_command(const KmSource *source, Oid function)
{
	const char *schema = get_namespace_name(get_func_namespace(function));
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "UPDATE %s AS t SET %s = %s(t.tableoid, t.ctid) WHERE %s(t.tableoid, t.ctid)",
					 source->qualified, quote_identifier(source->label_column),
					 quote_qualified_identifier(schema, "gkmeans_new_label"),
					 quote_qualified_identifier(schema, "gkmeans_has_new_label"));
	return sql.data;
}

/* Names are looked up again whenever something is renamed: has the UPDATE been of the relation, and the column, that were read? */
static void
require_updated(const KmSource *source, SPIPlanPtr plan)
{
	List	   *queries = ((CachedPlanSource *) linitial(SPI_plan_get_plan_sources(plan)))->query_list;
	ListCell   *cell;

	km_source_require_same(source);
	foreach(cell, queries)
	{
		const Query *query = lfirst_node(Query, cell);

		if (query->canSetTag && rt_fetch(query->resultRelation, query->rtable)->relid == source->relid)
			return;
	}
	km_source_changed(source);
}

static void
update_rows(KmRelabel *relabel, Oid function)
{
	const char *sql = update_command(relabel->source, function);
	KmRelabel  *outer = writing;
	int			guc_level = NewGUCNestLevel();
	SPIPlanPtr	plan;
	int			result;

	/* scan from the first block on; and see rel_read.c */
	km_switch_off("synchronize_seqscans");
	km_switch_off("jit");
	plan = SPI_prepare(sql, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not plan \"%s\": %s", sql, SPI_result_code_string(SPI_result));

	relabel->rules = check_rules(relabel->source);
	relabel->read = GetCurrentCommandId(false);
	PG_TRY();
	{
		writing = relabel;
		/* the same snapshot as the read: the ctids are those of its rows */
		result = SPI_execute_snapshot(plan, NULL, NULL, GetActiveSnapshot(), InvalidSnapshot,
									  false, true, 0);
	}
	PG_FINALLY();
	{
		writing = outer;
	}
	PG_END_TRY();
	if (result != SPI_OK_UPDATE)
		elog(ERROR, "could not write labels: %s", SPI_result_code_string(result));
	require_updated(relabel->source, plan);
	AtEOXact_GUC(true, guc_level);
}

static void
write_labels(KmRelabel *relabel, Oid function)
{
	bool		changes = km_changes_count(relabel->left_out) + km_changes_count(relabel->labelled) > 0;

	if (changes || relabel->source->label_missing)
	{
		if (SPI_connect() != SPI_OK_CONNECT)
			elog(ERROR, "SPI_connect failed");
		if (relabel->source->label_missing)
			add_column(relabel->source);
		if (changes)
			update_rows(relabel, function);
		SPI_finish();
	}
	km_changes_end(relabel->left_out);
	km_changes_end(relabel->labelled);
}

/* ---- the whole ---- */

static void
relabel_by_place(FunctionCallInfo fcinfo, KmFit *fit, KmResult *result)
{
	KmRelabel  *relabel = begin_relabel(fit->source);
	KmLabelWant want = {note_left_out, note_labels, relabel};

	if (km_fit_run(fit, &want))
		km_result_clusters(result, &fit->model);
	km_fit_end(fit);
	write_labels(relabel, fcinfo->flinfo->fn_oid);
}

static void
relabel_by_model(FunctionCallInfo fcinfo, KmFit *fit, KmResult *result)
{
	KmeansModel *model = NULL;

	if (fit->balanced)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("kmeans_balanced() cannot label \"%s\", a table of Citus", fit->source->relname),
				 errdetail("Which cluster a row is in depends on all rows there."),
				 errhint("Make a local table of the rows.")));
	fit->as_model = true;
	if (km_fit_run(fit, NULL))
	{
		km_result_clusters(result, &fit->model);
		model = km_fit_model(fit);
	}
	/* the servers' transactions end here: what follows may lock what they read */
	km_fit_end(fit);
	km_label_citus_column(fit->source, model, get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)));
}

void
km_relabel_fit(FunctionCallInfo fcinfo, KmFit *fit, int k, KmResult *result)
{
	if (fit->source->label_column == NULL)
	{
		if (km_fit_run(fit, NULL))
			km_result_clusters(result, &fit->model);
		km_fit_end(fit);
		return;
	}
	check(fit->source, k);

	/*
	 * the statement's snapshot may be older than labels that another call has written before this one got
	 * its lock; and an UPDATE passes over rows that its own command has changed, without a word
	 */
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (fit->source->identify)
		relabel_by_place(fcinfo, fit, result);
	else
		relabel_by_model(fcinfo, fit, result);
	PopActiveSnapshot();
}
