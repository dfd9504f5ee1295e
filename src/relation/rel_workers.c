/*
 * rel_workers.c - rows from pages by parallel workers.
 *
 * The workers and the leader claim extents of the tables' blocks in turn.  With its blocks an
 * extent gets numbers of a conveyor in shared memory (rel_conveyor.h), for as many batches as its
 * rows will probably fill.  The leader stores the batches in the order of the numbers, with
 * threads where those have CPUs to themselves.  So the rows come as one process would read
 * them, and a chunk is as full as by one process.
 *
 * Where rows lie closer than in the extents before, an extent's last number is used again: its
 * slot is filled, emptied when its turn comes, and filled again.
 *
 * A slot only names a batch.  Each process has a few batches of its own, which it fills in turn: so
 * memory is bounded, and they stay in its CPU's cache.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "optimizer/paths.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"
#include "utils/snapmgr.h"

#include "relation/rel_conveyor.h"
#include "relation/rel_heap.h"

/* What is in shared memory. */
enum
{
	KEY_SHARED = 1, KEY_SPEC, KEY_TABLES, KEY_ATTNUMS, KEY_SLOTS, KEY_BATCHES, KEY_STATS,
	KEYS
};

/* Bytes of batches of each process, and batches at most. */
#define PROCESS_BYTES	(1024 * 1024)
#define MAX_BATCHES		64
/* From this many workers on, the leader is often busy with others' batches: each gets more. */
#define MANY_WORKERS	4
/* Blocks of an extent at most, and how much of its slots they are expected to fill. */
#define EXTENT_BLOCKS	64
#define EXTENT_FILL		0.9
/* Slots stored at once, at most. */
#define STORED_SLOTS	128

/* A table with blocks to read. */
typedef struct SharedTable
{
	int			table;			/* among all */
	Oid			relid;
	BlockNumber nblocks;
	uint32		index;
} SharedTable;

typedef struct Shared
{
	int			ntables;
	int			nattnums;		/* of each table */
	int			nslots;
	int			nbatches;		/* of each process */
	Size		batch_bytes;	/* of one, and the rows left out */
	int			extent_slots;	/* numbers of an extent */
	BlockNumber max_blocks;		/* of an extent */
	int			columns;
	int			naux;
	int			capacity;
	bool		observe;		/* statistics are wanted */
	ConditionVariable filled;	/* a slot was filled */
	ConditionVariable freed;	/* slots were freed */
	/* The extent that comes next. */
	slock_t		lock;
	uint64		number;			/* its first */
	int			table;
	BlockNumber block;
	BlockNumber blocks;
} Shared;

/* Rows of an extent. */
typedef struct Slot
{
	KmSlot		slot;			/* must be first */
	int			table;
	bool		more;			/* rows of the extent come under the same number */
	int			batch;			/* among all; any if there are no rows */
	int			rows;			/* in it */
	KmRowBatch	out;			/* its pointers are the producer's */
} Slot;

/* A process that reads. */
typedef struct Producer
{
	Shared	   *shared;
	const KmRowSpec *spec;
	const SharedTable *tables;
	AttrNumber *attnums;
	Snapshot	snapshot;
	KmConveyor	conveyor;
	char	   *batches;		/* of all processes */
	int			process;
	uint64		fills;			/* of its batches */
	uint64	   *used;			/* [nbatches] the number that each was filled for last */
	GkColumnStats *stats;		/* NULL: none are wanted */
	void		(*wait) (struct Producer *p, uint64 number);	/* until may_fill() */
	/* What is being read. */
	int			table;			/* -1: none */
	Relation	rel;
	KmHeapTable source;
	KmPageReader *pages;
} Producer;

/* The process that empties the slots, and reads like others meanwhile. */
typedef struct Leader
{
	Producer	own;			/* must be first */
	KmHeapRead *h;
	KmReader   *r;
	uint64		placed;			/* numbers below it are in the store */
	int			threads;		/* that help to store */
} Leader;

PGDLLEXPORT void km_reader_worker(dsm_segment * seg, shm_toc * toc);

/* ---- slots ---- */

/* Behind a batch. */
static Size
left_offset(const Shared *s)
{
	return MAXALIGN(gk_batch_bytes(s->columns, s->naux, s->capacity));
}

