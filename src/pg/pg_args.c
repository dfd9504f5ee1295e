/*
 * pg_args.c - arguments of SQL functions, checked.
 *
 * Every error names the argument, the value it got and what is allowed.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "gkmeans.h"
#include "pg/pg.h"

void
km_require_arg(FunctionCallInfo fcinfo, int arg, const char *name)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be NULL", name)));
}

char *
km_parse_text(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

int
km_parse_int(FunctionCallInfo fcinfo, int arg, const char *name, int low, int high)
{
	int			value;

	km_require_arg(fcinfo, arg, name);
	value = PG_GETARG_INT32(arg);
	if (value < low || value > high)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 high == PG_INT32_MAX ? errmsg("%s must be at least %d, not %d", name, low, value) :
				 errmsg("%s must be between %d and %d, not %d", name, low, high, value)));
	return value;
}

int
km_parse_k(FunctionCallInfo fcinfo, int arg)
{
	int			k = km_parse_int(fcinfo, arg, "k", 1, PG_INT32_MAX);

	if (k > GK_MAX_K)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("k must be at most %d, not %d", GK_MAX_K, k)));
	return k;
}

/* Look a word up, or list the good ones. */
static int
find_word(const char *name, const char *word, const struct config_enum_entry *words)
{
	StringInfoData good;

	initStringInfo(&good);
	for (const struct config_enum_entry *w = words; w->name != NULL; w++)
	{
		if (pg_strcasecmp(word, w->name) == 0)
			return w->val;
		appendStringInfo(&good, "%s'%s'", good.len > 0 ? ", " : "", w->name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for %s: \"%s\"", name, word),
			 errhint("Use one of %s.", good.data)));
	return 0;					/* keep compiler quiet */
}

int
km_parse_word(FunctionCallInfo fcinfo, int arg, const char *name, const struct config_enum_entry *words)
{
	km_require_arg(fcinfo, arg, name);
	return find_word(name, km_parse_text(fcinfo, arg), words);
}

GkDeviceKind
km_parse_device(FunctionCallInfo fcinfo, int arg)
{
	char	   *word = km_parse_text(fcinfo, arg);

	return word != NULL ? find_word("device", word, gkmeans_device_words) : gkmeans_device;
}

bool
km_parse_nonfinite(FunctionCallInfo fcinfo, int arg)
{
	static const struct config_enum_entry words[] = {
		{"error", false, false},
		{"skip", true, false},
		{NULL, 0, false}
	};

	return km_parse_word(fcinfo, arg, "nonfinite", words);
}

MemoryContext
km_aggregate_context(FunctionCallInfo fcinfo, const char *function)
{
	MemoryContext cxt;

	if (!AggCheckCallContext(fcinfo, &cxt))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s is for aggregates only", function)));
	return cxt;
}
