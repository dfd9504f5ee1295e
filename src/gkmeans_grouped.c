/*
 * gkmeans_grouped.c - kmeans_grouped(relation, group_by, columns, k, <options>):
 * many small clusterings at once.
 *
 * The rows are read in any order into one GkRows per group, found by a hash
 * table; then the groups are clustered by all threads, one group on one thread,
 * large groups one after the other by all.  When the points are over
 * gkmeans.memory_limit, the query is run again with an ORDER BY, so that groups
 * come one after the other and are clustered as soon as the limit is reached.
 *
 * Helper threads run gk_group_fit() on a host that knows malloc() and the stop
 * flag, nothing of PostgreSQL.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "core/gk_backend.h"
#include "gkmeans.h"
#include "gkmeans_group.h"

PG_FUNCTION_INFO_V1(kmeans_grouped);

#define MIN_BUCKETS		1024

typedef struct KeyColumn
{
	FmgrInfo	hash;
	FmgrInfo	equal;
	Oid			collation;
	int16		len;
	bool		byval;
} KeyColumn;

typedef struct OneGroup
{
	uint32		hash;
	Datum	   *key;
	bool	   *key_null;
	GkRows		rows;			/* the weight is a further feature here */
	GkStatus	status;
	GkError		err;
	GkModel		model;
} OneGroup;

typedef struct Grouped
{
	DestReceiver pub;			/* must be first */
	GkPgHost   *host;
	const GkSource *source;
	const GkFitOptions *options;
	GkResult   *result;
	GkReadCounts counts;
	int			nkeys;
	KeyColumn  *keys;
	TupleDesc	key_desc;
	FmgrInfo	to_jsonb;
	bool		ordered;		/* groups come one after the other */
	Size		limit;
	Size		bytes;			/* of the batch's points */
	bool		over;			/* they were too many for the hash table */
	int			d;				/* features; 0: not known yet */
	double	   *point;			/* [d], and the weight */
	MemoryContext parent;		/* outlives the query */
	/* The batch. */
	MemoryContext cxt;
	int			ngroups;
	int			room;
	OneGroup  **groups;
	uint32	   *buckets;		/* group number + 1; 0: empty */
	uint32		nbuckets;		/* a power of two */
} Grouped;

/* ---- memory for threads ---- */

typedef struct Block
{
	struct Block *prev;
	struct Block *next;
} Block;

typedef struct ThreadHost
{
	GkHost		host;
	Block		blocks;			/* a ring */
	char		pad[64];		/* threads do not share cache lines */
} ThreadHost;

typedef struct ThreadHosts
{
	MemoryContextCallback release;
	int			n;
	ThreadHost *hosts;
} ThreadHosts;

static void *
thread_alloc(void *ctx, size_t bytes)
{
	ThreadHost *t = ctx;
	Block	   *b = malloc(sizeof(Block) + bytes);

	if (b == NULL)
		return NULL;
	b->prev = &t->blocks;
	b->next = t->blocks.next;
	b->next->prev = b;
	t->blocks.next = b;
	return b + 1;
}

static void
thread_free(void *ctx, void *ptr)
{
	Block	   *b = (Block *) ptr - 1;

	b->prev->next = b->next;
	b->next->prev = b->prev;
	free(b);
}

/* Runs when the batch's context goes, after an ERROR too. */
static void
release_blocks(void *arg)
{
	ThreadHosts *hosts = arg;

	for (int t = 0; t < hosts->n; t++)
	{
		ThreadHost *h = &hosts->hosts[t];

		while (h->blocks.next != &h->blocks)
			thread_free(h, h->blocks.next + 1);
	}
}

static ThreadHosts *
make_hosts(const GkHost *engine)
{
	ThreadHosts *hosts = palloc0(sizeof(ThreadHosts));
	int			n = gk_threads(engine);

	hosts->hosts = palloc0(n * sizeof(ThreadHost));
	for (int t = 0; t < n; t++)
	{
		ThreadHost *h = &hosts->hosts[t];

		h->blocks.prev = h->blocks.next = &h->blocks;
		h->host.ctx = h;
		h->host.alloc = thread_alloc;
		h->host.free = thread_free;
		h->host.stop = engine->stop;
		h->host.threads = 1;
	}
	hosts->n = n;
	hosts->release.func = release_blocks;
	hosts->release.arg = hosts;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &hosts->release);
	return hosts;
}

