/*
 * gk_cpu_int16.c - labels by scalar products of 16-bit integers, where they are certain.
 *
 * Some processors multiply and add 16-bit integers at twice the rate of floats or more, and exactly.  So points
 * and centroids are rounded to y = A (x - p) and b = B (c - p), A for a tile of points, and of the integers
 * s_j = |b_j|^2 / 2 A / B - y b_j the least mostly tells the nearest centroid.  p, the pivot, is the mean of all
 * points: those of length 1 lie far from 0, beside their distances.  It changes no distance; so below x and c stand
 * for x - p and c - p.  This works for wide
 * points only, as rounding them takes as long as some ten centroids; from the second pass on they are
 * kept, if all points are in memory and there is room.
 *
 * What may be wrong, in lengths, with x' = y / A, c' = b / B, q = 1 / (A B), e = |x - x'| of the row,
 * E = the largest |c - c'|, C = the largest |c| or |c'|, and i the centroid of the least s:
 *   - r = |x' - c'_i| = sqrt(|x'|^2 + 2 q s_i).
 *   - A canonical distance d_j is off by less than G of the square |x - c_j|^2 (gk_cpu_dot.c), so that
 *     d_j > d_i if |x - c_j| > |x - c_i| (1 + G).  That follows from |x - c'_j| > |x - c'_i| + t, where
 *     t = 2 E + G (r + e + E), as r + e is at least |x - c'_i|.
 *   - By lengths: |x - c'_j|^2 - |x - c'_i|^2 = 2 q (s_j - s_i) - 2 (x - x') (c'_j - c'_i), and the last
 *     scalar product is at most 2 e C.  So q (s_j - s_i) > 2 e C + t (r + e + t / 2) is enough.
 *   - By distances: |x - c'| differs from |x' - c'| by at most e, so |x' - c'_j| > r + t' with
 *     t' = t + 2 e is enough, which is q (s_j - s_i) > t' (r + t' / 2).
 * The smaller of both decides, and the second least s stands for all j.  Embeddings pass the first,
 * points in clumps far from each other the second.  Of a row that is not decided, the products of
 * integers are made once more, to list the centroids for which this does not hold: gk_cpu_int16_settle.c tells which
 * of them is the nearest.
 *
 * Seeding asks which centroids may be closer than D, a canonical distance (gk_cpu_seed_rounds.c).  Those
 * are not of which |x' - c'_j| is at least R = sqrt(D) (1 + G) + e + E, that is s_j > (R^2 - |x'|^2) / (2 q),
 * with 2^-18 of both squares for what rounding does to the limit.
 *
 * What rounding does to all this: y b is exact.  The first term of s is off by 1/2 and three roundings
 * of less than 2^31: GK_INT16_OFF.  x - p is rounded, and A x before it becomes y, each by u of it, so 2 u |x| is
 * added to e.  Sums of d squares are off by d u < 0.1 %, which is more than added to their roots; the
 * rest of the bound is off by some u, and 0.1 % is added.
 *
 * Nothing overflows: A times the largest value is at most 32760, and
 *   - B C <= 32760, so |b| <= 32824 with half a unit for each of 16,384 features.  A |x| <= 46000, so
 *     |y|^2 < 2^31; and A (|x| + C / 2) <= 65000, so |y b| + |b|^2 / 2 A / B <= 32888 * (65000 + 64) < 2^31 - 1.
 *     Sums on the way may overflow, as they wrap around.
 *   - Or, where sums are added up apart (GkInt16Kernels.apart), B times the largest value of a centroid is at
 *     most 32760, and s is over 2^shift, which makes it less than 2^30 and, with what is shifted out, off by
 *     2 more: A B C (|x| + C / 2) <= 2^46 keeps the shift below 17.
 * Underflow is less than GK_INT16_OFF where C is not tiny: MIN_LENGTH.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

#define MIN_LENGTH		0x1p-40
#define MAX_LENGTH		0x1p+40
#define SMALLEST		0x1p-120
/* Bytes of rounded points that stay in the second-level cache. */
#define CACHE_BYTES		((size_t) 768 << 10)
/* Centroids that tell the features' variances. */
#define SAMPLE			256

