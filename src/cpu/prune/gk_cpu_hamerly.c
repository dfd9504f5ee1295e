/*
 * gk_cpu_hamerly.c - steps that skip the points whose label cannot have changed.
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
 *  - With more clusters than a few, a point also keeps the lower bound, and one that
 *    fails the test first has the distance to its own centroid computed anew.
 * What is left goes to a kernel that finds the nearest and the second nearest centroid
 * (gk_cpu_hamerly_search.c), where it pays only among centroids nearby (gk_cpu_exponion.c).
 * Memory: 12 bytes for each point, 8 with few clusters.
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
 *     least U and K at least L - U for all points of cluster a.  For then r_j >=
 *     |c_a - c_j| - r_a >= R + K >= L, whatever j did in steps before; and while j is
 *     in the set, L shrinks by no less than its moves.
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
#include "cpu/prune/gk_cpu_hamerly.h"

#define TINY		0x1p-60
/* Up to so many clusters a full search costs no more than the own distance. */
#define FEW			16
/* Points are gathered from so many rows. */
#define BLOCK_FLOATS	(256 * 1024)
#define BLOCK_ROWS		4096
/* The longest a block may take when nothing can be skipped, in job_work units. */
#define LONGEST			16
/* Epochs end when the sums of moves are so many times the last move. */
#define EPOCH			4096
/* Auto: fewer points are no work at all. */
#define MIN_ROWS		4096
/* Auto begins when fewer rows than one of so many changed their label, ... */
#define CALM			24
/* ... ends after so many passes in a row that cost no less than without, ... */
#define STRIKES			2
/* ... and waits until so many times fewer rows change. */
#define CALMER			2
/* Bundles are of no use when more than this part of them has to be looked into. */
#define SCATTERED		0.75
/* Passes until tightening that did not pay is tried again. */
#define RETRY			8

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
	const GkMove *a = va;
	const GkMove *b = vb;

	return a->move != b->move ? (a->move > b->move ? -1 : 1) : 0;
}

/* The largest move of a centroid that can matter to the points of cluster a. */
static double
largest_near(const GkCpuHamerly *b, const float *centroids, int a, int k, int d)
{
	const GkMove *move = b->move.p;
	const GkReach *reach = (GkReach *) b->reach.p + a;
	double		far = (2.0 * (double) reach->upper + (double) reach->gap) * (1.0 + 0x1p-20);
	int			visits = 0;

	for (int i = 0; i < k && move[i].move > 0.0; i++)
	{
		int			j = move[i].index;

		if (j == a)
			continue;
		if (++visits > VISITS ||
			!(distance(centroids + (size_t) a * d, centroids + (size_t) j * d, d) * (1.0 - 0x1p-30) >= far))
			return move[i].move;
	}
	return 0.0;
}

typedef struct Follow
{
	GkCpuHamerly *b;
	const float *centroids;
	int			k;
	int			d;
} Follow;

#define FOLLOW_JOB	64

static void
follow_near(void *arg, int64_t job, int thread)
{
	const Follow *f = arg;
	double	   *near = f->b->near.p;

	(void) thread;
	for (int a = (int) job * FOLLOW_JOB; a < f->k && a < (job + 1) * FOLLOW_JOB; a++)
		near[a] = largest_near(f->b, f->centroids, a, f->k, f->d);
}

