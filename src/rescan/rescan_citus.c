/*
 * rescan_citus.c - distributed tables of Citus, and foreign tables of postgres_fdw: every pass goes to the
 * servers that have the shards, and a small answer comes back from each.
 *
 * Citus is known by its catalogs only.  A pass is a call of kmeans_pass() on each server, for all its shards, and
 * kmeans_step() calls itself there for each: every server reads its shards with its own reader, threads
 * and GPU (rescan_nodes.c).  Answers are exact, so they may be added up in any order.
 *
 * Rows are numbered in the order of the shards' numbers, and within a shard as in any table:
 * random numbers depend on that.
 *
 * A job is a transaction of its own on each server, with one snapshot there.  It would wait for
 * what this transaction has locked, for ever, since no server sees both ends of the wait:
 * refuse_own_changes().
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "core/quality/gk_quality.h"
#include "relation/rel_rules.h"
#include "rescan/rescan.h"

extern Datum kmeans_model_out(PG_FUNCTION_ARGS);
extern Datum kmeans_state_in(PG_FUNCTION_ARGS);

typedef struct Shards
{
	KmRescanOf	of;
	KmReadOptions read;
	int			n;
	KmNodes    *nodes;
	int64	   *first;			/* [n + 1] ordinal of the first row; NULL: not known so far */
	bool		numbered;		/* the servers know them */
	GkPassAnswererNames names;
} Shards;

typedef struct Ask
{
	Shards	   *shards;
	const GkPass *pass;
	GkPassResult *out;
	KmReadCounts counts;
	int64	   *rows;			/* [n] of each shard */
} Ask;

/* ---- the shards ---- */

/*
 * TRUNCATE, most of ALTER TABLE and CREATE TABLE lock their shards as they lock the table here, until the
 * transaction ends; rows that are inserted, updated or deleted are seen by this transaction only.
 * Citus has no rows of a partitioned table but in its partitions.
 */
static void
refuse_own_changes(const KmSource *source)
{
	const char *name = km_changed_here(source->relid);

	if (name != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("\"%s\" was created, changed or locked by this transaction, so its shards cannot be read", name),
				 errdetail("Shards are read by transactions of their own, which would wait for this one, or not see its rows."),
				 errhint("Commit first.")));
}

/* Returns how many there are. */
static int
find_shards(const KmSource *source, MemoryContext context, KmShard **shard)
{
	refuse_own_changes(source);
	return source->distributed ? km_citus_shards(source->relid, context, shard) :
		km_foreign_shards(source, context, shard);
}

KmNodes *
km_citus_nodes(const KmSource *source, MemoryContext context)
{
	KmShard    *shard;
	int			n;

	n = find_shards(source, context, &shard);
	return km_nodes_open(source, n, shard, context);
}

/* ---- a pass ---- */

/* Arguments have exactly the types of our functions, so that no other function of that schema fits better. */
static void
ask_pass(Shards *s, const GkPass *pass, void (*take) (void *arg, const int *shard, int n, bytea * answer), void *arg)
{
	const KmSource *source = s->of.source;
	KmPassReading reading = {s->read.distance, s->read.skip_nonfinite, s->read.expect_d};
	bytea	   *bytes = km_pass_bytes(pass, &reading);
	KmNodesParam param[] = {
		{TEXTARRAYOID, km_nodes_array(source->columns, source->ncolumns)},
		{BYTEAOID, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes)},
		{TEXTOID, source->weight_column},
		{TEXTOID, gkmeans_device_words[s->of.device].name}
	};

	/* the first pass names the shards and finds how many rows each has, the second one numbers the rows */
	KmNodesQuery query = {
		psprintf("SELECT %s($1::pg_catalog.regclass[], $3, $4, $5, $2, $6)", quote_qualified_identifier(s->of.schema, "kmeans_pass")),
		s->first == NULL, s->numbered ? NULL : s->first, lengthof(param), param
	};

	s->numbered = s->first != NULL;
	km_nodes_ask(s->nodes, &query, true, take, arg);
}

/* How many rows of the sample some shards have. */
static int
sampled_rows(const Shards *s, const GkPass *pass, const int *shard, int n)
{
	int64		rows = 0;

	for (int i = 0; i < n; i++)
		rows += gk_quality_stratum(pass->all_rows, pass->sample, s->first[shard[i] + 1]) -
			gk_quality_stratum(pass->all_rows, pass->sample, s->first[shard[i]]);
	return (int) rows;
}

