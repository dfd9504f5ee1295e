/*
 * gkmeans.h - what the files of the PostgreSQL glue share.
 *
 * The glue (the C files right in src) is the only part that includes
 * postgres.h.  It turns SQL arguments into the engine's options, rows into
 * points, and the engine's results and errors back into SQL.  A call runs like
 * this:
 *
 *   fn_options.c   <options>            -> GkFitOptions
 *   rel_source.c    relation, columns    -> GkSource: what to read, as a query
 *   rel_read.c, rel_executor.c, rel_heap.c    the query's rows -> GkStore
 *   rel_rules.c     which rows are points, and what errors say about others
 *   fn_fit.c       the engine           -> GkModel -> SQL rows or kmeans_model
 *   rescan_relation.c   the same, reading again in every pass
 *   rescan_citus.c, rescan_wire.c    passes over rows on other servers
 *   fn_labels.c                            labels -> SQL rows
 *   fn_label_column.c, fn_label_changes.c   labels -> the table
 *   fn_label_table.c, fn_label_changes.c    labels -> a new table
 *
 * The engine sees PostgreSQL only through a GkHost (pg_host.c) and reports
 * errors only by GkStatus (pg_error.c).
 */
#ifndef GKMEANS_H
#define GKMEANS_H

#if PG_VERSION_NUM < 130000
#error "gkmeans needs PostgreSQL 13 or newer"
#endif

#include "fmgr.h"
#include "tcop/dest.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/tuplestore.h"

#include "core/gk_core.h"
#include "pg/pg_compat.h"
#include "relation/rel_value.h"

/* The version in gkmeans.control, which a test compares with it. */
#define GKMEANS_VERSION		"1.0.0"

/* Features that are columns: as many as a PostgreSQL table has. */
#define GKMEANS_MAX_COLUMNS	1600

/* ---- settings (gkmeans_guc.c) ---- */

extern int	gkmeans_chunk_size;		/* kB */
extern int	gkmeans_device;			/* GkDeviceKind */
extern int	gkmeans_feature_sum;	/* GkFeatureSum */
extern bool gkmeans_enable_window_scan;
extern char *gkmeans_gpu_devices;
extern char *gkmeans_gpu_fault;
extern double gkmeans_gpu_memory_limit;
extern int	gkmeans_mass_sum;		/* GkMassSum */
extern int	gkmeans_max_gpu_sessions;	/* in pg_device.c */
extern int	gkmeans_keep_memory;	/* kB, -1: gkmeans_memory_limit */
extern int	gkmeans_memory_limit;	/* kB, -1: maintenance_work_mem */
extern int	gkmeans_reader;			/* GkReaderKind */
extern int	gkmeans_skip_points;	/* GkSkip */
extern int	gkmeans_simd;			/* index of gkmeans_simd_words */
extern int	gkmeans_strategy;		/* GkStrategy, or GKMEANS_SCAN */
extern int	gkmeans_threads;
extern int	gkmeans_workers;		/* -1: max_parallel_maintenance_workers */

/* A strategy of the glue's: rows are not kept, every pass reads them again. */
#define GKMEANS_SCAN		(GK_CROSS_PROCESSING + 1)

/* Which road rows take; see rel_heap.c. */
typedef enum GkReaderKind
{
	GK_READER_AUTO, GK_READER_EXECUTOR, GK_READER_HEAP
} GkReaderKind;

/* The words of gkmeans.device, also those of the option. */
extern const struct config_enum_entry gkmeans_device_words[];

extern void gk_guc_init(void);
extern size_t gk_keep_memory_bytes(void);
extern size_t gk_memory_limit_bytes(void);
/* Make the CPU kernels follow gkmeans.simd; ERROR when this CPU can not. */
extern void gk_apply_simd(void);

/* ---- the engine's host (pg_host.c) ---- */

typedef struct GkPgHost GkPgHost;

/* A host with its own memory context, a child of the current one. */
extern GkPgHost *gk_host_begin(void);
/* Release everything the engine got from this host. */
extern void gk_host_end(GkPgHost *host);
extern const GkHost *gk_host_engine(GkPgHost *host);
/* Whether a job whose device fails goes on, with a WARNING, on the CPU. */
extern void gk_host_fall_back(GkPgHost *host, bool allowed);
/* What lives as long as the host. */
extern MemoryContext gk_host_context(GkPgHost *host);
/*
 * Run fn(arg), which may raise an ERROR, below the engine: an ERROR is kept in
 * the host and false returned, so that the engine can unwind first.
 */
