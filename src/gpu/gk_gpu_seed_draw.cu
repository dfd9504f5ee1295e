/*
 * gk_gpu_seed_draw.cu - the races of many rounds of k-means++: the rows that stand for each round (step 1 of
 * gk_gpu_seed_rounds.cu).
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_seed_rounds.cuh"

/* ---- kernels ---- */

__global__ void __launch_bounds__(THREADS)
phi_kernel(const __grid_constant__ RoundsArgs a)
{
	double		sum = 0.0;

	for (int64_t row = (int64_t) blockIdx.x * THREADS + threadIdx.x; row < a.n; row += (int64_t) gridDim.x * THREADS)
		sum += weight_of(a, row) * (double) a.mind2[row];
	for (int o = 16; o > 0; o >>= 1)
		sum += __shfl_xor_sync(0xffffffffu, sum, o);
	if (threadIdx.x % 32 == 0)
		atomicAdd(&a.state->phi, sum);
}

/* The rows whose keys are below DRAW / phi, of each round. */
__global__ void __launch_bounds__(THREADS)
draw_kernel(const __grid_constant__ RoundsArgs a)
{
	double		phi = 0.0;
	double		most;

	/* In their order, so that it is the same everywhere. */
	for (int i = 0; i < a.devices; i++)
		phi += a.state_of[i]->phi;
	most = DRAW / phi;
	for (int64_t row = (int64_t) blockIdx.x * THREADS + threadIdx.x; row < a.n; row += (int64_t) gridDim.x * THREADS)
	{
		double		weight = weight_of(a, row) * (double) a.mind2[row];

		if (a.mind2[row] == 0.0f)
			continue;
		for (int i = 0; i < a.rounds; i++)
		{
			double		key;

			if (gk_race_upto(gk_hash(a.key[i], row), weight, most, &key))
			{
				int			at = atomicAdd(&a.state->drawn[i], 1);

				if (at < DRAW_ROOM)
					a.state->draw[i][at] = (Drawn) {key, (int) row};
			}
		}
	}
}

/* A block per round: offer the rows of the smallest keys. */
__global__ void __launch_bounds__(DRAW_ROOM)
offer_kernel(const __grid_constant__ RoundsArgs a)
{
	__shared__	Drawn all[DRAW_ROOM];
	RoundsState *s = a.state;
	int			round = blockIdx.x;
	int			i = threadIdx.x;
	int			drawn = s->drawn[round];
	int			rank = 0;

	if (i == 0)
		s->offers[round] = drawn > DRAW_ROOM ? -1 : min(drawn, a.each);
	drawn = min(drawn, DRAW_ROOM);
	if (i < drawn)
		all[i] = s->draw[round][i];
	__syncthreads();
	if (i >= drawn)
		return;
	for (int j = 0; j < drawn; j++)
		rank += before(all[j].key, all[j].row, all[i].key, all[i].row);
	if (rank < a.each)
		s->offer[round][rank] = (Offer) {all[i].key, all[i].row, a.mind2[all[i].row], (float) weight_of(a, all[i].row)};
}

/* A block per offer. */
__global__ void __launch_bounds__(THREADS)
offered_kernel(const __grid_constant__ RoundsArgs a, float *out)
{
	int			round = blockIdx.x / a.each;
	int			i = blockIdx.x % a.each;

	for (int j = threadIdx.x; i < a.state->offers[round] && j < a.d; j += THREADS)
		out[(int64_t) blockIdx.x * a.d + j] = a.x[a.state->offer[round][i].row * a.pitch + j];
}

/* (One that has failed may not have written any.) */
__device__ __forceinline__ int
offers_of(const RoundsArgs &a, int device, int round)
{
	return min(a.state_of[device]->offers[round], a.each);
}

