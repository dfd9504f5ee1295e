/*
 * gk_gpu_gemm_sort.cu - rows in the order of pivots, columns in the order of groups (gk_gpu_gemm_columns.cu):
 * where points lie in clumps that are far apart, a row is near its pivot, so that little is lost by rounding
 * x - p, and most tiles of columns are too far away to be looked at (gk_gpu_gemm.h, 9).
 *
 * Pivots are the centroids at the time of the sort, or some of them; a row's pivot is the one nearest to the
 * centroid of its last label, or, before the first pass, to the row.  Both orders only decide how much is left out.
 */
#include <stddef.h>
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"
#include "gpu/gk_gpu_gemm.h"

#define THREADS		256
#define FEW_LANES	4

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
	int			label = gk_label_of(a.labels, row);

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

/* k, pivot_of: of the labels. */
static GkStatus
order_rows(GkSession *s, GkGemm *g, GkLabels labels, int k, const int *pivot_of, int *count, GkError *err)
{
	GkGemmOrder *o = &g->order;
	SortArgs	a = {labels, (int) s->n, k};
	size_t		counts = GK_GEMM_PIVOTS * sizeof(int);

	GK_DO(gk_gpu_scratch(s, counts + (size_t) k * sizeof(int), err));
	a.begin = (int *) s->scratch;
	a.pivot_of = a.begin + GK_GEMM_PIVOTS;
	GK_TRY(cudaMemcpyAsync((int *) a.pivot_of, pivot_of, (size_t) k * sizeof(int), cudaMemcpyHostToDevice, s->gpu->stream));
	GK_TRY(cudaMemsetAsync(a.begin, 0, counts, s->gpu->stream));
	place_kernel<false><<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	/* A copy to memory that is not pinned waits for the kernels, and a cancel does not end that wait. */
	GK_DO(gk_gpu_drain(s, err));
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
	int64_t		most = GK_GEMM_MOST_KEYS / k < GK_GEMM_GROUPS ? GK_GEMM_GROUPS : GK_GEMM_MOST_KEYS / k;

	most = gk_min(most, s->n / (GK_GEMM_ROWS * GK_GEMM_PIVOT_TILES));
	most = most < 8 ? 8 : gk_min(most, GK_GEMM_PIVOTS);
	return (int) gk_min(k, most);
}

int
gk_gpu_gemm_first_pivots(const GkSession *s, int k)
{
	int			pivots = pivots_of(s, k);

	return s->d <= GK_GEMM_FIRST_D ? pivots : (int) gk_min(pivots, GK_GEMM_GROUPS);
}

/* Rows of a slice to the pivots in s->packed; arg: their labels, of all rows. */
static GkStatus
label_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	const GkLabels *all = (const GkLabels *) arg;
	GkLabels	labels = {(char *) all->at + rows->first * (all->narrow ? 1 : sizeof(int32_t)), all->narrow};

	return gk_gpu_assign(s, rows, s->gemm->order.pivots, labels, NULL, err);
}

/* The nearest pivot of each row. */
static GkStatus
label_by_pivots(GkSession *s, const GkGemm *g, GkLabels *labels, GkError *err)
{
	int			pivots = g->order.pivots;
	size_t		row = s->d * sizeof(float);

	*labels = {NULL, pivots <= GK_NARROW_K};
	GK_DO(gk_gpu_scratch(s, pivots * row, err));
	GK_TRY(cudaMemcpy2DAsync(s->scratch, row, g->order.pivot_at, g->pitch * sizeof(float), row, pivots, cudaMemcpyDeviceToDevice,
							 s->gpu->stream));
	GK_DO(gk_gpu_pack(s, (const float *) s->scratch, pivots, err));
	GK_DO(gk_gpu_grow(s, (void **) &s->labels, &s->labels_room, (labels->narrow ? s->n / 4 : s->n) + GK_ROW_PAD, sizeof(int32_t),
					  err));
	labels->at = s->labels;
	return gk_gpu_each(s, gk_gpu_slice_rows(s, pivots), label_slice, labels, err);
}

static GkStatus
sort_by(GkSession *s, GkGemm *g, int k, bool by_labels, int *pivot_of, int *count, GkError *err)
{
	GkGemmOrder *o = &g->order;
	GkLabels	labels = {s->delta_labels, k <= GK_NARROW_K};

	gk_gpu_gemm_unsort(o);
	o->columns = k;
	o->pivots = by_labels ? pivots_of(s, k) : gk_gpu_gemm_first_pivots(s, k);
	GK_DO(gk_gpu_gemm_order_columns(s, g, k, err));
	if (by_labels)
	{
		GK_DO(gk_gpu_gemm_nearest_pivots(s, g, k, pivot_of, err));
		return order_rows(s, g, labels, k, pivot_of, count, err);
	}
	GK_DO(label_by_pivots(s, g, &labels, err));
	for (int i = 0; i < o->pivots; i++)
		pivot_of[i] = i;
	return order_rows(s, g, labels, o->pivots, pivot_of, count, err);
}

