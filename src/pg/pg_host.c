/*
 * pg_host.c - PostgreSQL as the engine's host: memory, cancel, spill file.
 *
 * The engine runs threads and must unwind by itself, so no PostgreSQL ERROR may jump through it.
 * Whatever can raise one while the engine is on the stack runs under km_host_guard(), which keeps
 * the ERROR; the engine is told "stop" or "failed", unwinds, and the glue raises the ERROR again.
 * That is safe without a subtransaction because nothing is done in between but freeing memory.
 *
 * Only host_stop() may be called by other threads than the main one.
 */
#include "postgres.h"

#include "commands/tablespace.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "core/base/gk_mem.h"
#include "core/spread/gk_spread.h"
#include "gkmeans.h"
#include "pg/pg.h"

/* Bytes of one FileWrite(). */
#define MAX_SPILL_WRITE		(64 * 1024 * 1024)

struct KmPgHost
{
	GkHost		engine;
	MemoryContext context;
	File		spill;			/* -1: not needed so far */
	ErrorData  *error;			/* the kept ERROR */
	MemoryContextCallback release;
	bool		fall_back;		/* a device may fail: the CPU is as good */
	GkSpread	spread;			/* the devices of a job on several */
};

typedef struct SpillWrite
{
	KmPgHost   *host;
	int64_t		offset;
	const char *data;
	size_t		bytes;
} SpillWrite;

bool
km_host_guard(KmPgHost *host, void (*fn) (void *arg), void *arg)
{
	MemoryContext caller = CurrentMemoryContext;
	uint32		held = InterruptHoldoffCount;

	if (host->error != NULL)
		return false;

	PG_TRY();
	{
		fn(arg);
	}
	PG_CATCH();
	{
		/* not into ErrorContext, which FlushErrorState empties */
		MemoryContextSwitchTo(host->context);
		host->error = CopyErrorData();
		FlushErrorState();
		/* an ERROR ends all holds of interrupts, but the caller's are still to be released */
		InterruptHoldoffCount = held;
	}
	PG_END_TRY();

	MemoryContextSwitchTo(caller);
	return host->error == NULL;
}

void
km_host_rethrow(KmPgHost *host)
{
	if (host != NULL && host->error != NULL)
		ReThrowError(host->error);
}

static void *
host_alloc(void *ctx, size_t bytes)
{
	KmPgHost   *host = ctx;

	/* larger sizes are an ERROR even with NO_OOM */
	if (!AllocHugeSizeIsValid(bytes))
		return NULL;
	return MemoryContextAllocExtended(host->context, bytes,
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
}

static void
host_free(void *ctx, void *ptr)
{
	pfree(ptr);
}

static void
check_for_interrupts(void *arg)
{
	CHECK_FOR_INTERRUPTS();
}

static bool
host_poll(void *ctx)
{
	if (likely(!InterruptPending))
		return false;
	return !km_host_guard(ctx, check_for_interrupts, NULL);
}

/* Any thread calls this: it looks at flags that signal handlers set, and at nothing else. */
static bool
host_stop(void *ctx)
{
	return QueryCancelPending || ProcDiePending;
}

/*
 * The file belongs to the current resource owner and goes with it when an ERROR
 * ends the statement.  PostgreSQL keeps to temp_tablespaces and temp_file_limit.
 */
static void
spill_write(void *arg)
{
	SpillWrite *w = arg;
	KmPgHost   *host = w->host;

	if (host->spill < 0)
	{
		PrepareTempTablespaces();
		host->spill = OpenTemporaryFile(false);
	}
	while (w->bytes > 0)
	{
		int			want = (int) Min(w->bytes, MAX_SPILL_WRITE);
		int			written = km_file_write(host->spill, w->data, want, (off_t) w->offset);

		if (written <= 0)
		{
			if (written == 0)
				errno = ENOSPC;
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write to the temporary file \"%s\": %m", FilePathName(host->spill))));
		}
		w->data += written;
		w->bytes -= written;
		w->offset += written;
	}
}

static bool
host_spill_write(void *ctx, int64_t offset, const void *data, size_t bytes)
{
	SpillWrite	w = {ctx, offset, data, bytes};

	return km_host_guard(ctx, spill_write, &w);
}

