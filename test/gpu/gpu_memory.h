/*
 * gpu_memory.h - what tests ask of the GPU itself: what is left of its memory, before and after; whether it has
 * the tensor cores of gk_gpu_gemm_supported().
 */
#ifndef GPU_MEMORY_H
#define GPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

static inline size_t
free_memory(void)
{
	size_t		avail = 0,
				total;

	cudaMemGetInfo(&avail, &total);
	return avail;
}

static inline bool
has_products(void)
{
	int			major = 0,
				minor = 0;

	cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
	cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
	return major == 9 && minor == 0;
}

#endif							/* GPU_MEMORY_H */
