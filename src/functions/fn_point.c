/*
 * fn_point.c - a point from the arguments of a function call.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "pg/pg_compat.h"
#include "functions/functions.h"
#include "relation/rel_types.h"

static bool
is_number(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID ||
		type == FLOAT4OID || type == FLOAT8OID || type == NUMERICOID;
}

/*
 * The cast of a type to real[], as value::real[] finds it: by the type alone, so no search_path
 * can put another function in its place.  False: the type has none.
 */
static bool
find_cast(KmeansPoint *p, Oid type)
{
	Oid			function;
	bool		varlena;

	if (!km_casts_to_reals(type))
		return false;
	switch (find_coercion_pathway(FLOAT4ARRAYOID, type, COERCION_EXPLICIT, &function))
	{
		case COERCION_PATH_FUNC:
			p->cast_kind = KM_CAST_FUNCTION;
			if (km_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
				aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
			break;
		case COERCION_PATH_COERCEVIAIO:
			p->cast_kind = KM_CAST_TEXT;
			getTypeOutputInfo(type, &function, &varlena);
			break;
		default:				/* WITHOUT FUNCTION: it is an array already */
			return true;
	}
	fmgr_info_cxt(function, &p->cast, p->cxt);
	return true;
}

/* value::real[].  False: that is NULL. */
static bool
cast_to_reals(KmeansPoint *p, Datum *value)
{
	LOCAL_FCINFO(call, 3);

	if (p->cast_kind == KM_CAST_TEXT)
	{
		*value = OidInputFunctionCall(F_ARRAY_IN, OutputFunctionCall(&p->cast, *value), FLOAT4OID, -1);
		return true;
	}
	/* with typmod and explicitness as far as the function wants them */
	InitFunctionCallInfoData(*call, &p->cast, p->cast.fn_nargs, InvalidOid, NULL, NULL);
	call->args[0].value = *value;
	call->args[1].value = Int32GetDatum(-1);
	call->args[2].value = BoolGetDatum(true);
	call->args[0].isnull = call->args[1].isnull = call->args[2].isnull = false;
	*value = FunctionCallInvoke(call);
	return !call->isnull;
}

/*
 * The type of an argument.  A call that was not made from an expression, as by
 * a distributed executor, has only the types that the function declares.
 */
static Oid
argument_type(FunctionCallInfo fcinfo, int arg)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, arg);
	Oid		   *declared;
	int			n;

	if (OidIsValid(type))
		return type;
	(void) get_func_signature(fcinfo->flinfo->fn_oid, &declared, &n);
	return arg < n && declared[arg] != ANYOID ? declared[arg] : InvalidOid;
}

/* For a type that a fit reads as a number, or as a whole point, or kmeans_mixed() as a category. */
static int
number_hint(Oid type, bool whole)
{
	KmColumnKind kind;

	if (!km_classify(type, &kind))
		return km_is_category(type) ? errhint("Categories are for kmeans_mixed(), and for kmeans_mixed_predict() of its models.") : 0;
	return whole || !kind.array ? errhint("A fit reads x of this type as %s: give that.", km_number_expression(type, "x")) : 0;
}

void
kmeans_point_init(KmeansPoint *p, FunctionCallInfo fcinfo, int first, int nargs, KmPointUse use, MemoryContext cxt)
{
	memset(p, 0, sizeof(*p));
	p->cxt = cxt;
	p->origin.use = use;
	p->first = first;
	p->nargs = nargs;
	p->types = MemoryContextAlloc(cxt, p->nargs * sizeof(Oid));
	p->floats = true;
	for (int i = 0; i < p->nargs; i++)
	{
		Oid			type = argument_type(fcinfo, first + i);
		Oid			base = OidIsValid(type) ? getBaseType(type) : InvalidOid;
		Oid			element = OidIsValid(base) ? get_element_type(base) : InvalidOid;

		p->types[i] = base;
		p->floats &= base == FLOAT4OID;
		if (is_number(base) || base == UNKNOWNOID)
			continue;
		if (p->nargs == 1 && OidIsValid(element))
		{
			p->whole = true;
			p->types[i] = getBaseType(element);
			if (is_number(p->types[i]))
				continue;
		}
		else if (p->nargs == 1 && OidIsValid(base) && (p->layout = km_vector_layout(base)) != KM_LAYOUT_ARRAY)
		{
			p->whole = true;
			p->types[i] = FLOAT4OID;
			continue;
		}
		else if (p->nargs == 1 && OidIsValid(base) && find_cast(p, base))
		{
			p->whole = true;
			p->types[i] = FLOAT4OID;
			continue;
		}
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("argument %d is of type %s, expected a number%s",
		/* an aggregate's state is not one that the user gave */
						first + i + (AggCheckCallContext(fcinfo, NULL) ? 0 : 1),
						OidIsValid(type) ? format_type_be(type) : "unknown",
						p->nargs == 1 ? " or an array of numbers" : ""),
		/* on the shards of Citus, aggregates are not told */
				 OidIsValid(type) ? number_hint(base, p->nargs == 1) : errhint("Cast the point to float8[].")));
	}
}

