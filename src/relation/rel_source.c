/*
 * rel_source.c - what to read: a relation's columns become a query.
 *
 * The query is an ordinary SELECT with every name quoted, so that privileges,
 * row-level security, views, partitions and foreign tables are PostgreSQL's
 * business.  What is checked here is what the query could not report well:
 * the kind of relation and the types.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/attnum.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/plancat.h"
#include "parser/analyze.h"
#include "parser/parse_coerce.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "pg/pg_compat.h"
#include "relation/rel_types.h"
#include "relation/relation.h"

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
	source->distributed = km_citus_distributed(source->relid);

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

bool
km_rows_have_ctid(Oid relid)
{
	ListCell   *lc;
	bool		heap = true;
	Relation	parent = try_relation_open(relid, AccessShareLock);

	/* another one says that there is no such relation */
	if (parent == NULL)
		return true;
	/* which locks what inherits, and not the relation itself */
	foreach(lc, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		Relation	rel = relation_open(lfirst_oid(lc), NoLock);

		heap &= rel->rd_tableam == NULL || rel->rd_tableam == GetHeapamTableAmRoutine();
		relation_close(rel, NoLock);
	}
	relation_close(parent, NoLock);
	return heap;
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
				 errhint("Use kmeans_fit() and, in a query, kmeans_predict() or kmeans_distance(); or a table.")));
	/* which shard, which copy of it? */
	if (km_citus_known(source->relid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" is a table of Citus, whose rows cannot be labelled by ctid",
						source->relname),
				 errhint("Use label_column, kmeans_label_table(), or kmeans_predict() in a query.")));
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
	*basetype = km_base_type(((Form_pg_attribute) GETSTRUCT(tuple))->atttypid);
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

/*
 * The right to read what the source reads.  Its query checks that, too, but until then user code may run, and what another
 * role cannot read it cannot keep locked either; and a table of Citus is read by others.
 */
static void
require_rights(const KmSource *source)
{
	Oid			user = GetUserId();
	bool		good = pg_class_aclcheck(source->relid, user, ACL_SELECT) == ACLCHECK_OK;

	if (good)
		return;
	good = source->weight_column == NULL ||
		pg_attribute_aclcheck(source->relid, get_attnum(source->relid, source->weight_column), user, ACL_SELECT) == ACLCHECK_OK;
	for (int i = 0; i < source->ncolumns; i++)
		good = good && pg_attribute_aclcheck(source->relid, get_attnum(source->relid, source->columns[i]), user, ACL_SELECT) == ACLCHECK_OK;
	if (!good)
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(source->relkind), source->relname);
}

/* Names that may be expressions, as a list of what a query selects. */
static char *
as_targets(char *const *columns, int ncolumns)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < ncolumns; i++)
		appendStringInfo(&list, "%s%s", i == 0 ? "" : ", ", columns[i]);
	return list.data;
}

/* Has it anything but letters, digits and dots? */
static bool
looks_like_expression(const char *name)
{
	for (; *name != '\0'; name++)
		if (!IS_HIGHBIT_SET(*name) && !isalnum((unsigned char) *name) && *name != '_' && *name != '.')
			return true;
	return false;
}

static int
no_column_hint(const KmSource *source, const char *name)
{
	if (!looks_like_expression(name))
		return errhint("Columns are named exactly as in the table, upper and lower case included.");
	return errhint("An expression stands in a query: SELECT * FROM kmeans_query(%s, 3).",
				   quote_literal_cstr(psprintf("SELECT %s FROM %s", as_targets(source->columns, source->ncolumns), source->qualified)));
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
				 no_column_hint(source, name)));
	require_select(source, name, attnum);
	return type;
}

/* ---- what the names stand for ---- */

/* The numbers of the columns that are there, by name. */
static List *
numbers_of(const KmSource *source)
{
	List	   *numbers = NIL;
	ListCell   *cell;

	for (int i = 0; i < source->ncolumns; i++)
		numbers = lappend_int(numbers, get_attnum(source->relid, source->columns[i]));
	foreach(cell, source->required)
		numbers = lappend_int(numbers, get_attnum(source->relid, lfirst(cell)));
	if (source->weight_column != NULL)
		numbers = lappend_int(numbers, get_attnum(source->relid, source->weight_column));
	if (source->label_column != NULL && !source->label_missing)
		numbers = lappend_int(numbers, get_attnum(source->relid, source->label_column));
	return numbers;
}

/* The file of a table, 0 if it has none or is not there. */
static Oid
file_of(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			file = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		file = (Oid) ((Form_pg_class) GETSTRUCT(tuple))->relfilenode;
		ReleaseSysCache(tuple);
	}
	return file;
}

static void
note_what_is(KmSource *source)
{
	ListCell   *cell;

	source->numbers = numbers_of(source);
	foreach(cell, find_all_inheritors(source->relid, AccessShareLock, NULL))
	{
		source->files = lappend_oid(source->files, lfirst_oid(cell));
		source->files = lappend_oid(source->files, file_of(lfirst_oid(cell)));
	}
}

