/*
 * gpu_memory.h - what is left of the GPU's memory: a test asks before and after.
 */
#ifndef GPU_MEMORY_H
#define GPU_MEMORY_H

#include <cuda_runtime_api.h>

static inline size_t
free_memory(void)
{
	size_t		avail = 0,
				total;

	cudaMemGetInfo(&avail, &total);
	return avail;
}

#endif							/* GPU_MEMORY_H */
