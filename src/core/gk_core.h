/*
 * gk_core.h - public C API of the gkmeans engine.
 *
 * The engine knows no PostgreSQL: memory, cancellation and spill files come in
 * through GkHost, errors go out as a GkStatus and a filled GkError.  Nothing
 * below this header prints, exits or jumps.
 *
 * Words: point = one row's features; n points, d features, k clusters; label =
 * 0-based cluster number; inertia = sum of squared distances of points to
 * their centroid; Feature Sum / Mass Sum = per cluster, the sum of each feature
 * / the number of points (Lutz et al. 2018).  Rows come in batches into a store,
 * which keeps them in chunks, a column after the other; a store's sink is where
 * its batches go.  Raw values are as read; prepared ones are centred, scaled and
 * on the grid.  A pass walks over all points once; a tile is GK_ROW_PAD rows of a
 * chunk, a block the rows that a thread takes at a time, a job its work; a group
 * is one of many clusterings in a call.
 *
 * The numerics contract (docs/algorithms.md) is what makes every backend give
 * the same bits: see gk_numerics.h.
 */
#ifndef GK_CORE_H
#define GK_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

__extension__ typedef __int128 gk_int128;

#define GK_MAX_K		1000000
#define GK_MAX_D		16384
#define GK_MAX_ROWS		((int64_t) 1 << 40)

/* ---- status ---- */

typedef enum GkStatus
{
	GK_OK = 0,
	GK_STOPPED,					/* the host asked to stop (cancel, timeout) */
	GK_ERR_MEMORY,				/* allocation failed */
	GK_ERR_MEMORY_LIMIT,		/* gkmeans.memory_limit, and streaming cannot help */
	GK_ERR_OPTION,				/* a bad option value */
	GK_ERR_DATA,				/* input data not usable */
	GK_ERR_LIMIT,				/* k, d or n over the limit */
	GK_ERR_HOST,				/* a host callback failed; the host kept the reason */
	GK_ERR_SPILL,				/* the spill file could not be read */
	GK_ERR_NO_DEVICE,			/* no usable device of the wanted kind */
	GK_ERR_DEVICE,				/* the device failed; it is not usable any more */
	GK_ERR_DEVICE_MEMORY,		/* the device has too little memory */
	GK_ERR_INTERNAL,			/* cannot happen */
	GK_ERR_RANGE				/* a point is where numbers end */
} GkStatus;

typedef struct GkError
{
	GkStatus	code;
	int			gpu;			/* of several devices the one that failed, counted from 1; 0: not said */
	char		message[256];
	char		detail[256];
	char		hint[256];
} GkError;

/* Fill *err and return its code; detail and hint are left empty. */
GkStatus	gk_fail(GkError *err, GkStatus code, const char *fmt,...)
#if defined(__GNUC__)
			__attribute__((format(printf, 3, 4)))
#endif
		   ;

/* ---- what the engine needs from its host ---- */

typedef struct GkProgress
{
	const char *phase;			/* "load", "prepare", "seed", "iterate", "finish" */
	int			run;			/* 1..n_init */
	int			iteration;
	int			max_iter;
	int64_t		rows;
	double		inertia;		/* of the last iteration, original units; < 0: not known */
	double		shift;			/* summed squared centroid movement, original units */
} GkProgress;

typedef enum GkSkip
{
	GK_SKIP_AUTO = 0, GK_SKIP_ON, GK_SKIP_OFF
} GkSkip;

