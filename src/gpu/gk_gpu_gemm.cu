/*
 * gk_gpu_gemm.cu - labels of points of many features, or of many clusters, by a matrix product on the tensor
 * cores; gk_gpu_gemm.h says how and why they are exact.
 *
 * The points lie twice more for it: row-major as they are, for the canonical distances and the sums of rows
 * that change their cluster, and rounded to float16 for the product.  Without the memory for that, and where
 * the product leaves so much undecided that it does not pay, other kernels do the pass.
 */
#include <math.h>
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_gemm.h"
#include "gpu/gk_gpu_move_sum.h"

#define MIN_GATHER	((size_t) 256 << 20)	/* bytes of gathered rows at a time ... */
#define MAX_GATHER	((size_t) 1 << 30)	/* ... for each further time takes some launches, though nothing is left */
#define PAIR_ROOM		((int64_t) 1 << 23)
#define MAX_SLICE		((int64_t) 1 << 24) /* rows */
#define NEAR_PAIRS		((int64_t) 1 << 25) /* where rows keep bounds, which are made of pairs with all near columns */
#define NEAR_SLICE		(NEAR_PAIRS / 13) /* rows, of which at most half are undecided, as a rule ... */
#define FIRST_NEAR_SLICE	(NEAR_PAIRS / 26)	/* ... or all */
#define KEPT_SHARE		2		/* one of this many is kept after a look at whole rows, at most */
#define HEAD_SLICE		(PAIR_ROOM / 6)	/* rows that have some candidates each */
#define MAX_ROWS	(INT32_MAX - (GK_GEMM_PIVOTS + 1) * (int64_t) GK_GEMM_ROWS)	/* places are ints */

/* ---- memory ---- */

static void
free_all(void **const *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		cudaFree(*all[i]);
		*all[i] = NULL;
	}
}

static void
free_points(GkGemm *g)
{
	cudaFree(g->y);
	cudaFree(g->w);
	cudaFree(g->bound);
	cudaFree(g->reach);
	cudaFree(g->tile_reach);
	cudaFree(g->tail_reach);
	gk_gpu_gemm_near_free(g);
	g->y = NULL;
	g->w = NULL;
	g->bound = NULL;
	g->reach = g->tile_reach = NULL;
	g->tail_reach = NULL;
	g->built = false;
}

static void
free_centroids(GkGemm *g)
{
	void	  **all[] = {(void **) &g->b, (void **) &g->square, (void **) &g->lost, (void **) &g->tail, (void **) &g->column,
		(void **) &g->numbered, (void **) &g->c, (void **) &g->keys, (void **) &g->z, (void **) &g->nearest, (void **) &g->needs,
	(void **) &g->need};

	free_all(all, sizeof(all) / sizeof(all[0]));
	g->k_room = 0;
	g->tail_head = -1;
	g->has_columns = g->is_renumbered = false;
}

static void
free_slice(GkGemm *g)
{
	void	  **all[] = {(void **) &g->undecided, (void **) &g->limits, (void **) &g->own, (void **) &g->count, (void **) &g->begin,
		(void **) &g->list,
		(void **) &g->rank, (void **) &g->gathered_row, (void **) &g->gathered_pivot, (void **) &g->gathered_bound,
		(void **) &g->gathered_needs, (void **) &g->gathered_need, (void **) &g->wide, (void **) &g->wide_limit, (void **) &g->reach_near, (void **) &g->limit, (void **) &g->decided,
	(void **) &g->in_crowd, (void **) &g->crowd, (void **) &g->pair, (void **) &g->kept, (void **) &g->gathered};

	free_all(all, sizeof(all) / sizeof(all[0]));
	g->rows_room = 0;
}

