/*
 * rel_toast.c - values that are stored out of line, read in the order of their pages.
 *
 * PostgreSQL finds each value by the index of the TOAST table, which takes longer than to copy
 * it.  But rows that were written one after the other have values that lie one after the
 * other: after the last chunk of a value comes the first one of the next row's.  So look there
 * first, and at the index only if it is another's, as after an UPDATE or where the reading
 * begins.
 *
 * A chunk is found by its number and not through the index, so there must be no other of that
 * number.  PostgreSQL gives no number that the index has; but chunks of an insert that was rolled
 * back may never have got there, and those of deleted rows may have gone from there.
 * So only chunks of a committed or this transaction are taken that nothing has deleted.  All
 * others, also those that a row has that was deleted after the snapshot, are PostgreSQL's to read;
 * so is all that looks odd, that it may raise its errors.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "access/transam.h"
#include "access/xact.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "pg/pg_compat_heap.h"
#include "relation/rel_prefetch.h"
#include "relation/rel_toast.h"

/* The columns of a TOAST table. */
enum
{
	VALUE_ATTNUM = 1, SEQ_ATTNUM
};

/* What a chunk's row has before its bytes. */
typedef struct ChunkHead
{
	Oid			value;
	int32		seq;
} ChunkHead;

/* A chunk of the page at hand, which is pinned. */
typedef struct Chunk
{
	ChunkHead	head;
	int			bytes;
	const char *data;
} Chunk;

struct KmToast
{
	MemoryContext context;		/* of all that it has */
	Relation	table;
	Snapshot	snapshot;
	/* The TOAST table, once a value was asked for. */
	Relation	rel;
	Relation   *indexes;
	int			nindexes;
	int			valid_index;
	BlockNumber nblocks;
	BufferAccessStrategy strategy;
	TransactionId committed;	/* the xmin seen last that is */
	/* The page at hand. */
	Buffer		buffer;
	BlockNumber block;
	int			step;			/* from its buffer to the next page's, probably: 1, -1; 0: not known */
	KmPrefetch	ahead;			/* what of that page was not asked for yet */
	int			nchunks;
	int			next;			/* the chunk after the one read last */
	Chunk		chunk[MaxHeapTuplesPerPage];
};

KmToast *
km_toast_begin(Relation table, Snapshot snapshot)
{
	KmToast    *t = palloc0(sizeof(KmToast));

	t->context = CurrentMemoryContext;
	t->table = table;
	t->snapshot = snapshot;
	return t;
}

static void
open_rel(KmToast *t)
{
	MemoryContext caller = MemoryContextSwitchTo(t->context);

	t->rel = table_open(t->table->rd_rel->reltoastrelid, AccessShareLock);
	t->valid_index = toast_open_indexes(t->rel, AccessShareLock, &t->indexes, &t->nindexes);
	t->nblocks = RelationGetNumberOfBlocks(t->rel);
	/* as for any scan: a large table is not to take the cache */
	if (!RelationUsesLocalBuffers(t->rel) && t->nblocks > (BlockNumber) NBuffers / 4)
		t->strategy = GetAccessStrategy(BAS_BULKREAD);
	MemoryContextSwitchTo(caller);
}

void
km_toast_end(KmToast *t)
{
	if (t->rel != NULL)
	{
		if (BufferIsValid(t->buffer))
			ReleaseBuffer(t->buffer);
		if (t->strategy != NULL)
			FreeAccessStrategy(t->strategy);
		toast_close_indexes(t->indexes, t->nindexes, NoLock);
		table_close(t->rel, NoLock);
	}
	pfree(t);
}

BlockNumber
km_toast_pages(Relation table)
{
	Relation	rel;
	BlockNumber pages;

	if (!OidIsValid(table->rd_rel->reltoastrelid))
		return 0;
	rel = table_open(table->rd_rel->reltoastrelid, AccessShareLock);
	pages = RelationGetNumberOfBlocks(rel);
	table_close(rel, NoLock);
	return pages;
}

/* ---- pages ---- */

/* Was it inserted for good, and never deleted? */
static bool
is_live(KmToast *t, HeapTupleHeader row)
{
	TransactionId xmin = HeapTupleHeaderGetRawXmin(row);

	if ((row->t_infomask & HEAP_MOVED) != 0 || (row->t_infomask & HEAP_XMAX_INVALID) == 0)
		return false;
	if (HeapTupleHeaderXminCommitted(row))
		return true;
	if (HeapTupleHeaderXminInvalid(row) || !TransactionIdIsNormal(xmin))
		return false;
	/* nearly always that of the row before */
	if (xmin == t->committed)
		return true;
	if (!TransactionIdIsCurrentTransactionId(xmin) && (TransactionIdIsInProgress(xmin) || !TransactionIdDidCommit(xmin)))
		return false;
	t->committed = xmin;
	return true;
}

