/*
 * Parts of a Lloyd step (gk_partial.h) against the engine's own loop, also made by
 * several threads (gk_partial_threads.h), and sums in a few digits (gk_exact.h) against the wide
 * ones: any order of the rows, any split into parts, weights, points far outside of the
 * preparation's box.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/base/gk_exact.h"
#include "core/gk_numerics.h"
#include "core/partial/gk_partial.h"
#include "core/partial/gk_partial_threads.h"
#include "gk_test.h"
#include "gk_testhost.h"

/* ---- a part that owns its memory ---- */

typedef struct Part
{
	GkPartial	p;
	GkPlane		planes[GK_MAX_SHIFTS];
	float		far_d2;
	GkTile		tile;
	void	   *block;
	double	   *raw;
	double	   *weight;
	int			fill;
} Part;

static int
by_shift(const void *a, const void *b)
{
	return ((const GkPlane *) a)->shift - ((const GkPlane *) b)->shift;
}

static void
add_planes(Part *part, const int *shifts, int n)
{
	size_t		k = part->p.k;
	size_t		kd = k * part->p.prep->d;

	for (int i = 0; i < n; i++)
	{
		GkPlane    *plane = &part->planes[part->p.nplanes++];

		plane->shift = shifts[i];
		plane->sum = calloc(kd + 2 * k, sizeof(gk_int128));
		plane->mass = plane->sum + kd;
		plane->inertia = plane->mass + k;
	}
	qsort(part->planes, part->p.nplanes, sizeof(GkPlane), by_shift);
}

static Part *
part_new(const GkPrep *prep, const double *centroids, int k, bool weighted)
{
	Part	   *part = calloc(1, sizeof(Part));
	int			room = gk_partial_rows(prep->d);
	float	   *f = malloc(sizeof(float) * k * prep->d);
	size_t		bytes = gk_tile_bytes(prep->d, k, room);

	gk_model_prepare(prep, centroids, k, f);
	part->p.prep = prep;
	part->p.k = k;
	part->p.weighted = weighted;
	part->p.f = f;
	part->p.count = calloc(k, sizeof(int64_t));
	part->p.max_d2 = calloc(k, sizeof(float));
	part->p.far_d2 = &part->far_d2;
	part->p.far = calloc(prep->d, sizeof(float));
	part->p.planes = part->planes;
	part->block = aligned_alloc(64, (bytes + 63) / 64 * 64);
	gk_tile_bind(&part->tile, part->block, prep->d, k, room);
	part->raw = calloc((size_t) room * prep->d, sizeof(double));
	part->weight = calloc(room, sizeof(double));
	return part;
}

static void
part_free(Part *part)
{
	for (int i = 0; i < part->p.nplanes; i++)
		free(part->planes[i].sum);
	free((void *) part->p.f);
	free(part->p.count);
	free(part->p.max_d2);
	free(part->p.far);
	free(part->block);
	free(part->raw);
	free(part->weight);
	free(part);
}

static GkStatus
part_flush(Part *part)
{
	int			shifts[GK_MAX_SHIFTS];
	int			missing;
	GkError		err;
	const double *w = part->p.weighted ? part->weight : NULL;
	GkStatus	st;

	if (part->fill == 0)
		return GK_OK;
	st = gk_partial_assign(&part->p, &part->tile, part->raw, part->tile.room, part->fill, w,
						   shifts, &missing, &err);
	if (st != GK_OK)
		return st;
	add_planes(part, shifts, missing);
	gk_partial_add(&part->p, &part->tile, w);
	part->fill = 0;
	return GK_OK;
}

static GkStatus
part_row(Part *part, const double *x, double w)
{
	for (int j = 0; j < part->p.prep->d; j++)
		part->raw[(size_t) j * part->tile.room + part->fill] = x[j];
	part->weight[part->fill] = w;
	if (++part->fill < part->tile.room)
		return GK_OK;
	return part_flush(part);
}

static void
part_merge(Part *to, const Part *from)
{
	int			shifts[GK_MAX_SHIFTS];
	int			n = 0;

	for (int i = 0; i < from->p.nplanes; i++)
	{
		bool		there = false;

		for (int j = 0; j < to->p.nplanes; j++)
			there |= to->planes[j].shift == from->planes[i].shift;
		if (!there)
			shifts[n++] = from->planes[i].shift;
	}
	add_planes(to, shifts, n);
	gk_partial_merge(&to->p, &from->p, 0, to->p.k / 2);
	gk_partial_merge(&to->p, &from->p, to->p.k / 2, to->p.k);
}

