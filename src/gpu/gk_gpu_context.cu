/*
 * gk_gpu_context.cu - the device of this process: found and opened once, kept until the process ends or gives
 * it back.  A CUDA context costs 170-310 ms and some hundred MB; the points' memory is freed at the end of
 * every clustering.  A thread may open it while the main thread does something else (gk_gpu_warm()).
 *
 * Waiting polls: the host may want to stop at any moment, and a process blocked inside the driver cannot be
 * cancelled.
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cub/util_device.cuh>

#include "gpu/gk_gpu_cost.h"

#define MIN_MAJOR	8			/* compute capability of the oldest architecture built for */
#define SPIN_MS		0.3			/* wait actively that long, then sleep between looks */
#define POLL_MS		5.0

static GkGpu gpus[GK_GPU_MOST];

/* What gk_gpu_probe() saw of each. */
static struct
{
	int			sms;
	double		memory;
}			seen[GK_GPU_MOST];

GkStatus
gk_gpu_error(GkError *err, GkStatus code, const char *fmt,...)
{
	va_list		args;

	memset(err, 0, sizeof(*err));
	err->code = code;
	va_start(args, fmt);
	vsnprintf(err->message, sizeof(err->message), fmt, args);
	va_end(args);
	return code;
}

/* Test only: the fault that was asked for, when its time has come. */
cudaError_t
gk_gpu_injected(GkSession *s)
{
	if (s == NULL || s->faults_at < 0 || --s->faults_at >= 0)
		return cudaSuccess;
	return s->fault;
}

GkStatus
gk_gpu_fail(GkSession *s, cudaError_t e, const char *call, const char *file, int line, GkError *err)
{
	const char *base = strrchr(file, '/');
	GkGpu	   *gpu = s ? s->gpu : NULL;
	bool		memory = e == cudaErrorMemoryAllocation;

	cudaGetLastError();
	/* Without memory some go on by another way; else the others must not be waited for below. */
	if (!memory)
		gk_gpu_join_give_up(s);
	gk_gpu_error(err, memory ? GK_ERR_DEVICE_MEMORY : GK_ERR_DEVICE,
				 memory ? "out of memory on GPU %d" : "GPU %d failed", gpu ? gpu->ordinal : 0);
	snprintf(err->detail, sizeof(err->detail), "%s (%s) at %s:%d in %.120s",
			 cudaGetErrorName(e), cudaGetErrorString(e), base ? base + 1 : file, line, call);

	/* A sticky error comes back: this process cannot use the device again. */
	if (gpu != NULL && !memory && cudaDeviceSynchronize() != cudaSuccess)
	{
		gpu->dead = true;
		snprintf(gpu->reason, sizeof(gpu->reason), "failed earlier in this session: %s", cudaGetErrorName(e));
		cudaGetLastError();
	}
	return err->code;
}

static const char *
why_no_devices(cudaError_t e, int *count)
{
	int			driver = 0;

	*count = 0;
	cudaGetLastError();
	if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
		return "no NVIDIA driver (libcuda.so.1 was not found)";
	if (e == cudaErrorInsufficientDriver)
		return "the NVIDIA driver is too old for CUDA 13";
	if (e == cudaErrorNoDevice)
		return "the NVIDIA driver sees no GPU";
	return cudaGetErrorString(e);
}

/* Devices and why they cannot be used; makes no context. */
int
gk_gpu_probe(GkDeviceInfo *out, int max)
{
	int			count = 0;
	cudaError_t e = cudaGetDeviceCount(&count);

	if (max < 1)
		return 0;
	if (e != cudaSuccess || count == 0)
	{
		memset(&out[0], 0, sizeof(out[0]));
		snprintf(out[0].backend, sizeof(out[0].backend), "gpu");
		snprintf(out[0].name, sizeof(out[0].name), "NVIDIA CUDA");
		snprintf(out[0].reason, sizeof(out[0].reason), "%s",
				 why_no_devices(e == cudaSuccess ? cudaErrorNoDevice : e, &count));
		return 1;
	}
	if (count > max)
		count = max;
	for (int i = 0; i < count; i++)
	{
		GkDeviceInfo *d = &out[i];
		cudaDeviceProp prop;

		memset(d, 0, sizeof(*d));
		snprintf(d->backend, sizeof(d->backend), "gpu");
		e = cudaGetDeviceProperties(&prop, i);
		if (e != cudaSuccess)
		{
			cudaGetLastError();
			snprintf(d->name, sizeof(d->name), "GPU %d", i);
			snprintf(d->reason, sizeof(d->reason), "%s", cudaGetErrorString(e));
			continue;
		}
		snprintf(d->name, sizeof(d->name), "GPU %d: %.60s", i, prop.name);
		d->memory = (int64_t) prop.totalGlobalMem;
		if (i < GK_GPU_MOST)
		{
			seen[i].sms = prop.multiProcessorCount;
			seen[i].memory = (double) prop.totalGlobalMem;
		}
		snprintf(d->detail, sizeof(d->detail), "compute capability %d.%d, %d multiprocessors, %d MB of L2 cache",
				 prop.major, prop.minor, prop.multiProcessorCount, prop.l2CacheSize >> 20);
		if (prop.major < MIN_MAJOR)
			snprintf(d->reason, sizeof(d->reason), "compute capability %d.%d is below %d.0",
					 prop.major, prop.minor, MIN_MAJOR);
		else if (i < GK_GPU_MOST && gpus[i].dead)
			snprintf(d->reason, sizeof(d->reason), "%s", gpus[i].reason);
		else
			d->usable = true;
	}
	return count;
}

