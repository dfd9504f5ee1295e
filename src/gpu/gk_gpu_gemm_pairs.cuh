/*
 * gk_gpu_gemm_pairs.cuh - canonical distances of listed pairs, a row and a centroid each.
 */
#ifndef GK_GPU_GEMM_PAIRS_CUH
#define GK_GPU_GEMM_PAIRS_CUH

#include "gpu/gk_gpu_device.cuh"

/*
 * A warp's pairs, 8 or 32.  All lanes bring STEP features of each at a time and leave their differences in shared
 * memory; then a lane has a pair, whose features it adds up in their order, while the next features are on their
 * way.  With 8 a pair takes a quarter of the time, and many pairs take as long as memory does either way.
 */
template <int PAIRS>
struct GkPairs
{
	static constexpr int STEP = 1024 / PAIRS;
	static constexpr int LANES = STEP / 4;	/* of a pair */

	/* Padded: no two lanes want one bank. */
	float4		difference[PAIRS][LANES + 1];

	/*
	 * The distance of the row and the centroid that each of the first PAIRS lanes names; both have `pitch` values, a
	 * multiple of four.
	 */
	__device__ __forceinline__ float
	d2(const float *x, const float *c, int pitch, int64_t row, int centroid)
	{
		int			lane = threadIdx.x % 32;
		const float *at_x[8];
		const float *at_c[8];
		float4		u[8];
		float4		v[8];
		float		sum = 0.0f;

#pragma unroll
		for (int i = 0; i < 8; i++)
		{
			int			pair = i * (PAIRS / 8) + lane / LANES;

			at_x[i] = x + __shfl_sync(0xffffffffu, row, pair) * pitch;
			at_c[i] = c + (int64_t) __shfl_sync(0xffffffffu, centroid, pair) * pitch;
		}
		bring(at_x, at_c, pitch, lane % LANES * 4, u, v);
		for (int j = lane % LANES * 4; j - lane % LANES * 4 < pitch; j += STEP)
		{
#pragma unroll
			for (int i = 0; i < 8; i++)
				difference[i * (PAIRS / 8) + lane / LANES][lane % LANES] =
					make_float4(__fsub_rn(u[i].x, v[i].x), __fsub_rn(u[i].y, v[i].y),
								__fsub_rn(u[i].z, v[i].z), __fsub_rn(u[i].w, v[i].w));
			__syncwarp();
			bring(at_x, at_c, pitch, j + STEP, u, v);
			if (lane < PAIRS)
#pragma unroll
				for (int i = 0; i < LANES; i++)
				{
					float4		t = difference[lane][i];

					sum = __fmaf_rn(t.x, t.x, sum);
					sum = __fmaf_rn(t.y, t.y, sum);
					sum = __fmaf_rn(t.z, t.z, sum);
					sum = __fmaf_rn(t.w, t.w, sum);
				}
			__syncwarp();
		}
		return sum;
	}

private:
	/* All of them are on their way before the first is used; past the last feature they are 0 and add nothing. */
	__device__ __forceinline__ static void
	bring(const float *const (&at_x)[8], const float *const (&at_c)[8], int pitch, int j, float4 (&u)[8], float4 (&v)[8])
	{
#pragma unroll
		for (int i = 0; i < 8; i++)
		{
			u[i] = j < pitch ? __ldg((const float4 *) (at_x[i] + j)) : float4{};
			v[i] = j < pitch ? __ldg((const float4 *) (at_c[i] + j)) : float4{};
		}
	}
};

#endif							/* GK_GPU_GEMM_PAIRS_CUH */
