/*
 * gk_gpu_groups.cu - thousands of small groups in one launch, a block for each (gk_gpu_block_lloyd.h).
 *
 * The slots that groups are packed into are the pinned ring, each with a copy on the device: up, a launch for
 * each size of blocks, results down; the host fills other slots meanwhile.  A group is as long in one block's
 * shared memory as it takes; the time that a slot may take is bounded by that of all iterations that are
 * allowed.
 */
#include <string.h>

#include "gpu/gk_gpu_block_lloyd.h"
#include "gpu/gk_gpu_cost.h"

#define HEADS		((size_t) GK_GROUP_BATCH_GROUPS * sizeof(GkGroupBatchItem))	/* at the start of a slot */
#define SIZES		7
#define MAX_THREADS	512
#define MIN_SHARED	((size_t) 4096)	/* bytes of shared memory */

typedef struct Packs
{
	GkGroupSession		pub;			/* must be first */
	GkSession	s;				/* the device, errors and faults; it has no points */
	GkGroupBatchTask task;
	char	   *data[GK_GPU_RING];	/* of the ring, after the heads */
	char	   *device[GK_GPU_RING];
	double	   *given;
} Packs;

template <int T>
__global__ void __launch_bounds__(T, T <= 128 ? 1024 / T : 1)
group_kernel(const __grid_constant__ GkGroupBatchTask task, const GkGroupBatchItem *groups, char *data)
{
	extern __shared__ double memory[];

	gk_block_group(&task, &groups[blockIdx.x], data, (char *) memory);
}

typedef void (*GroupKernel) (const GkGroupBatchTask, const GkGroupBatchItem *, char *);

static const GroupKernel kernels[SIZES] = {
	group_kernel<32>, group_kernel<64>, group_kernel<128>, group_kernel<256>,
	group_kernel<512>, group_kernel<512>, group_kernel<512>
};

/* ---- sizes ---- */

static int
threads_of(int size)
{
	return 32 << size < MAX_THREADS ? 32 << size : MAX_THREADS;
}

static size_t
shared_of(const Packs *p, int size)
{
	size_t		limit = p->s.gpu->shared_optin;

	return size < SIZES - 1 && MIN_SHARED << size < limit ? MIN_SHARED << size : limit;
}

/* The smallest blocks that have room for the group; SIZES: none. */
static int
size_of(const Packs *p, int64_t n, int k, int candidates)
{
	int			size = 0;

	while (size < SIZES && gk_block_bytes(n, p->task.d, k, candidates, threads_of(size)) > shared_of(p, size))
		size++;
	return size;
}

/* The share of a slot's time that a group takes; over 1: it is not taken. */
static double
share(const GkGroupSession *session, int64_t n, int k)
{
	const Packs *p = (const Packs *) session;
	double		d = p->task.d;
	int			candidates = k < 3 ? 2 : 16;	/* at most */
	int			size = size_of(p, n, k, candidates);
	double		runs = p->task.given != NULL ? 1.0 : p->task.n_init;
	double		rounds = runs * (p->task.max_iter + 8.0);
	double		values = rounds * 2.0 * n * k * d + runs * k * n * (candidates * d + 64.0) + runs * k * k * d;

	if (size == SIZES || rounds * (GK_GROUP_ROUND + GK_GROUP_CLUSTER * k) +
		values / threads_of(size) * GK_GROUP_VALUE > GK_GROUP_SLOT_MS * GK_CYCLES_PER_MS)
		return 2.0;
	return (rounds * (GK_GROUP_ROUND_MEAN + GK_GROUP_CLUSTER_MEAN * k) + values * GK_GROUP_VALUE_MEAN) /
		(GK_GROUP_SLOT_MS * GK_CYCLES_PER_MS * p->s.gpu->sms);
}

/* ---- slots ---- */

static void
close_session(GkGroupSession *session)
{
	Packs	   *p = (Packs *) session;

	if (p == NULL)
		return;
	if (p->s.gpu != NULL)
	{
		cudaStreamSynchronize(p->s.gpu->copy);
		cudaStreamSynchronize(p->s.gpu->stream);
		for (int i = 0; i < GK_GPU_RING; i++)
			cudaFree(p->device[i]);
		cudaFree(p->given);
		cudaGetLastError();
		if (p->s.gpu->dead)
			gk_gpu_discard(p->s.gpu);
	}
	p->s.core->free(p->s.host, p);
}

