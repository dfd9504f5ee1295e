/*
 * gk_gpu_assign_mma.cu - the nearest centroid of points of 17 to 128 features, with tensor cores to decide
 * all but the close cases.
 *
 * With h_i = |c_i|^2 / 2 and s_i = h_i - x . c_i the nearest centroid has the smallest
 * s_i.  Coordinates are scaled by a power of two into [-1, 1] and rounded to multiples
 * of 2^-22, which are three signed bytes each; the tensor cores multiply bytes and add
 * the products up as integers, without any rounding, 32 features an instruction.  Of the
 * nine products of bytes the six of most weight are taken.  A warp has 32 points; the
 * bytes of the centroids lie in global memory as the instruction wants them and pass by
 * in shared memory.  Of all s of a point the smallest, its centroid and the second
 * smallest are kept, in units of 2^-22.  If they are further apart than `slack` the label
 * is certain; otherwise the point goes to a list, and a second kernel compares it with
 * all centroids by the canonical distance.
 *
 * Why the label is the canonical argmin.  Let x = xq + dx, c = cq + dc with the multiples
 * xq, cq; x2, x3, c2, c3 the vectors of middle and low bytes; X = |x|; C, Dc, C2, C3 the
 * largest |c|, |dc|, |c2|, |c3| of all centroids; tilde means as computed.
 *  1. x . c = xq . cq + dx . c + xq . dc: off by at most |dx| C + (X + |dx|) Dc.
 *  2. Left out of xq . cq: (2^8 (|x2| C3 + |x3| C2) + |x3| C3) 2^-44.
 *  3. The lowest products lose 6 bits, less than one unit; h is rounded from float64 to half a unit; four
 *     bits of every s~ are used for its number: 15 units.
 *  So |s~ - s| <= e, the sum of these.
 *  4. Canonical distances have a relative error below g = (d + 3) 2^-24.  Let i have the
 *     smallest s~ and l be the canonical argmin, D~_l <= D~_i.  Then s_l - s_i =
 *     (D_l - D_i) / 2 <= g D_i (1 + 2 g), and D_i = 2 s_i + X^2 <= 2 s~_i + 2 e + X^2.
 *  If every other s~ exceeds s~_i by more than slack = 2 e + g D_i, l is i.  An eighth and
 *  two units are added for the roundings of slack itself.  With a centroid outside the
 *  points' box nothing is certain: then every point goes to the list.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define STEP		32			/* features */
#define MAX_STEPS	4
#define MAX_D		(MAX_STEPS * STEP)
#define TILES		2			/* of 16 points, a warp's */
#define NT			8			/* tiles of eight centroids in shared memory at a time */
#define CHUNK		(NT * 8)
#define MIN_D		17
#define MIN_K		32
#define UNIT		0x1p-22f
#define FAR			(1 << 30)	/* s of a centroid that is not there; of others: below 2^29.6 */
#define ROWS		(WARPS * TILES * 16)	/* of a block */
#define PITCH		(ROWS + 4)	/* of its columns in shared memory */
#define AT_ONCE		16			/* uncertain points that a block compares */

/* What is known of all centroids: bits of floats, and integers. */
typedef struct Extent
{
	unsigned int reach;			/* largest coordinate, scaled */
	unsigned int norm2;			/* C^2 */
	unsigned int rest2;			/* Dc^2 */
	int			middle2;		/* C2^2 */
	int			low2;			/* C3^2 */
	int			listed;			/* points of the list */
	int			pad[2];
} Extent;

typedef struct AssignMmaArgs
{
	GkRows		p;
	int			d;
	int			k;
	int			kpad;			/* of packed */
	int			chunks;
	const float *packed;		/* [d][kpad] */
	float		scale;			/* coordinates into [-1, 1] */
	uint4	   *frag;			/* [tiles][steps][lanes]: high and middle bytes of B */
	uint2	   *frag_low;		/* the low ones */
	int		   *h;				/* [tiles * 8] */
	Extent	   *extent;
	int		   *list;
} AssignMmaArgs;

