/*
 * window_spill.c - points of the node KmeansWindow over gkmeans.memory_limit.
 *
 * When the points in memory are over the limit, all of them go to a temporary file, a run: call by
 * call, and of each call partition by partition.  In the end some partitions at a time, as many as
 * fit, are collected from all runs, each of which is read once from its beginning to its end.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "window/window.h"

/* Before a partition's points in a run. */
typedef struct Header
{
	int32		call;			/* -1: the end */
	int32		partition;
	int32		d;
	int64		n;
} Header;

typedef struct Run
{
	BufFile    *file;
	Header		next;			/* whose points are to be read next */
} Run;

struct KmWindowSpill
{
	int			nruns;
	int			room;
	Run		   *runs;
	double	   *point;			/* room for one that is read, [capacity] */
	int			capacity;
	int			partitions;		/* that counts have room for */
	int64	  **count;			/* [calls][partitions]: points in the runs */
};

static void
put(BufFile *file, const void *data, Size bytes)
{
	BufFileWrite(file, unconstify(void *, data), bytes);
}

void
km_window_file_read(BufFile *file, void *data, Size bytes, const char *what)
{
	if (BufFileRead(file, data, bytes) != bytes)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from a temporary file of %s: %m", what)));
}

void
km_window_file_rewind(BufFile *file, const char *what)
{
	if (BufFileSeek(file, 0, 0L, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not rewind a temporary file of %s", what)));
}

static void
get(BufFile *file, void *data, Size bytes)
{
	km_window_file_read(file, data, bytes, "points");
}

/* ---- out ---- */

static void
make_room(KmWindowPoints *w)
{
	KmWindowSpill *s = w->spill;

	if (s == NULL)
	{
		s = w->spill = palloc0(sizeof(KmWindowSpill));
		s->count = palloc0(w->ncalls * sizeof(int64 *));
	}
	if (s->nruns == s->room)
	{
		s->room = Max(16, s->room * 2);
		s->runs = s->runs == NULL ? palloc(s->room * sizeof(Run)) : repalloc(s->runs, s->room * sizeof(Run));
	}
	for (int c = 0; c < w->ncalls; c++)
	{
		Size		bytes = (Size) w->groups.n * sizeof(int64);

		s->count[c] = s->count[c] == NULL ? MemoryContextAllocHuge(CurrentMemoryContext, bytes) :
			repalloc_huge(s->count[c], bytes);
		memset(s->count[c] + s->partitions, 0, (w->groups.n - s->partitions) * sizeof(int64));
	}
	s->partitions = w->groups.n;
}

/* A call's points of one partition; returns the bytes. */
static int64
put_rows(BufFile *file, int call, int partition, const KmGroupRows *rows)
{
	Header		header = {call, partition, rows->d, rows->n};

	put(file, &header, sizeof(header));
	for (int64 i = 0; i < rows->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		put(file, km_group_rows_at(rows, i), rows->d * sizeof(double));
	}
	return sizeof(header) + rows->n * rows->d * (int64) sizeof(double);
}

void
km_window_spill(KmWindowPoints *w)
{
	MemoryContext caller = MemoryContextSwitchTo(w->points_cxt);
	Header		last = {-1, 0, 0, 0};
	BufFile    *file;

	make_room(w);
	file = BufFileCreateTemp(false);
	for (int c = 0; c < w->ncalls; c++)
		for (int i = 0; i < w->groups.n; i++)
		{
			KmGroupRows *rows = &w->groups.groups[i]->rows[c];

			if (rows->n > 0)
				w->spilled += put_rows(file, c, i, rows);
			w->spill->count[c][i] += rows->n;
			km_group_rows_init(rows, w->groups.rows_cxt);
		}
	put(file, &last, sizeof(last));
	w->spill->runs[w->spill->nruns++].file = file;
	w->spilled += sizeof(last);
	MemoryContextReset(w->groups.rows_cxt);
	MemoryContextSwitchTo(caller);
}

/* ---- in ---- */

void
km_window_spill_rewind(KmWindowPoints *w)
{
	KmWindowSpill *s = w->spill;

	for (int r = 0; r < s->nruns; r++)
	{
		Run		   *run = &s->runs[r];

		km_window_file_rewind(run->file, "points");
		get(run->file, &run->next, sizeof(Header));
	}
}

int64
km_window_spill_count(const KmWindowPoints *w, int call, int partition)
{
	return w->spill->count[call][partition];
}

/* The partition's points of one run, if it has some, behind those of earlier runs. */
static void
get_rows(KmWindowSpill *s, Run *run, int call, int partition, KmGroupRows *rows)
{
	int			d = run->next.d;

	if (run->next.call != call || run->next.partition != partition)
		return;
	if (d > s->capacity)
	{
		s->point = s->point == NULL ? palloc(d * sizeof(double)) : repalloc(s->point, d * sizeof(double));
		s->capacity = d;
	}
	for (int64 i = 0; i < run->next.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		get(run->file, s->point, d * sizeof(double));
		memcpy(km_group_rows_add(rows, d), s->point, d * sizeof(double));
	}
	get(run->file, &run->next, sizeof(Header));
}

/* One partition at least, and then as long as the next one's points fit, too. */
int
km_window_spill_load(KmWindowPoints *w, int call, int first)
{
	KmWindowSpill *s = w->spill;
	Size		next = 0;
	int			i = first;

	MemoryContextReset(w->groups.rows_cxt);
	while (i < w->groups.n &&
		   (i == first || MemoryContextMemAllocated(w->groups.rows_cxt, false) + next <= w->limit))
	{
		KmGroupRows *rows = &w->groups.groups[i]->rows[call];

		km_group_rows_init(rows, w->groups.rows_cxt);
		for (int r = 0; r < s->nruns; r++)
			get_rows(s, &s->runs[r], call, i, rows);
		if (++i < w->groups.n)
			next = s->count[call][i] * Max(rows->d, 1) * sizeof(double);
	}
	return i;
}

void
km_window_spill_end(KmWindowPoints *w)
{
	for (int r = 0; w->spill != NULL && r < w->spill->nruns; r++)
		BufFileClose(w->spill->runs[r].file);
	w->spill = NULL;
}
