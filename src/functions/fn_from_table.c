/*
 * fn_from_table.c - kmeans_from_table(): a model of the rows of a table of centroids.
 *
 * A call in a select list or a WHERE comes again for every row, and a search for one point after the
 * other in every statement, with the same table.  So the session keeps the values that it has made
 * last, and knows one by the versions of the table's rows: a row that was changed is another version,
 * at another place or of another transaction, and what a snapshot sees are versions.  To look at
 * them costs a pass over the table's pages without the centroids, which are stored out of line.
 *
 * Not even that is needed while the snapshot is the same, so a call site keeps its value with that,
 * too (fn_extra).  PL/pgSQL keeps call sites from statement to statement: being called again is
 * not enough to know it.
 */
#include "postgres.h"

#include <math.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#include "functions/functions.h"
#include "pg/pg_compat.h"

PG_FUNCTION_INFO_V1(kmeans_from_table);

enum
{
	ARG_TABLE, ARG_COLUMNS, ARG_DISTANCE
};

/* The columns that are read. */
static const char *const columns_of_table[] = {"cluster", "centroid", "size", "inertia", "radius"};
#define COLUMNS		((int) lengthof(columns_of_table))

/* What a table's rows are, as a snapshot sees them. */
typedef struct TableState
{
	Oid			file;			/* a table that is rewritten gets another one */
	AttrNumber	attnum[COLUMNS];
	Oid			type[COLUMNS];
	uint64		rows;
	uint64		versions;		/* sum of the hashes of the rows' versions */
} TableState;

typedef struct Call
{
	Oid			table;
	Datum		columns;		/* a pointer, 0: NULL */
	GkDistance	distance;
} Call;

/* A value that the session keeps. */
typedef struct Kept
{
	Call		call;
	TableState	state;
	KmeansModel *value;
	MemoryContext cxt;			/* all of it */
	Size		bytes;
	int			pins;			/* call sites that use it */
	dlist_node	node;
} Kept;

/* The snapshot of a call, and whose it is. */
typedef struct Moment
{
	Oid			user;
	LocalTransactionId transaction;
	SubTransactionId subtransaction;
	Size		size;
	uint32	   *snapshot;		/* of that size: all that visibility depends on */
} Moment;

typedef struct CallSite
{
	Kept	   *kept;			/* NULL: none so far */
	Moment		moment;			/* its snapshot is in cxt */
	MemoryContext cxt;
	MemoryContextCallback callback;
} CallSite;

/* The one used last is at the end. */
static dlist_head values = DLIST_STATIC_INIT(values);
static Size bytes_of_values = 0;

/* ---- the moment ---- */

static uint32 *
write_snapshot(const SnapshotData * s, Size *size)
{
	uint32		head[] = {s->xmin, s->xmax, s->curcid, s->suboverflowed, s->takenDuringRecovery, s->xcnt, Max(s->subxcnt, 0)};
	uint32		xcnt = head[lengthof(head) - 2];
	uint32		subxcnt = head[lengthof(head) - 1];
	uint32	   *to;

	*size = sizeof(head) + ((Size) xcnt + subxcnt) * sizeof(TransactionId);
	to = palloc(*size);
	memcpy(to, head, sizeof(head));
	if (xcnt > 0)
		memcpy(to + lengthof(head), s->xip, xcnt * sizeof(TransactionId));
	if (subxcnt > 0)
		memcpy(to + lengthof(head) + xcnt, s->subxip, subxcnt * sizeof(TransactionId));
	return to;
}

static Moment
this_moment(void)
{
	Moment		now = {.user = GetUserId(),.transaction = km_transaction(),.subtransaction = GetCurrentSubTransactionId()};

	now.snapshot = write_snapshot(GetActiveSnapshot(), &now.size);
	return now;
}

static bool
same_moment(const Moment *a, const Moment *b)
{
	return a->user == b->user && a->transaction == b->transaction && a->subtransaction == b->subtransaction &&
		a->size == b->size && memcmp(a->snapshot, b->snapshot, a->size) == 0;
}

/* ---- the table's rows ---- */

/* Are they, as the user sees them, a matter of their versions alone? */
static bool
is_plain(Relation rel)
{
	char		relkind = rel->rd_rel->relkind;

	/* descendants may be foreign tables; what is new here may be truncated without a trace */
	return (relkind == RELKIND_RELATION || relkind == RELKIND_MATVIEW) && !rel->rd_rel->relhassubclass &&
		rel->rd_tableam == GetHeapamTableAmRoutine() && !km_relation_is_new(rel) &&
		km_aclcheck(NamespaceRelationId, RelationGetNamespace(rel), GetUserId(), ACL_USAGE) == ACLCHECK_OK &&
		pg_class_aclcheck(RelationGetRelid(rel), GetUserId(), ACL_SELECT) == ACLCHECK_OK &&
		check_enable_rls(RelationGetRelid(rel), InvalidOid, true) == RLS_NONE && !km_citus_known(RelationGetRelid(rel));
}

