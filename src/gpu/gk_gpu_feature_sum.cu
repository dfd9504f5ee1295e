/*
 * gk_gpu_feature_sum.cu - Feature Sum of labelled points (Lutz et al. 2018, 3.1).
 *
 * Partitioned Features: a warp owns a feature, a thread has one sum per cluster in a table of its own column,
 * [k][threads], in shared memory: no atomics and no bank conflicts.  Values are float64 and exact: a thread
 * adds up at most GK_PACKAGE points (the slices see to that).  When a block's tables do not fit shared
 * memory, the sums go to global memory by 64-bit integer reductions, through a transposed tile so that a
 * warp's addresses are neighbours.
 *
 * Cluster Merge: a thread owns points, with a private table [k * d] of all sums; in shared memory while 32
 * threads' tables fit, then in global memory.
 *
 * Delta: only points whose label changed are read, added to the new cluster and taken from the old one, in
 * the same tables.  Exact sums do not drift, however long this goes on.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define THREADS			256
#define MERGE_BYTES		((size_t) 512 << 20)	/* of private tables in global memory */
#define MIN_THREADS		THREADS		/* with tables; with fewer, global memory is faster */
#define TILE_ROWS		64
#define TILE_COLS		32

typedef struct SumArgs
{
	GkRows		p;
	int			k;
	int			d;
	GkLabels	labels;
	const void *old;			/* delta: labels before, or NULL */
	GkAcc		acc;
	GkColumns	columns;
} SumArgs;

/*
 * What a row adds to a sum.  W = 1: its value.  W = 2: its weighted value as two integers, the high
 * and the low part.
 */
template <int W>
__device__ __forceinline__ void
split_value(float w, float x, double inv, double (&part)[W])
{
	if (W == 1)
		part[0] = (double) x;
	else
		gk_weighted_split(w, x, inv, part[0], part[W - 1]);
}

/* Add a warp's sum, in grid units, or its two parts. */
template <int W>
__device__ __forceinline__ void
add_sum(const SumArgs &a, int64_t i, long long high, long long low)
{
	if (threadIdx.x % 32 != 0 || (high | low) == 0)
		return;
	if (W == 1)
		gk_acc_add(a.acc, i, high);
	else
		gk_acc_add_parts(a.acc, i, high, low);
}

/* ---- partitioned features, in shared memory ---- */

/* DELTA: to the new cluster and from the old one, of the rows that changed; the rest are not read. */
template <int W, typename L, bool DELTA>
__global__ void __launch_bounds__(THREADS)
partitioned_kernel(SumArgs a)
{
	extern __shared__ double table[];	/* [W][k][threads] */
	int			threads = blockDim.x;
	int			warps = threads / 32;
	int			warp = threadIdx.x / 32;
	int			lane = threadIdx.x % 32;
	int			ways = a.d < warps ? warps / a.d : 1;	/* warps that share a feature */
	int			j = blockIdx.y * warps + (ways > 1 ? warp / ways : warp);
	int			way = ways > 1 ? warp % ways : 0;
	bool		mine = j < a.d && (ways == 1 || warp < a.d * ways);
	int64_t		stride = (int64_t) gridDim.x * ways * 128;
	double	   *mytable = table + threadIdx.x;

	for (int i = threadIdx.x; i < W * a.k * threads; i += threads)
		table[i] = 0.0;
	__syncthreads();
	if (mine)
	{
		const float *x = a.p.x + (int64_t) j * a.p.ld;
		double		inv = a.columns.inv[j];

		for (int64_t row = ((int64_t) blockIdx.x * ways + way) * 128 + lane * 4; row < a.p.rows; row += stride)
		{
			const L    *labels = (const L *) a.labels.at + row;
			float		v[4];
			float		w[4];
			int			label[4];
			int			was[4];
			int			n = a.p.rows - row < 4 ? (int) (a.p.rows - row) : 4;

			gk_load_labels(labels, label);
			if (DELTA)
			{
				bool		same = true;

				gk_load_labels((const L *) a.old + row, was);
#pragma unroll
				for (int r = 0; r < 4; r++)
					same &= label[r] == was[r] || r >= n;
				if (same)
					continue;
			}
			gk_load<4>(x + row, v);
			if (W == 2)
				gk_load<4>(a.p.w + row, w);
#pragma unroll
			for (int r = 0; r < 4; r++)
				if (r < n && !(DELTA && label[r] == was[r]))
				{
					double	   *at = mytable + label[r] * threads;
					double	   *from = DELTA && was[r] != gk_no_label<L>() ? mytable + was[r] * threads : NULL;
					double		part[W];

					split_value<W>(w[r], v[r], inv, part);
#pragma unroll
					for (int i = 0; i < W; i++)
					{
						at[i * a.k * threads] += part[i];
						if (from != NULL)
							from[i * a.k * threads] -= part[i];
					}
				}
		}
	}
	__syncthreads();
	/* Warps take (cluster, warp column) pairs: sum over lanes. */
	for (int i = warp; i < a.k * warps; i += warps)
	{
		int			c = i / warps;
		int			wc = i % warps;
		int			jj = blockIdx.y * warps + (ways > 1 ? wc / ways : wc);

		if (jj >= a.d || (ways > 1 && wc >= a.d * ways))
			continue;
		if (W == 1)
			add_sum<1>(a, (int64_t) c * a.d + jj,
					   gk_warp_sum((long long) (table[c * threads + wc * 32 + lane] * a.columns.inv[jj])), 0);
		else
			add_sum<2>(a, (int64_t) c * a.d + jj, gk_warp_sum((long long) table[c * threads + wc * 32 + lane]),
					   gk_warp_sum((long long) table[(a.k + c) * threads + wc * 32 + lane]));
	}
}

