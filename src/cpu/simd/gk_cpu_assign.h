/*
 * gk_cpu_assign.h - assign and mindist for one vector instruction set.
 *
 * A template: gk_cpu_<set>.c defines the following and then includes this file.
 *   GK_TARGET       the function attribute that switches the instruction set on
 *   GK_LANES        floats in a vector
 *   GK_VECTORS      vectors of points in a register tile
 *   vfloat, vlabel  vectors of GK_LANES floats, of GK_LANES int32
 *   v_zero, v_load, v_store, v_set1, v_sub, v_min, v_fma(a, b, c) = a * b + c
 *   vl_load, vl_store, vl_set1
 *   vmask, v_less(a, b), v_pick(m, a, b) and vl_pick(m, a, b) = m ? a : b
 *
 * A register tile is GK_VECTORS vectors of points against up to 6 centroids: per
 * feature the points are loaded once, each centroid coordinate is broadcast once,
 * and 6 * GK_VECTORS independent chains of (sub, fma) hide the latency of both.
 * A chain itself runs over the features in order: that is the canonical distance
 * of gk_numerics.h, whatever the vector length.
 */
#define GK_WIDEST		6
#define GK_INLINE		GK_TARGET static inline __attribute__((always_inline))

/* The tile lives in registers only if every loop over it is unrolled. */
#if defined(__clang__)
#define GK_UNROLL		_Pragma("clang loop unroll(full)")
#else
#define GK_UNROLL		_Pragma("GCC unroll 16")
#endif

/* Cache lines of a feature in a register tile. */
#define GK_LINES	((GK_VECTORS * GK_LANES + 15) / 16)
#define GK_HALF		((GK_LINES + 1) / 2)

/*
 * Points to ask for while others are worked on, see rows_ahead(): some lines of every
 * feature along with each group of centroids.
 */
typedef struct GkPrefetch
{
	int			rows;
	int			each;			/* GK_LINES, GK_HALF or 0 */
	int			from;			/* lines asked for */
} GkPrefetch;

/* nc, here and below, is a constant at every call, and so is the number of lines. */
GK_INLINE void
chains(vfloat acc[GK_WIDEST][GK_VECTORS], const int nc, const int lines,
	   const float *x, size_t stride, const float *c, size_t d, const float *ask)
{
	GK_UNROLL
	for (int q = 0; q < nc; q++)
	{
		GK_UNROLL
		for (int p = 0; p < GK_VECTORS; p++)
			acc[q][p] = v_zero();
	}
	for (size_t j = 0; j < d; j++)
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
			{
				vfloat		t = v_sub(xv[p], cv);

				acc[q][p] = v_fma(t, t, acc[q][p]);
			}
		}
	}
}

GK_INLINE void
distances(vfloat acc[GK_WIDEST][GK_VECTORS], const int nc,
		  const float *x, size_t stride, const float *c, size_t d, GkPrefetch *ahead)
{
	const float *ask = x + ahead->rows + ahead->from * 16;

	if (ahead->each == 0 || ahead->from >= GK_LINES)
		chains(acc, nc, 0, x, stride, c, d, ask);
	else if (ahead->each == GK_LINES)
		chains(acc, nc, GK_LINES, x, stride, c, d, ask);
	else
		chains(acc, nc, GK_HALF, x, stride, c, d, ask);
	ahead->from += ahead->each;
}

/* One vector's rows of points against centroids k0..k1-1, nc at a time. */
GK_INLINE void
assign_run(const int nc, const float *x, size_t stride, const float *c, int k0, int k1, size_t d,
		   GkPrefetch *ahead, int32_t *label, float *d2)
{
	for (int k = k0; k < k1; k += nc)
	{
		vfloat		acc[GK_WIDEST][GK_VECTORS];

		distances(acc, nc, x, stride, c + k * d, d, ahead);
		GK_UNROLL
		for (int p = 0; p < GK_VECTORS; p++)
		{
			vfloat		best = v_load(d2 + p * GK_LANES);
			vlabel		lab = vl_load(label + p * GK_LANES);

			GK_UNROLL
			for (int q = 0; q < nc; q++)
			{
				vmask		less = v_less(acc[q][p], best);

				best = v_pick(less, acc[q][p], best);
				lab = vl_pick(less, vl_set1(k + q), lab);
			}
			v_store(d2 + p * GK_LANES, best);
			vl_store(label + p * GK_LANES, lab);
		}
	}
}

