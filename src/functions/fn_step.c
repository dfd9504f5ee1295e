/*
 * fn_step.c - kmeans_step(): one Lloyd iteration, as a GROUP BY aggregate of points and of a
 * whole relation.
 *
 * The aggregate's state holds the model, and nothing outside it is needed to go on: a
 * distributed executor looks the transition function up anew for every row.  What fn_extra
 * keeps only saves time.
 *
 * A relation is read like that of a fit, so privileges, row-level security, partitions and
 * foreign tables are PostgreSQL's business.  Its rows are not kept: memory is that of a chunk
 * and of the sums (core/partial/gk_partial_threads.h).  Of a distributed table every shard
 * makes its part (rescan_citus.c).
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "core/partial/gk_partial_threads.h"
#include "functions/functions.h"
#include "rescan/rescan.h"
#include "types/state.h"

PG_FUNCTION_INFO_V1(kmeans_step_add);
PG_FUNCTION_INFO_V1(kmeans_step_add_weighted);
PG_FUNCTION_INFO_V1(kmeans_step_relation);

/* ---- the model argument ---- */

typedef struct StepCall
{
	KmeansPoint point;
	bool		numbers;		/* given one by one, as real, float8 or integer */
	MemoryContext cxt;
	/* The last model that had to be detoasted: what it looked like, and what it is. */
	Size		toasted_size;	/* 0: none */
	Size		toasted_room;
	char	   *toasted;
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
remember_toasted(StepCall *call, Pointer raw, uint64 fingerprint)
{
	Size		size = VARSIZE_ANY(raw);

	call->toasted_size = 0;
	if (size > call->toasted_room)
	{
		if (call->toasted != NULL)
			pfree(call->toasted);
		call->toasted = NULL;
		call->toasted = MemoryContextAlloc(call->cxt, size);
		call->toasted_room = size;
	}
	memcpy(call->toasted, raw, size);
	call->toasted_size = size;
	call->fingerprint = fingerprint;
}

static bool
is_remembered(const StepCall *call, Pointer raw, uint64 fingerprint)
{
	return call->toasted_size > 0 && call->fingerprint == fingerprint &&
		VARSIZE_ANY(raw) == call->toasted_size && memcmp(raw, call->toasted, call->toasted_size) == 0;
}

/* Return the state for this call's model: the given one, or a new one. */
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
	if (own != NULL && !plain && is_remembered(call, raw, own->fingerprint))
		return step;

	model = kmeans_model_from_datum(datum);
	if (!plain)
		remember_toasted(call, raw, model->fingerprint);
	if (own == NULL)
		return kmeans_step_make(model, weighted, true, 0, NULL);
	if (VARSIZE(model) != step->model_size || model->fingerprint != own->fingerprint)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the rows of a group have different models"),
				 errhint("Write the model as a subquery: (SELECT model FROM models WHERE name = 'customers').")));
	pfree(model);
	return step;
}

/* ---- rows ---- */

