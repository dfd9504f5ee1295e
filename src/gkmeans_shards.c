/*
 * gkmeans_shards.c - distributed tables of Citus: every pass goes to the shards,
 * and a small answer comes back from each.
 *
 * Citus is known by its catalogs only.  A pass is a call of kmeans_pass() on each
 * shard, sent by run_command_on_shards(): every server reads its shards with its
 * own reader, threads and GPU.  Answers are exact, so it does not matter in which
 * order they are added up.
 *
 * Rows are counted in the order of the shards' numbers, and within a shard as in
 * any table: that is what random numbers hang on.
 *
 * Each call is a transaction of its own on the server of the shard, so there is no
 * common snapshot.  Rows that change on the way are noticed by the sums of the
 * next pass (gk_iterate.c).
 */
#include "postgres.h"

#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "gkmeans_pass.h"
#include "gkmeans_shards.h"

typedef struct Shards
{
	GkFit	   *fit;
	GkReadOptions read;
	int			n;
	int64	   *id;				/* [n] ascending */
	int64	   *first;			/* [n] ordinal of the first row; NULL: not known so far */
	GkPasserNames names;
} Shards;

typedef struct Ask
{
	Shards	   *shards;
	const GkPass *pass;
	GkPassResult *out;
} Ask;

/* ---- catalogs ---- */

static uint64
select_by_relation(const char *query, Oid relid)
{
	Oid			type = REGCLASSOID;
	Datum		value = ObjectIdGetDatum(relid);

	if (SPI_execute_with_args(query, 1, &type, &value, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the catalogs of Citus");
	return SPI_processed;
}

bool
gk_shards_distributed(Oid relid)
{
	bool		distributed;

	if (!OidIsValid(get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE)))
		return false;
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	/* 'n': reference tables and local ones, which are here */
	distributed = select_by_relation("SELECT FROM pg_catalog.pg_dist_partition "
									 "WHERE logicalrelid = $1 AND partmethod <> 'n'", relid) > 0;
	SPI_finish();
	return distributed;
}

static void
find_shards(Shards *s)
{
	MemoryContext context = gk_host_context(s->fit->host);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	s->n = (int) select_by_relation("SELECT shardid FROM pg_catalog.pg_dist_shard "
									"WHERE logicalrelid = $1 ORDER BY shardid", s->fit->source->relid);
	s->id = MemoryContextAlloc(context, Max(s->n, 1) * sizeof(int64));
	for (int i = 0; i < s->n; i++)
	{
		bool		isnull;

		s->id[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	}
	SPI_finish();
}

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

/*
 * The shard's number ends its name.  Dollar quotes, because a name may have single
 * ones.
 */
#define SHARD	"$gkmeans$%1$s$gkmeans$"

static char *
command(const Shards *s, const GkPass *pass)
{
	const GkSource *source = s->fit->source;
	GkPassReading reading = {s->read.distance, s->read.skip_nonfinite, s->read.expect_d};
	bytea	   *bytes = gk_pass_bytes(pass, &reading);
	StringInfoData c;

	initStringInfo(&c);
	appendStringInfoString(&c, "SELECT ");
	append_escaped(&c, quote_qualified_identifier(s->fit->schema, "kmeans_pass"));
	appendStringInfoString(&c, "(" SHARD "::pg_catalog.regclass, ARRAY[");
	for (int i = 0; i < source->ncolumns; i++)
	{
		appendStringInfoString(&c, i > 0 ? ", " : "");
		append_escaped(&c, quote_literal_cstr(source->columns[i]));
	}
	appendStringInfoString(&c, "]::pg_catalog.text[], '\\x");
	enlargeStringInfo(&c, VARSIZE_ANY_EXHDR(bytes) * 2);
	c.len += (int) hex_encode(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes), c.data + c.len);
	c.data[c.len] = '\0';
	appendStringInfoString(&c, "'::pg_catalog.bytea, ");
	if (source->weighted)
		append_escaped(&c, quote_literal_cstr(source->weight_column));
	else
		appendStringInfoString(&c, "NULL");
	if (s->first != NULL)
	{
		appendStringInfoString(&c, ", (");
		append_list(&c, s->first, s->n);
		appendStringInfoString(&c, ")[pg_catalog.array_position(");
		append_list(&c, s->id, s->n);
		appendStringInfoString(&c, ", pg_catalog.substring(" SHARD ", '_([0-9]+)\"?$')::pg_catalog.int8)]");
	}
	else
		appendStringInfoString(&c, ", 0");
	appendStringInfo(&c, ", '%s')", gkmeans_device_words[s->fit->options.device].name);
	return c.data;
}

/* ---- the answers ---- */

static int
find_shard(const Shards *s, int64 id)
{
	for (int i = 0; i < s->n; i++)
		if (s->id[i] == id)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("shard " INT64_FORMAT " is not one of \"%s\"", id, s->fit->source->relname),
			 errhint("The shards have changed meanwhile; call the function again.")));
}

