/*
 * The parallel loop: every job once, whatever the number of threads; stopping, loops
 * in loops, signals.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/gk_numerics.h"
#include "core/base/gk_thread_pool.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define JOBS	1000

typedef struct Work
{
	const GkHost *host;
	int			done[JOBS];
	int			threads;		/* that may be seen */
	int			bad;			/* jobs on a thread out of range, or with open signals */
	int			busy[64];		/* jobs at once on a thread number */
	int			inner;			/* jobs of loops inside */
	pthread_t	main;
	TestHost   *stop_after;		/* stop at this many jobs */
	int			count;
} Work;

static void
inner(void *arg, int64_t job, int thread)
{
	(void) job;
	(void) thread;
	__atomic_fetch_add(&((Work *) arg)->inner, 1, __ATOMIC_RELAXED);
}

static void
one(void *arg, int64_t job, int thread)
{
	Work	   *w = arg;
	sigset_t	mask;
	bool		own = pthread_equal(pthread_self(), w->main);

	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	if (thread < 0 || thread >= w->threads || own != (thread == 0) ||
		sigismember(&mask, SIGINT) != !own || sigismember(&mask, SIGSEGV) ||
		__atomic_fetch_add(&w->busy[thread], 1, __ATOMIC_ACQ_REL) != 0)
		__atomic_fetch_add(&w->bad, 1, __ATOMIC_RELAXED);
	w->done[job]++;
	if (job % 100 == 0)
		gk_parallel_for(w->host, 3, inner, w);
	if (w->stop_after != NULL && __atomic_add_fetch(&w->count, 1, __ATOMIC_RELAXED) == 10)
		__atomic_store_n(&w->stop_after->stopped, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&w->busy[thread], 1, __ATOMIC_ACQ_REL);
}

static bool
run(TestHost *t, int jobs, Work *w)
{
	memset(w, 0, sizeof(*w));
	w->host = &t->host;
	w->threads = gk_threads(&t->host);
	w->main = pthread_self();
	return gk_parallel_for(&t->host, jobs, one, w);
}

/* ---- loops of two threads ---- */

typedef struct Pair
{
	TestHost	host;
	bool		(*loop) (const GkHost *host, int64_t jobs, GkJob fn, void *arg);
	int			helped;			/* jobs that helpers did */
	int			jobs;
	bool		began;
} Pair;

static void
slow(void *arg, int64_t job, int thread)
{
	Pair	   *p = arg;

	(void) job;
	__atomic_store_n(&p->began, true, __ATOMIC_RELEASE);
	__atomic_fetch_add(&p->jobs, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&p->helped, thread > 0, __ATOMIC_RELAXED);
	nanosleep(&(struct timespec) {0, 3000000}, NULL);
}

static void *
run_pair(void *arg)
{
	Pair	   *p = arg;

	return p->loop(&p->host.host, 40, slow, p) ? p : NULL;
}

/* While another thread's loop has the helpers, a loop does without, but a long one waits. */
static void
test_two(void)
{
	for (int waits = 0; waits < 2; waits++)
	{
		Pair		first = {.loop = gk_parallel_for};
		Pair		second = {.loop = waits ? gk_parallel_for_long : gk_parallel_for};
		pthread_t	other;
		void	   *result;

		test_host_init(&first.host, 4);
		test_host_init(&second.host, 4);
		if (pthread_create(&other, NULL, run_pair, &first) != 0)
			return;
		while (!__atomic_load_n(&first.began, __ATOMIC_ACQUIRE))
			sched_yield();
		result = run_pair(&second);
		ok(result != NULL && second.jobs == 40 && (second.helped > 0) == waits,
		   "beside another loop, helpers did %d jobs of one that %s", second.helped, waits ? "waits" : "does not wait");
		ok(pthread_join(other, &result) == 0 && result != NULL && first.jobs == 40, "which did all its jobs");
	}
}

static int
wrong(const Work *w, int jobs)
{
	int			n = w->bad + (w->inner != 3 * ((jobs + 99) / 100));

	for (int i = 0; i < JOBS; i++)
		n += w->done[i] != (i < jobs);
	return n;
}

/*
 * Tiny loops whose argument is on the caller's stack and is spoilt as soon as they return:
 * a helper that still reads it, takes a job of another loop or writes late is found.
 */
#define TINY_JOBS	40
#define SPOILT		0xDB

typedef struct Tiny
{
	const GkHost *host;
	TestHost   *stop;			/* set by the job of this number, if any */
	int64_t		stop_at;
	uint64_t	round;
	uint64_t	told[TINY_JOBS];	/* by each job: the round it saw */
	uint64_t	ran;
	uint64_t	inner;
	uint64_t	cut;			/* loops inside that the stop has ended */
	int			jobs;
	int			next;
} Tiny;

