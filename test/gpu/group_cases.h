/*
 * group_cases.h - groups of points to be clustered one by one on the CPU and packed
 * by some device: the same models, bit for bit.
 */
#ifndef GROUP_CASES_H
#define GROUP_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/groups/gk_group_batch.h"
#include "core/groups/gk_group_fit.h"

/* How groups differ from each other. */
typedef struct PackedCase
{
	const char *name;
	int			groups;
	int			n;				/* points of the largest */
	int			d;
	GkOptions	opt;			/* opt.centroids: any k of them are made when not NULL */
} PackedCase;

typedef struct PackedGroups
{
	const PackedCase *c;
	double	  **x;				/* [groups][n][d] */
	int		   *n;
	GkModel    *cpu;
	GkModel    *device;			/* k = 0: no result */
	GkHost	   *hosts;			/* [threads] */
} PackedGroups;

static uint64_t packed_state;
static bool packed_all_full;	/* groups of n points, all of them */

static double
packed_random(void)
{
	packed_state += UINT64_C(0x9e3779b97f4a7c15);
	return gk_uniform(gk_mix(packed_state));
}

/*
 * Values of group g's points: of many kinds, by turns; copies of points, constant
 * columns, columns far apart, ties in distance.
 */
static double
packed_value(int g, int i, int j)
{
	double		u = packed_random();

	switch (g % 8)
	{
		case 0:
			return i % 3 * (j % 2 ? 4.0 : -7.0) + u;
		case 1:
			return floor(u * 4.0);
		case 2:
			return j % 2 ? 17.25 : u * 1e-3;
		case 3:
			return (float) (u * (j % 3 == 0 ? 1e12 : 1e-9) - 3.0);
		case 4:
			return u < 0.8 ? 5.0 : floor(u * 100.0);
		case 5:
			return i % 11 == 0 ? 1000.0 * u : tan(3.0 * (u - 0.5));
		case 6:
			return g % 16 == 6 ? -0.0 : 2.5;
		default:
			return 1e6 + i * 0.125 + j + floor(u * 2.0);
	}
}

static void *
packed_alloc(void *ctx, size_t bytes)
{
	(void) ctx;
	return malloc(bytes);
}

static void
packed_free(void *ctx, void *ptr)
{
	(void) ctx;
	free(ptr);
}

static const double *
packed_row(const void *arg, int64_t i)
{
	const PackedGroups *p = ((const PackedGroups *const *) arg)[0];
	int64_t		g = (int64_t) ((const intptr_t *) arg)[1];

	return p->x[g] + i * p->c->d;
}

static int64_t
packed_rows(void *ctx, int64_t g)
{
	const PackedGroups *p = ctx;

	return p->device[g].k > 0 ? 0 : p->n[g];
}

static const GkHost *
packed_host(void *ctx, int thread)
{
	return &((PackedGroups *) ctx)->hosts[thread];
}

static void
packed_done(void *ctx, int thread)
{
	(void) ctx;
	(void) thread;
}

static bool
packed_result(void *ctx, int64_t g, const GkModel *m, int thread)
{
	PackedGroups *p = ctx;
	GkModel    *to = &p->device[g];
	const GkHost *host = &p->hosts[thread];

	*to = *m;
	to->centroids = gk_alloc(host, (size_t) m->k * p->c->d, sizeof(double));
	to->size = gk_alloc(host, m->k, sizeof(int64_t));
	to->cluster_inertia = gk_alloc(host, m->k, sizeof(double));
	to->radius = gk_alloc(host, m->k, sizeof(double));
	memset(&to->prep, 0, sizeof(to->prep));
	memcpy(to->centroids, m->centroids, (size_t) m->k * p->c->d * sizeof(double));
	memcpy(to->size, m->size, m->k * sizeof(int64_t));
	memcpy(to->cluster_inertia, m->cluster_inertia, m->k * sizeof(double));
	memcpy(to->radius, m->radius, m->k * sizeof(double));
	return true;
}

