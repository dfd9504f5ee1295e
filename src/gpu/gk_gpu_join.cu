/*
 * gk_gpu_join.cu - sessions on several GPUs, each with some of the rows, as one clustering.
 *
 * Each device makes the totals of its own rows, leaves a copy where the others can read it, and meets them; what
 * makes the next centroids adds up all copies.  Many devices with many totals add up a slice each, write it to all,
 * and meet once more.  So all have the same totals, exact integers, and each makes the same next centroids and goes
 * on ahead of the host as it does alone (gk_gpu_step.cu); no sums cross to the host and back.
 *
 * Where no device has more than GK_GPU_INT64_ROWS rows, and these have no weights, the copies have 64 bits a total.
 *
 * A meeting is a kernel that writes its number into the others' memory and waits for theirs.  It never waits
 * for a device that does not come: one that has stopped says so instead, the host says so for one that failed,
 * and then the meeting breaks up: what was begun is void, and the host begins anew.
 *
 * All sessions launch the same meetings in the same order, because the host gives all the same calls that launch
 * any, and what each decides by itself they agree on first (gk_gpu_agree).
 */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_join.h"

#define THREADS			256
#define LOOKS			64		/* at a flag, between two at the host's memory */
#define ALL_ROUNDS		0xffffffffu
#define AGREE_POLL_NS	5000000L
#define JOIN_VALUES		3		/* of a session, at most: own totals twice, and sums */
#define SLICE_ALIGN		8		/* totals: 128 bytes */
#define SLICE_BYTES		((int64_t) 4 << 20) /* fewer are read before another meeting is over (H100: 10 us) */

/* ---- kernels ---- */

typedef struct MeetArgs
{
	int			n;
	int			me;
	unsigned long long number;	/* round * 2^32 + turn * 2 */
	unsigned long long *heard;
	unsigned long long *tell[GK_GPU_MOST];
	const unsigned *stop;		/* this device's */
	int		   *done;
	bool		timed;			/* ends what the device computed by itself */
	unsigned long long *clock;
} MeetArgs;

#define VOID			1ull	/* of a number: it did not get there */

__device__ __forceinline__ unsigned long long
now_ns()
{
	unsigned long long t;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
	return t;
}

__device__ __forceinline__ void
tell(unsigned long long *to, unsigned long long number)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(to), "l"(number) : "memory");
}

__device__ __forceinline__ unsigned long long
hear(const unsigned long long *from)
{
	unsigned long long number;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(number) : "l"(from) : "memory");
	return number;
}

/* Has the one who says `theirs` come to meeting `mine`?  0: not yet, 1: yes, -1: it will not. */
__device__ __forceinline__ int
has_come(unsigned long long theirs, unsigned long long mine)
{
	if (theirs >> 32 != mine >> 32)
		return theirs >> 32 > mine >> 32 ? -1 : 0;
	if (theirs >> 1 > mine >> 1)
		return 1;
	return theirs & VOID ? -1 : theirs == mine;
}

/* One warp, a lane for each of the others. */
__global__ void
meet_kernel(const __grid_constant__ MeetArgs a)
{
	gk_await_previous();

	int			i = threadIdx.x;
	bool		other = i < a.n && i != a.me;
	bool		alone = *(volatile int *) a.done != 0;
	unsigned long long begin = now_ns();
	unsigned long long left = a.clock[2];

	/* Until the next round it goes on to say where it left: nothing after that is valid. */
	if (left == 0 && alone)
		left = a.number | VOID;
	if (other)
	{
		/* What earlier kernels wrote is there before this is. */
		__threadfence_system();
		tell(a.tell[i], left != 0 ? left : a.number);
	}
	for (unsigned look = 1; other && !alone; look++)
	{
		int			come = has_come(hear(a.heard + i), a.number);

		if (come > 0)
			break;
		alone = come < 0 || (look % LOOKS == 0 && *(const volatile unsigned *) a.stop >= a.number >> 32);
	}
	alone = __any_sync(0xffffffffu, alone);
	if (i == 0)
	{
		if (alone)
		{
			*a.done = 1;
			a.clock[2] = left != 0 ? left : a.number | VOID;
		}
		if (a.timed)
			a.clock[1] = a.clock[0] != 0 && !alone ? begin - a.clock[0] : 0;
		a.clock[0] = now_ns();
	}
}

