/*
 * engine.c - times of the CPU engine without a server, beside what the machine
 * can do at most.  One line of JSON per case on stdout.
 *
 *   engine roofline [-t THREADS]
 *   engine step N D K [-t THREADS] [-i ITERATIONS] [-r ROUNDS] [-s SIMD] [-f FEATURE_SUM] [-p embeddings]
 *       the passes of one Lloyd run, without skipping, on points made here:
 *       Lutz et al.'s, 10 centres uniform in [-100, 100]^d, standard deviation 10;
 *       bytes read and multiply-adds over the rooflines of the same moment; or points like
 *       embeddings, as of init
 *   engine count N D K [-s SIMD] [-b BEFORE]
 *       instructions of one of those passes, after BEFORE others (1), one thread
 *       (bench/engine/instructions)
 *   engine small N D K -i ITERATIONS [-t THREADS]
 *       one whole fit of a problem that fits the cache
 *   engine fit FILE N D K CENTROIDS [-t THREADS] [-i ITERATIONS] [-s SIMD] [-o FILE]
 *       fit float32 rows of a file from given centroids: preparing, iterating until
 *       nothing moves (or ITERATIONS times) and the labels; -o writes the final
 *       centroids, float64
 *   engine seed FILE N D K [-t THREADS] [-r ROUNDS] [-s SIMD] [-o FILE]
 *       k-means++ of float32 rows of a file, with and without a copy of the points
 *       (gkmeans.skip_points), and iterations from there without skipping; -o writes the
 *       centroids after the first one, float64
 *   engine init INIT N D K [-t THREADS] [-i ITERATIONS] [-r ROUNDS] [-s SIMD] [-p blobs] [-g DIRECTORY]
 *       seeding by k-means++, k-means||, random or hierarchical, and the inertia after
 *       ITERATIONS, on points like embeddings, made here: feature j is normal with variance
 *       1 / (j + 1); again_ms: seeding of the same fit once more, with the memory of the first; ms: an
 *       iteration without skipping, the median of ROUNDS; or on blobs, as of step.
 *       -g: on the GPU, by gkmeans_gpu.so there, with skipping; plain_ms: seeding that reads all points
 *       in each round
 *   engine accuracy N D K [-t THREADS] [-i ITERATIONS]
 *       error of the centroids against sums in long double (He et al. 2022, Table 3)
 *   with -m MB in all of them but accuracy: as gkmeans.memory_limit, the rest of the points is in a temporary file
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../bench.h"
#include "core/gk_backend.h"
#include "core/store/gk_batch.h"
#include "core/base/gk_mem.h"
#include "core/gk_update.h"
#include "roofline.h"

#define CENTRES		10

static int	before = 1;
static int	threads;
static int	iterations = 10;
static int	rounds = 3;
static size_t memory_limit = SIZE_MAX / 2;
static GkFeatureSum feature_sum = GK_FSUM_AUTO;
static const char *output;
static bool embeddings;
static bool blobs;
static const GkBackend *backend = &gk_cpu_backend;

static void
die(const char *what)
{
	fprintf(stderr, "engine: %s\n", what);
	exit(1);
}

static void
usage(void)
{
	die("see the head of bench/engine/engine.c for its arguments");
}

/* ---- the host ---- */

static bool
host_flag(void *ctx)
{
	return *(volatile bool *) ctx;
}

/* A file without a name, which goes with the process. */
static int
host_spill_fd(void *ctx)
{
	static FILE *f;

	(void) ctx;
	if (f == NULL)
		f = tmpfile();
	return f != NULL ? fileno(f) : -1;
}

static bool
host_spill_write(void *ctx, int64_t offset, const void *data, size_t bytes)
{
	return pwrite(host_spill_fd(ctx), data, bytes, offset) == (ssize_t) bytes;
}

static volatile bool stop;
static GkHost host = {.ctx = (void *) &stop,.alloc = host_alloc,.free = host_free,.poll = host_flag,.stop = host_flag,
.spill_write = host_spill_write,.spill_fd = host_spill_fd};

