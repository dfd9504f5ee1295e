/*
 * several.c - one GPU against two, four, eight and so on of the same host, and the CPU beside one.
 *
 *   several DIRECTORY [--smoke|--check|--resident|--streamed|--papers|NxDxK...]   of gkmeans_gpu.so; bench/gpu/several.sh builds and runs it
 *
 * --check: only say "skipped: reason", if there is one.  --resident, --streamed, --papers, NxDxK: only these
 * shapes; those of the paper are of its tables 1 and 4 (Mohiuddin, Narayanan, 2011).  NxDxKs is streamed; of
 * NxDxKv the columns' variances fall like 1 / j, as those of embeddings do.
 *
 * Each shape is loaded once.  Ways take turns, ROUNDS times, and medians are printed: milliseconds
 * of an iteration, from fits with FEW and MANY iterations of the same given centroids; of what comes
 * before them, from the same fits; of a whole fit by k-means++ with 20 iterations (opening and
 * upload included, loading and preparing not); and of its parts: until it had the points, its seeds,
 * its iterations.  The last shapes are streamed: the points are ten times the memory that each GPU
 * gives; there seeds are k-means||'s, and iterations fewer.  All ways must have the same inertia.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bench.h"
#include "core/gk_backend.h"
#include "core/spread/gk_spread.h"
#include "core/store/gk_batch.h"
#include "core/store/gk_store.h"

#ifndef ROUNDS
#define ROUNDS		3
#endif
#define WAYS		8
#define OWN			16			/* shapes by argument, at most */
/* Until shares have settled: the CPU beside a GPU is slow until it knows which points need not be looked at. */
#define FEW(shape)	((shape)->stream ? 40 : 10)
#define MANY(shape)	((shape)->stream ? 60 : 50)

typedef struct Shape
{
	int64_t		n;
	int			d;
	int			k;
	bool		stream;
	bool		falling;		/* variances */
} Shape;

static const Shape shapes[] = {{134217728, 4, 4, false, false}, {50000000, 4, 64, false, false}, {2458285, 68, 256, false, false},
{10000000, 32, 256, false, false}, {8388608, 128, 1024, false, false}, {1000000, 768, 4096, false, false},
{134217728, 4, 64, true, false}, {10000000, 32, 256, true, false}};
static const Shape papers[] = {{500000, 128, 4000, false, false}, {1000000, 128, 8000, false, false}, {1000000, 128, 4000, false, false},
{1500000, 128, 4000, false, false}, {3000000, 128, 4000, false, false}, {6000000, 128, 4000, false, false}, {16000000, 16, 4000, false, false},
{32000000, 16, 4000, false, false}};
static const Shape small[] = {{20000, 4, 4, false, false}, {5000, 68, 16, false, false}};

typedef struct Way
{
	char		name[16];
	GkDeviceKind kind;			/* GK_DEVICE_GPU: these alone */
	char		gpus[64];
} Way;

/* ---- the host ---- */

static GkHost host = {.alloc = host_alloc,.free = host_free};

static void
die(const GkError *err)
{
	fprintf(stderr, "%s (%s)\n", err->message, err->detail);
	exit(1);
}

/* ---- points: uniform in each column, so that iterations go on ---- */

static double
value(uint64_t *rng)
{
	*rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double) (*rng >> 40) * 0x1p-24;
}

static double
width(const Shape *s, int j)
{
	return s->falling ? 1.0 / sqrt(j + 1.0) : 1.0;
}

