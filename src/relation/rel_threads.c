/*
 * rel_threads.c - the rows of a table by this process and its threads.
 *
 * This process, the leader, pins some pages and finds out which of their rows are visible, which
 * is PostgreSQL's to say; that is a job.  A thread reads the rows of its pages into a batch.
 * The leader gives the batches' rows their places in the store, in the order of the pages, and a
 * thread moves them there.  So the rows come as one process would read them, and where a page
 * is all visible the leader does not look at them at all.
 *
 * Jobs are slots of a conveyor (rel_conveyor.h) and are worked on at the same time; a thread
 * with nothing to do takes the oldest.  A deferred row ends its batch: when all moves are made,
 * the leader reads on from that row by itself, up to the job's last page.
 *
 * Threads call nothing of PostgreSQL, and while they run the leader must not leave: an ERROR is
 * kept until they have ended, and so is a cancel request.
 */
#include "postgres.h"

#include <sched.h>
#include <unistd.h>

#include "miscadmin.h"

#include "core/store/gk_batch.h"
#include "core/store/gk_store.h"
#include "relation/rel_conveyor.h"
#include "relation/rel_heap.h"

/* Pages of a table that threads pay for: a smaller one is read before they have begun. */
#define MIN_PAGES		256
/* Jobs for each thread, and pages of one at most: its rows are to stay in the cache. */
#define THREAD_JOBS		4
#define JOB_PAGES		32
/*
 * More threads wait for the leader, which is slower itself when all CPUs are busy: two may share
 * a core.
 */
#define MAX_THREADS		12
/* With fewer CPUs workers would have none of their own. */
#define MANY_CPUS		4
/* A batch is moved to one chunk, or to two. */
#define JOB_MOVES		4
/*
 * How often a thread looks for work before it lets others have the CPU, and before it
 * sleeps between looks: then the leader waits for a disk.
 */
#define LOOKS			64
#define LOOKS_AWAKE		2048
#define SLEEP_US		50

/* Consecutive pages with as many rows as fit a batch. */
typedef struct Job
{
	KmSlot		slot;			/* must be first */
	int			npages;
	KmHeldPage *page;			/* [job_pages] */
	int		   *rows;			/* [job_pages] of each, read by threads */
	GkBatch		batch;
	KmRowBatch	out;			/* into batch */
	int			nmoves;
	GkMove		move[JOB_MOVES];
} Job;

typedef struct Thread
{
	KmDeformer *deformer;
	KmPageRows	rows;
	GkColumnStats *stats;		/* [columns] of the rows that it has read */
} Thread;

struct KmThreads
{
	KmHeapRead *h;
	KmReader   *r;
	GkHost		engine;
	int			threads;
	Thread	   *thread;			/* [threads] */
	GkMover		mover;
	KmPageReader *pages;		/* of the table at hand */
	KmConveyor	jobs;
	bool		over;			/* threads may end */

	/* What many threads write is alone in its line, so that no other look waits for it. */
	alignas(GK_CACHE_LINE) uint64 fill; /* the next job to be filled */
	alignas(GK_CACHE_LINE) uint64 move; /* the next to be moved */

	/* The leader's: jobs below these numbers have pages, have places, are free again. */
	alignas(GK_CACHE_LINE) uint64 given;
	uint64		placed;
	uint64		freed;
	int			table;
	BlockNumber block;			/* the table's next one */
	BlockNumber end;
	int			job_pages;
	KmHeldPage	hold[JOB_PAGES];	/* those of a job, until threads may see them */
	KmHeldPage	ahead;			/* held already; no block: none is */

	/* Why it stopped. */
	bool		failed;			/* by an ERROR, which is kept */
	GkStatus	st;
	GkError		err;
};

/* ---- what any thread does ---- */

