/*
 * gpu_kernels.cu - time per iteration of the GPU backend, over ceilings measured
 * in the same run.
 *
 *   gpu_kernels LIBRARY [--json FILE] [--commit ID] [case ...]
 *   gpu_kernels LIBRARY [--json FILE] [--commit ID] --fit FOLDER case
 *
 * A case is a name of the table below, or points x features x clusters, like
 * 1000000x128x4096: normal points around ten centres (Lutz et al.), or with an s at
 * the end points whose columns' variances fall like 1 / j, as those of embeddings do.
 *
 * An iteration is what the engine pays for: the device's part and the host's,
 * averaged over a run of them after a warm-up; the median of several runs.  The
 * device's own time for the same runs is measured by events on its stream.
 * Every run moves more data than the L2 cache holds, except "small" and "tiny",
 * whose data stays there from iteration to iteration in a real job too.
 * --fit FOLDER: a whole fit of at most 100 iterations, from points on the device and
 * k of them as centroids to centroids that do not move any more.  The points
 * ([n][d] float32), the first and the last centroids go to FOLDER, for
 * gpu_peers.py --fit FOLDER, which does the same from the same.
 * Bytes are one read of the points, operations are the canonical distance's
 * (a subtraction and a fused multiply-add per feature: 3).
 */
#include "gpu_bench.h"

#include <fcntl.h>
#include <unistd.h>

#define SUITE	"gpu_kernels"

typedef struct Bench
{
	const char *name;
	Shape		shape;
	int			iters;
	double		target;			/* ms */
	double		flash;			/* flash-kmeans fp32 on the same GPU type */
} Bench;

static const Bench benches[] = {
	{"2gb4", {134217728, 4, 4}, 20, 0.53, 12.03},
	{"2gb64", {134217728, 4, 64}, 10, 1.5, 14.88},
	{"50m", {50000000, 4, 4}, 20, 0.21, 4.70},
	{"small", {2049280, 7, 4}, 100, 0.025, 0.570},
	{"tiny", {100000, 2, 5}, 300, 0.004, 0.417},
	{"census16", {2458285, 68, 16}, 10, 0.25, 2.38},
	{"census64", {2458285, 68, 64}, 10, 0.30, 2.42},
	{"census256", {2458285, 68, 256}, 10, 0.40, 2.96},
	{"10m", {10000000, 32, 256}, 5, 0.70, 2.91},
	{"1m4096", {1000000, 128, 4096}, 5, 1.2, 5.15},
	{"8m1024", {8388608, 128, 1024}, 5, 3.2, 12.13},
	{"768", {1000000, 768, 1000}, 5, 2.8, 14.58},
	{"1536", {500000, 1536, 1000}, 5, 3.0, 14.5},
	{"census256s", {2458285, 68, 256, false, 0, 0, true, 0.0f, SPECTRUM}, 5, 0.35, 2.96},
	{"10ms", {10000000, 32, 256, false, 0, 0, true, 0.0f, SPECTRUM}, 5, 0.70, 2.91},
	{"1m4096s", {1000000, 128, 4096, false, 0, 0, true, 0.0f, SPECTRUM}, 5, 1.9, 5.15},
	{"8m1024s", {8388608, 128, 1024, false, 0, 0, true, 0.0f, SPECTRUM}, 5, 4.2, 12.13},
	{"768s", {1000000, 768, 1000, false, 0, 0, true, 0.0f, SPECTRUM}, 5, 3.0, 14.58},
	{"1536s", {500000, 1536, 1000, false, 0, 0, true, 0.0f, SPECTRUM}, 5, 3.4, 14.5},
};

