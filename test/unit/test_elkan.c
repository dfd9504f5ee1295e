/*
 * Steps with a bound for every row and centroid (gk_cpu_elkan.c) against steps without bounds: the same sums and counts, bit
 * for bit, while all or some centroids move as Lloyd's, jump, or stand still.  And the bounds themselves against distances in
 * doubles, and what a step says of clusters that have not changed.  And the last pass, which goes on from the bounds while
 * centroids get other numbers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/store/gk_store.h"
#include "cpu/prune/gk_cpu_prune.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define PASSES	14

static uint64_t rng = 5;
static int	bad;				/* passes with other sums or counts */
static int	wrong;				/* bounds */
static int	changed;			/* clusters that have, but were said not to have */
static int	unchanged;			/* clusters that were said not to have changed */
static int	leaks;
static int	with_bounds;		/* passes, ... */
static int	partitioned;		/* ... of these without private sums, ... */
static int	sketched;			/* ... and with first bounds by sketches */
static int	finished;			/* last passes that went on from them, ... */
static int	bad_finish;			/* ... with another result, ... */
static int64_t ties;			/* ... and rows that several centroids were nearest to */
static int64_t bounds;			/* lower ones that say something, ... */
static int64_t all_bounds;		/* ... of how many */

enum
{
	EMBEDDINGS, FAR, CLUMPS, TIES, LONG_ROWS, PARALLEL, KINDS
};

static double
value(int kind, int i, int j)
{
	switch (kind)
	{
		case FAR:
			return 3.0 + test_normal(&rng) / sqrt(j + 1);
		case CLUMPS:
			return (i * 7 + j * 3) % 11 * 4.0 + test_normal(&rng);
		case TIES:
			return floor(3 * test_uniform(&rng));
		case PARALLEL:
			/* features of small variance in one direction: a sketch is as far from others as its point */
			return j < 20 ? 0.3 * test_normal(&rng) : (i * 11 % 97) * 0.001;
		case LONG_ROWS:
			return (i % 97 == 5 ? 1e5 : 1.0) * test_normal(&rng);
		default:
			return test_normal(&rng) / sqrt(j + 1);
	}
}

typedef struct Way
{
	TestHost	host;
	GkStore    *store;
	GkSession  *session;
	GkStep		step;
} Way;

static const GkCpuKernels *set; /* at present: kernels that keep bounds */

static void
open_way(Way *w, GkSkip skip, const double *values, const double *weight, int n, int d, int k, int threads)
{
	GkProblem	problem;
	GkError		err;

	test_host_init(&w->host, threads);
	w->host.host.skip = skip;
	w->store = load_store(&w->host, values, weight, n, d, NULL, (size_t) 1 << 18, SIZE_MAX / 4, &err);
	gk_store_prepare(w->store, GK_EUCLIDEAN, false, &err);
	problem = (GkProblem) {.host = &w->host.host,.core = &gk_core,.store = w->store,.k_max = k};
	if (gk_cpu_backend.open(&problem, &w->session, &err) != GK_OK)
		abort();
	w->session->kernels = set;
	w->step = new_step(k, d);
}

static void
close_way(Way *w)
{
	gk_cpu_backend.close(w->session);
	gk_store_free(w->store);
	leaks += w->host.live != 0;
	test_host_end(&w->host);
	free_step(&w->step);
}

static double
distance(const GkChunk *chunk, int row, const float *c, int d)
{
	double		square = 0.0;

	for (int j = 0; j < d; j++)
	{
		double		t = (double) chunk->data[(size_t) j * chunk->stride + row] - (double) c[j];

		square += t * t;
	}
	return sqrt(square);
}

