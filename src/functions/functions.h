/*
 * functions.h - what SQL calls: fits, labels, predictions, quality, steps.
 *
 * A function checks its arguments, has the relation read (relation/) into the engine's store,
 * calls the engine and returns its result:
 *
 *   fn_options.c        <options>  -> KmFitOptions
 *   fn_centroid_table.c a table of centroids -> the centroids that a fit begins with
 *   fn_from_table.c     kmeans_from_table(): a table of centroids -> a model
 *   fn_point.c          arguments  -> a point
 *   fn_fit.c            kmeans(), kmeans_fit(): KmFit, the whole way of a fit
 *   fn_fit_device.c     its device, opened while rows are read
 *   fn_labels.c         kmeans_labels(): labels as rows; reading with a model
 *   fn_label_column.c   kmeans(label_column): labels into the table
 *   fn_label_table.c    kmeans_label_table(): labels into a new table
 *   fn_label_changes.c  a list of rows and their labels, for both
 *   fn_label_citus.c    labels into a table whose rows are on several servers
 *   fn_distances.c      kmeans_anomalies(), kmeans_medoids(): rows far from their centroid, and near
 *   fn_spectral.c       kmeans_spectral(), kmeans_spectral_fit(): a fit of representatives, clustered
 *   fn_spectral_scan.c  kmeans_spectral_scan(): gaps and silhouettes of many k in a model's spectral space
 *   fn_balanced.c       kmeans_balanced(), kmeans_balanced_fit(): clusters of bounded sizes
 *   fn_mixed*.c         kmeans_mixed() and its like: numbers and categories (mixed.h)
 *   fn_prepared.c       models made ready for points, kept by the session
 *   fn_predict.c        kmeans_predict(), _distance(), _normalized_distance(), _transform(), _memberships(), _nearest():
 *                       one point, a model
 *   fn_quality.c        kmeans_evaluate(), kmeans_scan(): how good clusters are, which k
 *   fn_feature_sum.c, fn_step.c   aggregates, with the states of types/state.h
 *
 * Words: a fit is one clustering of a relation; a model is its result; an option is one of the
 * <options> that all fits take; a label is the number of a row's cluster.
 */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include "fmgr.h"
#include "lib/ilist.h"

#include "core/quality/gk_quality.h"
#include "gkmeans.h"
#include "pg/pg.h"
#include "relation/rel_rules.h"
#include "types/model.h"

/* ---- options (fn_options.c) ---- */

typedef struct KmFitOptions
{
	GkOptions	engine;
	GkDeviceKind device;
	bool		scan;			/* strategy "scan" */
	char	   *weight_column;	/* or NULL */
	bool		skip_nonfinite;
	bool		fill_nulls;		/* with the columns' means */
	/* Number of features of the given centroids or warm_start; 0: none given. */
	int			given_d;
	const char *given_by;		/* the option that has given them */
} KmFitOptions;

/* Number of arguments that <options> takes. */
#define GKMEANS_NOPTIONS	13

/* <options> are arguments first, first + 1, ... of the call. */
extern void km_parse_options(FunctionCallInfo fcinfo, int first, int k, KmFitOptions *out);

/* ERROR if max_iter is 0, which only a fit that begins with given centroids may have. */
extern void km_require_iterations(const KmFitOptions *options);

/* ERROR if NULLs are to be filled in, with what cannot: "a distributed table". */
extern void km_refuse_fill(const KmFitOptions *options, const char *where);

/* One of those, and of other functions: a distance by its word. */
extern GkDistance km_parse_distance(FunctionCallInfo fcinfo, int arg);

/* The arguments init_sample and fit_sample, the first of which has this number, of a call with such <options>. */
extern void km_parse_samples(FunctionCallInfo fcinfo, int first, KmFitOptions *out);

static inline KmRowRules
km_fit_rules(const KmFitOptions *options)
{
	return (KmRowRules) {.cosine = options->engine.distance == GK_COSINE,.skip_nonfinite = options->skip_nonfinite};
}

/* ---- a point from the arguments of a call (fn_point.c) ---- */

/* How values of a type are cast to real[]. */
typedef enum KmPointCast
{
	KM_CAST_NONE,				/* not at all: they are arrays of numbers */
	KM_CAST_FUNCTION,
	KM_CAST_TEXT				/* by the type's output function and array_in() */
} KmPointCast;

