/*
 * gk_medians_step.c - an iteration of k-medians: labels, then the median of each cluster's feature.
 *
 * A few features at a time: each part of the rows puts its values where its clusters' begin in an array of all
 * rows, then each cluster's are selected from.  Which of them is at the median's place depends on no order.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/medians/gk_medians.h"

typedef struct Step
{
	GkSession  *s;
	GkSweep		sweep;
	const float *c;
	int			k;
	gk_int128  *cost;			/* [threads] */
	int			parts;
	int64_t    *count;			/* [parts][k] of rows; then where the next one's value goes */
	int64_t    *begin;			/* [k + 1] of each cluster's values */
	float	   *value;			/* [GROUP][rows] of features */
	float	   *near;			/* [threads][NEAR_ROOM] */
	int			feature;		/* the first of those */
	int			features;
	float	   *median;			/* [GROUP][k] */
} Step;

/* Features at a time: a row's values of all go to the same place. */
#define GROUP			4

/* ---- labels ---- */

static void
assign_block(GkSession *s, void *arg, const GkBlock *b)
{
	Step	   *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);
	int			k0 = b->round * p->sweep.per_round;
	int			k1 = p->k - k0 > p->sweep.per_round ? k0 + p->sweep.per_round : p->k;
	float	   *distance = s->medians.distance + b->slot;
	int64_t		hi = 0;
	int64_t		lo = 0;

	s->kernels->assign(&x, p->c, k0, k1, s->medians.label + b->slot, distance);
	if (k1 < p->k)
		return;
	s->kernels->sum_d2(distance, NULL, b->rows, s->d2_scale, &hi, &lo);
	p->cost[b->thread] += (gk_int128) hi * ((gk_int128) 1 << 40) + lo;
}

/* ---- medians ---- */

/* Values that a thread has room for beside those of all rows. */
#define NEAR_ROOM	(1 << 16)
/* Values that are looked at in one go. */
#define NEAR_BLOCK		4096
/* Clusters of fewer rows are not sampled. */
#define FEW_ROWS	2048
#define MAX_SAMPLE	16384

float
gk_select(float *v, int64_t count, int64_t n)
{
	int64_t		lo = 0;
	int64_t		hi = count - 1;

	/* Hoare's quickselect */
	while (lo < hi)
	{
		float		a = v[lo];
		float		b = v[lo + (hi - lo) / 2];
		float		c = v[hi];
		float		pivot = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
		int64_t		i = lo;
		int64_t		j = hi;

		while (i <= j)
		{
			while (v[i] < pivot)
				i++;
			while (pivot < v[j])
				j--;
			if (i <= j)
			{
				float		swap = v[i];

				v[i++] = v[j];
				v[j--] = swap;
			}
		}
		/* lo..j <= pivot <= i..hi, and what is between is the pivot */
		if (n <= j)
			hi = j;
		else if (n >= i)
			lo = i;
		else
			break;
	}
	return v[n];
}

/* Count values below low, up to low and up to high. */
static void
count_block(const float *v, int rows, float low, float high, int64_t *below, int64_t *to_low, int64_t *to_high)
{
	int			a = 0,
				b = 0,
				c = 0;

#pragma omp simd reduction(+: a, b, c)
	for (int i = 0; i < rows; i++)
	{
		a += v[i] < low;
		b += v[i] <= low;
		c += v[i] <= high;
	}
	*below += a;
	*to_low += b;
	*to_high += c;
}

/*
 * The n-th smallest of many values: a sample of them says between which two it is, all but surely, and few
 * others are there (Floyd and Rivest, "Expected time bounds for selection", 1975).
 */
