/*
 * rel_threads.c - the rows of a table by this process and its threads.
 *
 * This process pins some pages and finds out which of their rows are visible, which is
 * PostgreSQL's to say; that is a job.  A thread takes the rows of its pages into a batch.
 * This process gives the batches' rows their places in the store, in the order of the
 * pages, and a thread moves them there.  So the rows come as one process would read them,
 * and where a page is all visible this process does not look at them at all.
 *
 * Jobs lie in a ring and go through these hands at the same time; whoever has nothing to
 * do takes what is oldest.  A row that is odd ends its batch: when all moves are made, this
 * process goes on with that row by itself, up to the job's last page.
 *
 * Threads call nothing of PostgreSQL, and while they run this process must not leave: an
 * ERROR is kept until they have ended, and so is a cancel request.
 */
#include "postgres.h"

#include <sched.h>
#include <unistd.h>

#include "miscadmin.h"

#include "core/store/gk_load.h"
#include "core/store/gk_store.h"
#include "relation/rel_heap.h"

/* Smaller tables are read before threads have come to it. */
#define LEAST_PAGES		256
/* Jobs for each thread, and the most pages of one: its rows are to stay in the cache. */
#define THREAD_JOBS		4
#define JOB_PAGES		32
/*
 * More threads wait for this process, which is slower itself when all CPUs are busy: two
 * may share a core.
 */
#define MOST_THREADS	12
/* With fewer CPUs workers would have none of their own. */
#define MANY_CPUS		4
/* A batch is moved to one chunk, or to two. */
#define JOB_MOVES		4
/*
 * How often a thread looks for work before it lets others have the CPU, and before it
 * sleeps between looks: then this process waits for a disk.
 */
#define LOOKS			64
#define LOOKS_AWAKE		2048
#define SLEEP_US		50
#define LINE			64

typedef enum JobState
{
	FREE,
	TAKEN,						/* rows are in the batch */
	BUSY						/* a thread's, or waits for one */
} JobState;

/* Some pages, one after the other, whose rows fit a batch. */
typedef struct Job
{
	int			state;			/* JobState */
	char		apart[LINE];
	int			npages;
	KmHeldPage *page;			/* [job_pages] */
	OffsetNumber *visible;		/* [job_pages][MaxHeapTuplesPerPage] of theirs */
	int		   *rows;			/* [job_pages] of each, read by threads */
	GkBatch		batch;
	KmRowBatch		taken;
	int			odd;			/* page with an odd row; -1: none */
	OffsetNumber offset;		/* of that row */
	int			nmoves;
	GkMove		move[JOB_MOVES];
} Job;

typedef struct Thread
{
	KmDeformer    *taker;
	KmRowBatch    *into;
	KmPageRows	rows;
	GkColumnStats *stats;		/* [columns] of the rows that it has taken */
} Thread;

struct KmThreads
{
	KmHeapRead *h;
	KmReader   *r;
	const KmPagesWhat *what;
	GkHost		engine;
	int			threads;
	Thread	   *thread;			/* [threads] */
	GkMover		mover;

	KmPages    *pages;			/* of the table at hand */

	/*
	 * Jobs by number: n is job[n % njobs].  What one thread writes and others look at
	 * is alone in its cache line.
	 */
	int			njobs;
	Job		   *job;			/* [njobs] */
	char		apart1[LINE];
	uint64_t	held;			/* so many have pages */
	uint64_t	placed;			/* rows of so many have their places */
	bool		over;			/* threads may end */
	char		apart2[LINE];
	uint64_t	take;			/* next to be taken */
	char		apart3[LINE];
	uint64_t	move;			/* next to be moved */
	char		apart4[LINE];
	uint64_t	moved;			/* so many are moved */
	char		apart5[LINE];

	/* What only this process looks at: the table, and the next of its blocks. */
	int			table;
	BlockNumber block;
	BlockNumber end;
	int			job_pages;
	KmHeldPage	hold[JOB_PAGES];	/* those of a job, until threads may see them */
	KmHeldPage	ahead;			/* held already; no block: none is */

