/*
 * gk_gpu_filter.cu - exact iterations that leave most distances out: up to four features, and as
 * many clusters as shared memory has room for their sums.
 *
 * This is the filtering algorithm (Kanungo, Mount, Netanyahu, Piatko, Silverman, Wu, "An efficient k-means
 * clustering algorithm: analysis and implementation", 2002; Pelleg and Moore 1999; Alsabti, Ranka, Singh
 * 1998) with a flat list of boxes in place of a k-d tree.  A second copy of the points is sorted along a
 * Hilbert curve, so that TILE neighbours in it lie in a small box; the box and the exact sum of its points
 * are kept.  In an iteration a warp first finds which centroids can be the nearest of any point in the box.
 * Nearly always there are few: one, and the tile's sum is all that is needed, its points are not even read;
 * or some, and only these are compared.  Sums are exact integers, so their order does not matter, and labels,
 * the same as ever, are left to the final pass over the points in their own order.
 *
 * Sorting costs as much as some iterations.  It is done after as many iterations as would have paid for it:
 * at worst both together cost twice the best.
 *
 * Why no centroid with the canonical argmin is ever ruled out.  Let u = 2^-24, all
 * |x_j| <= R, all |c_ij| <= C, M = d (R + C)^2 no less than any squared distance D,
 * D~ the canonical one, |D~ - D| <= g D with g = (d + 3) u.  Let z* be any centroid,
 * z another, v the corner of the box that lies farthest in the direction z - z*.
 * D(x, z) - D(x, z*) is linear in x and smallest at v, so for every x of the box it is
 * at least D~(v, z) - D~(v, z*) - 2 g M.  z is never the canonical argmin of x if
 * D~(x, z) > D~(x, z*), for which D(x, z) - D(x, z*) > 2 g M is enough: z is ruled out
 * when D~(v, z) - D~(v, z*) > 4 g M, with an eighth added for the roundings of this
 * comparison.  Infinities and what is no number rule nothing out.
 */
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_filter.cuh"

#define MAX_BATCH	16			/* tiles that a warp first looks at as one */
#define MAX_K		2048

/* ---- an iteration ---- */

typedef struct FilterArgs
{
	const float *x;
	const float4 *corner;
	const long long *sum;
	unsigned long long *work;
	int64_t		n;
	int64_t		first;			/* tile */
	int64_t		tiles;
	int			batch;			/* tiles that a warp takes at a time */
	int			k;
	double		reach;			/* of the points: R */
	const float *centroids;
	GkAcc		acc;
	const double *inv;
	const int  *done;
} FilterArgs;

/* Copy from a list of m centroids (NULL: all) to `out` those that may be nearest to a point of the box. */
template <int D>
__device__ __forceinline__ int
keep_near(const float4 *c, const unsigned short *in, int m, const float4 &low, const float4 &high, float slack, int lane,
	   unsigned short *out)
{
	float		lows[4] = {low.x, low.y, low.z, low.w};
	float		highs[4] = {high.x, high.y, high.z, high.w};
	float		middle[D];
	unsigned int best = ALL;
	unsigned int smallest;
	int			near = 0;
	int			kept = 0;
	float4		star;

#pragma unroll
	for (int j = 0; j < D; j++)
		middle[j] = 0.5f * (lows[j] + highs[j]);
	for (int i = lane; i < m; i += 32)
	{
		int			id = in != NULL ? in[i] : i;
		unsigned int d2 = __float_as_uint(gk_d2<D>(middle, c[id]));

		if (d2 < best)
		{
			best = d2;
			near = id;
		}
	}
	smallest = __reduce_min_sync(ALL, best);
	near = __shfl_sync(ALL, near, __ffs(__ballot_sync(ALL, best == smallest)) - 1);
	star = c[near];
	for (int i0 = 0; i0 < m; i0 += 32)
	{
		int			i = i0 + lane;
		bool		keep = false;
		int			id = 0;
		unsigned int who;

		if (i < m)
		{
			float		q[4];
			float		s[4] = {star.x, star.y, star.z, star.w};
			float		v[D];
			float4		z;

			id = in != NULL ? in[i] : i;
			z = c[id];
			q[0] = z.x;
			q[1] = z.y;
			q[2] = z.z;
			q[3] = z.w;
#pragma unroll
			for (int j = 0; j < D; j++)
				v[j] = q[j] > s[j] ? highs[j] : lows[j];
			keep = !(__fsub_rn(gk_d2<D>(v, z), gk_d2<D>(v, star)) > slack);
		}
		who = __ballot_sync(ALL, keep);
		if (keep)
			out[kept + __popc(who & ((1u << lane) - 1))] = (unsigned short) id;
		kept += __popc(who);
	}
	__syncwarp();
	return kept;
}