/* Read features given one by one, of the usual types, straight into the buffer. */
static KmVerdict
read_numbers(FunctionCallInfo fcinfo, const KmeansPoint *p, const KmRowRules *rules, double *to, Size stride)
{
	const NullableDatum *arg = &fcinfo->args[p->first];
	KmSeen		seen = {0};

	for (int j = 0; j < p->nargs; j++)
	{
		double		v;

		if (arg[j].isnull && p->fill.value == NULL)
			return KM_ROW_NULL_FEATURE;
		if (arg[j].isnull)
			v = p->fill.value[j];
		else if (p->types[j] == FLOAT4OID)
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

/* Read any point. */
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

/* Read a row into its place in the buffer. */
static KmVerdict
read_row(FunctionCallInfo fcinfo, const KmeansStep *step, StepCall *call, bool weighted, double *to)
{
	const KmeansModel *model = (const KmeansModel *) step->data;
	const KmRowRules rules = {.cosine = model->distance == GK_COSINE};

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
	call->point.fill = (KmFill) {model->d, kmeans_model_fill(model)};
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
	/* a user's aggregate may take it from a table */
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
			step = kmeans_step_flush(step);
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

/* ---- a relation ---- */

typedef struct StepRead
{
	KmPgHost   *host;
	KmSource   *source;
	KmReadOptions read;
	KmReadCounts counts;
	const KmeansModel *model;
	GkPartialWhat what;
} StepRead;

/* Read all rows into partial sums of the threads. */
static GkPartialThreads *
read_sums(StepRead *s)
{
	const GkHost *engine = km_host_engine(s->host);
	KmTables	tables = {0};
	GkPartialThreads *sums;
	GkError		err;

	km_check(s->host, gk_partial_threads_open(engine, &s->what, &sums, &err), &err);
	s->read.take = gk_partial_threads_take;
	s->read.take_arg = sums;
	gk_store_free(km_read(s->host, s->source, &s->read, &s->counts, &tables));
	km_check(s->host, gk_partial_threads_end(sums, &err), &err);
	return sums;
}

/* Make the state, in the caller's memory. */
static KmeansStep *
make_state(const StepRead *s, const GkPartialThreads *sums)
{
	int			shifts[GK_MAX_SHIFTS];
	int			nplanes = gk_partial_threads_shifts(sums, shifts);
	KmeansStep *step = kmeans_step_make(s->model, s->source->weighted, false, nplanes, shifts);
	KmeansStepView view;

	kmeans_step_view(step, &view);
	gk_partial_threads_merge(&view.partial, sums);
	for (int i = 0; i < step->k; i++)
		step->head.rows += view.partial.count[i];
	step->skipped = km_group_rows_left_out(&s->counts);
	return step;
}

/* Read the rows in this server.  NULL: there are none. */
static KmeansStep *
step_here(StepRead *s, const GkModel *model, GkDeviceKind kind)
{
	const GkBackend *device;
	KmeansStep *step;
	float	   *f;

	km_apply_simd();
	s->host = km_host_begin();
	device = km_rescan_choose(s->host, kind, PG_INT64_MAX, model->prep.d, model->k);
	f = gk_alloc(km_host_engine(s->host), (Size) model->k * model->prep.d, sizeof(float));
	if (f == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory for %d centroids", model->k)));
	kmeans_model_prepare(model, f);
	s->what = (GkPartialWhat) {.prep = &model->prep,.k = model->k,.weights = model->weights,.f = f,.device = &device,
		.chunk_bytes = km_rescan_chunk_bytes()};
	step = make_state(s, read_sums(s));
	km_host_end(s->host);
	return step->head.rows > 0 || step->skipped > 0 ? step : NULL;
}

/*
 * kmeans_step(relation regclass, columns text[], model kmeans_model, weight_column text,
 *             nonfinite text, device text)
 * returns kmeans_state
 */
Datum
kmeans_step_relation(PG_FUNCTION_ARGS)
{
	StepRead	s = {.read = {.expect_of = "the model"}};
	GkDeviceKind kind;
	char	  **columns;
	int			ncolumns;
	GkModel		model;
	KmeansStep *step;

	km_require_arg(fcinfo, 0, "relation");
	km_require_arg(fcinfo, 1, "columns");
	km_require_arg(fcinfo, 2, "model");
	columns = km_column_names(PG_GETARG_ARRAYTYPE_P(1), "columns", &ncolumns);
	s.model = PG_GETARG_KMEANS_MODEL(2);
	kmeans_model_view(s.model, &model);
	s.read.expect_d = model.prep.d;
	s.read.distance = model.prep.distance;
	s.read.fill = (KmFill) {model.prep.d, model.fill};
	s.read.skip_nonfinite = km_parse_nonfinite(fcinfo, 4);
	kind = km_parse_device(fcinfo, 5);
	s.source = km_source_open(PG_GETARG_OID(0), columns, ncolumns, km_parse_text(fcinfo, 3), NULL, false);
	/* a state that is too large is known before a long read */
	pfree(kmeans_step_make(s.model, s.source->weighted, false, 0, NULL));

	if (s.source->distributed || km_foreign_sharded(s.source))
		step = km_citus_step(s.source, get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)), s.model,
							 s.read.skip_nonfinite, kind);
	else
		step = step_here(&s, &model, kind);
	if (step == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(step);
}
