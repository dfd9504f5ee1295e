/*
 * fn_mixed_rows.c - the rows of k-prototypes: numbers, and categories that become codes as they come.
 *
 * The executor runs the query, with the caller's rights; where that is nothing but a scan of tables, threads read their
 * pages (fn_mixed_pages.c).  A category is known by the bytes that its type has, and becomes text in the end.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

#include "functions/functions.h"
#include "functions/mixed.h"
#include "relation/rel_types.h"

#define FIRST_ROWS	1024
#define FIRST_ENTRIES	64

/* ---- types ---- */

bool
km_mixed_is_number(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID || type == FLOAT4OID || type == FLOAT8OID ||
		type == NUMERICOID;
}

double
km_mixed_number(Oid type, Datum value)
{
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return (double) DatumGetInt64(value);
		case FLOAT4OID:
			return DatumGetFloat4(value);
		case NUMERICOID:
			return km_value_of(KM_VALUE_NUMERIC, value);
		default:
			return DatumGetFloat8(value);
	}
}

bool
km_mixed_is_plain(Oid type)
{
	return type == TEXTOID || type == VARCHAROID || type == BPCHAROID || type == BOOLOID || type == UUIDOID ||
		type == ANYENUMOID;
}

KmMixedKey
km_mixed_key_of(Oid type, Datum value, uint64 *space)
{
	Oid			output;
	bool		varlena;
	char	   *s;

	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			{
				text	   *t = DatumGetTextPP(value);
				uint32		len = VARSIZE_ANY_EXHDR(t);

				/* as the cast to text has it */
				while (type == BPCHAROID && len > 0 && VARDATA_ANY(t)[len - 1] == ' ')
					len--;
				return km_mixed_key(VARDATA_ANY(t), len);
			}
		case BOOLOID:
			return DatumGetBool(value) ? km_mixed_key("true", 4) : km_mixed_key("false", 5);
		case UUIDOID:
			return km_mixed_key((const char *) DatumGetUUIDP(value)->data, UUID_LEN);
		case ANYENUMOID:
			*space = DatumGetObjectId(value);
			return km_mixed_key((const char *) space, sizeof(*space));
		default:
			break;
	}
	getTypeOutputInfo(type, &output, &varlena);
	s = OidOutputFunctionCall(output, value);
	return km_mixed_key(s, strlen(s));
}

/* ---- categories ---- */

static KmMixedEntry *
free_entries(MemoryContext cxt, uint64 n)
{
	KmMixedEntry *entry = MemoryContextAllocHuge(cxt, n * sizeof(KmMixedEntry));

	for (uint64 i = 0; i < n; i++)
		entry[i].code = -1;
	return entry;
}

void
km_mixed_dictionary_begin(KmMixedDictionary *d, MemoryContext cxt)
{
	*d = (KmMixedDictionary) {.cxt = cxt,.size = FIRST_ENTRIES,.entry = free_entries(cxt, FIRST_ENTRIES)};
}

static void
grow(KmMixedDictionary *d)
{
	KmMixedEntry *old = d->entry;
	uint64		n = d->size;

	d->size *= 2;
	d->entry = free_entries(d->cxt, d->size);
	for (uint64 i = 0; i < n; i++)
	{
		KmMixedKey	key;

		if (i % KM_MIXED_LOOK == 0)
			CHECK_FOR_INTERRUPTS();
		if (old[i].code < 0)
			continue;
		key = km_mixed_key(old[i].data, old[i].len);
		*km_mixed_find(d, &key) = old[i];
	}
	pfree(old);
}

int32
km_mixed_code(KmMixedDictionary *d, const KmMixedKey *key)
{
	KmMixedEntry *e = km_mixed_find(d, key);

	if (e->code >= 0)
		return e->code;
	if (2 * (uint64) d->n >= d->size)
	{
		grow(d);
		e = km_mixed_find(d, key);
	}
	e->data = MemoryContextAllocHuge(d->cxt, key->len + 1);
	memcpy(e->data, key->data, key->len);
	e->len = key->len;
	e->head = key->head;
	return e->code = d->n++;
}

int32
km_mixed_code_of(KmMixedRows *x, int category, const KmMixedKey *key)
{
	KmMixedDictionary *d = &x->dictionary[category];
	int32		n = d->n;
	int32		code = km_mixed_code(d, key);

	if (code == n)
	{
		/* as bytes, and as text in the end */
		x->dictionary_bytes += 2.0 * key->len + 4.0 * sizeof(KmMixedEntry);
		km_mixed_check_memory(x);
	}
	return code;
}

/* ---- rows ---- */

void
km_mixed_check_memory(const KmMixedRows *x)
{
	const GkMixed *m = &x->m;
	double		codes = 0.0;
	double		bytes;

	for (int j = 0; j < m->c; j++)
		codes += x->dictionary[j].n;
	/* there are no more clusters than rows */
	bytes = gk_mixed_bytes(x->room, m->d, m->c, (int) Min(m->k, x->room), codes) + x->dictionary_bytes + (double) x->room * m->d * sizeof(double);
	if (bytes > (double) km_memory_limit_bytes())
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the rows and categories of \"%s\" need more memory than allowed", x->source->relname),
				 errdetail("Up to " INT64_FORMAT " rows need %.0f MB; gkmeans.memory_limit allows %zu MB.",
						   x->room, ceil(bytes * 0x1p-20), km_memory_limit_bytes() >> 20),
				 errhint("Raise gkmeans.memory_limit, or cluster a sample of the rows by a view.")));
}

