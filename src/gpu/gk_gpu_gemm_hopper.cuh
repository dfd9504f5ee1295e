/*
 * gk_gpu_gemm_hopper.cuh - what the products on Hopper's tensor cores share: the instructions, and what is
 * made of a tile's sums.  gk_gpu_gemm.h says what for and why it is enough.
 *
 * A thread of a warpgroup has two rows of 64, lane / 4 and 8 more of its warp's 16, and of these the columns
 * 8 j + 2 (lane % 4) + {0, 1}.  Scores are compared as integers: a sum in float32 plus 1.5 * 2^23 units is an
 * integer in the low bits, and one multiply-add makes a key of it, with the column's number in the last six
 * bits.
 */
#ifndef GK_GPU_GEMM_HOPPER_CUH
#define GK_GPU_GEMM_HOPPER_CUH

#include <cuda.h>
#include <limits.h>

#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"

#define WARPGROUP	128
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

/* After barrier_init(): the copy engine sees them. */
__device__ __forceinline__ void
barriers_ready(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
	asm volatile("fence.proxy.async;" : : : "memory");
}

/* Bring a tile's slice. */
__device__ __forceinline__ void
bring(unsigned int to, const GkGemmMaps *maps, unsigned int barrier, int slice, int slices, int row)
{
	bool		last = slice + 1 == slices;

	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
				 : : "r"(to), "l"(last ? &maps->tail : &maps->full), "r"(barrier), "r"(0), "r"(row), "r"(last ? 0 : slice) : "memory");
}

