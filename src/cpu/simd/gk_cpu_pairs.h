/*
 * gk_cpu_pairs.h - canonical distances of pairs of a point and a centroid.
 *
 * A template: a file that includes it has the vectors of a set (gk_cpu_vector_*.h).  Lanes are pairs, as the features of one are
 * summed up in order.  Where both have their features in a row, differences are made along the features and transposed
 * in registers; of rows of a tile in order, the centroids' features are.
 */

/* With fewer pairs these take less time one by one. */
#define FEW		(GK_LANES / 4 + 1)

/* n features of pairs, n a constant at most calls, points with their features in a row: past the n-th one 0, which adds nothing. */
GK_INLINE vfloat
add_points(vfloat sum, const float *const x[GK_LANES], const float *const c[GK_LANES], int j, const int n)
{
	vfloat		t[GK_LANES];

	GK_UNROLL
	for (int l = 0; l < GK_LANES; l++)
		t[l] = n == GK_LANES ? v_sub(v_load(x[l] + j), v_load(c[l] + j)) : v_sub(v_load_first(n, x[l] + j), v_load_first(n, c[l] + j));
	transpose(t);
	GK_UNROLL
	for (int f = 0; f < GK_LANES; f++)
		sum = v_fma(t[f], t[f], sum);
	return sum;
}

GK_TARGET static __attribute__((noinline)) vfloat
pairs_of_points(const float *const x[GK_LANES], const float *const c[GK_LANES], int d)
{
	vfloat		sum = v_zero();
	int			j = 0;

	for (; j + GK_LANES <= d; j += GK_LANES)
		sum = add_points(sum, x, c, j, GK_LANES);
	return j < d ? add_points(sum, x, c, j, d - j) : sum;
}

/* n features of centroids: in v[f] the lanes are centroids. */
GK_INLINE void
load_features(vfloat v[GK_LANES], const float *const c[GK_LANES], int j, const int n)
{
	GK_UNROLL
	for (int l = 0; l < GK_LANES; l++)
		v[l] = n == GK_LANES ? v_load(c[l] + j) : v_load_first(n, c[l] + j);
	transpose(v);
}

/* Rows that follow one another, from x on. */
GK_TARGET static __attribute__((noinline)) vfloat
pairs_of_rows(const float *x, size_t stride, const float *const c[GK_LANES], int d)
{
	vfloat		sum = v_zero();
	vfloat		v[GK_LANES];
	int			j = 0;

	for (; j + GK_LANES <= d; j += GK_LANES)
	{
		load_features(v, c, j, GK_LANES);
		GK_UNROLL
		for (int f = 0; f < GK_LANES; f++)
		{
			vfloat		t = v_sub(v_load(x + (j + f) * stride), v[f]);

			/* each feature may be in another page, which the processor does not fetch ahead */
			if (j + f + GK_LANES < d)
				__builtin_prefetch(x + (j + f + GK_LANES) * stride);
			sum = v_fma(t, t, sum);
		}
	}
	if (j == d)
		return sum;
	load_features(v, c, j, d - j);
	for (int f = 0; j + f < d; f++)
	{
		vfloat		t = v_sub(v_load(x + (j + f) * stride), v[f]);

		sum = v_fma(t, t, sum);
	}
	return sum;
}

/* At most GK_LANES pairs, as own_distance() has them; false: not this way. */
GK_INLINE bool
pairs(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n, const float *c, int d, float *d2)
{
	const float *xi[GK_LANES];
	const float *ci[GK_LANES];
	bool		in_order = n == GK_LANES;

	if (n < FEW)
		return false;
	for (int l = 0; l < GK_LANES; l++)
	{
		int			at = l < n ? l : n - 1;

		xi[l] = x + row[at];
		ci[l] = c + (size_t) label[at] * d;
		in_order &= row[at] == row[0] + l;
	}
	if (stride == 1)
		v_store_first(n, d2, pairs_of_points(xi, ci, d));
	else if (in_order)
		v_store(d2, pairs_of_rows(xi[0], stride, ci, d));
	return stride == 1 || in_order;
}

/* GkCpuKernels.own_distance: pairs() of a vector at a time, where it is not this way `rest` of that. */
GK_INLINE void
all_pairs(const float *x, size_t stride, const int32_t *row, const int32_t *label, int n, const float *c, int d, float *d2,
		  void (*rest) (const float *x, size_t stride, const int32_t *row, const int32_t *label, int n, const float *c, int d, float *d2))
{
	for (int i = 0; i < n; i += GK_LANES)
	{
		int			some = n - i < GK_LANES ? n - i : GK_LANES;

		if (!pairs(x, stride, row + i, label + i, some, c, d, d2 + i))
			rest(x, stride, row + i, label + i, some, c, d, d2 + i);
	}
}

/* GkCpuKernels.turn */
GK_TARGET static void
turn_tile(const float *x, size_t stride, int d, float *out, size_t pitch)
{
	for (int j = 0; j < d; j += GK_LANES)
		for (int i = 0; i < GK_ROW_PAD; i += GK_LANES)
		{
			vfloat		v[GK_LANES];

			GK_UNROLL
			for (int f = 0; f < GK_LANES; f++)
			{
				v[f] = j + f < d ? v_load(x + (j + f) * stride + i) : v_zero();
				if (j + f + GK_LANES < d)
					__builtin_prefetch(x + (j + f + GK_LANES) * stride + i);
			}
			transpose(v);
			/* (a row has room for whole vectors) */
			GK_UNROLL
			for (int l = 0; l < GK_LANES; l++)
				v_store(out + (i + l) * pitch + j, v[l]);
		}
}
