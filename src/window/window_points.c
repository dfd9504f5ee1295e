/*
 * window_points.c - the points of the node KmeansWindow's partitions, and their labels.
 *
 * Each row leaves the number of its partition for each call, and its point in the partition.
 * Partitions are clustered by all threads, one on one thread, large ones one after the other by
 * all.  Points of a partition are in the order of their rows, so the labels come back to the rows
 * by counting.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "core/gk_backend.h"
#include "core/base/gk_mem.h"
#include "window/window.h"

#define MIN_ROOM	1024
/* Bytes of points below which a file does not pay. */
#define MIN_LIMIT	((Size) 1024 * 1024)
/* Rows after which the memory of the points is looked at. */
#define CHECK_ROWS	256
/* Rows for which there is room at first, if the planner expects more. */
#define MAX_EXPECTED	(16 * 1024 * 1024)

/* A partition that one thread clusters. */
typedef struct Job
{
	const KmGroupRows *rows;
	int32_t    *label;
	GkStatus	status;
	GkError    *err;			/* when the status is not GK_OK; NULL: out of memory */
} Job;

typedef struct Work
{
	const KmFitOptions *options;
	KmThreadHosts *hosts;
	Job		   *jobs;
	int64		n;
} Work;

/* ---- rows ---- */

void
km_window_begin(KmWindowPoints *w, double rows)
{
	MemoryContextReset(w->cxt);
	w->n = w->partitions = 0;
	w->peak = w->spilled = 0;
	w->limit = Max(km_memory_limit_bytes(), MIN_LIMIT);
	w->spill = NULL;
	w->room = (int64) Min(Max(rows, MIN_ROOM), MAX_EXPECTED);
	w->points_cxt = AllocSetContextCreate(w->cxt, "gkmeans points", ALLOCSET_DEFAULT_SIZES);
	w->groups.sets = w->ncalls;
	w->groups.rows_cxt = AllocSetContextCreate(w->points_cxt, "gkmeans rows", ALLOCSET_DEFAULT_SIZES);
	km_group_hash_begin(&w->groups, w->points_cxt);
	if (w->groups.nkeys == 0)
		(void) km_group_hash_add(&w->groups, 0, NULL, NULL);
	for (int c = 0; c < w->ncalls; c++)
	{
		KmWindowCall *call = &w->calls[c];

		call->n = 0;
		call->label = MemoryContextAllocHuge(w->cxt, w->room * sizeof(int32));
	}
}

static void
more_room(KmWindowPoints *w)
{
	w->room *= 2;
	for (int c = 0; c < w->ncalls; c++)
		w->calls[c].label = repalloc_huge(w->calls[c].label, w->room * sizeof(int32));
}

static Size
points_bytes(const KmWindowPoints *w)
{
	return MemoryContextMemAllocated(w->groups.rows_cxt, false);
}

/* The point into its partition's rows; false: it has a NULL, or is to be left out. */
static inline bool
add_point(KmWindowCall *call, KmGroupRows *rows, const Datum *values, const bool *nulls)
{
	double	   *to;
	int			d = call->features;

	if (d > 0)
	{
		for (int j = 0; j < d; j++)
			if (nulls[call->at + j])
				return false;
		to = km_group_rows_add(rows, d);
		km_point_features(call->type, d, values + call->at, to);
	}
	else
	{
		if (!kmeans_point_read_one(&call->reader, values[call->at], nulls[call->at]))
			return false;
		d = call->reader.d;
		to = km_group_rows_add(rows, d);
		memcpy(to, call->reader.values, d * sizeof(double));
	}
	if (unlikely(!km_usable_point(to, d, &call->options)))
	{
		rows->n--;
		return false;
	}
	return true;
}

void
km_window_add(KmWindowPoints *w, const Datum *values, const bool *nulls)
{
	int			number = 0;

	if (w->n == w->room)
		more_room(w);
	if (w->groups.nkeys > 0)
		number = km_group_hash_find(&w->groups, values, nulls)->number;
	for (int c = 0; c < w->ncalls; c++)
	{
		KmWindowCall *call = &w->calls[c];
		bool		usable = add_point(call, &w->groups.groups[number]->rows[c], values, nulls);

		call->label[w->n] = usable ? number : KM_NO_LABEL;
		call->n += usable;
	}
	if (++w->n % CHECK_ROWS == 0 && w->groups.nkeys > 0 && points_bytes(w) > w->limit)
	{
		w->peak = Max(w->peak, points_bytes(w));
		km_window_spill(w);
	}
}

/* ---- labels ---- */

