/*
 * gk_gpu_gemm_sort.cu - rows in the order of pivots, columns in the order of groups: where points lie in
 * clumps that are far apart, a row is near its pivot, so that little is lost by rounding x - p, and most
 * tiles of columns are too far away to be looked at (gk_gpu_gemm.h, 6).
 *
 * Pivots are the centroids at the time of the sort, or the first of them; a row's pivot is the one
 * nearest to the centroid of its last label.  Both orders only decide how much is left out.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"

#define THREADS		256
#define GROUPS		48			/* of columns, at most */
#define GROUP_WORK	((int64_t) 1 << 31) /* coordinates that may be compared for them */

/* ---- on the host: pivots and groups of centroids ---- */

/* In four sums, which a CPU can add to at the same time. */
static double
square_distance(const float *a, const float *b, int d)
{
	float		sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};

	for (int j = 0; j < d; j++)
		sum[j % 4] += (a[j] - b[j]) * (a[j] - b[j]);
	return (double) sum[0] + sum[1] + sum[2] + sum[3];
}

typedef struct Group
{
	int			group;
	int			centroid;
} Group;

static int
by_group(const void *a, const void *b)
{
	const Group *x = (const Group *) a;
	const Group *y = (const Group *) b;

	return x->group != y->group ? (x->group < y->group ? -1 : 1) : x->centroid < y->centroid ? -1 : x->centroid > y->centroid;
}

typedef struct GroupJob
{
	const float *c;
	int			k;
	int			d;
	int			group;
	int			seed;			/* centroid about which it is */
	Group	   *out;			/* [k] */
	double	   *nearest;		/* [k]: distance to the own group's seed */
} GroupJob;

#define GROUP_JOB	64			/* centroids */

static void
join_group(void *arg, int64_t job, int thread)
{
	const GroupJob *g = (const GroupJob *) arg;
	int			end = (int) gk_min(g->k, (job + 1) * GROUP_JOB);

	(void) thread;
	for (int i = (int) job * GROUP_JOB; i < end; i++)
	{
		double		d2 = square_distance(g->c + (size_t) i * g->d, g->c + (size_t) g->seed * g->d, g->d);

		if (d2 < g->nearest[i])
		{
			g->nearest[i] = d2;
			g->out[i].group = g->group;
		}
	}
}

/*
 * Centroids in groups about some of them, each the farthest from those before (Gonzalez 1985); the groups in
 * a chain from each to the nearest that is left, so that neighbours in it are near each other.
 */
static GkStatus
order_columns(GkSession *s, const float *c, int k, int *count, Group *out, double *nearest)
{
	int			seed[GROUPS];
	int			rank[GROUPS];
	int			groups = (int) gk_min(gk_min(k, GROUPS), 1 + GROUP_WORK / ((int64_t) k * s->d));
	GroupJob	job = {c, k, s->d, 0, 0, out, nearest};
	int			at = 0;

	*count = groups;
	for (int i = 0; i < k; i++)
	{
		nearest[i] = DBL_MAX;
		out[i].group = 0;
		out[i].centroid = i;
	}
	for (int g = 0; g < groups; g++)
	{
		seed[g] = job.seed;
		rank[g] = -1;
		job.group = g;
		if (!s->core->parallel_for_long(s->host, (k + GROUP_JOB - 1) / GROUP_JOB, join_group, &job))
			return GK_STOPPED;
		for (int i = 0; i < k; i++)
			if (nearest[i] > nearest[job.seed])
				job.seed = i;
	}
	for (int g = 0; g < groups; g++)
	{
		double		closest = DBL_MAX;
		int			next = at;

		rank[at] = g;
		for (int i = 0; i < groups; i++)
		{
			double		d2 = square_distance(c + (size_t) seed[i] * s->d, c + (size_t) seed[at] * s->d, s->d);

			if (rank[i] < 0 && d2 < closest)
			{
				closest = d2;
				next = i;
			}
		}
		at = next;
	}
	for (int i = 0; i < k; i++)
		out[i].group = rank[out[i].group];
	qsort(out, k, sizeof(Group), by_group);
	return GK_OK;
}

/*
 * Groups that are neighbours in the chain share a copy of the centroids, so that copies take little time and
 * memory; a copy's middle is the mean of its centroids.
 */
