/*
 * rel_transpose.c - values at known places in rows become columns of a batch.
 *
 * In two steps that both suit vector instructions: four columns of four rows are
 * turned around in registers; then the columns are converted and checked.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "relation/rel_deform.h"

/* Columns turned at a time. */
#define COLUMNS		4
/* Rows that an instruction set may turn at a time, and from how many columns on that pays. */
#define TURNED		16
#define TURNED_COLUMNS	128

typedef uint32 v4 __attribute__((vector_size(16)));
typedef uint64 v2 __attribute__((vector_size(16)));
typedef float f4 __attribute__((vector_size(16)));
typedef double f2 __attribute__((vector_size(16)));

#ifdef __clang__
#define SHUFFLE4(a, b, ...)	__builtin_shufflevector(a, b, __VA_ARGS__)
#define SHUFFLE2(a, b, ...)	__builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE4(a, b, ...)	__builtin_shuffle(a, b, (v4) {__VA_ARGS__})
#define SHUFFLE2(a, b, ...)	__builtin_shuffle(a, b, (v2) {__VA_ARGS__})
#endif

/* Elements of short arrays are not aligned. */
#define LOAD(v, from)	memcpy(&(v), (from), sizeof(v))
#define STORE(to, v)	memcpy((to), &(v), sizeof(v))

/* ---- rows to columns ---- */

/* True: all are finite. */
static bool
finite_floats(const float *x, int n)
{
	uint32		bad = 0;

#pragma omp simd reduction(|:bad)
	for (int i = 0; i < n; i++)
		bad |= !(fabsf(x[i]) <= FLT_MAX);
	return bad == 0;
}

static bool
finite_doubles(const double *x, int n)
{
	uint64		bad = 0;

#pragma omp simd reduction(|:bad)
	for (int i = 0; i < n; i++)
		bad |= !(fabs(x[i]) <= DBL_MAX);
	return bad == 0;
}

static void
turn_2(const char *const *data, int n, int at, uint16 *out)
{
	for (int i = 0; i < n; i++)
		LOAD(out[i], data[i] + at);
}

/*
 * Rows are turned in blocks of as many as there are columns.  The last block ends with the
 * last row, though some of its rows are done by then.
 */
static inline int
next_block(int i, int n, int rows)
{
	return i + rows == n ? n : Min(i + rows, n - rows);
}

/* Lines of memory to prefetch with each block. */
typedef struct Ask
{
	const char *next;
	int			lines;
} Ask;

static inline __attribute__((always_inline)) void
prefetch_lines(Ask *ask)
{
	for (int line = 0; line < ask->lines; line++, ask->next += GK_CACHE_LINE)
		__builtin_prefetch(ask->next);
}

/*
 * 4 columns; with `floats`, false means that one of them is not finite.  That is
 * seen in passing, since rows come in small numbers, a page at a time: x - x is not 0.
 */
static inline __attribute__((always_inline)) bool
turn_4x4(const char *const *data, int n, int at, uint32 *const *out, bool floats, Ask ask)
{
	f4			bad = {0};

	for (int i = n < 4 ? n : 0; i < n; i = next_block(i, n, 4))
	{
		v4			a,
					b,
					c,
					d,
					ab,
					cd;

		LOAD(a, data[i] + at);
		LOAD(b, data[i + 1] + at);
		LOAD(c, data[i + 2] + at);
		LOAD(d, data[i + 3] + at);
		prefetch_lines(&ask);
		if (floats)
			bad += (((f4) a - (f4) a) + ((f4) b - (f4) b)) + (((f4) c - (f4) c) + ((f4) d - (f4) d));
		ab = SHUFFLE4(a, b, 0, 4, 1, 5);
		cd = SHUFFLE4(c, d, 0, 4, 1, 5);
		a = SHUFFLE4(a, b, 2, 6, 3, 7);
		c = SHUFFLE4(c, d, 2, 6, 3, 7);
		b = SHUFFLE4(ab, cd, 0, 1, 4, 5);
		STORE(out[0] + i, b);
		b = SHUFFLE4(ab, cd, 2, 3, 6, 7);
		STORE(out[1] + i, b);
		b = SHUFFLE4(a, c, 0, 1, 4, 5);
		STORE(out[2] + i, b);
		b = SHUFFLE4(a, c, 2, 3, 6, 7);
		STORE(out[3] + i, b);
	}
	for (int i = 0; n < 4 && i < n; i++)
	{
		v4			a;

		LOAD(a, data[i] + at);
		if (floats)
			bad += (f4) a - (f4) a;
		for (int j = 0; j < 4; j++)
			out[j][i] = a[j];
	}
	return bad[0] + bad[1] + bad[2] + bad[3] == 0;
}

