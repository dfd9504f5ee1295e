/*
 * gk_parallel.c - the engine's threads: one parallel loop, and the helper threads
 * that wait for the next.
 *
 * Made for a server process that shares its machine with others, which is why it is
 * not OpenMP:
 *  - Helpers join a loop when they get to run.  A loop whose jobs are done waits
 *    only for helpers in the middle of a job, never for one that the system has not
 *    woken yet: with every CPU busy a loop costs what it costs on one thread,
 *    where a barrier costs a time slice.
 *  - An idle helper looks for work for some microseconds, for passes that follow
 *    each other closely, and then sleeps.
 *  - Threads that cannot be created are done without, where libgomp would end the
 *    process.
 * Signal handlers belong to the process's main thread, so helpers are born with the
 * usual signals blocked; a cancel request reaches the main thread during a pass.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE				/* CPU_COUNT */
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "core/gk_core.h"

#define MAX_THREADS		1024
/* Looks at the pool before sleeping: about 20 microseconds. */
#define LOOKS			400

typedef struct Loop
{
	const GkHost *host;
	int64_t		jobs;
	GkJob		fn;
	void	   *arg;
	int64_t		next;			/* shared counter: the next job to take */
	bool		stopped;
} Loop;

/*
 * One loop at a time.  state says who may still join it and who is in it, so that
 * nobody ever holds a lock: a lock whose holder lost its CPU would stop all others.
 */
#define OPEN		UINT64_C(1)		/* the loop takes helpers */
#define WAITING		UINT64_C(2)		/* the caller sleeps until the last has left */
#define INSIDE		((uint64_t) 1 << 16)	/* one helper in the loop */
#define JOINED		((uint64_t) 1 << 32)	/* one thread number given out ... */
#define THREADS		((uint64_t) 1 << 48)	/* ... of so many */
#define FIELD(state, unit)	((int) ((state) / (unit) & 0xffff))

static struct
{
	uint64_t	state;
	Loop	   *loop;
	int			sleeping;		/* helpers that wait for a wake */
	sem_t		wake;
	sem_t		left;
	pid_t		owner;			/* a child process has no helpers */
	int			helpers;
} pool;

/* This thread is in a loop: one inside it runs on this thread alone. */
static __thread bool in_loop;

static bool
should_stop(const GkHost *host)
{
	return host->stop != NULL && host->stop(host->ctx);
}

/* ---- how many ---- */

/* CPUs' worth of time that the control group may use; 0: no limit, or none known. */
static int
cpu_quota(void)
{
	FILE	   *f = fopen("/sys/fs/cgroup/cpu.max", "r");
	long		quota = 0;
	long		period = 0;

	if (f == NULL)
		return 0;
	/* "max 100000" has no number to begin with */
	if (fscanf(f, "%ld %ld", &quota, &period) != 2 || quota <= 0 || period <= 0)
		quota = period = 0;
	fclose(f);
	return period > 0 ? (int) ((quota + period - 1) / period) : 0;
}

/* What this process may use, looked up once. */
static int
usable_cpus(void)
{
	static int	known;
	int			cpus = 0;
	int			quota;
#ifdef __linux__
	cpu_set_t	set;
#endif

	if (known > 0)
		return known;
#ifdef __linux__
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		cpus = CPU_COUNT(&set);
#endif
	if (cpus < 1)
		cpus = (int) sysconf(_SC_NPROCESSORS_ONLN);
	quota = cpu_quota();
	if (quota > 0 && quota < cpus)
		cpus = quota;
	known = cpus > 0 ? cpus : 1;
	return known;
}

int
gk_threads(const GkHost *host)
{
	int			n = host->threads > 0 ? host->threads : usable_cpus();

	return n > MAX_THREADS ? MAX_THREADS : n;
}

/* ---- helpers ---- */

static void
work(Loop *loop, int thread)
{
	for (;;)
	{
		int64_t		job = __atomic_fetch_add(&loop->next, 1, __ATOMIC_RELAXED);

		if (job >= loop->jobs || __atomic_load_n(&loop->stopped, __ATOMIC_RELAXED))
			return;
		if (should_stop(loop->host))
		{
			__atomic_store_n(&loop->stopped, true, __ATOMIC_RELAXED);
			return;
		}
		loop->fn(loop->arg, job, thread);
	}
}

static void
relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void
wait_for(sem_t *sem)
{
	while (sem_wait(sem) != 0 && errno == EINTR)
		;
}

