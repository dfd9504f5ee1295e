/*
 * window_columns.c - columns of rows that the node KmeansWindow gives out again.
 *
 * Rows come once, in the order in which they are wanted, any number of times, later.  Where all
 * columns are numbers and the like (passed by value) a row is these, side by side: a tuplestore,
 * which makes a tuple of it, takes four times as long.  Both go to a temporary file above work_mem.
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "window/window.h"

#define FIRST_BLOCK		((Size) 8 * 1024)
#define LAST_BLOCK		((Size) 1024 * 1024)

typedef struct Block
{
	struct Block *next;
	char	   *end;			/* of its rows */
} Block;

struct KmWindowColumns
{
	int			n;				/* columns */
	Size		width;			/* bytes of a row: which columns are NULL, and the values */
	MemoryContext cxt;			/* of the blocks */
	Size		bytes;			/* of all blocks */
	Block	   *first;
	Block	   *last;			/* being written, or read */
	char	   *at;
	char	   *limit;			/* of the last block's room */
	bool		complete;		/* no more rows come */
	BufFile    *file;			/* instead of blocks, if they were too many */
	char	   *row;			/* of the file */
	/* For columns of other kinds, and many. */
	Tuplestorestate *store;
	TupleTableSlot *slot;
	Datum	   *values;
	bool	   *nulls;
};

static bool
by_value(TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attbyval)
			return false;
	return desc->natts <= 64;
}

KmWindowColumns *
km_window_columns_begin(TupleDesc desc)
{
	KmWindowColumns *r = palloc0(sizeof(KmWindowColumns));

	r->n = desc->natts;
	if (by_value(desc))
	{
		r->width = sizeof(uint64) + r->n * sizeof(Datum);
		r->cxt = AllocSetContextCreate(CurrentMemoryContext, "gkmeans window rows", ALLOCSET_DEFAULT_SIZES);
		return r;
	}
	r->store = tuplestore_begin_heap(false, false, work_mem);
	r->slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	r->values = palloc(r->n * sizeof(Datum));
	r->nulls = palloc(r->n * sizeof(bool));
	return r;
}

/* ---- in ---- */

static void
spill(KmWindowColumns *r)
{
	MemoryContext caller = MemoryContextSwitchTo(GetMemoryChunkContext(r));

	r->file = BufFileCreateTemp(false);
	r->row = palloc(r->width);
	MemoryContextSwitchTo(caller);
	if (r->last != NULL)
		r->last->end = r->at;
	for (Block *b = r->first; b != NULL; b = b->next)
		BufFileWrite(r->file, b + 1, b->end - (char *) (b + 1));
	MemoryContextReset(r->cxt);
	r->first = r->last = NULL;
}

/* Room for at least one more row in the last block; or there is the file. */
static void
more_room(KmWindowColumns *r)
{
	Size		bytes = Min(Max(r->bytes, FIRST_BLOCK), LAST_BLOCK);
	Block	   *b;

	if (r->bytes + bytes > (Size) work_mem * 1024)
	{
		spill(r);
		return;
	}
	b = MemoryContextAlloc(r->cxt, bytes);
	b->next = NULL;
	if (r->last == NULL)
		r->first = b;
	else
	{
		r->last->end = r->at;
		r->last->next = b;
	}
	r->last = b;
	r->at = (char *) (b + 1);
	r->limit = (char *) b + bytes;
	r->bytes += bytes;
}

void
km_window_columns_put(KmWindowColumns *r, const Datum *values, const bool *nulls, const AttrNumber *from)
{
	uint64		null = 0;
	char	   *row;
	Datum	   *to;

	if (r->store != NULL)
	{
		for (int i = 0; i < r->n; i++)
		{
			r->values[i] = values[from[i]];
			r->nulls[i] = nulls[from[i]];
		}
		tuplestore_putvalues(r->store, r->slot->tts_tupleDescriptor, r->values, r->nulls);
		return;
	}
	if (r->file == NULL && (r->last == NULL || (Size) (r->limit - r->at) < r->width))
		more_room(r);
	row = r->file != NULL ? r->row : r->at;
	to = (Datum *) (row + sizeof(uint64));
	for (int i = 0; i < r->n; i++)
	{
		to[i] = values[from[i]];
		null |= (uint64) nulls[from[i]] << i;
	}
	memcpy(row, &null, sizeof(null));
	if (r->file != NULL)
		BufFileWrite(r->file, row, r->width);
	else
		r->at += r->width;
}

/* ---- out ---- */

static void
to_block(KmWindowColumns *r, Block *b)
{
	r->last = b;
	r->at = b != NULL ? (char *) (b + 1) : NULL;
}

void
km_window_columns_rewind(KmWindowColumns *r)
{
	if (r->store != NULL)
		tuplestore_rescan(r->store);
	else if (r->file != NULL)
		km_window_file_rewind(r->file, "rows");
	else
	{
		/* the first time, this ends the block that was written last */
		if (r->last != NULL && !r->complete)
			r->last->end = r->at;
		r->complete = true;
		to_block(r, r->first);
	}
}

void
km_window_columns_get(KmWindowColumns *r, Datum *values, bool *nulls, const AttrNumber *to)
{
	uint64		null;
	const char *row = r->row;
	const Datum *from;

	if (r->store != NULL)
	{
		if (!tuplestore_gettupleslot(r->store, true, false, r->slot))
			elog(ERROR, "a row of the window is missing");
		slot_getallattrs(r->slot);
		for (int i = 0; i < r->n; i++)
		{
			values[to[i]] = r->slot->tts_values[i];
			nulls[to[i]] = r->slot->tts_isnull[i];
		}
		return;
	}
	if (r->file != NULL)
		km_window_file_read(r->file, r->row, r->width, "rows");
	else
	{
		if (r->at == r->last->end)
			to_block(r, r->last->next);
		row = r->at;
		r->at += r->width;
	}
	from = (const Datum *) (row + sizeof(uint64));
	memcpy(&null, row, sizeof(null));
	for (int i = 0; i < r->n; i++)
	{
		values[to[i]] = from[i];
		nulls[to[i]] = (null >> i & 1) != 0;
	}
}

void
km_window_columns_end(KmWindowColumns *r)
{
	if (r->store != NULL)
	{
		ExecDropSingleTupleTableSlot(r->slot);
		tuplestore_end(r->store);
	}
	if (r->file != NULL)
		BufFileClose(r->file);
}