typedef struct Rounding
{
	const GkInt16Kernels *set;
	GkCpuDot   *dot;
	const float *c;
	const float *last;			/* [k][d]: those that are rounded; NULL: none */
	double		last_scale;
	int			k;
	int			d;
	GkInt16Group *group;		/* [groups] */
	int32_t    *rows;			/* [k][row_words]: centroids of GkElkan; NULL: not wanted */
	size_t		row_words;
} Rounding;

/* Round to the nearest integer: |v| is below 2^51. */
static inline double
nearest_integer(double v)
{
	return (v + 0x1.8p52) - 0x1.8p52;
}

/* How long a group's centroids are. */
static void
measure_group(void *arg, int64_t group, int thread)
{
	const Rounding *r = arg;
	const float *pivot = r->dot->int16.pivot;
	GkInt16Group *of = &r->group[group];
	size_t		first = (size_t) group * r->set->group;
	size_t		end = first + r->set->group < (size_t) r->k ? first + r->set->group : (size_t) r->k;
	double		most = 0.0;
	double		value = 0.0;

	(void) thread;
	of->still = r->last != NULL && memcmp(r->c + first * r->d, r->last + first * r->d, (end - first) * r->d * sizeof(float)) == 0;
	for (size_t q = first; !of->still && q < end; q++)
	{
		double		square = 0.0;

		for (int j = 0; j < r->d; j++)
		{
			double		v = (double) r->c[q * r->d + j] - (double) pivot[j];

			square += v * v;
			/* fmax() may be a call */
			value = fabs(v) > value ? fabs(v) : value;
		}
		most = fmax(most, square);
	}
	if (of->still)
		return;
	of->square = most;
	of->value = value;
}

double
gk_cpu_int16_round_centroid(const GkInt16Kernels *set, const float *c, int d, const float *pivot, double scale, int32_t *group, int q,
							int32_t *row, float *half)
{
	double		lost = 0.0;
	double		square = 0.0;

	for (int first = 0; first < d; first += GK_INT16_PUT)
	{
		int16_t		minus[GK_INT16_PUT] = {0};
		int			count = d - first < GK_INT16_PUT ? d - first : GK_INT16_PUT;

		for (int j = 0; j < count; j++)
		{
			double		v = ((double) c[first + j] - (double) pivot[first + j]) * scale;
			double		b = nearest_integer(v);

			lost += (v - b) * (v - b);
			square += b * b;
			minus[j] = (int16_t) - (int32_t) b;
		}
		set->put(group, q, first, minus, count);
		if (row != NULL)
			memcpy(row + first / 2, minus, sizeof(minus));
	}
	*half = (float) (0.5 * square / (scale * scale));
	return lost;
}

/* A group of centroids. */
static void
round_group(void *arg, int64_t group, int thread)
{
	const Rounding *r = arg;
	int			some = r->set->group;
	size_t		words = gk_int16_words(r->set->unit, r->d) * some;
	int32_t    *to = r->dot->int16_c + group * words;
	double		scale = (double) r->dot->int16.scale;
	double		most = 0.0;

	(void) thread;
	if (r->group[group].still && scale == r->last_scale)
		return;
	memset(to, 0, words * sizeof(int32_t));
	for (int q = 0; q < some && group * some + q < r->k; q++)
	{
		int			at = (int) group * some + q;
		int32_t    *row = r->rows != NULL ? r->rows + at * r->row_words : NULL;

		most = fmax(most, gk_cpu_int16_round_centroid(r->set, r->c + (size_t) at * r->d, r->d, r->dot->int16.pivot, scale, to, q, row,
													  &r->dot->int16_half[at]));
	}
	r->group[group].lost = most;
}

bool
gk_cpu_int16_possible(const GkSession *s, int k)
{
	return s->kernels->integers != NULL && !s->dot.int16_useless &&
		s->pts->d >= GK_COST_INT16_MIN_D && k >= GK_COST_INT16_MIN_K;
}

