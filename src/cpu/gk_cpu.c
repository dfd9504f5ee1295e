/*
 * gk_cpu.c - the CPU backend's vtable: always usable, and the fallback of every other.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu/gk_cpu.h"
#include "cpu/gk_cpu_cost.h"
#include "cpu/prune/gk_cpu_prune.h"

/* ---- the device ---- */

/* "model name : ..." of /proc/cpuinfo, where there is one. */
static void
processor_name(char *out, size_t len)
{
	FILE	   *f = fopen("/proc/cpuinfo", "r");
	char		line[256];

	snprintf(out, len, "CPU");
	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL)
	{
		char	   *colon = strchr(line, ':');

		if (colon == NULL || strncmp(line, "model name", 10) != 0)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		colon[strcspn(colon, "\n")] = '\0';
		if (*colon != '\0')
			snprintf(out, len, "%.*s", (int) len - 1, colon);
		break;
	}
	fclose(f);
}

static int
devices(GkDeviceInfo *out, int max)
{
	const GkHost any = {0};
	long		pages = sysconf(_SC_PHYS_PAGES);
	long		page = sysconf(_SC_PAGESIZE);

	if (max < 1)
		return 0;
	memset(out, 0, sizeof(*out));
	snprintf(out->backend, sizeof(out->backend), "cpu");
	processor_name(out->name, sizeof(out->name));
	out->usable = true;
	out->memory = pages > 0 && page > 0 ? (int64_t) pages * page : 0;
	snprintf(out->detail, sizeof(out->detail), "%d CPUs, %s kernels", gk_threads(&any), gk_cpu_simd());
	return 1;
}

double
gk_cpu_point_cost(const GkCpuKernels *kernels, int k, int d)
{
	if (kernels->integers != NULL && kernels->integers->cost < GK_COST_DOT_FEATURE && d >= GK_COST_INT16_MIN_D && k >= GK_COST_INT16_MIN_K)
		return GK_COST_INT16(kernels->integers->cost, k, d);
	if (kernels->assign_dot != NULL && d >= GK_COST_DOT_MIN_D && k >= GK_COST_DOT_MIN_K)
		return GK_COST_DOT(k, d);
	return k * GK_COST_DISTANCE(d);
}

static double
step_ms(int ordinal, const GkProblem *problem, int64_t rows)
{
	const GkCpuKernels *kernels = gk_cpu_kernels();
	const GkPoints *pts = problem->core->points(problem->store);
	double		compute = gk_cpu_point_cost(kernels, problem->k_max, pts->d) / kernels->lanes / GK_COST_INSTRUCTIONS_MS;
	double		read = pts->d * sizeof(float) / GK_COST_READ_MS;

	(void) ordinal;
	return (double) rows * (compute > read ? compute : read) / gk_threads(problem->host);
}

/* ---- the session ---- */

/* Append a text, cut to the room there is; returns its end. */
static char *
put(char *to, size_t *room, const char *text)
{
	size_t		n = strlen(text);

	if (n >= *room)
		n = *room - 1;
	memcpy(to, text, n);
	to[n] = '\0';
	*room -= n;
	return to + n;
}

static void
describe(GkSession *s, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	static const char *const names[] = {
		[GK_FSUM_AUTO] = "single_pass",	/* no step yet */
		[GK_CLUSTER_MERGE] = "single_pass/cluster_merge",
		[GK_PARTITIONED_FEATURES] = "multi_pass/partitioned_features",
		[GK_DELTA] = "single_pass/delta",
	};

	/* not by snprintf(): thousands of small clusterings are slower with it */
	if (s->host.threads == 1)
		put(put(put(device, &device_len, "cpu ("), &device_len, s->kernels->name), &device_len, ", 1 thread)");
	else
		snprintf(device, device_len, "cpu (%s, %d threads)", s->kernels->name, s->host.threads);
	put(strategy, &strategy_len, names[s->used]);
}

GkStatus
gk_cpu_seed_begin(GkSession *s, GkError *err)
{
	GkStatus	st = s->core->mind2_begin(s->store, err);

	/* New centroids are coming: forget the last step. */
	s->previous_k = 0;
	s->added = 0;
	gk_cpu_drop_base(s);
	if (!s->pts->resident)
		gk_cpu_room_free(s, &s->previous);
	gk_cpu_hamerly_forget(s);
	gk_cpu_elkan_forget(s);
	gk_cpu_int8_end(s);
	s->int8.wait = s->int8.waited = 0;
	s->seed.known = false;
	s->seed.seeds = s->seed.consider = s->seed.count = s->seed.given_count = 0;
	s->seed.pending = NULL;
	s->seed.ahead_from = 0;
	s->seed.ahead_most = INT_MAX;
	s->seed.ahead_share = 1.0;
	gk_cpu_drop_drawn(s);
	return st;
}

void
gk_cpu_seed_end(GkSession *s)
{
	s->seed.pending = NULL;
	s->seed.kept = false;
	s->seed.given_count = 0;
	gk_cpu_room_free(s, &s->seed.all);
	gk_cpu_room_free(s, &s->seed.given);
	gk_cpu_room_free(s, &s->seed.nearest);
	gk_cpu_seed_index_free(s);
	gk_cpu_drop_drawn(s);
	gk_cpu_int8_end(s);
	s->core->mind2_end(s->store);
}

const GkBackend gk_cpu_backend = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "cpu",
	.description = "all CPU cores, vector instructions chosen at run time",
	.devices = devices,
	.step_ms = step_ms,
	.open = gk_cpu_open,
	.close = gk_cpu_close,
	.describe = describe,
	.step = gk_cpu_step,
	.finish = gk_cpu_finish,
	.seed_begin = gk_cpu_seed_begin,
	.seed_end = gk_cpu_seed_end,
	.seed_update = gk_cpu_seed_update,
	.seed_finished = gk_cpu_seed_finished,
	.seed_eval = gk_cpu_seed_eval,
	.seed_race = gk_cpu_seed_race,
	.seed_rounds = gk_cpu_seed_rounds,
	.seed_far = gk_cpu_seed_far,
	.move = gk_cpu_move,
};