/* This process's view of a batch. */
static void
view_batch(const Producer *p, int number, KmRowBatch *out, GkBatch *batch)
{
	const Shared *s = p->shared;
	char	   *memory = p->batches + number * s->batch_bytes;

	gk_batch_attach(batch, memory, s->columns, s->naux, s->capacity);
	out->batch = batch;
	out->left = (KmLeftOut *) (memory + left_offset(s));
}

/*
 * Are the number's slot and the producer's next batch free?  A batch that this very number has had is: its
 * slot would not be, unless those rows were stored.
 */
static bool
may_fill(const Producer *p, uint64 number)
{
	uint64		used = p->used[p->fills % p->shared->nbatches];

	return km_slot_in(&p->conveyor, number, KM_SLOT_FREE) &&
		(p->fills < p->shared->nbatches || used == number || km_slot_freed(&p->conveyor, used));
}

/* ---- reading ---- */

static void
close_table(Producer *p)
{
	if (p->table < 0)
		return;
	km_page_close(p->pages);
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
	/* the leader has the lock and has checked all rights */
	p->rel = table_open(t->relid, AccessShareLock);
	p->source.relid = t->relid;
	p->source.nblocks = t->nblocks;
	p->source.index = t->index;
	p->source.attnums = p->attnums + (size_t) table * p->shared->nattnums;
	p->pages = km_page_open(p->rel, p->snapshot, p->spec, &p->source);
	p->table = table;
}

/* Take the extent that comes next.  False: there is none. */
static bool
claim_extent(Producer *p, uint64 *number, int *table, BlockNumber *block, BlockNumber *end)
{
	Shared	   *s = p->shared;
	bool		some;

	SpinLockAcquire(&s->lock);
	some = s->table < s->ntables;
	if (some)
	{
		BlockNumber nblocks = p->tables[s->table].nblocks;

		*number = s->number;
		*table = s->table;
		*block = s->block;
		*end = nblocks - s->block > s->blocks ? s->block + s->blocks : nblocks;
		s->number += s->extent_slots;
		s->block = *end;
		if (*end == nblocks)
		{
			s->table++;
			s->block = 0;
		}
	}
	SpinLockRelease(&s->lock);
	return some;
}

/* Blocks of one extent have filled slots: later extents get as many blocks as should fill theirs. */
static void
adapt_extents(Shared *s, BlockNumber blocks, double slots)
{
	double		fit = slots > 0 ? blocks * (EXTENT_FILL * s->extent_slots / slots) : s->max_blocks;

	SpinLockAcquire(&s->lock);
	s->blocks = (BlockNumber) Max(1, Min(fit, s->max_blocks));
	SpinLockRelease(&s->lock);
}

/* The rows that come next, under a number.  True: there are more. */
static bool
fill_slot(Producer *p, uint64 number, bool some, bool last, double *slots)
{
	const Shared *s = p->shared;
	Slot	   *slot = km_slot(&p->conveyor, number);
	int			own = (int) (p->fills % s->nbatches);
	GkBatch		batch;
	KmRowBatch	out;

	if (!may_fill(p, number))
		p->wait(p, number);
	slot->batch = p->process * s->nbatches + own;
	view_batch(p, slot->batch, &out, &batch);
	km_row_batch_clear(&out);
	if (some)
	{
		p->used[own] = number;
		p->fills++;
		some = km_page_next(p->pages, &out);
		if (p->stats != NULL)
			gk_batch_observe(&batch, p->stats);
	}
	*slots += (double) Max(batch.rows, out.nleft) / s->capacity;
	slot->table = p->tables[p->table].table;
	slot->more = some && last;
	slot->rows = batch.rows;
	slot->out = out;
	km_slot_set(&p->conveyor, number, KM_SLOT_FILLED);
	ConditionVariableSignal(&p->shared->filled);
	return some;
}

/* False: there are no more extents. */
static bool
read_extent(Producer *p)
{
	uint64		number;
	int			table;
	BlockNumber block;
	BlockNumber end;
	double		slots = 0;
	bool		some = true;

	if (!claim_extent(p, &number, &table, &block, &end))
		return false;
	open_table(p, table);
	km_page_prefetch(p->rel, block, end);
	km_page_seek(p->pages, block, FirstOffsetNumber, end);
	/* numbers that no rows are left for get empty batches */
	for (int left = p->shared->extent_slots; some || left > 0; left--)
	{
		some = fill_slot(p, number, some, left <= 1, &slots);
		number += left > 1;
	}
	adapt_extents(p->shared, end - block, slots);
	return true;
}