extern bool gk_host_guard(GkPgHost *host, void (*fn) (void *arg), void *arg);
/* Raise the kept ERROR, if there is one. */
extern void gk_host_rethrow(GkPgHost *host);

/* ---- errors (pg_error.c) ---- */

/* err is filled unless status is GK_STOPPED. */
extern void gk_throw(GkPgHost *host, GkStatus status, const GkError *err)
			__attribute__((noreturn));

static inline void
gk_check(GkPgHost *host, GkStatus status, const GkError *err)
{
	if (unlikely(status != GK_OK))
		gk_throw(host, status, err);
}

/* ---- options (fn_options.c) ---- */

typedef struct GkFitOptions
{
	GkOptions	engine;
	GkDeviceKind device;
	bool		scan;			/* strategy "scan" */
	char	   *weight_column;	/* or NULL */
	bool		skip_nonfinite;
	/* Number of features of the given centroids or warm_start; 0: none given. */
	int			given_d;
} GkFitOptions;

/* Number of arguments that <options> takes. */
#define GKMEANS_NOPTIONS	12

/* <options> are arguments first, first + 1, ... of the call. */
extern void gk_parse_options(FunctionCallInfo fcinfo, int first, int k, GkFitOptions *out);
extern int	gk_parse_k(FunctionCallInfo fcinfo, int arg);
extern GkDeviceKind gk_parse_device(FunctionCallInfo fcinfo, int arg);
extern bool gk_parse_nonfinite(FunctionCallInfo fcinfo, int arg);
/* A text argument as a C string, NULL for NULL. */
extern char *gk_parse_text(FunctionCallInfo fcinfo, int arg);
/* ERROR when a required argument is NULL. */
extern void gk_require_arg(FunctionCallInfo fcinfo, int arg, const char *name);

/* ---- what to read (rel_source.c) ---- */

/* Consecutive columns of one type, so that the type is looked at once per run. */
typedef struct GkRun
{
	GkValueType type;
	int			first;
	int			end;
} GkRun;

typedef struct GkSource
{
	Oid			relid;
	char		relkind;
	bool		is_partition;
	char	   *relname;		/* unqualified, for messages */
	char	   *qualified;		/* quoted and qualified, for queries */
	int			ncolumns;
	char	  **columns;
	bool		array;			/* columns[0] is one array of features */
	GkRun	   *runs;			/* of the scalar columns; runs[0].type: element type */
	int			nruns;
	bool		weighted;
	char	   *weight_column;
	GkValueType weight_type;
	char	   *targets;		/* what the query selects: features, and the weight */
	bool		identify;		/* ctid and tableoid are read too */
	char	   *label_column;	/* or NULL */
	bool		label_missing;	/* it is still to be added */
	GkValueType label_type;
	char	   *query;
	/* Places of the values in the query's rows; -1: not there. */
	int			at_weight,
				at_ctid,
				at_tableoid,
				at_label;
} GkSource;

/* text[] to C strings; ERROR when empty, not one-dimensional or with NULLs. */
extern char **gk_column_names(ArrayType *array, const char *name, int *count);
/* Lock the relation, look at its columns and build the query. */
extern GkSource *gk_source_open(Oid relid, char **columns, int ncolumns,
								const char *weight_column, const char *label_column,
								bool identify);
/* ERROR when one of these columns does not exist or may not be read. */
extern void gk_source_require(const GkSource *source, char **columns, int ncolumns);
/* How many rows the planner expects; < 0: nobody knows. */
extern double gk_source_rows(const GkSource *source);

/* ---- the query (rel_read.c) ---- */

/*
 * Give the receiver all rows of a query that ExecutorStart() has seen, in the
 * executor's order; or do nothing and return false.
 */
typedef bool (*GkQueryScan) (struct QueryDesc *desc, DestReceiver *dest);

/*
 * All rows of the source's query to the receiver, in the same order each time, by
 * scan where that can.
 */