/* ---- bytes ---- */

/* Bytes of some vector, and what is known of it. */
typedef struct Known
{
	float		norm2;			/* rounded up */
	float		rest2;			/* of what is less than a unit; rounded up */
	int			middle2;
	int			low2;
} Known;

/* A scaled coordinate as three signed bytes, the lowest first. */
__device__ __forceinline__ unsigned int
bytes(float v, Known &known)
{
	int			q = __float2int_rn(v * 0x1p22f);
	float		rest = __fmaf_rn((float) q, -UNIT, v);

	known.norm2 = __fmaf_ru(v, v, known.norm2);
	known.rest2 = __fmaf_ru(rest, rest, known.rest2);
	/* A byte plus 128 is what it is with its first bit turned. */
	return (unsigned int) (q + 0x808080) ^ 0x808080;
}

/* Four coordinates' high, middle and low bytes together. */
__device__ __forceinline__ void
gather_bytes(const float (&v)[4], Known &known, unsigned int &high, unsigned int &middle, unsigned int &low)
{
	unsigned int b[4];
	unsigned int first;
	unsigned int last;

#pragma unroll
	for (int i = 0; i < 4; i++)
		b[i] = bytes(v[i], known);
	first = __byte_perm(b[0], b[1], 0x5140);
	last = __byte_perm(b[2], b[3], 0x5140);
	low = __byte_perm(first, last, 0x5410);
	middle = __byte_perm(first, last, 0x7632);
	high = __byte_perm(__byte_perm(b[0], b[1], 0x0062), __byte_perm(b[2], b[3], 0x0062), 0x5410);
	known.middle2 = __dp4a((int) middle, (int) middle, known.middle2);
	known.low2 = __dp4a((int) low, (int) low, known.low2);
}

/* Add up over the four lanes that have the features of a row. */
__device__ __forceinline__ void
add_lanes(Known &known)
{
#pragma unroll
	for (int o = 1; o < 4; o <<= 1)
	{
		known.norm2 = __fadd_ru(known.norm2, __shfl_xor_sync(0xffffffffu, known.norm2, o));
		known.rest2 = __fadd_ru(known.rest2, __shfl_xor_sync(0xffffffffu, known.rest2, o));
		known.middle2 += __shfl_xor_sync(0xffffffffu, known.middle2, o);
		known.low2 += __shfl_xor_sync(0xffffffffu, known.low2, o);
	}
}

/* ---- the centroids ---- */

/* A warp per tile of eight centroids. */
__global__ void __launch_bounds__(THREADS)
centroid_fragments_kernel(const __grid_constant__ AssignMmaArgs a, int steps)
{
	int			tile = blockIdx.x * WARPS + threadIdx.x / 32;
	int			lane = threadIdx.x % 32;
	int			i = tile * 8 + lane / 4;
	double		norm2 = 0.0;
	float		reach = 0.0f;
	Known		known = {};

	if (tile >= a.chunks * NT)
		return;
	for (int s = 0; s < steps; s++)
	{
		unsigned int b[3][2];

#pragma unroll
		for (int part = 0; part < 2; part++)
		{
			float		v[4];

#pragma unroll
			for (int o = 0; o < 4; o++)
			{
				int			j = s * STEP + part * 16 + lane % 4 * 4 + o;

				/* What is compared is h - x . c. */
				v[o] = i < a.k && j < a.d ? -(a.packed[(int64_t) j * a.kpad + i] * a.scale) : 0.0f;
				norm2 += (double) v[o] * v[o];
				reach = fmaxf(reach, fabsf(v[o]));
				v[o] = fminf(fmaxf(v[o], -1.0f), 1.0f);
			}
			gather_bytes(v, known, b[0][part], b[1][part], b[2][part]);
		}
		a.frag[((int64_t) tile * steps + s) * 32 + lane] = make_uint4(b[0][0], b[0][1], b[1][0], b[1][1]);
		a.frag_low[((int64_t) tile * steps + s) * 32 + lane] = make_uint2(b[2][0], b[2][1]);
	}
	add_lanes(known);
#pragma unroll
	for (int o = 1; o < 4; o <<= 1)
	{
		norm2 += __shfl_xor_sync(0xffffffffu, norm2, o);
		reach = fmaxf(reach, __shfl_xor_sync(0xffffffffu, reach, o));
	}
	if (lane % 4 == 0)
	{
		/* (With a centroid out of the box s may be anything.) */
		a.h[i] = i < a.k ? __double2int_rn(fmin(norm2, 256.0) * 0x1p21) : FAR;
		atomicMax(&a.extent->reach, __float_as_uint(reach));
		atomicMax(&a.extent->norm2, __float_as_uint(known.norm2));
		atomicMax(&a.extent->rest2, __float_as_uint(known.rest2));
		atomicMax(&a.extent->middle2, known.middle2);
		atomicMax(&a.extent->low2, known.low2);
	}
}

