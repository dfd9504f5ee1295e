/*
 * gk_cpu_exponion.c - which centroids can be the nearest of a point of cluster a?
 *
 * As exponion (Newling and Fleuret, "Fast k-means with accurate bounds", ICML 2016):
 * with U an upper bound of a point's distance to c_a, a centroid 2 U or more away
 * from c_a is no nearer than c_a.  Here this is asked of bundles: GK_EXPONION_GROUP centroids
 * that are close together.  For each two bundles a number says how far their
 * centroids are from each other, at least.
 *  - The numbers shrink by what the centroids of both move; those of a bundle that
 *    have lost too much are computed anew.
 *  - Bundles are made by cutting the centroids in two, along the line through two
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
#include "cpu/gk_cpu.h"

/* With fewer clusters, or vectors of them, looking at all takes no longer than choosing ... */
#define LEAST_K			32
#define LEAST_VECTORS	6
/* ... and with fewer rows for each, computing the distances costs too much. */
#define LEAST_ROWS	16
/* Coordinates that arranging takes a few milliseconds for. */
#define MOST_FLOATS	(1024 * 1024)
/* Numbers are computed anew when they have lost this part of the bundle's largest upper bound. */
#define WORN		(1.0 / 32)
/* Bundles in a tile of points, which is a job. */
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

/* The one of the clusters that is farthest from a point. */
static const float *
farthest(const Key *v, int n, const float *c, int d, const double *from)
{
	const float *found = c;
	double		most = -1.0;

	for (int i = 0; i < n; i++)
	{
		const float *at = c + (size_t) v[i].cluster * d;
		double		sum = 0.0;

		for (int j = 0; j < d; j++)
			sum += (at[j] - from[j]) * (at[j] - from[j]);
		if (sum > most)
		{
			most = sum;
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
		for (int i = (n / 4 + GK_EXPONION_GROUP - 1) / GK_EXPONION_GROUP * GK_EXPONION_GROUP; i < n && i <= n - n / 4; i += GK_EXPONION_GROUP)
			if (i > 0 && v[i].at - v[i - 1].at > gap)
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
	return k >= LEAST_K && k >= LEAST_VECTORS * s->kernels->lanes && k <= GK_EXPONION_MAX_GROUPS * GK_EXPONION_GROUP &&
		(s->host.skip == GK_SKIP_ON || (int64_t) k * LEAST_ROWS <= s->pts->n) &&
		(int64_t) k * s->pts->d <= MOST_FLOATS;
}

static bool
rooms(GkSession *s, int k, int threads)
{
	GkCpuExponion *b = &s->bundles;
	int			d = s->pts->d;

	b->count = (k + GK_EXPONION_GROUP - 1) / GK_EXPONION_GROUP;
	b->scratch_bytes = ((size_t) d * GK_ROW_PAD * sizeof(float) + 127) / 64 * 64;
	return gk_cpu_room(s, &b->c, (size_t) k * d, sizeof(float)) &&
		gk_cpu_room(s, &b->cluster, k, sizeof(int32_t)) &&
		gk_cpu_room(s, &b->place, k, sizeof(int32_t)) &&
		gk_cpu_room(s, &b->apart, (size_t) b->count * b->count, sizeof(float)) &&
		gk_cpu_room(s, &b->worn, b->count, sizeof(double)) &&
		gk_cpu_room(s, &b->moved, b->count, sizeof(double)) &&
		gk_cpu_room(s, &b->key, 1, k * sizeof(Key) + d * sizeof(double)) &&
		gk_cpu_room(s, &b->scratch, threads, b->scratch_bytes);
}

static void
make(GkSession *s, const float *centroids, int k)
{
	GkCpuExponion *b = &s->bundles;
	int32_t    *cluster = b->cluster.p;
	Key		   *key = b->key.p;

	for (int i = 0; i < k; i++)
		key[i].cluster = i;
	arrange(key, k, centroids, s->pts->d, (double *) (key + k));
	for (int i = 0; i < k; i++)
	{
		cluster[i] = key[i].cluster;
		((int32_t *) b->place.p)[cluster[i]] = i;
	}
	for (int i = 0; i < b->count; i++)
		((double *) b->worn.p)[i] = INFINITY;
}

typedef struct Follow
{
	GkSession  *s;
	int			k;
	double		most;			/* the largest move */
} Follow;

/* How far bundles first .. end-1 are from all. */
static void
compute(const Follow *f, int first, int end, float *x)
{
	GkSession  *s = f->s;
	GkCpuExponion *b = &s->bundles;
	int			d = s->pts->d;
	const float *c = b->c.p;
	GkTiles		tile = {.x = x,.tile = 0,.stride = GK_ROW_PAD,.count = 1,.d = d};

	for (int l = 0; l < GK_ROW_PAD; l++)
	{
		int			place = first * GK_EXPONION_GROUP + l < f->k ? first * GK_EXPONION_GROUP + l : f->k - 1;

		for (int j = 0; j < d; j++)
			x[j * GK_ROW_PAD + l] = c[(size_t) place * d + j];
	}
	for (int i = 0; i < b->count; i++)
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
			((float *) b->apart.p)[(size_t) a * b->count + i] =
				sqrtf(least) * s->bounds.margin.narrow - s->bounds.margin.apart;
		}
	}
	for (int a = first; a < end; a++)
		((double *) b->worn.p)[a] = 0.0;
}

