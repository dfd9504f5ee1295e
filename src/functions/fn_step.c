/*
 * fn_step.c - kmeans_step(model, point): one Lloyd iteration as a GROUP BY
 * aggregate.
 *
 * A row is checked and put into the state's column-major buffer; a full buffer
 * goes to the engine's kernels as a tile (gk_partial.c).  What remains are
 * k * (d + 2) exact integers, so states add up in any order and anywhere.
 *
 * The state holds the model, and nothing outside it is needed to go on: a
 * distributed executor looks the transition function up anew for every row.
 * What fn_extra keeps only saves time.
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "cpu/simd/gk_cpu_kernels.h"
#include "gkmeans.h"
#include "functions/fn_point.h"
#include "types/state.h"

PG_FUNCTION_INFO_V1(kmeans_step_add);
PG_FUNCTION_INFO_V1(kmeans_step_add_weighted);
PG_FUNCTION_INFO_V1(kmeans_step_finish);

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

KmeansStep *
kmeans_step_make(const KmeansModel *model, bool weighted, bool buffered, int nplanes, const int *shifts)
{
	KmeansStep	head = {.head.magic = KMEANS_STATE_MAGIC,.head.kind = KMEANS_STATE_STEP};
	KmeansStep *step;
	KmeansStepView view;
	Layout		l;

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
	step = palloc0(l.size);
	memcpy(step, &head, offsetof(KmeansStep, data));
	SET_VARSIZE(step, l.size);
	memcpy(step->data, model, VARSIZE(model));
	for (int i = 0; i < nplanes; i++)
		*(int64 *) ((char *) step + l.planes + i * l.plane) = shifts[i];
	kmeans_step_view(step, &view);
	gk_model_prepare(&view.m.prep, view.m.centroids, view.m.k, view.f);
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
		memcpy(new.planes[i].sum, old.planes[at].sum, (k * d + 2 * k) * sizeof(gk_int128));
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

/* Assign the waiting rows and add them up; the step may have to move. */
static KmeansStep *
flush(KmeansStep *step)
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
		step = flush(copy_step(step, true, 0, NULL));
	return copy_step(step, false, 0, NULL);
}

KmeansStep *
kmeans_step_merge(KmeansStep *to, const KmeansStep *from)
{
	int			shifts[GK_MAX_SHIFTS];
	int			missing = 0;
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
	gk_partial_merge(&a.partial, &b.partial);
	kmeans_state_count(&to->head.rows, from->head.rows);
	kmeans_state_count(&to->skipped, from->skipped);
	return to;
}

/* ---- the model argument ---- */

typedef struct StepCall
{
	KmeansPoint point;
	bool		numbers;		/* given one by one, as real, float8 or integer */
	MemoryContext cxt;
	/* The last model that had to be detoasted: what it looked like, and what it is. */
	Size		packed_size;	/* 0: none */
	Size		packed_room;
	char	   *packed;
	uint64		fingerprint;
} StepCall;

static StepCall *
step_call(FunctionCallInfo fcinfo, int nargs)
{
	StepCall   *call = fcinfo->flinfo->fn_extra;

	if (call == NULL)
	{
		call = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(StepCall));
		call->cxt = fcinfo->flinfo->fn_mcxt;
		kmeans_point_init(&call->point, fcinfo, 2, nargs, KM_POINT_TO_STEP, call->cxt);
		call->numbers = !call->point.whole;
		for (int j = 0; j < nargs; j++)
			call->numbers &= call->point.types[j] == FLOAT4OID ||
				call->point.types[j] == FLOAT8OID || call->point.types[j] == INT4OID;
		fcinfo->flinfo->fn_extra = call;
	}
	return call;
}

/* A toast pointer or compressed bytes: small enough to be compared as they are. */
static void
remember_packed(StepCall *call, Pointer raw, uint64 fingerprint)
{
	Size		size = VARSIZE_ANY(raw);

	call->packed_size = 0;
	if (size > call->packed_room)
	{
		if (call->packed != NULL)
			pfree(call->packed);
		call->packed = NULL;
		call->packed = MemoryContextAlloc(call->cxt, size);
		call->packed_room = size;
	}
	memcpy(call->packed, raw, size);
	call->packed_size = size;
	call->fingerprint = fingerprint;
}