typedef struct GkHost
{
	void	   *ctx;
	/* Called by the main thread only.  alloc returns NULL on failure. */
	void	   *(*alloc) (void *ctx, size_t bytes);
	void		(*free) (void *ctx, void *ptr);
	/*
	 * Large blocks are the process's own, from gk_mem_pool.c.  The host gives them back when
	 * its own memory goes: gk_mem_pool_give_all(ctx).
	 */
	bool		keep;
	/* Main thread, between units of work of at most ~50 ms: true = stop. */
	bool		(*poll) (void *ctx);
	/* Any thread, inside a unit of work; reads a flag and nothing else. */
	bool		(*stop) (void *ctx);
	/* Spill file, by byte offset; main thread, false = failed.  May be NULL. */
	bool		(*spill_write) (void *ctx, int64_t offset, const void *data, size_t bytes);
	/*
	 * The spill file, for any thread to read from with pread() until the main thread calls
	 * the host again; < 0 = failed.
	 */
	int			(*spill_fd) (void *ctx);
	/* Optional. */
	void		(*progress) (void *ctx, const GkProgress *p);
	/*
	 * Optional, main thread: a device failed in the middle of a job.  True: do the
	 * whole job on the CPU, which gives the same answer; false: fail.
	 */
	bool		(*device_failed) (void *ctx, const GkError *err);
	/* Optional, main thread: one of several did.  True: the others do its share; false: fail. */
	bool		(*device_lost) (void *ctx, const GkError *err);
	/* Optional, main thread: several devices compute, each with such a share of the rows. */
	void		(*devices) (void *ctx, const char *shares);
	int			threads;		/* compute threads; 0: every CPU the process may use */
	GkSkip		skip;			/* skip what bounds prove: gk_cpu_hamerly.c, gk_gpu_filter.cu */
	/* For a GPU; zeros mean the defaults.  See GkProblem, which they are copied to. */
	double		gpu_memory_limit;
	const char *gpu_devices;
	const char *gpu_fault;
	const struct GkSpread *spread;	/* of gk_spread_backend: core/spread/gk_spread.h */
} GkHost;

/* Within a unit of work: is it to end before it is done?  Then so is the pass. */
static inline bool
gk_host_stops(const GkHost *host)
{
	return host->stop != NULL && host->stop(host->ctx);
}

/* Cache-line aligned allocation through the host; NULL on overflow or failure. */
void	   *gk_alloc(const GkHost *host, size_t count, size_t size);

/*
 * The same for the points, and what is computed beside them: a large block stays with the process for its
 * next job.  Others come from such memory while it is free, but do not add to it.
 */
void	   *gk_alloc_kept(const GkHost *host, size_t bytes);
void	   *gk_alloc0(const GkHost *host, size_t count, size_t size);

/* The same, of so much memory that the host may want to stop meanwhile: NULL then, too, and *stopped. */
void	   *gk_alloc0_large(const GkHost *host, size_t count, size_t size, bool *stopped);
void		gk_free(const GkHost *host, void *ptr);

/*
 * A hint that a large block from gk_alloc will be filled soon: some threads of its own have
 * the system find its memory meanwhile, about a quarter of the host's.  They do that as fast
 * as the others fill it; more would take CPUs from those.
 */
void		gk_alloc_soon(const GkHost *host, void *ptr, size_t bytes);
int			gk_soon_threads(const GkHost *host);
double		gk_now_ms(void);

/*
 * Run fn(arg, job, thread) for job = 0..jobs-1 on the host's threads (gk_thread_pool.h),
 * dynamically scheduled; thread is in [0, gk_threads()).  Helper threads run
 * with all signals blocked.  Returns false when host->stop asked to stop, in
 * which case some jobs did not run.  With one job or one thread, and inside
 * another loop, everything runs on the calling thread.
 */
typedef void (*GkJob) (void *arg, int64_t job, int thread);
int			gk_threads(const GkHost *host);
bool		gk_parallel_for(const GkHost *host, int64_t jobs, GkJob fn, void *arg);

/* For what takes long on one thread: while another thread's loop has the helpers, wait for them.  Not inside of a loop. */
bool		gk_parallel_for_long(const GkHost *host, int64_t jobs, GkJob fn, void *arg);

/* ---- options ---- */

