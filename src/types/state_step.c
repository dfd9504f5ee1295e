/*
 * state_step.c - a kmeans_state that is a part of a Lloyd step: layout, sums, merge.
 *
 * Rows wait in the state's column-major buffer; a full buffer goes to the engine's kernels as
 * a tile (core/partial/gk_partial.c).  What remains are k * (d + 2) exact integers, so states
 * add up in any order and anywhere.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "cpu/simd/gk_cpu_kernels.h"
#include "gkmeans.h"
#include "types/state.h"

/* ---- layout ---- */

typedef struct Layout
{
	uint64		f,
				raw,
				far,
				count,
				max_d2,
				planes,
				plane,			/* bytes of one */
				size;			/* of the value */
} Layout;

/* Bytes from the value's start; everything is a multiple of 8. */
static void
lay_out(const KmeansStep *s, Layout *l)
{
	uint64		k = s->k;
	uint64		d = s->head.d;

	l->f = offsetof(KmeansStep, data) + MAXALIGN(s->model_size);
	l->raw = l->f + MAXALIGN(k * d * sizeof(float));
	l->far = l->raw + s->room * (d + (s->weighted ? 1 : 0)) * sizeof(double);
	l->count = l->far + MAXALIGN(d * sizeof(float));
	l->max_d2 = l->count + k * sizeof(int64);
	l->planes = l->max_d2 + MAXALIGN(k * sizeof(float));
	l->plane = sizeof(int64) + (k * d + 2 * k) * sizeof(gk_int128);
	l->size = l->planes + s->nplanes * l->plane;
}

uint64
kmeans_step_size(const KmeansStep *step)
{
	Layout		l;

	lay_out(step, &l);
	return l.size;
}

void
kmeans_step_view(const KmeansStep *step, KmeansStepView *view)
{
	char	   *base = (char *) step;
	GkPartial  *p = &view->partial;
	Size		k = step->k;
	Size		kd = k * step->head.d;
	Layout		l;

	lay_out(step, &l);
	view->model = (KmeansModel *) step->data;
	kmeans_model_view(view->model, &view->m);
	view->raw = (double *) (base + l.raw);
	view->f = (float *) (base + l.f);
	p->prep = &view->m.prep;
	p->k = step->k;
	p->weighted = step->weighted;
	p->weights = view->m.weights;
	p->f = view->f;
	p->count = (int64_t *) (base + l.count);
	p->max_d2 = (float *) (base + l.max_d2);
	p->far_d2 = unconstify(float *, &step->far_d2);
	p->far = (float *) (base + l.far);
	p->nplanes = step->nplanes;
	p->planes = view->planes;
	for (int i = 0; i < step->nplanes; i++)
	{
		char	   *at = base + l.planes + i * l.plane;
		GkPlane    *plane = &view->planes[i];

		plane->shift = (int) *(int64 *) at;
		plane->sum = (gk_int128_packed *) (at + sizeof(int64));
		plane->mass = plane->sum + kd;
		plane->inertia = plane->mass + k;
	}
}

/* Bytes that are cleared or copied between two looks for a cancel. */
#define PIECE	((Size) 16 * 1024 * 1024)

static void
clear(char *to, Size bytes)
{
	for (Size at = 0; at < bytes; at += PIECE)
	{
		CHECK_FOR_INTERRUPTS();
		memset(to + at, 0, Min(PIECE, bytes - at));
	}
}

static void
copy(void *to, const void *from, Size bytes)
{
	for (Size at = 0; at < bytes; at += PIECE)
	{
		CHECK_FOR_INTERRUPTS();
		memcpy((char *) to + at, (const char *) from + at, Min(PIECE, bytes - at));
	}
}

KmeansStep *
kmeans_step_make(const KmeansModel *model, bool weighted, bool buffered, int nplanes, const int *shifts)
{
	KmeansStep	head = {.head.magic = KMEANS_STATE_MAGIC,.head.kind = KMEANS_STATE_STEP};
	KmeansStep *step;
	KmeansStepView view;
	Layout		l;

	kmeans_model_refuse_spectral(model, "kmeans_step()");
	kmeans_refuse_distance(model->distance, "kmeans_step()");
	head.head.d = model->d;
	head.k = model->k;
	head.weighted = weighted;
	head.room = buffered ? gk_partial_rows(model->d) : 0;
	head.nplanes = nplanes;
	head.model_size = VARSIZE(model);
	lay_out(&head, &l);
	head.raw_at = (uint32) l.raw;
	if (l.size > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("kmeans_state of %d clusters with %d features would need %llu MB, the limit is %llu MB",
						model->k, model->d, (unsigned long long) (l.size >> 20),
						(unsigned long long) (MaxAllocSize >> 20)),
				 errhint("Use kmeans() or kmeans_fit(), or fewer clusters.")));
	step = palloc(l.size);
	clear((char *) step, l.size);
	memcpy(step, &head, offsetof(KmeansStep, data));
	SET_VARSIZE(step, l.size);
	copy(step->data, model, VARSIZE(model));
	for (int i = 0; i < nplanes; i++)
		*(int64 *) ((char *) step + l.planes + i * l.plane) = shifts[i];
	kmeans_step_view(step, &view);
	kmeans_model_prepare(&view.m, view.f);
	return step;
}

