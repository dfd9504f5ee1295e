/*
 * gpu_bench.h - what the benchmarks of the GPU backend share: the ceilings of this
 * machine, one timed run of iterations, a line of JSON per result.
 */
#ifndef GPU_BENCH_H
#define GPU_BENCH_H

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
record(const char *suite, const char *name, const char *what, const Shape *sh, double ms, double device_ms,
	   const char *extra, double value)
{
	time_t		now = time(NULL);
	char		date[40];

	if (json == NULL)
		return;
	strftime(date, sizeof(date), "%Y-%m-%d", gmtime(&now));
	fprintf(json, "{\"suite\": \"%s\", \"case\": \"%s\", \"what\": \"%s\", \"n\": %lld, \"d\": %d, \"k\": %d, "
			"\"ms\": %.6f, \"device_ms\": %.6f, \"%s\": %.6f, \"read_gbs\": %.1f, \"fp32_tflops\": %.2f, "
			"\"upload_gbs\": %.2f, \"gpu\": \"%s\", \"driver\": \"%s\", \"date\": \"%s\", \"commit\": \"%s\", "
			"\"command\": \"%s\"}\n", suite, name, what, (long long) sh->n, sh->d, sh->k, ms, device_ms, extra, value, read_gbs,
			fma_tflops, upload_gbs, gpu_name, driver, date, commit, command);
	fflush(json);
}

/* ---- a run ---- */

/* Every n / k-th point as a centroid: as good as at random, but none twice. */
static void
distinct_centroids(const GkStore *store, int k, float *out)
{
	for (int i = 0; i < k; i++)
		harness_point(store, i * (store->pts.n / k), out + (size_t) i * store->pts.d);
}

/*
 * Points far from one another: of 20 at random, the one farthest from those that
 * there are.  With as many points taken blindly, a cluster may lose all its own,
 * and a run of iterations ends there.  Beyond 512 clusters blindly all the same.
 */
static void
spread_centroids(const GkStore *store, int k, float *out)
{
	const int	tries = 20;
	int			d = store->pts.d;
	std::vector<float> c;

	if (k > 512)
	{
		distinct_centroids(store, k, out);
		return;
	}
	c.resize((size_t) k * tries * d);
	harness_centroids(store, k * tries, 5, c.data());
	for (int i = 0; i < k; i++)
	{
		const float *best = &c[(size_t) i * tries * d];
		double		most = -1.0;

		for (int t = 0; t < tries; t++)
		{
			const float *x = &c[((size_t) i * tries + t) * d];
			double		least = 1e300;

			for (int o = 0; o < i; o++)
			{
				double		d2 = 0.0;

				for (int j = 0; j < d; j++)
					d2 += ((double) x[j] - out[(size_t) o * d + j]) * ((double) x[j] - out[(size_t) o * d + j]);
				least = std::min(least, d2);
			}
			if (least > most)
			{
				most = least;
				best = x;
			}
		}
		memcpy(out + (size_t) i * d, best, d * sizeof(float));
	}
}

/*
 * An iteration; an empty cluster is given some point: with one a device must not run ahead, and the engine repairs it,
 * too.
 */
static GkStatus
iterate(Iterations *it, const Shape *sh, int iteration, GkError *err)
{
	GkStatus	status = harness_iterate(it, err);

	for (int i = 0; status == GK_OK && i < sh->k; i++)
		if (it->step.count[i] == 0)
		{
			size_t		stride;
			float		w;
			const float *x = harness_row(it->store, (int64_t) (gk_hash(iteration, i) % (uint64_t) sh->n), &stride, &w);

			status = harness_recall(it, err);
			for (int j = 0; j < sh->d; j++)
				it->c[(size_t) i * sh->d + j] = x[j * stride];
		}
	return status;
}

/* All iterations of run()'s warm-up: the session's first, with what is done once. */
static double	warm_up_ms;

/*
 * Milliseconds of an iteration: the device's and the host's part, averaged over a run
 * of them after a warm-up; the median of three runs.  device_ms, the same by
 * events on the device's stream, and open_ms may be NULL.  Every run begins with
 * the first centroids, or, late, where the one before ended.  -1 and a line on
 * failure.
 */
