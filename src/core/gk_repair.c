/*
 * gk_repair.c - clusters that lost all their points.
 *
 * An empty cluster is re-seeded at the point farthest from its centroid; several
 * are filled one after the other, so that they do not all take neighbours.
 * Deterministic: ties go by the point's coordinates, not by the row order.
 */
#include "core/gk_engine.h"

GkStatus
gk_repair(GkEngine *e, const int64_t *count, bool finished, int *repaired, GkError *err)
{
	int			d = e->pts->d;
	int			empties = 0;
	bool		known = false;
	gk_int128	phi;
	float	   *point;
	GkStatus	st;

	*repaired = 0;
	for (int i = 0; i < e->k; i++)
		if (count[i] == 0)
			e->empty[empties++] = i;
	if (empties == 0)
		return GK_OK;

	point = gk_alloc(e->host, d, sizeof(float));
	if (point == NULL)
		return gk_fail(err, GK_ERR_MEMORY, "out of memory");
	st = e->backend->seed_begin(e->session, err);
	if (st == GK_OK && finished && e->backend->seed_finished != NULL)
		st = e->backend->seed_finished(e->session, &known, err);
	if (st == GK_OK && !known)
		st = e->backend->seed_update(e->session, e->f, e->k, &phi, err);
	for (int n = 0; st == GK_OK && n < empties; n++)
	{
		int64_t		row;

		st = e->backend->seed_far(e->session, &row, err);
		if (st != GK_OK || row < 0)
			break;				/* every point is on a centroid */
		st = gk_picked_row(e->backend, e->session, e->store, row, point, err);
		if (st != GK_OK)
			break;
		gk_engine_set_point(e, e->empty[n], point);
		(*repaired)++;
		if (n + 1 < empties)
			st = e->backend->seed_update(e->session, e->f + (size_t) e->empty[n] * d, 1, &phi, err);
	}
	e->backend->seed_end(e->session);
	gk_free(e->host, point);
	return st;
}
