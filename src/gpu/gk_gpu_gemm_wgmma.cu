/*
 * gk_gpu_gemm_wgmma.cu - the product of rounded points and centroids on Hopper's tensor cores: what it is
 * for and why it is enough stands in gk_gpu_gemm.h.
 *
 * A block has 128 points x 256 centroids in the registers of two warpgroups; 64 values of each row at a time
 * pass by in shared memory, four stages deep, brought by the copy engine (TMA, 128-byte swizzle) that one
 * thread of a third warpgroup feeds.  Up to 256 values of the points stay there for all tiles of centroids,
 * wider ones come along with the centroids.  The blocks stay for all tiles.  Every block reads the same
 * centroids at nearly the same time, so they come from the L2 cache.
 *
 * Scores are compared as integers: a sum in float32 plus 1.5 * 2^23 units is an integer in the low bits, and
 * one multiply-add makes a key of it, with the column's number in the last six bits.
 *
 * Only code for sm_90a has these instructions; other devices never get here (gk_gpu_gemm_supported).
 */
#include <cuda.h>
#include <limits.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"

#define WARPGROUP	128
#define THREADS		(3 * WARPGROUP)
#define STAGES		4
#define POINT_BYTES	(GK_GEMM_ROWS * GK_GEMM_DEPTH * 2)
#define CENTROID_BYTES	(GK_GEMM_COLUMNS * GK_GEMM_DEPTH * 2)
#define KEY_BYTES	(GK_GEMM_COLUMNS * 4)
#define KEY_SLOTS	(STAGES + 2)
#define KEYS_AT		(STAGES * (POINT_BYTES + CENTROID_BYTES))
#define FULL_AT		(KEYS_AT + KEY_SLOTS * KEY_BYTES)	/* barriers of the stages */
#define EMPTY_AT	(FULL_AT + STAGES * 8)
#define STAY_FULL_AT	(EMPTY_AT + STAGES * 8)	/* of points that stay */
#define STAY_EMPTY_AT	(STAY_FULL_AT + STAGES * 8)
#define SHARED		(STAY_EMPTY_AT + STAGES * 8 + 1024)	/* and room to align it to 1024 */

#define NO_KEY		0x7fffffff

/* ---- instructions ---- */

__device__ __forceinline__ unsigned int
shared_address(const void *p)
{
	return (unsigned int) __cvta_generic_to_shared(p);
}

__device__ __forceinline__ void
barrier_init(unsigned int barrier, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void
barrier_expect(unsigned int barrier, int bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void
barrier_arrive(unsigned int barrier)
{
	asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

__device__ __forceinline__ void
barrier_wait(unsigned int barrier, unsigned int parity)
{
	asm volatile("{\n"
				 ".reg .pred done;\n"
				 "AGAIN:\n"
				 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
				 "@done bra READY;\n"
				 "bra AGAIN;\n"
				 "READY:\n"
				 "}" : : "r"(barrier), "r"(parity) : "memory");
}

/* Bring a box of a tensor. */
__device__ __forceinline__ void
bring(unsigned int to, const CUtensorMap *map, unsigned int barrier, int column, int row)
{
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
				 : : "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row) : "memory");
}

__device__ __forceinline__ void
bring_bytes(unsigned int to, const void *from, int bytes, unsigned int barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
				 : : "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

/* How wgmma finds rows of 128 swizzled bytes, eight of them 1024 bytes apart. */
__device__ __forceinline__ uint64_t
matrix(unsigned int address)
{
	return (uint64_t) ((address & 0x3ffff) >> 4) | (uint64_t) 1 << 16 | (uint64_t) 64 << 32 | (uint64_t) 1 << 62;
}

#define SUMS4(i)	"+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUMS16(i)	SUMS4(i), SUMS4(i + 4), SUMS4(i + 8), SUMS4(i + 12)
#define SUMS64(i)	SUMS16(i), SUMS16(i + 16), SUMS16(i + 32), SUMS16(i + 48)

/* 64 points x 256 centroids x 16 values: sum = points * centroids, + sum if add. */
__device__ __forceinline__ void
multiply(float (&sum)[128], uint64_t points, uint64_t centroids, int add)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	asm volatile("{\n"
				 ".reg .pred add;\n"
				 "setp.ne.b32 add, %130, 0;\n"
				 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
				 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
				 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
				 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
				 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
				 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
				 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
				 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
				 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
				 "%128, %129, add, 1, 1, 0, 0;\n"
				 "}"
				 : SUMS64(0), SUMS64(64) : "l"(points), "l"(centroids), "r"(add));
#endif
}

__device__ __forceinline__ void
multiply_fence(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#endif
}

__device__ __forceinline__ void
multiply_commit(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
#endif
}

/* Wait until at most N groups are under way. */
template <int N>
__device__ __forceinline__ void
multiply_wait(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
#endif
}

/* Keep the compiler from moving the use of sums across a wait. */
__device__ __forceinline__ void
touch(float (&sum)[128])
{
#pragma unroll
	for (int i = 0; i < 128; i++)
		asm volatile("" : "+f"(sum[i]) : : "memory");
}

/* Registers from the thread that brings to those that multiply. */
template <int N, bool MORE>
__device__ __forceinline__ void
set_registers(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	if (MORE)
		asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N));
	else
		asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N));
