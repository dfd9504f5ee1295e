/*
 * gk_gpu_small.cu - few features, few clusters: one pass at memory speed.
 *
 * Regime A.  A thread takes V rows of all D columns at a time, finds their
 * nearest centroids (canonical distance) and adds the rows to float64 sums in
 * registers: exact, because rows are integers on a grid and a thread adds up at
 * most GK_PACKAGE of them.  The rows come through the thread's own ring in
 * shared memory by asynchronous copies, several groups ahead: enough bytes in
 * flight for the whole memory bandwidth without registers to hold them.  This is the papers' Cluster Merge
 * with Partitioned Private masses, with registers as the private tables.  Only
 * K - 1 clusters are summed; when k = K the last one is the total minus the rest.
 *
 * Regime G.  The blocks are all resident (cooperative launch), so the same
 * kernel does many iterations: it meets at a grid barrier, every block makes
 * the next centroids for itself (gk_update.h, the host's own code), and the
 * first one writes the log that step() answers from.  Three sets of
 * accumulators in turn: one is added to, one is read, one is cleared.
 */
#include "core/gk_update.h"
#include "gpu/gk_gpu_device.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define SETS		3

typedef struct SmallArgs
{
	const float *x;
	int64_t		ld;
	int64_t		rows;
	int			k;
	int			iters;			/* 0: add to acc and leave */
	float	   *centroids;
	GkAcc		acc;
	/* Iterating. */
	unsigned long long *sets;	/* [SETS][2][K * (D + 1)], zero */
	unsigned int *arrived;		/* zero */
	int		   *done;
	char	   *unit;
	size_t		entry_bytes;
	double		tol;
	GkColumns	columns;
} SmallArgs;

/* ---- kernels ---- */

template <int D, int K>
struct Sums
{
	double		sum[K - 1][D];
	double		count[K - 1];
};

/* Nearest centroid of a row, and the row's values into that cluster's sums. */
template <int D, int K, int V>
__device__ __forceinline__ void
take_rows(const float (&x)[D][V], const float (&c)[K * D], Sums<D, K> &s)
{
#pragma unroll
	for (int r = 0; r < V; r++)
	{
		float		best = 0.0f;
		int			label = 0;

#pragma unroll
		for (int i = 0; i < K; i++)
		{
			float		d2 = 0.0f;

#pragma unroll
			for (int j = 0; j < D; j++)
			{
				float		t = __fsub_rn(x[j][r], c[i * D + j]);

				d2 = __fmaf_rn(t, t, d2);
			}
			if (i == 0 || d2 < best)
			{
				best = d2;
				label = i;
			}
		}
		/*
		 * One multiply-add per sum, by 1 or by 0: exact, and no branch nor
		 * selection of 64-bit values.
		 */
#pragma unroll
		for (int i = 0; i < K - 1; i++)
		{
			double		mine = label == i ? 1.0 : 0.0;

			s.count[i] += mine;
#pragma unroll
			for (int j = 0; j < D; j++)
				s.sum[i][j] = __fma_rn((double) x[j][r], mine, s.sum[i][j]);
		}
	}
}

/* ---- the ring ---- */

/* Blocks per multiprocessor that the registers allow, by what spilled. */
template <int D, int K, int V>
struct Blocks
{
	static constexpr int registers = 2 * (K - 1) * (D + 1) + K * D + D * V + 4 * K + 24;
	static constexpr int value = registers <= 90 ? 3 : registers <= 120 ? 2 : 1;
};

template <int D, int K, int V>
struct Ring
{
	static constexpr int slot = D * V * THREADS;	/* floats */
	static constexpr int wanted = 192 * 1024 / Blocks<D, K, V>::value / (slot * 4);
	static constexpr int slots = wanted < 3 ? 3 : wanted > 8 ? 8 : wanted;
	static constexpr int bytes = slots * slot * 4;
};