/* Waits for the kernels. */
static void
free_memory(GkGemm *g)
{
	free_points(g);
	free_centroids(g);
	free_slice(g);
	gk_gpu_gemm_unsort(&g->order);
	cudaFree(g->x);
	cudaFree(g->state);
	cudaFree(g->longest);
	g->x = NULL;
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

void
gk_gpu_gemm_forget(GkSession *s)
{
	if (s->gemm != NULL)
		gk_gpu_gemm_forget_near(s->gemm);
}

static void
switch_off(GkSession *s)
{
	free_memory(s->gemm);
	s->gemm->off = true;
	s->gemm_k = 0;
	/* Other kernels may take so long that a cancel had to wait for what runs ahead; joined sessions have agreed on it. */
	if (!gk_gpu_is_joined(s, s->chain_k))
		s->chain_ahead = false;
}

/*
 * Places of a slice: at worst all distances of all its rows are computed.  calm: which is not so, or was not in
 * the last pass; then the product is all, and takes no longer than a slice may.
 */
static int64_t
slice_rows(const GkSession *s, const GkGemm *g, int k, bool calm)
{
	int64_t		rows = gk_gpu_slice_rows(s, k) * GK_GEMM_SLICE;
	int64_t		product = (int64_t) (GK_SLICE_S * 1e3 * GK_GEMM_PER_MS / ((double) k * g->width));	/* (of a head: less) */

	if (calm && product > rows)
		rows = gk_min(rows * GK_GEMM_CALM, product);
	return gk_round_up(gk_min(gk_min(rows, MAX_SLICE), g->order.places), GK_GEMM_ROWS);
}

static size_t
gather_bytes(const GkSession *s)
{
	size_t		some = s->spare / 16;

	return some < MIN_GATHER ? MIN_GATHER : gk_min(some, MAX_GATHER);
}

/* Of bounds that are kept; 0: none are. */
static size_t
near_bytes(const GkSession *s, const GkGemm *g, int k)
{
	size_t		slice = (size_t) gk_gemm_gather_room(g, slice_rows(s, g, k, true));
	size_t		bytes = gk_gpu_gemm_near_bytes(s, g, k);
	size_t		pairs = NEAR_PAIRS - PAIR_ROOM + PAIR_ROOM / KEPT_SHARE;

	return bytes > 0 ? bytes + slice * (sizeof(GkGemmWide) + sizeof(int) + sizeof(float)) + pairs * sizeof(GkGemmPair) : 0;
}

size_t
gk_gpu_gemm_bytes(const GkSession *s, const GkGemm *g, int k)
{
	size_t		width = g->width * sizeof(__half);
	size_t		place = width + sizeof(float) + sizeof(GkGemmBound) + 2 * sizeof(int);
	size_t		slice = (size_t) gk_gemm_gather_room(g, slice_rows(s, g, k, true));
	size_t		tiles = gk_gemm_key_pitch(k) / GK_GEMM_STAY_COLUMNS;

	return (size_t) s->n * g->pitch * sizeof(float) + (size_t) g->order.places * place +
		slice * (68 + tiles * sizeof(int) / GK_GEMM_ROWS) + PAIR_ROOM * sizeof(GkGemmPair) + gather_bytes(s) +
		(gk_gpu_gemm_has_heads(g) ? PAIR_ROOM / KEPT_SHARE * sizeof(GkGemmPair) : 0) +
		(g->near != NULL ? near_bytes(s, g, g->order.columns) : 0) +
		gk_gpu_move_bytes(s, gk_min(s->n, gk_gpu_move_rows(s)), k) +
		(size_t) k * (g->order.copies * (width + 2 * sizeof(double)) + ((size_t) g->pitch + 2) * sizeof(float)) +
		(size_t) g->order.pivots * gk_gemm_key_pitch(k) * (sizeof(int) + sizeof(float)) +
		(size_t) g->order.places / GK_GEMM_ROWS * (tiles * sizeof(int) + sizeof(GkGemmNeeds) + sizeof(GkGemmReach));
}

size_t
gk_gpu_gemm_held(const GkSession *s)
{
	const GkGemm *g = s->gemm;

	return g != NULL && g->x != NULL ? gk_gpu_gemm_bytes(s, g, g->k_room > g->slice_k ? g->k_room : g->slice_k) : 0;
}

/* Is there the memory, beside sorted boxes if there are any? */
static bool
has_room(const GkSession *s, const GkGemm *g, int k)
{
	return gk_gpu_gemm_bytes(s, g, k) + gk_gpu_filter_held(s) <= s->spare;
}

static GkStatus
allocate_points(GkSession *s, GkGemm *g, int k, GkError *err)
{
	size_t		kept = near_bytes(s, g, k);
	/* Products bring what they know of whole tiles of rows. */
	int64_t		places = gk_round_up(g->order.places, GK_GEMM_ROWS);

	GK_TRY(cudaMalloc((void **) &g->y, (size_t) g->order.places * g->width * sizeof(__half)));
	GK_TRY(cudaMalloc((void **) &g->w, (size_t) places * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &g->bound, (size_t) places * sizeof(GkGemmBound)));
	GK_TRY(cudaMalloc((void **) &g->reach, (size_t) g->order.pivots * sizeof(GkGemmReach)));
	if (g->order.row == NULL)
		return GK_OK;
	GK_TRY(cudaMalloc((void **) &g->tile_reach, (size_t) (g->order.places / GK_GEMM_ROWS) * sizeof(GkGemmReach)));
	if (kept > 0 && s->host->skip != GK_SKIP_OFF && gk_gpu_gemm_bytes(s, g, k) + kept + gk_gpu_filter_held(s) <= s->spare)
	{
		GkStatus	st = gk_gpu_gemm_near_room(s, g, k, err);

		/* Others may have taken the memory; it does without. */
		if (st == GK_ERR_DEVICE_MEMORY)
			gk_gpu_gemm_near_free(g);
		else
			GK_DO(st);
	}
	if (!gk_gpu_gemm_has_heads(g))
		return GK_OK;
	GK_TRY(cudaMalloc((void **) &g->tail_reach, 2 * (size_t) g->order.pivots * sizeof(*g->tail_reach)));
	return GK_OK;
}

static GkStatus
allocate_centroids(GkSession *s, GkGemm *g, int k, GkError *err)
{
	size_t		tiles = gk_gemm_key_pitch(k) / GK_GEMM_STAY_COLUMNS;
	size_t		row_tiles = (size_t) gk_round_up(g->order.places, GK_GEMM_ROWS) / GK_GEMM_ROWS;
	size_t		keys = (size_t) g->order.pivots * gk_gemm_key_pitch(k);

	if (k <= g->k_room)
		return GK_OK;
	free_centroids(g);
	GK_TRY(cudaMalloc((void **) &g->b, (size_t) g->order.copies * k * g->width * sizeof(__half)));
	GK_TRY(cudaMalloc((void **) &g->c, (size_t) k * g->pitch * sizeof(float)));
	GK_TRY(cudaMemsetAsync(g->c, 0, (size_t) k * g->pitch * sizeof(float), s->gpu->stream));
	GK_TRY(cudaMalloc((void **) &g->keys, keys * sizeof(int)));
	if (g->order.row == NULL)
		GK_TRY(cudaMalloc((void **) &g->square, k * sizeof(double)));
	else
	{
		GK_TRY(cudaMalloc((void **) &g->nearest, (size_t) g->order.pivots * gk_gemm_parts(k) * sizeof(float)));
		GK_TRY(cudaMalloc((void **) &g->lost, (size_t) g->order.copies * k * sizeof(float)));
		GK_TRY(cudaMalloc((void **) &g->tail, 2 * (size_t) g->order.copies * k * sizeof(float)));
		GK_TRY(cudaMalloc((void **) &g->column, k * sizeof(int)));
		GK_TRY(cudaMalloc((void **) &g->numbered, k * sizeof(int)));
		GK_TRY(cudaMalloc((void **) &g->z, keys * sizeof(float)));
		GK_TRY(cudaMalloc((void **) &g->needs, row_tiles * sizeof(GkGemmNeeds)));
		GK_TRY(cudaMalloc((void **) &g->need, row_tiles * tiles * sizeof(int)));
	}
	g->k_room = k;
	return GK_OK;
}

static GkStatus
allocate_slice(GkSession *s, GkGemm *g, int k, GkError *err)
{
	int64_t		rows = slice_rows(s, g, k, true);
	int64_t		room;

	if (rows <= g->rows_room && k <= g->slice_k)
		return GK_OK;
	/* More clusters take fewer rows: what has been asked for in turns is there from now on. */
	if (rows < g->rows_room)
		rows = g->rows_room;
	if (k < g->slice_k)
		k = g->slice_k;
	room = gk_gemm_gather_room(g, rows);
	free_slice(g);
	GK_TRY(cudaMalloc((void **) &g->undecided, rows / GK_GEMM_WORD * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->limits, rows * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->own, rows * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->count, g->order.pivots * sizeof(int)));
	GK_TRY(cudaMemsetAsync(g->count, 0, g->order.pivots * sizeof(int), s->gpu->stream));
	GK_TRY(cudaMalloc((void **) &g->begin, g->order.pivots * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->list, rows * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->rank, rows * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->gathered_row, room * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->gathered_pivot, room / GK_GEMM_ROWS * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->gathered_bound, room * sizeof(GkGemmBound)));
	GK_TRY(cudaMalloc((void **) &g->gathered_needs, room / GK_GEMM_ROWS * sizeof(GkGemmNeeds)));
	GK_TRY(cudaMalloc((void **) &g->gathered_need, room / GK_GEMM_ROWS * (gk_gemm_key_pitch(k) / GK_GEMM_STAY_COLUMNS) * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->limit, room * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->decided, room * sizeof(*g->decided)));
	GK_TRY(cudaMalloc((void **) &g->in_crowd, room * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &g->crowd, room * sizeof(int)));
	/* A warp, at most 16 on a multiprocessor, may leave what it has not filled. */
	g->pair_room = (int) gk_min(32 * rows + 65536 + (int64_t) s->gpu->sms * 16 * GK_GEMM_PAIRS, g->near != NULL ? NEAR_PAIRS : PAIR_ROOM);
	GK_TRY(cudaMalloc((void **) &g->pair, g->pair_room * sizeof(GkGemmPair)));
	g->kept_room = (int) gk_min(g->pair_room, PAIR_ROOM) / KEPT_SHARE;
	if (g->near != NULL)
	{
		GK_TRY(cudaMalloc((void **) &g->wide, room * sizeof(GkGemmWide)));
		GK_TRY(cudaMalloc((void **) &g->wide_limit, rows * sizeof(int)));
		GK_TRY(cudaMalloc((void **) &g->reach_near, rows * sizeof(float)));
	}
	if (gk_gpu_gemm_has_heads(g) || g->near != NULL)
		GK_TRY(cudaMalloc((void **) &g->kept, g->kept_room * sizeof(GkGemmPair)));
	g->gather_rows = (int) gk_round_up(gk_min(gather_bytes(s) / (g->width * sizeof(__half)) + 1, room), GK_GEMM_ROWS);
	GK_TRY(cudaMalloc((void **) &g->gathered, (size_t) g->gather_rows * g->width * sizeof(__half)));
	g->rows_room = rows;
	g->slice_k = k;
	return GK_OK;
}

/* ---- is it wanted, is it worth it ---- */

/* Does it pay, with points, features and clusters as they are? */
static bool
pays(const GkSession *s, int k)
{
	bool		many = s->d > GK_GEMM_NARROW_D || (int64_t) (s->d - GK_GEMM_FREE_D) * k >= GK_GEMM_MIN_NARROW;

	return s->d >= GK_GEMM_MIN_D && many && (double) s->n * s->d * k >= GK_GEMM_MIN_WORK;
}

bool
gk_gpu_gemm_wanted(const GkSession *s, int k)
{
	GkSkip		skip = s->host->skip;

	return (s->gemm == NULL || !s->gemm->off) && k >= 2 && s->resident == s->n && s->n <= MAX_ROWS &&
		s->problem.strategy == GK_STRATEGY_AUTO && s->problem.feature_sum == GK_FSUM_AUTO &&
		s->problem.mass_sum == GK_MSUM_AUTO && gk_gpu_gemm_supported(s) &&
		(skip == GK_SKIP_ON || (skip != GK_SKIP_OFF && pays(s, k)));
}

/* The points as they are, turned; nothing changes them. */
static GkStatus
build_rows(GkSession *s, GkGemm *g, bool *good, GkError *err)
{
	GK_TRY(cudaMalloc((void **) &g->state, sizeof(GkGemmState)));
	GK_TRY(cudaMemsetAsync(g->state, 0, sizeof(*g->state), s->gpu->stream));
	GK_TRY(cudaMalloc((void **) &g->longest, sizeof(*g->longest)));
	GK_TRY(cudaMalloc((void **) &g->x, (size_t) s->n * g->pitch * sizeof(float)));
	GK_DO(gk_gpu_gemm_probe(s, good, err));
	return gk_gpu_gemm_turn(s, g, err);
}

/* What it takes to sort the rows, milliseconds. */
static double
sort_ms(const GkSession *s)
{
	return GK_GEMM_SORT_MS + (double) s->n * (GK_GEMM_SORT_NS + GK_GEMM_VALUE_NS * s->d) * 1e-6;
}

/* ... and to find the nearest pivot of each, where that is not a product. */
static double
pivots_ms(const GkSession *s, int k)
{
	return s->d <= GK_GEMM_FIRST_D ? 0.0 : (double) s->n * s->d * gk_gpu_gemm_first_pivots(s, k) * GK_DISTANCE_OPS /
		(s->gpu->sms * GK_SM_LANES * GK_CYCLES_PER_MS);
}

/*
 * Does it pay to sort before the first pass?  That pass may leave nearly all undecided, and then take many times as long as
 * the products do; with few clusters all passes are over before the sort is.  Tests have both.
 */
static bool
sorts_first(const GkSession *s, const GkGemm *g, int k)
{
	if (g->order.row != NULL || (g->sort && s->delta_k == k) || g->no_room || s->units > 0 || k > s->problem.k_max)
		return false;
	return s->host->skip == GK_SKIP_ON ? s->problem.max_iter > 1 :
		(double) s->n * s->d * k / GK_GEMM_PER_MS > sort_ms(s) + pivots_ms(s, k);
}

/* Rounded, in the order that is wanted: by labels of these clusters, if there are any; first: by pivots. */
static GkStatus
build_points(GkSession *s, GkGemm *g, int k, bool first, GkError *err)
{
	/* To free memory waits for the device, and a cancel does not end that wait. */
	GK_DO(gk_gpu_drain(s, err));
	free_points(g);
	free_centroids(g);
	free_slice(g);
	gk_gpu_gemm_unsort(&g->order);
	g->order.places = s->n;
	g->sort = g->sort && s->delta_k == k;
	g->old = false;
	if (g->sort || first)
	{
		GK_DO(gk_gpu_gemm_sort(s, g, k, g->sort, err));
		g->sorts++;
		g->passes = 0;
		g->wasted = 0.0;
		gk_gpu_gemm_forget_open(g);
	}
	if (g->order.row != NULL && !has_room(s, g, k))
	{
		gk_gpu_gemm_unsort(&g->order);
		g->order.places = s->n;
		g->no_room = true;
		g->sort = false;
	}
	if (!has_room(s, g, k))
		return gk_gpu_error(err, GK_ERR_DEVICE_MEMORY, "no memory for products");
	GK_DO(allocate_points(s, g, k, err));
	GK_DO(gk_gpu_gemm_round_points(s, g, err));
	g->built = true;
	return GK_OK;
}

static GkStatus
build(GkSession *s, GkGemm *g, int k, bool sorted, GkError *err)
{
	bool		good = true;
	bool		first;

	if (g->x == NULL)
	{
		g->pitch = (int) gk_round_up(s->d, 4);
		/* Rows of 8 values in the last slice, half a sector of the L2 cache each, would take longer than of 16. */
		g->width = s->d <= 8 ? 8 : (int) gk_round_up(s->d, 16);
		g->head = GK_GEMM_WHOLE;
		g->tail_head = -1;
		g->has_columns = false;
		g->scale = (float) gk_pow2(GK_GEMM_TOP - gk_gpu_top_expo(s));
		gk_gpu_gemm_unsort(&g->order);
		g->order.places = s->n;
		if (!has_room(s, g, k))
			return gk_gpu_error(err, GK_ERR_DEVICE_MEMORY, "no memory for products");
		GK_DO(build_rows(s, g, &good, err));
		if (!good)
			return gk_gpu_error(err, GK_ERR_DEVICE_MEMORY, "this GPU's sums lose more than is assumed");
	}
	g->depth = g->width;
	first = sorted && sorts_first(s, g, k);
	if (!g->built || first || (g->old && s->delta_k == k))
	{
		bool		unpaced = s->unpaced;
		GkStatus	st;

		/* It takes as long as several passes. */
		s->unpaced = false;
		st = build_points(s, g, k, first, err);
		s->unpaced = unpaced;
		GK_DO(st);
	}
	GK_DO(allocate_centroids(s, g, k, err));
	return allocate_slice(s, g, k, err);
}

GkStatus
gk_gpu_gemm_points(GkSession *s, int k, bool sorted, bool *good, GkError *err)
{
	GkStatus	st;

	*good = false;
	if (s->gemm == NULL)
	{
		s->gemm = (GkGemm *) s->core->alloc(s->host, 1, sizeof(GkGemm));
		if (s->gemm == NULL)
			return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
		memset(s->gemm, 0, sizeof(*s->gemm));
	}
	st = build(s, s->gemm, k, sorted, err);
	if (st == GK_ERR_DEVICE_MEMORY)
	{
		/* Not an error: other kernels need no more than the points. */
		switch_off(s);
		return GK_OK;
	}
	*good = st == GK_OK;
	return st;
}

GkStatus
gk_gpu_gemm_begin(GkSession *s, int k, bool sorted, bool labelled, GkError *err)
{
	GkGemm	   *g;
	bool		good = false;
	bool		follows;		/* are there labels of near centroids, for columns in this order? */
	bool		heads;

	s->gemm_k = 0;
	if (gk_gpu_gemm_wanted(s, k))
		GK_DO(gk_gpu_gemm_points(s, k, sorted, &good, err));
	if (!good)
		return GK_OK;
	g = s->gemm;
	if (!labelled)
	{
		gk_gpu_gemm_forget_heads(g);
		gk_gpu_gemm_forget_near(g);
	}
	follows = labelled && g->order.row != NULL && g->order.columns == k && s->delta_k == k;
	g->near_now = follows && g->near_wanted && g->near != NULL;
	g->near_built = g->near_built && g->near_now;
	heads = follows && gk_gpu_gemm_has_heads(g) && (double) k * s->d < GK_GEMM_MOST_SAMPLE;
	g->depth = heads ? gk_gpu_gemm_head_values(g, g->head) : g->width;
	if (g->depth < g->width)
		GK_DO(gk_gpu_gemm_find_tails(s, g, k, err));
	GK_DO(gk_gpu_gemm_round_centroids(s, g, s->centroids, k, err));
	if (heads && g->depth == g->width)
		GK_DO(gk_gpu_gemm_sample_heads(s, g, k, err));
	if (follows && !g->near_now && (double) k * s->d < GK_GEMM_MOST_SAMPLE)
		GK_DO(gk_gpu_gemm_sample_near(s, g, k, err));
	if (g->near_now)
		GK_DO(gk_gpu_gemm_find_columns(s, g, k, err));
	else if (g->order.row != NULL)
		GK_DO(gk_gpu_gemm_needs(s, g, k, err));
	s->gemm_k = k;
	return GK_OK;
}

const GkGemmCounts *
gk_gpu_gemm_counts(const GkSession *s)
{
	return &s->gemm->state->all;
}

/*
 * Is the order too old?  Centroids move away from the pivots, so that more tiles are needed and more rows are
 * undecided.  It is when what this has cost since the last sort is what a sort takes: so no more is lost by old orders
 * than is spent on new ones.  (Joined sessions decide each for itself, though the others wait while one sorts.)  To be
 * asked once a pass.
 */
static bool
too_old(const GkSession *s, GkGemm *g, const GkGemmCounts *counts)
{
	double		parts = (double) counts->parts * GK_GEMM_SAMPLE * GK_GEMM_ROWS;
	double		ms = gk_gpu_gemm_pass_ms(s, g, counts->head, parts / s->n, gk_gpu_gemm_open(s, counts));

	/* (What another head took says nothing of the order's age.) */
	if (g->passes++ == 0 || ms < g->shortest || counts->head != g->shortest_head)
		g->shortest = ms;
	g->shortest_head = counts->head;
	g->wasted += ms - g->shortest;
	/* For tests: now and then, and every other time not before rows have kept bounds twice. */
	if (s->host->skip == GK_SKIP_ON && g->passes >= (g->sorts % 2 == 1 ? 3 : 5))
		return true;
	return g->wasted > sort_ms(s);
}

void
gk_gpu_gemm_judge(GkSession *s, int k, const GkGemmCounts *counts)
{
	GkGemm	   *g = s->gemm;
	double		share = (double) counts->undecided / s->n;
	bool		many;

	/* What was under way when the order changed says nothing of it. */
	if (g == NULL || !g->built || g->old || counts->sorts != g->sorts)
		return;
	gk_gpu_gemm_choose_near(s, g, k, counts);
	if (counts->near || g->near_wanted)
		return;
	g->calm = counts->head == GK_GEMM_WHOLE ? share < GK_GEMM_CALM_SHARE : gk_gpu_gemm_open(s, counts) < GK_GEMM_MOST_PAIRS;
	many = (double) counts->pairs > (double) s->n * k * GK_GEMM_MAX_PAIRS && counts->head == GK_GEMM_WHOLE;
	/* Rows sorted by pivots are sorted by labels only if too many pairs are left, or the order is old. */
	if (!g->old && !g->sort && !g->no_room && s->delta_k == k && (many || (share >= GK_GEMM_MAX_UNDECIDED && g->order.row == NULL)))
		g->old = true;
	else if ((g->order.row != NULL || g->no_room) && many && s->host->skip != GK_SKIP_ON)
		switch_off(s);
	else if (g->order.row != NULL && s->delta_k == k)
		g->old = too_old(s, g, counts);
	if (g->old)
		g->sort = true;
	else if (g->order.row != NULL && g->order.columns == k && s->delta_k == k && gk_gpu_gemm_has_heads(g))
		gk_gpu_gemm_choose_head(s, g, counts);
}

/* ---- a pass ---- */

GkStatus
gk_gpu_gemm_labels(GkSession *s, int k, GkLabels *labels, GkError *err)
{
	GkGemm	   *g = s->gemm;
	bool		heads = g->depth < g->width;
	/* (Of rows that are to keep bounds all are undecided at first.) */
	int64_t		step = slice_rows(s, g, k, g->calm && (!g->near_now || g->near_built));
	int64_t		slices;
	GkGemmArgs	a = {};

	GK_DO(gk_gpu_grow(s, (void **) &s->labels, &s->labels_room, (labels->narrow ? s->n / 4 : s->n) + GK_ROW_PAD,
					  sizeof(int32_t), err));
	labels->at = s->labels;
	if (heads)
		step = gk_min(step, HEAD_SLICE);
	if (g->near_now)
	{
		step = gk_min(step, g->near_built ? NEAR_SLICE : FIRST_NEAR_SLICE);
		GK_TRY(cudaMemcpyAsync(s->labels, s->delta_labels, s->n * (labels->narrow ? 1 : sizeof(int32_t)), cudaMemcpyDeviceToDevice, s->gpu->stream));
	}
	/* As many slices, all of one size. */
	slices = (g->order.places + step - 1) / step;
	step = gk_round_up((g->order.places + slices - 1) / slices, GK_GEMM_ROWS);
	a.done = gk_gemm_done(s);
	a.needs = g->needs;
	a.need = g->need;
	a.copies = g->order.copies;
	a.keys = g->keys;
	a.z = g->z;
	a.state = g->state;
	a.d = s->d;
	a.tiny = gk_gemm_tiny_root(s, g);
	a.w = g->w;
	a.bound = g->bound;
	a.row = g->order.row;
	a.centroid = gk_gemm_centroids(g, k);
	a.labels = *labels;
	a.undecided = g->undecided;
	a.limits = g->limits;
	for (int64_t first = 0; first < g->order.places; first += step)
	{
		a.first = (int) first;
		a.rows = (int) gk_min(step, g->order.places - first);
		if (g->near_now)
		{
			GK_DO(gk_gpu_gemm_check_near(s, g, &a, k, err));
			GK_DO(gk_gpu_gemm_decide_pairs(s, g, &a, k, err));
			GK_DO(gk_gpu_gemm_decide(s, g, &a, k, err));
		}
		else if (heads)
		{
			GK_DO(gk_gpu_gemm_find_pairs(s, g, &a, k, err));
			GK_DO(gk_gpu_gemm_decide_pairs(s, g, &a, k, err));
		}
		else
		{
			GK_DO(gk_gpu_gemm_multiply(s, GK_GEMM_LABELS, g->y, g->order.places, g->b, k, g->width, &a, err));
			GK_DO(gk_gpu_gemm_decide(s, g, &a, k, err));
		}
		if (g->order.places > step)
			GK_DO(gk_gpu_keep_pace(s, err));
	}
	return g->near_now ? gk_gpu_gemm_end_near(s, g, k, err) : GK_OK;
}

GkStatus
gk_gpu_gemm_all(GkSession *s, int k, bool sorted, const int32_t *stepped, GkError *err)
{
	GkLabels	labels = {NULL, false};
	GkGemm	   *g = s->gemm;
	bool		ordered = g != NULL && g->order.row != NULL && g->order.columns == k && k <= g->k_room;
	GkStatus	st;

	if (stepped != NULL && ordered)
		GK_DO(gk_gpu_gemm_renumber(s, g, k, stepped, err));
	st = gk_gpu_gemm_begin(s, k, sorted, false, err);
	if (st == GK_OK && s->gemm_k == k)
		st = gk_gpu_gemm_labels(s, k, &labels, err);
	if (ordered)
		g->is_renumbered = false;
	return st;
}

GkStatus
gk_gpu_gemm_sum(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err)
{
	GkGemm	   *g = s->gemm;
	size_t		from = (size_t) rows->first * (labels.narrow ? 1 : sizeof(int32_t));
	GkLabels	slice = {(char *) labels.at + from, labels.narrow};

	return gk_gpu_move_sum(s, rows, g->x + rows->first * g->pitch, g->pitch, k, slice, (char *) s->delta_labels + from, err);
}
