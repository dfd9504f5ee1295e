/*
 * relation.h - the rows of a relation: what to read, and into what.
 *
 * A KmSource says what to read, as an ordinary query.  km_read() runs it and puts its rows into
 * a store.  There are two paths: the executor path reads row by row, any query; the heap path
 * reads the pages of heap tables itself, alone, with threads, or with parallel workers.  Both
 * give the same rows in the same order, and ask rel_rules.h which of them are points.
 *
 *   rel_source.c      relation, columns      -> KmSource
 *   rel_query.c       a query of the caller's -> KmSource
 *   rel_types.c       types                  -> features
 *   rel_citus.c       is it a table of Citus?
 *   rel_foreign.c     is it one of postgres_fdw, whose servers have gkmeans?
 *   rel_read.c        the query's rows       -> GkStore
 *   rel_executor.c    a row                  -> the store's batch
 *   rel_heap.c        is it for the heap path? tables, one after the other
 *   rel_heap_rows.c   ... by this process alone
 *   rel_threads.c     ... by threads of this process
 *   rel_workers.c     ... by parallel workers
 *   rel_page.c        pages                  -> their visible rows
 *   rel_deform.c      the rows of a page     -> batch
 *   rel_array.c       where the numbers of a row's array or vector are
 *   rel_transpose.c   values side by side in rows -> columns of a batch
 *   rel_fill.c        the columns' means, for NULL features
 *   rel_rules.c       which rows are points, and what errors say about others
 *   rel_value.c       numbers as PostgreSQL has them -> doubles
 *   rel_vector.c      vectors as pgvector has them -> floats
 *   rel_toast.c       values that are stored out of line
 *   rel_prefetch.h    pages that come next on their way into the cache
 *
 * Words: batch: rows on their way to the store, column by column (gk_batch.h).
 *        deferred row: one that the heap path leaves to the executor path: it is an error, or
 *        PostgreSQL's functions are needed for it.
 *        plain row: has its values at the same places as others, so that they are transposed.
 *        left out: a row that is no point, by a rule that is no error.
 *        leader: the process that runs the query, as opposed to its threads and workers.
 *        extent: consecutive blocks that one process reads.  slot: see rel_conveyor.h.
 */
#ifndef RELATION_H
#define RELATION_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "storage/itemptr.h"
#include "tcop/dest.h"
#include "utils/array.h"

#include "core/base/gk_sizes.h"
#include "pg/pg.h"
#include "relation/rel_value.h"
#include "relation/rel_vector.h"

struct KmPgHost;
struct PlannedStmt;
struct PlanState;
struct Query;
struct QueryDesc;
struct RawStmt;

/* ---- what to read (rel_source.c) ---- */

/* Consecutive columns of one type, so that the type is looked at once per run. */
typedef struct KmColumnRun
{
	KmValueType type;
	int			first;
	int			end;
} KmColumnRun;

typedef struct KmQueryPlan
{
	struct PlannedStmt *plan;
	struct List *types;			/* of its values, as the query was analysed */
} KmQueryPlan;

typedef struct KmSource
{
	Oid			relid;
	char		relkind;
	bool		is_partition;
	bool		distributed;	/* a table of Citus, whose rows are in shards */
	char	   *relname;		/* unqualified, for messages */
	char	   *qualified;		/* quoted and qualified, for queries */
	int			ncolumns;
	char	  **columns;
	bool		array;			/* columns[0] is one array of features, or vector */
	KmLayout	layout;			/* of it */
	const char *geometry;		/* columns[0] if it is one of PostGIS, else NULL */
	KmColumnRun *runs;			/* of the scalar columns; runs[0].type: element type */
	int			nruns;
	bool		weighted;
	char	   *weight_column;
	KmValueType weight_type;
	char	  **feature;		/* [ncolumns] as the query selects them */
	char	   *weight;			/* or NULL */
	char	   *targets;		/* what the query selects: features, and the weight */
	int			ntargets;
	bool		identify;		/* ctid and tableoid are read too */
	char	   *label_column;	/* or NULL; of a table of Citus, whose rows are not identified, too */
	bool		label_missing;	/* it is still to be added */
	KmValueType label_type;
	char	   *query;
	struct RawStmt *raw;		/* of a query that the caller has given; NULL: query is still to be parsed */
	KmQueryPlan *plan;			/* its plan, from its first run on: all passes have the same rows in the same
								 * order */
	struct List *types;			/* when the source was made: of what its query selects, or of what a given
								 * one does */
	struct List *required;		/* names of other columns that are read: km_source_require() */
	struct List *numbers;		/* of all these and the label, when the source was made */
	struct List *files;			/* and those of the relation's tables: table, file, table, file, ... */
	/* Places of the values in the query's rows; -1: not there. */
	int			at_weight,
				at_ctid,
				at_tableoid,
				at_label;
} KmSource;

