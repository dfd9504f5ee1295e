/*
 * gpu_memory.h - what tests ask of the GPU itself: what is left of its memory, before and after; whether it has
 * the tensor cores of gk_gpu_gemm_supported().
 */
#ifndef GPU_MEMORY_H
#define GPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef FAKE_GPUS

/* The CPU plays the devices (fake_gpu.c): what they leave behind is the host's memory, of which the sanitizer keeps count. */
static inline size_t
free_memory(void)
{
	return (size_t) 1 << 30;
}

static inline size_t
free_on_two(void)
{
	return 2 * free_memory();
}

#else

#include <cuda_runtime_api.h>

static inline size_t
free_memory(void)
{
	size_t		avail = 0,
				total;

	cudaMemGetInfo(&avail, &total);
	return avail;
}

/* Whatever the caller's device was, it is the first one then: rows that go up set it. */
static inline size_t
free_on_two(void)
{
	size_t		second;

	cudaSetDevice(1);
	second = free_memory();
	cudaSetDevice(0);
	return second + free_memory();
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

#endif							/* FAKE_GPUS */

#endif							/* GPU_MEMORY_H */