/* Note the chunk that a row is, if it is one as PostgreSQL makes them. */
static void
note_chunk(KmToast *t, HeapTupleHeader row, int length)
{
	Chunk	   *c = &t->chunk[t->nchunks];
	const char *data = (const char *) row + row->t_hoff;
	const struct varlena *bytes = (const struct varlena *) (data + sizeof(ChunkHead));

	if ((row->t_infomask & HEAP_HASNULL) != 0 || length < (int) (row->t_hoff + sizeof(ChunkHead) + VARHDRSZ) ||
		VARATT_IS_EXTENDED(bytes) || VARSIZE(bytes) < VARHDRSZ ||
		VARSIZE(bytes) > length - row->t_hoff - sizeof(ChunkHead))
		return;
	memcpy(&c->head, data, sizeof(ChunkHead));
	c->bytes = VARSIZE(bytes) - VARHDRSZ;
	c->data = VARDATA(bytes);
	t->nchunks++;
}

/* Let the page at hand go and pin another: where the next buffer is, PostgreSQL's hash table need not say. */
static void
pin(KmToast *t, BlockNumber block)
{
	Buffer		last = t->buffer;
	Buffer		guess = InvalidBuffer;

	if (BufferIsValid(last))
	{
		ReleaseBuffer(last);
		if (block == t->block + 1 && t->strategy == NULL && t->step != 0)
			guess = last + t->step;
	}
	t->buffer = InvalidBuffer;
	if (!km_recent_buffer(t->rel, block, guess))
		guess = ReadBufferExtended(t->rel, MAIN_FORKNUM, block, RBM_NORMAL, t->strategy);
	t->buffer = guess;
	t->block = block;
	t->step = abs(guess - last) == 1 ? guess - last : 0;
	t->ahead = (KmPrefetch) {0};
	guess += t->step;
	if (t->strategy == NULL && t->step != 0 && guess > 0 && guess <= NBuffers)
		t->ahead = (KmPrefetch) {BufferGetPage(guess), BufferGetPage(guess) + BLCKSZ};
}

/* Pin a page, and find its chunks. */
static void
turn_to(KmToast *t, BlockNumber block)
{
	Page		page;
	bool		all;
	OffsetNumber last;

	pin(t, block);
	t->nchunks = t->next = 0;
	page = BufferGetPage(t->buffer);
	LockBuffer(t->buffer, BUFFER_LOCK_SHARE);
	km_test_old_snapshot(t->snapshot, t->rel, page);
	all = PageIsAllVisible(page);
	last = PageGetMaxOffsetNumber(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		item = PageGetItemId(page, offset);
		HeapTupleHeader row;

		if (!ItemIdIsNormal(item))
			continue;
		row = (HeapTupleHeader) PageGetItem(page, item);
		if (all || is_live(t, row))
			note_chunk(t, row, ItemIdGetLength(item));
	}
	LockBuffer(t->buffer, BUFFER_LOCK_UNLOCK);
}

/* ---- chunks ---- */

/* The chunk on the page at hand, or NULL. */
static const Chunk *
on_page(KmToast *t, const ChunkHead *head)
{
	for (int i = 0, at = t->next; i < t->nchunks; i++, at++)
	{
		const Chunk *c;

		if (at >= t->nchunks)
			at = 0;
		c = &t->chunk[at];
		if (c->head.value == head->value && c->head.seq == head->seq)
		{
			t->next = at + 1;
			return c;
		}
	}
	return NULL;
}

/* Where the index has a chunk: InvalidBlockNumber if nowhere. */
static BlockNumber
look_up(KmToast *t, const ChunkHead *head)
{
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	BlockNumber block = InvalidBlockNumber;

	ScanKeyInit(&key[0], VALUE_ATTNUM, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(head->value));
	ScanKeyInit(&key[1], SEQ_ATTNUM, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(head->seq));
	/* whether the row is the right one is decided on its page */
	scan = systable_beginscan_ordered(t->rel, t->indexes[t->valid_index], SnapshotAny, lengthof(key), key);
	tuple = systable_getnext_ordered(scan, ForwardScanDirection);
	if (tuple != NULL)
		block = ItemPointerGetBlockNumber(&tuple->t_self);
	systable_endscan_ordered(scan);
	return block;
}

static const Chunk *
find_chunk(KmToast *t, const ChunkHead *head)
{
	const Chunk *c = on_page(t, head);
	BlockNumber block;

	if (c == NULL && t->next == t->nchunks && BufferIsValid(t->buffer) && t->block + 1 < t->nblocks)
	{
		turn_to(t, t->block + 1);
		c = on_page(t, head);
	}
	if (c != NULL)
		return c;
	block = look_up(t, head);
	if (!BlockNumberIsValid(block))
		return NULL;
	turn_to(t, block);
	return on_page(t, head);
}

bool
km_toast_read(KmToast *t, const struct varatt_external *value, char *to)
{
	int			left = (int) km_toast_size(value);
	ChunkHead	head = {value->va_valueid, 0};

	if (value->va_toastrelid != t->table->rd_rel->reltoastrelid || left <= 0)
		return false;
	if (t->rel == NULL)
		open_rel(t);
	for (; left > 0; head.seq++)
	{
		const Chunk *c = find_chunk(t, &head);

		if (c == NULL || c->bytes != Min(left, (int) TOAST_MAX_CHUNK_SIZE))
			return false;
		/* as much of the next page as is read of this one */
		km_prefetch_bytes(&t->ahead, c->bytes, true);
		memcpy(to, c->data, c->bytes);
		to += c->bytes;
		left -= c->bytes;
	}
	return true;
}