static bool
packed_equal(const GkModel *a, const GkModel *b, int d)
{
	return a->k == b->k && a->k_asked == b->k_asked && a->iterations == b->iterations &&
		a->converged == b->converged && a->inertia == b->inertia && a->rows_used == b->rows_used &&
		memcmp(a->centroids, b->centroids, (size_t) a->k * d * sizeof(double)) == 0 &&
		memcmp(a->size, b->size, a->k * sizeof(int64_t)) == 0 &&
		memcmp(a->cluster_inertia, b->cluster_inertia, a->k * sizeof(double)) == 0 &&
		memcmp(a->radius, b->radius, a->k * sizeof(double)) == 0;
}

/* What packed_run() found. */
typedef struct PackedReport
{
	GkStatus	status;
	GkError		err;
	int			results;		/* of the device */
	int			different;
	int			first;			/* of those */
	double		cpu_ms;
	double		device_ms;
	double		prepare_ms;		/* sorting and preparing alone, by the CPU */
} PackedReport;

static PackedGroups *
packed_make(const PackedCase *c, const GkHost *host)
{
	PackedGroups *p = calloc(1, sizeof(*p));
	int			threads = gk_threads(host);

	p->c = c;
	p->x = calloc(c->groups, sizeof(double *));
	p->n = calloc(c->groups, sizeof(int));
	p->cpu = calloc(c->groups, sizeof(GkModel));
	p->device = calloc(c->groups, sizeof(GkModel));
	p->hosts = calloc(threads, sizeof(GkHost));
	for (int i = 0; i < threads; i++)
		p->hosts[i] = (GkHost) {.alloc = packed_alloc,.free = packed_free,.threads = 1};
	packed_state = (uint64_t) c->groups * 31 + c->n;
	for (int g = 0; g < c->groups; g++)
	{
		int			n = g % 5 == 4 ? 1 + (int) (packed_random() * 5) : 1 + (int) (packed_random() * c->n);

		p->n[g] = n > c->n || packed_all_full ? c->n : n;
		p->x[g] = malloc(sizeof(double) * p->n[g] * c->d);
		for (int i = 0; i < p->n[g]; i++)
			for (int j = 0; j < c->d; j++)
				p->x[g][i * c->d + j] = packed_value(g, i, j);
	}
	return p;
}

static void
packed_drop(PackedGroups *p)
{
	for (int g = 0; g < p->c->groups; g++)
	{
		gk_model_free(&p->hosts[0], &p->cpu[g]);
		if (p->device[g].k > 0)
		{
			p->device[g].history_inertia = p->device[g].history_shift = NULL;
			gk_model_free(&p->hosts[0], &p->device[g]);
		}
		free(p->x[g]);
	}
	free(p->x);
	free(p->n);
	free(p->cpu);
	free(p->device);
	free(p->hosts);
	free(p);
}

typedef struct PackedCpu
{
	PackedGroups *p;
	const GkOptions *opt;
} PackedCpu;

static void
packed_cpu_job(void *arg, int64_t g, int thread)
{
	PackedCpu  *job = arg;
	PackedGroups *p = job->p;
	intptr_t	at[2] = {(intptr_t) p, (intptr_t) g};
	GkError		err;

	if (gk_group_fit(&p->hosts[thread], &gk_cpu_backend, job->opt,
					 &(GkGroupPoints) {packed_row, at, p->n[g], p->c->d, false}, NULL, &p->cpu[g], &err) != GK_OK)
		abort();
}

static void
packed_prepare_job(void *arg, int64_t g, int thread)
{
	PackedCpu  *job = arg;
	PackedGroups *p = job->p;
	intptr_t	at[2] = {(intptr_t) p, (intptr_t) g};
	GkStore    *store;
	GkError		err;

	if (gk_group_prepare(&p->hosts[thread], job->opt,
						 &(GkGroupPoints) {packed_row, at, p->n[g], p->c->d, false}, false, &store, &err) != GK_OK)
		abort();
	gk_store_free(store);
}

/* gk_group_fit() and gk_group_batch_fit() want arguments that live as long as they do. */
static intptr_t(*packed_args)[2];

static const void *
packed_arg(void *ctx, int64_t g)
{
	packed_args[g][0] = (intptr_t) ctx;
	packed_args[g][1] = (intptr_t) g;
	return packed_args[g];
}

