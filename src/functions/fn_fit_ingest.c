/*
 * fn_fit_ingest.c - rows that go to the GPU while they are read (gk_ingest.c).
 *
 * Whether they do is decided before the first one, so under auto by the planner's idea of
 * how many there are.  If the device fails before the model is there, the rows are read
 * once more: the statement's snapshot is the same, and so are they.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/gk_backend.h"
#include "gkmeans.h"

/* What a device can prepare by itself. */
static bool
suitable(const KmFit *fit)
{
	const KmSource *source = fit->source;
	const KmFitOptions *o = &fit->options;

	return !source->weighted && !source->identify && o->engine.distance == GK_EUCLIDEAN && !o->engine.standardize && o->engine.strategy != GK_CROSS_PROCESSING;
}

/* Values that a float does not hold go up as doubles, and so do all others of the row. */
static bool
wide(const KmSource *source)
{
	return source->nruns > 1 || source->runs[0].type != KM_VALUE_FLOAT4;
}

/* The host's memory goes, perhaps by an ERROR: so does what the store has of the device. */
static void
released(void *arg)
{
	KmIngested   *staged = arg;

	if (staged->store != NULL)
		gk_store_ingest_end(staged->store);
}

void
km_ingest_begin(void *arg, GkStore *store)
{
	KmFit	   *fit = arg;
	const KmFitOptions *o = &fit->options;
	MemoryContext context = km_host_context(fit->host);
	double		rows = gk_store_expected(store);
	KmIngested   *staged;
	const GkBackend *backend;
	GkStatus	st;
	GkError		err;

	if (o->device == GK_DEVICE_CPU || !suitable(fit) || (o->device == GK_DEVICE_AUTO && rows < 0))
		return;
	backend = km_choose_backend(fit->host, o->device, (int64) Max(rows, 0), gk_store_features(store), o->engine.k);
	if (backend->stage == NULL)
		return;
	staged = MemoryContextAllocZero(context, sizeof(KmIngested));
	staged->callback.func = released;
	staged->callback.arg = staged;
	MemoryContextRegisterResetCallback(context, &staged->callback);
	st = gk_store_ingest(store, backend, wide(fit->source), &err);
	if (st == GK_STOPPED)
		km_throw(fit->host, st, &err);
	/* a device that fails now will say so again when all rows are there */
	if (st != GK_OK)
		return;
	ereport(DEBUG1,
			(errmsg("rows of \"%s\" go to the GPU while they are read", fit->source->relname)));
	staged->store = store;
	staged->backend = backend;
	fit->staged = staged;
}

void
km_ingest_failed(KmFit *fit, bool loading, GkStatus st, GkError *err)
{
	/* more points than fit are not the device's fault: they are streamed */
	if (st != GK_ERR_DEVICE_MEMORY || !loading)
	{
		if (!gk_go_on_with_cpu(km_host_engine(fit->host), fit->staged->backend, st, err))
			km_throw(fit->host, st, err);
		fit->options.device = GK_DEVICE_CPU;
	}
	km_ingest_end(fit);
	fit->stage = false;
	memset(&fit->counts, 0, sizeof(fit->counts));
}

void
km_ingest_end(KmFit *fit)
{
	gk_store_free(fit->staged->store);
	fit->staged->store = NULL;
	fit->staged = NULL;
}
