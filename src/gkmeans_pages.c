/*
 * gkmeans_pages.c - rows straight from the pages of heap tables.
 *
 * A page that is all visible needs no look at its rows' transactions; on others
 * PostgreSQL's own function finds the visible rows, as for any sequential scan.
 * A row with all features, without NULLs and with fixed-width columns only up to
 * the last feature, has them at constant places; so has an array of numbers.  The
 * rows of a page that are like this are gathered column by column.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "gkmeans_compat_heap.h"
#include "gkmeans_gather.h"
#include "gkmeans_pages.h"

/* Arrays kept outside of the page are copied; so many bytes at a time. */
#define MAX_COPIES	(256 * 1024)

/* Values of one type that are side by side. */
typedef struct PageRun
{
	GkValueType type;
	int			first;
	int			count;
} PageRun;

struct GkPages
{
	Relation	rel;
	TupleDesc	desc;
	HeapScanDesc scan;
	bool		plain_snapshot; /* all-visible pages need no second look */
	const GkPagesWhat *what;
	const GkPagesTable *table;
	GkTaken   **into;
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

	/* The page at hand, and the one that comes next. */
	Buffer		buffer;
	BlockNumber block;
	Buffer		ahead;
	BlockNumber ahead_block;
	GkAhead		wanted;			/* what of it was not asked for yet */
	Buffer		latest;			/* read, of the two */
	bool		in_turn;		/* it was just behind the one before */
	int			nrows;
	OffsetNumber offset[MaxHeapTuplesPerPage];
	HeapTupleHeader row[MaxHeapTuplesPerPage];

	/* Rows noted, with their values at constant places. */
	int			n;
	const char *data[MaxHeapTuplesPerPage];
	int			at_row[MaxHeapTuplesPerPage];
	/* Rows to leave out, once it is known that none before them is odd. */
	int			nout;
	int			out[MaxHeapTuplesPerPage];
	uint8		why[MaxHeapTuplesPerPage];
	MemoryContext copies;		/* of arrays */
	Size		copied;

	/* A row taken apart. */
	Datum	   *values;			/* [last] */
	bool	   *nulls;
	double	   *point;			/* [d] */
	double		weight;
};

/* What becomes of a row. */
typedef enum Verdict
{
	KEEP, NULL_FEATURE, NO_WEIGHT, NONFINITE, NO_DIRECTION,
	NOTED,						/* to be kept if its values are right */
	ODD							/* not ours to judge */
} Verdict;

/* ---- values ---- */

uint32
gk_old_label(GkValueType type, Datum value, bool isnull)
{
	double		label;

	if (isnull)
		return GK_LABEL_NULL;
	label = gk_value_of(type, value);
	return label >= 0 && label < GK_MAX_K ? (uint32) label : GK_LABEL_OTHER;
}

static double
batch_value(const GkBatch *b, int column, int row)
{
	const void *x = gk_batch_column(b, column);

	return b->wide[column] ? ((const double *) x)[row] : ((const float *) x)[row];
}

/* ---- places ---- */

Size
gk_pages_what_size(int nvalues)
{
	return offsetof(GkPagesWhat, type) + nvalues * sizeof(GkValueType);
}

/* The attributes at constant places in a row without NULLs before them. */
static void
find_fixed(GkPages *p)
{
	int			at = 0;

	p->place = palloc(p->desc->natts * sizeof(int));
	for (int i = 0; i < p->desc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(p->desc, i);

		if (attr->attlen <= 0)
			break;
		at = att_align_nominal(at, attr->attalign);
		p->place[p->nfixed++] = at;
		at += attr->attlen;
	}
	p->fixed_end = at;
}

static void
find_runs(GkPages *p, int values)
{
	p->runs = palloc(values * sizeof(PageRun));
	for (int j = 0; j < values; j++)
	{
		GkValueType type = p->what->type[p->what->array ? 0 : j];
		PageRun    *last = &p->runs[p->nruns - 1];

		if (j == 0 || type != last->type || p->at[j] != p->at[j - 1] + gk_value_size(type))
		{
			p->runs[p->nruns].type = type;
			p->runs[p->nruns].first = j;
			p->runs[p->nruns++].count = 1;
		}
		else
			last->count++;
	}
}

