/*
 * gk_backend.h - the vtable between the engine and a compute device.
 *
 * One const object per backend.  The Lloyd loop, seeding and finishing are
 * written once (gk_lloyd.c, gk_seed.c, gk_finish.c) over these passes; each pass walks over
 * all points of the store.  Every result is defined by gk_numerics.h to the
 * last bit: the scalar CPU kernels are the oracle of all others.
 *
 * All functions return GK_STOPPED when the host asked to stop; they then leave
 * the session usable for close() only.
 */
#ifndef GK_BACKEND_H
#define GK_BACKEND_H

#include <stdlib.h>
#include <string.h>

#include "core/store/gk_columns.h"
#include "core/gk_core.h"
#include "core/groups/gk_group_slot.h"
#include "core/store/gk_points.h"

#define GK_BACKEND_API	21

typedef struct GkSession GkSession;

/* Is device i in a list like "0,2"?  NULL, "" and "all" mean every device. */
static inline bool
gk_device_listed(const char *list, int i)
{
	char	   *end;

	if (list == NULL || list[0] == '\0' || strcmp(list, "all") == 0)
		return true;
	for (const char *p = list; *p; p = *end ? end + 1 : end)
	{
		if (strtol(p, &end, 10) == i && end != p)
			return true;
		if (end == p)
			return false;
	}
	return false;
}

/* The fault of a device: "1@error:5" is that of GPU 1, "error:5" every GPU's.  NULL: none. */
static inline const char *
gk_device_fault(const char *fault, int i)
{
	const char *at = fault != NULL ? strchr(fault, '@') : NULL;

	if (at == NULL)
		return fault;
	return atoi(fault) == i ? at + 1 : NULL;
}

/*
 * What a backend in its own library may call of the core; it links to nothing.
 * See gk_points.h and gk_core.h.
 */
typedef struct GkCore
{
	const GkPoints *(*points) (GkStore *store);
	GkStatus	(*chunk_open) (GkStore *store, int index, int read, GkChunk *view, GkError *err);
	GkStatus	(*chunk_close) (GkStore *store, int index, GkChunk *view, bool dirty_mind2, GkError *err);
	GkStatus	(*row) (GkStore *store, int64_t row, float *out, GkError *err);
	GkStatus	(*mind2_begin) (GkStore *store, GkError *err);
	void		(*mind2_end) (GkStore *store);
	void	   *(*alloc) (const GkHost *host, size_t count, size_t size);
	void		(*free) (const GkHost *host, void *ptr);
	bool		(*parallel_for) (const GkHost *host, int64_t jobs, GkJob fn, void *arg);
	bool		(*parallel_for_long) (const GkHost *host, int64_t jobs, GkJob fn, void *arg);
	int			(*threads) (const GkHost *host);
	const struct GkBackend *cpu;	/* for work shared with the CPU */
} GkCore;

extern const GkCore gk_core;

typedef struct GkProblem
{
	const GkHost *host;
	const GkCore *core;
	GkStore    *store;			/* prepared */
	/*
	 * Centroids of the model.  Seeding may use more: k-means|| calls step() or finish() with
	 * all its candidates, up to 1 + 10 * k_max.
	 */
	int			k_max;
	/*
	 * Hints for a backend that runs ahead of the host: step() is going to be
	 * called with what gk_update.h makes of its own result, up to max_iter
	 * times or until the shift is <= tol.  A backend may compute the
	 * following steps before they are asked for and answer from its log when
	 * the centroids it is given are, bit for bit, the ones it predicted.
	 */
	int			max_iter;
	double		tol;			/* absolute: squared prepared length */
	GkStrategy	strategy;
	GkFeatureSum feature_sum;
	GkMassSum	mass_sum;
	/* For the GPU; zeros mean the defaults. */
	double		gpu_memory_limit;	/* share of the free device memory, 0: 0.8 */
	const char *gpu_devices;	/* ordinals, "0,2"; NULL or "all": every one */
	/*
	 * Test only: fail the n-th CUDA call after open() with "memory:n" or
	 * "error:n" (this clustering only); "open-memory:n" and "open-error:n" count
	 * from the start of open().  "trap:0" runs a kernel that traps at the end of
	 * open(), "open-trap:0" at its start: the device is lost to the process, as
	 * the next call finds out.
	 */
	const char *gpu_fault;
	/* Points that are on the device already: what GkIngestBackend.open() began; NULL: none. */
	GkSession  *ingesting;
	/* As in GkOptions. */
	int64_t		min_size;
	int64_t		max_size;
} GkProblem;

