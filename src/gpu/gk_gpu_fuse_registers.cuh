/*
 * gk_gpu_fuse_registers.cuh - a block's part of a pass for few features and clusters: its rows, and their
 * sums in registers.  gk_gpu_fuse_registers.cu says what for, and makes iterations of it.
 */
#ifndef GK_GPU_FUSE_REGISTERS_CUH
#define GK_GPU_FUSE_REGISTERS_CUH

#include "gpu/gk_gpu_device.cuh"

#define MAX_WARPS	32
#define SETS		3
#define APART		32			/* words from one sum to the next: all blocks add to them at the
								 * same time, and one memory slice would do it one by one */
#define COUNT_SHIFT	48			/* a word's count of blocks; below it, at most MAX_ADDS of less than 2^33 */
#define COUNT_ONE	(1ull << COUNT_SHIFT)
#define MAX_ADDS	32768
#define BIAS		(1ll << 32)	/* makes upper halves positive: rows of a block < 2^24 */

typedef struct FuseRegistersArgs
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
} FuseRegistersArgs;

/* A block per multiprocessor, as large as the registers allow. */
template <int D, int K, int V>
struct Shape
{
	static constexpr int registers = (2 * (K - 1) * D + K - 1 + K * D + D * V + (D <= 4 ? 20 : 44)) / 8 * 8;
	static constexpr int max_threads = 65536 / (registers < 64 ? 64 : registers > 248 ? 248 : registers);
	static constexpr int threads = max_threads / 32 * 32;
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
		/* One multiply-add per sum, by 1 or by 0: exact, and no branch nor selection of 64-bit values. */
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
load_group(const FuseRegistersArgs &p, int group, float (&x)[D][V])
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
enter_tile(const FuseRegistersArgs &p, Walk &w, unsigned long long *counter)
{
	w.at = w.tile * p.per_tile * 32 + threadIdx.x % 32;
	w.left = p.per_tile - 1;
	w.dealt--;
	if (w.dealt <= 0 && w.dealt > -p.fetched && counter != NULL && threadIdx.x % 32 == 0)
		w.ticket = atomicAdd((unsigned int *) counter, 1u);
}

/* False: there is nothing more to do. */
__device__ __forceinline__ bool
advance(const FuseRegistersArgs &p, Walk &w, unsigned long long *counter)
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
shared_tiles(const FuseRegistersArgs &p)
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
 * One block's part of a pass: sums of its rows, added to acc; counted there when the words are apart.  x
 * holds the first group; counter hands out the tiles that are not dealt out, NULL when all are.
 */
template <int D, int K, int V, int apart>
__device__ __forceinline__ void
pass(const FuseRegistersArgs &p, float (&x)[D][V], const float *cs, const GkAcc &acc, int64_t counts_at,
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
		else if (p.rows <= GK_INT64_ROWS)
			gk_red(acc.a + at, sum);
		else
			gk_acc_add(acc, at, sum);
	}
}

#endif							/* GK_GPU_FUSE_REGISTERS_CUH */
