/*
 * gk_cpu_columns_avx2.c - loops over one column (gk_cpu_columns.h): AVX2 with FMA.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET			__attribute__((target("avx2,fma")))
#define GK_COLUMNS			gk_columns_avx2
#define GK_LANES			4

#define v_widen(f)			((vdouble) _mm256_cvtps_pd((__m128) (f)))
#define v_fma(a, b, c)		((vdouble) _mm256_fmadd_pd(a, b, c))
#define v_fms(a, b, c)		((vdouble) _mm256_fmsub_pd(a, b, c))
#define v_min(a, b)			((vfloats) _mm256_min_ps(a, b))
#define v_max(a, b)			((vfloats) _mm256_max_ps(a, b))
#define vb_min(a, b)		((vbits) _mm256_min_epu32((__m256i) (a), (__m256i) (b)))
#define vd_min(a, b)		((vdouble) _mm256_min_pd(a, b))
#define vd_max(a, b)		((vdouble) _mm256_max_pd(a, b))

#include "cpu/simd/gk_cpu_columns.h"

#endif							/* GK_CPU_X86 */
