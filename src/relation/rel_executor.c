/*
 * rel_executor.c - a row of the source's query into the store's batch.
 *
 * rel_rules.c says which rows are points; the engine sees finite numbers only.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "utils/lsyscache.h"

#include "pg/pg.h"
#include "relation/rel_deform.h"
#include "relation/rel_executor.h"

/* The index of a row's table shares an aux value with the offset number. */
#define MAX_TABLES	65536

/* ---- the store ---- */

void
km_reader_progress(const KmReader *r)
{
	GkProgress	progress = {.phase = "load",.rows = r->rows.origin.number,.inertia = -1};

	if (!r->options->silent)
		km_progress_report(&progress);
}

void
km_reader_commit(KmReader *r)
{
	GkError		err;

	if (r->batch->rows == 0)
		return;
	km_check(r->host, gk_store_commit(r->store, &err), &err);
	km_reader_progress(r);
}

/* ---- where rows are ---- */

int
km_reader_table(KmReader *r, Oid tableoid)
{
	KmTables   *t = r->tables;

	/* one table after the other is scanned: nearly always the last one */
	for (int i = t->count - 1; i >= 0; i--)
		if (t->oids[i] == tableoid)
			return i;

	if (get_rel_relkind(tableoid) == RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a foreign table, whose rows cannot be labelled by ctid",
						get_rel_name(tableoid)),
				 errhint("Use kmeans_fit() and kmeans_predict().")));
	if (t->count == MAX_TABLES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("rows of more than %d tables cannot be labelled at once", MAX_TABLES)));
	if ((t->count & (t->count - 1)) == 0)
	{
		Size		bytes = Max(2 * t->count, 1) * sizeof(Oid);

		t->oids = t->count == 0 ? MemoryContextAlloc(r->context, bytes) : repalloc(t->oids, bytes);
	}
	t->oids[t->count] = tableoid;
	return t->count++;
}

static uint32
old_label(const KmReader *r, const TupleTableSlot *slot)
{
	int			at = r->source->at_label;

	return at < 0 ? KM_LABEL_NULL :
		km_old_label(r->source->label_type, slot->tts_values[at], slot->tts_isnull[at]);
}

void
km_row_id(const KmTables *tables, const uint32_t *const *aux, int row, KmRowId *out)
{
	out->tableoid = tables->oids[aux[KM_AUX_TABLE][row] >> 16];
	ItemPointerSet(&out->ctid, aux[KM_AUX_BLOCK][row],
				   (OffsetNumber) (aux[KM_AUX_TABLE][row] & 0xffff));
}

/* ---- a row ---- */

static void
keep_row(KmReader *r, const TupleTableSlot *slot)
{
	const KmSource *source = r->source;
	GkBatch    *b = r->batch;

	for (int j = 0; j < b->columns; j++)
		if (r->rows.keep_nulls && j < r->rows.d && r->rows.missing[j])
			gk_batch_miss(b, j);
		else
			gk_batch_put(b, j, r->rows.point[j]);
	if (source->identify)
	{
		ItemPointer ctid = (ItemPointer) DatumGetPointer(slot->tts_values[source->at_ctid]);
		int			table = km_reader_table(r, DatumGetObjectId(slot->tts_values[source->at_tableoid]));

		gk_batch_aux(b, KM_AUX_BLOCK)[b->rows] = ItemPointerGetBlockNumberNoCheck(ctid);
		gk_batch_aux(b, KM_AUX_TABLE)[b->rows] = (uint32) table << 16 | ItemPointerGetOffsetNumberNoCheck(ctid);
		if (source->at_label >= 0)
			gk_batch_aux(b, KM_AUX_LABEL)[b->rows] = old_label(r, slot);
	}
	if (++b->rows == b->capacity)
		km_reader_commit(r);
}

static void
leave_out(KmReader *r, const TupleTableSlot *slot)
{
	const KmSource *source = r->source;
	KmRowId		id;

	if (!source->identify || r->options->left_out == NULL)
		return;
	id.tableoid = DatumGetObjectId(slot->tts_values[source->at_tableoid]);
	id.ctid = *(ItemPointer) DatumGetPointer(slot->tts_values[source->at_ctid]);
	/* for its checks */
	(void) km_reader_table(r, id.tableoid);
	r->options->left_out(r->options->arg, &id, old_label(r, slot));
}

void
km_reader_row(KmReader *r, TupleTableSlot *slot)
{
	KmVerdict	verdict = km_read_row(&r->rows, slot);

	if (verdict == KM_ROW_KEPT)
	{
		keep_row(r, slot);
		return;
	}
	km_count_left_out(r->counts, verdict);
	leave_out(r, slot);
}
