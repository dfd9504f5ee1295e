/*
 * gk_gpu_gemm_stream.cu - the product of wide rows: points and centroids stream through shared memory.
 *
 * A block has 128 points x 256 centroids in the registers of two warpgroups; 64 values of each row at a time
 * pass by in shared memory, four stages deep, brought by the copy engine (TMA, 128-byte swizzle) that one
 * thread of a third warpgroup feeds.  The blocks stay for all tiles.  Every block reads the same centroids at
 * nearly the same time, so they come from the L2 cache.
 */
#include "gpu/gk_gpu_gemm_hopper.cuh"

#define ARRIVALS	(2 * WARPGROUP / 32)	/* a lane of each warp that multiplies */
#define THREADS		(3 * WARPGROUP)
#define ROWS		GK_GEMM_STREAM_ROWS
#define COLUMNS		GK_GEMM_STREAM_COLUMNS
#define STAGES		4
#define POINT_BYTES	(ROWS * GK_GEMM_DEPTH * 2)
#define CENTROID_BYTES	(COLUMNS * GK_GEMM_DEPTH * 2)
#define KEY_BYTES	(COLUMNS * 4)
#define KEY_SLOTS	(STAGES + 1)	/* the keys before those of a stage that is free may be in use */
#define W_BYTES		(ROWS * (int) sizeof(float))
#define TO_BYTES	(ROWS * (int) sizeof(int))
#define BOUND_BYTES	(ROWS * (int) sizeof(GkGemmBound))
#define POINTS_AT	(STAGES * CENTROID_BYTES)
#define KEYS_AT		(POINTS_AT + STAGES * POINT_BYTES)
#define W_AT		(KEYS_AT + KEY_SLOTS * KEY_BYTES) /* of each slot, if it is a tile's first: its rows */
#define TO_AT		(W_AT + KEY_SLOTS * W_BYTES)
#define BOUND_AT	(TO_AT + KEY_SLOTS * TO_BYTES)
#define FULL_AT		(BOUND_AT + KEY_SLOTS * BOUND_BYTES)	/* barriers */
#define EMPTY_AT	(FULL_AT + STAGES * 8)
#define ROWS_AT		(EMPTY_AT + STAGES * 8)
#define SHARED		(ROWS_AT + 4 + 1024)	/* and room to align it to 1024 */

/*
 * A block's tile of this round; it may be none.  Every other tile may have nothing to do (tile_needs()), so a block does
 * not have every gridDim.x-th.
 */
__device__ __forceinline__ int
tile_of(int round)
{
	return round * gridDim.x + (blockIdx.x + round) % gridDim.x;
}

/*
 * What a tile needs; nothing if there is no such tile.  A pivot's gathered rows are padded to GK_GEMM_ROWS: a tile of
 * padding has no candidates.
 */
template <GkGemmUse USE>
__device__ __forceinline__ GkGemmNeeds
tile_needs(const GkGemmArgs &p, int m, int row_tiles)
{
	GkGemmNeeds all = {};

	if (m >= row_tiles)
		return all;
	all = needs(p, true, pivot_tile(p, m * ROWS));
	if (USE == GK_GEMM_CANDIDATES && p.row != NULL && p.row[p.from + m * ROWS] < 0)
		all.count = 0;
	return all;
}

/* What is known of a tile of columns, and before a tile's first, of its rows; how many bytes. */
template <GkGemmUse USE>
__device__ __forceinline__ int
slot_bytes(const GkGemmArgs &p, bool first)
{
	bool		sorted = p.row != NULL;

	if (USE != GK_GEMM_LABELS)
		return KEY_BYTES;
	return KEY_BYTES + (first ? W_BYTES + (sorted ? TO_BYTES : BOUND_BYTES) : 0);
}

template <GkGemmUse USE>
__device__ __forceinline__ void
bring_slot(const GkGemmArgs &p, unsigned int base, int slot, unsigned int barrier, int m, bool first, int tile, int pivot)
{
	int64_t		at = (int64_t) pivot * p.key_pitch + tile * COLUMNS;
	int			row = p.first + m * ROWS;
	bool		sorted = p.row != NULL;

	bring_bytes(base + KEYS_AT + slot * KEY_BYTES, p.keys + at, KEY_BYTES, barrier);
	if (USE != GK_GEMM_LABELS || !first)
		return;
	bring_bytes(base + W_AT + slot * W_BYTES, p.w + row, W_BYTES, barrier);
	if (sorted)
		bring_bytes(base + TO_AT + slot * TO_BYTES, p.row + row, TO_BYTES, barrier);
	else
		bring_bytes(base + BOUND_AT + slot * BOUND_BYTES, p.bound + row, BOUND_BYTES, barrier);
}

