/*
 * gk_key_partition.h - rows that belong to groups by a whole number, their key.
 *
 * Rows come in any order and are written, one after the other, into one of many parts by a
 * hash of the key: a radix partition.  A part fits into a cache and has all rows of its
 * groups, so different threads can make groups of different parts.
 */
#ifndef GK_KEY_PARTITION_H
#define GK_KEY_PARTITION_H

#include "core/store/gk_batch.h"
#include "core/gk_core.h"

#define GK_KEY_PARTITION_PARTS	1024

/* Keys are less than this, either way: such are doubles exactly. */
#define GK_KEY_PARTITION_LIMIT	0x1p53

typedef struct GkKeyPartition GkKeyPartition;

/* width: values of a row besides the key. */
GkStatus	gk_key_partition_create(const GkHost *host, int width, GkKeyPartition **out, GkError *err);
void		gk_key_partition_free(GkKeyPartition *k);

/* Add rows with the key in column 0.  GK_ERR_LIMIT: a key is not a whole number exactly. */
GkStatus	gk_key_partition_add(GkKeyPartition *k, const GkBatch *b, GkError *err);

/* Bytes of the rows. */
size_t		gk_key_partition_bytes(const GkKeyPartition *k);

/* The groups of a part, in the order in which they appeared. */
typedef struct GkKeyGroups
{
	int			n;
	int64_t    *key;			/* [n] */
	int64_t    *start;			/* [n + 1] of a group's rows */
	bool		floats;			/* that is what rows are; else doubles */
	void	   *rows;			/* [start[n]][width] */
} GkKeyGroups;

/* Make the groups of a part.  Any thread, with a host of its own, which allocates the result. */
GkStatus	gk_key_partition_groups(const GkKeyPartition *k, int part, const GkHost *host, GkKeyGroups *out, GkError *err);
void		gk_key_partition_groups_free(const GkHost *host, GkKeyGroups *g);

#endif							/* GK_KEY_PARTITION_H */