KmeansPoint *
kmeans_point_of_call(FunctionCallInfo fcinfo, int first, int nargs, KmPointUse use)
{
	FmgrInfo   *flinfo = fcinfo->flinfo;

	if (flinfo->fn_extra == NULL)
	{
		KmeansPoint *p = MemoryContextAlloc(flinfo->fn_mcxt, sizeof(KmeansPoint));

		kmeans_point_init(p, fcinfo, first, nargs, use, flinfo->fn_mcxt);
		flinfo->fn_extra = p;
	}
	return flinfo->fn_extra;
}

/* Make room for d features. */
static void
set_features(KmeansPoint *p, int d)
{
	km_check_most_features(d);
	if (p->values == NULL || d > p->capacity)
	{
		if (p->values != NULL)
			pfree(p->values);
		p->values = NULL;
		p->capacity = Max(d, 8);
		p->values = MemoryContextAlloc(p->cxt, p->capacity * (sizeof(double) + sizeof(bool)));
		p->missing = (bool *) (p->values + p->capacity);
	}
	if (p->partial)
		memset(p->missing, 0, d * sizeof(bool));
	p->d = d;
}

static KmValueType
value_type(Oid type)
{
	switch (type)
	{
		case INT2OID:
			return KM_VALUE_INT2;
		case INT4OID:
			return KM_VALUE_INT4;
		case INT8OID:
			return KM_VALUE_INT8;
		case FLOAT4OID:
			return KM_VALUE_FLOAT4;
		case NUMERICOID:
			return KM_VALUE_NUMERIC;
		default:
			return KM_VALUE_FLOAT8;
	}
}

static double
number(Datum value, Oid type)
{
	if (type == UNKNOWNOID)
		return DatumGetFloat8(DirectFunctionCall1(float8in, value));
	return km_value_of(value_type(type), value);
}

/* Room for any value with a short header, aligned. */
typedef union ShortArray
{
	ArrayType	array;
	char		bytes[VARATT_SHORT_MAX + VARHDRSZ];
	double		align;
} ShortArray;

/*
 * As DatumGetArrayTypeP(), but an array that is stored with a short header, as small
 * ones are, goes to the caller's room and not to one that is allocated for it.
 */
static ArrayType *
aligned_array(Datum datum, ShortArray *room)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(datum);
	Size		len;

	/* what lies elsewhere, in TOAST or as an expanded object, counts as short, too */
	if (!VARATT_IS_SHORT(v) || VARATT_IS_EXTERNAL(v))
		return DatumGetArrayTypeP(datum);
	len = VARSIZE_SHORT(v) - VARHDRSZ_SHORT;
	SET_VARSIZE(&room->array, len + VARHDRSZ);
	memcpy(VARDATA(&room->array), VARDATA_SHORT(v), len);
	return &room->array;
}

/*
 * Small stored float8[] of one dimension without NULLs, the most common points, are read
 * where they are, which is not aligned.  False: it is another array.
 */
static inline bool
read_short_float8(KmeansPoint *p, Datum datum)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(datum);
	KmArrayHead head;

	StaticAssertStmt(sizeof(head) == ARR_OVERHEAD_NONULLS(1) - VARHDRSZ, "values follow");
	if (!VARATT_IS_SHORT(v) || VARATT_IS_EXTERNAL(v) ||
		VARSIZE_SHORT(v) < VARHDRSZ_SHORT + sizeof(head))
		return false;
	memcpy(&head, VARDATA_SHORT(v), sizeof(head));
	if (head.ndim != 1 || head.dataoffset != 0)
		return false;
	set_features(p, head.d);
	memcpy(p->values, VARDATA_SHORT(v) + sizeof(head), head.d * sizeof(double));
	return true;
}

/* What a NULL feature becomes.  False: nothing, and the point may not lack it. */
static inline bool
fill_in(KmeansPoint *p, int j)
{
	bool		filled = p->fill.value != NULL && j < p->fill.d;

	p->values[j] = filled ? p->fill.value[j] : 0.0;
	if (p->partial)
		p->missing[j] = true;
	return filled || p->partial;
}

