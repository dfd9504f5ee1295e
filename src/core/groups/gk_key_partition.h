/*
 * gk_key_partition.h - rows that belong to groups by a whole number, their key.
 *
 * Rows come in any order and are laid, one after the other, into one of many
 * parts by a hash of the key.  A part fits into a cache; whoever makes groups of
 * its rows then has all rows of them, so parts can be taken by different threads.
 */
#ifndef GK_KEYED_H
#define GK_KEYED_H

#include "core/store/gk_batch.h"
#include "core/gk_core.h"

#define GK_KEYED_PARTS	1024

/* Keys are less than this, either way: such are doubles exactly. */
#define GK_KEYED_LIMIT	0x1p53

typedef struct GkKeyed GkKeyed;

/* Rows of so many values besides the key. */
GkStatus	gk_keyed_create(const GkHost *host, int width, GkKeyed **out, GkError *err);
void		gk_keyed_free(GkKeyed *k);
/* Column 0 is the key.  GK_ERR_LIMIT: one is too large to be known exactly. */
GkStatus	gk_keyed_add(GkKeyed *k, const GkBatch *b, GkError *err);
/* Bytes of the rows. */
size_t		gk_keyed_bytes(const GkKeyed *k);

/* The groups of a part, in the order in which they appeared. */
typedef struct GkKeyedGroups
{
	int			n;
	int64_t    *key;			/* [n] */
	int64_t    *start;			/* [n + 1] of a group's rows */
	bool		floats;			/* that is what rows are; else doubles */
	void	   *rows;			/* [start[n]][width] */
} GkKeyedGroups;

/* Any thread, with a host of its own, where the result lies. */
GkStatus	gk_keyed_groups(const GkKeyed *k, int part, const GkHost *host, GkKeyedGroups *out, GkError *err);
void		gk_keyed_groups_free(const GkHost *host, GkKeyedGroups *g);

#endif							/* GK_KEYED_H */
