/*
 * grouped_fit.c - kmeans_grouped(): cluster a batch of groups, and put their rows out.
 *
 * Small groups go to a GPU by the thousand (core/groups/gk_group_batch.h) if there is one, or to
 * several, or to the threads, one group to one thread (pg_thread_host.c).  Large groups are
 * clustered one after the other, by all threads or GPUs.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "core/groups/gk_group_batch.h"
#include "groups/grouped.h"

/* Groups after which the memory of their rows is freed. */
#define RESET_GROUPS	64

/* ---- the CPU ---- */

typedef struct Work
{
	const KmGrouped *g;
	KmOneGroup **groups;		/* the small ones */
} Work;

/* Copy a model's clusters to kept, which has room for k * (d + 3) numbers. */
static void
keep_result(const KmGrouped *g, KmOneGroup *one, const GkModel *m, double *kept)
{
	Size		kd = (Size) m->k * g->d;

	one->k = m->k;
	one->centroids = kept;
	one->inertia = kept + kd;
	one->radius = one->inertia + m->k;
	one->size = (int64_t *) (one->radius + m->k);
	memcpy(one->centroids, m->centroids, kd * sizeof(double));
	memcpy(one->inertia, m->cluster_inertia, m->k * sizeof(double));
	memcpy(one->radius, m->radius, m->k * sizeof(double));
	memcpy(one->size, m->size, m->k * sizeof(int64_t));
}

static Size
result_bytes(const KmGrouped *g, const GkModel *m)
{
	return (Size) m->k * (g->d + 3) * sizeof(double);
}

/* Keep a model's clusters in the thread's memory; any thread.  False: out of memory. */
static bool
keep_in_thread(const KmGrouped *g, int thread, KmOneGroup *one, const GkModel *m)
{
	double	   *kept = km_thread_keep(g->hosts, thread, result_bytes(g, m));

	if (kept != NULL)
		keep_result(g, one, m, kept);
	return kept != NULL;
}

bool
km_grouped_small(const KmGrouped *g, int64 rows)
{
	return rows * g->d < KM_LARGE_GROUP;
}

void
km_grouped_fit(const KmGrouped *g, int thread, const GkGroupPoints *points, KmOneGroup *one)
{
	KmThreadMark mark = km_thread_mark(g->hosts, thread);
	GkModel		model;
	GkError		err;

	one->status = gk_group_fit(km_thread_host(g->hosts, thread), &gk_cpu_backend, &g->options->engine, points,
							   NULL, &model, &err);
	if (one->status == GK_OK && !keep_in_thread(g, thread, one, &model))
		one->status = gk_fail(&err, GK_ERR_MEMORY, "out of memory");
	if (one->status != GK_OK)
		one->err = km_thread_keep_error(g->hosts, thread, &err);
	km_thread_reset(g->hosts, thread, mark);
}

static void
fit_job(void *arg, int64_t job, int thread)
{
	const Work *w = arg;
	KmOneGroup *one = w->groups[job];
	GkGroupPoints points = km_group_rows_points(one->rows, w->g->source->weighted);

	km_grouped_fit(w->g, thread, &points, one);
}

/* Cluster a large group by all threads, or as one clustering on GPUs. */
static void
fit_large(KmGrouped *g, KmOneGroup *one)
{
	const GkHost *engine = km_host_engine(g->host);
	GkGroupPoints points = km_group_rows_points(one->rows, g->source->weighted);
	const GkBackend *backend;
	GkModel		model;
	GkError		err;

	CHECK_FOR_INTERRUPTS();
	backend = km_fit_devices(g->host, g->options, points.n, g->d, g->options->engine.k);
	km_check(g->host,
			 gk_group_fit(engine, backend, &g->options->engine, &points, NULL, &model, &err),
			 &err);
	keep_result(g, one, &model, MemoryContextAllocHuge(g->groups.cxt, result_bytes(g, &model)));
	gk_model_free(engine, &model);
}

/* ---- GPUs ---- */

typedef struct Packing
{
	const KmGrouped *g;
	KmThreadMark *mark;			/* of each thread's job */
} Packing;

/*
 * The size of the job is that of all groups.  Restarts count, since they cost the GPU
 * next to nothing: sorting and preparing the points is done once, and by the CPU.
 */
void
km_grouped_choose_gpu(KmGrouped *g, int64 rows)
{
	const GkOptions *o = &g->options->engine;
	const GkBackend *b;

	if (g->chosen)
		return;
	g->chosen = true;
	if (rows == 0 || g->options->device == GK_DEVICE_CPU)
		return;
	b = km_choose_group_backend(g->host, g->options->device, rows, g->d, (int) Min((int64) o->k * o->n_init, GK_MAX_K));
	if (b->groups != NULL && gk_group_batch_possible(o, g->source->weighted))
		g->gpu = b;
}

static KmOneGroup *
group_at(void *ctx, int64_t group)
{
	return ((Packing *) ctx)->g->groups.groups[group];
}

static int64_t
group_rows(void *ctx, int64_t group)
{
	const KmOneGroup *one = group_at(ctx, group);

	return one->k > 0 ? 0 : one->rows->n;
}

static const void *
row_arg(void *ctx, int64_t group)
{
	return group_at(ctx, group)->rows;
}

static const GkHost *
begin_job(void *ctx, int thread)
{
	Packing    *p = ctx;

	p->mark[thread] = km_thread_mark(p->g->hosts, thread);
	return km_thread_host(p->g->hosts, thread);
}

static void
end_job(void *ctx, int thread)
{
	Packing    *p = ctx;

	km_thread_reset(p->g->hosts, thread, p->mark[thread]);
}