template <int V>
__device__ __forceinline__ void
copy_async(float *to, const float *from)
{
	unsigned int at = (unsigned int) __cvta_generic_to_shared(to);

	if (V == 4)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(at), "l"(from), "n"(V * 4) : "memory");
}

/* One group of rows on its way into a slot; an empty group after the last. */
template <int D, int V>
__device__ __forceinline__ void
fetch(float *to, const float *from, int64_t ld, bool there)
{
	if (there)
	{
#pragma unroll
		for (int j = 0; j < D; j++)
			copy_async<V>(to + j * THREADS * V, from + j * ld);
	}
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/*
 * Sum N values over the warp with about N exchanges instead of 5 N: each step
 * halves both the lanes that share a value and the values a lane keeps.  In the
 * end a lane's v[0] (and v[1] for N > 32) is the sum of value *first; it holds
 * *valid of them.
 */
template <int N, int O>
struct Transpose
{
	static __device__ __forceinline__ void
	sum(long long *v, int *first, int *valid)
	{
		constexpr int half = (N + 1) / 2;
		bool		upper = (threadIdx.x & O) != 0;

#pragma unroll
		for (int i = 0; i < half; i++)
		{
			long long	second = i + half < N ? v[i + half < N ? i + half : 0] : 0;
			long long	keep = upper ? second : v[i];
			long long	send = upper ? v[i] : second;

			v[i] = keep + __shfl_xor_sync(0xffffffffu, send, O);
		}
		*first += upper ? half : 0;
		*valid = upper ? *valid - half : *valid < half ? *valid : half;
		Transpose<half, O / 2>::sum(v, first, valid);
	}
};

template <int N>
struct Transpose<N, 0>
{
	static __device__ __forceinline__ void
	sum(long long *, int *, int *)
	{
	}
};

/* One block's part of a pass: sums of its rows, added to acc. */
template <int D, int K, int V>
__device__ __forceinline__ void
pass(const SmallArgs &p, float *ring, bool kept, const float *cs, const GkAcc &acc, int64_t counts_at)
{
	constexpr int S = Ring<D, K, V>::slots;
	constexpr int SLOT = Ring<D, K, V>::slot;
	constexpr int N = (K - 1) * D;
	__shared__ long long part[WARPS][(K - 1) * (D + 1)];
	int64_t		groups = p.rows / V;
	int64_t		stride = (int64_t) gridDim.x * THREADS;
	int64_t		first = (int64_t) blockIdx.x * THREADS + threadIdx.x;
	int			mine = first < groups ? (int) ((groups - first + stride - 1) / stride) : 0;
	int			lane = threadIdx.x % 32;
	int			warp = threadIdx.x / 32;
	float	   *own = ring + threadIdx.x * V;
	const float *from = p.x + first * V;
	int			to = 0;			/* slot to fill, in floats */
	int			slot = 0;		/* slot to work on */
	float		c[K * D];
	Sums<D, K>	s;

	if (!kept)
	{
#pragma unroll
		for (int i = 0; i < S - 1; i++)
		{
			fetch<D, V>(own + i * SLOT, from, p.ld, i < mine);
			from += stride * V;
		}
		to = (S - 1) * SLOT;
	}
#pragma unroll
	for (int i = 0; i < K * D; i++)
		c[i] = cs[i];
#pragma unroll
	for (int i = 0; i < K - 1; i++)
	{
		s.count[i] = 0.0;
#pragma unroll
		for (int j = 0; j < D; j++)
			s.sum[i][j] = 0.0;
	}
#pragma unroll 1
	for (int left = mine; left > 0; left--)
	{
		float		x[D][V];

		if (!kept)
		{
			asm volatile("cp.async.wait_group %0;" :: "n"(S - 2) : "memory");
			fetch<D, V>(own + to, from, p.ld, left >= S);
			from += stride * V;
			to = to == (S - 1) * SLOT ? 0 : to + SLOT;
		}
#pragma unroll
		for (int j = 0; j < D; j++)
		{
			const float *at = own + slot + j * THREADS * V;

			if (V == 4)
				*(float4 *) x[j] = *(const float4 *) at;
			else
				*(float2 *) x[j] = *(const float2 *) at;
		}
		take_rows<D, K, V>(x, c, s);
		slot = slot == (S - 1) * SLOT ? 0 : slot + SLOT;
	}
	/* The last rows, fewer than V. */
	first = groups * V + threadIdx.x;
	if (blockIdx.x == gridDim.x - 1 && first < p.rows)
	{
		float		one[D][1];

#pragma unroll
		for (int j = 0; j < D; j++)
			one[j][0] = p.x[j * p.ld + first];
		take_rows<D, K, 1>(one, c, s);
	}
	{
		long long	v[N];
		int			id = 0;
		int			valid = N;

#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = (long long) (s.sum[i / D][i % D] * p.columns.inv[i % D]);
		Transpose<N, 16>::sum(v, &id, &valid);
		if (valid > 0)
			part[warp][id] = v[0];
		if (N > 32 && valid > 1)
			part[warp][id + 1] = v[1 % N];
	}
#pragma unroll
	for (int i = 0; i < K - 1; i++)
	{
		int			n = __reduce_add_sync(0xffffffffu, (int) s.count[i]);

		if (lane == 0)
			part[warp][N + i] = n;
	}
	__syncthreads();
	for (int v = threadIdx.x; v < (K - 1) * (D + 1); v += THREADS)
	{
		int			i = v < N ? v / D : v - N;
		int64_t		at = v < N ? v : counts_at + i;
		long long	sum = 0;

		if (i >= p.k)
			continue;
#pragma unroll
		for (int w = 0; w < WARPS; w++)
			sum += part[w][v];
		if (p.rows <= GK_ACC_ROWS)
			gk_red(acc.a + at, sum);
		else
			gk_acc_add(acc, at, sum);
	}
}

/* All blocks have added their sums when arrived reaches target. */
__device__ __forceinline__ void
barrier(unsigned int *arrived, unsigned int target, bool wait)
{
	__syncthreads();
	if (threadIdx.x == 0)
	{
		asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(arrived) : "memory");
		if (wait)
		{
			unsigned int n;

			do
				asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(n) : "l"(arrived) : "memory");
			while (n < target);
		}
	}
	__syncthreads();
}

