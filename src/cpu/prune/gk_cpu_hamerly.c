/*
 * gk_cpu_hamerly.c - steps that skip points that cannot have changed their label.
 *
 * G. Hamerly, "Making k-means even faster", SDM 2010: a point x of cluster a keeps
 * an upper bound of its distance to c_a and a lower bound of its distance to all
 * other centroids.  When centroids move, the first grows by what c_a moved, the
 * second shrinks by the largest move of the others; as long as the upper is below the
 * lower, the label stands and the point is not looked at.  What is new:
 *  - Nothing is written for a point that stays.  C_a and M_a add up what c_a moved
 *    and the largest moves of others; a point keeps one number, slack = lower - upper +
 *    C_a + M_a as of when the bounds were made, and stays while slack > C_a + M_a.
 *  - A tile of GK_ROW_PAD points keeps the least of its margins: while that exceeds
 *    the sum of the largest losses since, the tile is not looked at either.
 *  - M_a leaves out centroids that are too far from c_a to matter (after Rysavy and
 *    Hamerly, "Geometric methods to accelerate k-means", SDM 2016).
 *  - With more than GK_COST_BOUNDS_SMALL_K clusters a point also keeps the lower bound, and one
 *    that fails the test first has the distance to its own centroid computed anew.
 * What is left goes to a kernel that finds the nearest and the second nearest centroid
 * (gk_cpu_hamerly_search.c), where it pays only among centroids nearby (gk_cpu_exponion.c).
 * Memory: 12 bytes for each point, 8 up to GK_COST_BOUNDS_SMALL_K clusters.
 *
 * Why the labels are those of the canonical argmin, bit for bit.  Let u = 2^-24,
 * g = (d + 8) u, r_j the true distance of x to c_j and D~_j the canonical squared
 * distance: a chain of d subtractions and fused multiply-adds, so with D_j = r_j^2
 *     D_j (1 - g) - h <= D~_j <= D_j (1 + g) + h,   h = d 2^-149 for underflows;
 * g < 1/4 for all d up to 16,384.
 *  1. If r_j >= (1 + 2 g) r_a + e for all j != a, where e = 2^-60 and so e^2 > 4 h:
 *     D~_j >= (1 - g) ((1 + 2 g)^2 D_a + e^2) - h > (1 + g) D_a + h >= D~_a, so a is
 *     the argmin and there is no tie.
 *  2. An upper bound is any U >= (1 + 2 g) r_a + e.  Made from D~_a as
 *     sqrt(D~_a) (1 + 4 g) + 4 e it is one: (1 + 2 g) (1 + g) <= 1 + 4 g - 3 u leaves
 *     room for the float32 roundings.  It stays one if U grows by (1 + 2 g) times
 *     what c_a moved.
 *  3. A lower bound is any L <= r_j for all j != a.  sqrt(D~_2) (1 - 2 g) - 4 e is
 *     one, D~_2 being the smallest of the other D~_j, cut off at the largest float32.
 *     It stays one if L shrinks by the largest move of a set of others that changes
 *     from step to step: it may leave out j when |c_a - c_j| >= 2 R + K, with R at
 *     least U and K at least L - U for all points of cluster a with L > 0 (others
 *     need none).  For then r_j >= |c_a - c_j| - r_a >= R + K >= L, whatever j did in
 *     steps before; and while j is in the set, L shrinks by no less than its moves.
 *  4. So the label stands if L - U > 0.  C_a and M_a are doubles, rounded up by more
 *     than the roundings of their sums; X(t) = C_a + M_a as of a step.  limit =
 *     X (1 + 2^-22) + 2^-100, rounded to float32, is at least X + 2^-100, and at most
 *     X (1 + 2^-21) + 2^-100.  slack is L - U + limit less 2^-20 of both, which is more
 *     than the roundings and than what limit exceeds X + 2^-100 by.  If slack > limit
 *     at a later time t, then L - U > X(t) - X(0), which is what the bounds have
 *     lost since.  The same for tiles, with the sum of each step's largest loss for X,
 *     and for lower bounds, with M_a.
 *  5. Comparisons are written so that a NaN (infinite bounds of a far centroid) fails
 *     the test; then the canonical distances decide.
 * Sums change by the rows that change their label; they are exact, so nothing drifts.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

/* e of the proof. */
#define TINY		0x1p-60
/* Rows of a block, which open points are gathered from, and values. */
#define BLOCK_ROWS		4096
#define BLOCK_FLOATS	(256 * 1024)
/* An epoch ends when the sum of moves is this many times the last move. */
#define EPOCH			4096
/* Centroids looked at, those that moved most first, for one that matters. */
#define VISITS		64

