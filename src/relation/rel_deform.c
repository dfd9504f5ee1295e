/*
 * rel_deform.c - the rows of a page into a batch.
 *
 * A row with all features, without NULLs and with fixed-width columns only up to the last
 * feature has its values at constant places; so has an array of numbers.  Such rows are plain:
 * they are collected, and all plain rows of a page are transposed into the batch at once.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupdesc_details.h"
#include "utils/memutils.h"

#include "relation/rel_array.h"
#include "relation/rel_deform.h"

/* Values of one type that are side by side. */
typedef struct PageRun
{
	KmValueType type;
	int			first;
	int			count;
} PageRun;

struct KmDeformer
{
	MemoryContext context;		/* of all that it has */
	TupleDesc	desc;
	const KmRowSpec *spec;
	const KmHeapTable *table;
	bool		helper;			/* it is a thread's, which must not call PostgreSQL */

	/* Where a plain row has its values. */
	AttrNumber	last;			/* the last attribute that a point needs */
	bool		constant;		/* all of them are at constant places */
	int		   *at;				/* [values of a point] from data[i] on; arrays: [d] */
	int			nruns;
	PageRun    *runs;			/* of the values of a point */
	KmStage		stage;			/* if there is one run, without a weight */
	int			nfixed;			/* attributes at constant places, if no NULL is before them */
	int		   *place;			/* [nfixed] theirs */
	int			fixed_end;		/* where the next one would be */

	/* The page at hand, and where its rows go. */
	const KmPageRows *rows;
	KmRowBatch *to;
	KmPrefetch *ahead;			/* memory to prefetch meanwhile */

	/* Plain rows. */
	int			n;
	const char *data[MaxHeapTuplesPerPage];
	int			at_row[MaxHeapTuplesPerPage];
	/* Rows to leave out, once it is known that none before them is deferred. */
	int			nleft;
	int			left_row[MaxHeapTuplesPerPage];
	uint8		left_why[MaxHeapTuplesPerPage];
	KmArrays   *arrays;			/* NULL: there is no array */

	/* A row that is not plain: its attributes. */
	Datum	   *values;			/* [last] */
	bool	   *nulls;
	double	   *point;			/* [d + 1] features and weight of that row */
	double	   *plain_point;	/* [d + 1] the same of a plain one */
};

/* ---- values ---- */

uint32
km_old_label(KmValueType type, Datum value, bool isnull)
{
	double		label;

	if (isnull)
		return KM_LABEL_NULL;
	label = km_value_of(type, value);
	return label >= 0 && label < GK_MAX_K ? (uint32) label : KM_LABEL_OTHER;
}

static double
batch_value(const GkBatch *b, int column, int row)
{
	const void *x = gk_batch_column(b, column);

	return b->wide[column] ? ((const double *) x)[row] : ((const float *) x)[row];
}

/* ---- places ---- */

Size
km_row_spec_size(int nvalues)
{
	return MAXALIGN(offsetof(KmRowSpec, type) + nvalues * sizeof(KmValueType)) + nvalues * sizeof(double);
}

double *
km_row_fill(const KmRowSpec *spec)
{
	return (double *) ((char *) spec + km_row_spec_size(spec->nvalues)) - spec->nvalues;
}

/* The attributes at constant places in a row without NULLs before them. */
static void
find_fixed(KmDeformer *t)
{
	int			at = 0;

	t->place = palloc(t->desc->natts * sizeof(int));
	for (int i = 0; i < t->desc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(t->desc, i);

		if (attr->attlen <= 0)
			break;
		at = att_align_nominal(at, attr->attalign);
		t->place[t->nfixed++] = at;
		at += attr->attlen;
	}
	t->fixed_end = at;
}

static void
find_runs(KmDeformer *t, int values)
{
	t->runs = palloc(values * sizeof(PageRun));
	for (int j = 0; j < values; j++)
	{
		KmValueType type = t->spec->type[t->spec->array ? 0 : j];
		PageRun    *last = &t->runs[t->nruns - 1];

		if (j == 0 || type != last->type || t->at[j] != t->at[j - 1] + km_value_size(type))
		{
			t->runs[t->nruns].type = type;
			t->runs[t->nruns].first = j;
			t->runs[t->nruns++].count = 1;
		}
		else
			last->count++;
	}
}