/* Do the bounds hold, and are they of use?  Those of all rows, or of other rows in each pass. */
static void
check_bounds(const GkSession *s, const float *c, int k, bool embeddings)
{
	static int	some;
	const GkCpuElkan *e = &s->elkan;
	int			every = few_or_all(4, 1);
	int64_t		slot = s->pts->first_slot;

	for (int i = 0; i < s->pts->nchunks; slot += gk_cpu_chunk_slots(s->pts, i++))
		for (int row = some++ % every; row < s->pts->chunks[i].rows; row += every)
		{
			const uint16_t *lower = e->lower + (slot + row) / GK_ROW_PAD * GK_ROW_PAD * k + (slot + row) % GK_ROW_PAD;
			int			own = s->previous[slot + row];
			uint16_t	upper = e->upper[slot + row];

			wrong += upper < UINT16_MAX && distance(&s->pts->chunks[i], row, c + (size_t) own * s->pts->d, s->pts->d) * (double) e->args.per > upper;
			for (int q = 0; q < k; q++)
			{
				double		is = distance(&s->pts->chunks[i], row, c + (size_t) q * s->pts->d, s->pts->d) * (double) e->args.per;

				double		bound = (double) lower[q * GK_ROW_PAD] - (double) e->moved[q];

				/* that of its own one is no bound */
				wrong += q == own ? lower[q * GK_ROW_PAD] != UINT16_MAX : bound > 0.0 && bound > is;
				bounds += embeddings && (q == own || bound > 0.5 * is);
				all_bounds += embeddings;
			}
		}
}

/* The next centroids: the means, some of them moved at random; or means for some only; or the same ones again. */
static void
move(float *c, const Way *w, int k, int pass)
{
	const GkPoints *pts = w->session->pts;

	for (int q = 0; pass % 5 != 4 && q < k; q++)
		for (int j = 0; w->step.count[q] > 0 && (pass % 3 != 2 || q % 13 == pass) && j < pts->d; j++)
		{
			size_t		at = (size_t) q * pts->d + j;
			double		mean = (double) w->step.sum[at] / (double) w->step.mass[q] / w->session->inv[j];

			c[at] = (float) mean + (pass % 4 == 3 && q % 16 == 0 ? 0.01f * (float) test_normal(&rng) : 0.0f) * c[at];
		}
	/* two of a group that only canonical distances tell apart, and one of another group */
	for (int i = 0; i < 2; i++)
	{
		float	   *like = c + (i == 0 ? 7 : k - 1) * pts->d;

		memcpy(like, c + 6 * pts->d, pts->d * sizeof(float));
		like[(pass + i) % pts->d] *= 1.00001f;
	}
	if (pass == 9)				/* far enough that bounds are made anew */
		for (int j = 0; j < pts->d; j++)
			c[j] = c[j] * 20.0f + 1.0f;
}

typedef struct Finished
{
	GkFinish	fin;
	Labels		labels;
} Finished;

static Finished
finish(const Way *w, const float *c, int k, const int32_t *was, const int32_t *stepped)
{
	int64_t		n = w->session->pts->n;
	Finished	f = {.fin = {.count = malloc(sizeof(int64_t) * k),.inertia = malloc(sizeof(gk_int128) * k),
	.max_d2 = malloc(sizeof(float) * k),.was = was,.stepped = stepped},
	.labels = {.label = malloc(sizeof(int32_t) * n),.d2 = malloc(sizeof(float) * n)}};
	GkLabelSink sink = test_sink(&f.labels);
	GkError		err;

	if (gk_cpu_backend.finish(w->session, c, k, &f.fin, &sink, &err) != GK_OK)
		abort();
	return f;
}

static void
free_finished(Finished *f)
{
	free(f->fin.count);
	free(f->fin.inertia);
	free(f->fin.max_d2);
	free(f->labels.label);
	free(f->labels.d2);
}

/* The last pass, by bounds and without: centroids get other numbers, and have moved, or stand still. */
static void
check_finish(const Way *plain, const Way *skip, const float *c, int k)
{
	GkSession  *s = skip->session;
	int			d = s->pts->d;
	int64_t		n = s->pts->n;
	int32_t    *stepped = malloc(sizeof(int32_t) * k);
	int32_t    *was = malloc(sizeof(int32_t) * k);
	float	   *now = malloc(sizeof(float) * k * d);
	bool		valid = s->elkan.valid;
	Finished	want;
	Finished	got;

	memset(was, 0xff, sizeof(int32_t) * k);
	for (int i = 0; i < k; i++)
		stepped[i] = i;
	for (int i = k - 1; i > 0; i--)
	{
		int			q = test_pick(&rng, 0, i);
		int32_t		t = stepped[i];

		stepped[i] = stepped[q];
		stepped[q] = t;
	}
	for (int i = 0; i < k; i++)
		memcpy(now + (size_t) i * d, c + (size_t) stepped[i] * d, d * sizeof(float));
	want = finish(plain, now, k, NULL, NULL);
	got = finish(skip, now, k, was, stepped);
	bad_finish += memcmp(want.fin.count, got.fin.count, sizeof(int64_t) * k) != 0 ||
		memcmp(want.fin.inertia, got.fin.inertia, sizeof(gk_int128) * k) != 0 || memcmp(want.fin.max_d2, got.fin.max_d2, sizeof(float) * k) != 0 ||
		memcmp(want.labels.label, got.labels.label, sizeof(int32_t) * n) != 0 || memcmp(want.labels.d2, got.labels.d2, sizeof(float) * n) != 0;
	finished += valid && !s->elkan.valid && s->found.k == k;
	ties += s->found.ties;
	free_finished(&want);
	free_finished(&got);
	free(stepped);
	free(was);
	free(now);
}

