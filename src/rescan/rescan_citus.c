/*
 * rescan_citus.c - distributed tables of Citus: every pass goes to the shards,
 * and a small answer comes back from each.
 *
 * Citus is known by its catalogs only.  A pass is a call of kmeans_pass() on each shard, and
 * kmeans_step() calls itself there, by run_command_on_shards(): every server reads its shards
 * with its own reader, threads and GPU.  Answers are exact, so they may be
 * added up in any order.
 *
 * Rows are numbered in the order of the shards' numbers, and within a shard as in any table:
 * random numbers depend on that.
 *
 * Each call is a transaction of its own on the server of the shard, so there is no
 * common snapshot.  The sums of the next pass reveal rows that change in between
 * (gk_pass_backend.c).
 */
#include "postgres.h"

#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "rescan/rescan.h"
#include "relation/rel_rules.h"

extern Datum kmeans_model_out(PG_FUNCTION_ARGS);
extern Datum kmeans_state_in(PG_FUNCTION_ARGS);

typedef struct Shards
{
	KmRescanOf	of;
	KmReadOptions read;
	int			n;
	int64	   *id;				/* [n] ascending */
	int64	   *first;			/* [n] ordinal of the first row; NULL: not known so far */
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

/* ---- the command ---- */

/* run_command_on_shards() puts the command through format(). */
static void
append_escaped(StringInfo out, const char *s)
{
	for (; *s != '\0'; s++)
	{
		appendStringInfoChar(out, *s);
		if (*s == '%')
			appendStringInfoChar(out, '%');
	}
}

static void
append_list(StringInfo out, const int64 *v, int n)
{
	appendStringInfoString(out, "'{");
	for (int i = 0; i < n; i++)
		appendStringInfo(out, "%s" INT64_FORMAT, i > 0 ? "," : "", v[i]);
	appendStringInfoString(out, "}'::pg_catalog.int8[]");
}

/* The shard's name, quoted as a literal by format(). */
#define SHARD	"%1$L::pg_catalog.text"

/* Arguments have exactly the types of our functions, so that no other function of that schema fits better. */
static void
append_text(StringInfo out, const char *s)
{
	if (s != NULL)
		append_escaped(out, quote_literal_cstr(s));
	else
		appendStringInfoString(out, "NULL");
	appendStringInfoString(out, "::pg_catalog.text");
}

/*
 * Citus leaves the schema public out.  The search_path over there must not find
 * another relation of this name.
 */
static void
append_shard(StringInfo out, Oid relid)
{
	if (strcmp(get_namespace_name(get_rel_namespace(relid)), "public") == 0)
		appendStringInfoString(out, "pg_catalog.regexp_replace(" SHARD ", '^(public[.])?', 'public.')::pg_catalog.regclass");
	else
		appendStringInfoString(out, SHARD "::pg_catalog.regclass");
}

/* A call up to its columns. */
static void
begin_call(StringInfo c, const char *schema, const char *function, const KmSource *source)
{
	append_escaped(c, quote_qualified_identifier(schema, function));
	appendStringInfoChar(c, '(');
	append_shard(c, source->relid);
	appendStringInfoString(c, ", ARRAY[");
	for (int i = 0; i < source->ncolumns; i++)
	{
		appendStringInfoString(c, i > 0 ? ", " : "");
		append_text(c, source->columns[i]);
	}
	appendStringInfoString(c, "]::pg_catalog.text[], ");
}

static char *
pass_command(const Shards *s, const GkPass *pass)
{
	const KmSource *source = s->of.source;
	KmPassReading reading = {s->read.distance, s->read.skip_nonfinite, s->read.expect_d};
	bytea	   *bytes = km_pass_bytes(pass, &reading);
	StringInfoData c;

	initStringInfo(&c);
	appendStringInfoString(&c, "SELECT ");
	begin_call(&c, s->of.schema, "kmeans_pass", source);
	appendStringInfoString(&c, "pg_catalog.decode('");
	enlargeStringInfo(&c, VARSIZE_ANY_EXHDR(bytes) * 2);
	c.len += (int) hex_encode(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes), c.data + c.len);
	c.data[c.len] = '\0';
	appendStringInfoString(&c, "', 'hex'), ");
	append_text(&c, source->weight_column);
	if (s->first != NULL)
	{
		appendStringInfoString(&c, ", (");
		append_list(&c, s->first, s->n);
		appendStringInfoString(&c, ")[pg_catalog.array_position(");
		append_list(&c, s->id, s->n);
		appendStringInfoString(&c, ", " KM_CITUS_NUMBER_OF(SHARD) ")]");
	}
	else
		appendStringInfoString(&c, ", 0::pg_catalog.int8");
	appendStringInfoString(&c, ", ");
	append_text(&c, gkmeans_device_words[s->of.device].name);
	appendStringInfoChar(&c, ')');
	return c.data;
}

