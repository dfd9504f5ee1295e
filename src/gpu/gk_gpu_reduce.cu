/*
 * gk_gpu_reduce.cu - from accumulator words to exact totals, and from totals to the next centroids on the
 * device (gk_update.h, the host's own code), so that the next pass can start before the host has looked at
 * this one.
 */
#include "core/gk_update.h"
#include "gpu/gk_gpu_device.cuh"

#define STOP_THREADS	256
#define UPDATE_THREADS	128		/* at most: while two of them add up, other blocks have loads on their way */

/* ---- kernels ---- */

__global__ void
reduce_kernel(GkAcc acc, gk_int128 *totals, int64_t sums, int64_t values, int shift)
{
	gk_await_previous();

	int64_t		v = (int64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (v < values)
	{
		unsigned long long a = acc.a[v];
		unsigned long long b = acc.b[v];

		if ((a | b) != 0)
		{
			totals[v] += gk_acc_value(a, b, v < sums ? shift : 32);
			acc.a[v] = 0;
			acc.b[v] = 0;
		}
	}
}

/* Unweighted only: feature j of cluster k - 1, then its count. */
__global__ void
reduce_last_kernel(gk_int128 *totals, GkColumns columns, int k, int d)
{
	gk_await_previous();

	int			j = blockIdx.x * blockDim.x + threadIdx.x;

	if (j <= d)
	{
		gk_int128	t = columns.total[j];

		for (int i = 0; i < k - 1; i++)
			t -= j < d ? totals[(int64_t) i * d + j] : totals[(int64_t) k * d + i];
		if (j < d)
			totals[(int64_t) (k - 1) * d + j] = t;
		else
			totals[(int64_t) k * d + k - 1] = t;
	}
}

typedef struct UpdateArgs
{
	GkTotals	totals;
	GkColumns	columns;
	int			k;
	int			d;
	bool		weighted;
	bool		cosine;
	float	   *centroids;
	double	   *shifts;			/* of a cluster without points -1 */
	gk_int128  *log;			/* totals, then the centroids before */
	GkBrief		brief;			/* if any is wanted */
	const int  *done;
} UpdateArgs;

/* One part is read at once: the loop over parts makes this kernel take a fifth longer. */
template <bool PARTS>
__device__ __forceinline__ gk_int128
total(const UpdateArgs &a, int64_t v)
{
	return PARTS ? gk_total(a.totals, v) : ((const gk_int128 *) a.totals.of[0])[v];
}

/* Many values are on their way while one is added. */
__device__ __forceinline__ double
add_in_order(double sum, const double *v, int n)
{
#pragma unroll 16
	for (int i = 0; i < n; i++)
		sum += v[i];
	return sum;
}

/* The length of the mean of cluster i, for gk_turn_feature(); logs its sums; scratch [threads]. */
template <bool PARTS>
__device__ __forceinline__ double
mean_length(const UpdateArgs &a, int i, double mass, double *scratch)
{
	__shared__ double length;
	double		square = 0.0;

	for (int j0 = 0; j0 < a.d; j0 += blockDim.x)
	{
		int			j = j0 + threadIdx.x;

		if (j < a.d)
		{
			int64_t		at = (int64_t) i * a.d + j;
			gk_int128	exact = total<PARTS>(a, at);
			double		m = gk_mean(gk_i128_to_double(exact) / mass,
									gk_feature_prep(a.columns.center, a.columns.scale, a.columns.expo, j));

			a.log[at] = exact;
			scratch[threadIdx.x] = m * m;
		}
		__syncthreads();
		if (threadIdx.x == 0)
			square = add_in_order(square, scratch, min((int) blockDim.x, a.d - j0));
		__syncthreads();
	}
	if (threadIdx.x == 0)
		length = sqrt(square);
	__syncthreads();
	return length;
}

/* One block per cluster: log its sums, move its centroid, tell how far. */
template <bool PARTS>
__global__ void
update_kernel(const __grid_constant__ UpdateArgs a)
{
	gk_await_previous();

	extern __shared__ double moved[];	/* [threads], then explained */
	double	   *explained = moved + blockDim.x;
	int64_t		sums = (int64_t) a.k * a.d;
	float	   *used = (float *) (a.log + sums + (int64_t) a.k * (a.weighted ? 2 : 1));
	int			i = blockIdx.x;
	double		length = 1.0;
	double		shift = 0.0;
	double		taken = 0.0;
	gk_int128	mass;
	double		m;
	bool		logged;

	if (*a.done)
		return;
	mass = total<PARTS>(a, sums + i);
	m = gk_i128_to_double(mass);
	logged = a.cosine && mass > 0;
	if (logged)
		length = mean_length<PARTS>(a, i, m, moved);
	if (threadIdx.x == 0)
	{
		a.log[sums + i] = mass;
		if (a.weighted)
			a.log[sums + a.k + i] = total<PARTS>(a, sums + a.k + i);
	}
	for (int j0 = 0; j0 < a.d; j0 += blockDim.x)
	{
		int			j = j0 + threadIdx.x;
		int			n = min((int) blockDim.x, a.d - j0);

		if (j < a.d)
		{
			int64_t		at = (int64_t) i * a.d + j;
			gk_int128	exact = logged ? a.log[at] : total<PARTS>(a, at);
			float		old = a.centroids[at];

			a.log[at] = exact;
			used[at] = old;
			if (mass > 0)
			{
				GkFeaturePrep prep = gk_feature_prep(a.columns.center, a.columns.scale, a.columns.expo, j);
				double		sum = gk_i128_to_double(exact);
				double		c;

				moved[threadIdx.x] = a.cosine ? gk_turn_feature(sum / m, prep, length, old, &c, &a.centroids[at]) :
					gk_update_feature(sum / m, prep, old, &c, &a.centroids[at]);
				if (a.brief.moved != NULL)
					explained[threadIdx.x] = gk_explained_feature(sum, m, a.weighted, prep, old);
			}
		}
		__syncthreads();
		/* In the order of the features, as the host adds them up; the two sums by a thread each. */
		if (threadIdx.x == 0)
			shift = add_in_order(shift, moved, n);
		else if (threadIdx.x == blockDim.x - 1 && a.brief.moved != NULL)
			taken = add_in_order(taken, explained, n);
		__syncthreads();
	}
	if (threadIdx.x == 0)
		a.shifts[i] = mass > 0 ? shift : -1.0;
	if (a.brief.moved == NULL)
		return;
	if (threadIdx.x == 0)
	{
		a.brief.moved[i] = mass > 0 ? shift : 0.0;
		a.brief.count[i] = (int64_t) a.log[sums + (a.weighted ? a.k : 0) + i];
	}
	if (threadIdx.x == blockDim.x - 1)
		a.brief.explained[i] = mass > 0 ? taken : 0.0;
}

/* The sum in the order of the clusters, as the host adds it up; thread 0 has it. */
__device__ double
sum_in_order(const double *shifts, int k)
{
	__shared__ double tile[STOP_THREADS];
	double		shift = 0.0;

	for (int i0 = 0; i0 < k; i0 += STOP_THREADS)
	{
		if (i0 + (int) threadIdx.x < k)
			tile[threadIdx.x] = fmax(shifts[i0 + threadIdx.x], 0.0);
		__syncthreads();
		if (threadIdx.x == 0)
		{
			int			count = min(k - i0, STOP_THREADS);

#pragma unroll 16
			for (int i = 0; i < count; i++)
				shift += tile[i];
		}
		__syncthreads();
	}
	return shift;
}

/*
 * An empty cluster (-1), or no more movement than tol, stops the chain.  Any sum of k numbers that are not negative is
 * off by less than k 2^-53 of it; only where two of them might not agree it takes the one that the host takes.
 */
__global__ void __launch_bounds__(STOP_THREADS)
stop_kernel(const double *shifts, int k, double tol, char *unit, GkCounts counts, int *done)
{
	gk_await_previous();

	GkLogHead  *head = (GkLogHead *) unit;
	__shared__ double sums[STOP_THREADS / 32];
	double		shift = 0.0;
	double		off = 4.0 * k * 0x1p-53;
	bool		empty = false;

	if (threadIdx.x == 0)
	{
		*head = {};
		if (counts.work != NULL)
			head->work = *counts.work;
		if (counts.gemm != NULL)
			head->gemm = *counts.gemm;
		if (counts.busy != NULL)
			head->busy = *counts.busy;
	}
	if (*done)
		return;
	for (int i = threadIdx.x; i < k; i += STOP_THREADS)
	{
		empty |= shifts[i] < 0.0;
		shift += fmax(shifts[i], 0.0);
	}
	for (int o = 16; o > 0; o >>= 1)
		shift += __shfl_xor_sync(0xffffffffu, shift, o);
	if (threadIdx.x % 32 == 0)
		sums[threadIdx.x / 32] = shift;
	empty = __syncthreads_or(empty);
	shift = 0.0;
	for (int i = 0; i < STOP_THREADS / 32; i++)
		shift += sums[i];
	/* (Written so that a tol that is no number takes it, too.) */
	if (!(shift * (1.0 - off) > tol || shift * (1.0 + off) <= tol))
		shift = sum_in_order(shifts, k);
	if (threadIdx.x == 0)
	{
		head->count = 1;
		head->stop = empty || shift <= tol;
		if (head->stop)
			*done = 1;
	}
}

/* ---- launchers ---- */

GkStatus
gk_gpu_reduce_values(GkSession *s, int64_t sums, int64_t values, int shift, GkError *err)
{
	GK_TRY(gk_follow(s, reduce_kernel, (unsigned int) ((values + 255) / 256), 256, 0, s->acc, s->totals, sums, values, shift));
	return GK_OK;
}

GkStatus
gk_gpu_reduce(GkSession *s, int k, GkError *err)
{
	return gk_gpu_reduce_values(s, (int64_t) k * s->d, gk_gpu_values(s, k),
							  s->pts->weighted ? GK_GRID_BITS : 32, err);
}

GkStatus
gk_gpu_totals(GkSession *s, int64_t values, gk_int128 *out, GkError *err)
{
	GK_DO(gk_gpu_drain(s, err));
	GK_TRY(cudaMemcpyAsync(out, s->totals, values * sizeof(gk_int128), cudaMemcpyDeviceToHost, s->gpu->stream));
	return gk_gpu_drain(s, err);
}

GkStatus
gk_gpu_reduce_last(GkSession *s, int k, GkError *err)
{
	GK_TRY(gk_follow(s, reduce_last_kernel, (s->d + 256) / 256, 256, 0, s->totals, s->columns, k, s->d));
	return GK_OK;
}

GkStatus
gk_gpu_update(GkSession *s, const GkTotals *totals, const GkCounts *counts, int k, char *unit, GkError *err)
{
	int			threads = (int) gk_min((s->d + 31) / 32 * 32, UPDATE_THREADS);
	UpdateArgs	a = {*totals, s->columns, k, s->d, s->pts->weighted, s->pts->prep.distance == GK_COSINE, s->centroids, s->shifts,
		(gk_int128 *) gk_gpu_entries(s, unit), {}, s->done};

	if (s->brief_bytes > 0)
		a.brief = gk_gpu_brief(unit, k);
	GK_TRY(gk_follow(s, totals->parts == 1 && !totals->narrow ? update_kernel<false> : update_kernel<true>, k, threads,
					 2 * threads * sizeof(double), a));
	GK_TRY(gk_follow(s, stop_kernel, 1, STOP_THREADS, 0, s->shifts, k, s->problem.tol, unit, *counts, s->done));
	return GK_OK;
}
