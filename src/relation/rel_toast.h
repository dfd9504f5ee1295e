/*
 * rel_toast.h - values that are stored out of line, read in the order of their pages.
 */
#ifndef REL_TOAST_H
#define REL_TOAST_H

#include "access/detoast.h"
#include "access/htup_details.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#include "pg/pg_compat.h"

/* Reads values of one table.  PostgreSQL's, so not for other threads. */
typedef struct KmToast KmToast;

/* Opens nothing before the first value.  The table and the snapshot stay. */
extern KmToast *km_toast_begin(Relation table, Snapshot snapshot);

/* How many bytes are stored: fewer than the value has, if it is compressed. */
static inline Size
km_toast_size(const struct varatt_external *value)
{
#if PG_VERSION_NUM >= 140000
	return VARATT_EXTERNAL_GET_EXTSIZE(*value);
#else
	return value->va_extsize;
#endif
}

/* Copy the stored bytes of a value.  False: leave it to detoast_attr(). */
extern bool km_toast_read(KmToast *t, const struct varatt_external *value, char *to);
extern void km_toast_end(KmToast *t);

/* Pages where values of a table are out of line. */
extern BlockNumber km_toast_pages(Relation table);

#endif							/* REL_TOAST_H */