static void
find_places(KmDeformer *t)
{
	const KmRowSpec *spec = t->spec;

	for (int j = 0; j < spec->nvalues; j++)
		t->last = Max(t->last, t->table->attnums[j]);
	find_fixed(t);
	t->at = palloc(Max(spec->nvalues, spec->d) * sizeof(int));
	if (spec->array)
	{
		for (int j = 0; j < spec->d; j++)
			t->at[j] = j * km_value_size(spec->type[0]);
		find_runs(t, spec->d);
		return;
	}
	for (int j = 0; j < spec->nvalues; j++)
	{
		AttrNumber	attnum = t->table->attnums[j];

		if (attnum > t->nfixed || TupleDescAttr(t->desc, attnum - 1)->attlen != km_value_size(spec->type[j]))
			return;
		t->at[j] = t->place[attnum - 1];
	}
	find_runs(t, spec->nvalues);
	t->constant = true;
}

KmDeformer *
km_deform_open(TupleDesc desc, const KmRowSpec *spec, const KmHeapTable *table, KmToast *toast)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gkmeans rows", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	KmDeformer *t = palloc0(sizeof(KmDeformer));

	t->context = context;
	t->desc = desc;
	t->spec = spec;
	t->table = table;
	t->helper = toast == NULL;
	find_places(t);
	if (t->nruns == 1 && !spec->weighted)
		km_stage_init(&t->stage, t->runs->type, t->runs->count);
	t->values = palloc(t->last * sizeof(Datum));
	t->nulls = palloc(t->last * sizeof(bool));
	t->point = palloc((spec->d + 1) * sizeof(double));
	t->plain_point = palloc((spec->d + 1) * sizeof(double));
	if (spec->array)
		t->arrays = km_arrays_open(spec, toast);
	MemoryContextSwitchTo(caller);
	return t;
}

void
km_deform_close(KmDeformer *t)
{
	MemoryContextDelete(t->context);
}

/* ---- into the batch ---- */

static uint32
row_label(const KmDeformer *t, int i)
{
	HeapTupleData tuple = {.t_data = t->rows->row[i]};
	bool		isnull;
	Datum		value;

	if (!t->spec->labelled)
		return KM_LABEL_NULL;
	value = heap_getattr(&tuple, t->table->attnums[t->spec->nvalues], t->desc, &isnull);
	return km_old_label(t->spec->label_type, value, isnull);
}

/* Where row i of the page is, for row `to` of the batch. */
static inline void
put_id(const KmDeformer *t, GkBatch *b, int i, int to)
{
	gk_batch_aux(b, KM_AUX_BLOCK)[to] = t->rows->block;
	gk_batch_aux(b, KM_AUX_TABLE)[to] = t->table->index << 16 | t->rows->offset[i];
	if (t->spec->labelled)
		gk_batch_aux(b, KM_AUX_LABEL)[to] = row_label(t, i);
}

static void
leave_out(KmDeformer *t, int i, KmVerdict why)
{
	KmRowBatch *to = t->to;

	to->seen++;
	km_count_left_out(&to->counts, why);
	if (t->spec->left_out)
		to->left[to->nleft++] = (KmLeftOut) {t->rows->block, t->rows->offset[i], t->table->index, row_label(t, i)};
}

/* Does a point lack a feature?  An array that does is deferred, and a plain row does not. */
static inline bool
lacks(const KmDeformer *t, const double *point, int j)
{
	const KmRowSpec *spec = t->spec;

	return spec->rules.partial && point == t->point && !spec->array && j < spec->d && t->nulls[t->table->attnums[j] - 1];
}

