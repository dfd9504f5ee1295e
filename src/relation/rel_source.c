/*
 * rel_source.c - what to read: a relation's columns become a query.
 *
 * The query is an ordinary SELECT with every name quoted, so that privileges,
 * row-level security, views, partitions and foreign tables are PostgreSQL's
 * business.  What is checked here is what the query could not report well:
 * the kind of relation and the types.
 */
#include "postgres.h"

#include "access/attnum.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "relation/relation.h"

/* How a column is read. */
typedef struct ColumnKind
{
	bool		array;			/* or vector */
	KmLayout	layout;			/* of it */
	KmValueType type;			/* of the value, or of its elements */
	const char *cast;			/* appended in the query, "" for none */
} ColumnKind;

typedef struct TypeRow
{
	Oid			scalar;
	Oid			array;
	KmValueType type;
	const char *scalar_cast;
	const char *array_cast;
} TypeRow;

/* numeric has no fixed size: PostgreSQL's own cast converts it. */
static const TypeRow type_table[] = {
	{FLOAT8OID, FLOAT8ARRAYOID, KM_VALUE_FLOAT8, "", ""},
	{FLOAT4OID, FLOAT4ARRAYOID, KM_VALUE_FLOAT4, "", ""},
	{INT4OID, INT4ARRAYOID, KM_VALUE_INT4, "", ""},
	{INT8OID, INT8ARRAYOID, KM_VALUE_INT8, "", ""},
	{INT2OID, INT2ARRAYOID, KM_VALUE_INT2, "", ""},
	{NUMERICOID, NUMERICARRAYOID, KM_VALUE_FLOAT8,
	"::pg_catalog.float8", "::pg_catalog.float8[]"},
};

char **
km_column_names(ArrayType *array, const char *name, int *count)
{
	Datum	   *elems;
	bool	   *nulls;
	char	  **names;
	int			n;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must have 1 dimension, not %d", name, ARR_NDIM(array))));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls, &n);
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must name at least one column", name)));
	if (n > GKMEANS_MAX_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s must name at most %d columns, not %d", name, GKMEANS_MAX_COLUMNS, n),
				 errhint("Put the features into one array column, which may have up to %d elements.",
						 GK_MAX_D)));
	names = palloc(n * sizeof(char *));
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain NULLs", name)));
		names[i] = TextDatumGetCString(elems[i]);
	}
	*count = n;
	return names;
}

static const char *
relkind_name(char relkind)
{
	switch (relkind)
	{
		case RELKIND_INDEX:
		case RELKIND_PARTITIONED_INDEX:
			return "an index";
		case RELKIND_SEQUENCE:
			return "a sequence";
		case RELKIND_COMPOSITE_TYPE:
			return "a composite type";
		case RELKIND_TOASTVALUE:
			return "a TOAST table";
		case RELKIND_VIEW:
			return "a view";
		case RELKIND_MATVIEW:
			return "a materialized view";
		case RELKIND_FOREIGN_TABLE:
			return "a foreign table";
		default:
			return "of an unknown kind";
	}
}

/* Lock and look up; only what a plain SELECT takes rows from. */
static void
open_relation(KmSource *source)
{
	HeapTuple	tuple;
	Form_pg_class form;

	/* lock first, so that what is looked up stays true */
	LockRelationOid(source->relid, AccessShareLock);
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(source->relid));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", source->relid)));
	form = (Form_pg_class) GETSTRUCT(tuple);
	source->relkind = form->relkind;
	source->is_partition = form->relispartition;
	source->relname = pstrdup(NameStr(form->relname));
	source->qualified = quote_qualified_identifier(get_namespace_name(form->relnamespace),
												   source->relname);
	ReleaseSysCache(tuple);

	switch (source->relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_PARTITIONED_TABLE:
		case RELKIND_VIEW:
		case RELKIND_MATVIEW:
		case RELKIND_FOREIGN_TABLE:
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" is %s and has no rows to cluster",
							source->relname, relkind_name(source->relkind)),
					 errhint("Use a table, a view, a materialized view or a foreign table.")));
	}
}