void
km_source_require_same(const KmSource *source)
{
	bool		same = source->relid == InvalidOid || equal(numbers_of(source), source->numbers);

	/* tables that have come since may be empty, and the snapshot decides of their rows */
	for (int i = 0; same && i < list_length(source->files); i += 2)
		same = file_of(list_nth_oid(source->files, i)) == list_nth_oid(source->files, i + 1);
	if (!same)
		km_source_changed(source);
}

KmSource *
km_source_of_values(Oid relid, char **columns, int ncolumns, Oid *types)
{
	KmSource   *source = km_source_make(ncolumns);

	source->relid = relid;
	source->columns = columns;
	open_relation(source);
	for (int i = 0; i < ncolumns; i++)
		types[i] = require_column(source, columns[i]);
	require_rights(source);
	note_what_is(source);
	return source;
}

void
km_source_require(KmSource *source, char **columns, int ncolumns)
{
	for (int i = 0; i < ncolumns; i++)
	{
		(void) require_column(source, columns[i]);
		source->required = lappend(source->required, columns[i]);
	}
	source->numbers = numbers_of(source);
}

static void
classify_label(KmSource *source, const char *name)
{
	KmColumnKind kind;
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
	(void) km_classify(type, &kind);
	source->label_type = kind.type;
}

/* Names as the elements of an array's text form, all quoted. */
static char *
as_list(char *const *columns, int ncolumns)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < ncolumns; i++)
	{
		appendStringInfoString(&list, i == 0 ? "\"" : ",\"");
		for (const char *c = columns[i]; *c != '\0'; c++)
		{
			if (*c == '"' || *c == '\\')
				appendStringInfoChar(&list, '\\');
			appendStringInfoChar(&list, *c);
		}
		appendStringInfoChar(&list, '"');
	}
	return list.data;
}

/* Does an explicit cast make a number of values of the type, of text if it looks like one? */
static bool
casts_to_number(Oid type)
{
	Oid			function;

	return find_coercion_pathway(FLOAT8OID, type, COERCION_EXPLICIT, &function) != COERCION_PATH_NONE;
}

/* A type whose values are no features: what is the statement that makes them some? */
static int
not_numeric_hint(const KmSource *source, const KmSourceColumn *column)
{
	bool		casts = casts_to_number(column->type);
	bool		category = km_is_category(column->type);
	const char *from = source->qualified;
	const char *name = from != NULL ? column->quoted : quote_identifier(column->name);
	const char *columns = quote_literal_cstr(psprintf("{%s}", as_list(source->columns, source->ncolumns)));

	if (from == NULL && !casts)
		return errhint("%s but an expression in the query may: (%s = 'a value')::int, for instance.",
					   category ? "kmeans_mixed() takes categories, of a table or view. No cast makes a number of it," : "No cast makes a number of it,", name);
	if (from == NULL)
		return errhint("%s it in the query: %s::float8 if it is a number in another form, (%s = 'a value')::int for a category.",
					   category ? "kmeans_mixed() takes categories, of a table or view. Cast" : "Cast", name, name);
	if (category && !casts)
		return errhint("Categories are for SELECT * FROM kmeans_mixed(%s, %s, 3). No cast makes a number of it, but an expression may, in a query: kmeans_query('SELECT (%s = ''a value'')::int FROM %s', 3), for instance.",
					   quote_literal_cstr(from), columns, name, from);
	if (category)
		return errhint("Categories are for SELECT * FROM kmeans_mixed(%s, %s, 3). Or make it a number in a query: SELECT * FROM kmeans_query('SELECT %s::float8 FROM %s', 3), or (%s = ''a value'')::int for a category.",
					   quote_literal_cstr(from), columns, name, from, name);
	if (!casts)
		return errhint("No cast makes a number of it, but an expression may, in a query: kmeans_query('SELECT (%s = ''a value'')::int FROM %s', 3), for instance.",
					   name, from);
	return errhint("Make it a number in a query: SELECT * FROM kmeans_query('SELECT %s::float8 FROM %s', 3), or (%s = ''a value'')::int for a category.",
				   name, from, name);
}

static void
classify_feature(const KmSource *source, const KmSourceColumn *column, KmColumnKind *kind)
{
	if (!km_classify(column->type, kind))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, which is not numeric",
						column->name, format_type_be(column->type)),
				 not_numeric_hint(source, column)));
	if (kind->array && source->ncolumns > 1)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, but there are %d columns",
						column->name, format_type_be(column->type), source->ncolumns),
				 errhint("Give either one array, vector or point column, or numeric columns. A query takes numbers out of it: kmeans_query('SELECT %s, ...', 3).",
						 km_first_feature(column->type, quote_identifier(column->name)))));
}

static void
classify_weight(KmSource *source, const KmSourceColumn *column, KmColumnKind *kind)
{
	if (!km_classify(column->type, kind) || kind->array)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("weight column \"%s\" is of type %s, which is not numeric",
						column->name, format_type_be(column->type))));
	source->weighted = true;
	source->weight_column = pstrdup(column->name);
	source->weight_type = kind->type;
}

/* Select another value; returns its place. */
static int
add_target(StringInfo query, const char *expression, int *count)
{
	appendStringInfo(query, "%s%s", *count > 0 ? ", " : "", expression);
	return (*count)++;
}

