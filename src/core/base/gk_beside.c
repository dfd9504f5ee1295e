/*
 * gk_beside.c - one task of the process on a thread of its own (gk_beside.h).
 *
 * One word says how far the thread is.  The main thread looks at it every now and then, since it
 * has to look at its host as well.
 */
#include <pthread.h>
#include <time.h>

#include "core/base/gk_beside.h"
#include "core/base/gk_thread_pool.h"

/* Between two looks. */
#define LOOK_NS			200000

typedef enum State
{
	ENDED, AT_WORK, THEN		/* at work, and one more task comes after it */
} State;

static int	state;
static bool made;				/* the thread is to be joined */
static pthread_t thread;
static GkBesideTask first;
static GkBesideTask then;

static void *
work(void *arg)
{
	int			was = AT_WORK;

	(void) arg;
	first();
	if (!__atomic_compare_exchange_n(&state, &was, ENDED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
	{
		then();
		__atomic_store_n(&state, ENDED, __ATOMIC_RELEASE);
	}
	return NULL;
}

bool
gk_beside_running(void)
{
	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != ENDED)
		return true;
	/* it has nothing left to do but to go */
	if (made)
		pthread_join(thread, NULL);
	made = false;
	return false;
}

void
gk_beside_start(GkBesideTask task)
{
	sigset_t	own;

	(void) gk_beside_wait(NULL);
	first = task;
	__atomic_store_n(&state, AT_WORK, __ATOMIC_RELEASE);
	gk_block_signals(&own);
	made = pthread_create(&thread, NULL, work, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &own, NULL);
	if (!made)
		(void) work(NULL);
}

bool
gk_beside_then(GkBesideTask task)
{
	int			was = AT_WORK;

	then = task;
	return __atomic_compare_exchange_n(&state, &was, THEN, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || was == THEN;
}

static void
sleep_until_next_look(void)
{
	struct timespec nap = {0, LOOK_NS};

	nanosleep(&nap, NULL);
}

/* A host may be unable to serve an interrupt now: it does not poll it then, but shows it. */
static bool
asked_to_stop(const GkHost *host)
{
	return host != NULL && ((host->poll != NULL && host->poll(host->ctx)) || gk_host_stops(host));
}

bool
gk_beside_wait(const GkHost *host)
{
	for (; gk_beside_running(); sleep_until_next_look())
		if (asked_to_stop(host))
			return false;
	return true;
}

bool
gk_beside_wait_ms(double ms)
{
	for (double end = gk_now_ms() + ms; gk_beside_running(); sleep_until_next_look())
		if (gk_now_ms() >= end)
			return false;
	return true;
}
