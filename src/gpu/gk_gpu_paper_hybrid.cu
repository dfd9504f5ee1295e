/*
 * gk_gpu_paper_hybrid.cu - cross processing (Zechner and Granitzer 2009; Lutz et al.  2018): labels on the
 * GPU, sums on the CPU.  Labels come down slice by slice, as bytes while they suffice; while the device works
 * on the next slice the host's threads add up this one.
 *
 * It reproduces the papers and runs only where the strategy asks for it.
 */
#include <string.h>

#include "gpu/gk_gpu.h"

#define WAYS		4			/* sums side by side, so that an addition need not wait for the last */
#define BLOCK_ROWS	(WAYS * GK_PACKAGE)	/* rows of one host job */
#define MAX_COLUMN_K	64		/* clusters: with more, a feature's sums leave the L1 cache */

/* Sums of one thread, in the order of GkStep. */
typedef struct HybridSums
{
	int64_t    *hi;				/* [k][d] */
	int64_t    *lo;				/* [k][d], weighted */
	int64_t    *mass;			/* [k] */
	int64_t    *count;			/* [k] */
} HybridSums;

typedef struct Hybrid
{
	int			k;
	GkStep	   *out;
	char	   *labels[2];		/* pinned */
	GkLabels	on_device;
	size_t		width;			/* of a label */
	cudaEvent_t done[2];
	int			turn;
	int64_t		pending_first;	/* of the slice that is on the way */
	int64_t		pending_rows;	/* 0: none */
	int64_t    *sums;			/* per thread */
	size_t		per_thread;
	/* Job at hand. */
	GkSession  *s;
	const GkChunk *chunk;
	const void *job_labels;
	int64_t		from;			/* row of the chunk */
	int64_t		rows;
} Hybrid;

static HybridSums
thread_sums(const Hybrid *c, int thread)
{
	size_t		kd = (size_t) c->k * c->s->d;
	int64_t    *base = c->sums + thread * c->per_thread;
	HybridSums	t = {base, base + kd, base + 2 * kd, base + 2 * kd + c->k};

	return t;
}

/* Few clusters: float64 sums of a package each, which are exact, one feature after the other. */
template <typename L>
static void
sum_columns(const Hybrid *c, const L *labels, int64_t rows, const float *x0, const HybridSums &t)
{
	const GkPoints *pts = c->s->pts;
	int			d = pts->d;
	int64_t		whole = rows / WAYS * WAYS;
	uint32_t	count[WAYS][MAX_COLUMN_K] = {};

	for (int64_t r = 0; r < whole; r += WAYS)
		for (int w = 0; w < WAYS; w++)
			count[w][labels[r + w]]++;
	for (int64_t r = whole; r < rows; r++)
		count[0][labels[r]]++;
	for (int i = 0; i < c->k; i++)
		for (int w = 0; w < WAYS; w++)
		{
			t.count[i] += count[w][i];
			t.mass[i] += count[w][i];
		}
	for (int j = 0; j < d; j++)
	{
		const float *x = x0 + (size_t) j * c->chunk->stride;
		double		inv = gk_pow2(GK_GRID_BITS - pts->prep.expo[j]);
		double		sum[WAYS][MAX_COLUMN_K] = {};

		for (int64_t r = 0; r < whole; r += WAYS)
			for (int w = 0; w < WAYS; w++)
				sum[w][labels[r + w]] += (double) x[r + w];
		for (int64_t r = whole; r < rows; r++)
			sum[r - whole][labels[r]] += (double) x[r];
		for (int i = 0; i < c->k; i++)
			for (int w = 0; w < WAYS; w++)
				t.hi[(size_t) i * d + j] += (int64_t) (sum[w][i] * inv);
	}
}

template <typename L>
static void
sum_rows(const Hybrid *c, const L *labels, int64_t rows, const float *x0, const float *w, const HybridSums &t)
{
	const GkPoints *pts = c->s->pts;
	int			d = pts->d;

	for (int64_t r = 0; r < rows; r++)
	{
		t.count[labels[r]]++;
		t.mass[labels[r]] += w ? gk_fixed(w[r], 0x1p40) : 1;
	}
	for (int j = 0; j < d; j++)
	{
		const float *x = x0 + (size_t) j * c->chunk->stride;
		double		inv = gk_pow2(GK_GRID_BITS - pts->prep.expo[j]);

		if (w == NULL)
			for (int64_t r = 0; r < rows; r++)
				t.hi[(size_t) labels[r] * d + j] += gk_fixed(x[r], inv);
		else
			for (int64_t r = 0; r < rows; r++)
			{
				/* w * x is exact; split at 2^40 as the kernels do. */
				double		p = ((double) w[r] * (double) x[r]) * inv;
				double		hi = (p + 0x1.8p52) - 0x1.8p52;

				t.hi[(size_t) labels[r] * d + j] += (int64_t) hi;
				t.lo[(size_t) labels[r] * d + j] += (int64_t) ((p - hi) * 0x1p40);
			}
	}
}

template <typename L>
static void
sum_block(void *arg, int64_t job, int thread)
{
	const Hybrid *c = (const Hybrid *) arg;
	const float *w = gk_chunk_weight(c->s->pts, c->chunk);
	int64_t		r0 = job * BLOCK_ROWS;
	int64_t		rows = c->rows - r0 < BLOCK_ROWS ? c->rows - r0 : BLOCK_ROWS;
	const L    *labels = (const L *) c->job_labels + r0;
	const float *x = c->chunk->data + c->from + r0;

	if (w == NULL && c->k <= MAX_COLUMN_K)
		sum_columns(c, labels, rows, x, thread_sums(c, thread));
	else
		sum_rows(c, labels, rows, x, w ? w + c->from + r0 : NULL, thread_sums(c, thread));
}