static char *
step_command(const KmSource *source, const char *schema, const KmeansModel *model, bool skip_nonfinite,
			 GkDeviceKind device)
{
	StringInfoData c;

	initStringInfo(&c);
	appendStringInfoString(&c, "SELECT coalesce(");
	begin_call(&c, schema, "kmeans_step", source);
	append_escaped(&c, quote_literal_cstr(DatumGetCString(DirectFunctionCall1(kmeans_model_out, PointerGetDatum(model)))));
	appendStringInfoString(&c, "::");
	append_escaped(&c, quote_qualified_identifier(schema, "kmeans_model"));
	appendStringInfoString(&c, ", ");
	append_text(&c, source->weight_column);
	appendStringInfoString(&c, ", ");
	append_text(&c, skip_nonfinite ? "skip" : "error");
	appendStringInfoString(&c, ", ");
	append_text(&c, gkmeans_device_words[device].name);
	appendStringInfoString(&c, ")::pg_catalog.text, '')");
	return c.data;
}

/* ---- the answers ---- */

/*
 * Have all shards run a command; take() gets their answers, in any order.
 * run_command_on_shards() looks up its own operators and functions by search_path.
 */
static void
run(const KmSource *source, int shards, const char *command,
	void (*take) (void *arg, int64 id, const char *result), void *arg)
{
	Oid			types[2] = {REGCLASSOID, TEXTOID};
	Datum		values[2];
	int			guc_level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	values[0] = ObjectIdGetDatum(source->relid);
	values[1] = CStringGetTextDatum(command);
	if (SPI_execute_with_args("SELECT shardid::pg_catalog.int8, success, result "
							  "FROM pg_catalog.run_command_on_shards($1, $2)",
							  2, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not send a command to the shards");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		char	   *success = SPI_getvalue(row, desc, 2);
		char	   *result = SPI_getvalue(row, desc, 3);
		bool		isnull;
		int64		id = DatumGetInt64(SPI_getbinval(row, desc, 1, &isnull));

		if (success == NULL || success[0] != 't' || result == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
					 errmsg("shard " INT64_FORMAT " of \"%s\" gave no answer", id, source->relname),
					 errdetail("%s", result != NULL && result[0] != '\0' ? result : "There was no reason given."),
					 errhint("It is the shard's server that says so. All servers need the extension gkmeans of the same version.")));
		take(arg, id, result);
	}
	if (SPI_processed != (uint64) shards)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("%llu of %d shards of \"%s\" answered",
						(unsigned long long) SPI_processed, shards, source->relname)));
	SPI_finish();
	AtEOXact_GUC(true, guc_level);
}

/* ---- a pass ---- */

static int
find_shard(const Shards *s, int64 id)
{
	for (int i = 0; i < s->n; i++)
		if (s->id[i] == id)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("shard " INT64_FORMAT " is not one of \"%s\"", id, s->of.source->relname),
			 errhint("The shards have changed meanwhile; call the function again.")));
}

static void
add_answer(void *arg, int64 id, const char *result)
{
	Ask		   *a = arg;
	KmPgHost   *host = a->shards->of.host;
	const GkHost *engine = km_host_engine(host);
	bytea	   *bytes = DatumGetByteaPP(DirectFunctionCall1(byteain, CStringGetDatum(result)));
	int			at = find_shard(a->shards, id);
	KmReadCounts counts;
	GkPassAnswererNames names;
	GkPassResult of_shard;
	GkError		err;

	km_pass_answer(engine, a->pass, bytes, &of_shard, &counts, &names);
	a->rows[at] = of_shard.rows;
	km_check(host, gk_pass_add(engine, a->pass, a->out, &of_shard, &err), &err);
	gk_pass_result_free(engine, &of_shard);
	km_counts_add(&a->counts, &counts);
	if (names.device[0] != '\0')
		a->shards->names = names;
}

/* Number the rows, now that it is known how many each shard has. */
static void
number_rows(Shards *s, const int64 *rows)
{
	int64		next = 0;

	s->first = MemoryContextAlloc(km_host_context(s->of.host), Max(s->n, 1) * sizeof(int64));
	for (int i = 0; i < s->n; i++)
	{
		s->first[i] = next;
		next += rows[i];
	}
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
	run(s->of.source, s->n, pass_command(s, a->pass), add_answer, a);
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

	s->of = *of;
	s->read = *read;
	s->n = km_citus_shards(of->source->relid, km_host_context(of->host), &s->id);
	rows->ctx = s;
	rows->pass = ask;
	rows->describe = describe;
}

/* ---- kmeans_step() of all shards ---- */

typedef struct Steps
{
	KmeansStep *sum;			/* NULL: no rows so far */
	MemoryContext context;		/* of it */
} Steps;

static void
add_state(void *arg, int64 id, const char *result)
{
	Steps	   *s = arg;
	MemoryContext spi = MemoryContextSwitchTo(s->context);

	if (result[0] != '\0')
	{
		KmeansStep *step = kmeans_step_from_datum(DirectFunctionCall1(kmeans_state_in, CStringGetDatum(result)));

		if (s->sum == NULL)
			s->sum = step;
		else
		{
			s->sum = kmeans_step_merge(s->sum, step);
			pfree(step);
		}
	}
	MemoryContextSwitchTo(spi);
}

KmeansStep *
km_citus_step(const KmSource *source, const char *schema, const KmeansModel *model, bool skip_nonfinite,
			  GkDeviceKind device)
{
	Steps		s = {NULL, CurrentMemoryContext};
	int64	   *id;
	int			n = km_citus_shards(source->relid, s.context, &id);

	run(source, n, step_command(source, schema, model, skip_nonfinite, device), add_state, &s);
	return s.sum;
}