/*
 * Open the file again if PostgreSQL has closed it for another one, as it does when there are
 * many.  Each function of PostgreSQL's files does that; FileSize() does the least besides.
 */
static void
spill_open(void *arg)
{
	KmPgHost   *host = arg;

	if (FileSize(host->spill) < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open the temporary file \"%s\": %m", FilePathName(host->spill))));
}

/* Valid until PostgreSQL opens another file, for which it may close this one. */
static int
host_spill_fd(void *ctx)
{
	KmPgHost   *host = ctx;

	if (host->spill < 0 || !km_host_guard(host, spill_open, host))
		return -1;
	return FileGetRawDesc(host->spill);
}

static void
warn_device(void *arg)
{
	const GkError *err = arg;

	ereport(WARNING,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("the GPU failed, the CPU does the job: %s", err->message),
			 err->detail[0] != '\0' ? errdetail("%s", err->detail) : 0,
			 errhint("The result is the same. See gkmeans_devices() for the state of the GPU.")));
}

static bool
host_device_failed(void *ctx, const GkError *err)
{
	KmPgHost   *host = ctx;

	if (!host->fall_back || !km_host_guard(host, warn_device, unconstify(GkError *, err)))
		return false;
	km_progress_device("cpu");
	km_stat_fallback();
	return true;
}

static void
warn_lost(void *arg)
{
	const GkError *err = arg;

	ereport(WARNING,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("a device failed, the others do its share: %s", err->message),
			 err->detail[0] != '\0' ? errdetail("%s", err->detail) : 0,
			 errhint("The result is the same. See gkmeans_devices() for the state of the GPUs.")));
}

static bool
host_device_lost(void *ctx, const GkError *err)
{
	KmPgHost   *host = ctx;

	return host->fall_back && km_host_guard(host, warn_lost, unconstify(GkError *, err));
}

static void
host_devices(void *ctx, const char *shares)
{
	km_device_shares(shares);
}

/* A setting's text: its own goes when a function that is called for a row changes the setting. */
static const char *
own_text(MemoryContext context, const char *setting)
{
	return setting != NULL ? MemoryContextStrdup(context, setting) : NULL;
}

GkSpread *
km_host_spread(KmPgHost *host)
{
	host->engine.spread = &host->spread;
	host->spread.rows = own_text(host->context, gkmeans_gpu_rows);
	return &host->spread;
}

void
km_host_fall_back(KmPgHost *host, bool allowed)
{
	host->fall_back = allowed;
}

static void
host_progress(void *ctx, const GkProgress *p)
{
	km_progress_report(p);
}

/* When the context goes, after an ERROR too. */
static void
release(void *arg)
{
	gk_mem_pool_give_all(arg);
}

KmPgHost *
km_host_begin(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gkmeans",
												  ALLOCSET_DEFAULT_SIZES);
	KmPgHost   *host = MemoryContextAllocZero(context, sizeof(KmPgHost));

	host->context = context;
	host->spill = -1;
	host->engine.ctx = host;
	host->engine.alloc = host_alloc;
	host->engine.free = host_free;
	host->engine.keep = true;
	host->release.func = release;
	host->release.arg = host;
	MemoryContextRegisterResetCallback(context, &host->release);
	gk_mem_pool_limit(km_keep_memory_bytes());
	host->engine.poll = host_poll;
	host->engine.stop = host_stop;
	host->engine.spill_write = host_spill_write;
	host->engine.spill_fd = host_spill_fd;
	host->engine.device_failed = host_device_failed;
	host->engine.device_lost = host_device_lost;
	host->engine.devices = host_devices;
	host->engine.progress = host_progress;
	host->engine.threads = gkmeans_threads;
	host->engine.skip = gkmeans_skip_points;
	host->engine.gpu_memory_limit = gkmeans_gpu_memory_limit;
	host->engine.gpu_devices = own_text(context, gkmeans_gpu_devices);
	host->engine.gpu_fault = own_text(context, gkmeans_gpu_fault);
	return host;
}

void
km_host_end(KmPgHost *host)
{
	if (host->spill >= 0)
		FileClose(host->spill);
	MemoryContextDelete(host->context);
}

MemoryContext
km_host_context(KmPgHost *host)
{
	return host->context;
}

const GkHost *
km_host_engine(KmPgHost *host)
{
	return &host->engine;
}
