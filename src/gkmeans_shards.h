/*
 * gkmeans_shards.h - tables whose rows are in shards on other servers (Citus).
 */
#ifndef GKMEANS_SHARDS_H
#define GKMEANS_SHARDS_H

#include "core/gk_pass.h"
#include "gkmeans.h"

/* Are the rows in shards, rather than here or copied to every server? */
extern bool gk_shards_distributed(Oid relid);

/*
 * Have passes answered by the shards.  What is given has to live as long as rows;
 * counts are set by the first pass.
 */
extern void gk_shards_rows(GkFit *fit, const GkReadOptions *read, GkRows *rows);

#endif							/* GKMEANS_SHARDS_H */