/* Sums of one cluster, a feature in each lane and the rows in lane D, while tiles go to it. */
template <int D>
struct Running
{
	int			cluster;
	long long	sum;

	__device__ __forceinline__ void
	flush(unsigned long long *sums, int lane)
	{
		if (cluster >= 0 && lane <= D && sum != 0)
			atomicAdd(sums + cluster * (D + 1) + lane, (unsigned long long) sum);
		sum = 0;
	}

	__device__ __forceinline__ void
	add(unsigned long long *sums, int lane, int to, long long v)
	{
		if (to != cluster)
		{
			flush(sums, lane);
			cluster = to;
		}
		sum += v;
	}
};

/* Compare a tile's rows with m clusters and add them; total is the tile's sum, in the lanes of Running. */
template <int D>
__device__ __forceinline__ void
divide(const FilterArgs &a, const float4 *c, const unsigned short *list, int m, int64_t tile, const float (&inv)[D], int lane,
	   long long total, unsigned long long *sums, Running<D> *run)
{
	float		x[P][D];
	float		best[P];
	int			place[P];
	unsigned int present = 0;
	int			last;

#pragma unroll
	for (int p = 0; p < P; p++)
	{
		int64_t		row = tile * TILE + p * 32 + lane;

		fetch<D>(a.x, row < a.n ? row : a.n - 1, x[p]);
		best[p] = GK_INF;
		place[p] = 0;
	}
	for (int q = 0; q < m; q++)
	{
		float4		z = c[list[q]];

#pragma unroll
		for (int p = 0; p < P; p++)
		{
			float		d2 = gk_d2<D>(x[p], z);

			if (d2 < best[p])
			{
				best[p] = d2;
				place[p] = q;
			}
		}
	}
#pragma unroll
	for (int p = 0; p < P; p++)
	{
		if (tile * TILE + p * 32 + lane >= a.n)
			place[p] = -1;
		else
			present |= 1u << min(place[p], 31);
	}
	present = __reduce_or_sync(ALL, present);
	last = present >> 31 != 0 ? m - 1 : 31 - __clz(present);
	/* The last cluster gets what the others leave of the total. */
	for (int q = 0; q < last; q++)
	{
		long long	mine = 0;
		int			rows = 0;

		if (q < 31 && (present >> q & 1) == 0)
			continue;
#pragma unroll
		for (int p = 0; p < P; p++)
			rows += place[p] == q;
#pragma unroll
		for (int j = 0; j < D; j++)
		{
			float		hi = 0.0f;	/* whole numbers below 2^24 */
			float		lo = 0.0f;
			int			h;
			int			l;

#pragma unroll
			for (int p = 0; p < P; p++)
			{
				float		up;
				float		rest;

				limbs(x[p][j], inv[j], up, rest);
				hi += place[p] == q ? up : 0.0f;
				lo += place[p] == q ? rest : 0.0f;
			}
			h = __reduce_add_sync(ALL, (int) hi);
			l = __reduce_add_sync(ALL, (int) lo);
			if (lane == j)
				mine = (long long) h * (1 << 20) + l;
		}
		rows = __reduce_add_sync(ALL, rows);
		if (lane == D)
			mine = rows;
		total -= mine;
		run->add(sums, lane, list[q], mine);
	}
	run->add(sums, lane, list[last], total);
}

/* Centroids into shared memory, sums cleared; returns 4.5 g M, see above. */
template <int D>
__device__ __forceinline__ float
prepare(const FilterArgs &a, float4 *c, unsigned long long *sums)
{
	__shared__ unsigned int far;	/* bits of C */

	if (threadIdx.x == 0)
		far = 0;
	__syncthreads();
	for (int i = threadIdx.x; i < a.k; i += THREADS)
	{
		float		q[4] = {0.0f, 0.0f, 0.0f, 0.0f};

#pragma unroll
		for (int j = 0; j < D; j++)
		{
			q[j] = a.centroids[i * D + j];
			atomicMax(&far, __float_as_uint(fabsf(q[j])));
		}
		c[i] = make_float4(q[0], q[1], q[2], q[3]);
	}
	for (int i = threadIdx.x; i < a.k * (D + 1); i += THREADS)
		sums[i] = 0;
	__syncthreads();
	{
		double		span = a.reach + (double) __uint_as_float(far);

		return __double2float_ru(1.125 * 4 * (D + 3) * 0x1p-24 * D * span * span);
	}
}

