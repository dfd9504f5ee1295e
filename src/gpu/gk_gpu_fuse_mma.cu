/*
 * gk_gpu_fuse_mma.cu - labels and sums in a single pass for up to four features and up to 64 clusters, with
 * tensor cores to rule clusters out.
 *
 * The canonical distance to 64 centroids is 512 operations per point, four times
 * what the memory leaves time for.  With h_i = |c_i|^2 / 2 and
 * s_i = h_i - x . c_i, |x - c_i|^2 / 2 = |x|^2 / 2 + s_i: the nearest centroid has
 * the smallest s_i.  Coordinates are scaled by a power of two into [-1, 1] and
 * split in two float16, x = xh + xl; xh ch, xh cl and xl ch of four features and
 * h in three float16 are the addends of one row of m16n8k16.  Then the smallest s
 * of each group of four centroids is compared with the smallest of all: groups
 * within `slack` of it are candidates, and the canonical distance decides among
 * their centroids, in ascending order, so that ties go to the lowest number.
 * Nearly always it is one group.
 *
 * Why no group with the canonical argmin is ever ruled out.  Let u = 2^-24,
 * |x_j| <= 1, C = max |c_ij| <= 2, d <= 4, S = max over i of h_i + sum_j |c_ij|, where
 * h_i has SHIFT added (which makes every s positive, and changes no difference);
 * tilde means as computed.
 *  1. Halves: |x - xh| <= 2^-12, so |x - xh - xl| <= u (half a unit of a float16
 *     of at most 2^-12; subnormals are exact to u / 2); for c at most twice that,
 *     and |xl cl| <= 2^-12 2^-11 = 2 u.  Sum over features of the products'
 *     errors: at most d (C u + 2 u (1 + u) + 2 u) <= 4 d u (1 + C).
 *  2. h <= 11 in three float16 is exact to u / 2, and its float64 sum far below:
 *     <= u.
 *  3. The tensor core adds exact products in blocks of at least four and the
 *     accumulator, aligned to the largest and cut off at no less than 24 bits
 *     (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor
 *     cores", 2021): at most 20 cuts and 4 truncated results, each below 2 u M
 *     where no partial sum exceeds M = S (1 + 2^-9): <= 48 u M.
 *  So |s~ - s| <= e = 4 d u (1 + C) + u + 48 u M.
 *  4. Canonical distances D~ have a relative error below g = (d + 3) u, and
 *     D <= d (1 + C)^2.  If D~_l <= D~_i then D_l - D_i <= g (D_l + D_i), that is
 *     s_l - s_i <= g d (1 + C)^2.
 *  Let i have the smallest s~ and l be the canonical argmin.  Then
 *  s~_l - s~_i <= s_l - s_i + 2 e <= g d (1 + C)^2 + 2 e.  slack is this, with
 *  an eighth added for the roundings of slack itself and of the comparison.
 *  Centroids outside the data's box by more than its size (C > 2) make slack
 *  infinite: every centroid is a candidate.
 *
 * Sums are limbs (gk_gpu_device.cuh) in a table per warp, moved into 64-bit integers before they can
 * overflow.
 */
#include <cuda_fp16.h>

#include "gpu/gk_gpu_device.cuh"

#define THREADS		384
#define PER_SM		2
#define WARPS		(THREADS / 32)
#define FAR			60000.0		/* s of a centroid that is not there */
#define SHIFT		2.0625		/* above |x|^2 / 2: s is positive, its bits compare as an integer */
#define ONES		0x3c003c00u	/* two halves of 1 */

typedef struct FuseMmaArgs
{
	GkRows		p;
	int			k;
	float		scale;			/* coordinates into [-1, 1] */
	const float *centroids;
	GkAcc		acc;
	const double *inv;
	const int  *done;
} FuseMmaArgs;

template <int D, int NT>
struct Shared
{
	static constexpr int K = NT * 8;
	static constexpr int entry = 2 * D + 1;
	/* Two coordinates of a group's i-th centroid: groups in banks of their own. */
	float2		c[4][2][K / 4];
	long long	sum[WARPS][K * D];
	unsigned int count[WARPS][K];
	int			table[WARPS][K * entry];
	double		h[K];
	unsigned int reach;			/* bits of C */
	unsigned int size;			/* bits of S */
	float		slack;
};