/* Next centroids from the sums; every block for itself, the first one logs. */
template <int D, int K>
__device__ __forceinline__ bool
update(const SmallArgs &p, int it, const unsigned long long *set, float *cs)
{
	__shared__ gk_int128 sum[K * D];
	__shared__ gk_int128 mass[K];
	__shared__ double moved[K * D];
	__shared__ double shift[K];
	__shared__ int stop;
	const unsigned long long *b = set + K * (D + 1);
	int			k = p.k;
	char	   *entry = p.unit + 64 + it * p.entry_bytes;
	gk_int128  *log = (gk_int128 *) entry;
	float	   *used = (float *) (log + k * (D + 1));

	for (int v = threadIdx.x; v < k * (D + 1); v += THREADS)
	{
		int			i = v < k * D ? v / D : v - k * D;
		int			j = v < k * D ? v % D : D;
		gk_int128	t = 0;

		if (i < K - 1)
		{
			int			at = j < D ? i * D + j : K * D + i;

			t = gk_acc_value(__ldcg(set + at), __ldcg(b + at), 32);
		}
		else
		{
			/* k = K: this one was not summed. */
			t = p.columns.total[j];
			for (int o = 0; o < K - 1; o++)
			{
				int			at = j < D ? o * D + j : K * D + o;

				t -= gk_acc_value(__ldcg(set + at), __ldcg(b + at), 32);
			}
		}
		if (j < D)
			sum[v] = t;
		else
			mass[i] = t;
		if (blockIdx.x == 0)
			log[v] = t;
	}
	if (blockIdx.x == 0)
		for (int v = threadIdx.x; v < k * D; v += THREADS)
			used[v] = cs[v];
	if (threadIdx.x == 0)
		stop = 0;
	__syncthreads();
	for (int v = threadIdx.x; v < k * D; v += THREADS)
	{
		int			i = v / D;
		int			j = v % D;

		if (mass[i] == 0)
			stop = 1;
		else
		{
			double		center = p.columns.center[j];
			double		scale = p.columns.scale[j];
			double		m = gk_mean(sum[v], mass[i], p.columns.expo[j], center, scale);
			float		f = gk_centroid_to_float(m, center, scale);
			double		t = (double) f - (double) cs[v];

			moved[v] = t * t;
			cs[v] = f;
		}
	}
	__syncthreads();
	if (threadIdx.x < k)
	{
		double		t = 0.0;

#pragma unroll
		for (int j = 0; j < D; j++)
			t += moved[threadIdx.x * D + j];
		shift[threadIdx.x] = t;
	}
	__syncthreads();
	if (threadIdx.x == 0)
	{
		double		t = 0.0;

		for (int i = 0; i < k; i++)
			t += shift[i];
		if (t <= p.tol)
			stop = 1;
		if (blockIdx.x == 0)
		{
			((GkLogHead *) p.unit)->count = it + 1;
			((GkLogHead *) p.unit)->stop = stop;
		}
	}
	__syncthreads();
	return stop != 0;
}

