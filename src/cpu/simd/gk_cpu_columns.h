/*
 * gk_cpu_columns.h - loops over one column (gk_columns.h) for one vector instruction set.
 *
 * A template: the set's file defines the following and then includes this file.
 *   GK_TARGET         the function attribute that switches the instruction set on
 *   GK_COLUMNS        the name of the table of functions
 *   GK_DOUBLES        doubles in a vector
 *   v_widen(f)        as many floats (vnarrow) as doubles
 *   vd_fma(a, b, c)   a * b + c of doubles and vd_fms(a, b, c) = a * b - c, of exact products
 *   vd_min(a, b)      a < b ? a : b of doubles, vd_max(a, b) = a > b ? a : b
 *   vf_min, vf_max    the same of floats (vfloats)
 *   vb_min            the same of their bits (vbits)
 *   GK_TURN           the set's turn(), or NULL
 *   vf_least, vf_most the least and the largest lane of floats, vb_least the least of bits, vd_total the sum of doubles
 * The rest is the compiler's generic vectors, no longer than the set's own: longer ones
 * are taken apart lane by lane.
 */
#include <math.h>

#include "core/store/gk_columns.h"
#include "core/gk_numerics.h"
#include "cpu/simd/gk_cpu_kernels.h"

#ifndef GK_INLINE
#define GK_INLINE	GK_TARGET static inline __attribute__((always_inline))
#endif

/*
 * Ask for columns this many bytes ahead: by itself the CPU looks no further than the end
 * of a 4 kB page, and half of the time of preparing was waiting there.
 */
#define AHEAD	4096

typedef double vdouble __attribute__((vector_size(GK_DOUBLES * sizeof(double))));
typedef int64_t vlong __attribute__((vector_size(GK_DOUBLES * sizeof(int64_t))));
typedef float vnarrow __attribute__((vector_size(GK_DOUBLES * sizeof(float))));
typedef int32_t vint __attribute__((vector_size(GK_DOUBLES * sizeof(int32_t))));

/* twice as many floats */
typedef float vfloats __attribute__((vector_size(2 * GK_DOUBLES * sizeof(float))));
typedef uint32_t vbits __attribute__((vector_size(2 * GK_DOUBLES * sizeof(float))));

/* m ? a : b, lane by lane; a macro because vectors are no portable arguments. */
#define PICK(m, a, b)	((vdouble) (((m) & (vlong) (a)) | (~(m) & (vlong) (b))))
#define PICK_BITS(m, a, b)		((vbits) (((vbits) (m) & (vbits) (a)) | (~(vbits) (m) & (vbits) (b))))
#define PICK_FLOATS(m, a, b)	((vfloats) PICK_BITS(m, a, b))
#define LOAD(v, p)		memcpy(&(v), (p), sizeof(v))
#define STORE(p, v)		memcpy((p), &(v), sizeof(v))
#define ASK(p)			__builtin_prefetch((const char *) (p) + AHEAD)
#define SPREAD(x)		((x) - (vdouble) {0})	/* -0 stays -0 */

/*
 * The sum: cut every value at 40 bits below the block's largest: the upper parts
 * are multiples of one unit and 1,024 of them add up exactly in a double; then
 * the same with what is left.  Two rounds for full doubles, one for integers.
 */
GK_TARGET static void
observe(GkColumnStats *s, const double *x, int n)
{
	double		rest[GK_COLUMN_BLOCK + GK_DOUBLES];
	vdouble		lo;
	vdouble		hi;
	int			padded = (n + GK_DOUBLES - 1) / GK_DOUBLES * GK_DOUBLES;
	double		min;
	double		max;
	double		most;			/* largest absolute value of rest */

	if (n == 0)
		return;
	memcpy(rest, x, n * sizeof(double));
	for (int i = n; i < padded; i++)
		rest[i] = x[0];			/* changes neither minimum nor maximum */
	min = max = x[0];
	lo = hi = SPREAD(x[0]);
	for (int i = 0; i < padded; i += GK_DOUBLES)
	{
		vdouble		v;

		LOAD(v, rest + i);
		lo = vd_min(v, lo);
		hi = vd_max(v, hi);
	}
	for (int u = 0; u < GK_DOUBLES; u++)
	{
		min = lo[u] < min ? lo[u] : min;
		max = hi[u] > max ? hi[u] : max;
	}
	s->min = min < s->min ? min : s->min;
	s->max = max > s->max ? max : s->max;
	most = -min > max ? -min : max;
	for (int i = n; i < padded; i++)
		rest[i] = 0.0;

	while (most != 0.0)
	{
		vdouble		big = {0};
		vdouble		sum = {0};
		vdouble		magic;
		double		total = 0.0;
		int			e;

		frexp(most, &e);		/* most < 2^e */
		if (e < -900 || e > 1000)
		{
			/* The magic number would leave the exponent range. */
			for (int i = 0; i < n; i++)
				gk_wide_add(&s->sum, rest[i]);
			return;
		}
		magic = SPREAD(1.5 * gk_pow2(e - 40 + 52));
		for (int i = 0; i < padded; i += GK_DOUBLES)
		{
			vdouble		v;
			vdouble		h;

			LOAD(v, rest + i);
			h = (v + magic) - magic;
			sum += h;
			v -= h;
			STORE(rest + i, v);
			v = (vdouble) ((vlong) v & INT64_MAX);	/* absolute value */
			big = vd_max(v, big);
		}
		most = 0.0;
		for (int u = 0; u < GK_DOUBLES; u++)
		{
			most = big[u] > most ? big[u] : most;
			total += sum[u];
		}
		gk_wide_add(&s->sum, total);
	}
}

