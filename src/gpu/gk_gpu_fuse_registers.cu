/*
 * gk_gpu_fuse_registers.cu - few features, few clusters: labels and sums in one pass, at memory speed.
 *
 * One pass.  A thread takes V rows of all D columns at a time, finds their
 * nearest centroids (canonical distance) and adds the rows to float64 sums in
 * registers: exact, because rows are integers on a grid and a thread adds up at
 * most GK_PACKAGE of them.  Rows come straight from global memory in 16-byte
 * loads; that there are always enough of them on their way is left to the many
 * warps (registers for more warps gain more than registers for a group ahead).
 * This is the papers' Cluster Merge with Partitioned Private masses, with
 * registers as the private tables.  Only K - 1 clusters are summed; when k = K
 * the last one is the total minus the rest.
 *
 * Multiprocessors do not get the same share of the memory bandwidth, so only most of the rows are dealt out
 * beforehand; the warps that are done first fetch what is left tile by tile from a counter.
 *
 * Many iterations.  The blocks are all resident (cooperative launch), so the same kernel does many
 * iterations: every block waits for the sums of all, makes the next centroids for itself (gk_update.h, the
 * host's own code), and the first one writes the log that step() answers from.  There is no barrier: a word
 * of a sum counts, in its upper bits, the blocks that have added to it, so that the one trip that brings a
 * sum tells that it is complete.  Words are never cleared but compared with what they were; three sets of
 * them in turn, because a set is added to again only when every block has seen the next one complete.
 */
#include "core/gk_update.h"
#include "gpu/gk_gpu_fuse_registers.cuh"

#define INLINE		10			/* values */
#define DEALT		15			/* sixteenths of the tiles that are dealt out beforehand */

/* ---- iterations ---- */

/* What all blocks have added to a word since `was`, which becomes what it is now. */
__device__ __forceinline__ long long
await(const unsigned long long *word, unsigned long long *was)
{
	unsigned long long before = *was;
	unsigned long long now;

	do
		asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
	while ((now >> COUNT_SHIFT) - (before >> COUNT_SHIFT) < gridDim.x);
	*was = now;
	return (long long) ((now - before) & (COUNT_ONE - 1));
}

/* What a block remembers from one iteration to the next. */
template <int D, int K>
struct Block
{
	float		cs[K * D];		/* centroids */
	unsigned long long was[SETS][(K - 1) * (D + 1)][2];	/* words of sums, before they are added to */
};

/* What the threads of a block share while they make the next centroids. */
template <int D, int K>
struct Update
{
	gk_int128	part[(K - 1) * (D + 1)];	/* as in the set */
	gk_int128	sum[K * D];
	gk_int128	mass[K];
	double		moved[K * D];
	double		shift[K];
	int			stop;
};

/* Wait for the sums of all blocks. */
template <int D, int K>
__device__ __forceinline__ void
await_sums(const FuseRegistersArgs &p, const unsigned long long *set, unsigned long long (*was)[2], Update<D, K> &u)
{
	for (int v = threadIdx.x; v < (K - 1) * (D + 1); v += blockDim.x)
	{
		int			i = v < (K - 1) * D ? v / D : v - (K - 1) * D;

		if (i < p.k)
		{
			const unsigned long long *word = set + (v < (K - 1) * D ? v : K * D + i) * APART;
			long long	low = await(word, &was[v][0]);
			long long	high = await(word + APART / 2, &was[v][1]) - BIAS * gridDim.x;

			u.part[v] = (gk_int128) low + (gk_int128) high * ((gk_int128) 1 << 32);
		}
	}
}

/* Sums and masses of all clusters, into the log as well. */
template <int D, int K>
__device__ __forceinline__ void
complete_sums(const FuseRegistersArgs &p, gk_int128 *log, Update<D, K> &u)
{
	int			k = p.k;

	for (int v = threadIdx.x; v < k * (D + 1); v += blockDim.x)
	{
		int			i = v < k * D ? v / D : v - k * D;
		int			j = v < k * D ? v % D : D;
		gk_int128	t;

		if (i < K - 1)
			t = u.part[j < D ? v : (K - 1) * D + i];
		else
		{
			/* k = K: this one was not summed. */
			t = p.columns.total[j];
#pragma unroll
			for (int o = 0; o < K - 1; o++)
				t -= u.part[j < D ? o * D + j : (K - 1) * D + o];
		}
		if (j < D)
			u.sum[v] = t;
		else
			u.mass[i] = t;
		if (blockIdx.x == 0)
			log[v] = t;
	}
}