static void
add_versions(Relation rel, TableState *state)
{
	TableScanDesc scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		uint32		version[] = {ItemPointerGetBlockNumber(&tuple->t_self), ItemPointerGetOffsetNumber(&tuple->t_self),
		HeapTupleHeaderGetRawXmin(tuple->t_data)};

		state->rows++;
		state->versions += hash_bytes_extended((const unsigned char *) version, sizeof(version), 0);
		if (state->rows % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
	}
	table_endscan(scan);
}

/* False: there is no such table, or it is no plain one. */
static bool
look_at_table(Oid table, TableState *state)
{
	Relation	rel = try_relation_open(table, AccessShareLock);
	bool		plain = rel != NULL && is_plain(rel);

	/* zeros, also between the fields */
	memset(state, 0, sizeof(*state));
	if (plain)
	{
		state->file = rel->rd_rel->relfilenode;
		for (int i = 0; i < COLUMNS; i++)
		{
			state->attnum[i] = get_attnum(table, columns_of_table[i]);
			state->type[i] = get_atttype(table, state->attnum[i]);
		}
		add_versions(rel, state);
	}
	/* the lock stays: what was seen is to be what is read */
	if (rel != NULL)
		relation_close(rel, NoLock);
	return plain;
}

/* ---- what is kept ---- */

static bool
same_call(const Call *a, const Call *b)
{
	return a->table == b->table && a->distance == b->distance && (a->columns == 0) == (b->columns == 0) &&
		(a->columns == 0 || datumIsEqual(a->columns, b->columns, false, -1));
}

static Kept *
find(const Call *call, const TableState *state)
{
	dlist_iter	at;

	dlist_foreach(at, &values)
	{
		Kept	   *kept = dlist_container(Kept, node, at.cur);

		if (same_call(&kept->call, call) && memcmp(&kept->state, state, sizeof(TableState)) == 0)
			return kept;
	}
	return NULL;
}

static Kept *
keep(const Call *call, const TableState *state, const KmeansModel *value)
{
	MemoryContext caller = MemoryContextSwitchTo(AllocSetContextCreate(CurrentMemoryContext, "kmeans_from_table", ALLOCSET_SMALL_SIZES));
	Kept	   *kept = palloc0(sizeof(Kept));

	kept->cxt = CurrentMemoryContext;
	kept->call = *call;
	if (call->columns != 0)
		kept->call.columns = datumCopy(call->columns, false, -1);
	kept->state = *state;
	kept->value = memcpy(palloc(VARSIZE(value)), value, VARSIZE(value));
	kept->bytes = MemoryContextMemAllocated(kept->cxt, false);
	MemoryContextSetParent(kept->cxt, TopMemoryContext);
	MemoryContextSwitchTo(caller);
	dlist_push_tail(&values, &kept->node);
	bytes_of_values += kept->bytes;
	return kept;
}

static void
forget_oldest(void)
{
	dlist_mutable_iter at;

	dlist_foreach_modify(at, &values)
	{
		Kept	   *oldest = dlist_container(Kept, node, at.cur);

		if (bytes_of_values <= km_models_to_keep())
			break;
		if (oldest->pins > 0)
			continue;
		dlist_delete(&oldest->node);
		bytes_of_values -= oldest->bytes;
		MemoryContextDelete(oldest->cxt);
	}
}

/* The call site is going away, or takes another value. */
static void
release(void *arg)
{
	CallSite   *site = arg;

	if (site->kept != NULL)
		site->kept->pins--;
	site->kept = NULL;
	forget_oldest();
}

static CallSite *
call_site(FmgrInfo *flinfo)
{
	if (flinfo->fn_extra == NULL)
	{
		CallSite   *site = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(CallSite));

		site->cxt = AllocSetContextCreate(flinfo->fn_mcxt, "kmeans_from_table call", ALLOCSET_SMALL_SIZES);
		site->callback.func = release;
		site->callback.arg = site;
		MemoryContextRegisterResetCallback(flinfo->fn_mcxt, &site->callback);
		flinfo->fn_extra = site;
	}
	return flinfo->fn_extra;
}

static void
use(CallSite *site, Kept *kept, const Moment *now)
{
	kept->pins++;
	release(site);
	dlist_delete(&kept->node);
	dlist_push_tail(&values, &kept->node);
	MemoryContextReset(site->cxt);
	site->moment = *now;
	site->moment.snapshot = memcpy(MemoryContextAlloc(site->cxt, now->size), now->snapshot, now->size);
	site->kept = kept;
}