/* ---- labels ---- */

__device__ __forceinline__ void
mma(int (&to)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1)
{
	asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int BYTES>
__device__ __forceinline__ void
fetch(void *shared, const void *global)
{
	unsigned int to = (unsigned int) __cvta_generic_to_shared(shared);

	asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(to), "l"(global), "n"(BYTES));
}

/* The smallest and second smallest of some s. */
typedef struct Two
{
	int			first;			/* with a number in its last bits */
	int			second;
} Two;

__device__ __forceinline__ void
take(Two &t, int a, int b)
{
	int			low = min(a, b);

	t.second = __vimin3_s32(t.second, max(a, b), max(t.first, low));
	t.first = min(t.first, low);
}

template <int S>
struct Shared
{
	uint4		frag[2][NT * S * 32];
	uint2		frag_low[2][NT * S * 32];
	int			h[2][CHUNK];
	float		x[S * STEP][PITCH];	/* of the next rows */
};

/*
 * Ask for a chunk of centroids, and for the share of the rows from `row` on that comes
 * with it; none if row < 0.
 */
template <int S>
__device__ __forceinline__ void
fetch_next(const AssignMmaArgs &a, Shared<S> &sh, int buffer, int chunk, int64_t row, int share, int shares)
{
#pragma unroll
	for (int v = threadIdx.x; v < NT * S * 32; v += THREADS)
	{
		fetch<16>(&sh.frag[buffer][v], a.frag + (int64_t) chunk * NT * S * 32 + v);
		fetch<8>(&sh.frag_low[buffer][v], a.frag_low + (int64_t) chunk * NT * S * 32 + v);
	}
	if (threadIdx.x < CHUNK / 4)
		fetch<16>(&sh.h[buffer][threadIdx.x * 4], a.h + chunk * CHUNK + threadIdx.x * 4);
	if (row >= 0)
	{
		int			to = a.d * (share + 1) / shares;

		/* Columns are readable past their last row. */
		for (int j = a.d * share / shares + threadIdx.x / (ROWS / 4); j < to; j += THREADS / (ROWS / 4))
			fetch<16>(&sh.x[j][threadIdx.x % (ROWS / 4) * 4], a.p.x + j * a.p.ld + row + threadIdx.x % (ROWS / 4) * 4);
	}
	asm volatile("cp.async.commit_group;");
}

/* What the errors of all points need of the centroids: the largest of each length. */
struct Lengths
{
	float		norm;			/* C */
	float		rest;			/* Dc */
	float		middle;			/* C2 */
	float		low;			/* C3 */
};

/* A lane's share of a warp's rows: of each tile of 16, rows quad and quad + 8. */
template <int S>
struct Points
{
	unsigned int x[3][TILES][S][4];	/* high, middle, low bytes */
	float		norm2[TILES][2];
	float		e[TILES][2];	/* see above */
	Two			best[TILES][2];
	int			where[TILES][2];	/* the best one's chunk */
};