static bool
turn_4(const char *const *data, int n, int at, int columns, uint32 *const *out, bool floats, Ask ask)
{
	bool		good = true;

	if (columns == 4)
		return floats ? turn_4x4(data, n, at, out, true, ask) : turn_4x4(data, n, at, out, false, ask);
	for (int j = 0; j < columns; j++)
	{
		for (int i = 0; i < n; i++)
			LOAD(out[j][i], data[i] + at + j * 4);
		if (floats)
			good &= finite_floats((const float *) out[j], n);
	}
	return good;
}

/* 2 columns, or 1; with `floats` as above. */
static bool
turn_8(const char *const *data, int n, int at, int columns, uint64 *const *out, bool floats, Ask ask)
{
	f2			bad = {0};

	for (int i = columns < 2 || n < 2 ? n : 0; i < n; i = next_block(i, n, 2))
	{
		v2			a,
					b,
					c;

		LOAD(a, data[i] + at);
		LOAD(b, data[i + 1] + at);
		prefetch_lines(&ask);
		bad += ((f2) a - (f2) a) + ((f2) b - (f2) b);
		c = SHUFFLE2(a, b, 0, 2);
		STORE(out[0] + i, c);
		c = SHUFFLE2(a, b, 1, 3);
		STORE(out[1] + i, c);
	}
	for (int i = 0; (columns < 2 || n < 2) && i < n; i++)
		for (int j = 0; j < columns; j++)
		{
			double		x;

			LOAD(out[j][i], data[i] + at + j * 8);
			LOAD(x, data[i] + at + j * 8);
			bad[0] += x - x;
		}
	return !floats || bad[0] + bad[1] == 0;
}

/* ---- columns to those of a batch ---- */

#define TO_FLOATS(type, raw, n, out, bad) \
	_Pragma("omp simd reduction(|:bad)") \
	for (int i = 0; i < (n); i++) \
	{ \
		type		v = ((const type *) (raw))[i]; \
		\
		(out)[i] = (float) v; \
		bad |= !((double) (out)[i] == (double) v && fabsf((out)[i]) <= FLT_MAX); \
	}

/* True: every value is a finite float exactly. */
static bool
to_floats(KmValueType type, const void *raw, int n, float *out)
{
	uint32		bad = 0;

	switch (type)
	{
		case KM_VALUE_INT2:
			TO_FLOATS(int16, raw, n, out, bad);
			break;
		case KM_VALUE_INT4:
			TO_FLOATS(int32, raw, n, out, bad);
			break;
		case KM_VALUE_INT8:
			TO_FLOATS(int64, raw, n, out, bad);
			break;
		case KM_VALUE_FLOAT8:
			TO_FLOATS(float8, raw, n, out, bad);
			break;
		case KM_VALUE_FLOAT4:
			return false;		/* was turned in its place */
		case KM_VALUE_NUMERIC:
			return false;		/* has no constant one */
	}
	return bad == 0;
}

/* True: every value is finite. */
static bool
to_doubles(KmValueType type, const void *raw, int n, double *out)
{
	km_values_in(type, raw, n, out);
	/* whole numbers are */
	return (type != KM_VALUE_FLOAT4 && type != KM_VALUE_FLOAT8) || finite_doubles(out, n);
}

static bool
convert(GkBatch *b, int column, KmValueType type, const void *raw, int n)
{
	if (!b->wide[column])
	{
		if (to_floats(type, raw, n, (float *) gk_batch_column(b, column) + b->rows))
			return true;
		/* perhaps they are doubles only */
		gk_batch_widen(b, column, b->rows);
	}
	return to_doubles(type, raw, n, (double *) gk_batch_column(b, column) + b->rows);
}

/* Columns that need no conversion are turned in their place. */
static bool
as_stored(const GkBatch *b, int column, KmValueType type)
{
	return b->wide[column] ? type == KM_VALUE_FLOAT8 : type == KM_VALUE_FLOAT4;
}

/* Floats that become floats. */
static bool
all_floats(const GkBatch *b, int column, int columns)
{
	for (int j = column; j < column + columns; j++)
		if (b->wide[j])
			return false;
	return true;
}

/* km_transpose() of rows of which a page has few, by an instruction set that turns 16 rows at once. */
static bool
turn_rows(GkBatch *b, int column, int columns, const char *const *data, int n, int at)
{
	char	   *to = (char *) gk_batch_column(b, column) + b->rows * sizeof(float);
	bool		good = true;

	for (int i = 0; i < n; i = next_block(i, n, TURNED))
		good &= gk_columns()->turn(data + i, at, columns, to + i * sizeof(float), b->stride);
	return good;
}