typedef enum GkDistance
{
	GK_EUCLIDEAN = 0,
	GK_COSINE = 1,
	GK_MANHATTAN = 2,			/* centroids are medians; fits on the CPU, gk_medians.h */
	GK_PARTIAL = 3				/* Euclidean over the features that a point has; on the CPU, gk_holes.h */
} GkDistance;

/* Is a distance the root of what is compared and summed up? */
static inline bool
gk_distance_is_root(GkDistance distance)
{
	return distance == GK_EUCLIDEAN || distance == GK_PARTIAL;
}

typedef enum GkInit
{
	GK_INIT_PLUSPLUS = 0,		/* greedy k-means++ (Arthur & Vassilvitskii 2007), as scikit-learn */
	GK_INIT_PARALLEL,			/* k-means|| (Bahmani et al. 2012) */
	GK_INIT_RANDOM,				/* k rows, without replacement */
	GK_INIT_CENTROIDS,			/* given centroids, their order is kept */
	GK_INIT_WARM_START,			/* an earlier model's centroids, their order is kept */
	/* Models keep these numbers, so new ones come at the end. */
	GK_INIT_HIERARCHICAL		/* clusters of a sample's clusters */
} GkInit;

typedef enum GkStrategy
{
	GK_STRATEGY_AUTO = 0, GK_SINGLE_PASS, GK_MULTI_PASS, GK_CROSS_PROCESSING
} GkStrategy;
typedef enum GkFeatureSum
{
	GK_FSUM_AUTO = 0, GK_PARTITIONED_FEATURES, GK_CLUSTER_MERGE, GK_DELTA
} GkFeatureSum;
typedef enum GkMassSum
{
	GK_MSUM_AUTO = 0, GK_PARTITIONED_PRIVATE, GK_PARTITIONED_LOCAL, GK_PARTITIONED_GLOBAL, GK_GLOBAL_ATOMIC
} GkMassSum;

/*
 * Seeds that fits of one store share: where rounds of k-means++ draw the same
 * number of candidates, the seeds of a smaller k are the first ones of a larger.
 * Options that differ in k alone point to the same one of these.
 */
typedef struct GkSharedSeeds
{
	int			k_max;			/* no fit asks for more */
	/* The engine's, zeros at first. */
	int			candidates;
	int			asked;			/* seeds of each run that were asked for */
	int			runs;
	int		   *got;			/* [runs] < 0: not seeded yet */
	float	   *points;			/* [runs][asked][d] */
} GkSharedSeeds;

typedef struct GkOptions
{
	int			k;				/* 1 .. GK_MAX_K */
	GkInit		init;
	const double *centroids;	/* k x d, row-major, original units; for the last two inits */
	int			n_init;			/* restarts, >= 1; one for given centroids */
	int			max_iter;		/* >= 1; 0: given centroids stay as they are */
	double		tol;			/* >= 0, relative to the mean feature variance */
	GkDistance	distance;
	bool		standardize;
	int64_t		seed;
	/*
	 * Rows of a sample, or below 1 a share of the rows; 0, or more than there are: all rows.
	 * Centroids are found in the first; the second, of those rows, is what they begin with.
	 */
	double		fit_sample;
	double		init_sample;
	GkSharedSeeds *shared;		/* or NULL */
	GkStrategy	strategy;
	GkFeatureSum feature_sum;
	GkMassSum	mass_sum;
	/* Bounds of clusters' sizes, for gk_balanced_fit() only; 0: none. */
	int64_t		min_size;
	int64_t		max_size;
} GkOptions;

/* ---- the model ---- */

/*
 * How original features become prepared ones (gk_numerics.h):
 * for GK_EUCLIDEAN centre, scale by scale[j] and round to float32 on the grid
 * 2^(expo[j] - 40); for GK_PARTIAL the same, and a missing feature stays NaN; for GK_COSINE divide by the length first (center is 0).
 */