static int	spoilt;
static int	by_helpers;

static void
tiny_inner(void *arg, int64_t job, int thread)
{
	(void) job;
	(void) thread;
	__atomic_fetch_add((uint64_t *) arg, 1, __ATOMIC_RELAXED);
}

static void
tiny(void *arg, int64_t job, int thread)
{
	Tiny	   *t = arg;

	if (t->host == NULL || job >= TINY_JOBS)
	{
		__atomic_fetch_add(&spoilt, 1, __ATOMIC_RELAXED);
		return;
	}
	t->told[job] += t->round;
	__atomic_fetch_add(&t->ran, 1, __ATOMIC_RELAXED);
	if (thread > 0)
		__atomic_fetch_add(&by_helpers, 1, __ATOMIC_RELAXED);
	/* lets helpers come, and makes them late */
	if (t->round % 4 == 2 && job % 8 == 3)
		sched_yield();
	if (job % 16 == 5 && !gk_parallel_for(t->host, 2, tiny_inner, &t->inner))
		__atomic_fetch_add(&t->cut, 1, __ATOMIC_RELAXED);
	if (t->stop != NULL && job == t->stop_at)
		__atomic_store_n(&t->stop->stopped, 1, __ATOMIC_RELAXED);
}

/* What a loop does, without the rule that late threads are fewer in the next ones. */
static void
tiny_pool(void *arg, int thread)
{
	Tiny	   *t = arg;
	int			job;

	while ((job = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->jobs)
		tiny(t, job, thread);
}

/* Not inlined, so that the next loop's argument lies in the same place of the stack. */
__attribute__((noinline)) static int
tiny_loop(TestHost *h, uint64_t round)
{
	volatile unsigned char *byte;
	Tiny		t = {.host = &h->host,.round = round + 1};
	int			jobs = 2 + (int) (gk_mix(round) % (TINY_JOBS - 1));
	uint64_t	inner;
	int			bad = 0;
	bool		whole;

	if (round % 64 == 9)
	{
		t.stop = h;
		t.stop_at = jobs / 2;
	}
	t.jobs = jobs;
	if (round % 4 == 1)
		whole = gk_parallel_for(&h->host, jobs, tiny, &t);
	else
	{
		whole = true;
		if (!gk_pool_run(h->host.threads, tiny_pool, &t))
			tiny_pool(&t, 0);
	}
	for (int i = 0; i < TINY_JOBS; i++)
		bad += t.told[i] != (i < jobs && (whole || t.told[i] != 0) ? round + 1 : 0);
	/* all jobs may have begun before the stop was seen, and a loop inside one still end by it */
	inner = 2 * ((uint64_t) ((jobs + 10) / 16) - t.cut);
	bad += t.cut > 0 && t.stop == NULL;
	if (whole)
		bad += t.ran != (uint64_t) jobs || t.inner < inner || t.inner > inner + t.cut;
	else
		bad += t.stop == NULL;
	h->stopped = 0;
	byte = (volatile unsigned char *) &t;
	for (size_t i = 0; i < sizeof(t); i++)
		byte[i] = SPOILT;
	t.host = NULL;
	for (size_t i = 0; i < sizeof(t.told); i++)
		bad += ((volatile unsigned char *) t.told)[i] != SPOILT;
	return bad;
}

static int
tiny_loops(int loops)
{
	static const int counts[] = {2, 3, 5, 8, 16, 32};
	TestHost	h;
	int			bad = 0;

	for (int c = 0; c < 6; c++)
	{
		test_host_init(&h, counts[c]);
		for (int i = 0; i < loops; i++)
		{
			bad += tiny_loop(&h, (uint64_t) i);
			/* helpers fall asleep, or are about to */
			if (i % 512 == 0)
				nanosleep(&(struct timespec) {0, i % 1024 == 0 ? 200000 : 1000000}, NULL);
		}
	}
	return bad + __atomic_load_n(&spoilt, __ATOMIC_RELAXED);
}

/* Two processes beside this one that take all the CPU they get. */
static void
contend(pid_t other[2], bool start)
{
	for (int i = 0; i < 2; i++)
		if (!start)
		{
			kill(other[i], SIGKILL);
			waitpid(other[i], NULL, 0);
		}
		else if ((other[i] = fork()) == 0)
		{
			alarm(300);
			for (volatile unsigned n = 0;; n++)
				;
		}
}

/* A child has none of the helpers that its parent made, and its loops end all the same. */
static int
forked(void)
{
	pid_t		child = fork();
	int			status = -1;

	if (child == 0)
	{
		alarm(300);
		_exit(tiny_loops(100) != 0);
	}
	waitpid(child, &status, 0);
	return status;
}

/*
 * Jobs of all threads but the calling one take so many milliseconds; how many there were.  The calling one gives those that
 * are wanted some time to come: on a busy machine it would take all jobs itself.
 */
typedef struct Late
{
	int			ms;
	int			wanted;
	int			threads;
} Late;

#define PATIENCE	30			/* naps of 5 ms */

static void
late(void *arg, int64_t job, int thread)
{
	Late	   *l = arg;
	int			seen = __atomic_load_n(&l->threads, __ATOMIC_RELAXED);
	struct timespec nap = {0, l->ms * 1000000L};

	(void) job;
	while (thread + 1 > seen && !__atomic_compare_exchange_n(&l->threads, &seen, thread + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	if (thread > 0)
		nanosleep(&nap, NULL);
	else
		for (int i = 0; i == 0 || (i < PATIENCE && __atomic_load_n(&l->threads, __ATOMIC_RELAXED) < l->wanted); i++)
			nanosleep(&(struct timespec) {0, 5000000}, NULL);
}

static int
threads_of(const TestHost *t, int ms, int wanted)
{
	Late		l = {.ms = ms,.wanted = wanted};

	(void) gk_parallel_for(&t->host, 8, late, &l);
	return l.threads;
}

/* All 8 may run, in one of some loops. */
static bool
all_run(const TestHost *t)
{
	for (int i = 0; i < 40; i++)
	{
		if (threads_of(t, 0, 8) == 8)
			return true;
		nanosleep(&(struct timespec) {0, 100000000}, NULL);
	}
	return false;
}

int
main(void)
{
	static const int counts[] = {0, 1, 2, 3, 7, 64, JOBS};
	int			bad = 0;
	TestHost	t;
	Work		w;

	for (int threads = 1; threads <= 16; threads++)
	{
		test_host_init(&t, threads);
		for (int i = 0; i < 7; i++)
			for (int again = 0; again < 20; again++)
				bad += !run(&t, counts[i], &w) + wrong(&w, counts[i]);
	}
	ok(bad == 0, "every job once, on threads of its own, with signals blocked (%d wrong)", bad);

	bad = 0;
	test_host_init(&t, 4);
	for (int again = 0; again < 20000; again++)
		bad += !run(&t, 5, &w) + wrong(&w, 5);
	ok(bad == 0, "20,000 loops of 5 jobs (%d wrong)", bad);

	{
		pid_t		other[2];

		bad = tiny_loops(10000);
		ok(bad == 0 && by_helpers > 0,
		   "60,000 tiny loops of 2 to 32 threads, loops inside, stops; arguments spoilt after each (%d wrong)", bad);
		printf("# %d jobs by helpers\n", by_helpers);
		contend(other, true);
		bad = tiny_loops(1000);
		contend(other, false);
		ok(bad == 0, "6,000 of them while others want the CPUs (%d wrong)", bad);
		ok(forked() == 0, "and in a child, which has no helpers");
	}

	test_host_init(&t, 4);
	t.stopped = 0;
	memset(&w, 0, sizeof(w));
	w.host = &t.host;
	w.threads = 4;
	w.main = pthread_self();
	w.stop_after = &t;
	bad = gk_parallel_for(&t.host, JOBS, one, &w);
	ok(!bad && w.count >= 10 && w.count <= 10 + 4,
	   "a stop ends the loop: %d jobs of %d ran", w.count, JOBS);
	test_host_init(&t, 4);
	ok(run(&t, JOBS, &w) && wrong(&w, JOBS) == 0, "and the next runs");

	/* late threads are fewer in the next regions, and then more again */
	{
		int			most[5];
		bool		grows = false;

		Late		two = {.ms = 900};

		t.host.threads = 8;
		all_run(&t);
		(void) gk_parallel_for(&t.host, 2, late, &two);
		most[0] = threads_of(&t, 0, 2);
		ok(two.threads == 2 && most[0] > 1, "a loop of two jobs that waits says nothing of eight threads (%d)", most[0]);
		all_run(&t);
		for (int i = 0; i < 4; i++)
			most[i] = threads_of(&t, 200, 8 >> i);
		most[4] = threads_of(&t, 0, 0);
		for (int i = 0; i < 100 && !grows; i++)
		{
			nanosleep(&(struct timespec) {0, 20000000}, NULL);
			grows = threads_of(&t, 0, 0) > 1;
		}
		ok(most[0] > 4 && most[1] <= 4 && most[2] <= 2 && most[3] == 1 && most[4] == 1 && grows,
		   "threads that are waited for are halved for a while (%d, %d, %d, %d, %d)",
		   most[0], most[1], most[2], most[3], most[4]);
	}

	test_two();
	t.host.threads = 0;
	ok(gk_threads(&t.host) >= 1, "by default %d threads", gk_threads(&t.host));
	return done_testing();
}