/* A block per round, a thread per offer of all devices: those of the smallest keys become its columns. */
__global__ void __launch_bounds__(GK_GPU_MOST * MOST_ROWS)
stand_kernel(const __grid_constant__ RoundsArgs a)
{
	__shared__	Offer all[GK_GPU_MOST * MOST_ROWS];
	RoundsState *s = a.state;
	int			round = blockIdx.x;
	int			device = threadIdx.x / MOST_ROWS;
	int			i = threadIdx.x % MOST_ROWS;
	int			offers = device < a.devices ? offers_of(a, device, round) : 0;
	bool		mine = i < offers;
	int			rank = 0;
	bool		good;

	if (mine)
	{
		all[threadIdx.x] = a.state_of[device]->offer[round][i];
		all[threadIdx.x].row += a.first[device] - a.first[a.me];
	}
	good = !__syncthreads_or(offers < 0) & (__syncthreads_count(mine) >= a.each);
	if (threadIdx.x == 0)
		s->drawn_ok[round] = good;
	if (!mine)
		return;
	for (int o = 0; o < a.devices; o++)
		for (int j = 0; j < offers_of(a, o, round); j++)
		{
			const		Offer *other = &all[o * MOST_ROWS + j];

			rank += before(other->key, other->row, all[threadIdx.x].key, all[threadIdx.x].row);
		}
	if (rank < a.each)
	{
		int			column = round * a.each + rank;

		s->row[column] = all[threadIdx.x].row;
		s->d2[column] = all[threadIdx.x].d2;
		s->w[column] = all[threadIdx.x].w;
		s->from[column] = device * MOST_COLUMNS + round * a.each + i;
	}
	if (rank == a.each - 1)
		s->limit[round] = all[threadIdx.x].key;
}

/* A block per column, or per winner of `column`. */
__global__ void __launch_bounds__(THREADS)
points_kernel(const __grid_constant__ RoundsArgs a, const int *column, float *out)
{
	int			from = a.state->from[column != NULL ? column[blockIdx.x] : blockIdx.x];
	const float *point = from < 0 ? NULL : a.offered[from / MOST_COLUMNS] + (int64_t) (from % MOST_COLUMNS) * a.d;

	for (int j = threadIdx.x; j < a.d; j += THREADS)
		out[(int64_t) blockIdx.x * a.d + j] = point != NULL ? point[j] : 0.0f;
}

/* ---- launchers ---- */

GkStatus
gk_gpu_seed_points(GkSession *s, const RoundsArgs *a, const int *column, int n, float *out, GkError *err)
{
	points_kernel<<<n, THREADS, 0, s->gpu->stream>>>(*a, column, out);
	GK_LAUNCHED();
	return GK_OK;
}

GkStatus
gk_gpu_seed_stand(GkSession *s, GkSeedRounds *r, const RoundsArgs *a, GkError *err)
{
	int			blocks = s->gpu->sms * GK_SM_BLOCKS;

	GK_TRY(cudaMemsetAsync(r->state, 0, offsetof(RoundsState, from), s->gpu->stream));
	GK_TRY(cudaMemsetAsync(r->state->from, 0xff, sizeof(r->state->from), s->gpu->stream));
	GK_DO(gk_gpu_join_begin(s, err));
	phi_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(*a);
	GK_LAUNCHED();
	GK_DO(gk_gpu_meet(s, &r->state->over, err));
	draw_kernel<<<blocks, THREADS, 0, s->gpu->stream>>>(*a);
	GK_LAUNCHED();
	offer_kernel<<<a->rounds, DRAW_ROOM, 0, s->gpu->stream>>>(*a);
	GK_LAUNCHED();
	offered_kernel<<<a->rounds * a->each, THREADS, 0, s->gpu->stream>>>(*a, r->offered);
	GK_LAUNCHED();
	GK_DO(gk_gpu_meet(s, &r->state->over, err));
	stand_kernel<<<a->rounds, GK_GPU_MOST * MOST_ROWS, 0, s->gpu->stream>>>(*a);
	GK_LAUNCHED();
	return gk_gpu_seed_points(s, a, NULL, a->rounds * a->each, r->points, err);
}
