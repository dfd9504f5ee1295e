/*
 * pg.h - PostgreSQL around a call: the engine's host and errors, arguments and results, the
 * device it gets, and what other sessions see of it.
 */
#ifndef PG_H
#define PG_H

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/tuplestore.h"

#include "gkmeans.h"

/* ---- the engine's host (pg_host.c) ---- */

typedef struct KmPgHost KmPgHost;

/* A host with its own memory context, a child of the current one. */
extern KmPgHost *km_host_begin(void);

/* Release everything the engine got from this host. */
extern void km_host_end(KmPgHost *host);
extern const GkHost *km_host_engine(KmPgHost *host);

/* The devices of a job on several; from now on its backends know them. */
struct GkSpread;
struct GkSpreadGroups;
extern struct GkSpread *km_host_spread(KmPgHost *host);

/* Whether a job whose device fails goes on, with a WARNING, on the others or the CPU. */
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

/* ---- cancels ---- */

/* In a loop over many numbers, before number i: look for a cancel once in a while. */
static inline void
km_look_for_cancel(uint64 i)
{
	if (i % 65536 == 65535)
		CHECK_FOR_INTERRUPTS();
}

/* ---- arguments (pg_args.c) ---- */

/* ERROR when a required argument is NULL. */
extern void km_require_arg(FunctionCallInfo fcinfo, int arg, const char *name);

/* A text argument as a C string, NULL for NULL. */
extern char *km_parse_text(FunctionCallInfo fcinfo, int arg);

/* A required integer from low to high; PG_INT32_MAX: any that is not below low. */
extern int	km_parse_int(FunctionCallInfo fcinfo, int arg, const char *name, int low, int high);
extern int	km_parse_k(FunctionCallInfo fcinfo, int arg);

/* A required word of a list. */
extern int	km_parse_word(FunctionCallInfo fcinfo, int arg, const char *name, const struct config_enum_entry *words);

/* NULL: the setting gkmeans.device. */
extern GkDeviceKind km_parse_device(FunctionCallInfo fcinfo, int arg);

/* Are rows that are not finite to be skipped? */
extern bool km_parse_nonfinite(FunctionCallInfo fcinfo, int arg);

/* The aggregate's memory; ERROR when the function is called by something else. */
extern MemoryContext km_aggregate_context(FunctionCallInfo fcinfo, const char *function);

/* ---- results (pg_result.c) ---- */

typedef struct KmResult
{
	Tuplestorestate *store;
	TupleDesc	desc;
} KmResult;

/* The rows go to a tuplestore that lives as long as the query. */
extern void km_result_begin(FunctionCallInfo fcinfo, KmResult *result);

/* One row for each cluster: number, size, centroid, inertia, radius. */
extern void km_result_clusters(KmResult *result, const GkModel *model);

/* A model of the clusters that users see: of a spectral one they are in the place of its representatives. */
extern GkModel km_clusters_of(const GkModel *m);

/* A single row as the function's result; values and nulls have its n columns. */
extern Datum km_result_record(FunctionCallInfo fcinfo, Datum *values, bool *nulls, int n);

/* A float8[] of n >= 1 values. */
extern Datum km_float8_array(const double *v, int n);

/* ---- devices (pg_device.c) ---- */

extern void km_device_init(void);

/*
 * ERROR when a GPU is asked for and there is none.  The second one does not wait for the first look
 * at the GPUs of a session, which goes on beside what the caller does next: then the function that
 * chooses a device raises it.
 */
extern void km_check_device(KmPgHost *host, GkDeviceKind kind);
extern void km_check_device_soon(KmPgHost *host, GkDeviceKind kind);

/* Begin that look; false: the GPUs are known.  gk_registry_busy() says when it has ended. */
extern bool km_look_for_devices(void);

/*
 * The backend that was asked for; ERROR when there is none.  It may wait for other sessions'
 * jobs on the GPU.  Its place there is the host's, to the end.
 */
