/*
 * group_hash.c - groups by their key columns: a hash table with the types' own
 * functions, as for GROUP BY.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "groups/groups.h"

#define MIN_BUCKETS		1024

/* Types whose values are equal when they are the same whole number. */
static bool
is_whole(PGFunction equal)
{
	return equal == int4eq || equal == int8eq || equal == int2eq || equal == booleq ||
		equal == date_eq || equal == timestamp_eq;
}

void
km_group_hash_types(KmGroupHash *g, int nkeys, TupleDesc desc)
{
	g->nkeys = nkeys;
	g->keys = palloc0(nkeys * sizeof(KmKeyColumn));
	for (int i = 0; i < nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		TypeCacheEntry *type = lookup_type_cache(att->atttypid, TYPECACHE_HASH_PROC_FINFO | TYPECACHE_EQ_OPR_FINFO |
												 TYPECACHE_CMP_PROC_FINFO);

		if (!OidIsValid(type->hash_proc_finfo.fn_oid) || !OidIsValid(type->eq_opr_finfo.fn_oid))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("column \"%s\" is of type %s, which has no hash function",
							NameStr(att->attname), format_type_be(att->atttypid))));
		fmgr_info_copy(&g->keys[i].hash, &type->hash_proc_finfo, CurrentMemoryContext);
		fmgr_info_copy(&g->keys[i].equal, &type->eq_opr_finfo, CurrentMemoryContext);
		if (OidIsValid(type->cmp_proc_finfo.fn_oid))
			fmgr_info_copy(&g->keys[i].order, &type->cmp_proc_finfo, CurrentMemoryContext);
		g->keys[i].collation = att->attcollation;
		g->keys[i].len = att->attlen;
		g->keys[i].byval = att->attbyval;
		g->keys[i].whole = is_whole(type->eq_opr_finfo.fn_addr);
	}
}

void
km_group_hash_begin(KmGroupHash *g, MemoryContext parent)
{
	g->cxt = AllocSetContextCreate(parent, "gkmeans groups", ALLOCSET_DEFAULT_SIZES);
	g->n = g->room = 0;
	g->groups = NULL;
	g->nbuckets = MIN_BUCKETS;
	g->buckets = MemoryContextAllocZero(g->cxt, g->nbuckets * sizeof(uint32));
}

/* The value of a key of whole numbers, as wide as any. */
static inline int64
whole_value(const KmKeyColumn *k, Datum value)
{
	switch (k->len)
	{
		case 1:
			return DatumGetBool(value);
		case 2:
			return DatumGetInt16(value);
		case 4:
			return DatumGetInt32(value);
		default:
			return DatumGetInt64(value);
	}
}

static uint32
key_hash(const KmGroupHash *g, const Datum *values, const bool *nulls)
{
	uint32		hash = 0;

	for (int i = 0; i < g->nkeys; i++)
	{
		KmKeyColumn *k = &g->keys[i];

		hash = (hash << 1) | (hash >> 31);
		if (!nulls[i] && k->whole)
			hash ^= (uint32) ((uint64) whole_value(k, values[i]) * UINT64CONST(0x9e3779b97f4a7c15) >> 32);
		else if (!nulls[i])
			hash ^= DatumGetUInt32(FunctionCall1Coll(&k->hash, k->collation, values[i]));
	}
	return murmurhash32(hash);
}

bool
km_group_hash_same(const KmGroupHash *g, const KmOneGroup *one, const Datum *values, const bool *nulls)
{
	for (int i = 0; i < g->nkeys; i++)
	{
		KmKeyColumn *k = &g->keys[i];

		if (nulls[i] != one->key_null[i])
			return false;
		if (!nulls[i] && k->whole)
		{
			if (whole_value(k, values[i]) != whole_value(k, one->key[i]))
				return false;
		}
		else if (!nulls[i] && !DatumGetBool(FunctionCall2Coll(&k->equal, k->collation, one->key[i], values[i])))
			return false;
	}
	return true;
}

