/*
 * rel_workers.c - the heap road with parallel workers.
 *
 * All blocks of all tables make a row of extents, which the workers and this
 * process take in turn.  Each of them writes the rows of its extents, in order,
 * into its ring of batches in shared memory; this process hands the batches on
 * in the order of the extents, by its threads where those have CPUs to themselves.
 * So the rows come as one process would read them, whoever read them, and a chunk
 * is as full as ever.
 *
 * It cannot get stuck: extents are given out in order, so the one that comes next
 * is always at the front of its ring, or is being read by somebody whose ring has
 * room.  Rings are small: memory is bounded, and what is handed on is in the cache.
 *
 * A row that is odd is handed over by this process, as without workers.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "optimizer/paths.h"
#include "storage/condition_variable.h"
#include "utils/snapmgr.h"

#include "relation/rel_heap.h"

#define KEY_SHARED		UINT64CONST(0x676b000000000001)
#define KEY_WHAT		UINT64CONST(0x676b000000000002)
#define KEY_TABLES		UINT64CONST(0x676b000000000003)
#define KEY_ATTNUMS		UINT64CONST(0x676b000000000004)
#define KEY_RINGS		UINT64CONST(0x676b000000000005)
#define KEY_SLOTS		UINT64CONST(0x676b000000000006)
#define KEY_STATS		UINT64CONST(0x676b000000000007)

#define RING_BYTES		(1024 * 1024)
/* With so many workers the caller is often busy with others' batches. */
#define MANY_WORKERS	4
#define EXTENT_BLOCKS	64

typedef struct SharedTable
{
	Oid			relid;
	BlockNumber first;
	BlockNumber nblocks;
	uint32		index;
	uint64		first_extent;
} SharedTable;

typedef struct Shared
{
	int			ntables;
	int			nattnums;		/* of each table */
	BlockNumber extent_blocks;
	uint64		extents;
	int			slots;			/* of each ring */
	Size		slot_bytes;
	int			columns;
	int			naux;
	int			capacity;
	bool		observe;		/* statistics are wanted */
	pg_atomic_uint64 next;		/* extent to take */
	ConditionVariable ready;	/* a slot was filled */
} Shared;

/* One process fills slots, one empties them. */
typedef struct Ring
{
	pg_atomic_uint64 filled;
	pg_atomic_uint64 emptied;
	ConditionVariable room;
	char		pad[PG_CACHE_LINE_SIZE];
} Ring;

/* Rows of an extent; a batch and left-out rows follow. */
typedef struct Slot
{
	uint64		extent;
	bool		last;			/* of the extent */
	int			table;
	BlockNumber block;			/* of the odd row */
	OffsetNumber odd;			/* 0: none.  It and what follows on its page are not here */
	int			rows;
	int			nleft;
	int64		seen;
	KmReadCounts counts;
} Slot;

/* A process that reads. */
typedef struct Producer
{
	Shared	   *shared;
	const KmPagesWhat *what;
	const SharedTable *tables;
	AttrNumber *attnums;
	Snapshot	snapshot;
	Ring	   *ring;
	char	   *slots;
	GkColumnStats *stats;		/* NULL: none are wanted */
	void		(*wait) (struct Producer *p);	/* for room */
	/* What is being read. */
	uint64		extent;
	int			table;			/* -1: none */
	Relation	rel;
	KmPagesTable source;
	KmPages    *pages;
	KmRowBatch		taken;
	KmRowBatch    *into;
	GkBatch		batch;
} Producer;

/* Slots handed on at once, at most. */
#define TOGETHER		128

/* The process that empties the slots, and reads like others meanwhile. */
typedef struct Leader
{
	Producer	own;			/* must be first; its ring is the last one */
	KmHeapRead *h;
	KmReader   *r;
	Ring	   *rings;
	int			nrings;
	char	   *slots;			/* of all rings */
	uint64		next;			/* extent to hand on */
	uint64	   *emptied;		/* [nrings] slots that are handed on, or being so */
	int			threads;		/* that help to hand on */
} Leader;

PGDLLEXPORT void km_reader_worker(dsm_segment *seg, shm_toc *toc);

/* ---- slots ---- */

static Size
batch_offset(void)
{
	return CACHELINEALIGN(sizeof(Slot));
}

static Size
left_offset(const Shared *s)
{
	return MAXALIGN(batch_offset() + gk_batch_bytes(s->columns, s->naux, s->capacity));
}