static int
find_middles(const GkSession *s, const GkGemm *g, const float *c, int k, int groups, const Group *group, int *copy_of,
			 float *middle)
{
	int64_t		values = (int64_t) k * g->width;
	int			copies = (int) gk_min(gk_min(groups, GK_GEMM_MOST_COPIES / values + 1),
									  gk_min(GK_GEMM_COPIES / values + 8, GK_GEMM_MIDDLES));
	int			from = 0;

	memset(middle, 0, (size_t) copies * g->pitch * sizeof(float));
	for (int copy = 0; copy < copies; copy++)
	{
		float	   *q = middle + (size_t) copy * g->pitch;
		int			to = from;

		for (; to < k && (int64_t) group[to].group * copies / groups == copy; to++)
		{
			copy_of[group[to].centroid] = copy;
			for (int j = 0; j < s->d; j++)
				q[j] += c[(size_t) group[to].centroid * s->d + j];
		}
		for (int j = 0; j < s->d; j++)
			q[j] = to > from && isfinite(q[j]) ? q[j] / (to - from) : 0.0f;
		from = to;
	}
	return copies;
}

typedef struct PivotJob
{
	const float *c;
	int			pivots;
	int			k;
	int			d;
	int		   *pivot_of;		/* [k] */
} PivotJob;

static void
find_pivot(void *arg, int64_t job, int thread)
{
	PivotJob   *p = (PivotJob *) arg;
	double		nearest = DBL_MAX;

	(void) thread;
	/* (No distance is less when all overflow.) */
	p->pivot_of[job] = 0;
	for (int i = 0; i < p->pivots; i++)
	{
		double		d2 = square_distance(p->c + (size_t) i * p->d, p->c + (size_t) job * p->d, p->d);

		if (d2 < nearest)
		{
			nearest = d2;
			p->pivot_of[job] = i;
		}
	}
}

/* ---- rows ---- */

typedef struct SortArgs
{
	GkLabels	labels;
	int			n;
	int			k;
	const int  *pivot_of;		/* [k] */
	int		   *begin;			/* [pivots]: count, then the next place */
	int		   *row;
} SortArgs;

__device__ __forceinline__ int
pivot_of_row(const SortArgs &a, int row)
{
	int			label = a.labels.narrow ? ((const uint8_t *) a.labels.at)[row] : ((const int32_t *) a.labels.at)[row];

	return a.pivot_of[label < 0 || label >= a.k ? 0 : label];
}

/* PLACE: give each row a place; else count the rows of each pivot. */
template <bool PLACE>
__global__ void __launch_bounds__(THREADS)
place_kernel(const __grid_constant__ SortArgs a)
{
	__shared__ int local[GK_GEMM_PIVOTS];
	int			per = (a.n + gridDim.x - 1) / gridDim.x;
	int			from = blockIdx.x * per;
	int			to = min(from + per, a.n);

	for (int i = threadIdx.x; i < GK_GEMM_PIVOTS; i += THREADS)
		local[i] = 0;
	__syncthreads();
	for (int row = from + threadIdx.x; row < to; row += THREADS)
		atomicAdd(&local[pivot_of_row(a, row)], 1);
	__syncthreads();
	for (int i = threadIdx.x; i < GK_GEMM_PIVOTS; i += THREADS)
		if (local[i] > 0)
			local[i] = atomicAdd(a.begin + i, local[i]);
	__syncthreads();
	if (PLACE)
		for (int row = from + threadIdx.x; row < to; row += THREADS)
			a.row[atomicAdd(&local[pivot_of_row(a, row)], 1)] = row;
}

void
gk_gpu_gemm_unsort(GkGemmOrder *o)
{
	cudaFree(o->pivot_at);
	cudaFree(o->copy);
	cudaFree(o->middle);
	cudaFree(o->pivot);
	cudaFree(o->row);
	cudaFree(o->centroid);
	memset(o, 0, sizeof(*o));
	o->pivots = o->copies = 1;
}

