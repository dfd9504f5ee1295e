/*
 * rescan_relation.h - relations that are read again in every pass: strategy "scan"
 * (rescan_relation.c), and shards on other servers (rescan_citus.c).
 */
#ifndef GKMEANS_ITERATE_H
#define GKMEANS_ITERATE_H

#include "core/rescan/gk_pass.h"
#include "gkmeans.h"

/* Host memory for the rows that are computed with at once. */
extern size_t gk_iterate_chunk_bytes(void);

/* Who computes with them, of n rows in all. */
extern const GkBackend *gk_iterate_choose(GkPgHost *host, GkDeviceKind kind, int64 n, int d, int k);

/*
 * One pass over a relation in this server.  ERRORs are raised.  tables lives until
 * the return; names are empty unless the pass was a step; kept may be NULL.
 */
extern void gk_iterate_answer(GkPgHost *host, const GkSource *source, const GkReadOptions *options,
							  const GkPass *pass, const GkBackend **device, const GkLabelSink *sink,
							  GkKeptD *kept, GkReadCounts *counts, GkTables *tables, GkPassResult *out,
							  GkPasserNames *names);

/* ---- for fn_fit.c ---- */

/* The host is begun; the source and the options are fit's. */
extern GkIterate *gk_iterate_begin(GkFit *fit, const GkReadOptions *read, GkTables *tables);
/* The first pass; NULL: no usable rows.  The store is not prepared. */
extern GkStore *gk_iterate_open(GkIterate *it);
/* Who computes from now on; ERROR when there is no such device. */
extern void gk_iterate_device(GkIterate *it, GkDeviceKind kind, int64 n, int d, int k);

#endif							/* GKMEANS_ITERATE_H */
