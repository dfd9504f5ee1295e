/*
 * What a step without private sums (gk_cpu_step_partitioned.c) remembers: labels and result together fit the limit, are
 * there for every step or for none, and are given back when k becomes small, when seeding begins and when rows move.
 */
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/store/gk_store.h"
#include "cpu/gk_cpu.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define STEPS	6

static uint64_t rng = 11;
static int	over;				/* the limit: steps */
static int	others;				/* steps with private sums */
static int	flips;				/* between steps that remember and others */
static int	remembered;			/* cases that do, ... */
static int	forgot;				/* ... and that do not */
static int	leaks;

typedef struct Opened
{
	TestHost	host;
	GkStore    *store;
	GkSession  *session;
	GkStep		step;
	float	   *c;				/* [k][d] */
} Opened;

static void
open_case(Opened *o, const double *x, int n, int d, int k, int threads, size_t limit)
{
	GkProblem	problem;
	GkError		err;

	test_host_init(&o->host, threads);
	o->store = load_store(&o->host, x, NULL, n, d, NULL, 1 << 16, limit, &err);
	if (gk_store_prepare(o->store, GK_EUCLIDEAN, false, &err) != GK_OK)
		abort();
	problem = (GkProblem) {.host = &o->host.host,.core = &gk_core,.store = o->store,.k_max = k};
	if (gk_cpu_backend.open(&problem, &o->session, &err) != GK_OK)
		abort();
	o->c = malloc(sizeof(float) * k * d);
	o->step = new_step(k, d);
	for (int q = 0; q < k; q++)
		if (gk_store_row(o->store, test_pick(&rng, 0, n - 1), o->c + (size_t) q * d, &err) != GK_OK)
			abort();
}

static void
step(Opened *o, int k)
{
	GkError		err;

	if (gk_cpu_backend.step(o->session, o->c, k, &o->step, &err) != GK_OK)
		abort();
}

static void
close_case(Opened *o)
{
	gk_cpu_backend.close(o->session);
	gk_store_free(o->store);
	leaks += o->host.live != 0;
	test_host_end(&o->host);
	free(o->c);
	free_step(&o->step);
}

/* Steps with less and less memory: the points' and some of what is remembered. */
static void
test_limits(int n, int d, int k, int threads, bool spilled)
{
	double	   *x = random_points(&rng, TEST_BLOBS, n, d);
	size_t		points = (size_t) n * (d + 1) * sizeof(float);
	size_t		base = (size_t) k * d * sizeof(gk_int128);

	for (int part = 0; part <= 12; part++)
	{
		Opened		o;
		const GkSession *s;
		bool		first = false;

		open_case(&o, x, n, d, k, threads, (spilled ? points * 3 / 4 : points + points / 8) + base * part / 6);
		s = o.session;
		for (int i = 0; i < STEPS; i++)
		{
			bool		known;

			step(&o, k);
			known = s->previous_k == k;
			first = i == 0 ? known : first;
			flips += known != first;
			over += known && s->base_bytes + (s->pts->resident ? 0 : s->all_rows * sizeof(int32_t)) > s->pts->spare;
			others += s->used != GK_PARTITIONED_FEATURES;
		}
		remembered += first;
		forgot += !first;
		close_case(&o);
	}
	free(x);
}

/* What is left of it when it is of no use any more. */
static void
test_given_back(void)
{
	enum
	{
		N = 3000, D = 20, K = 1000
	};
	double	   *x = random_points(&rng, TEST_BLOBS, N, D);
	size_t		base = (size_t) K * D * sizeof(gk_int128);
	GkError		err;
	Opened		o;
	bool		had;

	open_case(&o, x, N, D, K, 16, SIZE_MAX / 4);
	step(&o, K);
	had = o.session->base_bytes == base;
	step(&o, K / 2);
	ok(had && o.session->base_bytes == base, "fewer clusters have the room of more, which counts");
	step(&o, 2);
	ok(o.session->base_bytes == 0 && o.session->used != GK_PARTITIONED_FEATURES, "few clusters have private sums, and no such room");
	step(&o, K);
	had = o.session->base_bytes == base;
	if (gk_cpu_backend.seed_begin(o.session, &err) != GK_OK)
		abort();
	gk_cpu_backend.seed_end(o.session);
	ok(had && o.session->base_bytes == 0 && o.session->base.sum == NULL && o.session->previous_k == 0, "seeding has its memory");
	close_case(&o);
	free(x);
}

/* Other rows: the result is forgotten, and the next step has that of a session which had only these. */
static void
test_moved(void)
{
	enum
	{
		N = 6000, D = 20, K = 600
	};
	double	   *x = random_points(&rng, TEST_BLOBS, N, D);
	GkStore    *part[2];
	GkStep		moved;
	GkError		err;
	Opened		o;
	bool		done;
	bool		had;
	int64_t		end;
	int64_t		from;

	open_case(&o, x, N, D, K, 16, SIZE_MAX / 4);
	gk_cpu_backend.close(o.session);
	end = gk_store_edge(o.store, N * 3 / 4, 1);
	from = gk_store_edge(o.store, N / 4, 1);
	if (gk_store_part(o.store, 0, end, 1, &o.host.host, &part[0], &err) != GK_OK || gk_store_part_total(part[0], &err) != GK_OK ||
		gk_store_part(o.store, from, N - from, 1, &o.host.host, &part[1], &err) != GK_OK || gk_store_part_total(part[1], &err) != GK_OK)
		abort();
	for (int fresh = 0; fresh < 2; fresh++)
	{
		GkProblem	problem = {.host = &o.host.host,.core = &gk_core,.store = part[fresh],.k_max = K};

		if (gk_cpu_backend.open(&problem, &o.session, &err) != GK_OK)
			abort();
		if (!fresh)
		{
			step(&o, K);
			step(&o, K);
			had = o.session->base_bytes > 0 && o.session->previous_k == K;
			if (gk_cpu_backend.move(o.session, part[1], from, &done, &err) != GK_OK)
				abort();
			ok(had && done && o.session->base_bytes == 0 && o.session->previous_k == 0, "rows that move find no result of other rows");
		}
		step(&o, K);
		if (!fresh)
		{
			gk_cpu_backend.close(o.session);
			moved = o.step;
			o.step = new_step(K, D);
		}
	}
	ok(memcmp(moved.sum, o.step.sum, sizeof(gk_int128) * K * D) == 0 && memcmp(moved.count, o.step.count, sizeof(int64_t) * K) == 0,
	   "and the next step's sums are those of the rows that are there");
	free_step(&moved);
	gk_cpu_backend.close(o.session);
	o.session = NULL;
	gk_store_part_free(part[0]);
	gk_store_part_free(part[1]);
	close_case(&o);
	free(x);
}

int
main(void)
{
	test_limits(20000, 8, 6500, 8, false);
	test_limits(20000, 16, 1300, 16, true);
	test_limits(6000, 40, 400, 16, false);
	ok(over == 0 && others == 0, "labels and result fit the limit (%d steps do not, %d have private sums)", over, others);
	ok(flips == 0 && remembered > 5 && forgot > 5, "all steps remember them or none (%d others; %d cases do, %d do not)", flips, remembered, forgot);
	test_given_back();
	test_moved();
	ok(leaks == 0, "nothing is left allocated");
	return done_testing();
}
