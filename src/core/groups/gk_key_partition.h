/*
 * gk_key_partition.h - rows that belong to groups by a whole number, their key.
 *
 * Rows come in any order and are laid, one after the other, into one of many
 * parts by a hash of the key.  A part fits into a cache; whoever makes groups of
 * its rows then has all rows of them, so parts can be taken by different threads.
 */
#ifndef GK_KEY_PARTITION_H
#define GK_KEY_PARTITION_H

#include "core/store/gk_batch.h"
#include "core/gk_core.h"

#define GK_KEY_PARTITION_PARTS	1024

/* Keys are less than this, either way: such are doubles exactly. */
#define GK_KEY_PARTITION_LIMIT	0x1p53

typedef struct GkKeyPartition GkKeyPartition;

/* Rows of so many values besides the key. */
GkStatus	gk_key_partition_create(const GkHost *host, int width, GkKeyPartition **out, GkError *err);
void		gk_key_partition_free(GkKeyPartition *k);
/* Column 0 is the key.  GK_ERR_LIMIT: one is too large to be known exactly. */
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

/* Any thread, with a host of its own, where the result lies. */
GkStatus	gk_key_partition_groups(const GkKeyPartition *k, int part, const GkHost *host, GkKeyGroups *out, GkError *err);
void		gk_key_partition_groups_free(const GkHost *host, GkKeyGroups *g);

#endif							/* GK_KEY_PARTITION_H */
