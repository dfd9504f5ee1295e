/*
 * readers.c - bytes into the readers of models, states and options.
 *
 * Each input goes to every reader.  A reader refuses it with an error that a user may
 * see, and asks for little more memory than the input has bytes; or it accepts it, and then
 * the value's text and binary form read back to the same bytes, and everything that takes
 * such a value works, with the same result on every instruction set.
 */
#include "postgres.h"

#include <math.h>
#include <stdarg.h>

#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "core/gk_numerics.h"
#include "gkmeans.h"
#include "types/model.h"
#include "types/state.h"
#include "readers.h"

extern Datum kmeans_model_in(PG_FUNCTION_ARGS);
extern Datum kmeans_model_out(PG_FUNCTION_ARGS);
extern Datum kmeans_model_recv(PG_FUNCTION_ARGS);
extern Datum kmeans_model_send(PG_FUNCTION_ARGS);
extern Datum kmeans_state_in(PG_FUNCTION_ARGS);
extern Datum kmeans_state_out(PG_FUNCTION_ARGS);
extern Datum kmeans_state_recv(PG_FUNCTION_ARGS);
extern Datum kmeans_state_send(PG_FUNCTION_ARGS);
extern Datum kmeans_state_combine(PG_FUNCTION_ARGS);
extern Datum kmeans_state_normal(PG_FUNCTION_ARGS);
extern Datum kmeans_step_finish(PG_FUNCTION_ARGS);
extern Datum feature_sum_finish(PG_FUNCTION_ARGS);

/* What a reader may take: this much for each byte of the input, and this much in any case. */
#define MEMORY_FACTOR	64
#define MEMORY_LEAST	65536
#define MESSAGE_MAX		1024

const char *reader_at_work = "nothing";

void
reader_broken(const char *format,...)
{
	va_list		args;

	fprintf(stderr, "readers: %s: ", reader_at_work);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}

/* ---- calls ---- */

void
reader_run(void *arg)
{
	Call	   *call = arg;

	LOCAL_FCINFO(fcinfo, MAX_ARGS);

	InitFunctionCallInfoData(*fcinfo, NULL, call->nargs, InvalidOid, NULL, NULL);
	memcpy(fcinfo->args, call->args, call->nargs * sizeof(NullableDatum));
	call->result = call->f(fcinfo);
	call->isnull = fcinfo->isnull;
}

/* Errors that say what is wrong with the input, and no others. */
static const int good_errors[] = {
	ERRCODE_INVALID_TEXT_REPRESENTATION, ERRCODE_INVALID_BINARY_REPRESENTATION,
	ERRCODE_INVALID_PARAMETER_VALUE, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE, ERRCODE_DATA_EXCEPTION,
	ERRCODE_FEATURE_NOT_SUPPORTED, ERRCODE_PROGRAM_LIMIT_EXCEEDED, ERRCODE_CHARACTER_NOT_IN_REPERTOIRE,
	ERRCODE_UNTRANSLATABLE_CHARACTER, ERRCODE_NULL_VALUE_NOT_ALLOWED, ERRCODE_ARRAY_SUBSCRIPT_ERROR,
	ERRCODE_OUT_OF_MEMORY
};

bool
reader_call(Call *call)
{
	if (stub_try(reader_run, call))
		return true;
	if (stub_error.length >= MESSAGE_MAX || !stub_is_utf8(stub_error.message, strlen(stub_error.message)))
		reader_broken("a message of %d bytes, or not in UTF-8: %s", stub_error.length, stub_error.message);
	for (int i = 0; i < (int) lengthof(good_errors); i++)
		if (stub_error.sqlstate == good_errors[i])
			return false;
	reader_broken("SQLSTATE %s: %s", unpack_sql_state(stub_error.sqlstate), stub_error.message);
}

bool
reader_try(PGFunction f, Datum arg, Datum *result)
{
	Call		call = {f, 1, {{arg, false}}};
	bool		good = reader_call(&call);

	*result = call.isnull ? (Datum) 0 : call.result;
	return good;
}

Datum
reader_must(PGFunction f, Datum arg)
{
	Datum		result;

	if (!reader_try(f, arg, &result))
		reader_broken("refused afterwards: %s", stub_error.message);
	return result;
}

void
reader_same(const char *what, Datum a, Datum b)
{
	Pointer		p = DatumGetPointer(a);
	Pointer		q = DatumGetPointer(b);

	if (VARSIZE(p) != VARSIZE(q) || memcmp(p, q, VARSIZE(p)) != 0)
		reader_broken("%s differ", what);
}

