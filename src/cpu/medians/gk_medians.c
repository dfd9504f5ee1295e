/*
 * gk_medians.c - the backend of the Manhattan distance: gk_cpu_backend with other kernels and another step.
 */
#include <stdio.h>
#include <string.h>

#include "cpu/gk_cpu.h"
#include "cpu/medians/gk_medians.h"

/* A fit keeps its points in memory; labels alone (max_iter 0) may be those of streamed ones. */
static GkStatus
refuse(const GkProblem *problem, const GkPoints *pts, GkError *err)
{
	if (problem->max_iter > 0 && pts->weighted)
	{
		gk_fail(err, GK_ERR_OPTION, "weights cannot be used with distance 'manhattan'");
		snprintf(err->hint, sizeof(err->hint), "Leave the weights out, or use distance 'euclidean'.");
		return GK_ERR_OPTION;
	}
	if (problem->max_iter > 0 && !pts->resident)
	{
		gk_fail(err, GK_ERR_MEMORY_LIMIT, "points do not fit into memory, as distance 'manhattan' needs them to");
		snprintf(err->hint, sizeof(err->hint),
				 "Raise gkmeans.memory_limit, or fit a part of the rows with fit_sample.");
		return GK_ERR_MEMORY_LIMIT;
	}
	return GK_OK;
}

static GkStatus
open_session(const GkProblem *problem, GkSession **out, GkError *err)
{
	GkStatus	st = refuse(problem, problem->core->points(problem->store), err);

	*out = NULL;
	return st == GK_OK ? gk_cpu_open_with(problem, gk_medians_kernels, out, err) : st;
}

static void
describe(GkSession *s, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	gk_cpu_backend.describe(s, device, device_len, strategy, strategy_len);
	snprintf(strategy, strategy_len, "medians");
}

const GkBackend gk_medians_backend = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "cpu",
	.description = "k-medians on all CPU cores",
	.open = open_session,
	.close = gk_cpu_close,
	.describe = describe,
	.step = gk_medians_step,
	.finish = gk_cpu_finish,
	.seed_begin = gk_cpu_seed_begin,
	.seed_end = gk_cpu_seed_end,
	.seed_update = gk_cpu_seed_update,
	.seed_eval = gk_cpu_seed_eval,
	.seed_race = gk_cpu_seed_race,
	.seed_far = gk_cpu_seed_far,
};
