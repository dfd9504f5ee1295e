/*
 * fn_mixed_prepare.c - rows of k-prototypes as they were read become those of the engine.
 *
 * Categories are put into the order of their bytes as text, so that ties do not depend on the order of rows.  Numbers
 * are centred, scaled and rounded to the grid as those of k-means, by exact sums.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "core/base/gk_exact.h"
#include "core/store/gk_store.h"
#include "functions/functions.h"
#include "functions/mixed.h"

/* Rows of a job. */
#define BLOCK	4096
/* Bits of each of the two integers that are a value's upper bits. */
#define PART	40

static int64
block_end(const KmMixedRows *x, int64 job)
{
	return Min((job + 1) * BLOCK, x->m.n);
}

static void
run(KmMixedRows *x, GkJob fn, void *arg)
{
	GkError		err = {0};

	CHECK_FOR_INTERRUPTS();
	if (!gk_parallel_for(km_host_engine(x->host), (x->m.n + BLOCK - 1) / BLOCK, fn, arg))
		km_check(x->host, GK_STOPPED, &err);
}

/* ---- categories ---- */

typedef struct Category
{
	text	   *value;
	int32		code;			/* so far */
} Category;

static text *
category_text(Oid type, const KmMixedEntry *e)
{
	uint64		oid;

	if (type == UUIDOID)
		return cstring_to_text(DatumGetCString(DirectFunctionCall1(uuid_out, PointerGetDatum(e->data))));
	if (type != ANYENUMOID)
		return cstring_to_text_with_len(e->data, e->len);
	memcpy(&oid, e->data, sizeof(oid));
	return cstring_to_text(DatumGetCString(DirectFunctionCall1(enum_out, ObjectIdGetDatum((Oid) oid))));
}

static int
compare_categories(const void *a, const void *b)
{
	const		text *u = ((const Category *) a)->value;
	const		text *v = ((const Category *) b)->value;
	int			length = Min(VARSIZE_ANY_EXHDR(u), VARSIZE_ANY_EXHDR(v));
	int			order = memcmp(VARDATA_ANY(u), VARDATA_ANY(v), length);

	/* there may be millions of them */
	CHECK_FOR_INTERRUPTS();
	return order != 0 ? order : (int) VARSIZE_ANY_EXHDR(u) - (int) VARSIZE_ANY_EXHDR(v);
}

/* What each code becomes. */
static int32 *
sort_categories(KmMixedRows *x, int i)
{
	const KmMixedDictionary *d = &x->dictionary[x->place[i]];
	Category   *all = MemoryContextAllocHuge(x->cxt, (d->n + 1) * sizeof(Category));
	int32	   *becomes = MemoryContextAllocHuge(x->cxt, (d->n + 1) * sizeof(int32));
	int			n = 0;

	for (uint64 at = 0; at < d->size; at++)
	{
		if (at % KM_MIXED_LOOK == 0)
			CHECK_FOR_INTERRUPTS();
		if (d->entry[at].code >= 0)
			all[n++] = (Category) {category_text(x->type[i], &d->entry[at]), d->entry[at].code};
	}
	qsort(all, n, sizeof(Category), compare_categories);
	x->column[i].categories = MemoryContextAllocHuge(x->cxt, (n + 1) * sizeof(text *));
	for (n = 0; n < d->n; n++)
	{
		x->column[i].categories[n] = all[n].value;
		becomes[all[n].code] = n;
	}
	pfree(all);
	return becomes;
}

typedef struct Turn
{
	const KmMixedRows *x;
	const int32 *rows;			/* [n][c] */
	int32	  **becomes;		/* [c] */
} Turn;

static void
turn_block(void *arg, int64_t job, int thread)
{
	const Turn *t = arg;
	const GkMixed *m = &t->x->m;

	for (int j = 0; j < m->c; j++)
		for (int64 row = job * BLOCK; row < block_end(t->x, job); row++)
			m->code[j * m->stride + row] = t->becomes[j][t->rows[row * m->c + j]];
}

