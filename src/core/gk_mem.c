/*
 * gk_mem.c - allocation through the host, errors, the clock.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/gk_core.h"

#define ALIGNMENT	64
#define HUGE_PAGE	((uintptr_t) 2 << 20)

/*
 * Columns are read as several streams, and one that has to stop at every 4 kB page
 * gets half of the memory's bandwidth; finding such pages takes as long as filling
 * them.  Only a hint: no effect where the system gives huge pages always or never.
 */
static void
ask_huge_pages(char *base, size_t bytes)
{
#ifdef MADV_HUGEPAGE
	uintptr_t	from = ((uintptr_t) base + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	uintptr_t	to = ((uintptr_t) base + bytes) & ~(HUGE_PAGE - 1);

	if (bytes >= HUGE_PAGE && from < to)
		(void) madvise((void *) from, to - from, MADV_HUGEPAGE);
#endif
}

/*
 * Cache-line aligned, whatever the host's allocator aligns to.  The pointer to
 * give back lies just below the block.
 */
void *
gk_alloc(const GkHost *host, size_t count, size_t size)
{
	size_t		bytes;
	char	   *base;
	uintptr_t	at;

	if (__builtin_mul_overflow(count, size, &bytes) ||
		__builtin_add_overflow(bytes, (size_t) (ALIGNMENT + sizeof(void *)), &bytes))
		return NULL;
	base = host->alloc(host->ctx, bytes);
	if (base == NULL)
		return NULL;
	ask_huge_pages(base, bytes);
	at = ((uintptr_t) base + sizeof(void *) + ALIGNMENT - 1) & ~(uintptr_t) (ALIGNMENT - 1);
	((void **) at)[-1] = base;
	return (void *) at;
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
	if (ptr != NULL)
		host->free(host->ctx, ((void **) ptr)[-1]);
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