/* ---- points ---- */

/* Nearly normal: four uniform numbers added up. */
static double
normal(uint64_t h)
{
	return ((double) (h & 0xffff) + (double) (h >> 16 & 0xffff) + (double) (h >> 32 & 0xffff) + (double) (h >> 48) +
			2.0 - 0x1p17) * (1.7320508 / 0x1p16);
}

static float
blob(int64_t row, int j, int d)
{
	uint64_t	centre = gk_hash(1, row) % CENTRES;

	return (float) ((gk_uniform(gk_hash(2, centre * d + j)) * 2 - 1) * 100 + 10 * normal(gk_hash(3, row * d + j)));
}

static float
embedding(int64_t row, int j, int d)
{
	return (float) (normal(gk_hash(4, row * d + j)) / sqrt(j + 1));
}

typedef float (*Make) (int64_t row, int j, int d);

typedef struct Load
{
	GkBatch    *batch;
	const float *rows;			/* NULL: made here */
	Make		make;
	int			d;
	int64_t		first;
}			Load;

static void
load_column(void *arg, int64_t j, int thread)
{
	const		Load *l = arg;

	(void) thread;
	for (int i = 0; i < l->batch->rows; i++)
		gk_batch_set(l->batch, (int) j, i, l->rows ? l->rows[(l->first + i) * l->d + j] : l->make(l->first + i, (int) j, l->d));
}

static GkStore *
load(int64_t n, int d, const float *rows, Make make)
{
	Load		l = {.rows = rows,.make = make,.d = d};
	GkStore    *store;
	GkError		err;
	GkBatch    *batch;

	if (gk_store_create(&host, d, false, 0, (size_t) 16 << 20, memory_limit, &store, &err) != GK_OK)
		die(err.message);
	batch = gk_store_batch(store);
	for (int64_t first = 0; first < n; first += batch->capacity)
	{
		batch->rows = n - first < batch->capacity ? (int) (n - first) : batch->capacity;
		l.batch = batch;
		l.first = first;
		gk_parallel_for(&host, d, load_column, &l);
		if (gk_store_commit(store, &err) != GK_OK)
			die(err.message);
	}
	return store;
}

/* k rows far apart in the table, in original units. */
static double *
first_centroids(int64_t n, int d, int k, const float *rows)
{
	Make		make = embeddings ? embedding : blob;
	double	   *c = malloc((size_t) k * d * sizeof(double));

	for (int i = 0; i < k; i++)
		for (int j = 0; j < d; j++)
		{
			int64_t		row = n / k * i;

			c[(size_t) i * d + j] = rows ? rows[row * d + j] : make(row, j, d);
		}
	return c;
}

/* ---- passes of a run ---- */

typedef struct Run
{
	GkStore    *store;
	const GkPoints *pts;
	GkSession  *session;
	int			k;
	double	   *c;
	float	   *f;
	GkStep		step;
} Run;

static bool
on_gpu(void)
{
	return backend != &gk_cpu_backend;
}

static Run
run_open(GkStore *store, int k, const double *centroids)
{
	static GkHost plain;		/* sessions keep its address */
	Run			r = {.store = store,.pts = gk_store_points(store),.k = k};
	size_t		kd = (size_t) k * r.pts->d;
	GkProblem	problem = {.host = &plain,.core = &gk_core,.store = store,.k_max = k,.max_iter = iterations,
	.strategy = on_gpu() ? GK_STRATEGY_AUTO : GK_SINGLE_PASS,.feature_sum = feature_sum};
	GkError		err;

	plain = host;
	r.c = malloc(kd * sizeof(double));
	r.f = malloc(kd * sizeof(float));
	r.step.sum = malloc(kd * sizeof(gk_int128));
	r.step.mass = malloc(k * sizeof(gk_int128));
	r.step.count = malloc(k * sizeof(int64_t));
	memcpy(r.c, centroids, kd * sizeof(double));
	gk_model_prepare(&r.pts->prep, centroids, k, r.f);
	plain.skip = on_gpu() ? GK_SKIP_AUTO : GK_SKIP_OFF;
	if (backend->open(&problem, &r.session, &err) != GK_OK)
		die(err.message);
	return r;
}

