/*
 * gk_gpu_gemm_columns.cu - centroids near each other in neighbouring columns, and pivots, for a sort
 * (gk_gpu_gemm_sort.cu).
 *
 * Everything that takes each centroid's features is done on the device: with several GPUs, each with a session of
 * its own, the host's threads are the others', too.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_gemm.h"
#include "gpu/gk_gpu_gemm_tile.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define FAR_APART	16			/* pivots */
#define GROUP_WORK	((int64_t) 1 << 33) /* coordinates that may be compared for them */
#define MIDDLE_THREADS	128

/* ---- pivots ---- */

typedef unsigned long long Nearest; /* bits of a distance, and a number: the smallest is the nearest */

__device__ __forceinline__ Nearest
nearest_of(float d2, int number)
{
	return (Nearest) __float_as_uint(d2) << 32 | (unsigned) number;
}

__global__ void __launch_bounds__(GK_TILE_THREADS)
nearest_kernel(GkTileSide columns, GkTileSide pivots, int d, float scale, Nearest *nearest)
{
	__shared__ GkTileSquares tile;
	int			at0 = blockIdx.x * GK_TILE + tile.column();
	int			p0 = blockIdx.y * GK_TILE_PIVOTS + tile.pivot();
	float		square[2][4] = {};

	tile.sum(square, columns, blockIdx.x * GK_TILE, pivots, blockIdx.y * GK_TILE_PIVOTS, d, scale);
	for (int i = 0; i < 4 && at0 + i < columns.count; i++)
		for (int o = 0; o < 2 && p0 + o < pivots.count; o++)
			atomicMin(nearest + at0 + i, nearest_of(square[o][i], p0 + o));
}

static GkStatus
find_nearest(GkSession *s, const GkGemm *g, int k, Nearest *nearest, GkError *err)
{
	const GkGemmOrder *o = &g->order;
	GkTileSide	columns = {s->centroids, NULL, k, s->d};
	GkTileSide	pivots = {o->pivot_at, NULL, o->pivots, g->pitch};
	size_t		bytes = (size_t) k * sizeof(Nearest);
	dim3		tiles((k + GK_TILE - 1) / GK_TILE, (o->pivots + GK_TILE_PIVOTS - 1) / GK_TILE_PIVOTS);

	GK_DO(gk_gpu_scratch(s, bytes, err));
	GK_TRY(cudaMemsetAsync(s->scratch, 0xff, bytes, s->gpu->stream));
	nearest_kernel<<<tiles, GK_TILE_THREADS, 0, s->gpu->stream>>>(columns, pivots, s->d, g->scale, (Nearest *) s->scratch);
	GK_LAUNCHED();
	GK_TRY(cudaMemcpyAsync(nearest, s->scratch, bytes, cudaMemcpyDeviceToHost, s->gpu->stream));
	return gk_gpu_drain(s, err);
}