#endif
}

/* ---- what is made of the scores ---- */

/* The two smallest keys of a thread's two rows, of the columns that it has: 8 j + 2 (lane % 4) + {0, 1}. */
struct Smallest
{
	int			first[2];
	int			second[2];
	int			tile[2];		/* of the first */

	__device__ __forceinline__ void
	reset(void)
	{
#pragma unroll
		for (int r = 0; r < 2; r++)
		{
			first[r] = second[r] = NO_KEY;
			tile[r] = 0;
		}
	}

	__device__ __forceinline__ void
	take(const float (&sum)[128], const int2 *keys, float magic, int t, int columns)
	{
		int			before[2] = {first[0], first[1]};

#pragma unroll
		for (int j = 0; j < 32; j++)
		{
			int2		h;

			/* Past the last centroid there is nothing to look at. */
			if (j % 8 == 0 && j * 8 >= columns)
				break;
			h = keys[j * 4 + threadIdx.x % 4];

#pragma unroll
			for (int r = 0; r < 2; r++)
			{
				int			a = __float_as_int(sum[4 * j + 2 * r] + magic) * -64 + h.x;
				int			b = __float_as_int(sum[4 * j + 2 * r + 1] + magic) * -64 + h.y;
				int			low = min(a, b);

				second[r] = __vimin3_s32(second[r], max(a, b), max(first[r], low));
				first[r] = min(first[r], low);
			}
		}
#pragma unroll
		for (int r = 0; r < 2; r++)
			if (first[r] != before[r])
				tile[r] = t;
	}
};

/* The centroid of a key of lane `quad` of four. */
__device__ __forceinline__ int
column(int tile, int key, int quad)
{
	return tile * GK_GEMM_COLUMNS + (key & 62) * 4 + quad * 2 + (key & 1);
}

/* The smallest keys of a warp's 16 rows from `row0` on. */
__device__ __forceinline__ void
store_best(const GkGemmArgs &p, const Smallest &s, int row0, int rows)
{
	int			lane = threadIdx.x % 32;
	int			quad = lane % 4;

#pragma unroll
	for (int r = 0; r < 2; r++)
	{
		int			row = row0 + lane / 4 + r * 8;
		int			first = s.first[r];
		int			second = s.second[r];
		int			at = column(s.tile[r], first, quad);

#pragma unroll
		for (int o = 1; o < 4; o <<= 1)
		{
			int			other = __shfl_xor_sync(0xffffffffu, first, o);
			int			other_second = __shfl_xor_sync(0xffffffffu, second, o);
			int			other_at = __shfl_xor_sync(0xffffffffu, at, o);

			second = __vimin3_s32(second, other_second, max(first, other));
			if (other < first || (other == first && other_at < at))
			{
				first = other;
				at = other_at;
			}
		}
		if (quad == r && row < rows)
			*(int4 *) (p.best + row) = make_int4(first, second, at, 0);
	}
}

/* Pairs of rows and the centroids whose key is not above the row's limit. */
__device__ __forceinline__ void
store_candidates(const GkGemmArgs &p, const float (&sum)[128], const int2 *keys, float magic, int tile, const int (&limit)[2],
				 int row0)
{
	int			lane = threadIdx.x % 32;

#pragma unroll
	for (int r = 0; r < 2; r++)
	{
		int			row = row0 + lane / 4 + r * 8;
		uint64_t	near = 0;

#pragma unroll
		for (int j = 0; j < 32; j++)
		{
			int2		h = keys[j * 4 + lane % 4];

			if (__float_as_int(sum[4 * j + 2 * r] + magic) * -64 + h.x <= limit[r])
				near |= (uint64_t) 1 << 2 * j;
			if (__float_as_int(sum[4 * j + 2 * r + 1] + magic) * -64 + h.y <= limit[r])
				near |= (uint64_t) 2 << 2 * j;
		}
		for (; near != 0; near &= near - 1)
		{
			int			at = atomicAdd(&p.state->pairs, 1);

			if (at < p.pair_room)
				p.pair[at] = (GkGemmPair) {p.from + row, column(tile, __ffsll((long long) near) - 1, lane % 4)};
			else
			{
				/* Compare this row with all centroids. */
				p.in_crowd[p.from + row] = 1;
				break;
			}
		}
	}
}

