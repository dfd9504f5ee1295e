/*
 * gk_cpu_columns.c - loops over one column (gk_columns.h) for every instruction
 * set, from one source: the compiler's generic vectors of eight doubles, inlined
 * into functions with the target attributes.
 */
#include <math.h>

#include "core/gk_columns.h"
#include "core/gk_numerics.h"
#include "cpu/gk_cpu_kernels.h"

#define LANES	8

typedef double vdouble __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t vmask __attribute__((vector_size(LANES * sizeof(int64_t))));
typedef float vfloat __attribute__((vector_size(LANES * sizeof(float))));

#define INLINE	static inline __attribute__((always_inline))

/* m ? a : b, lane by lane; a macro because vectors are no portable arguments. */
#define PICK(m, a, b)	((vdouble) (((m) & (vmask) (a)) | (~(m) & (vmask) (b))))
#define LOAD(v, p)		memcpy(&(v), (p), sizeof(v))
#define STORE(p, v)		memcpy((p), &(v), sizeof(v))
#define SPREAD(x)		((vdouble) {x, x, x, x, x, x, x, x})

INLINE bool
fits_float(const double *x, int n)
{
	vmask		inexact = {0};
	bool		fits = true;
	int			i = 0;

	for (; i + LANES <= n; i += LANES)
	{
		vdouble		v;

		LOAD(v, x + i);
		inexact |= (vmask) (__builtin_convertvector(__builtin_convertvector(v, vfloat), vdouble) != v);
	}
	for (; i < n; i++)
		fits &= (double) (float) x[i] == x[i];
	for (int u = 0; u < LANES; u++)
		fits &= inexact[u] == 0;
	return fits;
}

/*
 * The sum: cut every value at 40 bits below the block's largest: the upper parts
 * are multiples of one unit and 1,024 of them add up exactly in a double; then
 * the same with what is left.  Two rounds for full doubles, one for integers.
 */
INLINE void
observe(GkColumnStats *s, const double *x, int n)
{
	double		rest[GK_COLUMN_BLOCK + LANES];
	vdouble		lo = SPREAD(s->min);
	vdouble		hi = SPREAD(s->max);
	int			padded = (n + LANES - 1) / LANES * LANES;

	if (n == 0)
		return;
	memcpy(rest, x, n * sizeof(double));
	for (int i = n; i < padded; i++)
		rest[i] = x[0];			/* changes neither minimum nor maximum */
	for (int i = 0; i < padded; i += LANES)
	{
		vdouble		v;

		LOAD(v, rest + i);
		lo = PICK(v < lo, v, lo);
		hi = PICK(v > hi, v, hi);
	}
	for (int u = 0; u < LANES; u++)
	{
		s->min = lo[u] < s->min ? lo[u] : s->min;
		s->max = hi[u] > s->max ? hi[u] : s->max;
	}
	for (int i = n; i < padded; i++)
		rest[i] = 0.0;

	for (;;)
	{
		vdouble		big = {0};
		vdouble		sum = {0};
		double		most = 0.0;
		double		total = 0.0;
		int			e;

		for (int i = 0; i < padded; i += LANES)
		{
			vdouble		v;

			LOAD(v, rest + i);
			v = (vdouble) ((vmask) v & INT64_MAX);	/* absolute value */
			big = PICK(v > big, v, big);
		}
		for (int u = 0; u < LANES; u++)
			most = big[u] > most ? big[u] : most;
		if (most == 0.0)
			return;
		frexp(most, &e);		/* most < 2^e */
		if (e < -900 || e > 1000)
		{
			/* The magic number would leave the exponent range. */
			for (int i = 0; i < n; i++)
				gk_wide_add(&s->sum, rest[i]);
			return;
		}
		{
			const vdouble magic = SPREAD(1.5 * gk_pow2(e - 40 + 52));

			for (int i = 0; i < padded; i += LANES)
			{
				vdouble		v;
				vdouble		h;

				LOAD(v, rest + i);
				h = (v + magic) - magic;
				sum += h;
				v -= h;
				STORE(rest + i, v);
			}
		}
		for (int u = 0; u < LANES; u++)
			total += sum[u];
		gk_wide_add(&s->sum, total);
	}
}