static void
fill_job(const KmThreads *g, Job *job, Thread *self)
{
	KmPrefetch	ahead = km_prefetch_page(BufferGetPage(job->page[0].buffer));

	/* behind the jobs that are on their way */
	int			distance = (int) g->jobs.nslots * job->npages;

	km_prefetch_rest(&ahead);
	for (int i = 0; i < job->npages && job->out.deferred == 0; i++)
	{
		km_page_held_rows(&job->page[i], &self->rows);
		if (i + 1 < job->npages)
			ahead = km_prefetch_page(BufferGetPage(job->page[i + 1].buffer));
		/* it does not stop because the batch is full, which a job's rows fit */
		job->rows[i] = km_deform_page(self->deformer, &self->rows, 0, &job->out, &ahead);
		km_page_touch_ahead(g->pages, &job->page[i], distance);
	}
	km_deform_finish(self->deformer);
	gk_batch_observe(&job->batch, self->stats);
}

static void
move_job(const KmThreads *g, Job *job)
{
	for (int i = 0; i < job->nmoves; i++)
		gk_store_move(g->r->store, &job->move[i]);
	job->nmoves = 0;
}

static bool
help_move(KmThreads *g)
{
	uint64		number;

	if (!km_slot_claim(&g->jobs, &g->move, KM_SLOT_PLACED, &number))
		return false;
	move_job(g, km_slot(&g->jobs, number));
	km_slot_free(&g->jobs, number);
	return true;
}

static bool
help_fill(KmThreads *g, Thread *self)
{
	uint64		number;

	if (!km_slot_claim(&g->jobs, &g->fill, KM_SLOT_GIVEN, &number))
		return false;
	fill_job(g, km_slot(&g->jobs, number), self);
	km_slot_set(&g->jobs, number, KM_SLOT_FILLED);
	return true;
}

/* A look takes the line from the thread that writes it, so wait between looks. */
static void
idle(int *looks)
{
	if (++*looks > LOOKS_AWAKE)
		usleep(SLEEP_US);
	else if (*looks % LOOKS == 0)
		sched_yield();
#if defined(__x86_64__)
	for (int i = 0; i < LOOKS / 4; i++)
		__builtin_ia32_pause();
#endif
}

static void
help(KmThreads *g, Thread *self)
{
	int			looks = 0;

	while (!__atomic_load_n(&g->over, __ATOMIC_ACQUIRE))
		if (help_move(g) || help_fill(g, self))
			looks = 0;
		else
			idle(&looks);
}

/* ---- what only the leader does ---- */

/* Are all jobs below a number free again? */
static bool
freed_to(KmThreads *g, uint64 number)
{
	while (g->freed < number && km_slot_freed(&g->jobs, g->freed))
		g->freed++;
	return g->freed == number;
}

static GkStatus
note_move(void *arg, const GkMove *move)
{
	KmThreads  *g = arg;
	Job		   *job = km_slot(&g->jobs, g->placed);

	if (job->nmoves == JOB_MOVES)
		move_job(g, job);
	job->move[job->nmoves++] = *move;
	return GK_OK;
}

static GkStatus
finish_moves(void *arg)
{
	KmThreads  *g = arg;
	int			looks = 0;

	move_job(g, km_slot(&g->jobs, g->placed));
	while (!freed_to(g, g->placed))
		if (!help_move(g))
			idle(&looks);
	return GK_OK;
}

/*
 * Pin pages with as many rows as fit the job's batch, or one page.  They are put into the job at the
 * end: its lines are in the caches of the threads that read the pages before, and each lock
 * of a page would wait until one of them has come.
 */
