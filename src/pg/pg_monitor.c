/*
 * pg_monitor.c - what other sessions see of this one's work, in shared memory.
 *
 *   gkmeans_stat      the view of all finished runs' sums, and a line of each in the log
 *   gkmeans_progress  the view of running jobs
 *
 * The sums need the module in shared_preload_libraries and begin anew with the server; times
 * are kept in whole microseconds.
 *
 * Each job has a slot, when there is shared memory: the module is preloaded, or PostgreSQL 17
 * or newer gives a named segment on demand.  Else the process title says how far the job is.
 * A slot is written by its job alone, at most ten times a second and at each change of phase,
 * between two increments of a counter by which readers notice that they came in between.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/ps_status.h"
#include "utils/timestamp.h"

#if PG_VERSION_NUM >= 170000
#include "storage/dsm_registry.h"
#endif

#include "gkmeans.h"
#include "pg/pg.h"

PG_FUNCTION_INFO_V1(gkmeans_progress_info);
PG_FUNCTION_INFO_V1(gkmeans_stat_info);
PG_FUNCTION_INFO_V1(gkmeans_stat_reset);

/* ---- shared memory, when gkmeans is preloaded ---- */

#define MAX_AREAS	4

typedef struct Area
{
	const char *name;
	Size		size;
	void	  **address;
	void		(*init) (void *area);
} Area;

static Area areas[MAX_AREAS];
static int	nareas;

#if PG_VERSION_NUM >= 150000
static shmem_request_hook_type next_request;
#endif
static shmem_startup_hook_type next_startup;

static void
request(void)
{
#if PG_VERSION_NUM >= 150000
	if (next_request != NULL)
		next_request();
#endif
	for (int i = 0; i < nareas; i++)
		RequestAddinShmemSpace(areas[i].size);
}

static void
startup(void)
{
	if (next_startup != NULL)
		next_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < nareas; i++)
	{
		bool		found;
		void	   *area = ShmemInitStruct(areas[i].name, areas[i].size, &found);

		if (!found)
			areas[i].init(area);
		*areas[i].address = area;
	}
	LWLockRelease(AddinShmemInitLock);
}

void
km_shmem_register(const char *name, Size size, void **address, void (*init) (void *area))
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	Assert(nareas < MAX_AREAS);
	areas[nareas++] = (Area) {name, size, address, init};
}

static void
install_hooks(void)
{
#if PG_VERSION_NUM >= 150000
	next_request = shmem_request_hook;
	shmem_request_hook = request;
#else
	request();
#endif
	next_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
}

/* ---- gkmeans_stat ---- */

enum
{
	STAT_RUNS, STAT_ROWS, STAT_ITERATIONS, STAT_LOAD, STAT_CONTEXT, STAT_UPLOAD, STAT_SEED,
	STAT_ITERATE, STAT_TOTAL, STAT_GPU_RUNS, STAT_FALLBACKS, STAT_SINCE, STAT_COUNT
};

static pg_atomic_uint64 * sums; /* [STAT_COUNT]; NULL: not preloaded */

static void
init_sums(void *area)
{
	pg_atomic_uint64 *s = area;

	for (int i = 0; i < STAT_COUNT; i++)
		pg_atomic_init_u64(&s[i], i == STAT_SINCE ? (uint64) GetCurrentTimestamp() : 0);
}

static void
add(int what, double v)
{
	pg_atomic_fetch_add_u64(&sums[what], (int64) v);
}

void
km_stat_run(const char *relname, const GkModel *m)
{
	bool		gpu = strncmp(m->device, "gpu", 3) == 0;

	if (sums != NULL)
	{
		add(STAT_RUNS, 1);
		add(STAT_ROWS, m->rows_used);
		add(STAT_ITERATIONS, m->iterations);
		add(STAT_LOAD, m->load_ms * 1000);
		add(STAT_CONTEXT, m->context_ms * 1000);
		add(STAT_UPLOAD, m->upload_ms * 1000);
		add(STAT_SEED, m->seed_ms * 1000);
		add(STAT_ITERATE, m->iterate_ms * 1000);
		add(STAT_TOTAL, m->total_ms * 1000);
		add(STAT_GPU_RUNS, gpu);
	}
	ereport(DEBUG1,
			(errmsg("\"%s\" was clustered by %s", relname, m->device)));
	if (gkmeans_log_min_duration >= 0 && m->total_ms >= gkmeans_log_min_duration)
		ereport(LOG,
				(errmsg("gkmeans: \"%s\": k = %d, d = %d, " INT64_FORMAT " rows: %.0f ms, %d iterations, %s",
						relname, m->k_asked, m->prep.d, (int64) m->rows_used, m->total_ms, m->iterations,
						m->converged ? "converged" : "not converged"),
				 errdetail("load %.0f ms, %sseed %.0f ms, iterate %.0f ms; inertia %g; %s, %s.",
						   m->load_ms,
						   gpu ? psprintf("context %.0f ms, upload %.0f ms, ", m->context_ms, m->upload_ms) : "",
						   m->seed_ms, m->iterate_ms, m->inertia, m->device, m->strategy),
				 errhidestmt(true)));
}

