/*
 * gk_gpu_seed_rounds.cu - many rounds of greedy k-means++ with one product, for points of many features.
 *
 * A round draws candidates by a race over w * D, takes the one that lowers the sum of w * D most and lowers D
 * by it (gk_seed.c).  The next round depends on that, but little: where D is as it was, keys of the next race
 * are as they were, and where it is lower they are higher.  So a batch of rounds looks ahead:
 *
 *  1. SPARE rows more than a round draws, of the smallest keys by D as it is, stand for each of its rounds.
 *  2. One product of all points with these rows tells which points may be nearer to them than D: the pairs.
 *     It dismisses only what is farther by the bound of gk_gpu_gemm.h, with D in the place of the distance to
 *     the nearest centroid.  D only falls, so no round of the batch has others.
 *  3. A round takes its candidates by D as it is by then.  They are those of a race over all rows if even the
 *     last of them has a key below all that were left out at 1; otherwise the batch ends before this round.
 *  4. The canonical distances of its candidates' pairs tell by how much each would lower the sum, exactly;
 *     the best one's lower D.
 *
 * After r seeds a point is nearer to a new one about once in r times: a round takes a share of 1 / r of the
 * distances, and the points are read once a batch.  Nothing waits for the host within a batch.
 *
 * Where several devices have some of the rows each (gk_gpu_join.cu), each offers its rows of the smallest keys
 * at 1, all take the same ones of all offers, find the pairs of their own rows, and add up what all would gain at
 * 4.  Then a row's D is known where it is stored, so that all keep the D of the rows that stand for rounds.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_gemm_hopper.cuh"
#include "gpu/gk_gpu_gemm_pairs.cuh"
#include "gpu/gk_gpu_seed_rounds.cuh"

/* ---- 2. pairs ---- */

/* Up to which key a column may be nearer to a row than D. */
__global__ void __launch_bounds__(THREADS)
limit_kernel(const __grid_constant__ RoundsArgs a, const __grid_constant__ GkGemmArgs product, double scale, int *limit)
{
	Common		common(product);

	for (int64_t row = (int64_t) blockIdx.x * THREADS + threadIdx.x; row < a.n; row += (int64_t) gridDim.x * THREADS)
	{
		float		d2 = a.mind2[row];

		limit[row] = d2 > 0.0f ? largest_below(common, product.w[row], product.bound[row], (double) d2 * scale * scale) : GK_GEMM_NO_LIMIT;
	}
}

/* How many pairs each column has. */
__global__ void __launch_bounds__(THREADS)
count_kernel(const __grid_constant__ RoundsArgs a)
{
	__shared__ int count[MOST_COLUMNS];
	int			pairs = min(*a.found, a.room);

	for (int i = threadIdx.x; i < MOST_COLUMNS; i += THREADS)
		count[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * THREADS + threadIdx.x; i < pairs; i += gridDim.x * THREADS)
		if (a.pair[i].at >= 0)
			atomicAdd(&count[a.pair[i].column], 1);
	__syncthreads();
	for (int i = threadIdx.x; i < MOST_COLUMNS; i += THREADS)
		if (count[i] > 0)
			atomicAdd(&a.state->column_pairs[i], count[i]);
}

/* Where each column's begin; one block. */
__global__ void __launch_bounds__(1024)
begin_kernel(const __grid_constant__ RoundsArgs a)
{
	__shared__ int sum[1024];
	RoundsState *s = a.state;
	int			i = threadIdx.x * 2;
	int			mine[2] = {s->column_pairs[i], s->column_pairs[i + 1]};

	if (mine[0] > COLUMN_PAIRS || mine[1] > COLUMN_PAIRS || *a.found >= a.room)
		s->crowded_here = 1;
	sum[threadIdx.x] = mine[0] + mine[1];
	__syncthreads();
	for (int o = 1; o < 1024; o <<= 1)
	{
		int			other = (int) threadIdx.x >= o ? sum[threadIdx.x - o] : 0;

		__syncthreads();
		sum[threadIdx.x] += other;
		__syncthreads();
	}
	s->column_next[i] = s->column_begin[i] = sum[threadIdx.x] - mine[0] - mine[1];
	s->column_next[i + 1] = s->column_begin[i + 1] = sum[threadIdx.x] - mine[1];
	if (threadIdx.x == 1023)
		s->pairs = sum[1023];
}