__device__ __forceinline__ unsigned int
pack_half(float a, float b)
{
	__half2		h = __floats2half2_rn(a, b);

	return *(unsigned int *) &h;
}

/* Two coordinates as two pairs of halves. */
__device__ __forceinline__ void
split(float a, float b, unsigned int &hi, unsigned int &lo)
{
	__half2		h = __floats2half2_rn(a, b);
	float2		back = __half22float2(h);

	hi = *(unsigned int *) &h;
	lo = pack_half(__fsub_rn(a, back.x), __fsub_rn(b, back.y));
}

__device__ __forceinline__ void
mma(int (&s)[4], const unsigned int (&a)[4], const unsigned int (&b)[2])
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
		: "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

/* The nearest of a group's centroids, canonically, and its distance. */
template <int D, int G>
__device__ __forceinline__ int
decide(const float2 (&c)[4][2][G], int group, const float (&x)[D], float &best)
{
	int			label = 0;

#pragma unroll
	for (int i = 0; i < 4; i++)
	{
		float2		low = c[i][0][group];
		float2		high = D > 2 ? c[i][1][group] : low;
		float		d2 = gk_d2<D>(x, make_float4(low.x, low.y, high.x, high.y));

		if (i == 0 || d2 < best)
		{
			best = d2;
			label = i;
		}
	}
	return group * 4 + label;
}

/* Move a warp's table into its 64-bit sums. */
template <int D, int NT>
__device__ __forceinline__ void
flush(Shared<D, NT> &sh, int warp, int lane)
{
	constexpr int K = NT * 8;
	constexpr int E = 2 * D + 1;
	int		   *table = sh.table[warp];

	__syncwarp();
#pragma unroll 4
	for (int e = lane; e < K * D; e += 32)
	{
		int		   *at = table + e / D * E + e % D * 2;
		unsigned int count = (unsigned int) table[e / D * E + 2 * D];
		long long	sum = gk_limbs_sum(at[0], at[1], count);

		at[0] = at[1] = 0;
		sh.sum[warp][e] += sum;
	}
	__syncwarp();
	for (int i = lane; i < K; i += 32)
	{
		sh.count[warp][i] += (unsigned int) table[i * E + 2 * D];
		table[i * E + 2 * D] = 0;
	}
	__syncwarp();
}

/* Centroids, h and slack of this pass. */
template <int D, int NT>
__device__ __forceinline__ void
prepare(const FuseMmaArgs &a, Shared<D, NT> &sh)
{
	constexpr int K = NT * 8;

	if (threadIdx.x == 0)
		sh.reach = sh.size = 0;
	__syncthreads();
	if (threadIdx.x < K)
	{
		int			i = threadIdx.x;
		float		c[4] = {GK_INF, GK_INF, GK_INF, GK_INF};
		double		h = 0.0;

		if (i < a.k)
		{
			double		size = 0.0;

#pragma unroll
			for (int j = 0; j < 4; j++)
			{
				double		t;

				c[j] = j < D ? a.centroids[i * D + j] : 0.0f;
				t = (double) c[j] * a.scale;
				h += t * t;
				size += fabs(t);
				atomicMax(&sh.reach, __float_as_uint(fabsf(c[j] * a.scale)));
			}
			atomicMax(&sh.size, __float_as_uint(__double2float_ru(size + h * 0.5 + SHIFT)));
		}
		sh.c[i % 4][0][i / 4] = make_float2(c[0], c[1]);
		sh.c[i % 4][1][i / 4] = make_float2(c[2], c[3]);
		sh.h[i] = i < a.k ? h * 0.5 + SHIFT : FAR;
	}
	__syncthreads();
	if (threadIdx.x == 0)
	{
		double		u = 0x1p-24;
		double		reach = __uint_as_float(sh.reach);
		double		e = 4 * D * u * (1 + reach) + u + 48 * u * __uint_as_float(sh.size) * (1 + 0x1p-9);

		sh.slack = reach <= 2.0 ? (float) (1.125 * ((D + 3) * u * D * (1 + reach) * (1 + reach) + 2 * e)) : GK_INF;
	}
	__syncthreads();
}

