/*
 * gk_numerics.h - the numerics contract, as code shared by the core, the CPU
 * backends and the GPU kernels.  Everything here is built from operations that
 * IEEE 754 defines exactly (+ - * / sqrt fma, conversions), in a fixed order,
 * so that every device computes the same bits.  Compile with
 * -ffp-contract=off (gcc, clang) or -fmad=false (nvcc).
 *
 * 1. Prepared points are float32 on the grid 2^(expo-40) of their column:
 *    an integer of at most 41 bits times a power of two.
 * 2. Canonical distance: t = x_j - c_j; s = fmaf(t, t, s), j in order, float32.
 *    The label is the argmin, ties to the lowest cluster number.
 *    Under GK_MANHATTAN: gk_l1(), s = s + |x_j - c_j|, two roundings each.
 *    Under GK_PARTIAL: gk_partial_d2(), that chain over the features that the point has, times d over their
 *    number.
 * 3. Sums are sums of those integers: exact, so associative.
 *    Unweighted Feature Sum: units of 2^(expo_j - 40).
 *    Weights are scaled by a power of two to at most 1 and are float32 on the
 *    grid 2^-40 (lighter ones are refused); weighted sums are in units of
 *    2^(expo_j - 80), weighted masses in units of 2^-40.
 * 4. Squared distances (times the weight, if any) are summed as gk_d2_fixed()
 *    integers: units of 2^(F - 80), where d2 <= 2^F (GkPoints.d2_expo),
 *    truncated below that.
 * 5. Randomness is counter-based: gk_hash(key, row).
 */
#ifndef GK_NUMERICS_H
#define GK_NUMERICS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/gk_core.h"

#ifdef __CUDACC__
#define GK_HD __host__ __device__ static inline
#else
#define GK_HD static inline
#endif

/* Grid: 40 bits below the column's largest magnitude. */
#define GK_GRID_BITS	40
/*
 * Prepared columns are scaled so that the largest one does not exceed
 * 2^GK_TOP_EXPO and none is below 2^-GK_TOP_EXPO: squares of both ends stay
 * inside float32 (d up to 16,384), columns 10^30 apart keep their own precision.
 */
#define GK_TOP_EXPO		50
/* Rows whose integers (|x| <= 2^40) may be added up in an int64. */
#define GK_INT64_ROWS	((int64_t) 1 << 22)
/* Rows whose grid values may be added up exactly in a float64 (a package, He et al. 2022). */
#define GK_PACKAGE		8192

/* 2^e as a double, -1022 <= e <= 1023. */
GK_HD double
gk_pow2(int e)
{
	uint64_t	bits = (uint64_t) (e + 1023) << 52;
	double		r;

	memcpy(&r, &bits, sizeof(r));
	return r;
}

/*
 * ldexp(), which takes as long as the rest of a small clustering's arithmetic: a product
 * with a power of two has the same one rounding.
 */
static inline double
gk_ldexp(double v, int e)
{
	return e > -1023 && e < 1024 ? v * gk_pow2(e) : ldexp(v, e);
}

#define GK_CENTRE_BITS		20

/*
 * The centre of values that are at most 2^reach from their mean: the mean, rounded to 20 bits below that.  Points
 * lose nothing by a centre that is a millionth off, and whole numbers (or halves, or hundreds) within 2^23 of each
 * other become float32 exactly: so their sums and their ties are exact, too.
 */
static inline double
gk_round_centre(double mean, int reach)
{
	double		t = gk_ldexp(mean, GK_CENTRE_BITS - reach);

	return fabs(t) < 0x1p52 ? gk_ldexp(rint(t), reach - GK_CENTRE_BITS) : mean;
}

GK_HD float
gk_fmaf(float a, float b, float c)
{
#ifdef __CUDA_ARCH__
	return __fmaf_rn(a, b, c);
#else
	return __builtin_fmaf(a, b, c);
#endif
}

/* Keep prepared values finite: points far outside the fit's range saturate. */
GK_HD float
gk_to_float(double v)
{
	if (v > FLT_MAX)
		return FLT_MAX;
	if (v < -FLT_MAX)
		return -FLT_MAX;
	return (float) v;
}

/*
 * Scales lie within 2^-GK_SCALE_EXPO and 2^GK_SCALE_EXPO: both, and their inverses, are
 * normal doubles.
 */
#define GK_SCALE_EXPO	1022

