/*
 * gk_partial.c - a part of a Lloyd step, see gk_partial.h.
 */
#include <stdio.h>
#include <string.h>

#include "core/store/gk_columns.h"
#include "core/base/gk_exact.h"
#include "core/gk_numerics.h"
#include "core/partial/gk_partial.h"
#include "core/store/gk_points.h"
#include "core/gk_update.h"
#include "core/gk_tiles.h"

/* Bytes of a tile's raw doubles, about. */
#define TILE_BYTES		(16 * 1024)
#define TILE_ROWS_MAX	256
/* Package sums up to this size are kept in several copies, so that additions need not wait. */
#define COPIES_BYTES	((size_t) 16 << 10)
/* Values up to 2^PLAIN_BITS grid units go to the plane of their weight as they are. */
#define PLAIN_BITS		46
#define WEIGHT_BITS		24

static size_t
width_of(int d)
{
	return (size_t) (d + 3) / 4 * 4;
}

static size_t
copies_of(int d, int k)
{
	return k * width_of(d) * sizeof(double) * GK_ADD_COPIES <= COPIES_BYTES ? GK_ADD_COPIES : 1;
}

/* Package sums are emptied after each tile, which pays unless there are many more sums than values. */
size_t
gk_tile_acc(int d, int k, int room)
{
	size_t		size = k * width_of(d) * copies_of(d, k);

	return size <= (size_t) 4 * room * d ? size : 0;
}

int
gk_partial_rows(int d)
{
	int			rows = TILE_BYTES / (int) sizeof(double) / d / GK_ROW_PAD * GK_ROW_PAD;

	return rows < GK_ROW_PAD ? GK_ROW_PAD : rows > TILE_ROWS_MAX ? TILE_ROWS_MAX : rows;
}

/* Scratch for one point: its doubles and its prepared floats. */
static size_t
point_bytes(int d)
{
	return ((size_t) d * (sizeof(double) + sizeof(float)) + 63) / 64 * 64;
}

/* Each part is a multiple of 64 bytes, because room is. */
size_t
gk_tile_bytes(int d, int k, int room)
{
	return (size_t) room * d * sizeof(float) + (size_t) room * (sizeof(int32_t) + sizeof(float)) +
		point_bytes(d) + gk_tile_acc(d, k, room) * sizeof(double);
}

void
gk_tile_bind(GkTile *tile, void *block, int d, int k, int room)
{
	memset(tile, 0, sizeof(*tile));
	tile->room = room;
	tile->x = block;
	tile->label = (int32_t *) (tile->x + (size_t) room * d);
	tile->d2 = (float *) (tile->label + room);
	tile->point = (double *) (tile->d2 + room);
	tile->acc = (double *) ((char *) tile->point + point_bytes(d));
	tile->acc_size = gk_tile_acc(d, k, room);
}

/* Wrap rather than overflow: a part that came from outside may hold any number. */
static inline void
add_to(gk_int128_packed *to, gk_int128 v)
{
	*to = (gk_int128) ((unsigned __int128) *to + (unsigned __int128) v);
}

/* ---- which plane ---- */

/* Powers of two by which the units of weights are larger than 2^(shift - 23). */
static int
weight_base(const GkPartial *p)
{
	return p->weights.known ? p->weights.expo - 17 : 0;
}

/* w = units * 2^(shift - 23 + weight_base()), units <= 2^40. */
static int64_t
weight_units(const GkPartial *p, double w, int *shift)
{
	int			e;
	double		m;
	int64_t		units;
	double		rest;

	if (p->weights.known && gk_weight_on_grid(w, p->weights.expo))
	{
		*shift = 0;
		return gk_fixed(gk_prepare_weight(w, p->weights.expo), 0x1p40);
	}
	m = frexp(w, &e) * 0x1p24;
	units = (int64_t) m;
	rest = m - (double) units;

	/* To nearest, ties to even, as a conversion to float32. */
	if (rest > 0.5 || (rest == 0.5 && (units & 1)))
		units++;
	if (units == (int64_t) 1 << WEIGHT_BITS)
	{
		units >>= 1;
		e++;
	}
	e -= 1 + weight_base(p);
	*shift = (e - GK_PLANE_MIN) / GK_PLANE_STEP * GK_PLANE_STEP + GK_PLANE_MIN;
	return units << (e - *shift);
}

