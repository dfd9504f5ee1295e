/*
 * fn_options.c - the options of a fit, checked.
 *
 * <options> are the same arguments in the same order in every function that fits; see
 * km_parse_options() for the list.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "functions/functions.h"

/* Places in <options>. */
enum
{
	OPT_WEIGHT_COLUMN, OPT_INIT, OPT_WARM_START, OPT_CENTROIDS, OPT_N_INIT, OPT_MAX_ITER,
	OPT_TOL, OPT_DISTANCE, OPT_STANDARDIZE, OPT_SEED, OPT_NONFINITE, OPT_DEVICE, OPT_NULLS, OPT_COUNT
};

StaticAssertDecl(OPT_COUNT == GKMEANS_NOPTIONS, "option count differs from functions.h");

static const struct config_enum_entry init_words[] = {
	{"k-means++", GK_INIT_PLUSPLUS, false},
	{"k-means||", GK_INIT_PARALLEL, false},
	{"hierarchical", GK_INIT_HIERARCHICAL, false},
	{"random", GK_INIT_RANDOM, false},
	{NULL, 0, false}
};

static const struct config_enum_entry distance_words[] = {
	{"euclidean", GK_EUCLIDEAN, false},
	{"cosine", GK_COSINE, false},
	{"manhattan", GK_MANHATTAN, false},
	{NULL, 0, false}
};

enum
{
	NULLS_SKIP, NULLS_MEAN, NULLS_PARTIAL
};

static const struct config_enum_entry nulls_words[] = {
	{"skip", NULLS_SKIP, false},
	{"mean", NULLS_MEAN, false},
	{"partial", NULLS_PARTIAL, false},
	{NULL, 0, false}
};

static double
parse_tol(FunctionCallInfo fcinfo, int arg)
{
	double		tol;

	km_require_arg(fcinfo, arg, "tol");
	tol = PG_GETARG_FLOAT8(arg);
	if (!(tol >= 0) || isinf(tol))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tol must be finite and at least 0, not %g", tol)));
	return tol;
}

GkDistance
km_parse_distance(FunctionCallInfo fcinfo, int arg)
{
	return km_parse_word(fcinfo, arg, "distance", distance_words);
}

/* NULL: any; the model records which one it was. */
static int64
parse_seed(FunctionCallInfo fcinfo, int arg)
{
	int64		seed;

	if (!PG_ARGISNULL(arg))
		return PG_GETARG_INT64(arg);
	if (!pg_strong_random(&seed, sizeof(seed)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random seed")));
	return seed;
}

/* centroids: a k x d array of finite numbers. */
static void
parse_centroids(FunctionCallInfo fcinfo, int arg, KmFitOptions *out)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(arg);
	const double *values;
	int			d;

	if (ARR_NDIM(array) != 2)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("centroids must have 2 dimensions, not %d", ARR_NDIM(array)),
				 errhint("Give one row of features per cluster, as in '{{1,2},{3,4}}'.")));
	if (ARR_DIMS(array)[0] != out->engine.k)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("centroids have %d rows, but k is %d",
						ARR_DIMS(array)[0], out->engine.k)));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("centroids must not contain NULLs")));

	d = ARR_DIMS(array)[1];
	values = (const double *) ARR_DATA_PTR(array);
	for (int c = 0; c < out->engine.k; c++)
	{
		bool		zero = true;

		CHECK_FOR_INTERRUPTS();
		for (int j = 0; j < d; j++)
		{
			double		v = values[(size_t) c * d + j];

			zero &= v == 0;
			if (!isfinite(v))
				ereport(ERROR,
						(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						 errmsg("centroids must be finite, but row %d has %g at %d", c + 1, v, j + 1)));
		}
		if (zero && out->engine.distance == GK_COSINE)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("row %d of centroids is zero and has no direction", c + 1)));
	}
	out->engine.init = GK_INIT_CENTROIDS;
	out->engine.centroids = values;
	out->given_d = d;
	out->given_by = "centroids";
}

/* Those of nulls => 'partial' are Euclidean ones. */
static GkDistance
centroids_of(GkDistance distance)
{
	return distance == GK_PARTIAL ? GK_EUCLIDEAN : distance;
}

static void
parse_warm_start(FunctionCallInfo fcinfo, int arg, KmFitOptions *out)
{
	GkModel		model;

	kmeans_model_refuse_spectral(PG_GETARG_KMEANS_MODEL(arg), "warm_start");
	kmeans_model_view(PG_GETARG_KMEANS_MODEL(arg), &model);
	if (model.k != out->engine.k)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the model of warm_start has %d clusters, but k is %d",
						model.k, out->engine.k),
				 errhint("Use k => %d, or leave warm_start out.", model.k)));
	if (centroids_of(model.prep.distance) != centroids_of(out->engine.distance))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the model of warm_start has distance '%s', but distance is '%s'",
						kmeans_distance_words[centroids_of(model.prep.distance)],
						kmeans_distance_words[centroids_of(out->engine.distance)])));
	out->engine.init = GK_INIT_WARM_START;
	out->engine.centroids = model.centroids;
	out->given_d = model.prep.d;
	out->given_by = "warm_start";
}

