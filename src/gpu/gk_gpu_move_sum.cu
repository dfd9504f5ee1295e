/*
 * gk_gpu_move_sum.cu - Feature Sum and Mass Sum by moves: only rows whose label changed are added to the
 * cluster that they enter and taken from the one that they leave.  Exact sums do not drift, however long this
 * goes on.
 *
 * The moves of a slice are ordered by cluster (a counting sort), so that a warp adds up moves of one cluster
 * in registers and touches the accumulators once for some sixty of them: also the first iteration, in which
 * every row moves, takes little more than reading the rows.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_move_sum.h"

#define ORDER_THREADS	1024	/* one block per multiprocessor: all blocks add to the same few counters */
#define LOCAL_K		4096		/* clusters whose counters a block has in shared memory */
#define SCAN		1024
#define LOOK		16			/* rows that a thread of find_kernel looks at: their labels, of a byte each, are one load */
#define THREADS		256
#define MIN_SEGMENT	16			/* moves that some lanes add up in registers */
#define MAX_SEGMENT	64
#define AT_ONCE(lanes)	((lanes) < 32 ? 8 : 4)	/* moves whose rows are read at a time */

/* Row of the slice, negative (-1 - row) when it leaves the cluster. */
typedef struct Move
{
	int			row;
	int			cluster;
} Move;

static_assert(sizeof(Move) == sizeof(int64_t), "gk_gpu_move_bytes");

typedef struct MoveArgs
{
	const float *x;				/* [rows][pitch] */
	int			pitch;
	const float *w;				/* weights or NULL */
	int			rows;
	int			d;
	int			k;
	GkLabels	labels;
	void	   *old;			/* labels before; become these */
	int		   *all;			/* how many moves there are */
	int		   *count;			/* [k]: of each cluster, then where its next one goes; 0 before and after */
	Move	   *move;
	int		   *list;			/* [rows]: those that moved, each block's from its first row on */
	int		   *found;			/* [blocks]: how many of them */
	GkAcc		acc;
	const double *inv;
} MoveArgs;

/* Which cluster a row leaves; -1: it had none. */
template <typename L>
__device__ __forceinline__ int
left(int old)
{
	return old == gk_no_label<L>() ? -1 : old;
}

/* A block's rows, a multiple of LOOK but for the last. */
struct Range
{
	int			first;
	int			last;

	__device__ __forceinline__
	Range(const MoveArgs &a)
	{
		int			per = (a.rows / LOOK + gridDim.x) / gridDim.x * LOOK;

		first = min((int) blockIdx.x * per, a.rows);
		last = min(first + per, a.rows);
	}
};

/* A block's counters, in shared memory, so that few clusters' are not asked for each row; all zero at first. */
template <bool LOCAL>
__device__ __forceinline__ int *
counters(const MoveArgs &a, int *local)
{
	for (int i = threadIdx.x; LOCAL && i < a.k; i += ORDER_THREADS)
		local[i] = 0;
	__syncthreads();
	return LOCAL ? local : a.count;
}

/* Which of LOOK labels, of `rows` that there are, are not the same: a bit for each. */
template <typename L>
__device__ __forceinline__ unsigned int
differ(const L *a, const L *b, int rows)
{
	constexpr int EACH = sizeof(uint4) / sizeof(L);
	unsigned int bits = 0;

#pragma unroll
	for (int v = 0; v < LOOK / EACH; v++)
	{
		uint4		x = ((const uint4 *) a)[v];
		uint4		y = ((const uint4 *) b)[v];
		unsigned int word[4] = {x.x ^ y.x, x.y ^ y.y, x.z ^ y.z, x.w ^ y.w};

#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (word[i * sizeof(L) / 4] & (sizeof(L) == 1 ? 0xffu << i % 4 * 8 : ~0u))
				bits |= 1u << (v * EACH + i);
	}
	return rows < LOOK ? bits & ((1u << rows) - 1) : bits;
}

/*
 * List each block's rows that moved, from its first row's place on, and count their moves.  (In `found`, how many
 * of each block.)
 */
