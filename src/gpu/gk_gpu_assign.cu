/*
 * gk_gpu_assign.cu - the nearest centroid of every point, by the canonical distance (gk_numerics.h): for any
 * n, d and k.
 *
 * Narrow (d <= 16): a thread keeps four points in registers, the centroids pass
 * by in shared memory as [k][d rounded up to 4], one broadcast vector load for
 * four points.
 *
 * Wide: an outer product in registers.  A block takes BM points x BN centroids, a thread TM x TN of them,
 * features go through shared memory in slabs of BK.  The canonical order of features is the order in which an
 * outer product adds them up anyway.  Centroids lie transposed, [d][k rounded up to 128], padded with
 * infinity so that the padding never wins.
 *
 * A launch is bounded in time, so very large k * d goes in several launches over ranges of centroids; the
 * best so far is kept in labels and d2.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define THREADS			256
#define NARROW			16		/* features */
#define NARROW_FLOATS	8192	/* of centroids in shared memory */
#define BK				16		/* features of a slab */
#define PAD_K			128

typedef struct AssignArgs
{
	GkRows		p;
	int			d;
	const float *packed;
	int			kpad;			/* of packed, when wide */
	int			from;			/* centroids */
	int			to;
	bool		more;			/* labels and d2 hold the nearest of earlier ones */
} AssignArgs;

/* ---- packing ---- */

int
gk_gpu_wide_pad(int k)
{
	return (k + PAD_K - 1) / PAD_K * PAD_K;
}

__global__ void
pack_narrow_kernel(const float *c, int k, int d, int stride, float *out)
{
	int64_t		i = (int64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (i < (int64_t) k * stride)
		out[i] = i % stride < d ? c[i / stride * d + i % stride] : 0.0f;
}

__global__ void
pack_wide_kernel(const float *c, int k, int d, int kpad, float *out)
{
	int			i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < kpad)
		for (int j = blockIdx.y; j < d; j += gridDim.y)
			out[(int64_t) j * kpad + i] = i < k ? c[(int64_t) i * d + j] : GK_INF;
}

GkStatus
gk_gpu_pack(GkSession *s, const float *centroids, int k, GkError *err)
{
	s->gemm_k = 0;
	if (s->d <= NARROW)
	{
		int			stride = (s->d + 3) / 4 * 4;
		int64_t		floats = (int64_t) k * stride;

		pack_narrow_kernel<<<(unsigned int) ((floats + 255) / 256), 256, 0, s->gpu->stream>>>
			(centroids, k, s->d, stride, s->packed);
	}
	else
	{
		int			kpad = gk_gpu_wide_pad(k);

		pack_wide_kernel<<<dim3((kpad + 255) / 256, s->d < 1024 ? s->d : 1024), 256, 0, s->gpu->stream>>>
			(centroids, k, s->d, kpad, s->packed);
	}
	GK_LAUNCHED();
	return GK_OK;
}

/* ---- up to 16 features ---- */

template <int D, typename L>
__global__ void __launch_bounds__(THREADS)
assign_narrow_kernel(AssignArgs a, L *labels, float *d2out)
{
	constexpr int S = (D + 3) / 4 * 4;
	__shared__ float4 cs[NARROW_FLOATS / 4];
	const GkRows &p = a.p;
	int64_t		groups = (p.rows + 3) / 4;
	int64_t		rounds = (groups + (int64_t) gridDim.x * THREADS - 1) / ((int64_t) gridDim.x * THREADS);
	bool		loaded = false;

	for (int64_t round = 0; round < rounds; round++)
	{
		int64_t		row = ((round * gridDim.x + blockIdx.x) * THREADS + threadIdx.x) * 4;
		bool		mine = row < p.rows;
		float		x[D][4];
		float		best[4];
		int			label[4];

		if (mine)
		{
#pragma unroll
			for (int j = 0; j < D; j++)
				gk_load<4>(p.x + j * p.ld + row, x[j]);
		}
#pragma unroll
		for (int r = 0; r < 4; r++)
		{
			best[r] = GK_INF;
			label[r] = 0;
			if (a.more && mine && row + r < p.rows)
			{
				best[r] = d2out[p.first + row + r];
				label[r] = labels[p.first + row + r];
			}
		}
		for (int c0 = a.from; c0 < a.to; c0 += NARROW_FLOATS / S)
		{
			int			count = min(a.to - c0, NARROW_FLOATS / S);

			if (!loaded)
			{
				gk_load_centroids<D, THREADS>(a.packed, c0, count, cs);
				loaded = a.to - a.from <= NARROW_FLOATS / S;
			}
			if (mine)
				gk_nearest<D, 2>(x, cs, c0, count, best, label);
		}
		if (!mine)
			continue;
		/* Buffers are padded: four at once, whatever lies past the end. */
		if (labels != NULL)
			gk_store_labels(labels + p.first + row, label);
#pragma unroll
		for (int r = 0; r < 4; r++)
			if (row + r < p.rows && d2out != NULL)
				d2out[p.first + row + r] = best[r];
	}
}

