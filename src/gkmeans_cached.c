/*
 * gkmeans_cached.c - which buffers of the shared cache hold a table's pages.
 *
 * PostgreSQL finds a page's buffer by a hash table that is far larger than a CPU's cache:
 * that takes half of the time that one process has for a page whose rows its threads take.
 * To go through the tags of all buffers once is cheaper, from a certain size of the table
 * on, since they lie side by side and threads can do it.
 *
 * Nothing is locked, so what comes out is a hint.  Whoever takes it has PostgreSQL look
 * whether the page is there, as it does itself with buffers that it remembers.
 */
#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"

#include "gkmeans_compat_heap.h"
#include "gkmeans_pages.h"

/* Buffers that one job looks at. */
#define JOB_BUFFERS		4096
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
		BufferTag	tag = GetBufferDescriptor(i)->tag;

		if (tag.blockNum < s->nblocks && gk_tag_is_of(&tag, s->rel))
			s->where[tag.blockNum] = i + 1;
	}
}

Buffer *
gk_cached_pages(Relation rel, BlockNumber nblocks, const GkHost *host)
{
	Search		s = {rel, nblocks};

	if (!GK_RECENT_BUFFERS || RelationUsesLocalBuffers(rel) ||
		(double) nblocks * TAGS_A_PAGE * gk_threads(host) < NBuffers)
		return NULL;
	s.where = MemoryContextAllocExtended(CurrentMemoryContext, (Size) nblocks * sizeof(Buffer),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	/* a cancel request is served by whoever reads, and ends this early */
	(void) gk_parallel_for(host, (NBuffers + JOB_BUFFERS - 1) / JOB_BUFFERS, search, &s);
	return s.where;
}
