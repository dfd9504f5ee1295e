/*
 * gkmeans.h - what all files of the PostgreSQL glue share: settings, host, errors.
 *
 * The glue (every folder of src but core/, cpu/ and gpu/) is the only code that includes
 * postgres.h.  It turns SQL arguments into the engine's options, rows into points, and the
 * engine's results and errors back into SQL.  From the ground floor up:
 *
 *   pg/         PostgreSQL around a call: host, errors, arguments, results, devices, monitoring
 *   relation/   the rows of a relation into batches
 *   types/      kmeans_model and kmeans_state
 *   rescan/     rows that every pass reads again, here or on other servers
 *   functions/  what SQL calls
 *   groups/, window/, svg/   many clusterings at once; kmeans() OVER; pictures
 *
 * Each has a header that begins with its words.  Functions and types are km_ and Km here, gk_
 * and Gk in the engine.  The engine sees PostgreSQL only through a GkHost (pg_host.c) and
 * reports errors only by GkStatus (pg_error.c).
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

/* Bytes of a line of the CPU's cache. */
#define KM_LINE				64

/* ---- settings (gkmeans_guc.c), in alphabetical order ---- */

extern int	gkmeans_chunk_size;		/* kB */
extern int	gkmeans_device;			/* GkDeviceKind */
extern bool gkmeans_enable_window_scan;
extern int	gkmeans_feature_sum;	/* GkFeatureSum */
extern char *gkmeans_gpu_devices;
extern char *gkmeans_gpu_fault;
extern double gkmeans_gpu_memory_limit;
extern int	gkmeans_keep_memory;	/* kB, -1: gkmeans_memory_limit */
extern int	gkmeans_log_min_duration;	/* ms, -1: off */
extern int	gkmeans_mass_sum;		/* GkMassSum */
extern int	gkmeans_max_gpu_sessions;
extern int	gkmeans_memory_limit;	/* kB, -1: maintenance_work_mem */
extern int	gkmeans_reader;			/* KmReaderKind */
extern int	gkmeans_simd;			/* index of simd_words, in gkmeans_guc.c */
extern int	gkmeans_skip_points;	/* GkSkip */
extern int	gkmeans_strategy;		/* GkStrategy, or GKMEANS_SCAN */
extern int	gkmeans_threads;
extern int	gkmeans_workers;		/* -1: max_parallel_maintenance_workers */

/* The strategy "scan", of the glue: rows are not kept, every pass reads them again. */
#define GKMEANS_SCAN		(GK_CROSS_PROCESSING + 1)

/* How rows are read; see rel_heap.c. */
typedef enum KmReaderKind
{
	KM_READER_AUTO, KM_READER_EXECUTOR, KM_READER_HEAP
} KmReaderKind;

/* The words of gkmeans.device, also those of the option. */
extern const struct config_enum_entry gkmeans_device_words[];

extern void km_guc_init(void);
extern size_t km_keep_memory_bytes(void);
extern size_t km_memory_limit_bytes(void);
/* Make the CPU kernels follow gkmeans.simd; ERROR when this CPU cannot. */
extern void km_apply_simd(void);

/* ---- the engine's host (pg_host.c) ---- */

typedef struct KmPgHost KmPgHost;

/* A host with its own memory context, a child of the current one. */
extern KmPgHost *km_host_begin(void);
/* Release everything the engine got from this host. */
extern void km_host_end(KmPgHost *host);
extern const GkHost *km_host_engine(KmPgHost *host);
/* Whether a job whose device fails goes on, with a WARNING, on the CPU. */
extern void km_host_fall_back(KmPgHost *host, bool allowed);
/* Memory that lives as long as the host. */
extern MemoryContext km_host_context(KmPgHost *host);
/*
 * Run fn(arg), which may raise an ERROR, below the engine: an ERROR is kept in
 * the host and false returned, so that the engine can unwind first.
 */
extern bool km_host_guard(KmPgHost *host, void (*fn) (void *arg), void *arg);
/* Raise the kept ERROR, if there is one. */
extern void km_host_rethrow(KmPgHost *host);

/* ---- errors (pg_error.c) ---- */

/* err is filled unless status is GK_STOPPED. */
extern void km_throw(KmPgHost *host, GkStatus status, const GkError *err)
			__attribute__((noreturn));

static inline void
km_check(KmPgHost *host, GkStatus status, const GkError *err)
{
	if (unlikely(status != GK_OK))
		km_throw(host, status, err);
}

/* ---- what to read (rel_source.c) ---- */

/* Consecutive columns of one type, so that the type is looked at once per run. */
typedef struct KmColumnRun
{
	KmValueType type;
	int			first;
	int			end;
} KmColumnRun;

typedef struct KmSource
{
	Oid			relid;
	char		relkind;
	bool		is_partition;
	char	   *relname;		/* unqualified, for messages */
	char	   *qualified;		/* quoted and qualified, for queries */
	int			ncolumns;
	char	  **columns;
	bool		array;			/* columns[0] is one array of features */
	KmColumnRun	   *runs;			/* of the scalar columns; runs[0].type: element type */
	int			nruns;
	bool		weighted;
	char	   *weight_column;
	KmValueType weight_type;
	char	   *targets;		/* what the query selects: features, and the weight */
	bool		identify;		/* ctid and tableoid are read too */
	char	   *label_column;	/* or NULL */
	bool		label_missing;	/* it is still to be added */
	KmValueType label_type;
	char	   *query;
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
/* ERROR when one of these columns does not exist or may not be read. */
extern void km_source_require(const KmSource *source, char **columns, int ncolumns);
/* How many rows the planner expects; < 0: nobody knows. */
extern double km_source_rows(const KmSource *source);

/* ---- the query (rel_read.c) ---- */

/*
 * Give the receiver all rows of a query that ExecutorStart() has seen, in the
 * executor's order; or do nothing and return false.
 */
typedef bool (*KmQueryScan) (struct QueryDesc *desc, DestReceiver *dest);

/*
 * All rows of the source's query to the receiver, in the same order each time, by
 * scan where that can.
 */
extern void km_query_run(const KmSource *source, DestReceiver *dest, KmQueryScan scan);
/* Switch a setting off until the caller's GUC nest level ends. */
extern void km_switch_off(const char *setting);

/* ---- the rows (rel_executor.c) ---- */

typedef struct KmReadCounts
{
	int64		null_feature;	/* a NULL feature */
	int64		nonfinite;		/* NaN or infinity, when skipped */
	int64		no_direction;	/* zero vectors under the cosine distance, when skipped */
	int64		no_weight;		/* weight NULL or 0 */
} KmReadCounts;

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
extern GkStore *km_read(KmPgHost *host, const KmSource *source, const KmReadOptions *options,
						KmReadCounts *counts, KmTables *tables);
extern void km_read_end(KmReadEnd *end);
/* The rows' aux columns, unpacked. */
extern void km_row_id(const KmTables *tables, const uint32_t *const *aux, int row, KmRowId *out);
#define KM_AUX_BLOCK	0
#define KM_AUX_TABLE	1		/* offset number and index of the table */
#define KM_AUX_LABEL	2		/* old label */

#endif							/* GKMEANS_H */
