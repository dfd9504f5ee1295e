/*
 * grouped_citus.c - kmeans_grouped() of a distributed table: every server clusters the groups of its
 * shards, and their clusters come here.
 *
 * That is possible where the rows of each group are in one shard: where the distribution column
 * is one of group_by, or there is one shard.  Shards are asked by kmeans_grouped_part(), with the arguments of
 * this call.  Groups come with their keys as JSON and are put in the order of the keys, as those of any table.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/rel.h"

#include "groups/grouped.h"
#include "rescan/rescan.h"

#define ANSWER_COLUMNS	6

/* The argument of kmeans_grouped() whose type is ours. */
#define ARG_WARM_START	6

typedef struct Answer
{
	KmGrouped  *g;
	char	  **group_by;
	FmgrInfo   *key_in;			/* [nkeys] */
	Oid		   *key_type;		/* argument of key_in */
	/* The group that is coming. */
	bool		begun;
	Datum	   *key;			/* [nkeys], in context */
	bool	   *key_null;
	MemoryContext context;
	int			k;
	int			room;
	double	   *centroids;		/* [room][d] */
	double	   *inertia;		/* [room] */
	double	   *radius;
	int64	   *size;
} Answer;

static void
bad_answer(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
			 errmsg("a server's clusters of groups have %s that cannot be", what),
			 errhint("All servers need the extension gkmeans of the same version, in the same schema.")));
}

/* ---- keys ---- */

/* Does JSON have all of a value that this type's input function takes? */
static bool
survives_json(Oid type)
{
	switch (getBaseType(type))
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case UUIDOID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return true;
		default:
			return get_typtype(getBaseType(type)) == TYPTYPE_ENUM;
	}
}

/* The key columns, and how their values are read.  False: one would not come back as it is. */
static bool
look_at_keys(Answer *a)
{
	KmGrouped  *g = a->g;
	Relation	rel = table_open(g->source->relid, NoLock);
	TupleDesc	desc = CreateTemplateTupleDesc(g->nkeys);
	bool		good = true;

	a->key_in = palloc(g->nkeys * sizeof(FmgrInfo));
	a->key_type = palloc(g->nkeys * sizeof(Oid));
	for (int i = 0; i < g->nkeys; i++)
	{
		AttrNumber	number = get_attnum(g->source->relid, a->group_by[i]);
		Oid			in;

		good = good && number > 0 && survives_json(TupleDescAttr(rel->rd_att, number - 1)->atttypid);
		if (!good)
			break;
		TupleDescCopyEntry(desc, i + 1, rel->rd_att, number);
		getTypeInputInfo(TupleDescAttr(desc, i)->atttypid, &in, &a->key_type[i]);
		fmgr_info(in, &a->key_in[i]);
	}
	table_close(rel, NoLock);
	if (good)
	{
		km_group_hash_types(&g->groups, g->nkeys, desc);
		g->key_desc = BlessTupleDesc(desc);
	}
	return good;
}

/* The text of a scalar; NULL: NULL. */
static char *
scalar(const JsonbValue *v)
{
	switch (v->type)
	{
		case jbvString:
			return pnstrdup(v->val.string.val, v->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(v->val.numeric)));
		case jbvBool:
			return pstrdup(v->val.boolean ? "true" : "false");
		default:
			return NULL;
	}
}

static void
read_keys(Answer *a, const char *json)
{
	Jsonb	   *grp = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));

	MemoryContextReset(a->context);
	if (!JB_ROOT_IS_OBJECT(grp))
		bad_answer("a key");
	for (int i = 0; i < a->g->nkeys; i++)
	{
		JsonbValue	value;
		char	   *text;
		MemoryContext caller;

		if (getKeyJsonValueFromContainer(&grp->root, a->group_by[i], strlen(a->group_by[i]), &value) == NULL)
			bad_answer("a key");
		text = scalar(&value);
		a->key_null[i] = text == NULL;
		caller = MemoryContextSwitchTo(a->context);
		a->key[i] = InputFunctionCall(&a->key_in[i], text, a->key_type[i], -1);
		MemoryContextSwitchTo(caller);
	}
}

/* ---- groups ---- */

/* Put the group that has come into the batch. */
static void
end_group(Answer *a)
{
	KmGrouped  *g = a->g;
	KmOneGroup *one;
	Size		kd = (Size) a->k * g->d;

	if (!a->begun)
		return;
	one = km_group_hash_add(&g->groups, 0, a->key, a->key_null);
	one->k = a->k;
	one->centroids = MemoryContextAllocHuge(g->groups.cxt, (kd + 3 * (Size) a->k) * sizeof(double));
	one->inertia = one->centroids + kd;
	one->radius = one->inertia + a->k;
	one->size = (int64_t *) (one->radius + a->k);
	memcpy(one->centroids, a->centroids, kd * sizeof(double));
	memcpy(one->inertia, a->inertia, a->k * sizeof(double));
	memcpy(one->radius, a->radius, a->k * sizeof(double));
	memcpy(one->size, a->size, a->k * sizeof(int64));
	a->begun = false;
}

static void *
grow(const Answer *a, void *from, Size old_bytes, Size bytes)
{
	void	   *to = MemoryContextAllocHuge(a->g->parent, bytes);

	if (from == NULL)
		return to;
	memcpy(to, from, old_bytes);
	pfree(from);
	return to;
}

static void
more_room(Answer *a)
{
	int			room = a->room == 0 ? 8 : 2 * a->room;
	Size		d = a->g->d;

	a->centroids = grow(a, a->centroids, a->k * d * sizeof(double), room * d * sizeof(double));
	a->inertia = grow(a, a->inertia, a->k * sizeof(double), room * sizeof(double));
	a->radius = grow(a, a->radius, a->k * sizeof(double), room * sizeof(double));
	a->size = grow(a, a->size, a->k * sizeof(int64), room * sizeof(int64));
	a->room = room;
}