static void
find_places(GkPages *p)
{
	const GkPagesWhat *what = p->what;

	for (int j = 0; j < what->nvalues; j++)
		p->last = Max(p->last, p->table->attnums[j]);
	find_fixed(p);
	p->at = palloc(Max(what->nvalues, what->d) * sizeof(int));
	if (what->array)
	{
		for (int j = 0; j < what->d; j++)
			p->at[j] = j * gk_value_size(what->type[0]);
		find_runs(p, what->d);
		return;
	}
	for (int j = 0; j < what->nvalues; j++)
	{
		AttrNumber	attnum = p->table->attnums[j];

		if (attnum > p->nfixed || TupleDescAttr(p->desc, attnum - 1)->attlen != gk_value_size(what->type[j]))
			return;
		p->at[j] = p->place[attnum - 1];
	}
	find_runs(p, what->nvalues);
	p->constant = true;
}

GkPages *
gk_pages_open(Relation rel, Snapshot snapshot, const GkPagesWhat *what, const GkPagesTable *table,
			  GkTaken **into, void (*next) (void *arg), void *arg)
{
	GkPages    *p = palloc0(sizeof(GkPages));

	p->rel = rel;
	p->desc = RelationGetDescr(rel);
	/* from block 0 on, whatever others read, and not through all of the cache */
	p->scan = (HeapScanDesc) table_beginscan_strat(rel, snapshot, 0, NULL, true, false);
	p->plain_snapshot = !snapshot->takenDuringRecovery && !IsolationIsSerializable();
	p->what = what;
	p->table = table;
	p->into = into;
	p->next = next;
	p->arg = arg;
	find_places(p);
	p->values = palloc(p->last * sizeof(Datum));
	p->nulls = palloc(p->last * sizeof(bool));
	p->point = palloc(what->d * sizeof(double));
	if (what->array)
		p->copies = AllocSetContextCreate(CurrentMemoryContext, "gkmeans arrays", ALLOCSET_DEFAULT_SIZES);
	return p;
}

static void
let_go(Buffer *buffer)
{
	if (BufferIsValid(*buffer))
		ReleaseBuffer(*buffer);
	*buffer = InvalidBuffer;
}

void
gk_pages_close(GkPages *p)
{
	let_go(&p->buffer);
	let_go(&p->ahead);
	table_endscan(&p->scan->rs_base);
	if (p->copies != NULL)
		MemoryContextDelete(p->copies);
	pfree(p->place);
	pfree(p->at);
	if (p->runs != NULL)
		pfree(p->runs);
	pfree(p->values);
	pfree(p->nulls);
	pfree(p->point);
	pfree(p);
}

/* ---- visible rows ---- */

/*
 * Pin a page.  What was read into the cache in turn lies there in turn, and to
 * guess the place is cheaper than to look it up.
 */
static Buffer
pin(GkPages *p, BlockNumber block)
{
	Buffer		guess = p->latest + 1;
	bool		guessed = p->in_turn && p->scan->rs_strategy == NULL && gk_recent_buffer(p->rel, block, guess);
	Buffer		buffer = guessed ? guess :
		ReadBufferExtended(p->rel, MAIN_FORKNUM, block, RBM_NORMAL, p->scan->rs_strategy);

	p->in_turn = buffer == guess;
	p->latest = buffer;
	return buffer;
}

/*
 * All of a page: rows lie backwards, and each one would be waited for.  Of memory that
 * this process has not seen before nothing is prefetched, so look at it first.
 */
static inline GkAhead
all_of(Page page)
{
	(void) *(volatile const char *) page;
	(void) *((volatile const char *) page + BLCKSZ - 1);
	return (GkAhead) {(const char *) page, (const char *) page + BLCKSZ};
}

