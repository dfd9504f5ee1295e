/*
 * gk_gpu_gemm_stay.cu - the product of rows of up to 256 values: a block's points stay in shared memory while
 * the centroids pass by.
 *
 * A warpgroup has 64 points x 128 centroids, or 32 or 64 if there are no more.  With so few values a row, looking
 * at the scores takes longer than the product, and each step of it waits for the one before: four warpgroups, each
 * at its own pace, keep the multiprocessor busy.  The rest is as in gk_gpu_gemm_stream.cu: one thread of one more warpgroup feeds the copy
 * engine, the blocks stay for all tiles.
 *
 * To bring centroids takes as long as to bring points.  So a block takes tiles of points in bunches, and where the
 * tiles of centroids that they need are the same and have room, those stay for the whole bunch.
 */
#include "gpu/gk_gpu_gemm_hopper.cuh"

#define GROUPS		4			/* of 64 rows */
#define ARRIVALS	(GROUPS * WARPGROUP / 32)	/* a lane of each warp that multiplies */
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
#define KEY_SLOTS	(STAGES + 1)	/* the keys before those of a stage that is free may be in use */
#define W_BYTES		(ROWS * (int) sizeof(float))
#define TO_BYTES	(ROWS * (int) sizeof(int))
#define BOUND_BYTES	(ROWS * (int) sizeof(GkGemmBound))
#define POINTS_AT	(STAGES * CENTROID_BYTES)
#define KEYS_AT		(POINTS_AT + STAY * POINT_BYTES)
#define W_AT		(KEYS_AT + KEY_SLOTS * KEY_BYTES)	/* of each place of points, as what follows it */
#define TO_AT		(W_AT + STAY * W_BYTES)	/* sorted: the rows' numbers */
#define BOUND_AT	TO_AT		/* not sorted */
#define NEEDED_AT	(BOUND_AT + STAY * BOUND_BYTES)	/* as in GkGemmArgs.need, of each slot */
#define COUNTS_AT	(NEEDED_AT + KEY_SLOTS * 4)	/* of tiles of columns, AGAIN, KEEP: of each place of points */
#define PIVOTS_AT	(COUNTS_AT + STAY * 4)	/* sorted */
#define FULL_AT		((PIVOTS_AT + STAY * 4 + 7) / 8 * 8)	/* barriers */
#define EMPTY_AT	(FULL_AT + STAGES * 8)
#define STAY_FULL_AT	(EMPTY_AT + STAGES * 8)
#define STAY_EMPTY_AT	(STAY_FULL_AT + STAY * 8)
#define ROWS_AT		(STAY_EMPTY_AT + STAY * 8)
#define SHARED		(ROWS_AT + 4 + 1024)	/* and room to align it to 1024 */

/* A tile of points, as who feeds knows it. */
struct PointTile
{
	int			m;
	GkGemmNeeds all;
	int			need;			/* the first of these */
};

/* Values of a row that are brought of the last slice. */
static constexpr int
tail_of(GkGemmUse use, int steps)
{
	return use != GK_GEMM_LABELS || steps > 2 ? GK_GEMM_DEPTH : steps * 16;
}

/*
 * What is known when a kernel is compiled: how many slices a row has (0: any number), whether rows are sorted about
 * pivots (for other uses than labels: they may be), and how many times 16 values there are in the last slice.
 * Whatever is done beside the sums is as long as they are when rows are narrow, so that it counts.
 */
template <GkGemmUse USE, int SLICES, bool SORTED, int STEPS>
struct Stay
{
	const GkGemmArgs &p;
	const char *shared;
	unsigned int base;			/* its address */
	int			rows;
	int			row_tiles;
	int			slices;
	bool		bunches;
	/* What is brought of the last slice. */
	static constexpr int TAIL = tail_of(USE, STEPS);

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

	/* The block's i-th tile of points; row_tiles or more: none, nor any after it. */
	__device__ __forceinline__ int
	tile_at(int i) const
	{
		return !bunches ? blockIdx.x + i * gridDim.x : (blockIdx.x + i / BUNCH * gridDim.x) * BUNCH + i % BUNCH;
	}

	/* How many of a tile's bytes a slice has. */
	__device__ __forceinline__ int
	part(int bytes, int slice) const
	{
		return slice + 1 < slices ? bytes : bytes / GK_GEMM_DEPTH * TAIL;
	}

	/* The first row of a warp's 16 in a tile of points. */
	static __device__ __forceinline__ int
	first_row(int group)
	{
		return group * 64 + threadIdx.x % WARPGROUP / 32 * 16;
	}

	/* What the block's i-th tile of points needs. */
	__device__ __forceinline__ PointTile
	look_at(int i) const
	{
		int			m = tile_at(i);
		int			of = pivot_tile(p, max(min(m, row_tiles - 1), 0) * ROWS);

		return {m, needs(p, SORTED, of), need<COLUMNS>(p, SORTED, of, 0)};
	}

