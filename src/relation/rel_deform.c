/*
 * rel_deform.c - the rows of a page into a batch.
 *
 * A row with all features, without NULLs and with fixed-width columns only up to
 * the last feature, has them at constant places; so has an array of numbers.  The
 * rows of a page that are like this are gathered column by column.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/tupdesc_details.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "relation/rel_deform.h"

/* Arrays kept outside of the page are copied; so many bytes at a time. */
#define MAX_COPIES	(256 * 1024)

/* Values of one type that are side by side. */
typedef struct PageRun
{
	KmValueType type;
	int			first;
	int			count;
} PageRun;

struct KmDeformer
{
	TupleDesc	desc;
	const KmPagesWhat *what;
	const KmPagesTable *table;
	bool		helper;			/* is a thread's, which must not call PostgreSQL */
	KmRowBatch   **into;
	void		(*next) (void *arg);
	void	   *arg;

	/* Where values are in rows without a surprise. */
	AttrNumber	last;			/* the last attribute that a point needs */
	bool		constant;		/* all of them are at constant places */
	int		   *at;				/* [values of a point] from data[i] on; arrays: [d] */
	int			nruns;
	PageRun    *runs;			/* of the values of a point */
	int			nfixed;			/* attributes at constant places, if no NULL is before them */
	int		   *place;			/* [nfixed] theirs */
	int			fixed_end;		/* where the next one would be */

	/* The page at hand. */
	const KmPageRows *rows;
	KmPrefetch    *ahead;			/* memory to ask for meanwhile */

	/* Rows noted, with their values at constant places. */
	int			n;
	const char *data[MaxHeapTuplesPerPage];
	int			at_row[MaxHeapTuplesPerPage];
	/* Rows to leave out, once it is known that none before them is deferred. */
	int			nout;
	int			out[MaxHeapTuplesPerPage];
	uint8		why[MaxHeapTuplesPerPage];
	MemoryContext copies;		/* of arrays */
	Size		copied;

	/* A row taken apart: its attributes, its features and weight. */
	Datum	   *values;			/* [last] */
	bool	   *nulls;
	double	   *apart;			/* [d + 1] */
	double	   *noted;			/* [d + 1] the same of one of the rows noted */
};

