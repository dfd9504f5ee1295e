/*
 * rel_types.c - which types can be features, and how a query makes numbers of them.
 *
 * What has one meaning as a number is taken as that: a boolean is 0 or 1, a moment or a span of
 * time is in seconds, a point is its coordinates.  Text, categories and the like have several, so
 * the user has to say which.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "relation/rel_types.h"

typedef struct TypeRow
{
	Oid			scalar;
	Oid			array;
	KmValueType type;
} TypeRow;

static const TypeRow type_table[] = {
	{FLOAT8OID, FLOAT8ARRAYOID, KM_VALUE_FLOAT8},
	{FLOAT4OID, FLOAT4ARRAYOID, KM_VALUE_FLOAT4},
	{INT4OID, INT4ARRAYOID, KM_VALUE_INT4},
	{INT8OID, INT8ARRAYOID, KM_VALUE_INT8},
	{INT2OID, INT2ARRAYOID, KM_VALUE_INT2},
	{NUMERICOID, NUMERICARRAYOID, KM_VALUE_NUMERIC},
};

Oid
km_base_type(Oid type)
{
	Oid			base = getBaseType(type);
	Oid			element = get_element_type(base);
	Oid			under = OidIsValid(element) ? getBaseType(element) : InvalidOid;

	return under != element ? get_array_type(under) : base;
}

bool
km_casts_to_reals(Oid type)
{
	return SearchSysCacheExists2(CASTSOURCETARGET, ObjectIdGetDatum(type), ObjectIdGetDatum(FLOAT4ARRAYOID));
}

static bool
of_extension(Oid type, const char *wanted)
{
	Oid			extension = getExtensionOfObject(TypeRelationId, type);
	char	   *name = OidIsValid(extension) ? get_extension_name(extension) : NULL;

	return name != NULL && strcmp(name, wanted) == 0;
}

KmLayout
km_vector_layout(Oid type)
{
	KmLayout	layout = KM_LAYOUT_ARRAY;
	HeapTuple	tuple;
	Form_pg_type form;

	if (type == BITOID)
		return KM_LAYOUT_BIT;
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	if (!HeapTupleIsValid(tuple))
		return KM_LAYOUT_ARRAY;
	form = (Form_pg_type) GETSTRUCT(tuple);
	if (form->typtype == TYPTYPE_BASE && form->typlen == -1 && form->typalign == TYPALIGN_INT && !OidIsValid(form->typelem))
		for (KmLayout i = KM_LAYOUT_VECTOR; i <= KM_LAYOUT_SPARSEVEC; i++)
			if (strcmp(NameStr(form->typname), km_vector_type_name(i)) == 0)
				layout = i;
	ReleaseSysCache(tuple);
	return layout != KM_LAYOUT_ARRAY && of_extension(type, "vector") ? layout : KM_LAYOUT_ARRAY;
}

/* The schema of PostGIS, quoted, if it is the type geometry or geography of it; else NULL. */
static const char *
postgis_schema(Oid type, bool *geography)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	const char *schema = NULL;
	Form_pg_type form;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	form = (Form_pg_type) GETSTRUCT(tuple);
	*geography = strcmp(NameStr(form->typname), "geography") == 0;
	if ((*geography || strcmp(NameStr(form->typname), "geometry") == 0) && of_extension(type, "postgis"))
		schema = quote_identifier(get_namespace_name(form->typnamespace));
	ReleaseSysCache(tuple);
	return schema;
}

/* A value of PostGIS as a geometry: of a geography in degrees; *schema: of its functions. */
static const char *
as_geometry(Oid type, const char *quoted, const char **schema)
{
	bool		geography;

	*schema = postgis_schema(type, &geography);
	return geography ? psprintf("%s::%s.geometry", quoted, *schema) : quoted;
}

/* x, y, and z where there is one. */
static char *
postgis_expression(Oid type, const char *quoted)
{
	const char *s;
	const char *g = as_geometry(type, quoted, &s);

	return psprintf("CASE WHEN %s.st_z(%s) IS NULL THEN ARRAY[%s.st_x(%s), %s.st_y(%s)] "
					"ELSE ARRAY[%s.st_x(%s), %s.st_y(%s), %s.st_z(%s)] END",
					s, g, s, g, s, g, s, g, s, g, s, g);
}

