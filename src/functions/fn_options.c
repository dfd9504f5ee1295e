/*
 * fn_options.c - the arguments of a fit, checked.
 *
 * <options> are the same arguments in the same order in every function that
 * fits; see km_parse_options for the list.  Every error names the option, the
 * value it got and what is allowed.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "gkmeans.h"
#include "types/model.h"

/* Places in <options>. */
enum
{
	OPT_WEIGHT_COLUMN, OPT_INIT, OPT_WARM_START, OPT_CENTROIDS, OPT_N_INIT, OPT_MAX_ITER,
	OPT_TOL, OPT_DISTANCE, OPT_STANDARDIZE, OPT_SEED, OPT_NONFINITE, OPT_DEVICE, OPT_COUNT
};

StaticAssertDecl(OPT_COUNT == GKMEANS_NOPTIONS, "option count differs from gkmeans.h");

static const struct config_enum_entry init_words[] = {
	{"k-means++", GK_INIT_PLUSPLUS, false},
	{"k-means||", GK_INIT_PARALLEL, false},
	{"random", GK_INIT_RANDOM, false},
	{NULL, 0, false}
};

static const struct config_enum_entry distance_words[] = {
	{"euclidean", GK_EUCLIDEAN, false},
	{"cosine", GK_COSINE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry nonfinite_words[] = {
	{"error", false, false},
	{"skip", true, false},
	{NULL, 0, false}
};

void
km_require_arg(FunctionCallInfo fcinfo, int arg, const char *name)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be NULL", name)));
}

char *
km_parse_text(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

/* Look a word up, or list the good ones. */
static int
parse_word(const char *option, const char *word, const struct config_enum_entry *words)
{
	StringInfoData good;

	initStringInfo(&good);
	for (const struct config_enum_entry *w = words; w->name != NULL; w++)
	{
		if (pg_strcasecmp(word, w->name) == 0)
			return w->val;
		appendStringInfo(&good, "%s'%s'", good.len > 0 ? ", " : "", w->name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for %s: \"%s\"", option, word),
			 errhint("Use one of %s.", good.data)));
	return 0;					/* keep compiler quiet */
}

static int
parse_word_arg(FunctionCallInfo fcinfo, int arg, const char *option,
			   const struct config_enum_entry *words)
{
	km_require_arg(fcinfo, arg, option);
	return parse_word(option, km_parse_text(fcinfo, arg), words);
}

GkDeviceKind
km_parse_device(FunctionCallInfo fcinfo, int arg)
{
	char	   *word = km_parse_text(fcinfo, arg);

	return word != NULL ? parse_word("device", word, gkmeans_device_words) : gkmeans_device;
}

bool
km_parse_nonfinite(FunctionCallInfo fcinfo, int arg)
{
	return parse_word_arg(fcinfo, arg, "nonfinite", nonfinite_words);
}

int
km_parse_k(FunctionCallInfo fcinfo, int arg)
{
	int			k;

	km_require_arg(fcinfo, arg, "k");
	k = PG_GETARG_INT32(arg);
	if (k < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be at least 1, not %d", k)));
	if (k > GK_MAX_K)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("k must be at most %d, not %d", GK_MAX_K, k)));
	return k;
}

static int
parse_at_least_1(FunctionCallInfo fcinfo, int arg, const char *option)
{
	int			value;

	km_require_arg(fcinfo, arg, option);
	value = PG_GETARG_INT32(arg);
	if (value < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least 1, not %d", option, value)));
	return value;
}

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
}

static void
parse_warm_start(FunctionCallInfo fcinfo, int arg, KmFitOptions *out)
{
	GkModel		model;

	kmeans_model_view(PG_GETARG_KMEANS_MODEL(arg), &model);
	if (model.k != out->engine.k)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the model of warm_start has %d clusters, but k is %d",
						model.k, out->engine.k),
				 errhint("Use k => %d, or leave warm_start out.", model.k)));
	if (model.prep.distance != out->engine.distance)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the model of warm_start has distance '%s', but distance is '%s'",
						kmeans_distance_words[model.prep.distance],
						kmeans_distance_words[out->engine.distance])));
	out->engine.init = GK_INIT_WARM_START;
	out->engine.centroids = model.centroids;
	out->given_d = model.prep.d;
}

void
km_parse_options(FunctionCallInfo fcinfo, int first, int k, KmFitOptions *out)
{
	GkOptions  *o = &out->engine;

	memset(out, 0, sizeof(*out));
	o->k = k;
	out->weight_column = km_parse_text(fcinfo, first + OPT_WEIGHT_COLUMN);
	o->init = parse_word_arg(fcinfo, first + OPT_INIT, "init", init_words);
	o->n_init = parse_at_least_1(fcinfo, first + OPT_N_INIT, "n_init");
	o->max_iter = parse_at_least_1(fcinfo, first + OPT_MAX_ITER, "max_iter");
	o->tol = parse_tol(fcinfo, first + OPT_TOL);
	o->distance = parse_word_arg(fcinfo, first + OPT_DISTANCE, "distance", distance_words);
	km_require_arg(fcinfo, first + OPT_STANDARDIZE, "standardize");
	o->standardize = PG_GETARG_BOOL(first + OPT_STANDARDIZE);
	o->seed = parse_seed(fcinfo, first + OPT_SEED);
	out->skip_nonfinite = km_parse_nonfinite(fcinfo, first + OPT_NONFINITE);
	out->device = km_parse_device(fcinfo, first + OPT_DEVICE);
	out->scan = gkmeans_strategy == GKMEANS_SCAN;
	o->strategy = out->scan ? GK_STRATEGY_AUTO : gkmeans_strategy;
	o->feature_sum = gkmeans_feature_sum;
	o->mass_sum = gkmeans_mass_sum;

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