static bytea *
result_bytes(const Shards *s, HeapTuple row, TupleDesc desc)
{
	char	   *id = SPI_getvalue(row, desc, 1);
	char	   *success = SPI_getvalue(row, desc, 2);
	char	   *result = SPI_getvalue(row, desc, 3);

	if (success == NULL || success[0] != 't' || result == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("shard %s of \"%s\" gave no answer", id != NULL ? id : "", s->fit->source->relname),
				 errdetail("%s", result != NULL && result[0] != '\0' ? result : "There was no reason given."),
				 errhint("All servers need the extension gkmeans of the same version.")));
	return DatumGetByteaPP(DirectFunctionCall1(byteain, CStringGetDatum(result)));
}

static void
add_counts(GkReadCounts *to, const GkReadCounts *from)
{
	to->null_feature += from->null_feature;
	to->nonfinite += from->nonfinite;
	to->no_direction += from->no_direction;
	to->no_weight += from->no_weight;
}

/* Answers of all shards are in SPI_tuptable. */
static void
add_answers(Ask *a)
{
	Shards	   *s = a->shards;
	GkPgHost   *host = s->fit->host;
	const GkHost *engine = gk_host_engine(host);
	GkReadCounts counts = {0};
	int64	   *rows = palloc0(Max(s->n, 1) * sizeof(int64));
	GkError		err;

	gk_check(host, gk_pass_result_init(engine, a->pass, a->pass->prep != NULL ? a->pass->prep->d : 0, a->out, &err), &err);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		bytea	   *bytes = result_bytes(s, row, SPI_tuptable->tupdesc);
		bool		isnull;
		int			at = find_shard(s, DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull)));
		GkReadCounts part_counts;
		GkPasserNames names;
		GkPassResult part;

		gk_pass_answer(engine, a->pass, bytes, &part, &part_counts, &names);
		rows[at] = part.rows;
		gk_check(host, gk_pass_add(engine, a->pass, a->out, &part, &err), &err);
		gk_pass_result_free(engine, &part);
		add_counts(&counts, &part_counts);
		if (names.device[0] != '\0')
			s->names = names;
	}
	if (SPI_processed != (uint64) s->n)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("%llu of %d shards of \"%s\" answered",
						(unsigned long long) SPI_processed, s->n, s->fit->source->relname)));
	if (s->first == NULL)
	{
		int64		next = 0;

		s->fit->counts = counts;
		s->first = MemoryContextAlloc(gk_host_context(host), Max(s->n, 1) * sizeof(int64));
		for (int i = 0; i < s->n; i++)
		{
			s->first[i] = next;
			next += rows[i];
		}
	}
}

static void
answer(void *arg)
{
	Ask		   *a = arg;
	Oid			types[2] = {REGCLASSOID, TEXTOID};
	Datum		values[2];

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	values[0] = ObjectIdGetDatum(a->shards->fit->source->relid);
	values[1] = CStringGetTextDatum(command(a->shards, a->pass));
	if (SPI_execute_with_args("SELECT shardid::pg_catalog.int8, success, result "
							  "FROM pg_catalog.run_command_on_shards($1, $2)",
							  2, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not send a command to the shards");
	add_answers(a);
	SPI_finish();
}

/* ---- as the engine sees it ---- */

static GkStatus
ask(void *ctx, const GkPass *pass, const GkLabelSink *sink, GkPassResult *out, GkError *err)
{
	Shards	   *s = ctx;
	Ask			a = {s, pass, out};

	if (sink != NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "no labels of shards");
	if (!gk_host_guard(s->fit->host, answer, &a))
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
gk_shards_rows(GkFit *fit, const GkReadOptions *read, GkRows *rows)
{
	Shards	   *s = MemoryContextAllocZero(gk_host_context(fit->host), sizeof(Shards));

	s->fit = fit;
	s->read = *read;
	find_shards(s);
	rows->ctx = s;
	rows->pass = ask;
	rows->describe = describe;
}