	/* Does the next tile need what this one needs, and is there room for that? */
	__device__ __forceinline__ bool
	same(const PointTile &a, const PointTile &next) const
	{
		bool		sorted = SORTED && p.needs != NULL;

		/* (Tiles of gathered rows have needs of their own.) */
		return next.m < row_tiles && a.all.count * slices <= STAGES &&
			(!sorted || (USE == GK_GEMM_LABELS && a.all.pivot == next.all.pivot &&
						 pivot_tile(p, a.m * ROWS) / BUNCH == pivot_tile(p, next.m * ROWS) / BUNCH));
	}

	__device__ void bring_rows(int place, unsigned int barrier, int m) const;
	__device__ void bring_columns(int slot, unsigned int barrier, int tile, int pivot) const;
	__device__ void feed(const GkGemmMaps *points, const GkGemmMaps *centroids) const;
	__device__ void know(Judged &judged, int row0, int group, int place) const;
	template <int COUNT>
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

#define ROW_BYTES		(USE != GK_GEMM_LABELS ? 0 : SORTED ? W_BYTES + TO_BYTES : W_BYTES + BOUND_BYTES)

/* What is known of the rows of a tile of points. */
template <GkGemmUse USE, int SLICES, bool SORTED, int STEPS>
__device__ __forceinline__ void
Stay<USE, SLICES, SORTED, STEPS>::bring_rows(int place, unsigned int barrier, int m) const
{
	int			row = p.first + m * ROWS;

	bring_bytes(base + W_AT + place * W_BYTES, p.w + row, W_BYTES, barrier);
	if (SORTED)
		bring_bytes(base + TO_AT + place * TO_BYTES, p.row + row, TO_BYTES, barrier);
	else
		bring_bytes(base + BOUND_AT + place * BOUND_BYTES, p.bound + row, BOUND_BYTES, barrier);
}

/* What is known of a tile of columns. */
template <GkGemmUse USE, int SLICES, bool SORTED, int STEPS>
__device__ __forceinline__ void
Stay<USE, SLICES, SORTED, STEPS>::bring_columns(int slot, unsigned int barrier, int tile, int pivot) const
{
	int64_t		at = tile * COLUMNS + (SORTED ? (int64_t) pivot * p.key_pitch : 0);

	bring_bytes(base + KEYS_AT + slot * KEY_BYTES, p.keys + at, KEY_BYTES, barrier);
}

/*
 * Bring tiles in the order in which they are multiplied, and say which: how many tiles of columns with a tile of
 * points, and which one, which parts of it, with its keys.  Who multiplies does not wait for memory.
 */
template <GkGemmUse USE, int SLICES, bool SORTED, int STEPS>
__device__ __forceinline__ void
Stay<USE, SLICES, SORTED, STEPS>::feed(const GkGemmMaps *points, const GkGemmMaps *centroids) const
{
	Ring<STAGES> stage = {0, 1};
	Ring<STAY>	stay = {0, 1};
	int			slot = 0;
	bool		again = false;
	PointTile	now = look_at(0);

	for (int t = 1; now.m < row_tiles; t++)
	{
		PointTile	next = look_at(t);
		bool		keep = same(now, next);

		for (int slice = 0; slice < slices; slice++)
		{
			unsigned int full = base + STAY_FULL_AT + stay.at * 8;

			barrier_wait(base + STAY_EMPTY_AT + stay.at * 8, stay.parity);
			if (slice == 0)
			{
				store_shared(base + COUNTS_AT + stay.at * 4, now.all.count | (again ? AGAIN : 0) | (keep ? KEEP : 0));
				if (SORTED)
					store_shared(base + PIVOTS_AT + stay.at * 4, now.all.pivot);
			}
			barrier_expect(full, part(POINT_BYTES, slice) + (slice == 0 ? ROW_BYTES : 0));
			bring(base + POINTS_AT + stay.at * POINT_BYTES, points, full, slice, slices, p.first + now.m * ROWS);
			if (slice == 0 && USE == GK_GEMM_LABELS)
				bring_rows(stay.at, full, now.m);
			stay.next();
		}
		for (int i = 0; !again && i < now.all.count; i++)
		{
			int			needed = i == 0 ? now.need : need<COLUMNS>(p, SORTED, pivot_tile(p, now.m * ROWS), i);
			int			tile = needed >> GK_GEMM_PARTS;

			for (int slice = 0; slice < slices; slice++)
			{
				unsigned int full = base + FULL_AT + stage.at * 8;

				barrier_wait(base + EMPTY_AT + stage.at * 8, stage.parity);
				if (slice == 0)
					store_shared(base + NEEDED_AT + slot * 4, needed);
				barrier_expect(full, part(CENTROID_BYTES, slice) + (slice == 0 ? KEY_BYTES : 0));
				bring(base + stage.at * CENTROID_BYTES, centroids, full, slice, slices,
					  (SORTED ? now.all.copy * p.k : 0) + tile * COLUMNS);
				if (slice == 0)
					bring_columns(slot, full, tile, now.all.pivot);
				stage.next();
			}
			slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
		}
		now = next;
		again = keep;
	}
}

/* STEPS times 16 values of rows of DEPTH values, 2 N columns: points and centroids at these addresses. */
template <int STEPS, int DEPTH, int N>
__device__ __forceinline__ void
multiply_slice(float (&sum)[N], unsigned int points, unsigned int centroids, bool add)
{
	uint64_t	y = matrix<DEPTH>(points);
	uint64_t	b = matrix<DEPTH>(centroids);

	multiply_fence();
#pragma unroll
	for (int i = 0; i < STEPS; i++)
		multiply(sum, y + 2 * i, b + 2 * i, i > 0 || add);
}

/* What it takes to judge the lane's row of a tile: it is there with the points. */
template <GkGemmUse USE, int SLICES, bool SORTED, int STEPS>
__device__ __forceinline__ void
Stay<USE, SLICES, SORTED, STEPS>::know(Judged &judged, int row0, int group, int place) const
{
	int			at = first_row(group) + Judged::mine();

	judged.row = row0 + Judged::mine() < rows ? row0 + Judged::mine() : -1;
	judged.w = ((const float *) (shared + W_AT + place * W_BYTES))[at];
	if (SORTED)
	{
		judged.to = ((const int *) (shared + TO_AT + place * TO_BYTES))[at];
		judged.columns_z = p.z + (int64_t) ((const int *) (shared + PIVOTS_AT))[place] * p.key_pitch;
	}
	else
		judged.of = ((const GkGemmBound *) (shared + BOUND_AT + place * BOUND_BYTES))[at];
}

/* What a warpgroup does: its 64 rows of each of the block's tiles, and the first COUNT columns of a tile. */
template <GkGemmUse USE, int SLICES, bool SORTED, int STEPS>
template <int COUNT>
__device__ __forceinline__ void
Stay<USE, SLICES, SORTED, STEPS>::use(int group) const
{
	Common		common(p);
	float		sum[COUNT / 2];
	float		magic = p.state->magic;
	unsigned int mine = base + POINTS_AT + group * (POINT_BYTES / GROUPS);
	unsigned int mine_of_tail = base + POINTS_AT + group * part(POINT_BYTES / GROUPS, slices - 1);
	bool		arrives = threadIdx.x % 32 == 0;	/* for its warp: others may still read the keys before */
	Ring<STAGES> stage = {0, 0};
	Ring<STAGES> first_stage = stage;
	Ring<STAY>	stay = {0, 0};
	int			slot = 0;
	int			first_slot = 0;
	Smallest	smallest;
	Judged		judged;
	Wanted		wanted;
	PairRoom	room = {};

	judged.row = -1;
	for (int m, t = 0; (m = tile_at(t)) < row_tiles; t++)
	{
		int			row0 = m * ROWS + first_row(group);
		int			from = stay.at;
		int			count;
		int			half = t % 2;	/* who judges */
		bool		keep;

		for (int slice = 0; slice < slices; slice++)
		{
			barrier_wait(base + STAY_FULL_AT + stay.at * 8, stay.parity);
			stay.next();
		}
		count = ((const int *) (shared + COUNTS_AT))[from];
		keep = count & KEEP;
		if (count & AGAIN)
		{
			stage = first_stage;
			slot = first_slot;
		}
		first_stage = stage;
		first_slot = slot;
		count &= KEEP - 1;
		smallest.reset();
		if (USE == GK_GEMM_LABELS && Judged::in(half))
			know(judged, row0, group, from);
		for (int i = 0; i < count; i++)
		{
			const int2 *keys = (const int2 *) (shared + KEYS_AT + slot * KEY_BYTES);
			Ring<STAGES> used = stage;
			int			needed;

			touch(sum);
			for (int slice = 0; slice + 1 < slices; slice++)
			{
				barrier_wait(base + FULL_AT + stage.at * 8, stage.parity);
				multiply_slice<4, GK_GEMM_DEPTH>(sum, mine + ((from + slice) & (STAY - 1)) * POINT_BYTES, base + stage.at * CENTROID_BYTES, slice > 0);
				stage.next();
			}
			barrier_wait(base + FULL_AT + stage.at * 8, stage.parity);
			multiply_slice<STEPS, TAIL>(sum, mine_of_tail + ((from + slices - 1) & (STAY - 1)) * POINT_BYTES, base + stage.at * CENTROID_BYTES, slices > 1);
			stage.next();
			multiply_commit();
			needed = ((const int *) (shared + NEEDED_AT))[slot];
			slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
			if (USE == GK_GEMM_CANDIDATES && i == 0)
				wanted.load(p, row0, rows);
			multiply_wait<0>();
			touch(sum);
			/* The stages of this tile, and at its last the points. */
			if (arrives && !keep)
				for (int slice = 0; slice < slices; slice++)
				{
					barrier_arrive(base + EMPTY_AT + used.at * 8);
					used.next();
				}
			if (arrives && i + 1 == count)
				for (int slice = 0; slice < slices; slice++)
					barrier_arrive(base + STAY_EMPTY_AT + ((from + slice) & (STAY - 1)) * 8);
			if (USE == GK_GEMM_LABELS)
				smallest.take(sum, keys, magic, needed >> GK_GEMM_PARTS, needed);
			else if (USE == GK_GEMM_CANDIDATES)
				store_candidates(p, sum, keys, magic, needed >> GK_GEMM_PARTS, wanted, row0, room);
			else
				store_sums(p, sum, needed >> GK_GEMM_PARTS, row0, rows);
		}
		if (USE == GK_GEMM_LABELS)
		{
			judged.find<COLUMNS>(p, smallest, SORTED, half);
			/* To judge takes as long as to look at a part of the columns: the rows of two tiles at once. */
			if (half == 1)
				judged.store(p, SORTED, common);
		}
	}
	if (USE == GK_GEMM_LABELS)
		judged.store(p, SORTED, common);
	if (USE == GK_GEMM_CANDIDATES)
		room.fill(p);
}

template <GkGemmUse USE, int SLICES, bool SORTED, int STEPS>
__global__ void __launch_bounds__(THREADS, 1)
stay_kernel(const __grid_constant__ GkGemmMaps points, const __grid_constant__ GkGemmMaps centroids,
			const __grid_constant__ GkGemmArgs p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	extern __shared__ char raw[];
	Stay<USE, SLICES, SORTED, STEPS> stay(p, raw);
	/* The same for all lanes of a warp, and the compiler knows it. */
	int			group = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0) - 1;

