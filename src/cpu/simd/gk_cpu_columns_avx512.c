/*
 * gk_cpu_columns_avx512.c - loops over one column (gk_cpu_columns.h): AVX-512.
 */
#include "cpu/simd/gk_cpu_kernels.h"

#ifdef GK_CPU_X86

#include <immintrin.h>

#define GK_TARGET			__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#define GK_COLUMNS			gk_columns_avx512
#define GK_LANES			8

#define v_widen(f)			((vdouble) _mm512_cvtps_pd((__m256) (f)))
#define v_fma(a, b, c)		((vdouble) _mm512_fmadd_pd(a, b, c))
#define v_fms(a, b, c)		((vdouble) _mm512_fmsub_pd(a, b, c))
#define v_min(a, b)			((vfloats) _mm512_min_ps(a, b))
#define v_max(a, b)			((vfloats) _mm512_max_ps(a, b))
#define vb_min(a, b)		((vbits) _mm512_min_epu32((__m512i) (a), (__m512i) (b)))
#define vd_min(a, b)		((vdouble) _mm512_min_pd(a, b))
#define vd_max(a, b)		((vdouble) _mm512_max_pd(a, b))

#include "cpu/simd/gk_cpu_columns.h"

#endif							/* GK_CPU_X86 */