GkStatus
gk_gpu_gemm_nearest_pivots(GkSession *s, const GkGemm *g, int k, int *pivot_of, GkError *err)
{
	Nearest    *nearest = (Nearest *) s->core->alloc(s->host, k, sizeof(Nearest));
	GkStatus	st;

	if (nearest == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	st = find_nearest(s, g, k, nearest, err);
	for (int i = 0; st == GK_OK && i < k; i++)
		pivot_of[i] = (int) (nearest[i] & 0xffffffff);
	s->core->free(s->host, nearest);
	return st;
}

/* A block for each pivot: the centroid that it is. */
__global__ void __launch_bounds__(THREADS)
pivots_kernel(const float *centroids, int d, const int *which, float *pivot_at, int pitch)
{
	for (int j = threadIdx.x; j < pitch; j += THREADS)
		pivot_at[(int64_t) blockIdx.x * pitch + j] = j < d ? centroids[(int64_t) which[blockIdx.x] * d + j] : 0.0f;
}

/* ---- groups of centroids ---- */

/* In device memory. */
typedef struct Groups
{
	const float *c;				/* [k][d] */
	int			k;
	int			d;
	int			count;			/* of groups */
	unsigned long long *seed;	/* [count + 1]: of each group, ~ the centroid in the low bits */
	float	   *nearest;		/* [k]: distance to the own group's seed */
	int		   *group;			/* [k] */
	float	   *between;		/* [count][count]: of seeds */
} Groups;

__device__ __forceinline__ const float *
seed_at(const Groups &a, int g)
{
	return a.c + (int64_t) (g == 0 ? 0 : ~(unsigned) a.seed[g]) * a.d;
}

/* A warp's; all lanes have it. */
__device__ __forceinline__ float
square_distance(const float *x, const float *y, int d)
{
	float		sum = 0.0f;

	for (int j = threadIdx.x % 32; j < d; j += 32)
		sum += (x[j] - y[j]) * (x[j] - y[j]);
#pragma unroll
	for (int o = 16; o > 0; o >>= 1)
		sum += __shfl_xor_sync(0xffffffffu, sum, o);
	return sum;
}

/* Centroids nearer to seed g than to those before are its group's; the farthest of all is the next seed. */
__global__ void __launch_bounds__(THREADS)
join_group_kernel(Groups a, int g)
{
	__shared__ unsigned long long farthest;
	const float *seed = seed_at(a, g);

	if (threadIdx.x == 0)
		farthest = 0;
	__syncthreads();
	for (int i = blockIdx.x * WARPS + threadIdx.x / 32; i < a.k; i += gridDim.x * WARPS)
	{
		float		d2 = square_distance(a.c + (int64_t) i * a.d, seed, a.d);

		if (threadIdx.x % 32 == 0)
		{
			float		was = g == 0 ? INFINITY : a.nearest[i];

			if (g == 0 || d2 < was)
				a.group[i] = g;
			if (d2 < was)
				was = d2;
			a.nearest[i] = was;
			atomicMax(&farthest, (unsigned long long) __float_as_uint(was) << 32 | ~(unsigned) i);
		}
	}
	__syncthreads();
	if (threadIdx.x == 0)
		atomicMax(a.seed + g + 1, farthest);
}

/* A block for each group. */
__global__ void __launch_bounds__(THREADS)
between_kernel(Groups a)
{
	for (int g = threadIdx.x / 32; g < a.count; g += WARPS)
		a.between[blockIdx.x * a.count + g] = square_distance(seed_at(a, blockIdx.x), seed_at(a, g), a.d);
}

typedef struct Member
{
	int			group;
	int			centroid;
} Member;

static int
by_group(const void *a, const void *b)
{
	const Member *x = (const Member *) a;
	const Member *y = (const Member *) b;

	return x->group != y->group ? (x->group < y->group ? -1 : 1) : x->centroid < y->centroid ? -1 : x->centroid > y->centroid;
}

/* A chain from the first group to the nearest that is left, and so on: neighbours in it are near each other. */
static void
chain(const float *between, int groups, int *rank)
{
	int			at = 0;

	for (int i = 0; i < groups; i++)
		rank[i] = -1;
	for (int g = 0; g < groups; g++)
	{
		float		closest = INFINITY;
		int			next = at;

		rank[at] = g;
		for (int i = 0; i < groups; i++)
			if (rank[i] < 0 && (next == at || between[at * groups + i] < closest))
			{
				closest = between[at * groups + i];
				next = i;
			}
		at = next;
	}
}

/* ---- copies of the centroids, each about a middle ---- */

typedef struct Middles
{
	const float *c;				/* [k][d] */
	int			d;
	int			pitch;
	float		scale;			/* with which a middle must be finite, too */
	const int  *centroid;		/* [k]: of each column */
	const int  *begin;			/* [copies + 1]: its first column */
	float	   *middle;			/* [copies][pitch] */
} Middles;

/* The mean of a copy's centroids, 0 where it is not finite: a block for each copy and MIDDLE_THREADS features. */
__global__ void __launch_bounds__(MIDDLE_THREADS)
middle_kernel(Middles a)
{
	int			j = blockIdx.y * MIDDLE_THREADS + threadIdx.x;
	int			from = a.begin[blockIdx.x];
	int			to = a.begin[blockIdx.x + 1];
	float		sum = 0.0f;

	if (j >= a.pitch)
		return;
#pragma unroll 8
	for (int at = from; at < to; at++)
		sum += j < a.d ? a.c[(int64_t) a.centroid[at] * a.d + j] : 0.0f;
	if (to > from)
		sum /= to - from;
	a.middle[(int64_t) blockIdx.x * a.pitch + j] = isfinite(sum * a.scale) ? sum : 0.0f;
}

/* What the host makes of the groups; one piece of memory. */
typedef struct Plan
{
	unsigned long long seed[GK_GEMM_GROUPS + 1];
	int			pivot[GK_GEMM_PIVOTS];	/* the centroid that each is */
	int			pivot_copy[GK_GEMM_PIVOTS];
	int		   *group;			/* [k] */
	Member    *member;			/* [k] */
	int		   *column;			/* [k]: its centroid */
	int		   *copy_of;		/* [k] */
	float	   *between;		/* [GK_GEMM_GROUPS][GK_GEMM_GROUPS] */
	int			begin[GK_GEMM_GROUPS + 1];
} Plan;

/*
 * Pivots are centroids: half of them, or FAR_APART, but no more than there are groups, far from one another, so that most
 * clumps have one, the others as they come.  In their order.
 */
static void
choose_pivots(int k, int pivots, int groups, Plan *p)
{
	int		   *chosen = p->column; /* not yet used */
	int			count = 0;
	int			n = 0;

	memset(chosen, 0, (size_t) k * sizeof(int));
	for (int g = 0; g < groups && count < pivots && (g < FAR_APART || g < pivots / 2); g++)
	{
		int			i = g == 0 ? 0 : (int) ~(unsigned) p->seed[g];

		count += !chosen[i];
		chosen[i] = 1;
	}
	for (int i = 0; count < pivots; i++)
	{
		count += !chosen[i];
		chosen[i] = 1;
	}
	for (int i = 0; i < k; i++)
		if (chosen[i])
			p->pivot[n++] = i;
}

/*
 * Groups that are neighbours in the chain share a copy of the centroids, so that copies take little time and
 * memory.
 */
static int
plan_columns(const GkSession *s, const GkGemm *g, int k, int groups, Plan *p)
{
	int64_t		values = (int64_t) k * g->width;
	int64_t		most = gk_min(GK_GEMM_MOST_COPIES, s->spare / (4 * sizeof(__half)));
	int			copies = (int) gk_min(gk_min(groups, most / values + 1),
									  gk_min(GK_GEMM_COPIES / values + GK_GEMM_MIN_COPIES, GK_GEMM_MIDDLES));
	int			rank[GK_GEMM_GROUPS];
	int			at = 0;

	chain(p->between, groups, rank);
	for (int i = 0; i < k; i++)
		p->member[i] = (Member) {rank[p->group[i]], i};
	qsort(p->member, k, sizeof(Member), by_group);
	for (int copy = 0; copy < copies; copy++)
	{
		p->begin[copy] = at;
		for (; at < k && (int64_t) p->member[at].group * copies / groups == copy; at++)
		{
			p->column[at] = p->member[at].centroid;
			p->copy_of[p->column[at]] = copy;
		}
	}
	p->begin[copies] = k;
	return copies;
}

/* Groups about some centroids, each the farthest from those before (Gonzalez 1985). */
static GkStatus
find_groups(GkSession *s, int k, int groups, Plan *p, GkError *err)
{
	size_t		seeds = (GK_GEMM_GROUPS + 1) * sizeof(unsigned long long);
	Groups		a = {s->centroids, k, s->d, groups};
	unsigned int blocks = (unsigned int) gk_min((k + WARPS - 1) / WARPS, s->gpu->sms * GK_SM_BLOCKS);

	GK_DO(gk_gpu_scratch(s, seeds + (size_t) k * (sizeof(float) + sizeof(int)) + GK_GEMM_GROUPS * GK_GEMM_GROUPS * sizeof(float), err));
	a.seed = (unsigned long long *) s->scratch;
	a.between = (float *) (a.seed + GK_GEMM_GROUPS + 1);
	a.nearest = a.between + GK_GEMM_GROUPS * GK_GEMM_GROUPS;
	a.group = (int *) (a.nearest + k);
	GK_TRY(cudaMemsetAsync(a.seed, 0, seeds, s->gpu->stream));
	for (int g = 0; g < groups; g++)
		join_group_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(a, g);
	between_kernel<<<groups, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	GK_TRY(cudaMemcpyAsync(p->seed, a.seed, seeds, cudaMemcpyDeviceToHost, s->gpu->stream));
	GK_TRY(cudaMemcpyAsync(p->group, a.group, (size_t) k * sizeof(int), cudaMemcpyDeviceToHost, s->gpu->stream));
	GK_TRY(cudaMemcpyAsync(p->between, a.between, (size_t) groups * groups * sizeof(float), cudaMemcpyDeviceToHost, s->gpu->stream));
	return gk_gpu_drain(s, err);
}

static GkStatus
order_columns(GkSession *s, GkGemm *g, int k, Plan *p, GkError *err)
{
	GkGemmOrder *o = &g->order;
	int			groups = (int) gk_min(gk_min(k, GK_GEMM_GROUPS), 1 + GROUP_WORK / ((int64_t) k * s->d));
	Middles		a = {s->centroids, s->d, g->pitch, g->scale};
	int		   *which;

	GK_DO(find_groups(s, k, groups, p, err));
	choose_pivots(k, o->pivots, groups, p);
	o->copies = plan_columns(s, g, k, groups, p);
	for (int i = 0; i < o->pivots; i++)
		p->pivot_copy[i] = p->copy_of[p->pivot[i]];
	GK_TRY(cudaMalloc((void **) &o->centroid, (size_t) gk_gemm_key_pitch(k) * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &o->copy, o->pivots * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &o->middle, (size_t) o->copies * g->pitch * sizeof(float)));
	GK_TRY(cudaMemcpyAsync(o->centroid, p->column, (size_t) k * sizeof(int), cudaMemcpyHostToDevice, s->gpu->stream));
	GK_TRY(cudaMalloc((void **) &o->pivot_at, (size_t) o->pivots * g->pitch * sizeof(float)));
	GK_TRY(cudaMemcpyAsync(o->copy, p->pivot_copy, o->pivots * sizeof(int), cudaMemcpyHostToDevice, s->gpu->stream));
	GK_DO(gk_gpu_scratch(s, sizeof(p->begin) + sizeof(p->pivot), err));
	GK_TRY(cudaMemcpyAsync(s->scratch, p->begin, sizeof(p->begin), cudaMemcpyHostToDevice, s->gpu->stream));
	which = (int *) ((char *) s->scratch + sizeof(p->begin));
	GK_TRY(cudaMemcpyAsync(which, p->pivot, o->pivots * sizeof(int), cudaMemcpyHostToDevice, s->gpu->stream));
	pivots_kernel<<<o->pivots, THREADS, 0, s->gpu->stream>>>(s->centroids, s->d, which, o->pivot_at, g->pitch);
	GK_LAUNCHED();
	a.centroid = o->centroid;
	a.begin = (const int *) s->scratch;
	a.middle = o->middle;
	middle_kernel<<<dim3(o->copies, (g->pitch + MIDDLE_THREADS - 1) / MIDDLE_THREADS), MIDDLE_THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return gk_gpu_drain(s, err);
}

GkStatus
gk_gpu_gemm_order_columns(GkSession *s, GkGemm *g, int k, GkError *err)
{
	Plan		p;
	GkStatus	st;

	p.member = (Member *) s->core->alloc(s->host, k * (sizeof(Member) + 3 * sizeof(int)) + GK_GEMM_GROUPS * GK_GEMM_GROUPS * sizeof(float), 1);
	if (p.member == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	p.group = (int *) (p.member + k);
	p.column = p.group + k;
	p.copy_of = p.column + k;
	p.between = (float *) (p.copy_of + k);
	st = order_columns(s, g, k, &p, err);
	s->core->free(s->host, p.member);
	return st;
}
