/*
 * gkmeans_label_column.c - kmeans(..., label_column): labels into the table.
 *
 * The scan that reads the points also reads each row's old label.  Rows whose
 * label differs are collected with their ctid, and one UPDATE joins them:
 * triggers, generated columns, row-level security, rights and concurrent
 * updates are as in an UPDATE that the user writes, and rows that keep their
 * label are not touched.  Nothing is written before all labels are known.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/queryenvironment.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "gkmeans.h"

#define CHANGES_NAME				"gkmeans_new_labels"
#define ROWS_PER_INTERRUPT_CHECK	1024

struct GkRelabel
{
	const GkSource *source;
	Tuplestorestate *changes;	/* rel oid, pos tid, label int */
	TupleDesc	desc;
	int64		count;
};

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
	relabel->desc = CreateTemplateTupleDesc(3);
	TupleDescInitEntry(relabel->desc, 1, "rel", OIDOID, -1, 0);
	TupleDescInitEntry(relabel->desc, 2, "pos", TIDOID, -1, 0);
	TupleDescInitEntry(relabel->desc, 3, "label", INT4OID, -1, 0);
	relabel->changes = tuplestore_begin_heap(false, false, work_mem);
	return relabel;
}

static void
put_change(GkRelabel *relabel, const GkRowId *row, int32 label, bool isnull)
{
	ItemPointerData ctid = row->ctid;
	Datum		values[3] = {ObjectIdGetDatum(row->tableoid), PointerGetDatum(&ctid),
	Int32GetDatum(label)};
	bool		nulls[3] = {false, false, isnull};

	tuplestore_putvalues(relabel->changes, relabel->desc, values, nulls);
	relabel->count++;
}

static void
note_left_out(void *arg, const GkRowId *row, uint32 old_label)
{
	if (old_label != GK_LABEL_NULL)
		put_change(arg, row, 0, true);
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
		put_change(relabel, &id, label[i], false);
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

static void
update_rows(GkRelabel *relabel)
{
	EphemeralNamedRelation enr = palloc0(sizeof(EphemeralNamedRelationData));
	StringInfoData sql;
	SPIPlanPtr	plan;

	enr->md.name = pstrdup(CHANGES_NAME);
	enr->md.reliddesc = InvalidOid;
	enr->md.tupdesc = relabel->desc;
	enr->md.enrtype = ENR_NAMED_TUPLESTORE;
	enr->md.enrtuples = (double) relabel->count;
	enr->reldata = relabel->changes;
	if (SPI_register_relation(enr) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register " CHANGES_NAME);

	initStringInfo(&sql);
	appendStringInfo(&sql,
					 "UPDATE %s AS t SET %s = s.label FROM " CHANGES_NAME " AS s "
					 "WHERE t.ctid OPERATOR(pg_catalog.=) s.pos "
					 "AND t.tableoid OPERATOR(pg_catalog.=) s.rel",
					 relabel->source->qualified,
					 quote_identifier(relabel->source->label_column));
	plan = SPI_prepare(sql.data, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not plan \"%s\": %s", sql.data, SPI_result_code_string(SPI_result));

	/* the same snapshot as the read: the ctids are those of its rows */
	if (SPI_execute_snapshot(plan, NULL, NULL, GetActiveSnapshot(), InvalidSnapshot,
							 false, true, 0) != SPI_OK_UPDATE)
		elog(ERROR, "could not write labels");
}

void
gk_relabel_write(GkRelabel *relabel)
{
	if (relabel->count > 0 || relabel->source->label_missing)
	{
		if (SPI_connect() != SPI_OK_CONNECT)
			elog(ERROR, "SPI_connect failed");
		if (relabel->source->label_missing)
			add_column(relabel->source);
		if (relabel->count > 0)
			update_rows(relabel);
		SPI_finish();
	}
	tuplestore_end(relabel->changes);
}
