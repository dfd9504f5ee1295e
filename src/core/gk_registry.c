/*
 * gk_registry.c - the backends: the CPU, always there, and gkmeans_gpu.so,
 * loaded on first use by plain dlopen and never unloaded.  If that fails, the reason is
 * kept for gkmeans_devices() and for device => 'gpu'.
 *
 * Finding out which GPUs there are, and opening some, takes as long as reading millions of rows.
 * So both may run beside that, on a thread (gk_beside.h).  What is below belongs to that thread
 * while it runs; all other functions wait for its end first.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/gk_beside.h"
#include "core/gk_backend.h"

#define MAX_DEVICES		16

static char directory[1024];
static bool gpu_tried;
static const GkBackend *gpu;
static char gpu_reason[256];

/* What the GPUs were when a job last looked: asking the driver takes time. */
static GkDeviceInfo seen[MAX_DEVICES];
static int	nseen;

/* What the thread opens (none: it looks), and the fault that a test wants of it. */
static int	opening[MAX_DEVICES];
static int	nopening;
static char opening_fault[64];
static double waited_ms;

static void
settle(void)
{
	(void) gk_registry_wait(NULL);
}

void
gk_registry_set_directory(const char *dir)
{
	snprintf(directory, sizeof(directory), "%s", dir);
}

/*
 * Before the driver is loaded, by the main thread, since the environment is all threads'.  To open a device, the driver
 * makes this number of queues of each kind, eight by default, which takes 10 ms each (H100); a device's work has two streams.
 */
static void
limit_queues(void)
{
	(void) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 0);
}

/* Its path; false: it is not there. */
static bool
gpu_library(char *path, size_t len)
{
	snprintf(path, len, "%s/%s", directory, GK_GPU_LIBRARY);
	return access(path, R_OK) == 0;
}

static const GkBackend *
gpu_backend(void)
{
	char		path[1100];
	void	   *lib;
	void	   *symbol;
	GkBackendInit init;

	if (gpu_tried)
		return gpu;
	gpu_tried = true;
	if (!gpu_library(path, sizeof(path)))
	{
		snprintf(gpu_reason, sizeof(gpu_reason), "built without CUDA: %s is not installed", GK_GPU_LIBRARY);
		return NULL;
	}
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL)
	{
		const char *why = dlerror();

		snprintf(gpu_reason, sizeof(gpu_reason), "could not load %s: %s", GK_GPU_LIBRARY, why ? why : "unknown reason");
		return NULL;
	}
	symbol = dlsym(lib, GK_GPU_SYMBOL);
	memcpy(&init, &symbol, sizeof(init));	/* ISO C has no cast for this */
	if (init == NULL)
		snprintf(gpu_reason, sizeof(gpu_reason), "%s has no %s", GK_GPU_LIBRARY, GK_GPU_SYMBOL);
	else
	{
		const GkBackend *b = init();

		if (b->api_version == GK_BACKEND_API && b->struct_size == sizeof(GkBackend))
			gpu = b;
		else
			snprintf(gpu_reason, sizeof(gpu_reason),
					 "%s is of another version (interface %u, %u bytes; wanted %d, %zu): reinstall it",
					 GK_GPU_LIBRARY, b->api_version, b->struct_size, GK_BACKEND_API, sizeof(GkBackend));
	}
	return gpu;
}

/* Find the GPU backend and the first usable device of the list, else NULL and the reason. */
static const GkBackend *
usable_gpu(const char *gpus, int *gpu_number, char *reason, size_t len)
{
	const GkBackend *b;
	const GkDeviceInfo *info = seen;
	int			n;

	limit_queues();
	b = gpu_backend();
	if (b == NULL)
	{
		snprintf(reason, len, "%s", gpu_reason);
		return NULL;
	}
	n = nseen = b->devices(seen, MAX_DEVICES);
	for (int i = 0; i < n; i++)
		if (info[i].usable && gk_device_listed(gpus, i))
		{
			*gpu_number = i;
			return b;
		}
	if (n > 0 && info[0].reason[0] != '\0')
		snprintf(reason, len, "%.255s", info[0].reason);
	else
		snprintf(reason, len, "gkmeans.gpu_devices = \"%.100s\" names no usable GPU", gpus ? gpus : "");
	return NULL;
}

/*
 * Under auto, a job must be worth the upload and the launches.  Measured against
 * 16 CPU cores (bench/gpu/gpu_server.sh): seeding asks the GPU something for every
 * cluster, which only many values at a time pay for, however many clusters there
 * are; and below 10^8 all is done in some 10 ms anyway.
 */
static bool
worth_a_gpu(int64_t n, int d, int k)
{
	double		values = (double) n * d;

	return values >= 4e6 && values * k >= 1e8;
}

bool
gk_registry_wants_gpu(GkDeviceKind kind, int64_t n, int d, int k)
{
	return kind != GK_DEVICE_CPU && (kind != GK_DEVICE_AUTO || worth_a_gpu(n, d, k));
}

