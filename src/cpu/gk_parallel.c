/*
 * gk_parallel.c - the engine's threads: one parallel loop over OpenMP.
 *
 * The only file that knows OpenMP.  The host may be a server process whose signal
 * handlers belong to its main thread, so helper threads are born with the usual
 * signals blocked: the caller blocks them before it enters the parallel region
 * (libgomp creates its threads there, and they inherit the mask) and takes its
 * own mask back inside, so that a cancel request still reaches it during a pass.
 */
#include <pthread.h>
#include <signal.h>

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
	int64_t		next;			/* shared counter: the next job to take */
	bool		stopped;
} Loop;

static bool
should_stop(const GkHost *host)
{
	return host->stop != NULL && host->stop(host->ctx);
}

int
gk_threads(const GkHost *host)
{
	int			n = host->threads;

#ifdef _OPENMP
	if (n <= 0)
		n = omp_get_num_procs();	/* of the affinity mask */
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
	sigset_t	helper;
	sigset_t	own;

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
	}
	pthread_sigmask(SIG_SETMASK, &own, NULL);
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
	if (threads > 1)
		return run_threads(&loop, threads);
#endif
	return run_inline(&loop);
}