static int
by_value(const void *a, const void *b)
{
	return *(const int *) a - *(const int *) b;
}

/* A copy with more planes; or without a buffer for rows. */
static KmeansStep *
copy_step(const KmeansStep *from, bool buffered, int more, const int *shifts)
{
	int			all[GK_MAX_SHIFTS];
	KmeansStepView old;
	KmeansStepView new;
	KmeansStep *to;
	int			n = from->nplanes + more;
	int			at = 0;
	Size		d = from->head.d;
	Size		k = from->k;

	kmeans_step_view(from, &old);
	for (int i = 0; i < from->nplanes; i++)
		all[i] = old.planes[i].shift;
	if (more > 0)
		memcpy(all + from->nplanes, shifts, more * sizeof(int));
	qsort(all, n, sizeof(int), by_value);

	to = kmeans_step_make(old.model, from->weighted, buffered, n, all);
	kmeans_step_view(to, &new);
	to->head.rows = from->head.rows;
	to->skipped = from->skipped;
	to->far_d2 = from->far_d2;
	memcpy(new.partial.far, old.partial.far, d * sizeof(float));
	memcpy(new.partial.count, old.partial.count, k * sizeof(int64));
	memcpy(new.partial.max_d2, old.partial.max_d2, k * sizeof(float));
	if (buffered && from->room > 0)
	{
		to->fill = from->fill;
		memcpy(new.raw, old.raw, from->room * (d + (from->weighted ? 1 : 0)) * sizeof(double));
	}
	for (int i = 0; i < n; i++)
	{
		if (at == from->nplanes || new.planes[i].shift != old.planes[at].shift)
			continue;
		/* mass and inertia follow the sums */
		copy(new.planes[i].sum, old.planes[at].sum, (k * d + 2 * k) * sizeof(gk_int128));
		at++;
	}
	return to;
}

/* ---- rows ---- */

/* Working memory of the kernels: one block that grows, for the life of the process. */
static void
bind_tile(GkTile *tile, int d, int k, int room)
{
	static char *block = NULL;
	static Size size = 0;
	Size		need = gk_tile_bytes(d, k, room) + 64;

	if (need > size)
	{
		if (block != NULL)
			pfree(block);
		block = NULL;
		size = 0;
		block = MemoryContextAllocHuge(TopMemoryContext, need);
		size = need;
	}
	gk_tile_bind(tile, (void *) TYPEALIGN(64, block), d, k, room);
}

KmeansStep *
kmeans_step_flush(KmeansStep *step)
{
	int			shifts[GK_MAX_SHIFTS];
	int			missing;
	KmeansStepView view;
	GkTile		tile;
	GkError		err;
	const double *weight;

	if (step->fill == 0)
		return step;
	km_apply_simd();
	kmeans_step_view(step, &view);
	bind_tile(&tile, step->head.d, step->k, step->room);
	weight = step->weighted ? view.raw + (Size) step->head.d * step->room : NULL;
	if (gk_partial_assign(&view.partial, &tile, view.raw, step->room, step->fill, weight,
						  shifts, &missing, &err) != GK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("%s", err.message),
				 errhint("%s", err.hint)));
	if (missing > 0)
	{
		step = copy_step(step, true, missing, shifts);
		kmeans_step_view(step, &view);
		if (weight != NULL)
			weight = view.raw + (Size) step->head.d * step->room;
	}
	gk_partial_add(&view.partial, &tile, weight);
	step->head.rows += step->fill;
	step->fill = 0;
	return step;
}

KmeansStep *
kmeans_step_flushed(const KmeansStep *step)
{
	if (step->fill > 0)
		step = kmeans_step_flush(copy_step(step, true, 0, NULL));
	return copy_step(step, false, 0, NULL);
}

KmeansStep *
kmeans_step_merge(KmeansStep *to, const KmeansStep *from)
{
	int			shifts[GK_MAX_SHIFTS];
	int			missing = 0;
	int			slice = kmeans_centroid_slice(to->head.d);
	KmeansStepView a;
	KmeansStepView b;

	if (to->k != from->k || to->head.d != from->head.d)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("states of %d clusters with %d features and of %d clusters with %d features cannot be combined",
						to->k, to->head.d, from->k, from->head.d)));
	if (from->fill > 0)
		from = kmeans_step_flushed(from);
	kmeans_step_view(to, &a);
	kmeans_step_view(from, &b);
	if (a.model->fingerprint != b.model->fingerprint)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("states of different models cannot be combined")));
	if (to->weighted != from->weighted)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("states with and without weights cannot be combined")));

	for (int i = 0, j = 0; i < from->nplanes; i++)
	{
		while (j < to->nplanes && a.planes[j].shift < b.planes[i].shift)
			j++;
		if (j == to->nplanes || a.planes[j].shift != b.planes[i].shift)
			shifts[missing++] = b.planes[i].shift;
	}
	if (missing > 0)
	{
		to = copy_step(to, to->room > 0, missing, shifts);
		kmeans_step_view(to, &a);
	}
	for (int c = 0; c < to->k; c += slice)
	{
		CHECK_FOR_INTERRUPTS();
		gk_partial_merge(&a.partial, &b.partial, c, Min(c + slice, to->k));
	}
	kmeans_state_count(&to->head.rows, from->head.rows);
	kmeans_state_count(&to->skipped, from->skipped);
	return to;
}
