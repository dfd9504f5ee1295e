/*
 * Labels of wide points by scalar products, of floats and of 16-bit integers, against plain loops: every
 * instruction set, points and centroids at the ends of what integers hold, ties, and points that no
 * product decides.  Where integers are used they have to decide nearly all of points like embeddings.
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

static uint64_t rng = 11;
static bool kept;				/* were rounded points, in some pass */

enum
{
	EMBEDDINGS, CLUMPS, TIES, ALIGNED, FAR_CENTROID, NEAR_ORIGIN, ONE_FEATURE, DIFFERENT_LENGTHS, INFINITE_SQUARES, KINDS
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

/* Rows with another label than the plain loops', in one pass. */
static int
wrong_labels(GkSession *s, const GkTiles *x, const float *c, int k, int64_t *by_int16, int64_t *open, int *dismissed)
{
	GkSweep		sweep = gk_cpu_plan(s, k);
	int32_t		label[(ROWS + GK_ROW_PAD) / GK_ROW_PAD * GK_ROW_PAD];
	int32_t		want[sizeof(label) / sizeof(*label)];
	float		d2[sizeof(label) / sizeof(*label)];
	int			wrong = 0;
	GkError		err;

	gk_cpu_scalar.assign(x, c, 0, k, want, d2);
	if (!gk_cpu_dot_wanted(s, &sweep, k) || gk_cpu_dot_begin(s, &sweep, c, k, &err) != GK_OK)
		return ROWS;
	gk_cpu_dot_labels(s, x, 0, ROWS, 0, NULL, label);
	*by_int16 = s->dot.int16_rows;
	*open = s->dot.int16_open;
	for (int i = 0; i < ROWS; i++)
		wrong += label[i] != want[i];
	wrong += wrong_below(s, x, want, d2, dismissed);
	kept |= s->dot.int16_tile != NULL;
	gk_cpu_dot_end(s);
	/* even where too many were undecided */
	s->dot.int16_useless = s->dot.useless = false;
	return wrong;
}

/* Passes with the same centroids, of which the second one keeps rounded points, and with much longer and shorter ones. */
static int
wrong_later(GkSession *s, const GkTiles *x, float *c, int k)
{
	static const float by[] = {1.0f, 1.0f, 5.0f, 1e-3f, 200.0f, 1.0f};
	int			wrong = 0;

	kept = false;
	for (int pass = 0; pass < 6; pass++)
	{
		int64_t		by_int16 = 0;
		int64_t		open = 0;
		int			dismissed = 0;

		for (int i = 0; i < k * x->d; i++)
			c[i] *= by[pass];
		wrong += wrong_labels(s, x, c, k, &by_int16, &open, &dismissed);
	}
	return wrong + (s->kernels->integers != NULL && k >= GK_COST_INT16_MIN_K && !kept);
}

/* Open a session with points of a kind. */
static GkSession *
open_session(TestHost *host, int kind, int d, int k, GkStore **store, GkTiles *x)
{
	double	   *values = malloc(sizeof(double) * ROWS * d);
	GkSession  *session;
	GkProblem	problem;
	GkError		err;

	for (int i = 0; i < ROWS * d; i++)
		values[i] = value(kind, i / d, i % d);
	test_host_init(host, 1);
	*store = load_store(host, values, NULL, ROWS, d, NULL, (size_t) 16 << 20, SIZE_MAX, &err);
	gk_store_prepare(*store, GK_EUCLIDEAN, false, &err);
	problem = (GkProblem) {.host = &host->host,.core = &gk_core,.store = *store,.k_max = k};
	if (gk_cpu_backend.open(&problem, &session, &err) != GK_OK)
		abort();
	*x = (GkTiles) {session->pts->chunks[0].data, GK_ROW_PAD, session->pts->chunks[0].stride,
		(ROWS + GK_ROW_PAD - 1) / GK_ROW_PAD, d};
	free(values);
	return session;
}

static void
test_labels(const GkCpuKernels *set)
{
	static const int features[] = {32, 33, 63, 128, 385, 770, 1537, 2050};
	static const int clusters[] = {4, 48, 49, 61, 130};
	int			wrong = 0;
	int			integers = 0;
	int			cases = 0;
	int			with_integers = 0;
	int64_t		open_embeddings = 0;
	int64_t		rows_embeddings = 0;
	int			dismissed_embeddings = 0;

	for (int kind = 0; kind < KINDS; kind++)
		for (int number = 0; number < 8; number++)
		{
			int			d = features[number];
			int			k = clusters[(number + kind) % 5];
			float	   *c = malloc(sizeof(float) * k * d);
			GkStore    *store;
			TestHost	host;
			GkTiles		x;
			GkSession  *session = open_session(&host, kind, d, k, &store, &x);
			int64_t		by_int16 = 0;
			int64_t		open = 0;
			int			dismissed = 0;

			session->kernels = set;
			/* no store prepares such, but rows of another one may be compared */
			for (int i = 0; kind == INFINITE_SQUARES && i < ROWS * d; i++)
				if (i % ROWS % 50 == 7 && i / ROWS % 3 == 0)
					((float *) x.x)[i % ROWS / GK_ROW_PAD * x.tile + i / ROWS * x.stride + i % ROWS % GK_ROW_PAD] = i % ROWS > 100 ? 1e30f : -FLT_MAX;
			fill_centroids(c, k, &x, kind);
			wrong += wrong_labels(session, &x, c, k, &by_int16, &open, &dismissed);
			wrong += wrong_later(session, &x, c, k);
			cases++;
			with_integers += k >= GK_COST_INT16_MIN_K;
			integers += by_int16 > 0;
			if (kind == EMBEDDINGS)
			{
				rows_embeddings += by_int16;
				open_embeddings += open;
				dismissed_embeddings += dismissed;
			}
			gk_cpu_backend.close(session);
			gk_store_free(store);
			wrong += host.live != 0;
			test_host_end(&host);
			free(c);
		}
	ok(wrong == 0, "%s: labels of wide points (%d wrong in %d cases)", set->name, wrong, cases);
	ok((dismissed_embeddings * 8 > rows_embeddings) == (set->integers != NULL),
	   "%s: %d of %lld rows without a centroid closer than a limit are left out", set->name, dismissed_embeddings, (long long) rows_embeddings);
	if (set->integers != NULL)
		ok(integers == with_integers && open_embeddings * 5 < rows_embeddings,
		   "%s: integers decide from %d clusters on (%d of %d cases), of embeddings all but %lld of %lld rows",
		   set->name, GK_COST_INT16_MIN_K, integers, cases, (long long) open_embeddings, (long long) rows_embeddings);
}

int
main(void)
{
	static const char *const names[] = {"avx512", "avx2", "neon"};
	char		reason[128];

	for (int i = 0; i < 3; i++)
	{
		const GkCpuKernels *set = gk_cpu_kernels_named(names[i], reason, sizeof(reason));

		if (set == NULL)
			skip("%s", reason);
		else if (set->assign_dot == NULL)
			skip("%s has no scalar products", names[i]);
		else
			test_labels(set);
#ifdef GK_CPU_X86
		/* sets of the same name that the best one stands before */
		if (set != NULL && set->integers != NULL && set != &gk_cpu_avx512_vnni)
			test_labels(&gk_cpu_avx512_vnni);
		if (set != NULL && set->integers != NULL)
			test_labels(&gk_cpu_avx512);
#endif
	}
	return done_testing();
}
