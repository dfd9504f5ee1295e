/*
 * gk_gpu_seed.cu - the passes of seeding: D (squared distance to the nearest seed so far, one float per
 * point, kept on the device) and its weighted sums.
 *
 * A thread takes a row and up to M centroids at once: distances in registers, centroids in shared memory,
 * exact float64 sums of their parts (gk_d2_split) per centroid.  Distances to candidates are kept where reading
 * them takes less than reading the points: one of them is the next seed.
 */
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define THREADS		256
#define M			8			/* centroids per launch */
#define FEATURES	256			/* of each in shared memory at a time */
#define NARROW		4			/* features that are loaded at a time */

typedef struct SeedArgs
{
	GkRows		p;
	int			d;
	const float *centroids;		/* [m][d] */
	int			m;
	float	   *mind2;			/* of the slice */
	const float *d2;			/* known distances instead of centroids, or NULL */
	float	   *keep;			/* [m][keep_ld]: where distances are kept, or NULL */
	int64_t		keep_ld;
	double		scale;
	GkAcc		acc;			/* one value per centroid, or one */
} SeedArgs;

/* ---- kernels ---- */

__global__ void
fill_kernel(float *p, int64_t n, float v)
{
	for (int64_t i = (int64_t) blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t) gridDim.x * blockDim.x)
		p[i] = v;
}

/* Sums of a block's threads, added to value v. */
__device__ __forceinline__ void
add_parts(const SeedArgs &a, int v, double hi, double lo)
{
	long long	h = gk_warp_sum((long long) hi);
	long long	l = gk_warp_sum((long long) lo);

	if (threadIdx.x % 32 == 0)
		gk_acc_add_parts(a.acc, v, h, l);
}

/*
 * KEEP: D = min(D, nearest of them) and one sum; else a sum per candidate.  AHEAD: features whose loads are under
 * way at a time.
 */
template <int C, bool KEEP, int AHEAD>
__global__ void __launch_bounds__(THREADS)
distance_kernel(SeedArgs a)
{
	__shared__ float cs[FEATURES][C];
	int64_t		stride = (int64_t) gridDim.x * THREADS;
	int64_t		rounds = (a.p.rows + stride - 1) / stride;
	bool		loaded = false;
	double		hi[C];
	double		lo[C];

#pragma unroll
	for (int i = 0; i < C; i++)
		hi[i] = lo[i] = 0.0;
	for (int64_t round = 0; round < rounds; round++)
	{
		int64_t		row = round * stride + (int64_t) blockIdx.x * THREADS + threadIdx.x;
		bool		mine = row < a.p.rows;
		float		s[C];

#pragma unroll
		for (int i = 0; i < C; i++)
			s[i] = 0.0f;
		for (int j0 = 0; j0 < a.d; j0 += FEATURES)
		{
			int			count = a.d - j0 < FEATURES ? a.d - j0 : FEATURES;

			if (!loaded)
			{
				__syncthreads();
				for (int v = threadIdx.x; v < count * C; v += THREADS)
					cs[v / C][v % C] = v % C < a.m ? __ldg(a.centroids + (int64_t) (v % C) * a.d + j0 + v / C) : 0.0f;
				__syncthreads();
				loaded = a.d <= FEATURES;
			}
			if (mine)
			{
#pragma unroll AHEAD
				for (int j = 0; j < count; j++)
				{
					float		x = __ldg(a.p.x + (j0 + j) * a.p.ld + row);

#pragma unroll
					for (int i = 0; i < C; i++)
					{
						float		t = __fsub_rn(x, cs[j][i]);

						s[i] = __fmaf_rn(t, t, s[i]);
					}
				}
			}
		}
		if (mine)
		{
			float		d = a.mind2[row];
			double		w = a.p.w ? (double) __ldg(a.p.w + row) : 1.0;

			if (KEEP)
			{
#pragma unroll
				for (int i = 0; i < C; i++)
					if (i < a.m && s[i] < d)
						d = s[i];
				a.mind2[row] = d;
			}
#pragma unroll
			for (int i = 0; i < (KEEP ? 1 : C); i++)
				if (i < a.m)
				{
					float		v = !KEEP && s[i] < d ? s[i] : d;
					double		h,
								l;

					if (!KEEP && a.keep != NULL)
						a.keep[i * a.keep_ld + row] = s[i];

					gk_d2_split_double(w * (double) v, a.scale, h, l);
					hi[i] += h;
					lo[i] += l;
				}
		}
	}
#pragma unroll
	for (int i = 0; i < (KEEP ? 1 : C); i++)
		if (i < a.m)
			add_parts(a, i, hi[i], lo[i]);
}