static double
number(const char *text)
{
	return DatumGetFloat8(DirectFunctionCall1(float8in, CStringGetDatum(text)));
}

/* The numbers of a float8[]; returns how many there are. */
static int
numbers(const char *text, const double **values)
{
	ArrayType  *array = DatumGetArrayTypeP(OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, text), FLOAT8OID, -1));

	if (ARR_NDIM(array) != 1 || ARR_HASNULL(array))
		bad_answer("numbers");
	*values = (const double *) ARR_DATA_PTR(array);
	return ARR_DIMS(array)[0];
}

static void
add_counts(KmGrouped *g, const char *text)
{
	const double *n;

	if (numbers(text, &n) != 4)
		bad_answer("counts");
	km_counts_add(&g->counts, &(KmReadCounts) {(int64) n[0], (int64) n[1], (int64) n[2], (int64) n[3]});
}

static void
take_row(void *arg, char **value)
{
	Answer	   *a = arg;
	KmGrouped  *g = a->g;
	const double *centroid;
	int			cluster;
	int			d;

	if (value[3] == NULL)
		bad_answer("no numbers");
	if (value[1] == NULL)
	{
		end_group(a);
		add_counts(g, value[3]);
		return;
	}
	for (int i = 0; i < ANSWER_COLUMNS; i++)
		if (value[i] == NULL)
			bad_answer("NULLs");
	cluster = pg_strtoint32(value[1]);
	d = numbers(value[3], &centroid);
	if (g->d != 0 && d != g->d)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("some points have %d features, others %d", g->d, d)));
	g->d = d;
	if (cluster == 0)
	{
		end_group(a);
		read_keys(a, value[0]);
		a->begun = true;
		a->k = 0;
	}
	if (!a->begun || cluster != a->k)
		bad_answer("numbers");
	if (a->k == a->room)
		more_room(a);
	memcpy(a->centroids + (Size) a->k * d, centroid, d * sizeof(double));
	a->size[a->k] = DatumGetInt64(DirectFunctionCall1(int8in, CStringGetDatum(value[2])));
	a->inertia[a->k] = number(value[4]);
	a->radius[a->k] = number(value[5]);
	a->k++;
}

/* ---- the question ---- */

/* The arguments of this call but the first, as they are. */
static char *
arguments(FunctionCallInfo fcinfo, const char *model, KmNodesParam *param)
{
	Oid		   *types;
	int			nargs;
	StringInfoData list;

	(void) get_func_signature(fcinfo->flinfo->fn_oid, &types, &nargs);
	initStringInfo(&list);
	for (int i = 1; i < nargs; i++)
	{
		Oid			send;
		bool		varlena;

		param[i - 1].type = i == ARG_WARM_START ? InvalidOid : types[i];
		if (!PG_ARGISNULL(i))
		{
			bytea	   *bytes;

			/* not as text, which depends on settings */
			getTypeBinaryOutputInfo(types[i], &send, &varlena);
			bytes = OidSendFunctionCall(send, PG_GETARG_DATUM(i));
			param[i - 1].value = VARDATA(bytes);
			param[i - 1].bytes = VARSIZE(bytes) - VARHDRSZ;
		}
		appendStringInfo(&list, i == ARG_WARM_START ? ", $%d::%s" : ", $%d", i + 2, model);
	}
	return list.data;
}

bool
km_grouped_by_nodes(KmGrouped *g, char **group_by, FunctionCallInfo fcinfo)
{
	Answer		a = {.g = g,.group_by = group_by};
	KmNodesParam param[KM_NODES_PARAMS] = {{0}};
	MemoryContext nodes;
	KmNodesQuery query = {.names = true,.nparams = fcinfo->nargs - 1,.param = param};
	char	   *schema;

	if (!g->source->distributed || !km_citus_groups_stay(g->source->relid, group_by, g->nkeys) || !look_at_keys(&a))
		return false;
	a.key = palloc(g->nkeys * sizeof(Datum));
	a.key_null = palloc(g->nkeys * sizeof(bool));
	a.context = AllocSetContextCreate(g->parent, "gkmeans key", ALLOCSET_SMALL_SIZES);
	km_group_hash_begin(&g->groups, g->parent);
	schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
	query.sql = psprintf("SELECT g.grp, g.cluster, g.size, g.centroid, g.inertia, g.radius " KM_NODES_SHARDS
						 ", LATERAL %s(s.name::pg_catalog.regclass%s) AS g",
						 quote_qualified_identifier(schema, "kmeans_grouped_part"),
						 arguments(fcinfo, quote_qualified_identifier(schema, "kmeans_model"), param));
	nodes = AllocSetContextCreate(g->parent, "gkmeans nodes", ALLOCSET_DEFAULT_SIZES);
	km_nodes_rows(km_citus_nodes(g->source, nodes), &query, ANSWER_COLUMNS, take_row, &a);
	MemoryContextDelete(nodes);
	km_grouped_finish(g);
	return true;
}

void
km_grouped_put_counts(const KmGrouped *g)
{
	const double n[] = {g->counts.null_feature, g->counts.nonfinite, g->counts.no_direction, g->counts.no_weight};
	Datum		values[ANSWER_COLUMNS] = {0};
	bool		nulls[ANSWER_COLUMNS] = {true, true, true, false, true, true};

	values[3] = km_float8_array(n, lengthof(n));
	tuplestore_putvalues(g->result->store, g->result->desc, values, nulls);
}
