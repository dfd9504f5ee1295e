/*
 * gk_gpu_finish.cu - the last look at the points: sizes, inertia and radius of every cluster, exact, and the
 * labels on their way to the host, chunk by chunk in row order, while the device works on the next slice.
 */
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define SINK_ROWS		((int64_t) 1 << 20)	/* a slice's labels and distances: 8 MB */

typedef struct StatArgs
{
	const int32_t *labels;
	const float *d2;
	const float *w;
	int64_t		rows;
	int			k;
	double		scale;			/* of gk_d2_split */
	GkAcc		acc;			/* inertia[k], then counts[k] */
	unsigned int *max_bits;		/* [k] */
} StatArgs;

/* ---- kernels ---- */

/* One private table per thread: inertia's two parts, the maximum and the count. */
__global__ void
stat_private(StatArgs a)
{
	extern __shared__ double table[];	/* [k][threads] hi, lo, then floats, counts */
	int			threads = blockDim.x;
	double	   *hi = table + threadIdx.x;
	double	   *lo = hi + a.k * threads;
	float	   *top = (float *) (table + 2 * a.k * threads) + threadIdx.x;
	unsigned int *count = (unsigned int *) (top + a.k * threads);

	for (int i = 0; i < a.k; i++)
	{
		hi[i * threads] = lo[i * threads] = 0.0;
		top[i * threads] = 0.0f;
		count[i * threads] = 0;
	}
	for (int64_t row = (int64_t) blockIdx.x * threads + threadIdx.x; row < a.rows; row += (int64_t) gridDim.x * threads)
	{
		int			at = __ldg(a.labels + row) * threads;
		float		d2 = __ldg(a.d2 + row);
		double		h,
					l;

		gk_d2_split_double(a.w ? (double) d2 * (double) __ldg(a.w + row) : (double) d2, a.scale, h, l);
		hi[at] += h;
		lo[at] += l;
		top[at] = d2 > top[at] ? d2 : top[at];
		count[at]++;
	}
	for (int i = 0; i < a.k; i++)
	{
		long long	h = gk_warp_sum((long long) hi[i * threads]);
		long long	l = gk_warp_sum((long long) lo[i * threads]);
		unsigned int n = __reduce_add_sync(0xffffffffu, count[i * threads]);
		unsigned int m = __reduce_max_sync(0xffffffffu, __float_as_uint(top[i * threads]));

		if (threadIdx.x % 32 == 0 && n != 0)
		{
			gk_acc_add_parts(a.acc, i, h, l);
			gk_red(a.acc.a + a.k + i, n);
			atomicMax(a.max_bits + i, m);
		}
	}
}

__global__ void
stat_global(StatArgs a)
{
	for (int64_t row = (int64_t) blockIdx.x * blockDim.x + threadIdx.x; row < a.rows;
		 row += (int64_t) gridDim.x * blockDim.x)
	{
		int			i = __ldg(a.labels + row);
		float		d2 = __ldg(a.d2 + row);
		double		h,
					l;

		gk_d2_split_double(a.w ? (double) d2 * (double) __ldg(a.w + row) : (double) d2, a.scale, h, l);
		gk_acc_add_parts(a.acc, i, (long long) h, (long long) l);
		gk_red(a.acc.a + a.k + i, 1);
		if (__float_as_uint(d2) > *(volatile unsigned int *) (a.max_bits + i))
			atomicMax(a.max_bits + i, __float_as_uint(d2));
	}
}

/* ---- labels on their way to the host ---- */

typedef struct Down
{
	int			k;
	bool		stats;
	const GkLabelSink *sink;
	/* Two slices in turn, pinned: labels, then distances. */
	int32_t    *buf[2];
	int64_t		room;
	cudaEvent_t done[2];
	int			turn;
	int64_t		pending;		/* rows on the way, 0: none */
	/* The chunk that is being filled. */
	int			chunk;
	int64_t		filled;
	int32_t    *labels;
	float	   *d2;
} Down;