/*
 * Floats in a block are rarely further apart than 2^20: then all of them are
 * multiples of one unit and small enough that 1,024 add up exactly in a double.
 */
GK_TARGET static void
observe_floats(GkColumnStats *s, const float *x, int n)
{
	vfloats		lo;
	vfloats		hi;
	vbits		least = ~(vbits) {0};	/* bits of the smallest absolute value but 0, less 1 */
	vdouble		sum = {0};
	double		total;
	double		wide[GK_COLUMN_BLOCK];
	float		min;
	float		max;
	uint32_t	smallest;
	int			i = 0;

	if (n == 0)
		return;
	lo = hi = (vfloats) {0} + x[0];
	for (; i + 2 * GK_DOUBLES <= n; i += 2 * GK_DOUBLES)
	{
		vfloats		v;
		vnarrow		half[2];
		vbits		b;

		LOAD(v, x + i);
		/* loaded again they are widened at once */
		LOAD(half[0], x + i);
		LOAD(half[1], x + i + GK_DOUBLES);
		lo = vf_min(v, lo);
		hi = vf_max(v, hi);
		b = ((vbits) v & 0x7fffffff) - 1;
		least = vb_min(b, least);
		sum += v_widen(half[0]) + v_widen(half[1]);
	}
	min = vf_least(lo);
	max = vf_most(hi);
	smallest = vb_least(least);
	total = vd_total(sum);
	for (; i < n; i++)
	{
		uint32_t	b;

		memcpy(&b, x + i, sizeof(b));
		b = (b & 0x7fffffff) - 1;
		smallest = b < smallest ? b : smallest;
		min = x[i] < min ? x[i] : min;
		max = x[i] > max ? x[i] : max;
		total += x[i];
	}
	if (smallest != UINT32_MAX)
	{
		float		most = -min > max ? -min : max;
		uint32_t	largest;

		memcpy(&largest, &most, sizeof(largest));
		/* exponents; a subnormal value's unit is that of the smallest normal one */
		if ((int) (largest >> 23) - (int) ((smallest + 1) >> 23) > 19)
		{
			for (i = 0; i < n; i++)
				wide[i] = x[i];
			observe(s, wide, n);
			return;
		}
		gk_wide_add(&s->sum, total);
	}
	s->min = min < s->min ? min : s->min;
	s->max = max > s->max ? max : s->max;
}

/* gk_to_grid(gk_centre_scale()) of raw values; from = center * part, times = scale / part. */
GK_INLINE void
prepare_some(const vdouble *raw, const vdouble *part, const vdouble *from, const vdouble *times,
			 const vdouble *magic, float *out)
{
	const vdouble top = SPREAD((double) FLT_MAX);
	vdouble		v = (*raw * *part - *from) * *times;
	vdouble		t;
	vnarrow		f;

	v = PICK(v > top, top, v);
	v = PICK(v < -top, -top, v);
	f = __builtin_convertvector(v, vnarrow);
	t = v_widen(f);
	v = (vdouble) ((vlong) t & INT64_MAX);	/* absolute value */
	t = PICK(v > *magic * 0x1p-28, t, (t + *magic) - *magic);
	f = __builtin_convertvector(t, vnarrow);
	STORE(out, f);
}

/* x or floats, the other one is NULL. */
GK_INLINE void
prepare_either(const double *x, const float *floats, int n, double center, double scale, double magic, float *out)
{
	const vdouble part = SPREAD(gk_part(scale));
	const vdouble from = SPREAD(center * gk_part(scale));
	const vdouble times = SPREAD(scale / gk_part(scale));
	const vdouble grid = SPREAD(magic);
	int			i = 0;

	for (; i + GK_DOUBLES <= n; i += GK_DOUBLES)
	{
		vdouble		v;
		vnarrow		f;

		if (x != NULL)
		{
			ASK(x + i);
			LOAD(v, x + i);
		}
		else
		{
			ASK(floats + i);
			LOAD(f, floats + i);
			v = v_widen(f);
		}
		prepare_some(&v, &part, &from, &times, &grid, out + i);
	}
	for (; i < n; i++)
		out[i] = gk_to_grid(gk_centre_scale(x != NULL ? x[i] : floats[i], center, scale), magic);
}

