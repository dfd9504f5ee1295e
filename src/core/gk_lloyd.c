/*
 * gk_lloyd.c - Lloyd's algorithm: seed, assign, update, repair, converged?
 *
 * S. Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 28(2), 1982.  One backend pass per
 * iteration gives exact sums; the update, the stopping rule and everything that decides is done here, once
 * for all backends.  A backend may make the update itself, with the same bits (GkBackend.advance): then it is
 * done here once more for the last iteration.
 *
 * This loop, gk_seed.c, gk_repair.c and gk_finish.c have a twin: gpu/gk_gpu_block_lloyd.h, which clusters a
 * small group within one block of GPU threads.  A change here is a change there: test/unit/test_group_batch.c
 * compares the two bit for bit, the twin compiled for the CPU, and test/gpu/test_groups.c does so on a GPU.
 */
#include <math.h>
#include <string.h>

#include "core/gk_engine.h"
#include "core/gk_numerics.h"
#include "core/gk_update.h"

static GkStatus
grow_history(GkEngine *e, GkRun *r, GkError *err)
{
	int			room = r->room ? r->room * 2 : 64;
	double	   *inertia = gk_alloc(e->host, room, sizeof(double));
	double	   *shift = gk_alloc(e->host, room, sizeof(double));

	if (!inertia || !shift)
	{
		gk_free(e->host, inertia);
		gk_free(e->host, shift);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	if (r->room > 0)
	{
		memcpy(inertia, r->history_inertia, r->room * sizeof(double));
		memcpy(shift, r->history_shift, r->room * sizeof(double));
	}
	gk_free(e->host, r->history_inertia);
	gk_free(e->host, r->history_shift);
	r->history_inertia = inertia;
	r->history_shift = shift;
	r->room = room;
	return GK_OK;
}

/* The length of a cluster's mean, original units. */
static double
mean_length(const GkPrep *p, const gk_int128 *sum, double mass)
{
	double		square = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		double		m = gk_mean(gk_i128_to_double(sum[j]) / mass, gk_feature_prep(p->center, p->scale, p->expo, j));

		square += m * m;
	}
	return sqrt(square);
}

/* One loop does both, so that each sum becomes a double once: thousands of small clusterings feel it. */
double
gk_update_cluster(const GkPoints *pts, const gk_int128 *sum, gk_int128 exact_mass, double *c, float *f, double *explained)
{
	const GkPrep *p = &pts->prep;
	bool		cosine = p->distance == GK_COSINE;
	double		mass = gk_i128_to_double(exact_mass);
	double		length = cosine ? mean_length(p, sum, mass) : 1.0;
	double		total = 0.0;
	double		shift = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		GkFeaturePrep prep = gk_feature_prep(p->center, p->scale, p->expo, j);
		double		s = gk_i128_to_double(sum[j]);

		total += gk_explained_feature(s, mass, pts->weighted, prep, f[j]);
		shift += cosine ? gk_turn_feature(s / mass, prep, length, f[j], &c[j], &f[j]) :
			gk_update_feature(s / mass, prep, f[j], &c[j], &f[j]);
	}
	*explained = total;
	return shift;
}

/* The same under GK_PARTIAL.  A feature that no point of the cluster has stays where it is. */
static double
update_partial(GkEngine *e, int i)
{
	const GkPrep *p = &e->pts->prep;
	double		shift = 0.0;

	for (int j = 0; j < p->d; j++)
	{
		size_t		at = (size_t) i * p->d + j;
		double		mass = gk_i128_to_double(e->step.feature_mass[at]);

		if (mass > 0.0)
			shift += gk_update_feature(gk_i128_to_double(e->step.sum[at]) / mass,
									   gk_feature_prep(p->center, p->scale, p->expo, j), e->f[at], &e->c[at], &e->f[at]);
	}
	return shift;
}

/* Coordinates that one job updates: some hundred microseconds. */
#define UPDATE_WORK		8192