/* New centroids; an empty cluster stops the iterations. */
template <int D, int K>
__device__ __forceinline__ void
move_centroids(const FuseRegistersArgs &p, float *cs, Update<D, K> &u)
{
	for (int v = threadIdx.x; v < p.k * D; v += blockDim.x)
	{
		int			i = v / D;
		double		c;

		if (u.mass[i] == 0)
			u.stop = 1;
		else
			u.moved[v] = gk_update_feature(gk_i128_to_double(u.sum[v]) / gk_i128_to_double(u.mass[i]),
										   gk_feature_prep(p.columns.center, p.columns.scale, p.columns.expo, v % D),
										   cs[v], &c, &cs[v]);
	}
}

/* The whole movement, in the order in which the host adds it up, and whether that is little enough. */
template <int D, int K>
__device__ __forceinline__ void
decide_stop(const FuseRegistersArgs &p, int it, Update<D, K> &u)
{
	if (threadIdx.x < p.k)
	{
		double		t = 0.0;

#pragma unroll
		for (int j = 0; j < D; j++)
			t += u.moved[threadIdx.x * D + j];
		u.shift[threadIdx.x] = t;
	}
	__syncthreads();
	if (threadIdx.x == 0)
	{
		double		t = 0.0;

#pragma unroll
		for (int i = 0; i < K; i++)
			if (i < p.k)
				t += u.shift[i];
		if (t <= p.tol)
			u.stop = 1;
		if (blockIdx.x == 0)
		{
			((GkLogHead *) p.unit)->count = it + 1;
			((GkLogHead *) p.unit)->stop = u.stop;
		}
	}
}

/* Next centroids from the sums; every block for itself, the first one logs. */
template <int D, int K>
__device__ __forceinline__ bool
update(const FuseRegistersArgs &p, int it, Block<D, K> &block)
{
	__shared__ Update<D, K> u;
	const unsigned long long *set = p.sets + it % SETS * ((K * (D + 1) + 1) * APART);
	gk_int128  *log = (gk_int128 *) (p.unit + GK_LOG_HEAD + it * p.entry_bytes);
	float	   *used = (float *) (log + p.k * (D + 1));

	await_sums<D, K>(p, set, block.was[it % SETS], u);
	__syncthreads();
	complete_sums<D, K>(p, log, u);
	if (blockIdx.x == 0)
		for (int v = threadIdx.x; v < p.k * D; v += blockDim.x)
			used[v] = block.cs[v];
	if (threadIdx.x == 0)
		u.stop = 0;
	__syncthreads();
	move_centroids<D, K>(p, block.cs, u);
	__syncthreads();
	decide_stop<D, K>(p, it, u);
	__syncthreads();
	return u.stop != 0;
}

/* Where registers are short, a call: inlined, it would make the loop over the rows spill. */
template <int D, int K>
__device__ __noinline__ bool
call_update(const FuseRegistersArgs &p, int it, Block<D, K> &block)
{
	return update<D, K>(p, it, block);
}

