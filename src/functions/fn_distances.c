/*
 * fn_distances.c - rows by their distance to a model's centroids, in one read: kmeans_anomalies(),
 * those farthest from theirs, and kmeans_medoids(), those nearest.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/builtins.h"

#include "functions/functions.h"

PG_FUNCTION_INFO_V1(kmeans_anomalies);
PG_FUNCTION_INFO_V1(kmeans_medoids);

/* A row that has been seen. */
typedef struct SeenRow
{
	double		normalized;		/* distance, in units of its cluster's */
	double		distance;
	int64		number;			/* place in the order of the rows */
	KmRowId		id;
	int32		cluster;
} SeenRow;

/* Where and how to read: arguments relation, model; nonfinite and device. */
static void
label_rows(FunctionCallInfo fcinfo, int nonfinite, void (*begin) (void *arg, const GkModel *m, int64 rows), KmLabelWant want)
{
	KmModelRows rows;
	GkDeviceKind device = km_parse_device(fcinfo, nonfinite + 1);
	GkStore    *store;

	km_model_rows_open(fcinfo, 1, 0, nonfinite, &rows);
	store = km_model_rows_read(&rows, PG_GETARG_OID(0), true, NULL);
	if (store == NULL)
		km_notice_no_rows(rows.source);
	else
	{
		begin(want.arg, &rows.model, gk_store_rows(store));
		km_model_rows_label(&rows, store, device, &want);
	}
	km_host_end(rows.host);
}

static void
put_row(KmResult *result, const SeenRow *row, bool normalized)
{
	ItemPointerData ctid = row->id.ctid;
	Datum		values[5] = {ObjectIdGetDatum(row->id.tableoid), PointerGetDatum(&ctid), Int32GetDatum(row->cluster),
	Float8GetDatum(row->distance), normalized ? Float8GetDatum(row->normalized) : (Datum) 0};
	bool		nulls[5] = {false};

	CHECK_FOR_INTERRUPTS();
	tuplestore_putvalues(result->store, result->desc, values, nulls);
}

/* ---- the farthest rows ---- */

/* The rows to be returned so far: a heap, with the one that goes first on top. */
typedef struct Anomalies
{
	double		contamination;
	double	   *unit;			/* [k] see km_cluster_units() */
	int64		seen;
	int64		count;
	int64		most;
	SeenRow    *row;
} Anomalies;

/* Is a the more usual row?  Of equal ones the later one. */
static bool
more_usual(const SeenRow *a, const SeenRow *b)
{
	return a->normalized != b->normalized ? a->normalized < b->normalized : a->number > b->number;
}

static void
sift_down(Anomalies *a, SeenRow row)
{
	int64		at = 0;

	for (;;)
	{
		int64		child = 2 * at + 1;

		if (child + 1 < a->count && more_usual(&a->row[child + 1], &a->row[child]))
			child++;
		if (child >= a->count || !more_usual(&a->row[child], &row))
			break;
		a->row[at] = a->row[child];
		at = child;
	}
	a->row[at] = row;
}

static void
sift_up(Anomalies *a, SeenRow row)
{
	int64		at = a->count++;

	for (; at > 0 && more_usual(&row, &a->row[(at - 1) / 2]); at = (at - 1) / 2)
		a->row[at] = a->row[(at - 1) / 2];
	a->row[at] = row;
}

void
km_cluster_units(const GkModel *m, double *unit)
{
	for (int c = 0; c < m->k; c++)
	{
		double		mean = m->size[c] > 0 ? m->cluster_inertia[c] / m->size[c] : 0.0;

		unit[c] = gk_distance_is_root(m->prep.distance) ? sqrt(mean) : mean;
	}
}

static void
begin_anomalies(void *arg, const GkModel *m, int64 rows)
{
	Anomalies  *a = arg;

	/* what a product of decimals is above the whole number is no row */
	a->most = (int64) ceil(a->contamination * rows * (1.0 - 1e-12));
	a->row = palloc_extended(Max(a->most, 1) * sizeof(SeenRow), MCXT_ALLOC_HUGE);
	a->unit = palloc(m->k * sizeof(double));
	km_cluster_units(m, a->unit);
}