/* Add the moves since the last step to the sums. */
static bool
follow(GkSession *s, const GkHost *host, const float *centroids, int k)
{
	GkCpuHamerly *b = &s->bounds;
	int			d = s->pts->d;
	double	   *own = b->own.p;
	double	   *largest = b->largest.p;
	const double *near = b->near.p;
	double	   *pushed = b->pushed.p;
	GkReach    *reach = b->reach.p;
	GkMove	   *move = b->move.p;
	Follow		f = {b, centroids, k, d};
	double		travel = 0.0;

	for (int i = 0; i < k; i++)
	{
		double		m = distance((float *) b->c.p + (size_t) i * d, centroids + (size_t) i * d, d) * (1.0 + 0x1p-30);

		move[i] = (GkMove) {m, i};
		pushed[i] = m * (double) b->margin.widen;
		reach[i].upper = rounded_up((double) reach[i].upper + pushed[i]);
	}
	qsort(move, k, sizeof(GkMove), by_move);
	b->rebase = b->travel > EPOCH * move[0].move;
	if (b->rebase)
	{
		memcpy(b->limit_before.p, b->limit.p, k * sizeof(float));
		memcpy(b->largest_before.p, b->largest_up.p, k * sizeof(float));
		b->travel_before = b->travel_up;
		memset(own, 0, k * sizeof(double));
		memset(largest, 0, k * sizeof(double));
		b->travel = 0.0;
	}
	if (!s->core->parallel_for(host, (k + FOLLOW_JOB - 1) / FOLLOW_JOB, follow_near, &f))
		return false;
	for (int i = 0; i < k; i++)
	{
		double		loss = pushed[i] + near[i];

		own[i] = add_up(own[i], pushed[i]);
		largest[i] = add_up(largest[i], near[i]);
		((float *) b->limit.p)[i] = rounded_up(own[i] + largest[i]);
		((float *) b->largest_up.p)[i] = rounded_up(largest[i]);
		travel = loss > travel ? loss : travel;
	}
	b->travel = add_up(b->travel, travel);
	b->travel_up = rounded_up(b->travel);
	return true;
}

static void
start(GkCpuHamerly *b, int k)
{
	b->travel = 0.0;
	b->travel_up = rounded_up(0.0);
	for (int i = 0; i < k; i++)
	{
		((double *) b->own.p)[i] = ((double *) b->largest.p)[i] = 0.0;
		((float *) b->limit.p)[i] = ((float *) b->largest_up.p)[i] = rounded_up(0.0);
		((GkReach *) b->reach.p)[i] = (GkReach) {0.0f, 0.0f};
	}
	b->rebase = false;
}

static size_t
bytes_needed(const GkSession *s, int k)
{
	return s->all_rows * (k > FEW ? 12 : 8) + s->all_rows / 16;
}

/* Whether bounds may be kept for so many clusters at all. */
bool
gk_cpu_hamerly_possible(const GkSession *s, int k)
{
	double		least = (double) GK_ROW_PAD * s->pts->d * k;

	if (s->host.skip == GK_SKIP_OFF || k < 2 || !s->pts->resident || bytes_needed(s, k) > s->pts->spare)
		return false;
	if (least > (double) LONGEST * (double) s->kernels->job_work)
		return false;
	return s->host.skip == GK_SKIP_ON || s->pts->n >= MIN_ROWS;
}

static bool
rooms(GkSession *s, const GkSweep *sweep, int k)
{
	GkCpuHamerly *b = &s->bounds;
	size_t		rows = s->all_rows;

	b->rows = sweep->rows;
	b->scratch_bytes = gk_hamerly_scratch_bytes(s, sweep->rows, k);
	return gk_cpu_room(s, &b->slack, rows, sizeof(float)) &&
		gk_cpu_room(s, &b->tile, rows / GK_ROW_PAD, sizeof(float)) &&
		(k <= FEW || gk_cpu_room(s, &b->floor, rows, sizeof(float))) &&
		gk_cpu_room(s, &b->c, (size_t) k * s->pts->d, sizeof(float)) &&
		gk_cpu_room(s, &b->own, k, sizeof(double)) &&
		gk_cpu_room(s, &b->largest, k, sizeof(double)) &&
		gk_cpu_room(s, &b->near, k, sizeof(double)) &&
		gk_cpu_room(s, &b->pushed, k, sizeof(double)) &&
		gk_cpu_room(s, &b->move, k, sizeof(GkMove)) &&
		gk_cpu_room(s, &b->reach, k, sizeof(GkReach)) &&
		gk_cpu_room(s, &b->limit, k, sizeof(float)) &&
		gk_cpu_room(s, &b->limit_before, k, sizeof(float)) &&
		gk_cpu_room(s, &b->largest_up, k, sizeof(float)) &&
		gk_cpu_room(s, &b->largest_before, k, sizeof(float)) &&
		gk_cpu_room(s, &b->scratch, sweep->threads, b->scratch_bytes);
}

