/*
 * gk_cpu.c - the CPU backend: always usable, and the fallback of every other.
 *
 * The passes are in gk_cpu_step.c (step), gk_cpu_finish.c, gk_cpu_seed.c and
 * gk_cpu_sample.c; all walk over the points by gk_cpu_sweep.c and compute with the
 * kernels of gk_cpu_kernels.h.  All memory is allocated on the main thread, kept
 * in the session from pass to pass and freed by close().
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/gk_numerics.h"
#include "cpu/gk_cpu.h"

/* ---- memory ---- */

bool
gk_cpu_room(GkSession *s, GkRoom *r, size_t count, size_t size)
{
	size_t		bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return false;
	if (r->p != NULL && r->bytes >= bytes)
		return true;
	s->core->free(&s->host, r->p);
	r->p = s->core->alloc(&s->host, bytes, 1);
	r->bytes = r->p != NULL ? bytes : 0;
	return r->p != NULL;
}

GkStatus
gk_cpu_out_of_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory");
}

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

/* ---- the session ---- */

static void
close_session(GkSession *s)
{
	GkHost		host;

	if (s == NULL)
		return;
	host = s->host;
	s->core->free(&host, s->inv.p);
	s->core->free(&host, s->scratch.p);
	s->core->free(&host, s->sums.p);
	s->core->free(&host, s->label.p);
	s->core->free(&host, s->d2.p);
	s->core->free(&host, s->seed.points.p);
	s->core->free(&host, s->seed.pot.p);
	s->core->free(&host, s->seed.closer.p);
	s->core->free(&host, s->seed.marks.p);
	gk_cpu_seed_index_free(s, &host);
	gk_cpu_hamerly_free(s, &host);
	gk_cpu_exponion_free(s, &host);
	s->core->free(&host, s->screen.half.p);
	s->core->free(&host, s->screen.turned.p);
	s->core->free(&host, s->screen.square.p);
	s->core->free(&host, s->previous.p);
	s->core->free(&host, s->kept.p);
	s->core->free(&host, s->base_sum.p);
	s->core->free(&host, s->base_mass.p);
	s->core->free(&host, s->base_count.p);
	s->core->free(&host, s);
}

static GkStatus
open_session(const GkProblem *problem, GkSession **out, GkError *err)
{
	const GkPoints *p = problem->core->points(problem->store);
	GkSession  *s = problem->core->alloc(problem->host, 1, sizeof(GkSession));
	double	   *inv;

	*out = NULL;
	if (s == NULL)
		return gk_cpu_out_of_memory(err);
	memset(s, 0, sizeof(*s));
	s->core = problem->core;
	s->store = problem->store;
	s->pts = p;
	s->kernels = gk_cpu_kernels();
	s->strategy = problem->strategy;
	s->feature_sum = problem->feature_sum;
	s->host = *problem->host;
	s->host.threads = gk_threads(problem->host);
	for (int i = 0; i < p->nchunks; i++)
	{
		if (p->chunks[i].stride > s->max_stride)
			s->max_stride = p->chunks[i].stride;
		s->all_rows += p->chunks[i].stride;
	}
	s->seed.most = problem->k_max;
	s->d2_scale = gk_pow2(GK_GRID_BITS - p->d2_expo);
	if (!gk_cpu_room(s, &s->inv, p->d, sizeof(double)))
	{
		close_session(s);
		return gk_cpu_out_of_memory(err);
	}
	inv = s->inv.p;
	for (int j = 0; j < p->d; j++)
		inv[j] = gk_pow2(GK_GRID_BITS - p->prep.expo[j]);
	*out = s;
	return GK_OK;
}

/* As much of a text as there is room for; returns where it ends. */
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

	/* thousands of small clusterings feel snprintf() */
	if (s->host.threads == 1)
		put(put(put(device, &device_len, "cpu ("), &device_len, s->kernels->name), &device_len, ", 1 thread)");
	else
		snprintf(device, device_len, "cpu (%s, %d threads)", s->kernels->name, s->host.threads);
	put(strategy, &strategy_len, names[s->used]);
}

static GkStatus
seed_begin(GkSession *s, GkError *err)
{
	GkStatus	st = s->core->mind2_begin(s->store, err);

	/* New centroids are coming: nothing of the last step is near. */
	s->previous_k = 0;
	gk_cpu_hamerly_forget(s);
	s->seed.known = false;
	s->seed.seeds = s->seed.consider = 0;
	s->seed.pending = NULL;
	s->seed.candidates = 0;
	return st;
}

static void
seed_end(GkSession *s)
{
	s->seed.pending = NULL;
	gk_cpu_seed_index_free(s, &s->host);
	s->core->mind2_end(s->store);
}

const GkBackend gk_cpu_backend = {
	.api_version = GK_BACKEND_API,
	.struct_size = sizeof(GkBackend),
	.name = "cpu",
	.description = "all CPU cores, vector instructions chosen at run time",
	.devices = devices,
	.open = open_session,
	.close = close_session,
	.describe = describe,
	.step = gk_cpu_step,
	.finish = gk_cpu_finish,
	.seed_begin = seed_begin,
	.seed_end = seed_end,
	.seed_update = gk_cpu_seed_update,
	.seed_eval = gk_cpu_seed_eval,
	.seed_race = gk_cpu_seed_race,
	.seed_far = gk_cpu_seed_far,
};