/*
 * The part of x and center that gk_centre_scale() subtracts.  Below a scale of 1 the
 * difference may overflow where the product does not, so it is a quarter, which is exact
 * for every normal double.  From 1 on denormal numbers matter, and what overflows is
 * beyond float32 in any case.
 */
GK_HD double
gk_part(double scale)
{
	return scale < 1.0 ? 0.25 : 1.0;
}

/* (x - center) * scale, without overflow in the difference. */
GK_HD double
gk_centre_scale(double x, double center, double scale)
{
	double		part = gk_part(scale);

	return (x * part - center * part) * (scale < 1.0 ? scale * 4.0 : scale);
}

/* 1.5 * 2^52 grid units: adding and subtracting it rounds to the grid. */
GK_HD double
gk_grid_magic(int expo)
{
	return 1.5 * gk_pow2(expo - GK_GRID_BITS + 52);
}

/* Float32 on the column's grid, from a centred and scaled double. */
GK_HD float
gk_to_grid(double v, double magic)
{
	float		f = gk_to_float(v);
	double		t = (double) f;

	/*
	 * Values of 24 bits at or above 2^(expo-17) are on the grid already; far
	 * out ones (prediction only) must not meet the magic number.  One comparison,
	 * because the sign of a point's features cannot be foreseen.
	 */
	if (fabs(t) > magic * 0x1p-28)
		return f;
	return (float) ((t + magic) - magic);
}

/* ---- weights: float32 on the grid 2^-40 of a power of two that none of the fit's exceeds ---- */

/* Is a weight neither above 2^weight_exp nor lighter than one unit of its grid? */
static inline bool
gk_weight_on_grid(double w, int weight_exp)
{
	double		v = gk_ldexp(w, -weight_exp);

	return v >= 0x1p-40 && v <= 1.0;
}

/* Prepare such a weight: at least one unit, at most 1. */
static inline float
gk_prepare_weight(double w, int weight_exp)
{
	return gk_to_grid(gk_ldexp(w, -weight_exp), gk_grid_magic(0));
}

/* ---- sums ---- */

/* A prepared value as its integer: inv = 2^(40 - expo). Exact. */
GK_HD int64_t
gk_fixed(float x, double inv)
{
	return (int64_t) ((double) x * inv);
}

/* One canonical squared distance; x and c with their own strides. */
GK_HD float
gk_d2(const float *x, size_t xs, const float *c, int d)
{
	float		s = 0.0f;

	for (int j = 0; j < d; j++)
	{
		float		t = x[(size_t) j * xs] - c[j];

		s = gk_fmaf(t, t, s);
	}
	return s;
}

/*
 * Is this the distance of a point so far out (prediction only) that squares are infinite, or that a prepared feature was
 * cut off?  Then it tells nothing, not even which centroid is the nearest.
 */
GK_HD bool
gk_is_far(float d2)
{
	return !(d2 < 0x1p127f);
}

/* Is a prepared feature one that the point does not have, under GK_PARTIAL? */
GK_HD bool
gk_is_missing(double v)
{
	return v != v;
}

/* What a squared distance over so many of d features is multiplied with. */
GK_HD float
gk_partial_factor(int d, int present)
{
	return (float) d / (float) present;
}

/* d2 under GK_PARTIAL: without missing features, gk_d2(). */
GK_HD float
gk_partial_d2(const float *x, size_t xs, const float *c, int d)
{
	float		s = 0.0f;
	int			present = 0;

	for (int j = 0; j < d; j++)
	{
		float		t = x[(size_t) j * xs] - c[j];

		if (gk_is_missing(x[(size_t) j * xs]))
			continue;
		s = gk_fmaf(t, t, s);
		present++;
	}
	return s * gk_partial_factor(d, present);
}

/* The Manhattan distance, in d2's place under GK_MANHATTAN: |x_j - c_j| rounded, then added, j in order. */
GK_HD float
gk_l1(const float *x, size_t xs, const float *c, int d)
{
	float		s = 0.0f;

	for (int j = 0; j < d; j++)
		s += fabsf(x[(size_t) j * xs] - c[j]);
	return s;
}

/*
 * A squared distance (times a weight, product exact) as two integers of at most
 * 40 bits: hi * 2^40 + lo in units of 2^(F-80).  scale = 2^(40 - F).  Bits
 * below 2^(F-80) are cut off; values over 2^F saturate.
 */