static void
strategies(const GkBackend *gpu, GkStore *store, const Shape *sh, const float *first)
{
	const struct
	{
		const char *name;
		GkStrategy	st;
		GkFeatureSum fs;
		GkMassSum	ms;
	}			v[] = {
		{"single_pass", GK_SINGLE_PASS, GK_FSUM_AUTO, GK_MSUM_AUTO},
		{"single_pass partitioned_features", GK_SINGLE_PASS, GK_PARTITIONED_FEATURES, GK_MSUM_AUTO},
		{"multi_pass partitioned_features", GK_MULTI_PASS, GK_PARTITIONED_FEATURES, GK_PARTITIONED_PRIVATE},
		{"multi_pass cluster_merge", GK_MULTI_PASS, GK_CLUSTER_MERGE, GK_PARTITIONED_PRIVATE},
		{"multi_pass delta", GK_MULTI_PASS, GK_DELTA, GK_MSUM_AUTO},
		{"multi_pass partitioned_local", GK_MULTI_PASS, GK_PARTITIONED_FEATURES, GK_PARTITIONED_LOCAL},
		{"multi_pass partitioned_global", GK_MULTI_PASS, GK_PARTITIONED_FEATURES, GK_PARTITIONED_GLOBAL},
		{"multi_pass global_atomic", GK_MULTI_PASS, GK_PARTITIONED_FEATURES, GK_GLOBAL_ATOMIC},
		{"cross_processing", GK_CROSS_PROCESSING, GK_FSUM_AUTO, GK_MSUM_AUTO},
	};

	for (auto &x : v)
	{
		double		device_ms;
		bool		slow = x.st == GK_CROSS_PROCESSING || x.ms == GK_GLOBAL_ATOMIC;
		double		ms = run(gpu, store, sh, slow ? 5 : 20, first, x.st, x.fs, x.ms, 0, NULL, &device_ms);

		printf("  %-36s %9.4f ms\n", x.name, ms);
		record(SUITE, "strategies", x.name, sh, ms, device_ms, "target_ms", 0.0);
		fflush(stdout);
	}
}

/*
 * With few features an iteration may leave distances out, after the points have been
 * sorted once: with that from the start, and never, both with what is done once.
 */
static void
skipping(const GkBackend *gpu, GkStore *store, const Bench *b, const float *first)
{
	if (b->shape.d > 4 || b->shape.n < 1 << 20)
		return;
	for (GkSkip skip : {GK_SKIP_ON, GK_SKIP_OFF})
	{
		const char *what = skip == GK_SKIP_ON ? "distances left out from the start" : "all distances";
		double		device_ms;
		double		ms;

		store->host.skip = skip;
		ms = run(gpu, store, &b->shape, b->iters, first, GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0, NULL, &device_ms);
		printf("  %-36s %9.4f ms, the first %d iterations %.1f ms\n", what, ms, b->iters, warm_up_ms);
		record(SUITE, b->name, what, &b->shape, ms, device_ms, "warm_up_ms", warm_up_ms);
	}
	store->host.skip = GK_SKIP_AUTO;
}

static bool
write_all(int fd, const void *data, size_t bytes, size_t at)
{
	for (size_t done = 0; done < bytes;)
	{
		ssize_t		now = pwrite(fd, (const char *) data + done, bytes - done, at + done);

		if (now <= 0)
			return false;
		done += now;
	}
	return true;
}

static bool
write_floats(const char *folder, const char *name, const float *data, size_t count)
{
	char		path[500];
	int			fd;
	bool		good;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	good = fd >= 0 && write_all(fd, data, count * sizeof(float), 0);
	if (fd >= 0)
		close(fd);
	return good;
}

/* The points, row by row. */
static bool
write_points(const char *folder, const GkStore *store, int64_t n, int d)
{
	const int64_t rows = 16384;
	char		path[500];
	int			fd;
	bool		good = true;

	snprintf(path, sizeof(path), "%s/points", folder);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (fd < 0)
		return false;
#pragma omp parallel for schedule(dynamic) reduction(&&:good)
	for (int64_t first = 0; first < n; first += rows)
	{
		int64_t		last = std::min(first + rows, n);
		std::vector<float> out((size_t) (last - first) * d);

		for (int64_t row = first; row < last; row++)
		{
			size_t		stride;
			float		w;
			const float *x = harness_row(store, row, &stride, &w);

			for (int j = 0; j < d; j++)
				out[(size_t) (row - first) * d + j] = x[j * stride];
		}
		good = good && write_all(fd, out.data(), out.size() * sizeof(float), (size_t) first * d * sizeof(float));
	}
	close(fd);
	return good;
}

