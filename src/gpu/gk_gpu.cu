/*
 * gk_gpu.cu - the CUDA backend's entry: the vtable, opening and closing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gk_gpu.h"

/* Test only: a real sticky error, which no later call in this process survives. */
__global__ void
trap_kernel(void)
{
	asm volatile("trap;");
}

/* ---- columns ---- */

/* The constants of all columns in one block of device memory. */
static GkStatus
upload_columns(GkSession *s, GkError *err)
{
	const GkPrep *p = &s->pts->prep;
	size_t		d = s->d;
	size_t		total_at = 0;
	size_t		center_at = total_at + (d + 1) * sizeof(gk_int128);
	size_t		scale_at = center_at + d * sizeof(double);
	size_t		inv_at = scale_at + d * sizeof(double);
	size_t		expo_at = inv_at + d * sizeof(double);
	size_t		bytes = expo_at + d * sizeof(int32_t);
	char	   *host = (char *) s->core->alloc(s->host, bytes, 1);
	char	   *dev;
	cudaError_t e;

	if (host == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	memcpy(host + total_at, s->pts->total_sum, d * sizeof(gk_int128));
	memcpy(host + total_at + d * sizeof(gk_int128), &s->pts->total_mass, sizeof(gk_int128));
	memcpy(host + center_at, p->center, d * sizeof(double));
	memcpy(host + scale_at, p->scale, d * sizeof(double));
	for (size_t j = 0; j < d; j++)
		((double *) (host + inv_at))[j] = gk_pow2(GK_GRID_BITS - p->expo[j]);
	memcpy(host + expo_at, p->expo, d * sizeof(int32_t));
	e = cudaMalloc(&s->columns_block, bytes);
	if (e == cudaSuccess)
		e = cudaMemcpy(s->columns_block, host, bytes, cudaMemcpyHostToDevice);
	s->core->free(s->host, host);
	if (e != cudaSuccess)
		return gk_gpu_fail(s, e, "columns", __FILE__, __LINE__, err);
	dev = (char *) s->columns_block;
	s->columns.total = (gk_int128 *) (dev + total_at);
	s->columns.center = (double *) (dev + center_at);
	s->columns.scale = (double *) (dev + scale_at);
	s->columns.inv = (double *) (dev + inv_at);
	s->columns.expo = (int32_t *) (dev + expo_at);
	return GK_OK;
}

/* ---- other rows ---- */

/* Points on the device stay where they are, so that those that are streamed after them may be others. */
GkStatus
gk_gpu_move(GkSession *s, GkStore *store, int64_t from, bool *done, GkError *err)
{
	const GkPoints *pts = store != NULL ? s->core->points(store) : NULL;
	GkStatus	st;

	*done = from == 0 && s->resident < s->n && !s->ingested && s->joined == NULL && s->regime != GK_PAPER_HYBRID &&
		s->fsum != GK_DELTA;
	if (*done && store != NULL)
		*done = gk_gpu_can_stream(s, pts);
	if (!*done || store == NULL)
		return GK_OK;
	gk_gpu_step_stop(s);
	GK_DO(gk_gpu_drain(s, err));
	/* what has a place for each row */
	gk_gpu_seed_end(s);
	cudaFree(s->delta_labels);
	s->delta_labels = NULL;
	s->delta_k = 0;
	st = gk_gpu_stream_rows(s, store, err);
	*done = st != GK_ERR_MEMORY;
	if (st != GK_OK)
		return *done ? st : GK_OK;
	GK_TRY(cudaMemcpy((void *) s->columns.total, pts->total_sum, s->d * sizeof(gk_int128), cudaMemcpyHostToDevice));
	GK_TRY(cudaMemcpy((void *) (s->columns.total + s->d), &pts->total_mass, sizeof(gk_int128), cudaMemcpyHostToDevice));
	return GK_OK;
}

/* ---- the vtable ---- */

/* See GkProblem.gpu_fault. */
GkStatus
gk_gpu_arm_fault(GkSession *s, bool opening, GkError *err)
{
	const char *f = s->problem.gpu_fault;
	bool		at_open;

	if (f == NULL || f[0] == '\0')
		return GK_OK;
	at_open = strncmp(f, "open-", 5) == 0;
	if (at_open != opening)
		return GK_OK;
	if (at_open)
		f += 5;
	if (strchr(f, ':') == NULL)
		return gk_gpu_error(err, GK_ERR_OPTION, "bad fault \"%.40s\"", f);
	if (strncmp(f, "trap", 4) == 0)
	{
		trap_kernel<<<1, 1, 0, s->gpu->stream>>>();
		return GK_OK;
	}
	s->faults_at = atoll(strchr(f, ':') + 1);
	s->fault = strncmp(f, "memory", 6) == 0 ? cudaErrorMemoryAllocation : cudaErrorUnknown;
	return GK_OK;
}

GkSession *
gk_gpu_session(const GkProblem *problem)
{
	GkSession  *s = (GkSession *) problem->core->alloc(problem->host, 1, sizeof(GkSession));

	if (s == NULL)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->faults_at = -1;
	s->problem = *problem;
	s->host = problem->host;
	s->core = problem->core;
	s->store = problem->store;
	s->pts = s->core->points(problem->store);
	s->d = s->pts->d;
	s->cols = s->d + (s->pts->weighted ? 1 : 0);
	return s;
}

GkStatus
gk_gpu_bind(GkSession *s, GkError *err)
{
	double		start = gk_gpu_ms();

	GK_DO(gk_gpu_acquire(s->problem.gpu_devices, &s->gpu, err));
	s->context_ms = gk_gpu_ms() - start;
	return gk_gpu_arm_fault(s, true, err);
}

static GkStatus
open_session(GkSession *s, GkError *err)
{
	double		start;

	if (s->gpu == NULL)
		GK_DO(gk_gpu_bind(s, err));
	GK_TRY(cudaMalloc((void **) &s->done, sizeof(int)));
	GK_TRY(cudaMemsetAsync(s->done, 0, sizeof(int), s->gpu->stream));
	start = gk_gpu_ms();
	GK_DO(upload_columns(s, err));
	GK_DO(s->ingested ? gk_gpu_ingested(s, err) : gk_gpu_upload(s, err));
	s->upload_ms += gk_gpu_ms() - start;
	GK_DO(gk_gpu_room(s, s->problem.k_max, err));
	if (s->problem.max_iter > 1)
		GK_DO(gk_gpu_log_room(s, s->problem.k_max, err));
	gk_gpu_choose(s);
	start = gk_gpu_ms();
	GK_DO(gk_gpu_step_rehearse(s, s->problem.k_max, err));
	s->context_ms += gk_gpu_ms() - start;
	return gk_gpu_arm_fault(s, false, err);
}

void
gk_gpu_close(GkSession *s)
{
	if (s == NULL)
		return;
	if (s->gpu != NULL)
	{
		/* What is under way is bounded: this takes some 80 ms at most. */
		cudaStreamSynchronize(s->gpu->copy);
		cudaStreamSynchronize(s->gpu->stream);
		gk_gpu_free_all(s);
		cudaGetLastError();
		if (s->gpu->dead)
			gk_gpu_discard(s->gpu);
	}
	s->core->free(s->host, s);
}

static GkStatus
backend_open(const GkProblem *problem, GkSession **out, GkError *err)
{
	GkSession  *s = problem->ingesting != NULL ? problem->ingesting : gk_gpu_session(problem);
	GkStatus	st;

	*out = NULL;
	if (s == NULL)
		return gk_gpu_error(err, GK_ERR_MEMORY, "out of memory");
	s->problem = *problem;
	s->n = s->pts->n;
	st = open_session(s, err);
	if (st != GK_OK)
	{
		gk_gpu_close(s);
		return st;
	}
	*out = s;
	return GK_OK;
}

static void
backend_describe(GkSession *s, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	snprintf(device, device_len, "gpu %d (%s)", s->gpu->ordinal, s->gpu->name);
	snprintf(strategy, strategy_len, "%s", s->regime == GK_PAPER_HYBRID ? "cross_processing" :
			 s->single_pass ? "single_pass" : "multi_pass");
}

static void
backend_times(GkSession *s, double *context_ms, double *upload_ms)
{
	*context_ms = s->context_ms;
	*upload_ms = s->upload_ms;
}

/* By name: a new function of the interface shifts none. */
static GkBackend
make_backend(void)
{
	GkBackend	b = {};

	b.api_version = GK_BACKEND_API;
	b.struct_size = sizeof(GkBackend);
	b.name = "gpu";
	b.description = "CUDA";
	b.devices = gk_gpu_probe;
	b.step_ms = gk_gpu_step_ms;
	b.open = backend_open;
	b.close = gk_gpu_close;
	b.describe = backend_describe;
	b.times = backend_times;
	b.release = gk_gpu_release;
	b.warm = gk_gpu_warm;
	b.is_warm = gk_gpu_is_warm;
	b.step = gk_gpu_step;
	b.advance = gk_gpu_advance;
	b.recall = gk_gpu_recall;
	b.finish = gk_gpu_finish;
	b.seed_begin = gk_gpu_seed_begin;
	b.seed_end = gk_gpu_seed_end;
	b.seed_update = gk_gpu_seed_update;
	b.seed_eval = gk_gpu_seed_eval;
	b.seed_race = gk_gpu_seed_race;
	b.seed_far = gk_gpu_seed_far;
	b.seed_rounds = gk_gpu_seed_rounds;
	b.join = gk_gpu_join;
	b.leave = gk_gpu_leave;
	b.move = gk_gpu_move;
	b.row = gk_gpu_row;
	b.groups = &gk_gpu_group_batch;
	b.ingest = &gk_gpu_ingest;
	return b;
}

extern "C" __attribute__((visibility("default"))) const GkBackend *
gk_gpu_backend_init(void)
{
	static const GkBackend backend = make_backend();

	return &backend;
}