__device__ __forceinline__ void
bring_bytes(unsigned int to, const void *from, int bytes, unsigned int barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
				 : : "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

/* Before a barrier is told to expect something: those who wait for it see it. */
__device__ __forceinline__ void
store_shared(unsigned int to, int value)
{
	asm volatile("st.shared.s32 [%0], %1;" : : "r"(to), "r"(value) : "memory");
}

/* How wgmma finds rows of 16, 32 or 64 values, swizzled over as many: how far eight rows are apart, and which swizzle. */
template <int DEPTH = GK_GEMM_DEPTH>
__device__ __forceinline__ uint64_t
matrix(unsigned int address)
{
	return (uint64_t) ((address & 0x3ffff) >> 4) | (uint64_t) 1 << 16 | (uint64_t) DEPTH << 32 |
		(uint64_t) (DEPTH == 16 ? 3 : DEPTH == 32 ? 2 : 1) << 62;
}

#define SUMS4(i)	"+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUMS16(i)	SUMS4(i), SUMS4(i + 4), SUMS4(i + 8), SUMS4(i + 12)
#define SUMS32(i)	SUMS16(i), SUMS16(i + 16)
#define SUMS64(i)	SUMS32(i), SUMS32(i + 32)
#define SUMS128(i)	SUMS64(i), SUMS64(i + 64)

/* The same as the instruction names them; operands that follow: points, centroids, add. */
#define NAMES16		"%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES32		NAMES16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES64		NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
	"%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES128	NAMES64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
	"%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
	"%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
	"%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define MULTIPLY(columns, names, sums, y, b, more) \
	asm volatile("{\n" \
				 ".reg .pred add;\n" \
				 "setp.ne.b32 add, " more ", 0;\n" \
				 "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.f16.f16 {" names "}, " y ", " b ", add, 1, 1, 0, 0;\n" \
				 "}" \
				 : sums : "l"(points), "l"(centroids), "r"(add))
#else
#define MULTIPLY(columns, names, sums, y, b, more)
#endif

/* 64 points x 32 centroids x 16 values: sum = points * centroids, + sum if add. */
__device__ __forceinline__ void
multiply(float (&sum)[16], uint64_t points, uint64_t centroids, int add)
{
	MULTIPLY("32", NAMES16, SUMS16(0), "%16", "%17", "%18");
}

__device__ __forceinline__ void
multiply(float (&sum)[32], uint64_t points, uint64_t centroids, int add)
{
	MULTIPLY("64", NAMES32, SUMS32(0), "%32", "%33", "%34");
}

__device__ __forceinline__ void
multiply(float (&sum)[64], uint64_t points, uint64_t centroids, int add)
{
	MULTIPLY("128", NAMES64, SUMS64(0), "%64", "%65", "%66");
}

__device__ __forceinline__ void
multiply(float (&sum)[128], uint64_t points, uint64_t centroids, int add)
{
	MULTIPLY("256", NAMES128, SUMS128(0), "%128", "%129", "%130");
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
template <int N>
__device__ __forceinline__ void
touch(float (&sum)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
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

/* Pass on to the next of N stages. */
template <int N>
__device__ __forceinline__ void
next_stage(int &stage, unsigned int &parity)
{
	if (++stage == N)
	{
		stage = 0;
		parity ^= 1;
	}
}

/* ---- what is made of the scores ---- */

/* The column of a key of lane `quad` of four, in its tile of COLUMNS; the key has it within 256. */
template <int COLUMNS>
__device__ __forceinline__ int
column(int key, int quad)
{
	return ((key & 62) * 4 + quad * 2 + (key & 1)) & (COLUMNS - 1);
}

/* The two smallest keys of a thread's two rows. */
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

	/*
	 * Of the sums of a tile of 2 N columns, of these parts of it; fewer columns than a part has are a part.  Keys of a
	 * part at a time: first the smallest, then the smallest of how far the others are above it.  That takes two
	 * instructions a key less than to keep the two smallest all along; the keys differ, by their columns.
	 */
	template <int N>
	__device__ __forceinline__ void
	take(const float (&sum)[N], const int2 *keys, float magic, int of, int parts)
	{
		constexpr int EIGHTS = (2 * N < GK_GEMM_PART ? 2 * N : GK_GEMM_PART) / 8;
		int			before[2] = {first[0], first[1]};

#pragma unroll
		for (int j0 = 0; j0 < N / 4; j0 += EIGHTS)
		{
			int			key[2][2 * EIGHTS];

			if (!(parts >> j0 / EIGHTS & 1))
				continue;
#pragma unroll
			for (int j = 0; j < EIGHTS; j++)
			{
				int2		h = keys[(j0 + j) * 4 + threadIdx.x % 4];

#pragma unroll
				for (int r = 0; r < 2; r++)
				{
					key[r][2 * j] = __float_as_int(sum[4 * (j0 + j) + 2 * r] + magic) * -64 + h.x;
					key[r][2 * j + 1] = __float_as_int(sum[4 * (j0 + j) + 2 * r + 1] + magic) * -64 + h.y;
				}
			}
#pragma unroll
			for (int r = 0; r < 2; r++)
				offer(r, key[r]);
		}
#pragma unroll
		for (int r = 0; r < 2; r++)
			if (first[r] != before[r])
				tile[r] = of;
	}

	template <int KEYS>
	__device__ __forceinline__ void
	offer(int r, const int (&key)[KEYS])
	{
		int			low = min(key[0], key[1]);
		unsigned int above[2] = {UINT_MAX, UINT_MAX};

#pragma unroll
		for (int i = 2; i < KEYS; i += 2)
			low = __vimin3_s32(low, key[i], key[i + 1]);
		/* The smallest itself is farthest: -1, without a sign. */
#pragma unroll
		for (int i = 0; i < KEYS; i++)
			above[i % 2] = __viaddmin_u32((unsigned int) key[i], ~(unsigned int) low, above[i % 2]);
		second[r] = __vimin3_s32(second[r], max(first[r], low), (int) (min(above[0], above[1]) + (unsigned int) low + 1));
		first[r] = min(first[r], low);
	}
};

/* What all rows' limits have in common. */
struct Common
{
	float		unit;
	float		per_unit;		/* 1 / unit, exactly */
	float		e;				/* max |v_j| */
	float		lost;			/* by sums, times |y'| */
	float		g;				/* of two canonical distances */
	float		tiny;

	__device__ __forceinline__
	Common(const GkGemmArgs &p)
	{
		const GkGemmState *s = p.state;

		unit = s->unit;
		per_unit = 1.0f / unit;
		e = s->rest;
		lost = (p.d + 16) * 0x1.01p-24f * s->length;
		g = (p.d + 3) * 0x1.01p-24f;
		tiny = p.tiny;
	}
};

/*
 * `best` and `slack` units as a key.  What is no number is not below; and with a best one so low others may be
 * lower than their keys.
 */
__device__ __forceinline__ int
limit_key(int best, float slack)
{
	int			limit = best + (int) fminf(slack, GK_GEMM_MAX_SLACK);

	return best > -GK_GEMM_MAX_LIMIT && slack < GK_GEMM_MAX_SLACK && limit < GK_GEMM_MAX_LIMIT ? limit * 64 + 63 : GK_GEMM_PAD - 1;
}

/* The square root, within 2^-22 of it. */
__device__ __forceinline__ float
near_sqrt(float v)
{
	float		root;

	asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v));
	return root;
}

