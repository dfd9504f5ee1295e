/*
 * gk_gpu_points.cu - the points' way to the device, and the walk over them.
 *
 * Every chunk is copied once through the pinned ring (all host threads copy, while the previous piece is on
 * the bus) into one column-major allocation.  What does not fit gpu_memory_limit is streamed in every pass,
 * piece by piece into four slots: two are in flight while one is computed on and one is filled.  Chunks that
 * lie in main memory are pinned, which takes as long as some passes but needs no CPU afterwards, and the
 * device fetches the pieces itself; others (in the spill file, or where nothing may be pinned) go through the
 * ring.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu/gk_gpu_cost.h"

#define COPY_ROWS	65536		/* rows of one column that one copy job moves */
#define UNIT_BYTES	((size_t) 1 << 18)	/* of the log's entries that come back at once */

int64_t
gk_gpu_piece_rows(const GkSession *s)
{
	int64_t		rows = (int64_t) (GK_GPU_RING_BYTES / sizeof(float) - GK_GPU_SLACK) / s->cols;

	return rows / GK_ROW_PAD * GK_ROW_PAD;
}

/* ---- filling the ring ---- */

typedef struct CopyJob
{
	const GkChunk *chunk;
	int64_t		from;			/* row of the chunk */
	int64_t		rows;
	int64_t		pitch;			/* rows of a column in the slot */
	int			blocks;
	float	   *slot;
} CopyJob;

static void
copy_block(void *arg, int64_t job, int thread)
{
	const CopyJob *c = (const CopyJob *) arg;
	int64_t		col = job / c->blocks;
	int64_t		at = job % c->blocks * COPY_ROWS;
	int64_t		rows = c->rows - at < COPY_ROWS ? c->rows - at : COPY_ROWS;

	(void) thread;
	memcpy(c->slot + col * c->pitch + at, c->chunk->data + col * c->chunk->stride + c->from + at,
		   rows * sizeof(float));
}

GkStatus
gk_gpu_next_slot(GkSession *s, int *slot, GkError *err)
{
	*slot = s->gpu->ring_next;
	s->gpu->ring_next = (*slot + 1) % GK_GPU_RING;
	return gk_gpu_wait(s, s->gpu->ring_sent[*slot], err);
}

/* Copy rows of a chunk into the next ring slot; *slot is its number. */
static GkStatus
fill_slot(GkSession *s, const GkChunk *chunk, int64_t from, int64_t rows, int *slot, GkError *err)
{
	GkGpu	   *g = s->gpu;
	CopyJob		c;

	GK_DO(gk_gpu_next_slot(s, slot, err));
	c.chunk = chunk;
	c.from = from;
	c.rows = rows;
	c.pitch = gk_round_up(rows, GK_ROW_PAD);
	c.blocks = (int) ((rows + COPY_ROWS - 1) / COPY_ROWS);
	c.slot = (float *) g->ring[*slot];
	if (rows * s->cols < 4 * COPY_ROWS)
	{
		for (int64_t j = 0; j < (int64_t) s->cols * c.blocks; j++)
			copy_block(&c, j, 0);
		return GK_OK;
	}
	return s->core->parallel_for(s->host, (int64_t) s->cols * c.blocks, copy_block, &c) ? GK_OK : GK_STOPPED;
}

static GkStatus
upload_chunk(GkSession *s, const GkChunk *chunk, GkError *err)
{
	GkGpu	   *g = s->gpu;
	int64_t		step = gk_gpu_piece_rows(s);

	for (int64_t r = 0; r < chunk->rows; r += step)
	{
		int64_t		rows = chunk->rows - r < step ? chunk->rows - r : step;
		int			slot;

		GK_DO(fill_slot(s, chunk, r, rows, &slot, err));
		GK_TRY(cudaMemcpy2DAsync(s->x + chunk->first + r, s->ld * sizeof(float),
								 g->ring[slot], gk_round_up(rows, GK_ROW_PAD) * sizeof(float),
								 rows * sizeof(float), s->cols, cudaMemcpyHostToDevice, g->copy));
		GK_TRY(cudaEventRecord(g->ring_sent[slot], g->copy));
	}
	return GK_OK;
}