static void
update_clusters(void *arg, int64_t job, int thread)
{
	GkEngine   *e = arg;
	int			per_job = UPDATE_WORK / e->pts->d + 1;
	int			end = (int) (job + 1) * per_job < e->k ? (int) (job + 1) * per_job : e->k;

	(void) thread;
	for (int i = (int) job * per_job; i < end; i++)
	{
		size_t		at = (size_t) i * e->pts->d;

		/* it was the mean already: all stays, and towards the end of a fit so do most clusters */
		if (e->step.unchanged[i] && e->moved[i] == 0.0)
			continue;
		e->explained[i] = e->moved[i] = 0.0;
		if (e->step.count[i] == 0)
			continue;
		e->moved[i] = e->pts->prep.distance == GK_PARTIAL ? update_partial(e, i) :
			gk_update_cluster(e->pts, e->step.sum + at, e->step.mass[i], e->c + at, e->f + at, &e->explained[i]);
	}
}

/*
 * *shift is the squared movement of all clusters, *inertia that of the centroids before.  Both are added up in the
 * clusters' order, whatever computed the parts.
 */
static void
add_up(const GkEngine *e, double *shift, double *inertia)
{
	*shift = 0.0;
	*inertia = e->pts->sum_sq;
	for (int i = 0; i < e->k; i++)
	{
		*shift += e->moved[i];
		*inertia -= e->explained[i];
	}
	if (e->pts->prep.distance == GK_MANHATTAN || e->pts->prep.distance == GK_PARTIAL)
		*inertia = gk_i128_to_double(e->step.cost) * gk_pow2(e->pts->d2_expo - 80);
	if (*inertia < 0.0)
		*inertia = 0.0;
}

/* New centroids of all non-empty clusters, from the sums of a step. */
static GkStatus
update(GkEngine *e)
{
	int			per_job = UPDATE_WORK / e->pts->d + 1;

	return gk_parallel_for(e->host, (e->k + per_job - 1) / per_job, update_clusters, e) ? GK_OK : GK_STOPPED;
}

/* inertia: < 0 before the first iteration has ended. */
static void
report(const GkEngine *e, int run, int iteration, double inertia, double shift)
{
	GkProgress	p = {.phase = "iterate",.run = run + 1,.iteration = iteration,.max_iter = e->opt->max_iter,
		.rows = e->pts->n,.inertia = inertia < 0.0 ? inertia : gk_engine_inertia(e->pts, inertia),
	.shift = gk_shift_from_d2(&e->pts->prep, shift)};

	if (e->host->progress)
		e->host->progress(e->host->ctx, &p);
}

/* What the host has of the iterations. */
typedef struct Place
{
	int			it;				/* the next one */
	int			known;			/* the one that begins with the host's centroids */
	bool		by_steps;		/* the backend does not make updates any more */
} Place;

/*
 * The pass of an iteration.  *ahead: the backend has moved the centroids, too, and kept them; it goes on from them
 * where the host has not got them.
 */
static GkStatus
pass(GkEngine *e, const Place *p, bool *ahead, GkError *err)
{
	bool		here = p->it == p->known;
	GkAdvance	a = {.count = e->step.count,.moved = e->moved,.explained = e->explained};
	GkStatus	st = GK_OK;

	if (e->backend->advance != NULL && !p->by_steps)
		st = e->backend->advance(e->session, here ? e->f : NULL, e->k, &a, err);
	*ahead = a.done;
	memset(e->step.unchanged, 0, e->k * sizeof(bool));
	return st == GK_OK && !a.done && here ? e->backend->step(e->session, e->f, e->k, &e->step, err) : st;
}

/* Under cosine: a cluster's points have no direction, so that its centroid stays. */
static bool
lacks_mean(const GkEngine *e)
{
	const GkPrep *p = &e->pts->prep;

	for (int i = 0; i < e->k; i++)
	{
		const gk_int128 *sum = e->step.sum + (size_t) i * p->d;
		double		mass = gk_i128_to_double(e->step.mass[i]);
		int			j = 0;

		while (j < p->d && gk_mean(gk_i128_to_double(sum[j]) / mass, gk_feature_prep(p->center, p->scale, p->expo, j)) == 0.0)
			j++;
		if (e->step.count[i] > 0 && j == p->d)
			return true;
	}
	return false;
}