/* ---- more ---- */

/* A block's points BM x centroids BN, a thread's TM x TN. */
template <int BM_, int BN_, int TM_, int TN_>
struct Shape
{
	static constexpr int BM = BM_;
	static constexpr int BN = BN_;
	static constexpr int TM = TM_;
	static constexpr int TN = TN_;
	static constexpr int TX = BN / TN;	/* threads side by side over centroids */
	static constexpr int XV = BM * BK / 4 / THREADS;	/* vectors that a thread loads */
	static constexpr int CV = (BN * BK / 4 + THREADS - 1) / THREADS;

	static_assert(THREADS / TX * TM == BM, "threads cover the tile");
};

/* Fetch a slab; past the last feature both are 0 and add nothing. */
template <typename W>
__device__ __forceinline__ void
fetch(const AssignArgs &a, int64_t row0, int c0, int slab, float4 (&xv)[W::XV], float4 (&cv)[W::CV])
{
#pragma unroll
	for (int v = 0; v < W::XV; v++)
	{
		int			at = (threadIdx.x + v * THREADS) * 4;
		int			j = slab * BK + at / W::BM;

		xv[v] = j < a.d ? __ldg((const float4 *) (a.p.x + j * a.p.ld + row0 + at % W::BM)) : make_float4(0, 0, 0, 0);
	}
#pragma unroll
	for (int v = 0; v < W::CV; v++)
	{
		int			at = (threadIdx.x + v * THREADS) * 4;
		int			j = slab * BK + at / W::BN;

		if (at < W::BN * BK)
			cv[v] = j < a.d ? __ldg((const float4 *) (a.packed + (int64_t) j * a.kpad + c0 + at % W::BN)) :
				make_float4(0, 0, 0, 0);
	}
}

template <typename W>
__device__ __forceinline__ void
put(float (&x)[2][BK][W::BM], float (&c)[2][BK][W::BN], int buf, const float4 (&xv)[W::XV], const float4 (&cv)[W::CV])
{
#pragma unroll
	for (int v = 0; v < W::XV; v++)
	{
		int			at = (threadIdx.x + v * THREADS) * 4;

		*(float4 *) &x[buf][at / W::BM][at % W::BM] = xv[v];
	}
#pragma unroll
	for (int v = 0; v < W::CV; v++)
	{
		int			at = (threadIdx.x + v * THREADS) * 4;

		if (at < W::BN * BK)
			*(float4 *) &c[buf][at / W::BN][at % W::BN] = cv[v];
	}
}

/* Add a slab's features to the distances. */
template <typename W>
__device__ __forceinline__ void
multiply(const float (&x)[2][BK][W::BM], const float (&c)[2][BK][W::BN], int buf, int tx, int ty,
		 float (&acc)[W::TM][W::TN])
{
#pragma unroll
	for (int j = 0; j < BK; j++)
	{
		float		xr[W::TM];
		float		cr[W::TN];

#pragma unroll
		for (int r = 0; r < W::TM; r += 4)
			*(float4 *) &xr[r] = *(const float4 *) &x[buf][j][ty * W::TM + r];
#pragma unroll
		for (int i = 0; i < W::TN; i += 4)
			*(float4 *) &cr[i] = *(const float4 *) &c[buf][j][(i / 4 * W::TX + tx) * 4];
#pragma unroll
		for (int r = 0; r < W::TM; r++)
#pragma unroll
			for (int i = 0; i < W::TN; i++)
			{
				float		t = __fsub_rn(xr[r], cr[i]);

				acc[r][i] = __fmaf_rn(t, t, acc[r][i]);
			}
	}
}