static bool
keep_model(void *ctx, int64_t group, const GkModel *model, int thread)
{
	const Packing *p = ctx;

	return keep_in_thread(p->g, thread, group_at(ctx, group), model);
}

static void
fit_on_gpu(KmGrouped *g)
{
	const GkHost *engine = km_host_engine(g->host);
	Packing		p = {.g = g,.mark = palloc(gk_threads(engine) * sizeof(KmThreadMark))};
	GkGroupBatchWork work = {.options = &g->options->engine,.d = g->d,.groups = g->groups.n,.ctx = &p,.rows = group_rows,
		.row = km_group_rows_point,.arg = row_arg,.host = begin_job,.done = end_job,.result = keep_model};
	GkError		err;
	GkStatus	st;

	/* the first batch is as large as any */
	if (!g->shared)
	{
		GkSpreadGroups all = gk_group_batch_measure(engine, &work);

		km_choose_group_devices(g->host, g->options->device, &all, &g->several);
		g->shared = true;
	}
	st = gk_group_batch_fit(engine, g->gpu, &g->several, &work, &err);
	/* the CPU does what no GPU has done, now and in later batches */
	if (gk_go_on_with_cpu(engine, g->gpu, st, &err))
		g->gpu = NULL;
	else
		km_check(g->host, st, &err);
}

/* ---- rows of the result ---- */

void
km_grouped_put_begin(KmGrouped *g)
{
	/* to_jsonb() looks at its argument's type */
	Const	   *record = makeNullConst(RECORDOID, -1, InvalidOid);

	fmgr_info(F_TO_JSONB, &g->to_jsonb);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, list_make1(record),
											 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL), &g->to_jsonb);
}

/* {"name": number}, as to_jsonb() has it, which looks types up for each group. */
static Datum
whole_number(const char *name, int64 number)
{
	JsonbParseState *state = NULL;
	JsonbValue	v;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	v.type = jbvString;
	v.val.string.val = unconstify(char *, name);
	v.val.string.len = strlen(name);
	(void) pushJsonbValue(&state, WJB_KEY, &v);
	v.type = jbvNumeric;
	v.val.numeric = DatumGetNumeric(DirectFunctionCall1(int8_numeric, Int64GetDatum(number)));
	(void) pushJsonbValue(&state, WJB_VALUE, &v);
	return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}

static Datum
group_key(KmGrouped *g, const KmOneGroup *one)
{
	Form_pg_attribute first = TupleDescAttr(g->key_desc, 0);

	if (g->nkeys == 1 && !one->key_null[0])
		switch (first->atttypid)
		{
			case INT2OID:
				return whole_number(NameStr(first->attname), DatumGetInt16(one->key[0]));
			case INT4OID:
				return whole_number(NameStr(first->attname), DatumGetInt32(one->key[0]));
			case INT8OID:
				return whole_number(NameStr(first->attname), DatumGetInt64(one->key[0]));
		}
	return FunctionCall1(&g->to_jsonb,
						 HeapTupleGetDatum(heap_form_tuple(g->key_desc, one->key, one->key_null)));
}

static void
put_rows(KmGrouped *g, const KmOneGroup *one)
{
	Datum		grp = group_key(g, one);

	for (int c = 0; c < one->k; c++)
	{
		Datum		values[6];
		bool		nulls[6] = {false};

		values[0] = grp;
		values[1] = Int32GetDatum(c);
		values[2] = Int64GetDatum(one->size[c]);
		values[3] = km_float8_array(one->centroids + (Size) c * g->d, g->d);
		values[4] = Float8GetDatum(one->inertia[c]);
		values[5] = Float8GetDatum(one->radius[c]);
		tuplestore_putvalues(g->result->store, g->result->desc, values, nulls);
	}
}

static void
put_group(KmGrouped *g, const KmOneGroup *one)
{
	MemoryContext caller;

	if (g->row_cxt == NULL)
		g->row_cxt = AllocSetContextCreate(g->groups.cxt, "gkmeans group row", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(g->row_cxt);
	put_rows(g, one);
	MemoryContextSwitchTo(caller);
	if (++g->put % RESET_GROUPS == 0)
		MemoryContextReset(g->row_cxt);
}

/* ---- a batch ---- */

void
km_grouped_finish(KmGrouped *g)
{
	KmGroupHash *all = &g->groups;
	MemoryContext caller = MemoryContextSwitchTo(all->cxt);
	const GkHost *engine = km_host_engine(g->host);
	Work		w = {.g = g};
	int64		small = 0;

	if (g->hosts == NULL)
		g->hosts = km_thread_hosts(engine);
	km_grouped_choose_gpu(g, g->bytes / sizeof(double) / Max(g->d, 1));
	if (g->gpu != NULL)
		fit_on_gpu(g);
	w.groups = palloc_extended(Max(all->n, 1) * sizeof(KmOneGroup *), MCXT_ALLOC_HUGE);
	for (int i = 0; i < all->n; i++)
	{
		KmOneGroup *one = all->groups[i];

		if (one->k > 0 || one->status != GK_OK)
			continue;
		if (km_grouped_small(g, one->rows->n))
			w.groups[small++] = one;
		else
			fit_large(g, one);
	}
	if (!gk_parallel_for(engine, small, fit_job, &w))
		km_throw(g->host, GK_STOPPED, NULL);

	/* the rows' order depends on nothing but the keys, however they were read */
	if (!g->ordered)
		km_group_hash_sort(all);
	for (int i = 0; i < all->n; i++)
	{
		km_check(g->host, all->groups[i]->status, all->groups[i]->err);
		put_group(g, all->groups[i]);
		if (i % 64 == 63)
			CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(all->cxt);
	g->hosts = NULL;
}