/* text[] to C strings; ERROR when empty, not one-dimensional or with NULLs. */
extern char **km_column_names(ArrayType *array, const char *name, int *count);

/* Lock the relation, look at its columns and build the query. */
extern KmSource *km_source_open(Oid relid, char **columns, int ncolumns,
								const char *weight_column, const char *label_column,
								bool identify);

/*
 * Has each row of the relation, and of its descendants, a ctid that names it?  With the access method heap it has; with
 * others, as with Citus' columnar, it may have none.
 */
extern bool km_rows_have_ctid(Oid relid);

/* The same for a query that the caller gives: what it selects is clustered, without the weight. */
extern KmSource *km_source_of_query(const char *text, const char *weight_column);

/* Errors are those of a given query: an ErrorContextCallback whose argument is its text. */
extern void km_query_error(void *text);

/* One value that a source selects. */
typedef struct KmSourceColumn
{
	const char *name;
	const char *quoted;			/* as the query names it */
	Oid			type;			/* base type */
} KmSourceColumn;

/* For those who make sources: an empty one, and what its query selects, by column and weight (or NULL). */
extern KmSource *km_source_make(int ncolumns);
extern void km_source_targets(KmSource *source, const KmSourceColumn *columns, const KmSourceColumn *weight,
							  StringInfo query);

/* The relation and its columns' base types, whatever they are: the query is the caller's. */
extern KmSource *km_source_of_values(Oid relid, char **columns, int ncolumns, Oid *types);

/* The types of what a query selects, after `first` other values. */
extern struct List *km_query_types(const struct Query *query, int first);

/* What the source's query selects; its types are those of now. */
extern void km_source_select(KmSource *source, const char *targets);

/* ERROR: the relation is another one, or its columns are, than when the source was made. */
extern void km_source_changed(const KmSource *source) pg_attribute_noreturn();

/* That ERROR, if the columns' names stand for others now, or a table was rewritten: the snapshot does not see its rows. */
extern void km_source_require_same(const KmSource *source);

/* ERROR when one of these columns, which the query selects, too, does not exist or may not be read. */
extern void km_source_require(KmSource *source, char **columns, int ncolumns);

/* How many rows the planner expects; < 0: it does not know. */
extern double km_source_rows(const KmSource *source);

/* ---- the query (rel_read.c) ---- */

/*
 * Give the receiver all rows of a query that ExecutorStart() has seen, in the
 * executor's order; or do nothing and return false.
 */
typedef bool (*KmQueryScan) (struct QueryDesc *desc, DestReceiver *dest);

/* Give the receiver all rows of the source's query, in the same order each time, by `scan` where it can. */
extern void km_query_run(const KmSource *source, DestReceiver *dest, KmQueryScan scan);

/*
 * The SeqScanStates that a plan consists of, in order, when it is nothing but sequential
 * scans of heap tables without conditions and expressions, whose columns have the types of the
 * query's; 0: it is something else (rel_heap.c).
 */
extern int	km_heap_scans(struct QueryDesc *desc, struct PlanState ***scans);

/* Switch a setting off until the caller's GUC nest level ends. */
extern void km_switch_off(const char *setting);

/*
 * May what is called write from here on, like what a query of the caller's own calls?  Gives what was so before.  An
 * ERROR restores it, as the end of any (sub)transaction does.
 */
extern bool km_read_only(bool on);

/*
 * Plan a SELECT from the source's relation, which selects what the source does after `first` other values.  Names are
 * looked up anew, and user code may have run since the source was made: ERROR when they stand for other things now.
 */
extern KmQueryPlan km_query_plan(const KmSource *source, struct RawStmt *raw, const char *text, int first, int options);

/* After ExecutorStart(): ERROR when a row that the executor gives has other types than these, or km_source_require_same(). */
extern void km_query_check_rows(const KmSource *source, struct QueryDesc *desc, const struct List *types);

/* ---- the rows (rel_read.c) ---- */

typedef struct KmReadCounts
{
	int64		null_feature;	/* a NULL feature */
	int64		nonfinite;		/* NaN or infinity, when skipped */
	int64		no_direction;	/* zero vectors under the cosine distance, when skipped */
	int64		no_weight;		/* weight NULL or 0 */
} KmReadCounts;