/* Add row i with its features and weight.  False: it is deferred. */
static bool
add_point(KmDeformer *t, int i, const double *point)
{
	const KmRowSpec *spec = t->spec;
	KmVerdict	verdict = spec->weighted ? km_judge_weight(point[spec->d]) : KM_ROW_KEPT;
	GkBatch    *b = t->to->batch;

	if (verdict == KM_ROW_KEPT)
		verdict = km_judge_point(point, spec->d, &spec->rules);
	if (verdict != KM_ROW_KEPT)
	{
		if (!km_leaves_out(verdict, &spec->rules))
			return false;
		leave_out(t, i, verdict);
		return true;
	}
	km_stage_flush(&t->stage);
	for (int j = 0; j < b->columns; j++)
		if (lacks(t, point, j))
			gk_batch_miss(b, j);
		else
			gk_batch_put(b, j, point[j]);
	if (spec->identify)
		put_id(t, b, i, b->rows);
	b->rows++;
	t->to->seen++;
	return true;
}

/* Is one of n points, not yet counted in the batch, zero in all features? */
static bool
some_zero(const GkBatch *b, int d, int n)
{
	for (int i = b->rows; i < b->rows + n; i++)
	{
		int			j = 0;

		while (j < d && batch_value(b, j, i) == 0)
			j++;
		if (j == d)
			return true;
	}
	return false;
}

/* Turn all plain rows at once, behind those of the batch.  False: they have to be judged one by one. */
static bool
transpose_plain(KmDeformer *t)
{
	const KmRowSpec *spec = t->spec;
	GkBatch    *b = t->to->batch;
	bool		good = true;

	km_stage_flush(&t->stage);
	for (int i = 0; good && i < t->nruns; i++)
		good = km_transpose(b, t->runs[i].first, t->runs[i].count, t->runs[i].type,
							t->data, t->n, t->at[t->runs[i].first], t->ahead);
	if (spec->weighted)
		for (int i = 0; good && i < t->n; i++)
			good = batch_value(b, spec->d, b->rows + i) > 0;
	if (!good || (spec->rules.cosine && some_zero(b, spec->d, t->n)))
		return false;
	b->rows += t->n;
	return true;
}

/* Have them turned together with those of other pages. */
static bool
stage_plain(KmDeformer *t)
{
	const char *data[KM_STAGE_ROWS];

	for (int i = 0; i < t->n; i++)
		data[i] = t->data[i] + t->at[0];
	return km_stage_add(&t->stage, t->to->batch, data, t->n, !t->spec->rules.cosine);
}

/* Add all plain rows at once.  False: they have to be judged one by one. */
static bool
add_plain(KmDeformer *t)
{
	GkBatch    *b = t->to->batch;

	if (!(t->stage.rows != NULL && t->n < KM_STAGE_ROWS ? stage_plain(t) : transpose_plain(t)))
		return false;
	if (t->spec->identify)
		for (int i = 0; i < t->n; i++)
			put_id(t, b, t->at_row[i], b->rows - t->n + i);
	t->to->seen += t->n;
	return true;
}

/* Leave out the rows up to one, from the next-th on. */
static int
leave_out_to(KmDeformer *t, int next, int row)
{
	for (; next < t->nleft && t->left_row[next] < row; next++)
		leave_out(t, t->left_row[next], t->left_why[next]);
	return next;
}

static void
read_plain(KmDeformer *t, const char *data)
{
	for (int i = 0; i < t->nruns; i++)
		km_values_in(t->runs[i].type, data + t->at[t->runs[i].first], t->runs[i].count,
					 t->plain_point + t->runs[i].first);
}

/*
 * Add the plain rows, and leave out those between them.  Returns `deferred`, or a row before
 * it that turns out to be deferred, with those before that one added.
 */
static int
flush_plain(KmDeformer *t, int deferred)
{
	int			next = 0;

	if (t->n > 0 && !add_plain(t))
		for (int i = 0; i < t->n; i++)
		{
			read_plain(t, t->data[i]);
			next = leave_out_to(t, next, t->at_row[i]);
			if (!add_point(t, t->at_row[i], t->plain_point))
			{
				deferred = t->at_row[i];
				break;
			}
		}
	t->n = 0;
	leave_out_to(t, next, deferred < 0 ? MaxHeapTuplesPerPage : deferred);
	t->nleft = 0;
	if (t->arrays != NULL)
		km_arrays_forget(t->arrays);
	return deferred;
}