static void
give_job(KmThreads *g)
{
	Job		   *job = km_slot(&g->jobs, g->given);
	int			capacity = g->r->batch->capacity;
	int			npages = 0;
	int			rows = 0;

	while (npages < g->job_pages && g->block < g->end)
	{
		KmHeldPage *page = &g->hold[npages];

		if (g->ahead.block == g->block)
			km_page_copy_held(page, &g->ahead);
		else
			km_page_hold(g->pages, g->block, page);
		g->ahead.block = InvalidBlockNumber;
		if (npages > 0 && rows + page->n > capacity)
		{
			km_page_copy_held(&g->ahead, page);
			break;
		}
		rows += page->n;
		npages++;
		g->block++;
	}
	km_row_batch_clear(&job->out);
	job->npages = npages;
	for (int i = 0; i < npages; i++)
		km_page_copy_held(&job->page[i], &g->hold[i]);
	memset(job->rows, 0, npages * sizeof(int));
	if (rows > capacity)
	{
		/* no batch is large enough: the leader reads the page by itself */
		job->out.block = job->page[0].block;
		job->out.deferred = FirstOffsetNumber;
	}
	km_slot_set(&g->jobs, g->given++, KM_SLOT_GIVEN);
}

/* Give the rows that were read their places, and read those that were not. */
static void
place_job(KmThreads *g)
{
	Job		   *job = km_slot(&g->jobs, g->placed);

	km_heap_left_out(g->r, &job->out);
	job->nmoves = 0;
	g->st = gk_store_add_by(g->r->store, &job->batch, &g->mover, &g->err);
	if (g->st != GK_OK)
		return;
	if (job->out.deferred != 0)
	{
		finish_moves(g);
		km_heap_pages(g->h, g->pages, g->table, job->out.block, job->out.deferred,
					  job->page[job->npages - 1].block + 1);
	}
	for (int i = 0; i < job->npages; i++)
		km_page_release(g->pages, &job->page[i], job->rows[i]);
	km_reader_progress(g->r);
	km_slot_set(&g->jobs, g->placed++, KM_SLOT_PLACED);
}

/* All rows are in the store. */
static bool
finished(KmThreads *g)
{
	return g->block >= g->end && freed_to(g, g->given);
}

/* Until all is done, or something happened. */
static void
lead(KmThreads *g, Thread *self)
{
	int			looks = 0;

	/* an interrupt that cannot be served afterwards, since the caller holds it off, too, is not ours */
	while (!finished(g) && g->st == GK_OK && !(InterruptPending && InterruptHoldoffCount == 1))
	{
		if (km_slot_in(&g->jobs, g->placed, KM_SLOT_FILLED))
			place_job(g);
		else if (g->block < g->end && km_slot_in(&g->jobs, g->given, KM_SLOT_FREE))
			give_job(g);
		else if (!help_move(g) && !help_fill(g, self))
		{
			idle(&looks);
			continue;
		}
		looks = 0;
	}
}

static void
work(void *arg, int64_t job, int thread)
{
	KmThreads  *g = arg;

	if (__atomic_load_n(&g->over, __ATOMIC_ACQUIRE))
		return;
	if (thread > 0)
	{
		help(g, &g->thread[thread]);
		return;
	}
	PG_TRY();
	{
		lead(g, &g->thread[0]);
	}
	PG_CATCH();
	{
		g->failed = true;
	}
	PG_END_TRY();
	__atomic_store_n(&g->over, true, __ATOMIC_RELEASE);
}

/* ---- tables ---- */

static void
read_pages(KmThreads *g)
{
	while (!finished(g))
	{
		CHECK_FOR_INTERRUPTS();
		g->over = false;
		/* nothing may end this process but what is caught here */
		HOLD_INTERRUPTS();
		(void) gk_parallel_for(&g->engine, g->threads, work, g);
		if (g->failed)
			PG_RE_THROW();		/* which has let interrupts in again */
		RESUME_INTERRUPTS();
		km_check(g->r->host, g->st, &g->err);
	}
}

