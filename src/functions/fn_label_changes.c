/*
 * fn_label_changes.c - a list of rows and the labels that they are to get.
 *
 * Rows are added in the order of one scan and looked up in the order of another scan of the
 * same tables, which is nearly always the same order.  So the list is read along with the scan,
 * like the inner side of a merge join: no sort, no hash, and no more memory than work_mem.
 * Where the orders differ (a policy of row-level security asked for an index scan), the list is
 * sorted in memory and searched.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "functions/functions.h"

typedef struct Change
{
	/* rank of the table, block and offset: 16, 32, 16 bits */
	uint64		key;
	int32		label;
} Change;

#define ROWS_PER_INTERRUPT_CHECK	1024

/* Changes in one row of the tuplestore: 12 kB. */
#define BATCH	768

struct KmChanges
{
	MemoryContext context;
	Tuplestorestate *store;		/* (bytea): full batches */
	TupleTableSlot *slot;
	int64		count;
	/* Tables in the order of their first rows; a table's rank is its place here. */
	Oid		   *tables;
	int			ntables;
	Oid			table;			/* the one asked for last */
	int			rank;			/* its rank, or -1 */
	/* The batch being filled, or read. */
	Change		batch[BATCH];
	int			n;
	int			at;
	bool		reading;
	bool		sorted;			/* keys only ever went up */
	uint64		last;			/* key that was added, or asked for, last */
	Change	   *all;			/* sorted; NULL: not needed so far */
};

static TupleDesc
batch_desc(void)
{
	TupleDesc	desc = CreateTemplateTupleDesc(1);

	TupleDescInitEntry(desc, 1, "batch", BYTEAOID, -1, 0);
	return desc;
}

KmChanges *
km_changes_begin(void)
{
	KmChanges  *c = palloc0(sizeof(KmChanges));

	c->context = CurrentMemoryContext;
	c->store = tuplestore_begin_heap(false, false, work_mem);
	c->slot = MakeSingleTupleTableSlot(batch_desc(), &TTSOpsMinimalTuple);
	c->sorted = true;
	return c;
}

void
km_changes_end(KmChanges *c)
{
	tuplestore_end(c->store);
	ExecDropSingleTupleTableSlot(c->slot);
	if (c->tables != NULL)
		pfree(c->tables);
	if (c->all != NULL)
		pfree(c->all);
	pfree(c);
}

bool
km_changes_has(const KmChanges *c, Oid table)
{
	for (int i = 0; i < c->ntables; i++)
		if (c->tables[i] == table)
			return true;
	return false;
}

int64
km_changes_count(const KmChanges *c)
{
	return c->count;
}

/* ---- keys ---- */

static void
look_up_table(KmChanges *c, Oid table)
{
	c->table = table;
	c->rank = c->ntables - 1;
	while (c->rank >= 0 && c->tables[c->rank] != table)
		c->rank--;
}

static void
add_table(KmChanges *c, Oid table)
{
	/* a power of two: full */
	if ((c->ntables & (c->ntables - 1)) == 0)
	{
		Size		bytes = Max(2 * c->ntables, 1) * sizeof(Oid);

		c->tables = c->ntables == 0 ? MemoryContextAlloc(c->context, bytes) : repalloc(c->tables, bytes);
	}
	c->tables[c->ntables] = table;
	c->rank = c->ntables++;
}

static inline uint64
key_of(const KmChanges *c, const KmRowId *row)
{
	return (uint64) c->rank << 48 |
		(uint64) ItemPointerGetBlockNumberNoCheck(&row->ctid) << 16 |
		ItemPointerGetOffsetNumberNoCheck(&row->ctid);
}

/* ---- writing ---- */

static void
put_batch(KmChanges *c)
{
	Size		bytes = c->n * sizeof(Change);
	bytea	   *value = palloc(VARHDRSZ + bytes);
	Datum		datum = PointerGetDatum(value);
	bool		isnull = false;

	SET_VARSIZE(value, VARHDRSZ + bytes);
	memcpy(VARDATA(value), c->batch, bytes);
	tuplestore_putvalues(c->store, c->slot->tts_tupleDescriptor, &datum, &isnull);
	pfree(value);
	c->n = 0;
}