/* Go to the page. */
static void
turn_page(GkPages *p)
{
	let_go(&p->buffer);
	if (BufferIsValid(p->ahead) && p->ahead_block == p->block)
		p->buffer = p->ahead;
	else
	{
		GkAhead		all;

		let_go(&p->ahead);
		p->buffer = pin(p, p->block);
		all = all_of(BufferGetPage(p->buffer));
		gk_ask(&all);
	}
	p->ahead = InvalidBuffer;
}

/*
 * Have the next page on its way into the CPU's cache while this one is gathered.  Not
 * before a lock is taken, which would wait for what was looked at.
 */
static void
look_ahead(GkPages *p, BlockNumber next)
{
	if (next == InvalidBlockNumber)
		return;
	p->ahead = pin(p, next);
	p->ahead_block = next;
	p->wanted = all_of(BufferGetPage(p->ahead));
}

/* False: the page is not all visible. */
static bool
find_all(GkPages *p)
{
	Page		page = BufferGetPage(p->buffer);
	bool		all;

	LockBuffer(p->buffer, BUFFER_LOCK_SHARE);
	all = PageIsAllVisible(page);
	if (all)
	{
		OffsetNumber last = PageGetMaxOffsetNumber(page);
		int			n = 0;

		gk_test_old_snapshot(p->scan->rs_base.rs_snapshot, p->rel, page);
		for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
		{
			ItemId		item = PageGetItemId(page, offset);

			p->offset[n] = offset;
			p->row[n] = (HeapTupleHeader) ((char *) page + ItemIdGetOffset(item));
			n += ItemIdIsNormal(item);
		}
		p->nrows = n;
	}
	LockBuffer(p->buffer, BUFFER_LOCK_UNLOCK);
	return all;
}

static void
find_visible(GkPages *p, BlockNumber next)
{
	CHECK_FOR_INTERRUPTS();
	p->nrows = 0;
	if (p->plain_snapshot)
	{
		bool		all;

		turn_page(p);
		all = find_all(p);
		look_ahead(p, next);
		if (all)
			return;
		let_go(&p->buffer);
	}
	gk_heap_page(p->scan, p->block);
	p->nrows = (int) p->scan->rs_ntuples;
	for (int i = 0; i < p->nrows; i++)
	{
		Page		page = BufferGetPage(p->scan->rs_cbuf);

		p->offset[i] = p->scan->rs_vistuples[i];
		p->row[i] = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, p->offset[i]));
	}
}

void
gk_pages_prefetch(Relation rel, BlockNumber first, BlockNumber end)
{
#ifdef USE_PREFETCH
	for (BlockNumber block = first; block < end; block++)
		if (BufferIsValid(PrefetchBuffer(rel, MAIN_FORKNUM, block).recent_buffer) && block == first)
			return;
#endif
}

/* ---- into the batch ---- */

/* Room for another row? */
static GkTaken *
with_room(GkPages *p)
{
	if ((*p->into)->batch->rows == (*p->into)->batch->capacity ||
		(*p->into)->nleft == (*p->into)->batch->capacity)
		p->next(p->arg);
	return *p->into;
}

static uint32
row_label(const GkPages *p, int i)
{
	HeapTupleData tuple = {.t_data = p->row[i]};
	bool		isnull;
	Datum		value;

	if (!p->what->labelled)
		return GK_LABEL_NULL;
	value = heap_getattr(&tuple, p->table->attnums[p->what->nvalues], p->desc, &isnull);
	return gk_old_label(p->what->label_type, value, isnull);
}

/* Where row i of the page is, for row `to` of the batch. */
static inline void
put_id(const GkPages *p, GkBatch *b, int i, int to)
{
	gk_batch_aux(b, GK_AUX_BLOCK)[to] = p->block;
	gk_batch_aux(b, GK_AUX_TABLE)[to] = p->table->index << 16 | p->offset[i];
	if (p->what->labelled)
		gk_batch_aux(b, GK_AUX_LABEL)[to] = row_label(p, i);
}

