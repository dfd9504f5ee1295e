/*
 * gk_cpu_int8_closer.h - which centroids may be closer by their products of 8-bit integers (gk_cpu_int8.c).
 *
 * A template: a file that includes it has GK_TARGET and gk_cpu_vector_<set>.h before it. Lanes are points.
 */

/* What closer centroids are below: A (r^2 - |x'|^2) / 2 and A r, of a vector of rows. */
GK_INLINE void
limits(const GkInt8 *s, const GkInt8Tile *tile, const float *d2, int row, vfloat *above, vfloat *reach)
{
	vfloat		scale = v_load(tile->scale + row);
	vfloat		square = v_load(tile->square + row);
	vfloat		r = v_fma(v_sqrt(v_load(d2)), v_set1(1.0f + s->relative), v_load(tile->lost + row));
	vfloat		r2 = v_mul(r, r);

	r2 = v_fma(v_add(r2, square), v_set1(s->relative + 0x1p-17f), v_sub(r2, square));
	*above = v_mul(v_mul(r2, scale), v_set1(0.5f));
	*reach = v_mul(r, scale);
}

/* Of rows with these limits: to which may a centroid be closer? Bits. product: in units of the last run. */
GK_INLINE unsigned
may_be_closer(vlabel product, const GkInt8Centroid *of, vfloat scale, vfloat above, vfloat reach)
{
	vfloat		is = v_from(vl_sub(product, vl_set1(of->offset)));
	vfloat		least = v_mul(scale, v_set1(of->half));

	least = v_fnma(above, v_set1(of->scale), least);
	least = v_fnma(reach, v_set1(of->lost), least);
	/* true, too, where something is not a number */
	return v_not_less(is, least);
}

/* The nearest so far of a vector of rows, about: A (|c'|^2 / 2 - x' c'), and which that is. */
typedef struct Nearest
{
	vfloat		least;
	vlabel		label;
} Nearest;

GK_INLINE Nearest
nearer(Nearest so_far, vlabel product, const GkInt8Centroid *of, vfloat scale, int label)
{
	vfloat		is = v_from(vl_sub(product, vl_set1(of->offset)));
	vfloat		v = v_mul(v_fms(scale, v_set1(of->half), is), v_set1(1.0f / of->scale));
	vmask		less = v_less(v, so_far.least);

	return (Nearest) {v_min(v, so_far.least), vl_pick(less, vl_set1(label), so_far.label)};
}