template <typename L, bool LOCAL>
__global__ void __launch_bounds__(ORDER_THREADS)
find_kernel(const __grid_constant__ MoveArgs a)
{
	gk_await_previous();

	__shared__ int local[LOCAL ? LOCAL_K : 1];
	__shared__ int found;
	Range		mine(a);
	int		   *counter;
	int			lane = threadIdx.x % 32;

	if (threadIdx.x == 0)
		found = 0;
	counter = counters<LOCAL>(a, local);
	for (int row0 = mine.first; row0 < mine.last; row0 += ORDER_THREADS * LOOK)
	{
		int			row = row0 + threadIdx.x * LOOK;
		unsigned int moved = row < mine.last ? differ((const L *) a.labels.at + row, (const L *) a.old + row, mine.last - row) : 0;
		int			upto = __popc(moved);	/* of the warp's lanes up to this one */
		int			at = 0;

		if (!__any_sync(0xffffffffu, moved != 0))
			continue;
		for (int o = 1; o < 32; o <<= 1)
		{
			int			other = __shfl_up_sync(0xffffffffu, upto, o);

			if (lane >= o)
				upto += other;
		}
		if (lane == 31)
			at = atomicAdd(&found, upto);
		at = mine.first + __shfl_sync(0xffffffffu, at, 31) + upto - __popc(moved);
		for (; moved != 0; moved &= moved - 1)
		{
			int			i = row + __ffs(moved) - 1;
			int			from = left<L>(((const L *) a.old)[i]);

			a.list[at++] = i;
			atomicAdd(counter + ((const L *) a.labels.at)[i], 1);
			if (from >= 0)
				atomicAdd(counter + from, 1);
		}
	}
	__syncthreads();
	if (threadIdx.x == 0)
		a.found[blockIdx.x] = found;
	for (int i = threadIdx.x; LOCAL && i < a.k; i += ORDER_THREADS)
		if (local[i] > 0)
			atomicAdd(a.count + i, local[i]);
}

/* Put the moves of the rows listed in their order.  The labels before become these. */
template <typename L, bool LOCAL>
__global__ void __launch_bounds__(ORDER_THREADS)
place_kernel(const __grid_constant__ MoveArgs a)
{
	gk_await_previous();

	__shared__ int local[LOCAL ? LOCAL_K : 1];
	const int  *list = a.list + Range(a).first;
	const L    *labels = (const L *) a.labels.at;
	L		   *old = (L *) a.old;
	int			found = a.found[blockIdx.x];
	int		   *counter;

	if (found == 0)
		return;
	counter = counters<LOCAL>(a, local);
	if (LOCAL)
	{
		for (int i = threadIdx.x; i < found; i += ORDER_THREADS)
		{
			int			row = list[i];
			int			from = left<L>(old[row]);

			atomicAdd(counter + labels[row], 1);
			if (from >= 0)
				atomicAdd(counter + from, 1);
		}
		__syncthreads();
		for (int i = threadIdx.x; i < a.k; i += ORDER_THREADS)
			if (local[i] > 0)
				local[i] = atomicAdd(a.count + i, local[i]);
		__syncthreads();
	}
	for (int i = threadIdx.x; i < found; i += ORDER_THREADS)
	{
		int			row = list[i];
		int			to = labels[row];
		int			from = left<L>(old[row]);

		a.move[atomicAdd(counter + to, 1)] = (Move) {row, to};
		if (from >= 0)
			a.move[atomicAdd(counter + from, 1)] = (Move) {-1 - row, from};
		old[row] = (L) to;
	}
}

