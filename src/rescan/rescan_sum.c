/*
 * rescan_sum.c - kmeans_passes(): a pass over several shards of this server, and one answer.
 *
 * Answers add up, so only their sum has to travel: O(k d) numbers for each server, however many
 * shards it has.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "relation/rel_rules.h"
#include "rescan/rescan.h"

#define FOR_COORDINATORS	"kmeans_passes() is for kmeans() on a distributed table, whose servers need the same version of gkmeans."

PG_FUNCTION_INFO_V1(kmeans_passes);

extern Datum kmeans_pass(PG_FUNCTION_ARGS);

typedef struct Sum
{
	const GkPass *pass;
	KmPgHost   *host;
	GkPassResult result;
	KmReadCounts counts;
	GkPassAnswererNames names;
} Sum;

/* The elements of an array without NULLs. */
static Datum *
elements(FunctionCallInfo fcinfo, int arg, const char *name, Oid type, int bytes, int *n)
{
	Datum	   *values;
	bool	   *nulls;

	km_require_arg(fcinfo, arg, name);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(arg), type, bytes, true, bytes == 8 ? TYPALIGN_DOUBLE : TYPALIGN_INT, &values, &nulls, n);
	for (int i = 0; i < *n; i++)
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain NULLs", name),
					 errhint(FOR_COORDINATORS)));
	return values;
}

/* kmeans_pass() of one of the relations, with the other arguments of this call. */
static bytea *
ask(FunctionCallInfo caller, Datum relation, Datum first)
{
	LOCAL_FCINFO(fcinfo, 6);

	InitFunctionCallInfoData(*fcinfo, caller->flinfo, 6, InvalidOid, NULL, NULL);
	for (int i = 0; i < 6; i++)
		fcinfo->args[i] = caller->args[i];
	fcinfo->args[0] = (NullableDatum) {relation, false};
	fcinfo->args[4] = (NullableDatum) {first, false};
	return DatumGetByteaPP(kmeans_pass(fcinfo));
}

static void
add(Sum *sum, bytea * answer)
{
	const GkHost *engine = km_host_engine(sum->host);
	GkPassAnswererNames names;
	KmReadCounts counts;
	GkPassResult result;
	GkError		err;

	km_pass_answer(engine, sum->pass, answer, &result, &counts, &names);
	km_check(sum->host, gk_pass_add(engine, sum->pass, &sum->result, &result, &err), &err);
	gk_pass_result_free(engine, &result);
	km_counts_add(&sum->counts, &counts);
	if (names.device[0] != '\0')
		sum->names = names;
}

/*
 * kmeans_passes(relations regclass[], columns text[], pass bytea, weight_column text,
 *				 first_rows bigint[], device text) returns bytea
 */
Datum
kmeans_passes(PG_FUNCTION_ARGS)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gkmeans shard", ALLOCSET_DEFAULT_SIZES);
	KmPassReading reading;
	GkPass		pass;
	Sum			sum = {&pass};
	int			n;
	int			nfirst;
	Datum	   *relation = elements(fcinfo, 0, "relations", REGCLASSOID, sizeof(Oid), &n);
	Datum	   *first = elements(fcinfo, 4, "first_rows", INT8OID, sizeof(int64), &nfirst);
	bytea	   *out;
	GkError		err;

	if (n != nfirst)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("there are %d relations, but %d first_rows", n, nfirst),
				 errhint("Each relation has the ordinal of its first row. " FOR_COORDINATORS)));
	km_require_arg(fcinfo, 2, "pass");
	km_pass_question(PG_GETARG_BYTEA_PP(2), &pass, &reading);
	if (pass.kind == GK_PASS_SAMPLE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("rows of a sample cannot be summed"),
				 errhint("Call kmeans_pass() for each relation.")));
	pass.weighted = !PG_ARGISNULL(3);
	sum.host = km_host_begin();
	km_check(sum.host, gk_pass_result_init(km_host_engine(sum.host), &pass, pass.prep != NULL ? pass.prep->d : 0,
										   &sum.result, &err), &err);
	for (int i = 0; i < n; i++)
	{
		MemoryContext caller = MemoryContextSwitchTo(context);

		add(&sum, ask(fcinfo, relation[i], first[i]));
		MemoryContextSwitchTo(caller);
		MemoryContextReset(context);
	}
	out = km_pass_answer_bytes(&pass, &sum.result, &sum.counts, &sum.names);
	km_host_end(sum.host);
	PG_RETURN_BYTEA_P(out);
}