/* Of the rows of each pivot: where its tiles begin, and what pivot each tile has. */
static GkStatus
place_tiles(GkSession *s, GkGemmOrder *o, int *count, GkError *err)
{
	int		   *pivot;

	o->places = 0;
	for (int i = 0; i < o->pivots; i++)
	{
		int64_t		rows = gk_round_up(count[i], GK_GEMM_ROWS);

		count[i] = (int) o->places;
		o->places += rows;
	}
	pivot = (int *) s->core->alloc(s->host, (size_t) (o->places / GK_GEMM_ROWS) + 1, sizeof(int));
	if (pivot == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	for (int i = 0; i < o->pivots; i++)
		for (int64_t t = count[i]; t < (i + 1 < o->pivots ? count[i + 1] : o->places); t += GK_GEMM_ROWS)
			pivot[t / GK_GEMM_ROWS] = i;
	{
		cudaError_t e = cudaMalloc((void **) &o->pivot, (size_t) (o->places / GK_GEMM_ROWS) * sizeof(int));

		if (e == cudaSuccess)
			e = cudaMalloc((void **) &o->row, (size_t) o->places * sizeof(int));
		if (e == cudaSuccess)
			e = cudaMemcpyAsync(o->pivot, pivot, (size_t) (o->places / GK_GEMM_ROWS) * sizeof(int), cudaMemcpyHostToDevice,
								s->gpu->stream);
		s->core->free(s->host, pivot);
		if (e != cudaSuccess)
			return gk_gpu_fail(s, e, "order of rows", __FILE__, __LINE__, err);
	}
	return GK_OK;
}

static GkStatus
order_rows(GkSession *s, GkGemm *g, int k, const int *pivot_of, int *count, GkError *err)
{
	GkGemmOrder *o = &g->order;
	SortArgs	a = {{s->delta_labels, k <= GK_NARROW_K}, (int) s->n, k};
	size_t		counts = GK_GEMM_PIVOTS * sizeof(int);

	GK_DO(gk_gpu_scratch(s, counts + (size_t) k * sizeof(int), err));
	a.begin = (int *) s->scratch;
	a.pivot_of = a.begin + GK_GEMM_PIVOTS;
	GK_TRY(cudaMemcpyAsync((int *) a.pivot_of, pivot_of, (size_t) k * sizeof(int), cudaMemcpyHostToDevice, s->gpu->stream));
	GK_TRY(cudaMemsetAsync(a.begin, 0, counts, s->gpu->stream));
	place_kernel<false><<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	GK_TRY(cudaMemcpyAsync(count, a.begin, counts, cudaMemcpyDeviceToHost, s->gpu->stream));
	GK_DO(gk_gpu_drain(s, err));
	GK_DO(place_tiles(s, o, count, err));
	a.row = o->row;
	GK_TRY(cudaMemcpyAsync(a.begin, count, counts, cudaMemcpyHostToDevice, s->gpu->stream));
	GK_TRY(cudaMemsetAsync(o->row, 0xff, (size_t) o->places * sizeof(int), s->gpu->stream));
	place_kernel<true><<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return gk_gpu_drain(s, err);
}

/* Keys of all pivots and columns are made in each pass, and each pivot's rows padded: not too many. */
static int
pivots_of(const GkSession *s, int k)
{
	int64_t		most = gk_min(GK_GEMM_MOST_KEYS / k, s->n / (GK_GEMM_ROWS * GK_GEMM_PIVOT_TILES));

	most = most < 8 ? 8 : gk_min(most, GK_GEMM_PIVOTS);
	return (int) gk_min(k, most);
}

/* What the host makes of the centroids for a sort. */
typedef struct SortPlan
{
	float	   *c;				/* [k][d] */
	double	   *nearest;		/* [k] */
	Group	   *group;			/* [k] */
	float	   *middle;			/* [GK_GEMM_MIDDLES][pitch] */
	int		   *pivot_of;		/* [k] */
	int		   *copy_of;		/* [k] */
	int		   *column;			/* [k]: its centroid */
	int		   *count;			/* [GK_GEMM_PIVOTS] */
} SortPlan;

/* All of it in one piece, which is returned. */
static void *
allocate_plan(const GkSession *s, const GkGemm *g, int k, SortPlan *plan)
{
	size_t		kd = (size_t) k * s->d;
	size_t		middles = (size_t) GK_GEMM_MIDDLES * g->pitch;

	plan->nearest = (double *) s->core->alloc(s->host, k * (sizeof(double) + sizeof(Group) + 3 * sizeof(int)) +
											  (kd + middles) * sizeof(float) + GK_GEMM_PIVOTS * sizeof(int), 1);
	plan->group = (Group *) (plan->nearest + k);
	plan->c = (float *) (plan->group + k);
	plan->middle = plan->c + kd;
	plan->pivot_of = (int *) (plan->middle + middles);
	plan->copy_of = plan->pivot_of + k;
	plan->column = plan->copy_of + k;
	plan->count = plan->column + k;
	return plan->nearest;
}

static GkStatus
sort_by(GkSession *s, GkGemm *g, int k, const SortPlan *plan, GkError *err)
{
	GkGemmOrder *o = &g->order;
	size_t		row = g->pitch * sizeof(float);
	PivotJob	job = {plan->c, pivots_of(s, k), k, s->d, plan->pivot_of};
	int			groups;

	gk_gpu_gemm_unsort(o);
	o->pivots = job.pivots;
	o->columns = k;
	GK_TRY(cudaMemcpyAsync(plan->c, s->centroids, (size_t) k * s->d * sizeof(float), cudaMemcpyDeviceToHost, s->gpu->stream));
	GK_DO(gk_gpu_drain(s, err));
	if (!s->core->parallel_for_long(s->host, k, find_pivot, &job))
		return GK_STOPPED;
	GK_TRY(cudaMalloc((void **) &o->pivot_at, o->pivots * row));
	GK_TRY(cudaMemcpy2DAsync(o->pivot_at, row, plan->c, s->d * sizeof(float), s->d * sizeof(float), o->pivots,
							 cudaMemcpyHostToDevice, s->gpu->stream));
	GK_DO(order_rows(s, g, k, plan->pivot_of, plan->count, err));
	GK_DO(order_columns(s, plan->c, k, &groups, plan->group, plan->nearest));
	for (int i = 0; i < k; i++)
		plan->column[i] = plan->group[i].centroid;
	o->copies = find_middles(s, g, plan->c, k, groups, plan->group, plan->copy_of, plan->middle);
	GK_TRY(cudaMalloc((void **) &o->centroid, (size_t) k * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &o->copy, o->pivots * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &o->middle, o->copies * row));
	GK_TRY(cudaMemcpyAsync(o->centroid, plan->column, (size_t) k * sizeof(int), cudaMemcpyHostToDevice, s->gpu->stream));
	/* A pivot is the centroid of its number. */
	GK_TRY(cudaMemcpyAsync(o->copy, plan->copy_of, o->pivots * sizeof(int), cudaMemcpyHostToDevice, s->gpu->stream));
	GK_TRY(cudaMemcpyAsync(o->middle, plan->middle, o->copies * row, cudaMemcpyHostToDevice, s->gpu->stream));
	return gk_gpu_drain(s, err);
}

GkStatus
gk_gpu_gemm_sort(GkSession *s, GkGemm *g, int k, GkError *err)
{
	SortPlan	plan;
	void	   *memory = allocate_plan(s, g, k, &plan);
	GkStatus	st;

	if (memory == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	st = sort_by(s, g, k, &plan, err);
	s->core->free(s->host, memory);
	return st;
}

/* ---- tiles of columns that are needed ---- */

typedef struct NeedsArgs
{
	const GkGemmBound *bound;	/* [places] */
	int			d;
	int			tiles;
	double		tiny;
	const int  *pivot;
	const int  *count;			/* rows; NULL: all */
	const unsigned int *nearest;
	int		   *needs;
	int		   *need;
} NeedsArgs;

/* A block per tile of rows. */
__global__ void __launch_bounds__(GK_GEMM_ROWS)
needs_kernel(const __grid_constant__ NeedsArgs a)
{
	__shared__ unsigned int length;
	__shared__ unsigned int rest;
	__shared__ unsigned int closest;
	__shared__ int count;
	GkGemmBound mine;
	const unsigned int *nearest;
	double		x;
	double		far;

	if (a.count != NULL && (int) blockIdx.x * GK_GEMM_ROWS >= *a.count)
		return;
	mine = a.bound[(int64_t) blockIdx.x * GK_GEMM_ROWS + threadIdx.x];
	nearest = a.nearest + (int64_t) a.pivot[blockIdx.x] * a.tiles;
	if (threadIdx.x == 0)
	{
		length = rest = 0;
		closest = 0x7f800000;
		count = 0;
	}
	__syncthreads();
	atomicMax(&length, __float_as_uint(mine.length));
	atomicMax(&rest, __float_as_uint(mine.rest));
	for (int t = threadIdx.x; t < a.tiles; t += GK_GEMM_ROWS)
		atomicMin(&closest, nearest[t]);
	__syncthreads();
	/* (nearest[] is rounded down, so the closest is up by as much.) */
	x = (double) __uint_as_float(length) + (double) __uint_as_float(rest);
	far = gk_gemm_out((double) __uint_as_float(closest) * 1.0003 + x, a.d, a.tiny) + x;
	for (int t = threadIdx.x; t < a.tiles; t += GK_GEMM_ROWS)
		if (!((double) __uint_as_float(nearest[t]) > far))
			a.need[(int64_t) blockIdx.x * a.tiles + atomicAdd(&count, 1)] = t;
	__syncthreads();
	if (threadIdx.x == 0)
		a.needs[blockIdx.x] = count;
}

GkStatus
gk_gpu_gemm_needs(GkSession *s, GkGemm *g, const GkGemmBound *bound, const int *pivot, int64_t rows, const int *count,
				  int k, int *needs, int *need, GkError *err)
{
	NeedsArgs	a = {bound, s->d, gk_gemm_tiles(g, k), gk_gemm_tiny(s, g), pivot, count, g->nearest, needs, need};

	needs_kernel<<<(unsigned int) ((rows + GK_GEMM_ROWS - 1) / GK_GEMM_ROWS), GK_GEMM_ROWS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return GK_OK;
}