static float
select_of_many(float *v, int64_t count, int64_t n, float *near)
{
	int			sample = count / 16 < MAX_SAMPLE ? (int) (count / 16) : MAX_SAMPLE;
	int			margin = (int) (2.0 * sqrt((double) sample));
	int64_t		below = 0,
				to_low = 0,
				to_high = 0;
	int64_t		inside = 0;
	float		low,
				high;

	for (int i = 0; i < sample; i++)
		near[i] = v[i * (count / sample)];
	low = gk_select(near, sample, sample / 2 - margin);
	high = gk_select(near, sample, sample / 2 + margin);
	for (int64_t first = 0; first < count; first += NEAR_BLOCK)
	{
		int			rows = count - first < NEAR_BLOCK ? (int) (count - first) : NEAR_BLOCK;

		if (inside > NEAR_ROOM - NEAR_BLOCK)
			return gk_select(v, count, n);
		count_block(v + first, rows, low, high, &below, &to_low, &to_high);
		for (const float *x = v + first; x < v + first + rows; x++)
		{
			near[inside] = *x;
			inside += (*x > low) & (*x < high);
		}
	}
	if (n < below || n >= to_high)
		return gk_select(v, count, n);
	if (n < to_low)
		return low;
	return n < to_low + inside ? gk_select(near, inside, n - to_low) : high;
}

static void
select_cluster(void *arg, int64_t job, int thread)
{
	Step	   *p = arg;
	int64_t		c = job % p->k;
	int64_t		count = p->begin[c + 1] - p->begin[c];
	float	   *v = p->value + job / p->k * p->s->pts->n + p->begin[c];

	if (count == 0)
		return;
	p->median[job] = count < FEW_ROWS ? gk_select(v, count, (count - 1) / 2) :
		select_of_many(v, count, (count - 1) / 2, p->near + (size_t) thread * NEAR_ROOM);
}

/* Rows of a part: call `each` for the pieces of chunks that it has. */
typedef void (*Piece) (Step *p, int64_t *count, const GkChunk *chunk, int row, int rows, const int32_t *label);

static void
walk_part(Step *p, int64_t part, Piece each)
{
	const GkPoints *pts = p->s->pts;
	int64_t		first = pts->n * part / p->parts;
	int64_t		end = pts->n * (part + 1) / p->parts;
	const int32_t *label = p->s->medians.label;

	for (int i = 0; i < pts->nchunks && pts->chunks[i].first < end; i++)
	{
		const GkChunk *c = &pts->chunks[i];
		int64_t		from = first > c->first ? first - c->first : 0;
		int64_t		to = end < c->first + c->rows ? end - c->first : c->rows;

		if (from < to)
			each(p, p->count + part * p->k, c, (int) from, (int) (to - from), label + from);
		label += c->stride;
	}
}

static void
count_piece(Step *p, int64_t *count, const GkChunk *chunk, int row, int rows, const int32_t *label)
{
	(void) p, (void) chunk, (void) row;
	for (int i = 0; i < rows; i++)
		count[label[i]]++;
}

static void
move_piece(Step *p, int64_t *next, const GkChunk *chunk, int row, int rows, const int32_t *label)
{
	const float *x = chunk->data + (size_t) p->feature * chunk->stride + row;

	size_t		stride = chunk->stride;
	int64_t		n = p->s->pts->n;

	if (p->features == GROUP)
		for (int i = 0; i < rows; i++)
		{
			float	   *to = p->value + next[label[i]]++;

			to[0] = x[i];
			to[n] = x[stride + i];
			to[2 * n] = x[2 * stride + i];
			to[3 * n] = x[3 * stride + i];
		}
	else
		for (int i = 0; i < rows; i++)
		{
			float	   *to = p->value + next[label[i]]++;

			for (int j = 0; j < p->features; j++)
				to[j * n] = x[j * stride + i];
		}
}

static void
count_part(void *arg, int64_t part, int thread)
{
	(void) thread;
	walk_part(arg, part, count_piece);
}

static void
move_part(void *arg, int64_t part, int thread)
{
	(void) thread;
	walk_part(arg, part, move_piece);
}

