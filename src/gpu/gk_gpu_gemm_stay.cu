/*
 * gk_gpu_gemm_stay.cu - the product of rows of up to 256 values: a block's points stay in shared memory while
 * the centroids pass by.
 *
 * A warpgroup has 64 points x 128 centroids.  With so few values a row, looking at the scores takes longer than
 * the product, and each step of it waits for the one before: four warpgroups, each at its own pace, keep the
 * multiprocessor busy.  The rest is as in gk_gpu_gemm_stream.cu: one thread of one more warpgroup feeds the copy
 * engine, the blocks stay for all tiles.
 */
#include "gpu/gk_gpu_gemm_hopper.cuh"

#define GROUPS		4			/* of 64 rows */
#define THREADS		((GROUPS + 1) * WARPGROUP)
#define ROWS		GK_GEMM_ROWS
#define COLUMNS		GK_GEMM_STAY_COLUMNS
#define STAGES		5			/* of centroids */
#define STAY		GK_GEMM_STAY_SLICES /* slices of points, those of the next tile too */
#define POINT_BYTES	(ROWS * GK_GEMM_DEPTH * 2)
#define CENTROID_BYTES	(COLUMNS * GK_GEMM_DEPTH * 2)
#define KEY_BYTES	(COLUMNS * 4)
#define KEY_SLOTS	(STAGES + 2)
#define POINTS_AT	(STAGES * CENTROID_BYTES)
#define KEYS_AT		(POINTS_AT + STAY * POINT_BYTES)
#define FULL_AT		(KEYS_AT + KEY_SLOTS * KEY_BYTES)	/* barriers */
#define EMPTY_AT	(FULL_AT + STAGES * 8)
#define STAY_FULL_AT	(EMPTY_AT + STAGES * 8)
#define STAY_EMPTY_AT	(STAY_FULL_AT + STAY * 8)
#define SHARED		(STAY_EMPTY_AT + STAY * 8 + 1024)	/* and room to align it to 1024 */

/* Bring tiles in the order in which they are multiplied. */
__device__ __forceinline__ void
feed(const GkGemmArgs &p, const CUtensorMap *points, const CUtensorMap *centroids, unsigned int base, int row_tiles)
{
	int			stage = 0;
	int			stay = 0;
	int			slot = 0;
	unsigned int parity = 1;
	unsigned int stay_parity = 1;

	for (int m = blockIdx.x; m < row_tiles; m += gridDim.x)
	{
		int			pivot = pivot_tile(p, m * ROWS);
		int			count = needs(p, pivot);
		const int  *keys = pivot_keys(p, pivot);
		int			copy = pivot_copy(p, pivot);

		for (int slice = 0; slice < p.slices; slice++)
		{
			unsigned int full = base + STAY_FULL_AT + stay * 8;

			barrier_wait(base + STAY_EMPTY_AT + stay * 8, stay_parity);
			barrier_expect(full, POINT_BYTES);
			bring(base + POINTS_AT + stay * POINT_BYTES, points, full, slice * GK_GEMM_DEPTH, p.first + m * ROWS);
			next_stage<STAY>(stay, stay_parity);
		}
		for (int i = 0; i < count; i++)
		{
			int			tile = need(p, pivot, i);

			for (int slice = 0; slice < p.slices; slice++)
			{
				unsigned int full = base + FULL_AT + stage * 8;

				barrier_wait(base + EMPTY_AT + stage * 8, parity);
				barrier_expect(full, CENTROID_BYTES + (slice == 0 ? KEY_BYTES : 0));
				bring(base + stage * CENTROID_BYTES, centroids, full, slice * GK_GEMM_DEPTH, copy + tile * COLUMNS);
				if (slice == 0)
				{
					bring_bytes(base + KEYS_AT + slot * KEY_BYTES, keys + tile * COLUMNS, KEY_BYTES, full);
					slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
				}
				next_stage<STAGES>(stage, parity);
			}
		}
	}
}

