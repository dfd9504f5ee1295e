/*
 * group_agg.c - kmeans_agg(point, k[, options]): one model per GROUP BY group.
 *
 * The state is the group's points, so parallel aggregation would not pay; it lives in the
 * aggregate's memory context, where a hash aggregate can see how large it is and spill.  The points
 * are sorted before they are clustered (gk_group_fit.h), so a model does not depend on the plan.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "groups/groups.h"

PG_FUNCTION_INFO_V1(kmeans_agg_add);
PG_FUNCTION_INFO_V1(kmeans_agg_combine);
PG_FUNCTION_INFO_V1(kmeans_agg_serialize);
PG_FUNCTION_INFO_V1(kmeans_agg_deserialize);
PG_FUNCTION_INFO_V1(kmeans_agg_finish);

typedef struct Collected
{
	int			k;
	int64		skipped;
	HeapTupleHeader value;		/* kmeans_options, or NULL */
	KmFitOptions options;		/* parsed from it */
	KmGroupRows rows;
} Collected;

/* In the aggregate's context; the options are copied there. */
static Collected *
make_state(MemoryContext cxt, int k, HeapTupleHeader value)
{
	Collected  *s = MemoryContextAllocZero(cxt, sizeof(Collected));

	s->k = k;
	km_group_rows_init(&s->rows, cxt);
	if (value == NULL)
		km_options_from_defaults((Datum) 0, k, &s->options);
	else
	{
		Size		len = HeapTupleHeaderGetDatumLength(value);
		MemoryContext caller = MemoryContextSwitchTo(cxt);

		s->value = palloc(len);
		memcpy(s->value, value, len);
		km_options_from_value(s->value, k, &s->options);
		MemoryContextSwitchTo(caller);
	}
	return s;
}

static void
check_same_k(const Collected *s, int k)
{
	if (k != s->k)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be the same in all rows of a group, not %d and %d", s->k, k)));
}

/* kmeans_agg_add(state internal, point "any", k int[, options kmeans_options]) returns internal */
Datum
kmeans_agg_add(PG_FUNCTION_ARGS)
{
	MemoryContext cxt = km_aggregate_context(fcinfo, "kmeans_agg_add");
	Collected  *s = PG_ARGISNULL(0) ? NULL : (Collected *) PG_GETARG_POINTER(0);
	KmeansPoint *p = kmeans_point_of_call(fcinfo, 1, 1, KM_POINT_TO_FIT);
	int			k = km_parse_k(fcinfo, 2);

	if (s == NULL)
		s = make_state(cxt, k, PG_NARGS() < 4 || PG_ARGISNULL(3) ? NULL : PG_GETARG_HEAPTUPLEHEADER(3));
	check_same_k(s, k);
	if (kmeans_point_read_one(p, PG_GETARG_DATUM(1), PG_ARGISNULL(1)) &&
		km_usable_point(p->values, p->d, &s->options))
		memcpy(km_group_rows_add(&s->rows, p->d), p->values, p->d * sizeof(double));
	else
		s->skipped++;
	PG_RETURN_POINTER(s);
}

/* kmeans_agg_combine(a internal, b internal) returns internal */
Datum
kmeans_agg_combine(PG_FUNCTION_ARGS)
{
	MemoryContext cxt = km_aggregate_context(fcinfo, "kmeans_agg_combine");
	Collected  *a = PG_ARGISNULL(0) ? NULL : (Collected *) PG_GETARG_POINTER(0);
	const Collected *b = PG_ARGISNULL(1) ? NULL : (Collected *) PG_GETARG_POINTER(1);

	if (b == NULL)
	{
		if (a == NULL)
			PG_RETURN_NULL();
		PG_RETURN_POINTER(a);
	}
	if (a == NULL)
		a = make_state(cxt, b->k, b->value);
	check_same_k(a, b->k);
	for (int64 i = 0; i < b->rows.n; i++)
		memcpy(km_group_rows_add(&a->rows, b->rows.d), km_group_rows_at(&b->rows, i), b->rows.d * sizeof(double));
	a->skipped += b->skipped;
	PG_RETURN_POINTER(a);
}