/* Rows of codes become columns of them. */
static void
turn_codes(KmMixedRows *x)
{
	GkMixed    *m = &x->m;
	Turn		t = {x, m->code, palloc((m->c + 1) * sizeof(int32 *))};

	if (m->c == 0)
		return;
	m->code = MemoryContextAllocHuge(x->cxt, m->stride * m->c * sizeof(int32));
	m->codes = palloc(m->c * sizeof(int32));
	for (int i = 0; i < x->ncolumns; i++)
		if (!x->column[i].number)
		{
			int			j = x->place[i];

			t.becomes[j] = sort_categories(x, i);
			m->codes[j] = x->dictionary[j].n;
			memset(m->code + j * m->stride + m->n, 0, (m->stride - m->n) * sizeof(int32));
		}
	run(x, turn_block, &t);
	for (int j = 0; j < m->c; j++)
		pfree(t.becomes[j]);
	pfree(unconstify(int32 *, t.rows));
}

/* ---- numbers ---- */

/* An exact sum: nearly all values are two integers of units of 2^(expo - 40) and of 2^(expo - 80). */
typedef struct Sum
{
	GkWide		wide;
	double		least;			/* values of blocks of rows */
	double		most;
} Sum;

typedef struct Numbers
{
	KmMixedRows *x;
	int			column;
	const double *value;
	double		mean;
	double		unit;			/* of the differences, in their squares */
	int			expo;			/* no value that is added is above 2^expo */
	bool		squares;		/* are added: squared differences */
	Sum		   *sum;			/* of each thread */
} Numbers;

static void
look_at_block(void *arg, int64_t job, int thread)
{
	const Numbers *p = arg;
	double		least = p->sum[thread].least;
	double		most = p->sum[thread].most;

	for (int64 i = job * BLOCK; i < block_end(p->x, job); i++)
	{
		least = p->value[i] < least ? p->value[i] : least;
		most = p->value[i] > most ? p->value[i] : most;
	}
	p->sum[thread].least = least;
	p->sum[thread].most = most;
}

static void
add_block(void *arg, int64_t job, int thread)
{
	const Numbers *p = arg;
	GkWide	   *wide = &p->sum[thread].wide;
	double		scale = gk_scale_of(PART - p->expo);
	int64		upper = 0;
	int64		lower = 0;

	for (int64 i = job * BLOCK; i < block_end(p->x, job); i++)
	{
		double		v = p->value[i];
		double		scaled;
		double		rest;

		if (p->squares)
		{
			v = (v - p->mean) * p->unit;
			v *= v;
		}
		scaled = v * scale;
		rest = (scaled - (double) (int64) scaled) * gk_pow2(PART);
		if (rest != (double) (int64) rest || fabs(scaled) < gk_pow2(-PART))
			gk_wide_add(wide, v);
		else
		{
			upper += (int64) scaled;
			lower += (int64) rest;
		}
	}
	gk_digits_add_int128(wide->limb, upper, p->expo - PART + GK_WIDE_BIAS);
	gk_digits_add_int128(wide->limb, lower, p->expo - 2 * PART + GK_WIDE_BIAS);
	wide->pending += 2;
}

/* The mean of what is added, none of which is above a bound. */
static double
mean_of(Numbers *p, double bound, bool squares)
{
	int			threads = gk_threads(km_host_engine(p->x->host));

	p->squares = squares;
	p->expo = bound > 0.0 ? gk_expo_of(bound) : 0;
	/* so that units neither vanish nor overflow */
	p->expo = Max(p->expo, 2 * PART - GK_SCALE_EXPO);
	for (int i = 0; i < threads; i++)
		memset(&p->sum[i].wide, 0, sizeof(GkWide));
	run(p->x, add_block, p);
	for (int i = 1; i < threads; i++)
		gk_wide_merge(&p->sum[0].wide, &p->sum[i].wide);
	return gk_wide_mean(&p->sum[0].wide, p->x->m.n);
}

static double
reach_from(const Numbers *p, double center)
{
	return fmax(fabs(p->sum[0].least - center), fabs(p->sum[0].most - center));
}