static void
producer_init(Producer *p, shm_toc * toc, Snapshot snapshot, int process, void (*wait) (Producer *p, uint64 number))
{
	Shared	   *s = shm_toc_lookup(toc, KEY_SHARED, false);

	p->shared = s;
	p->spec = shm_toc_lookup(toc, KEY_SPEC, false);
	p->tables = shm_toc_lookup(toc, KEY_TABLES, false);
	p->attnums = shm_toc_lookup(toc, KEY_ATTNUMS, false);
	p->conveyor = (KmConveyor) {(char *) CACHELINEALIGN(shm_toc_lookup(toc, KEY_SLOTS, false)), sizeof(Slot), s->nslots};
	p->batches = (char *) CACHELINEALIGN(shm_toc_lookup(toc, KEY_BATCHES, false));
	p->process = process;
	p->used = palloc0(s->nbatches * sizeof(uint64));
	if (s->observe)
		p->stats = (GkColumnStats *) shm_toc_lookup(toc, KEY_STATS, false) + process * s->columns;
	p->snapshot = snapshot;
	p->wait = wait;
	p->table = -1;
}

/* ---- a worker ---- */

static void
wait_for_slot(Producer *p, uint64 number)
{
	ConditionVariablePrepareToSleep(&p->shared->freed);
	while (!may_fill(p, number))
		ConditionVariableSleep(&p->shared->freed, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

void
km_reader_worker(dsm_segment * seg, shm_toc * toc)
{
	Producer	p = {0};

	km_apply_simd();
	producer_init(&p, toc, GetActiveSnapshot(), ParallelWorkerNumber, wait_for_slot);
	while (read_extent(&p))
		;
	close_table(&p);
}

/* ---- storing ---- */

/* Let producers fill the next n slots again. */
static void
free_slots(Leader *l, int n)
{
	const KmConveyor *c = &l->own.conveyor;

	for (int i = 0; i < n; i++)
	{
		if (((Slot *) km_slot(c, l->placed))->more)
			km_slot_set(c, l->placed, KM_SLOT_FREE);
		else
			km_slot_free(c, l->placed++);
	}
	ConditionVariableBroadcast(&l->own.shared->freed);
}

/*
 * Store the slots that come next and are filled, several at once, so that threads can share the
 * work, up to one with a deferred row, or with more rows to come under its number.  False:
 * there is none.
 */
static bool
store_slots(Leader *l)
{
	const Shared *s = l->own.shared;
	const KmConveyor *c = &l->own.conveyor;
	KmReader   *r = l->r;
	GkBatch		batches[STORED_SLOTS];
	int			nbatches = 0;
	int			n = 0;
	int			most = Max(1, Min(STORED_SLOTS, s->nslots / 2));
	bool		stop = false;
	int			table = 0;
	KmRowBatch	out;
	GkError		err;

	while (n < most && !stop && km_slot_in(c, l->placed + n, KM_SLOT_FILLED))
	{
		const Slot *slot = km_slot(c, l->placed + n++);

		out = slot->out;
		view_batch(&l->own, slot->batch, &out, &batches[nbatches]);
		batches[nbatches].rows = slot->rows;
		/* a slot without rows has no batch of its own */
		nbatches += slot->rows > 0;
		km_heap_left_out(r, &out);
		table = slot->table;
		stop = slot->more || out.deferred != 0;
	}
	if (n == 0)
		return false;
	km_check(r->host, gk_store_add(r->store, batches, nbatches, l->threads, &err), &err);
	km_reader_progress(r);
	if (out.deferred != 0)
	{
		km_heap_rows(l->h, table, out.block, out.deferred);
		km_reader_commit(r);
	}
	free_slots(l, n);
	return true;
}

/* Are enough slots filled that threads can share them, or does a producer wait?  Until then the leader reads. */
static bool
much_filled(const Leader *l)
{
	const KmConveyor *c = &l->own.conveyor;
	uint64		end = l->placed + Min(STORED_SLOTS, c->nslots / 2) / 2;

	for (uint64 number = l->placed; number < end; number++)
	{
		if (!km_slot_in(c, number, KM_SLOT_FILLED))
			return false;
		if (((Slot *) km_slot(c, number))->more)
			return true;
	}
	return true;
}

/* Wait until there is something to store; ERROR when a worker has failed. */
static void
wait_for_rows(const Leader *l)
{
	ConditionVariablePrepareToSleep(&l->own.shared->filled);
	while (!km_slot_in(&l->own.conveyor, l->placed, KM_SLOT_FILLED))
		ConditionVariableSleep(&l->own.shared->filled, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

/* The leader waits for a slot by emptying those before it. */
static void
make_room(Producer *p, uint64 number)
{
	Leader	   *l = (Leader *) p;

	while (!may_fill(p, number))
		if (!store_slots(l))
			wait_for_rows(l);
}

/* ---- how many ---- */

static int
workers_wanted(const KmHeapRead *h, uint64 blocks)
{
	uint64		threshold = (uint64) Max(min_parallel_table_scan_size, 1) * 4;
	uint64		pages = blocks;
	int			n = 0;

	if (gkmeans_workers == 0 || IsInParallelMode() || IsolationIsSerializable())
		return 0;
	/* other processes do not see what is in this one's buffers */
	for (int i = 0; i < h->ntables; i++)
		if (RelationUsesLocalBuffers(h->rels[i]))
			return 0;
	if (gkmeans_workers > 0)
		n = gkmeans_workers;
	else if (km_threads_suit(h))
		return 0;
	else
	{
		for (int i = 0; h->elsewhere && i < h->ntables; i++)
			pages += km_toast_pages(h->rels[i]);
		for (; n < max_parallel_maintenance_workers && pages >= threshold; threshold *= 3)
			n++;
	}
	/* each gets shared memory, so ask for no more than the server can start */
	n = Min(n, Min(max_parallel_workers, max_worker_processes));
	return (int) Min((uint64) n, blocks);
}

/* ---- shared memory ---- */

/* The tables that have blocks to read, from one's block on. */
static int
share_tables(const KmHeapRead *h, int table, BlockNumber block, int nattnums,
			 SharedTable *to, AttrNumber *attnums)
{
	int			n = 0;

	for (int i = table; i < h->ntables; i++)
	{
		const KmHeapTable *t = &h->tables[i];

		if (t->nblocks <= (i == table ? block : 0))
			continue;
		to[n] = (SharedTable) {i, t->relid, t->nblocks, t->index};
		memcpy(attnums + (size_t) n++ * nattnums, t->attnums, nattnums * sizeof(AttrNumber));
	}
	return n;
}

static ParallelContext *
share(const KmHeapRead *h, int table, BlockNumber block, int workers, uint64 blocks)
{
	ParallelContext *pcxt = CreateParallelContext("$libdir/gkmeans", "km_reader_worker", workers);
	const GkBatch *b = h->r->batch;
	const KmRowSpec *spec = h->spec;
	Shared		s = {.columns = b->columns,.naux = b->naux,.capacity = b->capacity,.blocks = 1};
	Size		bytes[KEYS];
	void	   *area[KEYS];
	Shared	   *shared;
	KmConveyor	conveyor;

	s.nattnums = spec->nvalues + (spec->labelled ? 1 : 0);
	s.batch_bytes = CACHELINEALIGN(left_offset(&s) + (spec->left_out ? s.capacity * sizeof(KmLeftOut) : 0));
	s.nbatches = (int) Max(4, Min(MAX_BATCHES, (workers >= MANY_WORKERS ? 2 : 1) * PROCESS_BYTES / s.batch_bytes));
	s.nslots = (workers + 1) * s.nbatches;
	s.extent_slots = s.nbatches / 2;
	s.max_blocks = (BlockNumber) Max(1, Min(EXTENT_BLOCKS, blocks / (16 * (workers + 1))));
	s.observe = h->r->options->take == NULL;
	bytes[KEY_SHARED] = sizeof(Shared);
	bytes[KEY_SPEC] = km_row_spec_size(spec->nvalues);
	bytes[KEY_TABLES] = mul_size(h->ntables, sizeof(SharedTable));
	bytes[KEY_ATTNUMS] = mul_size(mul_size(h->ntables, s.nattnums), sizeof(AttrNumber));
	bytes[KEY_SLOTS] = s.nslots * sizeof(Slot) + PG_CACHE_LINE_SIZE;
	bytes[KEY_BATCHES] = add_size(mul_size(s.nslots, s.batch_bytes), PG_CACHE_LINE_SIZE);
	bytes[KEY_STATS] = (workers + 1) * s.columns * sizeof(GkColumnStats);
	for (int key = 1; key < KEYS; key++)
		shm_toc_estimate_chunk(&pcxt->estimator, bytes[key]);
	shm_toc_estimate_keys(&pcxt->estimator, KEYS - 1);
	InitializeParallelDSM(pcxt);
	for (int key = 1; key < KEYS; key++)
	{
		area[key] = shm_toc_allocate(pcxt->toc, bytes[key]);
		shm_toc_insert(pcxt->toc, key, area[key]);
	}

	shared = area[KEY_SHARED];
	*shared = s;
	SpinLockInit(&shared->lock);
	ConditionVariableInit(&shared->filled);
	ConditionVariableInit(&shared->freed);
	memcpy(area[KEY_SPEC], spec, bytes[KEY_SPEC]);
	shared->ntables = share_tables(h, table, block, s.nattnums, area[KEY_TABLES], area[KEY_ATTNUMS]);
	/* if no block of it is left, the first one shared is another table */
	shared->block = block < h->tables[table].nblocks ? block : 0;
	conveyor = (KmConveyor) {(char *) CACHELINEALIGN(area[KEY_SLOTS]), sizeof(Slot), s.nslots};
	km_slots_init(&conveyor);
	for (int i = 0; i < s.nslots; i++)
	{
		GkBatch		batch;

		gk_batch_init(&batch, (char *) CACHELINEALIGN(area[KEY_BATCHES]) + i * s.batch_bytes,
					  s.columns, s.naux, s.capacity);
	}
	gk_stats_clear(area[KEY_STATS], (workers + 1) * s.columns);
	return pcxt;
}

/* Threads of this process with a CPU that neither a worker needs nor the thread that finds memory. */
static int
spare_threads(const KmReader *r, int workers)
{
	const GkHost *engine = km_host_engine(r->host);
	GkHost		every = {.threads = 0};

	return Max(1, Min(gk_threads(engine), gk_threads(&every) - workers - gk_soon_threads(engine)));
}

/* ---- all rows ---- */

static void
read_all(Leader *l)
{
	bool		more = true;

	/* when there are no more extents, there are no more numbers */
	while (more || l->placed < l->own.shared->number)
	{
		CHECK_FOR_INTERRUPTS();
		if ((!more || much_filled(l)) && store_slots(l))
			continue;
		if (more)
			more = read_extent(&l->own);
		else
			wait_for_rows(l);
	}
	close_table(&l->own);
}

bool
km_workers_read(KmHeapRead *h, int table, BlockNumber block)
{
	KmReader   *r = h->r;
	uint64		blocks = 0;
	int			workers;
	ParallelContext *pcxt;
	Leader		l = {.h = h,.r = r};
	GkColumnStats *stats;
	KmReadEnd	end;

	for (int i = table; i < h->ntables; i++)
		blocks += h->tables[i].nblocks - (i == table ? block : 0);
	workers = workers_wanted(h, blocks);
	if (workers == 0)
		return false;

	EnterParallelMode();
	pcxt = share(h, table, block, workers, blocks);
	LaunchParallelWorkers(pcxt);
	ereport(DEBUG1,
			(errmsg("\"%s\" is read by %d of %d workers", r->source->relname, pcxt->nworkers_launched, workers)));
	producer_init(&l.own, pcxt->toc, h->desc->snapshot, pcxt->nworkers, make_room);
	l.threads = spare_threads(r, pcxt->nworkers_launched);
	read_all(&l);
	WaitForParallelWorkersToFinish(pcxt);
	stats = shm_toc_lookup(pcxt->toc, KEY_STATS, false);
	for (int i = 0; l.own.shared->observe && i <= pcxt->nworkers; i++)
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
