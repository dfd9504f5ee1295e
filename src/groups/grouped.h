/*
 * grouped.h - the inside of kmeans_grouped(): grouped.c takes rows
 * of any query, grouped_by_int.c faster those whose group is one whole number.
 */
#ifndef GKMEANS_GROUPED_H
#define GKMEANS_GROUPED_H

#include "tcop/dest.h"

#include "core/gk_backend.h"
#include "gkmeans.h"
#include "groups/group_hash.h"
#include "relation/rel_rules.h"
#include "pg/pg_thread_host.h"

typedef struct GkGrouped
{
	DestReceiver pub;			/* must be first */
	GkPgHost   *host;
	const GkSource *source;
	const GkFitOptions *options;
	GkResult   *result;
	GkReadCounts counts;
	int			nkeys;
	TupleDesc	key_desc;
	FmgrInfo	to_jsonb;
	bool		ordered;		/* groups come one after the other */
	Size		limit;
	Size		bytes;			/* of the batch's points */
	bool		over;			/* they were too many for the hash table */
	int			d;				/* features; 0: not known yet */
	GkRowReader rows;
	MemoryContext parent;		/* outlives the query */
	GkGroups	groups;			/* the batch */
	int64		put;			/* groups of it whose rows are out */
	MemoryContext row_cxt;		/* of a few groups' rows, in the batch's; NULL: not made */
	const GkBackend *gpu;		/* takes small groups; NULL: the CPU does, */
	bool		chosen;			/* and that is settled */
} GkGrouped;

/* Is it a group for one thread of the CPU? */
extern bool gk_grouped_small(const GkGrouped *g, int64 rows);
/* Keep what a model says of the group's clusters; any thread.  False: out of memory. */
extern bool gk_grouped_keep(const GkGrouped *g, GkThreadHosts *hosts, int thread, GkOneGroup *one, const GkModel *m);
/* Cluster n points (see gk_group_fit()) on the CPU; any thread, no PostgreSQL. */
extern void gk_grouped_fit(const GkGrouped *g, GkThreadHosts *hosts, int thread, GkGroupRow row, const void *arg,
						   int64 n, GkOneGroup *one);
/* Cluster the batch's groups that are not clustered yet, put their rows out, and end the batch. */
extern void gk_grouped_finish(GkGrouped *g);

/* ---- grouped_output.c ---- */

extern void gk_grouped_put_begin(GkGrouped *g);
/* Put out the rows of the batch's next group, which is clustered. */
extern void gk_grouped_put(GkGrouped *g, const GkOneGroup *one);

/* ---- grouped_gpu.c ---- */

/* Whether a GPU takes the small groups; rows: of all groups together. */
extern void gk_grouped_choose(GkGrouped *g, int64 rows);
/* Cluster those of the batch's groups on the GPU that it takes. */
extern void gk_grouped_pack(GkGrouped *g, GkThreadHosts *hosts);

/* ---- grouped_by_int.c ---- */

/*
 * All of kmeans_grouped() for one key column.  False: it is for the other road,
 * nothing was done; g->ordered is set when it was too much for memory.
 */
extern bool gk_grouped_by_key(GkGrouped *g, char *key);

#endif							/* GKMEANS_GROUPED_H */