void
km_source_targets(KmSource *source, const KmSourceColumn *columns, const KmSourceColumn *weight, StringInfo query)
{
	KmColumnKind kind;
	int			count = 0;

	source->runs = palloc(source->ncolumns * sizeof(KmColumnRun));
	source->feature = palloc(source->ncolumns * sizeof(char *));
	for (int i = 0; i < source->ncolumns; i++)
	{
		classify_feature(source, &columns[i], &kind);
		source->array = kind.array;
		source->layout = kind.layout;
		if (km_is_geometry(columns[i].type))
			source->geometry = columns[i].name;
		source->feature[i] = km_column_expression(columns[i].type, columns[i].quoted);
		add_target(query, source->feature[i], &count);
		if (i == 0 || source->runs[source->nruns - 1].type != kind.type)
		{
			source->runs[source->nruns].type = kind.type;
			source->runs[source->nruns].first = i;
			source->nruns++;
		}
		source->runs[source->nruns - 1].end = i + 1;
	}
	if (weight != NULL)
	{
		classify_weight(source, weight, &kind);
		source->weight = km_column_expression(weight->type, weight->quoted);
		source->at_weight = add_target(query, source->weight, &count);
	}
	source->ntargets = count;
}

KmSource *
km_source_make(int ncolumns)
{
	KmSource   *source = palloc0(sizeof(KmSource));

	source->ncolumns = ncolumns;
	source->at_weight = source->at_ctid = source->at_tableoid = source->at_label = -1;
	return source;
}

/* A column of the relation, which must exist. */
static KmSourceColumn
relation_column(const KmSource *source, const char *name)
{
	return (KmSourceColumn) {name, quote_identifier(name), require_column(source, name)};
}

KmSource *
km_source_open(Oid relid, char **columns, int ncolumns, const char *weight_column,
			   const char *label_column, bool identify)
{
	KmSource   *source = km_source_make(ncolumns);
	KmSourceColumn *features = palloc(ncolumns * sizeof(KmSourceColumn));
	KmSourceColumn weight;
	StringInfoData query;

	source->relid = relid;
	source->columns = columns;

	open_relation(source);
	/* Citus lets no UPDATE call gkmeans_new_label(): fn_label_citus.c */
	source->identify = identify || (label_column != NULL && !km_citus_known(relid));

	for (int i = 0; i < ncolumns; i++)
		features[i] = relation_column(source, columns[i]);
	if (weight_column != NULL)
		weight = relation_column(source, weight_column);
	initStringInfo(&query);
	km_source_targets(source, features, weight_column != NULL ? &weight : NULL, &query);
	source->targets = pstrdup(query.data);
	if (label_column != NULL)
	{
		classify_label(source, label_column);
		if (!source->label_missing && source->identify)
			source->at_label = add_target(&query, quote_identifier(source->label_column), &source->ntargets);
	}
	if (source->identify)
	{
		require_row_ids(source);
		source->at_ctid = add_target(&query, "ctid", &source->ntargets);
		source->at_tableoid = add_target(&query, "tableoid", &source->ntargets);
	}
	require_rights(source);
	note_what_is(source);
	km_source_select(source, query.data);
	return source;
}

List *
km_query_types(const Query *query, int first)
{
	List	   *types = NIL;
	ListCell   *cell;

	foreach(cell, query->targetList)
	{
		const TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (target->resno > first && !target->resjunk)
			types = lappend_oid(types, exprType((Node *) target->expr));
	}
	return types;
}

void
km_source_select(KmSource *source, const char *targets)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext garbage = AllocSetContextCreate(caller, "gkmeans parse", ALLOCSET_DEFAULT_SIZES);
	List	   *types;

	source->query = psprintf("SELECT %s FROM %s", targets, source->qualified);
	MemoryContextSwitchTo(garbage);
	types = km_query_types(parse_analyze_fixedparams(linitial_node(RawStmt, pg_parse_query(source->query)), source->query, NULL, 0, NULL), 0);
	MemoryContextSwitchTo(caller);
	source->types = list_copy(types);
	MemoryContextDelete(garbage);
}

void
km_source_changed(const KmSource *source)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 source->raw != NULL ? errmsg("what the query reads was changed during the call") :
			 errmsg("\"%s\" was changed during the call", source->relname),
			 errhint("Repeat the call while nothing alters or renames it.")));
}

double
km_source_rows(const KmSource *source)
{
	Relation	rel;
	double		rows;

	if (source->raw != NULL)
		return source->plan->plan->planTree->plan_rows;
	/* a function that a view calls may have dropped it: the plan has only its tables open */
	rel = try_relation_open(source->relid, NoLock);
	if (rel == NULL)
		km_source_changed(source);
	rows = rel->rd_rel->reltuples;
	if (rel->rd_rel->relkind == RELKIND_RELATION || rel->rd_rel->relkind == RELKIND_MATVIEW)
	{
		BlockNumber pages;
		double		allvisible;

		estimate_rel_size(rel, NULL, &pages, &rows, &allvisible);
	}
	relation_close(rel, NoLock);
	return rows;
}
