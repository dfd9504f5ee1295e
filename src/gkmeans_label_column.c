/*
 * gkmeans_label_column.c - kmeans(..., label_column): labels into the table.
 *
 * The scan that reads the points also reads each row's old label.  Rows whose
 * label differs are noted (gkmeans_changes.c), and one UPDATE asks for them row
 * by row, in the same order:
 *
 *	 UPDATE t SET label = gkmeans_new_label() WHERE gkmeans_has_new_label(tableoid, ctid)
 *
 * So triggers, generated columns, row-level security, rights and concurrent
 * updates are as in an UPDATE that the user writes, rows that keep their label
 * are not touched, and the time is that of the plain UPDATE.  Nothing is written
 * before all labels are known.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "gkmeans_changes.h"

PG_FUNCTION_INFO_V1(gkmeans_has_new_label);
PG_FUNCTION_INFO_V1(gkmeans_new_label);

#define ROWS_PER_INTERRUPT_CHECK	1024

/* The label of a row that was left out: NULL in the table. */
#define LABEL_LEFT_OUT	(-1)

struct GkRelabel
{
	const GkSource *source;
	/* Two lists, since all rows that were left out are known before any label. */
	GkChanges  *left_out;
	GkChanges  *labelled;
	/* While writing: */
	MemoryContext scan;			/* of the UPDATE's own scan */
	int32		label;			/* of the row that it is at */
};

/* Whose UPDATE is running; a trigger of it may write labels, too. */
static GkRelabel *writing = NULL;

/* ---- checks ---- */

/* A column that may be added: only by the owner, and not to a partition alone. */
static void
check_missing(const GkSource *source)
{
	if (!gk_relation_ownercheck(source->relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(source->relkind),
					   source->relname);
	if (source->is_partition)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot add column \"%s\" to the partition \"%s\"",
						source->label_column, source->relname),
				 errhint("Add an integer column to the partitioned table.")));
}

static void
check_existing(const GkSource *source, int k)
{
	AttrNumber	attnum = get_attnum(source->relid, source->label_column);
	Oid			user = GetUserId();
	HeapTuple	tuple;
	Form_pg_attribute att;

	if (pg_class_aclcheck(source->relid, user, ACL_UPDATE) != ACLCHECK_OK &&
		pg_attribute_aclcheck(source->relid, attnum, user, ACL_UPDATE) != ACLCHECK_OK)
		aclcheck_error_col(ACLCHECK_NO_PRIV, OBJECT_COLUMN, source->relname,
						   source->label_column);

	tuple = SearchSysCacheAttName(source->relid, source->label_column);
	att = (Form_pg_attribute) GETSTRUCT(tuple);
	if (att->attgenerated != '\0' || att->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("label_column \"%s\" is a generated column", source->label_column)));
	ReleaseSysCache(tuple);

	if (source->label_type == GK_VALUE_INT2 && k - 1 > PG_INT16_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("label_column \"%s\" is of type smallint, too small for k = %d",
						source->label_column, k)));
}

void
gk_relabel_check(const GkSource *source, int k)
{
	PreventCommandIfReadOnly("kmeans() with label_column");
	if (source->label_missing)
		check_missing(source);
	else
		check_existing(source, k);
}

/* ---- changes ---- */

GkRelabel *
gk_relabel_begin(const GkSource *source)
{
	GkRelabel  *relabel = palloc0(sizeof(GkRelabel));

	relabel->source = source;
	relabel->left_out = gk_changes_begin();
	relabel->labelled = gk_changes_begin();
	return relabel;
}

static void
note_left_out(void *arg, const GkRowId *row, uint32 old_label)
{
	GkRelabel  *relabel = arg;

	if (old_label != GK_LABEL_NULL)
		gk_changes_add(relabel->left_out, row, LABEL_LEFT_OUT);
}

