/*
 * grouped_gpu.c - kmeans_grouped() with a GPU: small groups are packed by the
 * thousand (core/groups/gk_group_batch.h); all that the GPU does not take is the CPU's.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "core/gk_backend.h"
#include "groups/grouped.h"

typedef struct Packing
{
	const KmGrouped *g;
	KmThreadHosts *hosts;
	KmThreadMark *mark;			/* of each thread's job */
} Packing;

/*
 * The size of the job is that of all groups.  Restarts count, since they cost the GPU
 * next to nothing: sorting and preparing the points is done once, and by the CPU.
 */
void
km_grouped_choose(KmGrouped *g, int64 rows)
{
	const GkOptions *o = &g->options->engine;
	const GkBackend *b;

	if (g->chosen)
		return;
	g->chosen = true;
	if (rows == 0 || g->options->device == GK_DEVICE_CPU)
		return;
	b = km_choose_backend(g->host, g->options->device, rows, g->d, (int) Min((int64) o->k * o->n_init, GK_MAX_K));
	if (b->packed != NULL && gk_group_batch_possible(o, g->source->weighted))
		g->gpu = b;
}

static KmOneGroup *
group_at(void *ctx, int64_t group)
{
	return ((Packing *) ctx)->g->groups.groups[group];
}

static int64_t
rows(void *ctx, int64_t group)
{
	return group_at(ctx, group)->rows->n;
}

static const void *
row_arg(void *ctx, int64_t group)
{
	return group_at(ctx, group)->rows;
}

static const GkHost *
thread_host(void *ctx, int thread)
{
	Packing    *p = ctx;

	p->mark[thread] = km_thread_mark(p->hosts, thread);
	return km_thread_host(p->hosts, thread);
}

static void
done(void *ctx, int thread)
{
	Packing    *p = ctx;

	km_thread_reset(p->hosts, thread, p->mark[thread]);
}

static bool
result(void *ctx, int64_t group, const GkModel *model, int thread)
{
	const Packing *p = ctx;

	return km_grouped_keep(p->g, p->hosts, thread, group_at(ctx, group), model);
}

void
km_grouped_pack(KmGrouped *g, KmThreadHosts *hosts)
{
	const GkHost *engine = km_host_engine(g->host);
	Packing		p = {.g = g,.hosts = hosts,.mark = palloc(gk_threads(engine) * sizeof(KmThreadMark))};
	GkGroupBatchWork work = {.options = &g->options->engine,.d = g->d,.groups = g->groups.n,.ctx = &p,.rows = rows,
		.row = km_group_rows_point,.arg = row_arg,.host = thread_host,.done = done,.result = result};
	GkError		err;
	GkStatus	st = gk_group_batch_fit(engine, g->gpu, &work, &err);

	/* What the GPU has not done is the CPU's, now and in later batches. */
	if ((st == GK_ERR_DEVICE || st == GK_ERR_DEVICE_MEMORY) && engine->device_failed(engine->ctx, &err))
		g->gpu = NULL;
	else
		km_check(g->host, st, &err);
}