static bool
is_packed(const StepCall *call, Pointer raw, uint64 fingerprint)
{
	return call->packed_size > 0 && call->fingerprint == fingerprint &&
		VARSIZE_ANY(raw) == call->packed_size && memcmp(raw, call->packed, call->packed_size) == 0;
}

/* The state for this call's model: the given one, or a new one. */
static KmeansStep *
step_for_model(KmeansStep *step, Datum datum, StepCall *call, bool weighted)
{
	Pointer		raw = DatumGetPointer(datum);
	bool		plain = VARATT_IS_4B_U(raw);
	const KmeansModel *own = step == NULL ? NULL : (const KmeansModel *) step->data;
	KmeansModel *model;

	if (own != NULL && plain && VARSIZE(raw) == step->model_size &&
		((const KmeansModel *) raw)->fingerprint == own->fingerprint)
		return step;
	if (own != NULL && !plain && is_packed(call, raw, own->fingerprint))
		return step;

	model = kmeans_model_from_datum(datum);
	if (!plain)
		remember_packed(call, raw, model->fingerprint);
	if (own == NULL)
		return kmeans_step_make(model, weighted, true, 0, NULL);
	if (VARSIZE(model) != step->model_size || model->fingerprint != own->fingerprint)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("kmeans_step needs the same model for all rows of a group")));
	pfree(model);
	return step;
}

/* ---- SQL ---- */

/* Features given one by one, the usual types: straight into the buffer. */
static KmVerdict
read_numbers(FunctionCallInfo fcinfo, const KmeansPoint *p, const KmRowRules *rules, double *to, Size stride)
{
	const NullableDatum *arg = &fcinfo->args[p->first];
	KmSeen		seen = {0};

	for (int j = 0; j < p->nargs; j++)
	{
		double		v;

		if (arg[j].isnull)
			return KM_ROW_NULL_FEATURE;
		if (p->types[j] == FLOAT4OID)
			v = DatumGetFloat4(arg[j].value);
		else if (p->types[j] == FLOAT8OID)
			v = DatumGetFloat8(arg[j].value);
		else
			v = DatumGetInt32(arg[j].value);
		km_see_feature(&seen, v);
		to[j * stride] = v;
	}
	return km_judge_seen(&seen, rules);
}

/* Any point. */
static KmVerdict
read_point(FunctionCallInfo fcinfo, KmeansPoint *p, const KmRowRules *rules, int d, double *to, Size stride)
{
	if (!kmeans_point_read(p, fcinfo))
		return KM_ROW_NULL_FEATURE;
	km_check_features(p->d, d, &p->origin);
	for (int j = 0; j < d; j++)
		to[j * stride] = p->values[j];
	return km_judge_point(p->values, d, rules);
}

/* A row into its place in the buffer. */
static KmVerdict
read_row(FunctionCallInfo fcinfo, const KmeansStep *step, StepCall *call, bool weighted, double *to)
{
	const KmRowRules rules = {.cosine = ((const KmeansModel *) step->data)->distance == GK_COSINE};

	if (weighted)
	{
		double	   *weight = to + (Size) step->head.d * step->room;
		KmVerdict	verdict;

		if (PG_ARGISNULL(3))
			return KM_ROW_NO_WEIGHT;
		*weight = PG_GETARG_FLOAT8(3);
		verdict = km_judge_weight(*weight);
		if (verdict != KM_ROW_KEPT)
			return verdict;
	}
	if (!call->numbers)
		return read_point(fcinfo, &call->point, &rules, step->head.d, to, step->room);
	km_check_features(call->point.nargs, step->head.d, &call->point.origin);
	return read_numbers(fcinfo, &call->point, &rules, to, step->room);
}