/* D = min(D, d2) with distances that gk_gpu_assign() found. */
__global__ void __launch_bounds__(THREADS)
min_kernel(SeedArgs a)
{
	double		hi = 0.0;
	double		lo = 0.0;

	for (int64_t row = (int64_t) blockIdx.x * THREADS + threadIdx.x; row < a.p.rows;
		 row += (int64_t) gridDim.x * THREADS)
	{
		float		d = fminf(a.mind2[row], __ldg(a.d2 + row));
		double		h,
					l;

		a.mind2[row] = d;
		gk_d2_split_double((a.p.w ? (double) __ldg(a.p.w + row) : 1.0) * (double) d, a.scale, h, l);
		hi += h;
		lo += l;
	}
	add_parts(a, 0, hi, lo);
}

/* ---- farthest point ---- */

typedef struct Far
{
	float		d2;				/* 0: none */
	int64_t		row;
} Far;

/* Larger D; then the smaller point, features in order; then the lower row. */
__device__ static bool
farther(const GkRows &p, int d, float da, int64_t a, float db, int64_t b)
{
	if (da != db)
		return da > db;
	for (int j = 0; j < d; j++)
	{
		float		xa = p.x[j * p.ld + a];
		float		xb = p.x[j * p.ld + b];

		if (xa != xb)
			return xa < xb;
	}
	return a < b;
}

__global__ void __launch_bounds__(THREADS)
far_kernel(GkRows p, int d, const float *mind2, Far *winners)
{
	__shared__ Far best[THREADS];
	Far			me = {0.0f, -1};

	for (int64_t row = (int64_t) blockIdx.x * THREADS + threadIdx.x; row < p.rows; row += (int64_t) gridDim.x * THREADS)
	{
		float		v = mind2[row];

		if (v > 0.0f && (me.row < 0 || farther(p, d, v, row, me.d2, me.row)))
		{
			me.d2 = v;
			me.row = row;
		}
	}
	best[threadIdx.x] = me;
	for (int o = THREADS / 2; o > 0; o >>= 1)
	{
		__syncthreads();
		if (threadIdx.x < o)
		{
			Far			other = best[threadIdx.x + o];

			me = best[threadIdx.x];
			if (other.row >= 0 && (me.row < 0 || farther(p, d, other.d2, other.row, me.d2, me.row)))
				best[threadIdx.x] = other;
		}
	}
	if (threadIdx.x == 0)
		winners[blockIdx.x] = best[0];
}

/* The blocks' winners against the one kept from earlier slices, with its point. */
__global__ void
far_merge_kernel(GkRows p, int d, const Far *winners, int n, Far *kept, float *point)
{
	__shared__ bool take;
	__shared__ Far best;

	if (threadIdx.x == 0)
	{
		best.row = -1;
		best.d2 = 0.0f;
		for (int i = 0; i < n; i++)
			if (winners[i].row >= 0 &&
				(best.row < 0 || farther(p, d, winners[i].d2, winners[i].row, best.d2, best.row)))
				best = winners[i];
		take = best.row >= 0 && (kept->row < 0 || best.d2 >= kept->d2);
		if (take && kept->row >= 0 && best.d2 == kept->d2)
		{
			/* Equal: earlier slices hold lower rows, so only a smaller point wins. */
			take = false;
			for (int j = 0; j < d; j++)
			{
				float		x = p.x[j * p.ld + best.row];

				if (x != point[j])
				{
					take = x < point[j];
					break;
				}
			}
		}
	}
	__syncthreads();
	if (!take)
		return;
	for (int j = threadIdx.x; j < d; j += blockDim.x)
		point[j] = p.x[j * p.ld + best.row];
	if (threadIdx.x == 0)
	{
		kept->d2 = best.d2;
		kept->row = p.first + best.row;
	}
}

/* ---- passes ---- */

static int
blocks_for(const GkSession *s, int64_t rows)
{
	return (int) gk_min((rows + THREADS - 1) / THREADS, s->gpu->sms * GK_SM_BLOCKS);
}

typedef struct SeedPass
{
	const float *centroids;		/* on the device */
	int			m;
	bool		keep;			/* D = min(D, ...) */
	const float *known;			/* [n]: distances to the only centroid, or NULL */
	bool		all;			/* keep the distances */
} SeedPass;