/* ---- placing the points ---- */

GkStatus
gk_gpu_budget(GkSession *s, size_t *bytes, GkError *err)
{
	size_t		avail,
				total;
	double		limit = s->problem.gpu_memory_limit;

	GK_TRY(cudaMemGetInfo(&avail, &total));
	if (!(limit > 0.0 && limit <= 1.0))
		limit = GK_DEFAULT_LIMIT;
	*bytes = (size_t) ((double) avail * limit);
	return GK_OK;
}

size_t
gk_gpu_rest(const GkSession *s, int64_t n)
{
	size_t		values = (size_t) (s->problem.k_max + 1) * (s->d + 2);

	return GK_REST_BYTES + values * GK_REST_VALUE + (size_t) n * GK_REST_ROW;
}

/* How many whole chunks to keep: as many as fit beside the rest. */
static void
plan(GkSession *s, size_t bytes)
{
	size_t		rest = gk_gpu_rest(s, s->n);
	size_t		row = (size_t) s->cols * sizeof(float);

	s->resident = s->n;
	s->stream_chunk = s->pts->nchunks;
	if (rest + row * (s->n + 2 * GK_ROW_PAD) <= bytes)
	{
		s->spare = bytes - rest - row * (s->n + 2 * GK_ROW_PAD);
		return;
	}
	rest += GK_GPU_RING * GK_GPU_RING_BYTES;
	while (s->stream_chunk > 0 && rest + row * (s->resident + 2 * GK_ROW_PAD) > bytes)
		s->resident = s->pts->chunks[--s->stream_chunk].first;
}