extern void gk_query_run(const GkSource *source, DestReceiver *dest, GkQueryScan scan);
/* Switch a setting off until the caller's GUC nest level ends. */
extern void gk_switch_off(const char *setting);

/* ---- the rows (rel_executor.c) ---- */

typedef struct GkReadCounts
{
	int64		null_feature;	/* a NULL feature */
	int64		nonfinite;		/* NaN or infinity, when skipped */
	int64		no_direction;	/* zero vectors under the cosine distance, when skipped */
	int64		no_weight;		/* weight NULL or 0 */
} GkReadCounts;

/* Where a row is. */
typedef struct GkRowId
{
	Oid			tableoid;
	ItemPointerData ctid;
} GkRowId;

/* Old labels that are not a cluster number. */
#define GK_LABEL_NULL		PG_UINT32_MAX
#define GK_LABEL_OTHER		(PG_UINT32_MAX - 1)

typedef struct GkReadOptions
{
	GkDistance	distance;
	bool		skip_nonfinite;
	int			expect_d;		/* 0: any */
	const char *expect_of;		/* "warm_start", "centroids", "model" */
	/* Called for each row that is left out, when the source identifies rows. */
	void		(*left_out) (void *arg, const GkRowId *row, uint32 old_label);
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
	 * which takes longer the more they have read: gk_read_end() waits for them.  Until
	 * then this is parallel mode.  NULL: gk_read() waits.
	 */
	struct GkReadEnd *end;
} GkReadOptions;

typedef struct GkReadEnd
{
	struct ParallelContext *workers;	/* NULL: none */
} GkReadEnd;

/* Tables that rows came from; the aux columns of a store hold their index. */
typedef struct GkTables
{
	int			count;
	Oid		   *oids;
} GkTables;

/* NULL when no row is usable.  The store lives in the host. */
extern GkStore *gk_read(GkPgHost *host, const GkSource *source, const GkReadOptions *options,
						GkReadCounts *counts, GkTables *tables);
extern void gk_read_end(GkReadEnd *end);
/* The rows' aux columns, unpacked. */
extern void gk_row_id(const GkTables *tables, const uint32_t *const *aux, int row, GkRowId *out);
#define GK_AUX_BLOCK	0
#define GK_AUX_TABLE	1		/* offset number and index of the table */
#define GK_AUX_LABEL	2		/* old label */

/* ---- a fit (fn_fit.c) ---- */

/* Who wants the labels.  The functions may raise ERRORs; left_out may be NULL. */
typedef struct GkLabelWant
{
	void		(*left_out) (void *arg, const GkRowId *row, uint32 old_label);
	void		(*labels) (void *arg, const GkTables *tables, const GkPrep *prep, int rows,
						   const int32_t *label, const float *d2, const uint32_t *const *aux);
	void	   *arg;
} GkLabelWant;

/* A label sink for the engine that passes on to a GkLabelWant. */
typedef struct GkLabelRelay
{
	GkLabelSink sink;
	GkPgHost   *host;
	const GkLabelWant *want;
	const GkTables *tables;
	const GkPrep *prep;
} GkLabelRelay;

extern void gk_label_relay(GkLabelRelay *relay, GkPgHost *host, const GkLabelWant *want,
						   const GkTables *tables, const GkPrep *prep);

typedef struct GkIterate GkIterate;

typedef struct GkFit
{
	GkPgHost   *host;
	GkSource   *source;
	GkFitOptions options;
	bool		as_model;		/* the result has to fit a kmeans_model */
	GkReadCounts counts;
	bool		sharded;		/* the rows are on other servers */
	char	   *schema;			/* of gkmeans, if sharded */
	GkIterate  *iterate;		/* rows are read again in every pass; NULL: they are kept */
	bool		stage;			/* rows may go to a GPU while they are read */
	struct GkStaged *staged;	/* they have; NULL: no */
	double		load_ms;
	GkModel		model;			/* valid when there were usable rows */
} GkFit;

/* From the arguments (relation, columns, k, ..., <options>). */
extern void gk_fit_open(FunctionCallInfo fcinfo, int first_option, const char *label_column,
						bool identify, GkFit *fit);