/* ---- the kernel ---- */

__device__ __forceinline__ void
next_stage(int &stage, unsigned int &parity)
{
	if (++stage == STAGES)
	{
		stage = 0;
		parity ^= 1;
	}
}

/* Tiles of columns that a tile of rows needs, and the i-th of them. */
__device__ __forceinline__ int
needs(const GkGemmArgs &p, int tile)
{
	return p.needs != NULL ? p.needs[tile] : p.tiles;
}

__device__ __forceinline__ int
need(const GkGemmArgs &p, int tile, int i)
{
	return p.needs != NULL ? p.need[(int64_t) tile * p.tiles + i] : i;
}

/* Bring the tiles' slices in the order in which they are multiplied. */
template <bool STAY>
__device__ __forceinline__ void
feed(const GkGemmArgs &p, const CUtensorMap *points, const CUtensorMap *centroids, unsigned int base, int row_tiles)
{
	int			first_tile = (p.first + p.from) / GK_GEMM_ROWS;
	int			stage = 0;
	int			stay = 0;
	int			slot = 0;
	unsigned int parity = 1;
	unsigned int stay_parity = 1;

	for (int m = blockIdx.x; m < row_tiles; m += gridDim.x)
	{
		int			count = needs(p, first_tile + m);
		const int  *keys = p.keys + (p.pivot != NULL ? (int64_t) p.pivot[first_tile + m] * p.tiles * GK_GEMM_COLUMNS : 0);
		int			row = p.first + m * GK_GEMM_ROWS;

		if (STAY)
			for (int slice = 0; slice < p.slices; slice++)
			{
				unsigned int full = base + STAY_FULL_AT + stay * 8;

				barrier_wait(base + STAY_EMPTY_AT + stay * 8, stay_parity);
				barrier_expect(full, POINT_BYTES);
				bring(base + STAGES * CENTROID_BYTES + stay * POINT_BYTES, points, full, slice * GK_GEMM_DEPTH, row);
				next_stage(stay, stay_parity);
			}
		for (int i = 0; i < count; i++)
		{
			int			tile = need(p, first_tile + m, i);

			for (int slice = 0; slice < p.slices; slice++)
			{
				unsigned int full = base + FULL_AT + stage * 8;

				barrier_wait(base + EMPTY_AT + stage * 8, parity);
				barrier_expect(full, CENTROID_BYTES + (STAY ? 0 : POINT_BYTES) + (slice == 0 ? KEY_BYTES : 0));
				bring(base + stage * CENTROID_BYTES, centroids, full, slice * GK_GEMM_DEPTH, tile * GK_GEMM_COLUMNS);
				if (!STAY)
					bring(base + STAGES * CENTROID_BYTES + stage * POINT_BYTES, points, full, slice * GK_GEMM_DEPTH, row);
				if (slice == 0)
				{
					bring_bytes(base + KEYS_AT + slot * KEY_BYTES, keys + tile * GK_GEMM_COLUMNS, KEY_BYTES, full);
					slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
				}
				next_stage(stage, parity);
			}
		}
	}
}

/* A warpgroup needs a stage no more; -1: the last one. */
__device__ __forceinline__ void
release(unsigned int empty, int stage)
{
	barrier_arrive(empty + (stage + STAGES) % STAGES * 8);
}

/* STEPS times 16 values of 64 rows and all centroids of a stage. */
template <int STEPS>
__device__ __forceinline__ void
multiply_slice(float (&sum)[128], unsigned int base, int half, int points, int stage, bool add)
{
	uint64_t	b = matrix(base + stage * CENTROID_BYTES);
	uint64_t	y = matrix(base + STAGES * CENTROID_BYTES + points * POINT_BYTES + half * (POINT_BYTES / 2));

	multiply_fence();
#pragma unroll
	for (int i = 0; i < STEPS; i++)
		multiply(sum, y + 2 * i, b + 2 * i, i > 0 || add);
	multiply_commit();
}

