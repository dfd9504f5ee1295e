/*
 * gk_cpu_session.c - the session of the CPU backend, and its memory.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE			/* MAP_ANONYMOUS */
#endif
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu_session.h"

/* ---- memory ---- */

/* Before each array, in a list that the session frees. */
typedef struct GkRoom
{
	struct GkRoom *next;
	struct GkRoom *prev;		/* NULL: the first one */
	size_t		bytes;			/* of the array, a cache line further on */
	size_t		each;			/* of a tile, where other tiles have only addresses; 0: all of it is memory */
} GkRoom;

/* *array for any type of array, and the other way round. */
static char *
get(const void *array)
{
	char	   *p;

	memcpy(&p, array, sizeof(p));
	return p;
}

static void
set(void *array, const char *p)
{
	memcpy(array, &p, sizeof(p));
}

static size_t
page_bytes(void)
{
	return (size_t) sysconf(_SC_PAGESIZE);
}

static void
free_room(const GkCore *core, const GkHost *host, GkRoom *r)
{
	if (r->each > 0)
		(void) munmap((char *) r + GK_CACHE_LINE - page_bytes(), page_bytes() + r->bytes);
	else
		core->free(host, r);
}

void
gk_cpu_room_free(GkSession *s, void *array)
{
	char	   *p = get(array);
	GkRoom	   *r;

	if (p == NULL)
		return;
	r = (GkRoom *) (p - GK_CACHE_LINE);
	if (r->next != NULL)
		r->next->prev = r->prev;
	*(r->prev != NULL ? &r->prev->next : &s->rooms) = r->next;
	free_room(s->core, &s->host, r);
	set(array, NULL);
}

static void
link_room(GkSession *s, GkRoom *r, void *array)
{
	r->next = s->rooms;
	if (r->next != NULL)
		r->next->prev = r;
	s->rooms = r;
	set(array, (char *) r + GK_CACHE_LINE);
}

bool
gk_cpu_room(GkSession *s, void *array, size_t count, size_t size)
{
	char	   *p = get(array);
	size_t		bytes;
	size_t		whole;
	GkRoom	   *r;

	if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, GK_CACHE_LINE, &whole))
		return false;
	if (p != NULL && ((GkRoom *) (p - GK_CACHE_LINE))->bytes >= bytes)
		return true;
	gk_cpu_room_free(s, array);
	r = gk_alloc_kept(&s->host, whole);
	if (r == NULL)
		return false;
	*r = (GkRoom) {.bytes = bytes};
	link_room(s, r, array);
	return true;
}

/* ---- tiles of a store of which the session has a part ---- */

/* Addresses for all tiles, after a page for the room itself. */
static GkRoom *
reserve(size_t tiles, size_t each)
{
	size_t		page = page_bytes();
	size_t		bytes;
	size_t		whole;
	char	   *p;
	GkRoom	   *r;

	if (__builtin_mul_overflow(tiles, each, &bytes) || __builtin_add_overflow(bytes, page, &whole))
		return NULL;
	p = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p, page, PROT_READ | PROT_WRITE) != 0)
	{
		(void) munmap(p, whole);
		return NULL;
	}
	r = (GkRoom *) (p + page - GK_CACHE_LINE);
	*r = (GkRoom) {.bytes = bytes,.each = each};
	return r;
}

/* Where a tile of a reserved room is, rounded down or up to a page. */
static char *
page_down(GkRoom *r, size_t tile)
{
	return (char *) r + GK_CACHE_LINE + tile * r->each / page_bytes() * page_bytes();
}

static char *
page_up(GkRoom *r, size_t tile)
{
	return (char *) r + GK_CACHE_LINE + (tile * r->each + page_bytes() - 1) / page_bytes() * page_bytes();
}

/* Put memory behind some tiles, where there is none; false: there is no more. */
static bool
hold(GkRoom *r, size_t first, size_t end)
{
	char	   *from = page_down(r, first);

	return mprotect(from, (size_t) (page_up(r, end) - from), PROT_READ | PROT_WRITE) == 0;
}

