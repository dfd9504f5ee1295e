/*
 * gk_gpu_boxes.cu - exact iterations that leave most distances out: up to four
 * features, any number of clusters whose sums fit shared memory.
 *
 * This is the filtering algorithm (Kanungo, Mount, Netanyahu, Piatko, Silverman,
 * Wu, "An efficient k-means clustering algorithm: analysis and implementation",
 * 2002; Pelleg and Moore 1999; Alsabti, Ranka, Singh 1998) with a flat list of
 * boxes in place of a k-d tree.  A second copy of the points is sorted along a
 * Hilbert curve, so that TILE neighbours in it lie in a small box; the box and the
 * exact sum of its points are kept.  In an iteration a warp first finds which
 * centroids can be the nearest of any point in the box.  Nearly always there are few:
 * one, and the tile's sum is all that is needed, its points are not even read; or
 * some, and only these are compared.  Sums are exact integers, so their order does
 * not matter, and labels, the same as ever, are left to the final pass over the
 * points in their own order.
 *
 * Sorting costs as much as some iterations.  It is done when so many have been run
 * without it that it would have paid: at worst both together cost twice the best.
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

#include <cub/device/device_radix_sort.cuh>

#include "gpu/gk_gpu_device.cuh"

#define TILE		256			/* rows of a box */
#define P			(TILE / 32)	/* points of a lane */
#define THREADS		256
#define WARPS		(THREADS / 32)
#define TOGETHER	16			/* tiles, at most, that a warp first screens as one */
#define SORT_ROWS	((size_t) 1 << 28)	/* sorted at a time, at most */
#define LEAST_ROWS	((int64_t) 1 << 20)	/* with fewer, launches take the time */
#define PRICE		2500		/* sorting costs as much as so many distances of a feature, per row */
#define MOST_K		2048
#define ALL			0xffffffffu

/* ---- the sorted copy ---- */

struct GkBoxes
{
	float	   *x;				/* [n][d] */
	float4	   *corner;			/* [tiles][2]: least and largest coordinates */
	long long  *sum;			/* [tiles][4], units of 2^(expo - 40) */
	unsigned long long *work;	/* distances of points computed in this iteration; the next tiles */
	float	   *range;			/* [2][4]: origin and cells per unit of the curve */
	bool		sorted;
	bool		off;			/* not wanted, or not worth it */
	int			waited;			/* iterations without it */
};

template <int D>
__device__ __forceinline__ void
fetch(const float *x, int64_t row, float (&out)[D])
{
	if (D == 4)
	{
		float4		t = __ldcs((const float4 *) x + row);

		out[0] = t.x;
		out[1 % D] = t.y;
		out[2 % D] = t.z;
		out[3 % D] = t.w;
	}
	else if (D == 2)
	{
		float2		t = __ldcs((const float2 *) x + row);

		out[0] = t.x;
		out[1 % D] = t.y;
	}
	else
	{
#pragma unroll
		for (int j = 0; j < D; j++)
			out[j] = __ldcs(x + row * D + j);
	}
}

template <int D>
__device__ __forceinline__ void
put(float *x, int64_t row, const float (&v)[D])
{
	if (D == 4)
		((float4 *) x)[row] = make_float4(v[0], v[1 % D], v[2 % D], v[3 % D]);
	else if (D == 2)
		((float2 *) x)[row] = make_float2(v[0], v[1 % D]);
	else
	{
#pragma unroll
		for (int j = 0; j < D; j++)
			x[row * D + j] = v[j];
	}
}

/* The centroids' own range and half as much again: points far out share the last cells. */
__global__ void
range_kernel(const float *c, int k, int d, int bits, float *range)
{
	int			j = threadIdx.x;

	if (j < d)
	{
		float		least = c[j];
		float		most = c[j];
		float		width;

		for (int i = 1; i < k; i++)
		{
			least = fminf(least, c[i * d + j]);
			most = fmaxf(most, c[i * d + j]);
		}
		width = most - least;
		range[j] = least - 0.25f * width;
		range[4 + j] = width > 0.0f ? (float) (1 << bits) / (1.5f * width) : 0.0f;
	}
}

