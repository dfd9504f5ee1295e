/*
 * gk_gpu_assign.cu - the nearest centroid of every point, by the canonical
 * distance (gk_numerics.h): for any n, d and k.
 *
 * Narrow (d <= 16): a thread keeps four points in registers, the centroids pass
 * by in shared memory as [k][d rounded up to 4], one broadcast vector load for
 * four points.
 *
 * Wide: an outer product in registers.  A block takes BM points x BN centroids,
 * a thread TM x TN of them, features go through shared memory in slabs of BK.
 * The canonical order of features is the order in which an outer product adds
 * them up anyway.  Centroids lie transposed, [d][k rounded up to 128], padded
 * with infinity so that the padding never wins.
 *
 * A launch is bounded in time, so very large k * d goes in several launches
 * over ranges of centroids; the best so far is kept in labels and d2.
 */
#include "gpu/gk_gpu_device.cuh"

#define THREADS			256
#define NARROW			16		/* features */
#define NARROW_FLOATS	8192	/* of centroids in shared memory */
#define BK				16
#define PAD_K			128

static inline int
narrow_stride(int d)
{
	return (d + 3) / 4 * 4;
}

/* ---- packing ---- */

int
gk_gpu_wide_pad(int k)
{
	return (k + PAD_K - 1) / PAD_K * PAD_K;
}

__global__ void
pack_narrow(const float *c, int k, int d, int stride, float *out)
{
	int64_t		i = (int64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (i < (int64_t) k * stride)
		out[i] = i % stride < d ? c[i / stride * d + i % stride] : 0.0f;
}

__global__ void
pack_wide(const float *c, int k, int d, int kpad, float *out)
{
	int			i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < kpad)
		for (int j = blockIdx.y; j < d; j += gridDim.y)
			out[(int64_t) j * kpad + i] = i < k ? c[(int64_t) i * d + j] : GK_INF;
}

GkStatus
gk_gpu_pack(GkSession *s, const float *centroids, int k, GkError *err)
{
	if (s->d <= NARROW)
	{
		int			stride = narrow_stride(s->d);
		int64_t		floats = (int64_t) k * stride;

		pack_narrow<<<(unsigned int) ((floats + 255) / 256), 256, 0, s->gpu->stream>>>
			(centroids, k, s->d, stride, s->packed);
	}
	else
	{
		int			kpad = gk_gpu_wide_pad(k);

		pack_wide<<<dim3((kpad + 255) / 256, s->d < 1024 ? s->d : 1024), 256, 0, s->gpu->stream>>>
			(centroids, k, s->d, kpad, s->packed);
	}
	GK_LAUNCHED();
	return GK_OK;
}

/* ---- narrow ---- */

template <int D, typename L>
__global__ void __launch_bounds__(THREADS)
assign_narrow(GkRows p, const float *packed, int from, int to, bool more, L *labels, float *d2out)
{
	constexpr int S = (D + 3) / 4 * 4;
	constexpr int TILE = NARROW_FLOATS / S;
	__shared__ float4 cs[NARROW_FLOATS / 4];
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
			if (more && mine && row + r < p.rows)
			{
				best[r] = d2out[p.first + row + r];
				label[r] = labels[p.first + row + r];
			}
		}
		for (int c0 = from; c0 < to; c0 += TILE)
		{
			int			count = to - c0 < TILE ? to - c0 : TILE;

			if (!loaded)
			{
				__syncthreads();
				for (int v = threadIdx.x; v < count * S / 4; v += THREADS)
					cs[v] = __ldg((const float4 *) packed + (int64_t) c0 * S / 4 + v);
				__syncthreads();
				loaded = to - from <= TILE;
			}
			if (!mine)
				continue;
#pragma unroll 2
			for (int i = 0; i < count; i++)
			{
				float		c[S];

#pragma unroll
				for (int v = 0; v < S / 4; v++)
				{
					float4		t = cs[i * (S / 4) + v];

					c[4 * v] = t.x;
					c[4 * v + 1] = t.y;
					c[4 * v + 2] = t.z;
					c[4 * v + 3] = t.w;
				}
#pragma unroll
				for (int r = 0; r < 4; r++)
				{
					float		s = 0.0f;

#pragma unroll
					for (int j = 0; j < D; j++)
					{
						float		t = __fsub_rn(x[j][r], c[j]);

						s = __fmaf_rn(t, t, s);
					}
					if (s < best[r])
					{
						best[r] = s;
						label[r] = c0 + i;
					}
				}
			}
		}
		if (!mine)
			continue;
		/* Buffers are padded: four at once, whatever lies past the end. */
		if (labels != NULL)
			gk_store_labels(labels + p.first + row, label);
