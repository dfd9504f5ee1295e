/*
 * gk_cpu_seed.c - seeding passes over D, the squared distance to the nearest seed.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"

typedef struct Pass
{
	GkSweep		sweep;
	const float *c;
	int			m;
	gk_int128  *pot;			/* [threads][m] */
	char	   *far;			/* [threads] regions of far_bytes */
	size_t		far_bytes;
} Pass;

/* Potentials of all threads, cleared. */
static GkStatus
pot_room(GkSession *s, Pass *p, int m, GkError *err)
{
	size_t		count = (size_t) m * p->sweep.threads;

	if (!gk_cpu_room(s, &s->sums, count, sizeof(gk_int128)))
		return gk_cpu_out_of_memory(err);
	p->pot = s->sums.p;
	memset(p->pot, 0, count * sizeof(gk_int128));
	return GK_OK;
}

static void
merge_pot(const Pass *p, int m, gk_int128 *out)
{
	for (int i = 0; i < m; i++)
	{
		out[i] = 0;
		for (int t = 0; t < p->sweep.threads; t++)
			out[i] += p->pot[(size_t) t * m + i];
	}
}

static gk_int128
potential(const GkSession *s, const GkBlock *b, const float *d2)
{
	const float *w = gk_chunk_weight(s->pts, b->chunk);
	int64_t		hi = 0;
	int64_t		lo = 0;

	s->kernels->sum_d2(d2, w ? w + b->row : NULL, b->rows, s->d2_scale, &hi, &lo);
	return (gk_int128) hi * ((gk_int128) 1 << 40) + lo;
}

/* ---- D = min(D, distance to the nearest of m) ---- */

static void
update_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);
	float	   *d2 = b->chunk->mind2 + b->row;
	int			k0 = b->round * p->sweep.per_round;
	int			k1 = p->m - k0 > p->sweep.per_round ? k0 + p->sweep.per_round : p->m;

	s->kernels->mindist(&x, p->c, k0, k1, d2);
	if (k1 == p->m)
		p->pot[b->thread] += potential(s, b, d2);
}

GkStatus
gk_cpu_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err)
{
	Pass		p = {.sweep = gk_cpu_plan(s, m),.c = centroids,.m = m};
	GkStatus	st = pot_room(s, &p, 1, err);

	p.sweep.mind2 = p.sweep.dirty = true;
	p.sweep.arg = &p;
	p.sweep.block = update_block;
	if (st == GK_OK)
		st = gk_cpu_sweep(s, &p.sweep, err);
	if (st == GK_OK)
		merge_pot(&p, 1, phi);
	return st;
}

/* ---- what each of m candidates would make of the potential ---- */

static void
eval_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	GkTiles		x = gk_cpu_tiles(s, b);
	const float *d2 = b->chunk->mind2 + b->row;
	int			k0 = b->round * p->sweep.per_round;
	int			k1 = p->m - k0 > p->sweep.per_round ? k0 + p->sweep.per_round : p->m;

	for (int i = k0; i < k1; i++)
	{
		memcpy(b->d2, d2, (size_t) b->tiles * GK_ROW_PAD * sizeof(float));
		s->kernels->mindist(&x, p->c, i, i + 1, b->d2);
		p->pot[(size_t) b->thread * p->m + i] += potential(s, b, b->d2);
	}
}

GkStatus
gk_cpu_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err)
{
	Pass		p = {.sweep = gk_cpu_plan(s, m),.c = centroids,.m = m};
	GkStatus	st = pot_room(s, &p, m, err);

	p.sweep.mind2 = true;
	p.sweep.arg = &p;
	p.sweep.block = eval_block;
	if (st == GK_OK)
		st = gk_cpu_sweep(s, &p.sweep, err);
	if (st == GK_OK)
		merge_pot(&p, m, pot);
	return st;
}

/* ---- the farthest point ---- */

/* A thread's best so far; its coordinates follow, the chunk may be gone later. */
typedef struct Far
{
	float		d2;
	int64_t		row;			/* -1: none */
	float		x[];
} Far;

/* Is point i of the chunk (a row of the store) better than the thread's best? */
static bool
farther(const Far *best, float d2, int64_t row, const float *x, size_t stride, int d)
{
	if (best->row < 0 || d2 != best->d2)
		return d2 > best->d2;
	for (int j = 0; j < d; j++)
		if (x[j * stride] != best->x[j])
			return x[j * stride] < best->x[j];
	return row < best->row;
}

static void
far_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Pass *p = arg;
	Far		   *best = (Far *) (p->far + b->thread * p->far_bytes);
	int			d = s->pts->d;
	float		top = 0.0f;

	/* All most blocks need; the rest looks at coordinates. */
	for (int i = b->row; i < b->row + b->rows; i++)
		top = b->chunk->mind2[i] > top ? b->chunk->mind2[i] : top;
	if (top == 0.0f || top < best->d2)
		return;
	for (int i = b->row; i < b->row + b->rows; i++)
	{
		const float *x = b->chunk->data + i;
		int64_t		row = b->chunk->first + i;

		if (b->chunk->mind2[i] != top || !farther(best, top, row, x, b->chunk->stride, d))
			continue;
		best->d2 = top;
		best->row = row;
		for (int j = 0; j < d; j++)
			best->x[j] = x[(size_t) j * b->chunk->stride];
	}
}

GkStatus
gk_cpu_seed_far(GkSession *s, int64_t *row, GkError *err)
{
	Pass		p = {.sweep = gk_cpu_plan(s, GK_D_ONLY)};
	const Far  *best;
	GkStatus	st;

	p.far_bytes = (sizeof(Far) + s->pts->d * sizeof(float) + 127) / 64 * 64;
	if (!gk_cpu_room(s, &s->sums, p.sweep.threads, p.far_bytes))
		return gk_cpu_out_of_memory(err);
	p.far = s->sums.p;
	for (int t = 0; t < p.sweep.threads; t++)
		*(Far *) (p.far + t * p.far_bytes) = (Far) {.d2 = 0.0f,.row = -1};
	p.sweep.mind2 = true;
	p.sweep.arg = &p;
	p.sweep.block = far_block;
	st = gk_cpu_sweep(s, &p.sweep, err);
	if (st != GK_OK)
		return st;
	best = (const Far *) p.far;
	for (int t = 1; t < p.sweep.threads; t++)
	{
		const Far  *other = (const Far *) (p.far + t * p.far_bytes);

		if (other->row >= 0 && farther(best, other->d2, other->row, other->x, 1, s->pts->d))
			best = other;
	}
	*row = best->row;
	return GK_OK;
}
