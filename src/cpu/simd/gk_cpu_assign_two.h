/*
 * gk_cpu_assign_two.h - the kernels of gk_cpu_hamerly_search.c: the nearest centroid and the
 * distance to the second nearest.
 *
 * A template as gk_cpu_assign.h, included after it.
 */
/* A register tile's least values, what they are of, and the second least, with nc more. */
GK_INLINE void
keep_two(const int nc, vfloat acc[GK_WIDEST][GK_VECTORS], int k, int32_t *label, float *least, float *second)
{
	GK_UNROLL
	for (int p = 0; p < GK_VECTORS; p++)
	{
		vfloat		best = v_load(least + p * GK_LANES);
		vfloat		next = v_load(second + p * GK_LANES);
		vlabel		lab = vl_load(label + p * GK_LANES);

		GK_UNROLL
		for (int q = 0; q < nc; q++)
		{
			vmask		less = v_less(acc[q][p], best);

			/* the larger of the two may be the second */
			next = v_min(v_pick(less, best, acc[q][p]), next);
			best = v_pick(less, acc[q][p], best);
			lab = vl_pick(less, vl_set1(k + q), lab);
		}
		v_store(least + p * GK_LANES, best);
		v_store(second + p * GK_LANES, next);
		vl_store(label + p * GK_LANES, lab);
	}
}

GK_INLINE void
two_run(const int nc, const float *x, size_t stride, const float *c, int k0, int k1, size_t d,
		   GkPrefetch *ahead, int32_t *label, float *d2, float *second)
{
	for (int k = k0; k < k1; k += nc)
	{
		vfloat		acc[GK_WIDEST][GK_VECTORS];

		distances(acc, nc, x, stride, c + k * d, d, ahead);
		keep_two(nc, acc, k, label, d2, second);
	}
}

#define GK_ASSIGN_TWO(nc) \
	GK_TARGET static __attribute__((noinline)) void \
	two_##nc(const float *x, size_t stride, const float *c, int k0, int k1, size_t d, \
				GkPrefetch *ahead, int32_t *label, float *d2, float *second) \
	{ \
		two_run(nc, x, stride, c, k0, k1, d, ahead, label, d2, second); \
	}
GK_ASSIGN_TWO(1)
GK_ASSIGN_TWO(2)
GK_ASSIGN_TWO(3)
GK_ASSIGN_TWO(4)
GK_ASSIGN_TWO(5)
GK_ASSIGN_TWO(6)

GK_TARGET static void
assign_two(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2, float *next)
{
	static void (*const run[GK_WIDEST]) (const float *, size_t, const float *, int, int, size_t,
										 GkPrefetch *, int32_t *, float *, float *) =
	{NULL, two_1, two_2, two_3, two_4, two_5};
	int			rest = (k1 - k0) % GK_WIDEST;
	int			whole = k1 - rest;
	const GkPrefetch all = rows_ahead(x, k1 - k0);

	for (int i = 0; i < x->count * GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		const float *at = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
		GkPrefetch		ahead = all;

		if (whole > k0)
			two_6(at, x->stride, c, k0, whole, x->d, &ahead, label + i, d2 + i, next + i);
		if (rest > 0)
			run[rest] (at, x->stride, c, whole, k1, x->d, &ahead, label + i, d2 + i, next + i);
	}
}

/* Canonical distances of scattered points, eight chains at a time. */
GK_TARGET static void
own_distance(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n,
	const float *c, int d, float *d2)
{
	for (int i = 0; i < n; i += 8)
	{
		const float *xi[8];
		const float *ci[8];
		float		s[8] = {0};

		for (int l = 0; l < 8; l++)
		{
			int			at = i + l < n ? i + l : n - 1;

			xi[l] = x + row[at];
			ci[l] = c + (size_t) label[at] * d;
		}
		for (int j = 0; j < d; j++)
		{
			GK_UNROLL
			for (int l = 0; l < 8; l++)
			{
				float		t = xi[l][j * stride] - ci[l][j];

				s[l] = __builtin_fmaf(t, t, s[l]);
			}
		}
		for (int l = 0; l < 8 && i + l < n; l++)
			d2[i + l] = s[l];
	}
}
