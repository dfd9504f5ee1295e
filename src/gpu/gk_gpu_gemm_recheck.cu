/*
 * gk_gpu_gemm_recheck.cu - labels of the rows that the product leaves undecided: a second product of these
 * rows gives their candidates, two or three as a rule, and the canonical distances of these pairs decide.
 *
 * A row whose candidates find no room in the list of pairs is compared with all centroids.  That is slow and
 * rare: thousands of equal centroids, points that are many times farther from the origin than from each other.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define AT_ONCE		16			/* rows that a block compares with all centroids */
#define SLAB		128			/* features of them in shared memory */
#define NOT_YET		0xffffffffffffffffULL

typedef struct RecheckArgs
{
	const float *x;				/* [rows][pitch]: the slice */
	int			pitch;
	const float *c;				/* [k][pitch] */
	int			d;
	int			k;
	GkGemmState *state;
	const int  *list;
	unsigned long long *best;
	const GkGemmPair *pair;
	int			pair_room;
	unsigned char *in_crowd;
	int		   *crowd;
	GkLabels	labels;
	/* Gathering. */
	const __half *y;
	__half	   *gathered;
	int			width;
	int			from;
	int			gather_rows;
} RecheckArgs;

/* A distance and a label: the smallest is the canonical argmin, ties to the lowest label. */
__device__ __forceinline__ void
offer(unsigned long long *best, float d2, int label)
{
	atomicMin(best, (unsigned long long) __float_as_uint(d2) << 32 | (unsigned int) label);
}

/* ---- gather ---- */

/* The undecided rows one after the other; a warp each.  Their width is a multiple of 8 values. */
__global__ void __launch_bounds__(THREADS)
gather_kernel(const __grid_constant__ RecheckArgs a)
{
	int			rows = min(a.state->undecided - a.from, a.gather_rows);

	for (int i = blockIdx.x * WARPS + threadIdx.x / 32; i < rows; i += gridDim.x * WARPS)
	{
		const uint4 *from = (const uint4 *) (a.y + (int64_t) a.list[a.from + i] * a.width);
		uint4	   *to = (uint4 *) (a.gathered + (int64_t) i * a.width);

		for (int v = threadIdx.x % 32; v < a.width / 8; v += 32)
			to[v] = __ldg(from + v);
		if (threadIdx.x % 32 == 0)
		{
			a.best[a.from + i] = NOT_YET;
			a.in_crowd[a.from + i] = 0;
		}
	}
}

/* ---- canonical distances ---- */

/* A thread per pair: features in their order. */
__global__ void __launch_bounds__(THREADS)
pairs_kernel(const __grid_constant__ RecheckArgs a)
{
	int			pairs = min(a.state->pairs, a.pair_room);

	for (int i = blockIdx.x * THREADS + threadIdx.x; i < pairs; i += gridDim.x * THREADS)
	{
		GkGemmPair	p = a.pair[i];
		const float *x = a.x + (int64_t) a.list[p.at] * a.pitch;
		const float *c = a.c + (int64_t) p.centroid * a.pitch;
		float		d2 = 0.0f;

		/* Past the last feature both are 0 and add nothing. */
#pragma unroll 4
		for (int j = 0; j < a.pitch; j += 4)
		{
			float4		v = __ldg((const float4 *) (x + j));
			float4		q = __ldg((const float4 *) (c + j));
			float		t[4] = {__fsub_rn(v.x, q.x), __fsub_rn(v.y, q.y), __fsub_rn(v.z, q.z), __fsub_rn(v.w, q.w)};

#pragma unroll
			for (int o = 0; o < 4; o++)
				d2 = __fmaf_rn(t[o], t[o], d2);
		}
		offer(a.best + p.at, d2, p.centroid);
	}
}

/* The rows whose candidates had no room. */
__global__ void __launch_bounds__(THREADS)
crowd_kernel(const __grid_constant__ RecheckArgs a)
{
	for (int i = blockIdx.x * THREADS + threadIdx.x; i < a.state->undecided; i += gridDim.x * THREADS)
		if (a.in_crowd[i])
			a.crowd[atomicAdd(&a.state->crowded, 1)] = i;
}

