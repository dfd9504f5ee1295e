/*
 * pg_stat.c - what finished runs leave behind: a line in the server's log,
 * and the sums that the view gkmeans_stat shows.
 *
 * The sums are in shared memory, so the module has to be preloaded; they begin
 * anew with the server.  Times are kept in whole microseconds.
 */
#include "postgres.h"

#include "port/atomics.h"
#include "utils/timestamp.h"

#include "gkmeans.h"

PG_FUNCTION_INFO_V1(gkmeans_stat_info);
PG_FUNCTION_INFO_V1(gkmeans_stat_reset);

int			gkmeans_log_min_duration = -1;

enum
{
	STAT_RUNS, STAT_ROWS, STAT_ITERATIONS, STAT_LOAD, STAT_CONTEXT, STAT_UPLOAD, STAT_SEED,
	STAT_ITERATE, STAT_TOTAL, STAT_GPU_RUNS, STAT_FALLBACKS, STAT_SINCE, STAT_COUNT
};

static pg_atomic_uint64 *sums;	/* [STAT_COUNT]; NULL: not preloaded */


/* ---- shared memory ---- */

static void
init_sums(void *area)
{
	pg_atomic_uint64 *s = area;

	for (int i = 0; i < STAT_COUNT; i++)
		pg_atomic_init_u64(&s[i], i == STAT_SINCE ? (uint64) GetCurrentTimestamp() : 0);
}

void
km_stat_init(void)
{
	km_shmem_register("gkmeans stat", STAT_COUNT * sizeof(pg_atomic_uint64), (void **) &sums, init_sums);
}

/* ---- writing ---- */

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

/* ---- reading ---- */

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