GK_HD void
gk_d2_split(double v, double scale, int64_t *hi, int64_t *lo)
{
	double		q = v * scale;

	if (q > 0x1p40)
		q = 0x1p40;
	*hi = (int64_t) q;
	*lo = (int64_t) ((q - (double) *hi) * 0x1p40);
}

GK_HD gk_int128
gk_d2_fixed(double v, double scale)
{
	int64_t		hi,
				lo;

	gk_d2_split(v, scale, &hi, &lo);
	return (gk_int128) hi * ((gk_int128) 1 << 40) + lo;
}

/* Correctly rounded int128 to double, the same code on every device. */
GK_HD double
gk_i128_to_double(gk_int128 v)
{
	bool		neg = v < 0;
	unsigned	__int128 u = neg ? -(unsigned __int128) v : (unsigned __int128) v;
	uint64_t	hi = (uint64_t) (u >> 64),
				lo = (uint64_t) u;
	int			shift = 0;
	double		r;

	/* nearly always; one rounding as well */
	if (v == (int64_t) v)
		return (double) (int64_t) v;

	/* Shift down to 64 bits with a sticky bit; uint64 to double rounds once. */
	if (hi != 0)
	{
		uint64_t	lost;

#ifdef __CUDA_ARCH__
		shift = 64 - __clzll((long long) hi);
#else
		shift = 64 - __builtin_clzll(hi);
#endif
		lost = lo << (64 - shift);
		lo = shift == 64 ? hi : lo >> shift | hi << (64 - shift);
		if (lost != 0)
			lo |= 1;
	}
	r = (double) lo * gk_pow2(shift);
	return neg ? -r : r;
}

/* ---- randomness ---- */

/* splitmix64's finaliser (Steele, Lea, Flood 2014). */
GK_HD uint64_t
gk_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* The key of one random experiment: seed, restart and round. */
GK_HD uint64_t
gk_key(int64_t seed, int run, int64_t round)
{
	uint64_t	z = gk_mix((uint64_t) seed + UINT64_C(0x9e3779b97f4a7c15));

	z = gk_mix(z ^ ((uint64_t) run * UINT64_C(0xd1b54a32d192ed03)));
	return gk_mix(z ^ ((uint64_t) round * UINT64_C(0x8cb92ba72f3d8dd7)));
}

GK_HD uint64_t
gk_hash(uint64_t key, int64_t row)
{
	return gk_mix(key + (uint64_t) row * UINT64_C(0x9e3779b97f4a7c15));
}

/* The key whose hashes of rows 0, 1, ... are those of `first`, first + 1, ... by another key. */
GK_HD uint64_t
gk_hash_from(uint64_t key, int64_t first)
{
	return key + (uint64_t) first * UINT64_C(0x9e3779b97f4a7c15);
}

/* Uniform in the open interval (0, 1), 52 bits. */
GK_HD double
gk_uniform(uint64_t h)
{
	return ((double) (h >> 12) + 0.5) * 0x1p-52;
}

/*
 * -ln(u) for u in (0, 1): fdlibm's log (Sun Microsystems 1993), basic
 * operations only, so that host and device agree.  Error below 1 ulp.
 */
GK_HD double
gk_neg_log(double u)
{
	const double ln2_hi = 6.93147180369123816490e-01,
				ln2_lo = 1.90821492927058770002e-10;
	uint64_t	bits;
	int			k;
	double		m,
				f,
				s,
				z,
				w,
				t1,
				t2,
				r,
				hfsq,
				dk;

	memcpy(&bits, &u, sizeof(bits));
	k = (int) (bits >> 52) - 1023;
	bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
	memcpy(&m, &bits, sizeof(m));
	if (m > 1.41421356237309504880)
	{
		m *= 0.5;
		k++;
	}
	f = m - 1.0;
	s = f / (2.0 + f);
	z = s * s;
	w = z * z;
	t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
	t2 = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 +
											  w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
	r = t2 + t1;
	hfsq = 0.5 * f * f;
	dk = (double) k;
	return -(dk * ln2_hi - ((hfsq - (s * (hfsq + r) + dk * ln2_lo)) - f));
}

/*
 * Exponential race: the row with the smallest key wins with probability
 * proportional to its weight; the m smallest are m draws without replacement.
 * weight > 0.
 */
GK_HD double
gk_race_key(uint64_t h, double weight)
{
	return gk_neg_log(gk_uniform(h)) / weight;
}

#endif							/* GK_NUMERICS_H */