/* Make a problem of a store, with what its host says of GPUs. */
GkProblem	gk_problem(GkStore *store, int k_max, int max_iter);

/* One of the sessions that share the rows of a clustering. */
typedef struct GkJoin
{
	GkSession  *session;
	int64_t		first;			/* number of its first row among all */
} GkJoin;

/*
 * Points without weights that go up while they are read, and stay nowhere else (gk_ingest.c).
 * room() and send() may be another thread's than the other functions.
 */
typedef struct GkIngestBackend
{
	/*
	 * Begin a session that has no points yet; about `rows` are expected, 0: not known.
	 * wide: values come as doubles, else as floats.  It ends by GkBackend.close(), or goes
	 * on as GkBackend.open()'s.
	 */
	GkStatus	(*open) (const GkProblem *problem, int64_t rows, bool wide, GkSession **out, GkError *err);
	/* Memory for the next *rows rows: feature j of row i is to[j * *stride + i]. */
	GkStatus	(*room) (GkSession *session, void **to, int *stride, int *rows, GkError *err);
	/* Send the first `rows` of them up. */
	GkStatus	(*send) (GkSession *session, int rows, GkError *err);
	/*
	 * (optional) All rows are there.  Of sessions on different devices, whose rows follow each other, number `me`
	 * takes over rows [first, first + rows) of all, if there are any; the others keep theirs until prepare().  All are
	 * called at the same time, each on a thread of its own.
	 */
	GkStatus	(*take_over) (const GkJoin *members, int n, int me, int64_t first, int64_t rows, GkError *err);
	/* Prepare all rows (not cosine); moments [d] become their exact sums. */
	GkStatus	(*prepare) (GkSession *session, const GkPrep *prep, GkMoments *moments, GkError *err);
} GkIngestBackend;

/*
 * Result of one Lloyd pass; arrays are the caller's, k_max long.  Under GK_MANHATTAN a sum is the cluster's
 * median, as the sum of one point: the mass is 1.  Under GK_PARTIAL sums and masses are weighted ones, by what
 * a point's share in each of its features is, and each feature has a mass of its own.
 */
typedef struct GkStep
{
	gk_int128  *sum;			/* [k][d]: units of 2^(expo_j - 40), weighted 2^(expo_j - 80) */
	gk_int128  *mass;			/* [k]: points; weighted: units of 2^-40 */
	int64_t    *count;			/* [k]: points */
	gk_int128	cost;			/* of gk_medians_backend and gk_holes_backend: sum of the distances,
								 * gk_d2_fixed */
	gk_int128  *feature_mass;	/* [k][d] of gk_holes_backend, in place of mass */
	double		busy_ms;		/* of a joined session: what its own rows took, 0: not known */

	/*
	 * (set by the caller) The centroids are what gk_update.h makes of the last step's result: joined sessions that
	 * have gone on by themselves need not look.
	 */
	bool		follows;

	/*
	 * (set by the caller) Sums are still what the session's last step has made of them: those of clusters that are as they were
	 * need not be written.
	 */
	bool		kept;

	/*
	 * [k] (set by the caller; NULL: not wanted) Where the backend knows that a cluster's sum, mass and count are those of
	 * its last step, it says so here, and nothing where it does not.
	 */
	bool	   *unchanged;
} GkStep;

/* Result of an iteration whose centroids stay with the backend; arrays are the caller's, k_max long. */
typedef struct GkAdvance
{
	bool		done;			/* false: not now; then nothing else is set */
	int64_t    *count;			/* [k]: points; NULL: these arrays are not wanted of this joined session */
	double	   *moved;			/* [k]: squared movement, prepared units; of a cluster without points 0 */
	double	   *explained;		/* [k]: sums of gk_explained_feature(); of a cluster without points 0 */
	double		busy_ms;		/* as GkStep's */
} GkAdvance;

