#include <string.h>

#include "core/gk_backend.h"
#include "gk_testread.h"

static bool
device_lost(void *ctx, const GkError *err)
{
	(void) ctx;
	(void) err;
	return true;
}

static void
arm(Answer *a, const Reading *r)
{
	a->host.stop_at = r->stop_at > 0 ? a->host.polls + r->stop_at : 0;
	a->host.fail_at = r->fail_at > 0 ? a->host.allocs + r->fail_at : 0;
}

/* *up: the devices had the rows; *prepared: all of them. */
static GkStatus
read_once(Answer *a, const Problem *p, const GkBackend *backend, bool ingest, Reading *r, bool *up, bool *prepared, GkError *err)
{
	int64_t		before = r->before < p->n ? r->before : p->n;
	GkStore    *s;
	GkStatus	st = gk_store_create(&a->host.host, p->d, false, 0, r->chunk, SIZE_MAX, &s, err);

	*up = *prepared = false;
	if (st != GK_OK)
		return st;
	r->reads++;
	gk_store_expect(s, r->expected);
	st = fill_store(s, p->x, NULL, before, p->d, NULL, err);
	if (!r->in_fit)
		arm(a, r);
	/* a device that fails now leaves the rows where they are */
	if (st == GK_OK && ingest)
	{
		st = gk_store_ingest(s, backend, r->wide, err);
		*up = st == GK_OK;
		r->up += *up;
		st = st == GK_STOPPED ? st : GK_OK;
	}
	if (st == GK_OK)
		st = fill_store(s, p->x + before * p->d, NULL, p->n - before, p->d, NULL, err);
	if (st == GK_OK)
		st = gk_store_prepare(s, GK_EUCLIDEAN, false, err);
	*prepared = st == GK_OK;
	if (r->in_fit)
		arm(a, r);
	if (st == GK_OK)
		st = gk_fit(s, gk_store_reader(s) != NULL ? gk_store_reader(s) : backend, &p->opt, NULL, &a->model, err);
	gk_store_free(s);
	return st;
}

static void
drop_left_out(GkSpread *spread)
{
	int			n = 0;

	for (int i = 0; i < spread->n; i++)
		if ((spread->left_out >> spread->device[i].number & 1) == 0)
			spread->device[n++] = spread->device[i];
	spread->n = n;
}

void
read_and_fit(Answer *a, const Problem *p, GkSpread *spread, Reading *r, GkError *err)
{
	const GkBackend *backend = spread != NULL ? &gk_spread_backend : &gk_cpu_backend;
	bool		ingest = spread != NULL;
	bool		up;
	bool		prepared;

	a->host.host.spread = spread;
	a->host.host.device_lost = device_lost;
	r->reads = r->up = r->lost = 0;
	while ((a->status = read_once(a, p, backend, ingest, r, &up, &prepared, err)) != GK_OK && up)
		if (a->status == GK_ERR_DEVICE_MEMORY && !prepared)
			ingest = false;
		else if (gk_spread_leave_out(spread, a->status, err))
		{
			r->lost++;
			drop_left_out(spread);
		}
		else if (gk_spread_is_loss(a->status))
		{
			backend = &gk_cpu_backend;
			ingest = false;
		}
		else
			break;
	r->on_cpu = backend == &gk_cpu_backend;
}