/* Room to remember which of n chunks are pinned: none yet. */
static GkStatus
pinned_room(GkSession *s, int n, bool **pinned, GkError *err)
{
	*pinned = (bool *) s->core->alloc(s->host, n, sizeof(bool));
	if (*pinned == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	memset(*pinned, 0, n * sizeof(bool));
	return GK_OK;
}

/*
 * Chunks to be streamed, pinned where they lie.  Refused for one (the limit on locked memory, a page that
 * another one has), the rest goes through the ring.
 */
static GkStatus
pin_chunks(GkSession *s, GkError *err)
{
	if (s->resident == s->n || !s->pts->resident)
		return GK_OK;
	if (s->pinned == NULL)
		GK_DO(pinned_room(s, s->pts->nchunks, &s->pinned, err));
	for (int c = s->stream_chunk; c < s->pts->nchunks; c++)
	{
		const GkChunk *chunk = &s->pts->chunks[c];
		size_t		bytes = (size_t) chunk->stride * s->cols * sizeof(float);

		if (s->pinned[c])
			continue;
		if (cudaHostRegister(chunk->data, bytes, cudaHostRegisterDefault) != cudaSuccess)
		{
			cudaGetLastError();
			break;
		}
		s->pinned[c] = true;
		if (s->host->poll && s->host->poll(s->host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}

/* Those from chunk `first` on are not streamed any more. */
static void
unpin_chunks(GkSession *s, int first)
{
	for (int c = first; s->pinned != NULL && c < s->pts->nchunks; c++)
		if (s->pinned[c])
			cudaHostUnregister(s->pts->chunks[c].data);
}

static GkStatus
allocate_points(GkSession *s, GkError *err)
{
	s->ld = gk_round_up(s->resident, GK_ROW_PAD);
	if (s->resident > 0)
		GK_TRY(cudaMalloc((void **) &s->x, ((size_t) s->cols * s->ld + GK_GPU_SLACK) * sizeof(float)));
	if (s->resident < s->n)
		for (int i = 0; i < GK_GPU_RING; i++)
			GK_TRY(cudaMalloc((void **) &s->slot[i], GK_GPU_RING_BYTES));
	return GK_OK;
}

static void
free_points(GkSession *s)
{
	cudaFree(s->x);
	s->x = NULL;
	cudaFree(s->raw);
	s->raw = NULL;
	cudaFree(s->next_raw);
	s->next_raw = NULL;
	for (int i = 0; i < GK_GPU_RING; i++)
	{
		cudaFree(s->slot[i]);
		s->slot[i] = NULL;
	}
}

GkStatus
gk_gpu_clear_padding(GkSession *s, cudaStream_t stream, GkError *err)
{
	if (s->ld > s->resident)
		GK_TRY(cudaMemset2DAsync(s->x + s->resident, s->ld * sizeof(float), 0, (s->ld - s->resident) * sizeof(float),
								 s->cols, stream));
	GK_TRY(cudaMemsetAsync(s->x + (size_t) s->cols * s->ld, 0, GK_GPU_SLACK * sizeof(float), stream));
	return GK_OK;
}

GkStatus
gk_gpu_upload(GkSession *s, GkError *err)
{
	GkGpu	   *g = s->gpu;
	size_t		bytes = 0;

	if (gk_gpu_piece_rows(s) < GK_ROW_PAD)
		return gk_gpu_error(err, GK_ERR_DEVICE_MEMORY, "points of %d features are too wide for the GPU", s->d);
	GK_DO(gk_gpu_budget(s, &bytes, err));
	plan(s, bytes);
	for (;;)
	{
		GkStatus	st = allocate_points(s, err);

		if (st == GK_OK)
			break;
		free_points(s);
		if (st != GK_ERR_DEVICE_MEMORY || s->stream_chunk == 0)
			return st;
		/* Another process took the memory: keep half as many chunks. */
		s->stream_chunk /= 2;
		s->resident = s->pts->chunks[s->stream_chunk].first;
	}
	/* Streamed rows have a place for D, and those that stay one for their labels, too (GK_REST_ROW). */
	s->most = 2 * s->n - s->resident;
	if (s->resident > 0)
		GK_DO(gk_gpu_clear_padding(s, g->copy, err));
	for (int c = 0; c < s->stream_chunk; c++)
	{
		GkChunk		view;
		GkStatus	st;

		GK_DO(s->core->chunk_open(s->store, c, GK_READ_FEATURES, &view, err));
		st = upload_chunk(s, &view, err);
		GK_DO(s->core->chunk_close(s->store, c, &view, false, err));
		GK_DO(st);
		if (s->host->poll && s->host->poll(s->host->ctx))
			return GK_STOPPED;
	}
	GK_DO(pin_chunks(s, err));
	/* The host waits too: at most the ring is still on its way. */
	GK_TRY(cudaEventRecord(g->pace[0], g->copy));
	GK_TRY(cudaStreamWaitEvent(g->stream, g->pace[0], 0));
	return gk_gpu_wait(s, g->pace[0], err);
}

bool
gk_gpu_can_stream(const GkSession *s, const GkPoints *pts)
{
	if (pts->n <= s->resident || pts->n > s->most)
		return false;
	for (int c = 0; c < pts->nchunks && c < s->pts->nchunks; c++)
	{
		const GkChunk *is = &s->pts->chunks[c];
		const GkChunk *will = &pts->chunks[c];

		if (will->first != is->first || will->data != is->data || will->spill_at != is->spill_at)
			return false;
	}
	return true;
}

GkStatus
gk_gpu_stream_rows(GkSession *s, GkStore *store, GkError *err)
{
	const GkPoints *pts = s->core->points(store);
	int			both = (int) gk_min(pts->nchunks, s->pts->nchunks);
	bool	   *pinned;

	GK_DO(pinned_room(s, pts->nchunks, &pinned, err));
	/* a chunk that is cut elsewhere is pinned as a whole */
	if (s->pinned != NULL)
		memcpy(pinned, s->pinned, both * sizeof(bool));
	unpin_chunks(s, both);
	s->core->free(s->host, s->pinned);
	s->pinned = pinned;
	s->store = s->problem.store = store;
	s->pts = pts;
	s->n = pts->n;
	return pin_chunks(s, err);
}

/* ---- buffers ---- */

GkStatus
gk_gpu_grow(GkSession *s, void **buf, int64_t *room, int64_t want, size_t size, GkError *err)
{
	if (want <= *room)
		return GK_OK;
	if (*buf != NULL)
	{
		void	   *old = *buf;

		/* Waits for the kernels that use it; an error shows at the next call. */
		*buf = NULL;
		*room = 0;
		cudaFree(old);
	}
	GK_TRY(cudaMalloc(buf, (size_t) want * size));
	*room = want;
	return GK_OK;
}

GkStatus
gk_gpu_scratch(GkSession *s, size_t bytes, GkError *err)
{
	int64_t		room = (int64_t) s->scratch_room;
	GkStatus	st = gk_gpu_grow(s, &s->scratch, &room, (int64_t) bytes, 1, err);

	s->scratch_room = (size_t) room;
	return st;
}

/* Of very many centroids this goes up at a time: the driver copies such memory itself, while nothing else happens. */
#define PUT_BYTES		((size_t) 32 << 20)

GkStatus
gk_gpu_put_centroids(GkSession *s, const float *centroids, int k, GkError *err)
{
	size_t		bytes = (size_t) k * s->d * sizeof(float);

	for (size_t at = 0; at < bytes; at += PUT_BYTES)
	{
		if (at > 0 && s->host->poll != NULL && s->host->poll(s->host->ctx))
			return GK_STOPPED;
		GK_TRY(cudaMemcpyAsync((char *) s->centroids + at, (const char *) centroids + at, gk_min(bytes - at, PUT_BYTES),
							   cudaMemcpyHostToDevice, s->gpu->stream));
	}
	return GK_OK;
}

/* A piece of what comes to the host, from a slot of the ring: one thread takes as long for it as the bus. */
#define FETCH_BYTES		((size_t) 1 << 19)

typedef struct Fetch
{
	char	   *to;
	const char *slot;
	size_t		bytes;
} Fetch;

static void
take_piece(void *arg, int64_t job, int thread)
{
	const Fetch *f = (const Fetch *) arg;
	size_t		at = (size_t) job * FETCH_BYTES;

	(void) thread;
	memcpy(f->to + at, f->slot + at, gk_min(f->bytes - at, FETCH_BYTES));
}

static GkStatus
take(GkSession *s, const Fetch *f, int slot, GkError *err)
{
	GK_DO(gk_gpu_wait(s, s->gpu->ring_sent[slot], err));
	return s->core->parallel_for(s->host, (int64_t) ((f->bytes + FETCH_BYTES - 1) / FETCH_BYTES), take_piece, (void *) f) ?
		GK_OK : GK_STOPPED;
}

GkStatus
gk_gpu_fetch(GkSession *s, void *to, const void *from, size_t bytes, GkError *err)
{
	GkGpu	   *g = s->gpu;
	Fetch		before = {};
	int			before_slot = 0;

	/* While one piece is on its way the host takes the one before. */
	for (size_t at = 0; at < bytes; at += GK_GPU_RING_BYTES)
	{
		Fetch		f = {(char *) to + at, NULL, (size_t) gk_min(bytes - at, GK_GPU_RING_BYTES)};
		int			slot;

		GK_DO(gk_gpu_next_slot(s, &slot, err));
		f.slot = g->ring[slot];
		GK_TRY(cudaMemcpyAsync(g->ring[slot], (const char *) from + at, f.bytes, cudaMemcpyDeviceToHost, g->copy));
		GK_TRY(cudaEventRecord(g->ring_sent[slot], g->copy));
		if (before.bytes > 0)
			GK_DO(take(s, &before, before_slot, err));
		before = f;
		before_slot = slot;
	}
	return before.bytes > 0 ? take(s, &before, before_slot, err) : GK_OK;
}

/* Waits for what is copied from or to it. */
static void
free_log(GkSession *s)
{
	cudaFree(s->log);
	if (s->log_host != NULL)
		cudaFreeHost(s->log_host);
	s->log = s->log_host = NULL;
	s->log_room = 0;
}

static void
free_room(GkSession *s)
{
	cudaFree(s->centroids);
	cudaFree(s->packed);
	cudaFree(s->acc.a);
	cudaFree(s->totals);
	cudaFree(s->shifts);
	s->centroids = s->packed = NULL;
	s->acc.a = s->acc.b = NULL;
	s->totals = NULL;
	s->delta_k = 0;
	s->shifts = NULL;
	s->k_room = 0;
}

/* Room for k centroids: also k-means||, which tries more of them than k_max. */
GkStatus
gk_gpu_room(GkSession *s, int k, GkError *err)
{
	int64_t		values = gk_gpu_values(s, k);
	size_t		kpad = gk_round_up(k, 128);

	if (k <= s->k_room)
		return GK_OK;
	gk_gpu_step_stop(s);
	GK_DO(gk_gpu_drain(s, err));
	free_room(s);
	GK_TRY(cudaMalloc((void **) &s->centroids, ((size_t) k * s->d + 4) * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &s->packed, kpad * gk_round_up(s->d, 16) * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &s->acc.a, 2 * values * sizeof(unsigned long long)));
	s->acc.b = s->acc.a + values;
	GK_TRY(cudaMalloc((void **) &s->totals, values * sizeof(gk_int128)));
	GK_TRY(cudaMalloc((void **) &s->shifts, (size_t) k * sizeof(double)));
	GK_TRY(cudaMemsetAsync(s->acc.a, 0, 2 * values * sizeof(unsigned long long), s->gpu->stream));
	s->k_room = k;
	return GK_OK;
}

/* As gk_gpu_room(), for the log of steps: pinned memory takes long to get, and not all that has centroids makes steps. */
GkStatus
gk_gpu_log_room(GkSession *s, int k, GkError *err)
{
	int64_t		values = gk_gpu_values(s, k);
	bool		brief = (int64_t) k * s->d >= GK_BRIEF_VALUES;

	/* (Joined sessions decide by k alone: what was asked for before is not the same for all.) */
	if (k <= s->log_room && brief == (s->brief_bytes > 0))
		return GK_OK;
	gk_gpu_step_stop(s);
	GK_DO(gk_gpu_drain(s, err));
	free_log(s);
	s->entry_bytes = gk_round_up(values * sizeof(gk_int128) + (size_t) k * s->d * sizeof(float), 16);
	s->brief_bytes = brief ? gk_round_up((size_t) k * (2 * sizeof(double) + sizeof(int64_t)), sizeof(gk_int128)) : 0;
	s->entries = s->brief_bytes == 0 && s->entry_bytes < UNIT_BYTES ? (int) gk_min(UNIT_BYTES / s->entry_bytes, 64) : 1;
	s->unit_bytes = GK_LOG_HEAD + s->brief_bytes + s->entries * s->entry_bytes;
	GK_TRY(cudaMalloc((void **) &s->log, GK_GPU_UNITS * s->unit_bytes));
	GK_TRY(cudaHostAlloc((void **) &s->log_host, GK_GPU_UNITS * gk_gpu_unit_host_bytes(s), cudaHostAllocDefault));
	s->log_room = k;
	return GK_OK;
}

void
gk_gpu_free_all(GkSession *s)
{
	unpin_chunks(s, 0);
	s->core->free(s->host, s->pinned);
	s->pinned = NULL;
	free_points(s);
	free_room(s);
	free_log(s);
	gk_gpu_filter_free(s);
	gk_gpu_gemm_free(s);
	cudaFree(s->columns_block);
	cudaFree(s->done);
	cudaFree(s->labels);
	cudaFree(s->d2);
	cudaFree(s->scratch);
	cudaFree(s->delta_labels);
	cudaFree(s->move_count);
	gk_gpu_seed_end(s);
	gk_gpu_join_free(s);
	s->core->free(s->host, s->picked);
	s->core->free(s->host, s->picked_points);
}

/* ---- the walk ---- */

/* At least enough rows to fill the device. */
int64_t
gk_gpu_slice_rows(const GkSession *s, int k)
{
	double		per_row = (double) k * s->d * GK_CYCLES_DISTANCE + s->d * GK_CYCLES_VALUE + GK_CYCLES_ROW;
	double		rows = gk_gpu_cycles(s, GK_SLICE_S) / per_row;
	int64_t		min_rows = (int64_t) s->gpu->sms * 128;

	return rows < min_rows ? min_rows : rows > (double) ((int64_t) 1 << 40) ? (int64_t) 1 << 40 : (int64_t) rows / 1024 * 1024;
}

/* Not more than two slices ahead of the device, so that a cancel need not wait. */
GkStatus
gk_gpu_keep_pace(GkSession *s, GkError *err)
{
	GkGpu	   *g = s->gpu;
	int			i = g->pace_next;

	if (s->unpaced)
		return GK_OK;
	if (g->pace_set[i])
		GK_DO(gk_gpu_wait(s, g->pace[i], err));
	GK_TRY(cudaEventRecord(g->pace[i], g->stream));
	g->pace_set[i] = true;
	g->pace_next = 1 - i;
	return GK_OK;
}

static GkStatus
each_resident(GkSession *s, int64_t max_rows, GkSliceFn fn, void *arg, GkError *err)
{
	bool		many = s->resident > max_rows;

	for (int64_t r = 0; r < s->resident; r += max_rows)
	{
		GkRows		rows;

		rows.x = s->x + r;
		rows.w = s->pts->weighted ? s->x + (size_t) s->d * s->ld + r : NULL;
		rows.ld = s->ld;
		rows.rows = s->resident - r < max_rows ? s->resident - r : max_rows;
		rows.first = r;
		GK_DO(fn(s, &rows, arg, err));
		if (many)
			GK_DO(gk_gpu_keep_pace(s, err));
	}
	return GK_OK;
}

static GkStatus
stream_chunk(GkSession *s, int index, const GkChunk *chunk, int64_t max_rows, GkSliceFn fn, void *arg, GkError *err)
{
	GkGpu	   *g = s->gpu;
	int64_t		step = gk_gpu_piece_rows(s);
	bool		pinned = s->pinned != NULL && s->pinned[index];

	if (step > max_rows)
		step = max_rows;
	for (int64_t r = 0; r < chunk->rows; r += step)
	{
		int64_t		n = chunk->rows - r < step ? chunk->rows - r : step;
		int64_t		pitch = gk_round_up(n, GK_ROW_PAD);
		GkRows		rows;
		int			slot;

		if (pinned)
			GK_DO(gk_gpu_next_slot(s, &slot, err));
		else
			GK_DO(fill_slot(s, chunk, r, n, &slot, err));
		GK_TRY(cudaStreamWaitEvent(g->copy, g->ring_used[slot], 0));
		if (pinned)
			GK_TRY(cudaMemcpy2DAsync(s->slot[slot], pitch * sizeof(float), chunk->data + r, chunk->stride * sizeof(float),
									 n * sizeof(float), s->cols, cudaMemcpyHostToDevice, g->copy));
		else
			GK_TRY(cudaMemcpyAsync(s->slot[slot], g->ring[slot], (size_t) pitch * s->cols * sizeof(float),
								   cudaMemcpyHostToDevice, g->copy));
		GK_TRY(cudaEventRecord(g->ring_sent[slot], g->copy));
		GK_TRY(cudaStreamWaitEvent(g->stream, g->ring_sent[slot], 0));
		rows.x = s->slot[slot];
		rows.w = s->pts->weighted ? rows.x + (size_t) s->d * pitch : NULL;
		rows.ld = pitch;
		rows.rows = n;
		rows.first = chunk->first + r;
		GK_DO(fn(s, &rows, arg, err));
		GK_TRY(cudaEventRecord(g->ring_used[slot], g->stream));
	}
	return GK_OK;
}

GkStatus
gk_gpu_each(GkSession *s, int64_t max_rows, GkSliceFn fn, void *arg, GkError *err)
{
	max_rows = max_rows < GK_ROW_PAD ? GK_ROW_PAD : max_rows / GK_ROW_PAD * GK_ROW_PAD;
	s->gpu->pace_set[0] = s->gpu->pace_set[1] = false;
	GK_DO(each_resident(s, max_rows, fn, arg, err));
	for (int c = s->stream_chunk; c < s->pts->nchunks; c++)
	{
		GkChunk		view;
		GkStatus	st;

		GK_DO(s->core->chunk_open(s->store, c, GK_READ_FEATURES, &view, err));
		st = stream_chunk(s, c, &view, max_rows, fn, arg, err);
		GK_DO(s->core->chunk_close(s->store, c, &view, false, err));
		GK_DO(st);
		if (s->host->poll && s->host->poll(s->host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}
