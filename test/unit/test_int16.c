/*
 * Labels of wide points by scalar products, of floats and of 16-bit integers, against plain loops: every
 * instruction set, points and centroids at the ends of what integers hold, ties, and points that no
 * product decides.  Where integers are used they have to decide nearly all of points like embeddings.  And which
 * centroids are closer than a limit, by products of 8-bit integers: none may be missing, and few may be others; and labels
 * by these.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/store/gk_store.h"
#include "cpu/prune/gk_cpu_prune.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define ROWS		145

#define PASSES		7
#define MAX_SETS	6

static uint64_t rng = 11;

/* What a set of kernels has done, and its session with the points of the present case. */
typedef struct Tested
{
	const GkCpuKernels *set;
	TestHost	host;
	GkStore    *store;
	GkSession  *session;
	GkTiles		x;
	bool		kept;			/* were rounded points, in some pass */
	int			wrong;
	int			with_integers;	/* cases that integers are for, and where they were used */
	int			integers;
	int64_t		embeddings;		/* rows of such in first passes, those that integers left open, those
								 * dismissed */
	int64_t		open;
	int			dismissed;
	int			missing;		/* pairs that are closer than a limit, of which nothing was said */
	int64_t		pairs;			/* of embeddings, and those that may have been closer, but are not */
	int64_t		others;
} Tested;

static Tested tested[MAX_SETS];
static int	sets;

enum
{
	EMBEDDINGS, CLUMPS, TIES, ALIGNED, FAR_CENTROID, NEAR_ORIGIN, ONE_FEATURE, DIFFERENT_LENGTHS, INFINITE_SQUARES, KINDS,
	/* as many features of much larger variance as AMX multiplies word by word, and one more */
	MOST_COARSE = KINDS, TOO_MANY_COARSE
};

static double
value(int kind, int i, int j)
{
	switch (kind)
	{
		case CLUMPS:
			return (i * 7 + j * 3) % 11 * 100.0 + test_normal(&rng);
		case TIES:
			return floor(3 * test_uniform(&rng));
		case ALIGNED:
			return (i % 2 ? 1.0 : -1.0) * (1.0 + i * 1e-5);
		case ONE_FEATURE:
			return j == 0 ? (i % 2 ? 1000.0 : -1000.0) + test_normal(&rng) : 0.01 * test_normal(&rng);
		case MOST_COARSE:
		case TOO_MANY_COARSE:
			return (j < (kind == MOST_COARSE ? 32 : 33) ? 128.0 : 1.0) * test_normal(&rng);
		case DIFFERENT_LENGTHS:
			return test_normal(&rng) * ldexp(1.0, i % 20 - 10);
		default:
			return test_normal(&rng) / sqrt(j + 1);
	}
}

/* Centroids among and near the points, one of them twice; FAR_CENTROID, NEAR_ORIGIN: much longer, shorter than all points. */
static void
fill_centroids(float *c, int k, const GkTiles *x, int kind)
{
	for (int q = 0; q < k; q++)
	{
		int			any = test_pick(&rng, 0, ROWS - 1);
		int			row = kind == INFINITE_SQUARES && any % 50 == 7 ? any + 1 : any;
		float		by = kind == ALIGNED ? 1.0f + (float) (q % 5) * 0.25f : kind == NEAR_ORIGIN ? 1e-4f :
		q % 3 ? 1.0f : 1.0f + (float) test_normal(&rng) * 0.1f;

		for (int j = 0; j < x->d; j++)
			c[(size_t) q * x->d + j] = x->x[row / GK_ROW_PAD * x->tile + j * x->stride + row % GK_ROW_PAD] * by;
	}
	memcpy(c + (size_t) (k - 1) * x->d, c + x->d, x->d * sizeof(float));
	for (int j = 0; kind == FAR_CENTROID && j < x->d; j++)
		c[j] *= 3e4f;
}

