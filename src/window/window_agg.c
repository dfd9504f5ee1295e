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

#define NO_LABEL	(-1)

/* Zeroed at the start of a partition. */
typedef struct Partition
{
	int32	   *label;			/* one per row; NULL: not clustered yet */
} Partition;

/* k and centroids of the partition's first row hold for all of it. */
static void
partition_options(WindowObject winobj, bool with_centroids, KmFitOptions *out)
{
	LOCAL_FCINFO(k, 1);
	Datum		centroids = (Datum) 0;
	bool		isnull = true;
	bool		isout;

	InitFunctionCallInfoData(*k, NULL, 1, InvalidOid, NULL, NULL);
	k->args[0].value = WinGetFuncArgInPartition(winobj, 1, 0, WINDOW_SEEK_HEAD, false,
												&k->args[0].isnull, &isout);
	if (with_centroids)
		centroids = WinGetFuncArgInPartition(winobj, 2, 0, WINDOW_SEEK_HEAD, false, &isnull, &isout);
	km_options_from_defaults(isnull ? (Datum) 0 : centroids, km_parse_k(k, 0), out);
}

/* Rows with a usable point go to `rows`; label: 0 for them, NO_LABEL for others. */
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
		label[i] = NO_LABEL;
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
	KmFitOptions options;
	KmGroupRows		rows;
	KmPgHost   *host;
	GkModel		model;
	int32_t    *found;
	int64		at = 0;

	km_group_rows_init(&rows, cxt);
	partition_options(winobj, with_centroids, &options);
	read_partition(winobj, p, n, &options, &rows, label);
	if (rows.n > 0)
	{
		found = MemoryContextAllocHuge(cxt, rows.n * sizeof(int32_t));
		gk_huge_pages(found, rows.n * sizeof(int32_t));
		host = km_host_begin();
		km_group_rows_fit(host, &rows, &options, found, &model);
		km_host_end(host);
		for (int64 i = 0; i < n; i++)
			if (label[i] != NO_LABEL)
				label[i] = found[at++];
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(cxt);
}

/* Once per query. */
static KmeansPoint *
point_reader(FunctionCallInfo fcinfo)
{
	KmeansPoint *p = fcinfo->flinfo->fn_extra;

	if (p == NULL)
	{
		p = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(KmeansPoint));
		kmeans_point_init(p, fcinfo, 0, 1, KM_POINT_TO_FIT, fcinfo->flinfo->fn_mcxt);
		fcinfo->flinfo->fn_extra = p;
	}
	return p;
}

/* kmeans(point "any", k int[, centroids float8[]]) OVER (...) returns int */
Datum
kmeans_window(PG_FUNCTION_ARGS)
{
	WindowObject winobj = PG_WINDOW_OBJECT();
	Partition  *p;
	int32		label;

	/* an operator of a user's calls it without a window */
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
		cluster_partition(winobj, point_reader(fcinfo), PG_NARGS() > 2, n, labels);
		p->label = labels;
	}
	label = p->label[WinGetCurrentPosition(winobj)];
	if (label == NO_LABEL)
		PG_RETURN_NULL();
	PG_RETURN_INT32(label);
}
