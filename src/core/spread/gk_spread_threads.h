/*
 * gk_spread_threads.h - a thread for each device, and the main thread beside them.
 *
 * A device's thread calls everything of that device, from its opening to its end: CUDA has a
 * current device for each thread.  Only the main thread may call the host, so it makes such calls
 * for the others while it waits for them.  It does not poll then: a server process that is to end
 * does so in the poll, and its memory goes while the others use it.  They look at the host's flag.
 */
#ifndef GK_SPREAD_THREADS_H
#define GK_SPREAD_THREADS_H

#include <pthread.h>

#include "core/gk_core.h"

typedef void (*GkSpreadTask) (void *arg, int device);
typedef bool (*GkSpreadCall) (void *arg);

typedef struct GkSpreadThreads
{
	const GkHost *host;
	int			n;
	int			made;
	pthread_t  *thread;			/* [n] */
	struct GkSpreadSeat *seat;	/* [n] a thread's argument */
	pthread_mutex_t lock;
	pthread_cond_t work;		/* for the devices' threads */
	pthread_cond_t news;		/* for the main thread */
	pthread_cond_t answer;		/* for a thread whose call was made */
	unsigned	turn;			/* of tasks; threads do each once */
	int			running;		/* threads that have not ended the task */
	bool		ending;
	GkSpreadTask task;
	void	   *arg;
	/* A call for the main thread. */
	GkSpreadCall call;			/* NULL: none waits */
	void	   *call_arg;
	bool		called;			/* it was made */
	bool		result;
	bool		asking;			/* a thread has the place above */
} GkSpreadThreads;

/* Start n threads, or none. */
GkStatus	gk_spread_threads_start(GkSpreadThreads *t, const GkHost *host, int n, GkError *err);

/* Main thread: have each thread do task(arg, device), and return when all have. */
void		gk_spread_threads_run(GkSpreadThreads *t, GkSpreadTask task, void *arg);

/* A device's thread: have the main thread make a call; false: not made, or it returned that. */
bool		gk_spread_threads_call(GkSpreadThreads *t, GkSpreadCall call, void *arg);

void		gk_spread_threads_end(GkSpreadThreads *t);

#endif							/* GK_SPREAD_THREADS_H */
