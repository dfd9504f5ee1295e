/*
 * fn_fit_device.c - the device of a fit, beside the reading of its rows.
 *
 * A session's first call on a GPU has to find the GPUs and to open one, or several.  A thread does
 * that while rows are read (gk_registry.c), in two steps, since devices are chosen in between: which
 * ones are usable is known by then, and places on them may have to be taken.  Rows stay in main
 * memory meanwhile.  Where they may go to GPUs while they are read, those that are there go up
 * when these are open, and the others as they come (gk_ingest.c, gk_spread_ingest.c); that is waited for
 * when gkmeans.memory_limit leaves no room for more rows, or all are there.
 *
 * A session that has its devices open takes all of these steps before the first row.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/spread/gk_spread.h"
#include "functions/functions.h"

/* Rows that went up. */
typedef struct KmIngested
{
	MemoryContextCallback callback;
	GkStore    *store;			/* in the host's memory; NULL: it is freed */
} KmIngested;

/* Give back what the store has of the device before the host's memory goes, perhaps by an ERROR. */
static void
release_device(void *arg)
{
	KmIngested *ingested = arg;

	if (ingested->store != NULL)
		gk_store_ingest_end(ingested->store);
}

/* Can the job have several devices?  Cross-processing is one GPU and the CPU already. */
static bool
may_share(const KmFitOptions *options)
{
	return options->engine.strategy != GK_CROSS_PROCESSING;
}

/* Can devices prepare the rows by themselves?  The CPU's are read into main memory. */
static bool
devices_prepare(const KmFit *fit)
{
	const KmSource *source = fit->source;
	const GkOptions *o = &fit->options.engine;

	return !source->weighted && !source->identify && o->distance == GK_EUCLIDEAN && !o->standardize &&
		o->strategy != GK_CROSS_PROCESSING && fit->options.device != GK_DEVICE_BOTH;
}

/* Is it the CPU's work, whatever device was asked for? */
static bool
left_to_cpu(const KmFit *fit)
{
	return fit->balanced || fit->options.engine.distance == GK_MANHATTAN || fit->options.engine.distance == GK_PARTIAL;
}

/* Choose the devices, take places on them if the rows may go up, and have them opened. */
static void
choose(KmFitDevice *d, bool wait)
{
	KmFit	   *fit = d->fit;
	GkDeviceKind kind = fit->options.device;
	int64		rows = (int64) Max(gk_store_expected(d->store), 0);
	int			features = gk_store_features(d->store);
	int			k = fit->options.engine.k;

	d->step = KM_DEVICE_DECIDED;
	d->backend = km_choose_backend_soon(fit->host, kind, rows, features, k, may_share(&fit->options), &d->gpu);
	if (d->gpu < 0)
		return;
	if (d->ingest && d->backend->ingest != NULL)
	{
		if (!km_take_places(fit->host, kind, d->gpu, wait))
			return;
		d->step = KM_DEVICE_OPENING;
	}
	km_open_devices(fit->host, d->gpu);
}

/* They are open, unless that failed: then opening them once more, for rows in memory, tells why. */
static void
prepare_to_send(KmFitDevice *d)
{
	MemoryContext context = km_host_context(d->fit->host);
	KmIngested *ingested;

	d->step = KM_DEVICE_DECIDED;
	if (!km_devices_are_open(d->fit->host, d->gpu) || !gk_store_can_ingest(d->store))
		return;
	ingested = MemoryContextAllocZero(context, sizeof(KmIngested));
	ingested->callback.func = release_device;
	ingested->callback.arg = ingested;
	MemoryContextRegisterResetCallback(context, &ingested->callback);
	ingested->store = d->store;
	d->ingested = ingested;
	d->step = KM_DEVICE_SENDING;
}

/* Go on as far as that is possible without waiting. */
static void
advance(KmFitDevice *d, bool wait)
{
	ErrorContextCallback *query = error_context_stack;

	error_context_stack = d->context;
	if (d->step == KM_DEVICE_UNKNOWN)
		choose(d, wait);
	if (d->step == KM_DEVICE_OPENING && !gk_registry_busy())
		prepare_to_send(d);
	if (d->step == KM_DEVICE_DECIDED)
		gk_store_ask(d->store, NULL, NULL);
	error_context_stack = query;
}