/*
 * The largest key that a candidate for the nearest centroid can have if the smallest score is `best` units, by
 * distances.  With the names of gk_gpu_gemm.h, q = sqrt(w + 2 s + 2 a) and out(R) + e <= q + z, the limit is s + 2 a +
 * q z + z^2 / 2: nothing cancels but in q, so float32 with an allowance for its roundings will do.
 */
__device__ __forceinline__ int
largest_by_distance(const Common &c, float w, const GkGemmBound &of, int best)
{
	float		s2 = 2.0f * c.unit * (float) best;
	float		a2 = 2.0f * (c.unit + fabsf(w) * 0x1p-24f + c.lost * of.length);
	float		q = near_sqrt(fmaxf(w + s2 + a2 + (fabsf(w) + fabsf(s2)) * 0x1p-22f, 0.0f));
	float		e = of.rest + c.e;
	float		z = 2.0f * e + 1.01f * c.g * (q + e) + c.tiny;
	float		slack = (a2 + q * z + 0.5f * z * z) * c.per_unit * (1.0f + 0x1p-18f) + 2.0f;

	return limit_key(best, slack);
}

/* r_i^2 at most, by scores: `best` units are s_i - z, z of it. */
__device__ __forceinline__ float
largest_square(const Common &c, float w, int best, float z)
{
	float		f = c.unit * (float) best + 2.0f * z + 2.0f * c.unit;

	return fmaxf(w + 2.0f * f + (fabsf(w) + fabsf(f)) * 0x1p-21f, 0.0f);
}

/* The same by scores, with z of the smallest: 7 and 8 there. */
__device__ __forceinline__ int
largest_by_score(const Common &c, float w, int best, float z)
{
	float		square = largest_square(c, w, best, z);
	float		slack = (2.0f * z + 2.0f * c.unit + 1.01f * (c.g * square + 0.5f * c.tiny * c.tiny)) * c.per_unit;

	return limit_key(best, slack * (1.0f + 0x1p-18f) + 2.0f);
}

/*
 * The largest key that a centroid can have whose canonical distance is below d2, in the common scale, by distances:
 * 5 of gk_gpu_gemm.h, with out^2 = (d2 + t) / (1 - g) since d2 is canonical itself.
 */
__device__ __forceinline__ int
largest_below(const Common &c, float w, const GkGemmBound &of, double d2)
{
	double		out = sqrt((d2 + 0.5 * c.tiny * c.tiny) / (1.0 - c.g));
	double		away = (out + of.rest + c.e) * (1.0 + 0x1p-40);
	double		a = c.unit + fabs((double) w) * 0x1p-24 + c.lost * of.length;
	double		units = (0.5 * (away * away - w) + a) * c.per_unit + 2.0;

	if (units < -GK_GEMM_MAX_LIMIT)
		return GK_GEMM_NO_LIMIT;
	return units < GK_GEMM_MAX_LIMIT ? (int) units * 64 + 63 : GK_GEMM_PAD - 1;
}

/*
 * The row that a lane judges after all tiles of columns.  A warp has 16 rows of a tile, and two lanes of each four that
 * judge them: the first two, or the others, so that those of two tiles can be judged at once.
 */
struct Judged
{
	int			row;			/* of the slice; -1: none */
	float		w;
	GkGemmBound of;				/* not sorted */
	int			to;				/* the row's number, -1: it is padding; sorted */
	const float *columns_z;		/* of its pivot; sorted */
	int			first;			/* keys */
	int			second;
	float		z;				/* of the first; sorted */
	int			label;			/* of the first */

	/* Which of a warp's 16 rows. */
	static __device__ __forceinline__ int
	mine(void)
	{
		return gk_gemm_row_of(threadIdx.x % 32);
	}

	/* Do the lanes `half` have this one? */
	static __device__ __forceinline__ bool
	in(int half)
	{
		return threadIdx.x % 4 / 2 == half;
	}