static void
test_case(int kind, int n, int d, int k, bool weighted, int threads)
{
	double	   *values = malloc(sizeof(double) * n * d);
	double	   *weight = malloc(sizeof(double) * n);
	float	   *c = malloc(sizeof(float) * k * d);
	gk_int128  *last = malloc(sizeof(gk_int128) * k * d);
	Way			plain;
	Way			skip;

	for (int i = 0; i < n; i++)
	{
		weight[i] = 1 + i % 5;
		for (int j = 0; j < d; j++)
			values[(size_t) i * d + j] = value(kind, i, j);
	}
	open_way(&plain, GK_SKIP_OFF, values, weighted ? weight : NULL, n, d, k, 1);
	open_way(&skip, GK_SKIP_ON, values, weighted ? weight : NULL, n, d, k, threads);
	for (int q = 0; q < k; q++)
	{
		const GkChunk *chunk = &plain.session->pts->chunks[0];
		int			row = test_pick(&rng, 0, chunk->rows - 1);

		for (int j = 0; j < d; j++)
			c[(size_t) q * d + j] = chunk->data[(size_t) j * chunk->stride + row];
	}
	memcpy(c + (size_t) (k - 1) * d, c, d * sizeof(float));
	for (int pass = 0; pass < PASSES; pass++)
	{
		GkError		err;

		memcpy(last, skip.step.sum, sizeof(gk_int128) * k * d);
		/* the last step's result stays, or is written over */
		skip.step.kept = pass > 0 && pass % 4 != 0;
		if (!skip.step.kept)
			memset(skip.step.sum, 0xff, sizeof(gk_int128) * k * d);
		memset(skip.step.unchanged, 0, k);
		if (gk_cpu_backend.step(plain.session, c, k, &plain.step, &err) != GK_OK || gk_cpu_backend.step(skip.session, c, k, &skip.step, &err) != GK_OK)
			abort();
		bad += memcmp(plain.step.sum, skip.step.sum, sizeof(gk_int128) * k * d) != 0 ||
			memcmp(plain.step.mass, skip.step.mass, sizeof(gk_int128) * k) != 0 || memcmp(plain.step.count, skip.step.count, sizeof(int64_t) * k) != 0;
		for (int q = 0; q < k; q++)
		{
			unchanged += skip.step.unchanged[q];
			changed += skip.step.unchanged[q] && memcmp(last + (size_t) q * d, skip.step.sum + (size_t) q * d, d * sizeof(gk_int128)) != 0;
		}
		if (skip.session->elkan.valid)
		{
			with_bounds++;
			sketched += skip.session->elkan.by_sketch;
			partitioned += skip.session->used == GK_PARTITIONED_FEATURES;
			check_bounds(skip.session, c, k, kind == EMBEDDINGS && pass < 9);
		}
		move(c, &skip, k, pass);
	}
	check_finish(&plain, &skip, c, k);
	/* two centroids that are the same one, and all stand still */
	memcpy(c + 3 * d, c + 2 * d, d * sizeof(float));
	for (int pass = 0; pass < 3; pass++)
	{
		GkError		err;

		if (gk_cpu_backend.step(skip.session, c, k, &skip.step, &err) != GK_OK)
			abort();
	}
	check_finish(&plain, &skip, c, k);
	close_way(&plain);
	close_way(&skip);
	free(values);
	free(weight);
	free(c);
	free(last);
}

