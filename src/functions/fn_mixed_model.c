/*
 * fn_mixed_model.c - the model of kmeans_mixed_fit(), and kmeans_mixed_predict().
 *
 * A model is jsonb: for users to read, the centroids as kmeans_mixed() shows them; for predicting, each column's
 * preparation and each cluster's prepared means and modes.  Numbers have all their digits, so a row of the fit
 * gets the label that it had there.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "core/gk_numerics.h"
#include "functions/functions.h"
#include "functions/mixed.h"
#include "functions/mixed_dictionary.h"
#include "relation/rel_types.h"

PG_FUNCTION_INFO_V1(kmeans_mixed_predict);

#define VERSION		1
#define MOST_SHARES	10			/* of a category in a centroid */

float
km_mixed_prepare(const KmMixedColumn *column, double value)
{
	if (!isfinite(value))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("value of column \"%s\" is not finite", column->name)));
	return gk_to_grid(gk_centre_scale(value, column->center, column->scale), gk_grid_magic(column->expo));
}

/* ---- writing ---- */

static void
push_key(JsonbParseState **state, const char *key)
{
	JsonbValue	v;

	v.type = jbvString;
	v.val.string.val = unconstify(char *, key);
	v.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &v);
}

static void
push_text(JsonbParseState **state, JsonbIteratorToken token, const text * t)
{
	JsonbValue	v;

	v.type = jbvString;
	v.val.string.val = VARDATA_ANY(t);
	v.val.string.len = VARSIZE_ANY_EXHDR(t);
	pushJsonbValue(state, token, &v);
}

/* All digits, whatever extra_float_digits says: a cast to numeric rounds to 15. */
static void
push_number(JsonbParseState **state, JsonbIteratorToken token, double number)
{
	char		digits[DOUBLE_SHORTEST_DECIMAL_LEN];
	JsonbValue	v;

	double_to_shortest_decimal_buf(number, digits);
	v.type = jbvNumeric;
	v.val.numeric = DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(digits), ObjectIdGetDatum(InvalidOid),
														Int32GetDatum(-1)));
	pushJsonbValue(state, token, &v);
}

static void
push_bool(JsonbParseState **state, bool b)
{
	JsonbValue	v;

	v.type = jbvBool;
	v.val.boolean = b;
	pushJsonbValue(state, WJB_VALUE, &v);
}

/* The most frequent categories of a cluster, by their shares. */
static void
push_shares(JsonbParseState **state, const GkMixed *m, const KmMixedColumn *column, int category, int cluster)
{
	const int32_t *count = m->counts[category] + (size_t) cluster * m->codes[category];
	int			best[MOST_SHARES];
	int			n = 0;

	for (int v = 0; v < m->codes[category]; v++)
	{
		int			at = n;

		if (count[v] == 0)
			continue;
		while (at > 0 && count[v] > count[best[at - 1]])
			at--;
		if (at == MOST_SHARES)
			continue;
		n = Min(n + 1, MOST_SHARES);
		memmove(best + at + 1, best + at, (n - 1 - at) * sizeof(int));
		best[at] = v;
	}
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < n; i++)
	{
		push_text(state, WJB_KEY, column->categories[best[i]]);
		push_number(state, WJB_VALUE, rint((double) count[best[i]] / m->size[cluster] * 1e6) / 1e6);
	}
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

/* A mean in original units: of values near the end of double precision it may be rounded beyond that. */
static double
mean_of(const KmMixedColumn *c, double prepared)
{
	double		mean = c->center + prepared / c->scale;

	if (!isfinite(mean))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("mean of column \"%s\" is out of the range of double precision", c->name),
				 errhint("Divide the column by a constant.")));
	return mean;
}

static JsonbValue *
push_centroid(JsonbParseState **state, const GkMixed *m, const KmMixedColumn *columns, int ncolumns, int cluster)
{
	int			number = 0;
	int			category = 0;

	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < ncolumns; i++)
	{
		const KmMixedColumn *c = &columns[i];

		push_key(state, c->name);
		if (c->number)
			push_number(state, WJB_VALUE, mean_of(c, m->exact[(size_t) cluster * m->d + number++]));
		else
		{
			pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
			push_key(state, "mode");
			push_text(state, WJB_VALUE, c->categories[m->mode[(size_t) cluster * m->c + category]]);
			push_key(state, "shares");
			push_shares(state, m, c, category++, cluster);
			pushJsonbValue(state, WJB_END_OBJECT, NULL);
		}
	}
	return pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

Jsonb *
km_mixed_centroid(const GkMixed *m, const KmMixedColumn *columns, int ncolumns, int cluster)
{
	JsonbParseState *state = NULL;

	return JsonbValueToJsonb(push_centroid(&state, m, columns, ncolumns, cluster));
}

