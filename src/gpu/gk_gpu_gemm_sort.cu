/*
 * gk_gpu_gemm_sort.cu - rows in the order of pivots, columns in the order of groups (gk_gpu_gemm_columns.cu):
 * where points lie in clumps that are far apart, a row is near its pivot, so that little is lost by rounding
 * x - p, and most tiles of columns are too far away to be looked at (gk_gpu_gemm.h, 6).
 *
 * Pivots are the centroids at the time of the sort, or the first of them; a row's pivot is the one
 * nearest to the centroid of its last label.  Both orders only decide how much is left out.
 */
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"

#define THREADS		256

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

static GkStatus
sort_by(GkSession *s, GkGemm *g, int k, int *pivot_of, int *count, GkError *err)
{
	GkGemmOrder *o = &g->order;
	size_t		row = g->pitch * sizeof(float);

	gk_gpu_gemm_unsort(o);
	o->pivots = pivots_of(s, k);
	o->columns = k;
	GK_DO(gk_gpu_gemm_nearest_pivots(s, g, k, o->pivots, pivot_of, err));
	GK_TRY(cudaMalloc((void **) &o->pivot_at, o->pivots * row));
	GK_TRY(cudaMemcpy2DAsync(o->pivot_at, row, s->centroids, s->d * sizeof(float), s->d * sizeof(float), o->pivots,
							 cudaMemcpyDeviceToDevice, s->gpu->stream));
	GK_DO(order_rows(s, g, k, pivot_of, count, err));
	return gk_gpu_gemm_order_columns(s, g, k, err);
}

GkStatus
gk_gpu_gemm_sort(GkSession *s, GkGemm *g, int k, GkError *err)
{
	int		   *pivot_of = (int *) s->core->alloc(s->host, (size_t) k + GK_GEMM_PIVOTS, sizeof(int));
	GkStatus	st;

	if (pivot_of == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	st = sort_by(s, g, k, pivot_of, pivot_of + k, err);
	s->core->free(s->host, pivot_of);
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
