/*
 * gk_cpu_transpose.h - 16 x 16 values of 32 bits in AVX-512 registers: rows and columns change places.
 * Included where GK_TARGET is defined.
 */
#ifndef GK_CPU_TRANSPOSE_H
#define GK_CPU_TRANSPOSE_H

#include <immintrin.h>

#include "cpu/simd/gk_cpu_unroll.h"

/* Element l of v[j] and element j of v[l] change places. */
GK_INLINE void
transpose(__m512 v[16])
{
	__m512		w[16];

	GK_UNROLL
	for (int i = 0; i < 16; i += 2)
	{
		w[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
		w[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
	}
	GK_UNROLL
	for (int i = 0; i < 16; i += 4)
	{
		v[i] = _mm512_shuffle_ps(w[i], w[i + 2], 0x44);
		v[i + 1] = _mm512_shuffle_ps(w[i], w[i + 2], 0xee);
		v[i + 2] = _mm512_shuffle_ps(w[i + 1], w[i + 3], 0x44);
		v[i + 3] = _mm512_shuffle_ps(w[i + 1], w[i + 3], 0xee);
	}
	/* v[4 a + b] has, in its quarter q, features 4 q + b of centroids 4 a .. 4 a + 3 */
	GK_UNROLL
	for (int b = 0; b < 4; b++)
	{
		w[b] = _mm512_shuffle_f32x4(v[b], v[4 + b], 0x88);
		w[4 + b] = _mm512_shuffle_f32x4(v[b], v[4 + b], 0xdd);
		w[8 + b] = _mm512_shuffle_f32x4(v[8 + b], v[12 + b], 0x88);
		w[12 + b] = _mm512_shuffle_f32x4(v[8 + b], v[12 + b], 0xdd);
	}
	GK_UNROLL
	for (int b = 0; b < 4; b++)
	{
		v[b] = _mm512_shuffle_f32x4(w[b], w[8 + b], 0x88);
		v[4 + b] = _mm512_shuffle_f32x4(w[4 + b], w[12 + b], 0x88);
		v[8 + b] = _mm512_shuffle_f32x4(w[b], w[8 + b], 0xdd);
		v[12 + b] = _mm512_shuffle_f32x4(w[4 + b], w[12 + b], 0xdd);
	}
}

#endif							/* GK_CPU_TRANSPOSE_H */
