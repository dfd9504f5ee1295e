/*
 * gk_gpu_gemm_stay.cu - the product of rows of up to 256 values: a block's points stay in shared memory while
 * the centroids pass by.
 *
 * A warpgroup has 64 points x 128 centroids.  With so few values a row, looking at the scores takes longer than
 * the product, and each step of it waits for the one before: four warpgroups, each at its own pace, keep the
 * multiprocessor busy.  The rest is as in gk_gpu_gemm_stream.cu: one thread of one more warpgroup feeds the copy
 * engine, the blocks stay for all tiles.
 *
 * To bring centroids takes as long as to bring points.  So a block takes tiles of points in bunches, and where the
 * tiles of centroids that they need are the same and have room, those stay for the whole bunch.
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
#define BUNCH		GK_GEMM_BUNCH
#define BUNCHES		8			/* of a block, at least: or some blocks would have much more than others */
#define AGAIN		(1 << 30)	/* the tiles of columns of the tile of points before */
#define KEEP		(1 << 29)	/* they stay for the next one */
#define KEY_SLOTS	(STAGES + 2)
#define POINTS_AT	(STAGES * CENTROID_BYTES)
#define KEYS_AT		(POINTS_AT + STAY * POINT_BYTES)
#define NEEDED_AT	(KEYS_AT + KEY_SLOTS * KEY_BYTES)	/* as in GkGemmArgs.need, of each slot */
#define COUNTS_AT	(NEEDED_AT + KEY_SLOTS * 4)	/* of tiles of columns, AGAIN, KEEP: of each place of points */
#define PIVOTS_AT	(COUNTS_AT + STAY * 4)	/* of each place of points */
#define FULL_AT		((PIVOTS_AT + STAY * 4 + 7) / 8 * 8)	/* barriers */
#define EMPTY_AT	(FULL_AT + STAGES * 8)
#define STAY_FULL_AT	(EMPTY_AT + STAGES * 8)
#define STAY_EMPTY_AT	(STAY_FULL_AT + STAY * 8)
#define ROWS_AT		(STAY_EMPTY_AT + STAY * 8)
#define ASKED_AT	((ROWS_AT + 4 + 15) / 16 * 16)	/* of each row of a tile */
#define SHARED		(ASKED_AT + ROWS * (int) sizeof(Asked) + 1024)	/* and room to align it to 1024 */

/*
 * What is known when a kernel is compiled: how many slices a row has (0: any number), whether rows may be
 * sorted about pivots, and how many times 16 values there are in the last slice.  Whatever is done beside the
 * sums is as long as they are when rows are narrow, so that it counts.
 */
template <GkGemmUse USE, int SLICES, bool PIVOTS, int STEPS>
struct Stay
{
	const GkGemmArgs &p;
	const char *shared;
	unsigned int base;			/* its address */
	int			rows;
	int			row_tiles;
	int			slices;
	bool		bunches;

	__device__ __forceinline__
	Stay(const GkGemmArgs &args, const char *raw)
		: p(args)
	{
		unsigned int at = shared_address(raw);

		/* Kept: the compiler would make it again wherever it is used. */
		asm volatile("and.b32 %0, %1, 0xfffffc00;" : "=r"(base) : "r"(at + 1023));
		shared = raw + (base - at);
		slices = SLICES > 0 ? SLICES : p.slices;
	}

	/* Once thread 0 has stored how many. */
	__device__ __forceinline__ void
	take_rows(void)
	{
		rows = *(const int *) (shared + ROWS_AT);
		row_tiles = (rows + ROWS - 1) / ROWS;
		bunches = row_tiles >= (int) gridDim.x * BUNCH * BUNCHES;
	}

	/* The block's first tile of points, and the one after m; row_tiles or more: none. */
	__device__ __forceinline__ int
	first_tile(void) const
	{
		return blockIdx.x * (bunches ? BUNCH : 1);
	}

	__device__ __forceinline__ int
	next_tile(int m) const
	{
		return !bunches ? m + gridDim.x : (m + 1) % BUNCH != 0 ? m + 1 : m + 1 + (gridDim.x - 1) * BUNCH;
	}