static void *
larger(KmMixedRows *x, void *values, Size size)
{
	if (values == NULL)
		return MemoryContextAllocHuge(x->cxt, x->room * size);
	return repalloc_huge(values, x->room * size);
}

void
km_mixed_make_room(KmMixedRows *x, int64 rows)
{
	if (x->m.n + rows <= x->room)
		return;
	x->room = x->room == 0 ? FIRST_ROWS : x->room;
	while (x->m.n + rows > x->room)
		x->room *= 2;
	km_mixed_check_memory(x);
	for (int j = 0; j < x->m.d; j++)
		x->number[j] = larger(x, x->number[j], sizeof(double));
	x->m.code = x->m.c > 0 ? larger(x, x->m.code, sizeof(int32) * x->m.c) : NULL;
}

void
km_mixed_take(KmMixedRows *x, const Datum *value, const bool *isnull)
{
	int64		i = x->m.n;
	MemoryContext caller;

	for (int j = 0; j < x->ncolumns; j++)
		if (isnull[j])
		{
			x->left_out++;
			return;
		}
	km_mixed_make_room(x, 1);
	caller = MemoryContextSwitchTo(x->row);
	for (int j = 0; j < x->ncolumns; j++)
	{
		int			place = x->place[j];

		if (!x->column[j].number)
		{
			uint64		space;
			KmMixedKey	key = km_mixed_key_of(x->type[j], value[j], &space);

			x->m.code[i * x->m.c + place] = km_mixed_code_of(x, place, &key);
			continue;
		}
		x->number[place][i] = km_mixed_number(x->type[j], value[j]);
		if (!isfinite(x->number[place][i]))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("column \"%s\" of \"%s\" has a value that is not finite", x->column[j].name, x->source->relname),
					 errhint("Leave such rows out by a view.")));
	}
	x->m.n++;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(x->row);
}

static bool
receive_row(TupleTableSlot *row, DestReceiver *self)
{
	slot_getallattrs(row);
	km_mixed_take((KmMixedRows *) self, row->tts_values, row->tts_isnull);
	return true;
}

static void
begin_rows(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
end_rows(DestReceiver *self)
{
}

static void
check_type(const KmMixedRows *x, int i)
{
	if (!km_mixed_is_number(x->type[i]) && !km_is_category(x->type[i]))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, which is neither a number nor a category",
						x->column[i].name, format_type_be(x->type[i])),
				 errhint("Text, enums, booleans and uuid are categories. Make it one of these in a view, %s::text, or a number.",
						 quote_identifier(x->column[i].name))));
}

void
km_mixed_open(KmMixedRows *x, Oid relid, ArrayType *columns)
{
	char	  **names = km_column_names(columns, "columns", &x->ncolumns);
	StringInfoData query;

	x->type = palloc(x->ncolumns * sizeof(Oid));
	x->source = km_source_of_values(relid, names, x->ncolumns, x->type);
	x->column = palloc0(x->ncolumns * sizeof(KmMixedColumn));
	x->place = palloc(x->ncolumns * sizeof(int));
	initStringInfo(&query);
	for (int i = 0; i < x->ncolumns; i++)
	{
		x->column[i].name = names[i];
		x->column[i].number = km_mixed_is_number(x->type[i]);
		check_type(x, i);
		if (type_is_enum(x->type[i]))
			x->type[i] = ANYENUMOID;
		x->place[i] = x->column[i].number ? x->m.d++ : x->m.c++;
		appendStringInfo(&query, "%s%s", i == 0 ? "" : ", ", quote_identifier(names[i]));
	}
	km_source_select(x->source, query.data);
	x->row = AllocSetContextCreate(x->cxt, "gkmeans mixed row", ALLOCSET_SMALL_SIZES);
	x->number = palloc0((x->m.d + 1) * sizeof(double *));
	x->dictionary = palloc((x->m.c + 1) * sizeof(KmMixedDictionary));
	for (int j = 0; j < x->m.c; j++)
		km_mixed_dictionary_begin(&x->dictionary[j], x->cxt);
}

void
km_mixed_read(KmMixedRows *x)
{
	x->pub.receiveSlot = receive_row;
	x->pub.rStartup = begin_rows;
	x->pub.rShutdown = end_rows;
	x->pub.mydest = DestNone;
	km_query_run(x->source, &x->pub, km_mixed_scan);
	if (x->left_out > 0)
		ereport(NOTICE,
				(errmsg_plural(INT64_FORMAT " row was left out", INT64_FORMAT " rows were left out",
							   (unsigned long) x->left_out, x->left_out),
				 errdetail(INT64_FORMAT " with a NULL.", x->left_out)));
	if (x->m.n == 0)
		km_notice_no_rows(x->source);
}