void
km_stat_fallback(void)
{
	if (sums != NULL)
		add(STAT_FALLBACKS, 1);
}

/* gkmeans_stat_info() returns set of record: the row of the view, none when not preloaded */
Datum
gkmeans_stat_info(PG_FUNCTION_ARGS)
{
	KmResult	result;
	Datum		values[STAT_COUNT];
	bool		nulls[STAT_COUNT] = {false};

	km_result_begin(fcinfo, &result);
	if (sums == NULL)
		return (Datum) 0;
	for (int i = 0; i < STAT_COUNT; i++)
	{
		int64		v = (int64) pg_atomic_read_u64(&sums[i]);

		if (i >= STAT_LOAD && i <= STAT_TOTAL)
			values[i] = Float8GetDatum((double) v / 1000.0);
		else
			values[i] = i == STAT_SINCE ? TimestampTzGetDatum(v) : Int64GetDatum(v);
	}
	tuplestore_putvalues(result.store, result.desc, values, nulls);
	return (Datum) 0;
}

/* gkmeans_stat_reset() returns void */
Datum
gkmeans_stat_reset(PG_FUNCTION_ARGS)
{
	for (int i = 0; sums != NULL && i < STAT_COUNT; i++)
		pg_atomic_write_u64(&sums[i], i == STAT_SINCE ? (uint64) GetCurrentTimestamp() : 0);
	PG_RETURN_VOID();
}

/* ---- gkmeans_progress ---- */

/* Jobs that can be seen at once; any further ones run unseen. */
#define SLOTS			256
#define UPDATE_MS		100

#if PG_VERSION_NUM >= 140000
#define READ_ALL_STATS	ROLE_PG_READ_ALL_STATS
#else
#define READ_ALL_STATS	DEFAULT_ROLE_READ_ALL_STATS
#endif

typedef struct Report
{
	Oid			database;
	Oid			user;
	Oid			relation;
	char		phase[16];
	int			run;
	int			iteration;
	int			max_iter;
	int64		rows;
	double		inertia;		/* < 0: not known */
	double		shift;
	char		device[96];		/* as in a GkModel, if there are several */
} Report;

typedef struct Slot
{
	pg_atomic_uint32 pid;		/* 0: free */
	pg_atomic_uint32 changes;	/* odd: being written */
	Report		report;
} Slot;

static Slot *slots;				/* [SLOTS]; NULL: none so far */
static Slot *mine;
static Report latest;			/* what this process' job last knew */
static TimestampTz written;

static void
init_slots(void *ptr)
{
	Slot	   *s = ptr;

	for (int i = 0; i < SLOTS; i++)
	{
		pg_atomic_init_u32(&s[i].pid, 0);
		pg_atomic_init_u32(&s[i].changes, 0);
		memset(&s[i].report, 0, sizeof(Report));
	}
}

static void
attach(void)
{
#if PG_VERSION_NUM >= 170000
	bool		found;

	if (slots == NULL)
		slots = GetNamedDSMSegment("gkmeans progress", SLOTS * sizeof(Slot), init_slots, &found);
#endif
}

static void
publish(void)
{
	if (mine != NULL)
	{
		pg_atomic_fetch_add_u32(&mine->changes, 1);
		memcpy(&mine->report, &latest, sizeof(Report));
		pg_write_barrier();
		pg_atomic_fetch_add_u32(&mine->changes, 1);
	}
	else if (slots == NULL && update_process_title)
	{
		char		title[96];

		if (latest.max_iter > 0)
			snprintf(title, sizeof(title), "gkmeans: %s %d of at most %d, run %d", latest.phase,
					 latest.iteration, latest.max_iter, latest.run);
		else
			snprintf(title, sizeof(title), "gkmeans: %s " INT64_FORMAT " rows", latest.phase, latest.rows);
		set_ps_display(title);
	}
}

static void
release(void *arg)
{
	latest.phase[0] = '\0';
	if (mine == NULL)
		return;
	publish();					/* the job that takes the slot next does not show this report */
	pg_atomic_write_u32(&mine->pid, 0);
	mine = NULL;
}

static void
at_exit(int code, Datum arg)
{
	release(NULL);
}

/* The phase is one of a few constants of the engine. */
void
km_progress_report(const GkProgress *p)
{
	TimestampTz now;

	if (latest.phase[0] == '\0')
		return;					/* a job inside a job */
	now = GetCurrentTimestamp();
	if (strcmp(latest.phase, p->phase) == 0 && now >= written &&
		now - written < UPDATE_MS * INT64CONST(1000))
		return;
	written = now;
	strlcpy(latest.phase, p->phase, sizeof(latest.phase));
	latest.run = p->run;
	latest.iteration = p->iteration;
	latest.max_iter = p->max_iter;
	latest.rows = p->rows;
	latest.inertia = p->inertia;
	latest.shift = p->shift;
	publish();
}

