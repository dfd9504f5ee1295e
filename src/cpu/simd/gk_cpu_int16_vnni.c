/*
 * gk_cpu_int16_vnni.c - products of 16-bit integers (gk_cpu_int16_products.h) for AVX-512 with VNNI.
 *
 * One instruction multiplies and adds two features of 16 points: twice what a float multiply-add does.
 * A register tile is 32 points against 12 centroids: 24 of the 32 registers.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma")))

#include "cpu/simd/gk_cpu_vector_avx512.h"

#define INT16_GROUP		12
#define INT16_VECTORS	2

/* _mm512_dpwssd_epi32(), which compilers move about until registers do not suffice. */
GK_INLINE void
add_products(__m512i *sum, __m512i a, __m512i b)
{
	__asm__("vpdpwssd %2, %1, %0" : "+v"(*sum) : "v"(a), "v"(b));
}

#include "cpu/simd/gk_cpu_int16_madd.h"
#include "cpu/simd/gk_cpu_int16_words.h"

#define ELKAN_DENSE		64
#define ELKAN_PAIR		5.5
#define ELKAN_CALM		768.0
#define ELKAN_LEAST_D	0
#include "cpu/simd/gk_cpu_elkan_search.h"

const GkInt16Kernels gk_int16_vnni = {
	INT16_KERNELS,
	.unrounded = unrounded,
	.compare_two = compare_two,
	.cost = 0.6,
	/* one tile against 100,000 centroids of 768 features */
	.longest = 384,
	.elkan = &elkan_kernels
};

#endif							/* GK_CPU_X86 */