static void
push_column(JsonbParseState **state, const KmMixedColumn *c)
{
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	push_key(state, "name");
	push_text(state, WJB_VALUE, cstring_to_text(c->name));
	push_key(state, "number");
	push_bool(state, c->number);
	if (c->number)
	{
		push_key(state, "center");
		push_number(state, WJB_VALUE, c->center);
		push_key(state, "scale");
		push_number(state, WJB_VALUE, c->scale);
		push_key(state, "expo");
		push_number(state, WJB_VALUE, c->expo);
	}
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

/* means: the prepared ones. */
static void
push_cluster(JsonbParseState **state, const GkMixed *m, const KmMixedColumn *columns, int ncolumns, int cluster)
{
	int			category = 0;

	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	push_key(state, "size");
	push_number(state, WJB_VALUE, (double) m->size[cluster]);
	push_key(state, "cost");
	push_number(state, WJB_VALUE, m->spent[cluster]);
	push_key(state, "centroid");
	push_centroid(state, m, columns, ncolumns, cluster);
	push_key(state, "means");
	pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
	for (int j = 0; j < m->d; j++)
		push_number(state, WJB_ELEM, m->mean[(size_t) cluster * m->d + j]);
	pushJsonbValue(state, WJB_END_ARRAY, NULL);
	push_key(state, "modes");
	pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < ncolumns; i++)
		if (!columns[i].number)
			push_text(state, WJB_ELEM, columns[i].categories[m->mode[(size_t) cluster * m->c + category++]]);
	pushJsonbValue(state, WJB_END_ARRAY, NULL);
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

Jsonb *
km_mixed_model(const GkMixed *m, const KmMixedColumn *columns, int ncolumns)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_key(&state, "kmeans_mixed");
	push_number(&state, WJB_VALUE, VERSION);
	push_key(&state, "rows");
	push_number(&state, WJB_VALUE, (double) m->n);
	push_key(&state, "gamma");
	push_number(&state, WJB_VALUE, m->gamma);
	push_key(&state, "cost");
	push_number(&state, WJB_VALUE, m->objective);
	push_key(&state, "iterations");
	push_number(&state, WJB_VALUE, m->iterations);
	push_key(&state, "converged");
	push_bool(&state, m->converged);
	push_key(&state, "columns");
	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < ncolumns; i++)
		push_column(&state, &columns[i]);
	pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	push_key(&state, "clusters");
	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < m->k; i++)
	{
		CHECK_FOR_INTERRUPTS();
		push_cluster(&state, m, columns, ncolumns, i);
	}
	pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* ---- reading ---- */

/* A model as it is predicted with.  A mode is its text; modes of one column that are equal have one code. */
typedef struct Parsed
{
	MemoryContext cxt;
	Jsonb	   *model;			/* what it was read from */
	int			ncolumns;
	KmMixedColumn *column;
	int			d;
	int			c;
	int			k;
	float		gamma;
	float	   *mean;			/* [k][d] */
	int32	   *mode;			/* [k][c] */
	KmMixedDictionary *modes;	/* [c] */
	float	   *x;				/* [d] of the row */
	int32	   *code;			/* [c] */
	Oid		   *type;			/* [ncolumns] of the arguments, base types */
} Parsed;

static void
bad_model(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("model is not one of kmeans_mixed_fit(): %s", what)));
}

static void
bad_member(const char *key)
{
	bad_model(psprintf("\"%s\" is missing or of another type", key));
}

/* The value of a key, which must have that type. */
static JsonbValue
member(JsonbContainer * object, const char *key, enum jbvType type)
{
	JsonbValue	found;
	JsonbValue *v = NULL;

	if (JsonContainerIsObject(object))
		v = getKeyJsonValueFromContainer(object, key, strlen(key), &found);
	if (v == NULL || v->type != type)
		bad_member(key);
	return *v;
}

static double
to_double(const JsonbValue *v, const char *key)
{
	if (v->type != jbvNumeric)
		bad_member(key);
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(v->val.numeric)));
}

static double
number_member(JsonbContainer * object, const char *key)
{
	JsonbValue	v = member(object, key, jbvNumeric);

	return to_double(&v, key);
}

static JsonbContainer *
array_member(JsonbContainer * object, const char *key)
{
	JsonbValue	v = member(object, key, jbvBinary);

	if (!JsonContainerIsArray(v.val.binary.data))
		bad_member(key);
	return v.val.binary.data;
}