/* Blocks large enough to fill tiles, small enough to stop in. */
static void
resize(const GkSession *s, GkSweep *sweep, int k)
{
	int			d = s->pts->d;
	double		most = (double) LONGEST * (double) s->kernels->job_work / ((double) d * k);
	int64_t		rows = BLOCK_FLOATS / d;

	rows = rows > BLOCK_ROWS ? BLOCK_ROWS : rows;
	rows = (double) rows > most ? (int64_t) most : rows;
	if (sweep->threads > 1 && rows > s->pts->n / (4 * sweep->threads))
		rows = s->pts->n / (4 * sweep->threads);
	rows = (rows + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
	sweep->rows = rows > GK_ROW_PAD ? (int) rows : GK_ROW_PAD;
	sweep->rounds = 1;
	sweep->per_round = k;
	sweep->job_work = (double) sweep->rows * d * (k * (s->bounds.fresh ? 1.0 : s->bounds.share) + 16);
}

bool
gk_cpu_hamerly_begin(GkSession *s, GkSweep *sweep, const float *centroids, int k)
{
	GkCpuHamerly *b = &s->bounds;
	double		g = (s->pts->d + 8) * 0x1p-24;
	GkSweep		plain = *sweep;
	GkHost		host = s->host;

	if (!gk_cpu_hamerly_possible(s, k))
		return false;
	b->fresh = !b->valid || b->k != k;
	if (b->fresh)
		b->bundled = !b->scattered && gk_cpu_exponion_possible(s, k);
	if (s->host.skip == GK_SKIP_AUTO && b->fresh && !(b->bundled && b->calm == 0) &&
		s->changed > (b->calm > 0 ? b->calm : s->pts->n / CALM))
		return false;
	host.threads = sweep->threads;
	b->k = k;
	resize(s, sweep, k);
	if (!rooms(s, sweep, k))
	{
		*sweep = plain;
		return false;
	}
	if (k <= FEW && b->floor.p != NULL)
	{
		s->core->free(&s->host, b->floor.p);
		b->floor = (GkRoom) {0};
	}
	b->margin = (GkMargin) {.widen = (float) (1.0 + 4.0 * g),.narrow = (float) (1.0 - 2.0 * g),
	.apart = (float) (4 * TINY),.limit = b->limit.p};
	if (b->fresh)
		b->tighten = b->floor.p != NULL;
	b->dense = b->bundled ? GK_ROW_PAD : b->fresh ? -1 : GK_ROW_PAD * k / (k + FEW);
	b->passes = b->fresh ? 1 : b->passes + 1;
	for (int t = 0; t < sweep->threads; t++)
	{
		GkHamerlyScratch *own = gk_hamerly_scratch(b, t);

		own->tiles = own->tightened = own->searched = own->looked = own->all = 0;
		for (int i = 0; i < k; i++)
			gk_hamerly_reach(s, own)[i] = (GkReach) {0.0f, 0.0f};
	}
	if (b->fresh)
		start(b, k);
	else if (!follow(s, &host, centroids, k))
		return false;
	/* Arranged anew in steps 1, 2, 4, 8, ... */
	if (b->bundled && !gk_cpu_exponion_follow(s, &host, centroids, k, (b->passes & (b->passes - 1)) == 0))
	{
		*sweep = plain;
		return false;
	}
	memcpy(b->c.p, centroids, (size_t) k * s->pts->d * sizeof(float));
	b->valid = false;			/* until the pass is through */
	return true;
}

/*
 * Are the bounds worth their while?  In instructions, roughly: clocks would judge by
 * what else the machine does.  This decides about speed alone.
 */
static void
judge(GkSession *s, double tiles, double tightened, double searched, double looked, double all)
{
	GkCpuHamerly *b = &s->bounds;
	double		n = (double) s->pts->n;
	double		d = s->pts->d;
	double		plain = b->k * (2.0 * d + 4.0) / s->kernels->lanes;
	double		one = (2.0 * d + 6.0) / s->kernels->lanes;
	double		search = searched * (b->k * one + 2.0 * d + 30.0);
	double		near = looked * GK_ROW_PAD * GK_EXPONION_GROUP * one + searched * (2.0 * d + 60.0);
	double		own = tightened * (3.0 * d + 40.0);
	double		cost = tiles * 150.0 + own + (b->bundled ? near : search);

	/*
	 * Scalar products take half of the instructions, which some processors notice more than
	 * others, but also the points' squares: as long as without for 16 clusters, less for more.
	 */
	if (gk_cpu_dot_possible(s, b->k))
		plain = fmin(plain, (b->k * (1.5 * d + 4.0) + 8.0 * d) / s->kernels->lanes);
	b->share = searched / n;
	if (b->bundled)
	{
		b->share *= near / (search + 1.0);
		b->scattered = looked > SCATTERED * all;
		b->bundled = !b->scattered;
		if (b->fresh && b->calm == 0 && cost > n * plain && s->host.skip == GK_SKIP_AUTO)
		{
			b->calm = s->pts->n / CALM;	/* that was too early */
			b->valid = false;
		}
	}
	if (b->fresh)
		return;
	/* Every so often it is tried again. */
	b->tighten = b->floor.p != NULL &&
		(b->tighten ? tightened * search >= searched * (search + own) : ++b->untried >= RETRY);
	if (b->tighten)
		b->untried = 0;
	if (cost < n * plain)
		b->strikes = 0;
	else if (++b->strikes >= STRIKES && s->host.skip == GK_SKIP_AUTO)
	{
		b->strikes = 0;
		b->calm = s->changed / CALMER + 1;
		b->valid = false;
	}
}

void
gk_cpu_hamerly_end(GkSession *s, const GkSweep *sweep, bool used)
{
	GkCpuHamerly *b = &s->bounds;
	double		tiles = 0.0,
				tightened = 0.0,
				searched = 0.0,
				looked = 0.0,
				all = 0.0;

	b->valid = used;
	for (int t = 0; used && t < sweep->threads; t++)
	{
		GkHamerlyScratch *own = gk_hamerly_scratch(b, t);
		const GkReach *from = gk_hamerly_reach(s, own);
		GkReach    *to = b->reach.p;

		tiles += (double) own->tiles;
		tightened += (double) own->tightened;
		searched += (double) own->searched;
		looked += (double) own->looked;
		all += (double) own->all;
		for (int i = 0; i < b->k; i++)
		{
			if (!(from[i].upper <= to[i].upper))
				to[i].upper = from[i].upper;
			if (!(from[i].gap <= to[i].gap))
				to[i].gap = from[i].gap;
		}
	}
	if (used)
		judge(s, tiles, tightened, searched, looked, all);
}

/* New centroids are coming. */
void
gk_cpu_hamerly_forget(GkSession *s)
{
	s->bounds.valid = false;
	s->bounds.strikes = 0;
	s->bounds.calm = 0;
	s->bounds.scattered = false;
}

void
gk_cpu_hamerly_free(GkSession *s, const GkHost *host)
{
	GkCpuHamerly *b = &s->bounds;
	GkRoom	   *rooms[] = {&b->slack, &b->floor, &b->tile, &b->c, &b->own, &b->largest, &b->near, &b->pushed,
		&b->move, &b->reach, &b->limit, &b->limit_before, &b->largest_up, &b->largest_before, &b->scratch};

	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
		s->core->free(host, rooms[i]->p);
}