/* ---- partitioned features, in global memory ---- */

template <typename L>
__global__ void __launch_bounds__(THREADS)
global_kernel(SumArgs a)
{
	__shared__ float xs[TILE_COLS][TILE_ROWS + 1];
	__shared__ int lab[TILE_ROWS];
	__shared__ int was[TILE_ROWS];
	__shared__ float ws[TILE_ROWS];
	int64_t		tiles = (a.p.rows + TILE_ROWS - 1) / TILE_ROWS;
	int			j0 = blockIdx.y * TILE_COLS;
	int			cols = a.d - j0 < TILE_COLS ? a.d - j0 : TILE_COLS;

	for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
	{
		int64_t		row0 = tile * TILE_ROWS;
		int			rows = a.p.rows - row0 < TILE_ROWS ? (int) (a.p.rows - row0) : TILE_ROWS;

		__syncthreads();
		if (threadIdx.x < rows)
		{
			int			old = a.old != NULL ? ((const L *) a.old)[row0 + threadIdx.x] : gk_no_label<L>();

			lab[threadIdx.x] = ((const L *) a.labels.at)[row0 + threadIdx.x];
			was[threadIdx.x] = old == gk_no_label<L>() ? -1 : old;
			ws[threadIdx.x] = a.p.w != NULL ? a.p.w[row0 + threadIdx.x] : 1.0f;
		}
		for (int v = threadIdx.x; v < cols * TILE_ROWS; v += THREADS)
			if (v % TILE_ROWS < rows)
				xs[v / TILE_ROWS][v % TILE_ROWS] = __ldg(a.p.x + (j0 + v / TILE_ROWS) * a.p.ld + row0 + v % TILE_ROWS);
		__syncthreads();
		for (int v = threadIdx.x; v < cols * rows; v += THREADS)
		{
			int			j = v % cols;
			int			r = v / cols;
			double		inv;
			int64_t		to;
			int64_t		from;

			if (was[r] == lab[r])
				continue;
			inv = a.columns.inv[j0 + j];
			to = (int64_t) lab[r] * a.d + j0 + j;
			from = (int64_t) was[r] * a.d + j0 + j;
			if (a.p.w == NULL)
			{
				long long	x = gk_fixed(xs[j][r], inv);

				gk_red(a.acc.a + to, x);
				if (was[r] >= 0)
					gk_red(a.acc.a + from, -x);
			}
			else
			{
				double		hi,
							lo;

				gk_weighted_split(ws[r], xs[j][r], inv, hi, lo);
				gk_acc_add_parts(a.acc, to, (long long) hi, (long long) lo);
				if (was[r] >= 0)
					gk_acc_add_parts(a.acc, from, -(long long) hi, -(long long) lo);
			}
		}
	}
}

