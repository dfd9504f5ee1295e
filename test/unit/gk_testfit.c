#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/store/gk_points.h"
#include "gk_testfit.h"

const GkInit random_inits[RANDOM_INITS] = {GK_INIT_PARALLEL, GK_INIT_RANDOM, GK_INIT_HIERARCHICAL};

/* ---- problems ---- */

Problem
random_problem(uint64_t *rng, int number)
{
	Problem		p = {0};
	int			work;
	int			centres;

	p.d = number % 4 == 0 ? test_pick(rng, 1, 200) : test_pick(rng, 1, 12);
	p.k = number % 3 == 0 ? test_pick(rng, 1, 300) : test_pick(rng, 1, 20);
	p.n = number % 10 == 0 ? test_pick(rng, 1, 20) : test_pick(rng, 1, 20000);
	/* Sanitizers are slow: bound the work, keep the corners. */
	work = 3000000 / (p.d * p.k) + 1;
	if (p.n > work)
		p.n = work;
	p.x = malloc(sizeof(double) * p.n * p.d);
	centres = test_pick(rng, 1, 8);
	for (int j = 0; j < p.d; j++)
	{
		double		scale = number % 5 == 0 ? pow(10.0, test_pick(rng, -30, 30)) : 1.0;
		double		offset = number % 7 == 0 ? 1e6 * scale : 0.0;
		int			kind = test_pick(rng, 0, 5);

		for (int i = 0; i < p.n; i++)
		{
			double		v = kind == 0 ? 3.0 /* constant */
			: kind == 1 ? (double) test_pick(rng, 0, 3) /* many ties */
			: (i % centres) * 5.0 + test_normal(rng);

			p.x[(size_t) i * p.d + j] = offset + scale * v;
		}
	}
	/* Duplicates. */
	for (int i = 1; i < p.n; i++)
		if (test_uniform(rng) < 0.1)
			memcpy(p.x + (size_t) i * p.d, p.x + (size_t) (i - 1) * p.d, sizeof(double) * p.d);
	if (number % 3 == 1)
	{
		p.w = malloc(sizeof(double) * p.n);
		for (int i = 0; i < p.n; i++)
			p.w[i] = number % 2 ? (double) test_pick(rng, 1, 9) : pow(10.0, 6 * test_uniform(rng) - 3);
	}
	p.opt.k = p.k;
	p.opt.n_init = 1;
	p.opt.max_iter = test_pick(rng, 1, 12);
	p.opt.tol = number % 2 ? 0.0 : 1e-4;
	p.opt.seed = number;
	p.opt.standardize = number % 11 == 3;
	p.opt.distance = number % 13 == 5 && !p.opt.standardize ? GK_COSINE : GK_EUCLIDEAN;
	if (p.opt.distance == GK_COSINE)
		for (int i = 0; i < p.n; i++)
			p.x[(size_t) i * p.d] += 10.0;	/* no zero vectors */
	return p;
}

void
given_centroids(Problem *p, uint64_t *rng)
{
	p->init = malloc(sizeof(double) * p->k * p->d);
	for (int i = 0; i < p->k; i++)
		memcpy(p->init + (size_t) i * p->d, p->x + (size_t) test_pick(rng, 0, p->n - 1) * p->d, sizeof(double) * p->d);
	p->opt.init = GK_INIT_CENTROIDS;
	p->opt.centroids = p->init;
}

void
problem_free(Problem *p)
{
	free(p->x);
	free(p->w);
	free(p->init);
}

size_t
whole_chunk(const Problem *p)
{
	return ((size_t) p->n + 2 * GK_ROW_PAD) * (p->d + 4) * sizeof(float);
}

/* ---- answers ---- */

void
answer_init(Answer *a, const Problem *p, int threads)
{
	memset(a, 0, sizeof(*a));
	test_host_init(&a->host, threads);
	a->labels.label = malloc(sizeof(int32_t) * (p->n + 1));
	a->labels.d2 = malloc(sizeof(float) * (p->n + 1));
	memset(a->labels.label, 0xff, sizeof(int32_t) * (p->n + 1));
}

void
answer_free(Answer *a)
{
	gk_model_free(&a->host.host, &a->model);
	free(a->labels.label);
	free(a->labels.d2);
	test_host_end(&a->host);
}

bool
same_model(const GkModel *x, const GkModel *y)
{
	size_t		kd = (size_t) x->k * x->prep.d;

	return x->k == y->k && x->iterations == y->iterations &&
		x->converged == y->converged && x->inertia == y->inertia && x->rows_used == y->rows_used &&
		memcmp(x->centroids, y->centroids, kd * sizeof(double)) == 0 &&
		memcmp(x->size, y->size, x->k * sizeof(int64_t)) == 0 &&
		memcmp(x->cluster_inertia, y->cluster_inertia, x->k * sizeof(double)) == 0 &&
		memcmp(x->radius, y->radius, x->k * sizeof(double)) == 0 &&
		x->history_len == y->history_len &&
		memcmp(x->history_inertia, y->history_inertia, x->history_len * sizeof(double)) == 0 &&
		memcmp(x->history_shift, y->history_shift, x->history_len * sizeof(double)) == 0;
}

bool
same_answer(const Answer *a, const Answer *b, int n)
{
	return a->status == b->status && same_model(&a->model, &b->model) &&
		a->labels.seen == n && b->labels.seen == n &&
		memcmp(a->labels.label, b->labels.label, n * sizeof(int32_t)) == 0 &&
		memcmp(a->labels.d2, b->labels.d2, n * sizeof(float)) == 0;
}

/* ---- shares ---- */

static const char *turns;

static bool
next_turn(const GkSpread *spread)
{
	const char *end = strchr(spread->rows, ';');

	((GkSpread *) spread)->rows = end != NULL ? end + 1 : turns;
	return true;
}

void
rows_take_turns(GkSpread *spread, const char *lists)
{
	turns = spread->rows = lists;
	spread->again = lists != NULL && strchr(lists, ';') != NULL ? next_turn : NULL;
}
