/*
 * mixed_dictionary.h - the categories of a column, numbered as they come: a hash table of bytes.
 *
 * Looking up changes nothing, so threads may, while none adds.
 */
#ifndef MIXED_DICTIONARY_H
#define MIXED_DICTIONARY_H

#include "postgres.h"

#include "core/gk_numerics.h"

/* Bytes that are a category.  Up to eight are known by their head and length alone. */
typedef struct KmMixedKey
{
	const char *data;
	uint32		len;
	uint64		head;
	uint64		hash;
} KmMixedKey;

typedef struct KmMixedEntry
{
	uint64		head;
	char	   *data;
	uint32		len;
	int32		code;			/* -1: the entry is free */
} KmMixedEntry;

/* Entries between two looks for a cancel. */
#define KM_MIXED_LOOK	4096

typedef struct KmMixedDictionary
{
	MemoryContext cxt;
	int32		n;
	uint64		size;			/* of the table, a power of two */
	KmMixedEntry *entry;		/* [size] */
} KmMixedDictionary;

/* The first eight bytes, or all: no call, and no byte behind the end. */
static inline uint64
km_mixed_head(const char *data, uint32 len)
{
	uint64		head = 0;
	uint32		first;
	uint32		last;

	if (len >= sizeof(uint64))
		memcpy(&head, data, sizeof(uint64));
	else if (len >= sizeof(uint32))
	{
		memcpy(&first, data, sizeof(uint32));
		memcpy(&last, data + len - sizeof(uint32), sizeof(uint32));
		head = (uint64) last << 32 | first;
	}
	else if (len > 0)
		head = (uint8) data[0] | (uint64) (uint8) data[len / 2] << 8 | (uint64) (uint8) data[len - 1] << 16;
	return head;
}

static inline KmMixedKey
km_mixed_key(const char *data, uint32 len)
{
	KmMixedKey	key = {data, len, km_mixed_head(data, len), 0};

	key.hash = gk_mix(key.head + (uint64) len * UINT64CONST(0x9e3779b97f4a7c15));
	for (uint32 at = sizeof(uint64); at < len; at += sizeof(uint64))
	{
		uint64		word = 0;

		memcpy(&word, data + at, Min(len - at, sizeof(uint64)));
		key.hash = gk_mix(key.hash + word);
	}
	return key;
}

/* The key's entry, or the free one where it would be. */
static inline KmMixedEntry *
km_mixed_find(const KmMixedDictionary *d, const KmMixedKey *key)
{
	for (uint64 at = key->hash;; at++)
	{
		KmMixedEntry *e = &d->entry[at & (d->size - 1)];

		if (e->code < 0 || (e->head == key->head && e->len == key->len &&
							(e->len <= sizeof(uint64) || memcmp(e->data, key->data, e->len) == 0)))
			return e;
	}
}

extern void km_mixed_dictionary_begin(KmMixedDictionary *d, MemoryContext cxt);

/* The key's code, a new one if it is new. */
extern int32 km_mixed_code(KmMixedDictionary *d, const KmMixedKey *key);

#endif							/* MIXED_DICTIONARY_H */