/* Between processes of one server: numbers as they are. */
typedef struct CollectedHeader
{
	int64		n;
	int64		skipped;
	int32		k;
	int32		d;
	uint32		value_len;
} CollectedHeader;

/* kmeans_agg_serialize(state internal) returns bytea */
Datum
kmeans_agg_serialize(PG_FUNCTION_ARGS)
{
	const Collected *s;
	CollectedHeader h = {0};
	uint64		bytes;
	bytea	   *out;
	char	   *at;

	(void) km_aggregate_context(fcinfo, "kmeans_agg_serialize");
	s = (const Collected *) PG_GETARG_POINTER(0);
	h.n = s->rows.n;
	h.skipped = s->skipped;
	h.k = s->k;
	h.d = s->rows.d;
	h.value_len = s->value == NULL ? 0 : HeapTupleHeaderGetDatumLength(s->value);
	bytes = VARHDRSZ + sizeof(h) + h.value_len + (uint64) h.n * h.d * sizeof(double);
	if (bytes > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%llu MB of points of one group are over the limit of %llu MB for a parallel kmeans_agg",
						(unsigned long long) (bytes >> 20), (unsigned long long) (MaxAllocSize >> 20)),
				 errhint("Set max_parallel_workers_per_gather to 0, or use kmeans_fit() on a table.")));
	out = palloc(bytes);
	SET_VARSIZE(out, bytes);
	at = VARDATA(out);
	memcpy(at, &h, sizeof(h));
	at += sizeof(h);
	if (h.value_len > 0)
		memcpy(at, s->value, h.value_len);
	at += h.value_len;
	for (int64 i = 0; i < h.n; i++, at += h.d * sizeof(double))
		memcpy(at, km_group_rows_at(&s->rows, i), h.d * sizeof(double));
	PG_RETURN_BYTEA_P(out);
}

/* kmeans_agg_deserialize(bytes bytea, state internal) returns internal */
Datum
kmeans_agg_deserialize(PG_FUNCTION_ARGS)
{
	bytea	   *in;
	const char *at;
	CollectedHeader h = {.d = -1};
	Collected  *s;
	HeapTupleHeader value = NULL;

	(void) km_aggregate_context(fcinfo, "kmeans_agg_deserialize");
	in = PG_GETARG_BYTEA_PP(0);
	at = VARDATA_ANY(in);
	if (VARSIZE_ANY_EXHDR(in) >= sizeof(h))
		memcpy(&h, at, sizeof(h));
	if (h.d < 0 || h.d > GK_MAX_D || h.n < 0 || h.n > GK_MAX_GROUP ||
		(uint64) VARSIZE_ANY_EXHDR(in) != sizeof(h) + h.value_len + (uint64) h.n * h.d * sizeof(double))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid state of kmeans_agg")));
	at += sizeof(h);
	if (h.value_len > 0)
	{
		value = palloc(h.value_len);
		memcpy(value, at, h.value_len);
		at += h.value_len;
	}
	s = make_state(CurrentMemoryContext, h.k, value);
	s->skipped = h.skipped;
	for (int64 i = 0; i < h.n; i++, at += h.d * sizeof(double))
		memcpy(km_group_rows_add(&s->rows, h.d), at, h.d * sizeof(double));
	PG_RETURN_POINTER(s);
}

/* kmeans_agg_finish(state internal) returns kmeans_model */
Datum
kmeans_agg_finish(PG_FUNCTION_ARGS)
{
	const Collected *s;
	KmPgHost   *host;
	GkModel		model;
	KmeansModel *result;
	double		start = gk_now_ms();

	(void) km_aggregate_context(fcinfo, "kmeans_agg_finish");
	s = PG_ARGISNULL(0) ? NULL : (const Collected *) PG_GETARG_POINTER(0);
	if (s == NULL || s->rows.n == 0)
		PG_RETURN_NULL();
	host = km_host_begin();
	km_group_rows_fit(host, &s->rows, &s->options, NULL, &model);
	model.rows_skipped = s->skipped;
	model.total_ms = gk_now_ms() - start;
	result = kmeans_model_build(&model, NULL, 0);
	km_host_end(host);
	PG_RETURN_POINTER(result);
}