static void
grow_buckets(KmGroupHash *g)
{
	uint32		nbuckets = g->nbuckets * 2;
	uint32	   *buckets = MemoryContextAllocExtended(g->cxt, (Size) nbuckets * sizeof(uint32),
													 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (int i = 0; i < g->n; i++)
	{
		uint32		at = g->groups[i]->hash & (nbuckets - 1);

		while (buckets[at] != 0)
			at = (at + 1) & (nbuckets - 1);
		buckets[at] = i + 1;
	}
	pfree(g->buckets);
	g->buckets = buckets;
	g->nbuckets = nbuckets;
}

KmOneGroup *
km_group_hash_add(KmGroupHash *g, uint32 hash, const Datum *values, const bool *nulls)
{
	MemoryContext caller = MemoryContextSwitchTo(g->cxt);
	KmOneGroup *one = palloc0(sizeof(KmOneGroup));
	int			sets = Max(g->sets, 1);

	one->hash = hash;
	one->number = g->n;
	one->key = palloc(g->nkeys * sizeof(Datum));
	one->key_null = palloc(g->nkeys * sizeof(bool));
	for (int i = 0; i < g->nkeys; i++)
	{
		one->key_null[i] = nulls[i];
		one->key[i] = nulls[i] ? (Datum) 0 : datumCopy(values[i], g->keys[i].byval, g->keys[i].len);
	}
	one->rows = palloc(sets * sizeof(KmGroupRows));
	for (int i = 0; i < sets; i++)
		km_group_rows_init(&one->rows[i], g->rows_cxt != NULL ? g->rows_cxt : g->cxt);
	if (g->n == g->room)
	{
		g->room = Max(64, g->room * 2);
		g->groups = g->groups == NULL ? palloc(g->room * sizeof(KmOneGroup *)) :
			repalloc_huge(g->groups, (Size) g->room * sizeof(KmOneGroup *));
	}
	g->groups[g->n++] = one;
	MemoryContextSwitchTo(caller);
	return one;
}

KmOneGroup *
km_group_hash_find(KmGroupHash *g, const Datum *values, const bool *nulls)
{
	uint32		hash = key_hash(g, values, nulls);
	uint32		at;

	for (at = hash & (g->nbuckets - 1); g->buckets[at] != 0; at = (at + 1) & (g->nbuckets - 1))
	{
		KmOneGroup *one = g->groups[g->buckets[at] - 1];

		if (one->hash == hash && km_group_hash_same(g, one, values, nulls))
			return one;
	}
	g->buckets[at] = g->n + 1;
	(void) km_group_hash_add(g, hash, values, nulls);
	if ((uint32) g->n > g->nbuckets / 2)
		grow_buckets(g);
	return g->groups[g->n - 1];
}

/* As the types' default btree operators order values, NULLs last. */
static int
compare_keys(const void *va, const void *vb, void *arg)
{
	const KmGroupHash *g = arg;
	const KmOneGroup *a = *(KmOneGroup *const *) va;
	const KmOneGroup *b = *(KmOneGroup *const *) vb;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < g->nkeys; i++)
	{
		KmKeyColumn *k = &g->keys[i];
		int			order = a->key_null[i] - b->key_null[i];

		if (order == 0 && !a->key_null[i] && k->whole)
		{
			int64		x = whole_value(k, a->key[i]);
			int64		y = whole_value(k, b->key[i]);

			order = (x > y) - (x < y);
		}
		else if (order == 0 && !a->key_null[i] && OidIsValid(k->order.fn_oid))
			order = DatumGetInt32(FunctionCall2Coll(&k->order, k->collation, a->key[i], b->key[i]));
		if (order != 0)
			return order;
	}
	return (a->number > b->number) - (a->number < b->number);
}

typedef struct Ranked
{
	uint64		key;
	KmOneGroup *group;
} Ranked;

/*
 * Sort by one key of whole numbers: byte by byte from the lowest on, without the bytes that
 * all have in common.  With hundreds of thousands of small groups any other sort shows.
 */
static void
sort_whole(KmGroupHash *g)
{
	Ranked	   *from = palloc_extended(Max(g->n, 1) * sizeof(Ranked), MCXT_ALLOC_HUGE);
	Ranked	   *to = palloc_extended(Max(g->n, 1) * sizeof(Ranked), MCXT_ALLOC_HUGE);
	uint64		differ = 0;

	for (int i = 0; i < g->n; i++)
	{
		/* as unsigned numbers in the same order */
		from[i] = (Ranked) {(uint64) whole_value(&g->keys[0], g->groups[i]->key[0]) ^ UINT64CONST(1) << 63, g->groups[i]};
		differ |= from[i].key ^ from[0].key;
	}
	for (int shift = 0; shift < 64; shift += 8)
	{
		int			at[257] = {0};
		Ranked	   *swap = from;

		if ((differ >> shift & 0xff) == 0)
			continue;
		for (int i = 0; i < g->n; i++)
			at[(from[i].key >> shift & 0xff) + 1]++;
		for (int i = 0; i < 256; i++)
			at[i + 1] += at[i];
		for (int i = 0; i < g->n; i++)
			to[at[from[i].key >> shift & 0xff]++] = from[i];
		from = to;
		to = swap;
	}
	for (int i = 0; i < g->n; i++)
		g->groups[i] = from[i].group;
	pfree(from);
	pfree(to);
}

void
km_group_hash_sort(KmGroupHash *g)
{
	bool		nulls = false;

	for (int i = 0; i < g->n; i++)
		nulls |= g->groups[i]->key_null[0];
	if (g->nkeys == 1 && g->keys[0].whole && !nulls)
		sort_whole(g);
	else
		qsort_arg(g->groups, g->n, sizeof(KmOneGroup *), compare_keys, g);
}
