/*
 * gk_cpu_exponion.c - which centroids can be the nearest of a point of cluster a?
 *
 * As exponion (Newling and Fleuret, "Fast k-means with accurate bounds", ICML 2016):
 * with U an upper bound of a point's distance to c_a, a centroid 2 U or more away
 * from c_a is no nearer than c_a.  Here this is asked of groups: GK_EXPONION_GROUP centroids
 * that are close together.  For each two groups a number says how far their
 * centroids are from each other, at least.
 *  - The numbers shrink by what the centroids of both move; those of a group that
 *    have lost too much are computed anew.
 *  - Groups are made by cutting the centroids in two, along the line through two
 *    that are far apart, where there is a gap; from time to time anew.
 *
 * With U and the error bounds of gk_cpu_hamerly.c: |c_a - c_j| >= 2 U means that r_j >=
 * 2 U - r_a >= U, so that a is before j (2. and 1. there) whatever the others are; and
 * |c_a - c_j| - U is a lower bound of r_j (3.).  A distance of centroids is made from
 * its canonical square as lower bounds are.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Numbers are computed anew when they have lost this part of the group's largest upper bound. */
#define WORN		(1.0 / 32)
/* Groups in a job: their centroids fill a tile. */
#define JOB			(GK_ROW_PAD / GK_EXPONION_GROUP)

typedef struct Key
{
	double		at;
	int			cluster;
} Key;

static int
by_place(const void *va, const void *vb)
{
	const Key  *a = va;
	const Key  *b = vb;

	return a->at != b->at ? (a->at < b->at ? -1 : 1) : a->cluster - b->cluster;
}

/* Find the centroid that is farthest from a point. */
static const float *
farthest(const Key *v, int n, const float *c, int d, const double *from)
{
	const float *found = c;
	double		max = -1.0;

	for (int i = 0; i < n; i++)
	{
		const float *at = c + (size_t) v[i].cluster * d;
		double		sum = 0.0;

		for (int j = 0; j < d; j++)
			sum += (at[j] - from[j]) * (at[j] - from[j]);
		if (sum > max)
		{
			max = sum;
			found = at;
		}
	}
	return found;
}

/* Put clusters that are close together one after the other; line: room for d. */
static void
arrange(Key *v, int n, const float *c, int d, double *line)
{
	while (n > GK_EXPONION_GROUP)
	{
		const float *p,
				   *q;
		double		gap = -1.0;
		int			cut = GK_EXPONION_GROUP;

		for (int j = 0; j < d; j++)
			line[j] = (double) c[(size_t) v[0].cluster * d + j];
		p = farthest(v, n, c, d, line);
		for (int j = 0; j < d; j++)
			line[j] = (double) p[j];
		q = farthest(v, n, c, d, line);
		for (int j = 0; j < d; j++)
			line[j] = (double) q[j] - (double) p[j];
		for (int i = 0; i < n; i++)
		{
			v[i].at = 0.0;
			for (int j = 0; j < d; j++)
				v[i].at += c[(size_t) v[i].cluster * d + j] * line[j];
		}
		qsort(v, n, sizeof(Key), by_place);
		/* the widest gap between two groups, in the middle half */
		for (int i = GK_EXPONION_GROUP; i < n && i <= n - n / 4; i += GK_EXPONION_GROUP)
			if (i >= n / 4 && v[i].at - v[i - 1].at > gap)
			{
				gap = v[i].at - v[i - 1].at;
				cut = i;
			}
		arrange(v, cut, c, d, line);
		v += cut;
		n -= cut;
	}
}

bool
gk_cpu_exponion_possible(const GkSession *s, int k)
{
	return k >= GK_COST_GROUPS_MIN_K && k >= GK_COST_GROUPS_VECTORS * s->kernels->lanes &&
		k <= GK_EXPONION_MAX_GROUPS * GK_EXPONION_GROUP &&
		(s->host.skip == GK_SKIP_ON || (int64_t) k * GK_COST_GROUPS_MIN_ROWS <= s->pts->n) &&
		(int64_t) k * s->pts->d <= GK_COST_GROUPS_FLOATS;
}

static bool
rooms(GkSession *s, int k, int threads)
{
	GkCpuExponion *e = &s->exponion;
	int			d = s->pts->d;

	e->count = (k + GK_EXPONION_GROUP - 1) / GK_EXPONION_GROUP;
	e->scratch_bytes = gk_cpu_region_bytes((size_t) d * GK_ROW_PAD * sizeof(float));
	return gk_cpu_room(s, &e->c, (size_t) k * d, sizeof(float)) &&
		gk_cpu_room(s, &e->cluster, k, sizeof(int32_t)) &&
		gk_cpu_room(s, &e->place, k, sizeof(int32_t)) &&
		gk_cpu_room(s, &e->apart, (size_t) e->count * e->count, sizeof(float)) &&
		gk_cpu_room(s, &e->worn, e->count, sizeof(double)) &&
		gk_cpu_room(s, &e->moved, e->count, sizeof(double)) &&
		gk_cpu_room(s, &e->sort, 1, k * sizeof(Key) + d * sizeof(double)) &&
		gk_cpu_room(s, &e->scratch, threads, e->scratch_bytes);
}