/*
 * For functions with a last argument VARIADIC "any": features given one by one, or the whole
 * point as one array of numbers, as one untyped literal ('{1,2}'), or as one value of a type
 * that has a cast to real[] (pgvector's vector and halfvec).  A function with an array type in
 * its signature may use it too.
 */
typedef struct KmeansPoint
{
	int			d;				/* features of the point read last */
	double	   *values;			/* [d]; 0 for a NULL feature without a fill */
	bool	   *missing;		/* [d] that are NULL, if partial */
	int			capacity;
	int			first;			/* number of the first argument */
	int			nargs;			/* how many there are */
	KmFill		fill;			/* of the model; set by the caller */
	bool		partial;		/* a point may lack features, likewise */
	bool		whole;			/* the one argument is the whole point */
	bool		floats;			/* all arguments are real */
	Oid		   *types;			/* base types of the arguments; of an array: of its elements */
	KmLayout	layout;			/* of the one argument, if it is a vector */
	KmPointCast cast_kind;		/* of the one argument, to real[] */
	FmgrInfo	cast;
	KmPointOrigin origin;		/* for errors */
	MemoryContext cxt;
} KmeansPoint;

/* Look at the types of nargs arguments, once per FmgrInfo; *p lives in cxt. */
extern void kmeans_point_init(KmeansPoint *p, FunctionCallInfo fcinfo, int first, int nargs, KmPointUse use,
							  MemoryContext cxt);

/* The same, kept in fn_extra. */
extern KmeansPoint *kmeans_point_of_call(FunctionCallInfo fcinfo, int first, int nargs, KmPointUse use);

/*
 * Read the point of this call into p->d and p->values.  False when a feature is
 * NULL, p->fill has no value for it, and the point may not lack it.  NaN and infinities pass; km_judge_point() finds them.
 */
extern bool kmeans_point_read(KmeansPoint *p, FunctionCallInfo fcinfo);

/* The same for a point of one argument, given its value. */
extern bool kmeans_point_read_one(KmeansPoint *p, Datum value, bool isnull);

/* Convert features of one number type, given one by one, to x. */
extern void km_point_features(Oid type, int d, const Datum *values, double *x);

/* ---- models made ready for points (fn_prepared.c) ---- */

typedef struct KmPrepared
{
	GkPrep		prep;
	int			k;
	float	   *centroids;		/* [k][d], prepared */
	KmFill		fill;			/* of NULL features */
	double	   *unit;			/* [k] see km_cluster_units() */
	int			clusters;		/* of a spectral model, whose k centroids are representatives; else 0 */
	int32	   *cluster;		/* [k] of each representative */
	char	   *names;			/* of the features, one after the other, or NULL */

	/* What it was made from, by whom. */
	Size		size;
	uint64		fingerprint;
	Oid			user;

	MemoryContext cxt;			/* all of it */
	Size		bytes;
	int			pins;			/* call sites that use it */
	dlist_node	node;
} KmPrepared;

/* The model of a value, which stays until it is released: prepared, unless the session has kept it. */
extern KmPrepared *km_prepared_take(Datum datum);
extern void km_prepared_release(KmPrepared *p);

/* Bytes of models that a session keeps of each kind, while no call site uses them. */
extern Size km_models_to_keep(void);

/* ---- distances in units of a cluster's (fn_distances.c) ---- */

/*
 * Each cluster's unit: the root of the mean squared distance of the rows it was made from; under
 * another distance their mean, because inertia is not of squares there.
 */
extern void km_cluster_units(const GkModel *m, double *unit);

static inline double
km_normalized(double distance, double unit)
{
	return distance == 0.0 ? 0.0 : distance / unit;
}

/* ---- a fit (fn_fit.c) ---- */

/* Functions that get the labels, and the rows without one; they may raise ERRORs.  left_out may be NULL. */
typedef struct KmLabelWant
{
	void		(*left_out) (void *arg, const KmRowId *row, uint32 old_label);
	void		(*labels) (void *arg, const KmTables *tables, const GkPrep *prep, int rows,
						   const int32_t *label, const float *d2, const uint32_t *const *aux);
	void	   *arg;
} KmLabelWant;

