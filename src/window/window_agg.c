/*
 * window_agg.c - kmeans(point, k[, centroids]) OVER (PARTITION BY ...):
 * labels as a window function.
 *
 * This is how the server's WindowAgg node calls it; see window_plan.c for the
 * node that takes its place where it can.
 *
 * The first row of a partition reads all of its points and clusters them; the
 * labels stay in the partition's memory for the other rows.  The points are
 * sorted first (gk_group_fit.h), so an ORDER BY makes no difference.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "windowapi.h"

#include "core/base/gk_mem.h"
#include "window/window.h"

PG_FUNCTION_INFO_V1(kmeans_window);

/* Zeroed at the start of a partition. */
typedef struct Partition
{
	int32	   *label;			/* one per row; NULL: not clustered yet */
} Partition;

void
km_window_options(NullableDatum k, NullableDatum centroids, KmFitOptions *out)
{
	LOCAL_FCINFO(call, 1);

	InitFunctionCallInfoData(*call, NULL, 1, InvalidOid, NULL, NULL);
	call->args[0] = k;
	km_options_from_defaults(centroids.isnull ? (Datum) 0 : centroids.value, km_parse_k(call, 0), out);
}

/* The value of an argument in the partition's first row. */
static NullableDatum
first_row_argument(WindowObject winobj, int arg)
{
	NullableDatum v;
	bool		isout;

	v.value = WinGetFuncArgInPartition(winobj, arg, 0, WINDOW_SEEK_HEAD, false, &v.isnull, &isout);
	return v;
}

/* Rows with a usable point go to `rows`; label: 0 for them, KM_NO_LABEL for others. */
static void
read_partition(WindowObject winobj, KmeansPoint *p, int64 n, const KmFitOptions *options,
			   KmGroupRows *rows, int32 *label)
{
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext, "gkmeans row",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(row_cxt);

	for (int64 i = 0; i < n; i++)
	{
		bool		isnull;
		bool		isout;
		Datum		datum;

		/* the argument is evaluated in the current context */
		if (i % 64 == 0)
		{
			CHECK_FOR_INTERRUPTS();
			MemoryContextReset(row_cxt);
		}
		label[i] = KM_NO_LABEL;
		datum = WinGetFuncArgInPartition(winobj, 0, (int) i, WINDOW_SEEK_HEAD, false, &isnull, &isout);
		if (!kmeans_point_read_one(p, datum, isnull) || !km_usable_point(p->values, p->d, options))
			continue;
		memcpy(km_group_rows_add(rows, p->d), p->values, p->d * sizeof(double));
		label[i] = 0;
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(row_cxt);
}

/* label is in the partition's memory; everything else goes when this returns. */
static void
cluster_partition(WindowObject winobj, KmeansPoint *p, bool with_centroids, int64 n, int32 *label)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "gkmeans partition",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(cxt);
	NullableDatum k;
	NullableDatum centroids = {.isnull = true};
	KmFitOptions options;
	KmGroupRows rows;
	KmPgHost   *host;
	GkModel		model;
	int32_t    *found;
	int64		at = 0;

	km_group_rows_init(&rows, cxt);
	/* those of the first row hold for all of the partition */
	k = first_row_argument(winobj, 1);
	if (with_centroids)
		centroids = first_row_argument(winobj, 2);
	km_window_options(k, centroids, &options);
	read_partition(winobj, p, n, &options, &rows, label);
	if (rows.n > 0)
	{
		found = MemoryContextAllocHuge(cxt, rows.n * sizeof(int32_t));
		gk_huge_pages(found, rows.n * sizeof(int32_t));
		host = km_host_begin();
		km_group_rows_fit(host, &rows, &options, found, &model);
		km_host_end(host);
		for (int64 i = 0; i < n; i++)
			if (label[i] != KM_NO_LABEL)
				label[i] = found[at++];
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(cxt);
}

/* kmeans(point "any", k int[, centroids float8[]]) OVER (...) returns int */
Datum
kmeans_window(PG_FUNCTION_ARGS)
{
	WindowObject winobj = PG_WINDOW_OBJECT();
	Partition  *p;
	int32		label;

	/* a user's operator may call it without a window */
	if (!WindowObjectIsValid(winobj))
		ereport(ERROR,
				(errcode(ERRCODE_WINDOWING_ERROR),
				 errmsg("window function kmeans requires an OVER clause")));
	p = WinGetPartitionLocalMemory(winobj, sizeof(Partition));
	if (p->label == NULL)
	{
		int64		n = WinGetPartitionRowCount(winobj);

		/* next to *p, so that it goes with the partition; WinGetPartitionLocalMemory ends at 1 GB */
		int32	   *labels = MemoryContextAllocHuge(GetMemoryChunkContext(p), n * sizeof(int32));

		gk_huge_pages(labels, n * sizeof(int32));
		if (n > GK_MAX_GROUP)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("a partition of %lld rows is over the limit of %lld",
							(long long) n, (long long) GK_MAX_GROUP)));
		cluster_partition(winobj, kmeans_point_of_call(fcinfo, 0, 1, KM_POINT_TO_FIT), PG_NARGS() > 2, n, labels);
		p->label = labels;
	}
	label = p->label[WinGetCurrentPosition(winobj)];
	if (label == KM_NO_LABEL)
		PG_RETURN_NULL();
	PG_RETURN_INT32(label);
}