static void
require_row_ids(const KmSource *source)
{
	/* rows of views have no ctid; what a foreign table calls so need not name a row */
	if (source->relkind == RELKIND_VIEW || source->relkind == RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is %s, whose rows cannot be labelled by ctid",
						source->relname, relkind_name(source->relkind)),
				 errhint("Use kmeans_fit() and kmeans_predict(), or a table.")));
	/* which shard, which copy of it?  And Citus lets no UPDATE call gkmeans_new_label() */
	if (km_citus_known(source->relid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" is a table of Citus, whose rows cannot be labelled by ctid",
						source->relname),
				 errhint("Use kmeans_fit(), and kmeans_predict() in an UPDATE.")));
	if (source->label_column != NULL && source->relkind == RELKIND_MATVIEW)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is %s and cannot be updated",
						source->relname, relkind_name(source->relkind)),
				 errhint("Use kmeans_labels() to get the labels without writing.")));
}

/* A column's number and base type; InvalidAttrNumber when there is none. */
static AttrNumber
find_column(Oid relid, const char *name, Oid *basetype)
{
	HeapTuple	tuple = SearchSysCacheAttName(relid, name);
	AttrNumber	attnum;

	if (!HeapTupleIsValid(tuple))
		return InvalidAttrNumber;
	attnum = ((Form_pg_attribute) GETSTRUCT(tuple))->attnum;
	*basetype = getBaseType(((Form_pg_attribute) GETSTRUCT(tuple))->atttypid);
	ReleaseSysCache(tuple);
	return attnum;
}

/*
 * The query checks all rights, but names only the table: tell a user who may read some
 * columns which one is missing.
 */
static void
require_select(const KmSource *source, const char *name, AttrNumber attnum)
{
	Oid			user = GetUserId();

	if (pg_class_aclcheck(source->relid, user, ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck(source->relid, attnum, user, ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(source->relid, user, ACL_SELECT, ACLMASK_ANY) == ACLCHECK_OK)
		aclcheck_error_col(ACLCHECK_NO_PRIV, OBJECT_COLUMN, source->relname, name);
}

static Oid
require_column(const KmSource *source, const char *name)
{
	Oid			type;
	AttrNumber	attnum = find_column(source->relid, name, &type);

	if (attnum == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name, source->relname),
				 errhint("Columns are named exactly as in the table, upper and lower case included.")));
	require_select(source, name, attnum);
	return type;
}

void
km_source_require(const KmSource *source, char **columns, int ncolumns)
{
	for (int i = 0; i < ncolumns; i++)
		(void) require_column(source, columns[i]);
}

bool
km_casts_to_reals(Oid type)
{
	return SearchSysCacheExists2(CASTSOURCETARGET, ObjectIdGetDatum(type), ObjectIdGetDatum(FLOAT4ARRAYOID));
}

static bool
of_pgvector(Oid type)
{
	Oid			extension = getExtensionOfObject(TypeRelationId, type);
	char	   *name = OidIsValid(extension) ? get_extension_name(extension) : NULL;

	return name != NULL && strcmp(name, "vector") == 0;
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
	return layout != KM_LAYOUT_ARRAY && of_pgvector(type) ? layout : KM_LAYOUT_ARRAY;
}

/* True when values of the type can be read as features. */
static bool
classify(Oid type, ColumnKind *kind)
{
	kind->layout = KM_LAYOUT_ARRAY;
	for (int i = 0; i < (int) lengthof(type_table); i++)
	{
		const TypeRow *row = &type_table[i];

		if (type != row->scalar && type != row->array)
			continue;
		kind->array = type == row->array;
		kind->type = row->type;
		kind->cast = kind->array ? row->array_cast : row->scalar_cast;
		return true;
	}

	kind->array = true;
	kind->type = KM_VALUE_FLOAT4;
	kind->layout = km_vector_layout(type);
	kind->cast = kind->layout != KM_LAYOUT_ARRAY ? "" : "::pg_catalog.float4[]";
	return kind->layout != KM_LAYOUT_ARRAY || km_casts_to_reals(type);
}

static void
classify_feature(const KmSource *source, const char *name, ColumnKind *kind)
{
	Oid			type = require_column(source, name);

	if (!classify(type, kind))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, which is not numeric",
						name, format_type_be(type)),
				 errhint("Features are smallint, integer, bigint, real, double precision or numeric columns, or one array or vector column.")));
	if (kind->array && source->ncolumns > 1)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, but there are %d columns",
						name, format_type_be(type), source->ncolumns),
				 errhint("Give either one array or vector column, or numeric columns.")));
}

