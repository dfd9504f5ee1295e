/*
 * gk_gpu_gemm_rows.cuh - rounded rows and centroids of listed pairs: what is asked of whole rows beside the products.
 */
#ifndef GK_GPU_GEMM_ROWS_CUH
#define GK_GPU_GEMM_ROWS_CUH

#include "gpu/gk_gpu_gemm_hopper.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define LANES		8			/* that take a row */
#define GROUPS		(32 / LANES)	/* of lanes, in a warp */
#define SAMPLE_WORK	(1 << 20)	/* rows and columns of a sample ... */
#define MIN_SAMPLE	64			/* ... but of this many rows at least, and at most */
#define MAX_SAMPLE	512

/* Rows of a sample, each of which is compared with k columns. */
static inline int
sample_rows(int k)
{
	int			rows = SAMPLE_WORK / k;

	return rows < MIN_SAMPLE ? MIN_SAMPLE : rows < MAX_SAMPLE ? rows : MAX_SAMPLE;
}

typedef struct RowArgs
{
	const __half *y;
	int64_t		places;
	const __half *b;
	int			width;
	int			k;
	GkGemmOrder order;
	const int  *column;			/* of a centroid */
	GkLabels	last;
	/* Of a slice. */
	int		   *limits;
	int		   *own;
	unsigned long long *decided;
	GkGemmPair *kept;
	int			kept_room;
	int		   *in_crowd;
	int		   *crowd;
} RowArgs;

static inline RowArgs
row_args(const GkSession *s, const GkGemm *g, int k)
{
	RowArgs		a = {};

	a.y = g->y;
	a.places = g->order.places;
	a.b = g->b;
	a.width = g->width;
	a.k = k;
	a.order = g->order;
	a.column = g->column;
	a.last = (GkLabels) {s->delta_labels, k <= GK_NARROW_K};
	a.limits = g->limits;
	a.own = g->own;
	a.decided = g->decided;
	a.kept = g->kept;
	a.kept_room = g->kept_room;
	a.in_crowd = g->in_crowd;
	a.crowd = g->crowd;
	return a;
}

/* The column of a place's last centroid, -1: there is none; and where its copy for the place's pivot is. */
struct Last
{
	int			pivot;
	int			label;
	int			column;
	int64_t		at;

	__device__ __forceinline__
	Last(const RowArgs &a, int64_t place)
	{
		int			row = a.order.row[place];

		label = row >= 0 ? gk_label_of(a.last, row) : -1;
		pivot = a.order.pivot[place / GK_GEMM_ROWS];
		column = label >= 0 && label < a.k ? a.column[label] : -1;
		at = (int64_t) a.order.copy[pivot] * a.k + max(column, 0);
	}
};

/* The units in a column's key but for its product; beyond +-GK_GEMM_FAR it has no more than that. */
static __device__ __forceinline__ int
units_of(int key, int column, float magic)
{
	return (int) ((unsigned int) key - 64u * (unsigned int) __float_as_int(magic) - gk_gemm_number(column)) / 64;
}

/*
 * The sum of products of two rows of such matrices, values `from` to `to` (whole slices of them), by LANES lanes;
 * each has it.  Off by no more than T times their lengths: a lane adds an eighth of them one after the other.
 */
static __device__ __forceinline__ float
product_of(const __half *y, int64_t y_rows, int64_t y_at, const __half *b, int64_t b_rows, int64_t b_at, int width,
		   int from, int to)
{
	float		sum = 0.0f;

#pragma unroll 4
	for (int j = from + threadIdx.x % LANES * 8; j < to; j += LANES * 8)
	{
		uint4		u = __ldg((const uint4 *) (y + gk_gemm_at(y_rows, width, y_at, j)));
		uint4		v = __ldg((const uint4 *) (b + gk_gemm_at(b_rows, width, b_at, j)));
		const __half2 *p = (const __half2 *) &u;
		const __half2 *q = (const __half2 *) &v;

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			float2		of_p = __half22float2(p[i]);
			float2		of_q = __half22float2(q[i]);

			sum = __fmaf_rn(of_p.y, of_q.y, __fmaf_rn(of_p.x, of_q.x, sum));
		}
	}
#pragma unroll
	for (int o = 1; o < LANES; o <<= 1)
		sum += __shfl_xor_sync(0xffffffffu, sum, o);
	return sum;
}

/* 8 rows x 8 columns x 16 values, added to the sums: of row lane / 4, columns 2 (lane % 4) + {0, 1}. */
static __device__ __forceinline__ void
multiply_eight(float (&sum)[4], unsigned int y0, unsigned int y1, unsigned int b0, unsigned int b1)
{
#if __CUDA_ARCH__ >= 800
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %5}, {%7, %8}, {%0, %1, %2, %3};"
		: "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(y0), "r"(0), "r"(y1), "r"(b0), "r"(b1));
#endif
}

/* A row and a centroid of each lane of a warp. */
struct Pairs
{
	int64_t		place;			/* of the lane's row */
	int64_t		at;				/* of its centroid's copy */

