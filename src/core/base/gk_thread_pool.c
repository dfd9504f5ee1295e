/*
 * gk_thread_pool.c - helper threads: made when a loop first asks for them, asleep between loops.
 *
 * Where the system refuses a thread, the loop goes on with those that there are: OpenMP
 * would end the process.  In a server process the main thread handles the signals, so helpers
 * start with the usual ones blocked.
 *
 * A loop has seats for its helpers.  A helper takes one when it wakes up, and the first
 * thread that finds nothing left to do removes the free ones; the caller waits only for
 * helpers in seats.  So a helper that the system wakes late delays no other thread.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/gk_core.h"
#include "core/base/gk_sizes.h"
#include "core/base/gk_thread_pool.h"

/* Free seats, and helpers in seats, in one word. */
#define SEAT			((uint32_t) 1 << 16)
#define SITTING			(SEAT - 1)

/* Looks at the word before yielding the CPU; milliseconds before a thread sleeps. */
#define LOOKS			64
#define AWAKE_MS		0.2
/* Do not ask again for this long after the system has refused a thread. */
#define REFUSED_MS		1000

/* A thread that waits. */
typedef struct Bell
{
	bool		asleep;
	sem_t		ring;
	char		apart[GK_CACHE_LINE];
} Bell;

typedef struct Helper
{
	int			number;			/* from 1; the caller is 0 */
	Bell		bell;
} Helper;

static struct
{
	uint32_t	gate;
	char		apart[GK_CACHE_LINE];
	bool		busy;
	bool		ready;			/* the caller's bell */
	int			helpers;
	double		refused_until;
	int			seats;			/* of the loop at hand */
	GkPoolWork	work;
	void	   *arg;
	Bell		caller;
	Helper	   *helper[GK_POOL_THREADS];
}			pool;

/* ---- waiting ---- */

static bool
is_open(void)
{
	return __atomic_load_n(&pool.gate, __ATOMIC_SEQ_CST) >= SEAT;
}

static bool
is_empty(void)
{
	return (__atomic_load_n(&pool.gate, __ATOMIC_SEQ_CST) & SITTING) == 0;
}

static bool
look(bool (*done) (void))
{
	for (int i = 0; i < LOOKS; i++)
	{
		if (done())
			return true;
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	}
	return false;
}

static void
wait_until(Bell *bell, bool (*done) (void))
{
	double		until;

	if (look(done))
		return;
	until = gk_now_ms() + AWAKE_MS;
	do
	{
		sched_yield();
		if (look(done))
			return;
	} while (gk_now_ms() < until);
	while (!done())
	{
		__atomic_store_n(&bell->asleep, true, __ATOMIC_SEQ_CST);
		/* a thread that was done before the mark does not ring; one that rings removes the mark */
		if (done() && __atomic_exchange_n(&bell->asleep, false, __ATOMIC_SEQ_CST))
			return;
		while (sem_wait(&bell->ring) != 0)
			;
	}
}

static void
ring(Bell *bell)
{
	if (__atomic_load_n(&bell->asleep, __ATOMIC_SEQ_CST) &&
		__atomic_exchange_n(&bell->asleep, false, __ATOMIC_SEQ_CST))
		sem_post(&bell->ring);
}

/* ---- a loop ---- */

/* Wake two more helpers: a thread that woke all would come late to its own work. */
static void
ring_next(int number)
{
	for (int i = 2 * number + 1; i <= 2 * number + 2 && i <= pool.seats; i++)
		ring(&pool.helper[i]->bell);
}

/* Take a seat and return its number, from 1; 0: none is free. */
static int
sit_down(void)
{
	uint32_t	gate = __atomic_load_n(&pool.gate, __ATOMIC_RELAXED);

	while (gate >= SEAT)
		if (__atomic_compare_exchange_n(&pool.gate, &gate, gate - SEAT + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return (int) (gate / SEAT);
	return 0;
}

static void
remove_free_seats(void)
{
	__atomic_fetch_and(&pool.gate, SITTING, __ATOMIC_ACQ_REL);
}

static void
stand_up(void)
{
	if ((__atomic_sub_fetch(&pool.gate, 1, __ATOMIC_SEQ_CST) & SITTING) == 0)
		ring(&pool.caller);
}

static void *
help(void *arg)
{
	Helper	   *h = arg;

	for (;;)
	{
		int			seat;

		wait_until(&h->bell, is_open);
		seat = sit_down();
		if (seat == 0)
			continue;
		ring_next(h->number);
		pool.work(pool.arg, seat);
		remove_free_seats();
		stand_up();
	}
	return NULL;
}

/* ---- making helpers ---- */

void
gk_block_signals(sigset_t *own)
{
	sigset_t	mask;

	sigfillset(&mask);
	sigdelset(&mask, SIGABRT);
	sigdelset(&mask, SIGBUS);
	sigdelset(&mask, SIGFPE);
	sigdelset(&mask, SIGILL);
	sigdelset(&mask, SIGSEGV);
	sigdelset(&mask, SIGTRAP);
	pthread_sigmask(SIG_BLOCK, &mask, own);
}

static bool
make_bell(Bell *bell)
{
	bell->asleep = false;
	return sem_init(&bell->ring, 0, 0) == 0;
}

static bool
make_helper(void)
{
	Helper	   *h = calloc(1, sizeof(Helper));
	pthread_t	thread;
	sigset_t	own;
	bool		made;

	if (h == NULL)
		return false;
	h->number = pool.helpers + 1;
	made = make_bell(&h->bell);
	if (made)
	{
		gk_block_signals(&own);
		made = pthread_create(&thread, NULL, help, h) == 0;
		pthread_sigmask(SIG_SETMASK, &own, NULL);
	}
	if (!made)
	{
		free(h);
		return false;
	}
	pthread_detach(thread);
	pool.helper[++pool.helpers] = h;
	return true;
}

/* Make helpers up to `wanted`, as far as the system allows; return how many there are. */
static int
have_helpers(int wanted)
{
	if (pool.helpers < wanted && gk_now_ms() >= pool.refused_until)
	{
		if (!pool.ready)
			pool.ready = make_bell(&pool.caller);
		while (pool.ready && pool.helpers < wanted && make_helper())
			;
		if (pool.helpers < wanted)
			pool.refused_until = gk_now_ms() + REFUSED_MS;
	}
	return pool.helpers < wanted ? pool.helpers : wanted;
}

bool
gk_pool_busy(void)
{
	return __atomic_load_n(&pool.busy, __ATOMIC_RELAXED);
}

bool
gk_pool_run(int threads, GkPoolWork work, void *arg)
{
	if (__atomic_exchange_n(&pool.busy, true, __ATOMIC_ACQUIRE))
		return false;
	pool.seats = have_helpers((threads < GK_POOL_THREADS ? threads : GK_POOL_THREADS) - 1);
	if (pool.seats > 0)
	{
		pool.work = work;
		pool.arg = arg;
		__atomic_store_n(&pool.gate, pool.seats * SEAT, __ATOMIC_SEQ_CST);
		ring_next(0);
		work(arg, 0);
		remove_free_seats();
		wait_until(&pool.caller, is_empty);
	}
	threads = pool.seats;
	__atomic_store_n(&pool.busy, false, __ATOMIC_RELEASE);
	return threads > 0;
}
