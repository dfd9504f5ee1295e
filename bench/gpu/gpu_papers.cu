/*
 * gpu_papers.cu - the papers' experiments on one GPU: the same sizes, the same kind
 * of data, our strategies.
 *
 *   gpu_papers LIBRARY [--json FILE] [--commit ID] [--smoke] [group ...]
 *
 * Groups: feature_sum mass_sum clusters features transfers sizes (Lutz et al. 2018,
 * experiments 1, 2, 4, 5, 6, 7; experiment 3 is gpu_kernels' "strategies"), hybrid
 * (Zechner, Granitzer 2009), blog (2017), vectors (Mohiuddin, Narayanan 2011), real
 * (He et al. 2022).  --smoke divides every n by 1,000.
 *
 * Points: ten centres uniform in [-100, 100]^d, normal around them with a standard
 * deviation of 10, as Lutz et al. have them; for "real" the sizes of the two real
 * sets with such points.  Times are whole iterations (labels and new centroids), as
 * gpu_kernels measures them.  The papers' own figures are in the script that makes
 * the documentation.
 */
#include "gpu_bench.h"

static bool smoke;

static Shape
shape(int64_t n, int d, int k)
{
	Shape		s = {};

	s.n = smoke && n > 4000 ? n / 1000 : n;
	s.d = d;
	s.k = k > s.n ? (int) s.n : k;
	return s;
}

/* Points of one n and d, for many k. */
typedef struct Set
{
	Shape		shape;
	GkStore    *store;
} Set;

static Set
set_of(int64_t n, int d)
{
	Set			s = {shape(n, d, 1), NULL};

	s.store = harness_store(&s.shape, 1);
	return s;
}

/* So many iterations that a run takes about a second at most. */
static int
iterations(const Shape *sh)
{
	double		ms = (double) sh->n * sh->d * sh->k * 3 / 5e9 + (double) sh->n * sh->d * 4 / 3e9 + 0.02;
	int			n = (int) (400 / ms);

	return n < 2 ? 2 : n > 50 ? 50 : n;
}

static double
timed(const GkBackend *gpu, const Set *set, int k, const char *name, const char *what, GkStrategy st,
	  GkFeatureSum fs = GK_FSUM_AUTO, GkMassSum ms = GK_MSUM_AUTO, double limit = 0, int iters = 0)
{
	Shape		sh = set->shape;
	double		open_ms,
				device_ms = 0,
				t;

	sh.k = k > sh.n ? (int) sh.n : k;
	std::vector<float> first((size_t) sh.k * sh.d);

	spread_centroids(set->store, sh.k, first.data());
	if (iters == 0)
		iters = iterations(&sh);
	if (st == GK_CROSS_PROCESSING || ms == GK_GLOBAL_ATOMIC)
		iters = iters > 5 ? 5 : iters;
	t = run(gpu, set->store, &sh, iters, first.data(), st, fs, ms, limit, &open_ms, &device_ms);
	printf("%-12s %-44s %10ld %4d %5d %10.4f ms %8.1f GB/s\n", name, what, (long) sh.n, sh.d, sh.k, t,
		   4e-6 * sh.n * sh.d / t);
	fflush(stdout);
	record("gpu_papers", name, what, &sh, t, device_ms, "open_ms", open_ms);
	return t;
}

#define TWO_GB	((int64_t) 1 << 29)		/* values */

static void
feature_sum(const GkBackend *gpu)
{
	for (int d = 2; d <= 256; d *= 2)
	{
		Set			s = set_of(TWO_GB / d, d);

		for (int k = 4; k <= 64; k *= 16)
		{
			timed(gpu, &s, k, "feature_sum", "multi_pass cluster_merge", GK_MULTI_PASS, GK_CLUSTER_MERGE);
			timed(gpu, &s, k, "feature_sum", "multi_pass partitioned_features", GK_MULTI_PASS, GK_PARTITIONED_FEATURES);
			timed(gpu, &s, k, "feature_sum", "multi_pass delta", GK_MULTI_PASS, GK_DELTA);
		}
		harness_store_free(s.store);
	}
}

static void
mass_sum(const GkBackend *gpu)
{
	static const struct
	{
		const char *name;
		GkMassSum	ms;
	}			v[] = {
		{"partitioned_private", GK_PARTITIONED_PRIVATE},
		{"partitioned_local", GK_PARTITIONED_LOCAL},
		{"partitioned_global", GK_PARTITIONED_GLOBAL},
		{"global_atomic", GK_GLOBAL_ATOMIC},
	};
	Set			s = set_of(TWO_GB / 4, 4);

	for (int k = 2; k <= 1024; k *= 2)
		for (auto &m : v)
			timed(gpu, &s, k, "mass_sum", m.name, GK_MULTI_PASS, GK_PARTITIONED_FEATURES, m.ms, 0, k > 64 ? 3 : 5);
	harness_store_free(s.store);
}

