/*
 * gpu_kernels.cu - time per iteration of the GPU backend, over ceilings measured
 * in the same run.
 *
 *   gpu_kernels LIBRARY [--json FILE] [--commit ID] [case ...]
 *
 * An iteration is what the engine pays for: step() and the host's update,
 * averaged over a run of them after a warm-up; the median of several runs.  The
 * device's own time for the same runs is measured by events on its stream.
 * Every run moves more data than the L2 cache holds, except "small" and "tiny",
 * whose data stays there from iteration to iteration in a real job too.
 * Bytes are one read of the points, operations are the canonical distance's
 * (a subtraction and a fused multiply-add per feature: 3).
 */
#include <algorithm>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>

extern "C"
{
#include "gpu_harness.h"
}
#include "gpu/gk_gpu.h"			/* for the session's stream */

/* ---- ceilings ---- */

__global__ void
read_kernel(const float4 *p, int64_t n, float *out)
{
	float		s = 0.0f;

	for (int64_t i = (int64_t) blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t) gridDim.x * blockDim.x)
	{
		float4		v = __ldg(p + i);

		s += v.x + v.y + v.z + v.w;
	}
	if (s == 1.2345f)
		*out = s;
}

__global__ void
fma_kernel(float *out, int rounds)
{
	float		a[8];

	for (int i = 0; i < 8; i++)
		a[i] = threadIdx.x + i;
	for (int r = 0; r < rounds; r++)
#pragma unroll
		for (int i = 0; i < 8; i++)
			a[i] = __fmaf_rn(a[i], 1.0001f, 0.5f);
	float		s = 0.0f;

	for (int i = 0; i < 8; i++)
		s += a[i];
	if (s == 1.2345f)
		*out = s;
}

static double	read_gbs,
				fma_tflops,
				upload_gbs;

template <typename F>
static double
device_ms(F f)
{
	cudaEvent_t a,
				b;
	std::vector<float> t;

	cudaEventCreate(&a);
	cudaEventCreate(&b);
	f();
	for (int i = 0; i < 7; i++)
	{
		float		ms;

		cudaEventRecord(a);
		f();
		cudaEventRecord(b);
		cudaEventSynchronize(b);
		cudaEventElapsedTime(&ms, a, b);
		t.push_back(ms);
	}
	cudaEventDestroy(a);
	cudaEventDestroy(b);
	std::sort(t.begin(), t.end());
	return t[t.size() / 2];
}

static void
ceilings(void)
{
	size_t		bytes = (size_t) 2 << 30;
	float	   *p;
	float	   *h;

	cudaMalloc(&p, bytes);
	cudaMemset(p, 0x3c, bytes);
	cudaHostAlloc(&h, 256 << 20, cudaHostAllocDefault);
	memset(h, 1, 256 << 20);
	read_gbs = bytes / device_ms([&] { read_kernel<<<132 * 8, 512>>>((float4 *) p, bytes / 16, p); }) / 1e6;
	fma_tflops = 132 * 16 * 256.0 * 8 * 4096 * 2 / device_ms([&] { fma_kernel<<<132 * 16, 256>>>(p, 4096); }) / 1e9;
	upload_gbs = (256 << 20) / device_ms([&] { cudaMemcpyAsync(p, h, 256 << 20, cudaMemcpyHostToDevice); }) / 1e6;
	cudaFree(p);
	cudaFreeHost(h);
	printf("read %.0f GB/s, fp32 %.1f TFLOP/s (FMA = 2), upload %.1f GB/s pinned\n", read_gbs, fma_tflops, upload_gbs);
}

/* ---- results ---- */

static FILE *json;
static const char *commit = "unknown";
static char command[400];
static char gpu_name[160];
static char driver[80];

/* The first line of a file of the system, for the record. */
static void
find_driver(void)
{
	FILE	   *f = fopen("/proc/driver/nvidia/version", "r");
	char		line[300];
	char	   *at;

	snprintf(driver, sizeof(driver), "unknown");
	if (f == NULL)
		return;
	if (fgets(line, sizeof(line), f) != NULL)
		for (at = strtok(line, " \t\n"); at != NULL; at = strtok(NULL, " \t\n"))
			if (at[0] >= '1' && at[0] <= '9' && strchr(at, '.') != NULL)
			{
				snprintf(driver, sizeof(driver), "%s", at);
				break;
			}
	fclose(f);
}

