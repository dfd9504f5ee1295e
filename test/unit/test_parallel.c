/*
 * The parallel loop: every job once, whatever the number of threads; stopping, loops
 * in loops, signals.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
		w->bad++;
	w->done[job]++;
	if (job % 100 == 0)
		gk_parallel_for(w->host, 3, inner, w);
	if (w->stop_after != NULL && __atomic_add_fetch(&w->count, 1, __ATOMIC_RELAXED) == 10)
		w->stop_after->stopped = 1;
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

static int
wrong(const Work *w, int jobs)
{
	int			n = w->bad + (w->inner != 3 * ((jobs + 99) / 100));

	for (int i = 0; i < JOBS; i++)
		n += w->done[i] != (i < jobs);
	return n;
}

/* Jobs of all threads but the calling one take so many milliseconds; how many there were. */
typedef struct Late
{
	int			ms;
	int			threads;
} Late;

static void
late(void *arg, int64_t job, int thread)
{
	Late	   *l = arg;
	int			seen = __atomic_load_n(&l->threads, __ATOMIC_RELAXED);
	struct timespec nap = {0, l->ms * 1000000L};

	(void) job;
	while (thread + 1 > seen && !__atomic_compare_exchange_n(&l->threads, &seen, thread + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	nanosleep(thread > 0 ? &nap : &(struct timespec) {0, 5000000}, NULL);
}

static int
threads_of(const TestHost *t, int ms)
{
	Late		l = {.ms = ms};

	(void) gk_parallel_for(&t->host, 8, late, &l);
	return l.threads;
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

		t.host.threads = 8;
		for (int i = 0; i < 40 && threads_of(&t, 0) < 8; i++)
			nanosleep(&(struct timespec) {0, 100000000}, NULL);
		for (int i = 0; i < 4; i++)
			most[i] = threads_of(&t, 200);
		most[4] = threads_of(&t, 0);
		for (int i = 0; i < 100 && !grows; i++)
		{
			nanosleep(&(struct timespec) {0, 20000000}, NULL);
			grows = threads_of(&t, 0) > 1;
		}
		ok(most[0] > 4 && most[1] <= 4 && most[2] <= 2 && most[3] == 1 && most[4] == 1 && grows,
		   "threads that are waited for are halved for a while (%d, %d, %d, %d, %d)",
		   most[0], most[1], most[2], most[3], most[4]);
	}

	t.host.threads = 0;
	ok(gk_threads(&t.host) >= 1, "by default %d threads", gk_threads(&t.host));
	return done_testing();
}