static void
leave_out(GkPages *p, int i, Verdict why)
{
	GkTaken    *t = with_room(p);

	t->seen++;
	if (why == NULL_FEATURE)
		t->counts.null_feature++;
	else if (why == NO_WEIGHT)
		t->counts.no_weight++;
	else if (why == NONFINITE)
		t->counts.nonfinite++;
	else
		t->counts.no_direction++;
	if (p->what->left_out)
	{
		GkLeftOut  *left = &t->left[t->nleft++];

		left->block = p->block;
		left->offset = p->offset[i];
		left->table = p->table->index;
		left->old_label = row_label(p, i);
	}
}

/* The values in point and weight are the row's. */
static Verdict
judge(const GkPages *p)
{
	bool		finite = true;
	bool		zero = true;

	if (p->what->weighted && !(p->weight > 0 && p->weight <= DBL_MAX))
		return p->weight == 0 ? NO_WEIGHT : ODD;
	for (int j = 0; j < p->what->d; j++)
	{
		finite &= fabs(p->point[j]) <= DBL_MAX;
		zero &= p->point[j] == 0;
	}
	if (!finite)
		return p->what->skip_nonfinite ? NONFINITE : ODD;
	if (zero && p->what->cosine)
		return p->what->skip_nonfinite ? NO_DIRECTION : ODD;
	return KEEP;
}

