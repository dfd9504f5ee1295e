/*
 * gk_gpu_sample.cu - exponential race: the rows with the smallest keys.
 *
 * A bound lets through somewhat more than `want` rows; a pass over all rows collects those under it, and the
 * host sorts them.  With the sum of all weights known the bound is too: that many rows have keys below it, on
 * average.  Otherwise, or if that is too few or too many, a look at a sample of rows gives one that at least
 * `want` rows are under (keys are positive doubles, so their bits order them), and when that would be too many, a
 * radix search over all rows (16 bits a level) finds a tighter one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define BINS			65536
#define THREADS			256
#define SAMPLE_ROWS		((int64_t) 1 << 20)
#define RANGE_ROWS		((int64_t) 1 << 25)
#define LEVELS			4
#define HEAD			64		/* bytes before the picks */
#define FEW				1000	/* rows: more are not guessed */

typedef struct RaceArgs
{
	int64_t		first;
	int64_t		rows;
	const float *w;				/* of the slice, or NULL */
	const float *mind2;			/* of the slice, or NULL */
	uint64_t	key;
	/* Counting. */
	int			level;
	uint64_t	prefix;
	unsigned int *hist;
	/* Collecting. */
	double		most;			/* key */
	int64_t		room;
	unsigned long long *found;
	GkPick	   *picks;
} RaceArgs;

/* The row's weight; 0: it does not run. */
__device__ __forceinline__ double
race_weight(const RaceArgs &a, int64_t i)
{
	return (a.w != NULL ? (double) __ldg(a.w + i) : 1.0) * (a.mind2 != NULL ? (double) a.mind2[i] : 1.0);
}

__global__ void __launch_bounds__(THREADS)
count_kernel(RaceArgs a)
{
	for (int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x; i < a.rows; i += (int64_t) gridDim.x * THREADS)
	{
		double		weight = race_weight(a, i);
		uint64_t	bits;

		if (weight == 0.0)
			continue;
		bits = (uint64_t) __double_as_longlong(gk_race_key(gk_hash(a.key, a.first + i), weight));
		if (a.level == 0 || bits >> (64 - 16 * a.level) == a.prefix)
			atomicAdd(a.hist + ((bits >> (48 - 16 * a.level)) & (BINS - 1)), 1u);
	}
}

__global__ void __launch_bounds__(THREADS)
collect_kernel(RaceArgs a)
{
	for (int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x; i < a.rows; i += (int64_t) gridDim.x * THREADS)
	{
		double		weight = race_weight(a, i);
		double		key;

		if (weight > 0.0 && gk_race_upto(gk_hash(a.key, a.first + i), weight, a.most, &key))
		{
			unsigned long long at = atomicAdd(a.found, 1ULL);

			if ((int64_t) at < a.room)
				a.picks[at] = (GkPick) {key, a.first + i};
		}
	}
}

/* ---- passes ---- */

typedef struct Race
{
	RaceArgs	args;
	bool		use_d2;
	int			want;
	bool		collect;
	int64_t		limit;			/* rows to look at */
	unsigned int *hist;			/* [BINS] */
} Race;

static GkStatus
race_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	Race	   *r = (Race *) arg;
	RaceArgs	a = r->args;
	int64_t		blocks;

	a.first = rows->first;
	a.rows = r->limit - rows->first < rows->rows ? r->limit - rows->first : rows->rows;
	a.w = rows->w;
	a.mind2 = r->use_d2 ? s->mind2 + rows->first : NULL;
	if (a.rows <= 0)
		return GK_OK;
	blocks = gk_min((a.rows + THREADS - 1) / THREADS, s->gpu->sms * GK_SM_BLOCKS);
	if (r->collect)
		collect_kernel<<<(unsigned int) blocks, THREADS, 0, s->gpu->stream>>>(a);
	else
		count_kernel<<<(unsigned int) blocks, THREADS, 0, s->gpu->stream>>>(a);
	GK_LAUNCHED();
	return GK_OK;
}

/* Without weights the points themselves are not needed. */
static GkStatus
race_pass(GkSession *s, Race *r, GkError *err)
{
	if (s->pts->weighted)
		return gk_gpu_each(s, RANGE_ROWS, race_slice, r, err);
	for (int64_t first = 0; first < r->limit; first += RANGE_ROWS)
	{
		GkRows		rows = {NULL, NULL, 0, s->n - first < RANGE_ROWS ? s->n - first : RANGE_ROWS, first};

		GK_DO(race_slice(s, &rows, r, err));
		if (s->n > 4 * RANGE_ROWS)
			GK_DO(gk_gpu_drain(s, err));
	}
	return GK_OK;
}

static GkStatus
count(GkSession *s, Race *r, int level, uint64_t prefix, GkError *err)
{
	r->collect = false;
	r->args.level = level;
	r->args.prefix = prefix;
	r->args.hist = (unsigned int *) s->scratch;
	GK_TRY(cudaMemsetAsync(s->scratch, 0, BINS * sizeof(unsigned int), s->gpu->stream));
	GK_DO(race_pass(s, r, err));
	GK_DO(gk_gpu_drain(s, err));
	GK_TRY(cudaMemcpy(r->hist, s->scratch, BINS * sizeof(unsigned int), cudaMemcpyDeviceToHost));
	return GK_OK;
}

/* The largest key with these leading bits, or that there is. */
static double
key_of(uint64_t bits)
{
	double		key;

	memcpy(&key, &bits, sizeof(key));
	return key < INFINITY ? key : INFINITY;
}