/*
 * Place of a cell on a Hilbert curve of so many bits per coordinate (Skilling,
 * "Programming the Hilbert curve", 2004).
 */
template <int D, int BITS>
__device__ __forceinline__ unsigned int
hilbert(unsigned int (&x)[D])
{
	unsigned int key = 0;
	unsigned int t = 0;

#pragma unroll
	for (int b = BITS - 1; b > 0; b--)
	{
		unsigned int below = (1u << b) - 1;

#pragma unroll
		for (int j = 0; j < D; j++)
		{
			unsigned int swap = (x[0] ^ x[j]) & below;
			bool		set = x[j] >> b & 1;

			x[j] ^= set ? 0 : swap;
			x[0] ^= set ? below : swap;
		}
	}
#pragma unroll
	for (int j = 1; j < D; j++)
		x[j] ^= x[j - 1];
#pragma unroll
	for (int b = BITS - 1; b > 0; b--)
		t ^= x[D - 1] >> b & 1 ? (1u << b) - 1 : 0;
#pragma unroll
	for (int b = BITS - 1; b >= 0; b--)
#pragma unroll
		for (int j = 0; j < D; j++)
			key = key << 1 | ((x[j] ^ t) >> b & 1);
	return key;
}

/* Rows side by side, and each one's place on the curve. */
template <int D>
__global__ void __launch_bounds__(THREADS)
key_kernel(GkRows p, const float *range, float *x, unsigned int *key, unsigned int *row)
{
	constexpr int bits = D == 1 ? 24 : 32 / D;

	for (int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x; i < p.rows; i += (int64_t) gridDim.x * THREADS)
	{
		unsigned int cell[D];
		float		v[D];

#pragma unroll
		for (int j = 0; j < D; j++)
		{
			v[j] = __ldg(p.x + j * p.ld + i);
			cell[j] = (unsigned int) fminf(fmaxf((v[j] - range[j]) * range[4 + j], 0.0f), (float) ((1 << bits) - 1));
		}
		put<D>(x, i, v);
		key[i] = hilbert<D, bits>(cell);
		row[i] = (unsigned int) i;
	}
}

/* A value as two integers, x = (hi * 2^20 + lo) * 2^(expo - 40), |hi| <= 2^20 > lo >= 0. */
__device__ __forceinline__ void
limbs(float x, float inv, float &hi, float &lo)
{
	float		v = __fmul_rn(x, inv);

	hi = __fsub_rn(__fmaf_rd(v, 0x1p-20f, 0x1.8p23f), 0x1.8p23f);
	lo = __fmaf_rn(hi, -0x1p20f, v);
}

/* A warp per tile: bring its rows together, find their box and sum. */
template <int D>
__global__ void __launch_bounds__(THREADS)
gather_kernel(int64_t rows, int64_t first, const float *rows_x, const unsigned int *from, const double *inv, float *x,
			  float4 *corner, long long *sum)
{
	int			lane = threadIdx.x % 32;
	int64_t		tile = (int64_t) blockIdx.x * WARPS + threadIdx.x / 32;
	float		least[4] = {0.0f, 0.0f, 0.0f, 0.0f};
	float		most[4] = {0.0f, 0.0f, 0.0f, 0.0f};
	float		hi[D];
	float		lo[D];

	if (tile * TILE >= rows)
		return;
#pragma unroll
	for (int j = 0; j < D; j++)
	{
		least[j] = GK_INF;
		most[j] = -GK_INF;
		hi[j] = lo[j] = 0.0f;
	}
#pragma unroll
	for (int i = 0; i < P; i++)
	{
		int64_t		row = tile * TILE + i * 32 + lane;
		float		v[D];

		if (row >= rows)
			continue;
		fetch<D>(rows_x, from[row], v);
		put<D>(x, first + row, v);
#pragma unroll
		for (int j = 0; j < D; j++)
		{
			float		h;
			float		l;

			least[j] = fminf(least[j], v[j]);
			most[j] = fmaxf(most[j], v[j]);
			limbs(v[j], (float) inv[j], h, l);
			hi[j] += h;
			lo[j] += l;
		}
	}
	tile += first / TILE;
#pragma unroll
	for (int j = 0; j < D; j++)
	{
		long long	total = (long long) __reduce_add_sync(ALL, (int) hi[j]) * (1 << 20) + __reduce_add_sync(ALL, (int) lo[j]);

		for (int o = 16; o > 0; o >>= 1)
		{
			least[j] = fminf(least[j], __shfl_xor_sync(ALL, least[j], o));
			most[j] = fmaxf(most[j], __shfl_xor_sync(ALL, most[j], o));
		}
		if (lane == 0)
			sum[tile * 4 + j] = total;
	}
	if (lane == 0)
	{
		corner[2 * tile] = make_float4(least[0], least[1], least[2], least[3]);
		corner[2 * tile + 1] = make_float4(most[0], most[1], most[2], most[3]);
	}
}

