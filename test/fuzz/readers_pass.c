/*
 * readers_pass.c - bytes into kmeans_pass(), and answers into its coordinator.
 *
 * The relation is a few rows made up here, read by the engine as it reads any other.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "port/pg_bswap.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "core/quality/gk_quality.h"
#include "core/store/gk_batch.h"
#include "core/gk_numerics.h"
#include "rescan/rescan.h"
#include "readers.h"

extern Datum kmeans_pass(PG_FUNCTION_ARGS);

#define ROWS		40
#define FIRST		5
#define MAX_SAMPLE	10000
#define MAX_FEATURES 64
/* A pass may ask for more, by its right; here that only takes time. */
#define MEMORY		((Size) 8 << 20)
#define CHUNK_BYTES	4096

/* ---- the host ---- */

static void *
host_alloc(void *ctx, size_t bytes)
{
	return bytes + stub_bytes > MEMORY ? NULL : MemoryContextAllocHuge(CurrentMemoryContext, bytes);
}

static void
host_free(void *ctx, void *p)
{
	pfree(p);
}

static bool
host_go_on(void *ctx)
{
	return false;
}

static const GkHost engine = {
	.alloc = host_alloc,
	.free = host_free,
	.poll = host_go_on,
	.stop = host_go_on,
	.threads = 1
};

void
km_host_rethrow(KmPgHost *host)
{
}

/* ---- the relation ---- */

static bool weighted;

char **
km_column_names(ArrayType *array, const char *name, int *count)
{
	*count = 1;
	return palloc0(sizeof(char *));
}

void
km_job(ArrayType *relations, char **columns, int ncolumns, const char *weight_column, ArrayType *first_rows)
{
}

static double
value(int row, int j)
{
	return row % 5 == 0 ? 0.0 : row == 7 ? 1e150 : row == 8 ? -1e-150 : (row * 7 + j * 3) % 11 - 5.25;
}

static GkStatus
take_rows(GkPassAnswerer *answerer, int d, GkError *err)
{
	GkStore    *store;
	GkBatch    *b;
	GkStatus	st = gk_store_create(&engine, d, weighted, 0, CHUNK_BYTES, MEMORY, &store, err);

	if (st != GK_OK)
		return st;
	gk_store_pass_on(store, gk_pass_answer_take, answerer);
	b = gk_store_batch(store);
	for (int i = 0; st == GK_OK && i < ROWS; i++)
	{
		for (int j = 0; j < d; j++)
			gk_batch_put(b, j, value(i, j) + (j == 0));
		if (weighted)
			gk_batch_put(b, d, i % 4 + 0.5);
		if (++b->rows == b->capacity || i == ROWS - 1)
			st = gk_store_commit(store, err);
	}
	gk_store_free(store);
	return st;
}

/* ---- what kmeans_pass() asks of the relation ---- */

typedef enum PassMode
{
	ANSWER, KEEP_QUESTION, GIVE_ANSWER
} PassMode;

static PassMode mode;
static GkPass question;			/* KEEP_QUESTION */
static int64 given_rows[1];
static KmPassAnswer given = {.n = 1,.rows = given_rows};	/* GIVE_ANSWER */

static void
check(GkStatus st, const GkError *err)
{
	if (st != GK_OK)
		km_throw(NULL, st, err);
}

bytea *
km_job_answer(const GkPass *pass, const KmPassReading *reading, GkDeviceKind kind)
{
	const GkBackend *device = &gk_cpu_backend;
	GkPass		of_rows = *pass;
	KmPassAnswer answer = {.n = 1,.rows = (int64[]) {ROWS}};
	GkPassAnswerer *answerer;
	GkError		err;

	of_rows.weighted = weighted;
	if (mode == KEEP_QUESTION)
	{
		question = of_rows;
		mode = ANSWER;
		ereport(ERROR, (errcode(ERRCODE_SUCCESSFUL_COMPLETION), errmsg("kept")));
	}
	if (mode == GIVE_ANSWER)
		return km_pass_answer_bytes(&of_rows, &given);
	check(gk_pass_answer_open(&engine, &of_rows, &device, CHUNK_BYTES, NULL, NULL, &answerer, &err), &err);
	gk_pass_answer_begin(answerer, FIRST, NULL);
	check(take_rows(answerer, pass->prep != NULL ? pass->prep->d : 3, &err), &err);
	check(gk_pass_answer_end(answerer, &answer.result, &err), &err);
	gk_pass_answer_names(answerer, &answer.names);
	gk_pass_answer_free(answerer);
	return km_pass_answer_bytes(&of_rows, &answer);
}

