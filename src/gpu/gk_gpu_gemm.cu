/*
 * gk_gpu_gemm.cu - labels of points of many features, or of many clusters, by a matrix product on the tensor
 * cores; gk_gpu_gemm.h says how and why they are exact.
 *
 * The points lie twice more for it: row-major as they are, for the canonical distances and the sums of rows
 * that change their cluster, and rounded to float16 for the product.  Without the memory for that, and where
 * the product leaves so much undecided that it does not pay, other kernels do the pass.
 */
#include <string.h>
#include <stdio.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_gemm.h"
#include "gpu/gk_gpu_move_sum.h"

#define GATHER_BYTES	((size_t) 128 << 20)
#define PAIR_ROOM		((int64_t) 1 << 23)

/* ---- memory ---- */

static void
free_points(GkGemm *g)
{
	cudaFree(g->x);
	cudaFree(g->y);
	cudaFree(g->bound);
	g->x = NULL;
	g->y = NULL;
	g->bound = NULL;
	g->built = false;
}

static void
free_centroids(GkGemm *g)
{
	cudaFree(g->b);
	cudaFree(g->c);
	cudaFree(g->half_square);
	cudaFree(g->keys);
	g->b = NULL;
	g->c = NULL;
	g->half_square = NULL;
	g->keys = NULL;
	g->k_room = 0;
}

static void
free_slice(GkGemm *g)
{
	cudaFree(g->list);
	cudaFree(g->limit);
	cudaFree(g->best);
	cudaFree(g->in_crowd);
	cudaFree(g->crowd);
	cudaFree(g->pair);
	cudaFree(g->gathered);
	g->list = g->limit = g->crowd = NULL;
	g->best = NULL;
	g->in_crowd = NULL;
	g->pair = NULL;
	g->gathered = NULL;
	g->rows_room = 0;
}

/* Waits for the kernels. */
static void
free_memory(GkGemm *g)
{
	free_points(g);
	free_centroids(g);
	free_slice(g);
	cudaFree(g->state);
	cudaFree(g->longest);
	g->state = NULL;
	g->longest = NULL;
}

void
gk_gpu_gemm_free(GkSession *s)
{
	if (s->gemm != NULL)
		free_memory(s->gemm);
	s->core->free(s->host, s->gemm);
	s->gemm = NULL;
}

static void
switch_off(GkSession *s)
{
	free_memory(s->gemm);
	s->gemm->off = true;
}

/* Rows of a slice: its labels and sums, and at worst all distances of all its rows. */
static int64_t
slice_rows(const GkSession *s, int k)
{
	int64_t		rows = gk_gpu_update_rows(s, k);

	return gk_min(rows / GK_ROW_PAD * GK_ROW_PAD, gk_round_up(s->n, GK_ROW_PAD));
}

static size_t
width_of(const GkSession *s, int parts)
{
	return (size_t) gk_round_up((int64_t) parts * s->d, 8);
}

/* Bytes for n points of this many parts, and for a slice of them. */
static size_t
bytes_needed(const GkSession *s, int k, int parts)
{
	size_t		row = (size_t) gk_round_up(s->d, 4) * sizeof(float) + width_of(s, parts) * sizeof(__half) + sizeof(GkGemmBound);
	size_t		slice = (size_t) slice_rows(s, k);

	return (size_t) s->n * row + slice * 64 + PAIR_ROOM * sizeof(GkGemmPair) + 2 * GATHER_BYTES +
		(size_t) k * (width_of(s, parts) * 2 + (size_t) gk_round_up(s->d, 4) * sizeof(float) + 16);
}

