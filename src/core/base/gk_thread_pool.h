/*
 * gk_thread_pool.h - helper threads of the process, which stay for its next loop.
 */
#ifndef GK_THREAD_POOL_H
#define GK_THREAD_POOL_H

#include <signal.h>
#include <stdbool.h>

#define GK_POOL_THREADS		1024

/* Do what is left of the work, together with the other threads. */
typedef void (*GkPoolWork) (void *arg, int thread);

/*
 * Call work(arg, 0) here and work(arg, 1..threads-1) on helpers, as far as the system lets
 * them be and they come before the work is done; return when all calls have.  False: there
 * is no helper, or the pool is busy: nothing was called.
 */
bool		gk_pool_run(int threads, GkPoolWork work, void *arg);

/* For a new thread: block all signals but those that report an error of the running thread itself. */
void		gk_block_signals(sigset_t *own);

/* Inside of a call, on any thread. */
bool		gk_pool_busy(void);

#endif							/* GK_THREAD_POOL_H */
