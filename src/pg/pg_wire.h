/*
 * pg_wire.h - numbers in bytes that come from another server or from a client:
 * each is checked before anything is done with it.
 *
 * Who includes this says what the bytes should be: KM_WIRE_INVALID is the message, as far
 * as the reason, and KM_WIRE_HINT, if there is one, the hint.
 */
#ifndef PG_WIRE_H
#define PG_WIRE_H

#include "lib/stringinfo.h"
#include "libpq/pqformat.h"

#include "core/gk_core.h"
#include "pg/pg.h"

#ifdef KM_WIRE_HINT
#define AND_HINT	, errhint(KM_WIRE_HINT)
#else
#define AND_HINT
#endif

#define INVALID(...) \
	ereport(ERROR, \
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION), \
			 errmsg(KM_WIRE_INVALID __VA_ARGS__) AND_HINT))

/* Before memory is asked for. */
static inline void
require_bytes(StringInfo buf, uint64 expected)
{
	uint64		rest = buf->len - buf->cursor;

	if (rest < expected)
		INVALID("it is cut off, %llu bytes are missing", (unsigned long long) (expected - rest));
}

static inline void
require_end(StringInfo buf)
{
	if (buf->cursor != buf->len)
		INVALID("it has %d bytes too many", buf->len - buf->cursor);
}

/* A whole number of the header. */
static inline int
get_int(StringInfo buf, const char *name, int low, int high)
{
	int			v = (int) pq_getmsgint(buf, 4);

	if (v < low || v > high)
		INVALID("\"%s\" is %d, expected %d to %d", name, v, low, high);
	return v;
}

static inline int64
get_count(StringInfo buf, const char *name)
{
	int64		v = pq_getmsgint64(buf);

	if (v < 0 || v > GK_MAX_ROWS)
		INVALID("\"%s\" is %lld, expected 0 to %lld", name, (long long) v, (long long) GK_MAX_ROWS);
	return v;
}

static inline void
put_int128(StringInfo buf, gk_int128 v)
{
	pq_sendint64(buf, (uint64) ((unsigned __int128) v >> 64));
	pq_sendint64(buf, (uint64) v);
}

static inline gk_int128
get_int128(StringInfo buf)
{
	uint64		high = (uint64) pq_getmsgint64(buf);

	return (gk_int128) ((unsigned __int128) high << 64 | (uint64) pq_getmsgint64(buf));
}

#endif							/* PG_WIRE_H */