static GkStatus
emit_chunk(GkSession *s, Down *d, GkError *err)
{
	const uint32_t *aux[GK_MAX_AUX] = {NULL};
	GkChunk		view;
	bool		ok;

	GK_DO(s->core->chunk_open(s->store, d->chunk, GK_READ_FEATURES, &view, err));
	for (int i = 0; i < s->pts->naux; i++)
		aux[i] = gk_chunk_aux(s->pts, &view, i);
	ok = d->sink->emit(d->sink->ctx, view.rows, d->labels, d->d2, aux);
	GK_DO(s->core->chunk_close(s->store, d->chunk, &view, false, err));
	if (!ok)
		return gk_gpu_error(err, GK_ERR_HOST, "the labels could not be delivered");
	d->chunk++;
	d->filled = 0;
	return GK_OK;
}

/* Hand over the rows that came down last. */
static GkStatus
deliver(GkSession *s, Down *d, GkError *err)
{
	int			slot = 1 - d->turn;
	const int32_t *labels = d->buf[slot];
	const float *d2 = (const float *) (labels + d->room);

	if (d->pending == 0)
		return GK_OK;
	GK_DO(gk_gpu_wait(s, d->done[slot], err));
	for (int64_t at = 0; at < d->pending;)
	{
		int64_t		want = s->pts->chunks[d->chunk].rows - d->filled;
		int64_t		n = d->pending - at < want ? d->pending - at : want;

		memcpy(d->labels + d->filled, labels + at, n * sizeof(int32_t));
		memcpy(d->d2 + d->filled, d2 + at, n * sizeof(float));
		d->filled += n;
		at += n;
		if (d->filled == s->pts->chunks[d->chunk].rows)
			GK_DO(emit_chunk(s, d, err));
	}
	d->pending = 0;
	return GK_OK;
}

/* ---- the pass ---- */

static GkStatus
launch_stats(GkSession *s, const GkRows *rows, const int32_t *labels, int k, GkError *err)
{
	StatArgs	a = {labels, s->d2, rows->w, rows->rows, k, gk_pow2(GK_GRID_BITS - s->pts->d2_expo), s->acc,
	(unsigned int *) s->shifts};
	int64_t		blocks;
	int			threads = 256;

	while (threads >= 64 && (size_t) 24 * k * threads > gk_gpu_table_room(s))
		threads /= 2;
	blocks = gk_min((rows->rows + threads * 4 - 1) / (threads * 4), s->gpu->sms * GK_SM_BLOCKS);
	if (threads >= 64)
	{
		GK_TRY(cudaFuncSetAttribute((const void *) stat_private, cudaFuncAttributeMaxDynamicSharedMemorySize,
									24 * k * threads));
		stat_private<<<(unsigned int) blocks, threads, 24 * k * threads, s->gpu->stream>>>(a);
	}
	else
		stat_global<<<(unsigned int) blocks, 256, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return gk_gpu_reduce_values(s, k, 2 * (int64_t) k, 40, err);
}

static GkStatus
finish_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	Down	   *d = (Down *) arg;
	int32_t    *labels;

	GK_DO(gk_gpu_grow(s, (void **) &s->labels, &s->labels_room, rows->rows + GK_ROW_PAD, sizeof(int32_t), err));
	GK_DO(gk_gpu_grow(s, (void **) &s->d2, &s->d2_room, rows->rows, sizeof(float), err));
	labels = s->labels + (s->gemm_k == d->k ? rows->first : 0);
	GK_DO(gk_gpu_assign(s, rows, d->k, {labels, false}, s->d2, err));
	if (d->stats)
		GK_DO(launch_stats(s, rows, labels, d->k, err));
	if (d->sink != NULL)
	{
		GK_TRY(cudaMemcpyAsync(d->buf[d->turn], labels, rows->rows * sizeof(int32_t),
							   cudaMemcpyDeviceToHost, s->gpu->stream));
		GK_TRY(cudaMemcpyAsync(d->buf[d->turn] + d->room, s->d2, rows->rows * sizeof(float),
							   cudaMemcpyDeviceToHost, s->gpu->stream));
		GK_TRY(cudaEventRecord(d->done[d->turn], s->gpu->stream));
		GK_DO(deliver(s, d, err));
		d->pending = rows->rows;
		d->turn = 1 - d->turn;
	}
	return GK_OK;
}

