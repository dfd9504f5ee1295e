/*
 * gk_cpu_smallk.h - what the kernels for small k of all instruction sets share.
 *
 * A template: gk_cpu_smallk_<set>.c defines GK_TARGET, GK_LANES, vfloat and v_load, v_set1, v_sub,
 * v_mul, v_fma as for gk_cpu_assign.h, and GK_SUMS, the sums that registers hold at once.
 */
#include "core/gk_numerics.h"
#include "cpu/simd/gk_cpu_unroll.h"

#define MAX_K		GK_CPU_SMALLK
#define MAX_D		8
/* Features at once of k clusters. */
#define FEATURES(k)	(GK_SUMS / ((k) - 1) < MAX_D ? GK_SUMS / ((k) - 1) : MAX_D)
/* Functions name_2 .. name_8. */
#define BY_K(name)	name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8

/* Rows at a time, where there is more than one pass: they stay in the cache. */
#define GK_SMALLK_ROWS	1024
/*
 * Ask for rows ahead in a column (see gk_cpu_assign.h) in two steps: main memory needs more
 * requests at a time than the first cache takes.
 */
#define GK_SMALLK_FAR		512
#define GK_SMALLK_NEAR		192

static inline void
gk_smallk_fetch(const float *x)
{
	__builtin_prefetch(x + GK_SMALLK_FAR, 0, 2);
	__builtin_prefetch(x + GK_SMALLK_NEAR, 0, 3);
}

/* The tiles from one on, of at most `rows` rows. */
static inline GkTiles
gk_smallk_slice(const GkTiles *x, int tile, int rows)
{
	GkTiles		some = *x;

	some.x += tile * x->tile;
	some.count = x->count - tile < rows / GK_ROW_PAD ? x->count - tile : rows / GK_ROW_PAD;
	return some;
}

/*
 * Add feature j of v vectors to their distances from all clusters.  k, v and numbers of features,
 * here and in the sets' files, are constants at every call.
 */
GK_INLINE void
add_distances(const int k, const int v, const float *x, const float *c, int d, int j, vfloat dist[][MAX_K])
{
	vfloat		xv[4];

	GK_UNROLL
	for (int p = 0; p < v; p++)
	{
		xv[p] = v_load(x + p * GK_LANES);
		if (p * GK_LANES % 16 == 0)
			gk_smallk_fetch(x + p * GK_LANES);
	}
	GK_UNROLL
	for (int q = 0; q < k; q++)
	{
		vfloat		cv = v_set1(c[q * d + j]);

		GK_UNROLL
		for (int p = 0; p < v; p++)
		{
			vfloat		t = v_sub(xv[p], cv);

			/* fma(t, t, 0) is t * t */
			dist[p][q] = j == 0 ? v_mul(t, t) : v_fma(t, t, dist[p][q]);
		}
	}
}
