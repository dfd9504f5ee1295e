/*
 * rescan_citus.h - tables whose rows are in shards on other servers (Citus).
 */
#ifndef RESCAN_CITUS_H
#define RESCAN_CITUS_H

#include "core/rescan/gk_pass.h"
#include "gkmeans.h"
#include "types/state.h"

/* Is it a table of Citus of any kind? */
extern bool km_citus_known(Oid relid);
/* Are the rows in shards, rather than here or copied to every server? */
extern bool km_citus_distributed(Oid relid);
/*
 * An ORDER BY for rows that a query brings here: by shard, and within a shard by place.
 * Otherwise the order is that of their arrival.
 */
extern const char *km_citus_order(void);

/*
 * Have passes answered by the shards.  What is given has to live as long as rows;
 * counts are set by the first pass.
 */
extern void km_citus_rows(KmFit *fit, const KmReadOptions *read, GkRows *rows);

/*
 * The states of kmeans_step(relation, ...), which every server finds in this schema, of
 * all shards, combined.  NULL: there are no rows.
 */
extern KmeansStep *km_citus_step(const KmSource *source, const char *schema, const KmeansModel *model,
								  bool skip_nonfinite, GkDeviceKind device);

#endif							/* RESCAN_CITUS_H */
