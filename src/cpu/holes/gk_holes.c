/*
 * gk_holes.c - the backend of GK_PARTIAL: gk_cpu_backend with other kernels and another step; one point.
 */
#include <math.h>
#include <stdio.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"
#include "cpu/holes/gk_holes.h"

void
gk_holes_kernels(const GkCpuKernels *of, GkCpuKernels *out)
{
	*out = (GkCpuKernels) {
		.name = of->name,.job_work = of->job_work,.lanes = of->lanes,.columns = of->columns,
		.assign = of->partial_assign,.mindist = of->partial_mindist,.candidates = of->partial_candidates,
		.race = of->race,.sum_d2 = of->sum_d2,.tally_smallk = of->tally_smallk
	};
}

static GkStatus
open_session(const GkProblem *problem, GkSession **out, GkError *err)
{
	return gk_cpu_open_with(problem, gk_holes_kernels, out, err);
}

static void
describe(GkSession *s, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	gk_cpu_backend.describe(s, device, device_len, strategy, strategy_len);
	snprintf(strategy, strategy_len, "partial");
}

const GkBackend gk_holes_backend = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "cpu",
	.description = "k-means of points with missing features on all CPU cores",
	.open = open_session,
	.close = gk_cpu_close,
	.describe = describe,
	.step = gk_holes_step,
	.finish = gk_cpu_finish,
	.seed_begin = gk_cpu_seed_begin,
	.seed_end = gk_cpu_seed_end,
	.seed_update = gk_cpu_seed_update,
	.seed_eval = gk_cpu_seed_eval,
	.seed_race = gk_cpu_seed_race,
	.seed_far = gk_cpu_seed_far,
};

/* ---- one point ---- */

void
gk_partial_distances(const float *point, int d, const float *centroids, int k, float *d2)
{
	for (int i = 0; i < k; i++)
		d2[i] = gk_partial_d2(point, 1, centroids + (size_t) i * d, d);
}

int
gk_partial_nearest(const float *point, int d, const float *centroids, int k, float *d2)
{
	int			label = 0;

	*d2 = INFINITY;
	for (int i = 0; i < k; i++)
	{
		float		s = gk_partial_d2(point, 1, centroids + (size_t) i * d, d);

		if (s < *d2)
		{
			*d2 = s;
			label = i;
		}
	}
	return label;
}

/* ---- one point, any distance ---- */

int
gk_nearest_by(GkDistance by, const float *point, int d, const float *centroids, int k, float *d2)
{
	return (by == GK_MANHATTAN ? gk_l1_nearest : by == GK_PARTIAL ? gk_partial_nearest : gk_nearest)
		(point, d, centroids, k, d2);
}

void
gk_distances_by(GkDistance by, const float *point, int d, const float *centroids, int k, float *d2)
{
	(by == GK_MANHATTAN ? gk_l1_distances : by == GK_PARTIAL ? gk_partial_distances : gk_distances)
		(point, d, centroids, k, d2);
}