/* ---- reading ---- */

static bytea *
to_bytea(const char *data, int size)
{
	bytea	   *b = palloc(VARHDRSZ + size);

	SET_VARSIZE(b, VARHDRSZ + size);
	memcpy(VARDATA(b), data, size);
	return b;
}

/* kmeans_pass(relations, columns, pass, weight_column, first_rows, device) */
static Call
pass_call(const char *data, int size)
{
	static struct varlena *array = NULL;
	Call		call = {kmeans_pass, 6};

	if (array == NULL)
	{
		array = MemoryContextAllocZero(TopMemoryContext, VARHDRSZ);
		SET_VARSIZE(array, VARHDRSZ);
	}
	call.args[0].isnull = true;
	call.args[1].value = PointerGetDatum(array);
	call.args[2].value = PointerGetDatum(to_bytea(data, size));
	call.args[3].isnull = true;
	call.args[4].isnull = true;
	call.args[5].isnull = true;
	return call;
}

/*
 * The answers of instruction sets are not compared: a question whose preparation does not
 * suit the rows has none that is right.
 */
bool
read_pass(const char *data, int size)
{
	bool		good = false;

	if (size < 8 || size > MAX_FEATURES * 1024)
		return false;
	mode = ANSWER;
	weighted = data[size - 1] & 1;
	for (int level = 0; level < reader_simd_levels() && (good || level == 0); level++)
	{
		Call		call = pass_call(data, size);

		reader_set_simd(level);
		good = reader_call(&call);
		if (level > 0 && !good && stub_error.sqlstate != ERRCODE_OUT_OF_MEMORY)
			reader_broken("a pass fails on some instruction sets: %s", stub_error.message);
	}
	return good;
}

/* As a coordinator does that gets the same answer from two servers, and knows how many rows of a sample they have. */
static Datum
take_answer(PG_FUNCTION_ARGS)
{
	GkPass		of_server = question;
	GkPassResult all;
	GkError		err;

	if (question.kind == GK_PASS_SAMPLE)
	{
		question.want = question.sample > MAX_SAMPLE ? MAX_SAMPLE : question.sample;
		of_server.want = (int) (gk_quality_stratum(question.all_rows, question.sample, FIRST + ROWS) -
								gk_quality_stratum(question.all_rows, question.sample, FIRST));
	}
	km_pass_answer(&engine, &of_server, DatumGetByteaP(PG_GETARG_DATUM(0)), &given);
	check(gk_pass_result_init(&engine, &question, question.prep != NULL ? question.prep->d : 0, &all, &err), &err);
	check(gk_pass_add(&engine, &question, &all, &given.result, &err), &err);
	check(gk_pass_add(&engine, &question, &all, &given.result, &err), &err);
	return (Datum) 0;
}

/* Four bytes, the length of the question; the question; the answer. */
bool
read_answer(const char *data, int size)
{
	uint32		n;
	Call		ask;
	Call		take = {take_answer, 1};

	if (size < 4)
		return false;
	memcpy(&n, data, sizeof(n));
	n = pg_ntoh32(n);
	if (n > (uint32) size - 4)
		return false;
	weighted = data[size - 1] & 1;
	ask = pass_call(data + 4, n);
	mode = KEEP_QUESTION;
	if (stub_try(reader_run, &ask) || stub_error.sqlstate != ERRCODE_SUCCESSFUL_COMPLETION)
		return false;
	take.args[0].value = PointerGetDatum(to_bytea(data + 4 + n, size - 4 - n));
	if (!reader_call(&take))
		return false;
	if (!stub_is_utf8(given.names.device, strlen(given.names.device)) ||
		!stub_is_utf8(given.names.strategy, strlen(given.names.strategy)))
		reader_broken("names are not in UTF-8");
	mode = GIVE_ANSWER;
	if (!reader_call(&ask))
		reader_broken("an answer cannot be sent: %s", stub_error.message);
	reader_same("an answer and its bytes", take.args[0].value, ask.result);
	return true;
}