void
km_changes_add(KmChanges *c, const KmRowId *row, int32 label)
{
	Change	   *to;

	Assert(!c->reading);
	if (row->tableoid != c->table || c->ntables == 0)
	{
		look_up_table(c, row->tableoid);
		if (c->rank < 0)
			add_table(c, row->tableoid);
	}
	if (c->n == BATCH)
		put_batch(c);
	to = &c->batch[c->n++];
	to->key = key_of(c, row);
	to->label = label;
	c->sorted &= c->count == 0 || to->key > c->last;
	c->last = to->key;
	c->count++;
}

void
km_changes_add_labels(KmChanges *c, const KmTables *tables, int rows, const int32_t *label,
					  const uint32_t *old, const uint32_t *const *aux)
{
	for (int i = 0; i < rows; i++)
	{
		KmRowId		id;

		if (i % ROWS_PER_INTERRUPT_CHECK == 0)
			CHECK_FOR_INTERRUPTS();
		if (old != NULL && old[i] == (uint32) label[i])
			continue;
		km_row_id(tables, aux, i, &id);
		km_changes_add(c, &id, label[i]);
	}
}

/* ---- reading ---- */

/* The next batch; false: there are no more. */
static bool
next_batch(KmChanges *c)
{
	/* the caller may be in a context that is reset with every row */
	MemoryContext caller = MemoryContextSwitchTo(c->context);
	bool		found = tuplestore_gettupleslot(c->store, true, false, c->slot);

	c->n = c->at = 0;
	if (found)
	{
		bool		isnull;
		bytea	   *value = DatumGetByteaPP(slot_getattr(c->slot, 1, &isnull));

		c->n = VARSIZE_ANY_EXHDR(value) / sizeof(Change);
		memcpy(c->batch, VARDATA_ANY(value), c->n * sizeof(Change));
		ExecClearTuple(c->slot);
	}
	MemoryContextSwitchTo(caller);
	CHECK_FOR_INTERRUPTS();
	return found;
}

static void
begin_reading(KmChanges *c)
{
	if (c->n > 0)
		put_batch(c);
	c->reading = true;
	c->last = 0;
	c->table = InvalidOid;
	c->rank = -1;
}

static int
by_key(const void *a, const void *b)
{
	uint64		ka = ((const Change *) a)->key;
	uint64		kb = ((const Change *) b)->key;

	/* there may be millions of them */
	CHECK_FOR_INTERRUPTS();
	return ka < kb ? -1 : ka > kb ? 1 : 0;
}

/* A cancel may end it, and the caller's function may go on: what is not sorted then is to be sorted the next time. */
static void
sort_all(KmChanges *c)
{
	Change	   *all = MemoryContextAllocHuge(c->context, c->count * sizeof(Change));
	int64		n = 0;

	c->sorted = false;
	tuplestore_rescan(c->store);
	while (next_batch(c))
	{
		memcpy(all + n, c->batch, c->n * sizeof(Change));
		n += c->n;
	}
	qsort(all, c->count, sizeof(Change), by_key);
	c->all = all;
}

static const Change *
find(KmChanges *c, uint64 key)
{
	Change		wanted = {.key = key};

	if (c->all == NULL && (!c->sorted || key < c->last))
		sort_all(c);
	if (c->all != NULL)
		return bsearch(&wanted, c->all, c->count, sizeof(Change), by_key);
	c->last = key;
	for (;;)
	{
		while (c->at < c->n && c->batch[c->at].key < key)
			c->at++;
		if (c->at < c->n)
			return c->batch[c->at].key == key ? &c->batch[c->at] : NULL;
		if (!next_batch(c))
			return NULL;
	}
}

bool
km_changes_find(KmChanges *c, const KmRowId *row, int32 *label)
{
	const Change *change;

	if (c->count == 0)
		return false;
	if (!c->reading)
		begin_reading(c);
	if (row->tableoid != c->table)
		look_up_table(c, row->tableoid);
	if (c->rank < 0)
		return false;
	change = find(c, key_of(c, row));
	if (change == NULL)
		return false;
	*label = change->label;
	return true;
}