__global__ void
clock_kernel(unsigned long long *clock)
{
	clock[0] = now_ns();
	clock[1] = clock[2] = 0;
}

/* Not of what has stopped: a device that does not wait must leave what the others may still read. */
template<typename Total>
__global__ void __launch_bounds__(THREADS)
copy_kernel(const gk_int128 *totals, Total *box, int64_t values, const int *done)
{
	gk_await_previous();

	if (*done)
		return;
	for (int64_t v = (int64_t) blockIdx.x * THREADS + threadIdx.x; v < values; v += (int64_t) gridDim.x * THREADS)
		box[v] = (Total) totals[v];
}

typedef struct SumArgs
{
	GkTotals	totals;
	int64_t		from,
				to;				/* of them */
	gk_int128  *sums[GK_GPU_MOST];	/* of each device that has a part */
	const int  *done;
} SumArgs;

__global__ void __launch_bounds__(THREADS)
sum_kernel(const __grid_constant__ SumArgs a)
{
	gk_await_previous();

	if (*a.done)
		return;
	for (int64_t v = a.from + (int64_t) blockIdx.x * THREADS + threadIdx.x; v < a.to; v += (int64_t) gridDim.x * THREADS)
	{
		gk_int128	sum = gk_total(a.totals, v);

		for (int i = 0; i < a.totals.parts; i++)
			a.sums[i][v] = sum;
	}
}

static inline size_t
box_value(bool narrow)
{
	return narrow ? sizeof(int64_t) : sizeof(gk_int128);
}

/* ---- the host's side of a meeting ---- */

bool
gk_gpu_join_is_over(const GkSession *s)
{
	return s->joined != NULL && s->joined->with != NULL && __atomic_load_n(&s->joined->with->over, __ATOMIC_ACQUIRE);
}

void
gk_gpu_join_give_up(GkSession *s)
{
	GkMeeting  *m;

	if (s == NULL || s->joined == NULL || s->joined->with == NULL)
		return;
	m = s->joined->with;
	pthread_mutex_lock(&m->lock);
	__atomic_store_n(&m->over, true, __ATOMIC_RELEASE);
	for (int i = 0; i < m->n; i++)
		__atomic_store_n(&m->stop[i], ALL_ROUNDS, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&m->news);
	pthread_mutex_unlock(&m->lock);
}

void
gk_gpu_join_stop(GkSession *s)
{
	GkJoined   *j = s->joined;

	if (j == NULL || j->with == NULL)
		return;
	pthread_mutex_lock(&j->with->lock);
	if (!j->with->over)
		__atomic_store_n(&j->with->stop[j->me], j->round, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&j->with->lock);
}

static void
wait_for_news(GkMeeting *m)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += AGREE_POLL_NS;
	if (until.tv_nsec >= 1000000000L)
	{
		until.tv_nsec -= 1000000000L;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&m->news, &m->lock, &until);
}

GkStatus
gk_gpu_agree(GkSession *s, bool mine, bool *all)
{
	GkMeeting  *m = s->joined != NULL ? s->joined->with : NULL;
	bool		stopped = false;
	unsigned	turn;

	*all = mine;
	if (m == NULL)
		return GK_OK;
	pthread_mutex_lock(&m->lock);
	turn = m->agreements;
	m->so_far = (m->here == 0 || m->so_far) && mine;
	if (++m->here == m->n)
	{
		m->agreed = m->so_far;
		m->here = 0;
		m->agreements++;
		pthread_cond_broadcast(&m->news);
	}
	while (m->agreements == turn && !m->over && !stopped)
	{
		wait_for_news(m);
		stopped = s->host->poll != NULL && s->host->poll(s->host->ctx);
	}
	*all = m->agreements != turn && m->agreed && !m->over;
	pthread_mutex_unlock(&m->lock);
	return stopped ? GK_STOPPED : GK_OK;
}

/* ---- meetings ---- */

GkStatus
gk_gpu_join_begin(GkSession *s, GkError *err)
{
	GkJoined   *j = s->joined;

	if (j == NULL)
		return GK_OK;
	j->round++;
	j->turn = 0;
	clock_kernel<<<1, 1, 0, s->gpu->stream>>>(j->clock);
	GK_LAUNCHED();
	return GK_OK;
}