	/*
	 * The products of the pairs of all lanes that want it: a lane's own.  16 pairs at a time are multiplied by the tensor
	 * core, 8 rows with 8 columns, and what is wanted lies on the diagonal; four lanes load a pair's rows.  order: a warp's
	 * own, shared.
	 */
	__device__ __forceinline__ float
	products(const __half *y, int64_t y_rows, const __half *b, int64_t b_rows, int width, bool wanted, unsigned char *order) const
	{
		constexpr int AT_ONCE = 2;	/* times 8 */
		int			lane = threadIdx.x % 32;
		unsigned int who = __ballot_sync(0xffffffffu, wanted);
		int			rank = __popc(who & ((1u << lane) - 1));
		int			count = __popc(who);
		float		mine = 0.0f;

		__syncwarp();
		if (wanted)
			order[rank] = (unsigned char) lane;
		__syncwarp();
		for (int first = 0; first < count; first += 8 * AT_ONCE)
		{
			int64_t		y_at[AT_ONCE];
			int64_t		b_at[AT_ONCE];
			float		sum[AT_ONCE][4] = {};

#pragma unroll
			for (int i = 0; i < AT_ONCE; i++)
			{
				int			of = order[min(first + i * 8 + lane / 4, count - 1)];

				y_at[i] = __shfl_sync(0xffffffffu, place, of);
				b_at[i] = __shfl_sync(0xffffffffu, at, of);
			}
			/* (Which of its values are the tensor core's first does not matter, if it is the same of both.) */
			for (int j = lane % 4 * 8; j - lane % 4 * 8 < width; j += 32)
			{
				uint4		u[AT_ONCE] = {};
				uint4		v[AT_ONCE] = {};

#pragma unroll
				for (int i = 0; i < AT_ONCE; i++)
					if (j < width)
					{
						u[i] = __ldg((const uint4 *) (y + gk_gemm_at(y_rows, width, y_at[i], j)));
						v[i] = __ldg((const uint4 *) (b + gk_gemm_at(b_rows, width, b_at[i], j)));
					}
#pragma unroll
				for (int i = 0; i < AT_ONCE; i++)
				{
					multiply_eight(sum[i], u[i].x, u[i].y, v[i].x, v[i].y);
					multiply_eight(sum[i], u[i].z, u[i].w, v[i].z, v[i].w);
				}
			}
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++)
			{
				int			of = rank % 8;
				float		even = __shfl_sync(0xffffffffu, sum[i][0], of * 4 + of / 2);
				float		odd = __shfl_sync(0xffffffffu, sum[i][1], of * 4 + of / 2);

				if (rank / 8 == first / 8 + i)
					mine = of % 2 ? odd : even;
			}
		}
		return mine;
	}

	/*
	 * The product of the lane's pair, values `from` to `to`: of the lanes that want it, one after the
	 * other by LANES lanes.  order: a warp's own, shared.
	 */
	__device__ __forceinline__ float
	product(const RowArgs &a, bool wanted, int from, int to, unsigned char *order) const
	{
		int			lane = threadIdx.x % 32;
		unsigned int who = __ballot_sync(0xffffffffu, wanted);
		int			rank = __popc(who & ((1u << lane) - 1));
		int			count = __popc(who);
		float		mine = 0.0f;

		__syncwarp();
		if (wanted)
			order[rank] = (unsigned char) lane;
		__syncwarp();
		for (int first = 0; first < count; first += GROUPS)
		{
			int			i = first + lane / LANES;
			int			of = order[min(i, count - 1)];
			float		sum = product_of(a.y, a.places, __shfl_sync(0xffffffffu, place, of), a.b, (int64_t) a.order.copies * a.k,
										 __shfl_sync(0xffffffffu, at, of), a.width, from, i < count ? to : from);

			sum = __shfl_sync(0xffffffffu, sum, rank % GROUPS * LANES);
			if (rank / GROUPS * GROUPS == first)
				mine = sum;
		}
		return mine;
	}
};

/* Store the pairs of the lanes that keep theirs; a row's last centroid is kept with the first of the others. */
__device__ __forceinline__ void
store_kept(const RowArgs &a, const GkGemmArgs &p, bool keep, GkGemmPair pair)
{
	int			lane = threadIdx.x % 32;
	unsigned int before = (1u << lane) - 1;
	bool		with_own = keep && !(atomicOr(a.in_crowd + pair.at, GK_GEMM_KEPT) & GK_GEMM_KEPT) && a.own[pair.at] >= 0;
	unsigned int who = __ballot_sync(0xffffffffu, keep);
	unsigned int whose = __ballot_sync(0xffffffffu, with_own);
	int			to = 0;

	if (who == 0)
		return;
	if (lane == 0)
		to = atomicAdd(&p.state->kept, __popc(who) + __popc(whose));
	to = __shfl_sync(0xffffffffu, to, 0) + __popc(who & before) + __popc(whose & before);
	if (!keep)
		return;
	if (to + with_own < a.kept_room)
	{
		a.kept[to] = pair;
		if (with_own)
			a.kept[to + 1] = {pair.at, a.own[pair.at]};
		return;
	}
	join_crowd(a.in_crowd, a.crowd, p.state, pair.at);
	if (to < a.kept_room)
		a.kept[to] = {-1, 0};
}

#endif							/* GK_GPU_GEMM_ROWS_CUH */