/* ---- rows that are not plain ---- */

/* Deform a row, up to the last attribute that a point needs. */
static void
deform_row(KmDeformer *t, HeapTupleHeader row)
{
	const char *from = (const char *) row + row->t_hoff;
	bool		hasnull = (row->t_infomask & HEAP_HASNULL) != 0;
	int			natts = Min(HeapTupleHeaderGetNatts(row), t->last);
	int			i = 0;
	int			at = 0;

	if (!hasnull && natts >= t->nfixed)
	{
		for (; i < t->nfixed; i++)
		{
			t->nulls[i] = false;
			t->values[i] = fetchatt(TupleDescAttr(t->desc, i), from + t->place[i]);
		}
		at = t->fixed_end;
	}
	for (; i < natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(t->desc, i);

		t->nulls[i] = hasnull && att_isnull(i, row->t_bits);
		if (t->nulls[i])
			continue;
		if (attr->attlen == -1)
			at = att_align_pointer(at, attr->attalign, -1, from + at);
		else
			at = att_align_nominal(at, attr->attalign);
		t->values[i] = fetchatt(attr, from + at);
		at = att_addlength_pointer(at, attr->attlen, from + at);
	}
	/* columns added later */
	for (; i < t->last; i++)
		t->values[i] = getmissingattr(t->desc, i + 1, &t->nulls[i]);
}

/* The features and weight of a row that was deformed, into t->point. */
static int
read_values(KmDeformer *t, const char **elements)
{
	const KmRowSpec *spec = t->spec;
	const AttrNumber *attnums = t->table->attnums;
	bool		some = false;

	if (spec->weighted)
	{
		int			at = attnums[spec->nvalues - 1] - 1;
		KmVerdict	verdict;

		if (t->nulls[at])
			return KM_ROW_NO_WEIGHT;
		t->point[spec->d] = km_value_of(spec->type[spec->nvalues - 1], t->values[at]);
		verdict = km_judge_weight(t->point[spec->d]);
		if (verdict != KM_ROW_KEPT)
			return km_leaves_out(verdict, &spec->rules) ? (int) verdict : KM_ROW_DEFERRED;
	}
	if (spec->array)
	{
		int			verdict;

		if (t->nulls[attnums[0] - 1])
			return KM_ROW_NULL_FEATURE;
		verdict = km_arrays_find(t->arrays, t->values[attnums[0] - 1], elements);
		if (verdict == KM_ROW_PLAIN && spec->weighted)
		{
			km_values_in(spec->type[0], *elements, spec->d, t->point);
			verdict = KM_ROW_KEPT;
		}
		return verdict;
	}
	for (int j = 0; !spec->filled && j < spec->d; j++)
		if (t->nulls[attnums[j] - 1])
			return KM_ROW_NULL_FEATURE;
	for (int j = 0; j < spec->d; j++)
	{
		bool		null = t->nulls[attnums[j] - 1];

		t->point[j] = null ? km_row_fill(spec)[j] : km_value_of(spec->type[j], t->values[attnums[j] - 1]);
		some |= !null;
	}
	return spec->rules.partial && !some ? KM_ROW_NULL_FEATURE : KM_ROW_KEPT;
}

static int
classify(KmDeformer *t, HeapTupleHeader row, const char **data)
{
	const KmRowSpec *spec = t->spec;

	if (t->constant && HeapTupleHeaderGetNatts(row) >= t->last && (row->t_infomask & HEAP_HASNULL))
	{
		bool		null = false;

		if (!spec->weighted && !spec->filled)
			for (int j = 0; j < spec->d; j++)
				if (att_isnull(t->table->attnums[j] - 1, row->t_bits))
					return KM_ROW_NULL_FEATURE;
		for (int i = 0; i < t->last; i++)
			null |= att_isnull(i, row->t_bits);
		if (!null)
		{
			*data = (const char *) row + row->t_hoff;
			return KM_ROW_PLAIN;
		}
	}
	/* what a column added later has in this row is PostgreSQL's to find */
	if (t->helper && HeapTupleHeaderGetNatts(row) < t->last)
		return KM_ROW_DEFERRED;
	deform_row(t, row);
	return read_values(t, data);
}

