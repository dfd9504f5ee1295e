/*
 * gk_gpu_filter.cu - exact iterations that leave most distances out: up to 24 features, and as
 * many clusters as shared memory has room for their sums.
 *
 * This is the filtering algorithm (Kanungo, Mount, Netanyahu, Piatko, Silverman, Wu, "An efficient k-means
 * clustering algorithm: analysis and implementation", 2002; Pelleg and Moore 1999; Alsabti, Ranka, Singh
 * 1998) with a flat list of boxes in place of a k-d tree.  A second copy of the points is sorted along a
 * Hilbert curve, so that neighbours in it lie in a small box, a tile's; the box and the exact sum of its points
 * are kept.  In an iteration a warp first finds which centroids can be the nearest of any point in the box.
 * Nearly always there are few: one, and the points are not even read; or some, and only these are compared.
 * The last iteration's labels are kept, a tile's where its rows have the same, and only what changed is added
 * to the totals.  Sums are exact integers, so they do not drift and their order does not matter; the labels of
 * the points in their own order are left to the final pass.
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
#define BLOCKS(D)	((D) <= 4 ? 3 : (D) <= 8 ? 2 : 1)	/* of a multiprocessor: as many as registers allow */
#define FEW_MOVES	4			/* of a tile: each by itself takes less than sums of clusters */

/* ---- an iteration ---- */