static void
fit_job(void *arg, int64_t number, int thread)
{
	const Work *w = arg;
	Job		   *job = &w->jobs[number];
	const GkHost *host = km_thread_host(w->hosts, thread);
	GkGroupPoints points = km_group_rows_points(job->rows, false);
	KmThreadMark mark = km_thread_mark(w->hosts, thread);
	GkModel		model;
	GkError		err;

	job->status = gk_group_fit(host, &gk_cpu_backend, &w->options->engine, &points, job->label, &model, &err);
	if (job->status != GK_OK)
		job->err = km_thread_keep_error(w->hosts, thread, &err);
	km_thread_reset(w->hosts, thread, mark);
}

static void
fit_large(const KmGroupRows *rows, const KmFitOptions *options, int32_t *label)
{
	KmPgHost   *host = km_host_begin();
	GkModel		model;

	km_group_rows_fit(host, rows, options, label, &model);
	km_host_end(host);
}

static void
fit_small(Work *w)
{
	KmPgHost   *host = km_host_begin();
	const GkHost *engine = km_host_engine(host);

	w->hosts = km_thread_hosts(engine);
	if (!gk_parallel_for(engine, w->n, fit_job, w))
		km_throw(host, GK_STOPPED, NULL);
	for (int64 i = 0; i < w->n; i++)
		km_check(host, w->jobs[i].status, w->jobs[i].err);
	km_host_end(host);
}

/*
 * The labels of a call's points of partitions first to end - 1, one after the other.
 * Returns the place behind them.
 */
static int32_t *
fit_partitions(const KmWindowPoints *w, int c, int first, int end, int32_t *label)
{
	const KmFitOptions *options = &w->calls[c].options;
	Work		work = {.options = options};

	work.jobs = palloc_extended((end - first) * sizeof(Job), MCXT_ALLOC_HUGE);
	for (int i = first; i < end; i++)
	{
		const KmGroupRows *rows = &w->groups.groups[i]->rows[c];

		if (rows->n == 0)
			continue;
		km_check_given_features(options, rows->d);
		/* a GPU that is asked for is used, as in WindowAgg */
		if (rows->n * rows->d < KM_LARGE_GROUP && !km_wants_gpu(options->device))
			work.jobs[work.n++] = (Job) {.rows = rows,.label = label};
		else
			fit_large(rows, options, label);
		label += rows->n;
	}
	if (work.n > 0)
		fit_small(&work);
	pfree(work.jobs);
	return label;
}

/* Label all partitions, as many at a time as fit in memory. */
static void
fit_call(KmWindowPoints *w, int c, int32_t *label)
{
	for (int first = 0, end; first < w->groups.n; first = end)
	{
		end = w->spill == NULL ? w->groups.n : km_window_spill_load(w, c, first);
		w->peak = Max(w->peak, points_bytes(w));
		label = fit_partitions(w, c, first, end, label);
	}
}

/* Each row's partition number becomes its label. */
static void
label_rows(const KmWindowPoints *w, int c, const int32_t *found)
{
	KmWindowCall *call = &w->calls[c];
	const int32_t **next = palloc_extended(w->groups.n * sizeof(int32_t *), MCXT_ALLOC_HUGE);

	for (int i = 0; i < w->groups.n; i++)
	{
		next[i] = found;
		found += w->spill == NULL ? w->groups.groups[i]->rows[c].n : km_window_spill_count(w, c, i);
	}
	for (int64 i = 0; i < w->n; i++)
		if (call->label[i] != KM_NO_LABEL)
			call->label[i] = *next[call->label[i]]++;
	pfree(next);
}

static void
make_labels(KmWindowPoints *w, int c)
{
	KmWindowCall *call = &w->calls[c];
	int32_t    *found;

	/* one partition's labels are the rows' as they are */
	if (w->groups.n == 1 && call->n == w->n)
	{
		fit_call(w, c, call->label);
		return;
	}
	found = palloc_extended(call->n * sizeof(int32_t), MCXT_ALLOC_HUGE);
	fit_call(w, c, found);
	label_rows(w, c, found);
	pfree(found);
}

void
km_window_fit(KmWindowPoints *w)
{
	MemoryContext caller = MemoryContextSwitchTo(w->points_cxt);

	km_apply_simd();
	if (w->spill != NULL)
	{
		km_window_spill(w);
		km_window_spill_rewind(w);
	}
	for (int c = 0; c < w->ncalls; c++)
		make_labels(w, c);
	km_window_spill_end(w);
	MemoryContextSwitchTo(caller);
	w->partitions = w->groups.n;
	MemoryContextDelete(w->points_cxt);
	w->points_cxt = NULL;
}