template <int AHEAD>
static void
launch(const SeedArgs &a, bool keep, int blocks, cudaStream_t stream)
{
	if (keep && a.m == 1)
		distance_kernel<1, true, AHEAD><<<blocks, THREADS, 0, stream>>>(a);
	else if (keep)
		distance_kernel<M, true, AHEAD><<<blocks, THREADS, 0, stream>>>(a);
	else if (a.m <= 4)
		distance_kernel<4, false, AHEAD><<<blocks, THREADS, 0, stream>>>(a);
	else
		distance_kernel<M, false, AHEAD><<<blocks, THREADS, 0, stream>>>(a);
}

static GkStatus
seed_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	SeedPass   *pass = (SeedPass *) arg;
	int			blocks = blocks_for(s, rows->rows);
	SeedArgs	a;

	a.p = *rows;
	a.d = s->d;
	a.mind2 = s->mind2 + rows->first;
	a.d2 = NULL;
	a.keep = NULL;
	a.keep_ld = s->n;
	a.scale = gk_pow2(GK_GRID_BITS - s->pts->d2_expo);
	if (pass->known != NULL || (pass->keep && pass->m > M))
	{
		if (pass->known == NULL)
		{
			GK_DO(gk_gpu_grow(s, (void **) &s->d2, &s->d2_room, rows->rows, sizeof(float), err));
			GK_DO(gk_gpu_assign(s, rows, pass->m, {NULL, false}, s->d2, err));
		}
		a.d2 = pass->known != NULL ? pass->known + rows->first : s->d2;
		a.acc = s->acc;
		min_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(a);
		GK_LAUNCHED();
		return gk_gpu_reduce_values(s, 1, 1, 40, err);
	}
	for (int i = 0; i < pass->m; i += M)
	{
		a.m = pass->m - i < M ? pass->m - i : M;
		a.centroids = pass->centroids + (size_t) i * s->d;
		a.acc.a = s->acc.a + i;
		a.acc.b = s->acc.b + i;
		if (pass->all)
			a.keep = s->kept + i * s->n + rows->first;
		if (s->d < 2 * NARROW)
			launch<NARROW>(a, pass->keep, blocks, s->gpu->stream);
		else
			launch<2 * NARROW>(a, pass->keep, blocks, s->gpu->stream);
		GK_LAUNCHED();
	}
	return gk_gpu_reduce_values(s, pass->keep ? 1 : pass->m, pass->keep ? 1 : pass->m, 40, err);
}

/* Without the points, if the only centroid's distances are known. */
static GkStatus
each_slice(GkSession *s, SeedPass *pass, GkError *err)
{
	int64_t		most = gk_gpu_update_rows(s, pass->keep && pass->m > M ? pass->m : M);

	if (pass->known == NULL)
		return gk_gpu_each(s, most, seed_slice, pass, err);
	for (int64_t first = 0; first < s->n; first += most)
	{
		const float *w = s->pts->weighted ? s->x + (size_t) s->d * s->ld + first : NULL;
		GkRows		rows = {NULL, w, 0, gk_min(most, s->n - first), first};

		GK_DO(seed_slice(s, &rows, pass, err));
	}
	return GK_OK;
}

static GkStatus
seed_pass(GkSession *s, SeedPass *pass, const float *centroids, gk_int128 *out, GkError *err)
{
	int			m = pass->m;
	bool		many = pass->keep && m > M;

	GK_DO(gk_gpu_room(s, m, err));
	gk_gpu_step_stop(s);
	s->delta_k = 0;
	GK_DO(gk_gpu_drain(s, err));
	if (pass->known == NULL)
		GK_DO(gk_gpu_put_centroids(s, centroids, m, err));
	GK_TRY(cudaMemsetAsync(s->totals, 0, m * sizeof(gk_int128), s->gpu->stream));
	pass->centroids = s->centroids;
	if (many)
	{
		GK_DO(gk_gpu_gemm_all(s, m, false, NULL, err));
		if (s->gemm_k != m)
			GK_DO(gk_gpu_pack(s, s->centroids, m, err));
	}
	GK_DO(each_slice(s, pass, err));
	return gk_gpu_totals(s, pass->keep ? 1 : m, out, err);
}

/* ---- distances to candidates, kept ---- */

/* Which of them is this?  -1: none. */
static int
candidate(const GkSession *s, const float *centroid)
{
	size_t		bytes = s->d * sizeof(float);

	for (int i = 0; i < s->candidates; i++)
		if (memcmp(s->candidate + (size_t) i * s->d, centroid, bytes) == 0)
			return i;
	return -1;
}