double
gk_gpu_step_ms(int ordinal, const GkProblem *problem, int64_t rows)
{
	const GkPoints *pts = problem->core->points(problem->store);
	double		values = (double) rows * pts->d;
	double		bytes = values * sizeof(float);
	double		limit = problem->gpu_memory_limit > 0.0 ? problem->gpu_memory_limit : GK_DEFAULT_LIMIT;
	double		part = (double) seen[ordinal].sms / GK_COST_SMS;	/* of the device that the costs are of */

	return fmax(fmax(bytes / (GK_READ_PER_MS * part), values * problem->k_max / (GK_GEMM_PER_MS * part)),
				(bytes - limit * seen[ordinal].memory) / GK_BUS_PER_MS);
}

static cudaError_t
make_event(cudaEvent_t *event, unsigned int flags)
{
	return *event != NULL ? cudaSuccess : cudaEventCreateWithFlags(event, flags);
}

/* Streams, events and the ring of one device, but for what an earlier try has made. */
static cudaError_t
set_up(GkGpu *g)
{
	cudaDeviceProp prop;
	cudaError_t e;
	int			compiled_for = 0;

	if ((e = cudaSetDevice(g->ordinal)) != cudaSuccess ||
		(e = cudaGetDeviceProperties(&prop, g->ordinal)) != cudaSuccess)
		return e;
	snprintf(g->name, sizeof(g->name), "%.90s", prop.name);
	g->major = prop.major;
	g->minor = prop.minor;
	/* (Also what was compiled for older ones may run there.) */
	g->may_follow = cub::PtxVersion(compiled_for) == cudaSuccess && compiled_for >= 900;
	g->sms = prop.multiProcessorCount;
	g->shared_optin = prop.sharedMemPerBlockOptin;
	g->l2 = prop.l2CacheSize;
	if (g->stream == NULL)
		e = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
	if (e == cudaSuccess && g->copy == NULL)
		e = cudaStreamCreateWithFlags(&g->copy, cudaStreamNonBlocking);
	for (int i = 0; e == cudaSuccess && i < GK_GPU_RING; i++)
		if ((g->ring[i] != NULL ||
			 (e = cudaHostAlloc((void **) &g->ring[i], GK_GPU_RING_BYTES, cudaHostAllocDefault)) == cudaSuccess) &&
			(e = make_event(&g->ring_sent[i], cudaEventDisableTiming)) == cudaSuccess)
			e = make_event(&g->ring_used[i], cudaEventDisableTiming);
	for (int i = 0; e == cudaSuccess && i < 2; i++)
		e = make_event(&g->pace[i], cudaEventDisableTiming);
	if (e == cudaSuccess)
		e = make_event(&g->unit_made, cudaEventDisableTiming);
	for (int i = 0; e == cudaSuccess && i < GK_GPU_UNITS; i++)
		e = make_event(&g->unit_done[i], cudaEventDisableTiming);
	return e;
}

/*
 * Open a device, or bind this thread to it if it is open.  The driver starts threads of its own: they must not
 * catch the process's signals, so all are blocked while it does.
 */
static cudaError_t
open_device(GkGpu *g, int ordinal)
{
	sigset_t	all,
				before;
	cudaError_t e;

	g->ordinal = ordinal;
	if (!g->opened)
		g->contexts++;
	g->opened = true;
	if (g->ready)
		return cudaSetDevice(ordinal);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	e = set_up(g);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	g->ready = e == cudaSuccess;
	return e;
}

/* The first usable device of the list, opened. */
GkStatus
gk_gpu_acquire(const char *devices, GkGpu **out, GkError *err)
{
	GkDeviceInfo info[GK_GPU_MOST];
	int			n = gk_gpu_probe(info, GK_GPU_MOST);
	int			found = -1;
	cudaError_t e;

	for (int i = 0; i < n && found < 0; i++)
		if (info[i].usable && gk_device_listed(devices, i))
			found = i;
	if (found < 0)
	{
		gk_gpu_error(err, GK_ERR_NO_DEVICE, "no usable GPU");
		snprintf(err->detail, sizeof(err->detail), "%s",
				 info[0].usable ? "the list of devices names none that is usable" : info[0].reason);
		return err->code;
	}
	e = open_device(&gpus[found], found);
	if (e != cudaSuccess)
	{
		cudaGetLastError();
		gk_gpu_error(err, e == cudaErrorMemoryAllocation ? GK_ERR_DEVICE_MEMORY : GK_ERR_DEVICE,
					 "GPU %d could not be opened", found);
		snprintf(err->detail, sizeof(err->detail), "%s (%s)", cudaGetErrorName(e), cudaGetErrorString(e));
		return err->code;
	}
	*out = &gpus[found];
	return GK_OK;
}