static void
tell(void *arg)
{
	const KmFitDevice *d = arg;
	bool		several = d->backend == &gk_spread_backend;

	ereport(DEBUG1,
			(errmsg(several ? "rows of \"%s\" go to several GPUs while they are read" : "rows of \"%s\" go to the GPU while they are read",
					d->fit->source->relname),
			 errdetail(several ? "%lld rows came before these were open." : "%lld rows came before it was open.",
					   (long long) d->before)));
}

/* A device that fails now will say so again when all rows are there. */
static GkStatus
send_rows(KmFitDevice *d, GkError *err)
{
	KmFit	   *fit = d->fit;
	const KmSource *source = fit->source;

	/* one value that a float does not hold, like most means, makes doubles of its row */
	bool		wide = fit->options.fill_nulls || source->nruns > 1 || source->runs[0].type != KM_VALUE_FLOAT4;
	GkStatus	st;

	d->before = gk_store_rows(d->store);
	st = gk_store_ingest(d->store, d->backend, wide, err);
	d->step = KM_DEVICE_DECIDED;
	gk_store_ask(d->store, NULL, NULL);
	if (st == GK_STOPPED)
		return st;
	if (st == GK_OK)
		return km_host_guard(fit->host, tell, d) ? GK_OK : gk_fail(err, GK_ERR_HOST, "could not say where the rows go");
	d->ingested->store = NULL;
	d->ingested = NULL;
	return GK_OK;
}

static void
advance_guarded(void *arg)
{
	/* other sessions' jobs may take long, and helper threads wait */
	advance(arg, false);
}

/* GkAsk: between batches of rows, with the engine on the stack. */
static GkStatus
ask(void *arg, bool now, GkError *err)
{
	KmFitDevice *d = arg;
	KmPgHost   *host = d->fit->host;

	while (d->step != KM_DEVICE_DECIDED)
	{
		if (gk_registry_busy())
		{
			if (!now || !d->ingest)
				return GK_OK;
			if (!gk_registry_wait(km_host_engine(host)))
				return GK_STOPPED;
		}
		if (!km_host_guard(host, advance_guarded, d))
			return gk_fail(err, GK_ERR_HOST, "could not choose a device");
		if (d->step == KM_DEVICE_SENDING)
			return send_rows(d, err);
	}
	return GK_OK;
}

void
km_fit_device_begin(void *arg, GkStore *store)
{
	KmFitDevice *d = arg;
	KmFit	   *fit = d->fit;
	GkDeviceKind kind = fit->options.device;
	GkStatus	st;
	GkError		err;

	/* under auto the planner's estimate decides, since it has to be decided before the first row */
	if (left_to_cpu(fit) ||
		!gk_registry_wants_gpu(kind, (int64_t) Max(gk_store_expected(store), 0), gk_store_features(store), fit->options.engine.k))
		return;
	d->store = store;
	d->step = KM_DEVICE_UNKNOWN;
	d->ingest = d->ingest && devices_prepare(fit);
	gk_store_ask(store, ask, d);
	if (km_look_for_devices())
		return;
	advance(d, true);
	if (d->step == KM_DEVICE_SENDING && (st = send_rows(d, &err)) != GK_OK)
		km_throw(fit->host, st, &err);
}

bool
km_fit_device_has_rows(const KmFitDevice *d)
{
	return d->ingested != NULL;
}

void
km_fit_device_forget(KmFitDevice *d)
{
	if (d->ingested != NULL)
		d->ingested->store = NULL;
	d->ingested = NULL;
}

const GkBackend *
km_fit_devices(KmPgHost *host, const KmFitOptions *options, int64 n, int d, int k)
{
	if (!may_share(options))
		return km_choose_backend(host, options->device, n, d, k);
	return km_choose_devices(host, options->device, n, d, k);
}
