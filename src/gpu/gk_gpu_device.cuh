/*
 * gk_gpu_device.cuh - what all kernels share.
 */
#ifndef GK_GPU_DEVICE_CUH
#define GK_GPU_DEVICE_CUH

#include "gpu/gk_gpu.h"

#define GK_INF	__int_as_float(0x7f800000)

/* What is done for each number of features up to 16. */
#define GK_EACH_D8(F)	F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
#define GK_EACH_D16(F)	GK_EACH_D8(F) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16)

/*
 * Kernels of an iteration follow one another closely (programmatic dependent launch, Hopper): the next one, that gk_follow()
 * has launched, comes to the device while the last blocks of this one end, which saves the 1 to 2 us between two.  So
 * it begins with gk_await_previous(), in all of its threads, and touches no global memory before that.  (To let it come earlier,
 * as soon as all blocks of this one run, does not pay: blocks then begin where some of this one end first, and some
 * multiprocessors have much more of them than others.)
 */
__device__ __forceinline__ void
gk_await_previous()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

template <typename T>
struct GkSame
{
	typedef T	type;
};

template <typename... P>
static inline cudaError_t
gk_follow(const GkSession *s, void (*kernel) (P...), dim3 grid, int threads, size_t shared, typename GkSame<P>::type... args)
{
	void	   *all[] = {(void *) &args...};

	return gk_gpu_follow(s, (const void *) kernel, grid, threads, shared, all);
}

/* V consecutive rows of one column. */
template <int V>
__device__ __forceinline__ void
gk_load(const float *p, float (&r)[V])
{
	if (V == 4)
	{
		float4		t = __ldg((const float4 *) p);

		r[0] = t.x;
		r[1 % V] = t.y;
		r[2 % V] = t.z;
		r[3 % V] = t.w;
	}
	else if (V == 2)
	{
		float2		t = __ldg((const float2 *) p);

		r[0] = t.x;
		r[1 % V] = t.y;
	}
	else
		r[0] = __ldg(p);
}

/* One value of totals. */
__device__ __forceinline__ gk_int128
gk_total(const GkTotals &totals, int64_t v)
{
	gk_int128	sum = 0;

	for (int i = 0; i < totals.parts; i++)
		sum += totals.narrow ? (gk_int128) ((const int64_t *) totals.of[i])[v] : ((const gk_int128 *) totals.of[i])[v];
	return sum;
}

__device__ __forceinline__ int
gk_label_of(const GkLabels &labels, int64_t row)
{
	return labels.narrow ? ((const uint8_t *) labels.at)[row] : ((const int32_t *) labels.at)[row];
}

__device__ __forceinline__ void
gk_store_label(const GkLabels &labels, int64_t row, int label)
{
	if (labels.narrow)
		((uint8_t *) labels.at)[row] = (uint8_t) label;
	else
		((int32_t *) labels.at)[row] = label;
}

/* Labels of four consecutive rows, the first a multiple of four. */
template <typename L>
__device__ __forceinline__ void
gk_load_labels(const L *p, int (&l)[4])
{
	if (sizeof(L) == 1)
	{
		uchar4		t = *(const uchar4 *) p;

		l[0] = t.x, l[1] = t.y, l[2] = t.z, l[3] = t.w;
	}
	else
	{
		int4		t = *(const int4 *) p;

		l[0] = t.x, l[1] = t.y, l[2] = t.z, l[3] = t.w;
	}
}

/* Is a row's key in a race at most `most`?  Most rows need no more than their hash: -ln(u) is at least 1 - u. */
__device__ __forceinline__ bool
gk_race_upto(uint64_t h, double weight, double most, double *key)
{
	double		upto = most * weight * (1.0 + 0x1p-20);

	if (upto < 1.0 && h >> 12 < (uint64_t) ((1.0 - upto) * 0x1p52))
		return false;
	*key = gk_race_key(h, weight);
	return *key <= most;
}

template <typename L>
__device__ __forceinline__ void
gk_store_labels(L *p, const int (&l)[4])
{
	if (sizeof(L) == 1)
		*(uchar4 *) p = make_uchar4(l[0], l[1], l[2], l[3]);
	else
		*(int4 *) p = make_int4(l[0], l[1], l[2], l[3]);
}

/* The label that no cluster has. */
template <typename L>
__device__ __forceinline__ int
gk_no_label(void)
{
	return sizeof(L) == 1 ? 255 : -1;
}

__device__ __forceinline__ void
gk_red(unsigned long long *p, long long v)
{
	atomicAdd(p, (unsigned long long) v);
}

/* Add a block's partial sum in two words of 32 bits' weight. */
__device__ __forceinline__ void
gk_acc_add(const GkAcc &acc, int64_t i, long long v)
{
	gk_red(acc.a + i, v & 0xffffffffLL);
	gk_red(acc.b + i, v >> 32);
}

/* Add a sum whose high and low part are integers already: hi * 2^shift + lo, see gk_acc_value(). */
__device__ __forceinline__ void
gk_acc_add_parts(const GkAcc &acc, int64_t i, long long hi, long long lo)
{
	gk_red(acc.b + i, hi);
	gk_red(acc.a + i, lo);
}

__host__ __device__ __forceinline__ gk_int128
gk_acc_value(unsigned long long a, unsigned long long b, int shift)
{
	return (gk_int128) (long long) a + (gk_int128) (long long) b * ((gk_int128) 1 << shift);
}