/* Of a tile's centroids, in ascending order, those nearer than the best so far. */
template <typename W>
__device__ __forceinline__ void
keep_best(const float (&acc)[W::TM][W::TN], int c0, int to, int tx, float (&best)[W::TM], int (&label)[W::TM])
{
#pragma unroll
	for (int c = 0; c < W::TN; c++)
	{
		int			i = c0 + (c / 4 * W::TX + tx) * 4 + c % 4;

		if (i < to)
		{
#pragma unroll
			for (int r = 0; r < W::TM; r++)
				if (acc[r][c] < best[r])
				{
					best[r] = acc[r][c];
					label[r] = i;
				}
		}
	}
}

template <typename W, typename L>
__global__ void __launch_bounds__(THREADS)
assign_wide_kernel(AssignArgs a, L *labels, float *d2out)
{
	/* Two slabs of features: one is multiplied while the next arrives. */
	__shared__ __align__(16) float xs[2][BK][W::BM];
	__shared__ __align__(16) float cs[2][BK][W::BN];
	int64_t		row0 = (int64_t) blockIdx.x * W::BM;
	int			tx = threadIdx.x % W::TX;
	int			ty = threadIdx.x / W::TX;
	int			nslabs = (a.d + BK - 1) / BK;
	float		best[W::TM];
	int			label[W::TM];

#pragma unroll
	for (int r = 0; r < W::TM; r++)
	{
		int64_t		row = row0 + ty * W::TM + r;

		best[r] = GK_INF;
		label[r] = 0;
		if (a.more && row < a.p.rows)
		{
			best[r] = d2out[a.p.first + row];
			label[r] = labels[a.p.first + row];
		}
	}
	for (int c0 = a.from; c0 < a.to; c0 += W::BN)
	{
		float		acc[W::TM][W::TN];
		float4		xv[W::XV];
		float4		cv[W::CV];

#pragma unroll
		for (int r = 0; r < W::TM; r++)
#pragma unroll
			for (int c = 0; c < W::TN; c++)
				acc[r][c] = 0.0f;
		/* Slab b is fetched while slab b - 1 is multiplied. */
		for (int b = 0; b <= nslabs; b++)
		{
			if (b < nslabs)
				fetch<W>(a, row0, c0, b, xv, cv);
			if (b > 0)
				multiply<W>(xs, cs, (b - 1) & 1, tx, ty, acc);
			if (b < nslabs)
				put<W>(xs, cs, b & 1, xv, cv);
			__syncthreads();
		}
		keep_best<W>(acc, c0, a.to, tx, best, label);
	}
#pragma unroll
	for (int r = 0; r < W::TM; r++)
	{
		int64_t		row = row0 + ty * W::TM + r;

		gk_best_lane<W::TX>(best[r], label[r]);
		if (tx == 0 && row < a.p.rows)
		{
			if (labels != NULL)
				labels[a.p.first + row] = label[r];
			if (d2out != NULL)
				d2out[a.p.first + row] = best[r];
		}
	}
}

/* ---- the distance of a label ---- */

/* Canonical distances of rows to the centroids of their labels. */
__global__ void __launch_bounds__(THREADS)
own_d2_kernel(GkRows p, const float *c, int d, const int32_t *labels, float *d2out)
{
	for (int64_t row = (int64_t) blockIdx.x * THREADS + threadIdx.x; row < p.rows; row += (int64_t) gridDim.x * THREADS)
	{
		const float *q = c + (int64_t) labels[row] * d;
		float		d2 = 0.0f;

#pragma unroll 8
		for (int j = 0; j < d; j++)
		{
			float		t = __fsub_rn(__ldg(p.x + j * p.ld + row), __ldg(q + j));

			d2 = __fmaf_rn(t, t, d2);
		}
		d2out[row] = d2;
	}
}