static void
see_anomalies(void *arg, const KmTables *tables, const GkPrep *prep, int rows,
			  const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Anomalies  *a = arg;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < rows; i++)
	{
		SeenRow		row = {.number = a->seen++,.cluster = label[i],.distance = gk_distance_from_d2(prep, d2[i])};

		row.normalized = km_normalized(row.distance, a->unit[label[i]]);
		if (a->count == a->most && (a->most == 0 || !more_usual(&a->row[0], &row)))
			continue;
		km_row_id(tables, aux, i, &row.id);
		if (a->count < a->most)
			sift_up(a, row);
		else
			sift_down(a, row);
	}
}

/* The rows, the most unusual first: the heap gives them in the other order. */
static void
put_anomalies(Anomalies *a, KmResult *result)
{
	int64		count = a->count;

	while (a->count > 0)
	{
		SeenRow		top = a->row[0];
		SeenRow		last = a->row[--a->count];

		CHECK_FOR_INTERRUPTS();
		if (a->count > 0)
			sift_down(a, last);
		a->row[a->count] = top;
	}
	for (int64 i = 0; i < count; i++)
		put_row(result, &a->row[i], true);
}

/*
 * kmeans_anomalies(relation regclass, model kmeans_model, contamination float8, nonfinite text, device text)
 * returns table (tableoid oid, ctid tid, cluster int, distance float8, normalized_distance float8)
 */
Datum
kmeans_anomalies(PG_FUNCTION_ARGS)
{
	Anomalies	a = {0};
	KmResult	result;

	km_result_begin(fcinfo, &result);
	km_require_arg(fcinfo, 2, "contamination");
	a.contamination = PG_GETARG_FLOAT8(2);
	if (!(a.contamination >= 0.0 && a.contamination <= 0.5))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("contamination must be between 0 and 0.5, not %g", a.contamination),
				 errhint("It is the share of rows to return: 0.01 for one in a hundred.")));
	km_require_arg(fcinfo, 1, "model");
	kmeans_model_refuse_spectral(PG_GETARG_KMEANS_MODEL(1), "kmeans_anomalies()");
	label_rows(fcinfo, 3, begin_anomalies, (KmLabelWant) {NULL, see_anomalies, &a});
	put_anomalies(&a, &result);
	return (Datum) 0;
}

/* ---- the nearest rows ---- */

typedef struct Medoids
{
	int			k;
	float	   *d2;				/* [k] of the nearest row so far */
	SeenRow    *row;			/* [k] cluster < 0: none yet */
} Medoids;

static void
begin_medoids(void *arg, const GkModel *m, int64 rows)
{
	Medoids    *medoids = arg;

	medoids->k = m->k;
	medoids->d2 = palloc(m->k * sizeof(float));
	medoids->row = palloc(m->k * sizeof(SeenRow));
	for (int c = 0; c < m->k; c++)
		medoids->row[c].cluster = -1;
}

static void
see_medoids(void *arg, const KmTables *tables, const GkPrep *prep, int rows,
			const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Medoids    *medoids = arg;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < rows; i++)
	{
		int			c = label[i];
		SeenRow    *row = &medoids->row[c];

		if (row->cluster >= 0 && d2[i] >= medoids->d2[c])
			continue;
		medoids->d2[c] = d2[i];
		row->cluster = c;
		row->distance = gk_distance_from_d2(prep, d2[i]);
		km_row_id(tables, aux, i, &row->id);
	}
}

/*
 * kmeans_medoids(relation regclass, model kmeans_model, nonfinite text, device text)
 * returns table (tableoid oid, ctid tid, cluster int, distance float8)
 */
Datum
kmeans_medoids(PG_FUNCTION_ARGS)
{
	Medoids		medoids = {0};
	KmResult	result;

	km_result_begin(fcinfo, &result);
	label_rows(fcinfo, 2, begin_medoids, (KmLabelWant) {NULL, see_medoids, &medoids});
	for (int c = 0; c < medoids.k; c++)
		if (medoids.row[c].cluster >= 0)
			put_row(&result, &medoids.row[c], false);
	return (Datum) 0;
}