INLINE void
prepare(const double *x, int n, double center, double scale, double magic, float *out)
{
	const vdouble quarter = SPREAD(center * 0.25);
	const vdouble times = SPREAD(scale * 4.0);
	const vdouble top = SPREAD((double) FLT_MAX);
	const vdouble grid = SPREAD(magic);
	const vdouble far = SPREAD(magic * 0x1p-28);
	int			i = 0;

	for (; i + LANES <= n; i += LANES)
	{
		vdouble		v;
		vdouble		t;
		vfloat		f;

		LOAD(v, x + i);
		v = (v * 0.25 - quarter) * times;
		v = PICK(v > top, top, v);
		v = PICK(v < -top, -top, v);
		t = __builtin_convertvector(__builtin_convertvector(v, vfloat), vdouble);
		v = (vdouble) ((vmask) t & INT64_MAX);	/* absolute value */
		t = PICK(v > far, t, (t + grid) - grid);
		f = __builtin_convertvector(t, vfloat);
		STORE(out + i, f);
	}
	for (; i < n; i++)
		out[i] = gk_to_grid(gk_centre_scale(x[i], center, scale), magic);
}

/*
 * Values are at most 2^40 grid units, so 1,024 of them add up exactly in a double;
 * squares are whole numbers of grid units squared, cut in two halves that do.
 */
INLINE void
moments(GkMoments *m, const float *x, int n, int expo)
{
	const vdouble magic = SPREAD(1.5 * gk_pow2(2 * expo - GK_GRID_BITS + 52));
	vdouble		sum = {0};
	vdouble		hi = {0};
	vdouble		lo = {0};
	double		s = 0.0,
				h = 0.0,
				l = 0.0;

	for (int i = 0; i < n; i += LANES)
	{
		vfloat		f = {0};
		vdouble		v;
		vdouble		sq;
		vdouble		up;

		if (i + LANES <= n)
			LOAD(f, x + i);
		else
			memcpy(&f, x + i, (n - i) * sizeof(float));
		v = __builtin_convertvector(f, vdouble);
		sq = v * v;
		up = (sq + magic) - magic;
		sum += v;
		hi += up;
		lo += sq - up;
	}
	for (int u = 0; u < LANES; u++)
	{
		s += sum[u];
		h += hi[u];
		l += lo[u];
	}
	m->sum += (int64_t) (s * gk_pow2(GK_GRID_BITS - expo));
	/* 2^80 units of squares in two steps of 2^40, each inside the exponent range */
	m->sq += (gk_int128) (int64_t) (h * gk_pow2(GK_GRID_BITS - 2 * expo)) * ((gk_int128) 1 << 40) +
		(int64_t) (l * gk_pow2(GK_GRID_BITS - 2 * expo) * 0x1p40);
}

#define VARIANT(name, target) \
	target static bool name##_fits_float(const double *x, int n) { return fits_float(x, n); } \
	target static void name##_observe(GkColumnStats *s, const double *x, int n) { observe(s, x, n); } \
	target static void name##_prepare(const double *x, int n, double center, double scale, double magic, float *out) \
	{ prepare(x, n, center, scale, magic, out); } \
	target static void name##_moments(GkMoments *m, const float *x, int n, int expo) { moments(m, x, n, expo); } \
	static const GkColumnKernels name##_columns = { \
		name##_fits_float, name##_observe, name##_prepare, name##_moments \
	};

VARIANT(base,)
#ifdef GK_CPU_X86
VARIANT(avx2, __attribute__((target("avx2,fma"))))
VARIANT(avx512, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))))
#endif

const GkColumnKernels *
gk_columns(void)
{
#ifdef GK_CPU_X86
	if (gk_cpu_kernels() == &gk_cpu_avx512)
		return &avx512_columns;
	if (gk_cpu_kernels() == &gk_cpu_avx2)
		return &avx2_columns;
#endif
	return &base_columns;
}