#pragma unroll
		for (int r = 0; r < 4; r++)
			if (row + r < p.rows)
			{
				if (d2out != NULL)
					d2out[p.first + row + r] = best[r];
			}
	}
}

/* ---- wide ---- */

template <int BM, int BN, int TM, int TN, typename L>
__global__ void __launch_bounds__(THREADS)
assign_wide(GkRows p, int d, const float *packed, int kpad, int from, int to, bool more,
			L *labels, float *d2out)
{
	constexpr int TX = BN / TN;		/* threads side by side over centroids */
	constexpr int XV = BM * BK / 4 / THREADS;	/* vectors that a thread loads */
	constexpr int CV = (BN * BK / 4 + THREADS - 1) / THREADS;
	__shared__ __align__(16) float xs[2][BK][BM];
	__shared__ __align__(16) float cs[2][BK][BN];
	int64_t		row0 = (int64_t) blockIdx.x * BM;
	int			tx = threadIdx.x % TX;
	int			ty = threadIdx.x / TX;
	int			slabs = (d + BK - 1) / BK;
	float		best[TM];
	int			label[TM];

	static_assert(THREADS / TX * TM == BM, "threads cover the tile");
#pragma unroll
	for (int r = 0; r < TM; r++)
	{
		int64_t		row = row0 + ty * TM + r;

		best[r] = GK_INF;
		label[r] = 0;
		if (more && row < p.rows)
		{
			best[r] = d2out[p.first + row];
			label[r] = labels[p.first + row];
		}
	}
	for (int c0 = from; c0 < to; c0 += BN)
	{
		float		acc[TM][TN];
		float4		xv[XV];
		float4		cv[CV];

#pragma unroll
		for (int r = 0; r < TM; r++)
#pragma unroll
			for (int c = 0; c < TN; c++)
				acc[r][c] = 0.0f;
		for (int b = 0; b <= slabs; b++)
		{
			/* Fetch slab b while slab b - 1 is multiplied. */
			if (b < slabs)
			{
#pragma unroll
				for (int v = 0; v < XV; v++)
				{
					int			at = (threadIdx.x + v * THREADS) * 4;
					int			j = b * BK + at / BM;

					xv[v] = j < d ? __ldg((const float4 *) (p.x + j * p.ld + row0 + at % BM)) : make_float4(0, 0, 0, 0);
				}
#pragma unroll
				for (int v = 0; v < CV; v++)
				{
					int			at = (threadIdx.x + v * THREADS) * 4;
					int			j = b * BK + at / BN;

					/* Past the last feature both are 0 and add nothing. */
					if (at < BN * BK)
						cv[v] = j < d ? __ldg((const float4 *) (packed + (int64_t) j * kpad + c0 + at % BN)) : make_float4(0, 0, 0, 0);
				}
			}
			if (b > 0)
			{
				int			buf = (b - 1) & 1;

#pragma unroll
				for (int j = 0; j < BK; j++)
				{
					float		xr[TM];
					float		cr[TN];

#pragma unroll
					for (int r = 0; r < TM; r += 4)
						*(float4 *) &xr[r] = *(const float4 *) &xs[buf][j][ty * TM + r];
#pragma unroll
					for (int c = 0; c < TN; c += 4)
						*(float4 *) &cr[c] = *(const float4 *) &cs[buf][j][(c / 4 * TX + tx) * 4];
#pragma unroll
					for (int r = 0; r < TM; r++)
#pragma unroll
						for (int c = 0; c < TN; c++)
						{
							float		t = __fsub_rn(xr[r], cr[c]);

							acc[r][c] = __fmaf_rn(t, t, acc[r][c]);
						}
				}
			}
			if (b < slabs)
			{
				int			buf = b & 1;

#pragma unroll
				for (int v = 0; v < XV; v++)
				{
					int			at = (threadIdx.x + v * THREADS) * 4;

					*(float4 *) &xs[buf][at / BM][at % BM] = xv[v];
				}
#pragma unroll
				for (int v = 0; v < CV; v++)
				{
					int			at = (threadIdx.x + v * THREADS) * 4;

					if (at < BN * BK)
						*(float4 *) &cs[buf][at / BN][at % BN] = cv[v];
				}
			}
			__syncthreads();
		}
		/* A thread's centroids come in ascending order within a tile. */
#pragma unroll
		for (int c = 0; c < TN; c++)
		{
			int			i = c0 + (c / 4 * TX + tx) * 4 + c % 4;

			if (i < to)
			{
#pragma unroll
				for (int r = 0; r < TM; r++)
					if (acc[r][c] < best[r])
					{
						best[r] = acc[r][c];
						label[r] = i;
					}
			}
		}
	}
#pragma unroll
	for (int r = 0; r < TM; r++)
	{
		int64_t		row = row0 + ty * TM + r;

#pragma unroll
		for (int o = TX / 2; o > 0; o >>= 1)
		{
			float		other = __shfl_xor_sync(0xffffffffu, best[r], o);
			int			other_label = __shfl_xor_sync(0xffffffffu, label[r], o);

			if (gk_better(other, other_label, best[r], label[r]))
			{
				best[r] = other;
				label[r] = other_label;
			}
		}
		if (tx == 0 && row < p.rows)
		{
			if (labels != NULL)
				labels[p.first + row] = label[r];
			if (d2out != NULL)
				d2out[p.first + row] = best[r];
		}
	}
}