	/* What the lanes `half` of each four have found together, in tiles of COLUMNS. */
	template <int COLUMNS>
	__device__ __forceinline__ void
	find(const GkGemmArgs &p, const Smallest &s, bool sorted, int half)
	{
		bool		other = threadIdx.x % 2;
		int			lane = threadIdx.x % 4;
		/* An even lane gives its second row to the next lane for that one's first. */
		int			own_first = other ? s.first[1] : s.first[0];
		int			own_second = other ? s.second[1] : s.second[0];
		int			own_column = (other ? s.tile[1] : s.tile[0]) * COLUMNS + column<COLUMNS>(own_first, lane);
		int			first_there = other ? s.first[0] : s.first[1];
		int			second_there = other ? s.second[0] : s.second[1];
		int			column_there = (other ? s.tile[0] : s.tile[1]) * COLUMNS + column<COLUMNS>(first_there, lane);

#pragma unroll
		for (int o = 1; o < 4; o <<= 1)
		{
			first_there = __shfl_xor_sync(0xffffffffu, o == 1 ? first_there : own_first, o);
			second_there = __shfl_xor_sync(0xffffffffu, o == 1 ? second_there : own_second, o);
			column_there = __shfl_xor_sync(0xffffffffu, o == 1 ? column_there : own_column, o);
			own_second = __vimin3_s32(own_second, second_there, max(own_first, first_there));
			/* (Where they are equal it does not matter: the row is not decided.) */
			if (first_there < own_first)
				own_column = column_there;
			own_first = min(own_first, first_there);
		}
		if (in(half))
		{
			first = own_first;
			second = own_second;
			/* (A row that has no key is none, or it is undecided.) */
			label = own_first < GK_GEMM_PAD ? own_column : 0;
			if (sorted)
			{
				z = __ldg(columns_z + label);
				if (p.centroid != NULL)
					label = __ldg(p.centroid + label);
			}
		}
	}

	/* Store its label, whether it is undecided, and then its limit; all lanes of the warp. */
	__device__ __forceinline__ void
	store(const GkGemmArgs &p, bool sorted, const Common &c)
	{
		int			at = row < 0 ? -1 : sorted ? to : p.first + row;
		int			limit = sorted ? largest_by_score(c, w, first >> 6, z) : largest_by_distance(c, w, of, first >> 6);
		bool		undecided = at >= 0 && second <= limit;
		unsigned int who = __ballot_sync(0xffffffffu, undecided);

		/* Of each half's lanes, one has the first of the 16 rows. */
		if (row >= 0 && mine() == 0)
			p.undecided[row / GK_GEMM_WORD] = who >> threadIdx.x % 4 & 0x33333333;
		if (undecided)
			p.limits[row] = limit;
		row = -1;
		if (at < 0)
			return;
		gk_store_label(p.labels, at, label);
	}
};

/* What a thread asks of its two rows' candidates. */
struct Wanted
{
	int			limit[2];		/* their largest key */
	int			own[2];			/* the column that is none of them; -1: all may be */

	__device__ __forceinline__ void
	load(const GkGemmArgs &p, int row0, int rows)
	{
#pragma unroll
		for (int r = 0; r < 2; r++)
		{
			int			row = row0 + threadIdx.x % 32 / 4 + r * 8;

			limit[r] = row < rows ? p.limit[p.from + row] : GK_GEMM_NO_LIMIT;
			own[r] = row < rows && p.own != NULL ? p.own[p.from + row] : -1;
		}
	}
};

/* A warp's room in the list of pairs.  It asks for GK_GEMM_PAIRS at a time: all warps ask at the same address. */
struct PairRoom
{
	int			at;
	int			end;

	/* What is left has no pairs. */
	__device__ __forceinline__ void
	fill(const GkGemmArgs &p)
	{
		for (int i = at + threadIdx.x % 32; i < end; i += 32)
			p.pair[i] = (GkGemmPair) {-1, 0};
	}

	/* Make room for some pairs. */
	__device__ __forceinline__ void
	want(const GkGemmArgs &p, int pairs)
	{
		int			size = max(pairs, GK_GEMM_PAIRS);

		if (at + pairs <= end)
			return;
		fill(p);
		/* Once there is none it does not add any more: all candidates of all rows could be more than an int has. */
		if (threadIdx.x % 32 == 0)
			at = *(volatile int *) &p.state->pairs < p.pair_room ? atomicAdd(&p.state->pairs, size) : p.pair_room;
		at = min(__shfl_sync(0xffffffffu, at, 0), p.pair_room);
		end = min(at + size, p.pair_room);
	}
};

/* A row whose candidates have no room will be compared with all centroids. */
__device__ __forceinline__ void
join_crowd(int *in_crowd, int *crowd, GkGemmState *state, int row)
{
	if (!(atomicOr(in_crowd + row, GK_GEMM_CROWDED) & GK_GEMM_CROWDED))
		crowd[atomicAdd(&state->crowded, 1)] = row;
}

