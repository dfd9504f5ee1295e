/*
 * pg_device.c - which devices there are, which ones a job gets, and how many sessions use a
 * GPU at once.
 *
 * Each job's points take device memory, and so does each session's CUDA
 * context, some hundred MB.  When the module is preloaded, shared memory counts
 * both for every GPU and gkmeans.max_gpu_sessions bounds each:
 *
 *   jobs      one more than that waits, or goes to the CPU under auto;
 *   contexts  kept between jobs, because a new one takes 170-310 ms; one more
 *             than that is given back as soon as its job is done.
 *
 * A session that is idle runs no code of gkmeans, so it cannot be asked for its
 * context: how many are kept is decided at the end of a job.  Without preloading
 * there is no limit, and every session keeps its context.
 *
 * A job's place belongs to the memory context of its host, which an ERROR
 * deletes too; a process that exits gives up what it has left.
 *
 * Devices may be opened by a thread while rows are read (gk_registry.c): by a job that has
 * places, or where the contexts are counted already.  The thread goes on when its job has ended by
 * an ERROR or a cancel; the session's next job uses what it has opened.  A process that exits
 * waits for it, since the driver's own work at exit would meet it.
 */
#include "postgres.h"

#include <dlfcn.h>
#include <unistd.h>

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "core/spread/gk_spread.h"
#include "gkmeans.h"
#include "pg/pg.h"

PG_FUNCTION_INFO_V1(gkmeans_devices);

#define MAX_DEVICES	64
/* Milliseconds that an exit waits for a device that is being opened: ten times as long as that takes. */
#define EXIT_WAIT	2000

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

static GpuShared *shared;		/* [KM_MAX_GPUS]; NULL: not preloaded */
static bool my_job[KM_MAX_GPUS];	/* the GPUs that this process runs a job on */
static bool my_context[KM_MAX_GPUS];	/* a context that is counted */
static char shares[96];			/* of the last job, if several devices did it */

/* ---- counting ---- */

static bool
take(pg_atomic_uint32 * count)
{
	uint32		old = pg_atomic_read_u32(count);

	while (old < (uint32) gkmeans_max_gpu_sessions)
		if (pg_atomic_compare_exchange_u32(count, &old, old + 1))
			return true;
	return false;
}

static void
job_end(int gpu)
{
	GpuShared  *g = &shared[gpu];

	my_job[gpu] = false;
	pg_atomic_fetch_sub_u32(&g->jobs, 1);
	ConditionVariableBroadcast(&g->job_done);
}

/* May the session keep its context of this GPU? */
static bool
keep_context(int gpu)
{
	my_context[gpu] = my_context[gpu] || take(&shared[gpu].contexts);
	return my_context[gpu];
}

/* The job's host is released.  Must not raise an ERROR. */
static void
job_released(void *arg)
{
	Job		   *job = arg;

	if (!my_job[job->gpu])
		return;					/* the process is exiting and has given it up */
	if (!keep_context(job->gpu))
		gk_registry_release(job->gpu);
	job_end(job->gpu);
}

static void
at_exit(int code, Datum arg)
{
	for (int i = 0; i < KM_MAX_GPUS; i++)
	{
		if (my_job[i])
			job_end(i);
		if (my_context[i])
			pg_atomic_fetch_sub_u32(&shared[i].contexts, 1);
		my_context[i] = false;
	}
}

/* Before anything is counted. */
static void
count_until_exit(void)
{
	static bool registered;

	if (!registered)
		before_shmem_exit(at_exit, (Datum) 0);
	registered = true;
}

/*
 * Take a place on this GPU until the context goes away.  When all are taken,
 * wait for one, or return false.
 */
static bool
begin_job(MemoryContext context, int gpu, bool wait)
{
	Job		   *job;

	if (shared == NULL || my_job[gpu])
		return true;
	count_until_exit();
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
	my_job[gpu] = true;
	MemoryContextRegisterResetCallback(context, &job->callback);
	return true;
}

/* ---- opening beside reading ---- */

/*
 * The last thing that this process does, when it has given up all that others wait for.  Should the
 * driver hang, nothing but an exit without its work at exit is left.
 */
static void
await_thread(int code, Datum arg)
{
	if (!gk_registry_end(EXIT_WAIT))
		_exit(code);
}

static void
await_thread_at_exit(void)
{
	static bool registered;

	if (!registered)
		on_proc_exit(await_thread, (Datum) 0);
	registered = true;
}

bool
km_look_for_devices(void)
{
	await_thread_at_exit();
	return gk_registry_look();
}

