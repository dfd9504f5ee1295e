/*
 * fn_mixed.c - kmeans_mixed() and kmeans_mixed_fit(): clusters of numbers and categories.
 *
 * Rows are read by the executor, with the caller's rights, and their categories become numbers as they come; in the
 * end these are put into the order of the categories' bytes, so that ties do not depend on the order of rows.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "core/base/gk_exact.h"
#include "core/gk_numerics.h"
#include "core/store/gk_store.h"
#include "functions/functions.h"
#include "functions/mixed.h"

PG_FUNCTION_INFO_V1(kmeans_mixed);
PG_FUNCTION_INFO_V1(kmeans_mixed_fit);

/* relation, columns, k, and then: */
enum
{
	ARG_GAMMA = 3, ARG_STANDARDIZE, ARG_N_INIT, ARG_MAX_ITER, ARG_SEED
};

#define FIRST_ROWS	1024

/* ---- categories ---- */

typedef struct Category
{
	text	   *value;
	uint32		hash;
	char		status;
	int32		code;
} Category;

static inline bool
same_text(const text * a, const text * b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) && memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

static inline uint32
text_hash(const text * a)
{
	return hash_bytes((const unsigned char *) VARDATA_ANY(a), VARSIZE_ANY_EXHDR(a));
}

#define SH_PREFIX category
#define SH_ELEMENT_TYPE Category
#define SH_KEY_TYPE text *
#define SH_KEY value
#define SH_HASH_KEY(tb, key) text_hash(key)
#define SH_EQUAL(tb, a, b) same_text(a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a) (a)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* ---- rows ---- */

typedef struct Mixed
{
	DestReceiver pub;			/* must be first */
	MemoryContext cxt;
	KmSource   *source;
	int			ncolumns;
	KmMixedColumn *column;
	Oid		   *type;			/* [ncolumns] base types */
	int		   *place;			/* [ncolumns] among the numbers, or the categories */
	GkMixed		m;
	double	  **number;			/* [d] as they are read */
	category_hash **dictionary; /* [c] */
	double		dictionary_bytes;
	int64		room;			/* rows */
	int64		left_out;
} Mixed;

/* ERROR when that much memory is not allowed. */
static void
check_memory(const Mixed *x)
{
	const GkMixed *m = &x->m;
	double		codes = 0.0;
	double		bytes;

	for (int j = 0; j < m->c; j++)
		codes += x->dictionary[j]->members;
	bytes = gk_mixed_bytes(x->room, m->d, m->c, m->k, codes) + x->dictionary_bytes + (double) x->room * m->d * sizeof(double);
	if (bytes > (double) km_memory_limit_bytes())
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the rows and categories of \"%s\" need more memory than allowed", x->source->relname),
				 errdetail("Up to " INT64_FORMAT " rows need %.0f MB; gkmeans.memory_limit allows %zu MB.",
						   x->room, ceil(bytes * 0x1p-20), km_memory_limit_bytes() >> 20),
				 errhint("Raise gkmeans.memory_limit, or cluster a sample of the rows by a view.")));
}

static void *
larger(Mixed *x, void *values, Size size)
{
	if (values == NULL)
		return MemoryContextAllocHuge(x->cxt, x->room * size);
	return repalloc_huge(values, x->room * size);
}

static void
make_room(Mixed *x)
{
	if (x->m.n < x->room)
		return;
	x->room = x->room == 0 ? FIRST_ROWS : 2 * x->room;
	check_memory(x);
	for (int i = 0; i < x->ncolumns; i++)
		if (x->column[i].number)
			x->number[x->place[i]] = larger(x, x->number[x->place[i]], sizeof(double));
	x->m.code = x->m.c > 0 ? larger(x, x->m.code, sizeof(int32) * x->m.c) : NULL;
}

static int32
code_of(Mixed *x, int j, Datum value)
{
	text	   *t = DatumGetTextPP(value);
	Category   *entry = category_lookup(x->dictionary[j], t);
	bool		found;

	if (entry == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(x->cxt);
		int32		code = x->dictionary[j]->members;

		t = cstring_to_text_with_len(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t));
		entry = category_insert(x->dictionary[j], t, &found);
		entry->code = code;
		x->dictionary_bytes += VARSIZE(t) + 2.0 * sizeof(Category);
		MemoryContextSwitchTo(caller);
		if (code % 4096 == 4095)
			check_memory(x);
	}
	return entry->code;
}