/* What NULL features become. */
typedef struct KmFill
{
	int			d;
	const double *value;		/* [d]; NULL: nothing, a row with one is left out */
} KmFill;

/* Where a row is. */
typedef struct KmRowId
{
	Oid			tableoid;
	ItemPointerData ctid;
} KmRowId;

/* Old labels that are not a cluster number. */
#define KM_LABEL_NULL		PG_UINT32_MAX
#define KM_LABEL_OTHER		(PG_UINT32_MAX - 1)

typedef struct KmReadOptions
{
	GkDistance	distance;
	bool		skip_nonfinite;
	KmFill		fill;
	int			expect_d;		/* 0: any */
	const char *expect_of;		/* "warm_start", "centroids", "model" */
	/* Called for each row that is left out, when the source identifies rows. */
	void		(*left_out) (void *arg, const KmRowId *row, uint32 old_label);
	void	   *arg;
	/* See gk_store_pass_on(); NULL: the rows are kept. */
	GkTake		take;
	void	   *take_arg;
	bool		silent;			/* no progress is reported */
	/* Called with the store before there are rows in it; may be NULL. */
	void		(*created) (void *arg, GkStore *store);
	void	   *created_arg;
	/*
	 * Where to keep parallel workers that have read everything but are still ending,
	 * which takes longer the more they have read: km_read_end() waits for them.  Until
	 * then this is parallel mode.  NULL: km_read() waits.
	 */
	struct KmReadEnd *end;
} KmReadOptions;

typedef struct KmReadEnd
{
	struct ParallelContext *workers;	/* NULL: none */
} KmReadEnd;

/* Tables that rows came from; the aux columns of a store hold their index. */
typedef struct KmTables
{
	int			count;
	Oid		   *oids;
} KmTables;

/* NULL when no row is usable.  The store lives in the host. */
extern GkStore *km_read(struct KmPgHost *host, const KmSource *source, const KmReadOptions *options,
						KmReadCounts *counts, KmTables *tables);
extern void km_read_end(KmReadEnd *end);

/*
 * Read the rows for the exact mean of each feature over its values that are not NULL, in the
 * caller's memory; ERROR for a feature that has none.  No value: there are no rows.
 */
extern KmFill km_read_means(struct KmPgHost *host, const KmSource *source, bool skip_nonfinite);

/* ERROR: feature j is NULL in all rows that were read. */
extern void km_throw_no_mean(const KmSource *source, int j, int64 rows);

/* The rows' aux columns, unpacked. */
extern void km_row_id(const KmTables *tables, const uint32_t *const *aux, int row, KmRowId *out);
#define KM_AUX_BLOCK	0
#define KM_AUX_TABLE	1		/* offset number and index of the table */
#define KM_AUX_LABEL	2		/* old label */

/* ---- tables of Citus (rel_citus.c) ---- */

/* Is it a table of Citus of any kind? */
extern bool km_citus_known(Oid relid);

/* Are the rows in shards, rather than here or copied to every server? */
extern bool km_citus_distributed(Oid relid);

/* Has a distributed table the rows of each group in one shard? */
extern bool km_citus_groups_stay(Oid relid, char **group_by, int n);

/*
 * An ORDER BY for rows that a query brings here: by shard, and within a shard by place.
 * Otherwise the order is that of their arrival.
 */
extern const char *km_citus_order(void);

/* The number of a shard, by an expression for its name. */
#define KM_CITUS_NUMBER_OF(name)	"pg_catalog.substring(" name ", '_([0-9]+)\"?$')::pg_catalog.int8"

typedef struct KmPlace
{
	char	   *host;			/* or the name of a foreign server */
	int			port;
	Oid			server;			/* the foreign server; InvalidOid: a node of Citus */
} KmPlace;

typedef struct KmShard
{
	int64		id;
	char	   *name;			/* as SQL */
	int			places;
	KmPlace    *place;			/* [places] the servers that have a copy of it */
} KmShard;

/* A table's shards by ascending id; returns how many there are. */
extern int	km_citus_shards(Oid relid, MemoryContext context, KmShard **shard);

/* ---- tables of postgres_fdw (rel_foreign.c) ---- */

/* Is the source made of foreign tables whose servers can answer? */
extern bool km_foreign_sharded(const KmSource *source);

/* Its tables as shards, in the order of the partitions' bounds. */
extern int	km_foreign_shards(const KmSource *source, MemoryContext context, KmShard **shard);

/* The name of a table, among a relation and its children, that this transaction has changed or locked; NULL: none. */
extern const char *km_changed_here(Oid relid);

#endif							/* RELATION_H */
