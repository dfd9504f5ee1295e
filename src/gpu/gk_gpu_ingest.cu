/*
 * gk_gpu_ingest.cu - points that go up while they are read, and are prepared here.
 *
 * Raw columns come through the pinned ring into one allocation, which doubles when the table turns out to be
 * larger than expected: a copy on the device takes less than a thousandth of the time that reading took.
 * When all rows are there one kernel does what gk_convert.c does on the CPU, to the bit: gk_centre_scale()
 * and gk_to_grid() of every value, and exact sums of what comes out; of floats in place, of doubles into an
 * allocation half as large.  Before that, several devices may copy rows from each other, raw.
 *
 * Everything happens on the copying stream, so in order.
 */
#include <string.h>

#include "gpu/gk_gpu_device.cuh"

#define THREADS			256
/* A block's sums of values of at most 2^40 stay within 63 bits. */
#define BLOCK_ROWS		((int64_t) 1 << 20)
/* Bytes of the points that are expected when their number is unknown. */
#define EXPECTED_BYTES		((int64_t) 64 << 20)

/* How a column is prepared. */
typedef struct Column
{
	double		center;
	double		scale;
	double		magic;
	double		inv;			/* grid units per unit */
	double		inv_sq;
} Column;

/* Sums of a column, each in two words: values, and their squares cut in halves. */
#define WORDS			6

__device__ __forceinline__ void
add_block(long long v, long long *shared, unsigned long long *words)
{
	v = gk_warp_sum(v);
	if (threadIdx.x % 32 == 0)
		shared[threadIdx.x / 32] = v;
	__syncthreads();
	if (threadIdx.x < 32)
	{
		v = gk_warp_sum(threadIdx.x < THREADS / 32 ? shared[threadIdx.x] : 0);
		if (threadIdx.x == 0)
		{
			gk_red(words, v & 0xffffffffLL);
			gk_red(words + 1, v >> 32);
		}
	}
	__syncthreads();
}

/* raw may be x. */
template<typename Value>
__global__ void
prepare_kernel(const Value *raw, int64_t raw_ld, float *x, int64_t ld, int64_t rows, const Column *columns,
			   unsigned long long *words)
{
	__shared__ long long shared[THREADS / 32];
	Column		c = columns[blockIdx.y];
	int64_t		first = (int64_t) blockIdx.x * BLOCK_ROWS;
	int64_t		end = first + BLOCK_ROWS < rows ? first + BLOCK_ROWS : rows;
	long long	sum = 0;
	long long	hi = 0;
	long long	lo = 0;

	raw += (int64_t) blockIdx.y * raw_ld;
	x += (int64_t) blockIdx.y * ld;
	for (int64_t i = first + threadIdx.x; i < end; i += THREADS)
	{
		float		f = gk_to_grid(gk_centre_scale(raw[i], c.center, c.scale), c.magic);
		int64_t		h;
		int64_t		l;

		x[i] = f;
		gk_d2_split((double) f * (double) f, c.inv_sq, &h, &l);
		sum += gk_fixed(f, c.inv);
		hi += h;
		lo += l;
	}
	words += blockIdx.y * WORDS;
	add_block(sum, shared, words);
	add_block(hi, shared, words + 2);
	add_block(lo, shared, words + 4);
}

__global__ void
picked_kernel(const float *x, int64_t ld, int d, const GkPick *picks, int n, float *out)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n * d; i += gridDim.x * blockDim.x)
		out[i] = x[(int64_t) (i % d) * ld + picks[i / d].row];
}

void
gk_gpu_ingest_load(void)
{
	cudaFuncAttributes a;

	cudaFuncGetAttributes(&a, (const void *) prepare_kernel<float>);
	cudaFuncGetAttributes(&a, (const void *) prepare_kernel<double>);
	cudaFuncGetAttributes(&a, (const void *) picked_kernel);
}

/* ---- room ---- */

static size_t
raw_size(const GkSession *s)
{
	return s->raw_wide ? sizeof(double) : sizeof(float);
}

/* Rows of the ring's pieces. */
static int64_t
piece_rows(const GkSession *s)
{
	return gk_gpu_piece_rows(s) / (s->raw_wide ? 2 : 1) / GK_ROW_PAD * GK_ROW_PAD;
}