GK_TARGET static void
prepare(const double *x, int n, double center, double scale, double magic, float *out)
{
	prepare_either(x, NULL, n, center, scale, magic, out);
}

GK_TARGET static void
prepare_floats(const float *x, int n, double center, double scale, double magic, float *out)
{
	prepare_either(NULL, x, n, center, scale, magic, out);
}

GK_TARGET static void
prepare_row(const double *x, int d, const double *center, const double *scale, const int32_t *expo, float *out)
{
	int			j = 0;

	for (; j + GK_DOUBLES <= d; j += GK_DOUBLES)
	{
		vdouble		v;
		vdouble		c;
		vdouble		s;
		vdouble		part;
		vdouble		magic;
		vint		e;

		LOAD(v, x + j);
		LOAD(c, center + j);
		LOAD(s, scale + j);
		LOAD(e, expo + j);
		/* gk_part() */
		part = PICK(s < 1.0, SPREAD(0.25), SPREAD(1.0));
		c *= part;
		s = PICK(s < 1.0, s * 4.0, s);
		/* gk_grid_magic() */
		magic = (vdouble) ((__builtin_convertvector(e, vlong) + (1023 - GK_GRID_BITS + 52)) << 52) * 1.5;
		prepare_some(&v, &part, &c, &s, &magic, out + j);
	}
	for (; j < d; j++)
		out[j] = gk_to_grid(gk_centre_scale(x[j], center[j], scale[j]), gk_grid_magic(expo[j]));
}

/* Eight IEEE halves as floats: exact, since a float has more bits of both kinds. */
#if GK_DOUBLES > 2				/* these sets have an instruction for it */
GK_INLINE void
eight_halves(const void *from, float *to)
{
	_mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(from)));
}
#else
typedef uint16_t vhalves __attribute__((vector_size(16)));
typedef uint32_t vwords __attribute__((vector_size(32)));
typedef int32_t vmagnitudes __attribute__((vector_size(32)));
typedef float vsmall __attribute__((vector_size(32)));

/* What float has more than half: bits of the fraction, and the difference of the biases. */
#define HALF_SHIFT		13
#define HALF_BIAS		(112u << 23)

GK_INLINE void
eight_halves(const void *from, float *to)
{
	vhalves		half;
	vwords		word;
	vmagnitudes magnitude;
	vsmall		small;
	vwords		large;
	vwords		is_large;

	LOAD(half, from);
	word = __builtin_convertvector(half, vwords);
	magnitude = (vmagnitudes) (word & 0x7fff);
	/* without an exponent it is a multiple of 2^-24 */
	small = __builtin_convertvector(magnitude, vsmall) * 0x1p-24f;
	/* a difference's sign, since compilers compare such vectors one by one */
	is_large = (vwords) ((0x03ff - magnitude) >> 31);
	/* infinity and NaN have the highest exponent */
	large = ((vwords) magnitude << HALF_SHIFT) + HALF_BIAS + ((vwords) ((0x7bff - magnitude) >> 31) & HALF_BIAS);
	word = (is_large & large) | (~is_large & (vwords) small) | (word & 0x8000) << 16;
	STORE(to, word);
}
#endif

GK_TARGET static void
halves(const void *from, int n, float *to)
{
	const char *bytes = from;
	char		rest[16] = {0};
	float		last[8];
	int			i;

	for (i = 0; i + 8 <= n; i += 8)
		eight_halves(bytes + 2 * i, to + i);
	memcpy(rest, bytes + 2 * i, 2 * (n - i));
	eight_halves(rest, last);
	memcpy(to + i, last, (n - i) * sizeof(float));
}

GK_TARGET static bool
floats(const void *from, int n, float *to)
{
	const char *bytes = from;
	vbits		odd = {0};
	uint32_t	bad = 0;
	int			i = 0;

	for (; i + 2 * GK_DOUBLES <= n; i += 2 * GK_DOUBLES)
	{
		vfloats		v;

		LOAD(v, bytes + i * sizeof(float));
		STORE(to + i, v);
		odd |= (vbits) (v - v); /* 0 of what is finite, else NaN */
	}
	for (int u = 0; u < 2 * GK_DOUBLES; u++)
		bad |= odd[u];
	for (; i < n; i++)
	{
		LOAD(to[i], bytes + i * sizeof(float));
		bad |= to[i] - to[i] != 0.0f;
	}
	return bad == 0;
}