/*
 * The centre, as that of k-means' points, the largest distance to it, and the standard deviation; exact sums, so the
 * order of rows does not matter.
 */
static double
moments_of(Numbers *p, double *center, double *most)
{
	double		reach;
	int			threads = gk_threads(km_host_engine(p->x->host));

	for (int i = 0; i < threads; i++)
	{
		p->sum[i].least = INFINITY;
		p->sum[i].most = -INFINITY;
	}
	run(p->x, look_at_block, p);
	for (int i = 1; i < threads; i++)
	{
		p->sum[0].least = fmin(p->sum[0].least, p->sum[i].least);
		p->sum[0].most = fmax(p->sum[0].most, p->sum[i].most);
	}
	/* a constant is its mean; the quotient could be its neighbour */
	p->mean = p->sum[0].least == p->sum[0].most ? p->sum[0].least : mean_of(p, reach_from(p, 0.0), false);
	reach = reach_from(p, p->mean);
	*center = reach > 0.0 && isfinite(reach) ? gk_round_centre(p->mean, gk_expo_of(reach)) : p->mean;
	*most = reach_from(p, *center);
	if (reach == 0.0 || !isfinite(reach))
		return 0.0;
	/* in units in which squares neither overflow nor vanish */
	p->unit = gk_scale_of(-gk_expo_of(reach));
	return sqrt(mean_of(p, reach * p->unit * (reach * p->unit), true)) / p->unit;
}

static void
prepare_block(void *arg, int64_t job, int thread)
{
	const Numbers *p = arg;
	const KmMixedColumn *column = &p->x->column[p->column];
	float	   *to = p->x->m.x + p->x->place[p->column] * p->x->m.stride;
	double		magic = gk_grid_magic(column->expo);

	for (int64 i = job * BLOCK; i < block_end(p->x, job); i++)
		to[i] = gk_to_grid(gk_centre_scale(p->value[i], column->center, column->scale), magic);
}

/* Prepare a column of numbers; returns its standard deviation, prepared. */
static double
prepare_numbers(KmMixedRows *x, int i, bool standardize, Sum *sum)
{
	KmMixedColumn *column = &x->column[i];
	Numbers		p = {.x = x,.column = i,.value = x->number[x->place[i]],.sum = sum};
	float	   *to = x->m.x + x->place[i] * x->m.stride;
	double		most;
	double		deviation = moments_of(&p, &column->center, &most);

	column->scale = standardize && deviation > 0.0 ? 1.0 / deviation : 1.0;
	column->expo = most > 0.0 && isfinite(most * column->scale) ? gk_expo_of(most * column->scale) : 0;
	if (!isfinite(most * column->scale) || abs(column->expo) > GK_TOP_EXPO || !isnormal(column->scale))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("values of column \"%s\" are too %s", column->name, column->expo < 0 || isinf(column->scale) ? "small" : "large"),
				 errhint("Use another unit%s.", standardize ? "" : ", or standardize => true")));
	run(x, prepare_block, &p);
	memset(to + x->m.n, 0, (x->m.stride - x->m.n) * sizeof(float));
	pfree(x->number[x->place[i]]);
	return deviation * column->scale;
}

float
km_mixed_prepare_rows(KmMixedRows *x, bool standardize)
{
	GkMixed    *m = &x->m;
	Sum		   *sum = palloc(gk_threads(km_host_engine(x->host)) * sizeof(Sum));
	double		deviations = 0.0;

	m->stride = (m->n + GK_MIXED_ROWS - 1) / GK_MIXED_ROWS * GK_MIXED_ROWS;
	turn_codes(x);
	m->x = MemoryContextAllocHuge(x->cxt, m->stride * Max(m->d, 1) * sizeof(float));
	m->expo = palloc((m->d + 1) * sizeof(int));
	for (int i = 0; i < x->ncolumns; i++)
		if (x->column[i].number)
		{
			deviations += prepare_numbers(x, i, standardize, sum);
			m->expo[x->place[i]] = x->column[i].expo;
		}
	return deviations > 0.0 ? (float) (0.5 * deviations / m->d) : 1.0f;
}
