/*
 * group_hash.h - the groups of kmeans_grouped() and of windows: their keys and their
 * points.
 */
#ifndef GKMEANS_GROUPS_H
#define GKMEANS_GROUPS_H

#include "groups/group_points.h"

typedef struct GkKeyColumn
{
	FmgrInfo	hash;
	FmgrInfo	equal;
	FmgrInfo	order;			/* its fn_oid is invalid: the type has none */
	Oid			collation;
	int16		len;
	bool		byval;
	bool		whole;			/* a whole number, in whatever type */
} GkKeyColumn;

typedef struct GkOneGroup
{
	uint32		hash;
	int			number;			/* in the batch */
	Datum	   *key;
	bool	   *key_null;
	GkRows	   *rows;			/* [sets]; the weight is a further feature here; NULL: clustered already */
	GkStatus	status;
	GkError    *err;			/* when the status is not GK_OK */
	/* The result, of GkModel. */
	int			k;
	double	   *centroids;		/* [k][d] */
	int64_t    *size;			/* [k] */
	double	   *inertia;		/* [k] */
	double	   *radius;			/* [k] */
} GkOneGroup;

/* A batch of groups, in the order in which they appeared until gk_groups_sort(). */
typedef struct GkGroups
{
	int			nkeys;
	GkKeyColumn *keys;
	int			sets;			/* of points of each group; 0: one */
	MemoryContext rows_cxt;		/* of the points; NULL: cxt */
	MemoryContext cxt;			/* of the batch */
	int			n;
	int			room;
	GkOneGroup **groups;
	uint32	   *buckets;		/* group number + 1; 0: empty */
	uint32		nbuckets;		/* a power of two */
} GkGroups;

/* The functions for the key columns' types, in the current memory context. */
extern void gk_groups_types(GkGroups *g, int nkeys, TupleDesc desc);
/* A new batch, without groups, in a context below parent. */
extern void gk_groups_begin(GkGroups *g, MemoryContext parent);
/* A group's key columns. */
extern bool gk_groups_same(const GkGroups *g, const GkOneGroup *one, const Datum *values, const bool *nulls);
/* The group with these key columns, a new one when there is none. */
extern GkOneGroup *gk_groups_find(GkGroups *g, const Datum *values, const bool *nulls);
/* Put the groups in the order of ORDER BY their key columns; none is found or added after that. */
extern void gk_groups_sort(GkGroups *g);
/* A new group, not to be found by its key. */
extern GkOneGroup *gk_groups_add(GkGroups *g, uint32 hash, const Datum *values, const bool *nulls);

#endif							/* GKMEANS_GROUPS_H */