/* Where memory is for bounds or for points of 8 bits: these, which come first, make room.  Steps with either. */
static void
test_room(int *bytes, int *with)
{
	enum
	{
	N = 4200, D = 384, K = 150};
	double	   *values = malloc(sizeof(double) * N * D);
	float	   *c = malloc(sizeof(float) * K * D);
	Way			plain;
	Way			skip;
	GkSession  *s;

	*bytes = *with = 0;
	/* around the first rows, so that 8 bits leave each row few centroids */
	for (int i = 0; i < N; i++)
		for (int j = 0; j < D; j++)
			values[(size_t) i * D + j] = (i < K ? 0.0 : values[(size_t) (i % K) * D + j]) + (i < K ? 1.0 : 0.7) * value(EMBEDDINGS, i, j);
	open_way(&plain, GK_SKIP_OFF, values, NULL, N, D, K, 1);
	open_way(&skip, GK_SKIP_AUTO, values, NULL, N, D, K, 2);
	s = skip.session;
	((GkPoints *) s->pts)->spare = (size_t) s->all_rows * sizeof(uint16_t) * (K + 1) + gk_cpu_int16_kept_bytes(s) + 4096;
	for (int q = 0; q < K; q++)
		for (int j = 0; j < D; j++)
			c[(size_t) q * D + j] = s->pts->chunks[0].data[(size_t) j * s->pts->chunks[0].stride + q];
	for (int pass = 0; pass < PASSES; pass++)
	{
		GkError		err;

		if (gk_cpu_backend.step(plain.session, c, K, &plain.step, &err) != GK_OK || gk_cpu_backend.step(s, c, K, &skip.step, &err) != GK_OK)
			abort();
		bad += memcmp(plain.step.sum, skip.step.sum, sizeof(gk_int128) * K * D) != 0 || memcmp(plain.step.count, skip.step.count, sizeof(int64_t) * K) != 0;
		*bytes += s->int8.y != NULL;
		*with += s->elkan.valid;
		for (int i = 0; i < K * D; i++)
			if (skip.step.count[i / D] > 0)
				c[i] = (float) ((double) skip.step.sum[i] / (double) skip.step.mass[i / D] / s->inv[i % D]);
	}
	close_way(&plain);
	close_way(&skip);
	free(values);
	free(c);
}

/*
 * Rows of which an upper bound says nothing, or next to nothing, and whose last labels are wrong: bounds that have moved by
 * `moves` do not overflow, so that all centroids are compared.
 */
static int
search_unknown(uint16_t moves, uint16_t bound)
{
	enum
	{
		WIDTH = 32,				/* features, and words that rows are turned into */
		SOME = 13
	};
	const GkInt16Kernels *in = set->integers;
	int			groups = (SOME + in->group - 1) / in->group;
	size_t		words = gk_int16_words(in->unit, WIDTH);
	float	   *x = calloc(WIDTH * GK_ROW_PAD, sizeof(float));
	float	   *c = calloc(SOME * WIDTH, sizeof(float));
	int32_t    *group = calloc(groups * in->group * words, sizeof(int32_t));
	int32_t    *c_rows = calloc(SOME * WIDTH, sizeof(int32_t));
	int32_t    *y = calloc((words + WIDTH) * GK_ROW_PAD, sizeof(int32_t));
	uint16_t   *lower = malloc(SOME * GK_ROW_PAD * sizeof(uint16_t));
	float		pivot[WIDTH] = {0.0f};
	float		half[64] = {0.0f};
	float		moved_down[SOME];
	uint16_t	move[SOME];
	uint16_t	moved[SOME];
	uint16_t	upper[GK_ROW_PAD];
	int32_t		active[SOME];
	int32_t		label[GK_ROW_PAD];
	GkInt16		s = {.c = group,.pivot = pivot,.half = half,.k = SOME,.scale = 32000.0f,.longest = 1.01f,.lost = 1e-3f,.relative = 1e-5f};
	GkElkan		e = {.c = c_rows,.words = WIDTH,.per = 8000.0f,.widen = 1.001f,.move = move,.active = active,.groups = groups,
		.moved = moved,.moved_down = moved_down};
	GkInt16Tile tile = {.length = -1.0f};
	GkInt16Points points;
	GkInt16Rows rows;
	int			bad_rows = 0;

	for (int q = 0; q < SOME; q++)
	{
		c[q * WIDTH + q] = 1.0f;
		gk_cpu_int16_round_centroid(in, c + q * WIDTH, WIDTH, pivot, s.scale, group + q / in->group * in->group * words, q % in->group,
									c_rows + q * WIDTH, &half[q]);
		move[q] = 1;
		moved[q] = moves;
		moved_down[q] = (float) moves;
		active[q] = q;
	}
	for (int i = 0; i < GK_ROW_PAD; i++)
	{
		x[i % SOME * GK_ROW_PAD + i] = 1.0f;
		x[20 * GK_ROW_PAD + i] = 0.125f;
		label[i] = (i + 1 + i / SOME) % SOME;
		upper[i] = (uint16_t) (UINT16_MAX - i % 2);
		for (int q = 0; q < SOME; q++)
			lower[q * GK_ROW_PAD + i] = q == label[i] ? UINT16_MAX : bound;
	}
	points = gk_cpu_int16_round_tile(in, &s, x, GK_ROW_PAD, WIDTH, 0.9, y, &tile);
	in->elkan->search(in, &s, &e, WIDTH, &points, label, upper, lower, y + words * GK_ROW_PAD, &rows);
	for (int i = 0; i < GK_ROW_PAD; i++)
		bad_rows += rows.label[i] != i % SOME;
	free(x);
	free(c);
	free(group);
	free(c_rows);
	free(y);
	free(lower);
	return bad_rows;
}