GkStatus
gk_gpu_gemm_sort(GkSession *s, GkGemm *g, int k, bool by_labels, GkError *err)
{
	int		   *pivot_of = (int *) s->core->alloc(s->host, (size_t) k + GK_GEMM_PIVOTS, sizeof(int));
	GkStatus	st;

	if (pivot_of == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	st = sort_by(s, g, k, by_labels, pivot_of, pivot_of + k, err);
	s->core->free(s->host, pivot_of);
	return st;
}

/* ---- other numbers ---- */

__global__ void __launch_bounds__(THREADS)
number_kernel(const int *was, int k, int *number)
{
	int			i = blockIdx.x * THREADS + threadIdx.x;

	if (i < k)
		number[was[i]] = i;
}

__global__ void __launch_bounds__(THREADS)
numbered_kernel(const int *centroid, const int *number, int k, int *numbered)
{
	int			i = blockIdx.x * THREADS + threadIdx.x;

	if (i < k)
		numbered[i] = number[centroid[i]];
}

GkStatus
gk_gpu_gemm_find_columns(GkSession *s, GkGemm *g, int k, GkError *err)
{
	if (g->has_columns)
		return GK_OK;
	number_kernel<<<(k + THREADS - 1) / THREADS, THREADS, 0, s->gpu->stream>>>(g->order.centroid, k, g->column);
	GK_LAUNCHED();
	g->has_columns = true;
	return GK_OK;
}

GkStatus
gk_gpu_gemm_renumber(GkSession *s, GkGemm *g, int k, const int32_t *stepped, GkError *err)
{
	unsigned int blocks = (k + THREADS - 1) / THREADS;
	int		   *was;
	int		   *number;

	/* Each is another one; so all of them are there, if none is beyond: there were more clusters then. */
	for (int i = 0; i < k; i++)
		if (stepped[i] < 0 || stepped[i] >= k)
			return GK_OK;
	GK_DO(gk_gpu_scratch(s, 2 * (size_t) k * sizeof(int), err));
	was = (int *) s->scratch;
	number = was + k;
	GK_TRY(cudaMemcpyAsync(was, stepped, k * sizeof(int), cudaMemcpyHostToDevice, s->gpu->stream));
	number_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(was, k, number);
	numbered_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(g->order.centroid, number, k, g->numbered);
	GK_LAUNCHED();
	g->is_renumbered = true;
	return GK_OK;
}

/* ---- which tiles of columns are needed ---- */

typedef struct NeedsArgs
{
	int			d;
	int			tiles;
	int			parts;			/* of a tile */
	int			all_parts;
	double		tiny;
	const int  *copy;
	const float *nearest;
	/* Tiles of rows: from `first` on, up to `last`, and no more than hold these rows. */
	int			first;
	int			last;
	const int  *count;			/* in device memory; NULL: all */
	const int  *pivot;
	const GkGemmReach *reach;	/* NULL: of the bounds */
	const GkGemmBound *bound;
	const GkGemmWide *wide;		/* of the same rows, how far their near columns may be; NULL: not wanted */
	GkGemmNeeds *needs;
	int		   *need;
	unsigned long long *counted;	/* parts of the tiles that a sample of tiles of rows needs; NULL: not wanted */
} NeedsArgs;

/* The largest of a tile's rows, a warp's; or, where it is known, of all rows of its bunch that have its pivot. */
__device__ __forceinline__ GkGemmReach
reach_of(const NeedsArgs &a, int tile)
{
	GkGemmReach r = {0, 0};

	if (a.reach != NULL)
	{
		int			from = tile / GK_GEMM_BUNCH * GK_GEMM_BUNCH;

		for (int t = from; t < from + GK_GEMM_BUNCH && t < a.last; t++)
			if (a.pivot[t] == a.pivot[tile])
			{
				r.length = max(r.length, a.reach[t].length);
				r.rest = max(r.rest, a.reach[t].rest);
			}
		return r;
	}
#pragma unroll
	for (int i = 0; i < GK_GEMM_ROWS / 32; i++)
	{
		float2		bound = __ldg((const float2 *) (a.bound + (int64_t) tile * GK_GEMM_ROWS + i * 32 + threadIdx.x % 32));

		r.length = max(r.length, __float_as_uint(bound.x));
		r.rest = max(r.rest, __float_as_uint(bound.y));
	}
	r.length = __reduce_max_sync(0xffffffffu, r.length);
	r.rest = __reduce_max_sync(0xffffffffu, r.rest);
	return r;
}

/* How far a tile's near columns may be; a warp's. */
__device__ __forceinline__ float
reach_of_near(const NeedsArgs &a, int tile)
{
	float		reach = 0.0f;

	for (int i = threadIdx.x % 32; i < GK_GEMM_ROWS; i += 32)
		reach = fmaxf(reach, a.wide[(int64_t) tile * GK_GEMM_ROWS + i].reach);
	return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(reach)));
}