/* Receive a row; one with a NULL is left out. */
static bool
take_row(TupleTableSlot *row, DestReceiver *self)
{
	Mixed	   *x = (Mixed *) self;
	int64		i = x->m.n;

	slot_getallattrs(row);
	for (int j = 0; j < x->ncolumns; j++)
		if (row->tts_isnull[j])
		{
			x->left_out++;
			return true;
		}
	make_room(x);
	for (int j = 0; j < x->ncolumns; j++)
	{
		int			place = x->place[j];

		if (!x->column[j].number)
		{
			/* a row's codes side by side, until all rows are there */
			x->m.code[i * x->m.c + place] = code_of(x, place, row->tts_values[j]);
			continue;
		}
		x->number[place][i] = km_mixed_number(x->type[j], row->tts_values[j]);
		if (!isfinite(x->number[place][i]))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("column \"%s\" of \"%s\" has a value that is not finite", x->column[j].name, x->source->relname),
					 errhint("Leave such rows out by a view.")));
	}
	x->m.n++;
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

static bool
by_executor(QueryDesc *desc, DestReceiver *dest)
{
	return false;
}

bool
km_mixed_is_number(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID || type == FLOAT4OID || type == FLOAT8OID ||
		type == NUMERICOID;
}

bool
km_mixed_is_category(Oid type)
{
	char		category;
	bool		preferred;

	if (!OidIsValid(type))
		return false;
	get_type_category_preferred(type, &category, &preferred);
	return category == TYPCATEGORY_STRING || category == TYPCATEGORY_ENUM || type == BOOLOID || type == UUIDOID;
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
			return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
		default:
			return DatumGetFloat8(value);
	}
}

static char *
target_of(const Mixed *x, int i, Oid type)
{
	const char *quoted = quote_identifier(x->column[i].name);

	if (!km_mixed_is_number(type) && !km_mixed_is_category(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, which is neither a number nor a category",
						x->column[i].name, format_type_be(type)),
				 errhint("Text, enums, booleans and uuid are categories. Make it one of these in a view, %s::text, or a number.", quoted)));
	/* numbers come as they are, as kmeans_mixed_predict() gets them */
	return x->column[i].number ? pstrdup(quoted) : psprintf("%s::pg_catalog.text", quoted);
}

static void
open_columns(Mixed *x, Oid relid, ArrayType *columns)
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
		x->place[i] = x->column[i].number ? x->m.d++ : x->m.c++;
		appendStringInfo(&query, "%s%s", i == 0 ? "SELECT " : ", ", target_of(x, i, x->type[i]));
	}
	appendStringInfo(&query, " FROM %s", x->source->qualified);
	x->source->query = query.data;
	x->number = palloc0((x->m.d + 1) * sizeof(double *));
	x->dictionary = palloc0((x->m.c + 1) * sizeof(category_hash *));
	for (int j = 0; j < x->m.c; j++)
		x->dictionary[j] = category_create(x->cxt, 64, NULL);
}

static void
read_rows(Mixed *x)
{
	x->pub.receiveSlot = take_row;
	x->pub.rStartup = begin_rows;
	x->pub.rShutdown = end_rows;
	x->pub.mydest = DestNone;
	km_query_run(x->source, &x->pub, by_executor);
	if (x->left_out > 0)
		ereport(NOTICE,
				(errmsg_plural(INT64_FORMAT " row was left out", INT64_FORMAT " rows were left out",
							   (unsigned long) x->left_out, x->left_out),
				 errdetail(INT64_FORMAT " with a NULL.", x->left_out)));
	if (x->m.n == 0)
		km_notice_no_rows(x->source);
}

/* ---- preparing ---- */

static int
compare_categories(const void *a, const void *b)
{
	const		text *u = (*(Category *const *) a)->value;
	const		text *v = (*(Category *const *) b)->value;
	int			length = Min(VARSIZE_ANY_EXHDR(u), VARSIZE_ANY_EXHDR(v));
	int			order = memcmp(VARDATA_ANY(u), VARDATA_ANY(v), length);

	return order != 0 ? order : (int) VARSIZE_ANY_EXHDR(u) - (int) VARSIZE_ANY_EXHDR(v);
}

/* Codes in the order of the categories' bytes: what each one so far becomes. */
static int32 *
sort_categories(Mixed *x, KmMixedColumn *column, int j)
{
	int			n = x->dictionary[j]->members;
	Category  **all = palloc((n + 1) * sizeof(Category *));
	int32	   *becomes = palloc((n + 1) * sizeof(int32));
	category_iterator it;
	Category   *entry;
	int			i = 0;

	category_start_iterate(x->dictionary[j], &it);
	while ((entry = category_iterate(x->dictionary[j], &it)) != NULL)
		all[i++] = entry;
	qsort(all, n, sizeof(Category *), compare_categories);
	column->categories = palloc((n + 1) * sizeof(text *));
	for (i = 0; i < n; i++)
	{
		column->categories[i] = all[i]->value;
		becomes[all[i]->code] = i;
	}
	pfree(all);
	return becomes;
}