/* ---- cluster merge ---- */

/*
 * table: shared, or `merge` in global memory; a thread's entries are `threads` apart.  Integers: a table in
 * global memory may belong to few threads, with more than a package of points each.
 */
template <int W, typename L>
__global__ void __launch_bounds__(THREADS)
merge_kernel(SumArgs a, long long *merge)
{
	extern __shared__ long long private_table[];
	int			t = threadIdx.x;
	int64_t		threads = merge != NULL ? (int64_t) gridDim.x * blockDim.x : blockDim.x;
	int64_t		entries = (int64_t) a.k * a.d;
	long long  *table = merge != NULL ? merge + (int64_t) blockIdx.x * blockDim.x + t : private_table + t;

	for (int64_t e = 0; e < W * entries; e++)
		table[e * threads] = 0;
	for (int64_t row = (int64_t) blockIdx.x * blockDim.x + t; row < a.p.rows; row += (int64_t) gridDim.x * blockDim.x)
	{
		long long  *at = table + (int64_t) ((const L *) a.labels.at)[row] * a.d * threads;

		for (int j = 0; j < a.d; j++)
		{
			float		x = __ldg(a.p.x + j * a.p.ld + row);
			double		inv = a.columns.inv[j];

			if (W == 1)
				at[j * threads] += gk_fixed(x, inv);
			else
			{
				double		hi,
							lo;

				gk_weighted_split(__ldg(a.p.w + row), x, inv, hi, lo);
				at[j * threads] += (long long) hi;
				at[(entries + j) * threads] += (long long) lo;
			}
		}
	}
	/* Each warp adds up its lanes' tables. */
	for (int64_t e = 0; e < entries; e++)
		add_sum<W>(a, e, gk_warp_sum(table[e * threads]), W == 2 ? gk_warp_sum(table[(entries + e) * threads]) : 0);
}

/* ---- launchers ---- */

static SumArgs
sum_args(const GkSession *s, const GkRows *rows, int k, GkLabels labels)
{
	SumArgs		a = {*rows, k, s->d, labels, NULL, s->acc, s->columns};

	return a;
}

/* Threads of a block if private tables of `bytes` each fit shared memory: at least `min`, or 0. */
static int
private_threads(const GkSession *s, double bytes, int min)
{
	size_t		room = gk_gpu_table_room(s);

	for (int threads = THREADS; threads >= min; threads /= 2)
		if (bytes * threads <= (double) room)
			return threads;
	return 0;
}

static GkStatus
global_sum(GkSession *s, const SumArgs &a, GkError *err)
{
	int64_t		tiles = (a.p.rows + TILE_ROWS - 1) / TILE_ROWS;
	int			columns = (a.d + TILE_COLS - 1) / TILE_COLS;
	int64_t		x = (int64_t) s->gpu->sms * GK_SM_BLOCKS / columns + 1;

	dim3		grid((unsigned int) (tiles < x ? tiles : x), columns);

	if (a.labels.narrow)
		global_kernel<uint8_t><<<grid, THREADS, 0, s->gpu->stream>>>(a);
	else
		global_kernel<int32_t><<<grid, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return GK_OK;
}

template <int W, typename L>
static const void *
partitioned_for(bool delta)
{
	return delta ? (const void *) partitioned_kernel<W, L, true> : (const void *) partitioned_kernel<W, L, false>;
}