static_assert(MOST_COLUMNS == 2048, "begin_kernel: two columns a thread");

/* One warp: no rounds where a device has too many. */
__global__ void
crowded_kernel(const __grid_constant__ RoundsArgs a)
{
	bool		crowded = (int) threadIdx.x < a.devices && a.state_of[threadIdx.x]->crowded_here;

	if (__any_sync(0xffffffffu, crowded) && threadIdx.x == 0)
		a.state->crowded = a.state->over = 1;
}

/* Bring them there: a block those that it has of a column at once. */
__global__ void __launch_bounds__(THREADS)
place_kernel(const __grid_constant__ RoundsArgs a)
{
	__shared__ int count[MOST_COLUMNS];
	__shared__ int to[MOST_COLUMNS];
	int			pairs = min(*a.found, a.room);
	int			step = (pairs + gridDim.x - 1) / gridDim.x;
	int			first = blockIdx.x * step;
	int			end = min(pairs, first + step);

	for (int i = threadIdx.x; i < MOST_COLUMNS; i += THREADS)
		count[i] = 0;
	__syncthreads();
	for (int i = first + threadIdx.x; i < end; i += THREADS)
		if (a.pair[i].at >= 0)
			atomicAdd(&count[a.pair[i].column], 1);
	__syncthreads();
	for (int i = threadIdx.x; i < MOST_COLUMNS; i += THREADS)
		to[i] = count[i] > 0 ? atomicAdd(&a.state->column_next[i], count[i]) : 0;
	__syncthreads();
	for (int i = first + threadIdx.x; i < end; i += THREADS)
	{
		GkGemmPair	p = a.pair[i];

		if (p.at >= 0)
			a.pair_row[atomicAdd(&to[p.column], 1)] = p.at;
	}
}

/* ---- 3. a round's candidates ---- */

/* A warp finds them, in the race's order: lane i has the i-th column or, past `want`, -1.  false: perhaps others. */
__device__ __forceinline__ bool
choose(const RoundsArgs &a, int round, int *column)
{
	const		RoundsState *s = a.state;
	int			lane = threadIdx.x % 32;
	int			mine = round * a.each + lane;
	int64_t		row = lane < a.each ? s->row[mine] : 0;
	float		d2 = lane >= a.each || !s->drawn_ok[round] ? 0.0f : a.devices > 1 ? s->d2[mine] : a.mind2[row];
	double		weight = d2 > 0.0f ? a.devices > 1 ? (double) s->w[mine] : weight_of(a, row) : 0.0;
	double		key = d2 > 0.0f ? gk_race_key(gk_hash(a.key[round], row), weight * (double) d2) : GK_INF;
	int			rank = 0;
	double		last;

	*column = -1;
	for (int i = 0; i < 32; i++)
	{
		double		other = __shfl_sync(0xffffffffu, key, i);
		long long	other_row = __shfl_sync(0xffffffffu, (long long) row, i);

		/* Those that do not run are behind all that do. */
		rank += before(other, other_row, key, row) || (i < lane && other == key && other_row == row);
	}
	for (int i = 0; i < 32; i++)
	{
		int			other = __shfl_sync(0xffffffffu, rank, i);

		if (other == lane && lane < a.want)
			*column = round * a.each + i;
	}
	last = __shfl_sync(0xffffffffu, key, __ffs(__ballot_sync(0xffffffffu, rank == a.want - 1)) - 1);
	return s->drawn_ok[round] && last < s->limit[round];
}

/* ---- 4. what they would gain, and the best one ---- */