static bool
has_empty(const Iterations *it)
{
	return std::find(it->step.count, it->step.count + it->k, 0) != it->step.count + it->k;
}

/* Milliseconds of a whole fit, and how many iterations it took; c: from the first to the last centroids. */
static double
fit(const GkBackend *gpu, GkStore *store, const Shape *sh, std::vector<float> &c, int *iterations)
{
	const int	most = 100;
	GkProblem	p = {};
	Iterations	it;
	GkSession  *s = NULL;
	GkError		err;
	GkStatus	status;
	double		t0;

	p.host = &store->host;
	p.core = &harness_core;
	p.store = store;
	p.k_max = sh->k;
	p.max_iter = most;
	status = gpu->open(&p, &s, &err);
	it = harness_iterations(gpu, s, store, sh->k, c.data());
	cudaDeviceSynchronize();
	t0 = harness_ms();
	*iterations = 0;
	for (bool moved = true; status == GK_OK && *iterations < most && moved; ++*iterations)
	{
		status = iterate(&it, sh, *iterations, &err);
		moved = harness_shift(&it) > 0.0 || has_empty(&it);
	}
	if (status == GK_OK)
		status = harness_recall(&it, &err);
	t0 = harness_ms() - t0;
	gpu->close(s);
	harness_iterations_free(&it);
	if (status != GK_OK)
	{
		printf("status %d: %s (%s)\n", status, err.message, err.detail);
		return -1;
	}
	return t0;
}

/* A shape as the command line names it. */
static bool
shape_of(const char *name, Shape *sh)
{
	long		n;
	char		kind = 0;

	*sh = {};
	if (sscanf(name, "%ldx%dx%d%c", &n, &sh->d, &sh->k, &kind) < 3)
		return false;
	sh->n = n;
	sh->kind = kind == 's' ? SPECTRUM : BLOBS;
	sh->distinct = true;
	return true;
}

/* A shape of the command line as a whole fit; the median of three.  False: it failed, and nothing is recorded. */
static bool
fit_case(const GkBackend *gpu, const char *folder, const char *name)
{
	Shape		sh;
	int			iterations = 0;
	bool		good;
	std::vector<double> ms;

	if (!shape_of(name, &sh))
		return false;
	{
		GkStore    *store = harness_store(&sh, 1);
		std::vector<float> first((size_t) sh.k * sh.d);
		std::vector<float> c;

		distinct_centroids(store, sh.k, first.data());
		for (int i = 0; i < 3; i++)
		{
			c = first;
			ms.push_back(fit(gpu, store, &sh, c, &iterations));
		}
		std::sort(ms.begin(), ms.end());
		good = ms[0] >= 0.0;
		if (good && (!write_points(folder, store, sh.n, sh.d) || !write_floats(folder, "first", first.data(), first.size()) ||
					 !write_floats(folder, "last", c.data(), c.size())))
		{
			fprintf(stderr, "%s: could not be written to\n", folder);
			good = false;
		}
		if (good)
		{
			printf("%-24s whole fit %10.3f ms, %d iterations\n", name, ms[1], iterations);
			record("gpu_fits", name, "gkmeans", &sh, ms[1], 0.0, "iterations", iterations);
		}
		harness_store_free(store);
	}
	return good;
}

