/*
 * gk_cpu_assign_dot.h - the kernels of gk_cpu_dot.c: nearest centroids by scalar products.
 *
 * A template as gk_cpu_assign.h, included after it.  One instruction for each feature of a
 * point and a centroid, where the canonical distance takes two.
 */
#include <string.h>

#define GK_DOT(nc)	GK_RUN(dot, nc, true, keep_two(nc, acc, k, r->label, r->d2, r->second))
GK_WIDTHS(GK_DOT)

/* The largest square of a tile's points, or somewhat more. */
GK_TARGET static __attribute__((noinline)) float
largest_square(const float *x, size_t stride, size_t d)
{
	float		lane[GK_LANES];
	float		max = 0.0f;
	vfloat		all = v_zero();

	for (int i = 0; i < GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		vfloat		square[GK_VECTORS];

		GK_UNROLL
		for (int p = 0; p < GK_VECTORS; p++)
			square[p] = v_zero();
		for (size_t j = 0; j < d; j++)
		{
			GK_UNROLL
			for (int p = 0; p < GK_VECTORS; p++)
			{
				vfloat		v = v_load(x + j * stride + i + p * GK_LANES);

				square[p] = v_fma(v, v, square[p]);
			}
		}
		GK_UNROLL
		for (int p = 0; p < GK_VECTORS; p++)
			all = v_max(square[p], all);
	}
	v_store(lane, all);
	for (int i = 0; i < GK_LANES; i++)
		max = lane[i] > max ? lane[i] : max;
	return max * (1.0f + (float) d * 0x1p-23f);
}

/* Rows of a register tile with the second no farther behind the least than all roundings together. */
GK_INLINE uint64_t
undecided(const GkDot *s, float max_square, const float *least, const float *second)
{
	vfloat		square = v_set1(max_square);
	vfloat		wrong = v_fma(square, v_set1(s->slack), v_set1(s->apart));
	uint64_t	open = 0;

	GK_UNROLL
	for (int p = 0; p < GK_VECTORS; p++)
	{
		vfloat		best = v_load(least + p * GK_LANES);
		vfloat		gap = v_sub(v_load(second + p * GK_LANES), best);
		vfloat		d2 = v_max(v_fma(best, v_set1(2.0f), square), v_zero());
		vfloat		all_wrong = v_fma(d2, v_set1(s->relative), wrong);

		open |= (uint64_t) (v_bits(v_less(all_wrong, gap)) ^ ((1u << GK_LANES) - 1)) << (p * GK_LANES);
	}
	return open;
}

GK_TARGET static void
assign_dot(const GkTiles *x, const GkDot *s, float *square, int32_t *label, uint64_t *open)
{
	static const GkRunFunction run[] = GK_TABLE(dot);
	const GkPrefetch ahead = rows_ahead(x, s->k);

	memset(open, 0, x->count * sizeof(uint64_t));
	for (int i = 0; i < x->count * GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		GkRegisterTile r = register_tile(x, i, s->c, &ahead);
		float		least[GK_VECTORS * GK_LANES];
		float		second[GK_VECTORS * GK_LANES];

		r.label = label + i;
		r.d2 = least;
		r.second = second;
		r.dot = s;
		for (int p = 0; p < GK_VECTORS * GK_LANES; p += GK_LANES)
		{
			vl_store(label + i + p, vl_set1(0));
			v_store(least + p, v_set1(INFINITY));
			v_store(second + p, v_set1(INFINITY));
		}
		run_all(&r, 0, s->k, run);
		if (square[i / GK_ROW_PAD] < 0.0f)
			square[i / GK_ROW_PAD] = largest_square(r.x, x->stride, x->d);
		open[i / GK_ROW_PAD] |= undecided(s, square[i / GK_ROW_PAD], least, second) << i % GK_ROW_PAD;
	}
}

/* The canonical distances of one point: lanes are centroids. */
GK_TARGET static int32_t
assign_one(const float *x, const GkDot *s, int d)
{
	size_t		width = gk_dot_width(s->k);
	float		least = INFINITY;
	int32_t		label = 0;

	for (int k = 0; k < s->k; k += 4 * GK_LANES)
	{
		vfloat		acc[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
		float		d2[4 * GK_LANES];

		for (int j = 0; j < d; j++)
		{
			vfloat		xv = v_set1(x[j]);

			GK_UNROLL
			for (int p = 0; p < 4; p++)
			{
				vfloat		t = v_sub(xv, v_load(s->columns + j * width + k + p * GK_LANES));

				acc[p] = v_fma(t, t, acc[p]);
			}
		}
		for (int p = 0; p < 4; p++)
			v_store(d2 + p * GK_LANES, acc[p]);
		for (int q = 0; q < 4 * GK_LANES; q++)
			if (d2[q] < least)
			{
				least = d2[q];
				label = k + q;
			}
	}
	return label;
}