/* Rows whose nearest centroid is closer than a limit, but is not found; some have limits at their distance. */
static int
wrong_below(GkSession *s, const GkTiles *x, const int32_t *want, const float *want_d2, int *dismissed)
{
	int32_t		label[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD];
	float		d2[sizeof(label) / sizeof(*label)];
	float		below[sizeof(label) / sizeof(*label)] = {0};
	int			wrong = 0;

	for (int i = 0; i < ROWS; i++)
		below[i] = i % 4 == 0 ? 0.5f * want_d2[i] : i % 4 == 1 ? want_d2[i] : i % 4 == 2 ? nextafterf(want_d2[i], INFINITY) : 2 * want_d2[i];
	gk_cpu_dot_assign(s, x, 0, ROWS, 0, below, label, d2);
	for (int i = 0; i < ROWS; i++)
	{
		wrong += want_d2[i] < below[i] && (label[i] != want[i] || d2[i] != want_d2[i]);
		wrong += d2[i] != (label[i] < 0 ? INFINITY : want_d2[i]);
		*dismissed += label[i] < 0;
	}
	return wrong;
}

/* Centroids that are closer than a limit: products of 8-bit integers may add some, but leave out none. */
static void
test_closer(Tested *t, const float *c, int k, const float *want_d2, bool embeddings)
{
	GkSession  *s = t->session;
	GkSweep		sweep = gk_cpu_plan(s, k);
	int			tiles = gk_cpu_int8_tiles(s, k);
	float		below[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD] = {0};
	GkError		err;

	for (int i = 0; i < ROWS; i++)
		below[i] = i % 4 == 0 ? want_d2[i] : i % 4 == 1 ? nextafterf(want_d2[i], INFINITY) : (1.0f + 0.01f * (float) (i % 8)) * want_d2[i];
	if (gk_cpu_int8_begin(s, &sweep, c, k, &err) != GK_OK)
	{
		t->missing++;
		return;
	}
	for (int first = 0; first < t->x.count; first += tiles)
	{
		GkTiles		now = t->x;
		size_t		width;
		const uint64_t *closer;

		now.x += first * now.tile;
		now.count = t->x.count - first < tiles ? t->x.count - first : tiles;
		closer = gk_cpu_int8_closer(s, &now, first * GK_ROW_PAD, 0, below + first * GK_ROW_PAD, &width);
		for (int q = 0; q < k; q++)
		{
			float		d2[sizeof(below) / sizeof(*below)];

			for (int i = 0; i < now.count * GK_ROW_PAD; i++)
				d2[i] = INFINITY;
			s->kernels->mindist(&now, c, q, q + 1, d2);
			for (int i = 0; i < now.count * GK_ROW_PAD && first * GK_ROW_PAD + i < ROWS; i++)
			{
				bool		may = closer[i / GK_ROW_PAD * width + q] >> i % GK_ROW_PAD & 1;
				bool		is = d2[i] < below[first * GK_ROW_PAD + i];

				t->missing += is && !may;
				t->pairs += embeddings;
				t->others += embeddings && may && !is;
			}
		}
	}
}

static int	looks;
static int	stop_at;			/* this look says stop; 0: none */

static bool
count_looks(void *ctx)
{
	(void) ctx;
	return ++looks == stop_at;
}

/* A block with many pairs that may be nearer ends, with valid labels, when it is to. */
static void
test_int8_stop(Tested *t, const GkBlock *b, const float *c, int k)
{
	GkSession  *s = t->session;
	GkHost		host = s->host;
	int32_t		label[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD];
	int64_t		all;

	s->int8.pairs = 0;
	gk_cpu_int8_labels(s, b, c, k, label, NULL);
	all = s->int8.pairs;
	s->host.stop = count_looks;
	looks = 0;
	stop_at = 1;
	gk_cpu_int8_labels(s, b, c, k, label, NULL);
	t->wrong += s->halted != (looks > 0) || (looks == 0 && all > (int64_t) b->tiles * GK_CLOSER_PAIRS);
	for (int i = 0; i < ROWS; i++)
		t->wrong += label[i] < 0 || label[i] >= k;
	s->halted = false;
	s->host = host;
}