static JsonbContainer *
object_at(JsonbContainer * array, int i, const char *key)
{
	JsonbValue *v = getIthJsonbValueFromContainer(array, i);

	if (v == NULL || v->type != jbvBinary || !JsonContainerIsObject(v->val.binary.data))
		bad_member(key);
	return v->val.binary.data;
}

static void
parse_column(Parsed *p, JsonbContainer * object, KmMixedColumn *c)
{
	JsonbValue	name = member(object, "name", jbvString);
	JsonbValue	number = member(object, "number", jbvBool);

	c->name = pnstrdup(name.val.string.val, name.val.string.len);
	c->number = number.val.boolean;
	if (c->number)
	{
		double		expo = number_member(object, "expo");

		c->center = number_member(object, "center");
		c->scale = number_member(object, "scale");
		if (!(fabs(expo) <= GK_TOP_EXPO) || expo != rint(expo) || !isfinite(c->center) || !isnormal(c->scale) || c->scale <= 0.0)
			bad_model("a column's center, scale or expo is out of range");
		c->expo = (int) expo;
		p->d++;
	}
	else
		p->c++;
}

/* The code of a category among a column's modes, or -1. */
static int32
mode_code(const Parsed *p, int j, const char *value, int len)
{
	KmMixedKey	key = km_mixed_key(value, len);

	return km_mixed_find(&p->modes[j], &key)->code;
}

static int32
add_mode(Parsed *p, int j, const char *value, int len)
{
	KmMixedKey	key = km_mixed_key(value, len);

	return km_mixed_code(&p->modes[j], &key);
}

static void
parse_cluster(Parsed *p, JsonbContainer * object, int cluster)
{
	JsonbContainer *means = array_member(object, "means");
	JsonbContainer *modes = array_member(object, "modes");

	if (JsonContainerSize(means) != p->d || JsonContainerSize(modes) != p->c)
		bad_model("a cluster has another number of means or modes than there are columns");
	for (int j = 0; j < p->d; j++)
	{
		float	   *mean = &p->mean[(Size) cluster * p->d + j];

		*mean = (float) to_double(getIthJsonbValueFromContainer(means, j), "means");
		if (!isfinite(*mean))
			bad_model("a mean is out of range");
	}
	for (int j = 0; j < p->c; j++)
	{
		JsonbValue *v = getIthJsonbValueFromContainer(modes, j);

		if (v->type != jbvString)
			bad_member("modes");
		p->mode[(Size) cluster * p->c + j] = add_mode(p, j, v->val.string.val, v->val.string.len);
	}
}

static void
parse_model(Parsed *p)
{
	JsonbContainer *root = &p->model->root;
	JsonbContainer *columns;
	JsonbContainer *clusters;
	double		gamma;

	if (number_member(root, "kmeans_mixed") != VERSION)
		bad_model("it is of another version");
	gamma = number_member(root, "gamma");
	/* the fit has rounded it to float32, the greatest one up */
	if (!(gamma >= 0.0 && gamma <= (float) MOST_GAMMA))
		bad_model("gamma is out of range");
	p->gamma = (float) gamma;
	columns = array_member(root, "columns");
	clusters = array_member(root, "clusters");
	p->ncolumns = JsonContainerSize(columns);
	p->k = JsonContainerSize(clusters);
	if (p->ncolumns < 1 || p->ncolumns > GKMEANS_MAX_COLUMNS || p->k < 1)
		bad_model("it has no columns, too many, or no clusters");
	p->column = palloc0(p->ncolumns * sizeof(KmMixedColumn));
	for (int i = 0; i < p->ncolumns; i++)
		parse_column(p, object_at(columns, i, "columns"), &p->column[i]);
	/* each mean and mode has a JEntry: no memory is asked for those that are not there */
	if ((uint64) p->k * (p->d + p->c) * sizeof(JEntry) > VARSIZE(p->model))
		bad_model("a cluster has another number of means or modes than there are columns");
	p->mean = palloc((Size) p->k * (p->d + 1) * sizeof(float));
	p->mode = palloc((Size) p->k * (p->c + 1) * sizeof(int32));
	p->modes = palloc((p->c + 1) * sizeof(KmMixedDictionary));
	for (int j = 0; j < p->c; j++)
		km_mixed_dictionary_begin(&p->modes[j], p->cxt);
	p->x = palloc((p->d + 1) * sizeof(float));
	p->code = palloc((p->c + 1) * sizeof(int32));
	for (int i = 0; i < p->k; i++)
	{
		CHECK_FOR_INTERRUPTS();
		parse_cluster(p, object_at(clusters, i, "clusters"), i);
	}
}

/* ---- predicting ---- */

