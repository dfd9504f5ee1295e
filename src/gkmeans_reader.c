/*
 * gkmeans_reader.c - rows into points.
 *
 * A DestReceiver for the source's query that writes straight into the store's
 * batch; gkmeans_heap.c fills batches faster where it can.  Rows that cannot be
 * points are left out and counted, or raise an error, here; the engine sees
 * finite numbers only.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_class.h"
#include "executor/tuptable.h"
#include "tcop/dest.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "gkmeans_pages.h"
#include "gkmeans_reader.h"

/* The index of a row's table shares an aux value with the offset number. */
#define MAX_TABLES	65536

/* ---- messages ---- */

/* For ereport: which row it is. */
static int
row_detail(const GkReader *r, const TupleTableSlot *slot)
{
	const GkSource *source = r->source;

	if (source->at_ctid >= 0)
	{
		ItemPointer ctid = (ItemPointer) DatumGetPointer(slot->tts_values[source->at_ctid]);

		return errdetail("It is row " INT64_FORMAT " of \"%s\", at (%u,%u) in \"%s\".",
						 r->rows, source->relname, ItemPointerGetBlockNumberNoCheck(ctid),
						 ItemPointerGetOffsetNumberNoCheck(ctid),
						 get_rel_name(DatumGetObjectId(slot->tts_values[source->at_tableoid])));
	}
	return errdetail("It is row " INT64_FORMAT " of \"%s\".", r->rows, source->relname);
}

static const char *
nonfinite_name(double v)
{
	return isnan(v) ? "NaN" : v > 0 ? "infinity" : "-infinity";
}

static void
throw_nonfinite(GkReader *r, const TupleTableSlot *slot)
{
	const GkSource *source = r->source;
	int			j = 0;

	while (isfinite(r->row[j]))
		j++;
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 source->array ?
			 errmsg("column \"%s\" has %s in element %d",
					source->columns[0], nonfinite_name(r->row[j]), j + 1) :
			 errmsg("column \"%s\" has %s",
					source->columns[j], nonfinite_name(r->row[j])),
			 row_detail(r, slot),
			 errhint("Use nonfinite => 'skip' to leave such rows out.")));
}

static void
throw_no_direction(GkReader *r, const TupleTableSlot *slot)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("a point with all features zero has no direction"),
			 row_detail(r, slot),
			 errhint("Use nonfinite => 'skip' to leave such rows out, or distance => 'euclidean'.")));
}

static void
check_features(const GkReader *r, int d)
{
	if (r->options->expect_d != 0 && d != r->options->expect_d)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("different numbers of features: %d in %s, %d in \"%s\"",
						r->options->expect_d, r->options->expect_of, d, r->source->relname)));
	if (d > GK_MAX_D)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("points must have at most %d features, not %d", GK_MAX_D, d)));
}

/* ---- the store ---- */

/* The first usable row says how many features there are. */
static void
create_store(GkReader *r, int d)
{
	const GkSource *source = r->source;
	MemoryContext caller = MemoryContextSwitchTo(r->context);
	int			naux = source->at_label >= 0 ? 3 : source->identify ? 2 : 0;
	GkError		err;

	check_features(r, d);
	gk_check(r->host,
			 gk_store_create(gk_host_engine(r->host), d, source->weighted, naux,
							 (size_t) gkmeans_chunk_size * 1024, gk_memory_limit_bytes(),
							 &r->store, &err),
			 &err);
	if (r->options->take != NULL)
		gk_store_pass_on(r->store, r->options->take, r->options->take_arg);
	else
		gk_store_expect(r->store, gk_source_rows(source));
	if (r->options->created != NULL)
		r->options->created(r->options->created_arg, r->store);
	r->d = d;
	r->batch = gk_store_batch(r->store);
	r->row = palloc(d * sizeof(double));
	MemoryContextSwitchTo(caller);
}

void
gk_reader_progress(const GkReader *r)
{
	GkProgress	progress = {.phase = "load",.rows = r->rows,.inertia = -1};

	if (!r->options->silent)
		gk_progress_report(&progress);
}

void
gk_reader_commit(GkReader *r)
{
	GkError		err;

	gk_check(r->host, gk_store_commit(r->store, &err), &err);
	gk_reader_progress(r);
}

/* ---- values ---- */

#define CONVERT_DATUMS(from) \
	for (int j = run->first; j < run->end; j++) \
		row[j] = (double) from(values[j])

void
gk_convert_datums(const GkRun *run, const Datum *values, double *row)
{
	switch (run->type)
	{
		case GK_VALUE_INT2:
			CONVERT_DATUMS(DatumGetInt16);
			break;
		case GK_VALUE_INT4:
			CONVERT_DATUMS(DatumGetInt32);
			break;
		case GK_VALUE_INT8:
			CONVERT_DATUMS(DatumGetInt64);
			break;
		case GK_VALUE_FLOAT4:
			CONVERT_DATUMS(DatumGetFloat4);
			break;
		case GK_VALUE_FLOAT8:
			CONVERT_DATUMS(DatumGetFloat8);
			break;
	}
}