static GkStatus
allocate_points(GkSession *s, GkGemm *g, GkError *err)
{
	GK_TRY(cudaMalloc((void **) &g->x, (size_t) s->n * g->pitch * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &g->y, (size_t) s->n * g->width * sizeof(__half)));
	GK_TRY(cudaMalloc((void **) &g->bound, (size_t) s->n * sizeof(GkGemmBound)));
	if (g->state == NULL)
		GK_TRY(cudaMalloc((void **) &g->state, sizeof(GkGemmState)));
	if (g->longest == NULL)
		GK_TRY(cudaMalloc((void **) &g->longest, sizeof(*g->longest)));
	return GK_OK;
}

static GkStatus
allocate_centroids(GkSession *s, GkGemm *g, int k, GkError *err)
{
	if (k <= g->k_room)
		return GK_OK;
	free_centroids(g);
	GK_TRY(cudaMalloc((void **) &g->b, (size_t) k * g->width * sizeof(__half)));
	GK_TRY(cudaMalloc((void **) &g->c, (size_t) k * g->pitch * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &g->half_square, (size_t) k * sizeof(double)));
	GK_TRY(cudaMalloc((void **) &g->keys, (size_t) gk_gemm_tiles(k) * GK_GEMM_COLUMNS * sizeof(int)));
	g->k_room = k;
	return GK_OK;
}

static GkStatus
allocate_slice(GkSession *s, GkGemm *g, int64_t rows, GkError *err)
{
	if (rows <= g->rows_room)
		return GK_OK;
	free_slice(g);
	GK_TRY(cudaMalloc((void **) &g->list, rows * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->limit, rows * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->best, rows * sizeof(*g->best)));
	GK_TRY(cudaMalloc((void **) &g->in_crowd, rows));
	GK_TRY(cudaMalloc((void **) &g->crowd, rows * sizeof(int)));
	g->pair_room = (int) gk_min(4 * rows + 65536, PAIR_ROOM);
	GK_TRY(cudaMalloc((void **) &g->pair, g->pair_room * sizeof(GkGemmPair)));
	g->gather_rows = (int) gk_round_up(gk_min(GATHER_BYTES / (g->width * sizeof(__half)) + 1, rows), GK_GEMM_ROWS);
	GK_TRY(cudaMalloc((void **) &g->gathered, (size_t) g->gather_rows * g->width * sizeof(__half)));
	g->rows_room = rows;
	return GK_OK;
}

/* ---- is it wanted, is it worth it ---- */

bool
gk_gpu_gemm_wanted(const GkSession *s, int k)
{
	GkSkip		skip = s->host->skip;

	return (s->gemm == NULL || !s->gemm->off) && k >= 2 && s->resident == s->n && s->n < INT32_MAX &&
		s->problem.strategy == GK_STRATEGY_AUTO && s->problem.feature_sum == GK_FSUM_AUTO &&
		s->problem.mass_sum == GK_MSUM_AUTO && gk_gpu_gemm_supported(s) &&
		(skip == GK_SKIP_ON || (skip != GK_SKIP_OFF && s->d >= GK_GEMM_MIN_D && k >= GK_GEMM_MIN_K &&
								(double) s->n * s->d * k >= GK_GEMM_MIN_WORK));
}

static GkStatus
build(GkSession *s, GkGemm *g, int k, GkError *err)
{
	bool		good = true;
	GkStatus	st;

	g->width = (int) width_of(s, g->parts);
	g->pitch = (int) gk_round_up(s->d, 4);
	g->scale = (float) gk_pow2(GK_GEMM_TOP - gk_gpu_top_expo(s));
	if (bytes_needed(s, k, g->parts) > s->spare)
	{
		switch_off(s);
		return GK_OK;
	}
	st = allocate_points(s, g, err);
	if (st == GK_OK && !g->probed)
		st = gk_gpu_gemm_probe(s, &good, err);
	g->probed = true;
	if (st == GK_OK && good)
		st = gk_gpu_gemm_round_points(s, g, err);
	if (st == GK_ERR_DEVICE_MEMORY || (st == GK_OK && !good))
	{
		switch_off(s);
		return GK_OK;
	}
	g->built = st == GK_OK;
	return st;
}