void
gk_gpu_seed_forget(GkSession *s)
{
	cudaFree(s->kept);
	s->core->free(s->host, s->candidate);
	s->kept = s->candidate = NULL;
	s->kept_room = s->candidate_room = 0;
	s->candidates = 0;
}

/* Are they to be kept, and is there room? */
static GkStatus
keep_candidates(GkSession *s, const float *centroids, int m, bool *keep, GkError *err)
{
	size_t		values = (size_t) m * s->d;
	size_t		held = gk_gpu_gemm_held(s) + gk_gpu_filter_held(s);
	GkStatus	st;

	s->candidates = 0;
	*keep = m < s->d && s->seed_rounds == NULL && (size_t) m * s->n * sizeof(float) <= (s->spare > held ? s->spare - held : 0) / 2;
	if (!*keep)
		return GK_OK;
	if (m > s->candidate_room)
	{
		s->core->free(s->host, s->candidate);
		s->candidate_room = 0;
		s->candidate = (float *) s->core->alloc(s->host, values, sizeof(float));
		if (s->candidate == NULL)
			return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
		s->candidate_room = m;
	}
	memcpy(s->candidate, centroids, values * sizeof(float));
	st = gk_gpu_grow(s, (void **) &s->kept, &s->kept_room, (int64_t) m * s->n, sizeof(float), err);
	*keep = st == GK_OK;
	return st == GK_ERR_DEVICE_MEMORY ? GK_OK : st;
}

/* ---- the interface ---- */

GkStatus
gk_gpu_seed_begin(GkSession *s, GkError *err)
{
	if (s->mind2 == NULL)
		GK_TRY(cudaMalloc((void **) &s->mind2, s->n * sizeof(float)));
	s->seeds = s->candidates = 0;
	s->phi = 0.0;
	fill_kernel<<<s->gpu->sms * GK_SM_BLOCKS, THREADS, 0, s->gpu->stream>>>(s->mind2, s->n, INFINITY);
	GK_LAUNCHED();
	return GK_OK;
}

void
gk_gpu_seed_end(GkSession *s)
{
	if (s == NULL)
		return;
	gk_gpu_seed_rounds_free(s);
	gk_gpu_seed_forget(s);
	cudaFree(s->mind2);
	s->mind2 = NULL;
}

GkStatus
gk_gpu_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err)
{
	SeedPass	pass = {NULL, m, true, NULL, false};
	int			known = m == 1 ? candidate(s, centroids) : -1;

	if (known >= 0)
		pass.known = s->kept + known * s->n;
	s->candidates = 0;
	s->seeds += m;
	s->phi = 0.0;
	GK_DO(seed_pass(s, &pass, centroids, phi, err));
	s->phi = gk_i128_to_double(*phi) * gk_pow2(s->pts->d2_expo - 2 * GK_GRID_BITS);
	return GK_OK;
}

GkStatus
gk_gpu_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err)
{
	SeedPass	pass = {NULL, m, false, NULL, false};

	GK_DO(keep_candidates(s, centroids, m, &pass.all, err));
	GK_DO(seed_pass(s, &pass, centroids, pot, err));
	s->candidates = pass.all ? m : 0;
	return GK_OK;
}

static GkStatus
far_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	int			blocks = blocks_for(s, rows->rows);
	char	   *scratch = (char *) arg;
	Far		   *kept = (Far *) scratch;
	Far		   *winners = kept + 1;
	float	   *point = (float *) (winners + s->gpu->sms * GK_SM_BLOCKS);

	far_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(*rows, s->d, s->mind2 + rows->first, winners);
	GK_LAUNCHED();
	far_merge_kernel<<<1, THREADS, 0, s->gpu->stream>>>(*rows, s->d, winners, blocks, kept, point);
	GK_LAUNCHED();
	return GK_OK;
}

GkStatus
gk_gpu_seed_far(GkSession *s, int64_t *row, GkError *err)
{
	Far			kept;

	GK_DO(gk_gpu_drain(s, err));
	GK_DO(gk_gpu_scratch(s, sizeof(Far) * (1 + s->gpu->sms * GK_SM_BLOCKS) + (size_t) s->d * sizeof(float), err));
	GK_TRY(cudaMemsetAsync(s->scratch, 0xff, sizeof(Far), s->gpu->stream));
	GK_DO(gk_gpu_each(s, (int64_t) 1 << 26, far_slice, s->scratch, err));
	GK_DO(gk_gpu_drain(s, err));
	GK_TRY(cudaMemcpy(&kept, s->scratch, sizeof(kept), cudaMemcpyDeviceToHost));
	*row = kept.row;
	return GK_OK;
}