/* The rows at `at` in shared memory as bytes, and what is known of them. */
template <int S>
__device__ __forceinline__ void
load_points(const float *at0, float scale, const Lengths &c, Points<S> &p)
{
#pragma unroll
	for (int t = 0; t < TILES; t++)
#pragma unroll
		for (int half = 0; half < 2; half++)
		{
			const float *at = at0 + t * 16 + half * 8;
			Known		known = {};

#pragma unroll
			for (int s = 0; s < S; s++)
#pragma unroll
				for (int part = 0; part < 2; part++)
				{
					float		v[4];

#pragma unroll
					for (int o = 0; o < 4; o++)
						v[o] = at[(s * STEP + part * 16 + o) * PITCH] * scale;
					gather_bytes(v, known, p.x[0][t][s][part * 2 + half], p.x[1][t][s][part * 2 + half],
								 p.x[2][t][s][part * 2 + half]);
				}
			add_lanes(known);
			{
				float		norm = __fsqrt_ru(known.norm2);
				float		rest = __fsqrt_ru(known.rest2);
				float		middle = sqrtf((float) known.middle2);
				float		low = sqrtf((float) known.low2);

				p.norm2[t][half] = known.norm2;
				p.e[t][half] = rest * c.norm + (norm + rest) * c.rest +
					(256.0f * (middle * c.low + low * c.middle) + low * c.low) * 0x1p-44f + 17.0f * UNIT;
			}
			p.best[t][half].first = p.best[t][half].second = FAR;
			p.where[t][half] = 0;
		}
}

/* The products of bytes of a tile of centroids: sums of weight 2^-12, 2^-20, 2^-28. */
template <int S>
__device__ __forceinline__ void
multiply(const Points<S> &p, const uint4 *frag, const uint2 *frag_low, int (&sum)[3][TILES][4])
{
#pragma unroll
	for (int t = 0; t < TILES; t++)
#pragma unroll
		for (int w = 0; w < 3; w++)
			sum[w][t][0] = sum[w][t][1] = sum[w][t][2] = sum[w][t][3] = 0;
#pragma unroll
	for (int s = 0; s < S; s++)
	{
		uint4		f = frag[s * 32];
		uint2		g = frag_low[s * 32];

		/* In an order that keeps additions to the same sum apart. */
#define MULTIPLY(to, of, b0, b1) \
		_Pragma("unroll") \
		for (int t = 0; t < TILES; t++) \
			mma(sum[to][t], p.x[of][t][s], b0, b1)
		MULTIPLY(2, 0, g.x, g.y);
		MULTIPLY(1, 0, f.z, f.w);
		MULTIPLY(2, 1, f.z, f.w);
		MULTIPLY(0, 0, f.x, f.y);
		MULTIPLY(2, 2, f.x, f.y);
		MULTIPLY(1, 1, f.x, f.y);
#undef MULTIPLY
	}
}

/* The two smallest s of each row over a chunk's centroids. */
template <int S>
__device__ __forceinline__ void
compare_chunk(const Points<S> &p, const Shared<S> &sh, int buffer, Two (&two)[TILES][2])
{
	int			lane = threadIdx.x % 32;

#pragma unroll
	for (int t = 0; t < TILES; t++)
		two[t][0].first = two[t][0].second = two[t][1].first = two[t][1].second = FAR;
#pragma unroll 2
	for (int n = 0; n < NT; n++)
	{
		int2		hv = *(const int2 *) (sh.h[buffer] + n * 8 + lane % 4 * 2);
		int			sum[3][TILES][4];

		multiply<S>(p, sh.frag[buffer] + n * S * 32 + lane, sh.frag_low[buffer] + n * S * 32 + lane, sum);
#pragma unroll
		for (int t = 0; t < TILES; t++)
#pragma unroll
			for (int half = 0; half < 2; half++)
			{
				int			v[2];

#pragma unroll
				for (int o = 0; o < 2; o++)
				{
					int			c = half * 2 + o;
					int			up = sum[0][t][c] * 256 + sum[1][t][c];

					v[o] = (((o == 0 ? hv.x : hv.y) + up * 4 + (sum[2][t][c] >> 6)) & ~15) | (n * 2 + o);
				}
				take(two[t][half], v[0], v[1]);
			}
	}
}

