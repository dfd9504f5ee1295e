/*
 * test_groups.c - packed groups on a real GPU, and on two: the same models as one by one on the
 * CPU, bit for bit; faults, cancels, no memory lost.
 *
 *   test_groups DIRECTORY [small|full|time]     of gkmeans_gpu.so
 *
 * small: little work, for compute-sanitizer.  time: how long groups take.  Prints
 * what failed, then "N passed, N failed", or "skipped: reason" without a usable GPU.  With one GPU,
 * it says that two are not tested.
 */
#define _GNU_SOURCE
#include "gpu_memory.h"
#include "group_cases.h"

#define TWO		"0,1"

static int	passed;
static int	failed;
static int	polls;				/* until stop; < 0: never */

static void
check(bool good, const char *what, const PackedReport *r)
{
	if (good)
		passed++;
	else
	{
		failed++;
		printf("FAILED: %s: status %d (%s %s), %d results, %d differ, the first is %d\n", what, r->status,
			   r->err.message, r->err.detail, r->results, r->different, r->first);
	}
	fflush(stdout);
}

static bool
poll(void *ctx)
{
	(void) ctx;
	return polls >= 0 && polls-- <= 0;
}

/* Two GPUs; n is 0 where there are not. */
static GkSpread
two_gpus(void)
{
	GkSpread	two = {0};

	(void) gk_spread_choose_groups(GK_DEVICE_GPU, TWO, &(GkSpreadGroups) {.d = 1,.threads = 1}, &two);
	return two;
}

static void
test_faults(GkHost *host, const GkBackend *gpu)
{
	PackedCase	c = {"faults", 20000, 100, 4, {.k = 3,.n_init = 1,.max_iter = 20,.tol = 1e-4}};
	PackedReport r = packed_run(&c, host, gpu, NULL);
	size_t		before = free_memory();
	int			faults = 0;

	check(r.status == GK_OK && r.results == c.groups, "without a fault", &r);
	c.groups = 12000;
	for (int n = 0; n < 80; n++)
	{
		const char *kinds[] = {"memory", "error", "open-memory", "open-error"};
		char		fault[40];

		snprintf(fault, sizeof(fault), "%s:%d", kinds[n % 4], n / 4);
		host->gpu_fault = fault;
		r = packed_run(&c, host, gpu, NULL);
		check(r.status == GK_OK || r.status == (n % 2 ? GK_ERR_DEVICE : GK_ERR_DEVICE_MEMORY), fault, &r);
		check(r.different == 0 && free_memory() == before, fault, &r);
		faults += r.status != GK_OK;
	}
	host->gpu_fault = NULL;
	check(faults >= 30, "enough faults took effect", &r);
	for (int n = 0; n < 6; n++)
	{
		polls = n;
		r = packed_run(&c, host, gpu, NULL);
		check((r.status == GK_STOPPED || r.status == GK_OK) && free_memory() == before, "cancelled", &r);
	}
	polls = -1;
	r = packed_run(&c, host, gpu, NULL);
	check(r.status == GK_OK && r.results == c.groups && r.different == 0, "after the faults", &r);
}

/* ---- two GPUs ---- */

static int	lost;

static bool
device_lost(void *ctx, const GkError *err)
{
	(void) ctx;
	(void) err;
	lost++;
	return true;
}

static char shares[128];

static void
devices(void *ctx, const char *text)
{
	(void) ctx;
	snprintf(shares, sizeof(shares), "%s", text);
}

static void
test_two(GkHost *host, const PackedCase *cases, int n)
{
	int			both = 0;

	for (int i = 0; i < n; i++)
	{
		GkSpread	two = two_gpus();
		PackedReport r = packed_run(&cases[i], host, NULL, &two);

		check(r.status == GK_OK && r.different == 0 && r.results >= cases[i].groups * 9 / 10 && two.n == 2, cases[i].name, &r);
		both += strchr(shares, ',') != NULL;
		printf("%s on two: %d groups, %d on %s, CPU %.0f ms, GPUs %.0f ms\n", cases[i].name, cases[i].groups, r.results, shares,
			   r.cpu_ms, r.device_ms);
	}
	/* of few groups, one that is open a little later may have none */
	check(both > 0 || cases[0].groups < 1000, "both had groups", &(PackedReport) {0});
}

/* GPU 0 fails at each call of CUDA: the other one does its groups. */
static void
test_faults_of_one(GkHost *host)
{
	PackedCase	c = {"faults of one", 12000, 100, 4, {.k = 3,.n_init = 1,.max_iter = 20,.tol = 1e-4}};
	GkSpread	two = two_gpus();
	PackedReport r = packed_run(&c, host, NULL, &two);
	size_t		before = free_on_two();
	int			faults = 0;

	check(r.status == GK_OK && r.results == c.groups, "two without a fault", &r);
	for (int n = 0; n < 80; n++)
	{
		const char *kinds[] = {"memory", "error", "open-memory", "open-error"};
		char		fault[40];

		snprintf(fault, sizeof(fault), "0@%s:%d", kinds[n % 4], n / 4);
		host->gpu_fault = fault;
		two = two_gpus();
		lost = 0;
		r = packed_run(&c, host, NULL, &two);
		check(r.status == GK_OK && r.results == c.groups && r.different == 0 && two.n == 2 - lost, fault, &r);
		check(free_on_two() == before, fault, &r);
		faults += lost;
	}
	check(faults >= 20, "enough faults of GPU 0 took effect", &r);
	for (int n = 0; n < 3; n++)
	{
		host->gpu_fault = NULL;
		two = two_gpus();
		polls = n;
		r = packed_run(&c, host, NULL, &two);
		polls = -1;
		check((r.status == GK_STOPPED || r.status == GK_OK) && free_on_two() == before, "cancelled on two", &r);
	}
	host->gpu_fault = "error:3";
	two = two_gpus();
	r = packed_run(&c, host, NULL, &two);
	check(r.status == GK_ERR_DEVICE && r.different == 0 && two.n == 0 && free_on_two() == before, "both fail", &r);
	host->gpu_fault = NULL;
	two = two_gpus();
	r = packed_run(&c, host, NULL, &two);
	check(r.status == GK_OK && r.results == c.groups && r.different == 0 && two.n == 2, "two after the faults", &r);
}

