/*
 * rel_citus.c - is a relation a table of Citus, and which shards are its rows in?
 *
 * Citus is known by its catalogs only.
 */
#include "postgres.h"

#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/lsyscache.h"

#include "relation/relation.h"

#define OF_RELATION	"WHERE logicalrelid::pg_catalog.oid OPERATOR(pg_catalog.=) $1"

/* Run a query with the relation as its parameter; returns the number of rows. */
static int
select_by_relation(const char *query, Oid relid)
{
	Oid			type = OIDOID;
	Datum		value = ObjectIdGetDatum(relid);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	if (SPI_execute_with_args(query, 1, &type, &value, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the catalogs of Citus");
	return (int) SPI_processed;
}

static bool
among_partitions(const char *query, Oid relid)
{
	bool		found;

	if (!OidIsValid(get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE)))
		return false;
	found = select_by_relation(query, relid) > 0;
	SPI_finish();
	return found;
}

bool
km_citus_known(Oid relid)
{
	return among_partitions("SELECT FROM pg_catalog.pg_dist_partition " OF_RELATION, relid);
}

bool
km_citus_distributed(Oid relid)
{
	/* 'n': one shard, copied to every server ('t'), here (without a colocation), or on another server */
	return among_partitions("SELECT FROM pg_catalog.pg_dist_partition " OF_RELATION
							" AND (partmethod OPERATOR(pg_catalog.<>) 'n' OR repmodel OPERATOR(pg_catalog.<>) 't' "
							"AND colocationid OPERATOR(pg_catalog.<>) 0)", relid);
}

bool
km_citus_groups_stay(Oid relid, char **group_by, int n)
{
	/* 'n': there is one shard */
	const char *query = "SELECT CASE WHEN partmethod OPERATOR(pg_catalog.=) 'h' "
	"THEN pg_catalog.column_to_column_name(logicalrelid, partkey) END FROM pg_catalog.pg_dist_partition " OF_RELATION
	" AND (partmethod OPERATOR(pg_catalog.=) 'h' OR partmethod OPERATOR(pg_catalog.=) 'n')";
	bool		found = false;

	if (select_by_relation(query, relid) == 1)
	{
		char	   *key = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);

		found = key == NULL;
		for (int i = 0; i < n; i++)
			found |= key != NULL && strcmp(key, group_by[i]) == 0;
	}
	SPI_finish();
	return found;
}

/* A shard's name as SQL.  Citus leaves the schema public out, and a search_path might find another table. */
static char *
shard_name(const char *name, bool is_public)
{
	return is_public && strncmp(name, "public.", 7) != 0 ? psprintf("public.%s", name) : pstrdup(name);
}

int
km_citus_shards(Oid relid, MemoryContext context, KmShard **shard)
{
	bool		is_public = strcmp(get_namespace_name(get_rel_namespace(relid)), "public") == 0;
	int			rows = select_by_relation("SELECT s.shardid, p.nodename::pg_catalog.text, p.nodeport, "
										  "pg_catalog.shard_name(s.logicalrelid, s.shardid) "
										  "FROM pg_catalog.pg_dist_shard s LEFT JOIN pg_catalog.pg_dist_shard_placement p "
										  "ON p.shardid OPERATOR(pg_catalog.=) s.shardid "
										  "WHERE s.logicalrelid::pg_catalog.oid OPERATOR(pg_catalog.=) $1 ORDER BY 1, 2, 3", relid);
	MemoryContext spi = MemoryContextSwitchTo(context);
	int			n = 0;
	KmPlace    *place = palloc(Max(rows, 1) * sizeof(KmPlace));

	*shard = palloc(Max(rows, 1) * sizeof(KmShard));
	for (int i = 0; i < rows; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		char	   *host = SPI_getvalue(row, desc, 2);
		bool		isnull;
		int64		id = DatumGetInt64(SPI_getbinval(row, desc, 1, &isnull));
		KmShard    *to = *shard + n - 1;

		if (n == 0 || to->id != id)
		{
			to = *shard + n++;
			*to = (KmShard) {id, shard_name(SPI_getvalue(row, desc, 4), is_public), 0, place + i};
		}
		if (host != NULL)
			to->place[to->places++] = (KmPlace) {pstrdup(host), DatumGetInt32(SPI_getbinval(row, desc, 3, &isnull))};
	}
	MemoryContextSwitchTo(spi);
	SPI_finish();
	return n;
}

const char *
km_citus_order(void)
{
	return " ORDER BY " KM_CITUS_NUMBER_OF("tableoid::pg_catalog.regclass::pg_catalog.text") ", ctid";
}