/* ---- clustering ---- */

typedef struct Work
{
	const Grouped *g;
	ThreadHosts *hosts;
	OneGroup  **groups;			/* the small ones */
} Work;

static const double *
row_at(const void *arg, int64_t i)
{
	return gk_rows_at(arg, i);
}

static void
fit_one(const Grouped *g, OneGroup *one, const GkHost *host, const GkBackend *backend)
{
	one->status = gk_group_fit(host, backend, &g->options->engine, row_at, &one->rows,
							   one->rows.n, g->d, g->source->weighted, NULL, &one->model, &one->err);
}

static void
fit_job(void *arg, int64_t job, int thread)
{
	const Work *w = arg;

	fit_one(w->g, w->groups[job], &w->hosts->hosts[thread].host, &gk_cpu_backend);
}

static void
emit_group(Grouped *g, const OneGroup *one)
{
	const GkModel *m = &one->model;
	HeapTuple	key = heap_form_tuple(g->key_desc, one->key, one->key_null);
	Datum		grp = FunctionCall1(&g->to_jsonb, heap_copy_tuple_as_datum(key, g->key_desc));
	Datum	   *centroid = palloc(g->d * sizeof(Datum));

	for (int c = 0; c < m->k; c++)
	{
		Datum		values[6];
		bool		nulls[6] = {false};

		for (int j = 0; j < g->d; j++)
			centroid[j] = Float8GetDatum(m->centroids[(Size) c * g->d + j]);
		values[0] = grp;
		values[1] = Int32GetDatum(c);
		values[2] = Int64GetDatum(m->size[c]);
		values[3] = PointerGetDatum(construct_array(centroid, g->d, FLOAT8OID, sizeof(float8),
													FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
		values[4] = Float8GetDatum(m->cluster_inertia[c]);
		values[5] = Float8GetDatum(m->radius[c]);
		tuplestore_putvalues(g->result->store, g->result->desc, values, nulls);
	}
}

static void
begin_batch(Grouped *g)
{
	g->cxt = AllocSetContextCreate(g->parent, "gkmeans groups", ALLOCSET_DEFAULT_SIZES);
	g->ngroups = g->room = 0;
	g->bytes = 0;
	g->groups = NULL;
	g->nbuckets = MIN_BUCKETS;
	g->buckets = MemoryContextAllocZero(g->cxt, g->nbuckets * sizeof(uint32));
}

/* Cluster the groups read so far and put their rows out. */
static void
finish_batch(Grouped *g)
{
	MemoryContext caller = MemoryContextSwitchTo(g->cxt);
	MemoryContext row_cxt;
	const GkHost *engine = gk_host_engine(g->host);
	Work		w = {.g = g};
	int64		small = 0;

	w.hosts = make_hosts(engine);
	w.groups = palloc_extended(Max(g->ngroups, 1) * sizeof(OneGroup *), MCXT_ALLOC_HUGE);
	for (int i = 0; i < g->ngroups; i++)
	{
		OneGroup   *one = g->groups[i];

		if (one->rows.n * g->d < GK_LARGE_GROUP && g->options->device != GK_DEVICE_GPU)
			w.groups[small++] = one;
		else
		{
			CHECK_FOR_INTERRUPTS();
			fit_one(g, one, engine, gk_choose_backend(g->host, g->options->device, one->rows.n, g->d,
													  g->options->engine.k));
			gk_check(g->host, one->status, &one->err);
		}
	}
	if (!gk_parallel_for(engine, small, fit_job, &w))
		gk_throw(g->host, GK_STOPPED, NULL);

	row_cxt = AllocSetContextCreate(g->cxt, "gkmeans group row", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(row_cxt);
	for (int i = 0; i < g->ngroups; i++)
	{
		gk_check(g->host, g->groups[i]->status, &g->groups[i]->err);
		emit_group(g, g->groups[i]);
		if (i % 64 == 63)
		{
			CHECK_FOR_INTERRUPTS();
			MemoryContextReset(row_cxt);
		}
	}
	/* what the large ones took is the host's */
	for (int i = 0; i < g->ngroups; i++)
		if (g->groups[i]->rows.n * g->d >= GK_LARGE_GROUP || g->options->device == GK_DEVICE_GPU)
			gk_model_free(engine, &g->groups[i]->model);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(g->cxt);
}

/* ---- groups ---- */

static uint32
key_hash(const Grouped *g, const Datum *values, const bool *nulls)
{
	uint32		hash = 0;

	for (int i = 0; i < g->nkeys; i++)
	{
		KeyColumn  *k = &g->keys[i];

		hash = (hash << 1) | (hash >> 31);
		if (!nulls[i])
			hash ^= DatumGetUInt32(FunctionCall1Coll(&k->hash, k->collation, values[i]));
	}
	return murmurhash32(hash);
}

static bool
same_key(const Grouped *g, const OneGroup *one, const Datum *values, const bool *nulls)
{
	for (int i = 0; i < g->nkeys; i++)
	{
		KeyColumn  *k = &g->keys[i];

		if (nulls[i] != one->key_null[i])
			return false;
		if (!nulls[i] && !DatumGetBool(FunctionCall2Coll(&k->equal, k->collation, one->key[i], values[i])))
			return false;
	}
	return true;
}

static void
grow_buckets(Grouped *g)
{
	uint32		n = g->nbuckets * 2;
	uint32	   *buckets = MemoryContextAllocExtended(g->cxt, (Size) n * sizeof(uint32),
													 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (int i = 0; i < g->ngroups; i++)
	{
		uint32		at = g->groups[i]->hash & (n - 1);

		while (buckets[at] != 0)
			at = (at + 1) & (n - 1);
		buckets[at] = i + 1;
	}
	pfree(g->buckets);
	g->buckets = buckets;
	g->nbuckets = n;
}

static OneGroup *
new_group(Grouped *g, uint32 hash, const Datum *values, const bool *nulls)
{
	MemoryContext caller = MemoryContextSwitchTo(g->cxt);
	OneGroup   *one = palloc0(sizeof(OneGroup));

	one->hash = hash;
	one->key = palloc(g->nkeys * sizeof(Datum));
	one->key_null = palloc(g->nkeys * sizeof(bool));
	for (int i = 0; i < g->nkeys; i++)
	{
		one->key_null[i] = nulls[i];
		one->key[i] = nulls[i] ? (Datum) 0 : datumCopy(values[i], g->keys[i].byval, g->keys[i].len);
	}
	gk_rows_init(&one->rows, g->cxt);
	if (g->ngroups == g->room)
	{
		g->room = Max(64, g->room * 2);
		g->groups = g->groups == NULL ? palloc(g->room * sizeof(OneGroup *)) :
			repalloc_huge(g->groups, (Size) g->room * sizeof(OneGroup *));
	}
	g->groups[g->ngroups++] = one;
	MemoryContextSwitchTo(caller);
	return one;
}

static OneGroup *
find_group(Grouped *g, const Datum *values, const bool *nulls)
{
	uint32		hash;
	uint32		at;

	if (g->ordered)
	{
		OneGroup   *last = g->ngroups > 0 ? g->groups[g->ngroups - 1] : NULL;

		if (last != NULL && same_key(g, last, values, nulls))
			return last;
		if (g->bytes > g->limit)
		{
			finish_batch(g);
			begin_batch(g);
		}
		return new_group(g, 0, values, nulls);
	}
	hash = key_hash(g, values, nulls);
	for (at = hash & (g->nbuckets - 1); g->buckets[at] != 0; at = (at + 1) & (g->nbuckets - 1))
	{
		OneGroup   *one = g->groups[g->buckets[at] - 1];

		if (one->hash == hash && same_key(g, one, values, nulls))
			return one;
	}
	g->buckets[at] = g->ngroups + 1;
	new_group(g, hash, values, nulls);
	if ((uint32) g->ngroups > g->nbuckets / 2)
		grow_buckets(g);
	return g->groups[g->ngroups - 1];
}

/* ---- rows ---- */

static void
set_features(Grouped *g, int d)
{
	if (g->d == 0)
	{
		if (d > GK_MAX_D)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("points must have at most %d features, not %d", GK_MAX_D, d)));
		gk_check_given_features(g->options, d);
		g->point = MemoryContextAlloc(g->parent, (d + 1) * sizeof(double));
		g->d = d;
	}
	if (d != g->d)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array in column \"%s\" has %d elements, but those before it have %d",
						g->source->columns[0], d, g->d)));
}