bool
gk_cpu_int16_faster(const GkSession *s, int k)
{
	return gk_cpu_int16_possible(s, k) && s->kernels->integers->cost < GK_COST_DOT_FEATURE;
}

int
gk_cpu_int16_tiles(const GkSession *s, int d)
{
	size_t		tiles = CACHE_BYTES / (gk_int16_words(s->kernels->integers->unit, d) * GK_ROW_PAD * sizeof(int32_t));

	return tiles < 1 ? 1 : tiles > GK_INT16_TILES ? GK_INT16_TILES : (int) tiles;
}

size_t
gk_cpu_int16_scratch(const GkSession *s, char *at, int d, GkInt16Scratch *out)
{
	const GkInt16Kernels *set = s->kernels->integers;
	size_t		tiles = gk_cpu_int16_tiles(s, d);
	size_t		words = gk_int16_words(set->unit, d);
	size_t		few_at = tiles * words * GK_ROW_PAD * sizeof(int32_t);
	size_t		rows_at = few_at + words * GK_INT16_FEW * sizeof(int32_t);
	size_t		points_at = rows_at + tiles * sizeof(GkInt16Rows);
	size_t		tile_at = points_at + tiles * sizeof(GkInt16Points);

	*out = (GkInt16Scratch) {.y = (int32_t *) at,.few = (int32_t *) (at + few_at),.rows = (GkInt16Rows *) (at + rows_at),
		.tile = (GkInt16Tile *) (at + tile_at),.points = (GkInt16Points *) (at + points_at)};
	return tile_at + tiles * sizeof(GkInt16Tile);
}

size_t
gk_cpu_int16_bytes(const GkSession *s, int d)
{
	GkInt16Scratch none;

	return gk_cpu_int16_scratch(s, NULL, d, &none);
}

/* The finest scale for a tile. */
static double
finest(const GkInt16Kernels *set, const GkInt16 *s, const GkInt16Tile *t)
{
	double		length = (double) t->length;
	double		longest = (double) s->longest;
	double		scale;

	if (set->apart)
		scale = 0x1.fp45 / ((double) s->scale * longest * (length + 0.5 * longest));
	else
		scale = fmin(65000.0 / (length + 0.5 * longest), 46000.0 / length);
	scale = fmin(scale, 32760.0 / (double) t->value);
	/* the square of a length may be infinite: then values are below 2^8, and no row is decided */
	return scale > SMALLEST ? scale : SMALLEST;
}

/* Bits that are shifted out of s: see above.  The largest of its values, with what rounding adds, is A B reach. */
static int
shift_of(const GkInt16Kernels *set, const GkInt16 *s, const GkInt16Tile *t)
{
	double		reach = 1.01 * (double) s->longest * ((double) t->length + 0.5 * (double) s->longest);
	int			bits = 0;

	if (!set->apart)
		return 0;
	frexp((double) t->scale * (double) s->scale * reach, &bits);
	return bits - 30 > 8 ? bits - 30 : 8;
}

GkInt16Points
gk_cpu_int16_round_tile(const GkInt16Kernels *set, const GkInt16 *args, const float *x, size_t stride, int d, double share, int32_t *y,
						GkInt16Tile *tile)
{
	GkInt16Points out = {.y = y,.tile = tile};
	double		most;

	if (tile->length < 0.0f)
		set->measure(x, stride, d, args->pivot, tile);
	most = finest(set, args, tile);
	if ((double) tile->scale > most || (double) tile->scale < 0.5 * most)
	{
		tile->scale = (float) (share * most);
		set->round(x, stride, d, args->pivot, y, tile);
	}
	out.shift = shift_of(set, args, tile);
	out.per = (float) ldexp((double) tile->scale * (double) args->scale, -out.shift);
	return out;
}

