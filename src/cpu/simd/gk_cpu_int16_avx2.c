/*
 * gk_cpu_int16_avx2.c - products of 16-bit integers (gk_cpu_int16_products.h) for AVX2.
 *
 * One instruction multiplies two features of 8 points and adds both, another one adds the sums: a processor that does four
 * such instructions at a time, of which two may multiply, does twice as many as it does of floats.
 * A register tile is 16 points against 6 centroids: 12 of the 16 registers.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#define GK_TARGET	__attribute__((target("avx2,fma")))

#include "cpu/simd/gk_cpu_vector_avx2.h"

#define INT16_GROUP		6
#define INT16_VECTORS	2

/* _mm256_add_epi32(_mm256_madd_epi16()), which compilers move about until registers do not suffice. */
GK_INLINE void
add_products(__m256i *sum, __m256i a, __m256i b)
{
	__m256i		both;

	__asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(*sum), "=&x"(both) : "x"(a), "x"(b));
}

#include "cpu/simd/gk_cpu_int16_madd.h"
#include "cpu/simd/gk_cpu_int16_words.h"

#define ELKAN_DENSE		128
#define ELKAN_PAIR		2.25
#define ELKAN_CALM		384.0
#define ELKAN_LEAST_D	128
#include "cpu/simd/gk_cpu_elkan_search.h"

const GkInt16Kernels gk_int16_avx2 = {
	INT16_KERNELS,
	.unrounded = unrounded,
	.compare_two = compare_two,
	.cost = 0.75,
	/* one tile against 100,000 centroids of 768 features */
	.longest = 600,
	.elkan = &elkan_kernels
};

#endif							/* GK_CPU_X86 */
