/*
 * grouped_output.c - the rows of kmeans_grouped(): a group's key as jsonb, and its
 * clusters.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/tuplestore.h"

#include "groups/grouped.h"

/* Groups whose memory is taken back at once. */
#define RESET_GROUPS	64

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

void
km_grouped_put(KmGrouped *g, const KmOneGroup *one)
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
