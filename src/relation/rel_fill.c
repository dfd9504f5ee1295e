/*
 * rel_fill.c - the columns' means, which NULL features become.
 *
 * They are exact sums (gk_exact.h) divided once, so they depend neither on the order of the rows
 * nor on how they are read: the bits are those of feature_sum() / count().  But a column of one value
 * has that value, which a sum and a quotient may round to its neighbour: standardized, that would be far away.
 */
#include "postgres.h"

#include <math.h>

#include "core/base/gk_exact.h"
#include "pg/pg.h"
#include "relation/rel_executor.h"

#define PROGRESS_ROWS	1024

typedef struct Means
{
	DestReceiver pub;			/* must be first */
	KmRowReader rows;
	int64		kept;			/* rows */
	GkWide	   *sum;			/* [d] */
	int64	   *count;			/* [d] values that are not NULL */
	double	   *one;			/* [d] the first of them */
	bool	   *differ;			/* [d] is there another value? */
} Means;

static void
begin_means(void *arg, int d)
{
	Means	   *m = arg;

	m->sum = MemoryContextAllocZero(m->rows.context, d * sizeof(GkWide));
	m->count = MemoryContextAllocZero(m->rows.context, d * sizeof(int64));
	m->one = MemoryContextAllocZero(m->rows.context, d * sizeof(double));
	m->differ = MemoryContextAllocZero(m->rows.context, d * sizeof(bool));
}

static void
report(const Means *m)
{
	GkProgress	progress = {.phase = "load",.rows = m->rows.origin.number,.inertia = -1};

	km_progress_report(&progress);
}

static bool
add_row(TupleTableSlot *slot, DestReceiver *self)
{
	Means	   *m = (Means *) self;

	if (km_read_row(&m->rows, slot) != KM_ROW_KEPT)
		return true;
	if (++m->kept % PROGRESS_ROWS == 0)
		report(m);
	for (int j = 0; j < m->rows.d; j++)
	{
		if (m->rows.missing[j])
			continue;
		gk_wide_add(&m->sum[j], m->rows.point[j]);
		if (m->count[j]++ == 0)
			m->one[j] = m->rows.point[j];
		m->differ[j] |= m->rows.point[j] != m->one[j];
	}
	return true;
}

/* A KmQueryScan: the pages' reader gives no row with its NULLs. */
static bool
by_executor(QueryDesc *desc, DestReceiver *dest)
{
	return false;
}

/* As feature_sum() / count(), which has no result where the sum is out of range. */
static double
mean_of(GkWide *sum, int64 count)
{
	double		rounded = gk_digits_to_double(sum->limb, GK_WIDE_LIMBS, 0);

	return isfinite(rounded) ? rounded / count : gk_wide_mean(sum, count);
}

void
km_throw_no_mean(const KmSource *source, int j, int64 rows)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 source->array ?
			 errmsg("element %d of column \"%s\" has no mean: it is always NULL", j + 1, source->columns[0]) :
			 errmsg("column \"%s\" has no mean: it is always NULL", source->columns[j]),
			 errdetail_plural(INT64_FORMAT " row of \"%s\" was read.", INT64_FORMAT " rows of \"%s\" were read.",
							  (unsigned long) rows, rows, source->relname),
			 errhint("Leave it out of the features.")));
}

KmFill
km_read_means(KmPgHost *host, const KmSource *source, bool skip_nonfinite)
{
	Means		m = {.pub = *None_Receiver,.rows = {.origin.source = source,.rules.skip_nonfinite = skip_nonfinite,
	.keep_nulls = true,.begin = begin_means,.context = CurrentMemoryContext}};
	double	   *mean;

	m.pub.receiveSlot = add_row;
	m.rows.arg = &m;
	km_progress_begin(km_host_context(host), source->relid);
	km_query_run(source, &m.pub, by_executor);
	if (m.kept == 0)
		return (KmFill) {0, NULL};
	mean = palloc(m.rows.d * sizeof(double));
	for (int j = 0; j < m.rows.d; j++)
	{
		if (m.count[j] == 0)
			km_throw_no_mean(source, j, m.kept);
		/* whichever zero came first, 0 is filled in */
		mean[j] = m.differ[j] ? mean_of(&m.sum[j], m.count[j]) : m.one[j] + 0.0;
	}
	pfree(m.sum);
	return (KmFill) {m.rows.d, mean};
}
