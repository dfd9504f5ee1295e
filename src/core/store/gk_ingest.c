/*
 * gk_ingest.c - rows that go to a device while they are read, and stay nowhere else.
 *
 * The store's chunk is memory that the device fetches from: it is filled like any other,
 * sent when it is full, and forgotten.  The device prepares the points when all are there.
 * No copy in main memory is found, filled, prepared and read again: that is most of what
 * loading takes beside the reading.
 *
 * If the device fails, the rows are nowhere.  Those that still come are dropped, and
 * gk_store_prepare() says why; whoever loads reads them once more, without a stage.
 */
#include <string.h>

#include "core/gk_backend.h"
#include "core/store/gk_store.h"

/* Rows that are dropped at a time. */
#define LOST_ROWS		4096

/* A status of a stage's call, of which a device's failure is kept for later. */
static GkStatus
keep_failure(GkStore *s, GkStatus st, const GkError *err)
{
	if (st != GK_ERR_DEVICE && st != GK_ERR_DEVICE_MEMORY)
		return st;
	s->lost = *err;
	s->away->close(s->staged);
	s->staged = NULL;
	return GK_OK;
}

GkStatus
gk_store_ingest(GkStore *store, const GkBackend *backend, bool wide, GkError *err)
{
	const GkHost *host = store->host;
	GkProblem	problem = {.host = host,.core = &gk_core,.store = store,
		.gpu_memory_limit = host->gpu_memory_limit,.gpu_devices = host->gpu_devices,
	.gpu_fault = host->gpu_fault};
	double		start = gk_now_ms();
	GkStatus	st;

	if (store->pts.n > 0 || store->pts.weighted || store->pts.naux > 0 || backend->stage == NULL)
		return gk_fail(err, GK_ERR_INTERNAL, "these rows cannot go to a device as they come");
	st = backend->stage->open(&problem, store->expected > 0 ? (int64_t) store->expected : 0, wide, &store->staged, err);
	if (st == GK_OK)
	{
		store->away = backend;
		memset(store->wide, wide, store->columns * sizeof(bool));
	}
	store->stage_ms = gk_now_ms() - start;
	return st;
}

double
gk_store_ingest_ms(const GkStore *store)
{
	return store->stage_ms;
}

bool
gk_store_ingested(const GkStore *store)
{
	return store->away != NULL;
}

GkStatus
gk_ingest_chunk(GkStore *store, GkChunk *c, GkError *err)
{
	if (store->staged != NULL)
	{
		void	   *to = NULL;
		GkStatus	st = store->away->stage->room(store->staged, &to, &c->stride, err);

		c->data = to;
		if ((st = keep_failure(store, st, err)) != GK_OK || store->staged != NULL)
			return st;
	}
	if (store->lost_rows == NULL)
		store->lost_rows = gk_alloc(store->host, (size_t) store->columns * LOST_ROWS, sizeof(double));
	if (store->lost_rows == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	c->data = store->lost_rows;
	c->stride = LOST_ROWS;
	return GK_OK;
}

GkStatus
gk_ingest_send(GkStore *store, GkChunk *c, GkError *err)
{
	if (store->staged == NULL)
		return GK_OK;
	return keep_failure(store, store->away->stage->send(store->staged, c->rows, err), err);
}

GkStatus
gk_ingest_prepare(GkStore *store, const GkPrep *prep, GkMoments *moments, GkError *err)
{
	double		start = gk_now_ms();
	GkStatus	st = GK_OK;

	if (store->staged != NULL)
		st = keep_failure(store, store->away->stage->prepare(store->staged, prep, moments, err), err);
	store->stage_ms += gk_now_ms() - start;
	if (st == GK_OK && store->staged == NULL)
	{
		*err = store->lost;
		st = err->code;
	}
	return st;
}

GkSession *
gk_ingest_take(GkStore *store)
{
	GkSession  *session = store->staged;

	store->staged = NULL;
	return session;
}

void
gk_store_ingest_end(GkStore *store)
{
	if (store->away == NULL)
		return;
	/* an open chunk's memory is the session's */
	for (int i = 0; i < store->pts.nchunks; i++)
		if (!store->pts.chunks[i].sealed)
			store->pts.chunks[i].data = NULL;
	if (store->staged != NULL)
		store->away->close(store->staged);
	store->staged = NULL;
	gk_free(store->host, store->lost_rows);
	store->lost_rows = NULL;
}