static GkStatus
set_up(Packs *p, GkError *err)
{
	GkSession  *s = &p->s;
	size_t		given = p->task.given != NULL ? (size_t) p->task.k * p->task.d * sizeof(double) : 0;

	GK_DO(gk_gpu_acquire(p->task.gpu_devices, &s->gpu, err));
	GK_DO(gk_gpu_arm_fault(s, true, err));
	for (int i = 0; i < GK_GPU_RING; i++)
	{
		GK_TRY(cudaMalloc((void **) &p->device[i], GK_GPU_RING_BYTES));
		p->data[i] = s->gpu->ring[i] + HEADS;
	}
	if (given > 0)
	{
		GK_TRY(cudaMalloc((void **) &p->given, given));
		GK_TRY(cudaMemcpy(p->given, p->task.given, given, cudaMemcpyHostToDevice));
		p->task.given = p->given;
	}
	for (int i = 0; i < SIZES; i++)
		GK_TRY(cudaFuncSetAttribute(kernels[i], cudaFuncAttributeMaxDynamicSharedMemorySize, (int) s->gpu->shared_optin));
	p->pub.slots = GK_GPU_RING;
	p->pub.slot_bytes = GK_GPU_RING_BYTES - HEADS;
	p->pub.slot = p->data;
	return gk_gpu_arm_fault(s, false, err);
}

static GkStatus
open_session(const GkHost *host, const GkCore *core, const GkGroupBatchTask *task, GkGroupSession **out, GkError *err)
{
	Packs	   *p = (Packs *) core->alloc(host, 1, sizeof(Packs));
	GkStatus	st;

	*out = NULL;
	if (p == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	memset(p, 0, sizeof(*p));
	p->s.faults_at = -1;
	p->s.host = host;
	p->s.core = core;
	p->s.problem.gpu_fault = task->gpu_fault;
	p->task = *task;
	st = set_up(p, err);
	if (st != GK_OK)
	{
		close_session(&p->pub);
		return st;
	}
	*out = &p->pub;
	return GK_OK;
}

/* The heads, by the size of their blocks; first[size] is where each begins. */
static void
sort_heads(const Packs *p, const GkGroupBatchItem *groups, int n, GkGroupBatchItem *heads, int *first)
{
	int			at[SIZES];

	memset(first, 0, (SIZES + 1) * sizeof(int));
	for (int i = 0; i < n; i++)
		first[size_of(p, groups[i].n, groups[i].k, groups[i].candidates) + 1]++;
	for (int size = 0; size < SIZES; size++)
	{
		at[size] = first[size];
		first[size + 1] += first[size];
	}
	for (int i = 0; i < n; i++)
		heads[at[size_of(p, groups[i].n, groups[i].k, groups[i].candidates)]++] = groups[i];
}

static GkStatus
start(GkGroupSession *session, int slot, const GkGroupBatchItem *groups, int n, size_t read, size_t end, GkError *err)
{
	Packs	   *p = (Packs *) session;
	GkSession  *s = &p->s;
	GkGpu	   *g = s->gpu;
	GkGroupBatchItem *heads = (GkGroupBatchItem *) g->ring[slot];
	const GkGroupBatchItem *heads_there = (const GkGroupBatchItem *) p->device[slot];
	char	   *data = p->device[slot] + HEADS;
	int			first[SIZES + 1];

	sort_heads(p, groups, n, heads, first);
	GK_TRY(cudaMemcpyAsync(p->device[slot], heads, n * sizeof(GkGroupBatchItem), cudaMemcpyHostToDevice, g->copy));
	GK_TRY(cudaMemcpyAsync(data, p->data[slot], read, cudaMemcpyHostToDevice, g->copy));
	GK_TRY(cudaEventRecord(g->ring_sent[slot], g->copy));
	GK_TRY(cudaStreamWaitEvent(g->stream, g->ring_sent[slot], 0));
	/* The large ones first, so that the small ones fill up what is left. */
	for (int size = SIZES - 1; size >= 0; size--)
	{
		int			blocks = first[size + 1] - first[size];

		if (blocks == 0)
			continue;
		kernels[size]<<<blocks, threads_of(size), shared_of(p, size), g->stream>>>(p->task, heads_there + first[size], data);
		GK_LAUNCHED();
	}
	GK_TRY(cudaMemcpyAsync(p->data[slot] + read, data + read, end - read, cudaMemcpyDeviceToHost, g->stream));
	GK_TRY(cudaEventRecord(g->ring_used[slot], g->stream));
	return GK_OK;
}

static GkStatus
wait(GkGroupSession *session, int slot, GkError *err)
{
	Packs	   *p = (Packs *) session;

	return gk_gpu_wait(&p->s, p->s.gpu->ring_used[slot], err);
}

const GkGroupBatchBackend gk_gpu_group_batch = {open_session, share, start, wait, close_session};