bool
km_is_geometry(Oid type)
{
	bool		geography;

	return postgis_schema(type, &geography) != NULL;
}

/* Is its number another one than its text says? */
static bool
has_number(Oid type)
{
	return type == BOOLOID || type == DATEOID || type == TIMEOID || type == TIMESTAMPOID || type == TIMESTAMPTZOID ||
		type == INTERVALOID || type == CASHOID;
}

bool
km_classify(Oid type, KmColumnKind *kind)
{
	kind->layout = KM_LAYOUT_ARRAY;
	for (int i = 0; i < (int) lengthof(type_table); i++)
	{
		const TypeRow *row = &type_table[i];

		if (type != row->scalar && type != row->array)
			continue;
		kind->array = type == row->array;
		kind->type = row->type;
		return true;
	}
	if (has_number(type))
	{
		kind->array = false;
		kind->type = KM_VALUE_FLOAT8;
		return true;
	}

	kind->array = true;
	if (type == POINTOID || km_is_geometry(type))
	{
		kind->type = KM_VALUE_FLOAT8;
		return true;
	}
	kind->type = KM_VALUE_FLOAT4;
	kind->layout = km_vector_layout(type);
	return kind->layout != KM_LAYOUT_ARRAY || km_casts_to_reals(type);
}

char *
km_column_expression(Oid type, const char *quoted)
{
	switch (type)
	{
		case FLOAT8OID:
		case FLOAT8ARRAYOID:
		case FLOAT4OID:
		case FLOAT4ARRAYOID:
		case INT4OID:
		case INT4ARRAYOID:
		case INT8OID:
		case INT8ARRAYOID:
		case INT2OID:
		case INT2ARRAYOID:
		case NUMERICOID:
		case NUMERICARRAYOID:
			return psprintf("%s", quoted);
		case BOOLOID:
			return psprintf("%s::pg_catalog.int4::pg_catalog.float8", quoted);
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
			return psprintf("pg_catalog.date_part('epoch', %s)", quoted);
		case CASHOID:
			return psprintf("%s::pg_catalog.numeric::pg_catalog.float8", quoted);
		case POINTOID:
			return psprintf("ARRAY[(%s)[0], (%s)[1]]", quoted, quoted);
		default:
			break;
	}
	if (km_is_geometry(type))
		return postgis_expression(type, quoted);
	return km_vector_layout(type) != KM_LAYOUT_ARRAY ? psprintf("%s", quoted) : psprintf("%s::pg_catalog.float4[]", quoted);
}

/* Without what users do not write. */
static char *
readable(char *expression)
{
	static const char schema[] = "pg_catalog.";

	for (char *at; (at = strstr(expression, schema)) != NULL;)
		memmove(at, at + strlen(schema), strlen(at + strlen(schema)) + 1);
	return expression;
}

char *
km_first_feature(Oid type, const char *quoted)
{
	if (km_is_geometry(type))
	{
		const char *s;
		const char *g = as_geometry(type, quoted, &s);

		return psprintf("%s.st_x(%s)", s, g);
	}
	if (type == BITOID)
		return readable(psprintf("pg_catalog.get_bit(%s, 0)", quoted));
	if (type != POINTOID && !OidIsValid(get_element_type(type)))
		return readable(psprintf("(%s::pg_catalog.float4[])[1]", quoted));
	return psprintf("%s[%d]", quoted, type == POINTOID ? 0 : 1);
}

char *
km_number_expression(Oid type, const char *quoted)
{
	if (km_is_geometry(type))
	{
		const char *s;
		const char *g = as_geometry(type, quoted, &s);

		return psprintf("ARRAY[%s.st_x(%s), %s.st_y(%s)]", s, g, s, g);
	}
	return readable(km_column_expression(type, quoted));
}

bool
km_is_category(Oid type)
{
	char		category;
	bool		preferred;

	if (!OidIsValid(type))
		return false;
	get_type_category_preferred(type, &category, &preferred);
	return category == TYPCATEGORY_STRING || category == TYPCATEGORY_ENUM || type == BOOLOID || type == UUIDOID;
}
