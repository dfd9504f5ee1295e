/*
 * server_stub.c - as much of a PostgreSQL server as the readers of bytes need: memory,
 * errors, messages, and a kmeans_pass() whose relation is a few rows made up here.
 *
 * StringInfo, the JSON parser, hashes and numbers are PostgreSQL's own, from libpgcommon.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/jsonapi.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonfuncs.h"
#include "nodes/memnodes.h"
#include "utils/memutils.h"

#include "core/gk_batch.h"
#include "core/gk_numerics.h"
#include "gkmeans_iterate.h"
#include "gkmeans_point.h"
#include "readers.h"

/* ---- memory: malloc, so that AddressSanitizer sees every block ---- */

typedef struct Block
{
	struct Block *before,
			   *after;
	struct MemoryContextData *context;
	Size		size;
} Block;

/* The blocks of a context, in a ring; nothing else of a real one is used. */
typedef struct StubContext
{
	struct MemoryContextData real;
	Block		blocks;
} StubContext;

static StubContext process = {.blocks = {&process.blocks, &process.blocks}};
static StubContext call = {.blocks = {&call.blocks, &call.blocks}};
MemoryContext TopMemoryContext = &process.real;
MemoryContext CurrentMemoryContext = &call.real;
Size		stub_bytes = 0;
Size		stub_most_bytes = 0;

static void *
take(MemoryContext context, Size size, Size limit)
{
	Block	   *ring = &((StubContext *) context)->blocks;
	Block	   *b;

	if (size > limit)
		elog(ERROR, "invalid memory alloc request size %zu", size);
	b = malloc(sizeof(Block) + size);
	if (b == NULL)
		abort();
	*b = (Block) {ring, ring->after, context, size};
	ring->after->before = b;
	ring->after = b;
	stub_bytes += size;
	stub_most_bytes = Max(stub_most_bytes, stub_bytes);
	memset(b + 1, 0xA5, Min(size, 4096));	/* nothing may rely on zeros */
	return b + 1;
}

void
pfree(void *p)
{
	Block	   *b = (Block *) p - 1;

	b->before->after = b->after;
	b->after->before = b->before;
	stub_bytes -= b->size;
	free(b);
}

static void
free_blocks(StubContext *context)
{
	while (context->blocks.after != &context->blocks)
		pfree(context->blocks.after + 1);
}

void *
palloc(Size size)
{
	return take(CurrentMemoryContext, size, MaxAllocSize);
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void *
palloc_extended(Size size, int flags)
{
	return take(CurrentMemoryContext, size, flags & MCXT_ALLOC_HUGE ? MaxAllocHugeSize : MaxAllocSize);
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return take(context, size, MaxAllocSize);
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return memset(take(context, size, MaxAllocSize), 0, size);
}

void *
MemoryContextAllocHuge(MemoryContext context, Size size)
{
	return take(context, size, MaxAllocHugeSize);
}

void *
repalloc(void *p, Size size)
{
	Block	   *b = (Block *) p - 1;
	void	   *to = take(b->context, size, MaxAllocSize);

	memcpy(to, p, Min(size, b->size));
	pfree(p);
	return to;
}

char *
pstrdup(const char *s)
{
	return strcpy(palloc(strlen(s) + 1), s);
}

static StubContext *contexts[64];	/* that are not deleted yet */
static int	ncontexts = 0;

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name, Size least, Size first, Size most)
{
	StubContext *c = calloc(1, sizeof(StubContext));

	if (c == NULL || ncontexts == lengthof(contexts))
		abort();
	c->blocks.before = c->blocks.after = &c->blocks;
	contexts[ncontexts++] = c;
	return &c->real;
}

void
MemoryContextDelete(MemoryContext context)
{
	for (int i = 0; i < ncontexts; i++)
		if (&contexts[i]->real == context)
		{
			free_blocks(contexts[i]);
			free(contexts[i]);
			contexts[i] = contexts[--ncontexts];
		}
}

/* An ERROR leaves contexts behind. */
void
stub_reset(void)
{
	while (ncontexts > 0)
		MemoryContextDelete(&contexts[0]->real);
	free_blocks(&call);
	stub_most_bytes = stub_bytes;
}

/* ---- errors ---- */

StubError	stub_error;
volatile sig_atomic_t InterruptPending = false;
static sigjmp_buf *handler = NULL;
static int	level;

bool
errstart(int elevel, const char *domain)
{
	level = elevel;
	stub_error.sqlstate = ERRCODE_INTERNAL_ERROR;
	stub_error.message[0] = '\0';
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *file, int line, const char *function)
{
	if (level < ERROR)
		return;
	if (handler == NULL)
	{
		fprintf(stderr, "ERROR outside of stub_try(): %s\n", stub_error.message);
		abort();
	}
	siglongjmp(*handler, 1);
}

int
errcode(int sqlstate)
{
	stub_error.sqlstate = sqlstate;
	return 0;
}

