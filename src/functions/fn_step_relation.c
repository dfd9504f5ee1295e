/*
 * fn_step_relation.c - kmeans_step(relation, columns, model): the part of a
 * step that a whole relation has, as a state.
 *
 * The relation is read like that of a fit, so privileges, row-level security,
 * partitions and foreign tables are PostgreSQL's business.  Its rows are not kept:
 * memory is that of a chunk and of the sums (core/partial/gk_partial_threads.h).  Of a distributed table
 * every shard makes its part (rescan_citus.c).
 */
#include "postgres.h"

#include "utils/lsyscache.h"

#include "core/partial/gk_partial_threads.h"
#include "gkmeans.h"
#include "rescan/rescan.h"
#include "relation/rel_rules.h"
#include "types/state.h"

PG_FUNCTION_INFO_V1(kmeans_step_relation);

typedef struct StepRead
{
	KmPgHost   *host;
	KmSource   *source;
	KmReadOptions read;
	KmReadCounts counts;
	const KmeansModel *model;
	GkPartialWhat what;
} StepRead;

/* All rows, as parts. */
static GkPartialThreads *
read_parts(StepRead *s)
{
	const GkHost *engine = km_host_engine(s->host);
	KmTables	tables = {0};
	GkPartialThreads    *parts;
	GkError		err;

	km_check(s->host, gk_partial_threads_open(engine, &s->what, &parts, &err), &err);
	s->read.take = gk_partial_threads_take;
	s->read.take_arg = parts;
	gk_store_free(km_read(s->host, s->source, &s->read, &s->counts, &tables));
	km_check(s->host, gk_partial_threads_end(parts, &err), &err);
	return parts;
}

/* In the caller's memory. */
static KmeansStep *
make_state(const StepRead *s, const GkPartialThreads *parts)
{
	int			shifts[GK_MAX_SHIFTS];
	int			nplanes = gk_partial_threads_shifts(parts, shifts);
	KmeansStep *step = kmeans_step_make(s->model, s->source->weighted, false, nplanes, shifts);
	KmeansStepView view;

	kmeans_step_view(step, &view);
	gk_partial_threads_merge(&view.partial, parts);
	for (int i = 0; i < step->k; i++)
		step->head.rows += view.partial.count[i];
	step->skipped = km_group_rows_left_out(&s->counts);
	return step;
}

/* The rows are read by this server.  NULL: there are none. */
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
	gk_model_prepare(&model->prep, model->centroids, model->k, f);
	s->what = (GkPartialWhat) {.prep = &model->prep,.k = model->k,.weights = model->weights,.f = f,.device = &device,
		.chunk_bytes = km_rescan_chunk_bytes()};
	step = make_state(s, read_parts(s));
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
	s.read.skip_nonfinite = km_parse_nonfinite(fcinfo, 4);
	kind = km_parse_device(fcinfo, 5);
	s.source = km_source_open(PG_GETARG_OID(0), columns, ncolumns, km_parse_text(fcinfo, 3), NULL, false);
	/* a state that is too large is known before a long read */
	pfree(kmeans_step_make(s.model, s.source->weighted, false, 0, NULL));

	if (km_citus_distributed(s.source->relid))
		step = km_citus_step(s.source, get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)), s.model,
							  s.read.skip_nonfinite, kind);
	else
		step = step_here(&s, &model, kind);
	if (step == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(step);
}