const GkBackend *
gk_registry_choose(GkDeviceKind kind, const char *gpus, int64_t n, int d, int k,
				   int *gpu_number, GkError *err)
{
	char		reason[256];
	const GkBackend *b;

	*gpu_number = -1;
	if (!gk_registry_wants_gpu(kind, n, d, k))
		return &gk_cpu_backend;
	settle();
	b = usable_gpu(gpus, gpu_number, reason, sizeof(reason));
	if (b != NULL)
		return b;
	if (kind == GK_DEVICE_AUTO)
		return &gk_cpu_backend;
	gk_fail(err, GK_ERR_NO_DEVICE, "no usable GPU");
	snprintf(err->detail, sizeof(err->detail), "%s", reason);
	snprintf(err->hint, sizeof(err->hint),
			 "SELECT * FROM gkmeans_devices() shows every device; device => 'auto' uses the CPU when there is no GPU.");
	return NULL;
}

int
gk_registry_seen(const GkDeviceInfo **out, const GkBackend **backend)
{
	settle();
	*out = seen;
	*backend = gpu;
	return nseen;
}

bool
gk_go_on_with_cpu(const GkHost *host, const GkBackend *backend, GkStatus st, const GkError *err)
{
	return (st == GK_ERR_DEVICE || st == GK_ERR_DEVICE_MEMORY) && backend != &gk_cpu_backend &&
		host->device_failed != NULL && host->device_failed(host->ctx, err);
}

/* ---- beside the main thread ---- */

static void
look(void)
{
	const GkBackend *b = gpu_backend();

	if (b != NULL)
		nseen = b->devices(seen, MAX_DEVICES);
}

static void *
open_gpu(void *number)
{
	int			i = *(const int *) number;
	const char *fault = gk_device_fault(opening_fault, i);

	gpu->warm(i, fault != NULL ? fault : "");
	return NULL;
}

/* The first one by this thread, the others each by one of its own, as far as the system has some. */
static void
open_gpus(void)
{
	pthread_t	thread[MAX_DEVICES];
	bool		made[MAX_DEVICES];

	for (int i = 1; i < nopening; i++)
		made[i] = pthread_create(&thread[i], NULL, open_gpu, &opening[i]) == 0;
	(void) open_gpu(&opening[0]);
	for (int i = 1; i < nopening; i++)
		if (made[i])
			pthread_join(thread[i], NULL);
		else
			(void) open_gpu(&opening[i]);
}

static void
release_gpus(void)
{
	for (int i = 0; i < nopening; i++)
		gpu->release(opening[i]);
}

static bool
is_opening(int gpu_number)
{
	for (int i = 0; i < nopening; i++)
		if (opening[i] == gpu_number)
			return true;
	return false;
}

bool
gk_registry_look(void)
{
	char		path[1100];

	if (gk_beside_running())
		return true;
	if (gpu_tried || !gpu_library(path, sizeof(path)))
		return false;
	nopening = 0;
	limit_queues();
	gk_beside_start(look);
	return gk_beside_running();
}

bool
gk_registry_open(const int *gpus, int n, const char *fault)
{
	settle();
	nopening = 0;
	for (int i = 0; gpu != NULL && gpu->warm != NULL && i < n; i++)
		if (!gpu->is_warm(gpus[i]))
			opening[nopening++] = gpus[i];
	if (nopening == 0)
		return false;
	snprintf(opening_fault, sizeof(opening_fault), "%s", fault ? fault : "");
	gk_beside_start(open_gpus);
	return gk_beside_running();
}

bool
gk_registry_is_open(int gpu_number)
{
	settle();
	return gpu != NULL && (gpu->warm == NULL || gpu->is_warm(gpu_number));
}

bool
gk_registry_busy(void)
{
	return gk_beside_running();
}

bool
gk_registry_wait(const GkHost *host)
{
	double		start;
	bool		ended;

	if (!gk_beside_running())
		return true;
	start = gk_now_ms();
	ended = gk_beside_wait(host);
	waited_ms += gk_now_ms() - start;
	return ended;
}

double
gk_registry_waited_ms(void)
{
	return waited_ms;
}

bool
gk_registry_end(double ms)
{
	return gk_beside_wait_ms(ms);
}

/* ---- the devices of the process ---- */

void
gk_registry_release(int gpu_number)
{
	/* what is being opened is given back when it is open: nobody waits for that */
	if (gk_beside_running() && is_opening(gpu_number) && gpu->release != NULL && gk_beside_then(release_gpus))
		return;
	settle();
	if (gpu != NULL && gpu->release != NULL)
		gpu->release(gpu_number);
}

int
gk_registry_devices(GkDeviceInfo *out, int max)
{
	int			n = gk_cpu_backend.devices(out, max);
	const GkBackend *b;

	settle();
	limit_queues();
	b = gpu_backend();
	if (b != NULL)
		return n + b->devices(out + n, max - n);
	if (n < max)
	{
		memset(&out[n], 0, sizeof(out[n]));
		snprintf(out[n].backend, sizeof(out[n].backend), "gpu");
		snprintf(out[n].name, sizeof(out[n].name), "NVIDIA CUDA");
		snprintf(out[n].reason, sizeof(out[n].reason), "%s", gpu_reason);
		n++;
	}
	return n;
}