/* The row's features into g->point; false: a NULL. */
static bool
read_features(Grouped *g, const Datum *values, const bool *nulls)
{
	if (g->source->array)
	{
		ArrayType  *array;
		const double *x;
		int			d;

		if (nulls[0])
			return false;
		x = gk_array_point(values[0], &d, &array);
		if (x != NULL)
		{
			set_features(g, d);
			memcpy(g->point, x, d * sizeof(double));
		}
		if ((Pointer) array != DatumGetPointer(values[0]))
			pfree(array);
		return x != NULL;
	}
	set_features(g, g->source->ncolumns);
	for (int j = 0; j < g->d; j++)
	{
		if (nulls[j])
			return false;
		g->point[j] = DatumGetFloat8(values[j]);
	}
	return true;
}

static bool
read_weight(Grouped *g, Datum value, bool isnull)
{
	double		w = isnull ? 0.0 : DatumGetFloat8(value);

	if (!(w >= 0.0) || isinf(w))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("weight must be finite and at least 0, but column \"%s\" has %g",
						g->source->weight_column, w)));
	g->point[g->d] = w;
	return w > 0.0;
}

/* key columns, features, weight */
static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	Grouped    *g = (Grouped *) self;
	const Datum *values;
	const bool *nulls;
	int			width;

	slot_getallattrs(slot);
	values = slot->tts_values;
	nulls = slot->tts_isnull;
	if (!read_features(g, values + g->nkeys, nulls + g->nkeys))
	{
		g->counts.null_feature++;
		return true;
	}
	if (g->source->weighted)
	{
		int			at = g->nkeys + (g->source->array ? 1 : g->d);

		if (!read_weight(g, values[at], nulls[at]))
		{
			g->counts.no_weight++;
			return true;
		}
	}
	if (!gk_usable_point(g->point, g->d, g->options))
	{
		g->counts.nonfinite++;
		return true;
	}
	width = g->d + (g->source->weighted ? 1 : 0);
	memcpy(gk_rows_add(&find_group(g, values, nulls)->rows, width), g->point, width * sizeof(double));
	g->bytes += width * sizeof(double);
	g->over = !g->ordered && g->bytes > g->limit;
	return !g->over;
}