/* False: the row is odd. */
static bool
take_point(GkPages *p, int i)
{
	Verdict		verdict = judge(p);
	GkBatch    *b;

	if (verdict == ODD)
		return false;
	if (verdict != KEEP)
	{
		leave_out(p, i, verdict);
		return true;
	}
	b = with_room(p)->batch;
	for (int j = 0; j < p->what->d; j++)
		gk_batch_put(b, j, p->point[j]);
	if (p->what->weighted)
		gk_batch_put(b, p->what->d, p->weight);
	if (p->what->identify)
		put_id(p, b, i, b->rows);
	b->rows++;
	(*p->into)->seen++;
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
take_together(GkPages *p, int first, int n)
{
	const GkPagesWhat *what = p->what;
	GkTaken    *t = *p->into;
	GkBatch    *b = t->batch;
	bool		good = true;

	for (int i = 0; good && i < p->nruns; i++)
		good = gk_gather(b, p->runs[i].first, p->runs[i].count, p->runs[i].type,
						 p->data + first, n, p->at[p->runs[i].first], &p->wanted);
	if (what->weighted)
		for (int i = 0; good && i < n; i++)
			good = batch_value(b, what->d, b->rows + i) > 0;
	if (!good || (what->cosine && some_zero(b, what->d, n)))
		return false;
	if (what->identify)
		for (int i = 0; i < n; i++)
			put_id(p, b, p->at_row[first + i], b->rows + i);
	b->rows += n;
	t->seen += n;
	return true;
}

/* The rows to leave out up to one, from the next-th on. */
static int
leave_out_to(GkPages *p, int next, int row)
{
	for (; next < p->nout && p->out[next] < row; next++)
		leave_out(p, p->out[next], p->why[next]);
	return next;
}

/* All noted rows.  An odd one is returned, with those before it taken; or `odd`. */
static int
take_noted(GkPages *p, int odd)
{
	const GkPagesWhat *what = p->what;
	bool		stop = false;
	int			out = 0;

	for (int done = 0, n; !stop && done < p->n; done += n)
	{
		GkBatch    *b = with_room(p)->batch;

		n = Min(p->n - done, b->capacity - b->rows);
		if (take_together(p, done, n))
			continue;
		for (int i = done; !stop && i < done + n; i++)
		{
			for (int j = 0; j < what->d; j++)
				p->point[j] = gk_value_at(what->type[what->array ? 0 : j], p->data[i] + p->at[j]);
			if (what->weighted)
				p->weight = gk_value_at(what->type[what->d], p->data[i] + p->at[what->d]);
			out = leave_out_to(p, out, p->at_row[i]);
			stop = !take_point(p, p->at_row[i]);
			if (stop)
				odd = p->at_row[i];
		}
	}
	p->n = 0;
	leave_out_to(p, out, odd < 0 ? MaxHeapTuplesPerPage : odd);
	p->nout = 0;
	if (p->copied > 0)
	{
		MemoryContextReset(p->copies);
		p->copied = 0;
	}
	return odd;
}

/* ---- rows that need a look ---- */

/* The attributes up to the last one that a point needs. */
static void
take_apart(GkPages *p, HeapTupleHeader row)
{
	const char *from = (const char *) row + row->t_hoff;
	bool		hasnull = (row->t_infomask & HEAP_HASNULL) != 0;
	int			natts = Min(HeapTupleHeaderGetNatts(row), p->last);
	int			i = 0;
	int			at = 0;

	if (!hasnull && natts >= p->nfixed)
	{
		for (; i < p->nfixed; i++)
		{
			p->nulls[i] = false;
			p->values[i] = fetchatt(TupleDescAttr(p->desc, i), from + p->place[i]);
		}
		at = p->fixed_end;
	}
	for (; i < natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(p->desc, i);

		p->nulls[i] = hasnull && att_isnull(i, row->t_bits);
		if (p->nulls[i])
			continue;
		if (attr->attlen == -1)
			at = att_align_pointer(at, attr->attalign, -1, from + at);
		else
			at = att_align_nominal(at, attr->attalign);
		p->values[i] = fetchatt(attr, from + at);
		at = att_addlength_pointer(at, attr->attlen, from + at);
	}
	/* columns added later */
	for (; i < p->last; i++)
		p->values[i] = getmissingattr(p->desc, i + 1, &p->nulls[i]);
}

/* The numbers in an array: NOTED, and where they are. */
static Verdict
look_into_array(GkPages *p, Datum value, const char **elements)
{
	struct varlena *array = (struct varlena *) DatumGetPointer(value);
	const char *body;			/* an ArrayType without its first word */
	int			ndim;
	int			d;
	int32		dataoffset;

	if (VARATT_IS_EXTENDED(array) && !VARATT_IS_SHORT(array))
	{
		MemoryContext caller = MemoryContextSwitchTo(p->copies);

		array = detoast_attr(array);
		p->copied += VARSIZE(array);
		MemoryContextSwitchTo(caller);
	}
	body = VARDATA_ANY(array);
	/* not aligned if it is short */
	memcpy(&ndim, body + offsetof(ArrayType, ndim) - VARHDRSZ, sizeof(ndim));
	memcpy(&d, body + sizeof(ArrayType) - VARHDRSZ, sizeof(d));
	memcpy(&dataoffset, body + offsetof(ArrayType, dataoffset) - VARHDRSZ, sizeof(dataoffset));
	if (ndim != 1 || d != p->what->d)
		return ODD;
	if (dataoffset == 0)
		dataoffset = ARR_OVERHEAD_NONULLS(1);
	else
	{
		const bits8 *bits = (const bits8 *) body + sizeof(ArrayType) + 2 * sizeof(int) - VARHDRSZ;

		for (int j = 0; j < p->what->d; j++)
			if (att_isnull(j, bits))
				return NULL_FEATURE;
	}
	*elements = body + dataoffset - VARHDRSZ;
	return NOTED;
}

/* A row that was taken apart: its values into point and weight. */
static Verdict
look_at_values(GkPages *p, const char **elements)
{
	const GkPagesWhat *what = p->what;
	const AttrNumber *attnums = p->table->attnums;

	/* as gk_reader_row() has it: a row without weight is ignored, whatever it has */
	if (what->weighted)
	{
		int			at = attnums[what->nvalues - 1] - 1;

		if (p->nulls[at])
			return NO_WEIGHT;
		p->weight = gk_value_of(what->type[what->nvalues - 1], p->values[at]);
		if (!(p->weight > 0 && p->weight <= DBL_MAX))
			return p->weight == 0 ? NO_WEIGHT : ODD;
	}
	if (what->array)
	{
		Verdict		verdict;

		if (p->nulls[attnums[0] - 1])
			return NULL_FEATURE;
		verdict = look_into_array(p, p->values[attnums[0] - 1], elements);
		if (verdict == NOTED && what->weighted)
		{
			for (int j = 0; j < what->d; j++)
				p->point[j] = gk_value_at(what->type[0], *elements + p->at[j]);
			verdict = KEEP;
		}
		return verdict;
	}
	for (int j = 0; j < what->d; j++)
		if (p->nulls[attnums[j] - 1])
			return NULL_FEATURE;
	for (int j = 0; j < what->d; j++)
		p->point[j] = gk_value_of(what->type[j], p->values[attnums[j] - 1]);
	return KEEP;
}

static Verdict
look_at(GkPages *p, HeapTupleHeader row, const char **data)
{
	const GkPagesWhat *what = p->what;

	if (p->constant && HeapTupleHeaderGetNatts(row) >= p->last && (row->t_infomask & HEAP_HASNULL))
	{
		bool		null = false;

		if (!what->weighted)
			for (int j = 0; j < what->d; j++)
				if (att_isnull(p->table->attnums[j] - 1, row->t_bits))
					return NULL_FEATURE;
		for (int i = 0; i < p->last; i++)
			null |= att_isnull(i, row->t_bits);
		if (!null)
		{
			*data = (const char *) row + row->t_hoff;
			return NOTED;
		}
	}
	take_apart(p, row);
	return look_at_values(p, data);
}

/* If the table's are. */
static inline bool
at_constant_places(const GkPages *p, const HeapTupleHeaderData *row)
{
	return (row->t_infomask & HEAP_HASNULL) == 0 && HeapTupleHeaderGetNatts(row) >= p->last;
}

static inline void
note(GkPages *p, int i, const char *data)
{
	p->data[p->n] = data;
	p->at_row[p->n++] = i;
}

/* The first rows of the page that have everything at constant places: nearly always all. */
static int
note_plain(GkPages *p)
{
	int			n = p->constant ? p->nrows : 0;
	int			i = 0;

	for (; i < n && at_constant_places(p, p->row[i]); i++)
	{
		p->data[i] = (const char *) p->row[i] + p->row[i]->t_hoff;
		p->at_row[i] = i;
	}
	p->n = i;
	return i;
}

OffsetNumber
gk_pages_take(GkPages *p, BlockNumber block, BlockNumber next)
{
	int			odd = -1;
	int			i;

	p->block = block;
	find_visible(p, next);
	i = note_plain(p);
	for (; odd < 0 && i < p->nrows; i++)
	{
		HeapTupleHeader row = p->row[i];
		const char *data = NULL;
		Verdict		verdict;

		if (p->constant && at_constant_places(p, row))
		{
			note(p, i, (const char *) row + row->t_hoff);
			continue;
		}
		verdict = look_at(p, row, &data);
		if (verdict == NOTED)
		{
			note(p, i, data);
			if (p->copied < MAX_COPIES)
				continue;
		}
		else if (verdict != KEEP && verdict != ODD)
		{
			p->out[p->nout] = i;
			p->why[p->nout++] = verdict;
			continue;
		}
		/* the rows' order is to stay */
		odd = take_noted(p, verdict == ODD ? i : -1);
		if (odd < 0 && verdict == KEEP && !take_point(p, i))
			odd = i;
	}
	if (odd < 0)
		odd = take_noted(p, -1);
	gk_ask(&p->wanted);
	/* the counter of rows that scans of this relation returned */
	pgstat_count_index_tuples(p->rel, p->nrows);
	return odd < 0 ? 0 : p->offset[odd];
}