/* Is the row plain, if the table's rows can be? */
static inline bool
at_constant_places(const HeapTupleHeaderData *row, AttrNumber last)
{
	return (row->t_infomask & HEAP_HASNULL) == 0 && HeapTupleHeaderGetNatts(row) >= last;
}

static inline void
collect(KmDeformer *t, int i, const char *data)
{
	t->data[t->n] = data;
	t->at_row[t->n++] = i;
}

/*
 * Rows that surely fit, whether they are kept or left out.  To flush takes none of that room: a plain
 * row becomes a kept one or one left out.
 */
static int
room(const KmDeformer *t)
{
	const KmRowBatch *to = t->to;
	int			rows = to->batch->rows;

	if (t->spec->left_out)
		rows = Max(rows, to->nleft + t->nleft);
	return to->batch->capacity - rows - t->n;
}

/* Collect the rows from one on that are plain: nearly always all. */
static int
collect_plain(KmDeformer *t, int first, int end)
{
	HeapTupleHeader const *row = t->rows->row;
	AttrNumber	last = t->last;
	int			i = first;

	end = t->constant ? Min(t->rows->n, end) : 0;
	/* as collect() does, but without waiting for t->n */
	for (; i < end && at_constant_places(row[i], last); i++)
	{
		t->data[i - first] = (const char *) row[i] + row[i]->t_hoff;
		t->at_row[i - first] = i;
	}
	t->n = i - first;
	return i;
}

int
km_deform_page(KmDeformer *t, const KmPageRows *rows, int first, KmRowBatch *to, KmPrefetch *ahead)
{
	int			deferred = -1;
	int			end;			/* there is room for the rows before it */
	int			i;

	t->rows = rows;
	t->to = to;
	t->ahead = ahead;
	end = first + room(t);
	i = collect_plain(t, first, end);
	for (; deferred < 0 && i < rows->n; i++)
	{
		HeapTupleHeader row = rows->row[i];
		const char *data = NULL;
		int			verdict;

		if (i == end && (end += room(t)) == i)
			break;
		if (t->constant && at_constant_places(row, t->last))
		{
			collect(t, i, (const char *) row + row->t_hoff);
			continue;
		}
		/* halves are converted while they are found, floats are copied when all are */
		if (t->arrays != NULL)
			km_prefetch_part(ahead, rows->n - i, t->spec->layout == KM_LAYOUT_HALFVEC);
		verdict = classify(t, row, &data);
		if (verdict == KM_ROW_PLAIN)
		{
			collect(t, i, data);
			if (t->arrays == NULL || km_arrays_have_room(t->arrays))
				continue;
		}
		else if (verdict != KM_ROW_KEPT && verdict != KM_ROW_DEFERRED)
		{
			t->left_row[t->nleft] = i;
			t->left_why[t->nleft++] = verdict;
			continue;
		}
		/* the rows' order is to stay */
		deferred = flush_plain(t, verdict == KM_ROW_DEFERRED ? i : -1);
		if (deferred < 0 && verdict == KM_ROW_KEPT && !add_point(t, i, t->point))
			deferred = i;
	}
	if (deferred < 0)
		deferred = flush_plain(t, -1);
	if (deferred >= 0)
	{
		to->block = rows->block;
		to->deferred = rows->offset[deferred];
		i = deferred;
	}
	if (i == rows->n || deferred >= 0)
		km_prefetch_rest(ahead);
	return i;
}

void
km_deform_finish(KmDeformer *t)
{
	km_stage_flush(&t->stage);
}