static bool
read_array(KmeansPoint *p, Datum datum, Oid type)
{
	ShortArray	room;
	ArrayType  *array = aligned_array(datum, &room);
	bool		complete = true;

	set_features(p, km_array_features(array, &p->origin));
	if (!ARR_HASNULL(array))
		(void) km_values_in(value_type(type), ARR_DATA_PTR(array), p->d, p->values);
	else
	{
		int16		len;
		bool		byval;
		char		align;
		Datum	   *elements;
		bool	   *nulls;
		int			n;

		get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
		deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &elements, &nulls, &n);
		for (int j = 0; j < n; j++)
		{
			if (nulls[j])
				complete &= fill_in(p, j);
			else
				p->values[j] = number(elements[j], type);
		}
		pfree(elements);
		pfree(nulls);
	}
	if ((Pointer) array != DatumGetPointer(datum) && array != &room.array)
		pfree(array);
	return complete;
}

static void
read_vector(KmeansPoint *p, Datum datum)
{
	struct varlena *v = PG_DETOAST_DATUM_PACKED(datum);

	set_features(p, km_valid_features(p->layout, VARDATA_ANY(v), VARSIZE_ANY_EXHDR(v), &p->origin));
	km_vector_values(p->layout, VARDATA_ANY(v), p->d, p->values);
	if ((Pointer) v != DatumGetPointer(datum))
		pfree(v);
}

/* An untyped literal is a whole point when it looks like an array, or like a vector of pgvector. */
static bool
is_array_literal(const char *s)
{
	while (isspace((unsigned char) *s))
		s++;
	return *s == '{' || *s == '[';
}

/*
 * '{1,2}' as a float8[].  '[1,2]' is how pgvector writes a vector, so it has that type's
 * precision and becomes '{1,2}' of real[]; '[0:1]={1,2}' is an array with bounds.
 */
static Datum
array_of_literal(const char *s, Oid *type)
{
	size_t		end = strlen(s);
	size_t		start = strspn(s, " \t\n\r\v\f");
	char	   *braces;

	*type = FLOAT8OID;
	while (end > start + 1 && isspace((unsigned char) s[end - 1]))
		end--;
	if (s[start] != '[' || s[end - 1] != ']')
		return OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, s), FLOAT8OID, -1);
	*type = FLOAT4OID;
	braces = pnstrdup(s + start, end - start);
	braces[0] = '{';
	braces[end - start - 1] = '}';
	return OidInputFunctionCall(F_ARRAY_IN, braces, FLOAT4OID, -1);
}

bool
kmeans_point_read_one(KmeansPoint *p, Datum value, bool isnull)
{
	if (isnull)
	{
		set_features(p, p->whole ? 0 : 1);
		return !p->whole && p->fill.d == 1 && fill_in(p, 0);
	}
	if (p->layout != KM_LAYOUT_ARRAY)
	{
		read_vector(p, value);
		return true;
	}
	if (p->cast_kind != KM_CAST_NONE && !cast_to_reals(p, &value))
	{
		set_features(p, 0);
		return false;
	}
	if (p->whole)
		return (p->types[0] == FLOAT8OID && read_short_float8(p, value)) || read_array(p, value, p->types[0]);
	if (p->types[0] == UNKNOWNOID && is_array_literal(DatumGetCString(value)))
	{
		Oid			type;
		Datum		array = array_of_literal(DatumGetCString(value), &type);

		return read_array(p, array, type);
	}
	set_features(p, 1);
	p->values[0] = number(value, p->types[0]);
	return true;
}

bool
kmeans_point_read(KmeansPoint *p, FunctionCallInfo fcinfo)
{
	bool		complete = true;

	if (p->nargs == 1)
		return kmeans_point_read_one(p, PG_GETARG_DATUM(p->first), PG_ARGISNULL(p->first));
	set_features(p, p->nargs);
	if (p->floats)
	{
		const NullableDatum *arg = &fcinfo->args[p->first];

		for (int j = 0; j < p->nargs; j++)
		{
			if (arg[j].isnull)
				complete &= fill_in(p, j);
			else
				p->values[j] = DatumGetFloat4(arg[j].value);
		}
		return complete;
	}
	for (int j = 0; j < p->nargs; j++)
	{
		if (PG_ARGISNULL(p->first + j))
			complete &= fill_in(p, j);
		else
			p->values[j] = number(PG_GETARG_DATUM(p->first + j), p->types[j]);
	}
	return complete;
}

void
km_point_features(Oid type, int d, const Datum *values, double *x)
{
	km_values_of(value_type(type), values, d, x);
}