static inline float
rounded_up(double v)
{
	return (float) (v * (1.0 + 0x1p-22) + 0x1p-100);
}

static double
distance(const float *a, const float *b, int d)
{
	double		sum = 0.0;

	for (int j = 0; j < d; j++)
	{
		double		t = (double) a[j] - (double) b[j];

		sum += t * t;
	}
	return sqrt(sum);
}

static double
add_up(double a, double b)
{
	return (a + b) * (1.0 + 0x1p-50);
}

static int
by_move(const void *va, const void *vb)
{
	const GkCentroidMove *a = va;
	const GkCentroidMove *b = vb;

	return a->length != b->length ? (a->length > b->length ? -1 : 1) : 0;
}

/* The largest move of a centroid that can matter to the points of cluster a. */
static double
largest_near(const GkCpuHamerly *h, const float *centroids, int a, int d)
{
	const GkCentroidMove *move = h->moves;
	const GkReach *reach = &h->reach[a];
	double		far = (2.0 * (double) reach->upper + (double) reach->gap) * (1.0 + 0x1p-20);
	int			visits = 0;

	for (int i = 0; i < h->k && move[i].length > 0.0; i++)
	{
		int			j = move[i].cluster;

		if (j == a)
			continue;
		if (++visits > VISITS ||
			!(distance(centroids + (size_t) a * d, centroids + (size_t) j * d, d) * (1.0 - 0x1p-30) >= far))
			return move[i].length;
	}
	return 0.0;
}

typedef struct Follow
{
	GkCpuHamerly *h;
	const float *centroids;
	int			d;
} Follow;

#define FOLLOW_JOB	64

static void
follow_near(void *arg, int64_t job, int thread)
{
	const Follow *f = arg;

	(void) thread;
	for (int a = (int) job * FOLLOW_JOB; a < f->h->k && a < (job + 1) * FOLLOW_JOB; a++)
		f->h->near_move[a] = largest_near(f->h, f->centroids, a, f->d);
}

/* End the epoch: count moves from here on. */
static void
rebase(GkCpuHamerly *h)
{
	memcpy(h->limit_before, h->limit, h->k * sizeof(float));
	memcpy(h->near_limit_before, h->near_limit, h->k * sizeof(float));
	h->travel_before = h->travel_up;
	memset(h->own_sum, 0, h->k * sizeof(double));
	memset(h->near_sum, 0, h->k * sizeof(double));
	h->travel = 0.0;
}

/* Add the moves since the last step to the sums; false: stopped. */
static bool
follow(GkSession *s, const GkHost *host, const float *centroids)
{
	GkCpuHamerly *h = &s->hamerly;
	int			d = s->pts->d;
	int			k = h->k;
	Follow		f = {h, centroids, d};
	double		travel = 0.0;

	for (int i = 0; i < k; i++)
	{
		double		m = distance(h->c + (size_t) i * d, centroids + (size_t) i * d, d) * (1.0 + 0x1p-30);

		h->moves[i] = (GkCentroidMove) {m, i};
		h->own_move[i] = m * (double) h->margin.widen;
		h->reach[i].upper = rounded_up((double) h->reach[i].upper + h->own_move[i]);
	}
	qsort(h->moves, k, sizeof(GkCentroidMove), by_move);
	h->rebase = h->travel > EPOCH * h->moves[0].length;
	if (h->rebase)
		rebase(h);
	if (!s->core->parallel_for(host, (k + FOLLOW_JOB - 1) / FOLLOW_JOB, follow_near, &f))
		return false;
	for (int i = 0; i < k; i++)
	{
		double		loss = h->own_move[i] + h->near_move[i];

		h->own_sum[i] = add_up(h->own_sum[i], h->own_move[i]);
		h->near_sum[i] = add_up(h->near_sum[i], h->near_move[i]);
		h->limit[i] = rounded_up(h->own_sum[i] + h->near_sum[i]);
		h->near_limit[i] = rounded_up(h->near_sum[i]);
		travel = loss > travel ? loss : travel;
	}
	h->travel = add_up(h->travel, travel);
	h->travel_up = rounded_up(h->travel);
	return true;
}