/* A label sink for the engine that passes on to a KmLabelWant. */
typedef struct KmLabelRelay
{
	GkLabelSink sink;
	KmPgHost   *host;
	const KmLabelWant *want;
	const KmTables *tables;
	const GkPrep *prep;
} KmLabelRelay;

extern void km_label_relay(KmLabelRelay *relay, KmPgHost *host, const KmLabelWant *want,
						   const KmTables *tables, const GkPrep *prep);

typedef struct KmFit
{
	KmPgHost   *host;
	KmSource   *source;
	KmFitOptions options;
	const GkSpectralOptions *spectral;	/* or NULL; options.engine.k is the number of representatives */
	bool		balanced;		/* clusters of bounded sizes, options.engine has the bounds; on the CPU */
	bool		as_model;		/* the result has to fit a kmeans_model */
	KmReadCounts counts;
	KmFill		fill;			/* of NULL features, from the first read on */
	char	   *schema;			/* of gkmeans, if the rows are in shards on other servers; else NULL */
	bool		foreign;		/* these are tables of postgres_fdw, by which they can be read as well */
	double		load_ms;
	GkModel		model;			/* valid when there were usable rows */
} KmFit;

/* From the arguments (relation, columns, k, ..., <options>). */
extern void km_fit_open(FunctionCallInfo fcinfo, int first_option, const char *label_column,
						bool identify, KmFit *fit);

/* The same, when k is known. */
extern void km_fit_open_k(FunctionCallInfo fcinfo, int first_option, int k, const char *label_column,
						  bool identify, KmFit *fit);

/* Bring rows here by a query where shards cannot do what is asked. */
extern void km_fit_bring(KmFit *fit);

/* The arguments that follow <options> where the rows of one relation or query are clustered once. */
extern void km_fit_open_rest(FunctionCallInfo fcinfo, int first, KmFit *fit);

/* ---- tables of centroids (fn_centroid_table.c) ---- */

/* The number of a row's cluster, of any integer type. */
#define KM_CLUSTER	"cluster::pg_catalog.int8"

typedef struct KmCentroids
{
	KmPgHost   *host;			/* NULL: begin one */
	bool		as_model;		/* they have to fit a kmeans_model */
	int			k;				/* 0: as many as there are rows */
	int			d;
	double	   *value;			/* [k][d], the host's */
	char	   *relname;		/* unqualified, for messages */
	char	   *qualified;
	int64		rows;			/* so far */
} KmCentroids;

/* Read the centroids in the order of their numbers. */
extern void km_centroids_read(Oid table, GkDistance distance, KmCentroids *c);

/* The table is read more than once: an ERROR unless it had the same number of rows again. */
extern void km_centroids_require(const KmCentroids *c, int64 rows);

/* Begin the fit's host, and have the fit begin with the rows of such a table. */
extern void km_fit_centroid_table(Oid table, KmFit *fit);

/* The model of a fit as a value. */
extern KmeansModel *km_fit_model(const KmFit *fit);

/*
 * Begin the host, read and prepare.  NULL, after a NOTICE: no usable rows.  Rows in shards stay there: the store is
 * one of gk_rows_open().
 */
extern GkStore *km_fit_load(KmFit *fit, const KmLabelWant *want, KmTables *tables);

/* Read, prepare, fit, and raise the NOTICEs.  False: no usable rows. */
extern bool km_fit_run(KmFit *fit, const KmLabelWant *want);
extern void km_fit_end(KmFit *fit);

/* ---- the device of a fit, beside the reading of its rows (fn_fit_device.c) ---- */

typedef enum KmDeviceStep
{
	KM_DEVICE_UNKNOWN,			/* which ones there are */
	KM_DEVICE_OPENING,			/* then the rows go up */
	KM_DEVICE_SENDING,			/* of the rows that are there */
	KM_DEVICE_DECIDED
} KmDeviceStep;

typedef struct KmFitDevice
{
	KmFit	   *fit;
	bool		ingest;			/* rows may go to GPUs while they are read */
	GkStore    *store;
	KmDeviceStep step;
	const GkBackend *backend;
	int			gpu;			/* the first of them */
	int64		before;			/* rows that came before they were open */
	struct ErrorContextCallback *context;	/* of the call: errors of a device are not the query's */
	struct KmIngested *ingested;	/* NULL: the rows have not gone to a GPU */
} KmFitDevice;