/* Device memory of `rows` rows, at most: doubles and the floats that become of them. */
static size_t
device_bytes(const GkSession *s, int64_t rows)
{
	return (size_t) s->cols * rows * (s->raw_wide ? sizeof(double) + sizeof(float) : sizeof(float)) +
		GK_GPU_SLACK * sizeof(float) + gk_gpu_rest(s, rows);
}

/* Make room for `rows` rows, including those that are there. */
static GkStatus
reserve(GkSession *s, int64_t rows, GkError *err)
{
	int64_t		ld = gk_round_up(rows, GK_ROW_PAD);
	size_t		size = raw_size(s);
	size_t		limit;
	char	   *raw;

	GK_DO(gk_gpu_budget(s, &limit, err));
	if (device_bytes(s, ld) > limit)
		return gk_gpu_error(err, GK_ERR_DEVICE_MEMORY, "the points do not fit GPU %d", s->gpu->ordinal);
	GK_TRY(cudaMalloc((void **) &raw, s->cols * ld * size + GK_GPU_SLACK * sizeof(float)));
	if (s->raw != NULL)
	{
		cudaError_t e = cudaMemcpy2DAsync(raw, ld * size, s->raw, s->ld * size, s->resident * size, s->cols,
										  cudaMemcpyDeviceToDevice, s->gpu->copy);

		/* which waits for the copy */
		cudaFree(s->raw);
		s->raw = raw;
		s->ld = ld;
		GK_TRY(e);
	}
	s->raw = raw;
	s->ld = ld;
	return GK_OK;
}

static GkStatus
begin(GkSession *s, int64_t rows, GkError *err)
{
	size_t		limit;
	int64_t		some = EXPECTED_BYTES / (s->cols * (int64_t) raw_size(s));
	int64_t		expected = (rows > 0 ? rows + rows / 64 : some) + piece_rows(s);

	GK_DO(gk_gpu_bind(s, err));
	if (piece_rows(s) < GK_ROW_PAD)
		return gk_gpu_error(err, GK_ERR_DEVICE_MEMORY, "points of %d features are too wide for the GPU", s->d);
	GK_DO(gk_gpu_budget(s, &limit, err));
	/* an estimate that does not fit may be wrong, too, but then streaming does no harm */
	if (device_bytes(s, expected) > limit / 2)
		return gk_gpu_error(err, GK_ERR_DEVICE_MEMORY, "the points may not fit GPU %d", s->gpu->ordinal);
	return reserve(s, expected, err);
}

/* ---- GkIngestBackend ---- */