static GkStore *
load(const Shape *s)
{
	GkStore    *store;
	GkBatch    *b;
	uint64_t	rng = 1;
	GkError		err;

	if (gk_store_create(&host, s->d, false, 0, (size_t) 16 << 20, SIZE_MAX, &store, &err) != GK_OK)
		die(&err);
	b = gk_store_batch(store);
	for (int64_t i = 0; i < s->n; i++)
	{
		for (int j = 0; j < s->d; j++)
			gk_batch_put(b, j, value(&rng) * width(s, j));
		if ((++b->rows == b->capacity || i == s->n - 1) && gk_store_commit(store, &err) != GK_OK)
			die(&err);
	}
	if (gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		die(&err);
	return store;
}

/* ---- fits ---- */

static void
fit(GkStore *store, const Shape *s, const Way *way, const double *centroids, int iterations, GkModel *model, char *device)
{
	GkOptions	opt = {.k = s->k,.init = centroids != NULL ? GK_INIT_CENTROIDS : GK_INIT_PLUSPLUS,.centroids = centroids,
		.n_init = 1,.max_iter = iterations,.seed = 1};
	const GkBackend *backend = &gk_cpu_backend;
	GkSpread	spread = {0};
	int			gpu = -1;
	double		start = gk_now_ms();
	GkError		err;

	if (centroids == NULL && s->stream)
		opt.init = GK_INIT_PARALLEL;
	host.gpu_devices = way->gpus;
	if (way->kind != GK_DEVICE_CPU)
		backend = gk_registry_choose(GK_DEVICE_GPU, way->gpus, s->n, s->d, s->k, &gpu, &err);
	if (way->kind == GK_DEVICE_BOTH || (way->kind == GK_DEVICE_GPU && strcmp(way->gpus, "0") != 0))
	{
		if (gk_spread_choose(way->kind, way->gpus, s->n, s->d, s->k, &spread) == 0)
		{
			fprintf(stderr, "%s: one of the devices is not usable\n", way->name);
			exit(1);
		}
		host.spread = &spread;
		backend = &gk_spread_backend;
	}
	if (gk_fit(store, backend, &opt, NULL, model, &err) != GK_OK)
		die(&err);
	host.spread = NULL;
	model->total_ms = gk_now_ms() - start;
	snprintf(device, sizeof(model->device), "%s", model->device);
}

static double *
first_centroids(const Shape *s)
{
	double	   *c = malloc((size_t) s->k * s->d * sizeof(double));
	uint64_t	rng = 2;

	for (int i = 0; i < s->k; i++)
		for (int j = 0; j < s->d; j++)
			c[(size_t) i * s->d + j] = value(&rng) * width(s, j);
	return c;
}

static void
run(const Shape *s, const Way *ways, int nways, int rounds)
{
	GkStore    *store = load(s);
	double	   *centroids = first_centroids(s);
	double		few_ms[WAYS][ROUNDS];
	double		many_ms[WAYS][ROUNDS];
	int			iterations[WAYS];
	double		whole[WAYS][ROUNDS];
	double		upload[WAYS][ROUNDS];
	double		seeds[WAYS][ROUNDS];
	double		iterate[WAYS][ROUNDS];
	char		device[WAYS][96];
	double		inertia = NAN;

	for (int round = -1; round < rounds; round++)	/* the first one opens the devices */
		for (int w = 0; w < nways; w++)
		{
			GkModel		few;
			GkModel		many;
			GkModel		all;

			fit(store, s, &ways[w], centroids, FEW(s), &few, device[w]);
			fit(store, s, &ways[w], centroids, MANY(s), &many, device[w]);
			fit(store, s, &ways[w], NULL, 20, &all, device[w]);
			if (isnan(inertia))
				inertia = all.inertia;
			if (all.inertia != inertia)
			{
				printf("not ok: %s has inertia %.17g, not %.17g\n", device[w], all.inertia, inertia);
				exit(1);
			}
			if (round >= 0)
			{
				few_ms[w][round] = few.iterate_ms;
				many_ms[w][round] = many.iterate_ms;
				iterations[w] = many.iterations - few.iterations;
				whole[w][round] = all.total_ms;
				upload[w][round] = all.context_ms + all.upload_ms;
				seeds[w][round] = all.seed_ms;
				iterate[w][round] = all.iterate_ms;
			}
			gk_model_free(&host, &few);
			gk_model_free(&host, &many);
			gk_model_free(&host, &all);
		}
	for (int w = 0; w < nways; w++)
	{
		double		one = (median(many_ms[0], rounds) - median(few_ms[0], rounds)) / iterations[0];
		double		fit_one = median(whole[0], rounds);
		double		ms = (median(many_ms[w], rounds) - median(few_ms[w], rounds)) / iterations[w];
		double		before = median(few_ms[w], rounds) - FEW(s) * ms;
		double		fit_ms = median(whole[w], rounds);
		char		shape[64];

		snprintf(shape, sizeof(shape), "%lld x %d, %d%s%s", (long long) s->n, s->d, s->k, s->stream ? " streamed" : "",
				 s->falling ? " falling" : "");
		printf("%-32s %-12s %10.3f %6.2f %8.1f %10.1f %6.2f %7.1f %7.1f %8.1f  %s\n", shape, ways[w].name, ms, one / ms, before,
			   fit_ms, fit_one / fit_ms, median(upload[w], rounds), median(seeds[w], rounds), median(iterate[w], rounds), device[w]);
		fflush(stdout);
	}
	free(centroids);
	gk_store_free(store);
}

/* One GPU, twice as many while there are, and for streaming the CPU beside one and alone; the last two are `cpu`. */
static int
make_ways(Way *ways, int there)
{
	int			n = 0;

	for (int gpus = 1; gpus <= there && n < WAYS - 2; gpus *= 2)
	{
		Way		   *w = &ways[n++];
		size_t		at = 0;

		w->kind = GK_DEVICE_GPU;
		snprintf(w->name, sizeof(w->name), gpus == 1 ? "%d GPU" : "%d GPUs", gpus);
		for (int i = 0; i < gpus; i++)
			at += (size_t) snprintf(w->gpus + at, sizeof(w->gpus) - at, i > 0 ? ",%d" : "%d", i);
	}
	ways[n++] = (Way) {"1 GPU + CPU", GK_DEVICE_BOTH, "0"};
	ways[n++] = (Way) {"CPU", GK_DEVICE_CPU, "0"};
	return n;
}

int
main(int argc, char **argv)
{
	const char *option = argc > 2 ? argv[2] : "";
	bool		smoke = strcmp(option, "--smoke") == 0;
	const Shape *list = smoke ? small : strcmp(option, "--papers") == 0 ? papers : shapes;
	int			nlist = smoke ? 2 : 8;
	Shape		own[OWN];
	int			nown = 0;
	Way			ways[WAYS];
	int			nways;
	const GkDeviceInfo *info;
	const GkBackend *gpu;
	int			ordinal;
	int			there;
	GkError		err;

	for (int i = 2; i < argc && nown < OWN; i++)
	{
		Shape	   *s = &own[nown];
		char		kind = '\0';

		if (sscanf(argv[i], "%" SCNd64 "x%dx%d%c", &s->n, &s->d, &s->k, &kind) < 3)
			continue;
		s->stream = kind == 's';
		s->falling = kind == 'v';
		nown++;
	}
	if (nown > 0)
	{
		list = own;
		nlist = nown;
	}
	gk_registry_set_directory(argc > 1 ? argv[1] : ".");
	if (gk_registry_choose(GK_DEVICE_GPU, NULL, 0, 0, 0, &ordinal, &err) == NULL)
	{
		printf("skipped: %s: %s\n", err.message, err.detail);
		return 0;
	}
	if (strcmp(option, "--check") == 0)
		return 0;
	there = gk_registry_seen(&info, &gpu);
	nways = make_ways(ways, there);
	printf("%-32s %-12s %10s %6s %8s %10s %6s %7s %7s %8s  %s\n", "n x d, k", "devices", "iteration", "times", "before", "whole fit", "times",
		   "upload", "seeds", "iterate", "shares");
	for (int i = 0; i < nlist; i++)
	{
		bool		cpu = list[i].stream || smoke;

		if (strcmp(option, list[i].stream ? "--resident" : "--streamed") == 0 || (!cpu && there < 2 && nown == 0))
			continue;
		/* what is streamed: a tenth of the points at a time, as a share of an idle GPU's memory */
		host.gpu_memory_limit = list[i].stream ? (double) list[i].n * list[i].d * sizeof(float) / 10.0 / (double) info[0].memory : 0.0;
		run(&list[i], ways, cpu ? nways : nways - 2, smoke ? 1 : ROUNDS);
	}
	return 0;
}