static GkStatus
open_sink(GkSession *s, Down *d, GkError *err)
{
	int64_t		rows = 0;

	for (int i = 0; i < s->pts->nchunks; i++)
		if (s->pts->chunks[i].rows > rows)
			rows = s->pts->chunks[i].rows;
	d->labels = (int32_t *) s->core->alloc(s->host, rows, sizeof(int32_t));
	d->d2 = (float *) s->core->alloc(s->host, rows, sizeof(float));
	if (d->labels == NULL || d->d2 == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	for (int i = 0; i < 2; i++)
	{
		GK_TRY(cudaHostAlloc((void **) &d->buf[i], d->room * 8, cudaHostAllocDefault));
		GK_TRY(cudaEventCreateWithFlags(&d->done[i], cudaEventDisableTiming));
	}
	return GK_OK;
}

static void
close_sink(GkSession *s, Down *d)
{
	for (int i = 0; i < 2; i++)
	{
		if (d->buf[i] != NULL)
			cudaFreeHost(d->buf[i]);
		if (d->done[i] != NULL)
			cudaEventDestroy(d->done[i]);
	}
	s->core->free(s->host, d->labels);
	s->core->free(s->host, d->d2);
}

/* Statistics from the device. */
static GkStatus
collect(GkSession *s, int k, GkFinish *out, GkError *err)
{
	gk_int128  *totals = (gk_int128 *) s->core->alloc(s->host, 2 * (size_t) k, sizeof(gk_int128));
	GkStatus	st = GK_OK;

	if (totals == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	st = gk_gpu_totals(s, 2 * (int64_t) k, totals, err);
	if (st == GK_OK)
	{
		cudaError_t e = cudaMemcpy(out->max_d2, s->shifts, k * sizeof(float), cudaMemcpyDeviceToHost);

		if (e != cudaSuccess)
			st = gk_gpu_fail(s, e, "cudaMemcpy", __FILE__, __LINE__, err);
		for (int i = 0; i < k; i++)
		{
			out->inertia[i] = totals[i];
			out->count[i] = (int64_t) totals[k + i];
		}
	}
	s->core->free(s->host, totals);
	return st;
}

static GkStatus
run(GkSession *s, const float *centroids, int64_t rows, const int32_t *stepped, Down *d, GkError *err)
{
	GK_DO(gk_gpu_put_centroids(s, centroids, d->k, err));
	GK_TRY(cudaMemsetAsync(s->totals, 0, 2 * (size_t) d->k * sizeof(gk_int128), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(s->shifts, 0, d->k * sizeof(double), s->gpu->stream));
	GK_DO(gk_gpu_gemm_all(s, d->k, true, stepped, err));
	if (s->gemm_k != d->k)
		GK_DO(gk_gpu_pack(s, s->centroids, d->k, err));
	if (d->sink != NULL)
		GK_DO(open_sink(s, d, err));
	GK_DO(gk_gpu_each(s, rows, finish_slice, d, err));
	return d->sink != NULL ? deliver(s, d, err) : GK_OK;
}

GkStatus
gk_gpu_finish(GkSession *s, const float *centroids, int k, GkFinish *out, const GkLabelSink *sink, GkError *err)
{
	int64_t		rows = gk_gpu_update_rows(s, k);
	Down		d = {};
	GkStatus	st;

	GK_DO(gk_gpu_room(s, k, err));
	gk_gpu_step_stop(s);
	s->delta_k = 0;				/* its totals are used here */
	GK_DO(gk_gpu_drain(s, err));
	d.k = k;
	d.stats = out != NULL;
	d.sink = sink;
	if (sink != NULL && rows > SINK_ROWS)
		rows = SINK_ROWS;
	d.room = rows;
	st = run(s, centroids, rows, out != NULL ? out->stepped : NULL, &d, err);
	if (st == GK_OK && out != NULL)
		st = collect(s, k, out, err);
	if (st != GK_OK)
		cudaStreamSynchronize(s->gpu->stream);	/* nothing may write to the buffers any more */
	close_sink(s, &d);
	return st;
}