void
gk_cpu_int16_prepare(GkSession *s, const GkTiles *x, int64_t slot, const GkInt16Scratch *out)
{
	const GkInt16Kernels *set = s->kernels->integers;
	const GkInt16 *args = &s->dot.int16;
	size_t		words = gk_int16_words(set->unit, x->d) * GK_ROW_PAD;
	bool		kept = s->dot.int16_tile != NULL;
	GkInt16Tile *tile = kept ? s->dot.int16_tile + slot / GK_ROW_PAD : out->tile;
	int32_t    *y = kept ? s->dot.int16_y + slot / GK_ROW_PAD * words : out->y;

	for (int t = 0; t < x->count; t++, tile++, y += words)
	{
		if (!kept)
			*tile = (GkInt16Tile) {.length = -1.0f};
		/* where the limit is that of the centroids, the next ones may be longer */
		out->points[t] = gk_cpu_int16_round_tile(set, args, x->x + t * x->tile, x->stride, x->d,
												 kept && !set->apart ? 0.9 : 1.0 - 0x1p-20, y, tile);
	}
}

int
gk_cpu_int16_piece(const GkSession *s, int tiles, int d)
{
	const GkInt16Kernels *set = s->kernels->integers;
	double		each = set->cost * (double) tiles * GK_ROW_PAD * d * set->group;
	double		groups = (double) GK_COST_HALT_WORK * (double) s->kernels->job_work / each;

	return groups < 1.0 ? set->group : groups < GK_MAX_K ? (int) groups * set->group : GK_MAX_K;
}

/* Compare with all centroids, unless the pass is to end; e, lower: as GkInt16Kernels.compare() has them. */
static void
compare_all(GkSession *s, int tiles, int d, const GkInt16Scratch *in, const GkElkan *e, uint16_t *lower)
{
	int			piece = gk_cpu_int16_piece(s, tiles, d);

	for (int k = 0; k < s->dot.int16.k; k += piece)
	{
		/* of the first ones there is a label at least */
		if (k > 0 && gk_cpu_halt(s))
			return;
		s->kernels->integers->compare(tiles, d, &s->dot.int16, in, k, k + piece, e, lower);
	}
}

void
gk_cpu_int16_labels(GkSession *s, const GkTiles *x, int64_t slot, int rows, float *point, char *scratch, const float *below,
					int32_t *label)
{
	int			some = gk_cpu_int16_tiles(s, x->d);
	GkInt16Scratch in;

	gk_cpu_int16_scratch(s, scratch, x->d, &in);
	for (int first = 0; first < x->count; first += some)
	{
		GkTiles		now = *x;
		uint64_t	open[GK_INT16_TILES];
		GkInt16Open o = {.x = &now,.slot = slot + first * GK_ROW_PAD,.scratch = &in,.point = point,.label = label + first * GK_ROW_PAD};

		now.x += first * x->tile;
		now.count = x->count - first < some ? x->count - first : some;
		gk_cpu_int16_prepare(s, &now, o.slot, &in);
		compare_all(s, now.count, x->d, &in, NULL, NULL);
		s->kernels->integers->decide(now.count, &s->dot.int16, &in, below != NULL ? below + first * GK_ROW_PAD : NULL,
									 o.label, open);
		gk_cpu_int16_settle(s, &o, open, rows - first * GK_ROW_PAD);
	}
}

/* Compare tiles' rows with all centroids, which makes bounds, or with those that bounds leave: how many pairs. */
static int64_t
search_tiles(GkSession *s, const GkTiles *x, int thread, const GkInt16Scratch *in, int32_t *turned, const GkElkanRows *kept)
{
	const GkInt16Kernels *set = s->kernels->integers;
	const GkElkan *bounds = &s->elkan.args;
	int			k = s->dot.int16.k;
	int64_t		pairs = 0;

	if (s->elkan.by_sketch)
		gk_cpu_sketch_bounds(s, x, thread, kept);
	else if (s->elkan.fresh)
		compare_all(s, x->count, x->d, in, bounds, kept->lower);
	for (int t = 0; t < x->count; t++)
	{
		size_t		at = (size_t) t * GK_ROW_PAD;

		if (s->elkan.fresh && !s->elkan.by_sketch)
			set->elkan->upper(&s->dot.int16, bounds, &in->points[t], &in->rows[t], kept->upper + at);
		else if (!gk_cpu_halt(s))
			pairs += set->elkan->search(set, &s->dot.int16, bounds, x->d, &in->points[t], kept->last + at, kept->upper + at,
										kept->lower + at * k, turned, &in->rows[t]);
	}
	return pairs;
}