template <int D, int K, int V>
__global__ void __launch_bounds__(THREADS, Blocks<D, K, V>::value)
small_kernel(const __grid_constant__ SmallArgs p)
{
	extern __shared__ __align__(16) float ring[];
	__shared__ float cs[K * D];
	constexpr int values = K * (D + 1);
	bool		stays = p.rows / V <= (int64_t) Ring<D, K, V>::slots * gridDim.x * THREADS;

	if (p.done != NULL && *p.done)
		return;
	for (int v = threadIdx.x; v < K * D; v += THREADS)
		cs[v] = v < p.k * D ? p.centroids[v] : GK_INF;
	__syncthreads();
	if (p.iters == 0)
	{
		pass<D, K, V>(p, ring, false, cs, p.acc, (int64_t) p.k * D);
		return;
	}
	for (int it = 0; it < p.iters; it++)
	{
		unsigned long long *set = p.sets + it % SETS * 2 * values;
		GkAcc		acc = {set, set + values};
		bool		last = it == p.iters - 1;
		bool		stop;

		pass<D, K, V>(p, ring, stays && it > 0, cs, acc, K * D);
		barrier(p.arrived, (it + 1) * gridDim.x, !last || blockIdx.x == 0);
		if (last && blockIdx.x != 0)
			return;
		stop = update<D, K>(p, it, set, cs);
		if (blockIdx.x == 0)
		{
			unsigned long long *clear = p.sets + (it + 2) % SETS * 2 * values;

			for (int v = threadIdx.x; v < 2 * values; v += THREADS)
				clear[v] = 0;
			if (stop && threadIdx.x == 0)
				*p.done = 1;
			if (stop || last)
				for (int v = threadIdx.x; v < p.k * D; v += THREADS)
					p.centroids[v] = cs[v];
		}
		if (stop)
			return;
	}
}

/* ---- launchers ---- */

typedef struct Variant
{
	int			k;
	int			shared;			/* bytes */
	const void *kernel;
} Variant;

#define DS(D, K, V)		{K, Ring<D, K, V>::bytes, (const void *) small_kernel<D, K, V>}
#define MAX_VARIANTS	4