typedef struct GkPrep
{
	int			d;
	GkDistance	distance;
	bool		standardize;
	double	   *center;			/* [d] original units */
	double	   *scale;			/* [d] power of two (divided by the standard deviation) */
	int32_t    *expo;			/* [d] |prepared value| <= 2^expo[j] for the points of the fit */
	int32_t		unit_exp;		/* a prepared length l is l * 2^-unit_exp in original (standardised, if so
								 * asked) units */
} GkPrep;

/* The grid of the weights (gk_numerics.h): none is above 2^expo. */
typedef struct GkWeightGrid
{
	bool		known;			/* false: the rows had no weights */
	int32_t		expo;
} GkWeightGrid;

/* ---- spectral clustering (core/spectral/) ---- */

typedef enum GkAffinity
{
	GK_AFFINITY_NEIGHBORS = 0,	/* nearest neighbours, by how many of theirs they share and how near they are */
	GK_AFFINITY_RBF				/* exp(-gamma distance^2), or with each point's own scale */
} GkAffinity;

typedef enum GkLaplacian
{
	GK_LAPLACIAN_SYMMETRIC = 0, /* I - D^-1/2 W D^-1/2, rows of the embedding have length 1 */
	GK_LAPLACIAN_RANDOM_WALK,	/* I - D^-1 W */
	GK_LAPLACIAN_UNNORMALIZED	/* D - W */
} GkLaplacian;

/* What has decided the number of clusters. */
typedef enum GkChoice
{
	GK_CHOICE_ASKED = 0,		/* the user */
	GK_CHOICE_COMPONENTS,		/* parts of the graph without an edge between them */
	GK_CHOICE_LAST_GAP,			/* a gap that only small ones follow */
	GK_CHOICE_POWER_GAP,		/* the largest gap of the eigenvalues' powers */
	GK_CHOICE_GAP				/* the largest gap */
} GkChoice;

typedef struct GkSpectralOptions
{
	int			k;				/* 0: chosen by the eigenvalues */
	int			neighbors;		/* >= 1 */
	GkAffinity	affinity;
	double		gamma;			/* of GK_AFFINITY_RBF; 0: each point's own scale */
	GkLaplacian laplacian;
} GkSpectralOptions;

/* What makes a model of representatives one of clusters of representatives. */
typedef struct GkSpectral
{
	int			k;				/* clusters; 0: the model is a plain one */
	GkSpectralOptions asked;
	GkChoice	choice;
	double		strength;		/* of the gap after the k-th eigenvalue, 0 .. 1 */
	int			components;		/* of the graph, without those cut off */
	int			cut_off;		/* components too light to be clusters */
	int			neigenvalues;
	double	   *eigenvalue;		/* [neigenvalues] of the Laplacian, smallest first */
	int32_t    *cluster;		/* [k of the model] of each representative */
	double	   *weight;			/* [k of the model] mean of its rows' weights; NULL: they have none, or an
								 * early model does not tell */
	double		graph_ms,
				eigen_ms,
				embed_ms;
} GkSpectral;

typedef struct GkModel
{
	GkPrep		prep;
	GkWeightGrid weights;
	int			k;				/* clusters found; may be fewer than asked for */
	int			k_asked;
	GkInit		init;
	int64_t		seed;
	int64_t		rows_used;
	int64_t		rows_skipped;	/* set by the host */
	int			iterations;		/* of the winning run */
	bool		converged;
	double		inertia;		/* original units; standardised units with standardize; sum of (1 - cosine)
								 * for GK_COSINE, of distances for GK_MANHATTAN */
	double	   *centroids;		/* [k][d] original units */
	int64_t    *size;			/* [k] points */
	double	   *cluster_inertia;	/* [k] */
	double	   *radius;			/* [k] largest distance of a point to its centroid */
	double	   *fill;			/* [d] what missing features became; NULL: they had none; set by the host */
	int			history_len;	/* one entry per iteration of the winning run */
	double	   *history_inertia;	/* before the iteration's update */
	double	   *history_shift;	/* summed squared centroid movement */
	double		load_ms,
				seed_ms,
				iterate_ms,
				total_ms;		/* load and total: set by the host */
	double		context_ms,
				upload_ms;		/* until a GPU was open and its kernels loaded; until it had the points; 0
								 * without one */
	char		device[96];		/* "cpu (avx512, 2 threads)", "gpu 0 (NVIDIA H200)" */
	char		strategy[64];
	GkSpectral	spectral;		/* if spectral.k > 0, the k clusters above are representatives */
} GkModel;