/* One line of JSON per result; a script makes the tables of the documentation. */
static void
record(const char *name, const char *what, const Shape *sh, double ms, double device_ms, double target)
{
	time_t		now = time(NULL);
	char		date[40];

	if (json == NULL)
		return;
	strftime(date, sizeof(date), "%Y-%m-%d", gmtime(&now));
	fprintf(json, "{\"suite\": \"gpu_kernels\", \"case\": \"%s\", \"what\": \"%s\", \"n\": %lld, \"d\": %d, \"k\": %d, "
			"\"ms\": %.6f, \"device_ms\": %.6f, \"target_ms\": %.6f, \"read_gbs\": %.1f, \"fp32_tflops\": %.2f, "
			"\"upload_gbs\": %.2f, \"gpu\": \"%s\", \"driver\": \"%s\", \"date\": \"%s\", \"commit\": \"%s\", "
			"\"command\": \"%s\"}\n", name, what, (long long) sh->n, sh->d, sh->k, ms, device_ms, target, read_gbs,
			fma_tflops, upload_gbs, gpu_name, driver, date, commit, command);
	fflush(json);
}

/* ---- cases ---- */

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
	{"census16", {2458285, 68, 16}, 10, 0.20, 2.38},
	{"census64", {2458285, 68, 64}, 10, 0.22, 2.42},
	{"census256", {2458285, 68, 256}, 10, 0.30, 2.96},
	{"10m", {10000000, 32, 256}, 5, 0.45, 2.91},
	{"1m4096", {1000000, 128, 4096}, 3, 2.2, 5.15},
	{"8m1024", {8388608, 128, 1024}, 3, 4.5, 12.13},
	{"768", {1000000, 768, 1000}, 3, 3.0, 14.58},
};

static double
run(const GkBackend *gpu, GkStore *store, const Shape *sh, int iters, const float *start,
	GkStrategy st, GkFeatureSum fs, GkMassSum ms, double limit, double *open_ms, double *device_ms)
{
	GkProblem	p = {};
	GkStep		step = harness_step_alloc(sh->k, sh->d);
	size_t		kd = (size_t) sh->k * sh->d;
	std::vector<float> c(kd);
	std::vector<double> times;
	std::vector<double> device;
	cudaEvent_t a,
				b;
	GkSession  *s = NULL;
	GkError		err;
	GkStatus	status;
	double		t0 = harness_ms();

	p.host = &store->host;
	p.core = &harness_core;
	p.store = store;
	p.k_max = sh->k;
	p.max_iter = iters;
	p.tol = -1.0;				/* never converged: every iteration runs */
	p.strategy = st;
	p.feature_sum = fs;
	p.mass_sum = ms;
	p.gpu_memory_limit = limit;
	cudaEventCreate(&a);
	cudaEventCreate(&b);
	status = gpu->open(&p, &s, &err);
	if (open_ms)
		*open_ms = harness_ms() - t0;
	for (int r = 0; status == GK_OK && r < 4; r++)
	{
		float		on_device = 0.0f;

		memcpy(c.data(), start, kd * sizeof(float));
		cudaDeviceSynchronize();
		cudaEventRecord(a, s->gpu->stream);
		t0 = harness_ms();
		for (int i = 0; status == GK_OK && i < iters; i++)
		{
			status = gpu->step(s, c.data(), sh->k, &step, &err);
			if (status == GK_OK)
				oracle_update(store, &step, sh->k, c.data());
		}
		if (r > 0)
		{
			times.push_back((harness_ms() - t0) / iters);
			cudaEventRecord(b, s->gpu->stream);
			cudaEventSynchronize(b);
			cudaEventElapsedTime(&on_device, a, b);
			device.push_back(on_device / iters);
		}
	}
	cudaEventDestroy(a);
	cudaEventDestroy(b);
	gpu->close(s);
	harness_step_free(&step);
	if (status != GK_OK)
	{
		printf("status %d: %s (%s)\n", status, err.message, err.detail);
		return -1;
	}
	std::sort(times.begin(), times.end());
	std::sort(device.begin(), device.end());
	if (device_ms)
		*device_ms = device[device.size() / 2];
	return times[times.size() / 2];
}

