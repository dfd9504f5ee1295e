/*
 * gk_spread_threads.c - a thread for each device (gk_spread_threads.h).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <string.h>
#include <time.h>

#include "core/base/gk_thread_pool.h"
#include "core/spread/gk_spread_threads.h"

/* Threads look this long for the next task, or its end, before they sleep: as long as a short pass takes. */
#define AWAKE_MS		1.0
/* The main thread looks again after as many milliseconds, should it have missed the news. */
#define SLEEP_MS		50

typedef struct GkSpreadSeat
{
	GkSpreadThreads *of;
	int			device;
} GkSpreadSeat;

/* ---- the devices' threads ---- */

static bool
turned(const GkSpreadThreads *t, unsigned seen)
{
	return __atomic_load_n(&t->turn, __ATOMIC_ACQUIRE) != seen;
}

static void
wait_for_turn(GkSpreadThreads *t, unsigned seen)
{
	for (double until = gk_now_ms() + AWAKE_MS; gk_now_ms() < until; sched_yield())
		if (turned(t, seen))
			return;
	pthread_mutex_lock(&t->lock);
	while (!turned(t, seen))
		pthread_cond_wait(&t->work, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

static void *
serve(void *arg)
{
	const GkSpreadSeat *seat = arg;
	GkSpreadThreads *t = seat->of;

	for (unsigned seen = 0;; seen++)
	{
		wait_for_turn(t, seen);
		if (t->ending)
			return NULL;
		t->task(t->arg, seat->device);
		pthread_mutex_lock(&t->lock);
		if (__atomic_sub_fetch(&t->running, 1, __ATOMIC_RELEASE) == 0)
			pthread_cond_signal(&t->news);
		pthread_mutex_unlock(&t->lock);
	}
}

bool
gk_spread_threads_call(GkSpreadThreads *t, GkSpreadCall call, void *arg)
{
	bool		result;

	pthread_mutex_lock(&t->lock);
	while (t->asking)
		pthread_cond_wait(&t->answer, &t->lock);
	t->asking = true;
	t->called = false;
	t->call_arg = arg;
	__atomic_store_n(&t->call, call, __ATOMIC_RELEASE);
	pthread_cond_signal(&t->news);
	while (!t->called)
		pthread_cond_wait(&t->answer, &t->lock);
	result = t->result;
	t->asking = false;
	pthread_cond_broadcast(&t->answer);
	pthread_mutex_unlock(&t->lock);
	return result;
}

/* ---- the main thread ---- */

static bool
ended(const GkSpreadThreads *t)
{
	return __atomic_load_n(&t->running, __ATOMIC_ACQUIRE) == 0;
}

static bool
is_asked(const GkSpreadThreads *t)
{
	return __atomic_load_n(&t->call, __ATOMIC_ACQUIRE) != NULL;
}

/* The lock is not held while the host works. */
static void
make_call(GkSpreadThreads *t)
{
	GkSpreadCall call = t->call;
	bool		result;

	result = call(t->call_arg);
	pthread_mutex_lock(&t->lock);
	__atomic_store_n(&t->call, NULL, __ATOMIC_RELAXED);
	t->result = result;
	t->called = true;
	pthread_cond_broadcast(&t->answer);
	pthread_mutex_unlock(&t->lock);
}

static void
sleep_for_news(GkSpreadThreads *t)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += SLEEP_MS * 1000000L;
	if (until.tv_nsec >= 1000000000L)
	{
		until.tv_nsec -= 1000000000L;
		until.tv_sec++;
	}
	pthread_mutex_lock(&t->lock);
	if (!ended(t) && !is_asked(t))
		pthread_cond_timedwait(&t->news, &t->lock, &until);
	pthread_mutex_unlock(&t->lock);
}

void
gk_spread_threads_run(GkSpreadThreads *t, GkSpreadTask task, void *arg)
{
	double		start = gk_now_ms();

	pthread_mutex_lock(&t->lock);
	t->task = task;
	t->arg = arg;
	t->running = t->n;
	__atomic_add_fetch(&t->turn, 1, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->lock);
	while (!ended(t))
	{
		if (is_asked(t))
			make_call(t);
		else if (gk_now_ms() - start < AWAKE_MS)
			sched_yield();
		else
			sleep_for_news(t);
	}
	/* the last one may still hold the lock */
	pthread_mutex_lock(&t->lock);
	pthread_mutex_unlock(&t->lock);
}

void
gk_spread_threads_end(GkSpreadThreads *t)
{
	if (t->thread == NULL)
		return;
	pthread_mutex_lock(&t->lock);
	t->ending = true;
	__atomic_add_fetch(&t->turn, 1, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->lock);
	for (int i = 0; i < t->made; i++)
		pthread_join(t->thread[i], NULL);
	pthread_cond_destroy(&t->answer);
	pthread_cond_destroy(&t->news);
	pthread_cond_destroy(&t->work);
	pthread_mutex_destroy(&t->lock);
	gk_free(t->host, t->thread);
	gk_free(t->host, t->seat);
	t->thread = NULL;
}

GkStatus
gk_spread_threads_start(GkSpreadThreads *t, const GkHost *host, int n, GkError *err)
{
	sigset_t	own;

	memset(t, 0, sizeof(*t));
	t->host = host;
	t->n = n;
	t->thread = gk_alloc(host, n, sizeof(pthread_t));
	t->seat = gk_alloc(host, n, sizeof(GkSpreadSeat));
	if (t->thread == NULL || t->seat == NULL)
	{
		gk_free(host, t->thread);
		gk_free(host, t->seat);
		t->thread = NULL;
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->work, NULL);
	pthread_cond_init(&t->news, NULL);
	pthread_cond_init(&t->answer, NULL);
	gk_block_signals(&own);
	while (t->made < n)
	{
		t->seat[t->made] = (GkSpreadSeat) {t, t->made};
		if (pthread_create(&t->thread[t->made], NULL, serve, &t->seat[t->made]) != 0)
			break;
		t->made++;
	}
	pthread_sigmask(SIG_SETMASK, &own, NULL);
	if (t->made == n)
		return GK_OK;
	gk_spread_threads_end(t);
	return gk_fail(err, GK_ERR_DEVICE, "could not start a thread for each of %d devices", n);
}
