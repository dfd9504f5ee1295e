/*
 * rel_prefetch.h - memory of pages on its way into the CPU's cache while others are read.
 */
#ifndef REL_PREFETCH_H
#define REL_PREFETCH_H

#include "storage/bufpage.h"

#include "core/base/gk_sizes.h"

/*
 * Memory to have on its way into the CPU's cache.  A CPU waits for a dozen lines at a
 * time: asked for all at once they come no sooner, and nothing is done meanwhile.
 */
typedef struct KmPrefetch
{
	const char *next;
	const char *end;
} KmPrefetch;

/* Ask for some bytes of what is left; soon: there is not much to do before they are read. */
static inline void
km_prefetch_bytes(KmPrefetch *ahead, Size bytes, bool soon)
{
	for (const char *end = Min(ahead->next + bytes, ahead->end); ahead->next < end; ahead->next += GK_CACHE_LINE)
		if (soon)
			__builtin_prefetch(ahead->next);
		else
			__builtin_prefetch(ahead->next, 0, 2);	/* the first-level cache would have lost it by then */
}

/* Ask for one of some parts of it. */
static inline void
km_prefetch_part(KmPrefetch *ahead, int parts, bool soon)
{
	km_prefetch_bytes(ahead, (ahead->end - ahead->next) / parts, soon);
}

/* Ask for what is left. */
static inline void
km_prefetch_rest(KmPrefetch *ahead)
{
	km_prefetch_part(ahead, 1, true);
}

/*
 * All of a page: rows lie backwards, and each one would be waited for.  Of memory that
 * this process has not seen before nothing is prefetched, so look at it first.
 */
static inline KmPrefetch
km_prefetch_page(Page page)
{
	(void) *(volatile const char *) page;
	(void) *((volatile const char *) page + BLCKSZ - 1);
	return (KmPrefetch) {(const char *) page, (const char *) page + BLCKSZ};
}

#endif							/* REL_PREFETCH_H */