/* Labels and distances of all rows, from last ones of which some are right, or guessed ones, whether that pays or not. */
static void
test_int8_labels(Tested *t, const float *c, int k, const int32_t *want, const float *want_d2)
{
	GkSession  *s = t->session;
	GkSweep		sweep = gk_cpu_plan(s, k);
	GkBlock		b = {.chunk = &s->pts->chunks[0],.rows = ROWS,.tiles = t->x.count};
	int32_t		last[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD] = {0};
	int32_t		label[sizeof(last) / sizeof(*last)];
	float		d2[sizeof(last) / sizeof(*last)];
	int32_t    *was = s->previous;
	GkError		err;

	for (int i = 0; i < ROWS; i++)
		last[i] = want[i] == 1 ? k - 1 : i % 3 == 0 ? want[i] : test_pick(&rng, 0, k - 1);	/* k - 1 is 1 once more */
	s->previous = last;
	for (int known = 1; known >= 0; known--)
	{
		s->int8.known = known;
		memset(label, 0xff, sizeof(label));
		if (gk_cpu_int8_begin(s, &sweep, c, k, &err) == GK_OK)
			gk_cpu_int8_labels(s, &b, c, k, label, d2);
		else
			t->wrong++;
		for (int i = 0; i < ROWS; i++)
			t->wrong += label[i] != want[i] || d2[i] != want_d2[i];
		/* those after the last row are valid, too: whole vectors are added up */
		for (int i = ROWS; i < t->x.count * GK_ROW_PAD; i++)
			t->wrong += label[i] < 0 || label[i] >= k;
		test_int8_stop(t, &b, c, k);
	}
	s->previous = was;
}

/*
 * Centroids in pieces, between which a long block looks whether it is to end, have to give the same labels.  One that
 * ends has labels that are centroids, and says that it has ended.
 */
static void
test_pieces(Tested *t, const int32_t *want, int k)
{
	GkSession  *s = t->session;
	GkHost		host = s->host;
	GkCpuKernels small = *t->set;
	int			tiles = t->x.count;
	int			piece;
	int32_t		label[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD];

	if (s->dot.int16.k == 0)
		return;
	/* the largest number of centroids that is not too much work, or a group */
	piece = gk_cpu_int16_piece(s, tiles, t->x.d);
	t->wrong += piece % small.integers->group != 0 && piece < GK_MAX_K;
	t->wrong += piece > small.integers->group && piece < GK_MAX_K &&
		small.integers->cost * tiles * GK_ROW_PAD * t->x.d * piece > GK_COST_HALT_WORK * (double) small.job_work;

	small.job_work = 1;
	s->kernels = &small;
	s->host.stop = count_looks;
	t->wrong += gk_cpu_int16_piece(s, tiles, t->x.d) != small.integers->group;
	looks = stop_at = 0;
	gk_cpu_dot_labels(s, &t->x, 0, ROWS, 0, NULL, label);
	t->wrong += looks < (k - 1) / small.integers->group || s->halted;
	t->wrong += memcmp(label, want, ROWS * sizeof(int32_t)) != 0;
	looks = 0;
	stop_at = 1;
	gk_cpu_dot_labels(s, &t->x, 0, ROWS, 0, NULL, label);
	t->wrong += s->halted != (looks > 0);
	for (int i = 0; i < ROWS; i++)
		t->wrong += label[i] < 0 || label[i] >= k;
	s->halted = false;
	s->kernels = t->set;
	s->host = host;
}

/* Labels alone are found by floats where these take less time. */
static void
test_faster(Tested *t, const float *c, int k, const int32_t *want)
{
	GkSession  *s = t->session;
	GkSweep		sweep = gk_cpu_plan(s, k);
	int32_t		label[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD];
	GkError		err;

	if (s->kernels->integers == NULL || s->kernels->integers->cost < GK_COST_DOT_FEATURE)
		return;
	t->wrong += !gk_cpu_dot_wanted(s, &sweep, k) || gk_cpu_dot_begin(s, &sweep, c, k, false, &err) != GK_OK || s->dot.int16.k > 0;
	gk_cpu_dot_labels(s, &t->x, 0, ROWS, 0, NULL, label);
	for (int i = 0; i < ROWS; i++)
		t->wrong += label[i] != want[i];
	gk_cpu_dot_end(s);
}