/* The box of all lanes' boxes. */
__device__ __forceinline__ void
join_boxes(float4 &low, float4 &high)
{
	for (int o = 16; o > 0; o >>= 1)
	{
		low.x = fminf(low.x, __shfl_xor_sync(ALL, low.x, o));
		low.y = fminf(low.y, __shfl_xor_sync(ALL, low.y, o));
		low.z = fminf(low.z, __shfl_xor_sync(ALL, low.z, o));
		low.w = fminf(low.w, __shfl_xor_sync(ALL, low.w, o));
		high.x = fmaxf(high.x, __shfl_xor_sync(ALL, high.x, o));
		high.y = fmaxf(high.y, __shfl_xor_sync(ALL, high.y, o));
		high.z = fmaxf(high.z, __shfl_xor_sync(ALL, high.z, o));
		high.w = fmaxf(high.w, __shfl_xor_sync(ALL, high.w, o));
	}
}

/* The corner that lane t has. */
__device__ __forceinline__ float4
corner_of(const float4 &v, int t)
{
	return make_float4(__shfl_sync(ALL, v.x, t), __shfl_sync(ALL, v.y, t), __shfl_sync(ALL, v.z, t),
					   __shfl_sync(ALL, v.w, t));
}

/* A block's sums into the accumulators. */
template <int D>
__device__ __forceinline__ void
store(const FilterArgs &a, const unsigned long long *sums)
{
	for (int i = threadIdx.x; i < a.k * (D + 1); i += THREADS)
	{
		long long	v = (long long) sums[i];
		int			j = i % (D + 1);

		if (v == 0)
			continue;
		if (j < D)
			gk_acc_add(a.acc, (int64_t) i / (D + 1) * D + j, v);
		else
			gk_red(a.acc.a + (int64_t) a.k * D + i / (D + 1), v);
	}
}

template <int D>
__global__ void __launch_bounds__(THREADS)
filter_kernel(const __grid_constant__ FilterArgs a)
{
	extern __shared__ __align__(16) char raw[];
	float4	   *c = (float4 *) raw;
	unsigned long long *sums = (unsigned long long *) (c + a.k);
	unsigned short *lists = (unsigned short *) (sums + a.k * (D + 1));
	int			lane = threadIdx.x % 32;
	unsigned short *near_batch = lists + threadIdx.x / 32 * 2 * a.k;
	unsigned short *near_tile = near_batch + a.k;
	unsigned long long work = 0;
	Running<D>	run = {-1, 0};
	float		inv[D];
	float		slack;

	if (*a.done)
		return;
	slack = prepare<D>(a, c, sums);
#pragma unroll
	for (int j = 0; j < D; j++)
		inv[j] = (float) a.inv[j];
	for (;;)
	{
		int64_t		t0 = 0;
		int64_t		own;
		int			tiles;
		float4		low;		/* the lane's tile's box */
		float4		high;
		float4		batch_low;
		float4		batch_high;
		int			m;

		/* A warp that is done takes the next tiles: they differ in their work. */
		if (lane == 0)
			t0 = (int64_t) atomicAdd(a.work + 1, (unsigned long long) a.batch);
		t0 = __shfl_sync(ALL, t0, 0);
		if (t0 >= a.tiles)
			break;
		tiles = a.tiles - t0 < a.batch ? (int) (a.tiles - t0) : a.batch;
		own = a.first + t0 + min(lane, tiles - 1);
		batch_low = low = a.corner[2 * own];
		batch_high = high = a.corner[2 * own + 1];
		join_boxes(batch_low, batch_high);
		__syncwarp();
		m = keep_near<D>(c, NULL, a.k, batch_low, batch_high, slack, lane, near_batch);
		for (int t = 0; t < tiles; t++)
		{
			int64_t		tile = a.first + t0 + t;
			long long	total = lane < D ? a.sum[tile * 4 + lane] : 0;
			int			rows = a.n - tile * TILE < TILE ? (int) (a.n - tile * TILE) : TILE;
			int			left = m;

			if (lane == D)
				total = rows;
			if (m > 1)
			{
				float4		tile_low = corner_of(low, t);
				float4		tile_high = corner_of(high, t);

				__syncwarp();
				left = keep_near<D>(c, near_batch, m, tile_low, tile_high, slack, lane, near_tile);
			}
			if (left == 1)
				run.add(sums, lane, (m > 1 ? near_tile : near_batch)[0], total);
			else
			{
				divide<D>(a, c, near_tile, left, tile, inv, lane, total, sums, &run);
				work += (unsigned long long) left * rows;
			}
		}
	}
	run.flush(sums, lane);
	if (lane == 0 && work != 0)
		atomicAdd(a.work, work);
	__syncthreads();
	store<D>(a, sums);
}

