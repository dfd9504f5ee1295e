/*
 * gk_cpu_session.c - the session of the CPU backend, and its memory.
 */
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu_session.h"

/* ---- memory ---- */

/* Before each array, in a list that the session frees. */
typedef struct GkRoom
{
	struct GkRoom *next;
	struct GkRoom *prev;		/* NULL: the first one */
	size_t		bytes;			/* of the array, a cache line further on */
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
	s->core->free(&s->host, r);
	set(array, NULL);
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
	r = s->core->alloc(&s->host, whole, 1);
	if (r == NULL)
		return false;
	*r = (GkRoom) {.next = s->rooms,.bytes = bytes};
	if (r->next != NULL)
		r->next->prev = r;
	s->rooms = r;
	set(array, (char *) r + GK_CACHE_LINE);
	return true;
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
		s->core->free(&host, r);
	}
	s->core->free(&host, s);
}

void
gk_cpu_set_rows(GkSession *s, GkStore *store)
{
	const GkPoints *p = s->core->points(store);

	s->store = store;
	s->pts = p;
	s->max_stride = 0;
	s->all_rows = 0;
	for (int i = 0; i < p->nchunks; i++)
	{
		if (p->chunks[i].stride > s->max_stride)
			s->max_stride = p->chunks[i].stride;
		s->all_rows += p->chunks[i].stride;
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
	gk_cpu_set_rows(s, problem->store);
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
