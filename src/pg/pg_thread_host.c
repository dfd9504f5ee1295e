/*
 * pg_thread_host.c - memory for small engine jobs on helper threads.
 *
 * A job allocates from blocks that the next job uses again; before its end only the piece
 * allocated last can be freed.  malloc() and free() for each piece would take a tenth of the
 * time of a small clustering.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/base/gk_mem.h"
#include "core/base/gk_sizes.h"
#include "pg/pg.h"

#define BLOCK_BYTES		((size_t) 1 << 20)
/* Each block of what is kept is twice as large as the one before, up to this: four huge pages. */
#define KEPT_BLOCK_BYTES	((size_t) 8 << 20)
#define ALIGNMENT		16

typedef struct Block
{
	struct Block *next;
	size_t		bytes;
} Block;

StaticAssertDecl(sizeof(Block) % ALIGNMENT == 0, "what follows a block's header is aligned");

/* Blocks, the newest first; pieces come from that one. */
typedef struct Arena
{
	Block	   *blocks;
	size_t		max_block;		/* bytes, if no piece is larger */
	size_t		used;			/* of the newest */
	char	   *last;			/* given out last */
} Arena;

typedef struct ThreadHost
{
	GkHost		host;
	Arena		work;
	Arena		kept;
	char		apart[GK_CACHE_LINE];	/* threads do not share cache lines */
} ThreadHost;

struct KmThreadHosts
{
	MemoryContextCallback release;
	int			n;
	ThreadHost *hosts;
};

static void *
take(Arena *a, size_t bytes)
{
	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (a->blocks == NULL || bytes > a->blocks->bytes - a->used)
	{
		size_t		room = a->blocks == NULL ? BLOCK_BYTES : Min(2 * a->blocks->bytes, a->max_block);
		Block	   *b;

		room = Max(room, bytes);
		b = malloc(sizeof(Block) + room);
		if (b == NULL)
			return NULL;
		gk_huge_pages(b, sizeof(Block) + room);
		b->next = a->blocks;
		b->bytes = room;
		a->blocks = b;
		a->used = 0;
	}
	a->last = (char *) (a->blocks + 1) + a->used;
	a->used += bytes;
	return a->last;
}

/* The blocks that are newer than one; NULL: all. */
static void
drop(Arena *a, const Block *block)
{
	while (a->blocks != block)
	{
		Block	   *next = a->blocks->next;

		free(a->blocks);
		a->blocks = next;
	}
	a->used = 0;
	a->last = NULL;
}

static void *
thread_alloc(void *ctx, size_t bytes)
{
	return take(&((ThreadHost *) ctx)->work, bytes);
}

static void
thread_free(void *ctx, void *ptr)
{
	Arena	   *a = &((ThreadHost *) ctx)->work;

	if (ptr == a->last && ptr != NULL)
	{
		a->used = a->last - (char *) (a->blocks + 1);
		a->last = NULL;
	}
}

/* Runs when the memory context goes, after an ERROR too. */
static void
release(void *arg)
{
	KmThreadHosts *hosts = arg;

	for (int t = 0; t < hosts->n; t++)
	{
		drop(&hosts->hosts[t].work, NULL);
		drop(&hosts->hosts[t].kept, NULL);
	}
}

KmThreadHosts *
km_thread_hosts(const GkHost *engine)
{
	KmThreadHosts *hosts = palloc0(sizeof(KmThreadHosts));

	hosts->n = gk_threads(engine);
	hosts->hosts = palloc0(hosts->n * sizeof(ThreadHost));
	for (int t = 0; t < hosts->n; t++)
	{
		ThreadHost *h = &hosts->hosts[t];

		h->host.ctx = h;
		h->host.alloc = thread_alloc;
		h->host.free = thread_free;
		h->host.stop = engine->stop;
		h->host.threads = 1;
		h->work.max_block = BLOCK_BYTES;
		h->kept.max_block = KEPT_BLOCK_BYTES;
	}
	hosts->release.func = release;
	hosts->release.arg = hosts;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &hosts->release);
	return hosts;
}

const GkHost *
km_thread_host(KmThreadHosts *hosts, int thread)
{
	return &hosts->hosts[thread].host;
}

void *
km_thread_keep(KmThreadHosts *hosts, int thread, size_t bytes)
{
	return take(&hosts->hosts[thread].kept, bytes);
}

GkError *
km_thread_keep_error(KmThreadHosts *hosts, int thread, const GkError *err)
{
	GkError    *kept = km_thread_keep(hosts, thread, sizeof(GkError));

	if (kept != NULL)
		*kept = *err;
	return kept;
}

KmThreadMark
km_thread_mark(KmThreadHosts *hosts, int thread)
{
	Arena	   *a = &hosts->hosts[thread].work;

	/* a first block, which stays */
	if (a->blocks == NULL)
		(void) take(a, 0);
	return (KmThreadMark) {a->blocks, a->used};
}

void
km_thread_reset(KmThreadHosts *hosts, int thread, KmThreadMark mark)
{
	Arena	   *a = &hosts->hosts[thread].work;

	drop(a, mark.block);
	a->used = mark.used;
}