/* The GPUs of a job that has been chosen: `gpu`, or those that share it.  Returns how many. */
static int
chosen_gpus(KmPgHost *host, int gpu, int *out)
{
	const GkSpread *spread = km_host_spread(host);
	int			n = 0;

	for (int i = 0; i < spread->n; i++)
		if (spread->device[i].number >= 0)
			out[n++] = spread->device[i].number;
	if (n == 0)
		out[n++] = gpu;
	return n;
}

void
km_open_devices(KmPgHost *host, int gpu)
{
	int			gpus[GK_SPREAD_DEVICES];
	int			n = chosen_gpus(host, gpu, gpus);
	int			may = 0;

	await_thread_at_exit();
	count_until_exit();
	for (int i = 0; i < n; i++)
		if (shared == NULL || my_job[gpus[i]] || keep_context(gpus[i]))
			gpus[may++] = gpus[i];
	(void) gk_registry_open(gpus, may, km_host_engine(host)->gpu_fault);
}

bool
km_devices_are_open(KmPgHost *host, int gpu)
{
	int			gpus[GK_SPREAD_DEVICES];
	int			n = chosen_gpus(host, gpu, gpus);
	bool		all = true;

	for (int i = 0; i < n; i++)
		all &= gk_registry_is_open(gpus[i]);
	return all;
}

/* ---- the devices of a job ---- */

static const GkBackend *
find_backend(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k, int *gpu)
{
	GkError		err;
	const GkBackend *backend;

	if (gk_registry_wants_gpu(kind, n, d, k) && !gk_registry_wait(km_host_engine(host)))
		km_throw(host, GK_STOPPED, NULL);
	backend = gk_registry_choose(kind, gkmeans_gpu_devices, n, d, k, gpu, &err);
	shares[0] = '\0';

	if (backend == NULL)
		km_throw(host, err.code, &err);
	return backend;
}

void
km_check_device(KmPgHost *host, GkDeviceKind kind)
{
	int			gpu;

	if (km_wants_gpu(kind))
		(void) find_backend(host, GK_DEVICE_GPU, 0, 0, 0, &gpu);
}

void
km_check_device_soon(KmPgHost *host, GkDeviceKind kind)
{
	if (km_wants_gpu(kind) && !km_look_for_devices())
		km_check_device(host, kind);
}

/* The job has no place on a GPU. */
static const GkBackend *
take_cpu(int gpu)
{
	ereport(DEBUG1,
			(errmsg("all %d sessions of GPU %d are taken, the CPU does the job",
					gkmeans_max_gpu_sessions, gpu)));
	km_progress_device("cpu");
	return &gk_cpu_backend;
}

static bool
take_place(KmPgHost *host, GkDeviceKind kind, int gpu, bool wait)
{
	if (!begin_job(km_host_context(host), gpu, wait && kind != GK_DEVICE_AUTO))
	{
		if (kind == GK_DEVICE_AUTO)
			take_cpu(gpu);
		return false;
	}
	km_progress_device("gpu");
	return true;
}

static void
refuse_both(GkDeviceKind kind)
{
	if (kind == GK_DEVICE_BOTH)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("device 'both' is for clusterings of rows that are kept in memory"),
				 errdetail("Aggregates, steps, strategy 'scan' and distributed tables use one device."),
				 errhint("Use device => 'gpu', 'cpu' or 'auto'.")));
}

const GkBackend *
km_choose_backend_soon(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k, bool share, int *gpu)
{
	GkSpread   *spread = km_host_spread(host);

	/* whether there is a GPU, and whether auto wants one */
	const GkBackend *backend = find_backend(host, kind == GK_DEVICE_BOTH ? GK_DEVICE_GPU : kind, n, d, k, gpu);

	km_host_fall_back(host, kind == GK_DEVICE_AUTO);
	spread->n = 0;
	if (*gpu >= 0 && share && gk_spread_choose(kind, gkmeans_gpu_devices, n, d, k, spread) > 0)
		return &gk_spread_backend;
	return backend;
}

/*
 * Under auto keep those devices on which the job has a place; false: there is none.  Else it needs all of them;
 * false: it would have to wait.  All sessions ask in the same order, and have asked for all devices before the
 * one that they wait for, so that no two wait for each other.
 */
static bool
take_all_places(KmPgHost *host, GkSpread *spread, GkDeviceKind kind, bool wait)
{
	int			n = 0;

	for (int i = 0; i < spread->n; i++)
	{
		GkSpreadDevice of = spread->device[i];

		if (of.number < 0 || begin_job(km_host_context(host), of.number, wait && kind != GK_DEVICE_AUTO))
			spread->device[n++] = of;
		else if (kind != GK_DEVICE_AUTO)
			return false;
	}
	spread->n = n;
	return n > 0;
}