/* A shape of the command line: the first five iterations, and later ones. */
static bool
shape_case(const GkBackend *gpu, const char *name)
{
	Shape		sh;
	double		device_ms;
	double		ms[2];

	if (!shape_of(name, &sh))
		return false;
	{
		GkStore    *store = harness_store(&sh, 1);
		std::vector<float> first((size_t) sh.k * sh.d);

		distinct_centroids(store, sh.k, first.data());
		for (int later = 0; later < 2; later++)
		{
			ms[later] = run(gpu, store, &sh, 5, first.data(), GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0, NULL, &device_ms, later);
			record(SUITE, name, later ? "later iterations" : "gkmeans", &sh, ms[later], device_ms, "target_ms", 0.0);
		}
		harness_store_free(store);
	}
	printf("%-24s first iterations %9.4f ms, later %9.4f\n", name, ms[0], ms[1]);
	fflush(stdout);
	return true;
}

int
main(int argc, char **argv)
{
	const GkBackend *gpu = start(&argc, argv);
	bool		all = argc < 3;

	if (gpu == NULL)
		return 0;
	if (argc == 5 && strcmp(argv[2], "--fit") == 0)
		return fit_case(gpu, argv[3], argv[4]) ? 0 : 1;
	printf("%-10s %11s %4s %5s %9s %9s %9s %8s %8s %9s %6s\n", "case", "n", "d", "k", "ms", "device ms", "target",
		   "of read", "of fp32", "flash ms", "times");
	for (int i = 2; i < argc; i++)
		shape_case(gpu, argv[i]);
	for (const Bench &b : benches)
	{
		bool		wanted = all;
		double		ms,
					open_ms,
					device_ms;

		for (int i = 2; i < argc; i++)
			wanted |= strcmp(argv[i], b.name) == 0;
		if (!wanted)
			continue;
		GkStore    *store = harness_store(&b.shape, 1);
		std::vector<float> first((size_t) b.shape.k * b.shape.d);

		spread_centroids(store, b.shape.k, first.data());
		ms = run(gpu, store, &b.shape, b.iters, first.data(), GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0, &open_ms, &device_ms);
		printf("%-10s %11ld %4d %5d %9.4f %9.4f %9.4f %7.0f%% %7.0f%% %9.3f %6.1f   (open %.0f ms)\n", b.name,
			   (long) b.shape.n, b.shape.d, b.shape.k, ms, device_ms, b.target,
			   100.0 * b.shape.n * b.shape.d * 4 / ms / 1e6 / read_gbs,
			   100.0 * b.shape.n * b.shape.d * b.shape.k * 3 / ms / 1e9 / fma_tflops, b.flash, b.flash / ms, open_ms);
		record(SUITE, b.name, "gkmeans", &b.shape, ms, device_ms, "target_ms", b.target);
		skipping(gpu, store, &b, first.data());
		if (b.shape.d > 16)
		{
			ms = run(gpu, store, &b.shape, b.iters, first.data(), GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0, NULL, &device_ms, true);
			printf("  %-36s %9.4f ms %9.4f\n", "later iterations", ms, device_ms);
			record(SUITE, b.name, "later iterations", &b.shape, ms, device_ms, "target_ms", b.target);
		}
		fflush(stdout);
		if (strcmp(b.name, "2gb4") == 0)
		{
			double		bytes = (double) b.shape.n * b.shape.d * 4;
			size_t		avail,
						total;

			strategies(gpu, store, &b.shape, first.data());
			cudaMemGetInfo(&avail, &total);
			/* A tenth of the points resident, beside labels and the like. */
			ms = run(gpu, store, &b.shape, 3, first.data(), GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO,
					 (bytes / 10 + b.shape.n * 8.0 + 80e6) / avail, &open_ms, NULL);
			printf("  streamed, a tenth resident:          %9.4f ms, %.1f GB/s, %.0f%% of the upload ceiling (open %.0f ms)\n",
				   ms, bytes * 0.9 / ms / 1e6, 100 * bytes * 0.9 / ms / 1e6 / upload_gbs, open_ms);
			record(SUITE, "streamed", "a tenth resident", &b.shape, ms, 0.0, "open_ms", open_ms);
		}
		harness_store_free(store);
	}
	return 0;
}