static GkStatus
meet(GkSession *s, int *done, bool timed, GkError *err)
{
	GkJoined   *j = s->joined;
	MeetArgs	a = {};

	if (j == NULL)
		return GK_OK;
	a.n = j->with->n;
	a.me = j->me;
	a.number = (unsigned long long) j->round << 32 | (unsigned long long) j->turn << 1;
	a.heard = j->heard;
	memcpy(a.tell, j->tell, sizeof(a.tell));
	a.stop = &j->with->stop[j->me];
	a.done = done;
	a.timed = timed;
	a.clock = j->clock;
	GK_TRY(gk_follow(s, meet_kernel, 1, 32, 0, a));
	j->turn++;
	return GK_OK;
}

GkStatus
gk_gpu_meet(GkSession *s, int *done, GkError *err)
{
	return meet(s, done, true, err);
}

/*
 * Does each device add up a slice of the totals?  It reads a slice of the copies of n - 1 others, and writes the sums, of
 * 128 bits, to as many: instead of n - 1 copies.
 */
static bool
in_slices(int64_t values, bool narrow, int n)
{
	return values * (n - 1) * ((n - 1) * (int64_t) box_value(narrow) - (int64_t) sizeof(gk_int128)) / n > SLICE_BYTES;
}

static GkStatus
launch_copy(GkSession *s, unsigned int blocks, void *box, int64_t values, GkError *err)
{
	if (s->joined->narrow)
		GK_TRY(gk_follow(s, copy_kernel<int64_t>, blocks, THREADS, 0, s->totals, (int64_t *) box, values, s->done));
	else
		GK_TRY(gk_follow(s, copy_kernel<gk_int128>, blocks, THREADS, 0, s->totals, (gk_int128 *) box, values, s->done));
	return GK_OK;
}