/* One pass of a set, beside the labels and distances of the plain loops. */
static void
test_pass(Tested *t, const float *c, int k, const int32_t *want, const float *want_d2, int pass, int kind)
{
	GkSession  *s = t->session;
	GkSweep		sweep = gk_cpu_plan(s, k);
	int32_t		label[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD];
	int			dismissed = 0;
	GkError		err;

	if (!gk_cpu_dot_wanted(s, &sweep, k) || gk_cpu_dot_begin(s, &sweep, c, k, true, &err) != GK_OK)
	{
		t->wrong += ROWS;
		return;
	}
	gk_cpu_dot_labels(s, &t->x, 0, ROWS, 0, NULL, label);
	if (pass == 0)
		t->integers += s->dot.int16_rows > 0;
	if (pass == 0 && kind == EMBEDDINGS)
	{
		t->embeddings += s->dot.int16_rows;
		t->open += s->dot.int16_open;
	}
	for (int i = 0; i < ROWS; i++)
		t->wrong += label[i] != want[i];
	test_pieces(t, want, k);
	if (s->kernels->bytes != NULL)
	{
		test_closer(t, c, k, want_d2, pass == 0 && kind == EMBEDDINGS);
		test_int8_labels(t, c, k, want, want_d2);
	}
	t->wrong += wrong_below(s, &t->x, want, want_d2, &dismissed);
	if (pass == 0 && kind == EMBEDDINGS)
		t->dismissed += dismissed;
	t->kept |= s->dot.int16_tile != NULL;
	gk_cpu_dot_end(s);
	/* even where too many were undecided */
	s->dot.int16_useless = s->dot.useless = false;
	test_faster(t, c, k, want);
	s->dot.useless = false;
}

/* Open a session with points of a kind. */
static void
open_session(Tested *t, const double *values, int kind, int d, int k)
{
	GkProblem	problem;
	GkError		err;

	test_host_init(&t->host, 1);
	t->store = load_store(&t->host, values, NULL, ROWS, d, NULL, (size_t) 16 << 20, SIZE_MAX, &err);
	gk_store_prepare(t->store, GK_EUCLIDEAN, false, &err);
	problem = (GkProblem) {.host = &t->host.host,.core = &gk_core,.store = t->store,.k_max = k};
	if (gk_cpu_backend.open(&problem, &t->session, &err) != GK_OK)
		abort();
	t->session->kernels = t->set;
	t->x = (GkTiles) {t->session->pts->chunks[0].data, GK_ROW_PAD, t->session->pts->chunks[0].stride,
		(ROWS + GK_ROW_PAD - 1) / GK_ROW_PAD, d};
	/* no store prepares such, but rows of another one may be compared */
	for (int i = 0; kind == INFINITE_SQUARES && i < 4; i++)
	{
		static const int rows[] = {7, 57, 107, 130};
		static const float values_of[] = {-FLT_MAX, 1e15f, INFINITY, 1e30f};

		for (int j = 0; j < d; j += 3)
			((float *) t->x.x)[rows[i] / GK_ROW_PAD * t->x.tile + j * t->x.stride + rows[i] % GK_ROW_PAD] = values_of[i];
	}
}

/*
 * Passes of all sets over the same points: three with the same centroids, of which the later ones keep
 * rounded points, then with much longer and shorter ones.  The plain loops, by far the slowest, once each.
 */
static void
test_case(int kind, int d, int k)
{
	static const float by[PASSES] = {1.0f, 1.0f, 1.0f, 5.0f, 1e-3f, 200.0f, 1.0f};
	double	   *values = malloc(sizeof(double) * ROWS * d);
	float	   *c = malloc(sizeof(float) * k * d);
	int32_t		want[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD];
	float		want_d2[sizeof(want) / sizeof(*want)];

	for (int i = 0; i < ROWS * d; i++)
		values[i] = value(kind, i / d, i % d);
	for (int s = 0; s < sets; s++)
	{
		open_session(&tested[s], values, kind, d, k);
		tested[s].kept = false;
	}
	fill_centroids(c, k, &tested[0].x, kind);
	for (int pass = 0; pass < PASSES; pass++)
	{
		for (int i = 0; i < k * d; i++)
			c[i] *= by[pass];
		/* one that is too large for integers, and a row at it */
		for (int j = 0; kind == INFINITE_SQUARES && pass == PASSES - 1 && j < d; j++)
			c[2 * d + j] = tested[0].x.x[57 / GK_ROW_PAD * tested[0].x.tile + j * tested[0].x.stride + 57 % GK_ROW_PAD];
		gk_cpu_scalar.assign(&tested[0].x, c, 0, k, want, want_d2);
		for (int s = 0; s < sets; s++)
			test_pass(&tested[s], c, k, want, want_d2, pass, kind);
	}
	for (int s = 0; s < sets; s++)
	{
		Tested	   *t = &tested[s];

		t->with_integers += k >= GK_COST_INT16_MIN_K;
		t->wrong += t->set->integers != NULL && k >= GK_COST_INT16_MIN_K && !t->kept;
		gk_cpu_backend.close(t->session);
		gk_store_free(t->store);
		t->wrong += t->host.live != 0;
		test_host_end(&t->host);
	}
	free(values);
	free(c);
}

