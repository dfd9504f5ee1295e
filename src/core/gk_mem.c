/*
 * gk_mem.c - allocation through the host, errors, the clock.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/gk_core.h"

#define ALIGNMENT	64

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