static void
make(GkSession *s, const float *centroids, int k)
{
	GkCpuExponion *e = &s->exponion;
	Key		   *key = e->sort;

	for (int i = 0; i < k; i++)
		key[i].cluster = i;
	arrange(key, k, centroids, s->pts->d, (double *) (key + k));
	for (int i = 0; i < k; i++)
	{
		e->cluster[i] = key[i].cluster;
		e->place[e->cluster[i]] = i;
	}
	for (int i = 0; i < e->count; i++)
		e->worn[i] = INFINITY;
}

typedef struct Follow
{
	GkSession  *s;
	int			k;
	double		max;			/* the largest move */
} Follow;

/* Compute how far groups first .. end-1 are from all. */
static void
compute(const Follow *f, int first, int end, float *x)
{
	GkSession  *s = f->s;
	GkCpuExponion *e = &s->exponion;
	int			d = s->pts->d;
	const float *c = e->c;
	GkTiles		tile = {.x = x,.tile = 0,.stride = GK_ROW_PAD,.count = 1,.d = d};

	for (int l = 0; l < GK_ROW_PAD; l++)
	{
		int			place = first * GK_EXPONION_GROUP + l < f->k ? first * GK_EXPONION_GROUP + l : f->k - 1;

		for (int j = 0; j < d; j++)
			x[j * GK_ROW_PAD + l] = c[(size_t) place * d + j];
	}
	for (int i = 0; i < e->count; i++)
	{
		int			k0 = i * GK_EXPONION_GROUP;
		float		d2[GK_ROW_PAD];

		for (int l = 0; l < GK_ROW_PAD; l++)
			d2[l] = FLT_MAX;
		s->kernels->mindist(&tile, c, k0, k0 + GK_EXPONION_GROUP < f->k ? k0 + GK_EXPONION_GROUP : f->k, d2);
		for (int a = first; a < end; a++)
		{
			float		least = FLT_MAX;

			for (int l = 0; l < GK_EXPONION_GROUP; l++)
				least = fminf(d2[(a - first) * GK_EXPONION_GROUP + l], least);
			e->apart[(size_t) a * e->count + i] = sqrtf(least) * s->hamerly.margin.narrow - s->hamerly.margin.apart;
		}
	}
	for (int a = first; a < end; a++)
		e->worn[a] = 0.0;
}

/* The largest upper bound of a point of group a. */
static double
largest_upper(const Follow *f, int a)
{
	const GkSession *s = f->s;
	double		max = 0.0;

	for (int i = a * GK_EXPONION_GROUP; i < (a + 1) * GK_EXPONION_GROUP && i < f->k; i++)
		max = fmax(max, (double) s->hamerly.reach[s->exponion.cluster[i]].upper);
	return max;
}

static void
follow_job(void *arg, int64_t job, int thread)
{
	const Follow *f = arg;
	GkCpuExponion *e = &f->s->exponion;
	const double *moved = e->moved;
	double	   *worn = e->worn;
	int			first = (int) job * JOB;
	int			end = first + JOB < e->count ? first + JOB : e->count;
	bool		anew = false;

	for (int a = first; a < end; a++)
	{
		if (worn[a] < INFINITY)
			worn[a] += moved[a] + f->max;
		anew |= worn[a] >= INFINITY || worn[a] > WORN * largest_upper(f, a);
	}
	if (anew)
	{
		compute(f, first, end, (float *) (e->scratch + thread * e->scratch_bytes));
		return;
	}
	for (int a = first; a < end; a++)
	{
		float	   *apart = e->apart + (size_t) a * e->count;

		for (int i = 0; worn[a] > 0.0 && i < e->count; i++)
			apart[i] = (apart[i] - (float) ((moved[a] + moved[i]) * (1.0 + 0x1p-22))) * (1.0f - 0x1p-22f);
	}
}

bool
gk_cpu_exponion_follow(GkSession *s, const GkHost *host, const float *centroids, int k, bool anew)
{
	GkCpuExponion *e = &s->exponion;
	Follow		f = {.s = s,.k = k};
	size_t		d = s->pts->d;

	if (anew)
	{
		if (!rooms(s, k, host->threads))
			return false;
		make(s, centroids, k);
	}
	for (int i = 0; i < e->count; i++)
	{
		double		max = 0.0;

		for (int l = i * GK_EXPONION_GROUP; l < (i + 1) * GK_EXPONION_GROUP && l < k; l++)
		{
			int			cluster = e->cluster[l];

			memcpy(e->c + l * d, centroids + cluster * d, d * sizeof(float));
			if (!anew)
				max = fmax(max, s->hamerly.own_move[cluster]);
		}
		e->moved[i] = max;
		f.max = fmax(f.max, max);
	}
	return s->core->parallel_for(host, (e->count + JOB - 1) / JOB, follow_job, &f);
}
