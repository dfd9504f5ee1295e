/*
 * gk_cpu_assign_dot.h - the kernel of gk_cpu_dot.c: nearest centroids by scalar products.
 *
 * A template as gk_cpu_assign.h, included after gk_cpu_assign_two.h; v_fnma(a, b, c) = c - a * b.  One
 * instruction for each feature of a point and a centroid, where the canonical distance
 * takes two.
 */
GK_INLINE void
products(vfloat acc[GK_WIDEST][GK_VECTORS], const int nc, const int lines, const float *x, size_t stride,
		 const float *c, const float *half, size_t d, size_t chain, const float *ask)
{
	GK_UNROLL
	for (int q = 0; q < nc; q++)
	{
		GK_UNROLL
		for (int p = 0; p < GK_VECTORS; p++)
			acc[q][p] = v_set1(half[q]);
	}
	for (size_t first = 0; first < d; first += chain)
	{
		size_t		end = d - first < chain ? d : first + chain;
		vfloat		before[GK_WIDEST][GK_VECTORS];

		/* what there is waits in memory, for fewer roundings of large sums */
		if (first > 0)
		{
			GK_UNROLL
			for (int q = 0; q < nc; q++)
			{
				GK_UNROLL
				for (int p = 0; p < GK_VECTORS; p++)
				{
					before[q][p] = acc[q][p];
					acc[q][p] = v_zero();
				}
			}
		}
		for (size_t j = first; j < end; j++)
		{
			vfloat		xv[GK_VECTORS];

			GK_UNROLL
			for (int p = 0; p < GK_VECTORS; p++)
				xv[p] = v_load(x + j * stride + p * GK_LANES);
			GK_UNROLL
			for (int i = 0; i < lines; i++)
				__builtin_prefetch(ask + j * stride + i * 16, 0, 2);
			GK_UNROLL
			for (int q = 0; q < nc; q++)
			{
				vfloat		cv = v_set1(c[q * d + j]);

				GK_UNROLL
				for (int p = 0; p < GK_VECTORS; p++)
					acc[q][p] = v_fnma(xv[p], cv, acc[q][p]);
			}
		}
		if (first > 0)
		{
			GK_UNROLL
			for (int q = 0; q < nc; q++)
			{
				GK_UNROLL
				for (int p = 0; p < GK_VECTORS; p++)
					acc[q][p] = v_add(before[q][p], acc[q][p]);
			}
		}
	}
}

GK_INLINE void
dot_run(const int nc, const float *x, size_t stride, const GkDot *s, int k0, int k1, size_t d,
		   GkPrefetch *ahead, int32_t *label, float *least, float *second)
{
	for (int k = k0; k < k1; k += nc)
	{
		const float *c = s->c + k * d;
		const float *ask = x + ahead->rows + ahead->from * 16;
		vfloat		acc[GK_WIDEST][GK_VECTORS];

		if (ahead->each == 0 || ahead->from >= GK_LINES)
			products(acc, nc, 0, x, stride, c, s->half + k, d, s->chain, ask);
		else if (ahead->each == GK_LINES)
			products(acc, nc, GK_LINES, x, stride, c, s->half + k, d, s->chain, ask);
		else
			products(acc, nc, GK_HALF, x, stride, c, s->half + k, d, s->chain, ask);
		ahead->from += ahead->each;
		keep_two(nc, acc, k, label, least, second);
	}
}

#define GK_DOT(nc) \
	GK_TARGET static __attribute__((noinline)) void \
	dot_##nc(const float *x, size_t stride, const GkDot *s, int k0, int k1, size_t d, \
				GkPrefetch *ahead, int32_t *label, float *least, float *second) \
	{ \
		dot_run(nc, x, stride, s, k0, k1, d, ahead, label, least, second); \
	}
GK_DOT(1)
GK_DOT(2)
GK_DOT(3)
GK_DOT(4)
GK_DOT(5)
GK_DOT(6)

/* The largest square of a tile's points. */
GK_TARGET static __attribute__((noinline)) float
largest_square(const float *x, size_t stride, size_t d)
{
	float		lane[GK_LANES];
	float		most = 0.0f;
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
		most = lane[i] > most ? lane[i] : most;
	return most;
}

/* Rows of a register tile whose second is not farther than the least by what may be wrong. */
GK_INLINE uint64_t
undecided(const GkDot *s, float most, const float *least, const float *second)
{
	vfloat		square = v_set1(most);
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
	static void (*const run[GK_WIDEST]) (const float *, size_t, const GkDot *, int, int, size_t,
										 GkPrefetch *, int32_t *, float *, float *) =
	{NULL, dot_1, dot_2, dot_3, dot_4, dot_5};
	int			rest = s->k % GK_WIDEST;
	int			whole = s->k - rest;
	const GkPrefetch all = rows_ahead(x, s->k);

	memset(open, 0, x->count * sizeof(uint64_t));
	for (int i = 0; i < x->count * GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		const float *at = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
		GkPrefetch		ahead = all;
		float		least[GK_VECTORS * GK_LANES];
		float		second[GK_VECTORS * GK_LANES];

		for (int p = 0; p < GK_VECTORS * GK_LANES; p += GK_LANES)
		{
			vl_store(label + i + p, vl_set1(0));
			v_store(least + p, v_set1(INFINITY));
			v_store(second + p, v_set1(INFINITY));
		}
		if (whole > 0)
			dot_6(at, x->stride, s, 0, whole, x->d, &ahead, label + i, least, second);
		if (rest > 0)
			run[rest] (at, x->stride, s, whole, s->k, x->d, &ahead, label + i, least, second);
		if (square[i / GK_ROW_PAD] < 0.0f)
			square[i / GK_ROW_PAD] = largest_square(at, x->stride, x->d);
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