/* A chunk's smallest s among those of the chunks before. */
template <int S>
__device__ __forceinline__ void
merge(Points<S> &p, const Two (&two)[TILES][2], int chunk)
{
#pragma unroll
	for (int t = 0; t < TILES; t++)
#pragma unroll
		for (int half = 0; half < 2; half++)
		{
			Two		   &b = p.best[t][half];
			Two			n = two[t][half];

			b.second = __vimin3_s32(b.second, n.second, max(b.first, n.first));
			if (n.first < b.first)
			{
				b.first = n.first;
				p.where[t][half] = chunk;
			}
		}
}

/* Labels of the warp's rows from `row0` on; uncertain ones into the list. */
template <int S, typename L>
__device__ __forceinline__ void
store_labels(const AssignMmaArgs &a, const Points<S> &p, int64_t row0, bool inside, L *labels)
{
	int			quad = threadIdx.x % 32 / 4;
	int			q = threadIdx.x % 4;

#pragma unroll
	for (int t = 0; t < TILES; t++)
#pragma unroll
		for (int half = 0; half < 2; half++)
		{
			Two			b = p.best[t][half];
			int			number = b.first & 15;
			int			label = p.where[t][half] * CHUNK + number / 2 * 8 + q * 2 + number % 2;
			int64_t		row = row0 + t * 16 + half * 8 + quad;

#pragma unroll
			for (int o = 1; o < 4; o <<= 1)
			{
				int			first = __shfl_xor_sync(0xffffffffu, b.first, o);
				int			second = __shfl_xor_sync(0xffffffffu, b.second, o);
				int			other = __shfl_xor_sync(0xffffffffu, label, o);

				b.second = __vimin3_s32(b.second, second, max(b.first, first));
				if (first < b.first)
				{
					b.first = first;
					label = other;
				}
			}
			if (q == 0 && row < a.p.rows)
			{
				float		e = p.e[t][half];
				float		distance = fmaxf(2.0f * UNIT * (float) b.first + p.norm2[t][half], 0.0f) +
					2.0f * e + 0x1p-20f * p.norm2[t][half];
				float		slack = 1.125f * (2.0f * e + (a.d + 3) * 0x1p-24f * distance) / UNIT + 2.0f;

				labels[row] = (L) label;
				if (!(inside && (float) (b.second - b.first) > slack))
					a.list[atomicAdd(&a.extent->listed, 1)] = (int) row;
			}
		}
}