/* LANES for each tile of rows, a warp where its bounds are read. */
template <int LANES>
__global__ void __launch_bounds__(THREADS)
needs_kernel(const __grid_constant__ NeedsArgs a)
{
	gk_await_previous();

	int			at = a.first + (blockIdx.x * THREADS + threadIdx.x) / LANES;
	int			tile = min(at, a.last - 1);	/* for whole warps */
	int			lane = threadIdx.x % LANES;
	int			pivot;
	const float *nearest;
	float		closest = GK_INF;
	GkGemmReach reach;
	double		x;
	double		far;
	int			count = 0;

	if (a.count != NULL && tile * GK_GEMM_ROWS >= *a.count)
		return;
	pivot = a.pivot[tile];
	nearest = a.nearest + (int64_t) pivot * a.all_parts;
	reach = reach_of(a, tile);
	for (int t = lane; t < a.all_parts; t += LANES)
		closest = fminf(closest, nearest[t]);
	for (int o = LANES / 2; o > 0; o /= 2)
		closest = fminf(closest, __shfl_xor_sync(0xffffffffu, closest, o));
	/* (nearest[] is rounded down, by gk_gpu_gemm_round.cu, so the closest is up by more than that.) */
	x = (double) __uint_as_float(reach.length) + (double) __uint_as_float(reach.rest);
	far = gk_gemm_out((double) closest * (1.0003 + 1.1 * (a.d + 4) * 0x1p-24) + x, a.d, a.tiny) + x;
	/* differences below 2^-74 have the square 0, or twice what it is */
	far += sqrt((double) a.d) * 0x1p-73;
	if (a.wide != NULL)
		far = fmax(far, ((double) reach_of_near(a, tile) + x) * (1.0 + 0x1p-40));
	for (int t0 = 0; t0 < a.tiles; t0 += LANES)
	{
		int			t = t0 + lane;
		int			parts = 0;
		unsigned int who;

		for (int i = 0; t < a.tiles && i < a.parts; i++)
			if (!((double) nearest[t * a.parts + i] > far))
				parts |= 1 << i;
		who = __ballot_sync(0xffffffffu, parts != 0) >> threadIdx.x % 32 / LANES * LANES & ~0u >> (32 - LANES);
		if (parts != 0)
			a.need[(int64_t) tile * a.tiles + count + __popc(who & ((1u << lane) - 1))] = t << GK_GEMM_PARTS | parts;
		count += __popc(who);
	}
	if (lane == 0)
		a.needs[tile] = (GkGemmNeeds) {count, pivot, a.copy[pivot], 0};
	if (lane == 0 && at == tile && a.counted != NULL && tile % GK_GEMM_SAMPLE == 0)
		atomicAdd(a.counted, (unsigned long long) count * a.parts);
}

static_assert(offsetof(GkGemmBound, rest) == sizeof(float), "reach_of() reads it as a float2");

static NeedsArgs
needs_args(const GkSession *s, const GkGemm *g, int k)
{
	NeedsArgs	a = {};

	a.d = s->d;
	a.tiles = gk_gemm_tiles(g, k);
	a.parts = gk_gpu_gemm_columns(g->depth) / GK_GEMM_PART;
	a.all_parts = gk_gemm_parts(k);
	a.tiny = gk_gemm_tiny(s, g);
	a.copy = g->order.copy;
	a.nearest = g->nearest;
	return a;
}

static GkStatus
find_needs(GkSession *s, const NeedsArgs &a, GkError *err)
{
	/* Not all of a warp have something to do with few tiles of columns. */
	bool		few = a.reach != NULL && a.tiles <= 2 * FEW_LANES;
	int			each = THREADS / (few ? FEW_LANES : 32);

	GK_TRY(gk_follow(s, few ? needs_kernel<FEW_LANES> : needs_kernel<32>, (a.last - a.first + each - 1) / each, THREADS, 0, a));
	return GK_OK;
}

GkStatus
gk_gpu_gemm_needs(GkSession *s, GkGemm *g, int k, GkError *err)
{
	NeedsArgs	a = needs_args(s, g, k);

	a.last = (int) (g->order.places / GK_GEMM_ROWS);
	a.pivot = g->order.pivot;
	a.reach = g->tile_reach;
	a.counted = &g->state->all.parts;
	a.needs = g->needs;
	a.need = g->need;
	return find_needs(s, a, err);
}

GkStatus
gk_gpu_gemm_gathered_needs(GkSession *s, GkGemm *g, int64_t from, int64_t rows, int k, GkError *err)
{
	NeedsArgs	a = needs_args(s, g, k);

	a.first = (int) (from / GK_GEMM_ROWS);
	a.last = (int) ((from + rows) / GK_GEMM_ROWS);
	a.count = &g->state->gathered;
	a.pivot = g->gathered_pivot;
	a.bound = g->gathered_bound;
	a.wide = g->near_now ? g->wide : NULL;
	a.needs = g->gathered_needs;
	a.need = g->gathered_need;
	return find_needs(s, a, err);
}