/* Pairs of rows and the columns whose key is not above the row's limit. */
template <int N>
__device__ __forceinline__ void
store_candidates(const GkGemmArgs &p, const float (&sum)[N], const int2 *keys, float magic, int tile, const Wanted &wanted,
				 int row0, PairRoom &room)
{
	int			lane = threadIdx.x % 32;
	uint64_t	near[2] = {0, 0};
	int			mine;
	int			upto;
	int			all;
	int			at;

#pragma unroll
	for (int j = 0; j < N / 4; j++)
	{
		int2		h = keys[j * 4 + lane % 4];

#pragma unroll
		for (int r = 0; r < 2; r++)
		{
			if (__float_as_int(sum[4 * j + 2 * r] + magic) * -64 + h.x <= wanted.limit[r])
				near[r] |= (uint64_t) 1 << 2 * j;
			if (__float_as_int(sum[4 * j + 2 * r + 1] + magic) * -64 + h.y <= wanted.limit[r])
				near[r] |= (uint64_t) 2 << 2 * j;
		}
	}
	/* Rows that are not there have no candidates, whatever their sums are. */
#pragma unroll
	for (int r = 0; r < 2; r++)
	{
		int			own = wanted.own[r] - tile * N * 2;

		if (own >= 0 && own < N * 2 && own % 8 / 2 == lane % 4)
			near[r] &= ~((uint64_t) 1 << (own / 8 * 2 + own % 2));
		if (wanted.limit[r] == GK_GEMM_NO_LIMIT)
			near[r] = 0;
	}
	mine = __popcll(near[0]) + __popcll(near[1]);
	if (!__any_sync(0xffffffffu, mine))
		return;
	upto = mine;
#pragma unroll
	for (int o = 1; o < 32; o <<= 1)
	{
		int			before = __shfl_up_sync(0xffffffffu, upto, o);

		if (lane >= o)
			upto += before;
	}
	all = __shfl_sync(0xffffffffu, upto, 31);
	room.want(p, all);
	at = room.at + upto - mine;
	room.at = min(room.at + all, room.end);
#pragma unroll
	for (int r = 0; r < 2; r++)
	{
		int			row = p.from + row0 + lane / 4 + r * 8;

		if (p.in_crowd != NULL && near[r] != 0 && at + __popcll(near[r]) > room.end)
			join_crowd(p.in_crowd, p.crowd, p.state, row);
		for (; near[r] != 0; near[r] &= near[r] - 1, at++)
		{
			int			number = __ffsll((long long) near[r]) - 1;

			if (at < room.end)
				p.pair[at] = (GkGemmPair) {row, tile * N * 2 + number / 2 * 8 + lane % 4 * 2 + number % 2};
		}
	}
}

/* The products as they are. */
template <int N>
__device__ __forceinline__ void
store_sums(const GkGemmArgs &p, const float (&sum)[N], int tile, int row0, int rows)
{
#pragma unroll
	for (int i = 0; i < N; i++)
	{
		int			row = row0 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
		int			at = tile * N * 2 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;

		if (row < rows)
			p.dump[(int64_t) row * p.key_pitch + at] = sum[i];
	}
}

/* ---- tiles ---- */

/*
 * Rows of this product: all, or as many as there are on the device.  For one thread of a block to ask: the chain
 * may end meanwhile, and all have to know the same.
 */
__device__ __forceinline__ int
rows_of(const GkGemmArgs &p)
{
	if (p.done != NULL && *p.done)
		return 0;
	return p.count != NULL ? max(min(p.rows, *p.count - p.from), 0) : p.rows;
}

/* The tile in which rows of one pivot lie. */
__device__ __forceinline__ int
pivot_tile(const GkGemmArgs &p, int row)
{
	return (p.first + p.from + row) / GK_GEMM_ROWS;
}

/* What a tile of rows needs.  pivots: may they be sorted? */
__device__ __forceinline__ GkGemmNeeds
needs(const GkGemmArgs &p, bool pivots, int tile)
{
	int4		v;

	if (!pivots || p.needs == NULL)
		return {p.tiles, 0, 0, 0};
	v = __ldg((const int4 *) (p.needs + tile));
	return {v.x, v.y, v.z, 0};
}

/* The parts of a tile of COLUMNS that have a centroid. */
template <int COLUMNS>
__device__ __forceinline__ int
parts_of(const GkGemmArgs &p, int tile)
{
	int			parts = min(COLUMNS / GK_GEMM_PART, (p.k - tile * COLUMNS + GK_GEMM_PART - 1) / GK_GEMM_PART);

	return (1 << parts) - 1;
}

/* The i-th tile of columns that a tile of rows needs, and which parts of it: as in GkGemmArgs. */
template <int COLUMNS>
__device__ __forceinline__ int
need(const GkGemmArgs &p, bool pivots, int tile, int i)
{
	return pivots && p.needs != NULL ? __ldg(p.need + (int64_t) tile * p.tiles + i) : i << GK_GEMM_PARTS | parts_of<COLUMNS>(p, i);
}

#endif							/* GK_GPU_GEMM_HOPPER_CUH */
