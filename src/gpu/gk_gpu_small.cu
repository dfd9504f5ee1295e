/*
 * gk_gpu_small.cu - few features, few clusters: one pass at memory speed.
 *
 * Regime A.  A thread takes V rows of all D columns at a time, finds their
 * nearest centroids (canonical distance) and adds the rows to float64 sums in
 * registers: exact, because rows are integers on a grid and a thread adds up at
 * most GK_PACKAGE of them.  Rows come straight from global memory in 16-byte
 * loads; that there are always enough of them on their way is left to the many
 * warps (registers for more warps gain more than registers for a group ahead).
 * This is the papers' Cluster Merge with Partitioned Private masses, with
 * registers as the private tables.  Only K - 1 clusters are summed; when k = K
 * the last one is the total minus the rest.
 *
 * Multiprocessors do not get the same share of the memory bandwidth, so only
 * most of the rows are dealt out beforehand; the warps that are done first fetch
 * what is left tile by tile from a counter.
 *
 * Regime G.  The blocks are all resident (cooperative launch), so the same
 * kernel does many iterations: every block waits for the sums of all, makes the
 * next centroids for itself (gk_update.h, the host's own code), and the first one
 * writes the log that step() answers from.  There is no barrier: a word of a sum
 * counts, in its upper bits, the blocks that have added to it, so that the one
 * trip that brings a sum tells that it is complete.  Words are never cleared but
 * compared with what they were; three sets of them in turn, because a set is
 * added to again only when every block has seen the next one complete.
 */
#include "core/gk_update.h"
#include "gpu/gk_gpu_device.cuh"

#define MAX_WARPS	32
#define SETS		3
#define APART		32			/* words from one sum to the next: all blocks add to them at the
								 * same time, and one memory slice would do it one by one */
#define COUNT_SHIFT	48			/* a word's count of blocks; below it, at most MAX_ADDS of less than 2^33 */
#define COUNT_ONE	(1ull << COUNT_SHIFT)
#define MAX_ADDS	32768
#define BIAS		(1ll << 32)	/* makes upper halves positive: rows of a block < 2^24 */
#define INLINE		10			/* values */
#define DEALT		15			/* sixteenths of the tiles that are dealt out beforehand */

typedef struct SmallArgs
{
	const float *x;
	int64_t		ld;
	int64_t		rows;
	int			k;
	int			iters;			/* 0: add to acc and leave */
	int			groups;			/* of V rows, all of them full */
	int			per_tile;		/* groups of a lane in a tile */
	int			tiles;
	int			dealt;			/* tiles per warp before the counter is asked */
	int			fetched;		/* tiles per warp after that, at most: a package */
	float	   *centroids;
	GkAcc		acc;
	/* Iterating. */
	unsigned long long *sets;	/* [SETS][K * (D + 1) + 1][APART], zero; the last one hands out tiles */
	int		   *done;
	char	   *unit;
	size_t		entry_bytes;
	double		tol;
	GkColumns	columns;
} SmallArgs;

/* ---- kernels ---- */

/* A block per multiprocessor, as large as the registers allow. */
template <int D, int K, int V>
struct Shape
{
	static constexpr int registers = (2 * (K - 1) * D + K - 1 + K * D + D * V + (D <= 4 ? 20 : 44)) / 8 * 8;
	static constexpr int most = 65536 / (registers < 64 ? 64 : registers > 248 ? 248 : registers);
	static constexpr int threads = most / 32 * 32;
	static constexpr int values = K * (D + 1);
	static constexpr int set = (values + 1) * APART;
};

template <int D, int K>
struct Sums
{
	double		sum[K - 1][D];
	unsigned int count[K - 1];
};