/* ---- launchers ---- */

static const void *const kernels[5] = {
	NULL,
	(const void *) filter_kernel<1>, (const void *) filter_kernel<2>,
	(const void *) filter_kernel<3>, (const void *) filter_kernel<4>,
};

static size_t
shared_bytes(int d, int k)
{
	return (size_t) k * (sizeof(float4) + (d + 1) * sizeof(long long) + WARPS * 2 * sizeof(short));
}

static bool
possible(const GkSession *s, int k)
{
	GkSkip		skip = s->host->skip;

	return s->d <= 4 && k >= 2 && k <= MAX_K && k <= s->problem.k_max && !s->pts->weighted && s->resident == s->n &&
		skip != GK_SKIP_OFF && (skip == GK_SKIP_ON || s->n >= GK_FILTER_MIN_ROWS) &&
		s->problem.strategy == GK_STRATEGY_AUTO && s->problem.feature_sum == GK_FSUM_AUTO &&
		s->problem.mass_sum == GK_MSUM_AUTO && shared_bytes(s->d, k) + 1024 <= s->gpu->shared_optin;
}

GkStatus
gk_gpu_filter_ready(GkSession *s, int k, bool *ready, GkError *err)
{
	GkFilter   *b;

	*ready = false;
	if (!possible(s, k))
		return GK_OK;
	if (s->filter == NULL)
	{
		s->filter = (GkFilter *) s->core->alloc(s->host, 1, sizeof(GkFilter));
		if (s->filter == NULL)
			return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
		memset(s->filter, 0, sizeof(GkFilter));
	}
	b = s->filter;
	if (!b->sorted && !b->off && (s->host->skip == GK_SKIP_ON || (int64_t) b->waited * k * s->d >= GK_FILTER_SORT))
		GK_DO(gk_gpu_filter_build(s, k, b, err));
	b->waited++;
	*ready = b->sorted && !b->off;
	return GK_OK;
}

static GkStatus
filter_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	int			k = *(int *) arg;
	const void *kernel = kernels[s->d];
	size_t		shared = shared_bytes(s->d, k);
	FilterArgs	a;
	int64_t		resident;

	a.x = s->filter->x;
	a.corner = s->filter->corner;
	a.sum = s->filter->sum;
	a.work = s->filter->work;
	a.n = rows->first + rows->rows;
	a.first = rows->first / TILE;
	a.tiles = tiles_of(rows->rows);
	a.k = k;
	a.reach = gk_pow2(gk_gpu_top_expo(s));
	a.centroids = s->centroids;
	a.acc = s->acc;
	a.inv = s->columns.inv;
	a.done = s->done;
	GK_TRY(cudaMemsetAsync(s->filter->work + 1, 0, sizeof(long long), s->gpu->stream));
	GK_DO(gk_gpu_resident_blocks(s, kernel, THREADS, shared, &resident, err));
	/* At least four rounds for every warp, so that all end at about the same time. */
	a.batch = MAX_BATCH;
	while (a.batch > 1 && a.tiles < a.batch * WARPS * resident * 4)
		a.batch /= 2;
	GK_DO(gk_gpu_launch(s, kernel, (a.tiles + WARPS * a.batch - 1) / (WARPS * a.batch), THREADS, shared, &a, err));
	return gk_gpu_reduce(s, k, err);
}

GkStatus
gk_gpu_filter_pass(GkSession *s, int k, GkError *err)
{
	/* No block's sums can be full. */
	int64_t		rows = gk_min(gk_gpu_slice_rows(s, k) / TILE * TILE, (int64_t) 1 << 28);

	GK_TRY(cudaMemsetAsync(s->totals, 0, gk_gpu_values(s, k) * sizeof(gk_int128), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(s->filter->work, 0, sizeof(long long), s->gpu->stream));
	return gk_gpu_each(s, rows, filter_slice, &k, err);
}

GkStatus
gk_gpu_filter_log(GkSession *s, GkLogHead *head, GkError *err)
{
	GK_TRY(cudaMemcpyAsync(&head->work, s->filter->work, sizeof(head->work), cudaMemcpyDeviceToDevice, s->gpu->stream));
	return GK_OK;
}

void
gk_gpu_filter_judge(GkSession *s, int k, uint64_t work)
{
	if (s->filter != NULL && !s->filter->off && s->host->skip != GK_SKIP_ON &&
		(double) work > (double) s->n * k * GK_FILTER_MAX_SHARE)
		gk_gpu_filter_off(s->filter);
}