/* A lane's own row, and two features of its quad's rows; chunks are padded to 64. */
template <int D>
__device__ __forceinline__ void
load(const FuseMmaArgs &a, const float *own, const float *quad, bool two, float (&x)[D], float (&fa)[4], float (&fb)[4])
{
#pragma unroll
	for (int j = 0; j < D; j++)
		x[j] = __ldg(own + j * a.p.ld);
	gk_load<4>(quad, fa);
	if (D > 1)
		gk_load<4>(two ? quad + a.p.ld : quad, fb);
	else
		fb[0] = fb[1] = fb[2] = fb[3] = 0.0f;
}

/* Clear what a warp adds to. */
template <int D, int NT>
__device__ __forceinline__ void
clear(Shared<D, NT> &sh, int warp, int lane)
{
	typedef Shared<D, NT> Sh;

	for (int e = lane; e < Sh::K * Sh::entry; e += 32)
		sh.table[warp][e] = 0;
	for (int e = lane; e < Sh::K * D; e += 32)
		sh.sum[warp][e] = 0;
	for (int e = lane; e < Sh::K; e += 32)
		sh.count[warp][e] = 0;
}

/*
 * This lane's fragments of the centroids.  The 16 addends, two per lane of a quad, first and second half:
 *   x01h c01h, x23h c23h, x01h c01l, x23h c23l
 *   x01l c01h, x23l c23h, 1 (hh hl), 1 (hm 0)
 * Lane q gets the results of columns 2q and 2q + 1 of each tile: these are its centroids q * 2 NT + 2 t and
 * the next, so a lane has 2 NT in a row.
 */
template <int D, int NT>
__device__ __forceinline__ void
centroid_fragments(const FuseMmaArgs &a, const Shared<D, NT> &sh, bool bounded, int quad, int q,
				   unsigned int (&b)[NT][2])
{
#pragma unroll
	for (int t = 0; t < NT; t++)
	{
		int			i = quad / 2 * 2 * NT + 2 * t + quad % 2;
		float2		c = sh.c[i % 4][q % 2][i / 4];
		double		h = bounded ? sh.h[i] : 0.0;
		float		hh = __half2float(__float2half_rn((float) h));
		float		hl = __half2float(__float2half_rn((float) (h - hh)));
		unsigned int hi,
					lo;

		split(bounded && i < a.k ? -c.x * a.scale : 0.0f, bounded && i < a.k ? -c.y * a.scale : 0.0f, hi, lo);
		b[t][0] = q < 2 ? hi : lo;
		b[t][1] = q < 2 ? hi : q == 2 ? pack_half(hh, hl) : pack_half((float) (h - hh - hl), 0.0f);
	}
}

/* This lane's fragments of its quad's rows: matrix row `quad` is row 2m, row `quad` + 8 is row 2m + 1. */
__device__ __forceinline__ void
point_fragments(float scale, int q, const float (&fa)[4], const float (&fb)[4], unsigned int (&f)[2][4])
{
#pragma unroll
	for (int m = 0; m < 2; m++)
	{
		split(fa[2 * m] * scale, fb[2 * m] * scale, f[m][0], f[m][2]);
		split(fa[2 * m + 1] * scale, fb[2 * m + 1] * scale, f[m][1], f[m][3]);
		f[m][2] = q < 2 ? f[m][2] : ONES;
		f[m][3] = q < 2 ? f[m][3] : ONES;
	}
}

/* The smallest s of each of this lane's groups, for its quad's four rows; bits of floats. */
template <int NT>
__device__ __forceinline__ void
group_minima(const unsigned int (&f)[2][4], const unsigned int (&b)[NT][2], int (&smallest)[4][NT / 2])
{
#pragma unroll
	for (int m = 0; m < 2; m++)
	{
#pragma unroll
		for (int g = 0; g < NT / 2; g++)
		{
			int			s[4];
			int			t[4];

			mma(s, f[m], b[2 * g]);
			mma(t, f[m], b[2 * g + 1]);
			smallest[2 * m][g] = min(__vimin3_s32(s[0], s[1], t[0]), t[1]);
			smallest[2 * m + 1][g] = min(__vimin3_s32(s[2], s[3], t[2]), t[3]);
		}
	}
}