/* Are these the types that the columns ask for? */
static void
check_arguments(FunctionCallInfo fcinfo, Parsed *p)
{
	int			given = PG_NARGS() - 1;

	if (given != p->ncolumns)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("different numbers of values: %d in the row, %d columns in the model", given, p->ncolumns)));
	p->type = palloc(p->ncolumns * sizeof(Oid));
	for (int i = 0; i < p->ncolumns; i++)
	{
		Oid			type = get_fn_expr_argtype(fcinfo->flinfo, i + 1);

		p->type[i] = OidIsValid(type) ? getBaseType(type) : InvalidOid;
		if (p->column[i].number ? km_mixed_is_number(p->type[i]) : km_is_category(p->type[i]))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("argument %d is of type %s, but column \"%s\" of the model is a %s", i + 2,
						OidIsValid(type) ? format_type_be(type) : "unknown", p->column[i].name,
						p->column[i].number ? "number" : "category"),
				 errhint("Cast it to %s.", p->column[i].number ? "float8" : "text")));
	}
}

/* The call's model, read once as long as it stays the same. */
static Parsed *
model_of_call(FunctionCallInfo fcinfo)
{
	FmgrInfo   *flinfo = fcinfo->flinfo;
	Parsed	   *p = flinfo->fn_extra;
	Jsonb	   *model = PG_GETARG_JSONB_P(0);
	MemoryContext cxt;
	MemoryContext caller;

	if (p != NULL && VARSIZE(p->model) == VARSIZE(model) && memcmp(p->model, model, VARSIZE(model)) == 0)
		return p;
	if (p != NULL)
	{
		flinfo->fn_extra = NULL;
		MemoryContextDelete(p->cxt);
	}
	cxt = AllocSetContextCreate(flinfo->fn_mcxt, "gkmeans mixed model", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(cxt);
	p = palloc0(sizeof(Parsed));
	p->cxt = cxt;
	p->model = palloc(VARSIZE(model));
	memcpy(p->model, model, VARSIZE(model));
	parse_model(p);
	check_arguments(fcinfo, p);
	MemoryContextSwitchTo(caller);
	flinfo->fn_extra = p;
	return p;
}

/* As the cast to text of the fit's query has it. */
static int32
category_code(const Parsed *p, int j, Oid type, Datum value)
{
	Oid			output;
	bool		varlena;
	char	   *s;
	int32		code;

	if (type == BOOLOID)
		return mode_code(p, j, DatumGetBool(value) ? "true" : "false", DatumGetBool(value) ? 4 : 5);
	if (type == BPCHAROID)
		value = DirectFunctionCall1(rtrim1, value);
	if (type == TEXTOID || type == VARCHAROID || type == BPCHAROID)
	{
		text	   *t = DatumGetTextPP(value);

		return mode_code(p, j, VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t));
	}
	getTypeOutputInfo(type, &output, &varlena);
	s = OidOutputFunctionCall(output, value);
	code = mode_code(p, j, s, strlen(s));
	pfree(s);
	return code;
}

static void
take_row(FunctionCallInfo fcinfo, Parsed *p)
{
	int			number = 0;
	int			category = 0;

	for (int i = 0; i < p->ncolumns; i++)
		if (p->column[i].number)
			p->x[number++] = km_mixed_prepare(&p->column[i], km_mixed_number(p->type[i], PG_GETARG_DATUM(i + 1)));
		else
		{
			p->code[category] = category_code(p, category, p->type[i], PG_GETARG_DATUM(i + 1));
			category++;
		}
}

/*
 * kmeans_mixed_predict(model jsonb, VARIADIC row "any") returns int: NULL for a NULL.  A category that no cluster
 * has for its mode, also one that the fit has not seen, differs from all.
 */
Datum
kmeans_mixed_predict(PG_FUNCTION_ARGS)
{
	float		least = INFINITY;
	int			label = 0;
	Parsed	   *p;
	GkError		err = {0};

	if (get_fn_expr_variadic(fcinfo->flinfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("kmeans_mixed_predict() takes the values of a row one by one, not VARIADIC")));
	for (int i = 0; i < PG_NARGS(); i++)
		if (PG_ARGISNULL(i))
			PG_RETURN_NULL();
	p = model_of_call(fcinfo);
	take_row(fcinfo, p);
	for (int i = 0; i < p->k; i++)
	{
		float		cost = gk_mixed_cost(p->x, p->code, p->mean + (Size) i * p->d, p->mode + (Size) i * p->c,
										 p->d, p->c, p->gamma);

		if (cost < least)
		{
			least = cost;
			label = i;
		}
	}
	/* costs beyond float32 do not tell the clusters apart */
	if (unlikely(gk_is_far(least)))
		km_throw(NULL, gk_fail_far(&err), &err);
	PG_RETURN_INT32(label);
}
