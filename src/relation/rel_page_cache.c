/*
 * rel_page_cache.c - which buffers of the shared cache hold a table's pages.
 *
 * PostgreSQL finds a page's buffer by a hash table that is far larger than a CPU's cache:
 * that takes half of the time that one process has for a page whose rows its threads take.
 * To go through the tags of all buffers once is cheaper, from a certain size of the table
 * on, since they lie side by side and threads can do it.  It is for pages that came into
 * the cache by several processes at once, or a few at a time.
 *
 * Nothing is locked, so what comes out is a hint.  Whoever takes it has PostgreSQL look
 * whether the page is there, as it does itself with buffers that it remembers.
 */
#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"

#include "pg/pg_compat_heap.h"
#include "relation/rel_page.h"

/* Buffers that one job looks at. */
#define JOB_BUFFERS		4096
/* Pairs of pages that are looked up first. */
#define PAIRS			32
/* To look a page up takes as long as to go through so many tags. */
#define TAGS_A_PAGE		64

typedef struct Search
{
	Relation	rel;
	BlockNumber nblocks;
	Buffer	   *where;			/* [nblocks] */
} Search;

static void
search(void *arg, int64_t job, int thread)
{
	const Search *s = arg;
	int			from = (int) job * JOB_BUFFERS;
	int			to = Min(from + JOB_BUFFERS, NBuffers);

	for (int i = from; i < to; i++)
	{
		/* read once: it may change at any time, and its block number is an index here */
		BufferTag	tag = *(const volatile BufferTag *) &GetBufferDescriptor(i)->tag;

		if (tag.blockNum < s->nblocks && km_tag_is_of(&tag, s->rel))
			s->where[tag.blockNum] = i + 1;
	}
}

/*
 * Are a part of the pages in the cache, but not next to each other?  Those that are, are
 * found by going from one buffer to the next.
 */
static bool
scattered(Relation rel, BlockNumber nblocks)
{
	int			cached = 0;
	int			apart = 0;

	for (int i = 0; i < PAIRS; i++)
	{
		BlockNumber block = (uint64) (nblocks - 1) * i / PAIRS;
		Buffer		one = km_look_up(rel, block);
		Buffer		next = BufferIsValid(one) ? km_look_up(rel, block + 1) : InvalidBuffer;

		cached += BufferIsValid(next);
		apart += BufferIsValid(next) && abs(next - one) != 1;
	}
	return cached >= PAIRS / 2 && apart >= cached / 8;
}

Buffer *
km_cached_pages(Relation rel, BlockNumber nblocks, const GkHost *host)
{
	Search		s = {rel, nblocks};

	if (!KM_RECENT_BUFFERS || RelationUsesLocalBuffers(rel) || nblocks < 2 ||
		(double) nblocks * TAGS_A_PAGE * gk_threads(host) < NBuffers || !scattered(rel, nblocks))
		return NULL;
	ereport(DEBUG1,
			(errmsg("the pages of \"%s\" are not side by side in the cache", RelationGetRelationName(rel))));
	s.where = MemoryContextAllocExtended(CurrentMemoryContext, (Size) nblocks * sizeof(Buffer),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	/* a cancel request is served by whoever reads, and ends this early */
	(void) gk_parallel_for(host, (NBuffers + JOB_BUFFERS - 1) / JOB_BUFFERS, search, &s);
	return s.where;
}