/* The shift that brings a value down to `bits` bits, in whole planes. */
static int
excess(double magnitude, int bits)
{
	int			e;

	frexp(magnitude, &e);
	return e <= bits ? 0 : (e - bits + GK_PLANE_STEP - 1) / GK_PLANE_STEP * GK_PLANE_STEP;
}

static GkPlane *
find_plane(const GkPartial *p, int shift)
{
	for (int i = 0; i < p->nplanes; i++)
		if (p->planes[i].shift == shift)
			return &p->planes[i];
	return NULL;
}

/* Note a shift that has no plane. */
static void
want_plane(const GkPartial *p, int shift, int *shifts, int *missing)
{
	if (find_plane(p, shift) != NULL)
		return;
	for (int i = 0; i < *missing; i++)
		if (shifts[i] == shift)
			return;
	shifts[(*missing)++] = shift;
}

/* ---- rows ---- */

static void
prepare_directions(const GkPrep *prep, GkTile *tile, const double *raw, size_t stride, int rows)
{
	float	   *prepared = (float *) (tile->point + prep->d);

	for (int i = 0; i < rows; i++)
	{
		for (int j = 0; j < prep->d; j++)
			tile->point[j] = raw[(size_t) j * stride + i];
		(void) gk_prepare_point(prep, tile->point, prepared);
		for (int j = 0; j < prep->d; j++)
			tile->x[(size_t) j * tile->room + i] = prepared[j];
	}
}

static inline uint32_t
magnitude_bits(float f)
{
	uint32_t	bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits & 0x7fffffff;
}

