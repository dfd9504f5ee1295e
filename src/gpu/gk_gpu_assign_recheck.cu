/*
 * gk_gpu_assign_recheck.cu - the nearest centroid of the points that gk_gpu_assign_mma.cu could not
 * decide, by the canonical distance to all of them.
 */
#include "gpu/gk_gpu_assign_mma.cuh"

#define AT_ONCE		16			/* points that a block compares */

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

template <typename L>
static GkStatus
launch(GkSession *s, const AssignMmaArgs &a, L *labels, GkError *err)
{
	recheck_kernel<L><<<s->gpu->sms * 4, THREADS, 0, s->gpu->stream>>>(a, labels);
	GK_LAUNCHED();
	return GK_OK;
}

GkStatus
gk_gpu_assign_recheck(GkSession *s, const AssignMmaArgs &a, uint8_t *labels, GkError *err)
{
	return launch(s, a, labels, err);
}

GkStatus
gk_gpu_assign_recheck(GkSession *s, const AssignMmaArgs &a, int32_t *labels, GkError *err)
{
	return launch(s, a, labels, err);
}