static GkStatus
ingest_open(const GkProblem *problem, int64_t rows, bool wide, GkSession **out, GkError *err)
{
	GkSession  *s = gk_gpu_session(problem);
	GkStatus	st;

	*out = NULL;
	if (s == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	s->ingested = true;
	s->raw_wide = wide;
	st = begin(s, rows, err);
	if (st != GK_OK)
		gk_gpu_close(s);
	else
		*out = s;
	return st;
}

static GkStatus
ingest_room(GkSession *s, void **to, int *stride, int *rows, GkError *err)
{
	GK_TRY(cudaSetDevice(s->gpu->ordinal));
	GK_DO(gk_gpu_next_slot(s, &s->ingest_slot, err));
	*to = s->gpu->ring[s->ingest_slot];
	*stride = *rows = (int) piece_rows(s);
	return GK_OK;
}

static GkStatus
ingest_send(GkSession *s, int rows, GkError *err)
{
	GkGpu	   *g = s->gpu;
	size_t		size = raw_size(s);

	GK_TRY(cudaSetDevice(g->ordinal));
	if (s->resident + rows > s->ld)
		GK_DO(reserve(s, 2 * s->ld > s->resident + rows ? 2 * s->ld : s->resident + rows, err));
	GK_TRY(cudaMemcpy2DAsync(s->raw + s->resident * size, s->ld * size, g->ring[s->ingest_slot], piece_rows(s) * size,
							 rows * size, s->cols, cudaMemcpyHostToDevice, g->copy));
	GK_TRY(cudaEventRecord(g->ring_sent[s->ingest_slot], g->copy));
	s->resident += rows;
	return GK_OK;
}

/*
 * The devices' own copies, by whatever way there is between them.  A copy waits for what has gone up to the other
 * device, which sends no more.
 */
static GkStatus
copy_rows(GkSession *s, int64_t to, const GkSession *of, int64_t from, int64_t rows, GkError *err)
{
	size_t		size = raw_size(s);

	GK_TRY(cudaStreamWaitEvent(s->gpu->copy, of->gpu->ring_sent[of->ingest_slot], 0));
	for (int j = 0; j < s->cols; j++)
		GK_TRY(cudaMemcpyAsync(s->next_raw + (j * s->next_ld + to) * size, of->raw + (j * of->ld + from) * size,
							   rows * size, cudaMemcpyDefault, s->gpu->copy));
	return GK_OK;
}

static GkStatus
take_over(GkSession *s, const GkJoin *members, int n, int64_t first, int64_t rows, GkError *err)
{
	s->next_ld = gk_round_up(rows, GK_ROW_PAD);
	s->next_rows = rows;
	GK_TRY(cudaMalloc((void **) &s->next_raw, s->cols * s->next_ld * raw_size(s) + GK_GPU_SLACK * sizeof(float)));
	for (int i = 0; i < n; i++)
	{
		const GkSession *of = members[i].session;
		int64_t		from = first > members[i].first ? first : members[i].first;
		int64_t		end = gk_min(first + rows, members[i].first + of->resident);

		if (from < end)
			GK_DO(copy_rows(s, from - first, of, from - members[i].first, end - from, err));
	}
	GK_TRY(cudaEventRecord(s->gpu->pace[0], s->gpu->copy));
	return gk_gpu_wait(s, s->gpu->pace[0], err);
}

static GkStatus
ingest_take_over(const GkJoin *members, int n, int me, int64_t first, int64_t rows, GkError *err)
{
	GkSession  *s = members[me].session;
	GkStatus	st = rows > 0 ? take_over(s, members, n, first, rows, err) : GK_OK;

	/* The others may free what a copy still reads when all have returned. */
	if (st != GK_OK)
		cudaStreamSynchronize(s->gpu->copy);
	return st;
}

/* None of the devices needs the rows any more that it had before. */
static void
use_next_rows(GkSession *s)
{
	if (s->next_raw == NULL)
		return;
	cudaFree(s->raw);
	s->raw = s->next_raw;
	s->ld = s->next_ld;
	s->resident = s->next_rows;
	s->next_raw = NULL;
}

static GkStatus
prepare_all(GkSession *s, const Column *columns, unsigned long long *words, GkError *err)
{
	size_t		at = gk_round_up(s->d * sizeof(Column), 64);
	size_t		bytes = s->d * WORDS * sizeof(*words);
	int64_t		raw_ld = s->ld;
	char	   *scratch;
	dim3		grid((unsigned int) ((s->resident + BLOCK_ROWS - 1) / BLOCK_ROWS), s->d);

	GK_DO(gk_gpu_scratch(s, at + bytes, err));
	scratch = (char *) s->scratch;
	GK_TRY(cudaMemcpyAsync(scratch, columns, s->d * sizeof(Column), cudaMemcpyHostToDevice, s->gpu->copy));
	GK_TRY(cudaMemsetAsync(scratch + at, 0, bytes, s->gpu->copy));
	if (s->raw_wide)
	{
		s->ld = gk_round_up(s->resident, GK_ROW_PAD);
		GK_TRY(cudaMalloc((void **) &s->x, ((size_t) s->cols * s->ld + GK_GPU_SLACK) * sizeof(float)));
		prepare_kernel<<<grid, THREADS, 0, s->gpu->copy>>>((const double *) s->raw, raw_ld, s->x, s->ld, s->resident,
														   (const Column *) scratch, (unsigned long long *) (scratch + at));
	}
	else
	{
		s->x = (float *) s->raw;
		s->raw = NULL;
		prepare_kernel<<<grid, THREADS, 0, s->gpu->copy>>>(s->x, raw_ld, s->x, s->ld, s->resident,
														   (const Column *) scratch, (unsigned long long *) (scratch + at));
	}
	GK_LAUNCHED();
	GK_TRY(cudaEventRecord(s->gpu->pace[0], s->gpu->copy));
	GK_DO(gk_gpu_wait(s, s->gpu->pace[0], err));
	cudaFree(s->raw);
	s->raw = NULL;
	GK_TRY(cudaMemcpy(words, scratch + at, bytes, cudaMemcpyDeviceToHost));
	return GK_OK;
}

static GkStatus
ingest_prepare(GkSession *s, const GkPrep *prep, GkMoments *moments, GkError *err)
{
	double		start = gk_gpu_ms();
	Column	   *columns = (Column *) s->core->alloc(s->host, s->d, sizeof(Column));
	unsigned long long *words = (unsigned long long *) s->core->alloc(s->host, s->d * WORDS, sizeof(*words));
	GkStatus	st;

	use_next_rows(s);
	if (columns == NULL || words == NULL)
		st = gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	else
	{
		for (int j = 0; j < s->d; j++)
			columns[j] = {prep->center[j], prep->scale[j], gk_grid_magic(prep->expo[j]),
				gk_pow2(GK_GRID_BITS - prep->expo[j]), gk_pow2(GK_GRID_BITS - 2 * prep->expo[j])};
		st = prepare_all(s, columns, words, err);
		for (int j = 0; st == GK_OK && j < s->d; j++)
		{
			const unsigned long long *w = words + j * WORDS;

			moments[j].sum = gk_acc_value(w[0], w[1], 32);
			moments[j].sq = gk_acc_value(w[2], w[3], 32) * ((gk_int128) 1 << 40) + gk_acc_value(w[4], w[5], 32);
		}
	}
	s->core->free(s->host, columns);
	s->core->free(s->host, words);
	s->upload_ms = gk_gpu_ms() - start;
	return st;
}

extern const GkIngestBackend gk_gpu_ingest = {ingest_open, ingest_room, ingest_send, ingest_take_over, ingest_prepare};

/* ---- the session that goes on with it ---- */

GkStatus
gk_gpu_ingested(GkSession *s, GkError *err)
{
	size_t		bytes;

	if (s->resident != s->n)
		return gk_gpu_error(err, GK_ERR_INTERNAL, "%lld rows came and %lld went up", (long long) s->n, (long long) s->resident);
	GK_DO(gk_gpu_budget(s, &bytes, err));
	s->spare = bytes > gk_gpu_rest(s, s->n) ? bytes - gk_gpu_rest(s, s->n) : 0;
	s->stream_chunk = s->pts->nchunks;
	return gk_gpu_clear_padding(s, s->gpu->stream, err);
}

/* ---- single points ---- */

GkStatus
gk_gpu_picked(GkSession *s, const GkPick *picks, int n, GkError *err)
{
	size_t		at = gk_round_up(n * sizeof(GkPick), 64);
	size_t		bytes = (size_t) n * s->d * sizeof(float);

	s->core->free(s->host, s->picked);
	s->core->free(s->host, s->picked_points);
	s->npicked = s->picked_next = 0;
	s->picked = (GkPick *) s->core->alloc(s->host, n, sizeof(GkPick));
	s->picked_points = (float *) s->core->alloc(s->host, (size_t) n * s->d, sizeof(float));
	if (s->picked == NULL || s->picked_points == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	memcpy(s->picked, picks, n * sizeof(GkPick));
	s->npicked = n;
	if (n == 0)
		return GK_OK;
	GK_DO(gk_gpu_scratch(s, at + bytes, err));
	GK_TRY(cudaMemcpyAsync(s->scratch, picks, n * sizeof(GkPick), cudaMemcpyHostToDevice, s->gpu->stream));
	picked_kernel<<<n * s->d / THREADS + 1, THREADS, 0, s->gpu->stream>>>(s->x, s->ld, s->d, (const GkPick *) s->scratch, n,
																		  (float *) ((char *) s->scratch + at));
	GK_LAUNCHED();
	GK_TRY(cudaMemcpyAsync(s->picked_points, (char *) s->scratch + at, bytes, cudaMemcpyDeviceToHost, s->gpu->stream));
	return gk_gpu_drain(s, err);
}

GkStatus
gk_gpu_row(GkSession *s, int64_t row, float *out, GkError *err)
{
	if (!s->ingested)
		return s->core->row(s->store, row, out, err);
	/* mostly asked for in order */
	for (int n = 0; n < s->npicked; n++)
	{
		int			i = (s->picked_next + n) % s->npicked;

		if (s->picked[i].row == row)
		{
			s->picked_next = i + 1;
			memcpy(out, s->picked_points + (size_t) i * s->d, s->d * sizeof(float));
			return GK_OK;
		}
	}
	GK_TRY(cudaSetDevice(s->gpu->ordinal));
	GK_TRY(cudaMemcpy2DAsync(out, sizeof(float), s->x + row, s->ld * sizeof(float), sizeof(float), s->d,
							 cudaMemcpyDeviceToHost, s->gpu->stream));
	return gk_gpu_drain(s, err);
}
