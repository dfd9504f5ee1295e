/*
 * rescan_relation.h - relations that are read again in every pass: strategy "scan"
 * (rescan_relation.c), and shards on other servers (rescan_citus.c).
 */
#ifndef RESCAN_RELATION_H
#define RESCAN_RELATION_H

#include "core/rescan/gk_pass.h"
#include "gkmeans.h"

/* Host memory for the rows that are computed with at once. */
extern size_t km_rescan_chunk_bytes(void);

/* Who computes with them, of n rows in all. */
extern const GkBackend *km_rescan_choose(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k);

/*
 * One pass over a relation in this server.  ERRORs are raised.  tables lives until
 * the return; names are empty unless the pass was a step; kept may be NULL.
 */
extern void km_rescan_answer(KmPgHost *host, const KmSource *source, const KmReadOptions *options,
							  const GkPass *pass, const GkBackend **device, const GkLabelSink *sink,
							  GkKeptD *kept, KmReadCounts *counts, KmTables *tables, GkPassResult *out,
							  GkPassAnswererNames *names);

/* ---- for fn_fit.c ---- */

/* The host is begun; the source and the options are fit's. */
extern KmRescan *km_rescan_begin(KmFit *fit, const KmReadOptions *read, KmTables *tables);
/* The first pass; NULL: no usable rows.  The store is not prepared. */
extern GkStore *km_rescan_open(KmRescan *it);
/* Who computes from now on; ERROR when there is no such device. */
extern void km_rescan_device(KmRescan *it, GkDeviceKind kind, int64 n, int d, int k);

#endif							/* RESCAN_RELATION_H */