/* The value that a binary form is read as. */
static Datum
receive(PGFunction recv, Datum bytes)
{
	StringInfo	buf = makeStringInfo();

	appendBinaryStringInfo(buf, VARDATA(DatumGetPointer(bytes)), VARSIZE(DatumGetPointer(bytes)) - VARHDRSZ);
	return reader_must(recv, PointerGetDatum(buf));
}

/* ---- instruction sets ---- */

static const char *const levels[] = {"scalar", "avx2", "avx512", "neon"};
static const char *usable[lengthof(levels)];

int
reader_simd_levels(void)
{
	static int	n = 0;
	char		reason[256];

	if (n == 0)
		for (int i = 0; i < (int) lengthof(levels); i++)
			if (gk_cpu_set_simd(levels[i], reason, sizeof(reason)))
				usable[n++] = levels[i];
	return n;
}

void
reader_set_simd(int level)
{
	char		reason[256];

	gk_cpu_set_simd(usable[level], reason, sizeof(reason));
}

/* ---- what is done with a model ---- */

#define POINTS	8

/* One feature of a few points that a model has to bear. */
static double
feature(const GkModel *m, int point, int j)
{
	static const double odd[] = {0.0, 1e300, -1e300, 5e-324, -1.0};

	if (point < (int) lengthof(odd))
		return odd[point];
	if (point == POINTS - 1)
		return m->prep.center[j];
	return m->centroids[(Size) (point % m->k) * m->prep.d + j];
}

static void
predict(const GkModel *m)
{
	Size		d = m->prep.d;
	float	   *f = palloc(m->k * d * sizeof(float));
	float	   *x = palloc(d * sizeof(float));
	double	   *point = palloc(d * sizeof(double));

	gk_model_prepare(&m->prep, m->centroids, m->k, f);
	for (int i = 0; i < POINTS; i++)
	{
		for (Size j = 0; j < d; j++)
			point[j] = feature(m, i, j);
		if (!gk_prepare_point(&m->prep, point, x))
			continue;
		for (int level = 0, first = 0; level < reader_simd_levels(); level++)
		{
			float		d2;
			int			label;

			reader_set_simd(level);
			label = gk_nearest_by(m->prep.distance, x, d, f, m->k, &d2);
			if (level == 0)
				first = label;
			if (label < 0 || label >= m->k || label != first)
				reader_broken("point %d has label %d, and %d", i, first, label);
			if (gk_distance_from_d2(&m->prep, d2) < 0.0)
				reader_broken("point %d has distance %g", i, gk_distance_from_d2(&m->prep, d2));
		}
	}
	pfree(f);
	pfree(x);
	pfree(point);
}

/* The forms of a model read back to the same model. */
static void
check_forms(Datum model)
{
	Datum		bytes = reader_must(kmeans_model_send, model);

	reader_same("a model and its text", model, reader_must(kmeans_model_in, reader_must(kmeans_model_out, model)));
	reader_same("a model and its binary form", model, receive(kmeans_model_recv, bytes));
}

static void check_state(Datum state, bool combine);

/* A step of a few points. */
static void
step(const KmeansModel *model, bool weighted)
{
	KmeansStep *s = kmeans_step_make(model, weighted, true, 0, NULL);
	KmeansStepView v;
	Datum		first = (Datum) 0;
	int			n = Min(s->room, POINTS);
	bool		good = false;

	kmeans_step_view(s, &v);
	for (int i = 0; i < n; i++)
	{
		bool		zero = true;

		for (int j = 0; j < model->d; j++)
		{
			v.raw[(Size) j * s->room + i] = feature(&v.m, i, j);
			zero &= v.raw[(Size) j * s->room + i] == 0.0;
		}
		/* as the aggregate sees to it */
		if (zero && v.m.prep.distance == GK_COSINE)
			v.raw[i] = 1.0;
		if (weighted)
			v.raw[(Size) model->d * s->room + i] = i % 3 == 0 ? 1e-300 : i % 3 == 1 ? 2.5 : 1e300;
	}
	/* all of them, or, where they are too far away, one */
	for (s->fill = n; s->fill > 0 && !good; s->fill = s->fill > 1 ? 1 : 0)
		for (int level = 0; level < reader_simd_levels(); level++)
		{
			Datum		normal;
			bool		accepted;

			reader_set_simd(level);
			accepted = reader_try(kmeans_state_normal, PointerGetDatum(s), &normal);
			if (level > 0 && accepted != good)
				reader_broken("a step fails on some instruction sets: %s", stub_error.message);
			good = accepted;
			if (good && level > 0)
				reader_same("steps of two instruction sets", first, normal);
			first = normal;
		}
	if (good)
		check_state(first, true);
}