int64_t
gk_cpu_int16_search(GkSession *s, const GkTiles *x, int64_t slot, int rows, int thread, const GkElkanRows *kept, int32_t *label)
{
	int32_t    *turned = (int32_t *) (s->dot.scratch + thread * s->dot.scratch_bytes);
	float	   *point = (float *) turned + (size_t) x->d * GK_ROW_PAD;
	uint64_t	open[GK_INT16_TILES];
	int64_t		pairs;
	GkInt16Scratch in;
	GkInt16Open o = {.x = x,.slot = slot,.scratch = &in,.kept = kept,.point = point,.label = label};

	gk_cpu_int16_scratch(s, (char *) (point + GK_INT16_FEW * (size_t) x->d), x->d, &in);
	gk_cpu_int16_prepare(s, x, slot, &in);
	pairs = search_tiles(s, x, thread, &in, turned, kept);
	if (s->halted)
		return pairs;
	s->kernels->integers->decide(x->count, &s->dot.int16, &in, NULL, label, open);
	gk_cpu_int16_settle(s, &o, open, rows);
	for (int i = 0; i < rows; i++)
		if (label[i] != in.rows[i / GK_ROW_PAD].label[i % GK_ROW_PAD])
			kept->upper[i] = UINT16_MAX;	/* it was that of another one */
	return pairs;
}

/* Bytes of a tile of rounded points. */
static size_t
tile_bytes(const GkSession *s)
{
	return gk_int16_words(s->kernels->integers->unit, s->pts->d) * GK_ROW_PAD * sizeof(int32_t);
}

size_t
gk_cpu_int16_kept_bytes(const GkSession *s)
{
	return s->all_rows / GK_ROW_PAD * (tile_bytes(s) + sizeof(GkInt16Tile));
}

void
gk_cpu_int16_forget(GkSession *s)
{
	gk_cpu_room_free(s, &s->dot.int16_y);
	gk_cpu_room_free(s, &s->dot.int16_tile);
	s->dot.int16_bytes = 0;
}

void
gk_cpu_int16_fit(GkSession *s)
{
	if (s->dot.int16_tile == NULL)
		return;
	s->dot.int16_bytes = gk_cpu_int16_kept_bytes(s);
	if (s->dot.int16_bytes + s->base_bytes > s->pts->spare)
		gk_cpu_int16_forget(s);
}

/* From the second pass on, or the first with bounds, if there is room. */
static void
keep(GkSession *s)
{
	GkCpuDot   *dot = &s->dot;
	size_t		tiles = s->all_rows / GK_ROW_PAD;
	size_t		all = gk_cpu_int16_kept_bytes(s);
	size_t		others = s->int8.bytes + s->base_bytes + (s->found.label != NULL ? gk_cpu_found_bytes(s) : 0);

	if (dot->int16_tile != NULL || (dot->int16_passes++ == 0 && s->elkan.k == 0) || !s->pts->resident || s->index.made)
		return;
	/* what seeding has, and its pairs, which save more */
	if (s->previous_k == 0)
		others += gk_cpu_ahead_bytes(s) + (s->seed.kept ? tiles * (size_t) s->seed.all_stride * sizeof(float) : 0);
	if (all > s->pts->spare || others > s->pts->spare - all)
		return;
	if (!gk_cpu_tile_room(s, &dot->int16_y, tile_bytes(s)) || !gk_cpu_tile_room(s, &dot->int16_tile, sizeof(GkInt16Tile)))
	{
		gk_cpu_room_free(s, &dot->int16_y);
		return;
	}
	dot->int16_bytes = all;
	for (size_t t = s->first_tile; t < s->end_tile; t++)
		dot->int16_tile[t] = (GkInt16Tile) {.length = -1.0f};
}