template <int S, typename L>
__global__ void __launch_bounds__(THREADS, S <= 2 ? 2 : 1)
assign_mma_kernel(const __grid_constant__ AssignMmaArgs a, L *labels)
{
	extern __shared__ __align__(16) char raw[];
	Shared<S>  &sh = *(Shared<S> *) raw;
	int			lane = threadIdx.x % 32;
	int			warp_row = threadIdx.x / 32 * (TILES * 16);
	int			buffer = 0;
	bool		inside;			/* all centroids are in the points' box */
	Lengths		c;

	/* What lies past the last feature stays zero. */
	for (int v = threadIdx.x; v < (S * STEP - a.d) * PITCH; v += THREADS)
		sh.x[a.d][v] = 0.0f;
	inside = __uint_as_float(a.extent->reach) <= 1.0f;
	c.norm = __fsqrt_ru(__uint_as_float(a.extent->norm2));
	c.rest = __fsqrt_ru(__uint_as_float(a.extent->rest2));
	c.middle = sqrtf((float) a.extent->middle2);
	c.low = sqrtf((float) a.extent->low2);
	fetch_next<S>(a, sh, 0, 0, (int64_t) blockIdx.x * ROWS, 0, 1);
	for (int64_t row0 = (int64_t) blockIdx.x * ROWS; row0 < a.p.rows; row0 += (int64_t) gridDim.x * ROWS)
	{
		int64_t		next = row0 + (int64_t) gridDim.x * ROWS;
		Points<S>	p;

		asm volatile("cp.async.wait_group 0;");
		__syncthreads();
		load_points<S>(&sh.x[lane % 4 * 4][warp_row + lane / 4], a.scale, c, p);
		__syncthreads();
		for (int chunk = 0; chunk < a.chunks; chunk++)
		{
			int			current = buffer;
			Two			two[TILES][2];

			buffer ^= 1;
			if (chunk + 1 < a.chunks || next < a.p.rows)
			{
				fetch_next<S>(a, sh, buffer, chunk + 1 < a.chunks ? chunk + 1 : 0, next < a.p.rows ? next : -1, chunk,
							  a.chunks);
				asm volatile("cp.async.wait_group 1;");
			}
			else
				asm volatile("cp.async.wait_group 0;");
			__syncthreads();
			compare_chunk<S>(p, sh, current, two);
			__syncthreads();
			merge<S>(p, two, chunk);
		}
		store_labels<S>(a, p, row0 + warp_row, inside, labels);
	}
}

/* ---- the uncertain points ---- */

/* A block compares some points with all centroids, a thread with every 256th. */
template <typename L>
__global__ void __launch_bounds__(THREADS)
recheck_kernel(const __grid_constant__ AssignMmaArgs a, L *labels)
{
	__shared__ __align__(16) float x[MAX_D][AT_ONCE];
	__shared__ float best_of[WARPS][AT_ONCE];
	__shared__ int label_of[WARPS][AT_ONCE];
	int			listed = a.extent->listed;
	int			lane = threadIdx.x % 32;
	int			warp = threadIdx.x / 32;

	for (int first = blockIdx.x * AT_ONCE; first < listed; first += gridDim.x * AT_ONCE)
	{
		float		best[AT_ONCE];
		int			label[AT_ONCE];

		for (int v = threadIdx.x; v < a.d * AT_ONCE; v += THREADS)
		{
			int			at = first + v % AT_ONCE;

			x[v / AT_ONCE][v % AT_ONCE] = a.p.x[v / AT_ONCE * a.p.ld + a.list[at < listed ? at : first]];
		}
		__syncthreads();
#pragma unroll
		for (int r = 0; r < AT_ONCE; r++)
		{
			best[r] = GK_INF;
			label[r] = 0;
		}
		for (int i = threadIdx.x; i < a.k; i += THREADS)
		{
			float		d2[AT_ONCE];

#pragma unroll
			for (int r = 0; r < AT_ONCE; r++)
				d2[r] = 0.0f;
#pragma unroll 4
			for (int j = 0; j < a.d; j++)
			{
				float		c = __ldg(a.packed + (int64_t) j * a.kpad + i);

#pragma unroll
				for (int r = 0; r < AT_ONCE; r++)
				{
					float		t = __fsub_rn(x[j][r], c);

					d2[r] = __fmaf_rn(t, t, d2[r]);
				}
			}
#pragma unroll
			for (int r = 0; r < AT_ONCE; r++)
				if (d2[r] < best[r])
				{
					best[r] = d2[r];
					label[r] = i;
				}
		}
#pragma unroll
		for (int r = 0; r < AT_ONCE; r++)
		{
			gk_best_lane<32>(best[r], label[r]);
			if (lane == 0)
			{
				best_of[warp][r] = best[r];
				label_of[warp][r] = label[r];
			}
		}
		__syncthreads();
		if (threadIdx.x < AT_ONCE && first + (int) threadIdx.x < listed)
		{
			float		b = best_of[0][threadIdx.x];
			int			l = label_of[0][threadIdx.x];

			for (int w = 1; w < WARPS; w++)
				if (gk_better(best_of[w][threadIdx.x], label_of[w][threadIdx.x], b, l))
				{
					b = best_of[w][threadIdx.x];
					l = label_of[w][threadIdx.x];
				}
			labels[a.list[first + threadIdx.x]] = (L) l;
		}
		__syncthreads();
	}
}