char *
unpack_sql_state(int sqlstate)
{
	static char text[6];

	for (int i = 0; i < 5; i++, sqlstate >>= 6)
		text[i] = PGUNSIXBIT(sqlstate);
	return text;
}

static void
say(char *to, const char *format, va_list args)
{
	stub_error.length = vsnprintf(to, sizeof(stub_error.message), format, args);
}

#define SAY(to, format) \
	do { \
		va_list		args; \
		va_start(args, format); \
		say(to, format, args); \
		va_end(args); \
	} while (0)

int
errmsg(const char *format, ...)
{
	SAY(stub_error.message, format);
	return 0;
}

int
errmsg_internal(const char *format, ...)
{
	SAY(stub_error.message, format);
	return 0;
}

int
errmsg_plural(const char *one, const char *more, unsigned long n, ...)
{
	va_list		args;

	va_start(args, n);
	say(stub_error.message, n == 1 ? one : more, args);
	va_end(args);
	return 0;
}

/* Only written out, so that a bad argument is seen. */
static char unused[sizeof(stub_error.message)];

int
errdetail(const char *format, ...)
{
	SAY(unused, format);
	return 0;
}

int
errhint(const char *format, ...)
{
	SAY(unused, format);
	return 0;
}

bool
stub_try(void (*f) (void *arg), void *arg)
{
	sigjmp_buf	here;
	sigjmp_buf *before = handler;
	MemoryContext context = CurrentMemoryContext;
	volatile bool good = false;

	if (sigsetjmp(here, 0) == 0)
	{
		handler = &here;
		f(arg);
		good = true;
	}
	handler = before;
	CurrentMemoryContext = context;
	return good;
}

void
ProcessInterrupts(void)
{
}

/* ---- function calls ---- */

Datum
DirectFunctionCall1Coll(PGFunction f, Oid collation, Datum a)
{
	LOCAL_FCINFO(fcinfo, 1);

	InitFunctionCallInfoData(*fcinfo, NULL, 1, collation, NULL, NULL);
	fcinfo->args[0] = (NullableDatum) {a, false};
	return f(fcinfo);
}

Datum
DirectFunctionCall3Coll(PGFunction f, Oid collation, Datum a, Datum b, Datum c)
{
	LOCAL_FCINFO(fcinfo, 3);

	InitFunctionCallInfoData(*fcinfo, NULL, 3, collation, NULL, NULL);
	fcinfo->args[0] = (NullableDatum) {a, false};
	fcinfo->args[1] = (NullableDatum) {b, false};
	fcinfo->args[2] = (NullableDatum) {c, false};
	return f(fcinfo);
}

int
AggCheckCallContext(FunctionCallInfo fcinfo, MemoryContext *context)
{
	return 0;
}

struct varlena *
pg_detoast_datum(struct varlena *datum)
{
	return datum;
}

struct varlena *
pg_detoast_datum_packed(struct varlena *datum)
{
	return datum;
}

char *
text_to_cstring(const text *t)
{
	return pnstrdup(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t));
}

char *
pnstrdup(const char *s, Size len)
{
	char	   *to = palloc(len + 1);

	memcpy(to, s, len);
	to[len] = '\0';
	return to;
}

/* ---- encodings: all is UTF-8 ---- */

int
GetDatabaseEncoding(void)
{
	return PG_UTF8;
}

bool
stub_is_utf8(const char *s, int len)
{
	return pg_encoding_verifymbstr(PG_UTF8, s, len) == len;
}

char *
pg_server_to_client(const char *s, int len)
{
	return unconstify(char *, s);
}

int
pg_mbcliplen(const char *s, int len, int limit)
{
	int			n = 0;

	while (n < len && n + pg_utf_mblen((const unsigned char *) s + n) <= limit)
		n += pg_utf_mblen((const unsigned char *) s + n);
	return n;
}

/* ---- text ---- */

void
escape_json(StringInfo buf, const char *s)
{
	appendStringInfoChar(buf, '"');
	for (; *s != '\0'; s++)
	{
		if (*s == '"' || *s == '\\')
			appendStringInfo(buf, "\\%c", *s);
		else if ((unsigned char) *s < ' ')
			appendStringInfo(buf, "\\u%04x", *s);
		else
			appendStringInfoChar(buf, *s);
	}
	appendStringInfoChar(buf, '"');
}

