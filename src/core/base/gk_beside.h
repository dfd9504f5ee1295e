/*
 * gk_beside.h - one task of the process on a thread of its own, beside what the main thread does.
 *
 * The thread is the process's, not a job's: a job that ends, perhaps by an error, leaves it
 * alone.  So a task uses nothing that a job owns and calls nothing of a host.  It cannot be
 * stopped: the main thread waits for its end where it needs what the task finds out, and before the
 * process exits.
 *
 * All functions but the task are the main thread's.
 */
#ifndef GK_BESIDE_H
#define GK_BESIDE_H

#include "core/gk_core.h"

typedef void (*GkBesideTask) (void);

/* Begin a task after the one before has ended.  Where the system refuses a thread it is done at once. */
void		gk_beside_start(GkBesideTask task);

/* Is it at work?  Without a task: false. */
bool		gk_beside_running(void);

/* Have it do this at its end, too.  False: it has ended. */
bool		gk_beside_then(GkBesideTask task);

/* Wait for its end.  False: the host asked to stop, and it is still at work. */
bool		gk_beside_wait(const GkHost *host);

/* The same, but for `ms` milliseconds at most. */
bool		gk_beside_wait_ms(double ms);

#endif							/* GK_BESIDE_H */