/* Bit patterns of floats >= 0 compare as the floats do, and vectorise. */
static inline float
from_bits(uint32_t bits)
{
	float		f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* The largest magnitude among the rows of whole tiles. */
static float
largest_magnitude(const float *x, int tiles)
{
	uint32_t	bits = 0;

	for (int t = 0; t < tiles; t++, x += GK_ROW_PAD)
		for (int i = 0; i < GK_ROW_PAD; i++)
		{
			uint32_t	own = magnitude_bits(x[i]);

			bits = own > bits ? own : bits;
		}
	return from_bits(bits);
}

/* Note the shifts that a tile's rows need and that p has no planes for. */
static void
find_missing(const GkPartial *p, const GkTile *tile, const double *weight, int *shifts, int *missing)
{
	const GkPrep *prep = p->prep;
	double		d2_scale = gk_pow2(-gk_bound_d2(prep));
	int			last = INT32_MIN;

	for (int i = 0; i < tile->rows; i++)
	{
		int			base = 0;

		if (weight != NULL)
			(void) weight_units(p, weight[i], &base);
		if (base != last)
			want_plane(p, base, shifts, missing);
		last = base;
		if (tile->inside)
			continue;
		want_plane(p, base + excess((double) tile->d2[i] * d2_scale, 0), shifts, missing);
	}
	for (int j = 0; !tile->inside && j < prep->d; j++)
	{
		double		inv = gk_pow2(GK_GRID_BITS - prep->expo[j]);

		for (int i = 0; i < tile->rows; i++)
		{
			double		x = (double) tile->x[(size_t) j * tile->room + i] * inv;
			int			base = 0;

			if (fabs(x) < gk_pow2(PLAIN_BITS))
				continue;
			if (weight != NULL)
				(void) weight_units(p, weight[i], &base);
			want_plane(p, base + excess(x, PLAIN_BITS), shifts, missing);
		}
	}
}

GkStatus
gk_partial_find_planes(const GkPartial *p, GkTile *tile, const double *weight, int *shifts, int *missing, GkError *err)
{
	const GkPrep *prep = p->prep;
	int			tiles = (tile->rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
	float		largest = largest_magnitude(tile->d2, tiles);
	bool		inside = (double) largest <= gk_pow2(gk_bound_d2(prep));

	*missing = 0;
	if (gk_is_far(largest))
		return gk_fail_far(err);
	for (int j = 0; inside && j < prep->d; j++)
		inside = (double) largest_magnitude(tile->x + (size_t) j * tile->room, tiles) <= gk_pow2(prep->expo[j]);
	tile->inside = inside;
	if (!inside || weight != NULL)
		find_missing(p, tile, weight, shifts, missing);
	else if (find_plane(p, 0) == NULL)
		shifts[(*missing)++] = 0;
	return GK_OK;
}

GkStatus
gk_partial_assign(const GkPartial *p, GkTile *tile, const double *raw, size_t stride, int rows,
				  const double *weight, int *shifts, int *missing, GkError *err)
{
	const GkPrep *prep = p->prep;
	int			tiles = (rows + GK_ROW_PAD - 1) / GK_ROW_PAD;
	GkTiles		x = {tile->x, GK_ROW_PAD, tile->room, tiles, prep->d};

	tile->rows = rows;
	if (prep->distance == GK_COSINE)
		prepare_directions(prep, tile, raw, stride, rows);
	for (int j = 0; j < prep->d; j++)
	{
		float	   *to = tile->x + (size_t) j * tile->room;

		if (prep->distance == GK_EUCLIDEAN)
			gk_columns()->prepare(raw + (size_t) j * stride, rows, prep->center[j], prep->scale[j],
								  gk_grid_magic(prep->expo[j]), to);
		/* Kernels work on whole tiles; zeros add nothing. */
		memset(to + rows, 0, (tiles * GK_ROW_PAD - rows) * sizeof(float));
	}
	for (int i = 0; i < tiles * GK_ROW_PAD; i++)
	{
		tile->label[i] = 0;
		tile->d2[i] = INFINITY;
	}
	gk_tiles_assign(&x, p->f, 0, p->k, tile->label, tile->d2);
	memset(tile->d2 + rows, 0, (tiles * GK_ROW_PAD - rows) * sizeof(float));
	return gk_partial_find_planes(p, tile, weight, shifts, missing, err);
}

/* ---- adding up ---- */

/* The smaller of two points, features compared in order. */
static bool
point_less(const float *a, size_t astride, const float *b, int d)
{
	for (int j = 0; j < d; j++)
		if (a[j * astride] != b[j])
			return a[j * astride] < b[j];
	return false;
}

static void
keep_far(GkPartial *p, float d2, const float *x, size_t stride)
{
	if (d2 == *p->far_d2 && !point_less(x, stride, p->far, p->prep->d))
		return;
	*p->far_d2 = d2;
	for (int j = 0; j < p->prep->d; j++)
		p->far[j] = x[j * stride];
}

/* Points in the box: up to GK_PACKAGE of them add up exactly in doubles. */
static void
add_package(GkPlane *plane, const GkPartial *p, const GkTile *tile)
{
	int			d = p->prep->d;
	GkTiles		x = {tile->x, GK_ROW_PAD, tile->room, (tile->rows + GK_ROW_PAD - 1) / GK_ROW_PAD, d};
	size_t		width = width_of(d);
	size_t		copies = copies_of(d, p->k);
	size_t		copy = p->k * width;

	memset(tile->acc, 0, tile->acc_size * sizeof(double));
	gk_tiles_add(&x, tile->label, tile->acc, width, copies > 1 ? copy : 0);
	for (int j = 0; j < d; j++)
	{
		double		inv = gk_pow2(GK_GRID_BITS - p->prep->expo[j]);

		for (int c = 0; c < p->k; c++)
		{
			double		v = 0.0;

			for (size_t i = 0; i < copies; i++)
				v += tile->acc[i * copy + c * width + j];
			if (v != 0.0)
				add_to(&plane->sum[(size_t) c * d + j], (int64_t) (v * inv));
		}
	}
}

/* Points in the box, one at a time. */
static void
add_points(GkPlane *plane, const GkPartial *p, const GkTile *tile)
{
	int			d = p->prep->d;

	for (int j = 0; j < d; j++)
	{
		double		inv = gk_pow2(GK_GRID_BITS - p->prep->expo[j]);
		const float *x = tile->x + (size_t) j * tile->room;

		for (int i = 0; i < tile->rows; i++)
			add_to(&plane->sum[(size_t) tile->label[i] * d + j], gk_fixed(x[i], inv));
	}
}

/* Points in the box, with weights. */
static void
add_weighted(const GkPartial *p, const GkTile *tile, const double *weight)
{
	int			d = p->prep->d;
	double		d2_scale = gk_pow2(GK_GRID_BITS - gk_bound_d2(p->prep));
	GkPlane    *own = NULL;

	for (int i = 0; i < tile->rows; i++)
	{
		int			label = tile->label[i];
		int			base;
		int64_t		units = weight_units(p, weight[i], &base);

		if (own == NULL || own->shift != base)
			own = find_plane(p, base);
		add_to(&own->mass[label], units);
		for (int j = 0; j < d; j++)
			add_to(&own->sum[(size_t) label * d + j],
				   (gk_int128) gk_fixed(tile->x[(size_t) j * tile->room + i],
										gk_pow2(GK_GRID_BITS - p->prep->expo[j])) * units);
		add_to(&own->inertia[label], gk_d2_fixed((double) tile->d2[i] * ((double) units * 0x1p-40), d2_scale));
	}
}

/* Points anywhere, with or without weights: each value goes to the plane that has room for it. */
static void
add_outside(const GkPartial *p, const GkTile *tile, const double *weight)
{
	int			d = p->prep->d;
	int			expo = gk_bound_d2(p->prep);
	double		d2_unit = gk_pow2(-expo);
	double		d2_scale = gk_pow2(GK_GRID_BITS - expo);

	for (int i = 0; i < tile->rows; i++)
	{
		int			label = tile->label[i];
		int			base = 0;
		int			more;
		int64_t		units = 1;
		double		part = 1.0;
		GkPlane    *own;

		if (weight != NULL)
		{
			units = weight_units(p, weight[i], &base);
			part = (double) units * 0x1p-40;
		}
		own = find_plane(p, base);
		if (weight != NULL)
			add_to(&own->mass[label], units);
		for (int j = 0; j < d; j++)
		{
			double		x = (double) tile->x[(size_t) j * tile->room + i] *
			gk_pow2(GK_GRID_BITS - p->prep->expo[j]);
			GkPlane    *plane = own;

			if (fabs(x) >= gk_pow2(PLAIN_BITS))
			{
				more = excess(x, PLAIN_BITS);
				plane = find_plane(p, base + more);
				x *= gk_pow2(-more);
			}
			add_to(&plane->sum[(size_t) label * d + j], (gk_int128) (int64_t) x * units);
		}
		more = excess((double) tile->d2[i] * d2_unit, 0);
		add_to(&find_plane(p, base + more)->inertia[label],
			   gk_d2_fixed((double) tile->d2[i] * gk_pow2(-more) * part, d2_scale));
	}
}

void
gk_partial_add(GkPartial *p, const GkTile *tile, const double *weight)
{
	double		d2_scale = gk_pow2(GK_GRID_BITS - gk_bound_d2(p->prep));
	GkPlane    *plane = tile->inside && weight == NULL ? find_plane(p, 0) : NULL;

	for (int i = 0; i < tile->rows; i++)
	{
		int			label = tile->label[i];
		float		d2 = tile->d2[i];

		p->count[label]++;
		if (d2 > p->max_d2[label])
			p->max_d2[label] = d2;
		if (d2 >= *p->far_d2 && d2 > 0.0f)
			keep_far(p, d2, tile->x + i, tile->room);
		if (plane != NULL)
			add_to(&plane->inertia[label], gk_d2_fixed(d2, d2_scale));
	}
	if (!tile->inside)
		add_outside(p, tile, weight);
	else if (plane == NULL)
		add_weighted(p, tile, weight);
	else if (tile->acc_size > 0)
		add_package(plane, p, tile);
	else
		add_points(plane, p, tile);
}

void
gk_partial_merge(GkPartial *to, const GkPartial *from, int first, int last)
{
	size_t		d = to->prep->d;

	for (int c = first; c < last; c++)
	{
		to->count[c] = (int64_t) ((uint64_t) to->count[c] + (uint64_t) from->count[c]);
		if (from->max_d2[c] > to->max_d2[c])
			to->max_d2[c] = from->max_d2[c];
	}
	if (*from->far_d2 > 0.0f && *from->far_d2 >= *to->far_d2)
		keep_far(to, *from->far_d2, from->far, 1);
	for (int i = 0; i < from->nplanes; i++)
	{
		const GkPlane *a = &from->planes[i];
		GkPlane    *b = find_plane(to, a->shift);

		for (size_t at = first * d; at < last * d; at++)
			add_to(&b->sum[at], a->sum[at]);
		for (int c = first; c < last; c++)
		{
			add_to(&b->mass[c], a->mass[c]);
			add_to(&b->inertia[c], a->inertia[c]);
		}
	}
}

/* ---- the update ---- */

typedef enum PlaneSums
{
	SUMS, MASSES, INERTIAS
} PlaneSums;

#define TOTAL_LIMBS		((GK_PLANE_MAX - GK_PLANE_MIN + 128) / 32 + 2 + GK_DIGITS_HEADROOM)

static gk_int128
plane_sum(const GkPlane *plane, PlaneSums what, size_t at)
{
	return what == SUMS ? plane->sum[at] : what == MASSES ? plane->mass[at] : plane->inertia[at];
}

/* The sum of n numbers over the planes as mantissa * 2^(result), correctly rounded. */
static int
total(const GkPartial *p, PlaneSums what, size_t at, size_t n, double *mantissa)
{
	int64_t		limb[TOTAL_LIMBS];
	int			low = p->nplanes > 0 ? p->planes[0].shift : 0;
	int			limbs;

	if (p->nplanes <= 1)
	{
		gk_int128_packed sum = 0;

		for (size_t i = 0; p->nplanes == 1 && i < n; i++)
			add_to(&sum, plane_sum(&p->planes[0], what, at + i));
		*mantissa = gk_i128_to_double(sum);
		return low;
	}
	limbs = (p->planes[p->nplanes - 1].shift - low + 128) / 32 + 2 + GK_DIGITS_HEADROOM;
	memset(limb, 0, limbs * sizeof(int64_t));
	for (int plane = 0; plane < p->nplanes; plane++)
		for (size_t i = 0; i < n; i++)
			gk_digits_add_int128(limb, plane_sum(&p->planes[plane], what, at + i), p->planes[plane].shift - low);
	return low + GK_WIDE_BIAS + gk_digits_round(limb, limbs, 0, INT32_MIN, mantissa);
}

/* Exact inertia of n clusters, rounded once, in original units as gk_engine_inertia() has it. */
static double
inertia_of(const GkPartial *p, size_t first, size_t n)
{
	double		v;
	int			e = total(p, INERTIAS, first, n, &v);

	v = gk_inertia_from_d2(p->prep, ldexp(v, e + gk_bound_d2(p->prep) - 80));
	return p->weighted ? gk_ldexp(v, weight_base(p) + 17) : v;
}

/*
 * Move cluster c to its mean, or under cosine to the mean's direction, where it has one.  Returns the squared
 * movement, prepared units.
 */
static double
update(const GkPartial *p, int c, double *mean, double *centroid)
{
	const GkPrep *prep = p->prep;
	const float *old = p->f + (size_t) c * prep->d;
	double		mass = (double) p->count[c];
	int			mass_exp = p->weighted ? total(p, MASSES, c, 1, &mass) : 0;
	double		length = 0.0;
	double		shift = 0.0;
	float		f;

	for (int j = 0; j < prep->d; j++)
	{
		GkFeaturePrep feature = gk_feature_prep(prep->center, prep->scale, prep->expo, j);
		double		sum;
		int			sum_exp = total(p, SUMS, (size_t) c * prep->d + j, 1, &sum);
		double		quotient = ldexp(sum / mass, sum_exp - mass_exp);

		if (prep->distance == GK_EUCLIDEAN)
			shift += gk_update_feature(quotient, feature, old[j], &centroid[j], &f);
		mean[j] = gk_mean(quotient, feature);
		length += mean[j] * mean[j];
	}
	if (prep->distance == GK_EUCLIDEAN || length == 0.0)
		return shift;
	length = sqrt(length);
	for (int j = 0; j < prep->d; j++)
	{
		centroid[j] = mean[j] / length;
		shift += gk_move_feature(centroid[j], gk_feature_prep(prep->center, prep->scale, prep->expo, j), old[j], &f);
	}
	return shift;
}

void
gk_partial_finish(const GkPartial *p, int first, int last, GkPartialResult *out)
{
	const GkPrep *prep = p->prep;

	if (first == 0)
	{
		out->inertia = inertia_of(p, 0, p->k);
		out->repaired = false;
		out->moved_d2 = 0.0;
	}
	for (int c = first; c < last; c++)
	{
		double	   *centroid = out->centroids + (size_t) c * prep->d;

		out->size[c] = p->count[c];
		out->cluster_inertia[c] = inertia_of(p, c, 1);
		out->radius[c] = gk_distance_from_d2(prep, p->max_d2[c]);
		if (p->count[c] != 0)
			out->moved_d2 += update(p, c, out->mean, centroid);
		else if (!out->repaired && *p->far_d2 > 0.0f)
		{
			for (int j = 0; j < prep->d; j++)
				centroid[j] = prep->center[j] + (double) p->far[j] / prep->scale[j];
			out->repaired = true;
		}
	}
	out->moved = out->repaired || out->moved_d2 != 0.0;
	out->shift = gk_inertia_from_d2(prep, out->moved_d2);
}