/* The key columns' functions, as soon as their types are known. */
static void
startup(DestReceiver *self, int operation, TupleDesc desc)
{
	Grouped    *g = (Grouped *) self;
	MemoryContext caller = MemoryContextSwitchTo(g->parent);

	g->key_desc = CreateTemplateTupleDesc(g->nkeys);
	for (int i = 0; i < g->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		TypeCacheEntry *type = lookup_type_cache(att->atttypid, TYPECACHE_HASH_PROC_FINFO | TYPECACHE_EQ_OPR_FINFO);

		if (!OidIsValid(type->hash_proc_finfo.fn_oid) || !OidIsValid(type->eq_opr_finfo.fn_oid))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("column \"%s\" is of type %s, which has no hash function",
							NameStr(att->attname), format_type_be(att->atttypid))));
		fmgr_info_copy(&g->keys[i].hash, &type->hash_proc_finfo, CurrentMemoryContext);
		fmgr_info_copy(&g->keys[i].equal, &type->eq_opr_finfo, CurrentMemoryContext);
		g->keys[i].collation = att->attcollation;
		g->keys[i].len = att->attlen;
		g->keys[i].byval = att->attbyval;
		TupleDescCopyEntry(g->key_desc, i + 1, desc, i + 1);
	}
	g->key_desc = BlessTupleDesc(g->key_desc);
	MemoryContextSwitchTo(caller);
}

static void
no_more(DestReceiver *self)
{
}

/* ---- the query ---- */