	/* Why it stopped. */
	bool		failed;			/* by an ERROR, which is kept */
	GkStatus	st;
	GkError		err;
};

static Job *
job_at(const KmThreads *g, uint64_t number)
{
	return &g->job[number % g->njobs];
}

/* ---- what any thread does ---- */

static void
never(void *arg)
{
	/* a job's rows fit its batch */
	Assert(false);
}

static void
take_job(const KmThreads *g, Job *job, Thread *t)
{
	KmPrefetch		ahead = {NULL, NULL};
	/* behind the jobs that are on their way */
	int			distance = g->njobs * job->npages;

	t->into = &job->taken;
	for (int i = 0; i < job->npages && job->odd < 0; i++)
	{
		int			odd;

		if (i == 0)
		{
			ahead = km_all_of(BufferGetPage(job->page[0].buffer));
			km_prefetch_row(&ahead);
		}
		km_held_rows(&job->page[i], &t->rows);
		if (i + 1 < job->npages)
			ahead = km_all_of(BufferGetPage(job->page[i + 1].buffer));
		odd = km_deform_take(t->taker, &t->rows, 0, &ahead);
		km_see_ahead(g->pages, &job->page[i], distance);
		job->rows[i] = odd < 0 ? t->rows.n : odd;
		if (odd >= 0)
		{
			job->odd = i;
			job->offset = t->rows.offset[odd];
		}
	}
	gk_batch_observe(&job->batch, t->stats);
}

static void
move_job(const KmThreads *g, Job *job)
{
	for (int i = 0; i < job->nmoves; i++)
		gk_store_move(g->r->store, &job->move[i]);
	job->nmoves = 0;
}

