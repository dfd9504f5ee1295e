/*
 * pg_device.c - how many sessions use a GPU at once.
 *
 * Each job's points take device memory, and so does each session's CUDA
 * context, some hundred MB.  When the module is preloaded, shared memory counts
 * both for every GPU and gkmeans.max_gpu_sessions bounds each:
 *
 *   jobs      one more than that waits, or goes to the CPU under auto;
 *   contexts  kept between jobs, because a new one takes 170-310 ms; one more
 *             than that is given back as soon as its job is done.
 *
 * A session that is idle runs no code of ours, so nobody can ask it for its
 * context: how many are kept has to be decided at the end of a job.  Without
 * preloading there is no limit, and every session keeps its context.
 *
 * A job's place belongs to the memory context of its host, which an ERROR
 * deletes too; a process that exits gives up what it has left.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "gkmeans.h"

#define MAX_GPUS	16			/* as many as the backend looks at */

typedef struct GpuShared
{
	pg_atomic_uint32 jobs;
	pg_atomic_uint32 contexts;
	ConditionVariable job_done;
} GpuShared;

typedef struct Job
{
	int			gpu;
	MemoryContextCallback callback;
} Job;

int			gkmeans_max_gpu_sessions = 2;

static GpuShared *shared;		/* [MAX_GPUS]; NULL: not preloaded */
static int	my_job = -1;		/* the GPU that this process runs a job on */
static bool my_context[MAX_GPUS];	/* a context that is counted */


/* ---- counting ---- */

static bool
take(pg_atomic_uint32 *count)
{
	uint32		old = pg_atomic_read_u32(count);

	while (old < (uint32) gkmeans_max_gpu_sessions)
		if (pg_atomic_compare_exchange_u32(count, &old, old + 1))
			return true;
	return false;
}

static void
job_end(void)
{
	GpuShared  *g = &shared[my_job];

	my_job = -1;
	pg_atomic_fetch_sub_u32(&g->jobs, 1);
	ConditionVariableBroadcast(&g->job_done);
}

/* The job's host is released.  Must not raise an ERROR. */
static void
job_released(void *arg)
{
	Job		   *job = arg;

	if (my_job != job->gpu)
		return;					/* the process is exiting and has given it up */
	if (!my_context[job->gpu])
	{
		my_context[job->gpu] = take(&shared[job->gpu].contexts);
		if (!my_context[job->gpu])
			gk_registry_release(job->gpu);
	}
	job_end();
}

static void
at_exit(int code, Datum arg)
{
	if (my_job >= 0)
		job_end();
	for (int i = 0; i < MAX_GPUS; i++)
	{
		if (my_context[i])
			pg_atomic_fetch_sub_u32(&shared[i].contexts, 1);
		my_context[i] = false;
	}
}

bool
km_gpu_job_begin(MemoryContext context, int gpu, bool wait)
{
	static bool registered;
	Job		   *job;

	if (shared == NULL || my_job >= 0)
		return true;
	if (!registered)
	{
		before_shmem_exit(at_exit, (Datum) 0);
		registered = true;
	}
	job = MemoryContextAllocZero(context, sizeof(Job));
	job->gpu = gpu;
	job->callback.func = job_released;
	job->callback.arg = job;

	if (!take(&shared[gpu].jobs))
	{
		if (!wait)
			return false;
		ConditionVariablePrepareToSleep(&shared[gpu].job_done);
		while (!take(&shared[gpu].jobs))
			ConditionVariableSleep(&shared[gpu].job_done, km_wait_event_gpu());
		ConditionVariableCancelSleep();
	}
	my_job = gpu;
	MemoryContextRegisterResetCallback(context, &job->callback);
	return true;
}

/* ---- shared memory ---- */

static void
init_shared(void *area)
{
	GpuShared  *s = area;

	for (int i = 0; i < MAX_GPUS; i++)
	{
		pg_atomic_init_u32(&s[i].jobs, 0);
		pg_atomic_init_u32(&s[i].contexts, 0);
		ConditionVariableInit(&s[i].job_done);
	}
}

void
km_gpu_init(void)
{
	km_shmem_register("gkmeans", MAX_GPUS * sizeof(GpuShared), (void **) &shared, init_shared);
}