/* Bring the tiles' slices in the order in which they are multiplied. */
template <GkGemmUse USE>
__device__ __forceinline__ void
feed(const GkGemmArgs &p, const GkGemmMaps *points, const GkGemmMaps *centroids, unsigned int base, int row_tiles)
{
	int			stage = 0;
	int			slot = 0;
	unsigned int parity = 1;

	for (int round = 0; round * (int) gridDim.x < row_tiles; round++)
	{
		int			m = tile_of(round);
		int			of = pivot_tile(p, m * ROWS);
		GkGemmNeeds all = tile_needs<USE>(p, m, row_tiles);
		int			copy = all.copy * p.k;

		for (int i = 0; i < all.count; i++)
		{
			int			tile = need<COLUMNS>(p, true, of, i) >> GK_GEMM_PARTS;

			for (int slice = 0; slice < p.slices; slice++)
			{
				unsigned int full = base + FULL_AT + stage * 8;

				barrier_wait(base + EMPTY_AT + stage * 8, parity);
				barrier_expect(full, CENTROID_BYTES + POINT_BYTES + (slice == 0 ? slot_bytes<USE>(p, i == 0) : 0));
				bring(base + stage * CENTROID_BYTES, centroids, full, slice, p.slices, copy + tile * COLUMNS);
				bring(base + POINTS_AT + stage * POINT_BYTES, points, full, slice, p.slices, p.first + m * ROWS);
				if (slice == 0)
				{
					bring_slot<USE>(p, base, slot, full, m, i == 0, tile, all.pivot);
					slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
				}
				next_stage<STAGES>(stage, parity);
			}
		}
	}
}

/* A warp needs a stage no more; -1: the last one. */
__device__ __forceinline__ void
release(unsigned int base, int stage)
{
	barrier_arrive(base + EMPTY_AT + (stage + STAGES) % STAGES * 8);
}

/* STEPS times 16 values of 64 rows and all centroids of a stage. */
template <int STEPS>
__device__ __forceinline__ void
multiply_slice(float (&sum)[128], unsigned int base, int half, int stage, bool add)
{
	uint64_t	b = matrix(base + stage * CENTROID_BYTES);
	uint64_t	y = matrix(base + POINTS_AT + stage * POINT_BYTES + half * (POINT_BYTES / 2));

	multiply_fence();
#pragma unroll
	for (int i = 0; i < STEPS; i++)
		multiply(sum, y + 2 * i, b + 2 * i, i > 0 || add);
	multiply_commit();
}

/* The products of a warpgroup's rows and a tile of columns.  STEPS: of 16 values, in the last slice. */
template <int STEPS>
__device__ __forceinline__ void
multiply_tile(const GkGemmArgs &p, float (&sum)[128], unsigned int base, int half, int &stage, unsigned int &parity)
{
	bool		arrives = threadIdx.x % 32 == 0;	/* for its warp: others may still read the keys before */

	touch(sum);
	for (int slice = 0; slice + 1 < p.slices; slice++)
	{
		barrier_wait(base + FULL_AT + stage * 8, parity);
		multiply_slice<4>(sum, base, half, stage, slice > 0);
		multiply_wait<1>();
		if (arrives && slice > 0)
			release(base, stage - 1);
		next_stage<STAGES>(stage, parity);
	}
	barrier_wait(base + FULL_AT + stage * 8, parity);
	multiply_slice<STEPS>(sum, base, half, stage, p.slices > 1);
	multiply_wait<1>();
	if (arrives && p.slices > 1)
		release(base, stage - 1);
	multiply_wait<0>();
	touch(sum);
	if (arrives)
		release(base, stage);
	next_stage<STAGES>(stage, parity);
}

/* The first row of a warp's 16 in a tile of points. */
__device__ __forceinline__ int
first_row(int half)
{
	return half * 64 + threadIdx.x % WARPGROUP / 32 * 16;
}

/* What it takes to judge the lane's row of a tile: it is there with the tile's first keys. */
__device__ __forceinline__ void
know(const GkGemmArgs &p, Judged &judged, const char *shared, int m, int half, int rows, int slot, int pivot)
{
	int			at = first_row(half) + Judged::mine();

	judged.row = m * ROWS + at < rows ? m * ROWS + at : -1;
	judged.w = ((const float *) (shared + W_AT + slot * W_BYTES))[at];
	if (p.row != NULL)
	{
		judged.to = ((const int *) (shared + TO_AT + slot * TO_BYTES))[at];
		judged.columns_z = p.z + (int64_t) pivot * p.key_pitch;
	}
	else
		judged.of = ((const GkGemmBound *) (shared + BOUND_AT + slot * BOUND_BYTES))[at];
}