/* ---- the model ---- */

/* The names of the columns that points are in: of one, or of one for each feature; NULL: not given. */
static char **
point_columns(Datum names, const KmCentroids *c, int *n)
{
	char	  **columns;

	*n = 0;
	if (names == 0)
		return NULL;
	columns = km_column_names(DatumGetArrayTypeP(names), "columns", n);
	if (*n != 1 && *n != c->d)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("columns has %d names, but the centroids of \"%s\" have %d features", *n, c->relname, c->d),
				 errhint("Name one array or vector column, or a column for each feature.")));
	return columns;
}

/* Has the table the columns size, inertia and radius that kmeans() returns? */
static bool
has_measures(Oid table)
{
	static const struct
	{
		const char *name;
		Oid			type;
	}			measure[] = {{"size", INT8OID}, {"inertia", FLOAT8OID}, {"radius", FLOAT8OID}};

	for (int i = 0; i < (int) lengthof(measure); i++)
		if (get_atttype(table, get_attnum(table, measure[i].name)) != measure[i].type)
			return false;
	return true;
}

/* Building the model would refuse them, too, but could not say whose they are. */
static void
check_measures(const KmCentroids *c, int i, int64 size, double inertia, double radius)
{
	if (size >= 0 && isfinite(inertia) && inertia >= 0.0 && isfinite(radius) && radius >= 0.0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("size, inertia or radius of row %d of \"%s\" is not a number >= 0", i + 1, c->relname),
			 errdetail("They are %lld, %g and %g; rows are counted in the order of \"cluster\".", (long long) size, inertia, radius),
			 errhint("NULL stands for what is not known.")));
}

/* Read them into the model; where one is NULL, it stays 0. */
static void
read_measures(const KmCentroids *c, GkModel *m)
{
	char	   *sql = psprintf("SELECT size::pg_catalog.int8, inertia::pg_catalog.float8, radius::pg_catalog.float8 FROM %s ORDER BY " KM_CLUSTER, c->qualified);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(sql, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the sizes of %s", c->qualified);
	km_centroids_require(c, (int64) SPI_processed);
	for (int i = 0; i < c->k; i++)
	{
		bool		null[3];
		Datum		value[3];

		for (int j = 0; j < 3; j++)
			value[j] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, j + 1, &null[j]);
		m->size[i] = null[0] ? 0 : DatumGetInt64(value[0]);
		m->cluster_inertia[i] = null[1] ? 0.0 : DatumGetFloat8(value[1]);
		m->radius[i] = null[2] ? 0.0 : DatumGetFloat8(value[2]);
		check_measures(c, i, m->size[i], m->cluster_inertia[i], m->radius[i]);
		m->rows_used += m->size[i];
		m->inertia += m->cluster_inertia[i];
	}
	SPI_finish();
}

/* No time is taken: the same rows make the same value, which a session keeps prepared (fn_prepared.c). */
static KmeansModel *
read_model(const Call *call)
{
	KmCentroids c = {.as_model = true};
	KmeansModel *value;
	char	  **columns;
	int			ncolumns;
	GkModel		model;
	GkError		err;

	km_centroids_read(call->table, call->distance, &c);
	columns = point_columns(call->columns, &c, &ncolumns);
	km_check(c.host, gk_model_of_given(km_host_engine(c.host), c.value, c.k, c.d, call->distance, &model, &err), &err);
	if (has_measures(call->table))
		read_measures(&c, &model);
	value = kmeans_model_build(&model, columns, ncolumns);
	km_host_end(c.host);
	return value;
}

/* kmeans_from_table(centroid_table regclass, columns text[], distance text) returns kmeans_model */
Datum
kmeans_from_table(PG_FUNCTION_ARGS)
{
	GkDistance	distance = km_parse_distance(fcinfo, ARG_DISTANCE);
	CallSite   *site = call_site(fcinfo->flinfo);
	Moment		now = this_moment();
	TableState	state;
	Call		call;
	Kept	   *kept;

	km_require_arg(fcinfo, ARG_TABLE, "centroid_table");
	call = (Call) {PG_GETARG_OID(ARG_TABLE),.distance = distance};
	if (!PG_ARGISNULL(ARG_COLUMNS))
		call.columns = PointerGetDatum(PG_GETARG_ARRAYTYPE_P(ARG_COLUMNS));
	if (site->kept != NULL && same_call(&site->kept->call, &call) && same_moment(&site->moment, &now))
		PG_RETURN_POINTER(site->kept->value);
	if (!look_at_table(call.table, &state))
		PG_RETURN_POINTER(read_model(&call));
	kept = find(&call, &state);
	if (kept == NULL)
		kept = keep(&call, &state, read_model(&call));
	use(site, kept, &now);
	PG_RETURN_POINTER(kept->value);
}