static Datum
transition(FunctionCallInfo fcinfo, const char *name, int nargs, bool weighted)
{
	KmeansStep *step = (KmeansStep *) kmeans_state_arg(fcinfo, KMEANS_STATE_STEP, name);
	static const KmRowRules rules;	/* none that leaves out what is not finite */
	StepCall   *call;
	double	   *to;
	KmVerdict	verdict;

	if (PG_ARGISNULL(1))
	{
		if (step == NULL)
			PG_RETURN_NULL();
		PG_RETURN_POINTER(step);
	}
	call = step_call(fcinfo, nargs);
	step = step_for_model(step, PG_GETARG_DATUM(1), call, weighted);
	/* an aggregate of a user's may take it from a table */
	if (step->room == 0 || step->weighted != weighted)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("kmeans_state is a finished part of a step and takes no more rows")));

	/* The row's place; it counts only when `fill` does. */
	to = (double *) ((char *) step + step->raw_at) + step->fill;
	verdict = read_row(fcinfo, step, call, weighted, to);
	if (km_keeps(verdict, &rules, &call->point.origin, to, step->room, step->head.d))
	{
		if (++step->fill == step->room)
			step = flush(step);
	}
	else
		step->skipped++;
	PG_RETURN_POINTER(step);
}

/* kmeans_step_add(state kmeans_state, model kmeans_model, VARIADIC point "any") returns kmeans_state */
Datum
kmeans_step_add(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, "kmeans_step_add", PG_NARGS() - 2, false);
}

/* kmeans_step_add_weighted(state kmeans_state, model kmeans_model, point float8[], weight float8) returns kmeans_state */
Datum
kmeans_step_add_weighted(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, "kmeans_step_add_weighted", 1, true);
}

/* One entry more than the model's; gkmeans' own history is not longer than iterations. */
static double *
append(const double *history, int n, double v)
{
	double	   *to = palloc_extended((n + 1) * sizeof(double), MCXT_ALLOC_HUGE);

	memcpy(to, history, n * sizeof(double));
	to[n] = v;
	return to;
}

/* kmeans_finish(state kmeans_state) returns kmeans_model */
Datum
kmeans_step_finish(PG_FUNCTION_ARGS)
{
	KmeansStep *step = kmeans_step_flushed(kmeans_step_from_datum(PG_GETARG_DATUM(0)));
	KmeansStepView view;
	GkModel		m;
	GkPartialResult r;
	GkError		err;
	const char *name;
	char	  **columns;
	Size		kd = (Size) step->k * step->head.d;

	if (step->head.rows == 0)
		PG_RETURN_NULL();
	kmeans_step_view(step, &view);
	m = view.m;
	r.centroids = palloc_extended(kd * sizeof(double), MCXT_ALLOC_HUGE);
	memcpy(r.centroids, m.centroids, kd * sizeof(double));
	r.size = palloc(step->k * sizeof(int64));
	r.cluster_inertia = palloc(step->k * sizeof(double));
	r.radius = palloc(step->k * sizeof(double));
	r.mean = palloc(step->head.d * sizeof(double));
	gk_partial_finish(&view.partial, &r);

	m.centroids = r.centroids;
	m.size = r.size;
	m.cluster_inertia = r.cluster_inertia;
	m.radius = r.radius;
	m.inertia = r.inertia;
	m.rows_used = step->head.rows;
	m.rows_skipped = step->skipped;
	m.iterations = Min(m.iterations, PG_INT32_MAX - 1) + 1;
	m.converged = !r.moved;
	m.history_inertia = append(m.history_inertia, m.history_len, r.inertia);
	m.history_shift = append(m.history_shift, m.history_len, r.shift);
	m.history_len++;
	strlcpy(m.device, "cpu", sizeof(m.device));
	m.context_ms = m.upload_ms = 0.0;
	strlcpy(m.strategy, "aggregate", sizeof(m.strategy));

	columns = palloc(Max(view.model->ncolumns, 1) * sizeof(char *));
	name = kmeans_model_names(view.model);
	for (int i = 0; i < view.model->ncolumns; i++)
	{
		columns[i] = unconstify(char *, name);
		name += strlen(name) + 1;
	}
	km_check(NULL, gk_model_check_range(&m, &err), &err);
	kmeans_model_validate(&m, columns, view.model->ncolumns, view.model->columns_array,
						  ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE);
	PG_RETURN_POINTER(kmeans_model_assemble(&m, columns, view.model->ncolumns,
											view.model->columns_array));
}
