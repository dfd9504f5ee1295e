/*
 * fn_spectral.c - kmeans_spectral() and kmeans_spectral_fit(): a fit whose clusters are
 * representatives, clustered by the eigenvectors of their graph (core/spectral/).
 */
#include "postgres.h"

#include <math.h>

#include "core/spectral/gk_spectral.h"
#include "functions/functions.h"

PG_FUNCTION_INFO_V1(kmeans_spectral);
PG_FUNCTION_INFO_V1(kmeans_spectral_fit);

/* The arguments before label_column and <options>. */
enum
{
	ARG_K = 2, ARG_REPRESENTATIVES, ARG_NEIGHBORS, ARG_AFFINITY, ARG_GAMMA, ARG_LAPLACIAN, ARG_REST
};

static const struct config_enum_entry affinity_words[] = {
	{"nearest_neighbors", GK_AFFINITY_NEIGHBORS, false},
	{"rbf", GK_AFFINITY_RBF, false},
	{NULL, 0, false}
};
static const struct config_enum_entry laplacian_words[] = {
	{"symmetric", GK_LAPLACIAN_SYMMETRIC, false},
	{"random_walk", GK_LAPLACIAN_RANDOM_WALK, false},
	{"unnormalized", GK_LAPLACIAN_UNNORMALIZED, false},
	{NULL, 0, false}
};

static double
parse_gamma(FunctionCallInfo fcinfo, GkAffinity affinity)
{
	double		gamma;

	if (PG_ARGISNULL(ARG_GAMMA))
		return 0.0;
	gamma = PG_GETARG_FLOAT8(ARG_GAMMA);
	if (affinity != GK_AFFINITY_RBF)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("gamma is for affinity 'rbf' only")));
	if (!(gamma > 0.0) || isinf(gamma))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("gamma must be a finite number above 0, not %g", gamma),
				 errhint("Leave it out for a scale of each representative's own.")));
	return gamma;
}

/* Parse what is not <options>; returns the number of representatives. */
static int
parse_spectral(FunctionCallInfo fcinfo, GkSpectralOptions *out)
{
	int			representatives = km_parse_int(fcinfo, ARG_REPRESENTATIVES, "representatives", 2, GK_MAX_REPRESENTATIVES);

	out->k = PG_ARGISNULL(ARG_K) ? 0 : km_parse_k(fcinfo, ARG_K);
	if (out->k > representatives)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k = %d is more than the %d representatives", out->k, representatives),
				 errhint("Use a smaller k, or more representatives, up to %d.", GK_MAX_REPRESENTATIVES)));
	out->neighbors = km_parse_int(fcinfo, ARG_NEIGHBORS, "neighbors", 1, GK_MAX_REPRESENTATIVES);
	out->affinity = (GkAffinity) km_parse_word(fcinfo, ARG_AFFINITY, "affinity", affinity_words);
	out->gamma = parse_gamma(fcinfo, out->affinity);
	out->laplacian = (GkLaplacian) km_parse_word(fcinfo, ARG_LAPLACIAN, "laplacian", laplacian_words);
	return representatives;
}

/*
 * kmeans_spectral(relation regclass, columns text[], k int, representatives int, neighbors int,
 *                 affinity text, gamma float8, laplacian text, label_column text, <options>)
 * returns table (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
 */
Datum
kmeans_spectral(PG_FUNCTION_ARGS)
{
	char	   *label_column = km_parse_text(fcinfo, ARG_REST);
	GkSpectralOptions spectral;
	int			representatives = parse_spectral(fcinfo, &spectral);
	KmResult	result;
	KmFit		fit;

	km_result_begin(fcinfo, &result);
	km_fit_open_k(fcinfo, ARG_REST + 1, representatives, label_column, false, &fit);
	kmeans_refuse_distance(fit.options.engine.distance, "spectral clustering");
	fit.spectral = &spectral;
	km_relabel_fit(fcinfo, &fit, spectral.k > 0 ? spectral.k : representatives, &result);
	return (Datum) 0;
}

/*
 * kmeans_spectral_fit(relation regclass, columns text[], k int, representatives int,
 *                     neighbors int, affinity text, gamma float8, laplacian text, <options>)
 * returns kmeans_model
 */
Datum
kmeans_spectral_fit(PG_FUNCTION_ARGS)
{
	KmeansModel *model = NULL;
	GkSpectralOptions spectral;
	int			representatives = parse_spectral(fcinfo, &spectral);
	KmFit		fit;

	km_fit_open_k(fcinfo, ARG_REST, representatives, NULL, false, &fit);
	kmeans_refuse_distance(fit.options.engine.distance, "spectral clustering");
	fit.spectral = &spectral;
	fit.as_model = true;
	if (km_fit_run(&fit, NULL))
		model = km_fit_model(&fit);
	km_fit_end(&fit);
	if (model == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(model);
}
