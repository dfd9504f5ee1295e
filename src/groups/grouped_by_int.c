/*
 * grouped_by_int.c - kmeans_grouped() by one column of whole numbers.
 *
 * The key is read like one more feature, so the rows come in batches and by the
 * page where they can (rel_heap.c), by several processes if the table is
 * large.  They are divided into partitions by their key (gk_key_partition.h); then threads
 * take the partitions, make groups of their rows and cluster them.
 *
 * These are left to the query of grouped.c: NULL as a key, which is a group of its own, keys
 * beyond 2^53, and points over gkmeans.memory_limit.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "core/groups/gk_key_partition.h"
#include "groups/grouped.h"

/* A key as heap_form_tuple() takes it. */
typedef struct Key
{
	Datum		value;
	bool		null;
} Key;

/* The groups of one partition, made by one thread. */
typedef struct PartitionGroups
{
	int			n;
	KmOneGroup *groups;
	GkStatus	status;
	GkError		err;
} PartitionGroups;

typedef struct ByKey
{
	KmGrouped  *g;
	Oid			type;			/* of the key */
	bool		may_be_null;
	GkKeyPartition *rows;
	int64		n;				/* of them */
	bool		give_up;		/* the query of grouped.c has to do it */
	PartitionGroups *partitions;	/* [GK_KEY_PARTITION_PARTS] */
} ByKey;

/* ---- rows into partitions ---- */

/* False: not a column of whole numbers. */
static bool
look_at_key(ByKey *b, const char *key)
{
	HeapTuple	tuple = SearchSysCacheAttName(b->g->source->relid, key);
	Form_pg_attribute att;

	if (!HeapTupleIsValid(tuple))
		return false;
	att = (Form_pg_attribute) GETSTRUCT(tuple);
	b->type = getBaseType(att->atttypid);
	/* a table that inherits may have NULLs where its parent has none */
	b->may_be_null = !att->attnotnull || (b->g->source->relkind == RELKIND_RELATION && has_subclass(b->g->source->relid));
	ReleaseSysCache(tuple);
	return b->type == INT2OID || b->type == INT4OID || b->type == INT8OID;
}

static GkStatus
take(void *arg, GkStore *store, const GkBatch *batch, GkError *err)
{
	ByKey	   *b = arg;
	GkStatus	st;

	/* the rest of the rows is not looked at */
	if (b->give_up)
		return GK_OK;
	st = gk_key_partition_add(b->rows, batch, err);
	b->n += batch->rows;
	if (st == GK_OK && gk_key_partition_bytes(b->rows) > b->g->limit)
		b->give_up = b->g->ordered = true;
	else if (st == GK_ERR_LIMIT)
		b->give_up = true;
	else
		return st;
	gk_key_partition_free(b->rows);
	b->rows = NULL;
	return GK_OK;
}

static void
read_rows(ByKey *b, char *key)
{
	KmGrouped  *g = b->g;
	int			n = g->source->ncolumns;
	char	  **columns = palloc((n + 1) * sizeof(char *));
	KmReadOptions read = {.distance = GK_EUCLIDEAN,.skip_nonfinite = g->options->skip_nonfinite,
	.take = take,.take_arg = b};
	KmTables	tables = {0};
	GkError		err;

	columns[0] = key;
	memcpy(columns + 1, g->source->columns, n * sizeof(char *));
	g->d = n;
	km_check(g->host,
			 gk_key_partition_create(km_host_engine(g->host), n + (g->source->weighted ? 1 : 0), &b->rows, &err),
			 &err);
	(void) km_read(g->host,
				   km_source_open(g->source->relid, columns, n + 1, g->source->weight_column, NULL, false),
				   &read, &g->counts, &tables);
	if (g->counts.null_feature > 0 && b->may_be_null)
		b->give_up = true;
}

/* ---- partitions into groups, groups into clusters ---- */

static Datum
key_datum(Oid type, int64 key)
{
	switch (type)
	{
		case INT2OID:
			return Int16GetDatum((int16) key);
		case INT4OID:
			return Int32GetDatum((int32) key);
		default:
			return Int64GetDatum(key);
	}
}

/* Points as doubles, one after the other. */
typedef struct Points
{
	const double *x;
	int			width;
} Points;

static const double *
point(const void *arg, int64_t i)
{
	const Points *p = arg;

	return p->x + i * p->width;
}

/* Keep a group for all threads together, or a GPU.  False: out of memory. */
static bool
keep_rows(const ByKey *b, int thread, const GkKeyGroups *from, int64 first, int64 n, int width, KmOneGroup *one)
{
	Size		values = n * width;
	double	   *kept = km_thread_keep(b->g->hosts, thread, values * sizeof(double));

	one->rows = km_thread_keep(b->g->hosts, thread, sizeof(KmGroupRows));
	if (kept == NULL || one->rows == NULL)
		return false;
	for (Size i = 0; i < values; i++)
		kept[i] = from->floats ? ((const float *) from->rows)[first * width + i]
			: ((const double *) from->rows)[first * width + i];
	km_group_rows_view(one->rows, kept, n, width);
	return true;
}