/* ---- launchers ---- */

bool
gk_gpu_assign_mma_fits(const GkSession *s, int k)
{
	return s->d >= MIN_D && s->d <= MAX_D && k >= MIN_K;
}

template <int S, typename L>
static GkStatus
launch(GkSession *s, AssignMmaArgs *a, L *labels, GkError *err)
{
	const void *kernel = (const void *) assign_mma_kernel<S, L>;
	void	   *args[] = {a, &labels};
	int64_t		blocks;

	centroid_fragments_kernel<<<a->chunks, THREADS, 0, s->gpu->stream>>>(*a, S);
	GK_LAUNCHED();
	GK_DO(gk_gpu_resident_blocks(s, kernel, THREADS, sizeof(Shared<S>), &blocks, err));
	blocks = gk_min(blocks, (a->p.rows + ROWS - 1) / ROWS);
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) blocks), dim3(THREADS), args, sizeof(Shared<S>), s->gpu->stream));
	recheck_kernel<L><<<s->gpu->sms * 4, THREADS, 0, s->gpu->stream>>>(*a, labels);
	GK_LAUNCHED();
	return GK_OK;
}

template <typename L>
static GkStatus
launch_steps(GkSession *s, int steps, AssignMmaArgs *a, L *labels, GkError *err)
{
	switch (steps)
	{
#define STEPS(S) \
		case S: \
			return launch<S>(s, a, labels, err)
		STEPS(1);
		STEPS(2);
		STEPS(3);
		STEPS(4);
#undef STEPS
	}
	return gk_gpu_error(err, GK_ERR_INTERNAL, "no kernel for %d steps", steps);
}

GkStatus
gk_gpu_assign_mma(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err)
{
	int			steps = (s->d + STEP - 1) / STEP;
	/* The second kernel may have to compare all of a launch's rows. */
	double		in_time = gk_gpu_cycles(s, GK_LAUNCH_S) / ((double) s->d * GK_CYCLES_DISTANCE * k);
	int64_t		at_once = in_time < 16384 ? 16384 : in_time > 1 << 30 ? 1 << 30 : (int64_t) in_time / 1024 * 1024;
	AssignMmaArgs	a;
	size_t		frags;
	char	   *at;

	if (at_once > rows->rows)
		at_once = rows->rows;
	a.d = s->d;
	a.k = k;
	a.kpad = gk_gpu_wide_pad(k);
	a.chunks = (k + CHUNK - 1) / CHUNK;
	a.packed = s->packed;
	a.scale = (float) gk_pow2(-gk_gpu_top_expo(s));
	frags = (size_t) a.chunks * NT * steps * 32;
	GK_DO(gk_gpu_scratch(s, sizeof(Extent) + frags * 24 + (a.chunks * CHUNK + at_once) * sizeof(int), err));
	at = (char *) s->scratch;
	a.extent = (Extent *) at;
	a.frag = (uint4 *) (at += sizeof(Extent));
	a.frag_low = (uint2 *) (at += frags * sizeof(uint4));
	a.h = (int *) (at += frags * sizeof(uint2));
	a.list = a.h + a.chunks * CHUNK;
	for (int64_t r = 0; r < rows->rows; r += at_once)
	{
		a.p = *rows;
		a.p.x += r;
		a.p.rows = rows->rows - r < at_once ? rows->rows - r : at_once;
		GK_TRY(cudaMemsetAsync(a.extent, 0, sizeof(Extent), s->gpu->stream));
		if (labels.narrow)
			GK_DO(launch_steps(s, steps, &a, (uint8_t *) labels.at + r, err));
		else
			GK_DO(launch_steps(s, steps, &a, (int32_t *) labels.at + r, err));
	}
	return GK_OK;
}
