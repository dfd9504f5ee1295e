/*
 * gk_finish.c - from the loop's centroids to the result: cluster numbers, and
 * statistics that belong to exactly the centroids that are returned.
 *
 * Clusters are numbered by size, largest first, ties by centroid.  Renumbering
 * can move points that are equally near to two centroids (the lower number
 * wins), so the pass is repeated until the numbers it was made with are the
 * ones it asks for; two passes at most in practice.  Clusters that the last update
 * emptied take more of them.  A backend is told which centroids it has seen before.
 */
#include <stdlib.h>
#include <string.h>

#include "core/gk_engine.h"

#define MAX_ORDER_PASSES	4

typedef struct Ranked
{
	int64_t		count;
	const double *c;
	int			d;
	int			index;
	int32_t		was;
	int32_t		stepped;
} Ranked;

static int
by_size(const void *va, const void *vb)
{
	const Ranked *a = va;
	const Ranked *b = vb;

	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	for (int j = 0; j < a->d; j++)
		if (a->c[j] != b->c[j])
			return a->c[j] < b->c[j] ? -1 : 1;
	return a->index - b->index;
}

/* Centroids on their way to other numbers. */
typedef struct Moves
{
	GkEngine   *e;
	const Ranked *rank;
	double	   *c;				/* [k][d]: as they will be */
	float	   *f;
	bool		back;			/* from there to the engine */
} Moves;

static void
move_clusters(void *arg, int from, int end)
{
	const Moves *m = arg;
	GkEngine   *e = m->e;
	int			d = e->pts->d;

	for (int i = from; i < end; i++)
	{
		size_t		to = (size_t) i * d;
		size_t		was = (size_t) m->rank[i].index * d;

		memcpy(m->back ? e->c + to : m->c + to, m->back ? m->c + to : e->c + was, d * sizeof(double));
		memcpy(m->back ? e->f + to : m->f + to, m->back ? m->f + to : e->f + was, d * sizeof(float));
	}
}

/* Renumber by size; *moved: whether anything changed. */
static GkStatus
order(GkEngine *e, const int64_t *count, bool *moved, GkError *err)
{
	int			k = e->k;
	int			d = e->pts->d;
	Ranked	   *rank = gk_alloc(e->host, k, sizeof(Ranked));
	double	   *c = gk_alloc(e->host, (size_t) k * d, sizeof(double));
	float	   *f = gk_alloc(e->host, (size_t) k * d, sizeof(float));
	Moves		m = {e, rank, c, f, false};
	bool		done = true;

	*moved = false;
	if (!rank || !c || !f)
	{
		gk_free(e->host, rank);
		gk_free(e->host, c);
		gk_free(e->host, f);
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	}
	for (int i = 0; i < k; i++)
		rank[i] = (Ranked) {count[i], e->c + (size_t) i * d, d, i, e->was[i], e->stepped[i]};
	qsort(rank, k, sizeof(Ranked), by_size);
	for (int i = 0; i < k; i++)
	{
		*moved |= rank[i].index != i;
		e->was[i] = rank[i].was;
		e->stepped[i] = rank[i].stepped;
	}
	for (int back = 0; *moved && done && back < 2; back++)
	{
		m.back = back;
		done = gk_engine_clusters(e, k, move_clusters, &m);
	}
	gk_free(e->host, rank);
	gk_free(e->host, c);
	gk_free(e->host, f);
	return done ? GK_OK : GK_STOPPED;
}

/* Leave out clusters without points; the results of the others stay true. */
static void
drop_empty(GkEngine *e)
{
	int			d = e->pts->d;
	int			to = 0;

	for (int i = 0; i < e->k; i++)
	{
		if (e->fin.count[i] == 0)
			continue;
		memmove(e->c + (size_t) to * d, e->c + (size_t) i * d, d * sizeof(double));
		memmove(e->f + (size_t) to * d, e->f + (size_t) i * d, d * sizeof(float));
		e->was[to] = e->was[i];
		e->stepped[to] = e->stepped[i];
		e->fin.count[to] = e->fin.count[i];
		e->fin.inertia[to] = e->fin.inertia[i];
		e->fin.max_d2[to] = e->fin.max_d2[i];
		to++;
	}
	e->k = to;
}

GkStatus
gk_finish(GkEngine *e, bool keep_order, const GkLabelSink *sink, gk_int128 *inertia, GkError *err)
{
	const int64_t *count = e->step.count;
	int			order_passes = 0;
	int			repairs = 0;

	/*
	 * no pass before knew these centroids; the last step did, or those that they have moved from, by these
	 * numbers
	 */
	e->fin.was = e->was;
	memset(e->was, 0xff, e->k * sizeof(int32_t));
	e->fin.stepped = e->stepped;
	for (int i = 0; i < e->k; i++)
		e->stepped[i] = i;
	for (;;)
	{
		bool		moved = false;
		bool		empty = false;
		int			repaired = 0;
		GkStatus	st;

		if (!keep_order && order_passes < MAX_ORDER_PASSES)
		{
			if ((st = order(e, count, &moved, err)) != GK_OK)
				return st;
			if (count == e->fin.count && !moved)
				break;
			order_passes++;
		}
		else if (count == e->fin.count)
			break;

		if (sink != NULL)
			sink->again(sink->ctx);
		st = e->backend->finish(e->session, e->f, e->k, &e->fin, sink, err);
		if (st != GK_OK)
			return st;
		/* centroids that are to stay keep their number, with points or without */
		if (e->opt->max_iter == 0)
			break;
		count = e->fin.count;
		for (int i = 0; i < e->k; i++)
		{
			e->was[i] = i;
			empty |= count[i] == 0;
		}
		if (!empty)
			continue;

		/*
		 * The last update emptied a cluster.  Every repair takes the inertia
		 * down, so this ends; the bound is for rounding at the grid's edge.
		 */
		if (repairs++ < e->k + 8)
		{
			st = gk_repair(e, count, true, &repaired, err);
			if (st != GK_OK)
				return st;
			for (int i = 0; i < repaired; i++)
				e->was[e->empty[i]] = -1;
		}
		if (repaired > 0)
		{
			count = e->step.count;
			order_passes = 0;
			memcpy(e->step.count, e->fin.count, e->k * sizeof(int64_t));
		}
		else
		{
			drop_empty(e);
			if (sink != NULL)
			{
				/* once more: the numbers have changed */
				count = e->step.count;
				memcpy(e->step.count, e->fin.count, e->k * sizeof(int64_t));
			}
		}
	}
	*inertia = 0;
	for (int i = 0; i < e->k; i++)
		*inertia += e->fin.inertia[i];
	return GK_OK;
}