static void
start(GkCpuHamerly *h)
{
	h->travel = 0.0;
	h->travel_up = rounded_up(0.0);
	for (int i = 0; i < h->k; i++)
	{
		h->own_sum[i] = h->near_sum[i] = 0.0;
		h->limit[i] = h->near_limit[i] = rounded_up(0.0);
		h->reach[i] = (GkReach) {0.0f, 0.0f};
	}
	h->rebase = false;
}

size_t
gk_cpu_hamerly_bytes(const GkSession *s, int k)
{
	return s->all_rows * (k > GK_COST_BOUNDS_SMALL_K ? 12 : 8) + s->all_rows / 16;
}

bool
gk_cpu_hamerly_possible(const GkSession *s, int k)
{
	double		least = (double) GK_ROW_PAD * s->pts->d * k;

	if (s->host.skip == GK_SKIP_OFF || k < 2 || !s->pts->resident || gk_cpu_hamerly_bytes(s, k) > gk_cpu_spare(s))
		return false;
	if (least > (double) GK_COST_BOUNDS_LONGEST * (double) s->kernels->job_work)
		return false;
	return s->host.skip == GK_SKIP_ON || s->pts->n >= GK_COST_BOUNDS_MIN_ROWS;
}

/* Are the bounds made anew for k clusters, with groups of centroids? */
static bool
begins(const GkCpuHamerly *h, int k)
{
	return !h->valid || h->k != k;
}

static bool
with_groups(const GkSession *s, int k)
{
	return begins(&s->hamerly, k) ? !s->hamerly.scattered && gk_cpu_exponion_possible(s, k) : s->hamerly.grouped;
}

bool
gk_cpu_hamerly_first(const GkSession *s, int k)
{
	return s->host.skip == GK_SKIP_AUTO && s->pts->d < s->kernels->integers->elkan->least_d && s->hamerly.ended != k;
}

bool
gk_cpu_hamerly_wanted(const GkSession *s, int k)
{
	const GkCpuHamerly *h = &s->hamerly;

	if (!gk_cpu_hamerly_possible(s, k) || gk_cpu_elkan_possible(s, k))
		return false;
	if (s->host.skip != GK_SKIP_AUTO || !begins(h, k))
		return true;
	if (h->calm > 0)
		return s->changed <= h->calm;
	/* making bounds takes as long as some passes by integers */
	if (gk_cpu_int16_possible(s, k) && !(s->kernels->integers->elkan != NULL && gk_cpu_hamerly_first(s, k)))
		return s->kernels->integers->cost >= GK_COST_BOUNDS_INT16 && s->changed <= s->pts->n / GK_COST_BOUNDS_CALM_INT16;
	return with_groups(s, k) || s->changed <= s->pts->n / GK_COST_BOUNDS_CALM;
}

/* The size of a thread's scratch for blocks of `rows` rows; lay out its arrays, if at is not NULL. */
static size_t
lay_out(GkHamerlyScratch *at, int d, int k, int rows)
{
	int			groups = (k + GK_EXPONION_GROUP - 1) / GK_EXPONION_GROUP;
	size_t		gathered = (sizeof(GkHamerlyScratch) + GK_CACHE_LINE - 1) / GK_CACHE_LINE * GK_CACHE_LINE;
	size_t		reach = gathered + (size_t) d * GK_ROW_PAD * sizeof(float);
	size_t		change = reach + k * sizeof(GkReach);
	size_t		list = change + rows * sizeof(GkLabelChange);
	size_t		list_upper = list + rows * sizeof(int32_t);
	size_t		order = list_upper + rows * sizeof(float);
	size_t		first = order + rows * sizeof(int32_t);
	size_t		near = first + groups * sizeof(int32_t);
	char	   *base = (char *) at;

	if (at != NULL)
		*at = (GkHamerlyScratch) {.gathered = (float *) (base + gathered),.reach = (GkReach *) (base + reach),
			.change = (GkLabelChange *) (base + change),.list = (int32_t *) (base + list),
			.list_upper = (float *) (base + list_upper),.order = (int32_t *) (base + order),
			.start = (int32_t *) (base + first),.near = (uint8_t *) (base + near)};
	return gk_cpu_region_bytes(near + groups);
}