/* The next number below a limit, for this thread alone. */
static bool
claim(uint64_t *next, const uint64_t *limit, uint64_t *number)
{
	*number = __atomic_load_n(next, __ATOMIC_RELAXED);
	while (*number < __atomic_load_n(limit, __ATOMIC_ACQUIRE))
		if (__atomic_compare_exchange_n(next, number, *number + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	return false;
}

static bool
help_move(KmThreads *g)
{
	uint64_t	number;
	Job		   *job;

	if (!claim(&g->move, &g->placed, &number))
		return false;
	job = job_at(g, number);
	move_job(g, job);
	__atomic_store_n(&job->state, FREE, __ATOMIC_RELEASE);
	__atomic_fetch_add(&g->moved, 1, __ATOMIC_RELEASE);
	return true;
}

static bool
help_take(KmThreads *g, Thread *t)
{
	uint64_t	number;
	Job		   *job;

	if (!claim(&g->take, &g->held, &number))
		return false;
	job = job_at(g, number);
	take_job(g, job, t);
	__atomic_store_n(&job->state, TAKEN, __ATOMIC_RELEASE);
	return true;
}

/* A look takes the line from the one who writes it, so not too many of them. */
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
help(KmThreads *g, Thread *t)
{
	int			looks = 0;

	while (!__atomic_load_n(&g->over, __ATOMIC_ACQUIRE))
		if (help_move(g) || help_take(g, t))
			looks = 0;
		else
			idle(&looks);
}

/* ---- what only this process does ---- */

static GkStatus
note_move(void *arg, const GkMove *move)
{
	KmThreads *g = arg;
	Job		   *job = job_at(g, g->placed);

	if (job->nmoves == JOB_MOVES)
		move_job(g, job);
	job->move[job->nmoves++] = *move;
	return GK_OK;
}

static GkStatus
finish_moves(void *arg)
{
	KmThreads *g = arg;
	int			looks = 0;

	move_job(g, job_at(g, g->placed));
	while (__atomic_load_n(&g->moved, __ATOMIC_ACQUIRE) < g->placed)
		if (!help_move(g))
			idle(&looks);
	return GK_OK;
}

static void
copy_held(KmHeldPage *to, const KmHeldPage *from)
{
	OffsetNumber *visible = to->visible;

	*to = *from;
	to->visible = visible;
	if (!to->all)
		memcpy(visible, from->visible, to->n * sizeof(OffsetNumber));
}

/*
 * Pin pages whose rows fit the job's batch, or one page.  They are put into the job at the
 * end: its lines are in the caches of the threads that took the pages before, and each lock
 * of a page would wait until one of them has come.
 */
static void
hold_job(KmThreads *g)
{
	Job		   *job = job_at(g, g->held);
	int			capacity = g->r->batch->capacity;
	int			npages = 0;
	int			rows = 0;

	while (npages < g->job_pages && g->block < g->end)
	{
		KmHeldPage *page = &g->hold[npages];

		page->visible = job->visible + npages * MaxHeapTuplesPerPage;
		if (g->ahead.block == g->block)
			copy_held(page, &g->ahead);
		else
			km_pages_hold(g->pages, g->block, page);
		g->ahead.block = InvalidBlockNumber;
		if (npages > 0 && rows + page->n > capacity)
		{
			copy_held(&g->ahead, page);
			break;
		}
		rows += page->n;
		npages++;
		g->block++;
	}
	job->state = BUSY;
	job->batch.rows = 0;
	job->taken.seen = 0;
	job->taken.nleft = 0;
	memset(&job->taken.counts, 0, sizeof(job->taken.counts));
	job->npages = npages;
	memcpy(job->page, g->hold, npages * sizeof(KmHeldPage));
	memset(job->rows, 0, npages * sizeof(int));
	/* no batch is large enough: this process takes the page by itself */
	job->odd = rows > capacity ? 0 : -1;
	job->offset = FirstOffsetNumber;
	__atomic_store_n(&g->held, g->held + 1, __ATOMIC_RELEASE);
}

/* What a thread has taken gets its place; what it has not taken, this process takes. */
static void
place_job(KmThreads *g)
{
	Job		   *job = job_at(g, g->placed);

	km_heap_left_out(g->r, &job->taken);
	job->nmoves = 0;
	g->st = gk_store_add_by(g->r->store, &job->batch, &g->mover, &g->err);
	if (g->st != GK_OK)
		return;
	if (job->odd >= 0)
	{
		finish_moves(g);
		km_heap_pages(g->h, g->pages, g->table, job->page[job->odd].block, job->offset,
					  job->page[job->npages - 1].block + 1);
	}
	for (int i = 0; i < job->npages; i++)
		km_pages_release(g->pages, &job->page[i], job->rows[i]);
	km_reader_progress(g->r);
	__atomic_store_n(&g->placed, g->placed + 1, __ATOMIC_RELEASE);
}

/* All rows are in the store. */
static bool
finished(const KmThreads *g)
{
	return g->block >= g->end && __atomic_load_n(&g->moved, __ATOMIC_ACQUIRE) == g->held;
}

/* Until all is done, or something happened. */
static void
lead(KmThreads *g, Thread *t)
{
	int			looks = 0;

	/* one that cannot be served afterwards, since the caller holds it off, too, is not ours */
	while (!finished(g) && g->st == GK_OK && !(InterruptPending && InterruptHoldoffCount == 1))
	{
		if (g->placed < g->held && __atomic_load_n(&job_at(g, g->placed)->state, __ATOMIC_ACQUIRE) == TAKEN)
			place_job(g);
		else if (g->block < g->end && __atomic_load_n(&job_at(g, g->held)->state, __ATOMIC_ACQUIRE) == FREE)
			hold_job(g);
		else if (!help_move(g) && !help_take(g, t))
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
	KmThreads *g = arg;

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

/* As many jobs as may have pages, and their memory; 0: no use. */
static int
share_pages(KmThreads *g)
{
	int			room = km_pages_room(g->pages, g->njobs * JOB_PAGES);

	return Min(JOB_PAGES, room / g->njobs);
}

static void
make_jobs(KmThreads *g)
{
	const GkBatch *like = g->r->batch;
	Size		bytes = CACHELINEALIGN(gk_batch_bytes(like->columns, like->naux, like->capacity));
	char	   *memory = MemoryContextAllocHuge(CurrentMemoryContext, g->njobs * bytes + PG_CACHE_LINE_SIZE);

	memory = (char *) CACHELINEALIGN(memory);
	g->job = palloc0(g->njobs * sizeof(Job));
	for (int i = 0; i < g->njobs; i++)
	{
		Job		   *job = &g->job[i];

		gk_batch_init(&job->batch, memory + i * bytes, like->columns, like->naux, like->capacity);
		job->taken.batch = &job->batch;
		job->page = palloc(JOB_PAGES * sizeof(KmHeldPage));
		job->visible = palloc(JOB_PAGES * MaxHeapTuplesPerPage * sizeof(OffsetNumber));
		job->rows = palloc(JOB_PAGES * sizeof(int));
		if (g->what->left_out)
			job->taken.left = palloc(like->capacity * sizeof(KmLeftOut));
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
 * Where a row's label is, is PostgreSQL's to find.  And what takes batches is this process,
 * which would have no time left for pages; a pass in there would have one thread, too.
 */
static bool
have_threads(const KmReader *r, const KmPagesWhat *what)
{
	return gk_threads(km_host_engine(r->host)) > 1 && !what->labelled && r->options->take == NULL;
}

bool
km_threads_suits(const KmReader *r, const KmHeapTables *tables)
{
	GkHost		every = {.threads = 0};
	bool		many = gk_threads(&every) >= MANY_CPUS;
	bool		some = false;

	for (int i = 0; i < tables->count; i++)
	{
		/* pages that are not in the cache are better read by several processes with a CPU each */
		if (many && tables->table[i].nblocks > (BlockNumber) NBuffers / 4)
			return false;
		some |= tables->table[i].nblocks >= LEAST_PAGES;
	}
	return some && have_threads(r, tables->what);
}

KmThreads *
km_threads_begin(KmHeapRead *h, KmReader *r, const KmPagesWhat *what)
{
	GkHost		every = {.threads = 0};
	int			most = Min(MOST_THREADS, Max(2, gk_threads(&every) * 3 / 4));
	KmThreads *g;

	if (!have_threads(r, what))
		return NULL;
	g = palloc0(sizeof(KmThreads));
	g->h = h;
	g->r = r;
	g->what = what;
	g->engine = *km_host_engine(r->host);
	/* this process looks by itself whether it is to stop */
	g->engine.stop = NULL;
	g->threads = Min(most, gk_threads(&g->engine));
	g->engine.threads = g->threads;
	g->njobs = g->threads * THREAD_JOBS;
	g->mover = (GkMover) {note_move, finish_moves, g};
	g->ahead.visible = palloc(MaxHeapTuplesPerPage * sizeof(OffsetNumber));
	make_threads(g);
	make_jobs(g);
	return g;
}

bool
km_threads_read(KmThreads *g, Relation rel, KmPages *pages, int index, const KmPagesTable *table, BlockNumber block)
{
	if (table->nblocks < block + LEAST_PAGES)
		return false;
	g->pages = pages;
	g->table = index;
	g->block = block;
	g->end = table->nblocks;
	g->ahead.block = InvalidBlockNumber;
	g->job_pages = share_pages(g);
	if (g->job_pages == 0)
		return false;
	for (int i = 0; i < g->threads; i++)
		g->thread[i].taker = km_deform_open(RelationGetDescr(rel), g->what, table, true, &g->thread[i].into, never, NULL);
	ereport(DEBUG1,
			(errmsg("\"%s\" is read by %d threads", g->r->source->relname, g->threads)));
	read_pages(g);
	for (int i = 0; i < g->threads; i++)
		km_deform_close(g->thread[i].taker);
	return true;
}

void
km_threads_end(KmThreads *g)
{
	for (int i = 0; i < g->threads; i++)
		gk_store_observed(g->r->store, g->thread[i].stats);
}