static void
three(const GkBackend *gpu, const Set *s, int k, const char *name)
{
	timed(gpu, s, k, name, "single_pass", GK_SINGLE_PASS);
	timed(gpu, s, k, name, "multi_pass", GK_MULTI_PASS);
	timed(gpu, s, k, name, "cross_processing", GK_CROSS_PROCESSING, GK_FSUM_AUTO, GK_MSUM_AUTO, 0, 3);
}

static void
clusters(const GkBackend *gpu)
{
	Set			s = set_of(TWO_GB / 4, 4);

	for (int k = 2; k <= 256; k *= 2)
		three(gpu, &s, k, "clusters");
	harness_store_free(s.store);
}

static void
features(const GkBackend *gpu)
{
	for (int d = 2; d <= 256; d *= 2)
	{
		Set			s = set_of(TWO_GB / d, d);

		three(gpu, &s, 4, "features");
		harness_store_free(s.store);
	}
}

__global__ void
empty_kernel(const float *)
{
}

/* Lutz et al.'s figure 12: chunks to the GPU, pinned already or copied into a pinned buffer first. */
static void
transfers(const GkBackend *)
{
	size_t		most = smoke ? 8 << 20 : 512 << 20;
	size_t		total = smoke ? 64 << 20 : (size_t) 4 << 30;
	char	   *pageable = (char *) malloc(most);
	char	   *pinned[2];
	char	   *device[2];
	cudaEvent_t sent[2];
	cudaStream_t stream;

	memset(pageable, 1, most);
	cudaStreamCreate(&stream);
	for (int i = 0; i < 2; i++)
	{
		cudaHostAlloc((void **) &pinned[i], most, cudaHostAllocDefault);
		memset(pinned[i], 1, most);
		cudaMalloc((void **) &device[i], most);
		cudaEventCreateWithFlags(&sent[i], cudaEventDisableTiming);
	}
	for (size_t bytes = 1 << 20; bytes <= most; bytes *= 2)
	{
		Shape		sh = {};

		sh.n = bytes / 16;
		sh.d = 4;
		for (int copy = 0; copy < 2; copy++)
		{
			std::vector<double> t;

			for (int r = 0; r < 4; r++)
			{
				double		t0 = harness_ms();

				for (size_t i = 0; i < total / bytes; i++)
				{
					if (copy)
					{
						cudaEventSynchronize(sent[i % 2]);
						memcpy(pinned[i % 2], pageable, bytes);
					}
					cudaMemcpyAsync(device[i % 2], pinned[i % 2], bytes, cudaMemcpyHostToDevice, stream);
					if (copy)
						empty_kernel<<<1, 32, 0, stream>>>((const float *) device[i % 2]);
					cudaEventRecord(sent[i % 2], stream);
				}
				cudaStreamSynchronize(stream);
				if (r > 0)
					t.push_back((harness_ms() - t0) / (total / bytes));
			}
			std::sort(t.begin(), t.end());
			printf("%-12s %-32s %6zu MB %8.1f GB/s\n", "transfers", copy ? "memcpy, transfer, execute" : "transfer", bytes >> 20,
				   bytes / t[1] / 1e6);
			record("gpu_papers", "transfers", copy ? "memcpy, transfer, execute" : "transfer", &sh, t[1], 0, "open_ms", 0);
		}
	}
	for (int i = 0; i < 2; i++)
	{
		cudaFreeHost(pinned[i]);
		cudaFree(device[i]);
		cudaEventDestroy(sent[i]);
	}
	cudaStreamDestroy(stream);
	free(pageable);
}

/* From 1 MB to 8 GB, nothing kept on the GPU between iterations, and resident beside. */
static void
sizes(const GkBackend *gpu)
{
	size_t		avail,
				total;

	cudaMemGetInfo(&avail, &total);
	for (int64_t mb = 1; mb <= (smoke ? 4 : 8192); mb *= mb == 4096 ? 2 : 4)
	{
		Set			s = set_of(mb * 65536 * (smoke ? 1000 : 1), 4);

		for (int k = 4; k <= 64; k *= 16)
			for (int st = 0; st < 2; st++)
			{
				GkStrategy	strategy = st ? GK_MULTI_PASS : GK_SINGLE_PASS;

				timed(gpu, &s, k, "sizes", st ? "multi_pass resident" : "single_pass resident", strategy);
				/* Labels and the like, and two chunks. */
				if (mb >= 256)
					timed(gpu, &s, k, "sizes", st ? "multi_pass streamed" : "single_pass streamed", strategy, GK_FSUM_AUTO,
						  GK_MSUM_AUTO, (s.shape.n * 8.0 + 80e6) / avail, 3);
			}
		harness_store_free(s.store);
	}
}

