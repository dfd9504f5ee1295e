/*
 * gk_cpu_int8_closer.h - which centroids may be closer by their products of 8-bit integers (gk_cpu_int8.c), for AVX-512.
 *
 * A template: a file that includes it has GK_TARGET and gk_cpu_unroll.h before it. Lanes are points.
 */

/* What closer centroids are below: A (r^2 - |x'|^2) / 2 and A r, of 16 rows. */
GK_INLINE void
limits(const GkInt8 *s, const GkInt8Tile *tile, const float *d2, int row, __m512 *above, __m512 *reach)
{
	__m512		scale = _mm512_loadu_ps(tile->scale + row);
	__m512		square = _mm512_loadu_ps(tile->square + row);
	__m512		lost = _mm512_loadu_ps(tile->lost + row);
	__m512		r = _mm512_fmadd_ps(_mm512_sqrt_ps(_mm512_loadu_ps(d2)), _mm512_set1_ps(1.0f + s->relative), lost);
	__m512		r2 = _mm512_mul_ps(r, r);

	r2 = _mm512_fmadd_ps(_mm512_add_ps(r2, square), _mm512_set1_ps(s->relative + 0x1p-17f), _mm512_sub_ps(r2, square));
	*above = _mm512_mul_ps(_mm512_mul_ps(r2, scale), _mm512_set1_ps(0.5f));
	*reach = _mm512_mul_ps(r, scale);
}

/* Of 16 rows with these limits: to which may a centroid be closer? product: in units of the last run. */
GK_INLINE __mmask16
may_be_closer(__m512i product, const GkInt8Centroid *of, __m512 scale, __m512 above, __m512 reach)
{
	__m512		is = _mm512_cvtepi32_ps(_mm512_sub_epi32(product, _mm512_set1_epi32(of->offset)));
	__m512		least = _mm512_mul_ps(scale, _mm512_set1_ps(of->half));

	least = _mm512_fnmadd_ps(above, _mm512_set1_ps(of->scale), least);
	least = _mm512_fnmadd_ps(reach, _mm512_set1_ps(of->lost), least);
	/* true, too, where something is not a number */
	return _mm512_cmp_ps_mask(is, least, _CMP_NLT_UQ);
}

/* The nearest so far of 16 rows, about: A (|c'|^2 / 2 - x' c'), and which that is. */
typedef struct Nearest
{
	__m512		least;
	__m512i		label;
} Nearest;

GK_INLINE Nearest
nearer(Nearest so_far, __m512i product, const GkInt8Centroid *of, __m512 scale, int label)
{
	__m512		is = _mm512_cvtepi32_ps(_mm512_sub_epi32(product, _mm512_set1_epi32(of->offset)));
	__m512		v = _mm512_mul_ps(_mm512_fmsub_ps(scale, _mm512_set1_ps(of->half), is), _mm512_set1_ps(1.0f / of->scale));
	__mmask16	less = _mm512_cmp_ps_mask(v, so_far.least, _CMP_LT_OQ);

	return (Nearest) {_mm512_min_ps(v, so_far.least), _mm512_mask_mov_epi32(so_far.label, less, _mm512_set1_epi32(label))};
}