	/* The first row of a warp's 16 in a tile of points. */
	__device__ __forceinline__ int
	first_row(int m, int group) const
	{
		return m * ROWS + group * 64 + threadIdx.x % WARPGROUP / 32 * 16;
	}

	/* Does the tile `then` need what m needs, and is there room for that? */
	__device__ __forceinline__ bool
	same(int m, const GkGemmNeeds &all, int then, const GkGemmNeeds &next) const
	{
		bool		sorted = PIVOTS && p.needs != NULL;

		/* (Tiles of gathered rows have needs of their own.) */
		return then < row_tiles && all.count * slices <= STAGES &&
			(!sorted || (USE == GK_GEMM_LABELS && all.pivot == next.pivot &&
						 pivot_tile(p, m * ROWS) / BUNCH == pivot_tile(p, then * ROWS) / BUNCH));
	}

	__device__ void feed(const GkGemmMaps *points, const GkGemmMaps *centroids) const;
	__device__ void use(int group) const;
};

/* A place in a ring of N, and the parity of the barriers there. */
template <int N>
struct Ring
{
	int			at;
	unsigned int parity;

	__device__ __forceinline__ void
	next(void)
	{
		next_stage<N>(at, parity);
	}
};

/*
 * Bring tiles in the order in which they are multiplied, and say which: how many tiles of columns with a tile of
 * points, and which one, which parts of it, with its keys.  Who multiplies does not wait for memory.
 */
template <GkGemmUse USE, int SLICES, bool PIVOTS, int STEPS>
__device__ __forceinline__ void
Stay<USE, SLICES, PIVOTS, STEPS>::feed(const GkGemmMaps *points, const GkGemmMaps *centroids) const
{
	Ring<STAGES> stage = {0, 1};
	Ring<STAY>	stay = {0, 1};
	int			slot = 0;
	int			then;
	bool		again = false;
	bool		keep;

	for (int m = first_tile(); m < row_tiles; m = then, again = keep)
	{
		int			of = pivot_tile(p, m * ROWS);
		GkGemmNeeds all = needs(p, PIVOTS, of);
		const int  *keys = p.keys + (PIVOTS ? (int64_t) all.pivot * p.key_pitch : 0);

		then = next_tile(m);
		keep = same(m, all, then, needs(p, PIVOTS, pivot_tile(p, min(then, row_tiles - 1) * ROWS)));
		for (int slice = 0; slice < slices; slice++)
		{
			unsigned int full = base + STAY_FULL_AT + stay.at * 8;

			barrier_wait(base + STAY_EMPTY_AT + stay.at * 8, stay.parity);
			if (slice == 0)
			{
				store_shared(base + COUNTS_AT + stay.at * 4, all.count | (again ? AGAIN : 0) | (keep ? KEEP : 0));
				store_shared(base + PIVOTS_AT + stay.at * 4, all.pivot);
			}
			barrier_expect(full, POINT_BYTES);
			bring(base + POINTS_AT + stay.at * POINT_BYTES, points, full, slice, slices, p.first + m * ROWS);
			stay.next();
		}
		for (int i = 0; !again && i < all.count; i++)
		{
			int			needed = need<COLUMNS>(p, PIVOTS, of, i);
			int			tile = needed >> GK_GEMM_PARTS;

			for (int slice = 0; slice < slices; slice++)
			{
				unsigned int full = base + FULL_AT + stage.at * 8;

				barrier_wait(base + EMPTY_AT + stage.at * 8, stage.parity);
				if (slice == 0)
					store_shared(base + NEEDED_AT + slot * 4, needed);
				barrier_expect(full, CENTROID_BYTES + (slice == 0 ? KEY_BYTES : 0));
				bring(base + stage.at * CENTROID_BYTES, centroids, full, slice, slices,
					  (PIVOTS ? all.copy * p.k : 0) + tile * COLUMNS);
				if (slice == 0)
				{
					bring_bytes(base + KEYS_AT + slot * KEY_BYTES, keys + tile * COLUMNS, KEY_BYTES, full);
					slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
				}
				stage.next();
			}
		}
	}
}

