/*
 * rel_foreign.c - is a relation made of foreign tables of postgres_fdw, on servers that have gkmeans?
 *
 * A foreign server says so by its option: extensions 'gkmeans'.  Then its rows are shards like those of
 * Citus: the servers compute.  Rows that no server could answer for are read through postgres_fdw,
 * as those of any other foreign table.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/varlena.h"

#include "pg/pg_compat.h"
#include "relation/relation.h"

const char *
km_changed_here(Oid relid)
{
	const char *name = NULL;
	ListCell   *l;

	foreach(l, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		Relation	rel = relation_open(lfirst_oid(l), NoLock);

		if (CheckRelationLockedByMe(rel, AccessExclusiveLock, false) || CheckRelationLockedByMe(rel, RowExclusiveLock, false))
			name = pstrdup(RelationGetRelationName(rel));
		relation_close(rel, NoLock);
	}
	return name;
}

static const char *
option(List *options, const char *name)
{
	ListCell   *l;

	foreach(l, options)
	{
		DefElem    *e = lfirst_node(DefElem, l);

		if (strcmp(e->defname, name) == 0)
			return defGetString(e);
	}
	return NULL;
}

/* Does the server have gkmeans, by its option? */
static bool
has_gkmeans(const ForeignServer * server)
{
	const char *list = option(server->options, "extensions");
	List	   *names;
	ListCell   *l;

	if (list == NULL || !SplitIdentifierString(pstrdup(list), ',', &names))
		return false;
	foreach(l, names)
		if (strcmp(lfirst(l), "gkmeans") == 0)
		return true;
	return false;
}

static bool
is_of_postgres_fdw(const ForeignServer * server)
{
	Oid			handler = GetForeignDataWrapper(server->fdwid)->fdwhandler;
	const char *name = OidIsValid(handler) ? get_func_name(handler) : NULL;

	return name != NULL && strcmp(name, "postgres_fdw_handler") == 0;
}

/* Has the column the same name there? */
static bool
same_name(Oid relid, const char *column)
{
	AttrNumber	number = get_attnum(relid, column);
	const char *there = number > 0 ? option(GetForeignColumnOptions(relid, number), "column_name") : NULL;

	return number > 0 && (there == NULL || strcmp(there, column) == 0);
}

static bool
can_answer(const KmSource *source, Oid relid)
{
	ForeignServer *server;

	if (get_rel_relkind(relid) != RELKIND_FOREIGN_TABLE)
		return false;
	server = GetForeignServer(GetForeignTable(relid)->serverid);
	if (!is_of_postgres_fdw(server) || !has_gkmeans(server))
		return false;
	for (int i = 0; i < source->ncolumns; i++)
		if (!same_name(relid, source->columns[i]))
			return false;
	return source->weight_column == NULL || same_name(relid, source->weight_column);
}

/* The tables that a partitioned one is made of, in the order of their bounds, which is that of their rows. */
static List *
leaves_of(Oid relid, List *leaves)
{
	Relation	rel = table_open(relid, AccessShareLock);

	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		PartitionDesc desc = km_partition_desc(rel);

		for (int i = 0; i < desc->nparts; i++)
			leaves = leaves_of(desc->oids[i], leaves);
	}
	else
		leaves = lappend_oid(leaves, relid);
	table_close(rel, NoLock);
	return leaves;
}

/* Can servers answer for all of its tables?  The first one that they cannot is the last one that is looked at. */
static bool
all_can_answer(const KmSource *source, Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		good;

	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		PartitionDesc desc = km_partition_desc(rel);

		good = desc->nparts > 0;
		for (int i = 0; good && i < desc->nparts; i++)
			good = all_can_answer(source, desc->oids[i]);
	}
	else
		good = can_answer(source, relid);
	table_close(rel, NoLock);
	return good;
}

bool
km_foreign_sharded(const KmSource *source)
{
	if (source->relkind != RELKIND_PARTITIONED_TABLE && source->relkind != RELKIND_FOREIGN_TABLE)
		return false;
	/* its children are no partitions */
	if (source->relkind == RELKIND_FOREIGN_TABLE && has_subclass(source->relid))
		return false;
	/* postgres_fdw reads in this transaction, and sees its changes */
	return all_can_answer(source, source->relid) && check_enable_rls(source->relid, InvalidOid, true) == RLS_NONE &&
		km_changed_here(source->relid) == NULL;
}

int
km_foreign_shards(const KmSource *source, MemoryContext context, KmShard **shard)
{
	List	   *leaves = leaves_of(source->relid, NIL);
	MemoryContext caller = MemoryContextSwitchTo(context);
	int			n = 0;
	ListCell   *l;

	*shard = palloc(Max(list_length(leaves), 1) * sizeof(KmShard));
	foreach(l, leaves)
	{
		Oid			relid = lfirst_oid(l);
		ForeignTable *table = GetForeignTable(relid);
		const char *schema = option(table->options, "schema_name");
		const char *name = option(table->options, "table_name");
		KmPlace    *place = palloc0(sizeof(KmPlace));

		place->host = GetForeignServer(table->serverid)->servername;
		place->server = table->serverid;
		if (schema == NULL)
			schema = get_namespace_name(get_rel_namespace(relid));
		if (name == NULL)
			name = get_rel_name(relid);
		(*shard)[n++] = (KmShard) {relid, quote_qualified_identifier(schema, name), 1, place};
	}
	MemoryContextSwitchTo(caller);
	return n;
}