/* Where each part's values of each cluster begin, from what each has of it or has put there. */
static void
places(Step *p)
{
	int64_t		at = 0;

	for (int c = 0; c < p->k; c++)
	{
		p->begin[c] = at;
		for (int t = 0; t < p->parts; t++)
		{
			int64_t    *count = &p->count[(int64_t) t * p->k + c];
			int64_t		rows = *count;

			*count = at;
			at += rows;
		}
	}
	p->begin[p->k] = at;
}

/* After a group of features each place is the next part's: go back. */
static void
places_again(Step *p)
{
	for (int c = 0; c < p->k; c++)
		for (int t = p->parts - 1; t >= 0; t--)
			p->count[(int64_t) t * p->k + c] = t > 0 ? p->count[(int64_t) (t - 1) * p->k + c] : p->begin[c];
}

static GkStatus
find_medians(Step *p, GkStep *out)
{
	GkSession  *s = p->s;
	const GkHost *host = &s->host;
	int			d = s->pts->d;

	memset(p->count, 0, (size_t) p->parts * p->k * sizeof(int64_t));
	if (!s->core->parallel_for(host, p->parts, count_part, p))
		return GK_STOPPED;
	places(p);
	for (p->feature = 0; p->feature < d; p->feature += GROUP)
	{
		p->features = d - p->feature < GROUP ? d - p->feature : GROUP;
		if (!s->core->parallel_for(host, p->parts, move_part, p) ||
			!s->core->parallel_for(host, (int64_t) p->k * p->features, select_cluster, p) ||
			(host->poll != NULL && host->poll(host->ctx)))
			return GK_STOPPED;
		places_again(p);
		for (int j = 0; j < p->features; j++)
			for (int c = 0; c < p->k; c++)
				if (p->begin[c] < p->begin[c + 1])
					out->sum[(size_t) c * d + p->feature + j] = gk_fixed(p->median[(size_t) j * p->k + c],
																		 s->inv[p->feature + j]);
	}
	for (int c = 0; c < p->k; c++)
	{
		out->count[c] = p->begin[c + 1] - p->begin[c];
		out->mass[c] = 1;
	}
	return GK_OK;
}

/* ---- the step ---- */

static bool
make_room(GkSession *s, Step *p)
{
	size_t		k = p->k;

	p->parts = s->pts->n < FEW_ROWS ? 1 : 4 * s->host.threads;
	return gk_cpu_room(s, &s->medians.label, s->all_rows, sizeof(int32_t)) &&
		gk_cpu_room(s, &s->medians.distance, s->all_rows, sizeof(float)) &&
		gk_cpu_room(s, &s->medians.value, (size_t) s->pts->n * (s->pts->d < GROUP ? s->pts->d : GROUP), sizeof(float)) &&
		gk_cpu_room(s, &s->medians.near, s->host.threads, NEAR_ROOM * sizeof(float)) &&
		gk_cpu_room(s, &s->medians.count, p->parts * k + k + 1, sizeof(int64_t)) &&
		gk_cpu_room(s, &s->medians.median, GROUP * k, sizeof(float)) &&
		gk_cpu_room(s, &s->sums, p->sweep.threads, sizeof(gk_int128));
}

GkStatus
gk_medians_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	Step		p = {.s = s,.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k};
	GkStatus	st;

	if (!make_room(s, &p))
		return gk_cpu_out_of_memory(err);
	p.cost = s->sums;
	p.value = s->medians.value;
	p.near = s->medians.near;
	p.count = s->medians.count;
	p.begin = p.count + (size_t) p.parts * k;
	p.median = s->medians.median;
	memset(p.cost, 0, p.sweep.threads * sizeof(gk_int128));
	p.sweep.arg = &p;
	p.sweep.block = assign_block;
	if ((st = gk_cpu_sweep(s, &p.sweep, err)) != GK_OK)
		return st;
	out->cost = 0;
	for (int t = 0; t < p.sweep.threads; t++)
		out->cost += p.cost[t];
	return find_medians(&p, out);
}