template <int D, int K, int V>
__global__ void __launch_bounds__(Shape<D, K, V>::threads, 1)
fuse_registers_kernel(const __grid_constant__ FuseRegistersArgs p)
{
	typedef Shape<D, K, V> T;
	__shared__ Block<D, K> block;
	float	   *cs = block.cs;
	int			first = (threadIdx.x / 32 * gridDim.x + blockIdx.x) * p.per_tile * 32 + threadIdx.x % 32;
	float		x[D][V];

	if (p.done != NULL && *p.done)
		return;
	if (p.groups > 0)
		load_group<D, V>(p, first, x);
	for (int v = threadIdx.x; v < K * D; v += blockDim.x)
		cs[v] = v < p.k * D ? p.centroids[v] : GK_INF;
	__syncthreads();
	if (p.iters == 0)
	{
		pass<D, K, V, 1>(p, x, cs, p.acc, (int64_t) p.k * D, NULL);
		return;
	}
	for (int v = threadIdx.x; v < SETS * (K - 1) * (D + 1) * 2; v += blockDim.x)
		(&block.was[0][0][0])[v] = 0;
	for (int it = 0; it < p.iters; it++)
	{
		unsigned long long *set = p.sets + it % SETS * T::set;
		GkAcc		acc = {set, set + APART / 2};
		bool		last = it == p.iters - 1;
		bool		stop;

		pass<D, K, V, APART>(p, x, cs, acc, K * D, shared_tiles(p) ? set + T::values * APART : NULL);
		if (last && blockIdx.x != 0)
			return;
		/* Where registers are short, keeps the update out of the loop over the rows. */
		if (K * D > INLINE)
			__syncthreads();
		/* The next pass begins with the same rows: on their way meanwhile. */
		if (p.groups > 0)
			load_group<D, V>(p, first, x);
		stop = K * D <= INLINE ? update<D, K>(p, it, block) : call_update<D, K>(p, it, block);
		if (blockIdx.x == 0)
		{
			if (threadIdx.x == 0)
				p.sets[(it + 2) % SETS * T::set + T::values * APART] = 0;
			if (stop && threadIdx.x == 0)
				*p.done = 1;
			if (stop || last)
				for (int v = threadIdx.x; v < p.k * D; v += blockDim.x)
					p.centroids[v] = cs[v];
		}
		if (stop)
			return;
		/* The cleared counter is seen by all before they have this block's next sums. */
		if (shared_tiles(p))
			__threadfence();
	}
}

/* ---- launchers ---- */

typedef struct Variant
{
	int			k;
	int			rows;			/* V */
	int			threads;		/* at most */
	int			set;			/* words of a set of accumulators */
	const void *kernel;
} Variant;

#define VARIANT(D, K, V) \
	{K, V, Shape<D, K, V>::threads, Shape<D, K, V>::set, (const void *) fuse_registers_kernel<D, K, V>}
#define MAX_VARIANTS	4

/* By d, ascending K. */
static const Variant variants[17][MAX_VARIANTS] = {
	{},
	{VARIANT(1, 4, 4), VARIANT(1, 8, 4), VARIANT(1, 16, 4), VARIANT(1, 32, 4)},
	{VARIANT(2, 4, 4), VARIANT(2, 5, 4), VARIANT(2, 8, 4), VARIANT(2, 16, 4)},
	{VARIANT(3, 4, 4), VARIANT(3, 8, 4), VARIANT(3, 16, 4)},
	{VARIANT(4, 4, 4), VARIANT(4, 8, 4), VARIANT(4, 12, 4)},
	{VARIANT(5, 4, 4), VARIANT(5, 8, 4)},
	{VARIANT(6, 4, 4), VARIANT(6, 8, 4)},
	{VARIANT(7, 4, 4), VARIANT(7, 7, 4)},
	{VARIANT(8, 4, 4), VARIANT(8, 6, 2)},
	{VARIANT(9, 4, 2)}, {VARIANT(10, 4, 2)}, {VARIANT(11, 4, 2)}, {VARIANT(12, 4, 2)},
	{VARIANT(13, 4, 2)}, {VARIANT(14, 4, 2)}, {VARIANT(15, 3, 2)}, {VARIANT(16, 3, 2)},
};

static const Variant *
variant(int d, int k)
{
	if (d <= 16)
		for (int i = 0; i < MAX_VARIANTS && variants[d][i].k > 0; i++)
			if (variants[d][i].k >= k)
				return &variants[d][i];
	return NULL;
}

bool
gk_gpu_fuse_registers_fits(const GkSession *s, int k)
{
	return !s->pts->weighted && variant(s->d, k) != NULL;
}

