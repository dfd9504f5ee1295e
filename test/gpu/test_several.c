/*
 * test_several.c - several real GPUs, and the CPU beside them, in one clustering: the bits of the
 * CPU alone, whichever device has which rows, whether they went up while they were read, and whichever
 * fails; no memory lost.
 *
 *   test_several DIRECTORY [small|full]    of gkmeans_gpu.so
 *
 * small: little work, for compute-sanitizer, and for the suite unit, which has no GPU: FAKE_GPUS devices there are
 * fake_gpu.c's.  Prints what failed and how long each part took, then "N passed, N failed", or "skipped: reason" without
 * a usable GPU.  With one GPU, only it and the CPU are tested.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/spread/gk_spread.h"
#include "core/store/gk_points.h"
#include "gk_testfit.h"
#include "gk_testread.h"
#include "gpu_memory.h"

static int	passed;
static int	failed;

static void
check(bool good, const char *what, const Problem *p, const char *devices)
{
	if (good)
		passed++;
	else
	{
		failed++;
		printf("FAILED: %s, n %d d %d k %d init %d on %s\n", what, p->n, p->d, p->k, (int) p->opt.init, devices);
	}
	fflush(stdout);
}

/* A part is over; without a name: the first one begins. */
static void
took(const char *part, const char *devices)
{
	static double before;
	double		now = gk_now_ms();

	if (part != NULL)
		printf("%s on %s: %.1f s\n", part, devices, (now - before) / 1e3);
	fflush(stdout);
	before = now;
}

/* ---- a fit ---- */

typedef struct Way
{
	const char *gpus;			/* as GkHost.gpu_devices */
	bool		cpu;			/* beside them */
	const char *rows;			/* as rows_take_turns() */
	const char *fault;			/* as GkHost.gpu_fault */
	double		memory;			/* as GkHost.gpu_memory_limit */
} Way;

static int	lost;

static bool
device_lost(void *ctx, const GkError *err)
{
	(void) ctx;
	(void) err;
	lost++;
	return true;
}

/* On the CPU: way is NULL. */
static void
solve(Answer *a, const Problem *p, const Way *way, size_t chunk, GkError *err)
{
	GkSpread	spread = {0};
	const GkBackend *backend = &gk_cpu_backend;
	GkStore    *s;
	GkLabelSink sink;

	answer_init(a, p, 0);
	sink = test_sink(&a->labels);
	lost = 0;
	if (way != NULL)
	{
		GkHost	   *h = &a->host.host;

		rows_take_turns(&spread, way->rows);
		(void) gk_spread_choose(way->cpu ? GK_DEVICE_BOTH : GK_DEVICE_GPU, way->gpus, p->n, p->d, p->k, &spread);
		h->spread = &spread;
		h->gpu_devices = way->gpus;
		h->gpu_fault = way->fault;
		h->gpu_memory_limit = way->memory;
		h->device_lost = device_lost;
		backend = &gk_spread_backend;
	}
	s = load_store(&a->host, p->x, p->w, p->n, p->d, NULL, chunk, SIZE_MAX, err);
	a->status = gk_store_prepare(s, p->opt.distance, p->opt.standardize, err);
	if (a->status == GK_OK)
		a->status = gk_fit(s, backend, &p->opt, &sink, &a->model, err);
	gk_store_free(s);
}

static void
compare(const Problem *p, const Answer *oracle, const Way *way, size_t chunk, const char *what)
{
	Answer		a;
	GkError		err;

	solve(&a, p, way, chunk, &err);
	if (a.status != GK_OK)
		printf("%s: %s\n", err.message, err.detail);
	check(same_answer(oracle, &a, p->n), what, p, a.model.device[0] != '\0' ? a.model.device : way->gpus);
	answer_free(&a);
	check(a.host.live == 0, "host memory is left", p, way->gpus);
}

/* ---- problems ---- */

/* Shapes of each family of kernels: few features, bounds, registers, shared memory, products. */
static const int shapes[][3] = {{300000, 4, 4}, {200000, 4, 64}, {60000, 68, 256}, {100000, 12, 300}, {40000, 128, 512}, {20000, 768, 1000}};

static Problem
shaped(uint64_t *rng, int i, GkInit init, bool full)
{
	Problem		p = {.n = full ? shapes[i][0] : shapes[i][0] / 100,.d = shapes[i][1]};

	p.k = full ? shapes[i][2] : shapes[i][2] / 10 + 2;
	p.x = random_points(rng, TEST_BLOBS, p.n, p.d);
	if (i % 3 == 1)
		p.w = random_weights(rng, p.n);
	p.opt = (GkOptions) {.k = p.k,.init = init,.n_init = 1,.max_iter = 12,.seed = i,.distance = i % 5 == 4 ? GK_COSINE : GK_EUCLIDEAN};
	return p;
}