#define CONVERT_ELEMENTS(type) \
	for (int j = 0; j < d; j++) \
		row[j] = (double) ((const type *) elements)[j]

static void
convert_elements(GkValueType type, const void *elements, int d, double *row)
{
	switch (type)
	{
		case GK_VALUE_INT2:
			CONVERT_ELEMENTS(int16);
			break;
		case GK_VALUE_INT4:
			CONVERT_ELEMENTS(int32);
			break;
		case GK_VALUE_INT8:
			CONVERT_ELEMENTS(int64);
			break;
		case GK_VALUE_FLOAT4:
			CONVERT_ELEMENTS(float4);
			break;
		case GK_VALUE_FLOAT8:
			memcpy(row, elements, d * sizeof(double));
			break;
	}
}

static double
convert_datum(GkValueType type, Datum value)
{
	GkRun		run = {type, 0, 1};
	double		v;

	gk_convert_datums(&run, &value, &v);
	return v;
}

/* False: NULL features. */
static bool
read_columns(GkReader *r, const TupleTableSlot *slot)
{
	const GkSource *source = r->source;

	if (memchr(slot->tts_isnull, true, source->ncolumns) != NULL)
		return false;
	if (r->store == NULL)
		create_store(r, source->ncolumns);
	for (int i = 0; i < source->nruns; i++)
		gk_convert_datums(&source->runs[i], slot->tts_values, r->row);
	return true;
}

/* False: NULL, or NULL elements. */
static bool
read_array(GkReader *r, const TupleTableSlot *slot)
{
	const GkSource *source = r->source;
	ArrayType  *array;
	int			d;
	bool		usable;

	if (slot->tts_isnull[0])
		return false;
	array = DatumGetArrayTypeP(slot->tts_values[0]);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("arrays in column \"%s\" must have 1 dimension, not %d",
						source->columns[0], ARR_NDIM(array)),
				 row_detail(r, slot)));
	d = ARR_NDIM(array) == 0 ? 0 : ARR_DIMS(array)[0];
	if (d == 0)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array in column \"%s\" is empty", source->columns[0]),
				 row_detail(r, slot)));
	if (r->store != NULL && d != r->d)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array in column \"%s\" has %d elements, but those before it have %d",
						source->columns[0], d, r->d),
				 row_detail(r, slot)));
	usable = !array_contains_nulls(array);
	if (usable)
	{
		if (r->store == NULL)
			create_store(r, d);
		convert_elements(source->runs[0].type, ARR_DATA_PTR(array), d, r->row);
	}
	if ((Pointer) array != DatumGetPointer(slot->tts_values[0]))
		pfree(array);
	return usable;
}

/* False: no weight. */
static bool
read_weight(GkReader *r, const TupleTableSlot *slot)
{
	const GkSource *source = r->source;

	if (slot->tts_isnull[source->at_weight])
		return false;
	r->weight = convert_datum(source->weight_type, slot->tts_values[source->at_weight]);
	if (!(r->weight >= 0) || isinf(r->weight))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("weight must be finite and at least 0, but column \"%s\" has %g",
						source->weight_column, r->weight),
				 row_detail(r, slot)));
	return r->weight > 0;
}

/* False: a value, or all together, can not be a point.  Needs r->row. */
static bool
check_point(GkReader *r, const TupleTableSlot *slot)
{
	bool		finite = true;
	bool		zero = true;

	for (int j = 0; j < r->d; j++)
	{
		finite &= isfinite(r->row[j]) != 0;
		zero &= r->row[j] == 0;
	}
	if (unlikely(!finite))
	{
		if (!r->options->skip_nonfinite)
			throw_nonfinite(r, slot);
		r->counts->nonfinite++;
		return false;
	}
	if (unlikely(zero && r->options->distance == GK_COSINE))
	{
		if (!r->options->skip_nonfinite)
			throw_no_direction(r, slot);
		r->counts->no_direction++;
		return false;
	}
	return true;
}

/* ---- where rows are ---- */