/* By d, ascending K. */
static const Variant variants[17][MAX_VARIANTS] = {
	{},
	{DS(1, 4, 4), DS(1, 8, 4), DS(1, 16, 4), DS(1, 32, 4)},
	{DS(2, 4, 4), DS(2, 5, 4), DS(2, 8, 4), DS(2, 16, 4)},
	{DS(3, 4, 4), DS(3, 8, 4), DS(3, 16, 4)},
	{DS(4, 4, 4), DS(4, 8, 4), DS(4, 12, 4)},
	{DS(5, 4, 4), DS(5, 8, 4)},
	{DS(6, 4, 2), DS(6, 8, 2)},
	{DS(7, 4, 2), DS(7, 7, 2)},
	{DS(8, 4, 2), DS(8, 6, 2)},
	{DS(9, 4, 2)}, {DS(10, 4, 2)}, {DS(11, 4, 2)}, {DS(12, 4, 2)},
	{DS(13, 4, 2)}, {DS(14, 4, 2)}, {DS(15, 3, 2)}, {DS(16, 3, 2)},
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
gk_gpu_small_fits(const GkSession *s, int k)
{
	return !s->pts->weighted && variant(s->d, k) != NULL;
}

/* Blocks that can be resident at once, not more than there is work for. */
static GkStatus
grid_size(GkSession *s, const Variant *v, int64_t rows, int *blocks, GkError *err)
{
	int64_t		wanted = (rows + 4 * THREADS - 1) / (4 * THREADS);
	int			per_sm;

	GK_TRY(cudaFuncSetAttribute(v->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v->shared));
	GK_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, v->kernel, THREADS, v->shared));
	*blocks = per_sm * s->gpu->sms;
	if (*blocks > wanted)
		*blocks = wanted < 1 ? 1 : (int) wanted;
	return GK_OK;
}

int64_t
gk_gpu_small_rows(const GkSession *s, int k)
{
	/* A package per thread, one block per multiprocessor at least. */
	(void) k;
	return (int64_t) (GK_PACKAGE - 8) * THREADS * s->gpu->sms;
}

static SmallArgs
common_args(const GkSession *s, const float *x, int64_t ld, int64_t rows, int k)
{
	SmallArgs	a = {};

	a.x = x;
	a.ld = ld;
	a.rows = rows;
	a.k = k;
	a.centroids = s->centroids;
	a.columns = s->columns;
	return a;
}

GkStatus
gk_gpu_small_run(GkSession *s, int k, int iters, char *unit, GkError *err)
{
	const Variant *v = variant(s->d, k);
	SmallArgs	a = common_args(s, s->x, s->ld, s->resident, k);
	size_t		words = (size_t) SETS * 2 * v->k * (s->d + 1);
	void	   *args[] = {&a};
	int			blocks = 0;

	GK_DO(gk_gpu_scratch(s, words * 8 + 64, err));
	a.iters = iters;
	a.arrived = (unsigned int *) s->scratch;
	a.sets = (unsigned long long *) ((char *) s->scratch + 64);
	a.done = s->done;
	a.unit = unit;
	a.entry_bytes = s->entry_bytes;
	a.tol = s->problem.tol;
	GK_DO(grid_size(s, v, a.rows, &blocks, err));
	GK_TRY(cudaMemsetAsync(s->scratch, 0, words * 8 + 64, s->gpu->stream));
	GK_TRY(cudaMemsetAsync(unit, 0, sizeof(GkLogHead), s->gpu->stream));
	GK_TRY(cudaLaunchCooperativeKernel(v->kernel, dim3(blocks), dim3(THREADS), args, v->shared, s->gpu->stream));
	return GK_OK;
}

GkStatus
gk_gpu_small_slice(GkSession *s, const GkRows *rows, int k, bool *last, GkError *err)
{
	const Variant *v = variant(s->d, k);
	SmallArgs	a = common_args(s, rows->x, rows->ld, rows->rows, k);
	void	   *args[] = {&a};
	int			blocks = 0;

	a.acc = s->acc;
	*last = v->k == k;
	GK_DO(grid_size(s, v, a.rows, &blocks, err));
	GK_TRY(cudaLaunchKernel(v->kernel, dim3(blocks), dim3(THREADS), args, v->shared, s->gpu->stream));
	return GK_OK;
}