/* The products of a warpgroup's rows and a tile of columns.  STEPS: of 16 values, in the last slice. */
template <int STEPS, bool STAY>
__device__ __forceinline__ void
multiply_tile(const GkGemmArgs &p, float (&sum)[128], unsigned int base, int half, int stay, int &stage, unsigned int &parity)
{
	bool		leader = threadIdx.x % WARPGROUP == 0;

	touch(sum);
	for (int slice = 0; slice + 1 < p.slices; slice++)
	{
		barrier_wait(base + FULL_AT + stage * 8, parity);
		multiply_slice<4>(sum, base, half, STAY ? (stay + slice) % STAGES : stage, stage, slice > 0);
		multiply_wait<1>();
		if (leader && slice > 0)
			release(base + EMPTY_AT, stage - 1);
		next_stage(stage, parity);
	}
	barrier_wait(base + FULL_AT + stage * 8, parity);
	multiply_slice<STEPS>(sum, base, half, STAY ? (stay + p.slices - 1) % STAGES : stage, stage, p.slices > 1);
	multiply_wait<1>();
	if (leader && p.slices > 1)
		release(base + EMPTY_AT, stage - 1);
	multiply_wait<0>();
	touch(sum);
	if (leader)
		release(base + EMPTY_AT, stage);
	next_stage(stage, parity);
}

/* The products as they are. */
__device__ __forceinline__ void
store_sums(const GkGemmArgs &p, const float (&sum)[128], int tile, int row0, int rows)
{
#pragma unroll
	for (int i = 0; i < 128; i++)
	{
		int			row = row0 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
		int			at = tile * GK_GEMM_COLUMNS + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;

		if (row < rows)
			p.dump[(int64_t) row * p.tiles * GK_GEMM_COLUMNS + at] = sum[i];
	}
}

/* What a warpgroup does: half of each of the block's tiles. */
template <GkGemmUse USE, int STEPS, bool STAY>
__device__ __forceinline__ void
use_products(const GkGemmArgs &p, const char *shared, unsigned int base, int half, int rows, int row_tiles)
{
	float		sum[128];
	float		magic = p.state->magic;
	int			first_tile = (p.first + p.from) / GK_GEMM_ROWS;
	int			stage = 0;
	int			stay = 0;
	int			slot = 0;
	unsigned int parity = 0;
	unsigned int stay_parity = 0;

	for (int m = blockIdx.x; m < row_tiles; m += gridDim.x)
	{
		int			row0 = m * GK_GEMM_ROWS + half * 64 + threadIdx.x % WARPGROUP / 32 * 16;
		int			count = needs(p, first_tile + m);
		int			limit[2];
		Smallest	smallest;

		smallest.reset();
		if (USE == GK_GEMM_CANDIDATES)
#pragma unroll
			for (int r = 0; r < 2; r++)
			{
				int			row = row0 + threadIdx.x % 32 / 4 + r * 8;

				limit[r] = row < rows ? p.limit[p.from + row] : INT_MIN;
			}
		if (STAY)
		{
			int			at = stay;

			for (int slice = 0; slice < p.slices; slice++)
			{
				barrier_wait(base + STAY_FULL_AT + at * 8, stay_parity);
				next_stage(at, stay_parity);
			}
		}
		for (int i = 0; i < count; i++)
		{
			int			tile = need(p, first_tile + m, i);
			const int2 *keys = (const int2 *) (shared + KEYS_AT + slot * KEY_BYTES);

			slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
			multiply_tile<STEPS, STAY>(p, sum, base, half, stay, stage, parity);
			if (STAY && i + 1 == count)
				for (int slice = 0; slice < p.slices; slice++)
				{
					if (threadIdx.x % WARPGROUP == 0)
						release(base + STAY_EMPTY_AT, stay);
					stay = (stay + 1) % STAGES;
				}
			if (USE == GK_GEMM_LABELS)
				smallest.take(sum, keys, magic, tile, p.k - tile * GK_GEMM_COLUMNS);
			else if (USE == GK_GEMM_CANDIDATES)
				store_candidates(p, sum, keys, magic, tile, limit, row0);
			else
				store_sums(p, sum, tile, row0, rows);
		}
		if (USE == GK_GEMM_LABELS)
			store_best(p, smallest, row0, rows);
	}
}