/* One group of a partition.  False: out of memory. */
static bool
make_group(const ByKey *b, int thread, const GkKeyGroups *from, int i, KmOneGroup *one)
{
	const KmGrouped *g = b->g;
	int			width = g->d + (g->source->weighted ? 1 : 0);
	int64		first = from->start[i];
	int64		n = from->start[i + 1] - first;
	Key		   *key = km_thread_keep(b->g->hosts, thread, sizeof(Key));
	GkGroupPoints points;
	Points		doubles;

	if (key == NULL)
		return false;
	*key = (Key) {key_datum(b->type, from->key[i]), false};
	one->key = &key->value;
	one->key_null = &key->null;
	if (g->gpu != NULL || !km_grouped_small(g, n))
		return keep_rows(b, thread, from, first, n, width, one);
	points = (GkGroupPoints) {from->floats ? NULL : point, &doubles, n, g->d, g->source->weighted};
	if (from->floats)
		points.arg = (const float *) from->rows + first * width;
	else
		doubles = (Points) {(const double *) from->rows + first * width, width};
	km_grouped_fit(g, thread, &points, one);
	return true;
}

static void
partition_job(void *arg, int64_t job, int thread)
{
	ByKey	   *b = arg;
	PartitionGroups *partition = &b->partitions[job];
	KmThreadMark mark = km_thread_mark(b->g->hosts, thread);
	GkKeyGroups groups;

	partition->status = gk_key_partition_groups(b->rows, (int) job, km_thread_host(b->g->hosts, thread), &groups, &partition->err);
	if (partition->status == GK_OK && groups.n > 0)
	{
		partition->groups = km_thread_keep(b->g->hosts, thread, groups.n * sizeof(KmOneGroup));
		if (partition->groups == NULL)
			partition->status = gk_fail(&partition->err, GK_ERR_MEMORY, "out of memory");
	}
	for (int i = 0; partition->status == GK_OK && i < groups.n; i++)
	{
		memset(&partition->groups[i], 0, sizeof(KmOneGroup));
		if (make_group(b, thread, &groups, i, &partition->groups[i]))
			partition->n++;
		else
			partition->status = gk_fail(&partition->err, GK_ERR_MEMORY, "out of memory");
	}
	km_thread_reset(b->g->hosts, thread, mark);
}

/* Put the groups into the batch, the small ones with their clusters. */
static void
cluster_partitions(ByKey *b)
{
	KmGroupHash *all = &b->g->groups;
	MemoryContext caller = MemoryContextSwitchTo(all->cxt);
	const GkHost *engine = km_host_engine(b->g->host);
	int64		n = 0;

	b->g->hosts = km_thread_hosts(engine);
	b->partitions = palloc0(GK_KEY_PARTITION_PARTS * sizeof(PartitionGroups));
	if (!gk_parallel_for(engine, GK_KEY_PARTITION_PARTS, partition_job, b))
		km_throw(b->g->host, GK_STOPPED, NULL);
	gk_key_partition_free(b->rows);
	for (int i = 0; i < GK_KEY_PARTITION_PARTS; i++)
	{
		km_check(b->g->host, b->partitions[i].status, &b->partitions[i].err);
		n += b->partitions[i].n;
	}
	all->groups = palloc_extended(Max(n, 1) * sizeof(KmOneGroup *), MCXT_ALLOC_HUGE);
	for (int i = 0; i < GK_KEY_PARTITION_PARTS; i++)
		for (int j = 0; j < b->partitions[i].n; j++)
			all->groups[all->n++] = &b->partitions[i].groups[j];
	MemoryContextSwitchTo(caller);
}

bool
km_grouped_by_int(KmGrouped *g, char *key)
{
	ByKey		b = {.g = g};

	if (g->source->array || g->source->ncolumns >= GKMEANS_MAX_COLUMNS ||
		g->options->engine.distance == GK_COSINE || !look_at_key(&b, key))
		return false;
	km_check_given_features(g->options, g->source->ncolumns);
	read_rows(&b, key);
	if (b.give_up)
	{
		gk_key_partition_free(b.rows);
		return false;
	}
	g->key_desc = CreateTemplateTupleDesc(1);
	TupleDescInitEntry(g->key_desc, 1, key, b.type, -1, 0);
	g->key_desc = BlessTupleDesc(g->key_desc);
	km_group_hash_types(&g->groups, 1, g->key_desc);
	km_group_hash_begin(&g->groups, g->parent);
	km_grouped_choose_gpu(g, b.n);
	cluster_partitions(&b);
	km_grouped_finish(g);
	return true;
}