static void
test_set(void)
{
	static const int features[] = {32, 65, 96, 385, 770};
	static const int clusters[] = {48, 64, 65, 100, 131};
	const char *name = set->exact;
	int			cases = 0;
	int			bytes;
	int			with;

	bad = wrong = changed = unchanged = leaks = with_bounds = partitioned = sketched = finished = bad_finish = 0;
	ties = bounds = all_bounds = 0;
	for (int kind = 0; kind < KINDS; kind++)
		for (int i = few_or_all(kind % 2, 0); i < (emulated() ? 3 : 5); i += few_or_all(2, 1), cases++)
			test_case(kind, 1100 + 97 * i, features[i], clusters[(i + kind) % 5], cases % 3 == 1, cases % 2 == 0 ? 2 : 16);
	if (set->bytes == NULL)
		skip("%s has no products of 8-bit integers", name);
	else
	{
		test_room(&bytes, &with);
		ok(bytes > 0 && with > 0, "%s: points of 8 bits make room for bounds (%d steps with them, %d with bounds)", name, bytes, with);
	}
	ok(bad == 0 && leaks == 0, "%s: sums and counts with a bound for every centroid (%d passes differ, %d of %d cases leak)", name, bad, leaks, cases);
	ok(changed == 0 && unchanged > 0, "%s: clusters that have not changed (%d of %d have)", name, changed, unchanged);
	ok(wrong == 0 && with_bounds > cases * PASSES / 2, "%s: bounds hold (%d do not; %d of %d passes have them)", name, wrong, with_bounds, cases * PASSES);
	ok(partitioned > 0 && partitioned < with_bounds, "%s: with private sums and without (%d of %d passes)", name, partitioned, with_bounds);
	ok(sketched > 0 && sketched < with_bounds, "%s: first bounds by sketches and by all features (%d passes by sketches)", name, sketched);
	ok(bad_finish == 0 && finished > cases && ties > 0, "%s: last passes by bounds (%d of %d differ; %lld rows with ties)", name, bad_finish, finished,
	   (long long) ties);
	bad = search_unknown(5, 905) + search_unknown(30000, 30900);
	ok(bad == 0, "%s: where nothing is known of rows all centroids are compared (%d wrong)", name, bad);
	ok(bounds * 10 > all_bounds * 9, "%s: of embeddings %lld of %lld lower bounds are of use", name, (long long) bounds, (long long) all_bounds);
}

/* test_elkan [SET]...: of these sets of kernels, not of all */
int
main(int argc, char **argv)
{
	static const char *const all[] = {"avx512_amx", "avx512_vnni", "avx512f", "avx2", "neon", "neon_base"};
	const char *const *names = argc > 1 ? (const char *const *) argv + 1 : all;
	char		reason[128];

	for (int i = 0; i < (argc > 1 ? argc - 1 : 6); i++)
	{
		set = gk_cpu_kernels_named(names[i], reason, sizeof(reason));
		if (set == NULL)
			skip("%s", reason);
		else if (set->integers == NULL || set->integers->elkan == NULL)
			skip("%s has no bounds", set->exact);
		else
			test_set();
	}
	return done_testing();
}