/* Nearest centroid of a row, and the row's values into that cluster's sums. */
template <int D, int K, int V>
__device__ __forceinline__ void
take_rows(const float (&x)[D][V], const float (&c)[K * D], Sums<D, K> &s)
{
#pragma unroll
	for (int r = 0; r < V; r++)
	{
		float		d2[K];
		bool		is[K];		/* the nearest one */

#pragma unroll
		for (int i = 0; i < K; i++)
		{
			d2[i] = 0.0f;
#pragma unroll
			for (int j = 0; j < D; j++)
			{
				float		t = __fsub_rn(x[j][r], c[i * D + j]);

				d2[i] = __fmaf_rn(t, t, d2[i]);
			}
		}
		if (K == 4)
		{
			/* Two pairs, then the winners: the lower number keeps a tie. */
			bool		low = d2[1] < d2[0];
			bool		high = d2[3 % K] < d2[2 % K];
			bool		upper = fminf(d2[2 % K], d2[3 % K]) < fminf(d2[0], d2[1]);

			is[0] = !upper && !low;
			is[1] = !upper && low;
			is[2 % K] = upper && !high;
		}
		else
		{
			float		best = d2[0];
			int			label = 0;

#pragma unroll
			for (int i = 1; i < K; i++)
				if (d2[i] < best)
				{
					best = d2[i];
					label = i;
				}
#pragma unroll
			for (int i = 0; i < K - 1; i++)
				is[i] = label == i;
		}
		/*
		 * One multiply-add per sum, by 1 or by 0: exact, and no branch nor
		 * selection of 64-bit values.
		 */
#pragma unroll
		for (int i = 0; i < K - 1; i++)
		{
			double		mine = is[i] ? 1.0 : 0.0;

			s.count[i] += is[i];
#pragma unroll
			for (int j = 0; j < D; j++)
				s.sum[i][j] = __fma_rn((double) x[j][r], mine, s.sum[i][j]);
		}
	}
}

/* V rows of all columns; past the end, rows that are there but not meant. */
template <int D, int V>
__device__ __forceinline__ void
load_group(const SmallArgs &p, int group, float (&x)[D][V])
{
	const float *from = p.x + (int64_t) (group < p.groups ? group : p.groups - 1) * V;

#pragma unroll
	for (int j = 0; j < D; j++)
		gk_load<V>(from + j * p.ld, x[j]);
}

/* A warp's way through its tiles; all but `at` is the same in every lane. */
struct Walk
{
	int			at;				/* this lane's group */
	int			left;			/* groups of the tile after this one */
	int			tile;
	int			dealt;			/* tiles left of those dealt out; below 0: fetched */
	unsigned int ticket;		/* lane 0: the counter's answer for the next tile */
};

__device__ __forceinline__ void
enter_tile(const SmallArgs &p, Walk &w, unsigned long long *counter)
{
	w.at = w.tile * p.per_tile * 32 + threadIdx.x % 32;
	w.left = p.per_tile - 1;
	w.dealt--;
	if (w.dealt <= 0 && w.dealt > -p.fetched && counter != NULL && threadIdx.x % 32 == 0)
		w.ticket = atomicAdd((unsigned int *) counter, 1u);
}

/* False: there is nothing more to do. */
__device__ __forceinline__ bool
advance(const SmallArgs &p, Walk &w, unsigned long long *counter)
{
	if (w.left > 0)
	{
		w.left--;
		w.at += 32;
		return true;
	}
	{
		int			warps = gridDim.x * (blockDim.x / 32);

		if (w.dealt > 0)
			w.tile += warps;
		else if (counter != NULL && w.dealt > -p.fetched)
			w.tile = p.dealt * warps + (int) __shfl_sync(0xffffffffu, w.ticket, 0);
		else
			return false;
	}
	if (w.tile >= p.tiles)
		return false;
	enter_tile(p, w, counter);
	return true;
}