/* ---- launchers ---- */

template <typename L>
static void
launch_narrow(GkSession *s, const AssignArgs &a, L *labels, float *d2)
{
	int			blocks = (int) gk_min((a.p.rows + 4 * THREADS - 1) / (4 * THREADS), GK_SM_BLOCKS * s->gpu->sms);

	switch (s->d)
	{
#define LAUNCH(D) \
		case D: \
			assign_narrow_kernel<D, L><<<blocks, THREADS, 0, s->gpu->stream>>>(a, labels, d2); \
			break;
		GK_EACH_D16(LAUNCH)
	}
}

template <typename W, typename L>
static void
launch_wide(GkSession *s, const AssignArgs &a, L *labels, float *d2)
{
	unsigned int blocks = (unsigned int) ((a.p.rows + W::BM - 1) / W::BM);

	assign_wide_kernel<W, L><<<blocks, THREADS, 0, s->gpu->stream>>>(a, labels, d2);
}

template <typename L>
static void
launch(GkSession *s, const AssignArgs &a, int k, L *labels, float *d2)
{
	if (s->d <= NARROW)
		launch_narrow(s, a, labels, d2);
	else if (k <= 16)
		launch_wide<Shape<256, 16, 4, 4>>(s, a, labels, d2);
	else if (k <= 64)
		launch_wide<Shape<256, 64, 8, 8>>(s, a, labels, d2);
	else
		launch_wide<Shape<128, 128, 8, 8>>(s, a, labels, d2);
}

GkStatus
gk_gpu_labels(GkSession *s, int64_t rows, int k, GkLabels *out, GkError *err)
{
	out->narrow = k <= GK_NARROW_K;
	GK_DO(gk_gpu_grow(s, (void **) &s->labels, &s->labels_room, (out->narrow ? rows / 4 : rows) + GK_ROW_PAD,
					  sizeof(int32_t), err));
	out->at = s->labels;
	return GK_OK;
}

/* labels and d2 are indexed by the row's ordinal within the slice. */
GkStatus
gk_gpu_assign(GkSession *s, const GkRows *rows, int k, GkLabels labels, float *d2, GkError *err)
{
	AssignArgs	a = {*rows, s->d, s->packed, gk_gpu_wide_pad(k), 0, 0, false};
	double		centroids = gk_gpu_cycles(s, GK_LAUNCH_S) / ((double) rows->rows * s->d * GK_CYCLES_DISTANCE);
	int			step = (int) (centroids > k ? k : centroids);

	a.p.first = 0;
	/* All labels are there (gk_gpu_gemm_all). */
	if (s->gemm_k == k)
	{
		own_d2_kernel<<<(unsigned int) ((rows->rows + THREADS - 1) / THREADS), THREADS, 0, s->gpu->stream>>>
			(*rows, s->centroids, s->d, s->labels + rows->first, d2);
		GK_LAUNCHED();
		return GK_OK;
	}
	if (d2 == NULL && gk_gpu_assign_mma_fits(s, k))
		return gk_gpu_assign_mma(s, &a.p, k, labels, err);
	step = step < PAD_K ? PAD_K : step / PAD_K * PAD_K;
	if (step < k)
	{
		/* Several launches hand the best so far on in these. */
		if (labels.at == NULL)
			GK_DO(gk_gpu_labels(s, a.p.rows, k, &labels, err));
		if (d2 == NULL)
		{
			GK_DO(gk_gpu_grow(s, (void **) &s->d2, &s->d2_room, a.p.rows, sizeof(float), err));
			d2 = s->d2;
		}
	}
	for (a.from = 0; a.from < k; a.from += step)
	{
		a.to = k - a.from < step ? k : a.from + step;
		a.more = a.from > 0;
		if (labels.narrow)
			launch(s, a, k, (uint8_t *) labels.at, d2);
		else
			launch(s, a, k, (int32_t *) labels.at, d2);
		GK_LAUNCHED();
	}
	return GK_OK;
}