static void
check_model(Datum model)
{
	const KmeansModel *value = (const KmeansModel *) DatumGetPointer(model);
	GkModel		m;

	check_forms(model);
	kmeans_model_view(value, &m);
	predict(&m);
	if (value->clusters == 0 && m.prep.distance != GK_MANHATTAN && m.prep.distance != GK_PARTIAL)
		step(value, value->fingerprint & 1);
}

/* ---- what is done with a state ---- */

static void
finish(Datum state)
{
	Datum		result;

	if (((const KmeansState *) DatumGetPointer(state))->kind == KMEANS_STATE_SUM)
		(void) reader_try(feature_sum_finish, state, &result);
	else if (reader_try(kmeans_step_finish, state, &result) && result != (Datum) 0)
		check_forms(result);
}

static void
check_state(Datum state, bool combine)
{
	Datum		bytes = reader_must(kmeans_state_send, state);
	Datum		normal = reader_must(kmeans_state_normal, state);
	Datum		again = receive(kmeans_state_recv, bytes);
	Call		twice = {kmeans_state_combine, 2, {{state, false}, {again, false}}};

	reader_same("binary forms of a state", bytes, reader_must(kmeans_state_send, again));
	reader_same("a state and its binary form", normal, reader_must(kmeans_state_normal, again));
	again = reader_must(kmeans_state_in, reader_must(kmeans_state_out, state));
	reader_same("a state and its text", normal, reader_must(kmeans_state_normal, again));
	finish(state);
	if (combine && reader_call(&twice))
		check_state(twice.result, false);
}

/* ---- all of them ---- */

static bool
read_with(PGFunction f, Datum arg, int size, void (*check) (Datum value))
{
	Size		before = stub_bytes;
	Datum		value;
	bool		good;

	stub_most_bytes = stub_bytes;
	good = reader_try(f, arg, &value);
	if (stub_most_bytes - before > (Size) size * MEMORY_FACTOR + MEMORY_LEAST)
		reader_broken("%zu bytes of memory for %d bytes", stub_most_bytes - before, size);
	if (good)
		check(value);
	return good;
}

static void
check_state_and_twice(Datum state)
{
	check_state(state, true);
}

static bool
read_binary(PGFunction f, const char *data, int size, void (*check) (Datum value))
{
	StringInfo	buf = makeStringInfo();

	/* A block of its own, so that reading behind the end is seen */
	buf->data = memcpy(palloc(size), data, size);
	buf->len = buf->maxlen = size;
	return read_with(f, PointerGetDatum(buf), size, check);
}

static bool
read_model_text(const char *data, int size)
{
	return read_with(kmeans_model_in, CStringGetDatum(data), size, check_model);
}

static bool
read_model_binary(const char *data, int size)
{
	return read_binary(kmeans_model_recv, data, size, check_model);
}

static bool
read_state_text(const char *data, int size)
{
	return read_with(kmeans_state_in, CStringGetDatum(data), size, check_state_and_twice);
}

static bool
read_state_binary(const char *data, int size)
{
	return read_binary(kmeans_state_recv, data, size, check_state_and_twice);
}

typedef struct Reader
{
	bool		text;			/* it gets C strings in the database encoding */
	bool		(*read) (const char *data, int size);
} Reader;

static const Reader readers[] = {
	{true, read_model_text},
	{false, read_model_binary},
	{true, read_state_text},
	{false, read_state_binary},
	{true, read_options},
	{false, read_pass},
	{false, read_answer},
};

ReaderCount reader_counts[] = {
	{"model, text"}, {"model, binary"}, {"state, text"}, {"state, binary"}, {"options"}, {"pass"}, {"answer to a pass"},
};
const int	nreaders = lengthof(readers);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *text = palloc(size + 1);
	bool		utf8;

	memcpy(text, data, size);
	text[size] = '\0';
	utf8 = strlen(text) == size && stub_is_utf8(text, size);
	for (int i = 0; i < nreaders; i++)
	{
		reader_at_work = reader_counts[i].name;
		reader_set_simd(reader_simd_levels() - 1);
		if ((!readers[i].text || utf8) && readers[i].read(text, size))
			reader_counts[i].accepted++;
	}
	stub_reset();
	return 0;
}