/* For KmReadOptions.created: find and open the devices, and have the rows go there if they may. */
extern void km_fit_device_begin(void *arg, GkStore *store);

/* Are the rows on GPUs, and nowhere else? */
extern bool km_fit_device_has_rows(const KmFitDevice *device);

/* The store is freed. */
extern void km_fit_device_forget(KmFitDevice *device);

/* Choose what computes n prepared rows of d features: one backend, or that of several devices. */
extern const GkBackend *km_fit_devices(KmPgHost *host, const KmFitOptions *options, int64 n, int d, int k);

/* ---- rows read with a model (fn_labels.c) ---- */

typedef struct KmModelRows
{
	KmeansModel *value;
	GkModel		model;			/* the value, viewed */
	char	  **columns;		/* that the model was made from */
	KmReadOptions read;
	KmSource   *source;
	KmPgHost   *host;
	KmTables	tables;
} KmModelRows;

/* From the arguments with these numbers, all required; ERROR when the model does not know its columns. */
extern void km_model_rows_open(FunctionCallInfo fcinfo, int model, int relation, int nonfinite, KmModelRows *out);

/*
 * Begin the host, and read the relation; NULL: no usable rows.  A function that gives its FunctionCallInfo
 * can do with a store of gk_rows_open(), and gets one for rows in shards.
 */
extern GkStore *km_model_rows_read(KmModelRows *rows, Oid relation, bool identify, FunctionCallInfo fcinfo);

/* Prepare what was read, and give out its labels. */
extern void km_model_rows_label(const KmModelRows *rows, GkStore *store, GkDeviceKind device, const KmLabelWant *want);

/* ---- labels into the table (fn_label_column.c) ---- */

/*
 * Wait until no other transaction labels this column of this table, and keep others waiting until this one ends.
 * To be called before the table is opened: to add the column takes a lock that no other session's may be in the way of.
 * Returns the column's name, cut as ALTER TABLE cuts it; an empty one is an error.
 */
extern char *km_label_lock(Oid relid, const char *label_column);

/*
 * Run and end a fit of at most k clusters, put these into the result, and write the labels that
 * differ into the source's label column, if it has one.
 */
extern void km_relabel_fit(FunctionCallInfo fcinfo, KmFit *fit, int k, KmResult *result);

/* ---- labels of tables of Citus (fn_label_citus.c); model: NULL if no row is usable; schema: of gkmeans ---- */

extern void km_label_citus_column(const KmSource *source, const KmeansModel *model, const char *schema);

/* Fill a table that has the id columns, given as SQL with a comma after each, and the label. */
extern void km_label_table_by_model(const KmSource *source, const char *label_table, const char *id_columns,
									const KmeansModel *model, const char *schema);

/* ---- changed labels, for a later scan of the same table (fn_label_changes.c) ---- */

typedef struct KmChanges KmChanges;

extern KmChanges *km_changes_begin(void);
extern void km_changes_end(KmChanges *changes);
extern void km_changes_add(KmChanges *changes, const KmRowId *row, int32 label);

/* Add the rows of a KmLabelWant whose old label, if old is not NULL, is another one. */
extern void km_changes_add_labels(KmChanges *changes, const KmTables *tables, int rows, const int32_t *label,
								  const uint32_t *old, const uint32_t *const *aux);

/* Has it rows of this table? */
extern bool km_changes_has(const KmChanges *changes, Oid table);
extern int64 km_changes_count(const KmChanges *changes);

/*
 * Look up the label that a row is to get; false: none.  After the first call nothing may be
 * added.  Any order will do; the order in which rows were added is the fastest.
 */
extern bool km_changes_find(KmChanges *changes, const KmRowId *row, int32 *label);

/* ---- quality (fn_quality.c) ---- */

typedef struct KmChooseKRow
{
	int			k;				/* asked for */
	double		inertia;
	int			iterations;
	bool		converged;
	GkMeasures	measures;
} KmChooseKRow;

typedef struct KmChooseK
{
	int			n;
	KmChooseKRow *row;
	int			elbow;			/* index of a row, or -1 */
	int			silhouette;
	double		load_ms;
	double		fit_ms;			/* seeding and iterations of all k */
} KmChooseK;

/* From the arguments of kmeans_scan(). */
extern void km_choose_k(FunctionCallInfo fcinfo, KmChooseK *choice);

#endif							/* FUNCTIONS_H */