/* ---- launchers ---- */

#define NARROW_CASE(D) \
	case D: \
		assign_narrow<D, L><<<blocks, THREADS, 0, s->gpu->stream>>>(r, s->packed, from, to, more, labels, d2); \
		break

template <typename L>
static void
launch_narrow(GkSession *s, const GkRows &r, int from, int to, bool more, L *labels, float *d2)
{
	int64_t		want = (r.rows + 4 * THREADS - 1) / (4 * THREADS);
	int			blocks = (int) (want < 8 * s->gpu->sms ? want : 8 * s->gpu->sms);

	switch (s->d)
	{
		NARROW_CASE(1);
		NARROW_CASE(2);
		NARROW_CASE(3);
		NARROW_CASE(4);
		NARROW_CASE(5);
		NARROW_CASE(6);
		NARROW_CASE(7);
		NARROW_CASE(8);
		NARROW_CASE(9);
		NARROW_CASE(10);
		NARROW_CASE(11);
		NARROW_CASE(12);
		NARROW_CASE(13);
		NARROW_CASE(14);
		NARROW_CASE(15);
		NARROW_CASE(16);
	}
}

template <int BM, int BN, int TM, int TN, typename L>
static void
launch_wide(GkSession *s, const GkRows &r, int kpad, int from, int to, bool more, L *labels, float *d2)
{
	assign_wide<BM, BN, TM, TN, L><<<(unsigned int) ((r.rows + BM - 1) / BM), THREADS, 0, s->gpu->stream>>>
		(r, s->d, s->packed, kpad, from, to, more, labels, d2);
}

template <typename L>
static void
launch(GkSession *s, const GkRows &r, int k, int kpad, int from, int to, L *labels, float *d2)
{
	bool		more = from > 0;

	if (s->d <= NARROW)
		launch_narrow(s, r, from, to, more, labels, d2);
	else if (k <= 16)
		launch_wide<256, 16, 4, 4>(s, r, kpad, from, to, more, labels, d2);
	else if (k <= 64)
		launch_wide<256, 64, 8, 8>(s, r, kpad, from, to, more, labels, d2);
	else
		launch_wide<128, 128, 8, 8>(s, r, kpad, from, to, more, labels, d2);
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
	GkRows		r = *rows;
	int			kpad = gk_gpu_wide_pad(k);
	double		cost = (double) r.rows * s->d * 6.0;
	double		room = 0.03 * s->gpu->sms * 128 * 1.2e9;
	int			step = (int) (room / cost > k ? k : room / cost);

	r.first = 0;
	if (d2 == NULL && gk_gpu_assign_mma_fits(s, k))
		return gk_gpu_assign_mma(s, &r, k, labels, err);
	step = step < PAD_K ? PAD_K : step / PAD_K * PAD_K;
	if (step < k)
	{
		/* Several launches hand the best so far on in these. */
		if (labels.at == NULL)
			GK_DO(gk_gpu_labels(s, r.rows, k, &labels, err));
		if (d2 == NULL)
		{
			GK_DO(gk_gpu_grow(s, (void **) &s->d2, &s->d2_room, r.rows, sizeof(float), err));
			d2 = s->d2;
		}
	}
	for (int from = 0; from < k; from += step)
	{
		int			to = k - from < step ? k : from + step;

		if (labels.narrow)
			launch(s, r, k, kpad, from, to, (uint8_t *) labels.at, d2);
		else
			launch(s, r, k, kpad, from, to, (int32_t *) labels.at, d2);
		GK_LAUNCHED();
	}
	return GK_OK;
}