/* What becomes of a row, beside the verdicts of rel_rules.h. */
enum
{
	NOTED = KM_ROW_VERDICTS,	/* to be judged with the others that have all at constant places */
	DEFERRED					/* for the process that runs the query: an error, or PostgreSQL is needed */
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
km_pages_what_size(int nvalues)
{
	return offsetof(KmPagesWhat, type) + nvalues * sizeof(KmValueType);
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
		KmValueType type = t->what->type[t->what->array ? 0 : j];
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
	const KmPagesWhat *what = t->what;

	for (int j = 0; j < what->nvalues; j++)
		t->last = Max(t->last, t->table->attnums[j]);
	find_fixed(t);
	t->at = palloc(Max(what->nvalues, what->d) * sizeof(int));
	if (what->array)
	{
		for (int j = 0; j < what->d; j++)
			t->at[j] = j * km_value_size(what->type[0]);
		find_runs(t, what->d);
		return;
	}
	for (int j = 0; j < what->nvalues; j++)
	{
		AttrNumber	attnum = t->table->attnums[j];

		if (attnum > t->nfixed || TupleDescAttr(t->desc, attnum - 1)->attlen != km_value_size(what->type[j]))
			return;
		t->at[j] = t->place[attnum - 1];
	}
	find_runs(t, what->nvalues);
	t->constant = true;
}

KmDeformer *
km_deform_open(TupleDesc desc, const KmPagesWhat *what, const KmPagesTable *table, bool helper,
			  KmRowBatch **into, void (*next) (void *arg), void *arg)
{
	KmDeformer    *t = palloc0(sizeof(KmDeformer));

	t->desc = desc;
	t->what = what;
	t->table = table;
	t->helper = helper;
	t->into = into;
	t->next = next;
	t->arg = arg;
	find_places(t);
	t->values = palloc(t->last * sizeof(Datum));
	t->nulls = palloc(t->last * sizeof(bool));
	t->apart = palloc((what->d + 1) * sizeof(double));
	t->noted = palloc((what->d + 1) * sizeof(double));
	if (what->array && !helper)
		t->copies = AllocSetContextCreate(CurrentMemoryContext, "gkmeans arrays", ALLOCSET_DEFAULT_SIZES);
	return t;
}

void
km_deform_close(KmDeformer *t)
{
	if (t->copies != NULL)
		MemoryContextDelete(t->copies);
	pfree(t->place);
	pfree(t->at);
	if (t->runs != NULL)
		pfree(t->runs);
	pfree(t->values);
	pfree(t->nulls);
	pfree(t->apart);
	pfree(t->noted);
	pfree(t);
}

/* ---- into the batch ---- */

/* Room for another row? */
static KmRowBatch *
with_room(KmDeformer *t)
{
	if ((*t->into)->batch->rows == (*t->into)->batch->capacity ||
		(*t->into)->nleft == (*t->into)->batch->capacity)
		t->next(t->arg);
	return *t->into;
}

static uint32
row_label(const KmDeformer *t, int i)
{
	HeapTupleData tuple = {.t_data = t->rows->row[i]};
	bool		isnull;
	Datum		value;

	if (!t->what->labelled)
		return KM_LABEL_NULL;
	value = heap_getattr(&tuple, t->table->attnums[t->what->nvalues], t->desc, &isnull);
	return km_old_label(t->what->label_type, value, isnull);
}

/* Where row i of the page is, for row `to` of the batch. */
static inline void
put_id(const KmDeformer *t, GkBatch *b, int i, int to)
{
	gk_batch_aux(b, KM_AUX_BLOCK)[to] = t->rows->block;
	gk_batch_aux(b, KM_AUX_TABLE)[to] = t->table->index << 16 | t->rows->offset[i];
	if (t->what->labelled)
		gk_batch_aux(b, KM_AUX_LABEL)[to] = row_label(t, i);
}

static void
leave_out(KmDeformer *t, int i, KmVerdict why)
{
	KmRowBatch    *taken = with_room(t);

	taken->seen++;
	km_count_left_out(&taken->counts, why);
	if (t->what->left_out)
	{
		KmLeftOut  *left = &taken->left[taken->nleft++];

		left->block = t->rows->block;
		left->offset = t->rows->offset[i];
		left->table = t->table->index;
		left->old_label = row_label(t, i);
	}
}

/* Row i with its features and weight.  False: it is deferred. */
static bool
take_point(KmDeformer *t, int i, const double *point)
{
	const KmPagesWhat *what = t->what;
	KmVerdict	verdict = what->weighted ? km_judge_weight(point[what->d]) : KM_ROW_KEPT;
	GkBatch    *b;

	if (verdict == KM_ROW_KEPT)
		verdict = km_judge_point(point, what->d, &what->rules);
	if (verdict != KM_ROW_KEPT)
	{
		if (!km_leaves_out(verdict, &what->rules))
			return false;
		leave_out(t, i, verdict);
		return true;
	}
	b = with_room(t)->batch;
	for (int j = 0; j < b->columns; j++)
		gk_batch_put(b, j, point[j]);
	if (what->identify)
		put_id(t, b, i, b->rows);
	b->rows++;
	(*t->into)->seen++;
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

/* n noted rows, for which there is room.  False: look at them one by one. */
static bool
take_together(KmDeformer *t, int first, int n)
{
	const KmPagesWhat *what = t->what;
	KmRowBatch    *taken = *t->into;
	GkBatch    *b = taken->batch;
	bool		good = true;

	for (int i = 0; good && i < t->nruns; i++)
		good = km_transpose(b, t->runs[i].first, t->runs[i].count, t->runs[i].type,
						 t->data + first, n, t->at[t->runs[i].first], t->ahead);
	if (what->weighted)
		for (int i = 0; good && i < n; i++)
			good = batch_value(b, what->d, b->rows + i) > 0;
	if (!good || (what->rules.cosine && some_zero(b, what->d, n)))
		return false;
	if (what->identify)
		for (int i = 0; i < n; i++)
			put_id(t, b, t->at_row[first + i], b->rows + i);
	b->rows += n;
	taken->seen += n;
	return true;
}

/* The rows to leave out up to one, from the next-th on. */
static int
leave_out_to(KmDeformer *t, int next, int row)
{
	for (; next < t->nout && t->out[next] < row; next++)
		leave_out(t, t->out[next], t->why[next]);
	return next;
}

/* A row that has all at constant places: its features and weight. */
static void
read_noted(KmDeformer *t, const char *data)
{
	for (int i = 0; i < t->nruns; i++)
		km_values_in(t->runs[i].type, data + t->at[t->runs[i].first], t->runs[i].count,
					 t->noted + t->runs[i].first);
}

/* All noted rows.  A deferred one is returned, with those before it taken; or `deferred`. */
static int
take_noted(KmDeformer *t, int deferred)
{
	bool		stop = false;
	int			out = 0;

	for (int done = 0, n; !stop && done < t->n; done += n)
	{
		GkBatch    *b = with_room(t)->batch;

		n = Min(t->n - done, b->capacity - b->rows);
		if (take_together(t, done, n))
			continue;
		for (int i = done; !stop && i < done + n; i++)
		{
			read_noted(t, t->data[i]);
			out = leave_out_to(t, out, t->at_row[i]);
			stop = !take_point(t, t->at_row[i], t->noted);
			if (stop)
				deferred = t->at_row[i];
		}
	}
	t->n = 0;
	leave_out_to(t, out, deferred < 0 ? MaxHeapTuplesPerPage : deferred);
	t->nout = 0;
	if (t->copied > 0)
	{
		MemoryContextReset(t->copies);
		t->copied = 0;
	}
	return deferred;
}

/* ---- rows that need a look ---- */

/* The attributes up to the last one that a point needs. */
static void
take_apart(KmDeformer *t, HeapTupleHeader row)
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

/* The numbers in an array: NOTED, and where they are. */
static int
look_into_array(KmDeformer *t, Datum value, const char **elements)
{
	struct varlena *array = (struct varlena *) DatumGetPointer(value);
	const char *body;			/* an ArrayType without its first word */
	KmArrayHead head;

	/* a pointer to a value elsewhere has the bit of a short one, too */
	if (VARATT_IS_EXTERNAL(array) || (VARATT_IS_EXTENDED(array) && !VARATT_IS_SHORT(array)))
	{
		MemoryContext caller;

		if (t->helper)
			return DEFERRED;
		caller = MemoryContextSwitchTo(t->copies);
		array = detoast_attr(array);
		t->copied += VARSIZE(array);
		MemoryContextSwitchTo(caller);
	}
	body = VARDATA_ANY(array);
	/* an empty array ends before the head does */
	if (VARSIZE_ANY_EXHDR(array) < sizeof(head))
		return DEFERRED;
	/* not aligned if it is short */
	memcpy(&head, body, sizeof(head));
	if (head.ndim != 1 || head.d != t->what->d)
		return DEFERRED;
	if (head.dataoffset == 0)
		head.dataoffset = ARR_OVERHEAD_NONULLS(1);
	else
	{
		const bits8 *bits = (const bits8 *) body + sizeof(ArrayType) + 2 * sizeof(int) - VARHDRSZ;

		for (int j = 0; j < t->what->d; j++)
			if (att_isnull(j, bits))
				return KM_ROW_NULL_FEATURE;
	}
	*elements = body + head.dataoffset - VARHDRSZ;
	return NOTED;
}

/* A row that was taken apart: its features and weight into t->apart. */
static int
look_at_values(KmDeformer *t, const char **elements)
{
	const KmPagesWhat *what = t->what;
	const AttrNumber *attnums = t->table->attnums;

	if (what->weighted)
	{
		int			at = attnums[what->nvalues - 1] - 1;
		KmVerdict	verdict;

		if (t->nulls[at])
			return KM_ROW_NO_WEIGHT;
		t->apart[what->d] = km_value_of(what->type[what->nvalues - 1], t->values[at]);
		verdict = km_judge_weight(t->apart[what->d]);
		if (verdict != KM_ROW_KEPT)
			return km_leaves_out(verdict, &what->rules) ? (int) verdict : DEFERRED;
	}
	if (what->array)
	{
		int			verdict;

		if (t->nulls[attnums[0] - 1])
			return KM_ROW_NULL_FEATURE;
		verdict = look_into_array(t, t->values[attnums[0] - 1], elements);
		if (verdict == NOTED && what->weighted)
		{
			km_values_in(what->type[0], *elements, what->d, t->apart);
			verdict = KM_ROW_KEPT;
		}
		return verdict;
	}
	for (int j = 0; j < what->d; j++)
		if (t->nulls[attnums[j] - 1])
			return KM_ROW_NULL_FEATURE;
	for (int j = 0; j < what->d; j++)
		t->apart[j] = km_value_of(what->type[j], t->values[attnums[j] - 1]);
	return KM_ROW_KEPT;
}

static int
look_at(KmDeformer *t, HeapTupleHeader row, const char **data)
{
	const KmPagesWhat *what = t->what;

	if (t->constant && HeapTupleHeaderGetNatts(row) >= t->last && (row->t_infomask & HEAP_HASNULL))
	{
		bool		null = false;

		if (!what->weighted)
			for (int j = 0; j < what->d; j++)
				if (att_isnull(t->table->attnums[j] - 1, row->t_bits))
					return KM_ROW_NULL_FEATURE;
		for (int i = 0; i < t->last; i++)
			null |= att_isnull(i, row->t_bits);
		if (!null)
		{
			*data = (const char *) row + row->t_hoff;
			return NOTED;
		}
	}
	/* what a column added later has in this row is PostgreSQL's to find */
	if (t->helper && HeapTupleHeaderGetNatts(row) < t->last)
		return DEFERRED;
	take_apart(t, row);
	return look_at_values(t, data);
}

/* If the table's are. */
static inline bool
at_constant_places(const HeapTupleHeaderData *row, AttrNumber last)
{
	return (row->t_infomask & HEAP_HASNULL) == 0 && HeapTupleHeaderGetNatts(row) >= last;
}

static inline void
note(KmDeformer *t, int i, const char *data)
{
	t->data[t->n] = data;
	t->at_row[t->n++] = i;
}

/* The rows from one on that have everything at constant places: nearly always all. */
static int
note_plain(KmDeformer *t, int first)
{
	HeapTupleHeader const *row = t->rows->row;
	AttrNumber	last = t->last;
	int			n = t->constant ? t->rows->n : 0;
	int			i = first;

	/* as note() does, but nobody waits for t->n */
	for (; i < n && at_constant_places(row[i], last); i++)
	{
		t->data[i - first] = (const char *) row[i] + row[i]->t_hoff;
		t->at_row[i - first] = i;
	}
	t->n = i - first;
	return i;
}

int
km_deform_take(KmDeformer *t, const KmPageRows *rows, int first, KmPrefetch *ahead)
{
	int			deferred = -1;
	int			i;

	t->rows = rows;
	t->ahead = ahead;
	i = note_plain(t, first);
	for (; deferred < 0 && i < rows->n; i++)
	{
		HeapTupleHeader row = rows->row[i];
		const char *data = NULL;
		int			verdict;

		if (t->constant && at_constant_places(row, t->last))
		{
			note(t, i, (const char *) row + row->t_hoff);
			continue;
		}
		verdict = look_at(t, row, &data);
		if (verdict == NOTED)
		{
			note(t, i, data);
			if (t->copied < MAX_COPIES)
				continue;
		}
		else if (verdict != KM_ROW_KEPT && verdict != DEFERRED)
		{
			t->out[t->nout] = i;
			t->why[t->nout++] = verdict;
			continue;
		}
		/* the rows' order is to stay */
		deferred = take_noted(t, verdict == DEFERRED ? i : -1);
		if (deferred < 0 && verdict == KM_ROW_KEPT && !take_point(t, i, t->apart))
			deferred = i;
	}
	if (deferred < 0)
		deferred = take_noted(t, -1);
	km_prefetch_row(ahead);
	return deferred;
}