static bool
rooms(GkSession *s, const GkSweep *sweep, int k)
{
	GkCpuHamerly *h = &s->hamerly;

	h->scratch_bytes = lay_out(NULL, s->pts->d, k, sweep->rows);
	return gk_cpu_tile_room(s, &h->slack, GK_ROW_PAD * sizeof(float)) &&
		gk_cpu_tile_room(s, &h->tile_slack, sizeof(float)) &&
		(k <= GK_COST_BOUNDS_SMALL_K || gk_cpu_tile_room(s, &h->lower, GK_ROW_PAD * sizeof(float))) &&
		gk_cpu_room(s, &h->c, (size_t) k * s->pts->d, sizeof(float)) &&
		gk_cpu_room(s, &h->own_sum, k, sizeof(double)) &&
		gk_cpu_room(s, &h->near_sum, k, sizeof(double)) &&
		gk_cpu_room(s, &h->near_move, k, sizeof(double)) &&
		gk_cpu_room(s, &h->own_move, k, sizeof(double)) &&
		gk_cpu_room(s, &h->moves, k, sizeof(GkCentroidMove)) &&
		gk_cpu_room(s, &h->reach, k, sizeof(GkReach)) &&
		gk_cpu_room(s, &h->limit, k, sizeof(float)) &&
		gk_cpu_room(s, &h->limit_before, k, sizeof(float)) &&
		gk_cpu_room(s, &h->near_limit, k, sizeof(float)) &&
		gk_cpu_room(s, &h->near_limit_before, k, sizeof(float)) &&
		gk_cpu_room(s, &h->scratch, sweep->threads, h->scratch_bytes);
}