static void
add_answer(void *arg, const int *shard, int n, bytea * bytes)
{
	Ask		   *a = arg;
	KmPgHost   *host = a->shards->of.host;
	GkPass		pass = *a->pass;
	const GkHost *engine = km_host_engine(host);
	KmPassAnswer answer = {.n = n,.rows = palloc(n * sizeof(int64))};
	GkError		err;

	if (pass.kind == GK_PASS_SAMPLE)
		pass.want = sampled_rows(a->shards, &pass, shard, n);
	km_pass_answer(engine, &pass, bytes, &answer);
	for (int i = 0; pass.kind == GK_PASS_STATS && i < n; i++)
		a->rows[shard[i]] = answer.rows[i];
	km_check(host, gk_pass_add(engine, a->pass, a->out, &answer.result, &err), &err);
	gk_pass_result_free(engine, &answer.result);
	pfree(answer.rows);
	km_counts_add(&a->counts, &answer.counts);
	if (answer.names.device[0] != '\0')
		a->shards->names = answer.names;
}

/* Number the rows, now that it is known how many each shard has. */
static void
number_rows(Shards *s, const int64 *rows)
{
	int64		next = 0;

	s->first = MemoryContextAlloc(km_host_context(s->of.host), (s->n + 1) * sizeof(int64));
	for (int i = 0; i < s->n; i++)
	{
		s->first[i] = next;
		next += rows[i];
	}
	s->first[s->n] = next;
}

static void
answer(void *arg)
{
	Ask		   *a = arg;
	Shards	   *s = a->shards;
	KmPgHost   *host = s->of.host;
	GkError		err;

	a->rows = palloc0(Max(s->n, 1) * sizeof(int64));
	km_check(host, gk_pass_result_init(km_host_engine(host), a->pass, a->pass->prep != NULL ? a->pass->prep->d : 0,
									   a->out, &err), &err);
	ask_pass(s, a->pass, add_answer, a);
	if (s->first == NULL)
	{
		*s->of.counts = a->counts;
		number_rows(s, a->rows);
	}
}

/* ---- as the engine sees it ---- */

static GkStatus
ask(void *ctx, const GkPass *pass, const GkLabelSink *sink, GkPassResult *out, GkError *err)
{
	Shards	   *s = ctx;
	Ask			a = {.shards = s,.pass = pass,.out = out};

	if (sink != NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "no labels of shards");
	if (!km_host_guard(s->of.host, answer, &a))
		return gk_fail(err, GK_ERR_HOST, "could not ask the shards");
	return GK_OK;
}

static void
describe(void *ctx, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	const Shards *s = ctx;

	strlcpy(device, s->names.device, device_len);
	snprintf(strategy, strategy_len, "%d shard%s, %s", s->n, s->n == 1 ? "" : "s", s->names.strategy);
}

void
km_citus_rows(const KmRescanOf *of, const KmReadOptions *read, GkRows *rows)
{
	Shards	   *s = MemoryContextAllocZero(km_host_context(of->host), sizeof(Shards));
	KmShard    *shard;

	s->of = *of;
	s->read = *read;
	s->n = find_shards(of->source, km_host_context(of->host), &shard);
	s->nodes = km_nodes_open(of->source, s->n, shard, km_host_context(of->host));
	km_progress_begin(km_host_context(of->host), of->source->relid);
	rows->ctx = s;
	rows->pass = ask;
	rows->describe = describe;
}

/* ---- kmeans_step() of all shards ---- */

static void
add_state(void *arg, const int *shard, int n, bytea * answer)
{
	KmeansStep **sum = arg;
	KmeansStep *step;

	if (VARSIZE_ANY_EXHDR(answer) == 0)
		return;
	step = kmeans_step_from_datum(DirectFunctionCall1(kmeans_state_in, CStringGetDatum(text_to_cstring((text *) answer))));
	if (*sum == NULL)
		*sum = step;
	else
	{
		*sum = kmeans_step_merge(*sum, step);
		pfree(step);
	}
}

KmeansStep *
km_citus_step(const KmSource *source, const char *schema, const KmeansModel *model, bool skip_nonfinite,
			  GkDeviceKind device)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gkmeans nodes", ALLOCSET_DEFAULT_SIZES);
	KmNodesParam param[] = {
		{TEXTARRAYOID, km_nodes_array(source->columns, source->ncolumns)},
		{InvalidOid, DatumGetCString(DirectFunctionCall1(kmeans_model_out, PointerGetDatum(model)))},
		{TEXTOID, source->weight_column},
		{TEXTOID, skip_nonfinite ? "skip" : "error"},
		{TEXTOID, gkmeans_device_words[device].name}
	};
	KmNodesQuery query = {
		psprintf("SELECT coalesce(%s(s.name::pg_catalog.regclass, $3, $4::%s, $5, $6, $7)::pg_catalog.text, '') " KM_NODES_SHARDS,
				 quote_qualified_identifier(schema, "kmeans_step"), quote_qualified_identifier(schema, "kmeans_model")),
		true, NULL, lengthof(param), param
	};
	KmeansStep *sum = NULL;

	km_nodes_ask(km_citus_nodes(source, context), &query, false, add_state, &sum);
	MemoryContextDelete(context);
	return sum;
}