/* The largest upper bound of a point of bundle a. */
static double
largest_upper(const Follow *f, int a)
{
	const GkReach *reach = f->s->bounds.reach.p;
	const int32_t *cluster = f->s->bundles.cluster.p;
	double		most = 0.0;

	for (int i = a * GK_EXPONION_GROUP; i < (a + 1) * GK_EXPONION_GROUP && i < f->k; i++)
		most = fmax(most, (double) reach[cluster[i]].upper);
	return most;
}

static void
follow_job(void *arg, int64_t job, int thread)
{
	const Follow *f = arg;
	GkCpuExponion *b = &f->s->bundles;
	const double *moved = b->moved.p;
	double	   *worn = b->worn.p;
	int			first = (int) job * JOB;
	int			end = first + JOB < b->count ? first + JOB : b->count;
	bool		anew = false;

	for (int a = first; a < end; a++)
	{
		if (worn[a] < INFINITY)
			worn[a] += moved[a] + f->most;
		anew |= worn[a] >= INFINITY || worn[a] > WORN * largest_upper(f, a);
	}
	if (anew)
	{
		compute(f, first, end, (float *) ((char *) b->scratch.p + thread * b->scratch_bytes));
		return;
	}
	for (int a = first; a < end; a++)
	{
		float	   *apart = (float *) b->apart.p + (size_t) a * b->count;

		for (int i = 0; worn[a] > 0.0 && i < b->count; i++)
			apart[i] = (apart[i] - (float) ((moved[a] + moved[i]) * (1.0 + 0x1p-22))) * (1.0f - 0x1p-22f);
	}
}

bool
gk_cpu_exponion_follow(GkSession *s, const GkHost *host, const float *centroids, int k, bool anew)
{
	GkCpuExponion *b = &s->bundles;
	const double *pushed = s->bounds.pushed.p;
	Follow		f = {.s = s,.k = k};
	size_t		bytes = s->pts->d * sizeof(float);

	if (anew)
	{
		if (!rooms(s, k, host->threads))
			return false;
		make(s, centroids, k);
	}
	for (int i = 0; i < b->count; i++)
	{
		double	   *most = (double *) b->moved.p + i;

		*most = 0.0;
		for (int l = i * GK_EXPONION_GROUP; l < (i + 1) * GK_EXPONION_GROUP && l < k; l++)
		{
			int			cluster = ((int32_t *) b->cluster.p)[l];

			memcpy((char *) b->c.p + l * bytes, centroids + (size_t) cluster * s->pts->d, bytes);
			if (!anew)
				*most = fmax(*most, pushed[cluster]);
		}
		f.most = fmax(f.most, *most);
	}
	return s->core->parallel_for(host, (b->count + JOB - 1) / JOB, follow_job, &f);
}

void
gk_cpu_exponion_free(GkSession *s, const GkHost *host)
{
	GkCpuExponion *b = &s->bundles;
	GkRoom	   *rooms[] = {&b->c, &b->cluster, &b->place, &b->apart, &b->worn, &b->moved, &b->key, &b->scratch};

	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
		s->core->free(host, rooms[i]->p);
}