/* New centroids and statistics; everything in one allocation from centroids on. */
static GkPartialResult
part_finish(const Part *part, const double *centroids)
{
	GkPartialResult r;
	size_t		k = part->p.k;
	size_t		kd = k * part->p.prep->d;

	r.centroids = malloc((kd + 3 * k + part->p.prep->d) * sizeof(double));
	memcpy(r.centroids, centroids, kd * sizeof(double));
	r.size = (int64_t *) (r.centroids + kd);
	r.cluster_inertia = r.centroids + kd + k;
	r.radius = r.cluster_inertia + k;
	r.mean = r.radius + k;
	for (int c = 0; c < part->p.k; c += 3)
		gk_partial_finish(&part->p, c, c + 3 < part->p.k ? c + 3 : part->p.k, &r);
	return r;
}

/* ---- on threads ---- */

static bool
same_part(const Part *a, const Part *b)
{
	size_t		k = a->p.k;
	size_t		d = a->p.prep->d;
	bool		same = a->p.nplanes == b->p.nplanes && a->far_d2 == b->far_d2 &&
	memcmp(a->p.count, b->p.count, k * sizeof(int64_t)) == 0 &&
	memcmp(a->p.max_d2, b->p.max_d2, k * sizeof(float)) == 0 &&
	memcmp(a->p.far, b->p.far, d * sizeof(float)) == 0;

	for (int i = 0; same && i < a->p.nplanes; i++)
		same = a->planes[i].shift == b->planes[i].shift &&
			memcmp(a->planes[i].sum, b->planes[i].sum, (k * d + 2 * k) * sizeof(gk_int128)) == 0;
	return same;
}

/* The rows through a store's batches give the same part. */
static bool
same_on_threads(const Part *want, const double *x, const double *w, int n, int threads, size_t chunk_bytes)
{
	const GkBackend *device = &gk_cpu_backend;
	const GkPrep *prep = want->p.prep;
	GkPartialWhat what = {.prep = prep,.k = want->p.k,.weights = want->p.weights,.f = want->p.f,.device = &device,.chunk_bytes = chunk_bytes};
	int			shifts[GK_MAX_SHIFTS];
	double	   *c = calloc((size_t) want->p.k * prep->d, sizeof(double));
	Part	   *got = part_new(prep, c, want->p.k, w != NULL);
	TestHost	host;
	GkError		err;
	GkStore    *store = NULL;
	GkPartialThreads *parts;
	bool		good;

	test_host_init(&host, threads);
	good = gk_partial_threads_open(&host.host, &what, &parts, &err) == GK_OK &&
		gk_store_create(&host.host, prep->d, w != NULL, 1, 1 << 20, SIZE_MAX, &store, &err) == GK_OK;
	if (good)
	{
		gk_store_pass_on(store, gk_partial_threads_take, parts);
		good = fill_store(store, x, w, n, prep->d, NULL, &err) == GK_OK && gk_partial_threads_end(parts, &err) == GK_OK;
	}
	if (good)
	{
		add_planes(got, shifts, gk_partial_threads_shifts(parts, shifts));
		gk_partial_threads_merge(&got->p, parts);
		good = same_part(got, want);
	}
	gk_partial_threads_free(parts);
	gk_store_free(store);
	good &= host.live == 0;
	test_host_end(&host);
	part_free(got);
	free(c);
	return good;
}

/* ---- against the engine ---- */

typedef struct Data
{
	int			n,
				d,
				k;
	double	   *x,
			   *w,
			   *c;
	GkDistance	distance;
	bool		standardize;
} Data;