bool
km_transpose(GkBatch *b, int column, int columns, KmValueType type,
			 const char *const *data, int n, int at, KmPrefetch *ahead)
{
	int			size = km_value_size(type);
	int			step = size == 2 ? 1 : size == 4 ? 4 : 2;
	int			blocks = (n + step - 1) / step;
	int			lines = 0;
	uint64		raw[COLUMNS][MaxHeapTuplesPerPage];
	bool		good = true;

	if (type == KM_VALUE_FLOAT4 && n >= TURNED && columns >= TURNED_COLUMNS && gk_columns()->turn != NULL && all_floats(b, column, columns))
		return turn_rows(b, column, columns, data, n, at);
	if (step > 1 && columns >= step)
		lines = (int) (ahead->end - ahead->next) / GK_CACHE_LINE / (blocks * (columns / step));
	for (int first = 0; first < columns; first += step)
	{
		int			some = Min(step, columns - first);
		void	   *out[COLUMNS] = {NULL};
		Ask			ask = {ahead->next, lines};

		for (int j = 0; j < some; j++)
			out[j] = as_stored(b, column + first + j, type)
				? (char *) gk_batch_column(b, column + first + j) + (size_t) b->rows * size
				: (char *) raw[j];
		if (some == step)
			ahead->next += blocks * lines * GK_CACHE_LINE;
		if (size == 2)
			turn_2(data, n, at + first * size, out[0]);
		else if (size == 4)
			good &= turn_4(data, n, at + first * size, some, (uint32 *const *) out, type == KM_VALUE_FLOAT4, ask);
		else
			good &= turn_8(data, n, at + first * size, some, (uint64 *const *) out, type == KM_VALUE_FLOAT8, ask);
		for (int j = 0; j < some; j++)
			if (out[j] == (void *) raw[j])
				good &= convert(b, column + first + j, type, raw[j], n);
	}
	return good;
}

/* ---- rows that wait ---- */

/* Rows whose values are a power of two apart would share sets of the cache: an odd number of its lines. */
void
km_stage_init(KmStage *s, KmValueType type, int columns)
{
	Size		bytes = (Size) columns * km_value_size(type);

	*s = (KmStage) {.type = type,.columns = columns};
	s->stride = (bytes / GK_CACHE_LINE | 1) * GK_CACHE_LINE;
	if (s->stride < bytes)
		s->stride += 2 * GK_CACHE_LINE;
	/* those that wait, and the ones that are added */
	s->rows = palloc(2 * KM_STAGE_ROWS * s->stride);
}

/* Row i behind the first one that waits. */
static char *
stage_row(const KmStage *s, int i)
{
	return s->rows + (s->first + i) % (2 * KM_STAGE_ROWS) * s->stride;
}

/* False: a value is not finite. */
static bool
copy_row(const KmStage *s, const char *from, char *to)
{
	if (s->type == KM_VALUE_FLOAT4)
		return gk_columns()->floats(from, s->columns, (float *) to);
	memcpy(to, from, (Size) s->columns * km_value_size(s->type));
	return s->type != KM_VALUE_FLOAT8 || finite_doubles((double *) to, s->columns);
}

static bool
is_zero(const KmStage *s, const char *row)
{
	for (int j = 0; j < s->columns; j++)
		if (km_value_in(s->type, row + j * km_value_size(s->type)) != 0)
			return false;
	return true;
}

/* Write the first n rows that wait into their batch. */
static void
flush_rows(KmStage *s, int n)
{
	const char *data[KM_STAGE_ROWS];
	KmPrefetch	nothing = {0};
	int			behind = s->n;

	for (int i = 0; i < n; i++)
		data[i] = stage_row(s, i);
	s->batch->rows -= behind;
	(void) km_transpose(s->batch, 0, s->columns, s->type, data, n, 0, &nothing);
	s->batch->rows += behind;
	s->first = (s->first + n) % (2 * KM_STAGE_ROWS);
	s->n -= n;
}

bool
km_stage_add(KmStage *s, GkBatch *b, const char *const *data, int n, bool zero)
{
	for (int i = 0; i < n; i++)
	{
		char	   *row = stage_row(s, s->n + i);

		if (!copy_row(s, data[i], row) || (!zero && is_zero(s, row)))
			return false;
	}
	s->batch = b;
	s->n += n;
	b->rows += n;
	if (s->n >= KM_STAGE_ROWS)
		flush_rows(s, KM_STAGE_ROWS);
	return true;
}

void
km_stage_flush(KmStage *s)
{
	if (s->n > 0)
		flush_rows(s, s->n);
	s->first = 0;
}
