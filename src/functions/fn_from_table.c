/*
 * fn_from_table.c - kmeans_from_table(): a model of the rows of a table of centroids.
 *
 * A call in a select list or a WHERE comes again for every row, with the same table.  So the call
 * site keeps the value (fn_extra), as long as it is sure that the table's rows are the same: in one
 * transaction equal snapshots see the same rows of a plain table.  PL/pgSQL keeps call sites from
 * statement to statement, so being called again is not enough to know that.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
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

/* ---- what a call site keeps ---- */

typedef struct Kept
{
	/* for which call */
	Oid			table;
	Datum		columns;		/* a pointer, 0: NULL */
	GkDistance	distance;
	/* and when */
	Oid			user;
	LocalTransactionId transaction;
	SubTransactionId subtransaction;
	Size		size;
	uint32	   *snapshot;		/* of that size: all that visibility depends on */

	KmeansModel *value;			/* NULL: nothing is kept */
	MemoryContext cxt;			/* all of that */
} Kept;

/* Are the rows of a relation that was read, as the user sees them, a matter of the snapshot alone? */
static bool
is_plain(Oid table)
{
	Relation	rel = table_open(table, NoLock);
	char		relkind = rel->rd_rel->relkind;

	/* descendants may be foreign tables; what is new here may be truncated without a trace */
	bool		plain = (relkind == RELKIND_RELATION || relkind == RELKIND_MATVIEW) && !rel->rd_rel->relhassubclass &&
	!km_relation_is_new(rel) && check_enable_rls(table, InvalidOid, true) == RLS_NONE;

	table_close(rel, NoLock);
	return plain;
}

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

static void
describe_call(FunctionCallInfo fcinfo, GkDistance distance, Kept *call)
{
	*call = (Kept) {.table = PG_GETARG_OID(ARG_TABLE),.distance = distance,.user = GetUserId(),
	.transaction = km_transaction(),.subtransaction = GetCurrentSubTransactionId()};
	if (!PG_ARGISNULL(ARG_COLUMNS))
		call->columns = PointerGetDatum(PG_GETARG_ARRAYTYPE_P(ARG_COLUMNS));
	call->snapshot = write_snapshot(GetActiveSnapshot(), &call->size);
}

static bool
same_call(const Kept *a, const Kept *b)
{
	return a->table == b->table && a->distance == b->distance && a->user == b->user &&
		a->transaction == b->transaction && a->subtransaction == b->subtransaction &&
		a->size == b->size && memcmp(a->snapshot, b->snapshot, a->size) == 0 &&
		(a->columns == 0) == (b->columns == 0) &&
		(a->columns == 0 || datumIsEqual(a->columns, b->columns, false, -1));
}

static Kept *
kept_of(FmgrInfo *flinfo)
{
	if (flinfo->fn_extra == NULL)
	{
		Kept	   *kept = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Kept));

		kept->cxt = AllocSetContextCreate(flinfo->fn_mcxt, "kmeans_from_table", ALLOCSET_SMALL_SIZES);
		flinfo->fn_extra = kept;
	}
	return flinfo->fn_extra;
}

static void
keep(Kept *kept, const Kept *call, const KmeansModel *value)
{
	MemoryContext cxt = kept->cxt;
	MemoryContext caller;

	kept->value = NULL;
	MemoryContextReset(cxt);
	caller = MemoryContextSwitchTo(cxt);
	*kept = *call;
	kept->cxt = cxt;
	kept->snapshot = memcpy(palloc(call->size), call->snapshot, call->size);
	if (call->columns != 0)
		kept->columns = datumCopy(call->columns, false, -1);
	kept->value = memcpy(palloc(VARSIZE(value)), value, VARSIZE(value));
	MemoryContextSwitchTo(caller);
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

/* Read them into the model; where one is NULL, it stays 0. */
static void
read_measures(const KmCentroids *c, GkModel *m)
{
	char	   *sql = psprintf("SELECT size, inertia, radius FROM %s ORDER BY " KM_CLUSTER, c->qualified);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(sql, true, 0) != SPI_OK_SELECT || SPI_processed != (uint64) c->k)
		elog(ERROR, "could not read the sizes of %s", c->qualified);
	for (int i = 0; i < c->k; i++)
	{
		bool		null[3];
		Datum		value[3];

		for (int j = 0; j < 3; j++)
			value[j] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, j + 1, &null[j]);
		m->size[i] = null[0] ? 0 : DatumGetInt64(value[0]);
		m->cluster_inertia[i] = null[1] ? 0.0 : DatumGetFloat8(value[1]);
		m->radius[i] = null[2] ? 0.0 : DatumGetFloat8(value[2]);
		m->rows_used += m->size[i];
		m->inertia += m->cluster_inertia[i];
	}
	SPI_finish();
}

/* No time is taken: the same rows make the same value, which a session keeps prepared (fn_prepared.c). */
static KmeansModel *
read_model(const Kept *call)
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
	Kept	   *kept = kept_of(fcinfo->flinfo);
	KmeansModel *value;
	Kept		call;

	km_require_arg(fcinfo, ARG_TABLE, "centroid_table");
	describe_call(fcinfo, distance, &call);
	if (kept->value != NULL && same_call(kept, &call))
		PG_RETURN_POINTER(kept->value);
	value = read_model(&call);
	if (is_plain(call.table))
		keep(kept, &call, value);
	PG_RETURN_POINTER(value);
}