/*
 * A weighted value w * x (exact in float64) as hi * 2^40 + lo, both exact
 * doubles: hi is a multiple of 1, |lo| <= 2^39, in units of 2^(expo - 40) and
 * 2^(expo - 80).
 */
__device__ __forceinline__ void
gk_weighted_split(float w, float x, double inv, double &hi, double &lo)
{
	double		p = ((double) w * (double) x) * inv;

	hi = (p + 0x1.8p52) - 0x1.8p52;
	lo = (p - hi) * 0x1p40;
}

/* gk_d2_split with float64 results: exact integers of at most 40 bits. */
__device__ __forceinline__ void
gk_d2_split_double(double v, double scale, double &hi, double &lo)
{
	double		q = v * scale;

	if (q > 0x1p40)
		q = 0x1p40;
	hi = __dadd_rz(q, 0x1p52) - 0x1p52;
	lo = __dadd_rz((q - hi) * 0x1p40, 0x1p52) - 0x1p52;
}

__device__ __forceinline__ long long
gk_warp_sum(long long v)
{
	for (int o = 16; o > 0; o >>= 1)
		v += __shfl_xor_sync(0xffffffffu, v, o);
	return v;
}

/* The canonical distance of a point and a centroid. */
template <int D>
__device__ __forceinline__ float
gk_d2(const float (&x)[D], const float (&c)[D])
{
	float		d2 = 0.0f;

#pragma unroll
	for (int j = 0; j < D; j++)
	{
		float		t = __fsub_rn(x[j], c[j]);

		d2 = __fmaf_rn(t, t, d2);
	}
	return d2;
}

/* The same of a centroid of up to four features. */
template <int D>
__device__ __forceinline__ float
gk_d2(const float (&x)[D], const float4 &c)
{
	float		q[4] = {c.x, c.y, c.z, c.w};
	float		own[D];

#pragma unroll
	for (int j = 0; j < D; j++)
		own[j] = q[j];
	return gk_d2<D>(x, own);
}

__device__ __forceinline__ bool
gk_better(float d2, int label, float best, int best_label)
{
	return d2 < best || (d2 == best && label < best_label);
}

/* The best of the lanes whose numbers differ in the last bits only (N lanes), to all of them. */
template <int N>
__device__ __forceinline__ void
gk_best_lane(float &best, int &label)
{
#pragma unroll
	for (int o = N / 2; o > 0; o >>= 1)
	{
		float		other = __shfl_xor_sync(0xffffffffu, best, o);
		int			other_label = __shfl_xor_sync(0xffffffffu, label, o);

		if (gk_better(other, other_label, best, label))
		{
			best = other;
			label = other_label;
		}
	}
}

/* ---- centroids in shared memory, [k][d rounded up to 4] ---- */

/* A block brings `count` centroids there, from number c0 on. */
template <int D, int THREADS>
__device__ __forceinline__ void
gk_load_centroids(const float *packed, int c0, int count, float4 *cs)
{
	constexpr int V = (D + 3) / 4;

	__syncthreads();
	for (int v = threadIdx.x; v < count * V; v += THREADS)
		cs[v] = __ldg((const float4 *) packed + (int64_t) c0 * V + v);
	__syncthreads();
}

/* Those of them that are nearer to four rows than the best so far. */
template <int D, int UNROLL>
__device__ __forceinline__ void
gk_nearest(const float (&x)[D][4], const float4 *cs, int c0, int count, float (&best)[4], int (&label)[4])
{
	constexpr int V = (D + 3) / 4;

#pragma unroll UNROLL
	for (int i = 0; i < count; i++)
	{
		float		c[V * 4];

#pragma unroll
		for (int v = 0; v < V; v++)
		{
			float4		t = cs[i * V + v];

			c[4 * v] = t.x;
			c[4 * v + 1] = t.y;
			c[4 * v + 2] = t.z;
			c[4 * v + 3] = t.w;
		}
#pragma unroll
		for (int r = 0; r < 4; r++)
		{
			float		s = 0.0f;

#pragma unroll
			for (int j = 0; j < D; j++)
			{
				float		t = __fsub_rn(x[j][r], c[j]);

				s = __fmaf_rn(t, t, s);
			}
			if (s < best[r])
			{
				best[r] = s;
				label[r] = c0 + i;
			}
		}
	}
}

/* ---- limbs ---- */

/*
 * In shared memory only 32-bit integer atomics are native, so a value on the grid (41 bits) is added
 * as two limbs: x = hi * 2^20 + lo, |hi| <= 2^20, 0 <= lo < 2^20.  They are taken off in float32
 * without a conversion: adding 1.5 * 2^23 (for hi) or 2^23 (for lo) puts an integer into the low
 * mantissa bits.  What the bits of these numbers add is the row count times a constant.
 */
#define GK_LIMB			20
#define GK_LIMB_ROWS	2047	/* sums of hi, at most 2^20 each, fit 32 bits */

/* The sum of `count` values from the sums of their limbs' bits. */
__device__ __forceinline__ long long
gk_limbs_sum(int hi, int lo, unsigned int count)
{
	/* bits(1.5 * 2^23) = 0x4b400000, bits(2^23) = 0x4b000000 */
	hi -= (int) (count * 0x4b400000u);
	return (long long) hi * (1 << GK_LIMB) + ((unsigned int) lo - count * 0x4b000000u);
}

#endif							/* GK_GPU_DEVICE_CUH */