static double
run_step(Run *r)
{
	const GkPrep *p = &r->pts->prep;
	double		t0 = gk_now_ms();
	GkError		err;

	if (backend->step(r->session, r->f, r->k, &r->step, &err) != GK_OK)
		die(err.message);
	for (int i = 0; i < r->k; i++)
		for (int j = 0; r->step.count[i] > 0 && j < p->d; j++)
		{
			size_t		at = (size_t) i * p->d + j;

			gk_update_feature(gk_i128_to_double(r->step.sum[at]) / gk_i128_to_double(r->step.mass[i]),
							  gk_feature_prep(p->center, p->scale, p->expo, j), r->f[at], &r->c[at], &r->f[at]);
		}
	return gk_now_ms() - t0;
}

static void
run_close(Run *r)
{
	backend->close(r->session);
	free(r->c);
	free(r->f);
	free(r->step.sum);
	free(r->step.mass);
	free(r->step.count);
}

static void
step(int64_t n, int d, int k)
{
	size_t		bytes = (size_t) n * d * sizeof(float);
	size_t		probe = bytes < (size_t) 512 << 20 ? bytes : (size_t) 512 << 20;
	GkStore    *store = load(n, d, NULL, embeddings ? embedding : blob);
	double	   *centroids = first_centroids(n, d, k, NULL);
	double		flop = 2.0 * n * k * d;
	double		read = 0.0,
				fma = 0.0;
	double		first = INFINITY;
	double	   *ms = malloc(iterations * rounds * sizeof(double));
	char		device[96],
				strategy[64];
	GkError		err;
	int			count = 0;

	if (gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		die(err.message);
	for (int round = 0; round < rounds; round++)
	{
		double		gbs = roofline_read(&host, probe);
		double		gflops = roofline_fma(&host, gk_cpu_simd());
		Run			r = run_open(store, k, centroids);

		for (int i = 0; i < iterations; i++)
			ms[count++] = run_step(&r);
		first = fmin(first, ms[count - iterations]);
		read = fmax(read, gbs);
		fma = fmax(fma, gflops);
		if (round == rounds - 1)
			gk_cpu_backend.describe(r.session, device, sizeof(device), strategy, sizeof(strategy));
		run_close(&r);
	}
	printf("{\"what\": \"step\", \"n\": %lld, \"d\": %d, \"k\": %d, \"device\": \"%s\", \"strategy\": \"%s\", \"nodes\": %d, "
		   "\"read_gbs\": %.2f, \"fma_gflops\": %.1f, \"memory_ms\": %.4f, \"compute_ms\": %.4f, ",
		   (long long) n, d, k, device, strategy, gk_numa_nodes(), read, fma, bytes / read * 1e-6, flop / fma * 1e-6);
	printf("\"first_ms\": %.4f, \"ms\": %.4f, ", first, median(ms, count));
	/* The best of both: what others take away from either is no matter of the engine's. */
	printf("\"best_ms\": %.4f, \"share\": %.4f}\n", ms[0], fmax(bytes / read, flop / fma) * 1e-6 / ms[0]);
	gk_store_free(store);
	free(centroids);
	free(ms);
}

/* ---- instructions of a pass ---- */

#ifdef __x86_64__

static volatile int64_t steps;

static void
stepped(int signal)
{
	(void) signal;
	steps++;
}

/*
 * The trap flag: a SIGTRAP after every instruction.  Exact for every instruction set, where
 * the processor's counters cannot be read and valgrind does not know the instructions.
 */
#define TRAPS(on) \
	__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; " on "; popfq; lea 128(%%rsp), %%rsp" ::: "memory", "cc")

static void
count(int64_t n, int d, int k)
{
	GkStore    *store;
	double	   *centroids = first_centroids(n, d, k, NULL);
	GkError		err;
	Run			r;

	host.threads = 1;
	store = load(n, d, NULL, blob);
	if (gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		die(err.message);
	r = run_open(store, k, centroids);
	for (int i = 0; i < before; i++)
		run_step(&r);
	signal(SIGTRAP, stepped);
	TRAPS("orq $0x100, (%%rsp)");
	run_step(&r);
	TRAPS("andq $-0x101, (%%rsp)");
	printf("%lld\n", (long long) steps);
	run_close(&r);
	gk_store_free(store);
	free(centroids);
}

#else

static void
count(int64_t n, int d, int k)
{
	(void) n;
	(void) d;
	(void) k;
	die("instructions are counted on x86-64 only");
}

#endif

/* ---- whole fits ---- */

static void
write_doubles(const char *name, const double *x, size_t count)
{
	FILE	   *f = fopen(name, "wb");

	if (f == NULL || fwrite(x, sizeof(double), count, f) != count || fclose(f) != 0)
		die(name);
}

static void
fit(const char *what, int64_t n, int d, int k, const float *rows, double *centroids)
{
	GkOptions	opt = {.k = k,.init = GK_INIT_CENTROIDS,.centroids = centroids,.n_init = 1,
	.max_iter = iterations,.tol = 0.0};
	double		prepare_ms = INFINITY,
				fit_ms = INFINITY,
				iterate_ms = INFINITY;
	GkModel		model;
	GkError		err;

	for (int round = 0; round < rounds; round++)
	{
		GkStore    *store = load(n, d, rows, blob);
		double		t0 = gk_now_ms();

		if (gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
			die(err.message);
		prepare_ms = fmin(prepare_ms, gk_now_ms() - t0);
		if (round > 0)
			gk_model_free(&host, &model);
		t0 = gk_now_ms();
		if (gk_fit(store, &gk_cpu_backend, &opt, NULL, &model, &err) != GK_OK)
			die(err.message);
		fit_ms = fmin(fit_ms, gk_now_ms() - t0);
		iterate_ms = fmin(iterate_ms, model.iterate_ms);
		gk_store_free(store);
	}
	printf("{\"what\": \"%s\", \"n\": %lld, \"d\": %d, \"k\": %d, \"device\": \"%s\", \"strategy\": \"%s\", "
		   "\"iterations\": %d, \"converged\": %s, \"inertia\": %.17g, \"prepare_ms\": %.4f, \"fit_ms\": %.4f, "
		   "\"iterate_ms\": %.4f}\n",
		   what, (long long) n, d, k, model.device, model.strategy, model.iterations,
		   model.converged ? "true" : "false", model.inertia, prepare_ms, fit_ms, iterate_ms);
	if (output != NULL)
		write_doubles(output, model.centroids, (size_t) model.k * d);
	gk_model_free(&host, &model);
	free(centroids);
}

static float *
read_floats(const char *name, size_t count)
{
	FILE	   *f = fopen(name, "rb");
	float	   *x = malloc(count * sizeof(float));

	if (f == NULL || x == NULL || fread(x, sizeof(float), count, f) != count)
		die(name);
	fclose(f);
	return x;
}

static void
fit_file(const char *name, int64_t n, int d, int k, const char *centroid_file)
{
	float	   *rows = read_floats(name, (size_t) n * d);
	float	   *c = read_floats(centroid_file, (size_t) k * d);
	double	   *centroids = malloc((size_t) k * d * sizeof(double));

	for (size_t i = 0; i < (size_t) k * d; i++)
		centroids[i] = c[i];
	fit("fit", n, d, k, rows, centroids);
	free(rows);
	free(c);
}

/* ---- seeding ---- */

static void
seed_file(const char *name, int64_t n, int d, int k)
{
	float	   *rows = read_floats(name, (size_t) n * d);
	GkStore    *store = load(n, d, rows, blob);
	GkOptions	opt = {.k = k,.init = GK_INIT_PLUSPLUS,.n_init = 1,.max_iter = 1};
	double	   *ms = malloc(iterations * rounds * sizeof(double));
	double		seed_ms = INFINITY,
				plain_ms = INFINITY;
	int			count = 0;
	GkModel		model;
	GkError		err;

	if (gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		die(err.message);
	for (int round = 0; round < rounds; round++)
	{
		Run			r;

		if (round > 0)
			gk_model_free(&host, &model);
		host.skip = GK_SKIP_OFF;
		if (gk_fit(store, &gk_cpu_backend, &opt, NULL, &model, &err) != GK_OK)
			die(err.message);
		plain_ms = fmin(plain_ms, model.seed_ms);
		gk_model_free(&host, &model);
		host.skip = GK_SKIP_AUTO;
		if (gk_fit(store, &gk_cpu_backend, &opt, NULL, &model, &err) != GK_OK)
			die(err.message);
		seed_ms = fmin(seed_ms, model.seed_ms);
		r = run_open(store, model.k, model.centroids);
		for (int i = 0; i < iterations; i++)
			ms[count++] = run_step(&r);
		run_close(&r);
	}
	printf("{\"what\": \"seed\", \"n\": %lld, \"d\": %d, \"k\": %d, \"device\": \"%s\", \"inertia\": %.17g, "
		   "\"seed_ms\": %.4f, \"plain_ms\": %.4f, \"ms\": %.4f}\n",
		   (long long) n, d, k, model.device, model.inertia, seed_ms, plain_ms, median(ms, count));
	if (output != NULL)
		write_doubles(output, model.centroids, (size_t) model.k * d);
	gk_model_free(&host, &model);
	gk_store_free(store);
	free(ms);
	free(rows);
}

static void
init(const char *name, int64_t n, int d, int k)
{
	static const char *const names[] = {"k-means++", "k-means||", "random", "hierarchical"};
	static const GkInit inits[] = {GK_INIT_PLUSPLUS, GK_INIT_PARALLEL, GK_INIT_RANDOM, GK_INIT_HIERARCHICAL};
	GkStore    *store = load(n, d, NULL, blobs ? blob : embedding);
	GkOptions	opt = {.k = k,.n_init = 1,.max_iter = iterations};
	double	   *ms = malloc(rounds * sizeof(double));
	int			which = 0;
	double		again_ms,
				plain_ms = 0.0,
				plain_inertia = 0.0;
	GkModel		model;
	GkError		err;
	Run			r;

	while (strcmp(name, names[which]) != 0)
		if (++which == 4)
			usage();
	opt.init = inits[which];
	host.keep = !on_gpu();
	gk_mem_pool_limit(host.keep ? SIZE_MAX / 2 : 0);
	if (gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		die(err.message);
	/* Twice on a GPU: the first time opens it, and reads all points in each round. */
	for (host.skip = on_gpu() ? GK_SKIP_OFF : GK_SKIP_AUTO;; host.skip = GK_SKIP_AUTO)
	{
		if (gk_fit(store, backend, &opt, NULL, &model, &err) != GK_OK)
			die(err.message);
		if (host.skip == GK_SKIP_AUTO)
			break;
		plain_ms = model.seed_ms;
		plain_inertia = model.inertia;
		gk_model_free(&host, &model);
	}
	if (on_gpu() && model.inertia != plain_inertia)
		die("other seeds with skipping than without");
	/* once more with the memory of the first time, as a server's session has it */
	again_ms = model.seed_ms;
	if (!on_gpu())
	{
		GkModel		again;

		if (gk_fit(store, backend, &opt, NULL, &again, &err) != GK_OK)
			die(err.message);
		if (again.inertia != model.inertia)
			die("other seeds the second time");
		again_ms = again.seed_ms;
		gk_model_free(&host, &again);
	}
	r = run_open(store, model.k, model.centroids);
	for (int i = 0; i < rounds; i++)
		ms[i] = run_step(&r);
	run_close(&r);
	printf("{\"what\": \"init\", \"init\": \"%s\", \"n\": %lld, \"d\": %d, \"k\": %d, \"device\": \"%s\", \"seed_ms\": %.1f, "
		   "\"again_ms\": %.1f, \"plain_ms\": %.1f, \"ms\": %.3f, \"iterations\": %d, \"inertia\": %.17g}\n", name, (long long) n, d, model.k, model.device,
		   model.seed_ms, again_ms, plain_ms, median(ms, rounds), model.iterations, model.inertia);
	gk_model_free(&host, &model);
	gk_store_free(store);
	free(ms);
}

static const GkBackend *
gpu_backend(const char *directory)
{
	GkError		err;
	const GkBackend *gpu;
	int			which;

	gk_registry_set_directory(directory);
	gpu = gk_registry_choose(GK_DEVICE_GPU, NULL, 1, 1, 1, &which, &err);
	if (gpu == NULL)
		die(err.message);
	return gpu;
}

/* ---- accuracy ---- */

/*
 * The centroids after the last pass against sums in long double, the largest
 * difference of a coordinate: sums of the rows as they came (error), of the rows
 * as they are kept (error_sums: what summing itself loses), and the rows added
 * up in float32 (error_float_sums).
 */
static void
accuracy(int64_t n, int d, int k)
{
	GkStore    *store = load(n, d, NULL, blob);
	double	   *centroids = first_centroids(n, d, k, NULL);
	long double *sum = calloc((size_t) k * d, sizeof(long double));
	long double *own = calloc((size_t) k * d, sizeof(long double));
	float	   *naive = calloc((size_t) k * d, sizeof(float));
	int64_t    *count = calloc(k, sizeof(int64_t));
	float	   *f = malloc((size_t) k * d * sizeof(float));
	double		worst = 0.0,
				worst_own = 0.0,
				worst_naive = 0.0;
	double	   *ms = malloc(iterations * sizeof(double));
	GkError		err;
	Run			r;

	if (gk_store_prepare(store, GK_EUCLIDEAN, false, &err) != GK_OK)
		die(err.message);
	r = run_open(store, k, centroids);
	for (int i = 0; i < iterations; i++)
	{
		memcpy(f, r.f, (size_t) k * d * sizeof(float));
		ms[i] = run_step(&r);
	}
	for (int c = 0; c < r.pts->nchunks; c++)
	{
		const GkChunk *chunk = &r.pts->chunks[c];

		for (int i = 0; i < chunk->rows; i++)
		{
			int			label = 0;
			float		best = INFINITY;

			for (int q = 0; q < k; q++)
			{
				float		d2 = gk_d2(chunk->data + i, chunk->stride, f + (size_t) q * d, d);

				if (d2 < best)
				{
					best = d2;
					label = q;
				}
			}
			count[label]++;
			for (int j = 0; j < d; j++)
			{
				float		v = blob(chunk->first + i, j, d);

				sum[label * d + j] += v;
				own[label * d + j] += chunk->data[(size_t) j * chunk->stride + i];
				naive[label * d + j] += v;
			}
		}
	}
	for (int i = 0; i < k * d; i++)
	{
		const GkPrep *p = &r.pts->prep;
		double		mean = (double) (sum[i] / count[i / d]);

		worst_own = fmax(worst_own, fabs((double) (p->center[i % d] + own[i] / count[i / d] / p->scale[i % d]) - r.c[i]));
		worst = fmax(worst, fabs(mean - r.c[i]));
		worst_naive = fmax(worst_naive, fabs(mean - (double) (naive[i] / (float) count[i / d])));
	}
	printf("{\"what\": \"accuracy\", \"n\": %lld, \"d\": %d, \"k\": %d, \"threads\": %d, "
		   "\"error\": %.3g, \"error_sums\": %.3g, \"error_float_sums\": %.3g, \"ms\": %.3f, ",
		   (long long) n, d, k, gk_threads(&host), worst, worst_own, worst_naive, median(ms, iterations));
	printf("\"best_ms\": %.3f}\n", ms[0]);	/* which median() has sorted */
	run_close(&r);
	gk_store_free(store);
}

static void
roofline(void)
{
	static const char *const sets[] = {"avx512", "avx2", "scalar"};
	GkHost		one = host;
	size_t		bytes = (size_t) 512 << 20;

	one.threads = 1;
	printf("{\"what\": \"roofline\", \"widest\": \"%s\", \"threads\": %d, \"nodes\": %d, \"read_gbs_1\": %.2f, \"read_gbs\": %.2f",
		   roofline_widest(), gk_threads(&host), gk_numa_nodes(), roofline_read(&one, bytes), roofline_read(&host, bytes));
	for (int i = 0; i < 3; i++)
		printf(", \"%s_1\": %.1f, \"%s\": %.1f", sets[i], roofline_fma(&one, sets[i]), sets[i], roofline_fma(&host, sets[i]));
	printf("}\n");
}

/* ---- the command ---- */

static GkFeatureSum
feature_sum_named(const char *name)
{
	static const char *const names[] = {"auto", "partitioned_features", "cluster_merge", "delta"};

	for (int i = 0; i < 4; i++)
		if (strcmp(name, names[i]) == 0)
			return (GkFeatureSum) i;
	die("-f: auto, partitioned_features, cluster_merge or delta");
	return GK_FSUM_AUTO;
}

int
main(int argc, char **argv)
{
	const char *word[8] = {0};
	int			words = 0;
	int64_t		n;
	int			d,
				k,
				named;
	char		reason[256];

	for (int i = 1; i < argc; i++)
	{
		if (argv[i][0] != '-')
		{
			if (words == 8)
				usage();
			word[words++] = argv[i];
			continue;
		}
		if (i + 1 == argc || argv[i][1] == '\0' || strchr("tirsfobpgm", argv[i][1]) == NULL)
			usage();
		switch (argv[i++][1])
		{
			case 't':
				threads = atoi(argv[i]);
				break;
			case 'i':
				iterations = atoi(argv[i]);
				break;
			case 'r':
				rounds = atoi(argv[i]);
				break;
			case 'b':
				before = atoi(argv[i]);
				break;
			case 'f':
				feature_sum = feature_sum_named(argv[i]);
				break;
			case 'p':
				embeddings = strcmp(argv[i], "embeddings") == 0;
				blobs = strcmp(argv[i], "blobs") == 0;
				if (!embeddings && !blobs)
					usage();
				break;
			case 'g':
				backend = gpu_backend(argv[i]);
				break;
			case 'm':
				memory_limit = (size_t) atoll(argv[i]) << 20;
				break;
			case 'o':
				output = argv[i];
				break;
			default:
				if (!gk_cpu_set_simd(argv[i], reason, sizeof(reason)))
					die(reason);
		}
	}
	host.threads = threads;
	if (words == 1 && strcmp(word[0], "roofline") == 0)
	{
		roofline();
		return 0;
	}
	if (words == 6 && strcmp(word[0], "fit") == 0)
	{
		fit_file(word[1], atoll(word[2]), atoi(word[3]), atoi(word[4]), word[5]);
		return 0;
	}
	if (words == 5 && strcmp(word[0], "seed") == 0)
	{
		seed_file(word[1], atoll(word[2]), atoi(word[3]), atoi(word[4]));
		return 0;
	}
	named = words == 5 && strcmp(word[0], "init") == 0;
	if (words != 4 + named)
		usage();
	n = atoll(word[1 + named]);
	d = atoi(word[2 + named]);
	k = atoi(word[3 + named]);
	if (n < 1 || d < 1 || k < 1 || k > n || iterations < 1 || rounds < 1)
		usage();
	if (named)
		init(word[1], n, d, k);
	else if (strcmp(word[0], "step") == 0)
		step(n, d, k);
	else if (strcmp(word[0], "count") == 0)
		count(n, d, k);
	else if (strcmp(word[0], "small") == 0)
		fit("small", n, d, k, NULL, first_centroids(n, d, k, NULL));
	else if (strcmp(word[0], "accuracy") == 0)
		accuracy(n, d, k);
	else
		usage();
	return 0;
}