bool
km_take_places(KmPgHost *host, GkDeviceKind kind, int gpu, bool wait)
{
	GkSpread   *spread = km_host_spread(host);

	if (spread->n == 0)
		return take_place(host, kind, gpu, wait);
	if (!take_all_places(host, spread, kind, wait))
	{
		if (kind == GK_DEVICE_AUTO)
			take_cpu(gpu);
		return false;
	}
	km_progress_device("gpu");
	return true;
}

static const GkBackend *
choose_now(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k, bool share)
{
	int			gpu;
	const GkBackend *backend = km_choose_backend_soon(host, kind, n, d, k, share, &gpu);

	if (gpu < 0)
	{
		km_progress_device("cpu");
		return backend;
	}
	return km_take_places(host, kind, gpu, true) ? backend : &gk_cpu_backend;
}

const GkBackend *
km_choose_group_backend(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k)
{
	return choose_now(host, kind, n, d, k, false);
}

const GkBackend *
km_choose_backend(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k)
{
	refuse_both(kind);
	return km_choose_group_backend(host, kind, n, d, k);
}

const GkBackend *
km_choose_devices(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k)
{
	return choose_now(host, kind, n, d, k, true);
}

bool
km_go_on_with_others(KmPgHost *host, GkStatus status, const GkError *err)
{
	const GkHost *engine = km_host_engine(host);

	return gk_spread_leave_out(km_host_spread(host), status, err) && engine->device_lost(engine->ctx, err);
}

void
km_choose_group_devices(KmPgHost *host, GkDeviceKind kind, const GkSpreadGroups *work, GkSpread *out)
{
	out->rows = gkmeans_gpu_rows;
	if (gk_spread_choose_groups(kind, gkmeans_gpu_devices, work, out) > 0)
		(void) take_all_places(host, out, kind, true);
}

void
km_device_shares(const char *text)
{
	strlcpy(shares, text, sizeof(shares));
	km_progress_device(text);
}

/* ---- SQL ---- */

/* What a device is, and which share of the last job's rows it had.  gpu: -1: the CPU. */
static char *
detail(const GkDeviceInfo *info, int gpu)
{
	char	   *name = gpu < 0 ? pstrdup("cpu ") : psprintf("gpu %d ", gpu);
	const char *at = strstr(shares, name);

	return at == NULL ? pstrdup(info->detail) : psprintf("%s, %d %% of the last call's rows", info->detail, atoi(at + strlen(name)));
}

/*
 * gkmeans_devices(backend, name, usable, reason, memory, detail) returns setof record
 */
Datum
gkmeans_devices(PG_FUNCTION_ARGS)
{
	GkDeviceInfo *info = palloc(MAX_DEVICES * sizeof(GkDeviceInfo));
	KmResult	result;
	int			n;

	km_result_begin(fcinfo, &result);
	km_apply_simd();
	/* the CPU comes first */
	while (gk_registry_busy())
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000);
	}
	n = gk_registry_devices(info, MAX_DEVICES);
	for (int i = 0; i < n; i++)
	{
		Datum		values[6];
		bool		nulls[6] = {false};

		values[0] = CStringGetTextDatum(info[i].backend);
		values[1] = CStringGetTextDatum(info[i].name);
		values[2] = BoolGetDatum(info[i].usable);
		values[3] = CStringGetTextDatum(info[i].reason);
		nulls[3] = info[i].reason[0] == '\0';
		values[4] = Int64GetDatum(info[i].memory);
		nulls[4] = info[i].memory == 0;
		values[5] = CStringGetTextDatum(detail(&info[i], i - 1));
		nulls[5] = info[i].detail[0] == '\0';
		tuplestore_putvalues(result.store, result.desc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- begin ---- */

static void
init_shared(void *area)
{
	GpuShared  *s = area;

	for (int i = 0; i < KM_MAX_GPUS; i++)
	{
		pg_atomic_init_u32(&s[i].jobs, 0);
		pg_atomic_init_u32(&s[i].contexts, 0);
		ConditionVariableInit(&s[i].job_done);
	}
}

/*
 * The GPU part is looked for beside this module, wherever that was loaded from: $libdir is
 * not the only possible place.  Only the name is noted here.
 */
void
km_device_init(void)
{
	Dl_info		info;

	if (dladdr((void *) km_device_init, &info) != 0 && info.dli_fname != NULL)
	{
		char		dir[MAXPGPATH];

		strlcpy(dir, info.dli_fname, sizeof(dir));
		get_parent_directory(dir);
		gk_registry_set_directory(dir);
	}
	km_shmem_register("gkmeans", KM_MAX_GPUS * sizeof(GpuShared), (void **) &shared, init_shared);
}