	if (threadIdx.x == 0)
	{
		for (int i = 0; i < STAGES; i++)
		{
			barrier_init(stay.base + FULL_AT + i * 8, 1);
			barrier_init(stay.base + EMPTY_AT + i * 8, ARRIVALS);
		}
		for (int i = 0; i < STAY; i++)
		{
			barrier_init(stay.base + STAY_FULL_AT + i * 8, 1);
			barrier_init(stay.base + STAY_EMPTY_AT + i * 8, ARRIVALS);
		}
		barriers_ready();
	}
	gk_await_previous();
	if (threadIdx.x == 0)
		store_shared(stay.base + ROWS_AT, rows_of(p));
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
		/* Columns that are not there are neither multiplied nor looked at. */
		if (USE == GK_GEMM_LABELS && p.k <= GK_GEMM_PART / 2)
			stay.template use<GK_GEMM_PART / 2>(group);
		else if (USE == GK_GEMM_LABELS && p.k <= GK_GEMM_PART)
			stay.template use<GK_GEMM_PART>(group);
		else
			stay.template use<COLUMNS>(group);
	}
#endif
}

/* The kernel for labels. */
template <int SLICES, bool SORTED>
static const void *
labels_kernel(int steps)
{
	static const void *const kernels[] = {
		(const void *) stay_kernel<GK_GEMM_LABELS, SLICES, SORTED, 1>,
		(const void *) stay_kernel<GK_GEMM_LABELS, SLICES, SORTED, 2>,
		(const void *) stay_kernel<GK_GEMM_LABELS, SLICES, SORTED, 3>,
		(const void *) stay_kernel<GK_GEMM_LABELS, SLICES, SORTED, 4>,
	};

	return kernels[steps - 1];
}

GkGemmKernel
gk_gpu_gemm_stay(GkGemmUse use, int slices, int steps, bool sorted)
{
	const void *kernel = use == GK_GEMM_CANDIDATES ? (const void *) stay_kernel<GK_GEMM_CANDIDATES, 0, true, 4> :
		use == GK_GEMM_DUMP ? (const void *) stay_kernel<GK_GEMM_DUMP, 0, true, 4> :
		slices == 4 ? (sorted ? labels_kernel<4, true>(steps) : labels_kernel<4, false>(steps)) :
		slices == 3 ? (sorted ? labels_kernel<3, true>(steps) : labels_kernel<3, false>(steps)) :
		slices == 2 ? (sorted ? labels_kernel<2, true>(steps) : labels_kernel<2, false>(steps)) :
		sorted ? labels_kernel<1, true>(steps) : labels_kernel<1, false>(steps);

	return (GkGemmKernel) {kernel, THREADS, SHARED, ROWS, COLUMNS, tail_of(use, steps)};
}