/* several: the devices that share the groups; NULL: the backend's. */
static PackedReport
packed_run(const PackedCase *c, const GkHost *host, const GkBackend *backend, GkSpread *several)
{
	PackedGroups *p = packed_make(c, host);
	GkOptions	opt = c->opt;
	double	   *centroids = NULL;
	PackedCpu	cpu = {p, &opt};
	PackedReport r = {.first = -1};
	GkGroupBatchWork work = {.options = &opt,.d = c->d,.groups = c->groups,.ctx = p,.rows = packed_rows,
		.row = packed_row,.arg = packed_arg,.host = packed_host,.done = packed_done,.result = packed_result};
	double		t0;

	if (opt.init == GK_INIT_CENTROIDS)
	{
		opt.centroids = centroids = malloc(sizeof(double) * opt.k * c->d);
		for (int i = 0; i < opt.k * c->d; i++)
			centroids[i] = i == c->d ? 1e300 : floor(packed_random() * 20.0) - 5.0;
	}
	packed_args = calloc(c->groups, sizeof(*packed_args));
	t0 = gk_now_ms();
	gk_parallel_for(host, c->groups, packed_cpu_job, &cpu);
	r.cpu_ms = gk_now_ms() - t0;
	t0 = gk_now_ms();
	gk_parallel_for(host, c->groups, packed_prepare_job, &cpu);
	r.prepare_ms = gk_now_ms() - t0;
	t0 = gk_now_ms();
	r.status = gk_group_batch_fit(host, backend, several, &work, &r.err);
	r.device_ms = gk_now_ms() - t0;
	for (int g = 0; g < c->groups; g++)
	{
		if (p->device[g].k == 0)
			continue;
		r.results++;
		if (!packed_equal(&p->cpu[g], &p->device[g], c->d))
		{
			r.different++;
			if (r.first < 0)
				r.first = g;
		}
	}
	packed_drop(p);
	free(packed_args);
	free(centroids);
	return r;
}

/* What every device has to do right; options by turns. */
#define GROUP_CASES(scale) { \
	{"k-means++", 1000 * (scale), 200, 4, {.k = 3,.n_init = 1,.max_iter = 100,.tol = 1e-4}}, \
	{"one feature", 500 * (scale), 60, 1, {.k = 5,.n_init = 1,.max_iter = 50,.tol = 0}}, \
	{"k = 1", 100 * (scale), 40, 2, {.k = 1,.n_init = 1,.max_iter = 10,.tol = 0}}, \
	{"more clusters than points", 300 * (scale), 12, 3, {.k = 20,.n_init = 1,.max_iter = 30,.tol = 0,.seed = 5}}, \
	{"large groups", 60 * (scale), 2000, 4, {.k = 8,.n_init = 1,.max_iter = 40,.tol = 1e-5,.seed = -3}}, \
	{"many clusters", 40 * (scale), 500, 2, {.k = 130,.n_init = 1,.max_iter = 12,.tol = 0}}, \
	{"many features", 60 * (scale), 90, 33, {.k = 4,.n_init = 1,.max_iter = 30,.tol = 1e-3}}, \
	{"restarts", 200 * (scale), 80, 3, {.k = 4,.n_init = 7,.max_iter = 30,.tol = 1e-4,.seed = 77}}, \
	{"random rows", 300 * (scale), 100, 2, {.k = 6,.init = GK_INIT_RANDOM,.n_init = 3,.max_iter = 60,.tol = 0}}, \
	{"standardized", 300 * (scale), 100, 5, {.k = 3,.n_init = 1,.max_iter = 60,.tol = 1e-4,.standardize = true}}, \
	{"given centroids", 300 * (scale), 100, 2, {.k = 7,.init = GK_INIT_CENTROIDS,.n_init = 1,.max_iter = 60,.tol = 0}}, \
	{"one iteration", 300 * (scale), 100, 2, {.k = 9,.init = GK_INIT_RANDOM,.n_init = 1,.max_iter = 1,.tol = 0}}, \
}

#endif							/* GROUP_CASES_H */