static void
strategies(const GkBackend *gpu, GkStore *store, const Shape *sh, const float *start)
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
		double		ms = run(gpu, store, sh, slow ? 5 : 20, start, x.st, x.fs, x.ms, 0, NULL, &device_ms);

		printf("  %-36s %9.4f ms\n", x.name, ms);
		record("strategies", x.name, sh, ms, device_ms, 0.0);
		fflush(stdout);
	}
}

int
main(int argc, char **argv)
{
	char		reason[300];
	const GkBackend *gpu = argc > 1 ? harness_load(argv[1], reason, sizeof(reason)) : NULL;
	GkDeviceInfo info[16];
	bool		all = true;

	for (int i = 0; i < argc; i++)
		if (strcmp(argv[i], "--json") == 0)
			i++;				/* where the output goes is nobody's business */
		else
			snprintf(command + strlen(command), sizeof(command) - strlen(command), "%s%s", i ? " " : "", argv[i]);
	if (gpu == NULL || gpu->devices(info, 16) < 1 || !info[0].usable)
	{
		printf("skipped: %s\n", gpu ? info[0].reason : "usage: gpu_kernels LIBRARY [--json FILE] [--commit ID] [case ...]");
		return 0;
	}
	for (int i = 2; i < argc; i++)
	{
		if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
			json = fopen(argv[++i], "a");
		else if (strcmp(argv[i], "--commit") == 0 && i + 1 < argc)
			commit = argv[++i];
		else
			all = false;
	}
	snprintf(gpu_name, sizeof(gpu_name), "%s", info[0].name);
	find_driver();
	printf("%s, %s, driver %s\n", info[0].name, info[0].detail, driver);
	ceilings();
	printf("%-10s %11s %4s %5s %9s %9s %9s %8s %8s %9s %6s\n", "case", "n", "d", "k", "ms", "device ms", "target",
		   "of read", "of fp32", "flash ms", "times");
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
		std::vector<float> start((size_t) b.shape.k * b.shape.d);

		harness_centroids(store, b.shape.k, 5, start.data());
		ms = run(gpu, store, &b.shape, b.iters, start.data(), GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0, &open_ms, &device_ms);
		printf("%-10s %11ld %4d %5d %9.4f %9.4f %9.4f %7.0f%% %7.0f%% %9.3f %6.1f   (open %.0f ms)\n", b.name,
			   (long) b.shape.n, b.shape.d, b.shape.k, ms, device_ms, b.target,
			   100.0 * b.shape.n * b.shape.d * 4 / ms / 1e6 / read_gbs,
			   100.0 * b.shape.n * b.shape.d * b.shape.k * 3 / ms / 1e9 / fma_tflops, b.flash, b.flash / ms, open_ms);
		record(b.name, "gkmeans", &b.shape, ms, device_ms, b.target);
		fflush(stdout);
		if (strcmp(b.name, "2gb4") == 0)
		{
			double		bytes = (double) b.shape.n * b.shape.d * 4;
			size_t		avail,
						total;

			strategies(gpu, store, &b.shape, start.data());
			cudaMemGetInfo(&avail, &total);
			/* A tenth of the points resident, beside labels and the like. */
			ms = run(gpu, store, &b.shape, 3, start.data(), GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO,
					 (bytes / 10 + b.shape.n * 8.0 + 80e6) / avail, NULL, NULL);
			printf("  streamed, a tenth resident:          %9.4f ms, %.1f GB/s, %.0f%% of the upload ceiling\n", ms,
				   bytes * 0.9 / ms / 1e6, 100 * bytes * 0.9 / ms / 1e6 / upload_gbs);
			record("streamed", "a tenth resident", &b.shape, ms, 0.0, 0.0);
		}
		harness_store_free(store);
	}
	return 0;
}