/* Compare them with all centroids: a block takes AT_ONCE rows, a thread every 256th centroid. */
__global__ void __launch_bounds__(THREADS)
all_kernel(const __grid_constant__ RecheckArgs a)
{
	__shared__ float x[SLAB][AT_ONCE];
	int			rows = a.state->crowded;

	for (int first = blockIdx.x * AT_ONCE; first < rows; first += gridDim.x * AT_ONCE)
		for (int i0 = 0; i0 < a.k; i0 += THREADS)
		{
			int			i = i0 + threadIdx.x;
			float		d2[AT_ONCE];

#pragma unroll
			for (int r = 0; r < AT_ONCE; r++)
				d2[r] = 0.0f;
			for (int j0 = 0; j0 < a.d; j0 += SLAB)
			{
				int			features = min(SLAB, a.d - j0);

				__syncthreads();
				for (int v = threadIdx.x; v < features * AT_ONCE; v += THREADS)
				{
					int			at = a.crowd[min(first + v / features, rows - 1)];

					x[v % features][v / features] = a.x[(int64_t) a.list[at] * a.pitch + j0 + v % features];
				}
				__syncthreads();
				for (int j = 0; i < a.k && j < features; j++)
				{
					float		c = __ldg(a.c + (int64_t) i * a.pitch + j0 + j);

#pragma unroll
					for (int r = 0; r < AT_ONCE; r++)
					{
						float		t = __fsub_rn(x[j][r], c);

						d2[r] = __fmaf_rn(t, t, d2[r]);
					}
				}
			}
#pragma unroll
			for (int r = 0; r < AT_ONCE; r++)
			{
				unsigned long long mine = i < a.k ? (unsigned long long) __float_as_uint(d2[r]) << 32 | (unsigned int) i : NOT_YET;

				/* One of a warp asks for the row. */
				for (int o = 16; o > 0; o >>= 1)
				{
					unsigned long long other = __shfl_xor_sync(0xffffffffu, mine, o);

					mine = other < mine ? other : mine;
				}
				if (threadIdx.x % 32 == 0 && first + r < rows)
					atomicMin(a.best + a.crowd[first + r], mine);
			}
		}
}

/* Labels of the undecided, and the pass's counts. */
__global__ void __launch_bounds__(THREADS)
decide_kernel(const __grid_constant__ RecheckArgs a)
{
	int			rows = a.state->undecided;

	for (int i = blockIdx.x * THREADS + threadIdx.x; i < rows; i += gridDim.x * THREADS)
	{
		int			label = (int) (unsigned int) a.best[i];

		if (a.labels.narrow)
			((uint8_t *) a.labels.at)[a.list[i]] = (uint8_t) label;
		else
			((int32_t *) a.labels.at)[a.list[i]] = label;
	}
	if (blockIdx.x == 0 && threadIdx.x == 0)
	{
		a.state->all_undecided += rows;
		a.state->all_pairs += a.state->pairs + (unsigned long long) a.state->crowded * a.k;
	}
}

/* ---- launchers ---- */

GkStatus
gk_gpu_gemm_recheck(GkSession *s, GkGemm *g, const GkRows *rows, int k, GkGemmArgs *a, GkError *err)
{
	RecheckArgs r = {};
	int			blocks = s->gpu->sms * GK_SM_BLOCKS;

	r.x = g->x + rows->first * g->pitch;
	r.pitch = g->pitch;
	r.c = g->c;
	r.d = s->d;
	r.k = k;
	r.state = g->state;
	r.list = g->list;
	r.best = g->best;
	r.pair = g->pair;
	r.pair_room = g->pair_room;
	r.in_crowd = g->in_crowd;
	r.crowd = g->crowd;
	r.labels = a->labels;
	r.y = g->y + rows->first * g->width;
	r.gathered = g->gathered;
	r.width = g->width;
	r.gather_rows = g->gather_rows;
	a->count = &g->state->undecided;
	a->first = 0;
	/* How many there are only the device knows: what has no rows ends at once. */
	for (a->from = 0; a->from < rows->rows; a->from += g->gather_rows)
	{
		r.from = a->from;
		a->rows = g->gather_rows;
		gather_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(r);
		GK_LAUNCHED();
		GK_DO(gk_gpu_gemm_multiply(s, GK_GEMM_CANDIDATES, g->gathered, g->gather_rows, g->b, k, g->width, a, err));
	}
	pairs_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(r);
	GK_LAUNCHED();
	crowd_kernel<<<s->gpu->sms, THREADS, 0, s->gpu->stream>>>(r);
	GK_LAUNCHED();
	all_kernel<<<s->gpu->sms * 4, THREADS, 0, s->gpu->stream>>>(r);
	GK_LAUNCHED();
	decide_kernel<<<s->gpu->sms, THREADS, 0, s->gpu->stream>>>(r);
	GK_LAUNCHED();
	return GK_OK;
}