/* Whether some tiles are not dealt out but fetched. */
__device__ __forceinline__ bool
shared_tiles(const SmallArgs &p)
{
	return p.dealt * (int64_t) (gridDim.x * (blockDim.x / 32)) < p.tiles;
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

/*
 * One block's part of a pass: sums of its rows, added to acc; counted there when
 * the words are apart.  x holds the first group; counter hands out the tiles that are not dealt out, NULL when all are.
 */
template <int D, int K, int V, int apart>
__device__ __forceinline__ void
pass(const SmallArgs &p, float (&x)[D][V], const float *cs, const GkAcc &acc, int64_t counts_at,
	 unsigned long long *counter)
{
	constexpr int N = (K - 1) * D;
	__shared__ long long part[MAX_WARPS][(K - 1) * (D + 1)];
	int			lane = threadIdx.x % 32;
	int			warp = threadIdx.x / 32;
	Walk		w;
	float		c[K * D];
	Sums<D, K>	s;

#pragma unroll
	for (int i = 0; i < K * D; i++)
		c[i] = cs[i];
#pragma unroll
	for (int i = 0; i < K - 1; i++)
	{
		s.count[i] = 0;
#pragma unroll
		for (int j = 0; j < D; j++)
			s.sum[i][j] = 0.0;
	}
	w.tile = warp * gridDim.x + blockIdx.x;
	w.dealt = p.dealt;
	w.ticket = 0;
	if (w.tile < p.tiles)
	{
		enter_tile(p, w, counter);
		for (;;)
		{
			if (w.at < p.groups)
				take_rows<D, K, V>(x, c, s);
			if (!advance(p, w, counter))
				break;
			load_group<D, V>(p, w.at, x);
		}
	}
	/* The last rows, fewer than V. */
	if (blockIdx.x == gridDim.x - 1 && (int64_t) p.groups * V + threadIdx.x < p.rows)
	{
		float		one[D][1];

#pragma unroll
		for (int j = 0; j < D; j++)
			one[j][0] = p.x[j * p.ld + (int64_t) p.groups * V + threadIdx.x];
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
		unsigned int n = __reduce_add_sync(0xffffffffu, s.count[i]);

		if (lane == 0)
			part[warp][N + i] = n;
	}
	__syncthreads();
	for (int v = threadIdx.x; v < (K - 1) * (D + 1); v += blockDim.x)
	{
		int			i = v < N ? v / D : v - N;
		int64_t		at = (v < N ? v : counts_at + i) * apart;
		long long	sum = 0;

		if (i >= p.k)
			continue;
#pragma unroll 4
		for (int w = 0; w < (int) blockDim.x / 32; w++)
			sum += part[w][v];
		if (apart > 1)
		{
			gk_red(acc.a + at, COUNT_ONE + (sum & 0xffffffffLL));
			gk_red(acc.b + at, COUNT_ONE + (sum >> 32) + BIAS);
		}
		else if (p.rows <= GK_ACC_ROWS)
			gk_red(acc.a + at, sum);
		else
			gk_acc_add(acc, at, sum);
	}
}

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

/*
 * gk_mean(), bit for bit: dividing by a power of two, as scales are unless the
 * columns were standardised, is multiplying by its inverse.
 */
__device__ __forceinline__ double
mean(gk_int128 sum, gk_int128 mass, int expo, double center, double scale)
{
	double		m = gk_i128_to_double(sum) / gk_i128_to_double(mass) * gk_pow2(expo - GK_GRID_BITS);
	long long	bits = __double_as_longlong(scale);

	if (bits << 12 == 0 && bits > 0x0010000000000000LL && bits < 0x7fd0000000000000LL)
		return center + m * __longlong_as_double(0x7fe0000000000000LL - bits);
	return center + m / scale;
}

/* What a block remembers from one iteration to the next. */
template <int D, int K>
struct Block
{
	float		cs[K * D];		/* centroids */
	unsigned long long was[SETS][(K - 1) * (D + 1)][2];	/* words of sums, before they are added to */
};

/* Next centroids from the sums; every block for itself, the first one logs. */
template <int D, int K>
__device__ __forceinline__ bool
update(const SmallArgs &p, int it, Block<D, K> &block)
{
	const unsigned long long *set = p.sets + it % SETS * ((K * (D + 1) + 1) * APART);
	unsigned long long (*was)[2] = block.was[it % SETS];
	float	   *cs = block.cs;
	__shared__ gk_int128 part[(K - 1) * (D + 1)];	/* as in the set */
	__shared__ gk_int128 sum[K * D];
	__shared__ gk_int128 mass[K];
	__shared__ double moved[K * D];
	__shared__ double shift[K];
	__shared__ int stop;
	int			k = p.k;
	char	   *entry = p.unit + 64 + it * p.entry_bytes;
	gk_int128  *log = (gk_int128 *) entry;
	float	   *used = (float *) (log + k * (D + 1));

	for (int v = threadIdx.x; v < (K - 1) * (D + 1); v += blockDim.x)
	{
		int			i = v < (K - 1) * D ? v / D : v - (K - 1) * D;

		if (i < k)
		{
			const unsigned long long *word = set + (v < (K - 1) * D ? v : K * D + i) * APART;
			long long	low = await(word, &was[v][0]);
			long long	high = await(word + APART / 2, &was[v][1]) - BIAS * gridDim.x;

			part[v] = (gk_int128) low + (gk_int128) high * ((gk_int128) 1 << 32);
		}
	}
	__syncthreads();
	for (int v = threadIdx.x; v < k * (D + 1); v += blockDim.x)
	{
		int			i = v < k * D ? v / D : v - k * D;
		int			j = v < k * D ? v % D : D;
		gk_int128	t;

		if (i < K - 1)
			t = part[j < D ? v : (K - 1) * D + i];
		else
		{
			/* k = K: this one was not summed. */
			t = p.columns.total[j];
#pragma unroll
			for (int o = 0; o < K - 1; o++)
				t -= part[j < D ? o * D + j : (K - 1) * D + o];
		}
		if (j < D)
			sum[v] = t;
		else
			mass[i] = t;
		if (blockIdx.x == 0)
			log[v] = t;
	}
	if (blockIdx.x == 0)
		for (int v = threadIdx.x; v < k * D; v += blockDim.x)
			used[v] = cs[v];
	if (threadIdx.x == 0)
		stop = 0;
	__syncthreads();
	for (int v = threadIdx.x; v < k * D; v += blockDim.x)
	{
		int			i = v / D;
		int			j = v % D;

		if (mass[i] == 0)
			stop = 1;
		else
		{
			double		center = p.columns.center[j];
			double		scale = p.columns.scale[j];
			double		m = mean(sum[v], mass[i], p.columns.expo[j], center, scale);
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

#pragma unroll
		for (int i = 0; i < K; i++)
			if (i < k)
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

/* Where registers are short, a call: inlined, it would make the loop over the rows spill. */
template <int D, int K>
__device__ __noinline__ bool
call_update(const SmallArgs &p, int it, Block<D, K> &block)
{
	return update<D, K>(p, it, block);
}

template <int D, int K, int V>
__global__ void __launch_bounds__(Shape<D, K, V>::threads, 1)
small_kernel(const __grid_constant__ SmallArgs p)
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

#define DS(D, K, V)		{K, V, Shape<D, K, V>::threads, Shape<D, K, V>::set, (const void *) small_kernel<D, K, V>}
#define MAX_VARIANTS	4

/* By d, ascending K. */
static const Variant variants[17][MAX_VARIANTS] = {
	{},
	{DS(1, 4, 4), DS(1, 8, 4), DS(1, 16, 4), DS(1, 32, 4)},
	{DS(2, 4, 4), DS(2, 5, 4), DS(2, 8, 4), DS(2, 16, 4)},
	{DS(3, 4, 4), DS(3, 8, 4), DS(3, 16, 4)},
	{DS(4, 4, 4), DS(4, 8, 4), DS(4, 12, 4)},
	{DS(5, 4, 4), DS(5, 8, 4)},
	{DS(6, 4, 4), DS(6, 8, 4)},
	{DS(7, 4, 4), DS(7, 7, 4)},
	{DS(8, 4, 4), DS(8, 6, 2)},
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

int64_t
gk_gpu_small_rows(const GkSession *s, int k)
{
	const Variant *v = variant(s->d, k);
	int64_t		threads = (int64_t) (v != NULL ? v->threads : 256) * s->gpu->sms;

	/* Three quarters of a package per thread, so that not all can be full. */
	threads *= (GK_PACKAGE - 64) * 3 / 4;
	return threads < (int64_t) 1 << 31 ? threads : (int64_t) 1 << 31;
}

/*
 * One block per multiprocessor, so that few meet at the barrier, as large as the
 * work asks for; and how the rows are dealt out.
 */
static void
deal(const GkSession *s, const Variant *v, bool counter, SmallArgs *a, int *blocks, int *threads)
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
gk_gpu_small_slice(GkSession *s, const GkRows *rows, int k, bool *last, GkError *err)
{
	const Variant *v = variant(s->d, k);
	SmallArgs	a = common_args(s, rows->x, rows->ld, rows->rows, k);
	void	   *args[] = {&a};
	int			blocks,
				threads;

	a.acc = s->acc;
	*last = v->k == k;
	deal(s, v, false, &a, &blocks, &threads);
	GK_TRY(cudaLaunchKernel(v->kernel, dim3(blocks), dim3(threads), args, 0, s->gpu->stream));
	return GK_OK;
}
