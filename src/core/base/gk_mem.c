/*
 * gk_mem.c - allocation through the host, errors, the clock.
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/gk_core.h"
#include "core/base/gk_mem_pool.h"
#include "core/base/gk_mem.h"
#include "core/base/gk_numa.h"

#define ALIGNMENT	64
#define HUGE_PAGE	((uintptr_t) 2 << 20)
/* What may be left over of the last huge page of so many bytes. */
#define SPARE(bytes)	((bytes) / 64)
/* Fewer threads do not need the bandwidth of several nodes, and memory nearby is faster. */
#define SPREAD_THREADS	8

/* Bytes of the huge pages of a block: the last one is whole if next to nothing of it is left over. */
static size_t
huge_bytes(size_t bytes)
{
	size_t		rest = bytes % HUGE_PAGE;
	bool		nearly = rest > 0 && HUGE_PAGE - rest <= SPARE(bytes);

	return bytes - rest + (nearly ? HUGE_PAGE : 0);
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
	uintptr_t	from = ((uintptr_t) base + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	uintptr_t	to = ((uintptr_t) base + bytes) & ~(HUGE_PAGE - 1);

	if (bytes >= HUGE_PAGE && from < to)
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
 * Aligned to cache lines, or to huge pages if it takes some, whatever the host's allocator
 * aligns to.  The pointer to give back lies just below the block.
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
	if (host->keep && bytes >= HUGE_PAGE)
	{
		void	   *kept = gk_mem_pool_reuse(host->ctx, bytes);

		if (kept != NULL)
			return kept;
	}
	alignment = bytes < HUGE_PAGE ? ALIGNMENT : HUGE_PAGE;
	if (__builtin_add_overflow(bytes, SPARE(bytes) + alignment + sizeof(void *), &whole))
		return NULL;
	base = host->alloc(host->ctx, whole);
	if (base == NULL)
		return NULL;
	at = ((uintptr_t) base + sizeof(void *) + alignment - 1) & ~(uintptr_t) (alignment - 1);
	((void **) at)[-1] = base;
	if (alignment == HUGE_PAGE)
		prepare_huge(host, (void *) at, bytes);
	return (void *) at;
}

void *
gk_alloc_kept(const GkHost *host, size_t bytes)
{
	bool		warm;
	void	   *block;

	if (!host->keep || bytes < HUGE_PAGE)
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

void
gk_free(const GkHost *host, void *ptr)
{
	if (ptr == NULL)
		return;
	if (!host->keep || (uintptr_t) ptr % HUGE_PAGE != 0 || !gk_mem_pool_give(ptr))
		host->free(host->ctx, ((void **) ptr)[-1]);
}

/* ---- memory that will be needed soon ---- */

#ifdef MADV_POPULATE_WRITE

typedef struct Soon
{
	char	   *from;
	size_t		bytes;
} Soon;

/* Contents stay what they are, and of what is gone again by then the system says so. */
static void *
populate(void *arg)
{
	Soon		s = *(Soon *) arg;

	free(arg);
	for (size_t n; s.bytes > 0; s.from += n, s.bytes -= n)
	{
		n = s.bytes < HUGE_PAGE ? s.bytes : HUGE_PAGE;
		if (madvise(s.from, n, MADV_POPULATE_WRITE) != 0)
			break;
	}
	return NULL;
}

/* A thread that populates some of it; the host's signals are its main thread's. */
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

	if (bytes < HUGE_PAGE || (host->keep && gk_mem_pool_warm(ptr)))
		return;
	piece = ((to - from) / HUGE_PAGE + threads - 1) / threads * HUGE_PAGE;
	for (; from < to; from += piece)
		populate_soon(from, to - from < piece ? to - from : piece);
#else
	(void) host;
	(void) ptr;
	(void) bytes;
#endif
}

GkStatus
gk_fail(GkError *err, GkStatus code, const char *fmt,...)
{
	va_list		ap;

	err->code = code;
	err->detail[0] = err->hint[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	return code;
}

double
gk_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e3 + (double) t.tv_nsec * 1e-6;
}