/* Distances of the candidates' pairs, and how much lower the sum would be. */
__global__ void __launch_bounds__(PAIR_THREADS)
gain_kernel(const __grid_constant__ RoundsArgs a, int round)
{
	__shared__ GkPairs<PAIRS> pairs[PAIR_THREADS / 32];
	__shared__ int chosen[MOST_ROWS];
	__shared__ int upto[MOST_ROWS]; /* tiles of PAIRS, of all candidates to this one */
	__shared__ bool good;
	RoundsState *s = a.state;
	int			lane = threadIdx.x % 32;
	int			candidate = 0;

	if (s->over)
		return;
	if (threadIdx.x < 32)
	{
		int			column;
		bool		same = choose(a, round, &column);
		int			tiles = column >= 0 ? (s->column_pairs[column] + PAIRS - 1) / PAIRS : 0;

		for (int o = 1; o < 32; o <<= 1)
		{
			int			other = __shfl_up_sync(0xffffffffu, tiles, o);

			if (lane >= o)
				tiles += other;
		}
		chosen[lane] = column;
		upto[lane] = tiles;
		if (lane == 0)
			good = same;
		/* All blocks find the same. */
		if (blockIdx.x == 0)
			s->chosen[round][lane] = column;
		if (blockIdx.x == 0 && lane == 0)
			s->other[round] = !same;
	}
	__syncthreads();
	if (!good)
		return;
	for (int tile = blockIdx.x * (PAIR_THREADS / 32) + threadIdx.x / 32; tile < upto[a.want - 1]; tile += gridDim.x * (PAIR_THREADS / 32))
	{
		int			column;
		int			begin;
		int			i;
		int			row;
		float		d2;
		long long	hi = 0;
		long long	lo = 0;

		while (tile >= upto[candidate])
			candidate++;
		column = chosen[candidate];
		begin = s->column_begin[column];
		i = (tile - (candidate > 0 ? upto[candidate - 1] : 0)) * PAIRS + lane % PAIRS;
		row = a.pair_row[begin + min(i, s->column_pairs[column] - 1)];
		d2 = pairs[threadIdx.x / 32].d2(a.x, a.c, a.pitch, row, column);
		if (lane < PAIRS && i < s->column_pairs[column])
		{
			float		was = a.mind2[row];
			double		h[2];
			double		l[2];

			a.pair_d2[begin + i] = d2;
			if (d2 < was)
			{
				gk_d2_split_double(weight_of(a, row) * (double) was, a.d2_scale, h[0], l[0]);
				gk_d2_split_double(weight_of(a, row) * (double) d2, a.d2_scale, h[1], l[1]);
				hi = (long long) (h[0] - h[1]);
				lo = (long long) (l[0] - l[1]);
			}
		}
		hi = gk_warp_sum(hi);
		lo = gk_warp_sum(lo);
		if (lane == 0)
		{
			gk_red(&s->gain[round][candidate][0], hi);
			gk_red(&s->gain[round][candidate][1], lo);
		}
	}
}