static Data
random_data(uint64_t *rng, int number)
{
	Data		p = {0};
	bool		weighted = number % 3 == 1;

	p.d = number % 5 == 0 ? test_pick(rng, 20, 300) : test_pick(rng, 1, 9);
	p.k = number % 4 == 0 ? test_pick(rng, 20, 200) : test_pick(rng, 1, 9);
	p.n = test_pick(rng, p.k, 3000);
	p.distance = number % 6 == 2 ? GK_COSINE : GK_EUCLIDEAN;
	p.standardize = number % 6 == 3;
	p.x = malloc(sizeof(double) * p.n * p.d);
	p.w = weighted ? malloc(sizeof(double) * p.n) : NULL;
	p.c = malloc(sizeof(double) * p.k * p.d);
	for (int j = 0; j < p.d; j++)
	{
		double		scale = number % 7 == 0 ? pow(10.0, test_pick(rng, -20, 20)) : 1.0;
		double		offset = number % 8 == 0 ? 1e5 * scale : 0.0;

		for (int i = 0; i < p.n; i++)
			p.x[i * p.d + j] = offset + scale * (test_normal(rng) + 4.0 * (i % 5 == j % 5));
	}
	for (int i = 0; weighted && i < p.n; i++)
		p.w[i] = number % 2 ? (double) test_pick(rng, 1, 1000) : pow(2.0, 39.0 * test_uniform(rng));
	/* Rows as centroids; the engine makes the last one empty now and then. */
	for (int c = 0; c < p.k; c++)
		memcpy(p.c + c * p.d, p.x + (c * 7 % p.n) * p.d, sizeof(double) * p.d);
	if (p.distance == GK_COSINE)
	{
		/* Centroids are directions. */
		for (int c = 0; c < p.k; c++)
		{
			double		length = 0.0;

			for (int j = 0; j < p.d; j++)
				length += p.c[c * p.d + j] * p.c[c * p.d + j];
			for (int j = 0; j < p.d; j++)
				p.c[c * p.d + j] /= sqrt(length);
		}
	}
	else if (number % 9 == 0 && p.k > 1)
		for (int j = 0; j < p.d; j++)
			p.c[(p.k - 1) * p.d + j] += 1e3 * (fabs(p.c[j]) + 1.0);
	return p;
}

/* Has each of these clusters a row? */
static bool
all_have_rows(const GkModel *model, const double *centroids, const Data *p)
{
	Part	   *part = part_new(&model->prep, centroids, p->k, p->w != NULL);
	GkPartialResult r;
	bool		all = true;

	part->p.weights = model->weights;
	for (int i = 0; i < p->n; i++)
		all &= part_row(part, p->x + (size_t) i * p->d, p->w ? p->w[i] : 1.0) == GK_OK;
	all &= part_flush(part) == GK_OK;
	r = part_finish(part, centroids);
	for (int c = 0; c < p->k; c++)
		all &= r.size[c] > 0;
	free(r.centroids);
	part_free(part);
	return all;
}

/* One engine iteration leaves the new centroids' statistics; only centroids compare. */
static bool
same_as_engine(uint64_t *rng, int number)
{
	Data		p = random_data(rng, number);
	TestHost	host;
	GkError		err;
	GkStore    *store;
	GkModel		model;
	GkOptions	opt = {.k = p.k,.init = GK_INIT_CENTROIDS,.centroids = p.c,.n_init = 1,.max_iter = 1,
	.distance = p.distance,.standardize = p.standardize};
	Part	   *parts[4];
	GkPartialResult a,
				b;
	bool		good;
	int			empties = 0;

	test_host_init(&host, 1 + number % 2);
	store = load_store(&host, p.x, p.w, p.n, p.d, NULL, 1 << 16, SIZE_MAX, &err);
	good = gk_store_prepare(store, p.distance, p.standardize, &err) == GK_OK &&
		gk_fit(store, &gk_cpu_backend, &opt, NULL, &model, &err) == GK_OK;

	for (int i = 0; i < 4; i++)
	{
		parts[i] = part_new(&model.prep, p.c, p.k, p.w != NULL);
		parts[i]->p.weights = model.weights;
	}
	/* In order into one part; and at random into the other three. */
	for (int i = 0; i < p.n; i++)
	{
		good &= part_row(parts[0], p.x + (size_t) i * p.d, p.w ? p.w[i] : 1.0) == GK_OK;
		good &= part_row(parts[test_pick(rng, 1, 3)], p.x + (size_t) i * p.d, p.w ? p.w[i] : 1.0) == GK_OK;
	}
	for (int i = 0; i < 4; i++)
		good &= part_flush(parts[i]) == GK_OK;
	part_merge(parts[3], parts[1]);
	part_merge(parts[3], parts[2]);
	a = part_finish(parts[0], p.c);
	b = part_finish(parts[3], p.c);
	for (int c = 0; c < p.k; c++)
		empties += a.size[c] == 0;
	good &= memcmp(a.centroids, b.centroids, ((size_t) p.k * p.d + 3 * p.k) * sizeof(double)) == 0 &&
		a.inertia == b.inertia && a.shift == b.shift;
	/* The engine may drop or move clusters afterwards that are empty once more. */
	if (model.k == p.k && empties <= 1 && model.history_len == 1)
	{
		if (all_have_rows(&model, a.centroids, &p))
			good &= memcmp(a.centroids, model.centroids, sizeof(double) * p.k * p.d) == 0;
		good &= empties > 0 || a.shift == model.history_shift[0];
		/* The engine's history is a difference of sums; directions have length 1. */
		good &= fabs(a.inertia - model.history_inertia[0]) <=
			1e-6 * a.inertia + (p.distance == GK_COSINE ? 1e-9 * p.n : 0.0);
	}
	good &= same_on_threads(parts[0], p.x, p.w, p.n, 1 + number % 4, (size_t) 1 << (12 + number % 9));
	for (int i = 0; i < 4; i++)
		part_free(parts[i]);
	free(a.centroids);
	free(b.centroids);
	gk_model_free(&host.host, &model);
	gk_store_free(store);
	test_host_end(&host);
	free(p.x);
	free(p.w);
	free(p.c);
	return good;
}