/* Result of the final pass. */
typedef struct GkFinish
{
	int64_t    *count;			/* [k] */
	gk_int128  *inertia;		/* [k] gk_d2_fixed sums */
	float	   *max_d2;			/* [k], 0 for an empty cluster */

	/*
	 * (set by the caller) [k] The number that each centroid had in the session's last finish(), which was done; -1: it was
	 * not there, or nothing is said of it.  A backend that remembers the distances need not compute them again.  NULL:
	 * the same for all, and the next finish() will not say more, so that nothing need be remembered for it.
	 */
	const int32_t *was;

	/*
	 * (set by the caller) [k] The number that each centroid, or the one that has moved to where it is, had in the session's
	 * last step(), each another one.  A backend whose bounds are of that step can go on from them.  NULL: nothing is said of it.
	 */
	const int32_t *stepped;
} GkFinish;

/* A row and its race key (gk_race_key). */
typedef struct GkPick
{
	double		key;
	int64_t		row;
} GkPick;

struct GkBackend
{
	uint32_t	api_version;	/* GK_BACKEND_API */
	uint32_t	struct_size;	/* sizeof(GkBackend) */
	const char *name;			/* "cpu", "gpu" */
	const char *description;

	/* Devices, usable or not with the reason; keeps no resources. Returns how many (<= max). */
	int			(*devices) (GkDeviceInfo *out, int max);
	/*
	 * (optional) About how many milliseconds a step over `rows` of the problem's rows takes on a usable
	 * device: shares begin by it, steps tell better.
	 */
	double		(*step_ms) (int ordinal, const GkProblem *problem, int64_t rows);
	/* Bind to a prepared store: allocate, upload.  A session that was ingesting is used up, also on failure. */
	GkStatus	(*open) (const GkProblem *problem, GkSession **out, GkError *err);
	/* Idempotent, never fails, NULL allowed. */
	void		(*close) (GkSession *session);
	/* What runs, for kmeans_info: "cpu (avx512, 2 threads)" and the strategy's name. */
	void		(*describe) (GkSession *session, char *device, size_t device_len,
							 char *strategy, size_t strategy_len);
	/* (optional) How long opening the device and uploading the points took. */
	void		(*times) (GkSession *session, double *context_ms, double *upload_ms);
	/* (optional) Give back what the process keeps of a device between sessions; none is open. */
	void		(*release) (int ordinal);
	/*
	 * (optional) Open a usable device as open() would, for sessions to come, which find out if it
	 * failed.  On any thread, but no other function is called meanwhile, except this one for other
	 * devices.  fault: as GkProblem.gpu_fault, never NULL.
	 */
	void		(*warm) (int ordinal, const char *fault);
	/* (with warm) Is it open? */
	bool		(*is_warm) (int ordinal);

	/* Assign every point to the nearest of k centroids ([k][d], prepared) and sum up. */
	GkStatus	(*step) (GkSession *session, const float *centroids, int k, GkStep *out, GkError *err);
	/*
	 * (optional) A step and the update after it (gk_update.h), whose centroids stay here.  It begins with k centroids
	 * or, NULL, with those after the last advance(), all of whose clusters had points.
	 */
	GkStatus	(*advance) (GkSession *session, const float *centroids, int k, GkAdvance *out, GkError *err);
	/*
	 * (with advance) The result of a step of the last advance() that was done, and the centroids [k][d] that it began
	 * with.  *kept: they are still there; else the caller has to go back to those that it gave last.
	 */
	GkStatus	(*recall) (GkSession *session, int k, float *centroids, GkStep *out, bool *kept, GkError *err);
	/*
	 * Assign once more: per-cluster counts, inertia and radius (out may be
	 * NULL), labels into the sink (may be NULL).
	 */
	GkStatus	(*finish) (GkSession *session, const float *centroids, int k,
						   GkFinish *out, const GkLabelSink *sink, GkError *err);