/* The D of rows that stand for later rounds. */
__device__ __forceinline__ void
lower_columns(const RoundsArgs &a, GkPairs<PAIRS> *pairs, int round, int winner)
{
	RoundsState *s = a.state;
	int			lane = threadIdx.x % 32;
	int			end = a.rounds * a.each;

	for (int at = (round + 1) * a.each + (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * PAIRS; at < end;
		 at += gridDim.x * (THREADS / 32) * PAIRS)
	{
		int			column = min(at + lane % PAIRS, end - 1);
		float		d2 = pairs[threadIdx.x / 32].d2(a.c, a.c, a.pitch, column, winner);

		if (lane < PAIRS && at + lane < end)
			s->d2[column] = fminf(s->d2[column], d2);
	}
}

/* The first of those with the largest gain lowers D. */
__global__ void __launch_bounds__(THREADS)
take_kernel(const __grid_constant__ RoundsArgs a, int round)
{
	__shared__ GkPairs<PAIRS> pairs[THREADS / 32];
	RoundsState *s = a.state;
	int			lane = threadIdx.x % 32;
	gk_int128	gain = lane < a.want ? 0 : -1;
	int			winner = lane;
	int			begin;

	if (s->over)
		return;
	if (s->other[round])
	{
		s->over = 1;
		return;
	}
	for (int i = 0; i < a.devices && lane < a.want; i++)
		gain += gk_acc_value(a.state_of[i]->gain[round][lane][1], a.state_of[i]->gain[round][lane][0], 40);
	for (int o = 16; o > 0; o >>= 1)
	{
		gk_int128	other = (gk_int128) __shfl_xor_sync(0xffffffffu, (long long) (gain >> 64), o) << 64 |
			(unsigned long long) __shfl_xor_sync(0xffffffffu, (unsigned long long) gain, o);
		int			other_winner = __shfl_xor_sync(0xffffffffu, winner, o);

		if (other > gain || (other == gain && other_winner < winner))
		{
			gain = other;
			winner = other_winner;
		}
	}
	winner = s->chosen[round][winner];
	if (blockIdx.x == 0 && threadIdx.x == 0)
	{
		s->winner[round] = winner;
		s->done = round + 1;
	}
	begin = s->column_begin[winner];
	for (int i = blockIdx.x * THREADS + threadIdx.x; i < s->column_pairs[winner]; i += gridDim.x * THREADS)
	{
		int			row = a.pair_row[begin + i];

		a.mind2[row] = fminf(a.mind2[row], a.pair_d2[begin + i]);
	}
	if (a.devices > 1)
		lower_columns(a, pairs, round, winner);
}

/* ---- batches ---- */

static size_t
bytes_of(const GkSession *s, int64_t room)
{
	return sizeof(RoundsState) + (size_t) (2 * MOST_COLUMNS + ROUNDS) * s->d * sizeof(float) +
		s->n * sizeof(int) + room * (sizeof(GkGemmPair) + sizeof(int) + sizeof(float));
}

/* Room for pairs of four columns with every row, and for what warps do not fill. */
static int64_t
pair_room(const GkSession *s)
{
	return gk_min(4 * s->n + (int64_t) s->gpu->sms * 32 * GK_GEMM_PAIRS, MOST_PAIRS);
}

static GkStatus
make(GkSession *s, GkSeedRounds *r, GkError *err)
{
	r->room = (int) pair_room(s);
	GK_DO(gk_gpu_join_malloc(s, (void **) &r->state, sizeof(RoundsState), err));
	GK_TRY(cudaMalloc((void **) &r->points, (size_t) MOST_COLUMNS * s->d * sizeof(float)));
	GK_DO(gk_gpu_join_malloc(s, (void **) &r->offered, (size_t) MOST_COLUMNS * s->d * sizeof(float), err));
	GK_TRY(cudaMalloc((void **) &r->winners, (size_t) ROUNDS * s->d * sizeof(float)));
	GK_TRY(cudaMalloc((void **) &r->limit, s->n * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &r->pair, r->room * sizeof(GkGemmPair)));
	GK_TRY(cudaMalloc((void **) &r->pair_row, r->room * sizeof(int)));
	GK_TRY(cudaMalloc((void **) &r->pair_d2, r->room * sizeof(float)));
	return GK_OK;
}

void
gk_gpu_seed_rounds_free(GkSession *s)
{
	GkSeedRounds *r = s->seed_rounds;

	if (r == NULL)
		return;
	cudaFree(r->state);
	cudaFree(r->points);
	cudaFree(r->offered);
	cudaFree(r->winners);
	cudaFree(r->limit);
	cudaFree(r->pair);
	cudaFree(r->pair_row);
	cudaFree(r->pair_d2);
	s->core->free(s->host, r);
	s->seed_rounds = NULL;
}

/* Rows that stand for a round. */
static int
rows_each(int want)
{
	return (want + SPARE + 3) / 4 * 4;
}

static void
set_args(GkSession *s, const GkSeedRounds *r, RoundsArgs *a)
{
	const GkGemm *g = s->gemm;

	a->x = g->x;
	a->pitch = g->pitch;
	a->c = g->c;
	a->state = r->state;
	a->n = s->n;
	a->d = s->d;
	a->w = s->pts->weighted ? s->x + (size_t) s->d * s->ld : NULL;
	a->mind2 = s->mind2;
	a->d2_scale = gk_pow2(GK_GRID_BITS - s->pts->d2_expo);
	a->pair = r->pair;
	a->pair_row = r->pair_row;
	a->pair_d2 = r->pair_d2;
	a->room = r->room;
	a->found = &g->state->pairs;
	a->devices = 1;
	a->state_of[0] = r->state;
	a->offered[0] = r->offered;
	if (s->joined == NULL)
		return;
	a->devices = s->joined->with->n;
	a->me = s->joined->me;
	for (int i = 0; i < a->devices; i++)
	{
		a->state_of[i] = (const RoundsState *) s->joined->with->seed_state[i];
		a->offered[i] = s->joined->with->seed_points[i];
		a->first[i] = s->joined->first[i];
	}
}

/* 2: their pairs. */
static GkStatus
find_pairs(GkSession *s, GkSeedRounds *r, const RoundsArgs *a, GkError *err)
{
	GkGemm	   *g = s->gemm;
	int			blocks = s->gpu->sms * GK_SM_BLOCKS;
	GkGemmArgs	p = {};

	p.rows = (int) s->n;
	p.keys = g->keys;
	p.state = g->state;
	p.d = s->d;
	p.tiny = (float) (sqrt(gk_gemm_tiny(s, g)) * 1.02);
	p.w = g->w;
	p.bound = g->bound;
	p.limit = r->limit;
	p.pair = r->pair;
	p.pair_room = r->room;
	limit_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(*a, p, (double) g->scale, r->limit);
	GK_LAUNCHED();
	GK_DO(gk_gpu_gemm_multiply(s, GK_GEMM_CANDIDATES, g->y, s->n, g->b, a->rounds * a->each, g->width, &p, err));
	count_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(*a);
	GK_LAUNCHED();
	begin_kernel<<<1, 1024, 0, s->gpu->stream>>>(*a);
	GK_LAUNCHED();
	place_kernel<<<s->gpu->sms * 2, THREADS, 0, s->gpu->stream>>>(*a);
	GK_LAUNCHED();
	GK_DO(gk_gpu_meet(s, &r->state->over, err));
	crowded_kernel<<<1, 32, 0, s->gpu->stream>>>(*a);
	GK_LAUNCHED();
	return GK_OK;
}

/* One batch; what came of it. */
static GkStatus
batch(GkSession *s, GkSeedRounds *r, RoundsArgs *a, float *points, int *done, int *pairs, bool *crowded, GkError *err)
{
	int			head[4];		/* over, done, crowded, pairs */

	GK_DO(gk_gpu_seed_stand(s, r, a, err));
	GK_DO(gk_gpu_gemm_round_centroids(s, s->gemm, r->points, a->rounds * a->each, err));
	GK_DO(find_pairs(s, r, a, err));
	for (int i = 0; i < a->rounds; i++)
	{
		gain_kernel<<<s->gpu->sms * GK_SM_BLOCKS, PAIR_THREADS, 0, s->gpu->stream>>>(*a, i);
		GK_LAUNCHED();
		GK_DO(gk_gpu_meet(s, &r->state->over, err));
		take_kernel<<<s->gpu->sms, THREADS, 0, s->gpu->stream>>>(*a, i);
		GK_LAUNCHED();
	}
	GK_DO(gk_gpu_seed_points(s, a, r->state->winner, a->rounds, r->winners, err));
	GK_DO(gk_gpu_drain(s, err));
	GK_TRY(cudaMemcpy(head, &r->state->over, sizeof(head), cudaMemcpyDeviceToHost));
	*done = head[1];
	*crowded = head[2];
	*pairs = head[3];
	if (points != NULL)
		GK_TRY(cudaMemcpy(points, r->winners, (size_t) *done * s->d * sizeof(float), cudaMemcpyDeviceToHost));
	return GK_OK;
}

/* Are the points ready for it: row-major and rounded, in the order of their rows? */
static GkStatus
ready(GkSession *s, int columns, bool *good, GkError *err)
{
	GkGemm	   *g = s->gemm;
	GkSeedRounds *r;
	GkStatus	st;

	*good = false;
	if (!gk_gpu_gemm_wanted(s, s->problem.k_max) || !gk_gpu_gemm_wanted(s, columns))
		return GK_OK;
	gk_gpu_step_stop(s);
	s->delta_k = s->gemm_k = 0;
	GK_DO(gk_gpu_drain(s, err));
	if (g != NULL && g->order.row != NULL)
		g->sort = g->built = false;
	GK_DO(gk_gpu_gemm_points(s, columns, false, good, err));
	if (!*good || s->seed_rounds != NULL)
		return GK_OK;
	*good = false;
	if (gk_gpu_gemm_bytes(s, s->gemm, s->problem.k_max) + bytes_of(s, pair_room(s)) + gk_gpu_filter_held(s) > s->spare)
		return GK_OK;
	r = s->seed_rounds = (GkSeedRounds *) s->core->alloc(s->host, 1, sizeof(GkSeedRounds));
	if (r == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	memset(r, 0, sizeof(*r));
	r->rounds = 2;
	gk_gpu_seed_forget(s);
	st = make(s, r, err);
	if (st == GK_ERR_DEVICE_MEMORY)
	{
		/* Not an error: rounds one by one need no more than the points. */
		gk_gpu_seed_rounds_free(s);
		return GK_OK;
	}
	*good = st == GK_OK;
	return st;
}

/* How many rounds to try next. */
static void
learn(GkSession *s, GkSeedRounds *r, int rounds, int done, bool room, bool crowded)
{
	if (crowded || done < rounds)
		r->rounds = rounds / 2 > 0 ? rounds / 2 : 1;
	else if (rounds == r->rounds && rounds < ROUNDS && room)
		r->rounds = 2 * rounds;
	/* None: something that looking ahead is not made for, such as few points that are far from all others. */
	r->pause = done > 0 ? 0 : 2 * r->pause + 1;
	r->waited = 0;
	s->seeds += done;
}

static GkStatus
seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done, GkError *err)
{
	GkSeedRounds *r = s->seed_rounds;
	int			most = (int) gk_min(gk_min(rounds, ROUNDS), s->seeds / SEEDS_A_ROUND);
	int			pairs = 0;
	bool		crowded = false;
	bool		room;
	bool		good;
	RoundsArgs	a = {};

	if (s->seeds < FIRST_SEEDS || rounds < 2 || want + SPARE > MOST_ROWS || s->d <= GK_GEMM_NARROW_D)
		return GK_OK;
	if (r != NULL && r->waited < r->pause)
	{
		r->waited++;
		return GK_OK;
	}
	a.each = rows_each(want);
	GK_DO(ready(s, ROUNDS * a.each, &good, err));
	r = s->seed_rounds;
	if (s->joined != NULL && good)
	{
		s->joined->with->seed_state[s->joined->me] = r->state;
		s->joined->with->seed_points[s->joined->me] = r->offered;
	}
	GK_DO(gk_gpu_agree(s, good, &good));
	if (!good)
		return GK_OK;
	s->phi = 0.0;
	a.want = want;
	memcpy(a.key, keys, most * sizeof(*keys));
	do
	{
		a.rounds = (int) gk_min(r->rounds, most);
		set_args(s, r, &a);
		GK_DO(batch(s, r, &a, points, done, &pairs, &crowded, err));
		if (gk_gpu_join_is_over(s))
			return GK_STOPPED;
		GK_DO(gk_gpu_agree(s, 3 * (int64_t) pairs < r->room, &room));
		learn(s, r, a.rounds, *done, room, crowded);
	} while (crowded && a.rounds > 1);
	return GK_OK;
}

GkStatus
gk_gpu_seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done, GkError *err)
{
	GkStatus	st;

	*done = 0;
	st = seed_rounds(s, keys, rounds, want, points, done, err);
	if (st != GK_OK)
		gk_gpu_join_give_up(s);
	return st;
}
