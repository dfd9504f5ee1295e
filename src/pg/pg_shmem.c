/*
 * pg_shmem.c - the modules' shared memory, when gkmeans is preloaded.
 *
 * One pair of hooks for all of them.  Without shared_preload_libraries nothing
 * is registered and the modules' pointers stay NULL.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "gkmeans.h"

#define MAX_AREAS	4

typedef struct Area
{
	const char *name;
	Size		size;
	void	  **address;
	void		(*init) (void *area);
} Area;

static Area areas[MAX_AREAS];
static int	nareas;

#if PG_VERSION_NUM >= 150000
static shmem_request_hook_type next_request;
#endif
static shmem_startup_hook_type next_startup;

static void
request(void)
{
#if PG_VERSION_NUM >= 150000
	if (next_request != NULL)
		next_request();
#endif
	for (int i = 0; i < nareas; i++)
		RequestAddinShmemSpace(areas[i].size);
}

static void
startup(void)
{
	if (next_startup != NULL)
		next_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < nareas; i++)
	{
		bool		found;
		void	   *area = ShmemInitStruct(areas[i].name, areas[i].size, &found);

		if (!found)
			areas[i].init(area);
		*areas[i].address = area;
	}
	LWLockRelease(AddinShmemInitLock);
}

void
km_shmem_register(const char *name, Size size, void **address, void (*init) (void *area))
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	Assert(nareas < MAX_AREAS);
	areas[nareas++] = (Area) {name, size, address, init};
}

/* After all modules have registered. */
void
km_shmem_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
#if PG_VERSION_NUM >= 150000
	next_request = shmem_request_hook;
	shmem_request_hook = request;
#else
	request();
#endif
	next_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
}