/* Counts to the places where clusters begin; one block. */
__global__ void __launch_bounds__(SCAN)
scan_kernel(int *count, int *all, int k)
{
	gk_await_previous();

	__shared__ int warp_sum[SCAN / 32];
	int			lane = threadIdx.x % 32;
	int			warp = threadIdx.x / 32;
	int			before = 0;

	for (int i0 = 0; i0 < k; i0 += SCAN)
	{
		int			i = i0 + threadIdx.x;
		int			mine = i < k ? count[i] : 0;
		int			sum = mine;

		for (int o = 1; o < 32; o <<= 1)
		{
			int			other = __shfl_up_sync(0xffffffffu, sum, o);

			if (lane >= o)
				sum += other;
		}
		if (lane == 31)
			warp_sum[warp] = sum;
		__syncthreads();
		for (int w = 0; w < SCAN / 32; w++)
		{
			if (w < warp)
				sum += warp_sum[w];
		}
		if (i < k)
			count[i] = before + sum - mine;
		for (int w = 0; w < SCAN / 32; w++)
			before += warp_sum[w];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		*all = before;
}

/* Sums of moves of one cluster: four features of a lane, and in the first columns' warp the mass. */
template <bool W>
struct Sums
{
	long long	high[4];		/* weighted: gk_weighted_split; else the value */
	long long	low[4];
	long long	mass;
	long long	count;

	__device__ __forceinline__ void
	flush(const MoveArgs &a, int cluster, int j)
	{
		int64_t		at = (int64_t) a.k * a.d + cluster;

#pragma unroll
		for (int o = 0; o < 4; o++)
			if (j + o < a.d)
			{
				int64_t		i = (int64_t) cluster * a.d + j + o;

				if (W)
					gk_acc_add_parts(a.acc, i, high[o], low[o]);
				else
					gk_red(a.acc.a + i, high[o]);
			}
		if (j == 0)
		{
			if (W)
				gk_acc_add(a.acc, at, mass);
			gk_red(a.acc.a + at + (W ? a.k : 0), count);
		}
		clear();
	}

	__device__ __forceinline__ void
	clear(void)
	{
#pragma unroll
		for (int o = 0; o < 4; o++)
			high[o] = low[o] = 0;
		mass = count = 0;
	}

	__device__ __forceinline__ void
	add(float4 v, float w, long long sign, const double (&inv)[4])
	{
		float		x[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
		for (int o = 0; o < 4; o++)
		{
			if (W)
			{
				double		hi;
				double		lo;

				gk_weighted_split(w, x[o], inv[o], hi, lo);
				high[o] += sign * (long long) hi;
				low[o] += sign * (long long) lo;
			}
			else
				high[o] += sign * gk_fixed(x[o], inv[o]);
		}
		count += sign;
		if (W)
			mass += sign * gk_fixed(w, 0x1p40);
	}
};

/* Moves of a segment: enough to add up, and so few that all lanes have some. */
__device__ __forceinline__ int
segment(int moves, int segments)
{
	return min(max((moves + segments - 1) / segments, MIN_SEGMENT), MAX_SEGMENT);
}

/* LANES have a row's 4 LANES features at a time, and a segment of moves. */
template <bool W, int LANES>
__global__ void __launch_bounds__(THREADS)
segments_kernel(const __grid_constant__ MoveArgs a)
{
	gk_await_previous();

	constexpr int MOVES = AT_ONCE(LANES);
	int			moves = *a.all;
	int			segments = gridDim.x * (THREADS / LANES);
	int			length = segment(moves, segments);
	int			j = (blockIdx.y * LANES + threadIdx.x % LANES) * 4;
	double		inv[4] = {0.0, 0.0, 0.0, 0.0};

	if (blockIdx.y == 0)
		for (int i = blockIdx.x * THREADS + threadIdx.x; i < a.k; i += gridDim.x * THREADS)
			a.count[i] = 0;
	if (j >= a.d)
		return;
	for (int o = 0; o < 4 && j + o < a.d; o++)
		inv[o] = a.inv[j + o];
	for (int64_t first = (int64_t) (blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES) * length; first < moves;
		 first += (int64_t) segments * length)
	{
		int			last = (int) min(first + length, (int64_t) moves);
		int			cluster = a.move[first].cluster;
		Sums<W>		sums;

		sums.clear();
		for (int i0 = (int) first; i0 < last; i0 += MOVES)
		{
			Move		m[MOVES];
			float4		v[MOVES];
			float		w[MOVES];

#pragma unroll
			for (int i = 0; i < MOVES; i++)
				m[i] = a.move[min(i0 + i, last - 1)];
#pragma unroll
			for (int i = 0; i < MOVES; i++)
			{
				int			row = m[i].row < 0 ? -1 - m[i].row : m[i].row;

				/* Rows are padded to four features. */
				v[i] = __ldg((const float4 *) (a.x + (int64_t) row * a.pitch + j));
				w[i] = W ? __ldg(a.w + row) : 1.0f;
			}
#pragma unroll
			for (int i = 0; i < MOVES; i++)
			{
				if (i0 + i >= last)
					break;
				if (m[i].cluster != cluster)
				{
					sums.flush(a, cluster, j);
					cluster = m[i].cluster;
				}
				sums.add(v[i], w[i], m[i].row < 0 ? -1 : 1, inv);
			}
		}
		sums.flush(a, cluster, j);
	}
}

/* ---- launchers ---- */

template <typename L>
static GkStatus
order_moves(GkSession *s, const MoveArgs &a, int blocks, GkError *err)
{
	bool		local = a.k <= LOCAL_K;

	GK_TRY(gk_follow(s, local ? find_kernel<L, true> : find_kernel<L, false>, blocks, ORDER_THREADS, 0, a));
	GK_TRY(gk_follow(s, scan_kernel, 1, SCAN, 0, a.count, a.all, a.k));
	GK_TRY(gk_follow(s, local ? place_kernel<L, true> : place_kernel<L, false>, blocks, ORDER_THREADS, 0, a));
	return GK_OK;
}

template <bool W, int LANES>
static GkStatus
sum_segments(GkSession *s, const MoveArgs &a, GkError *err)
{
	int64_t		least = (int64_t) MIN_SEGMENT * (THREADS / LANES);	/* moves of a block */
	int			columns = (s->d + 4 * LANES - 1) / (4 * LANES);
	dim3		grid((unsigned int) gk_min((2 * (int64_t) a.rows + least - 1) / least, s->gpu->sms * GK_SM_BLOCKS / gk_min(columns, GK_SM_BLOCKS)),
					 columns);

	GK_TRY(gk_follow(s, segments_kernel<W, LANES>, grid, THREADS, 0, a));
	return GK_OK;
}

template <bool W>
static GkStatus
sum_moves(GkSession *s, const MoveArgs &a, GkError *err)
{
	return s->d <= 32 ? sum_segments<W, 8>(s, a, err) : s->d <= 64 ? sum_segments<W, 16>(s, a, err) : sum_segments<W, 32>(s, a, err);
}

GkStatus
gk_gpu_move_sum(GkSession *s, const GkRows *rows, const float *x, int pitch, int k, GkLabels labels, void *old, GkError *err)
{
	MoveArgs	a = {x, pitch, rows->w, (int) rows->rows, s->d, k, labels, old};
	size_t		moves = 2 * rows->rows * sizeof(Move);
	int			blocks = (int) gk_min((rows->rows + 4 * ORDER_THREADS - 1) / (4 * ORDER_THREADS), s->gpu->sms);

	GK_DO(gk_gpu_scratch(s, gk_gpu_move_bytes(s, rows->rows, k), err));
	if (s->move_count_room < k + 1)
	{
		GK_DO(gk_gpu_grow(s, (void **) &s->move_count, &s->move_count_room, k + 1, sizeof(int), err));
		GK_TRY(cudaMemsetAsync(s->move_count, 0, (k + 1) * sizeof(int), s->gpu->stream));
	}
	a.all = s->move_count;
	a.count = s->move_count + 1;
	a.move = (Move *) s->scratch;
	a.list = (int *) ((char *) s->scratch + moves);
	a.found = a.list + rows->rows;
	a.acc = s->acc;
	a.inv = s->columns.inv;
	if (labels.narrow)
		GK_DO(order_moves<uint8_t>(s, a, blocks, err));
	else
		GK_DO(order_moves<int32_t>(s, a, blocks, err));
	return rows->w != NULL ? sum_moves<true>(s, a, err) : sum_moves<false>(s, a, err);
}