void
km_progress_device(const char *device)
{
	strlcpy(latest.device, device, sizeof(latest.device));
}

void
km_progress_begin(MemoryContext context, Oid relation)
{
	static bool registered;
	MemoryContextCallback *callback;
	GkProgress	load = {.phase = "load",.inertia = -1};

	if (latest.phase[0] != '\0')
		return;
	attach();
	if (!registered)
	{
		before_shmem_exit(at_exit, (Datum) 0);
		registered = true;
	}
	callback = MemoryContextAllocZero(context, sizeof(MemoryContextCallback));
	callback->func = release;

	memset(&latest, 0, sizeof(latest));
	latest.database = MyDatabaseId;
	latest.user = GetUserId();
	latest.relation = relation;
	strlcpy(latest.phase, "begin", sizeof(latest.phase));
	MemoryContextRegisterResetCallback(context, callback);
	for (int i = 0; slots != NULL && mine == NULL && i < SLOTS; i++)
	{
		uint32		expected = 0;

		if (pg_atomic_read_u32(&slots[i].pid) != 0)
			continue;
		if (pg_atomic_compare_exchange_u32(&slots[i].pid, &expected, (uint32) MyProcPid))
			mine = &slots[i];
	}
	km_progress_report(&load);
}

/* False: free, or of a job that has just ended. */
static bool
read_slot(Slot *s, uint32 *pid, Report *report)
{
	for (int attempt = 0; attempt < 1000; attempt++)
	{
		uint32		before = pg_atomic_read_u32(&s->changes);

		*pid = pg_atomic_read_u32(&s->pid);
		if (*pid == 0)
			return false;
		pg_read_barrier();
		memcpy(report, &s->report, sizeof(Report));
		pg_read_barrier();
		if (before % 2 == 0 && pg_atomic_read_u32(&s->changes) == before &&
			pg_atomic_read_u32(&s->pid) == *pid)
			return report->phase[0] != '\0';
	}
	return false;
}

/* Without shared memory there is never a row: say so, once in a session. */
static void
tell_why_empty(void)
{
	static bool told = false;

	if (slots != NULL || told)
		return;
	told = true;
	ereport(NOTICE,
			(errmsg("gkmeans_progress is empty, whatever runs"),
			 errdetail("Sessions cannot see each other's jobs: gkmeans is not preloaded."),
			 errhint("Add gkmeans to shared_preload_libraries and restart the server, or use PostgreSQL 17.")));
}

/* gkmeans_progress_info() returns set of record: the rows of the view */
Datum
gkmeans_progress_info(PG_FUNCTION_ARGS)
{
	KmResult	result;

	km_result_begin(fcinfo, &result);
	attach();
	tell_why_empty();
	for (int i = 0; slots != NULL && i < SLOTS; i++)
	{
		Report		r;
		uint32		pid;
		Datum		values[11];
		bool		nulls[11] = {false};

		if (!read_slot(&slots[i], &pid, &r))
			continue;
		values[0] = Int32GetDatum((int32) pid);
		values[1] = ObjectIdGetDatum(r.database);
		values[2] = ObjectIdGetDatum(r.relation);
		values[3] = CStringGetTextDatum(r.phase);
		values[4] = Int32GetDatum(r.run);
		values[5] = Int32GetDatum(r.iteration);
		values[6] = Int32GetDatum(r.max_iter);
		values[7] = Int64GetDatum(r.rows);
		values[8] = Float8GetDatum(r.inertia);
		values[9] = Float8GetDatum(r.shift);
		values[10] = CStringGetTextDatum(r.device);
		nulls[4] = nulls[5] = nulls[6] = r.max_iter == 0;
		nulls[8] = r.inertia < 0;
		nulls[9] = r.inertia < 0;
		nulls[10] = r.device[0] == '\0';
		/* as in pg_stat_activity: of others' jobs only that they are there */
		if (!has_privs_of_role(GetUserId(), r.user) && !has_privs_of_role(GetUserId(), READ_ALL_STATS))
			for (int j = 2; j < 11; j++)
				nulls[j] = true;
		tuplestore_putvalues(result.store, result.desc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- begin ---- */

void
km_monitor_init(void)
{
	km_shmem_register("gkmeans progress", SLOTS * sizeof(Slot), (void **) &slots, init_slots);
	km_shmem_register("gkmeans stat", STAT_COUNT * sizeof(pg_atomic_uint64), (void **) &sums, init_sums);
	if (process_shared_preload_libraries_in_progress)
		install_hooks();
}
