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
suitable(const GkFit *fit)
{
	const GkSource *source = fit->source;
	const GkFitOptions *o = &fit->options;

	return !source->weighted && !source->identify && o->engine.distance == GK_EUCLIDEAN && !o->engine.standardize && o->engine.strategy != GK_CROSS_PROCESSING;
}

/* Values that a float does not hold go up as doubles, and so do all others of the row. */
static bool
wide(const GkSource *source)
{
	return source->nruns > 1 || source->runs[0].type != GK_VALUE_FLOAT4;
}

/* The host's memory goes, perhaps by an ERROR: so does what the store has of the device. */
static void
released(void *arg)
{
	GkStaged   *staged = arg;

	if (staged->store != NULL)
		gk_store_unstage(staged->store);
}

void
gk_stage_begin(void *arg, GkStore *store)
{
	GkFit	   *fit = arg;
	const GkFitOptions *o = &fit->options;
	MemoryContext context = gk_host_context(fit->host);
	double		rows = gk_store_expected(store);
	GkStaged   *staged;
	const GkBackend *backend;
	GkStatus	st;
	GkError		err;

	if (o->device == GK_DEVICE_CPU || !suitable(fit) || (o->device == GK_DEVICE_AUTO && rows < 0))
		return;
	backend = gk_choose_backend(fit->host, o->device, (int64) Max(rows, 0), gk_store_features(store), o->engine.k);
	if (backend->stage == NULL)
		return;
	staged = MemoryContextAllocZero(context, sizeof(GkStaged));
	staged->callback.func = released;
	staged->callback.arg = staged;
	MemoryContextRegisterResetCallback(context, &staged->callback);
	st = gk_store_stage(store, backend, wide(fit->source), &err);
	if (st == GK_STOPPED)
		gk_throw(fit->host, st, &err);
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
gk_stage_failed(GkFit *fit, bool loading, GkStatus st, GkError *err)
{
	/* more points than fit are not the device's fault: they are streamed */
	if (st != GK_ERR_DEVICE_MEMORY || !loading)
	{
		if (!gk_go_on_with_cpu(gk_host_engine(fit->host), fit->staged->backend, st, err))
			gk_throw(fit->host, st, err);
		fit->options.device = GK_DEVICE_CPU;
	}
	gk_stage_end(fit);
	fit->stage = false;
	memset(&fit->counts, 0, sizeof(fit->counts));
}

void
gk_stage_end(GkFit *fit)
{
	gk_store_free(fit->staged->store);
	fit->staged->store = NULL;
	fit->staged = NULL;
}