/* Fail with gk_fail_range() if the model's inertia is beyond double precision. */
GkStatus	gk_model_check_range(const GkModel *model, GkError *err);
GkStatus	gk_fail_range(GkError *err);

/* Refuse a point whose squared distances are beyond float32, as every comparison with a model does. */
GkStatus	gk_fail_far(GkError *err);
void		gk_model_free(const GkHost *host, GkModel *model);

/*
 * Make a model of k given centroids of d features, original units, that has seen no rows: points
 * are prepared as those of a fit to the centroids.  The centroids are from gk_alloc(), and become
 * the model's; in case of an error they are freed.
 */
GkStatus	gk_model_of_given(const GkHost *host, double *centroids, int k, int d, GkDistance distance,
							  GkModel *model, GkError *err);

/* Prepared float32 centroids, [k][d], from the model's original-unit ones. */
void		gk_model_prepare(const GkPrep *prep, const double *centroids, int k, float *out);

/*
 * Prepare one point (d doubles, finite).  False when the point has no direction
 * (zero vector under GK_COSINE).
 */
bool		gk_prepare_point(const GkPrep *prep, const double *point, float *out);

/* Distance in original units from a canonical squared distance. */
double		gk_distance_from_d2(const GkPrep *prep, float d2);

/* The squared movement of centroids, original units. */
double		gk_shift_from_d2(const GkPrep *prep, double d2);

/* What one d2 contributes to the inertia, original units. */
double		gk_inertia_from_d2(const GkPrep *prep, double d2);

/* Canonical nearest centroid of one prepared point; best CPU kernel. */
int			gk_nearest(const float *point, int d, const float *centroids, int k, float *d2);

/* Canonical squared distances of one prepared point to all k centroids; best CPU kernel. */
void		gk_distances(const float *point, int d, const float *centroids, int k, float *d2);

/* The same two under GK_PARTIAL, of a point with a NaN for each missing feature, but not for all. */
int			gk_partial_nearest(const float *point, int d, const float *centroids, int k, float *d2);
void		gk_partial_distances(const float *point, int d, const float *centroids, int k, float *d2);

/* And under GK_MANHATTAN, whose distances are not squared. */
int			gk_l1_nearest(const float *point, int d, const float *centroids, int k, float *distance);
void		gk_l1_distances(const float *point, int d, const float *centroids, int k, float *distance);

/* Those of a model's distance. */
int			gk_nearest_by(GkDistance by, const float *point, int d, const float *centroids, int k, float *d2);
void		gk_distances_by(GkDistance by, const float *point, int d, const float *centroids, int k, float *d2);

/* ---- the points ---- */

typedef struct GkStore GkStore;

/* Extra 4-byte columns that travel with the rows, opaque to the engine. */
#define GK_MAX_AUX	4

/*
 * Create a store of points with d features.  weighted: one weight per row.
 * naux: host-owned uint32 columns.  chunk_bytes: target size of one
 * column-major chunk.  memory_limit: bytes of points kept in memory; what is
 * over it goes to the spill file.
 */
GkStatus	gk_store_create(const GkHost *host, int d, bool weighted, int naux,
							size_t chunk_bytes, size_t memory_limit,
							GkStore **out, GkError *err);
void		gk_store_free(GkStore *store);

/* Say about how many rows will come; < 0, as at first: not known. */
void		gk_store_expect(GkStore *store, double rows);
double		gk_store_expected(const GkStore *store);