/* Threads' sums into the result; they fit int64 for GK_INT64_ROWS rows. */
static void
collect(Hybrid *c)
{
	size_t		kd = (size_t) c->k * c->s->d;
	bool		weighted = c->s->pts->weighted;

	for (int i = 0; i < gk_gpu_threads(c->s); i++)
	{
		HybridSums	t = thread_sums(c, i);

		for (size_t v = 0; v < kd; v++)
			c->out->sum[v] += weighted ? (gk_int128) t.hi[v] * ((gk_int128) 1 << 40) + t.lo[v] : (gk_int128) t.hi[v];
		for (int v = 0; v < c->k; v++)
		{
			c->out->mass[v] += t.mass[v];
			c->out->count[v] += t.count[v];
		}
	}
	memset(c->sums, 0, gk_gpu_threads(c->s) * c->per_thread * sizeof(int64_t));
}

/* Add up the slice that has come down. */
static GkStatus
sum_pending(GkSession *s, Hybrid *c, GkError *err)
{
	int64_t		first = c->pending_first;
	int64_t		end = first + c->pending_rows;
	int			slot = 1 - c->turn;

	if (c->pending_rows == 0)
		return GK_OK;
	GK_DO(gk_gpu_wait(s, c->done[slot], err));
	for (int i = 0; i < s->pts->nchunks; i++)
	{
		const GkChunk *ch = &s->pts->chunks[i];
		int64_t		a = ch->first > first ? ch->first : first;
		int64_t		b = ch->first + ch->rows < end ? ch->first + ch->rows : end;
		GkChunk		view;
		bool		ran;

		if (a >= b)
			continue;
		GK_DO(s->core->chunk_open(s->store, i, GK_READ_FEATURES, &view, err));
		c->chunk = &view;
		c->from = a - ch->first;
		c->rows = b - a;
		c->job_labels = c->labels[slot] + (a - first) * c->width;
		ran = s->core->parallel_for(s->host, (c->rows + BLOCK_ROWS - 1) / BLOCK_ROWS,
									c->on_device.narrow ? sum_block<uint8_t> : sum_block<int32_t>, c);
		GK_DO(s->core->chunk_close(s->store, i, &view, false, err));
		if (!ran)
			return GK_STOPPED;
	}
	collect(c);
	c->pending_rows = 0;
	return GK_OK;
}

static GkStatus
hybrid_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	Hybrid	   *c = (Hybrid *) arg;

	GK_DO(gk_gpu_assign(s, rows, c->k, c->on_device, NULL, err));
	GK_TRY(cudaMemcpyAsync(c->labels[c->turn], c->on_device.at, rows->rows * c->width, cudaMemcpyDeviceToHost, s->gpu->stream));
	GK_TRY(cudaEventRecord(c->done[c->turn], s->gpu->stream));
	GK_DO(sum_pending(s, c, err));
	c->pending_first = rows->first;
	c->pending_rows = rows->rows;
	c->turn = 1 - c->turn;
	return GK_OK;
}

static GkStatus
hybrid_run(GkSession *s, Hybrid *c, const float *centroids, int64_t rows, GkError *err)
{
	GK_DO(gk_gpu_drain(s, err));
	GK_DO(gk_gpu_put_centroids(s, centroids, c->k, err));
	GK_DO(gk_gpu_pack(s, s->centroids, c->k, err));
	GK_DO(gk_gpu_labels(s, rows, c->k, &c->on_device, err));
	c->width = c->on_device.narrow ? 1 : sizeof(int32_t);
	for (int i = 0; i < 2; i++)
	{
		GK_TRY(cudaHostAlloc((void **) &c->labels[i], rows * c->width, cudaHostAllocDefault));
		GK_TRY(cudaEventCreateWithFlags(&c->done[i], cudaEventDisableTiming));
	}
	GK_DO(gk_gpu_each(s, rows, hybrid_slice, c, err));
	return sum_pending(s, c, err);
}

GkStatus
gk_gpu_paper_hybrid(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	Hybrid		c = {};
	int64_t		rows = gk_min(gk_gpu_update_rows(s, k), (int64_t) 1 << 20);
	GkStatus	st;

	c.s = s;
	c.k = k;
	c.out = out;
	c.per_thread = 2 * (size_t) k * s->d + 2 * (size_t) k;
	c.sums = (int64_t *) s->core->alloc(s->host, gk_gpu_threads(s) * c.per_thread, sizeof(int64_t));
	if (c.sums == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	memset(c.sums, 0, gk_gpu_threads(s) * c.per_thread * sizeof(int64_t));
	memset(out->sum, 0, (size_t) k * s->d * sizeof(gk_int128));
	memset(out->mass, 0, k * sizeof(gk_int128));
	memset(out->count, 0, k * sizeof(int64_t));
	st = hybrid_run(s, &c, centroids, rows, err);
	for (int i = 0; i < 2; i++)
	{
		if (c.labels[i] != NULL)
			cudaFreeHost(c.labels[i]);
		if (c.done[i] != NULL)
			cudaEventDestroy(c.done[i]);
	}
	s->core->free(s->host, c.sums);
	return st;
}