/* A tile of rows and one of columns, of a block's, one after the other. */
struct Item
{
	int			m;				/* tile of rows */
	int			pivot;			/* its pivot's */
	int			count;			/* tiles of columns that it needs */
	int			i;
	int			tile;			/* of columns */
	int			stay;			/* where its points begin */

	__device__ __forceinline__ void
	rows(const GkGemmArgs &p, int row_tiles)
	{
		if (m < row_tiles)
		{
			pivot = pivot_tile(p, m * ROWS);
			count = needs(p, pivot);
			i = 0;
			tile = need(p, pivot, 0);
		}
	}

	__device__ __forceinline__ void
	next(const GkGemmArgs &p, int row_tiles)
	{
		if (++i < count)
			tile = need(p, pivot, i);
		else
		{
			m += gridDim.x;
			stay = (stay + p.slices) % STAY;
			rows(p, row_tiles);
		}
	}
};

/* Where a slice of a warpgroup's points lies. */
__device__ __forceinline__ uint64_t
points_of(unsigned int base, const Item &item, int slice, int group)
{
	return matrix(base + POINTS_AT + (item.stay + slice) % STAY * POINT_BYTES + group * (POINT_BYTES / GROUPS));
}

/* Begin a product of 64 rows; STEPS: of 16 values, in the last slice. */
template <int STEPS>
__device__ __forceinline__ void
begin(const GkGemmArgs &p, float (&sum)[64], unsigned int base, const Item &item, int group, int stage, unsigned int parity)
{
	touch(sum);
	for (int slice = 0; slice + 1 < p.slices; slice++)
	{
		uint64_t	b = matrix(base + stage * CENTROID_BYTES);
		uint64_t	y = points_of(base, item, slice, group);

		barrier_wait(base + FULL_AT + stage * 8, parity);
		multiply_fence();
#pragma unroll
		for (int i = 0; i < 4; i++)
			multiply(sum, y + 2 * i, b + 2 * i, slice + i > 0);
		next_stage<STAGES>(stage, parity);
	}
	{
		uint64_t	b = matrix(base + stage * CENTROID_BYTES);
		uint64_t	y = points_of(base, item, p.slices - 1, group);

		barrier_wait(base + FULL_AT + stage * 8, parity);
		multiply_fence();
#pragma unroll
		for (int i = 0; i < STEPS; i++)
			multiply(sum, y + 2 * i, b + 2 * i, i > 0 || p.slices > 1);
	}
	multiply_commit();
}

/* Look at the scores of 64 rows. */
template <GkGemmUse USE>
__device__ __forceinline__ void
look(const GkGemmArgs &p, const float (&sum)[64], const int2 *keys, float magic, const Item &item, int row0, int rows,
	 Smallest &smallest, const int (&limit)[2])
{
	if (USE == GK_GEMM_LABELS)
		smallest.take(sum, keys, magic, item.tile, p.k - item.tile * COLUMNS);
	else if (USE == GK_GEMM_CANDIDATES)
		store_candidates(p, sum, keys, magic, item.tile, limit, row0);
	else
		store_sums(p, sum, item.tile, row0, rows);
}

/* The points of an item's rows are there: wait for them. */
__device__ __forceinline__ void
wait_points(const GkGemmArgs &p, unsigned int base, int &stay, unsigned int &parity)
{
	for (int slice = 0; slice < p.slices; slice++)
	{
		barrier_wait(base + STAY_FULL_AT + stay * 8, parity);
		next_stage<STAY>(stay, parity);
	}
}