/* Begin the host, read and prepare.  NULL, after a NOTICE: no usable rows. */
extern GkStore *gk_fit_load(GkFit *fit, const GkLabelWant *want, GkTables *tables);
/* Read, prepare, fit, and raise the NOTICEs.  False: no usable rows. */
extern bool gk_fit_run(GkFit *fit, const GkLabelWant *want);
extern void gk_fit_end(GkFit *fit);
/* ERROR when a GPU is asked for and there is none. */
extern void gk_check_device(GkPgHost *host, GkDeviceKind kind);
/*
 * The backend that was asked for; ERROR when there is none.  It may wait for
 * other sessions' jobs on the GPU.  Its place there is the host's, to the end.
 */
extern const GkBackend *gk_choose_backend(GkPgHost *host, GkDeviceKind kind, int64 n, int d, int k);

/* ---- rows that go to the GPU while they are read (fn_fit_ingest.c) ---- */

typedef struct GkStaged
{
	MemoryContextCallback callback;
	GkStore    *store;			/* in the host's memory; NULL: it is freed */
	const GkBackend *backend;
} GkStaged;

/* For GkReadOptions.created, with a GkFit: have the store's rows go up, if that is worth it. */
extern void gk_stage_begin(void *arg, GkStore *store);
/*
 * Loading or fitting them has failed with st: an ERROR, or the store is freed and the rows
 * are to be loaded once more, without this.
 */
extern void gk_stage_failed(GkFit *fit, bool loading, GkStatus st, GkError *err);
/* Free the store. */
extern void gk_stage_end(GkFit *fit);

/* ---- models as input (fn_labels.c) ---- */

struct KmeansModel;

/* The columns that the model was made from; ERROR when it does not know them. */
extern char **gk_model_columns(const struct KmeansModel *model);

/* ---- label_column (fn_label_column.c) ---- */

typedef struct GkRelabel GkRelabel;

/* Check rights and the column; before anything is read. */
extern void gk_relabel_check(const GkSource *source, int k);
extern GkRelabel *gk_relabel_begin(const GkSource *source);
extern GkLabelWant gk_relabel_want(GkRelabel *relabel);
/* Add the column if missing, and write the labels that differ; function: kmeans(). */
extern void gk_relabel_write(GkRelabel *relabel, Oid function);

/* ---- sets of rows (pg_result.c) ---- */

typedef struct GkResult
{
	Tuplestorestate *store;
	TupleDesc	desc;
} GkResult;

extern void gk_result_begin(FunctionCallInfo fcinfo, GkResult *result);
/* One row per cluster, the result of kmeans() (fn_fit.c). */
extern void gk_result_clusters(GkResult *result, const GkModel *m);
/* A float8[] of n >= 1 values. */
extern Datum gk_float8_array(const double *v, int n);

/* ---- progress (pg_progress.c) ---- */

extern void gk_progress_init(void);
/* A job begins to read a relation; it ends when the context goes away. */
extern void gk_progress_begin(MemoryContext context, Oid relation);
extern void gk_progress_device(const char *device);
/* May be called as often as there is news.  Never raises an ERROR. */
extern void gk_progress_report(const GkProgress *p);

/* ---- statistics of runs (pg_stat.c) ---- */

extern int	gkmeans_log_min_duration;	/* ms, -1: off */

extern void gk_stat_init(void);
/* A run has ended well: into the log, if it took long enough, and the sums. */
extern void gk_stat_run(const char *relname, const GkModel *m);
/* A GPU failed, and the CPU goes on. */
extern void gk_stat_fallback(void);

/* ---- kmeans() OVER as a plan node (window_plan.c) ---- */

extern void gk_window_plan_init(void);

/* ---- devices (fn_devices.c) ---- */

extern void gk_devices_init(void);

/* ---- sessions on a GPU (pg_device.c) ---- */

extern void gk_gpu_init(void);
/*
 * Take a place on this GPU until the context goes away.  When all are taken,
 * wait for one, or return false.
 */
extern bool gk_gpu_job_begin(MemoryContext context, int gpu, bool wait);

/* ---- shared memory (pg_shmem.c) ---- */

/*
 * In a module's init: have *address point to size bytes of shared memory, set up
 * once by init(), when gkmeans is preloaded.  Else *address is left alone.
 */
extern void gk_shmem_register(const char *name, Size size, void **address, void (*init) (void *area));
extern void gk_shmem_init(void);

#endif							/* GKMEANS_H */