/* The bin in which the want-th smallest lies; *below: rows in lower bins. */
static int
bin_of(const unsigned int *hist, int64_t want, int64_t *below)
{
	*below = 0;
	for (int b = 0; b < BINS; b++)
	{
		if (*below + hist[b] >= want)
			return b;
		*below += hist[b];
	}
	return BINS;
}

/*
 * A bound on the keys that `want` rows or more, but not many more, are under; and room for those rows.
 */
static GkStatus
tight_bound(GkSession *s, Race *r, GkError *err)
{
	RaceArgs   *a = &r->args;
	int64_t		room = a->room;
	uint64_t	prefix = 0;
	int64_t		under = 0;

	r->limit = s->n;
	for (int level = 0; level < LEVELS; level++)
	{
		int64_t		below;
		int			bin;

		GK_DO(count(s, r, level, prefix, err));
		bin = bin_of(r->hist, r->want - under, &below);
		under += below;
		/* If fewer rows run than are wanted: all of them. */
		prefix = prefix << 16 | (uint64_t) bin;
		a->most = bin == BINS ? INFINITY : key_of(level == LEVELS - 1 ? prefix : ((prefix + 1) << (48 - 16 * level)) - 1);
		a->room = under + (bin == BINS ? 0 : r->hist[bin]);
		if (a->room <= room || bin == BINS)
			break;
	}
	if (a->room < room)
		a->room = room;
	return GK_OK;
}

/* The rows under the bound, as far as there is room. */
static GkStatus
collect(GkSession *s, Race *r, int64_t *found, GkError *err)
{
	unsigned long long n;

	GK_DO(gk_gpu_scratch(s, HEAD + (size_t) r->args.room * sizeof(GkPick), err));
	r->collect = true;
	r->limit = s->n;
	r->args.found = (unsigned long long *) s->scratch;
	r->args.picks = (GkPick *) ((char *) s->scratch + HEAD);
	GK_TRY(cudaMemsetAsync(s->scratch, 0, HEAD, s->gpu->stream));
	GK_DO(race_pass(s, r, err));
	GK_DO(gk_gpu_drain(s, err));
	GK_TRY(cudaMemcpy(&n, s->scratch, sizeof(n), cudaMemcpyDeviceToHost));
	*found = (int64_t) n;
	return GK_OK;
}

static int
by_key(const void *va, const void *vb)
{
	const GkPick *a = (const GkPick *) va;
	const GkPick *b = (const GkPick *) vb;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

/*
 * Rows under a bound that lets `want` of them through but for one time in a million, if their weights' sum is phi:
 * they are that many as a Poisson variable is.
 */
static GkStatus
guess(GkSession *s, Race *r, int64_t *found, GkError *err)
{
	double		on_average = r->want + 6.0 * sqrt((double) r->want) + 20.0;

	r->args.room = 2 * (int64_t) on_average;
	r->args.most = on_average / s->phi;
	return collect(s, r, found, err);
}

static GkStatus
search(GkSession *s, Race *r, int64_t *found, GkError *err)
{
	int64_t		below;
	int			bin;

	r->args.room = r->want > 16384 ? 4 * (int64_t) r->want : 65536;
	*found = r->args.room + 1;
	GK_DO(gk_gpu_scratch(s, BINS * sizeof(unsigned int), err));
	r->limit = gk_min(s->n, SAMPLE_ROWS);
	GK_DO(count(s, r, 0, 0, err));
	bin = bin_of(r->hist, r->want, &below);
	r->args.most = key_of(((uint64_t) (bin + 1) << 48) - 1);
	if (bin < BINS)
		GK_DO(collect(s, r, found, err));
	if (*found > r->args.room)
	{
		GK_DO(tight_bound(s, r, err));
		GK_DO(collect(s, r, found, err));
	}
	if (*found > r->args.room)
		return gk_gpu_error(err, GK_ERR_INTERNAL, "the race has more rows than were counted");
	return GK_OK;
}

static GkStatus
race(GkSession *s, Race *r, GkPick *out, int *got, GkError *err)
{
	int64_t		found = 0;
	GkPick	   *picks;
	cudaError_t e;

	GK_DO(gk_gpu_drain(s, err));
	if (r->use_d2 && s->phi > 0.0 && r->want <= FEW)
		GK_DO(guess(s, r, &found, err));
	if (found < r->want || found > r->args.room)
		GK_DO(search(s, r, &found, err));
	picks = (GkPick *) s->core->alloc(s->host, found > 0 ? found : 1, sizeof(GkPick));
	if (picks == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	e = cudaMemcpy(picks, r->args.picks, found * sizeof(GkPick), cudaMemcpyDeviceToHost);
	if (e == cudaSuccess)
	{
		qsort(picks, found, sizeof(GkPick), by_key);
		*got = (int) gk_min(found, r->want);
		memcpy(out, picks, *got * sizeof(GkPick));
	}
	s->core->free(s->host, picks);
	return e == cudaSuccess ? GK_OK : gk_gpu_fail(s, e, "cudaMemcpy", __FILE__, __LINE__, err);
}

GkStatus
gk_gpu_seed_race(GkSession *s, uint64_t key, bool use_d2, int want, GkPick *out, int *got, GkError *err)
{
	Race		r = {};
	GkStatus	st;

	r.hist = (unsigned int *) s->core->alloc(s->host, BINS, sizeof(unsigned int));
	if (r.hist == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	r.args.key = key;
	r.use_d2 = use_d2;
	r.want = want;
	st = race(s, &r, out, got, err);
	s->core->free(s->host, r.hist);
	return st == GK_OK && s->ingested ? gk_gpu_picked(s, out, *got, err) : st;
}