template <GkGemmUse USE, int STEPS, bool STAY>
__global__ void __launch_bounds__(THREADS, 1)
gemm_kernel(const __grid_constant__ CUtensorMap points, const __grid_constant__ CUtensorMap centroids,
			const __grid_constant__ GkGemmArgs p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	extern __shared__ char raw[];
	unsigned int base = (shared_address(raw) + 1023) & ~1023u;
	int			group = threadIdx.x / WARPGROUP;
	int			rows = p.rows;
	int			row_tiles;

	if (p.count != NULL)
		rows = min(rows, *p.count - p.from);
	row_tiles = rows > 0 ? (rows + GK_GEMM_ROWS - 1) / GK_GEMM_ROWS : 0;
	if (threadIdx.x == 0)
	{
		for (int i = 0; i < STAGES; i++)
		{
			barrier_init(base + FULL_AT + i * 8, 1);
			barrier_init(base + EMPTY_AT + i * 8, 2);
			barrier_init(base + STAY_FULL_AT + i * 8, 1);
			barrier_init(base + STAY_EMPTY_AT + i * 8, 2);
		}
		asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
		asm volatile("fence.proxy.async;" : : : "memory");
	}
	__syncthreads();
	if (group == 0)
	{
		set_registers<40, false>();
		if (threadIdx.x == 0)
			feed<STAY>(p, &points, &centroids, base, row_tiles);
	}
	else
	{
		set_registers<232, true>();
		use_products<USE, STEPS, STAY>(p, raw + (base - shared_address(raw)), base, group - 1, rows, row_tiles);
	}
#endif
}

/* ---- launchers ---- */

typedef CUresult (*EncodeTiled) (CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
								 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
								 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, without linking to the driver. */
static EncodeTiled
encode_tiled(void)
{
	static EncodeTiled encode;
	void	   *found = NULL;
	cudaDriverEntryPointQueryResult how;

	if (encode == NULL &&
		cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &how) == cudaSuccess)
		encode = (EncodeTiled) found;
	return encode;
}

bool
gk_gpu_gemm_supported(const GkSession *s)
{
	return s->gpu->major == 9 && s->gpu->minor == 0 && s->gpu->shared_optin >= SHARED && encode_tiled() != NULL;
}

/* A matrix of float16, brought `box` rows at a time; what lies outside is zero. */
static bool
make_map(CUtensorMap *map, const __half *at, int64_t rows, int width, int box)
{
	cuuint64_t	size[2] = {(cuuint64_t) width, (cuuint64_t) rows};
	cuuint64_t	pitch[1] = {(cuuint64_t) width * sizeof(__half)};
	cuuint32_t	boxes[2] = {GK_GEMM_DEPTH, (cuuint32_t) box};
	cuuint32_t	each[2] = {1, 1};

	return encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *) at, size, pitch, boxes, each,
						  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
						  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <bool STAY>
static const void *
kernel_for(GkGemmUse use, int steps)
{
	if (use == GK_GEMM_CANDIDATES)
		return (const void *) gemm_kernel<GK_GEMM_CANDIDATES, 4, STAY>;
	if (use == GK_GEMM_DUMP)
		return (const void *) gemm_kernel<GK_GEMM_DUMP, 4, STAY>;
	return steps == 1 ? (const void *) gemm_kernel<GK_GEMM_LABELS, 1, STAY> :
		steps == 2 ? (const void *) gemm_kernel<GK_GEMM_LABELS, 2, STAY> :
		steps == 3 ? (const void *) gemm_kernel<GK_GEMM_LABELS, 3, STAY> :
		(const void *) gemm_kernel<GK_GEMM_LABELS, 4, STAY>;
}

GkStatus
gk_gpu_gemm_multiply(GkSession *s, GkGemmUse use, const __half *points, int64_t points_rows, const __half *centroids,
					 int k, int width, const GkGemmArgs *a, GkError *err)
{
	int			last = (width - 1) % GK_GEMM_DEPTH + 1;
	int			slices = (width + GK_GEMM_DEPTH - 1) / GK_GEMM_DEPTH;
	const void *kernel = slices <= STAGES ? kernel_for<true>(use, (last + 15) / 16) : kernel_for<false>(use, (last + 15) / 16);
	int64_t		blocks = gk_min((a->rows + GK_GEMM_ROWS - 1) / GK_GEMM_ROWS, s->gpu->sms);
	CUtensorMap points_map;
	CUtensorMap centroids_map;
	GkGemmArgs	args = *a;
	void	   *all[] = {&points_map, &centroids_map, &args};

	args.slices = slices;
	args.tiles = gk_gemm_tiles(k);
	args.k = k;
	if (!make_map(&points_map, points, points_rows, width, GK_GEMM_ROWS) ||
		!make_map(&centroids_map, centroids, k, width, GK_GEMM_COLUMNS))
		return gk_gpu_error(err, GK_ERR_INTERNAL, "the GPU's driver refuses a tensor of width %d", width);
	GK_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) blocks), dim3(THREADS), all, SHARED, s->gpu->stream));
	return GK_OK;
}