static void
test_shapes(const char *gpus, bool full)
{
	static const GkInit inits[] = {GK_INIT_RANDOM, GK_INIT_PLUSPLUS, GK_INIT_PARALLEL, GK_INIT_HIERARCHICAL};
	static const char *const rows[] = {NULL, "64", "0,100", "1000000000", "8192,64"};
	uint64_t	rng = 41;

	for (int i = 0; i < (int) (sizeof(shapes) / sizeof(shapes[0])); i++)
	{
		Problem		p = shaped(&rng, i, inits[i % 4], full);
		Answer		oracle;
		GkError		err;

		solve(&oracle, &p, NULL, (size_t) 4 << 20, &err);
		for (int r = 0; r < 5; r++)
			for (int cpu = 0; cpu < 2; cpu++)
			{
				Way			way = {gpus, cpu, rows[r], NULL, 0.0};

				if (cpu || strcmp(gpus, "0") != 0)
					compare(&p, &oracle, &way, (size_t) 4 << 20, "another answer");
			}
		/* little of the memory: each streams its share */
		compare(&p, &oracle, &(Way) {gpus, true, "20000", NULL, 0.0001}, (size_t) 1 << 20, "another answer when points are streamed");
		answer_free(&oracle);
		problem_free(&p);
	}
}

/* The share of a GPU's memory that leaves room for `rows` rows, as gk_gpu_points.cu plans it where the others are streamed. */
static double
memory_for(const Problem *p, int64_t rows)
{
	double		rest = (double) ((size_t) 64 << 20) + (p->k + 1.0) * (p->d + 2) * 96 + p->n * 8.0;

	return (rest + (double) rows * (p->d + (p->w != NULL)) * sizeof(float)) / (double) free_memory();
}

/*
 * GPUs stream, and edges move in each step: between chunks or within them, so far that the GPU has not even the rows
 * that it keeps, or many more than before.
 */
static void
test_moves(const char *gpus, bool full)
{
	uint64_t	rng = 47;

	for (int i = 0; i < (int) (sizeof(shapes) / sizeof(shapes[0])); i++)
	{
		Problem		p = shaped(&rng, i, i % 2 ? GK_INIT_PLUSPLUS : GK_INIT_RANDOM, full);
		Answer		oracle;
		GkError		err;

		/* another seeding after moves */
		p.opt.n_init = 2;
		solve(&oracle, &p, NULL, (size_t) 4 << 20, &err);
		for (int few = 0; few < 2; few++)
			for (int kept = 0; kept < 3; kept++)
			{
				size_t		chunk = (size_t) (p.n / (few ? 9 : 70) + 64) * (p.d + 2) * sizeof(float);
				Way			way = {gpus, true, NULL, NULL, memory_for(&p, kept * p.n / 8)};
				char		rows[96];

				snprintf(rows, sizeof(rows), "%d,%d;%d,%d;%d;%d,%d;%d", p.n / 2, p.n / 4, p.n * 5 / 8, p.n / 8, p.n * 4 / 9, p.n / 9, p.n / 9, p.n * 8 / 9);
				way.rows = rows;
				compare(&p, &oracle, &way, chunk, "another answer when edges move");
			}
		answer_free(&oracle);
		problem_free(&p);
	}
}

/* The last device seeds by a copy of its points, and its part begins so far back that its tiles' places are not the copy's. */
static void
test_late_part(const char *gpus)
{
	uint64_t	rng = 48;
	Problem		p = shaped(&rng, 1, GK_INIT_PLUSPLUS, true);
	Answer		oracle;
	GkError		err;

	p.opt.max_iter = 1;
	solve(&oracle, &p, NULL, (size_t) 4 << 20, &err);
	compare(&p, &oracle, &(Way) {gpus, true, "150000", NULL, 0.0}, (size_t) 4 << 20, "another answer of a late part");
	answer_free(&oracle);
	problem_free(&p);
}

/*
 * k-means|| counts the weights of more clusters than there will be: a step's result is large then, though an
 * iteration's is small.
 */
static void
test_candidates(const char *gpus)
{
	uint64_t	rng = 46;
	Problem		p = {.n = 20000,.d = 50,.k = 300};
	Answer		oracle;
	GkError		err;

	p.x = random_points(&rng, TEST_BLOBS, p.n, p.d);
	p.w = random_weights(&rng, p.n);
	p.opt = (GkOptions) {.k = p.k,.init = GK_INIT_PARALLEL,.n_init = 2,.max_iter = 4};
	solve(&oracle, &p, NULL, (size_t) 4 << 20, &err);
	compare(&p, &oracle, &(Way) {gpus, false, NULL, NULL, 0.0}, (size_t) 4 << 20, "another answer after more candidates");
	answer_free(&oracle);
	problem_free(&p);
}

