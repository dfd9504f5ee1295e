/*
 * gk_medians_step.c - an iteration of k-medians: labels, then the median of each cluster's feature.
 *
 * A few features at a time.  Each has BUCKETS buckets around its old median, as wide as the cluster; a pass
 * counts the rows of each, so that the new median's bucket is known, and a second one collects the values of
 * that bucket, to be selected from.  The buckets are of any width, the last ones at both ends without a limit:
 * they decide how many values are collected, never which one is found.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/medians/gk_medians.h"

/* Features at a time: a byte for each, the row's bucket, makes a word. */
#define GROUP			4
#define MAX_BUCKETS		128
#define NO_BUCKET		255
/* Bytes that a part's counts may take: they are to stay in the cache. */
#define COUNT_BYTES		(256 * 1024)
/* One row in SAMPLE tells how wide a cluster is; a prime, since tables are written in turns of 2, 4, 10. */
#define SAMPLE			17

typedef struct Spread
{
	float		apart[GROUP];	/* sum of the distances from the old median */
	float		rows;
} Spread;

typedef float Floats __attribute__((vector_size(GROUP * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(GROUP * 4), aligned(4), may_alias));

/* The bucket of x is (x - low) * scale, without its fraction. */
typedef struct Buckets
{
	Floats		low;
	Floats		scale;
} Buckets;

/* Of one feature and cluster */
typedef struct Median
{
	int64_t		begin;			/* of its collected values */
	int64_t		values;
	int64_t		place;			/* of the median among them, by size */
	float		median;
} Median;

typedef struct Step
{
	GkSession  *s;
	GkSweep		sweep;
	const float *c;
	int			k;
	gk_int128  *cost;			/* [threads] */
	int			parts;			/* of the rows */
	int			feature;		/* the first of those at work */
	int			features;
	int			buckets;
	Spread	   *spread;			/* [parts][k] */
	Buckets    *bucket;			/* [k] */
	uint32_t   *count;			/* [parts][k][GROUP][buckets] of rows */
	uint32_t   *code;			/* [slots]: buckets of GROUP features */
	uint32_t   *chosen;			/* [k]: those of the medians */
	int64_t    *next;			/* [parts][k][GROUP]: where a part puts its next value */
	Median	   *median;			/* [k][GROUP] */
	int64_t    *rows;			/* [k] */
	float	   *value;			/* collected: the values of each median together */
} Step;

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

/* Call `each` for the pieces of chunks that a part of the rows has; label and code are theirs. */
typedef void (*Piece) (Step *p, int64_t part, const float *const *x, int rows, const int32_t *label, uint32_t *code);

static void
walk_part(Step *p, int64_t part, Piece each)
{
	const GkPoints *pts = p->s->pts;
	int64_t		first = pts->n * part / p->parts;
	int64_t		end = pts->n * (part + 1) / p->parts;
	int64_t		slot = pts->first_slot;

	for (int i = 0; i < pts->nchunks && pts->chunks[i].first < end; i++)
	{
		const GkChunk *c = &pts->chunks[i];
		int64_t		from = first > c->first ? first - c->first : 0;
		int64_t		to = end < c->first + c->rows ? end - c->first : c->rows;
		const float *x[GROUP];

		/* features after the last one: the first again, for nothing */
		for (int j = 0; j < GROUP; j++)
			x[j] = c->data + (size_t) (p->feature + (j < p->features ? j : 0)) * c->stride + from;
		if (from < to)
			each(p, part, x, (int) (to - from), p->s->medians.label + slot + from, p->code + slot + from);
		slot += gk_cpu_chunk_slots(pts, i);
	}
}

static void
sample_piece(Step *p, int64_t part, const float *const *x, int rows, const int32_t *label, uint32_t *code)
{
	int			d = p->s->pts->d;

	(void) code;
	for (int i = 0; i < rows; i += SAMPLE)
	{
		const float *c = p->c + (size_t) label[i] * d + p->feature;
		Spread	   *spread = p->spread + part * p->k + label[i];

		for (int j = 0; j < p->features; j++)
			spread->apart[j] += fabsf(x[j][i] - c[j]);
		spread->rows++;
	}
}

static void
count_piece(Step *p, int64_t part, const float *const *x, int rows, const int32_t *label, uint32_t *code)
{
	int			buckets = p->buckets;
	uint32_t   *count = p->count + (size_t) part * p->k * GROUP * buckets;
	Ints		last = (Ints) ((Floats) {0} + (float) (buckets - 1));

	for (int i = 0; i < rows; i++)
	{
		const Buckets *b = p->bucket + label[i];
		uint32_t   *of = count + (size_t) label[i] * GROUP * buckets;
		Ints		at = (Ints) (((Floats) {x[0][i], x[1][i], x[2][i], x[3][i]} - b->low) * b->scale);

		/* floats from 0 on have the order of their bits */
		at &= at > 0;
		at = (at & (at < last)) | (last & (at >= last));
		at = __builtin_convertvector((Floats) at, Ints);
		of[at[0]]++;
		of[buckets + at[1]]++;
		of[2 * buckets + at[2]]++;
		of[3 * buckets + at[3]]++;
		code[i] = (uint32_t) at[0] | (uint32_t) at[1] << 8 | (uint32_t) at[2] << 16 | (uint32_t) at[3] << 24;
	}
}

static void
collect_piece(Step *p, int64_t part, const float *const *x, int rows, const int32_t *label, uint32_t *code)
{
	int64_t    *next = p->next + part * p->k * GROUP;

	for (int i = 0; i < rows; i++)
	{
		/* a byte of 0 where the bucket is the median's */
		uint32_t	differ = code[i] ^ p->chosen[label[i]];

		if (((differ - 0x01010101) & ~differ & 0x80808080) == 0)
			continue;
		for (int j = 0; j < GROUP; j++)
			if ((differ >> (8 * j) & 255) == 0)
				p->value[next[label[i] * GROUP + j]++] = x[j][i];
	}
}

static void
sample_part(void *arg, int64_t part, int thread)
{
	(void) thread;
	walk_part(arg, part, sample_piece);
}

static void
count_part(void *arg, int64_t part, int thread)
{
	(void) thread;
	walk_part(arg, part, count_piece);
}

static void
collect_part(void *arg, int64_t part, int thread)
{
	(void) thread;
	walk_part(arg, part, collect_piece);
}

static void
select_median(void *arg, int64_t job, int thread)
{
	Step	   *p = arg;
	Median	   *m = p->median + job;

	(void) thread;
	if (m->values > 0)
		m->median = gk_select(p->value + m->begin, m->values, m->place);
}

/*
 * From half the mean distance below the old median to half of it above: more than a median moves but in the
 * first iterations.
 */
static void
place_buckets(Step *p, int c)
{
	Spread		all = {{0}, 0};

	for (int t = 0; t < p->parts; t++)
	{
		const Spread *of = p->spread + (size_t) t * p->k + c;

		for (int j = 0; j < GROUP; j++)
			all.apart[j] += of->apart[j];
		all.rows += of->rows;
	}
	for (int j = 0; j < GROUP; j++)
	{
		float		reach = all.rows > 0 ? all.apart[j] / all.rows / 2 : 0;
		float		scale = p->buckets / (2 * reach);

		p->bucket[c].low[j] = j < p->features ? p->c[(size_t) c * p->s->pts->d + p->feature + j] - reach : 0;
		/* nothing is known: the first bucket has all */
		p->bucket[c].scale[j] = isfinite(scale) ? scale : 0;
	}
}

/* The bucket of a cluster's median, and how many values it has; the places for them begin at `begin`. */
static void
choose_bucket(Step *p, int c, int j, int64_t begin)
{
	Median	   *m = p->median + c * GROUP + j;
	int			b = -1;

	m->begin = begin;
	m->place = (p->rows[c] - 1) / 2;
	for (m->values = 0; p->rows[c] > 0 && m->place >= m->values;)
	{
		m->place -= m->values;
		m->values = 0;
		b++;
		for (int t = 0; t < p->parts; t++)
			m->values += p->count[(((size_t) t * p->k + c) * GROUP + j) * p->buckets + b];
	}
	p->chosen[c] |= (uint32_t) (b < 0 ? NO_BUCKET : b) << (8 * j);
	for (int t = 0; t < p->parts && b >= 0; t++)
	{
		p->next[((size_t) t * p->k + c) * GROUP + j] = begin;
		begin += p->count[(((size_t) t * p->k + c) * GROUP + j) * p->buckets + b];
	}
}

/* Returns the number of values to be collected. */
static int64_t
choose_buckets(Step *p)
{
	int64_t		begin = 0;

	memset(p->chosen, 0, p->k * sizeof(uint32_t));
	for (int c = 0; c < p->k; c++)
	{
		p->rows[c] = 0;
		for (int t = 0; t < p->parts; t++)
			for (int b = 0; b < p->buckets; b++)
				p->rows[c] += p->count[((size_t) t * p->k + c) * GROUP * p->buckets + b];
		for (int j = 0; j < GROUP; j++)
			if (j < p->features)
			{
				choose_bucket(p, c, j, begin);
				begin += p->median[c * GROUP + j].values;
			}
			else
			{
				p->median[c * GROUP + j].values = 0;
				p->chosen[c] |= (uint32_t) NO_BUCKET << (8 * j);
			}
	}
	return begin;
}

static GkStatus
find_medians(Step *p, GkStep *out, GkError *err)
{
	GkSession  *s = p->s;
	const GkHost *host = &s->host;
	int			d = s->pts->d;
	size_t		counts = (size_t) p->parts * p->k * GROUP * p->buckets;

	for (p->feature = 0; p->feature < d; p->feature += GROUP)
	{
		int64_t		values;

		p->features = d - p->feature < GROUP ? d - p->feature : GROUP;
		memset(p->spread, 0, (size_t) p->parts * p->k * sizeof(Spread));
		memset(p->count, 0, counts * sizeof(uint32_t));
		if (!s->core->parallel_for(host, p->parts, sample_part, p))
			return GK_STOPPED;
		for (int c = 0; c < p->k; c++)
			place_buckets(p, c);
		if (!s->core->parallel_for(host, p->parts, count_part, p))
			return GK_STOPPED;
		values = choose_buckets(p);
		if (!gk_cpu_room(s, &s->medians.value, values, sizeof(float)))
			return gk_cpu_out_of_memory(err);
		p->value = s->medians.value;
		if (!s->core->parallel_for(host, p->parts, collect_part, p) ||
			!s->core->parallel_for(host, (int64_t) p->k * GROUP, select_median, p) ||
			(host->poll != NULL && host->poll(host->ctx)))
			return GK_STOPPED;
		for (int c = 0; c < p->k; c++)
			for (int j = 0; j < p->features; j++)
				if (p->rows[c] > 0)
					out->sum[(size_t) c * d + p->feature + j] = gk_fixed(p->median[c * GROUP + j].median,
																		 s->inv[p->feature + j]);
	}
	for (int c = 0; c < p->k; c++)
	{
		out->count[c] = p->rows[c];
		out->mass[c] = 1;
	}
	return GK_OK;
}

/* ---- the step ---- */

static bool
make_room(GkSession *s, Step *p)
{
	GkCpuMedians *m = &s->medians;
	size_t		k = p->k;
	size_t		counts;

	/* a part's counts are of 32 bits */
	p->parts = 4 * s->host.threads + (int) (s->pts->n >> 31);
	p->buckets = MAX_BUCKETS;
	while (p->buckets > 8 && k * GROUP * p->buckets * sizeof(uint32_t) > COUNT_BYTES)
		p->buckets /= 2;
	counts = p->parts * k * GROUP;
	return gk_cpu_tile_room(s, &m->label, GK_ROW_PAD * sizeof(int32_t)) &&
		gk_cpu_tile_room(s, &m->distance, GK_ROW_PAD * sizeof(float)) &&
		gk_cpu_tile_room(s, &m->code, GK_ROW_PAD * sizeof(uint32_t)) &&
		gk_cpu_room(s, &m->spread, p->parts * k, sizeof(Spread)) &&
		gk_cpu_room(s, &m->bucket, k, sizeof(Buckets)) &&
		gk_cpu_room(s, &m->count, counts * p->buckets, sizeof(uint32_t)) &&
		gk_cpu_room(s, &m->chosen, k, sizeof(uint32_t)) &&
		gk_cpu_room(s, &m->next, counts, sizeof(int64_t)) &&
		gk_cpu_room(s, &m->median, k * GROUP, sizeof(Median)) &&
		gk_cpu_room(s, &m->rows, k, sizeof(int64_t)) &&
		gk_cpu_room(s, &s->sums, p->sweep.threads, sizeof(gk_int128));
}

GkStatus
gk_medians_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	GkCpuMedians *m = &s->medians;
	Step		p = {.s = s,.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k};
	GkStatus	st;

	if (!make_room(s, &p))
		return gk_cpu_out_of_memory(err);
	p.cost = s->sums;
	p.code = m->code;
	p.spread = m->spread;
	p.bucket = m->bucket;
	p.count = m->count;
	p.chosen = m->chosen;
	p.next = m->next;
	p.median = m->median;
	p.rows = m->rows;
	memset(p.cost, 0, p.sweep.threads * sizeof(gk_int128));
	p.sweep.arg = &p;
	p.sweep.block = assign_block;
	if ((st = gk_cpu_sweep(s, &p.sweep, err)) != GK_OK)
		return st;
	out->cost = 0;
	for (int t = 0; t < p.sweep.threads; t++)
		out->cost += p.cost[t];
	return find_medians(&p, out, err);
}