/* Centroids are not what the last moves have made: all of them are to be updated, whatever a step says of their clusters. */
static void
forget_moves(GkEngine *e)
{
	for (int i = 0; i < e->k; i++)
		e->moved[i] = INFINITY;
}

/*
 * Have the sums of the backend's last iteration and the centroids that it began with.  *kept is false where the host has
 * to go back to the centroids that it has: the others are lost with a device, or one stays where it is and is
 * not known in original units.
 */
static GkStatus
recall(GkEngine *e, Place *p, bool *kept, GkError *err)
{
	GkStatus	st = e->backend->recall(e->session, e->k, e->recalled, &e->step, kept, err);

	e->step.follows = e->step.kept = false;
	if (st == GK_OK && *kept && e->pts->prep.distance == GK_COSINE && lacks_mean(e))
	{
		p->by_steps = true;
		*kept = false;
	}
	if (st == GK_OK && *kept)
		memcpy(e->f, e->recalled, (size_t) e->k * e->pts->d * sizeof(float));
	else
		forget_moves(e);
	return st;
}

static bool
has_empty(const GkEngine *e)
{
	for (int i = 0; i < e->k; i++)
		if (e->step.count[i] == 0)
			return true;
	return false;
}

GkStatus
gk_lloyd(GkEngine *e, int run, double tol, GkRun *r, GkError *err)
{
	const GkOptions *opt = e->opt;
	Place		p = {0};

	/* an iteration of very many clusters takes minutes */
	report(e, run, 0, -1.0, 0.0);
	e->step.follows = e->step.kept = false;
	forget_moves(e);
	while (p.it < opt->max_iter && !r->converged)
	{
		bool		ahead = false;
		bool		kept = true;
		bool		empty;
		int			repaired = 0;
		double		shift;
		double		inertia;
		GkStatus	st = pass(e, &p, &ahead, err);

		if (st == GK_OK && !ahead && p.it > p.known)
		{
			/* The backend cannot go on by itself. */
			st = recall(e, &p, &kept, err);
			if (st == GK_OK && kept)
				st = update(e);
			if (st != GK_OK)
				return st;
			p.known = p.it = kept ? p.it : p.known;
			continue;
		}
		if (st == GK_OK && p.it == r->room)
			st = grow_history(e, r, err);
		if (st != GK_OK)
			return st;
		empty = has_empty(e);
		if (ahead)
		{
			add_up(e, &shift, &inertia);
			/* To repair and to end, the host needs the centroids. */
			if (empty || shift <= tol || p.it + 1 == opt->max_iter)
			{
				if ((st = recall(e, &p, &kept, err)) != GK_OK)
					return st;
				ahead = false;
			}
			if (!kept)
			{
				p.it = p.known;
				continue;
			}
		}
		else
			e->step.follows = e->step.kept = !empty;
		if (!ahead)
		{
			if (empty && (st = gk_repair(e, e->step.count, false, &repaired, err)) != GK_OK)
				return st;
			if ((st = update(e)) != GK_OK)
				return st;
			add_up(e, &shift, &inertia);
			p.known = p.it + 1;
		}
		r->history_inertia[p.it] = inertia;
		r->history_shift[p.it] = shift;
		r->iterations = ++p.it;

		/*
		 * The rule of scikit-learn and Spark.  Without any shift all further iterations would be the same.  A
		 * repaired cluster has not been assigned any points yet.
		 */
		r->converged = repaired == 0 && shift <= tol;
		report(e, run, p.it, inertia, shift);
		if (e->host->poll && e->host->poll(e->host->ctx))
			return GK_STOPPED;
	}
	return GK_OK;
}
