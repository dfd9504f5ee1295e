/*
 * pg_thread_host.h - hosts for small engine jobs, one on each thread.
 *
 * They know memory and the stop flag, nothing of PostgreSQL.
 */
#ifndef GKMEANS_THREAD_HOST_H
#define GKMEANS_THREAD_HOST_H

#include "core/gk_core.h"

typedef struct GkThreadHosts GkThreadHosts;

/* One for each of the engine's threads; gone with the current memory context. */
extern GkThreadHosts *gk_thread_hosts(const GkHost *engine);
extern const GkHost *gk_thread_host(GkThreadHosts *hosts, int thread);
/* What lives as long as the hosts; NULL: out of memory. */
extern void *gk_thread_keep(GkThreadHosts *hosts, int thread, size_t bytes);
/* An error to be raised later; NULL: there is no memory for it. */
extern GkError *gk_thread_keep_error(GkThreadHosts *hosts, int thread, const GkError *err);
/* What the thread's host has given out so far; all that came later is free again. */
typedef struct GkThreadMark
{
	const void *block;
	size_t		used;
} GkThreadMark;

extern GkThreadMark gk_thread_mark(GkThreadHosts *hosts, int thread);
extern void gk_thread_reset(GkThreadHosts *hosts, int thread, GkThreadMark mark);

#endif							/* GKMEANS_THREAD_HOST_H */