static GkStatus
partitioned(GkSession *s, const SumArgs &a, GkError *err)
{
	int			w = a.p.w != NULL ? 2 : 1;
	int			threads = private_threads(s, 8.0 * w * a.k, MIN_THREADS);
	int			warps = threads / 32;
	bool		delta = a.old != NULL;
	const void *kernel = a.labels.narrow ?
		(w == 2 ? partitioned_for<2, uint8_t>(delta) : partitioned_for<1, uint8_t>(delta)) :
		(w == 2 ? partitioned_for<2, int32_t>(delta) : partitioned_for<1, int32_t>(delta));
	size_t		shared = (size_t) 8 * w * a.k * threads;
	void	   *args[] = {(void *) &a};
	int64_t		blocks;
	int64_t		min_blocks;
	int			ways;
	int			groups;

	if (threads == 0)
		return global_sum(s, a, err);
	ways = a.d < warps ? warps / a.d : 1;
	groups = ways > 1 ? 1 : (a.d + warps - 1) / warps;
	GK_DO(gk_gpu_resident_blocks(s, kernel, threads, shared, &blocks, err));
	/* No thread may add up more than a package. */
	min_blocks = 1 + a.p.rows / ((int64_t) (GK_PACKAGE - 8) * 32 * ways);
	blocks = blocks / groups < min_blocks ? min_blocks : blocks / groups;
	blocks = gk_min(blocks, (a.p.rows + ways * 128 - 1) / (ways * 128));
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) blocks, groups), dim3(threads), args, shared, s->gpu->stream));
	return GK_OK;
}

static GkStatus
cluster_merge(GkSession *s, const SumArgs &a, GkError *err)
{
	int			w = a.p.w != NULL ? 2 : 1;
	double		bytes = 8.0 * w * a.k * a.d;
	int			threads = private_threads(s, bytes, 32);
	const void *kernel = a.labels.narrow ?
		(w == 2 ? (const void *) merge_kernel<2, uint8_t> : (const void *) merge_kernel<1, uint8_t>) :
		(w == 2 ? (const void *) merge_kernel<2, int32_t> : (const void *) merge_kernel<1, int32_t>);
	size_t		shared = 0;
	long long  *table = NULL;
	void	   *args[] = {(void *) &a, &table};
	int64_t		blocks;

	if (threads > 0)
	{
		shared = (size_t) bytes * threads;
		GK_DO(gk_gpu_resident_blocks(s, kernel, threads, shared, &blocks, err));
	}
	else
	{
		threads = 32;
		blocks = (int64_t) (MERGE_BYTES / (bytes * threads));
		if (blocks < 1)
			return global_sum(s, a, err);	/* not even one warp's tables fit */
		blocks = gk_min(blocks, s->gpu->sms * 16);
	}
	blocks = gk_min(blocks, (a.p.rows + threads - 1) / threads);
	if (shared == 0)
	{
		GK_DO(gk_gpu_scratch(s, (size_t) (bytes * threads * blocks), err));
		table = (long long *) s->scratch;
	}
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) blocks), dim3(threads), args, shared, s->gpu->stream));
	return GK_OK;
}

/* Rows of a slice: what one accumulator word takes. */
int64_t
gk_gpu_update_rows(const GkSession *s, int k)
{
	return gk_min(gk_gpu_slice_rows(s, k), GK_INT64_ROWS);
}

/*
 * Private tables end in sums of a warp or a block, which are added in two words: any number of rows.  What
 * adds each row to the accumulators is bounded.
 */
int64_t
gk_gpu_sum_rows(const GkSession *s, int k)
{
	int64_t		rows = gk_gpu_slice_rows(s, k);
	bool		merge = s->fsum == GK_CLUSTER_MERGE;
	bool		tables = private_threads(s, 8.0 * k * (merge ? s->d : 1), merge ? 32 : MIN_THREADS) > 0;

	if (s->pts->weighted || !tables)
		return gk_gpu_update_rows(s, k);
	return gk_min(rows, (int64_t) 1 << 28);
}

GkStatus
gk_gpu_feature_sum(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err)
{
	SumArgs		a = sum_args(s, rows, k, labels);

	return s->fsum == GK_CLUSTER_MERGE ? cluster_merge(s, a, err) : partitioned(s, a, err);
}

/* labels are the new ones; s->delta_labels holds the old ones. */
GkStatus
gk_gpu_delta(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err)
{
	SumArgs		a = sum_args(s, rows, k, labels);

	a.old = (const char *) s->delta_labels + rows->first * (labels.narrow ? 1 : sizeof(int32_t));
	return partitioned(s, a, err);
}