GK_INLINE void
mindist_run(const int nc, const float *x, size_t stride, const float *c, int k0, int k1, size_t d,
			GkPrefetch *ahead, float *d2)
{
	for (int k = k0; k < k1; k += nc)
	{
		vfloat		acc[GK_WIDEST][GK_VECTORS];

		distances(acc, nc, x, stride, c + k * d, d, ahead);
		GK_UNROLL
		for (int p = 0; p < GK_VECTORS; p++)
		{
			vfloat		best = v_load(d2 + p * GK_LANES);

			GK_UNROLL
			for (int q = 0; q < nc; q++)
				best = v_min(acc[q][p], best);
			v_store(d2 + p * GK_LANES, best);
		}
	}
}

/* A function of its own for each width, so that each has all registers. */
#define GK_RUNS(nc) \
	GK_TARGET static __attribute__((noinline)) void \
	assign_##nc(const float *x, size_t stride, const float *c, int k0, int k1, size_t d, \
				GkPrefetch *ahead, int32_t *label, float *d2) \
	{ \
		assign_run(nc, x, stride, c, k0, k1, d, ahead, label, d2); \
	} \
	GK_TARGET static __attribute__((noinline)) void \
	mindist_##nc(const float *x, size_t stride, const float *c, int k0, int k1, size_t d, \
				 GkPrefetch *ahead, float *d2) \
	{ \
		mindist_run(nc, x, stride, c, k0, k1, d, ahead, d2); \
	}
GK_RUNS(1)
GK_RUNS(2)
GK_RUNS(3)
GK_RUNS(4)
GK_RUNS(5)
GK_RUNS(6)

static void (*const assign_rest[GK_WIDEST]) (const float *, size_t, const float *, int, int, size_t, GkPrefetch *, int32_t *, float *) =
{NULL, assign_1, assign_2, assign_3, assign_4, assign_5};

static void (*const mindist_rest[GK_WIDEST]) (const float *, size_t, const float *, int, int, size_t, GkPrefetch *, float *) =
{NULL, mindist_1, mindist_2, mindist_3, mindist_4, mindist_5};

/*
 * Columns read in place are many streams of short runs, which hardware does not fetch
 * ahead by itself: twice the speed on points in main memory.  A processor has some
 * dozens of misses under way, so the lines of a tile are asked for little by little,
 * while the tile AHEAD_FLOATS before it is compared with one group of centroids
 * after the other.  They wait in the second-level cache: in the first, with a tile of
 * 32 features and more, they would take the place of the one that is compared.
 */
#define AHEAD_FLOATS	(16 * 1024)
#define AHEAD_ROWS		512

GK_INLINE GkPrefetch
rows_ahead(const GkTiles *x, int k)
{
	int			rows = AHEAD_FLOATS / x->d / GK_ROW_PAD * GK_ROW_PAD;
	GkPrefetch		ahead = {0};

	if (x->stride == GK_ROW_PAD)
		return ahead;			/* packed */
	ahead.rows = rows < GK_ROW_PAD ? GK_ROW_PAD : rows > AHEAD_ROWS ? AHEAD_ROWS : rows;
	ahead.each = k > GK_WIDEST ? GK_HALF : GK_LINES;
	return ahead;
}

GK_TARGET static void
assign(const GkTiles *x, const float *c, int k0, int k1, int32_t *label, float *d2)
{
	int			rest = (k1 - k0) % GK_WIDEST;
	int			whole = k1 - rest;
	const GkPrefetch all = rows_ahead(x, k1 - k0);

	for (int i = 0; i < x->count * GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		const float *at = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
		GkPrefetch		ahead = all;

		if (k0 == 0)
			for (int p = 0; p < GK_VECTORS * GK_LANES; p += GK_LANES)
			{
				vl_store(label + i + p, vl_set1(0));
				v_store(d2 + i + p, v_set1(INFINITY));
			}
		if (whole > k0)
			assign_6(at, x->stride, c, k0, whole, x->d, &ahead, label + i, d2 + i);
		if (rest > 0)
			assign_rest[rest] (at, x->stride, c, whole, k1, x->d, &ahead, label + i, d2 + i);
	}
}

GK_TARGET static void
mindist(const GkTiles *x, const float *c, int k0, int k1, float *d2)
{
	int			rest = (k1 - k0) % GK_WIDEST;
	int			whole = k1 - rest;
	const GkPrefetch all = rows_ahead(x, k1 - k0);

	for (int i = 0; i < x->count * GK_ROW_PAD; i += GK_VECTORS * GK_LANES)
	{
		const float *at = x->x + i / GK_ROW_PAD * x->tile + i % GK_ROW_PAD;
		GkPrefetch		ahead = all;

		if (whole > k0)
			mindist_6(at, x->stride, c, k0, whole, x->d, &ahead, d2 + i);
		if (rest > 0)
			mindist_rest[rest] (at, x->stride, c, whole, k1, x->d, &ahead, d2 + i);
	}
}