/* A number of rows, or a share of them below 1; 0: all rows. */
static double
parse_sample(FunctionCallInfo fcinfo, int arg, const char *name, int k)
{
	double		sample;

	if (PG_ARGISNULL(arg))
		return 0;
	sample = PG_GETARG_FLOAT8(arg);
	if (!(sample > 0) || isinf(sample) || (sample > 1 && sample != floor(sample)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be a number of rows, or a share of them below 1, not %g", name, sample),
				 errhint("Use 10000 for 10000 rows, 0.1 for a tenth of the rows, NULL for all rows.")));
	if (sample >= 1 && sample < k)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s of %.0f rows is smaller than k = %d", name, sample, k),
				 errhint("A cluster needs some tens of rows: ivfflat takes 50 for each.")));
	return sample;
}

void
km_parse_samples(FunctionCallInfo fcinfo, int first, KmFitOptions *out)
{
	out->engine.init_sample = parse_sample(fcinfo, first, "init_sample", out->engine.k);
	out->engine.fit_sample = parse_sample(fcinfo, first + 1, "fit_sample", out->engine.k);
}

static void
parse_nulls(FunctionCallInfo fcinfo, int arg, KmFitOptions *out)
{
	int			nulls = km_parse_word(fcinfo, arg, "nulls", nulls_words);
	GkOptions  *o = &out->engine;

	out->fill_nulls = nulls == NULLS_MEAN;
	if (nulls != NULLS_PARTIAL)
		return;
	if (o->distance != GK_EUCLIDEAN)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("nulls => 'partial' cannot be used with distance '%s'", kmeans_distance_words[o->distance]),
				 errhint("Use distance => 'euclidean', or nulls => 'mean' or 'skip'.")));
	o->distance = GK_PARTIAL;
}

/* What k-medians, and k-means of points that lack features, cannot do; they run on the CPU. */
static void
check_on_cpu(KmFitOptions *out)
{
	const GkOptions *o = &out->engine;

	if (o->distance != GK_MANHATTAN && o->distance != GK_PARTIAL)
		return;
	if (km_wants_gpu(out->device))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s runs on the CPU only", kmeans_distance_option(o->distance)),
				 errhint("Use device => 'cpu' or 'auto'.")));
	out->device = GK_DEVICE_CPU;
	if (out->weight_column != NULL && o->distance == GK_MANHATTAN)
		kmeans_refuse_distance(o->distance, "weight_column");
	if (o->init == GK_INIT_PARALLEL || o->init == GK_INIT_HIERARCHICAL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("init '%s' cannot be used with %s", kmeans_init_words[o->init], kmeans_distance_option(o->distance)),
				 errhint("Use init => 'k-means++' or 'random', or give centroids.")));
}

void
km_require_iterations(const KmFitOptions *options)
{
	if (options->engine.max_iter == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_iter must be at least 1, not 0"),
				 errhint("max_iter => 0 keeps given centroids as they are, in kmeans(), kmeans_fit(), kmeans_query(), kmeans_query_fit(), kmeans_labels() and kmeans_label_table().")));
}

void
km_refuse_fill(const KmFitOptions *options, const char *where)
{
	if (options->fill_nulls)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("nulls => 'mean' cannot be used with %s", where),
				 errhint("Fill in the means by a view: coalesce(t.x, m.x), where m.x is (feature_sum(x))[1] / count(x), kept in a table.")));
}

void
km_parse_options(FunctionCallInfo fcinfo, int first, int k, KmFitOptions *out)
{
	GkOptions  *o = &out->engine;

	Assert(fcinfo->nargs >= first + GKMEANS_NOPTIONS);
	memset(out, 0, sizeof(*out));
	o->k = k;
	out->weight_column = km_parse_text(fcinfo, first + OPT_WEIGHT_COLUMN);
	o->init = km_parse_word(fcinfo, first + OPT_INIT, "init", init_words);
	o->n_init = km_parse_int(fcinfo, first + OPT_N_INIT, "n_init", 1, PG_INT32_MAX);
	o->max_iter = km_parse_int(fcinfo, first + OPT_MAX_ITER, "max_iter", 0, PG_INT32_MAX);
	o->tol = parse_tol(fcinfo, first + OPT_TOL);
	o->distance = km_parse_distance(fcinfo, first + OPT_DISTANCE);
	km_require_arg(fcinfo, first + OPT_STANDARDIZE, "standardize");
	o->standardize = PG_GETARG_BOOL(first + OPT_STANDARDIZE);
	o->seed = parse_seed(fcinfo, first + OPT_SEED);
	out->skip_nonfinite = km_parse_nonfinite(fcinfo, first + OPT_NONFINITE);
	out->device = km_parse_device(fcinfo, first + OPT_DEVICE);
	parse_nulls(fcinfo, first + OPT_NULLS, out);
	out->scan = gkmeans_strategy == GKMEANS_SCAN;
	o->strategy = out->scan ? GK_STRATEGY_AUTO : gkmeans_strategy;
	o->feature_sum = gkmeans_feature_sum;
	o->mass_sum = gkmeans_mass_sum;

	check_on_cpu(out);
	if (o->standardize && o->distance == GK_COSINE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("standardize cannot be used with distance 'cosine'"),
				 errdetail("Directions have no original units to return to."),
				 errhint("Use distance => 'euclidean', or standardize in a view.")));
	if (!PG_ARGISNULL(first + OPT_WARM_START) && !PG_ARGISNULL(first + OPT_CENTROIDS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("warm_start and centroids cannot both be given")));
	if (!PG_ARGISNULL(first + OPT_WARM_START))
		parse_warm_start(fcinfo, first + OPT_WARM_START, out);
	if (!PG_ARGISNULL(first + OPT_CENTROIDS))
		parse_centroids(fcinfo, first + OPT_CENTROIDS, out);

	/* every restart would be the same */
	if (o->centroids != NULL)
		o->n_init = 1;
}
