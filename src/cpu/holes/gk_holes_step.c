/*
 * gk_holes_step.c - an iteration under GK_PARTIAL: labels, then each cluster's sums of the features that its
 * points have.
 *
 * A feature's mass is that of the cluster less that of the points which lack the feature.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/holes/gk_holes.h"

/* A thread's sums, in its region. */
typedef struct Sums
{
	gk_int128	cost;
	gk_int128  *mass;			/* [k] */
	gk_int128  *sum;			/* [d][k] */
	gk_int128  *lacking;		/* [d][k] mass of the points without the feature */
	int64_t    *count;			/* [k] */
} Sums;

typedef struct Step
{
	GkSession  *s;
	GkSweep		sweep;
	const float *c;
	int			k;
	size_t		bytes;			/* of a region */
	GkStep	   *out;
} Step;

static size_t
sums_bytes(int k, int d)
{
	return gk_cpu_region_bytes(sizeof(Sums) + (size_t) k * ((2 * (size_t) d + 1) * sizeof(gk_int128) + sizeof(int64_t)));
}

static Sums *
sums_of(const Step *p, int thread)
{
	return (Sums *) ((char *) p->s->sums + thread * p->bytes);
}

static void
clear_sums(const Step *p, int thread)
{
	size_t		kd = (size_t) p->k * p->s->pts->d;
	Sums	   *own = sums_of(p, thread);

	memset(own, 0, p->bytes);
	own->mass = (gk_int128 *) (own + 1);
	own->sum = own->mass + p->k;
	own->lacking = own->sum + kd;
	own->count = (int64_t *) (own->lacking + kd);
}

/* What each row of a tile counts in the features that it has.  False: they have all. */
static bool
find_shares(const float *x, size_t stride, int d, const float *weight, int rows, int64_t *share)
{
	int			present[GK_ROW_PAD] = {0};
	bool		some = false;

	for (int j = 0; j < d; j++)
		for (int i = 0; i < rows; i++)
			present[i] += !gk_is_missing(x[j * stride + i]);
	for (int i = 0; i < rows; i++)
	{
		share[i] = gk_holes_share(weight != NULL ? gk_fixed(weight[i], 0x1p40) : INT64_C(1) << 40, d, present[i]);
		some |= present[i] < d;
	}
	return some;
}

/* One feature of a tile.  Where holes are, cannot be foreseen, so there is no branch. */
static void
add_feature(const float *x, double inv, const int64_t *share, bool holes, int rows, const int32_t *label,
			gk_int128 *sum, gk_int128 *lacking)
{
	int64_t		value[GK_ROW_PAD];
	int64_t		lost[GK_ROW_PAD];

	for (int i = 0; i < rows; i++)
	{
		int64_t		has = -(int64_t) !gk_is_missing(x[i]);
		uint32_t	bits;
		float		v;

		memcpy(&bits, &x[i], sizeof(bits));
		bits &= (uint32_t) has;
		memcpy(&v, &bits, sizeof(v));
		value[i] = gk_fixed(v, inv);
		lost[i] = share[i] & ~has;
	}
	for (int i = 0; i < rows; i++)
		sum[label[i]] += (gk_int128) value[i] * share[i];
	for (int i = 0; holes && i < rows; i++)
		lacking[label[i]] += lost[i];
}

static void
add_tile(const Step *p, Sums *own, const float *x, size_t stride, const float *weight, int rows, const int32_t *label)
{
	int			d = p->s->pts->d;
	int64_t		share[GK_ROW_PAD];
	bool		holes = find_shares(x, stride, d, weight, rows, share);

	for (int i = 0; i < rows; i++)
	{
		own->count[label[i]]++;
		own->mass[label[i]] += share[i];
	}
	for (int j = 0; j < d; j++)
		add_feature(x + j * stride, p->s->inv[j], share, holes, rows, label, own->sum + (size_t) j * p->k,
					own->lacking + (size_t) j * p->k);
}

static void
add_block(GkSession *s, void *arg, const GkBlock *b)
{
	const Step *p = arg;
	Sums	   *own = sums_of(p, b->thread);
	const float *w = gk_chunk_weight(s->pts, b->chunk);
	GkBlockLabels l;
	int64_t		hi = 0;
	int64_t		lo = 0;

	if (!gk_cpu_assign(s, &p->sweep, b, p->c, p->k, &l))
		return;
	s->kernels->sum_d2(l.d2, w != NULL ? w + b->row : NULL, b->rows, s->d2_scale, &hi, &lo);
	own->cost += (gk_int128) hi * ((gk_int128) 1 << 40) + lo;
	for (int i = 0; i < b->rows; i += GK_ROW_PAD)
		add_tile(p, own, l.x.x + i / GK_ROW_PAD * l.x.tile, l.x.stride, w != NULL ? w + b->row + i : NULL,
				 b->rows - i < GK_ROW_PAD ? b->rows - i : GK_ROW_PAD, l.label + i);
}

/* ---- the threads' sums together ---- */

static void
merge_clusters(const Step *p)
{
	GkStep	   *out = p->out;

	out->cost = 0;
	memset(out->count, 0, p->k * sizeof(int64_t));
	memset(out->mass, 0, p->k * sizeof(gk_int128));
	for (int t = 0; t < p->sweep.threads; t++)
	{
		const Sums *own = sums_of(p, t);

		out->cost += own->cost;
		for (int c = 0; c < p->k; c++)
		{
			out->count[c] += own->count[c];
			out->mass[c] += own->mass[c];
		}
	}
}

static void
merge_feature(void *arg, int64_t j, int thread)
{
	const Step *p = arg;
	int			d = p->s->pts->d;

	(void) thread;
	for (int c = 0; c < p->k; c++)
	{
		gk_int128	sum = 0;
		gk_int128	mass = p->out->mass[c];

		for (int t = 0; t < p->sweep.threads; t++)
		{
			const Sums *own = sums_of(p, t);

			sum += own->sum[j * p->k + c];
			mass -= own->lacking[j * p->k + c];
		}
		p->out->sum[(size_t) c * d + j] = sum;
		p->out->feature_mass[(size_t) c * d + j] = mass;
	}
}

GkStatus
gk_holes_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	Step		p = {.s = s,.sweep = gk_cpu_plan(s, k),.c = centroids,.k = k,.bytes = sums_bytes(k, s->pts->d),.out = out};
	GkStatus	st;

	while (p.sweep.threads > 1 && p.bytes * p.sweep.threads > GK_COST_PRIVATE_BYTES)
		p.sweep.threads--;
	if (!gk_cpu_room(s, &s->sums, p.sweep.threads, p.bytes))
		return gk_cpu_out_of_memory(err);
	for (int t = 0; t < p.sweep.threads; t++)
		clear_sums(&p, t);
	p.sweep.arg = &p;
	p.sweep.block = add_block;
	p.sweep.keep_labels = p.sweep.rounds > 1;
	if ((st = gk_cpu_sweep(s, &p.sweep, err)) != GK_OK)
		return st;
	merge_clusters(&p);
	return s->core->parallel_for(&s->host, s->pts->d, merge_feature, &p) ? GK_OK : GK_STOPPED;
}