static void
make_jobs(KmThreads *g)
{
	const GkBatch *like = g->r->batch;
	int			njobs = g->threads * THREAD_JOBS;
	Size		bytes = CACHELINEALIGN(gk_batch_bytes(like->columns, like->naux, like->capacity));
	char	   *memory = MemoryContextAllocHuge(CurrentMemoryContext, njobs * bytes + PG_CACHE_LINE_SIZE);
	Job		   *jobs = km_alloc_lines(njobs * sizeof(Job));

	memory = (char *) CACHELINEALIGN(memory);
	g->jobs = (KmConveyor) {(char *) jobs, sizeof(Job), njobs};
	km_slots_init(&g->jobs);
	for (int i = 0; i < njobs; i++)
	{
		Job		   *job = &jobs[i];

		gk_batch_init(&job->batch, memory + i * bytes, like->columns, like->naux, like->capacity);
		job->out.batch = &job->batch;
		job->page = palloc(JOB_PAGES * sizeof(KmHeldPage));
		job->rows = palloc(JOB_PAGES * sizeof(int));
		if (g->h->spec->left_out)
			job->out.left = palloc(like->capacity * sizeof(KmLeftOut));
	}
}

static void
make_threads(KmThreads *g)
{
	int			columns = g->r->batch->columns;

	g->thread = palloc0(g->threads * sizeof(Thread));
	for (int i = 0; i < g->threads; i++)
	{
		g->thread[i].stats = palloc(columns * sizeof(GkColumnStats));
		gk_stats_clear(g->thread[i].stats, columns);
	}
}

/*
 * Where a row's label is, what number a numeric is, and a value that is out of line, is PostgreSQL's
 * to find.  And what takes batches is the leader, which would have no time left for pages; a pass in
 * there would have one thread, too.
 */
static bool
have_threads(const KmHeapRead *h)
{
	return gk_threads(km_host_engine(h->r->host)) > 1 && !h->spec->labelled && !h->spec->numeric && !h->elsewhere &&
		h->r->options->take == NULL;
}

bool
km_threads_suit(const KmHeapRead *h)
{
	GkHost		every = {.threads = 0};
	bool		many = gk_threads(&every) >= MANY_CPUS;
	bool		some = false;

	for (int i = 0; i < h->ntables; i++)
	{
		/* pages that are not in the cache are better read by several processes with a CPU each */
		if (many && h->tables[i].nblocks > (BlockNumber) NBuffers / 4)
			return false;
		some |= h->tables[i].nblocks >= MIN_PAGES;
	}
	return some && have_threads(h);
}

KmThreads *
km_threads_begin(KmHeapRead *h)
{
	GkHost		every = {.threads = 0};
	int			most = Min(MAX_THREADS, Max(2, gk_threads(&every) * 3 / 4));
	KmThreads  *g;

	if (!have_threads(h))
		return NULL;
	g = km_alloc_lines(sizeof(KmThreads));
	g->h = h;
	g->r = h->r;
	g->engine = *km_host_engine(h->r->host);
	/* the leader looks by itself whether it is to stop */
	g->engine.stop = NULL;
	g->threads = Min(most, gk_threads(&g->engine));
	g->engine.threads = g->threads;
	g->mover = (GkMover) {note_move, finish_moves, g};
	make_threads(g);
	make_jobs(g);
	return g;
}

bool
km_threads_read(KmThreads *g, KmPageReader *pages, int table, BlockNumber block)
{
	const KmHeapTable *t = &g->h->tables[table];
	int			njobs = (int) g->jobs.nslots;

	if (t->nblocks < block + MIN_PAGES)
		return false;
	g->pages = pages;
	g->table = table;
	g->block = block;
	g->end = t->nblocks;
	g->ahead.block = InvalidBlockNumber;
	g->job_pages = Min(JOB_PAGES, km_page_hold_limit(pages, njobs * JOB_PAGES) / njobs);
	if (g->job_pages == 0)
		return false;
	for (int i = 0; i < g->threads; i++)
		g->thread[i].deformer = km_deform_open(RelationGetDescr(g->h->rels[table]), g->h->spec, t, NULL);
	ereport(DEBUG1,
			(errmsg("\"%s\" is read by %d threads", g->r->source->relname, g->threads)));
	read_pages(g);
	for (int i = 0; i < g->threads; i++)
		km_deform_close(g->thread[i].deformer);
	return true;
}

void
km_threads_end(KmThreads *g)
{
	for (int i = 0; i < g->threads; i++)
		gk_store_observed(g->r->store, g->thread[i].stats);
}