/* Faults are gk_gpu_arm_fault()'s, in open(). */
void
gk_gpu_warm(int ordinal, const char *fault)
{
	(void) fault;
	if (open_device(&gpus[ordinal], ordinal) == cudaSuccess)
		gk_gpu_ingest_load();
	cudaGetLastError();
}

bool
gk_gpu_is_warm(int ordinal)
{
	return gpus[ordinal].ready;
}

/*
 * Destroying the context frees the ring, the streams and the events as well.  Its threads end with it; as
 * when they began, they must not catch signals.
 */
static void
destroy_context(int ordinal)
{
	sigset_t	all,
				before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (cudaSetDevice(ordinal) == cudaSuccess || gpus[ordinal].dead)
		cudaDeviceReset();
	cudaGetLastError();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Forget all of a device but how often it was opened. */
static void
forget(GkGpu *g)
{
	int			ordinal = g->ordinal;
	unsigned	contexts = g->contexts;

	destroy_context(ordinal);
	memset(g, 0, sizeof(*g));
	g->ordinal = ordinal;
	g->contexts = contexts;
}

void
gk_gpu_release(int ordinal)
{
	GkGpu	   *g = &gpus[ordinal];

	if (!g->opened)
		return;
	/* a pool is the device's, perhaps not its context's */
	if (g->pool != NULL && cudaSetDevice(ordinal) == cudaSuccess)
		gk_gpu_join_drop(g);
	cudaGetLastError();
	forget(g);
}

void
gk_gpu_discard(GkGpu *g)
{
	char		reason[sizeof(g->reason)];

	memcpy(reason, g->reason, sizeof(reason));
	forget(g);
	g->dead = true;
	memcpy(g->reason, reason, sizeof(reason));
}

unsigned
gk_gpu_context(int ordinal)
{
	return gpus[ordinal].opened ? gpus[ordinal].contexts : 0;
}

double
gk_gpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

GkStatus
gk_gpu_wait(GkSession *s, cudaEvent_t event, GkError *err)
{
	double		start = gk_gpu_ms();
	double		polled = start;

	for (;;)
	{
		cudaError_t e = cudaEventQuery(event);
		double		now;

		if (e == cudaSuccess)
			return GK_OK;
		if (e != cudaErrorNotReady)
			GK_TRY(e);
		now = gk_gpu_ms();
		if (now - polled > POLL_MS)
		{
			polled = now;
			if (s->host->poll && s->host->poll(s->host->ctx))
				return GK_STOPPED;
		}
		if (now - start > SPIN_MS)
		{
			struct timespec nap = {0, 20000};

			nanosleep(&nap, NULL);
		}
	}
}

GkStatus
gk_gpu_resident_blocks(GkSession *s, const void *kernel, int threads, size_t shared, int64_t *blocks, GkError *err)
{
	int			per_sm;

	GK_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
	GK_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, shared));
	*blocks = (int64_t) per_sm * s->gpu->sms;
	return GK_OK;
}

GkStatus
gk_gpu_launch(GkSession *s, const void *kernel, int64_t blocks, int threads, size_t shared, const void *arg,
			  GkError *err)
{
	void	   *args[] = {(void *) arg};
	int64_t		resident = 0;

	GK_DO(gk_gpu_resident_blocks(s, kernel, threads, shared, &resident, err));
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) gk_min(blocks, resident)), dim3(threads), args, shared,
							s->gpu->stream));
	return GK_OK;
}

cudaError_t
gk_gpu_follow(const GkSession *s, const void *kernel, dim3 grid, int threads, size_t shared, void **args)
{
	cudaLaunchAttribute early = {};
	cudaLaunchConfig_t config = {};

	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = grid;
	config.blockDim = dim3(threads);
	config.dynamicSmemBytes = shared;
	config.stream = s->gpu->stream;
	config.attrs = &early;
	config.numAttrs = s->gpu->may_follow ? 1 : 0;
	return cudaLaunchKernelExC(&config, kernel, args);
}

/* Wait for everything launched so far. */
GkStatus
gk_gpu_drain(GkSession *s, GkError *err)
{
	GK_TRY(cudaEventRecord(s->gpu->pace[0], s->gpu->stream));
	s->gpu->pace_set[0] = false;
	return gk_gpu_wait(s, s->gpu->pace[0], err);
}