/*
 * Loading (gk_batch.h).  The caller puts rows into the store's own batch, column
 * by column (all values finite; column d is the weight, > 0, when weighted; aux
 * columns as uint32), and commits them, which empties the batch.
 */
struct GkBatch;
struct GkColumnStats;
struct GkBatch *gk_store_batch(GkStore *store);
GkStatus	gk_store_commit(GkStore *store, GkError *err);

/* Add the rows of n other batches, in order, by up to `threads` threads; gk_store_observed() adds the statistics. */
GkStatus	gk_store_add(GkStore *store, const struct GkBatch *batches, int n, int threads, GkError *err);
void		gk_store_observed(GkStore *store, const struct GkColumnStats *stats);

/*
 * Send a store's rows to a device: those that it has in memory, and then as they come; wide: as
 * doubles, else all have to be floats.  They have no weights and aux columns, the fit is
 * Euclidean, not standardized and wants no labels.  If this fails, the store is as it was.
 * gk_store_prepare() returns the error of a device that failed later: then, and when gk_fit()
 * fails, the rows are lost (gk_ingest.c).
 */
struct GkBackend;
GkStatus	gk_store_ingest(GkStore *store, const struct GkBackend *backend, bool wide, GkError *err);

/* Can that be done with the rows that came so far?  Not with those in the spill file. */
bool		gk_store_can_ingest(const GkStore *store);

/*
 * Keep the rows in memory until it is known whether they go to a device.  That is asked by the main
 * thread before it adds rows; now: there is no memory for more, or there are no more, so it has
 * to be decided.  The answer may be gk_store_ingest(), and ends by gk_store_ask() with NULL.
 */
typedef GkStatus (*GkAsk) (void *arg, bool now, GkError *err);
void		gk_store_ask(GkStore *store, GkAsk ask, void *arg);

/* Milliseconds of the loading that a GkModel has in context_ms and upload_ms. */
double		gk_store_ingest_ms(const GkStore *store);

/* Give back what such a store has of the device, unless a fit has taken it over. */
void		gk_store_ingest_end(GkStore *store);

/* The only backend that can read a store's points: a device's, gk_rows_backend; NULL: any can. */
const struct GkBackend *gk_store_reader(const GkStore *store);

/* Pass batches on to a function instead of keeping them; the store only counts the rows. */
typedef GkStatus (*GkTake) (void *arg, GkStore *store, const struct GkBatch *batch, GkError *err);
void		gk_store_pass_on(GkStore *store, GkTake take, void *arg);
int64_t		gk_store_rows(const GkStore *store);
int			gk_store_features(const GkStore *store);

/* The first feature that is missing in all rows, before they are prepared; -1: there is none. */
int			gk_store_valueless(const GkStore *store);

/* A memory limit that keeps all points in memory; 0: they are. */
size_t		gk_store_enough_memory(const GkStore *store);

/*
 * End of loading: compute the exact means, choose the scale and the grid, and
 * turn every chunk into prepared float32 columns.
 */
GkStatus	gk_store_prepare(GkStore *store, GkDistance distance, bool standardize, GkError *err);

/* The same with the preparation of an existing model (bulk prediction). */
GkStatus	gk_store_prepare_as(GkStore *store, const GkPrep *prep, GkError *err);

void		gk_shared_seeds_free(const GkHost *host, GkSharedSeeds *shared);

/*
 * One chunk's labels and canonical squared distances, in row order; aux[i] are
 * the host's columns.  Called by the main thread, chunks in order; false = stop
 * with GK_ERR_HOST.
 */
typedef struct GkLabelSink
{
	void	   *ctx;
	bool		(*emit) (void *ctx, int rows, const int32_t *label, const float *d2,
						 const uint32_t *const *aux);
	/*
	 * Optional: forget all labels, the next ones are again those of the first chunk.
	 * A sink that can do so gets labels from a pass that is made anyway.
	 */
	void		(*again) (void *ctx);
} GkLabelSink;