/* ---- outside of the box ---- */

static void
test_outside(void)
{
	uint64_t	rng = 5;
	double		center[2] = {0.5, 3.0};
	double		scale[2] = {0x1p50, 0x1p50};
	int32_t		expo[2] = {50, -50};	/* the second column was constant */
	GkPrep		prep = {.d = 2,.center = center,.scale = scale,.expo = expo,.unit_exp = 50};
	double		c[2] = {0.5, 3.0};
	Part	   *part = part_new(&prep, c, 1, false);
	Part	   *weighted = part_new(&prep, c, 1, true);
	GkWide	   *exact = calloc(2, sizeof(GkWide));
	GkPartialResult r;
	double		all[2000];
	double		weight[1000];
	bool		good = true;

	for (int i = 0; i < 1000; i++)
	{
		double	   *x = all + 2 * i;
		float		f[2];

		x[0] = 0.5 + test_normal(&rng) * pow(2.0, test_pick(&rng, -3, 12));
		x[1] = 3.0 + test_normal(&rng) * pow(2.0, test_pick(&rng, -60, 12));
		good &= part_row(part, x, 1.0) == GK_OK;
		gk_prepare_point(&prep, x, f);
		gk_wide_add(&exact[0], f[0]);
		gk_wide_add(&exact[1], f[1]);
	}
	good &= part_flush(part) == GK_OK;
	r = part_finish(part, c);
	for (int j = 0; j < 2; j++)
		good &= r.centroids[j] == center[j] + gk_wide_mean(&exact[j], 1000) / scale[j];
	ok(good && part->p.nplanes > 2, "points far outside of the box add up exactly (%d planes)", part->p.nplanes);
	for (int threads = 1; threads <= 3; threads++)
		good &= same_on_threads(part, all, NULL, 1000, threads, 1 << 10);
	ok(good, "and on threads");

	for (int i = 0; i < 1000; i++)
	{
		weight[i] = pow(2.0, test_pick(&rng, -200, 200)) * test_uniform(&rng);
		part_row(weighted, all + 2 * i, weight[i]);
	}
	part_flush(weighted);
	for (int threads = 1; threads <= 3; threads++)
		good &= same_on_threads(weighted, all, weight, 1000, threads, 1 << 10);
	ok(good && weighted->p.nplanes > 20, "and with weights far apart (%d planes)", weighted->p.nplanes);

	all[1000] = 1e30;
	ok(!same_on_threads(part, all, NULL, 1000, 2, 1 << 10), "a point whose distance has no float32 is an error on threads");
	part_row(part, all + 1000, 1.0);
	ok(part_flush(part) == GK_ERR_RANGE, "and in a part");
	free(r.centroids);
	free(exact);
	part_free(weighted);
	part_free(part);
}

