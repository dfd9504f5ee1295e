/*
 * group_hash.h - the groups of kmeans_grouped() and of windows: their keys and their
 * points.
 */
#ifndef GROUP_HASH_H
#define GROUP_HASH_H

#include "groups/group_points.h"

typedef struct KmKeyColumn
{
	FmgrInfo	hash;
	FmgrInfo	equal;
	FmgrInfo	order;			/* its fn_oid is invalid: the type has none */
	Oid			collation;
	int16		len;
	bool		byval;
	bool		whole;			/* a whole number, in whatever type */
} KmKeyColumn;

typedef struct KmOneGroup
{
	uint32		hash;
	int			number;			/* in the batch */
	Datum	   *key;
	bool	   *key_null;
	KmGroupRows	   *rows;			/* [sets]; the weight is a further feature here; NULL: clustered already */
	GkStatus	status;
	GkError    *err;			/* when the status is not GK_OK */
	/* The result, of GkModel. */
	int			k;
	double	   *centroids;		/* [k][d] */
	int64_t    *size;			/* [k] */
	double	   *inertia;		/* [k] */
	double	   *radius;			/* [k] */
} KmOneGroup;

/* A batch of groups, in the order in which they appeared until km_group_hash_sort(). */
typedef struct KmGroupHash
{
	int			nkeys;
	KmKeyColumn *keys;
	int			sets;			/* of points of each group; 0: one */
	MemoryContext rows_cxt;		/* of the points; NULL: cxt */
	MemoryContext cxt;			/* of the batch */
	int			n;
	int			room;
	KmOneGroup **groups;
	uint32	   *buckets;		/* group number + 1; 0: empty */
	uint32		nbuckets;		/* a power of two */
} KmGroupHash;

/* The functions for the key columns' types, in the current memory context. */
extern void km_group_hash_types(KmGroupHash *g, int nkeys, TupleDesc desc);
/* A new batch, without groups, in a context below parent. */
extern void km_group_hash_begin(KmGroupHash *g, MemoryContext parent);
/* A group's key columns. */
extern bool km_group_hash_same(const KmGroupHash *g, const KmOneGroup *one, const Datum *values, const bool *nulls);
/* The group with these key columns, a new one when there is none. */
extern KmOneGroup *km_group_hash_find(KmGroupHash *g, const Datum *values, const bool *nulls);
/* Put the groups in the order of ORDER BY their key columns; none is found or added after that. */
extern void km_group_hash_sort(KmGroupHash *g);
/* A new group, not to be found by its key. */
extern KmOneGroup *km_group_hash_add(KmGroupHash *g, uint32 hash, const Datum *values, const bool *nulls);

#endif							/* GROUP_HASH_H */