static char *
grouped_query(const Grouped *g, char **group_by)
{
	const GkSource *s = g->source;
	const char *cast = "::pg_catalog.float8";
	StringInfoData q;

	/* real[] on the way: vector types have a cast to no other array */
	if (s->array)
		cast = s->runs[0].type == GK_VALUE_FLOAT4 ? "::pg_catalog.float4[]::pg_catalog.float8[]" : "::pg_catalog.float8[]";
	initStringInfo(&q);
	appendStringInfoString(&q, "SELECT ");
	for (int i = 0; i < g->nkeys; i++)
		appendStringInfo(&q, "%s, ", quote_identifier(group_by[i]));
	for (int i = 0; i < s->ncolumns; i++)
		appendStringInfo(&q, "%s%s%s", i > 0 ? ", " : "", quote_identifier(s->columns[i]), cast);
	if (s->weighted)
		appendStringInfo(&q, ", %s::pg_catalog.float8", quote_identifier(s->weight_column));
	appendStringInfo(&q, " FROM %s", s->qualified);
	for (int i = 0; g->ordered && i < g->nkeys; i++)
		appendStringInfo(&q, "%s%s", i > 0 ? ", " : " ORDER BY ", quote_identifier(group_by[i]));
	return q.data;
}

static void
run_query(Grouped *g, const char *text)
{
	RawStmt    *raw = linitial_node(RawStmt, pg_parse_query(text));
	Query	   *query = linitial_node(Query, pg_analyze_and_rewrite_fixedparams(raw, text, NULL, 0, NULL));
	PlannedStmt *plan = pg_plan_query(query, text, CURSOR_OPT_PARALLEL_OK, NULL);
	QueryDesc  *desc = CreateQueryDesc(plan, text, GetActiveSnapshot(), InvalidSnapshot,
									   &g->pub, NULL, NULL, 0);

	memset(&g->counts, 0, sizeof(g->counts));
	begin_batch(g);
	ExecutorStart(desc, 0);
	gk_executor_run(desc);
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	if (g->over)
		MemoryContextDelete(g->cxt);
	else
		finish_batch(g);
}

/*
 * kmeans_grouped(relation regclass, group_by text[], columns text[], k int, <options>)
 * returns table (grp jsonb, cluster int, size bigint, centroid float8[], inertia float8, radius float8)
 */
Datum
kmeans_grouped(PG_FUNCTION_ARGS)
{
	Grouped		g = {0};
	GkFitOptions options;
	GkResult	result;
	char	  **columns;
	char	  **group_by;
	int			ncolumns;
	Const	   *record;

	gk_result_begin(fcinfo, &result);
	gk_require_arg(fcinfo, 0, "relation");
	gk_require_arg(fcinfo, 1, "group_by");
	gk_require_arg(fcinfo, 2, "columns");
	group_by = gk_column_names(PG_GETARG_ARRAYTYPE_P(1), &g.nkeys);
	columns = gk_column_names(PG_GETARG_ARRAYTYPE_P(2), &ncolumns);
	gk_parse_options(fcinfo, 4, gk_parse_k(fcinfo, 3), &options);
	g.source = gk_source_open(PG_GETARG_OID(0), columns, ncolumns, options.weight_column, NULL, false);
	for (int i = 0; i < g.nkeys; i++)
		if (get_attnum(g.source->relid, group_by[i]) == InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist",
							group_by[i], g.source->relname)));

	gk_apply_simd();
	g.pub.receiveSlot = receive_row;
	g.pub.rStartup = startup;
	g.pub.rShutdown = no_more;
	g.pub.rDestroy = no_more;
	g.pub.mydest = DestNone;
	g.options = &options;
	g.result = &result;
	g.keys = palloc0(g.nkeys * sizeof(KeyColumn));
	g.limit = gk_memory_limit_bytes();
	g.parent = CurrentMemoryContext;
	g.host = gk_host_begin();
	/* to_jsonb() looks at its argument's type */
	record = makeNullConst(RECORDOID, -1, InvalidOid);
	fmgr_info(F_TO_JSONB, &g.to_jsonb);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, list_make1(record),
											 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL), &g.to_jsonb);

	run_query(&g, grouped_query(&g, group_by));
	if (g.over)
	{
		g.ordered = true;
		g.over = false;
		run_query(&g, grouped_query(&g, group_by));
	}
	gk_notice_left_out(&g.counts);
	gk_host_end(g.host);
	return (Datum) 0;
}