/* What a warpgroup does: its 64 rows of each of the block's tiles. */
template <GkGemmUse USE, int STEPS>
__device__ __forceinline__ void
use_products(const GkGemmArgs &p, const char *shared, unsigned int base, int group, int rows, int row_tiles)
{
	Common		common(p);
	float		sum[64];
	float		magic = p.state->magic;
	bool		leader = threadIdx.x % WARPGROUP == 0;
	int			stage = 0;
	int			stay = 0;
	int			slot = 0;
	unsigned int parity = 0;
	unsigned int stay_parity = 0;
	Smallest	smallest;
	GkGemmBound bound;
	Found		found;
	int			limit[2];
	Item		item;

	found.row = -1;
	item.m = blockIdx.x;
	item.stay = 0;
	item.rows(p, row_tiles);
	while (item.m < row_tiles)
	{
		const int2 *keys = (const int2 *) (shared + KEYS_AT + slot * KEY_BYTES);
		int			row0 = item.m * ROWS + group * 64 + threadIdx.x % WARPGROUP / 32 * 16;
		Item		next = item;

		if (item.i == 0)
			wait_points(p, base, stay, stay_parity);
		begin<STEPS>(p, sum, base, item, group, stage, parity);
		next.next(p, row_tiles);
		slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
		if (item.i == 0)
		{
			if (USE == GK_GEMM_LABELS)
			{
				store_labels(p, common, found);
				bound = load_bound(p, row_of_lane(row0, rows));
			}
			if (USE == GK_GEMM_CANDIDATES)
				load_limits(p, row0, rows, limit);
			smallest.reset();
		}
		multiply_wait<0>();
		touch(sum);
		/* The stages of this tile, and at its last the points. */
		for (int slice = 0; slice < p.slices; slice++)
		{
			if (leader)
				barrier_arrive(base + EMPTY_AT + stage * 8);
			next_stage<STAGES>(stage, parity);
		}
		if (leader && next.m != item.m)
			for (int slice = 0; slice < p.slices; slice++)
				barrier_arrive(base + STAY_EMPTY_AT + (item.stay + slice) % STAY * 8);
		look<USE>(p, sum, keys, magic, item, row0, rows, smallest, limit);
		if (USE == GK_GEMM_LABELS && next.m != item.m)
			found = find_labels<COLUMNS>(p, smallest, bound, row_of_lane(row0, rows));
		item = next;
	}
	if (USE == GK_GEMM_LABELS)
		store_labels(p, common, found);
}

template <GkGemmUse USE, int STEPS>
__global__ void __launch_bounds__(THREADS, 1)
stay_kernel(const __grid_constant__ CUtensorMap points, const __grid_constant__ CUtensorMap centroids,
			const __grid_constant__ GkGemmArgs p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	extern __shared__ char raw[];
	unsigned int base = (shared_address(raw) + 1023) & ~1023u;
	int			group = threadIdx.x / WARPGROUP - 1;
	int			rows = rows_of(p);
	int			row_tiles = rows > 0 ? (rows + ROWS - 1) / ROWS : 0;

	if (threadIdx.x == 0)
	{
		for (int i = 0; i < STAGES; i++)
		{
			barrier_init(base + FULL_AT + i * 8, 1);
			barrier_init(base + EMPTY_AT + i * 8, GROUPS);
		}
		for (int i = 0; i < STAY; i++)
		{
			barrier_init(base + STAY_FULL_AT + i * 8, 1);
			barrier_init(base + STAY_EMPTY_AT + i * 8, GROUPS);
		}
		barriers_ready();
	}
	__syncthreads();
	if (group < 0)
	{
		set_registers<24, false>();
		if (threadIdx.x == 0)
			feed(p, &points, &centroids, base, row_tiles);
	}
	else
	{
		set_registers<112, true>();
		use_products<USE, STEPS>(p, raw + (base - shared_address(raw)), base, group, rows, row_tiles);
	}
#endif
}

GkGemmKernel
gk_gpu_gemm_stay(GkGemmUse use, int steps)
{
	const void *kernel = use == GK_GEMM_CANDIDATES ? (const void *) stay_kernel<GK_GEMM_CANDIDATES, 4> :
		use == GK_GEMM_DUMP ? (const void *) stay_kernel<GK_GEMM_DUMP, 4> :
		steps == 1 ? (const void *) stay_kernel<GK_GEMM_LABELS, 1> :
		steps == 2 ? (const void *) stay_kernel<GK_GEMM_LABELS, 2> :
		steps == 3 ? (const void *) stay_kernel<GK_GEMM_LABELS, 3> : (const void *) stay_kernel<GK_GEMM_LABELS, 4>;

	return (GkGemmKernel) {kernel, THREADS, SHARED, ROWS, COLUMNS};
}