/* ---- fit and predict ---- */

typedef struct GkBackend GkBackend;

/*
 * Cluster a prepared store.  Sizes, inertia, radius and labels are those of all rows, even if
 * the centroids are a sample's.  The model is filled on GK_OK and owned by the
 * caller (gk_model_free).  With a sink, the labels of the final centroids are
 * emitted too.  An empty store gives k = 0.  The backend is gk_store_reader()'s, if there is one.
 */
GkStatus	gk_fit(GkStore *store, const GkBackend *backend, const GkOptions *options,
				   const GkLabelSink *sink, GkModel *model, GkError *err);

/* Labels of a store prepared with the model's preparation. */
GkStatus	gk_label(GkStore *store, const GkBackend *backend, const GkModel *model,
					 const GkLabelSink *sink, GkError *err);

/* ---- devices ---- */

typedef enum GkDeviceKind
{
	GK_DEVICE_AUTO = 0, GK_DEVICE_GPU, GK_DEVICE_CPU,
	GK_DEVICE_BOTH				/* all GPUs and the CPU: core/spread */
} GkDeviceKind;

typedef struct GkDeviceInfo
{
	char		backend[16];	/* "cpu", "gpu" */
	char		name[96];
	bool		usable;
	char		reason[256];	/* why not, when not usable */
	int64_t		memory;			/* bytes, 0: not known */
	char		detail[256];
} GkDeviceInfo;

/* SIMD level of the CPU kernels by name: "auto", "avx512", "avx2", "neon", "scalar". */
bool		gk_cpu_set_simd(const char *name, char *reason, size_t reason_len);
const char *gk_cpu_simd(void);

/* Where gkmeans_gpu.so is looked for. */
void		gk_registry_set_directory(const char *dir);

/*
 * The backend for a device kind and job size; NULL with *err filled when there
 * is none.  gpus: GPUs that may be used, as GkHost.gpu_devices.  *gpu: ordinal of
 * the GPU, -1 for the CPU.
 */
const GkBackend *gk_registry_choose(GkDeviceKind kind, const char *gpus, int64_t n, int d, int k,
									int *gpu, GkError *err);

/* Is a job to have a GPU, if there is one?  Under auto it has to be large enough. */
bool		gk_registry_wants_gpu(GkDeviceKind kind, int64_t n, int d, int k);

/* The GPUs, and their backend, as gk_registry_choose() saw them when it last chose one. */
int			gk_registry_seen(const GkDeviceInfo **out, const GkBackend **backend);

/*
 * Two things that may be done beside the reading of rows, by a thread of its own, one after the
 * other: find out which GPUs there are, and open n of them at the same time.  True: that has begun,
 * or the thread has something else to do; ask gk_registry_busy() every now and then.  False: there is
 * nothing to do.  fault: as GkHost.gpu_fault.
 */
bool		gk_registry_look(void);
bool		gk_registry_open(const int *gpus, int n, const char *fault);
bool		gk_registry_busy(void);

/*
 * Wait for the thread; false: the host asked to stop.  All other functions here that need to know
 * of GPUs wait, too, but ask nobody.  The second one says how long the main thread has waited so far.
 */
bool		gk_registry_wait(const GkHost *host);
double		gk_registry_waited_ms(void);

/* Is a GPU open?  If a backend does not say: as far as is known. */
bool		gk_registry_is_open(int gpu);

/* Wait for the thread before the process exits, `ms` milliseconds at most; false: it is still at work. */
bool		gk_registry_end(double ms);

/*
 * Give back what this process keeps of a GPU between jobs.  One that is being opened is given back when it
 * is open, and those with it.
 */
void		gk_registry_release(int gpu);

/* All backends' devices; returns how many were written (<= max). */
int			gk_registry_devices(GkDeviceInfo *out, int max);

#ifdef __cplusplus
}
#endif
#endif							/* GK_CORE_H */
