/*
 * gk_mem_pool.c - large memory that a process keeps for its next job.
 *
 * Finding pages and filling them with zeros takes the system a third of the time of loading
 * a table of many columns.  A session that clusters one table after the other, or one table
 * with several k, would wait for that each time.  So large blocks stay mapped when they are
 * given back, up to a limit.  MADV_FREE tells the system that their contents are not needed:
 * if it is short of memory it takes the pages, without writing them anywhere, and finds
 * others when they are used again.
 *
 * The ranges, in the order of their addresses, are all that is mapped, in use or free.  A
 * block is cut from the end of the last free range that it fits into: the system, too, maps
 * one block below the other, so that a job like the one before finds all blocks where they
 * were.  Free neighbours are joined.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/gk_mem.h"
#include "core/base/gk_sizes.h"

typedef struct Range
{
	char	   *from;
	size_t		bytes;			/* whole huge pages */
	const void *owner;			/* NULL: free */
	bool		warm;
} Range;

static struct
{
	Range	   *range;
	int			n;
	int			allocated;
	size_t		used;
	size_t		kept;
	size_t		limit;
}			pool;

/* Make room for one more range. */
static bool
make_room(void)
{
	int			n = pool.allocated ? pool.allocated * 2 : 64;
	Range	   *grown;

	if (pool.n < pool.allocated)
		return true;
	grown = realloc(pool.range, n * sizeof(Range));
	if (grown == NULL)
		return false;
	pool.range = grown;
	pool.allocated = n;
	return true;
}

static void
insert(int at, Range r)
{
	memmove(&pool.range[at + 1], &pool.range[at], (pool.n - at) * sizeof(Range));
	pool.range[at] = r;
	pool.n++;
}

static void
drop(int at)
{
	pool.n--;
	memmove(&pool.range[at], &pool.range[at + 1], (pool.n - at) * sizeof(Range));
}

/* The first range at an address or above. */
static int
find(const void *address)
{
	int			lo = 0;
	int			hi = pool.n;

	while (lo < hi)
	{
		int			mid = (lo + hi) / 2;

		if ((uintptr_t) pool.range[mid].from < (uintptr_t) address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Give free ranges back to the system until all that is mapped, and `more` bytes, are within the limit. */
static void
shrink(size_t more)
{
	for (int i = pool.n - 1; i >= 0 && pool.kept > 0; i--)
	{
		Range	   *r = &pool.range[i];

		if (pool.used + pool.kept + more <= pool.limit)
			return;
		if (r->owner != NULL || munmap(r->from, r->bytes) != 0)
			continue;
		pool.kept -= r->bytes;
		drop(i);
	}
}

bool
gk_mem_pool_release(void)
{
	size_t		kept = pool.kept;

	shrink(SIZE_MAX / 2);
	return pool.kept < kept;
}

static char *
map_bytes(size_t bytes)
{
	char	   *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return base == MAP_FAILED ? NULL : base;
}

/* Map new memory, aligned to huge pages: next to the last one, if the system has it there. */
static char *
map(size_t bytes)
{
	char	   *base = map_bytes(bytes);
	size_t		before;

	if (base == NULL || (uintptr_t) base % GK_HUGE_PAGE == 0)
		return base;
	(void) munmap(base, bytes);
	base = map_bytes(bytes + GK_HUGE_PAGE);
	if (base == NULL)
		return NULL;
	before = -(uintptr_t) base & (GK_HUGE_PAGE - 1);
	if (before > 0)
		(void) munmap(base, before);
	(void) munmap(base + before + bytes, GK_HUGE_PAGE - before);
	return base + before;
}

static size_t
whole_pages(size_t bytes)
{
	return (bytes + GK_HUGE_PAGE - 1) & ~(GK_HUGE_PAGE - 1);
}

void *
gk_mem_pool_reuse(const void *owner, size_t bytes)
{
	int			i = pool.n - 1;
	Range	   *r;
	char	   *from;

	if (pool.kept == 0 || bytes > pool.kept || !make_room())
		return NULL;
	bytes = whole_pages(bytes);
	while (i >= 0 && (pool.range[i].owner != NULL || pool.range[i].bytes < bytes))
		i--;
	if (i < 0)
		return NULL;
	r = &pool.range[i];
	from = r->from + r->bytes - bytes;
	if (r->bytes == bytes)
		drop(i);
	else
	{
		r->bytes -= bytes;
		i++;
	}
	insert(i, (Range) {from, bytes, owner, true});
	pool.used += bytes;
	pool.kept -= bytes;
	return from;
}

void *
gk_mem_pool_take(const void *owner, size_t bytes, bool *warm)
{
	char	   *from = gk_mem_pool_reuse(owner, bytes);

	*warm = from != NULL;
	if (from != NULL)
		return from;
	if (bytes > SIZE_MAX / 2 || !make_room())
		return NULL;
	bytes = whole_pages(bytes);
	shrink(bytes);
	from = map(bytes);
	if (from == NULL && gk_mem_pool_release())
		from = map(bytes);
	if (from == NULL)
		return NULL;
	insert(find(from), (Range) {from, bytes, owner, false});
	pool.used += bytes;
	return from;
}

/* Is range i free, and does range i + 1, free as well, begin where it ends? */
static bool
joins(int i)
{
	const Range *r;

	if (i < 0 || i + 1 >= pool.n)
		return false;
	r = &pool.range[i];
	return r[0].owner == NULL && r[1].owner == NULL && r[0].from + r[0].bytes == r[1].from;
}

static void
give(int i)
{
	Range	   *r = &pool.range[i];

	pool.used -= r->bytes;
	pool.kept += r->bytes;
	r->owner = NULL;
#ifdef MADV_FREE
	(void) madvise(r->from, r->bytes, MADV_FREE);
#endif
	for (int first = joins(i - 1) ? i - 1 : i; joins(first);)
	{
		pool.range[first].bytes += pool.range[first + 1].bytes;
		drop(first + 1);
	}
}

bool
gk_mem_pool_give(void *block)
{
	int			i = find(block);

	if (i == pool.n || pool.range[i].from != block || pool.range[i].owner == NULL)
		return false;
	give(i);
	shrink(0);
	return true;
}

void
gk_mem_pool_give_all(const void *owner)
{
	for (int i = pool.n - 1; i >= 0; i--)
		if (i < pool.n && pool.range[i].owner == owner)
			give(i);
	shrink(0);
}

bool
gk_mem_pool_warm(const void *block)
{
	int			i = find(block);

	return i < pool.n && pool.range[i].from == block && pool.range[i].warm;
}

void
gk_mem_pool_limit(size_t bytes)
{
	pool.limit = bytes;
	shrink(0);
}

void
gk_mem_pool_sizes(size_t *used, size_t *kept)
{
	*used = pool.used;
	*kept = pool.kept;
}
