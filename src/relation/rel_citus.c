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

int
km_citus_shards(Oid relid, MemoryContext context, int64 **id)
{
	int			n = select_by_relation("SELECT shardid FROM pg_catalog.pg_dist_shard " OF_RELATION " ORDER BY shardid", relid);

	*id = MemoryContextAlloc(context, Max(n, 1) * sizeof(int64));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		(*id)[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	}
	SPI_finish();
	return n;
}

const char *
km_citus_order(void)
{
	return " ORDER BY " KM_CITUS_NUMBER_OF("tableoid::pg_catalog.regclass::pg_catalog.text") ", ctid";
}