int
gk_reader_table(GkReader *r, Oid tableoid)
{
	GkTables   *t = r->tables;

	/* one table after the other is scanned: nearly always the last one */
	for (int i = t->count - 1; i >= 0; i--)
		if (t->oids[i] == tableoid)
			return i;

	if (get_rel_relkind(tableoid) == RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a foreign table, whose rows can not be labelled by ctid",
						get_rel_name(tableoid)),
				 errhint("Use kmeans_fit() and kmeans_predict().")));
	if (t->count == MAX_TABLES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("rows of more than %d tables can not be labelled at once", MAX_TABLES)));
	if ((t->count & (t->count - 1)) == 0)
	{
		Size		bytes = Max(2 * t->count, 1) * sizeof(Oid);

		t->oids = t->count == 0 ? MemoryContextAlloc(r->context, bytes) : repalloc(t->oids, bytes);
	}
	t->oids[t->count] = tableoid;
	return t->count++;
}

static uint32
old_label(const GkReader *r, const TupleTableSlot *slot)
{
	int			at = r->source->at_label;

	return at < 0 ? GK_LABEL_NULL :
		gk_old_label(r->source->label_type, slot->tts_values[at], slot->tts_isnull[at]);
}

void
gk_row_id(const GkTables *tables, const uint32_t *const *aux, int row, GkRowId *out)
{
	out->tableoid = tables->oids[aux[GK_AUX_TABLE][row] >> 16];
	ItemPointerSet(&out->ctid, aux[GK_AUX_BLOCK][row],
				   (OffsetNumber) (aux[GK_AUX_TABLE][row] & 0xffff));
}

/* ---- a row ---- */

static void
keep_row(GkReader *r, const TupleTableSlot *slot)
{
	const GkSource *source = r->source;
	GkBatch    *b = r->batch;

	for (int j = 0; j < r->d; j++)
		gk_batch_put(b, j, r->row[j]);
	if (source->weighted)
		gk_batch_put(b, r->d, r->weight);
	if (source->identify)
	{
		ItemPointer ctid = (ItemPointer) DatumGetPointer(slot->tts_values[source->at_ctid]);
		int			table = gk_reader_table(r, DatumGetObjectId(slot->tts_values[source->at_tableoid]));

		gk_batch_aux(b, GK_AUX_BLOCK)[b->rows] = ItemPointerGetBlockNumberNoCheck(ctid);
		gk_batch_aux(b, GK_AUX_TABLE)[b->rows] = (uint32) table << 16 | ItemPointerGetOffsetNumberNoCheck(ctid);
		if (source->at_label >= 0)
			gk_batch_aux(b, GK_AUX_LABEL)[b->rows] = old_label(r, slot);
	}
	if (++b->rows == b->capacity)
		gk_reader_commit(r);
}

static void
leave_out(GkReader *r, const TupleTableSlot *slot)
{
	const GkSource *source = r->source;
	GkRowId		id;

	if (!source->identify || r->options->left_out == NULL)
		return;
	id.tableoid = DatumGetObjectId(slot->tts_values[source->at_tableoid]);
	id.ctid = *(ItemPointer) DatumGetPointer(slot->tts_values[source->at_ctid]);
	/* for its checks */
	(void) gk_reader_table(r, id.tableoid);
	r->options->left_out(r->options->arg, &id, old_label(r, slot));
}

void
gk_reader_row(GkReader *r, TupleTableSlot *slot)
{
	bool		keep;

	slot_getallattrs(slot);
	r->rows++;
	/* a row without weight is ignored, whatever its features are */
	if (r->source->weighted && !read_weight(r, slot))
	{
		r->counts->no_weight++;
		keep = false;
	}
	else if (!(r->source->array ? read_array(r, slot) : read_columns(r, slot)))
	{
		r->counts->null_feature++;
		keep = false;
	}
	else
		keep = check_point(r, slot);

	if (keep)
		keep_row(r, slot);
	else
		leave_out(r, slot);
}

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	gk_reader_row((GkReader *) self, slot);
	return true;
}

static void
ignore_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
ignore_receiver(DestReceiver *self)
{
}

/* ---- all rows ---- */

GkStore *
gk_read(GkPgHost *host, const GkSource *source, const GkReadOptions *options,
		GkReadCounts *counts, GkTables *tables)
{
	GkReader	r = {0};

	r.pub.receiveSlot = receive_row;
	r.pub.rStartup = ignore_startup;
	r.pub.rShutdown = ignore_receiver;
	r.pub.rDestroy = ignore_receiver;
	r.pub.mydest = DestNone;
	r.host = host;
	r.source = source;
	r.options = options;
	r.counts = counts;
	r.tables = tables;
	r.context = CurrentMemoryContext;

	gk_progress_begin(gk_host_context(host), source->relid);
	/* known before the first row: do not let it come as a surprise at the end */
	if (!source->array)
		check_features(&r, source->ncolumns);

	gk_query_run(source, &r.pub, gk_heap_scan);
	if (r.store != NULL && r.batch->rows > 0)
		gk_reader_commit(&r);
	/* array rows that were all skipped leave a store without points */
	return r.store != NULL && gk_store_rows(r.store) > 0 ? r.store : NULL;
}