/* Rows of codes become columns of them. */
static void
turn_codes(Mixed *x)
{
	GkMixed    *m = &x->m;
	int32	   *rows = m->code;

	m->code = MemoryContextAllocHuge(x->cxt, m->stride * Max(m->c, 1) * sizeof(int32));
	m->codes = palloc((m->c + 1) * sizeof(int32));
	for (int i = 0; i < x->ncolumns; i++)
	{
		int			j = x->place[i];
		int32	   *to = m->code + j * m->stride;
		int32	   *becomes;

		if (x->column[i].number)
			continue;
		becomes = sort_categories(x, &x->column[i], j);
		for (int64 row = 0; row < m->n; row++)
		{
			if (row % 65536 == 0)
				CHECK_FOR_INTERRUPTS();
			to[row] = becomes[rows[row * m->c + j]];
		}
		memset(to + m->n, 0, (m->stride - m->n) * sizeof(int32));
		m->codes[j] = x->dictionary[j]->members;
		pfree(becomes);
	}
	if (rows != NULL)
		pfree(rows);
}

/* The mean, the largest distance to it, and the standard deviation; exact sums, so the order of rows does not matter. */
static double
moments_of(const double *v, int64 n, double *mean, double *most)
{
	GkWide		sum = {.pending = 0};
	GkWide		squares = {.pending = 0};
	double		unit;

	for (int64 i = 0; i < n; i++)
	{
		if (i % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
		gk_wide_add(&sum, v[i]);
	}
	*mean = gk_wide_mean(&sum, n);
	*most = 0.0;
	for (int64 i = 0; i < n; i++)
		*most = fmax(*most, fabs(v[i] - *mean));
	if (*most == 0.0 || !isfinite(*most))
		return 0.0;
	/* in units in which squares neither overflow nor vanish */
	unit = gk_scale_of(-gk_expo_of(*most));
	for (int64 i = 0; i < n; i++)
	{
		double		t = (v[i] - *mean) * unit;

		if (i % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
		gk_wide_add(&squares, t * t);
	}
	return sqrt(gk_wide_mean(&squares, n)) / unit;
}

/* Prepare a column of numbers; returns its standard deviation, prepared. */
static double
prepare_numbers(Mixed *x, int i, bool standardize)
{
	KmMixedColumn *column = &x->column[i];
	const double *v = x->number[x->place[i]];
	float	   *to = x->m.x + x->place[i] * x->m.stride;
	double		most;
	double		deviation = moments_of(v, x->m.n, &column->center, &most);

	column->scale = standardize && deviation > 0.0 ? 1.0 / deviation : 1.0;
	column->expo = most > 0.0 && isfinite(most * column->scale) ? gk_expo_of(most * column->scale) : 0;
	if (!isfinite(most * column->scale) || abs(column->expo) > GK_TOP_EXPO || !isnormal(column->scale))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("values of column \"%s\" are too %s", column->name, column->expo < 0 ? "small" : "large"),
				 errhint("Use another unit%s.", standardize ? "" : ", or standardize => true")));
	for (int64 row = 0; row < x->m.n; row++)
	{
		if (row % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
		to[row] = km_mixed_prepare(column, v[row]);
	}
	memset(to + x->m.n, 0, (x->m.stride - x->m.n) * sizeof(float));
	pfree(x->number[x->place[i]]);
	return deviation * column->scale;
}

/* Huang 1997: half the mean standard deviation of the numbers, as the distances have them. */
static float
prepare(Mixed *x, bool standardize)
{
	GkMixed    *m = &x->m;
	double		deviations = 0.0;

	m->stride = (m->n + GK_MIXED_ROWS - 1) / GK_MIXED_ROWS * GK_MIXED_ROWS;
	turn_codes(x);
	m->x = MemoryContextAllocHuge(x->cxt, m->stride * Max(m->d, 1) * sizeof(float));
	m->expo = palloc((m->d + 1) * sizeof(int));
	for (int i = 0; i < x->ncolumns; i++)
		if (x->column[i].number)
		{
			deviations += prepare_numbers(x, i, standardize);
			m->expo[x->place[i]] = x->column[i].expo;
		}
	return deviations > 0.0 ? (float) (0.5 * deviations / m->d) : 1.0f;
}

/* ---- fitting ---- */

static GkStatus
best_run(GkMixed *m, int n_init, int max_iter, int64 seed, GkError *err)
{
	double		least = INFINITY;
	int			best = 0;
	GkStatus	st = GK_OK;

	/* the best one once more, unless it is the last: it costs less than to keep what each has made */
	for (int i = 0; st == GK_OK && i <= n_init; i++)
	{
		int			which = i < n_init ? i : best;

		if (i == n_init && best == n_init - 1)
			break;
		st = gk_mixed_seed(m, seed, which, err);
		if (st == GK_OK)
			st = gk_mixed_fit(m, max_iter, err);
		if (st == GK_OK && m->objective < least)
		{
			least = m->objective;
			best = which;
		}
	}
	return st;
}

static double
parse_gamma(FunctionCallInfo fcinfo)
{
	double		gamma = PG_ARGISNULL(ARG_GAMMA) ? -1.0 : PG_GETARG_FLOAT8(ARG_GAMMA);

	if (!PG_ARGISNULL(ARG_GAMMA) && !(gamma >= 0.0 && gamma <= MOST_GAMMA))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("gamma must be between 0 and 1e30, not %g", gamma),
				 errhint("It is what a category that differs adds to the squared distance; NULL is half the mean standard deviation of the numbers.")));
	return gamma;
}