/* All copies into all devices' sums, a slice by each; then these are the totals. */
static GkStatus
sum_slices(GkSession *s, unsigned int blocks, int64_t values, GkTotals *totals, GkError *err)
{
	GkJoined   *j = s->joined;
	int			n = j->with->n;
	int64_t		slice = ((values + n - 1) / n + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN;
	SumArgs		a = {*totals};

	a.from = gk_min(j->me * slice, values);
	a.to = gk_min(a.from + slice, values);
	memcpy(a.sums, j->sums_of, sizeof(a.sums));
	a.done = s->done;
	GK_TRY(gk_follow(s, sum_kernel, blocks, THREADS, 0, a));
	*totals = {1, false, {j->sums}};
	return meet(s, s->done, false, err);
}

/*
 * Copies at even and odd turns lie apart: a device that is at the next turn already does not write to what a
 * slower one still reads.  It cannot be two turns ahead, unless it has stopped, and then it writes none.
 *
 * In slices there are two meetings, so that all copies lie at even turns: no device writes totals before all have
 * added up the last ones, nor sums before all have done with theirs.
 */
GkStatus
gk_gpu_join_totals(GkSession *s, int k, GkTotals *totals, GkError *err)
{
	GkJoined   *j = s->joined;
	int64_t		values = gk_gpu_values(s, k);
	unsigned int blocks = (unsigned int) gk_min((values + THREADS - 1) / THREADS, s->gpu->sms * GK_SM_BLOCKS);
	int			side;

	*totals = {1, false, {s->totals}};
	if (!gk_gpu_is_joined(s, k))
		return GK_OK;
	side = j->turn % 2;
	*totals = {j->with->n, j->narrow};
	memcpy(totals->of, j->boxes[side], sizeof(totals->of));
	GK_DO(launch_copy(s, blocks, j->box[side], values, err));
	GK_DO(meet(s, s->done, true, err));
	return in_slices(values, j->narrow, j->with->n) ? sum_slices(s, blocks, values, totals, err) : GK_OK;
}

const unsigned long long *
gk_gpu_join_busy(const GkSession *s)
{
	return s->joined->clock + 1;
}

/* ---- joining and leaving ---- */

void
gk_gpu_join_free(GkSession *s)
{
	GkJoined   *j = s->joined;

	if (j == NULL)
		return;
	/* what failed may not have waited for it */
	cudaStreamSynchronize(s->gpu->stream);
	cudaFree(j->heard);
	cudaFree(j->clock);
	cudaFree(j->box[0]);
	cudaFree(j->box[1]);
	cudaFree(j->sums);
	if (s->gpu->pool != NULL)
		cudaMemPoolTrimTo(s->gpu->pool, 0);
	/* All have left, so that this one may end what they had in common. */
	if (j->me == 0 && j->with != NULL)
	{
		if (j->with->stop != NULL)
			cudaFreeHost(j->with->stop);
		pthread_cond_destroy(&j->with->news);
		pthread_mutex_destroy(&j->with->lock);
		s->core->free(s->host, j->with);
	}
	s->core->free(s->host, j);
	s->joined = NULL;
}

void
gk_gpu_leave(GkSession *s)
{
	if (s->joined == NULL)
		return;
	gk_gpu_join_give_up(s);
	cudaStreamSynchronize(s->gpu->copy);
	cudaStreamSynchronize(s->gpu->stream);
}

/* Can each reach the others' memory? */
static bool
reach_each_other(const GkJoin *members, int n)
{
	for (int i = 0; i < n; i++)
		for (int o = 0; o < n; o++)
		{
			int			me = members[i].session->gpu->ordinal;
			int			other = members[o].session->gpu->ordinal;
			int			can = 0;

			if (o != i && (other == me || cudaDeviceCanAccessPeer(&can, me, other) != cudaSuccess || !can))
				return false;
		}
	return true;
}

void
gk_gpu_join_drop(GkGpu *g)
{
	if (g->pool != NULL)
	{
		cudaFree(g->pool_held);
		cudaMemPoolDestroy(g->pool);
	}
	g->pool = NULL;
	g->pool_held = NULL;
	memset(g->reached_by, 0, sizeof(g->reached_by));
}

/*
 * Only what is in a pool of its own is mapped for the others.  After cudaDeviceEnablePeerAccess() all memory would
 * be, and getting gigabytes of it took a quarter of a second longer (two H100).  The pool stays until its device is
 * closed, and holds some memory: to map the first takes 40 ms (four H200).
 */
static GkStatus
make_pool(GkSession *s, const GkJoin *members, int n, GkError *err)
{
	GkGpu	   *g = s->gpu;
	cudaMemPoolProps props = {};
	cudaMemAccessDesc access[GK_GPU_MOST] = {};
	int			more = 0;

	/* What one reached that was closed since, it does not reach again. */
	for (int o = 0; o < GK_GPU_MOST; o++)
		if (g->reached_by[o] != 0 && g->reached_by[o] != gk_gpu_context(o))
			gk_gpu_join_drop(g);
	if (g->pool == NULL)
	{
		props.allocType = cudaMemAllocationTypePinned;
		props.location.type = cudaMemLocationTypeDevice;
		props.location.id = g->ordinal;
		GK_TRY(cudaMemPoolCreate(&g->pool, &props));
	}
	for (int i = 0; i < n; i++)
	{
		const GkGpu *other = members[i].session->gpu;

		if (g->reached_by[other->ordinal] != 0)
			continue;
		access[more].location.type = cudaMemLocationTypeDevice;
		access[more].location.id = other->ordinal;
		access[more].flags = cudaMemAccessFlagsProtReadWrite;
		more++;
	}
	if (more > 0)
		GK_TRY(cudaMemPoolSetAccess(g->pool, access, more));
	for (int i = 0; i < n; i++)
		g->reached_by[members[i].session->gpu->ordinal] = gk_gpu_context(members[i].session->gpu->ordinal);
	if (g->pool_held == NULL)
		GK_DO(gk_gpu_join_malloc(s, &g->pool_held, 1, err));
	return GK_OK;
}

GkStatus
gk_gpu_join_malloc(GkSession *s, void **to, size_t bytes, GkError *err)
{
	if (s->joined == NULL)
	{
		GK_TRY(cudaMalloc(to, bytes));
		return GK_OK;
	}
	GK_TRY(cudaMallocFromPoolAsync(to, bytes, s->gpu->pool, s->gpu->stream));
	GK_TRY(cudaStreamSynchronize(s->gpu->stream));
	return GK_OK;
}

static GkStatus
make(GkSession *s, int me, const GkJoin *members, int n, GkError *err)
{
	size_t		values = gk_gpu_values(s, s->problem.k_max);
	size_t		bytes = values * sizeof(gk_int128);
	size_t		avail;
	size_t		total;
	GkJoined   *j = (GkJoined *) s->core->alloc(s->host, 1, sizeof(GkJoined));

	if (j == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	memset(j, 0, sizeof(*j));
	j->me = me;
	j->narrow = true;
	for (int i = 0; i < n; i++)
	{
		const GkSession *member = members[i].session;

		j->first[i] = members[i].first;
		j->narrow &= !member->pts->weighted && member->n <= GK_GPU_INT64_ROWS;
	}
	s->joined = j;
	GK_TRY(cudaSetDevice(s->gpu->ordinal));
	GK_TRY(cudaMemGetInfo(&avail, &total));
	/* The log must fit, too: without that memory the device would be lost. */
	if (avail < (JOIN_VALUES + GK_REST_VALUE / sizeof(gk_int128)) * bytes)
		return gk_gpu_error(err, GK_ERR_DEVICE_MEMORY, "out of memory on GPU %d", s->gpu->ordinal);
	GK_DO(make_pool(s, members, n, err));
	GK_DO(gk_gpu_join_malloc(s, (void **) &j->heard, n * sizeof(*j->heard), err));
	GK_TRY(cudaMemsetAsync(j->heard, 0, n * sizeof(*j->heard), s->gpu->stream));
	for (int i = 0; i < 2; i++)
		GK_DO(gk_gpu_join_malloc(s, &j->box[i], values * box_value(j->narrow), err));
	if (in_slices(values, j->narrow, n))
		GK_DO(gk_gpu_join_malloc(s, (void **) &j->sums, bytes, err));
	GK_TRY(cudaMalloc((void **) &j->clock, 3 * sizeof(*j->clock)));
	/* The others may write to it from now on. */
	GK_TRY(cudaStreamSynchronize(s->gpu->stream));
	return GK_OK;
}

static GkMeeting *
make_meeting(GkSession *s, int n)
{
	GkMeeting  *m = (GkMeeting *) s->core->alloc(s->host, 1, sizeof(GkMeeting));

	if (m == NULL)
		return NULL;
	memset(m, 0, sizeof(*m));
	m->n = n;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->news, NULL);
	if (cudaHostAlloc((void **) &m->stop, n * sizeof(unsigned), cudaHostAllocPortable) != cudaSuccess)
		m->stop = NULL;
	else
		memset(m->stop, 0, n * sizeof(unsigned));
	return m;
}

/* Where each finds what the others have. */
static void
introduce(GkSession *s, int me, const GkJoin *members, int n)
{
	GkJoined   *j = s->joined;

	for (int o = 0; o < n; o++)
	{
		const GkJoined *other = members[o].session->joined;

		j->boxes[0][o] = other->box[0];
		j->boxes[1][o] = other->box[1];
		j->sums_of[o] = other->sums;
		j->tell[o] = other->heard + me;
	}
}

static bool
join(const GkJoin *members, int n)
{
	GkMeeting  *m;
	GkError		err;

	if (n > GK_GPU_MOST || !reach_each_other(members, n))
		return false;
	/* The papers' hybrid has no chain. */
	for (int i = 0; i < n; i++)
		if (members[i].session->regime == GK_PAPER_HYBRID)
			return false;
	for (int i = 0; i < n; i++)
		if (make(members[i].session, i, members, n, &err) != GK_OK)
			return false;
	m = make_meeting(members[0].session, n);
	if (m == NULL)
		return false;
	for (int i = 0; i < n; i++)
	{
		members[i].session->joined->with = m;
		introduce(members[i].session, i, members, n);
	}
	return m->stop != NULL;
}

bool
gk_gpu_join(const GkJoin *members, int n, int max_iter, double tol)
{
	sigset_t	all,
				before;
	int			device = -1;
	bool		joined;

	(void) cudaGetDevice(&device);
	/* The driver may start threads of its own (gk_gpu_acquire). */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	joined = join(members, n);
	for (int i = 0; i < n; i++)
		if (joined)
		{
			members[i].session->problem.max_iter = max_iter;
			members[i].session->problem.tol = tol;
		}
		else
			gk_gpu_join_free(members[i].session);
	(void) cudaSetDevice(device);
	cudaGetLastError();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return joined;
}
