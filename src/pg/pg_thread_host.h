/*
 * pg_thread_host.h - hosts for small engine jobs, one on each thread.
 *
 * They know memory and the stop flag, nothing of PostgreSQL.
 */
#ifndef PG_THREAD_HOST_H
#define PG_THREAD_HOST_H

#include "core/gk_core.h"

typedef struct KmThreadHosts KmThreadHosts;

/* One for each of the engine's threads; gone with the current memory context. */
extern KmThreadHosts *km_thread_hosts(const GkHost *engine);
extern const GkHost *km_thread_host(KmThreadHosts *hosts, int thread);
/* What lives as long as the hosts; NULL: out of memory. */
extern void *km_thread_keep(KmThreadHosts *hosts, int thread, size_t bytes);
/* An error to be raised later; NULL: there is no memory for it. */
extern GkError *km_thread_keep_error(KmThreadHosts *hosts, int thread, const GkError *err);
/* What the thread's host has given out so far; all that came later is free again. */
typedef struct KmThreadMark
{
	const void *block;
	size_t		used;
} KmThreadMark;

extern KmThreadMark km_thread_mark(KmThreadHosts *hosts, int thread);
extern void km_thread_reset(KmThreadHosts *hosts, int thread, KmThreadMark mark);

#endif							/* PG_THREAD_HOST_H */
