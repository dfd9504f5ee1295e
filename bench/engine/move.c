/*
 * move.c - what it costs a session of the CPU to go on with other rows (GkBackend.move).
 *
 *   move [N D K [THREADS]]    as of 20000000 4 64, all CPUs
 *
 * A session has half of the rows, uniform points in chunks of 16 MB, and makes steps until it is calm.  Then it gets
 * a hundredth, a twentieth and a fifth of its rows more, and gives them back, in turn.  Prints the medians of what a
 * move takes, of the step after it, and of steps without a move before them, in milliseconds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../bench.h"
#include "core/gk_backend.h"
#include "core/gk_engine.h"
#include "core/store/gk_batch.h"
#include "core/store/gk_store.h"

#define STEPS	60				/* until it is calm */
#define TURNS	7
#define SHARES	3

static GkHost host = {.alloc = host_alloc,.free = host_free};

static void
check(GkStatus st, const GkError *err)
{
	if (st == GK_OK)
		return;
	fprintf(stderr, "%s (%s)\n", err->message, err->detail);
	exit(1);
}

static double
value(uint64_t *rng)
{
	*rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double) (*rng >> 40) * 0x1p-24;
}

static GkStore *
load(int64_t n, int d)
{
	GkStore    *store;
	GkBatch    *b;
	uint64_t	rng = 1;
	GkError		err;

	check(gk_store_create(&host, d, false, 0, (size_t) 16 << 20, SIZE_MAX, &store, &err), &err);
	b = gk_store_batch(store);
	for (int64_t i = 0; i < n; i++)
	{
		for (int j = 0; j < d; j++)
			gk_batch_put(b, j, value(&rng));
		if (++b->rows == b->capacity || i == n - 1)
			check(gk_store_commit(store, &err), &err);
	}
	check(gk_store_prepare(store, GK_EUCLIDEAN, false, &err), &err);
	return store;
}

/* ---- the session ---- */

typedef struct Part
{
	GkStore    *store;
	int64_t		first;
	GkSession  *session;
	int			k;
	float	   *centroids;
	GkStep		step;
	double	   *c;
} Part;

static GkStore *
part_of(GkStore *store, int64_t first)
{
	GkStore    *part;
	GkError		err;

	check(gk_store_part(store, first, store->pts.n - first, 2, &host, &part, &err), &err);
	check(gk_store_part_total(part, &err), &err);
	return part;
}

/* Returns milliseconds. */
static double
step(Part *p)
{
	const GkPoints *pts = &p->store->pts;
	double		start = gk_now_ms();
	double		ms;
	double		explained;
	GkError		err;

	check(gk_cpu_backend.step(p->session, p->centroids, p->k, &p->step, &err), &err);
	ms = gk_now_ms() - start;
	for (int i = 0; i < p->k; i++)
		if (p->step.mass[i] > 0)
			(void) gk_update_cluster(pts, p->step.sum + (size_t) i * pts->d, p->step.mass[i], p->c, p->centroids + (size_t) i * pts->d, &explained);
	return ms;
}

static double
move(Part *p, GkStore *of, int64_t first)
{
	GkStore    *next = part_of(of, first);
	double		start = gk_now_ms();
	double		ms;
	bool		done;
	GkError		err;

	check(gk_cpu_backend.move(p->session, next, first - p->first, &done, &err), &err);
	ms = gk_now_ms() - start;
	if (!done)
	{
		fprintf(stderr, "it cannot go on\n");
		exit(1);
	}
	gk_store_part_free(p->store);
	p->store = next;
	p->first = first;
	return ms;
}

int
main(int argc, char **argv)
{
	static const double shares[SHARES] = {0.01, 0.05, 0.2};
	int64_t		n = argc > 3 ? atoll(argv[1]) : 20000000;
	int			d = argc > 3 ? atoi(argv[2]) : 4;
	int			k = argc > 3 ? atoi(argv[3]) : 64;
	int64_t		half;
	double		ms[SHARES][2][3][TURNS];	/* [more rows, fewer][before, move, after] */
	GkStore    *store;
	Part		p = {.k = k};
	GkProblem	problem;
	uint64_t	rng = 2;
	GkError		err;

	host.threads = argc > 4 ? atoi(argv[4]) : 0;
	store = load(n, d);
	half = gk_store_edge(store, n / 2, 2);
	p.first = half;
	p.store = part_of(store, half);
	p.centroids = malloc((size_t) k * d * sizeof(float));
	p.c = malloc(d * sizeof(double));
	p.step = (GkStep) {.sum = malloc((size_t) k * d * sizeof(gk_int128)),.mass = malloc(k * sizeof(gk_int128)),.count = malloc(k * sizeof(int64_t))};
	for (int i = 0; i < k; i++)
		check(gk_store_row(store, (int64_t) (value(&rng) * (double) n), p.centroids + (size_t) i * d, &err), &err);
	problem = gk_problem(p.store, k, 1);
	check(gk_cpu_backend.open(&problem, &p.session, &err), &err);
	for (int i = 0; i < STEPS; i++)
		(void) step(&p);
	for (int turn = 0; turn < TURNS; turn++)
		for (int i = 0; i < SHARES; i++)
			for (int fewer = 0; fewer < 2; fewer++)
			{
				int64_t		first = fewer ? half : gk_store_edge(store, (int64_t) ((1.0 - shares[i]) * (double) half), 2);

				ms[i][fewer][0][turn] = step(&p);
				ms[i][fewer][1][turn] = move(&p, store, first);
				ms[i][fewer][2][turn] = step(&p);
			}
	printf("%lld x %d, k %d\n%8s %8s %10s %10s %10s\n", (long long) n, d, k, "share", "rows", "step", "move", "step after");
	for (int i = 0; i < SHARES; i++)
		for (int fewer = 0; fewer < 2; fewer++)
			printf("%6.0f %% %8s %10.2f %10.2f %10.2f\n", 100.0 * shares[i], fewer ? "fewer" : "more", median(ms[i][fewer][0], TURNS),
				   median(ms[i][fewer][1], TURNS), median(ms[i][fewer][2], TURNS));
	gk_cpu_backend.close(p.session);
	gk_store_part_free(p.store);
	gk_store_free(store);
	free(p.centroids);
	free(p.c);
	free(p.step.sum);
	free(p.step.mass);
	free(p.step.count);
	return 0;
}