extern const GkBackend *km_choose_backend(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k);

/*
 * For a job whose rows are still to be read: the backend, that of several devices where they can share
 * the job and are worth it, and the GPU's number, -1: the CPU.  Then take places there; false: not now,
 * if it does not wait, or not under auto.  And have the devices opened beside what comes next, as far as
 * this session may keep them open; are they?  The functions above are for later.
 */
extern const GkBackend *km_choose_backend_soon(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k, bool share,
											   int *gpu);
extern bool km_take_places(KmPgHost *host, GkDeviceKind kind, int gpu, bool wait);
extern void km_open_devices(KmPgHost *host, int gpu);
extern bool km_devices_are_open(KmPgHost *host, int gpu);

/* The same where several devices can share the job: only there may kind be GK_DEVICE_BOTH. */
extern const GkBackend *km_choose_devices(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k);

/*
 * And for many groups: the backend, then the devices that share them; out->n is 0 where the backend's
 * first one does it alone.
 */
extern const GkBackend *km_choose_group_backend(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k);
extern void km_choose_group_devices(KmPgHost *host, GkDeviceKind kind, const struct GkSpreadGroups *work, struct GkSpread *out);

/* What gkmeans_devices() and the progress tell of a job on several devices. */
extern void km_device_shares(const char *text);

/*
 * A device of several failed with the rows, which it had taken while they were read: leave it out from now on.
 * True: they may be read once more for the others, which the user has been told.
 */
extern bool km_go_on_with_others(KmPgHost *host, GkStatus status, const GkError *err);

/* Is there no job without a GPU? */
static inline bool
km_wants_gpu(GkDeviceKind kind)
{
	return kind == GK_DEVICE_GPU || kind == GK_DEVICE_BOTH;
}

/* ---- what other sessions see (pg_monitor.c) ---- */

/* After all other km_..._init() that register shared memory. */
extern void km_monitor_init(void);

/*
 * In a module's init: have *address point to size bytes of shared memory, set up once by
 * init(), when gkmeans is preloaded.  Else *address is left alone.
 */
extern void km_shmem_register(const char *name, Size size, void **address, void (*init) (void *area));

/* A job begins to read a relation; it ends when the context goes away. */
extern void km_progress_begin(MemoryContext context, Oid relation);
extern void km_progress_device(const char *device);

/* May be called as often as there is news.  Never raises an ERROR. */
extern void km_progress_report(const GkProgress *p);

/* A run has ended well: add it to the sums, and log it if it took long enough. */
extern void km_stat_run(const char *relname, const GkModel *m);

/* A GPU failed, and the CPU goes on. */
extern void km_stat_fallback(void);

/* ---- hints for calls that cannot be resolved (pg_advice.c) ---- */

extern void km_advice_init(void);

/* ---- hosts for small engine jobs, one on each thread (pg_thread_host.c) ---- */

/* They know memory and the stop flag, nothing of PostgreSQL. */
typedef struct KmThreadHosts KmThreadHosts;

/* One for each of the engine's threads; gone with the current memory context. */
extern KmThreadHosts *km_thread_hosts(const GkHost *engine);
extern const GkHost *km_thread_host(KmThreadHosts *hosts, int thread);

/* Memory that lives as long as the hosts; NULL: out of memory. */
extern void *km_thread_keep(KmThreadHosts *hosts, int thread, size_t bytes);

/* An error to be raised later; NULL: there is no memory for it. */
extern GkError *km_thread_keep_error(KmThreadHosts *hosts, int thread, const GkError *err);

/* What the thread's host has given out so far; a reset frees all that came later. */
typedef struct KmThreadMark
{
	const void *block;
	size_t		used;
} KmThreadMark;

extern KmThreadMark km_thread_mark(KmThreadHosts *hosts, int thread);
extern void km_thread_reset(KmThreadHosts *hosts, int thread, KmThreadMark mark);

#endif							/* PG_H */