/* STEPS times 16 values of 64 rows: points and centroids at these addresses. */
template <int STEPS>
__device__ __forceinline__ void
multiply_slice(float (&sum)[64], unsigned int points, unsigned int centroids, bool add)
{
	uint64_t	y = matrix(points);
	uint64_t	b = matrix(centroids);

	multiply_fence();
#pragma unroll
	for (int i = 0; i < STEPS; i++)
		multiply(sum, y + 2 * i, b + 2 * i, i > 0 || add);
}

/* What a warpgroup does: its 64 rows of each of the block's tiles. */
template <GkGemmUse USE, int SLICES, bool PIVOTS, int STEPS>
__device__ __forceinline__ void
Stay<USE, SLICES, PIVOTS, STEPS>::use(int group) const
{
	Common		common(p);
	float		sum[64];
	float		magic = p.state->magic;
	unsigned int mine = base + POINTS_AT + group * (POINT_BYTES / GROUPS);
	bool		leader = threadIdx.x % WARPGROUP == 0;
	bool		sorted = PIVOTS && p.row != NULL;
	Ring<STAGES> stage = {0, 0};
	Ring<STAGES> first_stage = stage;
	Ring<STAY>	stay = {0, 0};
	int			slot = 0;
	int			first_slot = 0;
	Smallest	smallest;
	Found		found;
	unsigned int asked = ASKED_AT + (first_row(0, group) + threadIdx.x % 4 * 8 + threadIdx.x % 32 / 4) * (int) sizeof(Asked);
	int			limit[2];
	PairRoom	room = {};

	found.row = -1;
	for (int m = first_tile(); m < row_tiles; m = next_tile(m))
	{
		int			row0 = first_row(m, group);
		int			from = stay.at;
		int			count;
		int			pivot;
		bool		keep;

		for (int slice = 0; slice < slices; slice++)
		{
			barrier_wait(base + STAY_FULL_AT + stay.at * 8, stay.parity);
			stay.next();
		}
		count = ((const int *) (shared + COUNTS_AT))[from];
		pivot = ((const int *) (shared + PIVOTS_AT))[from];
		keep = count & KEEP;
		if (count & AGAIN)
		{
			stage = first_stage;
			slot = first_slot;
		}
		first_stage = stage;
		first_slot = slot;
		count &= KEEP - 1;
		for (int i = 0; i < count; i++)
		{
			const int2 *keys = (const int2 *) (shared + KEYS_AT + slot * KEY_BYTES);
			Ring<STAGES> used = stage;
			int			needed;

			touch(sum);
			for (int slice = 0; slice + 1 < slices; slice++)
			{
				barrier_wait(base + FULL_AT + stage.at * 8, stage.parity);
				multiply_slice<4>(sum, mine + ((from + slice) & (STAY - 1)) * POINT_BYTES, base + stage.at * CENTROID_BYTES, slice > 0);
				stage.next();
			}
			barrier_wait(base + FULL_AT + stage.at * 8, stage.parity);
			multiply_slice<STEPS>(sum, mine + ((from + slices - 1) & (STAY - 1)) * POINT_BYTES, base + stage.at * CENTROID_BYTES, slices > 1);
			stage.next();
			multiply_commit();
			needed = ((const int *) (shared + NEEDED_AT))[slot];
			slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
			if (i == 0)
			{
				if (USE == GK_GEMM_CANDIDATES)
					load_limits(p, row0, rows, limit);
				smallest.reset();
			}
			multiply_wait<0>();
			touch(sum);
			/* The stages of this tile, and at its last the points. */
			if (leader && !keep)
				for (int slice = 0; slice < slices; slice++)
				{
					barrier_arrive(base + EMPTY_AT + used.at * 8);
					used.next();
				}
			if (leader && i + 1 == count)
				for (int slice = 0; slice < slices; slice++)
					barrier_arrive(base + STAY_EMPTY_AT + ((from + slice) & (STAY - 1)) * 8);
			if (USE == GK_GEMM_LABELS)
			{
				smallest.take(sum, keys, magic, needed >> GK_GEMM_PARTS, needed);
				if (i == 0)
				{
					store_labels(p, sorted, common, found, (const Asked *) (shared + asked));
					ask_for_row(p, sorted, base + asked, row_of_lane(row0, rows));
				}
			}
			else if (USE == GK_GEMM_CANDIDATES)
				store_candidates(p, sum, keys, magic, needed >> GK_GEMM_PARTS, limit, row0, room);
			else
				store_sums(p, sum, needed >> GK_GEMM_PARTS, row0, rows);
		}
		if (USE == GK_GEMM_LABELS)
			found = find_labels<COLUMNS>(p, sorted, pivot, smallest, base + asked, row_of_lane(row0, rows));
	}
	if (USE == GK_GEMM_LABELS)
		store_labels(p, sorted, common, found, (const Asked *) (shared + asked));
	if (USE == GK_GEMM_CANDIDATES)
		room.fill(p);
}