/* Weights whose sums no single 128-bit number holds. */
static void
test_weights(void)
{
	double		center = 0.0;
	double		scale = 0x1p50;
	int32_t		expo = 50;
	GkPrep		prep = {.d = 1,.center = &center,.scale = &scale,.expo = &expo,.unit_exp = 50};
	double		c = 0.0;
	Part	   *part = part_new(&prep, &c, 1, true);
	GkPartialResult r;
	double		x;

	/* 2^300 * 0.75 + 2^-300 * 0.5 - 2^300 * 0.75, and a weight to divide by. */
	x = 0.75;
	part_row(part, &x, 0x1p300);
	x = 0.5;
	part_row(part, &x, 0x1p-300);
	x = -0.75;
	part_row(part, &x, 0x1p300);
	part_flush(part);
	r = part_finish(part, &c);
	ok(r.centroids[0] == 0x1p-602, "weights 2^600 apart: mean %g", r.centroids[0]);
	free(r.centroids);
	part_free(part);
}

/* ---- digits ---- */

static void
test_digits(void)
{
	uint64_t	rng = 77;
	int			bad = 0;

	for (int t = 0; t < 2000; t++)
	{
		int			n = test_pick(&rng, 1, 50);
		int			lo_e = test_pick(&rng, -1070, 950);
		int			hi_e = lo_e + test_pick(&rng, 0, 70);
		int64_t		limb[GK_WIDE_LIMBS + GK_DIGITS_HEADROOM] = {0};
		GkWide		wide = {{0}, 0};
		double		got,
					want;

		for (int i = 0; i < n; i++)
		{
			double		x = ldexp(test_normal(&rng), test_pick(&rng, lo_e, hi_e));
			int			first,
						last;

			if (x == 0.0 || !isfinite(x))
				continue;
			gk_digits_span(x, &first, &last);
			if (first < 0 || last >= GK_WIDE_LIMBS)
				bad++;
			gk_digits_add(limb, 0, x, 1);
			gk_wide_add(&wide, x);
			if (i % 3 == 0)
			{
				gk_digits_add(limb, 0, x * 0.5, 1);
				gk_digits_add(limb, 0, x * 0.5, -1);
			}
		}
		got = gk_digits_to_double(limb, GK_WIDE_LIMBS + GK_DIGITS_HEADROOM, 0);
		want = gk_wide_mean(&wide, 1);
		/* gk_wide_mean rounds subnormals twice. */
		if (got != want && fabs(want) > 0x1p-1021)
			bad++;
	}
	ok(bad == 0, "sums in digits are those of the wide sums (%d bad)", bad);

	{
		int64_t		limb[GK_WIDE_LIMBS + GK_DIGITS_HEADROOM] = {0};

		gk_digits_add(limb, 0, 1.0, 1);
		gk_digits_add(limb, 0, 0x1p-53, 1);
		ok(gk_digits_to_double(limb, GK_WIDE_LIMBS, 0) == 1.0, "half a unit rounds to even");
		gk_digits_add(limb, 0, 0x1p-1074, 1);
		ok(gk_digits_to_double(limb, GK_WIDE_LIMBS, 0) == 1.0 + 0x1p-52, "and up when there is anything more");
		gk_digits_add(limb, 0, 1.0 + 0x1p-52, -1);
		gk_digits_add(limb, 0, 0x1p-53, 1);
		gk_digits_add(limb, 0, 0x1p-1074, -1);
		ok(gk_digits_to_double(limb, GK_WIDE_LIMBS, 0) == 0.0, "differences are exact");
		gk_digits_add(limb, 0, 0x1p-1074, -1);
		ok(gk_digits_to_double(limb, GK_WIDE_LIMBS, 0) == -0x1p-1074, "down to the least subnormal");
		for (int i = 0; i < 3; i++)
			gk_digits_add(limb, 0, DBL_MAX, 1);
		ok(isinf(gk_digits_to_double(limb, GK_WIDE_LIMBS + GK_DIGITS_HEADROOM, 0)), "too large is infinite");
	}
}

int
main(void)
{
	static const char *const simd[] = {"scalar", "avx2", "avx512", "auto"};
	uint64_t	rng = 2026;

	for (int s = 0; s < 4; s++)
	{
		char		reason[256];
		int			bad = 0;

		if (!gk_cpu_set_simd(simd[s], reason, sizeof(reason)))
			continue;
		for (int i = 0; i < 40; i++)
			if (!same_as_engine(&rng, i))
			{
				printf("# problem %d\n", i);
				bad++;
			}
		ok(bad == 0, "%s: 40 problems: parts in any order give the engine's step (%d bad)", simd[s], bad);
	}
	test_outside();
	test_weights();
	test_digits();
	return done_testing();
}
