/*
 * gk_problem.c - what a backend is given: points, limits, and the services of the core.
 */
#include "core/gk_backend.h"

const GkCore gk_core = {
	.points = gk_store_points,
	.chunk_open = gk_chunk_open,
	.chunk_close = gk_chunk_close,
	.row = gk_store_row,
	.mind2_begin = gk_store_mind2_begin,
	.mind2_end = gk_store_mind2_end,
	.alloc = gk_alloc,
	.free = gk_free,
	.parallel_for = gk_parallel_for,
	.parallel_for_long = gk_parallel_for_long,
	.threads = gk_threads,
	.cpu = &gk_cpu_backend,
};

GkProblem
gk_problem(GkStore *store, int k_max, int max_iter)
{
	const GkHost *host = gk_store_host(store);

	return (GkProblem) {.host = host,.core = &gk_core,.store = store,.k_max = k_max,.max_iter = max_iter,
		.gpu_memory_limit = host->gpu_memory_limit,.gpu_devices = host->gpu_devices,.gpu_fault = host->gpu_fault};
}
