/*
 * grouped.h - the inside of kmeans_grouped(): grouped.c reads rows of any query, grouped_by_int.c,
 * which is faster, those whose key is one whole number; grouped_fit.c clusters the groups of both.
 * grouped_citus.c has the servers of a distributed table do all that.
 */
#ifndef GROUPED_H
#define GROUPED_H

#include "tcop/dest.h"

#include "core/spread/gk_spread.h"
#include "groups/groups.h"

typedef struct KmGrouped
{
	DestReceiver pub;			/* must be first */
	KmPgHost   *host;
	KmSource   *source;
	const KmFitOptions *options;
	KmResult   *result;
	KmReadCounts counts;
	int			nkeys;
	TupleDesc	key_desc;
	FmgrInfo	to_jsonb;
	bool		ordered;		/* groups come one after the other */
	Size		limit;
	Size		bytes;			/* of the batch's points */
	bool		over;			/* they were too many for the hash table */
	int			d;				/* features; 0: not known yet */
	KmRowReader rows;
	MemoryContext parent;		/* outlives the query */
	KmGroupHash groups;			/* the batch */
	KmThreadHosts *hosts;		/* in its memory; NULL: not made */
	int64		put;			/* groups of it whose rows are out */
	MemoryContext row_cxt;		/* of a few groups' rows, in the batch's; NULL: not made */
	const GkBackend *gpu;		/* takes small groups; NULL: the CPU does, */
	bool		chosen;			/* and that is settled */
	GkSpread	several;		/* devices that share them, if there are any, */
	bool		shared;			/* and that is settled */
} KmGrouped;

/* ---- grouped_fit.c ---- */

/* Is it a group for one thread of the CPU? */
extern bool km_grouped_small(const KmGrouped *g, int64 rows);

/* Cluster a group's points on the CPU; any thread, no PostgreSQL. */
extern void km_grouped_fit(const KmGrouped *g, int thread, const GkGroupPoints *points, KmOneGroup *one);

/* Cluster the batch's groups that are not clustered yet, put their rows out, and end the batch. */
extern void km_grouped_finish(KmGrouped *g);

/* Whether a GPU takes the small groups; rows: of all groups together. */
extern void km_grouped_choose_gpu(KmGrouped *g, int64 rows);

/* Before the first row of the result. */
extern void km_grouped_put_begin(KmGrouped *g);

/* ---- grouped_by_int.c ---- */

/*
 * All of kmeans_grouped() for one key column.  False: the query of grouped.c has to do it,
 * nothing was done; g->ordered is set when the points were too many for memory.
 */
extern bool km_grouped_by_int(KmGrouped *g, char *key);

/* ---- grouped_citus.c ---- */

/*
 * Groups that are in one shard each, clustered where they are.  False: they are not, or a key would not
 * come back as it is; nothing was done.
 */
extern bool km_grouped_by_nodes(KmGrouped *g, char **group_by, FunctionCallInfo fcinfo);

/* Put what was left out into the result of kmeans_grouped_part(), as its last row. */
extern void km_grouped_put_counts(const KmGrouped *g);

#endif							/* GROUPED_H */