/* ---- time ---- */

/* Each size twice: the second time the context is there and all memory was touched. */
static void
times(const GkHost *host, const GkBackend *gpu)
{
	PackedCase	cases[] = {
		{"", 100000, 100, 4, {.k = 3,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 1000, 100, 4, {.k = 3,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 5000, 100, 4, {.k = 3,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 20000, 100, 4, {.k = 3,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 200, 1000, 4, {.k = 8,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 1000, 1000, 4, {.k = 8,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 10000, 1000, 4, {.k = 8,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 2000, 1000, 8, {.k = 30,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 2000, 1000, 2, {.k = 5,.n_init = 10,.max_iter = 100,.tol = 1e-4}},
		{"", 20000, 20, 2, {.k = 3,.n_init = 10,.max_iter = 100,.tol = 1e-4}},
		{"", 20000, 1000, 8, {.k = 30,.n_init = 1,.max_iter = 100,.tol = 1e-4}},
		{"", 5000, 1000, 8, {.k = 30,.n_init = 10,.max_iter = 100,.tol = 1e-4}},
	};

	printf("%d threads; microseconds per group, sorting and preparing included; groups all of that size\n", gk_threads(host));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		const PackedCase *c = &cases[i];
		GkSpread	two = two_gpus();
		PackedReport r;

		packed_all_full = true;
		(void) packed_run(c, host, gpu, NULL);
		r = packed_run(c, host, gpu, NULL);
		printf("%d groups of %d x %d, k = %d, n_init = %d: CPU %.2f, GPU %.2f (%.1f and %.1f ms), preparing alone %.2f, %d on the GPU, %d differ\n",
			   c->groups, c->n, c->d, c->opt.k, c->opt.n_init, r.cpu_ms * 1e3 / c->groups, r.device_ms * 1e3 / c->groups,
			   r.cpu_ms, r.device_ms, r.prepare_ms * 1e3 / c->groups, r.results, r.different);
		if (two.n > 0)
		{
			double		rows = (double) c->groups * c->n;
			GkSpreadGroups work = {c->groups, (int64_t) rows, c->d, rows * c->d * c->opt.k * c->opt.n_init, c->opt.max_iter, gk_threads(host)};
			GkSpread	by_auto = {0};
			double		one = r.device_ms;

			(void) packed_run(c, host, NULL, &two);
			r = packed_run(c, host, NULL, &two);
			printf("    two GPUs (%s): %.2f (%.1f ms), %.2f times as fast as one; auto takes %d\n", shares,
				   r.device_ms * 1e3 / c->groups, r.device_ms, one / r.device_ms,
				   gk_spread_choose_groups(GK_DEVICE_AUTO, TWO, &work, &by_auto) > 1 ? by_auto.n : 1);
		}
		fflush(stdout);
	}
}

int
main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "full";
	PackedCase	small[] = GROUP_CASES(1);
	PackedCase	full[] = GROUP_CASES(20);
	const PackedCase *cases = strcmp(mode, "full") == 0 ? full : small;
	GkHost		host = {.alloc = packed_alloc,.free = packed_free,.poll = poll,.device_lost = device_lost,.devices = devices};
	GkDeviceInfo info[16];
	const GkBackend *gpu;
	GkError		err;
	int			n;
	int			ordinal;

	gk_registry_set_directory(argc > 1 ? argv[1] : ".");
	polls = -1;
	gpu = gk_registry_choose(GK_DEVICE_GPU, NULL, 0, 0, 0, &ordinal, &err);
	n = gk_registry_devices(info, 16);
	for (int i = 0; i < n; i++)
		printf("%s: %s%s\n", info[i].name, info[i].detail, info[i].reason);
	if (gpu == NULL)
	{
		printf("skipped: %s: %s\n", err.message, err.detail);
		return 0;
	}
	if (strcmp(mode, "time") == 0)
	{
		times(&host, gpu);
		return 0;
	}
	for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++)
	{
		PackedCase	c;
		PackedReport r;

		small[i].groups /= 10;
		c = cases[i];
		r = packed_run(&c, &host, gpu, NULL);
		check(r.status == GK_OK && r.different == 0 && r.results >= c.groups * 9 / 10, c.name, &r);
		printf("%s: %d groups, %d on the GPU, CPU %.0f ms, GPU %.0f ms\n", c.name, c.groups, r.results, r.cpu_ms, r.device_ms);
	}
	if (cases == full)
		test_faults(&host, gpu);
	if (two_gpus().n == 0)
		printf("skipped: groups on two GPUs, of which there is one\n");
	else
	{
		test_two(&host, cases, sizeof(small) / sizeof(small[0]));
		if (cases == full)
			test_faults_of_one(&host);
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