/* Give back the memory between two pages; if that fails, it is kept. */
static void
give_back(char *from, const char *end)
{
	if (from < end)
		(void) mmap(from, (size_t) (end - from), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

bool
gk_cpu_tile_room(GkSession *s, void *array, size_t each)
{
	char	   *p = get(array);
	GkRoom	   *r = p != NULL ? (GkRoom *) (p - GK_CACHE_LINE) : NULL;

	/* (the session had all rows before: then there are these) */
	if (s->pts->slots == 0 || (r != NULL && r->each == 0 && r->bytes / each >= s->end_tile))
		return gk_cpu_room(s, array, s->end_tile, each);
	if (r != NULL && r->each == each)
		return true;
	gk_cpu_room_free(s, array);
	r = reserve((size_t) s->pts->slots / GK_ROW_PAD, each);
	if (r == NULL)
		return false;
	link_room(s, r, array);
	if (hold(r, s->first_tile, s->end_tile))
		return true;
	gk_cpu_room_free(s, array);
	return false;
}

GkStatus
gk_cpu_out_of_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory");
}

/* ---- the session ---- */

void
gk_cpu_close(GkSession *s)
{
	GkHost		host;

	if (s == NULL)
		return;
	host = s->host;
	for (GkRoom *r = s->rooms, *next; r != NULL; r = next)
	{
		next = r->next;
		free_room(s->core, &host, r);
	}
	s->core->free(&host, s);
}

bool
gk_cpu_set_rows(GkSession *s, GkStore *store)
{
	const GkPoints *p = s->core->points(store);
	size_t		first = (size_t) p->first_slot / GK_ROW_PAD;
	int64_t		end = p->first_slot;

	/* what the last chunk has after its rows may be another part's */
	for (int i = 0; i < p->nchunks; i++)
		end += i < p->nchunks - 1 ? gk_cpu_chunk_slots(p, i) : (p->chunks[i].rows + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
	for (GkRoom *r = s->rooms; r != NULL; r = r->next)
		if (r->each > 0 && !hold(r, first, (size_t) end / GK_ROW_PAD))
			return false;
	s->store = store;
	s->pts = p;
	s->first_tile = first;
	s->end_tile = (size_t) end / GK_ROW_PAD;
	s->all_rows = (s->end_tile - first) * GK_ROW_PAD;
	s->max_stride = 0;
	for (int i = 0; i < p->nchunks; i++)
		if (p->chunks[i].stride > s->max_stride)
			s->max_stride = p->chunks[i].stride;
	return true;
}

void
gk_cpu_drop_tiles(GkSession *s, size_t first, size_t end)
{
	for (GkRoom *r = s->rooms; r != NULL; r = r->next)
		if (r->each > 0)
		{
			give_back(page_down(r, first), page_down(r, s->first_tile));
			give_back(page_up(r, s->end_tile), page_up(r, end));
		}
}

GkStatus
gk_cpu_open(const GkProblem *problem, GkSession **out, GkError *err)
{
	const GkPoints *p = problem->core->points(problem->store);
	GkSession  *s = problem->core->alloc(problem->host, 1, sizeof(GkSession));

	*out = NULL;
	if (s == NULL)
		return gk_cpu_out_of_memory(err);
	memset(s, 0, sizeof(*s));
	s->core = problem->core;
	(void) gk_cpu_set_rows(s, problem->store);
	s->kernels = gk_cpu_kernels();
	s->strategy = problem->strategy;
	s->feature_sum = problem->feature_sum;
	s->host = *problem->host;
	s->host.threads = gk_threads(problem->host);
	s->seed.wanted = problem->k_max;
	s->d2_scale = gk_pow2(GK_GRID_BITS - p->d2_expo);
	if (!gk_cpu_room(s, &s->inv, p->d, sizeof(double)))
	{
		gk_cpu_close(s);
		return gk_cpu_out_of_memory(err);
	}
	for (int j = 0; j < p->d; j++)
		s->inv[j] = gk_pow2(GK_GRID_BITS - p->prep.expo[j]);
	*out = s;
	return GK_OK;
}

GkStatus
gk_cpu_open_with(const GkProblem *problem, GkKernelsOf *kernels_of, GkSession **out, GkError *err)
{
	GkCpuKernels *kernels = NULL;
	GkSession  *s;
	GkStatus	st = gk_cpu_open(problem, &s, err);

	*out = NULL;
	if (st != GK_OK)
		return st;
	/* its bounds are of squared distances */
	s->host.skip = GK_SKIP_OFF;
	if (!gk_cpu_room(s, &kernels, 1, sizeof(GkCpuKernels)))
	{
		gk_cpu_close(s);
		return gk_cpu_out_of_memory(err);
	}
	kernels_of(s->kernels, kernels);
	s->kernels = kernels;
	*out = s;
	return GK_OK;
}