typedef struct FilterArgs
{
	const float *x;
	const float4 *corner;
	const long long *sum;
	unsigned short *label;
	unsigned short *tile_label;
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

/* Read four features at a time, `stride` vectors apart. */
template <int D>
__device__ __forceinline__ void
read_quads(const float4 *from, int stride, float (&out)[D])
{
#pragma unroll
	for (int j = 0; j < D; j += 4)
	{
		float4		t = from[j / 4 * stride];

		out[j] = t.x;
		if (j + 1 < D)
			out[(j + 1) % D] = t.y;
		if (j + 2 < D)
			out[(j + 2) % D] = t.z;
		if (j + 3 < D)
			out[(j + 3) % D] = t.w;
	}
}

template <int D>
struct Box
{
	float		low[D];
	float		high[D];

	/* The box of all lanes' boxes. */
	__device__ __forceinline__ Box
	joined() const
	{
		Box			all = *this;

#pragma unroll
		for (int j = 0; j < D; j++)
			for (int o = 16; o > 0; o >>= 1)
			{
				all.low[j] = fminf(all.low[j], __shfl_xor_sync(ALL, all.low[j], o));
				all.high[j] = fmaxf(all.high[j], __shfl_xor_sync(ALL, all.high[j], o));
			}
		return all;
	}

	/* The one that lane t has. */
	__device__ __forceinline__ Box
	of(int t) const
	{
		Box			other;

#pragma unroll
		for (int j = 0; j < D; j++)
		{
			other.low[j] = __shfl_sync(ALL, low[j], t);
			other.high[j] = __shfl_sync(ALL, high[j], t);
		}
		return other;
	}
};

/*
 * Copy from a list of m centroids (NULL: all) to `out` those that may be nearest to a point of the box; c:
 * [quads][k].
 */
template <int D>
__device__ __forceinline__ int
keep_near(const float4 *c, int k, const unsigned short *in, int m, const Box<D> &box, float slack, int lane, unsigned short *out)
{
	float		middle[D];
	float		star[D];
	unsigned int best = ALL;
	unsigned int smallest;
	int			near = 0;
	int			kept = 0;

#pragma unroll
	for (int j = 0; j < D; j++)
		middle[j] = 0.5f * (box.low[j] + box.high[j]);
	for (int i = lane; i < m; i += 32)
	{
		int			id = in != NULL ? in[i] : i;
		float		z[D];
		unsigned int d2;

		read_quads<D>(c + id, k, z);
		d2 = __float_as_uint(gk_d2<D>(middle, z));
		if (d2 < best)
		{
			best = d2;
			near = id;
		}
	}
	smallest = __reduce_min_sync(ALL, best);
	near = __shfl_sync(ALL, near, __ffs(__ballot_sync(ALL, best == smallest)) - 1);
	read_quads<D>(c + near, k, star);
	for (int i0 = 0; i0 < m; i0 += 32)
	{
		int			i = i0 + lane;
		bool		keep = false;
		int			id = 0;
		unsigned int who;

		if (i < m)
		{
			float		v[D];
			float		z[D];

			id = in != NULL ? in[i] : i;
			read_quads<D>(c + id, k, z);
#pragma unroll
			for (int j = 0; j < D; j++)
				v[j] = z[j] > star[j] ? box.high[j] : box.low[j];
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

/* Add to a cluster's sums: a feature in each lane and the rows in lane D. */
template <int D>
__device__ __forceinline__ void
add_to(unsigned long long *sums, int cluster, int lane, long long v)
{
	if (lane <= D && v != 0)
		atomicAdd(sums + cluster * (D + 1) + lane, (unsigned long long) v);
}

/* Sums of one cluster while tiles go to it. */
template <int D>
struct Running
{
	int			cluster;
	long long	sum;

	__device__ __forceinline__ void
	flush(unsigned long long *sums, int lane)
	{
		if (cluster >= 0)
			add_to<D>(sums, cluster, lane, sum);
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

/* The tile's sum in the lanes of Running. */
template <int D>
__device__ __forceinline__ long long
total_of(const FilterArgs &a, int64_t tile, int lane)
{
	int64_t		rows = a.n - tile * TILE(D);

	if (lane < D)
		return a.sum[tile * 4 * QUADS(D) + lane];
	return lane == D ? (rows < TILE(D) ? rows : TILE(D)) : 0;
}

/* All rows of a tile, whose label was `was`, go to one cluster. */
template <int D>
__device__ __forceinline__ void
go_together(const FilterArgs &a, int64_t tile, int was, int to, int lane, unsigned long long *sums, Running<D> *run)
{
	long long	total;

	if (was == to)
		return;
	total = total_of<D>(a, tile, lane);
	run->add(sums, lane, to, total);
	if (was != NOWHERE)
		add_to<D>(sums, was, lane, -total);
	if (lane == 0)
		a.tile_label[tile] = (unsigned short) to;
}

/* A tile's rows in the lanes, and the clusters that they leave and enter. */
template <int D>
struct Rows
{
	float		x[P(D)][D];
	unsigned int clusters[P(D)];	/* in its lower and its upper half */

	__device__ __forceinline__ int
	from(int p) const
	{
		return (int) (clusters[p] & 0xffff);
	}

	__device__ __forceinline__ int
	to(int p) const
	{
		return (int) (clusters[p] >> 16);
	}
};

/* Move some rows of `p` one by one: bits of the lanes that have them; inv: of the lane's feature. */
template <int D>
__device__ __forceinline__ void
move_rows(const Rows<D> &rows, int p, unsigned int who, float inv, int lane, unsigned long long *sums)
{
	for (; who != 0; who &= who - 1)
	{
		int			r = __ffs(who) - 1;
		float		v = 0.0f;
		float		hi;
		float		lo;
		long long	mine;

#pragma unroll
		for (int j = 0; j < D; j++)
		{
			float		t = __shfl_sync(ALL, rows.x[p][j], r);

			v = lane == j ? t : v;
		}
		limbs(v, inv, hi, lo);
		mine = lane < D ? (long long) (int) hi * (1 << 20) + (int) lo : 1;
		add_to<D>(sums, __shfl_sync(ALL, rows.to(p), r), lane, mine);
		add_to<D>(sums, __shfl_sync(ALL, rows.from(p), r), lane, -mine);
	}
}

/* Move many rows, cluster by cluster; bits of p in `enter`, and `leave` the same: the lane's rows that do. */
template <int D>
__device__ __forceinline__ void
move_clusters(const Rows<D> &rows, unsigned int enter, float inv, int lane, unsigned long long *sums)
{
	unsigned int leave = enter;
	long long	rest = 0;

	for (;;)
	{
		unsigned int who = __ballot_sync(ALL, (enter | leave) != 0);
		int			cluster = 0;
		long long	mine = 0;
		int			count = 0;
		float		sign[P(D)];

#pragma unroll
		for (int p = P(D) - 1; p >= 0; p--)
		{
			cluster = leave >> p & 1 ? rows.from(p) : cluster;
			cluster = enter >> p & 1 ? rows.to(p) : cluster;
		}
		cluster = __shfl_sync(ALL, cluster, __ffs(who) - 1);
#pragma unroll
		for (int p = 0; p < P(D); p++)
		{
			bool		enters = (enter >> p & 1) != 0 && rows.to(p) == cluster;
			bool		leaves = (leave >> p & 1) != 0 && rows.from(p) == cluster;

			enter &= ~((unsigned int) enters << p);
			leave &= ~((unsigned int) leaves << p);
			count += enters - leaves;
			sign[p] = (float) (enters - leaves);
		}
		/* What others gain, the last one loses. */
		if (!__any_sync(ALL, (enter | leave) != 0))
		{
			add_to<D>(sums, cluster, lane, -rest);
			return;
		}
#pragma unroll
		for (int j = 0; j < D; j++)
		{
			float		each = __shfl_sync(ALL, inv, j);
			float		hi = 0.0f;	/* whole numbers below 2^24 */
			float		lo = 0.0f;
			int			h;
			int			l;

#pragma unroll
			for (int p = 0; p < P(D); p++)
			{
				float		up;
				float		low;

				limbs(rows.x[p][j], each, up, low);
				hi = __fmaf_rn(sign[p], up, hi);
				lo = __fmaf_rn(sign[p], low, lo);
			}
			h = __reduce_add_sync(ALL, (int) hi);
			l = __reduce_add_sync(ALL, (int) lo);
			if (lane == j)
				mine = (long long) h * (1 << 20) + l;
		}
		count = __reduce_add_sync(ALL, count);
		if (lane == D)
			mine = count;
		rest += mine;
		add_to<D>(sums, cluster, lane, mine);
	}
}

/* Compare a tile's rows with m clusters, and move those whose label changes; inv: of the lane's feature. */
template <int D>
__device__ __forceinline__ void
divide(const FilterArgs &a, const float4 *c, const unsigned short *list, int m, int64_t tile, int was, float inv, int lane,
	   unsigned long long *sums, Running<D> *run)
{
	int64_t		row0 = tile * TILE(D) + lane;
	Rows<D>		rows;
	float		best[P(D)];
	int			place[P(D)];	/* in the list */
	int			first;
	int			moves = 0;
	unsigned int moved = 0;		/* bits of p */
	bool		one = true;		/* cluster has all rows */

#pragma unroll
	for (int p = 0; p < P(D); p++)
	{
		int64_t		row = row0 + p * 32;

		fetch<D>(a.x, row < a.n ? row : a.n - 1, rows.x[p]);
		rows.clusters[p] = was == MIXED && row < a.n ? a.label[row] : was;
		best[p] = GK_INF;
		place[p] = 0;
	}
	for (int q = 0; q < m; q++)
	{
		float		z[D];

		read_quads<D>(c + list[q], a.k, z);
#pragma unroll
		for (int p = 0; p < P(D); p++)
		{
			float		d2 = gk_d2<D>(rows.x[p], z);

			if (d2 < best[p])
			{
				best[p] = d2;
				place[p] = q;
			}
		}
	}
#pragma unroll
	for (int p = 0; p < P(D); p++)
		rows.clusters[p] = (unsigned int) list[place[p]] << 16 | (rows.clusters[p] & 0xffff);
	first = __shfl_sync(ALL, rows.to(0), 0);
	if (was == NOWHERE)
		run->add(sums, lane, first, total_of<D>(a, tile, lane));
#pragma unroll
	for (int p = 0; p < P(D); p++)
	{
		bool		here = row0 + p * 32 < a.n;
		bool		moves_on;

		if (was == NOWHERE)
			rows.clusters[p] = (rows.clusters[p] & 0xffff0000) | first;
		one &= !here || rows.to(p) == first;
		moves_on = here && rows.to(p) != rows.from(p);
		moved |= (unsigned int) moves_on << p;
		moves += __popc(__ballot_sync(ALL, moves_on));
	}
	if (moves > FEW_MOVES)
		move_clusters<D>(rows, moved, inv, lane, sums);
	else
#pragma unroll
		for (int p = 0; moves > 0 && p < P(D); p++)
			move_rows<D>(rows, p, __ballot_sync(ALL, moved >> p & 1), inv, lane, sums);
	one = __all_sync(ALL, one);
#pragma unroll
	for (int p = 0; p < P(D); p++)
		if (!one && (moves > 0 || was != MIXED) && row0 + p * 32 < a.n)
			a.label[row0 + p * 32] = (unsigned short) rows.to(p);
	if (lane == 0 && (one || was != MIXED))
		a.tile_label[tile] = (unsigned short) (one ? first : MIXED);
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
	for (int i = threadIdx.x; i < a.k * QUADS(D); i += THREADS)
	{
		int			cluster = i % a.k;
		float		v[4] = {};

#pragma unroll
		for (int j = 0; j < 4; j++)
		{
			int			feature = i / a.k * 4 + j;

			if (feature < D)
				v[j] = a.centroids[cluster * D + feature];
			atomicMax(&far, __float_as_uint(fabsf(v[j])));
		}
		c[i] = make_float4(v[0], v[1], v[2], v[3]);
	}
	for (int i = threadIdx.x; i < a.k * (D + 1); i += THREADS)
		sums[i] = 0;
	__syncthreads();
	{
		double		span = a.reach + (double) __uint_as_float(far);

		return __double2float_ru(1.125 * 4 * (D + 3) * 0x1p-24 * D * span * span);
	}
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
__global__ void __launch_bounds__(THREADS, BLOCKS(D))
filter_kernel(const __grid_constant__ FilterArgs a)
{
	extern __shared__ __align__(16) char raw[];
	float4	   *c = (float4 *) raw;
	unsigned long long *sums = (unsigned long long *) (c + a.k * QUADS(D));
	unsigned short *lists = (unsigned short *) (sums + a.k * (D + 1));
	int			lane = threadIdx.x % 32;
	unsigned short *near_batch = lists + threadIdx.x / 32 * 2 * a.k;
	unsigned short *near_tile = near_batch + a.k;
	unsigned long long work = 0;
	Running<D>	run = {-1, 0};
	float		inv;
	float		slack;

	if (*a.done)
		return;
	slack = prepare<D>(a, c, sums);
	inv = (float) a.inv[min(lane, D - 1)];
	for (;;)
	{
		int64_t		t0 = 0;
		int64_t		own;
		int			tiles;
		Box<D>		box;		/* the lane's tile's */
		int			label;
		int			m;

		/* A warp that is done takes the next tiles: they differ in their work. */
		if (lane == 0)
			t0 = (int64_t) atomicAdd(a.work + 1, (unsigned long long) a.batch);
		t0 = __shfl_sync(ALL, t0, 0);
		if (t0 >= a.tiles)
			break;
		tiles = a.tiles - t0 < a.batch ? (int) (a.tiles - t0) : a.batch;
		own = a.first + t0 + min(lane, tiles - 1);
		read_quads<D>(a.corner + 2 * own * QUADS(D), 1, box.low);
		read_quads<D>(a.corner + (2 * own + 1) * QUADS(D), 1, box.high);
		label = a.tile_label[own];
		__syncwarp();
		m = keep_near<D>(c, a.k, NULL, a.k, box.joined(), slack, lane, near_batch);
		for (int t = 0; t < tiles; t++)
		{
			int64_t		tile = a.first + t0 + t;
			int			was = __shfl_sync(ALL, label, t);
			const unsigned short *list = near_batch;
			int			left = m;

			if (m > 1)
			{
				__syncwarp();
				list = near_tile;
				left = keep_near<D>(c, a.k, near_batch, m, box.of(t), slack, lane, near_tile);
			}
			if (left == 1 && was != MIXED)
				go_together<D>(a, tile, was, list[0], lane, sums, &run);
			else
			{
				divide<D>(a, c, list, left, tile, was, inv, lane, sums, &run);
				work += (unsigned long long) left * TILE(D);
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

/* Clusters that take as long to compare as an iteration without boxes. */
static int
as_many(const GkSession *s, int k)
{
	return s->d > GK_FILTER_SORT_D ? k + GK_FILTER_SORT_K : k;
}

#define KERNELS(D) \
	(const void *) filter_kernel<D>, (const void *) filter_kernel<D + 1>, (const void *) filter_kernel<D + 2>, \
	(const void *) filter_kernel<D + 3>

static const void *const kernels[MOST_D + 1] = {
	NULL, KERNELS(1), KERNELS(5), KERNELS(9), KERNELS(13), KERNELS(17), KERNELS(21)
};

static size_t
shared_bytes(int d, int k)
{
	return (size_t) k * (QUADS(d) * sizeof(float4) + (d + 1) * sizeof(long long) + WARPS * 2 * sizeof(short));
}

static bool
possible(const GkSession *s, int k)
{
	GkSkip		skip = s->host->skip;

	return s->d <= MOST_D && (s->d <= GK_FILTER_NARROW_D || k * s->d * s->d <= GK_FILTER_MAX_WORK) && k >= 2 && k <= MAX_K && k <= s->problem.k_max && !s->pts->weighted && s->resident == s->n &&
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
	if (!b->sorted && !b->off && (s->host->skip == GK_SKIP_ON || (b->waited + 1.0) * as_many(s, k) * s->d >= GK_FILTER_SORT))
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
	a.label = s->filter->label;
	a.tile_label = s->filter->tile_label;
	a.work = s->filter->work;
	a.n = rows->first + rows->rows;
	a.first = rows->first / TILE(s->d);
	a.tiles = tiles_of(rows->rows, s->d);
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
	int64_t		rows = gk_min(gk_gpu_slice_rows(s, k) / MOST_TILE * MOST_TILE, (int64_t) 1 << 28);

	/* the totals are not those of its labels: no row has one */
	if (s->delta_k != -k)
	{
		GK_TRY(cudaMemsetAsync(s->totals, 0, gk_gpu_values(s, k) * sizeof(gk_int128), s->gpu->stream));
		GK_TRY(cudaMemsetAsync(s->filter->tile_label, NOWHERE & 0xff, tiles_of(s->n, s->d) * sizeof(short), s->gpu->stream));
		s->delta_k = -k;
		s->gemm_k = 0;
	}
	GK_TRY(cudaMemsetAsync(s->filter->work, 0, sizeof(long long), s->gpu->stream));
	return gk_gpu_each(s, rows, filter_slice, &k, err);
}

const unsigned long long *
gk_gpu_filter_work(const GkSession *s)
{
	return s->filter->work;
}

void
gk_gpu_filter_judge(GkSession *s, int k, uint64_t work)
{
	if (s->filter != NULL && !s->filter->off && s->host->skip != GK_SKIP_ON &&
		(double) work > (double) s->n * as_many(s, k) * GK_FILTER_MAX_SHARE)
		gk_gpu_filter_off(s->filter);
}
