/*
 * gk_mem.c - allocation through the host.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/gk_core.h"
#include "core/base/gk_mem.h"
#include "core/base/gk_sizes.h"

/* What may be left over of the last huge page of a block. */
#define SPARE(bytes)	((bytes) / 64)
/* Fewer threads do not need the bandwidth of several nodes, and memory nearby is faster. */
#define SPREAD_THREADS	8

/* Bytes of a block's huge pages: the last one counts as whole if at most SPARE() of it is left over. */
static size_t
huge_bytes(size_t bytes)
{
	size_t		rest = bytes % GK_HUGE_PAGE;
	bool		nearly = rest > 0 && GK_HUGE_PAGE - rest <= SPARE(bytes);

	return bytes - rest + (nearly ? GK_HUGE_PAGE : 0);
}

/*
 * Columns are read as several streams, and one that has to stop at every 4 kB page
 * gets half of the memory's bandwidth; finding such pages takes as long as filling
 * them.  Only a hint: no effect where the system gives huge pages always or never.
 */
void
gk_huge_pages(void *base, size_t bytes)
{
#ifdef MADV_HUGEPAGE
	uintptr_t	from = ((uintptr_t) base + GK_HUGE_PAGE - 1) & ~(GK_HUGE_PAGE - 1);
	uintptr_t	to = ((uintptr_t) base + bytes) & ~(GK_HUGE_PAGE - 1);

	if (bytes >= GK_HUGE_PAGE && from < to)
		(void) madvise((void *) from, to - from, MADV_HUGEPAGE);
#endif
}

static void
prepare_huge(const GkHost *host, void *block, size_t bytes)
{
	gk_huge_pages(block, huge_bytes(bytes));
	if (gk_threads(host) >= SPREAD_THREADS)
		gk_numa_spread(block, huge_bytes(bytes));
}

/*
 * Aligns to cache lines, or to huge pages if the block takes some; the host's allocator may
 * align to less.  The pointer to give back lies just below the block.
 */
void *
gk_alloc(const GkHost *host, size_t count, size_t size)
{
	size_t		bytes;
	size_t		alignment;
	size_t		whole;
	char	   *base;
	uintptr_t	at;

	if (__builtin_mul_overflow(count, size, &bytes))
		return NULL;
	if (host->keep && bytes >= GK_HUGE_PAGE)
	{
		void	   *kept = gk_mem_pool_reuse(host->ctx, bytes);

		if (kept != NULL)
			return kept;
	}
	alignment = bytes < GK_HUGE_PAGE ? GK_CACHE_LINE : GK_HUGE_PAGE;
	if (__builtin_add_overflow(bytes, SPARE(bytes) + alignment + sizeof(void *), &whole))
		return NULL;
	base = host->alloc(host->ctx, whole);
	if (base == NULL && gk_mem_pool_release())
		base = host->alloc(host->ctx, whole);
	if (base == NULL)
		return NULL;
	at = ((uintptr_t) base + sizeof(void *) + alignment - 1) & ~(uintptr_t) (alignment - 1);
	((void **) at)[-1] = base;
	if (alignment == GK_HUGE_PAGE)
		prepare_huge(host, (void *) at, bytes);
	return (void *) at;
}

void *
gk_alloc_kept(const GkHost *host, size_t bytes)
{
	bool		warm;
	void	   *block;

	if (!host->keep || bytes < GK_HUGE_PAGE)
		return gk_alloc(host, bytes, 1);
	block = gk_mem_pool_take(host->ctx, bytes, &warm);
	/* memory from an earlier job is as the system gave it then */
	if (block != NULL && !warm)
		prepare_huge(host, block, bytes);
	return block;
}

void *
gk_alloc0(const GkHost *host, size_t count, size_t size)
{
	void	   *p = gk_alloc(host, count, size);

	if (p != NULL)
		memset(p, 0, count * size);
	return p;
}

/* Bytes that are cleared between two looks. */
#define CLEAR_BYTES		((size_t) 8 << 20)

void *
gk_alloc0_large(const GkHost *host, size_t count, size_t size, bool *stopped)
{
	char	   *p = gk_alloc(host, count, size);
	size_t		bytes = count * size;

	for (size_t at = 0; p != NULL && at < bytes; at += CLEAR_BYTES)
	{
		if (gk_host_stops(host))
		{
			gk_free(host, p);
			*stopped = true;
			return NULL;
		}
		memset(p + at, 0, bytes - at < CLEAR_BYTES ? bytes - at : CLEAR_BYTES);
	}
	return p;
}

void
gk_free(const GkHost *host, void *ptr)
{
	if (ptr == NULL)
		return;
	if (!host->keep || (uintptr_t) ptr % GK_HUGE_PAGE != 0 || !gk_mem_pool_give(ptr))
		host->free(host->ctx, ((void **) ptr)[-1]);
}

/* ---- memory that will be filled soon ---- */

#ifdef MADV_POPULATE_WRITE

typedef struct Soon
{
	char	   *from;
	size_t		bytes;
} Soon;

/* Have the system find the pages; contents stay.  It refuses addresses that are unmapped by then. */
static void *
populate(void *arg)
{
	Soon		s = *(Soon *) arg;

	free(arg);
	for (size_t n; s.bytes > 0; s.from += n, s.bytes -= n)
	{
		n = s.bytes < GK_HUGE_PAGE ? s.bytes : GK_HUGE_PAGE;
		if (madvise(s.from, n, MADV_POPULATE_WRITE) != 0)
			break;
	}
	return NULL;
}

/* Start a thread that populates a range; signals stay with the host's main thread. */
static void
populate_soon(uintptr_t from, size_t bytes)
{
	Soon	   *s = malloc(sizeof(Soon));
	pthread_attr_t attr;
	pthread_t	thread;
	sigset_t	all;
	sigset_t	own;

	if (s == NULL)
		return;
	*s = (Soon) {(char *) from, bytes};
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &own);
	if (pthread_create(&thread, &attr, populate, s) != 0)
		free(s);
	pthread_sigmask(SIG_SETMASK, &own, NULL);
	pthread_attr_destroy(&attr);
}

#endif

/* One of two, two of up to seven, then a quarter. */
int
gk_soon_threads(const GkHost *host)
{
	int			all = gk_threads(host);

	return all <= 2 ? 1 : all < 8 ? 2 : all / 4;
}

void
gk_alloc_soon(const GkHost *host, void *ptr, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
	uintptr_t	from = (uintptr_t) ptr;
	uintptr_t	to = from + huge_bytes(bytes);
	int			threads = gk_soon_threads(host);
	size_t		piece;

	if (bytes < GK_HUGE_PAGE || (host->keep && gk_mem_pool_warm(ptr)))
		return;
	piece = ((to - from) / GK_HUGE_PAGE + threads - 1) / threads * GK_HUGE_PAGE;
	for (; from < to; from += piece)
		populate_soon(from, to - from < piece ? to - from : piece);
#else
	(void) host;
	(void) ptr;
	(void) bytes;
#endif
}
