/*
 * gk_threads.c - the engine's threads: one parallel loop over the pool's (gk_thread_pool.h).
 *
 * A loop ends when all its jobs have ended, and a thread with a job may have to wait for a
 * CPU.  Where other sessions keep the CPUs busy, that wait can be longer than the loop: then
 * loops use half as many threads, down to one, for FEWER_WAITS times the time that was lost
 * by waiting; and twice as many after that.  Loops that have fewer jobs than threads, or were
 * waited for no longer than it takes to wake a thread up, say nothing of the CPUs.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "core/gk_core.h"
#include "core/base/gk_thread_pool.h"

/*
 * Limits of what a user may ask for: a session must not take threads from the others.
 * MIN_LIMIT lets tests on machines of few CPUs try many threads.
 */
#define THREADS_A_CPU	2
#define MIN_LIMIT		32

typedef struct Loop
{
	const GkHost *host;
	int64_t		jobs;
	GkJob		fn;
	void	   *arg;
	int			threads;
	int64_t		next;			/* shared counter: the next job to take */
	bool		stopped;
	bool		waits;			/* while another loop has the threads */
	double		began;			/* when the calling thread had the others */
	double		done;			/* and when it had nothing left to do */
} Loop;

/* Most threads of a loop, and until when: a guess, which several threads may make. */
static int	fewer = GK_POOL_THREADS;
static double fewer_until;
#define FEWER_WAITS	8
#define WAKE_MS		0.5

/* CPUs of time that the control group may use, rounded up; 0: no limit, or none known. */
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

/* The CPUs of the process's mask. */
static int
scheduled_cpus(void)
{
#ifdef __linux__
	/* Linux's own cpu_set_t has 1,024 CPUs */
	cpu_set_t	cpus[8];

	if (sched_getaffinity(0, sizeof(cpus), cpus) == 0)
		return CPU_COUNT_S(sizeof(cpus), cpus);
#endif
	return (int) sysconf(_SC_NPROCESSORS_ONLN);
}

/* CPUs that this process may use, by its mask and its container's quota; looked up once. */
static int
usable_cpus(void)
{
	static int	known;

	if (known == 0)
	{
		int			quota = cpu_quota();

		known = scheduled_cpus();
		if (quota > 0 && quota < known)
			known = quota;
	}
	return known;
}

int
gk_threads(const GkHost *host)
{
	int			n = host->threads > 0 ? host->threads : usable_cpus();
	int			most = THREADS_A_CPU * usable_cpus();

	if (most < MIN_LIMIT)
		most = MIN_LIMIT;
	if (most > GK_POOL_THREADS)
		most = GK_POOL_THREADS;
	return n < 1 ? 1 : n > most ? most : n;
}

static bool
run_inline(Loop *loop)
{
	for (int64_t job = 0; job < loop->jobs; job++)
	{
		if (gk_host_stops(loop->host))
			return false;
		loop->fn(loop->arg, job, 0);
	}
	return true;
}

/*
 * Jobs in a row that a thread takes, fewer towards the end: neighbouring jobs mostly have
 * neighbouring rows, and what a kernel prefetches beyond its own rows is lost when those are
 * another core's.
 */
#define RUN		8

static void
take_jobs(Loop *loop, int thread)
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
			if (gk_host_stops(loop->host))
			{
				__atomic_store_n(&loop->stopped, true, __ATOMIC_RELAXED);
				return;
			}
			loop->fn(loop->arg, job, thread);
		}
	} while (job < loop->jobs);
}

static void
work(void *arg, int thread)
{
	Loop	   *loop = arg;

	if (thread == 0)
		loop->began = gk_now_ms();
	take_jobs(loop, thread);
	if (thread == 0)
		loop->done = gk_now_ms();
}

/* Wait this long for threads that are at work. */
#define NAP_NS			20000

/* Run the loop on the pool's threads; false: there are none, or it was stopped while it waited for them. */
static bool
get_threads(Loop *loop)
{
	/* the pool may be free by the time that one looks why it was not had */
	for (int idle = 0; idle < 2; idle += !gk_pool_busy())
	{
		if (gk_pool_run(loop->threads, work, loop))
			return true;
		if (!loop->waits)
			return false;
		loop->stopped = gk_host_stops(loop->host);
		if (loop->stopped)
			return false;
		nanosleep(&(struct timespec) {0, NAP_NS}, NULL);
	}
	return false;
}

static bool
run_threads(Loop *loop, int threads)
{
	double		start = gk_now_ms();
	double		end;
	double		until;
	bool		enough;			/* jobs */
	int			most = __atomic_load_n(&fewer, __ATOMIC_RELAXED);

	__atomic_load(&fewer_until, &until, __ATOMIC_RELAXED);
	if (most < GK_POOL_THREADS && start >= until)
		__atomic_store_n(&fewer, most *= 2, __ATOMIC_RELAXED);
	if (threads > most)
		threads = most;
	enough = threads <= loop->jobs;
	if (!enough)
		threads = (int) loop->jobs;
	loop->threads = threads;
	if (threads == 1 || !get_threads(loop))
		return loop->stopped ? false : run_inline(loop);
	end = gk_now_ms();
	if (enough && end - loop->done > WAKE_MS && end - loop->done > loop->done - loop->began)
	{
		until = end + FEWER_WAITS * (end - loop->done);
		__atomic_store_n(&fewer, threads / 2, __ATOMIC_RELAXED);
		__atomic_store(&fewer_until, &until, __ATOMIC_RELAXED);
	}
	return !loop->stopped;
}

static bool
run(Loop *loop)
{
	int			threads = gk_threads(loop->host);

	return threads > 1 && loop->jobs > 1 && (loop->waits || !gk_pool_busy()) ? run_threads(loop, threads) : run_inline(loop);
}

bool
gk_parallel_for(const GkHost *host, int64_t jobs, GkJob fn, void *arg)
{
	return run(&(Loop) {.host = host,.jobs = jobs,.fn = fn,.arg = arg});
}

bool
gk_parallel_for_long(const GkHost *host, int64_t jobs, GkJob fn, void *arg)
{
	return run(&(Loop) {.host = host,.jobs = jobs,.fn = fn,.arg = arg,.waits = true});
}