static bool
may_join(uint64_t state)
{
	return (state & OPEN) && FIELD(state, JOINED) < FIELD(state, THREADS);
}

/* Take part in the loop at hand if it still takes helpers. */
static bool
join(void)
{
	uint64_t	state = __atomic_load_n(&pool.state, __ATOMIC_SEQ_CST);

	while (may_join(state))
		if (__atomic_compare_exchange_n(&pool.state, &state, state + INSIDE + JOINED, false,
										__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		{
			work(pool.loop, FIELD(state, JOINED));
			state = __atomic_fetch_sub(&pool.state, INSIDE, __ATOMIC_SEQ_CST);
			if ((state & WAITING) && FIELD(state, INSIDE) == 1)
				sem_post(&pool.left);
			return true;
		}
	return false;
}

/* One less to wake; false: all have been. */
static bool
wake_one(void)
{
	int			n = __atomic_load_n(&pool.sleeping, __ATOMIC_SEQ_CST);

	while (n > 0)
		if (__atomic_compare_exchange_n(&pool.sleeping, &n, n - 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return true;
	return false;
}

static void *
help(void *unused)
{
	(void) unused;
	in_loop = true;
	for (;;)
	{
		for (int i = 0; i < LOOKS; i++)
			if (join())
				i = 0;
			else
				relax();
		/* Either the caller sees that we sleep, or we see its loop. */
		__atomic_fetch_add(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
		if (!may_join(__atomic_load_n(&pool.state, __ATOMIC_SEQ_CST)) || !wake_one())
			wait_for(&pool.wake);
	}
	return NULL;
}

/* All but those that report an error of the running thread itself. */
static void
helper_mask(sigset_t *mask)
{
	sigfillset(mask);
	sigdelset(mask, SIGABRT);
	sigdelset(mask, SIGBUS);
	sigdelset(mask, SIGFPE);
	sigdelset(mask, SIGILL);
	sigdelset(mask, SIGSEGV);
	sigdelset(mask, SIGTRAP);
}

/* At least so many helpers, or as many as there can be. */
static void
raise_helpers(int wanted)
{
	sigset_t	mask;
	sigset_t	own;

	helper_mask(&mask);
	pthread_sigmask(SIG_BLOCK, &mask, &own);
	while (pool.helpers < wanted)
	{
		pthread_t	thread;

		if (pthread_create(&thread, NULL, help, NULL) != 0)
			break;
		pthread_detach(thread);
		pool.helpers++;
	}
	pthread_sigmask(SIG_SETMASK, &own, NULL);
}

/* ---- the loop ---- */

static bool
run_inline(Loop *loop)
{
	for (int64_t job = 0; job < loop->jobs; job++)
	{
		if (should_stop(loop->host))
			return false;
		loop->fn(loop->arg, job, 0);
	}
	return true;
}

static bool
run_threads(Loop *loop, int threads)
{
	uint64_t	state;

	if (pool.owner != getpid())
	{
		pool.owner = getpid();
		pool.helpers = pool.sleeping = 0;
		sem_init(&pool.wake, 0, 0);
		sem_init(&pool.left, 0, 0);
	}
	raise_helpers(threads - 1);
	pool.loop = loop;
	__atomic_store_n(&pool.state, OPEN + JOINED + threads * THREADS, __ATOMIC_SEQ_CST);
	for (int i = 1; i < threads && wake_one(); i++)
		sem_post(&pool.wake);

	in_loop = true;
	work(loop, 0);
	in_loop = false;

	state = __atomic_and_fetch(&pool.state, ~OPEN, __ATOMIC_SEQ_CST);
	for (int i = 0; i < LOOKS && FIELD(state, INSIDE) > 0; i++)
	{
		relax();
		state = __atomic_load_n(&pool.state, __ATOMIC_SEQ_CST);
	}
	if (FIELD(state, INSIDE) > 0 &&
		FIELD(__atomic_fetch_or(&pool.state, WAITING, __ATOMIC_SEQ_CST), INSIDE) > 0)
		wait_for(&pool.left);
	return !loop->stopped;
}

bool
gk_parallel_for(const GkHost *host, int64_t jobs, GkJob fn, void *arg)
{
	Loop		loop = {.host = host,.jobs = jobs,.fn = fn,.arg = arg};
	int			threads = gk_threads(host);

	if (threads > jobs)
		threads = (int) jobs;
	return threads > 1 && !in_loop ? run_threads(&loop, threads) : run_inline(&loop);
}