/* The points' mean; rounded points that are kept, of whatever rows, are about the first one. */
bool
gk_cpu_int16_pivot(GkSession *s)
{
	const GkPoints *p = s->pts;
	double		mass = gk_i128_to_double(p->total_mass);

	if (s->dot.int16_pivot != NULL)
		return true;
	if (!gk_cpu_room(s, &s->dot.int16_pivot, p->d, sizeof(float)))
		return false;
	for (int j = 0; j < p->d; j++)
		s->dot.int16_pivot[j] = mass > 0.0 ? (float) (gk_i128_to_double(p->total_sum[j]) / mass / s->inv[j]) : 0.0f;
	return true;
}

void
gk_cpu_int16_variances(const GkSession *s, const float *c, int k, double *variance)
{
	int			d = s->pts->d;

	memset(variance, 0, d * sizeof(double));
	for (int q = 0; q < k && q < SAMPLE; q++)
		for (int j = 0; j < d; j++)
		{
			double		v = (double) c[(size_t) q * d + j] - (double) s->dot.int16_pivot[j];

			variance[j] += v * v;
		}
}

GkStatus
gk_cpu_int16_begin(GkSession *s, const GkSweep *sweep, const float *c, int k, GkError *err)
{
	GkCpuDot   *dot = &s->dot;
	GkHost		host = s->host;
	int			d = s->pts->d;
	const GkInt16Kernels *set = s->kernels->integers;
	Rounding	r = {.set = set,.dot = dot,.c = c,.last_scale = (double) dot->int16.scale,.k = k,.d = d};
	size_t		groups;
	double		square = 0.0;
	double		value = 0.0;
	double		longest;
	double		most = 0.0;
	bool		done;

	if (s->elkan.k == k)
	{
		r.last = dot->int16_of_elkan ? s->elkan.last : NULL;
		r.rows = s->elkan.c;
		r.row_words = s->elkan.args.words;
	}
	dot->int16_of_elkan = false;
	groups = ((size_t) k + set->group - 1) / set->group;
	if (!gk_cpu_room(s, &dot->int16_c, groups * set->group * gk_int16_words(set->unit, d), sizeof(int32_t)) ||
		!gk_cpu_room(s, &dot->int16_half, gk_dot_width(k + GK_INT16_FEW), sizeof(float)) ||
		!gk_cpu_room(s, &dot->int16_group, groups, sizeof(GkInt16Group)) || !gk_cpu_int16_pivot(s))
		return gk_cpu_out_of_memory(err);
	r.group = dot->int16_group;
	dot->int16.pivot = dot->int16_pivot;
	host.threads = sweep->threads;
	done = s->core->parallel_for(&host, (int64_t) groups, measure_group, &r);
	for (size_t g = 0; done && g < groups; g++)
	{
		square = fmax(square, r.group[g].square);
		value = fmax(value, r.group[g].value);
	}
	longest = sqrt(square);
	if (!done || !(longest >= MIN_LENGTH && longest <= MAX_LENGTH))
		return done ? GK_OK : GK_STOPPED;
	keep(s);
	dot->int16.scale = (float) (32760.0 / (set->apart ? value : longest) * (1.0 - 0x1p-20));
	done = s->core->parallel_for(&host, (int64_t) groups, round_group, &r);
	for (size_t g = 0; done && g < groups; g++)
		most = fmax(most, r.group[g].lost);
	if (!done)
		return GK_STOPPED;
	dot->int16.c = dot->int16_c;
	dot->int16.half = dot->int16_half;
	dot->int16.k = k;
	dot->int16.lost = (float) (1.0001 * sqrt(most) / (double) dot->int16.scale);
	dot->int16.longest = (float) (1.0001 * longest) + dot->int16.lost;
	dot->int16.relative = (float) (1.02 * (d + 3) * 0x1p-24);
	return GK_OK;
}

void
gk_cpu_int16_end(GkSession *s)
{
	GkCpuDot   *dot = &s->dot;

	if (dot->int16.k > 0 && dot->int16_open > dot->int16_rows / GK_COST_INT16_OPEN_SHARE)
	{
		dot->int16_useless = true;
		gk_cpu_int16_forget(s);
	}
	dot->int16.k = 0;
}