int64_t
gk_gpu_fuse_registers_rows(const GkSession *s, int k)
{
	const Variant *v = variant(s->d, k);
	int64_t		threads = (int64_t) (v != NULL ? v->threads : 256) * s->gpu->sms;

	/* Three quarters of a package per thread, so that not all can be full. */
	threads *= (GK_PACKAGE - 64) * 3 / 4;
	return threads < (int64_t) 1 << 31 ? threads : (int64_t) 1 << 31;
}

/*
 * One block per multiprocessor, so that few meet at the barrier, as large as the work asks for; and how the
 * rows are dealt out.
 */
static void
deal(const GkSession *s, const Variant *v, bool counter, FuseRegistersArgs *a, int *blocks, int *threads)
{
	int64_t		groups = a->rows / v->rows;
	int64_t		per_sm = (groups + s->gpu->sms - 1) / s->gpu->sms;
	int64_t		warps;
	int64_t		lane_groups;

	*threads = per_sm >= v->threads ? v->threads : per_sm < 64 ? 64 : (int) (per_sm + 31) / 32 * 32;
	*blocks = (int) ((groups + *threads - 1) / *threads);
	if (*blocks > s->gpu->sms)
		*blocks = s->gpu->sms;
	if (*blocks < 1)
		*blocks = 1;
	warps = (int64_t) *blocks * (*threads / 32);
	lane_groups = (groups + warps * 32 - 1) / (warps * 32);
	a->groups = (int) groups;
	a->per_tile = lane_groups >= 128 ? 4 : lane_groups >= 32 ? 2 : 1;
	a->tiles = (int) ((groups + a->per_tile * 32 - 1) / (a->per_tile * 32));
	a->dealt = (int) ((a->tiles + warps - 1) / warps);
	if (counter && lane_groups >= 32)
		a->dealt = (int) (a->tiles * (int64_t) DEALT / 16 / warps);
	a->fetched = (GK_PACKAGE - 16) / (v->rows * a->per_tile) - a->dealt;
}

static FuseRegistersArgs
common_args(const GkSession *s, const float *x, int64_t ld, int64_t rows, int k)
{
	FuseRegistersArgs a = {};

	a.x = x;
	a.ld = ld;
	a.rows = rows;
	a.k = k;
	a.centroids = s->centroids;
	a.columns = s->columns;
	return a;
}

GkStatus
gk_gpu_fuse_registers_run(GkSession *s, int k, int iters, char *unit, GkError *err)
{
	const Variant *v = variant(s->d, k);
	FuseRegistersArgs a = common_args(s, s->x, s->ld, s->resident, k);
	size_t		bytes = (size_t) SETS * v->set * 8;
	void	   *args[] = {&a};
	int			blocks,
				threads;

	GK_DO(gk_gpu_scratch(s, bytes, err));
	a.iters = iters;
	a.sets = (unsigned long long *) s->scratch;
	a.done = s->done;
	a.unit = unit;
	a.entry_bytes = s->entry_bytes;
	a.tol = s->problem.tol;
	deal(s, v, true, &a, &blocks, &threads);
	GK_TRY(cudaMemsetAsync(s->scratch, 0, bytes, s->gpu->stream));
	GK_TRY(cudaMemsetAsync(unit, 0, sizeof(GkLogHead), s->gpu->stream));
	GK_TRY(cudaLaunchCooperativeKernel(v->kernel, dim3(blocks), dim3(threads), args, 0, s->gpu->stream));
	return GK_OK;
}

GkStatus
gk_gpu_fuse_registers(GkSession *s, const GkRows *rows, int k, bool *last, GkError *err)
{
	const Variant *v = variant(s->d, k);
	FuseRegistersArgs a = common_args(s, rows->x, rows->ld, rows->rows, k);
	void	   *args[] = {&a};
	int			blocks,
				threads;

	a.acc = s->acc;
	*last = v->k == k;
	deal(s, v, false, &a, &blocks, &threads);
	GK_TRY(cudaLaunchKernel(v->kernel, dim3(blocks), dim3(threads), args, 0, s->gpu->stream));
	return GK_OK;
}
