/*
 * gk_gpu_device.cuh - what all kernels share.
 */
#ifndef GK_GPU_DEVICE_CUH
#define GK_GPU_DEVICE_CUH

#include "gpu/gk_gpu.h"

#define GK_INF	__int_as_float(0x7f800000)

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

/* Labels of four consecutive rows, the first a multiple of four. */
__device__ __forceinline__ void
gk_load_labels(const int32_t *p, int (&l)[4])
{
	int4		t = *(const int4 *) p;

	l[0] = t.x;
	l[1] = t.y;
	l[2] = t.z;
	l[3] = t.w;
}

__device__ __forceinline__ void
gk_load_labels(const uint8_t *p, int (&l)[4])
{
	uchar4		t = *(const uchar4 *) p;

	l[0] = t.x;
	l[1] = t.y;
	l[2] = t.z;
	l[3] = t.w;
}

__device__ __forceinline__ void
gk_store_labels(int32_t *p, const int (&l)[4])
{
	*(int4 *) p = make_int4(l[0], l[1], l[2], l[3]);
}

__device__ __forceinline__ void
gk_store_labels(uint8_t *p, const int (&l)[4])
{
	*(uchar4 *) p = make_uchar4(l[0], l[1], l[2], l[3]);
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

__device__ __forceinline__ gk_int128
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

/* The canonical distance of a point of up to four features and a centroid. */
template <int D>
__device__ __forceinline__ float
gk_d2(const float (&x)[D], const float4 &c)
{
	float		q[4] = {c.x, c.y, c.z, c.w};
	float		d2 = 0.0f;

#pragma unroll
	for (int j = 0; j < D; j++)
	{
		float		t = __fsub_rn(x[j], q[j]);

		d2 = __fmaf_rn(t, t, d2);
	}
	return d2;
}

__device__ __forceinline__ bool
gk_better(float d2, int label, float best, int best_label)
{
	return d2 < best || (d2 == best && label < best_label);
}

#endif							/* GK_GPU_DEVICE_CUH */