static void
test_random(const char *gpus, int problems)
{
	uint64_t	rng = 42;

	for (int number = 0; number < problems; number++)
	{
		Problem		p = random_problem(&rng, number);
		Way			way = {gpus, number % 2 || strcmp(gpus, "0") == 0, number % 3 ? NULL : "64,1", NULL, 0.0};
		Answer		oracle;
		GkError		err;

		if (number % 5 == 0)
			given_centroids(&p, &rng);
		else
			p.opt.init = number % 5 == 1 ? GK_INIT_PLUSPLUS : random_inits[number % 5 - 2];
		p.opt.n_init = number % 4 == 2 ? 2 : 1;
		solve(&oracle, &p, NULL, whole_chunk(&p), &err);
		compare(&p, &oracle, &way, number % 2 ? 30000 : whole_chunk(&p), "another answer to a random problem");
		answer_free(&oracle);
		problem_free(&p);
	}
}

/* ---- rows that go up while they are read ---- */

/* So many faults in a row that lose no device: there are no more calls.  Without memory, some go on by another way. */
#define HARMLESS		12

/* The devices have them, and the CPU's answer; *reads: how often they were read. */
static bool
goes_up(const Problem *p, const GkModel *oracle, const char *gpus, const char *rows, const char *fault, Reading *r)
{
	GkSpread	spread = {.rows = rows};
	Answer		a;
	GkError		err = {0};
	bool		same;

	answer_init(&a, p, 0);
	(void) gk_spread_choose(GK_DEVICE_GPU, gpus, p->n, p->d, p->k, &spread);
	a.host.host.gpu_devices = gpus;
	a.host.host.gpu_fault = fault;
	read_and_fit(&a, p, &spread, r, &err);
	same = a.status == GK_OK && same_model(oracle, &a.model) && !r->on_cpu;
	if (!same)
		printf("%s %s on %s, read %d times\n", err.message, err.detail, a.model.device, r->reads);
	answer_free(&a);
	return same && a.host.live == 0;
}

/* Rows that need doubles, or are floats; a device can prepare them if they have no weights. */
static Problem
unweighted(uint64_t *rng, int shape, GkInit init, bool wide, bool full)
{
	Problem		p = shaped(rng, shape, init, full);

	free(p.w);
	p.w = NULL;
	for (int64_t i = 0; !wide && i < (int64_t) p.n * p.d; i++)
		p.x[i] = (float) p.x[i];
	return p;
}

static void
test_up(const char *gpus, bool full)
{
	static const GkInit inits[] = {GK_INIT_RANDOM, GK_INIT_PLUSPLUS, GK_INIT_PARALLEL, GK_INIT_HIERARCHICAL};
	static const char *const rows[] = {NULL, "64", "0,100", "1000000000"};
	static const double estimates[] = {1.0, 0.1, 10.0, 0.0};
	uint64_t	rng = 44;

	for (int i = 0; i < (int) (sizeof(shapes) / sizeof(shapes[0])); i++)
	{
		bool		wide = i % 2;
		Problem		p = unweighted(&rng, i, inits[i % 4], wide, full);
		Answer		oracle;
		GkError		err;

		answer_init(&oracle, &p, 0);
		read_and_fit(&oracle, &p, NULL, &(Reading) {.expected = -1.0,.chunk = (size_t) 4 << 20}, &err);
		for (int w = 0; w < 8; w++)
		{
			Reading		r = {.expected = estimates[w / 2] * p.n,.before = w % 2 ? p.n / 3 : 0,.wide = wide,.chunk = (size_t) 4 << 20};

			check(goes_up(&p, &oracle.model, gpus, w < 4 ? NULL : rows[w - 4], NULL, &r) && r.up == 1 && r.reads == 1,
				  "another answer of rows that went up", &p, gpus);
		}
		answer_free(&oracle);
		problem_free(&p);
	}
}

