/*
 * group_points.c - points of one group, collected in memory; their fit and its options.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "core/base/gk_mem.h"
#include "groups/groups.h"

/* ---- rows ---- */

void
km_group_rows_init(KmGroupRows *rows, MemoryContext cxt)
{
	memset(rows, 0, sizeof(*rows));
	rows->cxt = cxt;
}

double *
km_group_rows_add(KmGroupRows *rows, int d)
{
	static const KmPointOrigin origin = {.use = KM_POINT_TO_FIT};

	if (rows->d == 0)
		rows->d = d;
	km_check_features(d, rows->d, &origin);
	if (rows->n == rows->room)
	{
		int64		more = (int64) KM_GROUP_ROWS_FIRST << rows->segments;
		Size		bytes = (Size) more * d * sizeof(double);

		if (rows->segments == KM_GROUP_ROWS_SEGMENTS || rows->n >= GK_MAX_GROUP)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("a group has more than %lld points", (long long) GK_MAX_GROUP),
					 errhint("Use kmeans() or kmeans_fit() on a table.")));
		rows->segment[rows->segments] =
			MemoryContextAllocHuge(rows->cxt, bytes);
		gk_huge_pages(rows->segment[rows->segments], bytes);
		rows->segments++;
		rows->room += more;
	}
	return km_group_rows_at(rows, rows->n++);
}

void
km_group_rows_view(KmGroupRows *rows, double *values, int64 n, int d)
{
	km_group_rows_init(rows, NULL);
	rows->d = d;
	rows->n = rows->room = n;
	for (int64 first = 0; first < n; rows->segments++)
	{
		rows->segment[rows->segments] = values + first * d;
		first += (int64) KM_GROUP_ROWS_FIRST << rows->segments;
	}
}

const double *
km_group_rows_point(const void *arg, int64_t i)
{
	return km_group_rows_at(arg, i);
}

/* ---- a fit ---- */

void
km_check_given_features(const KmFitOptions *options, int d)
{
	if (options->given_d != 0 && options->given_d != d)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("different numbers of features: %d in %s, %d in the points",
						options->given_d,
						options->given_by, d)));
}

void
km_group_rows_fit(KmPgHost *host, const KmGroupRows *rows, const KmFitOptions *options,
				  int32_t *label, GkModel *model)
{
	const GkBackend *backend;
	GkHost		engine = *km_host_engine(host);
	GkGroupPoints points = km_group_rows_points(rows, false);
	GkError		err;

	/* waking threads up takes longer than clustering a small group */
	if (rows->n * rows->d < KM_LARGE_GROUP)
		engine.threads = 1;
	km_apply_simd();
	km_check_given_features(options, rows->d);
	backend = km_choose_backend(host, options->device, rows->n, rows->d, options->engine.k);
	km_check(host,
			 gk_group_fit(&engine, backend, &options->engine, &points, label, model, &err),
			 &err);
}

/* ---- options ---- */

static void
parse(const Datum *values, const bool *nulls, int k, KmFitOptions *out)
{
	LOCAL_FCINFO(args, GKMEANS_NOPTIONS);

	InitFunctionCallInfoData(*args, NULL, GKMEANS_NOPTIONS, InvalidOid, NULL, NULL);
	for (int i = 0; i < GKMEANS_NOPTIONS; i++)
	{
		args->args[i].value = values[i];
		args->args[i].isnull = nulls[i];
	}
	km_parse_options(args, 0, k, out);
}

/* kmeans_options is a row type with the fields of <options>. */
void
km_options_from_value(HeapTupleHeader value, int k, KmFitOptions *out)
{
	TupleDesc	desc;
	HeapTupleData tuple;
	Datum		values[GKMEANS_NOPTIONS];
	bool		nulls[GKMEANS_NOPTIONS];

	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(value), HeapTupleHeaderGetTypMod(value));
	if (desc->natts != GKMEANS_NOPTIONS)
		elog(ERROR, "kmeans_options has %d fields, expected %d", desc->natts, GKMEANS_NOPTIONS);
	tuple.t_len = HeapTupleHeaderGetDatumLength(value);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = value;
	heap_deform_tuple(&tuple, desc, values, nulls);
	ReleaseTupleDesc(desc);
	parse(values, nulls, k, out);
	kmeans_refuse_distance(out->engine.distance, "an aggregate");
	if (out->weight_column != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("weight_column cannot be used with an aggregate"),
				 errdetail("The points of an aggregate have no other columns.")));
	km_refuse_fill(out, "an aggregate");
	km_require_iterations(out);
}

/* The defaults of <options> in the SQL script, in their order. */
void
km_options_from_defaults(Datum centroids, int k, KmFitOptions *out)
{
	Datum		values[GKMEANS_NOPTIONS] = {
		(Datum) 0,				/* weight_column */
		CStringGetTextDatum("k-means++"),	/* init */
		(Datum) 0,				/* warm_start */
		centroids,
		Int32GetDatum(1),		/* n_init */
		Int32GetDatum(100),		/* max_iter */
		Float8GetDatum(1e-4),	/* tol */
		CStringGetTextDatum("euclidean"),	/* distance */
		BoolGetDatum(false),	/* standardize */
		Int64GetDatum(0),		/* seed */
		CStringGetTextDatum("error"),	/* nonfinite */
		(Datum) 0,				/* device */
		CStringGetTextDatum("skip") /* nulls */
	};
	bool		nulls[GKMEANS_NOPTIONS] = {[0] = true,[2] = true,[3] = centroids == (Datum) 0,[11] = true};

	parse(values, nulls, k, out);
}
