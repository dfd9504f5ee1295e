/*
 * server_stub.c - as much of a PostgreSQL server as the readers of bytes need; memory and
 * errors are in server_memory.c.
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
#include "utils/memutils.h"

#include "core/store/gk_batch.h"
#include "core/gk_numerics.h"
#include "rescan/rescan.h"
#include "readers.h"

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
text_to_cstring(const text * t)
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

int
pg_get_client_encoding(void)
{
	return PG_UTF8;
}

char *
pg_server_to_any(const char *s, int len, int encoding)
{
	return unconstify(char *, s);
}

char *
pg_any_to_server(const char *s, int len, int encoding)
{
	if (!stub_is_utf8(s, len))
		ereport(ERROR,
				(errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
				 errmsg("invalid byte sequence")));
	return unconstify(char *, s);
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
pq_sendbytes(StringInfo buf, BYTES * data, int len)
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
km_apply_simd(void)
{
}

bool
pg_strong_random(void *buf, size_t len)
{
	memset(buf, 7, len);
	return true;
}

/* ---- no rows of relations ---- */

void
slot_getsomeattrs_int(TupleTableSlot *slot, int attnum)
{
	abort();
}

char *
get_rel_name(Oid relid)
{
	abort();
}

Datum
numeric_float8_no_overflow(PG_FUNCTION_ARGS)
{
	abort();
}