/* A GPU fails at each call of CUDA, at first of those after its opening. */
static void
test_faults_up(const char *gpus, bool wide, int device)
{
	uint64_t	rng = 45;
	Problem		p = unweighted(&rng, 1, GK_INIT_PLUSPLUS, wide, false);

	/* too few, so that the devices take over rows from each other */
	Reading		r = {.expected = p.n / 4,.before = p.n / 3,.wide = wide,.chunk = 30000};
	int			again = 0;
	Answer		oracle;
	size_t		before;
	GkError		err;

	answer_init(&oracle, &p, 0);
	read_and_fit(&oracle, &p, NULL, &r, &err);
	/* a session's context takes memory, and stays */
	(void) goes_up(&p, &oracle.model, gpus, NULL, NULL, &r);
	before = free_on_two();
	for (int opening = 0; opening < 2; opening++)
		for (int n = 0, harmless = 0; harmless < HARMLESS; n++)
		{
			char		fault[40];

			snprintf(fault, sizeof(fault), "%d@%s%s:%d", device, opening ? "open-" : "", n % 2 ? "memory" : "error", n);
			check(goes_up(&p, &oracle.model, gpus, NULL, fault, &r) && r.reads <= 2, fault, &p, gpus);
			harmless = r.reads == 1 && r.up == 1 ? harmless + 1 : 0;
			again += r.reads == 2;
		}
	check(again > 20, "enough faults had the rows read again", &p, gpus);
	check(free_on_two() >= before, "device memory is left", &p, gpus);
	answer_free(&oracle);
	problem_free(&p);
}

/*
 * The first GPU fails at each step-th call of CUDA: the others, or the CPU, do its share.  Without the CPU, GPUs
 * join; the wide shape seeds and sorts by products.  moves: it streams, and the edge of its rows moves in each step.
 */
static void
test_faults(const char *gpus, bool cpu, bool wide, bool moves, int step)
{
	uint64_t	rng = 43;
	Problem		p = shaped(&rng, wide ? 5 : 1, GK_INIT_PLUSPLUS, wide);
	const char *rows = moves ? "9600;12000" : wide ? "9600,9600" : "700,700";
	double		memory = moves ? memory_for(&p, 4000) : 0.0;
	int			harmless = 0;
	Answer		oracle;
	Answer		first;
	size_t		before;
	GkError		err;

	solve(&oracle, &p, NULL, 30000, &err);
	/* a session's context takes memory, and stays */
	solve(&first, &p, &(Way) {gpus, cpu, rows, NULL, memory}, 30000, &err);
	answer_free(&first);
	before = free_memory();
	for (int n = 0; harmless < HARMLESS; n += step)
	{
		char		fault[32];
		Way			way = {gpus, cpu, rows, fault, memory};

		snprintf(fault, sizeof(fault), "0@%s:%d", n % 2 ? "memory" : "error", n);
		compare(&p, &oracle, &way, 30000, fault);
		harmless = lost == 0 ? harmless + 1 : 0;
	}
	check(free_memory() >= before, "device memory is left", &p, gpus);
	answer_free(&oracle);
	problem_free(&p);
}

/* Problems, shapes, and rows that go from one device to another. */
static void
test_rows(const char *devices, bool full)
{
	test_random(devices, full ? 60 : 6);
	took("problems", devices);
	test_shapes(devices, full);
	took("shapes", devices);
	test_moves(devices, full);
	took("moves", devices);
}

int
main(int argc, char **argv)
{
	bool		full = argc <= 2 || strcmp(argv[2], "full") == 0;
	const GkDeviceInfo *info;
	const GkBackend *gpu;
	int			there;
	int			usable = 0;
	int			ordinal;
	GkError		err;

	gk_registry_set_directory(argc > 1 ? argv[1] : ".");
	if (gk_registry_choose(GK_DEVICE_GPU, NULL, 0, 0, 0, &ordinal, &err) == NULL)
	{
		printf("skipped: %s: %s\n", err.message, err.detail);
		return 0;
	}
	there = gk_registry_seen(&info, &gpu);
	for (int i = 0; i < there; i++)
		usable += info[i].usable;
	took(NULL, NULL);
	test_rows("0", full);
	test_late_part("0");
	took("a late part", "0");
	if (usable < 2)
		printf("skipped: one device, so nothing of two GPUs\n");
	else
	{
		test_candidates("0,1");
		took("candidates", "0,1");
		test_rows("0,1", full);
		test_up("0,1", full);
		took("rows that go up while they are read", "0,1");
	}
	if (usable > 2)
	{
		/* the last shape has as many totals as devices add up in slices */
		test_random("all", full ? 60 : 6);
		test_shapes("all", full);
		took("problems and shapes", "all");
	}
	if (full)
	{
		test_faults(usable < 2 ? "0" : "0,1", true, false, false, 3);
		test_faults("0", true, true, true, 499);
		took("faults beside the CPU", usable < 2 ? "0" : "0,1");
	}
	if (full && usable > 1)
	{
		test_faults("0,1", false, false, false, 1);
		test_faults("0,1", false, true, false, 61);
		if (usable > 2)
			test_faults("all", false, true, false, 97);
		took("faults", "0,1");
		for (int device = 0; device < 2; device++)
			for (int wide = 0; wide < 2; wide++)
				test_faults_up("0,1", wide, device);
		took("faults while rows go up", "0,1");
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