/* The groups that may have the nearest centroid of row q of the quad, a bit each; at least one. */
template <int G>
__device__ __forceinline__ unsigned int
candidates(const int (&smallest)[4][G], float slack, int q)
{
	unsigned int nibble[4];		/* of the quad's rows, among this lane's groups */
	unsigned int place = 1u << (q * G);
	unsigned int left;

#pragma unroll
	for (int r = 0; r < 4; r++)
	{
		int			lowest = smallest[r][0];
		float		limit;

#pragma unroll
		for (int g = 1; g + 1 < G; g += 2)
			lowest = __vimin3_s32(lowest, smallest[r][g], smallest[r][g + 1]);
		lowest = min(lowest, smallest[r][G - 1]);
		lowest = min(lowest, __shfl_xor_sync(0xffffffffu, lowest, 1));
		lowest = min(lowest, __shfl_xor_sync(0xffffffffu, lowest, 2));
		limit = __fadd_rn(__int_as_float(lowest), slack);
		/* The sign of the difference, shifted in. */
		nibble[r] = 0;
#pragma unroll
		for (int g = G - 1; g >= 0; g--)
			nibble[r] = __funnelshift_l(__float_as_uint(__fsub_rn(__int_as_float(smallest[r][g]), limit)), nibble[r], 1);
	}
	{
		unsigned int low = (nibble[0] + nibble[1] * 65536u) * place;
		unsigned int high = (nibble[2] + nibble[3] * 65536u) * place;

		low |= __shfl_xor_sync(0xffffffffu, low, 1);
		high |= __shfl_xor_sync(0xffffffffu, high, 1);
		low |= __shfl_xor_sync(0xffffffffu, low, 2);
		high |= __shfl_xor_sync(0xffffffffu, high, 2);
		left = (q < 2 ? low : high) >> (q % 2 * 16) & 0xffffu;
	}
	/* For rows past the end there may be none. */
	return left + (left == 0);
}

/* The nearest centroid of a row by the canonical distance, among the candidate groups. */
template <int D, int NT>
__device__ __forceinline__ int
nearest(const Shared<D, NT> &sh, unsigned int left, const float (&x)[D])
{
	float		best;
	int			label = decide<D, Shared<D, NT>::K / 4>(sh.c, __ffs(left) - 1, x, best);

	left &= left - 1;
	while (left != 0)
	{
		float		d2;
		int			other = decide<D, Shared<D, NT>::K / 4>(sh.c, __ffs(left) - 1, x, d2);

		left &= left - 1;
		if (d2 < best)
		{
			best = d2;
			label = other;
		}
	}
	return label;
}

/* Add a row to its cluster's entry of the warp's table. */
template <int D>
__device__ __forceinline__ void
accumulate(int *at, const float (&x)[D], const float (&inv)[D])
{
#pragma unroll
	for (int j = 0; j < D; j++)
	{
		/* Both products are by powers of two: exact. */
		float		hi = __fmaf_rd(x[j], inv[j] * 0x1p-20f, 0x1.8p23f);
		float		lo = __fmaf_rn(__fsub_rn(hi, 0x1.8p23f), -0x1p20f, __fmul_rn(x[j], inv[j]));

		atomicAdd(at + 2 * j, __float_as_int(hi));
		atomicAdd(at + 2 * j + 1, __float_as_int(__fadd_rn(lo, 0x1p23f)));
	}
	atomicAdd(at + 2 * D, 1);
}

/* All warps' sums into the accumulators. */
template <int D, int NT>
__device__ __forceinline__ void
store(const FuseMmaArgs &a, const Shared<D, NT> &sh)
{
	for (int e = threadIdx.x; e < a.k * D; e += THREADS)
	{
		long long	sum = 0;

#pragma unroll
		for (int w = 0; w < WARPS; w++)
			sum += sh.sum[w][e];
		if (sum != 0)
			gk_acc_add(a.acc, e, sum);
	}
	for (int i = threadIdx.x; i < a.k; i += THREADS)
	{
		long long	count = 0;

#pragma unroll
		for (int w = 0; w < WARPS; w++)
			count += sh.count[w][i];
		if (count != 0)
			gk_red(a.acc.a + (int64_t) a.k * D + i, count);
	}
}