void
pg_parse_json_or_ereport(JsonLexContext *lex, JsonSemAction *actions)
{
	JsonParseErrorType result = pg_parse_json(lex, actions);

	if (result != JSON_SUCCESS)
		ereport(ERROR,
				(errcode(result == JSON_UNICODE_CODE_POINT_ZERO ? ERRCODE_UNTRANSLATABLE_CHARACTER :
						 ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid input syntax for type %s", "json")));
}

uint64
hex_encode(const char *from, size_t len, char *to)
{
	for (size_t i = 0; i < len; i++)
	{
		to[2 * i] = "0123456789abcdef"[(unsigned char) from[i] >> 4];
		to[2 * i + 1] = "0123456789abcdef"[from[i] & 15];
	}
	return 2 * len;
}

static int
hex_digit(const char *at, const char *end)
{
	const char *digits = "0123456789abcdef";
	const char *found = at < end && *at != '\0' ? strchr(digits, pg_tolower((unsigned char) *at)) : NULL;

	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid hexadecimal digit or odd number of them")));
	return (int) (found - digits);
}

uint64
hex_decode(const char *from, size_t len, char *to)
{
	const char *end = from + len;
	char	   *start = to;

	while (from < end)
	{
		if (*from == ' ' || *from == '\n' || *from == '\t' || *from == '\r')
			from++;
		else
		{
			*to++ = (char) (hex_digit(from, end) << 4 | hex_digit(from + 1, end));
			from += 2;
		}
	}
	return to - start;
}

/* ---- messages ---- */

const char *
pq_getmsgbytes(StringInfo msg, int len)
{
	const char *at = msg->data + msg->cursor;

	if (len < 0 || len > msg->len - msg->cursor)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("insufficient data left in message")));
	msg->cursor += len;
	return at;
}

int
pq_getmsgbyte(StringInfo msg)
{
	return *(const unsigned char *) pq_getmsgbytes(msg, 1);
}

unsigned int
pq_getmsgint(StringInfo msg, int len)
{
	uint32		n;

	Assert(len == 4);
	memcpy(&n, pq_getmsgbytes(msg, len), sizeof(n));
	return pg_ntoh32(n);
}

int64
pq_getmsgint64(StringInfo msg)
{
	uint64		n;

	memcpy(&n, pq_getmsgbytes(msg, sizeof(n)), sizeof(n));
	return (int64) pg_ntoh64(n);
}

float4
pq_getmsgfloat4(StringInfo msg)
{
	uint32		bits = pq_getmsgint(msg, 4);
	float4		v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

float8
pq_getmsgfloat8(StringInfo msg)
{
	int64		bits = pq_getmsgint64(msg);
	float8		v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

char *
pq_getmsgtext(StringInfo msg, int len, int *n)
{
	const char *at = pq_getmsgbytes(msg, len);

	if (!stub_is_utf8(at, len))
		ereport(ERROR,
				(errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
				 errmsg("invalid byte sequence for encoding \"%s\"", "UTF8")));
	*n = len;
	return pnstrdup(at, len);
}

void
pq_begintypsend(StringInfo buf)
{
	initStringInfo(buf);
	appendStringInfoString(buf, "....");	/* the length's place */
}

bytea *
pq_endtypsend(StringInfo buf)
{
	SET_VARSIZE(buf->data, buf->len);
	return (bytea *) buf->data;
}

#if PG_VERSION_NUM >= 160000
#define BYTES	const void
#else
#define BYTES	const char
#endif

void
pq_sendbytes(StringInfo buf, BYTES *data, int len)
{
	appendBinaryStringInfo(buf, data, len);
}

void
pq_sendfloat4(StringInfo buf, float4 v)
{
	uint32		bits;

	memcpy(&bits, &v, sizeof(bits));
	pq_sendint32(buf, bits);
}

void
pq_sendfloat8(StringInfo buf, float8 v)
{
	uint64		bits;

	memcpy(&bits, &v, sizeof(bits));
	pq_sendint64(buf, bits);
}

/* ---- arrays ---- */

ArrayType *
construct_array(Datum *values, int n, Oid type, int len, bool byval, char align)
{
	Size		size = ARR_OVERHEAD_NONULLS(1) + n * sizeof(Datum);
	ArrayType  *a = palloc0(size);

	SET_VARSIZE(a, size);
	a->ndim = 1;
	a->elemtype = type;
	ARR_DIMS(a)[0] = n;
	ARR_LBOUND(a)[0] = 1;
	memcpy(ARR_DATA_PTR(a), values, n * sizeof(Datum));
	return a;
}

bool
array_contains_nulls(ArrayType *a)
{
	return false;
}

/* ---- gkmeans' settings ---- */

int			gkmeans_device = GK_DEVICE_CPU;
int			gkmeans_strategy = GK_STRATEGY_AUTO;
int			gkmeans_feature_sum = 0;
int			gkmeans_mass_sum = 0;

const struct config_enum_entry gkmeans_device_words[] = {
	{"auto", GK_DEVICE_AUTO, false},
	{"cpu", GK_DEVICE_CPU, false},
	{NULL, 0, false}
};

/* readers.c has chosen. */
void
gk_apply_simd(void)
{
}

bool
pg_strong_random(void *buf, size_t len)
{
	memset(buf, 7, len);
	return true;
}

/* ---- no points as arguments ---- */

void
kmeans_point_init_some(KmeansPoint *p, FunctionCallInfo fcinfo, int first, int nargs, MemoryContext context)
{
	abort();
}

bool
kmeans_point_read(KmeansPoint *p, FunctionCallInfo fcinfo)
{
	abort();
}

void
kmeans_point_throw(int feature, double v)
{
	abort();
}
