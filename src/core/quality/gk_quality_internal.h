/*
 * gk_quality_internal.h - inside of the measures of quality: what gk_quality.c (from sums to
 * measures), gk_quality_pass.c (passes over the points, and the sample), gk_silhouette.c and
 * gk_quality_simd.c share with those who pass over points elsewhere (core/rescan/).
 */
#ifndef GK_QUALITY_INTERNAL_H
#define GK_QUALITY_INTERNAL_H

#include <math.h>

#include "core/quality/gk_quality.h"
#include "core/store/gk_store.h"

/* Rows of a block: small enough for the first-level cache. */
#define GK_QUALITY_ROWS		64
/* Doubles of a vector, and points that are compared with a vector at a time. */
#define GK_QUALITY_LANES	8
#define GK_QUALITY_QUAD		4
/* Values of centroids, or of means, between two looks for a cancel. */
#define GK_QUALITY_LOOK		(1 << 20)

/* The sums of one thread. */
typedef struct GkQualitySums
{
	gk_int128  *sum;			/* [k][d] units of GkQuality.unit */
	gk_int128  *spread;			/* [k] distances to the own mean */
	int64_t    *count;			/* [k] */
	gk_int128	within;			/* squared distances to the own mean */
	gk_int128	inertia;		/* squared distances to the own centroid */
	gk_int128	simplified;
	bool		far;			/* a distance is beyond float32, or the unit */
	double	   *add;			/* [copies][k][width] prepared values of one job */
	double	   *z;				/* [d][GK_QUALITY_ROWS] */
	double	   *x;				/* [d] */
	float	   *f;				/* [d] */
} GkQualitySums;

typedef struct GkQuality
{
	const GkHost *host;
	GkStore    *store;
	const GkPrep *prep;
	int64_t		n;
	int			d;
	int			k;
	bool		raw;
	int			expo;			/* z = prepared value * 2^-expo */
	double	   *unit;			/* [d] of the sums, as z */
	size_t		width;			/* of a cluster in GkQualitySums.add */
	int			copies;
	/* For labels. */
	const float *centroid_f;	/* [k][d] prepared */
	double	   *centroid;		/* [k][d] as z */
	int64_t		own_labels;
	int32_t    *own_label;		/* [own_labels], written by the first pass */
	const int32_t *label;		/* [n], or of the rows at hand */
	/* Results of the first pass. */
	GkQualitySums sum;
	double	   *mean;			/* [k][d], infinite for a cluster without points */
	int			used;			/* clusters that have points */
	bool		lone;			/* some have just one */
	int			threads;
	GkQualitySums *per_thread;
	/* The rows at hand: a chunk, or a batch. */
	const void **column;		/* [d] */
	const uint8_t *wide;		/* NULL: floats only */
	int			stride;
	int64_t		first;
	int			rows;
	int			per_job;		/* rows */
	/* The sample, cluster by cluster, each from a multiple of GK_QUALITY_LANES on. */
	int64_t		m;
	int64_t		sampled;		/* rows so far */
	size_t		lanes;			/* with what is left over in the clusters' last vectors */
	double	   *sample;			/* [d][lanes] */
	const int32_t *sample_label;	/* [m]; NULL: those of all rows are known */
	int64_t    *place;			/* [k] the next one's */
	int64_t    *sample_size;	/* [k] */
} GkQuality;

/* v in [-1, 1] as an integer. */
static inline int64_t
gk_quality_fixed(double v)
{
	return (int64_t) (v * 0x1p62);
}

/* A square in [0, 1], of which small ones matter beside large ones: in units of 2^-80, as gk_d2_fixed() has them. */
static inline gk_int128
gk_quality_square(double v)
{
	return gk_d2_fixed(v, 0x1p40);
}

/* The sum of a vector. */
static inline double
gk_quality_add(const double *v)
{
	return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static inline GkStatus
gk_quality_no_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory for the measures of quality");
}

/* ---- gk_quality.c: the way from rows to measures ---- */

/*
 * Make what passes need; host, prep, d, k and raw are set.  With a store the unit is chosen; else expo is
 * set.  centroids: for labels; NULL: they are known.
 */
GkStatus	gk_quality_begin(GkQuality *q, const double *centroids, GkError *err);

/* After the first pass: add the threads' sums up; the means, or an error when a point was too far. */
void		gk_quality_add_sums(GkQuality *q);
GkStatus	gk_quality_find_means(GkQuality *q, GkError *err);

/* After the second: add the threads' distances up. */
void		gk_quality_add_spreads(GkQuality *q);

/* From sums, and the sample, to measures. */
GkStatus	gk_quality_result(GkQuality *q, GkMeasures *out, GkError *err);
void		gk_quality_end(GkQuality *q);

/* ---- gk_quality_pass.c ---- */

/* Find room for the sample, as soon as labels are known. */
GkStatus	gk_quality_place_sample(GkQuality *q, GkError *err);

/* Take the next row of the sample: its values as they are given, or prepared. */
void		gk_quality_take(GkQuality *q, const double *x);

/* The label of row i of those at hand, by its values (x has room for them). */
int32_t		gk_quality_label(const GkQuality *q, int i, double *x, float *f);

/* What the two passes do with the rows at hand; false: stopped. */
bool		gk_quality_sum_rows(GkQuality *q);
bool		gk_quality_measure_rows(GkQuality *q);

/* First pass: labels (of a raw store), sums and counts, for each thread. */
GkStatus	gk_quality_sum(GkQuality *q, GkError *err);

/* Second pass: distances to the means; picks the sample up. */
GkStatus	gk_quality_measure(GkQuality *q, GkError *err);

/* ---- gk_silhouette.c ---- */

/*
 * Classical silhouette (Rousseeuw 1987) of points with distances of at most 1.
 * Column-major; cluster by cluster, size[c] points each, from the next multiple of
 * GK_QUALITY_LANES on, what is between readable.  NaN unless there are at least two
 * clusters and fewer than points.
 */
GkStatus	gk_silhouette(const GkHost *host, const double *z, size_t stride, int d,
						  const int64_t *size, int k, double *out, GkError *err);

/* ---- gk_quality_simd.c ---- */

/*
 * For a block [d][GK_QUALITY_ROWS], its labels as doubles, and the means, find each row's
 * squared distance to the mean of its label, and the smallest one to another mean.
 */
void		gk_quality_own_other(const double *z, int d, const double *mean, int k, const double *label,
								 double *own, double *other);

/*
 * In place, roots of what that gave; the sum of (other - own) / the larger one: two doubles, whole multiples of 2^-62.
 */
void		gk_quality_scores(double *own, double *other, double *score);

/*
 * Sums of the distances of n points (z: whole vectors are readable) to each of
 * GK_QUALITY_QUAD points, all column-major with one stride.
 */
void		gk_quality_distances(const double *z, size_t stride, int n, int d, const double *point, double *out);

#endif							/* GK_QUALITY_INTERNAL_H */