/* The whole call; false: there are no rows. */
static bool
fit(FunctionCallInfo fcinfo, Mixed *x, KmPgHost **host)
{
	double		gamma = parse_gamma(fcinfo);
	int			n_init = km_parse_int(fcinfo, ARG_N_INIT, "n_init", 1, PG_INT32_MAX);
	int			max_iter = km_parse_int(fcinfo, ARG_MAX_ITER, "max_iter", 0, PG_INT32_MAX);
	float		by_numbers;
	GkError		err;

	memset(x, 0, sizeof(*x));
	km_require_arg(fcinfo, 0, "relation");
	km_require_arg(fcinfo, 1, "columns");
	km_require_arg(fcinfo, ARG_STANDARDIZE, "standardize");
	km_require_arg(fcinfo, ARG_SEED, "seed");
	x->cxt = CurrentMemoryContext;
	x->m.k = km_parse_k(fcinfo, 2);
	open_columns(x, PG_GETARG_OID(0), PG_GETARG_ARRAYTYPE_P(1));
	read_rows(x);
	if (x->m.n == 0)
		return false;
	x->m.k = Min(x->m.k, x->m.n);
	x->room = x->m.n;
	check_memory(x);
	by_numbers = prepare(x, PG_GETARG_BOOL(ARG_STANDARDIZE));
	x->m.gamma = gamma >= 0.0 ? (float) gamma : by_numbers;
	km_apply_simd();
	*host = km_host_begin();
	x->m.host = km_host_engine(*host);
	km_check(*host, gk_mixed_alloc(&x->m, &err), &err);
	km_check(*host, best_run(&x->m, n_init, max_iter, PG_GETARG_INT64(ARG_SEED), &err), &err);
	return true;
}

/*
 * kmeans_mixed(relation regclass, columns text[], k int, gamma float8, standardize bool, n_init int, max_iter int,
 *              seed bigint)
 * returns table (cluster int, size bigint, centroid jsonb, cost float8)
 */
Datum
kmeans_mixed(PG_FUNCTION_ARGS)
{
	KmPgHost   *host;
	KmResult	result;
	Mixed		x;

	km_result_begin(fcinfo, &result);
	if (!fit(fcinfo, &x, &host))
		return (Datum) 0;
	for (int i = 0; i < x.m.k; i++)
	{
		Datum		values[4];
		bool		nulls[4] = {false};

		values[0] = Int32GetDatum(i);
		values[1] = Int64GetDatum(x.m.size[i]);
		values[2] = JsonbPGetDatum(km_mixed_centroid(&x.m, x.column, x.ncolumns, i));
		values[3] = Float8GetDatum(x.m.spent[i]);
		tuplestore_putvalues(result.store, result.desc, values, nulls);
	}
	gk_mixed_free(&x.m);
	km_host_end(host);
	return (Datum) 0;
}

/* kmeans_mixed_fit(as kmeans_mixed()) returns jsonb */
Datum
kmeans_mixed_fit(PG_FUNCTION_ARGS)
{
	KmPgHost   *host;
	Jsonb	   *model;
	Mixed		x;

	if (!fit(fcinfo, &x, &host))
		PG_RETURN_NULL();
	model = km_mixed_model(&x.m, x.column, x.ncolumns);
	gk_mixed_free(&x.m);
	km_host_end(host);
	PG_RETURN_JSONB_P(model);
}