GkStatus
gk_gpu_gemm_begin(GkSession *s, int k, GkError *err)
{
	GkGemm	   *g = s->gemm;
	GkStatus	st;

	s->gemm_k = 0;
	if (!gk_gpu_gemm_wanted(s, k))
		return GK_OK;
	if (g == NULL)
	{
		g = s->gemm = (GkGemm *) s->core->alloc(s->host, 1, sizeof(GkGemm));
		if (g == NULL)
			return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
		memset(g, 0, sizeof(*g));
		g->parts = 1;
	}
	if (!g->built)
		GK_DO(build(s, g, k, err));
	if (g->off)
		return GK_OK;
	st = allocate_centroids(s, g, k, err);
	if (st == GK_OK)
		st = allocate_slice(s, g, slice_rows(s, k), err);
	if (st == GK_ERR_DEVICE_MEMORY)
	{
		switch_off(s);
		return GK_OK;
	}
	GK_DO(st);
	GK_DO(gk_gpu_gemm_round_centroids(s, g, s->centroids, k, err));
	s->gemm_k = k;
	return GK_OK;
}

GkStatus
gk_gpu_gemm_log(GkSession *s, GkLogHead *head, GkError *err)
{
	const GkGemmState *state = s->gemm->state;

	GK_TRY(cudaMemcpyAsync(&head->undecided, &state->all_undecided, 3 * sizeof(head->undecided), cudaMemcpyDeviceToDevice,
						   s->gpu->stream));
	return GK_OK;
}

void
gk_gpu_gemm_judge(GkSession *s, int k, const GkLogHead *head)
{
	GkGemm	   *g = s->gemm;
	double		all = (double) s->n * k;

#ifdef TRACE
	if (g) printf("[%d parts: undecided %.3f%%, pairs %.3f per row]\n", (int) head->parts, 100.0 * head->undecided / s->n, (double) head->pairs / s->n);
#endif

	/* What was under way when the parts changed says nothing of them. */
	if (g == NULL || !g->built || (int) head->parts != g->parts || s->host->skip == GK_SKIP_ON)
		return;
	if (g->parts == 1 && ((double) head->undecided > s->n * GK_GEMM_MAX_UNDECIDED || (double) head->pairs > all * GK_GEMM_MAX_PAIRS))
	{
		free_points(g);
		free_centroids(g);
		free_slice(g);
		g->parts = 3;
	}
	else if ((double) head->pairs > all * GK_GEMM_MAX_PAIRS)
		switch_off(s);
}

/* ---- a slice ---- */

GkStatus
gk_gpu_gemm_assign(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err)
{
	GkGemm	   *g = s->gemm;
	GkGemmArgs	a = {};

	a.rows = (int) rows->rows;
	a.first = (int) rows->first;
	a.d = s->d;
	a.parts = g->parts;
	a.tiny = s->d * 0x1p-147 * (double) g->scale * g->scale;
	a.keys = g->keys;
	a.state = g->state;
	a.bound = g->bound + rows->first;
	a.labels = labels;
	a.list = g->list;
	a.limit = g->limit;
	a.pair = g->pair;
	a.pair_room = g->pair_room;
	a.in_crowd = g->in_crowd;
	GK_TRY(cudaMemsetAsync(&g->state->undecided, 0, 3 * sizeof(int), s->gpu->stream));
	GK_DO(gk_gpu_gemm_multiply(s, GK_GEMM_LABELS, g->y, s->n, g->b, k, g->width, &a, err));
	return gk_gpu_gemm_recheck(s, g, rows, k, &a, err);
}

GkStatus
gk_gpu_gemm_sum(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err)
{
	GkGemm	   *g = s->gemm;
	char	   *old = (char *) s->delta_labels + rows->first * (labels.narrow ? 1 : sizeof(int32_t));

	return gk_gpu_move_sum(s, rows, g->x + rows->first * g->pitch, g->pitch, k, labels, old, err);
}
