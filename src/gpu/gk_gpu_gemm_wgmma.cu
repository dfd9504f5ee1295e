/*
 * gk_gpu_gemm_wgmma.cu - the product of rounded points and centroids on Hopper's tensor cores: what it is
 * for and why it is enough stands in gk_gpu_gemm.h.
 *
 * A block has 128 points x 256 centroids in the registers of two warpgroups; 64 values of each row at a time
 * pass by in shared memory, four stages deep, brought by the copy engine (TMA, 128-byte swizzle) that one
 * thread of a third warpgroup feeds.  The blocks stay for all tiles.  Every block reads the same centroids at
 * nearly the same time, so they come from the L2 cache.
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
#define BARRIERS_AT	(KEYS_AT + KEY_SLOTS * KEY_BYTES)
#define SHARED		(BARRIERS_AT + 2 * STAGES * 8 + 1024)	/* and room to align it to 1024 */

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
	take(const float (&sum)[128], const int2 *keys, float magic, int t)
	{
		int			before[2] = {first[0], first[1]};

#pragma unroll
		for (int j = 0; j < 32; j++)
		{
			int2		h = keys[j * 4 + threadIdx.x % 4];

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

/*
 * The largest score, in units, that a candidate for the nearest centroid can have if the smallest score is
 * `best` units: see gk_gpu_gemm.h, whose names these are.
 */
__device__ __forceinline__ int
largest_score(const GkGemmArgs &p, const GkGemmBound &of, int best)
{
	const GkGemmState *s = p.state;
	double		unit = s->unit;
	double		length = __uint_as_float(s->length);
	double		low = __uint_as_float(s->low);
	double		g = (p.d + 3) * 0x1p-24;
	double		e = (double) of.rest + (double) __uint_as_float(s->rest);
	/* The sums of the parts that come last, and of those that come first. */
	double		lost = (p.d + 16) * 0x1p-24 * ((double) of.length + of.low) * (length + low) +
		(p.parts - 1) * (p.d + 16) * 0x1p-24 * (of.length * low + of.low * length);
	double		a = unit + of.square * 0x1p-24 + of.low * low + lost;
	double		w = of.square;
	double		r = sqrt(fmax(w + 2.0 * best * unit + 2.0 * a, 0.0)) + e;
	double		t = sqrt((r * r * (1.0 + g) + p.tiny) / (1.0 - g)) + e;
	/* The last factor and summand cover the roundings here. */
	double		most = ((t * t - w) * 0.5 + a) / unit * (1.0 + 0x1p-40) + 1.0 + w / unit * 0x1p-48;

	return most < GK_GEMM_MAX_SLACK ? (int) ceil(most) : GK_GEMM_MAX_SLACK;
}

/* Labels of a warp's 16 rows from `row0` on, undecided rows into the list. */
__device__ __forceinline__ void
store_labels(const GkGemmArgs &p, const Smallest &s, int row0, int rows)
{
	int			lane = threadIdx.x % 32;
	int			quad = lane % 4;
	int			mine = 0;		/* of lane 0 and 1 of four: their row's */
	int			second = 0;
	int			label = 0;
	int			row = row0 + lane / 4 + quad * 8;
	int			limit = 0;
	bool		undecided = false;
	unsigned int who;

#pragma unroll
	for (int r = 0; r < 2; r++)
	{
		int			first = s.first[r];
		int			next = s.second[r];
		int			l = column(s.tile[r], first, quad);

#pragma unroll
		for (int o = 1; o < 4; o <<= 1)
		{
			int			other = __shfl_xor_sync(0xffffffffu, first, o);
			int			other_next = __shfl_xor_sync(0xffffffffu, next, o);
			int			other_l = __shfl_xor_sync(0xffffffffu, l, o);

			next = __vimin3_s32(next, other_next, max(first, other));
			if (other < first || (other == first && other_l < l))
			{
				first = other;
				l = other_l;
			}
		}
		if (quad == r)
		{
			mine = first;
			second = next;
			label = l;
		}
	}
	if (quad < 2 && row < rows)
	{
		limit = largest_score(p, p.bound[row], mine >> 6);
		undecided = second >> 6 <= limit;
		if (p.labels.narrow)
			((uint8_t *) p.labels.at)[row] = (uint8_t) label;
		else
			((int32_t *) p.labels.at)[row] = label;
	}
	who = __ballot_sync(0xffffffffu, undecided);
	if (who != 0)
	{
		int			at = 0;

		if (lane == 0)
			at = atomicAdd(&p.state->undecided, __popc(who));
		at = __shfl_sync(0xffffffffu, at, 0) + __popc(who & ((1u << lane) - 1));
		if (undecided)
		{
			p.list[at] = row;
			p.limit[at] = limit * 64 + 63;
		}
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

/* Bring the tiles' slices in the order in which they are multiplied. */
__device__ __forceinline__ void
feed(const GkGemmArgs &p, const CUtensorMap *points, const CUtensorMap *centroids, unsigned int base, int row_tiles)
{
	int			stage = 0;
	int			slot = 0;
	unsigned int parity = 1;

	for (int m = blockIdx.x; m < row_tiles; m += gridDim.x)
		for (int tile = 0; tile < p.tiles; tile++)
			for (int slice = 0; slice < p.slices; slice++)
			{
				unsigned int full = base + BARRIERS_AT + stage * 8;

				barrier_wait(full + STAGES * 8, parity);
				barrier_expect(full, POINT_BYTES + CENTROID_BYTES + (slice == 0 ? KEY_BYTES : 0));
				bring(base + stage * CENTROID_BYTES, centroids, full, slice * GK_GEMM_DEPTH, tile * GK_GEMM_COLUMNS);
				bring(base + STAGES * CENTROID_BYTES + stage * POINT_BYTES, points, full, slice * GK_GEMM_DEPTH,
					  p.first + m * GK_GEMM_ROWS);
				if (slice == 0)
				{
					bring_bytes(base + KEYS_AT + slot * KEY_BYTES, p.keys + tile * GK_GEMM_COLUMNS, KEY_BYTES, full);
					slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
				}
				next_stage(stage, parity);
			}
}

/* A warpgroup needs this stage no more; -1: the last one. */
__device__ __forceinline__ void
release(unsigned int base, int stage)
{
	barrier_arrive(base + BARRIERS_AT + (STAGES + (stage + STAGES) % STAGES) * 8);
}

/* STEPS times 16 values of a stage's 64 rows and all its centroids. */
template <int STEPS>
__device__ __forceinline__ void
multiply_slice(float (&sum)[128], unsigned int base, int half, int stage, bool add)
{
	uint64_t	b = matrix(base + stage * CENTROID_BYTES);
	uint64_t	y = matrix(base + STAGES * CENTROID_BYTES + stage * POINT_BYTES + half * (POINT_BYTES / 2));

	multiply_fence();
#pragma unroll
	for (int i = 0; i < STEPS; i++)
		multiply(sum, y + 2 * i, b + 2 * i, i > 0 || add);
	multiply_commit();
}

/* STEPS: of 16 values, in the last slice. */
template <GkGemmUse USE, int STEPS>
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
			barrier_init(base + BARRIERS_AT + i * 8, 1);
			barrier_init(base + BARRIERS_AT + (STAGES + i) * 8, 2);
		}
		asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
		asm volatile("fence.proxy.async;" : : : "memory");
	}
	__syncthreads();
	if (group == 0)
	{
		set_registers<40, false>();
		if (threadIdx.x == 0)
			feed(p, &points, &centroids, base, row_tiles);
	}
	else
	{
		float		sum[128];
		float		magic = p.state->magic;
		bool		leader = threadIdx.x % WARPGROUP == 0;
		int			warp_row = (group - 1) * 64 + threadIdx.x % WARPGROUP / 32 * 16;
		int			stage = 0;
		int			slot = 0;
		unsigned int parity = 0;

		set_registers<232, true>();
		for (int m = blockIdx.x; m < row_tiles; m += gridDim.x)
		{
			int			row0 = m * GK_GEMM_ROWS + warp_row;
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
			for (int tile = 0; tile < p.tiles; tile++)
			{
				const int2 *keys = (const int2 *) (raw + (base - shared_address(raw)) + KEYS_AT + slot * KEY_BYTES);

				slot = slot + 1 == KEY_SLOTS ? 0 : slot + 1;
				touch(sum);
				for (int slice = 0; slice + 1 < p.slices; slice++)
				{
					barrier_wait(base + BARRIERS_AT + stage * 8, parity);
					multiply_slice<4>(sum, base, group - 1, stage, slice > 0);
					multiply_wait<1>();
					if (leader && slice > 0)
						release(base, stage - 1);
					next_stage(stage, parity);
				}
				barrier_wait(base + BARRIERS_AT + stage * 8, parity);
				multiply_slice<STEPS>(sum, base, group - 1, stage, p.slices > 1);
				multiply_wait<1>();
				if (leader && p.slices > 1)
					release(base, stage - 1);
				multiply_wait<0>();
				touch(sum);
				if (leader)
					release(base, stage);
				next_stage(stage, parity);
				if (USE == GK_GEMM_LABELS)
					smallest.take(sum, keys, magic, tile);
				else if (USE == GK_GEMM_CANDIDATES)
					store_candidates(p, sum, keys, magic, tile, limit, row0);
				else
				{
#pragma unroll
					for (int i = 0; i < 128; i++)
					{
						int			row = row0 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;

						if (row < rows)
							p.dump[(int64_t) row * p.tiles * GK_GEMM_COLUMNS + tile * GK_GEMM_COLUMNS + i / 4 * 8 +
								   threadIdx.x % 4 * 2 + i % 2] = sum[i];
					}
				}
			}
			if (USE == GK_GEMM_LABELS)
				store_labels(p, smallest, row0, rows);
		}
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

static const void *
kernel_for(GkGemmUse use, int steps)
{
	if (use == GK_GEMM_CANDIDATES)
		return (const void *) gemm_kernel<GK_GEMM_CANDIDATES, 4>;
	if (use == GK_GEMM_DUMP)
		return (const void *) gemm_kernel<GK_GEMM_DUMP, 4>;
	return steps == 1 ? (const void *) gemm_kernel<GK_GEMM_LABELS, 1> : steps == 2 ? (const void *) gemm_kernel<GK_GEMM_LABELS, 2> :
		steps == 3 ? (const void *) gemm_kernel<GK_GEMM_LABELS, 3> : (const void *) gemm_kernel<GK_GEMM_LABELS, 4>;
}

GkStatus
gk_gpu_gemm_multiply(GkSession *s, GkGemmUse use, const __half *points, int64_t points_rows, const __half *centroids,
					 int k, int width, const GkGemmArgs *a, GkError *err)
{
	int			last = (width - 1) % GK_GEMM_DEPTH + 1;
	const void *kernel = kernel_for(use, (last + 15) / 16);
	int64_t		blocks = gk_min((a->rows + GK_GEMM_ROWS - 1) / GK_GEMM_ROWS, s->gpu->sms);
	CUtensorMap points_map;
	CUtensorMap centroids_map;
	GkGemmArgs	args = *a;
	void	   *all[] = {&points_map, &centroids_map, &args};

	args.slices = (width + GK_GEMM_DEPTH - 1) / GK_GEMM_DEPTH;
	args.tiles = gk_gemm_tiles(k);
	if (!make_map(&points_map, points, points_rows, width, GK_GEMM_ROWS) ||
		!make_map(&centroids_map, centroids, k, width, GK_GEMM_COLUMNS))
		return gk_gpu_error(err, GK_ERR_INTERNAL, "the GPU's driver refuses a tensor of width %d", width);
	GK_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) blocks), dim3(THREADS), all, SHARED, s->gpu->stream));
	return GK_OK;
}
