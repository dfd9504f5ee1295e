/*
 * gk_parallel.c - the engine's threads: one parallel loop over OpenMP.
 *
 * The only file that knows OpenMP.  The host may be a server process whose signal
 * handlers belong to its main thread, so helper threads are born with the usual
 * signals blocked: the caller blocks them before it enters the parallel region
 * (libgomp creates its threads there, and they inherit the mask) and takes its
 * own mask back inside, so that a cancel request still reaches it during a pass.
 *
 * A parallel region ends when all its threads have, even one that the system has
 * not woken yet.  Where other sessions keep the CPUs busy, that wait can be longer
 * than the loop: then the loops of the next moments ask for half as many threads, at
 * last for none, eight times as long as was waited for nothing; then for twice as many.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "core/gk_core.h"

/* libgomp ends the process when it cannot create a thread; stay far from that. */
#define MAX_THREADS		1024

typedef struct Loop
{
	const GkHost *host;
	int64_t		jobs;
	GkJob		fn;
	void	   *arg;
	int			threads;
	int64_t		next;			/* shared counter: the next job to take */
	bool		stopped;
} Loop;

/* Threads that a region has at most, until when; of the one thread that enters regions. */
static int	fewer = MAX_THREADS;
static double fewer_until;
#define FEWER_WAITS	8

static bool
should_stop(const GkHost *host)
{
	return host->stop != NULL && host->stop(host->ctx);
}

#ifdef _OPENMP

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

/* What this process may use, by its CPU mask and its container's quota; looked up once. */
static int
usable_cpus(void)
{
	static int	known;

	if (known == 0)
	{
		int			quota = cpu_quota();

		known = omp_get_num_procs();
		if (quota > 0 && quota < known)
			known = quota;
	}
	return known;
}

#endif

int
gk_threads(const GkHost *host)
{
	int			n = host->threads;

#ifdef _OPENMP
	if (n <= 0)
		n = usable_cpus();
#else
	n = 1;
#endif
	return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

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

#ifdef _OPENMP

/*
 * Jobs in a row that a thread takes, fewer towards the end: neighbours are mostly
 * rows one after the other, and what a kernel asks memory for beyond its own rows is
 * lost when they are another core's.
 */
#define RUN		8

static void
work(Loop *loop, int thread)
{
	int64_t		job;

	do
	{
		int64_t		run = (loop->jobs - __atomic_load_n(&loop->next, __ATOMIC_RELAXED)) / (4 * loop->threads);
		int64_t		end;

		run = run < 1 ? 1 : run > RUN ? RUN : run;
		job = __atomic_fetch_add(&loop->next, run, __ATOMIC_RELAXED);
		for (end = job + run; job < end && job < loop->jobs; job++)
		{
			if (__atomic_load_n(&loop->stopped, __ATOMIC_RELAXED))
				return;
			if (should_stop(loop->host))
			{
				__atomic_store_n(&loop->stopped, true, __ATOMIC_RELAXED);
				return;
			}
			loop->fn(loop->arg, job, thread);
		}
	} while (job < loop->jobs);
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

static bool
run_threads(Loop *loop, int threads)
{
	double		start = gk_now_ms();
	double		done = start;
	double		end;
	sigset_t	helper;
	sigset_t	own;

	if (fewer < MAX_THREADS && start >= fewer_until)
		fewer *= 2;
	if (threads > fewer)
		threads = fewer;
	if (threads == 1)
		return run_inline(loop);
	loop->threads = threads;
	helper_mask(&helper);
	pthread_sigmask(SIG_BLOCK, &helper, &own);
#pragma omp parallel num_threads(threads)
	{
		int			thread = omp_get_thread_num();

		/* Again in the helpers: another library may have made the pool. */
		if (thread == 0)
			pthread_sigmask(SIG_SETMASK, &own, NULL);
		else
			pthread_sigmask(SIG_BLOCK, &helper, NULL);
		work(loop, thread);
		if (thread == 0)
			done = gk_now_ms();
	}
	pthread_sigmask(SIG_SETMASK, &own, NULL);
	end = gk_now_ms();
	if (end - done > done - start)
	{
		fewer = threads / 2;
		fewer_until = end + FEWER_WAITS * (end - done);
	}
	return !loop->stopped;
}

#endif

bool
gk_parallel_for(const GkHost *host, int64_t jobs, GkJob fn, void *arg)
{
	Loop		loop = {.host = host,.jobs = jobs,.fn = fn,.arg = arg};
#ifdef _OPENMP
	int			threads = gk_threads(host);

	if (threads > jobs)
		threads = (int) jobs;
	if (threads > 1 && !omp_in_parallel())
		return run_threads(&loop, threads);
#endif
	return run_inline(&loop);
}