static Slot *
slot_at(const Shared *s, char *slots, uint64 number)
{
	return (Slot *) (slots + (number % s->slots) * s->slot_bytes);
}

/* What is in a slot. */
static void
view_slot(const Shared *s, Slot *slot, KmRowBatch *taken, GkBatch *batch)
{
	gk_batch_attach(batch, (char *) slot + batch_offset(), s->columns, s->naux, s->capacity);
	memset(taken, 0, sizeof(*taken));
	taken->batch = batch;
	taken->left = (KmLeftOut *) ((char *) slot + left_offset(s));
}

static bool
ring_full(const Producer *p)
{
	return pg_atomic_read_u64(&p->ring->filled) - pg_atomic_read_u64(&p->ring->emptied) ==
		(uint64) p->shared->slots;
}

/* ---- reading ---- */

static void
begin_slot(Producer *p)
{
	if (ring_full(p))
		p->wait(p);
	/* what is in the slot was read before it was said to be empty */
	pg_memory_barrier();
	view_slot(p->shared, slot_at(p->shared, p->slots, pg_atomic_read_u64(&p->ring->filled)),
			  &p->taken, &p->batch);
}

static void
fill_slot(Producer *p, bool last, BlockNumber block, OffsetNumber odd)
{
	uint64		number = pg_atomic_read_u64(&p->ring->filled);
	Slot	   *slot = slot_at(p->shared, p->slots, number);

	if (p->stats != NULL)
		gk_batch_observe(&p->batch, p->stats);
	slot->extent = p->extent;
	slot->last = last;
	slot->table = p->table;
	slot->block = block;
	slot->odd = odd;
	slot->rows = p->batch.rows;
	slot->nleft = p->taken.nleft;
	slot->seen = p->taken.seen;
	slot->counts = p->taken.counts;
	pg_write_barrier();
	pg_atomic_write_u64(&p->ring->filled, number + 1);
	ConditionVariableSignal(&p->shared->ready);
}

static void
next_slot(void *arg)
{
	fill_slot(arg, false, 0, 0);
	begin_slot(arg);
}

static void
close_table(Producer *p)
{
	if (p->table < 0)
		return;
	km_pages_close(p->pages);
	table_close(p->rel, NoLock);
	p->table = -1;
}

static void
open_table(Producer *p, int table)
{
	const SharedTable *t = &p->tables[table];

	if (p->table == table)
		return;
	close_table(p);
	/* the caller's process has the lock and has checked all rights */
	p->rel = table_open(t->relid, AccessShareLock);
	p->source.relid = t->relid;
	p->source.nblocks = t->nblocks;
	p->source.index = t->index;
	p->source.attnums = p->attnums + (size_t) table * p->shared->nattnums;
	p->pages = km_pages_open(p->rel, p->snapshot, p->what, &p->source, &p->into, next_slot, p);
	p->table = table;
}