static void
report(const Tested *t, int cases)
{
	const char *name = t->set->exact;
	bool		by_integers = t->set->integers != NULL;

	ok(t->wrong == 0, "%s: labels of wide points (%d wrong in %d cases)", name, t->wrong, cases);
	ok((t->dismissed * 8 > t->embeddings) == by_integers,
	   "%s: %d of %lld rows without a centroid closer than a limit are left out", name, t->dismissed, (long long) t->embeddings);
	if (by_integers)
		ok(t->integers == t->with_integers && t->open * 5 < t->embeddings,
		   "%s: integers decide from %d clusters on (%d of %d cases), of embeddings all but %lld of %lld rows",
		   name, GK_COST_INT16_MIN_K, t->integers, cases, (long long) t->open, (long long) t->embeddings);
}

/* A tile that lies at the pivot: its scale must not be that of infinite lengths, with which nothing is certain. */
static void
report_zeros(const GkCpuKernels *set)
{
	float		x[64 * GK_ROW_PAD] = {0};
	GkInt16Tile tile;

	if (set->integers == NULL)
		return;
	memset(&tile, 0xff, sizeof(tile));
	set->integers->measure(x, GK_ROW_PAD, 64, x, &tile);
	ok(tile.value == 0.0f && tile.length == 0.0f && !signbit(tile.value) && !signbit(tile.length), "%s: the length of zeros is 0, without a sign", set->exact);
}

static void
report_closer(const Tested *t)
{
	if (t->set->bytes == NULL)
		skip("%s has no products of 8-bit integers", t->set->exact);
	else
		ok(t->missing == 0 && t->others * 20 < t->pairs, "%s: no closer centroid is missing (%d are); of %lld pairs %lld are not closer",
		   t->set->exact, t->missing, (long long) t->pairs, (long long) t->others);
}

/* test_int16 [SET]...: of these sets of kernels, not of all */
int
main(int argc, char **argv)
{
	static const char *const all[] = {"avx512", "avx512_vnni", "avx512f", "avx2", "neon", "neon_base"};
	const char *const *names = argc > 1 ? (const char *const *) argv + 1 : all;
	static const int features[] = {32, 33, 63, 128, 385, 770, 1537, 2050};
	static const int clusters[] = {4, 48, 49, 61, 130};
	int			cases = 0;
	char		reason[128];

	for (int i = 0; i < (argc > 1 ? argc - 1 : 6); i++)
	{
		const GkCpuKernels *set = gk_cpu_kernels_named(names[i], reason, sizeof(reason));

		/* "avx512" is one of the others, and "neon" may be */
		if (sets > 0 && set == tested[sets - 1].set)
			continue;

		if (set == NULL)
			skip("%s", reason);
		else if (set->assign_dot == NULL)
			skip("%s has no scalar products", names[i]);
		else
			tested[sets++].set = set;
	}
	/* two widths of each kind, or all */
	for (int kind = 0; sets > 0 && kind < KINDS; kind++)
		for (int number = few_or_all((kind + 3) % 4, 0); number < (emulated() ? 4 : 8); number += few_or_all(4, 1), cases++)
			test_case(kind, features[number], clusters[(number + kind) % 5]);
	for (int kind = MOST_COARSE; sets > 0 && !emulated() && kind <= TOO_MANY_COARSE; kind++, cases++)
		test_case(kind, 1537, 60);
	for (int s = 0; s < sets; s++)
	{
		report(&tested[s], cases);
		report_closer(&tested[s]);
		report_zeros(tested[s].set);
	}
	return done_testing();
}