/*
 * Values are at most 2^40 grid units, so 1,024 of them add up exactly in a double.
 * Squares are whole numbers of grid units squared, cut in two: upper parts go to a sum that
 * began as a number so large that it rounds to them, lower parts are what is left.
 */
typedef struct Sums
{
	vdouble		sum;
	vdouble		hi;
	vdouble		lo;
} Sums;

GK_INLINE double
square_magic(int expo)
{
	return 1.5 * gk_pow2(2 * expo - GK_GRID_BITS + 52);
}

GK_INLINE Sums
no_sums(int expo)
{
	return (Sums) {{0}, SPREAD(square_magic(expo)), {0}};
}

GK_INLINE void
add_some(Sums *s, const vnarrow * f)
{
	vdouble		v = v_widen(*f);
	vdouble		hi = vd_fma(v, v, s->hi);
	vdouble		up = hi - s->hi;

	s->sum += v;
	s->hi = hi;
	s->lo += vd_fms(v, v, up);
}

GK_INLINE void
add_sums(GkMoments *m, const Sums *all, int expo)
{
	const Sums	sums = *all;	/* which stay in registers where they are added to */
	double		s = 0.0,
				h = 0.0,
				l = 0.0;

	for (int u = 0; u < GK_DOUBLES; u++)
	{
		s += sums.sum[u];
		h += sums.hi[u] - square_magic(expo);
		l += sums.lo[u];
	}
	m->sum += (int64_t) (s * gk_pow2(GK_GRID_BITS - expo));
	/* 2^80 units of squares in two steps of 2^40, each inside the exponent range */
	m->sq += (gk_int128) (int64_t) (h * gk_pow2(GK_GRID_BITS - 2 * expo)) * ((gk_int128) 1 << 40) +
		(int64_t) (l * gk_pow2(GK_GRID_BITS - 2 * expo) * 0x1p40);
}

GK_TARGET static void
moments(GkMoments *m, const float *x, int n, int expo)
{
	Sums		s = no_sums(expo);
	float		rest[GK_DOUBLES] = {0};
	vnarrow		f;
	int			i = 0;

	for (; i + GK_DOUBLES <= n; i += GK_DOUBLES)
	{
		LOAD(f, x + i);
		add_some(&s, &f);
	}
	if (i < n)
	{
		memcpy(rest, x + i, (n - i) * sizeof(float));
		LOAD(f, rest);
		add_some(&s, &f);
	}
	add_sums(m, &s, expo);
}

typedef struct Fit
{
	vfloats		center;
	vfloats		scale;
	vfloats		least;			/* 2^(expo - 17) */
} Fit;

/*
 * A vector of values.  gk_to_grid() in float32: below 2^(expo - 17) a value is rounded
 * by a number of that size and its own sign, whose unit is the grid's; from there on it
 * is on the grid.
 */
GK_INLINE void
fit_some(const float *x, const Fit *f, float *out, Sums *s)
{
	vfloats		v;
	vfloats		size;
	vfloats		grid;
	vnarrow		half;

	LOAD(v, x);
	v = (v - f->center) * f->scale;
	size = (vfloats) ((vbits) v & 0x7fffffff);
	grid = (vfloats) (((vbits) v & 0x80000000) | (vbits) f->least);
	v = PICK_FLOATS(size < f->least, (v + grid) - grid, v);
	STORE(out, v);
	/* Loaded again they are widened at once, but out of the register lane by lane. */
	__asm__("" : "+m" (*(float (*)[2 * GK_DOUBLES]) out));
	LOAD(half, out);
	add_some(s, &half);
	LOAD(half, out + GK_DOUBLES);
	add_some(s, &half);
}

GK_TARGET static void
prepare_fit(const float *x, int n, float center, float scale, int expo, float *out, GkMoments *m)
{
	const float least = (float) gk_pow2(expo - GK_GRID_BITS + 23);
	const Fit	f = {(vfloats) {0} + center, (vfloats) {0} + scale, (vfloats) {0} + least};
	Sums		s = no_sums(expo);
	int			i = 0;

	for (; i + 2 * GK_DOUBLES <= n; i += 2 * GK_DOUBLES)
	{
		ASK(x + i);
		fit_some(x + i, &f, out + i, &s);
	}
	if (i < n)
	{
		float		rest[2 * GK_DOUBLES];

		for (int u = 0; u < 2 * GK_DOUBLES; u++)
			rest[u] = i + u < n ? x[i + u] : center;	/* which becomes 0 */
		fit_some(rest, &f, rest, &s);
		memcpy(out + i, rest, (n - i) * sizeof(float));
	}
	add_sums(m, &s, expo);
}

const GkColumnKernels GK_COLUMNS = {
	observe, observe_floats, prepare, prepare_floats, moments, prepare_fit, prepare_row, halves, floats, GK_TURN
};