template <int D, int NT>
__global__ void __launch_bounds__(THREADS, PER_SM)
fuse_mma_kernel(const __grid_constant__ FuseMmaArgs a)
{
	typedef Shared<D, NT> Sh;
	extern __shared__ __align__(16) char raw[];
	Sh		   &sh = *(Sh *) raw;
	int			lane = threadIdx.x % 32;
	int			warp = threadIdx.x / 32;
	int			quad = lane / 4;
	int			q = lane % 4;
	int			col0 = q % 2 * 2;	/* this lane's two features of the fragments */
	bool		two = col0 + 1 < D;
	unsigned int rows = (unsigned int) a.p.rows;
	unsigned int row0 = (blockIdx.x * WARPS + warp) * 32;
	unsigned int stride = gridDim.x * WARPS * 32;
	const float *at_own = a.p.x + row0 + lane;
	const float *at_quad = a.p.x + row0 + quad * 4 + (col0 < D ? col0 : 0) * a.p.ld;
	unsigned int b[NT][2];
	float		inv[D];
	float		slack;
	float		next[D];		/* the lane's own row */
	float		fa[4];			/* its two features of its quad's rows */
	float		fb[4];
	int			held = 0;		/* rows in the table */

	if (*a.done)
		return;
	prepare<D, NT>(a, sh);
	clear<D, NT>(sh, warp, lane);
	slack = sh.slack;
#pragma unroll
	for (int j = 0; j < D; j++)
		inv[j] = (float) a.inv[j];
	/* With infinite slack s could overflow, and does not matter. */
	centroid_fragments<D, NT>(a, sh, slack < GK_INF, quad, q, b);
	__syncwarp();
	if (row0 < rows)
		load<D>(a, at_own, at_quad, two, next, fa, fb);
	for (; row0 < rows; row0 += stride)
	{
		float		x[D];
		unsigned int f[2][4];
		int			smallest[4][NT / 2];
		int			label;

		point_fragments(a.scale, q, fa, fb, f);
#pragma unroll
		for (int j = 0; j < D; j++)
			x[j] = next[j];
		if (row0 + stride < rows)
		{
			at_own += stride;
			at_quad += stride;
		}
		load<D>(a, at_own, at_quad, two, next, fa, fb);
		group_minima<NT>(f, b, smallest);
		/* This lane decides for row q of its quad, and adds it up. */
		label = nearest<D, NT>(sh, candidates<NT / 2>(smallest, slack, q), x);
		__syncwarp();
		if (row0 + lane < rows)
			accumulate<D>(sh.table[warp] + label * Sh::entry, x, inv);
		held += 32;
		if (held + 32 > GK_LIMB_ROWS)
		{
			flush<D, NT>(sh, warp, lane);
			held = 0;
		}
	}
	flush<D, NT>(sh, warp, lane);
	__syncthreads();
	store<D, NT>(a, sh);
}

/* ---- launchers ---- */

typedef struct Variant
{
	int			k;
	size_t		shared;
	const void *kernel;
} Variant;

#define VARIANT(D, NT)	{NT * 8, sizeof(Shared<D, NT>), (const void *) fuse_mma_kernel<D, NT>}
#define PER_D		3

static const Variant variants[5][PER_D] = {
	{},
	{VARIANT(1, 2), VARIANT(1, 4), VARIANT(1, 8)},
	{VARIANT(2, 2), VARIANT(2, 4), VARIANT(2, 8)},
	{VARIANT(3, 2), VARIANT(3, 4), VARIANT(3, 8)},
	{VARIANT(4, 2), VARIANT(4, 4), VARIANT(4, 8)},
};

static const Variant *
variant(int d, int k)
{
	if (d <= 4)
		for (int i = 0; i < PER_D; i++)
			if (variants[d][i].k >= k)
				return &variants[d][i];
	return NULL;
}

bool
gk_gpu_fuse_mma_fits(const GkSession *s, int k)
{
	/* Few centroids: the canonical distance to all of them is cheaper. */
	return !s->pts->weighted && k > 8 && variant(s->d, k) != NULL;
}

GkStatus
gk_gpu_fuse_mma(GkSession *s, const GkRows *rows, int k, GkError *err)
{
	const Variant *v = variant(s->d, k);
	FuseMmaArgs a = {*rows, k, (float) gk_pow2(-gk_gpu_top_expo(s)), s->centroids, s->acc, s->columns.inv, s->done};

	return gk_gpu_launch(s, v->kernel, (rows->rows + THREADS - 1) / THREADS, THREADS, v->shared, &a, err);
}
