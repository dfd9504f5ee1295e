/*
 * rescan_citus.h - tables whose rows are in shards on other servers (Citus).
 */
#ifndef GKMEANS_SHARDS_H
#define GKMEANS_SHARDS_H

#include "core/rescan/gk_pass.h"
#include "gkmeans.h"
#include "types/state.h"

/* Is it a table of Citus of any kind? */
extern bool gk_shards_known(Oid relid);
/* Are the rows in shards, rather than here or copied to every server? */
extern bool gk_shards_distributed(Oid relid);
/*
 * An ORDER BY for rows that a query brings here: by shard, and within a shard by place.
 * Otherwise the order is that of their arrival.
 */
extern const char *gk_shards_order(void);

/*
 * Have passes answered by the shards.  What is given has to live as long as rows;
 * counts are set by the first pass.
 */
extern void gk_shards_rows(GkFit *fit, const GkReadOptions *read, GkRows *rows);

/*
 * The states of kmeans_step(relation, ...), which every server finds in this schema, of
 * all shards, combined.  NULL: there are no rows.
 */
extern KmeansStep *gk_shards_step(const GkSource *source, const char *schema, const KmeansModel *model,
								  bool skip_nonfinite, GkDeviceKind device);

#endif							/* GKMEANS_SHARDS_H */