/* Make blocks large enough to fill tiles, small enough to stop in. */
static void
resize(const GkSession *s, GkSweep *sweep, int k)
{
	int			d = s->pts->d;
	double		most = (double) GK_COST_BOUNDS_LONGEST * (double) s->kernels->job_work / ((double) d * k);
	int64_t		rows = BLOCK_FLOATS / d;

	rows = rows > BLOCK_ROWS ? BLOCK_ROWS : rows;
	rows = (double) rows > most ? (int64_t) most : rows;
	if (sweep->threads > 1 && rows > s->pts->n / (4 * sweep->threads))
		rows = s->pts->n / (4 * sweep->threads);
	rows = (rows + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
	sweep->rows = rows > GK_ROW_PAD ? (int) rows : GK_ROW_PAD;
	sweep->rounds = 1;
	sweep->per_round = k;
	sweep->job_work = (double) sweep->rows * d * (k * (s->hamerly.fresh ? 1.0 : s->hamerly.share) + GK_COST_OVERHEAD);
}

/* Begin the pass, all rooms being there; false: stopped, or no memory for groups. */
static bool
begin(GkSession *s, const GkSweep *sweep, const float *centroids)
{
	GkCpuHamerly *h = &s->hamerly;
	double		g = (s->pts->d + 8) * 0x1p-24;
	GkHost		host = s->host;

	host.threads = sweep->threads;
	if (h->k <= GK_COST_BOUNDS_SMALL_K)
		gk_cpu_room_free(s, &h->lower);
	h->margin = (GkMargin) {.widen = (float) (1.0 + 4.0 * g),.narrow = (float) (1.0 - 2.0 * g),
	.apart = (float) (4 * TINY),.limit = h->limit};
	if (h->fresh)
		h->tighten = h->lower != NULL;
	h->dense_rows = h->grouped ? GK_ROW_PAD : h->fresh ? -1 :
		GK_ROW_PAD * h->k / (h->k + GK_COST_BOUNDS_SMALL_K);
	h->passes = h->fresh ? 1 : h->passes + 1;
	for (int t = 0; t < sweep->threads; t++)
	{
		GkHamerlyScratch *own = gk_hamerly_scratch(h, t);

		lay_out(own, s->pts->d, h->k, sweep->rows);
		memset(own->reach, 0, h->k * sizeof(GkReach));
	}
	if (h->fresh)
		start(h);
	else if (!follow(s, &host, centroids))
		return false;
	/* Arranged anew in steps 1, 2, 4, 8, ... */
	if (h->grouped && !gk_cpu_exponion_follow(s, &host, centroids, h->k, (h->passes & (h->passes - 1)) == 0))
		return false;
	memcpy(h->c, centroids, (size_t) h->k * s->pts->d * sizeof(float));
	h->valid = false;			/* until the pass is through */
	return true;
}

bool
gk_cpu_hamerly_begin(GkSession *s, GkSweep *sweep, const float *centroids, int k)
{
	GkCpuHamerly *h = &s->hamerly;
	GkSweep		plain = *sweep;

	h->grouped = with_groups(s, k);
	h->fresh = begins(h, k);
	h->k = k;
	resize(s, sweep, k);
	if (rooms(s, sweep, k) && begin(s, sweep, centroids))
		return true;
	*sweep = plain;
	return false;
}

/*
 * Do the bounds pay?  Compare the cost of what this pass did with that of assigning all points
 * (gk_cpu_cost.h).
 */
static void
judge(GkSession *s, const GkHamerlyCounts *done)
{
	GkCpuHamerly *h = &s->hamerly;
	int			lanes = s->kernels->lanes;
	int			d = s->pts->d;
	double		n = (double) s->pts->n;
	double		tightened = (double) done->tightened;
	double		searched = (double) done->searched;
	double		two = GK_COST_TWO(d) / lanes;
	double		plain = h->k * GK_COST_DISTANCE(d) / lanes;
	double		search = searched * (h->k * two + GK_COST_SEARCH(d));
	double		near = (double) done->groups * GK_ROW_PAD * GK_EXPONION_GROUP * two +
	searched * GK_COST_SEARCH_GROUPS(d);
	double		own = tightened * GK_COST_TIGHTEN(d);
	double		cost = (double) done->tiles * GK_COST_TILE + own + (h->grouped ? near : search);

	if (gk_cpu_dot_possible(s, h->k))
		plain = fmin(plain, gk_cpu_dot_cost(s, h->k) / lanes);
	h->share = searched / n;
	if (h->grouped)
	{
		h->share *= near / (search + 1.0);
		h->scattered = (double) done->groups > GK_COST_SCATTERED * (double) done->all_groups;
		h->grouped = !h->scattered;
		if (h->fresh && h->calm == 0 && cost > n * plain && s->host.skip == GK_SKIP_AUTO)
		{
			h->calm = s->pts->n / GK_COST_BOUNDS_CALM;	/* that was too early */
			h->valid = false;
		}
	}
	if (h->fresh)
		return;
	h->tighten = h->lower != NULL &&
		(h->tighten ? tightened * search >= searched * (search + own) : ++h->untried >= GK_COST_TIGHTEN_RETRY);
	if (h->tighten)
		h->untried = 0;
	if (cost < n * plain)
		h->strikes = 0;
	else if (++h->strikes >= GK_COST_BOUNDS_STRIKES && s->host.skip == GK_SKIP_AUTO)
	{
		h->strikes = 0;
		h->ended = h->k;
		h->calm = s->changed / GK_COST_BOUNDS_CALMER + 1;
		h->valid = false;
	}
}

void
gk_cpu_hamerly_end(GkSession *s, const GkSweep *sweep, bool used)
{
	GkCpuHamerly *h = &s->hamerly;
	GkHamerlyCounts all = {0};

	h->valid = used;
	for (int t = 0; used && t < sweep->threads; t++)
	{
		const GkHamerlyScratch *own = gk_hamerly_scratch(h, t);

		all.tiles += own->done.tiles;
		all.tightened += own->done.tightened;
		all.searched += own->done.searched;
		all.groups += own->done.groups;
		all.all_groups += own->done.all_groups;
		for (int i = 0; i < h->k; i++)
		{
			if (!(own->reach[i].upper <= h->reach[i].upper))
				h->reach[i].upper = own->reach[i].upper;
			if (!(own->reach[i].gap <= h->reach[i].gap))
				h->reach[i].gap = own->reach[i].gap;
		}
	}
	if (used)
		judge(s, &all);
}

void
gk_cpu_hamerly_forget(GkSession *s)
{
	s->hamerly.valid = false;
	s->hamerly.strikes = 0;
	s->hamerly.calm = 0;
	s->hamerly.ended = 0;
	s->hamerly.scattered = false;
}