template <GkGemmUse USE, int SLICES, bool PIVOTS, int STEPS>
__global__ void __launch_bounds__(THREADS, 1)
stay_kernel(const __grid_constant__ GkGemmMaps points, const __grid_constant__ GkGemmMaps centroids,
			const __grid_constant__ GkGemmArgs p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	extern __shared__ char raw[];
	Stay<USE, SLICES, PIVOTS, STEPS> stay(p, raw);
	/* The same for all lanes of a warp, and the compiler knows it. */
	int			group = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0) - 1;

	if (threadIdx.x == 0)
	{
		for (int i = 0; i < STAGES; i++)
		{
			barrier_init(stay.base + FULL_AT + i * 8, 1);
			barrier_init(stay.base + EMPTY_AT + i * 8, GROUPS);
		}
		for (int i = 0; i < STAY; i++)
		{
			barrier_init(stay.base + STAY_FULL_AT + i * 8, 1);
			barrier_init(stay.base + STAY_EMPTY_AT + i * 8, GROUPS);
		}
		barriers_ready();
		store_shared(stay.base + ROWS_AT, rows_of(p));
	}
	__syncthreads();
	stay.take_rows();
	if (group < 0)
	{
		/* What the block was given is enough for both, and no more. */
		set_registers<32, false>();
		if (threadIdx.x == 0)
			stay.feed(&points, &centroids);
	}
	else
	{
		set_registers<112, true>();
		stay.use(group);
	}
#endif
}

/* The kernel for labels. */
template <int SLICES, bool PIVOTS>
static const void *
labels_kernel(int steps)
{
	static const void *const kernels[] = {
		(const void *) stay_kernel<GK_GEMM_LABELS, SLICES, PIVOTS, 1>,
		(const void *) stay_kernel<GK_GEMM_LABELS, SLICES, PIVOTS, 2>,
		(const void *) stay_kernel<GK_GEMM_LABELS, SLICES, PIVOTS, 3>,
		(const void *) stay_kernel<GK_GEMM_LABELS, SLICES, PIVOTS, 4>,
	};

	return kernels[steps - 1];
}

GkGemmKernel
gk_gpu_gemm_stay(GkGemmUse use, int slices, int steps, bool pivots)
{
	const void *kernel = use == GK_GEMM_CANDIDATES ? (const void *) stay_kernel<GK_GEMM_CANDIDATES, 0, true, 4> :
		use == GK_GEMM_DUMP ? (const void *) stay_kernel<GK_GEMM_DUMP, 0, true, 4> :
		slices == 4 ? labels_kernel<4, true>(steps) :
		slices == 3 ? labels_kernel<3, true>(steps) :
		slices == 2 ? labels_kernel<2, true>(steps) :
		pivots ? labels_kernel<1, true>(steps) : labels_kernel<1, false>(steps);

	return (GkGemmKernel) {kernel, THREADS, SHARED, ROWS, COLUMNS};
}