static double
run(const GkBackend *gpu, GkStore *store, const Shape *sh, int iters, const float *first,
	GkStrategy st, GkFeatureSum fs, GkMassSum ms, double limit, double *open_ms, double *device_ms, bool late = false)
{
	GkProblem	p = {};
	Iterations	it;
	size_t		kd = (size_t) sh->k * sh->d;
	std::vector<float> c(kd);
	std::vector<double> times;
	std::vector<double> device;
	cudaEvent_t begin[4],
				end[4];
	GkSession  *s = NULL;
	GkError		err;
	GkStatus	status;
	double		t0 = harness_ms();

	warm_up_ms = 0.0;
	p.host = &store->host;
	p.core = &harness_core;
	p.store = store;
	p.k_max = sh->k;
	p.max_iter = late ? 4 * iters + 2 * GK_GPU_UNITS : iters;
	p.tol = -1.0;				/* never converged: every iteration runs */
	p.strategy = st;
	p.feature_sum = fs;
	p.mass_sum = ms;
	p.gpu_memory_limit = limit;
	for (int r = 0; r < 4; r++)
	{
		cudaEventCreate(&begin[r]);
		cudaEventCreate(&end[r]);
	}
	status = gpu->open(&p, &s, &err);
	if (open_ms)
		*open_ms = harness_ms() - t0;
	it = harness_iterations(gpu, s, store, sh->k, c.data());
	for (int r = 0; status == GK_OK && r < 4; r++)
	{
		if (r == 0 || !late)
		{
			memcpy(c.data(), first, kd * sizeof(float));
			it.here = true;
			cudaDeviceSynchronize();
		}
		/* Late, nothing waits for the device between runs: it is as far ahead when one ends as when it began. */
		cudaEventRecord(begin[r], s->gpu->stream);
		t0 = harness_ms();
		for (int i = 0; status == GK_OK && i < iters; i++)
			status = iterate(&it, sh, i, &err);
		if (r == 0)
			warm_up_ms = harness_ms() - t0;
		else
		{
			times.push_back((harness_ms() - t0) / iters);
			cudaEventRecord(end[r], s->gpu->stream);
		}
	}
	cudaDeviceSynchronize();
	for (int r = 0; r < 4; r++)
	{
		float		on_device = 0.0f;

		if (status == GK_OK && r > 0 && cudaEventElapsedTime(&on_device, begin[r], end[r]) == cudaSuccess)
			device.push_back(on_device / iters);
		cudaEventDestroy(begin[r]);
		cudaEventDestroy(end[r]);
	}
	gpu->close(s);
	harness_iterations_free(&it);
	if (status != GK_OK)
	{
		printf("status %d: %s (%s)\n", status, err.message, err.detail);
		return -1;
	}
	std::sort(times.begin(), times.end());
	std::sort(device.begin(), device.end());
	if (device_ms && !device.empty())
		*device_ms = device[device.size() / 2];
	return times[times.size() / 2];
}

/*
 * Opens the library argv[1] and measures the ceilings; NULL after saying why it
 * skips.  --json FILE and --commit ID are taken out of argv.
 */
static const GkBackend *
start(int *argc, char **argv)
{
	char		reason[300];
	const GkBackend *gpu = *argc > 1 ? harness_load(argv[1], reason, sizeof(reason)) : NULL;
	GkDeviceInfo info[16];
	int			kept = 0;

	for (int i = 0; i < *argc; i++)
	{
		if (strcmp(argv[i], "--json") == 0 && i + 1 < *argc)
		{
			/* Where the output goes is nobody's business. */
			json = fopen(argv[++i], "a");
			continue;
		}
		snprintf(command + strlen(command), sizeof(command) - strlen(command), "%s%s", i ? " " : "",
				 i > 0 && strcmp(argv[i - 1], "--fit") == 0 ? "FOLDER" : argv[i]);
		if (strcmp(argv[i], "--commit") == 0 && i + 1 < *argc)
		{
			commit = argv[++i];
			snprintf(command + strlen(command), sizeof(command) - strlen(command), " %s", commit);
			continue;
		}
		argv[kept++] = argv[i];
	}
	*argc = kept;
	if (gpu == NULL || gpu->devices(info, 16) < 1 || !info[0].usable)
	{
		printf("skipped: %s\n", gpu ? info[0].reason : "usage: PROGRAM LIBRARY [--json FILE] [--commit ID] [case ...]");
		return NULL;
	}
	snprintf(gpu_name, sizeof(gpu_name), "%s", info[0].name);
	find_driver();
	printf("%s, %s, driver %s\n", info[0].name, info[0].detail, driver);
	ceilings();
	return gpu;
}

#endif							/* GPU_BENCH_H */