/* ---- an iteration ---- */

typedef struct BoxArgs
{
	const float *x;
	const float4 *corner;
	const long long *sum;
	unsigned long long *work;
	int64_t		n;
	int64_t		first;			/* tile */
	int64_t		tiles;
	int			together;
	int			k;
	double		reach;			/* of the points: R */
	const float *centroids;
	GkAcc		acc;
	const double *inv;
	const int  *done;
} BoxArgs;

template <int D>
__device__ __forceinline__ float
distance(const float (&x)[D], const float4 &c)
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

/* Of the m centroids of a list (NULL: all), those that a point in the box may be nearest to. */
template <int D>
__device__ __forceinline__ int
filter(const float4 *c, const unsigned short *in, int m, const float4 &low, const float4 &high, float slack, int lane,
	   unsigned short *out)
{
	float		least[4] = {low.x, low.y, low.z, low.w};
	float		most[4] = {high.x, high.y, high.z, high.w};
	float		middle[D];
	unsigned int best = ALL;
	unsigned int smallest;
	int			near = 0;
	int			kept = 0;
	float4		star;

#pragma unroll
	for (int j = 0; j < D; j++)
		middle[j] = 0.5f * (least[j] + most[j]);
	for (int i = lane; i < m; i += 32)
	{
		int			id = in != NULL ? in[i] : i;
		unsigned int d2 = __float_as_uint(distance<D>(middle, c[id]));

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
				v[j] = q[j] > s[j] ? most[j] : least[j];
			keep = !(__fsub_rn(distance<D>(v, z), distance<D>(v, star)) > slack);
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

/* A tile that lies between m clusters: total is its sum, in the lanes of Running. */
template <int D>
__device__ __forceinline__ void
divide(const BoxArgs &a, const float4 *c, const unsigned short *list, int m, int64_t tile, const float (&inv)[D], int lane,
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
			float		d2 = distance<D>(x[p], z);

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
	/* The last of them gets what the others leave. */
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

template <int D>
__global__ void __launch_bounds__(THREADS)
boxes_kernel(const __grid_constant__ BoxArgs a)
{
	extern __shared__ __align__(16) char raw[];
	float4	   *c = (float4 *) raw;
	unsigned long long *sums = (unsigned long long *) (c + a.k);
	unsigned short *lists = (unsigned short *) (sums + a.k * (D + 1));
	__shared__ unsigned int far;	/* bits of C */
	int			lane = threadIdx.x % 32;
	int			warp = threadIdx.x / 32;
	unsigned short *some = lists + warp * 2 * a.k;
	unsigned short *few = some + a.k;
	unsigned long long work = 0;
	Running<D>	run = {-1, 0};
	float		inv[D];
	float		slack;

	if (*a.done)
		return;
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
#pragma unroll
	for (int j = 0; j < D; j++)
		inv[j] = (float) a.inv[j];
	__syncthreads();
	{
		double		most = a.reach + (double) __uint_as_float(far);

		slack = __double2float_ru(1.125 * 4 * (D + 3) * 0x1p-24 * D * most * most);
	}
	for (;;)
	{
		int64_t		t0 = 0;
		int64_t		own;
		int			tiles;
		float4		low;
		float4		high;
		float4		least;
		float4		most;
		int			m;

		/* Who is done takes the next: tiles differ in their work. */
		if (lane == 0)
			t0 = (int64_t) atomicAdd(a.work + 1, (unsigned long long) a.together);
		t0 = __shfl_sync(ALL, t0, 0);
		if (t0 >= a.tiles)
			break;
		tiles = a.tiles - t0 < a.together ? (int) (a.tiles - t0) : a.together;
		own = a.first + t0 + min(lane, tiles - 1);
		least = low = a.corner[2 * own];
		most = high = a.corner[2 * own + 1];
		for (int o = 16; o > 0; o >>= 1)
		{
			least.x = fminf(least.x, __shfl_xor_sync(ALL, least.x, o));
			least.y = fminf(least.y, __shfl_xor_sync(ALL, least.y, o));
			least.z = fminf(least.z, __shfl_xor_sync(ALL, least.z, o));
			least.w = fminf(least.w, __shfl_xor_sync(ALL, least.w, o));
			most.x = fmaxf(most.x, __shfl_xor_sync(ALL, most.x, o));
			most.y = fmaxf(most.y, __shfl_xor_sync(ALL, most.y, o));
			most.z = fmaxf(most.z, __shfl_xor_sync(ALL, most.z, o));
			most.w = fmaxf(most.w, __shfl_xor_sync(ALL, most.w, o));
		}
		__syncwarp();
		m = filter<D>(c, NULL, a.k, least, most, slack, lane, some);
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
				least = make_float4(__shfl_sync(ALL, low.x, t), __shfl_sync(ALL, low.y, t),
									__shfl_sync(ALL, low.z, t), __shfl_sync(ALL, low.w, t));
				most = make_float4(__shfl_sync(ALL, high.x, t), __shfl_sync(ALL, high.y, t),
								   __shfl_sync(ALL, high.z, t), __shfl_sync(ALL, high.w, t));
				__syncwarp();
				left = filter<D>(c, some, m, least, most, slack, lane, few);
			}
			if (left == 1)
				run.add(sums, lane, (m > 1 ? few : some)[0], total);
			else
			{
				divide<D>(a, c, few, left, tile, inv, lane, total, sums, &run);
				work += (unsigned long long) left * rows;
			}
		}
	}
	run.flush(sums, lane);
	if (lane == 0 && work != 0)
		atomicAdd(a.work, work);
	__syncthreads();
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

/* ---- launchers ---- */

static const void *const kernels[5] = {
	NULL,
	(const void *) boxes_kernel<1>, (const void *) boxes_kernel<2>,
	(const void *) boxes_kernel<3>, (const void *) boxes_kernel<4>,
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

	return s->d <= 4 && k >= 2 && k <= MOST_K && k <= s->problem.k_max && !s->pts->weighted && s->resident == s->n &&
		skip != GK_SKIP_OFF && (skip == GK_SKIP_ON || s->n >= LEAST_ROWS) &&
		s->problem.strategy == GK_STRATEGY_AUTO && s->problem.feature_sum == GK_FSUM_AUTO &&
		s->problem.mass_sum == GK_MSUM_AUTO && shared_bytes(s->d, k) + 1024 <= s->gpu->shared_optin;
}

static int64_t
tiles_of(int64_t rows)
{
	return (rows + TILE - 1) / TILE;
}

static void
free_boxes(GkBoxes *b)
{
	cudaFree(b->x);
	cudaFree(b->corner);
	cudaFree(b->sum);
	cudaFree(b->work);
	cudaFree(b->range);
	b->x = b->range = NULL;
	b->corner = NULL;
	b->sum = NULL;
	b->work = NULL;
}

void
gk_gpu_boxes_free(GkSession *s)
{
	if (s->boxes != NULL)
		free_boxes(s->boxes);
	s->core->free(s->host, s->boxes);
	s->boxes = NULL;
}

static GkStatus
allocate(GkSession *s, GkBoxes *b, GkError *err)
{
	GK_TRY(cudaMalloc((void **) &b->x, ((size_t) s->n * s->d + 4) * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &b->corner, tiles_of(s->n) * 2 * sizeof(float4)));
	GK_TRY(cudaMalloc((void **) &b->sum, tiles_of(s->n) * 4 * sizeof(long long)));
	GK_TRY(cudaMalloc((void **) &b->work, 2 * sizeof(long long)));
	GK_TRY(cudaMalloc((void **) &b->range, 8 * sizeof(float)));
	return GK_OK;
}

static GkStatus
sort_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	GkBoxes    *b = (GkBoxes *) arg;
	size_t		room = (size_t) (rows->rows + 63) / 64 * 64;
	size_t		bytes = 0;
	float	   *x;
	unsigned int *scratch;
	unsigned int blocks = (unsigned int) ((rows->rows + THREADS - 1) / THREADS);
	unsigned int each = (unsigned int) ((tiles_of(rows->rows) + WARPS - 1) / WARPS);
	cub::DoubleBuffer<unsigned int> key;
	cub::DoubleBuffer<unsigned int> row;

	GK_TRY(cub::DeviceRadixSort::SortPairs(NULL, bytes, key, row, rows->rows, 0, 32, s->gpu->stream));
	GK_DO(gk_gpu_scratch(s, room * (s->d + 4) * sizeof(int) + bytes, err));
	x = (float *) s->scratch;
	scratch = (unsigned int *) (x + room * s->d);
	key = cub::DoubleBuffer<unsigned int>(scratch, scratch + room);
	row = cub::DoubleBuffer<unsigned int>(scratch + 2 * room, scratch + 3 * room);
#define KEY(D) \
	case D: \
		key_kernel<D><<<blocks < 8192 ? blocks : 8192, THREADS, 0, s->gpu->stream>>> \
			(*rows, b->range, x, key.Current(), row.Current()); \
		break;
	switch (s->d)
	{
		KEY(1) KEY(2) KEY(3) KEY(4)
	}
#undef KEY
	GK_LAUNCHED();
	GK_TRY(cub::DeviceRadixSort::SortPairs(scratch + 4 * room, bytes, key, row, rows->rows, 0, 32, s->gpu->stream));
#define GATHER(D) \
	case D: \
		gather_kernel<D><<<each, THREADS, 0, s->gpu->stream>>> \
			(rows->rows, rows->first, x, row.Current(), s->columns.inv, b->x, b->corner, b->sum); \
		break;
	switch (s->d)
	{
		GATHER(1) GATHER(2) GATHER(3) GATHER(4)
	}
#undef GATHER
	GK_LAUNCHED();
	return GK_OK;
}

/* Rows that are sorted at a time: the more, the smaller the boxes.  0: no memory. */
static int64_t
sort_rows(const GkSession *s)
{
	size_t		kept = (size_t) s->n * s->d * sizeof(float) + (size_t) tiles_of(s->n) * 64 + ((size_t) 64 << 20);
	size_t		row = (size_t) (s->d + 4) * sizeof(int) + 1;
	size_t		rows = s->spare > kept ? (s->spare - kept) / row : 0;

	rows = rows > (size_t) s->n ? (size_t) s->n : rows;
	rows = rows > SORT_ROWS ? SORT_ROWS : rows;
	return rows < LEAST_ROWS && rows < (size_t) s->n ? 0 : (int64_t) (rows + TILE - 1) / TILE * TILE;
}

/* May not be: then there are no boxes, and no error. */
static GkStatus
sort_points(GkSession *s, int k, GkBoxes *b, GkError *err)
{
	int64_t		rows = sort_rows(s);
	GkStatus	st = rows > 0 ? allocate(s, b, err) : GK_ERR_DEVICE_MEMORY;

	if (st == GK_OK)
	{
		range_kernel<<<1, 32, 0, s->gpu->stream>>>(s->centroids, k, s->d, s->d == 1 ? 24 : 32 / s->d, b->range);
		GK_LAUNCHED();
		st = gk_gpu_each(s, rows, sort_slice, b, err);
	}
	/* It was large, and waits for the kernels. */
	cudaFree(s->scratch);
	s->scratch = NULL;
	s->scratch_room = 0;
	if (st == GK_ERR_DEVICE_MEMORY)
	{
		free_boxes(b);
		b->off = true;
		return GK_OK;
	}
	b->sorted = st == GK_OK;
	return st;
}

GkStatus
gk_gpu_boxes_ready(GkSession *s, int k, bool *ready, GkError *err)
{
	GkBoxes    *b;

	*ready = false;
	if (!possible(s, k))
		return GK_OK;
	if (s->boxes == NULL)
	{
		s->boxes = (GkBoxes *) s->core->alloc(s->host, 1, sizeof(GkBoxes));
		if (s->boxes == NULL)
			return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
		memset(s->boxes, 0, sizeof(GkBoxes));
	}
	b = s->boxes;
	if (!b->sorted && !b->off && (s->host->skip == GK_SKIP_ON || (int64_t) b->waited * k * s->d >= PRICE))
		GK_DO(sort_points(s, k, b, err));
	b->waited++;
	*ready = b->sorted && !b->off;
	return GK_OK;
}

static GkStatus
boxes_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	int			k = *(int *) arg;
	const void *kernel = kernels[s->d];
	size_t		shared = shared_bytes(s->d, k);
	BoxArgs		a;
	void	   *args[] = {&a};
	int64_t		blocks;
	int			expo = s->pts->prep.expo[0];
	int			per_sm;

	for (int j = 1; j < s->d; j++)
		if (s->pts->prep.expo[j] > expo)
			expo = s->pts->prep.expo[j];
	a.x = s->boxes->x;
	a.corner = s->boxes->corner;
	a.sum = s->boxes->sum;
	a.work = s->boxes->work;
	a.n = rows->first + rows->rows;
	a.first = rows->first / TILE;
	a.tiles = tiles_of(rows->rows);
	a.k = k;
	a.reach = gk_pow2(expo);
	a.centroids = s->centroids;
	a.acc = s->acc;
	a.inv = s->columns.inv;
	a.done = s->done;
	GK_TRY(cudaMemsetAsync(s->boxes->work + 1, 0, sizeof(long long), s->gpu->stream));
	GK_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
	GK_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, THREADS, shared));
	/* Some rounds for every warp, so that none is late for long. */
	a.together = TOGETHER;
	while (a.together > 1 && a.tiles < (int64_t) a.together * WARPS * per_sm * s->gpu->sms * 4)
		a.together /= 2;
	blocks = (a.tiles + WARPS * a.together - 1) / (WARPS * a.together);
	if (blocks > (int64_t) per_sm * s->gpu->sms)
		blocks = (int64_t) per_sm * s->gpu->sms;
	GK_TRY(cudaLaunchKernel(kernel, dim3((unsigned int) blocks), dim3(THREADS), args, shared, s->gpu->stream));
	return gk_gpu_fold(s, k, err);
}

GkStatus
gk_gpu_boxes_pass(GkSession *s, int k, GkError *err)
{
	int64_t		rows = gk_gpu_slice_rows(s, k) / TILE * TILE;

	/* So that no block's sums can be full. */
	if (rows > (int64_t) 1 << 28)
		rows = (int64_t) 1 << 28;

	GK_TRY(cudaMemsetAsync(s->totals, 0, gk_gpu_values(s, k) * sizeof(gk_int128), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(s->boxes->work, 0, sizeof(long long), s->gpu->stream));
	return gk_gpu_each(s, rows, boxes_slice, &k, err);
}

GkStatus
gk_gpu_boxes_log(GkSession *s, GkLogHead *head, GkError *err)
{
	GK_TRY(cudaMemcpyAsync(&head->work, s->boxes->work, sizeof(head->work), cudaMemcpyDeviceToDevice, s->gpu->stream));
	return GK_OK;
}

void
gk_gpu_boxes_judge(GkSession *s, int k, uint64_t work)
{
	if (s->boxes != NULL && s->host->skip != GK_SKIP_ON && (double) work > (double) s->n * k / 4)
		s->boxes->off = true;
}