static void
note_labels(void *arg, const GkTables *tables, const GkPrep *prep, int rows,
			const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	GkRelabel  *relabel = arg;
	const uint32_t *old = relabel->source->at_label >= 0 ? aux[GK_AUX_LABEL] : NULL;

	for (int i = 0; i < rows; i++)
	{
		GkRowId		id;

		if (i % ROWS_PER_INTERRUPT_CHECK == 0)
			CHECK_FOR_INTERRUPTS();
		if (old != NULL && old[i] == (uint32) label[i])
			continue;
		gk_row_id(tables, aux, i, &id);
		gk_changes_add(relabel->labelled, &id, label[i]);
	}
}

GkLabelWant
gk_relabel_want(GkRelabel *relabel)
{
	GkLabelWant want = {note_left_out, note_labels, relabel};

	return want;
}

/* ---- writing ---- */

static void
add_column(const GkSource *source)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "ALTER TABLE %s ADD COLUMN %s pg_catalog.int4",
					 source->qualified, quote_identifier(source->label_column));
	if (SPI_execute(sql.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not add column \"%s\"", source->label_column);
}

static GkRelabel *
require_writing(void)
{
	if (writing == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this function is only for the UPDATE of kmeans() with label_column")));
	return writing;
}

/*
 * gkmeans_has_new_label(tableoid oid, ctid tid) returns bool
 *
 * When someone else has changed a row since the snapshot, and the isolation level
 * permits to go on, PostgreSQL asks a second time, with the row's new place, in
 * an executor state made for such questions.  The answer is that of the row it
 * is at: like any UPDATE, ours writes to the row's newest version.
 */
Datum
gkmeans_has_new_label(PG_FUNCTION_ARGS)
{
	GkRelabel  *relabel = require_writing();
	MemoryContext scan = fcinfo->flinfo->fn_mcxt;
	GkRowId		row = {PG_GETARG_OID(0), *(ItemPointer) PG_GETARG_POINTER(1)};

	if (relabel->scan == NULL)
		relabel->scan = scan;
	PG_RETURN_BOOL(scan != relabel->scan ||
				   gk_changes_find(relabel->labelled, &row, &relabel->label) ||
				   gk_changes_find(relabel->left_out, &row, &relabel->label));
}

/* gkmeans_new_label() returns int: of the row that was asked for last. */
Datum
gkmeans_new_label(PG_FUNCTION_ARGS)
{
	const GkRelabel *relabel = require_writing();

	if (relabel->label == LABEL_LEFT_OUT)
		PG_RETURN_NULL();
	PG_RETURN_INT32(relabel->label);
}

static const char *
update_command(const GkSource *source, Oid function)
{
	const char *schema = get_namespace_name(get_func_namespace(function));
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "UPDATE %s AS t SET %s = %s() WHERE %s(t.tableoid, t.ctid)",
					 source->qualified, quote_identifier(source->label_column),
					 quote_qualified_identifier(schema, "gkmeans_new_label"),
					 quote_qualified_identifier(schema, "gkmeans_has_new_label"));
	return sql.data;
}

static void
update_rows(GkRelabel *relabel, Oid function)
{
	const char *sql = update_command(relabel->source, function);
	GkRelabel  *outer = writing;
	int			guc_level = NewGUCNestLevel();
	SPIPlanPtr	plan;
	int			result;

	/* scan from the first block on; and see gkmeans_query.c */
	gk_switch_off("synchronize_seqscans");
	gk_switch_off("jit");
	plan = SPI_prepare(sql, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not plan \"%s\": %s", sql, SPI_result_code_string(SPI_result));

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
	AtEOXact_GUC(true, guc_level);
}

void
gk_relabel_write(GkRelabel *relabel, Oid function)
{
	bool		changes = gk_changes_count(relabel->left_out) + gk_changes_count(relabel->labelled) > 0;

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
	gk_changes_end(relabel->left_out);
	gk_changes_end(relabel->labelled);
}