static void
hybrid(const GkBackend *gpu)
{
	for (int64_t n = 500; n <= 500000; n *= 10)
		for (int d = 2; d <= 200; d *= 10)
		{
			Set			s = set_of(n, d);

			for (int k = 2; k <= 128; k *= 2)
			{
				timed(gpu, &s, k, "hybrid", "cross_processing", GK_CROSS_PROCESSING);
				timed(gpu, &s, k, "hybrid", "auto", GK_STRATEGY_AUTO);
			}
			harness_store_free(s.store);
		}
}

static void
blog(const GkBackend *gpu)
{
	for (int64_t n = 100; n <= 100000; n *= 1000)
	{
		Set			s = set_of(n, 2);

		timed(gpu, &s, 5, "blog", "auto", GK_STRATEGY_AUTO, GK_FSUM_AUTO, GK_MSUM_AUTO, 0, 300);
		harness_store_free(s.store);
	}
}

static void
vectors(const GkBackend *gpu)
{
	static const struct
	{
		const char *table;
		int64_t		n;
		int			d;
		int			k;
	}			rows[] = {
		{"table 1", 10000, 128, 80}, {"table 1", 50000, 128, 800}, {"table 1", 125000, 128, 2000},
		{"table 1", 250000, 128, 4000}, {"table 1", 500000, 128, 4000}, {"table 1", 1000000, 128, 8000},
		{"table 2", 30000, 128, 1000}, {"table 2", 50000, 128, 2000},
		{"table 3", 2000000, 8, 400}, {"table 3", 4000000, 8, 100}, {"table 3", 4000000, 8, 400},
		{"table 3", 51200, 64, 32}, {"table 3", 51200, 128, 32},
		{"table 4", 1000000, 128, 4000}, {"table 4", 1500000, 128, 4000}, {"table 4", 3000000, 128, 4000},
		{"table 4", 6000000, 128, 4000}, {"table 4", 16000000, 16, 4000}, {"table 4", 32000000, 16, 4000},
		{"table 5", 50000, 32, 34}, {"table 5", 500000, 32, 34}, {"table 5", 500000, 128, 2000},
		{"table 5", 1000000, 128, 4000},
	};

	for (auto &r : rows)
	{
		Set			s = set_of(r.n, r.d);

		timed(gpu, &s, r.k, "vectors", r.table, GK_STRATEGY_AUTO);
		harness_store_free(s.store);
	}
}

static void
real(const GkBackend *gpu)
{
	static const struct
	{
		const char *what;
		int64_t		n;
		int			d;
		int			k;
	}			rows[] = {
		{"synthetic", 50000000, 4, 4}, {"household power", 2049280, 4, 4}, {"household power", 2049280, 7, 4},
		{"US census", 2458285, 68, 16}, {"US census", 2458285, 68, 64}, {"US census", 2458285, 68, 256},
	};

	for (auto &r : rows)
	{
		Set			s = set_of(r.n, r.d);

		timed(gpu, &s, r.k, "real", r.what, GK_STRATEGY_AUTO);
		harness_store_free(s.store);
	}
}

int
main(int argc, char **argv)
{
	static const struct
	{
		const char *name;
		void		(*run) (const GkBackend *gpu);
	}			groups[] = {
		{"feature_sum", feature_sum}, {"mass_sum", mass_sum}, {"clusters", clusters}, {"features", features},
		{"transfers", transfers}, {"sizes", sizes}, {"hybrid", hybrid}, {"blog", blog}, {"vectors", vectors},
		{"real", real},
	};
	const GkBackend *gpu = start(&argc, argv);
	bool		all = true;

	if (gpu == NULL)
		return 0;
	for (int i = 2; i < argc; i++)
		if (strcmp(argv[i], "--smoke") == 0)
			smoke = true;
		else
			all = false;
	for (auto &g : groups)
	{
		bool		wanted = all;

		for (int i = 2; i < argc; i++)
			wanted |= strcmp(argv[i], g.name) == 0;
		if (wanted)
			g.run(gpu);
	}
	return 0;
}