/* What a warpgroup does: half of each of the block's tiles. */
template <GkGemmUse USE, int STEPS>
__device__ __forceinline__ void
use_products(const GkGemmArgs &p, const char *shared, unsigned int base, int half, int rows, int row_tiles)
{
	Common		common(p);
	float		sum[128];
	float		magic = p.state->magic;
	int			stage = 0;
	int			slot = 0;
	unsigned int parity = 0;
	Judged		judged;
	PairRoom	room = {};

	judged.row = -1;
	for (int round = 0; round * (int) gridDim.x < row_tiles; round++)
	{
		int			m = tile_of(round);
		int			row0 = m * ROWS + first_row(half);
		int			of = pivot_tile(p, m * ROWS);
		GkGemmNeeds all = tile_needs<USE>(p, m, row_tiles);
		Wanted		wanted;
		Smallest	smallest;

		smallest.reset();
		if (USE == GK_GEMM_CANDIDATES)
			wanted.load(p, row0, rows);
		for (int i = 0; i < all.count; i++)
		{
			int			needed = need<COLUMNS>(p, true, of, i);
			int			tile = needed >> GK_GEMM_PARTS;
			const int2 *keys = (const int2 *) (shared + KEYS_AT + slot * KEY_BYTES);

			multiply_tile<STEPS>(p, sum, base, half, stage, parity);
			if (USE == GK_GEMM_LABELS && i == 0 && Judged::in(0))
				know(p, judged, shared, m, half, rows, slot, all.pivot);
			slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
			if (USE == GK_GEMM_LABELS)
				smallest.take(sum, keys, magic, tile, needed);
			else if (USE == GK_GEMM_CANDIDATES)
				store_candidates(p, sum, keys, magic, tile, wanted, row0, room);
			else
				store_sums(p, sum, tile, row0, rows);
		}
		if (USE == GK_GEMM_LABELS && all.count > 0)
		{
			judged.find<COLUMNS>(p, smallest, p.row != NULL, 0);
			judged.store(p, p.row != NULL, common);
		}
	}
	if (USE == GK_GEMM_CANDIDATES)
		room.fill(p);
}

template <GkGemmUse USE, int STEPS>
__global__ void __launch_bounds__(THREADS, 1)
stream_kernel(const __grid_constant__ GkGemmMaps points, const __grid_constant__ GkGemmMaps centroids,
			  const __grid_constant__ GkGemmArgs p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	extern __shared__ char raw[];
	unsigned int base = (shared_address(raw) + 1023) & ~1023u;
	int			group = threadIdx.x / WARPGROUP;
	const char *shared = raw + (base - shared_address(raw));
	int			rows;
	int			row_tiles;

	if (threadIdx.x == 0)
	{
		for (int i = 0; i < STAGES; i++)
		{
			barrier_init(base + FULL_AT + i * 8, 1);
			barrier_init(base + EMPTY_AT + i * 8, ARRIVALS);
		}
		barriers_ready();
	}
	gk_await_previous();
	if (threadIdx.x == 0)
		store_shared(base + ROWS_AT, rows_of(p));
	__syncthreads();
	rows = *(const int *) (shared + ROWS_AT);
	row_tiles = (rows + ROWS - 1) / ROWS;
	if (group == 0)
	{
		set_registers<40, false>();
		if (threadIdx.x == 0)
			feed<USE>(p, &points, &centroids, base, row_tiles);
	}
	else
	{
		set_registers<232, true>();
		use_products<USE, STEPS>(p, shared, base, group - 1, rows, row_tiles);
	}
#endif
}

GkGemmKernel
gk_gpu_gemm_stream(GkGemmUse use, int steps)
{
	const void *kernel = use == GK_GEMM_CANDIDATES ? (const void *) stream_kernel<GK_GEMM_CANDIDATES, 4> :
		use == GK_GEMM_DUMP ? (const void *) stream_kernel<GK_GEMM_DUMP, 4> :
		steps == 1 ? (const void *) stream_kernel<GK_GEMM_LABELS, 1> :
		steps == 2 ? (const void *) stream_kernel<GK_GEMM_LABELS, 2> :
		steps == 3 ? (const void *) stream_kernel<GK_GEMM_LABELS, 3> : (const void *) stream_kernel<GK_GEMM_LABELS, 4>;

	return (GkGemmKernel) {kernel, THREADS, SHARED, ROWS, COLUMNS, GK_GEMM_DEPTH};
}