	/*
	 * Seeding works on one float per point, the squared distance to the nearest
	 * seed so far (D).  seed_begin sets it to +infinity, seed_end releases it.
	 */
	GkStatus	(*seed_begin) (GkSession *session, GkError *err);
	void		(*seed_end) (GkSession *session);
	/*
	 * D = min(D, distance to the nearest of m centroids); *phi = sum of w * D
	 * (gk_d2_fixed), -1 where that would take a pass of its own.
	 */
	GkStatus	(*seed_update) (GkSession *session, const float *centroids, int m, gk_int128 *phi, GkError *err);
	/* (optional) D = the distances that the last finish() has found, if they are still known: *done. */
	GkStatus	(*seed_finished) (GkSession *session, bool *done, GkError *err);
	/* pot[i] = sum of w * min(D, distance to centroid i), for each of m candidates; D stays. */
	GkStatus	(*seed_eval) (GkSession *session, const float *centroids, int m, gk_int128 *pot, GkError *err);
	/*
	 * Exponential race over all rows: weight w * D (use_d2; rows with D = 0 do
	 * not run) or w.  The `want` smallest (key, row), ascending; *got <= want.
	 */
	GkStatus	(*seed_race) (GkSession *session, uint64_t key, bool use_d2, int want,
							  GkPick *out, int *got, GkError *err);
	/*
	 * The row with the largest D; ties to the lexicographically smallest point
	 * (features compared in order), then to the lowest row.  *row = -1 when all D are 0.
	 */
	GkStatus	(*seed_far) (GkSession *session, int64_t *row, GkError *err);
	/*
	 * (optional) A hint before seed_eval(): the next race with use_d2 has this key
	 * and want, after seed_update() by one of the candidates to be evaluated.
	 */
	void		(*seed_ahead) (GkSession *session, uint64_t key, int want);
	/*
	 * (optional) Up to `rounds` rounds of greedy k-means++, whose races have these keys and `want`
	 * candidates each: choose what seed_race(), seed_eval() and seed_update() would, whatever the
	 * device.  The first *done points [rounds][d]; D is up to date.  0: not now.
	 */
	GkStatus	(*seed_rounds) (GkSession *session, const uint64_t *keys, int rounds, int want,
								float *points, int *done, GkError *err);
	/*
	 * (optional) The point of a row that the last seed_race() or seed_far() named;
	 * without it the store is asked.  As room(), on any thread.
	 */
	GkStatus	(*row) (GkSession *session, int64_t row, float *out, GkError *err);
	/*
	 * (optional) Join sessions on different devices that share the rows of one clustering, or
	 * return false: they stay alone.  Then step() and advance() with up to k_max clusters give the
	 * results of all rows, to those that want them, and seed_rounds() chooses among all rows, with
	 * keys that are each session's own; its points may be NULL.  All are called at the same time,
	 * each on a thread of its own, with the same centroids; when one fails, the call is void, and the
	 * others return GK_STOPPED or GK_OK.  (recall() is asked of one that had results.)
	 * max_iter and tol are GkProblem's hints, which hold from now on.
	 */
	bool		(*join) (const GkJoin *members, int n, int max_iter, double tol);
	/* End what a joined session has under way: all of them, before the first one is closed. */
	void		(*leave) (GkSession *session);
	/*
	 * (optional) Go on with the rows of another part of the store, which has its totals and some of the session's rows:
	 * row 0 of the session is row `from` of these; negative: others come before them.  What is known of rows that stay
	 * may be kept.  *done: the session has them, and its first store may go; else it is as it was, except after an
	 * error, when both stores stay until close().  store is NULL: only say whether that is possible at all; from is 0
	 * if the first row will stay the first.  Not while seeding.
	 */
	GkStatus	(*move) (GkSession *session, GkStore *store, int64_t from, bool *done, GkError *err);
	/* (optional) Many small groups at once. */
	const GkGroupBatchBackend *groups;
	/* (optional) */
	const GkIngestBackend *ingest;
};

extern const GkBackend gk_cpu_backend;

/* Under GK_MANHATTAN, whatever was chosen: gk_medians.h. */
extern const GkBackend gk_medians_backend;

/* And under GK_PARTIAL: gk_holes.h. */
extern const GkBackend gk_holes_backend;

/* A pass failed: may the CPU do it again?  The host is asked (GkHost.device_failed). */
bool		gk_go_on_with_cpu(const GkHost *host, const GkBackend *backend, GkStatus st, const GkError *err);

/* gkmeans_gpu.so exports exactly this. */
typedef const GkBackend *(*GkBackendInit) (void);
#define GK_GPU_LIBRARY	"gkmeans_gpu.so"
#define GK_GPU_SYMBOL	"gk_gpu_backend_init"

#endif							/* GK_BACKEND_H */