static int
table_of(const Producer *p, uint64 extent)
{
	int			lo = 0;
	int			hi = p->shared->ntables - 1;

	while (lo < hi)
	{
		int			mid = (lo + hi + 1) / 2;

		if (p->tables[mid].first_extent <= extent)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

/* False: there are no more extents. */
static bool
read_extent(Producer *p)
{
	const Shared *s = p->shared;
	uint64		extent = pg_atomic_fetch_add_u64(&p->shared->next, 1);
	const SharedTable *t;
	uint64		first;
	BlockNumber end;

	if (extent >= s->extents)
		return false;
	p->extent = extent;
	open_table(p, table_of(p, extent));
	t = &p->tables[p->table];
	first = t->first + (extent - t->first_extent) * s->extent_blocks;
	end = (BlockNumber) Min(first + s->extent_blocks, t->nblocks);
	km_pages_prefetch(p->rel, (BlockNumber) first, end);
	begin_slot(p);
	for (BlockNumber block = (BlockNumber) first; block < end; block++)
	{
		OffsetNumber odd = km_pages_take(p->pages, block, FirstOffsetNumber, block + 1 < end ? block + 1 : InvalidBlockNumber);

		if (odd != 0)
		{
			fill_slot(p, false, block, odd);
			begin_slot(p);
		}
	}
	fill_slot(p, true, 0, 0);
	return true;
}

static void
producer_init(Producer *p, shm_toc *toc, Snapshot snapshot, int ring, void (*wait) (Producer *p))
{
	p->shared = shm_toc_lookup(toc, KEY_SHARED, false);
	p->what = shm_toc_lookup(toc, KEY_WHAT, false);
	p->tables = shm_toc_lookup(toc, KEY_TABLES, false);
	p->attnums = shm_toc_lookup(toc, KEY_ATTNUMS, false);
	p->ring = (Ring *) shm_toc_lookup(toc, KEY_RINGS, false) + ring;
	p->slots = (char *) shm_toc_lookup(toc, KEY_SLOTS, false) + ring * p->shared->slots * p->shared->slot_bytes;
	if (p->shared->observe)
		p->stats = (GkColumnStats *) shm_toc_lookup(toc, KEY_STATS, false) + ring * p->shared->columns;
	p->snapshot = snapshot;
	p->wait = wait;
	p->into = &p->taken;
	p->table = -1;
}

/* ---- a worker ---- */

static void
wait_for_room(Producer *p)
{
	ConditionVariablePrepareToSleep(&p->ring->room);
	while (ring_full(p))
		ConditionVariableSleep(&p->ring->room, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

void
km_reader_worker(dsm_segment *seg, shm_toc *toc)
{
	Producer	p = {0};

	km_apply_simd();
	producer_init(&p, toc, GetActiveSnapshot(), ParallelWorkerNumber, wait_for_room);
	while (read_extent(&p))
		;
	close_table(&p);
}

/* ---- handing on ---- */

/* The ring whose slot comes next, if it is filled. */
static Slot *
front(const Leader *l, int *ring)
{
	const Shared *s = l->own.shared;

	for (int i = 0; i < l->nrings; i++)
	{
		Slot	   *slot;

		if (pg_atomic_read_u64(&l->rings[i].filled) == l->emptied[i])
			continue;
		pg_read_barrier();
		slot = slot_at(s, l->slots + i * s->slots * s->slot_bytes, l->emptied[i]);
		*ring = i;
		if (slot->extent == l->next)
			return slot;
	}
	return NULL;
}

/* Their producers may fill the slots again that are handed on. */
static void
let_fill(Leader *l)
{
	pg_memory_barrier();
	for (int i = 0; i < l->nrings; i++)
		if (pg_atomic_read_u64(&l->rings[i].emptied) != l->emptied[i])
		{
			pg_atomic_write_u64(&l->rings[i].emptied, l->emptied[i]);
			ConditionVariableSignal(&l->rings[i].room);
		}
}

/*
 * The slots that come next and are filled go on, some at once, so that threads can share
 * the work; an odd row is the last of them.  True: something was there to hand on.
 */
static bool
empty_some(Leader *l)
{
	const Shared *s = l->own.shared;
	KmReader   *r = l->r;
	GkBatch		batches[TOGETHER];
	int			n = 0;
	int			most = Min(TOGETHER, Max(1, l->nrings * s->slots / 2));
	Slot	   *slot = NULL;
	Slot	   *odd = NULL;
	int			ring;
	GkError		err;

	while (n < most && odd == NULL && (slot = front(l, &ring)) != NULL)
	{
		KmRowBatch		taken;

		view_slot(s, slot, &taken, &batches[n]);
		batches[n++].rows = slot->rows;
		taken.seen = slot->seen;
		taken.counts = slot->counts;
		taken.nleft = slot->nleft;
		km_heap_left_out(r, &taken);
		if (slot->odd != 0)
			odd = slot;
		if (slot->last)
			l->next++;
		l->emptied[ring]++;
	}
	if (n == 0)
		return false;
	km_check(r->host, gk_store_add(r->store, batches, n, l->threads, &err), &err);
	km_reader_progress(r);
	if (odd != NULL)
	{
		km_heap_rows(l->h, odd->table, odd->block, odd->odd);
		if (r->batch->rows > 0)
			km_reader_commit(r);
	}
	let_fill(l);
	return true;
}

/* Enough that it goes on by threads together: until then this process had better read. */
static bool
much_filled(const Leader *l)
{
	const Shared *s = l->own.shared;
	uint64		filled = 0;

	for (int i = 0; i < l->nrings; i++)
		filled += pg_atomic_read_u64(&l->rings[i].filled) - l->emptied[i];
	return filled >= Min(TOGETHER / 2, l->nrings * s->slots / 4);
}

/* Until there is something to hand on, or a worker has failed. */
static void
wait_for_slot(const Leader *l)
{
	int			ring;

	ConditionVariablePrepareToSleep(&l->own.shared->ready);
	while (front(l, &ring) == NULL)
		ConditionVariableSleep(&l->own.shared->ready, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

static void
make_room(Producer *p)
{
	Leader	   *l = (Leader *) p;

	while (ring_full(p))
		if (!empty_some(l))
			wait_for_slot(l);
}

/* ---- how many ---- */

static int
workers_wanted(const KmReader *r, const KmHeapTables *tables, uint64 blocks)
{
	uint64		threshold = (uint64) Max(min_parallel_table_scan_size, 1) * 4;
	int			n = 0;

	if (gkmeans_workers == 0 || IsInParallelMode() || IsolationIsSerializable())
		return 0;
	/* other processes do not see what is in this one's buffers */
	for (int i = 0; i < tables->count; i++)
		if (RelationUsesLocalBuffers(tables->rels[i]))
			return 0;
	if (gkmeans_workers > 0)
		n = gkmeans_workers;
	else if (km_threads_suits(r, tables))
		return 0;
	else
		for (; n < max_parallel_maintenance_workers && blocks >= threshold; threshold *= 3)
			n++;
	/* shared memory is taken for each, so no more than the server can start */
	n = Min(n, Min(max_parallel_workers, max_worker_processes));
	return (int) Min((uint64) n, blocks);
}

/* ---- shared memory ---- */

static void *
put(ParallelContext *pcxt, uint64 key, Size size)
{
	void	   *p = shm_toc_allocate(pcxt->toc, size);

	memset(p, 0, size);
	shm_toc_insert(pcxt->toc, key, p);
	return p;
}

/* The tables from one's block on, as extents; returns how many these are. */
static uint64
share_tables(const KmHeapTables *tables, int table, BlockNumber block, BlockNumber extent_blocks,
			 int nattnums, SharedTable *to, AttrNumber *attnums)
{
	uint64		extents = 0;

	for (int i = 0; i < tables->count; i++)
	{
		const KmPagesTable *t = &tables->table[i];
		BlockNumber first = i < table ? t->nblocks : i == table ? block : 0;

		to[i] = (SharedTable) {t->relid, first, t->nblocks, t->index, extents};
		memcpy(attnums + (size_t) i * nattnums, t->attnums, nattnums * sizeof(AttrNumber));
		if (t->nblocks > first)
			extents += (t->nblocks - first + (uint64) extent_blocks - 1) / extent_blocks;
	}
	return extents;
}

static ParallelContext *
share(const KmReader *r, const KmHeapTables *tables, int table, BlockNumber block, int workers, uint64 blocks)
{
	ParallelContext *pcxt = CreateParallelContext("$libdir/gkmeans", "km_reader_worker", workers);
	const GkBatch *b = r->batch;
	Shared		s = {.ntables = tables->count,.columns = b->columns,.naux = b->naux,.capacity = b->capacity};
	Size		what = km_pages_what_size(tables->what->nvalues);
	Size		attnums;
	Size		slots;
	Shared	   *shared;
	Ring	   *rings;
	char	   *memory;

	s.nattnums = tables->what->nvalues + (tables->what->labelled ? 1 : 0);
	s.slot_bytes = CACHELINEALIGN(left_offset(&s) + (tables->what->left_out ? s.capacity * sizeof(KmLeftOut) : 0));
	s.slots = (int) Max(4, Min(64, (workers >= MANY_WORKERS ? 2 : 1) * RING_BYTES / s.slot_bytes));
	s.extent_blocks = (BlockNumber) Max(1, Min(EXTENT_BLOCKS, blocks / (16 * (workers + 1))));
	s.observe = r->options->take == NULL;
	attnums = mul_size(mul_size(tables->count, s.nattnums), sizeof(AttrNumber));
	slots = mul_size(mul_size(workers + 1, s.slots), s.slot_bytes);

	shm_toc_estimate_chunk(&pcxt->estimator, sizeof(Shared));
	shm_toc_estimate_chunk(&pcxt->estimator, what);
	shm_toc_estimate_chunk(&pcxt->estimator, mul_size(tables->count, sizeof(SharedTable)));
	shm_toc_estimate_chunk(&pcxt->estimator, attnums);
	shm_toc_estimate_chunk(&pcxt->estimator, (workers + 1) * sizeof(Ring));
	shm_toc_estimate_chunk(&pcxt->estimator, slots);
	shm_toc_estimate_chunk(&pcxt->estimator, mul_size((workers + 1) * s.columns, sizeof(GkColumnStats)));
	shm_toc_estimate_keys(&pcxt->estimator, 7);
	InitializeParallelDSM(pcxt);

	shared = put(pcxt, KEY_SHARED, sizeof(Shared));
	*shared = s;
	pg_atomic_init_u64(&shared->next, 0);
	ConditionVariableInit(&shared->ready);
	memcpy(put(pcxt, KEY_WHAT, what), tables->what, what);
	{
		SharedTable *to = put(pcxt, KEY_TABLES, tables->count * sizeof(SharedTable));

		shared->extents = share_tables(tables, table, block, s.extent_blocks, s.nattnums, to,
									   put(pcxt, KEY_ATTNUMS, attnums));
	}
	rings = put(pcxt, KEY_RINGS, (workers + 1) * sizeof(Ring));
	for (int i = 0; i <= workers; i++)
	{
		pg_atomic_init_u64(&rings[i].filled, 0);
		pg_atomic_init_u64(&rings[i].emptied, 0);
		ConditionVariableInit(&rings[i].room);
	}
	memory = shm_toc_allocate(pcxt->toc, slots);
	shm_toc_insert(pcxt->toc, KEY_SLOTS, memory);
	for (int i = 0; i < (workers + 1) * s.slots; i++)
	{
		GkBatch		batch;

		gk_batch_init(&batch, memory + i * s.slot_bytes + batch_offset(), s.columns, s.naux, s.capacity);
	}
	gk_stats_clear(put(pcxt, KEY_STATS, (workers + 1) * s.columns * sizeof(GkColumnStats)), (workers + 1) * s.columns);
	return pcxt;
}

/* Threads of this process that have a CPU which neither a worker needs nor finding memory. */
static int
spare_threads(const KmReader *r, int workers)
{
	const GkHost *engine = km_host_engine(r->host);
	GkHost		every = {.threads = 0};

	return Max(1, Min(gk_threads(engine), gk_threads(&every) - workers - gk_soon_threads(engine)));
}

/* ---- all rows ---- */

static void
read_together(Leader *l)
{
	uint64		extents = l->own.shared->extents;
	bool		more = true;

	while (l->next < extents)
	{
		CHECK_FOR_INTERRUPTS();
		if ((!more || much_filled(l)) && empty_some(l))
			continue;
		if (more)
			more = read_extent(&l->own);
		else
			wait_for_slot(l);
	}
	close_table(&l->own);
}

bool
km_workers_read(KmHeapRead *h, KmReader *r, const KmHeapTables *tables, Snapshot snapshot,
				int table, BlockNumber block)
{
	uint64		blocks = 0;
	int			workers;
	ParallelContext *pcxt;
	Leader		l = {.h = h,.r = r};
	GkColumnStats *stats;
	KmReadEnd	end;

	for (int i = table; i < tables->count; i++)
		blocks += tables->table[i].nblocks - (i == table ? block : 0);
	workers = workers_wanted(r, tables, blocks);
	if (workers == 0)
		return false;

	if (r->batch->rows > 0)
		km_reader_commit(r);
	EnterParallelMode();
	pcxt = share(r, tables, table, block, workers, blocks);
	LaunchParallelWorkers(pcxt);
	ereport(DEBUG1,
			(errmsg("\"%s\" is read by %d of %d workers", r->source->relname, pcxt->nworkers_launched, workers)));
	l.nrings = pcxt->nworkers + 1;
	producer_init(&l.own, pcxt->toc, snapshot, pcxt->nworkers, make_room);
	l.rings = shm_toc_lookup(pcxt->toc, KEY_RINGS, false);
	l.slots = shm_toc_lookup(pcxt->toc, KEY_SLOTS, false);
	l.threads = spare_threads(r, pcxt->nworkers_launched);
	l.emptied = palloc0(l.nrings * sizeof(uint64));
	read_together(&l);
	WaitForParallelWorkersToFinish(pcxt);
	stats = shm_toc_lookup(pcxt->toc, KEY_STATS, false);
	for (int i = 0; l.own.shared->observe && i < l.nrings; i++)
		gk_store_observed(r->store, stats + i * r->batch->columns);
	end.workers = pcxt;
	if (r->options->end != NULL)
		*r->options->end = end;
	else
		km_read_end(&end);
	return true;
}

void
km_read_end(KmReadEnd *end)
{
	if (end->workers == NULL)
		return;
	DestroyParallelContext(end->workers);
	ExitParallelMode();
	end->workers = NULL;
}