static void
classify_weight(KmSource *source, const char *name, ColumnKind *kind)
{
	Oid			type = require_column(source, name);

	if (!classify(type, kind) || kind->array)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("weight column \"%s\" is of type %s, which is not numeric",
						name, format_type_be(type))));
	source->weighted = true;
	source->weight_column = pstrdup(name);
	source->weight_type = kind->type;
}

static void
classify_label(KmSource *source, const char *name)
{
	ColumnKind	kind;
	Oid			type = InvalidOid;
	AttrNumber	attnum = find_column(source->relid, name, &type);

	for (int i = 0; i < source->ncolumns; i++)
		if (strcmp(name, source->columns[i]) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("label_column \"%s\" is one of the columns to cluster", name)));
	if (source->weight_column != NULL && strcmp(name, source->weight_column) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("label_column \"%s\" is the weight column", name)));

	source->label_column = pstrdup(name);
	source->label_missing = attnum == InvalidAttrNumber;
	if (source->label_missing)
		return;
	if (attnum < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("label_column \"%s\" is a system column", name)));
	if (type != INT2OID && type != INT4OID && type != INT8OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("label_column \"%s\" is of type %s, not integer",
						name, format_type_be(type))));
	(void) classify(type, &kind);
	source->label_type = kind.type;
}

/* Select another value; returns its place. */
static int
add_target(StringInfo query, const char *name, const char *cast, int *count)
{
	appendStringInfo(query, "%s%s%s", *count > 0 ? ", " : "", quote_identifier(name), cast);
	return (*count)++;
}

KmSource *
km_source_open(Oid relid, char **columns, int ncolumns, const char *weight_column,
			   const char *label_column, bool identify)
{
	KmSource   *source = palloc0(sizeof(KmSource));
	StringInfoData query;
	ColumnKind	kind;
	int			count = 0;

	source->relid = relid;
	source->columns = columns;
	source->ncolumns = ncolumns;
	source->identify = identify || label_column != NULL;
	source->at_weight = source->at_ctid = source->at_tableoid = source->at_label = -1;

	open_relation(source);

	initStringInfo(&query);
	appendStringInfoString(&query, "SELECT ");
	source->runs = palloc(ncolumns * sizeof(KmColumnRun));
	for (int i = 0; i < ncolumns; i++)
	{
		classify_feature(source, columns[i], &kind);
		source->array = kind.array;
		source->layout = kind.layout;
		add_target(&query, columns[i], kind.cast, &count);
		if (i == 0 || source->runs[source->nruns - 1].type != kind.type)
		{
			source->runs[source->nruns].type = kind.type;
			source->runs[source->nruns].first = i;
			source->nruns++;
		}
		source->runs[source->nruns - 1].end = i + 1;
	}
	if (weight_column != NULL)
	{
		classify_weight(source, weight_column, &kind);
		source->at_weight = add_target(&query, weight_column, kind.cast, &count);
	}
	source->targets = pstrdup(query.data + strlen("SELECT "));
	if (label_column != NULL)
	{
		classify_label(source, label_column);
		if (!source->label_missing)
			source->at_label = add_target(&query, label_column, "", &count);
	}
	if (source->identify)
	{
		require_row_ids(source);
		source->at_ctid = add_target(&query, "ctid", "", &count);
		source->at_tableoid = add_target(&query, "tableoid", "", &count);
	}
	appendStringInfo(&query, " FROM %s", source->qualified);
	source->query = query.data;
	return source;
}

double
km_source_rows(const KmSource *source)
{
	Relation	rel = table_open(source->relid, NoLock);
	double		rows = rel->rd_rel->reltuples;

	if (rel->rd_rel->relkind == RELKIND_RELATION || rel->rd_rel->relkind == RELKIND_MATVIEW)
	{
		BlockNumber pages;
		double		allvisible;

		estimate_rel_size(rel, NULL, &pages, &rows, &allvisible);
	}
	table_close(rel, NoLock);
	return rows;
}
